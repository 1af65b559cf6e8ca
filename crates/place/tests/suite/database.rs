//! Priority database: learning, and the choice of the nearest entry.

use proptest::prelude::*;
use tidegate_core::learnt_state::Blob;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_place::{Bandwidth, ClassRates, Combination, MAX_VMS, PriorityDatabase};

const MB: u64 = 1_000_000;

fn database() -> PriorityDatabase {
    PriorityDatabase::new(Bandwidth::new(54 * MB, &[0, 17 * MB, 14 * MB]).expect("it is one"))
}

#[test]
fn where_nothing_is_known_each_has_its_part() {
    let rates = database().rates(&Combination::from_classes([BestEffort, Idle]));
    assert_eq!(rates, ClassRates([18_500_000, 18_500_000, 0]));
    let rates = database().rates(&Combination::from_classes([RealTime; 4]));
    assert_eq!(rates.for_class(RealTime), 10 * MB);
}

#[test]
fn an_interval_is_taken_over_by_an_eighth() {
    let mut database = database();
    let classes = Combination::from_classes([BestEffort, BestEffort, Idle]);
    // The first interval counts fully: the mean of each class.
    database.learn([(BestEffort, 20 * MB), (Idle, 2 * MB), (BestEffort, 10 * MB)]);
    assert_eq!(database.rates(&classes), ClassRates([2 * MB, 15 * MB, 0]));
    database.learn([(Idle, 10 * MB), (BestEffort, 7 * MB), (BestEffort, 7 * MB)]);
    assert_eq!(database.rates(&classes), ClassRates([3 * MB, 14 * MB, 0]));
    let entries: Vec<_> = database.entries().collect();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].classes, entries[0].intervals), (classes, 2));
    // Converges as far as an integer average can.
    for _ in 0..200 {
        database.learn([(Idle, 0), (BestEffort, 27 * MB), (BestEffort, 27 * MB)]);
    }
    let rates = database.rates(&classes);
    assert!(
        rates.for_class(Idle) < 8 && rates.for_class(BestEffort).abs_diff(27 * MB) < 8,
        "{rates:?}"
    );
}

#[test]
fn no_vm_and_too_many_vms_are_not_recorded() {
    let mut database = database();
    database.learn([]);
    database.learn([(Idle, MB); MAX_VMS + 1]);
    assert_eq!(database.entries().count(), 0);
    database.learn([(Idle, MB); MAX_VMS]);
    assert_eq!(database.entries().count(), 1);
}

#[test]
fn a_combination_that_was_not_seen_has_what_stands_beside_it() {
    let mut database = database();
    database.learn([(Idle, 3 * MB), (BestEffort, 12 * MB), (RealTime, 24 * MB)]);
    // Sorted and aligned: idle with idle, the first real time with best effort, the second with
    // real time.
    let rates = database.rates(&Combination::from_classes([RealTime, Idle, RealTime]));
    assert_eq!(rates, ClassRates([3 * MB, 0, 18 * MB]));
    // 3, 12 and 24 are aligned with them, but best effort was measured with 12.
    let rates = database.rates(&Combination::from_classes([BestEffort; 3]));
    assert_eq!(rates, ClassRates([0, 12 * MB, 0]));
    // Only for the same number: nothing is known of four VMs.
    let rates = database.rates(&Combination::from_classes([BestEffort; 4]));
    assert_eq!(rates, ClassRates([0, 10 * MB, 0]));
}

#[test]
fn of_two_that_are_as_near_the_stronger_classes_are_taken() {
    let nearest = |first: [Class; 2], second: [Class; 2]| {
        let mut database = database();
        database.learn(first.map(|class| (class, MB)));
        database.learn(second.map(|class| (class, MB)));
        let of = Combination::from_classes([BestEffort, BestEffort]);
        database.nearest_entry(&of).expect("one of two").classes
    };
    let (weak, strong) = ([Idle, BestEffort], [BestEffort, RealTime]);
    assert_eq!(nearest(weak, strong), Combination::from_classes(strong));
    assert_eq!(nearest(strong, weak), Combination::from_classes(strong));
}

