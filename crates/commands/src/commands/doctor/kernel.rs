//! Features of the kernel: io_uring, the layers of the sandbox, clocks, huge pages.

use tidegate_server::config::{Config, ListenAddress};
use tidegate_server::host_support::{self, SandboxSupport};

use super::finding::{Finding, Level};
use crate::host::HostRoot;

/// Oldest kernel that has all flags of rings that the daemon uses.
const OLDEST_KERNEL: (u32, u32) = (6, 1);
/// First version of Landlock that refuses signals to other processes; older ones refuse less.
const LANDLOCK_WHOLE: u32 = 6;

/// Results of the daemon's own calls.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// Error of a ring that is made as event loops make theirs.
    pub(super) ring: Result<(), String>,
    /// Layers of the sandbox.
    pub(super) sandbox: SandboxSupport,
    /// True if the kernel's clock is synchronised.
    pub(super) clock: Option<bool>,
}

impl Probes {
    /// Makes the calls.
    pub(super) fn of_kernel() -> Probes {
        let failed = |error: std::io::Error| SandboxSupport {
            landlock: Err(error.to_string()),
            seccomp: Err(error.to_string()),
        };
        Probes {
            ring: host_support::ring().map_err(|error| error.to_string()),
            sandbox: host_support::sandbox().unwrap_or_else(failed),
            clock: host_support::clock_is_synchronised(),
        }
    }
}

/// Checks the kernel's version, io_uring and the layers of the sandbox.
pub(super) fn check(host: &HostRoot, probes: &Probes) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(version) = host.read("/proc/sys/kernel/osrelease") {
        let why = "event loops need flags of io_uring that Linux 6.1 brought";
        let finding = Finding::ok("kernel", &*version, why);
        all.push(if is_older(&version) {
            finding.but(Level::Fail, "boot Linux 6.1 or newer")
        } else {
            finding
        });
    }
    all.push(ring(host, probes));
    all.push(landlock(probes));
    let why = "without it, a guest that exploits a bug of an event loop can make every system call";
    all.push(match &probes.sandbox.seccomp {
        Ok(()) => Finding::ok("seccomp", "filters event loops", why),
        Err(error) => Finding::ok("seccomp", error, why)
            .but(Level::Warn, "boot a kernel with CONFIG_SECCOMP_FILTER=y"),
    });
    all
}

fn is_older(version: &str) -> bool {
    let mut numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST_KERNEL,
        // Unknown: the ring itself is tried as well.
        _ => false,
    }
}

fn ring(host: &HostRoot, probes: &Probes) -> Finding {
    let why = "all I/O of disks and sockets goes through io_uring; without it nothing is served";
    let disabled = host.read("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.as_deref().unwrap_or("0");
    match (&probes.ring, disabled) {
        (Ok(()), "0") => Finding::ok("io_uring", "a restricted ring was made", why),
        (Ok(()), disabled) => {
            let found = format!("a ring was made, but kernel.io_uring_disabled is {disabled}");
            let mend = "sysctl -w kernel.io_uring_disabled=0, or add the daemon's group: \
                        sysctl -w kernel.io_uring_group=GID";
            Finding::ok("io_uring", found, why).but(Level::Warn, mend)
        }
        (Err(error), disabled) => {
            let found = format!("{error}; kernel.io_uring_disabled is {disabled}");
            let mend = match disabled {
                "0" => "allow io_uring_setup in the seccomp profile of the container or unit",
                _ => "sysctl -w kernel.io_uring_disabled=0",
            };
            Finding::ok("io_uring", found, why).but(Level::Fail, mend)
        }
    }
}

fn landlock(probes: &Probes) -> Finding {
    let why = "a guest that exploits a bug of an event loop can do what Landlock does not refuse";
    match &probes.sandbox.landlock {
        Ok(version) => {
            let found = format!("interface version {version}");
            let finding = Finding::ok("landlock", found, why);
            if *version < LANDLOCK_WHOLE {
                finding.but(
                    Level::Warn,
                    "boot Linux 6.12 or newer: older ones do not refuse signals, or TCP",
                )
            } else {
                finding
            }
        }
        Err(error) => Finding::ok("landlock", error, why).but(
            Level::Warn,
            "boot with lsm=landlock,... and CONFIG_SECURITY_LANDLOCK=y",
        ),
    }
}

/// Checks the clock if objectives change by it.
pub(super) fn clock(probes: &Probes, config: &Config) -> Option<Finding> {
    let scheduled = config.vms.iter().filter(|vm| vm.schedule.is_some()).count();
    if scheduled == 0 {
        return None;
    }
    let why = "schedules change objectives at times of day: a wrong clock changes them then";
    let mend = "timedatectl set-ntp true, or start chronyd";
    Some(match probes.clock {
        Some(true) => Finding::ok("clock", "synchronised", why),
        Some(false) => Finding::ok(
            "clock",
            format!("not synchronised, {scheduled} schedules"),
            why,
        )
        .but(Level::Warn, mend),
        None => Finding::ok("clock", "the kernel does not tell", why).but(Level::Warn, mend),
    })
}

/// Checks huge pages where guests share their memory with the daemon.
pub(super) fn huge_pages(host: &HostRoot, config: &Config) -> Option<Finding> {
    let is_shared = |address: &ListenAddress| matches!(address, ListenAddress::VhostUser { .. });
    if !config
        .listeners
        .iter()
        .any(|listen| is_shared(&listen.address))
    {
        return None;
    }
    let meminfo = host.read("/proc/meminfo")?;
    let figure = |key: &str| {
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().parse::<u64>().ok()
    };
    let (total, free) = (figure("HugePages_Total")?, figure("HugePages_Free")?);
    let why = "guests on vhost-user share their memory; huge pages make its mapping cheaper";
    let found = format!("{free} of {total} are free");
    let finding = Finding::ok("huge pages", found, why);
    Some(match (total, free) {
        (0, _) => Finding::ok("huge pages", "none are reserved, none are needed", why),
        (_, 0) => finding.but(
            Level::Warn,
            format!(
                "sysctl -w vm.nr_hugepages={}, or start the next guest without them",
                total * 2
            ),
        ),
        _ => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_6_1_are_too_old() {
        for (version, older) in [
            ("5.15.0-91-generic", true),
            ("6.0.9", true),
            ("6.1.0-18-amd64", false),
            ("6.18.44-fc", false),
            ("10.0", false),
            ("odd", false),
        ] {
            assert_eq!(is_older(version), older, "{version}");
        }
    }
}
