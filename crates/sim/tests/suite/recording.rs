//! Recordings of simulated requests, against the log that judges of promises read.

use std::collections::BTreeMap;

use crate::common::{DISK, good};
use crate::world::with;
use tidegate_recording::{Change, Recording, Request};
use tidegate_sim::device::RequestEvent;
use tidegate_sim::world::World;

/// Runs a scenario of one device. Returns its recording, and the requests that the simulator's own
/// log has as answered.
fn recorded(text: &str) -> (Vec<u8>, Vec<Shadow>) {
    let mut world = World::new(good(text), None);
    world.record(0);
    world.keep_requests();
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    while !world.is_over() {
        world.step(&mut |_| {});
        world.take_recording(0, &mut bytes);
        world.take_requests(0, &mut events);
    }
    world.end_recording(0, &mut bytes);
    (bytes, shadows(&events))
}

/// Request as the simulator's log has it: VM, operation, address, length, arrival, end, and time
/// with the device.
type Shadow = (usize, u8, u64, u32, u64, u64, u64);

fn shadows(events: &[RequestEvent]) -> Vec<Shadow> {
    let mut arrivals = BTreeMap::new();
    let mut answered = Vec::new();
    for event in events {
        match *event {
            RequestEvent::Arrived(arrival) => {
                arrivals.insert(arrival.slot, arrival);
            }
            RequestEvent::Answered { at, slot, device } => {
                let it = arrivals.remove(&slot).expect("it has arrived");
                let (op, arrived) = (it.op as u8, it.at.0);
                answered.push((it.vm, op, it.offset, it.len, arrived, at.0, device.0));
            }
            RequestEvent::Stalled { .. } => {}
        }
    }
    answered.sort_unstable();
    answered
}

fn shadow_of(recording: &Recording, request: &Request) -> Shadow {
    let vm = recording.inventory.vm_of_disk(request.disk);
    let times = [
        request.arrived,
        request.admitted,
        request.sent,
        request.done,
    ];
    assert!(times.is_sorted(), "{request:?}");
    (
        vm.expect("every request has a VM").number as usize,
        request.op as u8,
        request.offset,
        request.len,
        request.arrived.0,
        request.done.0,
        request.done.since(request.sent).0,
    )
}

#[test]
fn every_request_is_recorded_once_with_its_address_and_times() {
    let text = format!(
        "seed = 7\n{}{}{}",
        DISK.replace("merge_limit = \"0 B\"", "max_io = \"64 KiB\"")
            .replace("policy = \"fifo\"", "policy = \"limit\""),
        with(
            "a",
            "rw = \"randrw\"\niodepth = 4\nbs = \"4 KiB\"\nfsync = 8"
        ),
        with("b", "rw = \"write\"\niodepth = 2\nbs = \"256 KiB\"")
            .replace("disk =", "objective = { limit = \"20 IOPS\" }\ndisk ="),
    );
    let (bytes, shadows) = recorded(&text);
    let recording = Recording::read(bytes.as_slice(), usize::MAX).expect("readable");
    assert!(recording.is_whole() && recording.summary.is_complete);
    assert!(shadows.len() > 1000, "{} requests", shadows.len());
    let mut found: Vec<Shadow> = (recording.requests.iter())
        .map(|request| shadow_of(&recording, request))
        .collect();
    found.sort_unstable();
    assert_eq!(found, shadows);
    // The limit holds the requests of its VM back, and of no other.
    let held = |number: u32| {
        let requests = recording.requests.iter();
        let mut of_vm = requests.filter(|request| request.disk == number);
        of_vm.any(|request| request.admitted > request.arrived)
    };
    assert_eq!((held(0), held(1)), (false, true));
    assert_eq!(
        recording.header.device.model.as_deref(),
        Some("hdd-7200-1tb")
    );
    let names: Vec<&str> = (recording.header.vms.iter())
        .map(|vm| vm.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let limit = recording.header.vms[1].objective.limit.as_ref();
    assert_eq!(
        limit.and_then(|it| it.rates.total.as_deref()),
        Some("20 IOPS")
    );
}

#[test]
fn the_same_scenario_gives_the_same_bytes_of_a_recording() {
    let text = format!(
        "seed = 7\n{DISK}{}",
        with("a", "rw = \"randrw\"\niodepth = 4")
    );
    let (once, _) = recorded(&text);
    assert_eq!(recorded(&text).0, once);
    assert_ne!(recorded(&text.replace("seed = 7", "seed = 8")).0, once);
}

#[test]
fn changes_of_a_scenario_stand_at_their_times() {
    let text = format!(
        "{DISK}{}{}
        [[event]]
        at = \"2 s\"
        policy = \"mclock\"
        [[event]]
        at = \"3 s\"
        vm = \"a\"
        objective = {{ reservation = \"20 IOPS\" }}",
        with("a", "rw = \"randread\""),
        with("b", "rw = \"randread\"").replace(
            "disk =",
            "arrives = \"2500 ms\"\nleaves = \"5500 ms\"\ndisk ="
        ),
    );
    let (bytes, _) = recorded(&text);
    let recording = Recording::read(bytes.as_slice(), usize::MAX).expect("readable");
    let changes = recording.changes.iter().map(|(at, change)| {
        let what = match change {
            Change::Policy { policy } => policy.name.clone(),
            Change::VmAdded { vm } => format!("{} added", vm.name),
            Change::VmRemoved { vm } => format!("{vm} removed"),
            Change::Objective { vm, objective } => {
                format!("{vm} {}", objective.reservation.as_deref().unwrap_or("-"))
            }
            other => panic!("{other:?}"),
        };
        (at.0 / 1_000_000, what)
    });
    let expected = [
        (2000, "mclock"),
        (2500, "b added"),
        (3000, "0 20 IOPS"),
        (5500, "1 removed"),
    ];
    let expected = expected.map(|(at, what)| (at, what.to_owned()));
    assert_eq!(changes.collect::<Vec<_>>(), expected);
    let of_b = |request: &&Request| request.disk == 1;
    let last = recording.requests.iter().rfind(of_b);
    let last = last.expect("it was there for three seconds");
    assert!(last.done.0 <= 5_500_000_000, "{last:?}");
}
