//! Traces replayed, and deadlines: what is counted, by hand-made cases and by arithmetic from
//! outside.

use crate::common::{good, refused, run, vm};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::Path;
use tidegate_config::library::Library;
use tidegate_config::model;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_sim::report::{Deadlines, Report, Response, Responses};
use tidegate_sim::scenario::{self, Scenario};
use tidegate_sim::world::World;

/// Traces by their names, the others as they lie beside the repository.
struct Shelf;

const FIVE: &str = "1000000 0 0 16 1\n1000000 0 800000 64 0\n21000000 0 64 64 1\n\
                    1021000000 0 100 2048 1\n1500000000 0 9000 8 0\n";
const TWO_DISKS: &str = "0 3 0 8 1\n1000 5 8 8 1\n2000 3 8 8 1\n";

impl Library for Shelf {
    fn model(&self, name: &str) -> Result<Entry, String> {
        model::built_in(name)
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        Err(format!("no profile {path}"))
    }

    fn open(&self, path: &str) -> Result<Box<dyn BufRead>, String> {
        let text = match path {
            "five" => FIVE,
            "two-disks" => TWO_DISKS,
            "bad" => "0 0 0 16 1\n1 0 0 16 7\n2 0 0 16 1\n",
            "unknown" => "what?\n",
            _ => {
                let file = File::open(path).map_err(|error| error.to_string())?;
                return Ok(Box::new(BufReader::new(file)));
            }
        };
        Ok(Box::new(Cursor::new(text)))
    }
}

fn read(text: &str) -> Result<Scenario, String> {
    let loaded = scenario::read(text, "test.toml", &Shelf, None);
    loaded.map(|it| it.config).map_err(|it| it.to_string())
}

/// Error messages of a workload with these keys.
fn said(words: &str) -> String {
    read(&workload(words)).map(|_| ()).expect_err("refused")
}

const DISK: &str = "duration = \"60 s\"\n[[device]]\nname = \"disk\"\nmodel = \"hdd-7200-1tb\"\n\
                    policy = \"fifo\"\n\
                    depth = 1\n";

/// A VM with a job of these words, alone on a disk.
fn workload(words: &str) -> String {
    format!(
        "{DISK}[[vm]]\nname = \"a\"\ndisk = [{{ size = \"10 GiB\" }}]\n[[vm.workload]]\n{words}\n"
    )
}

/// The report, and every task that was done.
fn replayed(text: &str) -> (Report, Vec<Response>) {
    let scenario = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut world = World::new(scenario, Some(Nanos::SECOND));
    world.keep_responses();
    let (mut all, mut rows) = (Vec::new(), 0);
    while !world.is_over() {
        world.step(&mut |row| rows += row.responses.as_ref().map_or(0, |it| it.done));
        all.extend(world.take_responses());
    }
    let report = world.report();
    let done: u64 = found(&report).map(|it| it.done).sum();
    assert_eq!(all.len() as u64, done, "each is told once");
    assert_eq!(rows, done, "and is in a row");
    (report, all)
}

fn found(report: &Report) -> impl Iterator<Item = &Responses> {
    report.vms.iter().filter_map(|vm| vm.responses.as_ref())
}

fn responses(report: &Report) -> &Responses {
    found(report).next().expect("it has tasks")
}

fn deadlines(report: &Report) -> &Deadlines {
    let deadlines = responses(report).deadlines.as_ref();
    deadlines.expect("it has deadlines")
}

const NEXT: &str = "replay = { file = \"five\", mode = \"next-when-done\" }";

#[test]
fn timed_requests_come_at_the_trace_s_times_whatever_the_disk_does() {
    let (report, all) = replayed(&workload(
        "startdelay = \"2 s\"\nreplay = { file = \"five\", mode = \"timed\" }",
    ));
    let mut begun: Vec<(u64, f64)> = all.iter().map(|it| (it.index, it.begun_s)).collect();
    begun.sort_by_key(|&(index, _)| index);
    assert_eq!(
        begun,
        [(0, 2.0), (1, 2.0), (2, 2.02), (3, 3.02), (4, 3.499)]
    );
    assert_eq!(responses(&report).done, 5);
    assert_eq!(responses(&report).deadlines, None);
    // Outstanding requests are bounded; one held back for that counts as waiting from its own time.
    let (_, bounded) = replayed(&workload(
        "iodepth = 1\nreplay = { file = \"five\", mode = \"scaled\", time_factor = 0.000001 }",
    ));
    let order: Vec<u64> = bounded.iter().map(|it| it.index).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    assert!(bounded.windows(2).all(|two| {
        let end = |it: &Response| it.begun_s + it.response_ns as f64 / 1e9;
        end(&two[0]) < end(&two[1]) && two[1].begun_s < 0.000_002
    }));
}