#[test]
fn who_is_lowered_beside_the_lowest_has_what_that_had() {
    let mut database = database();
    let had = [(Idle, MB), (BestEffort, 30 * MB), (BestEffort, 30 * MB)];
    database.learn(had);
    let rates = database.rates(&Combination::from_classes([Idle, Idle, BestEffort]));
    assert_eq!(rates, ClassRates([MB, 30 * MB, 0]));
}

#[test]
fn who_took_less_than_it_was_given_says_what_its_class_has_at_least() {
    let two = Combination::from_classes([BestEffort; 2]);
    let mut database = database();
    // The disk was not saturated: nothing is learnt.
    database.learn_with_demand([(BestEffort, 5 * MB, false), (BestEffort, 7 * MB, false)]);
    assert_eq!(database.nearest_entry(&two), None);
    // The rates exceed the assumed bandwidth of 37 MB/s.
    database.learn_with_demand([(BestEffort, 50 * MB, false), (BestEffort, 6 * MB, false)]);
    assert_eq!(database.rates(&two), ClassRates([0, 28 * MB, 0]));
    // Lower rates than known are not recorded; higher ones are.
    database.learn_with_demand([(BestEffort, 20 * MB, false); 2]);
    assert_eq!(database.rates(&two), ClassRates([0, 28 * MB, 0]));
    database.learn_with_demand([(BestEffort, 36 * MB, false); 2]);
    assert_eq!(database.rates(&two), ClassRates([0, 29 * MB, 0]));
    // One leaves bandwidth to the other: 20 MB/s each if both had unlimited demand.
    database.learn_with_demand([(BestEffort, 5 * MB, false), (BestEffort, 37 * MB, true)]);
    assert_eq!(database.rates(&two), ClassRates([0, 28 * MB, 0]));
}

#[test]
fn what_the_stronger_left_was_not_the_weaker_ones_own() {
    let classes = Combination::from_classes([RealTime, BestEffort, BestEffort]);
    let mut database = database();
    let had = |strong, took_all, weak| {
        [
            (RealTime, strong * MB, took_all),
            (BestEffort, weak * MB, true),
            (BestEffort, weak * MB, true),
        ]
    };
    // With unlimited demand, it is unknown what it would leave.
    database.learn_with_demand(had(10, false, 20));
    assert_eq!(database.rates(&classes), ClassRates([0, 0, 50 * MB]));
    database.learn_with_demand(had(30, false, 10));
    assert_eq!(database.rates(&classes), ClassRates([0, 0, 50 * MB]));
    // With unlimited demand it is measured, and has an entry of its own from then on.
    let mut database = self::database();
    database.learn_with_demand(had(40, true, 5));
    assert_eq!(database.rates(&classes), ClassRates([0, 5 * MB, 40 * MB]));
    database.learn_with_demand(had(10, false, 20));
    assert_eq!(database.rates(&classes), ClassRates([0, 5 * MB, 40 * MB]));
}

fn class() -> impl Strategy<Value = Class> {
    (0_usize..3).prop_map(|at| Class::ALL[at])
}

fn interval() -> impl Strategy<Value = Vec<(Class, u64)>> {
    prop::collection::vec((class(), 0..100 * MB), 1..7)
}

