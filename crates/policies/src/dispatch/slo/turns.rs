//! Turns of VMs at a disk that seeks: rules by which a VM is held back although the disk's queue
//! has room, so that the disk's own order does not decide the shares.
//!
//! A VM is *absent* while all its requests are in the disk's queue ([`absent`](super::absent)), and
//! *ahead* of another one if it was served more in proportion to its weight.
//!
//! - VMs that are ahead of an absent VM use the lower half of the disk's queue only.
//! - A VM that the disk passed over is *favoured* until it has its share again: VMs ahead of it are
//!   held back. While the favoured VM is a stream with some of its turn left, all others are. Time
//!   for which others are held back is charged to it, beyond the costs of its I/Os.
//! - A log that writes one block after the other, and waits for each, is no such stream: the head
//!   has passed the place of its next write when that comes. Without a write cache each costs it a
//!   positioning, and nothing is held back between two of them.
//! - While a deadline transfer that is behind its rate is absent, I/Os by share use at most
//!   [`TRANSFER_BESIDE_IOS_MAX`] places of the queue.

use super::absent::Absent;
use super::shares::Shares;
use super::stay::Stream;
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Number of I/Os in flight from which on no further I/O is started by share while a deadline
/// transfer behind its rate is absent.
const TRANSFER_BESIDE_IOS_MAX: u32 = 4;
/// Part of a positioning below which a write ended in a cache of the disk: some 1.5 ms. The rest of
/// a rotation is rarely that short.
const CACHED_WRITE_PART: u64 = 8;
/// Maximum number of absent VMs that are recorded: the usual queue depth of a hard disk.
const ABSENT_VMS_MAX: usize = 32;

/// VM that others are held back for, at a disk that seeks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Favoured {
    slot: usize,
    /// Cost that the VM, if it is a stream, may still be served before any other VM is.
    turn_left: u64,
    /// Time for which others are held back, as far as it is not charged; `None`: none is.
    hold: Option<Hold>,
}

/// Time for which others are held back for a favoured VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hold {
    since: Nanos,
    /// Cost of all I/Os that the disk served, or has yet to serve, in that time.
    charged: u64,
}

impl Favoured {
    /// Returns the cost of the time since the last charge, beyond that of the I/Os served in it, at
    /// most a turn; 0 while I/Os of the VM are in flight.
    #[cold]
    fn charge_hold(&mut self, view: &View, costs: TurnCosts) -> u64 {
        let Some(hold) = &mut self.hold else {
            return 0;
        };
        if view.in_flight(view.vm_at(self.slot)) > 0 {
            return 0;
        }
        let elapsed = costs.of_time(view.now().since(hold.since));
        let beyond = elapsed.saturating_sub(hold.charged).min(costs.turn);
        *hold = Hold {
            since: view.now(),
            charged: 0,
        };
        self.turn_left = self.turn_left.saturating_sub(beyond);
        beyond
    }

    /// Records that others are held back for the VM.
    fn begin_hold(&mut self, view: &View, smallest_io: u64) {
        self.hold.get_or_insert(Hold {
            since: view.now(),
            // I/Os in the disk's queue were charged when they started.
            charged: u64::from(view.device().in_flight) * smallest_io,
        });
    }
}

/// Costs by which turns are measured: in picoseconds of device time, or in bytes while costs of the
/// device are unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnCosts {
    /// Cost of a turn, and lead of another VM from which on a stream is favoured.
    pub(super) turn: u64,
    /// Cost of the smallest I/O.
    pub(super) smallest_io: u64,
    /// Time that the disk takes for the smallest I/O.
    pub(super) smallest_io_time: Nanos,
}

