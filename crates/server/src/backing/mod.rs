//! Where a disk's bytes are: files, block devices, memory.
//!
//! A backing is a `door::Backing` in a module here, and a member of `Medium`, through which loops
//! call it. An emulated device has disks of the same backings; its model is the device's.

pub(crate) mod door;
pub mod dsync;
pub mod extents;
pub mod file;
pub mod file_io;
mod inspect;
pub mod layout;
mod medium;
pub mod memory;
mod on_file;
mod on_memory;
pub mod probe;
pub mod range_lock;
#[cfg(test)]
pub(crate) mod remote;
#[cfg(test)]
mod remote_tests;
pub(crate) mod rotational;
pub mod standing;

use std::io;
use std::path::{Path, PathBuf};

use crate::bounded::NotDone;
use crate::config::{DeviceConfig, DeviceKind, DiskConfig};
use crate::fault::Rule;
use crate::help::missing_directory;
use crate::media::State;

pub use file::OpenFile;
pub use inspect::inspect;
pub(crate) use medium::{Medium, Shared};
pub use memory::{Memory, Tail};
use on_file::FileBacking;

/// An opened disk.
#[derive(Debug)]
pub struct Disk {
    /// NBD export name.
    pub export: String,
    /// Bytes.
    pub size: u64,
    /// Refuses writes.
    pub read_only: bool,
    /// Smallest unit that clients may address.
    pub block_size: u32,
    /// Its bytes.
    pub(crate) medium: Medium,
    /// What goes wrong with it on purpose, from the start.
    pub faults: Vec<Rule>,
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        source: io::Error,
    },
    /// Somebody else has it open for serving.
    #[error("{}: in use by another process: it holds the lock", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Not raw.
    #[error(
        "{}: looks like a {format} image, and only raw disks are served; convert it \
         (`qemu-img convert -O raw {} NEW`), or, if these bytes are a raw disk's own, say \
         `format = \"raw\"`", path.display(), path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        format: &'static str,
    },
    /// The path is neither a regular file nor a block device. The file was not opened.
    #[error("{}: is {found}, and a disk lies on a regular file or a block device", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// Kind of the file, with its article: "a FIFO".
        found: &'static str,
    },
    /// The file of a disk that was served before is missing or empty. No new one is created in its
    /// place.
    #[error(
        "{}: {found}, and the disk {export:?} was served from there before: no empty one is made \
         in its place",
        path.display()
    )]
    Lost {
        /// Path of the file.
        path: PathBuf,
        /// NBD export name of the disk.
        export: String,
        /// Reason, as the predicate of a sentence: "is not there" or "is empty".
        found: &'static str,
    },
    /// The file could not be opened before the deadline.
    #[error("{}: cannot be opened: {source}", path.display())]
    Late {
        /// Path of the file.
        path: PathBuf,
        /// Reason why opening did not end.
        source: NotDone,
        /// Key of the deadline under `[daemon]`, as the configuration spells it.
        key: &'static str,
    },
    /// Its size is not what was configured.
    #[error("{}: is {found} bytes long, but size says {configured}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u64,
        /// What it should have.
        configured: u64,
    },
    /// Its size cannot be served.
    #[error("{what}: a size of {size} bytes is not a positive multiple of its block size {block}")]
    SizeNotBlocks {
        /// The path or the export.
        what: String,
        /// Bytes.
        size: u64,
        /// Bytes.
        block: u32,
    },
    /// No size was given where nothing else tells it.
    #[error("no size given for a disk that is to be made")]
    NoSize,
    /// A disk on a file device without a path.
    #[error("no path given for a disk on a device of files")]
    NoPath,
    /// There is not enough memory for its bytes.
    #[error("cannot reserve {size} bytes of memory: {source}")]
    Memory {
        /// Bytes.
        size: u64,
        /// How it failed.
        source: io::Error,
    },
}

/// Name of a directory in [`OpenError::Kind`].
pub(crate) const DIRECTORY: &str = "a directory";

impl OpenError {
    /// Refuses a size that is not a positive multiple of the disk's block size.
    fn refuse_part_blocks(config: &DiskConfig, size: u64) -> Result<(), OpenError> {
        let block = config.block_size;
        if size > 0 && size.is_multiple_of(u64::from(block)) {
            return Ok(());
        }
        let path = config.path.as_ref();
        let what = path.map_or(config.export.clone(), |path| path.display().to_string());
        Err(OpenError::SizeNotBlocks { what, size, block })
    }

