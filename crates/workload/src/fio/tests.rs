//! What job files come to, word by word.

use super::*;
use crate::arrive::{Arrivals, Spacing};
use crate::job::{Flow, Job, Mix, Placement, SizeShare, Sizes, Think};
use crate::time::TimeDistribution;
use tidegate_core::time::Nanos;

const GIB: u64 = 1 << 30;

/// The file's only job, on a disk of 1 GiB, and its notes.
fn read(text: &str) -> (Job, Vec<String>) {
    let file = parse(text, "f.fio", false).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.sections.len(), 1);
    let job = file.sections[0].job(GIB).unwrap();
    assert_eq!(job.check(), Ok(()), "{text}");
    let notes = file.notes.iter().map(|note| note.to_string()).collect();
    (job, notes)
}

/// The job that these lines make; more lines, separated by ` | `.
fn job(lines: &str) -> Job {
    read(&format!("[job]\n{}\n", lines.replace(" | ", "\n"))).0
}

fn notes(lines: &str) -> Vec<String> {
    read(&format!("[job]\n{}\n", lines.replace(" | ", "\n"))).1
}

/// What is wrong with these lines: option, what, and help.
fn wrong(lines: &str) -> (String, String, String) {
    let text = format!("[job]\n{}\n", lines.replace(" | ", "\n"));
    let errors = parse(&text, "f.fio", false).expect_err(lines).0;
    assert_eq!(errors.len(), 1, "{lines}: {errors:?}");
    let error = errors.into_iter().next().unwrap();
    (error.option, error.what, error.help.unwrap_or_default())
}

/// Each of these lines is wrong in one option, the first in the line.
fn all_wrong(cases: &[&str]) {
    for lines in cases {
        let name = lines.split(['=', ' ']).next().unwrap();
        let (option, what, _) = wrong(lines);
        assert_eq!(option, name, "{lines}: {what}");
    }
}

fn closed(job: &Job) -> (u32, Option<Think>) {
    match &job.flow {
        Flow::Closed { iodepth, think } => (*iodepth, think.clone()),
        Flow::Open { .. } => panic!("{job:?}"),
    }
}

fn open(job: &Job) -> (Arrivals, u32) {
    match &job.flow {
        Flow::Open { arrivals, iodepth } => (*arrivals, *iodepth),
        Flow::Closed { .. } => panic!("{job:?}"),
    }
}

fn shares(list: &[(u32, u32)]) -> Sizes {
    let share = |&(bytes, weight)| SizeShare { bytes, weight };
    Sizes(list.iter().map(share).collect())
}

