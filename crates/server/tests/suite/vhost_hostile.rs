//! Guests and hypervisors that break the rules of vhost-user: theirs is the only device that stops,
//! and the next front-end is served.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;

use tidegate_core::time::Nanos;
use tidegate_server::command::FaultChange;
use tidegate_server::fault::{Effect, Rule};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::common::vhost_guest::{
    ALL, AVAILABLE, GUEST, Guest, IN, INDIRECT, OUT, SIZE, USED, USER, WRITE, connect, memory,
    region,
};
use crate::common::{Client, Server, disk, vm, wait};
use crate::vhost_user::backing;

const MIB: u64 = 1 << 20;

/// Daemon with a disk for the guest, and a neighbour on the same device.
struct Scene {
    server: Server,
    socket: std::path::PathBuf,
    neighbour: Client,
    writes: u8,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let (mut config, socket) = backing(dir.path(), false, MIB);
        let other = vec![disk("other", None, MIB)];
        config.vms.push(vm("other", 0, other));
        let server = Server::start(config);
        let neighbour = server.connect("other");
        Scene {
            server,
            socket,
            neighbour,
            writes: 0,
            _dir: dir,
        }
    }

    /// Runs what a guest does; its device must stop, its neighbour and its next guest must not.
    fn stops(&mut self, what: &str, act: impl FnOnce(&mut Guest)) {
        let mut guest = Guest::start(&self.socket, ALL, 1);
        act(&mut guest);
        assert!(guest.is_cut_off(), "{what}");
        drop(guest);
        self.goes_on(what);
    }

    /// Checks that the neighbour and the next guest are served.
    fn goes_on(&mut self, what: &str) {
        self.writes = self.writes.wrapping_add(1);
        self.neighbour.write(0, &[self.writes; 512]);
        assert_eq!(self.neighbour.read(0, 512), [self.writes; 512], "{what}");
        let mut next = Guest::start(&self.socket, ALL, 1);
        next.write(0, &[self.writes; 512]);
        assert_eq!(next.read(0, 512), [self.writes; 512], "{what}");
        next.leave();
    }
}

/// Descriptor: offset in guest memory, length, flags.
type Part = (u64, u32, u16);

/// Offers a chain of descriptors and kicks.
fn chain(guest: &mut Guest, parts: &[Part]) {
    guest.describe(0, parts, 0);
    guest.offer(0, 0);
    guest.kick_anyway(0);
}

#[test]
fn chains_that_break_a_rule_stop_their_device_alone() {
    let mut scene = Scene::new();
    let end = 2 * MIB;
    let chains: [(&str, &[Part]); 10] = [
        (
            "a header of 15 bytes",
            &[(0x8000, 15, 0), (0x9000, 1, WRITE)],
        ),
        ("no status byte", &[(0x8000, 16, 0)]),
        ("no header", &[(0x9000, 513, WRITE)]),
        ("no bytes", &[(0x8000, 16, 0), (0x9000, 0, WRITE)]),
        ("beyond memory", &[(0x8000, 16, 0), (end - 1, 2, WRITE)]),
        ("huge", &[(0x8000, 16, 0), (0x9000, u32::MAX, WRITE)]),
        ("wraps around", &[(0u64.wrapping_sub(GUEST + 8), 16, 0)]),
        ("wrong order", &[(0x9000, 1, WRITE), (0x8000, 16, 0)]),
        ("a table of 15 bytes", &[(0x4000, 15, INDIRECT)]),
        ("a table beyond memory", &[(end - 16, 32, INDIRECT)]),
    ];
    for (what, parts) in chains {
        scene.stops(what, |guest| chain(guest, parts));
    }
    scene.stops("a table in a table", |guest| {
        guest.describe(0x4000, &[(0x4000, 16, INDIRECT)], 0);
        chain(guest, &[(0x4000, 16, INDIRECT)]);
    });
    scene.stops("a loop", |guest| {
        guest.describe(0, &[(0x8000, 16, 0), (0x8000, 16, 0)], 0);
        // The second descriptor, with a successor: the first.
        guest.put(16 + 12, &[1, 0, 0, 0]);
        guest.offer(0, 0);
        guest.kick_anyway(0);
    });
    scene.stops("a head outside of the table", |guest| {
        guest.offer(0, SIZE);
        guest.kick_anyway(0);
    });
    scene.stops("more entries than the queue has", |guest| {
        guest.put(AVAILABLE + 2, &(SIZE + 1).to_le_bytes());
        guest.kick_anyway(0);
    });
    scene.stops("a head twice", |guest| {
        guest.submit(0, OUT, 0, &[1; 512]);
        let head = guest.u16_at(AVAILABLE + 4);
        guest.offer(0, head);
        guest.kick_anyway(0);
    });
    scene.server.stop().unwrap();
}

