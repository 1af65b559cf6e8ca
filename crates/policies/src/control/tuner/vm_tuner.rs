//! Tuner of one VM: sets its merge limit and throttle so that the VM holds its target. The terms
//! TA, TR, WR and L are those of the [module above](super).
//!
//! ```text
//!   asleep --a request--> profiling (each L for 1 s) --> tuning --+
//!     ^                                                           |
//!     +----- no request arrived in a window and none is pending --+
//! ```

mod state_blob;
mod window_end;

use super::TunerParams;
use super::action::{Action, SHORTFALL_REPORT_DELAY};
use super::measure::{Amount, HeldRate, Span, Unit};
use super::paced::{self, Paced};
use super::range::Range;
use super::target::TargetRevision;
use super::throughput::Throughput;
use super::window::WindowRevision;
use crate::control::LastQuiet;
use crate::regulate::merge_limit::{IO_COST_MILLI, PAGE_BYTES};
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Rate;
use tidegate_base::precision;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::roles::{Knob, Knobs};
use tidegate_core::tuning::{Inadequate, Throttle, Tuning};
use tidegate_core::view::View;

/// Maximum excess or shortfall that is carried from window to window, in seconds of the aim: as
/// many as the throttle of [`merge_limit`](crate::regulate::merge_limit) carries over.
const MAX_CARRIED_S: u128 = 2;

/// Tuner of one VM; see the [module](self).
#[derive(Debug)]
pub(super) struct VmTuner {
    pub params: TunerParams,
    /// Target, in bytes per second and in IOPS.
    pub target: Rate,
    /// Maximum merge limit L, in pages.
    pub top: u32,
    /// State of the paced tuner, whose throttle holds the target at all times; `None`: tuning
    /// action (TA), target revision (TR) and window revision (WR) hold it.
    pub paced: Option<Paced>,
    /// TA: merge limit and use of the throttle.
    pub action: Action,
    /// WR: length of the windows.
    pub windows: WindowRevision,
    /// Bandwidth that TA aims at, revised by TR; `None` if only IOPS are held.
    pub aim: Option<TargetRevision>,
    /// PI throttling; `None` if no IOPS are held.
    pub throughput: Option<Throughput>,
    pub range: Range,
    profiling: bool,
    /// Current window and current second; `None`: the tuner sleeps.
    spans: Option<[Span; 2]>,
    /// Amount moved in each second of the statistical interval in which the VM demanded its target,
    /// in the unit of the held rate.
    samples: Vec<u64>,
    /// The running second began before tuning did, so its sample is discarded.
    discards_sample: bool,
    /// The statistical interval is the first one of tuning, whose error is that of the approach to
    /// the target.
    is_converging: bool,
    /// Error and variability of the last statistical interval, in millionths.
    precision: Option<(i64, u64)>,
    quiet: LastQuiet,
    /// Moving average of the rate per second while the device falls short of the target; zero
    /// while it does not.
    short_rate: Amount,
    /// Merge limit in bytes and throttle, as last set; `None`: not set yet.
    last_knobs: Option<(u32, Throttle)>,
    /// The lateness that the throttle has learnt is of an earlier target and must be reset.
    must_reset_lateness: bool,
    /// Learnt state worth exporting exists.
    pub has_learnt: bool,
}

impl VmTuner {
    /// Creates an asleep tuner for a VM of this device with this target.
    pub(super) fn new(params: TunerParams, device: &DeviceSpec, target: &Rate) -> VmTuner {
        let max_pages = if params.paced {
            u32::MAX
        } else {
            params.max_ml
        };
        // At least one page, for devices whose largest I/O is smaller.
        let top = max_pages.min(device.max_io / PAGE_BYTES).max(1);
        let profiling = params.profiling && !params.paced;
        let mut tuner = VmTuner {
            params,
            target: Rate::NONE,
            top,
            paced: params.paced.then(|| Paced::new(top)),
            action: Action::new(top, true).carrying(params.carry()),
            windows: WindowRevision::new(params.window_terms()),
            aim: None,
            throughput: None,
            range: Range::new(if profiling { top } else { 0 }),
            profiling,
            spans: None,
            samples: Vec::with_capacity(params.interval_s as usize),
            discards_sample: true,
            is_converging: true,
            precision: None,
            quiet: LastQuiet::default(),
            short_rate: Amount::default(),
            last_knobs: None,
            must_reset_lateness: false,
            has_learnt: false,
        };
        tuner.set_target(target);
        // Profiling finds a merge limit for a bandwidth; without one there is nothing to find.
        tuner.profiling &= tuner.aim.is_some();
        tuner
    }

