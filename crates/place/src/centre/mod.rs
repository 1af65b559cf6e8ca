//! A simulated data centre: hosts that run PriDyn, jobs that come at random, and who decides where
//! they go.
//!
//! A host's disk is a fluid: those of the strongest class share the whole of it evenly, and what
//! jobs leave that cannot take their part the others have, then the weaker classes. So what a job
//! has depends on who else is there, which is what the priority database is to learn; no queue, no
//! seek and no request is simulated. Same [`Spec`], same [`Report`], on every machine.

mod draw;
mod plain;
mod report;
mod site;
mod world;

use tidegate_core::time::Nanos;

use crate::Bandwidth;

pub use report::Report;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Spec {
    /// How many hosts, all alike.
    pub hosts: usize,
    /// What each one's disk does.
    pub bandwidth: Bandwidth,
    /// Jobs that come a second, independent of each other.
    pub arrivals_per_s: f64,
    /// Their sizes in bytes: from, to, each factor as likely as any other.
    pub sizes: (u64, u64),
    /// How much longer than alone on a host a job may take, in thousandths of that: from, to. The
    /// thesis' delta.
    pub tolerance: (u32, u32),
    /// Of a thousand jobs so many cannot take all that they are given; which those are nobody is
    /// told.
    pub limited: u32,
    /// How much more of the disk such a job takes than it needs to be in time, in thousandths of
    /// that: from, to, each factor as likely as any other; no more than there is.
    pub headroom: (u32, u32),
    /// They say what they take when they come; else it is found out from what they had.
    pub told: bool,
    /// PriDyn's.
    pub interval: Nanos,
    /// Nothing is counted before.
    pub warm_up: Nanos,
    /// For so long it is.
    pub length: Nanos,
    /// What all choices follow from.
    pub seed: u64,
}

impl Default for Spec {
    /// 1,000 hosts of 500 MB/s, 100 jobs a second of 5.7 GB on average: more than they do.
    fn default() -> Spec {
        const MB: u64 = 1_000_000;
        let lost = (0..32_u64).map(|others| others.min(20) * 5 * MB);
        Spec {
            hosts: 1_000,
            bandwidth: Bandwidth::new(500 * MB, &lost.collect::<Vec<_>>())
                .unwrap_or_else(|_| unreachable!()),
            arrivals_per_s: 100.0,
            sizes: (500 * MB, 22_000 * MB),
            tolerance: (25_000, 75_000),
            limited: 0,
            headroom: (1_100, 10_000),
            told: false,
            interval: Nanos::from_secs(3),
            warm_up: Nanos::from_secs(1_200),
            length: Nanos::from_secs(600),
            seed: 1,
        }
    }
}

/// Who decides where jobs go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// This crate.
    Pcos,
    /// The first host on which the rates that all need fit the disk; those that fit nowhere wait
    /// likewise.
    FirstFit,
    /// Of those hosts the one that is fullest.
    BestFit,
    /// Any host.
    Random,
}

impl Strategy {
    /// All.
    pub const ALL: [Strategy; 4] = [
        Strategy::Pcos,
        Strategy::FirstFit,
        Strategy::BestFit,
        Strategy::Random,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Pcos => "pcos",
            Strategy::FirstFit => "first-fit",
            Strategy::BestFit => "best-fit",
            Strategy::Random => "random",
        }
    }
}

/// A decision whose time may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Where a job that comes goes.
    Arrival,
    /// What follows from jobs that ended, moved on, or have another class.
    Update,
}

/// Somebody with a clock, who sees how long decisions take. The outcome does not depend on it.
pub trait Watch {
    /// One begins. It is counted, or belongs to the warm-up.
    fn begin(&mut self, counted: bool);
    /// It has ended.
    fn end(&mut self, decision: Decision);
}

/// Nobody looks.
impl Watch for () {
    fn begin(&mut self, _: bool) {}
    fn end(&mut self, _: Decision) {}
}

/// Simulates a data centre under a strategy.
pub fn run(spec: &Spec, strategy: Strategy, watch: &mut dyn Watch) -> Report {
    world::World::new(spec, strategy).run(watch)
}
