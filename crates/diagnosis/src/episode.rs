//! Diagnosis of the past: which part of a span is explained, and with what it is compared.

use crate::causes::classes_of;
use crate::{DeviceFacts, Party, Traffic, Victim, Window, diagnose};
use std::sync::Arc;
use tidegate_api::explain::{Diagnosis, MissedPart};
use tidegate_api::history::SpanView;
use tidegate_core::interference::{CulpritTime, Interval as Times, WaitTimes};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_history::column::{Column, Values};
use tidegate_history::query::Interval;

/// Length of the intervals from which an episode is chosen.
pub const STEP_MS: u64 = 10_000;
/// Time before and after a span in which the usual is looked for.
pub const AROUND_MS: u64 = 3_600_000;
/// Length of a span from which on its slowest part is explained, not the whole.
const SEARCHED_FROM_MS: u64 = 300_000;
/// Time from which on a step that is under way may be the slowest: few requests say little.
const UNDER_WAY_MIN_MS: u64 = STEP_MS / 2;

/// Growth of the 99th percentile from which a span counts as slower than usual. A chosen one must
/// differ more: the slowest of many windows is always slower than most.
const SLOWER: f64 = 1.5;
const SLOWER_IF_SEARCHED: f64 = 2.0;
/// Name of a VM in the history that was removed before its time was recorded.
const REMOVED: &str = "(removed)";

/// Columns of an objective's parts: kept and missed seconds.
const PARTS: [(&str, Column, Column); 4] = [
    (
        "reservation",
        Column::ReservationKept,
        Column::ReservationMissed,
    ),
    ("latency", Column::LatencyKept, Column::LatencyMissed),
    ("target", Column::TargetKept, Column::TargetMissed),
    ("limit", Column::LimitKept, Column::LimitMissed),
];

/// VM or background process behind which the explained VM's requests were.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// Name.
    pub name: &'a str,
    /// A background process of the host.
    pub background: bool,
    /// The VM has a limit.
    pub limited: bool,
    /// Requests of the VM in the explained span.
    pub traffic: Traffic,
}

/// Some intervals together.
#[derive(Clone, Default, Debug)]
struct Merged {
    values: Values,
    /// Time behind VMs by name, in microseconds.
    behind: Vec<(Arc<str>, u64)>,
    /// 99th percentile: the largest of the intervals, or their median.
    p99_ns: Option<u64>,
    observed_ms: u64,
}

/// Part of a span that is explained, with what is usual for the VM.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Part of the span that is explained; the span itself if nothing stands out.
    pub explained: SpanView,
    /// Part of the explained one in which the VM was observed; the same if it was not.
    pub observed: SpanView,
    /// True if the slowest part of a long span was looked for.
    pub searched: bool,
    now: Merged,
    usual: Option<Merged>,
    /// Names of other VMs; the index stands for the VM's handle.
    names: Vec<Arc<str>>,
}

fn requests(values: &Values) -> u64 {
    values[Column::Reads] + values[Column::Writes] + values[Column::Others]
}

/// Returns true if requests waited and none was answered.
fn is_stuck(interval: &Interval) -> bool {
    requests(&interval.values) == 0 && waiting(&interval.values) > 0
}

/// Requests that waited at the end of an interval, and I/Os with the device.
fn waiting(values: &Values) -> u64 {
    values[Column::Pending] + values[Column::InFlight]
}

/// Returns true if the time of requests by class was kept. A history that an older daemon wrote
/// lacks it.
fn has_classes(values: &Values) -> bool {
    let divided = values[Column::Queued] + values[Column::AtDevice];
    divided == 0 || Column::CLASSES.iter().any(|&it| values[it] > 0)
}

/// Returns the part before the device of the time that is before the device and inside of it. The
/// history has it for all classes together alone.
fn part_before_device(values: &Values) -> f64 {
    let classes = [
        Column::BehindOthers,
        Column::OwnRequests,
        Column::SlowDevice,
    ];
    let divided: u64 = classes.iter().map(|&it| values[it]).sum();
    let exact = values[Column::Unknown] + values[Column::Admission];
    let waited = values[Column::Queued].saturating_sub(exact);
    waited.min(divided) as f64 / divided.max(1) as f64
}

