//! A second frontend through the same loop and engine: requests that name guest memory.

use std::sync::Arc;
use std::thread::JoinHandle;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tokio::sync::{Notify, oneshot};

use tidegate_core::objective::Objective;
use tidegate_core::request::IoError;
use tidegate_core::time::Nanos;

use super::guest_memory_queue::{EXTENT, Guest, Id, submission};
use super::interface::Kind;
use super::{Failure, Opening, Volume};
use crate::backing::nbd::peer;
use crate::buffer::Mem;
use crate::command::{Command, NewConnection, VmSnapshot};
use crate::common::{disk, single, vm};
use crate::config::{Config, DeviceKind};
use crate::connections::VmConnections;
use crate::event_loop::{Files, LoopHandle, Prepared, Remains};
use crate::fault::{Effect, Rule};
use crate::ring::Pause;

const MIB: usize = 1 << 20;

/// Loop without a daemon, and its volumes.
struct Served {
    handle: LoopHandle,
    thread: JoinHandle<std::io::Result<Remains>>,
    volumes: Vec<(Volume, Arc<VmConnections>)>,
}

impl Served {
    fn start(config: &Config) -> Served {
        let prepared = Prepared::open(config, 0, &Files::default()).expect("sound");
        let volumes = prepared.volumes();
        let (handle, thread) = prepared
            .spawn((), Arc::new(Notify::new()), None)
            .expect("starts");
        Served {
            handle,
            thread,
            volumes,
        }
    }

    /// Connects a guest with `memory` bytes of guest memory to the first disk.
    fn connect(&self, memory: usize, places: usize) -> Guest {
        let guest = Guest::new(memory, places);
        let (volume, connections) = &self.volumes[0];
        let new = NewConnection {
            opening: Opening::Queue(guest.opening()),
            serial: volume.serial,
            disk: volume.name.clone(),
            peer: "guest".to_owned(),
            permit: connections.admit().expect("there is room"),
        };
        self.send(Command::AddConnection(Box::new(new)));
        guest
    }

    fn send(&self, command: Command) {
        self.handle.send(command).expect("the loop runs");
    }

    fn look(&self) -> VmSnapshot {
        let (reply, answer) = oneshot::channel();
        let vm = "disk".to_owned();
        self.send(Command::SnapshotVm { vm, reply });
        let answer = answer.blocking_recv().expect("the loop runs");
        answer.expect("the VM is there")
    }

    fn stop(self) {
        self.send(Command::Drain);
        let remains = self.thread.join().expect("no panic").expect("no error");
        assert!(remains.flushed);
    }
}

/// Storage for the disks of a test: memory, a file, an emulated device, and a peer.
fn places() -> Vec<(tempfile::TempDir, DeviceKind, bool)> {
    let model = tidegate_device::catalogue::load("nvme-1tb").expect("in the catalogue");
    let emulated = DeviceKind::Emulated {
        model: Box::new(model),
    };
    let here = std::env::current_exe().expect("a path");
    let beside = here.parent().expect("a directory");
    let kinds = [
        (DeviceKind::Memory, false),
        (DeviceKind::File, true),
        (emulated, false),
        (DeviceKind::File, true),
    ];
    let places = kinds.into_iter().map(|(kind, file)| {
        let dir = tempfile::tempdir_in(beside).expect("writable");
        (dir, kind, file)
    });
    let places: Vec<_> = places.collect();
    peer::serve(places[3].0.path());
    places
}

fn config((dir, kind, file): &(tempfile::TempDir, DeviceKind, bool), size: usize) -> Config {
    let path = file.then(|| dir.path().join("disk.raw"));
    single(dir.path(), kind.clone(), path, size as u64)
}

fn bytes(memory: &[Mem]) -> Vec<u8> {
    let mut all = Vec::new();
    for range in memory {
        let at = all.len();
        all.resize(at + range.len(), 0);
        range.read(&mut all[at..]);
    }
    all
}

