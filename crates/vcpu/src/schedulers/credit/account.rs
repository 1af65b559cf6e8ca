//! Credits of the Credit scheduler: burning, and distribution by weight.

use super::Credit;
use crate::machine::{CpuSet, Machine, PcpuId, Vm};
use tidegate_core::time::Nanos;

/// CPU time of one credit in nanoseconds (Xen: 300 credits per 30 ms slice, 10 per millisecond).
const CREDIT_NS: u64 = 100_000;

/// Priority class of a vCPU, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// Out of credit: ran more than its share.
    Over,
    /// Has credit.
    Under,
    /// Has credit and has just woken.
    Boost,
}

/// Credit account of a vCPU.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) credit: i64,
    pub(super) class: Class,
    /// pCPU on which the vCPU runs or ran last.
    pub(super) home: PcpuId,
    /// Start of the run-time that has not been burnt yet.
    pub(super) start: Nanos,
    /// Run-time beyond whole credits, in nanoseconds.
    rest: u64,
    /// Takes part in the distribution of credits.
    pub(super) is_active: bool,
    /// Parked because the VM's cap is used up.
    pub(super) parked: bool,
}

impl Account {
    pub(super) fn new(home: PcpuId) -> Account {
        Account {
            credit: 0,
            class: Class::Under,
            home,
            start: Nanos::ZERO,
            rest: 0,
            is_active: false,
            parked: false,
        }
    }

    /// Burns whole credits for the run-time up to `now`; the remainder counts next time.
    pub(super) fn burn(&mut self, now: Nanos) {
        let ran = now.since(self.start).0 + self.rest;
        self.start = now;
        self.rest = ran % CREDIT_NS;
        self.credit -= (ran / CREDIT_NS) as i64;
    }
}

/// Returns `a / b` rounded up; both must be positive.
fn ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

impl Credit {
    /// Distributes the credits of one slice of all pCPUs by weight among active vCPUs.
    pub(super) fn distribute(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet) {
        for p in machine.all_pcpus().iter() {
            if let Some(v) = machine.pcpu(p).running {
                self.accounts[v.index()].burn(now);
            }
        }
        let slice = self.slice_credits();
        let active = |vm: &Vm| -> i64 {
            let vcpus = vm.vcpus.iter();
            vcpus.filter(|v| self.accounts[v.index()].is_active).count() as i64
        };
        let weights = machine
            .vms
            .iter()
            .map(|vm| i64::from(vm.weight) * active(vm));
        let weights: i64 = weights.sum();
        // No vCPU is active: there are no credits to distribute.
        if weights == 0 {
            return;
        }
        // Debts are CPU time already used. They are distributed as well, or vCPUs could never work
        // them off.
        let owed = std::mem::take(&mut self.owed);
        let total = slice * machine.pcpus.len() as i64 + owed;
        let dues: Vec<(i64, i64)> = (machine.vms.iter())
            .map(|vm| self.due(vm, active(vm), [total, owed, weights]))
            .collect();
        for (vm, &(due, cap)) in machine.vms.iter().zip(&dues) {
            for v in &vm.vcpus {
                if self.accounts[v.index()].is_active {
                    self.give_credits(v.index(), due, cap);
                }
            }
        }
        self.sort_queues(machine, kicks);
    }

    /// Credits that a pCPU burns in a slice.
    fn slice_credits(&self) -> i64 {
        (self.params.slice.0 / CREDIT_NS) as i64
    }

    /// Credits due to each of the `active` vCPUs of `vm`, and the debt at which a vCPU is parked
    /// (0: never).
    fn due(&self, vm: &Vm, active: i64, [total, owed, weights]: [i64; 3]) -> (i64, i64) {
        if active == 0 {
            return (0, 0);
        }
        let slice = self.slice_credits();
        let weight = i64::from(vm.weight) * active;
        // A vCPU cannot use more than one pCPU's time.
        let mut most = active * slice + ceil(owed * weight, weights);
        let mut cap = 0;
        if vm.cap > 0 {
            cap = ceil(i64::from(vm.cap) * slice, 100);
            most = most.min(cap);
            cap = ceil(cap, active);
        }
        let fair = ceil(total * weight, weights).min(most);
        (ceil(fair, active), cap)
    }

    /// Adds the credits due to an active vCPU and updates its class.
    fn give_credits(&mut self, v: usize, due: i64, cap: i64) {
        let slice = self.slice_credits();
        let account = &mut self.accounts[v];
        account.credit += due;
        if account.credit < 0 {
            account.class = Class::Over;
            // Without a cap a vCPU in debt still runs on idle pCPUs.
            account.parked |= cap > 0 && account.credit < -cap;
            // Xen bounds the debt to one slice.
            account.credit = account.credit.max(-slice);
            self.owed -= account.credit;
            return;
        }
        if account.class == Class::Over {
            account.class = Class::Under;
        }
        account.parked = false;
        if account.credit > slice {
            // It runs too little to take part. With half the credit it returns soon after it runs
            // again.
            account.is_active = false;
            account.credit /= 2;
        }
    }

    /// Restores the order of the run-queues after classes have changed. vCPUs that were parked
    /// leave, those no longer parked wait again.
    fn sort_queues(&mut self, machine: &Machine, kicks: &mut CpuSet) {
        for (p, queue) in self.queues.iter_mut().enumerate() {
            let accounts = &self.accounts;
            queue.retain(|v| !accounts[v.index()].parked);
            let mut all: Vec<_> = queue.drain(..).collect();
            all.sort_by_key(|v| std::cmp::Reverse(accounts[v.index()].class));
            queue.extend(all);
            let running = machine.pcpus[p].running;
            if running.is_some_and(|v| accounts[v.index()].parked) {
                kicks.insert(PcpuId(p as u8));
            }
        }
        for (v, vcpu) in machine.vcpus.iter().enumerate() {
            let v = crate::machine::VcpuId(v as u32);
            let home = self.accounts[v.index()].home;
            let waits = self.queues[home.index()].contains(&v);
            let runs = machine.pcpu(home).running == Some(v);
            if vcpu.is_runnable() && !waits && !runs && !self.accounts[v.index()].parked {
                self.insert(v);
                self.tickle(machine, v, kicks);
            }
        }
    }
}
