//! Disks by vhost-user: every byte is as in a copy, on each backing, and guests come and go.

use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_device::catalogue;
use tidegate_server::config::{Config, DeviceKind};
use tidegate_server::ring::sys::direct_align;

use crate::common::vhost_guest::{
    ALL, Answer, CONFIG_WCE, DATA_MAX, DISCARD, EVENT_IDX, FLUSH_REQUEST, GET_ID, Guest, IN,
    INDIRECT_DESC, OUT, WRITE, WRITE_ZEROES, connect, listen, read_config,
};
use crate::common::{Server, disk, single, vm, wait};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

const MIB: u64 = 1 << 20;

/// Configuration of one disk on one of the backings, with a socket for it.
pub(crate) fn backing(dir: &Path, file: bool, size: u64) -> (Config, PathBuf) {
    let path = dir.join("disk.raw");
    let mut config = if file {
        single(dir, DeviceKind::File, Some(path), size)
    } else {
        single(dir, DeviceKind::Memory, None, size)
    };
    listen(&mut config, dir);
    (config, dir.join("disk.vhost"))
}

/// Configuration of one disk on an emulated device, with its data in memory or in a file.
pub(crate) fn emulated(dir: &Path, file: bool, size: u64) -> (Config, PathBuf) {
    let (mut config, socket) = backing(dir, file, size);
    let model = catalogue::load("ssd-sata-300gb").expect("built in");
    config.devices[0].kind = DeviceKind::Emulated {
        model: Box::new(model),
    };
    (config, socket)
}

/// Makes a temporary directory on a file system that is not in memory.
pub(crate) fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Request in flight and what a read must return; `None` for bytes that may be anything.
struct Pending {
    slot: u16,
    queue: usize,
    sectors: std::ops::Range<usize>,
    expected: Option<Vec<Option<u8>>>,
}

/// Returns the segment of a discard: first sector, number of sectors, flags.
fn segment(first: usize, len: usize) -> Vec<u8> {
    let mut segment = (first as u64).to_le_bytes().to_vec();
    segment.extend((len as u32).to_le_bytes());
    segment.extend([0; 4]);
    segment
}

/// Sends random requests on all queues and compares what is read with a copy of the disk.
fn run(guest: &mut Guest, queues: usize, sectors: usize, requests: usize, seed: u64) {
    run_beside(guest, queues, sectors, requests, seed, |_| {});
}

/// Sends requests like [`run`]; `meanwhile` is called before each.
pub(crate) fn run_beside(
    guest: &mut Guest,
    queues: usize,
    sectors: usize,
    requests: usize,
    seed: u64,
    mut meanwhile: impl FnMut(&mut Guest),
) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut copy: Vec<Option<u8>> = vec![Some(0); sectors * 512];
    let mut pending: Vec<Pending> = Vec::new();
    for _ in 0..requests {
        meanwhile(guest);
        let queue = rng.random_range(0..queues);
        while !guest.has_room(queue) {
            let answers = guest.answers(queue);
            check(guest, &mut pending, queue, answers);
        }
        let len = rng.random_range(1..=DATA_MAX / 512);
        let first = rng.random_range(0..sectors - len);
        let range = first..first + len;
        let clashes = |p: &Pending| p.sectors.start < range.end && range.start < p.sectors.end;
        if pending.iter().any(clashes) {
            continue;
        }
        let bytes = range.start * 512..range.end * 512;
        let mut expected = None;
        let mut segment = segment(first, len);
        let (kind, sector, data) = match rng.random_range(0..10) {
            0 => (FLUSH_REQUEST, 0, Vec::new()),
            1 => {
                copy[bytes].fill(None);
                (DISCARD, 0, segment)
            }
            2 => {
                copy[bytes].fill(Some(0));
                // Bit 0 of the flags: the range may lose its blocks.
                segment[12] = rng.random_range(0..2);
                (WRITE_ZEROES, 0, segment)
            }
            3..7 => {
                let data: Vec<u8> = (0..len * 512).map(|_| rng.random()).collect();
                let known = data.iter().copied().map(Some);
                copy[bytes].iter_mut().zip(known).for_each(|(b, d)| *b = d);
                (OUT, first as u64, data)
            }
            _ => {
                expected = Some(copy[bytes].to_vec());
                (IN, first as u64, vec![0xaa; len * 512])
            }
        };
        let slot = guest.submit(queue, kind, sector, &data);
        guest.kick(queue, 1);
        let sectors = if kind == FLUSH_REQUEST { 0..0 } else { range };
        pending.push(Pending {
            slot,
            queue,
            sectors,
            expected,
        });
    }
    for queue in 0..queues {
        while guest.in_flight(queue) > 0 {
            let answers = guest.answers(queue);
            check(guest, &mut pending, queue, answers);
        }
    }
    assert!(pending.is_empty());
}

