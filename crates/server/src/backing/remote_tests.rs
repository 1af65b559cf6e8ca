//! Disks on a peer, under a whole daemon: broken connections, block status and sizes. The tests of
//! the event loop cover their bytes, errors and flushes together with those of all other disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_nbd::{Command, NbdError};

use super::remote::peer::{self, OnCut};
use crate::common::shadow::{Plan, run};
use crate::common::{Server, request, single, wait};
use crate::config::DeviceKind;
use crate::ring::faults::{self, Call, Fault, What};

const MIB: u64 = 1 << 20;

/// Fault that makes the peer break the connection instead of carrying out a call.
const CUT_BEFORE_CALL: Fault = Fault::Error(libc::EINTR);
/// Fault that makes the peer carry out a call, and break the connection instead of answering.
const CUT_BEFORE_ANSWER: Fault = Fault::Error(libc::EAGAIN);

/// Starts a daemon with the disk `disk` on a peer with these faults.
fn start(
    dir: &tempfile::TempDir,
    on_cut: OnCut,
    faults: impl FnMut(Call) -> Fault + Send + 'static,
) -> Server {
    let path = dir.path().join("disk.raw");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(4 * MIB).unwrap();
    faults::set(&file, faults);
    peer::serve(dir.path(), on_cut);
    let config = single(dir.path(), DeviceKind::File, Some(path), 4 * MIB);
    Server::start(config)
}

/// Returns faults that break the connection at every call whose number is a multiple of `every`,
/// alternately before and after the call, and the number of connections broken so far.
fn cuts(every: u32) -> (Arc<AtomicU32>, impl FnMut(Call) -> Fault + Send + 'static) {
    let cut = Arc::new(AtomicU32::new(0));
    let (count, mut calls) = (cut.clone(), 0);
    let faults = move |_| {
        calls += 1;
        if calls % every != 0 {
            return Fault::None;
        }
        match count.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => CUT_BEFORE_CALL,
            _ => CUT_BEFORE_ANSWER,
        }
    };
    (cut, faults)
}

#[test]
fn requests_in_flight_on_a_broken_connection_are_resent_without_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (cut, faults) = cuts(20);
    let server = start(&dir, OnCut::Resend, faults);
    let plan = Plan {
        seed: 4,
        start: 0,
        size: 4 * MIB,
        block: 1,
        blocks_max: 128 << 10,
        depth: 16,
        requests: 600,
    };
    run(&mut server.connect("disk"), &plan);
    let snapshot = wait(server.handle.snapshot(0)).unwrap();
    assert_eq!(snapshot.vms[0].disks[0].failed, None);
    server.stop().unwrap();
    assert!(cut.load(Ordering::Relaxed) > 10, "{cut:?}");
}

#[test]
fn requests_in_flight_on_a_broken_connection_fail_where_they_are_not_resent() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut faults) = cuts(10);
    let writes_only = move |call: Call| match call.what {
        What::Write => faults(call),
        _ => Fault::None,
    };
    let server = start(&dir, OnCut::Fail, writes_only);
    let mut client = server.connect("disk");
    let mut failed = [false; 64];
    for cookie in 0..64 {
        let write = request(Command::Write, cookie, cookie * 8192, 4096);
        client.send(write, &[cookie as u8 + 1; 4096]);
    }
    for _ in 0..64 {
        let answer = client.receive();
        match answer.result {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, NbdError::Eio);
                failed[answer.cookie as usize] = true;
            }
        }
    }
    assert!(
        failed.contains(&true) && failed.contains(&false),
        "{failed:?}"
    );
    // The next connection serves the writes that succeeded. No flush was lost, so the disk has not
    // failed.
    for cookie in (0..64).filter(|&cookie| !failed[cookie as usize]) {
        assert_eq!(client.read(cookie * 8192, 4096), [cookie as u8 + 1; 4096]);
    }
    assert_eq!(client.flush(), Ok(()));
    server.stop().unwrap();
}

#[test]
fn a_flush_whose_answer_was_lost_fails_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut is_first = true;
    let faults = move |call: Call| match call.what {
        What::Sync if std::mem::take(&mut is_first) => CUT_BEFORE_ANSWER,
        _ => Fault::None,
    };
    let server = start(&dir, OnCut::Fail, faults);
    let mut client = server.connect("disk");
    client.write(0, &[1; 4096]);
    assert_eq!(client.flush(), Err(NbdError::Eio));
    assert_eq!(client.flush(), Err(NbdError::Eio));
    let write = client.ask(Command::Write, 0, 512, &[3; 512]);
    assert_eq!(write.result, Err(NbdError::Eio));
    assert_eq!(client.read(0, 4096), [1; 4096]);
    let snapshot = wait(server.handle.snapshot(0)).unwrap();
    assert!(snapshot.vms[0].disks[0].failed.is_some());
    server.stop().unwrap();
}

#[test]
fn block_status_comes_from_the_peer_also_on_new_connections() {
    let dir = tempfile::tempdir().unwrap();
    let (_, faults) = cuts(3);
    let server = start(&dir, OnCut::Resend, faults);
    let mut client = server.connect("disk");
    client.write(MIB, &vec![1; MIB as usize]);
    client.flush().unwrap();
    /// Cookie of the block status request; reads have the number of their round.
    const STATUS_COOKIE: u64 = 1000;
    for round in 0..20 {
        let status = Command::BlockStatus { one: false };
        client.send(request(status, STATUS_COOKIE, 0, 4 << 20), &[]);
        client.send(request(Command::Read { df: false }, round, MIB, 4096), &[]);
        let answers = [client.receive(), client.receive()];
        let status = answers.iter().find(|answer| answer.cookie == STATUS_COOKIE);
        let extents = &status.expect("both are answered").extents;
        let mut at = 0;
        for extent in extents {
            let end = at + u64::from(extent.len);
            let is_data = at < 2 * MIB && end > MIB;
            assert!(!(is_data && extent.hole), "{extents:?}");
            at = end;
        }
        assert_eq!(at, 4 * MIB);
    }
    server.stop().unwrap();
}

#[test]
fn a_disk_on_a_peer_cannot_be_resized() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, OnCut::Resend, |_| Fault::None);
    let resized = wait(server.handle.resize_disk("disk", "disk", 8 * MIB, false));
    let message = resized.expect_err("refused").to_string();
    assert!(message.contains("the peer decides"), "{message}");
    server.connect("disk").write(0, &[1; 4096]);
    server.stop().unwrap();
}
