//! Checkers of a torture run with their state.

use super::inventory::{Inventory, Vm};
use super::request_table::RequestTable;
use crate::checker::budgets::{self, Budgets};
use crate::checker::charges::Charges;
use crate::checker::credits::Credits;
use crate::checker::disk_limits::DiskLimits;
use crate::checker::ledger::{Ledger, Part};
use crate::checker::limits::Limits;
use crate::checker::starvation::Starvation;
use crate::checker::transfers::Transfers;
use crate::checker::{Verdict, ensure};
use tidegate_core::budget::{Shares, buffer_bytes};
use tidegate_core::engine::{Engine, EngineConfig, PayloadBounds};
use tidegate_core::request::{Op, Request, VmId};
use tidegate_core::time::Nanos;

/// Checkers, and the ledger that they read.
pub(super) struct Checks {
    pub(super) ledger: Ledger,
    pub(super) charges: Charges,
    pub(super) limits: Limits,
    pub(super) disk_limits: DiskLimits,
    pub(super) credits: Credits,
    pub(super) transfers: Transfers,
    pub(super) starvation: Starvation,
    pub(super) budgets: Budgets,
    /// Requests that must be answered by the end of the turn.
    pub(super) over: Vec<u32>,
}

impl Checks {
    /// Creates checkers without history.
    pub(super) fn new(
        config: EngineConfig,
        payload: Option<PayloadBounds>,
        credits: Credits,
    ) -> Checks {
        Checks {
            ledger: Ledger::new(config),
            charges: Charges::default(),
            limits: Limits::default(),
            disk_limits: DiskLimits::default(),
            credits,
            transfers: Transfers::default(),
            starvation: Starvation::new(config.max_vms as usize),
            budgets: Budgets::new(payload),
            over: Vec::new(),
        }
    }

    /// Notes that an objective or the policy has changed, or a VM has come.
    pub(super) fn promises_changed(&mut self, engine: &Engine, vms: &[Vm]) {
        let now = engine.view().now();
        let policy = engine.policy();
        let [of_vms, of_background] = [false, true].map(|of| policy.enforces_for(of));
        for vm in vms.iter().filter(|vm| self.ledger.is_live(vm.id)) {
            let enforces = if engine.view().is_background(vm.id) {
                &of_background
            } else {
                &of_vms
            };
            (self.limits).set(now, vm.id, vm.objective(), &**policy, enforces);
        }
        self.starvation.reset(engine);
    }

    /// Determines the requests to be answered after a VM, a disk or a client has gone.
    pub(super) fn connection_closed(&mut self, engine: &Engine) {
        let now = engine.view().now();
        self.ledger.note_all_over(now, &mut self.over);
    }

    /// Records the removal of a VM. Its replies are given up.
    pub(super) fn vm_removed(&mut self, engine: &Engine, vm: VmId) {
        // The engine ends a transfer with its VM.
        self.transfers.cancelled(engine.view().now(), vm);
        self.connection_closed(engine);
        self.limits.removed(vm);
        self.starvation.reset(engine);
    }

    /// Checks the charges of a VM, if it is there.
    pub(super) fn charges_of(&mut self, engine: &Engine, vm: VmId) -> Verdict {
        if !self.ledger.is_live(vm) {
            return Ok(());
        }
        let held = engine.vms().limited(vm);
        self.charges.check(vm, held, engine.vms().vm_stats(vm))?;
        self.charges.check_times(vm, &engine.vms().times(vm))
    }

    /// Guaranteed part of the request slots of a client's VM; 0 for a VM that is gone.
    pub(super) fn part_of(&self, engine: &Engine, inventory: &Inventory, client: u32) -> u64 {
        let vm = inventory.vm_of(client);
        if !self.ledger.is_live(vm) {
            return 0;
        }
        let objectives = inventory.objectives(engine, vm);
        let shares: Vec<Shares> = objectives.iter().map(Shares::of_slots).collect();
        // The first is this VM's: `objectives` has it first.
        budgets::parts(self.ledger.config().max_requests.into(), &shares)[0]
    }

