//! RAID 0: chunks of the array dealt out to its members in turn.
//!
//! ```text
//!   array     | chunk 0 | chunk 1 | chunk 2 | chunk 3 | chunk 4 | ...
//!   member 0  | chunk 0           | chunk 3           | ...
//!   member 1            | chunk 1           | chunk 4
//!   member 2                      | chunk 2
//! ```
//!
//! The chunks that an I/O has on one member follow each other there, so it becomes one I/O a
//! member at most. It ends when the last of these does. A flush goes to every member.
//!
//! The controller passes everything on at once, after its overhead; what a member does not take
//! into its own queue waits in front of it, in order of arrival. It has no cache.
//!
//! **When the next I/O ends** has to be known at any time, and a member that reorders its queue
//! only knows which of its own I/Os is next. So the array looks ahead: it takes what ends on any
//! member, in order of time, until an I/O of its own is complete, and no farther. A member has
//! then settled what it does until that time, and an I/O that comes before it is weighed against
//! the others only afterwards. Flash disks whose commands share the interface can settle nothing
//! ahead of time: then the array does not look ahead either, and its next end is no sooner than the
//! first of theirs.

use crate::figures::{FigureError, require, require_short};
use crate::hdd::Hdd;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use crate::ssd::Ssd;
use serde::Deserialize;
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_units::{Bytes, Duration};

/// The figures of an array, without those of its members.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid0Figures {
    /// How many members, 2 to 64.
    pub members: u32,
    /// Bytes of a chunk: whole physical blocks of the members.
    pub chunk: Bytes,
    /// I/Os the array accepts at a time, 1 to 4096.
    pub queue_depth: u32,
    /// What the controller takes for each I/O.
    pub command_overhead: Duration,
}

