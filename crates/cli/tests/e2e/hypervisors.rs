//! Output of `tidegate export`, taken by the hypervisors that it is for.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, Scratch, wait_at_most, wait_for};
use crate::guest::{TEXT, image};
use crate::tool::{Running, arg, have, qemu_io, run, skipped};

/// Starts a daemon with two VMs of two disks each. One disk of `a` is read-only and has a name that
/// needs quotes everywhere; one of `b` is offered over TCP, too.
fn start() -> Daemon {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("it is bound").port()
    };
    let backing = Backing::Memory;
    Daemon::start(
        &[
            format!("[[listen]]\ntcp = \"127.0.0.1:{port}\"\nexports = [\"tcp\"]\n"),
            backing.device(""),
            backing.vm("a", "16 MiB", ""),
            backing.disk("l'ogs, <old>", "16 MiB", "read_only = true"),
            backing.vm("b", "16 MiB", ""),
            backing.disk("tcp", "16 MiB", ""),
        ]
        .concat(),
    )
}

/// Number of connections to a VM.
fn connections(daemon: &Daemon, vm: &str) -> u64 {
    let vm = tidegate_json(daemon, &["vm", "show", vm]);
    vm["clients"].as_u64().expect("a number")
}

/// Arguments of a machine that does nothing, before those of its disks.
const MACHINE: [&str; 8] = [
    "-accel",
    "tcg",
    "-m",
    "64",
    "-S",
    "-nodefaults",
    "-display",
    "none",
];

/// Waits until QEMU has opened `count` disks of a VM, and ends it.
fn opens(daemon: &Daemon, mut qemu: Running, vm: &str, count: u64) {
    wait_for("QEMU to open the disks", || {
        assert!(qemu.is_running(), "QEMU ended: {}", qemu.err());
        connections(daemon, vm) == count
    });
    qemu.kill();
    wait_for("the disks to be closed", || connections(daemon, vm) == 0);
}

#[test]
fn qemu_takes_the_arguments_as_a_list() {
    if !have(&["qemu-system-x86_64"]) {
        return;
    }
    let daemon = start();
    for (vm, options, count) in [
        ("a", &[][..], 2),
        ("a", &["--disk", "a"], 1),
        ("b", &[], 2),
        ("b", &["--disk", "tcp", "--config", "tidegate.toml"], 1),
    ] {
        let report = tidegate_json(&daemon, &[&["export", "qemu", vm], options].concat());
        let arguments = report["arguments"].as_array().expect("a list");
        let arguments = arguments.iter().map(|word| word.as_str().expect("text"));
        let all: Vec<_> = MACHINE.into_iter().chain(arguments).collect();
        let qemu = Running::start(daemon.scratch(), "qemu-system-x86_64", &all);
        opens(&daemon, qemu, vm, count);
    }
    daemon.stop();
}

#[test]
fn a_shell_takes_the_arguments_as_text() {
    if !have(&["qemu-system-x86_64"]) {
        return;
    }
    let daemon = start();
    let printed = tidegate(&daemon, &["export", "qemu", "a"]);
    let line = format!("exec qemu-system-x86_64 {} {printed}", MACHINE.join(" "));
    let qemu = Running::start(daemon.scratch(), "sh", &["-c", &line]);
    opens(&daemon, qemu, "a", 2);
    daemon.stop();
}

/// A domain with elements below `<domain>` and below its `<devices>`. Its serial port writes into
/// `serial`, and the guest of [`image`] ends it.
fn domain(top: &str, devices: &str, serial: &str) -> String {
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>tidegate</name>
<memory unit='MiB'>64</memory>
{top}<os><type arch='x86_64'>hvm</type></os>
<devices>
<emulator>/usr/bin/qemu-system-x86_64</emulator>
{devices}<serial type='file'><source path='{serial}'/></serial>
</devices>
<qemu:commandline>
<qemu:arg value='-device'/>
<qemu:arg value='isa-debug-exit,iobase=0xf4,iosize=1'/>
</qemu:commandline>
</domain>
"
    )
}

/// Writes a domain whose disks are `devices`.
fn write_domain(scratch: &Scratch, top: &str, devices: &str) -> String {
    let file = scratch.join("domain.xml");
    let serial = scratch.join("serial");
    fs::write(&file, domain(top, devices, arg(&serial))).expect("the directory is ours");
    arg(&file).to_owned()
}

/// Asserts that libvirt's schema accepts a domain with these disks, and that it would refuse an
/// attribute that it does not know.
fn validate(scratch: &Scratch, top: &str, devices: &str) {
    let file = write_domain(scratch, top, devices);
    run(scratch, "virt-xml-validate", &[&file, "domain"]);
    let file = write_domain(scratch, top, &devices.replace("type='raw'", "types='raw'"));
    let refused = Running::start(scratch, "virt-xml-validate", &[&file, "domain"]).wait();
    assert!(!refused.status.success(), "{devices}");
}

#[test]
fn libvirts_schema_accepts_the_disks() {
    if !have(&["virt-xml-validate", "xmllint"]) {
        return;
    }
    let daemon = start();
    for words in [
        &["export", "libvirt", "a"][..],
        &["export", "libvirt", "b", "--target", "vda"],
        &[
            "export",
            "libvirt",
            "b",
            "--disk",
            "tcp",
            "--listener",
            "nbd",
        ],
    ] {
        let printed = tidegate(&daemon, &[words, &["--no-reconnect"]].concat());
        validate(daemon.scratch(), "", &printed);
        // All that libvirt 9.0 has not in its schema.
        let whole = tidegate(&daemon, words);
        let lines = whole.lines().filter(|line| !line.contains("<reconnect "));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            printed.lines().collect::<Vec<_>>()
        );
        assert_ne!(whole, printed);
    }
    daemon.stop();
}

