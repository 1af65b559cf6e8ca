//! Recording of one device: entries of its ring become blocks of a file.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::time::Nanos;
use tidegate_recording::{BLOCK_REQUESTS, Change, DISKS_MAX, Encoder, Header, Inventory};

use super::directory::{Directory, OpenFile};
use super::producer::{PlacedChange, Queues, from_words};

/// Longest time for which requests wait to be written: a crash of the daemon loses these.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Jump of the wall clock from which on the recording goes on in a new session. Clocks that are
/// disciplined are slewed for less.
const JUMP: Duration = Duration::from_millis(500);
/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// Counters of a recording that is or was on, shared with the control API.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests in the files.
    pub(super) recorded: AtomicU64,
    /// Requests that are missing in the files, because the recorder could not keep up.
    pub(super) dropped: AtomicU64,
    /// Bytes written.
    pub(super) bytes: AtomicU64,
    /// Reason why the recording stopped by itself.
    failure: Mutex<Option<String>>,
}

impl Progress {
    /// Returns the reason why the recording stopped by itself.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }

    fn fail(&self, why: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some(why);
    }
}

/// Clock that tells the wall clock at loop time 0, in nanoseconds since 1970.
pub(super) type Wall = Box<dyn Fn() -> u64 + Send>;

/// Recording of one device while it is on.
pub(super) struct Stream {
    device: String,
    queues: Queues,
    /// Loop time at which the recording began.
    start: Nanos,
    /// Wall clock at that time, as it was when the present file began.
    started_unix_ns: u64,
    /// Clock by which jumps are noticed.
    wall: Option<Wall>,
    /// VMs and disks in force, for the headers of further files.
    inventory: Inventory,
    file: Option<(OpenFile, Encoder)>,
    /// Number of requests before the present file, dropped ones included.
    before: u64,
    /// Encoded bytes that are not written yet.
    bytes: Vec<u8>,
    /// Changes that were received and not applied.
    changes: VecDeque<PlacedChange>,
    /// Dropped requests that were noted in the recording.
    dropped: u64,
    /// Requests recorded.
    recorded: u64,
    /// Last loop time of a request or a change, since the beginning.
    last: Nanos,
    written_at: Instant,
    progress: Arc<Progress>,
}

/// Result of [`Stream::work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worked {
    GoesOn,
    Ended,
}

impl Stream {
    /// Begins the recording of a device at loop time `start`. `header` has what was in force then.
    pub(super) fn new(
        device: String,
        queues: Queues,
        start: Nanos,
        header: &Header,
        progress: Arc<Progress>,
    ) -> Stream {
        Stream {
            device,
            queues,
            start,
            started_unix_ns: header.started_unix_ns,
            wall: None,
            inventory: Inventory::new(header),
            file: None,
            before: 0,
            bytes: Vec::new(),
            changes: VecDeque::new(),
            dropped: 0,
            recorded: 0,
            last: Nanos::ZERO,
            written_at: Instant::now(),
            progress,
        }
    }

    /// Returns the recording with a clock whose jumps it follows.
    pub(super) fn with_wall(self, wall: Wall) -> Stream {
        let wall = Some(wall);
        Stream { wall, ..self }
    }

    /// Writes what the event loop has recorded up to now. `streams` is the number of recordings
    /// that share the directory; `all` writes requests that do not fill a block, too. A failure
    /// ends the recording.
    pub(super) fn work(&mut self, directory: &mut Directory, streams: usize, all: bool) -> Worked {
        match self.try_work(directory, streams, all) {
            Ok(worked) => worked,
            Err((place, error)) => {
                self.fail(&format!("cannot write {place}: {error}"));
                if let Some((file, _)) = self.file.take() {
                    directory.complete(file);
                }
                Worked::Ended
            }
        }
    }

    /// Marks the recording as stopped by itself, and logs the reason.
    pub(super) fn fail(&self, why: &str) {
        tracing::error!(device = %self.device, "recording stopped: {why}");
        self.progress.fail(why.to_owned());
    }

    fn try_work(
        &mut self,
        directory: &mut Directory,
        streams: usize,
        all: bool,
    ) -> Result<Worked, (String, io::Error)> {
        // Before the entries are counted: nothing follows the last of them.
        let has_ended = self.queues.requests.has_ended();
        let end = self.queues.requests.written();
        self.changes.extend(self.queues.changes.try_iter());
        if self.file.is_none() {
            self.begin_file(directory)?;
        }
        while self.queues.requests.read() < end {
            self.encode_batch(end);
            if self.bytes.len() >= WRITE_BYTES {
                self.write(directory)?;
                self.begin_next_file_if_full(directory, streams)?;
            }
        }
        self.apply_changes(end);
        // Of requests dropped behind the last entry there is no other trace.
        self.note_dropped(self.queues.requests.dropped());
        if has_ended {
            self.end_file(directory)?;
            return Ok(Worked::Ended);
        }
        if all || self.written_at.elapsed() >= WRITE_INTERVAL {
            self.finish_block();
            self.write(directory)?;
            self.begin_next_file_if_full(directory, streams)?;
            self.follow_wall(directory)?;
            self.written_at = Instant::now();
        }
        Ok(Worked::GoesOn)
    }

