//! Frame of the experiments on disks: the figures of a paper, the runs behind them, and the
//! comparison of the results with the paper.

use crate::claim::{self, Body, Call, ClaimSpec, Impossibles, Measure, Measures, Series, Subject};
use crate::claim_result::ClaimResult;
use crate::{Cell, Claim, ExperimentError, Findings, Progress, Reference, Wanted, pool};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_report::Plot;
use tidegate_sim::scenario::Scenario;

pub(crate) type Cells = Result<Vec<Cell>, ExperimentError>;
pub(crate) type Claims = Result<Vec<ClaimResult>, ExperimentError>;
/// Results of an experiment's runs, by key.
pub(crate) type Runs<E> = BTreeMap<<E as Experiment>::Key, <E as Experiment>::Run>;

/// Experiments of one paper.
pub(crate) trait Experiment: Sized + 'static {
    /// Identity of a run.
    type Key: Copy + Ord;
    /// Result of a run.
    type Run: Send;
    type Variant: Variant;

    /// Text of `paper.toml`, the paper's figures.
    const REFERENCE: &'static str;
    /// Tables and figures in the order of the paper.
    const FIGURES: &'static [Figure<Self>];
    /// Text of `claims.toml`, the paper's claims.
    const CLAIMS: &'static str = "";
    /// Measures of runs that claims may name.
    const MEASURES: &'static [&'static [Measure<Self>]] = &[];
    /// Claims that are no comparisons, by their names in `claims.toml`.
    const CODE: &'static [(&'static str, Code<Self>)] = &[];

    /// Key of the run in a variant; the run's own key if the variant makes no difference to it.
    /// `None` if the run does not take place in this variant.
    fn varied(key: Self::Key, variant: Self::Variant) -> Option<Self::Key>;

    /// Runs whose results determine this run's scenario. Such runs depend on no others.
    fn before(_: &Self::Key) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Scenario of a run; `before` has the results of the runs that it depends on.
    ///
    /// # Errors
    /// Fails when a file of the experiment is malformed.
    fn scenario(&self, key: &Self::Key, before: &Runs<Self>) -> Result<Scenario, ExperimentError>;

    fn run(scenario: Scenario) -> Self::Run;

    /// Claims about all figures together; `cells` are those figures.
    fn goals(_: &RunResults<'_, Self>, cells: &[Cell]) -> Claims {
        Ok(ClaimResult::order_goal(cells).into_iter().collect())
    }
}

/// Function that evaluates a claim that is no comparison.
pub(crate) type Code<E> = fn(&RunResults<'_, E>) -> Claims;

impl<E: Experiment> Subject for E {
    type Results<'a> = RunResults<'a, E>;
}

/// Ablation or other change of all runs, which shows the cause of a claim's outcome.
pub(crate) trait Variant: Copy + 'static {
    /// Variant without a change.
    const NOTHING: Self;
    /// All other variants, in the order of reporting.
    const ALL: &'static [Self];

    /// Beginning of a sentence about runs in this variant.
    fn phrase(self) -> String;

    /// Variant that claims of their own refer to, by its name in `claims.toml`.
    fn named(_: &str) -> Option<Self> {
        None
    }
}

/// Table or figure of the paper.
pub(crate) struct Figure<E: Experiment> {
    /// Name, as in [`Paper::tables`](crate::Paper::tables).
    pub(crate) name: &'static str,
    /// Runs behind the figure.
    pub(crate) keys: fn() -> Vec<E::Key>,
    pub(crate) cells: fn(&RunResults<'_, E>) -> Cells,
    pub(crate) claims: fn(&RunResults<'_, E>) -> Claims,
    pub(crate) plots: fn(&RunResults<'_, E>) -> Vec<Plot>,
    /// `true` if the causes of failed claims are shown, which takes runs in all variants.
    pub(crate) explained: bool,
}

impl<E: Experiment> Figure<E> {
    /// Figure without contents.
    pub(crate) const BARE: Figure<E> = Figure {
        name: "",
        keys: Vec::new,
        cells: |_| Ok(Vec::new()),
        claims: |_| Ok(Vec::new()),
        plots: |_| Vec::new(),
        explained: true,
    };

    /// Variants in which the figure's runs are repeated.
    fn variants(&self) -> &'static [E::Variant] {
        if self.explained { E::Variant::ALL } else { &[] }
    }
}

/// Names of figures.
pub(crate) const fn names<E: Experiment, const N: usize>(
    figures: &[Figure<E>; N],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    // `for` is not allowed in a constant function.
    while i < N {
        names[i] = figures[i].name;
        i += 1;
    }
    names
}

/// Results of runs in one variant, with the paper's figures.
pub(crate) struct RunResults<'a, E: Experiment> {
    pub(crate) reference: &'a Reference,
    pub(crate) runs: &'a Runs<E>,
    pub(crate) variant: E::Variant,
}

impl<E: Experiment> Measures for RunResults<'_, E> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        claim::measure::figures(call, (E::MEASURES, self), self.reference, |table| {
            let figure = E::FIGURES.iter().find(|figure| figure.name == table);
            // A table that has no figure here has no cells of ours, and the claim is left out.
            figure.map_or_else(|| Ok(Vec::new()), |figure| (figure.cells)(self))
        })
    }
}

