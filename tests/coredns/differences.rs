//! Where CoreDNS' answers differ, and why: the rows of `docs/reference/dns-differences.md`.

use tombolo_testkit::cases::Reply;

use crate::world::{Clusterset, Service};

/// A question with both answers.
pub(crate) struct Seen<'a> {
    pub(crate) clusterset: &'a Clusterset,
    /// In lower case.
    pub(crate) name: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) ours: Reply,
    pub(crate) theirs: Reply,
}

/// A reason to differ.
pub(crate) struct Difference {
    /// As it stands in the documentation.
    pub(crate) title: &'static str,
    pub(crate) explains: fn(&Seen<'_>) -> bool,
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        title: "Version of the specification",
        explains: |seen| seen.name == "dns-version.clusterset.local.",
    },
    Difference {
        title: "The zone's own records",
        explains: |seen| {
            let name = seen.name;
            name == "clusterset.local."
                || name == "ns.dns.clusterset.local."
                || name == "dns.clusterset.local."
        },
    },
    Difference {
        title: "ANY",
        explains: |seen| {
            seen.kind == "ANY" && seen.ours.answers.iter().all(|a| a.contains("RFC8482"))
        },
    },
    Difference {
        title: "Names outside the zones",
        explains: |seen| !seen.name.ends_with("clusterset.local.") && seen.ours.rcode == "REFUSED",
    },
    Difference {
        title: "Names above services",
        explains: |seen| {
            let is_above = seen.service().is_none();
            is_above
                && seen.ours.rcode == "NXDOMAIN"
                && seen.theirs.rcode == "NOERROR"
                && seen.theirs.answers.is_empty()
        },
    },
    Difference {
        title: "Services without ports",
        explains: |seen| {
            seen.service().is_some_and(|(service, below)| {
                below.is_empty() && !service.is_headless && service.ports.is_empty()
            })
        },
    },
    Difference {
        title: "Services without an address yet",
        explains: |seen| {
            seen.service()
                .is_some_and(|(service, _)| !service.is_headless && service.ips.is_empty())
        },
    },
    Difference {
        title: "Host names of services with clusterset IPs",
        explains: |seen| {
            seen.service().is_some_and(|(service, below)| {
                !service.is_headless
                    && below.matches('.').count() >= 2
                    && !below.contains('_')
                    && seen.ours.rcode == "NXDOMAIN"
            })
        },
    },
    Difference {
        title: "Cluster ids with a dot",
        explains: |seen| {
            let dotted = |text: &str| text.contains("north.prod.");
            dotted(seen.name) || seen.ours.answers.iter().any(|answer| dotted(answer))
        },
    },
    Difference {
        title: "Names that only have names below them",
        explains: |seen| {
            seen.ours.rcode == "NOERROR"
                && seen.ours.answers.is_empty()
                && seen.theirs.rcode == "NXDOMAIN"
        },
    },
    Difference {
        title: "SRV at a host name",
        explains: |seen| {
            let is_host = |(service, below): (&Service, &str)| {
                service.is_headless && below.matches('.').count() == 2 && !below.contains('_')
            };
            seen.kind == "SRV"
                && seen.ours.answers.is_empty()
                && seen.service().is_some_and(is_host)
        },
    },
    Difference {
        title: "Addresses of SRV names",
        explains: |seen| {
            let is_address = seen.kind == "A" || seen.kind == "AAAA";
            is_address
                && seen.service().is_some_and(|(_, below)| below.contains('_'))
                && seen.ours.answers.is_empty()
        },
    },
    Difference {
        title: "SRV names without their underscores",
        explains: |seen| {
            seen.service()
                .is_some_and(|(_, below)| below.contains('_') && seen.ours.rcode == "NXDOMAIN")
        },
    },
];

impl Seen<'_> {
    /// Whether both say the same. Case of names does not count: each echoes the question.
    pub(crate) fn is_same(&self) -> bool {
        let lower = |reply: &Reply| {
            let answers = reply.answers.iter();
            answers
                .map(|answer| answer.to_lowercase())
                .collect::<Vec<_>>()
        };
        self.ours.rcode == self.theirs.rcode && lower(&self.ours) == lower(&self.theirs)
    }

    /// The service that the name is of or below, and the labels before it.
    pub(crate) fn service(&self) -> Option<(&Service, &str)> {
        let mut services = self.clusterset.services.iter();
        services.find_map(|service| {
            let below = self.name.strip_suffix(service.fqdn().as_str())?;
            (below.is_empty() || below.ends_with('.')).then_some((service, below))
        })
    }
}