    /// Takes over a target, and restarts tuning if it differs from the present one.
    pub(super) fn set_target(&mut self, target: &Rate) {
        if *target == self.target {
            return;
        }
        self.target = *target;
        self.aim = target.bytes_per_s.map(TargetRevision::new);
        // Thousandths of an I/O per second.
        let ios = target
            .ops
            .map(|ops| ops.per_s.saturating_mul(IO_COST_MILLI));
        self.throughput = ios.map(Throughput::new);
        self.windows.objective_changed();
        self.samples.clear();
        self.precision = None;
        self.short_rate = Amount::default();
        self.begin_tuning();
    }

    /// Starts tuning at a merge limit suggested for the target: for a bandwidth that of the range,
    /// for a bandwidth and IOPS that of their quotient, the mean request size. Without either it
    /// starts at the present limit, where the throttle holds any rate; no other limit is known to
    /// be better.
    fn begin_tuning(&mut self) {
        let (limit, throttled) = match (&self.aim, &self.throughput) {
            (Some(aim), None) if self.range.is_whole() => {
                self.action.top = self.range.best();
                self.range.starting_limit(aim.aim)
            }
            (Some(aim), Some(throughput)) => {
                self.action.top = self.top;
                let size =
                    u128::from(aim.aim) * u128::from(IO_COST_MILLI) / u128::from(throughput.target);
                let pages = size / u128::from(PAGE_BYTES);
                (u32::try_from(pages).unwrap_or(u32::MAX), false)
            }
            _ => (self.action.limit, self.action.throttled),
        };
        self.action.restart(limit, throttled);
        if let Some(paced) = &mut self.paced {
            paced.begin_search(self.aim.map_or(0, |aim| aim.objective), self.params.grain);
            self.must_reset_lateness = true;
        }
        (self.discards_sample, self.is_converging) = (true, true);
    }

    /// Returns the rate by which the VM's demand and precision are judged: the bandwidth of the
    /// target, or its IOPS where it has no bandwidth.
    fn held_rate(&self) -> HeldRate {
        match (&self.aim, &self.throughput) {
            (None, Some(throughput)) => HeldRate {
                per_s: throughput.target,
                unit: Unit::MilliIos,
            },
            (aim, _) => HeldRate {
                per_s: aim.map_or(0, |aim| aim.objective),
                unit: Unit::Bytes,
            },
        }
    }

    /// Returns the length of the next window.
    fn window(&self) -> Nanos {
        match (&self.paced, &self.throughput) {
            (None, _) => Nanos::from_millis(self.windows.window),
            (Some(_), Some(held)) => paced::window(IO_COST_MILLI, held.target),
            (Some(paced), None) => paced::window(paced.bytes().into(), self.held_rate().per_s),
        }
    }

    /// Counts a request that arrived; its VM last had no pending request since `quiet_since`.
    /// Returns the time at which the next window or second ends if the tuner slept.
    pub(super) fn on_arrival(
        &mut self,
        now: Nanos,
        amount: Amount,
        quiet_since: Nanos,
    ) -> Option<Nanos> {
        let quiet = self.quiet.ended(quiet_since);
        let window = self.window();
        let slept = self.spans.is_none();
        let new_spans = || [window, Nanos::SECOND].map(|length| Span::new(now, length));
        let spans = self.spans.get_or_insert_with(new_spans);
        for span in spans.iter_mut() {
            span.on_arrival(now, amount, quiet);
        }
        self.next_end().filter(|_| slept)
    }

    /// Counts a device I/O that ended.
    pub(super) fn on_completion(&mut self, amount: Amount) {
        for span in self.spans.iter_mut().flatten() {
            span.on_completion(amount);
        }
    }

    /// Ends the window, the second, or both, whichever is due. Returns the time at which the next
    /// one ends; `None`: the tuner sleeps.
    pub(super) fn tick(&mut self, view: &View, vm: VmId) -> Option<Nanos> {
        let now = view.now();
        let [mut window, mut second] = self.spans?;
        let held = self.held_rate();
        if window.due <= now {
            // A driver that calls this more than half a window late has stalled. The throttle makes
            // good what the stall lost; TA would take the loss for too low a merge limit.
            let late = now.since(window.due).0 > window.due.since(window.begun).0 / 2;
            if !self.profiling && !late && window.demands(view, vm, held) {
                self.adjust(view, vm, &window);
            }
            if window.is_empty(view, vm) {
                self.spans = None;
                return None;
            }
            // From now, not from its due time: a late driver shortens no window.
            window = Span::new(now, self.window());
        }
        if second.due <= now {
            if second.demands(view, vm, held) {
                if self.profiling {
                    self.record_profile(second.rate(now, Unit::Bytes))
                } else {
                    self.record_sample(second.rate(now, held.unit))
                }
            }
            second = Span::new(now, Nanos::SECOND);
        }
        self.spans = Some([window, second]);
        Some(window.due.min(second.due))
    }