proptest! {
    #[test]
    fn the_nearest_is_that_of_a_search(
        seen in prop::collection::vec(interval(), 0..40),
        asked in prop::collection::vec(class(), 1..7),
    ) {
        let mut database = database();
        for had in seen {
            database.learn(had);
        }
        let asked = Combination::from_classes(asked);
        let stronger = |classes: Combination| {
            (classes.count(Idle), classes.count(BestEffort))
        };
        let searched = (database.entries())
            .filter_map(|entry| {
                let distance = entry.classes.distance(&asked)?;
                Some((distance, stronger(entry.classes), entry.classes))
            })
            .min();
        let nearest = database.nearest_entry(&asked).map(|entry| entry.classes);
        prop_assert_eq!(nearest, searched.map(|best| best.2));
    }

    #[test]
    fn what_stands_beside_has_no_more_than_there_is(
        had in interval(),
        other in prop::collection::vec(class(), 6),
    ) {
        let mut database = database();
        let n = had.len();
        let classes = Combination::from_classes(had.iter().map(|had| had.0));
        database.learn(had);
        let known = database.rates(&classes).total(&classes);
        let other = Combination::from_classes(other.into_iter().take(n));
        let total = database.rates(&other).total(&other);
        prop_assert!(total <= known, "{total} of {known}");
        // The total is kept, rounded down per class, where the combinations share no class.
        let apart = |class| classes.count(class) == 0 || other.count(class) == 0;
        if Class::ALL.into_iter().all(apart) {
            prop_assert!(known - total < 3 * n as u64, "{total} of {known}");
        }
        for class in Class::ALL.into_iter().filter(|class| classes.count(*class) > 0) {
            let rate = |of| database.rates(of).for_class(class);
            prop_assert!(rate(&other) <= rate(&classes));
        }
    }

    #[test]
    fn what_was_exported_is_known_again(
        seen in prop::collection::vec(interval(), 0..40),
        cut in 0_usize..100,
    ) {
        let mut learnt = database();
        for had in seen {
            learnt.learn(had);
        }
        let blob = learnt.export();
        let mut fresh = database();
        fresh.learn([(Idle, 1)]);
        fresh.import(&blob).expect("its own");
        prop_assert_eq!(fresh.export(), blob.clone());
        prop_assert!(fresh.entries().eq(learnt.entries()));
        // A truncated blob is refused, and the database is unchanged.
        let short = &blob.as_bytes()[..blob.as_bytes().len() - 1 - cut % blob.as_bytes().len()];
        prop_assert!(fresh.import(&Blob::from_bytes(short.to_vec())).is_err());
        prop_assert_eq!(fresh.export(), blob);
    }
}

#[test]
fn damaged_bytes_are_refused_with_their_field() {
    let import_error = |fields: &[u64]| {
        let mut blob = Blob::new("priority-database", 1);
        for &field in fields {
            blob.push_u64(field);
        }
        let refused = database().import(&blob).expect_err("refused");
        refused.to_string()
    };
    let entry = [2, 5, 1, 7, 0, 0, 1];
    assert_eq!(
        import_error(&[&[2][..], &entry, &entry].concat()),
        "a repeated combination of classes is 2 idle, 1 best effort, 0 real time, which cannot be"
    );
    assert_eq!(
        import_error(&[1, 65, 0, 0, 0, 0, 0, 1]),
        "a number of transfers is 65, which cannot be"
    );
    assert_eq!(
        import_error(&[1, 0, 0, 0, 0, 0, 0, 1]),
        "a number of transfers is 0, which cannot be"
    );
    assert_eq!(
        import_error(&[1, 1, 0, 0, 0, 0, 0, 0]),
        "a number of intervals is 0, which cannot be"
    );
    assert_eq!(
        import_error(&[1, 1, u64::MAX, 0, 0, 0, 0, 1]),
        format!("a bandwidth is {}, which cannot be", u64::MAX)
    );
}

#[test]
fn a_capped_database_gives_no_more_than_the_bandwidth_and_keeps_its_entries() {
    let measured = || {
        let mut database = PriorityDatabase::new(Bandwidth::new(30, &[]).expect("valid"));
        database.learn([(Class::BestEffort, 60)]);
        database.learn([(Class::RealTime, 40), (Class::Idle, 20)]);
        database
    };
    let rates = |database: &PriorityDatabase, classes: &[Class]| {
        let combination = Combination::from_classes(classes.iter().copied());
        let rates = database.rates(&combination);
        classes
            .iter()
            .map(|class| rates.for_class(*class))
            .collect::<Vec<_>>()
    };
    let (whole, mut capped) = (measured(), measured());
    capped.cap_at_bandwidth();
    assert_eq!(rates(&whole, &[Class::BestEffort]), [60]);
    assert_eq!(rates(&capped, &[Class::BestEffort]), [30]);
    assert_eq!(rates(&capped, &[Class::RealTime, Class::Idle]), [20, 10]);
    assert_eq!(capped.export().as_bytes(), whole.export().as_bytes());
    let mut read = PriorityDatabase::new(Bandwidth::new(30, &[]).expect("valid"));
    read.cap_at_bandwidth();
    read.import(&whole.export()).expect("its own");
    assert_eq!(rates(&read, &[Class::BestEffort]), [30]);
}
