//! Commands from the control thread, snapshots, and the orderly stop. [`Command`] documents the
//! commands, and [`DeviceSnapshot`] the meaning and unit of each figure.

use std::sync::mpsc::TryRecvError;

use tidegate_core::objective::Objective;
use tidegate_policies::policy::PolicySpec;

use super::device::OldestIos;
use super::respond;
use super::{Loop, Phase, hand_over, limit_changes, recording};
use crate::command::{Command, CommandError, DeviceSnapshot, DiskSnapshot, VmSnapshot};
use crate::config::{PolicyMisfit, policy_for_array};
use crate::exchange::ExchangeLink;

/// Work on commands after which a turn goes on with the guests' I/O: commands, and slots of VMs
/// whose state a snapshot copies.
const COMMAND_WORK_PER_TURN: usize = 16;

/// Returns the state of a VM.
fn snapshot_of(event_loop: &Loop, vm: &str) -> Result<VmSnapshot, CommandError> {
    let at = event_loop.vms.named(vm)?;
    Ok(event_loop.vm_snapshot(at))
}

/// Returns the work of a command on a device with so many slots of VMs, in the unit of
/// [`COMMAND_WORK_PER_TURN`].
fn work_of(command: &Command, slots: usize) -> usize {
    match command {
        Command::Snapshot { .. } | Command::SetPolicy { .. } => slots.max(1),
        _ => 1,
    }
}

/// Returns the state of a VM whose objective was just changed. Its verdict is that of the new
/// objective, or absent if the device was checked too recently to be checked again.
pub(super) fn newly_judged_snapshot(on: &mut Loop, index: usize) -> VmSnapshot {
    // Otherwise the check would run at the end of this turn, after the answer.
    on.engine.device_mut().check_feasibility(on.now);
    let mut snapshot = on.vm_snapshot(index);
    if on.engine.device().is_feasibility_check_due() {
        snapshot.feasibility = None;
    }
    snapshot
}

impl Loop {
    /// Executes commands that have arrived, up to [`COMMAND_WORK_PER_TURN`]; the next turn goes on.
    /// Begins to drain if all senders are gone.
    pub(super) fn take_commands(&mut self) {
        // The extent thread signals the eventfd of commands.
        self.device.collect_extent_answers();
        let (frontends, mut ctx) = self.frontends_and_context();
        frontends.take_extents(&mut ctx);
        let mut work = 0;
        while work < COMMAND_WORK_PER_TURN {
            match self.commands.try_recv() {
                Ok(command) => {
                    work += work_of(&command, self.vms.slots());
                    self.execute(command);
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // All senders are gone, so no command could ever end this loop.
                    if self.phase == Phase::Running {
                        self.begin_drain();
                    }
                    return;
                }
            }
        }
        // No wake comes for commands that were sent before this turn.
        self.commands_wait = true;
    }

    /// Executes one command. A reply whose receiver is gone is dropped: the control thread has
    /// given up, but the command still holds.
    fn execute(&mut self, command: Command) {
        match command {
            Command::Snapshot { reply } => respond(reply, self.snapshot()),
            Command::SnapshotVm { vm, reply } => respond(reply, snapshot_of(self, &vm)),
            Command::SetObjective {
                vm,
                objective,
                reply,
            } => respond(reply, self.set_objective(&vm, &objective)),
            Command::SetPolicy { policy, reply } => respond(reply, self.set_policy(&policy)),
            Command::ChangeLimits(change) => limit_changes::change(self, change),
            Command::ChangeFaults {
                export,
                change,
                reply,
            } => respond(reply, self.change_faults(&export, change)),
            Command::ExportLearnt { from, reply } => respond(reply, self.export_learnt(from)),
            Command::AddVm { vm, reply } => respond(reply, self.add_vm(*vm)),
            Command::RemoveVm { vm, force, reply } => self.remove_vm(&vm, force, reply),
            Command::AddDisk { vm, disk, reply } => respond(reply, self.add_disk(&vm, *disk)),
            Command::RemoveDisk {
                vm,
                export,
                force,
                reply,
            } => self.remove_disk(&vm, &export, force, reply),
            Command::StartResize {
                vm,
                export,
                size,
                force,
                reply,
            } => self.start_resize(&vm, &export, size, force, reply),
            Command::FinishResize {
                vm,
                export,
                serial,
                size,
                reply,
            } => respond(reply, self.finish_resize(&vm, &export, serial, size)),
            Command::ChangeActivation(change) => self.device.change_activation(change),
            Command::ExportVm { vm, reply } => respond(reply, self.export_vm(&vm)),
            Command::ImportVm {
                vm,
                learnt,
                moved,
                reply,
            } => respond(reply, self.import_vm(&vm, &learnt, moved)),
            Command::ImportLearnt { learnt, moved } => self.import_learnt(&learnt, moved),
            Command::ImportAttainment { records, ago } => self.import_attainment(&records, ago),
            Command::ImportDevice(learnt) => self.import_device(&learnt),
            Command::BeginTransfer {
                vm,
                order,
                at,
                reply,
            } => respond(reply, self.begin_transfer(&vm, &order, at)),
            Command::CancelTransfer { vm, reply } => respond(reply, self.cancel_transfer(&vm)),
            Command::ExportTransfers { reply } => respond(reply, self.export_transfers()),
            Command::ResumeTransfers { transfers, at } => self.resume_transfers(transfers, at),
            Command::ChangeRecording(change) => recording::switch(self, change),
            Command::AddConnection(new) => hand_over::add_connection(self, *new),
            Command::HandOver(step) => hand_over::step(self, step),
            Command::Drain => self.begin_drain(),
            Command::Abort => self.abort(),
            #[cfg(test)]
            Command::Call(call) => (call.0)(),
        }
    }