    /// Returns `true` if a client's request is certain to find the payload memory that it needs.
    pub(super) fn has_memory(
        &self,
        engine: &Engine,
        inventory: &Inventory,
        client: u32,
        request: &Request,
    ) -> bool {
        let vm = inventory.vm_of(client);
        let needs = request.op == Op::Write && self.budgets.is_bounded();
        if !needs || !self.ledger.is_live(vm) {
            return true;
        }
        let objectives = inventory.objectives(engine, vm);
        let need = buffer_bytes(request.len);
        self.budgets.fits(vm, Op::Write, need, &objectives)
    }

    /// Records the payload memory of reads that go to the device for the first time.
    pub(super) fn reads_fed(
        &mut self,
        requests: &mut RequestTable,
        op: Op,
        parts: &[Part],
    ) -> Verdict {
        if op != Op::Read || !self.budgets.is_bounded() {
            return Ok(());
        }
        for part in parts.iter().filter(|part| requests.feed(part.number)) {
            let entry = &self.ledger.entries[part.number as usize];
            let (vm, len) = (entry.vm, entry.request.len);
            self.ledger.memory_taken(vm);
            self.budgets.taken(vm, Op::Read, len)?;
        }
        Ok(())
    }

    /// Checks that no VM's reads wait for memory within its guaranteed part.
    pub(super) fn check_memory_guarantees(
        &self,
        engine: &Engine,
        inventory: &Inventory,
        requests: &RequestTable,
    ) -> Verdict {
        if !self.budgets.is_bounded() {
            return Ok(());
        }
        for vm in inventory.vms.iter().map(|vm| vm.id) {
            if !self.ledger.is_live(vm) || !engine.view().lacks_memory(vm) {
                continue;
            }
            let entries = &self.ledger.entries;
            let waiting = self.ledger.open.iter().filter(|&&number| {
                let entry = &entries[number as usize];
                entry.vm == vm && entry.request.op == Op::Read && !requests.is_fed(number)
            });
            let need = waiting.map(|&number| buffer_bytes(entries[number as usize].request.len));
            let need = need.sum();
            let objectives = inventory.objectives(engine, vm);
            ensure!(
                Budgets,
                // All of them together: that single ones fit does not say that the first in line
                // does.
                !self.budgets.fits(vm, Op::Read, need, &objectives),
                "reads of {vm:?} wait for memory, and all of their {need} bytes fit its part"
            );
        }
        Ok(())
    }

    /// Time at which a request was over, or at which it arrived if it is not.
    pub(super) fn ended(&self, request: u32) -> Nanos {
        let entry = &self.ledger.entries[request as usize];
        entry.over_at.unwrap_or(entry.arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::engine::DiskSpec;
    use tidegate_core::objective::Objective;
    use tidegate_core::request::Request;
    use tidegate_policies::policy::PolicySpec;

    #[test]
    fn requests_of_a_vm_that_goes_are_to_be_answered() {
        let config = EngineConfig::default();
        let policy = PolicySpec::named("fifo").expect("it is registered");
        let mut engine = Engine::new(config, &policy).expect("the defaults are sound");
        let mut checks = Checks::new(config, None, Credits::default());
        let (now, objective) = (Nanos(5), Objective::default());
        let vm = engine
            .vms_mut()
            .add_vm(now, &objective)
            .expect("there is room");
        checks.ledger.vm_added(Some(vm)).expect("there is room");
        checks.promises_changed(&engine, &[Vm::new(vm, objective)]);
        let spec = DiskSpec {
            base: 0,
            size: 1 << 20,
            read_only: false,
        };
        let disk = engine
            .vms_mut()
            .add_disk(vm, spec)
            .expect("the VM is there");
        checks.ledger.disk_added(disk, vm, spec);
        let client = engine.connect(disk).expect("the disk is there");
        checks.ledger.connected(client, 0);
        let request = Request::read(0, 4096, checks.ledger.next_number());
        engine
            .handle_request(now, client, request)
            .expect("there is room");
        checks.ledger.accepted(client, &request, now);
        assert_eq!((checks.ended(0), checks.over.len()), (now, 0));
        engine
            .vms_mut()
            .remove_vm(now, vm)
            .expect("the VM is there");
        checks.ledger.vm_removed(vm);
        checks.vm_removed(&engine, vm);
        assert_eq!(checks.over, [0]);
        while engine.poll_done().is_some() {}
    }
}
