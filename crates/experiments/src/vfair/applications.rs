//! Sections 5.2 and 5.3: applications of small requests beside bulk transfers. Figures 13 and 14
//! and table 5.
//!
//! What stands beside the paper's figures is on three hosts, as there: vFair runs on each of them,
//! and its rivals where the requests of all meet. (With a VM a host a rival that runs on each has
//! nothing to decide, and the paper's two differ.) Table 5 has vFair on one host as well, its
//! rivals on three, and what hosts tell each other late, or not at all.

use super::hosts::Hosts;
use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{BAPS, Cells, Claims, Figure, Found, PAPER, SCHEDULERS};
use crate::contest::competing;
use crate::findings::Sense;
use crate::said::Said;

pub(super) const FIGURE_13: Figure = Figure {
    name: "figure 13",
    keys: || keys(&BESIDE_FILES),
    cells: |found| gains(found, "figure 13", &BESIDE_FILES),
    claims: |found| faster(found, &BESIDE_FILES),
    ..Figure::BARE
};

pub(super) const TABLE_5: Figure = Figure {
    name: "5",
    keys: || [keys(&BESIDE_FILES), keys(&BESIDE_QFS), other_hosts()].concat(),
    cells: table_5,
    claims: |found| {
        let mut claims = fair(found)?;
        claims.extend(on_one_host(found));
        claims.extend(on_several_hosts(found));
        Ok(claims)
    },
    ..Figure::BARE
};

pub(super) const FIGURE_14: Figure = Figure {
    name: "figure 14",
    keys: || keys(&BESIDE_QFS),
    cells: |found| gains(found, "figure 14", &BESIDE_QFS),
    claims: |found| faster(found, &BESIDE_QFS),
    ..Figure::BARE
};

/// What runs beside each other.
struct Mix {
    /// As table 5 has it.
    name: &'static str,
    /// The application, and its VM.
    application: &'static str,
    case: Case,
    /// The others are one party together, not one each.
    group: bool,
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

fn all_mixes() -> impl Iterator<Item = &'static Mix> {
    BESIDE_FILES.iter().chain(&BESIDE_QFS)
}

/// What vFair is compared with.
const RIVALS: [&str; 2] = ["cfq", "mclock_ps"];
const ONE_HOST: Change = Change::Hosts(Hosts::One);

/// What hosts tell each other takes so many milliseconds, and so many of a hundred messages are
/// lost.
const fn told(delay_ms: u64, lost_percent: u32) -> Change {
    Change::Hosts(Hosts::Told {
        delay_ms,
        lost_percent,
    })
}

/// What should make no difference to several hosts: how a claim of it ends, and what is changed.
const VARIED: [(&str, Change); 4] = [
    ("when hosts hear of each other at once", told(0, 0)),
    ("when hosts hear of each other 30 ms late", told(30, 0)),
    (
        "when hosts hear of each other 30 ms late and a fifth is lost",
        told(30, 20),
    ),
    ("when hosts are in step", Change::Hosts(Hosts::InStep)),
];
const UNHEARD: Change = told(0, 100);

/// Runs that are no figure's of the paper.
fn other_hosts() -> Vec<Key> {
    let of = |mix: &Mix| {
        let one = mix.key(BAPS).with(ONE_HOST);
        let rivals = RIVALS.map(|s| mix.on_each_host(s));
        let varied = VARIED.map(|(_, change)| change);
        let varied = varied.into_iter().chain([UNHEARD]);
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
    /// As it is compared with the paper.
    fn key(&self, scheduler: &'static str) -> Key {
        match RIVALS.contains(&scheduler) {
            true => self.on_each_host(scheduler).with(ONE_HOST),
            false => self.on_each_host(scheduler),
        }
    }

    /// With a scheduler on each of three hosts.
    fn on_each_host(&self, scheduler: &'static str) -> Key {
        Key::new(self.case, Disk::Ssd, scheduler)
    }

    fn run<'a>(&self, found: &Found<'a>, scheduler: &'static str) -> Option<&'a Run> {
        found.of(self.key(scheduler))
    }

    fn others<'a>(&self, run: &'a Run) -> impl Iterator<Item = &'a str> + use<'a> {
        let application = self.application;
        let names = run.report.vms.iter().map(|vm| vm.name.as_str());
        names.filter(move |name| *name != application)
    }

    /// The application's service time where the others have 1 each, or all together.
    fn ratio(&self, run: &Run) -> Option<f64> {
        let others: Option<Vec<f64>> = self.others(run).map(|vm| run.service(vm)).collect();
        let others = others?;
        let parties = if self.group { 1 } else { others.len() };
        Some(run.service(self.application)? / (others.iter().sum::<f64>() / parties as f64))
    }

    /// The same of a run.
    fn ratio_of(&self, found: &Found<'_>, key: Key) -> Option<f64> {
        self.ratio(found.of(key)?)
    }

    /// Bytes that the others move a second.
    fn bulk(&self, run: &Run) -> Option<f64> {
        self.others(run).map(|vm| run.bytes_per_s(vm)).sum()
    }

    /// What BAPS gives the application as a multiple of what a rival does, and by how much the
    /// others are cut, in percent.
    fn gain(&self, found: &Found<'_>, rival: &'static str) -> Option<[f64; 2]> {
        let (baps, rival) = (self.run(found, BAPS)?, self.run(found, rival)?);
        let iops = |run: &Run| run.iops(self.application);
        let cut = 1.0 - self.bulk(baps)? / self.bulk(rival)?;
        Some([iops(baps)? / iops(rival)?, 100.0 * cut])
    }
}

