//! Cost of an I/O to its VM, for the dispatchers that give VMs shares by weight.
//!
//! The parameter `cost` chooses the unit: bytes, requests, size classes, or the time that the
//! device takes for an I/O of its kind when it is saturated (`device-time`), which is vFair's cost
//! of an I/O (Lu et al., SoCC 2015, section 4.1): 1 / IOPS of the profile's curve for the I/O's
//! direction, access pattern and size.
//!
//! Costs are counted in points. Points are fine enough that virtual time, which is points divided
//! by weight, keeps an order among 10,000 VMs of weight 10,000: 256 to a byte, 2^20 to a request,
//! one to a picosecond.
//!
//! Decisions for `device-time`:
//! - An I/O is sequential when it begins where one of its VM's last 32 I/Os ended, in the order in
//!   which they went to the device. I/Os of other VMs in between do not matter: a VM that reads in
//!   sequence is charged for sequential reads, whatever the others do. The time lost to interleaved
//!   streams is so shared by all VMs in proportion (vFair's BOPS).
//! - With a profile of a device that does not seek, the parts of a request that goes in several
//!   I/Os are of the request's access pattern, that of its first part. Later parts begin where the
//!   one before ended, but random requests are no stream: charged as sequential, they cost less
//!   than the device's time. A disk that seeks positions for the first part alone, and costs that
//!   were learnt are those of the parts.
//! - What moves no data (flushes, discards, zeroing by the device's tables) costs a random write of
//!   the smallest measured size, and is no part of a stream.
//! - A longer I/O is never cheaper than a shorter one: where the measured curve falls, the cost
//!   stays. An I/O costs 2^43 ps (8.8 s) at most.
//! - A new profile counts from the next I/O on; earlier charges stay. A profile that is removed
//!   stays in use. Before the first profile each I/O costs 2^20 ps; configuration and API do not
//!   allow that case.

use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::sequential::Ends;
use tidegate_capacity::profile::{Access, Curve, Direction, Profile};
use tidegate_core::part::{ParamInfo, Params};
use tidegate_core::roles::{Event, Interests, Knob};
use tidegate_core::starvation::Cost;
use tidegate_core::view::{Unit, View, moved};

/// Unit of an I/O's cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostBy {
    /// Bytes of the I/O, at least `cost_size`.
    Bytes,
    /// Guest requests that the I/O serves first.
    Requests,
    /// Bytes in multiples of `cost_size`, rounded up.
    SizeClasses,
    /// Time of the device by its profile, in picoseconds.
    DeviceTime,
}

impl CostBy {
    /// Words of the configuration, in the order of the variants.
    pub const WORDS: &[&str] = &["bytes", "requests", "size-classes", "device-time"];

    /// Returns the unit at a place among [`CostBy::WORDS`]; panics beyond the last.
    fn from_word(place: u64) -> CostBy {
        [
            CostBy::Bytes,
            CostBy::Requests,
            CostBy::SizeClasses,
            CostBy::DeviceTime,
        ][place as usize]
    }

    /// Returns the unit's place among [`CostBy::WORDS`], which is the parameter's value.
    pub(crate) const fn word(self) -> u64 {
        self as u64
    }

    /// Binary digits by which points are finer where weights are allocations (up to 2^32). Without
    /// them a service would move its VM by less than one unit of virtual time, instead of by
    /// hundreds.
    pub(super) const fn extra_bits(self) -> u32 {
        match self {
            CostBy::Bytes | CostBy::DeviceTime => 12,
            CostBy::Requests | CostBy::SizeClasses => 20,
        }
    }

    /// Returns the units of cost that two units of virtual time stand for at the largest
    /// allocation, rounded up.
    pub(super) const fn allocated_rounding(self) -> u64 {
        ((2 * Knob::ALLOCATION_MAX) >> (self.shift() + self.extra_bits())) + 1
    }

    /// Binary logarithm of the points in one unit.
    const fn shift(self) -> u32 {
        match self {
            CostBy::Bytes => 8,
            CostBy::Requests | CostBy::SizeClasses => 20,
            CostBy::DeviceTime => 0,
        }
    }
}