fn p99(interval: &Interval) -> Option<u64> {
    interval.quantile_ns(Column::P99)
}

impl Merged {
    fn of<'a>(intervals: impl IntoIterator<Item = &'a Interval>) -> Merged {
        let mut merged = Merged::default();
        for interval in intervals {
            merged.values.merge(&interval.values);
            merged.observed_ms += interval.observed_ms;
            merged.p99_ns = merged.p99_ns.max(p99(interval));
            for (vm, micros) in &interval.behind {
                match merged.behind.iter_mut().find(|(known, _)| known == vm) {
                    Some((_, sum)) => *sum += micros,
                    None => merged.behind.push((vm.clone(), *micros)),
                }
            }
        }
        merged
    }

    /// Returns the intervals as one, with VMs by their index in `names`.
    fn window(&self, names: &[Arc<str>]) -> Window {
        let values = &self.values;
        let lacks_causes = !has_classes(values);
        let index = |vm: &Arc<str>| names.iter().position(|it| it == vm).unwrap_or(0);
        let before_device = part_before_device(values);
        let wait = |micros: u64| Nanos((micros as f64 * before_device) as u64 * 1000);
        let culprit = |(vm, micros): &(Arc<str>, u64)| CulpritTime {
            vm: VmId::from_bits(index(vm) as u64),
            waited: wait(*micros),
            inside: Nanos(micros * 1000).since(wait(*micros)),
        };
        let named: Vec<_> = self.behind.iter().filter(|it| &*it.0 != REMOVED).collect();
        let culprits: Vec<CulpritTime> = if lacks_causes {
            Vec::new()
        } else {
            named.into_iter().map(culprit).collect()
        };
        let behind = culprits.iter().map(|it| it.total());
        let behind = behind.fold(Nanos::ZERO, |sum, it| sum + it);
        let others = Nanos(values[Column::BehindOthers] * 1000);
        let missed = PARTS.iter().filter_map(|&(part, kept, missed)| {
            let (kept_s, missed_s) = (values[kept], values[missed]);
            (missed_s > 0).then(|| MissedPart {
                part: part.to_owned(),
                missed_s,
                judged_s: kept_s + missed_s,
            })
        });
        let requests = requests(values);
        Window {
            interval: Times {
                requests,
                samples: values[Column::Samples],
                times: classes_of(values, lacks_causes),
                culprits,
                unnamed: others.since(behind),
                waits: WaitTimes {
                    own: wait(values[Column::OwnRequests]),
                    slow: wait(values[Column::SlowDevice]),
                    unnamed: wait(others.since(behind).0 / 1000),
                },
            },
            p99: self.p99_ns.map(Nanos),
            span: Nanos::from_millis(self.observed_ms),
            unanswered: if requests == 0 { waiting(values) } else { 0 },
            missed: missed.collect(),
            lacks_causes,
        }
    }
}

