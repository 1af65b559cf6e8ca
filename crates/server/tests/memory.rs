//! Exhausted memory, and requests for more without end, cause delays and no failures.
//!
//! A binary of its own, because the test limits the resident set of the whole process.

#[path = "suite/common/mod.rs"]
mod common;

use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use common::{Server, disk, request, single, vm};
use tidegate_nbd::Command;
use tidegate_nbd::client::encode_request;
use tidegate_server::config::DeviceKind;

const MIB: u64 = 1 << 20;

#[test]
fn block_status_waits_for_memory_and_does_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = single(dir.path(), DeviceKind::Memory, None, MIB);
    config.devices[0].scheduling.buffer_memory = 128 << 10;
    config.devices[0].scheduling.buffer_memory_per_vm = 128 << 10;
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, MIB)]));
    let server = Server::start(config);
    // A write whose payload arrives slowly holds all of the payload memory.
    let mut slow = server.connect("disk");
    let len = 128 << 10;
    slow.send(request(Command::Write, 1, 0, len), &vec![5; 1000]);
    std::thread::sleep(Duration::from_millis(100));
    let mut other = server.connect("other");
    other.send(
        request(Command::BlockStatus { one: false }, 2, 0, 4096),
        &[],
    );
    std::thread::sleep(Duration::from_millis(100));
    slow.stream
        .write_all(&vec![5; len as usize - 1000])
        .unwrap();
    assert_eq!(slow.receive().result, Ok(vec![]));
    let answer = other.receive();
    assert_eq!(answer.result, Ok(vec![]));
    assert_eq!(answer.extents.len(), 1);
}

#[test]
fn questions_about_extents_are_bounded() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.raw");
    // Many extents, so that block status takes longer to answer than to request.
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(64 * MIB).unwrap();
    for at in (0..64 * MIB).step_by(32 << 10) {
        file.write_all_at(&[1; 4096], at).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let server = Server::start(single(dir.path(), DeviceKind::File, Some(path), 64 * MIB));
    let mut client = server.connect("disk");
    let ask = Command::BlockStatus { one: false };
    let batch: Vec<u8> = (0..1000)
        .flat_map(|i| encode_request(&request(ask, i, 0, 64 << 20)))
        .collect();
    client.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut idle) = (0, 0);
    while idle < 20 && sent < 400_000 * 28 {
        match client.stream.write(&batch[sent % batch.len()..]) {
            Ok(n) => (sent, idle) = (sent + n, 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(sent < 40_000 * 28, "{} questions were taken", sent / 28);
    // The requests that were sent are answered.
    client.stream.set_nonblocking(false).unwrap();
    for _ in 0..200 {
        assert_eq!(client.receive().extents.len(), 1024);
    }
}

#[test]
fn zeroes_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let size = 4 << 30;
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, size));
    let mut client = server.connect("disk");
    client.write(5000, &[1; 10_000]);
    let zeroes = Command::WriteZeroes {
        no_hole: true,
        fast_zero: false,
    };
    let len = (size - 4096) as u32;
    assert_eq!(client.ask(zeroes, 4096, len, &[]).result, Ok(vec![]));
    assert_eq!(client.read(5000, 10_000), [0; 10_000]);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 1 << 20, "{resident}");
}
