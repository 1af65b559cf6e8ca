//! Total bandwidth of a device by its number of users N: MaxBW - BWloss(N), section 4.2.1 and
//! figure 4.4 of the thesis that the module [`transfers`](super) cites.
//!
//! The bandwidth is given, or learnt as an exponential mean of the total by N. An N without
//! observations takes the value of the nearest smaller N that has one, then the bandwidth that the
//! device is specified to give a single user, then the nearest larger N.

use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Rate;

/// Name and version of the learnt state in the store.
const BLOB_NAME: &str = "bandwidths";
const VERSION: u16 = 1;
/// Divisor of a new total in the exponential mean: it counts for one eighth, as TCP smooths
/// round-trip times (RFC 6298).
const EWMA_DIVISOR: u64 = 8;

/// Total bandwidth of a device in bytes per second, by number of users: given, or learnt as an
/// exponential mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceBandwidth {
    /// MaxBW, and BWloss of two or more users.
    given: Option<(u64, u64)>,
    /// Specified bandwidth of a single user; 0: not specified.
    single_user: u64,
    /// Specified bandwidth of a single user at the fastest place of the device; 0: not specified.
    single_user_max: u64,
    /// Learnt bandwidth by N - 1; 0: not observed.
    observed: [u64; DeviceBandwidth::USERS_MAX],
}

impl DeviceBandwidth {
    /// Largest N that is distinguished; larger ones count as this one.
    pub const USERS_MAX: usize = 64;

    /// Creates a fixed capacity in bytes per second: `max_bandwidth` for one user, and `loss` less
    /// for two or more.
    pub fn given(max_bandwidth: u64, loss: u64) -> DeviceBandwidth {
        DeviceBandwidth {
            given: Some((max_bandwidth, loss)),
            ..DeviceBandwidth::learnt(0)
        }
    }

    /// Creates a capacity to be learnt. `single_user`: specified bandwidth of a single user in
    /// bytes per second; 0: none.
    pub fn learnt(single_user: u64) -> DeviceBandwidth {
        DeviceBandwidth {
            given: None,
            single_user,
            single_user_max: 0,
            observed: [0; DeviceBandwidth::USERS_MAX],
        }
    }

    /// Sets a fixed capacity as [`DeviceBandwidth::given`]; a `max_bandwidth` of 0 returns to the
    /// learnt one.
    pub fn set_given(&mut self, max_bandwidth: u64, loss: u64) {
        self.given = (max_bandwidth > 0).then_some((max_bandwidth, loss));
    }

    /// Sets the specified bandwidth of a single user.
    pub fn set_single_user(&mut self, bytes_per_s: u64) {
        self.single_user = bytes_per_s;
    }

    /// Sets the specified bandwidth of a single user at the fastest place of the device; 0: none.
    pub fn set_single_user_max(&mut self, bytes_per_s: u64) {
        self.single_user_max = bytes_per_s;
    }

    /// Upper bound on the bandwidth of a single user, as far as is known; 0: not known.
    pub fn single_user_max(&self) -> u64 {
        match (self.given, self.observed[0]) {
            // Specified figures count only until a single user was observed.
            (None, 0) => self.single_user_max.max(self.with_users(1)),
            _ => self.with_users(1),
        }
    }

    /// Total bandwidth with `n` simultaneous users; 0: not known.
    pub fn with_users(&self, n: usize) -> u64 {
        let n = n.clamp(1, DeviceBandwidth::USERS_MAX);
        if let Some((max, loss)) = self.given {
            // At least 1, because 0 would mean "not known" where the given loss leaves nothing.
            return if n == 1 {
                max
            } else {
                max.saturating_sub(loss).max(max.min(1))
            };
        }
        let known = |bytes: &&u64| **bytes > 0;
        let smaller = self.observed[..n].iter().rev().find(known);
        let larger = || self.observed[n..].iter().find(known);
        let specified = Some(&self.single_user).filter(known);
        // Fewer users first: the total falls with their number, so theirs is the closest bound that
        // is not too low.
        smaller.or(specified).or_else(larger).copied().unwrap_or(0)
    }

    /// Learns from an interval in which `n` users kept the device busy, with their total bandwidth
    /// in bytes per second. A mean that falls to 0 counts as not observed.
    pub fn learn(&mut self, n: usize, bytes_per_s: u64) {
        let observed = &mut self.observed[n.clamp(1, DeviceBandwidth::USERS_MAX) - 1];
        *observed = match *observed {
            // The first observation counts in full.
            0 => bytes_per_s,
            mean => mean - mean / EWMA_DIVISOR + bytes_per_s / EWMA_DIVISOR,
        };
    }

