//! What passes through the engine: guest requests in, device I/Os out.

use crate::pace::FirstServed;
use crate::time::Nanos;
use core::fmt;

/// Declares a handle: a slot that is used again, and a generation that tells its users apart.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// Slot number, dense from zero.
            pub index: u32,
            /// Number of earlier users of the slot, modulo 2^32.
            pub generation: u32,
        }

        impl $name {
            /// The slot, dense from zero: an index for arrays kept beside the engine's own.
            pub const fn index(self) -> usize {
                self.index as usize
            }

            /// Both halves in one word, for kernels and wires that carry 64 opaque bits.
            pub const fn to_bits(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            /// The inverse of [`Self::to_bits`]. A made-up handle is harmless: the engine
            /// checks the generation of every handle it is given.
            pub const fn from_bits(bits: u64) -> Self {
                Self { index: bits as u32, generation: (bits >> 32) as u32 }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}.{})"), self.index, self.generation)
            }
        }
    };
}

handle! {
    /// A virtual machine known to the engine.
    VmId
}
handle! {
    /// A disk of a VM: a range of the device's addresses.
    DiskId
}
handle! {
    /// One connection to a disk. A VM may have many (multi-queue, multi-conn).
    ClientId
}
handle! {
    /// A guest request inside the engine.
    ReqId
}
handle! {
    /// An I/O that was handed to the device.
    IoId
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Read `len` bytes.
    Read,
    /// Write `len` bytes; with `fua`, durable before it is answered.
    Write,
    /// Make every write that was answered before this request durable.
    Flush,
    /// The range is no longer needed; what it reads as afterwards is undefined.
    Discard,
    /// The range reads as zeroes afterwards.
    WriteZeroes,
}

impl Op {
    /// Every operation, in the order of their statistics.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// Which of its VM's two lanes a request waits in.
    pub const fn lane(self) -> Lane {
        match self {
            Op::Read => Lane::Read,
            _ => Lane::Write,
        }
    }

    /// True where adjacent requests may become one device I/O.
    pub const fn merges(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// A VM's requests wait in two lanes, because limits may hold reads and writes apart: a read
/// over its limit must not hold the writes behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Reads.
    Read,
    /// Everything that changes the disk.
    Write,
}

impl Lane {
    /// Both lanes.
    pub const ALL: [Lane; 2] = [Lane::Read, Lane::Write];

    /// 0 for reads, 1 for writes.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A guest request as its frontend hands it over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// First byte, counted from the start of the client's disk. Zero for a flush.
    pub offset: u64,
    /// Length in bytes. Zero for a flush, positive for everything else.
    pub len: u32,
    /// Force unit access: durable before it is answered. Ignored for reads and flushes.
    pub fua: bool,
    /// WriteZeroes: the range must stay allocated (NBD's `NO_HOLE`).
    pub keep_allocated: bool,
    /// The frontend's own word for this request; comes back with its [`Done`].
    pub tag: u64,
}

impl Request {
    /// A read of `len` bytes at `offset`.
    pub const fn read(offset: u64, len: u32, tag: u64) -> Request {
        Request {
            op: Op::Read,
            offset,
            len,
            fua: false,
            keep_allocated: false,
            tag,
        }
    }

    /// A write of `len` bytes at `offset`.
    pub const fn write(offset: u64, len: u32, tag: u64) -> Request {
        Request {
            op: Op::Write,
            offset,
            len,
            fua: false,
            keep_allocated: false,
            tag,
        }
    }

