//! V-Cup's fixed capacity (section 5.4, table V): four sequential readers on sixteen disks, 60 MB/s
//! each, held by windows of merge limits and by pace.

use crate::common::run_with_rows;
use tidegate_core::precision;

const TARGET: u64 = 60_000_000;
const SECONDS: usize = 40;

/// Bytes of each reader in each second.
fn readers(policy: &str, tuner: &str) -> Vec<Vec<u64>> {
    let scenario = format!(
        "duration = \"{SECONDS} s\"
        [[device]]
        name = \"array\"
        model = \"raid0-16x250gb\"
        depth = 64
        policy = {{ name = \"{policy}\", tuner = \"{tuner}\" }}
        [[vm]]
        name = \"reader\"
        count = 4
        disk = [{{ size = \"100 GiB\" }}]
        objective = {{ target = \"60 MB/s\" }}
        [[vm.workload]]
        rw = \"read\"
        bs = \"128 KiB\"
        iodepth = 20
        "
    );
    let (_, rows) = run_with_rows(&scenario);
    let of = |n: usize| {
        let name = format!("reader-{}", n + 1);
        let mine = rows.iter().filter(|row| row.vm == name);
        mine.map(|row| row.rates.bytes_per_s as u64).collect()
    };
    (0..4).map(of).collect()
}

/// The worst |B| over ten seconds of any reader, and the mean V from the tenth second on; in
/// millionths.
fn precise(readers: &[Vec<u64>]) -> (u64, u64) {
    let beta = readers.iter().flat_map(|bytes| {
        let intervals = bytes.chunks_exact(10);
        intervals.map(|of| {
            precision::error(of, TARGET)
                .expect("ten seconds")
                .unsigned_abs()
        })
    });
    let v = readers
        .iter()
        .map(|bytes| precision::variability(&bytes[10..]).expect("it moved"));
    (beta.max().expect("readers"), v.sum::<u64>() / 4)
}

#[test]
fn four_readers_have_what_each_was_promised_sooner_and_more_smoothly_when_paced() {
    for policy in ["vcup", "vcup-drr"] {
        let [paced, window] = ["paced", "window"].map(|tuner| precise(&readers(policy, tuner)));
        assert!(
            paced.0 < 20_000 && paced.1 < 30_000,
            "{paced:?} under {policy}"
        );
        assert!(
            paced < window && paced.1 < window.1,
            "{paced:?}, {window:?} under {policy}"
        );
    }
}
