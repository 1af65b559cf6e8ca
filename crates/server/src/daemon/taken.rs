//! The new daemon's side of a takeover: what it makes of the running daemon's state.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::learnt_state::Blob;
use tidegate_core::time::Nanos;
use tokio::task::spawn_blocking;

use super::disk_limits::DiskLimits;
use super::handed_sessions::Resumed;
use super::handle::DaemonHandle;
use super::recordings::DeviceRecordings;
use super::served_vms::{ServedVms, unreadable};
use super::shared::Shared;
use super::{hand_over_disks, handed_connections, persistence};
use crate::attainment_record;
use crate::backing::memory;
use crate::command::{Command, HandOverStep, HandedConnection, LearntDeviceState};
use crate::config::{self, Config, VmConfig};
use crate::frontend::nbd;
use crate::listener::{InheritedSockets, VhostUserListener};
use crate::ownership::Ownership;
use crate::ring::clock;
use crate::store::Store;
use crate::takeover::{
    ClientPlan, ConnectionState, DeviceState, DiskSummary, Inherited, LimitGroupPlan, PolicyPlan,
    TakeoverError, Taking,
};
use crate::transfer::PersistedTransfers;

/// Time for the process of the other daemon to end, which has its recordings open until then.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// State of the running daemon that is put in force once this one has started.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// VMs that no configuration names.
    vms: ServedVms,
    policies: Vec<PolicyPlan>,
    limit_groups: Vec<LimitGroupPlan>,
    recorded: Vec<String>,
    clients: Vec<ClientPlan>,
    /// Disks of the running daemon.
    disks: Vec<DiskSummary>,
    sockets: InheritedSockets,
    /// Ownership of sockets and files.
    ownership: Ownership,
}

/// Returns the VMs of a configuration file as the file has them.
pub(super) fn file_vms(config: &Config) -> Vec<Value> {
    let vms = config.vms.iter();
    vms.map(|vm| persistence::words_of(vm.clone(), &config.devices[vm.device].name))
        .collect()
}

/// Puts the objectives in force that VMs have now: by the store, by the running daemon, by the
/// time of day. Returns what is to be taken over once the daemon has started.
pub(super) fn put_in_force(
    config: &mut Config,
    store: Option<&Store>,
    inherited: Inherited,
    file_vms: &[serde_json::Value],
) -> Result<Option<Taken>, TakeoverError> {
    if let Some(store) = store {
        persistence::apply_stored_objectives(store, &mut config.vms);
    }
    let taken = if inherited.is_takeover {
        Some(merge(inherited, config, file_vms)?)
    } else {
        None
    };
    let now = Timestamp::now();
    config.vms.iter_mut().for_each(|vm| vm.put_in_force(now));
    // Only a warning: sparse memory disks may never fill up.
    if let Some(what) = memory::beyond_host(config.disks()) {
        tracing::warn!("{what}");
    }
    Ok(taken)
}

/// Puts the running daemon's VMs into a configuration, as they are now. A VM whose section was
/// changed in the file since that daemon read it is as the file has it.
///
/// # Errors
/// If the configuration cannot have such a VM.
fn merge(inherited: Inherited, config: &mut Config, own: &[Value]) -> Result<Taken, TakeoverError> {
    let Inherited {
        file_vms,
        vms,
        not_served,
        policies,
        limit_groups,
        recorded,
        // Taken over by the thread that holds the lease.
        membership: _,
        clients,
        disks,
        sockets,
        ownership,
        ..
    } = inherited;
    let is_unchanged = |name: &str| {
        let theirs = named(&file_vms, name);
        theirs.is_some() && theirs == named(own, name)
    };
    // Removed while the daemon ran.
    let is_served = |name: &str| vms.iter().any(|vm| vm.name == name);
    config
        .vms
        .retain(|vm| is_served(&vm.name) || !is_unchanged(&vm.name));
    let (devices, paths) = (config.devices.clone(), config.paths.clone());
    let mut others = Vec::new();
    for plan in vms {
        let Some(vm) = config.vms.iter_mut().find(|vm| vm.name == plan.name) else {
            others.push(plan);
            continue;
        };
        if !is_unchanged(&plan.name) || named(own, &plan.name) == Some(&plan.words) {
            continue;
        }
        let now = config::vm::from_json(&plan.words, &devices, &paths);
        take_changes(vm, now.map_err(|errors| unreadable(&plan.name, &errors))?);
    }
    Ok(Taken {
        vms: ServedVms::new(others, not_served),
        policies,
        limit_groups,
        recorded,
        clients,
        disks,
        sockets,
        ownership,
    })
}

