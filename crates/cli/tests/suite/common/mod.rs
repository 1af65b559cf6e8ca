//! What several test programs need.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A daemon that serves what a file says, and the rest of what it will say.
pub(crate) fn serve(config: &Path) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("serve")
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // It says so once its sockets are there.
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("listening on") {
        let n = log.read_line(&mut said).expect("readable");
        assert!(n > 0, "the daemon ended: {said}");
    }
    (child, log)
}

/// What a daemon says is read away, lest it block.
pub(crate) fn read_away(mut log: BufReader<ChildStderr>) {
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}