/// Cost rule of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostParams {
    /// Unit of costs.
    pub by: CostBy,
    /// Smallest cost of an I/O in bytes, and the size of a size class.
    pub size: u32,
}

impl CostParams {
    /// Parameter `cost`.
    pub(crate) const BY: ParamInfo = ParamInfo::choice(
        "cost",
        CostBy::WORDS,
        "cost of an I/O that is charged to its VM",
    );

    /// Parameter `cost_size`. A smaller I/O takes a device about as long as one of this size: 16
    /// KiB is where devices without seeks begin to be bound by bytes.
    pub(crate) const SIZE: ParamInfo = ParamInfo {
        name: "cost_size",
        kind: tidegate_core::part::ParamKind::Bytes,
        default: 16 << 10,
        min: 512,
        max: 16 << 20,
        help: "minimum cost of an I/O in bytes; the size of a size class",
    };

    pub(crate) fn from_params(params: &Params) -> CostParams {
        CostParams {
            by: CostBy::from_word(params.get(Self::BY.name)),
            size: params.get(Self::SIZE.name) as u32,
        }
    }

    /// Returns whether these parameters count costs in the device's time, so that a profile is
    /// needed.
    pub(crate) fn need_profile(params: &Params) -> bool {
        let by = params.find(Self::BY.name).map(CostBy::from_word);
        by == Some(CostBy::DeviceTime)
    }
}

/// Largest cost of an I/O in points. 32 I/Os of this cost, by the least weight, stay far below the
/// range of virtual time.
const MAX_COST_POINTS: u64 = 1 << 43;
/// Fraction bits of a slope, which is in picoseconds per byte.
const SLOPE_BITS: u32 = 20;

/// Piece of a cost curve that begins at a measured size: `cost` points at `from` bytes, plus
/// `slope` for each byte beyond, in 2^-[`SLOPE_BITS`] points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    from: u32,
    cost: u64,
    slope: u64,
}

/// Cost of an I/O by size, from a profile's curve: never falling, rounded up, and looked up without
/// a division.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CostCurve(Box<[Segment]>);

impl CostCurve {
    /// Converts a measured curve; a cost that would fall with the size stays at the highest so far.
    fn from_curve(curve: &Curve) -> CostCurve {
        let mut highest = 1;
        let rising = curve.points().iter().map(|&(size, time)| {
            // Never below the one before: a longer I/O is not cheaper.
            highest = time.clamp(highest, MAX_COST_POINTS);
            (size, highest)
        });
        let rising: Vec<(u32, u64)> = rising.collect();
        let slope = |low: (u32, u64), high: (u32, u64)| {
            // No overflow: costs have 43 bits and the fraction 20. Sizes of a curve rise strictly.
            ((high.1 - low.1) << SLOPE_BITS).div_ceil(u64::from(high.0 - low.0))
        };
        // Sizes beyond the last measured one continue the last segment's line, unless it falls; a
        // curve of one point continues the line from the origin.
        let measured = |&(size, time): &(u32, u64)| (size, time.min(MAX_COST_POINTS));
        let beyond = match curve.points() {
            [.., low, high] if high.1 < low.1 => 0,
            [.., low, high] => slope(measured(low), measured(high)),
            all => all.first().map_or(0, |one| slope((0, 0), measured(one))),
        };
        let segments = rising.iter().enumerate().map(|(n, &low)| Segment {
            from: low.0,
            cost: low.1,
            slope: rising.get(n + 1).map_or(beyond, |&high| slope(low, high)),
        });
        CostCurve(segments.collect())
    }

    /// Returns a curve of one cost for every size.
    fn flat(cost: u64) -> CostCurve {
        let segment = Segment {
            from: 1,
            cost,
            slope: 0,
        };
        CostCurve(Box::new([segment]))
    }

