//! Independent tuners, one for each VM with a target. Each adjusts its VM's merge limit and
//! throttle until the bandwidth is the target's. Li et al., "Customizable SLO and Its
//! Near-Precise Enforcement for Storage Bandwidth", ToS 2017: V-Cup. All sections, figures and
//! algorithms named in this folder are that paper's.
//!
//! ```text
//!            every T_ps: B           every T_ps: V, beta
//!   target ---> TR (`target`) --> aim      WR (`window`) --> window
//!                                  |          |
//!                   at each window's end     v
//!            b measured ------> TA (`action`) ---> merge limit L, delay slice
//! ```
//!
//! | term     | meaning                                                                    |
//! |----------|----------------------------------------------------------------------------|
//! | L        | merge limit: largest size up to which adjacent requests are merged, in pages |
//! | T_ps, B  | statistical interval; error of the mean bandwidth of the interval          |
//! | V, beta  | variability of the interval's seconds; absolute error                      |
//! | TA       | tuning action: L and the throttle for the next window                      |
//! | TR       | target revision: bandwidth that TA aims at                                 |
//! | WR       | window revision: length of the window between two tuning actions           |
//!
//! - Target in bytes per second: TA, TR and WR as in section 4.3.
//! - Target in bytes and in IOPS: PI throttling (`throughput`) holds the IOPS of device requests,
//!   and TA holds their mean size, aim / IOPS, by the merge limit alone (section 5.6).
//! - Target in IOPS alone: PI throttling; merge limits stay the device's.
//! - No target, or a background process: the VM is not tuned.
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

use crate::regulate::merge_limit::counted_ios;
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

    fn tuner_mut(&mut self, vm: VmId) -> Option<&mut VmTuner> {
        self.vms.get_mut(vm.index())?.as_deref_mut()
    }

    /// Creates, changes or releases a VM's tuner by its objective. `is_new`: a new VM, whose slot
    /// may hold the tuner of an earlier one.
    fn update_tuner(&mut self, view: &View, vm: VmId, is_new: bool, out: &mut Knobs) {
        let slot = vm.index();
        if self.vms.len() <= slot {
            self.vms.resize_with(slot + 1, || None);
        }
        if is_new {
            self.remove_tuner(vm);
        }
        let target = view.objective(vm).target;
        // A background process gets what VMs leave, whatever its objective says.
        if target.is_none() || view.is_background(vm) {
            if let Some(mut tuner) = self.remove_tuner(vm) {
                tuner.release(vm, out);
            }
            return;
        }
        match &mut self.vms[slot] {
            Some(tuner) => tuner.set_target(&target),
            empty => {
                let tuner = VmTuner::new(self.params, &view.device().spec, &target);
                *empty = Some(Box::new(tuner));
            }
        }
        if let Some(tuner) = self.tuner_mut(vm) {
            tuner.apply_knobs(vm, out);
        }
    }

    fn remove_tuner(&mut self, vm: VmId) -> Option<Box<VmTuner>> {
        // Before the slot is empty: a timer without a tuner would fire for nothing.
        self.due.remove(vm.index());
        self.vms.get_mut(vm.index())?.take()
    }

    fn on_arrival(&mut self, view: &View, request: ReqId) {
        let (vm, _) = view.queued(request).vm_lane();
        let Some(tuner) = self.tuner_mut(vm) else {
            return;
        };
        let bytes = view.queued(request).request_bytes();
        let amount = Amount {
            bytes: bytes.into(),
            ios: counted_ios(view.objective(vm).target.ops, bytes),
        };
        if let Some(due) = tuner.on_arrival(view.now(), amount, view.quiet_since(vm)) {
            self.due.set(vm.index(), due);
        }
    }

    fn on_completion(&mut self, view: &View, io: &DeviceIo, outcome: Outcome) {
        let Some(tuner) = self.tuner_mut(io.vm) else {
            return;
        };
        if io.op == Op::Flush {
            return;
        }
        let bytes = moved(view, io.op, io.len);
        tuner.on_completion(Amount {
            // Failed I/Os used the device but moved nothing.
            bytes: if outcome.is_ok() { bytes.into() } else { 0 },
            ios: counted_ios(view.objective(io.vm).target.ops, bytes),
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
                self.on_arrival(view, request);
            }
            Event::Ended { io, outcome, .. } => self.on_completion(view, io, outcome),
            Event::VmAdded(vm) => self.update_tuner(view, vm, true, out),
            Event::VmChanged(vm) => self.update_tuner(view, vm, false, out),
            Event::VmRemoved(vm) => _ = self.remove_tuner(vm),
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
            let tuner = self.tuner_mut(vm);
            let next = tuner.and_then(|tuner| {
                let next = tuner.tick(view, vm);
                tuner.apply_knobs(vm, out);
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
        match self.tuner_mut(vm) {
            Some(tuner) => tuner.import(learnt),
            None => Err(BlobError::Unwanted("the VM has no target")),
        }
    }

    fn import_moved(&mut self, _view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        match self.tuner_mut(vm) {
            Some(tuner) => tuner.import_moved(learnt),
            None => Err(BlobError::Unwanted("the VM has no target")),
        }
    }

    fn imported(&mut self, view: &View, out: &mut Knobs) {
        for (slot, tuner) in self.vms.iter_mut().enumerate() {
            let Some(tuner) = tuner else { continue };
            tuner.apply_knobs(view.vm_at(slot), out);
            if let Some(due) = tuner.next_end() {
                self.due.set(slot, due);
            }
        }
    }
}
