//! Section 3.4 and figure 3.4: effect of priorities on bandwidths.

use super::basis::{Kind, experiments};
use super::key::{Case, Change, Key, Reading, UseCase};
use super::run::{Run, Second};
use super::{Claims, Figure, RunResults};
use crate::claim_result::ClaimResult;
use tidegate_core::transfers::Class;
use tidegate_report::{Axis, Plot, Series, Unit};

pub(super) const FIGURE_3_4: Figure = Figure {
    name: "figure 3.4",
    keys: || vec![impossible(), tight()],
    plots,
    ..Figure::BARE
};

/// Middle one of the experiments of a kind.
fn middle(kind: Kind) -> Key {
    let of_kind: Vec<usize> = experiments(UseCase::Two)
        .into_iter()
        .filter(|(_, of)| *of == kind)
        .map(|(n, _)| n)
        .collect();
    let middle = of_kind[of_kind.len() / 2];
    let change = Change::Experiment(middle);
    Key::new(Case::UseCase(UseCase::Two), "pridyn_3", change)
}

/// Run of figure 3.4a.
pub(super) fn impossible() -> Key {
    middle(Kind::Impossible)
}

/// Run of figure 3.4b.
fn tight() -> Key {
    middle(Kind::Tight)
}

/// Index of the reader.
const READER: usize = 0;
const WRITERS: [usize; 2] = [1, 2];

/// Mean of whole seconds, in MB/s.
fn mean_mb_s(seconds: &[Second]) -> f64 {
    let sum: f64 = seconds.iter().map(|second| second.bytes_per_s).sum();
    sum / seconds.len().max(1) as f64 / 1e6
}

/// Mean bandwidth of a VM's whole seconds up to `time` (in seconds), and from then on to its own
/// end, in MB/s.
fn around(run: &Run, vm: usize, time: f64) -> Option<(f64, f64)> {
    let seconds = run.seconds(vm);
    let (cut, end) = (time.floor() as usize, run.took(vm)?.floor() as usize);
    let before = seconds.get(..cut.min(end))?;
    // The second in which the other ended belongs to neither side.
    let after = seconds.get((cut + 1).min(end)..end)?;
    Some((mean_mb_s(before), mean_mb_s(after)))
}

/// Bandwidth of the reader of figure 3.4a before the first writer's end and after it, in MB/s.
pub(super) fn given_up(results: &RunResults<'_>) -> Option<(f64, f64)> {
    let run = results.run_for(impossible())?;
    let [Some(a), Some(b)] = WRITERS.map(|vm| run.took(vm)) else {
        return None;
    };
    around(run, READER, a.min(b))
}

/// Bandwidth of each writer of figure 3.4b before the reader's end and after it, in MB/s.
pub(super) fn beside_the_first(results: &RunResults<'_>) -> Option<Vec<(f64, f64)>> {
    let run = results.run_for(tight())?;
    let end = run.took(READER)?;
    WRITERS.iter().map(|vm| around(run, *vm, end)).collect()
}

/// Bandwidth of the reader of figure 3.4b until its end, in MB/s.
pub(super) fn served_first(results: &RunResults<'_>) -> Option<f64> {
    let run = results.run_for(tight())?;
    let end = run.took(READER)?;
    let seconds = run.seconds(READER).get(..end.floor() as usize)?;
    Some(mean_mb_s(seconds))
}

/// Largest number of class changes of a transfer without an oscillation: lowered or raised, given
/// up, restored.
pub(super) const TURNS: usize = 4;

/// Number of class changes of each VM's transfer.
fn turns(run: &Run) -> Vec<usize> {
    (0..run.vms().len()).map(|vm| run.turns(vm)).collect()
}

/// Evaluates the claim that no class oscillates.
pub(super) fn code(results: &RunResults<'_>) -> Claims {
    Ok(steady(results).into_iter().collect())
}

fn steady(results: &RunResults<'_>) -> Option<ClaimResult> {
    let both = |reading: Reading| -> Option<[Vec<usize>; 2]> {
        let results = results.varied(reading);
        let of = |key: Key| Some(turns(results.run_for(key)?));
        Some([of(impossible())?, of(tight())?])
    };
    let [a, b] = both(results.variant)?;
    let most = a.iter().chain(&b).copied().max()?;
    let mut detail =
        format!("those of the reader and the writers change {a:?} times in (a), {b:?} in (b)");
    // Once, beside the reading of the README; other readings do not compare themselves.
    if let (Reading::Ours, Some([a, b])) = (results.variant, both(Reading::Literal)) {
        detail += &format!("; with figure 3.3 as printed {a:?} and {b:?}");
    }
    Some(ClaimResult::new(
        format!("no class swings: the class of a job changes at most {TURNS} times"),
        most <= TURNS,
        detail,
    ))
}

fn plots(results: &RunResults<'_>) -> Vec<Plot> {
    let all = [
        ("a", "whose deadline cannot be met", impossible()),
        ("b", "that is served first", tight()),
    ];
    let runs = all
        .iter()
        .filter_map(|(part, what, key)| Some((part, what, results.run_for(*key)?)));
    let plot = |(part, what, run): (&&str, &&str, &Run)| {
        let mut plot = Plot::new(
            format!("Figure 3.4{part}: a reader {what}, beside two writers"),
            Axis::linear("time", Unit::Seconds).including(0.0),
            Axis::linear("bandwidth", Unit::BytesPerS).including(0.0),
        );
        for (vm, of) in run.vms().iter().enumerate() {
            let points = run.seconds(vm).iter().enumerate();
            let points = points.map(|(i, second)| (i as f64 + 1.0, second.bytes_per_s));
            plot.add(Series::line(of.name.as_str()).points(points));
        }
        plot
    };
    runs.map(plot).collect()
}

/// Returns `true` if a transfer of the VM ever had this class.
pub(super) fn was(run: &Run, vm: usize, class: Class) -> bool {
    run.seconds(vm)
        .iter()
        .any(|second| second.class == Some(class))
}
