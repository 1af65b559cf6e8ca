//! A Linux guest whose disk is an export, by NBD or by vhost-user: a filesystem, files, raw
//! writes, and a second machine that finds all of it. The guest's side is `guest_init.sh`; the
//! kernel and the programs it runs are what `scripts/setup-guest` gathered.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, Scratch, noise, wait_at_most, wait_for};
use crate::guest::vhost_user_disk;
use crate::guest_initramfs::Initramfs;
use crate::takeover::take_over;
use crate::tool::{Running, arg, have, lacking, run};

/// Time-out of waiting for a guest. Its CPU is emulated: what takes five
/// seconds takes a minute where others want the machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A machine that ends where it would start again. Without rdrand the first random number takes
/// the kernel seconds to gather, and mke2fs wants one. QEMU 7.2 was seen to spoil the flags of
/// cmpxchg16b, with which newer kernels allocate memory.
pub(crate) const MACHINE: &str = "-accel tcg -cpu qemu64,+rdrand,-cx16 -m 256 -nodefaults \
    -no-user-config -display none -no-reboot";
/// A kernel that says only what went wrong, ends where it panics, and does not test its timer:
/// on a busy machine it might take it for broken.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check";

pub(crate) const MIB: usize = 1 << 20;
/// Size of the guest's file system.
const FS: usize = 64 * MIB;
pub(crate) const DISK: usize = 80 * MIB;

/// Writes behind the filesystem, in order: the length of one, where in multiples of it, how many.
/// All are of the same bytes.
const WRITES: [[usize; 3]; 7] = [
    [65536, 1024, 4],
    [512, 131_085, 1],     // amid the first
    [4096, 16384 + 61, 9], // across its end
    [512, 134_145, 7],
    [MIB, 67, 2],
    [1536, 46_000, 3], // blocks of no power of two
    [512, DISK / 512 - 1, 1],
];

/// Returns the folder into which `scripts/setup` puts the kernel and programs, if it exists.
fn gathered() -> Option<PathBuf> {
    // Cargo gives tests a directory in the target directory, and setup uses the one beside it.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("guest");
    if directory.join("vmlinuz").is_file() {
        return Some(directory);
    }
    lacking("a Linux guest");
    None
}

/// Text that all guests write.
pub(crate) fn bytes() -> Vec<u8> {
    noise(7, 2 * MIB)
}

/// Kernel and initramfs of guests.
pub(crate) struct Kit {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Kit {
    /// `None`, and a word on it, if something is missing.
    pub(crate) fn new(scratch: &Scratch) -> Option<Kit> {
        Kit::with(scratch, &["root"])
    }

    /// Has fio besides, which is large.
    pub(crate) fn with_fio(scratch: &Scratch) -> Option<Kit> {
        Kit::with(scratch, &["root", "fio"])
    }

    fn with(scratch: &Scratch, trees: &[&str]) -> Option<Kit> {
        if !have(&["qemu-system-x86_64", "nbdcopy"]) {
            return None;
        }
        let directory = gathered()?;
        let writes = WRITES.map(|[len, seek, count]| format!("{len} {seek} {count}\n"));
        let mut archive = Initramfs::default();
        for tree in trees {
            archive.tree(&directory.join(tree));
        }
        archive
            .file("init", 0o755, include_bytes!("guest_init.sh"))
            .file("noise", 0o644, &bytes())
            .file("writes", 0o644, writes.concat().as_bytes());
        let initramfs = scratch.join("initramfs");
        fs::write(&initramfs, archive.finish()).expect("the directory is ours");
        Some(Kit {
            kernel: directory.join("vmlinuz"),
            initramfs,
        })
    }
}

/// Protocol by which a machine has its disk.
#[derive(Clone, Copy)]
pub(crate) enum Attached {
    Nbd,
    VhostUser,
}

impl Attached {
    /// QEMU's arguments.
    fn args(self, daemon: &Daemon) -> Vec<String> {
        if let Attached::VhostUser = self {
            return vhost_user_disk(&daemon.path("guest.vhost"), 256, "num-queues=2");
        }
        // A daemon that goes away and comes back within the time is waited for.
        let disk = format!(
            "driver=nbd,node-name=disk,server.type=unix,server.path={},export=guest,\
             discard=unmap,reconnect-delay={}",
            daemon.path("nbd.sock").display(),
            PATIENCE.as_secs()
        );
        let device = "virtio-blk-pci,drive=disk";
        ["-blockdev", &disk, "-device", device]
            .map(str::to_owned)
            .to_vec()
    }
}

/// A machine that runs; what is on its console is shown if the test fails.
pub(crate) struct Guest {
    machine: Option<Running>,
    /// Open, so that it can be read when the daemon's directory has gone.
    console: File,
    step: &'static str,
}

impl Guest {
    /// Starts a machine that takes this step of `guest_init.sh`.
    pub(crate) fn start(
        daemon: &Daemon,
        kit: &Kit,
        step: &'static str,
        attached: Attached,
    ) -> Guest {
        Guest::start_with(daemon, kit, step, attached, &[])
    }

