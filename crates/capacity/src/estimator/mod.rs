//! What requests cost of a device that nobody has measured, learnt while it works.
//!
//! vFair (Lu et al., SoCC 2015, section 4.1) reckons with 1 / P of its equation 3: what a request
//! of a pattern takes of the device when it is saturated. Its P come from a profile. Where there is
//! none, they can be had from the same equation turned round: in a window in which the device
//! always had enough to do, the costs of all that it did sum up to the window's length,
//!
//! ```text
//!   length = sum over kinds and sizes of  I/Os x cost
//! ```
//!
//! so each such window is an equation for the costs, and with windows of unlike mixes they can be
//! told apart. `filter` solves them recursively; `prior` is what is taken for granted before.
//!
//! **Kinds.** Reads and writes, sequential and random, each by size: costs at powers of two from 4
//! KiB to 1 MiB, on the line between them for others, as a profile's curves have them
//! ([`Curve`]). An I/O is sequential as in the pattern t' (`pattern`): what
//! the device gets counts, not what a VM asked for.
//!
//! **Windows.** A window is over after 120 ms and [`IOS`] ends, or after a second; it counts when
//! enough was in flight for 95 % of it, nothing failed, and it had at least 16 ends. An I/O belongs
//! to the window in which it ends: with a queue in front of what is the bottleneck, most of what is
//! in flight has cost nothing yet.
//!
//! **What cannot be told apart.** VMs that are always served in the same proportion have one sum
//! between them, however long one looks. So a controller that learns varies proportions a little,
//! back and forth, window by window: [`CostEstimator::dither`], a signal of its own for each VM
//! whose mean is nothing, large while much is unsure and small later (persistent excitation).
//!
//! **How sure.** Each answer has the half width of its 90 % interval, by the filter's covariance:
//! [`LearntCost::within`]. What was seen seldom, long ago or never apart from others is uncertain
//! by this. Above [`LearntCost::KNOWN`] it is as good as not known.
//!
//! Memory is fixed; a request costs a few additions, a window some ten thousand operations.

mod filter;
mod prior;
#[cfg(test)]
mod tests;

use crate::profile::{Access, Curve, Direction, Pattern, Profile, TRUSTED_WITHIN_PERCENT};
use filter::{Few, Filter};
use prior::COSTS;
use tidegate_base::device::DeviceSpec;
use tidegate_base::ends::Run;
use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::random::mix;
use tidegate_base::request::{DeviceIo, VmId};
use tidegate_base::time::Nanos;

/// Whose what is kept is, and which version of it.
const PART: &str = "cost-estimator";
const VERSION: u16 = 1;
/// What is counted over all windows is no more, or somebody made it up.
const MOST: u64 = 1 << 62;

/// Kinds of I/O: reads and writes, each sequential and random.
const KINDS: usize = 4;
/// Sizes at which costs are estimated: powers of two from 2^12 bytes.
const NODES: usize = 9;
const SMALLEST: u32 = 12;
/// An I/O in the counts of a window.
const ONE: u64 = 1 << 16;

/// A window is no shorter.
const SHORTEST: Nanos = Nanos::from_millis(120);
/// And no longer, if it has `FEWEST` ends.
const LONGEST: Nanos = Nanos::SECOND;
/// Ends after which a window that is long enough is over.
pub const IOS: u32 = 128;
const FEWEST: u32 = 16;
/// The device has enough to do with so many I/Os in flight, or three quarters of the most that
/// there may be, whoever says so: it, a depth that was found to be enough, or the dispatcher.
const ENOUGH: u32 = 24;

/// By how much proportions are varied at least, and at most.
const DITHER: [f64; 2] = [0.03, 0.5];
/// Half the width of a 90 % interval, in standard deviations.
const INTERVAL: f64 = 1.645;