impl<'a, E: Experiment> RunResults<'a, E> {
    /// Result of a run in this variant; `None` if it was not run.
    pub(crate) fn run_for(&self, key: E::Key) -> Option<&'a E::Run> {
        self.runs.get(&E::varied(key, self.variant)?)
    }

    /// Returns the same results in another variant.
    pub(crate) fn varied(&self, variant: E::Variant) -> RunResults<'a, E> {
        RunResults { variant, ..*self }
    }

    /// Evaluates a claim of `claims.toml`; empty if its runs are missing.
    fn claims_of(&self, spec: &ClaimSpec) -> Claims {
        // Code that is not found is reported by `evaluate`.
        if let Body::Code(name) = &spec.body
            && let Some((_, code)) = E::CODE.iter().find(|(known, _)| known == name)
        {
            let claims = code(self)?.into_iter();
            let claims = claims.map(|result| result.identified(&spec.id, &spec.part));
            return Ok(claims.collect());
        }
        Ok(spec.evaluate(self)?.into_iter().collect())
    }

    /// Evaluates `claims`, and adds to each its verdict, and to each failed one its outcome in the
    /// other variants.
    fn explained(
        &self,
        variants: &[E::Variant],
        impossibles: &Impossibles,
        claims: impl Fn(&RunResults<'_, E>) -> Claims,
    ) -> Result<Vec<Claim>, ExperimentError> {
        let mut others = Vec::new();
        for variant in variants {
            others.push((variant.phrase(), claims(&self.varied(*variant))?));
        }
        Ok(impossibles.judge_all(claims(self)?, &others))
    }
}

/// Runs the figures that are wanted and compares them with the paper.
///
/// # Errors
/// Fails when a file of the experiment is malformed.
pub(crate) fn reproduce<E: Experiment>(
    experiment: &E,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<Findings, ExperimentError> {
    let runs = run_all(experiment, &keys::<E>(wanted), wanted.threads, progress)?;
    gather::<E>(&runs, wanted)
}

fn figures<E: Experiment>(wanted: &Wanted) -> impl Iterator<Item = &'static Figure<E>> {
    E::FIGURES.iter().filter(|figure| wanted.wants(figure.name))
}

/// Keys of the runs that are wanted, with those in other variants.
pub(crate) fn keys<E: Experiment>(wanted: &Wanted) -> Vec<E::Key> {
    let mut keys = BTreeSet::new();
    for figure in figures::<E>(wanted) {
        for key in (figure.keys)() {
            // A set: variants that make no difference to a run share its key.
            keys.insert(key);
            if figure.explained {
                let variants = E::Variant::ALL.iter();
                keys.extend(variants.filter_map(|variant| E::varied(key, *variant)));
            }
        }
    }
    // One level: runs that others depend on depend on none themselves.
    let before: Vec<E::Key> = keys.iter().flat_map(E::before).collect();
    keys.extend(before);
    keys.into_iter().collect()
}

