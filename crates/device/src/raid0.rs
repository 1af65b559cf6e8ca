//! RAID 0: the array's chunks are striped over its members.
//!
//! ```text
//!   array     | chunk 0 | chunk 1 | chunk 2 | chunk 3 | chunk 4 | ...
//!   member 0  | chunk 0           | chunk 3           | ...
//!   member 1            | chunk 1           | chunk 4
//!   member 2                      | chunk 2
//! ```
//!
//! The chunks of an I/O that lie on one member are adjacent there, so a member gets at most one
//! part of it. The I/O ends with the last part. A flush goes to every member.
//!
//! The controller has no cache. After its overhead it submits all parts at once; parts that do not
//! fit a member's own queue wait in front of it, in order of arrival.
//!
//! **The next end** has to be known at any time, but a member that reorders its queue knows only
//! its own next end. So the array looks ahead: it takes the ends of parts on all members in order
//! of time until one of its own I/Os is complete, and no further. Members have then settled what
//! they do up to that time, and an I/O submitted before it competes with others only from then on.
//! Flash disks with an interleaved interface cannot settle anything ahead of time. An
//! array of them does not look ahead, and its next end is no earlier than the first of theirs.

use crate::figures::{FigureError, require, require_count, require_short};
use crate::hdd::Hdd;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use crate::ssd::Ssd;
use serde::Deserialize;
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_units::{Bytes, Duration};

/// Figures of an array, without those of its members.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid0Figures {
    /// Number of members, 2 to 64.
    pub members: u32,
    /// Chunk size in bytes, a power of two: whole physical blocks of the members.
    pub chunk: Bytes,
    /// Maximum number of I/Os in the array, 1 to 4096.
    pub queue_depth: u32,
    /// Time of the controller for each I/O.
    pub command_overhead: Duration,
}

/// Single device, of which an array has several equal ones.
// Members lie side by side; boxing the larger kind would cost each I/O a cache miss.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Hdd(Hdd),
    Ssd(Ssd),
}

impl Member {
    pub(crate) fn spec(&self) -> &Spec {
        match self {
            Member::Hdd(hdd) => hdd.spec(),
            Member::Ssd(ssd) => ssd.spec(),
        }
    }

    /// Returns true if an I/O that is submitted later can delay an end already named.
    fn ends_can_move(&self) -> bool {
        match self {
            Member::Hdd(_) => false,
            Member::Ssd(ssd) => ssd.is_interleaved(),
        }
    }

    fn fresh(&self, room: u32) -> Member {
        match self {
            Member::Hdd(hdd) => Member::Hdd(hdd.fresh(room)),
            Member::Ssd(ssd) => Member::Ssd(ssd.fresh(room)),
        }
    }

    fn model_mut(&mut self) -> &mut dyn Model {
        match self {
            Member::Hdd(hdd) => hdd,
            Member::Ssd(ssd) => ssd,
        }
    }
}

/// I/O of the array.
#[derive(Clone, Copy, Default, Debug)]
struct ArrayIo {
    id: u64,
    /// Number of parts that have not ended.
    parts: u32,
}

/// Array of equal members without redundancy.
#[derive(Clone, Debug)]
pub struct Raid0 {
    spec: Spec,
    chunk_bits: u32,
    overhead: u64,
    members: Box<[Member]>,
    /// True if members' ends may be taken before their time; false if they can still be delayed.
    looks_ahead: bool,
    /// Time at which the next part ends on each member, or a lower bound of it; `MAX` if there is
    /// none.
    next: Box<[u64]>,
    ios: Box<[ArrayIo]>,
    /// Free indices of `ios`. Never grows beyond its capacity.
    free: Vec<u32>,
    last_submit: Nanos,
    /// Ends of complete I/Os, sorted by time. Never grows beyond its capacity.
    ends: VecDeque<Completion>,
}

