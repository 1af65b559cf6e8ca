//! Calibration of the disk and the guests of Jain's thesis, which the module [`pridyn`](super)
//! cites, by the rows of `paper.toml` that may be used for it: throughput of a writer on the host
//! and in a VM, throughput of one and two streams, and default durations of the use cases. No run
//! with priorities is used.
//!
//! Bulk guests (sequential readers and writers) and streams of requests have parameters of their
//! own; the time that the hypervisor takes for a request is exponential in bulk guests, constant in
//! streams. For each request size at the host, and each number of outstanding requests:
//!
//! - *bulk*: the disk's rate is fitted to the host, then the hypervisor's time to the VM, then the
//!   size of the applications to their durations;
//! - *streams*, on the fitted disk: the hypervisor's time is fitted to one stream.
//!
//! The combination with the smallest distance over all rows of its kind is the result.
//!
//! The disk's file and the scenarios contain the result; `calibration.toml` repeats it with the
//! residuals, and a test compares both.

use super::PAPER_TOML;
use super::basis::{self, Basis};
use super::folder::{self, Folder};
use super::key::{Case, Change, Key, UseCase};
use super::run::Run;
use super::setup::{self, Guest};
use crate::fit::{self, Residual, distance};
use crate::{ExperimentError, Progress, Reference, Wanted, pool};
use std::fmt::Write;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// Request sizes to try, in KiB.
const PIECES_KIB: [u32; 3] = [128, 256, 512];
/// Numbers of outstanding requests to try.
const DEPTHS: [u32; 3] = [1, 2, 4];
/// Outer rates of the disk to try, in kB/s.
const RATES_KB_PER_S: [u64; 14] = [
    85_000, 87_500, 90_000, 92_500, 95_000, 97_500, 100_000, 102_500, 105_000, 110_000, 115_000,
    120_000, 125_000, 130_000,
];
/// Step between the times of the hypervisor that are tried, in microseconds.
const HYPERVISOR_STEP_US: u64 = 50;
/// Number of times of the hypervisor that are tried.
const HYPERVISOR_STEPS: usize = 200;
/// Size from which the applications' size is scaled, in MiB; results are multiples of the step.
const SIZE_MIB: u64 = 2400;
/// Step of sizes, in MiB.
const SIZE_STEP_MIB: u64 = 10;
/// Warm-up of a calibration run, shorter than that of reported runs.
const WARM_UP: Nanos = Nanos::from_secs(5);
/// Duration of a calibration run, warm-up included.
const DURATION: Nanos = Nanos::from_secs(25);

/// Free parameters of one kind of guests and of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FreeParameters {
    rate: u64,
    guest: Guest,
}

/// Parameters, with their residuals.
type Fitted = (FreeParameters, Vec<Residual>);

/// Figures of the thesis.
struct PaperFigures {
    host: f64,
    vm: f64,
    streams: [f64; 2],
    /// Default durations of the applications, by use case.
    defaults: [Vec<f64>; 2],
}

impl PaperFigures {
    fn from_reference(reference: &Reference) -> Result<PaperFigures, ExperimentError> {
        let figure = |table: &str, row: &str| -> Result<Vec<f64>, ExperimentError> {
            let cells = reference.table(table, 1)?.cells("", |_, _| Some(0.0));
            let of_row = cells
                .into_iter()
                .filter(|cell| cell.row == row && cell.calibrated);
            Ok(of_row.map(|cell| cell.theirs).collect())
        };
        let one = |table: &str, row: &str| -> Result<f64, ExperimentError> {
            let found = figure(table, row)?;
            found.first().copied().ok_or_else(|| {
                let what = format!("{table}, {row}: nothing may be calibrated on it");
                ExperimentError::data("paper.toml", what)
            })
        };
        Ok(PaperFigures {
            host: one("figure 1.2", "host")?,
            vm: one("figure 1.2", "1 VM")?,
            streams: [one("figure 4.4", "1 VM")?, one("figure 4.4", "2 VMs")?],
            defaults: [
                figure("4.1", "use case 1 default")?,
                figure("4.1", "use case 2 default")?,
            ],
        })
    }
}

