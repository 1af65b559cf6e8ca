//! Commands from the control plane, and the orderly end.

use std::sync::mpsc::TryRecvError;
use std::time::Instant;

use tidegate_core::objective::Objective;
use tidegate_policies::policy::PolicySpec;

use super::answer_ended;
use super::client::{Client, RECEIVE, Rx, State, Tx};
use super::device::DiskState;
use super::hung::OldestIos;
use super::{Loop, Phase};
use crate::backing::Medium;
use crate::command::{Adopted, Command, CommandError, DeviceSnapshot, DiskSnapshot, VmSnapshot};
use crate::log_limit;

impl Loop {
    pub(super) fn take_commands(&mut self) {
        self.take_extents();
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // Nobody is left who could end this loop.
                    if self.phase == Phase::Running {
                        self.begin_drain();
                    }
                    return;
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Snapshot { reply } => answer_ended(reply.send(self.snapshot())),
            Command::Look { vm, reply } => {
                let found = self.vm_named(&vm).map(|at| self.vm_snapshot(at));
                answer_ended(reply.send(found));
            }
            Command::SetObjective {
                vm,
                objective,
                reply,
            } => {
                answer_ended(reply.send(self.set_objective(&vm, &objective)));
            }
            Command::SetPolicy { policy, reply } => {
                answer_ended(reply.send(self.set_policy(&policy)));
            }
            Command::ChangeFaults {
                export,
                change,
                reply,
            } => {
                answer_ended(reply.send(self.change_faults(&export, change)));
            }
            Command::ExportLearnt { from, reply } => {
                answer_ended(reply.send(self.export_learnt(from)));
            }
            Command::AddVm { vm, reply } => answer_ended(reply.send(self.add_vm(*vm))),
            Command::RemoveVm { vm, force, reply } => self.remove_vm(&vm, force, reply),
            Command::AddDisk { vm, disk, reply } => {
                answer_ended(reply.send(self.add_disk(&vm, *disk)));
            }
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
            } => answer_ended(reply.send(self.finish_resize(&vm, &export, serial, size))),
            Command::ExportVm { vm, reply } => answer_ended(reply.send(self.export_vm(&vm))),
            Command::ImportVm {
                vm,
                learnt,
                moved,
                reply,
            } => answer_ended(reply.send(self.import_vm(&vm, &learnt, moved))),
            Command::ImportLearnt { learnt, moved } => self.import_learnt(&learnt, moved),
            Command::ImportDevice(learnt) => self.import_device(&learnt),
            Command::BeginJob {
                vm,
                order,
                at,
                reply,
            } => answer_ended(reply.send(self.begin_job(&vm, &order, at))),
            Command::CancelJob { vm, reply } => answer_ended(reply.send(self.cancel_job(&vm))),
            Command::ExportJobs { reply } => answer_ended(reply.send(self.export_jobs())),
            Command::ResumeJobs { jobs, at } => self.resume_jobs(jobs, at),
            Command::Adopt(adopted) => self.adopt(*adopted),
            Command::Drain => self.begin_drain(),
            Command::Abort => {
                let left = self.slots.len();
                tracing::warn!(device = %self.name, "cut short, {left} requests not answered");
                self.tell_held();
                self.phase = Phase::Ended;
            }
        }
    }

    /// Logs the disks that have I/O with the kernel: the process cannot end before the kernel
    /// completes it.
    fn tell_held(&self) {
        for (_, state) in self.device.disks.iter() {
            if state.file.is_some() && state.in_flight > 0 {
                let (export, held) = (&state.disk.export, state.in_flight);
                tracing::warn!(device = %self.name, %export, "{held} I/Os are still with the kernel");
            }
        }
    }

    fn set_policy(&mut self, policy: &PolicySpec) -> Result<DeviceSnapshot, CommandError> {
        (policy.check_profile(self.engine.view().profile().is_some())).map_err(|error| {
            let help = tidegate_config::device::NEEDS_PROFILE;
            CommandError::Refused(format!("{error}: give it {help}"))
        })?;
        self.engine.set_policy(self.now, policy);
        Ok(self.snapshot())
    }

    fn set_objective(
        &mut self,
        vm: &str,
        objective: &Objective,
    ) -> Result<VmSnapshot, CommandError> {
        let index = self.vm_named(vm)?;
        self.engine
            .set_objective(self.now, self.vms[index].id, objective)
            .map_err(|e| CommandError::Refused(e.to_string()))?;
        Ok(self.vm_snapshot(index))
    }

    fn snapshot(&self) -> DeviceSnapshot {
        let oldest = self.oldest_ios();
        DeviceSnapshot {
            name: self.name.clone(),
            backing: self.device.description.clone(),
            policy: self.engine.policy().clone(),
            facts: self.engine.facts(),
            waits: self.engine.waits(),
            drift: self.engine.drift(),
            learnt_cap: self.engine.learnt_cap(),
            adapted_depth: self.engine.adapted_depth(),
            learnt_costs: self.engine.learnt_costs(),
            uncounted: self.engine.uncounted(),
            oldest_io: oldest.oldest(),
            vms: (self.vms.iter().filter(|(_, vm)| !vm.leaving))
                .map(|(at, _)| self.vm_snapshot_with(at, &oldest))
                .collect(),
            taken_at: self.now,
        }
    }

    pub(super) fn vm_snapshot(&self, index: usize) -> VmSnapshot {
        self.vm_snapshot_with(index, &self.oldest_ios())
    }

    fn vm_snapshot_with(&self, index: usize, oldest: &OldestIos) -> VmSnapshot {
        let vm = &self.vms[index];
        VmSnapshot {
            name: vm.name.clone(),
            id: vm.id,
            device: self.name.clone(),
            policy: self.engine.policy().name().to_owned(),
            objective: *self.engine.objective(vm.id),
            background: self.engine.view().is_background(vm.id),
            honours: (self.engine.policy()).honours_for(self.engine.view().is_background(vm.id)),
            disks: (vm.disks.iter())
                .map(|&disk| self.disk_snapshot_with(disk, oldest))
                .collect(),
            clients: self
                .clients
                .iter()
                .filter(|c| vm.disks.contains(&c.disk))
                .count() as u32,
            pending: self.engine.pending(vm.id),
            in_flight: self.engine.in_flight(vm.id),
            holdings: self.engine.holdings(vm.id),
            stalled: vm.stalled.iter().map(|queue| queue.len() as u32).sum(),
            stats: Box::new(self.engine.vm_stats(vm.id).clone()),
            seconds: self.engine.vm_seconds(self.now, vm.id),
            tuning: self.engine.tuning(vm.id),
            jobs: self.vm_jobs(index),
            connections: vm.connections.clone(),
            reply_time: vm.reply_time.clone(),
        }
    }

    pub(super) fn disk_snapshot(&self, index: usize) -> DiskSnapshot {
        self.disk_snapshot_with(index, &self.oldest_ios())
    }

    fn disk_snapshot_with(&self, index: usize, oldest: &OldestIos) -> DiskSnapshot {
        let state = &self.device.disks[index];
        let faults = state.faults.as_ref();
        DiskSnapshot {
            export: state.disk.export.clone(),
            size: state.disk.size,
            failed: state.disk.failure(),
            media: state.disk.media_state(),
            oldest_io: oldest.age(index),
            hung: (self.engine.hung_since(state.id)).map(|since| self.now.since(since)),
            faults: faults.map_or_else(Vec::new, |faults| faults.snapshot(self.now)),
            faults_injected: state.injected,
        }
    }

    /// Takes a connection over from the reception.
    fn adopt(&mut self, adopted: Adopted) {
        let export = adopted.opened.export.name.clone();
        if self.phase != Phase::Running {
            return;
        }
        // It may have gone since the client chose it, and another one have taken its place.
        let chosen = |(_, state): &(usize, &DiskState)| {
            state.serial == adopted.opened.export.id && !self.vms[state.vm].leaving
        };
        let Some(disk) = self.device.disks.iter().find(chosen).map(|(at, _)| at) else {
            return refused(&export, &adopted.peer, &"the export has gone");
        };
        let Some(who) = self.clients.vacant() else {
            return refused(&export, &adopted.peer, &"too many on this device");
        };
        let engine = match self.engine.connect(self.device.disks[disk].id) {
            Ok(engine) => engine,
            Err(error) => {
                return refused(&export, &adopted.peer, &error);
            }
        };
        let file = match self.ring.add_file(adopted.fd) {
            Ok(file) => file,
            Err(error) => {
                self.engine.handle_disconnect(self.now, engine);
                return refused(&export, &adopted.peer, &error);
            }
        };
        let buffer = self.plumbing.get(RECEIVE);
        buffer.mem().write(&adopted.leftover);
        self.clients.insert(Client {
            generation: who.generation,
            file,
            style: adopted.opened.style,
            allocation_context: adopted.opened.allocation_context,
            session: adopted.session,
            disk,
            engine,
            peer: adopted.peer,
            state: State::Open,
            rx: Rx {
                buffer,
                start: 0,
                end: adopted.leftover.len(),
                receiving: false,
                drained: false,
                payload: None,
                moved: self.now,
                began: self.now,
                held: None,
                since: None,
                polling: false,
                next_since: None,
            },
            tx: Tx {
                queue: Default::default(),
                bytes: 0,
                sending: Vec::new(),
                ranges: Vec::new(),
                heads: None,
                linked: false,
                moved: self.now,
                began: self.now,
                began_bytes: 0,
            },
            outstanding: 0,
            ready: false,
            touched: false,
            stall: None,
            _permit: adopted.permit,
        });
        tracing::debug!(%export, "client connected");
        self.make_ready(who.index);
    }

    fn begin_drain(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Draining;
        self.end_stalls(None);
        // What waits shall be answered now, not at the pace of its VM's limit: a thousand
        // requests at 2 IOPS would take longer than any service manager waits.
        let unlimited = PolicySpec::named("fifo").expect("fifo is in the registry");
        self.engine.set_policy(self.now, &unlimited);
        for index in self.clients.indices() {
            let client = self.clients.get(index).expect("it is there");
            if client.state == State::Open {
                client.state = State::Leaving;
            }
            self.settle(index);
        }
    }

    /// Ends the loop once everything was answered.
    pub(super) fn drain_further(&mut self) {
        let busy = self.engine.facts().requests > 0
            || self.engine.facts().in_flight > 0
            || self.clients.len() > 0;
        if busy {
            return;
        }
        for state in self.device.disks.values_mut() {
            if let Medium::File(open) = &mut state.disk.medium
                && !state.disk.read_only
                && let Err(error) = open.file.sync_data()
            {
                open.facts
                    .fail(error.raw_os_error().unwrap_or(libc::EIO), "last flush");
            }
        }
        let mut disks = self.device.disks.iter();
        self.flushed = disks.all(|(_, state)| state.disk.failure().is_none());
        self.phase = Phase::Ended;
    }
}

fn refused(export: &str, peer: &str, why: &dyn std::fmt::Display) {
    if log_limit::REFUSED.allows(Instant::now()) {
        tracing::warn!(%export, %peer, "client refused: {why}");
    }
}