    /// Encodes entries up to number `end`, a block at most, with the changes between them.
    fn encode_batch(&mut self, end: u64) {
        let read = self.queues.requests.read();
        self.apply_changes(read);
        let next_change = self.changes.front().map_or(u64::MAX, |change| change.place);
        let end = end.min(next_change).min(read + BLOCK_REQUESTS as u64);
        let Some((_, encoder)) = &mut self.file else {
            return;
        };
        let (start, bytes, noted) = (self.start, &mut self.bytes, &mut self.dropped);
        let (recorded, last) = (&mut self.recorded, &mut self.last);
        self.queues.requests.take(end, |words| {
            let (request, dropped) = from_words(words);
            if dropped > *noted {
                encoder.drop_requests(dropped - *noted, bytes);
                *noted = dropped;
            }
            // Those that arrived before the recording are not part of it.
            let Some(request) = request.since(start) else {
                return;
            };
            *last = request.done;
            if request.disk >= DISKS_MAX {
                // More disks than a recording can number have come and gone.
                encoder.drop_requests(1, bytes);
                return;
            }
            encoder.push(&request, bytes);
            *recorded += 1;
        });
        self.progress.recorded.store(*recorded, Ordering::Relaxed);
    }

    /// Applies the changes before entry number `place`.
    fn apply_changes(&mut self, place: u64) {
        while let Some(change) = self.changes.pop_front_if(|change| change.place <= place) {
            let at = Nanos(change.at.0.saturating_sub(self.start.0));
            self.last = self.last.max(at);
            self.inventory.apply(&change.change);
            self.encode_change(at, &change.change);
        }
    }

    fn encode_change(&mut self, at: Nanos, change: &Change) {
        if let Some((_, encoder)) = &mut self.file {
            encoder.change(at, change, &mut self.bytes);
        }
    }

    /// Notes dropped requests, of which there were `dropped` since the beginning.
    fn note_dropped(&mut self, dropped: u64) {
        if dropped > self.dropped
            && let Some((_, encoder)) = &mut self.file
        {
            encoder.drop_requests(dropped - self.dropped, &mut self.bytes);
            self.dropped = dropped;
        }
        self.progress.dropped.store(self.dropped, Ordering::Relaxed);
    }

    fn finish_block(&mut self) {
        if let Some((_, encoder)) = &mut self.file {
            encoder.finish_block(&mut self.bytes);
        }
    }

    /// Writes the encoded bytes.
    fn write(&mut self, directory: &mut Directory) -> Result<(), (String, io::Error)> {
        let Some((file, _)) = &mut self.file else {
            return Ok(());
        };
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = directory.write(file, &self.bytes);
        written.map_err(|error| (file.path().display().to_string(), error))?;
        let bytes = self.bytes.len() as u64;
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.clear();
        Ok(())
    }

    fn begin_file(&mut self, directory: &mut Directory) -> Result<(), (String, io::Error)> {
        let begins = self.started_unix_ns.saturating_add(self.last.0);
        let created = directory.create(&self.device, begins);
        let file = created.map_err(|error| (format!("the files of {}", self.device), error))?;
        let header = self.inventory.header(self.started_unix_ns, self.before);
        let encoder = Encoder::new(&header, &mut self.bytes);
        self.file = Some((file, encoder));
        self.write(directory)
    }

    fn end_file(&mut self, directory: &mut Directory) -> Result<(), (String, io::Error)> {
        let Some((file, encoder)) = self.file.take() else {
            return Ok(());
        };
        self.before = encoder.requests();
        // The next file goes on from here, whatever it is that is written at the end of this one.
        let mut rest = std::mem::take(&mut self.bytes);
        encoder.end(self.last, &mut rest);
        self.bytes = rest;
        let mut file = file;
        let written = directory.write(&mut file, &self.bytes);
        let bytes = self.bytes.len() as u64;
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.clear();
        let path = file.path().display().to_string();
        directory.complete(file);
        written.map_err(|error| (path, error))
    }

    fn begin_next_file_if_full(
        &mut self,
        directory: &mut Directory,
        streams: usize,
    ) -> Result<(), (String, io::Error)> {
        let most = directory.file_bytes(streams);
        let is_full = (self.file.as_ref()).is_some_and(|(file, _)| file.bytes() >= most);
        if is_full {
            self.end_file(directory)?;
            self.begin_file(directory)?;
        }
        Ok(())
    }

    /// Goes on in a new session if the wall clock has jumped, whose files have the new time. What
    /// was recorded since the last look, [`WRITE_INTERVAL`] ago, keeps the old one.
    fn follow_wall(&mut self, directory: &mut Directory) -> Result<(), (String, io::Error)> {
        let Some(wall) = &self.wall else {
            return Ok(());
        };
        let started = wall().saturating_add(self.start.0);
        let by = Duration::from_nanos(started.abs_diff(self.started_unix_ns));
        if by < JUMP {
            return Ok(());
        }
        tracing::warn!(device = %self.device, ?by, "recording goes on after a jump of the clock");
        self.end_file(directory)?;
        self.started_unix_ns = started;
        self.begin_file(directory)
    }

    /// Ends the recording although its event loop may still write, as when the daemon ends.
    pub(super) fn end(mut self, directory: &mut Directory) {
        if self.work(directory, 1, false) == Worked::GoesOn
            && let Err((place, error)) = self.end_file(directory)
        {
            tracing::error!(device = %self.device, "cannot write {place}: {error}");
        }
    }
}
