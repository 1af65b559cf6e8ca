//! The daemon's configuration, complete and checked: nothing is opened before all of it holds.
//!
//! [`load`] reads a TOML file into a [`Config`]. Everything wrong with the file is reported
//! together, each mistake with its place, what was found and what is allowed; a [`Config`] is
//! only made where nothing is. The reading goes field by field over a tree (`node`) instead of
//! through a derived deserializer, because that one stops at the first mistake; the control API
//! reads objectives and policies in JSON through the same code.
//!
//! ```text
//!   TOML --> node tree --+--> section/field readers --> Config + warnings
//!   JSON ----------------+       |
//!                                +--> Diagnostic (field, place, found, allowed)
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;
use tidegate_device::catalogue;

mod device;
mod diagnose;
mod enforced;
mod field;
mod node;
pub mod objective;
mod parse;
pub mod policy;
mod section;
#[cfg(test)]
mod tests;
mod vm;

pub use diagnose::{ConfigErrors, Diagnostic, Place, Severity};
pub use enforced::{Unenforced, honoured, unenforced};
pub use parse::DEFAULT_CONTROL_SOCKET;

/// A configuration file larger than this is somebody's disk image.
const FILE_MAX: u64 = 16 << 20;

/// Finds a device model by what the file calls it; relative paths are relative to the second.
type Models = dyn Fn(&str, &Path) -> Result<catalogue::Entry, String>;

/// A configuration, and what is to be said about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Complete and checked.
    pub config: Config,
    /// What it seems to say and does not do.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
    let text = read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let base = path.parent().unwrap_or(Path::new(""));
    parse(&text, &path.display().to_string(), base)
}

/// Reads and checks the text of a configuration file. `file` is its name in messages, `base`
/// what relative paths are relative to.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, file: &str, base: &Path) -> Result<Loaded, ConfigErrors> {
    parse_with(text, file, base, &find_model)
}

/// A built-in model, or the one that a file describes.
fn find_model(name: &str, base: &Path) -> Result<catalogue::Entry, String> {
    if !name.contains('/') && !name.ends_with(".toml") {
        return catalogue::load(name).map_err(|error| error.to_string());
    }
    let path = base.join(name);
    let text = read_text(&path)?;
    catalogue::parse(&text, &path.display().to_string()).map_err(|error| error.to_string())
}

fn read_text(path: &Path) -> Result<String, String> {
    let fail = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(|error| fail(&error))?.len();
    if length > FILE_MAX {
        return Err(fail(&format!(
            "{length} bytes are too many for a configuration"
        )));
    }
    let bytes = std::fs::read(path).map_err(|error| fail(&error))?;
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        let at = at + 1;
        return Err(fail(&format!("not a text file (byte {at} is NUL)")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        fail(&format!("not a text file (byte {at} is not UTF-8)"))
    })
}

fn parse_with(
    text: &str,
    file: &str,
    base: &Path,
    models: &Models,
) -> Result<Loaded, ConfigErrors> {
    let issues = diagnose::Issues::default();
    let node = node::Node::from_toml(text, &issues);
    let config = node.and_then(|node| {
        let root = field::Field::root(&node, section::Path::default(), &issues);
        parse::document(&root, &parse::Context { base, models })
    });
    let found = issues.located(file, text);
    match config {
        Some(config) if found.iter().all(|d| d.severity == Severity::Warning) => Ok(Loaded {
            config,
            warnings: found,
        }),
        _ => Err(ConfigErrors(found)),
    }
}

/// Entry of the fuzz targets: whatever the bytes, no panic, and a refusal that can be shown.
pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let models = |name: &str, _: &Path| Err(format!("no model {name:?}"));
    if let Err(errors) = parse_with(text, "fuzz.toml", Path::new("/"), &models) {
        assert!(!errors.0.is_empty(), "refused without a reason");
        let _ = errors.to_string();
    }
    if let Ok(json) = serde_json::from_str(text) {
        let _ = objective::merge(&Objective::default(), &json);
        let _ = policy::read(&json);
    }
    let _ = objective::parse_rate(text);
}

/// Everything `tidegate serve` needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The control API's socket.
    pub control: ControlConfig,
    /// Where NBD clients connect.
    pub listeners: Vec<ListenConfig>,
    /// Backing devices: one event loop and one engine each.
    pub devices: Vec<DeviceConfig>,
    /// VMs, each on one device.
    pub vms: Vec<VmConfig>,
}

/// `[control]`
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Unix socket of the HTTP API.
    pub socket: PathBuf,
    /// Its file mode.
    pub mode: u32,
}

/// `[[listen]]`
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Where.
    pub address: ListenAddress,
    /// Exports offered here, the first one also under the empty name. Empty: all of them, no default.
    pub exports: Vec<String>,
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
    /// Which requests go first.
    pub policy: PolicySpec,
    /// I/Os in flight at the device at most, 1 to 1024.
    pub depth: u32,
    /// Largest device I/O in bytes; larger guest requests are split.
    pub max_io: u32,
    /// Adjacent requests are merged up to this many bytes; 0: never.
    pub merge_limit: u32,
    /// Requests inside the engine at most, over all VMs.
    pub max_requests: u32,
    /// Requests one VM may have pending.
    pub max_pending_per_vm: u32,
    /// Memory for request payloads in bytes, over all VMs.
    pub buffer_memory: u64,
    /// Memory for request payloads of one VM in bytes.
    pub buffer_memory_per_vm: u64,
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
    /// What it was promised.
    pub objective: Objective,
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
