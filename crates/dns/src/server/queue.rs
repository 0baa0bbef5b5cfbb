//! UDP queries that were read and wait for their answer: bounded, fair between sources, the oldest
//! shed first.
//!
//! Sources share a few lanes by a hash that is another in each process. Lanes are served in turn,
//! so a flood fills its own lane and delays nobody else by more than one turn. A lane that is full
//! sheds its oldest query for a newer one: a client has given up on the oldest first.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};

use tokio::time::Instant;

/// Lanes: enough that two sources seldom share one.
const LANES: usize = 64;

/// The longest query that is read. One question and an OPT record with the options in use take a
/// few hundred octets; what is longer is cut off, and so malformed.
pub(super) const QUERY_LEN_MAX: usize = 2_048;

/// A query.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) bytes: Box<[u8; QUERY_LEN_MAX]>,
    pub(super) len: usize,
    pub(super) from: SocketAddr,
    pub(super) arrived: Instant,
}

/// The queries of one socket.
#[derive(Debug)]
pub(super) struct FairQueue {
    lanes: Vec<VecDeque<Slot>>,
    /// The lanes that have queries, in turn.
    turns: VecDeque<usize>,
    free: Vec<Slot>,
    /// Slots that may still be made.
    unmade: usize,
    lane_len_max: usize,
    hasher: foldhash::fast::RandomState,
}

impl FairQueue {
    /// At most `slots` queries in all, `lane_len_max` of one source.
    pub(super) fn new(slots: usize, lane_len_max: usize) -> Self {
        Self {
            lanes: std::iter::repeat_with(VecDeque::new).take(LANES).collect(),
            turns: VecDeque::with_capacity(LANES),
            free: Vec::new(),
            unmade: slots.max(1),
            lane_len_max: lane_len_max.max(1),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// A slot to read into, and whether a query had to be shed for it: the oldest of the lane that
    /// has most. `None` while all slots are in the caller's hands.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Slot, bool)> {
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        if self.unmade > 0 {
            self.unmade -= 1;
            let slot = Slot {
                bytes: Box::new([0; QUERY_LEN_MAX]),
                len: 0,
                from: SocketAddr::from(([0, 0, 0, 0], 0)),
                arrived: now,
            };
            return Some((slot, false));
        }
        let longest = (0..LANES).max_by_key(|lane| self.lanes[*lane].len())?;
        let oldest = self.lanes[longest].pop_front()?;
        Some((oldest, true))
    }

    /// Puts back a slot that is not needed.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Lets a query wait. Whether an older one of its lane was shed for it.
    pub(super) fn push(&mut self, slot: Slot) -> bool {
        let index = self.lane_of(slot.from.ip());
        let lane = &mut self.lanes[index];
        let shed = if lane.len() >= self.lane_len_max {
            lane.pop_front()
        } else {
            None
        };
        lane.push_back(slot);
        if lane.len() == 1 && !self.turns.contains(&index) {
            self.turns.push_back(index);
        }
        let has_shed = shed.is_some();
        self.free.extend(shed);
        has_shed
    }

    /// The next query in turn.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        loop {
            let index = self.turns.pop_front()?;
            let lane = &mut self.lanes[index];
            let next = lane.pop_front();
            if !lane.is_empty() {
                self.turns.push_back(index);
            }
            // A lane may have been emptied by `take` since its turn was noted.
            if next.is_some() {
                return next;
            }
        }
    }

    /// An IPv6 source is its /64: a host has that many addresses to send from.
    fn lane_of(&self, ip: IpAddr) -> usize {
        let hash = match ip {
            IpAddr::V4(ip) => self.hasher.hash_one(ip.to_bits()),
            IpAddr::V6(ip) => self.hasher.hash_one(ip.to_bits() >> 64),
        };
        usize::try_from(hash % (LANES as u64)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut FairQueue, from: &str, mark: u8) -> bool {
        let (mut slot, shed) = queue.take(Instant::now()).unwrap();
        slot.from = from.parse().unwrap();
        slot.bytes[0] = mark;
        let pushed = queue.push(slot);
        shed || pushed
    }

    fn marks(queue: &mut FairQueue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop())
            .map(|slot| slot.bytes[0])
            .collect()
    }

    /// Two sources in different lanes, whatever the hash.
    fn two_sources(queue: &FairQueue) -> (String, String) {
        let text = |last: usize| format!("10.0.0.{last}:53");
        let lane = |last: usize| queue.lane_of(text(last).parse::<SocketAddr>().unwrap().ip());
        let other = (2..255).find(|last| lane(*last) != lane(1)).unwrap();
        (text(1), text(other))
    }

    #[test]
    fn a_source_sheds_its_own_oldest_past_its_bound() {
        let mut queue = FairQueue::new(10, 3);
        let (flood, other) = two_sources(&queue);
        assert!(!push(&mut queue, &other, 100));
        let shed = (0..5)
            .filter(|mark| push(&mut queue, &flood, *mark))
            .count();
        assert_eq!(shed, 2);
        let mut got = marks(&mut queue);
        got.sort_unstable();
        assert_eq!(got, [2, 3, 4, 100]);
    }

    #[test]
    fn past_the_total_bound_the_longest_lane_sheds_its_oldest() {
        let mut queue = FairQueue::new(4, 4);
        let (flood, other) = two_sources(&queue);
        for mark in 0..4 {
            assert!(!push(&mut queue, &flood, mark));
        }
        assert!(push(&mut queue, &other, 100));
        let mut got = marks(&mut queue);
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3, 100]);
    }

    #[test]
    fn lanes_take_turns() {
        let mut queue = FairQueue::new(10, 8);
        let (flood, other) = two_sources(&queue);
        for mark in 0..6 {
            push(&mut queue, &flood, mark);
        }
        push(&mut queue, &other, 100);
        assert_eq!(marks(&mut queue)[1], 100);
        assert!(queue.is_empty());
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let mut queue = FairQueue::new(2, 2);
        let now = Instant::now();
        let (first, _) = queue.take(now).unwrap();
        let _second = queue.take(now).unwrap();
        assert!(queue.take(now).is_none());
        queue.give_back(first);
        assert!(queue.take(now).is_some());
    }
}