#[test]
fn memory_that_is_cut_short_stops_its_device_alone() {
    let mut scene = Scene::new();
    scene.stops("the rings are gone", |guest| {
        guest.submit(0, IN, 0, &[0; 512]);
        guest.memory.set_len(0).unwrap();
        guest.kick_anyway(0);
    });
    scene.stops("the data is gone", |guest| {
        guest.submit(0, IN, 0, &[0; 512]);
        guest.memory.set_len(guest.data(0, 0)).unwrap();
        guest.kick_anyway(0);
    });
    scene.server.stop().unwrap();
}

#[test]
fn memory_that_is_cut_short_while_a_new_table_waits_stops_its_device_alone() {
    let mut scene = Scene::new();
    for round in 0..8 {
        let stall = Rule {
            stall: Nanos::from_secs(3600),
            ..Rule::always(Effect::None)
        };
        let stalls = FaultChange::Add(Box::new(stall));
        wait(scene.server.handle.change_faults(0, "disk", stalls)).unwrap();
        let mut guest = Guest::start(&scene.socket, ALL, 1);
        guest.submit(0, IN, 0, &[0; 512]);
        guest.kick_anyway(0);
        while wait(scene.server.handle.snapshot(0)).unwrap().vms[0].in_flight == 0 {}
        // A table waits for the request, whose answer then goes to memory that is gone.
        let table = memory(1);
        let (frontend, next) = (guest.frontend.clone(), region(&table));
        let asks = std::thread::spawn(move || frontend.set_mem_table(&[next]));
        while !is_mapped(&table) && !asks.is_finished() {}
        guest.memory.set_len(0).unwrap();
        let clear = FaultChange::Clear;
        wait(scene.server.handle.change_faults(0, "disk", clear)).unwrap();
        asks.join().unwrap().unwrap_err();
        assert!(guest.is_cut_off());
        drop(guest);
        scene.goes_on(&format!("round {round}"));
    }
    scene.server.stop().unwrap();
}

/// Returns true if the process has a mapping of a file.
fn is_mapped(file: &File) -> bool {
    let inode = format!(" {} ", file.metadata().unwrap().ino());
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .contains(&inode)
}

#[test]
fn messages_that_make_no_sense_end_the_session_alone() {
    let mut scene = Scene::new();
    type Act = fn(&mut Guest);
    let messages: [(&str, Act); 10] = [
        ("a size that is no power of two", |guest| {
            guest.frontend.set_vring_num(0, 63).unwrap_err();
        }),
        ("a size of zero", |guest| {
            guest.frontend.set_vring_num(0, 0).unwrap_err();
        }),
        ("a size beyond the largest", |guest| {
            guest.frontend.set_vring_num(0, 2048).unwrap_err();
        }),
        ("a new index while it runs", |guest| {
            guest.frontend.set_vring_base(0, 7).unwrap_err();
        }),
        ("rings outside of memory", |guest| {
            let addresses = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: USER + 2 * MIB,
                used_ring_addr: USER + USED,
                avail_ring_addr: USER + AVAILABLE,
                log_addr: None,
            };
            guest.frontend.set_vring_addr(0, &addresses).unwrap_err();
        }),
        ("a region beyond its file", |guest| {
            let mut table = region(&guest.memory);
            table.memory_size += 1;
            guest.frontend.set_mem_table(&[table]).unwrap_err();
        }),
        ("a region that wraps around", |guest| {
            let mut table = region(&guest.memory);
            table.guest_phys_addr = u64::MAX - 4095;
            guest.frontend.set_mem_table(&[table]).unwrap_err();
        }),
        ("regions that overlap", |guest| {
            let again = region(&guest.memory);
            guest.frontend.add_mem_region(&again).unwrap_err();
        }),
        ("a region that is not there", |guest| {
            let mut gone = region(&guest.memory);
            gone.guest_phys_addr += 4096;
            guest.frontend.remove_mem_region(&gone).unwrap_err();
        }),
        ("features that were not offered", |guest| {
            guest.frontend.set_features(ALL | 1 << 34).unwrap_err();
        }),
    ];
    for (what, act) in messages {
        scene.stops(what, act);
    }
    scene.server.stop().unwrap();
}

