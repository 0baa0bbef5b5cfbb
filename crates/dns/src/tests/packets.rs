//! Packets, whole: what is echoed, what is cut, and what hostile ones get.

use std::sync::{Arc, LazyLock};

use hickory_proto::op::Message;
use proptest::prelude::*;

use super::world::World;
use crate::{Outcome, PacketContext, Rcode, Snapshot, Transport, handle_packet};

/// Enough endpoints for a message of 65,535 octets.
static LARGE: LazyLock<Arc<Snapshot>> = LazyLock::new(|| snapshot(5_000));

/// Enough for a truncated datagram.
static SMALL: LazyLock<Arc<Snapshot>> = LazyLock::new(|| snapshot(120));

fn snapshot(endpoints: usize) -> Arc<Snapshot> {
    let many: Vec<String> = (0..endpoints)
        .map(|n| format!("10.{}.{}.1 host-{n}", n / 250, n % 250))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    World::default()
        .zone("clusterset.local")
        .zone("in.clusterset.local")
        .cluster_set_ip(
            "shop/vip",
            &["10.96.0.1", "fd96::1"],
            &["http TCP/80", "dns UDP/53"],
        )
        .headless("shop/many", &["web TCP/80"])
        .slice("shop/many", "east.prod", &["web TCP/80"], &many)
        .snapshot()
}

const UDP: PacketContext = PacketContext {
    transport: Transport::Udp,
    udp_len_max: 1232,
    forwards: false,
    seed: 0,
};

const TCP: PacketContext = PacketContext {
    transport: Transport::Tcp,
    ..UDP
};

fn handle(packet: &[u8], context: PacketContext) -> Option<Vec<u8>> {
    handle_with(&SMALL, packet, context)
}

fn handle_with(snapshot: &Snapshot, packet: &[u8], context: PacketContext) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match handle_packet(snapshot, packet, context, &mut out) {
        Outcome::Silent => None,
        Outcome::Answered(_) | Outcome::Forward(_) => Some(out),
    }
}

/// A query: id 0x0102, RD and CD set, with these counts and this body.
fn packet(counts: [u8; 4], body: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![1, 2, 0x01, 0x10];
    packet.extend(counts.iter().flat_map(|count| [0, *count]));
    packet.extend(body.concat());
    packet
}

const VIP: &[u8] = b"\x03ViP\x04shop\x03svc\x0aclusterset\x05local\0\0\x01\0\x01";
const MANY: &[u8] = b"\x04many\x04shop\x03svc\x0aclusterset\x05local\0\0\x01\0\x01";
const MANY_SRV: &[u8] = b"\x04many\x04shop\x03svc\x0aclusterset\x05local\0\0\x21\0\x01";
/// An OPT record: 4,096 octets, DO set, one option.
const OPT: &[u8] = b"\0\0\x29\x10\0\0\0\x80\0\0\x06\0\x0a\0\x02ab";

fn rcode(packet: &[u8]) -> Option<Rcode> {
    let answer = handle(packet, UDP)?;
    let message = Message::from_vec(&answer).unwrap();
    let number = u16::from(message.metadata.response_code);
    Rcode::ALL
        .into_iter()
        .find(|rcode| rcode.number() == number)
}

#[test]
fn the_question_is_echoed_as_it_came() {
    let answer = handle(&packet([1, 0, 0, 0], &[VIP]), UDP).unwrap();
    assert_eq!(&answer[..2], [1, 2]);
    assert_eq!(&answer[12..12 + VIP.len()], VIP);
    let message = Message::from_vec(&answer).unwrap();
    assert_eq!(
        message.answers[0].name.to_ascii(),
        "ViP.shop.svc.clusterset.local."
    );
    let meta = message.metadata;
    assert!(meta.authoritative && meta.recursion_desired && meta.checking_disabled);
    assert!(!meta.recursion_available && !meta.truncation && !meta.authentic_data);
}

