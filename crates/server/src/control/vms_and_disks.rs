//! Routes that add, resize and remove VMs and disks. Every change is idempotent: repeated, it
//! changes nothing and answers with the state in force.

use std::future::Future;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::Value;
use tidegate_api::query::ChangeQuery;
use tidegate_api::vm::{Removed, VmView};
use tidegate_units::human::exact_bytes;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::access::refused_at_gate;
use super::admit::Proposal;
use super::error::{ApiError, ApiResult, json};
use super::handlers::{Body, change_query, ok, parse_body};
use super::path::Path;
use super::plane::Plane;
use super::put_conflicts;
use super::view;
use super::{Api, CHANGE_TIMEOUT};
use crate::backing::memory;
use crate::command::VmSnapshot;
use crate::config::{self, DeviceKind, DiskConfig, Schedule, VmConfig};
use crate::daemon::ControlError;
use crate::feasibility;

/// Example of a body.
pub(super) const VM: &str =
    "{\"disk\": [{\"path\": \"/vm/oltp.raw\", \"size\": \"20 GiB\", \"create\": \"sparse\"}]}";
/// Example of a body.
pub(super) const DISK: &str =
    "{\"path\": \"/vm/logs.raw\", \"size\": \"20 GiB\", \"create\": \"sparse\"}";
/// Example of a body.
pub(super) const SIZE: &str = "{\"size\": \"40 GiB\"}";

/// Advice for a disk that cannot be added or removed persistently.
const UNTIL_THE_DAEMON_ENDS: &str =
    "change them there; without persist they are changed until the daemon ends";