impl Raid0 {
    /// Builds an array of copies of `member`.
    ///
    /// # Errors
    /// If a figure is out of range or does not suit the member.
    pub(crate) fn new(
        name: &str,
        figures: &Raid0Figures,
        member: &Member,
    ) -> Result<Raid0, FigureError> {
        let (count, chunk) = (figures.members, figures.chunk);
        let one = member.spec();
        require_count("raid0.members", count, 2..=64)?;
        let block = u64::from(one.physical_block);
        let most = one.capacity.min(1 << 30);
        require(
            chunk.0.is_power_of_two() && chunk.0 >= block && chunk.0 <= most,
            "raid0.chunk",
            chunk,
            format!(
                "a power of two from the members' physical block ({}) to {}",
                Bytes(block),
                Bytes(most)
            ),
        )?;
        let depth = figures.queue_depth;
        require_count("raid0.queue_depth", depth, 1..=4096)?;
        require_short("raid0.command_overhead", figures.command_overhead)?;
        let room = depth as usize;
        Ok(Raid0 {
            spec: Spec {
                name: name.to_owned(),
                // A member's rest below a chunk is not used.
                capacity: one.capacity / chunk.0 * chunk.0 * u64::from(count),
                queue_depth: depth,
                bytes_per_s: one.bytes_per_s.saturating_mul(count.into()),
                bytes_per_s_max: one.bytes_per_s_max.saturating_mul(count.into()),
                ..one.clone()
            },
            chunk_bits: chunk.0.ilog2(),
            overhead: figures.command_overhead.0.0,
            // A member gets room for all I/Os of the array, each of which has at most one part
            // there.
            members: (0..count).map(|_| member.fresh(depth)).collect(),
            looks_ahead: !member.ends_can_move(),
            next: vec![u64::MAX; count as usize].into(),
            ios: vec![ArrayIo::default(); room].into(),
            free: (0..depth).rev().collect(),
            last_submit: Nanos::ZERO,
            ends: VecDeque::with_capacity(room),
        })
    }

    /// Copies an array that has not served anything, with queues of full capacity. (A cloned queue
    /// has the capacity of its content and would allocate later.)
    pub(crate) fn fresh(&self) -> Raid0 {
        let depth = self.spec.queue_depth;
        assert!(self.in_flight() == 0, "the array was used");
        Raid0 {
            members: self.members.iter().map(|m| m.fresh(depth)).collect(),
            free: (0..depth).rev().collect(),
            ends: VecDeque::with_capacity(depth as usize),
            ..self.clone()
        }
    }

    /// Returns the address on a member at which the array's bytes before `byte` end.
    fn member_offset(&self, member: u64, byte: u64) -> u64 {
        let chunk = 1 << self.chunk_bits;
        let count = self.members.len() as u64;
        let (whole, within) = (byte >> self.chunk_bits, byte & (chunk - 1));
        let (row, column) = (whole / count, whole % count);
        // A member before `byte`'s column has its chunk of this row full, one behind it none of it.
        let rest = match column.cmp(&member) {
            core::cmp::Ordering::Greater => chunk,
            core::cmp::Ordering::Equal => within,
            core::cmp::Ordering::Less => 0,
        };
        (row << self.chunk_bits) + rest
    }

    /// Submits one part to a member.
    fn submit_part(&mut self, now: Nanos, member: usize, io: ModelIo) {
        let model = self.members[member].model_mut();
        model.submit(now, io);
        self.next[member] = model.next_completion().map_or(u64::MAX, |at| at.0);
        self.ios[io.id as usize].parts += 1;
    }

    /// Takes ends of parts until an I/O of the array is complete that ends after `now` and no other
    /// can end before it, or until no part is left.
    fn look_ahead(&mut self, now: u64) {
        loop {
            let first = self.first_part_end();
            let known = self.ends.back().map_or(0, |c| c.at.0);
            if first.0 == u64::MAX || (known > now && first.0 >= known) {
                return;
            }
            self.pop_part(first);
        }
    }

    /// Returns the earliest end of a part and its member; `MAX` if no part is in flight.
    fn first_part_end(&self) -> (u64, usize) {
        let mut first = (u64::MAX, 0);
        for (member, at) in self.next.iter().copied().enumerate() {
            if at < first.0 {
                first = (at, member);
            }
        }
        first
    }