/// Text of the disk's file with this outer rate in kB/s, and half of it as the inner rate.
fn disk(rate: u64) -> String {
    let line = |line: &str| match line.split(" = ").next() {
        Some("outer_rate") => format!("outer_rate = \"{rate} kB/s\""),
        Some("inner_rate") => format!("inner_rate = \"{} kB/s\"", rate / 2),
        // The other lines of the file stay, comments included.
        _ => line.to_owned(),
    };
    let lines: Vec<String> = folder::disk().lines().map(line).collect();
    lines.join("\n")
}

fn scenario(key: &Key, free: FreeParameters) -> Result<Scenario, ExperimentError> {
    let folder = Folder {
        disk: Some(disk(free.rate)),
        ..Folder::default()
    };
    let mut scenario = setup::scenario(key, &folder, &Basis::default())?;
    let native = matches!(key.change, Change::Records { native: true, .. });
    setup::put_guest(&mut scenario, free.guest, native);
    // Runs that end by themselves keep their duration.
    if !scenario.frame.until_done {
        (scenario.frame.warm_up, scenario.frame.duration) = (WARM_UP, DURATION);
    }
    Ok(scenario)
}

/// Throughput of a writer of large records, in MB/s.
fn writer(free: FreeParameters, native: bool) -> Result<f64, ExperimentError> {
    let change = Change::Records {
        vms: 1,
        kib: 1024,
        native,
    };
    let run = Run::simulate(scenario(&Key::new(Case::Records, "cfq", change), free)?);
    Ok(run.total() / 1e6)
}

/// Index of the value nearest to `wanted`, in an ascending sequence of `count` values.
fn nearest(
    count: usize,
    wanted: f64,
    of: impl Fn(usize) -> Result<f64, ExperimentError>,
) -> Result<usize, ExperimentError> {
    // Bisection: the value rises with the index.
    let (mut low, mut high) = (0, count - 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if of(middle)? < wanted {
            low = middle
        } else {
            high = middle
        }
    }
    // Two neighbours are left, of which the nearer one is taken.
    let off = |i: usize| Ok::<f64, ExperimentError>((of(i)? - wanted).abs());
    Ok(if off(low)? <= off(high)? { low } else { high })
}

/// Returns the time of the hypervisor that a step tries, in microseconds.
fn processor_us(step: usize) -> u64 {
    // The longest time comes first, so that the throughput rises.
    HYPERVISOR_STEP_US * (HYPERVISOR_STEPS - step) as u64
}

/// Fits all parameters of bulk guests with these requests.
fn fit_bulk(theirs: &PaperFigures, piece_kib: u32, depth: u32) -> Result<Fitted, ExperimentError> {
    let with = |rate, processor_us, size_mib| FreeParameters {
        rate,
        guest: Guest {
            piece_kib,
            depth,
            processor_us,
            exponential: true,
            size_mib,
        },
    };
    // In order: the disk alone, then the VM on it, then the applications in VMs.
    let host = |i: usize| writer(with(RATES_KB_PER_S[i], 0, SIZE_MIB), true);
    let rate = RATES_KB_PER_S[nearest(RATES_KB_PER_S.len(), theirs.host, host)?];
    let vm = |i: usize| writer(with(rate, processor_us(i), SIZE_MIB), false);
    let processor_us = processor_us(nearest(HYPERVISOR_STEPS, theirs.vm, vm)?);
    let tried = default_duration_residuals(theirs, with(rate, processor_us, SIZE_MIB))?;
    let logs = tried.iter().map(|of| (of.theirs / of.ours).ln());
    // Geometric mean of the ratios: durations are proportional to the size.
    let factor = (logs.sum::<f64>() / tried.len().max(1) as f64).exp();
    let steps = (SIZE_MIB as f64 * factor / SIZE_STEP_MIB as f64).round() as u64;
    let free = with(rate, processor_us, steps * SIZE_STEP_MIB);
    let mut residuals = vec![
        Residual {
            cell: "figure 1.2, host, MB/s".to_owned(),
            theirs: theirs.host,
            ours: writer(free, true)?,
        },
        Residual {
            cell: "figure 1.2, 1 VM, MB/s".to_owned(),
            theirs: theirs.vm,
            ours: writer(free, false)?,
        },
    ];
    residuals.extend(default_duration_residuals(theirs, free)?);
    Ok((free, residuals))
}