    /// Starts a machine with further arguments.
    pub(crate) fn start_with(
        daemon: &Daemon,
        kit: &Kit,
        step: &'static str,
        attached: Attached,
        more: &[&str],
    ) -> Guest {
        let mut arguments = attached.args(daemon);
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        Guest::start_on(daemon, kit, step, MACHINE, &arguments)
    }

    /// Starts a machine of other words with a disk that QEMU's arguments describe.
    pub(crate) fn start_on(
        daemon: &Daemon,
        kit: &Kit,
        step: &'static str,
        machine: &str,
        disk: &[String],
    ) -> Guest {
        let console = daemon.path(&format!("console-{step}"));
        let serial = format!("file:{}", console.display());
        let console = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(console)
            .expect("the directory is ours");
        let kernel = format!("{COMMAND_LINE} step={step}");
        let args: Vec<&str> = machine
            .split(' ')
            .chain(["-kernel", arg(&kit.kernel), "-initrd", arg(&kit.initramfs)])
            .chain(["-append", &kernel, "-serial", &serial])
            .chain(disk.iter().map(String::as_str))
            .collect();
        Guest {
            machine: Some(Running::start(
                daemon.scratch(),
                "qemu-system-x86_64",
                &args,
            )),
            console,
            step,
        }
    }

    pub(crate) fn machine(&mut self) -> &mut Running {
        self.machine.as_mut().expect("taken only by the end")
    }

