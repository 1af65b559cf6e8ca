//! Fair shares of CPU time: max-min fairness by weight, within affinities and limits.

use crate::machine::CpuSet;

/// vCPU that competes for CPU time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Claim {
    /// Share relative to other vCPUs.
    pub(super) weight: f64,
    /// Largest CPU time in pCPUs that the vCPU can or may use.
    pub(super) limit: f64,
    /// pCPUs on which it may run.
    pub(super) affinity: CpuSet,
    /// CPU time in pCPUs of a vCPU that wants no more than it has; it is not part of the division.
    pub(super) used: Option<f64>,
}

/// Divides pCPUs: all vCPUs get CPU time in proportion to their weights, until a set of pCPUs is
/// used up by those that may run nowhere else, or a vCPU has its limit; the rest goes on. Returns
/// the CPU time of each vCPU in pCPUs.
pub(super) fn fair_shares(claims: &[Claim]) -> Vec<f64> {
    let mut shares: Vec<Option<f64>> = claims.iter().map(|claim| claim.used).collect();
    let sets = unions(claims);
    loop {
        let open = |n: &usize| shares[*n].is_none();
        let within = |set: CpuSet| {
            let all = 0..claims.len();
            all.filter(move |&n| claims[n].affinity.without(set).is_empty())
        };
        // CPU time per weight at which the pCPUs of a set are used up.
        let level = |set: &CpuSet| {
            let weights: f64 = within(*set).filter(open).map(|n| claims[n].weight).sum();
            let taken: f64 = within(*set).filter_map(|n| shares[n]).sum();
            (weights > 0.0).then(|| (set.len() as f64 - taken).max(0.0) / weights)
        };
        let tightest = sets.iter().filter_map(|set| Some((level(set)?, *set)));
        let Some((level, set)) = tightest.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return shares
                .into_iter()
                .map(|share| share.unwrap_or(0.0))
                .collect();
        };
        // A claim that reaches its limit first leaves more to the others.
        let limited = (0..claims.len()).filter(open);
        let limited = limited.min_by(|&a, &b| {
            let at = |n: usize| claims[n].limit / claims[n].weight;
            at(a).total_cmp(&at(b))
        });
        match limited.filter(|&n| claims[n].limit <= level * claims[n].weight) {
            Some(n) => shares[n] = Some(claims[n].limit),
            None => {
                let full: Vec<usize> = within(set).filter(open).collect();
                for n in full {
                    shares[n] = Some(level * claims[n].weight);
                }
            }
        }
    }
}

/// Unions of all subsets of the vCPUs' affinities.
fn unions(claims: &[Claim]) -> Vec<CpuSet> {
    let mut sets: Vec<CpuSet> = Vec::new();
    for claim in claims {
        let with = |set: &CpuSet| set.iter().chain(claim.affinity.iter()).collect();
        let more: Vec<CpuSet> = sets.iter().map(with).chain([claim.affinity]).collect();
        for set in more {
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: f64, first: u8, last: u8) -> Claim {
        Claim {
            weight,
            limit: 1.0,
            affinity: CpuSet::range(first, last),
            used: None,
        }
    }

    fn assert_shares(claims: &[Claim], expected: &[f64]) {
        let found = fair_shares(claims);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(found.iter().zip(expected).all(near), "{found:?}");
    }

    #[test]
    fn weights_divide_one_pcpu() {
        let all = [claim(64.0, 1, 1), claim(256.0, 1, 1), claim(256.0, 1, 1)];
        assert_shares(&all, &[1.0 / 9.0, 4.0 / 9.0, 4.0 / 9.0]);
    }

    #[test]
    fn no_vm_has_more_than_its_limit_and_the_rest_is_divided() {
        // 4 : 1 : 1 of two pCPUs would be 1.33, but a vCPU runs on one.
        let all = [claim(4.0, 1, 2), claim(1.0, 1, 2), claim(1.0, 1, 2)];
        assert_shares(&all, &[1.0, 0.5, 0.5]);
        let capped = Claim {
            limit: 0.1,
            ..claim(4.0, 1, 2)
        };
        assert_shares(&[capped, all[1], all[2]], &[0.1, 0.95, 0.95]);
    }

    #[test]
    fn pinned_vcpus_share_what_they_may_use() {
        // Three on pCPU 1 alone; two that may run on 1 and 2 stay on 2.
        let mut all = vec![claim(1.0, 1, 1); 3];
        all.extend(vec![claim(1.0, 1, 2); 2]);
        let third = 1.0 / 3.0;
        assert_shares(&all, &[third, third, third, 0.5, 0.5]);
    }

    #[test]
    fn who_wants_no_more_leaves_the_rest() {
        let light = Claim {
            used: Some(0.2),
            ..claim(1.0, 1, 1)
        };
        assert_shares(
            &[light, claim(1.0, 1, 1), claim(3.0, 1, 1)],
            &[0.2, 0.2, 0.6],
        );
    }
}
