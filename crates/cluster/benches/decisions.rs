//! Duration of decisions of a cluster that is kept, alone and with their commits: `cargo bench -p
//! tidegate-cluster --features etcd --bench decisions`.
//!
//! 1,000 hosts run 20,000 transfers, and 2,000 wait. Then transfers arrive, end and report their
//! progress. Prints percentiles of the CPU time of a decision alone, and of the time that passes
//! until its commit is stored: in memory, and in an etcd that the benchmark starts on this machine,
//! if it is installed. The first numeric argument is the number of decisions of each kind.

#[path = "../tests/suite/no_daemons.rs"]
mod no_daemons;
#[cfg(feature = "etcd")]
#[allow(dead_code)]
#[path = "../tests/suite/etcd/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_cluster::store::{ClusterStore, MemoryStore, Revision, Snapshot, StoreError, Update};
use tidegate_cluster::{
    Change, Cluster, DaemonSelection, Error, HostRecord, Placement, PublishedClock, Session,
    Transfer,
};
use tidegate_core::time::Nanos;
use tidegate_place::Request;

use no_daemons::NoDaemons;

const MB: u64 = 1_000_000;
const HOSTS: usize = 1_000;
const RUNNING: usize = 20_000;
const WAITING: usize = 2_000;
/// Simulated time between two decisions.
const PAUSE: Nanos = Nanos::from_millis(10);
/// Deadline of all transfers.
const HOUR: Nanos = Nanos::from_secs(3_600);
const BEGIN: Nanos = Nanos::from_secs(1_000_000);

/// Store that measures the CPU time of its commits.
struct Timed<'a> {
    store: &'a dyn ClusterStore,
    commits_ns: AtomicU64,
}

/// CPU time of this thread, which other programs on the machine do not change.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl ClusterStore for Timed<'_> {
    fn load(&self, known: Revision) -> Result<Option<Snapshot>, StoreError> {
        self.store.load(known)
    }

    fn changes_since(&self, known: Revision) -> Result<Option<Update>, StoreError> {
        self.store.changes_since(known)
    }

    fn learnt(&self, host: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.learnt(host)
    }

    fn learnt_by_all(&self, hosts: &[HostRecord]) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.store.learnt_by_all(hosts)
    }

    fn clocks(&self) -> Result<Vec<PublishedClock>, StoreError> {
        self.store.clocks()
    }

    fn commit(&self, revision: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        let begun = cpu();
        let committed = self.store.commit(revision, changes);
        let took = (cpu() - begun).as_nanos() as u64;
        self.commits_ns.fetch_add(took, Ordering::Relaxed);
        committed
    }
}

fn request(bytes_per_s: u64) -> Request {
    Request::new(bytes_per_s * HOUR.0 / Nanos::SECOND.0, HOUR).expect("valid")
}

/// Stores hosts, 20 transfers on each, and some that wait.
fn fill(store: &dyn ClusterStore) {
    let lost: Vec<u64> = (0..21).map(|others| others * 5 * MB).collect();
    let host = |at: usize| format!("host-{at:04}");
    let mut changes: Vec<_> = (0..HOSTS)
        .map(|at| Change::PutHost(HostRecord::new(host(at), 500 * MB, lost.clone(), 64)))
        .collect();
    // Host by host, so that a commit places on as few hosts as possible.
    for number in (0..HOSTS).flat_map(|at| (at..RUNNING).step_by(HOSTS)) {
        let rate = (10 + number as u64 % 8) * MB;
        let name = format!("placed-{number}");
        changes.push(Change::PutTransfer(Transfer::new(
            &name,
            &request(rate),
            BEGIN,
        )));
        changes.push(Change::PutPlacement {
            transfer: name,
            placement: Placement::new(&host(number % HOSTS), BEGIN),
        });
    }
    for number in 0..WAITING {
        let name = format!("waits-{number}");
        let waits = Transfer::new(&name, &request(30 * MB), BEGIN);
        changes.push(Change::PutTransfer(waits));
    }
    let mut revision = Revision::EMPTY;
    for part in changes.chunks(1_000) {
        revision = store.commit(revision, part).expect("writes");
    }
}