    /// Polls a member at the time of its next end, at which a part may or may not have ended.
    fn pop_part(&mut self, (at, member): (u64, usize)) {
        let model = self.members[member].model_mut();
        let ended = model.pop_completed(Nanos(at));
        self.next[member] = model.next_completion().map_or(u64::MAX, |at| at.0);
        if let Some(part) = ended {
            self.end_part(part);
        }
    }

    /// Takes the ends of parts up to `now`, and beyond if the array looks ahead.
    fn collect_ends(&mut self, now: u64) {
        if self.looks_ahead {
            self.look_ahead(now);
        } else {
            // The time may be a lower bound without an end, but no part ends before it.
            while let first = self.first_part_end()
                && first.0 <= now
                && first.0 != u64::MAX
            {
                self.pop_part(first);
            }
        }
    }

    /// Returns the time of the first complete I/O; `MAX` if there is none.
    fn first_end(&self) -> u64 {
        self.ends.front().map_or(u64::MAX, |c| c.at.0)
    }

    fn end_part(&mut self, part: Completion) {
        // A part carries the index of its I/O as its handle.
        let place = part.id as u32;
        let io = &mut self.ios[place as usize];
        io.parts -= 1;
        if io.parts == 0 {
            let end = Completion {
                id: io.id,
                at: part.at,
            };
            self.free.push(place);
            // Insert behind equal ends, which keeps the order of arrival. Almost always at the
            // back.
            let index = self.ends.partition_point(|c| c.at <= end.at);
            self.ends.insert(index, end);
        }
    }
}

impl Model for Raid0 {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        assert_submittable(self, self.last_submit, now, &io);
        self.last_submit = now;
        self.collect_ends(now.0);
        let place = self.free.pop().expect("as many as the queue is deep");
        self.ios[place as usize] = ArrayIo {
            id: io.id,
            parts: 0,
        };
        let part = ModelIo {
            id: u64::from(place),
            ..io
        };
        let passed = Nanos(now.0 + self.overhead);
        if io.op == Op::Flush {
            for member in 0..self.members.len() {
                self.submit_part(passed, member, part);
            }
        } else {
            let (first, count) = (io.addr >> self.chunk_bits, self.members.len() as u64);
            let end = io.addr + u64::from(io.len);
            let chunks = ((end - 1) >> self.chunk_bits) - first + 1;
            for member in (first..first + chunks.min(count)).map(|chunk| chunk % count) {
                // At most one part per member: more chunks than members wrap around.
                let (from, to) = (
                    self.member_offset(member, io.addr),
                    self.member_offset(member, end),
                );
                let part = ModelIo {
                    addr: from,
                    // A part is no longer than the I/O, whose length fits 32 bits.
                    len: (to - from) as u32,
                    ..part
                };
                self.submit_part(passed, member as usize, part);
            }
        }
        self.collect_ends(now.0);
    }

    fn next_completion(&self) -> Option<Nanos> {
        let known = self.first_end();
        let next = if self.looks_ahead {
            known
        } else {
            known.min(self.first_part_end().0)
        };
        (next != u64::MAX).then_some(Nanos(next))
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        if !self.looks_ahead {
            // Stop at the first end: the caller may submit at that time, and members must not have
            // settled anything later by then.
            while let at = self.first_part_end().0
                && at <= now.0.min(self.first_end())
                && at != u64::MAX
            {
                self.collect_ends(at);
            }
            return self.ends.pop_front_if(|c| c.at <= now);
        }
        self.look_ahead(now.0);
        let ended = self.ends.pop_front_if(|c| c.at <= now);
        // The next end must be known again at once, for `next_completion`.
        if ended.is_some() {
            self.look_ahead(now.0);
        }
        ended
    }

    fn in_flight(&self) -> u32 {
        // An I/O has an index until it is complete, and an entry in `ends` from then on.
        self.spec.queue_depth - self.free.len() as u32 + self.ends.len() as u32
    }
}
