//! Examination of a disk before a measurement writes to it: users, content, identity.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::backing::extents::{EXTENTS_MAX, find_extents};
use crate::backing::probe;
use crate::backing::rotational::{SYSFS, device_number, is_rotational};
use crate::ring::sys;

/// Bytes at either end of a block device that are read completely: partition tables, their copies
/// and the superblocks of common file systems are there.
const END_BYTES: u64 = 1 << 20;
/// Number of samples between the two ends of a block device.
const SAMPLES: u64 = 256;
/// Bytes of each sample.
const SAMPLE_BYTES: usize = 4096;
/// Maximum length in bytes of one survey of a file's holes.
const SURVEY_BYTES: u32 = 1 << 30;

/// File with the identifier of the present boot.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Result of an examination.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// User of the disk, which rules out any write.
    pub used_by: Option<String>,
    /// Content that writes would destroy.
    pub holds: Vec<String>,
    /// Bytes of a file that were never written, and its size.
    pub unwritten: Option<(u64, u64)>,
    /// True if all bytes that were read are 0. A block device that tracks unwritten blocks (thin,
    /// trimmed) may then answer reads without accessing its medium.
    pub only_zeroes: bool,
    /// True if seeks cost time, as on a hard disk; `None` if the kernel does not tell.
    pub rotational: Option<bool>,
    /// Identity of the disk: file system, inode and time of birth of a file; unique name of a block
    /// device, or its device number; and the size.
    pub identity: String,
    /// Time of the last write to a file, in seconds since the epoch, to the nanosecond.
    pub modified: Option<String>,
    /// True for a file whose file system stores no time of birth: `identity` may come to be that of
    /// another file, because inodes are reused.
    pub mistakable: bool,
}

/// Examines a file or block device without writing to it.
///
/// # Errors
/// If it cannot be read.
pub fn examine(path: &Path) -> io::Result<Findings> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let mut found = Findings::default();
    if meta.file_type().is_block_device() {
        // `metadata` reports 0 for a block device.
        let size = sys::block_device_size(&file)?;
        let number = device_number(meta.rdev());
        found.used_by = used_by(&number, path);
        found.rotational = is_rotational(Path::new(SYSFS), &number);
        let boot = fs::read_to_string(BOOT_ID_PATH).ok();
        let identity = device_identity(&sysfs(&number), &number, boot.as_deref());
        found.identity = format!("block device {identity}, {size} bytes");
        found.holds.extend(partitions(&number));
        found.holds.extend(signature(&file, size)?);
        match first_nonzero(&file, size)? {
            Some(at) => found.holds.push(format!("data, at byte {at}")),
            None => found.only_zeroes = true,
        }
    } else {
        let size = meta.len();
        found.rotational = is_rotational(Path::new(SYSFS), &device_number(meta.dev()));
        let born = since_epoch(meta.created());
        found.modified = since_epoch(meta.modified());
        found.mistakable = born.is_none();
        found.identity = format!(
            "file {}:{},{} {size} bytes",
            device_number(meta.dev()),
            meta.ino(),
            born.map_or_else(String::new, |born| format!(" born {born},"))
        );
        if size > 0 {
            found.holds.push(tidegate_units::human::bytes(size));
            found.unwritten = Some((holes(&file, size)?, size));
        }
        if let Some(format) = probe::foreign_format(&file)? {
            found.holds.push(format!("a {format} image"));
        }
    }
    Ok(found)
}

/// Returns the identity of the block device that a file is on, or that the path names. `None`
/// without a single one: on tmpfs, overlayfs or btrfs.
///
/// # Errors
/// If the file does not exist or may not be accessed.
pub(crate) fn block_device_below(path: &Path) -> io::Result<Option<String>> {
    Ok(identity_of(&device_number_below(path)?))
}

/// Returns the number (`major:minor`) of the block device that a file is on, or that the path
/// names. Several block devices below one file system have a number that is none of theirs.
///
/// # Errors
/// If the file does not exist or may not be accessed.
pub(crate) fn device_number_below(path: &Path) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    let is_device = meta.file_type().is_block_device();
    Ok(device_number(if is_device {
        meta.rdev()
    } else {
        meta.dev()
    }))
}

/// Returns the identity of the block device with a number (`major:minor`); `None` if there is none.
pub(crate) fn identity_of(number: &str) -> Option<String> {
    let (of, boot) = (sysfs(number), fs::read_to_string(BOOT_ID_PATH).ok());
    let identity = || device_identity(&of, number, boot.as_deref());
    of.exists().then(|| format!("block device {}", identity()))
}

