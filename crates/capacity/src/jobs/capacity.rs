//! What a device does in all with so many that use it: MaxBW - BWloss(N), section 4.2.1 and figure
//! 4.4 of the thesis.
//!
//! It is given, or learnt: an exponential mean of the total bandwidth by N. For an N that was not
//! seen the nearest smaller one stands that was, and before any was seen what the device is said to
//! do for one.

use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::objective::Rate;

/// What was learnt is called so.
const PART: &str = "bandwidths";
const VERSION: u16 = 1;
/// A new total counts for so much of the mean: one in eight.
const WEIGHT: u64 = 8;

/// What a device does in all, in bytes a second, by how many use it: given, or learnt as an
/// exponential mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// MaxBW, and what two or more lose of it.
    given: Option<(u64, u64)>,
    /// What one is said to have who is alone; 0: nothing is said.
    alone: u64,
    /// What one is said to have at best, wherever on the device; 0: nothing is said.
    best: u64,
    /// By N - 1; 0: not seen.
    seen: [u64; Capacity::MOST],
}

impl Capacity {
    /// So many users are told apart; more count as so many.
    pub const MOST: usize = 64;

    /// `max_bandwidth` for one, and `loss` less for two and more.
    pub fn given(max_bandwidth: u64, loss: u64) -> Capacity {
        Capacity {
            given: Some((max_bandwidth, loss)),
            ..Capacity::learnt(0)
        }
    }

    /// To be learnt. `alone`: what one is said to have who is alone; 0: nothing is said.
    pub fn learnt(alone: u64) -> Capacity {
        Capacity {
            given: None,
            alone,
            best: 0,
            seen: [0; Capacity::MOST],
        }
    }

    /// With `max_bandwidth` that is what [`Capacity::given`] says; with 0 it is what was learnt.
    pub fn give(&mut self, max_bandwidth: u64, loss: u64) {
        self.given = (max_bandwidth > 0).then_some((max_bandwidth, loss));
    }

    /// What one is said to have who is alone.
    pub fn say(&mut self, alone: u64) {
        self.alone = alone;
    }

    /// What one is said to have at best, wherever on the device; 0: nothing is said.
    pub fn say_best(&mut self, best: u64) {
        self.best = best;
    }

    /// What one has at best who is alone, as far as is known: less is possible, more is not. 0:
    /// nothing is known.
    pub fn best(&self) -> u64 {
        match (self.given, self.seen[0]) {
            (None, 0) => self.best.max(self.of(1)),
            _ => self.of(1),
        }
    }

    /// With so many that use the device at once; 0: nothing is known of it.
    pub fn of(&self, n: usize) -> u64 {
        let n = n.clamp(1, Capacity::MOST);
        if let Some((max, loss)) = self.given {
            // Who gives a loss of all there is gets next to nothing, which is not the same as not
            // known.
            return if n == 1 {
                max
            } else {
                max.saturating_sub(loss).max(max.min(1))
            };
        }
        let known = |bytes: &&u64| **bytes > 0;
        let smaller = self.seen[..n].iter().rev().find(known);
        let larger = || self.seen[n..].iter().find(known);
        let said = Some(&self.alone).filter(known);
        smaller.or(said).or_else(larger).copied().unwrap_or(0)
    }

    /// So many kept the device busy, and had so much together.
    pub fn learn(&mut self, n: usize, bytes_per_s: u64) {
        let seen = &mut self.seen[n.clamp(1, Capacity::MOST) - 1];
        *seen = match *seen {
            0 => bytes_per_s,
            mean => mean - mean / WEIGHT + bytes_per_s / WEIGHT,
        };
    }

    /// What was learnt, to be kept; `None`: nothing was.
    pub fn export(&self) -> Option<Blob> {
        let seen = || (1..).zip(&self.seen).filter(|(_, bytes)| **bytes > 0);
        let mut blob = Blob::new(PART, VERSION);
        blob.push_u64(seen().count() as u64);
        for (n, &bytes) in seen() {
            blob.push_u64(n).push_u64(bytes);
        }
        seen().next().is_some().then_some(blob)
    }

    /// Goes on with what was kept.
    pub fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let most = Capacity::MOST as u64;
        let mut fields = learnt.fields(PART, VERSION)?;
        let mut seen = [0; Capacity::MOST];
        for _ in 0..fields.u64_in("how many numbers of users are known", 1..=most)? {
            let n = fields.u64_in("a number of users", 1..=most)?;
            seen[n as usize - 1] = fields.u64_in("a bandwidth", 1..=Rate::MAX)?;
        }
        fields.end()?;
        self.seen = seen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unseen_number_has_what_the_nearest_smaller_one_had() {
        let mut capacity = Capacity::learnt(50);
        assert_eq!([1, 2, 9].map(|n| capacity.of(n)), [50; 3]);
        capacity.learn(2, 37);
        assert_eq!([1, 2, 3, 100].map(|n| capacity.of(n)), [50, 37, 37, 37]);
        capacity.learn(1, 54);
        assert_eq!([0, 1, 2].map(|n| capacity.of(n)), [54, 54, 37]);
        // Nothing is said, and only more users were seen.
        let mut capacity = Capacity::learnt(0);
        assert_eq!(capacity.of(1), 0);
        capacity.learn(3, 30);
        assert_eq!([1, 3, 4].map(|n| capacity.of(n)), [30; 3]);
    }

    #[test]
    fn the_best_is_what_is_said_until_one_alone_was_seen() {
        let mut capacity = Capacity::learnt(50);
        assert_eq!(capacity.best(), 50);
        capacity.say_best(80);
        assert_eq!((capacity.best(), capacity.of(1)), (80, 50));
        // What two have says nothing of one.
        capacity.learn(2, 37);
        assert_eq!(capacity.best(), 80);
        capacity.learn(1, 60);
        assert_eq!(capacity.best(), 60);
        capacity.give(54, 0);
        assert_eq!(capacity.best(), 54);
    }

    #[test]
    fn what_is_given_stands_whatever_is_seen() {
        let mut capacity = Capacity::given(54, 17);
        capacity.learn(1, 99);
        assert_eq!([1, 2, 3].map(|n| capacity.of(n)), [54, 37, 37]);
        capacity.give(0, 17);
        assert_eq!(capacity.of(1), 99);
        assert_eq!(Capacity::given(5, 9).of(2), 1);
        assert_eq!(Capacity::given(0, 0).of(2), 0);
    }

    #[test]
    fn the_mean_moves_by_an_eighth() {
        let mut capacity = Capacity::learnt(0);
        capacity.learn(2, 8_000);
        capacity.learn(2, 16_000);
        assert_eq!(capacity.of(2), 9_000);
    }

    #[test]
    fn what_was_learnt_outlives_it_and_nonsense_is_refused() {
        let mut capacity = Capacity::learnt(50);
        assert_eq!(capacity.export(), None);
        capacity.learn(1, 54);
        capacity.learn(500, 20);
        let blob = capacity.export().expect("something was learnt");
        let mut again = Capacity::learnt(50);
        again.import(&blob).expect("its own");
        assert_eq!(again, capacity);
        let bytes = blob.as_bytes();
        for cut in 0..bytes.len() {
            let cut = Blob::from_bytes(bytes[..cut].to_vec());
            assert!(again.import(&cut).is_err());
        }
        let mut wrong = Blob::new(PART, VERSION);
        wrong.push_u64(1).push_u64(65).push_u64(7);
        let said = again.import(&wrong).unwrap_err().to_string();
        assert_eq!(said, "a number of users is 65, which cannot be");
        assert_eq!(again, capacity);
    }
}
