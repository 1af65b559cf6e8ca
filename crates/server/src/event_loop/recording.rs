//! Recording of an event loop: switched on and off by commands, told of changes.

use tidegate_config::objective_view::objective_view;
use tidegate_config::policy_view;
use tidegate_recording::{Change, DeviceFacts, DiskFacts, Header, VmFacts};
use tokio::sync::oneshot;

use super::{Loop, respond};
use crate::command::RecordingChange;
use crate::recording::{Begun, Producer};

/// Switches the recording on or off.
pub(super) fn switch(event_loop: &mut Loop, change: RecordingChange) {
    match change {
        RecordingChange::Start {
            producer,
            device,
            reply,
        } => start(event_loop, producer, *device, reply),
        RecordingChange::Stop { reply } => {
            // What was recorded is still written.
            event_loop.frontends.recorder = None;
            respond(reply, ());
        }
    }
}

/// Records every request from now on. Answers with what is in force; `device` has the facts that
/// do not change.
fn start(
    event_loop: &mut Loop,
    mut producer: Box<Producer>,
    device: DeviceFacts,
    reply: oneshot::Sender<Begun>,
) {
    for (at, _) in event_loop.device.disks.iter() {
        producer.reserve(at);
    }
    let there = event_loop.vms.iter().filter(|(_, vm)| !vm.is_removed);
    let vms = there.map(|(at, vm)| {
        let facts = vm_facts(event_loop, at);
        producer.number_vm(at, facts, &vm.disks)
    });
    let vms = vms.collect();
    let spec = event_loop.engine.config().device;
    let header = Header {
        started_unix_ns: 0,
        first_request: 0,
        device: DeviceFacts {
            depth: spec.depth,
            max_io_bytes: spec.max_io,
            policy: policy_view::policy(&**event_loop.engine.policy()),
            ..device
        },
        vms,
    };
    event_loop.frontends.recorder = Some(producer);
    let at = event_loop.now;
    respond(reply, Begun { at, header });
}

/// Records that a VM was added, which numbers it and its disks.
pub(super) fn vm_added(event_loop: &mut Loop, at: usize) {
    if event_loop.frontends.recorder.is_none() {
        return;
    }
    let facts = vm_facts(event_loop, at);
    let disks = &event_loop.vms[at].disks;
    if let Some(recorder) = &mut event_loop.frontends.recorder {
        let vm = recorder.number_vm(at, facts, disks);
        recorder.change(event_loop.now, Change::VmAdded { vm });
    }
}

/// Records that a disk was added to a VM, which numbers it.
pub(super) fn disk_added(event_loop: &mut Loop, vm: usize, disk: usize) {
    let facts = disk_facts(event_loop, disk);
    if let Some(recorder) = &mut event_loop.frontends.recorder {
        let disk = recorder.number_disk(disk, facts);
        let vm = recorder.vm(vm);
        recorder.change(event_loop.now, Change::DiskAdded { vm, disk });
    }
}

/// Records that a VM was removed, or some of its disks.
pub(super) fn removed(event_loop: &mut Loop, vm: Option<usize>, disks: &[usize]) {
    let Some(recorder) = &mut event_loop.frontends.recorder else {
        return;
    };
    if let Some(vm) = vm {
        let vm = recorder.vm(vm);
        return recorder.change(event_loop.now, Change::VmRemoved { vm });
    }
    for &disk in disks {
        let disk = recorder.disk(disk);
        recorder.change(event_loop.now, Change::DiskRemoved { disk });
    }
}

/// Records the size of a disk.
pub(super) fn disk_resized(event_loop: &mut Loop, disk: usize) {
    let size_bytes = event_loop.device.disks[disk].disk.size;
    if let Some(recorder) = &mut event_loop.frontends.recorder {
        let disk = recorder.disk(disk);
        recorder.change(event_loop.now, Change::DiskResized { disk, size_bytes });
    }
}

/// Records the objective of a VM.
pub(super) fn objective_changed(event_loop: &mut Loop, at: usize) {
    if let Some(recorder) = &mut event_loop.frontends.recorder {
        let id = event_loop.vms[at].id;
        let objective = objective_view(event_loop.engine.vms().objective(id));
        let vm = recorder.vm(at);
        recorder.change(event_loop.now, Change::Objective { vm, objective });
    }
}

/// Records the policy in force.
pub(super) fn policy_changed(event_loop: &mut Loop) {
    if let Some(recorder) = &mut event_loop.frontends.recorder {
        let policy = policy_view::policy(&**event_loop.engine.policy());
        recorder.change(event_loop.now, Change::Policy { policy });
    }
}

/// Returns the facts of a VM, whose number and those of its disks are still to be set.
fn vm_facts(event_loop: &Loop, at: usize) -> VmFacts {
    let vm = &event_loop.vms[at];
    let disks = vm.disks.iter().map(|&disk| disk_facts(event_loop, disk));
    let is_limited = |disk: &usize| {
        let disk = &event_loop.device.disks[*disk].disk;
        !disk.limit.is_none() || disk.limit_group.is_some()
    };
    VmFacts {
        number: 0,
        name: vm.name.clone(),
        background: event_loop.engine.view().is_background(vm.id),
        scheduled: false,
        disk_limits: vm.disks.iter().any(is_limited),
        objective: objective_view(event_loop.engine.vms().objective(vm.id)),
        disks: disks.collect(),
    }
}

fn disk_facts(event_loop: &Loop, at: usize) -> DiskFacts {
    let state = &event_loop.device.disks[at];
    DiskFacts {
        number: 0,
        name: state.disk.export.clone(),
        size_bytes: state.disk.size,
        at: state.base,
    }
}
