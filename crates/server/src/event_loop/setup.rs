//! Opening a device's disks and starting its loop.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig, EngineError};
use tidegate_core::time::Nanos;
use tidegate_nbd::{Abilities, BlockSize, Export};

use super::client::{CLIENTS_MAX, HEADS, RECEIVE};
use super::device::{Device, DiskState, Io};
use super::{Loop, LoopHandle, Phase, Vm};
use crate::backing::file_io::ZEROES;
use crate::backing::layout::{self, TooSmall, Wanted};
use crate::backing::range_lock::RangeLocks;
use crate::backing::{Disk, Medium, OpenError};
use crate::buffer::{Pool, Region};
use crate::config::{Config, DeviceKind, DiskConfig};
use crate::ring::{Ring, Wake, clock, sys};

/// Longest request that carries data, as advertised.
pub(super) const PAYLOAD_MAX: u32 = Pool::BUFFER_MAX as u32;
/// Submissions between two turns of the ring; more are submitted in between.
const RING_ENTRIES: u32 = 1024;
/// The ring's table of files, where the process may have so many.
const FILES_MAX: u32 = 16_384;

/// Why a device could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A disk could not be opened.
    #[error("VM {vm:?}, export {export:?}: {source}")]
    Disk {
        /// The VM.
        vm: String,
        /// The export.
        export: String,
        /// Why.
        source: OpenError,
    },
    /// Two disks on one file, by two spellings or a link.
    #[error(
        "VM {vm:?}, export {export:?}: {} is the same file as {}, which export {:?} of VM {:?} \
         uses; a disk needs a file of its own",
        path.display(), first.path.display(), first.export, first.vm
    )]
    SameFile {
        /// The VM.
        vm: String,
        /// The export.
        export: String,
        /// Its file.
        path: PathBuf,
        /// Who was first.
        first: Box<User>,
    },
    /// The disks do not fit the device.
    #[error("device {device:?}: {source}")]
    Layout {
        /// The device.
        device: String,
        /// By how much.
        source: TooSmall,
    },
    /// The engine refused the configuration.
    #[error("device {device:?}: {source}")]
    Engine {
        /// The device.
        device: String,
        /// Why.
        source: EngineError,
    },
    /// A system call failed.
    #[error("device {device:?}: cannot {what}: {source}")]
    Io {
        /// The device.
        device: String,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        source: io::Error,
    },
}

/// A device whose disks are open and whose loop has not begun.
pub struct Prepared {
    name: String,
    engine: Engine,
    device: Device,
    vms: Vec<Vm>,
    buffer_memory: u64,
    payload_per_vm: u64,
    plumbing: u64,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The files that the disks of a configuration have open, over all its devices.
#[derive(Debug, Default)]
pub struct Files(HashMap<(bool, u64, u64), User>);

/// The first disk on a file.
#[derive(Clone, Debug)]
pub struct User {
    vm: String,
    export: String,
    path: PathBuf,
    read_only: bool,
}

impl Files {
    /// Refuses a file that another disk uses, unless neither writes: locks would not tell who.
    fn refuse_shared(&self, vm: &str, disk: &DiskConfig, path: &Path) -> Result<(), SetupError> {
        let meta = std::fs::metadata(path);
        let user = meta.ok().and_then(|m| self.0.get(&sys::identity(&m)));
        match user {
            Some(user) if !(user.read_only && disk.read_only) => Err(SetupError::SameFile {
                vm: vm.to_owned(),
                export: disk.export.clone(),
                path: path.to_owned(),
                first: Box::new(user.clone()),
            }),
            _ => Ok(()),
        }
    }

