//! Order in which targets and latency bounds were accepted: in overload the newest steps down
//! first.

use tidegate_base::objective::Objective;

/// Acceptance numbers of targets and latency bounds; a later one is larger.
#[derive(Debug)]
pub(super) struct Acceptance {
    /// Numbers of each VM's target and latency bound, by slot; 0: not promised.
    numbers: Vec<[u64; 2]>,
    newest: u64,
}

impl Acceptance {
    /// Creates the order with room for `vms` VMs.
    pub(super) fn with_capacity(vms: usize) -> Acceptance {
        Acceptance {
            numbers: vec![[0; 2]; vms],
            newest: 0,
        }
    }

    /// Numbers the target and latency bound of a VM's objective. A part that is changed keeps its
    /// number.
    pub(super) fn accept(&mut self, slot: usize, objective: &Objective) {
        let promised = [!objective.target.is_none(), objective.latency.is_some()];
        for (number, is_promised) in self.numbers[slot].iter_mut().zip(promised) {
            if !is_promised {
                *number = 0;
            } else if *number == 0 {
                self.newest += 1;
                *number = self.newest;
            }
        }
    }

    /// Forgets a VM.
    pub(super) fn forget_vm(&mut self, slot: usize) {
        self.numbers[slot] = [0; 2];
    }

    /// Returns the numbers of a VM's target and latency bound; 0: not promised.
    pub(super) fn numbers(&self, slot: usize) -> [u64; 2] {
        self.numbers[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::objective::Rate;
    use tidegate_base::time::Nanos;

    #[test]
    fn later_promises_have_larger_numbers_and_changed_ones_keep_theirs() {
        let mut acceptance = Acceptance::with_capacity(2);
        let bound = Objective {
            latency: Some(Nanos::from_millis(5)),
            ..Objective::default()
        };
        let both = Objective {
            target: Rate::iops(100),
            latency: Some(Nanos::from_millis(2)),
            ..Objective::default()
        };
        acceptance.accept(1, &bound);
        acceptance.accept(0, &both);
        assert_eq!(acceptance.numbers(1), [0, 1]);
        assert_eq!(acceptance.numbers(0), [2, 3]);
        acceptance.accept(1, &both);
        assert_eq!(acceptance.numbers(1), [4, 1], "the bound keeps its number");
        acceptance.accept(0, &bound);
        assert_eq!(acceptance.numbers(0), [0, 3]);
        acceptance.forget_vm(1);
        assert_eq!(acceptance.numbers(1), [0, 0]);
    }
}
