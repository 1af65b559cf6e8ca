//! Disks: the kernel's schedulers and caches below them, and the files of a configuration.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::statvfs;
use tidegate_server::backing::{OpenError, inspect};
use tidegate_server::config::{Config, Create, DeviceKind, DiskConfig};
use tidegate_server::host_support;
use tidegate_units::human::bytes;

use super::finding::{Finding, Level};
use crate::host::{BlockDevice, HostRoot, Medium};

/// Checks scheduler and write cache of the disks below a configuration, or of all disks.
pub(super) fn schedulers(
    host: &HostRoot,
    devices: &[BlockDevice],
    config: Option<&Config>,
) -> Vec<Finding> {
    let below = config.map(|config| {
        let paths = config.disks().filter_map(|(_, disk)| disk.path.as_deref());
        paths.filter_map(number).collect::<Vec<String>>()
    });
    let is_below = |device: &&BlockDevice| match &below {
        Some(numbers) => numbers.iter().any(|number| device.holds(host, number)),
        None => true,
    };
    let devices = devices.iter().filter(is_below);
    devices
        .flat_map(|device| [scheduler(device), write_cache(device)])
        .flatten()
        .collect()
}

/// Returns the number of the block device that holds a path: of the device itself, or of the file
/// system. For a file that does not exist yet, that of its directory.
fn number(path: &Path) -> Option<String> {
    let found = path.ancestors().find_map(|path| fs::metadata(path).ok())?;
    let is_device = found.file_type().is_block_device();
    let number = if is_device { found.rdev() } else { found.dev() };
    Some(format!(
        "{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    ))
}

fn scheduler(device: &BlockDevice) -> Option<Finding> {
    let active = device.scheduler.as_deref()?;
    let why = "Tidegate decides the order of I/Os; a second scheduler below reorders and holds \
               them back, so latencies are longer and less certain";
    let finding = Finding::ok(format!("scheduler {}", device.name), active, why);
    let is_fine = match active {
        "none" => true,
        // It costs a lock for each I/O, which platters do not notice and fast flash does.
        "mq-deadline" => device.medium != Medium::Nvme,
        _ => false,
    };
    Some(if is_fine {
        finding
    } else {
        let mend = format!("echo none > /sys/block/{}/queue/scheduler", device.name);
        finding.but(Level::Warn, mend)
    })
}

fn write_cache(device: &BlockDevice) -> Option<Finding> {
    let cache = device.write_cache.as_deref()?;
    let why = "with a volatile cache, flushes of guests are what makes their data durable, and \
               take the time that the disk takes to empty it";
    Some(Finding::ok(
        format!("write cache {}", device.name),
        cache,
        why,
    ))
}

/// Checks the files of a configuration's disks: if they can be served, if I/O on them is direct,
/// and if their file systems have room for what guests may still write.
pub(super) fn files(config: &Config) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut growth: BTreeMap<u64, (String, u64, u64)> = BTreeMap::new();
    for (device, disk) in config.disks() {
        let (DeviceKind::File, Some(path)) = (&device.kind, &disk.path) else {
            continue;
        };
        let check = format!("disk {}", disk.export);
        let why = "a disk that cannot be opened keeps the daemon from starting";
        match inspect(disk) {
            Ok(Some(warning)) => {
                let found = format!("{}: {}", path.display(), warning.what);
                let why = "a guest may take encrypted bytes for an empty disk";
                all.push(Finding::ok(check, found, why).but(Level::Warn, warning.help));
                all.extend(direct_io(path, disk));
            }
            Ok(None) if path.exists() => {
                all.push(Finding::ok(check, path.display().to_string(), why));
                all.extend(direct_io(path, disk));
            }
            Ok(None) => all.push(Finding::ok(check, "will be created", why)),
            Err(error) => {
                let mend = error.help().unwrap_or_else(|| mend(&error));
                all.push(Finding::ok(check, error.to_string(), why).but(Level::Fail, mend));
            }
        }
        if let Some((device, missing, free)) = unallocated(path, disk) {
            let entry = growth
                .entry(device)
                .or_insert((path.display().to_string(), 0, free));
            entry.1 = entry.1.saturating_add(missing);
        }
    }
    all.extend(
        growth
            .into_values()
            .map(|(path, missing, free)| room(&path, missing, free)),
    );
    all
}

/// Returns the advice for an error that has none of its own.
fn mend(error: &OpenError) -> String {
    match error {
        OpenError::Io { path, .. } => format!("ls -l {} shows who may open it", path.display()),
        OpenError::Format { path, .. } => {
            format!(
                "qemu-img convert -O raw {} NEW, and serve NEW",
                path.display()
            )
        }
        _ => "`tidegate check` names the line of the configuration".to_owned(),
    }
}

fn direct_io(path: &Path, disk: &DiskConfig) -> Option<Finding> {
    let why = "without direct I/O, writes go to the page cache first, and the daemon cannot see \
               how long the disk takes";
    let check = format!("direct I/O {}", disk.export);
    Some(match host_support::direct_io(path, disk) {
        Ok(Ok(())) => Finding::ok(check, "yes", why),
        Ok(Err(reason)) => Finding::ok(check, reason, why).but(
            Level::Warn,
            "put the file on ext4, XFS or a block device, with a size in whole 4 KiB blocks",
        ),
        // An incoming disk, or one that was replaced meanwhile: `inspect` has said what matters.
        Err(_) => return None,
    })
}

/// Returns the file system of a disk's file, the bytes that a guest may still have allocated, and
/// the free bytes of the file system. `None` for block devices.
fn unallocated(path: &Path, disk: &DiskConfig) -> Option<(u64, u64, u64)> {
    let allocated = match fs::metadata(path) {
        Ok(meta) if meta.file_type().is_block_device() => return None,
        Ok(meta) => (meta.blocks() * 512, meta.len()),
        Err(_) if disk.create != Create::No => (0, 0),
        Err(_) => return None,
    };
    let size = disk.size.unwrap_or(allocated.1);
    let directory = path
        .ancestors()
        .skip(1)
        .find(|directory| directory.exists())?;
    let directory = if directory == Path::new("") {
        Path::new(".")
    } else {
        directory
    };
    let of = fs::metadata(directory).ok()?.dev();
    let free = free_bytes(directory)?;
    Some((of, size.saturating_sub(allocated.0), free))
}

/// Returns the bytes that this user may still write below a directory.
pub(super) fn free_bytes(directory: &Path) -> Option<u64> {
    let of = statvfs(directory).ok()?;
    Some(of.f_bavail.saturating_mul(of.f_frsize))
}

fn room(path: &str, missing: u64, free: u64) -> Finding {
    let why = "guests that write to all of their sparse disks get \"no space left\"";
    let found = format!(
        "{} free for {} that guests may still write (file system of {path})",
        bytes(free),
        bytes(missing)
    );
    let finding = Finding::ok("room for disks", found, why);
    if missing > free {
        finding.but(
            Level::Warn,
            "enlarge the file system, or move disks to another",
        )
    } else {
        finding
    }
}
