//! Dumps of ranges, of several sessions, with missing files, for clients that leave.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use super::super::DUMPS_MAX;
use super::super::dump::{Dumped, Range, Sink, Unrecorded, dump};
use super::*;
use crate::config::RecordingConfig;

const ALL: u64 = u64::MAX;

/// Records requests `from..to` of both VMs in a session of its own.
fn session(dir: &Path, started_unix_ns: u64, numbers: std::ops::Range<u64>) {
    let mut directory = Directory::open(dir, 1 << 30, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(1 << 12);
    let (mut stream, _) = stream(queues, started_unix_ns);
    for number in numbers {
        assert!(producer.write(&request((number % 2) as u32, number)));
        if number % 4000 == 3999 {
            assert_eq!(stream.work(&mut directory, 1, true), Worked::GoesOn);
        }
    }
    drop(producer);
    assert_eq!(stream.work(&mut directory, 1, true), Worked::Ended);
}

/// Client that takes pieces of a dump until it leaves.
struct Pieces {
    taken: Vec<Vec<u8>>,
    /// Number of times for which it is asked whether it is still there, and is.
    stays_for: Cell<usize>,
}

impl Sink for Pieces {
    fn take(&mut self, bytes: &mut Vec<u8>) -> bool {
        self.taken.push(std::mem::take(bytes));
        true
    }

    fn is_wanted(&self) -> bool {
        let stays = self.stays_for.get().checked_sub(1);
        self.stays_for.set(stays.unwrap_or(0));
        stays.is_some()
    }

    fn fail(&mut self) {
        panic!("the files can be read");
    }
}

/// Returns the result of a dump and its pieces, for a client that stays so long.
fn dumped_pieces(dir: &Path, range: &Range, stays_for: usize) -> (Dumped, Vec<Vec<u8>>) {
    let mut client = Pieces {
        taken: Vec::new(),
        stays_for: Cell::new(stays_for),
    };
    let dumped = dump(dir, "ssd", range, &mut client).expect("readable");
    (dumped, client.taken)
}

/// Returns a dump; `None` if there is nothing.
fn dumped(dir: &Path, range: &Range) -> Option<Recording> {
    let (dumped, pieces) = dumped_pieces(dir, range, usize::MAX);
    if dumped != Dumped::Sent {
        assert!(pieces.is_empty(), "{dumped:?}");
        return None;
    }
    let bytes = pieces.concat();
    Some(Recording::read(bytes.as_slice(), usize::MAX).expect("a recording"))
}

fn range(vm: Option<&str>, from: u64, to: u64) -> Range {
    Range {
        vm: vm.map(str::to_owned),
        from,
        to,
        unrecorded: Unrecorded::default(),
    }
}

#[test]
fn a_dump_tells_which_vms_have_a_schedule_and_limits_of_disks() {
    let dir = tempfile::tempdir().expect("a directory");
    session(dir.path(), 1_000_000_000, 0..10);
    let names = |names: [&str; 2]| names.map(str::to_owned).into_iter().collect();
    let with_facts = Range {
        unrecorded: Unrecorded {
            scheduled: names(["backup", "another"]),
            disk_limits: names(["oltp", "another"]),
        },
        ..range(None, 0, ALL)
    };
    let all = dumped(dir.path(), &with_facts).expect("a recording");
    let vms = all.header.vms.iter();
    let facts = |vm: &VmFacts| (vm.name.clone(), vm.scheduled, vm.disk_limits);
    let [oltp, backup] = ["oltp", "backup"].map(str::to_owned);
    // The file knows the limits of `backup`, which has none any more.
    let expected = [(oltp, false, true), (backup, true, true)];
    assert_eq!(vms.map(facts).collect::<Vec<_>>(), expected);
}

#[test]
fn a_dump_has_the_requests_of_its_range_and_vm() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(dumped(dir.path(), &range(None, 0, ALL)), None);
    // The times of requests are microseconds from the beginning on.
    let began = 1_000_000_000;
    session(dir.path(), began, 0..100);
    let all = dumped(dir.path(), &range(None, 0, ALL)).expect("a recording");
    assert_eq!(offsets(&all), (0..100).collect::<Vec<_>>());
    assert!(all.is_whole() && all.summary.is_complete);
    assert_eq!(all.header.started_unix_ns, began);
    let part = range(Some("backup"), began + 10_000, began + 20_000);
    let part = dumped(dir.path(), &part).expect("a recording");
    assert_eq!(offsets(&part), [11, 13, 15, 17, 19]);
    let names: Vec<&str> = part.header.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(
        (names, part.header.vms[0].disks[0].number),
        (vec!["backup"], 0)
    );
    // Time 0 is at the beginning of the range.
    assert_eq!(part.header.started_unix_ns, began + 10_000);
    assert_eq!(part.requests[0].arrived, Nanos(1100));
    assert_eq!(part.requests[0].done, Nanos(1400));
    session(dir.path(), 100_000_000_000, 100..200);
    let part = range(None, began, began + 1_000_000);
    let part = dumped(dir.path(), &part).expect("a recording");
    assert!(part.is_whole(), "the file of a later recording is not read");
    assert_eq!(part.requests.len(), 100);
}

