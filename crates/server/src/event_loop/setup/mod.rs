//! Preparation of a device by its configuration: opens its disks, lays them out and registers them
//! with a new engine. The module `start` then moves it to a thread of its own.

mod files;
mod start;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::engine::{DeviceSpec, Engine, EngineConfig, EngineError, SilenceTimeouts};
use tidegate_core::queue_depth::DepthTuning;
use tidegate_core::time::Nanos;
use tidegate_device::Spec;

use super::PAYLOAD_MAX;
use super::device::Device;
use super::frontends::CONNECTIONS_MAX;
use super::vms::{VmArgs, Vms};
use crate::backing::file_io::ZEROES;
use crate::backing::layout::{Layout, TooSmall, Wanted};
use crate::backing::rotational::{POSITIONING, SYSFS, is_rotational};
use crate::backing::{ActivationState, Disk, OpenError};
use crate::blocking_call;
use crate::buffer::Pool;
use crate::command::NewDisk;
use crate::config::{
    Config, Create, DeviceConfig, DeviceKind, DiskConfig, ListenAddress, Place, VmConfig,
};
use crate::connections::{DeviceConnections, VmConnections};
use crate::exchange::ExchangeLink;
use crate::frontend::{PLUMBING, Volume};
use crate::ring;

use files::User;
pub use files::{DiskFile, Files};

/// Minimum number of VMs for which a device has room. With more than half as many in the
/// configuration, it has room for twice those.
const VM_ROOM_MIN: usize = 4096;
/// Time between two attempts to open a disk whose server is away.
const SERVER_INTERVAL: Duration = Duration::from_millis(250);

