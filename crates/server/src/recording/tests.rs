//! Recorder against full and slow disks, rings that overflow, and ranges of dumps.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_recording::{Change, DiskFacts, GapCause, Header, Recording, Request, VmFacts};

use super::directory::{Directory, create_file, files_of};
use super::dump::{Dumped, Range, Sink, dump};
use super::producer::{Producer, Queues};
use super::recorder::Recorder;
use super::stream::{Progress, Stream, Worked};
use super::{DUMPS_MAX, RecordingError, Recordings};
use crate::config::RecordingConfig;

const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const ALL: u64 = u64::MAX;

/// Waits until something is so.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + STEP_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain");
        std::thread::yield_now();
    }
}

fn header(started_unix_ns: u64) -> Header {
    let vm = |number: u32, name: &str| VmFacts {
        number,
        name: name.to_owned(),
        disks: vec![DiskFacts {
            number,
            name: name.to_owned(),
            size_bytes: 1 << 30,
            at: 0,
        }],
        ..VmFacts::default()
    };
    Header {
        started_unix_ns,
        vms: vec![vm(0, "oltp"), vm(1, "backup")],
        ..Header::default()
    }
}

/// Read number `number` of a disk, a microsecond each.
fn request(disk: u32, number: u64) -> Request {
    let at = |part: u64| Nanos(1_000_000 + number * 1000 + part);
    Request {
        disk,
        op: Op::Read,
        fua: false,
        keep_allocated: false,
        outcome: Ok(()),
        offset: number * 512,
        len: 512,
        arrived: at(100),
        admitted: at(200),
        sent: at(300),
        done: at(400),
    }
}

/// Loop time at which the recordings of these tests begin.
const START: Nanos = Nanos(1_000_000);

fn stream(queues: Queues, started_unix_ns: u64) -> (Stream, Arc<Progress>) {
    let progress = Arc::new(Progress::default());
    let header = header(started_unix_ns);
    let device = "ssd".to_owned();
    let stream = Stream::new(device, queues, START, &header, progress.clone());
    (stream, progress)
}

fn read(directory: &Path) -> Vec<Recording> {
    let files = files_of(directory, "ssd").expect("readable");
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("readable");
        Recording::read(bytes.as_slice(), usize::MAX).expect("a recording")
    };
    files.iter().map(|file| read(&file.path)).collect()
}

fn offsets(recording: &Recording) -> Vec<u64> {
    let numbers = recording.requests.iter().map(|it| it.offset / 512);
    numbers.collect()
}

#[test]
fn requests_that_do_not_fit_the_ring_are_counted_where_they_are_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut directory = Directory::open(dir.path(), 1 << 30, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(8);
    let (mut stream, progress) = stream(queues, 1);
    for number in 0..20 {
        producer.write(&request(0, number));
    }
    assert_eq!(stream.work(&mut directory, 1, true), Worked::GoesOn);
    for number in 20..25 {
        producer.write(&request(1, number));
    }
    stream.work(&mut directory, 1, true);
    for number in 25..40 {
        producer.write(&request(0, number));
    }
    let counts = producer.counts();
    assert_eq!((counts.written, counts.dropped), (21, 19));
    drop(producer);
    assert_eq!(stream.work(&mut directory, 1, true), Worked::Ended);
    let recording = &read(dir.path())[0];
    let expected: Vec<u64> = (0..8).chain(20..33).collect();
    assert_eq!(offsets(recording), expected);
    let gaps: Vec<_> = (recording.gaps.iter())
        .map(|gap| (gap.cause, gap.requests))
        .collect();
    assert_eq!(
        gaps,
        [(GapCause::Dropped, Some(12)), (GapCause::Dropped, Some(7))]
    );
    assert!(recording.summary.is_complete);
    assert_eq!(progress.recorded.load(Ordering::Relaxed), 21);
    assert_eq!(progress.dropped.load(Ordering::Relaxed), 19);
}