mod patterns {
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
                let rw = job(&format!("{option}={name}")).rw;
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
            wrong("rw=reed").2.contains("randtrimwrite"),
            "all are listed"
        );
    }

    #[test]
    fn rwmixread_and_rwmixwrite_are_percentages_and_the_later_counts() {
        let mix = |lines: &str| match job(&format!("rw=randrw | {lines}")).rw.mix {
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
        let (job, _) = read("[global]\nrwmixwrite=10\n[job]\nrw=randrw\nrwmixread=20\n");
        assert_eq!(job.rw.mix, Mix::ReadWrite { read_percent: 20 });
    }

    #[test]
    fn random_jobs_meet_each_block_once_unless_norandommap() {
        let place = |lines: &str| job(lines).placement;
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
        assert_eq!(job(lines).placement, Placement::Uniform);
        assert_eq!(
            notes(lines),
            [
                "note: f.fio:3: [job] bssplit: requests of several sizes are each drawn by \
              itself, as with `norandommap`"
            ]
        );
        assert!(notes("rw=randread | norandommap | bssplit=4k/50:8k/50").is_empty());
        // What is not written does not matter.
        assert_eq!(job("rw=randread | bs=4k,8k").placement, Placement::Shuffle);
        assert_eq!(job("rw=randrw | bs=4k,8k").placement, Placement::Uniform);
    }

    #[test]
    fn random_distribution_names_a_placement() {
        let place =
            |text: &str| job(&format!("rw=randread | random_distribution={text}")).placement;
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
}

mod sizes {
    use super::*;

    #[test]
    fn bs_is_one_size_or_one_each() {
        let sizes = |text: &str| {
            job(&format!("bs={text}"))
                .sizes
                .map(|s| s.single().unwrap())
        };
        assert_eq!(sizes("64k"), [65536; 3]);
        assert_eq!(sizes("8k,32k"), [8192, 32768, 32768]);
        assert_eq!(sizes("8k,32k,"), [8192, 32768, 4096]);
        assert_eq!(sizes(",8k"), [4096, 8192, 8192]);
        assert_eq!(sizes(",8k,"), [4096, 8192, 4096]);
        assert_eq!(sizes("512,1024,2048"), [512, 1024, 2048]);
        assert_eq!(job("blocksize=1m").sizes[0].single(), Some(1 << 20));
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
        let sizes = |text: &str| job(&format!("bsrange={text}")).sizes;
        assert_eq!(
            sizes("1k-4k")[0],
            shares(&[(1024, 2), (2048, 2), (3072, 2), (4096, 2)])
        );
        assert_eq!(sizes("4k:4k")[1].single(), Some(4096));
        assert_eq!(sizes("4k-1k")[0].largest(), 4096, "either order");
        // fio draws from 1k up to 1k + 2.5k, and cuts to multiples and to the largest.
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
        let sizes = |text: &str| job(&format!("bssplit={text}")).sizes;
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
    fn what_a_split_leaves_is_shared() {
        let reads = |text: &str| job(&format!("bssplit={text}")).sizes[0].clone();
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
            wrong("bssplit=4k/50:8k/40").1,
            "the percentages add up to 90, not to 100"
        );
    }

    #[test]
    fn a_split_stands_above_a_range_and_a_range_above_a_size() {
        let lines = "bssplit=1k/100 | bsrange=2k-4k | bs=8k";
        assert_eq!(job(lines).sizes[0].single(), Some(1024));
        assert_eq!(job("bs=8k | bsrange=2k-4k").sizes[0].largest(), 4096);
    }

    #[test]
    fn blockalign_may_say_what_holds_anyway() {
        job("ba=4k");
        job("rw=randread | bssplit=4k/50:8k/50 | blockalign=4k");
        all_wrong(&["ba=8k", "ba=512 | bssplit=4k/50:8k/50"]);
    }
}

mod extents {
    use super::*;

    fn extent(lines: &str) -> (u64, Option<u64>, Option<u64>) {
        let job = job(lines);
        (job.offset, job.size, job.io_size)
    }

    #[test]
    fn a_job_does_its_region_once_by_default() {
        assert_eq!(extent(""), (0, None, Some(GIB)));
        assert_eq!(extent("size=100m"), (0, Some(100 << 20), Some(100 << 20)));
        assert_eq!(extent("offset=1m"), (1 << 20, None, Some(GIB - (1 << 20))));
        assert_eq!(extent("size=0"), (0, None, Some(GIB)), "0 is not set");
    }

    #[test]
    fn the_rest_past_the_last_whole_request_is_not_counted() {
        assert_eq!(extent("size=10000"), (0, Some(9728), Some(8192)));
    }

    #[test]
    fn time_based_jobs_have_no_other_end() {
        let lines = "size=1m | io_size=2m | number_ios=7 | loops=2 | time_based | runtime=10";
        let (job, notes) = read(&format!("[job]\n{}\n", lines.replace(" | ", "\n")));
        assert_eq!((job.io_size, job.number_ios), (None, None));
        assert_eq!(job.runtime, Some(Nanos::from_secs(10)));
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.contains("of no effect with `time_based`"))
        );
    }

    #[test]
    fn time_based_without_a_runtime_is_dropped() {
        assert_eq!(job("time_based | size=1m").io_size, Some(1 << 20));
        assert!(notes("time_based")[0].contains("of no effect without `runtime`"));
        assert_eq!(
            job("time_based=0 | runtime=1 | size=1m").io_size,
            Some(1 << 20)
        );
    }

    #[test]
    fn io_size_is_more_or_less_than_the_region() {
        assert_eq!(extent("size=1m | io_size=10m").2, Some(10 << 20));
        assert_eq!(extent("size=1m | io_limit=4k").2, Some(4096));
        assert_eq!(extent("size=1m | io_size=50%").2, Some(1 << 19));
        all_wrong(&["io_size=101%", "io_size=x"]);
    }

    #[test]
    fn loops_repeat_the_bytes_and_the_requests() {
        assert_eq!(extent("size=1m | loops=3").2, Some(3 << 20));
        assert_eq!(job("number_ios=5 | loops=3").number_ios, Some(15));
        all_wrong(&["loops=0"]);
    }

    #[test]
    fn number_ios_counts_requests() {
        assert_eq!(job("number_ios=100").number_ios, Some(100));
        assert_eq!(job("number_ios=1k").number_ios, Some(1024), "fio's k");
        assert_eq!(job("number_ios=0").number_ios, None);
    }

    #[test]
    fn percentages_are_of_the_disk() {
        assert_eq!(extent("size=50%").1, Some(GIB / 2));
        assert_eq!(
            extent("bs=4k | size=33%").1,
            Some(GIB / 100 * 33 / 4096 * 4096)
        );
        let third = (GIB * 33 / 100).next_multiple_of(4096);
        assert_eq!(extent("bs=4k | offset=33%").0, third);
        assert_eq!(
            extent("fileoffset=50% | size=100%").1,
            Some(GIB / 2),
            "up to its end"
        );
        assert_eq!(job("offset_increment=25%").offset_increment, GIB / 4);
        all_wrong(&["size=101%", "offset=200%"]);
    }

    #[test]
    fn offsets_begin_sectors() {
        assert_eq!(
            job("offset=1m | offset_increment=64k").offset_increment,
            65536
        );
        all_wrong(&["offset=100", "offset_increment=1000"]);
    }

    #[test]
    fn a_region_holds_a_request() {
        all_wrong(&["size=2k", "size=4k | bs=8k"]);
        job("size=4k | rw=read | bs=4k,8k");
    }

    #[test]
    fn a_region_off_the_disk_is_told_when_the_disk_is_known() {
        let file = parse("[job]\nsize=2g\n", "f", false).unwrap();
        let error = file.sections[0].job(GIB).unwrap_err();
        assert_eq!((error.to, error.disk_size), (2 * GIB, GIB));
        assert!(file.sections[0].job(2 * GIB).is_ok());
        let all = parse("[job]\noffset=100%\n", "f", false).unwrap();
        assert!(all.sections[0].job(GIB).is_err());
        assert!(all.sections[0].job(0).is_err());
    }
}

