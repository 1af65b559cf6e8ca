use super::*;

#[test]
fn a_deadline_is_met_with_the_agent_and_missed_without() {
    for (dry_run, late) in [(true, true), (false, false)] {
        let mut world = SetUp {
            others: 2,
            dry_run,
            ..SetUp::new((1_500, 25))
        }
        .start();
        let events = &world.first;
        assert_eq!(events.len(), 4, "three found, one lowered: {events:?}");
        let said = world.run(60);
        let State::Done { late: by, .. } = world.state() else {
            panic!("{said:?}")
        };
        assert_eq!(by > Nanos::ZERO, late, "{said:?}");
        let untouched = (1..=3).all(|n| world.host.of(n * 100) == [IoPriority::NONE; 2]);
        assert!(untouched, "all is put back at the end of the job");
    }
}

#[test]
fn what_cannot_be_met_is_said_at_once_and_what_is_refused_once() {
    let set_up = SetUp::new((3_000, 20));
    *set_up.host.refuses.borrow_mut() = true;
    let mut world = set_up.start();
    let events = &world.first;
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
    let said = world.run(2);
    assert!(!says(&said, "Refused"), "{said:?}");
}

#[test]
fn a_disk_of_which_nothing_is_known_is_learnt_first() {
    let mut world = SetUp {
        capacity: None,
        ..SetUp::new((1_500, 20))
    }
    .start();
    let events = &world.first;
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Event::Found { .. })),
        "{events:?}"
    );
    assert!(world.report(0).forecast.is_none());
    let said = world.run(40);
    assert!(
        said.iter()
            .any(|(at, what)| *at == 3 && what.contains("Idle")),
        "{said:?}"
    );
    let State::Done { late, .. } = world.state() else {
        panic!("{said:?}")
    };
    assert_eq!(late, Nanos::ZERO, "{said:?}");
}

/// World with 100 MB/s for one process, which has 1,000 MB to move.
fn alone() -> World {
    SetUp {
        others: 0,
        ..SetUp::new((1_000, 20))
    }
    .start()
}

fn next_look(world: &World) -> Nanos {
    world.agent.next_look(Nanos::from_secs(world.second))
}

#[test]
fn a_transfer_that_comes_to_its_end_is_looked_at_more_often() {
    let mut world = alone();
    world.run(6);
    // Four seconds are left: one second is a quarter of them.
    assert_eq!(next_look(&world), Nanos::SECOND);
    world.run(2);
    assert_eq!(next_look(&world), Nanos(500_000_000));
    world.host.change(100, |fake| fake.moved += 199 * MB);
    world.look(0);
    let soonest = Nanos(20_000_000);
    assert_eq!(next_look(&world), soonest);
    world.host.change(100, |fake| fake.moved += MB);
    world.look(0);
    assert!(world.agent.is_done());
    assert_eq!(next_look(&world), Nanos::SECOND);
}

/// The scan interval allows for the whole bandwidth at any time, even at a third of it.
#[test]
fn a_transfer_that_may_become_faster_is_looked_at_in_time() {
    let mut world = SetUp {
        others: 2,
        ..SetUp::new((1_000, 200))
    }
    .start();
    world.run(24);
    assert!((199 * MB..201 * MB).contains(&(1_000 * MB - world.moved(0))));
    let next = next_look(&world).as_secs_f64();
    assert!((0.49..0.51).contains(&next), "{next}");
}

/// The last bytes of an ended process cannot be read.
#[test]
fn what_a_process_moved_just_before_it_ended_counts_as_done() {
    for (left, done) in [(3, true), (5, false)] {
        let mut world = alone();
        world.run(9);
        world
            .host
            .change(100, |fake| fake.moved += (100 - left) * MB);
        world.look(0);
        world.host.end(100, false);
        // 20 ms at 100 MB/s, doubled, are 4 MB.
        let said = world.look(20);
        match world.state() {
            State::Done { unseen, late, .. } if done => {
                assert_eq!((unseen, late), (left * MB, Nanos::ZERO))
            }
            State::Gone { left: rest } if !done => assert_eq!(rest, left * MB),
            state => panic!("{left}: {state:?}, {said:?}"),
        }
        assert!(says(&said, "Left") && world.agent.is_done(), "{said:?}");
    }
}

#[test]
fn a_transfer_of_an_idle_process_is_late_once() {
    let mut world = SetUp::new((2_000, 5)).start();
    world.host.change(100, |fake| fake.wants = 0);
    let said = world.run(300);
    let late: Vec<_> = said
        .iter()
        .filter(|(_, what)| what.contains("Late"))
        .collect();
    assert_eq!(late.len(), 1, "{said:?}");
    assert!((5..=7).contains(&late[0].0), "{said:?}");
    assert_eq!(world.state(), State::Running);
}

#[test]
fn a_transfer_that_is_done_in_time_is_never_late() {
    let mut world = alone();
    let said = world.run(60);
    assert!(!says(&said, "Late"), "{said:?}");
}
