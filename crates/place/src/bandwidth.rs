//! Bandwidth of a host's disk: MaxBW - BWloss(N) of Jain's thesis.

use crate::MAX_VMS;

/// Total bandwidth of a disk by the number of transfers on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bandwidth {
    max: u64,
    /// Loss in bytes per second with one, two and more transfers.
    lost: Vec<u64>,
}

/// Invalid bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BandwidthError {
    /// Maximum bandwidth of 0.
    #[error("the bandwidth is 0 B/s; it must be at least 1 B/s")]
    Zero,
    /// Loss that leaves no bandwidth.
    #[error(
        "with {n} transfers the disk loses {lost} B/s, which leaves nothing of its {max} B/s; the \
         loss must be smaller"
    )]
    AllLost {
        /// Number of transfers with which the loss occurs.
        n: usize,
        /// Loss in bytes per second.
        lost: u64,
        /// Maximum bandwidth in bytes per second.
        max: u64,
    },
    /// More losses than a host can have transfers ([`MAX_VMS`]).
    #[error("{0} losses given; at most {MAX_VMS} are allowed, one per number of transfers")]
    TooMany(usize),
}

impl Bandwidth {
    /// Creates the bandwidth of a disk with `max` bytes per second, less `lost[n - 1]` with `n`
    /// transfers; more transfers lose as much as the last value.
    ///
    /// # Errors
    /// `max` is 0, a loss leaves nothing, or there are more than [`MAX_VMS`] losses.
    pub fn new(max: u64, lost: &[u64]) -> Result<Bandwidth, BandwidthError> {
        if max == 0 {
            return Err(BandwidthError::Zero);
        }
        if lost.len() > MAX_VMS {
            return Err(BandwidthError::TooMany(lost.len()));
        }
        // Equal to `max` leaves 0, with which no transfer ends.
        if let Some(at) = lost.iter().position(|&lost| lost >= max) {
            let (n, lost) = (at + 1, lost[at]);
            return Err(BandwidthError::AllLost { n, lost, max });
        }
        let lost = lost.to_vec();
        Ok(Bandwidth { max, lost })
    }

    /// Returns the least bandwidth, 1 B/s: of a disk whose bandwidth is all reserved.
    pub fn least() -> Bandwidth {
        Bandwidth {
            max: 1,
            lost: Vec::new(),
        }
    }

    /// MaxBW in bytes per second.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// BWloss(1), BWloss(2) and so on in bytes per second.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// Returns the total bandwidth with `n` transfers in bytes per second.
    pub fn total_for(&self, n: usize) -> u64 {
        // An idle disk counts as one with a single transfer.
        let lost = self.lost.get(n.saturating_sub(1)).or(self.lost.last());
        self.max - lost.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_given_losses_the_last_one_applies() {
        let bandwidth = Bandwidth::new(54, &[0, 17, 14]).expect("valid");
        let totals: Vec<_> = (0..6).map(|n| bandwidth.total_for(n)).collect();
        assert_eq!(totals, [54, 54, 37, 40, 40, 40]);
        assert_eq!(Bandwidth::new(54, &[]).expect("valid").total_for(9), 54);
    }

    #[test]
    fn a_bandwidth_of_zero_is_refused_with_its_cause() {
        assert_eq!(Bandwidth::new(0, &[]), Err(BandwidthError::Zero));
        let all = Bandwidth::new(54, &[0, 54]).expect_err("nothing left");
        assert_eq!(
            all.to_string(),
            "with 2 transfers the disk loses 54 B/s, which leaves nothing of its 54 B/s; the loss \
             must be smaller"
        );
        let many = Bandwidth::new(54, &[0; MAX_VMS + 1]);
        assert_eq!(many, Err(BandwidthError::TooMany(MAX_VMS + 1)));
    }
}