#[test]
fn edns_is_answered_in_kind() {
    let answer = handle(&packet([1, 0, 0, 1], &[VIP, OPT]), UDP).unwrap();
    let edns = Message::from_vec(&answer).unwrap().edns.unwrap();
    assert_eq!((edns.max_payload(), edns.version()), (1232, 0));
    assert!(edns.flags().dnssec_ok);
    let plain = handle(&packet([1, 0, 0, 0], &[VIP]), UDP).unwrap();
    assert!(Message::from_vec(&plain).unwrap().edns.is_none());
}

#[test]
fn packets_that_are_no_query_get_what_they_deserve() {
    let good = packet([1, 0, 0, 1], &[VIP, OPT]);
    let with = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    assert_eq!(rcode(&good), Some(Rcode::NoError));
    assert_eq!(rcode(&good[..11]), None, "shorter than a header");
    assert_eq!(rcode(&with(2, 0x81)), None, "a response");
    assert_eq!(rcode(&with(2, 0x28)), Some(Rcode::NotImp), "an update");
    assert_eq!(rcode(&with(5, 0)), Some(Rcode::FormErr), "no question");
    assert_eq!(rcode(&with(5, 2)), Some(Rcode::FormErr), "two questions");
    assert_eq!(
        rcode(&with(11, 2)),
        Some(Rcode::FormErr),
        "a record missing"
    );
    assert_eq!(
        rcode(&with(12, 0xc0)),
        Some(Rcode::FormErr),
        "a pointer as a question"
    );
    assert_eq!(
        rcode(&with(12, 64)),
        Some(Rcode::FormErr),
        "a label of no known kind"
    );
    assert_eq!(rcode(&good[..30]), Some(Rcode::FormErr), "cut off");
    let class = 12 + VIP.len() - 1;
    assert_eq!(rcode(&with(class, 3)), Some(Rcode::Refused), "class CH");
    let version = 12 + VIP.len() + 6;
    assert_eq!(rcode(&with(version, 1)), Some(Rcode::BadVers));
    let two = packet([1, 0, 0, 2], &[VIP, OPT, OPT]);
    assert_eq!(rcode(&two), Some(Rcode::FormErr), "two OPT records");
    let option = 12 + VIP.len() + 14;
    assert_eq!(
        rcode(&with(option, 9)),
        Some(Rcode::FormErr),
        "an option too long"
    );
}

#[test]
fn over_tcp_as_many_as_fit_are_the_answer() {
    for (question, least) in [(MANY, 4_000), (MANY_SRV, 750)] {
        let packet = packet([1, 0, 0, 1], &[question, OPT]);
        let answer = handle_with(&LARGE, &packet, TCP).unwrap();
        assert!(
            (65_000..=65_535).contains(&answer.len()),
            "{}",
            answer.len()
        );
        let message = Message::from_vec(&answer).unwrap();
        assert!(!message.metadata.truncation);
        assert!(message.answers.len() >= least, "{}", message.answers.len());
        assert!(message.edns.is_some());
    }
}

#[test]
fn what_a_client_offers_over_udp_counts_between_512_and_our_own_limit() {
    let len = |offered: u16, own: u16| {
        let mut packet = packet([1, 0, 0, 1], &[MANY, OPT]);
        let at = 12 + MANY.len() + 3;
        packet[at..at + 2].copy_from_slice(&offered.to_be_bytes());
        let context = PacketContext {
            udp_len_max: own,
            ..UDP
        };
        handle(&packet, context).unwrap().len()
    };
    for (offered, own, most) in [
        (0, 1232, 512),
        (700, 1232, 700),
        (9000, 1232, 1232),
        (9000, 0, 512),
    ] {
        assert!(
            (most - 16..=most).contains(&len(offered, own)),
            "{offered} {own}"
        );
    }
}

