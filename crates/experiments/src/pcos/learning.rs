//! Learning phase of a host: the throughput of one and two streams, and the priority database.
//!
//! The thesis fills the database "based on previous application execution history". Here the
//! streams of the host's VMs first run under CFQ with all combinations of classes, set by hand: for
//! each number of VMs and each combination, every VM has each of its classes for some seconds, and
//! the bandwidths of each PriDyn interval are learnt.

use super::host::{Capacity, Case, HostModel, MEDIA, Setting};
use crate::ExperimentError;
use crate::pridyn::basis::Basis;
use crate::pridyn::folder::Folder;
use crate::pridyn::key::{Case as Scene, Change, Key as PridynKey};
use crate::pridyn::setup::scenario;
use tidegate_core::objective::Priority;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::PriorityDatabase;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// Interval of PriDyn.
pub(super) const INTERVAL: Nanos = Nanos::from_secs(3);
/// Intervals per combination of classes.
const INTERVALS: u64 = 2;
/// Intervals per combination where requests are large: each interval describes only the few
/// requests in it, so more are needed.
const INTERVALS_OF_LARGE_REQUESTS: u64 = 10;
/// Tolerance delta, in thousandths, of runs without deadlines, which do not depend on it.
const UNUSED_TOLERANCE: u32 = 1000;
/// Duration of a throughput measurement, as in PriDyn's experiment.
const MEASUREMENT: Nanos = Nanos::from_secs(180);

/// Learnt model of a host.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    pub(super) capacity: Capacity,
    pub(super) database: PriorityDatabase,
    /// Bandwidth of a limited VM alone, in bytes per second, if PCOS knows limits.
    limit: Option<u64>,
}

/// Percentage of its limit from which on a VM counts as sated, as in `tidegate place`.
const SATED_PERCENT: u64 = 95;

impl Learnt {
    /// Limit of a VM that PCOS knows, in bytes per second; `None`: no limit, or an unknown one.
    pub(super) fn limit(&self, setting: Setting, vm: usize) -> Option<u64> {
        self.limit.filter(|_| setting.is_limited(vm))
    }

    /// Returns `true` if a VM with this bandwidth in bytes per second got all that it can use.
    pub(super) fn is_sated(&self, setting: Setting, vm: usize, bandwidth: u64) -> bool {
        let limit = self.limit(setting, vm);
        // Divided first: a limit may be close to 64 bits.
        limit.is_some_and(|limit| bandwidth >= limit / 100 * SATED_PERCENT)
    }

    /// Measures the disk's throughput and fills the database, by simulation.
    ///
    /// # Errors
    /// A trace or a file of the experiment cannot be read, or two streams have more throughput than
    /// a bandwidth model allows.
    pub(super) fn new(
        setting: Setting,
        case: Case,
        folder: &Folder,
    ) -> Result<Learnt, ExperimentError> {
        let host = |setting| HostModel::new(setting, case, UNUSED_TOLERANCE, folder);
        let model = host(setting)?;
        // The disk's throughput is measured with VMs that have no limits and do not pause; the
        // database is filled with the host's own.
        let unhindered = match setting {
            Setting::LimitedVms | Setting::KnownLimits => host(Setting::NoPermanentLoad)?,
            Setting::OneVm | Setting::FourVms => host(Setting::NoPauses)?,
            _ => host(setting)?,
        };
        let key = PridynKey::new(Scene::Media, "cfq", Change::Streams(MEDIA));
        let by_hand = scenario(&key, folder, &Basis::default())?;
        let capacity = Capacity {
            alone: total(unhindered.streams(1, MEASUREMENT, &by_hand)),
            two: total(unhindered.streams(2, MEASUREMENT, &by_hand)),
        };
        let limit = (setting == Setting::KnownLimits)
            // The first limited VM; all limited ones have the same CPU time.
            .then(|| total(model.stream_alone(MEDIA + 1, MEASUREMENT, &by_hand)));
        let bandwidth = capacity.bandwidth().ok_or_else(|| ExperimentError::Data {
            file: "experiments/pcos".into(),
            what: format!(
                "two media servers have {} of {} B/s",
                capacity.two, capacity.alone
            ),
        })?;
        let mut learnt = Learnt {
            capacity,
            database: PriorityDatabase::new(bandwidth),
            limit,
        };
        // Media servers that run all the time are part of each combination.
        let vms = if setting.asks_all() {
            1..=setting.places()
        } else {
            MEDIA..=MEDIA + setting.places()
        };
        for vms in vms {
            for classes in combinations(vms) {
                learn(&model, &by_hand, &classes, &mut learnt);
            }
        }
        Ok(learnt)
    }
}

/// Total throughput of a scenario's VMs, in bytes per second.
fn total(scenario: Scenario) -> u64 {
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    report
        .vms
        .iter()
        .map(|vm| vm.rates.bytes_per_s)
        .sum::<f64>() as u64
}

/// All combinations of classes for this many VMs, each sorted.
fn combinations(vms: usize) -> Vec<Vec<Class>> {
    let mut all = Vec::new();
    // Sorted combinations are enough: each VM gets each class by rotation, below.
    for idle in 0..=vms {
        for realtime in 0..=vms - idle {
            let middle = vms - idle - realtime;
            let counts = [idle, middle, realtime];
            let classes = Class::ALL.into_iter().zip(counts);
            all.push(classes.flat_map(|(class, n)| vec![class; n]).collect());
        }
    }
    all
}

/// Simulates the first VMs with a combination of classes, and learns the bandwidths of each
/// interval. `by_hand`: scenario whose policy leaves classes as they are.
fn learn(model: &HostModel, by_hand: &Scenario, classes: &[Class], learnt: &mut Learnt) {
    let vms = classes.len();
    let intervals = match model.setting {
        Setting::OneVm | Setting::NoPauses | Setting::FourVms => INTERVALS,
        Setting::LargeRequests
        | Setting::NoPermanentLoad
        | Setting::LimitedVms
        | Setting::KnownLimits => INTERVALS_OF_LARGE_REQUESTS,
    };
    // Rotates the classes, so that every VM has each of them.
    for turn in 0..vms {
        let length = Nanos(INTERVAL.0 * intervals);
        let mut scenario = model.streams(vms, length, by_hand);
        let class = |vm: usize| classes[(vm + turn) % vms];
        for (at, vm) in scenario.vms.iter_mut().enumerate() {
            vm.objective.priority = match class(at) {
                Class::Idle => Priority::Idle,
                Class::BestEffort => Priority::DEFAULT,
                Class::RealTime => Priority::RealTime,
            };
        }
        let mut world = World::new(scenario, Some(INTERVAL));
        while !world.is_over() {
            // Class and bandwidth of each VM, and whether it would have used more.
            let mut measured = Vec::new();
            // A scenario without media servers begins with the first VM for admitted requests.
            let first = if model.setting.asks_all() { MEDIA } else { 0 };
            world.step(&mut |row| {
                // Rows come in the order of VMs.
                let (vm, bytes_per_s) = (measured.len(), row.rates.bytes_per_s as u64);
                let wants_more = !learnt.is_sated(model.setting, first + vm, bytes_per_s);
                measured.push((class(vm), bytes_per_s, wants_more));
            });
            learnt.database.learn_with_demand(measured);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_there_once() {
        let all = combinations(3);
        assert_eq!(all.len(), 10);
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 10);
        assert!(
            all.iter()
                .all(|classes| classes.len() == 3 && classes.is_sorted())
        );
    }
}