#[test]
fn changes_keep_their_place_and_requests_before_the_beginning_are_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut directory = Directory::open(dir.path(), 1 << 30, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(64);
    let (mut stream, _) = stream(queues, 1);
    let mut early = request(0, 0);
    early.arrived = Nanos(START.0 - 1);
    producer.write(&early);
    producer.write(&request(0, 1));
    let size = |size_bytes| Change::DiskResized {
        disk: 0,
        size_bytes,
    };
    producer.change(Nanos(START.0 + 1500), size(1024));
    producer.change(Nanos(START.0 + 1600), size(2048));
    producer.write(&request(0, 2));
    producer.change(Nanos(START.0 + 2500), size(4096));
    drop(producer);
    stream.work(&mut directory, 1, true);
    let recording = &read(dir.path())[0];
    assert_eq!(offsets(recording), [1, 2]);
    let times: Vec<u64> = recording.changes.iter().map(|(at, _)| at.0).collect();
    assert_eq!(times, [1500, 1600, 2500]);
    let disk = &recording.inventory.vm(0).expect("there").disks[0];
    assert_eq!(disk.size_bytes, 4096);
    assert_eq!(recording.requests[0].done, Nanos(1400));
}

#[test]
fn files_are_bounded_and_every_one_is_a_recording_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    // A sixteenth of it is 4 KiB: some hundred requests of this load.
    let mut directory = Directory::open(dir.path(), 64 << 10, create_file).expect("writable");
    let (mut producer, queues) = Producer::with_entries(1024);
    let (mut stream, progress) = stream(queues, 1);
    producer.change(START, Change::VmRemoved { vm: 1 });
    let mut number = 0;
    while progress.bytes.load(Ordering::Relaxed) < 200 << 10 {
        for _ in 0..500 {
            // Addresses without a pattern, so that they take their bytes.
            let mut one = request(0, number);
            one.offset = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 << 9;
            producer.write(&one);
            number += 1;
        }
        assert_eq!(stream.work(&mut directory, 1, true), Worked::GoesOn);
        let files = files_of(dir.path(), "ssd").expect("readable");
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        assert!(bytes <= 80 << 10, "{bytes} bytes");
    }
    drop(producer);
    stream.work(&mut directory, 1, true);
    let recordings = read(dir.path());
    assert!(recordings.len() > 5, "{} files", recordings.len());
    let mut expected = recordings[0].header.first_request;
    assert!(expected > 0, "the oldest files are gone");
    for recording in &recordings {
        assert!(recording.is_whole() && recording.summary.is_complete);
        assert_eq!(recording.header.first_request, expected);
        assert_eq!(recording.header.started_unix_ns, 1);
        let names: Vec<&str> = (recording.header.vms.iter())
            .map(|vm| vm.name.as_str())
            .collect();
        assert_eq!(names, ["oltp"], "as changed in the first file");
        expected += recording.requests.len() as u64;
    }
    assert_eq!(expected, number);
}

/// Output that takes 8 KiB.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        match taken {
            0 => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_recording_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(dir.path().to_owned(), 1 << 30)
        .with_create(|_| Ok(Box::new(FullDisk(8 << 10))));
    recorder.check().expect("writable");
    let (mut producer, queues) = Producer::with_entries(1 << 12);
    let (stream, progress) = stream(queues, 1);
    recorder.add(stream).expect("a thread");
    let mut number = 0;
    // The loop goes on all the while, and knows of the end once the ring is full.
    while producer.write(&request(0, number)) {
        number += 1;
    }
    let why = progress.failure().expect("it has failed");
    assert!(why.contains("No space left on device"), "{why}");
    assert!(recorder.flush(), "the thread has ended");
}

#[test]
fn a_panic_of_the_recorder_ends_its_recordings_and_is_their_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder =
        Recorder::new(dir.path().to_owned(), 1 << 30).with_create(|_| panic!("as planned"));
    // The second recording goes on until the same panic, or begins behind it with its own.
    let recordings: Vec<_> = (0..2)
        .map(|number| {
            let (producer, queues) = Producer::with_entries(64);
            let (stream, progress) = stream(queues, number);
            recorder.add(stream).expect("a thread");
            (producer, progress)
        })
        .collect();
    for (mut producer, progress) in recordings {
        wait_until(|| progress.failure().is_some());
        let why = progress.failure().expect("it has failed");
        assert!(why.contains("panicked"), "{why}");
        // The event loop gets to know of it.
        wait_until(|| !producer.write(&request(0, 0)));
    }
    assert!(recorder.flush(), "no thread to wait for");
    recorder.end();
}