#[test]
fn one_after_the_other_each_begins_when_the_last_is_done() {
    for more in ["", "bs = \"64 KiB\"\niodepth = 3\n", "bs = \"4 KiB\"\n"] {
        let (report, all) = replayed(&workload(&format!("{more}{NEXT}")));
        let bytes: Vec<u64> = all.iter().map(|it| it.bytes / 512).collect();
        assert_eq!(bytes, [16, 64, 64, 2048, 8]);
        for two in all.windows(2) {
            let end = two[0].begun_s + two[0].response_ns as f64 / 1e9;
            assert!((two[1].begun_s - end).abs() < 1e-9, "{two:?}");
        }
        let sum: u64 = all.iter().map(|it| it.response_ns).sum();
        let found = responses(&report);
        assert_eq!(found.mean_ns, Some(sum / 5));
        assert_eq!(found.max_ns, all.iter().map(|it| it.response_ns).max());
        assert_eq!((found.done, found.unfinished), (5, 0));
        let requests = vm(&report, "a").rates;
        let moved = requests.bytes_per_s * vm(&report, "a").time_s;
        assert!((moved - 2200.0 * 512.0).abs() < 1.0, "{moved}");
    }
}

#[test]
fn pieces_at_once_take_less_time_than_one_after_the_other() {
    let mean = |depth: u32| {
        let text = workload(&format!("bs = \"16 KiB\"\niodepth = {depth}\n{NEXT}"));
        let text = text.replace(
            "depth = 1\n[[vm]]",
            "depth = 32\nmerge_limit = \"0 B\"\n[[vm]]",
        );
        responses(&replayed(&text).0)
            .mean_ns
            .expect("some were done")
    };
    assert!(mean(32) < mean(1), "{} {}", mean(32), mean(1));
}

#[test]
fn sizes_are_multiplied_and_the_first_requests_or_one_disk_are_enough() {
    let size = NEXT.replace("mode", "size_factor = 100, limit = 2, mode");
    let (_, all) = replayed(&workload(&size));
    let bytes: Vec<u64> = all.iter().map(|it| it.bytes).collect();
    assert_eq!(bytes, [16 * 51_200, 64 * 51_200]);
    let disk = "replay = { file = \"two-disks\", trace_disk = \"5\", mode = \"next-when-done\", \
                loop = true }";
    let (report, all) = replayed(&workload(&format!("runtime = \"1 s\"\n{disk}")));
    assert!(all.len() > 10 && all.iter().all(|it| it.bytes == 4096));
    assert!(
        all.iter().zip(0..).all(|(it, n)| it.index == n),
        "rounds count on"
    );
    assert_eq!(
        responses(&report).unfinished,
        0,
        "its only piece is answered"
    );
}

#[test]
fn who_is_late_is_counted_by_the_deadline_and_how_late() {
    let (_, all) = replayed(&workload(NEXT));
    let mut took: Vec<u64> = all.iter().map(|it| it.response_ns).collect();
    took.sort_unstable();
    // Exactly as long as the third took is in time.
    let bound = took[2];
    let (report, all) = replayed(&workload(&format!("deadline = \"{bound} ns\"\n{NEXT}")));
    let found = deadlines(&report);
    assert_eq!((found.met, found.missed), (3, 2));
    assert_eq!(found.missed_percent, Some(40.0));
    let late = [took[3] - bound, took[4] - bound];
    assert_eq!(found.late_mean_ns, Some((late[0] + late[1]) / 2));
    assert_eq!(found.late_max_ns, Some(late[1]));
    let of_log = all.iter().filter(|it| it.late_ns > Some(0)).count();
    assert_eq!(of_log, 2);
    assert!(all.iter().all(|it| it.deadline_ns == Some(bound)));
}

