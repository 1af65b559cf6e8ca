//! `tidegate record`: recordings of every request of a device.

use std::fs::File;
use std::io::{BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::Method;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_api::query::{RecordingQuery, percent_encode};
use tidegate_api::recording::{DeviceRecordingView, RecordingRequest, RecordingsView};
use tidegate_api::vm::VmView;
use tidegate_recording::Reader;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, count, duration};

use super::device;
use crate::args::{RecordCommand, RecordDumpArgs};
use crate::atomic_file::Replacement;
use crate::client::{Client, read};
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::signals;

/// Longest wait for a piece of a dump.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);

/// Command to which the name of a device is added where there are several.
const DUMP: &str = "tidegate record dump FILE --device";

pub(super) fn run(command: &RecordCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        RecordCommand::On { device } => switch(device.as_deref(), true, client, out),
        RecordCommand::Off { device } => switch(device.as_deref(), false, client, out),
        RecordCommand::Status => {
            let answer = client.get("/v1/recordings")?;
            if out.is_json() {
                return out.json(&answer);
            }
            show(&read(answer)?, out)
        }
        RecordCommand::Dump(args) => dump(args, client, out),
    }
}

/// Returns the path of a device's recording; with a query, of a range of it.
pub(super) fn path(device: &str, query: Option<&RecordingQuery>) -> String {
    let query = query.map_or_else(String::new, RecordingQuery::to_string);
    format!("/v1/devices/{}/recording{query}", percent_encode(device))
}

fn switch(device: Option<&str>, on: bool, client: &Client, out: Output) -> Result<()> {
    let device = match device {
        Some(device) => device.to_owned(),
        None => {
            let command = if on { "on" } else { "off" };
            device::only(&format!("tidegate record {command}"), client)?
        }
    };
    let answer = client.change(Method::PUT, &path(&device, None), &RecordingRequest { on })?;
    if out.is_json() {
        return out.json(&answer);
    }
    show(&read(answer)?, out)
}

/// Prints the state of all recordings, and warnings on standard error.
fn show(all: &RecordingsView, out: Output) -> Result<()> {
    let mut table = Table::new([
        ("DEVICE", Align::Left),
        ("RECORDING", Align::Left),
        ("REQUESTS", Align::Right),
        ("DROPPED", Align::Right),
        ("BYTES/REQUEST", Align::Right),
        ("FILES", Align::Right),
        ("COVERED", Align::Left),
    ]);
    for device in &all.devices {
        let state = match (&device.problem, device.on) {
            (Some(_), _) => Cell::from("stopped").tone(Tone::Bad),
            (None, true) => Cell::from("on").tone(Tone::Good),
            (None, false) => Cell::from("off"),
        };
        let dropped = Cell::from(count(device.dropped));
        table.row([
            Cell::from(device.device.as_str()).tone(Tone::Strong),
            state,
            count(device.requests).into(),
            if device.dropped > 0 {
                dropped.tone(Tone::Bad)
            } else {
                dropped
            },
            (device.bytes_a_request())
                .map_or("-".to_owned(), |size| format!("{size:.1}"))
                .into(),
            bytes(device.bytes).into(),
            covered(device).into(),
        ]);
    }
    out.table(&table)?;
    if let Some(directory) = &all.directory {
        let (used, most) = (bytes(all.bytes), bytes(all.max_bytes));
        out.text(&format!("\n{used} of at most {most} in {directory}\n"))?;
    }
    for device in &all.devices {
        if let Some(problem) = &device.problem {
            let name = &device.device;
            output::tell(format_args!(
                "warning: device {name}: recording stopped: {problem}"
            ));
        }
    }
    if !all.on_storage_of.is_empty() {
        let devices = all.on_storage_of.join(", ");
        output::tell(format_args!(
            "warning: recordings are on the storage of {devices} and take part of its throughput: \
             name a directory on another disk with [recording] directory"
        ));
    }
    Ok(())
}

/// Returns the time that the files of a device cover.
fn covered(device: &DeviceRecordingView) -> String {
    let (Some(from), Some(until)) = (&device.from, &device.until) else {
        return "-".to_owned();
    };
    let times = from
        .parse::<Timestamp>()
        .ok()
        .zip(until.parse::<Timestamp>().ok());
    let span = times.and_then(|(from, until)| {
        let span = until.duration_since(from);
        u64::try_from(span.as_nanos()).ok()
    });
    match span {
        Some(span) => format!("{} from {}", duration(span), seconds(from)),
        None => format!("from {from}"),
    }
}

/// Returns a time without fractions of a second.
fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

/// Content of a dump.
#[derive(Serialize)]
struct Dumped {
    file: String,
    bytes: u64,
    requests: u64,
    dropped: u64,
    lost: u64,
    gaps: u64,
    span_ns: u64,
    vms: Vec<String>,
}

