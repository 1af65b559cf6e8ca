//! Guest requests that enter the engine and device I/Os that leave it, with their handles.

use crate::pace::FirstServed;
use crate::time::Nanos;
use core::fmt;

/// Declares a handle: a slot number, and a generation that tells the slot's users apart.
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
            /// Returns the slot number: an index for arrays kept beside the engine's own.
            pub const fn index(self) -> usize {
                self.index as usize
            }

            /// Packs slot and generation into one word, for interfaces that carry 64 opaque bits.
            pub const fn to_bits(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            /// Restores a handle from [`Self::to_bits`]. A forged handle is harmless: the engine
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
    /// Handle of a virtual machine.
    VmId
}
handle! {
    /// Handle of a disk of a VM: a range of the device's addresses.
    DiskId
}
handle! {
    /// Handle of a connection to a disk. A VM may have many (multi-queue, multi-conn).
    ClientId
}
handle! {
    /// Handle of a guest request inside the engine.
    ReqId
}
handle! {
    /// Handle of a device I/O in flight.
    IoId
}

/// Operation of a request or of a device I/O.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Read [`Request::len`] bytes.
    Read,
    /// Write [`Request::len`] bytes; with [`Request::fua`], durable before the reply.
    Write,
    /// Make every write that was answered before this request arrived durable.
    Flush,
    /// Deallocate the range; its content is undefined afterwards.
    Discard,
    /// Make the range read as zeroes.
    WriteZeroes,
}

impl Op {
    /// All operations, in the order of their statistics.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// Returns the lane of its VM in which a request of this operation waits.
    pub const fn lane(self) -> Lane {
        match self {
            Op::Read => Lane::Read,
            _ => Lane::Write,
        }
    }

    /// Returns true if adjacent requests of this operation may be merged.
    pub const fn merges(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// Queue of a VM's requests. There is one for reads and one for writes, because limits apply to
/// both separately: a read over its limit must not hold back the writes behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Reads.
    Read,
    /// Everything that changes the disk: writes, flushes, discards and zeroes.
    Write,
}

impl Lane {
    /// All lanes, in the order of [`Lane::index`].
    pub const ALL: [Lane; 2] = [Lane::Read, Lane::Write];

    /// Returns 0 for reads, 1 for writes.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Guest request as its frontend hands it to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// First byte, counted from the start of the client's disk. Zero for a flush.
    pub offset: u64,
    /// Length in bytes. Zero for a flush, positive for everything else.
    pub len: u32,
    /// Force unit access: durable before the reply. Ignored for reads and flushes.
    pub fua: bool,
    /// WriteZeroes: the range must stay allocated (NBD's `NO_HOLE`).
    pub keep_allocated: bool,
    /// Value of the frontend's choice that identifies the request; returned in its [`Done`].
    pub tag: u64,
}

impl Request {
    /// Creates a read of `len` bytes at `offset`.
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

    /// Creates a write of `len` bytes at `offset`.
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