#[test]
fn a_dump_of_two_recordings_says_that_there_was_none_between_them() {
    let dir = tempfile::tempdir().expect("a directory");
    session(dir.path(), 1_000_000_000, 0..10);
    session(dir.path(), 3_000_000_000, 10..20);
    let all = dumped(dir.path(), &range(None, 0, ALL)).expect("a recording");
    assert_eq!(offsets(&all), (0..20).collect::<Vec<_>>());
    let [gap] = all.gaps[..] else {
        panic!("one gap: {:?}", all.gaps)
    };
    assert_eq!((gap.cause, gap.requests), (GapCause::Off, None));
    assert_eq!(gap.until, Some(Nanos(2_000_000_000)));
    // Requests of both keep their VM by its name, and the times on the wall.
    for request in &all.requests {
        let number = request.offset / 512;
        let vm = all.inventory.vm_of_disk(request.disk).expect("it has a VM");
        assert_eq!(vm.name, ["oltp", "backup"][number as usize % 2]);
        let session = if number < 10 { 0 } else { 2_000_000_000 };
        assert_eq!(request.done.0, session + number * 1000 + 400);
    }
}

#[test]
fn a_file_that_is_missing_in_a_dump_is_a_gap() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut directory = Directory::open(dir.path(), 1 << 20, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(1 << 12);
    let (mut stream, _) = stream(queues, 1);
    for batch in 0..3 {
        if batch == 1 {
            changes_of_lost_file(&mut producer);
        }
        let disk = if batch == 2 { 2 } else { 0 };
        for number in 0..10 {
            producer.write(&request(disk, batch * 10 + number));
        }
        // With so many recordings files are tiny: each batch ends one.
        stream.work(&mut directory, 1000, true);
    }
    drop(producer);
    stream.work(&mut directory, 1000, true);
    let files = files_of(dir.path(), "ssd").expect("readable");
    assert!(files.len() >= 3, "{} files", files.len());
    std::fs::remove_file(&files[1].path).expect("there");
    let all = dumped(dir.path(), &range(None, 0, ALL)).expect("a recording");
    assert_eq!(all.missing(GapCause::Damaged), 10);
    // Those of the disk that was added in the missing file are there, with its VM.
    let expected: Vec<u64> = (0..10).chain(20..30).collect();
    assert_eq!(offsets(&all), expected);
    let late = all.requests.last().expect("there are some").disk;
    let vm = all.inventory.vm_of_disk(late).expect("it has a VM");
    assert_eq!((vm.name.as_str(), vm.disks.len()), ("oltp", 2));
    assert_eq!(vm.objective.weight, 7);
    assert_eq!(all.inventory.device().policy.name, "mclock");
    let names: Vec<&str> = all.inventory.vms().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["oltp", "archive"]);
    // By its new name as by any other.
    let renamed = dumped(dir.path(), &range(Some("archive"), 0, ALL)).expect("a recording");
    assert_eq!(renamed.inventory.vms().count(), 1);
}

