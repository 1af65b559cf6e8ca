//! Shares of the device time that promises leave: by priority class, then by group and weight in
//! virtual time.
//!
//! ```text
//!   realtime ---> best effort ---> idle ---> background    a class goes when those before it
//!                     |                                    want nothing
//!          VMs and groups, by tag              start-time fair queueing by cost / weight
//!                     |
//!            VMs of a group, by tag
//! ```
//!
//! - A class never waits for one behind it, except for the background, which has a rate: see
//!   [`background`](super::background). Levels of best effort are factors of the weight: level 4
//!   counts one, level 0 two, level 7 a quarter.
//! - A class that was passed over for [`PASSED_OVER_MAX`] has one I/O before those above it, so
//!   that no VM starves: an idle VM may hold a lock that others wait for.
//! - A group counts as one VM of the group's weight, separately in each class; its members divide
//!   that share by their own weights. Where members name different weights of it, the largest
//!   counts.
//! - On a device that other hosts share, a group has a part of its weight on this host
//!   ([`Shares::set_group_part`]), the rest being that of its VMs elsewhere. It then pays more for
//!   each I/O, rather than having a smaller weight, which would be rounded.
//! - A VM that wakes joins at the tag of the VM that was served last: idle time earns nothing. In a
//!   group it joins at the smallest tag of those that wait. A VM that was passed over at a disk
//!   that seeks keeps what it is behind, up to a turn, in its group as well.
//! - Service by promise counts against the share of the VM and of its group, up to a bound. Where
//!   others of the group wait, the bound is for all promised service of the group between two of
//!   its turns, so that they have turns although the promises take all of the group's share.

#[cfg(test)]
mod tests;

use super::super::virtual_time::{ByTag, Flow, Virtual};
use crate::treap::Treaps;
use tidegate_base::objective::{Group, GroupName, Objective, Priority};
use tidegate_base::time::Nanos;
use tidegate_core::roles::Knob;

/// Longest time for which a class that waits is passed over by those above it.
const PASSED_OVER_MAX: Nanos = Nanos::from_millis(500);
/// Value of [`Member::group`] for a VM without a group.
const NO_GROUP: u32 = u32::MAX;
/// Binary digits by which members' tags are coarser than entities', so that their 64 bits last for
/// years.
const MEMBER_TAG_SHIFT: u32 = 10;

/// Largest cost of an I/O as it counts for a group with a small part of its weight: five hours of
/// device time in picoseconds, so that tags stay less than half their range apart.
const COUNTED_COST_MAX: u64 = 1 << 54;

/// A class of priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    RealTime = 0,
    BestEffort = 1,
    Idle = 2,
    Background = 3,
}

/// Number of classes of VMs: all but the background.
const VM_CLASSES: usize = 3;

/// Returns the class of a priority, and the factor of its weight in quarters.
fn class_of(priority: Priority) -> (Class, u32) {
    match priority {
        Priority::RealTime => (Class::RealTime, 4),
        Priority::BestEffort(level) => (
            Class::BestEffort,
            // Levels 0 to 7 give 8 to 1 quarters.
            8 - u32::from(level.min(Priority::LEVEL_MAX)),
        ),
        Priority::Idle => (Class::Idle, 4),
    }
}

/// Returns the weight that a VM with this objective competes with, in quarters of its own.
fn quarters(objective: &Objective) -> u32 {
    objective.weight * class_of(objective.priority).1
}

/// Share of one VM or background process.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Tag and weight among entities, or in the VM's group.
    flow: Flow,
    class: Class,
    /// Index in [`Shares::groups`], or [`NO_GROUP`].
    group: u32,
    /// Something of the VM waits that may go.
    active: bool,
}

/// Share of a group within one class.
#[derive(Clone, Debug)]
struct GroupShare {
    name: GroupName,
    class: Class,
    flow: Flow,
    /// Part of the weight that counts on this host, in [`Knob::GROUP_WHOLE`]ths; not 0.
    part: u32,
    /// Smallest tag among members served lately: where a waking member joins.
    clock: u64,
    /// Clock of the class at the group's last turn by share, or later while at most one member
    /// waits: from here on, promised service of members counts up to a bound.
    turn_at: Virtual,
    /// Number of VMs in the group, and of active ones. With 0 VMs the entry is free for another
    /// group.
    members: u32,
    active: u32,
    /// VM whose slot the group uses among entities.
    leader: u32,
}

