//! etcd servers: the one behind the API servers, and those of registries.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    authority::Authority,
    clock::wait_for,
    part::Part,
    state::{PORTS_PER_MEMBER, Registry, State},
};

/// Until a server that was just started answers, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// A quota that no test fills; the default of 2 GiB would be met by the larger benchmarks.
const QUOTA_BYTES: u64 = 8 << 30;

/// What clients of an etcd must show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Plain HTTP.
    #[default]
    Off,
    /// The server has a certificate.
    Server,
    /// Clients need one too, of the same authority.
    Mutual,
}

/// An etcd for a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdSpec {
    /// 1, 3 or 5.
    pub members: u8,
    /// Between clients and members; members talk plainly to each other.
    pub tls: Tls,
    /// Further arguments of each member.
    pub args: Vec<String>,
}

/// One, three or five etcd servers that form one store.
#[derive(Debug)]
pub struct Etcd {
    name: String,
    members: Vec<Member>,
    authority: Option<Authority>,
}

/// One server of an [`Etcd`].
#[derive(Debug)]
pub struct Member {
    part: Part,
    data: PathBuf,
    endpoint: String,
    peer: String,
    metrics: SocketAddr,
}

impl Etcd {
    /// Starts the members; [`Etcd::wait_healthy`] tells when they are ready.
    pub(crate) fn start(state: &State, registry: &Registry, program: &Path) -> Result<Self> {
        let authority = authority(state, registry)?;
        if let Some(authority) = &authority {
            authority.issue("server")?;
        }
        Self::new(state, registry, |index| {
            let name = member_name(registry, index);
            let ports = member_ports(registry, index);
            let mut launch = state.launch(&name, program.to_owned(), &ports);
            launch.args = arguments(state, registry, index);
            launch.args.extend(registry.spec.args.iter().cloned());
            Part::start(&state.folder, launch)
        })
    }

    pub(crate) fn attach(state: &State, registry: &Registry) -> Result<Self> {
        Self::new(state, registry, |index| {
            Part::attach(&state.folder, &member_name(registry, index))
        })
    }

    fn new(state: &State, registry: &Registry, part: impl Fn(u8) -> Result<Part>) -> Result<Self> {
        let members = (0..registry.spec.members)
            .map(|index| Ok(Member::of(state, registry, index, part(index)?)))
            .collect::<Result<_>>()?;
        let authority = authority(state, registry)?;
        Ok(Self {
            name: registry.name.clone(),
            members,
            authority,
        })
    }

    /// Its name in the testbed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client URLs of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Member::endpoint).collect()
    }

    /// Who signs its certificate and those of its clients, if it has TLS.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// All members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The only member, or the first.
    pub fn first(&self) -> &Member {
        &self.members[0]
    }

    /// Waits until each member that runs says that it is healthy, which needs a leader.
    ///
    /// # Errors
    /// When that takes long, or a member ended.
    pub fn wait_healthy(&self) -> Result<()> {
        self.members.iter().try_for_each(Member::wait_healthy)
    }

    /// Kills all members.
    ///
    /// # Errors
    /// When one does not go.
    pub fn kill_all(&self) -> Result<()> {
        self.members
            .iter()
            .try_for_each(|member| member.part.kill())
    }

    /// Starts all members again and waits until they are healthy.
    ///
    /// # Errors
    /// When one does not start.
    pub fn restart_all(&self) -> Result<()> {
        self.members
            .iter()
            .try_for_each(|member| member.part.restart())?;
        self.wait_healthy()
    }
}

impl Default for EtcdSpec {
    /// One member, plain HTTP.
    fn default() -> Self {
        Self {
            members: 1,
            tls: Tls::Off,
            args: Vec::new(),
        }
    }
}

impl EtcdSpec {
    /// So many members, plain HTTP.
    pub fn members(members: u8) -> Self {
        Self {
            members,
            ..Self::default()
        }
    }

    /// With TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }
}

impl Member {
    fn of(state: &State, registry: &Registry, index: u8, part: Part) -> Self {
        let [_, peer, metrics] = member_ports(registry, index);
        Self {
            part,
            data: data_folder(state, registry, index),
            endpoint: client_url(state, registry, index),
            peer: format!("http://{}", loopback(state.slot.port(peer))),
            metrics: loopback(state.slot.port(metrics)),
        }
    }

    /// The process: kill, pause, cut off, restart.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Its client URL.
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// The URL of its /metrics and /health, without TLS or password.
    pub fn metrics_url(&self) -> String {
        format!("http://{}", self.metrics)
    }

