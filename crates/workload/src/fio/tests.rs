//! Tests of the job file reader, option by option.

mod extents;
mod files;
mod flows;
mod patterns;
mod sizes;
mod times;

use super::*;
use crate::arrival_process::{Arrivals, Spacing};
use crate::spec::{Flow, Mix, Placement, SizeShare, Sizes, Think, Workload};
use crate::time::TimeDistribution;
use tidegate_core::time::Nanos;

const GIB: u64 = 1 << 30;

/// Returns the workload of the file's only job, on a disk of 1 GiB, and its notes.
fn read(text: &str) -> (Workload, Vec<String>) {
    let file = parse(text, "f.fio", false).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(file.sections.len(), 1);
    let workload = file.sections[0].workload(GIB).unwrap();
    assert_eq!(workload.check(), Ok(()), "{text}");
    let notes = file.notes.iter().map(|note| note.to_string()).collect();
    (workload, notes)
}

/// Returns the workload of a job with these options, separated by ` | `.
fn workload(lines: &str) -> Workload {
    read(&format!("[job]\n{}\n", lines.replace(" | ", "\n"))).0
}

fn notes(lines: &str) -> Vec<String> {
    read(&format!("[job]\n{}\n", lines.replace(" | ", "\n"))).1
}

/// Returns the only error of a job with these options: option, message and help.
fn only_error(lines: &str) -> (String, String, String) {
    let text = format!("[job]\n{}\n", lines.replace(" | ", "\n"));
    let errors = parse(&text, "f.fio", false).expect_err(lines).0;
    assert_eq!(errors.len(), 1, "{lines}: {errors:?}");
    let error = errors.into_iter().next().unwrap();
    (error.option, error.what, error.help.unwrap_or_default())
}

/// Asserts that each of these lines has one error, in its first option.
fn all_wrong(cases: &[&str]) {
    for lines in cases {
        let name = lines.split(['=', ' ']).next().unwrap();
        let (option, what, _) = only_error(lines);
        assert_eq!(option, name, "{lines}: {what}");
    }
}

fn closed(workload: &Workload) -> (u32, Option<Think>) {
    match &workload.flow {
        Flow::Closed { iodepth, think } => (*iodepth, think.clone()),
        Flow::Open { .. } => panic!("{workload:?}"),
    }
}

fn open(workload: &Workload) -> (Arrivals, u32) {
    match &workload.flow {
        Flow::Open { arrivals, iodepth } => (*arrivals, *iodepth),
        Flow::Closed { .. } => panic!("{workload:?}"),
    }
}

fn shares(list: &[(u32, u32)]) -> Sizes {
    let share = |&(bytes, weight)| SizeShare { bytes, weight };
    Sizes(list.iter().map(share).collect())
}

#[test]
fn offset_increment_of_100_percent_of_u64_max_is_rounded_to_a_sector() {
    let file = parse("[job]\noffset_increment=100%\n", "f.fio", false).unwrap();
    let workload = file.sections[0].workload(u64::MAX).unwrap();
    assert_eq!(workload.check(), Ok(()));
}

#[test]
fn files_lie_one_after_the_other() {
    let files = workload("rw=read | size=100m | nrfiles=3 | file_service_type=sequential");
    assert_eq!(files.files.count, 3);
    let size = files.size.unwrap();
    assert!(size.is_multiple_of(3 * 512) && (100 << 20) - size < 3 * 512);
    let random = workload("rw=randread | nrfiles=128 | file_service_type=random");
    assert_eq!((random.files.count, random.size), (128, Some(GIB)));
    all_wrong(&[
        "nrfiles=2",
        "file_service_type=random | nrfiles=2 | rw=read",
        "nrfiles=0",
    ]);
}
