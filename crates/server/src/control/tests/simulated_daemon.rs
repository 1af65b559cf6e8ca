//! Simulated daemon.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::objective::Limit;
use tidegate_core::policy::Policy;
use tidegate_core::transfers::{Class, Transfer, TransferOutcome, TransferStatus};

use super::*;
use crate::daemon::ChangeGate;
use crate::history::History;
use crate::membership::Membership;
use crate::recording::Recordings;
use crate::transfer::{
    Due, EndedTransfer, Outlook, RunningTransfer, Since, TransferOrder, TransferResult, after,
    between,
};
use tidegate_api::health::Reason;

/// Size that a disk takes on, but not durably, to provoke [`ControlError::NotDurable`].
pub(super) const UNSYNCED: u64 = 3 << 20;
/// Error of a shrink to [`UNSYNCED`].
pub(super) const NOT_DURABLE: &str = "a crash may undo the resize";

/// Name of a VM whose record cannot be stored: the store has no space.
pub(super) const NAME_THAT_CANNOT_BE_STORED: &str = "unkept";

/// Name of a VM whose daemon has no store.
pub(super) const NAME_WITHOUT_STORE: &str = "storeless";

/// Simulated daemon.
#[derive(Clone)]
pub(super) struct Pretended {
    /// Gate for changes.
    pub(super) gate: ChangeGate,
    /// Snapshots of the devices.
    devices: Arc<Mutex<Vec<DeviceSnapshot>>>,
    /// Configurations of the VMs.
    vms: Arc<Mutex<Vec<VmConfig>>>,
    /// Exports of the stored disks, by VM.
    pub(super) stored: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    /// Profile of every device.
    pub(super) profile: Option<Arc<Profile>>,
    /// History; `None`: turned off.
    pub(super) history: Option<Arc<History>>,
    /// Membership in a cluster; `None`: it joins none.
    pub(super) membership: Option<Arc<Membership>>,
    /// Number of snapshots that were asked for, of devices and of single VMs.
    asked: Arc<AtomicU32>,
    /// Held by the loop of the VM `slow` while it begins a transfer.
    slow_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Pretended {
    pub(super) fn new() -> Pretended {
        let devices = vec![
            snapshot("disk0", &["oltp", "bulk"]),
            snapshot("disk1", &["dss"]),
        ];
        let vms = devices.iter().enumerate().flat_map(|(index, device)| {
            let vms = device.vms.iter();
            vms.map(move |vm| pretended_vm(&vm.name, index, vm.objective))
        });
        let vms = vms.collect();
        Pretended {
            gate: ChangeGate::default(),
            devices: Arc::new(Mutex::new(devices)),
            vms: Arc::new(Mutex::new(vms)),
            stored: Arc::default(),
            profile: None,
            history: None,
            membership: None,
            asked: Arc::default(),
            slow_turn: Arc::default(),
        }
    }

    /// Returns the number of snapshots that were asked for.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(super) fn vms<T>(&self, f: impl FnOnce(&mut Vec<VmConfig>) -> T) -> T {
        f(&mut self.vms.lock().expect("no test thread has panicked"))
    }

    /// Changes the snapshot of a VM and returns it.
    pub(super) fn change(&self, vm: &str, f: impl FnOnce(&mut VmSnapshot)) -> VmSnapshot {
        self.with(|devices| {
            let mut all = devices.iter_mut().flat_map(|device| &mut device.vms);
            let vm = all.find(|it| it.name == vm).expect("the API looked it up");
            f(vm);
            vm.clone()
        })
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Vec<DeviceSnapshot>) -> T) -> T {
        f(&mut self.devices.lock().expect("no test thread has panicked"))
    }
}

/// Returns a VM with one disk of 1 GiB in memory, exported under the VM's name.
pub(super) fn pretended_vm(name: &str, device: usize, objective: Objective) -> VmConfig {
    VmConfig {
        name: name.to_owned(),
        device,
        background: false,
        objective,
        schedule: None,
        max_connections: 64,
        disks: vec![DiskConfig {
            export: name.to_owned(),
            path: None,
            within: None,
            size: Some(1 << 30),
            create: Create::No,
            format: DiskFormat::Probe,
            read_only: false,
            nbd: None,
            incoming: false,
            block_size: 512,
            limit: Limit::NONE,
            limit_group: None,
            faults: Vec::new(),
            place: None,
        }],
    }
}

