//! Rates of a hard disk's zones, from the angles of the platter at which I/Os end.
//!
//! A platter turns by the same angle for each byte of a zone, skews included, so that an I/O that
//! ends at byte `x` ends at the angle `x / (revolution * rate)` and a constant, whatever came
//! before it. Of I/Os in one zone, the right rate makes the angles of all ends agree (a periodogram
//! over addresses). Its error is a revolution over all bytes of the zone, a part in many thousands:
//! less than a sector of a track.
//!
//! A line through the rates of several zones gives those of the outermost and of the innermost.
//! Near them are the rates with which each zone begins at the right angle, too: those with which a
//! model's angles agree with all ends. The angle that is left is that of the platter at time zero.

use std::f64::consts::TAU;

use tidegate_core::time::Nanos;
use tidegate_device::hdd::{HddFigures, Platter};

use super::ios::DeviceIo;
use super::rotation::is_mechanical;

/// Block that is sent to the host once the platter has passed it.
const SECTOR: u32 = 512;
/// I/Os of a group whose ends are compared, neighbours on the disk.
const GROUP: usize = 128;
/// Groups, evenly spread over all that there are.
const GROUPS_MAX: usize = 12;
/// Bytes that a group covers at least: a rate is told by as many revolutions.
const SPAN_MIN: u64 = 1 << 30;
/// Bytes that a group covers at most, as a part of the disk: more are of several zones.
const SPAN_MAX_PART: u64 = 20;
/// Rates that are tried for each revolution over a group.
const FINENESS: f64 = 4.0;
/// Rates that are tried for a group at most: those of a far larger disk take too long.
const TRIED_MAX: usize = 2_000_000;
/// Factor of the rates of a start within which the rates of the device are.
const RANGE: f64 = 1.6;
/// Agreement of the ends, 0 to 1, from which a rate is taken. The best of 100,000 wrong rates has
/// 0.3 in a group.
const AGREEMENT: f64 = 0.5;
/// Repetitions of the assignment of groups to zones.
const ROUNDS: usize = 20;
/// Ratios of the inner to the outer rate to begin with, in percent.
const RATIOS: [u32; 12] = [36, 39, 42, 45, 48, 50, 52, 54, 57, 60, 65, 70];
/// Ends by which rates are refined.
const REFINED_BY: usize = 300;
/// Range and steps of the refinement of the outer rate, in rates of a block for each track: the
/// true rate may be as much above the one that is found, because tracks have whole blocks.
const OUTER_RANGE: (i32, i32) = (-4, 10);
const OUTER_STEPS: f64 = 8.0;
/// Range of the refinement of the inner rate, in steps of half a cylinder for each zone.
const INNER_RANGE: i32 = 60;
/// Digits of rates as people write them, if these agree as well.
const DIGITS: [u32; 4] = [2, 3, 4, 5];

/// Layout of a disk by the ends of I/Os.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Found {
    /// Rates of the outermost and of the innermost zone, in bytes per second.
    pub(super) outer: u64,
    pub(super) inner: u64,
    /// Time of a model at time zero of the recording, by which their platters have one angle.
    pub(super) shift: Nanos,
}

