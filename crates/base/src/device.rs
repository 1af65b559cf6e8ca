//! The device that an engine schedules: its bounds, and how it stands.

use crate::time::Nanos;

/// The device as the engine was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// I/Os in flight at most, 1 to [`DeviceSpec::MAX_DEPTH`].
    pub depth: u32,
    /// Splits fall on multiples of this many bytes; a power of two, 512 to 1 MiB.
    pub physical_block: u32,
    /// Largest I/O that carries data, in bytes; a positive multiple of `physical_block`.
    pub max_io: u32,
    /// The backing can only write zeroes out: then `WriteZeroes` costs and splits like a write.
    pub zeroes_are_writes: bool,
    /// Mean extra time of an I/O that does not continue the last one: a disk's seek and half a
    /// turn. Zero: none, as on flash, or not known.
    pub positioning: Nanos,
    /// Bytes a second that one sequential stream can have; 0: not known.
    pub bytes_per_s: u64,
}

impl DeviceSpec {
    /// The largest depth there is.
    pub const MAX_DEPTH: u32 = 4096;
    /// Multiple of the depth up to which I/Os of disks that hang are left out of the depth count.
    const UNCOUNTED_DEPTHS: u32 = 2;
    /// The largest number of places for I/Os: see [`DeviceSpec::io_slots`].
    pub const MAX_IO_SLOTS: u32 = Self::MAX_DEPTH * (1 + Self::UNCOUNTED_DEPTHS);

    /// I/Os of disks that hang that are left out of the depth count at most.
    pub const fn uncounted_most(&self) -> u32 {
        self.depth * Self::UNCOUNTED_DEPTHS
    }

    /// Places for I/Os: every [`IoId::index`](crate::request::IoId::index) is below it. Without
    /// `DeviceMut::set_hung_disks_aside` only the first `depth` of
    /// them are used.
    pub const fn io_slots(&self) -> u32 {
        self.depth + self.uncounted_most()
    }
}

/// The device as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// What the engine was told of it.
    pub spec: DeviceSpec,
    /// Whether it positions for each I/O elsewhere: by learnt costs where they tell, else by what
    /// the engine was told of it.
    pub seeks: bool,
    /// I/Os with the device now, without those of disks that hang
    /// (`Device::uncounted`).
    pub in_flight: u32,
    /// Guest requests inside the engine, waiting or in flight.
    pub requests: u32,
    /// Units waiting, over all VMs.
    pub queued: u32,
    /// Those of them that a regulator has not let in yet.
    pub pending: u32,
    /// I/Os handed to the device since the start.
    pub started: u64,
    /// I/Os that ended.
    pub ended: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// End of the last I/O.
    pub last_end: Nanos,
    /// Time without anything in flight, up to the I/O that started last.
    pub idle: Nanos,
    /// One past the last byte that was dispatched: where a disk's head would stand.
    pub last_addr: u64,
    /// Time in which the dispatcher left room unused on purpose.
    pub deliberate: Nanos,
    /// What of all this is background tenants', not VMs'.
    pub background: BackgroundFacts,
    /// What of VMs' I/Os is the beginning or middle of a unit of which more is to come.
    pub parts: PartFacts,
}

impl DeviceFacts {
    /// Creates the figures of a device that has not done anything yet.
    pub fn new(spec: DeviceSpec) -> DeviceFacts {
        DeviceFacts {
            spec,
            seeks: spec.positioning > Nanos::ZERO,
            in_flight: 0,
            requests: 0,
            queued: 0,
            pending: 0,
            started: 0,
            ended: 0,
            errors: 0,
            last_end: Nanos::ZERO,
            idle: Nanos::ZERO,
            last_addr: 0,
            deliberate: Nanos::ZERO,
            background: BackgroundFacts::default(),
            parts: PartFacts::default(),
        }
    }

    /// Units of VMs that a regulator has let in, or that none holds, and that have not ended. One
    /// that goes in parts is one until the last of them has ended. The background's, which no
    /// credits hold, do not count.
    pub fn inside(&self) -> u32 {
        let background = self.background.in_flight + self.background.queued;
        self.in_flight - self.parts.in_flight + self.queued - self.pending - background
    }

    /// Time without anything in flight, up to `now`.
    pub fn idle_time(&self, now: Nanos) -> Nanos {
        match self.in_flight {
            0 => self.idle + now.since(self.last_end),
            _ => self.idle,
        }
    }

    /// Units of VMs that ended, since the start, counted likewise.
    pub fn ended_of_vms(&self) -> u64 {
        self.ended - self.background.ended - self.parts.ended
    }
}

/// Background tenants' part of what the device does and of what waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackgroundFacts {
    /// I/Os with the device now.
    pub in_flight: u32,
    /// Units waiting; none is ever pending.
    pub queued: u32,
    /// I/Os that ended, since the start.
    pub ended: u64,
}

/// I/Os of VMs that are a part of a unit, and not its last one: the unit waits still, or did when
/// they went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartFacts {
    /// With the device now.
    pub in_flight: u32,
    /// That ended, since the start.
    pub ended: u64,
}