fn dump(args: &RecordDumpArgs, client: &Client, out: Output) -> Result<()> {
    let device = match (&args.device, &args.vm) {
        (Some(device), _) => device.clone(),
        (None, Some(vm)) => {
            let vm = client.get(&format!("/v1/vms/{}", percent_encode(vm)));
            match vm.and_then(read::<VmView>) {
                Ok(vm) => vm.device,
                // It may have been removed since, and be in the files all the same.
                Err(_) => device::only(DUMP, client)?,
            }
        }
        (None, None) => device::only(DUMP, client)?,
    };
    let query = RecordingQuery {
        vm: args.vm.clone(),
        from: args.from.map(|time| time.to_string()),
        to: args.to.map(|time| time.to_string()),
    };
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_first(stop.clone())?;
    let written = download(&args.file, &path(&device, Some(&query)), client, &stop)?;
    let dumped = describe(&args.file, written)?;
    if out.is_json() {
        return out.json(&dumped);
    }
    let mut table = Table::properties();
    table
        .property(
            "recording",
            Cell::from(dumped.file.as_str()).tone(Tone::Strong),
        )
        .property("size", bytes(dumped.bytes))
        .property("requests", count(dumped.requests))
        .property("span", duration(dumped.span_ns))
        .property("VMs", dumped.vms.join(", "));
    if dumped.gaps > 0 {
        let text = format!(
            "{}: {} requests dropped, {} lost",
            count(dumped.gaps),
            count(dumped.dropped),
            count(dumped.lost)
        );
        table.property("gaps", Cell::from(text).tone(Tone::Warn));
    }
    Ok(out.table(&table)?)
}

/// Writes an answer to a file, which replaces an older one once it is whole, and returns its
/// length. Before that, an older file stays as it is, also if `stop` is set.
fn download(file: &Path, path: &str, client: &Client, stop: &AtomicBool) -> Result<u64> {
    let mut output = Replacement::create_private(file)?;
    let mut progress = DelayedBar::without_total("fetching");
    let mut written = 0;
    client.download(path, PIECE_TIMEOUT, |piece| {
        if stop.load(Ordering::Relaxed) {
            return Ok(ControlFlow::Break(()));
        }
        (output.write_all(piece)).with_context(|| format!("cannot write {}", file.display()))?;
        written += piece.len() as u64;
        progress.set(written, || bytes(written));
        Ok(ControlFlow::Continue(()))
    })?;
    if stop.load(Ordering::Relaxed) {
        let what = format!("stopped: {} is as it was", file.display());
        return Err(Problem::new(what).into());
    }
    output.commit()?;
    Ok(written)
}

/// Reads a dump for its content.
fn describe(file: &Path, written: u64) -> Result<Dumped> {
    let name = file.display().to_string();
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let unreadable = |error| Problem::new(format!("{name}: {error}"));
    let mut reader = Reader::new(BufReader::new(opened)).map_err(unreadable)?;
    while reader.next_item().map_err(unreadable)?.is_some() {}
    let summary = reader.summary();
    let mut vms: Vec<String> = (reader.inventory().vms().map(|vm| vm.name.clone())).collect();
    vms.sort_unstable();
    let span = summary.first.map(|first| summary.last.since(first));
    Ok(Dumped {
        file: name,
        bytes: written,
        requests: summary.requests,
        dropped: summary.dropped,
        lost: summary.lost,
        gaps: summary.gaps,
        span_ns: span.unwrap_or_default().0,
        vms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Downloads a dump over an older file, from a daemon that sends `body` and closes the
    /// connection. Returns what the directory has then, beside the socket.
    fn dumped(body: &'static str, stop: bool) -> (Result<u64>, Vec<(String, String)>) {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("bound");
        let daemon = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            // The request has no body, and is in one piece.
            let read = stream.read(&mut [0; 4096]).expect("a request");
            assert!(read > 0);
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).expect("taken");
            stream.write_all(body.as_bytes()).expect("taken");
        });
        let file = dir.path().join("d.tgrec");
        fs::write(&file, "the old one").expect("written");
        let client = Client::new(&socket).expect("a client");
        let result = download(&file, "/", &client, &AtomicBool::new(stop));
        daemon.join().expect("no panic");
        fs::remove_file(&socket).expect("there");
        let entries = fs::read_dir(dir.path()).expect("a directory");
        let content = entries.map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), fs::read_to_string(&path).expect("text"))
        });
        (result, content.collect())
    }

    fn alone(text: &str) -> Vec<(String, String)> {
        vec![("d.tgrec".to_owned(), text.to_owned())]
    }

    #[test]
    fn a_dump_replaces_its_file_only_once_it_is_whole() {
        let (written, content) = dumped("7\r\nthe new\r\n4\r\n one\r\n0\r\n\r\n", false);
        assert_eq!(written.expect("whole"), 11);
        assert_eq!(content, alone("the new one"));
        // The daemon is gone before the end of its answer, or within a piece.
        for cut in ["7\r\nthe new\r\n", "7\r\nthe"] {
            let (failed, content) = dumped(cut, false);
            assert!(failed.is_err(), "{cut}");
            assert_eq!(content, alone("the old one"), "{cut}");
        }
        // Ctrl-C, although the rest would come.
        let (stopped, content) = dumped("7\r\nthe new\r\n0\r\n\r\n", true);
        let error = stopped.expect_err("stopped").to_string();
        assert!(error.contains("d.tgrec is as it was"), "{error}");
        assert_eq!(content, alone("the old one"));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_before_the_daemon_is_asked() {
        let dir = tempfile::tempdir().expect("a directory");
        let client = Client::new(&dir.path().join("nobody")).expect("a client");
        let (stop, file) = (AtomicBool::new(false), dir.path().join("none/d.tgrec"));
        let error = download(&file, "/", &client, &stop).expect_err("no directory");
        assert!(error.to_string().contains("cannot write"), "{error}");
        let file = dir.path().join("d.tgrec");
        let error = download(&file, "/", &client, &stop).expect_err("no daemon");
        assert!(!error.to_string().contains("cannot write"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0);
    }
}
