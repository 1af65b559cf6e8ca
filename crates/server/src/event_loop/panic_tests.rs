//! A loop that panics: its clients are cut off, its neighbours end in order, and the daemon says
//! which device it was.

use std::sync::mpsc::channel;

use tokio::sync::oneshot;

use crate::command::{Command, LoopCall};
use crate::common::vhost_guest::{ALL, Guest, listen};
use crate::common::{Server, device, disk, single, vm};
use crate::config::DeviceKind;
use crate::daemon::RunError;

const MIB: u64 = 1 << 20;

#[test]
fn a_loop_that_panics_cuts_off_its_clients_and_ends_its_neighbours_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, MIB);
    let path = dir.path().join("other.raw");
    config.devices.push(device("other", DeviceKind::File));
    let other = disk("other", Some(path.clone()), MIB);
    config.vms.push(vm("other", 1, vec![other]));
    config
        .vms
        .push(vm("guest", 0, vec![disk("guest-disk", None, MIB)]));
    listen(&mut config, dir.path());
    let server = Server::start(config);
    let (mut client, mut neighbour) = (server.connect("disk"), server.connect("other"));
    client.write(0, &[1; 4096]);
    let mut guest = Guest::start(&dir.path().join("guest.vhost"), ALL, 1);
    assert_eq!(guest.read(0, 4096), [0; 4096]);
    neighbour.write(4096, &[2; 4096]);
    let panic = Command::Call(LoopCall(Box::new(|| {
        panic!("a bug, as this test wants it")
    })));
    let sent = server.handle.devices().send(0, panic);
    sent.expect("the loop runs");
    assert!(client.is_cut_off());
    assert!(guest.is_cut_off());
    // In order: the connection ends between two replies.
    assert_eq!(neighbour.receive_if_any_whole(), None);
    let ended = server.stop().expect_err("a loop has panicked");
    assert!(
        matches!(&ended, RunError::Panicked(device) if device == "device"),
        "{ended}"
    );
    let bytes = std::fs::read(path).expect("the disk is there");
    assert_eq!(bytes[4096..8192], [2; 4096]);
    assert_eq!(bytes.len() as u64, MIB);
}

#[test]
fn commands_that_a_lost_loop_has_not_taken_are_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, MIB));
    let client = server.connect("disk");
    let devices = server.handle.devices();
    let (queued, go) = channel::<()>();
    let panic = Command::Call(LoopCall(Box::new(move || {
        go.recv().expect("a command is behind this one");
        panic!("a bug, as this test wants it")
    })));
    devices.send(0, panic).expect("the loop runs");
    let (reply, answer) = oneshot::channel();
    let behind = devices.send(0, Command::Snapshot { reply });
    behind.expect("it is queued");
    queued.send(()).expect("the loop waits");
    answer
        .blocking_recv()
        .expect_err("the loop is lost, and says so");
    assert!({ client }.is_cut_off());
    server.stop().expect_err("a loop has panicked");
}
