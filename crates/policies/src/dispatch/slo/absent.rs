//! VMs whose requests are all with a disk that seeks.
//!
//! Such a disk serves its queue in an order of its own. Where the queue holds all that the VMs have
//! outstanding, the VMs share the disk by their own depths instead of by weight. So the upper half
//! of the queue is for VMs that are not ahead of an absent one: a disk gains little there (5 % of
//! the work from 16 to 31 on a 7200 rpm disk), and the absent VM soon has something waiting again.
//!
//! A disk that prefers a stream may not serve the absent VM at all until its own time-out, a second
//! later. So a VM that fell far behind is *favoured*: until it has its share again, nothing of the
//! VMs ahead of it goes. A favoured stream is also waited for between two of its requests, for up
//! to [`PAUSE_MAX`], as CFQ and BFQ idle for a queue: without that, each of its requests would cost
//! two seeks.

use super::stay::Stream;
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Longest time for which others wait for an absent VM. One whose requests take longer has a disk
/// that hangs or reports errors late.
const ABSENCE_WAIT_MAX: Nanos = Nanos::SECOND;
/// Longest pause between an answer to a VM and its next request for which the VM counts as absent,
/// instead of as idle: a quarter of a hard disk's positioning, and six times a guest's usual round
/// trip. A longer pause costs more than the seeks that waiting saves.
const PAUSE_MAX: Nanos = Nanos::from_millis(3);

/// VM with all its requests in flight, or in the pause after the last of them.
#[derive(Clone, Copy, Debug)]
struct Absence {
    slot: usize,
    since: Nanos,
    /// Time at which the last I/O of the VM came back; `None`: I/Os are in flight.
    answered: Option<Nanos>,
    stream: Stream,
}

impl Absence {
    /// Returns whether the VM still counts as absent, and not as idle.
    fn holds(&self, view: &View) -> bool {
        match self.answered {
            None => view.in_flight(view.vm_at(self.slot)) > 0,
            Some(answered) => view.now() < answered + PAUSE_MAX,
        }
    }

    /// Returns the time until which others wait for the VM: a VM between two requests is not waited
    /// for, unless it is a favoured stream.
    fn waited_for_until(&self, favoured: bool) -> Option<Nanos> {
        match self.answered {
            None => Some(self.since + ABSENCE_WAIT_MAX),
            Some(answered) => (favoured && self.stream.flows).then_some(answered + PAUSE_MAX),
        }
    }
}

/// Absent VMs; at most as many as the disk's queue has places.
#[derive(Debug, Default)]
pub(super) struct Absent(Vec<Absence>);

impl Absent {
    /// Creates an empty list with room for `vms` VMs. Nothing is allocated later: VMs beyond the
    /// room are not recorded, so that others may go ahead of them.
    pub(super) fn with_capacity(vms: usize) -> Absent {
        Absent(Vec::with_capacity(vms))
    }

    /// Records that nothing of a VM waits any more, while I/Os of it are in flight.
    pub(super) fn record_absence(&mut self, view: &View, slot: usize, stream: Stream) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|absence| absence.holds(view));
        }
        // A VM that is in the list keeps its first time, so that the wait for it is bounded.
        if self.0.len() < self.0.capacity() && !self.has(slot) {
            self.0.push(Absence {
                slot,
                since: view.now(),
                answered: None,
                stream,
            });
        }
    }

    /// Records that an I/O of a VM came back: after the last one the VM pauses.
    #[inline]
    pub(super) fn record_end(&mut self, view: &View, slot: usize) {
        if !self.0.is_empty() {
            self.record_end_of_any(view, slot);
        }
    }

    #[cold]
    fn record_end_of_any(&mut self, view: &View, slot: usize) {
        if view.in_flight(view.vm_at(slot)) > 0 {
            return;
        }
        for absence in self.0.iter_mut().filter(|absence| absence.slot == slot) {
            absence.answered.get_or_insert(view.now());
        }
    }

    fn has(&self, slot: usize) -> bool {
        self.0.iter().any(|absence| absence.slot == slot)
    }

    /// Records that something of a VM waits again, or that the VM is gone. Returns whether it was
    /// absent until now.
    #[inline]
    pub(super) fn record_return(&mut self, view: &View, slot: usize) -> bool {
        !self.0.is_empty() && self.remove(view, slot)
    }

    #[cold]
    fn remove(&mut self, view: &View, slot: usize) -> bool {
        let mut was_absent = false;
        self.0.retain(|absence| {
            was_absent |= absence.slot == slot && absence.holds(view);
            absence.slot != slot
        });
        was_absent
    }

    /// Returns the time until which others wait for the VMs of which `is_meant` is true; `None` if
    /// for none. Forgets VMs that are idle.
    pub(super) fn waited_for(
        &mut self,
        view: &View,
        is_meant: impl Fn(usize) -> bool,
    ) -> Option<Nanos> {
        self.0.retain(|absence| absence.holds(view));
        let meant = self.0.iter().filter(|absence| is_meant(absence.slot));
        let until = meant
            .filter_map(|absence| absence.waited_for_until(false))
            .max()?;
        // A time that has passed is no reason to wait: the VM's disk hangs or reports errors late.
        (until > view.now()).then_some(until)
    }

    /// Returns the time until which others wait for a favoured VM; `None` if it is not absent, or
    /// its I/Os take too long.
    pub(super) fn favoured_until(&self, view: &View, slot: usize) -> Option<Nanos> {
        let absence = self.0.iter().find(|absence| absence.slot == slot)?;
        let until = absence.waited_for_until(true)?;
        (absence.holds(view) && until > view.now()).then_some(until)
    }

    /// Returns the first VM with I/Os in flight for which `is_far_behind`, told its slot and
    /// whether its last I/O continued an earlier one, is true.
    pub(super) fn find_in_flight(
        &self,
        view: &View,
        is_far_behind: impl Fn(usize, bool) -> bool,
    ) -> Option<usize> {
        let in_flight = |absence: &&Absence| absence.answered.is_none() && absence.holds(view);
        (self.0.iter().filter(in_flight))
            .find(|absence| is_far_behind(absence.slot, absence.stream.continued))
            .map(|absence| absence.slot)
    }
}
