//! Whether what is asked for is taken in: the one place that says no to an objective that the
//! device cannot keep beside the others.

use axum::http::StatusCode;
use tidegate_core::fit::{self, Assumed, Tenant};
use tidegate_core::objective::Objective;

use super::error::{ApiError, ApiResult};
use crate::config::{DeviceConfig, VmConfig};
use crate::fitting;

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
    /// All of what it would be promised.
    pub(super) objective: &'a Objective,
}

/// Refuses what does not fit, unless it is forced. Called before anything is opened or changed.
/// Without a profile nobody knows what a device can do, and everything is taken in; and where too
/// much is promised already, so is what makes that no worse.
///
/// # Errors
/// 409 with what there is too little of, and the nearest objective that would fit.
pub(super) fn check(proposal: &Proposal<'_>, force: bool) -> ApiResult<()> {
    let Some((why, instead)) = refusal(proposal) else {
        return Ok(());
    };
    let (vm, device) = (proposal.vm, proposal.device.name.as_str());
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

/// Why it does not fit, and what would.
fn refusal(proposal: &Proposal<'_>) -> Option<(String, String)> {
    let device = fitting::device(proposal.device)?;
    let before: Vec<Tenant<'_>> = proposal.vms.iter().map(fitting::tenant).collect();
    let there = before.iter().position(|vm| vm.name == proposal.vm);
    let new = Tenant {
        name: proposal.vm,
        objective: proposal.objective,
        background: proposal.background,
        // Whether a new one's disks find room is seen when they are placed.
        disk_bytes: there.map_or(0, |at| before[at].disk_bytes),
    };
    let mut after = before.clone();
    let which = there.unwrap_or(before.len());
    after.splice(which..(which + 1).min(before.len()), [new]);
    let assumed = Assumed::default();
    let was = fit::reckon(&device, &before, &assumed);
    let would_be = fit::reckon(&device, &after, &assumed);
    match would_be.is_worse_than(&was) {
        true => fit::refusal(&device, &after, which, &assumed),
        false => None,
    }
}
