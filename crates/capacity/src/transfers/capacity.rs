//! Total bandwidth of a device by its number of users N: MaxBW - BWloss(N), section 4.2.1 and
//! figure 4.4 of the thesis.
//!
//! The bandwidth is given, or learnt as an exponential mean of the total by N. An N without
//! observations takes the value of the nearest smaller N that has one, then the bandwidth that the
//! device is specified to give a single user, then the nearest larger N.

use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Rate;

/// Name of the learnt state in the store.
const BLOB_NAME: &str = "bandwidths";
const VERSION: u16 = 1;
/// Divisor of a new total in the exponential mean: it counts for one eighth.
const WEIGHT: u64 = 8;

/// Total bandwidth of a device in bytes a second, by number of users: given, or learnt as an
/// exponential mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// MaxBW, and BWloss of two or more users.
    given: Option<(u64, u64)>,
    /// Specified bandwidth of a single user; 0: not specified.
    alone: u64,
    /// Specified bandwidth of a single user at the fastest place of the device; 0: not specified.
    best: u64,
    /// Learnt bandwidth by N - 1; 0: not observed.
    seen: [u64; Capacity::MOST],
}

impl Capacity {
    /// Largest N that is distinguished; larger ones count as this one.
    pub const MOST: usize = 64;

    /// Creates a fixed capacity: `max_bandwidth` for one user, and `loss` less for two or more.
    pub fn given(max_bandwidth: u64, loss: u64) -> Capacity {
        Capacity {
            given: Some((max_bandwidth, loss)),
            ..Capacity::learnt(0)
        }
    }

    /// Creates a capacity to be learnt. `alone`: specified bandwidth of a single user; 0: none.
    pub fn learnt(alone: u64) -> Capacity {
        Capacity {
            given: None,
            alone,
            best: 0,
            seen: [0; Capacity::MOST],
        }
    }

    /// Sets a fixed capacity as [`Capacity::given`]; a `max_bandwidth` of 0 returns to the learnt
    /// one.
    pub fn give(&mut self, max_bandwidth: u64, loss: u64) {
        self.given = (max_bandwidth > 0).then_some((max_bandwidth, loss));
    }

    /// Sets the specified bandwidth of a single user.
    pub fn set_single_user(&mut self, alone: u64) {
        self.alone = alone;
    }

    /// Sets the specified bandwidth of a single user at the fastest place of the device; 0: none.
    pub fn say_best(&mut self, best: u64) {
        self.best = best;
    }

    /// Upper bound on the bandwidth of a single user, as far as is known; 0: not known.
    pub fn best(&self) -> u64 {
        match (self.given, self.seen[0]) {
            (None, 0) => self.best.max(self.with_users(1)),
            _ => self.with_users(1),
        }
    }

    /// Total bandwidth with `n` simultaneous users; 0: not known.
    pub fn with_users(&self, n: usize) -> u64 {
        let n = n.clamp(1, Capacity::MOST);
        if let Some((max, loss)) = self.given {
            // At least 1, because 0 would mean "not known" where the given loss leaves nothing.
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

    /// Learns from an interval in which `n` users kept the device busy, with their total bandwidth.
    pub fn learn(&mut self, n: usize, bytes_per_s: u64) {
        let seen = &mut self.seen[n.clamp(1, Capacity::MOST) - 1];
        *seen = match *seen {
            0 => bytes_per_s,
            mean => mean - mean / WEIGHT + bytes_per_s / WEIGHT,
        };
    }

    /// Exports the learnt bandwidths; `None`: nothing was learnt.
    pub fn export(&self) -> Option<Blob> {
        let seen = || (1..).zip(&self.seen).filter(|(_, bytes)| **bytes > 0);
        let mut blob = Blob::new(BLOB_NAME, VERSION);
        blob.push_u64(seen().count() as u64);
        for (n, &bytes) in seen() {
            blob.push_u64(n).push_u64(bytes);
        }
        seen().next().is_some().then_some(blob)
    }

    /// Restores exported bandwidths.
    ///
    /// # Errors When the blob is damaged, or has a number of users or a bandwidth out of range. The
    /// capacity is then unchanged.
    pub fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let most = Capacity::MOST as u64;
        let mut fields = learnt.fields(BLOB_NAME, VERSION)?;
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
        assert_eq!([1, 2, 9].map(|n| capacity.with_users(n)), [50; 3]);
        capacity.learn(2, 37);
        assert_eq!(
            [1, 2, 3, 100].map(|n| capacity.with_users(n)),
            [50, 37, 37, 37]
        );
        capacity.learn(1, 54);
        assert_eq!([0, 1, 2].map(|n| capacity.with_users(n)), [54, 54, 37]);
        // No specified bandwidth, and only larger numbers of users were observed.
        let mut capacity = Capacity::learnt(0);
        assert_eq!(capacity.with_users(1), 0);
        capacity.learn(3, 30);
        assert_eq!([1, 3, 4].map(|n| capacity.with_users(n)), [30; 3]);
    }

    #[test]
    fn the_best_is_what_is_said_until_one_alone_was_seen() {
        let mut capacity = Capacity::learnt(50);
        assert_eq!(capacity.best(), 50);
        capacity.say_best(80);
        assert_eq!((capacity.best(), capacity.with_users(1)), (80, 50));
        // The total of two users says nothing about one.
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
        assert_eq!([1, 2, 3].map(|n| capacity.with_users(n)), [54, 37, 37]);
        capacity.give(0, 17);
        assert_eq!(capacity.with_users(1), 99);
        assert_eq!(Capacity::given(5, 9).with_users(2), 1);
        assert_eq!(Capacity::given(0, 0).with_users(2), 0);
    }

    #[test]
    fn the_mean_moves_by_an_eighth() {
        let mut capacity = Capacity::learnt(0);
        capacity.learn(2, 8_000);
        capacity.learn(2, 16_000);
        assert_eq!(capacity.with_users(2), 9_000);
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
        let mut wrong = Blob::new(BLOB_NAME, VERSION);
        wrong.push_u64(1).push_u64(65).push_u64(7);
        let said = again.import(&wrong).unwrap_err().to_string();
        assert_eq!(said, "a number of users is 65, which cannot be");
        assert_eq!(again, capacity);
    }
}
