//! `[[vm]]` and `[[vm.disk]]`: who is served, and which bytes are theirs.

use std::path::PathBuf;

use tidegate_config::diagnose::one_of;
use tidegate_config::{Field, Names, Section, enforced};
use tidegate_core::objective::Objective;
use tidegate_device::units;

use super::device::{Draft, Kind};
use super::parse::Context;
use super::{Create, DiskConfig, DiskFormat, VmConfig, fault, objective};

/// More than any file system holds, and well below the largest offset there is.
const SIZE_MAX: u64 = 1 << 60;
/// NBD's longest name.
const EXPORT_NAME_MAX: usize = 4096;
const DEFAULT_BLOCK_SIZE: u32 = 512;
const BLOCK_SIZES: [u64; 3] = [1, 512, 4096];

/// What must be unique over all VMs.
struct Seen<'a> {
    vms: Names,
    exports: &'a mut Names,
    paths: Names,
    /// Bytes that disks take on each device.
    used: Vec<u64>,
}

/// Reads every VM. `None` where something was wrong with it, which has been reported. `files` are
/// those that are taken already.
pub(crate) fn read_all(
    fields: &[Field<'_>],
    devices: &[Draft<'_>],
    exports: &mut Names,
    files: Names,
    context: &Context<'_>,
) -> Vec<Option<VmConfig>> {
    let mut seen = Seen {
        vms: Names::default(),
        exports,
        paths: files,
        used: vec![0; devices.len()],
    };
    fields
        .iter()
        .map(|field| read(field, devices, &mut seen, context))
        .collect()
}

fn read(
    field: &Field<'_>,
    devices: &[Draft<'_>],
    seen: &mut Seen<'_>,
    context: &Context<'_>,
) -> Option<VmConfig> {
    let field = field.labelled("vm");
    let mut section = field.section()?;
    let name = section.own_name("VM", "oltp", &mut seen.vms);
    let device = device(&mut section, devices);
    let background = section.read("background", false, Field::flag);
    let objective = match section.take("objective") {
        Some(field) => {
            let objective = objective::from_field(&field, &Objective::default());
            let policy = device.and_then(|device| devices[device].policy.as_ref());
            if let (Some(objective), Some(policy)) = (&objective, policy) {
                enforced::warn(&field, objective, policy, background.unwrap_or(false));
            }
            objective
        }
        None => Some(Objective::default()),
    };
    let fields = section.take_tables("disk");
    if fields.is_empty() {
        section.error("the VM has no disk", "add a [[vm.disk]] below it");
    }
    let disks: Vec<_> = fields
        .iter()
        .map(|field| disk(field, name.as_deref(), device, devices, seen, context))
        .collect();
    section.finish();
    Some(VmConfig {
        name: name?,
        device: device?,
        background: background?,
        objective: objective?,
        disks: disks.into_iter().collect::<Option<_>>()?,
    })
}

/// Which device a VM lives on: the only one unless it says.
fn device(section: &mut Section<'_>, devices: &[Draft<'_>]) -> Option<usize> {
    let names = || devices.iter().filter_map(|device| device.name.as_deref());
    let Some(field) = section.take("device") else {
        if devices.len() > 1 {
            let allowed = format!("device = {}", one_of(names()));
            section.error("does not say which device it is on", &allowed);
        }
        return (devices.len() == 1).then_some(0);
    };
    let wanted = field.reference("device", names())?;
    devices
        .iter()
        .position(|device| device.name.as_deref() == Some(wanted))
}

fn disk(
    field: &Field<'_>,
    vm: Option<&str>,
    device: Option<usize>,
    devices: &[Draft<'_>],
    seen: &mut Seen<'_>,
    context: &Context<'_>,
) -> Option<DiskConfig> {
    let mut section = field.section()?;
    let kind = device.and_then(|device| devices[device].kind);
    let export = export(&mut section, field, vm, seen);
    let path = path(&mut section, kind, seen, context);
    let block_size = block_size(&mut section);
    let size = size(
        &mut section,
        block_size,
        kind,
        matches!(path, Some(Some(_))),
    );
    let create = section.choice(
        "create",
        Create::No,
        &[
            ("no", Create::No),
            ("sparse", Create::Sparse),
            ("preallocated", Create::Preallocated),
        ],
    );
    let format = section.choice("format", DiskFormat::Probe, &[("raw", DiskFormat::Raw)]);
    let read_only = match section.take("read_only") {
        Some(field) => field.flag(),
        None => Some(false),
    };
    check_create(&section, create, kind, size, read_only);
    let faults = fault::read_all(&section.take_tables("fault"), size.flatten());
    section.finish();
    if let (Some(device), Some(Some(size))) = (device, size) {
        check_capacity(field, size, &devices[device], &mut seen.used[device]);
    }
    Some(DiskConfig {
        export: export?,
        path: path?,
        size: size?,
        create: create?,
        format: format?,
        read_only: read_only?,
        block_size: block_size?,
        faults: faults?,
        place: field.find("path").unwrap_or_else(|| field.clone()).place(),
    })
}

fn export(
    section: &mut Section<'_>,
    disk: &Field<'_>,
    vm: Option<&str>,
    seen: &mut Seen<'_>,
) -> Option<String> {
    let Some(field) = section.take("export") else {
        let name = vm?.to_owned();
        if seen.exports.contains(&name) {
            disk.error(
                format!("its export would be called {name:?} like another one"),
                &format!("name it: export = \"{name}-data\""),
            );
        } else {
            seen.exports.claim(&name, "export", disk);
        }
        return Some(name);
    };
    let name = field.text()?;
    if name.is_empty() || name.len() > EXPORT_NAME_MAX || name.contains(char::is_control) {
        field.error(
            format!("{} cannot be an export's name", field.describe()),
            "1 to 4096 bytes without control characters",
        );
        return None;
    }
    seen.exports.claim(name, "export", &field);
    Some(name.to_owned())
}

fn path(
    section: &mut Section<'_>,
    kind: Option<Kind>,
    seen: &mut Seen<'_>,
    context: &Context<'_>,
) -> Option<Option<PathBuf>> {
    let Some(field) = section.take("path") else {
        if kind == Some(Kind::File) {
            let allowed = "the file or block device that holds it: path = \"oltp.raw\"";
            section.error("`path` is missing", allowed);
            return None;
        }
        return Some(None);
    };
    if kind == Some(Kind::Memory) {
        field.error(
            "disks of a memory device have no path",
            "leave it out, or kind = \"file\"",
        );
        return None;
    }
    let path = context.path(&field)?;
    seen.paths
        .claim(&path.display().to_string(), "file", &field);
    Some(Some(path))
}

fn block_size(section: &mut Section<'_>) -> Option<u32> {
    let Some(field) = section.take("block_size") else {
        return Some(DEFAULT_BLOCK_SIZE);
    };
    let bytes = field.bytes(0..=u64::MAX)?;
    if !BLOCK_SIZES.contains(&bytes) {
        field.error(
            format!("{} is no block size", field.describe()),
            "\"1 B\" (any range, by reading, changing and writing back), \"512 B\" or \"4 KiB\"",
        );
        return None;
    }
    u32::try_from(bytes).ok()
}

fn size(
    section: &mut Section<'_>,
    block_size: Option<u32>,
    kind: Option<Kind>,
    has_path: bool,
) -> Option<Option<u64>> {
    let Some(field) = section.take("size") else {
        let needed = match kind {
            Some(Kind::Memory) => true,
            Some(Kind::Emulated) => !has_path,
            Some(Kind::File) | None => false,
        };
        if needed {
            section.error(
                "`size` is missing",
                "a disk in memory has the size it is told: size = \"1 GiB\"",
            );
            return None;
        }
        return Some(None);
    };
    let block = block_size.unwrap_or(1);
    let bytes = field.bytes(block.into()..=SIZE_MAX)?;
    if !bytes.is_multiple_of(block.into()) {
        let block = units::format_bytes(block.into());
        field.error(
            format!("{} is not in whole blocks of {block}", field.describe()),
            &format!("a multiple of {block}, or another block_size"),
        );
        return None;
    }
    Some(Some(bytes))
}

fn check_create(
    section: &Section<'_>,
    create: Option<Create>,
    kind: Option<Kind>,
    size: Option<Option<u64>>,
    read_only: Option<bool>,
) {
    let place = |key| section.find(key);
    if matches!(create, None | Some(Create::No)) {
        return;
    }
    let Some(field) = place("create") else { return };
    if kind == Some(Kind::Memory) {
        field.error(
            "disks of a memory device have no file to create",
            "leave it out",
        );
    } else if size == Some(None) {
        field.error(
            "a file cannot be created without a size",
            "add one: size = \"20 GiB\"",
        );
    }
    if read_only == Some(true) {
        field.warn(
            "where it is created it is empty, and read_only keeps it so",
            "create = \"no\"",
        );
    }
}

fn check_capacity(field: &Field<'_>, size: u64, device: &Draft<'_>, used: &mut u64) {
    let before = *used;
    *used = used.saturating_add(size);
    if let Some(capacity) = device.capacity.filter(|&capacity| *used > capacity) {
        let place = field.find("size").unwrap_or_else(|| field.clone());
        let room = capacity.saturating_sub(before);
        place.error(
            format!(
                "{} does not fit: {} of the model's {} are taken",
                units::format_bytes(size),
                units::format_bytes(before),
                units::format_bytes(capacity),
            ),
            &format!("at most {} MiB", room >> 20),
        );
    }
}
