//! Deadline transfers: begun, replaced, cancelled and completed by answers; and learnt bandwidths
//! that are imported while they run.

use std::collections::{BTreeMap, VecDeque};

use super::{BLOCK, Operator, at};
use tidegate_core::engine::Engine;
use tidegate_core::learnt_state::Blob;
use tidegate_core::request::{Done, VmId};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{TransferEnd, TransferOutcome, TransferSpec};

/// Running transfer, with the bytes that were answered successfully.
#[derive(Clone, Copy, Debug)]
struct Running {
    bytes: u64,
    moved: u64,
}

/// Checker of transfers: each has exactly one end, and is reported until then.
#[derive(Default)]
pub(super) struct Transfers {
    running: BTreeMap<VmId, Running>,
    ended: VecDeque<(VmId, TransferOutcome, Running)>,
    background: Vec<VmId>,
    /// State that was exported last.
    learnt: Vec<u8>,
}

impl Transfers {
    /// Records a background process, which may have no transfer.
    pub(super) fn add_background(&mut self, vm: VmId) {
        self.background.push(vm);
    }

    /// Ends a VM's transfer; returns `false` if it has none.
    pub(super) fn cancel(&mut self, vm: VmId) -> bool {
        let was = self.running.remove(&vm);
        let end = was.map(|was| (vm, TransferOutcome::Cancelled, was));
        self.ended.extend(end);
        was.is_some()
    }

    /// Counts an answered request of `len` bytes.
    pub(super) fn answered(&mut self, done: &Done, len: u32) {
        // Only reads and writes move data of a transfer.
        if !done.op.merges() || done.outcome.is_err() {
            return;
        }
        let Some(transfer) = self.running.get_mut(&done.vm) else {
            return;
        };
        transfer.moved += u64::from(len);
        // The last request may be longer than what is left.
        if transfer.moved >= transfer.bytes {
            let transfer = *transfer;
            self.running.remove(&done.vm);
            self.ended
                .push_back((done.vm, TransferOutcome::Done, transfer));
        }
    }

    /// Checks the transfers after a call, once all answers were taken.
    pub(super) fn check(&mut self, engine: &mut Engine, now: Nanos, vms: &[VmId]) {
        while let Some(end) = engine.transfers_mut().poll_transfer_end() {
            let TransferEnd {
                vm,
                transfer,
                outcome,
                ..
            } = end;
            // In order: the engine reports ends as they come.
            let owed = self.ended.pop_front().expect("one end each");
            assert_eq!((vm, outcome), (owed.0, owed.1));
            assert_eq!(
                (transfer.bytes, transfer.moved),
                (owed.2.bytes, owed.2.moved)
            );
            assert_eq!(end.late, end.ended.since(transfer.due_time()));
        }
        assert!(
            self.ended.is_empty(),
            "ends were not reported: {:?}",
            self.ended
        );
        for &vm in vms {
            let status = engine.transfers().transfer(now, vm);
            let expected = self.running.get(&vm);
            let reported = status.map(|status| (status.transfer.bytes, status.transfer.moved));
            assert_eq!(
                reported,
                expected.map(|transfer| (transfer.bytes, transfer.moved)),
                "{vm:?}"
            );
        }
    }
}

impl Operator {
    pub(super) fn begin_transfer(&mut self, vm: u8, size: u8, time: u8) {
        let Some(&vm) = at(&self.vms, vm) else { return };
        let most = |n: u8, unit: u64| match n {
            // The largest input stands for the largest value, which must not overflow the engine.
            u8::MAX => u64::MAX,
            n => u64::from(n) * unit,
        };
        let spec = TransferSpec {
            bytes: most(size, u64::from(BLOCK) / 2),
            deadline: Nanos(most(time, 20_000_000)),
        };
        // The engine refuses an empty transfer, and one without time.
        let is_one = spec.bytes > 0 && spec.deadline > Nanos::ZERO;
        let may = self.driver.ledger.is_live(vm) && !self.transfers.background.contains(&vm);
        let begun = self
            .driver
            .engine
            .transfers_mut()
            .begin_transfer(self.driver.now, vm, &spec);
        assert_eq!(begun.is_ok(), is_one && may, "{spec:?}: {begun:?}");
        if let Ok(status) = begun {
            // A new transfer replaces the running one, which ends cancelled.
            self.transfers.cancel(vm);
            assert_eq!(
                (status.transfer.bytes, status.transfer.moved),
                (spec.bytes, 0)
            );
            let (bytes, moved) = (spec.bytes, 0);
            self.transfers.running.insert(vm, Running { bytes, moved });
        }
    }

    pub(super) fn end_transfer(&mut self, vm: u8) {
        let Some(&vm) = at(&self.vms, vm) else { return };
        let ended = self
            .driver
            .engine
            .transfers_mut()
            .end_transfer(self.driver.now, vm);
        assert_eq!(ended.is_ok(), self.driver.ledger.is_live(vm));
        if let Ok(end) = ended {
            assert_eq!(end.is_some(), self.transfers.cancel(vm));
        }
    }

    /// Imports the state that was exported last, with some bits of a byte flipped.
    pub(super) fn import_bandwidths(&mut self, byte: u8, bits: u8) {
        if let Some(blob) = self.driver.engine.transfers().export_bandwidths() {
            self.transfers.learnt = blob.as_bytes().to_vec();
        }
        let mut bytes = self.transfers.learnt.clone();
        if let Some(byte) = bytes.get_mut(usize::from(byte)) {
            *byte ^= bits;
        }
        let whole = !bytes.is_empty() && bytes == self.transfers.learnt;
        let taken = self
            .driver
            .engine
            .transfers_mut()
            .import_bandwidths(&Blob::from_bytes(bytes));
        // A damaged state may be taken where the damage leaves it well-formed.
        assert!(taken.is_ok() || !whole, "its own is refused: {taken:?}");
        self.driver
            .engine
            .transfers_mut()
            .set_best_bandwidth(u64::from(bits) * 1_000_000);
    }
}
