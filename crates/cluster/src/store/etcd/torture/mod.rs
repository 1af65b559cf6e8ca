//! Torture of placement: placers that are kept for many decisions, on a model of etcd with crashes
//! between any two writes, lost answers, attempts that come after their placers have given them up
//! or ended, events that are repeated, out of order or compacted, hosts that are drained or changed
//! by hand and keys that vanish, as those of a lease do. Daemons carry out recorded starts, and are
//! restarted, meanwhile. One number, the seed, determines a run.
//!
//! `TIDEGATE_TORTURE_SEEDS=10000` runs more seeds than the default, `TIDEGATE_TORTURE_SEED=N` one.

mod check;
mod daemons;
mod model;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tidegate_api::cluster::PlacementClaim;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::{HostId, Outcome, Pcos, PriorityDatabase, Request};

use super::keyed::KeyedStore;
use super::published::ReservationValue;
use super::value::write;
use crate::change::Change;
use crate::cluster_event::ClusterEvent;
use crate::daemons::{DaemonError, DaemonSelection, Daemons, ServedVm, VmTransfer};
use crate::driver::{Cluster, Session};
use crate::error::Error;
use crate::record::HostRecord;
use crate::store::{ClusterStore, Revision, StoreError};
use check::Checker;
use daemons::DaemonModel;
use model::{Bug, CRASH, Client, Etcd, PREFIX, Random};

const MB: u64 = 1_000_000;
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
/// Transfers of a host at most.
const PER_HOST: usize = 4;
/// Bandwidth of a host in bytes per second.
const BANDWIDTH: u64 = 60 * MB;
const PLACERS: usize = 3;
/// Processes of all placers together, one after the other.
const LIVES: usize = 60;
const STEPS: usize = 160;
/// Numbers of names of transfers, of which a run draws one: few, so that placers want the same
/// names, and very few, so that a name comes back to a host while something of its last placement
/// is under way.
const NAMES: [usize; 3] = [3, 8, 24];
/// Seeds of a run of the tests.
const SEEDS: u64 = 60;
/// Rounds of all placers after which nothing waits that has room.
const ROUNDS: usize = 50;
/// Time between two steps, so short that the progress of transfers hardly counts.
const PAUSE: Nanos = Nanos::from_millis(2);

type Notify<'a> = &'a mut dyn FnMut(ClusterEvent);

/// One run.
struct Run<'a> {
    etcd: Arc<Mutex<Etcd>>,
    daemons: &'a DaemonModel,
    random: Random,
    /// Number of names of transfers.
    names: usize,
    now: Nanos,
    placers: Vec<Option<Cluster<'a>>>,
    /// Stores and callbacks of the processes that are still to be started.
    lives: Box<dyn Iterator<Item = (&'a KeyedStore<Client>, Notify<'a>)> + 'a>,
    /// Keys of hosts that have vanished, with their values.
    gone: Vec<(String, Option<Vec<u8>>)>,
    /// Names that a placer was told to be stored.
    stored: BTreeSet<String>,
    /// Names that a placer was told to be ended, or whose fate it was not told.
    open_ended: BTreeSet<String>,
}

