//! Learning phase of a host: the throughput of one and two streams, and the priority database.
//!
//! The thesis fills the database "based on previous application execution history". Here the same
//! streams first run under CFQ with all combinations of classes, set by hand: for each number of
//! VMs and each combination, every VM has each of its classes for some seconds, and the result of
//! each PriDyn interval is learnt.

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
/// Intervals per combination. An interval of large requests describes only the requests in it, so
/// more of them are needed.
const INTERVALS: u64 = 2;
/// Intervals per combination where requests are large.
const INTERVALS_OF_LONG: u64 = 10;
/// Delta, in thousandths, of runs without deadlines, which do not depend on it.
const ANY: u32 = 1000;
/// Duration of a throughput measurement, as in PriDyn's experiment.
const MEASURED: Nanos = Nanos::from_secs(180);

/// Learnt model of a host.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    pub(super) capacity: Capacity,
    pub(super) database: PriorityDatabase,
    /// Bandwidth of a limited VM alone, in bytes per second, if PCOS is told.
    limit: Option<u64>,
}

/// Percentage of its limit from which on a VM counts as sated, as in `tidegate place`.
const ALL_OF_IT: u64 = 95;

impl Learnt {
    /// Limit of this VM that PCOS is told, in bytes per second.
    pub(super) fn limit(&self, setting: Setting, vm: usize) -> Option<u64> {
        self.limit.filter(|_| setting.is_limited(vm))
    }

    /// Returns `true` if a VM with the bandwidth `had` got all that it can use.
    pub(super) fn is_sated(&self, setting: Setting, vm: usize, had: u64) -> bool {
        let limit = self.limit(setting, vm);
        // Divided first: a limit may be close to 64 bits.
        limit.is_some_and(|limit| had >= limit / 100 * ALL_OF_IT)
    }

    pub(super) fn new(
        setting: Setting,
        case: Case,
        folder: &Folder,
    ) -> Result<Learnt, ExperimentError> {
        let of = |setting| HostModel::new(setting, case, ANY, folder);
        // The disk's throughput is measured with unlimited VMs; the database is filled with the
        // host's own.
        let (model, whole) = match setting {
            Setting::LimitedVms | Setting::KnownLimits => {
                (of(setting)?, of(Setting::NoPermanentLoad)?)
            }
            _ => (of(setting)?, of(setting)?),
        };
        let key = PridynKey::new(Scene::Media, "cfq", Change::Streams(MEDIA));
        let by_hand = scenario(&key, folder, &Basis::default())?;
        let capacity = Capacity {
            alone: total(whole.streams(1, MEASURED, &by_hand)),
            two: total(whole.streams(2, MEASURED, &by_hand)),
        };
        let limit = (setting == Setting::KnownLimits)
            // The first limited VM; all limited ones have the same CPU time.
            .then(|| total(model.stream_alone(MEDIA + 1, MEASURED, &by_hand)));
        let bandwidth = capacity.bandwidth().ok_or_else(|| ExperimentError::Data {
            file: "experiments/pcos",
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

fn learn(model: &HostModel, by_hand: &Scenario, classes: &[Class], learnt: &mut Learnt) {
    let vms = classes.len();
    let intervals = match model.setting {
        Setting::OneVm | Setting::FourVms => INTERVALS,
        Setting::LargeRequests
        | Setting::NoPermanentLoad
        | Setting::LimitedVms
        | Setting::KnownLimits => INTERVALS_OF_LONG,
    };
    // Rotates the classes, so that every VM has each of them.
    for turn in 0..vms {
        let length = Nanos(INTERVAL.0 * intervals);
        let mut scenario = model.streams(vms, length, by_hand);
        let class = |vm: usize| classes[(vm + turn) % vms];
        for (vm, tenant) in scenario.tenants.iter_mut().enumerate() {
            tenant.objective.priority = match class(vm) {
                Class::Idle => Priority::Idle,
                Class::BestEffort => Priority::DEFAULT,
                Class::RealTime => Priority::RealTime,
            };
        }
        let mut world = World::new(scenario, Some(INTERVAL));
        while !world.is_over() {
            let mut had = Vec::new();
            // Without media servers the first VM is the first one for newcomers.
            let first = if model.setting.asks_all() { MEDIA } else { 0 };
            world.step(&mut |row| {
                // Rows come in the order of VMs.
                let (vm, rate) = (had.len(), row.rates.bytes_per_s as u64);
                let took_all = !learnt.is_sated(model.setting, first + vm, rate);
                had.push((class(vm), rate, took_all));
            });
            learnt.database.learn_with_demand(had);
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
