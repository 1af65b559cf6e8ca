//! Interface of device models to their drivers.

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Properties of a device that a driver has to know before it submits I/Os.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Name of the device's catalogue entry.
    pub name: String,
    /// Capacity in bytes; a multiple of `physical_block`.
    pub capacity: u64,
    /// Logical block size in bytes, a power of two; addresses and lengths are multiples of it.
    pub logical_block: u32,
    /// Physical block size in bytes, the smallest unit that the medium reads or writes; a multiple
    /// of `logical_block`.
    pub physical_block: u32,
    /// Maximum number of I/Os that were submitted and not popped yet, at least 1.
    pub queue_depth: u32,
    /// Longest read, write or write-zeroes in bytes; a multiple of `logical_block`.
    pub max_io: u32,
    /// True if the distance between addresses costs time.
    pub rotational: bool,
    /// Extra time of a random read compared with a sequential one: average seek plus half a
    /// revolution. Zero for a device without moving parts.
    pub positioning: Nanos,
    /// Bandwidth in bytes per second that a sequential stream has at every address: that of a hard
    /// disk's innermost zone.
    pub bytes_per_s: u64,
    /// Bandwidth in bytes per second of a sequential stream where it is fastest: in a hard disk's
    /// outermost zone. A write cache may accept writes faster until it is full.
    pub bytes_per_s_max: u64,
}

impl Spec {
    /// Asserts that the device accepts `io`: whole logical blocks within the capacity and, except
    /// for a discard, at most `max_io` long. Models call this at submission.
    ///
    /// # Panics
    /// If the device does not accept it, which is a mistake of the driver.
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

/// I/O as a model sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelIo {
    /// Handle of the caller's choice, returned with the [`Completion`].
    pub id: u64,
    /// Operation.
    pub op: Op,
    /// First byte on the device. Zero for a flush.
    pub addr: u64,
    /// Length in bytes. Zero for a flush, positive for everything else.
    pub len: u32,
    /// Force unit access: durable before it completes.
    pub fua: bool,
}

impl ModelIo {
    /// Creates a read of `len` bytes at byte `addr`.
    pub const fn read(id: u64, addr: u64, len: u32) -> ModelIo {
        ModelIo {
            id,
            op: Op::Read,
            addr,
            len,
            fua: false,
        }
    }

    /// Creates a write of `len` bytes at byte `addr`.
    pub const fn write(id: u64, addr: u64, len: u32) -> ModelIo {
        ModelIo {
            id,
            op: Op::Write,
            addr,
            len,
            fua: false,
        }
    }

    /// Creates a flush.
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

/// End of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Handle that the I/O was submitted with.
    pub id: u64,
    /// Time at which the I/O ended; not later than the time at which it was popped.
    pub at: Nanos,
}

/// Device that takes model time for each I/O.
///
/// ```text
///            submit(now, io)                next_completion() <= now
///   driver ------------------> in flight ----------------------------> pop_completed(now)
///            asserts room                   in order of their ends
/// ```
///
/// [`Model::next_completion`] is the next time to poll. An I/O that is submitted later may end
/// sooner, and where commands share the interface it delays the others. So a driver asks again
/// after each submission and each poll, and a poll may find nothing.
///
/// A driver that polls late delays only itself: submitted work proceeds in model time, so
/// [`Completion::at`] is the time at which the device was done. An I/O occupies its place in the
/// queue until it is popped. I/Os may end in any order; a flush ends after everything that was
/// submitted before it.
///
/// Models allocate only while they are built.
///
/// # Panics
///
/// `submit` asserts what a driver knows from the [`Spec`]: room in the queue, addresses within the
/// capacity, lengths in whole logical blocks and at most `max_io`, and time that does not run
/// backwards.
pub trait Model: Send {
    /// Returns the properties of the device.
    fn spec(&self) -> &Spec;

    /// Submits an I/O at `now`.
    fn submit(&mut self, now: Nanos, io: ModelIo);

    /// Returns the next time to call [`Model::pop_completed`]: no I/O ends before it, unless one is
    /// submitted later that does. `None` exactly while nothing is in flight.
    ///
    /// An I/O ends at that time, except on a flash disk with an interleaved interface (and an array
    /// of them), where commands may only begin or cease to share the interface then, and behind an
    /// array controller, which may only take a step: there is nothing to pop. After such a poll the
    /// time is a later one, so a driver that goes from one to the next makes progress.
    fn next_completion(&self) -> Option<Nanos>;

    /// Returns the next I/O that has ended by `now`, in order of ends. Later submissions must be at
    /// its end or later; if there was none, at `now` or later.
    fn pop_completed(&mut self, now: Nanos) -> Option<Completion>;

    /// Number of I/Os submitted and not popped yet.
    fn in_flight(&self) -> u32;

    /// Returns true while [`Model::submit`] accepts one more I/O.
    fn has_room(&self) -> bool {
        self.in_flight() < self.spec().queue_depth
    }
}

/// Asserts the preconditions of [`Model::submit`] for every model; `last` is the time of the
/// submission before.
pub(crate) fn assert_submittable(model: &impl Model, last: Nanos, now: Nanos, io: &ModelIo) {
    assert!(now >= last, "time runs backwards: {now} after {last}");
    // 2^62 ns are 146 years; below, models add times without a check for overflow.
    assert!(now.0 < 1 << 62, "{now} is no time: a century is enough");
    let in_flight = model.in_flight();
    assert!(model.has_room(), "the queue of {in_flight} is full");
    model.spec().assert_valid(io);
}
