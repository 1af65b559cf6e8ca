//! Disks that hang leave the device's depth count, so that their neighbours go on.
//!
//! A disk *hangs* when none of its I/Os has ended for [`SILENCE`] although the device goes on for others:
//! another disk's I/O has ended in that time, or every I/O with the device is of such silent disks and
//! another disk waits. (The second case is the usual one: a disk that hangs soon holds every place, so that no
//! other I/O is left that could end.) Where nobody else uses the device, nothing is gained by taking a disk
//! out, and none is.
//!
//! Flushes, discards and zeroing move no payload and can honestly take seconds: a disk with nothing else in
//! flight is given [`SILENCE_WITHOUT_DATA`].
//!
//! ```text
//! serving --silent, others go on--> hung: its I/Os in flight count no more; it gets one more I/O (a probe),
//!    ^                                    |  what else of it the dispatcher picks is parked
//!    +---------- any I/O of it ends ------+
//! ```
//!
//! To roles an I/O that counts no more has ended, with an error; its true end is not told to them. In the
//! slab it lives on until then, and so do its guest requests and their buffers. At most
//! [`DeviceSpec::uncounted_most`](super::DeviceSpec::uncounted_most) I/Os are uncounted; beyond that those of hung
//! disks count as all others do.
//!
//! Off at first ([`Engine::set_hung_disks_aside`]): then a completion costs one look at an `Option`. Silence is
//! looked for by [`Engine::look_for_hung_disks`], which the driver calls about once a second.

use super::{Engine, InFlight, NIL};
use crate::facts::state;
use crate::roles::{Event, Interests};
use tidegate_base::request::{DeviceIo, DiskId, IoError, IoId, Op};
use tidegate_base::time::Nanos;

/// Silence after which a disk with reads or writes in flight is taken to hang: hundreds of times a slow disk's
/// worst seek, and less than what guests wait (Linux: 30 s for SCSI, no bound for virtio).
pub const SILENCE: Nanos = Nanos::from_secs(1);
/// The same for a disk with nothing but flushes, discards or zeroing in flight. A cache of some hundred MiB
/// takes a hard disk a few seconds.
pub const SILENCE_WITHOUT_DATA: Nanos = Nanos::from_secs(5);

/// How long a disk may be silent before it is taken to hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// With reads or writes in flight.
    pub data: Nanos,
    /// With nothing but flushes, discards or zeroing in flight.
    pub other: Nanos,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            data: SILENCE,
            other: SILENCE_WITHOUT_DATA,
        }
    }
}

/// The silence of a disk with I/Os in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Silence {
    /// The start of its oldest read or write; [`Nanos::MAX`]: it has none in flight.
    data: Nanos,
    /// The start of its oldest other I/O.
    other: Nanos,
}

impl Silence {
    const NONE: Silence = Silence {
        data: Nanos::MAX,
        other: Nanos::MAX,
    };

    /// Returns whether the disk has nothing in flight.
    fn is_idle(self) -> bool {
        self == Silence::NONE
    }

    /// Returns since when a disk is silent, if that is for too long. `last_end`: when an I/O of it last ended.
    fn too_long(self, now: Nanos, last_end: Nanos, patience: &Patience) -> Option<Nanos> {
        let since = |start: Nanos, bound: Nanos| {
            let since = start.max(last_end);
            (start != Nanos::MAX && now.since(since) >= bound).then_some(since)
        };
        since(self.data, patience.data).or_else(|| since(self.other, patience.other))
    }
}

/// A disk that hangs.
struct HungDisk {
    disk: u32,
    since: Nanos,
    /// Whether the one I/O that a hung disk gets is with the device.
    probed: bool,
    /// Units that the dispatcher has picked meanwhile: out of its index and of their lanes.
    parked: Vec<u32>,
}

/// Disks by how long none of their I/Os has ended, and those of them that hang.
pub(super) struct HungDisks {
    patience: Patience,
    /// When an I/O of each disk last ended, by the disk's slot; [`Nanos::ZERO`]: none did.
    last_end: Vec<Nanos>,
    hung: Vec<HungDisk>,
    /// I/Os with the device that do not count.
    uncounted: u32,
    uncounted_most: u32,
    /// Silence of each disk, by its slot; only meaningful within a look.
    silence: Vec<Silence>,
}

impl HungDisks {
    fn new(disks: usize, uncounted_most: u32, patience: Patience) -> HungDisks {
        let mut this = HungDisks {
            patience,
            last_end: Vec::new(),
            hung: Vec::new(),
            uncounted: 0,
            uncounted_most,
            silence: Vec::new(),
        };
        this.make_room(disks);
        this
    }

    /// Makes room for this many slots of disks.
    pub(super) fn make_room(&mut self, disks: usize) {
        if self.last_end.len() < disks {
            self.last_end.resize(disks, Nanos::ZERO);
            self.silence.resize(disks, Silence::NONE);
        }
    }

