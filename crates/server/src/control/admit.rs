//! Whether what is asked for is taken in: the one place that says no to an objective that the
//! device cannot keep beside the others.

use axum::http::StatusCode;
use jiff::Timestamp;
use tidegate_core::fit::{self, Assumed, Tenant};
use tidegate_core::objective::Objective;

use super::error::{ApiError, ApiResult};
use crate::config::{DeviceConfig, Schedule, VmConfig};
use crate::fitting;

/// Bytes a second that no device moves.
const TRANSFER_MAX: u64 = 1 << 40;

/// What would be in force for a VM, new or not, beside what is for the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal<'a> {
    /// The device it is or would be on, with its profile, if it has one.
    pub(super) device: &'a DeviceConfig,
    /// Who is on it now, with what they are promised. The VM may be among them, with what it has
    /// now.
    pub(super) vms: &'a [VmConfig],
    /// The VM.
    pub(super) vm: &'a str,
    /// A process of the host: it has what the VMs leave, and is promised nothing that could not
    /// be kept.
    pub(super) background: bool,
}

/// Why an objective does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// What there is too little of.
    pub(super) why: String,
    /// The nearest objective that would fit.
    instead: String,
}

/// Whether a device can keep all that its VMs are promised at a time.
pub(super) fn fits_at(device: &DeviceConfig, vms: &[VmConfig], time: Timestamp) -> bool {
    let Some(device) = fitting::device(device) else {
        return true;
    };
    let tenants: Vec<_> = (vms.iter())
        .map(|vm| fitting::tenant_with(vm, vm.promised_at(time)))
        .collect();
    fit::reckon(&device, &tenants, &Assumed::default()).fits()
}

impl Proposal<'_> {
    /// Refuses what does not fit, now or at any time as far as its own and the others' schedules
    /// are looked at ahead, unless it is forced. Called before anything is opened or changed.
    /// Without a profile nobody knows what a device can do, and everything is taken in; and where
    /// too much is promised already, so is what makes that no worse.
    ///
    /// # Errors
    /// 409 with what there is too little of, and the nearest objective that would fit.
    pub(super) fn check(&self, promised: &Schedule, now: Timestamp, force: bool) -> ApiResult<()> {
        let Some(Refusal { why, instead }) = self.refusal(promised, now) else {
            return Ok(());
        };
        let (vm, device) = (self.vm, self.device.name.as_str());
        if force {
            let why = format_args!("taken in by force though it does not fit: {why}");
            tracing::warn!(vm, device, "{why}");
            return Ok(());
        }
        tracing::info!(vm, device, "refused, it does not fit: {why}");
        let error = ApiError::new(StatusCode::CONFLICT, format!("does not fit: {why}"), vm);
        let instead = format!("{instead}; or ?force=true, to promise it all the same");
        Err(error.allowing(instead))
    }

    fn refusal(&self, promised: &Schedule, now: Timestamp) -> Option<Refusal> {
        // Nothing is reckoned for any time without one.
        self.device.scheduling.profile.as_ref()?;
        // An entry that is to come by force is nobody's question.
        let asked = |time: Timestamp| {
            let then = promised.at(time);
            let forced = then.entry.is_some_and(|at| promised.entries()[at].force);
            (!forced).then_some(then.objective)
        };
        let at_once = asked(now).and_then(|objective| self.refusal_now(objective));
        if at_once.is_some() {
            return at_once;
        }
        let others = self.vms.iter().filter_map(|vm| vm.schedule.as_deref());
        let moments = fitting::moments(others.chain([promised]), now);
        moments.into_iter().find_map(|time| {
            let mut refusal = self.beside(asked(time)?, |vm| vm.promised_at(time))?;
            let when = fitting::written(time, promised.zone());
            refusal.why = format!("from {when} on {}", refusal.why);
            Some(refusal)
        })
    }

    /// Why an objective does not fit beside what is in force now, if so.
    pub(super) fn refusal_now(&self, objective: &Objective) -> Option<Refusal> {
        self.beside(objective, |vm| &vm.objective)
    }

    /// Returns the bytes a second that a transfer of the VM may need at most beside what is in
    /// force now, and beside transfers that run (VM, bytes a second); `None`: `needs` fits, or
    /// nobody knows what the device can do. Where too much is promised already, a transfer that
    /// makes it worse does not fit.
    pub(super) fn fitting_transfer(
        &self,
        needs: Option<u64>,
        running: &[(&str, u64)],
    ) -> Option<u64> {
        let device = fitting::device(self.device)?;
        let with = |rate: u64| -> Vec<Tenant<'_>> {
            let transfer = |vm: &VmConfig| {
                let its = running.iter().find(|(name, _)| *name == vm.name);
                match vm.name == self.vm {
                    true => rate,
                    false => its.map_or(0, |its| its.1),
                }
            };
            let vms = self.vms.iter();
            let vms = vms.map(|vm| Tenant {
                transfer: transfer(vm),
                ..fitting::tenant(vm)
            });
            vms.collect()
        };
        let assumed = Assumed::default();
        let before = fit::reckon(&device, &with(0), &assumed);
        let fits = |rate: u64| {
            let fit = fit::reckon(&device, &with(rate), &assumed);
            fit.fits() || !fit.is_worse_than(&before)
        };
        if needs.is_some_and(fits) {
            return None;
        }
        let (mut yes, mut no) = (0, needs.unwrap_or(TRANSFER_MAX));
        while no - yes > (yes / 128).max(1) {
            let middle = yes + (no - yes) / 2;
            *(if fits(middle) { &mut yes } else { &mut no }) = middle;
        }
        Some(yes)
    }

    /// Why an objective does not fit where the others have what `theirs` says.
    fn beside<'a>(
        &'a self,
        objective: &'a Objective,
        theirs: impl Fn(&'a VmConfig) -> &'a Objective,
    ) -> Option<Refusal> {
        let device = fitting::device(self.device)?;
        let before: Vec<Tenant<'_>> = (self.vms.iter())
            .map(|vm| fitting::tenant_with(vm, theirs(vm)))
            .collect();
        let there = before.iter().position(|vm| vm.name == self.vm);
        let new = Tenant {
            background: self.background,
            // Whether a new one's disks find room is seen when they are placed.
            disk_bytes: there.map_or(0, |at| before[at].disk_bytes),
            transfer: there.map_or(0, |at| before[at].transfer),
            ..Tenant::new(self.vm, objective)
        };
        let mut after = before.clone();
        let which = there.unwrap_or(before.len());
        after.splice(which..(which + 1).min(before.len()), [new]);
        let assumed = Assumed::default();
        let would_be = fit::reckon(&device, &after, &assumed);
        // With a schedule there are many times to reckon for, at most of which all is well.
        if would_be.fits() || !would_be.is_worse_than(&fit::reckon(&device, &before, &assumed)) {
            return None;
        }
        let (why, instead) = fit::refusal(&device, &after, which, &assumed)?;
        Some(Refusal { why, instead })
    }
}
