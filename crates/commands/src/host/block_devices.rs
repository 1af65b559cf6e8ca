//! Disks of a host: what they are, and whether something uses them.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_server::host_support::is_rotational;

use super::mounts::Mounts;
use super::{HostRoot, names, read};

/// Bytes of the units in which `/sys/block/*/size` counts.
const SECTOR: u64 = 512;
/// Beginnings of names of block devices that are no disks: memory, files, other devices' parts.
const NO_DISKS: [&str; 8] = ["loop", "ram", "zram", "dm-", "sr", "fd", "nbd", "mtdblock"];
/// Beginnings of links in `/dev/disk/by-id` that name a disk by numbers alone.
const NUMBERS_ALONE: [&str; 3] = ["wwn-", "nvme-eui.", "nvme-nvme."];
/// Largest number of layers of virtual devices that are followed, such as LVM on RAID.
const LAYERS: u32 = 8;

/// Medium of a disk, as far as the kernel tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Medium {
    /// Platters.
    Rotational,
    /// Flash behind NVMe.
    Nvme,
    /// Other flash.
    Flash,
    /// A hypervisor's disk, on whatever it is.
    Unknown,
}

/// Disk, or array of disks.
#[derive(Clone, Debug)]
pub(crate) struct BlockDevice {
    /// Name of the kernel, such as `nvme0n1`.
    pub(crate) name: String,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Medium.
    pub(crate) medium: Medium,
    /// Model that the disk reports.
    pub(crate) model: Option<String>,
    /// Link in `/dev/disk/by-id`, whose name stays when disks are added.
    pub(crate) by_id: Option<PathBuf>,
    /// Directories at which file systems on the disk are mounted.
    pub(crate) mounted: Vec<String>,
    /// Reasons why the disk must not be served as a whole; empty if none is known.
    pub(crate) uses: Vec<String>,
    /// I/O scheduler of the kernel in force.
    pub(crate) scheduler: Option<String>,
    /// Write cache as the kernel sees it: `write back` or `write through`.
    pub(crate) write_cache: Option<String>,
}

impl BlockDevice {
    /// Finds all disks of a host in the order of their names. Disks that are part of an array are
    /// left out, because the array is one device.
    pub(crate) fn all(host: &HostRoot) -> Vec<BlockDevice> {
        let mounts = Mounts::read(host);
        let links = links(host);
        let names = names(&host.path("/sys/block"));
        let disks = names
            .iter()
            .filter(|name| !NO_DISKS.iter().any(|no| name.starts_with(no)));
        let disks = disks.filter_map(|name| disk(host, name, &mounts, &links));
        disks.collect()
    }

    /// Returns true if the device with a number, `major:minor`, is the disk or on it.
    pub(crate) fn holds(&self, host: &HostRoot, number: &str) -> bool {
        let directory = host.path("/sys/block").join(&self.name);
        numbers(host, &directory, LAYERS)
            .iter()
            .any(|(own, _)| own == number)
    }

    /// Returns the path of the device: by its identity where it has one.
    pub(crate) fn path(&self) -> PathBuf {
        let by_name = || Path::new("/dev").join(&self.name);
        self.by_id.clone().unwrap_or_else(by_name)
    }
}

/// Reads a disk; `None` if it has no medium or is part of an array.
fn disk(
    host: &HostRoot,
    name: &str,
    mounts: &Mounts,
    links: &[(String, PathBuf)],
) -> Option<BlockDevice> {
    let directory = host.path("/sys/block").join(name);
    let at = |file: &str| read(&directory.join(file));
    let size = at("size")?.parse::<u64>().ok()?.checked_mul(SECTOR)?;
    let in_array = names(&directory.join("holders"))
        .iter()
        .any(|by| by.starts_with("md"));
    if size == 0 || in_array {
        return None;
    }
    let number = at("dev")?;
    let medium = match is_rotational(&host.path("/sys/dev/block"), &number) {
        Some(true) => Medium::Rotational,
        Some(false) if name.starts_with("nvme") => Medium::Nvme,
        Some(false) => Medium::Flash,
        None => Medium::Unknown,
    };
    let scheduler = at("queue/scheduler").and_then(|all| {
        let active = all.split_once('[')?.1.split_once(']')?.0;
        Some(active.to_owned())
    });
    let (mounted, uses) = uses(host, &directory, mounts);
    let link = links.iter().find(|(target, _)| target == name);
    Some(BlockDevice {
        name: name.to_owned(),
        size,
        medium,
        model: at("device/model"),
        by_id: link.map(|(_, path)| path.clone()),
        mounted,
        uses,
        scheduler,
        write_cache: at("queue/write_cache"),
    })
}

