//! Configuration of the daemon, read and checked as a whole before anything is opened.
//!
//! [`load`] reads a TOML file into a [`Config`]. All errors in the file are reported together, each
//! with its position, what was found and what is allowed; a [`Config`] is only returned if there
//! are none. The reader of fields, and sections that a scenario of the simulator has as well, are
//! in [`tidegate_config`]; sections that only the daemon has are here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_config::device::Scheduling;
use tidegate_config::document;
use tidegate_config::library::{Beside, Library};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;

use crate::fault::Rule;

mod context;
mod default_policy;
mod device;
pub mod fault;
pub mod job;
mod keys;
mod objective_view;
mod overcommit;
mod parse;
mod promise;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
pub mod vm;

pub use default_policy::{ByDefault, DEFAULT_BEFORE, NewlyEnforced, by_default};
pub use objective_view::objective_view;
pub use parse::DEFAULT_CONTROL_SOCKET;
pub use promise::{by_the_clock, words};
pub use schema::schema;
pub use tidegate_config::{
    ConfigErrors, Diagnostic, Place, Schedule, Severity, Unenforced, honoured, objective, policy,
    schedule, unenforced,
};

/// Configuration with its warnings.
pub type Loaded = tidegate_config::Loaded<Config>;

/// Reads and checks a configuration file.
///
/// # Errors
/// Returns all errors in the file.
pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
    let text =
        document::read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let base = path.parent().unwrap_or(Path::new(""));
    parse(&text, &path.display().to_string(), base)
}

/// Reads and checks the text of a configuration file. `file` is its name in messages, `base` the
/// directory for relative paths.
///
/// # Errors
/// Returns all errors in the text.
pub fn parse(text: &str, file: &str, base: &Path) -> Result<Loaded, ConfigErrors> {
    parse_with(text, file, base, &Beside(base))
}

fn parse_with(
    text: &str,
    file: &str,
    base: &Path,
    library: &dyn Library,
) -> Result<Loaded, ConfigErrors> {
    document::read(text, file, |root| {
        parse::document(root, &context::Context { base, library })
    })
}

/// Entry point of fuzz targets: no input may panic, and a refusal must have a message.
pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let models = |name: &str| Err(format!("no model {name:?}"));
    if let Err(errors) = parse_with(text, "fuzz.toml", Path::new("/"), &models) {
        assert!(!errors.0.is_empty(), "refused without a reason");
        let _ = errors.to_string();
    }
    if let Ok(json) = serde_json::from_str(text) {
        let _ = objective::merge(&Objective::default(), &json);
        if let Ok(schedule) = schedule::merge(&Schedule::default(), &json) {
            let _ = (schedule.next(Timestamp::UNIX_EPOCH), schedule.overlaps());
        }
        let _ = policy::read(&json);
        let _ = vm::from_json(&json, &[], Path::new("/"));
        let _ = vm::size_from_json(&json);
        let _ = fault::from_json(&json);
        let _ = job::from_json(&json, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
    }
    let _ = tidegate_units::parse_rate(text);
}

/// Complete configuration of the daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory for relative paths, which is that of the file.
    pub base: PathBuf,
    /// Time-outs for opening disks and for an orderly stop.
    pub daemon: DaemonConfig,
    /// Socket of the control API.
    pub control: ControlConfig,
    /// Store of changes that survive a restart; `None` if none is configured.
    pub store: Option<StoreConfig>,
    /// Addresses on which NBD clients connect.
    pub listeners: Vec<ListenConfig>,
    /// Devices, each with its own event loop and engine.
    pub devices: Vec<DeviceConfig>,
    /// VMs and background processes, each on one device.
    pub vms: Vec<VmConfig>,
}

impl Config {
    /// Iterates over all disks, each with its device.
    pub fn disks(&self) -> impl Iterator<Item = (&DeviceConfig, &DiskConfig)> {
        let devices = &self.devices;
        (self.vms.iter()).flat_map(move |vm| {
            let device = &devices[vm.device];
            vm.disks.iter().map(move |disk| (device, disk))
        })
    }
}

/// Section `[daemon]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DaemonConfig {
    /// Time-out for opening a disk's file, 1 s to 1 h.
    pub open_within: Duration,
    /// Time-out for an orderly stop, after which the daemon ends at once; 1 s to 1 h.
    pub stop_within: Duration,
    /// Key of `open_within` as the configuration spells it, for messages.
    pub open_key: &'static str,
    /// Key of `stop_within` as the configuration spells it, for messages.
    pub stop_key: &'static str,
}

