//! Path of a transfer: begin, requests and end. The engine is told of transfers with a deadline.

use super::DeviceSim;
use super::events::Event;
use super::transfers::{Transfer, TransferLog, TransferTally};
use super::worker::Worker;
use rand_pcg::Pcg64Mcg;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Admission, TransferSpec};
use tidegate_workload::source::Source;
use tidegate_workload::spec::Workload;
use tidegate_workload::stream::Io;

impl DeviceSim {
    /// Begins the transfer of a worker whose workload is one.
    pub(super) fn begin_workload(&mut self, worker: u32) {
        let it = self.vms.worker_mut(worker);
        // A workload of no bytes is over before it begins, and has no transfer.
        if it.issuer().is_over() {
            return;
        }
        let transfers = it.transfers_mut();
        if let Some(transfer) = transfers.and_then(|it| it.begin_workload(self.now)) {
            self.transfer_begun(worker, &transfer);
        }
    }

    /// Issues a request of a worker, which may have transfers.
    pub(super) fn issue_of_worker(&mut self, worker: u32, io: Io, since: Nanos) {
        let it = self.vms.worker_mut(worker);
        if it.transfers().is_none() {
            self.issue(worker, io, since);
            return;
        }
        // The engine learns of the transfer before its first request arrives.
        if let Some(transfer) = it.issued(since, io.len) {
            self.transfer_begun(worker, &transfer);
        }
        let slot = self.issue(worker, io, since);
        if let Some(transfers) = self.vms.worker_mut(worker).transfers_mut() {
            transfers.set_slot(slot);
        }
    }

    /// Counts the answer to a worker's request towards its transfer, if it belongs to one.
    pub(super) fn answered_of_transfer(&mut self, worker: u32, slot: u32, len: u32) {
        let it = self.vms.worker_mut(worker);
        let Some(transfer) = it.answered(slot, len) else {
            return;
        };
        self.transfer_ended(worker, &transfer);
        let vm = self.vms.vm_of_worker_mut(worker);
        if let Some(tally) = &mut vm.tally.transfers {
            tally.done(self.now.since(transfer.since), transfer.deadline);
        }
        (self.transfers).done(vm.details.scenario_index, &transfer, self.now);
    }

    /// Abandons transfers of a worker that is stopped. `all`: requests that are outstanding are
    /// never answered either.
    pub(super) fn abandon_transfers(&mut self, worker: u32, all: bool) {
        let Some(transfers) = self.vms.worker_mut(worker).transfers_mut() else {
            return;
        };
        for transfer in transfers.abandon(all) {
            self.transfers.changed();
            self.transfer_ended(worker, &transfer);
            if let Some(tally) = &mut self.vms.vm_of_worker_mut(worker).tally.transfers {
                tally.abandoned(transfer.is_overdue(self.now));
            }
        }
    }

    /// Notes the begin of a transfer, and tells the engine of it if it has a deadline.
    fn transfer_begun(&mut self, worker: u32, transfer: &Transfer) {
        self.transfers.changed();
        let vm = self.vms.vm_of_worker_mut(worker);
        let (Some(deadline), Some(id)) = (transfer.deadline, vm.id()) else {
            return;
        };
        let bytes = transfer.bytes;
        let spec = TransferSpec { bytes, deadline };
        let engine = self.hosts.engine_mut(vm.host);
        // Terms hold for the one transfer that was admitted on them.
        let begun = match vm.details.terms.take() {
            Some(terms) => engine
                .transfers_mut()
                .begin_admitted_transfer(self.now, id, &spec, &terms),
            None => engine.transfers_mut().begin_transfer(self.now, id, &spec),
        };
        begun.expect("the VM is there, and moves something in some time");
    }

    /// Tells the engine of the end of a transfer with a deadline. The engine has ended it already
    /// if it has counted the last byte itself.
    fn transfer_ended(&mut self, worker: u32, transfer: &Transfer) {
        let vm = self.vms.vm_of_worker(worker);
        if let (Some(_), Some(id)) = (transfer.deadline, vm.id()) {
            let engine = self.hosts.engine_mut(vm.host);
            engine
                .transfers_mut()
                .end_transfer(self.now, id)
                .expect("the VM is there");
        }
    }

    /// Begins a workload now, a single copy, in place of the first one of a VM, which has not begun
    /// or is over. `scenario_index`: index of the VM in the scenario; `terms`: terms on which its
    /// deadline transfer was admitted.
    ///
    /// # Panics
    /// When the VM is not there or busy, or the workload does not fit its disk.
    pub(crate) fn begin(
        &mut self,
        scenario_index: usize,
        workload: &Workload,
        rng: Pcg64Mcg,
        terms: Option<Admission>,
    ) {
        let index = self.vms.vm_of_scenario(scenario_index);
        let index = index.expect("it is on this device");
        let block = self.model.logical_block();
        let worker = self.vms.vm(index).workers.start;
        let is_idle = self.vms.worker(worker).issuer().is_idle();
        let vm = self.vms.vm_mut(index);
        assert!(vm.engine.is_some() && is_idle, "it waits for a job");
        let source = Source::new(workload, 0, vm.details.disk.size, block);
        let source = source.expect("the job was checked");
        let begun = Worker::new(index, workload, source, rng);
        // The worker reads its workload from here.
        vm.details.workloads[0].clone_from(workload);
        vm.details.terms = terms;
        if begun.transfers().is_some() {
            vm.tally.transfers.get_or_insert_default();
        }
        *self.vms.worker_mut(worker) = begun;
        self.handle_event(Event::Start(worker));
        // Its first requests reach the engine at this time, not at the next event.
        self.process_answers_and_dispatch();
    }

    /// Transfers that run, each with the index of its VM in the scenario.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = (usize, &Transfer)> {
        self.vms.workers().flat_map(|(worker, vm)| {
            let running = worker.transfers().into_iter().flat_map(|it| it.running());
            running.map(|transfer| (vm.details.scenario_index, transfer))
        })
    }

    /// Tallies of the transfers that run, as if they were abandoned now, by worker, each with the
    /// index of its VM in the scenario.
    pub(crate) fn running_transfers(&self) -> impl Iterator<Item = (usize, TransferTally)> {
        self.vms.workers().filter_map(|(worker, vm)| {
            let tally = worker.transfers()?.tally_running(self.now);
            Some((vm.details.scenario_index, tally))
        })
    }

    /// Log of its transfers.
    pub(crate) fn transfer_log_mut(&mut self) -> &mut TransferLog {
        &mut self.transfers
    }
}
