//! Allocation of the device by weights and saturation throughput: vFair's three strategies
//! (Lu et al., SoCC 2015, section 4.2), as arithmetic on the VMs that compete.

/// Rule by which VMs share the loss of throughput that their interleaved requests cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Blender-aware proportional share: all VMs bear the loss, in proportion.
    Baps,
    /// Blender-oblivious proportional share: the loss is not shared, and the VMs that it hits bear
    /// it.
    Bops,
    /// Blender-aware strict proportional share: achieved rates are in the proportion of the rates
    /// that the VMs would achieve alone.
    Bsps,
}

impl Strategy {
    /// Names in the configuration, in the order of the variants.
    pub const WORDS: &[&str] = &["baps", "bops", "bsps"];

    /// Returns the strategy with index `place` in [`Strategy::WORDS`].
    pub(super) fn from_word(place: u64) -> Strategy {
        [Strategy::Baps, Strategy::Bops, Strategy::Bsps][place as usize]
    }

    /// Returns the index in [`Strategy::WORDS`], which is the parameter's value.
    pub(crate) const fn word(self) -> u64 {
        self as u64
    }
}

/// A VM that competes for the device: all that one evaluation of a period needs of it.
///
/// An evaluation passes over the claims several times, as each sum over all VMs needs the one
/// before. So figures of the VM's state and of the engine are copied here in the first pass, into
/// two cache lines instead of a dozen, and later passes read nothing else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    /// Slot of the VM.
    pub slot: u32,
    /// Requests of the VM in the engine, waiting or in flight.
    pub requests: u32,
    /// w_i, positive.
    pub weight: f64,
    /// P_i: saturation rate of the VM's own pattern t, in requests a second; positive.
    pub alone: f64,
    /// P'_i: saturation rate of the VM's blended pattern t', in requests a second; positive.
    pub blended: f64,
    /// Recent mean of requests answered a second.
    pub achieved: f64,
    /// Requests answered a second, by the recent mean or in the last period, whichever is more.
    pub used: f64,
    /// Recent mean of a request's time at the device in seconds.
    pub latency: f64,
    /// Recent mean of the number of requests admitted and not answered.
    pub inside: f64,
    /// Factor for P_i: what the profile gets wrong.
    pub scale: f64,
    /// Upper bound of the VM's demand in requests a second, well above its recent use; infinite: it
    /// used up its allocation.
    pub needs: f64,
    /// Factor that the strict strategy's cuts leave of the allocation, 0 to 1.
    pub cut: f64,
    /// Relative variation of the share by which costs are learnt.
    pub dither: f64,
    /// Allocation in requests a second by the unscaled profile.
    pub allocation: f64,
    /// Part of (w_i / sum w) P_i that the strategy leaves the VM, above 0 to 1.
    pub kept: f64,
    /// Index of the VM's group among the pools.
    pub group: Option<u32>,
    /// The VM is limited by others, not idle: its mean device latency is above sum(w) / (w_i P_i)
    /// seconds.
    pub squeezed: bool,
    /// The VM has no credit left and a request that waits for some.
    pub wants_more: bool,
    /// The VM asks for more than it has: it wants more, or its requests fill its part of the queue.
    pub asks: bool,
}

const _: () = assert!(size_of::<Claim>() <= 128);

impl Claim {
    /// Returns `true` if the VM can use more than its allocation.
    fn can_use_more(&self) -> bool {
        self.needs > self.allocation
    }

    /// Returns the part of its rate that the VM loses because requests interleave, 0 to 1.
    fn lost(&self) -> f64 {
        // A VM whose requests cost less when blended takes nothing from the others.
        ((self.alone - self.blended) / self.alone).max(0.0)
    }
}

/// Relative step of the strict strategy's cuts, and of giving them back, in one update.
const STEP: f64 = 0.05;
/// Part of its `needs` that a VM will likely leave: `needs` is a multiple of its use.
const UNUSED: f64 = 1.0 - 1.0 / super::USES;
/// Smallest factor that cuts leave of an allocation.
const CUT_MIN: f64 = 1e-3;

/// Returns the sum of all weights, and that of the weights multiplied by the part of its rate that
/// each VM loses.
pub fn weights(claims: &[Claim]) -> Weights {
    let mut sums = Weights::default();
    claims.iter().for_each(|claim| sums.add(claim));
    sums
}

