//! Jobs that run on hosts whose daemon can be asked.
//!
//! A job that was placed here under the name of a VM is that VM's job, once the daemon has one; all others count as
//! well, under the names of host and VM, and are asked for each time anew.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;
use tidegate_place::HostId;

use super::kept::{Kept, KeptHost, KeptJob};
use crate::client::{Client, read};
use crate::output::tell;

/// What a daemon measures is of so long; what it said before that is not told twice.
const INTERVAL: Nanos = Nanos::from_secs(3);

/// Which daemons are asked what runs there.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    All,
    /// All but that of this host.
    AllBut(&'a str),
    Nobody,
}

impl Ask<'_> {
    fn includes(self, host: &str) -> bool {
        match self {
            Ask::All => true,
            Ask::AllBut(other) => host != other,
            Ask::Nobody => false,
        }
    }
}

/// What each of those on a host had over its daemon's last interval.
pub(super) struct Had {
    pub(super) host: HostId,
    pub(super) rates: Vec<(Class, u64)>,
}

/// The jobs of a VM, as far as they matter here.
#[derive(Deserialize)]
struct VmJobs {
    vm: String,
    device: String,
    #[serde(default)]
    job: Option<LiveJob>,
}

#[derive(Deserialize)]
struct LiveJob {
    size_bytes: u64,
    moved_bytes: u64,
    /// Below zero: it is late.
    due_in_s: f64,
    class: String,
    /// Over the last interval; absent where that is not known yet, or its class was another.
    #[serde(default)]
    bytes_per_s: Option<u64>,
}

impl Kept {
    /// Asks the daemons of hosts that have one. That of a host that takes no more jobs may be gone; `kept` are the hosts
    /// that were there before this run.
    pub(super) fn ask_daemons(
        &mut self,
        now: Nanos,
        ask: Ask<'_>,
        kept: &[String],
    ) -> Result<Vec<Had>> {
        let hosts: Vec<KeptHost> = self.hosts.clone();
        let mut all = Vec::new();
        for (at, host) in hosts.iter().enumerate() {
            let name = &host.name;
            let socket = host.socket.as_deref().filter(|_| ask.includes(name));
            let Some(socket) = socket else { continue };
            let client = Client::new(Path::new(socket))?;
            let jobs = match client.get("/v1/jobs") {
                Ok(answer) => read(answer)?,
                Err(_) if host.drained => {
                    tell(format_args!(
                        "host {name} is drained, and says nothing of its jobs"
                    ));
                    continue;
                }
                Err(error) => {
                    if kept.contains(name) {
                        tell(format_args!(
                            "host {name} does not say what runs there; if it is gone: \
                             `tidegate place host drain {name}`, or `remove`"
                        ));
                    }
                    return Err(error);
                }
            };
            let rates = self.take_all(host, jobs, now);
            let is_new = now.since(Nanos(host.learnt_ns)) >= INTERVAL;
            if let Some(rates) = rates.filter(|rates| is_new && !rates.is_empty()) {
                self.hosts[at].learnt_ns = now.0;
                let host = HostId(at);
                all.push(Had { host, rates });
            }
        }
        Ok(all)
    }

    /// Takes over the jobs of a host. What each one there had; `None`: that is not known of all of them.
    fn take_all(
        &mut self,
        host: &KeptHost,
        jobs: Vec<VmJobs>,
        now: Nanos,
    ) -> Option<Vec<(Class, u64)>> {
        let mut rates = Some(Vec::new());
        for jobs in jobs {
            let is_there = host.device.as_ref().is_none_or(|name| *name == jobs.device);
            if let (true, Some(job)) = (is_there, jobs.job) {
                let class = self.take_live(&host.name, &jobs.vm, &job, now);
                rates = rates.zip(job.bytes_per_s).map(|(mut rates, rate)| {
                    rates.push((class, rate));
                    rates
                });
            }
        }
        let there = self
            .running
            .iter()
            .filter(|job| job.host == host.name)
            .count();
        rates.filter(|rates| rates.len() == there)
    }

    fn take_live(&mut self, host: &str, vm: &str, live: &LiveJob, now: Nanos) -> Class {
        let mut own = self.running.iter_mut();
        if let Some(job) = own.find(|job| job.name == vm && job.host == host) {
            job.class.clone_from(&live.class);
            (job.moved, job.as_of_ns) = (live.moved_bytes.min(job.bytes), now.0);
            return job.class();
        }
        let job = KeptJob {
            name: format!("{host}/{vm}"),
            host: host.to_owned(),
            bytes: live.size_bytes,
            deadline_ns: Nanos::from_secs_f64(live.due_in_s).0,
            begun_ns: now.0,
            moved: live.moved_bytes,
            as_of_ns: now.0,
            told: live.moved_bytes,
            told_ns: now.0,
            class: live.class.clone(),
            lowered_for: Vec::new(),
            limit: None,
            live: true,
        };
        let class = job.class();
        self.running.push(job);
        class
    }
}