/// Runs first what others depend on, then the others; longest runs first, so that no core waits for
/// a long one at the end.
pub(crate) fn run_all<E: Experiment>(
    experiment: &E,
    keys: &[E::Key],
    jobs: usize,
    progress: Progress<'_>,
) -> Result<Runs<E>, ExperimentError> {
    let (first, later): (Vec<E::Key>, Vec<E::Key>) =
        (keys.iter()).partition(|key| E::before(key).is_empty());
    let mut runs = Runs::<E>::new();
    for part in [first, later] {
        let made = |key| Ok((key, experiment.scenario(&key, &runs)?));
        // In the second pass the runs of the first are there, which scenarios may depend on.
        let mut all: Vec<(E::Key, Scenario)> =
            (part.into_iter().map(made)).collect::<Result<_, ExperimentError>>()?;
        // Simulated time by number of VMs approximates the time that a run takes.
        all.sort_by_key(|(_, s)| Reverse(s.frame.duration.0.saturating_mul(s.vms.len() as u64)));
        let before = runs.len();
        let (keys_of, scenarios): (Vec<E::Key>, Vec<Scenario>) = all.into_iter().unzip();
        let mut hear = |done: usize, _: usize| progress(before + done, keys.len());
        let done = pool::map_parallel(&scenarios, jobs, &mut hear, |s| E::run(s.clone()));
        runs.extend(keys_of.into_iter().zip(done));
    }
    Ok(runs)
}