fn fill(memory: &[Mem], with: &[u8]) {
    let mut rest = with;
    for range in memory {
        let (front, back) = rest.split_at(range.len());
        range.write(front);
        rest = back;
    }
}

/// Cuts guest memory for a request into ranges of uneven lengths.
fn cut(rng: &mut Pcg64, whole: Mem) -> Vec<Mem> {
    let (mut ranges, mut rest) = (Vec::new(), whole);
    while !rest.is_empty() {
        let most = rest.len();
        let len = rng.random_range(1..=most);
        ranges.push(rest.slice(0, len));
        rest = rest.from(len);
    }
    ranges
}

/// Request in flight: its range on the disk, and the data that a read must return.
struct Pending {
    id: Id,
    span: std::ops::Range<usize>,
    found: Option<(Vec<Mem>, Vec<u8>)>,
}

/// Sends random requests to a part of the disk, several at a time, and compares with a copy.
fn run(guest: &Guest, part: std::ops::Range<usize>, seed: u64) {
    const DEPTH: usize = 16;
    const LONGEST: usize = 32 << 10;
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut copy = vec![0u8; part.len()];
    let mut pending: Vec<Pending> = Vec::new();
    let mut free: Vec<usize> = (0..DEPTH).collect();
    for _ in 0..600 {
        while free.is_empty() || (rng.random_range(0..8) == 0 && !pending.is_empty()) {
            reap(guest, &mut pending, &mut free);
        }
        let from = rng.random_range(0..part.len() - LONGEST);
        let span = from..from + rng.random_range(1..LONGEST);
        let clashes = |p: &Pending| p.span.start < span.end && span.start < p.span.end;
        if pending.iter().any(clashes) {
            continue;
        }
        let place = free.pop().expect("there is one");
        let at = ((part.start + span.start) as u64, span.len() as u32);
        let whole = guest.mem(place * LONGEST, span.len());
        let (kind, memory, found) = match rng.random_range(0..8) {
            0 => (Kind::Flush, Vec::new(), None),
            1 => {
                copy[span.clone()].fill(0);
                let zeroes = Kind::WriteZeroes {
                    keep_allocated: false,
                    only_if_fast: false,
                };
                (zeroes, Vec::new(), None)
            }
            2..5 => {
                let data: Vec<u8> = (0..span.len()).map(|_| rng.random()).collect();
                let memory = cut(&mut rng, whole);
                fill(&memory, &data);
                copy[span.clone()].copy_from_slice(&data);
                (Kind::Write, memory, None)
            }
            _ => {
                let memory = cut(&mut rng, whole);
                let found = (memory.clone(), copy[span.clone()].to_vec());
                (Kind::Read, memory, Some(found))
            }
        };
        let at = if kind == Kind::Flush { (0, 0) } else { at };
        guest.submit([submission(place as u16, kind, at, memory)]);
        let id = Id(place as u16);
        pending.push(Pending { id, span, found });
    }
    while !pending.is_empty() {
        reap(guest, &mut pending, &mut free);
    }
}

fn reap(guest: &Guest, pending: &mut Vec<Pending>, free: &mut Vec<usize>) {
    for (id, outcome) in guest.answers() {
        let at = pending.iter().position(|p| p.id == id);
        let Pending { found, .. } = pending.swap_remove(at.expect("answered once"));
        assert_eq!(outcome, Ok(()));
        if let Some((memory, expected)) = found {
            assert!(bytes(&memory) == expected, "read something else");
        }
        free.push(id.0.into());
    }
}

#[test]
fn every_byte_is_as_in_a_copy_over_several_connections() {
    for place in places() {
        let served = Served::start(&config(&place, 4 * MIB));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let guest = served.connect(MIB, 64);
                scope.spawn(move || {
                    run(&guest, part * MIB..(part + 1) * MIB, part as u64);
                    guest.leave();
                    guest.wait_until_closed();
                });
            }
        });
        let vm = served.look();
        assert!(vm.stats.latency.count() > 1000);
        assert_eq!(
            vm.reply_time.iter().map(|r| r.count()).sum::<u64>(),
            vm.stats.latency.count(),
            "each reply is counted"
        );
        assert_eq!((vm.clients, vm.pending, vm.holdings.slots), (0, 0, 0));
        served.stop();
    }
}

