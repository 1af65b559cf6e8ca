//! Admission control: rejects an objective or a transfer that the device cannot keep beside the
//! other VMs' objectives.

use axum::http::StatusCode;
use jiff::Timestamp;
use tidegate_core::fit::{self, Assumed, PlannedVm};
use tidegate_core::objective::Objective;
use tidegate_units::human::exact_bytes;

use super::error::{ApiError, ApiResult};
use crate::config::{DeviceConfig, Schedule, VmConfig};
use crate::feasibility;

/// Upper end of the search for a rate that fits, in bytes per second: more than any device moves.
const TRANSFER_MAX: u64 = 1 << 40;

/// Requested objective of a VM, which may be new, and the VMs that share its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal<'a> {
    /// Device of the VM; its profile, if any, tells what fits.
    pub(super) device: &'a DeviceConfig,
    /// VMs on the device with their present objectives; the VM itself may be among them.
    pub(super) vms: &'a [VmConfig],
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
            let mut refusal = self.refusal_given(asked(time)?, |vm| vm.promised_at(time))?;
            let when = feasibility::format_local(time, promised.zone());
            refusal.why = format!("from {when} on {}", refusal.why);
            Some(refusal)
        })
    }

    /// Returns the reason why an objective does not fit beside those in force now; `None` if it
    /// fits.
    pub(super) fn refusal_now(&self, objective: &Objective) -> Option<Refusal> {
        self.refusal_given(objective, |vm| &vm.objective)
    }

    /// Returns the highest rate in bytes per second of a transfer of the VM that fits beside the
    /// objectives in force and the running transfers, given as VM and bytes per second. `None` if
    /// `needs` fits, or if nothing is known about the device. On a device that is overcommitted
    /// already, a transfer that makes it worse does not fit.
    pub(super) fn fitting_transfer(
        &self,
        needs: Option<u64>,
        running: &[(String, u64)],
    ) -> Option<u64> {
        let device = feasibility::device(self.device)?;
        let assumed = Assumed::default();
        let before = fit::evaluate(&device, &self.with_transfer(0, running), &assumed);
        let fits = |rate: u64| {
            let fit = fit::evaluate(&device, &self.with_transfer(rate, running), &assumed);
            fit.fits() || !fit.is_worse_than(&before)
        };
        if needs.is_some_and(fits) {
            return None;
        }
        // Bisection to a precision of 1/128 of the rate: each probe computes the fit of all VMs. 0
        // always counts as fitting, because `before` is computed with it.
        let (mut yes, mut no) = (0, needs.unwrap_or(TRANSFER_MAX));
        while no - yes > (yes / 128).max(1) {
            let middle = yes + (no - yes) / 2;
            *(if fits(middle) { &mut yes } else { &mut no }) = middle;
        }
        Some(yes)
    }

    /// Returns the promise that a transfer of the VM at `rate` bytes per second would break, in
    /// words, with the size that is assumed of its requests. Empty if it is not known.
    pub(super) fn broken_by_transfer(&self, rate: u64, running: &[(String, u64)]) -> String {
        let Some(device) = feasibility::device(self.device) else {
            return String::new();
        };
        let vms = self.with_transfer(rate, running);
        let fit = fit::evaluate(&device, &vms, &Assumed::default());
        let mut reason = fit.reason(&vms);
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

    /// Returns the VMs of the device with a transfer of the VM at `rate` bytes per second beside
    /// the running ones, given as VM and bytes per second.
    fn with_transfer(&self, rate: u64, running: &[(String, u64)]) -> Vec<PlannedVm<'_>> {
        let transfer = |vm: &VmConfig| {
            let running = running.iter().find(|(name, _)| *name == vm.name);
            if vm.name == self.vm {
                rate
            } else {
                running.map_or(0, |(_, rate)| *rate)
            }
        };
        let vms = self.vms.iter();
        vms.map(|vm| PlannedVm {
            transfer: transfer(vm),
            ..feasibility::planned_vm(vm)
        })
        .collect()
    }

    /// Returns the reason why an objective does not fit if the other VMs have the objectives that
    /// `theirs` gives; `None` if it fits.
    fn refusal_given<'a>(
        &'a self,
        objective: &'a Objective,
        theirs: impl Fn(&'a VmConfig) -> &'a Objective,
    ) -> Option<Refusal> {
        let device = feasibility::device(self.device)?;
        let before: Vec<PlannedVm<'_>> = (self.vms.iter())
            .map(|vm| feasibility::planned_vm_with(vm, theirs(vm)))
            .collect();
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
        let (why, instead) = fit::refusal(&device, &after, which, &assumed)?;
        Some(Refusal { why, instead })
    }
}
