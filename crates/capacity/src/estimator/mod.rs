//! Costs of requests on a device without a saturation profile, learnt while it works.
//!
//! vFair (Lu et al., SoCC 2015, section 4.1) uses 1 / P of its equation 3, where P is the rate of
//! requests of a pattern at which the device saturates: the device time of such a request. Its P
//! come from a profile. Without one, equation 3 is solved for the costs: in a window in which the
//! device always had enough to do, the costs of all I/Os add up to the window's length,
//! ```text
//!   length = sum over kinds and sizes of  I/Os x cost
//! ```
//!
//! so that each such window is an equation for the costs, and windows of different mixes separate
//! them. `filter` solves the equations recursively; `prior` holds the costs assumed at first.
//!
//! **Kinds.** Reads and writes, sequential and random, each by size: costs at powers of two from 4
//! KiB to 1 MiB, interpolated linearly between them, like the curves of a profile ([`Curve`]). An
//! I/O is sequential as the dispatcher charges it, on a device that does not seek: a flash disk
//! reads ahead of several streams at a time, and costs must be learnt for the kind that is charged.
//! Elsewhere it is sequential as in the pattern t' (`pattern`): the I/O that the device receives
//! counts, not the VM's request.
//!
//! **Windows.** A window ends after 120 ms and [`WINDOW_IOS`] ended I/Os, or after a second. It
//! counts if enough I/Os were in flight for 95 % of it, none failed, and at least 16 ended. An I/O
//! belongs to the window in which it ends: with a queue in front of the bottleneck, most I/Os in
//! flight have cost nothing yet.
//!
//! **Collinear costs.** VMs that are always served in the same proportion have one sum of costs
//! between them, for any number of windows. A controller that learns therefore varies proportions a
//! little, back and forth, window by window: [`CostEstimator::share_variation`] is a signal of its
//! own for each VM, with mean 0, large while costs are uncertain and small later (persistent
//! excitation).
//!
//! **Uncertainty.** Each cost comes with the half width of its 90 % interval, from the filter's
//! covariance: [`LearntCost::relative_half_width`]. I/Os that are rare, were last seen long ago or
//! always occur together with others have wide intervals. Above [`LearntCost::KNOWN_WITHIN`] a cost
//! counts as unknown.
//!
//! Memory is fixed; an I/O costs a few additions, a window some ten thousand operations.

mod filter;
mod prior;
#[cfg(test)]
mod tests;

use crate::profile::{Access, Curve, Direction, Pattern, Profile, TRUSTED_WITHIN_PERCENT};
use filter::{Filter, SparseWeights};
use prior::COSTS;
use tidegate_base::device::DeviceSpec;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::random::mix;
use tidegate_base::request::{DeviceIo, VmId};
use tidegate_base::sequential::Run;
use tidegate_base::time::Nanos;

/// Name and version of the learnt state in the store.
const BLOB_NAME: &str = "cost-estimator";
const VERSION: u16 = 1;
/// Largest count of a stored state: far above any real one, and two of them add up without
/// overflow.
const COUNT_MAX: u64 = 1 << 62;

/// Kinds of I/O: reads and writes, each sequential and random.
const KINDS: usize = 4;
/// Number of sizes at which costs are estimated: powers of two from 4 KiB to 1 MiB.
const NODES: usize = 9;
/// Binary logarithm of the smallest of these sizes in bytes.
const SMALLEST_LOG2: u32 = 12;
/// Weight of one I/O in the fixed-point counts of a window.
const FIXED_POINT_ONE: u64 = 1 << 16;

/// Shortest window: four periods of vFair's controller (30 ms).
const WINDOW_MIN: Nanos = Nanos::from_millis(120);
/// Longest window, for devices too slow for `WINDOW_IOS` in it.
const WINDOW_MAX: Nanos = Nanos::SECOND;
/// Ended I/Os after which a window of sufficient length is over: the error by those that lie across
/// its ends is a few per cent.
pub const WINDOW_IOS: u32 = 128;
/// Ended I/Os below which a window does not count: its ends would dominate it.
const WINDOW_IOS_MIN: u32 = 16;
/// I/Os in flight with which any device counts as saturated. Fewer suffice where the depth is
/// lower: three quarters of the depth, whether the device, the learnt depth or the dispatcher
/// limits it. A cap at three quarters of 32, the default depth.
const SATURATING_DEPTH: u32 = 24;

