//! What a host's disk does: MaxBW - BWloss(N) of the thesis.

use crate::MOST;

/// What a disk does in all, by how many use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bandwidth {
    max: u64,
    /// What one, two and more of them lose.
    lost: Vec<u64>,
}

/// What is no bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BandwidthError {
    /// The disk does nothing.
    #[error("a disk that does 0 bytes a second serves nobody; it does 1 at least")]
    Nothing,
    /// Nothing is left of it.
    #[error(
        "{lost} bytes a second lost with {n} on the disk leave nothing of its {max}; less than \
         that may be lost"
    )]
    AllLost {
        /// With how many on it.
        n: usize,
        /// What they lose.
        lost: u64,
        /// What it does for one.
        max: u64,
    },
    /// More are never on a host.
    #[error("losses are given for {0} on the disk; no more than {MOST} are ever on it")]
    TooMany(usize),
}

impl Bandwidth {
    /// A disk that does `max` bytes a second at most, and `lost[n - 1]` less with `n` on it; with
    /// more than that, as much less as the last says.
    ///
    /// # Errors
    /// Where nothing is left for somebody, or there are more than [`MOST`] losses.
    pub fn new(max: u64, lost: &[u64]) -> Result<Bandwidth, BandwidthError> {
        if max == 0 {
            return Err(BandwidthError::Nothing);
        }
        if lost.len() > MOST {
            return Err(BandwidthError::TooMany(lost.len()));
        }
        if let Some(at) = lost.iter().position(|&lost| lost >= max) {
            let (n, lost) = (at + 1, lost[at]);
            return Err(BandwidthError::AllLost { n, lost, max });
        }
        let lost = lost.to_vec();
        Ok(Bandwidth { max, lost })
    }

    /// MaxBW, in bytes a second.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// BWloss(1), BWloss(2) and so on, in bytes a second.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// What it does in all with `n` on it, in bytes a second.
    pub fn with(&self, n: usize) -> u64 {
        let lost = self.lost.get(n.saturating_sub(1)).or(self.lost.last());
        self.max - lost.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_were_measured_lose_what_the_last_lost() {
        let bandwidth = Bandwidth::new(54, &[0, 17, 14]).expect("it is one");
        let with: Vec<_> = (0..6).map(|n| bandwidth.with(n)).collect();
        assert_eq!(with, [54, 54, 37, 40, 40, 40]);
        assert_eq!(Bandwidth::new(54, &[]).expect("it is one").with(9), 54);
    }

    #[test]
    fn what_leaves_nothing_is_refused_with_what_is_wrong() {
        assert_eq!(Bandwidth::new(0, &[]), Err(BandwidthError::Nothing));
        let all = Bandwidth::new(54, &[0, 54]).expect_err("nothing left");
        assert_eq!(
            all.to_string(),
            "54 bytes a second lost with 2 on the disk leave nothing of its 54; less than that may \
             be lost"
        );
        let many = Bandwidth::new(54, &[0; MOST + 1]);
        assert_eq!(many, Err(BandwidthError::TooMany(MOST + 1)));
    }
}