#[test]
fn deadlines_are_by_size_as_the_thesis_has_them() {
    let by = |more: &str| {
        let scheme = "tolerance = 0.3, max_bandwidth = \"54 MB/s\", bandwidth_loss = \"17 MB/s\"";
        let (_, all) = replayed(&workload(&format!(
            "deadline = {{ {scheme}{more} }}\n{NEXT}"
        )));
        let of = |it: &Response| (it.bytes, it.deadline_ns.expect("each has one"));
        all.iter().map(of).collect::<Vec<_>>()
    };
    let expected = |bytes: u64, divided: f64| bytes as f64 / (37e6 * divided) * 1.3e9;
    for (more, divided) in [
        ("", 1.0),
        (", vms = 2", 1.0),
        (", vms = 2, as_printed = true", 2.0),
    ] {
        let all = by(more);
        assert_eq!(all.len(), 5);
        for (bytes, deadline) in all {
            let off = deadline as f64 - expected(bytes, divided);
            assert!(
                (0.0..4.0).contains(&off),
                "{more}: {bytes} {deadline} {off}"
            );
        }
    }
}

/// A gibibyte takes longer than this lasts: it is open at the end, and missed only once its time is
/// over.
#[test]
fn what_is_not_done_at_the_end_is_missed_once_its_deadline_is_over() {
    let with = |deadline: &str, more: &str| {
        let words = "rw = \"read\"\nbs = \"1 MiB\"\nio_size = \"1 GiB\"";
        let text = workload(&format!("{words}\n{more}deadline = \"{deadline}\""));
        let text = text.replace("\"60 s\"", "\"2500 ms\"");
        let (report, all) = replayed(&text);
        assert_eq!(all, []);
        let (met, missed) = (deadlines(&report).met, deadlines(&report).missed);
        (responses(&report).unfinished, met, missed)
    };
    assert_eq!(with("2499 ms", ""), (0, 0, 1));
    assert_eq!(with("2500 ms", ""), (1, 0, 0));
    // Stopped before the end: what counts is whether it was late then.
    assert_eq!(with("1999 ms", "runtime = \"2 s\"\n"), (0, 0, 1));
    assert_eq!(with("2001 ms", "runtime = \"2 s\"\n"), (1, 0, 0));
}

#[test]
fn a_vm_that_leaves_takes_its_tasks_along() {
    let words = "rw = \"read\"\nbs = \"1 MiB\"\nio_size = \"1 GiB\"\ndeadline = \"30 s\"";
    let text = workload(words).replace(
        "disk = [{ size = \"10",
        "leaves = \"1 s\"\ndisk = [{ size = \"10",
    );
    let (report, _) = replayed(&text);
    assert_eq!(responses(&report).unfinished, 1);
    assert_eq!(deadlines(&report).missed_percent, None);
}

/// The engine counts a workload with a deadline as the simulator does, also under a policy that
/// ignores transfers.
#[test]
fn a_whole_job_is_the_engine_s_job_from_its_begin_to_its_end() {
    let words = "rw = \"randread\"\nbs = \"64 KiB\"\niodepth = 4\nio_size = \"16 MiB\"\n\
                 startdelay = \"1500 ms\"\ndeadline = \"2 s\"";
    for policy in ["fifo", "pridyn"] {
        let text = workload(words).replace("\"fifo\"", &format!("\"{policy}\""));
        let scenario = read(&text).expect("good");
        let mut world = World::new(scenario, None);
        world.keep_responses();
        let mut moved = Vec::new();
        let mut done = Vec::new();
        while done.is_empty() {
            world.step(&mut |_| {});
            let now = world.now();
            done.extend(world.take_responses());
            let (engine, vm) = world.served(0).expect("it is there");
            moved.push(
                engine
                    .transfers()
                    .transfer(now, vm)
                    .map(|status| status.transfer.moved),
            );
        }
        assert_eq!(moved[0], None, "not yet");
        assert_eq!(moved.last(), Some(&None), "over");
        let during: Vec<u64> = moved.iter().copied().flatten().collect();
        assert!(during.len() >= 2 && during.is_sorted(), "{moved:?}");
        assert!(during.iter().all(|&bytes| bytes < 16 << 20));
        assert_eq!((done.len(), done[0].bytes), (1, 16 << 20));
        assert_eq!(done[0].begun_s, 1.5);
        let report = world.report();
        let late = done[0].late_ns.expect("it has a deadline");
        assert_eq!(late, done[0].response_ns.saturating_sub(2_000_000_000));
        assert_eq!(deadlines(&report).missed, u64::from(late > 0));
    }
}