    /// Everything on its console so far.
    fn console(&self) -> String {
        let mut console = &self.console;
        let mut bytes = Vec::new();
        let read = console
            .rewind()
            .and_then(|()| console.read_to_end(&mut bytes));
        read.expect("it is a file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the lines that the guest reported on a subject.
    pub(crate) fn reported(&self, subject: &str) -> Vec<String> {
        let mark = format!("guest: {subject} ");
        let console = self.console();
        // A machine that was killed may not have got to the end of its line.
        let lines = console.split_inclusive("\r\n");
        let complete = lines.filter_map(|line| line.strip_suffix("\r\n"));
        let reported = complete.filter_map(|line| line.strip_prefix(&mark));
        reported.map(str::to_owned).collect()
    }

    /// Waits until it said so many things of this subject.
    pub(crate) fn wait_for(&mut self, subject: &str, count: usize) {
        let what = format!("the guest to have {count} of `{subject}`");
        wait_at_most(PATIENCE, &what, || {
            if !self.machine().is_running() {
                self.succeeds();
                panic!("it ended without {what}");
            }
            self.reported(subject).len() >= count
        });
    }

    /// Waits for its end, before which it must have done its step without errors.
    pub(crate) fn succeeds(&mut self) {
        let what = format!("the guest's step `{}`", self.step);
        wait_at_most(PATIENCE, &what, || !self.machine().is_running());
        self.machine.take().expect("taken here only").succeed();
        assert_eq!(self.reported("done"), [self.step], "it ended before that");
        self.saw_no_errors();
    }

    /// Kills the guest, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.machine().kill();
        self.saw_no_errors();
    }

    fn saw_no_errors(&self) {
        let console = self.console();
        for error in ["I/O error", "EXT4-fs error"] {
            assert!(!console.contains(error), "the guest had an error");
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if thread::panicking() {
            let console = self.console();
            eprint!(
                "---- console of the guest ({}) ----\n{console}\n",
                self.step
            );
        }
    }
}

/// A daemon with one VM. Its objective is loose: what is tested is that scheduling, too, gets
/// every byte to its place.
pub(crate) fn start(scratch: Scratch, backing: Backing) -> Daemon {
    let config = [
        "[[listen]]\nvhost_user = \"{vm}.vhost\"\n",
        &backing.device("policy = \"mclock\""),
        "[[vm]]\nname = \"guest\"\n[vm.objective]\n",
        "reservation = \"100 IOPS\"\nlimit = \"2000 IOPS\"\nweight = 200\n",
        &backing.disk("guest", &format!("{} MiB", DISK / MIB), ""),
    ];
    Daemon::start_in(scratch, &config.concat())
}

/// Requests of the guest that were answered, by operation.
fn answered(daemon: &Daemon, operation: &str) -> u64 {
    let stats: Value = tidegate_json(daemon, &["stats", "guest"]);
    let operations = stats["vms"][0]["operations"].as_array().expect("a list");
    let of_this = operations.iter().filter(|op| op["operation"] == operation);
    of_this.filter_map(|op| op["requests"].as_u64()).sum()
}

/// Data that must be behind the file system.
fn written() -> Vec<u8> {
    let bytes = bytes();
    let mut disk = vec![0; DISK];
    for [len, seek, count] in WRITES {
        disk[len * seek..][..len * count].copy_from_slice(&bytes[..len * count]);
    }
    disk.split_off(FS)
}

fn assert_written(daemon: &Daemon) {
    let copy = daemon.path("copy");
    run(
        daemon.scratch(),
        "nbdcopy",
        &[&daemon.uri("guest"), arg(&copy)],
    );
    let found = fs::read(&copy).expect("nbdcopy wrote it").split_off(FS);
    let expected = written();
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs");
    assert_eq!(found.len(), expected.len());
}

/// The files, with these checksums, are what a later machine found.
pub(crate) fn assert_found(files: &[String], later: &Guest) {
    let found = later.reported("sum");
    let lost: Vec<_> = files.iter().filter(|file| !found.contains(file)).collect();
    assert!(lost.is_empty(), "lost or changed: {lost:#?}");
}

fn files_are_there_after_a_reboot(backing: Backing, attached: Attached) {
    let scratch = Scratch::new();
    let Some(kit) = Kit::new(&scratch) else {
        return;
    };
    let mut daemon = start(scratch, backing);
    let mut first = Guest::start(&daemon, &kit, "fill", attached);
    first.succeeds();
    for operation in ["read", "write", "flush", "discard", "write_zeroes"] {
        assert!(
            answered(&daemon, operation) > 0,
            "the guest used no {operation}"
        );
    }
    assert_written(&daemon);
    if backing == Backing::File {
        daemon = daemon.restart();
    }
    let mut second = Guest::start(&daemon, &kit, "check", attached);
    second.succeeds();
    assert_eq!(first.reported("sum").len(), 59);
    assert_found(&first.reported("sum"), &second);
    assert_eq!(first.reported("raw").len(), 1);
    assert_eq!(first.reported("raw"), second.reported("raw"));
    assert_written(&daemon);
    daemon.stop();
}

#[test]
fn files_are_there_after_a_reboot_on_memory() {
    files_are_there_after_a_reboot(Backing::Memory, Attached::Nbd);
}

#[test]
fn files_are_there_after_a_reboot_by_vhost_user_on_memory() {
    files_are_there_after_a_reboot(Backing::Memory, Attached::VhostUser);
}

#[test]
fn files_are_there_after_a_reboot_by_vhost_user_on_a_file() {
    files_are_there_after_a_reboot(Backing::File, Attached::VhostUser);
}

#[test]
fn files_are_there_after_a_reboot_on_a_file() {
    files_are_there_after_a_reboot(Backing::File, Attached::Nbd);
}

/// A machine writes; `meanwhile` happens; it is killed. The files it had fsynced must be there.
fn fsynced_files_outlive(
    backing: Backing,
    attached: Attached,
    meanwhile: impl FnOnce(Daemon, &mut Guest) -> Daemon,
) {
    let scratch = Scratch::new();
    let Some(kit) = Kit::new(&scratch) else {
        return;
    };
    let mut daemon = start(scratch, backing);
    let mut killed = Guest::start(&daemon, &kit, "keep", attached);
    killed.wait_for("kept", 10);
    daemon = meanwhile(daemon, &mut killed);
    killed.kill();
    let mut next = Guest::start(&daemon, &kit, "recover", attached);
    next.succeeds();
    assert_found(&killed.reported("kept"), &next);
    daemon.stop();
}

#[test]
fn fsynced_files_outlive_the_machine() {
    fsynced_files_outlive(Backing::Memory, Attached::Nbd, |daemon, _| daemon);
}

#[test]
fn fsynced_files_outlive_a_machine_by_vhost_user() {
    fsynced_files_outlive(Backing::File, Attached::VhostUser, |daemon, _| daemon);
}

/// The daemon, too, is killed and started again; the machine goes on as if nothing had happened.
#[test]
fn fsynced_files_outlive_the_daemon() {
    fsynced_files_outlive(Backing::File, Attached::Nbd, |daemon, guest| {
        let daemon = daemon.crash();
        let before = guest.reported("kept").len();
        // More than the one that it may have been about to tell.
        guest.wait_for("kept", before + 10);
        daemon
    });
}

/// The daemon ends in order and is started again; the machine's hypervisor connects anew.
#[test]
fn fsynced_files_outlive_a_restart_of_the_daemon_by_vhost_user() {
    fsynced_files_outlive(Backing::File, Attached::VhostUser, |daemon, guest| {
        let daemon = daemon.restart();
        let before = guest.reported("kept").len();
        // More than the one that it may have been about to tell.
        guest.wait_for("kept", before + 10);
        daemon
    });
}

/// New daemons take over in the midst of the machine's requests; its hypervisor keeps its
/// connection.
fn fsynced_files_outlive_takeovers_by_vhost_user(times: usize) {
    fsynced_files_outlive(Backing::File, Attached::VhostUser, |mut daemon, guest| {
        let mut longest = 0;
        for time in 1..=times {
            let limit = ["--reservation", "none", "--limit", "20 IOPS"];
            tidegate(&daemon, &[&["vm", "set", "guest"], &limit[..]].concat());
            wait_for("requests to be in flight", || {
                let stats = tidegate_json(&daemon, &["stats", "guest"]);
                let vm = &stats["vms"][0];
                let count = |field: &str| vm[field].as_u64().expect("a number");
                count("pending") + count("in_flight") >= 4
            });
            longest = longest.max(take_over(&mut daemon));
            tidegate(&daemon, &["vm", "set", "guest", "--limit", "2000 IOPS"]);
            let before = guest.reported("kept").len();
            // More than the one that it may have been about to tell.
            guest.wait_for("kept", before + 5);
            let log = daemon.log();
            let lines = log.lines().filter(|line| line.contains("taken over"));
            let with_guest = lines.filter(|line| line.contains("connections=1")).count();
            assert_eq!(with_guest, time, "it was closed at a takeover");
            for end in ["cut off", "client gone", "front-end refused"] {
                assert!(!log.contains(end), "{end}");
            }
        }
        println!("longest pause of {times} takeovers: {longest} ms");
        daemon
    });
}

#[test]
fn fsynced_files_outlive_daemons_that_are_taken_over_by_vhost_user() {
    fsynced_files_outlive_takeovers_by_vhost_user(5);
}

#[test]
#[ignore = "fifty takeovers, some minutes"]
fn fsynced_files_outlive_daemons_that_are_taken_over_fifty_times_by_vhost_user() {
    fsynced_files_outlive_takeovers_by_vhost_user(50);
}

#[test]
fn a_guest_sees_a_resize_without_a_reboot_by_vhost_user() {
    let scratch = Scratch::new();
    let Some(kit) = Kit::new(&scratch) else {
        return;
    };
    let daemon = start(scratch, Backing::File);
    let mut guest = Guest::start(&daemon, &kit, "resized", Attached::VhostUser);
    let sizes = [DISK, DISK + 16 * MIB, DISK - 8 * MIB];
    let sectors = sizes.map(|size| (size / 512).to_string());
    guest.wait_for("sectors", 1);
    for (n, size) in sizes.iter().enumerate().skip(1) {
        let size = format!("{} MiB", size / MIB);
        tidegate(&daemon, &["vm", "resize", "guest", &size, "--shrink"]);
        guest.wait_for("sectors", n + 1);
        let disk = fs::read(daemon.path("guest.raw")).expect("a raw file");
        assert_eq!(disk.len(), sizes[n]);
        assert_eq!(disk[sizes[n] - MIB..], bytes()[..MIB], "at the new end");
    }
    guest.succeeds();
    assert_eq!(guest.reported("sectors"), sectors);
    daemon.stop();
}

/// A machine writes while the daemon is killed in the midst of its requests, `kills` times; then
/// the machine is killed, too. The next one finds a sound file system and all files that were
/// fsynced.
fn fsynced_files_outlive_kills_by_vhost_user(kills: usize) {
    fsynced_files_outlive(Backing::File, Attached::VhostUser, |mut daemon, guest| {
        for kill in 1..=kills {
            // The configuration, and so the next daemon, has a higher limit.
            let limit = ["--reservation", "none", "--limit", "20 IOPS"];
            tidegate(&daemon, &[&["vm", "set", "guest"], &limit[..]].concat());
            wait_for("requests to be in flight", || {
                let stats = tidegate_json(&daemon, &["stats", "guest"]);
                let vm = &stats["vms"][0];
                let count = |field: &str| vm[field].as_u64().expect("a number");
                count("pending") + count("in_flight") >= 4
            });
            daemon = daemon.crash();
            let before = guest.reported("kept").len();
            // More than the one that it may have been about to tell.
            guest.wait_for("kept", before + 5);
            let recovered = daemon.log().matches("are done again").count();
            assert!(recovered >= kill, "{recovered} queues after {kill} kills");
        }
        daemon
    });
}

#[test]
fn fsynced_files_outlive_a_daemon_that_is_killed_by_vhost_user() {
    for _ in 0..2 {
        fsynced_files_outlive_kills_by_vhost_user(2);
    }
}

#[test]
#[ignore = "twenty pairs of machines, some fifteen minutes"]
fn fsynced_files_outlive_a_daemon_that_is_killed_twenty_times_by_vhost_user() {
    for _ in 0..20 {
        fsynced_files_outlive_kills_by_vhost_user(3);
    }
}
