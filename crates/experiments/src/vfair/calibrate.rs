//! Calibration of the disks and of the virtualisation delay, by the paper's measurements of each
//! alone.
//!
//! Throughputs of VMs that share a disk are not used: the disks are fitted to the fair shares,
//! which are a third of their saturation throughput, and virtualisation to the reads of VM1 alone.
//! The disks' files and the scenarios contain the result; `calibration.toml` repeats it with the
//! residuals, and a test compares both.

use super::PAPER_TOML;
use super::run::Run;
use super::setup::{self, Case, Change, Disk, Key};
use crate::fit::{self, Residual, distance};
use crate::{ExperimentError, Progress, Reference, Wanted, folder, pool};
use std::fmt::Write;
use std::ops::ControlFlow;
use tidegate_core::profile::{Estimation, Pattern, Profile};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_profile::plan::{Depth, Step};
use tidegate_profile::{Options, Plan, virtual_time};
use tidegate_sim::scenario::Delay;
use tidegate_workload::time::TimeDistribution;

/// Number of VMs, of equal weight.
const VMS: f64 = 3.0;

/// Free parameter of a disk: its path in the disk's file, and the values to try.
struct FreeParameter {
    path: &'static [&'static str],
    unit: &'static str,
    tried: &'static [u64],
}

const SSD: [FreeParameter; 2] = [
    FreeParameter {
        path: &["ssd", "interface_command"],
        unit: "us",
        tried: &[64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76],
    },
    FreeParameter {
        path: &["ssd", "interface_rate"],
        unit: "MB/s",
        tried: &[290, 295, 300, 305, 310, 315, 320, 325, 330, 335, 340],
    },
];
const HDD: [FreeParameter; 3] = [
    FreeParameter {
        path: &["hdd", "outer_rate"],
        unit: "kB/s",
        tried: &[115_000, 120_000, 125_000, 130_000, 135_000],
    },
    FreeParameter {
        path: &["hdd", "command_overhead"],
        unit: "us",
        tried: &[100, 200, 300],
    },
    FreeParameter {
        path: &["hdd", "seek", "average"],
        unit: "us",
        tried: &[8500, 9000, 9500, 10_000, 10_500],
    },
];
/// Read overheads of the flash disk to try, in microseconds, against VM1 alone on bare Linux.
/// Descending, because the first of equally good ones is taken.
const OVERHEADS_US: &[u64] = &[10, 8, 6, 4, 3, 2, 1, 0];
/// Virtualisation delays per direction to try, in microseconds, against VM1 alone.
const DELAYS_US: &[u64] = &[44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64];

/// Bytes of a flash disk that are measured.
const FLASH_SPAN: u64 = 4 << 30;

fn free(disk: Disk) -> &'static [FreeParameter] {
    match disk {
        Disk::Ssd => &SSD,
        Disk::Hdd => &HDD,
    }
}

/// Model of a disk with these values of its free parameters, and a read overhead if given.
fn entry(disk: Disk, figures: &[u64], overhead_us: Option<u64>) -> Result<Entry, ExperimentError> {
    let [file, _] = disk.files();
    let all = free(disk).iter().zip(figures);
    let mut all: Vec<(&[&str], String)> = all
        .map(|(free, value)| (free.path, format!("{value} {}", free.unit)))
        .collect();
    match disk {
        Disk::Ssd => {}
        // The inner rate is half of the outer one.
        Disk::Hdd => all.push((&["hdd", "inner_rate"], format!("{} kB/s", figures[0] / 2))),
    }
    all.extend(overhead_us.map(|us| (&["ssd", "read_overhead"][..], format!("{us} us"))));
    folder::model_with(file, &all)
}

/// All combinations of a disk's parameters.
fn grid(disk: Disk) -> Vec<Vec<u64>> {
    free(disk).iter().fold(vec![Vec::new()], |all, free| {
        let with = |figures: &Vec<u64>| {
            let figures = figures.clone();
            free.tried
                .iter()
                .map(move |value| [&figures[..], &[*value]].concat())
        };
        all.iter().flat_map(with).collect()
    })
}

