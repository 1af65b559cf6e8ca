//! Hung disks: detected once a second, logged, and reported in snapshots.
//!
//! The engine takes the I/Os of a hung disk out of the queue depth, so that other disks go on
//! ([`DeviceMut::detect_hung_disks`](tidegate_core::engine::DeviceMut::detect_hung_disks)). The
//! loop adds what the engine cannot know: more io_uring worker threads in place of those that the
//! disk's I/Os block, and log lines for the operator.

use tidegate_api::disk::hang_notice;
use tidegate_core::engine::Engine;
use tidegate_core::time::Nanos;
use tidegate_units::human::duration;

use super::{Device, LoopParts};

/// Limits on the io_uring worker threads that file I/Os of this loop may occupy.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Workers {
    /// The kernel's default limit; 0 until it was queried.
    usual: u32,
    /// Number allowed beyond `usual`: one for each I/O of a hung disk that the kernel has.
    more: u32,
}

impl Workers {
    pub(in super::super) const UNKNOWN: Workers = Workers { usual: 0, more: 0 };
}

/// Start time of the oldest I/O with the device, for each disk of a loop.
pub(in super::super) struct OldestIos {
    by_disk: Vec<Nanos>,
    now: Nanos,
}

impl OldestIos {
    /// Returns the age of a disk's oldest I/O; `None` while it has none with the device.
    pub(in super::super) fn age(&self, disk: usize) -> Option<Nanos> {
        let since = *self.by_disk.get(disk)?;
        (since != Nanos::MAX).then(|| self.now.since(since))
    }

    /// Returns the age of the oldest I/O over all disks; `None` while there is none.
    pub(in super::super) fn oldest(&self) -> Option<Nanos> {
        let disks = 0..self.by_disk.len();
        disks.filter_map(|disk| self.age(disk)).max()
    }
}

impl Device {
    /// Raises the limit on io_uring workers by the number of I/Os that hung disks hold. All files
    /// of a ring share one pool of workers, hardly larger than the number of processors, which such
    /// I/Os could exhaust.
    pub(in super::super) fn adjust_workers(&mut self, parts: &mut LoopParts<'_>) {
        let more = parts.engine.device().uncounted();
        if more == self.workers.more {
            return;
        }
        // A limit of 0 changes nothing and returns the limit in force.
        if self.workers.usual == 0 {
            match parts.ring.set_max_workers(0) {
                Ok(usual) => self.workers.usual = usual,
                Err(error) => {
                    return tracing::warn!("cannot query the limit on io_uring workers: {error}");
                }
            }
        }
        match parts
            .ring
            .set_max_workers(self.workers.usual.saturating_add(more))
        {
            Ok(_) => self.workers.more = more,
            Err(error) => tracing::warn!("cannot allow io_uring {more} more workers: {error}"),
        }
    }

    /// Logs disks that have begun to hang, and disks that have recovered.
    pub(in super::super) fn log_hung_disks(&mut self, parts: &mut LoopParts<'_>) {
        let LoopParts { engine, now, .. } = parts;
        let mut ended = false;
        for state in self.disks.values_mut() {
            let since = engine.device().hung_since(state.id);
            let export = &state.disk.export;
            match (since, state.hung) {
                (Some(since), None) => tracing::warn!(
                    export,
                    "disk {}",
                    hang_notice(&duration(now.since(since).0))
                ),
                (None, Some(since)) => {
                    ended = true;
                    tracing::warn!(
                        export,
                        "disk has recovered after hanging for {}",
                        duration(now.since(since).0)
                    );
                }
                _ => {}
            }
            state.hung = since;
        }
        // The I/Os of recovered disks no longer occupy extra workers.
        if ended {
            self.adjust_workers(parts);
        }
    }

    /// Collects the start of the oldest I/O of each disk.
    pub(in super::super) fn oldest_ios(&self, engine: &Engine, now: Nanos) -> OldestIos {
        let mut by_disk = Vec::new();
        for (disk, since) in engine.device().ios_in_flight() {
            let at = self.by_id[disk.index()];
            assert!(
                self.disks.is_taken(at),
                "the engine has an I/O in flight to a disk that was detached"
            );
            if by_disk.len() <= at {
                by_disk.resize(at + 1, Nanos::MAX);
            }
            by_disk[at] = since.min(by_disk[at]);
        }
        OldestIos { by_disk, now }
    }
}
