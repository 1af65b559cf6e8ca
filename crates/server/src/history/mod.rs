//! History of VMs and devices: the threads that keep it, its files, and what it says of itself.
//!
//! ```text
//!   event loops --batches of samples--> thread "history": Recorder, in memory
//!      (bounded, never waited for)         |         ^
//!                                        blocks      | queries, on threads that may block
//!                                          v         |
//!                              thread "history files" --> segments in a directory
//! ```
//!
//! Two threads, because a disk may be slow or hang: the first touches no file and always takes
//! samples; the second writes what it is given, and blocks that it cannot take are counted as
//! dropped. A full or failed disk stops the files, not the history in memory, and never I/O.

mod clock;
mod files;
mod segments;
#[cfg(test)]
mod tests;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_history::query::{Answer, Query, Request, Step};
use tidegate_history::recorder::Recorder;
use tidegate_history::sample::{Key, Sample};
use tokio::sync::Semaphore;

use crate::ring::clock;
use files::Files;
pub(crate) use files::FilesState;

/// Samples of one turn of an event loop. Ends are by the monotonic clock, in milliseconds.
pub(crate) type Batch = Vec<(Key, Sample)>;

/// Batches that wait for the history thread, of up to 16 samples and some 10 KiB each. Once in five
/// minutes the thread makes the coarse points of all VMs, and takes none meanwhile.
const BATCHES_MAX: usize = 1024;
/// Queries that are answered at a time, so that many clients do not take much memory.
const QUERIES_MAX: usize = 2;
/// Time that the end of the daemon waits for the files.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Directory of the files; `None`: the history is kept in memory alone.
    pub(crate) directory: Option<PathBuf>,
    /// Bound of the files' sizes together, in bytes.
    pub(crate) bytes_max: u64,
    /// Time that samples wait for the files of the last run to be read.
    pub(crate) restore_within: Duration,
    /// Time after which files are opened or written again after an error.
    pub(crate) retry_after: Duration,
}

impl Settings {
    /// Creates the settings of a daemon.
    pub(crate) fn new(directory: Option<PathBuf>, bytes_max: u64) -> Settings {
        Settings {
            directory,
            bytes_max,
            restore_within: Duration::from_secs(5),
            retry_after: Duration::from_secs(30),
        }
    }
}

/// End of the channel to the history that an event loop has.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) samples: SyncSender<Batch>,
    /// Times that a batch was not taken. Its samples are sent later.
    pub(crate) delayed: Arc<AtomicU64>,
}

/// State of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    /// Begin of the oldest point of 1 s, in milliseconds since 1970.
    pub(crate) oldest_fine_ms: Option<u64>,
    /// Begin of the oldest point of 10 s.
    pub(crate) oldest_ms: Option<u64>,
    /// Memory in use for encoded points, in bytes.
    pub(crate) memory_bytes: u64,
    /// Times that an event loop had to send its samples later.
    pub(crate) delayed: u64,
    /// Files; `None`: there are none.
    pub(crate) files: Option<FilesState>,
}

/// History of a daemon.
#[derive(Debug)]
pub(crate) struct History {
    recorder: Arc<Mutex<Recorder>>,
    recording: Recording,
    files: Option<Arc<Files>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Permits for queries, each of which may read all files.
    queries: Arc<Semaphore>,
}

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    // A panic in the middle of a change was logged; history that is half right is still history.
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Present time in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl History {
    /// Starts the threads of the history. Files are opened by their thread, so a directory that
    /// hangs delays no start. `served` returns the devices whose disks are on the block device
    /// below the directory.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(
        settings: &Settings,
        served: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static,
    ) -> std::io::Result<Arc<History>> {
        let (samples, received) = sync_channel(BATCHES_MAX);
        let recording = Recording {
            samples,
            delayed: Arc::default(),
        };
        let now = wall_ms();
        // Differs for every start on one host, and is compared with runs of its files alone.
        let run = now ^ u64::from(std::process::id()) << 44;
        let recorder = Recorder::new(run, now, settings.directory.is_none());
        let recorder = Arc::new(Mutex::new(recorder));
        let mut threads = Vec::new();
        let files = match &settings.directory {
            Some(directory) => {
                let files = Files::new(directory, settings);
                let (files, thread) = files.start(Box::new(served))?;
                threads.push(thread);
                Some(files)
            }
            None => None,
        };
        let within = settings.restore_within;
        let thread = thread::start(received, recorder.clone(), files.clone(), within)?;
        threads.insert(0, thread);
        Ok(Arc::new(History {
            recorder,
            recording,
            files,
            threads: Mutex::new(threads),
            queries: Arc::new(Semaphore::new(QUERIES_MAX)),
        }))
    }

    /// Returns the end of the channel for an event loop.
    pub(crate) fn recording(&self) -> Recording {
        self.recording.clone()
    }

    /// Returns the permits for queries.
    pub(crate) fn queries(&self) -> Arc<Semaphore> {
        self.queries.clone()
    }

    /// Answers a query. Reads files, so it may block.
    pub(crate) fn query(&self, request: &Request) -> Answer {
        let mut query = Query::new(request.clone());
        if let (Some(files), Step::Every(_)) = (&self.files, request.step) {
            files.read(&mut query);
        }
        lock(&self.recorder).query(query)
    }

    /// Answers a query of several series, that of the request and others, in their order: blocks
    /// are read once for all. Reads files, so it may block.
    pub(crate) fn query_several(&self, request: &Request, others: Vec<Key>) -> Vec<Answer> {
        let mut query = Query::of_several(request.clone(), others);
        if let (Some(files), Step::Every(_)) = (&self.files, request.step) {
            files.read(&mut query);
        }
        lock(&self.recorder).query_all(query)
    }

    /// Begin of the oldest point of 1 s in milliseconds since 1970; `None`: there is none.
    pub(crate) fn oldest_fine_ms(&self) -> Option<u64> {
        lock(&self.recorder).oldest_ms().0
    }

    /// Returns whether there are points of a series in memory.
    pub(crate) fn has(&self, key: &Key) -> bool {
        lock(&self.recorder).has(key)
    }

    /// Returns the state of the history. Does not block on files.
    pub(crate) fn status(&self) -> Status {
        let files = self.files.as_ref().map(|files| files.state());
        let recorder = lock(&self.recorder);
        let (fine, coarse) = recorder.oldest_ms();
        let on_disk = files.as_ref().and_then(|files| files.oldest_ms);
        Status {
            oldest_fine_ms: fine,
            oldest_ms: on_disk.into_iter().chain(coarse).min(),
            memory_bytes: recorder.bytes() as u64,
            delayed: self.recording.delayed.load(Ordering::Relaxed),
            files,
        }
    }

    /// Ends the threads, once the event loops have ended. Waits for the files for 2 s at most.
    pub(crate) fn stop(&self) {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // An empty batch ends the thread, because senders of loops that hang may be left.
        let _ = self.recording.samples.send(Batch::new());
        let until = clock().0 + STOP_TIMEOUT.as_nanos() as u64;
        for thread in threads {
            while !thread.is_finished() && clock().0 < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                // A panic was logged by the panic hook.
                let _ = thread.join();
            } else {
                tracing::warn!(
                    "history: the last points are not written: its disk does not answer"
                );
            }
        }
    }
}