#[test]
fn guest_memory_takes_none_of_the_payload_memory() {
    for place in places() {
        let mut config = config(&place, 8 * MIB);
        config.devices[0].scheduling.buffer_memory = 16 << 10;
        config.devices[0].scheduling.buffer_memory_per_vm = 16 << 10;
        let served = Served::start(&config);
        let guest = served.connect(8 * MIB, 64);
        for kind in [Kind::Write, Kind::Read] {
            guest.submit((0..8).map(|n| {
                let memory = vec![guest.mem(n * MIB, MIB)];
                submission(n as u16, kind, ((n * MIB) as u64, MIB as u32), memory)
            }));
            let mut answered = 0;
            while answered < 8 {
                let answers = guest.answers();
                assert!(answers.iter().all(|(_, outcome)| outcome.is_ok()));
                answered += answers.len();
                assert_eq!(served.look().holdings.payload, 0);
            }
        }
        served.stop();
    }
}

#[test]
fn each_error_reaches_its_request_and_no_other() {
    let place = places().swap_remove(0);
    let mut config = config(&place, MIB);
    config.vms[0].disks[0].faults = vec![Rule {
        from: 64 << 10,
        to: 68 << 10,
        ..Rule::always(Effect::Error(IoError::Io))
    }];
    let served = Served::start(&config);
    let guest = served.connect(MIB, 64);
    let mem = |len| vec![guest.mem(0, len)];
    let zeroes = Kind::WriteZeroes {
        keep_allocated: false,
        only_if_fast: false,
    };
    let extents = Kind::Extents {
        most: 512,
        reply_len: 4096,
    };
    let cases = [
        (Kind::Read, 0, 4096, mem(4096), Ok(())),
        (Kind::Read, 64 << 10, 4096, mem(4096), Err(Failure::Io)),
        (Kind::Write, 64 << 10, 512, mem(512), Err(Failure::Io)),
        (Kind::Read, 68 << 10, 4096, mem(4096), Ok(())),
        (Kind::Read, MIB as u64, 1, mem(1), Err(Failure::Invalid)),
        (Kind::Write, u64::MAX, 1, mem(1), Err(Failure::NoSpace)),
        (zeroes, MIB as u64, 1, Vec::new(), Err(Failure::NoSpace)),
        (Kind::Read, 0, 4096, mem(4095), Err(Failure::Invalid)),
        (Kind::Write, 0, 4096, mem(8192), Err(Failure::Invalid)),
        (Kind::Read, 0, 4096, Vec::new(), Err(Failure::Invalid)),
        (Kind::Read, 0, 0, Vec::new(), Err(Failure::Invalid)),
        (extents, 0, 4096, Vec::new(), Err(Failure::Invalid)),
        (extents, 0, 4096, mem(4095), Err(Failure::Invalid)),
        (extents, MIB as u64, 1, mem(4096), Err(Failure::Invalid)),
        (extents, 64 << 10, 4096, mem(4096), Ok(())),
        (Kind::Cache, 0, 4096, Vec::new(), Ok(())),
        (Kind::Discard, 0, 4096, Vec::new(), Ok(())),
        (Kind::Flush, 0, 0, Vec::new(), Ok(())),
    ];
    let expected = cases.clone().map(|(.., outcome)| outcome);
    guest.submit(cases.into_iter().enumerate().map(|(n, case)| {
        let (kind, offset, len, memory, _) = case;
        submission(n as u16, kind, (offset, len), memory)
    }));
    let mut outcomes = vec![None; expected.len()];
    while outcomes.contains(&None) {
        for (Id(id), outcome) in guest.answers() {
            assert_eq!(
                outcomes[id as usize].replace(outcome),
                None,
                "answered twice"
            );
        }
    }
    assert_eq!(outcomes, expected.map(Some));
    assert_eq!(served.look().holdings.slots, 0);
    served.stop();
}

