//! Native command queuing (NCQ): the order in which the mechanism takes the waiting commands.
//!
//! ```text
//!             hit, room in the cache
//!   submit ---------------------------------------------> quick
//!      '---> waiting, in order of arrival ---> taken ---> slow
//!              a flush is a barrier            |
//!              a cached write waits for room   the one that can begin soonest,
//!                                              or the oldest after max_wait
//! ```
//!
//! The drive takes one operation at a time, when the mechanism has finished the last one: among the
//! commands that have arrived by then, the one for which arm and platter are in place soonest
//! (shortest positioning time first). Writing the cache back also occupies the mechanism. The drive
//! settles what comes after it as soon as a command is there, so the end of the next command is
//! always known.
//!
//! **Ageing**, if configured, subtracts from each positioning time what the command's waiting is
//! worth, so that a distant command is not passed over for `max_wait` (Jacobson and Wilkes' aged
//! shortest access time first).
//!
//! **No starvation.** A command that has waited for `max_wait` goes before everything that came
//! after it. So it is served after at most `max_wait` plus, for each command before it in the
//! queue, one access and one write-back of a piece of the cache.
//!
//! A decision looks at each waiting command once: a table lookup of the seek, two additions and a
//! remainder, in integers of 32 bits.

use super::mechanism::Target;
use super::{Hdd, byte_range};
use crate::model::ModelIo;
use tidegate_core::request::Op;

/// Kind of service that a waiting command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    /// Write that goes through to the medium.
    Write,
    /// Write that waits for room in the cache.
    Cached,
    /// Flush: a barrier that no later command passes.
    Flush,
    Discard,
}

#[derive(Clone, Debug)]
struct Waiting {
    io: ModelIo,
    kind: Kind,
    /// Time at which the command was decoded, in nanoseconds; not less than that of the one before.
    ready: u64,
    target: Target,
}

/// Commands that wait for the mechanism.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Commands in order of arrival. Never grows beyond its capacity.
    waiting: Vec<Waiting>,
    /// Number of commands that the drive chooses among; the others wait in front of it.
    depth: usize,
    max_wait: u64,
    /// Nanoseconds of positioning that a second of waiting is worth.
    ageing: u64,
    /// Number of flushes among the waiting commands; 0 saves the search for a barrier.
    flushes: u32,
    /// Number of writes that wait for room in the cache; later cached writes must not pass them.
    stalled_writes: u32,
    /// True if a command was served last, so that a full cache is served next.
    cache_is_next: bool,
}

impl Queue {
    pub(super) fn new(depth: u32, room: u32, max_wait: u64, ageing: u64) -> Queue {
        Queue {
            waiting: Vec::with_capacity(room as usize),
            depth: depth as usize,
            max_wait,
            ageing,
            flushes: 0,
            stalled_writes: 0,
            cache_is_next: false,
        }
    }

    /// Returns an empty queue with the same parameters, for `room` commands.
    pub(super) fn fresh(&self, room: u32) -> Queue {
        Queue::new(self.depth as u32, room, self.max_wait, self.ageing)
    }

    pub(super) fn len(&self) -> u32 {
        self.waiting.len() as u32
    }

    fn push(&mut self, waiting: Waiting) {
        self.flushes += u32::from(waiting.kind == Kind::Flush);
        self.stalled_writes += u32::from(waiting.kind == Kind::Cached);
        self.waiting.push(waiting);
    }

    fn take(&mut self, index: usize) -> Waiting {
        let waiting = self.waiting.remove(index);
        self.flushes -= u32::from(waiting.kind == Kind::Flush);
        self.stalled_writes -= u32::from(waiting.kind == Kind::Cached);
        waiting
    }

    /// Returns the commands that the drive may choose among at `now`: decoded, and before a flush.
    fn candidates(&self, now: u64) -> &[Waiting] {
        let mut known = &self.waiting[..self.waiting.len().min(self.depth)];
        if self.flushes > 0 {
            let flush = known.iter().position(|w| w.kind == Kind::Flush);
            known = &known[..flush.unwrap_or(known.len())];
        }
        // Decode times are sorted: almost always all commands are decoded, or all but a few.
        let late = known.iter().rev().take_while(|w| w.ready > now).count();
        &known[..known.len() - late]
    }
}

impl Hdd {
    /// Accepts a command at `now`.
    pub(super) fn submit_queued(&mut self, now: u64, io: ModelIo) {
        self.advance(now);
        let ready = now.max(self.controller_free) + self.overhead;
        self.controller_free = ready;
        if let Some(at) = self.bypass(ready, &io) {
            self.end_bypassed(io.id, at);
            return;
        }
        let kind = match io.op {
            Op::Read => Kind::Read,
            Op::Write if self.is_cached(&io) => Kind::Cached,
            Op::Write | Op::WriteZeroes => Kind::Write,
            Op::Flush => Kind::Flush,
            Op::Discard => Kind::Discard,
        };
        // A command that is alone is served without a choice, so its position is not needed. A
        // flush has no position, whatever address it comes with.
        let alone = self.queue.as_ref().is_none_or(|q| q.len() == 0) && !self.is_busy(now);
        let target = if alone || io.op == Op::Flush {
            Target::default()
        } else {
            self.mechanism.target(io.addr)
        };
        if let Some(queue) = &mut self.queue {
            queue.push(Waiting {
                io,
                kind,
                ready,
                target,
            });
        }
        self.advance(now);
    }

