//! What the experiments of disks have in common: which figures a paper has, which runs they are
//! made of, how those are run, and how what comes of them is set beside the paper.

use crate::claim::{self, Body, Call, ClaimSpec, Measure, Measures, Series, Subject};
use crate::said::Said;
use crate::{Cell, Claim, ExperimentError, Findings, Progress, Reference, Wanted, pool};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_report::Plot;
use tidegate_sim::scenario::Scenario;

pub(crate) type Cells = Result<Vec<Cell>, ExperimentError>;
pub(crate) type Claims = Result<Vec<Said>, ExperimentError>;
/// What came of runs.
pub(crate) type Runs<E> = BTreeMap<<E as Experiment>::Key, <E as Experiment>::Run>;

/// A paper's experiment.
pub(crate) trait Experiment: Sized + 'static {
    /// Says which run it is.
    type Key: Copy + Ord;
    /// What came of one.
    type Run: Send;
    type Variant: Variant;

    /// The paper's figures, `paper.toml`.
    const REFERENCE: &'static str;
    /// In the order of the paper.
    const FIGURES: &'static [Figure<Self>];
    /// The paper's claims, `claims.toml`.
    const CLAIMS: &'static str = "";
    /// Figures of runs that claims are about.
    const MEASURES: &'static [&'static [Measure<Self>]] = &[];
    /// Claims that are no comparisons, by their names in `claims.toml`.
    const CODE: &'static [(&'static str, Code<Self>)] = &[];

    /// The same run in a variant; the run itself where the variant makes no difference to it.
    /// `None`: that is not run.
    fn varied(key: Self::Key, variant: Self::Variant) -> Option<Self::Key>;

    /// Runs that have to be done before one, because what it simulates follows from them; these
    /// follow from none.
    fn before(_: &Self::Key) -> Vec<Self::Key> {
        Vec::new()
    }

    /// What a run simulates; `before` has those that had to be done.
    ///
    /// # Errors
    /// When a file of the experiment is not what it should be.
    fn scenario(&self, key: &Self::Key, before: &Runs<Self>) -> Result<Scenario, ExperimentError>;

    fn run(scenario: Scenario) -> Self::Run;

    /// What is claimed about all figures together, of which `cells` are.
    fn goals(_: &Found<'_, Self>, cells: &[Cell]) -> Claims {
        Ok(Said::order_goal(cells).into_iter().collect())
    }
}

/// A claim that is no comparison.
pub(crate) type Code<E> = fn(&Found<'_, E>) -> Claims;

impl<E: Experiment> Subject for E {
    type Results<'a> = Found<'a, E>;
}

/// What is changed about all runs, to show what a claim hangs on.
pub(crate) trait Variant: Copy + 'static {
    /// They are as they are.
    const NOTHING: Self;
    /// All others, in the order in which they are told.
    const ALL: &'static [Self];

    /// How a sentence about such runs begins.
    fn phrase(self) -> String;

    /// The variant that claims of their own are about, by its name in `claims.toml`.
    fn named(_: &str) -> Option<Self> {
        None
    }
}

/// One of the paper's tables or figures.
pub(crate) struct Figure<E: Experiment> {
    /// As [`Paper::tables`](crate::Paper::tables) has it.
    pub(crate) name: &'static str,
    /// The runs that it is made of.
    pub(crate) keys: fn() -> Vec<E::Key>,
    pub(crate) cells: fn(&Found<'_, E>) -> Cells,
    pub(crate) claims: fn(&Found<'_, E>) -> Claims,
    pub(crate) plots: fn(&Found<'_, E>) -> Vec<Plot>,
    /// Whether it is shown what its claims hang on.
    pub(crate) explained: bool,
}

impl<E: Experiment> Figure<E> {
    /// One that nothing is known of yet.
    pub(crate) const BARE: Figure<E> = Figure {
        name: "",
        keys: Vec::new,
        cells: |_| Ok(Vec::new()),
        claims: |_| Ok(Vec::new()),
        plots: |_| Vec::new(),
        explained: true,
    };

    /// Variants of the runs that show what its claims hang on.
    fn variants(&self) -> &'static [E::Variant] {
        if self.explained { E::Variant::ALL } else { &[] }
    }
}

/// What figures are called.
pub(crate) const fn names<E: Experiment, const N: usize>(
    figures: &[Figure<E>; N],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = figures[i].name;
        i += 1;
    }
    names
}

/// What came of the runs, and what it is set beside.
pub(crate) struct Found<'a, E: Experiment> {
    pub(crate) reference: &'a Reference,
    pub(crate) runs: &'a Runs<E>,
    pub(crate) variant: E::Variant,
}

