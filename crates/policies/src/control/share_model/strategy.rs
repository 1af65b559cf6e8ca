//! What each VM is allocated by its weight and its saturation throughput: vFair's three strategies
//! (Lu et al., SoCC 2015, section 4.2), as arithmetic on the VMs that compete.

use super::peers::Others;

/// How VMs' loss by each other is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Blender-aware proportional share: by all, in proportion.
    Baps,
    /// Blender-oblivious proportional share: not at all.
    Bops,
    /// Blender-aware strict proportional share: what VMs get is in the proportion of what they
    /// would have alone.
    Bsps,
}

impl Strategy {
    /// The configuration's words, in the order of the variants.
    pub const WORDS: &[&str] = &["baps", "bops", "bsps"];

    /// By its place among the words.
    pub(super) fn from_word(place: u64) -> Strategy {
        [Strategy::Baps, Strategy::Bops, Strategy::Bsps][place as usize]
    }

    /// Its place among the words: the parameter's value.
    pub(crate) const fn word(self) -> u64 {
        self as u64
    }
}

/// A VM that competes for the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    /// Its slot.
    pub slot: u32,
    /// w_i, positive.
    pub weight: f64,
    /// P_i: requests a second of its pattern t that saturate the device, positive.
    pub alone: f64,
    /// P'_i by the model: the same of its pattern t', positive.
    pub blended: f64,
    /// Requests a second that were answered lately.
    pub achieved: f64,
    /// It is squeezed, not idle: its mean latency with the device is above sum(w) / (w_i P_i)
    /// seconds.
    pub squeezed: bool,
    /// Requests a second that it can use: it had credits left, and so many are far more than it
    /// used. `None`: it wants more than it has.
    pub needs: Option<f64>,
    /// What is left of its allocation after the strict strategy's cuts, 0 to 1.
    pub cut: f64,
    /// By how much its share is varied while costs are learnt, as a part of it.
    pub dither: f64,
    /// Requests a second that it is allocated.
    pub allocation: f64,
    /// Its group's place among them.
    pub group: Option<u32>,
}

impl Claim {
    /// It can use more than it has.
    fn takes(&self) -> bool {
        self.needs.is_none_or(|needs| needs > self.allocation)
    }
}

/// By how much the strict strategy cuts, and gives back, an update.
const STEP: f64 = 0.05;
/// Of what a VM needs at most it leaves this part, and more.
const UNUSED: f64 = 1.0 - 1.0 / super::USES;
/// The least that is left of an allocation after cuts.
const LEAST_CUT: f64 = 1e-3;

/// The sum of all weights.
pub fn weights(claims: &[Claim]) -> f64 {
    claims.iter().map(|claim| claim.weight).sum()
}

/// Delta P: the part of the device that is lost because the VMs' requests stand between each other,
/// 0 to 1.
pub fn lost(claims: &[Claim], others: &Others) -> f64 {
    (lost_weight(claims) + others.lost) / (weights(claims) + others.weight)
}

/// The sum of weights, each by the part that it loses.
pub fn lost_weight(claims: &[Claim]) -> f64 {
    let of = |claim: &Claim| {
        let lost = (claim.alone - claim.blended) / claim.alone;
        claim.weight * lost.max(0.0)
    };
    claims.iter().map(of).sum()
}

/// Allocates (w_i / sum w) P_i, less what is lost where the strategy counts that. `others`: of
/// hosts that share the device.
pub fn allocate(strategy: Strategy, claims: &mut [Claim], others: &Others) {
    let kept = match strategy {
        Strategy::Bops => 1.0,
        Strategy::Baps | Strategy::Bsps => 1.0 - lost(claims, others),
    };
    let all = weights(claims) + others.weight;
    for claim in &mut *claims {
        claim.allocation = claim.weight / all * claim.alone * kept;
        match strategy {
            Strategy::Bsps => claim.allocation *= claim.cut,
            Strategy::Baps | Strategy::Bops => claim.cut = 1.0,
        }
    }
}

/// What is lent within one group of VMs.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Pool {
    /// The sum of its VMs' weights.
    all: f64,
    /// Of those that take more.
    take: f64,
    /// Of the device's time, what its VMs leave.
    freed: f64,
    /// And of what they keep, what they are not likely to use.
    spare: f64,
}