/// Adds a disk to VM 0, changes its objective and the policy, and renames VM 1.
fn changes_of_lost_file(producer: &mut Producer) {
    let disk = DiskFacts {
        number: 2,
        name: "late".to_owned(),
        size_bytes: 1 << 30,
        at: 0,
    };
    let mut objective = VmFacts::default().objective;
    objective.weight = 7;
    let mut policy = Header::default().device.policy;
    policy.name = "mclock".to_owned();
    let name = "archive".to_owned();
    for change in [
        Change::DiskAdded { vm: 0, disk },
        Change::Objective { vm: 0, objective },
        Change::VmRenamed { vm: 1, name },
        Change::Policy { policy },
    ] {
        producer.change(Nanos(START.0 + 11_000), change);
    }
}

#[test]
fn a_client_gets_the_beginning_at_once_and_may_leave_before_the_rest_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let began = 1_000_000_000;
    session(dir.path(), began, 0..20_000);
    // No request is of the range, so that there is nothing but the beginning before the end.
    let nothing = range(Some("oltp"), began + 1, began + 2);
    let (dumped, pieces) = dumped_pieces(dir.path(), &nothing, usize::MAX);
    assert_eq!(
        (dumped, pieces.len()),
        (Dumped::Sent, 2),
        "beginning and end"
    );
    let (dumped, pieces) = dumped_pieces(dir.path(), &nothing, 2);
    assert_eq!((dumped, pieces.len()), (Dumped::Sent, 1));
    let bytes = pieces.concat();
    let beginning = Recording::read(bytes.as_slice(), usize::MAX).expect("a recording");
    assert_eq!(beginning.header.vms[0].name, "oltp");
    assert!(!beginning.summary.is_complete);
}

#[test]
fn a_vm_that_no_file_knows_is_no_empty_dump() {
    let dir = tempfile::tempdir().expect("a directory");
    let dump_of = |vm| dumped_pieces(dir.path(), &range(Some(vm), 0, ALL), usize::MAX).0;
    assert_eq!(dump_of("oltp"), Dumped::NoFile);
    let mut directory = Directory::open(dir.path(), 1 << 20, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(64);
    let (mut stream, _) = stream(queues, 1);
    producer.write(&request(0, 0));
    let mut vm = header(1).vms.remove(0);
    (vm.number, vm.name, vm.disks[0].number) = (2, "late".to_owned(), 2);
    producer.change(Nanos(START.0 + 1000), Change::VmAdded { vm });
    let name = "oltp2".to_owned();
    producer.change(Nanos(START.0 + 1000), Change::VmRenamed { vm: 0, name });
    for disk in [2, 0] {
        producer.write(&request(disk, 1));
    }
    drop(producer);
    stream.work(&mut directory, 1, true);
    assert_eq!(dump_of("nobody"), Dumped::UnknownVm);
    for (name, requests) in [("oltp", 2), ("late", 1), ("oltp2", 1)] {
        let dump = dumped(dir.path(), &range(Some(name), 0, ALL)).expect("a recording");
        assert_eq!(dump.requests.len(), requests, "{name}");
    }
}

/// Client that takes a dump when it is told to, and tells the priority of the dump's thread.
struct SlowClient {
    go_on: std::sync::mpsc::Receiver<()>,
    nice: tokio::sync::mpsc::UnboundedSender<i32>,
}

impl Sink for SlowClient {
    fn take(&mut self, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        let _ = self.nice.send(nice());
        let _ = self.go_on.recv();
        true
    }

    fn is_wanted(&self) -> bool {
        true
    }

    fn fail(&mut self) {
        panic!("the files can be read");
    }
}

/// Returns the nice value of the calling thread.
fn nice() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
    let (_, fields) = stat.rsplit_once(')').expect("the name of the thread");
    // Field 19 of the line, of which the state is field 3.
    let nice = fields
        .split_whitespace()
        .nth(16)
        .expect("it has a priority");
    nice.parse().expect("a number")
}

