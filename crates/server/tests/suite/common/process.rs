//! Daemons in processes of their own, which can be killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const DIRECTORY: &str = "TIDEGATE_TEST_DIRECTORY";

/// Daemon that a test of this binary runs.
pub struct Process(Child);

impl Process {
    /// Starts this binary with the test `name`, which serves the directory that
    /// [`served_directory`] returns there.
    pub fn start(name: &str, dir: &Path) -> Process {
        let test = std::env::current_exe().expect("this test has a file");
        let child = Command::new(test)
            .args(["--exact", name, "--nocapture"])
            .env(DIRECTORY, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Process(child)
    }

    /// Kills the daemon as it is.
    pub fn kill(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }

    /// Waits until the daemon has ended by itself; returns true if it has done so in order.
    pub fn ends(&mut self) -> bool {
        // Closed by the wait otherwise, which the daemon would take for the end of the test.
        let _input = self.0.stdin.take();
        self.0.wait().expect("ours").success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the directory to serve in the process of a daemon; `None` in that of the test.
pub fn served_directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Waits in the process of a daemon until the process of the test has ended.
pub fn wait_for_end_of_test() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}
