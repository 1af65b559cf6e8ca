//! Tests of the history under a whole daemon, and of its files.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidegate_core::request::Op;
use tidegate_history::block::{Block, BlockKind};
use tidegate_history::column::{Column, Values};
use tidegate_history::query::{Query, Request, Step};
use tidegate_history::recorder::{self, Groups, Recorder};
use tidegate_history::sample::{Key, Sample};

use super::files::Files;
use super::segments::Segments;
use super::{Batch, History, Settings, wall_ms};
use crate::common::{Server, single, wait};
use crate::config::{Config, DeviceKind, HistoryConfig};
use crate::daemon::history_of;
use crate::storage_identity::IdentitySource;

const MIB: u64 = 1 << 20;

/// Waits for a condition, for a time that only a defect exceeds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{what}: not in 30 s"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn request(key: Key, step: Step) -> Request {
    Request {
        key,
        from_ms: 0,
        to_ms: u64::MAX,
        step,
    }
}

/// Sums of all points of a series.
fn sums(history: &History, key: &Key, step: Step) -> Values {
    let answer = history.query(&request(key.clone(), step));
    let mut sum = Values::default();
    answer
        .intervals
        .iter()
        .for_each(|interval| sum.merge(&interval.values));
    sum
}

const STEPS: [Step; 2] = [Step::Fine, Step::Every(10_000)];

fn with_files(dir: &Path) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, 4 * MIB);
    config.history = HistoryConfig {
        directory: Some(dir.join("history")),
        ..HistoryConfig::beside(None)
    };
    config
}

/// Requests of all kinds, some of which fail, compared with a copy. Returns the number of requests.
fn use_disk(server: &Server) -> u64 {
    let mut client = server.connect("disk");
    let mut copy = vec![0; 256 << 10];
    for n in 0..200usize {
        let (offset, len) = (n * 997 % (192 << 10), 512 + n * 37 % 8192);
        let data = vec![n as u8 + 1; len];
        client.write(offset as u64, &data);
        copy[offset..offset + len].copy_from_slice(&data);
        let (at, len) = (n * 1009 % (128 << 10), 4096 + n % 100);
        assert_eq!(client.read(at as u64, len as u32), copy[at..at + len]);
        if n % 50 == 0 {
            client.flush().expect("a disk in memory has no errors");
        }
    }
    404
}

#[test]
fn points_of_a_vm_add_up_to_its_counters_and_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(with_files(dir.path()));
    let history = history_of(&server.handle).expect("it is on");
    let requests = use_disk(&server);
    let stats = *wait(server.handle.vm_snapshot("disk"))
        .expect("it is served")
        .stats;
    assert_eq!(stats.total_ops(), requests);
    let key = recorder::vm("disk");
    let check = |history: &History, after: &str| {
        for step in STEPS {
            let sum = sums(history, &key, step);
            let [read, write, flush] = [Op::Read, Op::Write, Op::Flush].map(|op| *stats.op(op));
            let expected = [read.ops, read.bytes, write.ops, write.bytes, flush.ops, 0];
            let columns = [
                Column::Reads,
                Column::ReadBytes,
                Column::Writes,
                Column::WriteBytes,
                Column::Others,
                Column::OtherBytes,
            ];
            assert_eq!(
                columns.map(|column| sum[column]),
                expected,
                "{after}, {step:?}"
            );
            let times = Column::CAUSES.map(|column| sum[column]);
            // No request waited for admission.
            let [0, stages @ ..] = stats.account.to_nanos_array() else {
                panic!("{:?}", stats.account);
            };
            let expected = stages.map(|ns| ns / 1000);
            assert_eq!(times, expected, "{after}, {step:?}");
            assert!(sum[Column::P50] > 0 && sum[Column::Longest] >= sum[Column::P99]);
            let device = sums(history, &recorder::device("device"), step);
            assert_eq!(device[Column::Reads], read.ops, "{after}, {step:?}");
            assert!(device[Column::Ios] > 0);
        }
    };
    // The sampler comes by once a second, while the loop has nothing else to do.
    until("the last requests are sampled", || {
        let sum = sums(&history, &key, Step::Fine);
        sum[Column::Reads] + sum[Column::Writes] + sum[Column::Others] == requests
    });
    check(&history, "running");
    server.stop().expect("in order");
    check(&history, "stopped");
    drop(history);
    let server = Server::start(with_files(dir.path()));
    let history = history_of(&server.handle).expect("it is on");
    until("the files are read", || {
        !sums(&history, &key, Step::Fine).is_zero()
    });
    check(&history, "restarted");
    let recorded = history.query(&request(key.clone(), Step::Fine)).running;
    assert!(recorded.len() == 2, "two runs: {recorded:?}");
    let files = history.status().files.expect("there are files");
    assert_eq!((files.failing, files.dropped), (None, 0));
}