/// Jobs follow each other at one time: the engine ends one, and the next begins.
#[test]
fn each_request_with_a_deadline_is_a_job_of_its_vm() {
    let words = format!(
        "deadline = \"1 s\"\nbs = \"4 KiB\"\n{}",
        NEXT.replace("mode", "loop = true, mode")
    );
    let text = workload(&words).replace("\"fifo\"", "\"pridyn\"");
    let mut world = World::new(read(&text).expect("good"), None);
    let mut workloads = 0;
    while world.now() < Nanos::from_secs(5) {
        world.step(&mut |_| {});
        let (engine, vm) = world.served(0).expect("it is there");
        let status = engine
            .transfers()
            .transfer(world.now(), vm)
            .expect("one runs all the time");
        assert!(FIVE_BYTES.contains(&status.transfer.bytes), "{status:?}");
        assert_eq!(status.transfer.deadline, Nanos::SECOND);
        workloads += 1;
    }
    assert_eq!(workloads, 5);
}

const FIVE_BYTES: [u64; 4] = [8192, 32_768, 1 << 20, 4096];

#[test]
fn the_same_scenario_gives_the_same_bytes() {
    let vms = |n: u32| {
        let one = format!("bs = \"16 KiB\"\niodepth = 2\ndeadline = \"20 ms\"\n{NEXT}");
        workload(&one).replace(
            "disk = [{ size = \"10",
            &format!("count = {n}\ndisk = [{{ size = \"10"),
        )
    };
    let bytes = || serde_json::to_string(&replayed(&vms(3))).expect("plain data");
    assert_eq!(bytes(), bytes());
    let (report, _) = replayed(&vms(3));
    assert_eq!(found(&report).map(|it| it.done).sum::<u64>(), 15);
}

#[test]
fn the_warm_up_does_not_count() {
    let text = workload(NEXT).replace("duration", "warm_up = \"15 ms\"\nduration");
    let scenario = read(&text).expect("good");
    let mut world = World::new(scenario, None);
    world.keep_responses();
    world.run(&mut |_| {});
    let after = |it: &Response| it.begun_s * 1e9 + it.response_ns as f64 > 15e6;
    let counted = world.take_responses().iter().filter(|it| after(it)).count() as u64;
    assert!(
        (1..5).contains(&counted),
        "{counted}: some before, some after"
    );
    assert_eq!(responses(&world.report()).done, counted);
}

#[test]
fn what_is_wrong_with_a_replay_is_said_where_it_is() {
    for (words, parts) in [
        ("replay = { mode = \"timed\" }", &["`file` is missing"][..]),
        ("replay = { file = \"five\" }", &["`mode` is missing"]),
        (
            "replay = { file = \"none\", mode = \"timed\" }",
            &["workload[0].replay.file", "No such file"],
        ),
        (
            "replay = { file = \"bad\", mode = \"timed\" }",
            &["bad: line 2: type \"7\"", "skip_bad"],
        ),
        (
            "replay = { file = \"unknown\", mode = \"timed\" }",
            &["unknown trace format", "format ="],
        ),
        (
            "replay = { file = \"two-disks\", trace_disk = \"web.0\", mode = \"timed\" }",
            &["there is no disk of the trace \"web.0\"", "\"3\" or \"5\""],
        ),
        (
            "replay = { file = \"five\", mode = \"timed\", time_factor = 2 }",
            &["replay.time_factor", "mode = \"scaled\""],
        ),
        (
            "replay = { file = \"five\", mode = \"scaled\" }",
            &["`time_factor` is missing"],
        ),
        (
            "replay = { file = \"five\", mode = \"timed\", size_factor = 0 }",
            &["replay.size_factor", "out of range"],
        ),
        (
            "replay = { file = \"five\", mode = \"timed\", speed = 2 }",
            &["unknown key `speed`"],
        ),
        (
            "rw = \"read\"\nthinktime = \"1 ms\"\nreplay = { file = \"five\", mode = \"timed\" }",
            &["rw", "thinktime", "the trace says which requests come"],
        ),
        (
            "size = \"64 KiB\"\nreplay = { file = \"five\", mode = \"timed\" }",
            &["hold a request of 1 MiB"],
        ),
        (
            "deadline = \"1 s\"\nreplay = { file = \"five\", mode = \"timed\" }",
            &["deadline is combined with a timed replay", "next-when-done"],
        ),
    ] {
        let said = said(words);
        for part in parts {
            assert!(said.contains(part), "{words}: {part}:\n{said}");
        }
    }
    let skips = "replay = { file = \"bad\", skip_bad = true, mode = \"next-when-done\" }";
    assert_eq!(replayed(&workload(skips)).1.len(), 2);
    // Where no file may be opened it is said so.
    assert!(refused(&workload(NEXT)).contains("cannot be opened from here"));
}

