//! Snapshots of what controllers and engines have learnt, and of the deadline transfers that run:
//! now and then while the daemon runs, and once when it ends; of transfers also when one has ended.
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

use jiff::Timestamp;
use tidegate_core::learnt::Blob;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::devices::ANSWERED_WITHIN;
use super::persistence::learnt_by;
use super::shared::Shared;
use super::transfers::DeviceJobs;
use crate::attainment_record::{self, Records};
use crate::command::{Command, ControlError, DeviceLearnt};
use crate::identity::LiesOn;
use crate::store::{Change, Store, StoreError};

/// States that have been learnt on a device.
pub(super) struct Learnt {
    device: String,
    policy: String,
    /// By the VMs' names.
    states: Vec<(String, Blob)>,
    /// Of the device itself.
    own: Vec<(DeviceLearnt, Option<Blob>)>,
    /// Attainment of the VMs.
    attainment: Records,
    lies_on: LiesOn,
}

/// Snapshots that are written to the store while the daemon runs. See the module's documentation.
pub(super) struct Snapshots {
    shared: Arc<Shared>,
    /// `None`: there is no store, so nothing is written.
    store: Option<(Arc<Store>, Interval)>,
    /// Snapshot of what was learnt that is being written.
    writing: Option<JoinHandle<()>>,
    /// Writes transfers when one has ended; `None`: there is no store.
    transfers: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Creates the snapshots of this daemon. Must be called on its runtime.
    pub(super) fn new(shared: &Arc<Shared>) -> Snapshots {
        let persistence = &shared.persistence;
        let store = persistence.store().map(|store| {
            let every = persistence.snapshot_interval();
            let mut timer = interval_at(Instant::now() + every, every);
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
            (store.clone(), timer)
        });
        let transfers = store
            .as_ref()
            .map(|_| tokio::spawn(follow_transfers(shared.clone())));
        Snapshots {
            shared: shared.clone(),
            store,
            writing: None,
            transfers,
        }
    }

    /// Ends when it is time for [`Snapshots::begin`].
    pub(super) async fn due(&mut self) {
        match &mut self.store {
            Some((_, timer)) => {
                timer.tick().await;
            }
            None => pending().await,
        }
    }

    /// Begins to ask for and to write transfers and what was learnt, unless the last snapshot is
    /// still being written.
    pub(super) fn begin(&mut self) {
        let Some((store, _)) = &self.store else {
            return;
        };
        self.shared.transfers.news().notify_one();
        if self
            .writing
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let (shared, store) = (self.shared.clone(), store.clone());
        self.writing = Some(tokio::spawn(async move {
            let learnt = ask_all(&shared).await;
            write(store, learnt).await;
        }));
    }

    /// Returns what has been learnt, for [`Snapshots::finish`]: before the loops are told to end.
    pub(super) async fn last(&self) -> Vec<Learnt> {
        match &self.store {
            Some(_) => ask_all(&self.shared).await,
            None => Vec::new(),
        }
    }

    /// Writes what was learnt last, and the transfers that the loops left behind.
    pub(super) async fn finish(self, last: Vec<Learnt>, left: Vec<DeviceJobs>) {
        if let Some(writing) = self.writing {
            // A panic was logged by the panic hook.
            let _ = writing.await;
        }
        if let Some((store, _)) = self.store {
            let Shared {
                devices,
                persistence,
                transfers,
                ..
            } = &*self.shared;
            transfers.snapshot_last(devices, persistence, &left).await;
            write(store, last).await;
        }
        // What it was writing has been waited for, and its loops answer no more.
        if let Some(transfers) = self.transfers {
            transfers.abort();
        }
    }
}

/// Writes transfers whenever there is news of them.
async fn follow_transfers(shared: Arc<Shared>) {
    let Shared {
        devices,
        persistence,
        transfers,
        ..
    } = &*shared;
    loop {
        transfers.news().notified().await;
        transfers.snapshot_all(devices, persistence).await;
    }
}

/// Asks every device. One that does not answer is left out: what is in the store of it stays.
async fn ask_all(shared: &Shared) -> Vec<Learnt> {
    let mut learnt = Vec::new();
    for device in 0..shared.devices.entries().len() {
        if let Ok(Ok(Some(of_device))) = timeout(ANSWERED_WITHIN, ask(shared, device)).await {
            learnt.push(of_device);
        }
    }
    learnt
}

/// Asks a device for what was learnt there. `None`: its policy changed in between.
async fn ask(shared: &Shared, device: usize) -> Result<Option<Learnt>, ControlError> {
    let devices = &shared.devices;
    let mut learnt = Learnt {
        device: devices.name(device).to_owned(),
        policy: String::new(),
        states: Vec::new(),
        own: Vec::new(),
        attainment: Vec::new(),
        lies_on: shared.lies_on(device),
    };
    let mut next = Some(0);
    while let Some(from) = next {
        let export = |reply| Command::ExportLearnt { from, reply };
        let part = devices.ask(device, export).await?;
        if from > 0 && part.policy != learnt.policy {
            return Ok(None);
        }
        learnt.policy = part.policy;
        learnt.states.extend(part.states);
        learnt.own.extend(part.device);
        learnt.attainment.extend(part.attainment);
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
    let now = Timestamp::now();
    let attained = learnt.iter().filter(|of| !of.attainment.is_empty());
    let attained: Vec<_> = attained
        .map(|of| (of, attainment_record::to_bytes(&of.attainment, now)))
        .collect();
    // Promises are kept to VMs, wherever their disks lie.
    let attained = attained.iter().map(|(of, state)| Change::PutDevice {
        device: &of.device,
        part: attainment_record::STORED_AS,
        identity: "",
        state: Some(state),
    });
    let changes = of_vms.chain(of_devices).chain(on_disks).chain(attained);
    let changes: Vec<_> = changes.collect();
    store.apply(&changes).map(drop)
}
