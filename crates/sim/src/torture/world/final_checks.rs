//! Checks after the load: the final state must be right, and every slot free.

use super::{EventKind, TortureWorld};
use crate::checker::ledger::{Ledger, SECTOR};
use crate::checker::{Verdict, ensure, progress};
use tidegate_core::engine::Engine;
use tidegate_core::objective::Objective;
use tidegate_core::request::{Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

impl TortureWorld<'_, '_> {
    /// Runs without new requests until everything has ended, in the time that [`progress`] states.
    pub(super) fn drain(&mut self) -> Verdict {
        let open = self.checks.ledger.open.len() as u64;
        self.record(EventKind::Drain, [open, 0, 0, 0, 0]);
        let (begun, bound) = (self.now, self.drain_bound());
        // Memory of replies in transit would hold back reads.
        self.drop_replies(None)?;
        loop {
            self.dispatch()?;
            self.process_completions()?;
            if self.checks.ledger.open.is_empty()
                && self.engine.device_stats().in_flight + self.engine.device().uncounted() == 0
            {
                break;
            }
            let went_on = self.turn()?;
            let open = self.checks.ledger.open.len();
            ensure!(
                Progress,
                went_on || open == 0,
                "{open} requests are open, and nothing will ever happen again"
            );
            ensure!(
                Progress,
                self.now.since(begun) <= bound,
                "{open} requests are open {} after faults have stopped; the bound is {bound}, the \
                 policy {:?}",
                self.now.since(begun),
                // With its parameters, which are drawn anew for each swap.
                PolicySpec::behind(&**self.engine.policy())
            );
        }
        self.record(EventKind::Idle, [0; 5]);
        progress::is_idle(&self.engine)
    }

    /// Bound on draining that [`progress`] states.
    fn drain_bound(&self) -> Nanos {
        // The ten seconds that the checker's rule allows on top.
        let mut bound = Nanos::from_secs(10);
        for guest in &self.inventory.vms {
            // Twice: a request that failed in a merged I/O is served again.
            let bytes = 2 * guest.request_bytes + guest.device_bytes;
            let slowest = guest.objectives.iter();
            let slowest = slowest.map(|o| progress::at_limit(o, 2 * guest.requests, bytes));
            bound += slowest.max().unwrap_or(Nanos::ZERO);
        }
        for limit in &self.disk_limits.all {
            let vms = &self.inventory.vms;
            let requests: u64 = vms.iter().map(|guest| guest.requests).sum();
            let bytes: u64 = vms.iter().map(|guest| guest.request_bytes).sum();
            let objective = Objective {
                limit: *limit,
                ..Objective::default()
            };
            bound += progress::at_limit(&objective, requests, bytes);
        }
        let block = self.swarm.config.device.physical_block;
        let open = self.checks.ledger.open.iter();
        // 4: a request that is not aligned, a flush, and a repetition after a failed merge.
        let ios = open.map(|&n| 4 + self.checks.ledger.entries[n as usize].request.len / block);
        let ios = ios.map(u64::from).sum::<u64>();
        if let Some(cap) = &self.swarm.cap {
            // With a cap each I/O takes its turn at the cap's rate, or at the lowest rate that is
            // learnt. The minute on top is for the queues in front of it and the engine's probes.
            let least = [cap.iops, cap.assumed.0].into_iter().flatten().min();
            let slow = Nanos::SECOND.0 / least.unwrap_or(7).clamp(1, 7);
            let by_bytes = cap.assumed.1.map_or(0, |rate| {
                let all = self
                    .inventory
                    .vms
                    .iter()
                    .map(|g| 2 * g.request_bytes + g.device_bytes);
                let all: u64 = all.sum();
                (all as u128 * 2 * Nanos::SECOND.0 as u128 / rate as u128) as u64
            });
            bound += Nanos(slow * 2 * (ios + 64) + by_bytes) + Nanos::from_secs(60);
        }
        // 64: what clients may have submitted before the faults stopped, and flushes.
        bound += Nanos(self.device.slowest().0 * 2 * (ios + 64));
        bound + longest_ticks(&self.engine, &self.checks.ledger)
    }

    /// Checks the media and the statistics after everything has drained.
    pub(super) fn check_settled(&mut self) -> Verdict {
        let ledger = &self.checks.ledger;
        self.inventory.check_settled(ledger)?;
        self.inventory.cut_power(ledger)?;
        for vm in &self.inventory.vms {
            self.checks.charges_of(&self.engine, vm.id)?;
        }
        Ok(())
    }

    /// Checks that every slot is free and usable: as many VMs and requests fit as at the begin.
    pub(super) fn check_slots_free(&mut self) -> Verdict {
        for guest in 0..self.inventory.vms.len() {
            if self.checks.ledger.is_live(self.inventory.vms[guest].id) {
                self.remove_vm(guest)?;
            }
        }
        let config = self.swarm.config;
        let first = self.inventory.clients.len();
        for _ in 0..config.max_vms {
            let mut plan = self.swarm.vm(&mut self.draws.fresh);
            // Without limits or reservations only slots decide what fits.
            plan.objective = Objective::default();
            plan.disks.truncate(1);
            plan.disks[0].clients.truncate(1);
            let before = self.inventory.vms.len();
            self.add_vm(&plan)?;
            ensure!(
                Progress,
                self.inventory.vms.len() > before,
                "all VMs have gone, and fewer fit than in the beginning"
            );
        }
        let mut fitted = 0;
        for client in first..self.inventory.clients.len() {
            loop {
                let request = Request::read(0, SECTOR as u32, self.checks.ledger.next_number());
                match self.hand_in(client as u32, request)? {
                    None => fitted += 1,
                    // Full, or the disk is too small: either way this client gets no more.
                    Some(_) => break,
                }
            }
        }
        // No request has been returned yet, so no slot is lent and each VM has its own part.
        let parts = (first..self.inventory.clients.len()).map(|client| {
            let part = (self.checks).part_of(&self.engine, &self.inventory, client as u32);
            part.min(config.max_pending_per_vm.into())
        });
        let fit = parts.sum::<u64>().min(config.max_requests.into());
        ensure!(
            Budgets,
            fitted <= fit,
            "{fitted} requests fit where nobody has returned any; all parts together are {fit}"
        );
        ensure!(
            Progress,
            fitted == fit,
            "{fitted} requests fit after everything has drained; there is room for {fit}"
        );
        self.drain()?;
        for guest in 0..self.inventory.vms.len() {
            if self.checks.ledger.is_live(self.inventory.vms[guest].id) {
                self.remove_vm(guest)?;
            }
        }
        ensure!(
            Progress,
            self.checks.ledger.free_vms() == config.max_vms as usize,
            "a VM's slot was not given back"
        );
        progress::is_idle(&self.engine)
    }
}

/// Longest time for which ticks hold back what is open: `merge-limit` states that with a `tick` a
/// slot of a throttle in bytes ends at the next multiple of it, and that late slots are lost. Each
/// I/O of a VM with a target so waits up to a tick longer than for its slot. VMs wait side by side.
fn longest_ticks(engine: &Engine, ledger: &Ledger) -> Nanos {
    let policy = engine.policy();
    let mut params = policy.params().iter();
    let tick = params.find(|(info, _)| info.name == "tick");
    // Without a controller for targets nothing sets a throttle.
    let Some(&(_, tick)) = tick.filter(|_| policy.enforces().target) else {
        return Nanos::ZERO;
    };
    let block = ledger.config().device.physical_block;
    let open = ledger.open.iter();
    let open = open.map(|&n| &ledger.entries[n as usize]);
    let ios = |vm: VmId| {
        let requests = open.clone().filter(|entry| entry.vm == vm);
        // As for the device's time: the parts of each request, and once more all of them.
        let ios = requests.map(|entry| 2 * (4 + entry.request.len / block));
        ios.map(u64::from).sum::<u64>()
    };
    let of_bytes = engine.view().vms().filter(|&vm| {
        let target = &engine.vms().objective(vm).target;
        target.bytes_per_s.is_some()
    });
    let most = of_bytes.map(ios).max().unwrap_or(0);
    Nanos(most.saturating_mul(tick))
}
