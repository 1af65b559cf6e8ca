//! Past of VMs and devices, read of the control API's history and reduced to what a page shows.

use std::collections::BTreeMap;

use anyhow::Result;
use tidegate_api::history::{HistoriesView, HistoryView, IntervalView};
use tidegate_api::query::{HistoriesQuery, HistoryQuery, percent_encode};

use super::promise_past::{PromisePast, promises};
use crate::client::{Client, read};
use crate::commands::history::requests;
use crate::html_report::plots::{DevicePoint, Distribution, VmPoint};

/// Causes of missed seconds by the name of their counter, in words.
const CAUSES: [(&str, &str); 4] = [
    ("missed_by_others_s", "other VMs were served"),
    ("missed_by_device_s", "the device was too slow"),
    ("missed_by_own_limit_s", "throttled by its own limit"),
    ("missed_by_policy_s", "the policy did not hold it"),
];
/// Parts of the time of requests by the names of their counters, in microseconds.
pub(super) const TIME_PARTS: [(&str, &str); 5] = [
    ("own limit", "regulated_us"),
    ("queued", "queued_us"),
    ("merged", "merged_wait_us"),
    ("idle on purpose", "deliberate_us"),
    ("device", "device_us"),
];
/// Step in seconds of the shortest intervals that name the VMs behind which requests were.
const BEHIND_STEP_S: u64 = 10;
/// Longest time between two points of 1 s that follow each other.
const FINE_SLACK_MS: u64 = 1500;

/// Span of time of a report, by the daemon's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) step_s: u64,
}

impl Span {
    /// Returns the time from the end of the span to a moment in it, in seconds: negative.
    pub(super) fn seconds(&self, ms: u64) -> f64 {
        (ms as f64 - self.to_ms as f64) / 1000.0
    }

    /// Returns the query for the span.
    fn query(&self) -> HistoryQuery {
        // The daemon rounds the begin down to the step, so that all answers have the same one.
        HistoryQuery {
            from: Some(at(self.from_ms)),
            to: Some(at(self.to_ms)),
            step: Some(format!("{}s", self.step_s)),
            buckets: false,
        }
    }
}

/// Returns a time as the control API takes it.
fn at(ms: u64) -> String {
    let time = i64::try_from(ms).ok();
    let time = time.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| (ms / 1000).to_string(), |time| time.to_string())
}

/// Asks for the history of a device from one time to another one, as they were typed.
pub(super) fn first(client: &Client, device: &str, from: &str, to: &str) -> Result<HistoryView> {
    let query = HistoryQuery {
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        step: None,
        buckets: false,
    };
    of_device(client, device, &query)
}

/// Returns the time of a history in which the daemon recorded, in seconds.
pub(super) fn recorded_s(history: &HistoryView) -> f64 {
    recorded_ms(history, history.from_ms, history.to_ms) as f64 / 1000.0
}

/// Returns how much of a span the daemon recorded, in milliseconds.
fn recorded_ms(history: &HistoryView, from_ms: u64, to_ms: u64) -> u64 {
    let parts = history.recorded.iter().map(|span| {
        let (from, to) = (span.from_ms.max(from_ms), span.to_ms.min(to_ms));
        to.saturating_sub(from)
    });
    parts.sum()
}

fn of_device(client: &Client, device: &str, query: &HistoryQuery) -> Result<HistoryView> {
    let device = percent_encode(device);
    read(client.get(&format!("/v1/devices/{device}/history{query}"))?)
}

/// Past of a VM.
#[derive(Clone, Default, Debug)]
pub(super) struct VmPast {
    pub(super) points: Vec<VmPoint>,
    pub(super) promises: Vec<PromisePast>,
    pub(super) requests: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) errors: u64,
    /// Highest 99th percentile of an interval, in nanoseconds.
    pub(super) worst_p99_ns: u64,
    pub(super) longest_ns: u64,
    /// Time of all requests by part, as [`TIME_PARTS`] has them, in nanoseconds.
    pub(super) times_ns: Vec<u64>,
    /// Time behind each other VM in nanoseconds, an estimate, the longest first.
    pub(super) behind: Vec<(String, u64)>,
    /// Upper bounds of latencies in nanoseconds with the numbers of requests.
    pub(super) latencies: Distribution,
    /// Cause of most missed seconds.
    pub(super) cause: Option<&'static str>,
}

