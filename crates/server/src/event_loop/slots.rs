//! Requests inside the loop: what is needed to answer each of them.

use tidegate_core::request::{Lane, Op};
use tidegate_core::time::Nanos;

use crate::buffer::Buffer;
use crate::fault::Verdict;
use crate::frontend::Failure;

/// A request between its parsing and the end of its reply.
#[derive(Debug)]
pub(super) struct Slot {
    /// Told apart from the slot's earlier and later users by it.
    generation: u32,
    /// Whose it is: a client's place in the loop, and which of its users.
    pub(super) client: ClientRef,
    /// The VM that its memory is counted for, and the disk it is about.
    pub(super) vm: u32,
    pub(super) disk: u32,
    /// The frontend's name for the request; for NBD, the cookie.
    pub(super) token: u64,
    pub(super) kind: Kind,
    /// Loop time at which the request was parsed, or from which it waited to be admitted.
    pub(super) since: Nanos,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) fua: bool,
    /// Its payload.
    pub(super) buffer: Option<Buffer>,
    /// True while the slot holds a claim on an engine slot, before the request is handed in.
    pub(super) claimed: bool,
    pub(super) answer: Answer,
    /// What its disk's fault rules make of it, once they were asked.
    pub(super) fault: Option<Verdict>,
}

/// What kind of reply it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes {
        keep_allocated: bool,
    },
    /// A read whose data nobody gets.
    Cache,
    /// `buffer` is the whole reply, `len` bytes of it.
    BlockStatus,
}

impl Kind {
    /// Engine operation of the request; `None` if the loop answers it without the engine.
    pub(super) fn op(self) -> Option<Op> {
        match self {
            Kind::Read | Kind::Cache => Some(Op::Read),
            Kind::Write => Some(Op::Write),
            Kind::Flush => Some(Op::Flush),
            Kind::Discard => Some(Op::Discard),
            Kind::WriteZeroes { .. } => Some(Op::WriteZeroes),
            Kind::BlockStatus => None,
        }
    }

    /// Direction in which the request counts in the VM's statistics.
    pub(super) fn lane(self) -> Lane {
        match self {
            Kind::Read | Kind::Cache | Kind::BlockStatus => Lane::Read,
            Kind::Write | Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => Lane::Write,
        }
    }

    /// What is said of one that reaches beyond the end of its disk.
    pub(super) fn beyond_end(self) -> Answer {
        let error = match self {
            Kind::Write | Kind::WriteZeroes { .. } => Failure::NoSpace,
            _ => Failure::Invalid,
        };
        Answer::Error(error, "outside of the disk")
    }
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Ok,
    Error(Failure, &'static str),
}

/// A client's place and which of its users is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientRef {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// All slots; grows to the most that were ever needed at once.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    /// Takes a slot; its number.
    pub(super) fn insert(
        &mut self,
        client: ClientRef,
        (vm, disk): (u32, u32),
        kind: Kind,
        token: u64,
        since: Nanos,
    ) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            self.free.reserve(self.slots.len());
            self.slots.len() as u32 - 1
        });
        self.slots[index as usize] = Some(Slot {
            generation: self.generations[index as usize],
            client,
            vm,
            disk,
            token,
            kind,
            since,
            offset: 0,
            len: 0,
            fua: false,
            buffer: None,
            claimed: false,
            answer: Answer::Ok,
            fault: None,
        });
        index
    }

    /// Gives a slot back, with what it held.
    pub(super) fn remove(&mut self, index: u32) -> Slot {
        let slot = self.slots[index as usize]
            .take()
            .expect("the slot is in use");
        self.generations[index as usize] = slot.generation.wrapping_add(1);
        self.free.push(index);
        slot
    }

    pub(super) fn get(&self, index: u32) -> &Slot {
        self.slots[index as usize]
            .as_ref()
            .expect("the slot is in use")
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Slot {
        self.slots[index as usize]
            .as_mut()
            .expect("the slot is in use")
    }

    /// The word that stands for a slot outside of the loop.
    pub(super) fn tag(&self, index: u32) -> u64 {
        u64::from(self.generations[index as usize]) << 32 | u64::from(index)
    }

    /// The slot that a word stands for. Panics when it stands for an earlier user of the slot:
    /// a request would be answered twice.
    pub(super) fn by_tag(&self, tag: u64) -> u32 {
        let index = tag as u32;
        assert_eq!(
            self.generations[index as usize],
            (tag >> 32) as u32,
            "answered twice"
        );
        index
    }

    /// Whether any in use is such a one.
    pub(super) fn any_of(&self, such: impl Fn(&Slot) -> bool) -> bool {
        self.slots.iter().flatten().any(such)
    }

    /// Slots in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
