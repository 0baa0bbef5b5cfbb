//! When clusters count as heard of, and how long a hold runs.

use super::*;

const HOLD: SignedDuration = SignedDuration::from_secs(600);

fn at(secs: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + secs)
}

fn east() -> ClusterName {
    ClusterName::try_new("east").unwrap()
}

fn own() -> ClusterName {
    ClusterName::try_new("west").unwrap()
}

fn peers(session: PeerSession, drained: bool) -> Arc<Peers> {
    Arc::new([(east(), Peer { session, drained })].into())
}

fn missing() -> Arc<Peers> {
    peers(PeerSession::Missing, false)
}

fn report(held_secs: u64) -> Report {
    Report {
        missing: vec![ReportedCluster {
            cluster: east(),
            held_secs,
        }],
        ..Report::default()
    }
}

/// After so many seconds the hold is not over, a second later it is.
fn assert_ends_at(presence: &mut Presence, secs: i64) {
    assert_eq!(presence.next_due(), Some(at(secs)));
    assert!(presence.expire(at(secs - 1)).is_empty());
    assert_eq!(presence.standing(&east()), Standing::Stale);
    assert_eq!(presence.expire(at(secs)), [east()]);
    assert_eq!(presence.standing(&east()), Standing::Over);
    assert_eq!(presence.next_due(), None);
}

#[test]
fn a_hold_runs_from_when_the_session_was_seen_missing() {
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), peers(PeerSession::Live, false));
    assert_eq!(presence.standing(&east()), Standing::Live);
    assert_eq!(presence.peers(at(50), missing()), [east()].into());
    // Told again, it does not begin again.
    assert!(presence.peers(at(100), missing()).is_empty());
    assert_ends_at(&mut presence, 650);
}

#[test]
fn time_in_which_nothing_could_be_heard_does_not_count() {
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), missing());
    presence.heard(at(100), false);
    presence.heard(at(120), false);
    assert_eq!(presence.next_due(), None);
    assert!(presence.expire(at(10_000)).is_empty());
    presence.heard(at(10_000), true);
    assert_ends_at(&mut presence, 10_500);
}

#[test]
fn a_hold_that_begins_unheard_does_not_run() {
    let mut presence = Presence::new(HOLD);
    presence.heard(at(0), false);
    presence.peers(at(0), missing());
    presence.heard(at(70), true);
    assert_ends_at(&mut presence, 670);
}

#[test]
fn a_new_process_goes_on_with_what_was_counted() {
    // Whatever of the two listings is told first.
    let own = |presence: &mut Presence| {
        presence.reported(&report(400));
        presence.own_listed();
    };
    let mut presence = Presence::new(HOLD);
    own(&mut presence);
    presence.peers(at(0), missing());
    assert_ends_at(&mut presence, 200);
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), missing());
    own(&mut presence);
    assert_ends_at(&mut presence, 200);
}

#[test]
fn what_was_reported_counts_for_one_silence_only() {
    let mut presence = Presence::new(HOLD);
    presence.reported(&report(600));
    presence.own_listed();
    presence.peers(at(0), peers(PeerSession::Live, false));
    presence.peers(at(0), missing());
    assert_ends_at(&mut presence, 600);
    // The echo of an own report.
    presence.peers(at(700), peers(PeerSession::Live, false));
    presence.reported(&report(600));
    presence.peers(at(800), missing());
    assert_ends_at(&mut presence, 1400);
}

#[test]
fn a_cluster_that_is_back_is_live_at_once() {
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), missing());
    presence.expire(at(600));
    assert_eq!(
        presence.peers(at(700), peers(PeerSession::Blind(at(1)), false)),
        [east()].into()
    );
    assert_eq!(presence.standing(&east()), Standing::Blind(at(1)));
    assert!(presence.missing(at(700), &own()).is_empty());
    assert!(!presence.is_counting(&own()));
}

#[test]
fn a_clock_that_is_set_back_takes_nothing_away() {
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), missing());
    presence.heard(at(100), false);
    presence.heard(at(100), true);
    assert_eq!(presence.missing(at(50), &own())[0].held_secs, 100);
    assert_eq!(presence.missing(at(10_000), &own())[0].held_secs, 600);
}

#[test]
fn drained_is_drained_whether_heard_of_or_not() {
    for session in [PeerSession::Live, PeerSession::Missing] {
        let mut presence = Presence::new(HOLD);
        presence.peers(at(0), peers(session, true));
        presence.expire(at(600));
        assert_eq!(presence.standing(&east()), Standing::Drained);
    }
    let mut presence = Presence::new(HOLD);
    presence.peers(at(0), Arc::default());
    assert_eq!(presence.standing(&east()), Standing::Live);
}