/// Past of a device.
#[derive(Clone, Default, Debug)]
pub(super) struct DevicePast {
    pub(super) points: Vec<DevicePoint>,
    pub(super) ios: u64,
    pub(super) bytes: u64,
    pub(super) busy_s: f64,
    pub(super) stalled_s: f64,
    pub(super) io_errors: u64,
}

/// VMs of one query of the history.
const VMS_AT_ONCE: usize = 32;
/// Queries that may fail one after the other before no more is asked: the daemon or its disk does
/// not answer.
const FAILURES_MAX: usize = 2;

/// VM whose history could not be read, with the reason.
pub(super) type Unread = (String, String);

/// Reads the pasts of VMs, a few of them in each query. Those that cannot be read are returned with
/// the reason.
pub(super) fn vms(
    client: &Client,
    names: &[&str],
    span: &Span,
) -> (BTreeMap<String, VmPast>, Vec<Unread>) {
    gather(names, |names| {
        let ask = |span: &Span| -> Result<HistoriesView> {
            let HistoryQuery { from, to, step, .. } = span.query();
            let query = HistoriesQuery {
                vm: names.iter().map(|&name| name.to_owned()).collect(),
                from,
                to,
                step,
                buckets: span.step_s >= BEHIND_STEP_S,
            };
            read(client.get(&format!("/v1/history/vms{query}"))?)
        };
        let found = ask(span)?;
        // Short intervals have neither the VMs behind which requests were nor distributions.
        let coarse = match span.step_s < BEHIND_STEP_S {
            true => Some(ask(&Span {
                step_s: BEHIND_STEP_S,
                ..*span
            })?),
            false => None,
        };
        let coarse = coarse.as_ref().unwrap_or(&found).vms.iter();
        let coarse: BTreeMap<Option<&str>, &HistoryView> =
            coarse.map(|it| (it.vm.as_deref(), it)).collect();
        let past = |history: &HistoryView| {
            let coarse = coarse.get(&history.vm.as_deref());
            let mut past = VmPast::of_history(history, span);
            past.behind = coarse.map_or(Vec::new(), |it| behind(it));
            past.latencies = coarse.map_or(Vec::new(), |it| it.buckets.clone());
            Some((history.vm.clone()?, past))
        };
        Ok(found.vms.iter().filter_map(past).collect())
    })
}

/// Asks for the pasts of VMs by `ask`, which gets some names and returns those that it has in their
/// order.
fn gather(
    names: &[&str],
    mut ask: impl FnMut(&[&str]) -> Result<Vec<(String, VmPast)>>,
) -> (BTreeMap<String, VmPast>, Vec<Unread>) {
    let (mut pasts, mut unread) = (BTreeMap::new(), Vec::new());
    let mut failures = 0;
    let mut last = String::new();
    for some in names.chunks(VMS_AT_ONCE) {
        if failures < FAILURES_MAX {
            match ask(some) {
                Ok(found) => {
                    failures = 0;
                    pasts.extend(found);
                    "the daemon has no history of it".clone_into(&mut last);
                }
                Err(error) => {
                    failures += 1;
                    last = error.to_string();
                }
            }
        }
        let missing = some.iter().filter(|name| !pasts.contains_key(**name));
        unread.extend(missing.map(|&name| (name.to_owned(), last.clone())));
    }
    (pasts, unread)
}

/// Reads the past of a device.
pub(super) fn device(client: &Client, name: &str, span: &Span) -> Result<DevicePast> {
    Ok(DevicePast::of_history(
        &of_device(client, name, &span.query())?,
        span,
    ))
}

