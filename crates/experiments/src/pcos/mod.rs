//! PCOS: section 5.4 of Jain's thesis, figures 5.11 to 5.14, and section 5.1.1's need for it.
//!
//! ```text
//!   host model (PriDyn's streams, VMs for newcomers) --learning--> database
//!     |                                                                |
//!     +--> replay: the simulator <--observe, begin-- admission policy <+
//!                   | replayed                        | each decision
//!                   +---------------> oracle <--------+ audit
//! ```
//!
//! `run` has requests considered one after the other; `figures` has the figures of the thesis,
//! `goals` the comparison of PCOS with the oracle, `measures` the figures that claims name. The
//! folder's README documents how the thesis was read.

mod admission;
mod audit;
mod figures;
mod goals;
mod host;
mod learning;
mod measures;
mod oracle;
mod replay;
mod run;

use crate::claim::{self, Call, ClaimSpec, Impossibles, Measures, Series, Subject};
use crate::claim_result::ClaimResult;
use crate::pridyn::folder::{Folder, TRACES};
use crate::{ExperimentError, Findings, Paper, Progress, Reference, Wanted, folder, pool};
use admission::{
    AdmissionPolicy, AdmitAll, AdmitByForecast, AdmitByOracle, AdmitByPcos, AdmitNone,
};
use audit::Audit;
use host::{Case, HostModel, Setting};
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
    plots: &[
        "section 5.1.1",
        "figure 5.11",
        "figure 5.12",
        "figure 5.13",
        "figure 5.14",
    ],
    traces: TRACES,
    reproduce,
    calibration: None,
};

const PAPER_TOML: &str = folder::embedded!("pcos", "paper.toml");
const CLAIMS: &str = folder::embedded!("pcos", "claims.toml");

/// Figure of the thesis, or goal beyond it.
struct Figure {
    name: &'static str,
    /// Runs of the figure under a configuration.
    keys: fn(Configuration) -> Vec<Key>,
    plots: fn(&RunResults<'_>) -> Vec<Plot>,
    /// Configurations that show the cause of a claim's outcome.
    others: &'static [Configuration],
}

const FIGURES: [Figure; 6] = [
    figures::SECTION_5_1_1,
    figures::FIGURE_5_11,
    figures::FIGURE_5_12,
    figures::FIGURE_5_13,
    figures::FIGURE_5_14,
    goals::ACCEPTANCE,
];

/// Admission rule of PCOS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    /// Rule of Tidegate: a transfer that is late anyway keeps what it has.
    Tidegate,
    /// A transfer that is late anyway is not protected.
    LateUnprotected,
    /// Rule of figure 5.8 as printed: no admission while a transfer is late, with or without the
    /// newcomer.
    AsPrinted,
    /// Forecasts that include the ends of running transfers.
    TransferEnds,
}

/// Configuration: kind of host and admission rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Configuration {
    setting: Setting,
    rule: Rule,
}

impl Configuration {
    const OURS: Configuration = Configuration::new(Setting::OneVm, Rule::Tidegate);

    const fn new(setting: Setting, rule: Rule) -> Configuration {
        Configuration { setting, rule }
    }

    /// Beginning of a sentence about runs in this configuration.
    fn phrase(self) -> String {
        let setting = match self.setting {
            Setting::OneVm => "",
            Setting::NoPauses => "with streams that do not pause",
            Setting::FourVms => "with four VMs more",
            Setting::LargeRequests => "with four VMs more and requests a hundred times as large",
            Setting::NoPermanentLoad => "with such requests and nothing that was not asked for",
            Setting::LimitedVms => {
                "with such requests, nothing that was not asked for and every other VM limited"
            }
            Setting::KnownLimits => {
                "with such requests, nothing that was not asked for, every other VM limited and \
                 that told"
            }
        };
        let rule = match self.rule {
            Rule::Tidegate => "",
            Rule::LateUnprotected => "with jobs unprotected that are late anyway",
            Rule::AsPrinted => "with figure 5.8 as printed",
            Rule::TransferEnds => "with forecasts that include the ends of transfers",
        };
        let both = [rule, setting].into_iter().filter(|part| !part.is_empty());
        let both = both.collect::<Vec<_>>().join(" and ");
        // Both phrases begin alike; only the first begins the sentence.
        both.replacen("with", "With", 1)
    }
}

/// Admission policy of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Admission {
    RejectAll,
    AdmitAll,
    Pcos(Rule),
    /// PCOS, with each decision tried in the simulation afterwards.
    Audited(Rule),
    Oracle,
}

/// Identity of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    setting: Setting,
    case: Case,
    /// Delta of the media servers, in thousandths.
    tolerance: u32,
    admission: Admission,
}