/// What an array is made of.
// Members lie side by side; boxing the larger kind would cost each I/O a look elsewhere.
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

    /// True where the next end is no promise.
    fn may_be_put_off(&self) -> bool {
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

/// An I/O of the array.
#[derive(Clone, Copy, Default, Debug)]
struct Whole {
    id: u64,
    /// Parts that have not ended.
    parts: u32,
}

/// An array of equal members without redundancy.
#[derive(Clone, Debug)]
pub struct Raid0 {
    spec: Spec,
    chunk_bits: u32,
    overhead: u64,
    members: Box<[Member]>,
    /// Whether it may be known what members do after the present.
    looks_ahead: bool,
    /// When the next part ends on each member, or no sooner; `MAX` while none is there.
    next: Box<[u64]>,
    wholes: Box<[Whole]>,
    /// Their places that are free. Never grows beyond its capacity.
    free: Vec<u32>,
    last_submit: Nanos,
    /// I/Os that are complete, in order of their ends. Never grows beyond its capacity.
    ends: VecDeque<Completion>,
}

impl Raid0 {
    /// Builds an array named `name` of copies of `member`.
    ///
    /// # Errors
    /// When a figure is out of range or does not go with the member.
    pub(crate) fn new(
        name: &str,
        figures: &Raid0Figures,
        member: &Member,
    ) -> Result<Raid0, FigureError> {
        let (count, chunk) = (figures.members, figures.chunk);
        let one = member.spec();
        require((2..=64).contains(&count), "raid0.members", count, "2 to 64")?;
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
        require(
            (1..=4096).contains(&depth),
            "raid0.queue_depth",
            depth,
            "1 to 4096",
        )?;
        require_short("raid0.command_overhead", figures.command_overhead)?;
        let room = depth as usize;
        Ok(Raid0 {
            spec: Spec {
                name: name.to_owned(),
                capacity: one.capacity / chunk.0 * chunk.0 * u64::from(count),
                queue_depth: depth,
                bytes_per_s: one.bytes_per_s.saturating_mul(count.into()),
                bytes_per_s_max: one.bytes_per_s_max.saturating_mul(count.into()),
                ..one.clone()
            },
            chunk_bits: chunk.0.ilog2(),
            overhead: figures.command_overhead.0.0,
            members: (0..count).map(|_| member.fresh(depth)).collect(),
            looks_ahead: !member.may_be_put_off(),
            next: vec![u64::MAX; count as usize].into(),
            wholes: vec![Whole::default(); room].into(),
            free: (0..depth).rev().collect(),
            last_submit: Nanos::ZERO,
            ends: VecDeque::with_capacity(room),
        })
    }

    /// A copy of an array that has served nothing yet, with queues of its own. (Cloned queues
    /// would have to allocate.)
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

    /// Where the bytes before `byte` of the array end on a member.
    fn until(&self, member: u64, byte: u64) -> u64 {
        let chunk = 1 << self.chunk_bits;
        let count = self.members.len() as u64;
        let (whole, within) = (byte >> self.chunk_bits, byte & (chunk - 1));
        let (row, column) = (whole / count, whole % count);
        let rest = match column.cmp(&member) {
            core::cmp::Ordering::Greater => chunk,
            core::cmp::Ordering::Equal => within,
            core::cmp::Ordering::Less => 0,
        };
        (row << self.chunk_bits) + rest
    }

    /// Hands a member its part.
    fn pass(&mut self, now: Nanos, member: usize, io: ModelIo) {
        let model = self.members[member].model_mut();
        model.submit(now, io);
        self.next[member] = model.next_completion().map_or(u64::MAX, |at| at.0);
        self.wholes[io.id as usize].parts += 1;
    }

    /// Takes what ends on the members until an I/O is known that ends after `now`, and nothing
    /// can end before it; or until nothing is left.
    fn look_ahead(&mut self, now: u64) {
        loop {
            let first = self.first();
            let known = self.ends.back().map_or(0, |c| c.at.0);
            if first.0 == u64::MAX || (known > now && first.0 >= known) {
                return;
            }
            self.take(first);
        }
    }

    /// The member on which the next part ends, and when; `MAX` when none will.
    fn first(&self) -> (u64, usize) {
        let mut first = (u64::MAX, 0);
        for (member, at) in self.next.iter().copied().enumerate() {
            if at < first.0 {
                first = (at, member);
            }
        }
        first
    }

    /// Takes the next part of a member, which ends at `at` if it does then.
    fn take(&mut self, (at, member): (u64, usize)) {
        let model = self.members[member].model_mut();
        let ended = model.pop_completed(Nanos(at));
        self.next[member] = model.next_completion().map_or(u64::MAX, |at| at.0);
        if let Some(part) = ended {
            self.end_part(part);
        }
    }

    /// Takes what ends on the members by `now`, and what is next where that may be known.
    fn look(&mut self, now: u64) {
        if self.looks_ahead {
            self.look_ahead(now);
        } else {
            // The first of all parts may have no end yet, but none has one before it.
            while let first = self.first()
                && first.0 <= now
                && first.0 != u64::MAX
            {
                self.take(first);
            }
        }
    }

    /// When the first I/O ends of those that are complete.
    fn first_end(&self) -> u64 {
        self.ends.front().map_or(u64::MAX, |c| c.at.0)
    }

    fn end_part(&mut self, part: Completion) {
        // A part is numbered by its place.
        let place = part.id as u32;
        let whole = &mut self.wholes[place as usize];
        whole.parts -= 1;
        if whole.parts == 0 {
            let end = Completion {
                id: whole.id,
                at: part.at,
            };
            self.free.push(place);
            // Behind those that end no later: almost always at the end.
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
        self.look(now.0);
        let place = self.free.pop().expect("as many as the queue is deep");
        self.wholes[place as usize] = Whole {
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
                self.pass(passed, member, part);
            }
        } else {
            let (first, count) = (io.addr >> self.chunk_bits, self.members.len() as u64);
            let end = io.addr + u64::from(io.len);
            let chunks = ((end - 1) >> self.chunk_bits) - first + 1;
            for member in (first..first + chunks.min(count)).map(|chunk| chunk % count) {
                let (from, to) = (self.until(member, io.addr), self.until(member, end));
                let part = ModelIo {
                    addr: from,
                    // No longer than the I/O itself.
                    len: (to - from) as u32,
                    ..part
                };
                self.pass(passed, member as usize, part);
            }
        }
        self.look(now.0);
    }

    fn next_completion(&self) -> Option<Nanos> {
        let known = self.first_end();
        let next = match self.looks_ahead {
            true => known,
            false => known.min(self.first().0),
        };
        (next != u64::MAX).then_some(Nanos(next))
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        if !self.looks_ahead {
            // No further than to the first end: nothing was settled too soon for who goes on there.
            while let at = self.first().0
                && at <= now.0.min(self.first_end())
                && at != u64::MAX
            {
                self.look(at);
            }
            return self.ends.pop_front_if(|c| c.at <= now);
        }
        self.look_ahead(now.0);
        let ended = self.ends.pop_front_if(|c| c.at <= now);
        if ended.is_some() {
            self.look_ahead(now.0);
        }
        ended
    }

    fn in_flight(&self) -> u32 {
        // Every I/O has a place until it is complete.
        self.spec.queue_depth - self.free.len() as u32 + self.ends.len() as u32
    }
}
