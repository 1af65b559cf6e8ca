//! Measurement of one second of a device: I/Os by kind, queue occupancy, time held back by a cap.

use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Access, Direction, Estimation, Pattern, Profile};

/// Shortest window; it is closed by the next I/O that starts or ends.
pub(crate) const WINDOW: Nanos = Nanos::SECOND;
/// Number of size classes by powers of two: 512 bytes to 32 MiB and more; and the exponent of the
/// smallest.
const SIZE_CLASSES: usize = 17;
const SMALLEST_LOG2: u32 = 9;
/// Number of I/Os whose ends are remembered, to recognise one that continues them.
const RECENT_ENDS: usize = 16;
const PLACES: usize = 3;

/// Kind of an I/O in terms of the profile: direction and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

impl Kind {
    /// I/O without data, for which the profile has no time: a flush, a discard.
    pub(crate) const OTHER: Kind = Kind(u8::MAX);
    /// I/O that continues the one before it.
    const NEXT: u8 = 0;
    /// I/O that continues another one of the last [`RECENT_ENDS`]: sequential for a device that
    /// follows several streams, random for one that does not.
    const NEAR: u8 = 1;
    /// I/O that continues none of them.
    const ELSEWHERE: u8 = 2;

    /// Returns `true` if the I/O moves data.
    pub(crate) fn is_data(self) -> bool {
        self != Kind::OTHER
    }
}

/// I/Os of one kind and size, and their bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    ios: u64,
    bytes: u64,
}

impl Cell {
    fn add(&mut self, other: &Cell) {
        self.ios += other.ios;
        self.bytes += other.bytes;
    }
}

/// Cells by direction and place ([`cell_row`]), then by size.
type Cells = [[Cell; SIZE_CLASSES]; 2 * PLACES];

/// Measurement of a window that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// End of the window.
    pub(crate) end: Nanos,
    /// Length of the window.
    pub(crate) len: Nanos,
    /// I/Os with data that ended in the window.
    pub(crate) ios: u64,
    /// Bytes of those I/Os.
    pub(crate) bytes: u64,
    /// Bytes of the largest of those I/Os.
    pub(crate) largest: u64,
    /// True if an I/O failed or was taken out.
    pub(crate) failed: bool,
    /// Time in which the device had too few I/Os in flight, or one for which the profile has no
    /// time.
    pub(crate) slack: Nanos,
    /// Time with fewer than two I/Os in flight, or with none if the depth in force is one.
    pub(crate) thin: Nanos,
    /// Time in which the learnt cap held back waiting I/Os.
    pub(crate) held: Nanos,
    /// Mean number of I/Os in flight, in thousandths.
    pub(crate) depth_milli: u64,
    /// Profile's time for the completed I/Os, least and most, in nanoseconds. The range covers two
    /// unknowns: an I/O that continues an earlier one but not the last may be sequential or random,
    /// and reads and writes of different sizes may slow each other down or not.
    pub(crate) expected: Option<(f64, f64)>,
    /// I/Os in flight at which the device does what its profile says.
    pub(crate) saturating_depth: u32,
    /// Class of the window's workload, below [`Window::PATTERNS`].
    pub(crate) pattern: usize,
}

impl Window {
    /// Number of workload classes: reads in quarters, sequential I/Os in halves, mean size as a
    /// power of two.
    pub(crate) const PATTERNS: usize = 5 * 3 * SIZE_CLASSES;

    /// Returns the I/Os per second, in thousandths.
    pub(crate) fn iops_milli(&self) -> u64 {
        per_s(self.ios * 1000, self.len)
    }

    /// Returns the bytes per second.
    pub(crate) fn bytes_per_s(&self) -> u64 {
        per_s(self.bytes, self.len)
    }
}

