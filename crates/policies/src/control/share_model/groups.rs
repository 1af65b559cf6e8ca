//! Groups of VMs. The weight of a group is divided among those of its VMs that compete, on this
//! host and, as far as their messages arrive, on other hosts that share the device.

use super::strategy::Pool;
use tidegate_base::objective::{Group, GroupName};
use tidegate_core::roles::{Knob, PeerGroup, PeerGroups};

/// Smallest part of a group's weight on this host, in [`Knob::GROUP_WHOLE`]ths: a thousandth of it,
/// as of the device, so that no VM waits for minutes.
const PART_MIN: u32 = Knob::GROUP_WHOLE / 1000;

/// Known groups with the weights of their competing VMs, ordered by name.
#[derive(Debug)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// Weights of the competing VMs, one entry a group of `all`.
    members: Vec<Members>,
    /// Scratch space of [`Groups::pools`].
    pools: Vec<Pool>,
}

/// Weights of the VMs of a group that compete.
#[derive(Clone, Copy, Default, Debug)]
struct Members {
    /// Sum of the VMs' own weights on this host.
    here: u64,
    /// Sum of the VMs' own weights on all other hosts.
    elsewhere: u64,
}

impl Groups {
    /// Creates an empty list with room for `most` groups.
    pub(super) fn with_capacity(most: usize) -> Groups {
        Groups {
            all: Vec::with_capacity(most),
            members: Vec::with_capacity(most),
            pools: Vec::with_capacity(most),
        }
    }

    /// Replaces the groups by those that VMs name. If VMs disagree on a weight, the largest counts.
    pub(super) fn set(&mut self, named: impl Iterator<Item = Group>) {
        self.all.clear();
        self.all.extend(named);
        // `dedup_by_key` keeps the first of a name, which is the one with the largest weight.
        let heaviest_first = |g: &Group| (g.name, u32::MAX - g.weight);
        self.all.sort_unstable_by_key(heaviest_first);
        self.all.dedup_by_key(|group| group.name);
        self.clear_competing();
    }

    /// Returns the index of a group, found by name.
    pub(super) fn find(&self, group: &Group) -> Option<u32> {
        let by_name =
            |known: &Group| -> core::cmp::Ordering { GroupName::cmp(&known.name, &group.name) };
        let place = self.all.binary_search_by(by_name);
        place.ok().map(|place| place as u32)
    }

    /// Adds the competing VMs that another host reports of a group. A group without VMs on this
    /// host is ignored, and so is the weight that the other host names: the group's VMs here would
    /// otherwise take all of this host's part, if another says so.
    pub(super) fn add_peer_group(&mut self, part: &PeerGroup) {
        if let Some(place) = self.find(&part.group) {
            let members = &mut self.members[place as usize];
            // Figures of other hosts may be any integers.
            members.elsewhere = members.elsewhere.saturating_add(part.competing);
        }
    }

    /// Returns the groups with competing VMs on this host, for the message to other hosts; at most
    /// [`PeerGroups::MAX_GROUPS`].
    pub(super) fn competing_groups(&self) -> PeerGroups {
        let mut told = PeerGroups::default();
        let both = self.all.iter().zip(&self.members);
        for (&group, members) in both.filter(|(_, members)| members.here > 0) {
            told.push(PeerGroup {
                group,
                competing: members.here,
            });
        }
        told
    }

    /// Clears the weights of competing VMs before they are counted again.
    pub(super) fn clear_competing(&mut self) {
        self.members.clear();
        self.members.resize(self.all.len(), Members::default());
    }

    /// Returns one pool a group, with unspecified contents.
    pub(super) fn pools(&mut self) -> &mut [Pool] {
        self.pools.resize(self.all.len(), Pool::default());
        &mut self.pools
    }

    /// Counts a competing VM of this weight in the group with index `group`.
    pub(super) fn add_competing(&mut self, group: Option<u32>, weight: u32) {
        if let Some(place) = group {
            self.members[place as usize].here += u64::from(weight);
        }
    }

    /// Returns the part of a group's weight that its competing VMs on this host have, in
    /// [`Knob::GROUP_WHOLE`]ths; at least [`PART_MIN`], whatever others report.
    pub(super) fn part_here(&self, group: u32) -> u32 {
        let Members { here, elsewhere } = self.members[group as usize];
        let whole = u128::from(Knob::GROUP_WHOLE);
        let all = (u128::from(here) + u128::from(elsewhere)).max(1);
        // Rounded; at most the whole, so it fits.
        let part = (u128::from(here) * whole + all / 2) / all;
        (part as u32).max(PART_MIN)
    }

