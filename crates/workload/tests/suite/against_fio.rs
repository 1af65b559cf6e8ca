//! Comparison of a job file read here with fio itself on a sparse file of the disk's size: the
//! same requests must come of it. Skipped where there is no fio, but never in CI.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};
use tidegate_core::request::Op;
use tidegate_workload::fio;
use tidegate_workload::stream::Stream;

const DISK: u64 = 1 << 20;

/// A request: what, first byte, bytes.
type Request = (Op, u64, u64);

#[test]
fn sequential_jobs_make_the_requests_that_fio_makes() {
    if !fio_is_there() {
        return;
    }
    let cases = [
        "bs=64k",
        "rw=write | bs=4k | size=48k | fsync=5",
        "rw=write | bs=4k | size=48k | fdatasync=1",
        "rw=write | bs=8k,16k | size=64k",
        "rw=write | bs=8k, | size=64k",
        "rw=trim | bs=32k,4k,8k | number_ios=5",
        "rw=trimwrite | offset=8k | size=16k",
        "rw=trimwrite | number_ios=3",
        "rw=trimwrite | io_size=12k",
        "size=100k | io_size=40k",
        "size=32k | loops=2",
        "number_ios=3 | loops=2",
        "io_size=10000",
        "offset=50% | bs=4k",
        "offset=33% | size=25% | bs=64k",
        "offset=90% | size=50% | bs=4k",
        "size=64ki | bs=512",
        "size=64kib | bs=512",
        "size=64k | bs=512 | kb_base=1000",
        "size=64kib | bs=512 | kb_base=1000",
        "size=0x10000 | bs=0x1000",
    ];
    for Case { lines, ours, fios } in both("sequential", &cases) {
        assert_eq!(ours, fios, "{lines}");
    }
}

#[test]
fn random_jobs_make_the_requests_that_fio_makes_in_another_order() {
    if !fio_is_there() {
        return;
    }
    let cases = [
        "rw=randread | bs=4k | size=256k",
        "rw=randwrite | bs=8k | offset=512k",
        "rw=randtrim | bs=64k",
        "rw=randtrimwrite | bs=4k | size=64k",
        "rw=randrw | rwmixread=100 | bs=16k",
        "rw=randrw | rwmixwrite=100 | bs=16k",
        "rw=randread | bs=4k | size=64k | loops=3",
    ];
    for Case {
        lines,
        mut ours,
        mut fios,
    } in both("random", &cases)
    {
        assert_ne!(ours, fios, "{lines}: the orders should differ");
        let key = |request: &Request| (request.1, request.0 as u8);
        ours.sort_by_key(key);
        fios.sort_by_key(key);
        assert_eq!(ours, fios, "{lines}");
    }
}

/// The requests of a job with these lines, ours and fio's.
struct Case {
    lines: &'static str,
    ours: Vec<Request>,
    fios: Vec<Request>,
}

/// Runs all of them at once: fio mostly waits.
fn both(name: &str, cases: &[&'static str]) -> Vec<Case> {
    let running = cases.iter().enumerate().map(|(i, lines)| {
        let text = format!("[job]\n{}\n", lines.replace(" | ", "\n"));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{i}"));
        fs::create_dir_all(&directory).unwrap();
        (
            *lines,
            requests_here(&text),
            start_fio(&directory, &text),
            directory,
        )
    });
    let running: Vec<_> = running.collect();
    let ended = running
        .into_iter()
        .map(|(lines, mut ours, fio, directory)| {
            // fio leaves out the flush after the last write.
            if ours.last().is_some_and(|request| request.0 == Op::Flush) {
                ours.pop();
            }
            let output = fio.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{lines}: {stderr}");
            let fios = logged(&fs::read_to_string(directory.join("log")).unwrap());
            Case { lines, ours, fios }
        });
    ended.collect()
}

fn requests_here(text: &str) -> Vec<Request> {
    let file = fio::parse(text, "job.fio", false).unwrap_or_else(|errors| panic!("{errors}"));
    let workload = file.sections[0].workload(DISK).unwrap();
    let mut stream = Stream::new(&workload, 0, DISK).unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    std::iter::from_fn(|| stream.next(&mut rng))
        .map(|io| (io.op, io.offset, u64::from(io.len)))
        .collect()
}

fn start_fio(directory: &Path, text: &str) -> Child {
    fs::write(directory.join("job.fio"), text).unwrap();
    let _ = fs::remove_file(directory.join("log"));
    let disk = fs::File::create(directory.join("disk")).unwrap();
    disk.set_len(DISK).unwrap();
    // A file has no discards; the null engine takes them, and needs to be told the file's size.
    let null = text.contains("trim").then(|| format!("--size={DISK}"));
    let engine = if null.is_some() { "null" } else { "psync" };
    Command::new("fio")
        .current_dir(directory)
        .arg(format!("--ioengine={engine}"))
        .args(null)
        // Another clock would be calibrated first, for longer than all the rest takes.
        .arg("--clocksource=clock_gettime")
        .args(["--filename=disk", "--write_iolog=log", "job.fio"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The requests in fio's log.
fn logged(log: &str) -> Vec<Request> {
    // Each line: time, file, what, first byte, bytes.
    let request = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, what, offset, bytes] = words[..] else {
            return None;
        };
        let op = match what {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            "sync" | "datasync" => return Some((Op::Flush, 0, 0)),
            _ => return None,
        };
        Some((op, offset.parse().unwrap(), bytes.parse().unwrap()))
    };
    log.lines().skip(1).filter_map(request).collect()
}

fn fio_is_there() -> bool {
    let version = Command::new("fio")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let there = version.is_ok();
    assert!(
        there || env::var("CI").as_deref() != Ok("true"),
        "needs fio, and nothing is skipped in CI: make setup"
    );
    there
}
