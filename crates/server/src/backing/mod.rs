//! Backings, which store the bytes of disks: files, block devices, memory.
//!
//! A backing implements `interface::Backing` in a module here and is a variant of `AnyBacking`,
//! through which loops call it. Disks of an emulated device have the same backings; the disk model
//! belongs to the device.

mod activation;
mod any_backing;
mod cache_mode;
pub mod dsync;
pub mod error_state;
pub mod extents;
pub mod file;
mod file_backing;
pub mod file_io;
mod file_lock;
mod file_mapping;
mod inspect;
pub(crate) mod interface;
pub mod layout;
pub mod memory;
mod memory_backing;
pub(crate) mod nbd;
pub mod probe;
pub mod range_lock;
pub(crate) mod rotational;

use std::io;
use std::path::{Path, PathBuf};

use tidegate_core::objective::Limit;
use tidegate_nbd::client::ClientError;
use tidegate_units::human::{bytes_and_count, exact_bytes};

use crate::allowed_paths::NotAllowed;
use crate::blocking_call::NotDone;
use crate::config::{DeviceConfig, DeviceKind, DiskConfig, NbdConfig};
use crate::disk_file_monitor::State;
use crate::error_hints::missing_directory;
use crate::fault::Rule;
use crate::tls::ServerTlsError;

pub use activation::{Activation, ActivationState, Arrival, Found, Users};
pub(crate) use any_backing::{AnyBacking, Shared};
pub use file::OpenFile;
pub(crate) use file::is_direct;
use file_backing::FileBacking;
pub use file_lock::LockedFile;
pub use inspect::{FileWarning, inspect};
pub use memory::{Memory, Tail};
pub use nbd::ConnectError;
use nbd::NbdBacking;

/// Open disk.
#[derive(Debug)]
pub struct Disk {
    /// NBD export name.
    pub export: String,
    /// Size in bytes.
    pub size: u64,
    /// True if writes are refused.
    pub read_only: bool,
    /// Smallest unit in bytes that clients may address.
    pub block_size: u32,
    /// Storage of the disk's bytes.
    pub(crate) medium: AnyBacking,
    /// Limit, beside that of the VM.
    pub limit: Limit,
    /// Name of the limit that it shares with other disks; `None` if there is none.
    pub limit_group: Option<String>,
    /// Fault rules that hold from the start.
    pub faults: Vec<Rule>,
}