/// A well-formed query with a name near those that are there.
fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    const LABELS: [&str; 12] = [
        "vip",
        "many",
        "shop",
        "svc",
        "clusterset",
        "local",
        "in",
        "_http",
        "_tcp",
        "host-7",
        "prod",
        "East",
    ];
    let label = prop_oneof![
        proptest::sample::select(&LABELS[..]).prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..20),
    ];
    let tail = proptest::sample::select(vec!["", "clusterset.local", "shop.svc.clusterset.local"]);
    let record_type = prop_oneof![
        proptest::sample::select(vec![1_u16, 2, 6, 16, 28, 33, 252, 255]),
        any::<u16>().prop_filter("OPT cannot be asked for", |number| *number != 41),
    ];
    (
        proptest::collection::vec(label, 0..6),
        tail,
        record_type,
        any::<bool>(),
    )
        .prop_map(|(labels, tail, record_type, edns)| {
            let mut question = Vec::new();
            let tail = tail.split('.').filter(|label| !label.is_empty());
            for label in labels
                .iter()
                .map(Vec::as_slice)
                .chain(tail.map(str::as_bytes))
            {
                question.push(u8::try_from(label.len()).unwrap());
                question.extend_from_slice(label);
            }
            question.push(0);
            question.extend(record_type.to_be_bytes());
            question.extend([0, 1]);
            if edns {
                packet([1, 0, 0, 1], &[&question, OPT])
            } else {
                packet([1, 0, 0, 0], &[&question])
            }
        })
}

/// A query with some octets changed, taken out or added.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<proptest::sample::Index>(), any::<u8>(), 0..3_u8);
    (well_formed(), proptest::collection::vec(change, 1..5)).prop_map(|(mut packet, changes)| {
        for (index, byte, kind) in changes {
            let at = index.index(packet.len().max(1));
            match kind {
                0 if at < packet.len() => packet[at] = byte,
                1 => packet.truncate(at),
                _ => packet.insert(at.min(packet.len()), byte),
            }
        }
        packet
    })
}

/// What holds for any packet.
fn check(packet: &[u8], seed: u64, own: u16) -> Result<(), TestCaseError> {
    crate::fuzz::packet(packet);
    for transport in [Transport::Udp, Transport::Tcp] {
        let context = PacketContext {
            transport,
            udp_len_max: own,
            forwards: false,
            seed,
        };
        let Some(answer) = handle(packet, context) else {
            prop_assert!(packet.len() < 12 || packet[2] & 0x80 != 0);
            continue;
        };
        let limit = match transport {
            Transport::Udp => usize::from(own).max(512),
            Transport::Tcp => 65_535,
        };
        prop_assert!(answer.len() <= limit, "{} > {limit}", answer.len());
        prop_assert_eq!(&answer[..2], &packet[..2]);
        prop_assert!(answer[2] & 0x80 != 0);
        let message = Message::from_vec(&answer);
        prop_assert!(message.is_ok(), "{:?}: {:?}", message, answer);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn arbitrary_octets_do_no_harm(
        packet in proptest::collection::vec(any::<u8>(), 0..600),
        seed in any::<u64>(),
        own in any::<u16>(),
    ) {
        check(&packet, seed, own)?;
    }

    #[test]
    fn mutated_queries_do_no_harm(packet in mutated(), seed in any::<u64>(), own in any::<u16>()) {
        check(&packet, seed, own)?;
    }

    #[test]
    fn every_well_formed_query_gets_an_answer_to_its_question(packet in well_formed()) {
        check(&packet, 1, 1232)?;
        let answer = handle(&packet, UDP).unwrap();
        let question = packet.len() - 12 - if packet[11] == 1 { OPT.len() } else { 0 };
        prop_assert_eq!(&answer[12..12 + question], &packet[12..12 + question]);
        prop_assert!([0, 3, 5].contains(&(answer[3] & 0x0f)), "{}", answer[3]);
    }
}
