//! Deadline transfers of VMs, as far as roles are concerned.

use super::super::transfer_accounts;
use super::ActivePolicy;
use crate::roles::Event;
use crate::view::View;
use tidegate_base::request::VmId;
use tidegate_capacity::transfers::{Class, Standing, TransferEnd, TransferOutcome, TransferTerms};

impl ActivePolicy {
    /// Restarts the measurement of a VM whose class has changed: its past throughput does not
    /// predict the next.
    pub(in crate::engine) fn class_changed(&mut self, view: &mut View, vm: VmId) {
        let now = view.queues.now;
        // Bytes moved until now belong to the former class.
        transfer_accounts::report_moved(view, vm.index()..vm.index() + 1);
        if let Some(book) = &mut view.transfers {
            book.predictor_mut().restart_user(now, vm.index());
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
        let of_vm = &mut view.queues.vms[slot as usize];
        if !core::mem::take(&mut of_vm.has_transfer) {
            return None;
        }
        let (now, vm) = (view.queues.now, of_vm.id(slot));
        let end = view.transfers.as_mut()?.end(now, vm, outcome);
        // After the book's end, so that roles see the VM without a transfer.
        self.emit(view, &Event::TransferEnded(vm));
        end
    }

    /// Tells roles that a deadline transfer is over (`is_over`), once all other consequences are
    /// done.
    pub(in crate::engine) fn announce_transfers_changed(&mut self, view: &mut View, is_over: bool) {
        if is_over {
            self.emit(view, &Event::TransfersChanged);
        }
    }

    /// Measures the throughput of all VMs for their deadline transfers, and tells roles.
    #[cold]
    pub(in crate::engine) fn measure_transfers(&mut self, view: &mut View) {
        let (now, device) = (view.queues.now, transfer_accounts::device_time(view));
        transfer_accounts::report_moved(view, 0..view.queues.vms.len());
        if let Some(book) = &mut view.transfers {
            book.measure(now, device);
            view.measure_at = book.due();
        }
        self.emit(view, &Event::TransfersChanged);
    }

    /// Tells the roles of a new policy of the deadline transfers that run.
    pub(in crate::engine) fn announce_running_transfers(&mut self, view: &mut View) {
        let terms = self.transfer_terms();
        let Some(book) = &mut view.transfers else {
            return;
        };
        book.set_terms(terms);
        view.measure_at = book.due();
        for slot in 0..view.queues.vms.len() {
            if view.queues.vms[slot].has_transfer {
                let vm = view.vm_at(slot);
                self.emit(view, &Event::TransferBegan(vm));
            }
        }
    }

    /// Terms of deadline transfers under the policy in force; the defaults without a controller.
    pub(in crate::engine) fn transfer_terms(&self) -> TransferTerms {
        let controller = self.roles.controller.as_ref();
        controller.map_or_else(TransferTerms::default, |controller| {
            controller.transfer_terms()
        })
    }

    /// Returns the class of a VM just now, with or without a deadline transfer: the controller's
    /// where that changes classes for transfers, or its objective's where the policy enforces
    /// priorities. Panics on a handle that was never given out.
    pub(in crate::engine) fn standing(&self, view: &View, vm: VmId) -> Standing {
        let of_controller = self.roles.controller.as_ref();
        let of_controller = of_controller.and_then(|controller| controller.standing(vm));
        of_controller.unwrap_or_else(|| Standing {
            class: if self.policy.enforces().priority {
                view.objective(vm).priority.into()
            } else {
                Class::BestEffort
            },
            given_up: false,
        })
    }
}
