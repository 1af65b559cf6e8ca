//! Files truncated, removed or replaced under a running daemon: only the VM on such a file gets I/O
//! errors.

use std::fs;
use std::io::{Read as _, Write as _};

use crate::control::tidegate;
use crate::daemon::{Backing, Daemon, wait_for};
use crate::tool::{Running, arg, have, qemu_io, run, run_qemu_io};

/// Returns status and body of a GET request to the control API.
pub(crate) fn get(daemon: &Daemon, path: &str) -> (u16, String) {
    let mut socket = daemon.connect("control.sock").expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: tidegate\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = answer.split_once("\r\n\r\n").expect("a head").1.to_owned();
    (status.expect("a status line"), body)
}

#[test]
fn a_lost_file_fails_its_disk_until_it_is_back_and_no_other() {
    if !have(&["qemu-io"]) {
        return;
    }
    let file = Backing::File;
    let vms = [file.vm("a", "1 MiB", ""), file.vm("b", "1 MiB", "")];
    let daemon = Daemon::start(&[file.device(""), vms.concat()].concat());
    let image = daemon.path("a.raw");
    let away = daemon.path("away");
    let pattern = ["write -P 7 0 1M", "flush"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &pattern);
    let state = |state: &str| {
        let is = format!(
            "tidegate_disk_media{{export=\"a\",vm=\"a\",device=\"disk\",state=\"{state}\"}} 1"
        );
        wait_for(state, || get(&daemon, "/metrics").1.contains(&is));
        let (status, health) = get(&daemon, "/healthz");
        assert_eq!(status, 200, "the daemon itself goes on: {health}");
        assert_eq!(health.contains("a.raw"), state != "whole", "{health}");
        let word = if state == "whole" {
            "\"ok\""
        } else {
            "\"degraded\""
        };
        assert!(health.contains(word), "{health}");
        for command in ["read 0 4k", "write 0 4k"] {
            let message = run_qemu_io(daemon.scratch(), &daemon.uri("a"), command);
            let failed = message.contains("Input/output error");
            assert_eq!(
                failed,
                state != "whole",
                "{command} while {state}: {message}"
            );
        }
        qemu_io(daemon.scratch(), &daemon.uri("b"), &["write -f -P 9 0 4k"]);
    };
    state("whole");
    qemu_io(daemon.scratch(), &daemon.uri("a"), &pattern);
    fs::rename(&image, &away).expect("it is there");
    state("gone");
    fs::copy(&away, &image).expect("there is room");
    state("replaced");
    fs::rename(&away, &image).expect("it is there");
    state("whole");
    let resize = |size| {
        let image = fs::OpenOptions::new().write(true).open(&image);
        image.expect("it is there").set_len(size).expect("ours");
    };
    resize(4096);
    state("shrunk");
    resize(1 << 20);
    state("whole");
    // A resize through the daemon is not mistaken for data loss.
    tidegate(&daemon, &["vm", "resize", "a", "512 KiB", "--shrink"]);
    state("whole");
    tidegate(&daemon, &["vm", "resize", "a", "2 MiB"]);
    state("whole");
    assert_eq!(daemon.log().matches("shorter than the disk").count(), 1);
    daemon.stop();
}

/// With a store, no empty disk is created in place of one that was served before.
#[test]
fn a_disk_that_is_lost_is_missed_at_the_next_start() {
    if !have(&["qemu-io"]) {
        return;
    }
    let file = Backing::File;
    let config = [
        "[store]\npath = \"kept.redb\"\n",
        &file.device(""),
        &file.vm("a", "1 MiB", ""),
        &file.vm("b", "1 MiB", ""),
    ]
    .concat();
    let daemon = Daemon::start(&config);
    qemu_io(
        daemon.scratch(),
        &daemon.uri("a"),
        &["write -P 7 0 1M", "flush"],
    );
    let (image, away) = (daemon.path("a.raw"), daemon.path("away"));
    // A disk that is being served cannot be forgotten.
    let message = refused(&daemon, &["disk", "forget", "a"]);
    assert!(message.contains("is served"), "{message}");
    let message = refused(&daemon, &["disk", "forget", "c"]);
    assert!(message.contains("no record of disk \"c\""), "{message}");
    fs::rename(&image, &away).expect("it is there");
    let (mut daemon, status) = daemon.restart_in_vain();
    assert!(!status.success());
    for message in ["a.raw: is not there", "tidegate disk forget a"] {
        assert!(daemon.logged(&[message]), "{message}: {}", daemon.log());
    }
    assert!(!image.exists(), "an empty disk took its place");
    // An empty file at the disk's path does not count as the disk, either.
    fs::write(&image, "").expect("there is room");
    (daemon, _) = daemon.start_in_vain();
    assert!(daemon.logged(&["a.raw: is empty"]), "{}", daemon.log());
    assert_eq!(fs::metadata(&image).expect("it is there").len(), 0);
    // The original file in its place is served again.
    fs::rename(&away, &image).expect("it is there");
    let daemon = daemon.start_again();
    qemu_io(daemon.scratch(), &daemon.uri("a"), &["read -P 7 0 1M"]);
    // With the file lost for good, the disk is forgotten in the store of the stopped daemon.
    fs::remove_file(&image).expect("it is there");
    let (daemon, _) = daemon.restart_in_vain();
    let file = daemon.path("tidegate.toml");
    let forget = ["disk", "forget", "a", "--config", arg(&file)];
    run(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &forget);
    let again = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &forget).wait();
    assert!(again.err.contains("remembers: b"), "{}", again.err);
    let daemon = daemon.start_again();
    qemu_io(daemon.scratch(), &daemon.uri("a"), &["read -P 0 0 1M"]);
    let message = refused(&daemon, &forget);
    assert!(message.contains("leave out --config"), "{message}");
    a_removed_vm_takes_its_disks_out_of_the_store(daemon);
}

/// Runs a command that has to fail; returns what it says.
fn refused(daemon: &Daemon, words: &[&str]) -> String {
    let socket = daemon.path("control.sock");
    let words = [&["--socket", arg(&socket)], words].concat();
    let done = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &words).wait();
    assert!(!done.status.success(), "{}", done.out);
    done.err
}

fn a_removed_vm_takes_its_disks_out_of_the_store(daemon: Daemon) {
    // `vm remove` also forgets the VM's disks, so that adding the VM again creates new ones.
    let disk = "path=c.raw,size=1 MiB,create=sparse";
    for _ in 0..2 {
        tidegate(&daemon, &["vm", "add", "c", "--disk", disk]);
        tidegate(&daemon, &["vm", "remove", "c"]);
        fs::remove_file(daemon.path("c.raw")).expect("it was made");
    }
    // Without `vm remove` a missing file is refused until `disk forget`.
    tidegate(&daemon, &["vm", "add", "c", "--disk", disk]);
    let daemon = daemon.restart();
    fs::remove_file(daemon.path("c.raw")).expect("it was made");
    let message = refused(&daemon, &["vm", "add", "c", "--disk", disk]);
    assert!(message.contains("tidegate disk forget c"), "{message}");
    tidegate(&daemon, &["disk", "forget", "c"]);
    tidegate(&daemon, &["vm", "add", "c", "--disk", disk]);
    daemon.stop();
}
