//! `serve --file`, `init` and `doctor`: a host without a configuration.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{drain_stderr, stderr, stdout, tidegate};

/// Runs the program with a runtime directory of its own. As root sockets have names in it, too.
fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).current_dir(dir);
    command
        .env("XDG_RUNTIME_DIR", dir)
        .env_remove("TIDEGATE_SOCKET");
    command
}

/// Daemon that is ended when the test ends, also by a panic.
struct Served {
    child: Child,
    lines: String,
}

impl Served {
    /// Starts `serve --file` and reads what it prints, until it has said how to watch it.
    fn start(dir: &Path, args: &[&str]) -> Served {
        let mut command = command(dir, &[&["serve"], args].concat());
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.expect("the binary runs");
        let mut printed = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = String::new();
        while !lines.contains("tidegate vm set") {
            if printed.read_line(&mut lines).expect("readable") == 0 {
                let mut log = String::new();
                let mut stderr = child.stderr.take().expect("piped");
                stderr.read_to_string(&mut log).expect("text");
                panic!("the daemon ended: {log}");
            }
        }
        drain_stderr(BufReader::new(child.stderr.take().expect("piped")));
        Served { child, lines }
    }

    fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_disk_is_served_without_a_file_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path();
    let served = Served::start(
        base,
        &[
            "--file",
            "disk.raw",
            "--size",
            "8 MiB",
            "--limit",
            "40 MB/s",
            "--listen",
            "n.sock",
            "--control-socket",
            "c.sock",
        ],
    );
    let at = |name: &str| base.join(name).display().to_string();
    let uri = format!("  nbd+unix:///disk?socket={}\n", at("n.sock"));
    assert!(served.lines.contains(&uri), "{}", served.lines);
    let socket = at("c.sock");
    let export = format!("export TIDEGATE_SOCKET={socket}\n");
    assert!(served.lines.contains(&export), "{}", served.lines);
    let qemu = stdout(&tidegate(&["--socket", &socket, "export", "qemu", "disk"]));
    assert!(
        !qemu.is_empty() && served.lines.contains(&qemu),
        "{}",
        served.lines
    );
    let set = tidegate(&[
        "--socket", &socket, "vm", "set", "disk", "--limit", "50 MB/s",
    ]);
    assert!(set.status.success(), "{}", stderr(&set));
    served.stop();
    let left: Vec<_> = fs::read_dir(base).expect("there").flatten().collect();
    let left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["disk.raw"]);
}

#[test]
fn several_disks_are_vms_with_the_same_objective() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a b.raw", "other"] {
        fs::write(dir.path().join(name), vec![0; 1 << 20]).expect("writable");
    }
    let served = Served::start(
        dir.path(),
        &[
            "--file",
            "a b.raw",
            "--file",
            "other",
            "--weight",
            "7",
            "--read-only",
            "--listen",
            "127.0.0.1:0",
            "--control-socket",
            "c.sock",
        ],
    );
    let socket = dir.path().join("c.sock").display().to_string();
    let shown = stdout(&tidegate(&[
        "--socket", &socket, "-o", "json", "vm", "list",
    ]));
    for part in ["\"a-b\"", "\"other\"", "\"weight\": 7"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    served.stop();
}

#[test]
fn what_would_be_served_is_printed_as_a_configuration_that_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [
        "serve",
        "--file",
        "disk.raw",
        "--size",
        "8 MiB",
        "--latency",
        "5 ms",
    ];
    let printed = command(dir.path(), &[&args[..], &["--print-config"]].concat()).output();
    let printed = printed.expect("it runs");
    assert!(printed.status.success(), "{}", stderr(&printed));
    let file = dir.path().join("t.toml");
    fs::write(&file, &printed.stdout).expect("writable");
    let checked = tidegate(&["-o", "json", "check", file.to_str().expect("text")]);
    assert!(checked.status.success(), "{}", stdout(&checked));
    let checked = stdout(&checked);
    assert!(checked.contains("\"latency\": \"5 ms\""), "{checked}");
    assert!(!dir.path().join("disk.raw").exists(), "nothing is made");
}

