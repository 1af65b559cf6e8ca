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

/// End of a transfer that the engine has to report.
#[derive(Clone, Copy, Debug)]
struct OwedEnd {
    vm: VmId,
    outcome: TransferOutcome,
    transfer: Running,
}

/// Checker of transfers: each has exactly one end, and is reported until then.
#[derive(Default)]
pub(super) struct Transfers {
    running: BTreeMap<VmId, Running>,
    /// Ends that the engine has not reported yet, in order.
    owed_ends: VecDeque<OwedEnd>,
    /// Background processes, which may have no transfer.
    background: Vec<VmId>,
    /// Bandwidths that the engine exported last, as bytes.
    learnt: Vec<u8>,
}

impl Transfers {
    /// Records a background process, which may have no transfer.
    pub(super) fn add_background(&mut self, vm: VmId) {
        self.background.push(vm);
    }

    /// Ends a VM's transfer; returns `false` if it has none.
    pub(super) fn cancel(&mut self, vm: VmId) -> bool {
        let cancelled = self.running.remove(&vm);
        self.owed_ends.extend(cancelled.map(|transfer| OwedEnd {
            vm,
            outcome: TransferOutcome::Cancelled,
            transfer,
        }));
        cancelled.is_some()
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
            self.owed_ends.push_back(OwedEnd {
                vm: done.vm,
                outcome: TransferOutcome::Done,
                transfer: *transfer,
            });
            self.running.remove(&done.vm);
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
            let owed = self.owed_ends.pop_front();
            let owed = owed.expect("an end is reported once, of a transfer that has ended");
            assert_eq!((vm, outcome), (owed.vm, owed.outcome));
            assert_eq!(
                (transfer.bytes, transfer.moved),
                (owed.transfer.bytes, owed.transfer.moved)
            );
            assert_eq!(end.late, end.ended.since(transfer.due_time()));
        }
        assert!(
            self.owed_ends.is_empty(),
            "ends were not reported: {:?}",
            self.owed_ends
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
    /// Begins a transfer of a size and a deadline that the two bytes select.
    pub(super) fn begin_transfer(&mut self, vm: u8, size: u8, time: u8) {
        let Some(&vm) = at(&self.vms, vm) else { return };
        let scaled = |n: u8, unit: u64| match n {
            // The largest input stands for the largest value, which must not overflow the engine.
            u8::MAX => u64::MAX,
            n => u64::from(n) * unit,
        };
        let spec = TransferSpec {
            bytes: scaled(size, u64::from(BLOCK) / 2),
            deadline: Nanos(scaled(time, 20_000_000)),
        };
        // The engine refuses an empty transfer, and one without time.
        let is_valid = spec.bytes > 0 && spec.deadline > Nanos::ZERO;
        let may_have_transfer =
            self.driver.ledger.is_live(vm) && !self.transfers.background.contains(&vm);
        let begun = self
            .driver
            .engine
            .transfers_mut()
            .begin_transfer(self.driver.now, vm, &spec);
        assert_eq!(
            begun.is_ok(),
            is_valid && may_have_transfer,
            "{spec:?}: {begun:?}"
        );
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

    /// Ends a VM's transfer, if it has one.
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
        assert!(
            taken.is_ok() || !whole,
            "the engine refuses its own state: {taken:?}"
        );
        self.driver
            .engine
            .transfers_mut()
            .set_best_bandwidth(u64::from(bits) * 1_000_000);
    }
}
