//! Evaluation of a period: from what the competing VMs did in it to their allocations in the next.
//!
//! ```text
//!   claim        one pass over the VMs: their state and what the engine knows of them
//!   allocate     sums of weights and losses, then (w_i / sum w) P_i
//!   needs, lend  device time that VMs leave
//!   feed back    sums of allocations and of requests inside, then the scale
//!   set          own scales, and knobs
//! ```
//!
//! Each step needs a sum over all VMs from the one before. Only the first and the last read or
//! write the VMs' own state; all others pass over the claims.

use super::feedback::{self, OwnScale, Period, Reserve, Target};
use super::strategy::{self, Claim, Strategy, Weights};
use super::{COMPETES, KEEPS, ShareModel, USES};
use tidegate_base::time::Nanos;
use tidegate_core::roles::{HostWeight, Knob, Knobs, PeerShare};
use tidegate_core::view::View;

/// Sums over the claims that no later step of an evaluation changes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ClaimSums {
    weights: Weights,
    /// Rate of answers a second.
    achieved: f64,
    /// Part of the device in use by the profile, 0 to 1.
    taken: f64,
    /// Requests in the engine.
    outstanding: u32,
}

/// Sums over the claims once their allocations are final.
#[derive(Clone, Copy, Default, Debug)]
struct AllocationSums {
    /// Allocations in requests a second.
    allocated: f64,
    /// Requests inside, by the VMs' means.
    inside: f64,
    /// Device time of the allocations, in devices.
    time: f64,
    /// Device time of the allocations, each multiplied by the variation of the VM's share.
    varied: f64,
}

impl AllocationSums {
    fn new(claims: &[Claim]) -> AllocationSums {
        let mut sums = AllocationSums::default();
        for claim in claims {
            let time = claim.allocation / claim.alone;
            sums.allocated += claim.allocation;
            sums.inside += claim.inside;
            sums.time += time;
            sums.varied += time * claim.dither;
        }
        sums
    }
}

impl ShareModel {
    /// Evaluates the period that has ended, and allocates anew.
    pub(super) fn period_ended(&mut self, view: &View, out: &mut Knobs) {
        let length = view.now().since(self.ended_at).as_secs_f64();
        self.periods += 1;
        // With another rule the driver says which hosts are silent.
        if self.host_weight == HostWeight::Sum {
            // Before claims are made, so that a host that is gone takes no share.
            self.peers.drop_silent(view.now(), self.params.period);
        }
        // A period of zero length has no rates.
        self.evaluate(view, Some(length).filter(|&length| length > 0.0), out);
        self.begin_period(view);
    }

    /// Allocates anew. `length`: that of the period in seconds, if one has ended.
    pub(super) fn evaluate(&mut self, view: &View, length: Option<f64>, out: &mut Knobs) {
        let (own_scales, is_strict) = (
            self.params.own_scales,
            self.params.strategy == Strategy::Bsps,
        );
        self.claim(view, length, out);
        if let Some(length) = length.filter(|_| !own_scales) {
            self.feed_back(view, length, None);
        }
        if length.is_none() && self.claims.is_empty() {
            self.report_idle();
        }
        self.find_squeezed();
        if length.is_some() && is_strict {
            self.cut(view);
        }
        self.find_needs();
        let sums = AllocationSums::new(&self.claims);
        // Own scales go by what is left of P_i and by what is lent.
        let follows = length.filter(|_| own_scales);
        if let Some(length) = follows {
            self.feed_back(view, length, Some(&sums));
        }
        if self.host_part.is_some() {
            self.set_host_part(view, &sums, out);
        } else {
            self.set_allocations(view, &sums, follows.is_some(), out);
        }
    }

    /// Makes a claim for each VM that competes, and allocates by the strategy. VMs that stopped
    /// competing leave the list.
    fn claim(&mut self, view: &View, length: Option<f64>, out: &mut Knobs) {
        if core::mem::take(&mut self.changed) {
            self.find_groups(view);
        }
        self.groups.clear_competing();
        self.estimates.begin();
        self.claims.clear();
        let mut left = 0;
        for at in 0..self.listed.len() {
            let slot = self.listed[at];
            if let Some(length) = length {
                self.vms[slot as usize].settle(length);
            }
            if self.competes(view, slot, out) {
                self.listed[left] = slot;
                left += 1;
                let claim = self.claim_of(view, slot);
                self.claims.push(claim);
            }
        }
        self.listed.truncate(left);
        self.divide_groups();
        self.bound_weights();
        self.sum_up();
        strategy::allocate(
            self.params.strategy,
            &mut self.claims,
            &self.sums.weights,
            &self.peers.others(),
        );
    }