/// Returns units per second.
fn per_s(units: u64, len: Nanos) -> u64 {
    let rate = units as u128 * Nanos::SECOND.0 as u128 / len.0.max(1) as u128;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Measurement of one window after the other.
pub(crate) struct WindowMeter {
    /// I/Os in flight at which the device does what its profile says.
    pub(super) saturating_depth: u32,
    /// I/Os in flight below which time is thin: 2, or the depth in force below it.
    pub(super) thin_below: u32,
    /// Begin of the window.
    from: Nanos,
    /// Time up to which the sums are complete.
    seen: Nanos,
    /// I/Os with data in flight.
    data: u32,
    /// I/Os without data in flight.
    others: u32,
    /// True while the learnt cap holds back what waits; and the nanoseconds so far, all of them and
    /// those that would be slack. Only the end of the hold shows which sum they belong to.
    held: bool,
    holding: (u64, u64),
    ends: [u64; RECENT_ENDS],
    next_end: usize,
    /// End of the last I/O.
    last: u64,
    sums: Sums,
}

/// Sums of one window.
#[derive(Clone, Copy)]
struct Sums {
    cells: Cells,
    largest: u32,
    failed: bool,
    slack: u64,
    thin: u64,
    held: u64,
    /// I/Os in flight times nanoseconds.
    depth: u64,
}

impl Sums {
    const NONE: Sums = Sums {
        cells: [[Cell { ios: 0, bytes: 0 }; SIZE_CLASSES]; 2 * PLACES],
        largest: 0,
        failed: false,
        slack: 0,
        thin: 0,
        held: 0,
        depth: 0,
    };
}

impl WindowMeter {
    /// Creates a meter of an idle device.
    pub(crate) fn new(now: Nanos) -> WindowMeter {
        WindowMeter {
            saturating_depth: 1,
            thin_below: 2,
            from: now,
            seen: now,
            data: 0,
            others: 0,
            held: false,
            holding: (0, 0),
            ends: [u64::MAX; RECENT_ENDS],
            next_end: 0,
            last: u64::MAX,
            sums: Sums::NONE,
        }
    }

    /// Returns the I/Os with data in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.data
    }

    /// Adds the time since the last call to the sums, under the present state.
    fn advance(&mut self, now: Nanos) {
        let span = now.since(self.seen).0;
        if span == 0 {
            return;
        }
        self.seen = now;
        let sums = &mut self.sums;
        sums.depth += self.data as u64 * span;
        // Flushes and discards take device time that the profile knows nothing of.
        let slack = if self.others > 0 || self.data < self.saturating_depth {
            span
        } else {
            0
        };
        if self.held {
            self.holding.0 += span;
            self.holding.1 += slack;
        } else {
            sums.slack += slack;
        }
        if self.data < self.thin_below {
            sums.thin += span;
        }
    }

    /// Counts an I/O that starts, and returns its kind by the ends of those before.
    pub(crate) fn started(&mut self, now: Nanos, io: &DeviceIo, zeroes_are_writes: bool) -> Kind {
        self.advance(now);
        let direction = match io.op {
            Op::Read => Direction::Read,
            Op::Write => Direction::Write,
            Op::WriteZeroes if zeroes_are_writes => Direction::Write,
            Op::WriteZeroes | Op::Discard | Op::Flush => {
                self.others += 1;
                return Kind::OTHER;
            }
        };
        self.data += 1;
        // No early exit: the comparisons become a few vector instructions.
        let near = self
            .ends
            .iter()
            .fold(false, |any, &end| any | (end == io.addr));
        let place = match (io.addr == self.last, near) {
            (true, _) => Kind::NEXT,
            (false, true) => Kind::NEAR,
            (false, false) => Kind::ELSEWHERE,
        };
        self.last = io.addr + io.len as u64;
        self.ends[self.next_end % RECENT_ENDS] = self.last;
        self.next_end = (self.next_end + 1) % RECENT_ENDS;
        Kind(direction as u8 * PLACES as u8 + place)
    }

    /// Stops counting an I/O whose disk hangs. The I/O must not count as completed: with zero bytes
    /// it would show a cap of zero, at whose pace nothing would ever go.
    pub(crate) fn taken_out(&mut self, now: Nanos, kind: Kind) {
        self.advance(now);
        self.sums.failed = true;
        let in_flight = if kind.is_data() {
            &mut self.data
        } else {
            &mut self.others
        };
        *in_flight = in_flight.saturating_sub(1);
    }

    /// Counts an I/O that completed. `well`: without an error.
    pub(crate) fn ended(&mut self, now: Nanos, kind: Kind, bytes: u32, well: bool) {
        self.advance(now);
        self.sums.failed |= !well;
        if !kind.is_data() {
            self.others = self.others.saturating_sub(1);
            return;
        }
        self.data = self.data.saturating_sub(1);
        self.sums.largest = self.sums.largest.max(bytes);
        // Sizes outside the classes count in the first and the last.
        let size = (bytes.max(1).ilog2().max(SMALLEST_LOG2) - SMALLEST_LOG2) as usize;
        let cell = &mut self.sums.cells[kind.0 as usize][size.min(SIZE_CLASSES - 1)];
        cell.ios += 1;
        cell.bytes += bytes as u64;
    }

    /// Begins a hold: the learnt cap holds back what waits.
    pub(crate) fn begin_hold(&mut self, now: Nanos) {
        if !self.held {
            self.advance(now);
            self.held = true;
        }
    }

    /// Ends the hold. `went`: an I/O went at once, so that the cap was the cause;
    /// otherwise something else was, such as the VM's limit.
    pub(crate) fn end_hold(&mut self, now: Nanos, went: bool) {
        if !self.held {
            return;
        }
        self.advance(now);
        self.held = false;
        let (held, slack) = std::mem::take(&mut self.holding);
        if went {
            self.sums.held += held;
        } else {
            self.sums.slack += slack;
        }
    }

    /// Begins a new window and drops the present one.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.advance(now);
        self.from = now;
        self.sums = Sums::NONE;
        self.holding = (0, 0);
    }

    /// Returns the window once its time is over, and begins the next one.
    pub(crate) fn close(&mut self, now: Nanos, profile: Option<&Profile>) -> Option<Window> {
        if now.since(self.from) < WINDOW {
            return None;
        }
        self.advance(now);
        // A hold that goes on has no known cause yet: its slack counts, as the span is too short to
        // matter.
        self.sums.slack += std::mem::take(&mut self.holding).1;
        let len = now.since(self.from);
        let sums = &self.sums;
        let all = sums.cells.iter().flatten();
        let (ios, bytes) = all.fold((0, 0), |(ios, bytes), cell| {
            (ios + cell.ios, bytes + cell.bytes)
        });
        let window = Window {
            end: now,
            len,
            ios,
            bytes,
            largest: sums.largest as u64,
            failed: sums.failed,
            slack: Nanos(sums.slack),
            thin: Nanos(sums.thin),
            held: Nanos(sums.held),
            depth_milli: (sums.depth as u128 * 1000 / len.0 as u128) as u64,
            expected: profile.map(|profile| expected(&sums.cells, profile)),
            saturating_depth: self.saturating_depth,
            pattern: pattern(&sums.cells, ios, bytes),
        };
        self.from = now;
        self.sums = Sums::NONE;
        Some(window)
    }
}

