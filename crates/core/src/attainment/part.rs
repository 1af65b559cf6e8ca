//! Attainment of one part of an objective, as counts and as it is read.

use super::KEPT_SHARE;
use super::history::{History, Window};
use tidegate_base::time::Nanos;

/// Part of an objective that is judged by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Floor of the rate.
    Reservation,
    /// Bound on the time from arrival to answer.
    Latency,
    /// Rate that is to be held, judged as a floor.
    Target,
    /// Cap of the rate.
    Limit,
    /// Deadline transfers, each of which counts like a second.
    Transfer,
}

impl Part {
    /// Every part, in the order in which they are shown.
    pub const ALL: [Part; 5] = [
        Part::Reservation,
        Part::Latency,
        Part::Target,
        Part::Limit,
        Part::Transfer,
    ];

    /// Name in the configuration, the API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Part::Reservation => "reservation",
            Part::Latency => "latency",
            Part::Target => "target",
            Part::Limit => "limit",
            Part::Transfer => "transfer",
        }
    }

    /// Part of a name; `None`: there is none.
    pub fn named(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// Cause of a missed second: where its late requests spent most of their time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Held back by the VM's own limit or credits.
    OwnLimit,
    /// Waiting for I/Os of other VMs, or for another VM's request that might come.
    Others,
    /// With the device, or waiting for I/Os of the VM itself.
    Device,
    /// The policy in force let more pass than the limit allows.
    Policy,
}

impl Cause {
    /// Every cause, in the order in which they are shown.
    pub const ALL: [Cause; 4] = [Cause::OwnLimit, Cause::Others, Cause::Device, Cause::Policy];

    /// Name in the API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::OwnLimit => "own_limit",
            Cause::Others => "others",
            Cause::Device => "device",
            Cause::Policy => "policy",
        }
    }
}

/// Verdict on one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// No request was due.
    Idle,
    Kept {
        /// The VM asked for less than its rate.
        asked_less: bool,
    },
    Missed(Cause),
    /// Missed, and the medium stalled.
    Stalled,
}

/// Counts of one part since it was promised.
#[derive(Clone, Debug, Default)]
pub(super) struct PartCounts {
    kept_s: u64,
    missed_s: [u32; Cause::ALL.len()],
    stalled_s: u32,
    asked_less_s: u64,
    pub(super) requests: u64,
    pub(super) late: u64,
    pub(super) worst: Nanos,
    last_missed: Option<u32>,
}

impl PartCounts {
    /// Counts a judged request. Returns whether it was late.
    #[inline]
    pub(super) fn answered(&mut self, late: Nanos) -> bool {
        self.requests += 1;
        if late == Nanos::ZERO {
            return false;
        }
        self.late += 1;
        self.worst = self.worst.max(late);
        true
    }
}

/// Counts and history of one part.
#[derive(Clone, Debug, Default)]
pub(super) struct PartState {
    pub(super) counts: PartCounts,
    history: History,
    /// Number of the promise, different where the promise differs; 0: nothing is promised.
    pub(super) promise: u64,
}

impl PartState {
    /// Counts a second.
    pub(super) fn count(&mut self, second: u32, verdict: Verdict) {
        match verdict {
            Verdict::Idle => {}
            Verdict::Kept { asked_less } => {
                self.counts.kept_s += 1;
                self.counts.asked_less_s += u64::from(asked_less);
                self.history.count(second, false);
            }
            Verdict::Missed(cause) => {
                self.counts.missed_s[cause as usize] += 1;
                self.counts.last_missed = Some(second);
                self.history.count(second, true);
            }
            // Neither kept nor missed, so no part of the history.
            Verdict::Stalled => self.counts.stalled_s += 1,
        }
    }

    /// Counts anew for another promise; the history stays.
    pub(super) fn promise(&mut self, promise: u64) {
        // A promise that is set again unchanged keeps its counts.
        if self.promise != promise {
            self.counts = PartCounts::default();
            self.promise = promise;
        }
    }

    /// Forgets all counts and the history.
    pub(super) fn reset(&mut self) {
        *self = PartState {
            promise: self.promise,
            ..PartState::default()
        };
    }

    /// Seconds that were judged so far.
    pub(super) fn seconds(&self) -> PartSeconds {
        PartSeconds {
            kept_s: self.counts.kept_s,
            missed_s: self.counts.missed_s,
            stalled_s: self.counts.stalled_s,
        }
    }

    pub(super) fn view(&self, second: u32, part: Part, best_effort: bool) -> PartAttainment {
        let counts = &self.counts;
        PartAttainment {
            part,
            best_effort,
            kept_s: counts.kept_s,
            missed_s: counts.missed_s.map(u64::from),
            stalled_s: counts.stalled_s.into(),
            asked_less_s: counts.asked_less_s,
            requests: counts.requests,
            late: counts.late,
            worst: counts.worst,
            last_missed_ago_s: counts.last_missed.map(|last| second.wrapping_sub(last)),
            last_5_minutes: self.history.minutes(second, 5),
            last_hour: self.history.minutes(second, 60),
            last_day: self.history.day(second),
        }
    }

    pub(super) fn export(&self, second: u32, part: Part) -> PartRecord {
        let counts = &self.counts;
        let [minutes, hours] = self.history.export(second);
        PartRecord {
            part,
            promise: self.promise,
            kept_s: counts.kept_s,
            missed_s: counts.missed_s,
            stalled_s: counts.stalled_s,
            asked_less_s: counts.asked_less_s,
            requests: counts.requests,
            late: counts.late,
            worst: counts.worst,
            last_missed_ago_s: counts.last_missed.map(|last| second.wrapping_sub(last)),
            minutes,
            hours,
        }
    }