/// Returns the time behind each other VM, the longest first.
fn behind(history: &HistoryView) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for behind in history.intervals.iter().flat_map(|it| &it.behind) {
        *sums.entry(&behind.vm).or_default() += behind.waited_us * 1000;
    }
    let mut sums: Vec<(String, u64)> = (sums.into_iter())
        .map(|(vm, ns)| (vm.to_owned(), ns))
        .collect();
    // Stable: names break ties.
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.1));
    sums
}

/// Piece of a history: an interval, or the begin or end of a time without any.
enum Piece<'a> {
    Interval(&'a IntervalView),
    /// Moment in milliseconds at which a time begins or ends in which nothing was asked for.
    Idle(u64),
    /// Moment in a time of which nothing is known.
    Unknown(u64),
}

/// Returns the intervals of a history with what was between them.
fn pieces(history: &HistoryView) -> Vec<Piece<'_>> {
    let slack = if history.step_s == 1 {
        FINE_SLACK_MS
    } else {
        0
    };
    let mut pieces = Vec::new();
    let between = |pieces: &mut Vec<Piece<'_>>, from: u64, to: u64| {
        if to <= from + slack {
            return;
        }
        let recorded = history.recorded.iter();
        let mut covering = recorded.filter(|span| span.from_ms <= from && span.to_ms >= to);
        match covering.next() {
            Some(_) => pieces.extend([Piece::Idle(from), Piece::Idle(to)]),
            None => pieces.push(Piece::Unknown(from)),
        }
    };
    let mut ended = history.from_ms;
    for interval in &history.intervals {
        between(&mut pieces, ended, interval.from_ms);
        pieces.push(Piece::Interval(interval));
        ended = interval.to_ms;
    }
    between(&mut pieces, ended, history.to_ms);
    pieces
}

/// Returns the middle of an interval, in seconds before the end of the span.
fn middle(span: &Span, interval: &IntervalView) -> f64 {
    (span.seconds(interval.from_ms) + span.seconds(interval.to_ms)) / 2.0
}

impl VmPast {
    fn of_history(history: &HistoryView, span: &Span) -> VmPast {
        let intervals = &history.intervals;
        let sum = |name: &str| intervals.iter().map(|it| it.value(name)).sum::<u64>();
        let most = |value: fn(&tidegate_api::history::LatencyView) -> u64| {
            let latencies = intervals.iter().filter_map(|it| it.latency.as_ref());
            latencies.map(value).max().unwrap_or(0)
        };
        let causes = CAUSES.map(|(counter, words)| (sum(counter), words));
        // The first of equal ones.
        let cause = causes.iter().rev().max_by_key(|cause| cause.0);
        VmPast {
            points: pieces(history)
                .iter()
                .map(|it| vm_point(history, span, it))
                .collect(),
            promises: promises(history, |ms| span.seconds(ms)),
            requests: intervals.iter().map(requests).sum(),
            bytes_read: sum("read_bytes"),
            bytes_written: sum("write_bytes"),
            errors: sum("errors"),
            worst_p99_ns: most(|latency| latency.p99_ns),
            longest_ns: most(|latency| latency.max_ns),
            times_ns: TIME_PARTS.map(|part| sum(part.1) * 1000).to_vec(),
            behind: Vec::new(),
            latencies: Distribution::new(),
            cause: cause.filter(|cause| cause.0 > 0).map(|cause| cause.1),
        }
    }
}

/// Returns a count of an interval a second, over all of its time in which a daemon recorded: the
/// VM or device may have been observed for a part of it alone, because it was idle otherwise.
fn per_s(history: &HistoryView, interval: &IntervalView, count: u64) -> f64 {
    let recorded = recorded_ms(history, interval.from_ms, interval.to_ms);
    let ms = recorded.max(interval.observed_ms).max(1);
    count as f64 * 1000.0 / ms as f64
}