/// Returns I/Os and bytes over all sizes.
fn total(cell_row: &[Cell; SIZE_CLASSES]) -> (u64, u64) {
    cell_row.iter().fold((0, 0), |(ios, bytes), cell| {
        (ios + cell.ios, bytes + cell.bytes)
    })
}

/// Returns the index of a direction and place in [`Cells`].
fn cell_row(direction: Direction, place: u8) -> usize {
    direction as usize * PLACES + place as usize
}

/// Returns the workload class of a window, below [`Window::PATTERNS`].
fn pattern(cells: &Cells, ios: u64, bytes: u64) -> usize {
    if ios == 0 {
        return 0;
    }
    let count = |direction, place| total(&cells[cell_row(direction, place)]).0;
    let both = |place| count(Direction::Read, place) + count(Direction::Write, place);
    let places = [Kind::NEXT, Kind::NEAR, Kind::ELSEWHERE];
    let reads: u64 = places.iter().map(|&p| count(Direction::Read, p)).sum();
    let sequential = both(Kind::NEXT) + both(Kind::NEAR);
    let reads = ((reads * 4 + ios / 2) / ios) as usize;
    let sequential = ((sequential * 2 + ios / 2) / ios) as usize;
    let size = ((bytes / ios).max(1).ilog2().max(SMALLEST_LOG2) - SMALLEST_LOG2) as usize;
    (reads * 3 + sequential) * SIZE_CLASSES + size.min(SIZE_CLASSES - 1)
}

