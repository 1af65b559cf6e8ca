//! Sections 5.2 and 5.3: applications with small requests beside bulk transfers. Figures 13 and 14
//! and table 5.
//!
//! Figures that are compared with the paper are from three hosts, as there: vFair runs on each of
//! them, and its rivals where the requests of all hosts meet. (With one VM per host a rival that
//! runs on each has nothing to decide, and the paper's two differ.) Table 5 adds vFair on one host,
//! its rivals on three, and messages between hosts that are late or lost.

use super::hosts::Hosts;
use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{BAPS, Cells, Figure, PAPER, RunResults, SCHEDULERS};
use crate::findings::Sense;
use crate::ordering::with_orderings;

pub(super) const FIGURE_13: Figure = Figure {
    name: "figure 13",
    keys: || keys(&BESIDE_FILES),
    cells: |results| gains(results, "figure 13", &BESIDE_FILES),
    ..Figure::BARE
};

pub(super) const TABLE_5: Figure = Figure {
    name: "5",
    keys: || [keys(&BESIDE_FILES), keys(&BESIDE_QFS), other_hosts()].concat(),
    cells: table_5,
    ..Figure::BARE
};

pub(super) const FIGURE_14: Figure = Figure {
    name: "figure 14",
    keys: || keys(&BESIDE_QFS),
    cells: |results| gains(results, "figure 14", &BESIDE_QFS),
    ..Figure::BARE
};

/// Workloads that run side by side.
#[derive(Debug)]
pub(super) struct Mix {
    /// Name in table 5.
    pub(super) name: &'static str,
    /// Name of the application and of its VM.
    pub(super) application: &'static str,
    case: Case,
    /// `true` if the other VMs count as one party, not one each.
    pub(super) group: bool,
}

const BESIDE_FILES: [Mix; 3] = [
    Mix {
        name: "sysbench:ftp:scp",
        application: "sysbench",
        case: Case::Sysbench,
        group: false,
    },
    Mix {
        name: "postmark:ftp:scp",
        application: "postmark",
        case: Case::Postmark,
        group: false,
    },
    Mix {
        name: "dvdstore:ftp:scp",
        application: "dvdstore",
        case: Case::Dvdstore,
        group: false,
    },
];
const BESIDE_QFS: [Mix; 1] = [Mix {
    name: "sysbench:qfs",
    application: "sysbench",
    case: Case::Qfs,
    group: true,
}];

fn keys(mixes: &[Mix]) -> Vec<Key> {
    let keys = mixes.iter().flat_map(|mix| SCHEDULERS.map(|s| mix.key(s)));
    keys.collect()
}

pub(super) fn all_mixes() -> impl Iterator<Item = &'static Mix> {
    BESIDE_FILES.iter().chain(&BESIDE_QFS)
}

/// Schedulers that vFair is compared with.
pub(super) const RIVALS: [&str; 2] = ["cfq", "mclock_ps"];
const ONE_HOST: Change = Change::Hosts(Hosts::One);

/// Change with this delay of messages between hosts and this percentage of lost ones.
const fn with_messages(delay_ms: u64, lost_percent: u32) -> Change {
    Change::Hosts(Hosts::Told {
        delay_ms,
        lost_percent,
    })
}

/// Variants of the messages between hosts, by name in `claims.toml`.
const VARIED: [(&str, Change); 5] = [
    ("told at once", with_messages(0, 0)),
    ("told late", with_messages(30, 0)),
    ("told late or not", with_messages(30, 20)),
    ("in step", Change::Hosts(Hosts::InStep)),
    ("untold", with_messages(0, 100)),
];
/// Configurations of a mix, by name in `claims.toml`.
pub(super) const WAYS: &[&str] = &[
    "usual",
    "one host",
    "cfq on each",
    "mclock_ps on each",
    "told at once",
    "told late",
    "told late or not",
    "in step",
    "untold",
];
/// Names of the mixes in table 5.
pub(super) const MIXES: &[&str] = &[
    BESIDE_FILES[0].name,
    BESIDE_FILES[1].name,
    BESIDE_FILES[2].name,
    BESIDE_QFS[0].name,
];

/// Keys of runs that no figure of the paper has.
fn other_hosts() -> Vec<Key> {
    let of = |mix: &Mix| {
        let one = mix.key(BAPS).with(ONE_HOST);
        let rivals = RIVALS.map(|s| mix.on_each_host(s));
        let varied = VARIED.map(|(_, change)| change);
        let varied = varied.map(|change| mix.key(BAPS).with(change));
        rivals
            .into_iter()
            .chain([one])
            .chain(varied)
            .collect::<Vec<_>>()
    };
    all_mixes().flat_map(of).collect()
}