    /// Returns the cost of an I/O of `bytes`, at most [`MAX_COST_POINTS`].
    #[inline]
    fn cost(&self, bytes: u32) -> u64 {
        let begun = self.0.iter().filter(|segment| segment.from <= bytes);
        let Some(segment) = begun.count().checked_sub(1).map(|at| self.0[at]) else {
            // Below the smallest measured size an I/O costs as much as one of that size.
            return self.0[0].cost;
        };
        let along = u128::from(segment.slope) * u128::from(bytes - segment.from);
        // Rounded up, so that an I/O is not charged less than its time.
        let along = (along + ((1 << SLOPE_BITS) - 1)) >> SLOPE_BITS;
        (u128::from(segment.cost) + along).min(MAX_COST_POINTS.into()) as u64
    }
}

/// Cost curves of a profile: reads, then writes; sequential, then random.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DeviceTime([CostCurve; 4]);

impl DeviceTime {
    /// Converts a profile; without one, every I/O costs [`Profile::UNKNOWN_PS`].
    fn from_profile(profile: Option<&Profile>) -> DeviceTime {
        let Some(profile) = profile else {
            return DeviceTime([(); 4].map(|()| CostCurve::flat(Profile::UNKNOWN_PS)));
        };
        let curve = |direction, access| CostCurve::from_curve(profile.curve(direction, access));
        DeviceTime([
            curve(Direction::Read, Access::Sequential),
            curve(Direction::Read, Access::Random),
            curve(Direction::Write, Access::Sequential),
            curve(Direction::Write, Access::Random),
        ])
    }

    #[inline]
    fn cost(&self, direction: Direction, access: Access, bytes: u32) -> u64 {
        self.0[direction as usize * 2 + access as usize].cost(bytes)
    }

    fn flush(&self) -> u64 {
        self.cost(Direction::Write, Access::Random, 0)
    }

    fn largest(&self, device: &DeviceSpec) -> u64 {
        let of_curve = |curve: &CostCurve| curve.cost(device.max_io);
        self.0.iter().map(of_curve).max().unwrap_or(MAX_COST_POINTS)
    }
}

/// Returns whether later parts of a request are of the access pattern of its first.
#[inline]
fn parts_as_first(view: &View) -> bool {
    !view.device().seeks && view.profile().is_some()
}

/// Returns whether parts of a unit went to the device. Only a request by itself goes in parts.
#[inline]
fn has_begun(view: &View, unit: &Unit) -> bool {
    let (.., whole) = view.queued(unit.id).request();
    unit.requests == 1 && unit.len < whole
}

/// Cost model of a dispatcher, in points. Follows each VM's streams where costs depend on the
/// access pattern.
#[derive(Debug)]
pub(super) struct CostModel {
    params: CostParams,
    time: DeviceTime,
    /// Access, bytes and points of the last read and the last write charged by the device's time;
    /// sizes repeat, so most I/Os need no look-up. 0 bytes: none was charged.
    last: [(Access, u32, u64); 2],
    /// Ends of each VM's last I/Os. Empty unless costs are in device time.
    streams: Vec<Ends>,
    /// Number of I/Os pushed to each VM's `streams`, modulo 2^32.
    counts: Vec<u32>,
    /// Access patterns of each VM's last read and last write that began a request, while costs are
    /// in device time; as many as `streams`.
    begun: Vec<[Access; 2]>,
}

impl CostModel {
    /// Creates a model that follows streams also while costs do not depend on access patterns.
    pub(super) fn following(params: CostParams, vms: usize) -> CostModel {
        CostModel {
            streams: vec![Ends::NONE; vms],
            counts: vec![0; vms],
            begun: vec![[Access::Random; 2]; vms],
            ..CostModel::new(params, vms)
        }
    }

    pub(super) fn new(params: CostParams, vms: usize) -> CostModel {
        let vms = match params.by {
            CostBy::DeviceTime => vms,
            CostBy::Bytes | CostBy::Requests | CostBy::SizeClasses => 0,
        };
        CostModel {
            params,
            time: DeviceTime::from_profile(None),
            last: [(Access::Random, 0, 0); 2],
            streams: vec![Ends::NONE; vms],
            counts: vec![0; vms],
            begun: vec![[Access::Random; 2]; vms],
        }
    }

