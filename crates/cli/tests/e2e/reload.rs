//! SIGHUP: the daemon reads its configuration again under load, applies what it can, and says what
//! needs a restart.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};
use crate::takeover::{Client, take_over};

/// Line at the end of a SIGHUP that was handled.
const READ_AGAIN: &str = "SIGHUP: the configuration was read again";
/// Line of one whose file could not be used.
const NOT_READ: &str = "SIGHUP: the configuration was not read again";

/// Client that reads and writes until it is told to end.
struct Load {
    ends: Arc<AtomicBool>,
    client: JoinHandle<usize>,
}

impl Load {
    fn start(daemon: &Daemon, export: &str) -> Load {
        let mut client = Client::new(daemon, export);
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let client = thread::spawn(move || {
            let mut rounds = 0;
            while !told.load(Ordering::Relaxed) {
                let block = rounds % client.blocks.len();
                let write = client.write(block, rounds as u8);
                client.send(&write);
                assert_eq!(client.receive(), block as u64);
                client.check();
                rounds += 1;
            }
            rounds
        });
        Load { ends, client }
    }

    /// Ends the client, which has seen no error, and returns how often it has written.
    fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        self.client.join().expect("it saw an error")
    }
}

/// Replaces text of the configuration, which has it once.
fn edit(daemon: &Daemon, edits: &[(&str, &str)]) {
    let path = daemon.path("tidegate.toml");
    let mut text = fs::read_to_string(&path).expect("it is there");
    for (before, now) in edits {
        assert_eq!(text.matches(before).count(), 1, "{before}");
        text = text.replace(before, now);
    }
    fs::write(&path, text).expect("writable");
}

/// Returns how many lines of the log contain this.
fn count(daemon: &Daemon, what: &str) -> usize {
    daemon.log().matches(what).count()
}

/// Sends SIGHUP, waits until it was handled, and returns the summary.
fn hang_up(daemon: &Daemon) -> String {
    let before = count(daemon, READ_AGAIN);
    daemon.signal("HUP");
    wait_for("SIGHUP", || count(daemon, READ_AGAIN) > before);
    let log = daemon.log();
    let line = log.lines().rev().find(|line| line.contains(READ_AGAIN));
    line.expect("waited for").to_owned()
}