/// Measures the profile of a disk as `tidegate profile` does, but only the steps that `keeps`
/// returns `true` for.
fn profile(
    entry: &Entry,
    quick: bool,
    keeps: impl Fn(&Step) -> bool,
) -> Result<Profile, ExperimentError> {
    let options = Options {
        quick,
        in_virtual_time: true,
        // The paper's queue depth.
        depth: Some(32),
        seed: 1,
    };
    let mut target = virtual_time::target(entry);
    if entry.spec().positioning == Nanos::ZERO {
        // All parts of a flash disk are alike, and a small one is conditioned sooner.
        target.span = target.span.min(FLASH_SPAN);
    }
    let plan = Plan::new(target, options);
    let mut plan = plan.map_err(|error| ExperimentError::data("disk", error))?;
    plan.steps.retain(keeps);
    let measured = virtual_time::measure_plan(entry, plan, |_| ControlFlow::Continue(()));
    let measured = measured.ok_or_else(|| ExperimentError::data("disk", "it was stopped"))?;
    (measured.profile()).map_err(|error| ExperimentError::data("disk", error))
}

/// Returns `true` for the steps on which fair shares depend: requests at saturation of the sizes
/// that [`shares`] has, and what precedes them.
fn tells_shares(step: &Step) -> bool {
    match step {
        Step::Fill | Step::Condition => true,
        Step::Measure(point) => {
            let mut all = Disk::ALL.into_iter().flat_map(shares);
            point.depth == Depth::Saturating && all.any(|(_, _, kib, _)| point.size == kib << 10)
        }
        Step::ReadsUnderWrites(_) => false,
    }
}

/// Fair shares of a disk: table, row, request size in KiB, and `true` for sequential.
fn shares(disk: Disk) -> &'static [(&'static str, &'static str, u32, bool)] {
    match disk {
        Disk::Ssd => &[
            ("figure 9", "vm1", 16, false),
            ("figure 9", "vm2", 64, false),
            ("figure 9", "vm3", 128, false),
            ("figure 10", "vm1", 16, true),
        ],
        Disk::Hdd => &[
            ("2", "vm1", 16, false),
            ("2", "vm2", 64, false),
            ("2", "vm3", 128, false),
            ("3", "vm1", 16, true),
        ],
    }
}

/// Fair shares by a profile, beside the paper's.
fn points(
    reference: &Reference,
    disk: Disk,
    profile: &Profile,
) -> Result<Vec<Residual>, ExperimentError> {
    let mut points = Vec::new();
    for &(table, vm, kib, sequential) in shares(disk) {
        let pattern = Pattern {
            reads: if sequential { 1.0 } else { 0.6 },
            sequential_reads: f64::from(u8::from(sequential)),
            sequential_writes: 0.0,
            size: f64::from(kib << 10),
        };
        let ours = profile.saturation_iops(&pattern, Estimation::ThreeD) / VMS;
        let cells = reference.table(table, 1)?.cells("vfair", |labels, column| {
            (labels == [vm] && column == "fair_share").then_some(ours)
        });
        points.extend(
            cells
                .into_iter()
                .filter(|cell| cell.calibrated)
                .map(|cell| Residual {
                    cell: format!("{}, {vm}, fair share", crate::findings::heading(table)),
                    theirs: cell.theirs,
                    ours,
                }),
        );
    }
    Ok(points)
}