    /// Returns the events that the model needs besides the starts of I/Os.
    pub(super) fn interests(&self) -> Interests {
        match self.params.by {
            CostBy::DeviceTime => Interests::PROFILE.union(Interests::VMS),
            CostBy::Bytes | CostBy::Requests | CostBy::SizeClasses => Interests::NONE,
        }
    }

    /// Takes over a profile or a new VM. To be called before the dispatcher handles the event
    /// itself.
    pub(super) fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::ProfileChanged | Event::CostsLearnt if view.costs().is_some() => {
                self.time = DeviceTime::from_profile(view.costs());
                // The remembered costs are of the former profile.
                self.last = [(Access::Random, 0, 0); 2];
            }
            Event::VmAdded(vm) => {
                if let Some(stream) = self.streams.get_mut(vm.index()) {
                    *stream = Ends::NONE;
                    self.counts[vm.index()] = 0;
                    self.begun[vm.index()] = [Access::Random; 2];
                }
            }
            _ => {}
        }
    }

    /// Returns the cost of an I/O that starts, and adds the I/O to its VM's stream. To be called
    /// once for each I/O, in the order of their starts.
    #[inline(always)]
    pub(super) fn charge(&mut self, view: &View, io: &DeviceIo) -> u64 {
        self.charge_by(view, io, false)
    }

    /// Returns the cost as [`CostModel::charge`] does. `positions`: the device positions for the
    /// I/O even if it continues its VM's last one.
    #[inline(always)]
    pub(super) fn charge_by(&mut self, view: &View, io: &DeviceIo, positions: bool) -> u64 {
        let bytes = moved(view, io.op, io.len);
        if self.params.by != CostBy::DeviceTime {
            if !self.streams.is_empty() && bytes > 0 {
                self.follow(io, bytes);
            }
            return self.counted(io.op, bytes, io.first_ops);
        }
        // No data, so no part of a stream either.
        if bytes == 0 {
            return self.time.flush();
        }
        let (vm, direction) = (io.vm.index(), Direction::for_op(io.op));
        let access = match positions {
            true => Access::Random,
            false if io.first_ops == 0 && parts_as_first(view) => {
                self.begun[vm][direction as usize]
            }
            false => self.access(vm, io.addr),
        };
        self.begun[vm][direction as usize] = access;
        let last = &mut self.last[direction as usize];
        if (last.0, last.1) != (access, bytes) {
            *last = (access, bytes, self.time.cost(direction, access, bytes));
        }
        let count = &mut self.counts[vm];
        // After `access`, which must not see this I/O's own end.
        self.streams[vm].push((*count).into(), io.addr + u64::from(bytes));
        *count = count.wrapping_add(1);
        last.2
    }

    /// Adds an I/O to its VM's stream, and remembers its access pattern.
    fn follow(&mut self, io: &DeviceIo, bytes: u32) {
        let vm = io.vm.index();
        let access = self.access(vm, io.addr);
        // Without a cost: it is looked up once costs are in device time.
        self.last[Direction::for_op(io.op) as usize] = (access, bytes, 0);
        let count = &mut self.counts[vm];
        self.streams[vm].push((*count).into(), io.addr + u64::from(bytes));
        *count = count.wrapping_add(1);
    }

    /// Returns the access pattern of the last I/O of a direction that was charged; `None`: costs do
    /// not depend on it, or none was charged.
    pub(super) fn charged_access(&self, direction: Direction) -> Option<Access> {
        let (access, bytes, _) = self.last[direction as usize];
        (bytes > 0).then_some(access)
    }

    /// Returns the cost as [`CostModel::charge`] does, in points that are finer by `finer` binary
    /// digits. Where requests are counted, each part of a split request costs its part of the
    /// bytes; if the first part cost the whole request, the others would be free and go in a row.
    #[inline]
    pub(super) fn charge_parts(&mut self, view: &View, io: &DeviceIo, finer: u32) -> u64 {
        if self.params.by != CostBy::Requests || io.len >= io.whole_len {
            return self.charge(view, io) << finer;
        }
        let request = 1_u128 << (self.params.by.shift() + finer);
        (request * u128::from(io.len) / u128::from(io.whole_len)) as u64
    }

    /// Returns the largest cost that a unit's next I/O can have if it is no longer than `most`
    /// bytes.
    #[inline]
    pub(super) fn head_cost(&self, view: &View, unit: &Unit, most: u32) -> u64 {
        let bytes = moved(view, unit.op, unit.len.min(most));
        match self.params.by {
            CostBy::DeviceTime if bytes == 0 => self.time.flush(),
            CostBy::DeviceTime => {
                let (vm, direction) = (unit.vm.index(), Direction::for_op(unit.op));
                let access = if parts_as_first(view) && has_begun(view, unit) {
                    self.begun[vm][direction as usize]
                } else {
                    self.access(vm, unit.addr)
                };
                self.time.cost(direction, access, bytes)
            }
            _ => self.counted(unit.op, bytes, unit.requests),
        }
    }

    /// Returns the bytes up to which a unit's I/O may grow by merging while it costs no more than
    /// `points`, but at least the unit's own bytes. Where costs are not in bytes, the unit does not
    /// grow.
    #[inline]
    pub(super) fn max_bytes(&self, unit: &Unit, points: u64) -> u32 {
        match self.params.by {
            // An operation that does not merge cannot grow, so it needs no limit.
            _ if !unit.op.merges() => u32::MAX,
            CostBy::Bytes => {
                let bytes = points >> self.params.by.shift();
                u32::try_from(bytes).unwrap_or(u32::MAX).max(unit.len)
            }
            _ => unit.len,
        }
    }

    /// Returns the cost of an I/O where it does not depend on a profile.
    #[inline]
    fn counted(&self, op: Op, bytes: u32, requests: u32) -> u64 {
        let size = self.params.size;
        let units = match self.params.by {
            CostBy::Requests if op != Op::Flush => requests,
            // Merged flushes go as one I/O, so they cost one.
            CostBy::Requests => 1,
            CostBy::SizeClasses if bytes > size => bytes.div_ceil(size),
            CostBy::SizeClasses => 1,
            CostBy::Bytes | CostBy::DeviceTime => bytes.max(size),
        };
        u64::from(units) << self.params.by.shift()
    }

    /// Returns the access pattern of an I/O at `addr`: sequential if it continues one of its VM's
    /// last I/Os.
    #[inline]
    fn access(&self, vm: usize, addr: u64) -> Access {
        if self.streams[vm].continues(addr) {
            Access::Sequential
        } else {
            Access::Random
        }
    }

    /// Returns the cost of an I/O of `bytes` that continues its VM's last one, where costs are in
    /// bytes: it needs no positioning, so it may cost less than `cost_size`, but not less than
    /// `min` bytes.
    #[inline]
    pub(super) fn continued(&self, bytes: u32, min: u32) -> u64 {
        debug_assert_eq!(self.params.by, CostBy::Bytes);
        u64::from(bytes.max(min)) << CostBy::Bytes.shift()
    }

    /// Returns the points that an amount of service of `bytes` is worth: its bytes; the number of
    /// requests of `cost_size` that it makes, rounded up; or the time of a random read of that
    /// size.
    pub(super) fn worth(&self, bytes: u32, device: &DeviceSpec) -> u64 {
        Self::worth_by(&self.params, &self.time, bytes, device)
    }

    fn worth_by(params: &CostParams, time: &DeviceTime, bytes: u32, device: &DeviceSpec) -> u64 {
        let units = match params.by {
            CostBy::Bytes => bytes.into(),
            CostBy::Requests | CostBy::SizeClasses => bytes.div_ceil(params.size).into(),
            // At least a 1024th of the largest I/O, so that no I/O takes its VM more than 1024
            // turns.
            CostBy::DeviceTime => (time.cost(Direction::Read, Access::Random, bytes))
                .max(time.largest(device).div_ceil(1024)),
        };
        units << params.by.shift()
    }

    /// Returns the cost of a flush, and of every I/O that moves no data.
    #[inline]
    pub(super) fn flush(&self) -> u64 {
        match self.params.by {
            CostBy::DeviceTime => self.time.flush(),
            _ => self.counted(Op::Flush, 0, 1),
        }
    }

    /// Returns the largest cost of an I/O on this device.
    #[inline]
    pub(super) fn largest(&self, device: &DeviceSpec) -> u64 {
        match self.params.by {
            CostBy::DeviceTime => self.time.largest(device),
            by => Self::stated_by(&self.params, &self.time, device).largest(device) << by.shift(),
        }
    }

    /// Returns the cost rule in the units of starvation bounds, for this device and profile.
    pub(super) fn stated(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Cost {
        Self::stated_by(&self.params, &DeviceTime::from_profile(profile), device)
    }

    fn stated_by(params: &CostParams, time: &DeviceTime, device: &DeviceSpec) -> Cost {
        let size = params.size.into();
        match params.by {
            CostBy::Bytes => Cost::Bytes { least: size },
            CostBy::Requests => Cost::Requests,
            CostBy::SizeClasses => Cost::Classes { size },
            CostBy::DeviceTime => Cost::DeviceTime {
                flush: time.flush(),
                largest: time.largest(device),
            },
        }
    }

    /// [`CostModel::worth`] in the units of [`CostModel::stated`].
    pub(super) fn stated_worth(
        &self,
        bytes: u32,
        device: &DeviceSpec,
        profile: Option<&Profile>,
    ) -> u64 {
        let time = DeviceTime::from_profile(profile);
        Self::worth_by(&self.params, &time, bytes, device) >> self.params.by.shift()
    }

    /// Returns the bytes of memory that one VM takes.
    pub(super) fn bytes_per_vm(&self) -> usize {
        if self.streams.is_empty() {
            0
        } else {
            size_of::<Ends>() + size_of::<u32>() + size_of::<[Access; 2]>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::random::SplitMix64;

    fn curve(points: &[(u32, u64)]) -> Curve {
        let points: Vec<_> = points
            .iter()
            .map(|&(s, ps)| (s, 1e12 / ps as f64))
            .collect();
        Curve::new(&points).expect("sizes and times are in range")
    }

    #[test]
    fn costs_never_fall_and_are_no_less_than_the_time() {
        for seed in 0..2000 {
            let mut random = SplitMix64::new(seed);
            let mut points: Vec<(u32, u64)> = (0..random.below(6) + 1)
                .map(|_| {
                    let size = 1 << random.below(20);
                    let time = 1 << random.below(36);
                    (512 + random.below(size) as u32, 1 + random.below(time))
                })
                .collect();
            points.sort_unstable();
            points.dedup_by_key(|point| point.0);
            let (curve, rising) = (curve(&points), points.windows(2).all(|p| p[0].1 <= p[1].1));
            let costs = CostCurve::from_curve(&curve);
            let mut before = 0;
            for bytes in (0..200).map(|n| n * 7919) {
                let (cost, time) = (costs.cost(bytes), curve.time_ps(bytes));
                assert!(cost >= before, "{points:?}: falls at {bytes}");
                assert!(
                    cost >= time.min(MAX_COST_POINTS),
                    "{points:?}: {cost} at {bytes}"
                );
                // Rounding adds less than a picosecond for each MiB, and one more.
                let near = cost <= time.min(MAX_COST_POINTS) + 3;
                assert!(near || !rising, "{points:?}: {cost} at {bytes}, not {time}");
                before = cost;
            }
        }
    }

    #[test]
    fn measured_sizes_cost_their_measured_time() {
        let points = [
            (4096, 5_434_000_000),
            (65536, 5_966_000_000),
            (1 << 20, 14_091_000_000),
        ];
        let costs = CostCurve::from_curve(&curve(&points));
        for (size, time) in points {
            assert_eq!(costs.cost(size), time);
        }
        assert_eq!(costs.cost(0), points[0].1);
        assert_eq!(costs.cost(u32::MAX), MAX_COST_POINTS);
    }
}
