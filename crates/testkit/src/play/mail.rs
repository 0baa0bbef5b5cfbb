//! What happens to messages on their way: lost, doubled, in another order.

use super::Play;
use crate::site::Mail;

impl Play {
    /// The place of a message that a watch may lose.
    fn losable(&mut self, at: usize) -> Option<usize> {
        self.site.pump(&self.registry);
        let places: Vec<usize> = (0..self.site.inbox.len())
            .filter(|place| self.site.inbox[*place].subject.is_some())
            .collect();
        (!places.is_empty()).then(|| places[at % places.len()])
    }

    pub(super) fn lose(&mut self, at: usize) {
        if let Some(place) = self.losable(at) {
            self.site.inbox.remove(place);
            self.has_lost = true;
        }
    }

    /// Loses all that is under way and like this.
    pub fn lose_all(&mut self, is_lost: impl Fn(&Mail) -> bool) {
        self.site.pump(&self.registry);
        self.site.inbox.retain(|mail| !is_lost(mail));
        self.has_lost = true;
    }

    pub(super) fn double(&mut self, at: usize) {
        if let Some(place) = self.losable(at) {
            let again = self.site.inbox[place].clone();
            self.site.inbox.insert(place, again);
        }
    }

    /// Puts what watches saw in another order; where the site is orderly, what is about one
    /// object keeps its order, and nothing overtakes a listing: it would be older than what came
    /// before it.
    pub(super) fn shuffle(&mut self, seed: u64) {
        self.site.pump(&self.registry);
        let places: Vec<usize> = (0..self.site.inbox.len())
            .filter(|place| self.site.inbox[*place].subject.is_some())
            .collect();
        let mut state = seed | 1;
        if self.site.is_orderly {
            for run in places.chunk_by(|a, b| a + 1 == *b) {
                self.shuffle_places(run, &mut state);
            }
        } else {
            self.shuffle_places(&places, &mut state);
            self.has_lost = true;
        }
    }

    fn shuffle_places(&mut self, places: &[usize], state: &mut u64) {
        let mut mails: Vec<Mail> = places
            .iter()
            .map(|at| self.site.inbox[*at].clone())
            .collect();
        for at in (1..mails.len()).rev() {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let other = usize::try_from(*state >> 33).unwrap_or(0) % (at + 1);
            mails.swap(at, other);
        }
        if self.site.is_orderly {
            self.restore_order(places, &mut mails);
        }
        for (place, mail) in places.iter().zip(mails) {
            self.site.inbox[*place] = mail;
        }
    }

    /// Of each subject, puts the messages back in the order that they came in.
    fn restore_order(&self, places: &[usize], mails: &mut [Mail]) {
        for at in 0..mails.len() {
            let subject = mails[at].subject.clone();
            let earlier = mails[..at].iter().filter(|m| m.subject == subject).count();
            let mut original = places.iter().map(|place| &self.site.inbox[*place]);
            if let Some(mail) = original
                .by_ref()
                .filter(|m| m.subject == subject)
                .nth(earlier)
            {
                mails[at] = mail.clone();
            }
        }
    }
}
