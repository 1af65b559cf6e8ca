//! Opening of files and block devices for serving: locks, sizes, alignment, capabilities.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::OpenError;
use super::activation::Activation;
use super::dsync::Durably;
use super::error_state::ErrorState;
use super::file_lock::{
    LockedFile, can_punch, lock_file, mark_raw, open_same, options, retry_while_in_use,
};
use super::file_mapping::FileMapping;
use super::inspect::{Checked, check_file, refuse_foreign, refuse_special};
use crate::config::{Create, DiskConfig};
use crate::disk_file_monitor::{State, Watched};
use crate::ownership::Ownership;
use crate::ring::sys;

/// File or block device that is open and, unless its disk is incoming, locked for serving. Dropping
/// it releases the lock.
#[derive(Debug)]
pub struct OpenFile {
    /// Open file.
    pub file: Arc<File>,
    /// Properties of the file and errors so far.
    pub facts: FileFacts,
    /// Lock of the file; `None` for a read-only disk, whose lock all readers share.
    pub activation: Option<Arc<Activation>>,
    ownership: Ownership,
}

/// Properties of an open file, and its errors so far.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// File identity as [`sys::identity`] returns it: file system and inode, or block device.
    pub identity: (bool, u64, u64),
    /// Size of the disk in bytes.
    pub size: u64,
    /// Alignment in bytes of offsets and lengths; 1 through the page cache.
    pub align: u32,
    /// Alignment in bytes of memory addresses.
    pub memory_align: u32,
    /// True if I/O is direct (`O_DIRECT`).
    pub direct: bool,
    /// True on a file system in memory: operations complete at submission.
    pub in_memory: bool,
    /// True for a block device, false for a regular file.
    pub block_device: bool,
    /// Method that makes a write with FUA durable.
    pub durably: Durably,
    /// True while the lock is held, so that the file may be read and written.
    pub active: bool,
    /// True until punching a hole has failed.
    pub can_punch: bool,
    /// True until zeroing a range that stays allocated has failed.
    pub can_zero: bool,
    /// Logged errors, and the reason why changes fail since one of them.
    pub errors: ErrorState,
    /// Observed state of the file: whole, missing, truncated or replaced.
    pub watched: Arc<Watched>,
}

impl FileFacts {
    /// Finds the properties of a file that is open plainly and for serving, with the alignment of
    /// direct I/O.
    ///
    /// # Errors
    /// If a system call fails.
    fn find(
        path: &Path,
        config: &DiskConfig,
        (plain, file): (&File, &Arc<File>),
        (direct, in_memory): (Option<sys::DirectAlign>, bool),
        (incoming, size): (bool, u64),
    ) -> io::Result<FileFacts> {
        let identity = sys::identity(&plain.metadata()?);
        let (block_device, ..) = identity;
        let probing = !config.read_only && !block_device && !incoming;
        Ok(FileFacts {
            identity,
            size,
            align: direct.map_or(1, |a| a.offset.max(1)),
            memory_align: direct.map_or(1, |a| a.memory.max(1)),
            direct: direct.is_some(),
            in_memory,
            block_device,
            active: !incoming,
            durably: Durably::for_file(file, path, block_device),
            can_punch: !config.read_only && (!probing || can_punch(file, size)),
            can_zero: !config.read_only,
            watched: Arc::new(Watched::new(path, identity, size)),
            errors: ErrorState::new(path.display().to_string()),
        })
    }