#[test]
fn a_directory_takes_the_recordings_of_one_daemon() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("recordings");
    let [own, other] = [(); 2].map(|()| Recorder::new(path.clone(), 1 << 20));
    let (mut producer, queues) = Producer::with_entries(64);
    let (recorded, progress) = stream(queues, 1);
    own.add(recorded).expect("a thread");
    producer.write(&request(0, 0));
    assert!(own.flush());
    own.check().expect("its own directory");
    let refused = other.check().expect_err("in use").to_string();
    assert!(refused.contains("another daemon"), "{refused}");
    let (_producer, queues) = Producer::with_entries(64);
    let (refused, why) = stream(queues, 2);
    other.add(refused).expect("a thread");
    assert!(other.flush());
    wait_until(|| {
        why.failure()
            .is_some_and(|why| why.contains("another daemon"))
    });
    own.end();
    assert_eq!(progress.failure(), None);
    other.check().expect("the first daemon has ended");
}

/// Gate before every write of [`SlowDisk`].
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// File whose writes wait for the gate.
struct SlowDisk(Box<dyn Write + Send>);

impl Write for SlowDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let open = GATE.0.lock().expect("no panic");
        drop(GATE.1.wait_while(open, |open| !*open).expect("no panic"));
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_slow_disk_drops_requests_and_never_waits_for_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(dir.path().to_owned(), 1 << 30)
        .with_create(|path| Ok(Box::new(SlowDisk(create_file(path)?))));
    let (mut producer, queues) = Producer::with_entries(256);
    let (stream, progress) = stream(queues, 1);
    recorder.add(stream).expect("a thread");
    // The first write, of the header, waits: nothing is read, and the ring fills.
    let mut number = 0;
    while producer.counts().dropped < 1000 {
        assert!(producer.write(&request(0, number)), "the recorder is there");
        number += 1;
    }
    *GATE.0.lock().expect("no panic") = true;
    GATE.1.notify_all();
    wait_until(|| progress.recorded.load(Ordering::Relaxed) == producer.counts().written);
    producer.write(&request(0, number));
    drop(producer);
    recorder.end();
    let recording = &read(dir.path())[0];
    assert!(recording.summary.is_complete);
    assert_eq!(recording.missing(GapCause::Dropped), 1000);
    assert_eq!(recording.requests.len() as u64 + 1000, number + 1);
    assert_eq!(progress.failure(), None);
}

#[test]
fn the_thread_ends_with_the_last_recording_and_begins_with_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(dir.path().to_owned(), 1 << 30);
    for round in 1..4 {
        let (mut producer, queues) = Producer::with_entries(64);
        let (stream, progress) = stream(queues, round);
        recorder.add(stream).expect("a thread");
        producer.write(&request(0, round));
        assert!(recorder.flush());
        assert_eq!(progress.recorded.load(Ordering::Relaxed), 1);
        drop(producer);
        // Without a recording there is nothing to wait for.
        wait_until(|| read(dir.path()).iter().all(|it| it.summary.is_complete));
        assert!(recorder.flush());
    }
    assert_eq!(read(dir.path()).len(), 3);
    recorder.end();
    recorder.end();
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_does_not_answer_holds_one_thread() {
    let recordings = Arc::new(Recordings::new(None, ["ssd".to_owned()].into_iter()));
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let late = recordings.with_files(move |_| {
        let _ = wait.recv();
        Ok(())
    });
    let late = late.await.expect_err("no answer");
    assert!(matches!(late, RecordingError::NoAnswer(_)), "{late}");
    // Further questions wait for the thread that waits, and no thread of their own is started.
    for _ in 0..3 {
        let late = recordings.with_files(|_| -> Result<(), _> { panic!("it was called") });
        let late = late.await.expect_err("no answer").to_string();
        assert!(late.contains("no answer"), "{late}");
    }
    drop(answer);
    // The clock stands still while a thread is waited for here.
    let free = recordings.files.clone();
    wait_until(|| free.try_lock().is_ok());
    tokio::time::resume();
    let status = recordings.with_files(Recordings::status);
    assert_eq!(status.await.expect("an answer").devices.len(), 1);
}

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
    }
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
