//! Whole job files, as people write them for fio; fio 3.33 accepts each of them, too.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_workload::arrival_process::Spacing;
use tidegate_workload::fio::{self, JobFile};
use tidegate_workload::spec::{Flow, Mix, Placement, Workload};
use tidegate_workload::stream::Stream;

const DISK: u64 = 100 << 30;

fn read(file: &str, text: &str) -> JobFile {
    fio::parse(text, file, false).unwrap_or_else(|errors| panic!("{errors}"))
}

fn workloads(file: &JobFile) -> Vec<Workload> {
    let workload = |section: &fio::Section| section.workload(DISK).unwrap();
    file.sections.iter().map(workload).collect()
}

fn names(file: &JobFile) -> Vec<&str> {
    let sections = file.sections.iter();
    sections.map(|section| section.name.as_str()).collect()
}

fn depth(workload: &Workload) -> u32 {
    let (Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. }) = workload.flow;
    iodepth
}

#[test]
fn a_file_server() {
    let file = read("file-server.fio", include_str!("../jobs/file-server.fio"));
    let [workload] = &workloads(&file)[..] else {
        panic!("{file:?}")
    };
    assert_eq!(workload.rw.mix, Mix::ReadWrite { read_percent: 80 });
    assert_eq!((depth(workload), workload.io_size), (64, Some(4 << 30)));
    let ignored: Vec<&str> = file.notes.iter().map(|note| note.option.as_str()).collect();
    let expected = ["ioengine", "direct", "group_reporting", "bssplit"];
    assert_eq!(ignored, expected);

    let (mut stream, mut rng) = (
        Stream::new(workload, 0, DISK).unwrap(),
        Pcg64Mcg::seed_from_u64(7),
    );
    let (mut reads, mut bytes) = (0.0, 0.0);
    let n = 100_000;
    for _ in 0..n {
        let io = stream.next(&mut rng).unwrap();
        reads += f64::from(u8::from(io.op == Op::Read));
        bytes += f64::from(io.len);
    }
    let n = f64::from(n);
    assert!((reads / n - 0.8).abs() < 0.005);
    assert!((bytes / n / workload.sizes[0].mean() - 1.0).abs() < 0.025);
}

#[test]
fn a_database() {
    let file = read("database.fio", include_str!("../jobs/database.fio"));
    assert_eq!(names(&file), ["readers", "log", "checkpoint"]);
    let workloads = workloads(&file);
    let [readers, log, checkpoint] = &workloads[..] else {
        panic!("{file:?}")
    };
    for (section, workload) in file.sections.iter().zip(&workloads) {
        assert_eq!(section.ramp_time, Nanos::from_secs(10));
        assert_eq!(workload.runtime, Some(Nanos::from_secs(130)));
        assert_eq!((workload.io_size, workload.number_ios), (None, None));
    }
    assert_eq!((readers.numjobs, depth(readers)), (4, 8));
    assert_eq!(readers.placement, Placement::Zipf { theta: 0.99 });
    assert_eq!(readers.size, Some(80 << 30));
    assert_eq!(
        (log.offset, log.size, log.fsync),
        (80 << 30, Some(1 << 30), 1)
    );
    let Flow::Open { arrivals, .. } = checkpoint.flow else {
        panic!("{checkpoint:?}")
    };
    assert_eq!(arrivals.per_s, 2560.0);
    assert_eq!(checkpoint.start, Nanos::from_secs(30));
    assert_eq!(checkpoint.placement, Placement::Shuffle);
}

#[test]
fn visitors_who_do_not_wait() {
    let file = read("web.fio", include_str!("../jobs/web.fio"));
    let workloads = workloads(&file);
    let flows: Vec<_> = (workloads.iter())
        .map(|workload| match workload.flow {
            Flow::Open { arrivals, iodepth } => (arrivals.per_s, arrivals.spacing, iodepth),
            Flow::Closed { .. } => panic!("{workload:?}"),
        })
        .collect();
    let expected = [(350.0, Spacing::Poisson, 128), (60.0, Spacing::Fixed, 32)];
    assert_eq!(flows, expected);
    assert_eq!(workloads[0].sizes[0].0[2].weight, 20, "the rest");
    assert_eq!(workloads[1].rw.mix, Mix::ReadWrite { read_percent: 25 });
    assert_eq!(workloads[1].placement, Placement::Uniform);
}

#[test]
fn patterns_one_after_the_other() {
    let file = read("ssd-steps.fio", include_str!("../jobs/ssd-steps.fio"));
    let expected = ["seq-read", "rand-read", "seq-write", "rand-write"];
    assert_eq!(names(&file), expected);
    let starts: Vec<Nanos> = workloads(&file)
        .iter()
        .map(|workload| workload.start)
        .collect();
    assert_eq!(starts, [0, 60, 120, 180].map(Nanos::from_secs));
}

#[test]
fn desktops() {
    let file = read("desktops.fio", include_str!("../jobs/desktops.fio"));
    let workloads = workloads(&file);
    let [desktop, scan, reclaim] = &workloads[..] else {
        panic!("{file:?}")
    };
    assert_eq!(desktop.rw.mix, Mix::ReadWrite { read_percent: 40 });
    assert_eq!(desktop.region(7, DISK), Ok(14 << 30..16 << 30));
    assert_eq!((desktop.io_size, desktop.fsync), (Some(4 << 30), 64));
    let Flow::Closed {
        think: Some(think), ..
    } = &desktop.flow
    else {
        panic!("{desktop:?}")
    };
    assert_eq!((think.blocks, think.time.mean_ns() as u64), (4, 20_000_000));
    assert_eq!(scan.number_ios, Some(50 << 10));
    assert_eq!(scan.sizes[0].0.len(), 16);
    assert_eq!((reclaim.rw.mix, reclaim.sync), (Mix::Trim, true));
}

#[test]
fn the_example_of_the_documentation() {
    let page = include_str!("../../../../docs/fio-jobs.md");
    let example = page
        .split("```ini\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let file = read("fio-jobs.md", example.unwrap());
    assert_eq!(names(&file), ["readers", "log"]);
    assert!(
        workloads(&file)
            .iter()
            .all(|workload| workload.check().is_ok())
    );
}
