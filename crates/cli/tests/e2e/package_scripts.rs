//! Scripts of the Debian package, run as dpkg runs them, in a directory in place of `/`.
//!
//! Debian's own program keeps the states of units there. Others only note what they are asked for.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::daemon::Scratch;
use crate::tool::{have, skipped};

/// Programs of which a call is noted, and nothing more.
const NOTED: [&str; 7] = [
    "systemctl",
    "deb-systemd-invoke",
    "journalctl",
    "systemd-sysusers",
    "systemd-sysctl",
    "chgrp",
    "chown",
];
/// Paths of the host that the scripts name.
const PATHS: [&str; 4] = [
    "/run/systemd/system",
    "/etc/systemd/system",
    "/etc/tidegate",
    "/var/lib/tidegate",
];
/// Link that enables the socket unit.
const ENABLED: &str = "etc/systemd/system/sockets.target.wants/tidegate.socket";

/// Directory in place of `/`, with the units installed.
struct Root {
    scratch: Scratch,
}

impl Root {
    fn new() -> Root {
        let root = Root {
            scratch: Scratch::new(),
        };
        let units = root.make("/usr/lib/systemd/system");
        let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
        for unit in ["tidegate.service", "tidegate.socket"] {
            fs::copy(contrib.join(unit), format!("{units}/{unit}")).expect("ours");
        }
        PATHS.iter().for_each(|path| _ = root.make(path));
        let programs = root.make("/bin");
        for name in NOTED {
            let note = format!("#!/bin/sh\necho \"{name} $*\" >>{}\n", root.at("/asked"));
            let mut options = OpenOptions::new();
            options.create_new(true).write(true).mode(0o755);
            let mut program = options.open(format!("{programs}/{name}")).expect("ours");
            program.write_all(note.as_bytes()).expect("ours");
        }
        root
    }

    /// Path in the directory of a path of the host.
    fn at(&self, path: &str) -> String {
        let path = self.scratch.join(path.trim_start_matches('/'));
        path.to_str().expect("text").to_owned()
    }

    fn make(&self, path: &str) -> String {
        let path = self.at(path);
        let made = DirBuilder::new().recursive(true).create(&path);
        made.expect("the directory is ours");
        path
    }

    /// Runs a script of the package, and returns what it asked of units.
    fn run(&self, script: &str, args: &[&str]) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../contrib/deb/scripts")
            .join(script);
        let mut text = fs::read_to_string(path).expect("in the source");
        text = text.replace("/lib/systemd/systemd-sysctl", "systemd-sysctl");
        for path in PATHS {
            text = text.replace(path, &self.at(path));
        }
        let copy = self.at(script);
        fs::write(&copy, text).expect("ours");
        let _ = fs::remove_file(self.at("/asked"));
        let programs = std::env::var("PATH").expect("there is one");
        let output = Command::new("sh")
            .arg(&copy)
            .args(args)
            .env("PATH", format!("{}:{programs}", self.at("/bin")))
            .env("DPKG_ROOT", self.at("/"))
            .env("DPKG_MAINTSCRIPT_PACKAGE", "tidegate")
            .env("DPKG_MAINTSCRIPT_NAME", script)
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{script} {args:?}: {output:?}");
        let asked = fs::read_to_string(self.at("/asked")).unwrap_or_default();
        let of_units = |line: &&str| line.starts_with("deb-systemd-invoke ");
        asked.lines().filter(of_units).map(str::to_owned).collect()
    }

    fn enable_socket(&self) {
        self.make("/etc/systemd/system/sockets.target.wants");
        symlink("/usr/lib/systemd/system/tidegate.socket", self.at(ENABLED)).expect("ours");
    }

    fn has_link(&self, path: &str) -> bool {
        fs::symlink_metadata(self.at(path)).is_ok()
    }
}

/// Returns true if Debian's program for states of units is here, and keeps them in the directory
/// that it is given. The test is skipped otherwise: the units of this machine are not ours.
fn have_helper() -> bool {
    const HELPER: &str = "deb-systemd-helper";
    if !have(&[HELPER]) {
        return false;
    }
    let text = fs::read_to_string(format!("/usr/bin/{HELPER}")).unwrap_or_default();
    let is_confined = text.contains("DPKG_ROOT");
    if !is_confined {
        skipped("this deb-systemd-helper knows no DPKG_ROOT");
    }
    is_confined
}

/// Calls by which the package starts the daemon, and has it taken over.
const START: &str = "deb-systemd-invoke start tidegate.service";
const RELOAD: &str = "deb-systemd-invoke reload tidegate.service";

#[test]
fn an_upgrade_hands_over_and_what_is_given_up_does_not() {
    if !have_helper() {
        return;
    }
    let root = Root::new();
    assert_eq!(root.run("postinst", &["configure", ""]), [START]);
    assert_eq!(root.run("prerm", &["upgrade", "2"]), [""; 0]);
    assert_eq!(root.run("postinst", &["configure", "1"]), [RELOAD]);
    // The daemon was not touched before these.
    for given_up in ["abort-upgrade", "abort-deconfigure"] {
        assert_eq!(
            root.run("postinst", &[given_up, "1"]),
            [""; 0],
            "{given_up}"
        );
    }
    let stop = "deb-systemd-invoke stop tidegate.socket tidegate.service";
    let in_favour = ["in-favour", "other", "1"];
    let remove = [&["remove"], &in_favour[..]].concat();
    assert_eq!(root.run("prerm", &remove), [stop]);
    let start = "deb-systemd-invoke start tidegate.socket tidegate.service";
    let given_up = [&["abort-remove"], &in_favour[..]].concat();
    assert_eq!(root.run("postinst", &given_up), [start]);
    // After a removal no daemon runs that could be taken over.
    root.run("prerm", &["remove"]);
    root.run("postrm", &["remove"]);
    assert_eq!(root.run("postinst", &["configure", "1"]), [START]);
}

#[test]
fn purging_leaves_no_link_to_a_unit() {
    if !have_helper() {
        return;
    }
    let root = Root::new();
    root.run("postinst", &["configure", ""]);
    root.enable_socket();
    root.run("prerm", &["remove"]);
    root.run("postrm", &["remove"]);
    let masks =
        ["tidegate.service", "tidegate.socket"].map(|it| format!("etc/systemd/system/{it}"));
    assert!(masks.iter().all(|mask| root.has_link(mask)), "masked");
    root.run("postrm", &["purge"]);
    assert!(!root.has_link(ENABLED), "the link that enables the socket");
    assert!(!masks.iter().any(|mask| root.has_link(mask)), "masks");
}