mod flows {
    use super::*;

    #[test]
    fn iodepth_is_taken_as_it_stands() {
        assert_eq!(closed(&job("")), (1, None));
        assert_eq!(closed(&job("iodepth=32 | ioengine=libaio")).0, 32);
        assert_eq!(closed(&job("iodepth=32")).0, 32);
        assert!(notes("iodepth=32")[0].contains("fio needs an asynchronous `ioengine`"));
        all_wrong(&["iodepth=0", "iodepth=65537", "iodepth=deep"]);
    }

    #[test]
    fn a_synchronous_engine_has_a_depth_of_one() {
        for engine in ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"] {
            let lines = format!("iodepth=32 | ioengine={engine}");
            assert_eq!(closed(&job(&lines)).0, 1);
            assert!(notes(&lines)[0].contains("`iodepth` has no effect"));
        }
    }

    #[test]
    fn numjobs_stays_with_the_job() {
        assert_eq!(job("numjobs=4").numjobs, 4);
        all_wrong(&["numjobs=0", "numjobs=100000"]);
    }

    #[test]
    fn thinktime_is_in_microseconds_and_follows_each_request() {
        let think = |lines: &str| {
            closed(&job(lines))
                .1
                .map(|think| (think.time, think.blocks))
        };
        let micros = |us| TimeDistribution::Fixed(Nanos::from_micros(us));
        assert_eq!(think("thinktime=500"), Some((micros(500), 1)));
        assert_eq!(
            think("thinktime=5ms | thinktime_blocks=16"),
            Some((micros(5000), 16))
        );
        assert_eq!(think("thinktime=0"), None);
        assert_eq!(think("thinktime_blocks=4"), None);
        all_wrong(&["thinktime=1.5", "thinktime_blocks=0"]);
    }

    #[test]
    fn rate_iops_is_an_open_loop() {
        let (arrivals, iodepth) = open(&job("rate_iops=1000 | iodepth=8 | ioengine=io_uring"));
        assert_eq!((arrivals.per_s, arrivals.spacing), (1000.0, Spacing::Fixed));
        assert_eq!((arrivals.bursts, iodepth), (None, 8));
        let poisson = open(&job("rate_iops=50 | rate_process=poisson")).0;
        assert_eq!(poisson.spacing, Spacing::Poisson);
        assert_eq!(
            open(&job("rate_iops=50 | rate_process=linear")).0.spacing,
            Spacing::Fixed
        );
        assert_eq!(open(&job("rate_iops=1k")).0.per_s, 1024.0, "fio's k");
        all_wrong(&["rate_iops=fast", "rate_process=bursty", "rate_iops=20m"]);
    }

    #[test]
    fn each_operation_has_the_rate_at_its_place() {
        let rate = |lines: &str| open(&job(lines)).0.per_s;
        assert_eq!(rate("rw=write | rate_iops=100,200"), 200.0);
        assert_eq!(rate("rw=trim | rate_iops=100,200,300"), 300.0);
        assert_eq!(
            rate("rw=trimwrite | rate_iops=100"),
            200.0,
            "with the discards"
        );
        assert_eq!(
            closed(&job("rw=read | rate_iops=,200")).0,
            1,
            "reads have none"
        );
        assert_eq!(closed(&job("rate_iops=0")).0, 1);
    }

    #[test]
    fn rates_of_reads_and_writes_decide_the_mix() {
        let mixed = |lines: &str| {
            let job = job(&format!("rw=randrw | {lines}"));
            (open(&job).0.per_s, job.rw.mix)
        };
        let read = |read_percent| Mix::ReadWrite { read_percent };
        assert_eq!(mixed("rate_iops=700,300"), (1000.0, read(70)));
        // As fio 3.33 does it: 500 reads and 500 writes, whatever the mix.
        assert_eq!(mixed("rate_iops=500 | rwmixread=70"), (1000.0, read(50)));
        assert_eq!(mixed("rate_iops=1000,500"), (1500.0, read(67)));
        assert!(notes("rw=rw | rate_iops=1000,500")[0].contains("1500 requests a second in all"));
        all_wrong(&["rate_iops=500, | rw=rw", "rate_iops=,500 | rw=rw"]);
    }

    #[test]
    fn rate_is_in_bytes_a_second() {
        let rate = |lines: &str| open(&job(lines)).0.per_s;
        assert_eq!(rate("rate=1m | bs=64k"), 16.0);
        assert_eq!(rate("rate=1m,2m | bs=64k | rw=write"), 32.0);
        // By the mean size, so that the bandwidth is right.
        assert_eq!(rate("rate=1m | bssplit=4k/50:60k/50"), 32.0);
        assert_eq!(rate("rate=100 | bs=4k"), 100.0 / 4096.0);
        all_wrong(&["rate=1 | bs=4k", "rate_iops=5 | rate=1m"]);
    }

    #[test]
    fn a_rate_and_a_think_time_do_not_go_together() {
        all_wrong(&["thinktime=5 | rate_iops=100"]);
    }

    #[test]
    fn fsync_and_fdatasync_are_flushes_after_writes() {
        assert_eq!(job("fsync=32").fsync, 32);
        assert_eq!(job("fdatasync=1").fsync, 1);
        assert_eq!(job("fsync=0 | fdatasync=4").fsync, 4);
        all_wrong(&["fdatasync=1 | fsync=1", "fsync=x"]);
    }

    #[test]
    fn sync_makes_writes_durable() {
        for (value, sync) in [
            ("0", false),
            ("none", false),
            ("1", true),
            ("sync", true),
            ("dsync", true),
        ] {
            assert_eq!(job(&format!("sync={value}")).sync, sync, "{value}");
        }
        all_wrong(&["sync=yes", "sync"]);
    }
}

