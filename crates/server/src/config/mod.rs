//! The daemon's configuration, complete and checked: nothing is opened before all of it holds.
//!
//! [`load`] reads a TOML file into a [`Config`]. Everything wrong with the file is reported
//! together, each mistake with its place, what was found and what is allowed; a [`Config`] is
//! only made where nothing is. How fields are read, and what a scenario of the simulator says
//! in the same words, is [`tidegate_config`]'s; the daemon's own sections are here.

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

/// A configuration, and what is to be said about it.
pub type Loaded = tidegate_config::Loaded<Config>;

/// Reads and checks a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
    let text =
        document::read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let base = path.parent().unwrap_or(Path::new(""));
    parse(&text, &path.display().to_string(), base)
}

/// Reads and checks the text of a configuration file. `file` is its name in messages, `base`
/// what relative paths are relative to.
///
/// # Errors
/// Everything that is wrong with it.
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

/// Entry of the fuzz targets: whatever the bytes, no panic, and a refusal that can be shown.
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

/// Everything `tidegate serve` needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// What relative paths are relative to: the directory of the file.
    pub base: PathBuf,
    /// Deadlines for opening disks and for an orderly end.
    pub daemon: DaemonConfig,
    /// The control API's socket.
    pub control: ControlConfig,
    /// Where changes are kept that shall survive a restart. `None`: nowhere.
    pub store: Option<StoreConfig>,
    /// Where NBD clients connect.
    pub listeners: Vec<ListenConfig>,
    /// Backing devices: one event loop and one engine each.
    pub devices: Vec<DeviceConfig>,
    /// VMs, each on one device.
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
    /// Deadline for opening a disk's file, 1 s to 1 h.
    pub open_within: Duration,
    /// Deadline for an orderly end, after which the daemon ends at once; 1 s to 1 h.
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

/// `[control]`
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Unix socket of the HTTP API.
    pub socket: PathBuf,
    /// Its file mode.
    pub mode: u32,
    /// Where the file says it; `None` where no file does.
    pub place: Option<Place>,
}

/// `[store]`
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its file, made where there is none.
    pub path: PathBuf,
    /// How often what controllers have learnt is kept, 1 s to 1 h.
    pub learnt_every: Nanos,
    /// Where the file says it; `None` where no file does.
    pub place: Option<Place>,
}

/// `[[listen]]`
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Where.
    pub address: ListenAddress,
    /// Exports offered here, the first one also under the empty name. Empty: all of them, no
    /// default.
    pub exports: Vec<String>,
    /// Where the file says it; `None` where no file does.
    pub place: Option<Place>,
}

/// Where a listener listens.
#[derive(Clone, Debug)]
pub enum ListenAddress {
    /// A unix socket and its file mode.
    Unix {
        /// The socket's path.
        path: PathBuf,
        /// Its file mode, 0o600 unless said.
        mode: u32,
    },
    /// TCP.
    Tcp(SocketAddr),
}

/// `[[device]]`
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name, unique.
    pub name: String,
    /// What its disks are made of.
    pub kind: DeviceKind,
    /// Whether its configuration names a policy; where not, it has the default one.
    pub names_policy: bool,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// Where the file says it; `None` where no file does.
    pub place: Option<Place>,
}

/// What the disks of a device are made of.
#[derive(Clone, Debug)]
pub enum DeviceKind {
    /// Files or block devices that share one physical device; each disk names its path.
    File,
    /// Bytes in memory, no delay.
    Memory,
    /// Bytes in memory or a sparse file (a disk with a path), completed when a model says so.
    Emulated {
        /// The model, from the catalogue or a file, ready to be built.
        model: Box<catalogue::Entry>,
    },
}

/// `[[vm]]`
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Its name, unique.
    pub name: String,
    /// Index into [`Config::devices`].
    pub device: usize,
    /// A process of the host, such as a backup, not a VM: it has what the VMs leave.
    pub background: bool,
    /// What it is promised now; in a configuration that was read, outside of its schedule.
    pub objective: Objective,
    /// What of that changes by the clock, and what does not; `None`: nothing does.
    pub schedule: Option<Arc<Schedule>>,
    /// Most NBD connections to the VM at a time, over all its disks; 1 to 4096.
    pub max_connections: u32,
    /// Its disks, at least one.
    pub disks: Vec<DiskConfig>,
}

/// `[[vm.disk]]`
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// NBD export name, unique; the VM's name unless said.
    pub export: String,
    /// File or block device. `None` on memory devices.
    pub path: Option<PathBuf>,
    /// Size in bytes. `None`: as large as the file is.
    pub size: Option<u64>,
    /// What to do when the file is not there.
    pub create: Create,
    /// Whether a file that looks like another format's image is taken as it is.
    pub format: DiskFormat,
    /// Refuse writes.
    pub read_only: bool,
    /// Smallest unit clients may address: 1 (anything, by read-modify-write), 512 or 4096.
    pub block_size: u32,
    /// What goes wrong with it on purpose.
    pub faults: Vec<Rule>,
    /// Where the file says it; `None` where no file does.
    pub place: Option<Place>,
}

/// What to do when a disk's file is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// An error.
    No,
    /// A sparse file.
    Sparse,
    /// A file with all its blocks allocated.
    Preallocated,
}

/// What the bytes of a disk's file are taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFormat {
    /// Raw, unless they look like an image of another format, which is refused: a guest must not
    /// be able to write itself such a header. A file known to be raw carries a mark that says so.
    Probe,
    /// Raw, whatever they look like.
    Raw,
}
