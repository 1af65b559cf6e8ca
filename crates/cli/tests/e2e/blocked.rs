//! Disk paths that block in the kernel: the daemon serves the other disks meanwhile, and can end.

use crate::control::tidegate;
use crate::daemon::{Backing, Daemon, Scratch, wait_for};
use crate::fuse::Fuse;
use crate::tool::{Running, arg, qemu_io, run};

/// Runs `tidegate` against a daemon that must refuse the command; returns its output.
fn refused(daemon: &Daemon, args: &[&str]) -> String {
    let socket = daemon.path("control.sock");
    let all = [&["--socket", arg(&socket)], args].concat();
    let done = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &all).wait();
    assert!(!done.status.success(), "it was not refused: {}", done.out);
    done.err
}

fn config(more: &str) -> String {
    [
        more,
        &Backing::File.device(""),
        &Backing::File.vm("a", "1 MiB", ""),
    ]
    .concat()
}

#[test]
fn a_fifo_is_refused_and_stops_neither_changes_nor_the_end() {
    let daemon = Daemon::start(&config(""));
    let fifo = daemon.path("fifo");
    run(daemon.scratch(), "mkfifo", &[arg(&fifo)]);
    let disk = format!("path={},read_only=true", fifo.display());
    let message = refused(&daemon, &["vm", "add", "b", "--disk", &disk]);
    assert!(message.contains("is a FIFO"), "{message}");
    tidegate(&daemon, &["vm", "set", "a", "--weight", "7"]);
    daemon.stop();
}

#[test]
fn a_fifo_in_the_configuration_is_why_the_daemon_does_not_start() {
    let scratch = Scratch::new();
    run(&scratch, "mkfifo", &[arg(&scratch.join("fifo"))]);
    let vm = "[[vm]]\nname = \"b\"\n[[vm.disk]]\npath = \"fifo\"\nread_only = true\n";
    let mut daemon = Daemon::begin_in(scratch, &(config("") + vm));
    assert!(!daemon.wait().success());
    assert!(daemon.logged(&["fifo: is a FIFO"]), "{}", daemon.log());
}

#[test]
fn a_path_that_does_not_answer_is_given_up_and_others_go_on() {
    let Some(fuse) = Fuse::start() else { return };
    let file = fuse.file();
    let limits = "[daemon]\nopen_timeout = \"1 s\"";
    let daemon = Daemon::start(&config(&format!("{limits}\n[paths]\nallow = [{file:?}]\n")));
    let disk = format!("path={},format=raw", file.display());
    fuse.hang();
    for _ in 0..2 {
        let message = refused(&daemon, &["vm", "add", "b", "--disk", &disk]);
        assert!(
            message.contains("no answer from the kernel in 1 s"),
            "{message}"
        );
        tidegate(&daemon, &["vm", "set", "a", "--weight", "7"]);
    }
    fuse.go_on();
    // The abandoned call closes the file when it returns: the path can be opened again.
    wait_for("the file to be free", || {
        let socket = daemon.path("control.sock");
        let line = ["--socket", arg(&socket), "vm", "add", "b", "--disk", &disk];
        let added = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &line);
        added.wait().status.success()
    });
    tidegate(&daemon, &["vm", "remove", "b"]);
    fuse.hang();
    refused(&daemon, &["vm", "add", "b", "--disk", &disk]);
    // An abandoned thread does not delay the daemon's end.
    daemon.stop();
}

#[test]
fn a_path_that_does_not_answer_at_the_start_is_named() {
    let Some(fuse) = Fuse::start() else { return };
    fuse.hang();
    let file = fuse.file();
    let vm = format!(
        "[[vm]]\nname = \"b\"\n[[vm.disk]]\npath = \"{}\"\nformat = \"raw\"\n",
        file.display()
    );
    let mut daemon = Daemon::begin_in(
        Scratch::new(),
        &(config("[daemon]\nopen_timeout = \"1 s\"\n") + &vm),
    );
    assert!(!daemon.wait().success());
    assert!(
        daemon.logged(&[arg(&file), "no answer from the kernel in 1 s"]),
        "{}",
        daemon.log()
    );
    // Signals are handled while a disk is being opened, even if that takes an hour.
    let mut daemon = Daemon::begin_in(
        Scratch::new(),
        &(config("[daemon]\nopen_timeout = \"1 h\"\n") + &vm),
    );
    wait_for("the start", || daemon.logged(&["control API at"]));
    // The first signal asks for an orderly end, which waits for the disk; a second one ends the
    // start. Two that come together may be noticed as one, so there are more.
    wait_for("the end", || {
        daemon.signal("TERM");
        daemon.exited().is_some()
    });
    assert!(
        daemon.logged(&["while starting: stopping at once"]),
        "{}",
        daemon.log()
    );
}

/// The file of a certificate may be on a file system that does not answer.
#[test]
fn signals_end_a_start_that_waits_for_the_file_of_a_certificate() {
    let Some(fuse) = Fuse::start() else { return };
    fuse.hang();
    let tls = format!(
        "[[metrics]]\ntcp = \"127.0.0.1:0\"\n[metrics.tls]\ncertificate = {0:?}\n\
         private_key = {0:?}\n",
        fuse.file()
    );
    let mut daemon = Daemon::begin_in(Scratch::new(), &config(&tls));
    // The socket is bound before the files of TLS are read, and once signals are handled.
    let socket = daemon.path("control.sock");
    wait_for("the start", || socket.exists());
    wait_for("the end", || {
        daemon.signal("TERM");
        daemon.exited().is_some()
    });
    assert!(
        daemon.logged(&["while starting: stopping at once"]),
        "{}",
        daemon.log()
    );
}

/// While the kernel holds a read, an orderly end waits for it. A second signal, or `stop_timeout`,
/// ends the daemon at once, and the log names the disk.
#[test]
fn a_second_signal_ends_the_daemon_whatever_the_kernel_holds() {
    for by_time in [false, true] {
        let Some(fuse) = Fuse::start() else { return };
        let file = fuse.file();
        let vm = format!(
            "[[vm]]\nname = \"b\"\n[[vm.disk]]\npath = \"{}\"\nformat = \"raw\"\n",
            file.display()
        );
        let limit = if by_time {
            "[daemon]\nstop_timeout = \"1 s\"\n"
        } else {
            "[daemon]\nstop_timeout = \"1 h\"\n"
        };
        let mut daemon = Daemon::start(&(config(limit) + &vm));
        qemu_io(daemon.scratch(), &daemon.uri("b"), &["write -P 7 0 4k"]);
        fuse.hang();
        let args = ["-f", "raw", "-c", "read 0 4k", &daemon.uri("b")];
        let reader = Running::start(daemon.scratch(), "qemu-io", &args);
        wait_for("the read to be with the device", || {
            let show = tidegate(&daemon, &["-o", "json", "vm", "show", "b"]);
            crate::tool::json(&show)["in_flight"] == 1
        });
        daemon.signal("TERM");
        wait_for("the end to begin", || {
            daemon.logged(&["finishing requests in flight"])
        });
        if !by_time {
            assert!(daemon.exited().is_none(), "it does not wait for the read");
            daemon.signal("TERM");
        }
        wait_for("the end", || daemon.logged(&["ending at once"]));
        let held = ["export=b", "1 I/Os are in flight in the kernel"];
        wait_for("the I/O to be named", || daemon.logged(&held));
        // The process stays until the kernel completes that I/O, here when FUSE goes away.
        drop(fuse);
        assert!(daemon.wait().success(), "{}", daemon.log());
        drop(reader);
    }
}
