//! Processes and threads of targets: descendants, reused numbers, inherited bytes, cgroups, and the
//! restoring of priorities.

use super::*;

const IDLE: IoPriority = IoPriority::for_class(Class::Idle);
/// Transfer of 3,000 MB in 31 s: it takes 30 s alone on the disk, so that all others are lowered.
const TIGHT: TransferSpec = mb_within_s(3_000, 31);
/// Transfer that no test lives to see the end of.
const ENDLESS: TransferSpec = mb_within_s(100_000, 2_000);

fn is_exit(event: &Event) -> bool {
    matches!(event, Event::Exited { .. })
}

#[test]
fn new_threads_get_the_class_and_all_priorities_are_restored() {
    let mut world = SetUp::new(TIGHT).start();
    world.run(2);
    assert_eq!(world.host.priorities(200), [IDLE; 2]);
    // In Linux a thread inherits its parent's priority.
    world.host.change(200, |fake| {
        fake.threads.insert(thread(205, 9), IDLE);
        // Another one has set its own.
        fake.threads.insert(thread(206, 9), IoPriority::NONE);
        fake.threads.remove(&thread(201, 1));
    });
    world.run(2);
    assert_eq!(world.host.priorities(200), [IDLE; 3]);
    drop(world.agent);
    assert_eq!(world.host.priorities(200), [IoPriority::NONE; 3]);
}

#[test]
fn process_with_a_reused_number_is_left_alone() {
    let mut world = SetUp::new(TIGHT).start();
    let host = world.host.clone();
    world.run(2);
    host.end(200, false);
    let events = world.run(1);
    assert!(has_event(&events, is_exit), "{events:?}");
    // Another process with the same number: not the named one, so it is left alone.
    host.start(200, 77, DISK_BYTES_PER_S);
    let own = IoPriority::for_class(Class::RealTime);
    host.change(200, |fake| {
        fake.threads.values_mut().for_each(|now| *now = own)
    });
    let events = world.run(1);
    let is_found = |event: &Event| matches!(event, Event::Found { .. });
    assert!(!has_event(&events, is_found), "{events:?}");
    assert!(!world.report(1).present);
    // The transfer's process ends, so the transfer ends unfinished.
    host.end(100, false);
    world.run(2);
    assert!(
        matches!(world.state(), State::EndedEarly { left } if left > 2_000 * MB),
        "{:?}",
        world.state()
    );
    assert!(world.agent.is_done());
    drop(world.agent);
    assert_eq!(host.priorities(200), [own; 2]);
}

#[test]
fn missing_process_is_an_error() {
    let specs = vec![spec("job", Target::Pid(100))];
    let agent = Agent::new(FakeHost::default(), Nanos::ZERO, config(), specs);
    assert_eq!(
        agent.err().expect("no such process").to_string(),
        "process 100 not found"
    );
}

#[test]
fn descendants_count_for_the_target_and_get_its_class() {
    let mut world = SetUp::new(TIGHT).start();
    let host = world.host.clone();
    // The transfer's process only waits for a child that does the work, and another target has
    // children as well.
    host.change(100, |fake| fake.demand = 0);
    host.fork(100, 110, 5, DISK_BYTES_PER_S);
    host.change(200, |fake| fake.demand = 0);
    host.fork(200, 210, 5, DISK_BYTES_PER_S);
    host.fork(210, 220, 6, DISK_BYTES_PER_S);
    let events = world.run(31);
    let State::Done { late, .. } = world.state() else {
        panic!("{events:?}")
    };
    assert_eq!(late, Nanos::ZERO, "{events:?}");
    for id in [110, 210, 220] {
        let is_found =
            |event: &Event| matches!(event, Event::Found { process, .. } if process.id == id);
        assert!(has_event(&events, is_found), "{id}: {events:?}");
    }
    let mut world = SetUp::new(TIGHT).start();
    world.host.fork(200, 210, 5, DISK_BYTES_PER_S);
    // A process that has set its own priority instead of the inherited one.
    world.host.change(210, |fake| {
        fake.threads.insert(thread(210, 5), IoPriority::NONE);
    });
    world.host.fork(210, 220, 6, DISK_BYTES_PER_S);
    world.run(2);
    assert_eq!(
        (world.host.priorities(210), world.host.priorities(220)),
        (vec![IDLE], vec![IDLE])
    );
    // The parent of a process ends: the process stays with its target and is restored with the
    // others.
    world.host.end(210, true);
    let events = world.run(2);
    assert!(!has_event(&events, is_exit), "{events:?}");
    drop(world.agent);
    assert_eq!(world.host.priorities(220), [IoPriority::NONE]);
    assert_eq!(world.host.priorities(200), [IoPriority::NONE; 2]);
}

/// Children of a process do the work, one after the other, and end in any way: each byte counts
/// once.
#[test]
fn bytes_of_an_ended_child_count_once() {
    for waits in [true, false] {
        let mut world = SetUp::new(ENDLESS).start();
        let host = world.host.clone();
        host.change(100, |fake| fake.demand = 0);
        host.change(200, |fake| fake.demand = 0);
        let mut moved = 0;
        for n in 0..5 {
            host.fork(100, 110 + n, 5 + u64::from(n), 10 * MB);
            world.run(3);
            moved += 30 * MB;
            assert_eq!(world.moved(0), moved, "{waits}, child {n}");
            // After the last scan only bytes that the parent inherits are known.
            host.change(110 + n, |fake| fake.moved += 2 * MB);
            host.end(110 + n, waits);
            moved += if waits { 2 * MB } else { 0 };
            world.run(1);
            assert_eq!(world.moved(0), moved, "{waits}, after child {n}");
        }
    }
}