    /// Returns true if the error may disappear without a change of the configuration, with time or
    /// for another user.
    pub fn may_pass(&self) -> bool {
        matches!(self, OpenError::Io { .. } | OpenError::InUse { .. })
    }

    /// What would help, where that is not said already.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            OpenError::Io { path, source, .. } => return help_with_io(path, source.kind()),
            OpenError::Kind { found, .. } => match *found == DIRECTORY {
                true => "name a file in it, or a block device".to_owned(),
                false => "name a file that holds the disk's bytes, or a block device".to_owned(),
            },
            OpenError::Lost { export, .. } => format!(
                "put the file back (is its file system mounted?); where a new, empty disk is \
                 wanted: `tidegate disk forget {export}`, with `--config FILE` while the daemon \
                 does not run"
            ),
            OpenError::Late { key, .. } => format!(
                "see to the file system it lies on (a network server or a FUSE process that does \
                 not answer?); `{key}` under [daemon] says how long is waited"
            ),
            OpenError::InUse { path } => format!(
                "one process at a time serves a disk: end the other one (`fuser {}` says which)",
                path.display()
            ),
            OpenError::Size { found, .. } => format!(
                "size = \"{found} B\", or leave it out to take the file as it is; \
                 `qemu-img resize -f raw` makes it larger"
            ),
            _ => return None,
        };
        Some(help)
    }
}

fn help_with_io(path: &Path, error: io::ErrorKind) -> Option<String> {
    let help = match error {
        io::ErrorKind::NotFound => {
            if let Some(help) = missing_directory(path) {
                return Some(help);
            }
            "make the file, or have it made: create = \"sparse\" and a size"
        }
        io::ErrorKind::PermissionDenied => {
            "the daemon's user must be able to read and write it, or to read it with \
             read_only = true"
        }
        io::ErrorKind::StorageFull => {
            "make room, or create = \"sparse\", which takes space only as the guest writes"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

impl Disk {
    /// Opens, and where configured creates, a disk of a device.
    ///
    /// # Errors
    /// Says which file, what was found, and what would help.
    pub fn open(device: &DeviceConfig, config: &DiskConfig) -> Result<Disk, OpenError> {
        let in_memory = || {
            let size = config.size.ok_or(OpenError::NoSize)?;
            let memory =
                Memory::new(size as usize).map_err(|source| OpenError::Memory { size, source })?;
            Ok((Medium::Memory(memory), size))
        };
        let (medium, size) = match (&device.kind, &config.path) {
            (DeviceKind::Memory, _) | (DeviceKind::Emulated { .. }, None) => in_memory()?,
            #[cfg(test)]
            (_, Some(path)) if let Some(export) = remote::peer::export(path, config) => {
                let remote = remote::Remote::new(export);
                let size = remote.size();
                (Medium::Remote(remote), size)
            }
            (_, Some(path)) => {
                let open = OpenFile::open(path, config)?;
                let size = open.facts.size;
                (Medium::File(FileBacking::new(open)), size)
            }
            (DeviceKind::File, None) => return Err(OpenError::NoPath),
        };
        OpenError::refuse_part_blocks(config, size)?;
        Ok(Disk {
            export: config.export.clone(),
            size,
            read_only: config.read_only,
            block_size: config.block_size,
            medium,
            faults: config.faults.clone(),
        })
    }

    /// Reason why the disk refuses requests, or may not answer them; `None` while it is well.
    pub fn failure(&self) -> Option<String> {
        self.medium.failure()
    }

    /// Observed state of the disk's file; `None` for a disk that is in none.
    pub fn media_state(&self) -> Option<State> {
        self.medium.watched().map(|watched| watched.state())
    }

    /// The smallest unit that is written without reading first.
    pub fn physical_block(&self) -> u32 {
        self.medium.physical_block()
    }

    /// Returns whether the device behind its file turns, as the kernel says; `None`: it does not.
    pub fn is_rotational(&self) -> Option<bool> {
        let (_, device, _) = self.medium.identity()?;
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        rotational::is_rotational(Path::new(rotational::SYSFS), &number)
    }
}