/// Formats a time of a file, in seconds since the epoch to the nanosecond; `None` if the file
/// system does not store it.
fn since_epoch(time: io::Result<SystemTime>) -> Option<String> {
    let time = time.ok()?.duration_since(UNIX_EPOCH).ok()?;
    // Some file systems report 0 instead of an error.
    let known = !time.is_zero();
    known.then(|| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()))
}

/// Returns the identity of a block device from its directory in sysfs. Device numbers change with
/// every boot and are reused, so a unique name is preferred, then a serial number, then the
/// sequence number of the attachment within this boot (`diskseq`, Linux 5.15).
fn device_identity(of: &Path, number: &str, boot: Option<&str>) -> String {
    let attribute = |name: &str| {
        let text = fs::read_to_string(of.join(name)).ok()?;
        let text = text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    // A partition is identified by its disk and its place on it.
    let (up, place) = match (attribute("partition"), attribute("start")) {
        (Some(part), start) => {
            let start = start.unwrap_or_default();
            ("../", format!(", partition {part} at sector {start}"))
        }
        (None, _) => ("", String::new()),
    };
    let first = |names: &[&str]| {
        let mut names = names.iter();
        names.find_map(|name| attribute(&format!("{up}{name}")))
    };
    // NVMe, SCSI and device mapper, in this order.
    if let Some(name) = first(&["wwid", "device/wwid", "dm/uuid"]) {
        return format!("{name}{place}");
    }
    let suffix = match (first(&["serial", "device/serial"]), first(&["diskseq"])) {
        (Some(serial), _) => format!(" with serial number {serial}"),
        (None, Some(seq)) => boot.map_or_else(String::new, |boot| {
            format!(", attachment {seq} of boot {}", boot.trim())
        }),
        (None, None) => String::new(),
    };
    format!("{number}{suffix}{place}")
}

fn sysfs(number: &str) -> PathBuf {
    Path::new(SYSFS).join(number)
}

/// Returns the names in a directory, ordered; none if it does not exist.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// Returns the names and device numbers of a block device's partitions.
fn partition_devices(number: &str) -> Vec<(String, String)> {
    let of = sysfs(number);
    let is_part = |name: &String| of.join(name).join("partition").exists();
    let with_number = |name: String| {
        let number = fs::read_to_string(of.join(&name).join("dev")).ok()?;
        Some((name, number.trim().to_owned()))
    };
    let names = names(&of).into_iter().filter(is_part);
    names.filter_map(with_number).collect()
}

fn partitions(number: &str) -> Option<String> {
    let parts: Vec<_> = partition_devices(number)
        .into_iter()
        .map(|part| part.0)
        .collect();
    (!parts.is_empty()).then(|| format!("partitions: {}", parts.join(", ")))
}

/// Returns the user of a block device or one of its partitions, if there is one.
fn used_by(number: &str, path: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    // Partitions count as well: writing to the disk would destroy a mounted one.
    let whole = (path.display().to_string(), number.to_owned());
    let all = std::iter::once(whole).chain(partition_devices(number));
    all.into_iter().find_map(|(name, number)| {
        if let Some(at) = mount_point(&mounts, &number) {
            return Some(format!("{name} is mounted at {at}"));
        }
        if swaps_on(&swaps).any(|swap| swap == number) {
            return Some(format!("{name} is used as swap"));
        }
        let holders = names(&sysfs(&number).join("holders"));
        (!holders.is_empty()).then(|| format!("{name} is a part of {}", holders.join(", ")))
    })
}

/// Returns the mount point of a device; `mounts` is the text of `/proc/self/mountinfo`.
fn mount_point<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        // Fields of mountinfo, proc(5): mount ID, parent ID, major:minor, root, mount point.
        let mut words = line.split(' ').skip(2);
        let (device, _root, at) = (words.next()?, words.next()?, words.next()?);
        (device == number).then_some(at)
    })
}

/// Returns the device numbers of swap devices; `swaps` is the text of `/proc/swaps`.
fn swaps_on(swaps: &str) -> impl Iterator<Item = String> {
    let paths = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    paths.filter_map(|path| {
        let meta = fs::metadata(path).ok()?;
        (meta.file_type().is_block_device()).then(|| device_number(meta.rdev()))
    })
}

/// Returns the kind of content that a signature at the start of the device announces.
fn signature(file: &File, size: u64) -> io::Result<Option<String>> {
    let mut start = vec![0; END_BYTES.min(size) as usize];
    file.read_exact_at(&mut start, 0)?;
    Ok(recognise(&start).map(str::to_owned))
}