fn gains(found: &Found<'_>, table: &str, mixes: &[Mix]) -> Cells {
    let reference = found.reference.table(table, 1)?;
    Ok(reference.cells(PAPER.name, |labels, column| {
        let application = labels.first()?.as_str();
        let mix = mixes.iter().find(|mix| mix.application == application)?;
        match column {
            "over_cfq" => Some(mix.gain(found, "cfq")?[0]),
            "over_mclock" => Some(mix.gain(found, "mclock_ps")?[0]),
            "bulk_cut_vs_cfq_pct" => Some(mix.gain(found, "cfq")?[1]),
            "bulk_cut_vs_mclock_pct" => Some(mix.gain(found, "mclock_ps")?[1]),
            _ => None,
        }
    }))
}

fn table_5(found: &Found<'_>) -> Cells {
    let table = found.reference.table("5", 1)?;
    let cells = table.cells(PAPER.name, |labels, column| {
        let mix = all_mixes().find(|mix| Some(mix.name) == labels.first().map(String::as_str))?;
        let scheduler = SCHEDULERS.into_iter().find(|name| *name == column)?;
        mix.ratio(mix.run(found, scheduler)?)
    });
    Ok(competing(cells, |cell| {
        Some((
            format!("share in {}", cell.row),
            cell.column.clone(),
            Sense::More,
        ))
    }))
}

fn faster(found: &Found<'_>, mixes: &[Mix]) -> Claims {
    let mut claims = Vec::new();
    for mix in mixes {
        let gain = |rival| mix.gain(found, rival);
        let (Some(cfq), Some(mclock)) = (gain("cfq"), gain("mclock_ps")) else {
            continue;
        };
        let all = [cfq, mclock];
        claims.push(Said::new(
            format!(
                "BAPS gives {} more than CFQ and PS(mClock) do, and the bulk transfers less ({})",
                mix.application, mix.name
            ),
            all.iter().all(|[times, cut]| *times > 1.0 && *cut > 0.0),
            format!(
                "it has {:.2} and {:.2} times as much, and the others {:.0} and {:.0} % less",
                cfq[0], mclock[0], cfq[1], mclock[1]
            ),
        ));
    }
    Ok(claims)
}

/// As far off the paper as a ratio may be.
const NEAR: f64 = 0.05;

fn fair(found: &Found<'_>) -> Claims {
    let mut claims = Vec::new();
    let cells = table_5(found)?;
    for row in cells.chunk_by(|a, b| a.row == b.row) {
        let of = |scheduler: &str| row.iter().find(|cell| cell.column == scheduler);
        let all: Option<Vec<_>> = SCHEDULERS.iter().map(|s| of(s)).collect();
        let Some([cfq, mclock, baps]) = all.as_deref() else {
            continue;
        };
        let mix = &baps.row;
        claims.push(Said::new(
            format!("BAPS gives {mix} {:.2} to 1, within {NEAR:.2}", baps.theirs),
            (baps.ours - baps.theirs).abs() <= NEAR,
            format!("it is {:.2}", baps.ours),
        ));
        claims.push(Said::new(
            format!("under PS(mClock) the share falls, and more so under CFQ ({mix})"),
            cfq.ours < mclock.ours && mclock.ours < baps.ours,
            format!(
                "it is {:.2} after {:.2}, and {:.2}",
                mclock.ours, baps.ours, cfq.ours
            ),
        ));
    }
    Ok(claims)
}

fn on_one_host(found: &Found<'_>) -> Vec<Said> {
    let mut claims = Vec::new();
    for mix in all_mixes() {
        let one = mix.ratio_of(found, mix.key(BAPS).with(ONE_HOST));
        let three = mix.ratio_of(found, mix.key(BAPS));
        let rivals = RIVALS.map(|s| mix.ratio_of(found, mix.on_each_host(s)));
        let (Some(baps), Some(three), [Some(cfq), Some(mclock)]) = (one, three, rivals) else {
            continue;
        };
        let mix = mix.name;
        claims.push(Said::new(
            format!("BAPS gives on three hosts what it gives on one, within {NEAR:.2} ({mix})"),
            (three - baps).abs() <= NEAR,
            format!("it is {three:.2} on three and {baps:.2} on one"),
        ));
        claims.push(Said::new(
            format!(
                "CFQ and PS(mClock) on each host have nothing to decide, within {NEAR:.2} ({mix})"
            ),
            (cfq - mclock).abs() <= NEAR,
            format!("they give {cfq:.2} and {mclock:.2}"),
        ));
    }
    claims
}

/// What BAPS's shares hang on where there are several hosts.
fn on_several_hosts(found: &Found<'_>) -> Vec<Said> {
    let ratios = |change: Change| -> Option<Vec<f64>> {
        all_mixes()
            .map(|mix| mix.ratio_of(found, mix.key(BAPS).with(change)))
            .collect()
    };
    let shown = |ratios: &[f64]| {
        let each = all_mixes().zip(ratios);
        let each: Vec<String> = each
            .map(|(mix, r)| format!("{r:.2} ({})", mix.name))
            .collect();
        each.join(", ")
    };
    let Some(usual) = ratios(Change::Nothing) else {
        return Vec::new();
    };
    let mut claims = Vec::new();
    for (phrase, change) in VARIED {
        let Some(then) = ratios(change) else { continue };
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= NEAR;
        claims.push(Said::new(
            format!("BAPS's shares are the same within {NEAR:.2} {phrase}"),
            usual.iter().zip(&then).all(near),
            format!("they are {}, usually {}", shown(&then), shown(&usual)),
        ));
    }
    if let Some(unheard) = ratios(UNHEARD) {
        claims.push(Said::new(
            "hosts that hear nothing of each other give the applications less under BAPS",
            usual.iter().zip(&unheard).all(|(heard, not)| not < heard),
            format!("it is {}, usually {}", shown(&unheard), shown(&usual)),
        ));
    }
    claims
}
