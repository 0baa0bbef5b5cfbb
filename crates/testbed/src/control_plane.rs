//! The command lines of a cluster's control plane.

use std::{fs, net::IpAddr, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::{
    addresses::services,
    image::ImageFile,
    kubeconfig::Access,
    record::Launch,
    spec::{ClusterSpec, Family},
    state::State,
};

/// etcd's three ports come first in a slot, then three for each cluster.
const PORTS_PER_CLUSTER: u16 = 3;

/// A cluster in its testbed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) state: &'a State,
    pub(crate) spec: &'a ClusterSpec,
    /// From 1.
    pub(crate) number: u8,
    /// The Kubernetes programs of its version.
    pub(crate) programs: &'a PathBuf,
    /// The kubelet's folder.
    pub(crate) kubelet: &'a PathBuf,
    /// The `CoreDNS` program; only there if a cluster is to have it.
    pub(crate) coredns: &'a PathBuf,
    /// What nodes are to have.
    pub(crate) images: &'a [ImageFile],
    /// URL of etcd.
    pub(crate) etcd: &'a str,
}

impl Place<'_> {
    /// The cluster's files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.state.folder.join("clusters").join(&self.spec.name)
    }

    pub(crate) fn kubeconfig_file(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// The configuration of its `CoreDNS`.
    pub(crate) fn corefile(&self) -> PathBuf {
        self.folder().join("Corefile")
    }

    /// The name of one of the cluster's parts.
    pub(crate) fn part_name(&self, part: &str) -> String {
        format!("{}-{part}", self.spec.name)
    }

    /// How its administrator reaches it.
    pub(crate) fn access(&self, authority: String) -> Result<Access> {
        let tokens = fs::read_to_string(token_file(self.state))?;
        let (token, _) = tokens.split_once(',').context("no token")?;
        let address = match self.listen_address() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Ok(Access {
            name: self.spec.name.clone(),
            server: format!("https://{address}:{}", self.state.slot.port(self.port(0))),
            authority,
            token: token.to_owned(),
        })
    }

    /// Where the API server listens: where nodes reach it, if the testbed has any.
    fn listen_address(&self) -> IpAddr {
        if self.state.spec.has_nodes() {
            return self.state.slot.gateway(self.spec.families.primary());
        }
        IpAddr::from([127, 0, 0, 1])
    }

    fn port(&self, index: u16) -> u16 {
        PORTS_PER_CLUSTER * u16::from(self.number) + index
    }

    fn service_range(&self) -> String {
        let range = self
            .spec
            .families
            .join(|family| services(family, self.number));
        format!("--service-cluster-ip-range={range}")
    }
}

/// The administrator's token, the same for all clusters of a testbed.
pub(crate) fn token_file(state: &State) -> PathBuf {
    state.folder.join("tokens.csv")
}

/// The key that service account tokens are signed with.
pub(crate) fn service_account_key(state: &State) -> PathBuf {
    state.folder.join("service-account.key")
}

pub(crate) fn apiserver(place: &Place<'_>) -> Launch {
    let (state, spec) = (place.state, place.spec);
    let mut launch = state.launch(
        &place.part_name("apiserver"),
        place.programs.join("kube-apiserver"),
        &[place.port(0)],
    );
    let key = service_account_key(state);
    launch.args = vec![
        format!("--etcd-servers={}", place.etcd),
        format!("--etcd-prefix=/{}", spec.name),
        format!("--secure-port={}", launch.ports[0]),
        format!("--bind-address={}", place.listen_address()),
        format!("--cert-dir={}", place.folder().join("certs").display()),
        format!("--service-account-issuer=https://{}.testbed", spec.name),
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
        format!("--token-auth-file={}", token_file(state).display()),
        place.service_range(),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--event-ttl=10m".into(),
    ];
    if state.spec.has_nodes() {
        launch
            .args
            .push(format!("--advertise-address={}", place.listen_address()));
    } else {
        // It insists on an address that is not of the loopback range, of the first family; with
        // nothing inside the cluster to reach it, it is one for documentation and not published.
        launch.args.push("--endpoint-reconciler-type=none".into());
        launch.args.push(match spec.families.primary() {
            Family::V4 => "--advertise-address=192.0.2.1".into(),
            Family::V6 => "--advertise-address=2001:db8::1".into(),
        });
    }
    if !spec.admission_plugins.is_empty() {
        let plugins = spec.admission_plugins.join(",");
        launch
            .args
            .push(format!("--enable-admission-plugins={plugins}"));
    }
    launch.args.extend(spec.apiserver_args.iter().cloned());
    launch
}

pub(crate) fn controller_manager(place: &Place<'_>) -> Launch {
    let authority = place.folder().join("certs/apiserver.crt");
    let mut launch = client(place, "controller-manager", "kube-controller-manager", 1);
    launch.args.extend([
        place.service_range(),
        "--allocate-node-cidrs=false".into(),
        format!(
            "--service-account-private-key-file={}",
            service_account_key(place.state).display()
        ),
        format!("--root-ca-file={}", authority.display()),
    ]);
    launch
}

pub(crate) fn scheduler(place: &Place<'_>) -> Launch {
    client(place, "scheduler", "kube-scheduler", 2)
}

/// What controller manager and scheduler have in common.
fn client(place: &Place<'_>, part: &str, program: &str, port: u16) -> Launch {
    let mut launch = place.state.launch(
        &place.part_name(part),
        place.programs.join(program),
        &[place.port(port)],
    );
    let kubeconfig = place.kubeconfig_file();
    launch.args = [
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ]
    .map(|flag| format!("--{flag}={}", kubeconfig.display()))
    .to_vec();
    launch
        .args
        .extend(["--leader-elect=false".into(), "--secure-port=0".into()]);
    // The port is reserved, not used: making a certificate would take longer than all the rest.
    launch.ports.clear();
    launch
}
