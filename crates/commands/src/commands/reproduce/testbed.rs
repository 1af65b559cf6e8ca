//! Live testbed in a temporary folder: an array, the hosts that share it, and the NATS server that
//! carries their messages, each a child process.
//!
//! ```text
//!   guest --unix--> host-1 --+
//!   guest --unix--> host-2 --+-- unix --> array: emulated disk
//!   guest --unix--> host-3 --+
//!                      \------- TCP, loopback --> nats-server
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_api::device::DeviceView;
use tidegate_api::query::percent_encode;
use tidegate_config::device::Scheduling;
use tidegate_core::splitting::MaxIoShared;
use tidegate_experiments::distributed;
use tidegate_sim::scenario::{Scenario, VmSpec};

use super::process::{self, Process};
use crate::client::{Client, read};
use crate::problem::Problem;

/// Time for the processes to start and to hear each other.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a condition or a signal is polled.
const POLL: Duration = Duration::from_millis(20);
/// Name of the array's device on the hosts, and of the array.
const ARRAY: &str = "array";

/// Running testbed. Its processes end when it is dropped, hosts first.
pub(super) struct Testbed {
    hosts: Vec<Process>,
    array: Process,
    nats: Process,
    folder: TempDir,
}

/// Sleeps for a time, or until `stop` is set.
///
/// # Errors
/// If `stop` is set.
pub(super) fn sleep(time: Duration, stop: &AtomicBool) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Problem::new("stopped before all rows were run").into());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(POLL));
    }
}

impl Testbed {
    /// Starts all processes, and returns once the hosts hear each other.
    ///
    /// # Errors
    /// If a process does not start, or `stop` is set.
    pub(super) fn start(scenario: &Scenario, stop: &AtomicBool) -> Result<Testbed> {
        let folder = tempfile::Builder::new().prefix("tidegate-vfair-").tempdir();
        let folder = folder.context("no temporary folder")?;
        // URIs of disks have whole paths, and that of temporary folders may be relative.
        let path = &std::path::absolute(folder.path())?;
        for (name, text) in distributed::disk_files() {
            fs::write(path.join(name), text)?;
        }
        let mut nats = start_nats(path)?;
        let url = nats_url(path, &mut nats, stop)?;
        let mut array = start_daemon(path, ARRAY, &array_config(scenario))?;
        await_socket(&socket(path, ARRAY), &mut array, stop)?;
        let hosts = (0..hosts(scenario)).map(|host| {
            let text = host_config(scenario, host, &url, path)?;
            start_daemon(path, &host_name(host), &text)
        });
        let hosts = hosts.collect::<Result<_>>()?;
        let mut testbed = Testbed {
            hosts,
            array,
            nats,
            folder,
        };
        testbed.await_exchange(stop)?;
        Ok(testbed)
    }

    /// Socket at which a host serves its VMs' disks; hosts count from 0.
    pub(super) fn host_socket(&self, host: u32) -> PathBuf {
        socket(self.folder.path(), &host_name(host))
    }

    /// Socket at which the array serves the disks of all VMs.
    pub(super) fn array_socket(&self) -> PathBuf {
        socket(self.folder.path(), ARRAY)
    }

    /// Checks that all processes run.
    ///
    /// # Errors
    /// If one has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let shared = [&mut self.array, &mut self.nats];
        self.hosts
            .iter_mut()
            .chain(shared)
            .try_for_each(Process::check)
    }

    /// Waits until each host hears all others.
    fn await_exchange(&mut self, stop: &AtomicBool) -> Result<()> {
        for host in 0..self.hosts.len() {
            let name = host_name(host as u32);
            let path = self.folder.path();
            await_socket(&socket(path, &name), &mut self.hosts[host], stop)?;
            let client = Client::new(&control_socket(path, &name))?;
            let peers = self.hosts.len() - 1;
            await_condition("the hosts to hear each other", stop, || {
                self.check()?;
                Ok(hears(&client.get(&format!("/v1/devices/{ARRAY}"))?, peers)?.then_some(()))
            })?;
        }
        Ok(())
    }
}

/// Returns true if a host's device, as the control API shows it, hears this number of other hosts.
fn hears(device: &Value, peers: usize) -> Result<bool> {
    let device: DeviceView = read(device.clone())?;
    let live = device.exchange.map_or(0, |exchange| {
        let peers = exchange.peers.iter();
        peers.filter(|peer| peer.presence == "live").count()
    });
    Ok(live == peers)
}

/// Polls until there is a value.
///
/// # Errors
/// If `condition` fails or does not come true in time, or if `stop` is set.
fn await_condition<T>(
    what: &str,
    stop: &AtomicBool,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            let waited = START_TIMEOUT.as_secs();
            return Err(Problem::new(format!("waited {waited} s in vain for {what}")).into());
        }
        sleep(POLL, stop)?;
    }
}

fn await_socket(path: &Path, process: &mut Process, stop: &AtomicBool) -> Result<()> {
    await_condition("a daemon to listen", stop, || {
        process.check()?;
        Ok(path.exists().then_some(()))
    })
}