impl GroupShare {
    /// Returns a cost as it counts for the group with the part of its weight on this host.
    #[inline]
    fn cost(&self, cost: u64) -> u64 {
        if self.part == Knob::GROUP_WHOLE {
            return cost;
        }
        let counted = u128::from(cost) * u128::from(Knob::GROUP_WHOLE) / u128::from(self.part);
        u64::try_from(counted).map_or(COUNTED_COST_MAX, |it| it.min(COUNTED_COST_MAX))
    }

    /// Returns whether a member is less than `lead`, by its weight, ahead of the others.
    fn is_member_within(&self, member: &Member, lead: u64) -> bool {
        member.flow.tag.0 < self.clock + member_span(&member.flow, lead)
    }

    /// Charges a member the cost of an I/O in the order `within` its group. With `most`, the I/O
    /// was served by promise: that brings the member ahead of the others by at most that cost.
    #[inline]
    fn charge_member(
        &mut self,
        member: &mut Member,
        vm: usize,
        cost: u64,
        most: Option<u64>,
        within: &mut Treaps,
    ) {
        let (set, before) = (member.group as usize, member.flow.tag.0);
        if member.active {
            within.remove(set, vm);
        }
        // At least 1, so that members with tiny I/Os still take turns.
        member.flow.spend((cost >> MEMBER_TAG_SHIFT).max(1));
        if let Some(most) = most {
            let bound = (self.clock + member_span(&member.flow, most)).max(before);
            member.flow.tag = Virtual(member.flow.tag.0.min(bound));
        }
        if member.active {
            within.insert(set, member.flow.tag.0, vm);
        }
        // As for entities: no member that waits falls behind the clock.
        let first = within.first(set);
        let least = first.map_or(before, |(tag, _)| tag.min(before));
        self.clock = self.clock.max(least);
    }
}

/// Returns the distance of a member's tags for a cost.
fn member_span(flow: &Flow, cost: u64) -> u64 {
    (cost >> MEMBER_TAG_SHIFT) / u64::from(flow.weight)
}

/// Entities of one class: VMs without a group, and groups.
struct Entities {
    order: ByTag,
    /// Smallest tag among those served lately: where a waking entity joins.
    clock: Virtual,
    /// Time at which an entity was last served by its share, or the first of them began to wait.
    passed_over_since: Nanos,
}

impl Entities {
    /// Puts an entity of which nothing waited in its place.
    #[inline]
    fn insert(&mut self, now: Nanos, entity: usize, tag: Virtual) {
        // The class begins to wait: time before that was not passed over.
        if self.order.first().is_none() {
            self.passed_over_since = now;
        }
        self.order.insert(entity, tag);
    }
}

/// Shares of all VMs and background processes.
pub(super) struct Shares {
    members: Vec<Member>,
    /// Weight that each VM names for its group; the largest counts, and may leave with its VM.
    named: Vec<u32>,
    classes: [Entities; VM_CLASSES + 1],
    groups: Vec<GroupShare>,
    /// Active members of each group, by tag.
    within: Treaps,
}

impl Shares {
    /// Creates shares with room for `vms` VMs.
    pub(super) fn with_capacity(vms: usize) -> Shares {
        let entities = || Entities {
            order: ByTag::with_capacity(vms),
            clock: Virtual(0),
            passed_over_since: Nanos::ZERO,
        };
        let vacant = Member {
            flow: Flow::new(Virtual(0), 4 * Objective::DEFAULT_WEIGHT),
            class: Class::BestEffort,
            group: NO_GROUP,
            active: false,
        };
        Shares {
            members: vec![vacant; vms],
            named: vec![0; vms],
            classes: [(); VM_CLASSES + 1].map(|()| entities()),
            groups: Vec::new(),
            within: Treaps::with_capacity(vms, vms),
        }
    }