#[test]
fn the_last_moments_of_a_vm_are_sampled_when_it_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 4 * MIB));
    let history = history_of(&server.handle).expect("it is on");
    let requests = use_disk(&server);
    wait(server.handle.remove_vm("disk", true)).expect("removed");
    server.stop().expect("in order");
    for step in STEPS {
        let sum = sums(&history, &recorder::vm("disk"), step);
        let counted = sum[Column::Reads] + sum[Column::Writes] + sum[Column::Others];
        assert_eq!(counted, requests, "{step:?}");
    }
}

#[test]
fn a_history_that_is_turned_off_is_not_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 4 * MIB);
    config.history = HistoryConfig::off();
    let server = Server::start(config);
    assert!(history_of(&server.handle).is_none());
    use_disk(&server);
    server.stop().expect("in order");
}

#[test]
fn a_directory_on_a_served_device_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = IdentitySource::Files(vec![dir.path().to_owned()]).identity();
    if !own.is_known() {
        return eprintln!("skipped: the temporary directory is on no single block device");
    }
    let mut config = with_files(dir.path());
    config.devices[0].kind = DeviceKind::File;
    config.vms[0].disks[0].path = Some(dir.path().join("disk.raw"));
    let server = Server::start(config);
    let history = history_of(&server.handle).expect("it is on");
    until("the files are opened", || {
        history
            .status()
            .files
            .is_some_and(|files| files.on_served == ["device"])
    });
}

/// Records `windows` windows of 50 VMs in synthetic time. Returns the groups.
fn groups(windows: u64) -> Vec<Groups> {
    let begin = 1_800_000_000_000;
    let mut recorder = Recorder::new(1, begin, false);
    let of_window = |window| {
        let now = begin + 10_000 * window;
        for vm in 0..50 {
            let mut sample = Sample {
                end_ms: now,
                span_ms: 1000,
                ..Sample::default()
            };
            sample.values[Column::Reads] = window + vm;
            recorder.push(recorder::vm(&format!("vm-{vm}")), sample);
        }
        recorder.close(now, now)
    };
    (1..=windows).map(of_window).collect()
}

fn settings(dir: &Path) -> Settings {
    Settings {
        restore_within: Duration::from_millis(50),
        retry_after: Duration::ZERO,
        ..Settings::new(Some(dir.to_owned()), 256 * MIB)
    }
}

/// Returns the reads of one VM in the fine blocks of a directory, after what is torn was cut off.
fn reads_in(dir: &Path) -> u64 {
    let mut segments = Segments::new(dir, "fine", MIB, u64::MAX);
    let mut query = Query::new(request(recorder::vm("vm-7"), Step::Fine));
    let take = |_: &_, block: Option<Vec<u8>>| {
        let bytes = block.expect("all are wanted");
        let block = Block::parse(&bytes).expect("checked");
        query.read(&block).expect("sound");
    };
    segments.load(|_| true, take).expect("readable");
    let points = query.finish().intervals;
    points.iter().map(|point| point.values[Column::Reads]).sum()
}

#[test]
fn what_is_on_disk_when_a_daemon_is_killed_is_read_up_to_the_torn_group() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut segments = Segments::new(dir.path(), "fine", 16 * MIB, u64::MAX);
    let (mut ends, mut reads) = (vec![0], vec![0]);
    for group in groups(12) {
        for (kind, blocks) in group {
            if kind == BlockKind::Fine {
                segments.append(&blocks).expect("there is room");
                ends.push(segments.bytes());
                reads.push(reads[reads.len() - 1] + ends.len() as u64 - 1 + 7);
            }
        }
    }
    let file = dir.path().join("fine-0000000001.tgh");
    let whole = fs::read(&file).expect("written");
    assert_eq!(whole.len() as u64, ends[12]);
    for cut in (0..=whole.len()).step_by(97).chain([whole.len()]) {
        let copy = tempfile::tempdir().expect("a directory");
        let torn = copy.path().join("fine-0000000001.tgh");
        fs::write(&torn, &whole[..cut]).expect("written");
        let groups = ends.iter().filter(|end| **end <= cut as u64).count() - 1;
        assert_eq!(reads_in(copy.path()), reads[groups], "cut at {cut}");
        let left = fs::metadata(&torn).expect("there").len();
        assert_eq!(left, ends[groups], "cut at {cut}");
    }
}