/// Ends of I/Os that a platter delayed, and the angle of a platter at each.
pub(super) struct Ends<'a> {
    figures: &'a HddFigures,
    ios: Vec<&'a DeviceIo>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(figures: &'a HddFigures, ios: &'a [DeviceIo]) -> Ends<'a> {
        let moved = |io: &&DeviceIo| {
            let end = io.addr.saturating_add(io.len.into());
            is_mechanical(io) && (1..=figures.capacity.0).contains(&end)
        };
        Ends {
            figures,
            ios: ios.iter().filter(moved).collect(),
        }
    }

    /// Returns the shift with which the start's own platter agrees; `None` if it does not.
    pub(super) fn shift(&self) -> Option<Nanos> {
        let every = self.ios.len().div_ceil(REFINED_BY).max(1);
        let (agreement, shift) = self.agreement(self.figures, every)?;
        (agreement >= AGREEMENT).then_some(shift)
    }

    /// Returns the layout with which the angles of all ends agree; `None` if there is none near the
    /// rates that groups of ends tell.
    pub(super) fn layout(&self) -> Option<Found> {
        let figures = self.figures;
        let platter = Platter::new(figures)?;
        let disk = Disk {
            revolution: platter.revolution().0 as f64,
            capacity: figures.capacity.0,
            zones: figures.zones.into(),
            similar: Rates {
                outer: figures.outer_rate.0 as f64,
                inner: figures.inner_rate.0 as f64,
            },
        };
        let near = disk.rates(&self.ios)?;
        let block = self.figures.physical_block.0 as f64 * 1e9 / disk.revolution / OUTER_STEPS;
        // Half a cylinder for each zone changes where zones begin by half the angle of one.
        let tracks = figures.surfaces.as_ref().map_or(1, |it| it.heads).max(1);
        let cylinders = disk.capacity as f64 * 1e9
            / (disk.revolution * f64::from(tracks) * (near.outer + near.inner) / 2.0);
        let half = (near.outer + near.inner) / (cylinders / disk.zones as f64) / 2.0;
        let every = self.ios.len().div_ceil(REFINED_BY).max(1);
        let mut best: Option<(f64, Found)> = None;
        for outer in OUTER_RANGE.0..=OUTER_RANGE.1 {
            for inner in -INNER_RANGE..=INNER_RANGE {
                let outer = near.outer + f64::from(outer) * block;
                let inner = near.inner + f64::from(inner) * half;
                let other = self.with_rates(outer as u64, inner as u64, every);
                let better = |other: &(f64, Found)| best.is_none_or(|best| other.0 > best.0);
                best = other.filter(better).or(best);
            }
        }
        let best = best.filter(|best| best.0 >= AGREEMENT)?;
        Some(self.rounded(best, every))
    }

    /// Returns the layout with the fewest digits that agrees as well.
    fn rounded(&self, best: (f64, Found), every: usize) -> Found {
        let rounded = |rate: u64, digits: u32| {
            let unit = 10u64.pow((rate.max(1).ilog10() + 1).saturating_sub(digits));
            (rate + unit / 2) / unit * unit
        };
        let mut all = DIGITS
            .iter()
            .flat_map(|&outer| DIGITS.iter().map(move |&inner| (outer, inner)));
        let found = all.find_map(|(outer, inner)| {
            let (outer, inner) = (rounded(best.1.outer, outer), rounded(best.1.inner, inner));
            let other = self.with_rates(outer, inner, every)?;
            (other.0 >= best.0 * 0.99).then_some(other.1)
        });
        found.unwrap_or(best.1)
    }

    /// Returns how well ends agree with a platter of other rates, and its layout.
    fn with_rates(&self, outer: u64, inner: u64, every: usize) -> Option<(f64, Found)> {
        let mut figures = self.figures.clone();
        (figures.outer_rate.0, figures.inner_rate.0) = (outer, inner);
        let (agreement, shift) = self.agreement(&figures, every)?;
        let found = Found {
            outer,
            inner,
            shift,
        };
        Some((agreement, found))
    }

    /// Returns how well every so many of the ends agree with the angles of a platter, 0 to 1, with
    /// the shift that makes them one.
    fn agreement(&self, figures: &HddFigures, every: usize) -> Option<(f64, Nanos)> {
        let platter = Platter::new(figures)?;
        let revolution = platter.revolution().0;
        let (mut x, mut y, mut count) = (0.0, 0.0, 0);
        for io in self.ios.iter().step_by(every) {
            let angle = platter.angle_behind(io.addr + u64::from(io.len)).0;
            // Before its last bytes are with the host, the platter turns on.
            let sent = u64::from(io.len.min(SECTOR)) * 1_000_000_000 / figures.interface_rate.0;
            let ahead = (angle + sent + revolution - io.done.0 % revolution) % revolution;
            let turns = TAU * ahead as f64 / revolution as f64;
            x += libm::cos(turns);
            y += libm::sin(turns);
            count += 1;
        }
        if count < GROUP / 2 {
            return None;
        }
        let agreement = libm::sqrt(x * x + y * y) / count as f64;
        let turns = libm::atan2(y, x) / TAU;
        let shift = (turns + 1.0) % 1.0 * revolution as f64;
        Some((agreement, Nanos(shift as u64)))
    }
}

/// Sustained rates of the outermost and of the innermost zone, in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rates {
    outer: f64,
    inner: f64,
}