impl<P: Plane> Api<P> {
    /// Takes the lock on changes, which is held until the returned guard is dropped.
    ///
    /// # Errors
    /// 503 if another change holds it for longer than [`CHANGE_TIMEOUT`].
    pub(super) async fn lock_changes(&self, at: &str) -> ApiResult<OwnedMutexGuard<()>> {
        let alone = self.changing.clone().lock_owned();
        let alone = tokio::time::timeout(CHANGE_TIMEOUT, alone).await;
        alone.map_err(|_| {
            let what = "another change is in progress";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, at)
        })
    }

    /// Runs a change while no other change runs; it goes on even if the client hangs up. After
    /// [`CHANGE_TIMEOUT`] the answer is 503 and other changes may start, because a file system that
    /// does not answer must not block changes to every VM of the host. The late change still runs
    /// to its end, so each later step has to check the state it finds.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        at: &str,
        change: impl Future<Output = ApiResult<T>> + Send + 'static,
    ) -> ApiResult<T> {
        // Not the request's alone, which ends before a change whose client hangs up.
        let under_way = self.plane.change_gate().enter();
        let under_way = under_way.ok_or_else(|| refused_at_gate(at))?;
        // One deadline for the wait for the lock and for the change itself.
        let until = Instant::now() + CHANGE_TIMEOUT;
        let one_at_a_time = self.lock_changes(at).await?;
        let name = at.to_owned();
        // A task of its own holds the lock, so that it stays held if the client hangs up.
        let made = tokio::spawn(async move {
            let mut change = tokio::spawn(async move {
                let _under_way = under_way;
                change.await
            });
            let made = tokio::time::timeout_at(until, &mut change).await;
            if made.is_err() {
                let seconds = CHANGE_TIMEOUT.as_secs();
                tracing::warn!(
                    at = name,
                    "a change was not complete in {seconds} s: it continues, and others may start"
                );
            }
            drop(one_at_a_time);
            made
        });
        // Both a panic of the change and one of its guard come out as the inner error.
        let made = made.await.unwrap_or_else(|error| Ok(Err(error)));
        match made {
            Ok(Ok(made)) => made,
            Ok(Err(_)) => Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the change failed: this is a bug",
                at,
            )),
            Err(_) => {
                let seconds = CHANGE_TIMEOUT.as_secs();
                let what = format!(
                    "not complete in {seconds} s; it continues, and other changes may start"
                );
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, at))
            }
        }
    }

    /// Returns the configuration and a snapshot of a VM.
    ///
    /// # Errors
    /// 404 if the VM is not served.
    pub(super) async fn existing_vm(&self, name: &str) -> ApiResult<(VmConfig, VmSnapshot)> {
        let now = self.vm_snapshot(name).await?;
        match self.plane.vm(name) {
            Some(config) => Ok((config, now)),
            // The VM was removed between the two questions.
            None => Err(ApiError::not_found("vm", name, &[])),
        }
    }

    /// Checks that an objective of a VM fits its device, beside all objectives and running deadline
    /// transfers. `device` is the index of the device for a VM that does not exist yet.
    ///
    /// # Errors
    /// 404 if there is no such VM, 409 if the objective does not fit, and 503 if the event loop
    /// does not answer.
    pub(super) async fn admit(
        &self,
        vm: &str,
        device: Option<usize>,
        background: bool,
        promised: &Schedule,
        query: ChangeQuery,
    ) -> ApiResult<()> {
        let device = device.or_else(|| self.plane.vm(vm).map(|vm| vm.device));
        let configs = self.plane.device_configs();
        let Some((index, config)) = device.and_then(|at| Some((at, configs.get(at)?))) else {
            return Err(ApiError::not_found("vm", vm, &[]));
        };
        // Without a profile the answer is known, and the event loop need not be asked.
        let running = match feasibility::device(config) {
            Some(_) => self.running_transfers(index, vm).await?,
            None => Vec::new(),
        };
        let proposal = Proposal {
            device: config,
            vms: &self.plane.vms_of(index),
            running: &running,
            vm,
            background,
        };
        proposal.check(promised, self.clock.now(), query.force)
    }

    /// Writes a VM to the store if the query has `persist`.
    pub(super) async fn persist_if_asked(&self, vm: &str, query: ChangeQuery) -> ApiResult<()> {
        if !query.persist {
            return Ok(());
        }
        let kept = self.plane.persist_vm(vm).await;
        kept.map_err(|error| ApiError::control(&error, vm))
    }

    /// Adds a VM, or changes the one of its name.
    pub(super) async fn put_vm(&self, mut vm: VmConfig, query: ChangeQuery) -> ApiResult<Response> {
        let name = vm.name.clone();
        if self.plane.vm(&name).is_some() {
            return self.update_vm(vm, query).await;
        }
        let (device, background) = (vm.device, vm.background);
        self.admit(&name, Some(device), background, &vm.promised(), query)
            .await?;
        // The schedule decides on the objective with which the VM begins.
        vm.put_in_force(self.clock.now());
        let added = self.plane.add_vm(vm).await;
        let now = added.map_err(|error| ApiError::control(&error, &name))?;
        if let Err(error) = self.persist_if_asked(&name, query).await {
            // Persisting was part of the request, so it fails as a whole.
            let _ = self.plane.remove_vm(&name, true).await;
            return Err(error);
        }
        let persisted = query.persist;
        // The new VM may have a schedule, whose next entry is to be waited for.
        self.rescheduled.notify_one();
        tracing::info!(vm = name, device = now.device, persisted, "VM added");
        Ok(json(StatusCode::CREATED, &self.view_of_new(&now)))
    }

    /// Returns the view of a VM that got a new disk. Adds a note if the disks in memory are now
    /// larger than the host's memory.
    fn view_of_new(&self, now: &VmSnapshot) -> VmView {
        let devices = self.plane.device_configs();
        let vms: Vec<_> = (0..devices.len()).map(|at| self.plane.vms_of(at)).collect();
        let disks = devices.iter().zip(&vms).flat_map(|(device, vms)| {
            let disks = vms.iter().flat_map(|vm| &vm.disks);
            disks.map(move |disk| (device, disk))
        });
        let mut view = self.view(now);
        let of_device = devices.iter().find(|device| device.name == now.device);
        // A disk in a file adds nothing to the sum, so the note would not be about this VM.
        if of_device.is_some_and(|device| !matches!(device.kind, DeviceKind::File))
            && let Some(what) = memory::beyond_host(disks)
        {
            tracing::warn!("{what}");
            view.notes.push(what);
        }
        view
    }

    /// Changes an existing VM to what a PUT asks for; differences that cannot be changed are 409.
    async fn update_vm(&self, vm: VmConfig, query: ChangeQuery) -> ApiResult<Response> {
        let (config, now) = self.existing_vm(&vm.name).await?;
        let devices = self.plane.device_configs();
        let differences = put_conflicts::vm_differences(&config, &now, &vm, &devices);
        if let Some(refusal) = put_conflicts::conflict(&vm.name, differences) {
            return Err(refusal);
        }
        let (was, promised) = (config.promised(), vm.promised());
        let now = if config.max_connections == vm.max_connections {
            now
        } else {
            self.set_max_connections(&config, &vm, query).await?
        };
        if was == promised {
            self.persist_if_asked(&vm.name, query).await?;
            return Ok(ok(&self.view(&now)));
        }
        self.admit(&vm.name, None, vm.background, &promised, query)
            .await?;
        let now = self.promise(&vm.name, promised, was, query).await?;
        Ok(ok(&self.view(&now)))
    }

    /// Changes the maximum number of connections of a VM. The caller persists the VM if asked to.
    ///
    /// # Errors
    /// 409 if the change is to be persisted and the VM is in the configuration file, whose value
    /// would win at the next start.
    async fn set_max_connections(
        &self,
        now: &VmConfig,
        wanted: &VmConfig,
        query: ChangeQuery,
    ) -> ApiResult<VmSnapshot> {
        let vm = &now.name;
        if query.persist && self.plane.is_configured(vm) {
            let what = format!("max_connections of VM {vm:?} is set in the configuration");
            let error = ApiError::new(StatusCode::CONFLICT, what, "max_connections");
            return Err(error
                .allowing("change it there; without persist it is changed until the daemon ends"));
        }
        let set = self
            .plane
            .set_max_connections(vm, wanted.max_connections)
            .await;
        let (was, is) = (now.max_connections, wanted.max_connections);
        tracing::info!(vm, was, is, "max_connections changed");
        set.map_err(|error| ApiError::control(&error, vm))
    }

    /// Replaces a VM's objective with its schedule, and applies what holds now. Waits for the event
    /// loop without a deadline of its own, because an abandoned change could still come into force.
    pub(super) async fn promise(
        &self,
        vm: &str,
        promised: Schedule,
        before: Schedule,
        query: ChangeQuery,
    ) -> ApiResult<VmSnapshot> {
        let set = self.put_in_force(vm, promised).await;
        let now = set.map_err(|error| ApiError::control(&error, vm))?;
        if let Err(error) = self.persist_if_asked(vm, query).await {
            // Persisting was part of the request, so it fails as a whole.
            let _ = self.put_in_force(vm, before).await;
            return Err(error);
        }
        let view = view::objective(&now.objective);
        let objective = serde_json::to_string(&view).unwrap_or_default();
        let persisted = query.persist;
        tracing::info!(vm, %objective, persisted, "objective changed");
        Ok(now)
    }

    async fn put_in_force(&self, vm: &str, promised: Schedule) -> Result<VmSnapshot, ControlError> {
        let objective = *promised.in_force_at(self.clock.now()).objective;
        let now = self.plane.set_objective(vm, objective).await?;
        // Only now: an objective that the engine refuses leaves the schedule as it was.
        self.plane.set_schedule(vm, config::by_the_clock(promised));
        self.rescheduled.notify_one();
        Ok(now)
    }

    /// Adds a disk to a VM; one that it has may not differ.
    pub(super) async fn put_disk(
        &self,
        name: &str,
        disk: DiskConfig,
        query: ChangeQuery,
    ) -> ApiResult<Response> {
        self.check_disks_may_persist(name, query, UNTIL_THE_DAEMON_ENDS)?;
        let (config, now) = self.existing_vm(name).await?;
        if let Some(old) = config.disks.iter().find(|old| old.export == disk.export) {
            return match put_conflicts::conflict(
                &disk.export,
                put_conflicts::disk_differences(old, &now, &disk),
            ) {
                Some(refusal) => Err(refusal),
                None => {
                    self.persist_if_asked(name, query).await?;
                    Ok(ok(&self.view(&now)))
                }
            };
        }
        let export = disk.export.clone();
        let added = self.plane.add_disk(name, disk).await;
        let now = added.map_err(|error| ApiError::control(&error, &export))?;
        if let Err(error) = self.persist_if_asked(name, query).await {
            // Persisting was part of the request, so it fails as a whole.
            let _ = self.plane.remove_disk(name, &export, true).await;
            return Err(error);
        }
        tracing::info!(vm = name, export, persisted = query.persist, "disk added");
        Ok(json(StatusCode::CREATED, &self.view_of_new(&now)))
    }

    /// Rejects a persistent change of the disks of a VM in the configuration file, whose disks
    /// would be served again at the next start. `instead` is what the operator can do.
    pub(super) fn check_disks_may_persist(
        &self,
        vm: &str,
        query: ChangeQuery,
        instead: &str,
    ) -> ApiResult<()> {
        if !query.persist || !self.plane.is_configured(vm) {
            return Ok(());
        }
        let what = format!("the disks of VM {vm:?} are defined in the configuration");
        let error = ApiError::new(StatusCode::CONFLICT, what, vm);
        Err(error.allowing(instead))
    }

    async fn remove_disk(
        &self,
        name: &str,
        export: String,
        query: ChangeQuery,
    ) -> ApiResult<Response> {
        self.check_disks_may_persist(name, query, UNTIL_THE_DAEMON_ENDS)?;
        let refused = |error| ApiError::control(&error, &export);
        let (config, _) = self.existing_vm(name).await?;
        let mut not_flushed = Vec::new();
        if config.disks.iter().any(|disk| disk.export == export) {
            let removed = self.plane.remove_disk(name, &export, query.force).await;
            not_flushed = removed.map_err(refused)?;
            tracing::info!(vm = name, export, "disk removed");
            self.persist_if_asked(name, query).await?;
        } else if query.persist
            && (self.plane.persists_disk(name, &export).await).map_err(refused)?
        {
            // Removed from service before, but still in the record: the removal was not persisted.
            self.persist_if_asked(name, query).await?;
        } else {
            let known: Vec<_> = config.disks.into_iter().map(|disk| disk.export).collect();
            return Err(ApiError::not_found("disk", &export, &known));
        }
        let removed = export;
        Ok(ok(&Removed {
            removed,
            not_flushed,
        }))
    }

    async fn resize(
        &self,
        name: &str,
        export: &str,
        size: u64,
        query: ChangeQuery,
    ) -> ApiResult<Response> {
        let instead = self.instead_of_persisting(name, export, size);
        self.check_disks_may_persist(name, query, &instead)?;
        let (_, now) = self.existing_vm(name).await?;
        let Some(disk) = now.disks.iter().find(|disk| disk.export == export) else {
            let known: Vec<_> = now.disks.into_iter().map(|disk| disk.export).collect();
            return Err(ApiError::not_found("disk", export, &known));
        };
        let before = disk.size;
        // Repeated for an unchanged size as well: an earlier attempt may have failed to make it
        // durable.
        let resized = self
            .plane
            .resize_disk(name, export, size, query.force)
            .await;
        let now = resized.map_err(|error| ApiError::control(&error, export))?;
        if before != size {
            tracing::info!(vm = name, export, before, size, "disk resized");
        }
        // If this fails, the file keeps its new size all the same.
        self.persist_if_asked(name, query).await?;
        let mut view = self.view(&now);
        // Also if this request changed nothing: an earlier one may have.
        view.notes
            .extend(self.size_to_configure(name, export, size));
        Ok(ok(&view))
    }

    /// Returns what an operator does instead of persisting a new size of a disk of the
    /// configuration file. A file keeps its size by itself; a disk in memory is made anew.
    fn instead_of_persisting(&self, vm: &str, export: &str, size: u64) -> String {
        match self.plane.sized_by_configuration(vm, export) {
            Some(disk) if disk.path.is_none() => UNTIL_THE_DAEMON_ENDS.to_owned(),
            Some(_) => format!(
                "set size = \"{}\" there and repeat this without persist: the file keeps its new \
                 size",
                exact_bytes(size)
            ),
            None => "repeat this without persist: the file keeps its new size".to_owned(),
        }
    }

    /// Returns a warning if the configuration file gives another size of a disk than it has now:
    /// the next start would refuse the disk, and with it the start of every VM.
    fn size_to_configure(&self, vm: &str, export: &str, size: u64) -> Option<String> {
        let disk = self.plane.sized_by_configuration(vm, export)?;
        disk.path.as_ref()?;
        let configured = disk.size.filter(|configured| *configured != size)?;
        let at = disk.place.map_or(String::new(), |place| {
            format!(" ({}, disk at line {})", place.file, place.line)
        });
        Some(format!(
            "set size = \"{}\" for export {export:?} in the configuration{at}: it still says {}, \
             and the next start of the daemon is refused until the two agree",
            exact_bytes(size),
            exact_bytes(configured)
        ))
    }
}