    /// Returns whether a listed VM still competes. Counts it in its group, or counts it out and
    /// sets its allocation to 0.
    fn competes(&mut self, view: &View, slot: u32, out: &mut Knobs) -> bool {
        let of_vm = &mut self.vms[slot as usize];
        let id = view.vm_at(slot as usize);
        of_vm.listed = view.requests(id) > 0 || self.periods - of_vm.asked_in <= COMPETES;
        if of_vm.listed {
            self.groups.add_competing(of_vm.group, of_vm.weight);
            return true;
        }
        self.weights -= u64::from(of_vm.weight);
        // A VM that returns is measured from the start, as one that was added.
        of_vm.scale = None;
        of_vm.inside = 0.0;
        // Meanwhile the dispatcher may be told another part by a VM of the same group.
        of_vm.group_part = 0;
        if self.host_part.is_none() {
            of_vm.allocated = Some(0);
            out.set(id, Knob::Allocation(0));
        }
        false
    }

    /// Returns the claim of a VM, with its own weight and without an allocation.
    fn claim_of(&mut self, view: &View, slot: u32) -> Claim {
        let id = view.vm_at(slot as usize);
        let patterns = [
            self.patterns.own(view.now(), id),
            self.patterns.blended(view.now(), id),
        ];
        let of_vm = &self.vms[slot as usize];
        let rates = (self.estimates).rates(&self.saturation, view, slot as usize, patterns);
        Claim {
            slot,
            requests: view.requests(id),
            weight: f64::from(of_vm.weight),
            alone: rates.alone,
            blended: rates.blended,
            achieved: of_vm.rate,
            used: of_vm.rate.max(of_vm.last_rate),
            latency: of_vm.latency,
            inside: of_vm.inside,
            scale: of_vm.scale_beside(self.feedback.scale()),
            needs: f64::INFINITY,
            cut: of_vm.cut,
            dither: self.saturation.dither(view, id, rates.half_width),
            allocation: 0.0,
            kept: 1.0,
            group: of_vm.group,
            squeezed: false,
            wants_more: !view.may_enter(id) && view.has_pending(id),
            asks: false,
        }
    }

    /// Divides the weights of groups among the VMs that compete, on all hosts.
    fn divide_groups(&mut self) {
        for part in self.peers.groups() {
            self.groups.add_peer_group(part);
        }
        for claim in &mut self.claims {
            if claim.group.is_some() {
                let own = self.vms[claim.slot as usize].weight;
                claim.weight = self.groups.share(claim.group, own);
            }
        }
    }

    /// Multiplies the weights of all claims so that their sum obeys the rule for this host.
    fn bound_weights(&mut self) {
        let sum = self.claims.iter().map(|claim| claim.weight).sum();
        let factor = self.host_weight.factor(sum);
        self.claims
            .iter_mut()
            .for_each(|claim| claim.weight *= factor);
    }

    fn sum_up(&mut self) {
        let mut sums = ClaimSums::default();
        for claim in &self.claims {
            sums.weights.add(claim);
            sums.achieved += claim.achieved;
            sums.taken += claim.achieved / claim.blended;
            sums.outstanding += claim.requests;
        }
        self.sums = sums;
    }

    /// Rebuilds the groups after VMs have come, gone or changed.
    fn find_groups(&mut self, view: &View) {
        let group = |slot: usize| view.objective(view.vm_at(slot)).group;
        let present = (0..view.vm_slots()).filter(|&slot| self.vms[slot].present);
        self.groups.set(present.filter_map(group));
        for slot in 0..view.vm_slots() {
            if self.vms[slot].present {
                self.vms[slot].group = group(slot).and_then(|group| self.groups.find(&group));
            }
        }
    }

