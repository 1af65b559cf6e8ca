//! Table of a history.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_api::history::{HistoryView, IntervalView, SpanView};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes_per_s, count, duration, rate};

/// Counters that say where the time of requests went, with the headings of their columns.
const CAUSES: [(&str, &str); 5] = [
    ("regulated_us", "LIMIT"),
    ("queued_us", "QUEUED"),
    ("deliberate_us", "PAUSE"),
    ("merged_wait_us", "MERGED"),
    ("device_us", "DEVICE"),
];

/// Columns that are left out on a narrow terminal, the first ones first.
pub(super) const DROPS: [&str; 12] = [
    "MERGED",
    "PAUSE",
    "P99.9",
    "FAILED",
    "WAITING",
    "STALLED",
    "LIMIT",
    "MAX",
    "P50",
    "QUEUED",
    "DEVICE",
    "MOSTLY BEHIND",
];

/// Parts of an objective with the counters of their kept and missed seconds.
const PARTS: [&str; 4] = ["reservation", "latency", "target", "limit"];

/// Returns the time of day, with the date in spans of more than a day.
pub(in crate::commands) fn time(ms: u64, zone: &TimeZone, dated: bool) -> String {
    let form = if dated {
        "%Y-%m-%d %H:%M:%S"
    } else {
        "%H:%M:%S"
    };
    formatted(ms, zone, form)
}

/// Returns date and time of day with the zone's offset from UTC, for readers in other zones.
pub(in crate::commands) fn time_and_offset(ms: u64, zone: &TimeZone) -> String {
    formatted(ms, zone, "%Y-%m-%d %H:%M:%S %:z")
}

fn formatted(ms: u64, zone: &TimeZone, form: &str) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match time {
        Some(time) => time.to_zoned(zone.clone()).strftime(form).to_string(),
        None => "-".to_owned(),
    }
}

/// Returns the rate of a counter in an interval, per second.
pub(in crate::commands) fn per_s(interval: &IntervalView, value: u64) -> f64 {
    // At least a millisecond: a point may be shorter.
    value as f64 * 1000.0 / interval.observed_ms.max(1) as f64
}

/// Requests of an interval.
pub(in crate::commands) fn requests(interval: &IntervalView) -> u64 {
    ["reads", "writes", "others"]
        .iter()
        .map(|name| interval.value(name))
        .sum()
}

/// Returns why there are no intervals between two times.
fn gap(from_ms: u64, to_ms: u64, recorded: &[SpanView]) -> &'static str {
    let covers = |span: &SpanView| span.from_ms <= from_ms && span.to_ms >= to_ms;
    if recorded.iter().any(covers) {
        "idle"
    } else {
        "the daemon did not run, or was idle, in a part of this time"
    }
}

pub(super) fn table(history: &HistoryView) -> Table {
    table_in(history, &TimeZone::system())
}

