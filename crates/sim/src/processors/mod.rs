//! The processors of the machine that all VMs of a scenario are on, beside its devices under one
//! clock.
//!
//! ```text
//!    guest's process --Issue--> driver domain --Submit--> engine --> device
//!         ^                                                             |
//!         |                                                             v
//!       Take <-- guest's first vCPU <--Notify-- driver domain <------ engine
//! ```
//!
//! Each arrow that has a name is work on a vCPU: it begins when the vCPU runs, and the request is
//! where the arrow ends when that work is done. A process does one thing after the other, in the
//! order in which it came. A process of the host has the driver domain's steps alone; without a
//! driver domain these are left out.
//!
//! At one time, what vCPUs have done comes first, in the order in which the vCPU world has it done;
//! then each device with its engine and guests, in the order of the scenario, as without
//! processors. What these ask of vCPUs begins last, still at that time.

mod found;
mod setup;

use crate::device::{DeviceSim, Times, VcpuStep};
use crate::scenario::VmCpu;
use found::Before;
pub use found::{CpuReport, VmCpuReport};
use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_vcpu::guest::TaskId;
use tidegate_vcpu::machine::{VcpuId, VmId};
use tidegate_vcpu::world::{Handled, VcpuWorld};

/// A step of a request, of a slot of a device.
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

/// What the vCPU world calls a step of the request in a device's slot.
fn tag(step: Step, device: usize, slot: u32) -> u64 {
    (device as u64) << 40 | (step as u64) << 32 | u64::from(slot)
}

fn of_tag(tag: u64) -> (Step, usize, u32) {
    let step = STEPS[(tag >> 32) as usize & 0xff];
    (step, (tag >> 40) as usize, tag as u32)
}

/// A VM.
struct Guest {
    /// In the machine; `None`: a process of the host.
    vm: Option<VmId>,
    /// What steps take.
    cpu: VmCpu,
    /// Which of the driver domain's vCPUs handles it; `None`: there is no driver domain.
    driver: Option<VcpuId>,
    /// Where it is notified.
    first: VcpuId,
    /// How long its completions waited for that one.
    waits: Times,
}

/// A worker, on one of its VM's vCPUs.
struct Process {
    tenant: usize,
    /// Where it runs, and what it is there; a process of the host is none.
    on: Option<(VcpuId, TaskId)>,
    /// What it is to do, the first of which it does.
    steps: VecDeque<u64>,
}

/// The processors, with what uses them.
pub(crate) struct Processors {
    world: VcpuWorld,
    scheduler: &'static str,
    /// What a step takes the driver domain, on the way to the engine and back.
    driver: [Nanos; 2],
    /// By their places in the scenario.
    guests: Vec<Guest>,
    /// By device and worker.
    processes: Vec<Vec<Process>>,
    /// When the VM was notified of the request in a slot, by device.
    notified: Vec<Vec<Nanos>>,
    /// At the end of the warm-up.
    before: Before,
}

impl Processors {
    /// Lets time pass to `until` for them and for all devices.
    pub(crate) fn run_until(&mut self, devices: &mut [DeviceSim], until: Nanos) {
        loop {
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
                more = self.world.run_to_handled(now);
            }
            for (device, sim) in devices.iter_mut().enumerate() {
                while sim.catch_up(now) {
                    self.take_vcpu_steps(device, sim);
                }
            }
        }
        devices.iter_mut().for_each(|sim| sim.run_until(until));
    }

    /// Takes the steps that a device asks for.
    fn take_vcpu_steps(&mut self, device: usize, sim: &mut DeviceSim) {
        while let Some(step) = sim.poll_vcpu_step() {
            let (VcpuStep::Issue(slot) | VcpuStep::Answer(slot)) = step;
            let worker = sim.worker_of(slot);
            let process = &self.processes[device][worker];
            let is_of_host = process.on.is_none();
            let driver = self.guests[process.tenant].driver;
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

    /// The driver domain is to do a step.
    fn drive(&mut self, device: usize, worker: usize, step: Step, slot: u32) {
        let tenant = self.processes[device][worker].tenant;
        let cost = self.driver[usize::from(step == Step::Complete)];
        if let Some(vcpu) = self.guests[tenant].driver {
            (self.world).deliver(vcpu, cost, tag(step, device, slot), false);
        }
    }

    /// A VM is told that its I/O has ended.
    fn notify(&mut self, device: usize, worker: usize, slot: u32) {
        let guest = &self.guests[self.processes[device][worker].tenant];
        let all = &mut self.notified[device];
        if all.len() <= slot as usize {
            all.resize(slot as usize + 1, Nanos::ZERO);
        }
        all[slot as usize] = self.world.now();
        let tag = tag(Step::Notify, device, slot);
        (self.world).deliver(guest.first, guest.cpu.interrupt, tag, true);
    }

    /// A process is to do a step, after those before.
    fn add_step(&mut self, device: usize, worker: usize, step: Step, slot: u32) {
        let process = &mut self.processes[device][worker];
        process.steps.push_back(tag(step, device, slot));
        if process.steps.len() == 1 {
            self.begin(device, worker);
        }
    }

    /// A process that rests begins with its first step, if there is one.
    fn begin(&mut self, device: usize, worker: usize) {
        let process = &self.processes[device][worker];
        if let (Some(&first), Some((vcpu, task))) = (process.steps.front(), process.on) {
            let cpu = &self.guests[process.tenant].cpu;
            let cost = match of_tag(first) {
                (Step::Issue, ..) => cpu.issue,
                _ => cpu.complete,
            };
            self.world.work(vcpu, task, cost, first);
        }
    }

    /// A step is done: what comes of it, before anything else happens.
    fn handled(&mut self, devices: &mut [DeviceSim], handled: Handled) {
        let (step, device, slot) = of_tag(handled.tag);
        let sim = &mut devices[device];
        let now = handled.at;
        let worker = sim.worker_of(slot);
        let process = &mut self.processes[device][worker];
        let (tenant, is_of_host) = (process.tenant, process.on.is_none());
        if matches!(step, Step::Issue | Step::Take) {
            process.steps.pop_front();
        }
        match step {
            Step::Issue if self.guests[tenant].driver.is_some() => {
                self.drive(device, worker, Step::Submit, slot);
            }
            Step::Issue | Step::Submit => sim.submitted(now, slot),
            Step::Complete if is_of_host => sim.answered_at(now, slot),
            Step::Complete => self.notify(device, worker, slot),
            Step::Notify => {
                let waited = now.since(self.notified[device][slot as usize]);
                let guest = &mut self.guests[tenant];
                guest.waits.took(waited.since(guest.cpu.interrupt));
                self.add_step(device, worker, Step::Take, slot);
            }
            Step::Take => sim.answered_at(now, slot),
        }
        if matches!(step, Step::Issue | Step::Take) {
            // Others were added behind this one, not begun.
            self.begin(device, worker);
        }
        self.take_vcpu_steps(device, &mut devices[device]);
    }
}
