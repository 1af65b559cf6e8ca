//! Work of the flash dies: reads for the host at once, programs and moves in the background.
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
//! Each die has its own queue in the write buffer and works independently. It begins its next
//! background operation when it has finished everything that was booked before. So a read that is
//! submitted earlier goes first, and a read waits for at most one program or move in progress, an
//! erase, and what a flush or writes that need room have booked.

use super::reclaim::Reclaim;
use super::{LINGER, Ssd};

/// State of a die. Times are in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Die {
    /// Time at which everything that was booked is done.
    pub(super) free: u64,
    /// Time at which the last program is done.
    pub(super) programmed: u64,
    /// Time since which a full program has waited.
    pub(super) full_since: u64,
    /// Units to be moved for garbage collection, in fractions of a unit; [`Reclaim::one`] is one.
    moves: u64,
    /// Number of programs since the last erase.
    programs: u32,
}

impl Ssd {
    /// Computes the time at which a die begins its next background operation.
    pub(super) fn plan(&mut self, die: usize) {
        let waiting = self.buffer.waiting(die);
        let d = &self.dies[die];
        // Moves worth a whole program are due at once; a partial program waits for more data,
        // because it takes as long as a full one.
        let wanted = if d.moves >= u64::from(self.per_program) * Reclaim::one() {
            0
        } else if waiting >= self.per_program {
            d.full_since
        } else if waiting > 0 {
            self.buffer.oldest(die) + LINGER.0
        } else {
            u64::MAX
        };
        let begin = wanted.max(d.free);
        self.next_work[die] = begin;
        self.next_work_bound = self.next_work_bound.min(begin);
    }

    /// Returns the earliest begin of a background operation, and its die.
    fn next_die(&self) -> (u64, usize) {
        let mut first = (u64::MAX, 0);
        for (die, begin) in self.next_work.iter().copied().enumerate() {
            if begin < first.0 {
                first = (begin, die);
            }
        }
        first
    }

    /// Performs the background operations that dies have begun by `now`.
    pub(super) fn advance(&mut self, now: u64) {
        while self.next_work_bound <= now {
            let (begin, die) = self.next_die();
            self.next_work_bound = begin;
            if begin <= now {
                self.run_background(begin, begin, die);
            }
        }
    }

    /// Performs the next background operation of a die, a move or a program, from `begin` on.
    fn run_background(&mut self, now: u64, begin: u64, die: usize) {
        if self.dies[die].moves >= u64::from(self.per_program) * Reclaim::one() {
            // A move reads a page, sends it to the controller and back over the channel (so twice)
            // and programs it. The time is added up on the die only; the channel is not booked.
            let bytes = u64::from(self.per_program) << self.unit_bits;
            let time = self.timing.read + 2 * self.on_channel(bytes) + self.timing.program;
            let d = &mut self.dies[die];
            d.moves -= u64::from(self.per_program) * Reclaim::one();
            d.free = begin.max(d.free) + time;
            self.count_program(die);
            self.plan(die);
        } else {
            self.program(now, begin, die);
        }
    }

    /// Programs the oldest waiting units of a die from `begin` on, as many as one program takes.
    /// Returns the time at which their data has left the buffer.
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
        self.count_program(die);
        self.plan(die);
        sent
    }

    /// Counts a program of a die, and erases a block once one is full.
    fn count_program(&mut self, die: usize) {
        // Before garbage collection begins, blocks that were erased in advance are used.
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

    /// Reads a part of a page from the flash for a command that is ready at `ready`. Returns the
    /// time at which it has left the channel.
    pub(super) fn read_page(&mut self, now: u64, ready: u64, page: u32, bytes: u64) -> u64 {
        let die = self.die_of(page);
        let read = ready.max(self.dies[die].free) + self.timing.read;
        let time = self.on_channel(bytes);
        let channel = self.channel_of(die);
        let end = self.channels[channel].book(now, read, time) + time;
        // The die's page register holds the data until it is sent, so the die stays occupied.
        self.dies[die].free = end;
        // The die is free later now, so its background operation begins later.
        if self.next_work[die] != u64::MAX {
            self.plan(die);
        }
        end
    }

    /// Waits for booked data to leave the buffer, or makes the die that is free first do its next
    /// background operation, whichever is sooner. Returns the time at which data has left the
    /// buffer, or 0 if the operation was a move, which frees no room.
    pub(super) fn make_room(&mut self, now: u64) -> u64 {
        // Of the dies with data, the one that is free first makes room first.
        let mut soonest = (u64::MAX, 0);
        for (die, d) in self.dies.iter().enumerate() {
            if self.buffer.waiting(die) > 0 && d.free < soonest.0 {
                soonest = (d.free, die);
            }
        }
        let (free, die) = soonest;
        let leave = self.buffer.next_leave();
        if leave != u64::MAX && leave <= free.max(now) {
            self.buffer.let_leave();
            return leave;
        }
        let begin = free.max(now);
        if self.dies[die].moves >= u64::from(self.per_program) * Reclaim::one() {
            self.run_background(now, begin, die);
            return 0;
        }
        self.program(now, begin, die)
    }

    /// Programs everything that waits for a die, from `ready` on. It takes up room in the buffer
    /// until it is sent.
    pub(super) fn drain(&mut self, now: u64, ready: u64, die: usize) {
        let mut waiting = self.buffer.waiting(die);
        while waiting > 0 {
            let sent = self.program(now, ready, die);
            let left = self.buffer.waiting(die);
            self.buffer.keep_until(sent, waiting - left);
            waiting = left;
        }
    }
}
