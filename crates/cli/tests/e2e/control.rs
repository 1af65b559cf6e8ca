//! Changes while the disks are in use, through the command line.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Backing, DEADLINE, Daemon};
use crate::tool::{FioResult, Running, arg, fio, fio_result, have, json, run};

/// Runs `tidegate` against a daemon's control socket; what it printed.
pub(crate) fn tidegate(daemon: &Daemon, args: &[&str]) -> String {
    let socket = daemon.path("control.sock");
    let mut all = vec!["--socket", arg(&socket)];
    all.extend(args);
    run(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &all)
}

/// Runs a command with `-o json` and returns its output.
pub(crate) fn tidegate_json(daemon: &Daemon, args: &[&str]) -> Value {
    json(&tidegate(daemon, &[&["-o", "json"], args].concat()))
}

/// Reads and writes of a VM that were answered since the daemon started.
pub(crate) fn requests(daemon: &Daemon, vm: &str) -> u64 {
    let stats = tidegate_json(daemon, &["stats", vm]);
    let operations = stats["vms"][0]["operations"].as_array().expect("a list");
    operations
        .iter()
        .filter(|op| op["operation"] == "read" || op["operation"] == "write")
        .map(|op| op["requests"].as_u64().expect("a count"))
        .sum()
}

fn start(backing: Backing, policy: &str) -> Daemon {
    Daemon::start(
        &[
            backing.device(&format!("policy = \"{policy}\"")),
            backing.vm("a", "64 MiB", ""),
            backing.vm("b", "64 MiB", ""),
        ]
        .concat(),
    )
}

fn changes_lose_nothing(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(backing, "fifo");
    let size = if backing.is_slow() {
        "--size=1m"
    } else {
        "--size=64m"
    };
    let args = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=32",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=64",
        size,
    ];
    let mut clients = ["a", "b"].map(|vm| fio(daemon.scratch(), &daemon.uri(vm), &args));
    let policies = ["mclock", "limit", "fifo", "token-bucket+mclock"];
    let mut rounds = 0;
    let until = Instant::now() + 5 * DEADLINE;
    while clients.iter_mut().any(Running::is_running) {
        assert!(Instant::now() < until, "fio does not end");
        let policy = policies[rounds % policies.len()];
        tidegate(&daemon, &["policy", "set", "disk", policy]);
        let limit = ["none", "50000 IOPS", "20000 IOPS, 200 MB/s"][rounds % 3];
        tidegate(&daemon, &["vm", "set", "a", "--limit", limit]);
        let weight = ["10", "1000"][rounds % 2];
        tidegate(&daemon, &["vm", "set", "b", "--weight", weight]);
        rounds += 1;
    }
    assert!(
        rounds >= policies.len(),
        "only {rounds} rounds while fio ran"
    );
    for client in clients {
        let result = fio_result(client);
        assert_eq!(result.reads, result.writes, "not all was verified");
    }
    daemon.stop();
}

#[test]
fn changes_under_load_lose_nothing_in_memory() {
    changes_lose_nothing(Backing::Memory);
}

#[test]
fn changes_under_load_lose_nothing_on_a_file() {
    changes_lose_nothing(Backing::File);
}

#[test]
fn changes_under_load_lose_nothing_on_an_emulated_disk() {
    changes_lose_nothing(Backing::Emulated);
}

#[test]
fn a_limit_holds_from_when_it_is_set() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(Backing::Memory, "limit");
    tidegate(&daemon, &["vm", "set", "a", "--limit", "500 IOPS"]);
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=16",
        "--time_based",
        "--runtime=2",
        "--size=64m",
    ];
    let limited = fio_result(fio(daemon.scratch(), &daemon.uri("a"), &args)).reads;
    // 500 a second, what waits when fio's time is over, and 1 %: never more, however slow the
    // machine is. Half as many, or the limit is not what held them.
    assert!(
        (500..=1000 + 16 + 10 + 50).contains(&limited),
        "{limited} reads in 2 s"
    );
    // Gone when it is taken away, and never there for others.
    tidegate(&daemon, &["vm", "set", "a", "--limit", "none"]);
    let free = fio_result(fio(daemon.scratch(), &daemon.uri("a"), &args)).reads;
    assert!(free > 2 * limited, "{free} reads in 2 s without a limit");
    daemon.stop();
}