fn names(daemon: &Daemon) -> Vec<String> {
    let list = tidegate_json(daemon, &["vm", "list"]);
    let vms = list.as_array().expect("a list").iter();
    vms.map(|vm| vm["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn show(daemon: &Daemon, vm: &str) -> Value {
    tidegate_json(daemon, &["vm", "show", vm])
}

fn limit(daemon: &Daemon, vm: &str) -> Value {
    show(daemon, vm)["objective"]["limit"]["total"].clone()
}

/// A VM with one disk and a limit.
fn limited(name: &str, iops: &str) -> String {
    let objective = format!("[vm.objective]\nlimit = \"{iops} IOPS\"\n");
    Backing::File.vm(name, "1 MiB", &objective)
}

#[test]
fn an_edited_file_is_applied_under_load_and_a_wrong_one_changes_nothing() {
    let device = Backing::File.device(
        "depth = 8\npolicy = \"limit\"\n[[device.limit_group]]\nname = \"logs\"\n\
         limit = \"900 MB/s\"",
    );
    let config = [device, limited("a", "20000"), limited("b", "5000")].concat();
    let mut daemon = Daemon::start(&config);
    let load = Load::start(&daemon, "a");
    let same = hang_up(&daemon);
    assert!(
        same.contains("changed=0") && same.contains("restart=0"),
        "{same}"
    );

    let added = Backing::File.vm("c", "1 MiB", "limit_group = \"logs\"");
    edit(
        &daemon,
        &[
            ("20000 IOPS", "30000 IOPS"),
            (&limited("b", "5000"), &added),
            ("depth = 8", "depth = 16"),
            ("900 MB/s", "800 MB/s"),
        ],
    );
    let summary = hang_up(&daemon);
    let expected = "added=1 changed=1 removed=1 of_devices=1 refused=0 restart=1";
    assert!(summary.contains(expected), "{summary}");
    assert_eq!(names(&daemon), ["a", "c"]);
    assert_eq!(limit(&daemon, "a"), "30000 IOPS");
    let device = || tidegate_json(&daemon, &["device", "show", "disk"]);
    assert_eq!(device()["limit_groups"][0]["limit"]["total"], "800 MB/s");
    assert_eq!(device()["depth"], 8, "{}", device());
    for line in [
        [
            "WARN",
            "[[device]] disk: depth changed",
            "`tidegate serve --takeover`",
        ],
        ["SIGHUP: VM changed: objective", "vm=\"a\"", ""],
        ["SIGHUP: VM added", "vm=\"c\"", ""],
        ["SIGHUP: VM removed", "vm=\"b\"", ""],
    ] {
        assert!(daemon.logged(&line), "{line:?}");
    }
    Client::new(&daemon, "c").check();

    check_wrong_file(&daemon);
    assert!(load.end() > 0, "it was not at work");

    // A takeover gives the same, with what needed it.
    take_over(&mut daemon);
    assert_eq!(names(&daemon), ["a", "c"]);
    assert_eq!(limit(&daemon, "a"), "30000 IOPS");
    let device = tidegate_json(&daemon, &["device", "show", "disk"]);
    assert_eq!(device["limit_groups"][0]["limit"]["total"], "800 MB/s");
    assert_eq!(device["depth"], 16, "{device}");
    daemon.stop();
}

/// Checks that a file with mistakes changes nothing, and leaves the file as it was.
fn check_wrong_file(daemon: &Daemon) {
    edit(
        daemon,
        &[
            ("30000 IOPS", "30000"),
            ("path = \"c.raw\"", "pth = \"c.raw\""),
        ],
    );
    daemon.signal("HUP");
    wait_for("the refusal", || count(daemon, NOT_READ) == 1);
    let errors = daemon.log().matches(" ERROR ").count();
    assert!(errors >= 3, "one line for each mistake, and the outcome");
    assert!(daemon.logged(&["pth", "tidegate.toml", "line="]));
    assert_eq!(names(daemon), ["a", "c"]);
    assert_eq!(limit(daemon, "a"), "30000 IOPS");
    edit(
        daemon,
        &[
            ("\"30000\"", "\"30000 IOPS\""),
            ("pth = \"c.raw\"", "path = \"c.raw\""),
        ],
    );
    // Keys that need a restart are said again; the rest is in force.
    let again = hang_up(daemon);
    assert!(
        again.contains("changed=0") && again.contains("restart=1"),
        "{again}"
    );
}

#[test]
fn what_was_changed_by_command_stays_unless_the_section_was_edited() {
    let store = "[store]\npath = \"store\"\n".to_owned();
    let vms = ["a", "b", "c", "gone"].map(|name| limited(name, "1000"));
    let config = [
        store,
        Backing::File.device("policy = \"limit\""),
        vms.concat(),
    ]
    .concat();
    let mut daemon = Daemon::start(&config);
    tidegate(&daemon, &["vm", "set", "a", "--limit", "700 IOPS"]);
    tidegate(&daemon, &["vm", "set", "b", "--limit", "700 IOPS"]);
    tidegate(
        &daemon,
        &["vm", "set", "c", "--limit", "700 IOPS", "--persist"],
    );
    tidegate(&daemon, &["vm", "remove", "gone"]);
    let logs = Backing::File.disk("b-logs", "1 MiB", "");
    edit(
        &daemon,
        &[
            (&limited("b", "1000"), &(limited("b", "900") + &logs)),
            (&limited("c", "1000"), &limited("c", "900")),
        ],
    );
    let check = |daemon: &Daemon| {
        assert_eq!(names(daemon), ["a", "b", "c"]);
        let limits = ["a", "b", "c"].map(|vm| limit(daemon, vm));
        assert_eq!(limits, ["700 IOPS", "900 IOPS", "700 IOPS"]);
        let disks = show(daemon, "b")["disks"].as_array().map(Vec::len);
        assert_eq!(disks, Some(2));
    };
    // Several at once: each edit is found by the last one at the latest.
    (0..5).for_each(|_| daemon.signal("HUP"));
    let summary = hang_up(&daemon);
    assert!(summary.contains("refused=0"), "{summary}");
    check(&daemon);
    assert!(daemon.logged(&["vm=\"c\"", "the objective in the store replaces"]));
    take_over(&mut daemon);
    check(&daemon);

    // A VM that the store has, too, is served on.
    let add = "export=d,path=d.raw,size=1 MiB,create=sparse";
    tidegate(&daemon, &["vm", "add", "d", "--disk", add, "--persist"]);
    let path = daemon.path("tidegate.toml");
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.clone() + &limited("d", "500")).expect("writable");
    hang_up(&daemon);
    assert_eq!(limit(&daemon, "d"), "500 IOPS");
    fs::write(&path, text).expect("writable");
    hang_up(&daemon);
    assert_eq!(names(&daemon), ["a", "b", "c", "d"]);
    assert!(daemon.logged(&["vm=\"d\"", "served by the store"]));
    daemon.stop();
}

#[test]
fn a_vm_with_a_client_is_neither_removed_nor_served_anew() {
    let config = [
        Backing::File.device(""),
        limited("a", "1000"),
        limited("b", "1000"),
    ]
    .concat();
    let daemon = Daemon::start(&config);
    let mut client = Client::new(&daemon, "b");
    edit(&daemon, &[(&limited("b", "1000"), "")]);
    let summary = hang_up(&daemon);
    assert!(
        summary.contains("removed=0") && summary.contains("refused=1"),
        "{summary}"
    );
    assert!(daemon.logged(&["ERROR", "VM \"b\", which the file has no more, stays"]));
    client.check();
    drop(client);
    wait_for("the client to leave", || show(&daemon, "b")["clients"] == 0);
    let summary = hang_up(&daemon);
    assert!(
        summary.contains("removed=1") && summary.contains("refused=0"),
        "{summary}"
    );
    assert_eq!(names(&daemon), ["a"]);
    // A process of the host begins anew, as no client is connected.
    edit(
        &daemon,
        &[("name = \"a\"", "name = \"a\"\nbackground = true")],
    );
    let summary = hang_up(&daemon);
    assert!(
        summary.contains("changed=1") && summary.contains("restart=0"),
        "{summary}"
    );
    assert_eq!(show(&daemon, "a")["background"], true);
    let _client = Client::new(&daemon, "a");
    edit(&daemon, &[("background = true", "background = false")]);
    let summary = hang_up(&daemon);
    assert!(
        summary.contains("changed=0") && summary.contains("restart=1"),
        "{summary}"
    );
    assert!(daemon.logged(&["[[vm]] a: background changed"]));
    daemon.stop();
}

#[test]
fn promises_have_to_fit_the_device_with_all_that_the_file_changes() {
    let backing = Backing::Emulated;
    let promised = |name: &str, iops: u32| {
        let objective = format!(
            "[vm.objective]\nreservation = \"{iops} IOPS\"\nexpects = {{ reads = \"100 %\" }}\n"
        );
        backing.vm(name, "8 MiB", &objective)
    };
    let device = backing.device("profile = \"hdd-7200-1tb\"\ndepth = 1");
    let daemon = Daemon::start(&[device, promised("a", 10), promised("b", 40)].concat());
    let reservations =
        || ["a", "b"].map(|vm| show(&daemon, vm)["objective"]["reservation"].clone());
    // Only once the second VM has given up what the first one asks for.
    edit(
        &daemon,
        &[
            (&promised("a", 10), &promised("a", 45)),
            (&promised("b", 40), &promised("b", 5)),
        ],
    );
    let summary = hang_up(&daemon);
    assert!(
        summary.contains("changed=2") && summary.contains("refused=0"),
        "{summary}"
    );
    assert_eq!(reservations(), ["45 IOPS", "5 IOPS"]);
    edit(&daemon, &[(&promised("b", 5), &promised("b", 60))]);
    for _ in 0..2 {
        let summary = hang_up(&daemon);
        assert!(
            summary.contains("changed=0") && summary.contains("refused=1"),
            "{summary}"
        );
        assert_eq!(reservations(), ["45 IOPS", "5 IOPS"]);
    }
    assert!(daemon.logged(&["VM \"b\" stays as it was: does not fit", "help="]));
    daemon.stop();
}
