//! Admission control: rejects an objective or a transfer that the device cannot keep beside the
//! other VMs' objectives.

use axum::http::StatusCode;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::fit::{self, Assumed, PlannedVm};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_units::human::{bytes_per_s, exact_bytes};

use super::error::{ApiError, ApiResult};
use super::transfer_rates::{TransferRate, needed_at};
use crate::config::{DeviceConfig, Schedule, VmConfig};
use crate::feasibility;
use crate::transfer::{TransferOrder, after};

/// Upper end of the search for a rate that fits, in bytes per second: more than any device moves.
const TRANSFER_MAX: u64 = 1 << 40;

/// Requested objective of a VM, which may be new, and the VMs that share its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal<'a> {
    /// Device of the VM; its profile, if any, tells what fits.
    pub(super) device: &'a DeviceConfig,
    /// VMs on the device with their present objectives; the VM itself may be among them.
    pub(super) vms: &'a [VmConfig],
    /// Running deadline transfers of these VMs, each counted until its deadline.
    pub(super) running: &'a [TransferRate],
    /// Name of the VM.
    pub(super) vm: &'a str,
    /// True for a process of the host. It gets what the VMs leave, so its objective always fits.
    pub(super) background: bool,
}

/// Reason for which an objective does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// Resource of which there is too little.
    pub(super) why: String,
    /// Nearest objective that would fit.
    instead: String,
}

/// Returns true if a device can keep the objectives that its VMs have at a time. Without a profile
/// nothing is known to be too much.
pub(super) fn fits_at(device: &DeviceConfig, vms: &[VmConfig], time: Timestamp) -> bool {
    let Some(device) = feasibility::device(device) else {
        return true;
    };
    let planned: Vec<_> = (vms.iter())
        .map(|vm| feasibility::planned_vm_with(vm, vm.promised_at(time)))
        .collect();
    fit::evaluate(&device, &planned, &Assumed::default()).fits()
}

