//! Monitor of the files of disks: detects files that were truncated, removed or replaced.
//!
//! ```text
//!   once a second, on a thread of its own:  stat(path) --> state of the medium
//!   event loop, at a read that ends early:  --------------> shrunk
//!   event loop, at each I/O:                one load of the state; whole, or an I/O error
//! ```
//!
//! A truncated image reads as zeroes, and an unlinked one takes writes that are lost. The guest
//! would see no error in either case. The disk therefore fails all its requests until its path
//! leads to the original file again, and that is long enough. A resize through the daemon is no
//! truncation: the event loop sets the new size beforehand.
//!
//! A file system that does not answer blocks only the thread that called it, which is then
//! abandoned. Other files on it are not checked until it answers; files on other file systems are.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::ring::sys;

/// Time between two checks of a file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Deadline for a check of a file; after that its thread is abandoned.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the file or block device of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The path leads to the original file, which is long enough.
    Whole,
    /// The path does not exist.
    Gone,
    /// The file is shorter than its disk.
    Shrunk,
    /// The path leads to another file or device.
    Replaced,
}

impl State {
    /// All states, indexed by their discriminant.
    pub const ALL: [State; 4] = [State::Whole, State::Gone, State::Shrunk, State::Replaced];

    /// Name of the state in metrics, one word.
    pub fn name(self) -> &'static str {
        match self {
            State::Whole => "whole",
            State::Gone => "gone",
            State::Shrunk => "shrunk",
            State::Replaced => "replaced",
        }
    }

    fn from_byte(byte: u8) -> State {
        State::ALL[usize::from(byte)]
    }
}

/// File of a disk under observation, shared by the disk's event loop and the checking thread.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// File identity as [`sys::identity`] returns it.
    identity: (bool, u64, u64),
    /// Last state seen, as the discriminant of a [`State`].
    state: AtomicU8,
    /// Minimum size of the file in bytes, which is the size of the disk.
    size: AtomicU64,
    /// Number of changes of `size`, times two: a check that overlaps a change is discarded.
    changes: AtomicU32,
    /// True if a check has not returned within [`ANSWER_TIMEOUT`].
    is_unresponsive: AtomicBool,
}

impl Watched {
    /// Creates the state of a whole file with this identity, which has to have at least `size`
    /// bytes.
    pub fn new(path: &Path, identity: (bool, u64, u64), size: u64) -> Watched {
        Watched {
            path: path.to_owned(),
            identity,
            state: AtomicU8::new(State::Whole as u8),
            size: AtomicU64::new(size),
            changes: AtomicU32::new(0),
            is_unresponsive: AtomicBool::new(false),
        }
    }

    /// Returns the path of the file as configured.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last state seen.
    pub fn state(&self) -> State {
        State::from_byte(self.state.load(Ordering::Relaxed))
    }

    /// Describes in a sentence why requests fail, or may not be answered; `None` while all is well.
    pub fn problem(&self) -> Option<String> {
        let path = self.path.display();
        let lost = match self.state() {
            State::Whole if self.is_unresponsive.load(Ordering::Relaxed) => {
                return Some(format!("the file system of {path} does not answer"));
            }
            State::Whole => return None,
            State::Gone => "is gone",
            State::Shrunk => "is shorter than the disk",
            State::Replaced => "leads to another file than the one that is served",
        };
        Some(format!(
            "{path} {lost}: requests fail until the original file is there again at its full size"
        ))
    }