impl Key {
    /// Time for which requests are considered.
    fn length(&self) -> Nanos {
        let simulates_decisions =
            matches!(self.admission, Admission::Audited(_) | Admission::Oracle);
        match (self.setting, simulates_decisions) {
            // Each decision is simulated to its end, hence shorter runs; large requests take longer
            // each.
            (Setting::OneVm | Setting::NoPauses | Setting::FourVms, true) => Nanos::from_secs(8),
            (Setting::OneVm | Setting::NoPauses | Setting::FourVms, false) => Nanos::from_secs(120),
            (_, true) => Nanos::from_secs(120),
            (_, false) => Nanos::from_secs(1200),
        }
    }
}

/// Result of a run.
struct RunResult {
    outcome: Outcome,
    audit: Audit,
}

/// Results by key.
type Runs = BTreeMap<Key, RunResult>;

/// Results of the runs in one configuration.
struct RunResults<'a> {
    reference: &'a Reference,
    runs: &'a Runs,
    configuration: Configuration,
}

/// Experiments as a subject of claims.
struct Pcos;

impl Subject for Pcos {
    type Results<'a> = RunResults<'a>;
}

impl Measures for RunResults<'_> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        let measures = (&[measures::MEASURES][..], self);
        claim::measure::figures(call, measures, self.reference, |_| Ok(Vec::new()))
    }
}

impl<'a> RunResults<'a> {
    fn run_for(&self, case: Case, tolerance: u32, admission: Admission) -> Option<&'a RunResult> {
        self.runs.get(&Key {
            setting: self.configuration.setting,
            case,
            tolerance,
            admission,
        })
    }

    /// Evaluates the claims of the file about a figure, as far as their runs are there.
    fn claims(
        &self,
        specs: &[ClaimSpec],
        figure: &str,
    ) -> Result<Vec<ClaimResult>, ExperimentError> {
        let mut claims = Vec::new();
        for spec in specs.iter().filter(|spec| spec.part == figure) {
            claims.extend(spec.evaluate(self)?);
        }
        Ok(claims)
    }
}

/// Duration of a scenario that never ends by itself.
const FOR_EVER: Nanos = Nanos::from_secs(100_000);

fn ran(key: &Key, learnt: &Learnt, folder: &Folder) -> Result<RunResult, ExperimentError> {
    let model = HostModel::new(key.setting, key.case, key.tolerance, folder)?;
    let scenario = model.running(&learnt.capacity, FOR_EVER);
    let end = key.length();
    let mut policy: Box<dyn AdmissionPolicy> = match key.admission {
        Admission::RejectAll => Box::new(AdmitNone),
        Admission::AdmitAll => Box::new(AdmitAll),
        Admission::Pcos(Rule::TransferEnds) | Admission::Audited(Rule::TransferEnds) => {
            Box::new(AdmitByForecast::new(learnt))
        }
        Admission::Pcos(rule) | Admission::Audited(rule) => {
            Box::new(AdmitByPcos::new(learnt, key.setting, rule))
        }
        Admission::Oracle => Box::new(AdmitByOracle(Oracle::new(end))),
    };
    let outcome = run::run(&model, &scenario, &learnt.capacity, policy.as_mut(), end);
    let audit = match key.admission {
        Admission::Audited(_) => Audit::new(&model, &scenario, &outcome, end),
        _ => Audit::default(),
    };
    Ok(RunResult { outcome, audit })
}

/// Keys of the wanted runs.
fn wanted_runs(wanted: &Wanted) -> Vec<Key> {
    let figures = FIGURES.iter().filter(|figure| wanted.wants(figure.name));
    let mut keys: Vec<Key> = figures
        .flat_map(|figure| {
            let others = figure.others.iter().flat_map(|other| (figure.keys)(*other));
            (figure.keys)(Configuration::OURS).into_iter().chain(others)
        })
        .collect();
    // Longest runs first, so that no core waits for a long one at the end.
    keys.sort_by_key(|key| std::cmp::Reverse((key.admission, *key)));
    keys.dedup();
    keys
}

fn reproduce(wanted: &Wanted, progress: Progress<'_>) -> Result<Findings, ExperimentError> {
    let folder = Folder {
        traces: wanted.traces.clone(),
        ..Folder::default()
    };
    let runs = run_all(&wanted_runs(wanted), &folder, wanted.threads, progress)?;
    gather(&runs, wanted)
}

