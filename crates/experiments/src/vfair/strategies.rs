//! Section 4.2 and figure 8: the three strategies on both disks.

use super::setup::{Case, Disk, Key};
use super::{Cells, Figure, PAPER, RunResults};
use crate::findings::Sense;
use crate::ordering::with_orderings;

pub(super) const FIGURE_8: Figure = Figure {
    name: "figure 8",
    keys,
    cells,
    ..Figure::BARE
};

const STRATEGIES: [&str; 3] = ["vfair_bops", "vfair_baps", "vfair_bsps"];

fn key(disk: Disk, strategy: &'static str) -> Key {
    Key::new(Case::NonBacklogged, disk, strategy)
}

fn keys() -> Vec<Key> {
    Disk::ALL.into_iter().flat_map(keys_on).collect()
}

/// Runs on a disk, in the order of [`STRATEGIES`].
pub(super) fn keys_on(disk: Disk) -> [Key; 3] {
    STRATEGIES.map(|strategy| key(disk, strategy))
}

/// Part b; the paper draws part a without figures.
fn cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 8", 1)?;
    let cells = table.cells(PAPER.name, |labels, column| {
        let strategy = STRATEGIES
            .into_iter()
            .find(|s| Some(*s) == labels.first().map(String::as_str))?;
        let run = results.run_for(key(Disk::Hdd, strategy))?;
        match column {
            "utilisation_pct" => run.utilisation(),
            vm => run.iops(vm),
        }
    });
    Ok(with_orderings(cells, |cell| {
        Some((
            format!("{} on the hard disk", cell.column),
            cell.row.clone(),
            Sense::More,
        ))
    }))
}
