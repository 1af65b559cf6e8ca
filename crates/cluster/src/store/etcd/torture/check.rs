//! Statements that hold after every run: of the history, of what placers were told, and of what
//! they have in memory.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::time::Nanos;
use tidegate_place::Event;

use super::daemons::Placed;
use super::model::{Etcd, PREFIX};
use super::{BANDWIDTH, PER_HOST};
use crate::change::difference;
use crate::driver::Cluster;
use crate::part::Touched;
use crate::state::ClusterState;
use crate::store::etcd::keys::STARTS;
use crate::store::etcd::records::{KeyValue, REVISION, Records};
use crate::store::etcd::starts::{StartValue, start_key};
use crate::store::etcd::value::{RevisionValue, read};

/// State that the history leads to.
pub(super) struct Checker {
    state: ClusterState,
    /// Names that were ever stored.
    ever: BTreeSet<String>,
    /// Placements that a daemon was to start.
    to_start: BTreeSet<Placed>,
}

/// Keys that commits and daemons have written beside the records of the state.
#[derive(Default)]
struct Others {
    /// Number of the last commit.
    revision: u64,
    /// Recorded starts by key.
    starts: BTreeMap<String, StartValue>,
}

impl Others {
    /// Applies an event. Each commit counts on from the one before it, however late it comes.
    fn apply(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        if key == REVISION {
            let value: RevisionValue = read(key, value.unwrap_or_default()).expect("as written");
            if value.revision != self.revision + 1 {
                let (is, was) = (value.revision, self.revision);
                return Err(format!("commit {is} comes after commit {was}"));
            }
            self.revision = value.revision;
        } else if key.starts_with(STARTS) {
            match value {
                Some(value) => {
                    let value = read(key, value).expect("as written");
                    self.starts.insert(key.to_owned(), value);
                }
                None => drop(self.starts.remove(key)),
            }
        }
        Ok(())
    }

    /// Checks that each start is of a placement that stands.
    fn check_starts(&self, placed: &BTreeMap<String, (String, Nanos)>) -> Result<(), String> {
        let stands = |(key, start): &(&String, &StartValue)| {
            placed.iter().any(|(name, (host, begun))| {
                start_key(host, name) == **key && begun.0 == start.begun_ns
            })
        };
        match self.starts.iter().find(|it| !stands(it)) {
            Some((key, _)) => Err(format!("{key} outlives its placement")),
            None => Ok(()),
        }
    }
}

impl Checker {
    /// Replays the history revision by revision, and checks each state: no transfer is placed
    /// twice, no host has more than it may, and nothing changes places but by an end.
    pub(super) fn replay(etcd: &Etcd) -> Result<Checker, String> {
        let mut records = Records::read(PREFIX, Vec::new(), 0).map_err(|it| it.to_string())?;
        let mut ever = BTreeSet::new();
        let mut before: BTreeMap<String, (String, Nanos)> = BTreeMap::new();
        let (mut others, mut to_start) = (Others::default(), BTreeSet::new());
        let mut at = 0;
        while at < etcd.history.len() {
            let version = etcd.history[at].version;
            let rest = etcd.history[at..].iter();
            let events: Vec<_> = rest.take_while(|it| it.version == version).collect();
            at += events.len();
            let mut touched = Touched::default();
            for event in events {
                let key = event.key.strip_prefix(PREFIX).expect("all are below it");
                let other = others.apply(key, event.value.as_deref());
                other.map_err(|wrong| format!("at {version}: {wrong}"))?;
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
            let wrong = wrong.and_then(|()| others.check_starts(&placed));
            wrong.map_err(|wrong| format!("at {version}: {wrong}"))?;
            let new = placed.keys().filter(|name| !before.contains_key(*name));
            to_start.extend(new.filter_map(|name| start_of(name, &state)));
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
        Ok(Checker {
            state,
            ever,
            to_start,
        })
    }

    /// Placements that a daemon was to start, also those that have ended.
    pub(super) fn to_start(&self) -> &BTreeSet<Placed> {
        &self.to_start
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

/// Returns the placement of a transfer, if it is to be started by a daemon that has joined.
fn start_of(name: &str, state: &ClusterState) -> Option<Placed> {
    let running = state.running(name)?;
    let placement = &running.placement;
    let has_joined = state.memberships.contains_key(&placement.host);
    (running.transfer.start && has_joined).then(|| Placed {
        host: placement.host.clone(),
        transfer: name.to_owned(),
        begun_ns: placement.begun.0,
    })
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
/// whole run. `new` hosts have got a transfer, so they are not drained, their daemons are not gone,
/// and what VMs reserve fits beside.
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
        if new.contains(host) && record.is_some_and(|record| record.drained) {
            return Err(format!("host {host} got a transfer while it was drained"));
        }
        if transfers > PER_HOST || bytes_per_s + reserved > BANDWIDTH as f64 * 1.01 {
            return Err(format!(
                "host {host} has {transfers} transfers of {bytes_per_s} B/s"
            ));
        }
    }
    Ok(())
}