#[test]
fn files_of_the_wrong_kind_end_the_session_alone() {
    let mut scene = Scene::new();
    let on_disk = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    on_disk.set_len(2 * MIB).unwrap();
    scene.stops("memory on a disk", |guest| {
        guest
            .frontend
            .set_mem_table(&[region(&on_disk)])
            .unwrap_err();
    });
    let file = || {
        use std::os::fd::{FromRawFd, IntoRawFd};
        let fd = memory(1).into_raw_fd();
        // SAFETY: a descriptor with no other owner; that it is no eventfd is the point.
        unsafe { EventFd::from_raw_fd(fd) }
    };
    scene.stops("a file for kicks", |guest| {
        guest.frontend.set_vring_kick(0, &file()).unwrap_err();
    });
    scene.stops("a file for notifications", |guest| {
        guest.frontend.set_vring_call(0, &file()).unwrap_err();
    });
    // Nobody reads it, and its count is as large as it may be.
    let mut guest = Guest::start(&scene.socket, ALL, 1);
    let full = EventFd::new(EFD_NONBLOCK).unwrap();
    full.write(u64::MAX - 1).unwrap();
    guest.frontend.set_vring_call(0, &full).unwrap();
    guest.submit(0, OUT, 0, &[1; 512]);
    guest.kick(0, 1);
    while guest.take_answers(0).is_empty() {
        std::thread::yield_now();
    }
    guest.leave();
    scene.goes_on("an eventfd that is full");
    scene.server.stop().unwrap();
}

/// Hands over memory that records requests in flight, of a device whose queue is stopped.
fn set_record(guest: &mut Guest, described: VhostUserInflight, file: &File) -> vhost::Result<()> {
    guest.stop_queue(0);
    (guest.frontend).set_inflight_fd(&described, file.as_raw_fd())
}

/// Starts a queue that was stopped.
fn start_again(guest: &mut Guest) -> vhost::Result<()> {
    let kick = EventFd::new(EFD_NONBLOCK).unwrap();
    guest.frontend.set_vring_kick(0, &kick)
}

#[test]
fn memory_for_requests_in_flight_that_makes_no_sense_ends_the_session_alone() {
    let mut scene = Scene::new();
    let on_disk = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    on_disk.set_len(MIB).unwrap();
    let file = memory(1);
    let described = VhostUserInflight::new;
    let last_page = u64::MAX - 4095;
    let messages = [
        ("too short for a queue", described(63, 0, 1, SIZE)),
        ("beyond its file", described(2 * MIB, 2 * MIB, 64, 1024)),
        ("no page", described(MIB, 8, 1, SIZE)),
        ("wraps around", described(2 * MIB, last_page, 64, 1024)),
        (
            "more queues than there are",
            described(2 * MIB, 0, 65, SIZE),
        ),
        ("longer queues than any", described(MIB, 0, 1, 1025)),
    ];
    for (what, message) in messages {
        scene.stops(what, |guest| {
            set_record(guest, message, &file).unwrap_err();
        });
    }
    let sound = described(MIB, 0, 1, SIZE);
    scene.stops("a file on a disk", |guest| {
        set_record(guest, sound, &on_disk).unwrap_err();
    });
    scene.stops("a queue runs", |guest| {
        let set = guest.frontend.set_inflight_fd(&sound, file.as_raw_fd());
        set.unwrap_err();
    });
    scene.stops("a queue that is longer than its record", |guest| {
        set_record(guest, described(MIB, 0, 1, SIZE / 2), &file).unwrap();
        start_again(guest).unwrap_err();
    });
    scene.stops("more than any device has", |guest| {
        let asked = described(0, 0, 65, 1024);
        assert!(guest.frontend.get_inflight_fd(&asked).is_err());
    });
    scene.server.stop().unwrap();
}

