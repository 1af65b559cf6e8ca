//! Jobs, with what will come of them in people's words.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use tidegate_core::time::Nanos;
use tidegate_device::units;
use tidegate_policies::policy::{self, PolicySpec};

use crate::command::VmSnapshot;
use crate::job::{
    EndedJob, JobResult, Outlook, RunningJob, after, is_enforced_by, span, to_the_millisecond,
};

/// The jobs of a VM.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmJobsView {
    /// The VM.
    pub vm: String,
    /// Its device.
    pub device: String,
    /// The policy in force there.
    pub policy: String,
    /// The one that runs; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// The last one that is over; absent where none is since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EndedJobView>,
    /// How many of its jobs are over since the daemon started.
    pub ended: EndedJobsView,
}

/// A job that runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// Bytes that are to be read and written in all.
    pub size_bytes: u64,
    /// Bytes of them that have moved.
    pub moved_bytes: u64,
    /// What the VM moved a second over the last interval; absent where that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// When it began, where the host is. No other job of the VM has the same.
    pub begun: String,
    /// When it is due.
    pub due: String,
    /// Seconds until then; below zero: it is over.
    pub due_in_s: f64,
    /// When it will be done as things are; absent: never, or nothing is known of that yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Seconds until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_in_s: Option<f64>,
    /// So long before it is due; below zero: late. Absent as those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_s: Option<f64>,
    /// The VM's class just now: `realtime`, `best-effort` or `idle`.
    pub class: String,
    /// The policy in force sees to it that it is done in time, as far as that can be.
    pub enforced: bool,
    /// As things are it cannot be met, and nobody suffers for it any more.
    pub given_up: bool,
    /// The whole device would do it in time.
    pub possible: bool,
    /// The least time from its beginning in which the whole device would do it; absent where what that does is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_deadline_s: Option<f64>,
    /// What will come of it: `done at 14:03:10, 40 s early`.
    pub forecast: String,
    /// What somebody ought to know of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A job that is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EndedJobView {
    /// Bytes that were to be read and written in all.
    pub size_bytes: u64,
    /// Bytes of them that had moved.
    pub moved_bytes: u64,
    /// When it began, where the host is.
    pub begun: String,
    /// When it was due.
    pub due: String,
    /// When it ended.
    pub ended: String,
    /// So long before it was due; below zero: late.
    pub early_s: f64,
    /// `met`, `missed` or `cancelled`.
    pub outcome: String,
    /// What came of it: `met at 14:03:10, 40 s early`.
    pub said: String,
}

/// How many jobs are over.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct EndedJobsView {
    /// Done in time.
    pub met: u64,
    /// Done, and late.
    pub missed: u64,
    /// Not wanted any more.
    pub cancelled: u64,
}

/// The time for which something is shown, and where.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// It.
    pub(crate) now: Timestamp,
    /// The host's.
    pub(crate) zone: TimeZone,
}

impl At {
    /// `2026-11-22T14:03:10.25+01:00[Europe/Berlin]`.
    fn written(&self, time: Timestamp) -> String {
        to_the_millisecond(time)
            .to_zoned(self.zone.clone())
            .to_string()
    }

    /// `14:03:10`, with the date where it is not today's.
    fn in_words(&self, time: Timestamp) -> String {
        let local = time.to_zoned(self.zone.clone());
        let today = self.now.to_zoned(self.zone.clone()).date();
        match local.date() == today {
            true => local.strftime("%H:%M:%S").to_string(),
            false => local.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        }
    }
}

impl VmJobsView {
    /// Shows the jobs of a VM at a time.
    pub(crate) fn new(vm: &VmSnapshot, at: &At) -> VmJobsView {
        let ended = vm.jobs.ended;
        VmJobsView {
            vm: vm.name.clone(),
            device: vm.device.clone(),
            policy: vm.policy.clone(),
            job: JobView::new(vm, at),
            last: vm.jobs.last.as_ref().map(|job| EndedJobView::new(job, at)),
            ended: EndedJobsView {
                met: ended.met,
                missed: ended.missed,
                cancelled: ended.cancelled,
            },
        }
    }
}

impl JobView {
    /// Shows the job of a VM that runs, if it has one.
    pub(crate) fn new(vm: &VmSnapshot, at: &At) -> Option<JobView> {
        let job = vm.jobs.running.as_ref()?;
        let done_in = match job.outlook {
            Outlook::In(span) => Some(span),
            Outlook::Never | Outlook::Unknown => None,
        };
        let done = done_in.map(|span| after(at.now, span));
        let by = |span: Nanos| seconds(i128::from(span.0));
        let least = job.at_best().map(|rest| ran(job, at) + i128::from(rest.0));
        Some(JobView {
            size_bytes: job.bytes(),
            moved_bytes: job.moved(),
            bytes_per_s: job.status.bandwidth,
            begun: at.written(job.since.begun),
            due: at.written(job.since.due),
            due_in_s: seconds(at.now.duration_until(job.since.due).as_nanos()),
            done: done.map(|done| at.written(done)),
            done_in_s: done_in.map(by),
            early_s: done.and_then(|_| Some(balance(job.early()?, job.late()?))),
            class: job.status.class.name().to_owned(),
            enforced: job.enforced,
            given_up: job.status.given_up,
            possible: job.status.possible,
            least_deadline_s: least.map(seconds),
            forecast: forecast(job, at),
            notes: notes(vm, job, at),
        })
    }
}