/// Returns a file with learnt state of a controller.
pub(super) fn learnt_file(vm: &str, controller: &str) -> LearntStateFile {
    let disks = Identity::from_text("memory");
    LearntStateFile::new([vm, "disk0", "vcup"], &disks, &Blob::new(controller, 1))
}

/// Bandwidth of the simulated devices in bytes per second.
const CAPACITY: u64 = 100_000_000;

/// Returns a running transfer that gets half of the device's bandwidth and has moved nothing.
pub(super) fn running_transfer(bytes: u64, deadline: Nanos, at: Timestamp) -> RunningTransfer {
    let transfer = Transfer {
        bytes,
        begun: Nanos::ZERO,
        deadline,
        moved: 0,
    };
    let forecast = transfer.forecast(Nanos::ZERO, CAPACITY / 2);
    RunningTransfer {
        since: Since {
            begun: at,
            due: after(at, deadline),
            moved: 0,
            overdue: Nanos::ZERO,
            placed_ns: None,
        },
        status: TransferStatus {
            transfer,
            bandwidth: None,
            forecast,
            class: Class::BestEffort,
            given_up: false,
            possible: transfer.latency(CAPACITY) <= deadline,
        },
        outlook: Outlook::In(forecast.done),
        capacity: CAPACITY,
        enforced: false,
    }
}

/// Returns the ended form of a transfer.
pub(super) fn ended_transfer(
    transfer: &RunningTransfer,
    outcome: TransferOutcome,
    late: Nanos,
) -> EndedTransfer {
    EndedTransfer {
        bytes: transfer.bytes(),
        moved: transfer.moved(),
        begun: transfer.since.begun,
        due: transfer.since.due,
        ended: after(transfer.since.due, late),
        early: Nanos::ZERO,
        late,
        outcome,
        placed_ns: transfer.since.placed_ns,
    }
}

pub(super) fn pretended_disk(disk: &DiskConfig) -> DiskSnapshot {
    DiskSnapshot {
        export: disk.export.clone(),
        size: disk.size.expect("told"),
        failed: None,
        unreachable: None,
        no_space: None,
        activation: None,
        media: None,
        oldest_io: None,
        hung: None,
        limit: disk.limit,
        limit_group: disk.limit_group.clone(),
        faults: Vec::new(),
        faults_injected: 0,
        bounced: 0,
    }
}

impl Inventory for Pretended {
    fn membership(&self) -> Option<Arc<Membership>> {
        self.membership.clone()
    }

    fn change_gate(&self) -> ChangeGate {
        self.gate.clone()
    }

    fn devices(&self) -> Vec<(String, Vec<String>)> {
        let names = |d: &DeviceSnapshot| d.vms.iter().map(|vm| vm.name.clone()).collect();
        self.with(|devices| devices.iter().map(|d| (d.name.clone(), names(d))).collect())
    }

    fn device_configs(&self) -> Vec<DeviceConfig> {
        let text = ["disk0", "disk1"]
            .map(|name| format!("[[device]]\nname = {name:?}\nkind = \"memory\"\n"))
            .concat();
        let group = "[[device.limit_group]]\nname = \"logs\"\nlimit = \"600 IOPS\"\n";
        let text = text.replacen(
            "[[device]]\nname = \"disk1\"",
            &format!("{group}[[device]]\nname = \"disk1\""),
            1,
        );
        let text = format!("[[listen]]\nunix = \"s\"\n{text}");
        let loaded = crate::config::parse(&text, "t", Path::new("/"));
        let mut devices = loaded.unwrap_or_else(|e| panic!("{e}")).config.devices;
        for device in &mut devices {
            device.scheduling.profile = self.profile.clone();
        }
        devices
    }

    fn paths(&self) -> PathsConfig {
        PathsConfig::of_directory(Path::new("/etc/tidegate"))
    }

    fn listeners(&self) -> Vec<ListenConfig> {
        vec![ListenConfig {
            address: ListenAddress::Unix {
                path: "/run/tidegate/nbd.sock".into(),
                mode: 0o600,
            },
            owner: SocketOwner::default(),
            exports: Vec::new(),
            tls: None,
            place: None,
        }]
    }

