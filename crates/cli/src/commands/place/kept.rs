//! What is kept between two runs of `tidegate place`, as it lies in the file: hosts, the jobs there, those that wait.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;
use tidegate_place::{Bandwidth, Grace, HostId, Request, RequestError};
use tidegate_server::store::Store;

use crate::problem::Problem;

/// The version this writes, and the only one it reads.
const VERSION: u32 = 1;
/// Device and part under which the store holds all but what was learnt.
pub(super) const STATE: (&str, &str) = ("", "place");

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
    /// In thousandths; what is usual unless said.
    #[serde(default)]
    pub(super) grace: Option<u32>,
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
    /// It takes no more jobs.
    #[serde(default)]
    pub(super) drained: bool,
    /// When its daemon last taught something.
    #[serde(default)]
    pub(super) learnt_ns: u64,
}

/// What a file of hosts says.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HostsFile {
    pub(super) hosts: Vec<KeptHost>,
    /// How late a job may be and still keep others out, in thousandths of its deadline; what is
    /// usual unless said.
    pub(super) grace: Option<u32>,
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
    /// What it takes at most, in bytes a second, as was said when it came.
    #[serde(default)]
    pub(super) limit: Option<u64>,
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
    /// What it takes at most, in bytes a second.
    #[serde(default)]
    pub(super) limit: Option<u64>,
    /// It is to be started where it goes.
    #[serde(default)]
    pub(super) start: bool,
}

impl KeptRequest {
    /// What it asks for.
    pub(super) fn request(&self) -> Result<Request, RequestError> {
        let request = Request::new(self.bytes, Nanos(self.deadline_ns))?;
        match self.limit {
            Some(limit) => request.limited(limit),
            None => Ok(request),
        }
    }
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
            grace: None,
        }
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

    /// How late a job may be and still keep others out.
    pub(super) fn grace(&self) -> Grace {
        self.grace.map_or_else(Grace::default, Grace::thousandths)
    }

    /// Whether a name is somebody's who runs or waits.
    pub(super) fn has_job(&self, name: &str) -> bool {
        self.running.iter().any(|job| job.name == name)
            || self.waiting.iter().any(|job| job.name == name)
    }

    /// Other hosts than before; those that stay keep their jobs.
    pub(super) fn take_hosts(&mut self, file: HostsFile) -> Result<()> {
        let HostsFile { mut hosts, grace } = file;
        for job in &self.running {
            if hosts.iter().all(|host| host.name != job.host) {
                let what = format!(
                    "host {:?} is not among the hosts any more, and job {:?} runs there",
                    job.host, job.name
                );
                let help = format!(
                    "leave it in the file until that has ended (`tidegate place end {}`), or take it out with what \
                     runs there: `tidegate place host remove {}`",
                    job.name, job.host
                );
                return Err(Problem::new(what).at("--hosts").help(help).into());
            }
        }
        for host in &mut hosts {
            if let Some(before) = self.hosts.iter().find(|before| before.name == host.name) {
                (host.steady_ns, host.learnt_ns) = (before.steady_ns, before.learnt_ns);
                host.drained = before.drained;
            }
        }
        (self.hosts, self.grace) = (hosts, grace);
        Ok(())
    }
}

impl KeptHost {
    /// One that comes.
    pub(super) fn new(name: String, bandwidth: u64, loss: Vec<u64>, jobs: usize) -> KeptHost {
        KeptHost {
            name,
            bandwidth,
            loss,
            jobs,
            socket: None,
            device: None,
            steady_ns: 0,
            drained: false,
            learnt_ns: 0,
        }
    }

    pub(super) fn bandwidth(&self) -> Result<Bandwidth> {
        Bandwidth::new(self.bandwidth, &self.loss)
            .map_err(|error| damaged(&format!("host {}: {error}", self.name)))
    }
}

pub(super) fn read(store: &Store) -> Result<Kept> {
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

pub(super) fn damaged(why: &str) -> anyhow::Error {
    let problem = Problem::new(format!("what is kept cannot be: {why}")).at("--db");
    problem
        .help("put a copy of the file back, or name another one")
        .into()
}
