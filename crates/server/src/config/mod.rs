//! Configuration of the daemon: read, checked, and complete before anything is opened.
//!
//! [`load`] reads a TOML file into a [`Config`]. It reports all mistakes in the file together, each
//! with its place, the value found and the values allowed, and returns a [`Config`] only if there
//! are none. Reading of fields, and the sections that scenarios of the simulator share, are in
//! [`tidegate_config`]; this module has the daemon's own sections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_config::device::Scheduling;
use tidegate_config::document;
use tidegate_config::library::{Beside, Library};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;

use crate::allowed_paths::{AllowedPaths, NotAllowed};
use crate::fault::Rule;

mod array;
mod cluster;
mod context;
mod control;
mod dashboard;
mod default_policy;
mod device;
mod exchange;
mod export_names;
pub mod fault;
mod keys;
mod listen_address;
mod metrics;
mod nbd;
mod overcommit;
mod parse;
mod promise;
mod recording;
mod schema;
mod socket_owner;
mod socket_template;
#[cfg(test)]
pub(crate) mod tests;
mod tls;
pub mod transfer;
pub mod vm;

pub(crate) use array::{PolicyMisfit, policy_for_array};
pub use cluster::{AccessError, AccessOption, ClusterConfig, EtcdAccess, etcd_url, key_prefix};
pub use control::{
    AccessConfig, Account, ControlConfig, ControlListenConfig, DEFAULT_CONTROL_SOCKET,
};
pub use dashboard::DashboardConfig;
pub use default_policy::{ByDefault, DEFAULT_BEFORE, NewlyEnforced, by_default};
pub use exchange::ExchangeConfig;
pub use metrics::MetricsConfig;
pub use nbd::{NbdConfig, NbdTlsConfig};
pub use promise::{by_the_clock, policy_words, words};
pub use recording::RecordingConfig;
pub use schema::schema;
pub use socket_owner::SocketOwner;
pub use socket_template::SocketTemplate;
pub use tidegate_config::device::limit_groups::LimitGroup;
pub use tidegate_config::objective_view::objective_view;
pub use tidegate_config::{
    ConfigErrors, Diagnostic, Place, Schedule, Severity, Unenforced, enforced_parts, objective,
    policy, schedule, unenforced,
};
pub use tls::{ClientName, TlsClientConfig, TlsConfig};

/// Configuration with the warnings about it.
pub type Loaded = tidegate_config::Loaded<Config>;

/// Reads and checks a configuration file.
///
/// # Errors
/// All mistakes in the file.
pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
    let text =
        document::read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let base = path.parent().unwrap_or(Path::new(""));
    let mut loaded = parse(&text, &path.display().to_string(), base)?;
    let tls = loaded.config.tls();
    let files = tls.flat_map(|(_, tls)| tls.files().map(Path::to_owned).collect::<Vec<_>>());
    let cluster = loaded.config.cluster.as_ref();
    let of_cluster = cluster
        .into_iter()
        .flat_map(|cluster| cluster.access.files());
    let files = files.chain(of_cluster.map(Path::to_owned));
    // Certificates may be shared with disks of the API, and have nothing secret.
    let keys = (loaded.config.disks())
        .filter_map(|(_, disk)| disk.nbd.as_ref()?.tls.as_ref()?.private_key());
    let keys: Vec<_> = keys.map(Path::to_owned).collect();
    let login = (loaded.config.exchange.iter()).flat_map(|exchange| exchange.nats.files());
    let own = files.chain(keys).chain(login).chain([path.to_owned()]);
    let own: Vec<PathBuf> = own.collect();
    loaded.config.file = Some(path.to_owned());
    let paths = &mut loaded.config.paths;
    paths.allowed = paths.allowed.clone().except(own);
    Ok(loaded)
}

