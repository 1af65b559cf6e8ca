//! Memory tables of vhost-user guests that change under I/O: regions are unmapped once nothing uses
//! them, and a queue without its rings waits until they are back.

use std::os::unix::fs::FileExt;

use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use crate::common::Server;
use crate::common::vhost_guest::{
    ALL, AVAILABLE, EVENT_IDX, Guest, IN, OUT, QUEUE_BYTES, SIZE, USED, USER, memory, region,
};
use crate::vhost_user::{backing, on_disk, run_beside};

const MIB: u64 = 1 << 20;

/// Returns the regions of a guest's memory, one for each queue.
fn regions(guest: &Guest, queues: usize) -> Vec<VhostUserMemoryRegionInfo> {
    let part = |index| {
        let mut part = region(&guest.memory);
        let at = guest.base(index);
        part.guest_phys_addr += at;
        part.userspace_addr += at;
        part.mmap_offset = at;
        part.memory_size = QUEUE_BYTES;
        part
    };
    (0..queues).map(part).collect()
}

/// Starts a guest whose queues have a region each.
fn start(socket: &std::path::Path, features: u64, queues: usize) -> Guest {
    let guest = Guest::start(socket, features, queues);
    let table = regions(&guest, queues);
    guest.frontend.set_mem_table(&table).unwrap();
    guest
}