/// Smallest variation of a VM's share, as a part of it: the one that goes on once costs are known.
const DITHER_MIN: f64 = 0.03;
/// Largest variation of a VM's share, as a part of it: a share never falls below half.
const DITHER_MAX: f64 = 0.5;
/// Half the width of a 90 % interval of a normal distribution, in standard deviations.
const HALF_INTERVAL_SIGMA: f64 = 1.645;

/// Learnt cost of a request, with its uncertainty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntCost {
    /// Device time in picoseconds, positive; the assumed cost where nothing was learnt.
    pub time_ps: f64,
    /// Half width of its 90 % interval, as a part of the cost: 0.1 is 10 % either way. Infinite
    /// before the first window.
    pub relative_half_width: f64,
}

impl LearntCost {
    /// Largest relative half width at which a cost counts as known.
    pub const KNOWN_WITHIN: f64 = 0.15;
    /// Largest relative half width at which promises are judged by the learnt cost itself, the same
    /// as for a profile's points. Plans keep a headroom of 20 %.
    pub const JUDGED_WITHIN: f64 = TRUSTED_WITHIN_PERCENT / 100.0;
    /// Largest allowance for an uncertain cost, as a part of it. Before the first window costs are
    /// the prior's, whose standard deviation is 2.2 times the cost: up to 3.2 times it, with a
    /// margin.
    const ALLOWANCE_MAX: f64 = 3.0;

    /// Returns true if the cost is known to within [`LearntCost::KNOWN_WITHIN`].
    pub fn is_known(&self) -> bool {
        self.relative_half_width <= LearntCost::KNOWN_WITHIN
    }

    /// Returns the device time for judging promises, in picoseconds: the learnt cost, or the upper
    /// end of its interval while that is wider than [`LearntCost::JUDGED_WITHIN`].
    pub fn pessimistic_ps(&self) -> f64 {
        if self.relative_half_width <= LearntCost::JUDGED_WITHIN {
            return self.time_ps;
        }
        self.time_ps * (1.0 + self.relative_half_width.min(LearntCost::ALLOWANCE_MAX))
    }
}

/// Learnt cost of one kind of I/O.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntKind {
    /// Direction of the I/Os.
    pub direction: Direction,
    /// Access pattern of the I/Os.
    pub access: Access,
    /// I/Os in the windows that counted.
    pub ios: u64,
    /// Mean size of these I/Os in bytes; 0 without any.
    pub size: u32,
    /// Cost of an I/O of this size.
    pub cost: LearntCost,
}

/// Learnt costs of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntCosts {
    /// Windows that counted.
    pub windows: u64,
    /// Windows that did not count, because the device had too little to do or an I/O failed.
    pub discarded_windows: u64,
    /// Sequential reads, random reads, sequential writes, random writes.
    pub kinds: [LearntKind; KINDS],
}

impl LearntCosts {
    /// Mean of the relative half widths over the kinds seen, weighted by their device time;
    /// infinite before the first window.
    pub fn relative_half_width(&self) -> f64 {
        let time = |kind: &LearntKind| kind.ios as f64 * kind.cost.time_ps;
        let observed = self.kinds.iter().filter(|kind| kind.ios > 0);
        let (total, weighted) = observed.fold((0.0, 0.0), |(total, weighted), kind| {
            (
                total + time(kind),
                weighted + time(kind) * kind.cost.relative_half_width,
            )
        });
        if total > 0.0 {
            weighted / total
        } else {
            f64::INFINITY
        }
    }
}

/// Estimator of request costs; the [module](self) describes the method.
#[derive(Clone, Debug)]
pub struct CostEstimator {
    filter: Filter,
    run: Run,
    /// Kind of each I/O in flight, by its slot.
    kinds: Vec<Kind>,
    window: Window,
    /// Size of the I/O that ended last; sizes repeat.
    last_size: SplitSize,
    /// Number of windows that ended, whether they counted or not.
    windows_ended: u64,
    /// Number of windows in the imported state.
    imported: u64,
    /// I/Os by kind over all windows that counted.
    ios: [u64; KINDS],
    /// Bytes of these I/Os by kind.
    bytes: [u64; KINDS],
}

