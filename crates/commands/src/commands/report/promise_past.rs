//! Verdicts on what VMs were promised in the span of a report.

use tidegate_api::history::{HistoryView, IntervalView};
use tidegate_core::attainment::KEPT_SHARE;
use tidegate_report::State;

use crate::html_report::intervals::{PromiseInterval, Verdicts};

/// Parts of an objective that are judged by the second.
pub(super) const PARTS: [&str; 4] = ["reservation", "target", "latency", "limit"];

/// Verdicts on a part of a VM's objective.
#[derive(Clone, Debug)]
pub(super) struct PromisePast {
    pub(super) part: &'static str,
    pub(super) verdicts: Verdicts,
    /// Begin and end in seconds, with the state between them.
    pub(super) spans: Vec<(f64, f64, State)>,
}

impl PromisePast {
    /// Returns whether the promise was kept: in 99 % of the judged seconds. `None`: none was
    /// judged.
    pub(super) fn kept(&self) -> Option<bool> {
        let judged = self.verdicts.kept_s + self.verdicts.missed_s;
        (judged > 0).then_some(self.verdicts.kept_s as f64 >= KEPT_SHARE * judged as f64)
    }
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
            verdicts: Verdicts::default(),
            spans: Vec::new(),
        };
        for interval in &history.intervals {
            let here = of(interval);
            past.verdicts.add(here);
            let (from, to) = (seconds(interval.from_ms), seconds(interval.to_ms));
            if let Some(shown) = PromiseInterval::new(from, to, here).span() {
                past.spans.push(shown);
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

    #[test]
    fn seconds_of_a_part_are_of_one_verdict_whatever_was_promised_in_them() {
        // Missed for 20 s, idle for 10 s, then another bound that is kept. The history does not
        // say when the bound was changed.
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
        let all = promises(&history, |ms| ms as f64 / 1e3);
        let [latency] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(latency.part, "latency");
        assert_eq!(
            (latency.verdicts.kept_s, latency.verdicts.missed_s),
            (19, 19)
        );
        assert_eq!(latency.kept(), Some(false));
        assert_eq!(latency.spans.len(), 4);
    }
}
