//! Early detection of a changed workload by heavier I/Os, sooner than by a measurement of the mean.
//! An I/O's work is its cost at the device, in the unit of
//! [`IoWork`](crate::queue_depth::io_work::IoWork).

use tidegate_base::time::Nanos;

/// Consecutive heavy I/Os after which the workload counts as changed: less than half of the 32 ends
/// that a measurement takes at least.
const HEAVY_RUN: u32 = 12;
/// Multiple of the mean work of the workload's I/Os from which one is heavy; twice the factor of
/// 1.5 by which a measured mean must differ, because single I/Os vary more.
const HEAVY_RATIO: f64 = 3.0;
/// Length of a span; the heaviest I/O of a workload is remembered for one to two spans.
const SPAN: Nanos = Nanos::SECOND;

/// Run of I/Os that are heavier than those of the present workload. A workload of large and small
/// I/Os does not count as changed whenever a dozen of the large ones end in a row: a heavy I/O that
/// ended among lighter ones belongs to the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadChange {
    /// Number of consecutive heavy I/Os.
    run: u32,
    /// Work of the heaviest of these.
    heaviest_of_run: f64,
    /// Work of the heaviest I/O of the present workload: in the span before this one, and in this
    /// one.
    heaviest: [f64; 2],
    /// End of this span.
    span_end: Nanos,
}

impl LoadChange {
    /// Creates the state of a workload of which no I/O has ended.
    pub(super) fn new(now: Nanos) -> LoadChange {
        LoadChange {
            run: 0,
            heaviest_of_run: 0.0,
            heaviest: [0.0; 2],
            span_end: now,
        }
    }

    /// Notes an I/O of the given work that ended; `mean_work`: of the workload's I/Os, 0 if it is
    /// not known. Returns true if the workload counts as changed with it.
    pub(super) fn ended(&mut self, work: f64, mean_work: f64) -> bool {
        let [previous, present] = self.heaviest;
        if mean_work > 0.0 && work >= HEAVY_RATIO * mean_work && work > previous.max(present) {
            self.run += 1;
            self.heaviest_of_run = self.heaviest_of_run.max(work);
            return self.run >= HEAVY_RUN;
        }
        // A lighter I/O ends the run, so its heavy ones belong to the present workload.
        let heaviest_of_run = core::mem::take(&mut self.heaviest_of_run);
        self.heaviest[1] = present.max(work).max(heaviest_of_run);
        self.run = 0;
        false
    }

    /// Begins the next span if the present one is over.
    pub(super) fn rotate_span(&mut self, now: Nanos) {
        if now >= self.span_end {
            self.heaviest = [self.heaviest[1], 0.0];
            self.span_end = now + SPAN;
        }
    }

    /// Ends the run, because the depth changes.
    pub(super) fn interrupt(&mut self) {
        self.run = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_consecutive_heavy_ios_are_a_changed_workload() {
        let mut run = LoadChange::new(Nanos::ZERO);
        for _ in 0..11 {
            assert!(!run.ended(16.0, 1.0));
        }
        assert!(run.ended(16.0, 1.0));
    }

    #[test]
    fn heavy_ios_among_lighter_ones_belong_to_the_workload_for_two_spans() {
        let mut run = LoadChange::new(Nanos::ZERO);
        let dozen = |run: &mut LoadChange| (0..12).any(|_| run.ended(16.0, 1.0));
        run.rotate_span(Nanos::ZERO);
        run.ended(16.0, 1.0);
        run.ended(1.0, 1.0);
        assert!(!dozen(&mut run));
        run.rotate_span(Nanos::from_millis(1000));
        run.ended(1.0, 1.0);
        assert!(!dozen(&mut run));
        run.rotate_span(Nanos::from_millis(2000));
        run.ended(1.0, 1.0);
        assert!(
            !dozen(&mut run),
            "heavy I/Os of the workload renew the span"
        );
        run.rotate_span(Nanos::from_millis(3000));
        run.rotate_span(Nanos::from_millis(4000));
        run.rotate_span(Nanos::from_millis(5000));
        assert!(dozen(&mut run));
    }
}
