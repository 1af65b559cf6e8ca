//! pCPUs of the host that runs all VMs of a scenario, simulated beside its devices under one clock.
//!
//! ```text
//!    guest's process --Issue--> driver domain --Submit--> engine --> device
//!         ^                                                             |
//!         |                                                             v
//!       Take <-- guest's first vCPU <--Notify-- driver domain <------ engine
//! ```
//!
//! Each named arrow is work on a vCPU: it begins when the vCPU runs, and the request reaches the
//! end of the arrow when that work is done. A process works on one step at a time, in the order of
//! arrival. A process of the host has the driver domain's steps only; without a driver domain those
//! are left out.
//!
//! At one instant, completed work of vCPUs comes first, in the order of the vCPU simulation; then
//! each device with its engine and guests, in the order of the scenario, as without pCPUs. Work
//! that these request of vCPUs begins last, at that same instant.

mod results;
mod setup;

use crate::device::{DeviceSim, Times, VcpuStep};
use crate::scenario::{Driver, VmCpu};
use results::Before;
pub use results::{CpuReport, VmCpuReport};
use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_vcpu::guest::TaskId;
use tidegate_vcpu::machine::{VcpuId, VmId};
use tidegate_vcpu::world::{Handled, VcpuWorld};

/// Step of a request on a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Issue,
    Submit,
    Complete,
    Notify,
    Take,
}

const STEPS: [Step; 5] = [
    Step::Issue,
    Step::Submit,
    Step::Complete,
    Step::Notify,
    Step::Take,
];

/// Tag of a step in the vCPU simulation: the step, the device and the request's slot there.
fn tag(step: Step, device: usize, slot: u32) -> u64 {
    // Bits 0 to 31: slot, 32 to 39: step, from 40 on: device.
    (device as u64) << 40 | (step as u64) << 32 | u64::from(slot)
}

fn parse_tag(tag: u64) -> (Step, usize, u32) {
    let step = STEPS[(tag >> 32) as usize & 0xff];
    (step, (tag >> 40) as usize, tag as u32)
}

/// VM or background process, as a user of pCPUs.
struct Guest {
    /// VM of the machine; `None` for a process of the host.
    vm: Option<VmId>,
    /// CPU time of each step.
    cpu: VmCpu,
    /// Driver domain's vCPU that serves this VM; `None` without a driver domain.
    driver: Option<VcpuId>,
    /// vCPU that receives its notifications.
    notified_vcpu: VcpuId,
    /// Times that notifications waited for that vCPU.
    notification_waits: Times,
}

/// Worker, running on one of its VM's vCPUs.
struct Process {
    guest: usize,
    /// vCPU and task of the process; `None` for a process of the host.
    on: Option<(VcpuId, TaskId)>,
    /// Tags of pending steps; the first one is in progress.
    steps: VecDeque<u64>,
}

/// Simulated pCPUs with their users.
pub(crate) struct Processors {
    world: VcpuWorld,
    scheduler: &'static str,
    /// CPU time of the driver domain's steps.
    driver_steps: Driver,
    /// Guests by their index in the scenario.
    guests: Vec<Guest>,
    /// Processes by device and worker.
    processes: Vec<Vec<Process>>,
    /// Time of the notification about the request in a slot, by device.
    notified: Vec<Vec<Nanos>>,
    /// Counts at the end of the warm-up.
    at_warm_up_end: Before,
}

impl Processors {
    /// Advances the pCPUs and all devices to `until`.
    pub(crate) fn run_until(&mut self, devices: &mut [DeviceSim], until: Nanos) {
        loop {
            // Devices and vCPUs have a clock each; the earlier event decides.
            let next = devices.iter().map(DeviceSim::next_event).min();
            let next = next.unwrap_or(Nanos::MAX);
            let first = self.world.run_to_handled(next.min(until));
            let now = match first {
                Some(handled) => handled.at,
                None if next > until => break,
                None => next,
            };
            let mut more = first;
            while let Some(handled) = more {
                self.handled(devices, handled);
                // All work that ends at this time, before a device sees it.
                more = self.world.run_to_handled(now);
            }
            for (device, sim) in devices.iter_mut().enumerate() {
                // Steps that take no time may cause further ones at once.
                while sim.catch_up(now) {
                    self.take_vcpu_steps(device, sim);
                }
            }
        }
        devices.iter_mut().for_each(|sim| sim.run_until(until));
    }

