//! Two clusters without nodes and a registry of three members: needs no privileges, and leaves
//! nothing behind.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::{fs, path::Path, process::Command, time::Duration};

use tombolo_testbed::{
    Builder, Cache, ClusterSpec, EtcdSpec, Progress, Spec, Testbed, Tls, is_root, wait_for,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// All processes that have the state folder in their command line.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            command.contains(folder).then_some(command)
        })
        .collect()
}

fn network_devices() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn e2e_clusters_without_nodes() {
    let testbed = Testbed::start_with(
        &Spec::clusters(2, |c| c),
        Cache::from_env().unwrap(),
        Progress::stderr(),
    )
    .unwrap();
    let folder = testbed.folder().to_owned();
    let builder = Builder::new(Cache::from_env().unwrap(), Progress::stderr());
    let crds = builder.mcs_crds(None).unwrap();
    for cluster in testbed.clusters() {
        cluster.apply_crds(&crds).unwrap();
        let resources = cluster
            .kubectl(&["api-resources", "--output=name"])
            .unwrap();
        assert!(
            resources.contains("serviceimports.multicluster.x-k8s.io"),
            "{resources}"
        );
    }

    let (c1, c2) = (
        testbed.cluster("c1").unwrap(),
        testbed.cluster("c2").unwrap(),
    );
    c1.create_namespace("only-here").unwrap();
    c2.kubectl(&["get", "namespace", "only-here"]).unwrap_err();

    c1.apiserver().kill().unwrap();
    assert!(!c1.apiserver().is_running());
    c1.kubectl(&["get", "namespaces"]).unwrap_err();
    c2.kubectl(&["get", "namespaces"]).unwrap();
    c1.apiserver().restart().unwrap();
    c1.wait_apiserver().unwrap();
    c1.kubectl(&["get", "namespace", "only-here"]).unwrap();

    let slow = ["get", "namespaces", "--request-timeout=1s"];
    c1.apiserver().pause().unwrap();
    c1.kubectl(&slow).unwrap_err();
    c1.apiserver().resume().unwrap();
    c1.wait_until(&slow, TIMEOUT, |text| text.contains("only-here"))
        .unwrap();
    if is_root() {
        let etcd = testbed.etcd().unwrap().first();
        c1.apiserver().cut_from(etcd.part()).unwrap();
        c1.kubectl(&["get", "--raw=/livez/etcd", "--request-timeout=3s"])
            .unwrap_err();
        c1.kubectl(&["get", "--raw=/livez/ping"]).unwrap();
        c2.kubectl(&slow).unwrap();
        c1.apiserver().mend_from(etcd.part()).unwrap();
        c1.wait_until(&slow, TIMEOUT, |text| text.contains("only-here"))
            .unwrap();
        c1.apiserver().cut().unwrap();
        c1.kubectl(&slow).unwrap_err();
        c1.apiserver().mend().unwrap();
        c1.wait_until(&slow, TIMEOUT, |text| text.contains("only-here"))
            .unwrap();
    }

    assert!(!processes_of(&folder).is_empty());
    testbed.stop().unwrap();
    assert_eq!(processes_of(&folder), Vec::<String>::new());
    assert!(!folder.exists());
}

#[test]
fn e2e_any_order_of_families_and_options() {
    let families = ["IPv4", "IPv6", "IPv6,IPv4"];
    let clusters = families.iter().enumerate().map(|(index, families)| {
        ClusterSpec::new(format!("east-{index}"))
            .families(families.parse().unwrap())
            .admission_plugin("OwnerReferencesPermissionEnforcement")
            .apiserver_arg("--watch-cache=false")
    });
    let spec = Spec {
        clusters: clusters.collect(),
        ..Spec::default()
    };
    let testbed = Testbed::start(&spec).unwrap();
    for (cluster, expected) in testbed.clusters().iter().zip(families) {
        let query = "jsonpath={.spec.ipFamilies}";
        let args = ["get", "service", "kubernetes", "-o", query];
        let service = cluster
            .wait_until(&args, TIMEOUT, |text| text.starts_with('['))
            .unwrap();
        assert!(
            service.starts_with(&format!("[\"{}\"", &expected[..4])),
            "{service}"
        );
    }
}