#[test]
fn disks_that_cannot_be_served_are_refused_in_words_of_the_command_line() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("x.qcow2"),
        [b"QFI\xfb".as_slice(), &[0; 4092]].concat(),
    )
    .expect("writable");
    for (args, parts) in [
        (
            &["--file", "none.raw"][..],
            &["where: --file", "--size \"10 GiB\" creates"][..],
        ),
        (
            &["--file", "x.qcow2"],
            &["looks like a qcow2 image", "qemu-img convert"],
        ),
        (
            &["--file", "no/none.raw", "--size", "1 MiB"],
            &["does not exist", "mkdir -p"],
        ),
        (
            &["--file", "a", "--limit", "40 MB"],
            &["limit", "did you mean \"40 MB/s\"?"],
        ),
        (
            &["t.toml", "--limit", "40 MB/s"],
            &["--limit is for disks of --file"],
        ),
        (&["t.toml", "--file", "a"], &["cannot be used with"]),
        (&[], &["required"]),
    ] {
        let sockets = ["--listen", "n.sock", "--control-socket", "c.sock"];
        let with_file = args.first() == Some(&"--file");
        let sockets = if with_file { &sockets[..] } else { &[] };
        let output = command(dir.path(), &[&["serve"], args, sockets].concat()).output();
        let output = output.expect("it runs");
        assert!(!output.status.success(), "{args:?}");
        let message = stderr(&output);
        for part in parts {
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }
}

/// A host in a directory, as the kernel describes one.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Host {
        let host = Host(tempfile::tempdir().expect("a directory"));
        host.write("/proc/sys/kernel/hostname", "fixture\n");
        host
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("one")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("one")).expect("writable");
        symlink(target, path).expect("writable");
    }

    /// Adds a disk at a place in the device tree, with its size in sectors.
    fn disk(&self, place: &str, number: &str, sectors: &str, rotational: &str, model: &str) {
        let at = |file: &str| format!("/sys/devices/{place}/{file}");
        self.write(&at("size"), sectors);
        self.write(&at("dev"), number);
        self.write(&at("queue/rotational"), rotational);
        self.write(&at("queue/scheduler"), "[none] mq-deadline\n");
        if !model.is_empty() {
            self.write(&at("device/model"), model);
        }
        let name = place.rsplit('/').next().expect("a name");
        self.link(
            &format!("/sys/block/{name}"),
            &format!("../devices/{place}"),
        );
        self.link(
            &format!("/sys/dev/block/{number}"),
            &format!("../../devices/{place}"),
        );
    }

    fn partition(&self, place: &str, number: &str) {
        self.write(&format!("/sys/devices/{place}/partition"), "1\n");
        self.write(&format!("/sys/devices/{place}/dev"), number);
    }

    /// Runs `init`; returns the configuration, which `check` accepts, also with all options.
    fn init(&self) -> String {
        let root = self.0.path().to_str().expect("text");
        let output = tidegate(&["init", "--root", root]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let is_option =
            |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
        let options = text.lines().filter(is_option).count();
        assert!(options > 10, "{text}");
        let lines = text.lines().map(|line| match is_option(&line) {
            true => &line[1..],
            false => line,
        });
        let with_options: Vec<&str> = lines.collect();
        for text in [text.clone(), with_options.join("\n")] {
            let file = self.at("t.toml");
            fs::write(&file, &text).expect("writable");
            let checked = tidegate(&["check", file.to_str().expect("text")]);
            let errors = stderr(&checked);
            // Disks of another host are not on this one.
            let missing = errors.contains("/dev/disk/by-id/");
            assert!(checked.status.success() || missing, "{errors}\n{text}");
        }
        text
    }
}

#[test]
fn a_host_with_nvme_gets_a_device_and_a_disk_that_nothing_uses() {
    let host = Host::new();
    host.disk(
        "pci0/nvme/nvme0/nvme0n1",
        "259:0",
        "2000409264\n",
        "0\n",
        "Samsung 990\n",
    );
    host.partition("pci0/nvme/nvme0/nvme0n1/nvme0n1p1", "259:1");
    host.disk(
        "pci0/nvme/nvme1/nvme1n1",
        "259:5",
        "2000409264\n",
        "0\n",
        "Samsung 990\n",
    );
    host.disk("virtual/block/loop0", "7:0", "8\n", "0\n", "");
    host.write(
        "/proc/self/mountinfo",
        "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n",
    );
    for (link, name) in [
        ("nvme-Samsung_990_S1", "nvme0n1"),
        ("nvme-eui.0025", "nvme1n1"),
        ("nvme-Samsung_990_S2", "nvme1n1"),
    ] {
        host.link(&format!("/dev/disk/by-id/{link}"), &format!("../../{name}"));
    }
    let text = host.init();
    assert!(text.contains("# nvme0n1: 954 GiB NVMe flash, Samsung 990; in use: mounted at /"));
    for part in [
        "[[device]]\nname = \"nvme0n1\"\n",
        "[[device]]\nname = \"nvme1n1\"\n",
        "#profile = \"nvme-1tb\"\n",
        "#path = \"/dev/disk/by-id/nvme-Samsung_990_S2\"\n",
        "#device = \"nvme0n1\"\n[",
    ] {
        let part = part.trim_end_matches('[');
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("nvme-Samsung_990_S1\"") && !text.contains("loop0"),
        "{text}"
    );
}