fn vm_point(history: &HistoryView, span: &Span, piece: &Piece<'_>) -> VmPoint {
    let point = |ms: u64, rate: f64| VmPoint {
        at_s: span.seconds(ms),
        iops: rate,
        bytes_per_s: rate,
        p50_ns: None,
        p99_ns: None,
    };
    match piece {
        Piece::Idle(ms) => point(*ms, 0.0),
        Piece::Unknown(ms) => point(*ms, f64::NAN),
        Piece::Interval(interval) => {
            let bytes = interval.value("read_bytes") + interval.value("write_bytes");
            let latency = interval.latency.as_ref();
            VmPoint {
                at_s: middle(span, interval),
                iops: per_s(history, interval, requests(interval)),
                bytes_per_s: per_s(history, interval, bytes),
                p50_ns: latency.map(|it| it.p50_ns as f64),
                p99_ns: latency.map(|it| it.p99_ns as f64),
            }
        }
    }
}

impl DevicePast {
    fn of_history(history: &HistoryView, span: &Span) -> DevicePast {
        let intervals = &history.intervals;
        let sum = |name: &str| intervals.iter().map(|it| it.value(name)).sum::<u64>();
        DevicePast {
            points: pieces(history)
                .iter()
                .map(|it| device_point(history, span, it))
                .collect(),
            ios: sum("ios"),
            bytes: sum("read_bytes") + sum("write_bytes"),
            busy_s: sum("busy_us") as f64 / 1e6,
            stalled_s: sum("stalled_us") as f64 / 1e6,
            io_errors: sum("io_errors"),
        }
    }
}