#[test]
fn what_is_wrong_with_a_deadline_is_said_where_it_is() {
    let whole = "rw = \"read\"\nio_size = \"1 MiB\"\n";
    for (words, parts) in [
        (
            "rw = \"read\"\ndeadline = \"1 s\"",
            &["deadline.io_size is missing"][..],
        ),
        (
            "rw = \"trim\"\nio_size = \"1 MiB\"\ndeadline = \"1 s\"",
            &["deadline is combined with discards", "reads and writes"],
        ),
        (
            &format!("{whole}numjobs = 2\ndeadline = \"1 s\""),
            &["deadline.numjobs is 2"],
        ),
        (&format!("{whole}deadline = \"0 s\""), &["out of range"]),
        (
            &format!("{whole}deadline = {{ max_bandwidth = \"1 MB/s\" }}"),
            &["`tolerance` is missing"],
        ),
        (
            &format!("{whole}deadline = {{ tolerance = 1, max_bandwidth = \"10 IOPS\" }}"),
            &["deadline.max_bandwidth", "a bandwidth"],
        ),
        (
            &format!(
                "{whole}deadline = {{ tolerance = 1, max_bandwidth = \"1 MB/s\", \
                 bandwidth_loss = \"1 MB/s\" }}"
            ),
            &["deadline.max_bandwidth", "more than bandwidth_loss"],
        ),
        (
            &format!("{whole}deadline = \"1 s\"\n[[vm.workload]]\nrw = \"read\""),
            &["workload[0].deadline", "other workloads beside it"],
        ),
    ] {
        let said = said(words);
        for part in parts {
            assert!(said.contains(part), "{words}: {part}:\n{said}");
        }
    }
    let text = workload("rw = \"read\"")
        + &format!(
            "[[background]]\nname = \"b\"\ndisk = [{{ size = \"1 GiB\" }}]\n\
             [[background.workload]]\n{whole}deadline = \"1 s\"\n"
        );
    let said = read(&text).map(|_| ()).expect_err("refused");
    assert!(
        said.contains("a background process has no deadlines"),
        "{said}"
    );
    // A scenario that was made otherwise, too.
    let mut scenario = good(&workload(&format!("{whole}deadline = \"1 s\"")));
    let again = scenario.vms[0].workloads[0].clone();
    scenario.vms[0].workloads.push(again);
    let said = scenario.check().expect_err("refused").to_string();
    assert!(said.contains("other workloads beside it"), "{said}");
}

#[test]
fn who_has_no_tasks_is_told_nothing_of_them() {
    let report = run(&workload("rw = \"randread\""));
    assert_eq!(report.vms[0].responses, None);
    let json = serde_json::to_string(&report).expect("plain data");
    assert!(!json.contains("responses"));
}

/// Whole traces, which lie beside the repository where there are any: `docs/dev/testing.md`.
#[test]
fn whole_real_traces_are_replayed() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !beside.is_dir() {
        eprintln!("skipped: no traces beside the repository");
        return;
    }
    for (name, mode, requests) in [
        ("websearch.disksim", "mode = \"timed\"", 24_783),
        (
            "tpcc.disksim",
            "mode = \"scaled\", time_factor = 100",
            6_999,
        ),
        ("vm-cloudphysics.vscsi", "mode = \"next-when-done\"", 55_918),
    ] {
        let file = beside.join(name);
        let replay = format!(
            "replay = {{ file = {:?}, {mode} }}",
            file.display().to_string()
        );
        let text = workload(&replay).replace("hdd-7200-1tb", "nvme-1tb");
        let text = text
            .replace("depth = 1\n[[vm]]", "[[vm]]")
            .replace("\"60 s\"", "\"600 s\"");
        let text = format!("until_done = true\n{text}").replace("10 GiB", "100 GiB");
        let (report, all) = replayed(&text);
        assert_eq!(responses(&report).done, requests, "{name}");
        let mut indices: Vec<u64> = all.iter().map(|it| it.index).collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..requests), "{name}: each once");
    }
}