#[test]
fn a_limit_of_one_disk_leaves_the_vms_other_disk_alone() {
    if !have(&["fio"]) {
        return;
    }
    let disks = "[[vm]]\nname = \"a\"\n\
         [[vm.disk]]\nexport = \"slow\"\nsize = \"64 MiB\"\nlimit = { read = \"400 IOPS\" }\n\
         [[vm.disk]]\nexport = \"fast\"\nsize = \"64 MiB\"\n";
    // Under the default policy.
    let daemon = Daemon::start(&[&Backing::Memory.device(""), disks].concat());
    let [fast, slow] = read_for_two_seconds(&daemon, ["fast", "slow"]);
    let most = most_reads(400, slow.read_time);
    assert!((400..=most).contains(&slow.reads), "{slow:?}");
    assert!(fast.reads > 2 * slow.reads, "{fast:?} beside {slow:?}");
    let shown = tidegate_json(&daemon, &["vm", "show", "a"]);
    assert_eq!(shown["disks"][0]["limit"]["read"], "400 IOPS", "{shown}");
    let table = tidegate(&daemon, &["vm", "show", "a"]);
    assert!(table.contains("400 IOPS"), "{table}");
    // A disk that is added has its limit as well.
    let disk = "export=third,size=64 MiB,limit=300 IOPS";
    tidegate(&daemon, &["vm", "add", "b", "--disk", disk]);
    let [third] = read_for_two_seconds(&daemon, ["third"]);
    let most = most_reads(300, third.read_time);
    assert!((300..=most).contains(&third.reads), "{third:?}");
    daemon.stop();
}

#[test]
fn disks_of_several_vms_share_a_limit_in_turns() {
    if !have(&["fio"]) {
        return;
    }
    let group = "[[device.limit_group]]\nname = \"logs\"\nlimit = \"600 IOPS\"\n";
    let vm = |name: &str| {
        format!(
            "[[vm]]\nname = {name:?}\ndisk = [{{ size = \"64 MiB\", limit_group = \"logs\" }}]\n"
        )
    };
    let config = [&Backing::Memory.device(""), group, &vm("a"), &vm("b")].concat();
    let daemon = Daemon::start(&config);
    // The two need not begin at the same time: together they read for longer than each of them.
    let began = Instant::now();
    let both = read_for_two_seconds(&daemon, ["a", "b"]);
    let most = most_reads(600, began.elapsed()) + 16;
    let all: u64 = both.iter().map(|result| result.reads).sum();
    assert!((600..=most).contains(&all), "{both:?}, at most {most}");
    let shown = tidegate_json(&daemon, &["vm", "show", "b"]);
    assert_eq!(shown["disks"][0]["limit_group"], "logs", "{shown}");
    // Both are changed while the disks are served.
    tidegate(&daemon, &["disk", "set", "b", "--limit-group", "none"]);
    let limit = ["device", "limit", "disk", "logs", "--limit", "300 IOPS"];
    let device = tidegate_json(&daemon, &limit);
    assert_eq!(
        device["limit_groups"][0]["limit"]["total"], "300 IOPS",
        "{device}"
    );
    let [a, b] = read_for_two_seconds(&daemon, ["a", "b"]);
    assert!(
        (300..=most_reads(300, a.read_time)).contains(&a.reads),
        "{a:?}"
    );
    assert!(b.reads > 10 * a.reads, "{b:?} of a disk without a limit");
    let shown = tidegate_json(&daemon, &["disk", "set", "b", "--limit", "400 IOPS"]);
    assert_eq!(shown["disks"][0]["limit"]["total"], "400 IOPS", "{shown}");
    let [b] = read_for_two_seconds(&daemon, ["b"]);
    assert!(
        (400..=most_reads(400, b.read_time)).contains(&b.reads),
        "{b:?}"
    );
    daemon.stop();
}