    /// Creates a flush.
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

/// I/O that the device is to do now. `Engine::io_segments` describes its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceIo {
    /// Handle to be returned with `Engine::handle_completion`.
    pub id: IoId,
    /// VM that issued the requests.
    pub vm: VmId,
    /// Disk that the I/O belongs to.
    pub disk: DiskId,
    /// Operation.
    pub op: Op,
    /// First byte on the device: the disk's base plus the offset within the disk.
    pub addr: u64,
    /// First byte within the disk.
    pub offset: u64,
    /// Length in bytes: at most the device's `max_io`; zero for a flush.
    pub len: u32,
    /// True if the data must be durable before the I/O completes.
    pub fua: bool,
    /// WriteZeroes: the range must stay allocated.
    pub keep_allocated: bool,
    /// Guest requests that this I/O is the first to serve; limits count these.
    pub first_ops: u32,
    /// Total length in bytes of those guest requests, including what later I/Os will carry.
    pub first_bytes: u64,
    /// Total length in bytes of the guest request of which this I/O carries a part. Equal to `len`
    /// if the I/O carries a whole request or several, or if the request was charged before it was
    /// split.
    pub whole_len: u32,
    /// Arrival time of the oldest of its guest requests, also of one that earlier I/Os have begun.
    pub arrived: Nanos,
}

impl DeviceIo {
    /// Returns the guest requests that this I/O is the first to serve, as limits count them.
    #[inline]
    pub fn first_served(&self) -> FirstServed {
        FirstServed {
            ops: self.first_ops,
            bytes: self.first_bytes,
        }
    }
}

/// Piece of a device I/O's memory: a range of one guest request's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Handle of the guest request.
    pub req: ReqId,
    /// Tag that the frontend gave to the request.
    pub tag: u64,
    /// Connection that sent the request.
    pub client: ClientId,
    /// First byte within the guest request's own buffer.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Failure of a request or of a device I/O.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum IoError {
    /// The device failed (EIO).
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
    /// The connection ended, or the VM was removed, before the request started.
    #[error("cancelled before it started")]
    Cancelled,
    /// The disk was resized and ends before the request does.
    #[error("beyond the end of the disk, which has become shorter")]
    BeyondEnd,
}

/// Result of a device I/O or of a request.
pub type Outcome = Result<(), IoError>;

/// Finished guest request that is to be answered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Handle of the request; no longer valid.
    pub req: ReqId,
    /// Tag that the frontend gave to the request.
    pub tag: u64,
    /// Connection that sent the request; it may have ended since.
    pub client: ClientId,
    /// VM that the request belonged to.
    pub vm: VmId,
    /// Operation.
    pub op: Op,
    /// Result of the request.
    pub outcome: Outcome,
    /// Times that the request spent in each stage.
    pub account: Account,
    /// Payload memory that the request holds, in bytes, to be given back with
    /// `AdmissionMut::return_payload` after the reply was sent. 0 if it holds none, as is always so
    /// where payload memory is not bounded.
    pub payload: u32,
}

/// Time of a request by stage. The stages add up to the time from its arrival to the end of its
/// last device I/O.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Time before the engine took it, because its VM had no request slot or payload memory left.
    pub admission: Nanos,
    /// Time in which its VM's own limit or burst credit held it back.
    pub regulated: Nanos,
    /// Time in which it was ready while the device served other requests, of its VM or of others.
    pub queued: Nanos,
    /// Time in which it waited as part of the request that it had been merged into.
    pub merged_wait: Nanos,
    /// Time in which the dispatcher left the device idle on purpose, in anticipation of another
    /// request. While the device has I/Os, requests that it could take as well are `queued`.
    pub deliberate: Nanos,
    /// Time with the device.
    pub device: Nanos,
}

impl Account {
    /// Returns the time from arrival to end.
    pub fn total(&self) -> Nanos {
        self.waited() + self.device
    }

    /// Returns the stages in nanoseconds, in the order of the fields.
    #[inline]
    pub fn to_nanos_array(&self) -> [u64; 6] {
        [
            self.admission.0,
            self.regulated.0,
            self.queued.0,
            self.merged_wait.0,
            self.deliberate.0,
            self.device.0,
        ]
    }

    /// Adds stages in nanoseconds, in the order of [`Account::to_nanos_array`].
    #[inline]
    pub fn add(&mut self, parts: [u64; 6]) {
        let [
            admission,
            regulated,
            queued,
            merged_wait,
            deliberate,
            device,
        ] = parts.map(Nanos);
        self.admission += admission;
        self.regulated += regulated;
        self.queued += queued;
        self.merged_wait += merged_wait;
        self.deliberate += deliberate;
        self.device += device;
    }

    /// Returns the time before and between device I/Os.
    pub fn waited(&self) -> Nanos {
        self.admission + self.regulated + self.queued + self.merged_wait + self.deliberate
    }
}
