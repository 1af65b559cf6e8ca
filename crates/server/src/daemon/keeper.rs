//! Keeps what controllers and engines have learnt, and the jobs that run: now and then while the daemon runs,
//! and once when it ends; jobs also when one has ended.
//!
//! ```text
//!   every so often --ask a few VMs at a time--> event loop
//!         ^                                         |
//!         +------- one transaction, elsewhere <-----+ what was learnt of them
//! ```
//!
//! Loops are asked for a few VMs at a time, which takes none of them long; the disk is waited for
//! on a thread that may block.

use std::future::pending;
use std::sync::Arc;

use tidegate_core::learnt::Blob;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::handle::{ANSWERED_WITHIN, DaemonHandle};
use super::jobs::DeviceJobs;
use super::keep::learnt_by;
use crate::command::{Command, ControlError, DeviceLearnt};
use crate::identity::LiesOn;
use crate::store::{Change, Store, StoreError};

/// What has been learnt on a device.
pub(crate) struct Learnt {
    device: String,
    policy: String,
    /// By the VMs' names.
    states: Vec<(String, Blob)>,
    /// Of the device itself.
    own: Vec<(DeviceLearnt, Option<Blob>)>,
    lies_on: LiesOn,
}

/// See the module's documentation.
pub(crate) struct Keeper {
    handle: DaemonHandle,
    /// `None`: there is no store, so nothing is kept.
    store: Option<(Arc<Store>, Interval)>,
    keeping: Option<JoinHandle<()>>,
    /// Keeps jobs when one has ended; `None`: there is no store.
    jobs: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Of this daemon. Must be made on its runtime.
    pub(crate) fn new(handle: &DaemonHandle) -> Keeper {
        let store = handle.store().map(|store| {
            let every = handle.learnt_every();
            let mut timer = interval_at(Instant::now() + every, every);
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
            (store.clone(), timer)
        });
        let jobs = store
            .as_ref()
            .map(|_| tokio::spawn(keep_jobs(handle.clone())));
        Keeper {
            handle: handle.clone(),
            store,
            keeping: None,
            jobs,
        }
    }

    /// Ends when it is time for [`Keeper::keep`].
    pub(crate) async fn due(&mut self) {
        match &mut self.store {
            Some((_, timer)) => {
                timer.tick().await;
            }
            None => pending().await,
        }
    }

    /// Begins to ask for and to write jobs and what was learnt, unless it is still at it.
    pub(crate) fn keep(&mut self) {
        let Some((store, _)) = &self.store else {
            return;
        };
        self.handle.news().notify_one();
        if self
            .keeping
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let (handle, store) = (self.handle.clone(), store.clone());
        self.keeping = Some(tokio::spawn(async move {
            let learnt = ask_all(&handle).await;
            write(store, learnt).await;
        }));
    }

    /// What has been learnt, for [`Keeper::finish`]: before the loops are told to end.
    pub(crate) async fn last(&self) -> Vec<Learnt> {
        match &self.store {
            Some(_) => ask_all(&self.handle).await,
            None => Vec::new(),
        }
    }

    /// Writes what was learnt last, and the jobs that the loops left behind.
    pub(crate) async fn finish(self, last: Vec<Learnt>, left: Vec<DeviceJobs>) {
        if let Some(keeping) = self.keeping {
            // One that panicked has said so.
            let _ = keeping.await;
        }
        if let Some((store, _)) = self.store {
            self.handle.keep_last_jobs(&left).await;
            write(store, last).await;
        }
        // What it was writing has been waited for, and its loops answer no more.
        if let Some(jobs) = self.jobs {
            jobs.abort();
        }
    }
}

/// Keeps jobs whenever there is news of them.
async fn keep_jobs(handle: DaemonHandle) {
    loop {
        handle.news().notified().await;
        handle.keep_all_jobs().await;
    }
}

/// Asks every device. One that does not answer is left out: what is kept of it stays.
async fn ask_all(handle: &DaemonHandle) -> Vec<Learnt> {
    let mut learnt = Vec::new();
    for device in 0..handle.devices().len() {
        if let Ok(Ok(Some(of_device))) = timeout(ANSWERED_WITHIN, ask(handle, device)).await {
            learnt.push(of_device);
        }
    }
    learnt
}

/// `None`: its policy changed in between.
async fn ask(handle: &DaemonHandle, device: usize) -> Result<Option<Learnt>, ControlError> {
    let mut learnt = Learnt {
        device: handle.devices()[device].name().to_owned(),
        policy: String::new(),
        states: Vec::new(),
        own: Vec::new(),
        lies_on: handle.lies_on(device),
    };
    let mut next = Some(0);
    while let Some(from) = next {
        let export = |reply| Command::ExportLearnt { from, reply };
        let part = handle.ask(device, export).await?;
        if from > 0 && part.policy != learnt.policy {
            return Ok(None);
        }
        learnt.policy = part.policy;
        learnt.states.extend(part.states);
        learnt.own.extend(part.device);
        next = part.next;
    }
    Ok(Some(learnt))
}

async fn write(store: Arc<Store>, learnt: Vec<Learnt>) {
    let written = spawn_blocking(move || write_all(&store, &learnt)).await;
    match written {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("what was learnt of the VMs is not kept: {error}"),
        Err(error) => tracing::error!("what was learnt of the VMs is not kept: {error}"),
    }
}

/// Keeps what was learnt on these devices, in place of what was kept of them. Where nothing has
/// changed nothing is written.
fn write_all(store: &Store, learnt: &[Learnt]) -> Result<(), StoreError> {
    let states: Vec<Vec<(&str, &[u8])>> = (learnt.iter())
        .map(|of| {
            of.states
                .iter()
                .map(|(vm, blob)| (vm.as_str(), blob.as_bytes()))
                .collect()
        })
        .collect();
    let of_vms = (learnt.iter().zip(&states)).map(|(of, states)| Change::ReplaceLearnt {
        device: &of.device,
        policy: &of.policy,
        states,
    });
    let identities: Vec<_> = (learnt.iter())
        .map(|of| of.lies_on.identity().to_text())
        .collect();
    // What might be learnt of any device is of use for none.
    let known = learnt.iter().zip(&identities);
    let known = known.filter(|(_, identity)| !identity.is_empty());
    let of_devices = known.flat_map(|(of, identity)| {
        of.own.iter().map(|(part, state)| Change::PutDevice {
            device: &of.device,
            part: part.name(),
            identity,
            state: state.as_ref().map(Blob::as_bytes),
        })
    });
    // With it goes on which disks that was, so that the next start sees whether they are the same.
    let by_policy: Vec<String> = learnt.iter().map(|of| learnt_by(&of.policy)).collect();
    let on_disks = learnt.iter().zip(&identities).zip(&by_policy);
    let on_disks =
        on_disks.filter(|((of, identity), _)| !identity.is_empty() && !of.states.is_empty());
    let on_disks = on_disks.map(|((of, identity), part)| Change::PutDevice {
        device: &of.device,
        part,
        identity,
        state: Some(&[]),
    });
    let changes: Vec<_> = of_vms.chain(of_devices).chain(on_disks).collect();
    store.apply(&changes).map(drop)
}
