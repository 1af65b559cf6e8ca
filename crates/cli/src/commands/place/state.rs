//! What is kept between two runs of `tidegate place`: hosts, the jobs there, those that wait, and what was learnt of
//! hosts. In the same kind of file as the daemon's, each change whole or not at all.
//!
//! What was learnt of a host is under its name; all else is one row of JSON.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidegate_core::jobs::{Class, Job};
use tidegate_core::learnt::Blob;
use tidegate_core::time::Nanos;
use tidegate_place::{
    Bandwidth, HostId, HostSpec, MOST_WAITING, Pcos, PriorityDatabase, Request, RequestId, Tenant,
};
use tidegate_server::store::{Change, Store};

use crate::problem::Problem;

/// Rows of the store: what was learnt of a host, and all else.
const DATABASE: &str = "priority-database";
const STATE: (&str, &str) = ("", "place");
/// The version this writes, and the only one it reads.
const VERSION: u32 = 1;

/// All that is kept but what was learnt. Times count from the beginning of 1970.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    version: u32,
    pub(super) hosts: Vec<KeptHost>,
    /// In the order they began.
    pub(super) running: Vec<KeptJob>,
    /// In the order they came.
    pub(super) waiting: Vec<KeptRequest>,
    /// The last number that a job without a name was given.
    pub(super) numbered: u64,
}

/// A host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct KeptHost {
    pub(super) name: String,
    /// Bytes a second for one job, and what is lost with one, two and more.
    pub(super) bandwidth: u64,
    pub(super) loss: Vec<u64>,
    /// Jobs at most.
    pub(super) jobs: usize,
    /// The control socket of its daemon, and the device there; all of them unless said.
    #[serde(default)]
    pub(super) socket: Option<String>,
    #[serde(default)]
    pub(super) device: Option<String>,
    /// Since when nobody came, went or has another class.
    #[serde(default)]
    pub(super) steady_ns: u64,
}

/// A job that runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct KeptJob {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) bytes: u64,
    pub(super) deadline_ns: u64,
    pub(super) begun_ns: u64,
    /// How far it is taken to be, and as of when.
    pub(super) moved: u64,
    pub(super) as_of_ns: u64,
    /// What was told that had moved, and when; before that nothing, when it began.
    pub(super) told: u64,
    pub(super) told_ns: u64,
    pub(super) class: String,
    /// For which jobs it was lowered, a step each.
    pub(super) lowered_for: Vec<String>,
    /// Its host's daemon told of it; it is not kept.
    #[serde(skip)]
    pub(super) live: bool,
}

/// A job that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct KeptRequest {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) deadline_ns: u64,
    pub(super) arrived_ns: u64,
}

impl KeptJob {
    pub(super) fn class(&self) -> Class {
        let mut all = Class::ALL.into_iter();
        all.find(|class| class.name() == self.class)
            .unwrap_or_default()
    }
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            version: VERSION,
            hosts: Vec::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            numbered: 0,
        }
    }
}

/// Everything: what is kept, and the state machine that was made of it.
pub(super) struct Place {
    /// `None`: nothing is to be kept, and there is nothing yet.
    store: Option<Store>,
    /// Nothing of what happens is kept.
    pub(super) just_looking: bool,
    pub(super) kept: Kept,
    pub(super) pcos: Pcos,
    pub(super) now: Nanos,
    /// The names behind the numbers, of those that run and wait.
    names: Vec<(RequestId, String)>,
}

impl Place {
    /// With what is kept in this file, which is made where there is none, unless `just_looking`; `hosts` in place of
    /// those that are.
    pub(super) fn open(
        path: &Path,
        hosts: Option<Vec<KeptHost>>,
        just_looking: bool,
    ) -> Result<Place> {
        let store = match just_looking && !path.exists() {
            true => None,
            false => Some(Store::open(path)?),
        };
        let mut kept = store.as_ref().map_or_else(|| Ok(Kept::default()), read)?;
        if let Some(hosts) = hosts {
            kept.take_hosts(hosts)?;
        }
        if kept.hosts.is_empty() {
            let problem = Problem::new("there are no hosts yet").at(path.display().to_string());
            let help = "name a file of them once: --hosts place.toml; `tidegate place job --help` shows one";
            return Err(problem.help(help).into());
        }
        let now = now();
        kept.ask_daemons(now)?;
        let mut place = Place {
            store,
            just_looking,
            kept,
            pcos: Pcos::new(MOST_WAITING),
            now,
            names: Vec::new(),
        };
        place.resume()?;
        place.pcos.refresh_all(place.now);
        Ok(place)
    }

