//! The API server with its objects, and the two servers over it.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tombolo_testbed::{Builder, Cache, Cluster, Part, Progress, Spec, Testbed, wait_for};

use super::Args;
use super::load::{LOADS, Load, ask};

const PATIENCE: Duration = Duration::from_mins(2);
/// Objects of one `kubectl apply`.
const BATCH: u32 = 200;

/// A server that is measured.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    part: Part,
}

/// The testbed.
pub(super) struct Bed {
    testbed: Testbed,
}

impl Server {
    fn pid(&self) -> Result<u32> {
        self.part
            .pid()
            .with_context(|| format!("{} has ended", self.name))
    }

    /// CPU time that it has used, user and system.
    pub(super) fn cpu(&self) -> Result<Duration> {
        /// `USER_HZ`, the same on all of Linux.
        const TICKS_PER_SEC: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        let (_, rest) = stat.rsplit_once(')').context("no stat")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| -> Result<f64> {
            Ok(fields.get(index).context("a short stat")?.parse()?)
        };
        // Fields 14 and 15 of proc(5), the first after the name being the third.
        Ok(Duration::from_secs_f64(
            (ticks(11)? + ticks(12)?) / TICKS_PER_SEC,
        ))
    }

    /// Its resident memory.
    pub(super) fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no VmRSS")?.parse()?)
    }
}

impl Bed {
    pub(super) fn start(args: &Args) -> Result<Self> {
        let cache = Cache::from_env()?;
        let spec = Spec::clusters(1, |cluster| cluster);
        let testbed = Testbed::start_with(&spec, cache, Progress::stderr())?;
        let bed = Self { testbed };
        let status = Command::new(&args.binary)
            .args(["crds", "apply", "--kubeconfig"])
            .arg(bed.cluster().kubeconfig_file())
            .status()?;
        ensure!(status.success(), "crds apply: {status}");
        bed.cluster().create_namespace("shop")?;
        let mut first = 0;
        while first < args.services {
            let last = args.services.min(first + BATCH);
            let manifests: String = (first..last)
                .map(|n| manifests(n, args.endpoints))
                .collect();
            bed.cluster().apply(&manifests)?;
            first = last;
        }
        for load in LOADS {
            let lines = (0..args.services).map(|index| (load.line)(index, args.services));
            fs::write(bed.file(load), lines.collect::<String>())?;
        }
        Ok(bed)
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.testbed.clusters()[0]
    }

    /// The questions of a load.
    pub(super) fn file(&self, load: &Load) -> PathBuf {
        let name = load.name.replace([' ', ','], "-");
        self.testbed.folder().join(format!("load-{name}"))
    }

    fn pinned(core: usize) -> Command {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(core.to_string());
        command
    }

    pub(super) fn tombolo(&self, args: &Args) -> Result<Server> {
        let address = free_address()?;
        let mut command = Self::pinned(args.core);
        command.arg(fs::canonicalize(&args.binary)?);
        command.args([
            "dns",
            "--udp-sockets",
            "1",
            "--admin",
            "off",
            "--log",
            "warn",
        ]);
        command.args(["--listen", &address.to_string(), "--kubeconfig"]);
        command.arg(self.cluster().kubeconfig_file());
        let part = self.testbed.start_program("tombolo-dns", &command, None)?;
        Ok(Server {
            name: "tombolo dns",
            address,
            part,
        })
    }

    /// CoreDNS with what it takes to answer for the clusterset, and nothing else.
    pub(super) fn coredns(&self, args: &Args) -> Result<Server> {
        let address = free_address()?;
        let corefile = self.testbed.folder().join("Corefile.bench");
        let kubeconfig = self.cluster().kubeconfig_file();
        let text = format!(
            "clusterset.local:{} {{\n    bind 127.0.0.1\n    kubernetes clusterset.local {{\n        \
             kubeconfig {}\n        multicluster clusterset.local\n    }}\n}}\n",
            address.port(),
            kubeconfig.display()
        );
        fs::write(&corefile, text)?;
        let built = Builder::new(Cache::from_env()?, Progress::stderr()).coredns()?;
        let program = if built.is_dir() {
            built.join("coredns")
        } else {
            built
        };
        let mut command = Self::pinned(args.core);
        command.arg(program).arg("-conf").arg(corefile);
        command.env("GOMAXPROCS", "1");
        let part = self.testbed.start_program("coredns", &command, None)?;
        Ok(Server {
            name: "CoreDNS 1.15",
            address,
            part,
        })
    }

    /// Waits until the last service of each kind is answered for.
    pub(super) fn wait_ready(server: &Server, args: &Args) -> Result<()> {
        let last = args.services - 1;
        for name in [format!("vip-{last}"), format!("set-{}", last / 2)] {
            let name = format!("{name}.shop.svc.clusterset.local");
            wait_for(&format!("{} {name}", server.name), PATIENCE, || {
                server.part.check_running()?;
                let answered = ask(server.address, &name).is_ok_and(|answer| answer > 0);
                Ok(answered.then_some(()))
            })?;
        }
        Ok(())
    }
}

/// A service with a clusterset IP; and for every other one a headless one.
fn manifests(index: u32, endpoints: u32) -> String {
    let head = "---\napiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\n";
    let ports = "ports: [{name: http, protocol: TCP, port: 80}]";
    let mut text = format!(
        "{head}metadata: {{name: vip-{index}, namespace: shop}}\nspec: {{type: ClusterSetIP, ips: \
         [10.96.{}.{}], {ports}}}\n",
        index / 250,
        index % 250 + 1
    );
    if index.is_multiple_of(2) {
        let index = index / 2;
        let hosts = (0..endpoints)
            .map(|n| endpoint(index, n))
            .collect::<Vec<_>>();
        let _infallible = write!(
            text,
            "{head}metadata: {{name: set-{index}, namespace: shop}}\nspec: {{type: Headless, {ports}}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: set-{index}, \
             namespace: shop, labels: {{multicluster.kubernetes.io/service-name: set-{index}, \
             multicluster.kubernetes.io/source-cluster: east}}}}\naddressType: IPv4\nports: [{{name: \
             http, protocol: TCP, port: 8080}}]\nendpoints: [{}]\n",
            hosts.join(", ")
        );
    }
    text
}

/// An endpoint as YAML.
fn endpoint(service: u32, number: u32) -> String {
    format!(
        "{{addresses: [10.{}.{}.{}], hostname: set-{number}, conditions: {{ready: true}}}}",
        service / 250 + 1,
        service % 250,
        number + 1
    )
}

/// An address whose port is free.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