/// What was learnt of a cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntCost {
    /// Picoseconds of the device, positive. Where nothing was learnt, what is taken for granted.
    pub time_ps: f64,
    /// Half the width of its 90 % interval, in parts of it: 0.1 is 10 % either way. Infinite before
    /// anything was seen.
    pub within: f64,
}

impl LearntCost {
    /// What is not known to this precision is as good as not known.
    pub const KNOWN: f64 = 0.15;
    /// Half width of the interval up to which promises are judged by a cost as it is learnt, in
    /// parts of it: that up to which a profile's points are trusted. Plans keep a headroom of 20 %.
    pub const JUDGED: f64 = TRUSTED_WITHIN_PERCENT / 100.0;
    /// Largest allowance for an uncertain cost, in parts of it. Before anything was seen costs are
    /// the prior's, which is right to about a factor of four.
    const ALLOWANCE_MAX: f64 = 3.0;

    /// Whether it can be relied on.
    pub fn is_known(&self) -> bool {
        self.within <= LearntCost::KNOWN
    }

    /// Returns picoseconds of the device to reckon promises with: the learnt cost, or the upper end
    /// of its interval while that is wider than [`LearntCost::JUDGED`].
    pub fn pessimistic_ps(&self) -> f64 {
        if self.within <= LearntCost::JUDGED {
            return self.time_ps;
        }
        self.time_ps * (1.0 + self.within.min(LearntCost::ALLOWANCE_MAX))
    }
}

/// What was learnt of a kind of I/O.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearntKind {
    /// Which way.
    pub direction: Direction,
    /// Where.
    pub access: Access,
    /// I/Os that were learnt from.
    pub ios: u64,
    /// Their mean size in bytes; 0 without any.
    pub size: u32,
    /// What one of this size costs.
    pub cost: LearntCost,
}

/// What was learnt of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Learnt {
    /// Windows that were learnt from.
    pub windows: u64,
    /// Windows in which the device had not enough to do, or an I/O failed: nothing can be learnt
    /// then.
    pub idle_windows: u64,
    /// Sequential reads, random ones, then writes likewise.
    pub kinds: [LearntKind; KINDS],
}