/// Logs what a configuration was found to have.
pub fn log_diagnostic(found: &Diagnostic) {
    let Diagnostic { what, allowed, .. } = found;
    let at = Some(&*found.field).filter(|field| !field.is_empty());
    let file = found.place.as_ref().map(|place| &*place.file);
    let line = found.place.as_ref().map(|place| place.line);
    let help = allowed.as_deref();
    match found.severity {
        Severity::Error => tracing::error!(at, file, line, help, "{what}"),
        Severity::Warning => tracing::warn!(at, file, line, help, "{what}"),
        Severity::Note => tracing::info!(at, file, line, help, "{what}"),
    }
}

/// Reads and checks the text of a configuration file. `file` is its name in messages, `base` the
/// directory that relative paths are relative to.
///
/// # Errors
/// All mistakes in the text.
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

/// Entry point of the fuzz targets: no input may panic, and each refusal has a message.
pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // No files: the input alone decides.
    let models = |name: &str| Err(format!("no model {name:?}"));
    if let Err(errors) = parse_with(text, "fuzz.toml", Path::new("/"), &models) {
        assert!(!errors.0.is_empty(), "refused without a reason");
        let _ = errors.to_string();
    }
    // Bodies of the control API.
    if let Ok(json) = serde_json::from_str(text) {
        let _ = objective::merge(&Objective::default(), &json);
        if let Ok(schedule) = schedule::merge(&Schedule::default(), &json) {
            let _ = (schedule.next(Timestamp::UNIX_EPOCH), schedule.overlaps());
        }
        let _ = policy::read(&json);
        let _ = vm::from_json(&json, &[], &PathsConfig::of_directory(Path::new("/")));
        let _ = vm::size_from_json(&json);
        let _ = fault::from_json(&json);
        let _ = transfer::from_json(&json, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
    }
    let _ = tidegate_units::parse_rate(text);
}

/// Complete and checked configuration of `tidegate serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// File that the configuration was read from; `None` if it was made in another way.
    pub file: Option<PathBuf>,
    /// All sections but `[[vm]]`, as the file writes them: an object of its keys.
    pub sections: serde_json::Value,
    /// Paths of disks that are not named in the file.
    pub paths: PathsConfig,
    /// Deadlines for opening disks and for an orderly end, and the sandbox.
    pub daemon: DaemonConfig,
    /// Listeners of the control API.
    pub control: ControlConfig,
    /// Store for state that survives a restart; `None` without one.
    pub store: Option<StoreConfig>,
    /// History of VMs and devices.
    pub history: HistoryConfig,
    /// Directory of recordings and their bound; `None` if there is no place for them.
    pub recording: Option<RecordingConfig>,
    /// Cluster that the daemon joins; `None`: it joins none.
    pub cluster: Option<ClusterConfig>,
    /// Exchange with the hosts that share arrays; `None` without one.
    pub exchange: Option<ExchangeConfig>,
    /// Listeners that serve metrics and health alone.
    pub metrics: Vec<MetricsConfig>,
    /// Listeners that serve the page for browsers.
    pub dashboards: Vec<DashboardConfig>,
    /// Listeners for NBD clients and for front-ends of vhost-user.
    pub listeners: Vec<ListenConfig>,
    /// Devices, with one event loop and one engine each.
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

    /// Iterates over the TLS of all listeners, each with its place such as `listen[0].tls`.
    pub fn tls(&self) -> impl Iterator<Item = (String, &TlsConfig)> {
        let nbd = self.listeners.iter().map(|listen| &listen.tls).enumerate();
        let control = self.control.others.iter().map(|listen| &listen.tls);
        let metrics = self.metrics.iter().map(|metrics| &metrics.tls);
        let nbd = nbd.map(|(i, tls)| ("listen", i, tls));
        let control = control
            .enumerate()
            .map(|(i, tls)| ("control.listen", i, tls));
        let metrics = metrics.enumerate().map(|(i, tls)| ("metrics", i, tls));
        nbd.chain(control)
            .chain(metrics)
            .filter_map(|(section, i, tls)| Some((format!("{section}[{i}].tls"), tls.as_ref()?)))
    }
}

