//! Torture test: the engine under faults, determined by one seed.
//!
//! ```text
//!   seed --> swarm (what the run is made of) + plan of faults
//!              |
//!              v
//!   guests <--> engine <--> device      every call and event is seen by the checkers
//!              |
//!   faults stop: everything drains, every slot is free again
//! ```
//!
//! After FoundationDB's simulation and TigerBeetle's VOPR: the seed decides everything, so a
//! failing seed is a failing test. Invariants are in [`checker`](crate::checker), kinds of faults
//! in [`fault`](crate::fault).

mod journal;
mod panics;
mod random_merge_limits;
mod swarm;
mod volatile_medium;
mod window_regulator;
mod world;

pub use crate::torture_rng::TortureRng;
pub use journal::{EventKind, Line, Sink};
pub use swarm::{DiskPlan, Swarm, Timing, VmPlan, Work};
pub use window_regulator::Window;
pub use world::Tally;

use crate::checker::{Broken, Checker};
use core::fmt;
use journal::Journal;
use tidegate_core::policy::Policy;
use tidegate_core::request::{DeviceIo, Done};
use tidegate_core::roles::Roles;
use tidegate_core::transfers::TransferEnd;
use tidegate_policies::policy::PolicySpec;
use world::TortureWorld;

/// Run that violated no invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Seed of the run.
    pub seed: u64,
    /// Digest of everything that happened.
    pub digest: u64,
    /// Size of the run.
    pub tally: Tally,
}

/// Run that violated an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// Violated invariant.
    pub broken: Broken,
    /// Description of the drawn configuration.
    pub swarm: String,
    /// Last lines of the journal.
    pub last: Vec<Line>,
    /// Digest of everything until then.
    pub digest: u64,
    /// Policies that the run was restricted to; empty for any.
    pub policies: Vec<String>,
}

impl Failure {
    /// Command that reproduces the failure.
    pub fn command(&self) -> String {
        let policies = if self.policies.is_empty() {
            String::new()
        } else {
            format!(" --policy {}", self.policies.join(","))
        };
        format!("tidegate torture --seed {}{policies} --trace", self.seed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} violated an invariant", self.seed)?;
        writeln!(f, "\n  {}\n", self.broken)?;
        writeln!(f, "to repeat: {}\n", self.command())?;
        writeln!(f, "drawn configuration:")?;
        for line in self.swarm.lines() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "\nlast events:")?;
        for line in &self.last {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Hooks that plant a bug, for tests of the checkers. The default of each changes nothing.
pub trait Plant {
    /// Called for each answer of the engine; pushes onto `heard` the answers that the checkers see.
    fn answers(&mut self, done: Done, heard: &mut Vec<Done>) {
        heard.push(done);
    }

    /// Called when `len` bytes of a write are about to reach the medium; returns how many do, in
    /// whole sectors.
    fn writes(&mut self, _io: &DeviceIo, len: u32) -> u32 {
        len
    }

    /// Called when a flush is about to be done; returns whether it takes effect.
    fn flushes(&mut self, _io: &DeviceIo) -> bool {
        true
    }

    /// Called before the driver has the engine look for hung disks; returns whether it does.
    fn runs_hung_check(&mut self) -> bool {
        true
    }

    /// Called for each ended transfer; pushes onto `heard` the ends that the checkers see.
    fn transfer_ends(&mut self, end: TransferEnd, heard: &mut Vec<TransferEnd>) {
        heard.push(end);
    }

    /// Returns `false` to leave request slots and payload memory undivided.
    fn divides_resources(&self) -> bool {
        true
    }

    /// Returns `false` to keep limits of disks from the engine, which then keeps none.
    fn passes_disk_limits(&self) -> bool {
        true
    }

    /// Returns a wrapper around the roles of every policy, if any.
    fn roles(&self) -> Option<fn(Roles) -> Roles> {
        None
    }
}

/// Plant without a bug.
struct Sound;

impl Plant for Sound {}

/// Options of a run.
#[derive(Default)]
pub struct Options<'a> {
    /// Policies to draw from; any if empty.
    pub policies: &'a [PolicySpec],
    /// Bug to plant.
    pub plant: Option<&'a mut dyn Plant>,
    /// Receiver of each journal line as it is written.
    pub sink: Option<Sink<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}

/// Runs a seed without options.
///
/// # Errors
/// Fails when an invariant is violated or the engine panics.
pub fn run(seed: u64) -> Result<Passed, Box<Failure>> {
    run_with(seed, Options::default())
}

/// Runs a seed with options.
///
/// # Errors
/// Fails when an invariant is violated or the engine panics.
pub fn run_with(seed: u64, options: Options) -> Result<Passed, Box<Failure>> {
    let mut sound = Sound;
    let plant = options.plant.unwrap_or(&mut sound);
    let swarm = Swarm::draw(seed, options.policies);
    // Before the run takes the swarm; a failure is reported with it.
    let description = swarm.to_string();
    let mut journal = Journal::new(options.sink);
    // The journal is outside, so that it survives a panic.
    let outcome = panics::caught(|| {
        let mut world = TortureWorld::new(seed, swarm, &mut journal, plant);
        let verdict = world.run();
        let tally = world.tally();
        // The engine must not be dropped with requests inside, which it would report as well.
        if verdict.is_err() {
            world.abandon();
        }
        verdict.map(|()| tally)
    });
    let outcome = outcome.unwrap_or_else(|what| {
        Err(Broken {
            checker: Checker::Panic,
            what,
        })
    });
    let digest = journal.digest();
    match outcome {
        Ok(tally) => Ok(Passed {
            seed,
            digest,
            tally,
        }),
        Err(broken) => Err(Box::new(Failure {
            seed,
            broken,
            swarm: description,
            last: journal.last().copied().collect(),
            digest,
            policies: options
                .policies
                .iter()
                .map(|p| p.name().to_owned())
                .collect(),
        })),
    }
}