    /// A flush.
    pub const fn flush(tag: u64) -> Request {
        Request {
            op: Op::Flush,
            offset: 0,
            len: 0,
            fua: false,
            keep_allocated: false,
            tag,
        }
    }
}

/// What the engine wants the device to do now. Its bytes are described by
/// `Engine::io_segments`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceIo {
    /// To be returned with `Engine::handle_completion`.
    pub id: IoId,
    /// Whose it is.
    pub vm: VmId,
    /// The disk it falls on.
    pub disk: DiskId,
    /// What to do.
    pub op: Op,
    /// First byte on the device: the disk's base plus the offset within the disk.
    pub addr: u64,
    /// First byte within the disk.
    pub offset: u64,
    /// Bytes: at most the device's `max_io`; zero for a flush. At most [`u32::MAX`].
    pub len: u32,
    /// Durable before it completes.
    pub fua: bool,
    /// WriteZeroes: the range must stay allocated.
    pub keep_allocated: bool,
    /// Guest requests that are served here for the first time: what limits count.
    pub first_ops: u32,
    /// Bytes of those guest requests, whole (also what later parts will carry).
    pub first_bytes: u64,
    /// Bytes of the guest request that this is a part of, whole. As many as `len` where it is no
    /// part, or has company, and where the request was charged before it came apart.
    pub part_of: u32,
    /// When the first of its guest requests arrived, also of one that was begun before.
    pub arrived: Nanos,
}

impl DeviceIo {
    /// The guest requests served for the first time, as limits count them.
    pub fn first_served(&self) -> FirstServed {
        FirstServed {
            ops: self.first_ops,
            bytes: self.first_bytes,
        }
    }
}

/// One piece of a device I/O's memory: a range of one guest request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The guest request.
    pub req: ReqId,
    /// Its frontend's tag.
    pub tag: u64,
    /// The client it came from.
    pub client: ClientId,
    /// First byte within the guest request's own buffer.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// How a request or a device I/O ended, when it did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum IoError {
    /// The device could not do it (EIO).
    #[error("input/output error")]
    Io,
    /// The backing store is full (ENOSPC).
    #[error("no space left on the backing store")]
    NoSpace,
    /// The disk is read-only (EPERM).
    #[error("the disk is read-only")]
    ReadOnly,
    /// The backing store cannot do this operation (ENOTSUP).
    #[error("operation not supported by the backing store")]
    Unsupported,
    /// Its client went away, or its VM was removed, before it started.
    #[error("cancelled before it started")]
    Cancelled,
    /// Its disk has become shorter than it reaches.
    #[error("beyond the end of the disk, which has become shorter")]
    BeyondEnd,
}

/// What became of a device I/O or a request.
pub type Outcome = Result<(), IoError>;

/// A finished guest request, to be answered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The request's handle, no longer valid.
    pub req: ReqId,
    /// The frontend's tag.
    pub tag: u64,
    /// Whose client it came from. The client may have vanished meanwhile.
    pub client: ClientId,
    /// Whose it was.
    pub vm: VmId,
    /// What it did.
    pub op: Op,
    /// How it ended.
    pub outcome: Outcome,
    /// Where its time went.
    pub account: Account,
    /// Bytes of payload memory that the request holds: to be given back with
    /// `AdmissionMut::return_payload` once its reply was sent. 0: it holds
    /// none, as every one where payload memory is not bounded.
    pub payload: u32,
}

/// Where a request's time went. The parts add up to the time between its arrival and the end
/// of its last device I/O.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Held back by its VM's own limit or credits.
    pub regulated: Nanos,
    /// Ready, while the device served other requests: its VM's own or its neighbours'.
    pub queued: Nanos,
    /// Waiting as a passenger of the request it had been merged into.
    pub merged_wait: Nanos,
    /// The device had room and the dispatcher left it unused on purpose.
    pub deliberate: Nanos,
    /// With the device.
    pub device: Nanos,
}

impl Account {
    /// From arrival to end.
    pub fn total(&self) -> Nanos {
        self.regulated + self.queued + self.merged_wait + self.deliberate + self.device
    }

    /// The parts in nanoseconds, the device's last.
    #[inline]
    pub fn parts(&self) -> [u64; 5] {
        [
            self.regulated.0,
            self.queued.0,
            self.merged_wait.0,
            self.deliberate.0,
            self.device.0,
        ]
    }

    /// Adds parts in the order of [`Account::parts`].
    pub fn add(&mut self, parts: [u64; 5]) {
        let [regulated, queued, merged_wait, deliberate, device] = parts.map(Nanos);
        self.regulated += regulated;
        self.queued += queued;
        self.merged_wait += merged_wait;
        self.deliberate += deliberate;
        self.device += device;
    }

    /// Everything before and between device I/Os.
    pub fn waited(&self) -> Nanos {
        self.regulated + self.queued + self.merged_wait + self.deliberate
    }
}
