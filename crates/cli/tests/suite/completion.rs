//! Shell completion, by the script that bash sources.

use std::path::Path;
use std::process::{Child, Command};

use crate::common::{CONFIG, drain_stderr, serve, stderr, stdout};

/// Daemon with two VMs in memory, killed when it goes out of scope.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("t.toml");
        std::fs::write(&config, CONFIG).expect("writable");
        let (child, log) = serve(&config);
        drain_stderr(log);
        Daemon { child, dir }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sources the script in bash and completes the last of `words`, with the daemon's socket at
/// `socket`. Returns the candidates.
fn complete(words: &[&str], socket: &Path) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let folder = program.parent().expect("a folder").display();
    let inherited = std::env::var("PATH").expect("a PATH");
    // The shell sets COMP_WORDS and calls the function with command, word and previous word.
    let run = r#"
        source <(tidegate completions bash) || exit
        COMP_WORDS=(tidegate "$@")
        COMP_CWORD=$#
        COMP_TYPE=9
        _clap_complete_tidegate tidegate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", run, "bash"])
        .args(words)
        .env("PATH", format!("{folder}:{inherited}"))
        .env("TIDEGATE_SOCKET", socket)
        .current_dir(socket.parent().expect("a folder"))
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "{words:?}");
    let candidates = stdout(&output);
    let candidates = candidates.lines().filter(|line| !line.is_empty());
    candidates.map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_of_the_daemon_and_of_the_grammar() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("control.sock");
    for (words, expected) in [
        (&["vm", "show", ""][..], &["bulk", "oltp"][..]),
        (&["vm", "show", "ol"], &["oltp"]),
        (&["export", "qe"], &["qemu"]),
        (&["export", "libvirt", ""], &["bulk", "oltp"]),
        (&["export", "qemu", "bulk", "--disk", "b"], &["bulk"]),
        (&["device", "show", ""], &["ram"]),
        (&["transfer", "start", "b"], &["bulk"]),
        (&["disk", "fault", "list", ""], &["bulk", "oltp"]),
        (&["policy", "set", "r"], &["ram"]),
        (&["policy", "set", "ram", "fif"], &["fifo"]),
        (&["sim", "a.toml", "--policy", "fif"], &["fifo"]),
        (&["policy", "show", "bd-e"], &["bd-edf"]),
        (&["reproduce", "flu"], &["flubber"]),
        (&["completions", "b"], &["bash"]),
        (&["vm", "sho"], &["show"]),
        (&["vm", "show", "--sock"], &["--socket"]),
    ] {
        let mut candidates = complete(words, &socket);
        candidates.sort();
        assert_eq!(candidates, expected, "{words:?}");
    }
}

#[test]
fn bash_completes_nothing_of_a_daemon_that_does_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("control.sock");
    let none: [&str; 0] = [];
    assert_eq!(complete(&["vm", "show", "ol"], &socket), none);
    // The socket on the line is asked, not that of the environment.
    let daemon = Daemon::start();
    let running = daemon.dir.path().join("control.sock");
    let typed = running.to_str().expect("plain");
    let words = ["--socket", typed, "vm", "show", "ol"];
    assert_eq!(complete(&words, &socket), ["oltp"]);
}