impl Episode {
    /// Chooses what to explain of a span. `intervals`: the VM's, of [`STEP_MS`] each, the oldest
    /// first, up to [`AROUND_MS`] before and after the span.
    pub fn choose(intervals: &[Interval], asked: SpanView) -> Episode {
        let inside = |it: &Interval| it.to_ms > asked.from_ms && it.from_ms < asked.to_ms;
        let first = intervals.iter().position(inside).unwrap_or(intervals.len());
        let count = intervals[first..]
            .iter()
            .take_while(|it| inside(it))
            .count();
        let whole = first..first + count;
        let searched = asked.to_ms.saturating_sub(asked.from_ms) > SEARCHED_FROM_MS;
        let found = if searched {
            slowest(intervals, whole.clone())
        } else {
            None
        };
        let range = found.clone().unwrap_or(whole);
        let chosen = &intervals[range.clone()];
        let now = Merged::of(chosen);
        let others = intervals[..range.start]
            .iter()
            .chain(&intervals[range.end..]);
        let outside: Vec<&Interval> = match (searched, &found) {
            // Nothing stands out: the whole span is what is usual.
            (true, None) => intervals.iter().collect(),
            _ => others.collect(),
        };
        // Times that were kept by cause cannot be compared with those that were not.
        let classes = has_classes(&now.values);
        let usual = usual(&outside, |it| has_classes(&it.values) == classes);
        let usual = usual.map(|(intervals, p99_ns)| Merged {
            p99_ns: Some(p99_ns),
            ..Merged::of(intervals)
        });
        let behind = now.behind.iter();
        let behind = behind.chain(usual.iter().flat_map(|it| &it.behind));
        let mut names: Vec<Arc<str>> = behind.map(|(vm, _)| vm.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let span = |chosen: &[Interval]| {
            Some(SpanView {
                from_ms: chosen.first()?.from_ms,
                to_ms: chosen.last()?.to_ms,
            })
        };
        let observed = span(chosen).unwrap_or(asked);
        Episode {
            explained: if found.is_some() { observed } else { asked },
            observed,
            searched,
            now,
            usual,
            names,
        }
    }

    /// Names of the VMs behind which the explained requests were, the longest time first.
    pub fn culprits(&self) -> impl Iterator<Item = &str> {
        let mut behind: Vec<_> = self.now.behind.iter().collect();
        behind.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let names = behind.into_iter().map(|(vm, _)| &**vm);
        names.filter(|vm| *vm != REMOVED)
    }

    /// Explains the episode of a VM. `reserved`: the VM has a reservation. `neighbours`: what is
    /// known of [`Episode::culprits`]; others are named without their traffic.
    pub fn diagnose(
        &self,
        vm: &str,
        reserved: bool,
        neighbours: &[Neighbour],
        device: &DeviceFacts,
    ) -> Diagnosis {
        let (now, usual) = (
            self.now.window(&self.names),
            self.usual.as_ref().map(|it| it.window(&self.names)),
        );
        let parties = self.names.iter().enumerate().map(|(index, name)| {
            let known = neighbours.iter().find(|it| *it.name == **name);
            Party {
                vm: VmId::from_bits(index as u64),
                name,
                background: known.is_some_and(|it| it.background),
                limited: known.is_some_and(|it| it.limited),
                traffic: known.map_or_else(Traffic::default, |it| it.traffic),
            }
        });
        let parties: Vec<Party> = parties.collect();
        let victim = Victim {
            name: vm,
            now: &now,
            usual: usual.as_ref(),
            reserved,
            slower_from: if self.searched {
                SLOWER_IF_SEARCHED
            } else {
                SLOWER
            },
        };
        diagnose(&victim, &parties, device)
    }
}

/// Returns the requests of a VM in some intervals, by kind.
pub fn traffic<'a>(intervals: impl IntoIterator<Item = &'a Interval>) -> Traffic {
    let Merged { values, .. } = Merged::of(intervals);
    Traffic {
        reads: values[Column::Reads],
        writes: values[Column::Writes],
        flushes: values[Column::Others],
        bytes_read: values[Column::ReadBytes],
        bytes_written: values[Column::WriteBytes],
    }
}

/// Returns the quieter half of those intervals that are `alike`, and the median of their 99th
/// percentiles.
fn usual<'a>(
    outside: &[&'a Interval],
    alike: impl Fn(&Interval) -> bool,
) -> Option<(Vec<&'a Interval>, u64)> {
    let known = outside.iter().filter_map(|it| Some((p99(it)?, *it)));
    let mut known: Vec<(u64, &Interval)> = known.filter(|(_, it)| alike(it)).collect();
    known.sort_by_key(|(p99, it)| (*p99, it.from_ms));
    known.truncate(known.len().div_ceil(2));
    let (p99, _) = *known.get(known.len() / 2)?;
    Some((known.into_iter().map(|(_, it)| it).collect(), p99))
}

