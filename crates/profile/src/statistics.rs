//! Detection of steady states, and means with confidence intervals.

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Maximum rise or fall of the regression line over a steady state, relative to the mean: SNIA's
/// Solid State Storage Performance Test Specification, "steady state". Its other condition, a range
/// of at most 20 % of the mean, is not checked: the confidence interval bounds the spread.
const SLOPE_MAX: f64 = 0.10;

/// Run: number of I/Os that ended in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Run {
    /// Number of I/Os that ended.
    pub ios: u64,
    /// Duration in nanoseconds.
    pub ns: u64,
}

impl Run {
    /// Returns the time per I/O in nanoseconds.
    fn time(self) -> f64 {
        self.ns as f64 / self.ios.max(1) as f64
    }
}

/// Returns the two-sided 95 % quantile of Student's t. Beyond the table the value of fewer degrees
/// of freedom is used, which makes intervals slightly too wide.
pub fn t_95(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        n => T_95[n.min(T_95.len()) - 1],
    }
}

/// Mean over runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// I/Os per second: all I/Os divided by the total time, so that longer runs weigh more.
    pub iops: f64,
    /// Half width of the 95 % confidence interval, relative to the mean; infinite for one run.
    pub relative_half_width: f64,
}

/// Computes the mean rate of runs, with Student's t of their times per I/O; `None` without I/Os.
/// The interval is computed on the time per I/O, the cost that profiles are about; relative to the
/// mean it is the same for the rate.
pub fn mean(runs: &[Run]) -> Option<Mean> {
    let (ios, ns) = (runs.iter()).fold((0, 0), |(ios, ns), run| (ios + run.ios, ns + run.ns));
    if ios == 0 || ns == 0 {
        return None;
    }
    let time = ns as f64 / ios as f64;
    let n = runs.len();
    let squares: f64 = runs.iter().map(|run| (run.time() - time).powi(2)).sum();
    let relative_half_width = match n {
        1 => f64::INFINITY,
        n => t_95(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt() / time,
    };
    Some(Mean {
        iops: 1e9 / time,
        relative_half_width,
    })
}

/// Returns true if the regression line through the runs' times is level enough for a steady state.
pub fn is_level(runs: &[Run]) -> bool {
    let n = runs.len() as f64;
    if runs.len() < 2 {
        return true;
    }
    // Least squares of time against the index of the run, centred.
    let middle = (n - 1.0) / 2.0;
    let mean = runs.iter().map(|run| run.time()).sum::<f64>() / n;
    let (mut with, mut squares) = (0.0, 0.0);
    for (at, run) in runs.iter().enumerate() {
        let away = at as f64 - middle;
        with += away * (run.time() - mean);
        squares += away * away;
    }
    (with / squares * (n - 1.0)).abs() <= SLOPE_MAX * mean
}

/// Returns the number of runs before the steady state: the smallest that leaves at least `keep`
/// runs that are level. `None`: not steady yet.
pub fn settled_after(runs: &[Run], keep: usize) -> Option<usize> {
    let most = runs.len().checked_sub(keep.max(2))?;
    (0..=most).find(|&from| is_level(&runs[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::random::SplitMix64;

    fn runs(times: &[u64]) -> Vec<Run> {
        times.iter().map(|&ns| Run { ios: 100, ns }).collect()
    }

    #[test]
    fn the_interval_is_that_of_students_t() {
        // By hand: times 9, 10, 11 of 100 I/Os; s = 1, t(2) = 4.303, so 4.303 / sqrt(3) of 10.
        let of_three = mean(&runs(&[900, 1000, 1100])).expect("three");
        assert!((of_three.iops - 1e8).abs() < 1.0);
        assert!((of_three.relative_half_width - 4.303 / 3f64.sqrt() / 10.0).abs() < 1e-9);
        assert_eq!(mean(&[]), None);
        assert_eq!(
            mean(&runs(&[1000])).expect("one").relative_half_width,
            f64::INFINITY,
            "a single run has no confidence interval"
        );
    }

    #[test]
    fn nineteen_of_twenty_intervals_contain_the_true_rate() {
        let mut random = SplitMix64::new(1);
        let mut covered = 0;
        for _ in 0..4000 {
            // A sum of twelve uniform numbers is as good as normal.
            let mut draw = || (0..12).map(|_| random.below(1_000)).sum::<u64>() + 100_000;
            let times: Vec<_> = (0..6).map(|_| draw()).collect();
            let mean = mean(&runs(&times)).expect("six runs");
            let truth = 1e9 * 100.0 / (100_000.0 + 12.0 * 499.5);
            covered += u32::from((mean.iops / truth - 1.0).abs() <= mean.relative_half_width);
        }
        // 3800 expected with a deviation of 14.
        assert!((3740..=3860).contains(&covered), "{covered} of 4000");
    }

    #[test]
    fn runs_before_the_steady_state_are_left_out() {
        let level = [1000, 1010, 990, 1005, 995];
        assert_eq!(settled_after(&runs(&level), 5), Some(0));
        let late = [400, 600, 1000, 1010, 990, 1005, 995];
        let from = settled_after(&runs(&late), 5);
        assert_eq!(from, Some(2));
        assert_eq!(settled_after(&runs(&late[..6]), 5), None);
        assert_eq!(settled_after(&runs(&[1000]), 5), None);
    }

    #[test]
    fn times_that_keep_rising_are_never_steady() {
        let times: Vec<_> = (0..30).map(|i| 1000 + 100 * i).collect();
        assert_eq!(settled_after(&runs(&times), 10), None);
    }
}