/// Takes from those who need less than they are allocated, and gives the time that is to the
/// others: to those of the same group first, by their weights, and what a group as a whole leaves
/// to all, by what groups and VMs of none weigh. What VMs of a group keep and are not likely to use
/// is allocated to the others of it as well: the regulator would pass it on to all, and the group
/// have less than it is due. `pools`: one for each group, whatever is in it.
///
/// The regulator passes unused credits on one for one, whatever a request of the one and of the
/// other costs the device: a hundred small ones in sequence that one VM left would become a hundred
/// large random ones. What is lent here is worth as much to the device as what was left.
pub fn lend(claims: &mut [Claim], pools: &mut [Pool]) {
    // What is given may be more than somebody needs: once more, then.
    for _ in 0..4 {
        let mut freed = take_back(claims, pools);
        if freed == 0.0 && pools.iter().all(|pool| pool.freed == 0.0) {
            return;
        }
        let mut weights = 0.0;
        for claim in claims.iter() {
            match claim.group {
                Some(at) => {
                    pools[at as usize].all += claim.weight;
                    pools[at as usize].take += if claim.takes() { claim.weight } else { 0.0 };
                }
                None => weights += if claim.takes() { claim.weight } else { 0.0 },
            }
        }
        for pool in &mut *pools {
            match pool.take > 0.0 {
                true => weights += pool.all,
                false => freed += core::mem::take(&mut pool.freed),
            }
        }
        for claim in claims.iter_mut().filter(|claim| claim.takes()) {
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

/// Leaves all VMs no more than they need: in `pools` what VMs of groups leave, and what the others
/// do.
fn take_back(claims: &mut [Claim], pools: &mut [Pool]) -> f64 {
    pools.fill(Pool::default());
    let mut freed = 0.0;
    for claim in claims {
        if let Some(needs) = claim.needs.filter(|&needs| needs < claim.allocation) {
            let left = (claim.allocation - needs) / claim.alone;
            match claim.group {
                Some(at) => {
                    pools[at as usize].freed += left;
                    pools[at as usize].spare += needs * UNUSED / claim.alone;
                }
                None => freed += left,
            }
            claim.allocation = needs;
        }
    }
    freed
}

/// One step towards achieved throughputs in the ratio w_i P_i, for [`Strategy::Bsps`]: while a VM
/// is squeezed that got less than its part of what all got, the one that got the most for its w_i
/// P_i is cut by a twentieth, but not below its part; while nobody is squeezed, or the device is
/// idle, all have a twentieth given back. Somebody is never cut.
pub fn cut(claims: &mut [Claim], idle: bool) {
    if idle || claims.iter().all(|claim| !claim.squeezed) {
        for claim in claims {
            claim.cut = (claim.cut * (1.0 + STEP)).min(1.0);
        }
        return;
    }
    let achieved: f64 = claims.iter().map(|claim| claim.achieved).sum();
    let due: f64 = claims.iter().map(|c| c.weight * c.alone).sum();
    // Of its part: above 1, it got more.
    let relative = |claim: &Claim| claim.achieved / (claim.weight * claim.alone) * due / achieved;
    if !claims.iter().any(|c| c.squeezed && relative(c) < 1.0) {
        return;
    }
    let most = claims
        .iter_mut()
        .max_by(|a, b| relative(a).total_cmp(&relative(b)));
    if let Some(most) = most.filter(|claim| relative(claim) > 1.0) {
        let part = 1.0 / relative(most);
        most.cut = (most.cut * part.max(1.0 - STEP)).max(LEAST_CUT);
    }
    // Cuts tell VMs apart. What all are cut by is nobody's, and the scale's business.
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
            squeezed: true,
            needs: None,
            cut: 1.0,
            dither: 0.0,
            allocation: 0.0,
            group: None,
        };
        [claim(0, 8000.0), claim(1, 1200.0)]
    }

    fn allocated(strategy: Strategy) -> [f64; 2] {
        let mut claims = example();
        allocate(strategy, &mut claims, &Others::default());
        claims.map(|claim| claim.allocation)
    }

    #[test]
    fn the_worked_example_of_section_4_2() {
        assert_eq!(allocated(Strategy::Bops), [4000.0, 600.0]);
        assert!((lost(&example(), &Others::default()) - 0.425).abs() < 1e-15);
        let [first, second] = allocated(Strategy::Baps);
        assert!((first - 2300.0).abs() < 1e-9 && (second - 345.0).abs() < 1e-9);
        assert_eq!(allocated(Strategy::Bsps), [first, second], "before any cut");
    }

    /// What the two get of a device that does 1200 whatever they ask: VM 2 all of its allocation,
    /// VM 1 what is left.
    fn serve(claims: &mut [Claim; 2]) {
        let second = claims[1].allocation.min(1200.0);
        claims[1].achieved = second;
        claims[0].achieved = claims[0].allocation.min(1200.0 - second);
    }

    #[test]
    fn the_strict_strategy_ends_at_the_examples_figures() {
        let mut claims = example();
        allocate(Strategy::Bsps, &mut claims, &Others::default());
        serve(&mut claims);
        // As the paper has it for BAPS in the worst case.
        assert!((claims[0].achieved - 855.0).abs() < 1e-9);
        for _ in 0..100 {
            let before = claims[1].cut;
            cut(&mut claims, false);
            assert!(claims[1].cut >= before * 0.95, "more than a step");
            allocate(Strategy::Bsps, &mut claims, &Others::default());
            serve(&mut claims);
        }
        let [first, second] = claims.map(|claim| claim.achieved);
        assert!((first - 8000.0 / 9200.0 * 1200.0).abs() < 1e-6, "{first}");
        assert!((second - 1200.0 / 9200.0 * 1200.0).abs() < 1e-6, "{second}");
        // VM 1 got what it asked for: nobody is squeezed, and cuts are given back.
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
    fn what_is_lent_is_worth_as_much_as_what_was_left() {
        let mut claims = example();
        allocate(Strategy::Bops, &mut claims, &Others::default());
        lend(&mut claims, &mut []);
        assert_eq!(
            claims.map(|c| c.allocation),
            [4000.0, 600.0],
            "nobody leaves anything"
        );
        // VM 1 needs an eighth of the device, so VM 2 has seven.
        claims[0].needs = Some(1000.0);
        lend(&mut claims, &mut []);
        assert_eq!(claims.map(|c| c.allocation), [1000.0, 1050.0]);
        // With three: what the second does not need either is the third's.
        let third = Claim {
            slot: 2,
            ..claims[1]
        };
        let mut claims = [claims[0], claims[1], third];
        claims[1].needs = Some(450.0);
        allocate(Strategy::Bops, &mut claims, &Others::default());
        lend(&mut claims, &mut []);
        let sum: f64 = claims.iter().map(|c| c.allocation / c.alone).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{claims:?}");
        let rates = claims.map(|claim| claim.allocation);
        assert_eq!((rates[0], rates[1]), (1000.0, 450.0));
        // And where nobody takes it, all keep what they need and the rest is left.
        claims[2].needs = Some(100.0);
        lend(&mut claims, &mut []);
        assert_eq!(claims.map(|c| c.allocation), [1000.0, 450.0, 100.0]);
    }

    #[test]
    fn what_one_vm_of_a_group_leaves_is_the_groups_first() {
        let claim = |slot, group, weight, needs| Claim {
            slot,
            group,
            weight,
            needs,
            ..example()[0]
        };
        // Alone, a group of two of whom one needs next to nothing, and a group that leaves half.
        let mut claims = [
            claim(0, None, 100.0, None),
            claim(1, Some(0), 25.0, None),
            claim(2, Some(0), 75.0, Some(80.0)),
            claim(3, Some(1), 200.0, Some(2000.0)),
        ];
        let mut pools = [Pool::default(); 2];
        allocate(Strategy::Bops, &mut claims, &Others::default());
        lend(&mut claims, &mut pools);
        let rates = claims.map(|claim| claim.allocation);
        // A quarter each, and half of what the last one leaves; half of the 80 will not be used.
        assert_eq!((rates[0], rates[2], rates[3]), (3000.0, 80.0, 2000.0));
        assert!((rates[1] - 2960.0).abs() < 1e-9, "{rates:?}");
        // A whole group that wants little leaves it to all.
        claims[1].needs = Some(100.0);
        allocate(Strategy::Bops, &mut claims, &Others::default());
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
        assert_eq!(lost(&claims, &Others::default()), 0.0);
    }

    #[test]
    fn hosts_with_a_vm_each_allocate_what_one_host_with_all_would() {
        let host = |at: usize| {
            let mut claims = [example()[at]];
            let other = example()[1 - at];
            let others = Others {
                weight: other.weight,
                lost: lost_weight(&[other]),
            };
            allocate(Strategy::Baps, &mut claims, &others);
            claims[0].allocation
        };
        let together = allocated(Strategy::Baps);
        assert!((host(0) - together[0]).abs() < 1e-9 && (host(1) - together[1]).abs() < 1e-9);
    }
}