    fn add(&mut self, vm: &str, disk: &Disk, path: &Path) {
        if let Medium::File(open) = &disk.medium
            && let Ok(meta) = open.file.metadata()
        {
            self.0.entry(sys::identity(&meta)).or_insert_with(|| User {
                vm: vm.to_owned(),
                export: disk.export.clone(),
                path: path.to_owned(),
                read_only: disk.read_only,
            });
        }
    }
}

impl Prepared {
    /// Opens everything a device needs.
    ///
    /// # Errors
    /// Names the VM, the export and the path of what could not be opened.
    pub fn open(config: &Config, index: usize, files: &mut Files) -> Result<Prepared, SetupError> {
        let device = &config.devices[index];
        let mut disks = Vec::new();
        let mut names = Vec::new();
        for vm in config.vms.iter().filter(|vm| vm.device == index) {
            for disk in &vm.disks {
                if let Some(path) = &disk.path {
                    files.refuse_shared(&vm.name, disk, path)?;
                }
                let opened = Disk::open(device, disk).map_err(|source| SetupError::Disk {
                    vm: vm.name.clone(),
                    export: disk.export.clone(),
                    source,
                })?;
                if let Some(path) = &disk.path {
                    files.add(&vm.name, &opened, path);
                }
                disks.push((names.len(), opened));
            }
            names.push((vm.name.clone(), vm.objective, vm.background));
        }
        let model = match &device.kind {
            DeviceKind::Emulated { model } => Some(model.build()),
            _ => None,
        };
        let spec = model.as_ref().map(|m| m.spec().clone());
        let capacity = spec.as_ref().map_or(1 << 62, |s| s.capacity);
        let place = place(&disks, matches!(device.kind, DeviceKind::File), capacity);
        let bases = place.map_err(|source| SetupError::Layout {
            device: device.name.clone(),
            source,
        })?;
        let block = disks
            .iter()
            .map(|(_, d)| d.physical_block())
            .max()
            .unwrap_or(4096);
        let block = block.max(spec.as_ref().map_or(0, |s| s.physical_block));
        // An unaligned I/O needs a bounce buffer with up to a block more at each end.
        let longest = device
            .max_io
            .min(spec.as_ref().map_or(u32::MAX, |s| s.max_io))
            .min(PAYLOAD_MAX - 2 * block);
        let max_io = (longest / block * block).max(block);
        let depth = device
            .depth
            .min(spec.as_ref().map_or(u32::MAX, |s| s.queue_depth));
        let engine_config = EngineConfig {
            device: DeviceSpec {
                depth,
                physical_block: block,
                max_io,
                zeroes_are_writes: model.is_some(),
                positioning: spec.as_ref().map_or(Nanos::ZERO, |s| s.positioning),
                bytes_per_s: spec.as_ref().map_or(0, |s| s.bytes_per_s),
            },
            max_requests: device.max_requests,
            max_pending_per_vm: device.max_pending_per_vm,
            merge_limit: device.merge_limit.min(max_io),
            max_vms: names.len().max(1) as u32,
        };
        let refused = |source: EngineError| SetupError::Engine {
            device: device.name.clone(),
            source,
        };
        let mut engine = Engine::new(engine_config, &device.policy).map_err(refused)?;
        let mut vms = Vec::new();
        for (name, objective, background) in names {
            let added = match background {
                true => engine.add_background(Nanos::ZERO, &objective),
                false => engine.add_vm(Nanos::ZERO, &objective),
            };
            let id = added.map_err(refused)?;
            vms.push(Vm {
                name,
                id,
                disks: Vec::new(),
                payload: 0,
            });
        }
        let mut states: Vec<DiskState> = Vec::new();
        let mut by_id = Vec::new();
        for ((vm, disk), base) in disks.into_iter().zip(bases) {
            let spec = DiskSpec {
                base,
                size: disk.size,
                read_only: disk.read_only,
            };
            let id = engine.add_disk(vms[vm].id, spec).map_err(refused)?;
            vms[vm].disks.push(states.len());
            by_id.resize(by_id.len().max(id.index() + 1), usize::MAX);
            by_id[id.index()] = states.len();
            states.push(disk_state(disk, vm, id));
        }
        let description = match (&device.kind, &spec) {
            (DeviceKind::File, _) => "files".to_owned(),
            (DeviceKind::Memory, _) => "memory".to_owned(),
            (DeviceKind::Emulated { .. }, spec) => {
                format!("emulated {}", spec.as_ref().map_or("", |s| &s.name))
            }
        };
        let bounce = (u64::from(max_io) + 2 * u64::from(block)).next_power_of_two();
        Ok(Prepared {
            name: device.name.clone(),
            engine,
            device: Device {
                disks: states,
                by_id,
                ios: (0..depth).map(|_| Io::new()).collect(),
                model,
                description,
            },
            vms,
            buffer_memory: device.buffer_memory,
            payload_per_vm: device.buffer_memory_per_vm,
            plumbing: u64::from(depth) * bounce.max(ZEROES as u64)
                + (CLIENTS_MAX * (RECEIVE + HEADS)) as u64,
        })
    }

