//! Files that packages install, held against the programs that read them: manual pages, units, the
//! configuration.

use std::fs;
use std::path::Path;

use crate::daemon::Scratch;
use crate::tool::{Running, arg, have, run};

/// Width of the terminal that pages are set for.
const COLUMNS: usize = 80;

#[test]
fn manual_pages_are_set_without_warnings_and_fit_a_terminal() {
    if !have(&["groff"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = env!("CARGO_BIN_EXE_tidegate");
    run(&scratch, program, &["man", "man1"]);
    let mut pages: Vec<_> = (fs::read_dir(scratch.join("man1")).expect("it is there"))
        .map(|entry| entry.expect("readable").path())
        .collect();
    pages.sort();
    assert!(pages.len() > 50, "{} pages", pages.len());
    for page in pages {
        // What `man -l` runs, without colours and with all warnings.
        let args = ["-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=80n", arg(&page)];
        let set = Running::start(&scratch, "groff", &args).wait();
        assert!(set.status.success(), "{}: {}", page.display(), set.err);
        assert_eq!(set.err, "", "{}", page.display());
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
            assert!(set.out.lines().any(|line| line == section), "{}", set.out);
        }
        for line in set.out.lines() {
            let wide = line.chars().count();
            assert!(wide <= COLUMNS, "{}: {line}", page.display());
        }
    }
}

/// Highest exposure that `systemd-analyze security` may find, in tenths: 0 is best, 100 worst.
const EXPOSURE_MAX: &str = "20";
/// Longest stall of the machine that must not look like a hung daemon, in seconds.
const STALL_S: u64 = 30;

/// Returns the text of a file of `contrib`.
fn contrib(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn systemd_accepts_the_units_and_finds_little_exposed() {
    if !have(&["systemd-analyze"]) {
        return;
    }
    let scratch = Scratch::new();
    let unit = contrib("systemd/tidegate.service");
    let installed = "=/usr/bin/tidegate ";
    assert_eq!(unit.matches(installed).count(), 2, "{unit}");
    // The program is not installed here.
    let built = format!("={} ", env!("CARGO_BIN_EXE_tidegate"));
    let service = scratch.join("tidegate.service");
    fs::write(&service, unit.replace(installed, &built)).expect("ours");
    let socket = scratch.join("tidegate.socket");
    fs::write(&socket, contrib("systemd/tidegate.socket")).expect("ours");
    let verify = ["verify", "--man=no", arg(&service), arg(&socket)];
    let verified = Running::start(&scratch, "systemd-analyze", &verify).wait();
    assert!(verified.status.success(), "{}", verified.err);
    // Warnings, such as for keys that are not known, do not make it fail.
    let warnings = verified
        .err
        .lines()
        .filter(|line| line.contains("tidegate"));
    assert_eq!(warnings.count(), 0, "{}", verified.err);
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let security = ["security", "--offline=true", &threshold, arg(&service)];
    run(&scratch, "systemd-analyze", &security);
}

#[test]
fn the_unit_has_what_a_reload_by_takeover_needs() {
    let unit = contrib("systemd/tidegate.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
    let start = value("ExecStart=").expect("a service");
    let successor = start.replace(" serve ", " serve --takeover --detach ");
    assert_eq!(value("ExecReload="), Some(&*successor));
    assert_eq!(value("NotifyAccess="), Some("all"));
    assert_eq!(value("Environment="), Some("TIDEGATE_RELOAD=takeover"));
}

#[test]
fn a_disk_that_comes_late_finds_a_service_that_still_starts() {
    let unit = contrib("systemd/tidegate.service");
    let sections = unit.split_once("\n[Service]\n");
    let (of_unit, of_service) = sections.expect("both sections");
    // Otherwise systemd gives the service up for good after five starts in ten seconds.
    assert!(of_unit.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
    assert!(of_service.contains("\nRestart=on-failure\n"), "{unit}");
}

#[test]
fn the_watchdog_waits_longer_than_a_stall_delays_a_notification() {
    let unit = contrib("systemd/tidegate.service");
    let minutes = unit
        .lines()
        .find_map(|line| line.strip_prefix("WatchdogSec="));
    let minutes = minutes.and_then(|time| time.strip_suffix("min"));
    let seconds = 60
        * minutes
            .expect("in minutes")
            .parse::<u64>()
            .expect("a number");
    // The last notification is half of it old when the stall begins.
    assert!(seconds / 2 > STALL_S, "{seconds} s");
    assert!(
        unit.contains("\nNotifyAccess=all\n") && unit.contains("\nType=notify\n"),
        "{unit}"
    );
}

#[test]
fn the_configuration_of_packages_is_accepted_and_has_the_socket_of_the_socket_unit() {
    let scratch = Scratch::new();
    let file = scratch.join("tidegate.toml");
    let group = "group = \"kvm\"";
    let text = contrib("deb/tidegate.toml");
    assert!(text.contains(group), "{text}");
    // Not every machine has that group.
    let text = text.replace(group, "group = \"0\"");
    fs::write(&file, &text).expect("ours");
    run(
        &scratch,
        env!("CARGO_BIN_EXE_tidegate"),
        &["check", arg(&file)],
    );
    // With the example that is commented out, as well.
    let example = text.replace("\n#[[", "\n[[").replace("\n#[", "\n[");
    let keys = ["name", "reservation", "latency", "path", "size", "create"];
    let example = keys.iter().fold(example, |text, key| {
        assert!(text.contains(&format!("\n#{key} = ")), "{text}");
        text.replace(&format!("\n#{key} = "), &format!("\n{key} = "))
    });
    assert!(
        !example
            .lines()
            .any(|line| line.starts_with("#[") || line.starts_with("#name"))
    );
    fs::write(&file, example).expect("ours");
    run(
        &scratch,
        env!("CARGO_BIN_EXE_tidegate"),
        &["check", arg(&file)],
    );
    let unit = contrib("systemd/tidegate.socket");
    let path = unit
        .lines()
        .find_map(|line| line.strip_prefix("ListenStream="));
    assert!(
        text.contains(&format!("unix = {:?}", path.expect("a path"))),
        "{text}"
    );
}
