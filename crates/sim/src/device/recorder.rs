//! Recording of a simulated device's requests, in the daemon's format.
//!
//! VMs have the numbers of their places among the device's, and so have their disks, of which each
//! has one.

use crate::scenario::Scenario;
use tidegate_config::objective_view::objective_view;
use tidegate_config::{policy_view, recording_facts};
use tidegate_core::objective::Objective;
use tidegate_core::request::Done;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::{Change, DiskFacts, Encoder, Header, Request, VmFacts};
use tidegate_workload::stream::Io;

/// Encoder with the bytes that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Recorder {
    encoder: Encoder,
    bytes: Vec<u8>,
    /// All VMs of the device by number, also those that are still to arrive.
    vms: Vec<VmFacts>,
}

impl Recorder {
    /// Begins the recording of a device of a scenario at time zero. VMs that arrive at that time
    /// are part of the header.
    pub(crate) fn new(scenario: &Scenario, index: usize) -> Recorder {
        let layout = scenario.layout(index).into_iter();
        let vms = layout.zip(0u32..).map(|((vm, disk), number)| {
            let spec = &scenario.vms[vm];
            let disk = DiskFacts {
                number,
                name: spec.name.clone(),
                size_bytes: spec.disk_size,
                at: disk.start,
            };
            let vm = VmFacts {
                number,
                name: spec.name.clone(),
                background: spec.background,
                scheduled: false,
                disk_limits: !spec.parts.is_empty(),
                objective: objective_view(&spec.objective),
                disks: vec![disk],
            };
            (vm, spec.arrives == Nanos::ZERO)
        });
        let vms: Vec<(VmFacts, bool)> = vms.collect();
        let device = &scenario.devices[index];
        let facts = (device.name.as_str(), "simulated");
        let there = vms.iter().filter(|(_, is_there)| *is_there);
        let header = Header {
            started_unix_ns: 0,
            first_request: 0,
            device: recording_facts::device(facts, Some(&device.model), &device.scheduling),
            vms: there.map(|(vm, _)| vm.clone()).collect(),
        };
        let mut bytes = Vec::new();
        let encoder = Encoder::new(&header, &mut bytes);
        Recorder {
            encoder,
            bytes,
            vms: vms.into_iter().map(|(vm, _)| vm).collect(),
        }
    }

    /// Records a request of the VM number `vm` that ends now.
    pub(super) fn request(&mut self, now: Nanos, vm: u32, io: &Io, done: &Done) {
        let request = Request {
            disk: vm,
            op: io.op,
            fua: io.fua,
            keep_allocated: false,
            outcome: done.outcome,
            offset: io.offset,
            len: io.len,
            arrived: now,
            admitted: now,
            sent: now,
            done: now,
        };
        let request = request.timed(now, &done.account);
        let request = request.expect("a simulation begins at time zero");
        self.encoder.push(&request, &mut self.bytes);
    }

    /// Records that a VM has arrived with this objective. Those of time zero are in the header.
    pub(super) fn arrived(&mut self, now: Nanos, number: u32, objective: &Objective) {
        if now > Nanos::ZERO {
            let objective = objective_view(objective);
            let vm = VmFacts {
                objective,
                ..self.vms[number as usize].clone()
            };
            self.change(now, &Change::VmAdded { vm });
        }
    }

    /// Records that a VM has left.
    pub(super) fn left(&mut self, now: Nanos, vm: u32) {
        self.change(now, &Change::VmRemoved { vm });
    }

    /// Records a new objective of a VM.
    pub(super) fn objective(&mut self, now: Nanos, vm: u32, objective: &Objective) {
        let objective = objective_view(objective);
        self.change(now, &Change::Objective { vm, objective });
    }

    /// Records a new policy.
    pub(super) fn policy(&mut self, now: Nanos, policy: &PolicySpec) {
        let policy = policy_view::policy(policy);
        self.change(now, &Change::Policy { policy });
    }

    fn change(&mut self, now: Nanos, change: &Change) {
        self.encoder.change(now, change, &mut self.bytes);
    }

    /// Moves the bytes since the last call to the end of `to`.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) {
        to.append(&mut self.bytes);
    }

    /// Ends the recording, with the rest of its bytes to the end of `to`.
    pub(super) fn end(mut self, now: Nanos, to: &mut Vec<u8>) {
        self.take(to);
        self.encoder.end(now, to);
    }
}
