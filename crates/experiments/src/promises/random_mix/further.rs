//! Further parts of the objectives of a random mix, each in some mixes only: groups of two tenants,
//! priority classes, latency bounds without a rate, bursts within a latency bound, floors beside a
//! transfer, floors in I/Os of a stated size, and bursts of limits.

use super::{Kind, Part, Random, Vm, pause_ms};

/// Names of the groups.
const TENANTS: [&str; 2] = ["red", "blue"];
/// Smallest part of the device that a further floor takes.
const FLOOR_MIN: Part = Part(100);

/// Adds parts to the objectives of VMs; `spare`: part of the device that may still be promised.
pub(super) fn add(mut random: Random, spare: Part, vms: &mut [(Kind, Vm)]) {
    let mut further = Further { spare };
    let tenants = random
        .chance(35)
        .then(|| random.pick([[100, 100], [300, 100], [100, 400]]));
    let has_classes = random.chance(25);
    for (kind, vm) in vms {
        if let Some(weights) = tenants {
            let at = random.pick([0, 0, 1, 1, 2]);
            if let Some(name) = TENANTS.get(at) {
                let weight = weights[at];
                let group = format!("group = {{ name = \"{name}\", weight = {weight} }}");
                vm.objective.push(group);
            }
        }
        if has_classes {
            further.class(&mut random, vm);
        }
        further.promises(&mut random, *kind, vm);
    }
}

#[derive(Debug)]
struct Further {
    /// Part of the device that may still be promised.
    spare: Part,
}

impl Further {
    fn class(&self, random: &mut Random, vm: &mut Vm) {
        let class = random.pick([
            None,
            None,
            None,
            Some("realtime"),
            Some("best-effort 0"),
            Some("best-effort 2"),
            Some("best-effort 7"),
            Some("idle"),
        ]);
        if let Some(class) = class {
            vm.objective.push(format!("priority = \"{class}\""));
        }
    }

    fn promises(&mut self, random: &mut Random, kind: Kind, vm: &mut Vm) {
        let has = |vm: &Vm, key: &str| vm.objective.iter().any(|it| it.starts_with(key));
        let has_rate = has(vm, "reservation") || has(vm, "target");
        match kind {
            Kind::Database if has(vm, "latency") && random.chance(40) => {
                let burst = random.pick([2, 4, 8]);
                vm.objective
                    .push(format!("expects = {{ burst = {burst} }}"));
            }
            Kind::Database | Kind::Web if !has_rate && random.chance(50) => {
                let bound = random.pick([2, 3]);
                vm.objective.push(format!("latency = \"{{time {bound}}}\""));
            }
            Kind::Batch if random.chance(50) => self.floor(random, vm, "sequential read 256 KiB"),
            Kind::Etl | Kind::Stream if !has_rate && vm.limit.is_none() && random.chance(40) => {
                let size = random.pick([16, 64]);
                self.floor(random, vm, &format!("sequential read 256 KiB @ {size} KiB"));
            }
            Kind::BulkWriter if vm.limit.is_none() && random.chance(40) => {
                self.floor(random, vm, "sequential write 128 KiB @ 16 KiB");
            }
            Kind::Writer if random.chance(40) => {
                self.floor(random, vm, "random write 16 KiB @ 16 KiB");
            }
            _ => {}
        }
        if let Some(limit) = &mut vm.limit
            && random.chance(50)
        {
            limit.burst_s = Some(random.pick([1, 3]));
            // Pauses in which the burst is refilled.
            vm.workload.extend(pause_ms(2000, 256));
        }
    }

    /// Promises each of the VMs a floor, if enough of the device is left.
    fn floor(&mut self, random: &mut Random, vm: &mut Vm, figure: &str) {
        let wanted = Part(100 * random.pick([2, 4, 8]) / vm.count).max(FLOOR_MIN);
        let needed = Part(wanted.0 * vm.count);
        if needed <= self.spare {
            self.spare.0 -= needed.0;
            vm.objective
                .push(format!("reservation = \"{{iops {wanted} % {figure}}}\""));
        }
    }
}
