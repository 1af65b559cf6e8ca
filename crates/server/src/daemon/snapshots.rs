//! Snapshots of learnt states and deadline transfers in the store: periodically, once when the
//! daemon ends, and of transfers also whenever one has ended.
//!
//! ```text
//!   snapshot_interval over --ask for a few VMs at a time--> event loop
//!         ^                                                     |
//!         +------- one transaction, on another thread <---------+ learnt states
//! ```
//!
//! An event loop is asked for a few VMs at a time, so that no answer takes it long. The store is
//! written on a thread that may block.

use std::future::pending;
use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::learnt_state::Blob;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::devices::ANSWER_TIMEOUT;
use super::persistence::learnt_identity_key;
use super::shared::Shared;
use super::transfers::DeviceTransfers;
use crate::attainment_record::{self, Records};
use crate::command::{Command, ControlError, HandOverStep, LearntDeviceState};
use crate::storage_identity::IdentitySource;
use crate::store::{Change, Store, StoreError};
use crate::takeover::DeviceState;

/// Learnt states of a device and its VMs.
pub(super) struct LearntSnapshot {
    device: String,
    policy: String,
    /// States by name of the VM.
    states: Vec<(String, Blob)>,
    /// States of the device itself.
    own: Vec<(LearntDeviceState, Option<Blob>)>,
    /// Attainment of the VMs.
    attainment: Records,
    identity_source: IdentitySource,
}

impl LearntSnapshot {
    /// Makes the snapshot of a device of which nothing is known.
    fn of(shared: &Shared, device: usize) -> LearntSnapshot {
        LearntSnapshot {
            device: shared.devices.name(device).to_owned(),
            policy: String::new(),
            states: Vec::new(),
            own: Vec::new(),
            attainment: Vec::new(),
            identity_source: shared.identity_source(device),
        }
    }
}

