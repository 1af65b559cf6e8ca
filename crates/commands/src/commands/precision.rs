//! Precision of VMs' bandwidths and state of the tuner, in tables.

use tidegate_api::tuning::{InadequateView, PrecisionView, ThrottleView, TuningView};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, bytes_per_s, count, duration, rate};

/// Returns the table of B, beta and V of each VM. All must have the same statistical interval.
pub(super) fn table<'a>(vms: &[(&'a str, &'a PrecisionView)]) -> Table {
    let interval = vms.first().map_or(0, |(_, precision)| precision.interval_s);
    let beta = format!("BETA, {interval} s");
    let mut table = Table::new([
        ("VM", Align::Left),
        ("TARGET", Align::Right),
        ("MEAN", Align::Right),
        ("B", Align::Right),
        (beta.as_str(), Align::Right),
        ("V", Align::Right),
        ("ACTIVE s", Align::Right),
        ("IDLE s", Align::Right),
    ]);
    for (vm, precision) in vms {
        table.row([
            Cell::from(*vm).tone(Tone::Strong),
            bandwidth(precision.target_bytes_per_s).into(),
            bandwidth(precision.mean_bytes_per_s).into(),
            signed(precision.error_percent).into(),
            percent(precision.absolute_error_percent).into(),
            percent(precision.variability_percent).into(),
            count(precision.seconds.into()).into(),
            count(precision.idle_seconds.into()).into(),
        ]);
    }
    table
}

/// Returns the table of the tuner's state of each VM.
pub(super) fn tunings<'a>(vms: &[(&'a str, &'a TuningView)]) -> Table {
    let mut table = Table::new([
        ("TUNED VM", Align::Left),
        ("AIMS AT", Align::Right),
        ("MERGE LIMIT", Align::Right),
        ("WINDOW", Align::Right),
        ("THROTTLE", Align::Left),
        ("", Align::Left),
    ]);
    for (vm, tuning) in vms {
        table.row([
            Cell::from(*vm).tone(Tone::Strong),
            bandwidth(tuning.aim_bytes_per_s).into(),
            merge_limit(tuning).into(),
            window(tuning).into(),
            throttle(tuning).into(),
            state(tuning),
        ]);
    }
    table
}

/// Returns the precision of one VM on one line.
pub(super) fn in_line(precision: &PrecisionView) -> String {
    let v = format!("V {}", percent(precision.variability_percent));
    let over = format!(
        "over {} s with requests{}",
        precision.seconds,
        match precision.idle_seconds {
            0 => String::new(),
            idle => format!(", {idle} s idle"),
        }
    );
    match precision.target_bytes_per_s {
        None => format!("{v}, {over}"),
        Some(_) => format!(
            "B {}, beta {} in {} s, {v}, {over}",
            signed(precision.error_percent),
            percent(precision.absolute_error_percent),
            precision.interval_s,
        ),
    }
}

/// Adds the tuner's state to the table of a VM.
pub(super) fn add_properties(table: &mut Table, tuning: &TuningView) {
    if let Some(short) = &tuning.inadequate {
        table.property("capacity", Cell::from(inadequate(short)).tone(Tone::Bad));
    }
    if tuning.aim_bytes_per_s.is_some() {
        table.property("aims at", bandwidth(tuning.aim_bytes_per_s));
    }
    table
        .property("merge limit", merge_limit(tuning))
        .property("throttle", throttle(tuning))
        .property("window", window(tuning));
    if let Some(profiling) = &tuning.profiling {
        let text = format!(
            "{} of {} merge limits measured",
            profiling.done, profiling.total
        );
        table.property("profiling", text);
    }
    if let Some(range) = &tuning.range {
        let text = format!(
            "up to {} with I/Os of {}; {} with I/Os of one page",
            bytes_per_s(range.highest_bytes_per_s as f64),
            bytes(range.merge_limit_bytes.into()),
            bytes_per_s(range.lowest_bytes_per_s as f64),
        );
        table.property("possible range", text);
    }
    if tuning.error_percent.is_some() {
        let (b, v) = (tuning.error_percent, tuning.variability_percent);
        let text = format!("B {}, V {}", signed(b), percent(v));
        table.property("last interval", text);
    }
}

fn inadequate(short: &InadequateView) -> String {
    format!(
        "too small for the target: the device reaches {}, {} IOPS",
        bytes_per_s(short.bytes_per_s as f64),
        rate(short.iops),
    )
}

fn state(tuning: &TuningView) -> Cell {
    match (&tuning.inadequate, &tuning.profiling) {
        (Some(short), _) => {
            let had = bytes_per_s(short.bytes_per_s as f64);
            Cell::from(format!("capacity too small: {had}")).tone(Tone::Bad)
        }
        (None, Some(profiling)) => Cell::from(format!(
            "profiling, {} of {}",
            profiling.done, profiling.total
        )),
        (None, None) => Cell::from(""),
    }
}

