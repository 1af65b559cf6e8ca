//! What a driver sees of a device model.

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// What a device is, as far as a driver has to know before it submits anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The name of its catalogue entry.
    pub name: String,
    /// Bytes; a multiple of `physical_block`.
    pub capacity: u64,
    /// Bytes: addresses and lengths are multiples of it. A power of two.
    pub logical_block: u32,
    /// Bytes: what the medium reads and writes at least. A multiple of `logical_block`.
    pub physical_block: u32,
    /// I/Os the device accepts before one of them completes and was popped. At least one.
    pub queue_depth: u32,
    /// Bytes: the longest read, write or write-zeroes. A multiple of `logical_block`.
    pub max_io: u32,
    /// True where the distance between addresses costs time.
    pub rotational: bool,
    /// What a read elsewhere takes longer than one that continues the last: the average seek and
    /// half a turn. Zero where nothing turns.
    pub positioning: Nanos,
    /// Bytes a second that a sequential stream has everywhere: a disk's innermost zone.
    pub bytes_per_s: u64,
    /// Bytes a second that one has at most, where it goes fastest: a disk's outermost zone. A write
    /// cache takes what fits into it faster.
    pub bytes_per_s_max: u64,
}

impl Spec {
    /// Asserts that `io` is one the device takes: whole logical blocks within the capacity and,
    /// but for a discard, within `max_io`. Models do so at submission.
    ///
    /// # Panics
    /// When it is not: the driver has ignored the specification.
    pub fn assert_valid(&self, io: &ModelIo) {
        if io.op == Op::Flush {
            return;
        }
        let (len, capacity) = (u64::from(io.len), self.capacity);
        let block = u64::from(self.logical_block);
        assert!(len > 0, "an empty {:?}", io.op);
        assert!(
            io.addr.is_multiple_of(block) && len.is_multiple_of(block),
            "{len} bytes at {} are not whole blocks of {block}",
            io.addr
        );
        assert!(
            io.addr <= capacity && len <= capacity - io.addr,
            "{len} bytes at {} exceed the capacity of {capacity}",
            io.addr
        );
        let most = self.max_io;
        assert!(
            io.op == Op::Discard || io.len <= most,
            "{len} bytes exceed {most}"
        );
    }
}

/// One I/O as a model sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelIo {
    /// The caller's handle, returned with the [`Completion`]. A model never looks into it.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// First byte on the device. Zero for a flush.
    pub addr: u64,
    /// Bytes. Zero for a flush, positive for everything else.
    pub len: u32,
    /// Force unit access: durable when it completes.
    pub fua: bool,
}

impl ModelIo {
    /// A read of `len` bytes at byte `addr`.
    pub const fn read(id: u64, addr: u64, len: u32) -> ModelIo {
        ModelIo {
            id,
            op: Op::Read,
            addr,
            len,
            fua: false,
        }
    }

    /// A write of `len` bytes at byte `addr`.
    pub const fn write(id: u64, addr: u64, len: u32) -> ModelIo {
        ModelIo {
            id,
            op: Op::Write,
            addr,
            len,
            fua: false,
        }
    }

    /// A flush.
    pub const fn flush(id: u64) -> ModelIo {
        ModelIo {
            id,
            op: Op::Flush,
            addr: 0,
            len: 0,
            fua: false,
        }
    }
}

/// An I/O has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The handle it was submitted with.
    pub id: u64,
    /// When it ended in model time: at most the time it was popped at.
    pub at: Nanos,
}

/// A device that takes model time for each I/O.
///
/// ```text
///            submit(now, io)                next_completion() <= now
///   driver ------------------> in flight ----------------------------> pop_completed(now)
///            asserts room                   in order of their ends
/// ```
///
/// [`Model::next_completion`] is when to look, not what will be seen. What is submitted later may
/// end sooner than all else, and where commands share something put the others' ends off. So a
/// driver asks again after each submission and each look, and a look may find nothing.
///
/// A driver that looks late loses nothing but its own time: work that was submitted proceeds in
/// model time, so [`Completion::at`] is when the device was done, not when somebody looked. The
/// place of an I/O in the queue is taken until it is popped. I/Os may end in any order; a flush
/// ends after everything that was submitted before it.
///
/// Models allocate while they are built and never afterwards.
///
/// # Panics
///
/// `submit` asserts what a driver has to know from the [`Spec`]: room in the queue, addresses
/// within the capacity, lengths in whole logical blocks and within `max_io`, time that never
/// runs backwards.
pub trait Model: Send {
    /// What the device is.
    fn spec(&self) -> &Spec;

    /// Hands an I/O over at `now`.
    fn submit(&mut self, now: Nanos, io: ModelIo);

    /// The time to call [`Model::pop_completed`] at: no I/O ends before it, unless one is submitted
    /// that does. `None` just while nothing is in flight.
    ///
    /// Something ends then, but on a flash disk whose interface is interleaved (and an array of
    /// such): there it may be a time at which commands only begin or cease to share, and there is
    /// nothing to pop. Once that was tried, this is later, so a driver that goes from one such
    /// time to the next gets on.
    fn next_completion(&self) -> Option<Nanos>;

    /// The next I/O that had ended by `now`, in order of their ends. Submissions afterwards are at
    /// its end or later; where there was none, at `now` or later.
    fn pop_completed(&mut self, now: Nanos) -> Option<Completion>;

    /// I/Os submitted and not yet popped.
    fn in_flight(&self) -> u32;

    /// True while [`Model::submit`] has room for one more.
    fn has_room(&self) -> bool {
        self.in_flight() < self.spec().queue_depth
    }
}

/// What every model asserts of a driver that submits: time goes on from `last`, the submission
/// before, there is room, and the device takes such an I/O.
pub(crate) fn assert_submittable(model: &impl Model, last: Nanos, now: Nanos, io: &ModelIo) {
    assert!(now >= last, "time runs backwards: {now} after {last}");
    assert!(now.0 < 1 << 62, "{now} is no time: a century is enough");
    let in_flight = model.in_flight();
    assert!(model.has_room(), "the queue of {in_flight} is full");
    model.spec().assert_valid(io);
}