#[test]
fn memory_changes_while_requests_are_in_flight() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = Guest::start(&socket, ALL, 1);
    let other = memory(1);
    let mut beside = region(&other);
    beside.guest_phys_addr += 1 << 30;
    beside.userspace_addr += 1 << 30;
    for round in 0..20u8 {
        for n in 0..16 {
            guest.submit(0, OUT, n * 128, &[round; 64 << 10]);
        }
        guest.kick(0, 16);
        match round % 3 {
            0 => {
                let table = [region(&guest.memory)];
                guest.frontend.set_mem_table(&table).unwrap();
            }
            1 => {
                guest.frontend.add_mem_region(&beside).unwrap();
            }
            _ => guest.frontend.remove_mem_region(&beside).unwrap(),
        }
        while guest.in_flight(0) > 0 {
            guest.answers(0);
        }
        assert_eq!(guest.read(15 * 128, 64 << 10), vec![round; 64 << 10]);
    }
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn regions_with_rings_come_and_go_under_io() {
    for file in [false, true] {
        let dir = on_disk();
        let (config, socket) = backing(dir.path(), file, 8 * MIB);
        let server = Server::start(config);
        for (seed, features) in [(1, ALL), (2, ALL & !EVENT_IDX)] {
            let mut guest = start(&socket, features, 2);
            let zeroes = vec![0; 64 << 10];
            for first in (0..8 * MIB / 512).step_by(128) {
                guest.write(first, &zeroes);
            }
            let table = regions(&guest, 2);
            let sectors = (8 * MIB / 512) as usize;
            let mut request = 0;
            run_beside(&mut guest, 2, sectors, 600, seed, |guest| {
                let n = request;
                request += 1;
                let queue = n / 10 % 2;
                let frontend = &mut guest.frontend;
                match n % 40 {
                    // As QEMU does for memory that is plugged in or out.
                    0 | 10 => {
                        frontend.remove_mem_region(&table[queue]).unwrap();
                        frontend.add_mem_region(&table[queue]).unwrap();
                    }
                    20 | 30 => {
                        frontend.set_mem_table(&table[1 - queue..][..1]).unwrap();
                        frontend.set_mem_table(&table).unwrap();
                    }
                    _ => {}
                }
            });
            guest.leave();
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_queue_without_its_rings_waits_and_the_others_go_on() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = start(&socket, ALL, 2);
    let table = regions(&guest, 2);
    for n in 0..8 {
        guest.submit(1, OUT, n * 128, &[1; 64 << 10]);
    }
    guest.kick(1, 8);
    guest.frontend.remove_mem_region(&table[1]).unwrap();
    // Nothing of what it took is left open.
    let answered = guest.take_answers(1).len();
    // The rings are the guest's alone now, whatever is in them.
    let at = guest.base(1);
    let mut rings = vec![0; 0x3000];
    guest.memory.read_exact_at(&mut rings, at).unwrap();
    guest.put(at, &[0xa5; 0x3000]);
    guest.kick_anyway(1);
    guest.frontend.set_vring_enable(1, false).unwrap();
    guest.frontend.set_vring_enable(1, true).unwrap();
    guest.write(2048, &[3; 512]);
    assert_eq!(guest.read(2048, 512), [3; 512], "the other queue");
    let mut untouched = vec![0; 0x3000];
    guest.memory.read_exact_at(&mut untouched, at).unwrap();
    assert_eq!(untouched, [0xa5; 0x3000]);
    guest.put(at, &rings);
    for n in 8..12 {
        guest.submit(1, OUT, n * 128, &[2; 64 << 10]);
    }
    guest.kick_anyway(1);
    // The kick came while nobody looked, and is not repeated.
    guest.frontend.add_mem_region(&table[1]).unwrap();
    let mut all = answered;
    while guest.in_flight(1) > 0 {
        all += guest.answers(1).len();
    }
    assert_eq!(all, 12);
    assert_eq!(guest.read(8 * 128, 64 << 10), [2; 64 << 10]);
    assert_eq!(guest.read(2048, 512), [3; 512]);
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn a_queue_without_its_rings_can_be_stopped() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = start(&socket, ALL, 2);
    let table = regions(&guest, 2);
    for n in 0..8 {
        guest.submit(1, OUT, n * 128, &[n as u8 + 1; 64 << 10]);
    }
    guest.kick(1, 8);
    guest.frontend.remove_mem_region(&table[1]).unwrap();
    let taken = guest.take_answers(1).len() as u16;
    for n in 8..16 {
        guest.submit(1, OUT, n * 128, &[n as u8 + 1; 64 << 10]);
    }
    guest.kick_anyway(1);
    let base = guest.stop_queue(1);
    assert_eq!(base, taken, "nothing is taken without rings");
    assert_eq!(guest.stop_queue(1), base);
    guest.frontend.add_mem_region(&table[1]).unwrap();
    guest.restart_at(1, base);
    while guest.in_flight(1) > 0 {
        guest.answers(1);
    }
    for n in 0..16 {
        assert_eq!(guest.read(n * 128, 64 << 10), vec![n as u8 + 1; 64 << 10]);
    }
    guest.leave();
    server.stop().unwrap();
}

#[test]
fn messages_for_a_queue_without_its_rings_hold_when_they_are_back() {
    let dir = on_disk();
    let (config, socket) = backing(dir.path(), true, 4 * MIB);
    let server = Server::start(config);
    let mut guest = start(&socket, ALL, 2);
    let table = regions(&guest, 2);
    guest.frontend.set_mem_table(&table[..1]).unwrap();
    // Addresses are kept also where no memory is yet; eventfds are replaced.
    let base = USER + guest.base(1);
    let addresses = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: base,
        used_ring_addr: base + USED,
        avail_ring_addr: base + AVAILABLE,
        log_addr: None,
    };
    guest.frontend.set_vring_addr(1, &addresses).unwrap();
    guest.renew_eventfds(1);
    let refused = guest.frontend.set_vring_base(1, 0);
    assert!(refused.is_err(), "it has not been stopped");
    assert!(guest.is_cut_off());
    drop(guest);
    let mut guest = start(&socket, ALL, 2);
    let table = regions(&guest, 2);
    guest.frontend.set_mem_table(&table[..1]).unwrap();
    guest.frontend.set_vring_addr(1, &addresses).unwrap();
    guest.renew_eventfds(1);
    guest.submit(1, IN, 0, &[9; 512]);
    guest.frontend.set_mem_table(&table).unwrap();
    assert_eq!(guest.answers(1).len(), 1);
    guest.leave();
    server.stop().unwrap();
}
