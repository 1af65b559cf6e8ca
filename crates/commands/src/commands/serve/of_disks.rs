//! Configuration of `tidegate serve --file`: as text, which the configuration's reader reads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_server::backing::inspect;
use tidegate_server::config::Config;
use tidegate_server::error_hints::missing_directory;
use tidegate_units::human::exact_bytes;

use crate::args::{Content, ListenArg, ServeArgs};
use crate::commands::own_disk;
use crate::commands::runtime_directory::RuntimeDirectory;
use crate::configuration_text::{
    DiskText, TakenNames, VmText, comment, frame, path as text_of, string,
};

/// Option that names a disk.
const OPTION: &str = "--file";
/// Advice for a disk whose file does not exist.
const MISSING: &str = "name a file or block device that exists; --size \"10 GiB\" creates the file";

/// Name of the only device.
const DEVICE: &str = "disk0";
/// Name of the configuration in messages.
pub(super) const NAME: &str = "--file";

/// Configuration as text, with the sockets in it that are in the runtime directory.
#[derive(Debug)]
pub(super) struct OfDisks {
    /// Configuration as `--print-config` prints it.
    pub(super) text: String,
    /// Directory of the sockets, if it is needed.
    pub(super) directory: Option<PathBuf>,
}

/// Returns the configuration that the options stand for.
///
/// # Errors
/// If a path has no absolute form, or the objective contradicts itself.
pub(super) fn configuration(args: &ServeArgs) -> Result<OfDisks> {
    let change = args.parts.change();
    // Before the text is made, so that errors name parts of the objective and no lines of it.
    objective::merge(&Objective::default(), &change)?;
    let objective = match change {
        Value::Object(parts) => parts,
        _ => Map::new(),
    };
    let mut names = TakenNames::default();
    let vms: Result<Vec<VmText>> = (args.disks.iter())
        .map(|disk| vm(disk, args, objective.clone(), &mut names))
        .collect();
    let vms = vms?;
    let directory = RuntimeDirectory::path();
    let first = &vms[0].name;
    let control = match &args.control_socket {
        Some(path) => absolute(path)?,
        None => directory.join(format!("{first}.control.sock")),
    };
    let listen = match &args.listen {
        Some(ListenArg::Tcp(address)) => format!("tcp = {}", string(&address.to_string())),
        Some(ListenArg::Unix(path)) => format!("unix = {}", text_of(&absolute(path)?)),
        None => format!(
            "unix = {}",
            text_of(&directory.join(format!("{first}.sock")))
        ),
    };
    let uses_directory = args.listen.is_none() || args.control_socket.is_none();
    let vms: Vec<_> = vms.iter().map(VmText::to_string).collect();
    let intro = "Configuration of `tidegate serve --file`. To grow from it: save it, change it, \
                 check it with `tidegate check FILE` and serve it with `tidegate serve FILE`. \
                 docs/configuration.md has all keys.";
    let text = comment(intro) + "\n" + &frame(&control, &listen, DEVICE) + &vms.join("\n");
    Ok(OfDisks {
        text,
        directory: uses_directory.then_some(directory),
    })
}

/// Returns the VM of one disk.
fn vm(
    disk: &Path,
    args: &ServeArgs,
    objective: Map<String, Value>,
    names: &mut TakenNames,
) -> Result<VmText> {
    let name = disk
        .file_stem()
        .unwrap_or(disk.as_os_str())
        .to_string_lossy();
    let mut keys = vec![("path", Value::from(absolute(disk)?.to_string_lossy()))];
    if let Some(size) = args.size {
        keys.push(("size", exact_bytes(size).into()));
        keys.push(("create", "sparse".into()));
    }
    if args.format == Content::Raw {
        keys.push(("format", "raw".into()));
    }
    if args.read_only {
        keys.push(("read_only", true.into()));
    }
    Ok(VmText {
        name: names.take(&name),
        objective,
        disks: vec![DiskText {
            keys,
            ..DiskText::default()
        }],
        ..VmText::default()
    })
}

/// Returns an error for the first disk that could not be served, in words of the command line.
pub(super) fn check_disks(config: &Config) -> Result<()> {
    for (_, disk) in config.disks() {
        if let Err(error) = inspect(disk) {
            let no_directory = disk.path.as_deref().and_then(missing_directory);
            let missing = no_directory.as_deref().unwrap_or(MISSING);
            return Err(own_disk::refused(&error, OPTION, missing).into());
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let failed = || format!("{}: has no absolute path", path.display());
    std::path::absolute(path).with_context(failed)
}
