//! Sums of events over windows of time. An event is a time in nanoseconds and an amount.

use crate::{MS, SECOND};

/// Returns the sum of all events.
pub fn total(events: &[(u64, u64)]) -> u64 {
    events.iter().map(|e| e.1).sum()
}

/// Sum of the events in `[from, to)`.
pub fn within(events: &[(u64, u64)], from: u64, to: u64) -> u64 {
    events
        .iter()
        .filter(|e| (from..to).contains(&e.0))
        .map(|e| e.1)
        .sum()
}

/// Largest sum over any window of 100 ms, and the window's begin.
pub fn busiest_100_ms(events: &[(u64, u64)]) -> (u64, u64) {
    let (mut first, mut sum, mut most) = (0, 0, (0, 0));
    for &(at, amount) in events {
        sum += amount;
        // The window is half-open: an event exactly 100 ms after another is in the next window.
        while events[first].0 + 100 * MS <= at {
            sum -= events[first].1;
            first += 1;
        }
        most = most.max((sum, events[first].0));
    }
    most
}

/// Smallest sum over any window of 100 ms within `[from, to)`, and the window's begin.
pub fn quietest_100_ms(events: &[(u64, u64)], from: u64, to: u64) -> (u64, u64) {
    // The emptiest windows begin right behind an event, or at the very start.
    let starts = events
        .iter()
        .map(|e| e.0 + 1)
        .filter(|&s| s >= from)
        .chain([from]);
    // A window that reaches beyond `to` would count the silence after the run.
    let starts = starts.filter(|&s| s + 100 * MS <= to);
    let (mut least, mut lo) = ((u64::MAX, 0), 0);
    let mut starts: Vec<u64> = starts.collect();
    starts.sort_unstable();
    for start in starts {
        while lo < events.len() && events[lo].0 < start {
            lo += 1;
        }
        let inside = events[lo..].iter().take_while(|e| e.0 < start + 100 * MS);
        least = least.min((inside.map(|e| e.1).sum(), start));
    }
    least
}

/// Largest lateness in nanoseconds of a request under a limit of `per_s` per second at which the
/// window that begins with it, with the next requests on time, still holds at most one request and
/// 1 % above that rate.
pub fn max_lateness(per_s: u64) -> u64 {
    // 100 ms at 101 % of the rate, and the one request that a window may hold beyond it.
    let allowed = per_s * 101 / 1000 + 1;
    allowed * SECOND / per_s - 100 * MS - 1
}

/// Checks a limit of `rate` per second with requests of at most `largest`: no window of 100 ms
/// exceeds it by more than one request and 1 %.
pub fn assert_below(events: &[(u64, u64)], rate: u64, largest: u64) {
    let (most, at) = busiest_100_ms(events);
    // 128 bits: some limits are close to 2^64 bytes a second. `101 / 1000` is 100 ms and 1 %.
    let allowed = rate as u128 * 101 / 1000 + largest as u128;
    assert!(
        most as u128 <= allowed,
        "{most} in 100 ms from {at} ns; allowed are {allowed}"
    );
}