/// Kind of an I/O in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// State of a slot whose I/O is not in flight, or started before the estimator was attached.
    Unknown,
    /// No data, such as a flush.
    Other,
    /// Data, with the index of its kind.
    Data(u8),
}

/// Counts of the current window.
#[derive(Clone, Debug)]
struct Window {
    from: Nanos,
    accounted_until: Nanos,
    /// Time in which fewer I/Os than the saturating depth were in flight. A flush in addition to
    /// enough data I/Os adds none: a database always has one in flight, and costs are learnt as
    /// they are with it.
    slack: Nanos,
    /// Data I/Os in flight.
    data: u32,
    /// Data I/Os that ended.
    ended: u32,
    failed: bool,
    counts: [u64; COSTS],
    ios: [u32; KINDS],
    bytes: [u64; KINDS],
}

impl CostEstimator {
    /// Creates an estimator with the prior costs of a device of this specification.
    pub fn new(now: Nanos, spec: &DeviceSpec) -> CostEstimator {
        CostEstimator {
            filter: Filter::new(prior::prior_costs_ns(spec)),
            run: Run::NONE,
            kinds: vec![Kind::Unknown; spec.io_slots() as usize],
            window: Window::new(now),
            last_size: SplitSize::new(0),
            windows_ended: 0,
            imported: 0,
            ios: [0; KINDS],
            bytes: [0; KINDS],
        }
    }

    /// Counts an I/O that starts at the device and moves `bytes` bytes there; 0: no data. `access`:
    /// the access pattern by whose cost its VM was charged; `None`: the one of the device's own run
    /// of I/Os counts. `depth`: limit on I/Os in flight, the lower of the device's and the
    /// dispatcher's.
    #[inline(always)]
    pub fn started(
        &mut self,
        now: Nanos,
        (io, access): (&DeviceIo, Option<Access>),
        bytes: u32,
        depth: u32,
    ) {
        let window = &mut self.window;
        window.account_until(now, saturating_depth(depth));
        let kind = &mut self.kinds[io.id.index()];
        if bytes == 0 {
            *kind = Kind::Other;
            return;
        }
        // After a change of the dispatcher the run is an old one, which misleads for one I/O.
        let access = access.unwrap_or_else(|| match self.run.started(io) {
            true => Access::Sequential,
            false => Access::Random,
        });
        window.data += 1;
        *kind = Kind::Data(kind_index(Direction::for_op(io.op), access) as u8);
    }

    /// Counts an I/O that ended, with or without an error. Returns true if this closes a window
    /// that counts.
    #[inline(always)]
    pub fn ended(&mut self, now: Nanos, io: &DeviceIo, succeeded: bool, depth: u32) -> bool {
        let window = &mut self.window;
        window.account_until(now, saturating_depth(depth));
        window.failed |= !succeeded;
        match core::mem::replace(&mut self.kinds[io.id.index()], Kind::Unknown) {
            Kind::Other => {}
            // Started before the estimator was attached: its kind is unknown, so the window cannot
            // count.
            Kind::Unknown => window.failed = true,
            Kind::Data(kind) => {
                let kind = usize::from(kind);
                if io.len != self.last_size.bytes {
                    self.last_size = SplitSize::new(io.len);
                }
                window.count(kind, &self.last_size);
                window.ios[kind] += 1;
                window.bytes[kind] += u64::from(io.len);
                window.data -= 1;
                window.ended += 1;
            }
        }
        window.is_over() && self.close()
    }

    /// Drops the stream state of a VM whose slot is reused.
    pub fn reset_vm(&mut self, vm: VmId) {
        self.run.end_run_of(vm);
    }