fn table_in(history: &HistoryView, zone: &TimeZone) -> Table {
    let is_device = history.device.is_some();
    let causes = CAUSES.map(|(_, heading)| (heading, Align::Right));
    let first = [
        ("TIME", Align::Left),
        ("IOPS", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ];
    let last = if is_device {
        vec![
            ("BUSY", Align::Right),
            ("STALLED", Align::Right),
            ("FAILED", Align::Right),
        ]
    } else {
        vec![
            ("WAITING", Align::Right),
            ("FAILED", Align::Right),
            ("MOSTLY BEHIND", Align::Left),
        ]
    };
    let columns = first.into_iter().chain(causes).chain(last);
    let mut table = Table::new(columns.chain([("PROMISES", Align::Left)]));
    let dated = history.to_ms.saturating_sub(history.from_ms) > 86_400_000;
    let mut ended = None;
    for interval in &history.intervals {
        // Points of 1 s lie some hundredths of a second apart.
        let slack = if history.step_s == 1 { 1500 } else { 0 };
        if let Some(ended) = ended
            && interval.from_ms > ended + slack
        {
            let length = duration((interval.from_ms - ended) * 1_000_000);
            let why = gap(ended, interval.from_ms, &history.recorded);
            table.line(Cell::from(format!("{length}: {why}")).tone(Tone::Faint));
        }
        ended = Some(interval.to_ms);
        table.row(row(
            interval,
            is_device,
            time(interval.from_ms, zone, dated),
        ));
    }
    table
}

fn row(interval: &IntervalView, is_device: bool, time: String) -> Vec<Cell> {
    let bytes = |name| bytes_per_s(per_s(interval, interval.value(name)));
    let quantile = |of: fn(&tidegate_api::history::LatencyView) -> u64| {
        interval
            .latency
            .as_ref()
            .map_or("-".to_owned(), |latency| duration(of(latency)))
    };
    let total: u64 = CAUSES.iter().map(|(name, _)| interval.value(name)).sum();
    let share = |name: &str| match total {
        0 => "-".to_owned(),
        _ => format!(
            "{:.0} %",
            100.0 * interval.value(name) as f64 / total as f64
        ),
    };
    let failed = interval.value("errors") + interval.value("io_errors");
    let failed_cell = Cell::from(count(failed));
    let failed = if failed > 0 {
        failed_cell.tone(Tone::Bad)
    } else {
        failed_cell
    };
    let mut cells = vec![
        Cell::from(time),
        rate(per_s(interval, requests(interval))).into(),
        bytes("read_bytes").into(),
        bytes("write_bytes").into(),
        quantile(|latency| latency.p50_ns).into(),
        quantile(|latency| latency.p99_ns).into(),
        quantile(|latency| latency.p999_ns).into(),
        quantile(|latency| latency.max_ns).into(),
    ];
    cells.extend(CAUSES.map(|(name, _)| Cell::from(share(name))));
    if is_device {
        let of_time = |name| {
            let percent = per_s(interval, interval.value(name)) / 10_000.0;
            Cell::from(format!("{:.0} %", percent.min(100.0)))
        };
        cells.extend([of_time("busy_us"), of_time("stalled_us"), failed]);
    } else {
        let behind = interval.behind.first();
        let behind = behind.map_or(String::new(), |behind| {
            format!("{}, {}", behind.vm, duration(behind.waited_us * 1000))
        });
        cells.extend([
            interval.value("pending").to_string().into(),
            failed,
            behind.into(),
        ]);
    }
    cells.push(promises(interval));
    cells
}

/// Returns the parts of the objective that were missed in an interval, with their seconds.
fn promises(interval: &IntervalView) -> Cell {
    let seconds = |part: &str, verdict: &str| interval.value(&format!("{part}_{verdict}_s"));
    let missed = PARTS.iter().filter_map(|part| {
        let missed = seconds(part, "missed");
        (missed > 0).then(|| format!("{part} {missed} s"))
    });
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        return Cell::from(format!("missed: {}", missed.join(", "))).tone(Tone::Bad);
    }
    match PARTS.iter().any(|part| seconds(part, "kept") > 0) {
        true => Cell::from("kept").tone(Tone::Good),
        false => Cell::from("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::history::{BehindMicrosView, LatencyView};
    use tidegate_report::Style;

    pub(super) fn interval(second: u64) -> IntervalView {
        let values = [
            ("reads", 1000),
            ("read_bytes", 4_096_000),
            ("queued_us", 750_000),
            ("device_us", 250_000),
            ("latency_missed_s", 2),
        ];
        IntervalView {
            from_ms: second * 1000,
            to_ms: second * 1000 + 10_000,
            observed_ms: 10_000,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            latency: Some(LatencyView {
                p50_ns: 1_000_000,
                p99_ns: 31_000_000,
                p999_ns: 40_000_000,
                max_ns: 50_000_000,
            }),
            behind: vec![BehindMicrosView {
                vm: "backup".to_owned(),
                waited_us: 710_000,
            }],
        }
    }

    #[test]
    fn a_row_has_rates_quantiles_shares_and_the_culprit() {
        let history = HistoryView {
            vm: Some("oltp".to_owned()),
            step_s: 10,
            to_ms: 60_000,
            intervals: vec![interval(0), interval(10), interval(40)],
            recorded: vec![SpanView {
                from_ms: 0,
                to_ms: 60_000,
            }],
            ..HistoryView::default()
        };
        let text = table_in(&history, &TimeZone::UTC).render(Style::Plain);
        for expected in ["00:00:00", "100", "31 ms", "75 %", "25 %", "backup, 710 ms"] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        assert!(text.contains("missed: latency 2 s"), "{text}");
        assert!(text.contains("20 s: idle"), "{text}");
        let stopped = HistoryView {
            recorded: Vec::new(),
            ..history
        };
        let text = table_in(&stopped, &TimeZone::UTC).render(Style::Plain);
        assert!(text.contains("20 s: the daemon did not run"), "{text}");
    }
}