    /// Returns a VM's effective weight among all: its own, or its part of the weight of its group.
    pub(super) fn share(&self, group: Option<u32>, weight: u32) -> f64 {
        let own = f64::from(weight);
        group.map_or(own, |place| {
            let members = &self.members[place as usize];
            let weight = self.all[place as usize].weight;
            f64::from(weight) * own / (members.here as f64 + members.elsewhere as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_weight_is_divided_among_those_that_compete() {
        let group = |name: &str, weight| Group {
            name: name.parse().expect("short"),
            weight,
        };
        let mut groups = Groups::with_capacity(4);
        // VMs disagree on the weight of `a`: 50 counts.
        let named = [
            group("b", 300),
            group("a", 10),
            group("a", 50),
            group("a", 20),
        ];
        groups.set(named.into_iter());
        let [a, b] = ["a", "b"].map(|name| groups.find(&group(name, 1)));
        assert_eq!(
            (a, b, groups.find(&group("c", 1))),
            (Some(0), Some(1), None)
        );
        for (of, weight) in [(a, 100), (a, 300), (b, 7), (None, 40)] {
            groups.add_competing(of, weight);
        }
        assert_eq!(groups.share(a, 100), 12.5);
        assert_eq!(groups.share(a, 300), 37.5);
        assert_eq!(groups.share(b, 7), 300.0);
        assert_eq!(groups.share(None, 40), 40.0);
        groups.clear_competing();
        groups.add_competing(a, 300);
        assert_eq!(groups.share(a, 300), 50.0, "one alone has all of it");
    }

    fn part(name: &str, weight: u32, competing: u64) -> PeerGroup {
        let name = name.parse().expect("short");
        PeerGroup {
            group: Group { name, weight },
            competing,
        }
    }

    #[test]
    fn vms_of_other_hosts_have_their_part_of_a_groups_weight() {
        let [a, b] = [part("a", 60, 0).group, part("b", 10, 0).group];
        let mut groups = Groups::with_capacity(4);
        groups.set([a, b].into_iter());
        let [a, b] = [groups.find(&a), groups.find(&b)];
        groups.add_competing(a, 100);
        groups.add_competing(a, 200);
        for other in [part("a", 60, 500), part("a", 50, 100), part("c", 9, 7)] {
            groups.add_peer_group(&other);
        }
        // Weight 60 is divided by the weights of 900 that compete on all hosts.
        assert_eq!(groups.share(a, 200) * 9.0, 120.0);
        let here = |groups: &Groups, group: Option<u32>| groups.part_here(group.expect("known"));
        assert_eq!(here(&groups, a), Knob::GROUP_WHOLE / 3);
        groups.add_competing(b, 5);
        groups.add_peer_group(&part("b", u32::MAX, 15));
        assert_eq!(groups.share(b, 5), 2.5, "by the weight that VMs here name");
        let told: Vec<PeerGroup> = groups.competing_groups().iter().copied().collect();
        assert_eq!(told, [part("a", 60, 300), part("b", 10, 5)]);
        groups.add_peer_group(&part("b", u32::MAX, u64::MAX));
        assert!(groups.share(b, 5) > 0.0, "whatever others say");
        assert_eq!(here(&groups, b), PART_MIN, "whatever others say");
        groups.clear_competing();
        groups.add_competing(a, 300);
        assert_eq!(groups.share(a, 300), 60.0, "until it is heard again");
        assert_eq!(here(&groups, a), Knob::GROUP_WHOLE);
        assert_eq!(
            groups.competing_groups().iter().count(),
            1,
            "no VM of b competes"
        );
    }

    #[test]
    fn a_message_has_room_for_so_many_groups() {
        let all = (0..40).map(|n| part(&format!("{n:02}"), 10, 0).group);
        let mut groups = Groups::with_capacity(40);
        groups.set(all.clone());
        for group in all {
            groups.add_competing(groups.find(&group), 1);
        }
        let told = groups.competing_groups();
        let names: Vec<&str> = told.iter().map(|p| p.group.name.as_str()).collect();
        assert_eq!(names.len(), PeerGroups::MAX_GROUPS);
        assert_eq!((names[0], names[15]), ("00", "15"));
    }
}