fn device_point(history: &HistoryView, span: &Span, piece: &Piece<'_>) -> DevicePoint {
    let point = |ms: u64, value: f64| DevicePoint {
        at_s: span.seconds(ms),
        bytes_per_s: value,
        busy_percent: value,
        depth: value,
    };
    match piece {
        Piece::Idle(ms) => point(*ms, 0.0),
        Piece::Unknown(ms) => point(*ms, f64::NAN),
        Piece::Interval(interval) => {
            let bytes = interval.value("read_bytes") + interval.value("write_bytes");
            // Microseconds a second are ten-thousandths of a per cent.
            let busy = per_s(history, interval, interval.value("busy_us")) / 10_000.0;
            DevicePoint {
                at_s: middle(span, interval),
                bytes_per_s: per_s(history, interval, bytes),
                busy_percent: busy.min(100.0),
                depth: interval.value("in_flight") as f64,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::promise_past;
    use super::*;
    use tidegate_api::history::{LatencyView, SpanView};
    use tidegate_report::State;

    fn interval(second: u64, values: &[(&str, u64)]) -> IntervalView {
        IntervalView {
            observed_ms: 10_000,
            latency: Some(LatencyView {
                p50_ns: 1_000_000,
                p99_ns: 1_000_000 * (second + 1),
                ..LatencyView::default()
            }),
            ..promise_past::tests::interval(second, values)
        }
    }

    fn history() -> HistoryView {
        HistoryView {
            from_ms: 0,
            to_ms: 100_000,
            step_s: 10,
            intervals: vec![
                interval(0, &[("reads", 100), ("latency_kept_s", 10)]),
                interval(
                    10,
                    &[
                        ("reads", 50),
                        ("latency_kept_s", 7),
                        ("latency_missed_s", 3),
                        ("missed_by_device_s", 3),
                    ],
                ),
                interval(40, &[("writes", 10), ("write_bytes", 40_960)]),
            ],
            recorded: vec![SpanView {
                from_ms: 0,
                to_ms: 60_000,
            }],
            ..HistoryView::default()
        }
    }

    const SPAN: Span = Span {
        from_ms: 0,
        to_ms: 100_000,
        step_s: 10,
    };

    #[test]
    fn an_idle_vm_has_no_rate_and_a_stopped_daemon_leaves_a_gap() {
        let past = VmPast::of_history(&history(), &SPAN);
        let rates: Vec<(f64, f64)> = past.points.iter().map(|it| (it.at_s, it.iops)).collect();
        assert_eq!(
            rates[..5],
            [
                (-95.0, 10.0),
                (-85.0, 5.0),
                (-80.0, 0.0),
                (-60.0, 0.0),
                (-55.0, 1.0)
            ]
        );
        assert_eq!(rates.len(), 6);
        assert!(rates[5].1.is_nan(), "nothing was recorded from 60 s on");
    }

    #[test]
    fn idle_seconds_of_an_interval_count_and_unrecorded_ones_do_not() {
        let mut history = history();
        // One busy second of ten, and one of the five that a daemon recorded.
        history.intervals = vec![
            interval(0, &[("reads", 1000), ("busy_us", 1_000_000)]),
            interval(50, &[("reads", 1000), ("busy_us", 1_000_000)]),
        ];
        for interval in &mut history.intervals {
            interval.observed_ms = 1000;
        }
        history.recorded[0].to_ms = 55_000;
        let past = VmPast::of_history(&history, &SPAN);
        assert_eq!((past.points[0].iops, past.points[3].iops), (100.0, 200.0));
        let past = DevicePast::of_history(&history, &SPAN);
        let busy = |n: usize| past.points[n].busy_percent;
        assert_eq!((busy(0), busy(3)), (10.0, 20.0));
    }

    #[test]
    fn vms_are_asked_for_together_and_those_that_fail_are_named() {
        let names: Vec<String> = (0..100).map(|i| format!("vm{i:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let past = |name: &&str| ((*name).to_owned(), VmPast::default());
        let mut asked = 0;
        let (pasts, unread) = gather(&names, |some| {
            asked += 1;
            match asked {
                2 => anyhow::bail!("its disk does not answer"),
                // One was removed meanwhile.
                3 => Ok(some[1..].iter().map(past).collect()),
                _ => Ok(some.iter().map(past).collect()),
            }
        });
        assert_eq!(asked, 4, "a few queries for a hundred VMs");
        assert_eq!((pasts.len(), unread.len()), (67, 33));
        assert_eq!(unread[0].1, "its disk does not answer");
        assert_eq!(unread[32].0, "vm64");
        assert!(unread[32].1.contains("no history"), "{unread:?}");
        let mut asked = 0;
        let (pasts, unread) = gather(&names, |_| {
            asked += 1;
            anyhow::bail!("no daemon listens")
        });
        assert_eq!(
            (asked, pasts.len(), unread.len()),
            (2, 0, 100),
            "{unread:?}"
        );
    }

    #[test]
    fn time_in_which_no_daemon_recorded_does_not_count() {
        let mut history = history();
        assert_eq!(recorded_s(&history), 60.0);
        history.from_ms = 50_000;
        history.recorded.push(SpanView {
            from_ms: 90_000,
            to_ms: 500_000,
        });
        assert_eq!(recorded_s(&history), 20.0);
    }

    #[test]
    fn times_behind_others_are_summed_up_by_name() {
        let mut history = history();
        let behind_of = |vm: &str, waited_us| tidegate_api::history::BehindMicrosView {
            vm: vm.to_owned(),
            waited_us,
        };
        history.intervals[0].behind = vec![behind_of("b", 5), behind_of("c", 4)];
        history.intervals[1].behind = vec![behind_of("c", 3)];
        let expected = [("c".to_owned(), 7000), ("b".to_owned(), 5000)];
        assert_eq!(behind(&history), expected);
    }

    #[test]
    fn sums_and_verdicts_are_those_of_all_intervals() {
        let past = VmPast::of_history(&history(), &SPAN);
        assert_eq!((past.requests, past.bytes_written), (160, 40_960));
        assert_eq!(past.worst_p99_ns, 41_000_000);
        assert_eq!(past.cause, Some("the device was too slow"));
        let [latency] = &past.promises[..] else {
            panic!("{:?}", past.promises);
        };
        assert_eq!(latency.part, "latency");
        assert_eq!(latency.kept(), Some(false));
        assert_eq!(
            latency.spans,
            [(-100.0, -90.0, State::Kept), (-90.0, -80.0, State::Missed)]
        );
    }
}
