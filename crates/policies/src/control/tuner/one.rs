//! The tuner of one VM.
//!
//! ```text
//!   asleep --a request--> profiling (L by L, 1 s each) --> tuning --nothing left inside--> asleep
//! ```

mod act;
mod learnt;

use super::TunerParams;
use super::action::{Action, LASTS};
use super::measure::{Amount, Span};
use super::paced::{self, Paced};
use super::range::Range;
use super::target::TargetRevision;
use super::throughput::Throughput;
use super::window::WindowRevision;
use crate::control::LastQuiet;
use crate::regulate::merge_limit::{ONE_IO, PAGE};
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Rate;
use tidegate_base::precision;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::facts::Facts;
use tidegate_core::roles::{Knob, Knobs};
use tidegate_core::tuning::{Inadequate, Throttle, Tuning};

/// So much of the aim is carried from window to window at most, too much or too little.
const CARRIED_S: u128 = 2;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Tuner {
    pub params: TunerParams,
    /// What is held, in bytes a second and in IOPS.
    pub target: Rate,
    /// L at most.
    pub top: u32,
    /// The throttle holds the target at all times; `None`: TA, TR and WR do.
    pub paced: Option<Paced>,
    pub action: Action,
    pub windows: WindowRevision,
    /// What TA aims at; nothing where only IOPS are held.
    pub aim: Option<TargetRevision>,
    pub throughput: Option<Throughput>,
    pub range: Range,
    profiling: bool,
    /// The window and the second that run; `None`: asleep.
    spans: Option<[Span; 2]>,
    /// What moved in each second of the statistical interval in which the VM asked for its target.
    samples: Vec<u64>,
    /// What moves in the second in which tuning begins was begun before.
    begins: bool,
    /// The statistical interval is the one in which tuning began: it shows the way to the target.
    on_its_way: bool,
    precision: Option<(i64, u64)>,
    quiet: LastQuiet,
    /// What could be had of late, while it is less than the target.
    had: Amount,
    /// How the knobs stand.
    turned: Option<(u32, Throttle)>,
    /// What a throttle was late by is of another target.
    anew: bool,
    /// Something was learnt that is worth keeping.
    pub learnt: bool,
}

impl Tuner {
    pub(super) fn new(params: TunerParams, device: &DeviceSpec, target: &Rate) -> Tuner {
        let most = if params.paced {
            u32::MAX
        } else {
            params.max_ml
        };
        let top = most.min(device.max_io / PAGE).max(1);
        let profiling = params.profiling && !params.paced;
        let mut tuner = Tuner {
            params,
            target: Rate::NONE,
            top,
            paced: params.paced.then(|| Paced::new(top)),
            action: Action::new(top, true),
            windows: WindowRevision::new(params.window_terms()),
            aim: None,
            throughput: None,
            range: Range::new(if profiling { top } else { 0 }),
            profiling,
            spans: None,
            samples: Vec::with_capacity(params.interval_s as usize),
            begins: true,
            on_its_way: true,
            precision: None,
            quiet: LastQuiet::default(),
            had: Amount::default(),
            turned: None,
            anew: false,
            learnt: false,
        };
        tuner.change(target);
        tuner.profiling &= tuner.aim.is_some();
        tuner
    }

    /// The target may be another one.
    pub(super) fn change(&mut self, target: &Rate) {
        if *target == self.target {
            return;
        }
        self.target = *target;
        self.aim = target.bytes_per_s.map(TargetRevision::new);
        let ios = target.ops.map(|ops| ops.per_s.saturating_mul(1000));
        self.throughput = ios.map(Throughput::new);
        self.windows.objective_changed();
        self.samples.clear();
        self.precision = None;
        self.had = Amount::default();
        self.begin_tuning();
    }