fn named<'a>(vms: &'a [Value], name: &str) -> Option<&'a Value> {
    vms.iter().find(|vm| vm["name"] == name)
}

/// Makes a VM of the file what it has become while the daemon ran.
fn take_changes(vm: &mut VmConfig, now: VmConfig) {
    vm.promise(now.promised());
    vm.max_connections = now.max_connections;
    vm.disks
        .retain(|disk| now.disks.iter().any(|other| other.export == disk.export));
    for disk in now.disks {
        match vm.disks.iter_mut().find(|it| it.export == disk.export) {
            Some(there) => {
                there.size = disk.size;
                (there.limit, there.limit_group) = (disk.limit, disk.limit_group);
            }
            None => vm.disks.push(disk),
        }
    }
}

impl Taken {
    /// Returns the VMs that the running daemon serves and no configuration names.
    pub(super) fn served_vms(&self) -> &ServedVms {
        &self.vms
    }

    /// Takes everything that the other daemon has given up.
    ///
    /// # Errors
    /// If another process has the lock of a disk. Nothing is this daemon's then.
    fn own(&self, shared: &Shared) -> Result<(), TakeoverError> {
        // First, because the other daemon may have released it when it ended by a signal.
        hand_over_disks::lock_again(shared)?;
        self.ownership.take();
        self.sockets.own();
        shared.disks.files().drop_inherited();
        Ok(())
    }

    /// Serves VMs that no configuration names, and puts policies and limits that disks share in
    /// force that were changed.
    pub(super) async fn apply(&self, handle: &DaemonHandle) -> Result<(), TakeoverError> {
        let shared = handle.shared();
        for plan in self.vms.plans() {
            // One that the file had and has no more is left out, unless the store has it; the check
            // of connections finds whether somebody uses it.
            if plan.is_configured && shared.vms.get(&plan.name).is_none() {
                continue;
            }
            let devices = shared.devices.configs();
            let vm = config::vm::from_json(&plan.words, &devices, &shared.paths);
            let mut vm = vm.map_err(|errors| unreadable(&plan.name, &errors))?;
            if let Some(served) = shared.vms.get(&plan.name) {
                // From the store, with what was persisted of it.
                put_objective(handle, &served, &vm).await?;
                let limits = DiskLimits::of(handle).put(&served, &vm).await;
                limits.map_err(|error| refused(error.to_string()))?;
                continue;
            }
            vm.put_in_force(Timestamp::now());
            let added = handle.add_vm(vm).await;
            added.map_err(|error| refused(format!("VM {:?}: {error}", plan.name)))?;
        }
        for plan in &self.policies {
            let configs = shared.devices.configs();
            let Some(device) = configs.iter().position(|it| it.name == plan.device) else {
                continue;
            };
            let in_file = config::policy_words(&configs[device].scheduling.policy);
            if plan.in_force == plan.in_file || in_file != plan.in_file {
                continue;
            }
            let policy = config::policy::read(&plan.in_force);
            let policy = policy.map_err(|errors| refused(errors.to_string()))?;
            let set = shared.devices.set_policy(device, policy).await;
            set.map_err(|error| refused(error.to_string()))?;
        }
        let limits = DiskLimits::of(handle);
        limits.put_groups(&self.limit_groups).await.map_err(refused)
    }

