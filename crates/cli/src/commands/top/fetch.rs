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

/// Asks the daemon for everything that one refresh needs.
///
/// # Errors
/// If it does not answer one of the requests.
pub(super) fn answers(client: &Client, quantiles: &Quantiles) -> Result<Answers> {
    let asked_ms = now_ms();
    let devices: Vec<DeviceView> = read(client.get("/v1/devices")?)?;
    let vms: Vec<VmView> = read(client.get("/v1/vms")?)?;
    let query = quantiles.query(vms.len());
    let stats = read(client.get(&format!("/v1/stats{query}"))?)?;
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
    loop {
        match wake.recv_timeout(wait) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Valid also if a thread has panicked: it is replaced as a whole.
        let quantiles = wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let answers = answers(client, &quantiles).map_err(|error| problem::text(&error));
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
