//! Tests of PriDyn's priority classes, by which transfers end in time.

use crate::common::{Guest, SECOND, World, limited, policy, within};
use crate::transfers::{MIB, RATE, begin, ends, status, world, world_of, writer};
use tidegate_core::objective::{Objective, Priority, Rate};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_core::transfers::{Admission, TransferOutcome, TransferSpec};

fn classes<const N: usize>(world: &World, guests: [Guest; N]) -> [Class; N] {
    guests.map(|guest| world.driver.engine.transfers().class_status(guest.vm).class)
}

/// Creates a VM that asks for a tenth of the device and no more, beside `N` greedy ones.
fn meek_and_greedy<const N: usize>(literal: u64) -> (World, Guest, [Guest; N]) {
    let mut spec = policy("pridyn+token-bucket+cfq");
    spec.set("literal", literal).expect("in range");
    let mut world = world_of(&spec, RATE);
    let meek = writer(&mut world, &limited(Rate::bytes(RATE / 10)));
    let greedy = [(); N].map(|()| writer(&mut world, &Objective::default()));
    (world, meek, greedy)
}

/// Checks use case 1 of the thesis: the transfer takes 60 s alone and 120 s with half of the
/// device.
#[test]
fn a_deadline_that_an_even_share_would_miss_is_met() {
    for (name, met) in [("cfq", false), ("pridyn", true)] {
        let mut world = world(name, &[]);
        let urgent = writer(&mut world, &Objective::default());
        let other = writer(&mut world, &Objective::default());
        assert!(begin(&mut world, urgent, 3_000, 80).possible);
        begin(&mut world, other, 100_000, 100_000);
        let mut over = Vec::new();
        while over.is_empty() {
            world.run(SECOND);
            over = ends(&mut world);
        }
        // The workload ends when its transfer is done.
        world.unload(urgent);
        world.run(130 * SECOND - world.now());
        let end = over[0];
        assert_eq!((end.vm, end.outcome), (urgent.vm, TransferOutcome::Done));
        assert_eq!(end.late.0 == 0, met, "{name}: {}", end.late);
        // The other VM gets the device afterwards, in its former class, so it loses nothing.
        assert_eq!(classes(&world, [urgent, other]), [BestEffort; 2], "{name}");
        assert!(status(&world, other).transfer.moved > 2_900 * MIB, "{name}");
    }
}

#[test]
fn others_are_lowered_one_by_one_then_it_is_raised_then_it_is_given_up() {
    let (mut world, meek, [one, two]) = meek_and_greedy(0);
    let all = [meek, one, two];
    // Until it is measured, the VM is taken to get a third of the device, 10 MiB/s, which would do.
    begin(&mut world, meek, 1_000, 100);
    let mut seen = Vec::new();
    world.run(SECOND / 10);
    for _ in 0..12 {
        world.run(3 * SECOND);
        seen.push(classes(&world, all));
    }
    let steps = [
        [BestEffort, Idle, BestEffort],
        [BestEffort, Idle, Idle],
        [RealTime, Idle, Idle],
        [Idle, BestEffort, BestEffort],
    ];
    assert_eq!(seen[..4], steps);
    // The state is final: only figure 3.3 as printed would begin again.
    assert!(seen[4..].iter().all(|after| *after == steps[3]), "{seen:?}");
    let given_up = status(&world, meek);
    assert!(given_up.given_up && given_up.class == Idle);
    // The state ends when a new transfer begins, whose VM is lowered in turn.
    begin(&mut world, one, 10, 10_000);
    assert!(!status(&world, meek).given_up);
    assert_eq!(classes(&world, all), [Idle, BestEffort, Idle]);
}

/// Checks that a VM is measured anew in each class. Its rate while it was lowered must not count
/// once it is restored: its own transfer, which has plenty of time, would otherwise lower others
/// for good.
#[test]
fn a_vm_is_measured_anew_in_each_class() {
    let mut world = world("pridyn", &[]);
    let [urgent, patient, plain] = [(); 3].map(|()| writer(&mut world, &Objective::default()));
    begin(&mut world, patient, 100_000, 100_000);
    begin(&mut world, urgent, 500, 12);
    world.run(7 * SECOND);
    assert_eq!(classes(&world, [patient, plain]), [Idle, Idle]);
    assert!(
        status(&world, patient)
            .bandwidth
            .is_some_and(|had| had < MIB)
    );
    world.run(6 * SECOND);
    assert_eq!(ends(&mut world).len(), 1);
    assert_eq!(classes(&world, [urgent, patient, plain]), [BestEffort; 3]);
    assert!(status(&world, patient).forecast.early > Nanos::ZERO);
}

