//! Section 5.4: as many sequential readers as the array can do. Figure 11, tables V and VI.

use super::run::Run;
use super::setup::{Case, Change, Key, Without};
use super::{Cells, Claims, Figure, Found, PAPER, goals};
use crate::Cell;
use crate::said::Said;

pub(super) const FIGURE_11: Figure = Figure {
    name: "figure 11",
    keys: || {
        ["fq", "vcup"]
            .into_iter()
            .flat_map(|s| READERS.map(|of| key(s, of)))
            .collect()
    },
    cells: totals,
    claims: compared,
    ..Figure::BARE
};

pub(super) const TABLE_5: Figure = Figure {
    name: "5",
    keys: || READERS.map(|of| key("vcup", of)).to_vec(),
    cells: |found| of_each(found, "5", Run::beta),
    claims: |found| {
        with_added(found, |found| {
            let cells = of_each(found, "5", Run::beta)?;
            Ok(goals::beta("table 5", &cells.iter().collect::<Vec<_>>()))
        })
    },
    ..Figure::BARE
};

pub(super) const TABLE_6: Figure = Figure {
    name: "6",
    keys: TABLE_5.keys,
    cells: |found| of_each(found, "6", Run::v),
    claims: |found| {
        with_added(found, |found| {
            let cells = of_each(found, "6", Run::v)?;
            Ok(goals::v("table 6", &cells.iter().collect::<Vec<_>>()))
        })
    },
    ..Figure::BARE
};

/// How many VMs, and the target of each in MB/s.
pub(super) const READERS: [(usize, u64); 4] = [(4, 60), (5, 55), (6, 50), (7, 45)];

pub(super) fn key(scheduler: &'static str, (count, target): (usize, u64)) -> Key {
    Key::new(Case::Readers, scheduler).with(Change::Vms { count, target })
}

/// The readers of a row, which begins with how many there are.
fn readers(labels: &[String]) -> Option<(usize, u64)> {
    let count: usize = labels.first()?.parse().ok()?;
    READERS.into_iter().find(|(vms, _)| *vms == count)
}

fn totals(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 11", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let of = readers(labels)?;
        let scheduler = if column == "total_fq_mb_s" {
            "fq"
        } else {
            "vcup"
        };
        found.of(key(scheduler, of)).map(Run::total_mb_s)
    }))
}

/// A figure of each VM.
fn of_each(found: &Found<'_>, table: &str, figure: fn(&Run, usize) -> Option<f64>) -> Cells {
    let table = found.reference.table(table, 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = found.of(key("vcup", readers(labels)?))?;
        let vm: usize = column.strip_prefix("vm")?.parse().ok()?;
        figure(run, vm.checked_sub(1)?)
    }))
}

/// A goal, and the same with what Tidegate adds.
pub(super) fn with_added(
    found: &Found<'_>,
    goal: impl Fn(&Found<'_>) -> Result<Option<Said>, crate::ExperimentError>,
) -> Claims {
    let mut claims: Vec<Said> = goal(found)?.into_iter().collect();
    if found.variant == Without::Nothing {
        claims.extend(goals::added(goal(&found.varied(Without::Letter))?));
    }
    Ok(claims)
}

/// Means over the VMs of a run.
fn mean(run: &Run, of: impl Fn(&Run, usize) -> f64) -> f64 {
    let vms = run.vms().len();
    (0..vms).map(|vm| of(run, vm)).sum::<f64>() / vms.max(1) as f64
}

fn compared(found: &Found<'_>) -> Claims {
    let pair = |of| Some((found.of(key("fq", of))?, found.of(key("vcup", of))?));
    let pairs: Option<Vec<(&Run, &Run)>> = READERS.into_iter().map(pair).collect();
    let Some(pairs) = pairs else {
        return Ok(Vec::new());
    };
    let less = |about: &str, of: &dyn Fn(&Run) -> f64, unit: &str| {
        let both: Vec<(f64, f64)> = pairs.iter().map(|(fq, vcup)| (of(fq), of(vcup))).collect();
        let shown = both
            .iter()
            .map(|(fq, vcup)| format!("{vcup:.1} after {fq:.1}"));
        Said::new(
            format!("{about} under V-Cup than under FQ (4 to 7 readers)"),
            both.iter().all(|(fq, vcup)| vcup < fq),
            format!("{}{unit}", shown.collect::<Vec<_>>().join(", ")),
        )
    };
    let cells: Vec<Cell> = totals(found)?;
    let vcup = goals::column(&cells, "total_vcup_mb_s");
    let fq = goals::column(&cells, "total_fq_mb_s");
    let shown = vcup.iter().zip(&fq);
    let shown = shown.map(|(vcup, fq)| format!("{:.1} after {:.1}", vcup.ours, fq.ours));
    let shown = shown.collect::<Vec<_>>().join(", ");
    Ok(vec![
        Said::new(
            "readers have more together under V-Cup than under FQ",
            vcup.iter().zip(&fq).all(|(vcup, fq)| vcup.ours > fq.ours),
            format!("they have {shown} MB/s"),
        ),
        Said::new(
            "the more readers there are, the more they have together under V-Cup",
            vcup.windows(2).all(|two| two[0].ours < two[1].ours),
            format!("they have {shown} MB/s"),
        ),
        less(
            "requests take less time",
            &|run| mean(run, Run::latency_ms),
            " ms",
        ),
        less(
            "fewer requests are with the array",
            &|run| mean(run, Run::queue),
            " a VM",
        ),
    ])
}
