//! Streams of VMs at a disk that seeks, and the one with which the disk stays, so that streams do
//! not break each other.

/// Stream that the device stays with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stay {
    /// Slot of the stream's VM; `usize::MAX`: no stream.
    pub(super) vm: usize,
    /// Cost that may still go before others have their turn.
    pub(super) budget_left: u64,
}

impl Stay {
    /// No stream.
    pub(super) const NONE: Stay = Stay {
        vm: usize::MAX,
        budget_left: 0,
    };

    /// Charges an I/O. One of another VM begins a stay with it, which lasts for `budget`.
    pub(super) fn charge(&mut self, vm: usize, cost: u64, budget: u64) {
        let budget_left = if self.vm == vm {
            self.budget_left
        } else {
            budget
        };
        self.vm = vm;
        // The last I/O of a stay may cost more than is left.
        self.budget_left = budget_left.saturating_sub(cost);
    }
}

/// End of a VM's last I/O, and how that one followed the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// Address at which the VM's last I/O ended.
    end: u64,
    /// The last I/O began where the one before it ended.
    pub(super) continued: bool,
    /// The last I/O continued the one before it, and the disk need not position for that.
    pub(super) flows: bool,
    /// The VM's last write that had no other I/O of the VM beside it ended in a cache of the disk.
    pub(super) ends_in_cache: bool,
}

impl Stream {
    /// Adds an I/O of `bytes` at `addr`, and returns whether it continues the last one without a
    /// positioning. `positions`: the disk positions for it even if it continues the last one.
    pub(super) fn push(&mut self, addr: u64, bytes: u32, positions: bool) -> bool {
        self.continued = addr == self.end;
        self.flows = self.continued && !positions;
        self.end = addr + u64::from(bytes);
        self.flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_continued_where_its_last_io_ended() {
        let mut stream = Stream::default();
        assert!(!stream.push(4096, 512, false));
        assert!(stream.push(4608, 1024, false));
        assert!(stream.push(5632, 512, false));
        assert!(!stream.push(5632, 512, false), "the same again");
        assert!(!stream.continued);
        assert!(!stream.push(6144, 512, true), "with a positioning");
        assert!(stream.continued && !stream.flows);
    }

    #[test]
    fn a_stay_ends_with_its_budget_and_begins_anew_with_another_vm() {
        let mut stay = Stay::NONE;
        stay.charge(3, 40, 100);
        assert_eq!(
            stay,
            Stay {
                vm: 3,
                budget_left: 60
            }
        );
        stay.charge(3, 70, 100);
        assert_eq!(
            stay,
            Stay {
                vm: 3,
                budget_left: 0
            }
        );
        stay.charge(5, 1, 100);
        assert_eq!(
            stay,
            Stay {
                vm: 5,
                budget_left: 99
            }
        );
    }
}
