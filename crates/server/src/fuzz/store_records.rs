//! Fuzz target `store_records`: rows of a store that were damaged, or written by anybody.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::learnt_state::Blob;
use tokio::sync::{Notify, oneshot};

use crate::attainment_record;
use crate::command::{Command, LearntDeviceState};
use crate::config::{self, Config};
use crate::event_loop::{Files, LoopHandle, Prepared};
use crate::learnt_state_file::LearntStateFile;
use crate::persisted_vms;
use crate::storage_identity::Identity;
use crate::store::VmRecord;
use crate::transfer::PersistedTransfers;

/// Line between two records of an input.
const SEPARATOR: &str = "\n--\n";
/// Policies whose controllers learn, each on a device with two VMs.
const POLICIES: [&str; 4] = ["slo", "vfair", "vcup", "pridyn"];

/// Devices that all inputs of a process have in turn.
static DEVICES: LazyLock<Mutex<Devices>> = LazyLock::new(|| Mutex::new(Devices::start()));

/// Restores records as a daemon does at its start, into loops that run. Records are separated by a
/// line `--`; the first line of each is its kind with the columns of its key.
///
/// # Panics
/// If a record is refused without a reason, or a loop does not survive one.
pub fn store_records(data: &[u8]) {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    for record in data_records(data) {
        devices.restore(record);
    }
    devices.check();
}

/// Splits an input at the lines between records.
fn data_records(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let all = rest?;
        let separator = SEPARATOR.as_bytes();
        match all.windows(separator.len()).position(|at| at == separator) {
            Some(at) => {
                rest = Some(&all[at + separator.len()..]);
                Some(&all[..at])
            }
            None => rest.take(),
        }
    })
}

struct Devices {
    config: Config,
    loops: Vec<LoopHandle>,
}

impl Devices {
    fn start() -> Devices {
        let mut text = "[[listen]]\nunix = \"unused\"\n".to_owned();
        for policy in POLICIES {
            text += &format!(
                "[[device]]\nname = \"{policy}\"\nkind = \"memory\"\npolicy = \"{policy}\"\n"
            );
            for vm in ["oltp", "bulk"] {
                text += &format!(
                    "[[vm]]\nname = \"{vm}-{policy}\"\ndevice = \"{policy}\"\n[[vm.disk]]\n\
                     size = \"1 MiB\"\n"
                );
            }
        }
        let loaded = config::parse(&text, "fuzz.toml", Path::new("/nonexistent"));
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let start = |index| {
            let prepared = Prepared::open(&config, index, &Files::default());
            let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
            let spawned = prepared.spawn((), Arc::new(Notify::new()), None);
            spawned.unwrap_or_else(|error| panic!("{error}")).0
        };
        let loops = (0..POLICIES.len()).map(start).collect();
        Devices { config, loops }
    }

    /// Restores one record.
    fn restore(&self, record: &[u8]) {
        let end = record.iter().position(|&byte| byte == b'\n');
        let (key, value) = record.split_at(end.unwrap_or(record.len()));
        let value = value.get(1..).unwrap_or_default();
        let Ok(key) = std::str::from_utf8(key) else {
            return;
        };
        let mut columns = key.split(' ');
        let kind = columns.next().unwrap_or_default();
        let column = columns.next().unwrap_or_default();
        match (kind, std::str::from_utf8(value)) {
            ("vm", Ok(text)) => {
                let mut number = || columns.next().and_then(|it| it.parse().ok()).unwrap_or(0);
                let (version, scope) = (number(), number() as u8);
                self.restore_vm(column, (version, scope, text));
            }
            ("transfer", Ok(text)) => match PersistedTransfers::read(text) {
                Ok(transfer) => self.send(|vm| Command::ResumeTransfers {
                    transfers: vec![(vm, transfer)],
                    at: Timestamp::UNIX_EPOCH,
                }),
                Err(why) => assert!(!why.is_empty()),
            },
            ("attainment", Ok(_)) => self.restore_attainment(value),
            ("file", Ok(text)) => self.import_file(text),
            ("learnt", _) => self.send(|vm| Command::ImportLearnt {
                learnt: vec![(vm, Blob::from_bytes(value.to_vec()))],
                moved: column == "moved",
            }),
            ("device", _) => {
                let named = |state: &LearntDeviceState| state.name() == column;
                if let Some(state) = LearntDeviceState::ALL.into_iter().find(named) {
                    let blob = || Blob::from_bytes(value.to_vec());
                    self.send(|_| Command::ImportDevice(vec![(state, blob())]));
                }
            }
            _ => {}
        }
    }

    fn restore_vm(&self, name: &str, row: (u32, u8, &str)) {
        let Ok(record) = VmRecord::from_row(name, row) else {
            return;
        };
        let records = [record];
        let mut vms = self.config.vms.clone();
        for report in persisted_vms::overlay(&records, &mut vms) {
            assert!(!report.what.is_empty());
        }
        let (devices, paths) = (&self.config.devices, &self.config.paths);
        for (_, vm) in persisted_vms::restorable_vms(&records, |_| false, devices, paths) {
            match vm {
                Ok(mut vm) => {
                    assert!(vm.device < devices.len() && !vm.disks.is_empty());
                    vm.put_in_force(Timestamp::UNIX_EPOCH);
                    let _ = persisted_vms::restored_with_existing_files(&vm);
                }
                Err(why) => assert!(!why.is_empty()),
            }
        }
    }

    fn restore_attainment(&self, value: &[u8]) {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        match attainment_record::from_bytes(value, now) {
            Ok((records, ago)) => {
                // Each part is recorded of a VM that there is, whatever its name was.
                let parts: Vec<_> = records.into_iter().flat_map(|(_, parts)| parts).collect();
                self.send(|vm| Command::ImportAttainment {
                    records: vec![(vm, parts.clone())],
                    ago,
                });
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }

    /// Imports a file of learnt state.
    fn import_file(&self, text: &str) {
        let Ok(json) = serde_json::from_str(text) else {
            return;
        };
        match LearntStateFile::read(&json) {
            Ok(file) => {
                let _ = file.identity().overlaps(&Identity::from_text("memory"));
                let learnt = file.learnt().expect("it was read");
                self.send(|vm| Command::ImportLearnt {
                    learnt: vec![(vm, learnt.clone())],
                    moved: false,
                });
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    /// Sends a command about the first VM of each device.
    fn send(&self, command: impl Fn(String) -> Command) {
        for (index, handle) in self.loops.iter().enumerate() {
            let vm = self.config.vms.iter().find(|vm| vm.device == index);
            let vm = vm.expect("each device has VMs").name.clone();
            assert!(handle.send(command(vm)).is_ok(), "a loop has ended");
        }
    }

    /// Checks that all loops have survived.
    fn check(&self) {
        for handle in &self.loops {
            let (reply, answer) = oneshot::channel();
            assert!(handle.send(Command::Snapshot { reply }).is_ok());
            let snapshot = answer.blocking_recv().expect("the loop runs");
            assert_eq!(snapshot.vms.len(), 2);
        }
    }
}