/// IOPS of VM1 alone on a flash disk, on bare Linux or with this virtualisation delay per
/// direction.
fn alone(entry: &Entry, delay_us: Option<u64>) -> Result<f64, ExperimentError> {
    let native = delay_us.is_none();
    let key = Key::new(Case::NonBacklogged, Disk::Ssd, "fifo").with(Change::Alone { native });
    let mut scenario = setup::scenario(&key)?;
    for device in &mut scenario.devices {
        device.model = entry.clone();
    }
    if let Some(us) = delay_us {
        let each = Some(TimeDistribution::Fixed(Nanos::from_micros(us)));
        scenario.vms[0].delay = Delay {
            submit: each,
            complete: each,
            processor: None,
        };
    }
    let iops = Run::simulate(scenario).iops("vm1");
    Ok(iops.unwrap_or(0.0))
}

/// Value of `tried` whose result is nearest to `theirs`, with that result.
fn nearest(
    tried: &[u64],
    theirs: f64,
    of: impl Fn(u64) -> Result<f64, ExperimentError>,
) -> Result<(u64, f64), ExperimentError> {
    let mut best: Option<(f64, u64, f64)> = None;
    for &value in tried {
        let ours = of(value)?;
        let off = (ours / theirs).ln().abs();
        if best.is_none_or(|(least, ..)| off < least) {
            best = Some((off, value, ours));
        }
    }
    let (_, value, ours) = best.expect("something is tried");
    Ok((value, ours))
}

/// Searches the grids; returns the text of `calibration.toml` with the best fit.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let grids: Vec<(Disk, Vec<u64>)> = Disk::ALL
        .into_iter()
        .flat_map(|disk| grid(disk).into_iter().map(move |figures| (disk, figures)))
        .collect();
    let tried = pool::map_parallel(&grids, wanted.threads, progress, |(disk, figures)| {
        // Not the one in the disk's file, which is fitted afterwards.
        let overhead = (*disk == Disk::Ssd).then_some(0);
        let profile = profile(&entry(*disk, figures, overhead)?, false, tells_shares)?;
        points(&reference, *disk, &profile)
    });
    let mut text = format!(
        "# Written by `tidegate reproduce vfair --calibrate`: the best of a grid of {} for the \
         flash disk and of {} for the hard\n\
         # disk, by the root of the mean square of ln(ours / theirs) over the fair shares.\n",
        grid(Disk::Ssd).len(),
        grid(Disk::Hdd).len()
    );
    let tried: Vec<Vec<Residual>> = tried.into_iter().collect::<Result<_, _>>()?;
    let mut residuals = Vec::new();
    let mut all = grids.iter().zip(tried).collect::<Vec<_>>();
    // The sort is stable, so the first of equally good ones is taken.
    all.sort_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
    for disk in Disk::ALL {
        let best = all.iter().position(|((of, _), _)| *of == disk);
        let ((_, figures), points) = all.remove(best.expect("a grid is not empty"));
        let off = distance(&points);
        let _ = write!(text, "\n[{}]\n", disk.name());
        for (free, value) in free(disk).iter().zip(figures) {
            let _ = writeln!(text, "{} = \"{value} {}\"", free.path.join("."), free.unit);
        }
        if disk == Disk::Ssd {
            residuals.extend(by_vm1_alone(&reference, figures, &mut text)?);
        }
        let _ = writeln!(text, "rms_log_ratio = {off:.4}");
        residuals.extend(points);
    }
    fit::append_residuals(&mut text, &residuals, 1);
    Ok(text)
}

