//! CSV of a history: a record for each interval, a column for each counter that is in use.

use std::collections::BTreeSet;

use tidegate_api::history::HistoryView;
use tidegate_report::csv_record;

/// Returns the whole document with its heading.
pub(super) fn text(history: &HistoryView) -> String {
    let used = history
        .intervals
        .iter()
        .flat_map(|interval| interval.values.keys());
    let used: BTreeSet<&String> = used.collect();
    let fixed = [
        "from_ms",
        "to_ms",
        "observed_ms",
        "p50_ns",
        "p99_ns",
        "p999_ns",
        "max_ns",
    ];
    let heading = fixed
        .into_iter()
        .chain(used.iter().map(|name| name.as_str()));
    let mut text = csv_record(heading.chain(["behind", "behind_us"]));
    for interval in &history.intervals {
        let latency = interval.latency.map(|latency| {
            [
                latency.p50_ns,
                latency.p99_ns,
                latency.p999_ns,
                latency.max_ns,
            ]
        });
        let mut cells = vec![
            interval.from_ms.to_string(),
            interval.to_ms.to_string(),
            interval.observed_ms.to_string(),
        ];
        // No latency is empty, which is not the same as 0.
        cells.extend(match latency {
            Some(quantiles) => quantiles.map(|ns| ns.to_string()),
            None => Default::default(),
        });
        cells.extend(used.iter().map(|name| interval.value(name).to_string()));
        let behind = interval.behind.first();
        cells.push(behind.map_or(String::new(), |behind| behind.vm.clone()));
        cells.push(behind.map_or(String::new(), |behind| behind.waited_us.to_string()));
        text += &csv_record(cells);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::history::IntervalView;

    #[test]
    fn every_record_has_the_columns_of_the_heading() {
        let with = |name: &str| IntervalView {
            values: [(name.to_owned(), 7)].into(),
            ..IntervalView::default()
        };
        let history = HistoryView {
            intervals: vec![with("reads"), with("writes")],
            ..HistoryView::default()
        };
        assert_eq!(
            text(&history),
            "from_ms,to_ms,observed_ms,p50_ns,p99_ns,p999_ns,max_ns,reads,writes,behind,behind_us\n\
             0,0,0,,,,,7,0,,\n\
             0,0,0,,,,,0,7,,\n"
        );
    }
}