    /// Returns the bytes of memory that one more VM takes, at the present number of VMs.
    pub(super) fn bytes_per_vm(&self) -> usize {
        let vms = self.members.len();
        let orders = (4 * ByTag::bytes(vms)).div_ceil(vms.max(1));
        let groups = Treaps::BYTES_PER_ID + Treaps::BYTES_PER_SET;
        size_of::<Member>() + size_of::<u32>() + orders + groups
    }

    /// Restarts every share from tag 0, because costs are counted in another unit from now on.
    pub(super) fn restart(&mut self, now: Nanos) {
        let active: Vec<bool> = self.members.iter().map(|member| member.active).collect();
        // All VMs leave before the first comes back, because a group enters with its first active
        // member.
        for vm in 0..self.members.len() {
            self.deactivate(vm);
            self.members[vm].flow.join(Virtual(0));
        }
        for class in &mut self.classes {
            class.order = ByTag::with_capacity(self.members.len());
            class.clock = Virtual(0);
        }
        for group in &mut self.groups {
            group.flow.join(Virtual(0));
            group.clock = 0;
        }
        for vm in (0..active.len()).filter(|&vm| active[vm]) {
            self.activate(now, vm, u64::MAX, 0);
        }
    }

    /// Takes over a VM's weight, group and priority; `background`: it is a process of the host;
    /// `newcomer`: it has just come into its slot.
    pub(super) fn set_vm(
        &mut self,
        now: Nanos,
        vm: usize,
        objective: &Objective,
        background: bool,
        newcomer: bool,
    ) {
        let class = if background {
            Class::Background
        } else {
            class_of(objective.priority).0
        };
        let member = self.members[vm];
        let same_group = match objective.group {
            None => member.group == NO_GROUP,
            Some(group) => self.group_of(vm).is_some_and(|it| it.name == group.name),
        };
        let active = member.active;
        if newcomer || !same_group || member.class != class {
            self.remove_vm(vm);
            self.members[vm].class = class;
            self.members[vm]
                .flow
                .join(self.classes[class as usize].clock);
            if let Some(group) = objective.group {
                self.join_group(vm, class, &group);
            }
        } else if let Some(group) = objective.group {
            self.named[vm] = group.weight;
            // The VM may have named the largest weight before, or does now.
            self.weigh_group(member.group);
        }
        self.set_weight(now, vm, quarters(objective));
        // `set_weight` found the VM inactive if it was removed above, so it did not activate it.
        if active && !self.members[vm].active {
            self.activate(now, vm, u64::MAX, 0);
        }
    }

    /// Sets a VM's weight, in quarters.
    pub(super) fn set_weight(&mut self, now: Nanos, vm: usize, quarters: u32) {
        let active = self.members[vm].active;
        // Orders are by tag, so a VM leaves them before its tag changes.
        self.deactivate(vm);
        let clock = match self.group_of(vm) {
            Some(group) => Virtual(group.clock),
            None => self.classes[self.members[vm].class as usize].clock,
        };
        self.members[vm].flow.set_weight(quarters, clock);
        if active {
            self.activate(now, vm, u64::MAX, 0);
        }
    }

    /// Takes a VM out of all shares.
    pub(super) fn remove_vm(&mut self, vm: usize) {
        self.deactivate(vm);
        let index = self.members[vm].group;
        self.members[vm].group = NO_GROUP;
        if index == NO_GROUP {
            return;
        }
        let in_group = |member: &Member| member.group == index;
        // `None`: the group is empty, and its entry is free.
        let heir = self.members.iter().position(in_group);
        let group = &mut self.groups[index as usize];
        group.members -= 1;
        if let Some(heir) = heir
            && group.leader as usize == vm
        {
            let leader = core::mem::replace(&mut group.leader, heir as u32);
            let order = &mut self.classes[group.class as usize].order;
            if order.contains(leader as usize) {
                // The entity stands under its leader's slot, which another VM may take.
                order.remove(leader as usize);
                order.set(heir, group.flow.tag);
            }
        }
        self.weigh_group(index);
    }

