//! Section 5.1.1: three VMs on one disk. Figures 9 to 11, tables 2 to 4.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{BAPS, Cells, Figure, Found, PAPER, SCHEDULERS, single};
use crate::contest::competing;
use crate::findings::Sense;
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const VMS: [&str; 3] = ["vm1", "vm2", "vm3"];
/// As far off its fair share as a VM may be and still have it.
pub(super) const NEAR: f64 = 0.1;

/// Three VMs that share a disk, under each scheduler.
pub(super) struct Sharing {
    table: &'static str,
    case: Case,
    disk: Disk,
}

pub(super) const LESS_ON_SSD: Sharing = Sharing {
    table: "figure 9",
    case: Case::LessBacklogged,
    disk: Disk::Ssd,
};
pub(super) const NON_ON_SSD: Sharing = Sharing {
    table: "figure 10",
    case: Case::NonBacklogged,
    disk: Disk::Ssd,
};
const LESS_ON_HDD: Sharing = Sharing {
    table: "2",
    case: Case::LessBacklogged,
    disk: Disk::Hdd,
};
const NON_ON_HDD: Sharing = Sharing {
    table: "3",
    case: Case::NonBacklogged,
    disk: Disk::Hdd,
};

pub(super) const FIGURE_9: Figure = Figure {
    name: "figure 9",
    keys: || LESS_ON_SSD.keys(),
    cells: |found| LESS_ON_SSD.cells(found),
    claims: |found| Ok(LESS_ON_SSD.claims(found)),
    plots: |found| LESS_ON_SSD.plots(found),
    ..Figure::BARE
};

pub(super) const FIGURE_10: Figure = Figure {
    name: "figure 10",
    keys: || [NON_ON_SSD.keys(), ALONE.to_vec()].concat(),
    cells: |found| Ok([NON_ON_SSD.cells(found)?, alone(found)?].concat()),
    claims: |found| Ok(NON_ON_SSD.improved(found, 100.0, 2.35)),
    plots: |found| NON_ON_SSD.plots(found),
    ..Figure::BARE
};

pub(super) const TABLE_2: Figure = Figure {
    name: "2",
    keys: || LESS_ON_HDD.keys(),
    cells: |found| LESS_ON_HDD.cells(found),
    claims: |found| Ok(LESS_ON_HDD.claims(found)),
    ..Figure::BARE
};

pub(super) const TABLE_3: Figure = Figure {
    name: "3",
    keys: || NON_ON_HDD.keys(),
    cells: |found| NON_ON_HDD.cells(found),
    claims: |found| Ok(NON_ON_HDD.improved(found, 2.8, 2.1)),
    ..Figure::BARE
};

/// What a scheduler is called where people read of it.
fn called(scheduler: &str) -> &str {
    match scheduler {
        "cfq" => "CFQ",
        "mclock_ps" => "PS(mClock)",
        _ => "BAPS",
    }
}

impl Sharing {
    pub(super) fn key(&self, scheduler: &'static str) -> Key {
        Key::new(self.case, self.disk, scheduler)
    }

    fn keys(&self) -> Vec<Key> {
        SCHEDULERS.map(|scheduler| self.key(scheduler)).to_vec()
    }

    fn cells(&self, found: &Found<'_>) -> Cells {
        let table = found.reference.table(self.table, 1)?;
        let cells = table.cells(PAPER.name, |labels, column| {
            let vm = labels.first()?;
            if column == "fair_share" {
                return found.of(self.key("cfq"))?.fair_share(vm);
            }
            let scheduler = SCHEDULERS.into_iter().find(|name| *name == column)?;
            found.of(self.key(scheduler))?.iops(vm)
        });
        Ok(competing(cells, |cell| {
            let about = format!("IOPS of {}", cell.row);
            let rival = cell.column != "fair_share";
            rival.then(|| (about, cell.column.clone(), Sense::More))
        }))
    }

    /// A claim of this case and disk.
    fn told(&self, claim: impl std::fmt::Display) -> String {
        format!("{claim} ({})", crate::findings::heading(self.table))
    }

    /// The VMs' IOPS as parts of their fair shares.
    fn parts(&self, run: &Run) -> Option<[f64; 3]> {
        let part = |vm| Some(run.iops(vm)? / run.fair_share(vm)?);
        let [one, two, three] = VMS.map(part);
        Some([one?, two?, three?])
    }

    /// What is said of the case where all have enough outstanding.
    fn claims(&self, found: &Found<'_>) -> Vec<Said> {
        let mut claims = self.unfair(found);
        claims.extend(self.fair(found));
        claims
    }

    /// What the rivals do.
    fn unfair(&self, found: &Found<'_>) -> Vec<Said> {
        let mut claims = Vec::new();
        for scheduler in ["cfq", "mclock_ps"] {
            let run = found.of(self.key(scheduler));
            let Some([one, two, three]) = run.and_then(|run| self.parts(run)) else {
                continue;
            };
            let name = called(scheduler);
            let percent = |part: f64| format!("{:.0} %", 100.0 * part);
            claims.push(Said::new(
                self.told(format!("under {name} VM1 is far from its fair share")),
                one < 1.0 - 2.0 * NEAR,
                format!("it has {} of it", percent(one)),
            ));
            claims.push(Said::new(
                self.told(format!(
                    "under {name} VM2 and VM3 have more than their fair share"
                )),
                two > 1.0 && three > 1.0,
                format!("they have {} and {} of it", percent(two), percent(three)),
            ));
        }
        claims
    }

