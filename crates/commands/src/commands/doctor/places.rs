//! Directories of sockets, store, history and recordings.

use std::path::Path;

use rustix::fs::{Access, access};
use tidegate_server::config::{Config, ListenAddress};
use tidegate_units::human::bytes;

use super::disks::free_bytes;
use super::finding::{Finding, Level};

/// Free bytes that a store should find: it grows with VMs, by a few KiB each.
const STORE: u64 = 64 << 20;

/// Checks all directories that the daemon writes to.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut all = Vec::new();
    for (name, path) in sockets(config) {
        let why = "the daemon makes its sockets in this directory, and does not start without it";
        all.push(writable(&format!("socket {name}"), path.parent(), why));
    }
    if let Some(store) = &config.store {
        let why = "the store keeps what --persist changed and what policies have learnt";
        let directory = store.path.parent();
        let finding = writable("store", directory, why);
        let is_good = finding.level == Level::Ok;
        all.push(finding);
        if is_good {
            all.extend(space("room for the store", directory, STORE));
        }
    }
    if let Some(directory) = config
        .history
        .directory
        .as_deref()
        .filter(|_| config.history.enabled)
    {
        all.extend(space(
            "room for the history",
            Some(directory),
            config.history.max_size,
        ));
    }
    if let Some(recording) = &config.recording {
        let directory = Some(recording.directory.as_path());
        all.extend(space("room for recordings", directory, recording.max_bytes));
    }
    all
}

/// Returns the unix sockets of a configuration with their sections.
fn sockets(config: &Config) -> Vec<(String, &Path)> {
    let nbd = config.listeners.iter().enumerate();
    let nbd = nbd.filter_map(|(i, it)| Some((format!("listen[{i}]"), path_of(&it.address)?)));
    let control = config.control.listeners().enumerate();
    let control =
        control.filter_map(|(i, it)| Some((format!("control[{i}]"), path_of(&it.address)?)));
    nbd.chain(control).collect()
}

/// Returns the path of a unix socket, or the directory that all sockets of a template are in.
fn path_of(address: &ListenAddress) -> Option<&Path> {
    match address {
        ListenAddress::Unix { path, .. } => Some(path.as_path()),
        ListenAddress::VhostUser { path, .. } => path.in_one_directory(),
        ListenAddress::Tcp(_) => None,
    }
}

/// Checks that a directory exists and may be written to.
fn writable(check: &str, directory: Option<&Path>, why: &'static str) -> Finding {
    let directory = match directory {
        Some(path) if path != Path::new("") => path,
        _ => Path::new("."),
    };
    let shown = directory.display();
    match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(check, shown.to_string(), why),
        Err(error) if !directory.exists() => Finding::ok(check, format!("{shown}: {error}"), why)
            .but(
                Level::Fail,
                format!("mkdir -p {shown}, or RuntimeDirectory= and StateDirectory= in the unit"),
            ),
        Err(error) => Finding::ok(check, format!("{shown}: {error}"), why)
            .but(Level::Fail, format!("chown the daemon's user to {shown}")),
    }
}

/// Checks that a directory has room for all that may be written there.
fn space(check: &str, directory: Option<&Path>, needed: u64) -> Option<Finding> {
    let why = "what does not fit is not written, so it is missing when it is asked for";
    let existing = directory?.ancestors().find(|path| path.exists())?;
    let free = free_bytes(existing)?;
    let shown = directory?.display();
    let found = format!("{} free for {} in {shown}", bytes(free), bytes(needed));
    let finding = Finding::ok(check, found, why);
    Some(if free < needed {
        finding.but(Level::Warn, "lower max_size, or name a directory elsewhere")
    } else {
        finding
    })
}