    /// Closes the window, and learns from it if it counts. Returns whether it counted. Out of line,
    /// because it runs once in some hundred I/Os.
    #[cold]
    #[inline(never)]
    fn close(&mut self) -> bool {
        self.windows_ended += 1;
        let window = &self.window;
        let is_usable = window.is_usable();
        if is_usable {
            let mut ios = [0.0; COSTS];
            for (ios, &count) in ios.iter_mut().zip(&window.counts) {
                *ios = count as f64 / FIXED_POINT_ONE as f64;
            }
            let len = window.len();
            self.filter.learn(&ios, len.0 as f64);
            for kind in 0..KINDS {
                self.ios[kind] += u64::from(window.ios[kind]);
                self.bytes[kind] += window.bytes[kind];
            }
        }
        self.window.restart();
        is_usable
    }

    /// Number of windows that ended, whether they counted or not.
    #[inline]
    pub fn windows_ended(&self) -> u64 {
        self.windows_ended
    }

    /// Exports the learnt costs; `None`: nothing was learnt since the estimator was created or
    /// [`CostEstimator::import`] was called.
    pub fn export(&self) -> Option<Blob> {
        if self.filter.windows() == self.imported {
            return None;
        }
        let mut blob = Blob::new(BLOB_NAME, VERSION);
        for kind in 0..KINDS {
            blob.push_u64(self.ios[kind]).push_u64(self.bytes[kind]);
        }
        self.filter.export(&mut blob);
        Some(blob)
    }

    /// Restores exported costs with added uncertainty, because the device may have changed since.
    /// The costs apply at once, count as unknown until they are observed again, and give way soon
    /// where observations differ.
    ///
    /// # Errors
    /// If the blob is damaged or out of range. The estimator is then unchanged.
    pub fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let mut fields = learnt.fields(BLOB_NAME, VERSION)?;
        let (mut ios, mut bytes) = ([0; KINDS], [0; KINDS]);
        for kind in 0..KINDS {
            // Sums out of range are clamped, not refused: they only appear in reports.
            (ios[kind], bytes[kind]) = (fields.u64()?.min(COUNT_MAX), fields.u64()?.min(COUNT_MAX));
        }
        let mut filter = self.filter.clone();
        filter.import(&mut fields)?;
        fields.end()?;
        (self.ios, self.bytes) = (ios, bytes);
        self.imported = filter.windows();
        // Windows that did not count stay; those that did are replaced by the imported ones.
        self.windows_ended = self.windows_ended - self.filter.windows() + filter.windows();
        self.filter = filter;
        Ok(())
    }

    /// Device time of a request of a pattern at saturation: 1 / P of equation 3.
    pub fn cost(&self, pattern: &Pattern) -> LearntCost {
        self.cost_of(&parts(pattern), bytes(pattern))
    }

    /// Device time as of [`CostEstimator::cost`], in picoseconds, without
    /// computing the uncertainty, which is the slow part.
    pub fn time_ps(&self, pattern: &Pattern) -> f64 {
        self.filter.cost(&weights(&parts(pattern), bytes(pattern))) * 1000.0
    }

    /// Cost of an I/O that is of each kind with probability `parts`.
    fn cost_of(&self, parts: &[f64; KINDS], bytes: u32) -> LearntCost {
        let weights = weights(parts, bytes);
        let ns = self.filter.cost(&weights);
        // Each cost is positive, so the divisor is.
        let relative_half_width = match self.filter.windows() {
            0 => f64::INFINITY,
            _ => HALF_INTERVAL_SIGMA * self.filter.variance(&weights).sqrt() / ns,
        };
        LearntCost {
            time_ps: ns * 1000.0,
            relative_half_width,
        }
    }

    /// Number of windows that counted; costs change only when it does.
    pub fn windows(&self) -> u64 {
        self.filter.windows()
    }

    /// Learnt costs by kind, with the counts of windows.
    pub fn learnt(&self) -> LearntCosts {
        let kind = |direction, access| {
            let kind = kind_index(direction, access);
            let ios = self.ios[kind];
            let size = self.bytes[kind].checked_div(ios).unwrap_or(0);
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            let mut parts = [0.0; KINDS];
            parts[kind] = 1.0;
            LearntKind {
                direction,
                access,
                ios,
                size,
                cost: self.cost_of(&parts, size.max(1)),
            }
        };
        LearntCosts {
            windows: self.filter.windows(),
            discarded_windows: self.windows_ended - self.filter.windows(),
            kinds: [
                kind(Direction::Read, Access::Sequential),
                kind(Direction::Read, Access::Random),
                kind(Direction::Write, Access::Sequential),
                kind(Direction::Write, Access::Random),
            ],
        }
    }

    /// Returns a profile of the learnt costs, pessimistic where they are uncertain, and true if
    /// promises can be judged by it: the costs seen are known to within
    /// [`LearntCost::JUDGED_WITHIN`]. The profile has no latencies, and no mixes, because costs are
    /// learnt within the present mix.
    pub fn profile(&self) -> (Profile, bool) {
        let profile = self.profile_of(|parts, bytes| self.cost_of(parts, bytes).pessimistic_ps());
        (
            profile,
            self.learnt().relative_half_width() <= LearntCost::JUDGED_WITHIN,
        )
    }

    /// Returns a profile of the expected costs, however uncertain. For shares of the device, where
    /// a cost that is too high is as unfair as one that is too low.
    pub fn expected_profile(&self) -> Profile {
        self.profile_of(|parts, bytes| self.filter.cost(&weights(parts, bytes)) * 1000.0)
    }

    /// Returns a profile from the picoseconds of an I/O by its parts of each kind and its size.
    fn profile_of(&self, time_ps: impl Fn(&[f64; KINDS], u32) -> f64) -> Profile {
        let curve = |direction, access| {
            let mut parts = [0.0; KINDS];
            parts[kind_index(direction, access)] = 1.0;
            let points: [_; NODES] = core::array::from_fn(|node| {
                let bytes = 1 << (SMALLEST_LOG2 as usize + node);
                (bytes, (1e12 / time_ps(&parts, bytes)).clamp(1e-6, 1e12))
            });
            Curve::new(&points).expect("sizes rise and rates are in range")
        };
        let curves =
            |direction| [Access::Sequential, Access::Random].map(|it| curve(direction, it));
        let (reads, writes) = (curves(Direction::Read), curves(Direction::Write));
        Profile::new(reads, Some(writes), Vec::new(), Vec::new())
    }

    /// Variation of a VM's share in the current window, as a part of the share, by which costs can
    /// be told apart: between 0.03 and 0.5 either way, in proportion to the uncertainty of its cost
    /// ([`LearntCost::relative_half_width`]). The mean over two windows is 0.
    pub fn share_variation(&self, vm: VmId, relative_half_width: f64) -> f64 {
        let variation = (2.0 * relative_half_width).clamp(DITHER_MIN, DITHER_MAX);
        if self.raises_share(vm) {
            variation
        } else {
            -variation
        }
    }

    /// Returns true if [`CostEstimator::share_variation`] is positive in the current window.
    #[inline]
    pub fn raises_share(&self, vm: VmId) -> bool {
        // Two successive windows share a hash and differ in parity: opposite signs, so that the
        // mean is 0.
        let pair = mix(((self.windows_ended / 2) << 32) | u64::from(vm.index));
        (pair ^ self.windows_ended) & 1 == 0
    }
}

