//! Judging of one cell: the policy's runs, the others' runs, and the results file.

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Result;
use tidegate_core::policy::Policy;
use tidegate_experiments::promises::{Basis, Cell, Mix, Outcome, Run, Verdict, compare, run};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::seed::fnv1a;

use crate::args::{PromisesArgs, all_policies};
use crate::results::{ANOTHER_FILE, Key, Results};

/// Cell of the grid with its mix.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) cell: Cell,
    pub(super) mix: Mix,
}

impl Place {
    /// Returns the name of the cell, such as `nvme-1tb without profile, oltp, 100 us`.
    pub(super) fn name(&self) -> String {
        let profile = if self.cell.profiled {
            "with profile"
        } else {
            "without profile"
        };
        let (model, mix) = (&self.cell.device.model, &self.mix.name);
        format!("{model} {profile}, {mix}, {} us", self.cell.rtt_us)
    }
}

/// Judged cell.
pub(super) struct Judged {
    pub(super) place: Place,
    pub(super) policy: String,
    pub(super) outcome: Outcome,
    pub(super) verdict: Verdict,
    /// Number of other policies compared, each with default settings and adaptive.
    pub(super) others: usize,
}

/// Results of earlier runs, if a results file is used.
pub(super) struct Store {
    results: Option<Results>,
    /// Build to which results of the judged policy belong.
    own_build: String,
    /// Build to which results of other policies belong.
    others_build: String,
}

impl Store {
    pub(super) fn open(args: &PromisesArgs, build: u64) -> Result<Store> {
        let open = |path: &PathBuf| Results::open(path, false, ANOTHER_FILE);
        let results = args.results.as_ref().map(open);
        let own_build = format!("{build:016x}");
        Ok(Store {
            results: results.transpose()?,
            others_build: args.build.clone().unwrap_or_else(|| own_build.clone()),
            own_build,
        })
    }

    fn get(&self, key: &Key) -> Option<Outcome> {
        let (_, found) = self.results.as_ref()?.get(key)?;
        serde_json::from_value(found.clone()).ok()
    }

    fn keep(&mut self, key: Key, outcome: &Outcome) -> Result<()> {
        match &mut self.results {
            Some(results) => results.append(key, serde_json::to_value(outcome)?),
            None => Ok(()),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        self.results.map_or(Ok(()), |results| results.finish())
    }
}

/// Judges a cell.
pub(super) fn judge(
    place: &Place,
    policy: &PolicySpec,
    args: &PromisesArgs,
    store: &Mutex<Store>,
) -> Result<Judged> {
    let own_build = store.lock().expect("no holder panics").own_build.clone();
    let others_build = store.lock().expect("no holder panics").others_build.clone();
    let own = Contender {
        policy,
        adaptive: args.is_adaptive(),
        build: &own_build,
    };
    let outcome = own.outcome(place, args, &[], store)?;
    let mut others = Vec::new();
    let mut basis = Basis {
        flash: place.cell.device.flash,
        demand: place.mix.demand()?,
        fifo: None,
    };
    if args.compare {
        if basis.demand.of_fifo.is_some() {
            let fifo = Contender {
                policy: &PolicySpec::named("fifo")?,
                adaptive: false,
                build: &others_build,
            };
            basis.fifo = Some(fifo.outcome(place, args, &[], store)?);
        }
        let needed = outcome.kept();
        // A policy that keeps nothing fails its cell anyway, so no comparison is needed.
        let others_count = !needed.is_empty();
        let wanted = all_policies().into_iter().filter(|_| others_count);
        for other in wanted.filter(|other| other.name() != policy.name()) {
            for adaptive in [false, true] {
                let name = if adaptive {
                    format!("{} adaptive", other.name())
                } else {
                    other.name().to_owned()
                };
                let contender = Contender {
                    policy: &other,
                    adaptive,
                    build: &others_build,
                };
                // An error: the policy needs a profile and the cell has none.
                if let Ok(outcome) = contender.outcome(place, args, &needed, store) {
                    others.push((name, outcome));
                }
            }
        }
    }
    Ok(Judged {
        place: place.clone(),
        policy: policy.name().to_owned(),
        verdict: compare(&outcome, &others, &basis),
        others: others.len(),
        outcome,
    })
}

/// Policy to run in a cell.
struct Contender<'a> {
    policy: &'a PolicySpec,
    /// Queue depth and length of I/Os are adapted at run time, as with the option `--adaptive`.
    adaptive: bool,
    build: &'a str,
}

impl Contender<'_> {
    /// Returns the outcome over all seeds. A run is given up once a promise of `needed` is missed.
    fn outcome(
        &self,
        place: &Place,
        args: &PromisesArgs,
        needed: &[String],
        store: &Mutex<Store>,
    ) -> Result<Outcome> {
        let mut outcomes = Vec::new();
        for &seed in &args.seeds.0 {
            let outcome = self.of_seed(place, args, (seed, needed), store)?;
            let given_up = !outcome.given_up.is_empty();
            outcomes.push(outcome);
            if given_up {
                break;
            }
        }
        Ok(Outcome::merged(&outcomes))
    }

    fn of_seed(
        &self,
        place: &Place,
        args: &PromisesArgs,
        (seed, needed): (u64, &[String]),
        store: &Mutex<Store>,
    ) -> Result<Outcome> {
        let (adaptive, build) = (self.adaptive, self.build);
        let text = place
            .mix
            .text(&place.cell, (adaptive, args.seconds, seed))?;
        let figures = &place.cell.device;
        let what = format!("{build} {text} {} {:?}", args.requests, figures.blocking);
        let key = Key {
            scenario: place.name(),
            digest: format!("{:016x}", fnv1a(what.as_bytes())),
            // The word of earlier builds, whose stored results stay valid.
            policy: format!("{:?}, steered: {adaptive}", self.policy),
            scheduler: None,
            seed,
        };
        let known = store.lock().expect("no holder panics").get(&key);
        // A stored run that was given up for a promise not needed now is incomplete.
        let says_enough = |known: &Outcome| {
            known.given_up.is_empty() || known.given_up.iter().any(|it| needed.contains(it))
        };
        if let Some(known) = known.filter(says_enough) {
            return Ok(known);
        }
        let outcome = run(
            &place.mix,
            &place.cell,
            &Run {
                policy: self.policy.clone(),
                adaptive_queue: adaptive,
                seed,
                seconds: args.seconds,
                requests: args.requests,
                needed: needed.to_vec(),
            },
        )?;
        let mut store = store.lock().expect("no holder panics");
        store.keep(key, &outcome)?;
        Ok(outcome)
    }
}