    fn group_of(&self, vm: usize) -> Option<&GroupShare> {
        self.groups.get(self.members[vm].group as usize)
    }

    /// Adds a VM to its group within a class; creates the group with its first VM.
    fn join_group(&mut self, vm: usize, class: Class, group: &Group) {
        let is_same =
            |it: &GroupShare| it.members > 0 && it.name == group.name && it.class == class;
        let found = self.groups.iter().position(is_same);
        let index = found.unwrap_or_else(|| {
            let new = GroupShare {
                name: group.name,
                class,
                flow: Flow::new(self.classes[class as usize].clock, 4 * group.weight),
                part: Knob::GROUP_WHOLE,
                clock: 0,
                turn_at: self.classes[class as usize].clock,
                members: 0,
                active: 0,
                leader: vm as u32,
            };
            match self.groups.iter().position(|it| it.members == 0) {
                Some(free) => {
                    self.groups[free] = new;
                    free
                }
                None => {
                    self.groups.push(new);
                    self.groups.len() - 1
                }
            }
        });
        self.groups[index].members += 1;
        self.named[vm] = group.weight;
        self.members[vm].group = index as u32;
        let clock = Virtual(self.groups[index].clock);
        self.members[vm].flow.join(clock);
        self.weigh_group(index as u32);
    }

    /// Updates a group's weight to the largest that a member names.
    fn weigh_group(&mut self, index: u32) {
        let members = self.members.iter().zip(&self.named);
        let named = members.filter(|(member, _)| member.group == index);
        if let Some(weight) = named.map(|(_, &weight)| weight).max() {
            let group = &mut self.groups[index as usize];
            let clock = self.classes[group.class as usize].clock;
            // Best-effort groups compete with VMs of level 4, whose factor is four quarters.
            group.flow.set_weight(4 * weight, clock);
            self.reorder_group(index);
        }
    }

    /// Gives a group of which something waits its place in the order by its tag.
    fn reorder_group(&mut self, index: u32) {
        let group = &self.groups[index as usize];
        let order = &mut self.classes[group.class as usize].order;
        if order.contains(group.leader as usize) {
            order.set(group.leader as usize, group.flow.tag);
        }
    }

    /// Sets the part of the weight of a VM's group that counts on this host, in
    /// [`Knob::GROUP_WHOLE`]ths; without effect on a VM without a group. A lead of the group over
    /// others changes with it, as with another weight.
    pub(super) fn set_group_part(&mut self, vm: usize, part: u32) {
        let index = self.members[vm].group;
        let Some(group) = self.groups.get_mut(index as usize) else {
            return;
        };
        let part = part.clamp(1, Knob::GROUP_WHOLE);
        let clock = self.classes[group.class as usize].clock;
        let tag = group.flow.tag.reweighed(clock, group.part, part);
        let most = clock.plus(COUNTED_COST_MAX);
        group.part = part;
        group.flow.join(tag.min(most));
        self.reorder_group(index);
    }

    /// Puts a VM into the order once something of it waits that may go. Its tag is raised to that
    /// of the VM served last, less a cost of `behind` that it may have missed through no pause of
    /// its own, and, where it is ahead by more than a cost of `most`, set back to it.
    #[inline(never)]
    pub(super) fn activate(&mut self, now: Nanos, vm: usize, most: u64, behind: u64) {
        self.activate_now(now, vm, most, behind);
    }

