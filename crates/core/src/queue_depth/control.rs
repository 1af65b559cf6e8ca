//! Adaptive queue depth: the smallest that keeps the device busy.
//!
//! I/Os at the device are served in the device's order, and a request that arrives waits behind all
//! of them; units in the engine are served in the policy's order. So of all depths that deliver the
//! same work, the smallest is the best: the product of the rate at which the device delivers work
//! and the time that an unloaded device takes for it (bandwidth-delay product). Below it, twice the
//! depth delivers up to twice the work in the same service time; above it, the work stays and the
//! service time grows.
//!
//! ```text
//!            +5 % or more: twice the depth
//!              +------+                         +-- delivers as much: depth = candidate --+
//!              v      |                         v                                         |
//!   begin --> GROW ---+--less than 5 %--> DESCEND: half the depth, or three quarters -----+
//!              ^                      ^         |
//!              |   not full: UNFILLED +         +-- nothing smaller delivers as much
//!              |                                v
//!              +-- twice delivers more -- HOLD: pause, then twice the depth, a smaller one or
//!              +-- the load has changed ---+   another length of parts by turns
//! ```
//!
//! - **Work** is the cost of an I/O at the device: by the profile (flash: as if sequential), or its
//!   bytes with a floor, below which a device's time for an I/O hardly falls ([`IoWork`]). I/Os
//!   that move no data or fail are no work.
//! - **Begin** at 4, or at 2 where seeks dominate, or at what the bound allows. The depth starts
//!   small and grows, never the other way round, so that the first requests of a guest meet a short
//!   queue. Doubling takes 32 completions, more where their rate is irregular.
//! - **Rates** are compared by their standard errors ([`Rate`]): a regular device is judged after
//!   32 completions, an irregular one after up to 256 or 100 ms. I/Os in flight at a change of
//!   depth do not count.
//! - **An unsteady device**, such as a cloud disk, differs from one measurement to the next by more
//!   than their standard errors. The difference is learnt where two measurements of one depth
//!   follow each other, and is part of the error of each comparison ([`RateNoise`]).
//! - **A smaller depth is enough** when it delivers as much as the one in force before and after
//!   it, but for what may be given up ([`DepthTuning`]). An uncertain comparison favours the
//!   smaller depth on flash, or chance would raise the depth now and then, and nothing would lower
//!   it; for at most 3 % of the work if the device is steady. On a disk with seeks it leaves the
//!   larger depth, since a queue that is too short costs work there.
//! - **Length of parts.** Without a profile, the length of the parts in which long I/Os are sent is
//!   tried as well, because a device may need a shorter queue of longer I/Os ([`PartLength`]).
//! - **Only a full depth shows that more is needed.** Where fewer are outstanding than the depth
//!   allows, or the policy holds them back, it does not grow; twice the depth need not be filled to
//!   be judged on flash. There it falls to the most that was in flight, and is then reduced as
//!   usual: a few guests with shallow queues can keep a device busy without ever filling its queue.
//! - **The load has changed** when the mean work of an I/O, or the rate, differs by a factor of
//!   1.5. The depth is divided at once by the growth of an I/O's work, so that the work in flight
//!   stays, and grows again from there. A depth below the one to begin with at which the rate
//!   collapses is left at once.
//! - **Bounds.** The depth is at most the configured one, at most a number given from outside
//!   ([`DepthBound`]), and at most what keeps the work in flight within a time given from outside
//!   ([`Budget`]). Where a bound costs work, the bound wins.

mod comparison;
mod load_change;
mod part_length;
mod rate_collapse;
mod search_phase;

