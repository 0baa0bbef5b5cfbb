//! `tombolo registry` and `tombolo replicator` on real etcd, as an operator meets them.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use etcd_client::Client;
use tombolo_testbed::{Etcd, EtcdSpec, Spec, Testbed, wait_for};

struct Server {
    etcd: Etcd,
    _testbed: Testbed,
}

impl Server {
    fn start() -> Self {
        let mut testbed = Testbed::start(&Spec::default()).unwrap();
        let etcd = testbed
            .start_etcd("registry", &EtcdSpec::default())
            .unwrap();
        Self {
            etcd,
            _testbed: testbed,
        }
    }

    fn url(&self) -> String {
        self.etcd.first().endpoint()
    }

    fn registry(&self, args: &[&str]) -> Output {
        let mut command = tombolo(&["registry"]);
        command.args(args).args(["--registry", &self.url()]);
        command.output().unwrap()
    }
}

fn tombolo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(args);
    command
}

fn text(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8(both).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A process that is told to stop when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.0.wait().ok();
    }
}

#[test]
fn etcd_members_and_settings_are_recorded_shown_and_checked() {
    let server = Server::start();
    let granted = server.registry(&[
        "grant",
        "--cluster",
        "east",
        "--cidr",
        "10.0.0.0/8",
        "--namespaces",
        "shop",
    ]);
    assert_eq!(
        (code(&granted), text(&granted).as_str()),
        (
            0,
            "user tombolo-cluster-east has role tombolo-cluster-east\n"
        )
    );
    let set = server.registry(&["set-config", "--precedence-from-join", "true"]);
    assert_eq!(code(&set), 0, "{}", text(&set));
    let shown = server.registry(&["get", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let keys: Vec<_> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at["key"].as_str())
        .collect();
    assert_eq!(keys, [Some("local/members/east"), Some("local/settings")]);
    let member = &shown[0];
    assert_eq!(member["kind"], "Member");
    assert_eq!(member["value"]["cidrs"][0], "10.0.0.0/8");
    assert_eq!(shown[1]["value"]["precedenceFromJoin"], true);
    let checked = server.registry(&["check", "-o", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(found["findings"], serde_json::json!([]), "{found}");
    let checked = server.registry(&["check"]);
    assert_eq!(code(&checked), 0, "{}", text(&checked));
    assert!(text(&checked).contains("nothing is wrong"));
    let missing = server.registry(&["remove-cluster", "west"]);
    assert_eq!(code(&missing), 1);
    assert!(
        text(&missing).contains("there is no cluster west"),
        "{}",
        text(&missing)
    );
}

#[test]
fn etcd_what_grant_would_do_is_printed() {
    let printed = tombolo(&["registry", "grant", "--cluster", "east", "--print"])
        .args(["--region", "eu", "--registry", "https://etcd:2379"])
        .output()
        .unwrap();
    let expected = "\
etcdctl role add tombolo-cluster-east
etcdctl role grant-permission --prefix tombolo-cluster-east readwrite /tombolo/v1/regions/eu/clusters/east/
etcdctl role grant-permission --prefix tombolo-cluster-east read /tombolo/v1/regions/
etcdctl user add --no-password tombolo-cluster-east
etcdctl user grant-role tombolo-cluster-east tombolo-cluster-east
";
    assert_eq!((code(&printed), text(&printed).as_str()), (0, expected));
}

#[test]
fn etcd_a_wrong_command_line_says_what_is_wrong() {
    for (args, word) in [
        (&["registry", "check"][..], "--registry is needed"),
        (
            &["registry", "check", "--registry", "etcd:2379"],
            "etcd:2379",
        ),
        (
            &[
                "registry",
                "get",
                "--registry",
                "http://x",
                "--registry-root",
                "x/",
            ],
            "--registry-root",
        ),
        (
            &["replicator", "--registry", "http://x", "--to", "http://y"],
            "REGION=URL",
        ),
        (
            &[
                "replicator",
                "--registry",
                "http://x",
                "--to",
                "local=http://y",
            ],
            "own region",
        ),
    ] {
        let output = tombolo(args).output().unwrap();
        assert_eq!(code(&output), 64, "{args:?}: {}", text(&output));
        assert!(text(&output).contains(word), "{args:?}: {}", text(&output));
    }
    let away = tombolo(&["registry", "check", "--registry", "http://127.0.0.1:1"]).output();
    let away = away.unwrap();
    assert_eq!(code(&away), 1);
    assert!(
        text(&away).contains("the registry is away"),
        "{}",
        text(&away)
    );
}

#[test]
fn etcd_a_member_that_cannot_be_read_is_recorded_anew_by_grant_only() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(Client::connect(server.etcd.endpoints(), None));
    let mut client = client.unwrap();
    let key = "/tombolo/v1/regions/local/members/east";
    // A field of no type.
    let broken = [0x0f_u8];
    runtime.block_on(client.put(key, broken, None)).unwrap();
    let undrain = || {
        let args = ["undrain", "east", "--registry", &server.url()];
        tombolo(&args).output().unwrap()
    };
    let refused = undrain();
    assert_eq!(code(&refused), 1, "{}", text(&refused));
    for part in ["members/east", "cannot be read", "tombolo registry grant"] {
        assert!(text(&refused).contains(part), "{}", text(&refused));
    }
    let found = runtime.block_on(client.get(key, None)).unwrap();
    assert_eq!(found.kvs()[0].value(), broken);
    let granted = server.registry(&["grant", "--cluster", "east", "--namespaces", "shop"]);
    assert_eq!(code(&granted), 0, "{}", text(&granted));
    let done = undrain();
    assert_eq!(code(&done), 0, "{}", text(&done));
    let shown = text(&server.registry(&["get", "-o", "json"]));
    assert!(shown.contains("shop"), "{shown}");
}

#[test]
fn etcd_a_replicator_copies_what_is_recorded() {
    let (eu, us) = (Server::start(), Server::start());
    let to = format!("us={}", us.url());
    let replicator = tombolo(&["replicator", "--region", "eu", "--registry", &eu.url()])
        .args(["--to", &to, "--admin", "off", "--log", "off"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running(replicator);
    let granted = eu.registry(&["grant", "--cluster", "east", "--region", "eu"]);
    assert_eq!(code(&granted), 0, "{}", text(&granted));
    let found = wait_for("it is copied", Duration::from_secs(30), || {
        let shown = text(&us.registry(&["get"]));
        Ok(shown.contains("eu/members/east").then_some(()))
    });
    found.unwrap();
    drop(running);
    let left = us.registry(&["get"]);
    assert!(text(&left).contains("eu/members/east"), "{}", text(&left));
}
