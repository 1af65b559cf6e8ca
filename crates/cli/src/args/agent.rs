//! Options of `agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_agent::Target;
use tidegate_core::time::Nanos;
use tidegate_units as units;

use super::value::{parse_bandwidth, parse_interval, parse_time};

/// `tidegate agent`.
#[derive(Debug, ClapArgs)]
pub(crate) struct AgentArgs {
    /// A VM, or any process with all that it starts: NAME=PID, NAME=cgroup:DIRECTORY or
    /// NAME=libvirt:DOMAIN; one option each
    #[arg(long = "vm", required = true, value_name = "NAME=WHO", value_parser = parse_vm)]
    pub(crate) vms: Vec<(String, Target)>,
    /// What a VM is to have read and written by when: NAME="2 GiB in 60 s", from now on; one option
    /// each
    #[arg(long = "job", value_name = "NAME=JOB", value_parser = parse_job)]
    pub(crate) jobs: Vec<(String, u64, Nanos)>,
    /// A file, a directory or a block device on the disk that they share
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) disk: PathBuf,
    /// What the disk does in all, such as "150 MB/s"; as much as is ever seen where this is not
    /// given
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    pub(crate) bandwidth: Option<u64>,
    /// Time between two updates of the priorities; progress is printed as often, if there is any
    #[arg(long, value_name = "TIME", default_value = "3 s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Say what would be done, and set nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

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

fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text
        .parse()
        .ok()
        .filter(|pid| (1..=i32::MAX as u32).contains(pid));
    pid.ok_or_else(|| format!("{text:?} is no process number"))
}

fn parse_job(text: &str) -> Result<(String, u64, Nanos), String> {
    let help = || "write NAME=SIZE in TIME, such as web=\"2 GiB in 60 s\"".to_owned();
    let (name, job) = text.split_once('=').ok_or_else(help)?;
    let (size, time) = job.split_once(" in ").ok_or_else(help)?;
    let bytes = units::parse_bytes(size.trim()).map_err(|error| error.to_string())?;
    let time = parse_time(time.trim())?;
    match name.trim() {
        "" => Err(help()),
        _ if bytes == 0 => Err("a job of no bytes is done".to_owned()),
        name => Ok((name.to_owned(), bytes, time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_and_jobs_are_read_or_refused_with_what_is_right() {
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
        let job = parse_job("web=2 GiB in 60 s").expect("it is one");
        assert_eq!(job, ("web".to_owned(), 2 << 30, Nanos::from_secs(60)));
        for text in [
            "web",
            "web=2 GiB",
            "web=2 in 60 s",
            "web=0 B in 60 s",
            "web=2 GiB in 60",
            "=2 GiB in 60 s",
        ] {
            assert!(parse_job(text).is_err(), "{text}");
        }
    }
}
