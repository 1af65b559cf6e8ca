//! Independent tuners, one for each VM with a target. Each adjusts its VM's merge limit and
//! throttle until the bandwidth is the target's. Li et al., "Customizable SLO and Its
//! Near-Precise Enforcement for Storage Bandwidth", ToS 2017: V-Cup.
//!
//! ```text
//!            every T_ps: B           every T_ps: V, beta
//!   target ---> TR (`target`) --> aim      WR (`window`) --> window
//!                                  |          |
//!                     every window v          v
//!            b measured ------> TA (`action`) ---> merge limit L, delay slice
//! ```
//!
//! - Target in bytes a second: TA, TR and WR as in section 4.3.
//! - Target in bytes and in IOPS: PI throttling (`throughput`) holds the IOPS of device requests,
//!   and TA holds their mean size, aim / IOPS, by the merge limit alone (section 5.6).
//! - Target in IOPS alone: PI throttling; merge limits stay the device's.
//! - No target, or a background tenant: the VM is not tuned.
//!
//! A window or a second in which the VM did not ask for its target changes nothing. Nor does a
//! window that the engine's driver ended far too late: the throttle makes good the loss by the
//! stall. A VM without requests sleeps: it has no timers.
//!
//! A VM's activity is counted by events, O(1) each; the end of a window is O(log n) of the tuned
//! VMs.

mod action;
mod measure;
mod paced;
mod params;
mod range;
mod target;
mod throughput;
mod vm_tuner;
mod window;

pub use params::TunerParams;
pub(crate) use params::{DESCRIPTOR, would_need};

use crate::regulate::merge_limit::ios;
use measure::Amount;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::request::{DeviceIo, Op, Outcome, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::roles::{Controller, Event, Interests, Knobs};
use tidegate_core::tuning::Tuning;
use tidegate_core::view::{View, moved};
use vm_tuner::VmTuner;

/// Controller that holds one tuner for each VM with a target.
#[derive(Debug)]
pub struct Tuners {
    params: TunerParams,
    /// Tuners by slot; `None` for VMs without a target.
    vms: Vec<Option<Box<VmTuner>>>,
    /// Time at which the next window or second of each awake tuner ends.
    due: IndexedHeap<Nanos>,
}

impl Tuners {
    /// Creates a controller without VMs, with room for `vms` of them.
    pub fn new(params: TunerParams, vms: u32) -> Tuners {
        Tuners {
            params,
            vms: Vec::with_capacity(vms as usize),
            due: IndexedHeap::with_capacity(vms as usize),
        }
    }

    fn of(&mut self, vm: VmId) -> Option<&mut VmTuner> {
        self.vms.get_mut(vm.index())?.as_deref_mut()
    }

    /// Creates, changes or releases a VM's tuner by its objective; `anew` for a new VM.
    fn promised(&mut self, view: &View, vm: VmId, anew: bool, out: &mut Knobs) {
        let slot = vm.index();
        if self.vms.len() <= slot {
            self.vms.resize_with(slot + 1, || None);
        }
        if anew {
            self.removed(vm);
        }
        let target = view.objective(vm).target;
        if target.is_none() || view.is_background(vm) {
            if let Some(mut tuner) = self.removed(vm) {
                tuner.release(vm, out);
            }
            return;
        }
        match &mut self.vms[slot] {
            Some(tuner) => tuner.change(&target),
            empty => {
                let tuner = VmTuner::new(self.params, &view.device().spec, &target);
                *empty = Some(Box::new(tuner));
            }
        }
        if let Some(tuner) = self.of(vm) {
            tuner.turn(vm, out);
        }
    }

    fn removed(&mut self, vm: VmId) -> Option<Box<VmTuner>> {
        self.due.remove(vm.index());
        self.vms.get_mut(vm.index())?.take()
    }

    fn asked(&mut self, view: &View, request: ReqId) {
        let (vm, _) = view.queued(request).vm_lane();
        let Some(tuner) = self.of(vm) else { return };
        let bytes = view.queued(request).request_bytes();
        let amount = Amount {
            bytes: bytes.into(),
            ios: ios(view.objective(vm).target.ops, bytes),
        };
        if let Some(due) = tuner.asked(view.now(), amount, view.quiet_since(vm)) {
            self.due.set(vm.index(), due);
        }
    }

    fn ended(&mut self, view: &View, io: &DeviceIo, outcome: Outcome) {
        let Some(tuner) = self.of(io.vm) else { return };
        if io.op == Op::Flush {
            return;
        }
        let bytes = moved(view, io.op, io.len);
        tuner.ended(Amount {
            bytes: if outcome.is_ok() { bytes.into() } else { 0 },
            ios: ios(view.objective(io.vm).target.ops, bytes),
        });
    }
}

impl Controller for Tuners {
    fn interests(&self) -> Interests {
        Interests::ARRIVED
            .union(Interests::MERGED)
            .union(Interests::ENDED)
            .union(Interests::VMS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        match *event {
            Event::Arrived(request) | Event::Merged { by: request, .. } => {
                self.asked(view, request);
            }
            Event::Ended { io, outcome, .. } => self.ended(view, io, outcome),
            Event::VmAdded(vm) => self.promised(view, vm, true, out),
            Event::VmChanged(vm) => self.promised(view, vm, false, out),
            Event::VmRemoved(vm) => _ = self.removed(vm),
            _ => {}
        }
    }

    fn next_timer(&self) -> Nanos {
        self.due.peek().map_or(Nanos::MAX, |(due, _)| due)
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        while let Some((due, slot)) = self.due.peek() {
            if due > view.now() {
                return;
            }
            let vm = view.vm_at(slot);
            let tuner = self.of(vm);
            let next = tuner.and_then(|tuner| {
                let next = tuner.tick(view, vm);
                tuner.turn(vm, out);
                next
            });
            match next {
                Some(next) => self.due.set(slot, next),
                None => _ = self.due.remove(slot),
            }
        }
    }

    fn tuning(&self, view: &View, vm: VmId) -> Option<Tuning> {
        let tuner = self.vms.get(vm.index())?.as_ref()?;
        Some(tuner.view(view.now()))
    }

    fn export(&self, _view: &View, vm: VmId) -> Option<Blob> {
        self.vms.get(vm.index())?.as_ref()?.export()
    }

    fn import(&mut self, _view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match self.of(vm) {
            Some(tuner) => tuner.import(learnt),
            None => Err(BlobError::Unwanted("the VM has no target")),
        }
    }

    fn import_moved(&mut self, _view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match self.of(vm) {
            Some(tuner) => tuner.import_moved(learnt),
            None => Err(BlobError::Unwanted("the VM has no target")),
        }
    }

    fn imported(&mut self, view: &View, out: &mut Knobs) {
        for (slot, tuner) in self.vms.iter_mut().enumerate() {
            let Some(tuner) = tuner else { continue };
            tuner.turn(view.vm_at(slot), out);
            if let Some(due) = tuner.due() {
                self.due.set(slot, due);
            }
        }
    }
}
