use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::message::{HEAD_LEN, Head};
use super::*;
use crate::ring::sys;
use crate::transfer::PersistedTransfers;

#[test]
fn a_message_arrives_with_its_bytes_and_more_descriptors_than_one_packet_takes() {
    let (here, there) = UnixStream::pair().expect("sockets");
    let file = tempfile::tempfile().expect("a file");
    let many = vec![file.as_fd(); 600];
    let mut sender = Channel::new(here).expect("a socket");
    let mut receiver = Channel::new(there).expect("a socket");
    let message = Message::State(State {
        paused_at: 7,
        ..State::default()
    });
    let bytes = vec![3u8; 1 << 20];
    std::thread::scope(|scope| {
        let (sent, bytes) = (&message, &bytes);
        scope.spawn(move || {
            let sent = sender.send_with(sent, &[&bytes[..10], &bytes[10..]], &many);
            sent.expect("it is received");
        });
        let (received, mut rest) = receiver.receive().expect("a message");
        assert_eq!(received, message);
        assert_eq!(rest.bytes(bytes.len() as u64).as_deref(), Ok(&bytes[..]));
        assert!(rest.bytes(1).is_err(), "there are no more");
        assert!(rest.descriptor(599).is_ok());
        assert!(rest.descriptor(599).is_err(), "it was taken");
        assert!(rest.descriptor(600).is_err());
    });
}

#[test]
fn the_last_word_is_there_or_its_sender_learns_that_nobody_will_have_it() {
    let (here, there) = UnixStream::pair().expect("sockets");
    let mut sender = Channel::new(here).expect("a socket");
    let mut receiver = Channel::new(there).expect("a socket");
    sender.send(&Message::Yours).expect("room");
    receiver.stop_receiving().expect("a socket");
    assert_eq!(receiver.receive().expect("sent before").0, Message::Yours);
    assert!(sender.send(&Message::Yours).is_err());
    assert!(receiver.receive().is_err());
}

#[test]
fn clients_are_not_paused_for_a_new_daemon_that_is_wanted_no_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("takeover.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a free path");
    let running = std::thread::spawn(move || {
        let mut channel = Channel::new(listener.accept().expect("it connects").0).expect("it");
        let line = Lifeline::new().expect("a pipe");
        assert!(matches!(channel.receive(), Ok((Message::Hello(_), _))));
        channel.send(&Message::Hello(Hello::own())).expect("room");
        let plan = Message::Plan(Box::default());
        let sent = channel.send_with(&plan, &[], &[line.for_new_daemon()]);
        sent.expect("room");
        channel.receive().expect("a message").0
    });
    let (mut taking, _) = Taking::begin(&path, None).expect("it is offered");
    taking.check_before_pause(|| Err(TakeoverError::refused("nobody waits", "none")));
    let error = taking.pause().expect_err("refused");
    assert_eq!(error.to_string(), "nobody waits");
    let (what, help) = ("nobody waits".to_owned(), "none".to_owned());
    let received = running.join().expect("it has the messages");
    assert_eq!(received, Message::Refused(Problem { what, help }));
}

#[test]
fn the_end_of_a_peer_is_known_without_a_message() {
    let (here, there) = UnixStream::pair().expect("sockets");
    let here = Channel::new(here).expect("a socket");
    let mut peer = Channel::new(there).expect("a socket");
    assert!(here.check_peer().is_ok());
    peer.send(&Message::Pause).expect("room");
    drop(peer);
    let gone = here.check_peer().expect_err("behind what it has sent");
    assert_eq!(
        TakeoverError::from(gone).of_running(),
        "the connection to the new daemon failed: it has closed the connection"
    );
}

#[test]
fn the_socket_is_beside_that_of_the_control_api() {
    assert_eq!(
        beside(Path::new("/run/tidegate/control.sock")),
        Path::new("/run/tidegate/control.sock.takeover")
    );
}

