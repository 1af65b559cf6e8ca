//! Files of the history, and the thread that writes them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_history::block::BlockKind;
use tidegate_history::query::Query;
use tidegate_history::recorder::{Bytes, Groups, Position};

use super::Settings;
use super::segments::{Segments, read_into};

/// Names of the segments' files.
const FINE: &str = "fine";
const COARSE: &str = "coarse";
/// Part of the bound that files of fine points have: a quarter.
const FINE_PART: u64 = 4;
/// Ages from which on segments are removed. A segment has the points of some minutes, or hours.
const FINE_AGE_MS: u64 = 20 * 60 * 1000;
const COARSE_AGE_MS: u64 = 25 * 3600 * 1000;
/// Groups of blocks that wait to be written.
const GROUPS_MAX: usize = 64;
/// Function that names the served devices on the block device below a path.
pub(super) type Served = Box<dyn Fn(&Path) -> Vec<String> + Send + Sync>;

/// State of the files.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FilesState {
    /// Directory.
    pub(crate) directory: PathBuf,
    /// Bound of the sizes together, in bytes.
    pub(crate) bytes_max: u64,
    /// Sizes together.
    pub(crate) bytes: u64,
    /// Time of the oldest point in milliseconds since 1970.
    pub(crate) oldest_ms: Option<u64>,
    /// Served devices whose disks are on the block device of the directory.
    pub(crate) on_served: Vec<String>,
    /// Reason why nothing is written now; `None`: all is well.
    pub(crate) failing: Option<String>,
    /// Groups of blocks that were not written: the disk failed, or was too slow.
    pub(crate) dropped: u64,
}

/// Content of the files of earlier runs.
type Restored = (Position, Vec<Bytes>);

#[derive(Debug, Default)]
struct Shared {
    state: FilesState,
    /// Set once the files were looked at.
    restored: Option<Option<Restored>>,
    /// Messages that the thread has not finished with.
    waiting: usize,
}

/// Files of the history.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    retry_after: Duration,
    shared: Mutex<Shared>,
    was_restored: Condvar,
    /// Groups to be written; an empty one tells to end.
    groups: Mutex<Option<SyncSender<Groups>>>,
}

impl Files {
    /// Describes files in a directory.
    pub(super) fn new(directory: &Path, settings: &Settings) -> Files {
        let state = FilesState {
            directory: directory.to_owned(),
            bytes_max: settings.bytes_max,
            ..FilesState::default()
        };
        Files {
            directory: directory.to_owned(),
            retry_after: settings.retry_after,
            shared: Mutex::new(Shared {
                state,
                ..Shared::default()
            }),
            was_restored: Condvar::new(),
            groups: Mutex::new(None),
        }
    }

