//! The story of `examples/nine-vms.toml`, served: nine VMs on one spindle, one of them etcd, with
//! limits that never bind and one that hurts, and a backup that begins. `explain` says why VMs are
//! slow, `whatif --choose` finds objectives on a recording of the daemon, and etcd's promise holds
//! once they are in force. With `--nocapture` it prints what the commands say, as docs/explain.md
//! has it.

use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::choose::words;
use crate::common::live::{Daemon, Guests, scattered, until};

const CONFIG: &str = r#"
[control]
socket = "control.sock"
[[listen]]
unix = "nbd.sock"
[store]
path = "state.redb"
[recording]
devices = ["disk0"]
[[device]]
name = "disk0"
kind = "emulated"
model = "hdd-7200-1tb"
policy = "limit"
[[vm]]
name = "etcd"
[[vm.disk]]
size = "8 GiB"
[vm.objective]
latency = "300 ms"
limit = "12 IOPS"
expects = { iops = 15, burst = 2 }
[[vm]]
name = "backup"
[[vm.disk]]
size = "200 GiB"
[[vm]]
name = "mail"
objective = { limit = "60 IOPS" }
[[vm.disk]]
size = "40 GiB"
"#;

/// VMs whose limit never binds.
const WEB: [&str; 6] = ["web1", "web2", "web3", "web4", "web5", "web6"];

fn config() -> String {
    let web = WEB.map(|name| {
        format!(
            "[[vm]]\nname = \"{name}\"\nobjective = {{ limit = \"500 IOPS\" }}\n\
             [[vm.disk]]\nsize = \"10 GiB\"\n"
        )
    });
    format!("{CONFIG}{}", web.concat())
}

/// Lets a guest think for up to twice a mean time, by the number of its request.
fn think(number: u64, mean_ms: u64) {
    let part = scattered(number + 1, 2 * mean_ms * 4096) / 4096;
    thread::sleep(Duration::from_millis(part));
}

/// Begins all guests but the backup.
fn begin(dir: &Path, guests: &mut Guests) {
    // Fifteen commits a second, by the clock: more than etcd's limit.
    guests.begin_by_the_clock(dir, "etcd", Duration::from_nanos(1_000_000_000 / 15));
    for stream in 0..2 {
        guests.begin(dir, "mail", move |disk, number| {
            think(number, 100);
            let place = scattered(2 * number + stream, 39 << 30);
            if number % 2 == 0 {
                disk.read(place, 8192)
            } else {
                disk.write(place, 8192)
            }
        });
    }
    for vm in WEB {
        guests.begin(dir, vm, |disk, number| {
            think(number, 300);
            disk.read(scattered(number, 9 << 30), 8192)
        });
    }
}

/// Begins the backup.
fn begin_backup(dir: &Path, guests: &mut Guests) {
    for stream in 0..16 {
        // A few hundred places, which is what the daemon keeps in memory.
        guests.begin(dir, "backup", move |disk, number| {
            let place = stream * 32 + number % 32;
            disk.read(scattered(place, 199 << 30), 256 << 10)
        });
    }
}

/// Seconds in which etcd's latency bound was kept and missed.
struct Kept {
    kept_s: u64,
    missed_s: u64,
}

fn kept(daemon: &Daemon) -> Kept {
    let view = daemon.json(&["vm", "show", "etcd"]);
    let parts = view["attainment"].as_array().expect("a list");
    let latency = parts.iter().find(|it| it["part"] == "latency");
    let latency = latency.expect("a latency is promised");
    let seconds = |key: &str| latency[key].as_u64().expect("a count");
    Kept {
        kept_s: seconds("kept_s"),
        missed_s: seconds("missed_s"),
    }
}

/// Prints what a command says.
fn show(daemon: &Daemon, args: &[&str]) -> String {
    let text = daemon.text(args);
    println!("$ tidegate {}\n{text}", args.join(" "));
    text
}

/// Asserts what is said of the slow VMs: etcd's limit is in its way, and `backup` in the others'.
fn assert_explained(daemon: &Daemon, recording: &str) {
    let diagnosis = |vm: &str| daemon.json(&["explain", vm])["diagnosis"].clone();
    let etcd = diagnosis("etcd");
    assert_eq!(etcd["findings"][0]["cause"], "own_limit", "{etcd:#}");
    let web = diagnosis("web1");
    assert_eq!(web["verdict"], "others", "{web:#}");
    assert_eq!(web["culprits"][0], "backup", "{web:#}");
    show(daemon, &["explain", "etcd"]);
    show(daemon, &["interference"]);
    show(daemon, &["explain", "web1", "-o", "json"]);
    let tried = show(daemon, &["explain", "web1", "--recording", recording]);
    assert!(tried.contains(" on `backup` would "), "{tried}");
    assert!(tried.contains("(simulated on the recording"), "{tried}");
}

/// Runs commands as they are printed, against the daemon.
fn run<'a>(daemon: &Daemon, commands: impl Iterator<Item = &'a Value>) {
    for command in commands {
        let words = words(command.as_str().expect("text"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words[0], "tidegate", "{words:?}");
        daemon.text(&words[1..]);
    }
}

#[test]
fn nine_vms_on_one_spindle_get_what_they_need_live() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    std::fs::write(dir.join("t.toml"), config()).expect("writable");
    let daemon = Daemon::start(dir);
    let mut guests = Guests::default();
    begin(dir, &mut guests);
    let windows = |daemon: &Daemon| daemon.windows("web1");
    until("a whole window without the backup", || {
        windows(&daemon) >= 3
    });
    let begun = SystemTime::now().duration_since(UNIX_EPOCH);
    let begun = begun.expect("after 1970").as_secs().to_string();
    begin_backup(dir, &mut guests);
    until("three windows with it", || windows(&daemon) >= 6);
    let before = kept(&daemon);
    assert!(before.missed_s > before.kept_s, "{}", before.kept_s);

    let recording = dir.join("nine.tgrec");
    let recording = recording.to_str().expect("plain");
    daemon.text(&["record", "dump", "--from", &begun, recording]);
    assert_explained(&daemon, recording);
    // A policy that enforces latency bounds.
    let choose = ["whatif", recording, "--choose", "--policy", "slo"];
    show(&daemon, &choose);
    let choice = daemon.json(&choose);
    let findings = choice["findings"].as_array().expect("a list");
    let found = |vm: &str| findings.iter().find(|it| it["vm"] == vm);
    let etcd = found("etcd").unwrap_or_else(|| panic!("{choice:#}"));
    assert_eq!(etcd["finding"], "limit_hurts", "{choice:#}");
    let commands = choice["commands"].as_array().expect("a list");
    assert!(!commands.is_empty(), "{choice:#}");
    run(&daemon, commands.iter());
    // Limits that never bind may be removed as well.
    run(&daemon, findings.iter().filter_map(|it| it.get("command")));

    let mut since = kept(&daemon);
    until("etcd's promise is kept in 12 of 14 s", || {
        let now = kept(&daemon);
        if now.missed_s > since.missed_s + 2 {
            since = kept(&daemon);
        }
        now.kept_s >= since.kept_s + 12
    });
    show(&daemon, &["vm", "show", "etcd"]);
    guests.end();
    daemon.stop();
}
