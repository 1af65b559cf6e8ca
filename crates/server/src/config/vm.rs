//! `[[vm]]` and `[[vm.disk]]`: VMs with their disks.

use std::path::{Path, PathBuf};

use tidegate_config::device::limit_groups;
use tidegate_config::diagnostic::one_of;
use tidegate_config::keys::KeyDefault;
use tidegate_config::objective::limit;
use tidegate_config::{Field, Library, Names, Section, document, enforced};
use tidegate_policies::policy::PolicySpec;
use tidegate_units as units;

use super::context::Context;
use super::device::{DeviceSummary, Kind};
use super::keys::vm as keys;
use super::{
    ConfigErrors, Create, DeviceConfig, DiskConfig, DiskFormat, PathsConfig, Schedule, VmConfig,
    context, fault, nbd, promise, schedule,
};

/// Default of `max_connections`.
pub const DEFAULT_MAX_CONNECTIONS: u32 = keys::MAX_CONNECTIONS.default_number() as u32;
const BLOCK_SIZES: [u64; 3] = [1, 512, 4096];

/// Names that must be unique over all VMs, and other state of reading them.
struct UniqueNames<'a> {
    vms: Names,
    exports: &'a mut Names,
    paths: Names,
    /// Finds the traces of workloads; `None` if VMs may have no workloads, as in the API.
    library: Option<&'a dyn Library>,
    /// Sum of the disks' sizes in bytes on each device.
    used: Vec<u64>,
}

