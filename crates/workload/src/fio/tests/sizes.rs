//! Tests of request sizes.

use super::*;

#[test]
fn bs_is_one_size_or_one_each() {
    let sizes = |text: &str| {
        workload(&format!("bs={text}"))
            .sizes
            .map(|s| s.single().unwrap())
    };
    assert_eq!(sizes("64k"), [65536; 3]);
    assert_eq!(sizes("8k,32k"), [8192, 32768, 32768]);
    assert_eq!(sizes("8k,32k,"), [8192, 32768, 4096]);
    assert_eq!(sizes(",8k"), [4096, 8192, 8192]);
    assert_eq!(sizes(",8k,"), [4096, 8192, 4096]);
    assert_eq!(sizes("512,1024,2048"), [512, 1024, 2048]);
    assert_eq!(workload("blocksize=1m").sizes[0].single(), Some(1 << 20));
    all_wrong(&[
        "bs=1000",
        "bs=0",
        "bs=2g",
        "bs=1.5k",
        "bs=4x",
        "bs=4k,,,4k",
        "bs=-4k",
    ]);
}

#[test]
fn bsrange_spreads_over_the_multiples_of_the_smallest() {
    let sizes = |text: &str| workload(&format!("bsrange={text}")).sizes;
    // fio draws a number of bytes evenly from the range, and cuts it to a multiple of the smallest
    // size: each size has the weight of the bytes that are cut to it.
    assert_eq!(
        sizes("1k-4k")[0],
        shares(&[(1024, 2), (2048, 2), (3072, 2), (4096, 2)])
    );
    assert_eq!(sizes("4k:4k")[1].single(), Some(4096));
    assert_eq!(sizes("4k-1k")[0].largest(), 4096, "either order");
    // From 1k up to 1k + 2.5k; 2560 is what is left above 2k, half of a step.
    assert_eq!(
        sizes("1k-2560")[0],
        shares(&[(1024, 2), (2048, 2), (2560, 1)])
    );
    let [reads, writes, trims] = sizes("1k-2k,4k-8k,");
    assert_eq!((reads.largest(), writes.largest()), (2048, 8192));
    assert_eq!(trims.single(), Some(4096), "default");
    all_wrong(&[
        "bsrange=4k",
        "bsrange=1-4k",
        "bsrange=512-1g",
        "bsrange=0-4k",
    ]);
}

#[test]
fn bssplit_weighs_sizes() {
    let sizes = |text: &str| workload(&format!("bssplit={text}")).sizes;
    let [reads, writes, trims] = sizes("4k/10:64k/50:32k/40");
    assert_eq!(reads, shares(&[(4096, 10), (65536, 50), (32768, 40)]));
    assert_eq!((&reads, &reads), (&writes, &trims));
    let [reads, writes, trims] = sizes("2k/50:4k/50,4k/90:8k/10");
    assert_eq!(reads, shares(&[(2048, 50), (4096, 50)]));
    assert_eq!(writes, shares(&[(4096, 90), (8192, 10)]));
    assert_eq!(writes, trims);
    assert_eq!(
        sizes("512/100,1k/100,2k/100").map(|s| s.largest()),
        [512, 1024, 2048]
    );
}

#[test]
fn sizes_without_a_percentage_share_the_rest() {
    let reads = |text: &str| workload(&format!("bssplit={text}")).sizes[0].clone();
    assert_eq!(reads("64k"), shares(&[(65536, 100)]));
    // 50 % and twice 25 %.
    assert_eq!(
        reads("4k/50:1k/:32k/"),
        shares(&[(4096, 100), (1024, 50), (32768, 50)])
    );
    assert_eq!(reads("4k/50:1k/:32k"), reads("4k/50:1k/0:32k/"));
    all_wrong(&[
        "bssplit=4k/50",
        "bssplit=4k/60:8k/60",
        "bssplit=4k/100:8k",
        "bssplit=4k/x",
        "bssplit=",
        "bssplit=:",
        "bssplit=1000/100",
        "bssplit=4k/50/8k/50",
        "bssplit=4k/100,4k/100,4k/100,4k/100",
    ]);
    assert_eq!(
        only_error("bssplit=4k/50:8k/40").1,
        "the percentages add up to 90, not to 100"
    );
}

#[test]
fn bssplit_overrides_bsrange_and_bsrange_overrides_bs() {
    let lines = "bssplit=1k/100 | bsrange=2k-4k | bs=8k";
    assert_eq!(workload(lines).sizes[0].single(), Some(1024));
    assert_eq!(workload("bs=8k | bsrange=2k-4k").sizes[0].largest(), 4096);
}

#[test]
fn blockalign_equal_to_the_smallest_size_is_accepted() {
    workload("ba=4k");
    workload("rw=randread | bssplit=4k/50:8k/50 | blockalign=4k");
    all_wrong(&["ba=8k", "ba=512 | bssplit=4k/50:8k/50"]);
}
