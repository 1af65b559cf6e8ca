//! Seconds judged and missed over the last day, in buckets of a minute and an hour.

/// Minutes that are kept one by one.
const MINUTES: usize = 60;
/// Hours that are kept one by one.
const HOURS: usize = 24;
const MINUTE_S: u32 = 60;
const HOUR_S: u32 = 3600;
/// Seconds by which bucket numbers are ahead of the driver's clock, whole hours: a clock that has
/// just begun has a past, in which the time before a restart lies.
const PAST_S: u32 = 7 * 24 * HOUR_S;

fn minute_number(second: u32) -> u32 {
    second.saturating_add(PAST_S) / MINUTE_S
}

fn hour_number(second: u32) -> u32 {
    second.saturating_add(PAST_S) / HOUR_S
}

/// Counts of a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// Seconds that were judged, or deadline transfers.
    pub judged: u32,
    /// Seconds or transfers among them that were missed.
    pub missed: u32,
}

impl Window {
    /// Part of the error budget that is used: 1 when as much was missed as
    /// [`KEPT_SHARE`](super::KEPT_SHARE) allows. Over a short window this is the burn rate. `None`
    /// while nothing was judged.
    pub fn budget_used(&self) -> Option<f64> {
        let allowed = f64::from(self.judged) * (1.0 - super::KEPT_SHARE);
        (self.judged > 0).then(|| f64::from(self.missed) / allowed)
    }

    fn add(&mut self, other: Window) {
        self.judged += other.judged;
        self.missed += other.missed;
    }
}

/// Ring of buckets of one length.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Buckets<const N: usize> {
    /// (judged, missed), by the bucket's number modulo `N`.
    counts: [(u16, u16); N],
    /// Number of the newest bucket.
    newest: u32,
}

impl<const N: usize> Buckets<N> {
    const EMPTY: Buckets<N> = Buckets {
        counts: [(0, 0); N],
        newest: 0,
    };

    /// Moves on to a bucket: those between hold nothing.
    fn pass(&mut self, bucket: u32) {
        // At most one round: more would clear the same buckets again.
        let passed = bucket.saturating_sub(self.newest).min(N as u32);
        for step in 0..passed {
            self.counts[(bucket - step) as usize % N] = (0, 0);
        }
        self.newest = self.newest.max(bucket);
    }

    fn count(&mut self, bucket: u32, missed: bool) {
        self.pass(bucket);
        let (judged, short) = &mut self.counts[bucket as usize % N];
        *judged = judged.saturating_add(1);
        *short = short.saturating_add(u16::from(missed));
    }

    /// Adds imported buckets, whose numbers count back from the bucket `then`; `now` is the running
    /// one.
    fn import(&mut self, now: u32, then: u32, from: &[(u32, u32, u32)]) {
        self.pass(now);
        let small = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        for &(back, judged, missed) in from {
            let number = then.saturating_sub(back);
            // The ring no longer covers older buckets.
            if now - number < N as u32 {
                let (all, short) = &mut self.counts[number as usize % N];
                *all = all.saturating_add(small(judged));
                *short = short.saturating_add(small(missed));
            }
        }
    }

    /// Sum of the newest `last` buckets, of which `bucket` is the one that runs.
    fn sum(&self, bucket: u32, last: u32) -> Window {
        let mut sum = Window::default();
        let newest = bucket.max(self.newest);
        for back in 0..last.min(N as u32) {
            let Some(of) = newest.checked_sub(back) else {
                break;
            };
            if of <= self.newest && self.newest - of < N as u32 {
                let (judged, missed) = self.counts[of as usize % N];
                sum.add(Window {
                    judged: judged.into(),
                    missed: missed.into(),
                });
            }
        }
        sum
    }
}

/// History of one promise over a day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct History {
    minutes: Buckets<MINUTES>,
    hours: Buckets<HOURS>,
}

impl Default for History {
    fn default() -> Self {
        History {
            minutes: Buckets::EMPTY,
            hours: Buckets::EMPTY,
        }
    }
}