#[test]
fn etcd_members_are_killed_cut_off_and_wiped() {
    let mut testbed = Testbed::start(&Spec::default()).unwrap();
    let folder = testbed.folder().to_owned();
    let devices = network_devices();
    let etcd = testbed
        .start_etcd("registry", &EtcdSpec::members(3))
        .unwrap();
    assert_eq!(etcd.endpoints().len(), 3);
    let [first, second, third] = etcd.members() else {
        unreachable!("three members")
    };

    first.part().kill().unwrap();
    assert!(!first.is_healthy());
    second.wait_healthy().unwrap();
    first.part().restart().unwrap();
    etcd.wait_healthy().unwrap();

    if is_root() {
        // Alone, it loses its leader; the others keep or find one.
        third.part().cut().unwrap();
        assert!(!third.is_healthy());
        second.wait_healthy().unwrap();
        third.part().mend().unwrap();
        etcd.wait_healthy().unwrap();
    }

    etcd.kill_all().unwrap();
    etcd.members()
        .iter()
        .for_each(|member| member.wipe().unwrap());
    etcd.restart_all().unwrap();

    drop(testbed);
    wait_for("its processes gone", TIMEOUT, || {
        Ok(processes_of(&folder).is_empty().then_some(()))
    })
    .unwrap();
    assert!(!folder.exists());
    assert_eq!(network_devices(), devices);
}

#[test]
fn programs_of_the_caller_are_parts() {
    let testbed = Testbed::start(&Spec::default()).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo said $WORD; exec sleep 60"])
        .env("WORD", "it");
    let program = testbed.start_program("sleeper", &command, None).unwrap();
    testbed
        .start_program("sleeper", &command, None)
        .unwrap_err();
    let first = program.pid();
    let said = |text: &str| {
        wait_for(text, TIMEOUT, || {
            Ok((program.log_tail() == text).then_some(()))
        })
        .unwrap();
    };
    said("said it");
    program.restart().unwrap();
    said("said it\nsaid it");
    assert_ne!(program.pid(), first);
    drop(testbed);
    assert!(!program.is_running());
}

#[test]
fn etcd_of_two_testbeds_do_not_meet() {
    let mut testbeds = [0, 1].map(|_| Testbed::start(&Spec::default()).unwrap());
    let [one, other] = testbeds
        .each_mut()
        .map(|bed| bed.start_etcd("registry", &EtcdSpec::default()).unwrap());
    assert_ne!(one.endpoints(), other.endpoints());
    let [first, second] = testbeds;
    drop(first);
    assert!(!one.first().is_healthy());
    other.wait_healthy().unwrap();
    // Another value of the same testbed, as another process would have it.
    let attached = Testbed::attach(second.folder()).unwrap();
    attached
        .registry("registry")
        .unwrap()
        .wait_healthy()
        .unwrap();
    drop(attached);
    other.wait_healthy().unwrap();
}

#[test]
fn etcd_with_mutual_tls() {
    let mut testbed = Testbed::start(&Spec::default()).unwrap();
    let spec = EtcdSpec::default().tls(Tls::Mutual);
    let etcd = testbed.start_etcd("registry", &spec).unwrap();
    let authority = etcd.authority().unwrap();
    let client = authority.issue("east").unwrap();
    let url = format!("{}/version", etcd.endpoints()[0]);
    let mut curl = Command::new("curl");
    curl.args(["-sf", "--cacert"])
        .arg(authority.certificate())
        .arg(&url);
    assert!(
        !curl.output().unwrap().status.success(),
        "without a certificate"
    );
    curl.arg("--cert")
        .arg(client.certificate)
        .arg("--key")
        .arg(client.key);
    let answer = curl.output().unwrap();
    assert!(
        String::from_utf8_lossy(&answer.stdout).contains("etcdserver"),
        "{answer:?}"
    );
}
