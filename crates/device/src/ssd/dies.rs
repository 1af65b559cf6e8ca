//! What dies do: reads for the host at once, and the rest in the background.
//!
//! ```text
//!               idle, a program full or LINGER over       block full
//!   waiting units --------------------------> programmed ------------> erase
//!               buffer full, flush: at once       |
//!                                                 | amplification
//!                                                 v
//!                                               moves
//! ```
//!
//! Each die has its own queue in the buffer and works by itself. What it does next in the
//! background begins when it is done with everything that was booked before; so a read that
//! comes first goes first, and none waits for more than one program or move that has begun, an
//! erase, and what writes that wait for room or a flush have booked.

use super::reclaim::Reclaim;
use super::{LINGER, Ssd};

/// What a die does. Times in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Die {
    /// When it is done with everything it was told to do.
    pub(super) free: u64,
    /// When it is done with its last program.
    pub(super) programmed: u64,
    /// Since when a full program waits for it.
    pub(super) filled: u64,
    /// Units to be moved for garbage collection, in parts of one.
    moves: u64,
    /// Programs since the last erase.
    programs: u32,
}

impl Ssd {
    /// Notes when a die begins its next work in the background.
    pub(super) fn plan(&mut self, die: usize) {
        let waiting = self.buffer.waiting(die);
        let d = &self.dies[die];
        let wanted = if d.moves >= u64::from(self.per_program) * Reclaim::one() {
            0
        } else if waiting >= self.per_program {
            d.filled
        } else if waiting > 0 {
            self.buffer.oldest(die) + LINGER.0
        } else {
            u64::MAX
        };
        let begin = wanted.max(d.free);
        self.begins[die] = begin;
        self.soonest = self.soonest.min(begin);
    }

    /// The die that begins its next work in the background first.
    fn first(&self) -> (u64, usize) {
        let mut first = (u64::MAX, 0);
        for (die, begin) in self.begins.iter().copied().enumerate() {
            if begin < first.0 {
                first = (begin, die);
            }
        }
        first
    }

    /// Does what dies have begun in the background by `now`.
    pub(super) fn advance(&mut self, now: u64) {
        while self.soonest <= now {
            let (begin, die) = self.first();
            self.soonest = begin;
            if begin <= now {
                self.work(begin, begin, die);
            }
        }
    }

    /// A die does its next work in the background from `begin` on: a move, or a program.
    fn work(&mut self, now: u64, begin: u64, die: usize) {
        if self.dies[die].moves >= u64::from(self.per_program) * Reclaim::one() {
            let bytes = u64::from(self.per_program) << self.unit_bits;
            let time = self.timing.read + 2 * self.on_channel(bytes) + self.timing.program;
            let d = &mut self.dies[die];
            d.moves -= u64::from(self.per_program) * Reclaim::one();
            d.free = begin.max(d.free) + time;
            self.wear(die);
            self.plan(die);
        } else {
            self.program(now, begin, die);
        }
    }

    /// A die programs what waits for it from `begin` on, as much as fits. Returns when its data
    /// has left the buffer.
    fn program(&mut self, now: u64, begin: u64, die: usize) -> u64 {
        let units = self.buffer.take(die, self.per_program);
        assert!(units > 0, "nothing waits for this die");
        let bytes = u64::from(units) << self.unit_bits;
        let time = self.on_channel(bytes);
        let begin = begin.max(self.dies[die].free);
        let channel = self.channel_of(die);
        let sent = self.channels[channel].book(now, begin, time) + time;
        let d = &mut self.dies[die];
        d.free = sent + self.timing.program;
        d.programmed = d.free;
        if let Some(reclaim) = &self.reclaim {
            d.moves += reclaim.moves_for(units);
        }
        self.wear(die);
        self.plan(die);
        sent
    }

    /// Counts a program of a die: a block that is full was erased before.
    fn wear(&mut self, die: usize) {
        if self.reclaim.as_ref().is_none_or(|r| !r.has_begun()) {
            return;
        }
        let d = &mut self.dies[die];
        d.programs += 1;
        if d.programs >= self.per_block {
            d.programs = 0;
            d.free += self.timing.erase;
        }
    }

    /// Reads a part of a page from the flash from `ready` on; returns when it has left the
    /// channel.
    pub(super) fn sense(&mut self, now: u64, ready: u64, page: u32, bytes: u64) -> u64 {
        let die = self.die_of(page);
        let read = ready.max(self.dies[die].free) + self.timing.read;
        let time = self.on_channel(bytes);
        let channel = self.channel_of(die);
        let end = self.channels[channel].book(now, read, time) + time;
        // The register of the die holds the page until it is out.
        self.dies[die].free = end;
        if self.begins[die] != u64::MAX {
            self.plan(die);
        }
        end
    }

    /// Lets the die that can begin soonest work; returns when data has left the buffer for it, or
    /// zero if none has.
    pub(super) fn make_room(&mut self, now: u64) -> u64 {
        let mut soonest = (u64::MAX, 0);
        for (die, d) in self.dies.iter().enumerate() {
            if self.buffer.waiting(die) > 0 && d.free < soonest.0 {
                soonest = (d.free, die);
            }
        }
        let (free, die) = soonest;
        let begin = free.max(now);
        if self.dies[die].moves >= u64::from(self.per_program) * Reclaim::one() {
            self.work(now, begin, die);
            return 0;
        }
        self.program(now, begin, die)
    }

    /// Programs everything that waits for a die from `ready` on.
    pub(super) fn drain(&mut self, now: u64, ready: u64, die: usize) {
        while self.buffer.waiting(die) > 0 {
            self.program(now, ready, die);
        }
    }
}