use super::bound::{DepthBound, DepthReason, DepthTuning, DepthView};
use super::io_work::IoWork;
use super::rate::{BATCH, Rate, RateMeter};
use super::rate_noise::RateNoise;
use crate::seek_bound::seeks_dominate;
use comparison::{ENDS_MAX, ENDS_MIN, LONG};
use load_change::LoadChange;
use part_length::PartLength;
use search_phase::Phase;
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{Op, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;

/// Depth to begin with on flash, and where seeks dominate. A disk with seeks never gets less: a
/// write-through stream at depth 1 loses a turn for each I/O.
const START_FLASH: u32 = 4;
const START_SEEKS: u32 = 2;
/// Time without measurement after a change of depth on a disk with seeks: read-ahead from before
/// flatters the depth that follows.
const SETTLE_SEEKS: Nanos = Nanos::from_millis(20);
/// Ends without a full depth after which a comparison is given up.
const DROPPED_MAX: u32 = 64;
/// Ends of the longest batch, where there is time to compare.
const BATCH_MAX: u32 = 64;
/// A load is another one when its I/Os or its rate differ by this factor.
const CHANGED: f64 = 1.5;
/// Relative error of the rate of the depth in force beyond which it is measured on, for [`LONG`],
/// since a trial is compared with it.
const VAGUE: f64 = 0.02;
/// Pause between probes: first, longest, and the least multiples of the last measurement's duration
/// before a probe of a larger depth, which loses no work, and of a smaller one.
const PAUSE_MIN: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos(4 * Nanos::SECOND.0);
const PAUSE_UP: u64 = 4;
const PAUSE_DOWN: u64 = 16;
/// Bound of the time that I/Os in flight take, for I/Os of up to `part` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    pub(crate) time: Nanos,
    /// VM whose latency asks for it.
    pub(crate) vm: Option<VmId>,
    /// Bytes of the longest part of an I/O.
    pub(crate) part: u32,
}

/// I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) op: Op,
    /// Bytes that it moved; 0: no work.
    pub(crate) bytes: u32,
    /// I/Os with the device before it ended.
    pub(crate) in_flight: u32,
}

/// Control of one device's queue depth; see the [module](self).
pub(crate) struct DepthControl {
    top: u32,
    /// Smallest depth, and the one to begin with.
    least: u32,
    seeks: bool,
    tuning: DepthTuning,
    /// Depth in force, as far as no bound is below it.
    depth: u32,
    /// Largest depth known to deliver less; 0: none.
    too_small: u32,
    phase: Phase,
    meter: RateMeter,
    /// Completions not counted after a change of depth, and the time until which none is counted.
    settle: u32,
    settle_until: Nanos,
    /// Recognises another load by its heavier I/Os.
    load_change: LoadChange,
    /// Mean work of an I/O of the present load; 0: not known.
    each: f64,
    pause: Nanos,
    /// The next probe goes up.
    up_next: bool,
    /// True if units wait because the depth is full.
    waits: bool,
    work: IoWork,
    /// Bound given from outside.
    bound: Option<DepthBound>,
    /// Bound of the time that what is in flight takes, for the sake of a promised latency.
    budget: Option<Budget>,
    /// Bound by `budget`, once a rate is known.
    budget_depth: u32,
    /// Most I/Os that were in flight since the depth was looked at.
    peak: u32,
    /// Smaller depths are compared with the rate of a load that does not fill this one.
    unfilled: bool,
    /// The depth is the most that the load had in flight, whatever it would do with more.
    trimmed: bool,
    /// Most work per nanosecond that was seen of the present load.
    best: f64,
    /// Latest rate at the depth in force.
    latest: Option<Rate>,
    noise: RateNoise,
    parts: PartLength,
    /// Smaller depths were tried last, so that another length of parts has its turn.
    parts_due: bool,
    /// Consecutive slow batches at a depth below the one to begin with: see
    /// [`rate_collapse`].
    slow_batches: u32,
}

impl DepthControl {
    /// Creates the control of a device.
    pub(crate) fn new(spec: &DeviceSpec, profile: Option<&Profile>, now: Nanos) -> DepthControl {
        assert!(spec.depth > 0, "a device without room for an I/O");
        let mut control = DepthControl {
            top: spec.depth,
            least: 1,
            seeks: false,
            tuning: DepthTuning::Balanced,
            depth: 1,
            too_small: 0,
            phase: Phase::Grow { below: None },
            meter: RateMeter::new(now, BATCH),
            settle: 0,
            settle_until: now,
            load_change: LoadChange::new(now),
            each: 0.0,
            pause: PAUSE_MIN,
            up_next: true,
            waits: false,
            work: IoWork::new(spec, profile, false),
            bound: None,
            budget: None,
            budget_depth: u32::MAX,
            peak: 0,
            unfilled: false,
            trimmed: false,
            best: 0.0,
            latest: None,
            noise: RateNoise::default(),
            parts: PartLength::new(spec.physical_block),
            parts_due: true,
            slow_batches: 0,
        };
        control.set_profile(spec, profile, now);
        control.depth = control.start();
        control
    }