/// Compares the results of the runs with the paper's figures.
fn gather<E: Experiment>(runs: &Runs<E>, wanted: &Wanted) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(E::REFERENCE)?;
    let found = RunResults {
        reference: &reference,
        runs,
        variant: E::Variant::NOTHING,
    };
    let file = claim::read_file(E::CLAIMS)?;
    let impossibles = Impossibles::evaluate(file.impossible, &reference)?;
    let mut findings = Findings::default();
    for figure in figures::<E>(wanted) {
        let variants = figure.variants();
        findings.append(Findings {
            cells: impossibles.mark((figure.cells)(&found)?),
            claims: found.explained(variants, &impossibles, figure.claims)?,
            plots: (figure.plots)(&found),
            ..Findings::default()
        });
    }
    for spec in file.claims {
        let mut figures = figures::<E>(wanted);
        let Some(figure) = figures.find(|figure| figure.name == spec.part) else {
            // Only a part of the paper is wanted, and the claim is about another one.
            continue;
        };
        if spec.variant.is_empty() {
            let claims = |found: &RunResults<'_, E>| found.claims_of(&spec);
            let claims = found.explained(figure.variants(), &impossibles, claims)?;
            findings.claims.extend(claims);
        } else if let Some(variant) = E::Variant::named(&spec.variant) {
            // A claim about a variant is no failure of ours that other variants could explain.
            let claims = found.varied(variant).claims_of(&spec)?;
            findings.claims.extend(impossibles.judge_all(claims, &[]));
        }
    }
    // Goals are about all wanted figures, and come last.
    let goals = found.explained(E::Variant::ALL, &impossibles, |found| {
        let mut cells = Vec::new();
        for figure in figures::<E>(wanted) {
            cells.extend((figure.cells)(found)?);
        }
        E::goals(found, &impossibles.mark(cells))
    });
    findings.claims.extend(goals?);
    let notes = claim::notes(file.notes, &reference)?.into_iter();
    findings.notes = notes.filter(|note| wanted.wants(&note.part)).collect();
    findings.impossible = impossibles.into_results();
    Ok(findings)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that every run has a valid scenario, of which there are more than `least`, and that
    /// without results there are no findings rather than a panic: a single table has only its own
    /// runs.
    pub(crate) fn is_sound<E: Experiment>(
        least: usize,
        scenario: impl Fn(&E::Key) -> Result<Scenario, ExperimentError>,
    ) {
        let wanted = Wanted::default();
        let keys = keys::<E>(&wanted);
        assert!(keys.len() > least, "{}", keys.len());
        for key in &keys {
            scenario(key).expect("a scenario").check().expect("sound");
        }
        let found = gather::<E>(&Runs::<E>::new(), &wanted).expect("figures");
        assert_eq!((found.cells.len(), found.claims.len()), (0, 0));
        claims_are_sound::<E>();
    }

    /// Checks that the claims are valid and refer to existing variants.
    fn claims_are_sound<E: Experiment>() {
        let file = claim::read_file(E::CLAIMS).expect("claims");
        for spec in &file.claims {
            let known = spec.variant.is_empty() || E::Variant::named(&spec.variant).is_some();
            assert!(known, "{}: there is no variant {}", spec.id, spec.variant);
        }
        let reference = Reference::parse(E::REFERENCE).expect("figures");
        let parts: Vec<&str> = E::FIGURES.iter().map(|figure| figure.name).collect();
        let codes: Vec<&str> = E::CODE.iter().map(|(name, _)| *name).collect();
        claim::tests::are_sound(E::CLAIMS, &reference, &parts, E::MEASURES, &codes);
        let ids: Vec<&str> = file.claims.iter().map(|spec| spec.id.as_str()).collect();
        for note in &file.notes {
            assert!(parts.contains(&note.part.as_str()), "{}", note.id);
        }
        claim::notes(file.notes, &reference).expect("figures of the paper");
        let impossibles = Impossibles::evaluate(file.impossible, &reference);
        impossibles
            .expect("figures")
            .are_sound(&ids, &parts, &reference);
    }

    /// Experiment whose runs yield a number, doubled in the variant.
    struct Toy;

    type Number = (u32, bool);

    impl Variant for bool {
        const NOTHING: bool = false;
        const ALL: &'static [bool] = &[true];

        fn phrase(self) -> String {
            "Twice".to_owned()
        }
    }

    fn claims_of(key: Number) -> impl Fn(&RunResults<'_, Toy>) -> Claims {
        move |found| {
            let run = found.run_for(key).into_iter();
            Ok(run
                .map(|n| ClaimResult::new("it is two", *n == 2, format!("it is {n}")))
                .collect())
        }
    }

    impl Experiment for Toy {
        type Key = Number;
        type Run = u32;
        type Variant = bool;

        const REFERENCE: &'static str = "";
        const FIGURES: &'static [Figure<Toy>] = &[
            Figure {
                name: "1",
                keys: || vec![(1, false)],
                claims: |found| claims_of((1, false))(found),
                ..Figure::BARE
            },
            Figure {
                name: "2",
                keys: || vec![(3, false), (4, false)],
                claims: |found| claims_of((3, false))(found),
                explained: false,
                ..Figure::BARE
            },
        ];

        fn varied((n, _): Number, twice: bool) -> Option<Number> {
            Some((n, twice))
        }

        /// The fourth run depends on the fifth.
        fn before((n, _): &Number) -> Vec<Number> {
            if *n == 4 {
                vec![(5, false)]
            } else {
                Vec::new()
            }
        }

        fn scenario(&self, key: &Number, before: &Runs<Toy>) -> Result<Scenario, ExperimentError> {
            assert_eq!(before.contains_key(&(5, false)), key.0 == 4, "{key:?}");
            let text = "duration = \"1 s\"\n[[device]]\nname = \"d\"\nmodel = \"hdd-7200-1tb\"\n\
                        [[vm]]\nname = \"v\"\n\
                        disk = [{ size = \"1 GiB\" }]\n[[vm.workload]]\nrw = \"read\"\n\
                        bs = \"4 KiB\"";
            let read = |name: &str| crate::folder::model(name, &[]);
            let mut scenario = tidegate_sim::scenario::read(text, "toy.toml", &read, None)?.config;
            scenario.frame.seed = u64::from(key.0);
            Ok(scenario)
        }

        fn run(scenario: Scenario) -> u32 {
            scenario.frame.seed as u32
        }
    }

    fn only(table: Option<&str>) -> Wanted {
        Wanted {
            table: table.map(str::to_owned),
            ..Wanted::default()
        }
    }

    #[test]
    fn runs_are_those_of_the_figures_that_are_wanted_and_what_they_follow_from() {
        assert_eq!(keys::<Toy>(&only(Some("1"))), [(1, false), (1, true)]);
        let keys = keys::<Toy>(&only(Some("2")));
        assert_eq!(keys, [(3, false), (4, false), (5, false)]);
        let mut heard = Vec::new();
        let runs = run_all(&Toy, &keys, 1, &mut |done, of| heard.push((done, of)));
        assert_eq!(
            runs.expect("runs"),
            keys.iter().map(|key| (*key, key.0)).collect()
        );
        assert_eq!(heard, [(1, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn a_claim_says_what_it_hangs_on_where_that_is_to_be_shown() {
        let runs = [
            ((1, false), 1),
            ((1, true), 2),
            ((3, false), 3),
            ((3, true), 6),
        ];
        let found = gather::<Toy>(&Runs::<Toy>::from(runs), &only(None)).expect("claims");
        let texts: Vec<&str> = found
            .claims
            .iter()
            .map(|claim| claim.detail.as_str())
            .collect();
        assert_eq!(
            texts,
            ["it is 1. Twice, it is 2; so it would hold.", "it is 3."]
        );
    }
}