    /// Sets the size of the disk in bytes. To be called before the file is truncated and after it
    /// was extended, so that the file is never taken to be too short.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
        self.watched.set_size(size);
    }

    /// Returns true if an I/O may be started: the disk is active, the file is whole and, for one
    /// that `changes` data (a write, discard or flush), no earlier sync has failed.
    pub fn takes(&self, changes: bool) -> bool {
        self.active
            && self.watched.state() == State::Whole
            && !(changes && self.errors.failed.is_some())
    }

    /// Records that a read ended before the end of the disk, so the file was truncated. Requests
    /// fail from now on, because returning zeroes would hide the loss of data.
    pub fn ended_early(&self) {
        self.watched.ended_early();
    }

    /// Returns properties for tests that have no file.
    #[cfg(test)]
    pub(crate) fn for_test(size: u64, align: u32) -> FileFacts {
        FileFacts {
            identity: (false, 0, 0),
            size,
            align,
            memory_align: align,
            direct: align > 1,
            in_memory: false,
            block_device: false,
            durably: Durably::Flag,
            active: true,
            can_punch: true,
            can_zero: true,
            watched: Arc::new(Watched::new(Path::new("test"), (false, 0, 0), size)),
            errors: ErrorState::new("test".to_owned()),
        }
    }
}

impl OpenFile {
    /// Opens a disk's file, and creates it where the configuration asks for that.
    ///
    /// # Errors
    /// Names the path and what was found.
    pub fn open(path: &Path, config: &DiskConfig) -> Result<OpenFile, OpenError> {
        OpenFile::open_or_inherit(path, config, None)
    }

    /// Opens a disk's file as [`OpenFile::open`] does; if another daemon has handed it over, its
    /// open file is used, whose lock is held already.
    ///
    /// # Errors
    /// Names the path and what was found.
    pub(super) fn open_or_inherit(
        path: &Path,
        config: &DiskConfig,
        inherited: Option<LockedFile>,
    ) -> Result<OpenFile, OpenError> {
        let was_served = inherited.is_some();
        // The other daemon served it, whatever the disk waited for at the start.
        let incoming = config.incoming && !was_served;
        let at = |what| {
            move |source| OpenError::Io {
                path: path.to_owned(),
                what,
                source,
            }
        };
        let (plain, created) = open_within(path, config)?;
        // The creator of a file fills it, even if its guest may only read.
        let writable = created || !config.read_only;
        let Checked { block_device, size } = check_file(path, &plain, config, writable)?;
        let (file, direct, in_memory) = reopen(path, &plain, config, block_device, size)?;
        let (file, held_claim, ownership) = match inherited {
            Some(locked) => (locked.file, Some(locked.claim), locked.ownership),
            None => (file, None, Ownership::default()),
        };
        let claim = if let Some(claim) = held_claim {
            claim
        } else if incoming {
            tracing::info!(path = %path.display(), "incoming: locked when a guest's queues start");
            None
        } else {
            lock_file(path, &file, !config.read_only)?
        };
        // Under the lock: another process may be creating the same file.
        if !block_device && writable {
            if sys::identity(&plain.metadata().map_err(at("inspect"))?)
                != sys::identity(&std::fs::metadata(path).map_err(at("inspect"))?)
            {
                // The creator removed the file again while its lock was waited for.
                return Err(at("open")(io::ErrorKind::NotFound.into()));
            }
            set_initial_size(&plain, config, size).map_err(|error| {
                if created {
                    let _ = std::fs::remove_file(path);
                }
                at("allocate")(error)
            })?;
        }
        // What a guest has written while the disk was served may look like any format.
        if !incoming && !was_served {
            refuse_foreign(path, &plain, config)?;
            mark_raw(path, &plain, config);
        }
        let file = Arc::new(file);
        let (files, how) = ((&plain, &file), (direct, in_memory));
        let found = FileFacts::find(path, config, files, how, (incoming, size));
        let facts = found.map_err(at("inspect"))?;
        let activation = (!config.read_only)
            .then(|| {
                let watched = facts.watched.clone();
                let lock = (!incoming, ownership.clone());
                Activation::new(path, config, lock, (&file, claim), watched)
            })
            .map(Arc::new);
        Ok(OpenFile {
            file,
            facts,
            activation,
            ownership,
        })
    }