/// Adds the name from the path to the body under `key`; an equal name in the body is accepted.
fn with_name(mut json: Value, key: &str, name: &str) -> ApiResult<Value> {
    if let Value::Object(fields) = &mut json {
        let named = fields.entry(key).or_insert_with(|| name.into());
        if named != name {
            let what = format!("{named} in the body, and {name:?} in the path");
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(ApiError::new(status, what, key).allowing("the same, or leave it out"));
        }
    }
    Ok(json)
}

pub(super) async fn put_vm<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let body = with_name(parse_body(body, VM)?, "name", &name)?;
    let vm = config::vm::from_json(&body, &api.plane.device_configs(), &api.plane.paths())?;
    let own = api.clone();
    api.change(&name, async move { own.put_vm(vm, query).await })
        .await
}

pub(super) async fn delete_vm<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let (own, vm) = (api.clone(), name.clone());
    api.change(&name, async move {
        let refused = |error| ApiError::control(&error, &vm);
        if query.persist {
            // Checked first, so that a refusal removes nothing.
            own.plane.may_forget(&vm).map_err(refused)?;
        }
        let (not_flushed, missing) = match own.existing_vm(&vm).await {
            Ok(_) => {
                let removed = own.plane.remove_vm(&vm, query.force).await;
                (removed.map_err(refused)?, None)
            }
            Err(error) if error.status == StatusCode::NOT_FOUND => (Vec::new(), Some(error)),
            // The error does not say whether the VM exists.
            Err(error) => return Err(error),
        };
        let forgotten = query.persist && own.plane.forget_vm(&vm).await.map_err(refused)?;
        // A VM that could not be served exists in the store alone, and can be removed from it.
        if let Some(missing) = missing.filter(|_| !forgotten) {
            return Err(missing);
        }
        tracing::info!(vm, forgotten, "VM removed");
        let removed = vm;
        Ok(ok(&Removed {
            removed,
            not_flushed,
        }))
    })
    .await
}

