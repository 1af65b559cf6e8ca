//! `tidegate history`: what a VM or a device did, interval by interval.

mod csv;
mod plots;
mod table;

pub(super) use table::{per_s, requests, time, time_and_offset};

use anyhow::Result;
use jiff::Timestamp;
use tidegate_api::history::{HistoryStatusView, HistoryView};
use tidegate_api::query::{HistoryQuery, percent_encode};
use tidegate_report::{Cell, Table, Tone};
use tidegate_units::human::{bytes, count};

use crate::args::{Format, HistoryArgs};
use crate::client::{Client, read};
use crate::output::Output;
use crate::plot_output;

pub(super) fn run(args: &HistoryArgs, client: &Client, out: Output) -> Result<()> {
    if args.status {
        return status(client, out);
    }
    let path = match (&args.vm, &args.device) {
        (Some(vm), _) => format!("/v1/vms/{}/history", percent_encode(vm)),
        (None, device) => {
            // clap requires one of the two.
            let device = device.as_deref().unwrap_or_default();
            format!("/v1/devices/{}/history", percent_encode(device))
        }
    };
    let query = HistoryQuery {
        from: Some(args.last.as_ref().unwrap_or(&args.from).to_string()),
        to: Some(args.to.to_string()),
        step: args.step.clone(),
        buckets: false,
    };
    let answer = client.get(&format!("{path}{query}"))?;
    match out.format() {
        Format::Json => out.json(&answer),
        Format::Csv => Ok(out.text(&csv::text(&read(answer)?))?),
        Format::Table => show(&read(answer)?, args, out),
    }
}

fn show(history: &HistoryView, args: &HistoryArgs, out: Output) -> Result<()> {
    if history.intervals.is_empty() {
        let text = match history.recorded.first() {
            Some(_) => "no requests in this span",
            None => "nothing was recorded in this span",
        };
        return Ok(out.text(&format!("{text}\n"))?);
    }
    out.table_in_width(table::table(history), &table::DROPS)?;
    // A single point is no curve.
    if history.intervals.len() > 1 {
        out.text("\n")?;
        plot_output::draw(out, &plots::plots(history), args.ascii)?;
    }
    Ok(())
}

/// Prints the state of the history itself.
fn status(client: &Client, out: Output) -> Result<()> {
    let answer = client.get("/v1/history")?;
    if out.is_json() {
        return out.json(&answer);
    }
    let status: HistoryStatusView = read(answer)?;
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    Ok(out.table(&status_table(&status, now_ms))?)
}

/// Returns a span of time in whole seconds, minutes or hours.
pub(super) fn span(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn status_table(status: &HistoryStatusView, now_ms: u64) -> Table {
    let mut table = Table::properties();
    if !status.enabled {
        table.property("history", "off: enabled = false in [history]");
        return table;
    }
    let back = |oldest: Option<u64>| {
        let back = oldest.map(|oldest| now_ms.saturating_sub(oldest));
        back.map_or("none yet".to_owned(), |ms| format!("back {}", span(ms)))
    };
    table.property("points of 1 s", back(status.oldest_1s_ms));
    table.property("points of 10 s", back(status.oldest_10s_ms));
    table.property("memory", bytes(status.memory_bytes));
    if status.delayed > 0 {
        table.property(
            "delayed",
            format!("{} times, without loss", count(status.delayed)),
        );
    }
    let Some(files) = &status.files else {
        let text = "none: without a [store] or a directory in [history] it ends with the daemon";
        table.property("files", Cell::from(text).tone(Tone::Warn));
        return table;
    };
    table.property("directory", files.directory.as_str());
    table.property(
        "files",
        format!("{} of {}", bytes(files.bytes), bytes(files.max_bytes)),
    );
    if let Some(why) = &files.failing {
        let text = format!("failing, so that points are in memory alone: {why}");
        table.property("", Cell::from(text).tone(Tone::Bad));
    }
    if files.dropped > 0 {
        let text = format!("{} blocks were not written", count(files.dropped));
        table.property("", Cell::from(text).tone(Tone::Warn));
    }
    for device in &files.on_devices {
        let text = format!("on the block device of device {device}, whose VMs share it");
        table.property("", Cell::from(text).tone(Tone::Warn));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::history::HistoryFilesView;
    use tidegate_report::Style;

    #[test]
    fn the_status_says_what_is_wrong() {
        let mut status = HistoryStatusView {
            enabled: true,
            oldest_1s_ms: Some(100_000),
            ..HistoryStatusView::default()
        };
        let text =
            |status: &HistoryStatusView| status_table(status, 1_000_000).render(Style::Plain);
        assert!(text(&status).contains("back 15 min"), "{}", text(&status));
        assert!(text(&status).contains("ends with the daemon"));
        status.files = Some(HistoryFilesView {
            directory: "/var/lib/tidegate/tidegate.history".to_owned(),
            bytes: 1 << 20,
            max_bytes: 256 << 20,
            dropped: 3,
            failing: Some("no space left".to_owned()),
            on_devices: vec!["disk0".to_owned()],
        });
        let text = text(&status);
        for expected in [
            "no space left",
            "3 blocks",
            "device disk0",
            "256 MiB",
            "none yet",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