fn bandwidth(of: Option<u64>) -> String {
    of.map_or("-".to_owned(), |of| bytes_per_s(of as f64))
}

fn percent(of: Option<f64>) -> String {
    of.map_or("-".to_owned(), |of| format!("{of:.2} %"))
}

fn signed(of: Option<f64>) -> String {
    of.map_or("-".to_owned(), |of| format!("{of:+.2} %"))
}

fn merge_limit(tuning: &TuningView) -> String {
    let limit = tuning.merge_limit_bytes;
    limit.map_or("the device's".to_owned(), |limit| bytes(limit.into()))
}

fn window(tuning: &TuningView) -> String {
    let searched = if tuning.settled {
        "settled"
    } else {
        "searching"
    };
    format!("{}, {searched}", duration(tuning.window_ns))
}

fn throttle(tuning: &TuningView) -> String {
    match tuning.throttle {
        None => "off".to_owned(),
        Some(ThrottleView::ExactlyBytesPerS(of)) => format!("exactly {}", bytes_per_s(of as f64)),
        Some(ThrottleView::AtMostBytesPerS(of)) => format!("at most {}", bytes_per_s(of as f64)),
        Some(ThrottleView::Iops(of)) => format!("{} IOPS", rate(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::tuning::{ProfilingView, RangeView};
    use tidegate_report::Style;

    fn precision(target: Option<u64>) -> PrecisionView {
        PrecisionView {
            seconds: 1234,
            idle_seconds: 56,
            interval_s: 30,
            mean_bytes_per_s: Some(29_740_000),
            target_bytes_per_s: target,
            error_percent: target.map(|_| -0.8667),
            absolute_error_percent: target.map(|_| 1.2345),
            variability_percent: Some(12.0),
        }
    }

    fn tuning() -> TuningView {
        TuningView {
            merge_limit_bytes: Some(8192),
            throttle: Some(ThrottleView::AtMostBytesPerS(33_000_000)),
            window_ns: 78_000_000,
            settled: true,
            aim_bytes_per_s: Some(30_000_000),
            range: Some(RangeView {
                lowest_bytes_per_s: 17_000_000,
                highest_bytes_per_s: 68_000_000,
                merge_limit_bytes: 45_056,
            }),
            profiling: None,
            error_percent: Some(0.5),
            variability_percent: Some(4.25),
            inadequate: None,
        }
    }

    #[test]
    fn a_vm_without_a_target_has_v_alone() {
        let (held, free) = (precision(Some(30_000_000)), precision(None));
        let shown = table(&[("oltp", &held), ("bulk", &free)]).render(Style::Plain);
        let lines: Vec<&str> = shown.lines().collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(lines[0]),
            "VM TARGET MEAN B BETA, 30 s V ACTIVE s IDLE s"
        );
        let expected = "oltp 30 MB/s 29.7 MB/s -0.87 % 1.23 % 12.00 % 1234 56";
        assert_eq!(words(lines[1]), expected);
        assert_eq!(words(lines[2]), "bulk - 29.7 MB/s - - 12.00 % 1234 56");
        assert!(lines.iter().all(|line| line.chars().count() <= 100));
        assert_eq!(
            in_line(&held),
            "B -0.87 %, beta 1.23 % in 30 s, V 12.00 %, over 1234 s with requests, 56 s idle"
        );
    }

    #[test]
    fn what_a_tuner_does_is_said_in_words() {
        let properties_of = |tuning: &TuningView| {
            let mut table = Table::properties();
            add_properties(&mut table, tuning);
            table.render(Style::Plain)
        };
        let message = properties_of(&tuning());
        for part in [
            "30 MB/s",
            "8 KiB",
            "at most 33 MB/s",
            "78 ms, settled",
            "up to 68 MB/s with I/Os of 44 KiB; 17 MB/s with I/Os of one page",
            "B +0.50 %, V 4.25 %",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let short = TuningView {
            inadequate: Some(InadequateView {
                since_ns: 0,
                bytes_per_s: 12_000_000,
                iops: 250.0,
            }),
            profiling: Some(ProfilingView { done: 3, total: 11 }),
            ..tuning()
        };
        let message = properties_of(&short);
        assert!(
            message.contains("the device reaches 12 MB/s, 250 IOPS"),
            "{message}"
        );
        assert!(message.contains("3 of 11 merge limits"), "{message}");
        let shown = tunings(&[("oltp", &short)]).render(Style::Plain);
        assert!(shown.contains("capacity too small: 12 MB/s"), "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= 100),
            "{shown}"
        );
    }
}