/// Periodic snapshots of a daemon. See the module's documentation.
pub(super) struct Snapshots {
    shared: Arc<Shared>,
    /// Store and timer; `None` if the configuration names no store.
    store: Option<(Arc<Store>, Interval)>,
    /// Snapshot of learnt states that is being written.
    writing: Option<JoinHandle<()>>,
    /// Task that writes transfers when one has ended; `None` without a store.
    transfers: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Creates the snapshots of a daemon. Must be called on its runtime.
    pub(super) fn new(shared: &Arc<Shared>) -> Snapshots {
        let persistence = &shared.persistence;
        let store = persistence.store().map(|store| {
            let every = persistence.snapshot_interval();
            let mut timer = interval_at(Instant::now() + every, every);
            // After a suspended host one snapshot is due, not one per missed interval.
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

    /// Completes when the next snapshot is due; never without a store.
    pub(super) async fn due(&mut self) {
        match &mut self.store {
            Some((_, timer)) => {
                timer.tick().await;
            }
            None => pending().await,
        }
    }

    /// Starts a snapshot of transfers and learnt states, unless the last one is still being
    /// written.
    pub(super) fn begin(&mut self) {
        let Some((store, _)) = &self.store else {
            return;
        };
        self.shared.transfers.changed().notify_one();
        if self
            .writing
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let (shared, store) = (self.shared.clone(), store.clone());
        self.writing = Some(tokio::spawn(async move {
            let learnt = collect_all(&shared).await;
            write(store, learnt).await;
        }));
    }

    /// Returns the learnt states for [`Snapshots::finish`]; must be called before the loops are
    /// told to end.
    pub(super) async fn final_states(&self) -> Vec<LearntSnapshot> {
        match &self.store {
            Some(_) => collect_all(&self.shared).await,
            None => Vec::new(),
        }
    }

    /// Writes the last learnt states, and the transfers that the event loops left behind.
    pub(super) async fn finish(self, last: Vec<LearntSnapshot>, left: Vec<DeviceTransfers>) {
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
            // From the loops' remains, because ended loops no longer answer.
            transfers.snapshot_last(devices, persistence, &left).await;
            write(store, last).await;
        }
        // `snapshot_last` waited for a write in progress, and the ended loops answer no further
        // one.
        if let Some(transfers) = self.transfers {
            transfers.abort();
        }
    }
}

/// Writes transfers whenever one has ended or a snapshot is due.
async fn follow_transfers(shared: Arc<Shared>) {
    let Shared {
        devices,
        persistence,
        transfers,
        ..
    } = &*shared;
    loop {
        transfers.changed().notified().await;
        transfers.snapshot_all(devices, persistence).await;
    }
}

/// Asks all devices for learnt states. A device that does not answer is left out, so that its
/// states in the store stay.
async fn collect_all(shared: &Shared) -> Vec<LearntSnapshot> {
    let mut learnt = Vec::new();
    for device in 0..shared.devices.entries().len() {
        if let Ok(Ok(Some(of_device))) = timeout(ANSWER_TIMEOUT, collect(shared, device)).await {
            learnt.push(of_device);
        }
    }
    learnt
}

/// Returns what was learnt of all devices, attainment, running transfers and the use of limits, for
/// another daemon. Of a device that does not answer in time, only what was learnt is left out.
///
/// # Errors
/// If an event loop has ended.
pub(super) async fn states(shared: &Shared) -> Result<Vec<DeviceState>, ControlError> {
    let mut states = Vec::new();
    for device in 0..shared.devices.entries().len() {
        let export = |reply| Command::ExportTransfers { reply };
        let transfers = shared.devices.ask(device, export).await?;
        let transfers = transfers.into_iter();
        let transfers = transfers.map(|(vm, transfer)| (vm, transfer.words()));
        let export = |reply| Command::HandOver(HandOverStep::ExportLimitUse { reply });
        let (at, limits) = shared.devices.ask(device, export).await?;
        let mut state = DeviceState {
            device: shared.devices.name(device).to_owned(),
            transfers: transfers.collect(),
            limits: limits.into_iter().map(Into::into).collect(),
            limits_at: at.0,
            ..DeviceState::default()
        };
        let learnt = timeout(ANSWER_TIMEOUT, collect(shared, device)).await;
        let learnt = learnt.ok().transpose()?.flatten();
        // An empty record of attainment, too, has its form.
        let learnt = learnt.unwrap_or_else(|| LearntSnapshot::of(shared, device));
        state.attainment = attainment_record::to_bytes(&learnt.attainment, Timestamp::now());
        let bytes = |(name, blob): (String, Blob)| (name, blob.as_bytes().to_vec());
        let own = learnt.own.into_iter().filter_map(|(part, state)| {
            let state = state?.as_bytes().to_vec();
            Some((part.name().to_owned(), state))
        });
        state.own = own.collect();
        state.learnt = learnt.states.into_iter().map(bytes).collect();
        states.push(state);
    }
    Ok(states)
}

/// Asks a device for its learnt states; `None` if its policy was replaced in between.
async fn collect(shared: &Shared, device: usize) -> Result<Option<LearntSnapshot>, ControlError> {
    let devices = &shared.devices;
    let mut learnt = LearntSnapshot::of(shared, device);
    let mut next = Some(0);
    while let Some(from) = next {
        let export = |reply| Command::ExportLearnt { from, reply };
        let part = devices.ask(device, export).await?;
        // States of two policies must not be mixed; the next snapshot has all of the new one.
        if from > 0 && part.policy != learnt.policy {
            return Ok(None);
        }
        // The loop would be asked for the same part for ever, and the snapshot grow with it.
        assert!(
            part.next.is_none_or(|next| next > from),
            "learnt states go on from {:?} after those from {from}",
            part.next
        );
        learnt.policy = part.policy;
        extend_by_name(&mut learnt.states, part.states);
        learnt.own.extend(part.device);
        extend_by_name(&mut learnt.attainment, part.attainment);
        next = part.next;
    }
    Ok(Some(learnt))
}

/// Adds entries by name. A VM that was removed and added again between two questions to its loop
/// comes twice: the later entry replaces the one of the VM that is gone.
fn extend_by_name<T>(all: &mut Vec<(String, T)>, later: Vec<(String, T)>) {
    all.retain(|(name, _)| later.iter().all(|(new, _)| new != name));
    all.extend(later);
}

async fn write(store: Arc<Store>, learnt: Vec<LearntSnapshot>) {
    let written = spawn_blocking(move || write_all(&store, &learnt)).await;
    match written {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("learnt state is not persisted: {error}"),
        Err(error) => tracing::error!("learnt state is not persisted: {error}"),
    }
}

/// Writes learnt states in place of the previous ones, in one transaction that is empty if nothing
/// has changed.
fn write_all(store: &Store, learnt: &[LearntSnapshot]) -> Result<(), StoreError> {
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
        .map(|of| of.identity_source.identity().to_text())
        .collect();
    // State of a device without an identity could not be assigned at the next start.
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
    // The identity is stored with the states, so that the next start can tell whether the disks are
    // the same.
    let by_policy: Vec<String> = learnt
        .iter()
        .map(|of| learnt_identity_key(&of.policy))
        .collect();
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
    // Attainment belongs to the VMs, wherever their disks are, so it has no identity.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_was_added_again_meanwhile_has_its_later_entry_alone() {
        let named = |name: &str, value: u32| (name.to_owned(), value);
        let mut all = vec![named("a", 1), named("b", 1)];
        extend_by_name(&mut all, vec![named("c", 2), named("a", 2)]);
        assert_eq!(all, [named("b", 1), named("c", 2), named("a", 2)]);
    }
}
