//! Notifications of the policy's roles about deadline transfers of VMs.

use super::super::transfer_accounts;
use super::ActivePolicy;
use crate::roles::Event;
use crate::view::View;
use tidegate_base::request::VmId;
use tidegate_capacity::transfers::{
    Class, ClassStatus, ForecastParams, TransferEnd, TransferOutcome,
};

impl ActivePolicy {
    /// Restarts the measurement of a VM whose class has changed: its past throughput does not
    /// predict that in the new class.
    pub(in crate::engine) fn class_changed(&mut self, view: &mut View, vm: VmId) {
        let now = view.queues.now;
        // Bytes moved until now belong to the former class.
        transfer_accounts::report_moved(view, vm.index()..vm.index() + 1);
        if let Some(transfers) = &mut view.transfers {
            transfers.predictor_mut().restart_user(now, vm.index());
        }
    }

    /// Ends the deadline transfer of the VM in a slot, if it has one.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn finish_transfer(
        &mut self,
        view: &mut View,
        slot: u32,
        outcome: TransferOutcome,
    ) -> Option<TransferEnd> {
        let vm_state = &mut view.queues.vms[slot as usize];
        if !core::mem::take(&mut vm_state.has_transfer) {
            return None;
        }
        let (now, vm) = (view.queues.now, vm_state.id(slot));
        let book = view.transfers.as_mut();
        let end = book
            .unwrap_or_else(|| panic!("{vm:?} has a transfer, and there is no book of transfers"))
            .end(now, vm, outcome);
        // After its removal from `view.transfers`, so that roles see the VM without a transfer.
        self.emit(view, &Event::TransferEnded(vm));
        end
    }

    /// Notifies roles that deadline transfers have changed; called after an end, once all its other
    /// consequences are done.
    pub(in crate::engine) fn announce_transfers_changed(&mut self, view: &mut View) {
        self.emit(view, &Event::TransfersChanged);
    }

    /// Measures the throughput of all VMs for their deadline transfers, and notifies roles.
    #[cold]
    pub(in crate::engine) fn measure_transfers(&mut self, view: &mut View) {
        let (now, device) = (view.queues.now, transfer_accounts::device_time(view));
        transfer_accounts::report_moved(view, 0..view.queues.vms.len());
        if let Some(transfers) = &mut view.transfers {
            transfers.measure(now, device);
            let due = transfers.due();
            view.timers.set_measure_at(due);
        }
        self.emit(view, &Event::TransfersChanged);
    }

    /// Notifies the roles of a new policy of the deadline transfers that run.
    pub(in crate::engine) fn announce_running_transfers(&mut self, view: &mut View) {
        let params = self.forecast_params();
        let Some(transfers) = &mut view.transfers else {
            return;
        };
        transfers.set_params(params);
        let due = transfers.due();
        view.timers.set_measure_at(due);
        for slot in 0..view.queues.vms.len() {
            if view.queues.vms[slot].has_transfer {
                let vm = view.vm_at(slot);
                self.emit(view, &Event::TransferBegan(vm));
            }
        }
    }

    /// Terms of deadline transfers under the policy in force; the defaults without a controller.
    pub(in crate::engine) fn forecast_params(&self) -> ForecastParams {
        let controller = self.roles.controller.as_ref();
        controller.map_or_else(ForecastParams::default, |controller| {
            controller.forecast_params()
        })
    }

    /// Returns the class in force for a VM, and whether its deadline transfer is given up: from the
    /// controller if it manages classes for transfers, otherwise the class of the objective if the
    /// policy enforces priorities. Panics on a handle that was never given out.
    pub(in crate::engine) fn class_status(&self, view: &View, vm: VmId) -> ClassStatus {
        let controller = self.roles.controller.as_ref();
        let managed = controller.and_then(|controller| controller.class_status(vm));
        managed.unwrap_or_else(|| ClassStatus {
            class: if self.policy.enforces().priority {
                view.objective(vm).priority.into()
            } else {
                Class::BestEffort
            },
            given_up: false,
        })
    }
}
