//! Bodies of the fuzz targets, which keeps the targets themselves one line each.

use crate::arrival_process::ArrivalClock;
use crate::fio::{self, JobFile, Kind};
use crate::replay::{Factor, Mode, Replay};
use crate::source::Source;
use crate::spec::{Flow, Workload};
use crate::stream::Stream;
use crate::trace::{self, Format, LARGEST, Options, Trace, TraceError};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Size in bytes of the disk on which traces are replayed.
const DISK: u64 = 1 << 40;

/// Parses `data` as a job file and draws requests from it.
///
/// # Panics
/// If a file is refused without a reason, if leniency changes the result of a file that needs none,
/// if a workload fails its checks, or if a request leaves its region.
pub fn fio_jobs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lenient = read(&text, true);
    if let Some(strict) = read(&text, false) {
        assert_eq!(lenient, Some(strict.clone()));
        assert!(!strict.notes.iter().any(|note| note.kind != Kind::Note));
    }
    let Some(file) = lenient else { return };
    assert!(!file.sections.is_empty());
    for section in &file.sections {
        // No disk, one of odd size, a small one, a large one that is no power of two, and the
        // largest number.
        for disk_size in [0, 513, 1 << 20, (1 << 40) + 512, u64::MAX] {
            if let Ok(workload) = section.workload(disk_size) {
                workload.check().expect("what is read is right");
                run(&workload, disk_size);
            }
        }
    }
}

/// Parses `data` as a trace of every format and replays it.
///
/// # Panics
/// If a record is out of range, if leniency changes the result of a trace that needs none, if the
/// statistics contradict the trace, or if its replay leaves the disk.
pub fn traces(data: &[u8]) {
    let formats = Format::ALL.map(Some).into_iter().chain([None]);
    for format in formats {
        let read = |skip_bad| {
            let options = Options {
                format,
                skip_bad,
                disk: None,
            };
            trace::read(data, &options)
        };
        let (strict, lenient) = (read(false), read(true));
        let trace = match (strict, lenient) {
            (Ok(strict), lenient) => {
                assert_eq!(lenient.expect("the strict reader took it"), strict);
                strict
            }
            (Err(TraceError::Bad(bad)), Ok(lenient)) => {
                assert_eq!(lenient.bad.first(), Some(&bad));
                lenient
            }
            (Err(error), Err(_)) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
            (Err(error), Ok(_)) => panic!("nothing is bad in it, yet: {error}"),
        };
        assert!(trace.records.is_sorted_by_key(|record| record.at));
        for record in &trace.records {
            // Offsets are signed in the kernel, so that no request may end beyond 2^63.
            assert!((1..=LARGEST).contains(&record.len) && record.end() <= i64::MAX as u64);
            assert!((record.disk as usize) < trace.disks.len());
        }
        only_disk(data, format, &trace);
        let info = trace::info(&trace, None).expect("a trace that was read has a request");
        assert_eq!(info.requests, trace.records.len() as u64);
        assert!(info.footprint <= info.bytes && info.extent > 0);
        replay(&trace);
    }
}

/// Reads one disk of a trace, the last, which gives its requests of the whole trace.
fn only_disk(data: &[u8], format: Option<Format>, whole: &Trace) {
    let Some((last, name)) = whole.disks.iter().enumerate().next_back() else {
        panic!("requests without a disk");
    };
    let options = Options {
        format,
        skip_bad: true,
        disk: Some(name.clone()),
    };
    let one = trace::read(data, &options).expect("the disk has a request");
    let of_disk = whole.records.iter().filter(|it| it.disk as usize == last);
    let numbered = of_disk.map(|record| trace::Record { disk: 0, ..*record });
    assert_eq!(one.disks, [name.as_str()]);
    assert!(one.records.into_iter().eq(numbered));
}

