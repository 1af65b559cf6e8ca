//! Options of `tidegate agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_agent::Target;
use tidegate_core::time::Nanos;
use tidegate_units as units;

use super::value::{parse_bandwidth, parse_interval, parse_time};

/// Deadline transfer of a VM, as given with `--job`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransferArg {
    /// Name of the VM.
    pub(crate) vm: String,
    /// Bytes to read and write in total.
    pub(crate) bytes: u64,
    /// Time from now to the deadline.
    pub(crate) deadline: Nanos,
}

/// Options of `tidegate agent`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AgentArgs {
    /// VM, or any process with its children: NAME=PID (or NAME=pid:PID), NAME=cgroup:DIRECTORY or
    /// NAME=libvirt:DOMAIN; may be repeated
    #[arg(long = "vm", required = true, value_name = "NAME=TARGET", value_parser = parse_vm)]
    pub(crate) vms: Vec<(String, Target)>,
    /// Transfer of a VM with its deadline from now: NAME="2 GiB in 60 s"; may be repeated
    #[arg(long = "job", value_name = "NAME=JOB", value_parser = parse_transfer)]
    pub(crate) transfers: Vec<TransferArg>,
    /// File, directory or block device on the shared disk
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) disk: PathBuf,
    /// Bandwidth of the disk, such as "150 MB/s" [default: the highest observed]
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth: Option<u64>,
    /// Interval between updates of priorities and of the progress printed
    #[arg(long, value_name = "TIME", default_value = "3 s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print the priorities without setting them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Parses a VM and the processes that it stands for.
fn parse_vm(text: &str) -> Result<(String, Target), String> {
    let help = "write NAME=PID, NAME=cgroup:DIRECTORY or NAME=libvirt:DOMAIN, such as \"web=4711\"";
    let named = text
        .split_once('=')
        .map(|(name, who)| (name.trim(), who.trim()));
    let Some((name, who)) = named.filter(|(name, who)| !name.is_empty() && !who.is_empty()) else {
        return Err(help.to_owned());
    };
    let target = match who.split_once(':') {
        Some(("cgroup", path)) if !path.is_empty() => Target::Cgroup(path.into()),
        Some(("libvirt", domain)) if !domain.is_empty() => Target::Libvirt(domain.to_owned()),
        Some(("pid", pid)) => Target::Pid(parse_pid(pid)?),
        None => Target::Pid(parse_pid(who)?),
        Some(_) => return Err(help.to_owned()),
    };
    Ok((name.to_owned(), target))
}

/// Parses a process ID.
fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text
        .parse()
        .ok()
        .filter(|pid| (1..=i32::MAX as u32).contains(pid));
    pid.ok_or_else(|| format!("{text:?} is not a process ID"))
}

/// Parses a deadline transfer: `NAME=SIZE in TIME`.
fn parse_transfer(text: &str) -> Result<TransferArg, String> {
    let help = || "write NAME=SIZE in TIME, such as web=\"2 GiB in 60 s\"".to_owned();
    let (name, transfer) = text.split_once('=').ok_or_else(help)?;
    let (size, time) = transfer.split_once(" in ").ok_or_else(help)?;
    let bytes = units::parse_bytes(size.trim()).map_err(|error| error.to_string())?;
    let deadline = parse_time(time.trim())?;
    match name.trim() {
        "" => Err(help()),
        _ if bytes == 0 => Err("the size must be more than 0".to_owned()),
        name => Ok(TransferArg {
            vm: name.to_owned(),
            bytes,
            deadline,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vm_and_transfer_arguments_are_parsed_or_refused() {
        let pid = |pid| Target::Pid(pid);
        for (text, target) in [
            ("web=4711", pid(4711)),
            ("web=pid:4711", pid(4711)),
            (
                "web=cgroup:/sys/fs/cgroup/a",
                Target::Cgroup("/sys/fs/cgroup/a".into()),
            ),
            ("web=libvirt:web-1", Target::Libvirt("web-1".to_owned())),
        ] {
            assert_eq!(parse_vm(text), Ok(("web".to_owned(), target)), "{text}");
        }
        for text in [
            "web",
            "=1",
            "web=",
            "web=0",
            "web=x",
            "web=cgroup:",
            "web=vm:1",
            "web=4294967296",
        ] {
            assert!(parse_vm(text).is_err(), "{text}");
        }
        let expected = TransferArg {
            vm: "web".to_owned(),
            bytes: 2 << 30,
            deadline: Nanos::from_secs(60),
        };
        assert_eq!(parse_transfer("web=2 GiB in 60 s"), Ok(expected));
        for text in [
            "web",
            "web=2 GiB",
            "web=2 in 60 s",
            "web=0 B in 60 s",
            "web=2 GiB in 60",
            "=2 GiB in 60 s",
        ] {
            assert!(parse_transfer(text).is_err(), "{text}");
        }
    }
}
