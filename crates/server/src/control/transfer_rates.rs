//! Rates that running deadline transfers need, as admission and budgets count them.

use jiff::Timestamp;

use crate::command::DeviceSnapshot;

/// Rate that a running deadline transfer needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TransferRate {
    /// Name of its VM.
    pub(super) vm: String,
    /// Bytes per second that it needs to end in time; 0 once its deadline has passed.
    pub(super) bytes_per_s: u64,
    /// Deadline, after which it is promised nothing.
    pub(super) due: Timestamp,
}

/// Returns the rates that the running transfers of a device need.
pub(super) fn transfer_rates(snapshot: &DeviceSnapshot) -> Vec<TransferRate> {
    let rates = snapshot.vms.iter().filter_map(|vm| {
        let running = vm.transfers.running?;
        let transfer = running.status.transfer;
        Some(TransferRate {
            vm: vm.name.clone(),
            bytes_per_s: transfer.required_bytes_per_s(snapshot.taken_at),
            due: running.since.due,
        })
    });
    rates.collect()
}

/// Returns the bytes per second that the running transfer of a VM needs at a time, or now for
/// `None`; 0 if none runs then.
///
/// A transfer that is served at the rate that it needs now needs the same rate until its deadline.
pub(super) fn needed_at(rates: &[TransferRate], vm: &str, time: Option<Timestamp>) -> u64 {
    let own = rates.iter().find(|rate| rate.vm == vm);
    let running = own.filter(|rate| time.is_none_or(|time| rate.due > time));
    running.map_or(0, |rate| rate.bytes_per_s)
}