/// A child whose parent waits for it between two scans; and one whose parent ends at the same time.
#[test]
fn inherited_bytes_count_once_if_parent_reaps_late_or_ends_too() {
    let mut world = SetUp::new(ENDLESS).start();
    let host = world.host.clone();
    for id in [100, 200] {
        host.change(id, |fake| fake.demand = 0);
    }
    host.fork(100, 110, 5, 10 * MB);
    host.fork(110, 120, 6, 10 * MB);
    world.run(2);
    assert_eq!(world.moved(0), 40 * MB);
    // Both at once: the parent inherits the grandchild's bytes as part of the child's.
    host.end(120, true);
    host.end(110, true);
    world.run(1);
    assert_eq!(world.moved(0), 40 * MB);
    // The child has ended, and its parent inherits the bytes only by the next scan.
    host.fork(100, 130, 9, 10 * MB);
    world.run(2);
    host.end(130, false);
    world.run(1);
    host.change(100, |fake| fake.moved += 20 * MB);
    world.run(1);
    assert_eq!(world.moved(0), 60 * MB);
    // Bytes that the heir moves later count as its own.
    host.change(100, |fake| fake.moved += 20 * MB);
    world.run(1);
    assert_eq!(world.moved(0), 80 * MB);
}

/// A child leaves the cgroup of its parent, which moves as much by itself.
#[test]
fn bytes_of_a_process_that_left_are_not_taken_from_its_parent() {
    let host = FakeHost::default();
    host.start(100, 1, 50 * MB);
    host.fork(100, 110, 5, 10 * MB);
    *host.cgroup.borrow_mut() = vec![100, 110];
    let mut specs = vec![spec("job", Target::Cgroup("all".into()))];
    specs[0].transfer = Some(ENDLESS);
    let mut world = World::new(host.clone(), config(), specs);
    world.run(2);
    assert_eq!(world.moved(0), 120 * MB);
    *host.cgroup.borrow_mut() = vec![100];
    world.run(2);
    assert_eq!(world.moved(0), 220 * MB);
    // The process ends elsewhere, and its parent inherits 40 MB: bytes moved in the cgroup count.
    host.end(110, true);
    world.run(1);
    assert_eq!(world.moved(0), 290 * MB);
}

#[test]
fn process_that_could_not_be_read_once_counts_from_the_scan_before() {
    let mut world = SetUp::new(ENDLESS).start();
    let host = world.host.clone();
    for id in [100, 200] {
        host.change(id, |fake| fake.demand = 20 * MB);
    }
    host.fork(100, 110, 5, 10 * MB);
    world.run(2);
    assert_eq!(world.moved(0), 60 * MB);
    host.change(110, |fake| fake.unreadable = true);
    world.run(1);
    assert_eq!(world.moved(0), 80 * MB);
    host.change(110, |fake| fake.unreadable = false);
    world.run(1);
    assert_eq!(world.moved(0), 120 * MB);
}

#[test]
fn process_belongs_to_the_target_that_names_it() {
    let host = FakeHost::default();
    host.start(100, 1, 0);
    host.fork(100, 200, 2, 50 * MB);
    host.fork(200, 210, 3, 50 * MB);
    // The first target started the second one, like a shell.
    let mut specs = vec![
        spec("shell", Target::Pid(100)),
        spec("job", Target::Pid(200)),
    ];
    for spec in &mut specs {
        spec.transfer = Some(ENDLESS);
    }
    let mut world = World::new(host, config(), specs);
    world.run(1);
    assert_eq!((world.moved(0), world.moved(1)), (0, 100 * MB));
    world.host.end(200, true);
    let events = world.run(1);
    // The shell has inherited the other process's bytes, which do not count as its own.
    assert_eq!(
        (world.moved(0), world.moved(1)),
        (0, 150 * MB),
        "{events:?}"
    );
}

#[test]
fn process_that_leaves_a_cgroup_gets_its_priority_back() {
    let host = FakeHost::default();
    host.start(100, 1, DISK_BYTES_PER_S);
    host.start(200, 1, DISK_BYTES_PER_S);
    host.start(300, 1, DISK_BYTES_PER_S);
    let own = IoPriority::for_class(Class::BestEffort);
    host.change(200, |fake| {
        fake.threads.values_mut().for_each(|now| *now = own)
    });
    *host.cgroup.borrow_mut() = vec![200, 300];
    let mut specs = vec![
        spec("job", Target::Pid(100)),
        spec("rest", Target::Cgroup("all".into())),
    ];
    specs[0].transfer = Some(TIGHT);
    let mut world = World::new(host.clone(), config(), specs);
    world.run(1);
    assert_eq!(
        (host.priorities(200), host.priorities(300)),
        (vec![IDLE; 2], vec![IDLE; 2])
    );
    *host.cgroup.borrow_mut() = vec![300];
    world.run(1);
    assert_eq!(
        (host.priorities(200), host.priorities(300)),
        (vec![own; 2], vec![IDLE; 2])
    );
}