fn check(guest: &Guest, pending: &mut Vec<Pending>, queue: usize, answers: Vec<Answer>) {
    for answer in answers {
        let of = |p: &Pending| (p.queue, p.slot) == (queue, answer.slot);
        let at = pending.iter().position(of).expect("it was submitted");
        let Pending { expected, .. } = pending.swap_remove(at);
        assert_eq!(answer.status, 0);
        let Some(expected) = expected else {
            assert_eq!(answer.written, 1, "the status");
            continue;
        };
        assert_eq!(answer.written as usize, expected.len() + 1);
        let found = guest.read_data(queue, answer.slot, expected.len());
        let same = |(found, expected): (&u8, &Option<u8>)| expected.is_none_or(|e| e == *found);
        assert!(found.iter().zip(&expected).all(same), "other bytes");
    }
}

fn every_byte_is_as_in_a_copy(config: Config, socket: &Path) {
    let server = Server::start(config);
    let plain = ALL & !EVENT_IDX & !INDIRECT_DESC;
    for (seed, features, queues) in [(1, ALL, 1), (2, ALL, 4), (3, plain, 2)] {
        let mut guest = Guest::start(socket, features, queues);
        // Each run begins with a disk of zeroes.
        let zeroes = vec![0; DATA_MAX];
        for first in (0..8 * MIB / 512).step_by(DATA_MAX / 512) {
            guest.write(first, &zeroes);
        }
        run(&mut guest, queues, (8 * MIB / 512) as usize, 700, seed);
        guest.leave();
    }
    server.stop().unwrap();
}

#[test]
fn every_byte_is_as_in_a_copy_over_several_queues() {
    let in_memory = || tempfile::tempdir_in("/dev/shm").unwrap();
    // Long reads of a file on tmpfs are copied, those of a hole are not.
    for (dir, file) in [(on_disk(), false), (on_disk(), true), (in_memory(), true)] {
        let (config, socket) = backing(dir.path(), file, 8 * MIB);
        every_byte_is_as_in_a_copy(config, &socket);
    }
}

#[test]
fn every_byte_is_as_in_a_copy_on_emulated_devices() {
    for file in [false, true] {
        let dir = on_disk();
        let (config, socket) = emulated(dir.path(), file, 8 * MIB);
        every_byte_is_as_in_a_copy(config, &socket);
    }
}

#[test]
fn a_guest_reads_nothing_of_a_file_in_memory_that_was_cut_short() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (config, socket) = backing(dir.path(), true, MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    let data = [7; DATA_MAX];
    for sector in (0..MIB / 512).step_by(DATA_MAX / 512) {
        guest.write(sector, &data);
    }
    assert_eq!(guest.read(0, DATA_MAX), data);
    let mut options = std::fs::File::options();
    let file = options
        .write(true)
        .open(dir.path().join("disk.raw"))
        .unwrap();
    // In the middle of a page, whose rest reads as zeroes from now on.
    file.set_len(MIB - 1000).unwrap();
    let last = (MIB - DATA_MAX as u64) / 512;
    let (answer, _) = guest.ask(IN, last, &data);
    assert_eq!((answer.status, answer.written), (1, 1), "an I/O error");
    guest.leave();
    drop(server);
}

