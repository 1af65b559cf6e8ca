//! Thread of the recorder: one for all devices, which exists while a recording is on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::directory::{Create, Directory, create_directory, create_file};
use super::lock::Lock;
use super::stream::{Stream, Worked};
use crate::ring::sys;

/// Interval at which the rings are emptied. At 2.6 million requests a second a ring would be full
/// within it.
const INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for the recorder to write what it has, or to end. A disk that does not answer
/// must not keep a client or the end of the daemon waiting for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// State that the recorder's thread shares with those who control it. Event loops have no part
/// in it.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified of a change of `state`.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Recordings that the thread has not taken over yet.
    added: Vec<Stream>,
    /// The thread runs, and will look at `added`.
    is_running: bool,
    /// All recordings are to end.
    ends: bool,
    /// Number of times that everything was asked to be written, and of the last one that was
    /// carried out.
    flushes: (u64, u64),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("is_running", &self.is_running)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_done`, at most [`PATIENCE`]. Returns false if it is not.
    fn wait_until(&self, is_done: impl Fn(&State) -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, |state| !is_done(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        is_done(&state)
    }
}

/// Control of the recorder's thread.
#[derive(Debug)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    directory: PathBuf,
    max_bytes: u64,
    create: Create,
    /// Held on the directory from the first recording until the recorder ends.
    lock: Arc<Lock>,
}

impl Recorder {
    /// Creates a recorder that writes into a directory, at most `max_bytes` altogether. Nothing is
    /// opened before the first recording.
    pub(super) fn new(directory: PathBuf, max_bytes: u64) -> Recorder {
        Recorder {
            shared: Arc::default(),
            thread: Mutex::new(None),
            directory,
            max_bytes,
            create: create_file,
            lock: Arc::default(),
        }
    }

    /// Returns the recorder with another way to create files.
    #[cfg(test)]
    pub(super) fn with_create(self, create: Create) -> Recorder {
        Recorder { create, ..self }
    }

    /// Checks that the directory can be created and read, and that no other daemon writes to it.
    /// May block.
    ///
    /// # Errors
    /// If it cannot, or another daemon does.
    pub(super) fn check(&self) -> io::Result<()> {
        open(&self.directory, self.max_bytes, self.create, &self.lock).map(drop)
    }

    /// Takes a recording over, and starts the thread if none runs.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn add(&self, stream: Stream) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.added.push(stream);
        if !state.is_running {
            let shared = self.shared.clone();
            let (path, max_bytes, create) = (self.directory.clone(), self.max_bytes, self.create);
            let lock = self.lock.clone();
            let open = move || open(&path, max_bytes, create, &lock);
            let thread = std::thread::Builder::new()
                .name("recorder".to_owned())
                .spawn(move || run(&shared, open));
            match thread {
                Ok(thread) => {
                    let mut own = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
                    *own = Some(thread);
                }
                Err(error) => {
                    state.added.clear();
                    return Err(error);
                }
            }
            state.is_running = true;
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Has everything written that was recorded up to now. Returns false if that takes too long.
    pub(super) fn flush(&self) -> bool {
        let mut state = self.shared.lock();
        if !state.is_running {
            return true;
        }
        state.flushes.0 += 1;
        let wanted = state.flushes.0;
        drop(state);
        self.shared.changed.notify_all();
        self.shared
            .wait_until(|state| !state.is_running || state.flushes.1 >= wanted)
    }

    /// Ends all recordings and the thread. One that is blocked by its disk is left behind.
    pub(super) fn end(&self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        if !self.shared.wait_until(|state| !state.is_running) {
            tracing::warn!("the recorder's disk does not answer: the last second is not recorded");
            return;
        }
        let mut own = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = own.take() {
            // It panicked, which it has logged, or returns at once.
            let _ = thread.join();
        }
        drop(own);
        self.lock.release();
    }
}

/// Opens the directory and locks it for one daemon.
fn open(path: &Path, max_bytes: u64, create: Create, lock: &Lock) -> io::Result<Directory> {
    create_directory(path)?;
    lock.take(path)?;
    Directory::open(path, max_bytes, create)
}

/// Recordings of the running thread. If it ends without them, as by a panic, they have failed.
struct Running<'a> {
    shared: &'a Shared,
    streams: Vec<Stream>,
    /// Reason for which recordings fail that the thread leaves.
    failure: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for stream in self.streams.drain(..).chain(state.added.drain(..)) {
            stream.fail(&self.failure);
        }
        state.is_running = false;
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Records until there is no recording left. `open` opens the directory.
fn run(shared: &Shared, open: impl FnOnce() -> io::Result<Directory>) {
    sys::lower_priority();
    let mut running = Running {
        shared,
        streams: Vec::new(),
        failure: "the recorder panicked: this is a bug".to_owned(),
    };
    let mut directory = match open() {
        Ok(directory) => directory,
        Err(error) => {
            running.failure = format!("cannot use the directory of recordings: {error}");
            return;
        }
    };
    let streams = &mut running.streams;
    loop {
        let mut state = shared.lock();
        streams.append(&mut state.added);
        let (ends, wanted) = (state.ends, state.flushes.0);
        if streams.is_empty() {
            // Under the lock, so that a recording that is added finds no thread or this one.
            state.is_running = false;
            drop(state);
            drop(std::mem::take(streams));
            drop(std::mem::take(&mut running.failure));
            // The next thread may run by the time that this one would mark itself as ended.
            std::mem::forget(running);
            shared.changed.notify_all();
            return;
        }
        let is_due = ends || wanted > state.flushes.1;
        drop(state);
        if ends {
            streams
                .drain(..)
                .for_each(|stream| stream.end(&mut directory));
            continue;
        }
        let count = streams.len();
        streams.retain_mut(|stream| stream.work(&mut directory, count, is_due) == Worked::GoesOn);
        let mut state = shared.lock();
        state.flushes.1 = wanted;
        shared.changed.notify_all();
        let nothing_new = |state: &mut State| {
            state.added.is_empty() && !state.ends && state.flushes.0 == state.flushes.1
        };
        // The result is the lock, which is given back at once.
        let waited = shared
            .changed
            .wait_timeout_while(state, INTERVAL, nothing_new);
        drop(waited);
    }
}
