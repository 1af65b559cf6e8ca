//! Durability of acknowledged writes: the daemon is ended under load and started again.

use std::fs::{self, File};
use std::process::Stdio;

use crate::control::requests;
use crate::daemon::{Backing, Daemon, Scratch, wait_for};
use crate::tool::{Running, fio, have, qemu_io};

const BLOCK: u64 = 4096;
/// Writes between two flushes.
const BATCH: u64 = 8;

/// Way in which the daemon ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// By SIGTERM, in order: what was acknowledged is there, flushed or not.
    Terminated,
    /// By SIGKILL: what was flushed is there.
    Killed,
}

/// Client whose writes go on while the daemon ends.
struct Writer {
    running: Running,
    export: &'static str,
}

/// The pattern in a block of this number; never 0.
fn pattern(block: u64) -> u64 {
    1 + block % 251
}

fn write(block: u64, fua: bool) -> String {
    let flag = if fua { "-f " } else { "" };
    format!(
        "write {flag}-P {} {} {BLOCK}\n",
        pattern(block),
        block * BLOCK
    )
}

impl Writer {
    /// qemu-io with a list of commands, which says of each when it is done.
    fn start(daemon: &Daemon, export: &'static str, commands: &str) -> Writer {
        let file = daemon.path(&format!("{export}.commands"));
        fs::write(&file, commands).expect("the directory is ours");
        let input = Stdio::from(File::open(&file).expect("it was just written"));
        let uri = daemon.uri(export);
        // Line by line, or what it said last would be lost with it.
        let args = ["-oL", "qemu-io", "-f", "raw", &uri];
        let running = Running::start_with(daemon.scratch(), "stdbuf", &args, input);
        Writer { running, export }
    }

    /// One block after the other, each with FUA.
    fn with_fua(daemon: &Daemon) -> Writer {
        let commands: String = (0..4000).map(|block| write(block, true)).collect();
        Writer::start(daemon, "fua", &commands)
    }

    /// A flush after every few blocks. The last block of a batch is written after the flush:
    /// where it is acknowledged, the flush before it was.
    fn with_flushes(daemon: &Daemon) -> Writer {
        let mut commands = String::new();
        for block in 0..4000 {
            if block % BATCH == BATCH - 1 {
                commands.push_str("flush\n");
            }
            commands.push_str(&write(block, false));
        }
        Writer::start(daemon, "flush", &commands)
    }

    /// The blocks it was told are written.
    fn acknowledged(&self) -> Vec<u64> {
        let mark = format!("wrote {BLOCK}/{BLOCK} bytes at offset ");
        let out = self.running.out();
        out.split(&mark)
            .skip(1)
            .map(|rest| {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
                let offset: u64 = digits.and_then(|d| d.parse().ok()).expect("an offset");
                offset / BLOCK
            })
            .collect()
    }

    /// The blocks that must be there: all that were acknowledged, or those before a flush.
    fn promised(&self, kept_without_flush: bool) -> Vec<u64> {
        let mut blocks = self.acknowledged();
        if self.export == "flush" && !kept_without_flush {
            let flushed = blocks.iter().rposition(|block| block % BATCH == BATCH - 1);
            blocks.truncate(flushed.unwrap_or(0));
        }
        blocks
    }
}

fn ended_under_load(backing: Backing, end: End) {
    if !have(&["qemu-io", "fio"]) {
        return;
    }
    let config = [
        backing.device("policy = \"fifo\""),
        backing.vm("fua", "16 MiB", ""),
        backing.vm("flush", "16 MiB", ""),
        backing.vm("load", "64 MiB", ""),
    ]
    .concat();
    let daemon = Daemon::start(&config);
    let args = [
        "--rw=randwrite",
        "--bs=16k",
        "--iodepth=16",
        "--time_based",
        "--runtime=50",
        "--size=64m",
    ];
    let load = fio(daemon.scratch(), &daemon.uri("load"), &args);
    let mut writers = [Writer::with_fua(&daemon), Writer::with_flushes(&daemon)];
    let enough = if backing.is_slow() { 20 } else { 200 };
    wait_for("acknowledged writes", || {
        writers
            .iter()
            .all(|writer| writer.acknowledged().len() >= enough)
            && requests(&daemon, "load") >= enough as u64
    });
    let daemon = match end {
        End::Terminated => daemon.restart(),
        End::Killed => daemon.crash(),
    };
    for writer in &mut writers {
        let running = &mut writer.running;
        wait_for("qemu-io to give up", || !running.is_running());
    }
    assert!(!load.wait().status.success(), "fio did not notice");

    for writer in &writers {
        let blocks = writer.promised(end == End::Terminated);
        assert!(
            blocks.len() as u64 >= BATCH,
            "{}: {blocks:?}",
            writer.export
        );
        assert!(
            blocks.len() < 4000,
            "{}: it was over before the end came",
            writer.export
        );
        let reads: Vec<String> = blocks
            .iter()
            .map(|&block| format!("read -P {} {} {BLOCK}", pattern(block), block * BLOCK))
            .collect();
        for reads in reads.chunks(500) {
            let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
            qemu_io(daemon.scratch(), &daemon.uri(writer.export), &reads);
        }
    }
    daemon.stop();
}

