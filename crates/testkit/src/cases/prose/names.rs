//! The checks that ask the clusters' DNS servers. Each says what is wrong, or nothing.

use std::collections::BTreeMap;

use super::Seen;
use crate::cases::dns::Reply;

/// D05: a negative answer may be kept for the minimum of the zone's SOA, which is the TTL of all
/// answers, 5 s as nothing else was asked for; and the server itself keeps none, as the answers of
/// this stage show.
pub(super) fn negative_answers_are_short_lived(seen: &Seen<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (cluster, reply) in ask(seen, "clusterset.local.", "SOA", &mut problems) {
        let minimum = reply.answers.first().and_then(|soa| soa.rsplit(' ').next());
        let minimum = minimum.and_then(|text| text.parse::<u32>().ok());
        if minimum != Some(5) {
            problems.push(format!("{cluster}: {reply:?}"));
        }
    }
    for (cluster, reply) in ask(seen, "peers.shop.svc.clusterset.local.", "A", &mut problems) {
        if reply.rcode != "NOERROR" {
            problems.push(format!("{cluster}: still {reply:?}"));
        }
    }
    problems
}

/// No answer to any of these names has this address, in any cluster.
pub(super) fn never_lead_to(seen: &Seen<'_>, names: &[&str], address: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for name in names {
        for kind in ["A", "AAAA", "ANY"] {
            let replies = ask(seen, name, kind, &mut problems);
            let bad = replies.iter().filter(|(_, reply)| {
                let mut answers = reply.answers.iter();
                answers.any(|answer| answer == address)
            });
            problems
                .extend(bad.map(|(cluster, _)| format!("{cluster}: {name} leads to {address}")));
        }
    }
    problems
}

/// The same for the addresses of a Service of the input, whatever its cluster.
pub(super) fn never_lead_to_service(seen: &Seen<'_>, names: &[&str], service: &str) -> Vec<String> {
    let inputs = match seen.case.inputs(seen.stage) {
        Ok(inputs) => inputs,
        Err(error) => return vec![format!("{error:#}")],
    };
    let services = inputs
        .objects()
        .filter(|object| (object.kind, object.name) == ("Service", service));
    let addresses: Vec<String> = services
        .filter_map(|object| object.value.pointer("/spec/clusterIP"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let all = addresses.iter();
    all.flat_map(|address| never_lead_to(seen, names, address))
        .collect()
}

/// A name outside the zones: refused everywhere, so that whoever owns it answers.
pub(super) fn not_answered(seen: &Seen<'_>, name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (cluster, reply) in ask(seen, name, "A", &mut problems) {
        if reply.rcode != "REFUSED" || !reply.answers.is_empty() {
            problems.push(format!("{cluster}: {name} is answered: {reply:?}"));
        }
    }
    problems
}

fn ask(
    seen: &Seen<'_>,
    name: &str,
    kind: &str,
    problems: &mut Vec<String>,
) -> BTreeMap<String, Reply> {
    match (seen.ask)(name, kind) {
        Ok(replies) if !replies.is_empty() => replies,
        Ok(_) => {
            problems.push(format!("nobody answers {name} {kind}"));
            BTreeMap::new()
        }
        Err(error) => {
            problems.push(format!("{name} {kind}: {error:#}"));
            BTreeMap::new()
        }
    }
}