/// Replays a trace in both modes, on a disk that is larger than the trace and on a smaller one.
fn replay(trace: &Trace) {
    for (mode, factor) in [
        (Mode::NextWhenDone, 100.0),
        (Mode::Timed(Factor::new(0.001)), 0.1),
        (Mode::Thinking(1), 1.0),
    ] {
        let mut replay = Replay::new(trace, None, None).expect("it has a request");
        (replay.mode, replay.size_factor) = (mode, Factor::new(factor));
        let workload = Workload {
            replay: Some(replay),
            ..Workload::default()
        };
        workload.check().expect("what replays a trace is right");
        let Ok(mut source) = Source::new(&workload, 0, DISK, 4096) else {
            continue;
        };
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut before = Nanos::ZERO;
        for _ in 0..200 {
            let Some(io) = source.next(&mut rng) else {
                assert!(source.is_over());
                break;
            };
            assert!(io.len > 0 && io.offset + u64::from(io.len) <= DISK);
            let whole = source.whole().expect("it is a piece of something");
            assert!(whole.bytes >= io.len.into() && whole.at >= before);
            before = whole.at;
        }
    }
}

fn read(text: &str, lenient: bool) -> Option<JobFile> {
    match fio::parse(text, "jobs.fio", lenient) {
        Ok(file) => Some(file),
        Err(errors) => {
            assert!(!errors.0.is_empty());
            assert!(errors.0.iter().all(|error| error.kind == Kind::Error));
            assert!(!errors.to_string().is_empty());
            None
        }
    }
}

fn run(workload: &Workload, disk_size: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let region = workload.region(0, disk_size).expect("the first copy fits");
    let mut stream = Stream::new(workload, 0, disk_size).expect("the first copy fits");
    for io in std::iter::from_fn(|| stream.next(&mut rng)).take(50) {
        if io.op != Op::Flush {
            let end = io.offset + u64::from(io.len);
            assert!(io.offset >= region.start && end <= region.end && io.len > 0);
        }
    }
    if let Flow::Open { arrivals, .. } = &workload.flow {
        let mut clock = ArrivalClock::new(arrivals, workload.start);
        let mut before = Nanos::ZERO;
        for _ in 0..50 {
            let at = clock.next(&mut rng);
            assert!(at >= before);
            before = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Words that are options, and near misses.
    const NAMES: &[&str] = &[
        "rw",
        "bs",
        "bsrange",
        "bssplit",
        "ba",
        "rwmixread",
        "rwmixwrite",
        "size",
        "offset",
        "offset_increment",
        "io_size",
        "number_ios",
        "loops",
        "random_distribution",
        "norandommap",
        "iodepth",
        "ioengine",
        "numjobs",
        "rate",
        "rate_iops",
        "rate_process",
        "thinktime",
        "thinktime_blocks",
        "startdelay",
        "ramp_time",
        "runtime",
        "time_based",
        "stonewall",
        "fsync",
        "fdatasync",
        "sync",
        "name",
        "kb_base",
        "direct",
        "verify",
        "include",
        "",
        "é",
        "[job]",
        "[b]",
        "[global]",
        "[",
        "# x",
    ];

    /// Values that are valid, and near misses.
    const VALUES: &[&str] = &[
        "",
        "=",
        "=0",
        "=1",
        "=4k",
        "=64k",
        "=4k,8k",
        "=,1m,",
        "=50%",
        "=100%",
        "=101%",
        "=18446744073709551615",
        "=99999999p",
        "=4k/50:8k/50",
        "=4k/50:512/",
        "=512-64k",
        "=1g-512",
        "=randread",
        "=randrw",
        "=trimwrite",
        "=zipf:0.9",
        "=zipf:10",
        "=pareto:0.999",
        "=normal:99",
        "=normal:0.0001",
        "=poisson",
        "=10ms",
        "=9999999d",
        "=${X}",
        "=(1+1)",
        "=é%",
        "=psync",
        "=65536",
        "=1000",
        "=-",
        "=:",
        "=/",
    ];

    /// Returns a strategy for lines of a word with a value.
    fn line() -> impl Strategy<Value = String> {
        let word = (prop::sample::select(NAMES), prop::sample::select(VALUES));
        word.prop_map(|(name, value)| format!("{name}{value}\n"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            super::fio_jobs(text.as_bytes());
            super::fio_jobs(format!("[job]\n{text}").as_bytes());
            super::fio_jobs(format!("[job]\nbs={text}").as_bytes());
        }

        #[test]
        fn near_misses_are_survived(lines in prop::collection::vec(line(), 0..12)) {
            super::fio_jobs(format!("[job]\n{}", lines.concat()).as_bytes());
        }

        #[test]
        fn garbage_is_survived(data in any::<Vec<u8>>()) {
            super::fio_jobs(&data);
        }
    }
}