    fn find(&self, disk: u32) -> Option<&HungDisk> {
        self.hung.iter().find(|hung| hung.disk == disk)
    }

    fn has_room(&self) -> bool {
        self.uncounted < self.uncounted_most
    }

    /// Returns whether the I/Os of a disk have to wait: it hangs and has had its one.
    fn keeps_waiting(&self, disk: u32) -> bool {
        self.find(disk)
            .is_some_and(|hung| hung.probed || !self.has_room())
    }

    /// Gathers the silence of all disks with I/Os in flight.
    fn gather<'a>(&mut self, live: impl Iterator<Item = &'a InFlight>) {
        self.silence.fill(Silence::NONE);
        for slot in live {
            let of_disk = &mut self.silence[slot.io.disk.index()];
            let oldest = match slot.io.op {
                Op::Read | Op::Write => &mut of_disk.data,
                Op::Flush | Op::Discard | Op::WriteZeroes => &mut of_disk.other,
            };
            *oldest = slot.started.min(*oldest);
        }
    }

    /// Disks that are silent for too long and not known to hang, with since when; after `gather`.
    fn silent(&self, now: Nanos) -> Vec<(u32, Nanos)> {
        let disks = self.silence.iter().zip(&self.last_end).zip(0..);
        let silent = disks.filter_map(|((silence, &last_end), disk)| {
            let since = silence.too_long(now, last_end, &self.patience)?;
            self.find(disk).is_none().then_some((disk, since))
        });
        silent.collect()
    }

    /// Returns when an I/O last ended of any disk that is none of these.
    fn last_end_of_others(&self, silent: &[(u32, Nanos)]) -> Nanos {
        let others = self.last_end.iter().zip(0..);
        let others = others.filter(|&(_, disk)| silent.iter().all(|&(of, _)| of != disk));
        others.map(|(&end, _)| end).max().unwrap_or(Nanos::ZERO)
    }

    /// Returns whether every I/O that counts is of one of these disks; after `gather`.
    fn hold_the_device(&self, silent: &[(u32, Nanos)]) -> bool {
        let busy = self.silence.iter().zip(0..);
        let mut busy = busy.filter(|(silence, _)| !silence.is_idle());
        busy.all(|(_, disk)| silent.iter().any(|&(of, _)| of == disk) || self.find(disk).is_some())
    }
}

impl Engine {
    /// Has disks that hang leave the depth count from now on, when [`Engine::look_for_hung_disks`] finds them. From
    /// then on up to [`DeviceSpec::io_slots`](super::DeviceSpec::io_slots) I/Os are with the device at once. Panics
    /// while anything is in flight.
    pub fn set_hung_disks_aside(&mut self, now: Nanos, patience: Patience) {
        self.advance(now);
        assert!(
            self.facts.device.in_flight == 0,
            "the slab of I/Os grows only while none is in flight"
        );
        if self.hung.is_some() {
            return;
        }
        let (disks, device) = (self.disks.len(), &self.config.device);
        let (most, slots) = (device.uncounted_most(), device.io_slots());
        self.grow_in_flight(slots);
        let hung = HungDisks::new(disks, most, patience);
        self.hung = Some(Box::new(hung));
    }

    /// Returns since when no I/O of a disk has ended, if it hangs; `None`: it does not, or it is gone.
    pub fn hung_since(&self, disk: DiskId) -> Option<Nanos> {
        let of_disk = self.disks.get(disk.index())?;
        let hung = self.hung.as_ref()?.find(disk.index)?;
        (of_disk.generation == disk.generation).then_some(hung.since)
    }

    /// Returns whether any disk hangs.
    pub fn any_hung(&self) -> bool {
        self.any_hung
    }

    /// Returns whether an I/O is with the device and counts against its depth.
    pub fn is_counted(&self, io: IoId) -> bool {
        self.is_in_flight(io) && self.in_flight[io.index()].counted
    }