    /// [`Shares::activate`] for the path of a request.
    #[inline(always)]
    pub(super) fn activate_now(&mut self, now: Nanos, vm: usize, most: u64, behind: u64) {
        let member = &mut self.members[vm];
        if member.active {
            return;
        }
        member.active = true;
        let class = &mut self.classes[member.class as usize];
        // Weights are in quarters, so costs are multiplied by four.
        let join = |flow: &mut Flow, clock: Virtual, behind: u64, most: u64| {
            let span = |cost: u64| cost.saturating_mul(4) / u64::from(flow.weight);
            if flow.tag < clock {
                // Most VMs were idle, so that the division is seldom needed.
                let earliest = match behind {
                    0 => clock,
                    cost => clock.minus(span(cost)),
                };
                flow.join(flow.tag.max(earliest));
            } else if flow.tag.since(clock) > span(most) {
                flow.join(clock);
            }
        };
        if member.group == NO_GROUP {
            join(&mut member.flow, class.clock, behind, most);
            class.insert(now, vm, member.flow.tag);
            return;
        }
        let group = &mut self.groups[member.group as usize];
        // Idle time earns nothing among members, either; time in which the disk passed one over is
        // no idle time.
        if member.flow.tag.0 < group.clock {
            let earliest = match behind {
                0 => group.clock,
                cost => (group.clock).saturating_sub(member_span(&member.flow, cost)),
            };
            member.flow.join(Virtual(member.flow.tag.0.max(earliest)));
        }
        (self.within).insert(member.group as usize, member.flow.tag.0, vm);
        group.active += 1;
        if group.active == 1 {
            group.turn_at = class.clock;
            let (behind, most) = (group.cost(behind), group.cost(most));
            join(&mut group.flow, class.clock, behind, most);
            class.insert(now, group.leader as usize, group.flow.tag);
        }
    }

    /// Takes a VM out of the order once nothing of it waits that may go.
    #[inline(always)]
    pub(super) fn deactivate(&mut self, vm: usize) {
        let member = &mut self.members[vm];
        if !core::mem::replace(&mut member.active, false) {
            return;
        }
        let order = &mut self.classes[member.class as usize].order;
        if member.group == NO_GROUP {
            order.take_out(vm);
            return;
        }
        self.within.remove(member.group as usize, vm);
        let group = &mut self.groups[member.group as usize];
        group.active -= 1;
        if group.active == 0 {
            order.remove(group.leader as usize);
        }
    }

    /// Returns the VM whose turn it is by class, group and weight.
    #[inline]
    pub(super) fn first(&self, now: Nanos) -> Option<usize> {
        let mut of_vms = self.classes[..VM_CLASSES].iter();
        let (mut class, mut entity) =
            of_vms.find_map(|class| Some((class, class.order.first()?.1)))?;
        // Of several classes that were passed over for too long, the lowest goes. One above that
        // was passed over for longer goes first: where turns are rare, each of them is late.
        for below in of_vms {
            if let Some((_, first)) = below.order.first()
                // Background is not among these classes: it has a rate of its own.
                && now >= below.passed_over_since + PASSED_OVER_MAX
                && below.passed_over_since < class.passed_over_since
            {
                (class, entity) = (below, first);
            }
        }
        self.first_of(entity)
    }

    /// Returns whether any VM waits.
    #[inline]
    pub(super) fn any_waits(&self) -> bool {
        let mut of_vms = self.classes[..VM_CLASSES].iter();
        of_vms.any(|class| class.order.first().is_some())
    }

    /// Returns the background process whose turn it is by weight.
    #[inline]
    pub(super) fn first_background(&self) -> Option<usize> {
        let (_, entity) = self.classes[Class::Background as usize].order.first()?;
        self.first_of(entity)
    }

    /// Returns the VM whose turn it is within an entity.
    fn first_of(&self, entity: usize) -> Option<usize> {
        match self.members[entity].group {
            NO_GROUP => Some(entity),
            group => self.within.first(group as usize).map(|(_, vm)| vm),
        }
    }

    /// Returns whether a VM is less than `lead`, by its weight, ahead of its share, and so is its
    /// group.
    #[inline]
    pub(super) fn is_within(&self, vm: usize, lead: u64) -> bool {
        let member = &self.members[vm];
        let clock = self.classes[member.class as usize].clock;
        let (flow, lead) = match self.group_of(vm) {
            None => (&member.flow, lead),
            Some(group) if !group.is_member_within(member, lead) => return false,
            Some(group) => (&group.flow, group.cost(lead)),
        };
        // Four, because weights are in quarters.
        flow.tag < clock.plus(4 * lead / u64::from(flow.weight))
    }

    /// Returns the members of two VMs if both are of one group.
    fn in_one_group(&self, vm: usize, other: usize) -> Option<[&Member; 2]> {
        let both = [vm, other].map(|vm| &self.members[vm]);
        (both[0].group != NO_GROUP && both[0].group == both[1].group).then_some(both)
    }