fn start_nats(folder: &Path) -> Result<Process> {
    // Port -1: a free one, which the server writes to a file in the folder.
    let arguments = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", "."];
    let program = "nats-server";
    let process = Process::start(folder, "nats", Path::new(program), &arguments);
    let help = "`scripts/setup` installs it, or your distribution's package nats-server; it \
                carries the messages of the hosts";
    process.map_err(|error| process::not_started(program, &error, help).into())
}

/// Waits for the URL of the server.
fn nats_url(folder: &Path, nats: &mut Process, stop: &AtomicBool) -> Result<String> {
    let file = folder.join(format!("nats-server_{}.ports", nats.id()));
    await_condition("nats-server to listen", stop, || {
        nats.check()?;
        // Not there yet, or not written to its end.
        let ports = fs::read(&file).ok();
        let ports = ports.and_then(|ports| serde_json::from_slice::<Value>(&ports).ok());
        Ok(ports.and_then(|ports| Some(ports["nats"][0].as_str()?.to_owned())))
    })
}

fn start_daemon(folder: &Path, name: &str, config: &str) -> Result<Process> {
    let file = format!("{name}.toml");
    fs::write(folder.join(&file), config)?;
    let program = env::current_exe().context("the path of this program is unknown")?;
    let process = Process::start(folder, name, &program, &["serve", &file]);
    process.with_context(|| format!("{} cannot be started", program.display()))
}

fn host_name(host: u32) -> String {
    // People count from 1.
    format!("host-{}", host + 1)
}

fn socket(folder: &Path, daemon: &str) -> PathBuf {
    folder.join(format!("{daemon}.nbd"))
}

fn control_socket(folder: &Path, daemon: &str) -> PathBuf {
    folder.join(format!("{daemon}.control"))
}

fn hosts(scenario: &Scenario) -> u32 {
    let last = scenario.vms.iter().map(|vm| vm.host).max();
    last.map_or(0, |last| last + 1)
}

/// Sockets of a daemon, in the configuration's notation.
fn sockets(daemon: &str) -> String {
    format!("[control]\nsocket = \"{daemon}.control\"\n\n[[listen]]\nunix = \"{daemon}.nbd\"\n\n")
}

/// Keys of a device that the array and the hosts share.
fn scheduling_keys(scheduling: &Scheduling) -> String {
    let shared = match scheduling.max_io_shared {
        MaxIoShared::Auto => "\"auto\"".to_owned(),
        MaxIoShared::Off => "\"off\"".to_owned(),
        MaxIoShared::Bytes(bytes) => format!("\"{bytes} B\""),
    };
    format!(
        "depth = {}\nmax_io = \"{} B\"\nmerge_limit = \"{} B\"\nadaptive_depth = {}\n\
         max_io_shared = {shared}\n",
        scheduling.depth, scheduling.max_io, scheduling.merge_limit, scheduling.adaptive_depth
    )
}

/// Configuration of the daemon that serves the disks of all VMs from an emulated disk, in the order
/// of arrival.
fn array_config(scenario: &Scenario) -> String {
    let device = &scenario.devices[0];
    let [(model, _), _] = distributed::disk_files();
    let mut text = sockets(ARRAY);
    let _ = write!(
        text,
        "[[device]]\nname = \"disk\"\nkind = \"emulated\"\nmodel = \"{model}\"\n\
         policy = \"fifo\"\n{}",
        scheduling_keys(&device.scheduling)
    );
    for vm in &scenario.vms {
        let (name, size) = (&vm.name, vm.disk_size);
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"{name}\"\n[[vm.disk]]\nexport = \"{name}\"\nsize = \"{size} B\"\n"
        );
    }
    text
}

/// Configuration of a host with its VMs.
///
/// # Errors
/// If the experiment's policy cannot be read, or the path of the folder is no UTF-8.
fn host_config(scenario: &Scenario, host: u32, nats: &str, folder: &Path) -> Result<String> {
    let name = host_name(host);
    let scheduling = &scenario.devices[0].scheduling;
    let [_, (profile, _)] = distributed::disk_files();
    let mut text = sockets(&name);
    let _ = write!(
        text,
        "[exchange]\ncluster = \"vfair\"\nhost = \"{name}\"\nnats = [\"{nats}\"]\n"
    );
    for host in 0..hosts(scenario) {
        let (name, weight) = (host_name(host), weight(scenario, host));
        let _ = write!(
            text,
            "\n[[exchange.entitlement]]\narray = \"{ARRAY}\"\nhost = \"{name}\"\n\
             weight_max = {weight}\n"
        );
    }
    let _ = write!(
        text,
        "\n[[device]]\nname = \"{ARRAY}\"\nkind = \"nbd\"\narray = \"{ARRAY}\"\npolicy = {}\n\
         profile = \"{profile}\"\nlearn_cap = false\nmax_requests_per_vm = {}\n{}",
        distributed::policy_toml()?,
        scheduling.max_pending_per_vm,
        scheduling_keys(scheduling)
    );
    let array = socket(folder, ARRAY);
    let array = array.to_str().with_context(|| {
        let path = folder.display();
        format!("the path of the temporary folder is no UTF-8: {path}")
    })?;
    for vm in scenario.vms.iter().filter(|vm| vm.host == host) {
        let (name, objective) = (&vm.name, objective(vm));
        let array = percent_encode(array);
        let _ = write!(
            text,
            "\n[[vm]]\nname = \"{name}\"\nobjective = {objective}\n[[vm.disk]]\n\
             export = \"{name}\"\nuri = \"nbd+unix:///{name}?socket={array}\"\n"
        );
    }
    Ok(text)
}

