//! Jobs of VMs, and what of them survives a restart.
//!
//! ```text
//!   begun, cancelled, ended, every so often --which run?--> event loop
//!        ^                                                      |
//!        +---------- kept in place of those before <------------+-- once more when it has ended
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::handle::{ANSWERED_WITHIN, DaemonHandle};
use crate::command::ControlError;
use crate::command::{Command, VmSnapshot};
use crate::job::{JobOrder, KeptJob};
use crate::store::{Change, StoreError};

/// The jobs of a device of this number, by their VMs' names.
pub(crate) type DeviceJobs = (usize, Vec<(String, KeptJob)>);

impl DaemonHandle {
    /// Begins a job of a VM, at this time of day.
    ///
    /// # Errors
    /// When there is no such VM, it has a job that is not to be replaced, the engine refuses it, or the loop
    /// has ended.
    pub async fn begin_job(
        &self,
        vm: &str,
        order: JobOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        let (device, vm) = (self.device_with(vm)?, vm.to_owned());
        let answer = self
            .ask(device, |reply| Command::BeginJob {
                vm,
                order,
                at,
                reply,
            })
            .await?;
        Ok(answer?)
    }

    /// Ends the job of a VM that is not wanted any more.
    ///
    /// # Errors
    /// When there is no such VM, it has no job, or the loop has ended.
    pub async fn cancel_job(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        let (device, vm) = (self.device_with(vm)?, vm.to_owned());
        Ok(self
            .ask(device, |reply| Command::CancelJob { vm, reply })
            .await??)
    }

    fn device_with(&self, vm: &str) -> Result<usize, ControlError> {
        let device = self.device_of(vm);
        device.ok_or_else(|| ControlError::UnknownVm(vm.to_owned()))
    }

    /// Keeps the jobs of a VM's device as they are now. Whether there is a store: durable then.
    ///
    /// # Errors
    /// When there is no such VM, its loop has ended, or the store cannot be written.
    pub async fn keep_jobs_of(&self, vm: &str) -> Result<bool, ControlError> {
        self.keep_jobs(self.device_with(vm)?).await
    }

    /// Keeps the jobs of a device as they are now.
    async fn keep_jobs(&self, device: usize) -> Result<bool, ControlError> {
        if self.store().is_none() {
            return Ok(false);
        }
        // One after the other, or what was asked first might be written last.
        let _one_at_a_time = self.shared.keeping_jobs.lock().await;
        let jobs = self.ask(device, |reply| Command::ExportJobs { reply });
        // Nobody shall wait for those who wait for one that is stuck.
        let Ok(jobs) = timeout(ANSWERED_WITHIN, jobs).await else {
            return Err(not_kept("its event loop does not answer".to_owned(), None));
        };
        self.write_jobs(device, &jobs?).await?;
        Ok(true)
    }

    /// Keeps these jobs of a device, and no others.
    async fn write_jobs(
        &self,
        device: usize,
        jobs: &[(String, KeptJob)],
    ) -> Result<(), ControlError> {
        let Some(store) = self.store().cloned() else {
            return Ok(());
        };
        let jobs: Vec<_> = (jobs.iter())
            .map(|(vm, job)| (vm.clone(), job.words()))
            .collect();
        let device = self.devices()[device].name().to_owned();
        let written = spawn_blocking(move || {
            let (device, jobs) = (device.as_str(), jobs.as_slice());
            store.apply(&[Change::ReplaceJobs { device, jobs }])
        });
        match written.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(not_kept(error.to_string(), error.help())),
            Err(_) => Err(not_kept("the store panicked".to_owned(), None)),
        }
    }

    /// Keeps the jobs that loops which have ended leave behind.
    pub(crate) async fn keep_last_jobs(&self, all: &[DeviceJobs]) {
        let _one_at_a_time = self.shared.keeping_jobs.lock().await;
        for (device, jobs) in all {
            if let Err(error) = self.write_jobs(*device, jobs).await {
                self.tell_not_kept(*device, &error);
            }
        }
    }

    /// Keeps the jobs of all devices as they are now. What is kept of a device that does not answer stays.
    pub(crate) async fn keep_all_jobs(&self) {
        for device in 0..self.devices().len() {
            match self.keep_jobs(device).await {
                Ok(_) | Err(ControlError::Gone(_)) => {}
                Err(error) => self.tell_not_kept(device, &error),
            }
        }
    }

    fn tell_not_kept(&self, device: usize, error: &ControlError) {
        let device = self.devices()[device].name();
        tracing::warn!(device, "its VMs' jobs are not kept: {error}");
    }

    /// Told when a job has ended, or it is time to keep them.
    pub(crate) fn news(&self) -> &Arc<Notify> {
        &self.shared.news
    }

    /// Has a device's loop go on with the jobs that are kept.
    pub(super) async fn go_on_with_jobs(&self, device: usize) {
        let Some(store) = self.store().cloned() else {
            return;
        };
        let name = self.devices()[device].name().to_owned();
        let kept = spawn_blocking(move || store.jobs(&name)).await;
        let device_name = self.devices()[device].name();
        let kept = match kept {
            Ok(Ok(kept)) => kept,
            Ok(Err(error)) => return cannot_go_on(device_name, &error),
            // It has said so.
            Err(_) => return,
        };
        let readable = |(vm, text): (String, String)| match KeptJob::read(&text) {
            Ok(job) => Some((vm, job)),
            Err(why) => {
                tracing::warn!(vm, "what is kept of its job cannot be read: {why}");
                None
            }
        };
        let jobs: Vec<_> = kept.into_iter().filter_map(readable).collect();
        if !jobs.is_empty() {
            let at = Timestamp::now();
            // A loop that has ended needs none of it.
            let _ = self.send(device, Command::ResumeJobs { jobs, at });
        }
    }
}

fn not_kept(what: String, help: Option<String>) -> ControlError {
    ControlError::Store { what, help }
}

fn cannot_go_on(device: &str, error: &StoreError) {
    tracing::warn!(device, "the jobs that are kept cannot be read: {error}");
}