/// Disk whose zones have equal numbers of cylinders and rates in equal steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Disk {
    /// Time of a revolution in nanoseconds.
    revolution: f64,
    capacity: u64,
    zones: u64,
    /// Rates of a similar disk.
    similar: Rates,
}

impl Rates {
    fn of_zone(self, zone: usize, zones: u64) -> f64 {
        let steps = zones.saturating_sub(1).max(1) as f64;
        self.outer - (self.outer - self.inner) / steps * zone as f64
    }
}

impl Disk {
    /// Returns the rates by the ends of I/Os; `None` if they do not tell them.
    fn rates(&self, ios: &[&DeviceIo]) -> Option<Rates> {
        let found: Vec<(u64, f64)> = (self.groups(ios).iter())
            .filter_map(|group| self.rate(group))
            .collect();
        self.through(&found)
    }

    /// Returns groups of neighbouring ends: the byte behind each I/O, and its time.
    fn groups(&self, ios: &[&DeviceIo]) -> Vec<Vec<(u64, f64)>> {
        let mut ends: Vec<(u64, f64)> = (ios.iter())
            .map(|io| (io.addr + u64::from(io.len), io.done.0 as f64))
            .collect();
        ends.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let span = |group: &&[(u64, f64)]| match group {
            [(first, _), .., (last, _)] => last - first,
            _ => 0,
        };
        let allowed = SPAN_MIN..=(self.capacity / SPAN_MAX_PART).max(SPAN_MIN);
        let groups: Vec<&[(u64, f64)]> = (ends.chunks_exact(GROUP))
            .filter(|group| allowed.contains(&span(group)))
            .collect();
        let every = groups.len().div_ceil(GROUPS_MAX).max(1);
        let groups = groups.into_iter().step_by(every);
        groups.map(<[_]>::to_vec).collect()
    }

    /// Returns the middle of a group and its rate; `None` if no rate makes its ends agree.
    fn rate(&self, group: &[(u64, f64)]) -> Option<(u64, f64)> {
        let [(first, _), .., (last, _)] = group else {
            return None;
        };
        // Distances from the first end, and angles, in revolutions.
        let ends: Vec<(f64, f64)> = (group.iter())
            .map(|&(byte, time)| ((byte - first) as f64, time / self.revolution % 1.0))
            .collect();
        // Revolutions of the platter for each byte.
        let turns = |rate: f64| 1e9 / (self.revolution * rate);
        let (low, high) = (self.similar.inner / RANGE, self.similar.outer * RANGE);
        let (from, to) = (turns(high), turns(low));
        let step = 1.0 / ((last - first) as f64 * FINENESS);
        let count = ((to - from) / step) as usize;
        if count > TRIED_MAX {
            return None;
        }
        let mut best = strongest(&ends, from, step, count);
        // The best of all is known to a part of a step, then to a part of that.
        let mut step = step;
        for _ in 0..3 {
            step /= 4.0;
            best = strongest(&ends, best.1 - 4.0 * step, step, 9);
        }
        let (agreement, turns) = best;
        let middle = first + (last - first) / 2;
        (agreement >= AGREEMENT).then(|| (middle, 1e9 / (self.revolution * turns)))
    }

    /// Returns the rates of the outermost and the innermost zone that are nearest to rates at
    /// places of the disk; `None` if there are none.
    fn through(&self, found: &[(u64, f64)]) -> Option<Rates> {
        // Which zone a place is in depends on the ratio of the rates. The disk's is most like that
        // of a similar one, so that is the first of equal ones.
        let similar = self.similar.inner / self.similar.outer;
        let ratios = [similar]
            .into_iter()
            .chain(RATIOS.map(|it| f64::from(it) / 100.0));
        let all = ratios.filter_map(|ratio| self.with_ratio(found, ratio));
        let least = |best: (f64, Rates), other: (f64, Rates)| {
            if other.0 < best.0 { other } else { best }
        };
        all.reduce(least).map(|(_, rates)| rates)
    }