    /// Starts the steps that a device asks for.
    fn take_vcpu_steps(&mut self, device: usize, sim: &mut DeviceSim) {
        while let Some(step) = sim.poll_vcpu_step() {
            let (VcpuStep::Issue(slot) | VcpuStep::Answer(slot)) = step;
            let worker = sim.worker_of(slot);
            let process = &self.processes[device][worker];
            let is_of_host = process.on.is_none();
            let driver = self.guests[process.guest].driver;
            match step {
                VcpuStep::Issue(slot) if !is_of_host => {
                    self.add_step(device, worker, Step::Issue, slot);
                }
                VcpuStep::Issue(slot) => match driver {
                    Some(_) => self.drive(device, worker, Step::Submit, slot),
                    None => sim.submitted(self.world.now(), slot),
                },
                VcpuStep::Answer(slot) => match driver {
                    Some(_) => self.drive(device, worker, Step::Complete, slot),
                    None if is_of_host => sim.answered_at(self.world.now(), slot),
                    None => self.notify(device, worker, slot),
                },
            }
        }
    }

    /// Gives a step to the driver domain.
    fn drive(&mut self, device: usize, worker: usize, step: Step, slot: u32) {
        let guest = self.processes[device][worker].guest;
        let cost = if step == Step::Complete {
            self.driver_steps.complete
        } else {
            self.driver_steps.submit
        };
        if let Some(vcpu) = self.guests[guest].driver {
            (self.world).deliver(vcpu, cost, tag(step, device, slot), false);
        }
    }

    /// Notifies a VM of a completed I/O.
    fn notify(&mut self, device: usize, worker: usize, slot: u32) {
        let guest = &self.guests[self.processes[device][worker].guest];
        let all = &mut self.notified[device];
        if all.len() <= slot as usize {
            all.resize(slot as usize + 1, Nanos::ZERO);
        }
        all[slot as usize] = self.world.now();
        let tag = tag(Step::Notify, device, slot);
        (self.world).deliver(guest.notified_vcpu, guest.cpu.interrupt, tag, true);
    }

    /// Queues a step behind the earlier ones of a process.
    fn add_step(&mut self, device: usize, worker: usize, step: Step, slot: u32) {
        let process = &mut self.processes[device][worker];
        process.steps.push_back(tag(step, device, slot));
        // Otherwise an earlier step is in progress, and its end begins this one.
        if process.steps.len() == 1 {
            self.begin(device, worker);
        }
    }

    /// Starts the first pending step of an idle process.
    fn begin(&mut self, device: usize, worker: usize) {
        let process = &self.processes[device][worker];
        if let (Some(&first), Some((vcpu, task))) = (process.steps.front(), process.on) {
            let cpu = &self.guests[process.guest].cpu;
            let cost = match parse_tag(first) {
                (Step::Issue, ..) => cpu.issue,
                _ => cpu.complete,
            };
            self.world.work(vcpu, task, cost, first);
        }
    }

    /// Passes a completed step on, before anything else happens.
    fn handled(&mut self, devices: &mut [DeviceSim], handled: Handled) {
        let (step, device, slot) = parse_tag(handled.tag);
        let sim = &mut devices[device];
        let now = handled.at;
        // Looked up before the step is passed on, which may free the slot.
        let worker = sim.worker_of(slot);
        let process = &mut self.processes[device][worker];
        let (guest, is_of_host) = (process.guest, process.on.is_none());
        if matches!(step, Step::Issue | Step::Take) {
            process.steps.pop_front();
        }
        match step {
            Step::Issue if self.guests[guest].driver.is_some() => {
                self.drive(device, worker, Step::Submit, slot);
            }
            Step::Issue | Step::Submit => sim.submitted(now, slot),
            Step::Complete if is_of_host => sim.answered_at(now, slot),
            Step::Complete => self.notify(device, worker, slot),
            Step::Notify => {
                let waited = now.since(self.notified[device][slot as usize]);
                let guest = &mut self.guests[guest];
                // The report counts until the guest begins to handle it, not until it has done so.
                guest
                    .notification_waits
                    .record(waited.since(guest.cpu.interrupt));
                self.add_step(device, worker, Step::Take, slot);
            }
            Step::Take => sim.answered_at(now, slot),
        }
        if matches!(step, Step::Issue | Step::Take) {
            // Steps that were queued behind this one have not been started.
            self.begin(device, worker);
        }
        self.take_vcpu_steps(device, &mut devices[device]);
    }
}
