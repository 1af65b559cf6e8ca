//! Deadline transfers of this device's VMs: begun and cancelled by commands, checked once a second,
//! reported when they end.

use jiff::Timestamp;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{TransferEnd, TransferSpec, deadline};

use super::{Loop, Vm};
use crate::command::{CommandError, VmSnapshot};
use crate::transfer::{
    self, BegunPlacements, Due, EndedTransfer, EndedTransfers, Outlook, PersistedTransfers,
    RunningTransfer, Since, TransferOrder, TransferResult, VmTransfers, span,
};

/// Time after a warning that a transfer cannot meet its deadline in which it is not repeated,
/// however often the forecast changes.
const LOG_INTERVAL: Nanos = Nanos::from_secs(60);

/// Deadline transfers of one VM, beyond what the engine knows of them.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// Start and deadline of the running transfer on the wall clock; `None` if none runs.
    since: Option<Since>,
    miss_alert: MissAlert,
    last: Option<EndedTransfer>,
    ended: EndedTransfers,
    begun_placements: BegunPlacements,
}

impl Transfers {
    /// Returns true while a transfer runs whose end was not recorded.
    pub(super) fn is_running(&self) -> bool {
        self.since.is_some()
    }
}

/// Last warning that a transfer cannot meet its deadline.
#[derive(Debug, Default)]
struct MissAlert {
    /// True while the warning holds.
    is_missed: bool,
    /// Loop time of the last warning; `None` before the first one.
    logged: Option<Nanos>,
}

impl MissAlert {
    /// Records the present verdict and returns true if a warning is to be logged now.
    fn update(&mut self, now: Nanos, is_missed: bool) -> bool {
        let is_quiet = self.logged.is_some_and(|at| now.since(at) < LOG_INTERVAL);
        if !is_missed || self.is_missed || is_quiet {
            self.is_missed &= is_missed;
            return false;
        }
        (self.is_missed, self.logged) = (true, Some(now));
        true
    }
}