    /// Ends the loop at once. Logs disks that have I/Os with the kernel, because the process cannot
    /// exit before the kernel completes them.
    fn abort(&mut self) {
        let unanswered = self.requests.len();
        tracing::warn!(device = %self.name, "aborted: {unanswered} requests unanswered");
        self.phase = Phase::Ended;
        for (_, state) in self.device.disks.iter() {
            if state.in_flight > 0 {
                let (export, ios) = (&state.disk.export, state.in_flight);
                let device = &self.name;
                tracing::warn!(
                    %device, %export,
                    "{ios} I/Os are in flight in the kernel; the process exits after them"
                );
            }
        }
    }

    /// Replaces the device's policy; refused if it needs a saturation profile that the device
    /// lacks.
    fn set_policy(&mut self, policy: &PolicySpec) -> Result<DeviceSnapshot, CommandError> {
        (policy.check_profile(self.engine.view().profile().is_some())).map_err(|error| {
            let help = tidegate_config::device::NEEDS_PROFILE;
            CommandError::Refused(format!("{error}: {help}"))
        })?;
        if self.exchange.is_some() {
            let policy = policy_for_array(policy).map_err(|PolicyMisfit { what, allowed }| {
                CommandError::Refused(format!("{what}; allowed: {allowed}"))
            })?;
            self.engine.set_policy(self.now, &policy);
        } else {
            self.engine.set_policy(self.now, policy);
        }
        if let Some(exchange) = &self.exchange {
            exchange.repeat(&mut self.engine, self.now);
        }
        recording::policy_changed(self);
        Ok(self.snapshot())
    }

    /// Replaces the objective of a VM.
    fn set_objective(
        &mut self,
        vm: &str,
        objective: &Objective,
    ) -> Result<VmSnapshot, CommandError> {
        let index = self.vms.named(vm)?;
        self.engine
            .vms_mut()
            .set_objective(self.now, self.vms[index].id, objective)
            .map_err(|e| CommandError::Refused(e.to_string()))?;
        let disks = &self.vms[index].disks;
        self.frontends.bound_pauses(disks, objective);
        recording::objective_changed(self, index);
        Ok(newly_judged_snapshot(self, index))
    }

    /// Returns the state of the device with its VMs.
    pub(super) fn snapshot(&self) -> DeviceSnapshot {
        // Once for all VMs and disks: it walks all I/Os in flight.
        let oldest = self.device.oldest_ios(&self.engine, self.now);
        DeviceSnapshot {
            name: self.name.clone(),
            backing: self.device.description.clone(),
            policy: self.engine.policy().clone(),
            stats: self.engine.device_stats(),
            waits: self.engine.device().waits(),
            drift: self.engine.device().drift(),
            learnt_cap: self.engine.device().learnt_cap(),
            adapted_depth: self.engine.device().adapted(),
            blocking: self.engine.device().blocking_time(),
            feasibility: self.engine.device().feasibility(),
            stepped_down: self.engine.device().stepped_down(),
            write_pace: self.engine.device().write_pace(),
            learnt_costs: self.engine.device().learnt_costs(),
            costs: self.engine.device().cost_source(),
            uncounted: self.engine.device().uncounted(),
            oldest_io: oldest.oldest(),
            limit_groups: self
                .device
                .limit_groups
                .iter()
                .map(|it| it.config.clone())
                .collect(),
            // A removed VM keeps its slot until its last request is answered.
            vms: (self.vms.iter().filter(|(_, vm)| !vm.is_removed))
                .map(|(at, _)| self.vm_snapshot_with(at, &oldest))
                .collect(),
            exchange: self.exchange.as_ref().map(ExchangeLink::snapshot),
            recording: self.frontends.recorder.as_ref().map(|it| it.counts()),
            taken_at: self.now,
        }
    }

    /// Returns the state of the VM in a slot.
    pub(super) fn vm_snapshot(&self, index: usize) -> VmSnapshot {
        self.vm_snapshot_with(index, &self.device.oldest_ios(&self.engine, self.now))
    }

