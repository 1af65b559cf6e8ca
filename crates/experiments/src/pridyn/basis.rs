//! Results of runs that determine the scenarios of other runs: durations of the use cases without
//! deadlines, and throughput of the disk by number of streams.

use super::Pridyn;
use super::key::{Case, Change, Key, UseCase};
use crate::frame::Runs;
use tidegate_core::time::Nanos;

/// Time of a use case's first application, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bounds {
    /// Time with all applications best effort.
    pub(super) default: f64,
    /// Time with the first application real time and the others idle.
    pub(super) best: f64,
}

/// Total throughput of streams, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capacity {
    /// Throughput of one stream: MaxBW.
    pub(super) alone: u64,
    /// Throughput of two streams: MaxBW - BWloss(2).
    pub(super) two: u64,
}

impl Capacity {
    /// Loss by a second stream: BWloss(2), always below MaxBW.
    pub(super) fn loss(&self) -> u64 {
        // At least 1, so that the loss is below the bandwidth of one.
        self.alone.saturating_sub(self.two.max(1))
    }
}

/// All results; `None` for runs that are missing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Basis {
    pub(super) one: Option<Bounds>,
    pub(super) two: Option<Bounds>,
    pub(super) web: Option<Capacity>,
    pub(super) media: Option<Capacity>,
}

/// Runs with all applications best effort, and with the first one served first.
pub(super) fn bounds(which: UseCase) -> [Key; 2] {
    [Change::Default, Change::Best].map(|change| Key::new(Case::UseCase(which), "cfq", change))
}

/// Run of the first `vms` streams without deadlines.
pub(super) fn streams(case: Case, vms: usize) -> Key {
    Key::new(case, "cfq", Change::Streams(vms))
}

/// Runs that must precede `key`.
pub(super) fn before(key: &Key) -> Vec<Key> {
    match (key.change, key.case) {
        (Change::Experiment(_), Case::UseCase(which)) => bounds(which).to_vec(),
        (Change::Third(_), _) => [1, 2].map(|vms| streams(Case::Media, vms)).to_vec(),
        (Change::Tolerance { .. }, _) => [1, 2].map(|vms| streams(Case::Web, vms)).to_vec(),
        // Other runs have no deadlines that follow from measurements.
        _ => Vec::new(),
    }
}

impl Basis {
    pub(super) fn from_runs(runs: &Runs<Pridyn>) -> Basis {
        let bounds = |which| {
            let [default, best] = bounds(which).map(|key| runs.get(&key)?.took(0));
            Some(Bounds {
                default: default?,
                best: best?,
            })
        };
        let capacity = |case| {
            let total = |vms| Some(runs.get(&streams(case, vms))?.total() as u64);
            Some(Capacity {
                alone: total(1)?,
                two: total(2)?,
            })
        };
        Basis {
            one: bounds(UseCase::One),
            two: bounds(UseCase::Two),
            web: capacity(Case::Web),
            media: capacity(Case::Media),
        }
    }

    pub(super) fn bounds(&self, which: UseCase) -> Option<Bounds> {
        match which {
            UseCase::One => self.one,
            UseCase::Two => self.two,
        }
    }

    /// Deadline of an experiment of figure 4.1.
    pub(super) fn deadline(&self, which: UseCase, experiment: usize) -> Option<Nanos> {
        let bounds = self.bounds(which)?;
        // Experiments count from 1.
        let seconds = *bounds.deadlines(which).get(experiment.checked_sub(1)?)?;
        // Rounded to milliseconds, so that a deadline does not depend on the last bit of a
        // division.
        Some(Nanos((seconds * 1e3).round() as u64 * 1_000_000))
    }
}

/// Expected outcome of an experiment of figure 4.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The deadline is met by default.
    Easy,
    /// The deadline is met with priority only.
    Tight,
    /// The deadline cannot be met.
    Impossible,
}

/// Experiments of a use case in order, with their kinds: "1-3, 4-6, 7-9" and "1-4, 5-13, 14-16".
pub(super) fn experiments(which: UseCase) -> Vec<(usize, Kind)> {
    let counts = match which {
        UseCase::One => [3, 3, 3],
        UseCase::Two => [4, 9, 3],
    };
    let kinds = [Kind::Easy, Kind::Tight, Kind::Impossible];
    let all = kinds.iter().zip(counts);
    let all = all.flat_map(|(kind, count)| std::iter::repeat_n(*kind, count));
    all.enumerate().map(|(i, kind)| (i + 1, kind)).collect()
}

impl Bounds {
    /// Throughput of the disk for the first application alone, and for `vms` applications of
    /// `bytes` bytes each.
    pub(super) fn capacity(&self, vms: usize, bytes: u64) -> Capacity {
        Capacity {
            alone: (bytes as f64 / self.best) as u64,
            two: (vms as f64 * bytes as f64 / self.default) as u64,
        }
    }

    /// Deadlines in seconds, in the order of the experiments: a tenth apart above the default,
    /// evenly spaced between the bounds, and a tenth apart below the best. The thesis shows them in
    /// a plot only.
    fn deadlines(&self, which: UseCase) -> Vec<f64> {
        let all = experiments(which);
        let of = |kind: Kind| all.iter().filter(|(_, of)| *of == kind).count();
        let (easy, tight) = (of(Kind::Easy), of(Kind::Tight));
        let deadline = |(n, kind): &(usize, Kind)| match kind {
            Kind::Easy => self.default * (1.0 + 0.1 * (easy + 1 - n) as f64),
            Kind::Tight => {
                let part = (n - easy) as f64 / (tight + 1) as f64;
                self.default - part * (self.default - self.best)
            }
            Kind::Impossible => self.best * (1.0 - 0.1 * (n - easy - tight) as f64),
        };
        all.iter().map(deadline).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_fall_from_above_the_default_to_below_the_best() {
        let bounds = Bounds {
            default: 100.0,
            best: 60.0,
        };
        let found = bounds.deadlines(UseCase::One);
        let expected = [130.0, 120.0, 110.0, 90.0, 80.0, 70.0, 54.0, 48.0, 42.0];
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(found.iter().zip(&expected).all(near), "{found:?}");
        let basis = Basis {
            two: Some(bounds),
            ..Basis::default()
        };
        assert_eq!(basis.deadline(UseCase::One, 1), None);
        let of = |n| basis.deadline(UseCase::Two, n);
        assert_eq!(of(5), Some(Nanos::from_millis(96_000)));
        assert_eq!((of(0), of(17)), (None, None));
        assert!((1..16).all(|n| of(n) > of(n + 1)));
        let capacity = bounds.capacity(2, 3_000);
        assert_eq!((capacity.alone, capacity.two, capacity.loss()), (50, 60, 0));
    }
}
