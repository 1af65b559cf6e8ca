//! Max-min fair sharing of a bandwidth: equal parts, where the unused part of a limited user goes
//! to the others.

/// Result of max-min fair sharing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FairShare {
    /// Bytes per second of a user whose limit is not below this; [`u64::MAX`]: the bandwidth
    /// exceeds the sum of all limits.
    pub(crate) each: u64,
    /// Unused bandwidth in bytes per second.
    pub(crate) rest: u128,
}

/// Shares `bytes_per_s` among `greedy` users without a limit and others with the limits `limited`
/// in bytes per second, which must be in ascending order.
pub(crate) fn fair_share(
    bytes_per_s: u128,
    greedy: usize,
    limited: impl ExactSizeIterator<Item = u64>,
) -> FairShare {
    let (mut left, mut n) = (bytes_per_s, greedy + limited.len());
    for limit in limited {
        // This limit, and all larger ones, exceed an equal part of the rest.
        if u128::from(limit) * n as u128 > left {
            break;
        }
        left -= u128::from(limit);
        n -= 1;
    }
    match n {
        0 => FairShare {
            each: u64::MAX,
            rest: left,
        },
        n => FairShare {
            each: u64::try_from(left / n as u128).unwrap_or(u64::MAX),
            rest: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_unused_part_of_a_limited_user_goes_to_the_others() {
        let level = |all, greedy, limited: &[u64]| {
            let FairShare { each, rest } = super::fair_share(all, greedy, limited.iter().copied());
            (each, rest)
        };
        assert_eq!(level(60, 3, &[]), (20, 0));
        assert_eq!(level(60, 2, &[10]), (25, 0));
        // The part that one leaves suffices for the next.
        assert_eq!(level(60, 1, &[10, 25]), (25, 0));
        assert_eq!(level(60, 1, &[10, 26]), (25, 0));
        assert_eq!(level(60, 0, &[10, 26]), (u64::MAX, 24));
        assert_eq!(level(0, 0, &[]), (u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn shares_are_max_min_fair(
            all in 0_u64..1_000_000,
            greedy in 0_usize..5,
            mut limited in prop::collection::vec(1_u64..500_000, 0..8),
        ) {
            limited.sort_unstable();
            let FairShare { each, rest } = fair_share(all.into(), greedy, limited.iter().copied());
            let limits: u128 = limited.iter().map(|limit| u128::from(*limit.min(&each))).sum();
            let greedy_have = if greedy > 0 { u128::from(each) * greedy as u128 } else { 0 };
            let n = (greedy + limited.len()) as u128;
            let shared = limits + greedy_have + rest;
            prop_assert!(shared <= all.into() && u128::from(all) < shared + n.max(1));
            // Bandwidth is left only if every user is at its limit.
            prop_assert!(rest == 0 || greedy == 0 && limited.iter().all(|limit| *limit <= each));
        }
    }
}
