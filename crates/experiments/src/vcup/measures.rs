//! Measures that `claims.toml` names, and claims that are no comparisons of them.

use super::run::Run;
use super::setup::Ablation;
use super::{
    RunResults, Vcup, capacity, drift, floors, keys, merging, servers, throughput, windows,
};
use crate::claim::{Item, Measure, Series, series};
use crate::frame::Code;

/// Runs by name.
const RUNS: &[&str] = &["keys/fq", "keys/vcup", "floors/1", "floors/2", "floors/3"];
const SCHEDULERS: &[&str] = &["fq", "vcup"];
const ORDERS: &[&str] = &["sequential", "random"];
/// Loads of figure 6 and of figure 7.
const FIXED: &[&str] = &["SR", "SW", "RR", "RW"];
const VARIED: &[&str] = &["SRvar", "RRvar", "SWvar"];

fn run<'a>(results: &RunResults<'a>, name: &str) -> Option<&'a Run> {
    results.run_for(match name {
        "keys/fq" => keys::key(keys::FQ),
        "keys/vcup" => keys::key(keys::VCUP),
        _ => floors::key(name.strip_prefix("floors/")?.parse().ok()?),
    })
}

/// Figure of each VM of a run.
fn of_each(
    results: &RunResults<'_>,
    name: &str,
    figure: impl Fn(&Run, usize) -> Option<f64>,
) -> Option<Series> {
    let run = run(results, name)?;
    let all = (0..run.vms().len()).map(|vm| figure(run, vm));
    Some(series(all.collect::<Option<Vec<f64>>>()?))
}

pub(super) const MEASURES: &[Measure<Vcup>] = &[
    // Factor between the most and the least over all merge limits, of bandwidth, throughput and
    // latency of 512 KiB reads.
    Measure {
        name: "merge_spreads",
        arguments: &[ORDERS],
        evaluate: |results, arguments| merging::largest_spreads(results, arguments[0]).map(series),
    },
    // Factor between the most and the least bandwidth, of reads of 32 to 512 KiB.
    Measure {
        name: "bandwidth_spreads",
        arguments: &[ORDERS],
        evaluate: |results, arguments| {
            merging::bandwidth_spreads(results, arguments[0]).map(series)
        },
    },
    // Limit in KiB from which on bandwidth of 512 KiB reads is flat, and the factor by which an I/O
    // takes longer at the largest limit than there.
    Measure {
        name: "flat",
        arguments: &[ORDERS, &["from", "times"]],
        evaluate: |results, arguments| {
            let flat = merging::flat_range(results, arguments[0])?;
            let figure = match arguments[1] {
                "from" => flat.limit_kib,
                _ => flat.latency_factor,
            };
            Some(series([figure]))
        },
    },
    // beta or V in percent at windows of 1 to 1024 ms, which are the labels.
    Measure {
        name: "by_window",
        arguments: &[FIXED, &["V", "beta"]],
        evaluate: |results, arguments| windows::by_window(results, arguments[0], arguments[1]),
    },
    // The search for a window: its label has the steps in words.
    Measure {
        name: "searched",
        arguments: &[VARIED],
        evaluate: |results, arguments| {
            let label = windows::searched(results, arguments[0])?;
            Some(vec![Item { label, value: 0.0 }])
        },
    },
    // Intervals that a search takes, and 1 where it ends.
    Measure {
        name: "search",
        arguments: &[VARIED, &["intervals", "settled"]],
        evaluate: |results, arguments| {
            let (intervals, settled) = windows::intervals(results, arguments[0])?;
            let settled = f64::from(u8::from(settled));
            let results = if arguments[1] == "settled" {
                settled
            } else {
                intervals
            };
            Some(series([results]))
        },
    },
    // V in percent from the end of a search on; none where it does not end.
    Measure {
        name: "settled_v",
        arguments: &[VARIED],
        evaluate: |results, arguments| Some(series([windows::settled_v(results, arguments[0])?])),
    },
    // V in percent in each of the first intervals, as it is or with what Tidegate adds.
    Measure {
        name: "first_v",
        arguments: &[VARIED, &["as it is", "added"]],
        evaluate: |results, arguments| match arguments[1] {
            "added" => windows::first_v(&windows::added(results), arguments[0]).map(series),
            _ => windows::first_v(results, arguments[0]).map(series),
        },
    },
    // The interval, from 1 on, from which on V stays below 5 % with what Tidegate adds.
    Measure {
        name: "steady_from",
        arguments: &[VARIED],
        evaluate: |results, arguments| {
            let added = windows::added(results);
            Some(series([windows::steady_from(&added, arguments[0])?]))
        },
    },
    // beta in percent of each step of the staircases, but of the last of mail.
    Measure {
        name: "step_beta",
        arguments: &[],
        evaluate: |results, _| servers::step_betas(results),
    },
    // V in percent of each step.
    Measure {
        name: "step_v",
        arguments: &[],
        evaluate: |results, _| servers::step_vs(results),
    },
    // Steps: all, and those whose V is below 20 %.
    Measure {
        name: "steps",
        arguments: &[&["all", "V below 20"]],
        evaluate: |results, arguments| {
            let below = servers::step_vs(results)?
                .into_iter()
                .filter(|v| v.value < 20.0);
            let below = below.count();
            let all = servers::step_count(results)?;
            Some(series([
                (if arguments[0] == "all" { all } else { below }) as f64
            ]))
        },
    },
    // MB/s of each VM.
    Measure {
        name: "mb_s",
        arguments: &[RUNS],
        evaluate: |results, arguments| of_each(results, arguments[0], |run, vm| Some(run.mb_s(vm))),
    },
    // Target of each VM, in MB/s.
    Measure {
        name: "target_mb_s",
        arguments: &[RUNS],
        evaluate: |results, arguments| {
            of_each(results, arguments[0], |run, vm| {
                Some(run.target(vm) as f64 / 1e6)
            })
        },
    },
    // V of each VM, in percent.
    Measure {
        name: "v",
        arguments: &[RUNS],
        evaluate: |results, arguments| of_each(results, arguments[0], Run::v),
    },
    // Mean latency of each VM's requests, in ms; of its I/Os with the array where those count.
    Measure {
        name: "latency",
        arguments: &[RUNS],
        evaluate: |results, arguments| {
            let of = match results.variant {
                Ablation::PerIo => Run::io_ms,
                _ => Run::latency_ms,
            };
            of_each(results, arguments[0], |run, vm| Some(of(run, vm)))
        },
    },
    // Mean time of each VM's requests with the array, in ms.
    Measure {
        name: "array_latency",
        arguments: &[RUNS],
        evaluate: |results, arguments| {
            of_each(results, arguments[0], |run, vm| Some(run.array_ms(vm)))
        },
    },
    // Mean number of each VM's requests with the array.
    Measure {
        name: "queue",
        arguments: &[RUNS],
        evaluate: |results, arguments| {
            of_each(results, arguments[0], |run, vm| Some(run.queue(vm)))
        },
    },
    // B of a VM in each ten seconds after the first minute, in percent.
    Measure {
        name: "errors",
        arguments: &[&["srvar", "swvar", "rrvar"]],
        evaluate: |results, arguments| drift::later_errors(results, arguments[0]).map(series),
    },
    // Mean latency over the VMs with 4 to 7 readers, in ms.
    Measure {
        name: "readers_latency",
        arguments: &[SCHEDULERS],
        evaluate: |results, arguments| {
            capacity::means(results, arguments[0], Run::latency_ms).map(series)
        },
    },
    // Mean time with the array over the VMs with 4 to 7 readers, in ms.
    Measure {
        name: "readers_array_latency",
        arguments: &[SCHEDULERS],
        evaluate: |results, arguments| {
            capacity::means(results, arguments[0], Run::array_ms).map(series)
        },
    },
    // Mean number of requests with the array over the VMs with 4 to 7 readers.
    Measure {
        name: "readers_queue",
        arguments: &[SCHEDULERS],
        evaluate: |results, arguments| {
            capacity::means(results, arguments[0], Run::queue).map(series)
        },
    },
    // IOPS of VM1 alone under mClock with a reservation and a limit, and V of it and its bandwidth.
    Measure {
        name: "alone",
        arguments: &[
            &["100 to 200", "100 to 250", "100 to 100"],
            &["iops", "V of IOPS", "V of bandwidth"],
        ],
        evaluate: |results, arguments| {
            Some(series([floors::of_alone(
                results,
                arguments[0],
                arguments[1],
            )?]))
        },
    },
    // V of the rate of each VM's I/Os, or of their mean size, in percent.
    Measure {
        name: "steadiness",
        arguments: &[&["vcup", "drr"], &["iops", "size"]],
        evaluate: |results, arguments| {
            throughput::of_each(results, arguments[0], arguments[1]).map(series)
        },
    },
];