mod times {
    use super::*;

    const S: Nanos = Nanos::SECOND;

    #[test]
    fn times_are_in_seconds_unless_they_say_otherwise() {
        assert_eq!(job("runtime=60").runtime, Some(Nanos::from_secs(60)));
        assert_eq!(job("timeout=5m").runtime, Some(Nanos::from_secs(300)));
        assert_eq!(job("runtime=500ms").runtime, Some(Nanos::from_millis(500)));
        assert_eq!(job("runtime=0").runtime, None);
        assert_eq!(job("startdelay=3").start, Nanos::from_secs(3));
        assert_eq!(job("startdelay=20ms").start, Nanos::from_millis(20));
        all_wrong(&[
            "runtime=1min",
            "runtime=1.5",
            "startdelay=5-10",
            "ramp_time=x",
        ]);
    }

    #[test]
    fn the_ramp_comes_on_top_of_the_runtime() {
        let file = parse("[job]\nruntime=10\nramp_time=2\n", "f", false).unwrap();
        assert_eq!(file.sections[0].ramp_time, Nanos::from_secs(2));
        let job = file.sections[0].job(GIB).unwrap();
        assert_eq!(job.runtime, Some(Nanos::from_secs(12)));
    }

    fn starts(text: &str) -> Vec<Nanos> {
        let file = parse(text, "f", false).unwrap_or_else(|errors| panic!("{errors}"));
        let start = |section: &Section| section.job(GIB).unwrap().start;
        file.sections.iter().map(start).collect()
    }

