//! Deadlines: forecasts, lateness, and the ends of transfers.

use super::*;

#[test]
fn deadline_is_met_with_the_agent_and_missed_in_a_dry_run() {
    // 1,500 MB take 45 s at a third of the disk, 15 s alone; 25 s are allowed.
    for (dry_run, late) in [(true, true), (false, false)] {
        let mut world = SetUp {
            others: 2,
            dry_run,
            ..SetUp::new(mb_within_s(1_500, 25))
        }
        .start();
        let start = &world.start_events;
        let count = |is: fn(&Event) -> bool| start.iter().filter(|event| is(event)).count();
        let found = count(|event| matches!(event, Event::Found { .. }));
        let classes = count(|event| matches!(event, Event::Class { .. }));
        assert_eq!(found, 3, "one for each process: {start:?}");
        assert_eq!(classes, 1, "{start:?}");
        assert_eq!(start.len(), found + classes, "{start:?}");
        let events = world.run(60);
        let State::Done { late: by, .. } = world.state() else {
            panic!("{events:?}")
        };
        assert_eq!(by > Nanos::ZERO, late, "{events:?}");
        let untouched = (1..=3).all(|n| world.host.priorities(n * 100) == [IoPriority::NONE; 2]);
        assert!(
            untouched,
            "all priorities are restored at the end of the transfer"
        );
    }
}

#[test]
fn infeasible_deadline_is_reported_at_start_and_refused_priority_once() {
    let set_up = SetUp::new(mb_within_s(3_000, 20));
    *set_up.host.refuses.borrow_mut() = true;
    let mut world = set_up.start();
    let events = &world.start_events;
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::GivenUp { name } if name == "job"))
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Refused { name, .. } if name == "b"))
    );
    let events = world.run(2);
    let is_refusal = |event: &Event| matches!(event, Event::Refused { .. });
    assert!(!has_event(&events, is_refusal), "{events:?}");
}

#[test]
fn unknown_bandwidth_is_measured_before_any_decision() {
    let mut world = SetUp {
        bandwidth: None,
        ..SetUp::new(mb_within_s(1_500, 20))
    }
    .start();
    let events = &world.start_events;
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Event::Found { .. })),
        "{events:?}"
    );
    assert!(world.report(0).forecast.is_none());
    let events = world.run(40);
    let is_lowered = |event: &Event| {
        matches!(
            event,
            Event::Class {
                class: Class::Idle,
                ..
            }
        )
    };
    assert!(
        events
            .iter()
            .any(|(second, event)| *second == INTERVAL_S && is_lowered(event)),
        "{events:?}"
    );
    let State::Done { late, .. } = world.state() else {
        panic!("{events:?}")
    };
    assert_eq!(late, Nanos::ZERO, "{events:?}");
}

/// World with 100 MB/s for one process, which has 1,000 MB to move: 10 s.
fn alone() -> World {
    SetUp {
        others: 0,
        ..SetUp::new(mb_within_s(1_000, 20))
    }
    .start()
}

fn time_to_next_scan(world: &World) -> Nanos {
    world
        .agent
        .time_to_next_scan(Nanos::from_secs(world.second))
}

#[test]
fn scan_interval_shrinks_as_a_transfer_nears_its_end() {
    let mut world = alone();
    world.run(6);
    // Four seconds are left: one second is a quarter of them.
    assert_eq!(time_to_next_scan(&world), Nanos::SECOND);
    world.run(2);
    assert_eq!(time_to_next_scan(&world), Nanos(500_000_000));
    world.host.change(100, |fake| fake.moved += 199 * MB);
    world.scan(0);
    let soonest = Nanos(20_000_000);
    assert_eq!(time_to_next_scan(&world), soonest);
    world.host.change(100, |fake| fake.moved += MB);
    world.scan(0);
    assert!(world.agent.is_done());
    assert_eq!(time_to_next_scan(&world), Nanos::SECOND);
}

/// The scan interval assumes the whole bandwidth of the disk, although the transfer gets a third.
#[test]
fn scan_interval_assumes_the_whole_bandwidth() {
    let mut world = SetUp {
        others: 2,
        ..SetUp::new(mb_within_s(1_000, 200))
    }
    .start();
    // 24 s at 33 MB/s leave 200 MB: 2 s at 100 MB/s, of which a quarter is 0.5 s.
    world.run(24);
    assert!((199 * MB..201 * MB).contains(&(1_000 * MB - world.moved(0))));
    let next = time_to_next_scan(&world).as_secs_f64();
    assert!((0.49..0.51).contains(&next), "{next}");
}

/// The last bytes of an ended process cannot be read.
#[test]
fn small_unseen_rest_of_an_exited_process_counts_as_moved() {
    for (left, done) in [(3, true), (5, false)] {
        let mut world = alone();
        world.run(9);
        world
            .host
            .change(100, |fake| fake.moved += (100 - left) * MB);
        world.scan(0);
        world.host.end(100, false);
        // 20 ms at 100 MB/s, doubled, are 4 MB.
        let events = world.scan(20);
        let is_exit = |event: &Event| matches!(event, Event::Exited { .. });
        match world.state() {
            State::Done { unseen, late, .. } if done => {
                assert_eq!((unseen, late), (left * MB, Nanos::ZERO))
            }
            State::EndedEarly { left: rest } if !done => assert_eq!(rest, left * MB),
            state => panic!("{left}: {state:?}, {events:?}"),
        }
        assert!(
            has_event(&events, is_exit) && world.agent.is_done(),
            "{events:?}"
        );
    }
}

#[test]
fn lateness_of_an_idle_process_is_reported_once() {
    let mut world = SetUp::new(mb_within_s(2_000, 5)).start();
    world.host.change(100, |fake| fake.demand = 0);
    let events = world.run(300);
    let late: Vec<_> = events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Late { .. }))
        .collect();
    assert_eq!(late.len(), 1, "{events:?}");
    // At the scan at the deadline, or at one of the next two.
    assert!((5..=7).contains(&late[0].0), "{events:?}");
    assert_eq!(world.state(), State::Running);
}

#[test]
fn transfer_done_in_time_is_not_reported_late() {
    let mut world = alone();
    let events = world.run(60);
    let is_late = |event: &Event| matches!(event, Event::Late { .. });
    assert!(!has_event(&events, is_late), "{events:?}");
}