#[test]
fn a_disk_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (mut config, socket) = backing(dir.path(), false, 4 * MIB);
    config.vms[0].disks[0].block_size = 4096;
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    let space = read_config(&mut guest.frontend);
    assert_eq!(space[..8], (4 * MIB / 512).to_le_bytes());
    assert_eq!(space[20..24], 4096u32.to_le_bytes());
    assert_eq!(guest.frontend.get_queue_num().unwrap(), 64);
    let (answer, id) = guest.ask(GET_ID, 0, &[0xff; 20]);
    assert_eq!((answer.status, answer.written), (0, 21));
    assert_eq!(&id, b"disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    // Requests that make no sense fail alone.
    assert_eq!(guest.ask(99, 0, &[]).0.status, 2, "an unknown type");
    assert_eq!(guest.ask(IN, 1, &[0; 4096]).0.status, 1, "half a block");
    let beyond = 4 * MIB / 512;
    assert_eq!(guest.ask(IN, beyond, &[0; 4096]).0.status, 1);
    assert_eq!(guest.ask(OUT, beyond - 4, &[0; 4096]).0.status, 1);
    guest.write(8, &[3; 4096]);
    assert_eq!(guest.read(8, 4096), [3; 4096]);
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn a_guest_and_an_nbd_client_see_the_same_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = backing(dir.path(), false, MIB);
    let server = Server::start(config);
    let mut client = server.connect("disk");
    let mut guest = Guest::start(&socket, ALL, 1);
    client.write(0, &[1; 512]);
    guest.write(1, &[2; 512]);
    assert_eq!(guest.read(0, 512), [1; 512]);
    assert_eq!(client.read(512, 512), [2; 512]);
    guest.leave();
    client.disconnect();
    server.stop().unwrap();
}

#[test]
fn a_queue_that_is_stopped_has_answered_all_that_it_took() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 2);
    let mut submitted = 0u16;
    for round in 0..20u64 {
        let many = 1 + round as u16 % 16;
        for n in 0..u64::from(many) {
            guest.submit(1, OUT, n * 128, &[round as u8; 64 << 10]);
        }
        guest.kick(1, many);
        submitted += many;
        let base = guest.stop_queue(1);
        // The device has answered all requests that it took, and left the others.
        let answered = guest.take_answers(1).len();
        assert_eq!(answered + guest.in_flight(1), usize::from(many));
        assert_eq!(usize::from(base), usize::from(submitted - many) + answered);
        guest.restart_at(1, base);
        while guest.in_flight(1) > 0 {
            guest.answers(1);
        }
    }
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn a_guest_that_reboots_or_reconnects_is_served_again() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    for round in 0..5u8 {
        let mut guest = Guest::start(&socket, ALL, 2);
        if round > 0 {
            assert_eq!(guest.read(0, 4096), vec![round; 4096]);
        }
        guest.write(0, &[round + 1; 4096]);
        // A reboot: queues stop, the device is reset, rings begin at zero.
        guest.stop_queue(0);
        guest.stop_queue(1);
        guest.frontend.reset_device().unwrap();
        guest.clear_queue(0);
        guest.start_queue(0);
        assert_eq!(guest.read(0, 4096), vec![round + 1; 4096]);
        if round % 2 == 0 {
            guest.leave();
        }
        // Otherwise its hypervisor vanishes.
    }
    server.stop().unwrap();
}

#[test]
fn one_front_end_is_served_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = backing(dir.path(), false, MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    assert!(connect(&socket, ALL).is_err(), "refused");
    guest.write(0, &[1; 512]);
    guest.leave();
    let mut again = Guest::start(&socket, ALL, 1);
    assert_eq!(again.read(0, 512), [1; 512]);
    again.leave();
    server.stop().unwrap();
}

