//! Helpers of the CLI's tests.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

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

/// A daemon that serves what a file says, and the rest of what it will say.
pub(crate) fn serve(config: &Path) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("serve")
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Logged once the sockets exist.
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("listening on") {
        let n = log.read_line(&mut said).expect("readable");
        assert!(n > 0, "the daemon ended: {said}");
    }
    (child, log)
}

/// Reads a daemon's standard error to its end, so that the daemon does not block on a full pipe.
pub(crate) fn read_away(mut log: BufReader<ChildStderr>) {
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}

/// Runs the command.
pub(crate) fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .env_remove("TIDEGATE_SOCKET")
        .output()
        .expect("the binary runs")
}

/// Returns what it wrote to standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what it wrote to standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the folder of examples.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}
