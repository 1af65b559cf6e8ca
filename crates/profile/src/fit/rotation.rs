//! Spindle speed of a disk, from the times at which neighbouring I/Os end.
//!
//! I/Os whose ends are close to each other on the disk end at nearly the same angle of the platter:
//! the time between them is a whole number of revolutions. Of all common speeds the right one makes
//! these times agree, whatever else the disk does.

use std::collections::VecDeque;
use std::f64::consts::TAU;

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

use super::ios::DeviceIo;

/// Common spindle speeds in revolutions per minute.
pub(super) const SPEEDS: [u64; 5] = [5_400, 5_900, 7_200, 10_000, 15_000];
/// Distance in bytes of the ends of two neighbours: a small part of a track, which has some 1 MB.
const NEAR: u64 = 64 << 10;
/// Longest time between the ends of two neighbours: an error of the nominal speed adds up.
const SOON: Nanos = Nanos::from_millis(200);
/// Shortest time of an I/O that the platter can have delayed; shorter ones come from a cache.
const MECHANICAL: Nanos = Nanos::from_millis(1);
/// I/Os among which neighbours are looked for: over few and many revolutions, which tells close
/// speeds apart.
const WINDOW: usize = 64;
/// Pairs below which nothing can be told.
const PAIRS_MIN: usize = 500;
/// Agreement, 0 to 1, from which a speed is taken, and the part of it that no other speed may have.
const AGREEMENT: f64 = 0.4;
const OTHERS: f64 = 0.7;

/// Returns the spindle speed; `None` if the ends of I/Os do not tell it.
pub(super) fn speed(ios: &[DeviceIo]) -> Option<u64> {
    let times = between_neighbours(ios);
    if times.len() < PAIRS_MIN {
        return None;
    }
    let mut found = SPEEDS.map(|speed| (agreement(&times, speed), speed));
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(best, speed), (second, _), ..] = found;
    (best >= AGREEMENT && second <= best * OTHERS).then_some(speed)
}

/// Returns the length of the mean of unit vectors, each turned by the part of a revolution in a
/// time: 1 if all times are whole revolutions and the same rest, near 0 for any times.
fn agreement(times: &[Nanos], speed: u64) -> f64 {
    let revolution = 60e9 / speed as f64;
    let (mut x, mut y) = (0.0, 0.0);
    for time in times {
        let angle = time.0 as f64 / revolution * TAU;
        x += libm::cos(angle);
        y += libm::sin(angle);
    }
    libm::sqrt(x * x + y * y) / times.len() as f64
}

/// Returns true if a platter may have delayed an I/O, whose length is known.
pub(super) fn is_mechanical(io: &DeviceIo) -> bool {
    matches!(io.op, Op::Read | Op::Write) && io.is_whole && io.took() >= MECHANICAL
}

/// Returns the times between the ends of I/Os that are near each other.
fn between_neighbours(ios: &[DeviceIo]) -> Vec<Nanos> {
    let mut by_end: Vec<&DeviceIo> = ios.iter().filter(|io| is_mechanical(io)).collect();
    by_end.sort_by_key(|io| io.done);
    let mut recent: VecDeque<&DeviceIo> = VecDeque::new();
    let mut times = Vec::new();
    let end = |io: &DeviceIo| io.addr.saturating_add(io.len.into());
    for io in by_end {
        let near = |other: &&&DeviceIo| {
            end(other).abs_diff(end(io)) <= NEAR && io.done.since(other.done) <= SOON
        };
        let neighbours = recent.iter().filter(near);
        times.extend(neighbours.map(|other| io.done.since(other.done)));
        if recent.len() == WINDOW {
            recent.pop_front();
        }
        recent.push_back(io);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::random::SplitMix64;

    /// Simulates a log: writes of 8 KiB one behind the other, each some revolutions after the last.
    fn log(speed: u64, jitter: u64) -> Vec<DeviceIo> {
        let mut rng = SplitMix64::new(3);
        let mut done = 0;
        let io = |n: u64| {
            done += (1 + rng.below(4)) * 60_000_000_000 / speed + rng.below(jitter);
            DeviceIo {
                op: Op::Write,
                fua: false,
                addr: n * 8192,
                len: 8192,
                sent: Nanos(done.saturating_sub(4_000_000)),
                done: Nanos(done),
                is_whole: true,
            }
        };
        (0..300).map(io).collect()
    }

    #[test]
    fn each_common_speed_is_told_by_the_ends_of_neighbours() {
        for expected in SPEEDS {
            assert_eq!(speed(&log(expected, 400_000)), Some(expected));
        }
    }

    #[test]
    fn a_device_that_does_not_turn_has_no_speed() {
        assert_eq!(speed(&log(7_200, 9_000_000)), None);
        assert_eq!(speed(&log(7_200, 400_000)[..40]), None, "too few");
        let mut cached = log(7_200, 400_000);
        cached
            .iter_mut()
            .for_each(|io| io.sent = io.done - Nanos(100_000));
        assert_eq!(speed(&cached), None, "nothing waits for a platter");
    }
}
