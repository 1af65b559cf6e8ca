//! How those who share something evenly have it where some cannot take their part: the others have
//! what is left over.

/// What everybody has who takes more than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level {
    /// In bytes a second; [`u64::MAX`]: all have as much as they take.
    pub(crate) each: u64,
    /// What nobody took.
    pub(crate) rest: u128,
}

/// So many bytes a second among some who take all they get, and others who take so much at most, in
/// ascending order.
pub(crate) fn level(
    bytes_per_s: u128,
    greedy: usize,
    limited: impl ExactSizeIterator<Item = u64>,
) -> Level {
    let (mut left, mut n) = (bytes_per_s, greedy + limited.len());
    for most in limited {
        if u128::from(most) * n as u128 > left {
            break;
        }
        left -= u128::from(most);
        n -= 1;
    }
    match n {
        0 => Level {
            each: u64::MAX,
            rest: left,
        },
        n => Level {
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
    fn who_takes_less_leaves_the_rest_to_the_others() {
        let level = |all, greedy, limited: &[u64]| {
            let Level { each, rest } = super::level(all, greedy, limited.iter().copied());
            (each, rest)
        };
        assert_eq!(level(60, 3, &[]), (20, 0));
        assert_eq!(level(60, 2, &[10]), (25, 0));
        // What one leaves is enough for the next.
        assert_eq!(level(60, 1, &[10, 25]), (25, 0));
        assert_eq!(level(60, 1, &[10, 26]), (25, 0));
        assert_eq!(level(60, 0, &[10, 26]), (u64::MAX, 24));
        assert_eq!(level(0, 0, &[]), (u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn all_of_it_is_shared_and_nobody_who_wants_more_has_less_than_another(
            all in 0_u64..1_000_000,
            greedy in 0_usize..5,
            mut limited in prop::collection::vec(1_u64..500_000, 0..8),
        ) {
            limited.sort_unstable();
            let Level { each, rest } = level(all.into(), greedy, limited.iter().copied());
            let limits: u128 = limited.iter().map(|most| u128::from(*most.min(&each))).sum();
            let greedy_have = if greedy > 0 { u128::from(each) * greedy as u128 } else { 0 };
            let n = (greedy + limited.len()) as u128;
            let shared = limits + greedy_have + rest;
            prop_assert!(shared <= all.into() && u128::from(all) < shared + n.max(1));
            // Something is left only where all have what they take.
            prop_assert!(rest == 0 || greedy == 0 && limited.iter().all(|most| *most <= each));
        }
    }
}