    pub(super) fn import(&mut self, second: u32, ago: u32, record: &PartRecord) {
        // Counts of another promise would falsify the present one's; its history still holds.
        if record.promise == self.promise {
            let ours = &mut self.counts;
            // Added, because seconds may have been judged before the import.
            ours.kept_s += record.kept_s;
            for (ours, theirs) in ours.missed_s.iter_mut().zip(record.missed_s) {
                *ours += theirs;
            }
            ours.stalled_s += record.stalled_s;
            ours.asked_less_s += record.asked_less_s;
            ours.requests += record.requests;
            ours.late += record.late;
            ours.worst = ours.worst.max(record.worst);
            let before = |back: u32| second.wrapping_sub(ago).wrapping_sub(back);
            ours.last_missed = ours
                .last_missed
                .or_else(|| record.last_missed_ago_s.map(before));
        }
        let spans = [record.minutes.clone(), record.hours.clone()];
        self.history.import(second, ago, &spans);
    }
}

/// Judged seconds of one part of an objective since the promise was made or last changed; of
/// [`Part::Transfer`], deadline transfers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartSeconds {
    /// See [`PartAttainment::kept_s`].
    pub kept_s: u64,
    /// See [`PartAttainment::missed_s`].
    pub missed_s: [u32; Cause::ALL.len()],
    /// See [`PartAttainment::stalled_s`].
    pub stalled_s: u32,
}

/// Attainment of one part of an objective: seconds since the promise was made or last changed,
/// and what the last hour and day had of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartAttainment {
    /// Part of the objective.
    pub part: Part,
    /// A latency bound without a reservation or target: nothing says how many requests it is for.
    pub best_effort: bool,
    /// Seconds that were kept; of [`Part::Transfer`], transfers that were done in time.
    pub kept_s: u64,
    /// Seconds that were missed, by [`Cause`].
    pub missed_s: [u64; Cause::ALL.len()],
    /// Seconds that were missed while the medium stalled; they count neither as kept nor missed.
    pub stalled_s: u64,
    /// Kept seconds in which the VM asked for less than its rate.
    pub asked_less_s: u64,
    /// Requests that were judged.
    pub requests: u64,
    /// Requests among them that were late.
    pub late: u64,
    /// Longest time by which a request or a transfer was late; for a limit, the longest time that
    /// its rate would have taken for what passed beyond it in one second.
    pub worst: Nanos,
    /// Seconds since the last one that was missed; `None`: none was.
    pub last_missed_ago_s: Option<u32>,
    /// Last five minutes.
    pub last_5_minutes: Window,
    /// Last hour.
    pub last_hour: Window,
    /// Last 24 hours.
    pub last_day: Window,
}

impl PartAttainment {
    /// Seconds that were missed, whatever the cause.
    pub fn missed(&self) -> u64 {
        self.missed_s.iter().sum()
    }

    /// Seconds that were judged.
    pub fn judged(&self) -> u64 {
        self.kept_s + self.missed()
    }

    /// Share of judged seconds that were kept, 0 to 1; `None`: none was judged.
    pub fn share(&self) -> Option<f64> {
        let judged = self.judged();
        (judged > 0).then(|| self.kept_s as f64 / judged as f64)
    }

    /// Returns whether the promise is kept: 99 % of its seconds are, and every transfer is. `None`
    /// while none was judged.
    pub fn is_kept(&self) -> Option<bool> {
        let least = match self.part {
            // A transfer is one promise: in time or not.
            Part::Transfer => 1.0,
            _ => KEPT_SHARE,
        };
        Some(self.share()? >= least)
    }

    /// Cause of most missed seconds; `None`: none was missed.
    pub fn main_cause(&self) -> Option<Cause> {
        let of = |cause: &Cause| self.missed_s[*cause as usize];
        // Among equal counts the first cause in [`Cause::ALL`] wins: reversed, as `max_by_key`
        // takes the last.
        let most = Cause::ALL.into_iter().rev().max_by_key(of)?;
        (of(&most) > 0).then_some(most)
    }

    /// Adds the counts of another span of time with the same promise; its history is left out.
    pub fn add(&mut self, other: &PartAttainment) {
        self.kept_s += other.kept_s;
        for (ours, theirs) in self.missed_s.iter_mut().zip(other.missed_s) {
            *ours += theirs;
        }
        self.stalled_s += other.stalled_s;
        self.asked_less_s += other.asked_less_s;
        self.requests += other.requests;
        self.late += other.late;
        self.worst = self.worst.max(other.worst);
    }
}

/// Counts and history of one part, for a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartRecord {
    /// Part of the objective.
    pub part: Part,
    /// Number that differs where the promise does.
    pub promise: u64,
    /// See [`PartAttainment::kept_s`].
    pub kept_s: u64,
    /// See [`PartAttainment::missed_s`].
    pub missed_s: [u32; Cause::ALL.len()],
    /// See [`PartAttainment::stalled_s`].
    pub stalled_s: u32,
    /// See [`PartAttainment::asked_less_s`].
    pub asked_less_s: u64,
    /// See [`PartAttainment::requests`].
    pub requests: u64,
    /// See [`PartAttainment::late`].
    pub late: u64,
    /// See [`PartAttainment::worst`].
    pub worst: Nanos,
    /// See [`PartAttainment::last_missed_ago_s`].
    pub last_missed_ago_s: Option<u32>,
    /// Minutes with something judged: how many minutes ago, judged, missed.
    pub minutes: Vec<(u32, u32, u32)>,
    /// Hours with something judged, likewise.
    pub hours: Vec<(u32, u32, u32)>,
}