#[tokio::test]
async fn dumps_are_read_by_few_threads_of_low_priority() {
    let dir = tempfile::tempdir().expect("a directory");
    session(dir.path(), 1, 0..10);
    let config = RecordingConfig {
        directory: dir.path().to_owned(),
        max_bytes: 1 << 20,
        devices: Vec::new(),
    };
    let recordings = Recordings::new(Some(config), ["ssd".to_owned()].into_iter());
    let recordings = Arc::new(recordings);
    let (nice_of_dump, mut nices) = tokio::sync::mpsc::unbounded_channel();
    let begin = || {
        let (go_on, wait) = std::sync::mpsc::channel();
        let client = SlowClient {
            go_on: wait,
            nice: nice_of_dump.clone(),
        };
        let begun = recordings.begin_dump(0, range(None, 0, ALL), client);
        begun.map(|result| (go_on, result))
    };
    let running = [(); DUMPS_MAX].map(|()| begin().expect("room"));
    for _ in 0..DUMPS_MAX {
        let lowered = nices.recv().await.expect("a dump");
        assert!(lowered >= 10, "{lowered}");
    }
    assert!(matches!(begin(), Err(RecordingError::Busy)));
    for (go_on, result) in running {
        drop(go_on);
        let dumped = result.await.expect("the thread has ended");
        assert_eq!(dumped.expect("readable"), Dumped::Sent);
    }
    begin().expect("room again");
}

/// Records ten requests under a wall clock, and ten after it has jumped.
fn session_with_jump(dir: &Path, began: u64, jumped: u64) {
    let mut directory = Directory::open(dir, 1 << 30, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(64);
    let (stream, _) = stream(queues, began);
    let at_loop_start = Arc::new(AtomicU64::new(began - START.0));
    let wall = at_loop_start.clone();
    let mut stream = stream.with_wall(Box::new(move || wall.load(Ordering::Relaxed)));
    for wall in [began, jumped] {
        at_loop_start.store(wall - START.0, Ordering::Relaxed);
        // The jump is noticed before the requests are there.
        assert_eq!(stream.work(&mut directory, 1, true), Worked::GoesOn);
        let first = if wall == began { 0 } else { 10 };
        for number in first..first + 10 {
            producer.write(&request(0, number));
        }
        assert_eq!(stream.work(&mut directory, 1, true), Worked::GoesOn);
    }
    drop(producer);
    assert_eq!(stream.work(&mut directory, 1, true), Worked::Ended);
}

#[test]
fn a_recording_follows_the_wall_clock_when_it_jumps() {
    const SECOND: u64 = 1_000_000_000;
    let began = 10_000 * SECOND;
    for jumped in [began + 3600 * SECOND, began - 3600 * SECOND] {
        let dir = tempfile::tempdir().expect("a directory");
        session_with_jump(dir.path(), began, jumped);
        let files = read(dir.path());
        let started: Vec<u64> = files.iter().map(|it| it.header.started_unix_ns).collect();
        assert_eq!(started, [began, jumped]);
        assert_eq!(files[1].header.first_request, 10, "the numbers go on");
        // Each is found by its own time.
        for (wall, expected) in [(began, 0..10), (jumped, 10..20)] {
            let part = range(None, wall, wall + 60 * SECOND);
            let part = dumped(dir.path(), &part).expect("a recording");
            assert_eq!(offsets(&part), expected.collect::<Vec<_>>(), "from {wall}");
        }
        let all = dumped(dir.path(), &range(None, 0, ALL)).expect("a recording");
        // Where the clock was set back, times before and after it overlap.
        let mut found = offsets(&all);
        found.sort_unstable();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
        for request in &all.requests {
            let held = request.admitted.since(request.arrived);
            let served = request.done.since(request.sent);
            assert_eq!((held, served), (Nanos(100), Nanos(100)));
        }
        let [gap] = all.gaps[..] else {
            panic!("one gap: {:?}", all.gaps)
        };
        assert!(
            gap.cause == GapCause::Off && gap.until >= Some(gap.from),
            "{gap:?}"
        );
        // What does not jump is one session.
        let same = tempfile::tempdir().expect("a directory");
        session_with_jump(same.path(), began, began + SECOND / 10);
        assert_eq!(read(same.path()).len(), 1);
    }
}