/// Returns the extents in guest memory: length, and true for a hole.
fn extents_in(memory: &[Mem]) -> Vec<(u32, bool)> {
    let bytes = bytes(memory);
    let words = bytes
        .chunks(EXTENT)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let extents = words.map(|word| (word as u32, word >> 32 != 0));
    extents.take_while(|(len, _)| *len > 0).collect()
}

#[test]
fn a_guest_is_told_in_its_own_memory_which_parts_are_holes() {
    let mut holes = 0;
    for place in places() {
        let mut config = config(&place, 4 * MIB);
        // Room for four replies at a time.
        config.devices[0].scheduling.buffer_memory = 16 << 10;
        config.devices[0].scheduling.buffer_memory_per_vm = 16 << 10;
        let served = Served::start(&config);
        let guest = served.connect(4 * MIB, 64);
        let data = vec![guest.mem(0, MIB)];
        fill(&data, &vec![7; MIB]);
        guest.submit([submission(0, Kind::Write, (MIB as u64, MIB as u32), data)]);
        assert_eq!(guest.answers(), [(Id(0), Ok(()))]);
        let ask = |most: u32| Kind::Extents {
            most,
            reply_len: most * EXTENT as u32,
        };
        let mut rng = Pcg64::seed_from_u64(2);
        let memory: Vec<Vec<Mem>> = (0..40)
            .map(|n| cut(&mut rng, guest.mem(2 * MIB + n * 4096, 4096)))
            .collect();
        guest.submit(memory.iter().enumerate().map(|(n, memory)| {
            submission(n as u16, ask(512), (0, 4 * MIB as u32), memory.clone())
        }));
        let mut answered = 0;
        while answered < memory.len() {
            let answers = guest.answers();
            assert!(
                answers.iter().all(|(_, outcome)| outcome.is_ok()),
                "{answers:?}"
            );
            answered += answers.len();
        }
        for memory in &memory {
            let extents = extents_in(memory);
            let mut at = 0;
            for &(len, hole) in &extents {
                let end = at + len as usize;
                assert!(!hole || end <= MIB || at >= 2 * MIB, "{extents:?}");
                holes += usize::from(hole);
                at = end;
            }
            assert_eq!(at, 4 * MIB, "{extents:?}");
        }
        let one = vec![guest.mem(0, EXTENT)];
        let asked = submission(50, ask(1), (5000, 100), one.clone());
        guest.submit([asked]);
        assert_eq!(guest.answers(), [(Id(50), Ok(()))]);
        let [(len, _)] = extents_in(&one)[..] else {
            panic!("one was asked for");
        };
        assert!((1..=100).contains(&len), "{len}");
        let vm = served.look();
        assert_eq!((vm.holdings.slots, vm.holdings.payload), (0, 0));
        served.stop();
    }
    assert!(holes > 0, "a sparse file has holes");
}

#[test]
fn a_disk_that_is_read_only_refuses_writes() {
    let place = places().swap_remove(0);
    let mut config = config(&place, MIB);
    config.vms[0].disks[0].read_only = true;
    let served = Served::start(&config);
    let guest = served.connect(MIB, 64);
    let memory = vec![guest.mem(0, 512)];
    guest.submit([submission(7, Kind::Write, (0, 512), memory)]);
    assert_eq!(guest.answers(), [(Id(7), Err(Failure::NotPermitted))]);
    served.stop();
}

#[test]
fn a_guest_that_takes_no_answers_is_given_no_more_than_it_has_places_for() {
    let place = places().swap_remove(0);
    let served = Served::start(&config(&place, MIB));
    let guest = served.connect(MIB, 4);
    guest.submit((0..200).map(|n| {
        let memory = vec![guest.mem(n * 512, 512)];
        submission(n as u16, Kind::Read, (n as u64 * 512, 512), memory)
    }));
    let mut answered = 0;
    while answered < 200 {
        // Requests of one turn are polled before the first of them is answered.
        assert!(guest.ready() <= 4 + 64);
        answered += guest.answers().len();
    }
    assert_eq!(guest.ready(), 0);
    served.stop();
}