/// Allocates (w_i / sum w) P_i, reduced by the loss where the strategy shares it. `own` are the
/// sums over the claims, `others` those over the VMs of hosts that share the device.
pub fn allocate(strategy: Strategy, claims: &mut [Claim], own: &Weights, others: &Weights) {
    let together = own.with(others);
    let kept = match strategy {
        Strategy::Bops => 1.0,
        Strategy::Baps | Strategy::Bsps => 1.0 - together.lost_part(),
    };
    for claim in &mut *claims {
        claim.allocation = claim.weight / together.weight * claim.alone * kept;
        match strategy {
            Strategy::Bsps => claim.allocation *= claim.cut,
            // Cuts of the strict strategy do not outlive a change to another one.
            Strategy::Baps | Strategy::Bops => claim.cut = 1.0,
        }
        claim.kept = kept * claim.cut;
    }
}

/// Sums of weights over VMs.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Weights {
    /// Sum of the VMs' weights.
    pub weight: f64,
    /// Sum of the VMs' weights, each multiplied by the part of its rate that blending loses.
    pub lost: f64,
}

impl Weights {
    /// Adds a VM.
    pub fn add(&mut self, claim: &Claim) {
        self.weight += claim.weight;
        self.lost += claim.weight * claim.lost();
    }

    /// Returns the sums over the VMs of both.
    pub fn with(&self, others: &Weights) -> Weights {
        Weights {
            weight: self.weight + others.weight,
            lost: self.lost + others.lost,
        }
    }

    /// Returns delta P: the part of the device lost because the VMs' requests interleave, 0 to 1.
    pub fn lost_part(&self) -> f64 {
        self.lost / self.weight
    }
}

/// Device time lent within one group of VMs, in fractions of the device.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Pool {
    /// Sum of the weights of the group's VMs.
    all: f64,
    /// Sum of the weights of VMs that can use more.
    take: f64,
    /// Part of the device's time that the group's VMs leave.
    freed: f64,
    /// Part of the device's time that the group's VMs keep but will likely not use.
    spare: f64,
}

/// Takes device time from VMs that need less than their allocation, and gives it to the others. VMs
/// of the same group come first, by their weights. The rest that a whole group leaves goes to all,
/// by the weights of groups and of VMs without a group. Time that VMs of a group keep but will
/// likely not use is allocated to the group's other VMs as well: the regulator would pass it on to
/// all VMs, and the group would have less than its due. `pools` has one entry a group, with any
/// contents.
///
/// Lent time keeps its worth to the device. The regulator alone would pass unused credits on one
/// for one, whatever a request of either VM costs: a hundred unused small sequential requests would
/// become a hundred large random ones.
pub fn lend(claims: &mut [Claim], pools: &mut [Pool]) {
    // A VM may get more than it needs, so the rest is divided again. Four rounds leave a negligible
    // rest.
    for _ in 0..4 {
        let Some(Lent { freed, weights }) = take_back(claims, pools) else {
            return;
        };
        for claim in claims.iter_mut().filter(|claim| claim.can_use_more()) {
            let time = match claim.group.map(|at| pools[at as usize]) {
                Some(pool) => {
                    let of_group = pool.freed + pool.spare + freed * pool.all / weights;
                    of_group * claim.weight / pool.take
                }
                None => freed * claim.weight / weights,
            };
            claim.allocation += time * claim.alone;
        }
    }
}

/// Device time to be divided among all, beside that in pools.
struct Lent {
    /// Part of the device's time.
    freed: f64,
    /// Sum of the weights of those that can use more: VMs without a group, and groups.
    weights: f64,
}

/// Reduces each allocation to what the VM needs. Adds the device time that VMs of groups leave to
/// their pools, and returns the time that the others and whole groups leave; `None` if no VM leaves
/// any.
fn take_back(claims: &mut [Claim], pools: &mut [Pool]) -> Option<Lent> {
    pools.fill(Pool::default());
    let mut lent = Lent {
        freed: 0.0,
        weights: 0.0,
    };
    for claim in claims {
        if claim.needs < claim.allocation {
            let left = (claim.allocation - claim.needs) / claim.alone;
            match claim.group {
                Some(at) => {
                    pools[at as usize].freed += left;
                    pools[at as usize].spare += claim.needs * UNUSED / claim.alone;
                }
                None => lent.freed += left,
            }
            claim.allocation = claim.needs;
        }
        let takes = if claim.can_use_more() {
            claim.weight
        } else {
            0.0
        };
        match claim.group {
            Some(at) => {
                pools[at as usize].all += claim.weight;
                pools[at as usize].take += takes;
            }
            None => lent.weights += takes,
        }
    }
    if lent.freed == 0.0 && pools.iter().all(|pool| pool.freed == 0.0) {
        return None;
    }
    for pool in &mut *pools {
        if pool.take > 0.0 {
            lent.weights += pool.all;
        } else {
            lent.freed += core::mem::take(&mut pool.freed);
        }
    }
    Some(lent)
}