    /// What clients are offered, with the index of each disk as the export's `id`.
    pub fn exports(&self) -> Vec<Export> {
        let states = self.device.disks.iter().enumerate();
        states
            .map(|(i, state)| export(i as u32, state, self.device.model.as_deref()))
            .collect()
    }

    /// The names of its VMs.
    pub fn vm_names(&self) -> Vec<String> {
        self.vms.iter().map(|vm| vm.name.clone()).collect()
    }

    /// Starts the loop on a thread of its own, which drops `guard` when it ends, even by a panic.
    /// The thread tells whether all was answered and every disk flushed.
    ///
    /// # Errors
    /// When the kernel refuses the ring or the thread.
    pub fn spawn(
        self,
        guard: impl Send + 'static,
    ) -> Result<(LoopHandle, JoinHandle<io::Result<bool>>), SetupError> {
        let device = self.name.clone();
        let failed = |what: &'static str| {
            let device = device.clone();
            move |source| SetupError::Io {
                device,
                what,
                source,
            }
        };
        let wake = Arc::new(Wake::new().map_err(failed("make an eventfd"))?);
        let (sender, commands) = channel();
        let handle = LoopHandle {
            commands: sender,
            wake: wake.clone(),
        };
        let (started, start) = channel::<io::Result<()>>();
        let thread = std::thread::Builder::new()
            .name(format!("loop {}", self.name))
            .spawn(move || {
                let _guard = guard;
                match self.into_loop(commands, wake) {
                    Ok(event_loop) => {
                        let _ = started.send(Ok(()));
                        run_to_its_end(event_loop)
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                        Ok(false)
                    }
                }
            })
            .map_err(failed("start a thread"))?;
        match start.recv() {
            Ok(Ok(())) => Ok((handle, thread)),
            Ok(Err(error)) => Err(failed("set up io_uring (Linux 6.1 or later, allowed)")(
                error,
            )),
            Err(_) => Err(failed("start its loop")(io::Error::other("it panicked"))),
        }
    }

    fn into_loop(
        mut self,
        commands: std::sync::mpsc::Receiver<crate::command::Command>,
        wake: Arc<Wake>,
    ) -> io::Result<Loop> {
        sys::precise_timers();
        let files = sys::raise_open_files().min(FILES_MAX);
        let mut ring = Ring::new(RING_ENTRIES, files)?;
        for state in &mut self.device.disks {
            if let Medium::File(open) = &state.disk.medium {
                state.file = Some(ring.add_file(open.file.try_clone()?.into())?);
            }
        }
        let wake_file = ring.add_file(wake.receiver()?)?;
        let mut plumbing = Pool::new(self.plumbing, 0)?;
        Ok(Loop {
            name: self.name,
            ring,
            engine: self.engine,
            device: self.device,
            vms: self.vms,
            clients: Default::default(),
            slots: Default::default(),
            pool: Pool::new(self.buffer_memory, 0)?,
            payload_per_vm: self.payload_per_vm,
            wake_buffer: plumbing.get_reserved(8),
            plumbing,
            zeroes: Region::new(ZEROES)?,
            commands,
            wake,
            wake_file,
            surveyor: None,
            now: clock(),
            ready: Default::default(),
            stalled: Default::default(),
            memory_waiters: 0,
            freed: false,
            touched: Vec::new(),
            linked: Vec::new(),
            completions: Vec::new(),
            scratch: Vec::new(),
            granted: Vec::new(),
            ticking: false,
            upkeep_due: false,
            phase: Phase::Running,
            flushed: false,
        })
    }
}