    /// Whether it serves, and knows a leader.
    pub fn is_healthy(&self) -> bool {
        get(self.metrics, "/health").is_ok_and(|body| body.contains(r#""health":"true""#))
    }

    /// Waits until it is healthy.
    ///
    /// # Errors
    /// When that takes long, or it ended.
    pub fn wait_healthy(&self) -> Result<()> {
        wait_for(
            &format!("{} healthy", self.part.name()),
            READY_TIMEOUT,
            || {
                self.part.check_running()?;
                Ok(self.is_healthy().then_some(()))
            },
        )
    }

    /// Removes its data, as when its disk was lost. It must not run.
    ///
    /// # Errors
    /// When it runs, or the folder cannot be removed.
    pub fn wipe(&self) -> Result<()> {
        ensure!(!self.part.is_running(), "{} runs", self.part.name());
        fs::remove_dir_all(&self.data)
            .with_context(|| format!("cannot remove {}", self.data.display()))
    }

    /// Ends it and starts it without data, to join the others as a new member of its name and
    /// address: they must know of that by then, and not of the old one any more.
    ///
    /// # Errors
    /// When it does not go or start.
    pub fn replace(&self) -> Result<()> {
        self.part.kill()?;
        self.wipe()?;
        self.part
            .restart_with(&["--initial-cluster-state=existing"])
    }

    /// The URL at which other members reach it.
    pub fn peer_url(&self) -> &str {
        &self.peer
    }

    /// Where its data is: to copy while it does not run, as a backup.
    pub fn data_folder(&self) -> &Path {
        &self.data
    }
}

fn member_name(registry: &Registry, index: u8) -> String {
    if registry.spec.members == 1 {
        return registry.name.clone();
    }
    format!("{}-{}", registry.name, index + 1)
}

fn member_ports(registry: &Registry, index: u8) -> [u16; 3] {
    let first = registry.port_offset + u16::from(index) * PORTS_PER_MEMBER;
    [first, first + 1, first + 2]
}

fn data_folder(state: &State, registry: &Registry, index: u8) -> PathBuf {
    state.folder.join("data").join(member_name(registry, index))
}

fn loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn client_url(state: &State, registry: &Registry, index: u8) -> String {
    let scheme = match registry.spec.tls {
        Tls::Off => "http",
        Tls::Server | Tls::Mutual => "https",
    };
    format!(
        "{scheme}://{}",
        loopback(state.slot.port(member_ports(registry, index)[0]))
    )
}

fn authority(state: &State, registry: &Registry) -> Result<Option<Authority>> {
    match registry.spec.tls {
        Tls::Off => Ok(None),
        Tls::Server | Tls::Mutual => {
            Authority::open(state.folder.join("certs").join(&registry.name)).map(Some)
        }
    }
}

fn tls_arguments(state: &State, registry: &Registry) -> Vec<String> {
    let folder = state.folder.join("certs").join(&registry.name);
    let file = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
    let server = [
        file("cert-file", "server.crt"),
        file("key-file", "server.key"),
    ];
    match registry.spec.tls {
        Tls::Off => Vec::new(),
        Tls::Server => server.into(),
        Tls::Mutual => {
            let mutual = [
                "--client-cert-auth".into(),
                file("trusted-ca-file", "ca.crt"),
            ];
            server.into_iter().chain(mutual).collect()
        }
    }
}

fn arguments(state: &State, registry: &Registry, index: u8) -> Vec<String> {
    let url = |port_offset| format!("http://{}", loopback(state.slot.port(port_offset)));
    let [_, peer, metrics] = member_ports(registry, index).map(url);
    let client = client_url(state, registry, index);
    let cluster: Vec<_> = (0..registry.spec.members)
        .map(|index| {
            let peer = member_ports(registry, index)[1];
            format!("{}={}", member_name(registry, index), url(peer))
        })
        .collect();
    let mut arguments = vec![
        format!("--name={}", member_name(registry, index)),
        format!(
            "--data-dir={}",
            data_folder(state, registry, index).display()
        ),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--listen-metrics-urls={metrics}"),
        format!("--initial-cluster={}", cluster.join(",")),
        format!("--initial-cluster-token={}-{}", state.id, registry.name),
        format!("--quota-backend-bytes={QUOTA_BYTES}"),
        // Data outlives a killed process in the page cache; only a machine that loses power
        // would lose it.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    arguments.extend(tls_arguments(state, registry));
    arguments
}

/// The body of a plain HTTP answer.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text
        .split_once("\r\n\r\n")
        .context("no HTTP answer")?
        .1
        .to_owned())
}