/// Returns the profile's time for these I/Os, least and most, in nanoseconds.
fn expected(cells: &Cells, profile: &Profile) -> (f64, f64) {
    // I/Os that may be sequential or random count as the one in `a`, as the other in `b`.
    let with = |near| expected_with(cells, profile, near);
    let (a, b) = (with(Access::Sequential), with(Access::Random));
    (a.0.min(b.0), a.1.max(b.1))
}

/// Returns the profile's time for these I/Os, least and most, in nanoseconds. `near`: access of
/// those that continue an earlier I/O but not the last.
fn expected_with(cells: &Cells, profile: &Profile, near: Access) -> (f64, f64) {
    let mut sequential = 0.0;
    // Random I/Os by size: picoseconds if reads and writes were apart, and what reads and writes
    // there are.
    let mut apart = [0.0; SIZE_CLASSES];
    let mut random = [[Cell::default(); 2]; SIZE_CLASSES];
    for direction in [Direction::Read, Direction::Write] {
        let accesses = [
            (Kind::NEXT, Access::Sequential),
            (Kind::NEAR, near),
            (Kind::ELSEWHERE, Access::Random),
        ];
        for (place, access) in accesses {
            for (at, cell) in cells[cell_row(direction, place)].iter().enumerate() {
                if cell.ios == 0 {
                    continue;
                }
                // Between powers of two a curve is nearly straight, so the mean size will do.
                let size = u32::try_from(cell.bytes / cell.ios).unwrap_or(u32::MAX);
                let time = cell.ios as f64 * profile.time_ps(direction, access, size) as f64;
                match access {
                    Access::Sequential => sequential += time,
                    Access::Random => {
                        apart[at] += time;
                        random[at][direction as usize].add(cell);
                    }
                }
            }
        }
    }
    let mut all = [Cell::default(); 2];
    for of_size in &random {
        all[0].add(&of_size[0]);
        all[1].add(&of_size[1]);
    }
    // The profile has mixes of one size. The effect of reads of one size on writes of another is
    // unknown: none, or as much as if all had the mean size.
    let by_size = apart.iter().zip(&random);
    let by_size: f64 = by_size.map(|(time, of)| time * mixing(of, profile)).sum();
    let by_mean = apart.iter().sum::<f64>() * mixing(&all, profile);
    let ns = |random: f64| (sequential + random) / 1000.0;
    (ns(by_size.min(by_mean)), ns(by_size.max(by_mean)))
}

/// Returns the factor by which random reads and writes take longer together than apart, as
/// measured; 1 where one of them is missing.
fn mixing([reads, writes]: &[Cell; 2], profile: &Profile) -> f64 {
    if reads.ios == 0 || writes.ios == 0 {
        return 1.0;
    }
    let ios = (reads.ios + writes.ios) as f64;
    let mix = Pattern {
        reads: reads.ios as f64 / ios,
        sequential_reads: 0.0,
        sequential_writes: 0.0,
        size: (reads.bytes + writes.bytes) as f64 / ios,
    };
    profile.mean_time_ps(&mix, Estimation::ThreeD) / profile.mean_time_ps(&mix, Estimation::TwoD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ios_of_hung_disks_do_not_count_as_completed() {
        let (read, mut meter) = (Kind(Kind::NEXT), WindowMeter::new(Nanos::ZERO));
        (meter.data, meter.others) = (3, 1);
        meter.ended(Nanos::from_millis(100), read, 4096, true);
        meter.taken_out(Nanos::from_millis(200), read);
        meter.taken_out(Nanos::from_millis(300), Kind::OTHER);
        assert_eq!((meter.data, meter.others), (1, 0));
        let window = meter.close(WINDOW, None).expect("it is over");
        assert_eq!((window.ios, window.bytes), (1, 4096));
        assert!(window.failed);
    }
}
