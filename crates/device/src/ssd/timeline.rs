//! Resource that carries one transfer at a time and is booked ahead: a channel, or an interface
//! that serves commands in order.
//!
//! A page that leaves a busy die in a millisecond books its channel from that time on. A page that
//! is ready earlier still goes first, because a booking takes the first gap that is long enough.
//! Adjacent bookings are stored as one, so there are seldom more than a few. Beyond a fixed number,
//! the gap before a new booking is given up.

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Span {
    begin: u64,
    end: u64,
}

/// Booking calendar of a channel or an interface. Times are in nanoseconds.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Busy times from index `first` on, sorted, not adjacent. Never grows beyond its capacity.
    busy: Vec<Span>,
    first: usize,
    /// Maximum number of busy times that are stored separately.
    max_spans: usize,
}

impl Clone for Timeline {
    /// Clones with full capacity. (A derived clone would allocate later.)
    fn clone(&self) -> Timeline {
        let mut timeline = Timeline::new(self.max_spans);
        timeline.busy.extend_from_slice(&self.busy[self.first..]);
        timeline
    }
}

impl Timeline {
    /// Creates a calendar that stores at most `max_spans` (at least 1) separate busy times.
    pub(super) fn new(max_spans: usize) -> Timeline {
        // Without a stored span there is no neighbour to extend.
        assert!(max_spans > 0, "a calendar stores at least one busy time");
        Timeline {
            busy: Vec::with_capacity(2 * max_spans),
            first: 0,
            max_spans,
        }
    }

    /// Books `duration` in the first gap from `from` on; returns its start time. `now` must never
    /// decrease, because bookings that ended before it are dropped.
    pub(super) fn book(&mut self, now: u64, from: u64, duration: u64) -> u64 {
        while self.busy.get(self.first).is_some_and(|s| s.end <= now) {
            self.first += 1;
        }
        if self.first == self.busy.len() {
            self.busy.clear();
            self.first = 0;
        }
        // `next` is the first booking that ends after `from`, later the first one behind the gap.
        let mut next = self.first + self.busy[self.first..].partition_point(|s| s.end <= from);
        let mut begin = from;
        while let Some(span) = self.busy.get(next)
            && begin + duration > span.begin
        {
            begin = span.end;
            next += 1;
        }
        self.insert(next, begin, begin + duration);
        begin
    }

    /// Inserts a booking before the one at index `next`.
    fn insert(&mut self, mut next: usize, begin: u64, end: u64) {
        let joins_last = next > self.first && self.busy[next - 1].end == begin;
        let joins_next = next < self.busy.len() && self.busy[next].begin == end;
        match (joins_last, joins_next) {
            (true, true) => {
                self.busy[next - 1].end = self.busy[next].end;
                self.remove_span(next);
            }
            (true, false) => self.busy[next - 1].end = end,
            (false, true) => self.busy[next].begin = begin,
            (false, false) if self.busy.len() - self.first < self.max_spans => {
                // Drop past spans instead of letting the vector grow.
                if self.busy.len() == self.busy.capacity() {
                    self.busy.drain(..self.first);
                    next -= self.first;
                    self.first = 0;
                }
                self.insert_span(next, Span { begin, end });
            }
            // All spans are in use: the gap to a neighbour is booked as well.
            (false, false) if next > self.first => self.busy[next - 1].end = end,
            (false, false) => self.busy[next].begin = begin,
        }
    }

    // One or two spans lie behind most places. `Vec::insert` and `Vec::remove` call `memmove` for
    // them, which takes longer than these loops: several times as long in musl.

    fn insert_span(&mut self, index: usize, span: Span) {
        self.busy.push(span);
        for later in (index + 1..self.busy.len()).rev() {
            self.busy.swap(later - 1, later);
        }
    }

    fn remove_span(&mut self, index: usize) {
        for later in index + 1..self.busy.len() {
            self.busy.swap(later - 1, later);
        }
        self.busy.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fills_gaps_and_queues_otherwise() {
        let mut timeline = Timeline::new(24);
        assert_eq!(timeline.book(0, 100, 10), 100);
        assert_eq!(timeline.book(0, 0, 50), 0);
        assert_eq!(timeline.book(0, 0, 60), 110);
        assert_eq!(timeline.book(0, 40, 50), 50);
        assert_eq!(timeline.busy.len(), 1);
        assert_eq!(timeline.book(170, 0, 5), 0, "the past is forgotten");
    }

    proptest! {
        #[test]
        fn never_carries_two_at_a_time_nor_grows(
            bookings in proptest::collection::vec((0_u64..5_000, 1_u64..100, 0_u64..50), 1..200)
        ) {
            let (mut timeline, mut booked, mut now) = (Timeline::new(8), Vec::new(), 0);
            let room = timeline.busy.capacity();
            for (from, duration, wait) in bookings {
                now += wait;
                let begin = timeline.book(now, now + from, duration);
                prop_assert!(begin >= now + from);
                booked.push((begin, begin + duration));
            }
            prop_assert_eq!(timeline.busy.capacity(), room);
            booked.sort_unstable();
            prop_assert!(booked.windows(2).all(|w| w[0].1 <= w[1].0));
        }
    }
}
