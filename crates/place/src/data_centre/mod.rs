//! Simulation of a data centre: hosts, randomly arriving transfers, and a placement strategy.
//!
//! Each host runs PriDyn, which raises and lowers the I/O classes of its transfers to meet their
//! deadlines (Jain and Lakshmi, IEEE TSC 2014). PCOS places transfers on hosts by measured rates of
//! classes (Jain's thesis, chapter 5).
//!
//! A host's disk is modelled as a fluid: transfers of the highest class share its bandwidth evenly;
//! what they cannot use goes to the others of the class, then to lower classes. A transfer's rate
//! thus depends on its neighbours, which is what the priority database has to learn. Queues, seeks
//! and single requests are not simulated. Equal [`Spec`]s give equal [`Report`]s on every machine.

mod arrivals;
mod host;
mod rate_placer;
mod report;
mod world;

use tidegate_core::time::Nanos;

use crate::Bandwidth;

pub use report::Report;

/// Parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Number of identical hosts.
    pub hosts: usize,
    /// Bandwidth of each host's disk.
    pub bandwidth: Bandwidth,
    /// Mean number of transfers that arrive per second (Poisson process).
    pub arrivals_per_s: f64,
    /// Range of transfer sizes in bytes, log-uniform.
    pub sizes: (u64, u64),
    /// Range of the additional duration that a deadline allows, in thousandths of the duration
    /// alone on a host (delta in Jain's thesis).
    pub tolerance: (u32, u32),
    /// Number of transfers in a thousand whose demand is limited; the strategy does not know which
    /// ones.
    pub limited: u32,
    /// Range of the limit of such a transfer, in thousandths of its needed rate, log-uniform; a
    /// limit above the disk's bandwidth is none.
    pub headroom: (u32, u32),
    /// Transfers declare their limits on arrival; otherwise limits must be inferred from rates.
    pub limits_declared: bool,
    /// PriDyn's measurement interval.
    pub interval: Nanos,
    /// Initial time that is not counted.
    pub warm_up: Nanos,
    /// Counted time after the warm-up.
    pub length: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Spec {
    /// 1,000 hosts of 500 MB/s and 80 transfers per second of 5.7 GB on average, which such hosts
    /// can do; 100 are an overload.
    fn default() -> Spec {
        const MB: u64 = 1_000_000;
        // 5 MB/s less with each further transfer, up to 100 MB/s.
        let lost = (0..32_u64).map(|others| others.min(20) * 5 * MB);
        Spec {
            hosts: 1_000,
            bandwidth: Bandwidth::new(500 * MB, &lost.collect::<Vec<_>>())
                .unwrap_or_else(|_| unreachable!()),
            arrivals_per_s: 80.0,
            sizes: (500 * MB, 22_000 * MB),
            tolerance: (25_000, 75_000),
            limited: 0,
            headroom: (1_100, 10_000),
            limits_declared: false,
            interval: Nanos::from_secs(3),
            warm_up: Nanos::from_secs(1_200),
            length: Nanos::from_secs(600),
            seed: 1,
        }
    }
}

/// Placement strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// PCOS, as implemented by [`Pcos`](crate::Pcos).
    Pcos,
    /// First host whose disk has the bandwidth for all needed rates. Transfers that fit nowhere
    /// wait, as with PCOS.
    FirstFit,
    /// Fullest host whose disk has the bandwidth for all needed rates.
    BestFit,
    /// Random host.
    Random,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] = [
        Strategy::Pcos,
        Strategy::FirstFit,
        Strategy::BestFit,
        Strategy::Random,
    ];

    /// Name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Pcos => "pcos",
            Strategy::FirstFit => "first-fit",
            Strategy::BestFit => "best-fit",
            Strategy::Random => "random",
        }
    }
}

/// Kind of decision whose duration can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Placement of an arriving transfer.
    Arrival,
    /// Reaction to transfers that ended, made progress or changed class.
    Update,
}

/// Observer that measures the duration of decisions; it does not influence the outcome.
pub trait Observer {
    /// Called before a decision; `counted` is `false` during the warm-up.
    fn begin(&mut self, counted: bool);
    /// Called after the decision.
    fn end(&mut self, decision: Decision);
}

/// Observer that measures nothing.
impl Observer for () {
    fn begin(&mut self, _: bool) {}
    fn end(&mut self, _: Decision) {}
}

/// Simulates a data centre under a strategy.
///
/// # Panics
/// There is no host, the rate of arrivals is not positive, or the interval is 0.
pub fn simulate(spec: &Spec, strategy: Strategy, observer: &mut dyn Observer) -> Report {
    assert!(spec.hosts > 0, "a data centre needs at least one host");
    assert!(
        spec.arrivals_per_s.is_finite() && spec.arrivals_per_s > 0.0,
        "{} arrivals per second; the rate must be positive",
        spec.arrivals_per_s
    );
    // Events would otherwise repeat at one time for ever.
    assert!(spec.interval > Nanos::ZERO, "the interval must not be 0");
    world::Simulation::new(spec, strategy).run(observer)
}