impl Learnt {
    /// How sure it is of what it has seen: the mean of `within` over the kinds, by the time they
    /// took; infinite before anything was seen.
    pub fn within(&self) -> f64 {
        let time = |kind: &LearntKind| kind.ios as f64 * kind.cost.time_ps;
        let seen = || self.kinds.iter().filter(|kind| kind.ios > 0);
        let (all, unsure) = seen().fold((0.0, 0.0), |(all, unsure), kind| {
            (all + time(kind), unsure + time(kind) * kind.cost.within)
        });
        match all > 0.0 {
            true => unsure / all,
            false => f64::INFINITY,
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct CostEstimator {
    filter: Filter,
    run: Run,
    /// What is in flight is, by the slot of its I/O.
    kinds: Vec<Kind>,
    window: Window,
    /// Windows that were over, learnt from or not.
    over: u64,
    /// Windows that others had learnt from before.
    imported: u64,
    /// Over all windows that were learnt from: I/Os and bytes by kind.
    ios: [u64; KINDS],
    bytes: [u64; KINDS],
}

/// What an I/O in flight is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Not in flight, or from before anybody looked.
    Unknown,
    /// It moves no data.
    Other,
    /// The kind's number.
    Data(u8),
}

/// What is counted anew in each window.
#[derive(Clone, Debug)]
struct Window {
    from: Nanos,
    /// Until when time is counted.
    seen: Nanos,
    /// Time in which the device had not enough to do. A flush beside enough of what has a cost is
    /// none of it: a database always has one in flight, and its costs are learnt as they are beside
    /// it.
    slack: Nanos,
    /// I/Os in flight that move data.
    data: u32,
    /// I/Os with data that ended.
    ended: u32,
    failed: bool,
    counts: [u64; COSTS],
    ios: [u32; KINDS],
    bytes: [u64; KINDS],
}

impl CostEstimator {
    /// Of a device of which nothing is known but this.
    pub fn new(now: Nanos, spec: &DeviceSpec) -> CostEstimator {
        CostEstimator {
            filter: Filter::new(prior::costs(spec)),
            run: Run::NONE,
            kinds: vec![Kind::Unknown; spec.io_slots() as usize],
            window: Window::new(now),
            over: 0,
            imported: 0,
            ios: [0; KINDS],
            bytes: [0; KINDS],
        }
    }

    /// An I/O goes to the device, of which it moves so many bytes. `depth`: I/Os in flight at most,
    /// as things stand and by the dispatcher.
    pub fn started(&mut self, now: Nanos, io: &DeviceIo, bytes: u32, depth: u32) {
        let window = &mut self.window;
        window.pass(now, enough(depth));
        let kind = &mut self.kinds[io.id.index()];
        if bytes == 0 {
            *kind = Kind::Other;
            return;
        }
        let access = match self.run.started(io) {
            true => Access::Sequential,
            false => Access::Random,
        };
        let number = number(Direction::of(io.op), access);
        window.data += 1;
        *kind = Kind::Data(number as u8);
    }

    /// Counts an I/O that has ended. Returns whether a window that says something is over by that.
    pub fn ended(&mut self, now: Nanos, io: &DeviceIo, well: bool, depth: u32) -> bool {
        let window = &mut self.window;
        window.pass(now, enough(depth));
        window.failed |= !well;
        match core::mem::replace(&mut self.kinds[io.id.index()], Kind::Unknown) {
            Kind::Other => {}
            // It started before anybody looked.
            Kind::Unknown => window.failed = true,
            Kind::Data(kind) => {
                let kind = usize::from(kind);
                window.count(kind, io.len);
                window.ios[kind] += 1;
                window.bytes[kind] += u64::from(io.len);
                window.data -= 1;
                window.ended += 1;
            }
        }
        window.is_over() && self.close()
    }

    /// A VM's slot is another one's now.
    pub fn forget(&mut self, vm: VmId) {
        self.run.forget(vm);
    }

    /// Closes the window. Returns whether it said something.
    #[cold]
    #[inline(never)]
    fn close(&mut self) -> bool {
        self.over += 1;
        let window = &self.window;
        let says_something = window.says_something();
        if says_something {
            let mut ios = [0.0; COSTS];
            for (ios, &count) in ios.iter_mut().zip(&window.counts) {
                *ios = count as f64 / ONE as f64;
            }
            let len = window.seen.since(window.from);
            self.filter.learn(&ios, len.0 as f64);
            for kind in 0..KINDS {
                self.ios[kind] += u64::from(window.ios[kind]);
                self.bytes[kind] += window.bytes[kind];
            }
        }
        self.window.restart();
        says_something
    }

    /// Returns the number of windows that are over, whether they said something or not.
    #[inline]
    pub fn over(&self) -> u64 {
        self.over
    }

    /// What was learnt, to be kept beyond the engine's life; `None`: nothing since it was made, or
    /// since [`CostEstimator::import`].
    pub fn export(&self) -> Option<Blob> {
        if self.filter.windows() == self.imported {
            return None;
        }
        let mut blob = Blob::new(PART, VERSION);
        for kind in 0..KINDS {
            blob.push_u64(self.ios[kind]).push_u64(self.bytes[kind]);
        }
        self.filter.export(&mut blob);
        Some(blob)
    }

    /// Goes on with what was learnt of the device before, less sure of it, as where the device is
    /// another one by now: it counts at once, is not known until it is seen again, and is soon
    /// learnt anew where that shows something else.
    ///
    /// # Errors
    /// When it is not that, or cannot be. Then nothing has changed.
    pub fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let mut fields = learnt.fields(PART, VERSION)?;
        let (mut ios, mut bytes) = ([0; KINDS], [0; KINDS]);
        for kind in 0..KINDS {
            // Sums that cannot be do no harm: they are only shown.
            (ios[kind], bytes[kind]) = (fields.u64()?.min(MOST), fields.u64()?.min(MOST));
        }
        let mut filter = self.filter.clone();
        filter.import(&mut fields)?;
        fields.end()?;
        (self.ios, self.bytes) = (ios, bytes);
        self.imported = filter.windows();
        self.over = self.over - self.filter.windows() + filter.windows();
        self.filter = filter;
        Ok(())
    }

    /// What a request of a pattern takes of the saturated device: 1 / P of equation 3.
    pub fn cost(&self, pattern: &Pattern) -> LearntCost {
        self.cost_of(&parts(pattern), bytes(pattern))
    }

    /// The same in picoseconds, without how sure it is, which takes longer to say.
    pub fn time_ps(&self, pattern: &Pattern) -> f64 {
        self.filter.cost(&weights(&parts(pattern), bytes(pattern))) * 1000.0
    }

    /// What an I/O of such parts of the kinds costs.
    fn cost_of(&self, parts: &[f64; KINDS], bytes: u32) -> LearntCost {
        let weights = weights(parts, bytes);
        let ns = self.filter.cost(&weights);
        // Each cost is positive, so their sum is.
        let within = match self.filter.windows() {
            0 => f64::INFINITY,
            _ => INTERVAL * self.filter.variance(&weights).sqrt() / ns,
        };
        LearntCost {
            time_ps: ns * 1000.0,
            within,
        }
    }

    /// Number of windows that were learnt from: where it stays, no cost has changed.
    pub fn windows(&self) -> u64 {
        self.filter.windows()
    }

    /// What was learnt so far.
    pub fn learnt(&self) -> Learnt {
        let kind = |direction, access| {
            let kind = number(direction, access);
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
        Learnt {
            windows: self.filter.windows(),
            idle_windows: self.over - self.filter.windows(),
            kinds: [
                kind(Direction::Read, Access::Sequential),
                kind(Direction::Read, Access::Random),
                kind(Direction::Write, Access::Sequential),
                kind(Direction::Write, Access::Random),
            ],
        }
    }

    /// Returns a profile made of the learnt costs, pessimistic where those are uncertain, and
    /// whether promises can be judged by it: what was seen is known to within
    /// [`LearntCost::JUDGED`]. It has no latencies, and no mixes: costs are learnt among all that
    /// there is.
    pub fn profile(&self) -> (Profile, bool) {
        let profile = self.profile_of(|parts, bytes| self.cost_of(parts, bytes).pessimistic_ps());
        (profile, self.learnt().within() <= LearntCost::JUDGED)
    }

    /// Returns a profile made of the learnt costs as they are expected to be, however sure that is:
    /// for shares of the device, where a cost that is too high is as unjust as one that is too low.
    pub fn expected(&self) -> Profile {
        self.profile_of(|parts, bytes| self.filter.cost(&weights(parts, bytes)) * 1000.0)
    }

    /// Returns a profile by the picoseconds of I/Os of such parts of the kinds and such a size.
    fn profile_of(&self, time_ps: impl Fn(&[f64; KINDS], u32) -> f64) -> Profile {
        let curve = |direction, access| {
            let mut parts = [0.0; KINDS];
            parts[number(direction, access)] = 1.0;
            let points: [_; NODES] = core::array::from_fn(|node| {
                let bytes = 1 << (SMALLEST as usize + node);
                (bytes, (1e12 / time_ps(&parts, bytes)).clamp(1e-6, 1e12))
            });
            Curve::new(&points).expect("sizes rise and rates are in range")
        };
        let both = |direction| [Access::Sequential, Access::Random].map(|it| curve(direction, it));
        let (reads, writes) = (both(Direction::Read), both(Direction::Write));
        Profile::new(reads, Some(writes), Vec::new(), Vec::new())
    }

    /// By how much a VM's share is to be varied in the window that goes on, as a part of it, so
    /// that costs can be told apart: at most a half either way, by how unsure its cost is
    /// ([`LearntCost::within`]). Over two windows its mean is 0.
    pub fn dither(&self, vm: VmId, within: f64) -> f64 {
        let by = (2.0 * within).clamp(DITHER[0], DITHER[1]);
        match self.dithers_up(vm) {
            true => by,
            false => -by,
        }
    }

    /// Returns whether [`CostEstimator::dither`] is positive in the window that goes on.
    #[inline]
    pub fn dithers_up(&self, vm: VmId) -> bool {
        let pair = mix(((self.over / 2) << 32) | u64::from(vm.index));
        (pair ^ self.over) & 1 == 0
    }
}

impl Window {
    fn new(now: Nanos) -> Window {
        Window {
            from: now,
            seen: now,
            slack: Nanos::ZERO,
            data: 0,
            ended: 0,
            failed: false,
            counts: [0; COSTS],
            ios: [0; KINDS],
            bytes: [0; KINDS],
        }
    }

    /// The next one begins; what is in flight is so still.
    fn restart(&mut self) {
        *self = Window {
            data: self.data,
            ..Window::new(self.seen)
        };
    }

    /// Time passes, as things stand.
    fn pass(&mut self, now: Nanos, enough: u32) {
        let span = now.since(self.seen);
        self.seen = self.seen.max(now);
        if self.data < enough {
            self.slack += span;
        }
    }

    /// An I/O of a kind ends.
    fn count(&mut self, kind: usize, bytes: u32) {
        for (node, part) in nodes(bytes) {
            self.counts[kind * NODES + node] += part;
        }
    }

    fn is_over(&self) -> bool {
        let len = self.seen.since(self.from);
        len >= SHORTEST && (self.ended >= IOS || len >= LONGEST)
    }

    fn says_something(&self) -> bool {
        let len = self.seen.since(self.from);
        let full = self.slack.0.saturating_mul(20) <= len.0;
        // Much longer than a window should be: nobody looked, the machine may have stood still.
        full && !self.failed && self.ended >= FEWEST && len <= Nanos(2 * LONGEST.0)
    }
}

/// I/Os in flight with which a device has enough to do that may have so many at most.
fn enough(depth: u32) -> u32 {
    ENOUGH.min((depth * 3).div_ceil(4))
}

/// A kind's place among them.
fn number(direction: Direction, access: Access) -> usize {
    direction as usize * 2 + access as usize
}

/// Bytes of an I/O at a node.
fn node_bytes(node: usize) -> f64 {
    f64::from(1_u32 << (SMALLEST as usize + node))
}

/// Between which two nodes a size lies, and how much of an I/O it is of each. Beyond the last it is
/// more of that one; below the first it is all of it.
fn nodes(bytes: u32) -> [(usize, u64); 2] {
    let log = bytes.max(1).ilog2();
    let largest = SMALLEST + NODES as u32 - 1;
    if log < SMALLEST {
        return [(0, ONE), (1, 0)];
    }
    if log >= largest {
        return [
            (NODES - 2, 0),
            (NODES - 1, (ONE * u64::from(bytes)) >> largest),
        ];
    }
    let at = (log - SMALLEST) as usize;
    let beyond = u64::from(bytes) - (1 << log);
    let high = (beyond * ONE) >> log;
    [(at, ONE - high), (at + 1, high)]
}

/// What parts of a pattern's requests are of each kind.
fn parts(pattern: &Pattern) -> [f64; KINDS] {
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

/// An I/O of such parts of the kinds in the costs that are estimated: which, and how much of each.
fn weights(parts: &[f64; KINDS], bytes: u32) -> Few {
    let near = nodes(bytes).map(|(node, of_one)| (node, of_one as f64 / ONE as f64));
    core::array::from_fn(|at| {
        let (kind, (node, of_one)) = (at / 2, near[at % 2]);
        (kind * NODES + node, parts[kind] * of_one)
    })
}
