//! Statements that hold after every run: of the history, of what placers were told, and of what
//! they have in memory.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::time::Nanos;
use tidegate_place::Event;

use super::model::{Etcd, PREFIX};
use super::{BANDWIDTH, PER_HOST};
use crate::change::difference;
use crate::driver::Cluster;
use crate::part::Touched;
use crate::state::ClusterState;
use crate::store::etcd::records::{KeyValue, Records};

/// State that the history leads to.
pub(super) struct Checker {
    state: ClusterState,
    /// Names that were ever stored.
    ever: BTreeSet<String>,
}

impl Checker {
    /// Replays the history revision by revision, and checks each state: no transfer is placed
    /// twice, no host has more than it may, and nothing changes places but by an end.
    pub(super) fn replay(etcd: &Etcd) -> Result<Checker, String> {
        let mut records = Records::read(PREFIX, Vec::new(), 0).map_err(|it| it.to_string())?;
        let mut ever = BTreeSet::new();
        let mut before: BTreeMap<String, (String, Nanos)> = BTreeMap::new();
        let mut at = 0;
        while at < etcd.history.len() {
            let version = etcd.history[at].version;
            let rest = etcd.history[at..].iter();
            let events: Vec<_> = rest.take_while(|it| it.version == version).collect();
            at += events.len();
            let mut touched = Touched::default();
            for event in events {
                let key = event.key.strip_prefix(PREFIX).expect("all are below it");
                let event = KeyValue {
                    key: key.to_owned(),
                    ..event.clone()
                };
                let applied = records.apply(PREFIX, &event, &mut touched);
                applied.map_err(|error| format!("at {version}: {error}"))?;
            }
            let state = records.snapshot().state;
            let fits = records.check_fit(PREFIX, state.transfer_names());
            fits.map_err(|error| format!("at {version}: {error}"))?;
            ever.extend(state.transfer_names().map(str::to_owned));
            let placed: BTreeMap<_, _> = (state.running.iter())
                .map(|it| {
                    (
                        it.name().to_owned(),
                        (it.placement.host.clone(), it.placement.begun),
                    )
                })
                .collect();
            for (name, place) in &placed {
                if before.get(name).is_some_and(|before| before != place) {
                    return Err(format!("at {version}: {name} is placed twice"));
                }
            }
            let is_new = |(name, _): &(&String, _)| !before.contains_key(*name);
            let new = placed.iter().filter(is_new).map(|(_, (host, _))| &**host);
            let wrong = check_hosts(&state, &new.collect());
            wrong.map_err(|wrong| format!("at {version}: {wrong}"))?;
            before = placed;
        }
        let listed = Records::read(PREFIX, relative(etcd.pairs()), etcd.revision);
        let listed = listed.map_err(|error| error.to_string())?.snapshot();
        let state = records.snapshot();
        if listed != state {
            return Err(format!(
                "the history leads to {state:?}, and there is {listed:?}"
            ));
        }
        let state = state.state;
        Ok(Checker { state, ever })
    }

    /// The records of a placer are those of the history.
    pub(super) fn check_state(&self, state: &ClusterState) -> Result<(), String> {
        if *state == self.state {
            return Ok(());
        }
        let changes = difference(state, &self.state);
        Err(format!("a placer is {changes:?} behind the history"))
    }

    /// A placer decides as one that has just loaded the state.
    pub(super) fn check_decisions(&self, cluster: &Cluster<'_>, now: Nanos) -> Result<(), String> {
        let mut kept = cluster.pcos().clone();
        let mut new = cluster.resumed().map_err(|error| error.to_string())?;
        kept.refresh_all(now);
        new.refresh_all(now);
        for (kept, new) in kept.hosts().zip(new.hosts()) {
            let progress = |view: &tidegate_place::HostView<'_>| -> Vec<_> {
                let all = view.running().iter();
                all.map(|it| (it.vm, it.as_of, it.limit)).collect()
            };
            let is_same = kept.acceptance() == new.acceptance()
                && kept.is_open() == new.is_open()
                && progress(&kept) == progress(&new);
            if !is_same {
                return Err(format!(
                    "host {:?} is {kept:?}, and would be {new:?}",
                    kept.id
                ));
            }
        }
        let queue = |pcos: &tidegate_place::Pcos| -> Vec<_> {
            pcos.waiting()
                .map(|(_, request, arrived)| (request, arrived))
                .collect()
        };
        if queue(&kept) != queue(&new) {
            return Err(format!(
                "{:?} wait, and {:?} would",
                queue(&kept),
                queue(&new)
            ));
        }
        Ok(())
    }

    /// Placers were told the truth: a stored transfer is there until its end, and nobody stored one
    /// without being told.
    pub(super) fn check_told(
        &self,
        stored: &BTreeSet<String>,
        open_ended: &BTreeSet<String>,
    ) -> Result<(), String> {
        let is_lost = |name: &&String| !self.ever.contains(*name);
        if let Some(name) = stored.iter().find(is_lost) {
            return Err(format!("{name} was said to be stored, and never was"));
        }
        let is_gone =
            |name: &&String| !open_ended.contains(*name) && !self.state.has_transfer(name);
        if let Some(name) = stored.iter().find(is_gone) {
            return Err(format!("{name} is lost"));
        }
        let is_secret = |name: &&String| !stored.contains(*name) && !open_ended.contains(*name);
        match self.ever.iter().find(is_secret) {
            Some(name) => Err(format!("{name} was stored, and its placer told otherwise")),
            None => Ok(()),
        }
    }
}

fn relative(pairs: Vec<KeyValue>) -> Vec<KeyValue> {
    let to_relative = |pair: KeyValue| {
        let key = pair.key.strip_prefix(PREFIX)?.to_owned();
        Some(KeyValue { key, ..pair })
    };
    pairs.into_iter().filter_map(to_relative).collect()
}

/// Nothing waits that has room.
pub(super) fn check_waiting(cluster: &Cluster<'_>, now: Nanos) -> Result<(), String> {
    let mut pcos = cluster.pcos().clone();
    pcos.retry_all(now);
    match pcos.poll_event() {
        Some(Event::Placed(placement)) => Err(format!("{placement:?} waited in spite of room")),
        _ => Ok(()),
    }
}

/// No host has more transfers than it may, or more load than its bandwidth and the progress of the
/// whole run. `new` hosts have got a transfer, so their daemons are not gone, and what VMs reserve
/// fits beside.
fn check_hosts(state: &ClusterState, new: &BTreeSet<&str>) -> Result<(), String> {
    let mut loads: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for running in &state.running {
        let transfer = &running.transfer;
        let load = loads.entry(&running.placement.host).or_default();
        load.0 += 1;
        load.1 += transfer.bytes as f64 / transfer.deadline.as_secs_f64();
    }
    for (host, (transfers, bytes_per_s)) in loads {
        let record = state.hosts.iter().find(|it| it.name == host);
        let reserved = match record {
            Some(record) if new.contains(host) => state.reserved(record) as f64,
            _ => 0.0,
        };
        if new.contains(host) && state.is_lost(host) {
            return Err(format!("host {host} got a transfer without its daemon"));
        }
        if transfers > PER_HOST || bytes_per_s + reserved > BANDWIDTH as f64 * 1.01 {
            return Err(format!(
                "host {host} has {transfers} transfers of {bytes_per_s} B/s"
            ));
        }
    }
    Ok(())
}
