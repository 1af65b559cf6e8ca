//! Recorder against full and slow disks, and rings that overflow.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_recording::{Change, DiskFacts, GapCause, Header, Recording, Request, VmFacts};

use super::directory::{Directory, create_file, files_of};
use super::producer::{Producer, Queues};
use super::recorder::Recorder;
use super::stream::{Progress, Stream, Worked};
use super::{RecordingError, Recordings};

mod dumps;

const STEP_TIMEOUT: Duration = Duration::from_secs(60);

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
        disk_limits: name == "backup",
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
