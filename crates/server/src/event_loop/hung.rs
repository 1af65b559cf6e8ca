//! Disks that hang: looked for once a second, told in the log, shown in snapshots.
//!
//! The engine takes a disk that hangs out of the depth count
//! ([`Engine::look_for_hung_disks`](tidegate_core::engine::Engine::look_for_hung_disks)), so that its
//! neighbours go on. What is left to do here is what the engine cannot know of: the kernel's worker threads that
//! its I/Os may hold, and the people to tell.

use tidegate_core::time::Nanos;

use super::Loop;

/// Worker threads of the kernel that this loop's I/Os may hold at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers {
    /// As many as the kernel allows by itself; 0: that is not known yet.
    usual: u32,
    /// Beyond those, for the I/Os of disks that hang.
    more: u32,
}

impl Workers {
    pub(super) const UNKNOWN: Workers = Workers { usual: 0, more: 0 };
}

/// The start of the oldest I/O with the device, of each disk of a loop.
pub(super) struct OldestIos {
    by_disk: Vec<Nanos>,
    now: Nanos,
}

impl OldestIos {
    /// Returns the age of a disk's oldest I/O; `None` while it has none with the device.
    pub(super) fn age(&self, disk: usize) -> Option<Nanos> {
        let since = *self.by_disk.get(disk)?;
        (since != Nanos::MAX).then(|| self.now.since(since))
    }

    /// Returns the age of the oldest I/O of all.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let disks = 0..self.by_disk.len();
        disks.filter_map(|disk| self.age(disk)).max()
    }
}

impl Loop {
    /// Looks for disks that hang, and has others go on. Once a second.
    pub(super) fn look_for_hung_disks(&mut self) {
        if self.engine.look_for_hung_disks(self.now) {
            self.give_workers();
            self.dispatch();
        }
        self.tell_hung();
    }

    /// Has the kernel start as many threads more as disks that hang may hold: they come from a pool that all
    /// files of the ring share, and that is not much larger than the machine has processors.
    fn give_workers(&mut self) {
        let more = self.engine.uncounted();
        if more == self.workers.more {
            return;
        }
        if self.workers.usual == 0 {
            match self.ring.set_workers_most(0) {
                Ok(usual) => self.workers.usual = usual,
                Err(error) => return tracing::warn!("io_uring's workers are not known: {error}"),
            }
        }
        match self
            .ring
            .set_workers_most(self.workers.usual.saturating_add(more))
        {
            Ok(_) => self.workers.more = more,
            Err(error) => tracing::warn!("io_uring refuses {more} more workers: {error}"),
        }
    }

    /// Logs which disks began to hang, and which do not any more.
    fn tell_hung(&mut self) {
        let Loop {
            engine,
            device,
            now,
            ..
        } = self;
        let mut ended = false;
        for state in device.disks.values_mut() {
            let since = engine.hung_since(state.id);
            let export = &state.disk.export;
            match (since, state.hung) {
                (Some(since), None) => tracing::warn!(
                    export,
                    "disk hangs: no I/O of it has ended for {:.1} s; it gets one at a time, and others go on",
                    now.since(since).as_secs_f64()
                ),
                (None, Some(since)) => {
                    ended = true;
                    tracing::warn!(
                        export,
                        "disk hangs no more, after {:.1} s",
                        now.since(since).as_secs_f64()
                    );
                }
                _ => {}
            }
            state.hung = since;
        }
        if ended {
            self.give_workers();
        }
    }

    /// Looks through all I/Os with the device.
    pub(super) fn oldest_ios(&self) -> OldestIos {
        let mut by_disk = Vec::new();
        for (disk, since) in self.engine.ios_in_flight() {
            let at = self.device.by_id[disk.index()];
            if by_disk.len() <= at {
                by_disk.resize(at + 1, Nanos::MAX);
            }
            by_disk[at] = since.min(by_disk[at]);
        }
        let now = self.now;
        OldestIos { by_disk, now }
    }
}