    /// Returns the depth to begin with.
    fn start(&self) -> u32 {
        let start = if self.seeks { START_SEEKS } else { START_FLASH };
        start.min(self.top)
    }

    /// Takes another profile: what was measured in units of the one before is void.
    pub(crate) fn set_profile(&mut self, spec: &DeviceSpec, profile: Option<&Profile>, now: Nanos) {
        self.seeks = seeks_dominate(spec, profile);
        self.least = if self.seeks { START_SEEKS } else { 1 }.min(self.top);
        self.work = IoWork::new(spec, profile, self.seeks);
        self.depth = self.depth.max(self.least);
        self.reset_parts();
        self.begin(now);
    }

    /// Takes what was learnt of whether seeks dominate; measurements go on.
    pub(crate) fn set_seeks(&mut self, seeks: bool) {
        self.seeks = seeks;
        self.reset_parts();
        self.least = if seeks { START_SEEKS } else { 1 }.min(self.top);
        self.depth = self.depth.max(self.least);
    }

    /// Sets how much queueing is allowed.
    pub(crate) fn set_tuning(&mut self, now: Nanos, tuning: DepthTuning) {
        if self.tuning != tuning {
            self.tuning = tuning;
            self.begin(now);
        }
    }

    /// Bounds the depth from outside; `None`: not.
    pub(crate) fn set_bound(&mut self, now: Nanos, bound: Option<DepthBound>) {
        let before = self.most();
        self.bound = bound;
        // The depth was bounded, not found: the search goes on.
        let holds = matches!(self.phase, Phase::Hold { .. });
        if holds && self.depth >= before && self.most() > before {
            self.begin(now);
        }
    }

    /// Bounds the time that what is in flight takes; `None`: not.
    pub(crate) fn set_budget(&mut self, budget: Option<Budget>, profile: Option<&Profile>) {
        self.budget = budget;
        self.reset_parts();
        self.update_budget_depth(profile);
    }

    /// Turns the budget of time into a depth, by the latest rate.
    fn update_budget_depth(&mut self, profile: Option<&Profile>) {
        let Some(budget) = self.budget else {
            self.budget_depth = u32::MAX;
            return;
        };
        let ops = [Op::Read, Op::Write].map(|op| self.work.for_io(profile, op, budget.part));
        let longest = ops[0].max(ops[1]);
        // A rate of small I/Os that do not fill the depth says nothing of large ones: taken for the
        // device's ability, it would keep the depth where it is.
        let latest = self.latest.map_or(0.0, |rate| rate.per_ns);
        let per_ns = self.work.saturated.unwrap_or(0.0).max(latest);
        self.budget_depth = if per_ns > 0.0 {
            (budget.time.0 as f64 * per_ns / longest) as u32
        } else {
            self.start()
        };
        self.budget_depth = self.budget_depth.max(1);
    }

    /// Returns the most that may be in flight by the configuration and all bounds.
    pub(crate) fn most(&self) -> u32 {
        let bound = self.bound.map_or(u32::MAX, |bound| bound.depth.max(1));
        self.top.min(bound).min(self.budget_depth)
    }