impl Window {
    fn new(now: Nanos) -> Window {
        Window {
            from: now,
            accounted_until: now,
            slack: Nanos::ZERO,
            data: 0,
            ended: 0,
            failed: false,
            counts: [0; COSTS],
            ios: [0; KINDS],
            bytes: [0; KINDS],
        }
    }

    /// Starts the next window; I/Os in flight stay so.
    fn restart(&mut self) {
        *self = Window {
            data: self.data,
            ..Window::new(self.accounted_until)
        };
    }

    /// Accounts the time up to `now` with the present number of I/Os in flight.
    #[inline]
    fn account_until(&mut self, now: Nanos, saturating_depth: u32) {
        let span = now.since(self.accounted_until);
        self.accounted_until = self.accounted_until.max(now);
        if self.data < saturating_depth {
            self.slack += span;
        }
    }

    fn len(&self) -> Nanos {
        self.accounted_until.since(self.from)
    }

    /// Counts an ended I/O of a kind, split between the two nearest sizes.
    #[inline]
    fn count(&mut self, kind: usize, size: &SplitSize) {
        let first = kind * NODES + size.node;
        let counts = &mut self.counts[first..first + 2];
        counts[0] += size.parts[0];
        counts[1] += size.parts[1];
    }

    #[inline]
    fn is_over(&self) -> bool {
        let len = self.len();
        len >= WINDOW_MIN && (self.ended >= WINDOW_IOS || len >= WINDOW_MAX)
    }