#[test]
fn damage_costs_its_own_group_and_deletes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut segments = Segments::new(dir.path(), "fine", 16 * MIB, u64::MAX);
    let mut ends = vec![0];
    for (kind, blocks) in groups(12).into_iter().flatten() {
        if kind == BlockKind::Fine {
            segments.append(&blocks).expect("there is room");
            ends.push(segments.bytes() as usize);
        }
    }
    let file = dir.path().join("fine-0000000001.tgh");
    let whole = fs::read(&file).expect("written");
    let reads_of = |window: u64| window + 7;
    let all: u64 = (1..=12).map(reads_of).sum();
    // First byte, version, length of the body, a byte of the body.
    for at in [0, 4, 8, 11, 100] {
        for window in 1..=12 {
            let mut damaged = whole.clone();
            damaged[ends[window - 1] + at] ^= 1;
            fs::write(&file, &damaged).expect("written");
            let left = all - reads_of(window as u64);
            assert_eq!(reads_in(dir.path()), left, "byte {at} of window {window}");
            let is = fs::read(&file).expect("there");
            // A last group that seems longer than the file is like one that was not written whole.
            let seems_torn = window == 12 && is == damaged[..ends[11]];
            assert!(is == damaged || seems_torn, "byte {at} of window {window}");
        }
    }
    // What a later build wrote stays as it is, with what this one wrote around it.
    let mut later = whole.clone();
    for window in 3..6 {
        later[ends[window] + 4] += 1;
    }
    fs::write(&file, &later).expect("written");
    assert_eq!(
        reads_in(dir.path()),
        all - (4..=6).map(reads_of).sum::<u64>()
    );
    later[4] += 1;
    fs::write(&file, &later[..ends[1]]).expect("written");
    assert_eq!(reads_in(dir.path()), 0);
    assert_eq!(fs::metadata(&file).expect("there").len(), ends[1] as u64);
    // A damage and a torn end in one file: both are passed over.
    let mut both = whole[..ends[11] + 100].to_vec();
    both[ends[2] + 100] ^= 1;
    fs::write(&file, &both).expect("written");
    assert_eq!(reads_in(dir.path()), all - reads_of(3) - reads_of(12));
}

#[test]
fn the_oldest_segments_make_room_for_new_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let max = 200 << 10;
    let mut segments = Segments::new(dir.path(), "fine", max, u64::MAX);
    let on_disk = || {
        let sizes = fs::read_dir(dir.path()).expect("there");
        let sizes = sizes.map(|entry| entry.expect("there").metadata().expect("there").len());
        sizes.sum::<u64>()
    };
    let mut oldest = None;
    for group in groups(400) {
        for (_, blocks) in group
            .into_iter()
            .filter(|(kind, _)| *kind == BlockKind::Fine)
        {
            segments.append(&blocks).expect("there is room");
            assert!(on_disk() <= max);
            assert_eq!(segments.bytes(), on_disk());
            oldest = segments.oldest_ms();
        }
    }
    assert!(oldest > Some(1_800_000_000_000), "the oldest are gone");
    // Those that are left are read after a restart, and go on to be bounded.
    let mut again = Segments::new(dir.path(), "fine", max, u64::MAX);
    again.load(|_| false, |_, _| {}).expect("readable");
    assert_eq!((again.bytes(), again.oldest_ms()), (on_disk(), oldest));
}

#[test]
fn another_daemon_does_not_write_to_the_same_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = settings(&dir.path().join("history"));
    let first = History::start(&settings, |_| Vec::new()).expect("threads");
    until("the first has the files", || {
        first.status().files.is_some_and(|files| files.bytes > 0)
    });
    let second = History::start(&settings, |_| Vec::new()).expect("threads");
    until("the second is refused", || {
        let files = second.status().files.expect("there are files");
        files
            .failing
            .is_some_and(|why| why.contains("another daemon"))
    });
    assert_eq!(first.status().files.expect("there are files").failing, None);
    first.stop();
    second.stop();
}