    /// Iterates over all I/Os with the device: the disk of each, and when it started.
    pub fn ios_in_flight(&self) -> impl Iterator<Item = (DiskId, Nanos)> + '_ {
        let live = self.in_flight.iter().filter(|slot| slot.live);
        live.map(|slot| (slot.io.disk, slot.started))
    }

    /// Returns how many I/Os with the device do not count against its depth.
    pub fn uncounted(&self) -> u32 {
        self.hung.as_ref().map_or(0, |hung| hung.uncounted)
    }

    /// Looks for disks that hang, and takes them out of the depth count; to be called about once a second, with
    /// [`Engine::poll_dispatch`] after it. Returns whether anything has changed.
    pub fn look_for_hung_disks(&mut self, now: Nanos) -> bool {
        self.advance(now);
        let Some(mut hung) = self.hung.take() else {
            return false;
        };
        hung.gather(self.in_flight.iter().filter(|slot| slot.live));
        let mut silent = hung.silent(self.facts.now);
        if !silent.is_empty() {
            let others = hung.last_end_of_others(&silent);
            let lately = others > Nanos::ZERO && self.facts.now.since(others) <= hung.patience.data;
            let all = hung.hold_the_device(&silent) && self.others_wait(&hung, &silent);
            silent.retain(|&(_, since)| all || (lately && others > since));
        }
        for &(disk, since) in &silent {
            hung.hung.push(HungDisk {
                disk,
                since,
                probed: false,
                parked: Vec::new(),
            });
        }
        self.any_hung = !hung.hung.is_empty();
        let before = hung.uncounted;
        // Also of those that were found before, where there was no room.
        for index in 0..self.in_flight.len() {
            let slot = &self.in_flight[index];
            let hangs = slot.live && slot.counted && hung.find(slot.io.disk.index).is_some();
            if hangs && hung.has_room() {
                hung.uncounted += 1;
                self.uncount(index);
            }
        }
        let changed = !silent.is_empty() || hung.uncounted > before;
        self.hung = Some(hung);
        changed
    }

    /// Returns whether something waits for a disk that is neither silent nor hangs.
    fn others_wait(&self, hung: &HungDisks, silent: &[(u32, Nanos)]) -> bool {
        let other =
            |disk: u32| silent.iter().all(|&(of, _)| of != disk) && hung.find(disk).is_none();
        let hot = &self.facts.hot;
        let waits = |first: u32| {
            let mut unit = first;
            core::iter::from_fn(move || {
                let this = unit;
                (this != NIL).then(|| {
                    unit = hot[this as usize].next;
                    this
                })
            })
        };
        let mut lanes = self.facts.vms.iter().flat_map(|vm| &vm.lanes);
        self.express.iter().any(|&disk| other(disk))
            || lanes
                .any(|lane| waits(lane.head).any(|unit| other(self.facts.cold[unit as usize].disk)))
    }

    /// Takes an I/O with the device out of the count: to roles and whoever learns from the device it has ended.
    fn uncount(&mut self, index: usize) {
        let slot = &mut self.in_flight[index];
        slot.counted = false;
        let (part, vm, kind, started) = (slot.part, slot.io.vm, slot.kind, slot.started);
        let (now, background) = (self.facts.now, self.facts.vms[vm.index()].background);
        let device = &mut self.facts.device;
        device.in_flight -= 1;
        device.parts.in_flight -= u32::from(part);
        device.background.in_flight -= u32::from(background);
        // If it was the only one the device is idle from now on, as far as that is counted.
        device.last_end = now;
        if let Some(watch) = &mut self.watch {
            watch.taken_out(now, kind);
        }
        if let Some(estimator) = &mut self.facts.estimator {
            let deepest = self.limit.min(self.roles.dispatcher.depth());
            estimator.ended(now, &self.in_flight[index].io, false, deepest);
        }
        if self.depth_control.is_some() {
            let op = self.in_flight[index].io.op;
            self.count_end(op, 0, false);
        }
        if self.hears(Interests::ENDED) {
            let event = Event::Ended {
                io: &self.in_flight[index].io,
                outcome: Err(IoError::Io),
                took: now.since(started),
            };
            self.ears.tell(&mut self.roles, &self.facts, &event);
            self.follow_up();
        }
    }

    /// Notes that an I/O of a disk has ended.
    pub(super) fn note_end(&mut self, disk: u32, counted: bool) {
        let Some(hung) = &mut self.hung else { return };
        hung.last_end[disk as usize] = self.facts.now;
        hung.uncounted -= u32::from(!counted);
    }

    /// Has a disk that hangs, if it does, hang no more: all that was parked of it waits as before.
    #[cold]
    pub(super) fn revive(&mut self, disk: u32) {
        let Some(hung) = &mut self.hung else { return };
        let Some(at) = hung.hung.iter().position(|hung| hung.disk == disk) else {
            return;
        };
        let parked = hung.hung.swap_remove(at).parked;
        self.any_hung = !hung.hung.is_empty();
        self.unpark(parked);
        let of_disk = &self.disks[disk as usize];
        if of_disk.flushes > 0 && !of_disk.flushing && !self.express.contains(&disk) {
            self.express.push_back(disk);
        }
    }

    /// Has everything that is parked of a VM wait as before, for somebody who is about to look through what
    /// waits; what still hangs is parked again when it is picked.
    pub(super) fn unpark_vm(&mut self, vm: u32) {
        let Some(hung) = &mut self.hung else { return };
        let mut parked = Vec::new();
        for of_disk in &mut hung.hung {
            if self.disks[of_disk.disk as usize].vm == vm {
                parked.append(&mut of_disk.parked);
            }
        }
        self.unpark(parked);
    }

    /// Has everything that is parked wait as before.
    pub(super) fn unpark_all(&mut self) {
        let Some(hung) = &mut self.hung else { return };
        let hung = hung.hung.iter_mut();
        let parked: Vec<Vec<u32>> = hung.map(|hung| core::mem::take(&mut hung.parked)).collect();
        for of_disk in parked {
            self.unpark(of_disk);
        }
    }

    /// Puts units of one VM back into their lanes, among those that are admitted, in the order of arrival.
    pub(super) fn unpark(&mut self, mut parked: Vec<u32>) {
        parked.sort_unstable_by_key(|&slot| self.facts.hot[slot as usize].seq);
        let Some(&first) = parked.first() else { return };
        let vm = self.facts.hot[first as usize].vm;
        let mut next = self.facts.vms[vm as usize].lanes.map(|lane| lane.head);
        for slot in parked {
            let (seq, lane) = {
                let hot = &self.facts.hot[slot as usize];
                (hot.seq, hot.op.lane())
            };
            let next = &mut next[lane.index()];
            while *next != NIL {
                let hot = &self.facts.hot[*next as usize];
                if hot.state != state::ADMITTED || hot.seq > seq {
                    break;
                }
                *next = hot.next;
            }
            self.facts.hot[slot as usize].state = state::ADMITTED;
            self.link(slot, *next);
            self.ask_gate(vm, lane);
            self.announce(slot);
            self.let_holder_go(slot);
        }
    }

    /// Parks a unit that the dispatcher has picked if its disk hangs and has had its one I/O. Returns whether it
    /// was.
    #[cold]
    pub(super) fn park(&mut self, unit: u32) -> bool {
        let disk = self.facts.cold[unit as usize].disk;
        let Some(hung) = &mut self.hung else {
            return false;
        };
        if !hung.keeps_waiting(disk) {
            return false;
        }
        let of_disk = hung.hung.iter_mut().find(|hung| hung.disk == disk);
        of_disk
            .expect("a disk that keeps waiting hangs")
            .parked
            .push(unit);
        self.take_out(unit);
        true
    }

    /// Takes an admitted unit out of its lane and of the dispatcher's index until [`Engine::unpark`].
    pub(super) fn take_out(&mut self, unit: u32) {
        let (vm, lane) = {
            let hot = &self.facts.hot[unit as usize];
            (hot.vm, hot.op.lane())
        };
        self.unlink(unit);
        let id = self.facts.req_id(unit);
        self.roles.dispatcher.remove(&self.facts, id);
        self.facts.hot[unit as usize].state = state::PARKED;
        self.ask_gate(vm, lane);
    }

    /// Takes the next disk whose waiting flushes may go; those that hang and have had their one I/O lose their
    /// turn until they go on.
    #[cold]
    pub(super) fn next_express(&mut self) -> Option<u32> {
        while let Some(disk) = self.express.pop_front() {
            let hung = self.hung.as_ref();
            if !hung.is_some_and(|hung| hung.keeps_waiting(disk)) {
                return Some(disk);
            }
        }
        None
    }

    /// Notes an I/O that has just started while a disk hangs: one of such a disk was its one and does not count.
    #[cold]
    pub(super) fn note_probe(&mut self, io: &DeviceIo) {
        let Some(hung) = &mut self.hung else { return };
        let disk = io.disk.index;
        let Some(of_disk) = hung.hung.iter_mut().find(|hung| hung.disk == disk) else {
            return;
        };
        of_disk.probed = true;
        hung.uncounted += 1;
        self.uncount(io.id.index());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_end_or_from_the_oldest_start() {
        let at = Nanos::from_millis;
        let with = |data: Nanos, other: Nanos| Silence { data, other };
        let (none, patience) = (Nanos::MAX, &Patience::default());
        let reads = with(at(500), none);
        assert_eq!(reads.too_long(at(1499), at(100), patience), None);
        assert_eq!(reads.too_long(at(1500), at(100), patience), Some(at(500)));
        assert_eq!(reads.too_long(at(1500), at(501), patience), None);
        assert_eq!(reads.too_long(at(1501), at(501), patience), Some(at(501)));
        let flush = with(none, at(500));
        assert_eq!(flush.too_long(at(5499), at(0), patience), None);
        assert_eq!(flush.too_long(at(5500), at(0), patience), Some(at(500)));
        let both = with(at(4000), at(500));
        assert_eq!(both.too_long(at(4999), at(0), patience), None);
        assert_eq!(both.too_long(at(5000), at(0), patience), Some(at(4000)));
        assert_eq!(Silence::NONE.too_long(at(99_000), at(0), patience), None);
    }
}