    /// Where the range or the mean size says that the target is. Where neither does, where tuning
    /// is: what the throttle holds it holds at another rate, too, and a limit is as good as another
    /// to begin with.
    fn begin_tuning(&mut self) {
        let (limit, throttled) = match (&self.aim, &self.throughput) {
            (Some(aim), None) if self.range.is_whole() => {
                self.action.top = self.range.best();
                self.range.begin_at(aim.aim)
            }
            (Some(aim), Some(throughput)) => {
                self.action.top = self.top;
                let size = u128::from(aim.aim) * 1000 / u128::from(throughput.target);
                let pages = size / u128::from(PAGE);
                (u32::try_from(pages).unwrap_or(u32::MAX), false)
            }
            _ => (self.action.limit, self.action.throttled),
        };
        self.action.restart(limit, throttled);
        if let Some(paced) = &mut self.paced {
            paced.begin(self.aim.map_or(0, |aim| aim.objective), self.params.grain);
            self.anew = true;
        }
        (self.begins, self.on_its_way) = (true, true);
    }

    /// What the target is in, and how much of that a second.
    fn held(&self) -> (u64, fn(&Amount) -> u64) {
        match (&self.aim, &self.throughput) {
            (None, Some(throughput)) => (throughput.target, |amount| amount.ios),
            (aim, _) => (aim.map_or(0, |aim| aim.objective), |amount| amount.bytes),
        }
    }

    fn window(&self) -> Nanos {
        match (&self.paced, &self.throughput) {
            (None, _) => Nanos::from_millis(self.windows.window),
            (Some(_), Some(held)) => paced::window(ONE_IO, held.target),
            (Some(paced), None) => paced::window(paced.bytes().into(), self.held().0),
        }
    }

    /// A request came of a VM that had none inside last since `quiet_since`. Returns when the
    /// windows end next, if the tuner slept so far.
    pub(super) fn asked(
        &mut self,
        now: Nanos,
        amount: Amount,
        quiet_since: Nanos,
    ) -> Option<Nanos> {
        let quiet = self.quiet.ended(quiet_since);
        let window = self.window();
        let slept = self.spans.is_none();
        let begun = || [window, Nanos::SECOND].map(|length| Span::new(now, length));
        let spans = self.spans.get_or_insert_with(begun);
        for span in spans.iter_mut() {
            span.asked(now, amount, quiet);
        }
        self.due().filter(|_| slept)
    }

    /// A device I/O ended.
    pub(super) fn ended(&mut self, amount: Amount) {
        for span in self.spans.iter_mut().flatten() {
            span.ended(amount);
        }
    }

    /// A window ended, or a second, or both. Returns when the next one does; `None`: it sleeps.
    pub(super) fn tick(&mut self, facts: &Facts, vm: VmId) -> Option<Nanos> {
        let now = facts.now();
        let [mut window, mut second] = self.spans?;
        let (per_s, of) = self.held();
        if window.due <= now {
            let late = now.since(window.due).0 > window.due.since(window.begun).0 / 2;
            if !self.profiling && !late && window.asks_for(facts, vm, per_s, of) {
                self.act(facts, vm, &window);
            }
            if window.is_empty(facts, vm) {
                self.spans = None;
                return None;
            }
            window = Span::new(now, self.window());
        }
        if second.due <= now {
            if second.asks_for(facts, vm, per_s, of) {
                match self.profiling {
                    true => self.profiled(second.rate(now, |amount| amount.bytes)),
                    false => self.sampled(second.rate(now, of)),
                }
            }
            second = Span::new(now, Nanos::SECOND);
        }
        self.spans = Some([window, second]);
        Some(window.due.min(second.due))
    }

    /// A merge limit has had its second.
    fn profiled(&mut self, bandwidth: u64) {
        self.range.found(bandwidth);
        if self.range.is_whole() {
            self.profiling = false;
            self.learnt = true;
            self.begin_tuning();
        }
    }

    /// A second has passed in which the VM asked for its target; after enough of them TR and WR.
    fn sampled(&mut self, moved: u64) {
        if core::mem::take(&mut self.begins) {
            return;
        }
        self.samples.push(moved);
        if self.samples.len() < self.params.interval_s as usize {
            return;
        }
        let error = precision::error(&self.samples, self.held().0);
        let variability = precision::variability(&self.samples);
        self.samples.clear();
        let (Some(error), Some(variability)) = (error, variability) else {
            return;
        };
        self.precision = Some((error, variability));
        // What the device does not do is no reason to aim higher, or to search.
        if self.short_since().is_some() {
            return;
        }
        self.learnt = true;
        if self.paced.is_some() {
            return;
        }
        let on_its_way = core::mem::take(&mut self.on_its_way);
        if let Some(aim) = &mut self.aim
            && self.params.revise_target
            && !on_its_way
        {
            aim.step(error, &self.params.target_terms());
        }
        self.windows.step(variability, error.unsigned_abs());
    }

