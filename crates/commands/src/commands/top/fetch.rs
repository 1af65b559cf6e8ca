//! Requests to the daemon, on threads of their own, so that a daemon that is slow or down never
//! keeps a key waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hyper::Method;
use jiff::Timestamp;
use tidegate_api::device::DeviceView;
use tidegate_api::history::HistoryView;
use tidegate_api::query::{HistoryQuery, percent_encode};
use tidegate_api::stats::StatsView;
use tidegate_api::vm::VmView;

use super::answers::Answers;
use super::change::Change;
use super::event::Event;
use super::quantiles::Quantiles;
use crate::client::{Client, read};
use crate::problem;

/// Time from the first answers to the second, so that rates are shown soon.
const FIRST: Duration = Duration::from_millis(300);
/// Span of a VM's history that is asked for: as much as the screen can show.
const HISTORY_FROM: &str = "-15m";

/// Returns the present time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Asks the daemon for everything that one refresh needs. `quantiles` becomes [`Quantiles::All`]
/// for good where the daemon is too old for a choice.
///
/// # Errors
/// If it does not answer one of the requests.
pub(super) fn answers(client: &Client, quantiles: &mut Quantiles) -> Result<Answers> {
    let asked_ms = now_ms();
    let devices: Vec<DeviceView> = read(client.get("/v1/devices")?)?;
    let vms: Vec<VmView> = read(client.get("/v1/vms")?)?;
    let stats = stats(client, quantiles, vms.len())?;
    let transfers = read(client.get("/v1/jobs")?)?;
    let health = client.health()?;
    let seconds = devices.iter().filter_map(|device| {
        // A history that is turned off is an error, and no reason to show nothing.
        let seconds = history(client, "devices", &device.name, "-3s", "1s");
        Some((device.name.clone(), seconds.ok()?))
    });
    Ok(Answers {
        asked_ms,
        at_ms: now_ms(),
        health,
        device_seconds: seconds.collect(),
        devices,
        vms,
        stats,
        transfers,
    })
}

/// Asks for the counters of `vms` VMs, with the buckets that `quantiles` needs or, of a daemon that
/// knows no choice, with all.
fn stats(client: &Client, quantiles: &mut Quantiles, vms: usize) -> Result<StatsView> {
    let query = quantiles.query(vms);
    let refused = match client.get_if_known(&format!("/v1/stats{query}"))? {
        Ok(stats) => return read(stats),
        Err(refused) => refused,
    };
    if query.buckets_of.is_empty() {
        return Err(refused);
    }
    *quantiles = Quantiles::All;
    let query = quantiles.query(vms);
    read(client.get(&format!("/v1/stats{query}"))?)
}

fn history(client: &Client, kind: &str, name: &str, from: &str, step: &str) -> Result<HistoryView> {
    let query = HistoryQuery {
        from: Some(from.to_owned()),
        to: None,
        step: Some(step.to_owned()),
        buckets: false,
    };
    let name = percent_encode(name);
    read(client.get(&format!("/v1/{kind}/{name}/history{query}"))?)
}

/// Asks for answers once per `every`, and at once when woken, until `events` is closed. `wanted` is
/// what the last frame needs.
pub(super) fn poll(
    client: &Client,
    every: Duration,
    wake: &Receiver<()>,
    wanted: &Mutex<Quantiles>,
    events: &Sender<Event>,
) {
    let mut wait = FIRST.min(every);
    let mut knows_choice = true;
    loop {
        match wake.recv_timeout(wait) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Valid also if a thread has panicked: it is replaced as a whole.
        let wanted = wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut quantiles = if knows_choice {
            wanted.clone()
        } else {
            Quantiles::All
        };
        let answers = answers(client, &mut quantiles).map_err(|error| problem::text(&error));
        knows_choice &= quantiles == wanted;
        if events.send(Event::Answers(Box::new(answers))).is_err() {
            return;
        }
        wait = every;
    }
}

/// Asks for the history of VMs as they are named, of the last one first: those before may have left
/// the screen.
pub(super) fn histories(client: &Client, names: &Receiver<String>, events: &Sender<Event>) {
    let mut waiting = Vec::new();
    loop {
        waiting.extend(names.try_iter());
        let Some(name) = waiting.pop().or_else(|| names.recv().ok()) else {
            return;
        };
        // A VM may have left the screen and come back meanwhile.
        waiting.retain(|other| *other != name);
        // Without a history the last minutes fill as they pass.
        if let Ok(history) = history(client, "vms", &name, HISTORY_FROM, "10s")
            && events.send(Event::History(history)).is_err()
        {
            return;
        }
    }
}

/// Makes changes as they come.
pub(super) fn changes(client: &Client, changes: &Receiver<Change>, events: &Sender<Event>) {
    for change in changes {
        let answer = client.change(Method::PATCH, &change.path, &change.body);
        let vm = answer.and_then(read::<VmView>);
        let vm = vm.map_err(|error| problem::text(&error));
        if events.send(Event::Changed(Box::new(vm))).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers requests as a daemon that does not know `buckets_of`; returns their paths.
    fn older_daemon(listener: &UnixListener, requests: usize) -> Vec<String> {
        let paths = (0..requests).map(|_| {
            let (stream, _) = listener.accept().expect("a client");
            let mut lines = BufReader::new(&stream)
                .lines()
                .map(|line| line.expect("text"));
            let first = lines.next().expect("a request");
            let path = first.split(' ').nth(1).expect("a path").to_owned();
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            let (status, body) = if path.contains("buckets_of") {
                let body = r#"{"error":{"what":"unknown field","where":"query","allowed":null}}"#;
                ("400 Bad Request", body)
            } else {
                ("200 OK", r#"{"vms":[]}"#)
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n");
            (&stream).write_all((head + body).as_bytes()).expect("sent");
            path
        });
        paths.collect()
    }

    #[test]
    fn a_daemon_that_knows_no_choice_is_asked_for_all_buckets() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        let daemon = thread::spawn(move || older_daemon(&listener, 3));
        let client = Client::new(&socket).expect("a client");
        let mut quantiles = Quantiles::Of(vec!["db".to_owned()]);
        for _ in 0..2 {
            let stats = stats(&client, &mut quantiles, 5000).expect("an answer");
            assert!(stats.vms.is_empty());
            assert_eq!(quantiles, Quantiles::All, "for good");
        }
        let asked = daemon.join().expect("three requests");
        let [chosen, all] = ["buckets_of=db", "buckets=true"].map(|it| format!("/v1/stats?{it}"));
        assert_eq!(asked, [chosen, all.clone(), all]);
    }
}
