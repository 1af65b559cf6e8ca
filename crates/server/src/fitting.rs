//! Whether what a configuration promises fits its devices: what [`tidegate_core::fit`] is told.

use tidegate_core::fit::{self, Assumed, Tenant};

use crate::config::{Config, DeviceConfig, DeviceKind, Diagnostic, VmConfig};

/// A device as plans see it. `None`: it has no profile.
pub fn device(config: &DeviceConfig) -> Option<fit::Device<'_>> {
    Some(fit::Device {
        profile: config.profile.as_deref()?,
        depth: config.depth,
        max_io: config.max_io,
        merge_limit: config.merge_limit,
        capacity: capacity(&config.kind),
    })
}

/// Bytes that a device holds; `None`: what its file system, or memory, has room for.
pub fn capacity(kind: &DeviceKind) -> Option<u64> {
    match kind {
        DeviceKind::Emulated { model } => Some(model.spec().capacity),
        DeviceKind::File | DeviceKind::Memory => None,
    }
}

/// Whose disks lie on a device, in the order of the configuration.
pub fn tenants(config: &Config, device: usize) -> Vec<Tenant<'_>> {
    of_device(&config.vms, device)
}

fn of_device(vms: &[VmConfig], device: usize) -> Vec<Tenant<'_>> {
    let on_it = vms.iter().filter(|vm| vm.device == device);
    on_it.map(tenant).collect()
}

/// A VM as plans see it. A disk that is as large as its file counts nothing.
pub fn tenant(vm: &VmConfig) -> Tenant<'_> {
    let sizes = vm.disks.iter().filter_map(|disk| disk.size);
    Tenant {
        name: &vm.name,
        objective: &vm.objective,
        background: vm.background,
        disk_bytes: sizes.fold(0, u64::saturating_add),
    }
}

/// A warning for each device that cannot do what these VMs are promised on it. It is served all the same: whoever
/// starts a daemon wants its VMs' disks, and each gets less rather than nothing.
pub fn warnings(devices: &[DeviceConfig], vms: &[VmConfig]) -> Vec<Diagnostic> {
    let assumed = Assumed::default();
    (devices.iter().enumerate())
        .filter_map(|(index, it)| {
            let tenants = of_device(vms, index);
            let reason = fit::reckon(&device(it)?, &tenants, &assumed).reason(&tenants);
            let what = Some(reason).filter(|reason| !reason.is_empty())?;
            let mut warning = Diagnostic::error(what)
                .warning()
                .at(format!("device {:?}", it.name), &(0..0))
                .allowing("`tidegate plan` says what would fit");
            warning.place = it.place.clone();
            Some(warning)
        })
        .collect()
}
