//! Measures that `claims.toml` names.

use super::run::Run;
use super::setup::{Disk, Key};
use super::{RunResults, SCHEDULERS, Vfair};
use super::{applications, bursts, fairness, motivation, strategies, varied};
use crate::claim::{Item, Measure, Series, series};

/// Names of runs in `claims.toml`, single ones or series:
///
/// - `1 to 32 outstanding`, `4 to 128 KiB`: figure 1, parts a and b, by the asynchronous reader's
///   queue depth and request size;
/// - `native`, `pinned`, `shared`: figure 1, part c, both readers in one system, in VMs with a pCPU
///   per vCPU, and in VMs whose vCPUs share all pCPUs;
/// - `delayed`: as `native`, with nothing but the virtualisation delay added;
/// - `strategies on ...`: each scheduling strategy on a disk;
/// - `TABLE/SCHEDULER`: three VMs that share a disk ([`fairness::ALL`]), in table 2 or 3 or figure
///   9 or 10 of the paper, under a scheduler;
/// - `0 to 100 % reads`, `depth 4`: figure 11 by VM1's read share, and table 4 at a queue depth;
/// - `200 to 3200 IOPS`: figure 12 by the rate that VM1 asks for.
const RUNS: &[&str] = &[
    "1 to 32 outstanding",
    "4 to 128 KiB",
    "native",
    "pinned",
    "shared",
    "delayed",
    "strategies on SSD",
    "strategies on HDD",
    "figure 9/cfq",
    "figure 9/mclock_ps",
    "figure 9/vfair_baps",
    "figure 10/cfq",
    "figure 10/mclock_ps",
    "figure 10/vfair_baps",
    "2/cfq",
    "2/mclock_ps",
    "2/vfair_baps",
    "3/cfq",
    "3/mclock_ps",
    "3/vfair_baps",
    "0 to 100 % reads",
    "depth 4",
    "200 to 3200 IOPS",
];

const VMS: &[&str] = &["vm1", "vm2", "vm3", "sync", "async"];

/// Keys of the runs with a name of [`RUNS`], each with a label in a series.
fn runs(name: &str) -> Vec<(String, Key)> {
    let labelled = |(label, key)| (format!("{label}"), key);
    let single = |key| vec![(String::new(), key)];
    if let Some((table, scheduler)) = name.split_once('/') {
        let sharing = fairness::ALL.iter().find(|sharing| sharing.table == table);
        let scheduler = SCHEDULERS.into_iter().find(|name| *name == scheduler);
        let both = sharing.zip(scheduler);
        return both.map_or_else(Vec::new, |(sharing, scheduler)| {
            single(sharing.key(scheduler))
        });
    }
    match name {
        "1 to 32 outstanding" => (motivation::by_outstanding().into_iter())
            .map(labelled)
            .collect(),
        "4 to 128 KiB" => motivation::by_size().into_iter().map(labelled).collect(),
        "native" => single(motivation::native()),
        "pinned" => single(motivation::in_vms(true)),
        "shared" => single(motivation::in_vms(false)),
        "delayed" => single(motivation::virtualised()),
        "strategies on SSD" => strategies::keys_on(Disk::Ssd).map(unlabelled).to_vec(),
        "strategies on HDD" => strategies::keys_on(Disk::Hdd).map(unlabelled).to_vec(),
        "0 to 100 % reads" => varied::ratios()
            .map(|reads| reads.to_string())
            .zip(varied::by_reads())
            .collect(),
        "depth 4" => single(varied::by_depth(4)),
        "200 to 3200 IOPS" => bursts::keys().into_iter().map(unlabelled).collect(),
        _ => Vec::new(),
    }
}

fn unlabelled(key: Key) -> (String, Key) {
    (String::new(), key)
}

/// Figure of each run with a name; `None` if a run is missing.
fn of_each(
    results: &RunResults<'_>,
    name: &str,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Option<Series> {
    let item = |(label, key)| {
        let value = figure(results.run_for(key)?)?;
        Some(Item { label, value })
    };
    runs(name).into_iter().map(item).collect()
}

pub(super) const MEASURES: &[Measure<Vfair>] = &[
    // Requests per second of a VM.
    Measure {
        name: "iops",
        arguments: &[RUNS, VMS],
        evaluate: |results, arguments| of_each(results, arguments[0], |run| run.iops(arguments[1])),
    },
    // Fair share of a VM, in requests per second.
    Measure {
        name: "share",
        arguments: &[RUNS, VMS],
        evaluate: |results, arguments| {
            of_each(results, arguments[0], |run| run.fair_share(arguments[1]))
        },
    },
    // Throughput of the asynchronous reader of figure 1, in units of 4 KiB per second.
    Measure {
        name: "units",
        arguments: &[RUNS],
        evaluate: |results, arguments| of_each(results, arguments[0], motivation::async_4k_per_s),
    },
    // Utilisation of the disk, in percent.
    Measure {
        name: "busy",
        arguments: &[RUNS],
        evaluate: |results, arguments| of_each(results, arguments[0], Run::utilisation),
    },
    // Mean time of a request with the disk over all VMs, in ms.
    Measure {
        name: "latency",
        arguments: &[RUNS],
        evaluate: |results, arguments| of_each(results, arguments[0], Run::system_latency_ms),
    },
    // Reads of VM1, in percent, at which it is farthest off its fair share.
    Measure {
        name: "farthest_reads",
        arguments: &[],
        evaluate: |results, _| Some(series([varied::farthest_reads(results)?])),
    },
    // Rates that VM1 of figure 12 asks for, in requests per second.
    Measure {
        name: "asked",
        arguments: &[],
        evaluate: |_, _| Some(series(bursts::RATES.map(f64::from))),
    },
    // Minimum of VM1's highest rate in figure 12 and its fair share, in requests per second.
    Measure {
        name: "due",
        arguments: &[],
        evaluate: |results, _| Some(series([bursts::due(results)?])),
    },
    // IOPS of an application under BAPS as a multiple of those under a rival.
    Measure {
        name: "times",
        arguments: &[applications::MIXES, &applications::RIVALS],
        evaluate: |results, arguments| {
            Some(series([applications::gain(
                results,
                arguments[0],
                arguments[1],
            )?
            .iops_ratio]))
        },
    },
    // Reduction of the bulk transfers' throughput under BAPS compared with a rival, in percent.
    Measure {
        name: "cut",
        arguments: &[applications::MIXES, &applications::RIVALS],
        evaluate: |results, arguments| {
            Some(series([applications::gain(
                results,
                arguments[0],
                arguments[1],
            )?
            .bulk_cut_pct]))
        },
    },
    // Service time of an application relative to the mean of the others.
    Measure {
        name: "ratio",
        arguments: &[applications::MIXES, applications::WAYS],
        evaluate: |results, arguments| {
            Some(series([applications::ratio(
                results,
                arguments[0],
                arguments[1],
            )?]))
        },
    },
    // Relative service time of each application, by its name.
    Measure {
        name: "ratios",
        arguments: &[applications::WAYS],
        evaluate: |results, arguments| {
            let item = |mix: &&str| {
                let label = (*mix).to_owned();
                let value = applications::ratio(results, mix, arguments[0])?;
                Some(Item { label, value })
            };
            applications::MIXES.iter().map(item).collect()
        },
    },
];