/// Section `[daemon]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DaemonConfig {
    /// Deadline for opening a disk's file, 1 s to 1 h.
    pub open_within: Duration,
    /// Deadline for an orderly end, after which the daemon ends at once; 1 s to 1 h.
    pub stop_within: Duration,
    /// True if threads that work on bytes of guests and clients are confined by Landlock and
    /// seccomp.
    pub sandbox: bool,
    /// True if a new daemon may take over.
    pub takeover: bool,
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
            sandbox: true,
            takeover: true,
            open_key: keys::OPEN_TIMEOUT.name,
            stop_key: keys::STOP_TIMEOUT.name,
        }
    }
}

/// Section `[paths]`: how the paths of disks that come by the API or from the store are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathsConfig {
    /// Directory of the file, which relative paths are relative to.
    pub base: PathBuf,
    /// Directories and devices that those disks may be on; the directory of the file by default.
    pub allowed: AllowedPaths,
    /// Listeners of this daemon, none of which may be the server of such a disk.
    pub own_listeners: Arc<[ListenAddress]>,
    /// `sandbox` of `[daemon]`, for the threads of such disks.
    pub sandbox: bool,
}

impl PathsConfig {
    /// Makes the rules of a file in the directory `base` that has no section `[paths]`: its disks
    /// may be in that directory, unless it is one of the whole system.
    pub fn of_directory(base: &Path) -> PathsConfig {
        // `base` is empty for a file named without a directory.
        let directory = Path::new(".").join(base);
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        let is_of_system = ["/", "/etc"]
            .iter()
            .any(|path| directory == Path::new(path));
        PathsConfig {
            base: base.to_owned(),
            allowed: AllowedPaths::new((!is_of_system).then_some(directory)),
            own_listeners: Arc::default(),
            sandbox: true,
        }
    }

    /// Returns the rules of a daemon with these listeners and this `sandbox`.
    fn of_daemon(self, (own_listeners, sandbox): (Arc<[ListenAddress]>, bool)) -> PathsConfig {
        PathsConfig {
            own_listeners,
            sandbox,
            ..self
        }
    }
}

