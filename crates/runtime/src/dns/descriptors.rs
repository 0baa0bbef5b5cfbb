//! File descriptors: every connection takes one, and many systems give a process 1,024 at first.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tombolo_dns::{FORWARDS_DEFAULT, Limits};
use tracing::warn;

/// What the process has open beside sockets of clients: watches, the admin endpoint, the runtime.
const OTHERS: u64 = 64;

/// Takes as many as the system allows, and says so if that is less than the limits may need.
pub(super) fn take_all(limits: &Limits, addresses: usize) {
    let needed = needed(limits, addresses);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "the number of file descriptors is left as it is");
        }
    }
    if let Some(available) = getrlimit(Resource::Nofile).current
        && available < needed
    {
        warn!(
            available,
            needed, "fewer file descriptors than --tcp-connections may need"
        );
    }
}

/// How many sockets there may be at once, and what else is open.
fn needed(limits: &Limits, addresses: usize) -> u64 {
    let of_address = limits.tcp_connections_max + limits.udp_sockets + 1;
    let sockets = of_address.saturating_mul(addresses) + FORWARDS_DEFAULT;
    u64::try_from(sockets)
        .unwrap_or(u64::MAX)
        .saturating_add(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_connections_of_its_own() {
        let limits = Limits {
            tcp_connections_max: 1_000,
            udp_sockets: 4,
            ..Limits::default()
        };
        assert_eq!(needed(&limits, 1), 1_005 + 256 + 64);
        assert_eq!(needed(&limits, 2), 2_010 + 256 + 64);
    }
}