/// Reasons why a device could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A disk could not be opened.
    #[error("VM {vm:?}, export {export:?}: {source}")]
    Disk {
        /// Name of the VM.
        vm: String,
        /// Name of the export.
        export: String,
        /// Position in the configuration; `None` if the disk was not read from a text.
        place: Option<Box<Place>>,
        /// Reason.
        source: OpenError,
    },
    /// Two disks are on one file, through two spellings or a link.
    #[error(
        "VM {vm:?}, export {export:?}: {} is the same file as {}, which export {:?} of VM {:?} \
         uses; a disk needs a file of its own",
        path.display(), first.path.display(), first.export, first.vm
    )]
    SameFile {
        /// Name of the VM.
        vm: String,
        /// Name of the export.
        export: String,
        /// Path of its file.
        path: PathBuf,
        /// Position in the configuration; `None` if the disk was not read from a text.
        place: Option<Box<Place>>,
        /// Disk that has the file open already.
        first: Box<User>,
    },
    /// The disks do not fit the device.
    #[error("device {device:?}: {source}")]
    Layout {
        /// Name of the device.
        device: String,
        /// Position of the device in the configuration; `None` if it was not read from a text.
        place: Option<Box<Place>>,
        /// Sizes of device and disks.
        source: TooSmall,
    },
    /// The engine refused the configuration.
    #[error("device {device:?}: {source}")]
    Engine {
        /// Name of the device.
        device: String,
        /// Position of the device in the configuration; `None` if it was not read from a text.
        place: Option<Box<Place>>,
        /// Reason.
        source: EngineError,
    },
    /// A system call failed.
    #[error("device {device:?}: cannot {what}: {source}")]
    Io {
        /// Name of the device.
        device: String,
        /// Verb phrase for the step that failed, to follow "cannot".
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl SetupError {
    /// Returns the position in the configuration that the error is about; `None` for failed system
    /// calls and for configurations that were not read from a text.
    pub fn place(&self) -> Option<&Place> {
        match self {
            SetupError::Disk { place, .. }
            | SetupError::SameFile { place, .. }
            | SetupError::Layout { place, .. }
            | SetupError::Engine { place, .. } => place.as_deref(),
            SetupError::Io { .. } => None,
        }
    }
}

/// Device whose disks are open and whose loop has not started.
pub struct Prepared {
    name: String,
    engine: Engine,
    device: Device,
    vms: Vms,
    connections: Arc<DeviceConnections>,
    buffer_memory: u64,
    plumbing: u64,
    /// The device is tuned for latency, so that the loop looks for completions before it sleeps.
    polls_busily: bool,
    /// The loop's thread is confined once it has its ring.
    is_confined: bool,
    /// Exchange with the hosts that share the device; `None`: no other does.
    exchange: Option<ExchangeLink>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// Opens the disks of device `index` of the configuration and prepares its engine.
    ///
    /// # Errors
    /// Fails if a disk cannot be opened or does not fit the device. The error names the VM, the
    /// export and the path.
    pub fn open(config: &Config, index: usize, files: &Files) -> Result<Prepared, SetupError> {
        let device = &config.devices[index];
        let vm_configs: Vec<_> = (config.vms.iter().filter(|vm| vm.device == index)).collect();
        let disks = open_disks(config, device, &vm_configs, files)?;
        let model = match &device.kind {
            DeviceKind::Emulated { model } => Some(model.build()),
            _ => None,
        };
        let spec = model.as_ref().map(|model| model.spec());
        // Without a model the device has practically unlimited addresses, whose sums still fit 64
        // bits.
        let capacity = spec.map_or(1 << 62, |s| s.capacity);
        let wanted: Vec<Wanted> = (disks.iter())
            .map(|(_, new)| Wanted {
                size: new.disk.size,
                at: new.at,
            })
            .collect();
        let laid_out = Layout::new(&wanted, capacity);
        let (layout, bases) = laid_out.map_err(|source| SetupError::Layout {
            device: device.name.clone(),
            place: device.place.clone().map(Box::new),
            source,
        })?;
        let refused = |source: EngineError| SetupError::Engine {
            device: device.name.clone(),
            place: device.place.clone().map(Box::new),
            source,
        };
        let engine_config = engine_config(device, &disks, spec, vm_configs.len());
        let now = ring::clock();
        let mut engine = new_engine(device, engine_config, spec, now).map_err(refused)?;
        let connections = DeviceConnections::new(CONNECTIONS_MAX);
        let mut vms = add_vms(&mut engine, &vm_configs, &connections, now).map_err(refused)?;
        engine.device_mut().check_feasibility(now);
        let io_slots = engine_config.device.io_slots();
        let DeviceSpec {
            max_io,
            physical_block: block,
            ..
        } = engine_config.device;
        let description = describe(&device.kind, spec);
        let own = Device::new(layout, io_slots, model, description);
        let mut own = own.map_err(|source| SetupError::Io {
            device: device.name.clone(),
            what: "reserve memory",
            source,
        })?;
        own.add_limit_groups(&mut engine, now, &device.limit_groups)
            .map_err(refused)?;
        // `zip` would leave out the disks without an address.
        assert_eq!(bases.len(), disks.len(), "as many addresses as disks");
        for ((vm, new), base) in disks.into_iter().zip(bases) {
            let added = own.add_disk(&mut engine, &mut vms, vm, new.disk, base);
            added.map_err(refused)?;
        }
        Ok(Prepared {
            name: device.name.clone(),
            engine,
            device: own,
            vms,
            connections,
            buffer_memory: device.scheduling.payload().max_in_use(),
            plumbing: u64::from(io_slots) * bounce_bytes(max_io, block).max(ZEROES as u64)
                + (CONNECTIONS_MAX * PLUMBING) as u64,
            polls_busily: device.scheduling.tuning == DepthTuning::Latency,
            is_confined: config.daemon.sandbox,
            exchange: None,
        })
    }

    /// Adds the exchange with the hosts that share the device. To be called before the loop starts,
    /// so that no VM gets a share that belongs to another host.
    pub(crate) fn with_exchange(mut self, link: Option<ExchangeLink>) -> Prepared {
        if let Some(link) = &link {
            link.exchange(&mut self.engine, ring::clock());
        }
        self.exchange = link;
        self
    }

    /// Returns the volumes of the device, each with the connection counter of the VM that owns it.
    pub fn volumes(&self) -> Vec<(Volume, Arc<VmConnections>)> {
        let disks = self.device.disks.iter();
        let offered = disks.map(|(at, disk)| {
            let connections = self.vms[disk.vm].connections.clone();
            (self.device.volume(at), connections)
        });
        offered.collect()
    }
}

/// Size in bytes of the bounce buffer of an unaligned I/O, which may need up to a physical block
/// more at each end.
fn bounce_bytes(max_io: u32, block: u32) -> u64 {
    let bytes = (u64::from(max_io) + 2 * u64::from(block)).next_power_of_two();
    assert!(
        bytes <= Pool::BUFFER_MAX as u64,
        "an unaligned I/O of {max_io} bytes in blocks of {block} fits no bounce buffer"
    );
    bytes
}

/// Opens the disks of a device's VMs as the daemon starts, each with the index of its VM among
/// `vm_configs`. Opening a file fails after `daemon.open_timeout` of the configuration.
fn open_disks(
    config: &Config,
    device: &DeviceConfig,
    vm_configs: &[&VmConfig],
    files: &Files,
) -> Result<Vec<(usize, NewDisk)>, SetupError> {
    let (within, key) = (config.daemon.open_within, config.daemon.open_key);
    let shared = Arc::new(device.clone());
    let mut disks = Vec::new();
    for (index, vm) in vm_configs.iter().enumerate() {
        for disk in &vm.disks {
            if disk.nbd.is_some() {
                let new = open_on_server(&shared, &vm.name, disk, files, (within, key))?;
                disks.push((index, new));
                continue;
            }
            // A disk in memory cannot block, so it needs no thread.
            let Some(path) = &disk.path else {
                disks.push((index, open_disk(device, &vm.name, disk, files)?));
                continue;
            };
            // Others cannot have been handed over, and a lock that is held is an error.
            let migrates = !disk.read_only && is_offered_by_vhost_user(config, &disk.export);
            let (device, name, asked, used) =
                (shared.clone(), vm.name.clone(), disk.clone(), files.clone());
            let opened = blocking_call::call(within, move || {
                let opened = open_disk(&device, &name, &asked, &used);
                if migrates && is_in_use(&opened) {
                    open_locked_disk(&device, &name, &asked, &used)
                } else {
                    opened
                }
            });
            let opened = opened.map_err(|source| {
                let path = path.clone();
                cannot_open(&vm.name, disk, OpenError::Late { path, source, key })
            })??;
            // Only now: a disk that failed to open must not make its file count as in use.
            files.add(&vm.name, &opened.disk, path);
            disks.push((index, opened));
        }
    }
    Ok(disks)
}

/// Opens a disk on a server, for which it waits at most `within` if it is away: after a start of
/// the host it may come later than the daemon.
fn open_on_server(
    device: &Arc<DeviceConfig>,
    vm: &str,
    disk: &DiskConfig,
    files: &Files,
    (within, key): (Duration, &'static str),
) -> Result<NewDisk, SetupError> {
    let until = Instant::now() + within;
    let mut last = None;
    loop {
        let (device, name, asked, used) =
            (device.clone(), vm.to_owned(), disk.clone(), files.clone());
        // Finding a host's address may take longer than there is.
        let left = until.saturating_duration_since(Instant::now());
        let opened = blocking_call::call(left, move || open_disk(&device, &name, &asked, &used));
        let source = match opened {
            Ok(Err(SetupError::Disk { source, .. })) if source.awaits_server() => source,
            Ok(opened) => return opened,
            // The reason why the attempts before it failed says more.
            Err(source) => {
                let late = || {
                    let path = disk.nbd.as_ref().map(|nbd| nbd.uri.to_string());
                    let path = path.unwrap_or_default().into();
                    OpenError::Late { path, source, key }
                };
                return Err(cannot_open(vm, disk, last.unwrap_or_else(late)));
            }
        };
        // An attempt takes some time as well.
        if Instant::now() + 2 * SERVER_INTERVAL > until {
            return Err(cannot_open(vm, disk, source));
        }
        if last.is_none() {
            let export = &disk.export;
            let within_s = within.as_secs();
            tracing::warn!(%vm, %export, within_s, "waits for the disk's server: {source}");
        }
        last = Some(source);
        std::thread::sleep(SERVER_INTERVAL);
    }
}

/// Opens a disk of a VM. May block for as long as the file system does not answer, so call it
/// through `blocking_call`. The caller adds a disk that it keeps to `files`.
///
/// # Errors
/// Fails if another disk uses the file, or the file cannot be opened.
pub fn open_disk(
    device: &DeviceConfig,
    vm: &str,
    disk: &DiskConfig,
    files: &Files,
) -> Result<NewDisk, SetupError> {
    if let Some(path) = &disk.path {
        files.refuse_shared(vm, disk, path)?;
    }
    let opened = open_known(device, disk, files).map_err(|source| cannot_open(vm, disk, source))?;
    let at = preferred_address(&device.kind, &opened);
    Ok(NewDisk { disk: opened, at })
}

fn is_offered_by_vhost_user(config: &Config, export: &str) -> bool {
    config.listeners.iter().any(|listen| {
        matches!(listen.address, ListenAddress::VhostUser { .. }) && listen.offers(export)
    })
}

/// Returns true if another process has the file of a disk.
fn is_in_use(opened: &Result<NewDisk, SetupError>) -> bool {
    matches!(
        opened,
        Err(SetupError::Disk {
            source: OpenError::InUse { .. },
            ..
        })
    )
}

/// Opens a disk whose file another process has locked, so that it is described and not served. Its
/// guest may have migrated to the other process, and must not keep the daemon from serving others.
fn open_locked_disk(
    device: &DeviceConfig,
    vm: &str,
    disk: &DiskConfig,
    files: &Files,
) -> Result<NewDisk, SetupError> {
    let described = DiskConfig {
        incoming: true,
        create: Create::No,
        ..disk.clone()
    };
    let opened = open_disk(device, vm, &described, files)?;
    let state = ActivationState::LockedElsewhere;
    let activation = opened.disk.medium.activation();
    let activation = activation.expect("a writable disk with a file has a lock");
    activation.set_state(state);
    let why = state.refusal().unwrap_or_default();
    tracing::error!(%vm, export = %disk.export, path = ?disk.path, "not served: {why}");
    Ok(opened)
}

/// Opens a disk. The file of a disk that was served before is never created anew, whatever `create`
/// says: if it is missing or empty, its file system is probably not mounted.
fn open_known(device: &DeviceConfig, disk: &DiskConfig, files: &Files) -> Result<Disk, OpenError> {
    let writable = disk.path.as_ref().filter(|_| !disk.read_only);
    let inherited = writable.and_then(|path| files.take_inherited(path));
    let known = disk.path.as_ref().filter(|path| files.knows(path));
    let Some(path) = known.filter(|_| disk.create != Create::No) else {
        return Disk::open_or_inherit(device, disk, inherited);
    };
    let mut there = disk.clone();
    there.create = Create::No;
    let lost = |found| OpenError::Lost {
        path: path.clone(),
        export: disk.export.clone(),
        found,
    };
    Disk::open_or_inherit(device, &there, inherited).map_err(|error| match error {
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            lost("is not there")
        }
        OpenError::Size { found: 0, .. } => lost("is empty"),
        other => other,
    })
}

fn cannot_open(vm: &str, disk: &DiskConfig, source: OpenError) -> SetupError {
    SetupError::Disk {
        vm: vm.to_owned(),
        export: disk.export.clone(),
        place: disk.place.clone().map(Box::new),
        source,
    }
}

/// Returns the device address at which a disk should be laid out: the address of its first byte
/// where the backing knows it.
fn preferred_address(kind: &DeviceKind, disk: &Disk) -> Option<u64> {
    match kind {
        DeviceKind::File => disk.medium.first_address(),
        DeviceKind::Memory | DeviceKind::Emulated { .. } | DeviceKind::Nbd => None,
    }
}

/// Returns the engine's configuration: the device's settings within the bounds of the model, the
/// disks' blocks and the pool's buffers. `vms` is the number of configured VMs.
fn engine_config(
    device: &DeviceConfig,
    disks: &[(usize, NewDisk)],
    model: Option<&Spec>,
    vms: usize,
) -> EngineConfig {
    let block = (disks.iter().map(|(_, new)| new.disk.physical_block()).max()).unwrap_or(4096);
    let block = block.max(model.map_or(0, |s| s.physical_block));
    assert!(
        block.is_power_of_two() && block <= PAYLOAD_MAX / 4,
        "a physical block of {block} bytes"
    );
    // An unaligned I/O needs a bounce buffer with up to a block more at each end.
    let scheduling = &device.scheduling;
    let longest = (scheduling.max_io)
        .min(model.map_or(u32::MAX, |s| s.max_io))
        .min(PAYLOAD_MAX - 2 * block);
    let max_io = (longest / block * block).max(block);
    let device = DeviceSpec {
        depth: (scheduling.depth).min(model.map_or(u32::MAX, |s| s.queue_depth)),
        physical_block: block,
        max_io,
        zeroes_are_writes: model.is_some(),
        positioning: match model {
            Some(model) => model.positioning,
            None => positioning(disks),
        },
        bytes_per_s: model.map_or(0, |s| s.bytes_per_s),
    };
    scheduling.engine_config(device, (2 * vms).max(VM_ROOM_MIN) as u32)
}

/// Returns the time to position a device with these disks, as a first estimate until costs are
/// learnt: that of a hard disk if the kernel calls at least one disk rotational, else 0.
fn positioning(disks: &[(usize, NewDisk)]) -> Nanos {
    let devices = disks.iter().filter_map(|(_, new)| new.disk.block_device());
    // Each once: many disks are on one device.
    let distinct: BTreeSet<String> = devices.collect();
    let rotates = |number: &String| is_rotational(Path::new(SYSFS), number) == Some(true);
    if distinct.iter().any(rotates) {
        POSITIONING
    } else {
        Nanos::ZERO
    }
}

/// Creates the engine of a device, without VMs, whose time begins at `now`.
fn new_engine(
    device: &DeviceConfig,
    config: EngineConfig,
    model: Option<&Spec>,
    now: Nanos,
) -> Result<Engine, EngineError> {
    let mut engine = device.scheduling.engine(config, now)?;
    (engine.admission_mut()).bound_payload(&device.scheduling.payload());
    engine
        .transfers_mut()
        .set_best_bandwidth(model.map_or(0, |spec| spec.bytes_per_s_max));
    if device.scheduling.is_automatic() {
        tracing::info!(
            device = device.name,
            "queue depth and parts of I/Os are chosen automatically; \
             adaptive_depth = false and max_io_shared = \"off\" keep the configured ones"
        );
    }
    engine
        .device_mut()
        .enable_hung_disk_handling(now, SilenceTimeouts::default());
    Ok(engine)
}

/// Registers the VMs with the engine, without their disks.
fn add_vms(
    engine: &mut Engine,
    vm_configs: &[&VmConfig],
    connections: &Arc<DeviceConnections>,
    now: Nanos,
) -> Result<Vms, EngineError> {
    let mut vms = Vms::default();
    for vm in vm_configs {
        let args = VmArgs {
            name: &vm.name,
            background: vm.background,
            objective: &vm.objective,
            connections: connections.add_vm(vm.max_connections),
        };
        vms.add(engine, now, args)?;
    }
    Ok(vms)
}

fn describe(kind: &DeviceKind, model: Option<&Spec>) -> String {
    match kind {
        DeviceKind::File => "files".to_owned(),
        DeviceKind::Memory => "memory".to_owned(),
        DeviceKind::Nbd => "NBD servers".to_owned(),
        DeviceKind::Emulated { .. } => format!("emulated {}", model.map_or("", |s| &s.name)),
    }
}