    /// Returns the minimum size in bytes, which is the size of the disk.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Sets the minimum size in bytes. Call this before the file is truncated and after it was
    /// extended.
    pub(crate) fn set_size(&self, size: u64) {
        let before = self.changes.fetch_add(1, Ordering::AcqRel);
        // `check` relies on it: an even count says that the size is whole.
        assert_eq!(before % 2, 0, "two threads set the size of one file");
        self.size.store(size, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a read ended before the end of the disk.
    pub(crate) fn ended_early(&self) {
        self.set(State::Shrunk);
    }

    /// Checks the path once. Blocks for as long as the file system does not answer.
    fn check(&self) {
        let changes = self.changes.load(Ordering::Acquire);
        let size = self.size.load(Ordering::Acquire);
        let seen = match std::fs::metadata(&self.path) {
            Ok(meta) if sys::identity(&meta) != self.identity => State::Replaced,
            // A block device whose size cannot be read is taken to be long enough; reads find out.
            Ok(meta) => match length(&meta) {
                Some(length) if length < size => State::Shrunk,
                _ => State::Whole,
            },
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => State::Gone,
                // A missing permission or an I/O error tells nothing about the file.
                _ => return,
            },
        };
        // A resize overlapped the check, which may have compared the old size with the new file.
        if self.changes.load(Ordering::Acquire) == changes {
            self.set(seen);
        }
    }

    fn set(&self, seen: State) {
        // Stored only on a change, because the event loop reads it at each I/O.
        if self.state() == seen {
            return;
        }
        let was = State::from_byte(self.state.swap(seen as u8, Ordering::Relaxed));
        // Another thread was first and has logged the change.
        if was == seen {
            return;
        }
        match self.problem() {
            Some(problem) => tracing::error!("{problem}"),
            None => tracing::warn!(
                "{} is complete again: requests are served",
                self.path.display()
            ),
        }
    }

    /// Returns the device number of the file's file system; `None` for a block device.
    fn filesystem(&self) -> Option<u64> {
        let (block_device, device, _) = self.identity;
        (!block_device).then_some(device)
    }
}

/// Returns the size in bytes of a file or block device without opening it; `None` if sysfs does not
/// tell.
fn length(meta: &Metadata) -> Option<u64> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if !meta.file_type().is_block_device() {
        return Some(meta.len());
    }
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let sectors = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size")).ok()?;
    // sysfs counts in units of 512 bytes, whatever the device's block size is.
    sectors.trim().parse::<u64>().ok().map(|n| n * 512)
}

/// One check of each of a list of files, run by one thread.
#[derive(Debug)]
struct Round {
    files: Vec<Arc<Watched>>,
    /// Index of the file that is being checked; the number of files once all are.
    at: AtomicUsize,
    /// Set when the thread is abandoned: it ends once its call returns.
    abandoned: AtomicBool,
}

impl Round {
    fn new(files: Vec<Arc<Watched>>) -> Arc<Round> {
        Arc::new(Round {
            files,
            at: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
        })
    }

    fn run(&self) {
        for (at, file) in self.files.iter().enumerate() {
            self.at.store(at, Ordering::Release);
            file.check();
            if file.is_unresponsive.swap(false, Ordering::Relaxed) {
                tracing::warn!("the file system of {} answers again", file.path.display());
            }
            if self.abandoned.load(Ordering::Acquire) {
                return;
            }
        }
        self.at.store(self.files.len(), Ordering::Release);
    }

    /// Returns the index of the file that is being checked; `None` once all are.
    fn position(&self) -> Option<usize> {
        let at = self.at.load(Ordering::Acquire);
        (at < self.files.len()).then_some(at)
    }
}

/// Runs rounds of checks on a thread, and abandons the thread if a file system does not answer.
struct Watcher {
    /// Channel to the checking thread; `None` before the first round and after the thread was
    /// abandoned.
    worker: Option<Sender<Arc<Round>>>,
    /// Current round, the index of the file last seen in progress, and the time at which it got
    /// there.
    round: Option<(Arc<Round>, usize, Instant)>,
    answers_within: Duration,
}

impl Watcher {
    fn new(answers_within: Duration) -> Watcher {
        Watcher {
            worker: None,
            round: None,
            answers_within,
        }
    }

    /// Starts a round if the previous one is over. Abandons a round that is stuck, and then leaves
    /// out the files of file systems that do not answer.
    fn start_round(&mut self, files: impl FnOnce() -> Vec<Arc<Watched>>) {
        if let Some((round, was, since)) = &mut self.round
            && let Some(at) = round.position()
        {
            // The thread has gone on to another file, so the time-out begins anew.
            if at != *was {
                (*was, *since) = (at, Instant::now());
            }
            if since.elapsed() < self.answers_within {
                return;
            }
            let stuck = &round.files[at];
            stuck.is_unresponsive.store(true, Ordering::Relaxed);
            round.abandoned.store(true, Ordering::Release);
            tracing::error!("{}", stuck.problem().unwrap_or_default());
            self.worker = None;
        }
        self.round = None;
        let mut files = files();
        let silent = files
            .iter()
            .filter(|file| file.is_unresponsive.load(Ordering::Relaxed));
        let silent: BTreeSet<_> = silent.map(|file| file.filesystem()).collect();
        files.retain(|file| {
            // A block device shares no file system with other files.
            let is_silent = if file.filesystem().is_none() {
                file.is_unresponsive.load(Ordering::Relaxed)
            } else {
                silent.contains(&file.filesystem())
            };
            !is_silent
        });
        if files.is_empty() {
            return;
        }
        let round = Round::new(files);
        if self.begin(&round) {
            self.round = Some((round, 0, Instant::now()));
        }
    }

