//! Helpers of the CLI's tests.

pub(crate) mod live;
pub(crate) mod nbd;
pub(crate) mod systemd;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

pub(crate) mod page;

/// Configuration of a daemon with two VMs in memory.
pub(crate) const CONFIG: &str = r#"
[control]
socket = "control.sock"
[[listen]]
unix = "nbd.sock"
[[device]]
name = "ram"
kind = "memory"
[[vm]]
name = "oltp"
[vm.objective]
reservation = "120 IOPS"
latency = "30 ms"
[[vm.disk]]
size = "8 MiB"
[[vm]]
name = "bulk"
[[vm.disk]]
size = "8 MiB"
"#;

/// Starts `tidegate serve` with `config`, waits until its log has `listening on`, and returns the
/// process with the rest of its standard error. The caller must kill the process, also when its
/// test panics: dropping a `Child` does not.
pub(crate) fn serve(config: &Path) -> (Child, BufReader<ChildStderr>) {
    let (child, log, _) = serve_with_start(config);
    (child, log)
}

/// Starts `tidegate serve` as [`serve`] does; also returns the log of its start.
pub(crate) fn serve_with_start(config: &Path) -> (Child, BufReader<ChildStderr>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("serve")
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Logged once the sockets exist.
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut log_text = String::new();
    while !log_text.contains("listening on") {
        let n = log.read_line(&mut log_text).expect("readable");
        assert!(n > 0, "the daemon ended: {log_text}");
    }
    (child, log, log_text)
}

/// Reads a daemon's standard error to its end, so that the daemon does not block on a full pipe.
pub(crate) fn drain_stderr(mut log: BufReader<ChildStderr>) {
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}

/// Runs `tidegate` with `args`, without TIDEGATE_SOCKET, and waits for its end.
pub(crate) fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .env_remove("TIDEGATE_SOCKET")
        .output()
        .expect("the binary runs")
}

/// Returns the standard output of a finished process, with invalid UTF-8 replaced.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error of a finished process, with invalid UTF-8 replaced.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the folder of examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Simulates a scenario; returns the path of its recording in `dir`.
pub(crate) fn record(dir: &Path, scenario: &str) -> String {
    let [file, recording] = ["s.toml", "r.tgrec"].map(|name| dir.join(name));
    std::fs::write(&file, scenario).expect("it is written");
    let [file, path] = [&file, &recording].map(|path| path.to_str().expect("text"));
    let done = tidegate(&["sim", file, "--record", path]);
    assert!(done.status.success(), "{}", stderr(&done));
    path.to_owned()
}

/// Simulates a scenario; returns the path of its recording with the directory that it is in.
pub(crate) fn recording(scenario: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = record(dir.path(), scenario);
    (dir, path)
}