    fn vm(&self, name: &str) -> Option<VmConfig> {
        self.vms(|vms| vms.iter().find(|vm| vm.name == name).cloned())
    }

    fn vms_of(&self, device: usize) -> Vec<VmConfig> {
        self.vms(|vms| {
            let theirs = vms.iter().filter(|vm| vm.device == device);
            theirs.cloned().collect()
        })
    }

    fn scheduled(&self) -> Vec<VmConfig> {
        self.vms(|vms| {
            let scheduled = vms.iter().filter(|vm| vm.schedule.is_some());
            scheduled.cloned().collect()
        })
    }

    fn is_configured(&self, vm: &str) -> bool {
        ["oltp", "bulk", "dss"].contains(&vm)
    }

    fn sized_by_configuration(&self, vm: &str, export: &str) -> Option<DiskConfig> {
        if vm != "oltp" || export != "oltp" {
            return None;
        }
        let disk = crate::config::vm::disk_from_json(
            &json!({"size": "1 GiB"}),
            vm,
            &self.device_configs()[0],
            &self.paths(),
        );
        // As if it were a file: of disks in memory nothing is left at the next start.
        let mut disk = disk.expect("a valid disk");
        disk.path = Some("/vms/oltp.raw".into());
        Some(disk)
    }

    fn handshakes(&self) -> HandshakeCounts {
        HandshakeCounts::default()
    }

    fn problems(&self) -> Vec<Reason> {
        Vec::new()
    }

    fn history(&self) -> Option<Arc<History>> {
        self.history.clone()
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }

    fn recordings(&self) -> Arc<Recordings> {
        let names = self.devices().into_iter().map(|(name, _)| name);
        Arc::new(Recordings::new(None, names))
    }
}

impl Pretended {
    fn begin_transfer_now(
        &self,
        vm: &str,
        order: TransferOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        let now = self.change(vm, |_| {});
        if let Some(transfer) = now.transfers.running.filter(|_| !order.replace) {
            let (vm, moved, bytes) = (vm.to_owned(), transfer.moved(), transfer.bytes());
            return Err(CommandError::HasTransfer { vm, moved, bytes }.into());
        }
        let deadline = match order.due {
            Due::In(span) => span,
            Due::At(due) => between(at, due),
            Due::Tolerance(_) => return Err(CommandError::Unmeasured.into()),
        };
        CommandError::check_transfer(&order, deadline)?;
        let mut transfer = running_transfer(order.bytes, deadline, at);
        transfer.since.placed_ns = order.placed_ns;
        Ok(self.change(vm, |vm| {
            vm.transfers.running = Some(transfer);
            let placed_ns = order.placed_ns.iter();
            placed_ns.for_each(|it| vm.transfers.begun_placements.add(*it));
        }))
    }
}

impl Loops for Pretended {
    async fn vm_snapshot(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if vm == "silent" {
            std::future::pending::<()>().await;
        }
        Ok(self.change(vm, |_| {}))
    }