#[test]
fn pauses_of_a_connection_take_one_percent_of_its_vms_latency_bound() {
    let place = places().swap_remove(0);
    let mut config = config(&place, MIB);
    config.vms[0].objective.latency = Some(Nanos::from_millis(1));
    let other = disk("other", None, 1 << 20);
    config.vms.push(vm("other", 0, vec![other]));
    let served = Served::start(&config);
    let guest = served.connect(4096, 1);
    served.look();
    assert_eq!(guest.longest_pause(), Some(Pause::at_most(Nanos(10_000))));
    let bounds = [
        ("disk", Some(Nanos(99_999)), Pause::NONE),
        ("disk", None, Pause::LONGEST),
        ("other", Some(Nanos(99_999)), Pause::LONGEST),
        ("disk", Some(Nanos::from_secs(1)), Pause::LONGEST),
        ("disk", Some(Nanos(700_000)), Pause::at_most(Nanos(7_000))),
    ];
    for (vm, latency, longest) in bounds {
        let (reply, answer) = oneshot::channel();
        let objective = Box::new(Objective {
            latency,
            ..Objective::default()
        });
        let vm = vm.to_owned();
        served.send(Command::SetObjective {
            vm,
            objective,
            reply,
        });
        answer.blocking_recv().expect("the loop runs").expect("set");
        assert_eq!(guest.longest_pause(), Some(longest), "{latency:?}");
    }
    guest.leave();
    served.stop();
}

/// Starts a loop whose disk takes an hour for a request, and a guest with some requests in flight
/// and some waiting.
fn with_requests_in_flight() -> (Served, Guest, tempfile::TempDir) {
    let place = places().swap_remove(1);
    let mut config = config(&place, MIB);
    config.devices[0].scheduling.depth = 4;
    config.vms.push(vm(
        "other",
        0,
        vec![disk("other", Some(place.0.path().join("o")), 1 << 20)],
    ));
    config.vms[0].disks[0].faults = vec![Rule {
        stall: Nanos::from_secs(3600),
        ..Rule::always(Effect::None)
    }];
    let served = Served::start(&config);
    let guest = served.connect(MIB, 64);
    guest.submit((0..16).map(|n| {
        let memory = vec![guest.mem(n * 8192, 4096)];
        let kind = if n % 2 == 0 { Kind::Read } else { Kind::Write };
        submission(n as u16, kind, (n as u64 * 8192, 4096), memory)
    }));
    while served.look().pending < 12 {
        std::thread::yield_now();
    }
    (served, guest, place.0)
}

#[test]
fn guest_memory_is_kept_until_the_device_has_left_it_alone() {
    let (served, guest, _dir) = with_requests_in_flight();
    guest.die();
    while served.look().pending > 0 {
        std::thread::yield_now();
    }
    // Waiting requests were cancelled; those with the device still use the guest's memory.
    assert_eq!(served.look().in_flight, 4);
    assert!(!guest.is_closed());
    let (reply, answer) = oneshot::channel();
    let (vm, force) = ("disk".to_owned(), true);
    served.send(Command::RemoveVm { vm, force, reply });
    guest.wait_until_closed();
    let disks = answer.blocking_recv().expect("the loop runs");
    assert_eq!(disks.expect("removed").len(), 1);
    assert_eq!(guest.ready(), 0, "no request is left to be answered");
    served.stop();
}

#[test]
fn the_end_of_the_daemon_answers_what_is_in_flight() {
    let (served, guest, _dir) = with_requests_in_flight();
    served.stop();
    guest.wait_until_closed();
    let answers = guest.answers();
    assert_eq!(answers.len(), 16);
    assert!(answers.iter().all(|(_, outcome)| outcome.is_ok()));
}