impl EndedJobView {
    fn new(job: &EndedJob, at: &At) -> EndedJobView {
        EndedJobView {
            size_bytes: job.bytes,
            moved_bytes: job.moved,
            begun: at.written(job.begun),
            due: at.written(job.due),
            ended: at.written(job.ended),
            early_s: balance(job.early, job.late),
            outcome: job.result().name().to_owned(),
            said: ended(job, at),
        }
    }
}

/// Nanoseconds in seconds, to the millisecond.
fn seconds(nanos: i128) -> f64 {
    (nanos as f64 / 1e6).round() / 1e3
}

fn balance(early: Nanos, late: Nanos) -> f64 {
    seconds(i128::from(early.0) - i128::from(late.0))
}

/// How long it has run.
fn ran(job: &RunningJob, at: &At) -> i128 {
    (job.since.begun.duration_until(at.now).as_nanos()).max(0)
}

/// What will come of a job.
fn forecast(job: &RunningJob, at: &At) -> String {
    let due = at.in_words(job.since.due);
    let done = match job.outlook {
        Outlook::Unknown => {
            return format!("not known before something was measured; due at {due}");
        }
        Outlook::Never => return format!("never done as things are: nothing moves; due at {due}"),
        Outlook::In(span) => at.in_words(after(at.now, span)),
    };
    match (job.early(), job.late()) {
        (Some(Nanos::ZERO), Some(Nanos::ZERO)) => format!("done at {done}, just in time"),
        (Some(early), Some(Nanos::ZERO)) => format!("done at {done}, {} early", span(early)),
        (_, late) => {
            let late = span(late.unwrap_or_default());
            format!("misses by {late}: done at {done}, due at {due}")
        }
    }
}

/// What came of a job.
fn ended(job: &EndedJob, at: &At) -> String {
    let (result, when) = (job.result().name(), at.in_words(job.ended));
    match job.result() {
        JobResult::Met => format!("{result} at {when}, {} early", span(job.early)),
        JobResult::Missed => format!("{result} by {}: done at {when}", span(job.late)),
        JobResult::Cancelled => {
            let (moved, bytes) = (job.moved, job.bytes);
            let [moved, bytes] = [moved, bytes].map(units::format_bytes);
            format!("{result} at {when}, after {moved} of {bytes}")
        }
    }
}

fn notes(vm: &VmSnapshot, job: &RunningJob, at: &At) -> Vec<String> {
    let mut notes = Vec::new();
    if !job.enforced {
        notes.push(format!(
            "nothing sees to it that it is done in time: policy {} knows no jobs, {} would",
            vm.policy,
            enforced_by()
        ));
    }
    let is_over = job.since.due <= at.now;
    if !job.status.possible && !is_over {
        notes.push(impossible(job, at));
    }
    if job.status.given_up {
        let what = "it cannot be met as things are, so nobody suffers for it any more: it has what the others leave \
                    until it is late, or another job begins or ends";
        notes.push(what.to_owned());
    } else if is_over {
        notes.push("it is past its deadline".to_owned());
    }
    notes
}

/// What would be possible instead.
fn impossible(job: &RunningJob, at: &At) -> String {
    let what = "as far as is known, the whole device would not do it in time";
    let Some(rest) = job.at_best() else {
        return what.to_owned();
    };
    let rate = units::format_bandwidth(rounded(job.best_bandwidth()));
    let left = units::format_bytes(job.status.job.left());
    // Rounded up, the time of day as well: what is said to be possible is.
    let second = Nanos::SECOND.0;
    let ran = u64::try_from(ran(job, at)).unwrap_or(u64::MAX);
    let least = ran.saturating_add(rest.0).div_ceil(second);
    let least = Nanos(least.saturating_mul(second));
    let by = after(job.since.begun, Nanos(least.0.saturating_add(second - 1)));
    format!(
        "{what}: at {rate} {left} take {}; the nearest deadline that is possible is {} from its beginning, {}",
        span(rest),
        span(least),
        at.in_words(by)
    )
}

/// To three digits.
fn rounded(figure: u64) -> u64 {
    let step = 10_u64.pow(figure.checked_ilog10().unwrap_or(0).saturating_sub(2));
    figure / step * step
}

/// The policies that see to it that jobs are done in time, in words.
fn enforced_by() -> String {
    let named = policy::registry().iter().map(|info| info.name);
    let all = named.filter(|name| {
        let spec = PolicySpec::named(name).ok();
        spec.is_some_and(|spec| is_enforced_by(&spec))
    });
    let names: Vec<String> = all.map(|name| format!("{name:?}")).collect();
    format!("policy {}", names.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_down_to_three_digits() {
        let all = [0, 7, 999, 1_234, 98_765_432].map(rounded);
        assert_eq!(all, [0, 7, 999, 1_230, 98_700_000]);
    }
}