impl<E: Experiment> Measures for Found<'_, E> {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        claim::measure::figures(call, (E::MEASURES, self), self.reference, |table| {
            let figure = E::FIGURES.iter().find(|figure| figure.name == table);
            figure.map_or_else(|| Ok(Vec::new()), |figure| (figure.cells)(self))
        })
    }
}

impl<'a, E: Experiment> Found<'a, E> {
    /// What came of a run in this variant; `None`: it was not run.
    pub(crate) fn of(&self, key: E::Key) -> Option<&'a E::Run> {
        self.runs.get(&E::varied(key, self.variant)?)
    }

    /// The same in another variant.
    pub(crate) fn varied(&self, variant: E::Variant) -> Found<'a, E> {
        Found { variant, ..*self }
    }

    /// A claim of `claims.toml`, if its runs are there.
    fn said(&self, spec: &ClaimSpec) -> Claims {
        if let Body::Code(name) = &spec.body
            && let Some((_, code)) = E::CODE.iter().find(|(known, _)| known == name)
        {
            return code(self);
        }
        Ok(spec.evaluate(self)?.into_iter().collect())
    }

    /// What `claims` says, with what that hangs on.
    fn explained(
        &self,
        variants: &[E::Variant],
        claims: impl Fn(&Found<'_, E>) -> Claims,
    ) -> Result<Vec<Claim>, ExperimentError> {
        let mut others = Vec::new();
        for variant in variants {
            others.push((variant.phrase(), claims(&self.varied(*variant))?));
        }
        let claims = claims(self)?.into_iter();
        Ok(claims.map(|said| said.hangs_on(&others)).collect())
    }
}

/// Runs what is wanted, and sets it beside the paper.
///
/// # Errors
/// When a file of the experiment is not what it should be.
pub(crate) fn reproduce<E: Experiment>(
    experiment: &E,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<Findings, ExperimentError> {
    let runs = run_all(experiment, &keys::<E>(wanted), wanted.jobs, progress)?;
    gather::<E>(&runs, wanted)
}

fn figures<E: Experiment>(wanted: &Wanted) -> impl Iterator<Item = &'static Figure<E>> {
    E::FIGURES.iter().filter(|figure| wanted.wants(figure.name))
}

/// The runs that are wanted, with those that show what a claim hangs on.
pub(crate) fn keys<E: Experiment>(wanted: &Wanted) -> Vec<E::Key> {
    let mut keys = BTreeSet::new();
    for figure in figures::<E>(wanted) {
        for key in (figure.keys)() {
            keys.insert(key);
            if figure.explained {
                let variants = E::Variant::ALL.iter();
                keys.extend(variants.filter_map(|variant| E::varied(key, *variant)));
            }
        }
    }
    let before: Vec<E::Key> = keys.iter().flat_map(E::before).collect();
    keys.extend(before);
    keys.into_iter().collect()
}

/// Runs what others follow from, then the others; the longest first, so that no core waits for one
/// of them at the end.
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
        let mut all: Vec<(E::Key, Scenario)> =
            (part.into_iter().map(made)).collect::<Result<_, ExperimentError>>()?;
        all.sort_by_key(|(_, s)| {
            Reverse(s.frame.duration.0.saturating_mul(s.tenants.len() as u64))
        });
        let before = runs.len();
        let (keys_of, scenarios): (Vec<E::Key>, Vec<Scenario>) = all.into_iter().unzip();
        let mut hear = |done: usize, _: usize| progress(before + done, keys.len());
        let done = pool::each(&scenarios, jobs, &mut hear, |s| E::run(s.clone()));
        runs.extend(keys_of.into_iter().zip(done));
    }
    Ok(runs)
}

