//! Read-only check of a disk's file for `tidegate check`: finds what `serve` would refuse.
//!
//! [`check_file`] is shared with opening. [`inspect`] does not block on special files or leases:
//! the kind of the file is checked before it is opened, and O_NONBLOCK covers a replacement in
//! between.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::{DIRECTORY, OpenError, probe};
use crate::config::{Create, DiskConfig, DiskFormat};
use crate::ring::sys;

/// Properties of a file that may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checked {
    /// True for a block device, false for a regular file.
    pub(super) block_device: bool,
    /// Size of the disk in bytes.
    pub(super) size: u64,
}

/// Warning about a file that is served, but might be meant otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileWarning {
    /// Property that was found, to follow the name of the file.
    pub what: &'static str,
    /// Advice for the operator.
    pub help: &'static str,
}

/// Content that only the guest can tell from an encrypted image.
const ENCRYPTED: FileWarning = FileWarning {
    what: "begins with a LUKS header, and is served encrypted as it is",
    help: "right if the guest decrypts the disk: `format = \"raw\"` says so; if the hypervisor has \
           decrypted it until now, convert it (`qemu-img convert`, with the secret)",
};

/// Checks that an open file may be served with this configuration: a raw regular file or block
/// device of the right size. With `writable`, an empty file is accepted where it would be given its
/// size.
///
/// # Errors
/// The reason why the file would be refused.
pub(super) fn check_file(
    path: &Path,
    file: &File,
    config: &DiskConfig,
    writable: bool,
) -> Result<Checked, OpenError> {
    let meta = file.metadata().map_err(|source| OpenError::Io {
        path: path.to_owned(),
        what: "inspect",
        source,
    })?;
    // Checked again on the open file, because the path may have been replaced since the first
    // check.
    refuse_special(path, meta.file_type())?;
    let block_device = meta.file_type().is_block_device();
    match measure(path, file, block_device, writable, config) {
        Ok(size) => Ok(Checked { block_device, size }),
        // An image of another format has another size than its disk: the format is the error to
        // report.
        Err(error @ OpenError::Size { .. }) => {
            refuse_foreign(path, file, config)?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Refuses a path that is neither a regular file nor a block device.
pub(super) fn refuse_special(path: &Path, kind: FileType) -> Result<(), OpenError> {
    let found = match kind {
        kind if kind.is_file() || kind.is_block_device() => return Ok(()),
        kind if kind.is_dir() => DIRECTORY,
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        _ => "something else",
    };
    let path = path.to_owned();
    Err(OpenError::Kind { path, found })
}

/// Returns the size in bytes of the disk on an open file. Fails with [`OpenError::Size`] if it
/// contradicts the configured size. An empty file that is to be filled counts as if it had been.
pub(super) fn measure(
    path: &Path,
    file: &File,
    block_device: bool,
    writable: bool,
    config: &DiskConfig,
) -> Result<u64, OpenError> {
    let at = |source| OpenError::Io {
        path: path.to_owned(),
        what: "measure",
        source,
    };
    let found = if block_device {
        sys::block_device_size(file).map_err(at)?
    } else {
        file.metadata().map_err(at)?.len()
    };
    match config.size {
        // An empty file is one that has yet to get its size.
        Some(size) if found == 0 && config.create != Create::No && writable && !block_device => {
            Ok(size)
        }
        // Part of a block device may be served, all of a file must be meant.
        Some(size) if found == size || (block_device && found > size) => Ok(size),
        Some(configured) => Err(OpenError::Size {
            path: path.to_owned(),
            found,
            configured,
        }),
        None => Ok(found),
    }
}

/// Refuses a file that looks like an image of another format, such as qcow2, unless the
/// configuration declares it raw or an earlier start marked it so.
pub(super) fn refuse_foreign(
    path: &Path,
    plain: &File,
    config: &DiskConfig,
) -> Result<(), OpenError> {
    if config.format == DiskFormat::Raw || probe::is_marked(plain) {
        return Ok(());
    }
    let found = probe::foreign_format(plain).map_err(|source| OpenError::Io {
        path: path.to_owned(),
        what: "read the header of",
        source,
    })?;
    match found {
        Some(format) => Err(OpenError::Format {
            path: path.to_owned(),
            format,
        }),
        None => Ok(()),
    }
}

/// Returns a warning for a file with a LUKS header that no earlier start has marked, unless the
/// configuration declares it raw. Its guest may have encrypted the disk, or the hypervisor may
/// decrypt it for a guest that would take the encrypted bytes for an empty disk.
pub(super) fn encrypted(plain: &File, config: &DiskConfig) -> Option<FileWarning> {
    let is_declared = config.format == DiskFormat::Raw || probe::is_marked(plain);
    // A file that cannot be read fails where that matters.
    let is_luks = !is_declared && probe::is_luks(plain).unwrap_or(false);
    is_luks.then_some(ENCRYPTED)
}

/// Checks whether a disk's file could be served, without creating, changing or locking anything.
/// Accepts a disk without a file, and one whose file would be created. Returns a warning about a
/// file that is served, but might be meant otherwise.
///
/// # Errors
/// The error with which opening the disk would fail.
pub fn inspect(config: &DiskConfig) -> Result<Option<FileWarning>, OpenError> {
    let Some(path) = &config.path else {
        return Ok(None);
    };
    config
        .check_path(path)
        .map_err(|source| OpenError::NotAllowed {
            path: path.to_owned(),
            source,
        })?;
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        what: "open",
        source,
    };
    let meta = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && config.create != Create::No => {
            return Ok(None);
        }
        meta => meta.map_err(failed)?,
    };
    refuse_special(path, meta.file_type())?;
    if !config.read_only {
        sys::may_write(path).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    let Checked { size, .. } = check_file(path, &file, config, !config.read_only)?;
    if !config.incoming {
        refuse_foreign(path, &file, config)?;
    }
    OpenError::refuse_part_blocks(config, size)?;
    Ok(encrypted(&file, config).filter(|_| !config.incoming))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use tidegate_core::objective::Limit;

    use super::*;

    fn disk(path: PathBuf) -> DiskConfig {
        DiskConfig {
            export: "disk".to_owned(),
            path: Some(path),
            within: None,
            size: Some(8192),
            create: Create::No,
            format: DiskFormat::Probe,
            read_only: false,
            nbd: None,
            incoming: false,
            block_size: 512,
            limit: Limit::NONE,
            limit_group: None,
            faults: Vec::new(),
            place: None,
        }
    }

    fn refusal(config: &DiskConfig) -> String {
        inspect(config).expect_err("refused").to_string()
    }

    #[test]
    fn what_serve_would_refuse_is_found_and_nothing_is_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let good = disk(at("good"));
        std::fs::write(at("good"), [0; 8192]).expect("writable");
        assert_eq!(inspect(&good).expect("good"), None);
        assert!(!crate::backing::probe::is_marked(
            &File::open(at("good")).expect("there")
        ));

        assert!(refusal(&disk(dir.path().to_owned())).contains("a directory"));
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).expect("no zeroes");
        // SAFETY: the path is a C string of ours.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert!(refusal(&disk(at("fifo"))).contains("a FIFO"));

        std::fs::write(at("short"), [0; 4096]).expect("writable");
        assert!(refusal(&disk(at("short"))).contains("is 4 KiB long, but size says 8 KiB"));
        std::fs::write(at("odd"), [0; 1000]).expect("writable");
        let odd = DiskConfig {
            size: None,
            ..disk(at("odd"))
        };
        assert!(refusal(&odd).contains("not a positive multiple of its block size 512 B"));
        let mut image = vec![0; 4096];
        image[..4].copy_from_slice(b"QFI\xfb");
        std::fs::write(at("image"), &image).expect("writable");
        assert!(refusal(&disk(at("image"))).contains("looks like a qcow2 image"));
        let raw = DiskConfig {
            size: None,
            format: DiskFormat::Raw,
            ..disk(at("image"))
        };
        inspect(&raw).expect("said to be raw");

        // Its guest may have encrypted it, so this is no error.
        let mut luks = vec![0; 8192];
        luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        std::fs::write(at("luks"), &luks).expect("writable");
        let warning = inspect(&disk(at("luks"))).expect("it may be served");
        assert!(warning.is_some_and(|it| it.what.contains("a LUKS header")));
        let raw = DiskConfig {
            format: DiskFormat::Raw,
            ..disk(at("luks"))
        };
        assert_eq!(inspect(&raw).expect("said to be raw"), None);

        assert!(refusal(&disk(at("none"))).contains("cannot open"));
        let made = DiskConfig {
            create: Create::Sparse,
            ..disk(at("none"))
        };
        inspect(&made).expect("it would be made");
        assert!(!at("none").exists());
        // An empty file would be given its size.
        std::fs::write(at("empty"), []).expect("writable");
        let empty = DiskConfig {
            create: Create::Sparse,
            ..disk(at("empty"))
        };
        inspect(&empty).expect("it would be filled");
        let len = std::fs::metadata(at("empty")).expect("there").len();
        assert_eq!(len, 0);
    }
}