    /// How the knobs are to stand; no merge limit: as the device has it.
    fn knobs(&self) -> (Option<u32>, Throttle) {
        if self.profiling {
            return (Some(self.range.next() * PAGE), Throttle::Off);
        }
        let throttle = match (&self.throughput, &self.aim) {
            (Some(held), _) => Throttle::Ios(held.rate),
            (None, Some(aim)) if self.paced.is_some() || self.action.throttled => {
                Throttle::Exactly(aim.aim)
            }
            (None, Some(aim)) if self.params.headroom > 0 => {
                let above = u128::from(aim.aim) * u128::from(self.params.headroom) / 100;
                let above = u64::try_from(above).unwrap_or(u64::MAX);
                Throttle::AtMost(aim.aim.saturating_add(above))
            }
            (None, _) => Throttle::Off,
        };
        let limit = match &self.paced {
            Some(paced) if self.throughput.is_none() => paced.bytes(),
            _ => self.action.bytes(),
        };
        (self.aim.map(|_| limit), throttle)
    }

    /// Turns the knobs that do not stand as they are to.
    pub(super) fn turn(&mut self, vm: VmId, out: &mut Knobs) {
        let (limit, throttle) = self.knobs();
        let limit = limit.unwrap_or(u32::MAX);
        if self.turned.is_none_or(|turned| turned.0 != limit) {
            out.turn(vm, Knob::MergeLimit(limit));
        }
        if self.turned.is_none_or(|turned| turned.1 != throttle) {
            out.turn(vm, Knob::Throttle(throttle));
        }
        if core::mem::take(&mut self.anew) {
            out.turn(vm, Knob::Lateness(paced::LATENESS));
        }
        self.turned = Some((limit, throttle));
    }

    /// The VM has no target any more: it has what it had without a tuner.
    pub(super) fn release(&mut self, vm: VmId, out: &mut Knobs) {
        out.turn(vm, Knob::MergeLimit(u32::MAX));
        out.turn(vm, Knob::Throttle(Throttle::Off));
        if self.paced.is_some() {
            out.turn(vm, Knob::Lateness(Nanos::ZERO));
        }
    }

    /// For people.
    pub(super) fn told(&self, now: Nanos) -> Tuning {
        let (merge_limit, throttle) = self.knobs();
        let since = self
            .short_since()
            .filter(|&since| now.since(since) >= LASTS);
        Tuning {
            merge_limit,
            throttle,
            window: self.window(),
            settled: self.paced.is_some() || !self.windows.searching,
            aim: self.aim.map(|aim| aim.aim),
            range: self.range.told(),
            profiling: self.profiling.then(|| self.range.progress()),
            precision: self.precision,
            inadequate: since.map(|since| Inadequate {
                since,
                bytes_per_s: self.had.bytes,
                ios_per_s: self.had.ios,
            }),
        }
    }

    /// The bandwidths by merge limit are known from elsewhere.
    pub(super) fn know(&mut self, range: Range) {
        self.range = range;
        self.profiling = false;
        self.begin_tuning();
    }

    /// The bandwidths by merge limit are those of another disk.
    pub(super) fn profile_anew(&mut self) {
        self.profiling = self.params.profiling && self.aim.is_some();
        self.range = Range::new(if self.profiling { self.top } else { 0 });
        self.action.top = self.top;
        self.begin_tuning();
    }

    /// What was learnt elsewhere is in force.
    pub(super) fn go_on(&mut self) {
        self.learnt = true;
        self.samples.clear();
        self.precision = None;
        let window = self.window();
        if let Some([running, _]) = &mut self.spans {
            running.due = running.due.min(running.begun + window);
        }
    }

    /// When its window or its second ends next; `None`: it sleeps.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.spans.map(|spans| spans[0].due.min(spans[1].due))
    }
}
