//! Checker of budgets. No VM waits for a request slot or for payload memory while it holds less
//! than its guaranteed part and others hold more than theirs. The totals stay within their bounds.
//!
//! Guaranteed parts are computed here independently, from the documented rule: a quarter of the
//! guaranteed half is divided equally, half of the rest by reservation if any VM has one, and the
//! remainder by weight.

use super::{Verdict, ensure};
use tidegate_core::budget::{Shares, buffer_bytes};
use tidegate_core::engine::PayloadBounds;
use tidegate_core::objective::Objective;
use tidegate_core::request::{Op, VmId};

/// Guaranteed part of each member of a `total`, in the unit of the total and at least 1, by the
/// documented rule.
pub fn parts(total: u64, members: &[Shares]) -> Vec<u64> {
    // The other half is lent to whoever asks first.
    let guaranteed = total / 2;
    let equally = guaranteed / 4;
    let reserved: u128 = members.iter().map(|of| u128::from(of.reservation)).sum();
    let weights: u128 = members.iter().map(|of| u128::from(of.weight.max(1))).sum();
    let by_reservation = match reserved {
        0 => 0,
        _ => (guaranteed - equally) / 2,
    };
    let by_weight = guaranteed - equally - by_reservation;
    let share = |amount: u64, of: u64, sum: u128| match sum {
        0 => 0,
        sum => (u128::from(amount) * u128::from(of) / sum) as u64,
    };
    let part = |of: &Shares| {
        let part = share(equally, 1, members.len() as u128)
            + share(by_weight, of.weight.max(1), weights)
            + share(by_reservation, of.reservation, reserved);
        // Rounding must not leave a VM without any guarantee.
        part.max(1)
    };
    members.iter().map(part).collect()
}

/// Payload memory that each VM holds, as a driver observed it.
#[derive(Clone, Default, Debug)]
pub struct Budgets {
    bounds: Option<PayloadBounds>,
    /// Bytes by VM slot: of writes, and of reads.
    held: Vec<[u64; 2]>,
    all: [u64; 2],
}

fn kind_of(op: Op) -> usize {
    // Index in `held`: only writes and reads have payload, and a driver asks for no others.
    usize::from(op != Op::Write)
}

impl Budgets {
    /// Creates the books for memory within `bounds`; `None` stands for unbounded memory.
    pub fn new(bounds: Option<PayloadBounds>) -> Budgets {
        Budgets {
            bounds,
            ..Budgets::default()
        }
    }

    /// Returns `true` if payload memory is bounded.
    pub fn is_bounded(&self) -> bool {
        self.bounds.is_some()
    }

    /// Bytes of payload memory that a VM's requests in the direction of `op` hold.
    fn held(&self, vm: VmId, op: Op) -> u64 {
        let held = self.held.get(vm.index());
        held.map_or(0, |held| held[kind_of(op)])
    }

    /// Records that a request of `len` bytes got payload memory.
    ///
    /// # Errors
    /// Fails when more memory is in use than the bounds allow.
    pub fn taken(&mut self, vm: VmId, op: Op, len: u32) -> Verdict {
        let Some(bounds) = self.bounds else {
            return Ok(());
        };
        if self.held.len() <= vm.index() {
            self.held.resize(vm.index() + 1, [0; 2]);
        }
        self.held[vm.index()][kind_of(op)] += buffer_bytes(len);
        self.all[kind_of(op)] += buffer_bytes(len);
        let (used, most) = (self.all.iter().sum::<u64>(), bounds.max_in_use());
        ensure!(
            Budgets,
            used <= most,
            "{used} bytes of payload memory are in use; the bounds are {most}"
        );
        Ok(())
    }

    /// Records that a request of `len` bytes returned its payload memory.
    pub fn returned(&mut self, vm: VmId, op: Op, len: u32) {
        self.held[vm.index()][kind_of(op)] -= buffer_bytes(len);
        self.all[kind_of(op)] -= buffer_bytes(len);
    }

    /// Returns `true` if a VM is certain to get `need` bytes of memory: they fit its guaranteed
    /// part beside its present use, and the total beside the use of all. `objectives` are those of
    /// all VMs, this VM's first.
    pub fn fits(&self, vm: VmId, op: Op, need: u64, objectives: &[Objective]) -> bool {
        let Some(bounds) = self.bounds else {
            return true;
        };
        let each = bounds.per_direction();
        let shares: Vec<Shares> = objectives.iter().map(Shares::of_memory).collect();
        // The first is this VM's. `per_vm` bounds both directions, hence a half for each.
        let part = parts(each, &shares)[0].min(bounds.per_vm / 2);
        self.held(vm, op) + need <= part && self.all[kind_of(op)] + need <= each
    }
}