#[test]
fn the_daemon_ends_while_guests_are_connected() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 2);
    guest.write(0, &[1; 4096]);
    for n in 0..16 {
        guest.submit(1, OUT, n * 128, &[9; 64 << 10]);
    }
    guest.kick(1, 16);
    server.stop().unwrap();
    assert!(guest.is_cut_off());
    // Each request was answered or not taken: none is half done.
    guest.take_answers(1);
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn the_cache_mode_can_be_set_by_a_driver_that_may() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, MIB);
    let server = Server::start(config);
    let flags = VhostUserConfigFlags::WRITABLE;
    let mut guest = Guest::start(&socket, ALL | CONFIG_WCE, 1);
    assert_eq!(read_config(&mut guest.frontend)[32], 1);
    guest.frontend.set_config(32, flags, &[0]).unwrap();
    assert_eq!(read_config(&mut guest.frontend)[32], 0);
    guest.write(0, &[1; 512]);
    // Any other field is read-only, and the connection ends.
    assert!(guest.frontend.set_config(0, flags, &[1]).is_err());
    assert!(guest.is_cut_off());
    drop(guest);
    let mut guest = Guest::start(&socket, ALL, 1);
    assert_eq!(guest.read(0, 512), [1; 512]);
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn disks_that_come_and_go_have_sockets_that_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = backing(dir.path(), false, MIB);
    let server = Server::start(config);
    let late = dir.path().join("late.vhost");
    assert!(socket.exists() && !late.exists());
    for round in 0..3u8 {
        let new = vm("late", 0, vec![disk("late", None, MIB)]);
        wait(server.handle.add_vm(new)).unwrap();
        until(|| late.exists());
        let mut guest = Guest::start(&late, ALL, 1);
        guest.write(8, &[round + 1; 512]);
        assert_eq!(guest.read(8, 512), [round + 1; 512]);
        // The removal stops the guest's device, whatever the guest does.
        wait(server.handle.remove_vm("late", true)).unwrap();
        assert!(guest.is_cut_off());
        until(|| !late.exists());
    }
    let mut guest = Guest::start(&socket, ALL, 1);
    guest.write(0, &[1; 512]);
    guest.leave();
    server.stop().unwrap();
}

fn until(holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !holds() {
        assert!(std::time::Instant::now() < end, "it does not happen");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn only_requests_that_are_not_aligned_are_copied() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, MIB);
    let path = config.vms[0].disks[0].path.clone().expect("a file");
    let server = Server::start(config);
    let align = direct_align(&std::fs::File::open(path).unwrap());
    let Some(align) = align.filter(|align| align.memory > 1) else {
        eprintln!("skipped: only_requests_that_are_not_aligned_are_copied: no direct I/O here");
        return server.stop().unwrap();
    };
    let bounced = || wait(server.handle.snapshot(0)).unwrap().vms[0].disks[0].bounced;
    let mut guest = Guest::start(&socket, ALL & !INDIRECT_DESC, 1);
    for n in 0..8 {
        guest.write(n * 8, &[n as u8 + 1; 4096]);
        assert_eq!(guest.read(n * 8, 4096), [n as u8 + 1; 4096]);
    }
    assert_eq!(bounced(), 0, "whole pages on whole blocks");
    // A sector of a larger block, or memory that begins at an odd address.
    let mut expected = 0;
    if align.offset > 512 {
        guest.write(1, &[9; 512]);
        expected += 1;
    }
    let header = guest.header(0, 0);
    let mut bytes = OUT.to_le_bytes().to_vec();
    bytes.extend([0; 12]);
    guest.put(header, &bytes);
    let odd = guest.data(0, 0) + 1;
    guest.put(odd, &[7; 4096]);
    guest.describe(
        0,
        &[(header, 16, 0), (odd, 4096, 0), (header + 48, 1, WRITE)],
        0,
    );
    guest.expect_slot(0, 0);
    guest.offer(0, 0);
    guest.kick_anyway(0);
    assert_eq!(guest.answers(0)[0].status, 0);
    assert_eq!(bounced(), expected + 1);
    assert_eq!(guest.read(0, 4096), [7; 4096]);
    guest.leave();
    server.stop().unwrap();
}
