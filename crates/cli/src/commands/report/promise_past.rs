//! Verdicts on what VMs were promised in the span of a report.

use std::ops::Range;

use tidegate_api::attainment::AttainmentView;
use tidegate_api::history::{HistoryView, IntervalView};
use tidegate_core::attainment::KEPT_SHARE;
use tidegate_report::State;

use crate::html_report::intervals::{PromiseInterval, Verdicts};

/// Parts of an objective that are judged by the second.
pub(super) const PARTS: [&str; 4] = ["reservation", "target", "latency", "limit"];
/// Judged seconds by which two answers that are not of the same moment may differ.
const SKEW_S: u64 = 3;

/// Time of a report in which something was promised, with its begin or end in milliseconds since
/// 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Promised {
    /// The whole span, as far as is known.
    Always,
    /// Until the present promise was made, or its count began.
    Before(u64),
    /// Since then.
    Since(u64),
}

/// Verdicts on a part of a VM's objective.
#[derive(Clone, Debug)]
pub(super) struct PromisePast {
    pub(super) part: &'static str,
    pub(super) promised: Promised,
    pub(super) verdicts: Verdicts,
    /// Begin and end in seconds, with the state between them.
    pub(super) spans: Vec<(f64, f64, State)>,
    /// Begin and end of each of the spans in milliseconds since 1970, with its verdicts.
    judged: Vec<(u64, u64, Verdicts)>,
}

impl PromisePast {
    /// Divides the verdicts of a span that ends now into those on an earlier promise and those on
    /// the present one, which are the latest and whose number `now` has: seconds are judged by the
    /// promise of their time, and counted anew when it changes.
    fn divided(self, now: &AttainmentView) -> Vec<PromisePast> {
        let present = Verdicts {
            kept_s: now.kept_s,
            missed_s: now.missed_s,
            stalled_s: now.stalled_s,
        };
        if present.all() + SKEW_S >= self.verdicts.all() {
            return vec![self];
        }
        let mut first = self.judged.len();
        let mut left = present.all();
        while left > 0 {
            first -= 1;
            left = left.saturating_sub(self.judged[first].2.all());
        }
        let ended = self.judged.last().map(|last| last.1);
        let since = self.judged.get(first).map(|judged| judged.0).or(ended);
        let since = since.expect("seconds were judged");
        let of = |promised, verdicts, range: Range<usize>| PromisePast {
            part: self.part,
            promised,
            verdicts,
            spans: self.spans[range.clone()].to_vec(),
            judged: self.judged[range].to_vec(),
        };
        let earlier = self.verdicts.without(present);
        let both = [
            of(Promised::Before(since), earlier, 0..first),
            of(Promised::Since(since), present, first..self.judged.len()),
        ];
        let both = both.into_iter().filter(|it| it.verdicts.all() > 0);
        both.collect()
    }

    /// Returns whether the promise was kept: in 99 % of the judged seconds. `None`: none was
    /// judged.
    pub(super) fn kept(&self) -> Option<bool> {
        let judged = self.verdicts.kept_s + self.verdicts.missed_s;
        (judged > 0).then_some(self.verdicts.kept_s as f64 >= KEPT_SHARE * judged as f64)
    }
}

/// Divides promises that were changed in a span that ends now; `now` has their counts since.
pub(super) fn divided(promises: Vec<PromisePast>, now: &[AttainmentView]) -> Vec<PromisePast> {
    let divided = promises.into_iter().flat_map(|past| {
        let present = now.iter().find(|view| view.part == past.part);
        match present {
            Some(present) => past.divided(present),
            None => vec![past],
        }
    });
    divided.collect()
}