impl Default for DaemonConfig {
    fn default() -> DaemonConfig {
        DaemonConfig {
            open_within: Duration::from_secs(30),
            // Below the 90 s after which systemd kills a stopping service.
            stop_within: Duration::from_secs(60),
            open_key: keys::OPEN_TIMEOUT.name,
            stop_key: keys::STOP_TIMEOUT.name,
        }
    }
}

/// Section `[control]`.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Unix socket of the HTTP API.
    pub socket: PathBuf,
    /// File mode of the socket.
    pub mode: u32,
    /// Position in the file; `None` if the section is missing.
    pub place: Option<Place>,
}

/// Section `[store]`.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Path of the database file, which is created if it is missing.
    pub path: PathBuf,
    /// Interval at which learnt state is written to the store, 1 s to 1 h.
    pub learnt_every: Nanos,
    /// Position in the file; `None` if the section is missing.
    pub place: Option<Place>,
}

/// Section `[[listen]]`.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Address to listen on.
    pub address: ListenAddress,
    /// Exports offered here; the first one is also offered under the empty name. If empty, all
    /// exports are offered, and none under the empty name.
    pub exports: Vec<String>,
    /// Position in the file; `None` if not read from a text.
    pub place: Option<Place>,
}

/// Address of a listener.
#[derive(Clone, Debug)]
pub enum ListenAddress {
    /// Unix socket.
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// File mode of the socket, 0o600 by default.
        mode: u32,
    },
    /// TCP address and port.
    Tcp(SocketAddr),
}

/// Section `[[device]]`.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Unique name of the device.
    pub name: String,
    /// Medium of its disks.
    pub kind: DeviceKind,
    /// True if the configuration names a policy; else the device has the default one.
    pub names_policy: bool,
    /// Policy, queue depth and other keys of scheduling.
    pub scheduling: Scheduling,
    /// Position in the file; `None` if not read from a text.
    pub place: Option<Place>,
}

/// Medium of a device's disks.
#[derive(Clone, Debug)]
pub enum DeviceKind {
    /// Files or block devices on one physical device; each disk names its path.
    File,
    /// Memory, without delay.
    Memory,
    /// Memory, or a sparse file for a disk with a path, whose I/Os take as long as in a device
    /// model.
    Emulated {
        /// Device model, from the catalogue or a file.
        model: Box<catalogue::Entry>,
    },
}

/// Section `[[vm]]`.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Unique name of the VM.
    pub name: String,
    /// Index into [`Config::devices`].
    pub device: usize,
    /// True for a process of the host, such as a backup, which is served what the VMs leave.
    pub background: bool,
    /// Objective in force; in a configuration that was just read, the one outside of the schedule.
    pub objective: Objective,
    /// Objectives by time, including the one outside of the schedule; `None` without a schedule.
    pub schedule: Option<Arc<Schedule>>,
    /// Maximum number of NBD connections to the VM at a time, over all its disks; 1 to 4096.
    pub max_connections: u32,
    /// Disks of the VM, at least one.
    pub disks: Vec<DiskConfig>,
}

/// Section `[[vm.disk]]`.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// NBD export name, unique; the VM's name by default.
    pub export: String,
    /// Path of the file or block device; `None` for a disk in memory.
    pub path: Option<PathBuf>,
    /// Size in bytes; `None` for the size of the file.
    pub size: Option<u64>,
    /// Action if the file is missing or empty.
    pub create: Create,
    /// Interpretation of the file's content.
    pub format: DiskFormat,
    /// True if writes are refused.
    pub read_only: bool,
    /// Smallest unit in bytes that clients may address: 1 (any range, by read-modify-write), 512 or
    /// 4096.
    pub block_size: u32,
    /// Fault rules that hold from the start.
    pub faults: Vec<Rule>,
    /// Position in the file; `None` if not read from a text.
    pub place: Option<Place>,
}

/// Action if a disk's file is missing or empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Refuse to open the disk.
    No,
    /// Create a sparse file.
    Sparse,
    /// Create a file with all its blocks allocated.
    Preallocated,
}

/// Interpretation of the content of a disk's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFormat {
    /// Raw, unless the content looks like an image of another format, which is refused: the guest
    /// could have written such a header. A file that was served before carries a mark as raw.
    Probe,
    /// Raw, whatever the content looks like.
    Raw,
}