/// Runs a seed. The error is what is wrong.
fn run(seed: u64, bug: Bug) -> Result<(), String> {
    let etcd = Arc::new(Mutex::new(Etcd::new(seed, bug)));
    let new_store = || KeyedStore::new(Client::new(&etcd), PREFIX);
    let stores: Vec<_> = (0..LIVES).map(|_| new_store()).collect();
    let mut callbacks: Vec<_> = (0..LIVES).map(|_| |_: ClusterEvent| {}).collect();
    let hosts = HOSTS.map(|name| {
        Change::PutHost(HostRecord::new(
            name.to_owned(),
            BANDWIDTH,
            vec![],
            PER_HOST,
        ))
    });
    let committed = new_store().commit(Revision::EMPTY, &hosts);
    committed.map_err(|error| error.to_string())?;
    etcd.lock().expect("no panic").has_faults = true;
    let callbacks = callbacks.iter_mut().map(|callback| callback as Notify<'_>);
    let daemons = DaemonModel::new(&etcd, Random::new(seed.rotate_left(32) ^ seed));
    let mut random = Random::new(!seed);
    let mut run = Run {
        etcd: Arc::clone(&etcd),
        daemons: &daemons,
        names: NAMES[random.below(NAMES.len())],
        random,
        now: Nanos::from_secs(1_000),
        placers: (0..PLACERS).map(|_| None).collect(),
        lives: Box::new(stores.iter().zip(callbacks)),
        gone: Vec::new(),
        stored: BTreeSet::new(),
        open_ended: BTreeSet::new(),
    };
    // Most daemons have joined, so that they have starts to carry out.
    for host in HOSTS {
        if !run.random.one_in(4) {
            run.register(host);
        }
    }
    for _ in 0..STEPS {
        run.now += PAUSE;
        let placer = run.random.below(PLACERS);
        match run.random.below(24) {
            0 => run.change_by_hand(),
            1 => {
                let mut etcd = run.etcd.lock().expect("no panic");
                etcd.compacted = etcd.revision;
            }
            2 => run.placers[placer] = None,
            3 => run.drain_or_resume(),
            4..=7 => run.act_as_daemon(),
            _ => run.act(placer)?,
        }
        if run.random.one_in(3) {
            run.daemons.advance();
        }
        if run.random.one_in(5) {
            run.etcd.lock().expect("no panic").deliver_late();
        }
    }
    run.heal()
}

impl<'a> Run<'a> {
    /// Starts the process of a placer, if it is not running.
    fn start(&mut self, placer: usize) {
        if self.placers[placer].is_some() {
            return;
        }
        let Some((store, notify)) = self.lives.next() else {
            return;
        };
        let session = Session {
            store,
            daemons: self.daemons,
            notify,
            now: self.now,
            ask: DaemonSelection::All,
            read_only: false,
        };
        // The call may fail as any other, and is tried again with the next step.
        self.placers[placer] = Cluster::open(session, |_| Ok::<_, Error>(())).ok();
    }

    /// A placer places, ends or reports a transfer.
    fn act(&mut self, placer: usize) -> Result<(), String> {
        self.start(placer);
        let Some(mut cluster) = self.placers[placer].take() else {
            return Ok(());
        };
        cluster.continue_at(self.now);
        let name = format!("t-{}", self.random.below(self.names));
        let is_running = cluster.state().running(&name).is_some();
        let done = match self.random.below(4) {
            0 if is_running => {
                self.open_ended.insert(name.clone());
                cluster.end(&name)
            }
            1 if is_running => {
                let running = cluster.state().running(&name).expect("it runs");
                let reported = running.placement.reported + 1_000;
                cluster.report_moved(&[(name.clone(), reported)])
            }
            _ => self.place(&mut cluster, &name),
        };
        let outcome = match done {
            Err(Error::Store(error)) => Some(error),
            Err(Error::NameTaken { .. }) | Ok(()) => None,
            Err(error @ (Error::Daemon(_) | Error::NotRemoved { .. })) => {
                // The job was placed for a while.
                self.open_ended.insert(name.clone());
                if let Error::Daemon(_) = error {
                    self.daemons.record_refused(&name, self.now.0)?;
                }
                let present = cluster.revision();
                Some(StoreError::Conflict { present })
            }
            Err(error) => return Err(format!("{name}: {error}")),
        };
        let is_dead = match outcome {
            Some(StoreError::Backend(error)) if error.to_string() == CRASH => true,
            Some(StoreError::Conflict { .. } | StoreError::Unavailable { .. }) => {
                cluster.refresh(self.now).is_err()
            }
            Some(StoreError::OutcomeUnknown(_)) => cluster.refresh(self.now).is_err(),
            Some(error) => return Err(format!("{name}: {error}")),
            None => false,
        };
        if !is_dead {
            self.placers[placer] = Some(cluster);
        }
        Ok(())
    }

    fn place(&mut self, cluster: &mut Cluster<'a>, name: &str) -> Result<(), Error> {
        let name = cluster.name_for(Some(name))?;
        let rate = (5 + self.random.below(20) as u64) * MB;
        let request = Request::new(rate * 1_000, Nanos::from_secs(1_000)).expect("valid");
        let is_to_start = self.random.one_in(2);
        let outcome = cluster.request(&name, request, is_to_start);
        let saved = cluster.save();
        match &saved {
            Ok(()) if !matches!(outcome, Outcome::Refused(_)) => drop(self.stored.insert(name)),
            // A later load shows if it was stored.
            Err(Error::Store(StoreError::OutcomeUnknown(_) | StoreError::Backend(_))) => {
                self.open_ended.insert(name);
            }
            _ => {}
        }
        saved
    }

    /// A command drains a host or lets it go on; it may fail as any other.
    fn drain_or_resume(&mut self) {
        let store = KeyedStore::new(Client::new(&self.etcd), PREFIX);
        let Ok(Some(snapshot)) = store.load(Revision::EMPTY) else {
            return;
        };
        let hosts = &snapshot.state.hosts;
        if hosts.is_empty() {
            return;
        }
        let mut host = hosts[self.random.below(hosts.len())].clone();
        host.drained = !host.drained;
        // A conflict, or a lost answer, leaves the host as another one has it.
        let _ = store.commit(snapshot.revision, &[Change::PutHost(host)]);
    }

    /// The daemon of a host looks for recorded starts, or is restarted, mostly while it is busy.
    fn act_as_daemon(&mut self) {
        let any = HOSTS[self.random.below(HOSTS.len())];
        if self.random.one_in(3) {
            let busy = self.daemons.busy_host();
            self.daemons.restart(busy.as_deref().unwrap_or(any));
        } else {
            self.daemons.look(any);
        }
    }

    /// Returns what the VMs of a host reserve from now on, as its daemon publishes it.
    fn new_reservation(&mut self, host: &str) -> (String, Option<Vec<u8>>) {
        let bytes_per_s = self.random.below(20) as u64 * MB;
        let reserved = ReservationValue::new([("sda".to_owned(), bytes_per_s)].into(), Nanos::ZERO);
        let key = format!("{PREFIX}reservations/{host}");
        (key, Some(write(&reserved).expect("JSON")))
    }

    /// The daemon of a host registers.
    fn register(&mut self, host: &str) {
        let member = (format!("{PREFIX}members/{host}"), Some(b"{}".to_vec()));
        let reservation = self.new_reservation(host);
        let mut etcd = self.etcd.lock().expect("no panic");
        etcd.write(&[member, reservation]);
    }

    /// An operator drains a host or lets it go on, or a key vanishes, as that of a lease does.
    fn change_by_hand(&mut self) {
        let mut etcd = self.etcd.lock().expect("no panic");
        let name = HOSTS[self.random.below(HOSTS.len())];
        let key = format!("{PREFIX}hosts/{name}");
        let is_empty = !etcd.keys.values().any(|pair| {
            let text = pair.value.as_deref().map(String::from_utf8_lossy);
            text.is_some_and(|text| text.contains(&format!("\"host\":\"{name}\"")))
        });
        let Some(value) = etcd.keys.get(&key).and_then(|pair| pair.value.clone()) else {
            // The transfer is stored again.
            etcd.write(&std::mem::take(&mut self.gone));
            return;
        };
        let text = String::from_utf8(value).expect("JSON");
        match self.random.below(4) {
            0 if is_empty => {
                etcd.write(&[(key.clone(), None)]);
                self.gone.push((key, Some(text.into_bytes())));
            }
            1 => {
                let member = format!("{PREFIX}members/{name}");
                if etcd.keys.contains_key(&member) {
                    etcd.write(&[(member, None)]);
                } else {
                    drop(etcd);
                    self.register(name);
                }
            }
            2 => {
                drop(etcd);
                let reservation = self.new_reservation(name);
                self.etcd.lock().expect("no panic").write(&[reservation]);
            }
            _ => {
                let toggled = if text.contains("\"drained\":true") {
                    text.replace("\"drained\":true", "\"drained\":false")
                } else {
                    text.replace("\"drained\":false", "\"drained\":true")
                };
                etcd.write(&[(key, Some(toggled.into_bytes()))]);
            }
        }
    }

    /// Ends all faults: all placers come to the same state, which is that of the history.
    fn heal(&mut self) -> Result<(), String> {
        {
            let mut etcd = self.etcd.lock().expect("no panic");
            etcd.has_faults = false;
            etcd.deliver_all_late();
        }
        let wrong = |error: Error| error.to_string();
        // Each may place what waits, which the others then see.
        let mut before = None;
        for _ in 0..ROUNDS {
            let revision = self.etcd.lock().expect("no panic").revision;
            if before.replace(revision) == Some(revision) {
                break;
            }
            for placer in 0..PLACERS {
                self.start(placer);
                if let Some(cluster) = &mut self.placers[placer] {
                    cluster.refresh(self.now).map_err(wrong)?;
                    cluster.save().map_err(wrong)?;
                }
            }
            self.daemons.settle(&HOSTS);
        }
        let etcd = self.etcd.lock().expect("no panic");
        let checker = Checker::replay(&etcd)?;
        for cluster in self.placers.iter().flatten() {
            checker.check_state(cluster.state())?;
            checker.check_decisions(cluster, self.now)?;
            check::check_waiting(cluster, self.now)?;
        }
        checker.check_told(&self.stored, &self.open_ended)?;
        drop(etcd);
        self.daemons.check()?;
        self.daemons.confirm_begun(checker.to_start())
    }
}

fn seeds() -> std::ops::Range<u64> {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match variable("TIDEGATE_TORTURE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("TIDEGATE_TORTURE_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn no_fault_places_twice_loses_a_transfer_or_overfills_a_host() {
    for seed in seeds() {
        if let Err(wrong) = run(seed, Bug::None) {
            panic!("{wrong}\nagain: TIDEGATE_TORTURE_SEED={seed}");
        }
    }
}

#[test]
fn planted_defects_are_found() {
    // Each with the property that it breaks; `None` where several do.
    for (bug, property) in [
        (Bug::ComparesNothing, None),
        (Bug::ComparesRevisionAlone, None),
        (Bug::IgnoresReservations, None),
        (Bug::ForgetsCommits, None),
        (Bug::TrustsAnyOrder, None),
        (Bug::LosesEvents, None),
        (Bug::IgnoresDraining, Some("while it was drained")),
        (Bug::TrustsLateAttempts, Some("comes after commit")),
        (Bug::LosesStarts, Some("never begins")),
        (Bug::KeepsStarts, Some("outlives its placement")),
        (Bug::IgnoresBegun, Some("was told that it is not started")),
        (Bug::DeletesAnyStart, Some("is deleted before it began")),
        (Bug::BeginsUnchecked, Some("runs without its placement")),
        (
            Bug::ConfirmsBeforeDelete,
            Some("was told that it is not started"),
        ),
        (Bug::ForgetsBegun, Some("begins twice")),
    ] {
        let is_found = |seed: u64| {
            let wrong = run(seed, bug).err();
            wrong.is_some_and(|wrong| property.is_none_or(|it| wrong.contains(it)))
        };
        let found = (0..10 * SEEDS).find(|seed| is_found(*seed));
        let seed = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: seed {seed}");
    }
}

/// Opens a cluster that is kept, on a model of etcd with one host, beside another writer.
fn with_two(act: impl FnOnce(&Arc<Mutex<Etcd>>, &KeyedStore<Client>, &mut Cluster<'_>)) {
    let etcd = Arc::new(Mutex::new(Etcd::new(1, Bug::None)));
    let [writer, reader] = [0; 2].map(|_| KeyedStore::new(Client::new(&etcd), PREFIX));
    let host = HostRecord::new("a".to_owned(), BANDWIDTH, vec![], PER_HOST);
    let committed = writer.commit(Revision::EMPTY, &[Change::PutHost(host)]);
    committed.expect("writes");
    let daemons = DaemonModel::new(&etcd, Random::new(1));
    let mut notify = |_: ClusterEvent| {};
    let session = Session {
        store: &reader,
        daemons: &daemons,
        notify: &mut notify,
        now: Nanos::SECOND,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    cluster.refresh(Nanos::SECOND).expect("reads");
    act(&etcd, &writer, &mut cluster);
}

fn lists(etcd: &Mutex<Etcd>) -> usize {
    etcd.lock().expect("no panic").lists
}

fn place(cluster: &mut Cluster<'_>, name: &str) -> Outcome {
    let request = Request::new(1_000 * BANDWIDTH / 2, Nanos::from_secs(1_000)).expect("valid");
    cluster.request(name, request, false)
}

#[test]
fn a_changed_grace_reaches_a_cluster_that_is_kept() {
    with_two(|etcd, writer, cluster| {
        let settings = crate::record::Settings {
            grace: Some(500),
            ..crate::record::Settings::default()
        };
        let before = lists(etcd);
        let committed = writer.commit(cluster.revision(), &[Change::PutSettings(settings)]);
        committed.expect("writes");
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert_eq!(lists(etcd), before + 1, "databases, and no records");
        assert_eq!(cluster.state().settings.grace, Some(500));
        let hosts = |pcos: &Pcos| format!("{:?}", pcos.hosts().collect::<Vec<_>>());
        let mut new = cluster.resumed().expect("consistent");
        new.refresh_all(Nanos::SECOND);
        assert_eq!(hosts(cluster.pcos()), hosts(&new));
    });
}

#[test]
fn what_a_daemon_publishes_fences_a_cluster_that_is_kept_and_reaches_it() {
    with_two(|etcd, _, cluster| {
        let publish = |key: &str, value: Option<&[u8]>| {
            let write = (format!("{PREFIX}{key}"), value.map(<[u8]>::to_vec));
            etcd.lock().expect("no panic").write(&[write]);
        };
        let reserved = ReservationValue::new([("sda".to_owned(), BANDWIDTH)].into(), Nanos(1));
        let reserved = write(&reserved).expect("JSON");
        publish("members/a", Some(b"{}"));
        publish("reservations/a", Some(&reserved));
        assert!(matches!(place(cluster, "x"), Outcome::Placed(_)));
        cluster.save().expect_err("the VMs have it all");
        assert!(cluster.lost_race());
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert!(!matches!(place(cluster, "x"), Outcome::Placed(_)));
        cluster.refresh(Nanos::SECOND).expect("undoes");
        // By events, without a listing.
        let before = lists(etcd);
        let less = ReservationValue::new([("sda".to_owned(), MB)].into(), Nanos(2));
        publish("reservations/a", Some(&write(&less).expect("JSON")));
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert!(matches!(place(cluster, "x"), Outcome::Placed(_)));
        cluster.save().expect("nothing has changed since");
        publish("members/a", None);
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert!(!matches!(place(cluster, "y"), Outcome::Placed(_)), "lost");
        assert_eq!(lists(etcd), before);
    });
}

/// Daemon of host `a` that has begun what it is asked for, cannot be reached, and has promised all
/// of the bandwidth to its VMs meanwhile.
struct Unreachable<'a>(&'a Mutex<Etcd>);

impl Daemons for Unreachable<'_> {
    fn host(&self, _: &str) -> Result<Option<String>, DaemonError> {
        Ok(None)
    }

    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        Ok(Vec::new())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        Ok(Vec::new())
    }

    fn start(
        &self,
        _: Option<&str>,
        vm: &str,
        _: &Request,
        _: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        let reserved = ReservationValue::new([("sda".to_owned(), BANDWIDTH)].into(), Nanos(1));
        let reserved = Some(write(&reserved).expect("JSON"));
        self.0.lock().expect("no panic").write(&[
            (format!("{PREFIX}starts/a/{vm}"), None),
            (format!("{PREFIX}reservations/a"), reserved),
        ]);
        Err(DaemonError::Unavailable("no connection".into()))
    }
}

#[test]
fn a_look_for_a_placement_to_remove_hides_nothing_from_later_decisions() {
    let etcd = Arc::new(Mutex::new(Etcd::new(1, Bug::None)));
    let store = KeyedStore::new(Client::new(&etcd), PREFIX);
    let host = HostRecord::new("a".to_owned(), BANDWIDTH, vec![], PER_HOST);
    let committed = store.commit(Revision::EMPTY, &[Change::PutHost(host)]);
    committed.expect("writes");
    let member = (format!("{PREFIX}members/a"), Some(b"{}".to_vec()));
    let reserved = ReservationValue::new([("sda".to_owned(), 0)].into(), Nanos(1));
    let reserved = Some(write(&reserved).expect("JSON"));
    let reservation = (format!("{PREFIX}reservations/a"), reserved);
    etcd.lock().expect("no panic").write(&[member, reservation]);
    let daemons = Unreachable(&etcd);
    let mut left = Vec::new();
    let mut notify = |event| left.push(event);
    let session = Session {
        store: &store,
        daemons: &daemons,
        notify: &mut notify,
        now: Nanos::SECOND,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    cluster.refresh(Nanos::SECOND).expect("reads");
    let request = Request::new(1_000 * MB, Nanos::from_secs(1_000)).expect("valid");
    assert!(matches!(
        cluster.request("x", request, true),
        Outcome::Placed(_)
    ));
    cluster.save().expect("it has begun");
    assert!(matches!(place(&mut cluster, "y"), Outcome::Placed(_)));
    cluster.save().expect_err("the VMs have it all");
    assert!(cluster.lost_race());
    cluster.refresh(Nanos::SECOND).expect("reads");
    assert!(!matches!(place(&mut cluster, "y"), Outcome::Placed(_)));
    drop(cluster);
    assert!(
        matches!(&left[..], [ClusterEvent::StartLeftToDaemon { transfer, .. }] if transfer == "x"),
        "{left:?}"
    );
}

#[test]
fn a_host_that_is_deleted_under_a_transfer_is_named_by_its_key() {
    with_two(|etcd, _, cluster| {
        place(cluster, "x");
        cluster.save().expect("writes");
        let gone = (format!("{PREFIX}hosts/a"), None);
        etcd.lock().expect("no panic").write(&[gone]);
        let damaged = cluster.refresh(Nanos::SECOND).expect_err("damaged");
        assert!(damaged.to_string().contains("/t/placements/x"), "{damaged}");
    });
}

#[test]
fn a_restored_history_with_the_same_revisions_is_listed() {
    with_two(|etcd, _, cluster| {
        place(cluster, "x");
        cluster.save().expect("writes");
        let before = lists(etcd);
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert_eq!(lists(etcd), before);
        {
            let mut etcd = etcd.lock().expect("no panic");
            let key = format!("{PREFIX}revision");
            let pair = etcd.keys.get_mut(&key).expect("there");
            let text = String::from_utf8(pair.value.take().expect("put")).expect("JSON");
            let (head, id) = text.split_once("[\"").expect("a commit");
            // Identifiers are random: another first digit is another commit.
            let digit = if id.starts_with('0') { '1' } else { '0' };
            pair.value = Some(format!("{head}[\"{digit}{}", &id[1..]).into());
        }
        cluster.refresh(Nanos::SECOND).expect("reads");
        assert!(lists(etcd) > before);
    });
}

#[test]
fn what_was_learnt_reaches_a_cluster_that_is_kept() {
    let etcd = Arc::new(Mutex::new(Etcd::new(1, Bug::None)));
    let [writer, reader] = [0; 2].map(|_| KeyedStore::new(Client::new(&etcd), PREFIX));
    let host = HostRecord::new("a".to_owned(), BANDWIDTH, vec![], PER_HOST);
    let bandwidth = host.bandwidth().expect("valid");
    let revision = writer.commit(Revision::EMPTY, &[Change::PutHost(host)]);
    let revision = revision.expect("writes");
    let daemons = DaemonModel::new(&etcd, Random::new(1));
    let mut notify = |_| {};
    let session = Session {
        store: &reader,
        daemons: &daemons,
        notify: &mut notify,
        now: Nanos::SECOND,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    let mut database = PriorityDatabase::new(bandwidth);
    database.learn([(Class::BestEffort, 7 * MB)]);
    let learnt = Change::PutLearnt {
        host: "a".to_owned(),
        database: database.export().as_bytes().to_vec(),
    };
    writer.commit(revision, &[learnt]).expect("writes");
    let lists = || etcd.lock().expect("no panic").lists;
    let before = lists();
    cluster.refresh(Nanos::SECOND).expect("reads");
    assert_eq!(lists(), before, "by events alone");
    let known = cluster.database(HostId(0)).expect("it is there");
    let entries: Vec<_> = known.entries().copied().collect();
    assert_eq!(entries, database.entries().copied().collect::<Vec<_>>());
}