    fn vm_snapshot_with(&self, index: usize, oldest: &OldestIos) -> VmSnapshot {
        let vm = &self.vms[index];
        VmSnapshot {
            name: vm.name.clone(),
            id: vm.id,
            device: self.name.clone(),
            policy: self.engine.policy().name().to_owned(),
            objective: *self.engine.vms().objective(vm.id),
            feasibility: self.engine.device().feasibility(),
            background: self.engine.view().is_background(vm.id),
            enforces: (self.engine.policy()).enforces_for(self.engine.view().is_background(vm.id)),
            disks: (vm.disks.iter())
                .map(|&disk| self.disk_snapshot_with(disk, oldest))
                .collect(),
            clients: self.frontends.count_on(&vm.disks) as u32,
            pending: self.engine.vms().pending(vm.id),
            in_flight: self.engine.vms().in_flight(vm.id),
            holdings: self.engine.admission().holdings(vm.id),
            stalled: vm.stalled.iter().map(|queue| queue.len() as u32).sum(),
            stats: Box::new(self.engine.vms().vm_stats(vm.id).clone()),
            times: Box::new(vm.times(&self.engine)),
            seconds: self.engine.vms().vm_seconds(self.now, vm.id),
            attainment: self.engine.vms().attainment(self.now, vm.id),
            tuning: self.engine.vms().tuning(vm.id),
            transfers: self.vm_transfers(index),
            connections: vm.connections.clone(),
            reply_time: vm.reply_time.clone(),
        }
    }

    /// Returns the state of the disk in a slot.
    pub(super) fn disk_snapshot(&self, index: usize) -> DiskSnapshot {
        self.disk_snapshot_with(index, &self.device.oldest_ios(&self.engine, self.now))
    }

    fn disk_snapshot_with(&self, index: usize, oldest: &OldestIos) -> DiskSnapshot {
        let state = &self.device.disks[index];
        let faults = state.faults.as_ref();
        DiskSnapshot {
            export: state.disk.export.clone(),
            size: state.disk.size,
            failed: state.disk.failure(),
            unreachable: state.disk.medium.unreachable(),
            no_space: state.disk.medium.no_space(),
            activation: state.disk.activation_state(),
            media: state.disk.media_state(),
            oldest_io: oldest.age(index),
            hung: (self.engine.device().hung_since(state.id)).map(|since| self.now.since(since)),
            limit: state.disk.limit,
            limit_group: state.disk.limit_group.clone(),
            faults: faults.map_or_else(Vec::new, |faults| faults.snapshot(self.now)),
            faults_injected: state.injected,
            bounced: state.disk.medium.bounced(),
        }
    }

    /// Begins the orderly stop: requests that are here are answered, and connections take no more.
    fn begin_drain(&mut self) {
        // A daemon that stops in the middle of a hand-over goes on with no connection any more.
        if !matches!(self.phase, Phase::Running | Phase::HandingOver) {
            return;
        }
        self.phase = Phase::Draining;
        // Stalls that were injected could otherwise outlast the stop time-out, too.
        self.end_stalls(None);
        // The sender would change a file after the loop has ended, and nobody would note its size.
        self.cancel_resizes(|_| true, "the daemon is stopping");
        // Waiting requests are to be answered now, not at the pace of a VM's limit: a thousand
        // requests at 2 IOPS would outlast the stop time-out of any service manager.
        let unlimited = PolicySpec::named("fifo").expect("fifo is in the registry");
        self.engine.set_policy(self.now, &unlimited);
        self.engine.vms_mut().lift_disk_limits(self.now);
        recording::policy_changed(self);
        let (frontends, mut ctx) = self.frontends_and_context();
        frontends.begin_drain(&mut ctx);
        let (device, mut parts) = self.device_and_parts();
        device.begin_close(&mut parts, None);
    }

    /// Ends the loop if every request was answered and every connection closed; otherwise does
    /// nothing. At the end syncs all disks and records in `flushed` whether all of them are well.
    pub(super) fn finish_drain_if_idle(&mut self) {
        assert_eq!(
            self.phase,
            Phase::Draining,
            "connections are still accepted, so that the last flush is not the last"
        );
        let busy = !self.engine.is_idle() || self.frontends.len() > 0 || !self.device.is_at_rest();
        if busy {
            return;
        }
        // A sync may block, which is harmless now: the loop has no connections.
        for state in self.device.disks.values_mut() {
            if !state.disk.read_only
                && let Err(error) = state.disk.medium.sync()
            {
                state.disk.medium.sync_failed(&error);
            }
        }
        let mut disks = self.device.disks.iter();
        self.flushed = disks.all(|(_, state)| state.disk.failure().is_none());
        self.phase = Phase::Ended;
    }
}