/// Section `[store]`.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Path of the store, which is created if it does not exist.
    pub path: PathBuf,
    /// Interval at which learnt state of controllers is written, 1 s to 1 h.
    pub learnt_every: Nanos,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Section `[history]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryConfig {
    /// True if the history is kept.
    pub enabled: bool,
    /// Directory of its files; `None`: it is kept in memory alone.
    pub directory: Option<PathBuf>,
    /// Largest size of the files together, in bytes.
    pub max_size: u64,
}

impl HistoryConfig {
    /// Returns the history of a configuration that does not mention it; `store`: path of the store,
    /// beside which the files are.
    pub fn beside(store: Option<&Path>) -> HistoryConfig {
        HistoryConfig {
            enabled: true,
            directory: store.map(|store| store.with_extension("history")),
            max_size: keys::HISTORY_MAX_SIZE.default_number(),
        }
    }

    /// Returns a history that is not kept.
    pub fn off() -> HistoryConfig {
        HistoryConfig {
            enabled: false,
            ..HistoryConfig::beside(None)
        }
    }
}

/// Section `[[listen]]`.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Socket or address.
    pub address: ListenAddress,
    /// Owner and group of unix sockets.
    pub owner: SocketOwner,
    /// Names of the exports offered here, the first also under the empty name. If empty, all
    /// exports are offered and none under the empty name.
    pub exports: Vec<String>,
    /// TLS of a TCP address; `None` without it.
    pub tls: Option<TlsConfig>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

impl ListenConfig {
    /// Returns the address for people, with the mode and owner of a unix socket.
    pub fn description(&self) -> String {
        let address = self.address.description(&self.owner);
        tls::describe_tls(address, self.tls.as_ref())
    }

    /// Returns true if the export is offered here.
    pub fn offers(&self, export: &str) -> bool {
        self.exports.is_empty() || self.exports.iter().any(|name| name == export)
    }
}

/// Address of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Unix socket of vhost-user for each disk.
    VhostUser {
        /// Path with placeholders for the disk's names.
        path: SocketTemplate,
        /// File mode of the sockets, 0o600 by default.
        mode: u32,
    },
}

impl ListenAddress {
    /// Returns the address for people, with the mode and owner of a unix socket.
    fn description(&self, owner: &SocketOwner) -> String {
        let access = |mode: u32| format!("{mode:04o}{owner}");
        match self {
            ListenAddress::Unix { path, mode } => format!("{} ({})", path.display(), access(*mode)),
            ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::VhostUser { path, mode } => {
                format!("{path} ({}, vhost-user)", access(*mode))
            }
        }
    }
}

/// Section `[[device]]`.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name, unique over all devices.
    pub name: String,
    /// Medium of the disks.
    pub kind: DeviceKind,
    /// True if the section names a policy; otherwise the default one is in force.
    pub names_policy: bool,
    /// Array that the device is on, which other hosts share; `None`: it is this host's alone.
    pub array: Option<tidegate_exchange::Name>,
    /// Policy, queue depth and other scheduling parameters.
    pub scheduling: Scheduling,
    /// Limits that disks share.
    pub limit_groups: Vec<LimitGroup>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Medium of a device's disks.
#[derive(Clone, Debug)]
pub enum DeviceKind {
    /// Files or block devices on one physical device; each disk has a path.
    File,
    /// Memory, without delay.
    Memory,
    /// Memory, or a sparse file for a disk with a path, with the timing of a device model.
    Emulated {
        /// Model, from the catalogue or a file, ready to be built.
        model: Box<catalogue::Entry>,
    },
    /// Exports of NBD servers; each disk has a URI.
    Nbd,
}

/// Section `[[vm]]`.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Name, unique over all VMs.
    pub name: String,
    /// Index into [`Config::devices`].
    pub device: usize,
    /// True for a process of the host, such as a backup, which gets what the VMs leave.
    pub background: bool,
    /// Objective in force; after reading a file the base objective, outside of all schedule
    /// entries.
    pub objective: Objective,
    /// Complete objective with its schedule; `None` if nothing changes by the clock.
    pub schedule: Option<Arc<Schedule>>,
    /// Maximum number of NBD connections over all disks of the VM, 1 to 4096.
    pub max_connections: u32,
    /// Disks, at least one.
    pub disks: Vec<DiskConfig>,
}

/// Section `[[vm.disk]]`.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// NBD export name, unique over all VMs; the VM's name by default.
    pub export: String,
    /// File or block device; `None` on memory devices.
    pub path: Option<PathBuf>,
    /// Export of an NBD server; `None` on devices of other kinds.
    pub nbd: Option<NbdConfig>,
    /// Directories and devices that the path must lead into; `None` for a disk of the configuration
    /// file, which may be anywhere.
    pub within: Option<AllowedPaths>,
    /// Size in bytes; `None` for the size of the file or export.
    pub size: Option<u64>,
    /// Creation of a missing file.
    pub create: Create,
    /// Interpretation of the file's content.
    pub format: DiskFormat,
    /// Rejects writes.
    pub read_only: bool,
    /// Opens the file without its lock, which is taken when the queues of a guest start.
    pub incoming: bool,
    /// Smallest unit of access in bytes: 1 (by read-modify-write), 512 or 4096.
    pub block_size: u32,
    /// Limit of the disk, beside that of its VM.
    pub limit: Limit,
    /// Name of the limit that it shares with other disks of its device; `None` if there is none.
    pub limit_group: Option<String>,
    /// Fault rules.
    pub faults: Vec<Rule>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

impl DiskConfig {
    /// Checks a path against the directories and devices that the disk is confined to.
    ///
    /// # Errors
    /// If it leads out of them.
    pub fn check_path(&self, path: &Path) -> Result<(), NotAllowed> {
        (self.within.as_ref()).map_or(Ok(()), |within| within.check(path))
    }
}

/// Creation of a disk's missing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Not created: a missing file is an error.
    No,
    /// Sparse file.
    Sparse,
    /// File with all blocks allocated.
    Preallocated,
}

/// Interpretation of a disk's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFormat {
    /// Raw, and rejected if it looks like an image of another format: a guest must not be able to
    /// write itself such a header. A file known to be raw carries a mark that says so.
    Probe,
    /// Raw, whatever its content looks like.
    Raw,
}