/// Returns the verdicts on the promises of a VM, without parts that were never judged. `seconds` is
/// the time on the page's axis of a time in milliseconds since 1970.
pub(super) fn promises(history: &HistoryView, seconds: impl Fn(u64) -> f64) -> Vec<PromisePast> {
    let promises = PARTS.map(|part| {
        let of = |interval: &IntervalView| {
            let judged = |verdict: &str| interval.value(&format!("{part}_{verdict}_s"));
            Verdicts {
                kept_s: judged("kept"),
                missed_s: judged("missed"),
                stalled_s: judged("stalled"),
            }
        };
        let mut past = PromisePast {
            part,
            promised: Promised::Always,
            verdicts: Verdicts::default(),
            spans: Vec::new(),
            judged: Vec::new(),
        };
        for interval in &history.intervals {
            let here = of(interval);
            past.verdicts.add(here);
            let (from, to) = (seconds(interval.from_ms), seconds(interval.to_ms));
            if let Some(shown) = PromiseInterval::new(from, to, here).span() {
                past.spans.push(shown);
                past.judged.push((interval.from_ms, interval.to_ms, here));
            }
        }
        past
    });
    let judged = promises.into_iter().filter(|it| !it.spans.is_empty());
    judged.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// Returns an interval of 10 s that begins at a second.
    pub(in super::super) fn interval(second: u64, values: &[(&str, u64)]) -> IntervalView {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value));
        IntervalView {
            from_ms: second * 1000,
            to_ms: second * 1000 + 10_000,
            values: values.collect(),
            ..IntervalView::default()
        }
    }

    /// Attainment of a latency bound with these seconds since it was promised.
    fn since_promised(kept_s: u64, missed_s: u64) -> AttainmentView {
        let budget = json!({ "judged_s": 0, "missed_s": 0 });
        let causes = json!({ "own_limit": 0, "others": 0, "device": 0, "policy": 0 });
        serde_json::from_value(json!({
            "part": "latency", "detail": "", "kept_s": kept_s, "missed_s": missed_s,
            "missed_by_cause": causes, "stalled_s": 0, "asked_less_s": 0, "requests": 0, "late": 0,
            "worst_late_ns": 0,
            "last_5_minutes": budget, "last_hour": budget, "last_day": budget,
        }))
        .expect("a view")
    }

    #[test]
    fn a_bound_that_was_changed_is_judged_apart_from_the_one_before() {
        // Missed for 20 s, idle for 10 s, then another bound that is kept.
        let intervals = vec![
            interval(0, &[("latency_missed_s", 10)]),
            interval(10, &[("latency_missed_s", 9), ("latency_kept_s", 1)]),
            interval(30, &[("latency_kept_s", 10)]),
            interval(40, &[("latency_kept_s", 8)]),
        ];
        let history = HistoryView {
            intervals,
            ..HistoryView::default()
        };
        let by = |now: AttainmentView| {
            let past = divided(promises(&history, |ms| ms as f64 / 1e3), &[now]);
            let all = past.iter();
            let all = all.map(|it| (it.promised, it.verdicts.kept_s, it.verdicts.missed_s));
            let spans: usize = past.iter().map(|it| it.spans.len()).sum();
            assert_eq!(spans, 4, "each second is shown once");
            let kept: Vec<Option<bool>> = past.iter().map(PromisePast::kept).collect();
            (all.collect::<Vec<_>>(), kept)
        };
        let before = (Promised::Before(30_000), 1, 19);
        let changed = [before, (Promised::Since(30_000), 18, 0)];
        let (found, kept) = by(since_promised(18, 0));
        assert_eq!(found, changed);
        assert_eq!(kept, [Some(false), Some(true)]);
        // The present bound was promised before the span, or an answer is late by some seconds.
        let whole = [(Promised::Always, 19, 19)];
        for kept_s in [35, 38, 5000] {
            assert_eq!(by(since_promised(kept_s, 0)).0, whole, "{kept_s}");
        }
        let none = [(Promised::Before(50_000), 19, 19)];
        assert_eq!(by(since_promised(0, 0)).0, none, "changed just now");
        // Changed amid an interval, which counts for neither wholly.
        let amid = [
            (Promised::Before(40_000), 16, 19),
            (Promised::Since(40_000), 3, 0),
        ];
        assert_eq!(by(since_promised(3, 0)).0, amid);
    }
}
