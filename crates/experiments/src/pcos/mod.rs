//! PCOS: section 5.4 of Jain's thesis, figures 5.11 to 5.14, and section 5.1.1's need for it.
//!
//! ```text
//!   house (PriDyn's streams, VMs for newcomers) --learning--> database
//!     |                                                          |
//!     +--> stage: the simulator <--look, begin-- gate: Pcos <----+
//!                   | again                        | each decision
//!                   +------------> oracle <--------+ audit
//! ```
//!
//! `run` has requests considered one after the other, `figures` is what the thesis shows of that,
//! `goals` how PCOS stands beside the oracle, `measures` which figures of that claims name. The
//! folder's README says what was read how.

mod audit;
mod figures;
mod gate;
mod goals;
mod house;
mod learning;
mod measures;
mod oracle;
mod run;
mod stage;

use crate::claim::{self, Call, ClaimSpec, Measures, Series, Subject};
use crate::pridyn::folder::{Folder, TRACES};
use crate::said::Said;
use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted, folder, pool};
use audit::Audit;
use gate::{Exact, Foreseeing, Gate, Open, Prescient, Shut};
use house::{Case, House, Setting};
use learning::Learnt;
use oracle::Oracle;
use run::Outcome;
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;
use tidegate_report::Plot;

pub(crate) const PAPER: Paper = Paper {
    name: "pcos",
    title: "PCOS: Prescient Cloud I/O Scheduler, chapter 5 of PriDyn's thesis",
    tables: &[
        "section 5.1.1",
        "figure 5.11",
        "figure 5.12",
        "figure 5.13",
        "figure 5.14",
        "acceptance",
    ],
    curves: &[
        "section 5.1.1",
        "figure 5.11",
        "figure 5.12",
        "figure 5.13",
        "figure 5.14",
    ],
    traces: TRACES,
    reproduce,
    calibrate: None,
};

const PAPER_TOML: &str = folder::embedded!("pcos", "paper.toml");
const CLAIMS: &str = folder::embedded!("pcos", "claims.toml");

/// One of the thesis' figures, or what is asked beyond them.
struct Figure {
    name: &'static str,
    /// The runs that it is made of, where this is done so.
    keys: fn(Way) -> Vec<Key>,
    plots: fn(&Found<'_>) -> Vec<Plot>,
    /// What shows what a claim hangs on.
    others: &'static [Way],
}

const FIGURES: [Figure; 6] = [
    figures::SECTION_5_1_1,
    figures::FIGURE_5_11,
    figures::FIGURE_5_12,
    figures::FIGURE_5_13,
    figures::FIGURE_5_14,
    goals::ACCEPTANCE,
];

/// How PCOS decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    /// As Tidegate's does.
    Ours,
    /// As figure 5.8 is printed: nobody is let in while somebody is late, with or without it.
    Printed,
    /// Forecasts reckon with the ends of jobs.
    Ends,
}

/// A way to do it all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Way {
    setting: Setting,
    rule: Rule,
}

impl Way {
    const OURS: Way = Way::new(Setting::One, Rule::Ours);

    const fn new(setting: Setting, rule: Rule) -> Way {
        Way { setting, rule }
    }

    /// How a sentence about it begins.
    fn phrase(self) -> String {
        let setting = match self.setting {
            Setting::One => "",
            Setting::Several => "with four VMs more",
            Setting::Long => "with four VMs more and requests a hundred times as large",
            Setting::Asked => "with such requests and nothing that was not asked for",
            Setting::Limited => {
                "with such requests, nothing that was not asked for and every other VM limited"
            }
            Setting::Told => {
                "with such requests, nothing that was not asked for, every other VM limited and \
                 that told"
            }
        };
        let rule = match self.rule {
            Rule::Ours => "",
            Rule::Printed => "with figure 5.8 as printed",
            Rule::Ends => "with forecasts that reckon with the ends of jobs",
        };
        let both = [rule, setting].into_iter().filter(|part| !part.is_empty());
        let both = both.collect::<Vec<_>>().join(" and ");
        both.replacen("with", "With", 1)
    }
}

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Nobody,
    Everybody,
    Pcos(Rule),
    /// The same, with each decision tried.
    Audited(Rule),
    Oracle,
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    setting: Setting,
    case: Case,
    /// Delta of the media servers, in thousandths.
    tolerance: u32,
    who: Who,
}