/// Returns the slowest part of a range of intervals; `None`: no part is much slower than usual.
fn slowest(
    intervals: &[Interval],
    whole: core::ops::Range<usize>,
) -> Option<core::ops::Range<usize>> {
    let is_short = |at: usize| {
        let is_last = at > whole.start && at + 1 == whole.end;
        is_last && intervals[at].observed_ms < UNDER_WAY_MIN_MS
    };
    let last = intervals[whole.clone()].last();
    let was_stuck = |at: usize| at > whole.start && is_stuck(&intervals[at - 1]);
    let worst =
        if last.is_some_and(is_stuck) && (!is_short(whole.end - 1) || was_stuck(whole.end - 1)) {
            whole.end - 1
        } else {
            let known = whole.clone().filter(|&at| p99(&intervals[at]).is_some());
            // The first of equals; a short one if there is no other.
            known.min_by_key(|&at| (is_short(at), core::cmp::Reverse(p99(&intervals[at]))))?
        };
    let worst_p99 = p99(&intervals[worst]);
    if let Some(worst_p99) = worst_p99 {
        let all: Vec<&Interval> = intervals.iter().collect();
        // Latencies were kept whether or not causes were.
        let usual_p99 = usual(&all, |_| true).map_or(0, |(_, p99)| p99);
        if (worst_p99 as f64) < usual_p99 as f64 * SLOWER_IF_SEARCHED {
            return None;
        }
    }
    let belongs = |it: &Interval| {
        let is_slow = |p99: u64| worst_p99.is_some_and(|worst| p99 >= worst / 2);
        is_stuck(it) || p99(it).is_some_and(is_slow)
    };
    let adjoins = |at: usize| intervals[at - 1].to_ms == intervals[at].from_ms;
    let (mut first, mut end) = (worst, worst + 1);
    while first > whole.start && adjoins(first) && belongs(&intervals[first - 1]) {
        first -= 1;
    }
    while end < whole.end && adjoins(end) && belongs(&intervals[end]) {
        end += 1;
    }
    Some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentences;
    use tidegate_api::explain::{Gap, Verdict};
    use tidegate_core::interference::CostSource;

    /// Windows before the quarter of an hour that is asked for.
    const BEFORE: u64 = 180;
    const WINDOWS: u64 = BEFORE + 90;
    const ASKED: SpanView = SpanView {
        from_ms: BEFORE * STEP_MS,
        to_ms: WINDOWS * STEP_MS,
    };
    const DEVICE: DeviceFacts = DeviceFacts {
        costs: CostSource::Profile,
        stalled: Nanos::ZERO,
        longest: None,
        hung: false,
        recorded: false,
    };

    /// Window of 100 requests of 2 ms each with the device.
    fn window(number: u64) -> Interval {
        let mut values = Values::default();
        values[Column::Reads] = 100;
        values[Column::ReadBytes] = 100 << 12;
        values[Column::AtDevice] = 200_000;
        values[Column::Service] = 200_000;
        values[Column::Samples] = 60;
        let mut window = Interval {
            from_ms: number * STEP_MS,
            to_ms: (number + 1) * STEP_MS,
            observed_ms: STEP_MS,
            values,
            behind: Vec::new(),
        };
        set_p99(&mut window, 4_000_000);
        window
    }

    /// Sets the 99th percentile to the bucket of a latency.
    fn set_p99(window: &mut Interval, ns: u64) {
        let bucket = (0..tidegate_history::latency::BUCKETS)
            .find(|&bucket| tidegate_history::latency::upper_bound_ns(bucket) >= ns);
        window.values[Column::P99] = u64::from(bucket.expect("within the range")) + 1;
    }

    /// A VM that does the same all the time.
    fn steady() -> Vec<Interval> {
        (0..WINDOWS).map(window).collect()
    }

    /// Adds milliseconds behind `backup` to each of a window's requests.
    fn delay(window: &mut Interval, ms: u64) {
        window.values[Column::Queued] += 100_000 * ms;
        window.values[Column::BehindOthers] += 100_000 * ms;
        window.behind.push(("backup".into(), 100_000 * ms));
        set_p99(window, 4_000_000 + ms * 2_000_000);
    }

    fn backup() -> Neighbour<'static> {
        Neighbour {
            name: "backup",
            background: false,
            limited: false,
            traffic: Traffic {
                writes: 800,
                bytes_written: 800 << 20,
                ..Traffic::default()
            },
        }
    }

    #[test]
    fn the_slowest_part_is_found_and_compared_with_the_usual() {
        let mut windows = steady();
        for window in &mut windows[200..203] {
            delay(window, 14);
        }
        // Another slow one, shorter and less so, is no part of what is usual.
        delay(&mut windows[230], 9);
        let episode = Episode::choose(&windows, ASKED);
        assert_eq!(
            (episode.explained.from_ms, episode.explained.to_ms),
            (200 * STEP_MS, 203 * STEP_MS)
        );
        assert_eq!(episode.culprits().collect::<Vec<_>>(), ["backup"]);
        let found = episode.diagnose("db", false, &[backup()], &DEVICE);
        assert_eq!(found.verdict, Verdict::Others);
        assert_eq!(found.culprits, ["backup"]);
        let text = sentences(&found, Some("at 14:02"));
        assert!(
            text[0].ends_with(
                "at 14:02: of the added time, 100 % behind `backup` (1 MiB writes, no limit)."
            ),
            "{text:?}"
        );
    }

    #[test]
    fn a_vm_as_slow_as_ever_is_told_so() {
        let episode = Episode::choose(&steady(), ASKED);
        assert_eq!(episode.explained, ASKED);
        let found = episode.diagnose("db", false, &[], &DEVICE);
        assert_eq!(found.verdict, Verdict::NotSlower);
        let text = sentences(&found, None);
        assert_eq!(text.len(), 1, "{text:?}");
        assert!(text[0].starts_with("`db` was no slower than usual: p99 was at most"));
    }

    #[test]
    fn a_limit_that_always_holds_is_named_although_nothing_changed() {
        let mut windows = steady();
        for window in &mut windows {
            window.values[Column::Regulated] = 1_800_000;
        }
        let found = Episode::choose(&windows, ASKED).diagnose("db", false, &[], &DEVICE);
        assert_eq!(found.verdict, Verdict::NotSlower);
        let text = sentences(&found, None).join(" ");
        assert!(text.contains("90 % held by its own limit"), "{text}");
        assert!(text.contains("Its own limit holds it back all the time. To try: a higher limit"));
    }

    #[test]
    fn a_vm_whose_requests_are_not_answered_is_the_slowest() {
        let mut windows = steady();
        for window in &mut windows[260..] {
            window.values = Values::default();
            window.values[Column::InFlight] = 3;
        }
        let episode = Episode::choose(&windows, ASKED);
        assert_eq!(episode.explained.from_ms, 260 * STEP_MS);
        let device = DeviceFacts {
            stalled: Nanos::from_secs(100),
            ..DEVICE
        };
        let found = episode.diagnose("db", false, &[], &device);
        let text = sentences(&found, Some("from 14:02 on"));
        assert_eq!(
            text,
            [
                "`db` had no request answered from 14:02 on although 3 waited (it ended nothing \
                 for 100 s)."
            ]
        );
    }

    #[test]
    fn a_second_without_an_answer_belongs_to_the_slow_part_and_is_not_all_of_it() {
        let mut windows = steady();
        let [.., slow, last] = &mut windows[..] else {
            panic!("there are windows");
        };
        delay(slow, 14);
        last.values = Values::default();
        last.values[Column::InFlight] = 3;
        last.observed_ms = 1000;
        let episode = Episode::choose(&windows, ASKED);
        assert_eq!(
            (episode.explained.from_ms, episode.explained.to_ms),
            ((WINDOWS - 2) * STEP_MS, WINDOWS * STEP_MS)
        );
        let found = episode.diagnose("db", false, &[backup()], &DEVICE);
        assert_eq!(found.culprits, ["backup"]);
        // Nor is one with a slow request, if it has just begun.
        let last = windows.last_mut().expect("there are windows");
        *last = window(WINDOWS - 1);
        set_p99(last, 90_000_000);
        let begin = |windows: &[Interval]| Episode::choose(windows, ASKED).explained.from_ms;
        assert_eq!(begin(&windows), (WINDOWS - 1) * STEP_MS);
        windows.last_mut().expect("there are windows").observed_ms = 1000;
        assert_eq!(begin(&windows), (WINDOWS - 2) * STEP_MS);
    }

    #[test]
    fn a_history_without_causes_says_so() {
        let mut windows = steady();
        for window in &mut windows {
            (Column::BY_WINDOW.into_iter()).for_each(|column| window.values[column] = 0);
        }
        let slow = &mut windows[200];
        slow.values[Column::Queued] = 3_000_000;
        slow.behind.push(("backup".into(), 3_000_000));
        set_p99(slow, 30_000_000);
        let found = Episode::choose(&windows, ASKED).diagnose("db", false, &[], &DEVICE);
        assert_eq!(found.verdict, Verdict::Unknown);
        assert!(found.gaps.contains(&Gap::NoCauses));
        assert!(!found.gaps.contains(&Gap::NoSamples));
        // Times that were kept by cause are no measure for those that were not.
        windows[200] = window(200);
        delay(&mut windows[200], 14);
        let found = Episode::choose(&windows, ASKED).diagnose("db", false, &[], &DEVICE);
        assert_eq!(
            (found.verdict, found.p99_before_ns),
            (Verdict::Others, None)
        );
        assert!(found.gaps.contains(&Gap::NoBaseline));
    }

    #[test]
    fn a_short_span_is_explained_as_a_whole() {
        let mut windows = steady();
        delay(&mut windows[200], 14);
        let asked = SpanView {
            from_ms: 198 * STEP_MS,
            to_ms: 204 * STEP_MS,
        };
        let episode = Episode::choose(&windows, asked);
        assert_eq!((episode.explained, episode.searched), (asked, false));
        assert_eq!(episode.observed, asked);
        let found = episode.diagnose("db", true, &[backup()], &DEVICE);
        assert_eq!(found.culprits, ["backup"]);
        // A VM that came later is observed from then on.
        let episode = Episode::choose(&windows[202..], asked);
        assert_eq!(episode.explained, asked);
        assert_eq!(
            (episode.observed.from_ms, episode.observed.to_ms),
            (202 * STEP_MS, asked.to_ms)
        );
        let empty = SpanView {
            from_ms: 400 * STEP_MS,
            to_ms: 401 * STEP_MS,
        };
        let found = Episode::choose(&windows, empty).diagnose("db", true, &[], &DEVICE);
        assert_eq!(found.verdict, Verdict::NoRequests);
    }

    #[test]
    fn waits_before_the_device_are_told_from_time_inside() {
        let mut values = Values::default();
        values[Column::Reads] = 10;
        values[Column::Queued] = 750;
        values[Column::Admission] = 50;
        values[Column::AtDevice] = 1400;
        values[Column::BehindOthers] = 900;
        values[Column::OwnRequests] = 300;
        values[Column::Service] = 800;
        values[Column::Unknown] = 100;
        let merged = Merged {
            values,
            behind: vec![("backup".into(), 600)],
            ..Merged::default()
        };
        // Half of the time behind others and the VM's own requests was before the device.
        let times = merged.window(&["backup".into()]).interval;
        let [backup] = &times.culprits[..] else {
            panic!("{times:?}");
        };
        assert_eq!(
            (backup.waited, backup.inside),
            (Nanos(300_000), Nanos(300_000))
        );
        let waits = WaitTimes {
            own: Nanos(150_000),
            slow: Nanos::ZERO,
            unnamed: Nanos(150_000),
        };
        assert_eq!((times.waits, times.unnamed), (waits, Nanos(300_000)));
    }

    #[test]
    fn missed_promises_are_counted() {
        let mut windows = steady();
        delay(&mut windows[200], 14);
        windows[200].values[Column::LatencyMissed] = 7;
        windows[200].values[Column::LatencyKept] = 3;
        let found = Episode::choose(&windows, ASKED).diagnose("db", false, &[], &DEVICE);
        let text = sentences(&found, None).join(" ");
        assert!(
            text.contains("It missed its latency bound in 7 of 10 s."),
            "{text}"
        );
    }
}
