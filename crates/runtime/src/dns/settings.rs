//! The arguments of `tombolo dns`, as they are typed and checked.

use std::net::{IpAddr, SocketAddr};
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Args;
use tombolo_cluster::api::Access;
use tombolo_dns::{FORWARD_TIMEOUT_DEFAULT, FORWARDS_DEFAULT, Forwarder, Limits, Zones};

use crate::controller::settings::{AccessArgs, AdminArgs, admin_address};
use crate::input::Refusal;
use crate::zones::ZoneArgs;

/// The port of DNS.
pub(crate) const PORT: u16 = 53;

/// Answers DNS queries for the clusterset, from the ServiceImports and EndpointSlices of a cluster.
///
/// It serves any implementation of the Multi-Cluster Services API. It starts before the CRDs are
/// there, and goes on with what it knows while the API server is away. SIGTERM and Ctrl-C end it,
/// once what is in hand is answered.
#[derive(Debug, Args)]
pub(crate) struct DnsArgs {
    /// Where it listens, UDP and TCP. Without a port: 53.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOMBOLO_DNS_LISTEN",
        value_delimiter = ',',
        default_value = "0.0.0.0"
    )]
    pub(crate) listen: Vec<String>,

    #[command(flatten)]
    pub(crate) zones: ZoneArgs,

    /// The addresses of ns.dns.<zone>, the name server of the zones: where clients reach this one.
    #[arg(
        long,
        value_name = "IP",
        env = "TOMBOLO_DNS_SERVER_ADDRESS",
        value_delimiter = ','
    )]
    pub(crate) server_address: Vec<IpAddr>,

    /// The resolvers for names outside the zones, which are refused otherwise. Without a port: 53.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOMBOLO_DNS_FORWARD",
        value_delimiter = ','
    )]
    pub(crate) forward: Vec<String>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// How much is done at once.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// UDP sockets for each address, each served by one thread at a time. Default: one for each
    /// core.
    #[arg(long, value_name = "COUNT", env = "TOMBOLO_DNS_UDP_SOCKETS")]
    pub(crate) udp_sockets: Option<u16>,

    /// The largest UDP answer, whatever a client offers.
    #[arg(
        long,
        value_name = "OCTETS",
        env = "TOMBOLO_DNS_UDP_SIZE",
        default_value_t = 1232
    )]
    pub(crate) udp_size: u16,

    /// UDP queries that may wait at a socket; past them the oldest of the busiest source are shed.
    #[arg(
        long,
        value_name = "COUNT",
        env = "TOMBOLO_DNS_UDP_QUEUE",
        default_value_t = 2_048
    )]
    pub(crate) udp_queue: usize,

    /// UDP queries of one source that may wait at a socket.
    #[arg(
        long,
        value_name = "COUNT",
        env = "TOMBOLO_DNS_UDP_QUEUE_PER_SOURCE",
        default_value_t = 1_024
    )]
    pub(crate) udp_queue_per_source: usize,

    /// TCP connections for each address.
    #[arg(
        long,
        value_name = "COUNT",
        env = "TOMBOLO_DNS_TCP_CONNECTIONS",
        default_value_t = 1_024
    )]
    pub(crate) tcp_connections: usize,

    /// TCP connections of one source.
    #[arg(
        long,
        value_name = "COUNT",
        env = "TOMBOLO_DNS_TCP_CONNECTIONS_PER_SOURCE",
        default_value_t = 256
    )]
    pub(crate) tcp_connections_per_source: usize,

    /// For how many seconds a TCP connection may be idle.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "TOMBOLO_DNS_TCP_IDLE",
        default_value_t = 10
    )]
    pub(crate) tcp_idle: u64,

    /// For how many seconds queries are still answered after SIGTERM, while /readyz says no.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "TOMBOLO_DNS_LAME_DUCK",
        default_value_t = 5
    )]
    pub(crate) lame_duck: u64,
}

/// The arguments, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) zones: Zones,
    pub(crate) forward: Vec<SocketAddr>,
    pub(crate) limits: Limits,
    pub(crate) lame_duck: Duration,
    pub(crate) access: Access,
    pub(crate) admin: Option<SocketAddr>,
}

impl TryFrom<&DnsArgs> for Settings {
    type Error = Refusal;

