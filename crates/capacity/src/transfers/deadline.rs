//! Deadlines of requests that come without one: section 4.2.1, equations 4.1 and 4.2 of the thesis
//! that the module [`transfers`](super) cites.
//!
//! The makespan is the time that a request takes with "the full disk bandwidth", which among N
//! users of the disk is MaxBW - BWloss(N) ([`DeviceBandwidth`](super::DeviceBandwidth)). This is
//! the text's definition, and figure 4.5 agrees: two users with even shares miss no deadline from a
//! tolerance of 1 on. Equation 4.1 as printed, `IOSize / (MaxBW - BWloss) / N`, divides once more
//! by N.

use tidegate_base::time::Nanos;

/// Makespan of `bytes` by equation 4.1, rounded up: on a disk of `max_bandwidth` that loses
/// `bandwidth_loss` with `n` users, both in bytes a second. [`Nanos::MAX`] if the loss leaves
/// nothing. `as_printed`: divides once more by `n`.
///
/// ```
/// use tidegate_capacity::transfers::deadline::makespan;
/// use tidegate_base::time::Nanos;
///
/// const MB: u64 = 1_000_000;
/// assert_eq!(makespan(74 * MB, 54 * MB, 17 * MB, 2, false), Nanos::from_secs(2));
/// assert_eq!(makespan(74 * MB, 54 * MB, 17 * MB, 2, true), Nanos::from_secs(1));
/// ```
pub fn makespan(
    bytes: u64,
    max_bandwidth: u64,
    bandwidth_loss: u64,
    n: u32,
    as_printed: bool,
) -> Nanos {
    let bandwidth = max_bandwidth.saturating_sub(bandwidth_loss);
    if bandwidth == 0 {
        return Nanos::MAX;
    }
    let parts = if as_printed { n.max(1) } else { 1 };
    let nanos = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    let nanos = nanos.div_ceil(u128::from(bandwidth) * u128::from(parts));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Deadline by equation 4.2: makespan * (1 + delta), rounded up. `tolerance_milli`: delta in
/// thousandths.
///
/// ```
/// use tidegate_capacity::transfers::deadline::with_tolerance;
/// use tidegate_base::time::Nanos;
///
/// assert_eq!(with_tolerance(Nanos::from_secs(2), 300), Nanos::from_millis(2600));
/// ```
pub fn with_tolerance(makespan: Nanos, tolerance_milli: u64) -> Nanos {
    if makespan == Nanos::MAX {
        return Nanos::MAX;
    }
    let nanos = u128::from(makespan.0) * (1000 + u128::from(tolerance_milli));
    Nanos(u64::try_from(nanos.div_ceil(1000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_rounded_up() {
        assert_eq!(makespan(1, 3_000_000_000, 0, 1, false), Nanos(1));
        assert_eq!(with_tolerance(Nanos(3), 1), Nanos(4));
        assert_eq!(with_tolerance(Nanos(3), 0), Nanos(3));
        assert_eq!(makespan(7, 2_000_000_000, 0, 2, true), Nanos(2));
    }

    #[test]
    fn without_bandwidth_there_is_no_end() {
        assert_eq!(makespan(1, 5, 5, 2, false), Nanos::MAX);
        assert_eq!(with_tolerance(Nanos::MAX, 300), Nanos::MAX);
        let most = makespan(u64::MAX, 1, 0, 1, false);
        assert_eq!(with_tolerance(most, u64::MAX), Nanos::MAX);
    }
}
