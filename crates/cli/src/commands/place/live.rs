//! Jobs that run on hosts whose daemon can be asked.
//!
//! A job that was placed here under the name of a VM is that VM's job, once the daemon has one; all others count as
//! well, under the names of host and VM, and are asked for each time anew.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use tidegate_core::time::Nanos;

use super::state::{Kept, KeptHost, KeptJob};
use crate::client::{Client, read};

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
}

impl Kept {
    /// Asks the daemons of all hosts that have one.
    pub(super) fn ask_daemons(&mut self, now: Nanos) -> Result<()> {
        let hosts: Vec<KeptHost> = self.hosts.clone();
        for host in &hosts {
            let Some(socket) = &host.socket else {
                continue;
            };
            let answer = Client::new(Path::new(socket))?.get("/v1/jobs")?;
            let jobs: Vec<VmJobs> = read(answer)?;
            for jobs in jobs {
                let is_there = host.device.as_ref().is_none_or(|name| *name == jobs.device);
                if let (true, Some(job)) = (is_there, jobs.job) {
                    self.take_live(&host.name, &jobs.vm, &job, now);
                }
            }
        }
        Ok(())
    }

    fn take_live(&mut self, host: &str, vm: &str, live: &LiveJob, now: Nanos) {
        let mut own = self.running.iter_mut();
        if let Some(job) = own.find(|job| job.name == vm && job.host == host) {
            job.class.clone_from(&live.class);
            (job.moved, job.as_of_ns) = (live.moved_bytes.min(job.bytes), now.0);
            return;
        }
        self.running.push(KeptJob {
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
            live: true,
        });
    }
}
