//! Tests of operations and their addresses.

use super::*;

#[test]
fn rw_names_the_operations_and_their_order() {
    let half = Mix::ReadWrite { read_percent: 50 };
    for (name, mix, random) in [
        ("read", Mix::Read, false),
        ("write", Mix::Write, false),
        ("trim", Mix::Trim, false),
        ("randread", Mix::Read, true),
        ("randwrite", Mix::Write, true),
        ("randtrim", Mix::Trim, true),
        ("rw", half, false),
        ("readwrite", half, false),
        ("randrw", half, true),
        ("trimwrite", Mix::TrimWrite, false),
        ("randtrimwrite", Mix::TrimWrite, true),
    ] {
        for option in ["rw", "readwrite"] {
            let rw = workload(&format!("{option}={name}")).rw;
            assert_eq!((rw.mix, rw.random), (mix, random), "{name}");
        }
    }
    all_wrong(&[
        "rw=randomread",
        "rw=Read",
        "rw=",
        "rw",
        "rw=read:4k",
        "rw=randread:8",
    ]);
    assert!(
        only_error("rw=reed").2.contains("randtrimwrite"),
        "all are listed"
    );
}

#[test]
fn rwmixread_and_rwmixwrite_are_percentages_and_the_later_counts() {
    let mix = |lines: &str| match workload(&format!("rw=randrw | {lines}")).rw.mix {
        Mix::ReadWrite { read_percent } => read_percent,
        other => panic!("{other:?}"),
    };
    assert_eq!(mix("rwmixread=70"), 70);
    assert_eq!(mix("rwmixwrite=70"), 30);
    assert_eq!(mix("rwmixread=60 | rwmixwrite=10"), 90);
    assert_eq!(mix("rwmixwrite=10 | rwmixread=60"), 60);
    assert_eq!(mix("rwmixread=0"), 0);
    all_wrong(&["rwmixread=101", "rwmixwrite=half", "rwmixread=-1"]);
}

#[test]
fn a_later_job_s_mix_beats_the_other_word_of_the_global_section() {
    let (workload, _) = read("[global]\nrwmixwrite=10\n[job]\nrw=randrw\nrwmixread=20\n");
    assert_eq!(workload.rw.mix, Mix::ReadWrite { read_percent: 20 });
}

#[test]
fn random_jobs_meet_each_block_once_unless_norandommap() {
    let place = |lines: &str| workload(lines).placement;
    assert_eq!(place("rw=randread"), Placement::Shuffle);
    assert_eq!(place("rw=randread | norandommap"), Placement::Uniform);
    assert_eq!(place("rw=randread | norandommap=1"), Placement::Uniform);
    assert_eq!(place("rw=randread | norandommap=0"), Placement::Shuffle);
    assert_eq!(
        place("rw=randread | random_distribution=random"),
        Placement::Shuffle
    );
    all_wrong(&["norandommap=2", "norandommap=yes"]);
}

#[test]
fn several_sizes_cannot_be_shuffled_and_a_note_says_so() {
    let lines = "rw=randread | bssplit=4k/50:8k/50";
    assert_eq!(workload(lines).placement, Placement::Uniform);
    assert_eq!(
        notes(lines),
        [
            "note: f.fio:3: [job] bssplit: requests of several sizes are each drawn by \
          itself, as with `norandommap`"
        ]
    );
    assert!(notes("rw=randread | norandommap | bssplit=4k/50:8k/50").is_empty());
    // The block size of writes does not matter where none is written.
    assert_eq!(
        workload("rw=randread | bs=4k,8k").placement,
        Placement::Shuffle
    );
    assert_eq!(
        workload("rw=randrw | bs=4k,8k").placement,
        Placement::Uniform
    );
}

#[test]
fn random_distribution_names_a_placement() {
    let place =
        |text: &str| workload(&format!("rw=randread | random_distribution={text}")).placement;
    assert_eq!(place("zipf:0.9"), Placement::Zipf { theta: 0.9 });
    assert_eq!(place("zipf"), Placement::Zipf { theta: 1.1 });
    assert_eq!(place("pareto:0.3"), Placement::Pareto { h: 0.3 });
    assert_eq!(place("pareto"), Placement::Pareto { h: 0.2 });
    let deviation_percent = 12.5;
    assert_eq!(
        place("normal:12.5"),
        Placement::Normal { deviation_percent }
    );
    for text in [
        "zipf:1",
        "zipf:1.0",
        "zipf:0",
        "zipf:11",
        "zipf:-1",
        "zipf:x",
        "zipf:",
        "pareto:0",
        "pareto:1",
        "normal",
        "normal:0",
        "normal:100",
        "zipf:1.2:0.25",
        "zoned:50/5:50/95",
        "zoned_abs:60/20g",
        "sequence:2,0,1",
        "uniform",
    ] {
        all_wrong(&[&format!("random_distribution={text}")]);
    }
}
