//! Section 5.1.2 and figure 12: a VM that asks at a rate of its own beside one that always waits.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{BAPS, Cells, Claims, Figure, Found, PAPER};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_12: Figure = Figure {
    name: "figure 12",
    keys,
    cells,
    claims,
    plots,
    ..Figure::BARE
};

const RATES: [u32; 5] = [200, 400, 800, 1600, 3200];

fn key(rate: u32) -> Key {
    Key::new(Case::Bursts, Disk::Ssd, BAPS).with(Change::Rate(rate))
}

fn keys() -> Vec<Key> {
    RATES.map(key).to_vec()
}

fn runs<'a>(found: &Found<'a>) -> Option<Vec<&'a Run>> {
    RATES.iter().map(|rate| found.of(key(*rate))).collect()
}

fn cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 12", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = found.of(key(labels.first()?.parse().ok()?))?;
        match column {
            "vm1_iops" => run.iops("vm1"),
            "vm2_iops" => run.iops("vm2"),
            "utilisation_pct" => run.utilisation(),
            _ => None,
        }
    }))
}

fn claims(found: &Found<'_>) -> Claims {
    let Some(runs) = runs(found) else {
        return Ok(Vec::new());
    };
    let of = |vm: &str| -> Vec<f64> { runs.iter().filter_map(|run| run.iops(vm)).collect() };
    let (first, second) = (of("vm1"), of("vm2"));
    let busy = runs.iter().filter_map(|run| run.utilisation());
    let busy = busy.fold(f64::INFINITY, f64::min);
    let latency = runs.iter().filter_map(|run| run.system_latency_ms());
    let latency = latency.fold(0.0, f64::max);
    let shares = ["vm1", "vm2"].map(|vm| runs[0].fair_share(vm).unwrap_or(0.0));
    let listed = |all: &[f64]| {
        let all: Vec<String> = all.iter().map(|x| format!("{x:.0}")).collect();
        all.join(", ")
    };
    // Its own rate is reached where what is missing is no more than chance.
    let asked = RATES.map(f64::from);
    let served = first.iter().zip(asked).take(4);
    let reached = served.clone().all(|(had, asked)| *had >= 0.99 * asked);
    let (last, beside) = (first[first.len() - 1], second[second.len() - 1]);
    let near = |iops: f64, share: f64| (iops / share - 1.0).abs() <= 0.1;
    Ok(vec![
        Said::new(
            "VM1 has what it asks for, from 200 to 1600 IOPS",
            reached,
            format!("it has {} IOPS", listed(&first)),
        ),
        Said::new(
            "as VM1 asks for more, VM2 has less",
            second.windows(2).all(|two| two[1] < two[0]),
            format!("VM2 has {} IOPS", listed(&second)),
        ),
        Said::new(
            "at 3200 IOPS both have their fair share",
            near(last, shares[0].min(asked[4])) && near(beside, shares[1]),
            format!(
                "VM1 has {last:.0} IOPS of {:.0} asked for and a share of {:.0}, VM2 {beside:.0} of {:.0}",
                asked[4], shares[0], shares[1]
            ),
        ),
        Said::new(
            "the disk is used to 99 %, and the system-wide latency is around 5 ms",
            busy >= 99.0 && (4.0..=6.0).contains(&latency),
            format!(
                "it is used to {busy:.1} % at least, and a request takes {latency:.2} ms of it at most"
            ),
        ),
    ])
}

fn plots(found: &Found<'_>) -> Vec<Plot> {
    let Some(runs) = runs(found) else {
        return Vec::new();
    };
    let mut plot = Plot::new(
        "Figure 12: a VM that asks at a rate beside one that always waits",
        Axis::linear("VM1 asks for", Unit::Number).including(0.0),
        Axis::linear("IOPS", Unit::Number).including(0.0),
    );
    for vm in ["vm1", "vm2"] {
        let points = runs.iter().zip(RATES);
        let points = points.filter_map(|(run, rate)| Some((f64::from(rate), run.iops(vm)?)));
        plot.add(Series::line(vm).points(points));
    }
    vec![plot]
}