impl History {
    /// Counts a second that was judged.
    pub(super) fn count(&mut self, second: u32, missed: bool) {
        self.minutes.count(minute_number(second), missed);
        self.hours.count(hour_number(second), missed);
    }

    /// Counts of the last minutes, at most 60 of them, of which the running one is one.
    pub(super) fn minutes(&self, second: u32, last: u32) -> Window {
        self.minutes.sum(minute_number(second), last)
    }

    /// Counts of the last 24 hours, of which the running one is one.
    pub(super) fn day(&self, second: u32) -> Window {
        self.hours.sum(hour_number(second), HOURS as u32)
    }

    /// Non-empty buckets of minutes and of hours: (buckets ago, judged, missed).
    pub(super) fn export(&self, second: u32) -> [Vec<(u32, u32, u32)>; 2] {
        let of = |counts: &[(u16, u16)], newest: u32, now: u32| {
            (0..counts.len() as u32)
                .filter_map(|back| {
                    let number = newest.checked_sub(back)?;
                    let (judged, missed) = counts[number as usize % counts.len()];
                    (judged > 0).then(|| (now - number.min(now), judged.into(), missed.into()))
                })
                .collect()
        };
        [
            of(
                &self.minutes.counts,
                self.minutes.newest,
                minute_number(second),
            ),
            of(&self.hours.counts, self.hours.newest, hour_number(second)),
        ]
    }

    /// Adds the buckets that [`History::export`] gave `ago` seconds before `second`.
    pub(super) fn import(&mut self, second: u32, ago: u32, from: &[Vec<(u32, u32, u32)>; 2]) {
        // Older than all buckets, and the subtraction below would reach before the clock's begin.
        if ago > PAST_S {
            return;
        }
        let now = second.saturating_add(PAST_S);
        let [minutes, hours] = from;
        self.minutes
            .import(now / MINUTE_S, (now - ago) / MINUTE_S, minutes);
        self.hours.import(now / HOUR_S, (now - ago) / HOUR_S, hours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_budget_is_used_up_at_one_second_in_a_hundred() {
        let window = |judged, missed| Window { judged, missed };
        let used = window(200, 2).budget_used().expect("judged");
        assert!((used - 1.0).abs() < 1e-9);
        assert_eq!(window(0, 0).budget_used(), None);
    }

    #[test]
    fn an_export_is_what_it_was_after_a_pause() {
        let mut history = History::default();
        for second in 100_000..100_100 {
            history.count(second, second % 10 == 0);
        }
        let exported = history.export(100_100);
        let mut later = History::default();
        // Of a clock that began a minute ago: the machine was started anew.
        later.import(60, 600, &exported);
        let window = Window {
            judged: 100,
            missed: 10,
        };
        assert_eq!(later.minutes(60, 60), window);
        assert_eq!(later.day(60), window);
        assert_eq!(later.minutes(60, 5), Window::default());
    }

    proptest! {
        /// Sums are those of all seconds that were counted within the last minutes and hours.
        #[test]
        fn sums_are_those_of_a_list(
            steps in prop::collection::vec((0u32..5000, any::<bool>()), 1..60),
            pause in 0u32..100_000,
        ) {
            let (mut history, mut all, mut second) = (History::default(), Vec::new(), 90_000);
            for (passed, missed) in steps {
                second += passed;
                history.count(second, missed);
                all.push((second, missed));
            }
            let now = second + pause;
            let sum = |length: u32, last: u32| {
                let bucket = |second: u32| (second + PAST_S) / length;
                let within = all.iter().filter(|(s, _)| bucket(now) - bucket(*s) < last);
                within.fold(Window::default(), |sum, &(_, missed)| Window {
                    judged: sum.judged + 1,
                    missed: sum.missed + u32::from(missed),
                })
            };
            prop_assert_eq!(history.minutes(now, 60), sum(60, 60));
            prop_assert_eq!(history.minutes(now, 5), sum(60, 5));
            prop_assert_eq!(history.day(now), sum(3600, 24));
        }
    }
}
