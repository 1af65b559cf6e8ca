//! What an interval says of a host: what each class had there, and of whom that was all it takes.
//!
//! What is known of a class is what one of it has where all take what they are given. Somebody who
//! took less says only what it had at least; what it left was had by others, and would not be
//! theirs beside somebody who takes all.

use tidegate_core::jobs::Class;

use crate::{Combination, MOST, Rates};

/// A rate that no disk has, an exbibyte a second.
pub(crate) const RATE_MAX: u64 = 1 << 60;

/// What those on a host had over an interval.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interval {
    pub(crate) classes: Combination,
    /// What each class had in all, the weakest first.
    had: [u128; 3],
    /// How many of each took all that they were given.
    greedy: [usize; 3],
}

impl Interval {
    /// Who had what, and whether it took all that it was given; `None`: nobody was there, or too
    /// many.
    pub(crate) fn of(had: impl IntoIterator<Item = (Class, u64, bool)>) -> Option<Interval> {
        let mut all = Interval::default();
        for (class, rate, took_all) in had {
            if all.classes.len() == MOST {
                return None;
            }
            all.classes = all.classes.with(class);
            all.had[class as usize] += u128::from(rate.min(RATE_MAX));
            all.greedy[class as usize] += usize::from(took_all);
        }
        (!all.classes.is_empty()).then_some(all)
    }

    /// What one of each class would have had where all had taken what they were given; `None`: it
    /// says nothing new.
    ///
    /// `seen` is what was learnt of these classes before. Who takes less is taken to have been
    /// given that, and the weaker to have had what it left beside their own. Where they were never
    /// seen all that the weaker had is taken to be what the stronger left: so nobody counts on it
    /// beside somebody who leaves nothing. `granted` is what the disk is taken to do for so many
    /// before they are seen.
    pub(crate) fn teaches(&self, seen: Option<&Rates>, granted: u64) -> Option<Rates> {
        let (mut left, mut rates, mut says) = (0, Rates::default(), false);
        for class in Class::ALL.into_iter().rev() {
            let (at, n) = (class as usize, self.classes.count(class) as u128);
            if n == 0 {
                continue;
            }
            let own = self.had[at].saturating_sub(left);
            let all = match (self.greedy[at], seen) {
                (0, Some(seen)) => own.max(u128::from(seen.of(class)) * n),
                (0, None) => own + self.taken_below(class).saturating_sub(left),
                _ => own,
            };
            says |= self.greedy[at] > 0
                || seen.is_some_and(|seen| all > u128::from(seen.of(class)) * n);
            left = match self.greedy[at] {
                0 => (left + all).saturating_sub(self.had[at]),
                _ => 0,
            };
            rates.0[at] = u64::try_from(all / n).unwrap_or(RATE_MAX);
        }
        let total: u128 = self.had.iter().sum();
        (says || seen.is_none() && total > granted.into()).then_some(rates)
    }

    /// What those of the weaker classes had, down to the first where somebody took all that it was
    /// given: no more was left beyond that.
    fn taken_below(&self, class: Class) -> u128 {
        let mut sum = 0;
        for at in (0..class as usize).rev() {
            sum += self.had[at];
            if self.greedy[at] > 0 {
                break;
            }
        }
        sum
    }
}