pub(super) async fn put_disk<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, export)): Path<(String, String)>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let body = with_name(parse_body(body, DISK)?, "export", &export)?;
    let (own, vm) = (api.clone(), name.clone());
    api.change(&name, async move {
        let (config, _) = own.existing_vm(&vm).await?;
        let devices = own.plane.device_configs();
        let device = &devices[config.device];
        let disk = config::vm::disk_from_json(&body, &vm, device, &own.plane.paths())?;
        own.put_disk(&vm, disk, query).await
    })
    .await
}

pub(super) async fn resize_disk<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, export)): Path<(String, String)>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let size = config::vm::size_from_json(&parse_body(body, SIZE)?)?;
    let (own, vm) = (api.clone(), name.clone());
    api.change(
        &name,
        async move { own.resize(&vm, &export, size, query).await },
    )
    .await
}

/// `DELETE /v1/disks/{export}/known`: forgets a disk that was served before, so that a new one may
/// be created at its path.
pub(super) async fn forget_disk<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let own = api.clone();
    let asked = name.clone();
    let change = async move {
        let forgotten = own.plane.forget_disk(&asked).await;
        if !forgotten.map_err(|error| ApiError::control(&error, &asked))? {
            let what = format!("the store has no record of disk {asked:?}");
            let error = ApiError::new(StatusCode::NOT_FOUND, what, "disk");
            return Err(error.allowing("the export name, or the absolute path of its file"));
        }
        tracing::info!(disk = asked, "disk forgotten");
        Ok(ok(&Removed {
            removed: asked,
            not_flushed: Vec::new(),
        }))
    };
    api.change(&name, change).await
}

pub(super) async fn delete_disk<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, export)): Path<(String, String)>,
    uri: Uri,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let (own, vm) = (api.clone(), name.clone());
    let change = async move { own.remove_disk(&vm, export, query).await };
    api.change(&name, change).await
}