impl Key {
    /// For how long requests are considered.
    fn length(&self) -> Nanos {
        let judged = matches!(self.who, Who::Audited(_) | Who::Oracle);
        match (self.setting, judged) {
            (Setting::One | Setting::Several, true) => Nanos::from_secs(8),
            (Setting::One | Setting::Several, false) => Nanos::from_secs(120),
            (_, true) => Nanos::from_secs(120),
            (_, false) => Nanos::from_secs(1200),
        }
    }
}

/// What came of a run.
struct Ran {
    outcome: Outcome,
    audit: Audit,
}

/// Runs, by their keys.
type Runs = BTreeMap<Key, Ran>;

/// What came of the runs that were done one way.
struct Found<'a> {
    reference: &'a Reference,
    runs: &'a Runs,
    way: Way,
}

/// The experiment, as a subject of claims.
struct Pcos;

impl Subject for Pcos {
    type Results<'a> = Found<'a>;
}

impl Measures for Found<'_> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        let measures = (&[measures::MEASURES][..], self);
        claim::measure::figures(call, measures, self.reference, |_| Ok(Vec::new()))
    }
}

impl<'a> Found<'a> {
    fn of(&self, case: Case, tolerance: u32, who: Who) -> Option<&'a Ran> {
        self.runs.get(&Key {
            setting: self.way.setting,
            case,
            tolerance,
            who,
        })
    }

    /// Claims of the file about a figure, as far as their runs are there.
    fn claims(&self, specs: &[ClaimSpec], figure: &str) -> Result<Vec<Said>, ExperimentError> {
        let mut claims = Vec::new();
        for spec in specs.iter().filter(|spec| spec.part == figure) {
            claims.extend(spec.evaluate(self)?);
        }
        Ok(claims)
    }
}

/// It ends long after all that is asked of it.
const FOR_EVER: Nanos = Nanos::from_secs(100_000);

fn ran(key: &Key, learnt: &Learnt, folder: &Folder) -> Result<Ran, ExperimentError> {
    let house = House::new(key.setting, key.case, key.tolerance, folder)?;
    let scenario = house.running(&learnt.capacity, FOR_EVER);
    let end = key.length();
    let mut gate: Box<dyn Gate> = match key.who {
        Who::Nobody => Box::new(Shut),
        Who::Everybody => Box::new(Open),
        Who::Pcos(Rule::Ends) | Who::Audited(Rule::Ends) => Box::new(Foreseeing::new(learnt)),
        Who::Pcos(rule) | Who::Audited(rule) => {
            Box::new(Prescient::new(learnt, key.setting, rule == Rule::Printed))
        }
        Who::Oracle => Box::new(Exact(Oracle::new(end))),
    };
    let outcome = run::run(&house, &scenario, &learnt.capacity, gate.as_mut(), end);
    let audit = match key.who {
        Who::Audited(_) => Audit::of(&house, &scenario, &outcome, end),
        _ => Audit::default(),
    };
    Ok(Ran { outcome, audit })
}

/// The runs that are wanted.
fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let figures = FIGURES.iter().filter(|figure| wanted.wants(figure.name));
    let mut keys: Vec<Key> = figures
        .flat_map(|figure| {
            let others = figure.others.iter().flat_map(|other| (figure.keys)(*other));
            (figure.keys)(Way::OURS).into_iter().chain(others)
        })
        .collect();
    // The longest first, so that no core waits for the last of them.
    keys.sort_by_key(|key| std::cmp::Reverse((key.who, *key)));
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let folder = Folder {
        traces: wanted.traces.clone(),
        ..Folder::default()
    };
    let runs = run_all(&wanted_runs(wanted), &folder, wanted.jobs, progress)?;
    gather(&runs, wanted)
}

/// Learns of all hosts, then runs.
fn run_all(
    keys: &[Key],
    folder: &Folder,
    jobs: usize,
    progress: Progress<'_>,
) -> Result<Runs, ExperimentError> {
    let mut hosts: Vec<(Setting, Case)> = keys.iter().map(|key| (key.setting, key.case)).collect();
    hosts.sort();
    hosts.dedup();
    let all = hosts.len() + keys.len();
    let learn = |&(setting, case): &(Setting, Case)| Learnt::of(setting, case, folder);
    let learnt = pool::each(&hosts, jobs, &mut |done, _| progress(done, all), learn);
    let learnt = learnt.into_iter().collect::<Result<Vec<_>, _>>()?;
    let learnt: BTreeMap<_, _> = hosts.iter().copied().zip(learnt).collect();
    let mut hear = |done: usize, _: usize| progress(hosts.len() + done, all);
    let done = pool::each(keys, jobs, &mut hear, |key| {
        ran(key, &learnt[&(key.setting, key.case)], folder)
    });
    let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(keys.iter().copied().zip(done).collect())
}