    /// Makes the state machine go on where it was.
    fn resume(&mut self) -> Result<()> {
        for host in &self.kept.hosts {
            let mut spec = HostSpec::new(host.bandwidth()?);
            spec.jobs = host.jobs;
            let learnt = self
                .store
                .as_ref()
                .map(|store| store.device(&host.name, DATABASE));
            if let Some((_, learnt)) = learnt.transpose()?.flatten() {
                let learnt = Blob::from_bytes(learnt);
                (spec.database.import(&learnt))
                    .map_err(|error| damaged(&format!("host {}: {error}", host.name)))?;
            }
            self.pcos.add_host(self.now, spec);
        }
        for job in &self.kept.running {
            let host = self
                .kept
                .host(&job.host)
                .ok_or_else(|| damaged("a job is on a host that is not there"))?;
            let tenant = Tenant {
                class: job.class(),
                job: Some(Job {
                    bytes: job.bytes,
                    begun: Nanos(job.begun_ns),
                    deadline: Nanos(job.deadline_ns),
                    moved: job.moved,
                }),
            };
            let id = self.pcos.resume(host, tenant, Nanos(job.as_of_ns));
            self.names.push((id, job.name.clone()));
        }
        for job in &self.kept.waiting {
            let request = Request::new(job.bytes, Nanos(job.deadline_ns))
                .map_err(|error| damaged(&error.to_string()))?;
            let id = self.pcos.resume_waiting(Nanos(job.arrived_ns), request);
            self.names.push((id, job.name.clone()));
        }
        Ok(())
    }

    /// How far jobs are taken to be.
    fn take_progress(&mut self) {
        for host in self.pcos.hosts() {
            for running in host.running() {
                let name = self.names.iter().find(|(id, _)| *id == running.id);
                let all = &mut self.kept.running;
                let kept = name.and_then(|(_, name)| all.iter_mut().find(|job| job.name == *name));
                if let (Some(kept), Some(job)) = (kept, running.tenant.job) {
                    (kept.moved, kept.as_of_ns) = (job.moved, running.as_of.0);
                }
            }
        }
    }

    /// A number has a name.
    pub(super) fn name(&mut self, id: RequestId, name: &str) {
        self.names.push((id, name.to_owned()));
    }

    /// The name of a number.
    pub(super) fn name_of(&self, id: RequestId) -> &str {
        let found = self.names.iter().find(|(known, _)| *known == id);
        found.map_or("?", |(_, name)| name)
    }

    /// The number of a name.
    pub(super) fn id_of(&self, name: &str) -> Option<RequestId> {
        let found = self.names.iter().find(|(_, known)| known == name);
        found.map(|(id, _)| *id)
    }

    /// What is known of a host.
    pub(super) fn database(&self, host: HostId) -> Option<PriorityDatabase> {
        Some(self.pcos.host(host)?.database().clone())
    }

    /// Keeps all of it; `learnt`: the hosts of which more is known now.
    pub(super) fn save(&mut self, learnt: &[HostId]) -> Result<()> {
        self.take_progress();
        let mut lasting = self.kept.clone();
        lasting.running.retain(|job| !job.live);
        let state = serde_json::to_vec(&lasting)?;
        let mut blobs = Vec::new();
        for &host in learnt {
            if let (Some(kept), Some(database)) = (self.kept.hosts.get(host.0), self.database(host))
            {
                blobs.push((kept.name.as_str(), database.export()));
            }
        }
        let mut changes = vec![Change::PutDevice {
            device: STATE.0,
            part: STATE.1,
            identity: "",
            state: Some(&state),
        }];
        changes.extend(blobs.iter().map(|(device, blob)| Change::PutDevice {
            device,
            part: DATABASE,
            identity: "",
            state: Some(blob.as_bytes()),
        }));
        if let Some(store) = &self.store {
            store.apply(&changes)?;
        }
        Ok(())
    }
}

impl Kept {
    /// A host by its name.
    pub(super) fn host(&self, name: &str) -> Option<HostId> {
        self.hosts
            .iter()
            .position(|host| host.name == name)
            .map(HostId)
    }

    /// Whether a name is somebody's who runs or waits.
    pub(super) fn has_job(&self, name: &str) -> bool {
        self.running.iter().any(|job| job.name == name)
            || self.waiting.iter().any(|job| job.name == name)
    }

    /// Other hosts than before; those that stay keep their jobs.
    fn take_hosts(&mut self, mut hosts: Vec<KeptHost>) -> Result<()> {
        for job in &self.running {
            if hosts.iter().all(|host| host.name != job.host) {
                let what = format!(
                    "host {:?} is not among the hosts any more, and job {:?} runs there",
                    job.host, job.name
                );
                let help = format!(
                    "leave it in the file until that has ended: `tidegate place end {}`",
                    job.name
                );
                return Err(Problem::new(what).at("--hosts").help(help).into());
            }
        }
        for host in &mut hosts {
            if let Some(before) = self.hosts.iter().find(|before| before.name == host.name) {
                host.steady_ns = before.steady_ns;
            }
        }
        self.hosts = hosts;
        Ok(())
    }
}

impl KeptHost {
    fn bandwidth(&self) -> Result<Bandwidth> {
        Bandwidth::new(self.bandwidth, &self.loss)
            .map_err(|error| damaged(&format!("host {}: {error}", self.name)))
    }
}

fn read(store: &Store) -> Result<Kept> {
    let Some((_, bytes)) = store.device(STATE.0, STATE.1)? else {
        return Ok(Kept::default());
    };
    let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    match kept.version {
        VERSION => Ok(kept),
        other => {
            let what = format!("what is kept has version {other}, this Tidegate knows {VERSION}");
            Err(Problem::new(what)
                .at("--db")
                .help("use the Tidegate that wrote it, or another file")
                .into())
        }
    }
}

fn damaged(why: &str) -> anyhow::Error {
    let problem = Problem::new(format!("what is kept cannot be: {why}")).at("--db");
    problem
        .help("put a copy of the file back, or name another one")
        .into()
}

/// Since the beginning of 1970.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }))
}