    /// Corrects the scale by a period of `length` seconds. `sums`: with scales of VMs' own.
    fn feed_back(&mut self, view: &View, length: f64, sums: Option<&AllocationSums>) {
        // A VM that the strict strategy has cut is short of credits on purpose and must not raise
        // the scale.
        let ran_out = |claim: &Claim| claim.wants_more && claim.cut >= 1.0;
        let target = self.target(view);
        let inside_max = self.inside_max(view);
        let ran_out = match &mut self.host_part {
            Some(host_part) => host_part.end_period(view),
            None => self.claims.iter().any(ran_out),
        };
        let wanted = self.feedback.wanted(target).min(inside_max);
        let period = Period {
            length,
            ended: (view.device().ended_of_vms() - self.ended) as f64,
            inside: self.inside_now(view),
            before: self.inside,
            ran_out,
            inside_max,
            reserve: sums.map_or(Reserve::NONE, |sums| self.reserve(sums, wanted)),
        };
        let mean = self.time_inside.as_secs_f64() / length;
        let (mut all, scale) = self.peers.together(&period, self.feedback.scale());
        let several = self.peers.compete();
        if matches!(target, Target::Given(_)) && (several || self.params.over_period) {
            all = all.with_inside(self.peers.mean_inside(mean));
        }
        if let Some(scale) = scale {
            self.feedback.set_scale(scale);
        }
        self.feedback.observe(&all, target);
        if let Some(most) = self.peers.scale_max() {
            self.feedback.set_scale(self.feedback.scale().min(most));
        }
        let admitted = (period.ended + period.inside - period.before).max(0.0);
        self.share = Some(PeerShare {
            number: self.periods,
            weight: self.sums.weights.weight,
            lost: self.sums.weights.lost,
            inside: period.inside,
            mean_inside: mean,
            ended: period.ended / length,
            admitted: admitted / length,
            ran_out: period.ran_out,
            scale: self.feedback.scale(),
            groups: self.groups.competing_groups(),
        });
    }

    /// Reports that no VM competes any more. A period that ends reports that as well, but with the
    /// removal of the last VM periods end.
    fn report_idle(&mut self) {
        // A number of its own: one that was used counts as overtaken.
        self.periods += 1;
        self.share = Some(PeerShare {
            number: self.periods,
            scale: self.feedback.scale(),
            ..PeerShare::IDLE
        });
    }

    /// Finds the VMs that ask for more than they have, and returns the part of the target that
    /// belongs to the others; see [`Reserve`].
    ///
    /// A VM asks for more if its credits ran out, or its requests fill at least half of its part of
    /// the queue, so that it might have run out any time. The queue is what is inside, but no more
    /// than the target `wanted`: where everything that guests have is inside, a heavy VM has less
    /// than its part of it for no other reason than that the light ones have more than theirs.
    fn reserve(&mut self, all: &AllocationSums, wanted: f64) -> Reserve {
        let (mut asked, mut due, mut others, mut idle) = (0.0, 0.0, 0.0, 0.0);
        // With peers, whose VMs are not known one by one, only what is deducted counts.
        let several = self.peers.compete();
        let queue = all.inside.min(wanted);
        for claim in &mut self.claims {
            let its = claim.inside;
            let is_full = its * all.allocated >= 0.5 * queue * claim.allocation;
            claim.asks = claim.wants_more || (is_full && its > 0.0);
            let whole = claim.allocation / claim.kept;
            if several || claim.asks {
                asked += claim.allocation;
                due += whole;
            } else {
                others += its;
                if claim.squeezed && claim.requests > 0 {
                    // The indicator cannot tell a VM that is kept from its share from one that asks
                    // for less than that.
                    due += whole.min(could_use(claim));
                } else {
                    idle += its;
                }
            }
        }
        if all.inside == 0.0 || asked == 0.0 {
            return Reserve::NONE;
        }
        Reserve {
            others: others / all.inside,
            idle: idle / all.inside,
            part: asked / due,
        }
    }

    /// Returns the upper bound on requests inside; see [`feedback::inside_max`]. Infinite with one
    /// VM, which no other VM throttles; with peers, whose outstanding requests are not known; and
    /// without a profile, by which utilisation is computed.
    fn inside_max(&self, view: &View) -> f64 {
        if self.claims.len() < 2 || self.peers.compete() || view.profile().is_none() {
            return f64::INFINITY;
        }
        if self.host_part.is_some() {
            // The dispatcher sees all VMs of the host that has the device alone.
            return f64::INFINITY;
        }
        feedback::inside_max(self.sums.outstanding.into(), self.sums.taken)
    }

    fn target(&self, view: &View) -> Target {
        if self.params.latency_target > Nanos::ZERO {
            return Target::Given(self.params.latency_target.as_secs_f64());
        }
        let depth = match (self.params.depth, view.device().spec.depth) {
            (0, device) => device,
            (given, device) => given.min(device),
        };
        let depth = f64::from(depth);
        // Rates and utilisation of the VMs' actual mix: `achieved / taken` is the saturation rate
        // of that mix.
        let (achieved, taken) = (self.sums.achieved, self.sums.taken);
        if self.params.by_profile && taken > 0.0 {
            Target::Profile {
                depth,
                iops: achieved / taken,
            }
        } else {
            Target::Depth(depth)
        }
    }