    async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.with(|devices| devices[device].name == "stuck") {
            std::future::pending::<()>().await;
        }
        // A loop answers in the order in which it was asked.
        drop(self.slow_turn.lock().await);
        Ok(self.with(|devices| devices[device].clone()))
    }

    async fn set_recording(&self, _: usize, on: bool) -> Result<(), ControlError> {
        if on {
            return Err(ControlError::Recording("no directory".to_owned()));
        }
        Ok(())
    }

    async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        if vm == "slow" {
            tokio::time::sleep(ANSWER_TIMEOUT * 2).await;
        }
        if objective.weight == 13 {
            return Err(CommandError::Refused("13 brings bad luck".to_owned()).into());
        }
        self.vms(|vms| {
            let config = vms.iter_mut().find(|it| it.name == vm);
            config.expect("the API looked it up").objective = objective;
        });
        Ok(self.change(vm, |vm| vm.objective = objective))
    }

    fn set_schedule(&self, vm: &str, schedule: Option<Arc<Schedule>>) {
        self.vms(|vms| {
            let config = vms.iter_mut().find(|it| it.name == vm);
            config.expect("the API looked it up").schedule = schedule;
        });
    }

    async fn set_max_connections(&self, vm: &str, max: u32) -> Result<VmSnapshot, ControlError> {
        self.vms(|vms| {
            let config = vms.iter_mut().find(|it| it.name == vm);
            config.expect("the API looked it up").max_connections = max;
        });
        Ok(self.change(vm, |vm| vm.connections.set_max(max)))
    }

    async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        self.with(|devices| {
            let device = &mut devices[device];
            device.vms.iter_mut().for_each(|vm| {
                vm.enforces = policy.enforces();
                vm.policy = policy.name().to_owned();
            });
            device.policy = policy.to_shared();
            Ok(device.clone())
        })
    }

    async fn set_disk_limits(
        &self,
        vm: &str,
        export: &str,
        limit: Limit,
        group: Option<String>,
    ) -> Result<VmSnapshot, ControlError> {
        assert_ne!(
            vm, NAME_WITHOUT_STORE,
            "limits are changed before it is known that there is no store"
        );
        self.vms(|vms| {
            let disks = vms.iter_mut().flat_map(|vm| &mut vm.disks);
            for disk in disks.filter(|disk| disk.export == export) {
                (disk.limit, disk.limit_group) = (limit, group.clone());
            }
        });
        Ok(self.change(vm, |vm| {
            for disk in vm.disks.iter_mut().filter(|disk| disk.export == export) {
                (disk.limit, disk.limit_group) = (limit, group.clone());
            }
        }))
    }

    async fn set_group_limit(
        &self,
        device: usize,
        group: &str,
        limit: Limit,
    ) -> Result<DeviceSnapshot, ControlError> {
        Ok(self.with(|devices| {
            let groups = devices[device].limit_groups.iter_mut();
            for known in groups.filter(|known| known.name == group) {
                known.limit = limit;
            }
            devices[device].clone()
        }))
    }

    async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        self.with(|devices| {
            let vms = devices[device].vms.iter_mut();
            let mut disks = vms.flat_map(|vm| &mut vm.disks);
            let disk = disks.find(|disk| disk.export == export);
            let disk = disk.expect("the API looked it up");
            match change {
                FaultChange::Add(rule) => disk.faults.push(RuleSnapshot {
                    number: disk.faults.len() as u32 + 1,
                    rule: *rule,
                    state: State::Armed,
                    met: 0,
                    injected: 0,
                }),
                FaultChange::Remove(number) => {
                    let before = disk.faults.len();
                    disk.faults.retain(|rule| rule.number != number);
                    if disk.faults.len() == before {
                        return Err(CommandError::UnknownFault(number).into());
                    }
                }
                FaultChange::Clear => disk.faults.clear(),
            }
            Ok(disk.clone())
        })
    }

    async fn begin_transfer(
        &self,
        vm: &str,
        order: TransferOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        let (own, name) = (self.clone(), vm.to_owned());
        if vm != "slow" {
            return own.begin_transfer_now(vm, order, at);
        }
        let turn = self.slow_turn.clone().lock_owned().await;
        // The loop takes the command also once its sender has given up.
        let begun = tokio::spawn(async move {
            tokio::time::sleep(ANSWER_TIMEOUT * 2).await;
            let begun = own.begin_transfer_now(&name, order, at);
            drop(turn);
            begun
        });
        begun.await.expect("it does not panic")
    }

    async fn cancel_transfer(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        let mut ended = false;
        let now = self.change(vm, |vm| {
            ended = vm.transfers.running.take().is_some_and(|transfer| {
                vm.transfers.last = Some(ended_transfer(
                    &transfer,
                    TransferOutcome::Cancelled,
                    Nanos::ZERO,
                ));
                vm.transfers.ended.count(TransferResult::Cancelled);
                true
            });
        });
        if ended {
            Ok(now)
        } else {
            Err(CommandError::NoTransfer(vm.to_owned()).into())
        }
    }

    async fn export_vm(&self, vm: &str) -> Result<LearntStateFile, ControlError> {
        if vm == "bulk" {
            let help = Some("wait".to_owned());
            let what = "nothing was learnt".to_owned();
            return Err(ControlError::Learnt { what, help });
        }
        Ok(learnt_file(vm, "tuner"))
    }

    async fn import_vm(
        &self,
        vm: &str,
        file: &LearntStateFile,
        disks: LearntDisks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        if file.controller != "tuner" {
            let what = format!("not taken over: learnt by {}", file.controller);
            return Err(ControlError::Learnt { what, help: None });
        }
        let now = self.change(vm, |vm| vm.pending = 77);
        Ok((now, vec![format!("{disks:?}")]))
    }
}