    /// Returns whether a VM had less than another one of its class, by weight: of VMs in one group,
    /// by their own weights, else by the groups'.
    pub(super) fn is_behind(&self, vm: usize, other: usize) -> bool {
        if let Some([member, other]) = self.in_one_group(vm, other) {
            return member.flow.tag.0 < other.flow.tag.0;
        }
        let flow = |vm: usize| match self.group_of(vm) {
            None => self.members[vm].flow,
            Some(group) => group.flow,
        };
        let is_same_class = self.members[vm].class == self.members[other].class;
        is_same_class && flow(vm).tag < flow(other).tag
    }

    /// Returns the cost by which a VM is ahead of another one of its class, by weight; 0 if it is
    /// not, or the other is of another class.
    pub(super) fn lead_over(&self, vm: usize, other: usize) -> u64 {
        if !self.is_behind(other, vm) {
            return 0;
        }
        if let Some([member, other]) = self.in_one_group(vm, other) {
            let ahead = u128::from(member.flow.tag.0 - other.flow.tag.0);
            let lead = (ahead * u128::from(member.flow.weight)) << MEMBER_TAG_SHIFT;
            return u64::try_from(lead).unwrap_or(u64::MAX);
        }
        let flow = |vm: usize| match self.group_of(vm) {
            None => (self.members[vm].flow, Knob::GROUP_WHOLE),
            Some(group) => (group.flow, group.part),
        };
        let ((own, part), (others, _)) = (flow(vm), flow(other));
        let ahead = u128::from(own.tag.since(others.tag)) * u128::from(own.weight) / 4;
        let lead = ahead * u128::from(part) / u128::from(Knob::GROUP_WHOLE);
        u64::try_from(lead).unwrap_or(u64::MAX)
    }

    /// Charges a VM the cost of an I/O. With `most`, the I/O was served by promise: that brings the
    /// VM, and its group, ahead of its share by at most that cost. A floor counts against its VM's
    /// share, but the debt is bounded.
    #[inline(never)]
    pub(super) fn charge(&mut self, now: Nanos, vm: usize, cost: u64, most: Option<u64>) {
        self.charge_now(now, vm, cost, most);
    }

    /// [`Shares::charge`] for the path of a request.
    #[inline(always)]
    pub(super) fn charge_now(&mut self, now: Nanos, vm: usize, cost: u64, most: Option<u64>) {
        let member = &mut self.members[vm];
        let class = &mut self.classes[member.class as usize];
        let (flow, entity, active, cost, most, lead_from) = match member.group {
            NO_GROUP => (&mut member.flow, vm, member.active, cost, most, class.clock),
            index => {
                let group = &mut self.groups[index as usize];
                group.charge_member(member, vm, cost, most, &mut self.within);
                let others_wait = group.active > u32::from(member.active);
                if most.is_none() || !others_wait {
                    group.turn_at = class.clock;
                }
                let (cost, most) = (group.cost(cost), most.map(|most| group.cost(most)));
                let (entity, active) = (group.leader as usize, group.active > 0);
                let turn_at = group.turn_at;
                (&mut group.flow, entity, active, cost, most, turn_at)
            }
        };
        // Service by promise is no turn of the class, whose other VMs still wait for theirs.
        if most.is_none() {
            class.passed_over_since = now;
        }
        let before = flow.tag;
        // Weights are in quarters, so costs are multiplied by four.
        flow.spend(cost * 4);
        if let Some(most) = most {
            let bound = lead_from
                .plus(4 * most / u64::from(flow.weight))
                .max(before);
            flow.tag = flow.tag.min(bound);
        }
        if active {
            class.order.set(entity, flow.tag);
        }
        let first = class.order.first();
        // The smallest tag of all that wait and the one just served: no entity falls behind the
        // clock.
        let least = first.map_or(before, |(tag, _)| tag.min(before));
        if least > class.clock {
            class.clock = least;
            class.order.follow(least);
        }
    }
}
