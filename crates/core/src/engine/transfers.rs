//! Deadline transfers of VMs: begin, progress and end, whatever the policy.

use super::transfer_accounts;
use super::{Engine, EngineError};
use crate::roles::Event;
use crate::view::View;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::transfers::{
    Admission, ClassStatus, DeviceBandwidth, Forecast, TransferAccounts, TransferEnd,
    TransferOutcome, TransferSpec, TransferStatus,
};

/// Read-only view of VMs' deadline transfers; see [`Engine::transfers`].
pub struct Transfers<'a> {
    pub(super) engine: &'a Engine,
}

impl<'a> Transfers<'a> {
    /// Returns the status of a VM's deadline transfer, under any policy; `None`: the VM has none,
    /// or does not exist.
    pub fn transfer(&self, now: Nanos, vm: VmId) -> Option<TransferStatus> {
        self.engine.check_vm(vm).ok()?;
        let (who, now) = (vm.index(), now.max(self.engine.view.queues.now));
        let predictor = self.engine.view.predictor()?;
        let transfer = *predictor.transfer(who)?;
        let unknown = || Forecast {
            done: transfer.due_time(),
            early: Nanos::ZERO,
            late: Nanos::ZERO,
        };
        let status = self.engine.active.class_status(&self.engine.view, vm);
        Some(TransferStatus {
            transfer,
            bandwidth: predictor.bandwidth(who),
            forecast: predictor.forecast(who, now).unwrap_or_else(unknown),
            class: status.class,
            given_up: status.given_up,
            possible: predictor.is_possible(who, now),
        })
    }

    /// Total bandwidth of the device with `users` VMs that use it, in bytes a second, as far as
    /// known: MaxBW - BWloss(N). 0: unknown.
    pub fn total_bandwidth(&self, users: usize) -> u64 {
        if let Some(predictor) = self.engine.view.predictor() {
            return predictor.capacity().with_users(users);
        }
        let (terms, mut capacity) = (
            self.engine.active.forecast_params(),
            DeviceBandwidth::learnt(transfer_accounts::specified_bandwidth(&self.engine.view)),
        );
        capacity.set_given(terms.max_bandwidth, terms.bandwidth_loss);
        capacity.with_users(users)
    }

    /// Maximum bandwidth of the device for one VM, in bytes a second, as far as known: no transfer
    /// that needs more is possible. 0: unknown.
    pub fn best_bandwidth(&self) -> u64 {
        if let Some(predictor) = self.engine.view.predictor() {
            // Accounts exist from the first transfer on; before that the terms are all that is
            // known.
            return predictor.capacity().single_user_max();
        }
        let (terms, mut capacity) = (
            self.engine.active.forecast_params(),
            DeviceBandwidth::learnt(transfer_accounts::specified_bandwidth(&self.engine.view)),
        );
        capacity.set_single_user_max(self.engine.best_bandwidth);
        capacity.set_given(terms.max_bandwidth, terms.bandwidth_loss);
        capacity.single_user_max()
    }

    /// Number of VMs that use the device, including this one: VMs that have a transfer or
    /// outstanding requests, or had requests in the last interval.
    pub fn users_with(&self, now: Nanos, vm: VmId) -> usize {
        let interval = self.engine.active.forecast_params().interval;
        let uses = |&slot: &usize| {
            let of_vm = &self.engine.view.queues.vms[slot];
            let lately = of_vm.quiet_since < Nanos::MAX && now.since(of_vm.quiet_since) < interval;
            // The VM itself is counted below, whether it has used the device or not.
            slot != vm.index() && (of_vm.has_transfer || of_vm.requests > 0 || lately)
        };
        let slots = (0..self.engine.view.queues.vms.len())
            .filter(|&slot| transfer_accounts::may_have_transfer(&self.engine.view, slot));
        1 + slots.filter(uses).count()
    }