    /// Passes the round to the checking thread, which is started if necessary. Returns false if
    /// that fails.
    fn begin(&mut self, round: &Arc<Round>) -> bool {
        if let Some(worker) = &self.worker
            && worker.send(round.clone()).is_ok()
        {
            return true;
        }
        let (sender, rounds) = channel::<Arc<Round>>();
        // The receiver is alive until the thread below has it.
        let _ = sender.send(round.clone());
        let started = std::thread::Builder::new()
            .name("media".to_owned())
            .spawn(move || rounds.iter().for_each(|round| round.run()));
        self.worker = started.is_ok().then_some(sender);
        self.worker.is_some()
    }
}

/// Checks the files of all disks every second, until the future is dropped. `files` returns the
/// files of the disks that are open now.
pub(crate) async fn watch(files: impl Fn() -> Vec<Weak<Watched>>) {
    let mut watcher = Watcher::new(ANSWER_TIMEOUT);
    let mut every = interval(CHECK_INTERVAL);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        watcher.start_round(|| files().iter().filter_map(Weak::upgrade).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 8 KiB, and the watch over it.
    fn watched() -> (tempfile::TempDir, PathBuf, Watched) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let identity = sys::identity(&std::fs::metadata(&path).unwrap());
        let watched = Watched::new(&path, identity, 8192);
        (dir, path, watched)
    }

    fn seen(watched: &Watched) -> State {
        watched.check();
        watched.state()
    }

    fn cut(path: &Path, size: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(path);
        file.unwrap().set_len(size).unwrap();
    }

    #[test]
    fn what_becomes_of_a_file_is_seen_and_forgiven_once_it_is_whole_and_the_same() {
        let (dir, path, watched) = watched();
        assert_eq!((seen(&watched), watched.problem()), (State::Whole, None));
        cut(&path, 4096);
        assert_eq!(seen(&watched), State::Shrunk);
        assert!(watched.problem().unwrap().contains("shorter"));
        cut(&path, 8192);
        assert_eq!(seen(&watched), State::Whole);
        // Longer is no harm.
        cut(&path, 16384);
        assert_eq!(seen(&watched), State::Whole);
        let away = dir.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        assert_eq!(seen(&watched), State::Gone);
        std::fs::write(&path, vec![7; 8192]).unwrap();
        assert_eq!(seen(&watched), State::Replaced);
        std::fs::rename(&away, &path).unwrap();
        assert_eq!((seen(&watched), watched.problem()), (State::Whole, None));
        drop(dir);
        assert_eq!(seen(&watched), State::Gone);
    }

    #[test]
    fn a_size_that_the_operator_changes_is_no_shrink() {
        let (_dir, path, watched) = watched();
        watched.set_size(4096);
        cut(&path, 4096);
        assert_eq!(seen(&watched), State::Whole);
        cut(&path, 16384);
        watched.set_size(16384);
        assert_eq!(seen(&watched), State::Whole);
        cut(&path, 8192);
        assert_eq!(seen(&watched), State::Shrunk);
    }

    #[test]
    fn a_read_that_ended_early_is_believed_until_the_next_look() {
        let (_dir, _path, watched) = watched();
        watched.ended_early();
        assert_eq!(watched.state(), State::Shrunk);
        assert_eq!(seen(&watched), State::Whole);
    }

    /// The blocked round is constructed by hand, because `stat` does not block on any file that a
    /// test can create.
    #[tokio::test]
    async fn a_file_system_that_does_not_answer_keeps_only_itself() {
        let (dir, path, stuck) = watched();
        let stuck = Arc::new(stuck);
        let elsewhere = Arc::new(Watched::new(&path, (false, u64::MAX, 1), 1));
        let beside = Arc::new(Watched::new(&path, stuck.identity, 8192));
        let all = || vec![stuck.clone(), beside.clone(), elsewhere.clone()];
        let mut watcher = Watcher::new(Duration::ZERO);
        // A round whose thread never comes back.
        watcher.round = Some((Round::new(all()), 0, Instant::now()));
        cut(&path, 4096);
        watcher.start_round(all);
        assert!(stuck.problem().unwrap().contains("does not answer"));
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while elsewhere.state() == State::Whole {
            assert!(
                std::time::Instant::now() < until,
                "the others are not looked at"
            );
            tokio::task::yield_now().await;
        }
        assert_eq!(elsewhere.state(), State::Replaced);
        assert_eq!(
            beside.state(),
            State::Whole,
            "of the same file system, and looked at"
        );
        // It answers at last.
        Round::new(vec![stuck.clone()]).run();
        assert_eq!(stuck.state(), State::Shrunk);
        watcher.round = None;
        watcher.start_round(all);
        while beside.state() == State::Whole {
            assert!(
                std::time::Instant::now() < until,
                "its file system answers again"
            );
            tokio::task::yield_now().await;
        }
        drop(dir);
    }
}
