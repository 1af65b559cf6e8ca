//! Thread that takes samples and ends windows.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_history::budget::WINDOW_MS;
use tidegate_history::recorder::Recorder;

use super::clock::Timeline;
use super::files::Files;
use super::{Batch, lock, wall_ms};
use crate::ring::clock;

/// Starts the thread. It waits for the files of the last run for `restore_within`, before samples
/// are taken; event loops keep theirs meanwhile.
pub(super) fn start(
    samples: Receiver<Batch>,
    recorder: Arc<Mutex<Recorder>>,
    files: Option<Arc<Files>>,
    restore_within: Duration,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        let mut keeper = Keeper::new(recorder, files);
        keeper.restore(restore_within);
        keeper.run(&samples);
    };
    std::thread::Builder::new()
        .name("history".to_owned())
        .spawn(run)
}

struct Keeper {
    recorder: Arc<Mutex<Recorder>>,
    files: Option<Arc<Files>>,
    timeline: Timeline,
}

fn monotonic_ms() -> u64 {
    clock().0 / 1_000_000
}

impl Keeper {
    fn new(recorder: Arc<Mutex<Recorder>>, files: Option<Arc<Files>>) -> Keeper {
        let timeline = Timeline::new(monotonic_ms(), wall_ms());
        Keeper {
            recorder,
            files,
            timeline,
        }
    }

    /// Takes over what the last run has left in files.
    fn restore(&self, within: Duration) {
        let Some(files) = &self.files else {
            return;
        };
        if let Some((position, fine)) = files.restored(within) {
            lock(&self.recorder).restore(position, fine);
        }
        let mark = lock(&self.recorder).mark(wall_ms());
        files.write(mark);
    }

    fn run(&mut self, samples: &Receiver<Batch>) {
        loop {
            match samples.recv_timeout(self.until_end()) {
                // An empty batch tells to end.
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => self.push(batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.close_if_due();
        }
        // Batches that were sent before the end.
        while let Ok(batch) = samples.try_recv() {
            self.push(batch);
        }
        let now = self.timeline.wall_ms(monotonic_ms());
        let mut recorder = lock(&self.recorder);
        let mut groups = recorder.close(now, now);
        groups.extend(recorder.mark(now));
        drop(recorder);
        if let Some(files) = &self.files {
            files.write(groups);
            files.end();
        }
    }

    fn push(&self, batch: Batch) {
        let mut recorder = lock(&self.recorder);
        for (key, mut sample) in batch {
            sample.end_ms = self.timeline.wall_ms(sample.end_ms);
            recorder.push(key, sample);
        }
    }

    /// End of the open window in milliseconds since 1970.
    fn end_ms(&self) -> u64 {
        let opened = lock(&self.recorder).opened_ms();
        (opened / WINDOW_MS + 1) * WINDOW_MS
    }

    /// Returns the time until the open window ends.
    fn until_end(&self) -> Duration {
        let now = self.timeline.wall_ms(monotonic_ms());
        // A millisecond more, because the clocks are read in whole ones.
        Duration::from_millis(self.end_ms().saturating_sub(now) + 1).min(Duration::from_secs(11))
    }

    fn close_if_due(&mut self) {
        let (monotonic, wall) = (monotonic_ms(), wall_ms());
        let now = self.timeline.wall_ms(monotonic);
        let was_set = self.timeline.was_set(monotonic, wall);
        if !was_set && now < self.end_ms() {
            return;
        }
        if was_set {
            tracing::info!("history: the clock was set; points go on with the new time");
        }
        self.timeline.follow(monotonic, wall);
        let mut recorder = lock(&self.recorder);
        // Slewed back a little, the clock must not go back across the begin of the window.
        let next = if was_set { wall } else { wall.max(now) };
        let groups = recorder.close(now, next);
        drop(recorder);
        if let Some(files) = &self.files {
            files.write(groups);
        }
    }
}