    /// Makes this daemon the main process of a service, calls `done` with the result, and then
    /// begins to record.
    pub(super) async fn finish(
        self,
        handle: DaemonHandle,
        mut taking: Taking,
        done: impl FnOnce(Result<(), TakeoverError>) + Send + 'static,
    ) {
        let supervised = spawn_blocking(move || {
            done(taking.become_main());
            taking
        });
        match supervised.await {
            Ok(taking) => self.record(handle, taking).await,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Records the disks in the store, and switches on the recordings that the other daemon made
    /// and those that the configuration names, once that daemon has ended.
    async fn record(self, handle: DaemonHandle, taking: Taking) {
        let ended = spawn_blocking(move || taking.wait(END_TIMEOUT)).await;
        if !matches!(ended, Ok(true)) {
            tracing::warn!("the daemon that was taken over has not ended");
        }
        let shared = handle.shared();
        for vm in shared.vms.configs() {
            let files = shared.disks.files();
            shared.persistence.record_disks_of(files, vm).await;
        }
        let recordings = DeviceRecordings::of(&handle);
        recordings.start_configured().await;
        for (device, config) in handle.devices().configs().into_iter().enumerate() {
            let is_on = || recordings.state().on_at_start().contains(&device);
            if self.recorded.contains(&config.name)
                && !is_on()
                && let Err(error) = recordings.switch(device, true).await
            {
                tracing::error!(
                    device = config.name,
                    "its requests are not recorded: {error}"
                );
            }
        }
    }
}

async fn put_objective(
    handle: &DaemonHandle,
    served: &VmConfig,
    now: &VmConfig,
) -> Result<(), TakeoverError> {
    let promised = now.promised();
    if served.promised() == promised {
        return Ok(());
    }
    let objective = *now.promised_at(Timestamp::now());
    let set = handle.set_objective(&served.name, objective).await;
    set.map_err(|error| refused(error.to_string()))?;
    let schedule = config::by_the_clock(promised);
    handle.vms().set_schedule(&served.name, schedule);
    Ok(())
}

fn refused(what: String) -> TakeoverError {
    TakeoverError::refused(what, "mend that, or restart the daemon")
}

/// Takes over the connections of the running daemon, what it has learnt, and its disks. Returns
/// what is left to do, with the takeover, which is complete, unless the daemon has ended before it
/// has sent anything.
///
/// # Errors
/// If the running daemon goes on, or has ended and something of it is another process's.
pub(super) async fn take(
    (handle, listeners): (&DaemonHandle, &[Arc<VhostUserListener>]),
    taken: Taken,
    mut taking: Taking,
) -> Result<(Taken, Taking), TakeoverError> {
    let (shared, listeners) = (handle.shared().clone(), listeners.to_vec());
    let runtime = tokio::runtime::Handle::current();
    let taken = spawn_blocking(move || {
        let own = hand_over_disks::summaries(&shared);
        let same = hand_over_disks::refuse_others(&own, &taken.disks)
            .and_then(|()| hand_over_disks::refuse_lost_clients(&own, &taken.clients));
        same.inspect_err(|error| taking.refuse(error))?;
        let Some((state, mut parts)) = taking.pause()? else {
            taken.own(&shared)?;
            tracing::warn!("the running daemon has ended: its clients have to connect again");
            return Ok((taken, taking));
        };
        let _within = runtime.enter();
        let checked = (state.connections.iter())
            .map(|connection| open(&shared, &taken, connection, &mut parts))
            .collect::<Result<Vec<HandedConnection>, String>>()
            .map_err(refused);
        let checked = checked.inspect_err(|error| taking.refuse(error));
        let connections = checked?;
        let open = |plan| Resumed::open(&shared, plan, &mut parts, taken.ownership.clone());
        let sessions = (state.sessions.into_iter().map(open)).collect::<Result<Vec<_>, _>>();
        let sessions = sessions
            .map_err(refused)
            .inspect_err(|error| taking.refuse(error))?;
        for device in &state.devices {
            import(&shared, device);
        }
        taking.commit()?;
        taken.own(&shared)?;
        let (pid, count) = (taking.pid, connections.len() + sessions.len());
        for connection in connections {
            handed_connections::add(&shared, connection);
        }
        sessions
            .into_iter()
            .for_each(|session| session.begin(&listeners));
        let pause_ms = clock().0.saturating_sub(state.paused_at) / 1_000_000;
        tracing::info!(pid, connections = count, pause_ms, "taken over");
        Ok((taken, taking))
    });
    match taken.await {
        Ok(taken) => taken,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Returns a connection of the other daemon on its way to a loop here, if its disk is what the
/// client knows.
fn open(
    shared: &Arc<Shared>,
    taken: &Taken,
    state: &ConnectionState,
    parts: &mut crate::takeover::Reader<std::os::fd::OwnedFd>,
) -> Result<HandedConnection, String> {
    let export = &state.export;
    let fd = parts.descriptor(state.descriptor)?;
    let (input, unsent) = (parts.bytes(state.input)?, parts.bytes(state.unsent)?);
    let transmission = state.transmission();
    if !transmission.block_min.is_power_of_two() {
        return Err(format!(
            "export {export:?} has blocks of {}",
            state.block_min
        ));
    }
    let listed = shared.disks.offered().find(export);
    let listed = listed.ok_or_else(|| {
        format!(
            "{} uses export {export:?}, which is not served here",
            state.peer
        )
    })?;
    let offered = nbd::export(listed.volume.clone());
    let flags = offered.abilities.transmission_flags(transmission.style);
    // The disk's size was compared. A client that connected before a resize goes on with the size
    // that it knows.
    let was_served = taken.disks.iter().any(|disk| disk.export == *export);
    let is_same = was_served
        && state.payload_max <= offered.block.maximum()
        && state.flags & !flags == 0
        && offered.abilities.read_only == listed.volume.read_only;
    if !is_same {
        return Err(format!(
            "{} uses export {export:?}, which differs from what is served here in what it \
             can do",
            state.peer
        ));
    }
    let permit = listed.connections.admit();
    Ok(HandedConnection {
        disk: export.clone(),
        serial: listed.volume.serial,
        peer: state.peer.clone(),
        permit: permit.map_err(|why| format!("export {export:?}: {why}"))?,
        handed: nbd::Handed {
            fd,
            state: transmission,
            allocation_context: state.context,
            input,
            unsent,
        },
    })
}

/// Passes what was learnt to an event loop.
fn import(shared: &Shared, state: &DeviceState) {
    let configs = shared.devices.configs();
    let Some(device) = configs.iter().position(|it| it.name == state.device) else {
        return;
    };
    // Fails only if the loop has ended, which `run` reports.
    let send = |command| drop(shared.devices.send(device, command));
    let learnt = (state.learnt.iter())
        .map(|(vm, state)| (vm.clone(), Blob::from_bytes(state.clone())))
        .collect::<Vec<_>>();
    if !learnt.is_empty() {
        let moved = false;
        send(Command::ImportLearnt { learnt, moved });
    }
    let own = state.own.iter().filter_map(|(name, state)| {
        let part = LearntDeviceState::ALL
            .into_iter()
            .find(|it| it.name() == name)?;
        Some((part, Blob::from_bytes(state.clone())))
    });
    let own: Vec<_> = own.collect();
    if !own.is_empty() {
        send(Command::ImportDevice(own));
    }
    match attainment_record::from_bytes(&state.attainment, Timestamp::now()) {
        Ok((records, ago)) => send(Command::ImportAttainment { records, ago }),
        Err(error) => tracing::warn!(device = state.device, "attainment is lost: {error}"),
    }
    let mut transfers = Vec::new();
    for (vm, words) in &state.transfers {
        match PersistedTransfers::read(words) {
            Ok(transfer) => transfers.push((vm.clone(), transfer)),
            Err(error) => tracing::warn!(vm, "its deadline transfer is lost: {error}"),
        }
    }
    let at = Timestamp::now();
    send(Command::ResumeTransfers { transfers, at });
    let limits = state.limits.iter().cloned().map(Into::into).collect();
    let at = Nanos(state.limits_at);
    send(Command::HandOver(HandOverStep::ImportLimitUse {
        at,
        limits,
    }));
}
