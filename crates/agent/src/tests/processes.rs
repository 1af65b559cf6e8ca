use super::*;

const IDLE: IoPriority = IoPriority::for_class(Class::Idle);

#[test]
fn new_threads_have_what_the_others_have_and_all_is_put_back() {
    let mut world = SetUp::new((3_000, 31)).start();
    world.run(2);
    assert_eq!(world.host.of(200), [IDLE; 2]);
    // In Linux a thread inherits its parent's priority.
    world.host.change(200, |fake| {
        fake.threads.insert(thread(205, 9), IDLE);
        fake.threads.insert(thread(206, 9), IoPriority::NONE);
        fake.threads.remove(&thread(201, 1));
    });
    world.run(2);
    assert_eq!(world.host.of(200), [IDLE; 3]);
    drop(world.agent);
    assert_eq!(world.host.of(200), [IoPriority::NONE; 3]);
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut world = SetUp::new((3_000, 31)).start();
    let host = world.host.clone();
    world.run(2);
    host.end(200, false);
    let said = world.run(1);
    assert!(says(&said, "Left"), "{said:?}");
    // Another process with the same number: not the named one, so it is left alone.
    host.start(200, 77, DISK);
    let own = IoPriority::for_class(Class::RealTime);
    host.change(200, |fake| {
        fake.threads.values_mut().for_each(|now| *now = own)
    });
    let said = world.run(1);
    assert!(!says(&said, "Found"), "{said:?}");
    assert!(!world.report(1).present);
    // The transfer's process ends, so the transfer ends unfinished.
    host.end(100, false);
    world.run(2);
    assert!(
        matches!(world.state(), State::Gone { left } if left > 2_000 * MB),
        "{:?}",
        world.state()
    );
    assert!(world.agent.is_done());
    drop(world.agent);
    assert_eq!(host.of(200), [own; 2]);
}

#[test]
fn somebody_who_is_not_there_is_an_error() {
    let plans = vec![plan("job", Target::Pid(100))];
    let terms = (Nanos::from_secs(3), Some(DISK), false);
    let agent = Agent::new(FakeHost::default(), Nanos::ZERO, terms, plans);
    assert_eq!(
        agent.err().expect("nobody is there").to_string(),
        "there is no process 100"
    );
}

#[test]
fn what_a_process_starts_counts_with_it_and_has_its_class() {
    let mut world = SetUp::new((3_000, 31)).start();
    let host = world.host.clone();
    // The transfer's process only waits for a child that does the work, and another target has
    // children as well.
    host.change(100, |fake| fake.wants = 0);
    host.fork(100, 110, 5, DISK);
    host.change(200, |fake| fake.wants = 0);
    host.fork(200, 210, 5, DISK);
    host.fork(210, 220, 6, DISK);
    let said = world.run(31);
    let State::Done { late, .. } = world.state() else {
        panic!("{said:?}")
    };
    assert_eq!(late, Nanos::ZERO, "{said:?}");
    for id in [110, 210, 220] {
        assert!(says(&said, &format!("id: {id},")), "{id}: {said:?}");
    }
    let mut world = SetUp::new((3_000, 31)).start();
    world.host.fork(200, 210, 5, DISK);
    world.host.change(210, |fake| {
        fake.threads.insert(thread(210, 5), IoPriority::NONE);
    });
    world.host.fork(210, 220, 6, DISK);
    world.run(2);
    assert_eq!(
        (world.host.of(210), world.host.of(220)),
        (vec![IDLE], vec![IDLE])
    );
    // The parent of a process ends: the process stays with its target and is restored with the
    // others.
    world.host.end(210, true);
    let said = world.run(2);
    assert!(!says(&said, "Left"), "{said:?}");
    drop(world.agent);
    assert_eq!(world.host.of(220), [IoPriority::NONE]);
    assert_eq!(world.host.of(200), [IoPriority::NONE; 2]);
}

/// Children of a process do the work, one after the other, and end in any way: each byte counts
/// once.
#[test]
fn the_bytes_of_a_child_that_ended_count_once() {
    for waits in [true, false] {
        let mut world = SetUp::new((100_000, 2_000)).start();
        let host = world.host.clone();
        host.change(100, |fake| fake.wants = 0);
        host.change(200, |fake| fake.wants = 0);
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
fn what_an_heir_has_late_or_by_another_counts_once() {
    let mut world = SetUp::new((100_000, 2_000)).start();
    let host = world.host.clone();
    for id in [100, 200] {
        host.change(id, |fake| fake.wants = 0);
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

#[test]
fn a_process_belongs_to_who_names_it() {
    let host = FakeHost::default();
    host.start(100, 1, 0);
    host.fork(100, 200, 2, 50 * MB);
    host.fork(200, 210, 3, 50 * MB);
    // The first target started the second one, like a shell.
    let mut plans = vec![
        plan("shell", Target::Pid(100)),
        plan("job", Target::Pid(200)),
    ];
    for plan in &mut plans {
        plan.transfer = Some((100_000 * MB, Nanos::from_secs(2_000)));
    }
    let mut world = World::new(host, (Some(DISK), false), plans);
    world.run(1);
    assert_eq!((world.moved(0), world.moved(1)), (0, 100 * MB));
    world.host.end(200, true);
    let said = world.run(1);
    // The shell has inherited the other process's bytes, which do not count as its own.
    assert_eq!((world.moved(0), world.moved(1)), (0, 150 * MB), "{said:?}");
}

#[test]
fn who_leaves_a_cgroup_gets_back_what_it_had() {
    let host = FakeHost::default();
    host.start(100, 1, DISK);
    host.start(200, 1, DISK);
    host.start(300, 1, DISK);
    let own = IoPriority::for_class(Class::BestEffort);
    host.change(200, |fake| {
        fake.threads.values_mut().for_each(|now| *now = own)
    });
    *host.cgroup.borrow_mut() = vec![200, 300];
    let mut plans = vec![
        plan("job", Target::Pid(100)),
        plan("rest", Target::Cgroup("all".into())),
    ];
    plans[0].transfer = Some((3_000 * MB, Nanos::from_secs(31)));
    let mut world = World::new(host.clone(), (Some(DISK), false), plans);
    world.run(1);
    assert_eq!((host.of(200), host.of(300)), (vec![IDLE; 2], vec![IDLE; 2]));
    *host.cgroup.borrow_mut() = vec![300];
    world.run(1);
    assert_eq!((host.of(200), host.of(300)), (vec![own; 2], vec![IDLE; 2]));
}