#[test]
fn another_protocol_and_absurd_lengths_are_refused() {
    use std::io::Write;

    for head in [
        &b"GET / HTTP/1.1\r\n\r\n\r\n"[..],
        &[
            b'T', b'G', b'T', b'O', 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    ] {
        let (mut here, there) = UnixStream::pair().expect("sockets");
        here.write_all(&head[..20]).expect("room");
        let mut receiver = Channel::new(there).expect("a socket");
        assert!(receiver.receive().is_err());
    }
}

/// Messages of a running daemon of format 1, without their descriptors.
const OLD_FIXTURE: &[u8] = include_bytes!("../../../cli/tests/fixtures/takeover-v1.bin");
/// Messages of a running daemon of format 2, without their descriptors.
const FIXTURE: &[u8] = include_bytes!("../../../cli/tests/fixtures/takeover-v2.bin");

#[test]
fn a_daemon_of_the_first_format_is_refused_before_its_plan_is_read() {
    let head = Head::decode(OLD_FIXTURE.first_chunk().expect("a head")).expect("a head");
    let json = &OLD_FIXTURE[HEAD_LEN..][..head.json as usize];
    let Ok(Message::Hello(hello)) = serde_json::from_slice(json) else {
        panic!("versions come first");
    };
    let refused = other_format(&hello).to_string();
    assert!(
        refused.contains("takeover has format 1; this is"),
        "{refused}"
    );
    assert_ne!(hello.format, FORMAT);
}

/// Reads the messages of a fixture, each with its descriptors' numbers in their place.
fn messages(mut rest: &[u8]) -> Vec<(Message, Reader<u32>)> {
    let mut messages = Vec::new();
    while let Some((head, more)) = rest.split_first_chunk() {
        let head = Head::decode(head).expect("a head");
        let groups = head.descriptors.div_ceil(sys::DESCRIPTORS_MAX as u32) as usize;
        let (json, more) = more[groups..].split_at(head.json as usize);
        let (bytes, more) = more.split_at(head.bytes as usize);
        let message = serde_json::from_slice(json).expect("a message of this build");
        let numbers = (0..head.descriptors).collect();
        messages.push((message, Reader::new(numbers, bytes.to_vec())));
        rest = more;
    }
    assert!(rest.is_empty(), "half a message");
    messages
}

#[test]
fn what_the_first_build_with_this_format_sends_is_understood() {
    let mut messages = messages(FIXTURE).into_iter();
    let mut next = || messages.next().expect("four messages");
    let (Message::Hello(hello), _) = next() else {
        panic!("versions come first");
    };
    assert_eq!(
        hello.format, FORMAT,
        "a new format needs a fixture of its own"
    );
    // A field that came later: without it front-ends of vhost-user are closed.
    assert!(!hello.sessions);
    let (Message::Plan(plan), mut files) = next() else {
        panic!("then the plan");
    };
    assert_eq!(files.descriptor(plan.lifeline), Ok(plan.lifeline));
    let keys: Vec<_> = plan.sockets.iter().map(|socket| &socket.key).collect();
    assert!(keys.iter().all(|key| key.starts_with("unix /")), "{keys:?}");
    assert_eq!(
        (keys.len(), plan.disks.len(), plan.file_vms.len()),
        (3, 2, 1)
    );
    for disk in &plan.disks {
        let file = disk.descriptor.expect("it is active and writable");
        assert_eq!(files.descriptor(file), Ok(file));
        assert_eq!((disk.disk.size, disk.disk.is_active), (1 << 20, true));
        assert!(disk.disk.file.is_some() && !disk.disk.read_only);
    }
    let vms: Vec<_> = (plan.vms.iter())
        .map(|vm| (vm.name.as_str(), vm.is_configured))
        .collect();
    assert_eq!(vms, [("oltp", true), ("web", false)]);
    assert_eq!(plan.vms[1].words["objective"]["weight"], 70);
    assert_eq!(plan.policies[0].device, "disk");
    // A field that came later: without it limits of groups are those of the file.
    assert!(plan.limit_groups.is_empty());
    assert!(matches!(next().0, Message::Prepared));
    let (Message::State(state), mut parts) = next() else {
        panic!("then the state");
    };
    assert_eq!(state.sessions, []);
    // A field that came later: without it limits begin anew.
    assert!(state.devices[0].limits.is_empty());
    let [(vm, transfer)] = &state.devices[0].transfers[..] else {
        panic!("one transfer: {state:?}");
    };
    let transfer = PersistedTransfers::read(transfer).expect("it is read");
    let transfer = transfer.running.expect("it runs");
    assert_eq!((vm.as_str(), transfer.bytes), ("oltp", 1 << 30));
    for (connection, export) in state.connections.iter().zip(["oltp", "web"]) {
        assert_eq!((connection.export.as_str(), connection.unsent), (export, 0));
        assert_eq!(connection.transmission().size, 1 << 20);
        let input = parts.bytes(connection.input).expect("the bytes");
        // Requests of NBD, whole and half.
        assert_eq!(input[..4], [0x25, 0x60, 0x95, 0x13]);
    }
    // Three writes that waited for the limit, and 20 bytes of the header of another.
    assert_eq!(state.connections[0].input, 3 * (28 + 512) + 20);
    assert_eq!(state.connections[1].input, 28 + 100);
}
