//! A cluster's API server, what it holds, and the DNS servers over it.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::{Builder, Cache, Cluster, Part, Progress, Spec, Testbed, wait_for};
use tombolo_testkit::dns::{self, Transport};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A service of the clusterset.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Clusterset IPs; none for a headless one.
    pub(crate) ips: Vec<String>,
    pub(crate) is_headless: bool,
    /// Name, protocol, number.
    pub(crate) ports: Vec<(String, &'static str, u16)>,
    pub(crate) slices: Vec<Slice>,
}

/// A slice of a service.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) cluster: String,
    pub(crate) family: &'static str,
    /// Address, host name, whether it is ready.
    pub(crate) endpoints: Vec<(String, Option<String>, bool)>,
    /// The ports by their places in the service, with a number of their own.
    pub(crate) ports: Vec<(usize, u16)>,
}

/// Everything that the cluster holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clusterset {
    pub(crate) services: Vec<Service>,
}

const CLUSTERS: [&str; 3] = ["east", "west", "north.prod"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

impl Clusterset {
    /// Forty-eight services of every shape.
    pub(crate) fn generate() -> Self {
        let services = (0..48).map(service).collect();
        Self { services }
    }

    /// Of a service with a clusterset IP.
    pub(crate) fn first_vip_name(&self) -> String {
        let vip = self
            .services
            .iter()
            .find(|service| !service.ips.is_empty() && !service.ports.is_empty());
        vip.map(Service::fqdn).unwrap_or_default()
    }

    fn manifests(&self) -> String {
        let mut text = String::new();
        let mut namespaces: Vec<&str> = self.services.iter().map(|s| &*s.namespace).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        // One namespace that nothing is imported in.
        for namespace in namespaces.into_iter().chain(["bare"]) {
            let _infallible = write!(
                text,
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n"
            );
        }
        for service in &self.services {
            text.push_str(&service.manifests());
        }
        text
    }
}

fn service(index: usize) -> Service {
    let is_headless = index % 2 == 1;
    let dual = index.is_multiple_of(3);
    let ports = (0..index % 4)
        .map(|n| {
            let name = if index % 4 == 1 && index.is_multiple_of(5) {
                String::new()
            } else {
                format!("p{n}")
            };
            (
                name,
                PROTOCOLS[(index + n) % 3],
                80 + u16::try_from(n).unwrap_or(0),
            )
        })
        .collect::<Vec<_>>();
    let mut ips = Vec::new();
    if !is_headless && index % 7 != 6 {
        ips.push(format!("10.96.1.{index}"));
        if dual {
            ips.push(format!("fd96::1:{:x}", index + 16));
        }
    }
    let mut slices = Vec::new();
    for (place, cluster) in CLUSTERS.iter().enumerate().take(1 + index % 3) {
        let families: &[&'static str] = if dual { &["IPv4", "IPv6"] } else { &["IPv4"] };
        for &family in families {
            let endpoints = (0..=index % 3).map(|n| {
                let address = if family == "IPv4" {
                    format!("10.{}.{index}.{n}", place + 1)
                } else if n == 0 {
                    format!("fd0{place}:{:x}::", index + 16)
                } else {
                    format!("fd0{place}:{:x}::{n:x}", index + 16)
                };
                let hostname = (index % 4 != 1).then(|| format!("h-{n}"));
                // Every eleventh service has nothing ready, the others one that is not.
                (address, hostname, index % 11 != 9 && (n != 2))
            });
            let kept = ports
                .iter()
                .enumerate()
                .filter(|(n, _)| *n == 0 || place % 2 == 0);
            slices.push(Slice {
                cluster: (*cluster).to_owned(),
                family,
                endpoints: endpoints.collect(),
                ports: kept
                    .map(|(n, _)| (n, 8_000 + u16::try_from(n * 10 + place).unwrap_or(0)))
                    .collect(),
            });
        }
    }
    Service {
        namespace: format!("shop-{}", index % 5),
        name: format!("s{index}"),
        ips,
        is_headless,
        ports,
        slices,
    }
}

impl Service {
    pub(crate) fn fqdn(&self) -> String {
        format!("{}.{}.svc.clusterset.local.", self.name, self.namespace)
    }

    fn manifests(&self) -> String {
        let Self {
            namespace,
            name,
            ips,
            is_headless,
            ports,
            slices,
        } = self;
        let kind = if *is_headless {
            "Headless"
        } else {
            "ClusterSetIP"
        };
        let port = |(name, protocol, number): &(String, &str, u16)| {
            let name = if name.is_empty() {
                String::new()
            } else {
                format!("name: {name}, ")
            };
            format!("{{{name}protocol: {protocol}, port: {number}}}")
        };
        let list = ports.iter().map(port).collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "---\napiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: \
             {{name: {name}, namespace: {namespace}}}\nspec: {{type: {kind}, ips: {ips:?}, ports: \
             [{list}]}}\n"
        );
        for (number, slice) in slices.iter().enumerate() {
            let list = slice.ports.iter().map(|(index, number)| {
                let (name, protocol, _) = &ports[*index];
                port(&(name.clone(), protocol, *number))
            });
            let list = list.collect::<Vec<_>>().join(", ");
            let endpoints = slice.endpoints.iter().map(|(address, host, ready)| {
                let host = host.as_ref().map(|host| format!("hostname: {host}, "));
                let host = host.unwrap_or_default();
                format!("{{addresses: ['{address}'], {host}conditions: {{ready: {ready}}}}}")
            });
            let endpoints = endpoints.collect::<Vec<_>>().join(", ");
            let _infallible = write!(
                text,
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: \
                 {name}-{number}, namespace: {namespace}, labels: \
                 {{multicluster.kubernetes.io/service-name: {name}, \
                 multicluster.kubernetes.io/source-cluster: {}}}}}\naddressType: {}\nports: \
                 [{list}]\nendpoints: [{endpoints}]\n",
                slice.cluster, slice.family
            );
        }
        text
    }
}