    fn try_from(args: &DnsArgs) -> Result<Self, Refusal> {
        let DnsArgs {
            listen,
            zones,
            server_address,
            forward,
            limits,
            access,
            admin,
        } = args;
        let mut wrong = Vec::new();
        let listen = addresses("--listen", listen, &mut wrong);
        let forward = addresses("--forward", forward, &mut wrong);
        let zones = zones.zones().map_err(|messages| wrong.extend(messages));
        let admin = admin_address(&admin.admin).map_err(|message| wrong.push(message));
        let lame_duck = Duration::from_secs(limits.lame_duck);
        let limits = limits.limits().map_err(|messages| wrong.extend(messages));
        match (zones, admin, limits) {
            (Ok(zones), Ok(admin), Ok(limits)) if wrong.is_empty() => Ok(Self {
                listen,
                zones: zones.with_server_addresses(server_address),
                forward,
                limits,
                lame_duck,
                access: Access::from(access),
                admin,
            }),
            (_, _, _) => Err(Refusal::usage(wrong)),
        }
    }
}

impl Settings {
    /// Who looks up other names, if anybody does.
    pub(crate) fn forwarder(&self) -> Option<Forwarder> {
        Forwarder::new(
            self.forward.clone(),
            FORWARD_TIMEOUT_DEFAULT,
            FORWARDS_DEFAULT,
        )
    }
}

impl DnsArgs {
    /// How many threads the process needs.
    pub(crate) fn threads(&self) -> usize {
        self.limits.udp_sockets().max(1)
    }
}

impl LimitArgs {
    fn udp_sockets(&self) -> usize {
        self.udp_sockets.map_or_else(
            || available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        )
    }

    fn limits(&self) -> Result<Limits, Vec<String>> {
        let Self {
            udp_sockets: _,
            udp_size,
            udp_queue,
            udp_queue_per_source,
            tcp_connections,
            tcp_connections_per_source,
            tcp_idle,
            lame_duck: _,
        } = self;
        let mut wrong = Vec::new();
        // Every client can take 512 octets (RFC 1035 §2.3.4).
        if *udp_size < 512 {
            wrong.push(format!("--udp-size {udp_size}: it is at least 512"));
        }
        for (flag, value) in [
            ("--udp-sockets", self.udp_sockets()),
            ("--udp-queue", *udp_queue),
            ("--udp-queue-per-source", *udp_queue_per_source),
            ("--tcp-connections", *tcp_connections),
            ("--tcp-connections-per-source", *tcp_connections_per_source),
        ] {
            if value == 0 {
                wrong.push(format!("{flag} 0: nothing would be answered"));
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Limits {
            udp_sockets: self.udp_sockets(),
            udp_len_max: *udp_size,
            udp_queue_len_max: *udp_queue,
            udp_source_len_max: *udp_queue_per_source,
            tcp_connections_max: *tcp_connections,
            tcp_source_connections_max: *tcp_connections_per_source,
            tcp_idle: Duration::from_secs((*tcp_idle).max(1)),
            ..Limits::default()
        })
    }
}

/// Addresses with or without a port.
pub(crate) fn addresses(flag: &str, texts: &[String], wrong: &mut Vec<String>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for text in texts.iter().map(|text| text.trim()) {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        match (text.parse(), bare.parse::<IpAddr>()) {
            (Ok(address), _) => addresses.push(address),
            (Err(_), Ok(ip)) => addresses.push(SocketAddr::new(ip, PORT)),
            (Err(_), Err(_)) => wrong.push(format!(
                "{flag} {text}: give an IP address, with a port if it is not {PORT}"
            )),
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        dns: DnsArgs,
    }

    fn settings(args: &[&str]) -> Result<Settings, Refusal> {
        let args = std::iter::once("tombolo").chain(args.iter().copied());
        Settings::try_from(&Cli::try_parse_from(args).unwrap().dns)
    }

    #[test]
    fn addresses_may_be_without_a_port() {
        let settings = settings(&["--listen", "10.0.0.1,fd00::1,[::1]:5353,[::2]"]).unwrap();
        let wanted = ["10.0.0.1:53", "[fd00::1]:53", "[::1]:5353", "[::2]:53"];
        assert_eq!(settings.listen, wanted.map(|a| a.parse().unwrap()));
        assert!(settings.forwarder().is_none());
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let args = [
            "--listen",
            "localhost",
            "--zone",
            "a..b",
            "--forward",
            "x",
            "--udp-size",
            "100",
            "--tcp-connections",
            "0",
            "--admin",
            "y",
        ];
        let messages = settings(&args).unwrap_err().messages;
        assert_eq!(messages.len(), 6, "{messages:?}");
    }
}