    /// Returns the depth in force, without probes.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.min(self.most())
    }

    /// Returns the I/Os that may be in flight now.
    pub(crate) fn limit(&self) -> u32 {
        let limit = match self.phase {
            Phase::Descend { candidate, .. }
            | Phase::Rise { candidate, .. }
            | Phase::Parts { candidate, .. } => candidate,
            _ => self.depth,
        };
        limit.min(self.most())
    }

    /// Returns `true` if the depth that the load needs, or the next one to try, is beyond a bound.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        let most = self.most();
        self.depth >= most && most < self.top
    }

    /// Returns the depth in force and the reason for it.
    pub(crate) fn view(&self) -> DepthView {
        let depth = self.depth();
        let bounded = self.is_bounded() && self.latest.is_some();
        let budget = self.budget.filter(|_| self.budget_depth <= depth);
        let reason = match () {
            () if self.latest.is_none() => DepthReason::Start,
            () if bounded => DepthReason::Bound {
                vm: match budget {
                    Some(budget) => budget.vm,
                    None => self.bound.and_then(|bound| bound.vm),
                },
                cost: self.cost(),
            },
            () if depth == self.top => DepthReason::Whole,
            () => DepthReason::Product,
        };
        DepthView { depth, reason }
    }

    /// Returns the fraction of the device's work that the depth in force costs, where known.
    fn cost(&self) -> Option<f64> {
        let (rate, most) = (self.latest?.per_ns, self.work.saturated);
        let most = most.unwrap_or(self.best).max(self.best);
        (most > 0.0).then(|| (1.0 - rate / most).max(0.0))
    }

    /// Notes that an I/O starts after the device had nothing to do.
    pub(crate) fn was_idle(&mut self, now: Nanos) {
        self.meter.interrupt(now);
    }

    /// Notes that dispatch stops. `waits`: as many I/Os are in flight as may be, and units wait.
    pub(crate) fn dispatch_stopped(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Counts an I/O that has ended.
    pub(crate) fn ended(&mut self, now: Nanos, profile: Option<&Profile>, end: &End) {
        self.peak = self.peak.max(end.in_flight);
        let settles = self.settle > 0 || now < self.settle_until;
        self.settle = self.settle.saturating_sub(1);
        if settles {
            self.meter = self.new_meter(now);
        }
        if end.bytes == 0 {
            return;
        }
        let work = self.work.for_io(profile, end.op, end.bytes);
        // The longer parts of a trial are no other load.
        let is_trial = matches!(self.phase, Phase::Parts { .. });
        let mean_work = if is_trial { 0.0 } else { self.each };
        if self.load_change.ended(work, mean_work) {
            return self.another_load(now, work / self.each);
        }
        let full = self.waits || self.counts_unfilled();
        if !settles && self.meter.ended(now, work, full) {
            self.judge(now);
            if self.budget.is_some() {
                self.update_budget_depth(profile);
            }
        }
    }

    /// Returns `true` if ends count although nothing waits.
    fn counts_unfilled(&self) -> bool {
        match self.phase {
            Phase::Unfilled => true,
            Phase::Rise { .. } => !self.seeks,
            Phase::Confirm { .. } => self.unfilled,
            _ => false,
        }
    }

    /// Looks at the measurement after a batch.
    fn judge(&mut self, now: Nanos) {
        self.load_change.rotate_span(now);
        if self.meter.dropped() >= DROPPED_MAX {
            return self.lose(now);
        }
        if self.has_rate_collapsed() {
            return self.leave_small_depth(now);
        }
        let Some(rate) = self.meter.rate() else {
            return;
        };
        match self.phase {
            Phase::Grow { below: None } => {
                if self.is_first_judged(now, rate.error) {
                    self.note(rate);
                    self.grow(now, rate);
                }
            }
            Phase::Grow { below: Some(below) } => {
                let (gain, error) = self.noise.gain_over(&rate, &below);
                if let Some(pays) = self.verdict(
                    now,
                    gain - self.tuning.growth(),
                    error,
                    self.doubt_of_growth(),
                ) {
                    self.note(rate);
                    if pays {
                        self.too_small = self.depth / 2;
                        self.grow(now, rate);
                    } else {
                        self.fall_back(now, rate, below, gain)
                    }
                }
            }
            Phase::Descend {
                candidate,
                reference,
            } => self.tried(now, rate, candidate, reference),
            Phase::Confirm {
                candidate,
                tried,
                reference,
            } => self.confirm(now, rate, candidate, [tried, reference]),
            Phase::Rise {
                candidate,
                reference,
            } => self.tried_larger(now, rate, candidate, reference),
            Phase::Parts {
                trial, reference, ..
            } => self.tried_parts(now, rate, trial, reference),
            Phase::Unfilled => {
                let long = self.meter.elapsed(now) >= LONG && self.meter.counted() >= ENDS_MIN;
                if long || self.meter.counted() >= ENDS_MAX {
                    self.descend(now, rate);
                }
            }
            // More is outstanding than ever was in flight: the gain is not known yet.
            Phase::Hold { .. } if self.trimmed => self.begin(now),
            Phase::Hold { until, first } => self.held(now, rate, until, first),
        }
    }

    /// Evaluates the measurement of a larger depth.
    fn tried_larger(&mut self, now: Nanos, rate: Rate, candidate: u32, reference: Rate) {
        let (gain, error) = self.noise.gain_over(&rate, &reference);
        // Above what a smaller depth may cost, or the depth would go to and fro.
        let pays = self.loss(&reference) * 1.5;
        match self.compare(now, gain - pays, error, self.doubt()) {
            None => {}
            Some(true) => {
                self.too_small = self.depth;
                self.depth = candidate;
                self.pause = PAUSE_MIN;
                self.note(rate);
                self.grow(now, rate);
            }
            Some(false) => self.hold(now),
        }
    }

    /// Evaluates the measurement of a smaller depth.
    fn tried(&mut self, now: Nanos, rate: Rate, candidate: u32, reference: Rate) {
        let (gain, error) = self.noise.gain_over(&rate, &reference);
        match self.compare(now, gain + self.loss(&reference), error, -self.doubt()) {
            None => {}
            Some(true) => {
                let again = Phase::Confirm {
                    candidate,
                    tried: rate,
                    reference,
                };
                self.change(now, again);
            }
            Some(false) => {
                self.too_small = candidate;
                self.descend(now, reference);
            }
        }
    }

    /// Evaluates the depth in force again, after a smaller one had delivered `tried`.
    fn confirm(&mut self, now: Nanos, rate: Rate, candidate: u32, [tried, reference]: [Rate; 2]) {
        self.noise.update(&reference, &rate);
        let (gain, error) = self.noise.gain_over(&tried, &rate);
        match self.compare(now, gain + self.loss(&rate), error, -self.doubt()) {
            None => {}
            Some(true) => {
                self.depth = candidate;
                self.trimmed = false;
                self.pause = PAUSE_MIN;
                self.note(tried);
                let better = reference.per_ns > rate.per_ns;
                self.descend(now, if better { reference } else { rate });
            }
            Some(false) => {
                self.too_small = candidate;
                self.descend(now, rate);
            }
        }
    }

    /// Records the rate of the depth in force.
    fn note(&mut self, rate: Rate) {
        self.latest = Some(rate);
        self.each = rate.each;
        self.best = self.best.max(rate.per_ns);
    }

    /// Doubles the depth, or goes on to smaller ones where a bound forbids it.
    fn grow(&mut self, now: Nanos, rate: Rate) {
        let twice = (self.depth * 2).min(self.most());
        if twice <= self.depth {
            self.depth = self.depth.min(self.most());
            return self.descend(now, rate);
        }
        self.depth = twice;
        self.change(now, Phase::Grow { below: Some(rate) });
    }

    /// Goes back after a doubling that gained no more than may be given up.
    fn fall_back(&mut self, now: Nanos, rate: Rate, below: Rate, gain: f64) {
        let half = self.depth.div_ceil(2);
        if gain > self.loss(&below) {
            self.too_small = half;
            return self.descend(now, rate);
        }
        self.depth = half.max(self.least);
        self.latest = Some(below);
        self.descend(now, below);
    }

    /// Tries the next smaller depth that may deliver as much.
    fn descend(&mut self, now: Nanos, reference: Rate) {
        let (half, less) = (self.depth / 2, self.depth * 3 / 4);
        let may = |depth: u32| depth > self.too_small && depth >= self.least && depth < self.depth;
        match [half, less].into_iter().find(|&depth| may(depth)) {
            Some(candidate) => self.change(
                now,
                Phase::Descend {
                    candidate,
                    reference,
                },
            ),
            None => self.hold(now),
        }
    }

    fn hold(&mut self, now: Nanos) {
        let times = if self.up_next { PAUSE_UP } else { PAUSE_DOWN };
        let probe = Nanos(self.meter.elapsed(now).0 * times);
        let until = now + self.pause.max(probe);
        self.unfilled = false;
        self.pause = PAUSE_MAX.min(self.pause + self.pause);
        self.change(now, Phase::Hold { until, first: None });
    }

    /// Evaluates a window of the depth in force: looks for another load, or begins a probe that is
    /// due.
    fn held(&mut self, now: Nanos, rate: Rate, until: Nanos, first: Option<Rate>) {
        let long = self.meter.elapsed(now) >= LONG && self.meter.counted() >= ENDS_MIN;
        let is_vague = rate.error > VAGUE && !self.seeks;
        if !long && (self.meter.counted() < ENDS_MAX || is_vague) {
            return;
        }
        let before = self.latest;
        self.note(rate);
        let ratio = |now: f64, before: f64| (now / before).max(before / now);
        let mut until = until;
        match (first, before) {
            (Some(first), before) => {
                if let Some(before) = before {
                    self.noise.update(&before, &rate);
                }
                let other = ratio(rate.each, first.each) > CHANGED;
                if other || ratio(rate.per_ns, first.per_ns) > CHANGED {
                    return self.another_load(now, rate.each / first.each);
                }
            }
            // The load may have changed before this phase was first measured: a probe will tell.
            (None, Some(before)) => {
                if !self.seeks && rate.per_ns * CHANGED < before.per_ns {
                    (until, self.up_next) = (now, true);
                }
            }
            (None, None) => {}
        }
        let first = first.unwrap_or(rate);
        if now >= until {
            return self.probe(now, rate);
        }
        self.phase = Phase::Hold {
            until,
            first: Some(first),
        };
        self.meter = self.new_meter(now);
    }

    /// Begins a trial of a larger or a smaller depth, by turns.
    fn probe(&mut self, now: Nanos, reference: Rate) {
        self.best = reference.per_ns;
        let twice = (self.depth * 2).min(self.most());
        if self.up_next && self.try_parts(now, reference) {
            return;
        }
        let up = self.up_next;
        self.up_next = !up;
        self.parts_due = !up;
        if up && twice > self.depth {
            let candidate = twice;
            return self.change(
                now,
                Phase::Rise {
                    candidate,
                    reference,
                },
            );
        }
        // Half of the depth costs a disk with seeks too much time to try.
        self.too_small = if self.seeks { self.depth / 2 } else { 0 };
        self.descend(now, reference);
    }

    /// Handles another load, whose work per I/O is `grown` times that before or whose rate differs.
    fn another_load(&mut self, now: Nanos, grown: f64) {
        let each = self.each;
        if grown > CHANGED {
            let depth = f64::from(self.depth) / grown;
            self.depth = (depth as u32).max(self.least);
        }
        self.begin(now);
        // A window in which the load changed shows only a part of it, which the next ones complete.
        self.each = if grown > CHANGED { each * grown } else { each };
    }

    /// Begins anew from the depth in force.
    fn begin(&mut self, now: Nanos) {
        self.pause = PAUSE_MIN;
        (self.too_small, self.slow_batches) = (0, 0);
        (self.each, self.best) = (0.0, 0.0);
        (self.unfilled, self.trimmed) = (false, false);
        self.change(now, Phase::Grow { below: None });
    }

    /// Handles a depth that is not full: comparable with less, but not with more.
    fn lose(&mut self, now: Nanos) {
        let peak = core::mem::take(&mut self.peak);
        let may_shrink = self.depth > self.start() && !self.seeks;
        match self.phase {
            Phase::Grow { .. } if may_shrink => self.shrink(now, peak),
            Phase::Hold { until, .. } if may_shrink && now >= until => self.shrink(now, peak),
            Phase::Grow { .. } => self.change(now, Phase::Grow { below: None }),
            Phase::Hold { .. } => self.meter = self.new_meter(now),
            _ => self.hold(now),
        }
    }

    /// Compares a load that never fills the depth with less, which may deliver as much.
    fn shrink(&mut self, now: Nanos, peak: u32) {
        let peak = peak.max(self.start());
        if peak < self.depth {
            (self.depth, self.trimmed) = (peak, true);
        }
        (self.unfilled, self.too_small) = (true, 0);
        self.change(now, Phase::Unfilled);
    }

    /// Returns a measurement for the phase: short batches where the depth grows, so that it grows
    /// fast.
    fn new_meter(&self, now: Nanos) -> RateMeter {
        let batch = match self.phase {
            Phase::Grow { .. } => BATCH,
            _ => (self.depth * 2).clamp(BATCH, BATCH_MAX),
        };
        RateMeter::new(now, batch)
    }

    /// Enters a phase. What is in flight by now belongs to the one before.
    fn change(&mut self, now: Nanos, phase: Phase) {
        let before = self.limit();
        debug_assert!(
            (1..=self.top).contains(&self.depth),
            "a depth of {} on a device of {}",
            self.depth,
            self.top
        );
        self.phase = phase;
        self.load_change.interrupt();
        self.meter = self.new_meter(now);
        let after = self.limit();
        if before != after {
            self.settle = before.max(after);
            if self.seeks {
                self.settle_until = now + SETTLE_SEEKS;
            }
        }
    }
}

#[cfg(test)]
mod tests;