    #[test]
    fn a_stonewall_waits_for_all_sections_before_it() {
        let text = "[global]\ntime_based\nruntime=10\n[a]\nramp_time=5\n[b]\nstartdelay=2\n\
                    [c]\nstonewall\nstartdelay=1\n[d]\n[e]\nwait_for_previous\n";
        let seconds = [0, 2, 16, 15, 26];
        assert_eq!(starts(text), seconds.map(Nanos::from_secs));
    }

    #[test]
    fn a_first_stonewall_waits_for_nothing() {
        assert_eq!(
            starts("[a]\nstonewall\n[b]\nstonewall=0\n"),
            [Nanos::ZERO; 2]
        );
    }

    #[test]
    fn a_stonewall_behind_an_end_that_is_not_known_is_refused() {
        for own in ["runtime=0", "size=1m", "time_based"] {
            let text = format!("[a]\n{own}\n[b]\nstonewall\n");
            let errors = parse(&text, "f", false).unwrap_err().0;
            assert_eq!(errors.len(), 1);
            assert_eq!(errors[0].what, "waits for [a], whose end is not known");
            assert_eq!(errors[0].place.line, 4);
        }
        // At the latest: it may be through earlier.
        assert_eq!(starts("[a]\nsize=1m\nruntime=1\n[b]\nstonewall\n")[1], S);
    }
}

mod files {
    use super::*;

    #[test]
    fn a_global_section_holds_for_the_jobs_after_it() {
        let text = "[early]\n[global]\nbs=8k\nrw=write\n[a]\n[b]\nbs=16k\n\
                    [global]\nbs=32k\n[c]\nrw=read\n";
        let file = parse(text, "f", false).unwrap();
        let jobs = file.sections.iter().map(|section| {
            let job = section.job(GIB).unwrap();
            (job.name, job.sizes[1].largest(), job.rw.mix)
        });
        let expected = [
            ("early", 4096, Mix::Read),
            ("a", 8192, Mix::Write),
            ("b", 16384, Mix::Write),
            ("c", 32768, Mix::Read),
        ];
        let expected = expected.map(|(name, bytes, mix)| (name.to_owned(), bytes, mix));
        assert!(jobs.eq(expected));
    }

    #[test]
    fn a_name_that_begins_with_global_is_global_as_in_fio() {
        let file = parse("[globals]\nbs=8k\n[a]\n", "f", false).unwrap();
        assert_eq!(file.sections.len(), 1);
        assert_eq!(
            file.sections[0].job(GIB).unwrap().sizes[0].single(),
            Some(8192)
        );
        assert!(file.notes[0].what.contains("counts as [global]"));
    }

    #[test]
    fn a_job_is_called_by_its_name_and_a_section_by_its_header() {
        let file = parse("[a]\nname=b\ndescription=costs $5\n", "f", false).unwrap();
        let section = &file.sections[0];
        assert_eq!((section.name.as_str(), section.line), ("a", 1));
        assert_eq!(section.job(GIB).unwrap().name, "b");
        assert_eq!(section.description.as_deref(), Some("costs $5"));
    }

    #[test]
    fn the_last_word_counts() {
        assert_eq!(job("bs=4k | bs=8k").sizes[0].single(), Some(8192));
        assert_eq!(job("rw=write | readwrite=trim").rw.mix, Mix::Trim);
    }

    #[test]
    fn kb_base_holds_for_its_whole_section() {
        assert_eq!(job("size=512k | kb_base=1000 | bs=512").size, Some(512_000));
        assert_eq!(job("kb_base=1024 | size=512k").size, Some(524_288));
        all_wrong(&["kb_base=10"]);
    }

    #[test]
    fn what_only_concerns_fio_is_passed_over_with_the_reason() {
        let lines = "direct=1 | filename=/dev/sd${X} | group_reporting | ioengine=libaio | thread";
        let notes = notes(lines);
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert_eq!(
            notes[0],
            "note: f.fio:2: [job] direct: ignored: requests go straight to the disk; the guest's \
             page cache is not simulated"
        );
    }

    #[test]
    fn everything_on_the_list_of_the_ignored_is_passed_over() {
        for (why, names) in known::IGNORED {
            for name in *names {
                let notes = notes(&format!("{name}=1"));
                assert!(
                    notes.len() == 1 && notes[0].contains(why),
                    "{name}: {notes:?}"
                );
            }
        }
    }