impl TurnCosts {
    /// Returns the cost of time in which the disk serves one VM alone.
    fn of_time(&self, time: Nanos) -> u64 {
        let cost = u128::from(time.0) * u128::from(self.smallest_io)
            / u128::from(self.smallest_io_time.0.max(1));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Turns of VMs at a disk that seeks. Unused where the device does not seek.
#[derive(Debug)]
pub(super) struct Turns {
    /// VMs whose requests are all in flight.
    absent: Absent,
    /// VM that fell behind because the disk passed it over, until it has its share again.
    favoured: Option<Favoured>,
    /// Sequential stream of each VM, by slot.
    streams: Vec<Stream>,
}

impl Turns {
    /// Creates turns with room for `vms` VMs.
    pub(super) fn with_capacity(vms: usize) -> Turns {
        Turns {
            absent: Absent::with_capacity(ABSENT_VMS_MAX),
            favoured: None,
            streams: vec![Stream::default(); vms],
        }
    }

    /// Adds an I/O with data to its VM's stream, and returns whether it continues the last one
    /// without a positioning. `positions`: it needs one even if it continues the last one.
    pub(super) fn push(&mut self, slot: usize, addr: u64, bytes: u32, positions: bool) -> bool {
        self.streams[slot].push(addr, bytes, positions)
    }

    /// Returns whether an I/O that has just started is a write that waits for the platter to come
    /// round, although it may continue its VM's last one: nothing else of the VM is in flight, so
    /// that the head has passed its place by now, and the disk does not end it in a cache.
    #[inline]
    pub(super) fn waits_for_rotation(&self, view: &View, io: &DeviceIo) -> bool {
        io.op == Op::Write
            && view.in_flight(io.vm) <= 1
            && !self.streams[io.vm.index()].ends_in_cache
    }

    /// Records the time that a write took with nothing else of its VM in flight.
    pub(super) fn record_lone_write(&mut self, view: &View, slot: usize, took: Nanos) {
        let most = Nanos(view.device().spec.positioning.0 / CACHED_WRITE_PART);
        self.streams[slot].ends_in_cache = took < most;
    }

    /// Charges the turn of a favoured VM.
    pub(super) fn charge(&mut self, slot: usize, cost: u64) {
        if let Some(favoured) = &mut self.favoured
            && favoured.slot == slot
        {
            favoured.turn_left = favoured.turn_left.saturating_sub(cost);
            if let Some(hold) = &mut favoured.hold {
                hold.charged = hold.charged.saturating_add(cost);
            }
        }
    }

    /// Returns whether a VM is favoured.
    #[inline]
    pub(super) fn has_favoured(&self) -> bool {
        self.favoured.is_some()
    }

    /// Returns the cost that a favoured VM in `slot`, of which an I/O came back, is charged for the
    /// time for which others were held back, besides the costs of its I/Os; at most a turn.
    pub(super) fn charge_hold(&mut self, view: &View, slot: usize, costs: TurnCosts) -> u64 {
        match &mut self.favoured {
            Some(favoured) if favoured.slot == slot => favoured.charge_hold(view, costs),
            _ => 0,
        }
    }

    /// Records that nothing of a VM waits any more, while I/Os of it are in flight.
    pub(super) fn record_absence(&mut self, view: &View, slot: usize) {
        (self.absent).record_absence(view, slot, self.streams[slot]);
    }

    /// Records that an I/O of a VM came back.
    #[inline]
    pub(super) fn record_end(&mut self, view: &View, slot: usize) {
        self.absent.record_end(view, slot);
    }

    /// Records that something of a VM waits again. Returns whether it was absent until now.
    #[inline]
    pub(super) fn record_return(&mut self, view: &View, slot: usize) -> bool {
        self.absent.record_return(view, slot)
    }

    /// Forgets a VM that is gone.
    pub(super) fn forget_vm(&mut self, view: &View, slot: usize) {
        self.streams[slot] = Stream::default();
        self.absent.record_return(view, slot);
        self.favoured.take_if(|favoured| favoured.slot == slot);
    }

    /// Returns the time until which the VM in `slot`, which is next by share, is held back although
    /// the disk's queue has room; `None`: it is served now. The end of an I/O may change the
    /// answer.
    ///
    /// `is_transfer_behind` and `waits` answer for the VM of a slot whether it has a deadline
    /// transfer behind its rate, and whether a request of it waits.
    #[cold]
    pub(super) fn held_back_until(
        &mut self,
        view: &View,
        shares: &Shares,
        slot: usize,
        costs: TurnCosts,
        is_transfer_behind: impl Fn(usize) -> bool,
        waits: impl Fn(usize) -> bool,
    ) -> Option<Nanos> {
        let device = view.device();
        // The few I/Os of a transfer wait for all others in the queue, so a long queue would bound
        // its rate whatever the order.
        if device.in_flight >= TRANSFER_BESIDE_IOS_MAX
            && let Some(until) = self.absent.waited_for(view, is_transfer_behind)
        {
            return Some(until);
        }
        let until = self.favoured_until(view, shares, slot, costs, waits);
        if let Some(favoured) = &mut self.favoured {
            match until {
                Some(_) => favoured.begin_hold(view, costs.smallest_io),
                // Another VM is served, so that the time is no longer the favoured one's.
                None if favoured.slot != slot => favoured.hold = None,
                None => {}
            }
        }
        if until.is_some() {
            return until;
        }
        if 2 * device.in_flight < device.spec.depth {
            return None;
        }
        (self.absent).waited_for(view, |absent| shares.is_behind(absent, slot))
    }

    /// Returns the time until which the VM in `slot`, which is next by share, is held back for one
    /// that the disk passed over; `None`: it is served now.
    fn favoured_until(
        &mut self,
        view: &View,
        shares: &Shares,
        slot: usize,
        costs: TurnCosts,
        waits: impl Fn(usize) -> bool,
    ) -> Option<Nanos> {
        if let Some(favoured) = self.favoured {
            // The turn of a stream is not cut short for VMs behind it: each of its I/Os would seek.
            let has_turn = favoured.turn_left > 0 && self.streams[favoured.slot].flows;
            if favoured.slot == slot && has_turn {
                return None;
            }
            if favoured.slot != slot && (has_turn || shares.is_behind(favoured.slot, slot)) {
                if let Some(until) = self.absent.favoured_until(view, favoured.slot) {
                    return Some(until);
                }
                if waits(favoured.slot) {
                    return None;
                }
            }
        }
        // The favoured VM has its share again, pauses, or has fallen ahead of another one.
        let TurnCosts {
            turn, smallest_io, ..
        } = costs;
        // The disk passed over a random VM only if it served more than the queue held when the VM's
        // requests came.
        let beside = 2 * u64::from(view.device().in_flight) * smallest_io;
        let passed_over = self.absent.find_in_flight(view, |absent, stream| {
            let patience = if stream { turn } else { turn + beside };
            shares.lead_over(slot, absent) > patience
        });
        // In the favoured VM's turn, only another one that was passed over ends the favour.
        if passed_over.is_some() || self.favoured.is_some_and(|favoured| favoured.slot != slot) {
            self.favoured = passed_over.map(|slot| Favoured {
                slot,
                turn_left: turn,
                hold: None,
            });
        }
        self.absent.favoured_until(view, passed_over?)
    }
}