    /// Returns the current class of a VM, with or without a deadline transfer: the controller's
    /// where that changes classes for transfers, or its objective's where the policy enforces
    /// priorities. Panics on a handle that was never given out.
    pub fn class_status(&self, vm: VmId) -> ClassStatus {
        self.engine.active.class_status(&self.engine.view, vm)
    }

    /// Exports the device's total bandwidth by number of users as learnt, to be persisted; `None`:
    /// nothing was learnt. Learning takes place while transfers run.
    pub fn export_bandwidths(&self) -> Option<Blob> {
        self.engine.view.predictor()?.capacity().export()
    }
}

/// Changes of transfers of VMs; see [`Engine::transfers_mut`].
pub struct TransfersMut<'a> {
    pub(super) engine: &'a mut Engine,
}

impl TransfersMut<'_> {
    /// Begins a deadline transfer: the VM is to move the given bytes by the deadline; reads and
    /// writes that succeed count. A transfer that it had before is cancelled. Policies that change
    /// classes for transfers (`pridyn`) try to meet the deadline; under the others the transfer is
    /// only forecast.
    ///
    /// # Errors
    /// When there is no such VM, it is a background process, or the transfer has no bytes or no
    /// time. Then nothing has changed.
    pub fn begin_transfer(
        &mut self,
        now: Nanos,
        vm: VmId,
        transfer: &TransferSpec,
    ) -> Result<TransferStatus, EngineError> {
        self.start_transfer(now, vm, transfer)?;
        self.engine
            .active
            .emit(&mut self.engine.view, &Event::TransfersChanged);
        self.engine
            .transfers()
            .transfer(now, vm)
            .ok_or(EngineError::Unknown {
                what: "the transfer",
            })
    }

    /// Begins a deadline transfer that an admission controller admitted on these terms: a policy
    /// that changes classes for transfers takes them over as they are, and decides anew when
    /// something changes.
    ///
    /// # Errors
    /// Errors of [`TransfersMut::begin_transfer`], and when a VM that is to be lowered does not
    /// exist.
    pub fn begin_admitted_transfer(
        &mut self,
        now: Nanos,
        vm: VmId,
        transfer: &TransferSpec,
        terms: &Admission,
    ) -> Result<TransferStatus, EngineError> {
        let mut lowered = terms.lowered.iter();
        lowered.try_for_each(|(vm, _)| self.engine.check_vm(*vm))?;
        self.start_transfer(now, vm, transfer)?;
        self.engine.active.emit(
            &mut self.engine.view,
            &Event::TransferAdmitted { vm, terms },
        );
        self.engine
            .transfers()
            .transfer(now, vm)
            .ok_or(EngineError::Unknown {
                what: "the transfer",
            })
    }

    /// Starts a deadline transfer, in place of any that the VM had.
    fn start_transfer(
        &mut self,
        now: Nanos,
        vm: VmId,
        transfer: &TransferSpec,
    ) -> Result<(), EngineError> {
        self.engine.view.queues.advance(now);
        self.engine.check_vm(vm)?;
        check(transfer)?;
        if self.engine.view.is_background(vm) {
            return Err(EngineError::BackgroundTransfer);
        }
        self.engine.active.finish_transfer(
            &mut self.engine.view,
            vm.index,
            TransferOutcome::Cancelled,
        );
        let (now, device) = (
            self.engine.view.queues.now,
            transfer_accounts::device_time(&self.engine.view),
        );
        self.keep_transfers();
        let slots = self.engine.view.queues.vms.len();
        transfer_accounts::report_moved(&mut self.engine.view, 0..slots);
        let View {
            transfers, queues, ..
        } = &mut self.engine.view;
        let vms = &queues.vms;
        if let Some(book) = transfers {
            // Measuring stopped without transfers: it resumes with VMs that were idle lately at
            // zero.
            if book.is_paused() {
                let interval = book.interval();
                let moved_nothing = |slot: usize| {
                    let since = vms[slot].quiet_since;
                    let long = since == Nanos::MAX || now.since(since) >= interval;
                    vms[slot].requests == 0 && long
                };
                book.wake(now, device, moved_nothing);
            }
            book.begin(now, vm, transfer);
            let due = book.due();
            self.engine.view.timers.set_measure_at(due);
        }
        self.engine.view.queues.vms[vm.index()].has_transfer = true;
        self.engine.attainment.expect_transfer(now, vm.index());
        self.engine.promises.changed(now);
        self.engine
            .active
            .emit(&mut self.engine.view, &Event::TransferBegan(vm));
        Ok(())
    }

    /// Cancels a VM's deadline transfer. Returns its final state; `None`: the VM had none.
    ///
    /// # Errors
    /// When there is no such VM.
    pub fn end_transfer(
        &mut self,
        now: Nanos,
        vm: VmId,
    ) -> Result<Option<TransferEnd>, EngineError> {
        self.engine.view.queues.advance(now);
        self.engine.check_vm(vm)?;
        let end = self.engine.active.finish_transfer(
            &mut self.engine.view,
            vm.index,
            TransferOutcome::Cancelled,
        );
        if end.is_some() {
            self.engine
                .active
                .announce_transfers_changed(&mut self.engine.view);
        }
        self.engine.promises.changed(now);
        Ok(end)
    }

    /// Returns the next deadline transfer that is over, the oldest first: done, or cancelled for
    /// any reason. More than a thousand unread ones drop the oldest.
    pub fn poll_transfer_end(&mut self) -> Option<TransferEnd> {
        self.engine.view.transfers.as_mut()?.poll_end()
    }

    /// Sets the maximum bandwidth of one VM in bytes a second, wherever on the device; 0: unknown.
    /// [`DeviceSpec::bytes_per_s`] is a bandwidth that it has everywhere.
    ///
    /// [`DeviceSpec::bytes_per_s`]: tidegate_base::device::DeviceSpec::bytes_per_s
    pub fn set_best_bandwidth(&mut self, bytes_per_s: u64) {
        self.engine.best_bandwidth = bytes_per_s;
        if let Some(book) = &mut self.engine.view.transfers {
            book.predictor_mut()
                .capacity_mut()
                .set_single_user_max(bytes_per_s);
        }
    }

    /// Continues with bandwidths that were learnt of this device before.
    ///
    /// # Errors
    /// When the blob does not hold bandwidths. Then nothing has changed.
    pub fn import_bandwidths(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        self.keep_transfers();
        match &mut self.engine.view.transfers {
            Some(book) => book.predictor_mut().capacity_mut().import(learnt),
            None => Ok(()),
        }
    }

    /// Creates the book of deadline transfers if there is none, as from the first one on.
    fn keep_transfers(&mut self) {
        if self.engine.view.transfers.is_some() {
            return;
        }
        let (now, alone) = (
            self.engine.view.queues.now,
            transfer_accounts::specified_bandwidth(&self.engine.view),
        );
        let mut book = TransferAccounts::new(
            now,
            alone,
            self.engine.active.forecast_params(),
            transfer_accounts::device_time(&self.engine.view),
        );
        (book.predictor_mut().capacity_mut()).set_single_user_max(self.engine.best_bandwidth);
        for slot in (0..self.engine.view.queues.vms.len())
            .filter(|&slot| transfer_accounts::may_have_transfer(&self.engine.view, slot))
        {
            book.predictor_mut().add(now, slot);
        }
        self.engine.view.transfers = Some(Box::new(book));
    }
}

/// Checks that a transfer has bytes and time.
fn check(transfer: &TransferSpec) -> Result<(), EngineError> {
    let positive = |what, value, allowed| match value {
        0 => Err(EngineError::Config {
            what,
            value,
            allowed,
        }),
        _ => Ok(()),
    };
    positive("size of the transfer", transfer.bytes, "at least 1")?;
    positive(
        "deadline of the transfer",
        transfer.deadline.0,
        "at least 1 ns",
    )
}
