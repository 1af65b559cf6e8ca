//! Tests of locks that are taken while the event loop of the disk does not answer.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::thread;

use super::*;
use crate::backing::Disk;
use crate::config::{DeviceConfig, PathsConfig};
use crate::ring::sys;

/// Time within which the front-end sends its next command.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

fn device() -> DeviceConfig {
    let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n";
    let loaded = crate::config::parse(text, "t", Path::new("/")).expect("good");
    loaded.config.devices[0].clone()
}

/// Opens an incoming disk, which is described without the lock of its file.
fn open(path: &Path) -> Disk {
    let device = device();
    let words = serde_json::json!({ "export": "disk", "path": path, "incoming": true });
    let paths = PathsConfig::of_directory(path.parent().expect("a directory"));
    let config = crate::config::vm::disk_from_json(&words, "vm", &device, &paths);
    Disk::open(&device, &config.expect("good")).expect("opened")
}

/// Front-end of a disk, whose commands the test receives in place of the loop.
fn user(disk: &Disk) -> (DiskUser, Receiver<Command>) {
    let (handle, commands) = LoopHandle::for_test();
    let activation = disk.medium.activation().expect("it is writable").clone();
    let volume = Volume {
        serial: 1,
        name: "disk".into(),
        size: 8192,
        block_size: 512,
        physical_block: 4096,
        payload_max: 32 << 20,
        read_only: false,
        rotational: false,
        identity: None,
        activation: Some(activation.clone()),
    };
    let assistant = Assistant::start(Some(activation.clone())).expect("a thread");
    (
        DiskUser::new(&volume, activation, handle, assistant),
        commands,
    )
}

/// Receives the next command of a front-end, which is one about the lock.
fn next(commands: &Receiver<Command>) -> ActivationChange {
    match commands.recv_timeout(STEP_TIMEOUT) {
        Ok(Command::ChangeActivation(change)) => change,
        other => panic!("no change of the lock: {other:?}"),
    }
}

fn is_locked(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path);
    !sys::lock(&file.expect("a file"), true).expect("a lock")
}

#[test]
fn a_lock_is_released_only_once_a_loop_that_answers_late_has_heard_of_it() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(8192).expect("room");
    let disk = open(file.path());
    let (mut user, commands) = user(&disk);
    thread::scope(|scope| {
        let begun = scope.spawn(|| user.begin());
        let taken = next(&commands);
        assert!(matches!(taken.lock, DiskLock::Taken(_)), "{taken:?}");
        // The loop has both commands before it, and executes neither yet.
        let leaves = next(&commands);
        assert!(matches!(leaves.lock, DiskLock::Leaves), "{leaves:?}");
        assert!(is_locked(file.path()), "the loop may serve the disk now");
        leaves.reply.send(Ok(())).expect("it waits");
        let refused = begun.join().expect("no panic").expect_err("too late");
        assert!(refused.contains("has not ended within"), "{refused}");
    });
    assert!(!is_locked(file.path()));
    assert_eq!(disk.activation_state(), Some(ActivationState::Incoming));
}

#[test]
fn a_lock_is_kept_while_the_loop_does_not_answer_at_all() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(8192).expect("room");
    let disk = open(file.path());
    let (mut user, commands) = user(&disk);
    thread::scope(|scope| {
        let begun = scope.spawn(|| user.begin());
        let _unanswered = [next(&commands), next(&commands)];
        // Whenever the loop executes them, it serves the disk in the end, with the lock.
        let kept = next(&commands);
        assert!(matches!(kept.lock, DiskLock::Kept(None)), "{kept:?}");
        kept.reply.send(Ok(())).expect("it waits");
        begun.join().expect("no panic").expect_err("too late");
    });
    assert!(is_locked(file.path()));
    assert_eq!(disk.activation_state(), Some(ActivationState::Active));
}