/// Sets what came of the runs beside the paper's figures.
fn gather<E: Experiment>(runs: &Runs<E>, wanted: &Wanted) -> Result<Findings, ExperimentError> {
    let reference = Reference::parse(E::REFERENCE)?;
    let found = Found {
        reference: &reference,
        runs,
        variant: E::Variant::NOTHING,
    };
    let mut findings = Findings::default();
    for figure in figures::<E>(wanted) {
        let variants = figure.variants();
        findings.append(Findings {
            cells: (figure.cells)(&found)?,
            claims: found.explained(variants, figure.claims)?,
            plots: (figure.plots)(&found),
        });
    }
    for spec in claim::read(E::CLAIMS)? {
        let mut figures = figures::<E>(wanted);
        let Some(figure) = figures.find(|figure| figure.name == spec.part) else {
            continue;
        };
        if spec.variant.is_empty() {
            let claims = found.explained(figure.variants(), |found| found.said(&spec))?;
            findings.claims.extend(claims);
        } else if let Some(variant) = E::Variant::named(&spec.variant) {
            let claims = found.varied(variant).said(&spec)?;
            findings
                .claims
                .extend(claims.into_iter().map(|said| said.hangs_on(&[])));
        }
    }
    let goals = found.explained(E::Variant::ALL, |found| {
        let mut cells = Vec::new();
        for figure in figures::<E>(wanted) {
            cells.extend((figure.cells)(found)?);
        }
        E::goals(found, &cells)
    });
    findings.claims.extend(goals?);
    Ok(findings)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Every run can be made, of which there are more than `least`; and what is found without a run
    /// is nothing, not a panic: that is what one figure alone asks for.
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

    /// The claims are sound, and each is of a variant that there is.
    fn claims_are_sound<E: Experiment>() {
        for spec in claim::read(E::CLAIMS).expect("claims") {
            let known = spec.variant.is_empty() || E::Variant::named(&spec.variant).is_some();
            assert!(known, "{}: there is no variant {}", spec.id, spec.variant);
        }
        let reference = Reference::parse(E::REFERENCE).expect("figures");
        let parts: Vec<&str> = E::FIGURES.iter().map(|figure| figure.name).collect();
        let codes: Vec<&str> = E::CODE.iter().map(|(name, _)| *name).collect();
        claim::tests::are_sound(E::CLAIMS, &reference, &parts, E::MEASURES, &codes);
    }

    /// A run is a number, and comes to that, or in the variant to twice as much.
    struct Toy;

    type Number = (u32, bool);

    impl Variant for bool {
        const NOTHING: bool = false;
        const ALL: &'static [bool] = &[true];

        fn phrase(self) -> String {
            "Twice".to_owned()
        }
    }

    fn said(key: Number) -> impl Fn(&Found<'_, Toy>) -> Claims {
        move |found| {
            let run = found.of(key).into_iter();
            Ok(run
                .map(|n| Said::new("it is two", *n == 2, format!("it is {n}")))
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
                claims: |found| said((1, false))(found),
                ..Figure::BARE
            },
            Figure {
                name: "2",
                keys: || vec![(3, false), (4, false)],
                claims: |found| said((3, false))(found),
                explained: false,
                ..Figure::BARE
            },
        ];

        fn varied((n, _): Number, twice: bool) -> Option<Number> {
            Some((n, twice))
        }

        /// The fourth follows from the fifth.
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
        let told: Vec<&str> = found
            .claims
            .iter()
            .map(|claim| claim.detail.as_str())
            .collect();
        assert_eq!(
            told,
            ["it is 1. Twice, it is 2; so it would hold.", "it is 3."]
        );
    }
}
