//! Requests of an I/O that starts: their bytes are handed out, and their waits end.

use super::back_merge::Head;
use super::in_flight::InFlightIo;
use crate::view::{Cold, Hot, Requests, View, flag, state};
use tidegate_base::time::Nanos;

/// Values common to all requests of an I/O that starts. Passed by value, so that they stay in
/// registers where one request goes alone.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub now: Nanos,
    /// Total times for which their lane was shut, and the device deliberately left idle.
    pub shut: Nanos,
    pub deliberate: Nanos,
    /// Time for which a learnt cap has held this I/O back; booked as device time, since without the
    /// hold it would have waited behind the cap.
    pub held: Nanos,
    /// Value of [`Cold::served`].
    pub served: u32,
}

impl Moment {
    /// Adds the head of the unit behind to an I/O whose last request is `last`.
    #[inline(never)]
    pub(super) fn take_along(
        self,
        view: &mut View,
        flight: &mut InFlightIo,
        last: u32,
        head: Head,
    ) {
        let Head { slot, bytes } = head;
        let (ops, of_request) = self.take_head(view, last, slot, bytes);
        flight.reqs += 1;
        flight.io.first_ops += ops;
        flight.io.first_bytes += of_request;
        flight.io.len += bytes;
        flight.io.whole_len = flight.io.len;
    }

    /// Links the first bytes of a request behind the request `last`; the rest waits on. Returns its
    /// operations (0 or 1) and bytes that are served for the first time.
    fn take_head(self, view: &mut View, last: u32, slot: u32, bytes: u32) -> (u32, u64) {
        let View {
            queues, ledgers, ..
        } = view;
        let Requests { hot, cold, .. } = &mut queues.reqs;
        hot[last as usize].chain_next = slot;
        let this = &mut hot[slot as usize];
        let ledger = &mut ledgers[this.vm as usize];
        ledger.merged();
        ledger.at_once().split += 1;
        let first = self.hand_out(this, &mut cold[slot as usize], bytes, false);
        // A read got memory for all its bytes, so its rest holds that while it waits.
        view.queues.count_holder(slot);
        first
    }

    /// Marks `len` bytes of a request as handed out and settles its waiting. Returns (1, bytes of
    /// the request) when it is served for the first time, otherwise (0, 0).
    #[inline(always)]
    pub(super) fn hand_out(
        self,
        hot: &mut Hot,
        cold: &mut Cold,
        len: u32,
        merged: bool,
    ) -> (u32, u64) {
        hot.issued += len;
        if hot.issued == hot.len {
            hot.state = state::STARTED;
        }
        if cold.outstanding == 0 {
            cold.end_wait(self.now, merged, self.shut, self.deliberate);
            let since = match self.held {
                Nanos::ZERO => self.now,
                held => cold.with_device_since(self.now, held),
            };
            cold.part_started(since);
        } else {
            cold.part_started(self.now);
        }
        // Requests that are split or go again are charged to the VM's rates only once.
        if hot.flags & flag::CHARGED != 0 {
            return (0, 0);
        }
        hot.flags |= flag::CHARGED;
        cold.served = self.served;
        (1, hot.len as u64)
    }

    /// Hands out the remaining bytes of all of a unit's requests, as [`Moment::hand_out`] does.
    #[inline(never)]
    pub(super) fn hand_out_all(self, hot: &mut [Hot], cold: &mut [Cold], unit: u32) -> (u32, u64) {
        let (reqs, mut slot) = (hot[unit as usize].unit_reqs, hot[unit as usize].chain_first);
        let (mut first_ops, mut first_bytes) = (0, 0);
        for _ in 0..reqs {
            let (this, account) = (&mut hot[slot as usize], &mut cold[slot as usize]);
            let (left, merged) = (this.len - this.issued, this.state == state::MERGED);
            let (ops, bytes) = self.hand_out(this, account, left, merged);
            first_ops += ops;
            first_bytes += bytes;
            slot = this.chain_next;
        }
        (first_ops, first_bytes)
    }
}
