//! Detection of rotational disks behind files and block devices, by sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::time::Nanos;

/// Sysfs directory of all block devices by their numbers.
pub(crate) const SYSFS: &str = "/sys/dev/block";

/// Average positioning time of a hard disk of which nothing else is known: a seek of 8.5 ms and
/// half a turn at 7200 rpm (4.2 ms), as in data sheets of desktop disks.
pub(crate) const POSITIONING: Nanos = Nanos::from_micros(12_700);

/// Maximum number of layers of virtual devices that are followed, such as LVM on RAID.
const LAYERS: u32 = 8;

/// Returns the number of a device as sysfs names it, `major:minor`.
pub(crate) fn device_number(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// Returns true if a block device is rotational, by its directory under `root` and its number
/// (`major:minor`). A partition counts as its disk; a virtual device is rotational if one of the
/// devices below it is. Returns `None` if the kernel does not tell, or the disk is a hypervisor's,
/// for which the kernel defaults to rotational.
pub(crate) fn is_rotational(root: &Path, number: &str) -> Option<bool> {
    // The links in this directory lead to the device's place in the device tree.
    let device = fs::canonicalize(root.join(number)).ok()?;
    is_device_rotational(&device, LAYERS)
}

fn is_device_rotational(device: &Path, layers: u32) -> Option<bool> {
    if device.join("partition").exists() {
        return is_device_rotational(device.parent()?, layers);
    }
    if is_hypervisor_disk(device) {
        return None;
    }
    let below = lower_devices(device);
    if !below.is_empty() && layers > 0 {
        let answers = below
            .iter()
            .map(|slave| is_device_rotational(slave, layers - 1));
        let answers: Vec<_> = answers.collect();
        if answers.contains(&Some(true)) {
            return Some(true);
        }
        return answers.iter().all(Option::is_some).then_some(false);
    }
    match fs::read_to_string(device.join("queue/rotational"))
        .ok()?
        .trim()
    {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Returns true if the device is a hypervisor's, for which the kernel's value is only a default.
fn is_hypervisor_disk(device: &Path) -> bool {
    let mut names = device.components();
    let guessed = names.any(|name| {
        let name = name.as_os_str().to_string_lossy();
        name.starts_with("virtio") || name.starts_with("vbd-")
    });
    // Some hypervisors report the truth, and then it is never the default.
    guessed
        && fs::read_to_string(device.join("queue/rotational"))
            .is_ok_and(|value| value.trim() != "0")
}

/// Returns the directories of the devices below a virtual device.
fn lower_devices(device: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(device.join("slaves")).into_iter().flatten();
    let paths = entries
        .flatten()
        .map(|entry| fs::canonicalize(entry.path()));
    paths.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Root of a sysfs with a disk that turns and has a partition (8:0, 8:1), flash (259:0), one
    /// of a hypervisor (254:0), LVM on the partition and flash (253:0), LVM on flash (253:1), and
    /// LVM on the hypervisor's (253:2).
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let device = |number: &str, place: &str, rotational: Option<&str>| {
            let of = root.path().join("devices").join(place);
            fs::create_dir_all(of.join("slaves")).expect("writable");
            match rotational {
                Some(value) => {
                    fs::create_dir_all(of.join("queue")).expect("writable");
                    fs::write(of.join("queue/rotational"), value).expect("writable");
                }
                None => fs::write(of.join("partition"), "1\n").expect("writable"),
            }
            symlink(&of, root.path().join(number)).expect("writable");
        };
        let lies_on = |above: &str, below: &str| {
            let at = |place: &str| root.path().join("devices").join(place);
            let name = Path::new(below).file_name().expect("a name");
            symlink(at(below), at(above).join("slaves").join(name)).expect("writable");
        };
        device("8:0", "pci/ata1/block/sda", Some("1\n"));
        device("8:1", "pci/ata1/block/sda/sda1", None);
        device("259:0", "pci/nvme/nvme0/nvme0n1", Some("0\n"));
        device("254:0", "pci/virtio2/block/vda", Some("1\n"));
        for (number, name) in [("253:0", "dm-0"), ("253:1", "dm-1"), ("253:2", "dm-2")] {
            device(number, &format!("virtual/block/{name}"), Some("1\n"));
        }
        lies_on("virtual/block/dm-0", "pci/ata1/block/sda/sda1");
        lies_on("virtual/block/dm-0", "pci/nvme/nvme0/nvme0n1");
        lies_on("virtual/block/dm-1", "pci/nvme/nvme0/nvme0n1");
        lies_on("virtual/block/dm-2", "pci/virtio2/block/vda");
        root
    }

    #[test]
    fn a_disk_is_known_through_partitions_and_virtual_devices() {
        let root = sysfs();
        let is = |number| is_rotational(root.path(), number);
        assert_eq!((is("8:0"), is("8:1")), (Some(true), Some(true)));
        assert_eq!(is("259:0"), Some(false));
        assert_eq!((is("253:0"), is("253:1")), (Some(true), Some(false)));
    }

    #[test]
    fn what_the_kernel_guesses_or_does_not_know_is_not_told() {
        let root = sysfs();
        let is = |number| is_rotational(root.path(), number);
        assert_eq!((is("254:0"), is("253:2")), (None, None));
        assert_eq!(is("0:42"), None, "a file system without a device");
        let of = root.path().join("254:0/queue/rotational");
        fs::write(of, "0\n").expect("writable");
        assert_eq!(is("254:0"), Some(false), "a hypervisor that says so");
    }
}