/// Total throughput of `vms` streams, in MB/s.
fn streams(vms: usize, free: FreeParameters) -> Result<f64, ExperimentError> {
    let run = Run::simulate(scenario(&basis::streams(Case::Web, vms), free)?);
    Ok(run.total() / 1e6)
}

/// Fits all parameters of streams with these requests.
fn fit_streams(
    theirs: &PaperFigures,
    rate: u64,
    piece_kib: u32,
    depth: u32,
) -> Result<Fitted, ExperimentError> {
    let with = |processor_us| FreeParameters {
        rate,
        guest: Guest {
            piece_kib,
            depth,
            processor_us,
            exponential: false,
            size_mib: SIZE_MIB,
        },
    };
    let alone = |i: usize| streams(1, with(processor_us(i)));
    let free = with(processor_us(nearest(
        HYPERVISOR_STEPS,
        theirs.streams[0],
        alone,
    )?));
    let mut residuals = Vec::new();
    for (vms, theirs) in (1..).zip(theirs.streams) {
        residuals.push(Residual {
            cell: format!("figure 4.4, streams of {vms}, MB/s"),
            theirs,
            ours: streams(vms, free)?,
        });
    }
    Ok((free, residuals))
}

/// Residuals of the applications' default durations.
fn default_duration_residuals(
    theirs: &PaperFigures,
    free: FreeParameters,
) -> Result<Vec<Residual>, ExperimentError> {
    let mut residuals = Vec::new();
    for (i, which) in [UseCase::One, UseCase::Two].into_iter().enumerate() {
        let [default, _] = basis::bounds(which);
        let run = Run::simulate(scenario(&default, free)?);
        for (vm, theirs) in theirs.defaults[i].iter().enumerate() {
            let (case, application) = (i + 1, vm + 1);
            residuals.push(Residual {
                cell: format!("table 4.1, use case {case} default, application {application}, s"),
                theirs: *theirs,
                // A VM without a time fits nothing, and makes the distance infinite.
                ours: run.took(vm).unwrap_or(f64::INFINITY),
            });
        }
    }
    Ok(residuals)
}

/// Fit with the smallest distance.
fn best_fit(found: &[Fitted]) -> &Fitted {
    let best = found
        .iter()
        .min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)));
    best.expect("something is tried")
}

/// Text of all fits of a kind as comments, and of the best one.
fn fit_text(kind: &str, found: &[Fitted]) -> String {
    let mut text = format!("\n[{kind}]\n");
    for (free, residuals) in found {
        let Guest {
            piece_kib,
            depth,
            processor_us,
            ..
        } = free.guest;
        let _ = writeln!(
            text,
            "# {piece_kib} KiB, {depth} at a time: {:.4} with {processor_us} us ({} kB/s)",
            distance(residuals),
            free.rate
        );
    }
    let (FreeParameters { guest, .. }, residuals) = best_fit(found);
    let Guest {
        piece_kib,
        depth,
        processor_us,
        exponential,
        ..
    } = guest;
    let distribution = if *exponential {
        "exponential"
    } else {
        "constant"
    };
    let _ = write!(
        text,
        "bs = \"{piece_kib} KiB\"\niodepth = {depth}\nprocessor = \"{processor_us} us\"\n\
         distribution = \"{distribution}\"\nrms_log_ratio = {:.4}\n",
        distance(residuals)
    );
    text
}

