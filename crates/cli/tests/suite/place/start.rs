//! Jobs that are started on the daemon of the host they go to.

use std::process::{Child, Command};

use super::{Site, stderr};
use crate::common::{drain_stderr, serve};

/// A daemon with one VM in memory, ended when it goes out of scope.
struct Daemon(Child);

const CONFIG: &str = r#"
[control]
socket = "control.sock"
[[listen]]
unix = "nbd.sock"
[[device]]
name = "ram"
kind = "memory"
[[vm]]
name = "dss"
[[vm.disk]]
size = "8 MiB"
"#;

impl Daemon {
    fn start(site: &Site) -> Daemon {
        let config = site.file("t.toml");
        std::fs::write(&config, CONFIG).expect("writable");
        let (child, log) = serve(&config);
        drain_stderr(log);
        Daemon(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start<'a>(vm: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["job", vm, "--size", "1 GB", "--deadline", "1 h", "--start"],
        more,
    ]
    .concat()
}

#[test]
fn a_job_is_started_where_its_vm_is_served() {
    let site = Site::new();
    let _daemon = Daemon::start(&site);
    // Of two hosts only the slower one has the VM.
    let hosts = "[[host]]\nname = \"a\"\nbandwidth = \"60 MB/s\"\n\
                 [[host]]\nname = \"b\"\nbandwidth = \"50 MB/s\"\nsocket = \"control.sock\"\n";
    std::fs::write(site.file("live.toml"), hosts).expect("writable");
    let message = site.bad(&start("oltp", &["--hosts", "live.toml"]));
    assert!(
        message.contains("no host has a VM \"oltp\"") && message.contains("daemon of b"),
        "{message}"
    );
    let would = site.json(&start("dss", &["--hosts", "live.toml", "--dry-run"]));
    assert_eq!(would["host"]["host"], "b");
    let placed = site.json(&start("dss", &["--hosts", "live.toml"]));
    assert_eq!(placed["host"]["host"], "b");
    let job = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "--socket",
            "control.sock",
            "job",
            "show",
            "dss",
            "-o",
            "json",
        ])
        .current_dir(site.file(""))
        .output()
        .expect("it runs");
    assert!(job.status.success(), "{}", stderr(&job));
    let job: serde_json::Value = serde_json::from_slice(&job.stdout).expect("JSON");
    assert_eq!(job["job"]["size_bytes"], 1_000_000_000);
    // The two are one.
    let listed = site.json(&["list"]);
    let there = listed["hosts"][1]["jobs"].as_array().expect("jobs");
    assert_eq!((there.len(), &there[0]["name"]), (1, &"dss".into()));
    // A job that the daemon refuses is not stored, either.
    let message = site.bad(&start("dss", &[]));
    assert!(message.contains("job named \"dss\" already"), "{message}");
}

#[test]
fn without_a_daemon_nothing_is_started() {
    let site = Site::new();
    let message = site.bad(&start("dss", &["--hosts", "place.toml"]));
    assert!(
        message.contains("control socket") && message.contains("--start"),
        "{message}"
    );
    let message = site.place(&["job", "--size", "1 GB", "--deadline", "1 h", "--start"]);
    assert!(stderr(&message).contains("<NAME>"), "{}", stderr(&message));
}