/// Fits the flash disk's read overhead and the virtualisation delay.
fn by_vm1_alone(
    reference: &Reference,
    figures: &[u64],
    text: &mut String,
) -> Result<Vec<Residual>, ExperimentError> {
    let theirs = ["native", "virtualised"].map(|of| reference.figure(&format!("alone.{of}")));
    let [native, virtualised] = theirs;
    let (native, virtualised) = (native?, virtualised?);
    let (overhead, on_linux) = nearest(OVERHEADS_US, native, |us| {
        alone(&entry(Disk::Ssd, figures, Some(us))?, None)
    })?;
    let disk = entry(Disk::Ssd, figures, Some(overhead))?;
    let (delay, in_vm) = nearest(DELAYS_US, virtualised, |us| alone(&disk, Some(us)))?;
    let _ = writeln!(text, "ssd.read_overhead = \"{overhead} us\"");
    let _ = writeln!(text, "virtualisation.each_way = \"{delay} us\"");
    let point = |name: &str, theirs, ours| Residual {
        cell: format!("figure 10, vm1 alone, {name}"),
        theirs,
        ours,
    };
    Ok(vec![
        point("native", native, on_linux),
        point("virtualised", virtualised, in_vm),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALIBRATION_TOML: &str = folder::embedded!("vfair", "calibration.toml");

    fn figure(section: &str, path: &[&str], unit: &str) -> u64 {
        let root: toml::Table = CALIBRATION_TOML.parse().expect("TOML");
        let value = path.iter().fold(&root[section], |value, key| &value[*key]);
        let text = value.as_str().expect("a figure with its unit");
        let number = text.strip_suffix(unit).expect(unit).trim();
        number.parse().expect("a whole number")
    }

    #[test]
    fn the_disks_carry_what_the_calibration_found() {
        for disk in Disk::ALL {
            let of = |free: &FreeParameter| figure(disk.name(), free.path, free.unit);
            let figures: Vec<u64> = free(disk).iter().map(of).collect();
            assert!(grid(disk).contains(&figures));
            let overhead = || figure("ssd", &["ssd", "read_overhead"], "us");
            let overhead = (disk == Disk::Ssd).then(overhead);
            let found = entry(disk, &figures, overhead).expect("a disk");
            let written = disk.entry().expect("a disk");
            assert_eq!(format!("{written:?}"), format!("{found:?}"));
        }
    }

    #[test]
    fn the_vms_have_the_delay_that_the_calibration_found() {
        let us = figure("ssd", &["virtualisation", "each_way"], "us");
        let each = Some(TimeDistribution::Fixed(Nanos::from_micros(us)));
        for case in [
            Case::LessBacklogged,
            Case::NonBacklogged,
            Case::Bursts,
            Case::Sysbench,
            Case::Postmark,
            Case::Dvdstore,
            Case::Qfs,
        ] {
            let scenario = setup::scenario(&Key::new(case, Disk::Ssd, "cfq")).expect("one");
            for vm in &scenario.vms {
                assert_eq!([vm.delay.submit, vm.delay.complete], [each; 2], "{case:?}");
            }
        }
    }

    /// Compares the profiles with measurements of the disks. The files were made by `tidegate
    /// profile experiments/vfair/ssd.toml --depth 32 --results experiments/vfair/ssd.profile.toml`,
    /// and likewise for the hard disk.
    #[test]
    fn the_profiles_are_those_of_the_disks() {
        for disk in Disk::ALL {
            let written = disk.profile().expect("a profile");
            // Fewer points, and less sure ones.
            let measured =
                profile(&disk.entry().expect("a disk"), true, |_| true).expect("a profile");
            for (kib, sequential, reads) in [
                (16, true, 1.0),
                (16, false, 0.0),
                (16, false, 1.0),
                (64, true, 0.0),
                (64, false, 0.5),
                (64, false, 1.0),
            ] {
                let sequential = f64::from(u8::from(sequential));
                let pattern = Pattern {
                    reads,
                    sequential_reads: sequential,
                    sequential_writes: sequential,
                    size: f64::from(kib << 10),
                };
                let [a, b] = [&written, &measured]
                    .map(|profile| profile.saturation_iops(&pattern, Estimation::ThreeD));
                let off = a / b - 1.0;
                assert!(off.abs() < 0.05, "{disk:?} {pattern:?}: {a} and {b}");
            }
        }
    }

    #[test]
    fn a_grid_has_every_combination_once() {
        let grid = grid(Disk::Hdd);
        assert_eq!(grid.len(), 5 * 3 * 5);
        let mut once = grid.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), grid.len());
    }
}