impl Mix {
    /// Key of the run that is compared with the paper.
    fn key(&self, scheduler: &'static str) -> Key {
        // Rivals run where the requests of all hosts meet, as in the paper.
        if RIVALS.contains(&scheduler) {
            self.on_each_host(scheduler).with(ONE_HOST)
        } else {
            self.on_each_host(scheduler)
        }
    }

    /// Key of the run with a scheduler on each of three hosts.
    pub(super) fn on_each_host(&self, scheduler: &'static str) -> Key {
        Key::new(self.case, Disk::Ssd, scheduler)
    }

    fn run<'a>(&self, results: &RunResults<'a>, scheduler: &'static str) -> Option<&'a Run> {
        results.run_for(self.key(scheduler))
    }

    fn others<'a>(&self, run: &'a Run) -> impl Iterator<Item = &'a str> + use<'a> {
        let application = self.application;
        let names = run.report.vms.iter().map(|vm| vm.name.as_str());
        names.filter(move |name| *name != application)
    }

    /// Service time of the application, relative to the mean of the others, or to their sum if they
    /// are a group.
    fn ratio(&self, run: &Run) -> Option<f64> {
        let others: Option<Vec<f64>> = self.others(run).map(|vm| run.service(vm)).collect();
        let others = others?;
        let parties = if self.group { 1 } else { others.len() };
        Some(run.service(self.application)? / (others.iter().sum::<f64>() / parties as f64))
    }

    /// Throughput of the others in bytes per second.
    fn bulk(&self, run: &Run) -> Option<f64> {
        self.others(run).map(|vm| run.bytes_per_s(vm)).sum()
    }

    /// Returns the gain of the application under BAPS over a rival.
    fn gain(&self, results: &RunResults<'_>, rival: &'static str) -> Option<Gain> {
        let (baps, rival) = (self.run(results, BAPS)?, self.run(results, rival)?);
        let iops = |run: &Run| run.iops(self.application);
        let cut = 1.0 - self.bulk(baps)? / self.bulk(rival)?;
        Some(Gain {
            iops_ratio: iops(baps)? / iops(rival)?,
            bulk_cut_pct: 100.0 * cut,
        })
    }
}

/// Gain of an application under BAPS over a rival scheduler, and its price.
pub(super) struct Gain {
    /// IOPS of the application under BAPS as a multiple of those under the rival.
    pub(super) iops_ratio: f64,
    /// Reduction of the other VMs' throughput in percent.
    pub(super) bulk_cut_pct: f64,
}

fn gains(results: &RunResults<'_>, table: &str, mixes: &[Mix]) -> Cells {
    let reference = results.reference.table(table, 1)?;
    Ok(reference.cells(PAPER.name, |labels, column| {
        let application = labels.first()?.as_str();
        let mix = mixes.iter().find(|mix| mix.application == application)?;
        match column {
            "over_cfq" => Some(mix.gain(results, "cfq")?.iops_ratio),
            "over_mclock" => Some(mix.gain(results, "mclock_ps")?.iops_ratio),
            "bulk_cut_vs_cfq_pct" => Some(mix.gain(results, "cfq")?.bulk_cut_pct),
            "bulk_cut_vs_mclock_pct" => Some(mix.gain(results, "mclock_ps")?.bulk_cut_pct),
            _ => None,
        }
    }))
}

fn table_5(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("5", 1)?;
    let cells = table.cells(PAPER.name, |labels, column| {
        let mix = all_mixes().find(|mix| Some(mix.name) == labels.first().map(String::as_str))?;
        let scheduler = SCHEDULERS.into_iter().find(|name| *name == column)?;
        mix.ratio(mix.run(results, scheduler)?)
    });
    Ok(with_orderings(cells, |cell| {
        Some((
            format!("share in {}", cell.row),
            cell.column.clone(),
            Sense::More,
        ))
    }))
}

fn named(name: &str) -> Option<&'static Mix> {
    all_mixes().find(|mix| mix.name == name)
}

/// Returns the gain of a mix's application under BAPS over a rival.
pub(super) fn gain(results: &RunResults<'_>, mix: &str, rival: &'static str) -> Option<Gain> {
    named(mix)?.gain(results, rival)
}

/// Service time of the application of a mix in one of the [`WAYS`].
pub(super) fn ratio(results: &RunResults<'_>, mix: &str, way: &str) -> Option<f64> {
    let mix = named(mix)?;
    let usual = mix.key(BAPS);
    let varied = VARIED.iter().find(|(name, _)| *name == way);
    let key = match way {
        "usual" => usual,
        "one host" => usual.with(ONE_HOST),
        "cfq on each" => mix.on_each_host("cfq"),
        "mclock_ps on each" => mix.on_each_host("mclock_ps"),
        // Other names are those of `VARIED`.
        _ => usual.with(varied?.1),
    };
    mix.ratio(results.run_for(key)?)
}
