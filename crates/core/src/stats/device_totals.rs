//! Running totals of a VM's requests, read for each late request to find the cause of its wait.
//!
//! The same sums are in the VM's statistics and in the open entries of its ledger, some eight cache
//! lines. A busy VM without a promise that the policy honours has late requests all the time, so
//! the sums are kept together in one line. Replies are included when the totals are read: they cost
//! nothing while no request is late. A VM whose last late request lies further back than the ledger
//! begins anew from its statistics.

use super::{ANSWERS, Answer, VmStats, open};
use tidegate_base::time::Nanos;

/// Requests of a VM that succeeded, over its life.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DeviceTotals {
    /// Number of requests.
    pub requests: u64,
    /// Time that they spent with the device.
    pub device: Nanos,
    /// Requests, of all, that were merged with others.
    pub merged: u64,
}

/// [`DeviceTotals`] with the number of the ledger's entries that they include.
#[derive(Clone, Default)]
#[repr(align(32))]
pub(super) struct RunningTotals {
    totals: DeviceTotals,
    /// Number of replies included, modulo 2^32.
    answers: u32,
    /// Some replies that are not included have left the ledger.
    has_gap: bool,
}

// An alignment of 32 bytes keeps all of it in one cache line.
const _: () = assert!(size_of::<RunningTotals>() == 32);

impl RunningTotals {
    /// Creates totals of no requests for a ledger whose first entry has number `answers`.
    #[cfg(test)]
    pub(super) fn starting_at(answers: u32) -> RunningTotals {
        RunningTotals {
            answers,
            ..RunningTotals::default()
        }
    }

    /// Counts a request that was merged.
    pub(super) fn merged(&mut self) {
        self.totals.merged += 1;
    }

    /// Records that entry number `to - 1` has filled the ledger.
    #[inline]
    pub(super) fn ring_filled(&mut self, to: u32) {
        // Stored, because the numbers of replies wrap around.
        self.has_gap |= to.wrapping_sub(self.answers) > ANSWERS as u32;
    }

    /// Returns whether all replies up to number `to` are included or still in the ledger.
    pub(super) fn reaches(&self, to: u32) -> bool {
        !self.has_gap && to.wrapping_sub(self.answers) <= ANSWERS as u32
    }

    /// Begins anew from statistics that include the replies up to number `answers`.
    pub(super) fn restart(&mut self, stats: &VmStats, answers: u32) {
        *self = RunningTotals {
            totals: DeviceTotals {
                requests: stats.total_ops(),
                device: stats.account.device,
                merged: stats.merged,
            },
            answers,
            has_gap: false,
        };
    }

    /// Includes the entries up to number `to`, which the totals reach, and returns them.
    pub(super) fn include(&mut self, ledger: &[Answer; ANSWERS], to: u32) -> DeviceTotals {
        for entries in open(ledger, self.answers, to) {
            for answer in entries.iter().filter(|answer| answer.well) {
                self.totals.requests += 1;
                self.totals.device += answer.account.device;
            }
        }
        self.answers = to;
        self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ledger;
    use super::*;
    use tidegate_base::request::{Account, Op};

    #[test]
    fn a_gap_is_found_after_the_numbers_of_replies_wrapped_around() {
        let mut totals = RunningTotals::default();
        totals.ring_filled(8);
        assert!(totals.reaches(8) && !totals.reaches(9));
        totals.ring_filled(16);
        // 2^32 replies later.
        totals.ring_filled(0);
        assert!(!totals.reaches(1));
    }

    #[test]
    fn requests_that_failed_do_not_count() {
        let (mut ledger, mut count) = (Ledger::default(), 0);
        for n in 0..20 {
            let account = Account {
                device: Nanos(10),
                ..Account::default()
            };
            let (op, len, well) = (Op::Read, 4096, n % 3 > 0);
            let answer = Answer {
                account,
                len,
                op,
                well,
            };
            ledger.answered(&mut count, answer);
            if n == 10 {
                ledger.merged();
                // Of numbers 0 to 10, those with 0, 3, 6 and 9 failed.
                let totals = ledger.device_totals(count);
                assert_eq!((totals.requests, totals.device), (7, Nanos(70)));
            }
        }
        let totals = DeviceTotals {
            requests: 13,
            device: Nanos(130),
            merged: 1,
        };
        assert_eq!(ledger.device_totals(count), totals);
        assert_eq!(ledger.read(0, count).merged, 1);
    }
}
