//! `tidegate record` against a running daemon, and `tidegate sim --record`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Output};

use serde_json::Value;
use tidegate_core::request::Op;
use tidegate_recording::Recording;

use crate::common::{CONFIG, drain_stderr, examples, serve, stderr, stdout, tidegate};

/// Daemon with two VMs in memory and a directory for recordings, ended when it goes out of scope.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("t.toml");
        let text = format!("{CONFIG}\n[recording]\ndirectory = \"recordings\"\n");
        std::fs::write(&config, text).expect("writable");
        let (child, log) = serve(&config);
        drain_stderr(log);
        Daemon { child, dir }
    }

    fn ask(&self, args: &[&str]) -> Output {
        let socket = self.dir.path().join("control.sock");
        let socket = socket.to_str().expect("plain");
        tidegate(&[&["--socket", socket], args].concat())
    }

    /// Runs a command against the daemon and returns its JSON output.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.ask(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Reads the first sectors of a disk, one after the other.
    fn read_sectors(&self, export: &str, sectors: u64) {
        let mut stream = UnixStream::connect(self.dir.path().join("nbd.sock")).expect("a listener");
        open(&mut stream, export);
        for sector in 0..sectors {
            let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
            // Flags and command: a read.
            request.extend([0; 4]);
            request.extend(sector.to_be_bytes());
            request.extend((sector * 512).to_be_bytes());
            request.extend(512u32.to_be_bytes());
            stream.write_all(&request).expect("it takes requests");
            let mut reply = [0; 16 + 512];
            stream.read_exact(&mut reply).expect("it answers");
            assert_eq!(reply[4..8], [0; 4], "no error");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens an export with `NBD_OPT_EXPORT_NAME`, after which replies are simple.
fn open(stream: &mut UnixStream, export: &str) {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("it greets");
    // Client flags: fixed newstyle, no zeroes at the end of the handshake.
    let mut option = 3u32.to_be_bytes().to_vec();
    option.extend(b"IHAVEOPT");
    option.extend(1u32.to_be_bytes());
    option.extend((export.len() as u32).to_be_bytes());
    option.extend(export.as_bytes());
    stream.write_all(&option).expect("it takes options");
    let mut head = [0; 10];
    stream.read_exact(&mut head).expect("the export is there");
}

fn read(file: &Path) -> Recording {
    let bytes = std::fs::read(file).expect("readable");
    Recording::read(bytes.as_slice(), usize::MAX).expect("a recording")
}

#[test]
fn what_is_recorded_is_dumped_for_one_vm_or_all() {
    let daemon = Daemon::start();
    let off = daemon.json(&["record", "status"]);
    assert_eq!(
        (&off["devices"][0]["on"], &off["bytes"]),
        (&false.into(), &0.into())
    );
    let nothing = daemon.ask(&["record", "dump", "x.tgrec"]);
    assert!(
        stderr(&nothing).contains("no recording of device \"ram\""),
        "{}",
        stderr(&nothing)
    );
    assert!(!Path::new("x.tgrec").exists());

    let on = daemon.json(&["record", "on"]);
    assert_eq!(on["devices"][0]["on"], true);
    let again = daemon.ask(&["record", "on", "ram"]);
    assert!(stderr(&again).contains("already"), "{}", stderr(&again));
    daemon.read_sectors("oltp", 100);
    daemon.read_sectors("bulk", 50);

    let file = daemon.dir.path().join("d.tgrec");
    let name = file.to_str().expect("plain");
    let dumped = daemon.json(&["record", "dump", name]);
    assert_eq!(
        (&dumped["requests"], &dumped["gaps"]),
        (&150.into(), &0.into())
    );
    assert_eq!(read(&file).requests.len(), 150);
    let dumped = daemon.json(&["record", "dump", "--vm", "bulk", "--from", "10 min", name]);
    assert_eq!(dumped["vms"], serde_json::json!(["bulk"]));
    let bulk = read(&file);
    let offsets: Vec<u64> = bulk.requests.iter().map(|request| request.offset).collect();
    assert_eq!(
        offsets,
        (0..50).map(|sector| sector * 512).collect::<Vec<_>>()
    );
    assert!(bulk.requests.iter().all(|request| request.op == Op::Read));

    let status = stdout(&daemon.ask(&["record", "status"]));
    assert!(status.contains("ram") && status.contains("150"), "{status}");
    let off = daemon.json(&["record", "off"]);
    assert_eq!(off["devices"][0]["on"], false);
    assert_eq!(off["devices"][0]["files"], 1);
    // What was recorded can still be dumped.
    daemon.json(&["record", "dump", name]);
    let whole = read(&file);
    assert_eq!(
        (whole.requests.len(), whole.summary.is_complete),
        (150, true)
    );
    let later = daemon.ask(&["record", "dump", "--to", "2001-01-01T00:00:00Z", name]);
    assert_eq!(later.status.code(), Some(1));
    assert_eq!(read(&file), whole, "a refused dump replaces no file");
}

#[test]
fn a_device_that_there_is_not_is_named_with_those_there_are() {
    let daemon = Daemon::start();
    let refused = daemon.ask(&["record", "on", "rom"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("there are: ram"),
        "{}",
        stderr(&refused)
    );
    let refused = daemon.ask(&["record", "dump", "--from", "yesterday", "x.tgrec"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("time of day"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_simulation_is_recorded_with_the_same_bytes_each_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = examples().join("policy-swap.toml");
    let scenario = scenario.to_str().expect("plain");
    let record = |name: &str| {
        let file = dir.path().join(name);
        let path = file.to_str().expect("plain");
        let output = tidegate(&["sim", scenario, "--duration", "40 s", "--record", path]);
        assert!(output.status.success(), "{}", stderr(&output));
        file
    };
    let (first, second) = (record("a.tgrec"), record("b.tgrec"));
    let bytes = |file: &Path| std::fs::read(file).expect("readable");
    assert_eq!(bytes(&first), bytes(&second));
    let recording = read(&first);
    assert!(recording.is_whole() && recording.summary.is_complete);
    assert!(recording.requests.len() > 1000);
    assert!(!recording.changes.is_empty(), "the policy changes at 30 s");
    let per_request = bytes(&first).len() as f64 / recording.requests.len() as f64;
    assert!(per_request <= 16.0, "{per_request} bytes a request");
}