    /// Returns the factor for the P_i of a claim.
    fn scale_of(&self, claim: &Claim) -> f64 {
        if self.params.own_scales {
            claim.scale
        } else {
            // The feedback may have changed the common one since the claim was made.
            self.feedback.scale()
        }
    }

    /// Sets `squeezed` of each claim.
    fn find_squeezed(&mut self) {
        let all = self.sums.weights.weight;
        for at in 0..self.claims.len() {
            let scale = self.scale_of(&self.claims[at]);
            let claim = &mut self.claims[at];
            claim.squeezed = claim.latency > all / (claim.weight * claim.alone * scale);
        }
    }

    /// Sets `needs` of each claim: a multiple of the use of a VM that had credits left, infinite
    /// for others. Lends what VMs do not need.
    fn find_needs(&mut self) {
        for at in 0..self.claims.len() {
            let scale = self.scale_of(&self.claims[at]);
            let claim = &mut self.claims[at];
            if !claim.wants_more {
                // Used rates are real ones, allocations are by the unscaled profile: hence the
                // division.
                claim.needs = (USES * claim.used / scale).max(claim.allocation * KEEPS);
            }
        }
        if self.params.lend {
            strategy::lend(&mut self.claims, self.groups.pools());
        }
    }

    /// Makes one step of the strict strategy ([`strategy::cut`]) and allocates anew.
    fn cut(&mut self, view: &View) {
        strategy::cut(&mut self.claims, view.device().in_flight == 0);
        for claim in &self.claims {
            self.vms[claim.slot as usize].cut = claim.cut;
        }
        strategy::allocate(
            self.params.strategy,
            &mut self.claims,
            &self.sums.weights,
            &self.peers.others(),
        );
    }

    /// Sets the part of the device that this host has, that of its VMs together, and the parts of
    /// groups' weights that its VMs have.
    fn set_host_part(&mut self, view: &View, sums: &AllocationSums, out: &mut Knobs) {
        let Some(host_part) = &mut self.host_part else {
            return;
        };
        for claim in &self.claims {
            let of_vm = &mut self.vms[claim.slot as usize];
            // Each VM that competes, because a dispatcher may keep a group once for each class of
            // priority.
            if let Some(group) = claim.group {
                let part = self.groups.part_here(group);
                if of_vm.group_part != part {
                    of_vm.group_part = part;
                    out.set(view.vm_at(claim.slot as usize), Knob::GroupPart(part));
                }
            }
        }
        if self.claims.is_empty() {
            match self.peers.part_beside_silent(self.host_weight) {
                Some(part) => {
                    let most = self.peers.scale_max().unwrap_or(f64::INFINITY);
                    host_part.set(part * self.feedback.scale().min(most), out);
                }
                None => host_part.set_idle(self.peers.compete(), out),
            }
        } else {
            host_part.set(sums.time * self.feedback.scale(), out);
        }
    }

    /// Sets the allocation of every claim. `follows`: own scales follow the common one first.
    fn set_allocations(
        &mut self,
        view: &View,
        all: &AllocationSums,
        follows: bool,
        out: &mut Knobs,
    ) {
        let common = self.feedback.scale();
        // Variations of shares must add up to zero device time, so each VM gets its own less the
        // mean.
        let mean = if all.time > 0.0 {
            all.varied / all.time
        } else {
            0.0
        };
        for at in 0..self.claims.len() {
            let claim = &self.claims[at];
            let scale = if follows {
                // As [`ShareModel::find_needs`] has it for lent time: twice its use, and an eighth.
                let least = (USES * claim.used / claim.allocation).max(KEEPS * common);
                let of_vm = &mut self.vms[claim.slot as usize];
                let own = of_vm.scale.get_or_insert(OwnScale::new(common));
                own.follow(common, claim.asks, least);
                own.get()
            } else {
                self.scale_of(claim)
            };
            // The mean can exceed a light VM's own variation by far; half of the share always
            // remains.
            let share = (1.0 + claim.dither - mean).max(0.5);
            let (id, rate) = (view.vm_at(claim.slot as usize), claim.allocation * share);
            self.set_allocation(id, rate * scale, out);
        }
    }
}

/// Returns what a VM that asks for no more than it has could use at most, in requests a second by
/// the unscaled profile. A VM that has requests in a part `b` of the time would ask for 1 / (1 - b)
/// of its rate if the device took no time. Not below its [`Claim::needs`].
fn could_use(claim: &Claim) -> f64 {
    // Its requests inside are at least that part; from one on it may always have had some.
    let without = 1.0 - claim.inside;
    if without > 0.0 {
        (claim.needs).max(claim.achieved / without / claim.scale)
    } else {
        f64::INFINITY
    }
}
