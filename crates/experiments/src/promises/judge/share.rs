//! Shares of device time by group and weight, among VMs with requests waiting throughout a second.
//!
//! ```text
//!   claims --> entities: a VM without a group, or a group ----> the groups' device time
//!                 water-filling by weight, at least the floor      |
//!                                                                  v
//!                                                              the VMs' device time
//! ```

use tidegate_core::objective::Group;

/// Claim of a VM on the device time of a second; all times in one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Weight of the VM, by its level of best effort as well.
    pub(super) weight: f64,
    /// Group of the VM; its own weight then applies within the group.
    pub(super) group: Option<Group>,
    /// True if requests of the VM waited throughout the second. Another VM is due what it had: it
    /// asked for no more, or another part of its objective decides what it has.
    pub(super) waited: bool,
    /// Device time that the floor takes.
    pub(super) floor: f64,
    /// Device time that the VM had.
    pub(super) had: f64,
}

impl Claim {
    /// True if both claims are of VMs of one group.
    fn is_in_group_of(&self, other: &Claim) -> bool {
        let groups = self.group.zip(other.group);
        groups.is_some_and(|(one, other)| one.name == other.name)
    }

    /// True if the claim counts beside `other`, which waited: it waited itself, or is of the same
    /// group.
    pub(super) fn counts_beside(&self, other: &Claim) -> bool {
        self.waited || self.is_in_group_of(other)
    }

    /// Device time of the VM's floor, as far as the VM asked for it.
    fn needed_floor(&self) -> f64 {
        if self.waited {
            self.floor
        } else {
            self.floor.min(self.had)
        }
    }
}

/// Weight of a VM or group among others, with its floor.
#[derive(Clone, Copy, Debug)]
struct Weighted {
    weight: f64,
    floor: f64,
}

/// Device time due to each VM, out of the total of all: first to groups and VMs without one, then
/// to the VMs of each group. A VM without a group that does not wait must not be among them.
pub(super) fn shares(claims: &[Claim]) -> Vec<f64> {
    // Claims of each entity, by index: a VM without a group, or a group.
    let mut entities: Vec<Vec<usize>> = Vec::new();
    for (vm, claim) in claims.iter().enumerate() {
        let same = |entity: &&mut Vec<usize>| claim.is_in_group_of(&claims[entity[0]]);
        match entities.iter_mut().find(same) {
            Some(group) => group.push(vm),
            None => entities.push(vec![vm]),
        }
    }
    let weighted = entities.iter().map(|entity| {
        let of_group = entity.iter().filter_map(|&vm| claims[vm].group);
        Weighted {
            // The largest weight counts where VMs name several for their group.
            weight: (of_group.map(|group| f64::from(group.weight)))
                .reduce(f64::max)
                .unwrap_or(claims[entity[0]].weight),
            floor: entity.iter().map(|&vm| claims[vm].needed_floor()).sum(),
        }
    });
    let weighted: Vec<Weighted> = weighted.collect();
    let total = claims.iter().map(|claim| claim.had).sum();
    let mut due: Vec<f64> = claims.iter().map(|claim| claim.had).collect();
    for (entity, part) in entities.iter().zip(divide(total, &weighted)) {
        let mut waited = entity.clone();
        waited.retain(|&vm| claims[vm].waited);
        let others = entity.iter().filter(|&&vm| !claims[vm].waited);
        let left = part - others.map(|&vm| claims[vm].had).sum::<f64>();
        let members = waited.iter().map(|&vm| Weighted {
            weight: claims[vm].weight,
            floor: claims[vm].floor,
        });
        let members: Vec<Weighted> = members.collect();
        for (&vm, part) in waited.iter().zip(divide(left.max(0.0), &members)) {
            due[vm] = part;
        }
    }
    due
}

/// Parts of a device time by weight, but at least the floors. Service by floor counts against the
/// share.
fn divide(mut left: f64, claims: &[Weighted]) -> Vec<f64> {
    let mut due = vec![None; claims.len()];
    loop {
        let open: Vec<usize> = (0..claims.len()).filter(|&it| due[it].is_none()).collect();
        let weights: f64 = open.iter().map(|&it| claims[it].weight).sum();
        let by_weight = |it: usize| left * claims[it].weight / weights;
        // A floor that exceeds the part by weight is served; the others share the rest.
        let bound: Vec<usize> = (open.iter().copied())
            .filter(|&it| claims[it].floor > by_weight(it))
            .collect();
        if bound.is_empty() {
            let rest: Vec<(usize, f64)> = open.iter().map(|&it| (it, by_weight(it))).collect();
            rest.into_iter().for_each(|(it, part)| due[it] = Some(part));
            return due.into_iter().map(Option::unwrap_or_default).collect();
        }
        for it in bound {
            // Floors may exceed what is left in all; the first ones get it.
            let part = claims[it].floor.min(left.max(0.0));
            due[it] = Some(part);
            left -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: f64, floor: f64, had: f64) -> Claim {
        Claim {
            weight,
            group: None,
            waited: true,
            floor,
            had,
        }
    }

    /// Claim of a VM in a group with a weight.
    fn in_group(name: &str, group: u32, one: Claim) -> Claim {
        let mut named = Group::named(name.parse().expect("a name"));
        named.weight = group;
        Claim {
            group: Some(named),
            ..one
        }
    }

    #[test]
    fn what_floors_leave_is_shared_by_weight() {
        let by_weight = [claim(400.0, 0.0, 1.0), claim(100.0, 0.0, 9.0)];
        assert_eq!(shares(&by_weight), [8.0, 2.0]);
        let floored = [
            claim(100.0, 6.0, 1.0),
            claim(100.0, 1.0, 5.0),
            claim(300.0, 0.0, 4.0),
        ];
        assert_eq!(shares(&floored), [6.0, 1.0, 3.0]);
    }

    #[test]
    fn a_group_has_one_share_which_its_vms_divide_by_their_weights() {
        // Three VMs in a group of weight 300, one of them of weight 200, beside one of weight 100.
        let group = [
            in_group("a", 300, claim(200.0, 0.0, 2.0)),
            in_group("a", 100, claim(100.0, 0.0, 2.0)),
            claim(100.0, 0.0, 2.0),
            in_group("a", 300, claim(100.0, 0.0, 10.0)),
        ];
        assert_eq!(shares(&group), [6.0, 3.0, 4.0, 3.0]);
        // Within a group alone the weights of its VMs count, whatever the group's.
        let alone = [
            in_group("a", 1, claim(300.0, 0.0, 1.0)),
            in_group("a", 1, claim(100.0, 0.0, 7.0)),
        ];
        assert_eq!(shares(&alone), [6.0, 2.0]);
    }

    #[test]
    fn floors_and_idle_vms_of_a_group_count_against_its_share() {
        let idle = Claim {
            waited: false,
            ..claim(100.0, 5.0, 2.0)
        };
        let beside = [
            in_group("a", 100, idle),
            in_group("a", 100, claim(100.0, 0.0, 6.0)),
            claim(100.0, 0.0, 4.0),
        ];
        assert_eq!(shares(&beside), [2.0, 4.0, 6.0]);
        // The floor of one member takes the group's share and more.
        let floored = [
            in_group("a", 100, claim(100.0, 7.0, 4.0)),
            in_group("a", 100, claim(100.0, 0.0, 4.0)),
            claim(100.0, 0.0, 4.0),
        ];
        assert_eq!(shares(&floored), [7.0, 0.0, 5.0]);
    }
}