    /// Returns whether the window is an equation for the costs.
    fn is_usable(&self) -> bool {
        let len = self.len();
        // At least 95 % of the window with enough in flight.
        let full = self.slack.0.saturating_mul(20) <= len.0;
        // Much longer than a window should be: no I/O ended, or the machine stood still.
        let stalled = len > Nanos(2 * WINDOW_MAX.0);
        full && !self.failed && self.ended >= WINDOW_IOS_MIN && !stalled
    }
}

/// Size of an I/O, split between the two nearest nodes, in fixed point.
#[derive(Clone, Copy, Debug)]
struct SplitSize {
    bytes: u32,
    /// The smaller of the two nodes.
    node: usize,
    /// Part of each of the two.
    parts: [u64; 2],
}

impl SplitSize {
    fn new(bytes: u32) -> SplitSize {
        let [(node, lower), (_, upper)] = nodes(bytes);
        SplitSize {
            bytes,
            node,
            parts: [lower, upper],
        }
    }
}

/// I/Os in flight with which a device of this depth counts as saturated.
#[inline]
fn saturating_depth(depth: u32) -> u32 {
    // Three quarters of it are no less, and the product below cannot overflow.
    if depth >= 4 * SATURATING_DEPTH / 3 {
        return SATURATING_DEPTH;
    }
    SATURATING_DEPTH.min((depth * 3).div_ceil(4))
}

/// Index of a kind: sequential reads, random reads, sequential writes, random writes.
fn kind_index(direction: Direction, access: Access) -> usize {
    direction as usize * 2 + access as usize
}

/// Size of a node in bytes.
fn node_bytes(node: usize) -> f64 {
    f64::from(1_u32 << (SMALLEST_LOG2 as usize + node))
}

/// Two neighbouring nodes of a size, with the part of an I/O that each gets, in fixed point.
/// Sizes beyond the last node scale that node; sizes below the first count as the first.
fn nodes(bytes: u32) -> [(usize, u64); 2] {
    let log = bytes.max(1).ilog2();
    let largest = SMALLEST_LOG2 + NODES as u32 - 1;
    if log < SMALLEST_LOG2 {
        return [(0, FIXED_POINT_ONE), (1, 0)];
    }
    if log >= largest {
        return [
            (NODES - 2, 0),
            (NODES - 1, (FIXED_POINT_ONE * u64::from(bytes)) >> largest),
        ];
    }
    let lower = (log - SMALLEST_LOG2) as usize;
    // `1 << log` bytes lie between the two nodes.
    let excess = u64::from(bytes) - (1 << log);
    let upper_part = (excess * FIXED_POINT_ONE) >> log;
    [
        (lower, FIXED_POINT_ONE - upper_part),
        (lower + 1, upper_part),
    ]
}

/// Parts of a pattern's requests by kind, which add up to 1.
fn parts(pattern: &Pattern) -> [f64; KINDS] {
    // Named as in vFair's section 4.1: parts of reads, of sequential reads and of sequential
    // writes.
    let alpha = pattern.reads.clamp(0.0, 1.0);
    let beta = pattern.sequential_reads.clamp(0.0, 1.0);
    let gamma = pattern.sequential_writes.clamp(0.0, 1.0);
    [
        alpha * beta,
        alpha * (1.0 - beta),
        (1.0 - alpha) * gamma,
        (1.0 - alpha) * (1.0 - gamma),
    ]
}

fn bytes(pattern: &Pattern) -> u32 {
    pattern.size.clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Weights of the estimated costs in the cost of an I/O: indices and factors.
fn weights(parts: &[f64; KINDS], bytes: u32) -> SparseWeights {
    let neighbours = nodes(bytes).map(|(node, part)| (node, part as f64 / FIXED_POINT_ONE as f64));
    core::array::from_fn(|index| {
        let (kind, (node, part)) = (index / 2, neighbours[index % 2]);
        (kind * NODES + node, parts[kind] * part)
    })
}
