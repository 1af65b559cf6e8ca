//! Recognition of another load by its heavier I/Os, sooner than by a measurement.

use tidegate_base::time::Nanos;

/// I/Os in a row, heavier than the load's, after which the load counts as changed.
const ENDS: u32 = 12;
/// Multiple of the mean work of the load's I/Os from which one is heavy.
const HEAVIER: f64 = 3.0;
/// Time for which the heaviest I/O of a load is remembered, up to twice as long.
const REMEMBERED: Nanos = Nanos::SECOND;

/// I/Os in a row that are heavier than those of the present load. A load of large and small I/Os is
/// not taken for another one whenever a dozen of the large ones end in a row: what was seen among
/// lighter I/Os is part of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadChange {
    /// Heavy I/Os in a row, and the work of the heaviest of them.
    ends: u32,
    heaviest_in_a_row: f64,
    /// Work of the heaviest I/O of the present load: in the span of [`REMEMBERED`] before this one,
    /// and in this one.
    heaviest: [f64; 2],
    /// End of this span.
    span_end: Nanos,
}

impl LoadChange {
    /// Creates the state of a load of which nothing has been seen.
    pub(super) fn new(now: Nanos) -> LoadChange {
        LoadChange {
            ends: 0,
            heaviest_in_a_row: 0.0,
            heaviest: [0.0; 2],
            span_end: now,
        }
    }

    /// Notes an I/O of the given work that ended; `each`: mean work of the load's I/Os, 0 if it is
    /// not known. Returns true if it makes the load another one.
    pub(super) fn ended(&mut self, work: f64, each: f64) -> bool {
        let [before, now] = self.heaviest;
        if each > 0.0 && work >= HEAVIER * each && work > before.max(now) {
            self.ends += 1;
            self.heaviest_in_a_row = self.heaviest_in_a_row.max(work);
            return self.ends >= ENDS;
        }
        let in_a_row = core::mem::take(&mut self.heaviest_in_a_row);
        self.heaviest[1] = now.max(work).max(in_a_row);
        self.ends = 0;
        false
    }

    /// Forgets the heaviest I/O of a span that is over.
    pub(super) fn expire(&mut self, now: Nanos) {
        if now >= self.span_end {
            self.heaviest = [self.heaviest[1], 0.0];
            self.span_end = now + REMEMBERED;
        }
    }

    /// Ends the run, because the depth changes.
    pub(super) fn interrupt(&mut self) {
        self.ends = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dozen_heavier_ios_in_a_row_are_another_load() {
        let mut run = LoadChange::new(Nanos::ZERO);
        for _ in 0..11 {
            assert!(!run.ended(16.0, 1.0));
        }
        assert!(run.ended(16.0, 1.0));
    }

    #[test]
    fn what_was_seen_among_lighter_ones_is_part_of_the_load_for_a_second_or_two() {
        let mut run = LoadChange::new(Nanos::ZERO);
        let dozen = |run: &mut LoadChange| (0..12).any(|_| run.ended(16.0, 1.0));
        run.expire(Nanos::ZERO);
        run.ended(16.0, 1.0);
        run.ended(1.0, 1.0);
        assert!(!dozen(&mut run));
        run.expire(Nanos::from_millis(1000));
        run.ended(1.0, 1.0);
        assert!(!dozen(&mut run));
        run.expire(Nanos::from_millis(2000));
        run.ended(1.0, 1.0);
        assert!(!dozen(&mut run), "a dozen that was part of it renews it");
        run.expire(Nanos::from_millis(3000));
        run.expire(Nanos::from_millis(4000));
        run.expire(Nanos::from_millis(5000));
        assert!(dozen(&mut run));
    }
}