/// Recognises the signature of a partition table, file system or volume.
fn recognise(start: &[u8]) -> Option<&'static str> {
    // Offset, signature and name. Sector 0 of many file systems ends in 55 aa as well, so that
    // signature comes last.
    let magics: [(usize, &[u8], &str); 14] = [
        (512, b"EFI PART", "a GUID partition table"),
        (4096, b"EFI PART", "a GUID partition table"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (512, b"LABELONE", "an LVM volume"),
        (0, b"XFSB", "an XFS filesystem"),
        (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 filesystem"),
        (0x10040, b"_BHRfS_M", "a btrfs filesystem"),
        (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS filesystem"),
        (3, b"NTFS    ", "an NTFS filesystem"),
        (82, b"FAT32   ", "a FAT filesystem"),
        (4086, b"SWAPSPACE2", "a swap area"),
        (4086, b"SWAP-SPACE", "a swap area"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID array"),
        (510, &[0x55, 0xaa], "a partition table or boot sector"),
    ];
    let found = magics.iter().find(|(at, magic, _)| {
        start
            .get(*at..)
            .is_some_and(|bytes| bytes.starts_with(magic))
    });
    found.map(|found| found.2)
}

/// Returns the offset of a byte other than 0, if one is at the ends or in the samples between.
fn first_nonzero(file: &File, size: u64) -> io::Result<Option<u64>> {
    let ends = END_BYTES.min(size);
    let step = (size / SAMPLES).max(SAMPLE_BYTES as u64);
    let whole = [(0, ends), (size - ends, ends)];
    let samples = (0..size / step).map(|i| i * step / SAMPLE_BYTES as u64 * SAMPLE_BYTES as u64);
    let samples = samples.map(|at| (at, (size - at).min(SAMPLE_BYTES as u64)));
    let mut bytes = Vec::new();
    for (at, len) in whole.into_iter().chain(samples) {
        bytes.resize(len as usize, 0);
        file.read_exact_at(&mut bytes, at)?;
        if let Some(first) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(at + first as u64));
        }
    }
    Ok(None)
}

/// Returns the bytes of a file that are holes or known zeroes.
fn holes(file: &File, size: u64) -> io::Result<u64> {
    let (mut at, mut holes) = (0, 0);
    let mut extents = Vec::new();
    while at < size {
        let len = (size - at).min(u64::from(SURVEY_BYTES)) as u32;
        extents.clear();
        find_extents(file, at, len, EXTENTS_MAX, &mut extents)?;
        for extent in &extents {
            holes += u64::from(if extent.hole { extent.len } else { 0 });
            at += u64::from(extent.len);
        }
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_file_system_lie_on_one_device() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        assert!(block_device_below(&paths[0]).is_err(), "it is not there");
        for path in &paths {
            fs::write(path, b"").expect("written");
        }
        let [a, b] = paths.map(|path| block_device_below(&path).expect("there"));
        assert_eq!(a, b);
        // The result depends on the machine: tmpfs has no block device.
        assert!(a.is_none_or(|name| name.starts_with("block device ")));
    }

    #[test]
    fn a_file_tells_what_it_holds_and_what_was_never_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("disk");
        fs::write(&path, b"").expect("written");
        assert_eq!(examine(&path).expect("readable").holds, [""; 0]);
        let file = File::options().write(true).open(&path).expect("there");
        file.set_len(8 << 20).expect("larger");
        file.write_all_at(&[1; 1 << 20], 4 << 20).expect("written");
        let found = examine(&path).expect("readable");
        assert_eq!(found.holds, ["8 MiB"]);
        assert_eq!(found.modified, examine(&path).expect("readable").modified);
        assert_eq!(found.unwritten, Some((7 << 20, 8 << 20)));
        file.write_all_at(b"QFI\xfb", 0).expect("written");
        let found = examine(&path).expect("readable");
        assert_eq!(found.holds, ["8 MiB", "a qcow2 image"]);
        let other = dir.path().join("other");
        fs::copy(&path, &other).expect("copied");
        let other = examine(&other).expect("readable");
        assert_ne!(other.identity, found.identity);
        // A file created at once gets the same inode on many file systems.
        if !found.mistakable {
            fs::remove_file(&path).expect("removed");
            // The kernel takes the time of birth from a clock that ticks a few hundred times a
            // second.
            std::thread::sleep(std::time::Duration::from_millis(30));
            File::create(&path)
                .and_then(|file| file.set_len(8 << 20))
                .expect("made");
            let anew = examine(&path).expect("readable");
            assert_ne!(anew.identity, found.identity);
        }
    }

    #[test]
    fn block_devices_are_told_apart_by_the_best_that_they_say() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = dir.path().join("sda");
        let part = disk.join("sda2");
        fs::create_dir_all(disk.join("device")).expect("made");
        fs::create_dir_all(&part).expect("made");
        let write = |at: &Path, name: &str, text: &str| {
            fs::write(at.join(name), format!("{text}\n")).expect("written");
        };
        write(&part, "partition", "2");
        write(&part, "start", "2048");
        let identity = |at: &Path, boot| device_identity(at, "8:0", boot);
        let boot = Some("b00t\n");
        assert_eq!(identity(&disk, boot), "8:0");
        write(&disk, "diskseq", "17");
        assert_eq!(identity(&disk, boot), "8:0, attachment 17 of boot b00t");
        // The sequence number starts anew with each boot, so it is useless without the boot's
        // identifier.
        assert_eq!(identity(&disk, None), "8:0");
        write(&disk.join("device"), "serial", "S1");
        assert_eq!(identity(&disk, boot), "8:0 with serial number S1");
        write(&disk, "wwid", "");
        assert_eq!(identity(&disk, boot), "8:0 with serial number S1");
        write(&disk, "wwid", "naa.5000c500");
        assert_eq!(identity(&disk, boot), "naa.5000c500");
        let place = "naa.5000c500, partition 2 at sector 2048";
        assert_eq!(identity(&part, boot), place);
    }

    #[test]
    fn what_lies_at_a_disks_start_is_recognised() {
        let with = |at: usize, magic: &[u8]| {
            let mut start = vec![0; 1 << 17];
            start[at..at + magic.len()].copy_from_slice(magic);
            start
        };
        for (at, magic, says) in [
            (510, &b"\x55\xaa"[..], "partition table"),
            (512, b"EFI PART", "GUID"),
            (1080, b"\x53\xef", "ext4"),
            (0x10040, b"_BHRfS_M", "btrfs"),
            (4086, b"SWAPSPACE2", "swap"),
        ] {
            let found = recognise(&with(at, magic)).expect("recognised");
            assert!(found.contains(says), "{found}");
        }
        assert_eq!(recognise(&[0; 1 << 17]), None);
        assert_eq!(recognise(&[0; 16]), None);
    }

    #[test]
    fn any_byte_at_the_ends_or_in_a_sampled_place_is_found() {
        let file = tempfile::tempfile().expect("a file");
        let size = 64 << 20;
        file.set_len(size).expect("a size");
        assert_eq!(first_nonzero(&file, size).expect("readable"), None);
        for at in [0, 5000, size - 1, size - END_BYTES, size / SAMPLES * 77] {
            file.write_all_at(&[7], at).expect("written");
            assert_eq!(first_nonzero(&file, size).expect("readable"), Some(at));
            file.write_all_at(&[0], at).expect("written");
        }
        // Smaller than the part that is read completely.
        let small = tempfile::tempfile().expect("a file");
        small.set_len(6000).expect("a size");
        assert_eq!(first_nonzero(&small, 6000).expect("readable"), None);
    }

    #[test]
    fn mounts_and_swaps_are_read() {
        let mounts = "26 1 8:2 / / rw,noatime shared:1 - ext4 /dev/sda2 rw\n\
                      97 26 8:17 / /srv rw - xfs /dev/sdb1 rw\n";
        assert_eq!(mount_point(mounts, "8:17"), Some("/srv"));
        assert_eq!(mount_point(mounts, "8:1"), None);
        let swaps = "Filename Type Size Used Priority\n/no/such partition 1 0 -2\n";
        assert_eq!(swaps_on(swaps).count(), 0);
    }

    /// Needs the privilege to create a loop device, so it does not run in continuous integration.
    #[test]
    #[ignore = "needs to be root with loop devices"]
    fn a_block_device_in_use_is_told() {
        let run = |words: &[&str]| {
            let done = std::process::Command::new(words[0])
                .args(&words[1..])
                .output();
            let done = done.expect("it runs");
            assert!(done.status.success(), "{words:?}: {done:?}");
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("image");
        File::create(&image)
            .expect("made")
            .set_len(64 << 20)
            .expect("a size");
        let device = run(&["losetup", "--find", "--show", &image.display().to_string()]);
        let path = Path::new(&device);
        let empty = examine(path).expect("readable");
        assert!(empty.holds.is_empty() && empty.only_zeroes && empty.used_by.is_none());
        run(&["mkfs.ext4", "-q", &device]);
        let formatted = examine(path).expect("readable");
        assert!(formatted.holds[0].contains("ext4"), "{formatted:?}");
        let at = dir.path().join("mounted");
        fs::create_dir(&at).expect("made");
        run(&["mount", &device, &at.display().to_string()]);
        let used = examine(path).expect("readable").used_by;
        run(&["umount", &device]);
        run(&["losetup", "--detach", &device]);
        assert!(used.expect("mounted").contains("is mounted at"));
    }
}