#[test]
fn sigterm_loses_nothing_on_a_file() {
    ended_under_load(Backing::File, End::Terminated);
}

#[test]
fn sigterm_loses_nothing_on_an_emulated_disk() {
    ended_under_load(Backing::EmulatedFile, End::Terminated);
}

#[test]
fn kill_loses_nothing_that_was_flushed_to_a_file() {
    ended_under_load(Backing::File, End::Killed);
}

#[test]
fn kill_loses_nothing_that_was_flushed_to_an_emulated_disk() {
    ended_under_load(Backing::EmulatedFile, End::Killed);
}

#[test]
fn what_the_policy_has_learnt_outlives_the_daemon() {
    if !have(&["fio"]) {
        return;
    }
    let backing = Backing::Emulated;
    let promise = "[vm.objective]\nreservation = \"50 IOPS\"\nlatency = \"1 ms\"\n";
    let config = [
        "[store]\npath = \"tidegate.redb\"\n",
        &backing.device("policy = \"flubber\""),
        "[[vm]]\nname = \"a\"\n",
        promise,
        &backing.disk("a", "64 MiB", ""),
        &backing.vm("b", "64 MiB", ""),
    ]
    .concat();
    let daemon = Daemon::start(&config);
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=16",
        "--number_ios=400",
    ];
    fio(daemon.scratch(), &daemon.uri("a"), &args).succeed();
    // The log has a thread of its own. What it says last is that it serves.
    let goes_on = |daemon: &Daemon, times| {
        let count = |log: &str, words: [&str; 2]| {
            let has = |line: &&str| words.iter().all(|word| line.contains(word));
            log.lines().filter(has).count()
        };
        wait_for("the log", || {
            let log = daemon.log();
            count(&log, ["the policy has its learnt state again", "vms=2"]) == times
                && count(&log, ["listening on", "nbd.sock"]) == times + 1
        });
    };
    let daemon = daemon.restart();
    goes_on(&daemon, 1);
    // The files of a killed daemon are whole, and not locked.
    let daemon = daemon.crash();
    goes_on(&daemon, 2);
    daemon.stop();
}

/// Whoever asks a daemon to end that is still opening its disks gets the same orderly end.
#[test]
fn sigterm_while_it_starts_ends_it_in_order() {
    let disk = |n| Backing::File.vm(&format!("vm{n}"), "16 MiB", "");
    let disks: String = (0..400).map(disk).collect();
    let config = Backing::File.device("") + &disks;
    let mut daemon = Daemon::begin_in(Scratch::new(), &config);
    wait_for("the first disk", || daemon.path("vm0.raw").exists());
    daemon.signal("TERM");
    let status = daemon.wait();
    assert!(status.success(), "{status}: {}", daemon.log());
}

#[test]
fn a_second_daemon_is_refused_the_disk() {
    let backing = Backing::File;
    let daemon = Daemon::start(&[backing.device(""), backing.vm("a", "1 MiB", "")].concat());
    let config = format!(
        "[control]\nsocket = \"second.sock\"\n[[listen]]\nunix = \"second-nbd.sock\"\n{}\
         [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"a.raw\"\n",
        backing.device("")
    );
    fs::write(daemon.path("second.toml"), config).expect("the directory is ours");
    let file = daemon.path("second.toml");
    let args = ["serve", crate::tool::arg(&file)];
    let done = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args).wait();
    assert!(!done.status.success());
    assert!(done.err.contains("a.raw"), "it says which: {}", done.err);
    assert!(
        !daemon.path("second-nbd.sock").exists(),
        "nothing stays behind"
    );
    daemon.stop();
}