/// What the thesis says, and whether it is so.
fn gather(runs: &Runs, wanted: &Wanted) -> Result<Findings, ExperimentError> {
    let reference = &Reference::parse(PAPER_TOML)?;
    let specs = claim::read(CLAIMS)?;
    let mut findings = Findings::default();
    let of = |way: Way| Found {
        reference,
        runs,
        way,
    };
    for figure in FIGURES.iter().filter(|figure| wanted.wants(figure.name)) {
        let mut others = Vec::new();
        for other in figure.others {
            others.push((other.phrase(), of(*other).claims(&specs, figure.name)?));
        }
        let claims = of(Way::OURS).claims(&specs, figure.name)?;
        let claims = claims.into_iter();
        findings.append(Findings {
            claims: claims.map(|said| said.hangs_on(&others)).collect(),
            plots: (figure.plots)(&of(Way::OURS)),
            ..Findings::default()
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_listed_and_every_curve_is_of_one() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names, PAPER.tables);
        assert!(PAPER.curves.iter().all(|curve| names.contains(curve)));
    }

    #[test]
    fn deltas_are_those_of_the_paper() {
        let paper = Reference::parse(PAPER_TOML).expect("the thesis'");
        for (case, name) in [
            (Case::Web, "delta_strict"),
            (Case::Research, "delta_delay_tolerant"),
        ] {
            let delta = paper.figure(&format!("parameters.{name}")).expect("there");
            assert_eq!(case.tolerance(), (delta * 1e3) as u64);
        }
    }

    #[test]
    fn what_was_not_run_is_left_out() {
        let found = gather(&Runs::new(), &Wanted::default()).expect("figures");
        assert_eq!((found.claims.len(), found.plots.len()), (0, 0));
    }

    /// A run of some seconds at a delta of 2.5, with what was learnt.
    fn short(who: Who, end: Nanos) -> Ran {
        let (setting, case, folder) = (Setting::One, Case::Research, Folder::default());
        let learnt = Learnt::of(setting, case, &folder).expect("a host");
        let house = House::new(setting, case, 2500, &folder).expect("a host");
        let scenario = house.running(&learnt.capacity, FOR_EVER);
        let mut gate: Box<dyn Gate> = match who {
            Who::Everybody => Box::new(Open),
            Who::Oracle => Box::new(Exact(Oracle::new(end))),
            _ => Box::new(Prescient::new(&learnt, setting, false)),
        };
        let outcome = run::run(&house, &scenario, &learnt.capacity, gate.as_mut(), end);
        let audit = Audit::of(&house, &scenario, &outcome, end);
        Ran { outcome, audit }
    }

    #[test]
    fn the_oracle_s_own_decisions_stand_when_they_are_tried_and_open_doors_do_harm() {
        let end = Nanos::from_secs(4);
        let oracle = short(Who::Oracle, end);
        assert!(oracle.audit.let_in > 5, "{:?}", oracle.audit);
        assert_eq!(oracle.audit.harms, []);
        assert_eq!(oracle.audit.taken, oracle.audit.possible);
        let open = short(Who::Everybody, end);
        assert!(!open.audit.harms.is_empty(), "{:?}", open.audit);
        assert_eq!(open.outcome.discarded, 0);
    }

    #[test]
    fn a_run_is_a_function_of_the_files_and_can_be_played_again() {
        let end = Nanos::from_secs(4);
        let [one, other] = [(); 2].map(|()| short(Who::Pcos(Rule::Ours), end).outcome);
        assert!(!one.begun.is_empty());
        assert_eq!((&one.begun, &one.ended), (&other.begun, &other.ended));
        // Played again from what was let in, the same jobs end at the same times.
        let folder = Folder::default();
        let learnt = Learnt::of(Setting::One, Case::Research, &folder).expect("a host");
        let house = House::new(Setting::One, Case::Research, 2500, &folder).expect("a host");
        let scenario = house.running(&learnt.capacity, FOR_EVER);
        let mut again = stage::Stage::new(&house, &scenario).again(&one.begun, end);
        again.ended.retain(|of| of.since + of.took <= end);
        let first = one.ended.iter().filter(|of| of.since + of.took <= end);
        assert!(again.ended.iter().eq(first));
    }
}