    /// Exports the learnt bandwidths; `None`: nothing was learnt.
    pub fn export(&self) -> Option<Blob> {
        let observed = || (1..).zip(&self.observed).filter(|(_, bytes)| **bytes > 0);
        let mut blob = Blob::new(BLOB_NAME, VERSION);
        blob.push_u64(observed().count() as u64);
        for (n, &bytes) in observed() {
            blob.push_u64(n).push_u64(bytes);
        }
        observed().next().is_some().then_some(blob)
    }

    /// Restores exported bandwidths.
    ///
    /// # Errors
    /// If the blob is damaged, or has a number of users or a bandwidth out of range. The capacity
    /// is then unchanged.
    pub fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let users = 1..=DeviceBandwidth::USERS_MAX as u64;
        let mut fields = learnt.fields(BLOB_NAME, VERSION)?;
        let mut observed = [0; DeviceBandwidth::USERS_MAX];
        for _ in 0..fields.u64_in("count of bandwidths", users.clone())? {
            let n = fields.u64_in("number of users", users.clone())?;
            observed[n as usize - 1] = fields.u64_in("bandwidth", 1..=Rate::MAX)?;
        }
        fields.end()?;
        self.observed = observed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_for_unobserved_users_is_that_of_the_nearest_smaller_number() {
        let mut capacity = DeviceBandwidth::learnt(50);
        assert_eq!([1, 2, 9].map(|n| capacity.with_users(n)), [50; 3]);
        capacity.learn(2, 37);
        assert_eq!(
            [1, 2, 3, 100].map(|n| capacity.with_users(n)),
            [50, 37, 37, 37]
        );
        capacity.learn(1, 54);
        assert_eq!([0, 1, 2].map(|n| capacity.with_users(n)), [54, 54, 37]);
        // No specified bandwidth, and only larger numbers of users were observed.
        let mut capacity = DeviceBandwidth::learnt(0);
        assert_eq!(capacity.with_users(1), 0);
        capacity.learn(3, 30);
        assert_eq!([1, 3, 4].map(|n| capacity.with_users(n)), [30; 3]);
    }

    #[test]
    fn single_user_maximum_is_the_specified_one_until_a_single_user_was_observed() {
        let mut capacity = DeviceBandwidth::learnt(50);
        assert_eq!(capacity.single_user_max(), 50);
        capacity.set_single_user_max(80);
        assert_eq!(
            (capacity.single_user_max(), capacity.with_users(1)),
            (80, 50)
        );
        // The total of two users says nothing about one.
        capacity.learn(2, 37);
        assert_eq!(capacity.single_user_max(), 80);
        capacity.learn(1, 60);
        assert_eq!(capacity.single_user_max(), 60);
        capacity.set_given(54, 0);
        assert_eq!(capacity.single_user_max(), 54);
    }

    #[test]
    fn given_capacity_overrides_observations() {
        let mut capacity = DeviceBandwidth::given(54, 17);
        capacity.learn(1, 99);
        assert_eq!([1, 2, 3].map(|n| capacity.with_users(n)), [54, 37, 37]);
        capacity.set_given(0, 17);
        assert_eq!(capacity.with_users(1), 99);
        assert_eq!(DeviceBandwidth::given(5, 9).with_users(2), 1);
        assert_eq!(DeviceBandwidth::given(0, 0).with_users(2), 0);
    }

    #[test]
    fn learning_moves_the_mean_by_an_eighth() {
        let mut capacity = DeviceBandwidth::learnt(0);
        capacity.learn(2, 8_000);
        capacity.learn(2, 16_000);
        assert_eq!(capacity.with_users(2), 9_000);
    }

    #[test]
    fn export_round_trips_and_import_refuses_damaged_state() {
        let mut capacity = DeviceBandwidth::learnt(50);
        assert_eq!(capacity.export(), None);
        capacity.learn(1, 54);
        capacity.learn(500, 20);
        let blob = capacity.export().expect("something was learnt");
        let mut again = DeviceBandwidth::learnt(50);
        again.import(&blob).expect("its own");
        assert_eq!(again, capacity);
        let bytes = blob.as_bytes();
        for cut in 0..bytes.len() {
            let cut = Blob::from_bytes(bytes[..cut].to_vec());
            assert!(again.import(&cut).is_err());
        }
        let mut wrong = Blob::new(BLOB_NAME, VERSION);
        wrong.push_u64(1).push_u64(65).push_u64(7);
        let message = again.import(&wrong).unwrap_err().to_string();
        assert_eq!(message, "number of users is 65, which cannot be");
        assert_eq!(again, capacity);
    }
}
