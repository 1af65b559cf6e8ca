//! Promises in either direction beside limits of reads or of writes.

use super::*;

/// Reads of 1 ms and writes of 2 ms.
fn slow_writes() -> Profile {
    let writes = [flat(500.0), flat(500.0)];
    Profile::new(
        [flat(1000.0), flat(1000.0)],
        Some(writes),
        Vec::new(),
        Vec::new(),
    )
}

#[test]
fn unknown_direction_counts_as_the_dearer_one() {
    let objective = Objective {
        reservation: Rate::iops(100),
        ..Objective::default()
    };
    let need = fit(&slow_writes(), &[objective], Streams::Blended).needs[0];
    assert_eq!((need.load.reads, need.load.writes), (0, 100_000_000));
    assert_eq!(need.time_ps, SECOND_PS / 5);
}

#[test]
fn a_limit_of_one_direction_leaves_the_rest_of_a_floor_to_the_other() {
    let need = |reads: Option<u32>, [read, write]: [u64; 2]| {
        let rate = |per_s| match per_s {
            0 => Rate::NONE,
            _ => Rate::iops(per_s),
        };
        let objective = Objective {
            reservation: Rate::iops(300),
            limit: Limit {
                read: rate(read),
                write: rate(write),
                ..Limit::NONE
            },
            expects: ExpectedWorkload {
                reads,
                ..ExpectedWorkload::NOTHING
            },
            ..Objective::default()
        };
        let need = fit(&slow_writes(), &[objective], Streams::Blended).needs[0];
        let load = need.load;
        let per_s = |rate: u64| rate / 1_000_000;
        let millis = need.time_ps * 1000 / SECOND_PS;
        (per_s(load.reads), per_s(load.writes), millis)
    };
    // No limit: all are writes, the costlier direction.
    assert_eq!(need(None, [0, 0]), (0, 300, 600));
    // At most 50 of 300 can be writes, and the other 250 are promised as reads.
    assert_eq!(need(None, [0, 50]), (250, 50, 350));
    // A limit of the cheaper direction changes nothing.
    assert_eq!(need(None, [50, 0]), (0, 300, 600));
    // No VM is served more than both limits.
    assert_eq!(need(None, [100, 50]), (100, 50, 200));
    // A known direction keeps its part: beyond its limit nothing can be asked for.
    assert_eq!(need(Some(0), [0, 50]), (0, 50, 100));
    assert_eq!(need(Some(500), [0, 50]), (150, 50, 250));
}