impl Proposal<'_> {
    /// Rejects an objective that does not fit, now or at a later time of any schedule on the
    /// device, unless it is forced. To be called before anything is opened or changed. Without a
    /// profile every objective is admitted. On a device that is overcommitted already, an objective
    /// that makes it no worse is admitted.
    ///
    /// # Errors
    /// 409 with the resource of which there is too little, and the nearest objective that would
    /// fit.
    pub(super) fn check(&self, promised: &Schedule, now: Timestamp, force: bool) -> ApiResult<()> {
        let Some(Refusal { why, instead }) = self.refusal(promised, now) else {
            return Ok(());
        };
        let (vm, device) = (self.vm, self.device.name.as_str());
        if force {
            let why = format_args!("admitted with force although it does not fit: {why}");
            tracing::warn!(vm, device, "{why}");
            return Ok(());
        }
        tracing::info!(vm, device, "rejected, it does not fit: {why}");
        let error = ApiError::new(StatusCode::CONFLICT, format!("does not fit: {why}"), vm);
        let instead = format!("{instead}; or ?force=true, to set it anyway");
        Err(error.allowing(instead))
    }

    fn refusal(&self, promised: &Schedule, now: Timestamp) -> Option<Refusal> {
        // Without a profile, nothing can be computed for any time.
        self.device.scheduling.profile.as_ref()?;
        // An entry with `force` was asked for although it may not fit.
        let asked = |time: Timestamp| {
            let then = promised.in_force_at(time);
            let forced = then.entry.is_some_and(|at| promised.entries()[at].force);
            (!forced).then_some(then.objective)
        };
        let at_once = asked(now).and_then(|objective| self.refusal_now(objective));
        if at_once.is_some() {
            return at_once;
        }
        let others = self.vms.iter().filter_map(|vm| vm.schedule.as_deref());
        let moments = feasibility::schedule_changes(others.chain([promised]), now);
        moments.into_iter().find_map(|time| {
            let mut refusal = self.refusal_at(asked(time)?, Some(time))?;
            let when = feasibility::format_local(time, promised.zone());
            refusal.why = format!("from {when} on {}", refusal.why);
            Some(refusal)
        })
    }

    /// Returns the reason why an objective does not fit beside those in force now; `None` if it
    /// fits.
    pub(super) fn refusal_now(&self, objective: &Objective) -> Option<Refusal> {
        self.refusal_at(objective, None)
    }

    /// Returns the highest rate in bytes per second of a transfer of the VM that fits, until it
    /// ends, beside the objectives of all VMs, their schedules and the running transfers. `None` if
    /// the rate that `order` needs fits, or if nothing is known about the device. On a device that
    /// is overcommitted already, a transfer that makes it worse does not fit.
    ///
    /// The deadline that follows from a tolerance is not known here, so all changes of schedules
    /// count for it.
    pub(super) fn fitting_transfer(&self, order: &TransferOrder, now: Timestamp) -> Option<u64> {
        let device = feasibility::device(self.device)?;
        let deadline = order.due.span(now);
        let mut most = TRANSFER_MAX;
        if let Some(deadline) = deadline {
            most = order.needs(deadline);
            self.broken_moment(&device, most, Some(after(now, deadline)), now)?;
        }
        for time in self.moments(None, now) {
            // At a lower rate a transfer ends later, and has to fit beside more changes.
            let ends = |deadline: Nanos| after(now, deadline.max(order.takes(most)));
            if deadline.is_some_and(|deadline| time.is_some_and(|time| time >= ends(deadline))) {
                break;
            }
            most = self.most_at(&device, most, time);
        }
        Some(most)
    }

    /// Returns the promise that the transfer which `order` asks for would break at `needs` bytes
    /// per second, in words, with the time and the size that is assumed of its requests. Empty if
    /// it is not known.
    pub(super) fn broken_by_transfer(
        &self,
        order: &TransferOrder,
        needs: u64,
        now: Timestamp,
    ) -> String {
        let Some(device) = feasibility::device(self.device) else {
            return String::new();
        };
        let due = order.due.span(now).map(|deadline| after(now, deadline));
        let time = self.broken_moment(&device, needs, due, now).flatten();
        let vms = self.with_transfer(needs, time);
        let fit = fit::evaluate(&device, &vms, &Assumed::default());
        let mut reason = fit.reason(&vms);
        if let Some(time) = time.filter(|_| !reason.is_empty()) {
            let when = feasibility::format_local(time, TimeZone::system());
            reason = format!("from {when} on {reason}");
        }
        let own = vms.iter().zip(&fit.needs);
        for (vm, need) in own.filter(|(vm, _)| vm.name == self.vm) {
            let promised = [&vm.objective.reservation, &vm.objective.target];
            // Otherwise the size is that of a bandwidth, as of any transfer.
            if vm.objective.expects.size.is_none() && promised.iter().any(|rate| !rate.is_none()) {
                reason.push_str(&format!(
                    "; requests of {} are assumed for VM {}, which has a promise without \
                     expects.size",
                    exact_bytes(need.load.size.into()),
                    vm.name
                ));
            }
        }
        reason
    }

    /// Returns now (`None`) and the times before `due` at which schedules change an objective, in
    /// ascending order. Without `due` all changes count.
    fn moments(&self, due: Option<Timestamp>, now: Timestamp) -> Vec<Option<Timestamp>> {
        let schedules = self.vms.iter().filter_map(|vm| vm.schedule.as_deref());
        let changes = feasibility::schedule_changes(schedules, now).into_iter();
        let changes = changes.filter(|time| due.is_none_or(|due| *time < due));
        [None].into_iter().chain(changes.map(Some)).collect()
    }

    /// Returns the first moment before `due` at which a transfer of the VM at `rate` bytes per
    /// second does not fit; `None` if it always fits.
    fn broken_moment(
        &self,
        device: &fit::Device<'_>,
        rate: u64,
        due: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Option<Timestamp>> {
        let mut moments = self.moments(due, now).into_iter();
        moments.find(|time| !self.fits_with_transfer(device, rate, *time))
    }

    /// Returns the highest rate up to `most` of a transfer of the VM that fits at a moment, to a
    /// precision of 1/128.
    fn most_at(&self, device: &fit::Device<'_>, most: u64, time: Option<Timestamp>) -> u64 {
        if self.fits_with_transfer(device, most, time) {
            return most;
        }
        // Each probe computes the fit of all VMs. 0 always counts as fitting, because it is what a
        // transfer is compared with.
        let (mut yes, mut no) = (0, most);
        while no - yes > (yes / 128).max(1) {
            let middle = yes + (no - yes) / 2;
            *(if self.fits_with_transfer(device, middle, time) {
                &mut yes
            } else {
                &mut no
            }) = middle;
        }
        yes
    }

    /// Returns true if a transfer of the VM at `rate` bytes per second fits at a moment, or makes a
    /// device that is overcommitted no worse.
    fn fits_with_transfer(
        &self,
        device: &fit::Device<'_>,
        rate: u64,
        time: Option<Timestamp>,
    ) -> bool {
        let evaluate =
            |rate| fit::evaluate(device, &self.with_transfer(rate, time), &Assumed::default());
        let fit = evaluate(rate);
        fit.fits() || !fit.is_worse_than(&evaluate(0))
    }

    /// Returns the VMs of the device as they are promised at a moment, with their running
    /// transfers.
    fn planned_at(&self, time: Option<Timestamp>) -> Vec<PlannedVm<'_>> {
        let planned = self.vms.iter().map(|vm| {
            let objective = time.map_or(&vm.objective, |time| vm.promised_at(time));
            PlannedVm {
                transfer: needed_at(self.running, &vm.name, time),
                ..feasibility::planned_vm_with(vm, objective)
            }
        });
        planned.collect()
    }

    /// Returns [`Proposal::planned_at`] with a transfer of the VM at `rate` bytes per second in
    /// place of the one that runs.
    fn with_transfer(&self, rate: u64, time: Option<Timestamp>) -> Vec<PlannedVm<'_>> {
        let mut planned = self.planned_at(time);
        for vm in planned.iter_mut().filter(|vm| vm.name == self.vm) {
            vm.transfer = rate;
        }
        planned
    }

    /// Returns the reason why an objective does not fit at a moment beside what the other VMs are
    /// promised then; `None` if it fits.
    fn refusal_at(&self, objective: &Objective, time: Option<Timestamp>) -> Option<Refusal> {
        let device = feasibility::device(self.device)?;
        let before = self.planned_at(time);
        let there = before.iter().position(|vm| vm.name == self.vm);
        let new = PlannedVm {
            background: self.background,
            // Space for a new VM's disks is checked when the device places them.
            disk_bytes: there.map_or(0, |at| before[at].disk_bytes),
            transfer: there.map_or(0, |at| before[at].transfer),
            ..PlannedVm::new(self.vm, objective)
        };
        let mut after = before.clone();
        // Replaces the VM's present objective, or appends a VM that is new.
        let which = there.unwrap_or(before.len());
        after.splice(which..(which + 1).min(before.len()), [new]);
        let assumed = Assumed::default();
        let would_be = fit::evaluate(&device, &after, &assumed);
        // The second computation is needed only if the objective does not fit: a schedule has many
        // times to check, and most of them are fine.
        if would_be.fits() || !would_be.is_worse_than(&fit::evaluate(&device, &before, &assumed)) {
            return None;
        }
        let (mut why, instead) = fit::refusal(&device, &after, which, &assumed)?;
        // An operator does not see them among the objectives.
        let transfers = after.iter().map(|vm| vm.transfer);
        let transfers = transfers.fold(0, u64::saturating_add);
        if transfers > 0 {
            let rate = bytes_per_s(transfers as f64);
            why.push_str(&format!("; deadline transfers that run need {rate}"));
        }
        Some(Refusal { why, instead })
    }
}
