//! Tuner of one VM: sets its merge limit and throttle so that the VM holds its target.
//!
//! ```text
//!   asleep --a request--> profiling (L by L, 1 s each) --> tuning --nothing left inside--> asleep
//! ```

mod state_blob;
mod window_end;

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
use tidegate_core::roles::{Knob, Knobs};
use tidegate_core::tuning::{Inadequate, Throttle, Tuning};
use tidegate_core::view::View;

/// Seconds of the aim that are carried from window to window at most, as excess or shortfall.
const CARRIED_S: u128 = 2;

/// Tuner of one VM; see the [module](self).
#[derive(Debug)]
pub(super) struct VmTuner {
    pub params: TunerParams,
    /// Target, in bytes a second and in IOPS.
    pub target: Rate,
    /// Largest merge limit L, in pages.
    pub top: u32,
    /// State of the paced tuner, whose throttle holds the target at all times; `None`: TA, TR and
    /// WR hold it.
    pub paced: Option<Paced>,
    pub action: Action,
    pub windows: WindowRevision,
    /// Bandwidth that TA aims at, revised by TR; `None` if only IOPS are held.
    pub aim: Option<TargetRevision>,
    pub throughput: Option<Throughput>,
    pub range: Range,
    profiling: bool,
    /// Current window and current second; `None`: the tuner sleeps.
    spans: Option<[Span; 2]>,
    /// Amount moved in each second of the statistical interval in which the VM asked for its
    /// target.
    samples: Vec<u64>,
    /// The running second began before tuning did, so its sample is discarded.
    begins: bool,
    /// The statistical interval is the first one of tuning, still on the way to the target.
    on_its_way: bool,
    precision: Option<(i64, u64)>,
    quiet: LastQuiet,
    /// Recent mean rate, bytes and IOPS a second, while it is below the target.
    had: Amount,
    /// Merge limit in bytes and throttle, as last set; `None`: not set yet.
    turned: Option<(u32, Throttle)>,
    /// The lateness that the throttle has learnt is of an earlier target and must be reset.
    anew: bool,
    /// Learnt state worth exporting exists.
    pub learnt: bool,
}

impl VmTuner {
    pub(super) fn new(params: TunerParams, device: &DeviceSpec, target: &Rate) -> VmTuner {
        let most = if params.paced {
            u32::MAX
        } else {
            params.max_ml
        };
        let top = most.min(device.max_io / PAGE).max(1);
        let profiling = params.profiling && !params.paced;
        let mut tuner = VmTuner {
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

    /// Takes over a target, and restarts tuning if it differs from the present one.
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

    /// Starts tuning at the merge limit that the range, or the mean request size, suggests for the
    /// target. Without either it starts at the present limit. The throttle holds any rate there,
    /// and no other starting limit is known to be better.
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

    /// Returns the target a second and the unit that it is in.
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

    /// Counts a request that arrived; its VM last had none inside since `quiet_since`. Returns the
    /// time at which the next window or second ends if the tuner slept.
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

    /// Counts a device I/O that ended.
    pub(super) fn ended(&mut self, amount: Amount) {
        for span in self.spans.iter_mut().flatten() {
            span.ended(amount);
        }
    }

    /// Ends the window, the second, or both, whichever is due. Returns the time at which the next
    /// one ends; `None`: the tuner sleeps.
    pub(super) fn tick(&mut self, view: &View, vm: VmId) -> Option<Nanos> {
        let now = view.now();
        let [mut window, mut second] = self.spans?;
        let (per_s, of) = self.held();
        if window.due <= now {
            let late = now.since(window.due).0 > window.due.since(window.begun).0 / 2;
            if !self.profiling && !late && window.asks_for(view, vm, per_s, of) {
                self.act(view, vm, &window);
            }
            if window.is_empty(view, vm) {
                self.spans = None;
                return None;
            }
            window = Span::new(now, self.window());
        }
        if second.due <= now {
            if second.asks_for(view, vm, per_s, of) {
                if self.profiling {
                    self.profiled(second.rate(now, |amount| amount.bytes))
                } else {
                    self.sampled(second.rate(now, of))
                }
            }
            second = Span::new(now, Nanos::SECOND);
        }
        self.spans = Some([window, second]);
        Some(window.due.min(second.due))
    }

    /// Records the bandwidth of a merge limit that was profiled for a second.
    fn profiled(&mut self, bandwidth: u64) {
        self.range.found(bandwidth);
        if self.range.is_whole() {
            self.profiling = false;
            self.learnt = true;
            self.begin_tuning();
        }
    }

    /// Adds a second's sample. After a whole statistical interval runs TR and WR.
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
        // A shortfall of the device is no error of the aim or of the window.
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

    /// Returns the merge limit in bytes and the throttle to set; no merge limit: the device's own.
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

    /// Sets the knobs that differ from their last values.
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

    /// Returns the knobs to their values without a tuner, for a VM that has no target any more.
    pub(super) fn release(&mut self, vm: VmId, out: &mut Knobs) {
        out.turn(vm, Knob::MergeLimit(u32::MAX));
        out.turn(vm, Knob::Throttle(Throttle::Off));
        if self.paced.is_some() {
            out.turn(vm, Knob::Lateness(Nanos::ZERO));
        }
    }

    /// Returns the state for status output.
    pub(super) fn view(&self, now: Nanos) -> Tuning {
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
            range: self.range.view(),
            profiling: self.profiling.then(|| self.range.progress()),
            precision: self.precision,
            inadequate: since.map(|since| Inadequate {
                since,
                bytes_per_s: self.had.bytes,
                ios_per_s: self.had.ios,
            }),
        }
    }

    /// Takes over bandwidths by merge limit that were measured before, in place of profiling.
    pub(super) fn know(&mut self, range: Range) {
        self.range = range;
        self.profiling = false;
        self.begin_tuning();
    }

    /// Discards the bandwidths by merge limit, which are of another disk, and profiles again if
    /// enabled.
    pub(super) fn profile_anew(&mut self) {
        self.profiling = self.params.profiling && self.aim.is_some();
        self.range = Range::new(if self.profiling { self.top } else { 0 });
        self.action.top = self.top;
        self.begin_tuning();
    }

    /// Continues with imported state: samples start anew, and the running window ends by its new
    /// length.
    pub(super) fn go_on(&mut self) {
        self.learnt = true;
        self.samples.clear();
        self.precision = None;
        let window = self.window();
        if let Some([running, _]) = &mut self.spans {
            running.due = running.due.min(running.begun + window);
        }
    }

    /// Returns the time at which the window or the second ends, whichever is first; `None`: the
    /// tuner sleeps.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.spans.map(|spans| spans[0].due.min(spans[1].due))
    }
}