/// Returns where file systems of a disk are mounted, and all that uses the disk.
fn uses(host: &HostRoot, directory: &Path, mounts: &Mounts) -> (Vec<String>, Vec<String>) {
    let (mut mounted, mut uses) = (Vec::new(), Vec::new());
    for (number, name) in numbers(host, directory, LAYERS) {
        for at in mounts.of(&number, &name) {
            uses.push(format!("mounted at {at}"));
            mounted.push(at);
        }
        if mounts.is_swap(&name) {
            uses.push(format!("{name} is swap"));
        }
        let udev = host
            .read(format!("/run/udev/data/b{number}"))
            .unwrap_or_default();
        let of_udev = |key: &str| {
            let line = udev
                .lines()
                .find_map(|line| line.strip_prefix("E:")?.strip_prefix(key));
            line.and_then(|value| value.strip_prefix('='))
                .map(str::to_owned)
        };
        if let Some(kind) = of_udev("ID_FS_TYPE") {
            uses.push(format!("{name} has {kind}"));
        }
        if let Some(kind) = of_udev("ID_PART_TABLE_TYPE") {
            uses.push(format!("{name} has a partition table ({kind})"));
        }
    }
    let parts = partitions(directory);
    if !parts.is_empty() {
        uses.push(format!("partitions: {}", parts.join(", ")));
    }
    let parts = parts.iter().map(|part| directory.join(part));
    for part in parts.chain([directory.to_owned()]) {
        let holders = names(&part.join("holders"));
        uses.extend(holders.iter().map(|by| format!("part of {by}")));
    }
    if read(&directory.join("ro")).is_some_and(|ro| ro == "1") {
        uses.push("read-only".to_owned());
    }
    if read(&directory.join("removable")).is_some_and(|removable| removable == "1") {
        uses.push("removable".to_owned());
    }
    (mounted, uses)
}

/// Returns the names of a disk's partitions.
fn partitions(directory: &Path) -> Vec<String> {
    let mut parts = names(directory);
    parts.retain(|part| directory.join(part).join("partition").exists());
    parts
}

/// Returns numbers and names of a disk, its partitions and all virtual devices on them.
fn numbers(host: &HostRoot, directory: &Path, layers: u32) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let parts = partitions(directory);
    let parts = parts.iter().map(|part| directory.join(part));
    for part in [directory.to_owned()].into_iter().chain(parts) {
        let name = part
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        all.extend(read(&part.join("dev")).map(|number| (number, name)));
        for holder in names(&part.join("holders")) {
            if layers > 0 {
                let above = host.path("/sys/block").join(holder);
                all.extend(numbers(host, &above, layers - 1));
            }
        }
    }
    all
}

/// Returns the links in `/dev/disk/by-id` with the names of the devices that they lead to. Those
/// with a model come first.
fn links(host: &HostRoot) -> Vec<(String, PathBuf)> {
    let directory = Path::new("/dev/disk/by-id");
    let mut links: Vec<(bool, String, PathBuf)> = Vec::new();
    for name in names(&host.path(directory)) {
        let Ok(target) = fs::read_link(host.path(directory).join(&name)) else {
            continue;
        };
        let target = target
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let numbers = NUMBERS_ALONE.iter().any(|begin| name.starts_with(begin));
        links.push((numbers, target, directory.join(&name)));
    }
    links.sort();
    links
        .into_iter()
        .map(|(_, target, link)| (target, link))
        .collect()
}