    /// What BAPS does where all have enough outstanding.
    fn fair(&self, found: &Found<'_>) -> Vec<Said> {
        let Some(run) = found.of(self.key(BAPS)) else {
            return Vec::new();
        };
        let mut claims = Vec::new();
        for (vm, part) in VMS.iter().zip(self.parts(run).unwrap_or_default()) {
            claims.push(Said::new(
                self.told(format!(
                    "BAPS gives {} its fair share, within {:.0} %",
                    vm.to_uppercase(),
                    100.0 * NEAR
                )),
                (part - 1.0).abs() <= NEAR,
                format!("it has {:.0} % of it", 100.0 * part),
            ));
        }
        claims.extend(self.used(run));
        claims
    }

    fn used(&self, run: &Run) -> Vec<Said> {
        let mut claims = Vec::new();
        if let Some(busy) = run.utilisation() {
            claims.push(Said::new(
                self.told("under BAPS the disk is used to 99 %"),
                busy >= 99.0,
                format!("it is used to {busy:.1} %"),
            ));
        }
        let latency = run.system_latency_ms();
        if let Some(latency) = latency.filter(|_| self.disk == Disk::Ssd) {
            claims.push(Said::new(
                self.told("under BAPS the system-wide latency is around 5 ms"),
                (4.0..=6.0).contains(&latency),
                format!("a request is with the disk for {latency:.2} ms in the mean"),
            ));
        }
        claims
    }

    /// What BAPS does where VM1 asks for one thing after the other: so many times what CFQ does,
    /// and so many times what PS(mClock) does.
    fn improved(&self, found: &Found<'_>, times_cfq: f64, times_mclock: f64) -> Vec<Said> {
        let vm1 = |scheduler| found.of(self.key(scheduler))?.iops("vm1");
        let all = SCHEDULERS.map(vm1);
        let ([Some(cfq), Some(mclock), Some(baps)], Some(run)) = (all, found.of(self.key(BAPS)))
        else {
            return Vec::new();
        };
        let mut claims: Vec<Said> = [("cfq", times_cfq, cfq), ("mclock_ps", times_mclock, mclock)]
            .into_iter()
            .map(|(rival, times, theirs)| {
                Said::new(
                    self.told(format!(
                        "BAPS gives VM1 {times} times what {} does",
                        called(rival)
                    )),
                    baps / theirs >= times * (1.0 - NEAR),
                    format!(
                        "it gives {:.1} times as much: {baps:.0} IOPS for {theirs:.0}",
                        baps / theirs
                    ),
                )
            })
            .collect();
        if let Some([one, two, three]) = self.parts(run) {
            let near = |part: f64| (part - 1.0).abs() <= NEAR;
            claims.push(Said::new(
                self.told(
                    "under BAPS VM2 and VM3 have their fair share, and VM1 less than its own",
                ),
                near(two) && near(three) && one < 1.0,
                format!(
                    "they have {:.0} and {:.0} %, VM1 {:.0} %",
                    100.0 * two,
                    100.0 * three,
                    100.0 * one
                ),
            ));
        }
        claims.extend(self.used(run));
        claims
    }

    /// A plot for each scheduler: the VMs' IOPS over time, beside their fair shares while all are
    /// there.
    fn plots(&self, found: &Found<'_>) -> Vec<Plot> {
        let of = |scheduler| Some((scheduler, found.of(self.key(scheduler))?));
        let runs = SCHEDULERS.into_iter().filter_map(of);
        let plot = |(scheduler, run): (&str, &Run)| {
            let mut plot = Plot::new(
                format!("{}: {}", capital(self.table), called(scheduler)),
                Axis::linear("time", Unit::Seconds).including(0.0),
                Axis::linear("IOPS", Unit::Number).including(0.0),
            );
            for vm in VMS {
                let rows = run
                    .rows
                    .iter()
                    .filter(|row| row.vm == vm && row.rates.iops > 0.0);
                plot.add(Series::line(vm).points(rows.map(|row| (row.time_s, row.rates.iops))));
            }
            plot
        };
        runs.map(plot).collect()
    }
}

fn capital(name: &str) -> String {
    name.replacen("figure", "Figure", 1)
}

/// VM1 alone, virtualised and on Linux itself.
const ALONE: [Key; 2] = [alone_key(false), alone_key(true)];

const fn alone_key(native: bool) -> Key {
    Key {
        case: Case::NonBacklogged,
        disk: Disk::Ssd,
        scheduler: "fifo",
        change: Change::Alone { native },
        without: super::Without::Nothing,
    }
}

fn alone(found: &Found<'_>) -> Cells {
    let mut cells = Vec::new();
    for (row, key) in ["virtualised", "native"].into_iter().zip(ALONE) {
        let theirs = found.reference.figure(&format!("alone.{row}"))?;
        let ours = found.of(key).and_then(|run| run.iops("vm1"));
        let row = format!("vm1 alone, {row}");
        let cell = single("figure 10", &row, "iops", theirs, ours);
        cells.extend(cell.map(|cell| crate::Cell {
            calibrated: true,
            ..cell
        }));
    }
    Ok(cells)
}