#[test]
fn a_persisted_limit_of_a_disk_survives_a_restart() {
    let store = "[store]\npath = \"kept.redb\"\n\n";
    let group = "[[device.limit_group]]\nname = \"logs\"\nlimit = \"600 IOPS\"\n";
    let daemon = Daemon::start(&[store, &Backing::Memory.device(""), group].concat());
    tidegate(
        &daemon,
        &["vm", "add", "b", "--disk", "size=8 MiB", "--persist"],
    );
    let set = |more: &[&str]| tidegate(&daemon, &[&["disk", "set", "b"], more].concat());
    let persisted = ["--limit", "400 IOPS", "--limit-group", "logs", "--persist"];
    let table = set(&persisted);
    assert!(!table.contains("a restart of the daemon"), "{table}");
    let table = set(&["--limit", "300 IOPS", "--limit-group", "none"]);
    assert!(table.contains("300 IOPS"), "{table}");
    assert!(
        table.contains("a restart of the daemon would lose"),
        "{table}"
    );
    let daemon = daemon.restart();
    let shown = tidegate_json(&daemon, &["vm", "show", "b"]);
    let disk = &shown["disks"][0];
    assert_eq!(disk["limit"]["total"], "400 IOPS", "{shown}");
    assert_eq!(disk["limit_group"], "logs", "{shown}");
    daemon.stop();
}

/// Highest number of reads of fio in this time that a limit allows: with 1 % more, and the 16
/// requests that wait when its time is over.
fn most_reads(per_s: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).expect("a short time");
    (per_s * millis).div_ceil(1000) * 101 / 100 + 16
}

/// Reads disks at the same time for two seconds, with 16 requests at a time. Returns the result of
/// each.
fn read_for_two_seconds<const N: usize>(daemon: &Daemon, exports: [&str; N]) -> [FioResult; N] {
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=16",
        "--time_based",
        "--runtime=2",
        "--size=64m",
    ];
    let running = exports.map(|export| fio(daemon.scratch(), &daemon.uri(export), &args));
    running.map(fio_result)
}

#[test]
fn every_change_says_what_is_in_force() {
    let daemon = start(Backing::Memory, "mclock");
    let vm = tidegate_json(
        &daemon,
        &["vm", "set", "a", "--reservation", "120 IOPS @ 16 KiB"],
    );
    assert!(vm.to_string().contains("120 IOPS"), "{vm}");
    let vm = tidegate_json(&daemon, &["vm", "show", "a"]);
    assert!(vm.to_string().contains("120 IOPS"), "{vm}");
    tidegate(&daemon, &["policy", "set", "disk", "fifo"]);
    let device = tidegate_json(&daemon, &["device", "show", "disk"]);
    assert_eq!(device["policy"]["name"], "fifo", "{device}");
    // A combination that cannot be is refused with both values, and changes nothing.
    let socket = daemon.path("control.sock");
    let args = [
        "--socket",
        arg(&socket),
        "vm",
        "set",
        "a",
        "--limit",
        "100 IOPS @ 16 KiB",
    ];
    let done = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args).wait();
    assert!(!done.status.success());
    assert!(
        done.err.contains("120 IOPS") && done.err.contains("100 IOPS"),
        "{}",
        done.err
    );
    let vms = tidegate_json(&daemon, &["vm", "list"]).to_string();
    assert!(
        vms.contains("120 IOPS") && !vms.contains("100 IOPS"),
        "{vms}"
    );
    daemon.stop();
}
