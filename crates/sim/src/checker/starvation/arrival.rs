//! Starvation bound of first come, first served.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, VmId};

/// Unit that must go next, determined before the dispatcher picks.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub(super) vm: VmId,
    pub(super) lane: Lane,
    pub(super) seq: u64,
}

/// Returns the unit that arrived first among the heads of VMs' lanes whose gate is open.
pub(super) fn earliest_unit(engine: &Engine) -> Option<Promise> {
    let view = engine.view();
    let mut first: Option<Promise> = None;
    for slot in 0..view.vm_slots() {
        let vm = view.vm_at(slot);
        for lane in Lane::ALL {
            let head = view.lane_head(vm, lane);
            let ours = view.gate_open(vm, lane) && !view.is_background(vm);
            let Some(head) = head.filter(|_| ours) else {
                continue;
            };
            let seq = view.queued(head).seq();
            if first.is_none_or(|least| seq < least.seq) {
                first = Some(Promise { vm, lane, seq });
            }
        }
    }
    first
}

impl Promise {
    /// Checks an I/O that started, whose unit has the arrival number `first`, against this promise.
    pub(super) fn kept(&self, io: &DeviceIo, first: u64) -> Verdict {
        let Promise { vm, lane, seq } = *self;
        ensure!(
            Starvation,
            // A request that is repeated after a merged I/O failed may be behind a later one in its
            // lane.
            (io.vm, io.op.lane()) == (vm, lane) || first < seq,
            "{io:?} went before a {lane:?} of {vm:?} that had arrived earlier, as number {seq}"
        );
        Ok(())
    }

    /// Checks an I/O that started where only the promised lane may go.
    pub(super) fn kept_exactly(&self, io: &DeviceIo) -> Verdict {
        let Promise { vm, lane, seq } = *self;
        ensure!(
            Starvation,
            (io.vm, io.op.lane()) == (vm, lane),
            "{io:?} went before a {lane:?} of {vm:?} that is due first, as number {seq}"
        );
        Ok(())
    }

    /// Reports a violation, because the device has room and nothing goes.
    pub(super) fn broken(&self) -> Verdict {
        let Promise { vm, lane, .. } = *self;
        ensure!(
            Starvation,
            false,
            "the device has room and a {lane:?} of {vm:?} may go, but does not"
        );
        Ok(())
    }
}