    /// Maps the file by `map` if it is in memory; `None` where that is of no use.
    pub(super) fn map(
        &self,
        map: impl FnOnce(&File, u64) -> Option<FileMapping>,
    ) -> Option<Box<FileMapping>> {
        let map = || map(&self.file, self.facts.size).map(Box::new);
        self.facts.in_memory.then(map).flatten()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(activation) = &self.activation {
            activation.drop_claim();
        }
        // The daemon that this one was to take over from holds the same lock.
        if self.ownership.is_own() {
            sys::unlock(&self.file);
        }
    }
}

/// Opens or creates the file like [`open_or_create`], waiting for its lease, if the path leads into
/// the directories that the configuration confines it to.
fn open_within(path: &Path, config: &DiskConfig) -> Result<(File, bool), OpenError> {
    let refused = |source| OpenError::NotAllowed {
        path: path.to_owned(),
        source,
    };
    // Before anything is opened: even opening a file may have effects.
    config.check_path(path).map_err(refused)?;
    let (file, created) = retry_while_in_use(path, || open_or_create(path, config))?;
    if let Some(within) = &config.within {
        within.check_open(path, &file).map_err(refused)?;
    }
    Ok((file, created))
}

/// Opens the file, or creates an empty one, which gets its size under the lock. Returns true if it
/// was created.
fn open_or_create(path: &Path, config: &DiskConfig) -> Result<(File, bool), OpenError> {
    let failed = |what| {
        move |source| OpenError::Io {
            path: path.to_owned(),
            what,
            source,
        }
    };
    // Special files are refused before they are opened: opening a FIFO blocks until its other end
    // is opened, and opening a character device may have side effects. O_NONBLOCK covers a file
    // that is replaced by a FIFO between the check and the open.
    let open = || {
        refuse_special(
            path,
            std::fs::metadata(path).map_err(failed("open"))?.file_type(),
        )?;
        let file = options(config.read_only, libc::O_NONBLOCK).open(path);
        file.map_err(|source| match source.kind() {
            // The kernel is breaking a lease on the file, such as one that a network file server
            // holds.
            io::ErrorKind::WouldBlock => OpenError::InUse {
                path: path.to_owned(),
            },
            _ => failed("open")(source),
        })
    };
    match open() {
        Err(OpenError::Io { source, .. })
            if source.kind() == io::ErrorKind::NotFound && config.create != Create::No => {}
        other => return other.map(|file| (file, false)),
    }
    // Checked before the file exists, so that a missing size leaves no empty file.
    config.size.ok_or(OpenError::NoSize)?;
    // Readable for the daemon's user alone, as a disk's content is.
    match options(false, 0).create_new(true).mode(0o600).open(path) {
        // Another process created the file in between.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok((open()?, false)),
        Ok(file) => {
            // Without this, a crash could lose the name of a file whose bytes are durable.
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = File::open(dir.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
            dir.map_err(failed("sync the directory of"))?;
            Ok((file, true))
        }
        Err(e) => Err(failed("create")(e)),
    }
}

/// Gives an empty file its size, whether this process created it or another did.
fn set_initial_size(file: &File, config: &DiskConfig, size: u64) -> io::Result<()> {
    if size == 0 || file.metadata()?.len() != 0 {
        return Ok(());
    }
    let filled = || {
        if config.create == Create::Preallocated {
            sys::allocate(file, 0, 0, size)?;
        }
        file.set_len(size)?;
        file.sync_all()
    };
    filled().inspect_err(|_| {
        // A file of part of its size would be refused at the next start; an empty one is filled
        // again.
        let _ = file.set_len(0);
    })
}

/// Opens the file for direct I/O if file system and size allow it, else for I/O through the page
/// cache. Returns the file, the alignment of direct I/O, and whether the file system is in memory.
fn reopen(
    path: &Path,
    plain: &File,
    config: &DiskConfig,
    block_device: bool,
    size: u64,
) -> Result<(File, Option<sys::DirectAlign>, bool), OpenError> {
    let identity = plain.metadata().map(|meta| sys::identity(&meta));
    let failed = |what| {
        move |source| OpenError::Io {
            path: path.to_owned(),
            what,
            source,
        }
    };
    let identity = identity.map_err(failed("inspect"))?;
    let open = |flags| open_same(path, identity, config.read_only, flags);
    let refused = match choose_mode(plain, block_device, size, open) {
        Ok(IoMode::InMemory(file)) => {
            tracing::info!(path = %path.display(), "on tmpfs: in memory, nothing is durable");
            return Ok((file, None, true));
        }
        Ok(IoMode::Direct(file, align)) => return Ok((file, Some(align), false)),
        Ok(IoMode::Buffered(refused)) => refused,
        Err(source) => return Err(failed("open")(source)),
    };
    tracing::warn!(path = %path.display(), "no direct I/O, goes through the page cache: {refused}");
    let file = open(0).map_err(failed("open"))?;
    Ok((file, None, false))
}

/// Manner in which the bytes of a file are read and written.
enum IoMode {
    /// Direct I/O.
    Direct(File, sys::DirectAlign),
    /// Pages of tmpfs.
    InMemory(File),
    /// Through the page cache, for a reason.
    Buffered(&'static str),
}

/// Reason why a file on tmpfs has no direct I/O.
const IN_MEMORY: &str = "the file system is in memory";

/// Chooses the manner of I/O on a file, which `open` opens again with other flags.
///
/// # Errors
/// If it cannot be opened again.
fn choose_mode(
    plain: &File,
    block_device: bool,
    size: u64,
    open: impl Fn(i32) -> io::Result<File>,
) -> io::Result<IoMode> {
    if !block_device && sys::filesystem(plain).is_ok_and(|f| f == sys::TMPFS_MAGIC) {
        // Files on tmpfs are the page cache. With these two flags io_uring serves them at
        // submission instead of passing each I/O to a kernel worker; the data are there, so nothing
        // blocks.
        return Ok(match open(libc::O_DIRECT | libc::O_NONBLOCK) {
            Ok(file) => IoMode::InMemory(file),
            Err(_) => IoMode::Buffered(IN_MEMORY),
        });
    }
    match open(libc::O_DIRECT) {
        Ok(file) => Ok(match alignment(&file, block_device) {
            Some(align) if size.is_multiple_of(u64::from(align.offset)) => {
                IoMode::Direct(file, align)
            }
            Some(_) => IoMode::Buffered("its size is not a multiple of the device's block size"),
            None => IoMode::Buffered("the file system does not support direct I/O on it"),
        }),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(IoMode::Buffered(
            "the file system does not support direct I/O",
        )),
        Err(error) => Err(error),
    }
}

/// Returns `Ok` if I/O on an open file would be direct, otherwise the reason why not. The file is
/// opened again for reading.
///
/// # Errors
/// If it cannot be inspected or opened.
pub(crate) fn is_direct(
    path: &Path,
    plain: &File,
    config: &DiskConfig,
) -> Result<Result<(), &'static str>, OpenError> {
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        what: "open",
        source,
    };
    let Checked { block_device, size } = check_file(path, plain, config, false)?;
    let identity = sys::identity(&plain.metadata().map_err(failed)?);
    let open = |flags| open_same(path, identity, true, flags);
    let mode = choose_mode(plain, block_device, size, open).map_err(failed)?;
    Ok(match mode {
        IoMode::Direct(..) => Ok(()),
        IoMode::InMemory(_) => Err(IN_MEMORY),
        IoMode::Buffered(reason) => Err(reason),
    })
}

fn alignment(file: &File, block_device: bool) -> Option<sys::DirectAlign> {
    match sys::direct_align(file) {
        // 0 means no direct I/O; NBD block sizes end at 64 KiB.
        Some(align) => (align.offset > 0 && align.offset <= 1 << 16).then_some(align),
        None => {
            // The file system does not report it; 4096 bytes suit every common one.
            let block = if block_device {
                sys::block_device_block(file).ok()?
            } else {
                4096
            };
            Some(sys::DirectAlign {
                memory: block.max(512),
                offset: block,
            })
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
