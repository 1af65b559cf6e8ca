//! Section 5.2: key-value stores of different layouts. Table II and figure 9.

use super::run::{Run, Second, mean};
use super::setup::{Case, Key, Without};
use super::{Cells, Claims, Figure, Found, PAPER, goals};
use crate::said::Said;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const TABLE_2: Figure = Figure {
    name: "2",
    keys,
    cells: table_2,
    claims: precise,
    ..Figure::BARE
};

pub(super) const FIGURE_9: Figure = Figure {
    name: "figure 9",
    keys,
    claims: compared,
    plots: curves,
    ..Figure::BARE
};

const FQ: &str = "fq";
const VCUP: &str = "vcup";

fn key(scheduler: &'static str) -> Key {
    Key::new(Case::Keys, scheduler)
}

fn keys() -> Vec<Key> {
    vec![key(FQ), key(VCUP)]
}

/// The columns of tables II and IV, of a VM under FQ and V-Cup.
pub(super) fn consolidated(vm: &str, column: &str, fq: &Run, vcup: &Run) -> Option<f64> {
    match column {
        "measured_mb_s" => Some(vcup.mb_s(vcup.place(vm)?)),
        "beta_pct" => vcup.beta(vcup.place(vm)?),
        "v_vcup_pct" => vcup.v(vcup.place(vm)?),
        "v_fq_pct" => fq.v(fq.place(vm)?),
        _ => None,
    }
}

/// What tables II and IV are held to; `table` has their cells.
pub(super) fn held(found: &Found<'_>, about: &str, table: fn(&Found<'_>) -> Cells) -> Claims {
    let goals_of = |found: &Found<'_>| -> Result<[Option<Said>; 3], crate::ExperimentError> {
        let cells = table(found)?;
        let [beta, v, fq] =
            ["beta_pct", "v_vcup_pct", "v_fq_pct"].map(|name| goals::column(&cells, name));
        Ok([
            goals::beta(about, &beta),
            goals::below_fq(about, &v, &fq),
            goals::v(about, &v),
        ])
    };
    let mut claims: Vec<Said> = goals_of(found)?.into_iter().flatten().collect();
    if found.variant == Without::Nothing {
        let added = goals_of(&found.varied(Without::Letter))?;
        claims.extend(added.into_iter().filter_map(goals::added));
    }
    Ok(claims)
}

fn runs<'a>(found: &Found<'a>) -> Option<(&'a Run, &'a Run)> {
    Some((found.of(key(FQ))?, found.of(key(VCUP))?))
}

fn table_2(found: &Found<'_>) -> Cells {
    let table = found.reference.table("2", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let (fq, vcup) = runs(found)?;
        consolidated(&labels[0], column, fq, vcup)
    }))
}

fn precise(found: &Found<'_>) -> Claims {
    let mut claims = held(found, "table 2", table_2)?;
    if let Some((fq, vcup)) = runs(found) {
        let vms = 0..vcup.vms().len();
        let v: Vec<(f64, f64)> = vms
            .filter_map(|vm| Some((fq.v(vm)?, vcup.v(vm)?)))
            .collect();
        let shown: Vec<String> = v
            .iter()
            .map(|(fq, vcup)| format!("{vcup:.2} after {fq:.2}"))
            .collect();
        claims.push(Said::new(
            "V of each key-value VM is smaller under V-Cup than under FQ",
            v.iter().all(|(fq, vcup)| vcup < fq),
            format!("it is {} %", shown.join(", ")),
        ));
    }
    Ok(claims)
}

/// A figure of each VM, as a list.
fn of_all(run: &Run, of: impl Fn(&Run, usize) -> f64) -> Vec<f64> {
    (0..run.vms().len()).map(|vm| of(run, vm)).collect()
}

fn listed(all: &[f64]) -> String {
    let all: Vec<String> = all.iter().map(|x| format!("{x:.2}")).collect();
    all.join(", ")
}

fn compared(found: &Found<'_>) -> Claims {
    let Some((fq, vcup)) = runs(found) else {
        return Ok(Vec::new());
    };
    let bandwidth = of_all(fq, Run::mb_s);
    let [before, after] = [fq, vcup].map(|run| of_all(run, Run::latency_ms));
    let [queues, tuned] = [fq, vcup].map(|run| of_all(run, Run::queue));
    let held = of_all(vcup, Run::mb_s);
    let least = |all: &[f64]| all[1..].iter().all(|other| all[0] < *other);
    let most = |all: &[f64]| all[1..].iter().all(|other| all[0] > *other);
    Ok(vec![
        Said::new(
            "under FQ VM1 has less bandwidth than any other VM, and its requests take longer",
            least(&bandwidth) && most(&before),
            format!(
                "VMs have {} MB/s, and requests take {} ms",
                listed(&bandwidth),
                listed(&before)
            ),
        ),
        Said::new(
            "under V-Cup each key-value VM has 5 MB/s within 5 %",
            held.iter().all(|mb_s| (mb_s / 5.0 - 1.0).abs() <= 0.05),
            format!("they have {} MB/s", listed(&held)),
        ),
        Said::new(
            "requests of each key-value VM take less time under V-Cup than under FQ",
            before.iter().zip(&after).all(|(fq, vcup)| vcup < fq),
            format!("they take {} ms after {}", listed(&after), listed(&before)),
        ),
        Said::new(
            "VM2 to VM4 have fewer requests with the array under V-Cup than under FQ",
            queues[1..]
                .iter()
                .zip(&tuned[1..])
                .all(|(fq, vcup)| vcup < fq),
            format!("VMs have {} after {}", listed(&tuned), listed(&queues)),
        ),
        Said::new(
            "under V-Cup VM1 has more requests with the array than any other",
            most(&tuned),
            format!("VMs have {}", listed(&tuned)),
        ),
    ])
}

fn curves(found: &Found<'_>) -> Vec<Plot> {
    let Some((fq, vcup)) = runs(found) else {
        return Vec::new();
    };
    [("FQ", fq), ("V-Cup over FQ", vcup)]
        .map(|(name, run)| bandwidths(&format!("Figure 9: four key-value VMs under {name}"), run))
        .into()
}

/// Each VM's bandwidth, by ten seconds.
pub(super) fn bandwidths(title: &str, run: &Run) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::linear("time", Unit::Seconds).including(0.0),
        Axis::linear("bandwidth", Unit::BytesPerS).including(0.0),
    );
    for (vm, of) in run.vms().iter().enumerate() {
        let tens = run.all_seconds(vm).chunks_exact(10).enumerate();
        let of_ten = |seconds: &[Second]| mean(seconds, |second| second.bytes);
        let points = tens.map(|(i, seconds)| (10.0 * (i + 1) as f64, of_ten(seconds)));
        plot.add(Series::line(of.name.as_str()).points(points));
    }
    plot
}