impl Changes for Pretended {
    async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        let now = self.with(|devices| {
            let device = &mut devices[vm.device];
            let mut now = snapshot(&device.name, &[&vm.name]).vms.remove(0);
            now.objective = vm.objective;
            now.disks = vm.disks.iter().map(pretended_disk).collect();
            device.vms.push(now.clone());
            now
        });
        self.vms(|vms| vms.push(vm));
        Ok(now)
    }

    async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        if !force {
            return Err(CommandError::InUse(vec!["uid 0 to \"oltp\"".to_owned()]).into());
        }
        self.with(|devices| {
            let all = devices.iter_mut();
            all.for_each(|device| device.vms.retain(|vm| vm.name != name));
        });
        self.vms(|vms| vms.retain(|vm| vm.name != name));
        Ok(vec!["export \"oltp\" could not be flushed: EIO".to_owned()])
    }

    async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        let new = pretended_disk(&disk);
        self.vms(|vms| {
            let vm = vms.iter_mut().find(|it| it.name == vm);
            vm.expect("looked up").disks.push(disk);
        });
        Ok(self.change(vm, |vm| vm.disks.push(new)))
    }

    async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        _: bool,
    ) -> Result<Vec<String>, ControlError> {
        self.vms(|vms| {
            let vm = vms.iter_mut().find(|it| it.name == vm);
            (vm.expect("looked up").disks).retain(|disk| disk.export != export);
        });
        self.change(vm, |vm| vm.disks.retain(|disk| disk.export != export));
        Ok(Vec::new())
    }

    async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        let now = 1 << 30;
        if size < now && !force {
            return Err(CommandError::Shrinks { now, size }.into());
        }
        if size == UNSYNCED {
            self.change(vm, |vm| vm.disks[0].size = size);
            return Err(ControlError::NotDurable(NOT_DURABLE.to_owned()));
        }
        Ok(self.change(vm, |vm| {
            let disk = vm.disks.iter_mut().find(|disk| disk.export == export);
            disk.expect("looked up").size = size;
        }))
    }
}

impl Persistence for Pretended {
    async fn persist_vm(&self, vm: &str) -> Result<(), ControlError> {
        if vm == NAME_THAT_CANNOT_BE_STORED {
            let what = "the disk is full".to_owned();
            return Err(ControlError::Store { what, help: None });
        }
        let disks = self.vm(vm).into_iter().flat_map(|vm| vm.disks);
        let exports = disks.map(|disk| disk.export).collect();
        let mut stored = self.stored.lock().expect("no test thread has panicked");
        stored.insert(vm.to_owned(), exports);
        Ok(())
    }

    async fn forget_vm(&self, vm: &str) -> Result<bool, ControlError> {
        Ok((self
            .stored
            .lock()
            .expect("no test thread has panicked")
            .remove(vm))
        .is_some())
    }

    fn may_forget(&self, vm: &str) -> Result<(), ControlError> {
        if self.is_configured(vm) {
            Err(ControlError::Configured(vm.to_owned()))
        } else {
            Ok(())
        }
    }

    async fn forget_disk(&self, name: &str) -> Result<bool, ControlError> {
        Ok(name == "lost")
    }

    async fn persists_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        if vm == NAME_WITHOUT_STORE {
            return Err(ControlError::NoStore);
        }
        let stored = self.stored.lock().expect("no test thread has panicked");
        Ok(stored.get(vm).is_some_and(|disks| disks.contains(export)))
    }

    async fn persist_transfers(&self, vm: &str) -> Result<bool, ControlError> {
        match vm {
            NAME_THAT_CANNOT_BE_STORED => {
                let what = "the disk is full".to_owned();
                Err(ControlError::Store { what, help: None })
            }
            vm => Ok(vm != "dss"),
        }
    }
}
