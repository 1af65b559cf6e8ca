//! First come, first served.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, VmId};

/// What must go next, seen before it does.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub(super) vm: VmId,
    pub(super) lane: Lane,
    pub(super) seq: u64,
}

/// What has arrived first among the heads of VMs' lanes whose gate is open.
pub(super) fn first(engine: &Engine) -> Option<Promise> {
    let facts = engine.view();
    let mut first: Option<Promise> = None;
    for slot in 0..facts.vm_slots() {
        let vm = facts.vm_at(slot);
        for lane in Lane::ALL {
            let head = facts.lane_head(vm, lane);
            let ours = facts.gate_open(vm, lane) && !facts.is_background(vm);
            let Some(head) = head.filter(|_| ours) else {
                continue;
            };
            let seq = facts.queued(head).seq();
            if first.is_none_or(|least| seq < least.seq) {
                first = Some(Promise { vm, lane, seq });
            }
        }
    }
    first
}

impl Promise {
    /// This has gone, which arrived as number `first`.
    pub(super) fn kept(&self, io: &DeviceIo, first: u64) -> Verdict {
        let Promise { vm, lane, seq } = *self;
        ensure!(
            Starvation,
            // What failed in company may stand in its lane behind one that came later.
            (io.vm, io.op.lane()) == (vm, lane) || first < seq,
            "{io:?} went before a {lane:?} of {vm:?} that had arrived earlier, as number {seq}"
        );
        Ok(())
    }

    /// This has gone, where nothing else may.
    pub(super) fn kept_exactly(&self, io: &DeviceIo) -> Verdict {
        let Promise { vm, lane, seq } = *self;
        ensure!(
            Starvation,
            (io.vm, io.op.lane()) == (vm, lane),
            "{io:?} went before a {lane:?} of {vm:?} that is due first, as number {seq}"
        );
        Ok(())
    }

    /// Nothing goes.
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