/// Time that a domain gets. Before it starts one, libvirt runs QEMU several times to learn what it
/// can, which was seen to take more than a minute on a machine with other loads.
const PATIENCE: Duration = Duration::from_secs(300);

/// Settings of libvirt's QEMU driver for a machine on which only its package was unpacked.
const QEMU_CONF: &str = "user = \"root\"
group = \"root\"
dynamic_ownership = 0
remember_owner = 0
stdio_handler = \"file\"
security_driver = \"none\"
cgroup_controllers = []
namespaces = []
";

/// Runs a domain with libvirt's QEMU driver, without its daemon. The driver looks up a user that
/// only other packages make, so that it gets one in a mount namespace of its own. The shell stays,
/// because the first process of a namespace has to reap the QEMUs that the driver tries.
const RUN: &str = "
cp /etc/passwd passwd && cp /etc/group group || exit 77
echo 'libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin' >> passwd
echo 'libvirt-qemu:x:64055:' >> group
mount --bind passwd /etc/passwd && mount --bind group /etc/group || exit 77
virt-qemu-run --root \"$PWD/libvirt\" --verbose domain.xml
exit $?
";

/// Boots a domain with these disks, the first of which is that of [`image`]; false if this machine
/// cannot, which is said.
fn boots(scratch: &Scratch, top: &str, devices: &str) -> bool {
    let is_root = run(scratch, "id", &["-u"]).trim() == "0";
    if !is_root {
        skipped("needs root, for a mount namespace");
        return false;
    }
    fs::create_dir_all(scratch.join("libvirt/etc")).expect("the directory is ours");
    fs::write(scratch.join("libvirt/etc/qemu.conf"), QEMU_CONF).expect("the directory is ours");
    write_domain(scratch, top, devices);
    // A namespace of processes, so that QEMU, which is nobody's child, ends with the test.
    let words = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let words = [&words[..], &["sh", "-c", RUN]].concat();
    let mut libvirt = Running::start(scratch, "unshare", &words);
    let text = |name: &str| fs::read_to_string(scratch.join(name)).unwrap_or_default();
    // The program goes on when a guest ends by itself, but writes this into the guest's log.
    let ended = || text("libvirt/log/qemu/tidegate.log").contains("shutting down");
    wait_at_most(PATIENCE, "the guest to end", || {
        ended() || !libvirt.is_running()
    });
    if !ended() {
        let done = libvirt.wait();
        let unable = done.status.code() == Some(77) || done.err.starts_with("unshare:");
        assert!(unable, "{}{}", done.out, done.err);
        skipped("needs mount namespaces");
        return false;
    }
    let serial = text("serial");
    assert!(serial.contains(TEXT), "{serial}\n{}", libvirt.err());
    true
}

/// Programs with which [`boots`] works.
const LIBVIRT: [&str; 4] = ["virt-qemu-run", "qemu-system-x86_64", "unshare", "mount"];

#[test]
fn a_domain_of_libvirt_boots_from_an_nbd_disk() {
    if !have(&LIBVIRT) || !have(&["nbdcopy", "qemu-io"]) {
        return;
    }
    let backing = Backing::Memory;
    let daemon = Daemon::start(&[backing.device(""), backing.vm("a", "16 MiB", "")].concat());
    let scratch = daemon.scratch();
    run(
        scratch,
        "nbdcopy",
        &[arg(&image(scratch)), &daemon.uri("a")],
    );
    let printed = tidegate(&daemon, &["export", "libvirt", "a", "--target", "vda"]);
    if boots(scratch, "", &printed) {
        // The guest has copied its text to the next sector.
        let first = format!("read -P {} 1024 1", TEXT.as_bytes()[0]);
        qemu_io(scratch, &daemon.uri("a"), &[&first]);
    }
    daemon.stop();
}

#[test]
fn hypervisors_take_a_vhost_user_disk() {
    if !have(&LIBVIRT) || !have(&["nbdcopy", "virt-xml-validate", "xmllint"]) {
        return;
    }
    let backing = Backing::Memory;
    let config = [
        "[[listen]]\nvhost_user = \"{disk}.vhost\"\n",
        &backing.device(""),
        &backing.vm("a", "16 MiB", ""),
    ];
    let daemon = Daemon::start(&config.concat());
    let scratch = daemon.scratch();
    run(
        scratch,
        "nbdcopy",
        &[arg(&image(scratch)), &daemon.uri("a")],
    );
    let export = |words: &[&str]| tidegate_json(&daemon, &[&["export"], words].concat());
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();

    let printed = export(&["libvirt", "a", "--target", "vda"]);
    let disk = &printed["disks"][0];
    assert_eq!(disk["protocol"], "vhost-user", "{printed}");
    let (top, disk) = (text(&printed["domain_xml"]), text(&disk["xml"]));
    validate(scratch, &top, &disk);
    boots(scratch, &top, &disk);

    let printed = export(&["qemu", "a", "--memory", "64 MiB"]);
    let arguments = printed["arguments"].as_array().expect("a list");
    let arguments: Vec<_> = arguments.iter().map(text).collect();
    let machine = ["-accel", "tcg", "-nodefaults", "-display", "none"];
    let exit = ["-device", "isa-debug-exit,iobase=0xf4,iosize=1"];
    let words: Vec<_> = (machine.into_iter().chain(exit))
        .chain(arguments.iter().map(String::as_str))
        .collect();
    let done = Running::start(scratch, "qemu-system-x86_64", &words).wait();
    // QEMU ends with twice the guest's number and one.
    assert_eq!(done.status.code(), Some(0x21), "{}", done.err);
    daemon.stop();
}