/// Learns about all hosts, then runs all keys.
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
    // Keys share hosts: what is learnt depends on the kind of host and the case alone.
    let learn = |&(setting, case): &(Setting, Case)| Learnt::new(setting, case, folder);
    let learnt = pool::map_parallel(&hosts, jobs, &mut |done, _| progress(done, all), learn);
    let learnt = learnt.into_iter().collect::<Result<Vec<_>, _>>()?;
    let learnt: BTreeMap<_, _> = hosts.iter().copied().zip(learnt).collect();
    let mut hear = |done: usize, _: usize| progress(hosts.len() + done, all);
    let done = pool::map_parallel(keys, jobs, &mut hear, |key| {
        ran(key, &learnt[&(key.setting, key.case)], folder)
    });
    let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(keys.iter().copied().zip(done).collect())
}

/// Evaluates the claims of the thesis.
fn gather(runs: &Runs, wanted: &Wanted) -> Result<Findings, ExperimentError> {
    let reference = &Reference::parse(PAPER_TOML)?;
    let file = claim::read_file(CLAIMS)?;
    let impossibles = Impossibles::evaluate(file.impossible, reference)?;
    let specs = file.claims;
    let mut findings = Findings::default();
    let of = |configuration: Configuration| RunResults {
        reference,
        runs,
        configuration,
    };
    for figure in FIGURES.iter().filter(|figure| wanted.wants(figure.name)) {
        let mut others = Vec::new();
        for other in figure.others {
            others.push((other.phrase(), of(*other).claims(&specs, figure.name)?));
        }
        let claims = of(Configuration::OURS).claims(&specs, figure.name)?;
        findings.append(Findings {
            claims: impossibles.judge_all(claims, &others),
            plots: (figure.plots)(&of(Configuration::OURS)),
            ..Findings::default()
        });
    }
    findings.notes = claim::notes(file.notes, reference)?;
    findings.impossible = impossibles.into_results();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_tables_of_the_paper_and_curves_are_among_them() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names, PAPER.tables);
        assert!(PAPER.plots.iter().all(|table| names.contains(table)));
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
    fn figures_without_runs_are_left_out() {
        let found = gather(&Runs::new(), &Wanted::default()).expect("figures");
        assert_eq!((found.claims.len(), found.plots.len()), (0, 0));
    }

    /// A run of some seconds at a delta of 2.5, with what was learnt.
    fn short(admission: Admission, end: Nanos) -> RunResult {
        let (setting, case, folder) = (Setting::OneVm, Case::Research, Folder::default());
        let learnt = Learnt::new(setting, case, &folder).expect("a host");
        let model = HostModel::new(setting, case, 2500, &folder).expect("a host");
        let scenario = model.running(&learnt.capacity, FOR_EVER);
        let mut policy: Box<dyn AdmissionPolicy> = match admission {
            Admission::AdmitAll => Box::new(AdmitAll),
            Admission::Oracle => Box::new(AdmitByOracle(Oracle::new(end))),
            _ => Box::new(AdmitByPcos::new(&learnt, setting, Rule::Tidegate)),
        };
        let outcome = run::run(&model, &scenario, &learnt.capacity, policy.as_mut(), end);
        let audit = Audit::new(&model, &scenario, &outcome, end);
        RunResult { outcome, audit }
    }

    #[test]
    fn audit_finds_no_harm_under_the_oracle_and_some_if_all_are_admitted() {
        let end = Nanos::from_secs(4);
        let oracle = short(Admission::Oracle, end);
        assert!(oracle.audit.admitted > 5, "{:?}", oracle.audit);
        assert_eq!(oracle.audit.harms, []);
        assert_eq!(oracle.audit.taken, oracle.audit.possible);
        let open = short(Admission::AdmitAll, end);
        assert!(!open.audit.harms.is_empty(), "{:?}", open.audit);
        assert_eq!(open.outcome.discarded, 0);
    }

    #[test]
    fn runs_are_reproducible_and_replays_end_at_the_same_times() {
        let end = Nanos::from_secs(4);
        let [one, other] = [(); 2].map(|()| short(Admission::Pcos(Rule::Tidegate), end).outcome);
        assert!(!one.begun.is_empty());
        assert_eq!((&one.begun, &one.ended), (&other.begun, &other.ended));
        // Replayed from the admitted requests, the same transfers end at the same times.
        let folder = Folder::default();
        let learnt = Learnt::new(Setting::OneVm, Case::Research, &folder).expect("a host");
        let model = HostModel::new(Setting::OneVm, Case::Research, 2500, &folder).expect("a host");
        let scenario = model.running(&learnt.capacity, FOR_EVER);
        let mut again = replay::HostReplay::new(&model, &scenario).replayed(&one.begun, end);
        again
            .ended
            .retain(|transfer| transfer.since + transfer.took <= end);
        let first = (one.ended.iter()).filter(|transfer| transfer.since + transfer.took <= end);
        assert!(again.ended.iter().eq(first));
    }
}
