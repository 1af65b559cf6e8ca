//! Torture: the engine under faults, all of it from one seed.
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
//! In the manner of FoundationDB's simulation and TigerBeetle's VOPR: one seed decides
//! everything, so that a seed which fails is a test which fails. What must hold is in
//! [`checker`](crate::checker), what goes wrong in [`fault`](crate::fault).

mod fickle;
mod journal;
mod media;
mod panics;
mod swarm;
mod window;
mod world;

pub use crate::dice::Dice;
pub use journal::{Line, Sink, What};
pub use swarm::{DiskPlan, Swarm, Timing, VmPlan, Work};
pub use window::Window;
pub use world::Tally;

use crate::checker::{Broken, Checker};
use core::fmt;
use journal::Journal;
use tidegate_core::jobs::JobEnd;
use tidegate_core::policy::Policy;
use tidegate_core::request::{DeviceIo, Done};
use tidegate_core::roles::Roles;
use tidegate_policies::policy::PolicySpec;
use world::TortureWorld;

/// A run that kept every promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// What it came from.
    pub seed: u64,
    /// A digest of everything that happened.
    pub digest: u64,
    /// How much that was.
    pub tally: Tally,
}

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it came from.
    pub seed: u64,
    /// What broke.
    pub broken: Broken,
    /// What the run was made of.
    pub swarm: String,
    /// What happened last.
    pub last: Vec<Line>,
    /// A digest of everything until then.
    pub digest: u64,
    /// The policies it was drawn among, where not any.
    pub policies: Vec<String>,
}

impl Failure {
    /// The command that shows it again.
    pub fn command(&self) -> String {
        let policies = match self.policies.is_empty() {
            true => String::new(),
            false => format!(" --policy {}", self.policies.join(",")),
        };
        format!("tidegate torture --seed {}{policies} --trace", self.seed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} broke a promise", self.seed)?;
        writeln!(f, "\n  {}\n", self.broken)?;
        writeln!(f, "again: {}\n", self.command())?;
        writeln!(f, "what the run was made of:")?;
        for line in self.swarm.lines() {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "\nwhat happened last:")?;
        for line in &self.last {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// A place to plant a bug: for tests of the checkers. What is not said changes nothing.
pub trait Plant {
    /// The engine has answered this. What shall be heard of it?
    fn answers(&mut self, done: Done, heard: &mut Vec<Done>) {
        heard.push(done);
    }

    /// So many bytes of a write are about to reach the medium. How many shall? Whole sectors.
    fn writes(&mut self, _io: &DeviceIo, len: u32) -> u32 {
        len
    }

    /// A flush is about to be done. Shall it?
    fn flushes(&mut self, _io: &DeviceIo) -> bool {
        true
    }

    /// The driver is about to have the engine look for disks that hang. Shall it?
    fn looks(&mut self) -> bool {
        true
    }

    /// The engine says that a job is over. What shall be heard of it?
    fn job_ends(&mut self, end: JobEnd, heard: &mut Vec<JobEnd>) {
        heard.push(end);
    }

    /// Whether request slots and payload memory are divided.
    fn divides(&self) -> bool {
        true
    }

    /// What to put around the roles of every policy.
    fn roles(&self) -> Option<fn(Roles) -> Roles> {
        None
    }
}

/// No bug.
struct Sound;

impl Plant for Sound {}

/// What to do with a seed beyond running it.
#[derive(Default)]
pub struct Options<'a> {
    /// Policies come from these; where there are none, any takes part.
    pub policies: &'a [PolicySpec],
    /// A bug to plant.
    pub plant: Option<&'a mut dyn Plant>,
    /// Gets each line as it happens.
    pub sink: Option<Sink<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}

/// Runs a seed.
///
/// # Errors
/// When a promise is broken, or the engine panics.
pub fn run(seed: u64) -> Result<Passed, Box<Failure>> {
    run_with(seed, Options::default())
}

/// Runs a seed in some special way.
///
/// # Errors
/// When a promise is broken, or the engine panics.
pub fn run_with(seed: u64, options: Options) -> Result<Passed, Box<Failure>> {
    let mut sound = Sound;
    let plant = options.plant.unwrap_or(&mut sound);
    let swarm = Swarm::draw(seed, options.policies);
    let description = swarm.to_string();
    let mut journal = Journal::new(options.sink);
    let outcome = panics::caught(|| {
        let mut world = TortureWorld::new(seed, swarm, &mut journal, plant);
        let verdict = world.run();
        let tally = world.tally();
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