    #[test]
    fn everything_on_the_list_of_the_refused_is_refused_unless_it_asks_for_nothing() {
        for (why, harmless, names) in known::REFUSED {
            for name in *names {
                let (option, what, _) = wrong(&format!("{name}=17"));
                assert_eq!(
                    (option.as_str(), what),
                    (*name, format!("not supported: {why}"))
                );
                for value in *harmless {
                    assert!(
                        notes(&format!("{name}={value}")).is_empty(),
                        "{name}={value}"
                    );
                }
            }
        }
    }

    #[test]
    fn options_that_nobody_knows_are_named_with_their_like() {
        let (option, what, help) = wrong("iodpeth=4");
        assert_eq!(
            (option.as_str(), what.as_str()),
            ("iodpeth", "no option that is known here")
        );
        assert_eq!(help, "did you mean \"iodepth\"?");
        assert_eq!(wrong("colour=blue").2, "");
    }

    #[test]
    fn a_lenient_reader_passes_over_what_it_cannot_do() {
        let text = "[job]\ncolour=blue\nverify=md5\nbs=8k\n";
        let file = parse(text, "f", true).unwrap();
        let warnings: Vec<_> = file.notes.iter().map(|n| (n.kind, n.place.line)).collect();
        assert_eq!(warnings, [(Kind::Warning, 2), (Kind::Warning, 3)]);
        assert_eq!(
            file.sections[0].job(GIB).unwrap().sizes[0].single(),
            Some(8192)
        );
        assert!(parse("[job]\nbs=blue\n", "f", true).is_err());
    }

    #[test]
    fn variables_and_arithmetic_are_refused() {
        for lines in [
            "bs=${BS}",
            "name=$jobname",
            "numjobs=$ncpus",
            "size=$pagesize*4",
        ] {
            assert!(wrong(lines).1.starts_with("variables such as"), "{lines}");
        }
        assert_eq!(wrong("size=(4*1024)").2, "write the result");
    }

    #[test]
    fn two_sections_of_one_name_are_refused() {
        let errors = parse("[a]\n[b]\n[a]\n", "f", false).unwrap_err().0;
        assert_eq!(errors[0].what, "the section of line 1 has this name, too");
        assert_eq!((errors[0].place.line, errors[0].place.column), (3, 2));
    }

    #[test]
    fn a_file_without_a_job_is_refused() {
        for text in ["", "# nothing\n", "[global]\nbs=4k\n"] {
            let errors = parse(text, "f", false).unwrap_err().0;
            assert_eq!(errors[0].what, "there is no job in this file");
        }
    }

    #[test]
    fn all_mistakes_are_told_together_each_once_at_its_place() {
        let text = "[global]\nbs=4x\nbanana=1\n[a]\nrw=reed\n[b]\niodepth=0 # none\n";
        let errors = parse(text, "jobs/f.fio", false).unwrap_err();
        let told: Vec<_> = (errors.0.iter())
            .map(|error| {
                (
                    error.place.line,
                    error.section.as_str(),
                    error.option.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (2, "global", "bs"),
                (3, "global", "banana"),
                (5, "a", "rw"),
                (7, "b", "iodepth")
            ]
        );
        let shown = errors.to_string();
        let last = "error: [b] iodepth: 0 is out of range\n  --> jobs/f.fio:7:9\n  |\n\
                    7 | iodepth=0 # none\n  |         ^\n  help: 1 to 65536";
        assert!(shown.ends_with(last), "{shown}");
    }
}

#[test]
fn a_percentage_past_the_last_number_still_begins_a_sector() {
    let file = parse("[job]\noffset_increment=100%\n", "f.fio", false).unwrap();
    let job = file.sections[0].job(u64::MAX).unwrap();
    assert_eq!(job.check(), Ok(()));
}

#[test]
fn files_lie_one_after_the_other() {
    let files = job("rw=read | size=100m | nrfiles=3 | file_service_type=sequential");
    assert_eq!(files.files.count, 3);
    let size = files.size.unwrap();
    assert!(size.is_multiple_of(3 * 512) && (100 << 20) - size < 3 * 512);
    let random = job("rw=randread | nrfiles=128 | file_service_type=random");
    assert_eq!((random.files.count, random.size), (128, Some(GIB)));
    all_wrong(&[
        "nrfiles=2",
        "file_service_type=random | nrfiles=2 | rw=read",
        "nrfiles=0",
    ]);
}