/// Tries all combinations; returns the text of `calibration.toml` with the best fit.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let theirs = PaperFigures::from_reference(&Reference::parse(PAPER_TOML)?)?;
    let tried = PIECES_KIB
        .iter()
        .flat_map(|piece| DEPTHS.map(|depth| (*piece, depth)));
    let tried: Vec<(u32, u32)> = tried.collect();
    // Both kinds have as many fits: the first half of the progress.
    let mut report_progress = |done: usize, all: usize| progress(done, 2 * all);
    let bulk = pool::map_parallel(
        &tried,
        wanted.threads,
        &mut report_progress,
        |(piece, depth)| fit_bulk(&theirs, *piece, *depth),
    );
    let bulk = bulk.into_iter().collect::<Result<Vec<_>, _>>()?;
    let FreeParameters { rate, guest } = best_fit(&bulk).0;
    let mut report_progress = |done: usize, all: usize| progress(done + all, 2 * all);
    let fit = |(piece, depth): &(u32, u32)| fit_streams(&theirs, rate, *piece, *depth);
    let streams = pool::map_parallel(&tried, wanted.threads, &mut report_progress, fit);
    let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut text = format!(
        "# Written by `tidegate reproduce pridyn --calibrate`: the best by the root of the mean \
         square of\n\
         # ln(ours / theirs) over the rows that may be calibrated on, among all that was tried.\n\n\
         outer_rate = \"{rate} kB/s\"\nio_size = \"{} MiB\"\n",
        guest.size_mib
    );
    text += &fit_text("bulk", &bulk);
    text += &fit_text("streams", &streams);
    let left = best_fit(&bulk).1.iter().chain(&best_fit(&streams).1);
    fit::append_residuals(&mut text, left, 2);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(root: &toml::Table, key: &str, unit: &str) -> u64 {
        let text = root[key].as_str().expect("a text");
        let number = text.strip_suffix(unit).expect("its unit").trim();
        number.parse().expect("a whole number")
    }

    #[test]
    fn the_disk_and_the_scenarios_have_what_the_calibration_found() {
        let root: toml::Table = crate::folder::embedded!("pridyn", "calibration.toml")
            .parse()
            .expect("TOML");
        let rate = number(&root, "outer_rate", "kB/s");
        assert_eq!(disk(rate).trim_end(), folder::disk().trim_end());
        for case in Case::ALL {
            let kind = if case.has_streams() {
                "streams"
            } else {
                "bulk"
            };
            let of_kind = root[kind].as_table().expect("a table");
            let guest = Guest {
                piece_kib: number(of_kind, "bs", "KiB") as u32,
                depth: of_kind["iodepth"].as_integer().expect("a number") as u32,
                processor_us: number(of_kind, "processor", "us"),
                exponential: of_kind["distribution"].as_str() == Some("exponential"),
                size_mib: number(&root, "io_size", "MiB"),
            };
            let key = Key::new(case, "cfq", Change::Nothing);
            let written =
                setup::scenario(&key, &Folder::default(), &Basis::default()).expect("a scenario");
            let mut found = written.clone();
            setup::put_guest(&mut found, guest, false);
            for (written, found) in written.vms.iter().zip(&found.vms) {
                assert_eq!(written.delay, found.delay, "{case:?}");
                assert_eq!(written.workloads, found.workloads, "{case:?}");
            }
        }
    }

    #[test]
    fn nearest_finds_value_in_ascending_sequence() {
        let squares = |i: usize| Ok((i * i) as f64);
        for (wanted, expected) in [(0.0, 0), (24.0, 5), (13.0, 4), (12.0, 3), (500.0, 9)] {
            assert_eq!(
                nearest(10, wanted, squares).expect("figures"),
                expected,
                "{wanted}"
            );
        }
    }
}