    /// Records the bandwidth of a merge limit that was profiled for a second.
    fn record_profile(&mut self, bandwidth: u64) {
        self.range.record(bandwidth);
        if self.range.is_whole() {
            self.profiling = false;
            self.has_learnt = true;
            self.begin_tuning();
        }
    }

    /// Adds a second's sample. After a whole statistical interval runs target revision (TR) and
    /// window revision (WR).
    fn record_sample(&mut self, moved: u64) {
        if core::mem::take(&mut self.discards_sample) {
            return;
        }
        self.samples.push(moved);
        if self.samples.len() < self.params.interval_s as usize {
            return;
        }
        let error = precision::error(&self.samples, self.held_rate().per_s);
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
        self.has_learnt = true;
        // The throttle of a paced tuner holds the target without TR and WR.
        if self.paced.is_some() {
            return;
        }
        let is_converging = core::mem::take(&mut self.is_converging);
        if let Some(aim) = &mut self.aim
            && self.params.revise_target
            && !is_converging
        {
            aim.step(error, &self.params.target_terms());
        }
        self.windows.step(variability, error.unsigned_abs());
    }

    /// Returns the merge limit in bytes and the throttle to set; no merge limit: the device's own.
    fn knobs(&self) -> (Option<u32>, Throttle) {
        if self.profiling {
            return (Some(self.range.next_limit() * PAGE_BYTES), Throttle::Off);
        }
        let throttle = match (&self.throughput, &self.aim) {
            (Some(held), _) => Throttle::Ios(held.rate),
            (None, Some(aim)) if self.paced.is_some() || self.action.throttled => {
                Throttle::Exactly(aim.aim)
            }
            (None, Some(aim)) if self.params.headroom > 0 => {
                // `headroom` is in per cent of the aim.
                let headroom = u128::from(aim.aim) * u128::from(self.params.headroom) / 100;
                let headroom = u64::try_from(headroom).unwrap_or(u64::MAX);
                Throttle::AtMost(aim.aim.saturating_add(headroom))
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
    pub(super) fn apply_knobs(&mut self, vm: VmId, out: &mut Knobs) {
        let (limit, throttle) = self.knobs();
        let limit = limit.unwrap_or(u32::MAX);
        if self.last_knobs.is_none_or(|last| last.0 != limit) {
            out.set(vm, Knob::MergeLimit(limit));
        }
        if self.last_knobs.is_none_or(|last| last.1 != throttle) {
            out.set(vm, Knob::Throttle(throttle));
        }
        if core::mem::take(&mut self.must_reset_lateness) {
            out.set(vm, Knob::Lateness(paced::LATENESS));
        }
        self.last_knobs = Some((limit, throttle));
    }

    /// Returns the knobs to their values without a tuner, for a VM that has no target any more.
    pub(super) fn release(&mut self, vm: VmId, out: &mut Knobs) {
        out.set(vm, Knob::MergeLimit(u32::MAX));
        out.set(vm, Knob::Throttle(Throttle::Off));
        if self.paced.is_some() {
            out.set(vm, Knob::Lateness(Nanos::ZERO));
        }
    }

    /// Returns the state for status output.
    pub(super) fn view(&self, now: Nanos) -> Tuning {
        let (merge_limit, throttle) = self.knobs();
        let since = self
            .short_since()
            .filter(|&since| now.since(since) >= SHORTFALL_REPORT_DELAY);
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
                bytes_per_s: self.short_rate.bytes,
                ios_per_s: self.short_rate.ios,
            }),
        }
    }

    /// Takes over bandwidths by merge limit that were measured before, instead of profiling.
    pub(super) fn restore_range(&mut self, range: Range) {
        self.range = range;
        self.profiling = false;
        self.begin_tuning();
    }

    /// Discards the bandwidths by merge limit, which are of another disk, and profiles again if
    /// enabled.
    pub(super) fn restart_profiling(&mut self) {
        self.profiling = self.params.profiling && self.aim.is_some();
        self.range = Range::new(if self.profiling { self.top } else { 0 });
        self.action.top = self.top;
        self.begin_tuning();
    }

    /// Continues with imported state: discards the samples, and ends the running window after its
    /// new length if that is shorter.
    pub(super) fn resume(&mut self) {
        self.has_learnt = true;
        self.samples.clear();
        self.precision = None;
        let window = self.window();
        if let Some([running, _]) = &mut self.spans {
            running.due = running.due.min(running.begun + window);
        }
    }

    /// Returns the time at which the window or the second ends, whichever is first; `None`: the
    /// tuner sleeps.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        self.spans.map(|spans| spans[0].due.min(spans[1].due))
    }
}
