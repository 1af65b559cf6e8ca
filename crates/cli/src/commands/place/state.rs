//! Everything at one time: what is kept, what hosts' daemons say, and the state machine that is made of it.
//!
//! It is kept in the same kind of file as the daemon's, each change whole or not at all. What was learnt of a host is
//! under its name; all else is one row of JSON.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tidegate_core::jobs::Job;
use tidegate_core::learnt::Blob;
use tidegate_core::time::Nanos;
use tidegate_place::{
    HostId, HostSpec, MOST_WAITING, Pcos, PriorityDatabase, RequestId, Tenant, Update,
};
use tidegate_server::store::{Change, Store};

use super::kept::{HostsFile, Kept, STATE, damaged, read};
use super::live::{Ask, Had};
use crate::problem::Problem;

/// Rows of the store: what was learnt of a host, and all else.
const DATABASE: &str = "priority-database";
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
    /// Of these hosts more is known than is kept.
    learnt: Vec<HostId>,
}

impl Place {
    /// With what is kept in this file, which is made where there is none, unless `just_looking`; `hosts` in place of
    /// those that are.
    pub(super) fn open(path: &Path, hosts: Option<HostsFile>, just_looking: bool) -> Result<Place> {
        let place = Place::open_after(path, just_looking, Ask::All, |kept| {
            hosts.map_or(Ok(()), |hosts| kept.take_hosts(hosts))
        })?;
        if place.kept.hosts.is_empty() {
            let problem = Problem::new("there are no hosts yet").at(path.display().to_string());
            let help = "name a file of them once: --hosts place.toml (`tidegate place job --help` shows one); or \
                        `tidegate place host add`";
            return Err(problem.help(help).into());
        }
        Ok(place)
    }

    /// The same after a change of what is kept; there may be no hosts.
    pub(super) fn open_after(
        path: &Path,
        just_looking: bool,
        ask: Ask<'_>,
        change: impl FnOnce(&mut Kept) -> Result<()>,
    ) -> Result<Place> {
        let store = match just_looking && !path.exists() {
            true => None,
            false => Some(Store::open(path)?),
        };
        let mut kept = store.as_ref().map_or_else(|| Ok(Kept::default()), read)?;
        let before: Vec<_> = kept.hosts.iter().map(|host| host.name.clone()).collect();
        change(&mut kept)?;
        let now = now();
        let had = kept.ask_daemons(now, ask, &before)?;
        let mut place = Place {
            store,
            just_looking,
            kept,
            pcos: Pcos::new(MOST_WAITING),
            now,
            names: Vec::new(),
            learnt: Vec::new(),
        };
        place.resume()?;
        place.pcos.refresh_all(place.now);
        place.learn(had);
        Ok(place)
    }

    /// What daemons said that jobs had teaches their hosts' databases.
    fn learn(&mut self, had: Vec<Had>) {
        for Had { host, rates } in had {
            let update = Update {
                had: &rates,
                ..Update::default()
            };
            self.pcos.update(self.now, host, &update);
            self.learnt.push(host);
        }
    }

    /// The state machine anew, of what is kept now.
    pub(super) fn rebuild(&mut self) -> Result<()> {
        self.names.clear();
        self.learnt.clear();
        self.resume()?;
        self.pcos.refresh_all(self.now);
        Ok(())
    }

    /// Makes the state machine go on where it was.
    fn resume(&mut self) -> Result<()> {
        self.pcos = Pcos::new(MOST_WAITING).with_grace(self.kept.grace());
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
            let id = self.pcos.add_host(self.now, spec);
            if host.drained {
                self.pcos.close_host(self.now, id);
            }
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
            if let Some(limit) = job.limit {
                self.pcos.limit(host, id, limit);
            }
            self.names.push((id, job.name.clone()));
        }
        for job in &self.kept.waiting {
            let request = job.request().map_err(|error| damaged(&error.to_string()))?;
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
        let learnt = [learnt, &std::mem::take(&mut self.learnt)].concat();
        self.take_progress();
        let mut lasting = self.kept.clone();
        lasting.running.retain(|job| !job.live);
        let state = serde_json::to_vec(&lasting)?;
        let mut blobs = Vec::new();
        for host in learnt {
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

/// Since the beginning of 1970.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }))
}
