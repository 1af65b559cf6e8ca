//! The device that an engine schedules: its fixed properties and its statistics.
//!
//! A unit is what a dispatcher orders: one or several adjacent requests of a VM, merged. It goes to
//! the device as one I/O, or as several parts if it is longer than an I/O may be.

use crate::time::Nanos;

/// Fixed properties of a device, as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Maximum number of I/Os in flight (queue depth), 1 to [`DeviceSpec::MAX_DEPTH`].
    pub depth: u32,
    /// Physical block size in bytes, a power of two from 512 to 1 MiB; requests are split at its
    /// multiples.
    pub physical_block: u32,
    /// Largest I/O that carries data, in bytes; a positive multiple of `physical_block`.
    pub max_io: u32,
    /// True if the backing cannot deallocate, so that `WriteZeroes` costs and is split like a
    /// write.
    pub zeroes_are_writes: bool,
    /// Mean extra time of an I/O that does not continue the last one: a hard disk's seek and half a
    /// rotation. Zero if there is none, as on flash, or if it is not known.
    pub positioning: Nanos,
    /// Bandwidth of one sequential stream in bytes per second; 0: not known.
    pub bytes_per_s: u64,
}

impl DeviceSpec {
    /// Largest queue depth.
    pub const MAX_DEPTH: u32 = 4096;
    /// Bandwidth assumed of a disk that seeks if it is not known, in bytes per second: that of a
    /// 7200 rpm disk half-way between its outer and inner tracks.
    const HDD_BYTES_PER_S: u64 = 150_000_000;
    /// Multiple of the queue depth up to which I/Os of hung disks do not count as in flight.
    const UNCOUNTED_DEPTHS: u32 = 2;
    /// Largest value of [`DeviceSpec::io_slots`].
    pub const MAX_IO_SLOTS: u32 = Self::MAX_DEPTH * (1 + Self::UNCOUNTED_DEPTHS);

    /// Maximum number of I/Os of hung disks that do not count against the queue depth.
    pub const fn uncounted_max(&self) -> u32 {
        self.depth * Self::UNCOUNTED_DEPTHS
    }

    /// Returns the bytes that the device moves sequentially in the time of a positioning; 0 if the
    /// latter is not known. A disk of unknown bandwidth counts as a common hard disk.
    pub fn positioning_bytes(&self) -> u64 {
        let bytes_per_s = match self.bytes_per_s {
            0 => Self::HDD_BYTES_PER_S,
            known => known,
        };
        let moved = u128::from(self.positioning.0) * u128::from(bytes_per_s);
        u64::try_from(moved / u128::from(Nanos::SECOND.0)).unwrap_or(u64::MAX)
    }

    /// Number of I/O slots: every [`IoId::index`](crate::request::IoId::index) is below it.
    ///
    /// Only the first `depth` of them are used without `DeviceMut::enable_hung_disk_handling`.
    pub const fn io_slots(&self) -> u32 {
        self.depth + self.uncounted_max()
    }
}

/// Statistics of a device at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceStats {
    /// Fixed properties of the device.
    pub spec: DeviceSpec,
    /// True if the device seeks for I/Os that are not sequential: by learnt costs if they are
    /// conclusive, else by [`DeviceSpec::positioning`].
    pub seeks: bool,
    /// I/Os in flight, without those of hung disks (`Device::uncounted`).
    pub in_flight: u32,
    /// Guest requests inside the engine, waiting or in flight.
    pub requests: u32,
    /// Waiting units of all VMs and background processes.
    pub queued: u32,
    /// Waiting units that a regulator has not admitted yet; part of `queued`.
    pub pending: u32,
    /// I/Os started since the engine was made.
    pub started: u64,
    /// I/Os ended since the engine was made, failed ones included.
    pub ended: u64,
    /// I/Os failed since the engine was made.
    pub errors: u64,
    /// Time at which the last I/O ended.
    pub last_end: Nanos,
    /// Total time without an I/O in flight, up to the start of the last I/O.
    pub idle: Nanos,
    /// End address in bytes of the last I/O started: the position of a disk's head.
    pub last_addr: u64,
    /// Total time in which the dispatcher left the device idle on purpose, in anticipation of a
    /// request.
    pub deliberate: Nanos,
    /// Part of these figures that belongs to background processes instead of VMs.
    pub background: BackgroundStats,
    /// Part of VMs' I/Os that did not carry the last bytes of their unit.
    pub parts: PartStats,
    /// Use of the dispatcher's bound on device time, at the time at which the controller's timer
    /// last ran; `None`: the dispatcher has no bound on this device.
    pub time_use: Option<DeviceTimeUse>,
}

impl DeviceStats {
    /// Creates the statistics of a device that has done no I/O.
    pub fn new(spec: DeviceSpec) -> DeviceStats {
        DeviceStats {
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
            background: BackgroundStats::default(),
            parts: PartStats::default(),
            time_use: None,
        }
    }

    /// Number of VMs' units that are admitted (or need no admission) and have not ended.
    ///
    /// A unit that is split counts once until its last I/O has ended. Background processes do not
    /// count, because credits do not apply to them.
    pub fn inside(&self) -> u32 {
        let background = self.background.in_flight + self.background.queued;
        // An I/O whose unit has more to come would count twice: in flight, and as the unit that
        // waits.
        self.in_flight - self.parts.in_flight + self.queued - self.pending - background
    }

    /// Returns the total time without an I/O in flight, up to `now`.
    pub fn idle_time(&self, now: Nanos) -> Nanos {
        match self.in_flight {
            0 => self.idle + now.since(self.last_end),
            _ => self.idle,
        }
    }

    /// Number of VMs' units that have ended; a unit that is split counts at its last I/O.
    pub fn ended_of_vms(&self) -> u64 {
        self.ended - self.background.ended - self.parts.ended
    }
}

/// Background processes' part of a device's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackgroundStats {
    /// I/Os in flight.
    pub in_flight: u32,
    /// Waiting units; they need no admission, so none is pending.
    pub queued: u32,
    /// I/Os ended since the engine was made.
    pub ended: u64,
}

/// I/Os of VMs that carried a part of a unit other than its last: the rest of the unit was still
/// waiting when they started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartStats {
    /// I/Os in flight.
    pub in_flight: u32,
    /// I/Os ended since the engine was made.
    pub ended: u64,
}

/// Use of a bound on device time, on a device that other hosts share. Sums count from the time at
/// which the policy took effect.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceTimeUse {
    /// Picks at which something waited that the bound alone held back.
    pub held_picks: u64,
    /// I/Os of VMs that were charged.
    pub ios: u64,
    /// Device time of these I/Os in picoseconds; begins at 0 again after 2^64.
    pub charged_ps: u64,
    /// Device time in picoseconds that is available now and not used.
    pub available_ps: u64,
    /// True if a VM waits now that its limits let go.
    pub waits: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positioning_is_worth_what_the_disk_moves_meanwhile() {
        let spec = DeviceSpec {
            depth: 32,
            physical_block: 4096,
            max_io: 1 << 20,
            zeroes_are_writes: false,
            positioning: Nanos::from_millis(10),
            bytes_per_s: 200_000_000,
        };
        assert_eq!(spec.positioning_bytes(), 2_000_000);
        let unknown = DeviceSpec {
            bytes_per_s: 0,
            ..spec
        };
        assert_eq!(unknown.positioning_bytes(), 1_500_000, "a common hard disk");
        let flash = DeviceSpec {
            positioning: Nanos::ZERO,
            ..spec
        };
        assert_eq!(flash.positioning_bytes(), 0);
    }
}