    /// Starts the thread that opens and writes the files.
    pub(super) fn start(self, served: Served) -> io::Result<(Arc<Files>, JoinHandle<()>)> {
        let (sender, groups) = sync_channel(GROUPS_MAX);
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let files = Arc::new(self);
        let own = files.clone();
        let thread = std::thread::Builder::new()
            .name("history files".to_owned())
            .spawn(move || Writer::run(&own, &groups, &served))?;
        Ok((files, thread))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Each field is replaced as a whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the files.
    pub(super) fn state(&self) -> FilesState {
        self.lock().state.clone()
    }

    /// Returns what earlier runs have left, once; `None` if the files cannot be read, or do not
    /// answer in time.
    pub(super) fn restored(&self, within: Duration) -> Option<Restored> {
        let waits = |shared: &mut Shared| shared.restored.is_none();
        let waited = self
            .was_restored
            .wait_timeout_while(self.lock(), within, waits);
        let (mut shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
        shared.restored.as_mut()?.take()
    }

    /// Hands groups to the thread. Drops those that it does not take.
    pub(super) fn write(&self, groups: Groups) {
        let sender = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref().filter(|_| !groups.is_empty()) {
            // Counted first: the thread may be done with it at once.
            self.lock().waiting += 1;
            match sender.try_send(groups) {
                Ok(()) => {}
                Err(TrySendError::Full(groups) | TrySendError::Disconnected(groups)) => {
                    self.finished(groups.len() as u64);
                }
            }
        }
    }

    /// Counts a message that the thread is done with, and groups in it that were dropped.
    fn finished(&self, dropped: u64) {
        let mut shared = self.lock();
        shared.waiting -= 1;
        shared.state.dropped += dropped;
    }

    /// Returns true if all groups were written or dropped.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.lock().waiting == 0
    }

    /// Has the thread end once all groups are written.
    pub(super) fn end(&self) {
        drop(
            self.groups
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Reads coarse blocks into a query. What cannot be read is left out, and logged.
    pub(super) fn read(&self, query: &mut Query) {
        if let Err(error) = read_into(&self.directory, COARSE, query) {
            tracing::warn!(directory = ?self.directory, "history cannot be read: {error}");
        }
    }

    /// Records whether writing succeeded, and logs changes.
    fn set_failing(&self, error: Option<&io::Error>) {
        let mut shared = self.lock();
        let was = std::mem::replace(&mut shared.state.failing, error.map(|e| e.to_string()));
        let is = shared.state.failing.clone();
        drop(shared);
        let directory = &self.directory;
        match (was, is) {
            (None, Some(why)) => {
                tracing::error!(?directory, "history is kept in memory alone: {why}");
            }
            (Some(_), None) => tracing::info!(?directory, "history is written again"),
            _ => {}
        }
    }
}

/// Time for which the lock of another daemon is waited for, which may be about to end because this
/// one takes over from it. Shorter than samples wait for the files of the last run.
const LOCK_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 4 });
/// Pause between two attempts to lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Locks the directory by its file.
fn lock_within(lock: &File, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(io::Error::other("another daemon writes to this directory"));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Open files.
struct Writer {
    fine: Segments,
    coarse: Segments,
    /// Held as long as the files are open.
    _lock: File,
}

impl Writer {
    fn run(files: &Files, groups: &Receiver<Groups>, served: &Served) {
        let mut writer = match Writer::open(files, served) {
            Ok((writer, restored)) => {
                files.lock().restored = Some(Some(restored));
                writer.update(files);
                Some(writer)
            }
            Err(error) => {
                files.lock().restored = Some(None);
                files.set_failing(Some(&error));
                None
            }
        };
        files.was_restored.notify_all();
        let mut retry_at = Instant::now() + files.retry_after;
        while let Ok(groups) = groups.recv() {
            let failing = files.lock().state.failing.is_some();
            let waits = failing && Instant::now() < retry_at;
            if !waits {
                retry_at = Instant::now() + files.retry_after;
                if writer.is_none() {
                    // What is there was not restored, and stays for queries.
                    writer = Writer::open(files, served).ok().map(|(writer, _)| writer);
                }
            }
            let dropped = match &mut writer {
                Some(writer) if !waits => writer.write(files, groups),
                _ => groups.len() as u64,
            };
            files.finished(dropped);
        }
    }

    fn open(files: &Files, served: &Served) -> io::Result<(Writer, Restored)> {
        let directory = &files.directory;
        if !directory.exists() {
            // Its parent must exist: a file system that is not mounted is not to be written under.
            // Names of VMs and what they do are for the daemon's user alone.
            fs::DirBuilder::new().mode(0o700).create(directory)?;
        }
        let on_served = served(directory);
        if !on_served.is_empty() {
            let devices = on_served.join(", ");
            tracing::warn!(
                ?directory,
                %devices,
                "history is on the block device of a served device: its writes, some 100 KB/s at \
                 most, compete with the VMs'; another directory of [history] avoids that"
            );
        }
        files.lock().state.on_served = on_served;
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))?;
        lock_within(&lock, LOCK_TIMEOUT)?;
        let bytes_max = files.lock().state.bytes_max;
        let fine_max = bytes_max / FINE_PART;
        let mut writer = Writer {
            fine: Segments::new(directory, FINE, fine_max, FINE_AGE_MS),
            coarse: Segments::new(directory, COARSE, bytes_max - fine_max, COARSE_AGE_MS),
            _lock: lock,
        };
        let restored = writer.load()?;
        Ok((writer, restored))
    }

    fn load(&mut self) -> io::Result<Restored> {
        let mut position = Position::default();
        self.coarse.load(
            |_| false,
            |header, _| position.last_coarse = position.last_coarse.max(header.windows.1),
        )?;
        let mut fine = Vec::new();
        self.fine.load(
            |_| true,
            |header, block| {
                position.last_window = position.last_window.max(header.windows.1);
                fine.extend(block.map(Bytes::from));
            },
        )?;
        position.last_window = position.last_window.max(position.last_coarse);
        Ok((position, fine))
    }

    /// Writes groups. Returns how many of them could not be written.
    fn write(&mut self, files: &Files, groups: Groups) -> u64 {
        let mut dropped = 0;
        for (kind, blocks) in groups {
            let segments = if kind == BlockKind::Fine {
                &mut self.fine
            } else {
                &mut self.coarse
            };
            let written = segments.append(&blocks);
            dropped += u64::from(written.is_err());
            files.set_failing(written.err().as_ref());
        }
        self.update(files);
        dropped
    }

    fn update(&self, files: &Files) {
        let mut shared = files.lock();
        shared.state.bytes = self.fine.bytes() + self.coarse.bytes();
        let oldest = self
            .coarse
            .oldest_ms()
            .into_iter()
            .chain(self.fine.oldest_ms());
        shared.state.oldest_ms = oldest.min();
    }
}