/// The API server and what is started over it.
pub(crate) struct World {
    testbed: Testbed,
    clusterset: Clusterset,
}

/// A `tombolo dns`.
pub(crate) struct Dns {
    pub(crate) part: Part,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

/// A CoreDNS.
pub(crate) struct CoreDns {
    _part: Part,
    pub(crate) address: SocketAddr,
    pub(crate) corefile: PathBuf,
}

impl World {
    /// An API server that holds a clusterset.
    pub(crate) fn start(clusterset: Clusterset) -> Result<Self> {
        let world = Self {
            clusterset,
            ..Self::start_without_crds()?
        };
        world.install_crds()?;
        if !world.clusterset.services.is_empty() {
            world.cluster().apply(&world.clusterset.manifests())?;
        }
        Ok(world)
    }

    /// An API server that does not know the Multi-Cluster Services API.
    pub(crate) fn start_without_crds() -> Result<Self> {
        let testbed = Testbed::start(&Spec::clusters(1, |cluster| cluster))?;
        Ok(Self {
            testbed,
            clusterset: Clusterset::default(),
        })
    }

    pub(crate) fn install_crds(&self) -> Result<()> {
        let kubeconfig = self.kubeconfig().display().to_string();
        tombolo(&["crds", "apply", "--kubeconfig", &kubeconfig]).map(drop)
    }

    /// Makes or changes a ServiceImport with one address.
    pub(crate) fn import(&self, namespace: &str, name: &str, ip: &str) -> Result<()> {
        let service = Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ips: vec![ip.to_owned()],
            is_headless: false,
            ports: vec![("http".to_owned(), "TCP", 80)],
            slices: Vec::new(),
        };
        let clusterset = Clusterset {
            services: vec![service],
        };
        self.cluster().apply(&clusterset.manifests()).map(drop)
    }

    pub(crate) fn clusterset(&self) -> &Clusterset {
        &self.clusterset
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.testbed.clusters()[0]
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.cluster().kubeconfig_file()
    }

    pub(crate) fn start_dns(&self, args: &[&str]) -> Result<Dns> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
        let listen = ["dns", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        command
            .args(listen)
            .arg("--kubeconfig")
            .arg(self.kubeconfig());
        command.args(args);
        let part = self.testbed.start_program("tombolo-dns", &command, None)?;
        wait_for("tombolo dns", PATIENCE, || {
            part.check_running()?;
            let log = fs::read_to_string(part.log_file())?;
            let find = |before: &str, after: char| {
                let (_, rest) = log.split_once(before)?;
                rest.split_once(after)?.0.parse().ok()
            };
            let address = find("answering DNS address=", '\n');
            let admin = find("admin endpoint address=Ok(", ')');
            Ok(address.zip(admin))
        })
        .map(|(address, admin)| Dns {
            part,
            address,
            admin,
        })
    }

    /// A CoreDNS with these plugins for the root.
    pub(crate) fn start_coredns(&self, plugins: &str) -> Result<CoreDns> {
        let port = free_port()?;
        let text = format!(".:{port} {{\n    errors\n    bind 127.0.0.1\n{plugins}}}\n");
        self.start_coredns_with(port, &text)
    }

    /// A CoreDNS with this Corefile.
    pub(crate) fn start_coredns_with(&self, port: u16, text: &str) -> Result<CoreDns> {
        let corefile = self.testbed.folder().join("Corefile.test");
        fs::write(&corefile, text)?;
        let program = Builder::new(Cache::from_env()?, Progress::silent()).coredns()?;
        let program = find_program(&program);
        let mut command = Command::new(program);
        command.arg("-conf").arg(&corefile);
        let part = self.testbed.start_program("coredns", &command, None)?;
        Ok(CoreDns {
            _part: part,
            address: ([127, 0, 0, 1], port).into(),
            corefile,
        })
    }

    /// Waits until a server knows everything: the last service that was made, and the first.
    pub(crate) fn wait_answers(&self, server: SocketAddr) -> Result<()> {
        let named = self.clusterset.services.iter();
        let with_ips = named.filter(|s| !s.ips.is_empty() && !s.ports.is_empty());
        for service in with_ips {
            wait_for(&service.name, PATIENCE, || {
                let answer = dns::ask(server, &service.fqdn(), "A", Transport::Tcp);
                Ok(answer.ok().filter(|answer| !answer.answers.is_empty()))
            })?;
        }
        Ok(())
    }
}

/// Runs a command of the product to its end.
pub(crate) fn tombolo(args: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(args)
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{args:?}: {stderr}");
    Ok(stdout + &stderr)
}

/// The program of a build, which may be its folder.
fn find_program(built: &Path) -> PathBuf {
    if built.is_dir() {
        built.join("coredns")
    } else {
        built.to_owned()
    }
}

impl Dns {
    /// The text of an answer of the admin endpoint, whatever its code.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let url = format!("http://{}{path}", self.admin);
        let output = Command::new("curl")
            .args(["-s", "-m", "5", &url])
            .output()?;
        ensure!(output.status.success(), "{path}: {:?}", output.status);
        String::from_utf8(output.stdout).context("no text")
    }
}

/// A port that is free for UDP and TCP.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}