impl Loop {
    /// Begins a deadline transfer now; `at` is the present time of the wall clock.
    pub(super) fn begin_transfer(
        &mut self,
        vm: &str,
        order: &TransferOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, CommandError> {
        self.check_running()?;
        let index = self.vms.named(vm)?;
        if let Some(running) = self.running_transfer(index)
            && !order.replace
        {
            let (moved, bytes) = (running.moved(), running.bytes());
            let vm = vm.to_owned();
            return Err(CommandError::HasTransfer { vm, moved, bytes });
        }
        let begun = transfer::to_the_millisecond(at);
        let deadline = match order.due {
            Due::In(span) => span,
            Due::At(due) => transfer::between(at, due),
            Due::Tolerance(thousandths) => self.deadline(index, order.bytes, thousandths)?,
        };
        let due = match order.due {
            // The given time itself, not the begin plus a rounded span.
            Due::At(due) => due,
            Due::In(_) | Due::Tolerance(_) => transfer::after(begun, deadline),
        };
        let since = Since {
            begun,
            due: transfer::to_the_millisecond(due),
            moved: 0,
            overdue: Nanos::ZERO,
            placed_ns: order.placed_ns,
        };
        let spec = TransferSpec {
            bytes: order.bytes,
            // The engine refuses a deadline of 0; a time in the past is late at once.
            deadline: deadline.max(Nanos(1)),
        };
        CommandError::check_transfer(order, spec.deadline)?;
        self.start_transfer(index, &spec, since)?;
        tracing::info!(vm, bytes = order.bytes, due = %since.due, "transfer started");
        Ok(self.vm_snapshot(index))
    }

    /// Returns the deadline that follows from a tolerance: the makespan of the transfer beside the
    /// present users of the device, and `thousandths` of it on top (equations 4.1 and 4.2, see
    /// [`deadline`]).
    fn deadline(&self, index: usize, bytes: u64, thousandths: u64) -> Result<Nanos, CommandError> {
        let users = self
            .engine
            .transfers()
            .users_with(self.now, self.vms[index].id);
        match self.engine.transfers().total_bandwidth(users) {
            0 => Err(CommandError::Unmeasured),
            bandwidth => {
                let users = u32::try_from(users).unwrap_or(u32::MAX);
                let makespan = deadline::makespan(bytes, bandwidth, 0, users, false);
                Ok(deadline::with_tolerance(makespan, thousandths))
            }
        }
    }

    fn start_transfer(
        &mut self,
        index: usize,
        spec: &TransferSpec,
        since: Since,
    ) -> Result<(), CommandError> {
        let id = self.vms[index].id;
        let begun = self
            .engine
            .transfers_mut()
            .begin_transfer(self.now, id, spec);
        begun.map_err(|error| CommandError::Refused(error.to_string()))?;
        // The end of a replaced transfer must be recorded before the new one takes its place.
        self.take_ended_transfers();
        let transfers = &mut self.vms[index].transfers;
        // Counted twice, it would never be found to have ended.
        assert!(
            transfers.since.is_none(),
            "a transfer begins before the end of the one that it replaces was taken"
        );
        (transfers.since, transfers.miss_alert) = (Some(since), MissAlert::default());
        if let Some(placed_ns) = since.placed_ns {
            transfers.begun_placements.add(placed_ns);
        }
        self.running_transfers += 1;
        Ok(())
    }

    /// Cancels the deadline transfer of a VM.
    pub(super) fn cancel_transfer(&mut self, vm: &str) -> Result<VmSnapshot, CommandError> {
        let index = self.vms.named(vm)?;
        let ended = self
            .engine
            .transfers_mut()
            .end_transfer(self.now, self.vms[index].id);
        match ended.map_err(|error| CommandError::Refused(error.to_string()))? {
            Some(_) => self.take_ended_transfers(),
            None => return Err(CommandError::NoTransfer(vm.to_owned())),
        }
        Ok(self.vm_snapshot(index))
    }

    /// Returns the running transfers and begun placements by the name of their VM, in the form in
    /// which the store persists them.
    pub(super) fn export_transfers(&self) -> Vec<(String, PersistedTransfers)> {
        let kept = |(at, vm): (usize, &Vm)| {
            let transfers = PersistedTransfers {
                running: self.running_transfer(at).map(|it| it.to_persisted()),
                begun_placements: vm.transfers.begun_placements,
            };
            (!transfers.is_empty()).then(|| (vm.name.clone(), transfers))
        };
        self.vms.iter().filter_map(kept).collect()
    }

    /// Resumes persisted transfers, and restores which placements have begun; `at` is the present
    /// time of the wall clock.
    pub(super) fn resume_transfers(
        &mut self,
        kept: Vec<(String, PersistedTransfers)>,
        at: Timestamp,
    ) {
        for (vm, transfers) in kept {
            if let Ok(index) = self.vms.named(&vm) {
                self.vms[index].transfers.begun_placements = transfers.begun_placements;
            }
            let Some(transfer) = transfers.running else {
                continue;
            };
            // The difference below would otherwise wrap around to a transfer without an end.
            assert!(
                transfer.moved < transfer.bytes,
                "a transfer of VM {vm:?} to resume has moved {} of {} bytes",
                transfer.moved,
                transfer.bytes
            );
            let spec = TransferSpec {
                bytes: transfer.bytes - transfer.moved,
                // A transfer whose deadline passed while the daemon was down is late at once.
                deadline: transfer::between(at, transfer.due).max(Nanos(1)),
            };
            let since = Since {
                begun: transfer.begun,
                due: transfer.due,
                moved: transfer.moved,
                overdue: transfer::between(transfer.due, at),
                placed_ns: transfer.placed_ns,
            };
            let resumed = self
                .vms
                .named(&vm)
                .and_then(|index| self.start_transfer(index, &spec, since));
            match resumed {
                Ok(()) => {
                    tracing::info!(vm, left = spec.bytes, due = %transfer.due, "transfer resumed")
                }
                Err(error) => tracing::warn!(vm, "transfer not resumed: {error}"),
            }
        }
    }

    /// Records and logs the transfers that have ended since the last call.
    pub(super) fn take_ended_transfers(&mut self) {
        while let Some(end) = self.engine.transfers_mut().poll_transfer_end() {
            let place = self.vms.iter().find(|(_, vm)| vm.id == end.vm);
            // The VM was removed, and its transfer with it.
            let Some(index) = place.map(|(at, _)| at) else {
                continue;
            };
            // The engine's clock gives only how long ago the transfer ended.
            let at = transfer::before(Timestamp::now(), self.now.since(end.ended));
            self.record_end(index, &end, at);
        }
    }

    fn record_end(&mut self, index: usize, end: &TransferEnd, at: Timestamp) {
        let vm = &mut self.vms[index];
        let Some(since) = vm.transfers.since.take() else {
            return;
        };
        // A count that wraps would keep an idle loop awake for ever.
        assert!(
            self.running_transfers > 0,
            "a transfer ends that was not counted"
        );
        self.running_transfers -= 1;
        // Zero for a transfer that ended after its deadline.
        let left = end.transfer.due_time().since(end.ended);
        let ended = EndedTransfer {
            bytes: end.transfer.bytes.saturating_add(since.moved),
            // The last I/O may move more than was left.
            moved: (end.transfer.moved.min(end.transfer.bytes)).saturating_add(since.moved),
            begun: since.begun,
            due: since.due,
            ended: transfer::to_the_millisecond(at),
            // A resumed transfer that was overdue already cannot be early.
            early: match since.overdue {
                Nanos::ZERO => left,
                _ => Nanos::ZERO,
            },
            late: Nanos(end.late.0.saturating_add(since.overdue.0)),
            outcome: end.outcome,
            placed_ns: since.placed_ns,
        };
        vm.transfers.ended.count(ended.result());
        vm.transfers.last = Some(ended);
        log_end(&self.name, &vm.name, &ended);
        self.transfer_ended.notify_one();
    }

    /// Returns the running transfer, the last one and the tally of a VM.
    pub(super) fn vm_transfers(&self, index: usize) -> VmTransfers {
        let transfers = &self.vms[index].transfers;
        VmTransfers {
            running: self.running_transfer(index),
            last: transfers.last,
            ended: transfers.ended,
            begun_placements: transfers.begun_placements,
        }
    }

    fn running_transfer(&self, index: usize) -> Option<RunningTransfer> {
        let vm = &self.vms[index];
        let since = vm.transfers.since?;
        let status = self.engine.transfers().transfer(self.now, vm.id)?;
        let capacity = self.engine.transfers().best_bandwidth();
        let outlook = match (status.bandwidth, status.forecast.done) {
            // Without a measured bandwidth, neither of the VM nor of the device, nothing can be
            // forecast.
            (None, _) if capacity == 0 => Outlook::Unknown,
            (_, Nanos::MAX) => Outlook::Never,
            (_, done) => Outlook::In(done.since(self.now)),
        };
        Some(RunningTransfer {
            since,
            status,
            outlook,
            capacity,
            enforced: self.engine.policy().helps_transfers(),
        })
    }

    /// Logs the transfers that have become unable to meet their deadline since the last call.
    pub(super) fn log_missed_transfers(&mut self) {
        // Runs once a second, and most devices have no transfer.
        if self.running_transfers == 0 {
            return;
        }
        for vm in self
            .vms
            .values_mut()
            .filter(|vm| vm.transfers.since.is_some())
        {
            let Some(transfer) = self.engine.transfers().transfer(self.now, vm.id) else {
                continue;
            };
            if vm.transfers.miss_alert.update(self.now, transfer.given_up) {
                tracing::warn!(
                    device = %self.name,
                    vm = vm.name,
                    late = span(transfer.forecast.late),
                    "the transfer cannot meet its deadline as things are, and gets what other VMs \
                     leave: give it more time, or move a VM to another device"
                );
            }
        }
    }
}

fn log_end(device: &str, vm: &str, transfer: &EndedTransfer) {
    let (bytes, took) = (
        transfer.bytes,
        span(transfer::between(transfer.begun, transfer.ended)),
    );
    match transfer.result() {
        TransferResult::Met => {
            tracing::info!(
                device,
                vm,
                bytes,
                took,
                early = span(transfer.early),
                "transfer met its deadline"
            );
        }
        TransferResult::Missed => {
            tracing::warn!(
                device,
                vm,
                bytes,
                took,
                late = span(transfer.late),
                "transfer missed its deadline"
            );
        }
        TransferResult::Cancelled => {
            tracing::info!(
                device,
                vm,
                bytes,
                moved = transfer.moved,
                "transfer cancelled"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_transfer_is_given_up_is_said_once_and_no_more_often_than_once_a_minute() {
        let mut given_up = MissAlert::default();
        let mut update = |second, is| given_up.update(Nanos::from_secs(second), is);
        assert!(!update(1, false));
        assert!(update(2, true));
        assert!(!update(3, true), "it was said");
        assert!(!update(90, true));
        assert!(!update(91, false));
        assert!(update(92, true), "once more, and not lately");
        assert!(!update(93, false));
        assert!(!update(94, true), "lately");
        assert!(update(152, true), "it still is");
    }
}