#[test]
fn as_printed_what_cannot_be_met_swings_with_period_four() {
    for literal in [0, 1] {
        let (mut world, meek, [greedy]) = meek_and_greedy(literal);
        begin(&mut world, meek, 10_000, 390);
        let mut seen = Vec::new();
        for _ in 0..20 {
            world.run(3 * SECOND);
            seen.push(classes(&world, [meek, greedy]));
        }
        let given_up = [Idle, BestEffort];
        let first = seen.iter().position(|now| *now == given_up);
        let after = &seen[first.expect("it cannot be met")..];
        match literal {
            0 => assert!(after.iter().all(|now| *now == given_up), "{seen:?}"),
            _ => {
                let period = [given_up, [Idle; 2], [BestEffort, Idle], [RealTime, Idle]];
                let swings = after.iter().zip(period.iter().cycle());
                assert!(swings.clone().all(|(now, then)| now == then), "{seen:?}");
                assert!(after.len() > 8);
            }
        }
    }
}

#[test]
fn a_transfer_past_its_deadline_is_not_starved() {
    let mut world = world("pridyn", &[]);
    let late = writer(&mut world, &Objective::default());
    let other = writer(&mut world, &Objective::default());
    // 20 s alone.
    assert!(!begin(&mut world, late, 1_000, 10).possible);
    world.run(8 * SECOND);
    assert!(status(&world, late).given_up);
    assert_eq!(classes(&world, [late, other]), [Idle, BestEffort]);
    world.run(5 * SECOND);
    assert_eq!(classes(&world, [late, other]), [RealTime, BestEffort]);
    let before = status(&world, late).transfer.moved;
    world.run(3 * SECOND);
    assert!(status(&world, late).transfer.moved > before + 140 * MIB);
    world.run(20 * SECOND);
    let [end] = ends(&mut world)[..] else {
        panic!("it ended")
    };
    assert!(end.late.0 > 0 && end.outcome == TransferOutcome::Done);
    assert_eq!(classes(&world, [late, other]), [BestEffort; 2]);
}

#[test]
fn who_was_lowered_has_its_level_of_best_effort_again() {
    let share = |world: &World, of: [Guest; 2], from: u64| {
        let [favoured, plain] = of.map(|guest| within(&world.bytes(guest), from, world.now()));
        favoured as f64 / (favoured + plain) as f64
    };
    let mut world = world("pridyn", &[]);
    let favoured = Objective {
        priority: Priority::BestEffort(0),
        ..Objective::default()
    };
    let favoured = writer(&mut world, &favoured);
    let plain = writer(&mut world, &Objective::default());
    world.run(20 * SECOND);
    let before = share(&world, [favoured, plain], 0);
    assert!((0.6..0.7).contains(&before), "{before}");
    begin(&mut world, plain, 500, 12);
    assert_eq!(classes(&world, [favoured]), [Idle]);
    world.run(15 * SECOND);
    assert_eq!(ends(&mut world).len(), 1);
    assert_eq!(classes(&world, [favoured]), [BestEffort]);
    let from = world.now();
    world.run(20 * SECOND);
    let after = share(&world, [favoured, plain], from);
    assert!((after - before).abs() < 0.02, "{before} {after}");
    // Another level holds at once, whatever was turned before.
    world.set(favoured, &Objective::default());
    let from = world.now();
    world.run(20 * SECOND);
    let even = share(&world, [favoured, plain], from);
    assert!((even - 0.5).abs() < 0.02, "{even}");
}

