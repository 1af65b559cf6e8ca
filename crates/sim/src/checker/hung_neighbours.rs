//! Checker of neighbours of a hung disk. A disk is to be taken out of the depth count, whenever the
//! driver has had the engine look for hung disks, in two cases: it was silent for the engine's
//! whole patience while an I/O of another disk ended within that time; or all I/Os with the device
//! have been silent for as long while a unit of another disk waits. A disk that is out gets a
//! single I/O until one of its I/Os ends, and its I/Os do not count as long as the number of
//! uncounted I/Os is below its bound.
//!
//! Silence is computed here from starts and ends alone, never from what the engine reports.

use super::{Verdict, ensure};
use std::collections::BTreeMap;
use tidegate_core::engine::{Engine, SilenceTimeouts};
use tidegate_core::request::{DeviceIo, Lane, Op};
use tidegate_core::time::Nanos;

/// Observations of one disk.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    last_end: Nanos,
    /// I/Os that were started while the disk was out of the count, since one of its I/Os ended.
    probes: u32,
}

/// Starts and ends of I/Os, by disk.
#[derive(Debug)]
pub struct Neighbours {
    patience: SilenceTimeouts,
    disks: BTreeMap<u32, Seen>,
    /// Start of each I/O with the device, by I/O slot.
    starts: BTreeMap<usize, Nanos>,
}

impl Neighbours {
    /// Creates the checker of an engine with this patience.
    pub fn new(patience: SilenceTimeouts) -> Neighbours {
        Neighbours {
            patience,
            disks: BTreeMap::new(),
            starts: BTreeMap::new(),
        }
    }

    /// Records that an I/O of a disk goes to the device. `disk` is the disk's number.
    ///
    /// # Errors
    /// Fails when the disk is out of the count and already had its single I/O.
    pub fn started(&mut self, engine: &Engine, disk: u32, io: &DeviceIo) -> Verdict {
        self.starts.insert(io.id.index(), engine.view().now());
        let seen = self.disks.entry(disk).or_default();
        if engine.device().hung_since(io.disk).is_some() {
            seen.probes += 1;
            ensure!(
                Neighbours,
                // One I/O finds out when the disk is back; more would only be stuck with it.
                seen.probes == 1,
                "{io:?} is number {} that goes to a disk that hangs",
                seen.probes
            );
            ensure!(
                Neighbours,
                !engine.device().is_counted(io.id),
                "{io:?} is of a disk that hangs, and counts"
            );
        }
        Ok(())
    }

    /// Records that an I/O of a disk has ended at `now`.
    pub fn ended(&mut self, disk: u32, now: Nanos) {
        let seen = self.disks.entry(disk).or_default();
        *seen = Seen {
            // A completion may be handled later than one that came after it.
            last_end: now.max(seen.last_end),
            probes: 0,
        };
    }

    fn last_end(&self, disk: u32) -> Nanos {
        self.disks.get(&disk).copied().unwrap_or_default().last_end
    }
}

/// Checks the depth count after the engine has looked for hung disks. `by_slot` maps the slots of
/// disk handles to disk numbers.
///
/// Fails when a silent disk still counts towards the depth.
pub fn check<'a>(
    seen: &Neighbours,
    engine: &Engine,
    by_slot: &[u32],
    with_device: impl Iterator<Item = &'a DeviceIo>,
    now: Nanos,
) -> Verdict {
    // By disk number: its handle, and the oldest start of its reads and writes and of its other
    // I/Os.
    let mut oldest = BTreeMap::new();
    for io in with_device {
        let disk = by_slot[io.disk.index()];
        let start = seen.starts[&io.id.index()];
        let (_, of_disk) = oldest
            .entry(disk)
            .or_insert((io.disk, [Nanos::MAX, Nanos::MAX]));
        // Index in `bounds` below.
        let other = usize::from(!matches!(io.op, Op::Read | Op::Write));
        of_disk[other] = start.min(of_disk[other]);
        // With the bound reached no further I/O can be taken out of the count.
        let full = engine.device().uncounted() >= engine.config().device.uncounted_max();
        ensure!(
            Neighbours,
            full || !engine.device().is_counted(io.id)
                || engine.device().hung_since(io.disk).is_none(),
            "{io:?} counts, and its disk hangs"
        );
    }
    // Reads and writes have a shorter patience than flushes and discards.
    let bounds = [seen.patience.data, seen.patience.other];
    let silent = |disk: u32, starts: [Nanos; 2]| {
        let since = starts.map(|start| start.max(seen.last_end(disk)));
        let all = since.into_iter().zip(starts).zip(bounds);
        let mut all =
            all.filter(|&((since, start), bound)| start != Nanos::MAX && now.since(since) >= bound);
        all.next().map(|((since, _), _)| since)
    };
    // If all disks are silent, the device may hang as a whole; then only waiting units are a
    // reason.
    let alone = oldest.iter().all(|(&disk, &(id, starts))| {
        silent(disk, starts).is_some() || engine.device().hung_since(id).is_some()
    });
    let waits = alone && others_wait(engine);
    for (&disk, &(id, starts)) in &oldest {
        let Some(since) = silent(disk, starts) else {
            continue;
        };
        let oldest_end =
            |(&other, of_other): (&u32, &Seen)| (other != disk).then_some(of_other.last_end);
        let others = seen.disks.iter().filter_map(oldest_end).max();
        // Others alone that go on show that the disk hangs, and not the device.
        let lately = others.is_some_and(|end| end > since && now.since(end) < seen.patience.data);
        ensure!(
            Neighbours,
            !(lately || waits) || engine.device().hung_since(id).is_some(),
            "disk {disk} has been silent for {}, others go on or wait, and it holds its places",
            now.since(since)
        );
    }
    Ok(())
}

/// Returns `true` if a unit that may go waits for a disk of a VM that has no I/O with the device.
fn others_wait(engine: &Engine) -> bool {
    let view = engine.view();
    view.vms().any(|vm| {
        engine.vms().in_flight(vm) == 0
            && Lane::ALL
                .into_iter()
                .any(|lane| view.lane_head(vm, lane).is_some())
    })
}