#[test]
fn disks_with_anything_on_them_are_never_proposed() {
    let host = Host::new();
    for (index, name) in ["sda", "sdb", "sdc", "sdd", "sde", "sdf"]
        .iter()
        .enumerate()
    {
        let number = format!("8:{}", index * 16);
        let rotational = if *name == "sda" { "0\n" } else { "1\n" };
        let sectors = if *name == "sdf" {
            "390721968\n"
        } else {
            "7814037168\n"
        };
        host.disk(
            &format!("pci0/ata{index}/block/{name}"),
            &number,
            sectors,
            rotational,
            "ST4000\n",
        );
        host.link(
            &format!("/dev/disk/by-id/ata-{name}"),
            &format!("../../{name}"),
        );
    }
    host.partition("pci0/ata0/block/sda/sda1", "8:1");
    host.write(
        "/run/udev/data/b8:16",
        "S:disk/by-id/x\nE:ID_FS_TYPE=LVM2_member\n",
    );
    host.write(
        "/proc/swaps",
        "Filename Type Size Used Priority\n/dev/sdc partition 1 0 -2\n",
    );
    host.disk("virtual/block/md0", "9:0", "7814037168\n", "1\n", "");
    host.write("/sys/devices/pci0/ata3/block/sdd/holders/md0/x", "");
    host.write("/sys/devices/pci0/ata4/block/sde/holders/dm-0/x", "");
    host.write("/sys/devices/pci0/ata5/block/sdf/removable", "0\n");
    let text = host.init();
    for used in ["sda", "sdb", "sdc", "sdd", "sde"] {
        assert!(
            !text.contains(&format!("by-id/ata-{used}")),
            "{used}: {text}"
        );
    }
    assert!(
        text.contains("#path = \"/dev/disk/by-id/ata-sdf\"\n"),
        "{text}"
    );
    assert!(!text.contains("name = \"sdd\""), "part of an array: {text}");
    for part in [
        "name = \"md0\"",
        "sdb has LVM2_member",
        "sdc is swap",
        "part of dm-0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for model in ["hdd-7200-1tb", "hdd-7200-250gb", "ssd-sata-300gb"] {
        assert!(
            text.contains(&format!("#profile = \"{model}\"\n")),
            "{model}: {text}"
        );
    }
}

#[test]
fn a_vm_with_virtio_disks_is_not_taken_for_one_with_hard_disks() {
    let host = Host::new();
    host.disk("pci0/virtio2/block/vda", "254:0", "83886080\n", "1\n", "");
    let text = host.init();
    assert!(
        text.contains("# vda: 40 GiB disk of a hypervisor, no model"),
        "{text}"
    );
    assert!(!text.contains("#profile"), "{text}");
    assert!(text.contains("#path = \"/dev/vda\"\n"), "{text}");
}

#[test]
fn init_replaces_a_file_only_by_force() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    let path = file.to_str().expect("text");
    assert!(tidegate(&["init", path]).status.success());
    let written = fs::read_to_string(&file).expect("written");
    let checked = tidegate(&["check", path]);
    assert!(
        checked.status.success(),
        "of this host: {}",
        stderr(&checked)
    );
    fs::write(&file, "mine").expect("writable");
    let refused = tidegate(&["init", path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&file).expect("there"), "mine");
    assert!(tidegate(&["init", path, "--force"]).status.success());
    assert_eq!(fs::read_to_string(&file).expect("there"), written);
}

#[test]
fn doctor_looks_at_this_host_and_at_a_configuration() {
    let output = tidegate(&["doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let level = |check: &str| {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding
            .map(|finding| finding["level"].clone())
            .unwrap_or_default()
    };
    // The tests of the daemon need both.
    assert_eq!(
        (level("io_uring"), level("seccomp")),
        ("ok".into(), "ok".into())
    );
    assert_eq!(report["good"] == true, output.status.success(), "{report}");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    fs::write(
        &file,
        crate::common::CONFIG.replace("nbd.sock", "no/nbd.sock"),
    )
    .expect("writable");
    let output = tidegate(&["doctor", file.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(
        text.contains("fail  socket listen[0]: ") && text.contains("mend: mkdir -p"),
        "{text}"
    );
    assert!(
        stderr(&output).contains("1 check failed"),
        "{}",
        stderr(&output)
    );
}