/// Makes one step of [`Strategy::Bsps`] towards achieved rates in the ratio w_i P_i. While a
/// squeezed VM achieves less than its part, the VM with the most relative to its w_i P_i is cut by
/// a twentieth, but not below its part. While no VM is squeezed, or the device is `idle`, all cuts
/// are relaxed by a twentieth. At least one VM always remains uncut.
pub fn cut(claims: &mut [Claim], idle: bool) {
    if idle || claims.iter().all(|claim| !claim.squeezed) {
        for claim in claims {
            claim.cut = (claim.cut * (1.0 + STEP)).min(1.0);
        }
        return;
    }
    let achieved: f64 = claims.iter().map(|claim| claim.achieved).sum();
    let due: f64 = claims.iter().map(|c| c.weight * c.alone).sum();
    // Achieved rate relative to the VM's part; above 1 it got more.
    let relative = |claim: &Claim| claim.achieved / (claim.weight * claim.alone) * due / achieved;
    if !claims.iter().any(|c| c.squeezed && relative(c) < 1.0) {
        return;
    }
    let most = claims
        .iter_mut()
        .max_by(|a, b| relative(a).total_cmp(&relative(b)));
    if let Some(most) = most.filter(|claim| relative(claim) > 1.0) {
        let part = 1.0 / relative(most);
        most.cut = (most.cut * part.max(1.0 - STEP)).max(CUT_MIN);
    }
    // Only ratios of cuts matter. A cut common to all would waste the device, so the largest
    // becomes 1; the scale of the feedback governs the total.
    let least = claims.iter().map(|claim| claim.cut).fold(0.0, f64::max);
    for claim in claims {
        claim.cut /= least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.2: VM 1 reads in sequence, 8000 IOPS alone; between VM 2's random requests it is
    /// as random as they are, and the device does 1200.
    fn example() -> [Claim; 2] {
        let claim = |slot, alone| Claim {
            slot,
            weight: 100.0,
            alone,
            blended: 1200.0,
            achieved: 0.0,
            used: 0.0,
            latency: 0.0,
            inside: 0.0,
            scale: 1.0,
            requests: 0,
            squeezed: true,
            wants_more: false,
            asks: false,
            needs: f64::INFINITY,
            cut: 1.0,
            dither: 0.0,
            allocation: 0.0,
            kept: 1.0,
            group: None,
        };
        [claim(0, 8000.0), claim(1, 1200.0)]
    }

    /// Allocates on a host that shares the device with no other.
    fn allocate_alone(strategy: Strategy, claims: &mut [Claim]) {
        let own = weights(claims);
        allocate(strategy, claims, &own, &Weights::default());
    }

    fn allocated(strategy: Strategy) -> [f64; 2] {
        let mut claims = example();
        allocate_alone(strategy, &mut claims);
        claims.map(|claim| claim.allocation)
    }

    #[test]
    fn the_worked_example_of_section_4_2() {
        assert_eq!(allocated(Strategy::Bops), [4000.0, 600.0]);
        assert!((weights(&example()).lost_part() - 0.425).abs() < 1e-15);
        let [first, second] = allocated(Strategy::Baps);
        assert!((first - 2300.0).abs() < 1e-9 && (second - 345.0).abs() < 1e-9);
        assert_eq!(allocated(Strategy::Bsps), [first, second], "before any cut");
    }

    /// Serves both VMs on a device that does 1200 IOPS in all: VM 2 gets its allocation, VM 1 the
    /// rest.
    fn serve(claims: &mut [Claim; 2]) {
        let second = claims[1].allocation.min(1200.0);
        claims[1].achieved = second;
        claims[0].achieved = claims[0].allocation.min(1200.0 - second);
    }

    #[test]
    fn the_strict_strategy_ends_at_the_examples_figures() {
        let mut claims = example();
        allocate_alone(Strategy::Bsps, &mut claims);
        serve(&mut claims);
        // As the paper has it for BAPS in the worst case.
        assert!((claims[0].achieved - 855.0).abs() < 1e-9);
        for _ in 0..100 {
            let before = claims[1].cut;
            cut(&mut claims, false);
            assert!(claims[1].cut >= before * 0.95, "more than a step");
            allocate_alone(Strategy::Bsps, &mut claims);
            serve(&mut claims);
        }
        let [first, second] = claims.map(|claim| claim.achieved);
        assert!((first - 8000.0 / 9200.0 * 1200.0).abs() < 1e-6, "{first}");
        assert!((second - 1200.0 / 9200.0 * 1200.0).abs() < 1e-6, "{second}");
        // VM 1 got what it asked for: no VM is squeezed, and cuts are given back.
        claims[0].squeezed = false;
        claims[1].squeezed = false;
        let cut_before = claims[1].cut;
        cut(&mut claims, false);
        assert!((claims[1].cut - cut_before * 1.05).abs() < 1e-12);
        for _ in 0..100 {
            cut(&mut claims, false);
        }
        assert_eq!(claims.map(|claim| claim.cut), [1.0, 1.0]);
    }

    #[test]
    fn lent_and_unused_device_time_are_equal() {
        let mut claims = example();
        allocate_alone(Strategy::Bops, &mut claims);
        lend(&mut claims, &mut []);
        assert_eq!(
            claims.map(|c| c.allocation),
            [4000.0, 600.0],
            "no VM leaves anything"
        );
        // VM 1 needs an eighth of the device, so VM 2 has seven.
        claims[0].needs = 1000.0;
        lend(&mut claims, &mut []);
        assert_eq!(claims.map(|c| c.allocation), [1000.0, 1050.0]);
        // With three: what the second does not need either is the third's.
        let third = Claim {
            slot: 2,
            ..claims[1]
        };
        let mut claims = [claims[0], claims[1], third];
        claims[1].needs = 450.0;
        allocate_alone(Strategy::Bops, &mut claims);
        lend(&mut claims, &mut []);
        let sum: f64 = claims.iter().map(|c| c.allocation / c.alone).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{claims:?}");
        let rates = claims.map(|claim| claim.allocation);
        assert_eq!((rates[0], rates[1]), (1000.0, 450.0));
        // And where no VM takes it, all keep what they need and the rest is left.
        claims[2].needs = 100.0;
        lend(&mut claims, &mut []);
        assert_eq!(claims.map(|c| c.allocation), [1000.0, 450.0, 100.0]);
    }

    #[test]
    fn unused_rate_goes_to_the_group_first() {
        let claim = |slot, group, weight, needs| Claim {
            slot,
            group,
            weight,
            needs,
            ..example()[0]
        };
        // Alone, a group of two of whom one needs next to nothing, and a group that leaves half.
        let mut claims = [
            claim(0, None, 100.0, f64::INFINITY),
            claim(1, Some(0), 25.0, f64::INFINITY),
            claim(2, Some(0), 75.0, 80.0),
            claim(3, Some(1), 200.0, 2000.0),
        ];
        let mut pools = [Pool::default(); 2];
        allocate_alone(Strategy::Bops, &mut claims);
        lend(&mut claims, &mut pools);
        let rates = claims.map(|claim| claim.allocation);
        // A quarter each, and half of what the last one leaves; half of the 80 will not be used.
        assert_eq!((rates[0], rates[2], rates[3]), (3000.0, 80.0, 2000.0));
        assert!((rates[1] - 2960.0).abs() < 1e-9, "{rates:?}");
        // A whole group that wants little leaves it to all.
        claims[1].needs = 100.0;
        allocate_alone(Strategy::Bops, &mut claims);
        lend(&mut claims, &mut pools);
        let rates = claims.map(|claim| claim.allocation);
        assert_eq!(rates[1..], [100.0, 80.0, 2000.0]);
        assert!((rates[0] - 5820.0).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn somebody_is_never_cut() {
        let mut claims = example();
        for round in 0..1000 {
            // Now the one, now the other is behind, as by chance.
            let behind = round % 2;
            claims[behind].achieved = claims[behind].alone * 0.4;
            claims[1 - behind].achieved = claims[1 - behind].alone * 0.5;
            cut(&mut claims, false);
            let cuts = claims.map(|claim| claim.cut);
            assert_eq!(cuts[0].max(cuts[1]), 1.0);
        }
    }

    #[test]
    fn a_vm_that_gains_by_blending_costs_nobody_anything() {
        let mut claims = example();
        claims[0].blended = 9000.0;
        assert_eq!(weights(&claims).lost_part(), 0.0);
    }

    #[test]
    fn hosts_with_a_vm_each_allocate_what_one_host_with_all_would() {
        let host = |at: usize| {
            let mut claims = [example()[at]];
            let other = example()[1 - at];
            let (own, others) = (weights(&claims), weights(&[other]));
            allocate(Strategy::Baps, &mut claims, &own, &others);
            claims[0].allocation
        };
        let together = allocated(Strategy::Baps);
        assert!((host(0) - together[0]).abs() < 1e-9 && (host(1) - together[1]).abs() < 1e-9);
    }
}
