//! Section 4.2 and figure 8: the three strategies on both disks.

use super::setup::{Case, Disk, Key};
use super::{Cells, Claims, Figure, Found, PAPER};
use crate::contest::competing;
use crate::findings::Sense;
use crate::said::Said;

pub(super) const FIGURE_8: Figure = Figure {
    name: "figure 8",
    keys,
    cells,
    claims,
    ..Figure::BARE
};

const STRATEGIES: [&str; 3] = ["vfair_bops", "vfair_baps", "vfair_bsps"];
const VMS: [&str; 3] = ["vm1", "vm2", "vm3"];

fn key(disk: Disk, strategy: &'static str) -> Key {
    Key::new(Case::NonBacklogged, disk, strategy)
}

fn keys() -> Vec<Key> {
    let disks = Disk::ALL.into_iter();
    disks
        .flat_map(|disk| STRATEGIES.map(|strategy| key(disk, strategy)))
        .collect()
}

/// Part b; part a is drawn and not told.
fn cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 8", 1)?;
    let cells = table.cells(PAPER.name, |labels, column| {
        let strategy = STRATEGIES
            .into_iter()
            .find(|s| Some(*s) == labels.first().map(String::as_str))?;
        let run = found.of(key(Disk::Hdd, strategy))?;
        match column {
            "utilisation_pct" => run.utilisation(),
            vm => run.iops(vm),
        }
    });
    Ok(competing(cells, |cell| {
        Some((
            format!("{} on the hard disk", cell.column),
            cell.row.clone(),
            Sense::More,
        ))
    }))
}

fn claims(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    for disk in Disk::ALL {
        let of = |vm: &str| -> Option<Vec<f64>> {
            let runs = STRATEGIES.iter().map(|s| found.of(key(disk, s))?.iops(vm));
            runs.collect()
        };
        let all: Option<Vec<Vec<f64>>> = VMS.iter().map(|vm| of(vm)).collect();
        let Some(all) = all else { continue };
        let name = disk.name().to_uppercase();
        let told =
            |vm: usize| format!("{:.0}, {:.0} and {:.0}", all[vm][0], all[vm][1], all[vm][2]);
        claims.push(Said::new(
            format!("VM1 has more under BAPS than under BOPS, and most under BSPS ({name})"),
            all[0][0] < all[0][1] && all[0][1] < all[0][2],
            format!("it has {} IOPS", told(0)),
        ));
        let fewer = |vm: usize| all[vm][2] < all[vm][1] && all[vm][2] < all[vm][0];
        claims.push(Said::new(
            format!("VM2 and VM3 have least under BSPS ({name})"),
            fewer(1) && fewer(2),
            format!("VM2 has {} IOPS, VM3 {}", told(1), told(2)),
        ));
        let busy = |strategy| found.of(key(disk, strategy))?.utilisation();
        if let (Some(baps), Some(bsps)) = (busy("vfair_baps"), busy("vfair_bsps")) {
            claims.push(Said::new(
                format!("the disk is used to 99 % under BAPS, and less under BSPS ({name})"),
                baps >= 99.0 && bsps < baps,
                format!("it is used to {baps:.1} % and to {bsps:.1} %"),
            ));
        }
    }
    Ok(claims)
}