/// Times of the decisions of a kind.
#[derive(Default)]
struct Times {
    alone: Vec<Duration>,
    committed: Vec<Duration>,
}

fn percentiles(times: &mut [Duration]) -> [f64; 3] {
    times.sort_unstable();
    [0.5, 0.99, 1.0].map(|part| {
        let at = ((times.len() - 1) as f64 * part) as usize;
        times[at].as_secs_f64() * 1e6
    })
}

/// Brings the cluster up to date if the store has not answered in time.
fn settle(cluster: &mut Cluster<'_>, saved: Result<(), Error>, now: Nanos) {
    match saved {
        Ok(()) => {}
        Err(Error::Store(StoreError::OutcomeUnknown(_))) => {
            cluster.refresh(now).expect("the store is back");
        }
        Err(error) => panic!("no other writer: {error}"),
    }
}

fn measure(name: &str, store: &dyn ClusterStore, decisions: usize) {
    fill(store);
    let store = Timed {
        store,
        commits_ns: AtomicU64::new(0),
    };
    let begun = Instant::now();
    let session = Session {
        store: &store,
        daemons: &NoDaemons,
        notify: &mut |_| {},
        now: BEGIN,
        ask: DaemonSelection::All,
        read_only: false,
    };
    let mut cluster = Cluster::open(session, |_| Ok::<_, Error>(())).expect("opens");
    cluster.refresh(BEGIN).expect("no other writer");
    println!(
        "{name}: opened in {:.0} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
    let mut now = BEGIN;
    let mut all = [Times::default(), Times::default(), Times::default()];
    for number in 0..decisions {
        for (kind, times) in all.iter_mut().enumerate() {
            now += PAUSE;
            store.commits_ns.store(0, Ordering::Relaxed);
            let (begun, begun_cpu) = (Instant::now(), cpu());
            cluster.continue_at(now);
            match kind {
                0 => {
                    let name = format!("new-{number}");
                    let rate = (5 + number as u64 % 20) * MB;
                    cluster.request(&name, request(rate), false);
                    let saved = cluster.save();
                    settle(&mut cluster, saved, now);
                }
                1 => {
                    let ended = cluster.end(&format!("placed-{number}"));
                    settle(&mut cluster, ended, now);
                }
                _ => {
                    let name = format!("placed-{}", RUNNING - 1 - number % (RUNNING / 4));
                    let running = cluster.state().running(&name).expect("it runs");
                    let moved = running.placement.reported + 1;
                    let reported = cluster.report_moved(&[(name, moved)]);
                    settle(&mut cluster, reported, now);
                }
            }
            let (took, took_cpu) = (begun.elapsed(), cpu() - begun_cpu);
            let commit = Duration::from_nanos(store.commits_ns.load(Ordering::Relaxed));
            times.alone.push(took_cpu.saturating_sub(commit));
            times.committed.push(took);
        }
    }
    for (kind, times) in ["arrival", "end", "progress"].into_iter().zip(&mut all) {
        let alone = percentiles(&mut times.alone);
        let committed = percentiles(&mut times.committed);
        println!(
            "{name:<8}{kind:<10}{:>9.0}{:>9.0}{:>9.0}{:>12.0}{:>9.0}{:>9.0}",
            alone[0], alone[1], alone[2], committed[0], committed[1], committed[2]
        );
    }
}

fn main() {
    let decisions = std::env::args().find_map(|text| text.parse::<usize>().ok());
    // Fewer than a quarter of the placed transfers are ended.
    let decisions = decisions.unwrap_or(2_000).min(RUNNING / 4);
    println!("{HOSTS} hosts, {RUNNING} transfers placed, {WAITING} wait; times in us");
    println!(
        "{:<18}{:>27}{:>30}",
        "", "alone, CPU: half, 99 %, all", "with commit: half, 99 %, all"
    );
    measure("memory", &MemoryStore::default(), decisions);
    #[cfg(feature = "etcd")]
    if server::is_installed() {
        let server = server::Server::start();
        measure("etcd", &server.store("/bench/"), decisions);
    }
}