    /// Returns the rates that are nearest to those at places, beginning with a ratio of the inner
    /// to the outer rate; with their mean distance, as a part of the step between zones.
    fn with_ratio(&self, found: &[(u64, f64)], ratio: f64) -> Option<(f64, Rates)> {
        let mut sorted: Vec<&(u64, f64)> = found.iter().collect();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let &&(byte, rate) = sorted.get(sorted.len() / 2)?;
        let like = Rates {
            outer: 1.0,
            inner: ratio,
        };
        let scale = rate / like.of_zone(self.zone(like, byte), self.zones);
        let mut rates = Rates {
            outer: scale,
            inner: ratio * scale,
        };
        let zones_of = |rates: Rates| found.iter().map(move |&(byte, _)| self.zone(rates, byte));
        for _ in 0..ROUNDS {
            let pairs: Vec<(f64, f64)> = zones_of(rates)
                .zip(found)
                .map(|(zone, (_, rate))| (zone as f64, *rate))
                .filter(|(zone, rate)| self.is_near(rates, *zone, *rate))
                .collect();
            let next = self.line(rates, &pairs)?;
            if next == rates {
                break;
            }
            rates = next;
        }
        let step = (rates.outer - rates.inner) / self.zones.max(2) as f64;
        let distances = zones_of(rates).zip(found).map(|(zone, (_, rate))| {
            // A group on both sides of a bound must not outweigh the others.
            (libm::fabs(rate - rates.of_zone(zone, self.zones)) / step).min(1.0)
        });
        let mean = distances.sum::<f64>() / found.len() as f64;
        let is_right = rates.inner > 0.0 && rates.inner < rates.outer;
        is_right.then_some((mean, rates))
    }

    /// Returns true if a rate may be that of a zone: groups on both sides of a bound have others.
    fn is_near(&self, rates: Rates, zone: f64, rate: f64) -> bool {
        let step = (rates.outer - rates.inner) / self.zones.max(2) as f64;
        libm::fabs(rate - rates.of_zone(zone as usize, self.zones)) <= 2.0 * step
    }

    /// Returns the rates on the straight line through rates of zones; with those of one zone alone
    /// the steps between zones stay as they are in `rates`.
    fn line(&self, rates: Rates, pairs: &[(f64, f64)]) -> Option<Rates> {
        let count = pairs.len() as f64;
        if pairs.is_empty() {
            return None;
        }
        let (sum_x, sum_y) = (pairs.iter()).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let xx: f64 = pairs.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
        let xy: f64 = pairs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let steps = self.zones.saturating_sub(1).max(1) as f64;
        let slope = if xx > 0.0 {
            xy / xx
        } else {
            (rates.inner - rates.outer) / steps
        };
        let outer = mean_y - slope * mean_x;
        let inner = outer + slope * steps;
        Some(Rates { outer, inner })
    }

    /// Returns the zone of a byte.
    fn zone(&self, rates: Rates, byte: u64) -> usize {
        let all = 0..self.zones as usize;
        let sum: f64 = all
            .clone()
            .map(|zone| rates.of_zone(zone, self.zones))
            .sum();
        let mut left = byte as f64 / self.capacity as f64 * sum;
        for zone in all {
            left -= rates.of_zone(zone, self.zones);
            if left < 0.0 {
                return zone;
            }
        }
        self.zones.saturating_sub(1) as usize
    }
}