impl<'a> UniqueNames<'a> {
    fn new(exports: &'a mut Names, files: Names, devices: usize) -> UniqueNames<'a> {
        UniqueNames {
            vms: Names::default(),
            exports,
            paths: files,
            library: None,
            used: vec![0; devices],
        }
    }
}

/// Parses a VM from JSON with the keys of the configuration. Its disks' paths are confined to those
/// that `paths` allows, which is checked when they are opened. The caller has to check that its
/// names are free and its disks fit beside the existing ones.
///
/// # Errors
/// All mistakes in the JSON.
pub fn from_json(
    json: &serde_json::Value,
    devices: &[DeviceConfig],
    paths: &PathsConfig,
) -> Result<VmConfig, ConfigErrors> {
    let known: Vec<DeviceSummary> = devices.iter().map(DeviceSummary::from_config).collect();
    let mut exports = Names::default();
    let mut vm = document::read_json(json, "", |field| {
        let mut all = read_all(
            std::slice::from_ref(field),
            &known,
            &mut exports,
            Names::default(),
            &paths.base,
            None,
        );
        all.pop().flatten()
    })?;
    vm.disks.iter_mut().for_each(|disk| confine(disk, paths));
    Ok(vm)
}

/// Returns the JSON of a VM that [`from_json`] parses; `device` is the name of its device.
pub fn to_json(vm: &VmConfig, device: &str) -> serde_json::Value {
    let disks: Vec<serde_json::Value> = vm.disks.iter().map(disk_to_json).collect();
    let mut words = serde_json::json!({
        "name": vm.name,
        "device": device,
        "background": vm.background,
        "objective": promise::words(&vm.promised()),
        "disk": disks,
    });
    // Written only if it is not the default, so that daemons without this key can read the record.
    if vm.max_connections != DEFAULT_MAX_CONNECTIONS {
        words["max_connections"] = vm.max_connections.into();
    }
    words
}

fn disk_to_json(disk: &DiskConfig) -> serde_json::Value {
    let create = keys::CREATES
        .iter()
        .find(|(_, create)| *create == disk.create);
    let mut words = serde_json::json!({
        "export": disk.export,
        "create": create.map(|(word, _)| word),
        "read_only": disk.read_only,
        "block_size": units::format_bytes(disk.block_size.into()),
    });
    // Keys without a value are left out.
    if let Some(path) = &disk.path {
        words["path"] = path.display().to_string().into();
    }
    if let Some(nbd) = &disk.nbd {
        nbd::write(nbd, &mut words);
    }
    if let Some(size) = disk.size {
        // In bytes, because a rounded unit would change the size.
        words["size"] = format!("{size} B").into();
    }
    // Probing is the default and needs no key.
    if disk.format == DiskFormat::Raw {
        words["format"] = "raw".into();
    }
    // Written only if they are set, so that daemons without these keys can read the record.
    if disk.incoming {
        words["incoming"] = true.into();
    }
    if !disk.limit.is_none() {
        words["limit"] = limit::view(&disk.limit);
    }
    if let Some(group) = &disk.limit_group {
        words["limit_group"] = group.as_str().into();
    }
    words
}

/// Parses a disk of a VM from JSON, like [`from_json`]; `device` is the VM's device.
///
/// # Errors
/// All mistakes in the JSON.
pub fn disk_from_json(
    json: &serde_json::Value,
    vm: &str,
    device: &DeviceConfig,
    paths: &PathsConfig,
) -> Result<DiskConfig, ConfigErrors> {
    let known = [DeviceSummary::from_config(device)];
    let mut exports = Names::default();
    let mut seen = UniqueNames::new(&mut exports, Names::default(), 1);
    let mut disk = document::read_json(json, "", |field| {
        disk(field, Some(vm), Some(0), &known, &mut seen, &paths.base)
    })?;
    confine(&mut disk, paths);
    Ok(disk)
}

/// Confines a disk that is not of the file to where such disks may be.
fn confine(disk: &mut DiskConfig, paths: &PathsConfig) {
    disk.within = Some(paths.allowed.clone());
    if let Some(nbd) = &mut disk.nbd {
        nbd.own_listeners = paths.own_listeners.clone();
        if let Some(tls) = &mut nbd.tls {
            tls.is_confined = paths.sandbox;
        }
    }
}

/// Parses a size in bytes from JSON such as `{"size": "2 GiB"}`.
///
/// # Errors
/// All mistakes in the JSON.
pub fn size_from_json(json: &serde_json::Value) -> Result<u64, ConfigErrors> {
    document::read_json(json, "", |field| {
        let mut section = Section::open(field)?;
        let size = section.need(keys::SIZE.name, "size = \"20 GiB\"");
        let size = size.and_then(|field| field.number(&keys::SIZE));
        section.finish();
        size
    })
}

/// Reads the VMs of a file with their workloads, like [`read_all`].
pub(crate) fn read_file(
    fields: &[Field<'_>],
    devices: &[DeviceSummary],
    exports: &mut Names,
    files: Names,
    context: &Context<'_>,
) -> Vec<Option<VmConfig>> {
    let library = Some(context.library);
    read_all(fields, devices, exports, files, context.base, library)
}

/// Reads VMs; `None` for each with an error, which has been reported. `files` are the paths that
/// are claimed already; `library` finds the traces of workloads, if VMs may have any.
fn read_all(
    fields: &[Field<'_>],
    devices: &[DeviceSummary],
    exports: &mut Names,
    files: Names,
    base: &Path,
    library: Option<&dyn Library>,
) -> Vec<Option<VmConfig>> {
    let mut seen = UniqueNames {
        library,
        ..UniqueNames::new(exports, files, devices.len())
    };
    fields
        .iter()
        .map(|field| read(field, devices, &mut seen, base))
        .collect()
}

fn read(
    field: &Field<'_>,
    devices: &[DeviceSummary],
    seen: &mut UniqueNames<'_>,
    base: &Path,
) -> Option<VmConfig> {
    let field = field.labelled("vm");
    let listed = match seen.library {
        Some(_) => &keys::VM,
        None => &keys::VM_OF_API,
    };
    let mut section = Section::with_keys(&field, listed)?;
    let name = section.unique_name(&keys::NAME, "VM", &mut seen.vms);
    let device = device(&mut section, devices);
    let background = section.flag(&keys::BACKGROUND);
    let promised = match section.field(&keys::OBJECTIVE) {
        Some(field) => {
            let policy = device.and_then(|device| devices[device].policy.as_ref());
            promised(&field, policy, background.unwrap_or(false))
        }
        None => Some(Schedule::default()),
    };
    let max_connections = section.number(&keys::MAX_CONNECTIONS);
    let fields = section.take_tables(keys::DISKS.name);
    // An empty list of tables is no missing key, so it is checked here.
    if let (KeyDefault::Required(example), true) = (keys::DISKS.default, fields.is_empty()) {
        section.error("the VM has no disk", example);
    }
    let disks: Vec<_> = fields
        .iter()
        .map(|field| disk(field, name.as_deref(), device, devices, seen, base))
        .collect();
    // Sections are read to their end before any `?`, so that all mistakes are reported together.
    let loads = seen
        .library
        .is_none_or(|library| workloads(&mut section, &disks, library));
    section.finish();
    // A broken workload fails the VM, although `serve` has no use for workloads.
    let promised = promised.filter(|_| loads)?;
    Some(VmConfig {
        name: name?,
        device: device?,
        background: background?,
        objective: *promised.base(),
        schedule: promise::by_the_clock(promised),
        max_connections: u32::try_from(max_connections?).ok()?,
        disks: disks.into_iter().collect::<Option<_>>()?,
    })
}

/// Checks the workloads of a VM, which only `tidegate sim` uses. Returns false if there was an
/// error, which has been reported.
fn workloads(
    section: &mut Section<'_>,
    disks: &[Option<DiskConfig>],
    library: &dyn Library,
) -> bool {
    let sizes = disks.iter().map(|disk| disk.as_ref()?.size);
    // Unknown as soon as one disk's is: the requests are then not checked against it.
    let size = sizes.sum::<Option<u64>>();
    let tables = section.take_tables(keys::WORKLOADS.name);
    let read = (tables.iter().enumerate())
        .map(|(index, field)| tidegate_workload::read::workload(field, index, size, library));
    read.filter(Option::is_none).count() == 0
}

/// Reads a VM's objective with its schedule, and warns about parts that `policy`, that of the file
/// if there is one, does not enforce, and about entries that hide each other.
fn promised(field: &Field<'_>, policy: Option<&PolicySpec>, background: bool) -> Option<Schedule> {
    let promised = schedule::from_field(field, &Schedule::default())?;
    let Some(policy) = policy else {
        return Some(promised);
    };
    enforced::warn(field, promised.base(), policy, background);
    enforced::warn_of_schedule(field, &promised, policy, background);
    let overlaps = promised.overlaps();
    let list = field.find("schedule").filter(|_| !overlaps.is_empty());
    let places = list.and_then(|list| list.elements()).unwrap_or_default();
    for (earlier, later) in overlaps {
        let when = |at: usize| format!("entry {} ({})", at + 1, promised.entries()[at].when);
        let what = format!("{} hides a part of {}", when(later), when(earlier));
        let place = places.get(later).unwrap_or(field);
        place.warn(
            what,
            "of entries that hold at the same time, the last in the list is in force",
        );
    }
    Some(promised)
}

/// Reads the VM's device: its index, by default the only one.
fn device(section: &mut Section<'_>, devices: &[DeviceSummary]) -> Option<usize> {
    let names = || devices.iter().filter_map(|device| device.name.as_deref());
    let Some(field) = section.field(&keys::ON_DEVICE) else {
        if devices.len() > 1 {
            let allowed = format!("device = {}", one_of(names()));
            section.error("no device is set, and there are several", &allowed);
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
    devices: &[DeviceSummary],
    seen: &mut UniqueNames<'_>,
    base: &Path,
) -> Option<DiskConfig> {
    let mut section = Section::with_keys(field, &keys::DISK)?;
    let kind = device.and_then(|device| devices[device].kind);
    let export = export(&mut section, field, vm, seen);
    let path = path(&mut section, kind, seen, base);
    let nbd = nbd::read(&mut section, kind, base);
    let block_size = block_size(&mut section);
    let size = size(
        &mut section,
        block_size,
        kind,
        matches!(path, Some(Some(_))),
    );
    let create = section.word(&keys::CREATE, &keys::CREATES);
    let format = section.value(&keys::FORMAT, DiskFormat::Probe, |field| {
        field.choice(&keys::FORMATS)
    });
    let read_only = section.flag(&keys::READ_ONLY);
    let incoming = section.flag(&keys::INCOMING);
    check_create(&section, create, kind, size, read_only);
    check_incoming(&section, incoming, &path, create, read_only);
    let groups = device.map_or(&[][..], |device| &devices[device].limit_groups);
    let limits = limit_groups::of_disk(&mut section, groups);
    let faults = fault::read_all(&section.take_tables(keys::FAULTS.name), size.flatten());
    section.finish();
    if let (Some(device), Some(Some(size))) = (device, size) {
        check_capacity(field, size, &devices[device], &mut seen.used[device]);
    }
    let (limit, limit_group) = limits?;
    Some(DiskConfig {
        export: export?,
        path: path?,
        nbd: nbd?,
        within: None,
        size: size?,
        create: create?,
        format: format?,
        read_only: read_only?,
        incoming: incoming?,
        block_size: block_size?,
        limit,
        limit_group,
        faults: faults?,
        place: field.find("path").unwrap_or_else(|| field.clone()).place(),
    })
}

fn export(
    section: &mut Section<'_>,
    disk: &Field<'_>,
    vm: Option<&str>,
    seen: &mut UniqueNames<'_>,
) -> Option<String> {
    let Some(field) = section.field(&keys::EXPORT) else {
        // An export without a name has its VM's; a VM without one was reported.
        let name = vm?.to_owned();
        if seen.exports.contains(&name) {
            disk.error(
                format!("its export name would be {name:?}, which another disk has"),
                &format!("name it: export = \"{name}-data\""),
            );
        } else {
            seen.exports.claim(&name, "export", disk);
        }
        return Some(name);
    };
    let name = field.text()?;
    if name.is_empty() || name.len() > keys::EXPORT_NAME_MAX || name.contains(char::is_control) {
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
    seen: &mut UniqueNames<'_>,
    base: &Path,
) -> Option<Option<PathBuf>> {
    let Some(field) = section.field(&keys::PATH) else {
        if kind == Some(Kind::File) {
            let allowed = "the file or block device that holds it: path = \"oltp.raw\"";
            section.error("`path` is missing", allowed);
            return None;
        }
        return Some(None);
    };
    if let Some(Kind::Memory | Kind::Nbd) = kind {
        let (what, allowed) = match kind {
            Some(Kind::Nbd) => ("disks of an nbd device have no path", "the export's `uri`"),
            _ => (
                "disks of a memory device have no path",
                "leave it out, or kind = \"file\"",
            ),
        };
        field.error(what, allowed);
        return None;
    }
    let path = context::path(base, &field)?;
    seen.paths
        .claim(&path.display().to_string(), "file", &field);
    Some(Some(path))
}

fn block_size(section: &mut Section<'_>) -> Option<u32> {
    let key = &keys::BLOCK_SIZE;
    let Some(field) = section.field(key) else {
        return u32::try_from(key.default_number()).ok();
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
    let Some(field) = section.field(&keys::SIZE) else {
        let needed = match kind {
            Some(Kind::Memory) => true,
            Some(Kind::Emulated) => !has_path,
            Some(Kind::File | Kind::Nbd) | None => false,
        };
        if needed {
            section.error(
                "`size` is missing",
                "a disk in memory needs a size: size = \"1 GiB\"",
            );
            return None;
        }
        return Some(None);
    };
    // A wrong block size was reported; the size is then checked without it.
    let block = block_size.unwrap_or(1);
    let bytes = field.bytes(block.into()..=keys::SIZE.max)?;
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
    if let Some(Kind::Memory | Kind::Nbd) = kind {
        field.error(
            "disks of a memory or nbd device have no file to create",
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
            "a created file is empty, and read_only keeps it empty",
            "create = \"no\"",
        );
    }
}

/// Refuses an incoming disk that has no file which two hosts could hand over.
fn check_incoming(
    section: &Section<'_>,
    incoming: Option<bool>,
    path: &Option<Option<PathBuf>>,
    create: Option<Create>,
    read_only: Option<bool>,
) {
    let Some(field) = section.find("incoming").filter(|_| incoming == Some(true)) else {
        return;
    };
    let refused = if *path == Some(None) {
        (
            "a disk without a file cannot come from another host",
            "leave it out",
        )
    } else if create.is_some_and(|create| create != Create::No) {
        (
            "an incoming disk has a file, which its other host serves",
            "create = \"no\"",
        )
    } else if read_only == Some(true) {
        (
            "hosts share a read-only disk without a hand-over",
            "leave it out",
        )
    } else {
        return;
    };
    let (what, allowed) = refused;
    field.error(what, allowed);
}

fn check_capacity(field: &Field<'_>, size: u64, device: &DeviceSummary, used: &mut u64) {
    let before = *used;
    // Counted even if it does not fit, so that every further disk is reported as well.
    *used = used.saturating_add(size);
    if let Some(capacity) = device.capacity.filter(|&capacity| *used > capacity) {
        let place = field.find("size").unwrap_or_else(|| field.clone());
        let room = capacity.saturating_sub(before);
        let (size, all) = (units::format_bytes(size), units::format_bytes(capacity));
        // In MiB, rounded down, so that the suggested size fits.
        let most = format!("at most {} MiB", room >> 20);
        if before > 0 {
            let taken = units::format_bytes(before);
            let what = format!("{size} does not fit: {taken} of the model's {all} are taken");
            place.error(what, &most);
        } else {
            // Disks that the daemon serves already are not known here.
            let what = format!("{size} does not fit: the model has {all} for all disks");
            place.error(what, &format!("{most}, less what other disks have"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_checked_in_a_file_and_unknown_to_the_api() {
        let parse = |workload: &str| {
            let text = format!(
                "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"m\"\nkind = \"memory\"\n\
                 [[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 MiB\"\n[[vm.workload]]\n{workload}"
            );
            let loaded = super::super::parse(&text, "t", Path::new("/"));
            loaded
                .map(|loaded| loaded.config)
                .map_err(|e| e.to_string())
        };
        let config = parse("rw = \"randrw\"").expect("good");
        let wrong = parse("rw = \"randrw\"\nsize = \"2 MiB\"").unwrap_err();
        assert!(wrong.contains("must lie on the disk of 1 MiB"), "{wrong}");
        let mut words = to_json(&config.vms[0], "m");
        assert!(from_json(&words, &config.devices, &config.paths).is_ok());
        words["workload"] = serde_json::json!([{ "rw": "randrw" }]);
        let refused = from_json(&words, &config.devices, &config.paths).unwrap_err();
        assert!(
            refused.to_string().contains("unknown key `workload`"),
            "{refused}"
        );
    }

    #[test]
    fn a_vm_that_was_said_is_read_again_as_it_was() {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n\
                    [[device]]\nname = \"m\"\nkind = \"memory\"\n\
                    [[vm]]\nname = \"a\"\ndevice = \"d\"\nbackground = true\n\
                    objective = { limit = { total = \"500 IOPS @ 16 KiB\", write = \"3 MB/s\" }, \
                    weight = 7, timezone = \"UTC\", schedule = [{ from = \"18:00\", days = \
                    [\"sat\"], target = \"5 MB/s\" }] }\n\
                    [[vm.disk]]\npath = \"a.raw\"\nsize = \"1000001 B\"\nblock_size = \"1 B\"\n\
                    create = \"preallocated\"\n\
                    [[vm.disk]]\npath = \"/b\"\nexport = \"b\"\nread_only = true\n\
                    format = \"raw\"\n\
                    [[vm]]\nname = \"c\"\ndevice = \"m\"\nmax_connections = 7\n[[vm.disk]]\n\
                    size = \"1 MiB\"\n";
        let base = Path::new("/etc/tidegate");
        let loaded = super::super::parse(text, "t", base);
        let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
        for vm in &config.vms {
            let words = to_json(vm, &config.devices[vm.device].name);
            // Stored paths are absolute, so the base directory must not matter.
            let elsewhere = PathsConfig::of_directory(Path::new("/elsewhere"));
            let again = from_json(&words, &config.devices, &elsewhere);
            let mut again = again.unwrap_or_else(|e| panic!("{e}"));
            for (again, disk) in again.disks.iter_mut().zip(&vm.disks) {
                again.place = disk.place.clone();
                // Disks of the file may be anywhere, those that are read again may not.
                assert_eq!(again.within.take(), Some(elsewhere.allowed.clone()));
            }
            assert_eq!(format!("{again:?}"), format!("{vm:?}"));
        }
    }
}