    /// Serves a command that does not need the mechanism; returns its end, or `None` if it must
    /// queue.
    fn bypass(&mut self, ready: u64, io: &ModelIo) -> Option<u64> {
        let queue = self.queue.as_ref()?;
        // A flush is a barrier: what arrives behind it must not bypass it.
        if queue.flushes > 0 {
            return None;
        }
        let (start, end) = byte_range(io);
        match io.op {
            Op::Read
                if self.in_write_cache(ready, start, end)
                    || self.mechanism.hit(ready, start, end) =>
            {
                Some(self.deliver(ready, ready, 0, end - start))
            }
            Op::Write if queue.stalled_writes == 0 && self.is_cached(io) => {
                let cache = self.cache.as_ref()?;
                cache
                    .has_room(ready, end - start)
                    .then(|| self.cache_write(ready, io))
            }
            Op::Discard => Some(self.serve(ready, io)),
            _ => None,
        }
    }

    /// Settles everything that the drive has begun by `now`. Afterwards the end of the next command
    /// is known, if any command waits.
    pub(super) fn advance(&mut self, now: u64) {
        while self.queue.as_ref().is_some_and(|q| q.len() > 0) {
            if self.is_busy(now) {
                return;
            }
            self.begin_next();
        }
        self.write_back_idle(now);
    }

    /// Returns true while the mechanism is at a command that ends after `now`. (An array may have
    /// popped that command's end ahead of time; then the next command is settled early.)
    fn is_busy(&self, now: u64) -> bool {
        let serves = self.mechanism.free_at().min(self.last_queued_end) > now
            && !self.queued_ends.is_empty();
        serves || self.mechanism.reads_on_until() > now
    }

    /// Begins the next operation; at least one command waits.
    fn begin_next(&mut self) {
        let Some(queue) = &self.queue else { return };
        let first = &queue.waiting[0];
        let now = first.ready.max(self.mechanism.free_at());
        // Neither needs a choice: nothing passes a flush, and a discard moves nothing.
        if matches!(first.kind, Kind::Flush | Kind::Discard) {
            return self.take_turn(0, now);
        }
        if queue.stalled_writes > 0 && self.admit_stalled(now) {
            return;
        }
        let Some(queue) = &mut self.queue else { return };
        let half_full =
            self.cache.as_ref().is_some_and(|c| c.is_half_full()) || queue.stalled_writes > 0;
        let dirty = self.cache.as_ref().is_some_and(|c| !c.is_clean());
        // A full cache and the commands take turns, so that neither starves.
        let cache_first = half_full && dirty && queue.cache_is_next;
        queue.cache_is_next = !cache_first;
        match self.choose(now) {
            Some(index) if !cache_first => self.take_turn(index, now),
            _ => {
                let begun = self.write_back(now);
                assert!(begun, "a write waits for room in an empty cache");
            }
        }
    }

    /// Serves the waiting command at `index`, from `now` on.
    fn take_turn(&mut self, index: usize, now: u64) {
        let Some(queue) = &mut self.queue else { return };
        let taken = queue.take(index);
        let at = self.serve(now, &taken.io);
        self.end_queued(taken.io.id, at);
    }

    /// Moves the oldest write that waits for room into the cache if there is room at `now`.
    fn admit_stalled(&mut self, now: u64) -> bool {
        let (Some(queue), Some(cache)) = (&self.queue, &self.cache) else {
            return false;
        };
        let candidates = queue.candidates(now);
        let Some(index) = candidates.iter().position(|w| w.kind == Kind::Cached) else {
            return false;
        };
        if !cache.has_room(now, u64::from(candidates[index].io.len)) {
            return false;
        }
        let Some(queue) = &mut self.queue else {
            return false;
        };
        let taken = queue.take(index);
        // The room is there from `now` on, so the write ends after the operation that freed it.
        let at = self.cache_write(taken.ready.max(now), &taken.io);
        self.end_queued(taken.io.id, at);
        true
    }

    /// Chooses the command that the mechanism takes at `now`; `None` if only cached writes wait.
    fn choose(&self, now: u64) -> Option<usize> {
        let queue = self.queue.as_ref()?;
        if queue.waiting.len() == 1 {
            // One command alone needs no comparison.
            return (queue.stalled_writes == 0).then_some(0);
        }
        let stand = self.mechanism.head_state(now);
        // The head start that waiting is worth is added to all delays, so that they stay positive:
        // the oldest command, the first one, has the most.
        let bonus = |w: &Waiting| (now - w.ready).min(queue.max_wait) as u128;
        let bonus = |w: &Waiting| (bonus(w) * u128::from(queue.ageing) / 1_000_000_000) as u64;
        let most = queue.waiting.first().map_or(0, bonus);
        let (mut best, mut least) = (None, u64::MAX);
        // Of the reads in the read-ahead's way only the one that it reaches first is a candidate.
        let (coming, mut nearest) = (self.mechanism.read_ahead_range(), u64::MAX);
        for (index, w) in queue.candidates(now).iter().enumerate() {
            // Such a write waits for room in the cache, not for the mechanism.
            if w.kind == Kind::Cached {
                continue;
            }
            // Candidates are in order of arrival, so the first one that is too old is the oldest.
            if best.is_none() && now - w.ready >= queue.max_wait {
                return Some(index);
            }
            let handicap = most - bonus(w);
            let delay = match w.kind {
                Kind::Discard => 0,
                Kind::Read if coming.contains(&w.io.addr) => {
                    if w.io.addr >= nearest {
                        continue;
                    }
                    nearest = w.io.addr;
                    self.mechanism.read_ahead_wait(now, w.io.addr)
                }
                _ => {
                    let write = w.kind == Kind::Write;
                    self.mechanism.positioning_time(
                        &stand,
                        &w.target,
                        write,
                        least.saturating_sub(handicap),
                    )
                }
            };
            let delay = delay.saturating_add(handicap);
            if delay < least {
                (best, least) = (Some(index), delay);
            }
        }
        best
    }
}