/// Reasons why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Verb phrase for the step that failed, to follow "cannot".
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// Another process serves the file: it holds the lock, a lease or an exclusive open.
    #[error("{}: in use by another process: it holds the lock", path.display())]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file looks like an image of another format.
    #[error(
        "{}: looks like a {format} image, and only raw disks are served; convert it \
         (`qemu-img convert -O raw {} NEW`), or set `format = \"raw\"` if the file is a raw disk",
        path.display(), path.display()
    )]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Name of the format that the header announces.
        format: &'static str,
    },
    /// The path leads out of the directories that are allowed for it. Nothing was changed.
    #[error("{}: {source}", path.display())]
    NotAllowed {
        /// Path of the file.
        path: PathBuf,
        /// Reason, with the directories.
        source: NotAllowed,
    },
    /// The path is neither a regular file nor a block device. The file was not opened.
    #[error("{}: is {found}; a disk needs a regular file or a block device", path.display())]
    Kind {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the file, with its article: "a FIFO".
        found: &'static str,
    },
    /// The file of a disk that was served before is missing or empty. No new one is created in its
    /// place.
    #[error(
        "{}: {found}, but the disk {export:?} was served from it before: no empty file is created \
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
    /// The file could not be opened before the time-out.
    #[error("{}: cannot be opened: {source}", path.display())]
    Late {
        /// Path of the file.
        path: PathBuf,
        /// Reason why opening did not end.
        source: NotDone,
        /// Key of the time-out under `[daemon]`, as the configuration spells it.
        key: &'static str,
    },
    /// The size of the file is not the configured one.
    #[error(
        "{}: is {} long, but size says {}",
        path.display(),
        bytes_and_count(*found),
        bytes_and_count(*configured)
    )]
    Size {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        found: u64,
        /// Configured size in bytes.
        configured: u64,
    },
    /// The size is zero or not a multiple of the block size.
    #[error(
        "{what}: a size of {} is not a positive multiple of its block size {}",
        bytes_and_count(*size),
        exact_bytes((*block).into())
    )]
    SizeNotBlocks {
        /// Path of the file, or export name of a disk without one.
        what: String,
        /// Size in bytes.
        size: u64,
        /// Block size in bytes.
        block: u32,
    },
    /// A disk that is to be created, or is in memory, has no size.
    #[error("`size` is missing: a disk that is created needs one")]
    NoSize,
    /// A disk on a device of kind `file` has no path.
    #[error("`path` is missing: a disk on a device of kind \"file\" needs one")]
    NoPath,
    /// A disk on a device of kind `nbd` has no URI.
    #[error("`uri` is missing: a disk on a device of kind \"nbd\" needs one")]
    NoUri,
    /// There is no connection to the server of a disk.
    #[error("{uri}: {source}")]
    Server {
        /// URI of the export.
        uri: String,
        /// Reason.
        source: Box<ConnectError>,
    },
    /// The export of a server is not what the disk needs.
    #[error("{uri}: {what}")]
    Export {
        /// URI of the export.
        uri: String,
        /// Fault of the export, and what would be right.
        what: String,
    },
    /// The memory of a disk in memory, or for a disk on a server, could not be reserved.
    #[error("cannot reserve {} of memory: {source}", bytes_and_count(*size))]
    Memory {
        /// Size in bytes.
        size: u64,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Name of a directory in [`OpenError::Kind`].
pub(crate) const DIRECTORY: &str = "a directory";

impl OpenError {
    /// Refuses a size that is not a positive multiple of the disk's block size.
    fn refuse_part_blocks(config: &DiskConfig, size: u64) -> Result<(), OpenError> {
        let block = config.block_size;
        assert!(block.is_power_of_two(), "a block size of {block} bytes");
        // Clients address whole blocks, so a rest at the end could never be reached.
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
        matches!(self, OpenError::Io { .. } | OpenError::InUse { .. }) || self.awaits_server()
    }

    /// Returns true if the server of the disk is away, or not ready.
    pub fn awaits_server(&self) -> bool {
        let OpenError::Server { source, .. } = self else {
            return false;
        };
        match &**source {
            ConnectError::Io(_) | ConnectError::Handshake(_) => true,
            // Files change by hand alone.
            ConnectError::Tls(error) => !matches!(error, ServerTlsError::Files(_)),
            ConnectError::Loop(_) => false,
        }
    }

    /// Returns advice for the operator, unless the error itself gives it.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            OpenError::Io { path, source, .. } => return help_with_io(path, source.kind()),
            OpenError::Kind { found, .. } => {
                if *found == DIRECTORY {
                    "name a file in it, or a block device".to_owned()
                } else {
                    "name a file that holds the disk's bytes, or a block device".to_owned()
                }
            }
            OpenError::Lost { export, .. } => format!(
                "put the file back (is its file system mounted?); for a new, empty disk: \
                 `tidegate disk forget {export}`, with `--config FILE` while the daemon does not \
                 run"
            ),
            OpenError::Late { key, .. } => format!(
                "check its file system (a network server or a FUSE process that does not answer?); \
                 `{key}` under [daemon] is the time-out"
            ),
            OpenError::Server { uri, source } => match &**source {
                ConnectError::Loop(_) => {
                    "name the socket or address of another server, which has the bytes".to_owned()
                }
                ConnectError::Tls(ServerTlsError::Files(error)) => error.help().to_owned(),
                ConnectError::Handshake(ClientError::NoTls { .. } | ClientError::TlsRequired)
                | ConnectError::Tls(ServerTlsError::Refused(_)) => return None,
                _ => format!(
                    "start its server (does `nbdinfo '{uri}'` reach it, as the daemon's user?)"
                ),
            },
            OpenError::InUse { path } => format!(
                "one process at a time may serve a disk: stop the other one (`fuser {}` names it); \
                 if it names none, I/O of a killed process is still in flight: start later",
                path.display()
            ),
            OpenError::Size {
                found, configured, ..
            } if found > configured => format!(
                "size = \"{}\", as after `tidegate vm resize`, or leave it out to take the file \
                 as it is",
                exact_bytes(*found)
            ),
            OpenError::Size { found, .. } => format!(
                "size = \"{}\", or leave it out to take the file as it is; \
                 `qemu-img resize -f raw` makes it larger",
                exact_bytes(*found)
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
            "create the file, or let the daemon create it: create = \"sparse\" and a size"
        }
        io::ErrorKind::PermissionDenied => {
            "the daemon's user must be able to read and write it, or to read it with \
             read_only = true"
        }
        io::ErrorKind::StorageFull => {
            "free some space, or create = \"sparse\", which takes space only as the guest writes"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

/// Opens a disk on an NBD server.
fn on_server(config: &DiskConfig, nbd: Option<&NbdConfig>) -> Result<(AnyBacking, u64), OpenError> {
    let open = NbdBacking::open(config, nbd.ok_or(OpenError::NoUri)?)?;
    let size = open.size();
    Ok((AnyBacking::Nbd(Box::new(open)), size))
}

impl Disk {
    /// Opens a disk of a device, and creates its file where the configuration asks for that.
    ///
    /// # Errors
    /// Names the file and what was found; [`OpenError::help`] has the advice.
    pub fn open(device: &DeviceConfig, config: &DiskConfig) -> Result<Disk, OpenError> {
        Disk::open_or_inherit(device, config, None)
    }

    /// Opens a disk as [`Disk::open`] does, with the open and locked file of another daemon if
    /// there is one.
    ///
    /// # Errors
    /// As for [`Disk::open`].
    pub fn open_or_inherit(
        device: &DeviceConfig,
        config: &DiskConfig,
        inherited: Option<LockedFile>,
    ) -> Result<Disk, OpenError> {
        let in_memory = || {
            let size = config.size.ok_or(OpenError::NoSize)?;
            let memory =
                Memory::new(size as usize).map_err(|source| OpenError::Memory { size, source })?;
            Ok((AnyBacking::Memory(memory), size))
        };
        let (medium, size) = match (&device.kind, &config.path) {
            // A disk of an emulated device without a path is in memory.
            (DeviceKind::Memory, _) | (DeviceKind::Emulated { .. }, None) => in_memory()?,
            (DeviceKind::Nbd, _) => on_server(config, config.nbd.as_ref())?,
            #[cfg(test)]
            (_, Some(path)) if let Some(export) = nbd::peer::export(path, config) => {
                on_server(config, Some(&export))?
            }
            (_, Some(path)) => {
                let open = OpenFile::open_or_inherit(path, config, inherited)?;
                let size = open.facts.size;
                (AnyBacking::File(FileBacking::new(open)), size)
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
            limit: config.limit,
            limit_group: config.limit_group.clone(),
            faults: config.faults.clone(),
        })
    }

    /// Returns the reason why the disk refuses requests or may not answer them; `None` if there is
    /// none.
    pub fn failure(&self) -> Option<String> {
        self.medium.failure()
    }

    /// Returns the observed state of the disk's file; `None` for a disk in memory.
    pub fn media_state(&self) -> Option<State> {
        self.medium.watched().map(|watched| watched.state())
    }

    /// Returns the state of a disk that can be handed over to another daemon; `None` for one that
    /// cannot: in memory or read-only.
    pub fn activation_state(&self) -> Option<ActivationState> {
        self.medium
            .activation()
            .map(|activation| activation.state())
    }

    /// Returns the smallest unit in bytes that is written without a read before it.
    pub fn physical_block(&self) -> u32 {
        self.medium.physical_block()
    }

    /// Returns the number (`major:minor`) of the block device behind the file; `None` for a disk in
    /// memory.
    pub(crate) fn block_device(&self) -> Option<String> {
        let (_, device, _) = self.medium.identity()?;
        Some(rotational::device_number(device))
    }
}