pub(super) const CODE: &[(&str, Code<Vcup>)] = &[
    ("beyond", servers::inadequate_targets),
    ("convergence", servers::convergences),
];

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use crate::ExperimentError;
    use crate::claim::measure::Printed;
    use crate::claim::{self, Body, Call, Measures, Series};
    use crate::findings::tests::cell;
    use crate::{Cell, Reference, folder};

    /// Cells of a table in place of runs.
    struct Cells(Vec<Cell>);

    impl Measures for Cells {
        fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
            let reference = Reference::parse("")?;
            let printed = Printed::from_call(call).expect("a measure of cells");
            printed.series(&reference, |_| Ok(self.0.clone()))
        }
    }

    /// Outcome of a claim of the file for these cells, which are columns, theirs and ours; `None`
    /// if the claim is left out.
    fn holds(id: &str, cells: &[(&str, f64, f64)]) -> Option<bool> {
        let of = |(column, theirs, ours): &(&str, f64, f64)| Cell {
            column: (*column).to_owned(),
            ..cell(*theirs, *ours, false)
        };
        let cells = Cells(cells.iter().map(of).collect());
        let claims = claim::read(folder::embedded!("vcup", "claims.toml")).expect("claims");
        let spec = claims.iter().find(|spec| spec.id == id).expect(PAPER.name);
        let Body::Compared(claim) = &spec.body else {
            panic!("{id} is code");
        };
        let result = claim.evaluate(&cells).expect("cells");
        result.map(|result| result.with_ablations(&[]).holds)
    }

    #[test]
    fn two_points_above_the_paper_are_allowed_and_ten_per_cent_at_most() {
        let beta = |theirs, ours| {
            let cells = [("beta_pct", theirs, ours), ("beta_pct", 9.0, 1.0)];
            holds("beta-2", &cells).expect("cells")
        };
        assert!(beta(3.0, 5.0) && !beta(3.0, 5.1));
        assert!(beta(9.0, 10.0) && !beta(9.0, 10.1));
        assert_eq!(holds("beta-2", &[]), None);
    }

    #[test]
    fn v_is_compared_in_the_mean_and_with_fq_one_by_one() {
        let ours = [("v_vcup_pct", 10.0, 12.0), ("v_vcup_pct", 10.0, 7.0)];
        let fq = [("v_fq_pct", 12.5, 0.0), ("v_fq_pct", 7.0, 0.0)];
        assert_eq!(holds("v-2", &ours), Some(true));
        assert_eq!(holds("v-below-fq-2", &[ours, fq].concat()), Some(false));
        assert_eq!(holds("v-below-fq-2", &[ours[0], fq[0]]), Some(true));
    }
}
