//! Section 5.1.1: three VMs on one disk. Figures 9 to 11, tables 2 to 4.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{Cells, Figure, PAPER, RunResults, SCHEDULERS, single};
use crate::findings::Sense;
use crate::ordering::with_orderings;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const VMS: [&str; 3] = ["vm1", "vm2", "vm3"];

/// Three VMs that share a disk, under each scheduler.
pub(super) struct Sharing {
    pub(super) table: &'static str,
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

/// All combinations of case and disk.
pub(super) const ALL: [Sharing; 4] = [LESS_ON_SSD, NON_ON_SSD, LESS_ON_HDD, NON_ON_HDD];

pub(super) const FIGURE_9: Figure = Figure {
    name: "figure 9",
    keys: || LESS_ON_SSD.keys(),
    cells: |results| LESS_ON_SSD.cells(results),
    plots: |results| LESS_ON_SSD.plots(results),
    ..Figure::BARE
};

pub(super) const FIGURE_10: Figure = Figure {
    name: "figure 10",
    keys: || [NON_ON_SSD.keys(), ALONE.to_vec()].concat(),
    cells: |results| Ok([NON_ON_SSD.cells(results)?, alone(results)?].concat()),
    plots: |results| NON_ON_SSD.plots(results),
    ..Figure::BARE
};

pub(super) const TABLE_2: Figure = Figure {
    name: "2",
    keys: || LESS_ON_HDD.keys(),
    cells: |results| LESS_ON_HDD.cells(results),
    ..Figure::BARE
};

pub(super) const TABLE_3: Figure = Figure {
    name: "3",
    keys: || NON_ON_HDD.keys(),
    cells: |results| NON_ON_HDD.cells(results),
    ..Figure::BARE
};

/// Name of a scheduler in plots.
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

    fn cells(&self, results: &RunResults<'_>) -> Cells {
        let table = results.reference.table(self.table, 1)?;
        let cells = table.cells(PAPER.name, |labels, column| {
            let vm = labels.first()?;
            if column == "fair_share" {
                return results.run_for(self.key("cfq"))?.fair_share(vm);
            }
            let scheduler = SCHEDULERS.into_iter().find(|name| *name == column)?;
            results.run_for(self.key(scheduler))?.iops(vm)
        });
        Ok(with_orderings(cells, |cell| {
            let about = format!("IOPS of {}", cell.row);
            // The fair share is a yardstick, and no scheduler in the comparison.
            let rival = cell.column != "fair_share";
            rival.then(|| (about, cell.column.clone(), Sense::More))
        }))
    }

    /// Plots per scheduler: IOPS of the VMs over time.
    fn plots(&self, results: &RunResults<'_>) -> Vec<Plot> {
        let of = |scheduler| Some((scheduler, results.run_for(self.key(scheduler))?));
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

/// VM1 alone, virtualised and on bare Linux.
const ALONE: [Key; 2] = [alone_key(false), alone_key(true)];

const fn alone_key(native: bool) -> Key {
    Key {
        case: Case::NonBacklogged,
        disk: Disk::Ssd,
        scheduler: "fifo",
        change: Change::Alone { native },
        ablation: super::Ablation::Unchanged,
    }
}

fn alone(results: &RunResults<'_>) -> Cells {
    let mut cells = Vec::new();
    for (row, key) in ["virtualised", "native"].into_iter().zip(ALONE) {
        let theirs = results.reference.figure(&format!("alone.{row}"))?;
        let ours = results.run_for(key).and_then(|run| run.iops("vm1"));
        let row = format!("vm1 alone, {row}");
        let cell = single("figure 10", &row, "iops", theirs, ours);
        cells.extend(cell.map(|cell| crate::Cell {
            // The disk and the delay were fitted to these two figures.
            calibrated: true,
            ..cell
        }));
    }
    Ok(cells)
}