fn place(disks: &[(usize, Disk)], by_extent: bool, capacity: u64) -> Result<Vec<u64>, TooSmall> {
    let wanted: Vec<Wanted> = disks
        .iter()
        .map(|(_, disk)| Wanted {
            size: disk.size,
            at: match &disk.medium {
                Medium::File(open) if by_extent => sys::first_extent(&open.file),
                _ => None,
            },
        })
        .collect();
    layout::place(&wanted, capacity)
}

fn disk_state(disk: Disk, vm: usize, id: tidegate_core::request::DiskId) -> DiskState {
    let (unaligned, instant) = match &disk.medium {
        Medium::Memory(_) => (false, false),
        Medium::File(open) => (open.facts.align > disk.block_size, open.facts.in_memory),
    };
    DiskState {
        vm,
        id,
        file: None,
        locks: unaligned.then(RangeLocks::default),
        instant,
        in_flight: 0,
        survey: None,
        disk,
    }
}

fn export(id: u32, state: &DiskState, model: Option<&dyn tidegate_device::Model>) -> Export {
    let disk = &state.disk;
    let mut export = Export::new(id, disk.export.clone(), disk.size);
    let preferred = disk.physical_block().max(disk.block_size);
    export.block = BlockSize::new(disk.block_size, preferred, PAYLOAD_MAX)
        .expect("block sizes are powers of two up to 64 KiB");
    export.abilities = Abilities {
        read_only: disk.read_only,
        flush: true,
        fua: true,
        rotational: model.is_some_and(|m| m.spec().rotational),
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        df: true,
        // A flush is a flush of the whole file, whichever connection it comes on.
        multi_conn: true,
        cache: true,
        block_status: true,
    };
    export
}

/// Runs a loop. Cut short, or in a panic, it keeps its memory until the process ends: the kernel
/// may still be copying a write from a payload, and would find zeroes there, neither old nor new.
fn run_to_its_end(event_loop: Loop) -> io::Result<bool> {
    let mut event_loop = ManuallyDrop::new(event_loop);
    let ended = event_loop.run();
    if event_loop.engine.is_idle() {
        drop(ManuallyDrop::into_inner(event_loop));
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_disks_on_one_file_are_refused_by_name_unless_neither_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("real")).expect("writable");
        std::os::unix::fs::symlink("real", dir.path().join("link")).expect("writable");
        let open = |flags: &str| {
            let text = format!(
                "[[listen]]\nunix = \"s\"\n\
                 [[device]]\nname = \"disk0\"\nkind = \"file\"\n\
                 [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"real/d\"\n{flags}\n\
                 [[vm]]\nname = \"b\"\n[[vm.disk]]\npath = \"link/d\"\n{flags}\n"
            );
            let loaded = crate::config::parse(&text, "t", dir.path());
            let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
            Prepared::open(&config, 0, &mut Files::default())
        };
        let said = open("create = \"sparse\"\nsize = \"1 MiB\"")
            .expect_err("one file")
            .to_string();
        assert!(said.contains("VM \"b\", export \"b\""), "{said}");
        assert!(
            said.contains("real/d, which export \"a\" of VM \"a\" uses"),
            "{said}"
        );
        assert!(open("read_only = true").is_ok());
    }
}