#[test]
fn records_of_requests_in_flight_with_other_bytes_stop_their_device_alone() {
    // Offsets of the first queue's fields, and of a descriptor's.
    const VERSION: u64 = 8;
    const ENTRIES: u64 = 10;
    const LAST_BATCH: u64 = 12;
    const USED_INDEX: u64 = 14;
    const MARK: u64 = 16 + 16 * 5;
    const NEXT: u64 = MARK + 6;
    const COUNTER: u64 = MARK + 8;
    let mut scene = Scene::new();
    type Bytes = &'static [(u64, &'static [u8])];
    let records: [(&str, Bytes); 6] = [
        ("an unknown version", &[(VERSION, &[2])]),
        ("queues of another size", &[(ENTRIES, &[63])]),
        ("a mark that is none", &[(MARK, &[2])]),
        ("the last counter", &[(MARK, &[1]), (COUNTER, &[0xff; 8])]),
        ("an old index", &[(MARK, &[1]), (USED_INDEX, &[0, 0x80])]),
        (
            "a loop of answers",
            &[
                (MARK, &[1]),
                (LAST_BATCH, &[5, 0, 0xfe, 0xff]),
                (NEXT, &[5]),
            ],
        ),
    ];
    let recorded = |scene: &Scene, bytes: Bytes| {
        let mut guest = Guest::start_recorded(&scene.socket, ALL, 1);
        guest.stop_queue(0);
        let (_, file) = guest.record.as_ref().unwrap();
        for (at, bytes) in bytes {
            file.write_all_at(bytes, *at).unwrap();
        }
        guest
    };
    for (what, bytes) in records {
        let mut guest = recorded(&scene, bytes);
        start_again(&mut guest).unwrap_err();
        assert!(guest.is_cut_off(), "{what}");
        drop(guest);
        scene.goes_on(what);
    }
    // A request that the driver has not offered: its descriptor is empty, or it is.
    for what in ["no request", "a request before its time"] {
        let mut guest = recorded(&scene, &[(MARK, &[1])]);
        if what != "no request" {
            let parts = [(0x8000, 16, 0), (0x9000, 512, WRITE), (0x9200, 1, WRITE)];
            guest.describe(0, &parts, 5);
        }
        // The queue is enabled, so that the device may stop before it answers.
        let _ = start_again(&mut guest);
        assert!(guest.is_cut_off(), "{what}");
        drop(guest);
        scene.goes_on(what);
    }
    scene.server.stop().unwrap();
}

#[test]
fn a_record_of_requests_in_flight_that_is_cut_short_stops_its_device_alone() {
    let mut scene = Scene::new();
    scene.stops("the record is gone", |guest| {
        let file = memory(1);
        set_record(guest, VhostUserInflight::new(MIB, 0, 1, SIZE), &file).unwrap();
        guest.restart_at(0, 0);
        guest.submit(0, OUT, 0, &[1; 512]);
        guest.kick(0, 1);
        guest.answers(0);
        file.set_len(0).unwrap();
        guest.submit(0, OUT, 0, &[2; 512]);
        guest.kick_anyway(0);
    });
    scene.server.stop().unwrap();
}

#[test]
fn half_a_message_and_noise_block_nobody() {
    let mut scene = Scene::new();
    let mut half = UnixStream::connect(&scene.socket).unwrap();
    half.write_all(&[1, 0, 0, 0, 1]).unwrap();
    // Only one front-end is served at a time, whatever it does.
    assert!(connect(&scene.socket, ALL).is_err());
    scene.neighbour.write(0, &[9; 512]);
    assert_eq!(scene.neighbour.read(0, 512), [9; 512]);
    drop(half);
    scene.goes_on("half a message");
    for noise in [[0xff; 64], [0; 64]] {
        let mut stream = UnixStream::connect(&scene.socket).unwrap();
        // The session may have ended before all is written.
        let _ = stream.write_all(&noise);
        drop(stream);
        scene.goes_on("noise");
    }
    // One that says nothing does not hold up the end, either.
    let _silent = UnixStream::connect(&scene.socket).unwrap();
    scene.server.stop().unwrap();
}