#[test]
fn a_disk_that_hangs_holds_up_neither_samples_nor_queries() {
    let dir = tempfile::tempdir().expect("a directory");
    let (release, hangs) = mpsc::channel::<()>();
    let hangs = std::sync::Mutex::new(hangs);
    let history = History::start(&settings(&dir.path().join("history")), move |_| {
        // Ends when the other end is dropped.
        let _ = hangs.lock().expect("no panic").recv();
        Vec::new()
    });
    let history = history.expect("threads");
    let recording = history.recording();
    let now = crate::ring::clock().0 / 1_000_000;
    for n in 0..100 {
        let mut sample = Sample {
            end_ms: now + n,
            span_ms: 1,
            ..Sample::default()
        };
        sample.values[Column::Reads] = 1;
        let batch: Batch = vec![(recorder::vm("a"), sample)];
        recording.samples.send(batch).expect("taken");
    }
    until("all samples are taken", || {
        sums(&history, &recorder::vm("a"), Step::Fine)[Column::Reads] == 100
    });
    // More groups than wait for the disk are dropped, and counted.
    let files = history.files.clone().expect("there are files");
    groups(80).into_iter().for_each(|group| files.write(group));
    let dropped = history.status().files.expect("there are files").dropped;
    assert!(dropped > 0);
    drop(release);
    until("the rest is written", || {
        history
            .status()
            .files
            .is_some_and(|files| files.bytes > 10_000)
    });
    history.stop();
}

/// Calls `test` with a directory on a file system of 1 MiB; skips it without the right to mount.
fn on_small_file_system(test: impl FnOnce(&Path) + std::panic::UnwindSafe) {
    let dir = tempfile::tempdir().expect("a directory");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: may not mount a file system");
    }
    let path = dir.path().to_owned();
    let outcome = std::panic::catch_unwind(|| test(&path));
    let unmount = std::process::Command::new("umount")
        .arg("-l")
        .arg(dir.path())
        .status();
    assert!(unmount.is_ok_and(|status| status.success()));
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_full_disk_stops_the_files_until_there_is_room() {
    on_small_file_system(|path| {
        let directory = path.join("history");
        let files = Files::new(&directory, &settings(&directory));
        let (files, thread) = files.start(Box::new(|_| Vec::new())).expect("a thread");
        let write = |groups: Vec<Groups>| {
            for group in groups {
                files.write(group);
                // The queue is bounded, and nothing else waits.
                until("it is written or dropped", || files.is_idle());
            }
        };
        write(groups(5));
        let before = files.state();
        assert_eq!((before.failing, before.dropped), (None, 0));
        fs::write(path.join("other"), vec![1; 2 << 20]).expect_err("1 MiB is full");
        write(groups(100));
        let full = files.state();
        assert!(full.failing.is_some() && full.dropped > 0, "{full:?}");
        fs::remove_file(path.join("other")).expect("there");
        write(groups(1));
        assert_eq!(files.state().failing, None);
        assert!(files.state().bytes > full.bytes);
        files.end();
        thread.join().expect("no panic");
        // A group that did not fit leaves nothing of it.
        assert!(reads_in(&directory) > 0);
    });
}

#[test]
fn a_daemon_whose_history_has_no_room_serves_all_the_same() {
    on_small_file_system(|path| {
        fs::write(path.join("other"), vec![1; 2 << 20]).expect_err("1 MiB is full");
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = with_files(dir.path());
        config.history.directory = Some(path.join("history"));
        let server = Server::start(config);
        let history = history_of(&server.handle).expect("it is on");
        let requests = use_disk(&server);
        server.stop().expect("in order");
        let sum = sums(&history, &recorder::vm("disk"), Step::Every(10_000));
        assert_eq!(
            sum[Column::Reads] + sum[Column::Writes] + sum[Column::Others],
            requests
        );
        let files = history.status().files.expect("there are files");
        assert!(files.failing.is_some() && files.dropped > 0, "{files:?}");
    });
}

#[test]
fn the_run_of_a_history_begins_now() {
    let before = wall_ms();
    let history = History::start(&Settings::new(None, MIB), |_| Vec::new()).expect("threads");
    let answer = history.query(&request(recorder::vm("a"), Step::Fine));
    assert!(answer.running.len() == 1 && answer.running[0].from_ms >= before);
    assert_eq!(history.status().files, None);
    history.stop();
}