/// Objective of a VM, in the configuration's notation.
fn objective(vm: &VmSpec) -> String {
    let weight = vm.objective.weight;
    match vm.objective.group {
        None => format!("{{ weight = {weight} }}"),
        Some(group) => format!(
            "{{ weight = {weight}, group = {{ name = \"{}\", weight = {} }} }}",
            group.name, group.weight
        ),
    }
}

/// Largest sum of the weights of a host's VMs: each group counts once.
fn weight(scenario: &Scenario, host: u32) -> u32 {
    let vms = || scenario.vms.iter().filter(|vm| vm.host == host);
    let alone = vms().filter(|vm| vm.objective.group.is_none());
    let groups = vms().filter_map(|vm| vm.objective.group);
    let groups: BTreeMap<String, u32> = groups
        .map(|group| (group.name.to_string(), group.weight))
        .collect();
    alone
        .map(|vm| vm.objective.weight)
        .chain(groups.into_values())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::time::Nanos;
    use tidegate_experiments::distributed::LiveMix;
    use tidegate_server::config;

    fn scenario(mix: LiveMix) -> Scenario {
        mix.scenario(Nanos::SECOND, Nanos::SECOND).expect("a row")
    }

    #[test]
    fn daemons_accept_the_configurations_of_all_rows() {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in distributed::disk_files() {
            fs::write(folder.path().join(name), text).expect("writable");
        }
        for mix in LiveMix::all() {
            let scenario = scenario(mix);
            let device = &scenario.devices[0].scheduling;
            let array = array_config(&scenario);
            let array = config::parse(&array, "array.toml", folder.path());
            let array = array.unwrap_or_else(|error| panic!("{error}")).config;
            assert_eq!(array.vms.len(), scenario.vms.len());
            let mut vms = 0;
            for host in 0..hosts(&scenario) {
                let text = host_config(&scenario, host, "nats://127.0.0.1:4222", folder.path());
                let text = text.expect("a policy");
                let host = config::parse(&text, "host.toml", folder.path());
                let host = host
                    .unwrap_or_else(|error| panic!("{error}\n{text}"))
                    .config;
                let served = &host.devices[0].scheduling;
                assert_eq!(served.policy, device.policy);
                assert_eq!(served.profile, device.profile);
                assert_eq!(served.max_io_shared, device.max_io_shared);
                let figures =
                    |it: &Scheduling| (it.depth, it.max_io, it.merge_limit, it.max_pending_per_vm);
                assert_eq!(figures(served), figures(device));
                vms += host.vms.len();
            }
            assert_eq!(vms, scenario.vms.len());
        }
    }

    #[test]
    fn chunk_servers_of_a_host_weigh_what_their_group_does() {
        let qfs = LiveMix::all().last().expect("a row");
        let scenario = scenario(qfs);
        assert_eq!([0, 1, 2].map(|host| weight(&scenario, host)), [100; 3]);
        let objective = objective(&scenario.vms[1]);
        let expected = "{ weight = 100, group = { name = \"qfs\", weight = 100 } }";
        assert_eq!(objective, expected);
    }

    #[test]
    fn a_wait_ends_at_a_signal() {
        let stop = AtomicBool::new(true);
        let error = sleep(Duration::from_secs(600), &stop).expect_err("stopped");
        assert!(error.to_string().contains("stopped before"), "{error}");
        let waited = await_condition("nothing", &stop, || Ok(None::<()>));
        assert!(waited.is_err());
        assert!(sleep(Duration::ZERO, &AtomicBool::new(false)).is_ok());
    }

    #[test]
    fn a_url_is_taken_once_it_is_whole() {
        let text = json!({ "nats": ["nats://127.0.0.1:4222"] }).to_string();
        let folder = tempfile::tempdir().expect("a directory");
        let sleeper = Path::new("/bin/sleep");
        let mut process = Process::start(folder.path(), "nats", sleeper, &["600"]).expect("there");
        let file = folder
            .path()
            .join(format!("nats-server_{}.ports", process.id()));
        fs::write(&file, &text[..10]).expect("writable");
        let stop = AtomicBool::new(true);
        assert!(nats_url(folder.path(), &mut process, &stop).is_err());
        fs::write(&file, text).expect("writable");
        let url = nats_url(folder.path(), &mut process, &stop).expect("whole");
        assert_eq!(url, "nats://127.0.0.1:4222");
    }
}
