//! Limits of this process and of its control group, and sizes of socket buffers.

use rustix::process::{Resource, getrlimit};
use tidegate_server::config::Config;
use tidegate_units::human::exact_bytes;

use super::finding::{Finding, Level};
use crate::host::HostRoot;

/// Open files beside connections and disks: rings, logs, sockets of the API.
const OWN_FILES: u64 = 256;
/// Files of a disk: itself, its lock, and a vhost-user session with kicks and calls of queues.
const FILES_OF_DISK: u64 = 16;
/// Open files that suit a daemon whose configuration is not known.
const FILES: u64 = 65_536;
/// Largest buffer of a socket that holds the replies of a deep queue, in bytes.
const BUFFER: u64 = 4 << 20;
/// Control group of the daemon's unit.
const UNIT: &str = "/sys/fs/cgroup/system.slice/tidegate.service";

/// Checks limits.
pub(super) fn check(host: &HostRoot, config: Option<&Config>) -> Vec<Finding> {
    let mut all = vec![open_files(config), locked_memory()];
    for (name, direction) in [("wmem_max", "send"), ("rmem_max", "receive")] {
        all.extend(socket_buffers(host, name, direction));
    }
    all.extend(control_group(host));
    all
}

/// Returns the open files that a configuration may need at most.
fn needed_files(config: &Config) -> u64 {
    let connections = config.vms.iter().map(|vm| u64::from(vm.max_connections));
    let disks = config.disks().count() as u64;
    connections.sum::<u64>() + disks * FILES_OF_DISK + OWN_FILES
}

fn open_files(config: Option<&Config>) -> Finding {
    let why =
        "each connection and each disk needs open files; without them connections are refused";
    let needed = config.map_or(FILES, needed_files);
    // The daemon raises its soft limit to the hard one.
    let limit = getrlimit(Resource::Nofile).maximum;
    let found = match limit {
        Some(limit) => format!("{limit} (hard limit of this shell), {needed} may be needed"),
        None => "unlimited".to_owned(),
    };
    let finding = Finding::ok("open files", found, why);
    if limit.is_some_and(|limit| limit < needed) {
        finding.but(
            Level::Warn,
            format!("LimitNOFILE={needed} in the unit, or ulimit -Hn {needed}"),
        )
    } else {
        finding
    }
}

fn locked_memory() -> Finding {
    let why = "since Linux 5.12 rings do not count as locked memory, so no limit is needed";
    let limit = getrlimit(Resource::Memlock).maximum;
    let found = limit.map_or_else(|| "unlimited".to_owned(), exact_bytes);
    Finding::ok("locked memory", found, why)
}

fn socket_buffers(host: &HostRoot, name: &str, direction: &str) -> Option<Finding> {
    let bytes: u64 = host
        .read(format!("/proc/sys/net/core/{name}"))?
        .parse()
        .ok()?;
    let why = "clients that ask for larger socket buffers get no more than this, and need more \
               system calls for each large request";
    let finding = Finding::ok(format!("{direction} buffers"), exact_bytes(bytes), why);
    Some(if bytes < BUFFER {
        finding.but(Level::Warn, format!("sysctl -w net.core.{name}={BUFFER}"))
    } else {
        finding
    })
}

/// Checks the limits of I/O of the unit's control group and of those above it, or of this process
/// where there is no unit.
fn control_group(host: &HostRoot) -> Vec<Finding> {
    let why = "the kernel holds the daemon back below what its device can do, and every VM with it";
    let own = host.read("/proc/self/cgroup").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(format!("/sys/fs/cgroup{line}"))
    });
    let unit = host.path(UNIT).is_dir().then(|| UNIT.to_owned());
    let Some(mut group) = unit.or(own) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    while group.starts_with("/sys/fs/cgroup/") {
        for file in ["io.max", "io.latency"] {
            for line in host
                .read(format!("{group}/{file}"))
                .unwrap_or_default()
                .lines()
            {
                let disk = line.split(' ').next().unwrap_or_default();
                let mend = match file {
                    "io.max" => format!(
                        "echo '{disk} rbps=max wbps=max riops=max wiops=max' > {group}/io.max"
                    ),
                    _ => format!("echo '{disk} target=0' > {group}/io.latency"),
                };
                let found = format!("{group}: {line}");
                let finding = Finding::ok(format!("cgroup {file}"), found, why);
                all.push(finding.but(Level::Warn, mend));
            }
        }
        group.truncate(group.trim_end_matches('/').rfind('/').unwrap_or(0));
    }
    if all.is_empty() {
        all.push(Finding::ok("cgroup I/O limits", "none", why));
    }
    all
}