#[test]
fn it_takes_over_transfers_that_run_and_leaves_them_again() {
    let mut world = world("cfq", &[]);
    let urgent = writer(&mut world, &Objective::default());
    let other = writer(&mut world, &Objective::default());
    begin(&mut world, urgent, 3_000, 80);
    world.run(7 * SECOND);
    let before = status(&world, urgent);
    assert!(before.forecast.late.0 > 0 && before.class == BestEffort);
    world.swap("pridyn");
    // Measurements under the other policy decide nothing.
    assert_eq!(classes(&world, [urgent, other]), [BestEffort; 2]);
    assert_eq!(status(&world, urgent).transfer, before.transfer);
    world.run(3 * SECOND);
    assert_eq!(classes(&world, [urgent, other]), [BestEffort, Idle]);
    world.swap("fifo");
    assert_eq!(classes(&world, [urgent, other]), [BestEffort; 2]);
    assert!(ends(&mut world).is_empty());
    world.swap("pridyn");
    world.run(70 * SECOND);
    let [end] = ends(&mut world)[..] else {
        panic!("{:?}", status(&world, urgent))
    };
    assert_eq!((end.outcome, end.late.0), (TransferOutcome::Done, 0));
}

#[test]
fn a_vm_that_goes_gives_back_what_others_gave_for_its_transfer() {
    let mut world = world("pridyn", &[]);
    let urgent = writer(&mut world, &Objective::default());
    let other = writer(&mut world, &Objective::default());
    begin(&mut world, urgent, 3_000, 80);
    assert_eq!(classes(&world, [other]), [Idle]);
    world.remove_vm(urgent);
    assert_eq!(classes(&world, [other]), [BestEffort]);
    // And one that was lowered goes; the next in its slot is what it is.
    let urgent = writer(&mut world, &Objective::default());
    begin(&mut world, urgent, 3_000, 80);
    assert_eq!(classes(&world, [other]), [Idle]);
    world.remove_vm(other);
    let next = writer(&mut world, &Objective::default());
    assert_eq!(next.vm.index(), other.vm.index());
    assert_eq!(classes(&world, [next]), [BestEffort]);
}

#[test]
fn a_transfer_that_was_admitted_begins_on_its_terms_and_gives_them_back_at_its_end() {
    let mut world = world("pridyn", &[]);
    let transfer = TransferSpec {
        bytes: 300 * MIB,
        deadline: Nanos::from_secs(20),
    };
    let [admitted, lowered, other] = [(); 3].map(|()| writer(&mut world, &Objective::default()));
    begin(&mut world, lowered, 100_000, 100_000);
    let terms = Admission {
        class: RealTime,
        lowered: vec![(lowered.vm, Idle)],
    };
    let now = world.time();
    let status = world.driver.engine.transfers_mut().begin_admitted_transfer(
        now,
        admitted.vm,
        &transfer,
        &terms,
    );
    assert_eq!(status.expect("it begins").class, RealTime);
    let all = [admitted, lowered, other];
    assert_eq!(classes(&world, all), [RealTime, Idle, BestEffort]);
    let mut over = Vec::new();
    while over.is_empty() {
        world.run(SECOND);
        over = ends(&mut world);
    }
    assert_eq!((over[0].vm, over[0].late), (admitted.vm, Nanos::ZERO));
    assert_eq!(classes(&world, all), [BestEffort; 3]);
    // Whoever is to be lowered has to be there; else nothing begins.
    world.driver.remove_vm(other.vm);
    let terms = Admission {
        class: RealTime,
        lowered: vec![(other.vm, Idle)],
    };
    let now = world.time();
    let refused = world.driver.engine.transfers_mut().begin_admitted_transfer(
        now,
        admitted.vm,
        &transfer,
        &terms,
    );
    assert!(refused.is_err());
    assert!(
        world
            .driver
            .engine
            .transfers()
            .transfer(now, admitted.vm)
            .is_none()
    );
}

#[test]
fn a_new_objective_keeps_what_a_transfer_has_learnt() {
    let mut world = world("pridyn", &[]);
    let guest = writer(&mut world, &Objective::default());
    begin(&mut world, guest, 100_000, 100_000);
    world.run(10 * SECOND);
    let measured = status(&world, guest).bandwidth;
    assert!(measured.is_some());
    let weight = Objective {
        weight: 700,
        ..Objective::default()
    };
    let now = world.time();
    let set = world
        .driver
        .engine
        .vms_mut()
        .set_objective(now, guest.vm, &weight);
    set.expect("the VM is there");
    assert_eq!(status(&world, guest).bandwidth, measured);
}