/// Returns the strongest agreement of ends over `count` numbers of revolutions for each byte, from
/// `from` on in steps, and where it is.
fn strongest(ends: &[(f64, f64)], from: f64, step: f64, count: usize) -> (f64, f64) {
    // Vectors of the ends, and by how much each turns from step to step: a multiplication costs
    // less than a sine.
    let vector = |turns: f64| (libm::cos(TAU * turns), libm::sin(TAU * turns));
    let mut now: Vec<(f64, f64)> = (ends.iter())
        .map(|(bytes, angle)| vector((angle - from * bytes) % 1.0))
        .collect();
    let turn: Vec<(f64, f64)> = (ends.iter())
        .map(|(bytes, _)| vector(-(step * bytes) % 1.0))
        .collect();
    let mut best = (0.0, from);
    for index in 0..count {
        let (mut x, mut y) = (0.0, 0.0);
        for (vector, (cos, sin)) in now.iter_mut().zip(&turn) {
            x += vector.0;
            y += vector.1;
            *vector = (
                vector.0 * cos - vector.1 * sin,
                vector.0 * sin + vector.1 * cos,
            );
        }
        let agreement = libm::sqrt(x * x + y * y) / ends.len() as f64;
        if agreement > best.0 {
            best = (agreement, from + step * index as f64);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::random::SplitMix64;
    use tidegate_core::request::Op;
    use tidegate_device::hdd::Hdd;
    use tidegate_device::{Model as _, ModelIo, catalogue};

    /// Figures of a disk of the catalogue with other rates.
    fn figures(outer: u64, inner: u64) -> HddFigures {
        let text = catalogue::text("hdd-7200-1tb").expect("built in");
        let table: toml::Table = text.parse().expect("TOML");
        let mut figures: HddFigures = table["hdd"].clone().try_into().expect("figures");
        (figures.outer_rate.0, figures.inner_rate.0) = (outer, inner);
        figures
    }

    /// Reads and writes at random places of a part of a disk, one after the other; its platter has
    /// turned for a while at time zero.
    fn ios(figures: &HddFigures, from: u64, to: u64, turned: Nanos) -> Vec<DeviceIo> {
        let mut model = Hdd::new("test", figures).expect("right");
        let mut rng = SplitMix64::new(5);
        let mut now = turned;
        let mut all = Vec::new();
        for id in 0..1500 {
            let op = if rng.below(3) == 0 {
                Op::Write
            } else {
                Op::Read
            };
            let addr = (from + rng.below(to - from)) / 4096 * 4096;
            let io = ModelIo {
                id,
                op,
                addr,
                len: 4096,
                fua: false,
            };
            model.submit(now, io);
            let done = model.next_completion().expect("it was submitted");
            model.pop_completed(done);
            all.push(DeviceIo {
                op,
                fua: false,
                addr,
                len: 4096,
                sent: now.since(turned),
                done: done.since(turned),
                is_whole: true,
            });
            now = done + Nanos(rng.below(5_000_000));
        }
        all
    }

    const GB: u64 = 1_000_000_000;

    #[test]
    fn the_ends_of_ios_tell_the_rates_of_the_zones_and_the_angle_of_the_platter() {
        let similar = figures(175_000_000, 83_000_000);
        let turned = Nanos(3_000_000);
        for (outer, inner, from, to) in [
            (131_300_000, 62_000_000, 0, 110 * GB),
            (200_000_000, 95_000_000, 0, 250 * GB),
            (160_000_000, 80_000_000, 300 * GB, 500 * GB),
        ] {
            let ios = ios(&figures(outer, inner), from, to, turned);
            let ends = Ends::new(&similar, &ios);
            assert_eq!(ends.shift(), None, "the start is another disk");
            let found = ends.layout().expect("the ends agree");
            // Rates that put all bytes at the same angles are as right.
            assert!(found.outer.abs_diff(outer) < outer / 1000, "{found:?}");
            let shift = found.shift.0.abs_diff(turned.0);
            assert!(shift < 200_000, "{found:?}");
            let fitted = figures(found.outer, found.inner);
            let (agreement, _) = Ends::new(&fitted, &ios)
                .agreement(&fitted, 1)
                .expect("ends");
            assert!(agreement > 0.9, "{agreement}: {found:?}");
        }
    }

    #[test]
    fn a_disk_of_the_same_rates_has_its_platter_turned() {
        let own = figures(175_000_000, 83_000_000);
        for turned in [0, 1_000_000, 8_000_000] {
            let ios = ios(&own, 0, 900 * GB, Nanos(turned));
            let shift = Ends::new(&own, &ios).shift().expect("it agrees").0;
            let revolution = 8_333_333;
            let error = (shift + revolution - turned) % revolution;
            assert!(
                error.min(revolution - error) < 20_000,
                "{shift} for {turned}"
            );
        }
    }

    #[test]
    fn ends_without_a_platter_tell_no_rate() {
        let mut rng = SplitMix64::new(8);
        let own = figures(175_000_000, 83_000_000);
        let mut any = ios(&own, 0, 200 * GB, Nanos::ZERO);
        let few = Ends::new(&own, &any[..50]);
        assert_eq!((few.shift(), few.layout()), (None, None), "too few");
        for io in &mut any {
            io.done += Nanos(rng.below(30_000_000));
        }
        let ends = Ends::new(&own, &any);
        assert_eq!((ends.shift(), ends.layout()), (None, None));
    }
}
