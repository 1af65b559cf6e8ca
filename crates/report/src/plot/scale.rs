//! Scales: position of a value on an axis, and choice of ticks.
//!
//! Logarithms are `libm`'s, because those of the platform may differ in the last bit and a plot
//! must have the same bytes on every machine.

use std::ops::RangeInclusive;

use super::{Axis, Scale, Unit};
use tidegate_units::human::scale_to_unit;

/// Space beyond the outermost values on each side, relative to the range, so that marks do not
/// touch the frame.
const MARGIN: f64 = 0.04;
/// Width of a range, relative to its values, up to which it counts as a single value: labels could
/// not distinguish more.
const NARROW: f64 = 1e-12;
/// Tolerance in exponents for powers at the ends of a range, because logarithms are rounded.
const ROUNDING: f64 = 1e-9;

/// Range of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Span {
    scale: Scale,
    unit: Unit,
    /// Ends of the range, finite and `low < high`; logarithms on a logarithmic scale.
    low: f64,
    high: f64,
    values: Values,
}

/// Number of different values in the range.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Values {
    None,
    One(f64),
    Many,
}

/// Tick of an axis with its label.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tick {
    /// Position from 0 (low end) to 1.
    pub(super) at: f64,
    pub(super) label: String,
}

impl Span {
    /// Computes the range of those of `values` that the axis can show, and of the values that it
    /// must include.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Span {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let all = values.chain(axis.including.iter().copied());
        let mut values = Values::None;
        for value in all.filter(|value| axis.scale.shows(*value)) {
            let coordinate = axis.scale.coordinate(value);
            low = low.min(coordinate);
            high = high.max(coordinate);
            values = match values {
                Values::None => Values::One(value),
                Values::One(other) if other == value => values,
                Values::One(_) | Values::Many => Values::Many,
            };
        }
        let (low, high) = match (values, axis.scale) {
            (Values::None, _) => (0.0, 1.0),
            (_, Scale::Linear | Scale::Nines) => widen_linear(low, high),
            (_, scale) => {
                let (low, high) = widen_log(low, high);
                // Smallest positive float and largest float.
                let least = scale.coordinate(f64::from_bits(1));
                (low.max(least), high.min(scale.coordinate(f64::MAX)))
            }
        };
        Span {
            scale: axis.scale,
            unit: axis.unit,
            low,
            high,
            values,
        }
    }

    /// Returns the range from the lowest to the highest value that the axis must include, without
    /// space beyond them.
    pub(super) fn of_values(axis: &Axis) -> Span {
        let span = Span::new(axis, core::iter::empty());
        let ends = axis
            .including
            .iter()
            .map(|&value| axis.scale.coordinate(value));
        let low = ends.clone().fold(f64::INFINITY, f64::min);
        let high = ends.fold(f64::NEG_INFINITY, f64::max);
        match low < high {
            true => Span { low, high, ..span },
            false => span,
        }
    }

    /// Returns the position of a finite `value` from 0 to 1; beyond an end it is that end's.
    pub(super) fn position(&self, value: f64) -> f64 {
        if self.scale.shows(value) {
            self.fraction(self.scale.coordinate(value))
        } else {
            // On a logarithmic scale zero is infinitely far below.
            0.0
        }
    }

    fn fraction(&self, coordinate: f64) -> f64 {
        // Halved, because the difference of the largest floats overflows.
        let part = (coordinate / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        part.clamp(0.0, 1.0)
    }

    /// Returns the largest set of ticks that `fit` accepts, with at most `most` of them; empty if
    /// it accepts none, or if there is no value. A single value has a tick of its own.
    pub(super) fn ticks(&self, most: usize, fit: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
        match self.values {
            Values::None => return Vec::new(),
            Values::One(value) => return vec![self.tick(value)],
            Values::Many => {}
        }
        // Tried from the largest set on.
        let mut fewer = (1..=most).rev().map(|most| self.ticks_up_to(most));
        fewer.find(|ticks| fit(ticks)).unwrap_or_default()
    }

    /// Returns at most `most` ticks at round values.
    fn ticks_up_to(&self, most: usize) -> Vec<Tick> {
        let powers = match self.scale {
            Scale::Linear => Vec::new(),
            Scale::Log2 => self.powers_of_2(most),
            Scale::Log10 => self.powers_of_10(most),
            Scale::Nines => self.nines(most),
        };
        // A range of less than two powers gets ticks as on a linear scale.
        let wanted = most.min(2);
        let (low, high) = self.end_values();
        let ticks = if powers.len() >= wanted {
            powers
        } else {
            self.multiples(low, high, most)
        };
        if ticks.len() >= wanted {
            ticks
        } else {
            self.near_ends(low, high)
        }
    }

    /// Returns a tick near each end, at values with few digits.
    fn near_ends(&self, low: f64, high: f64) -> Vec<Tick> {
        // The step is at most a tenth of the range.
        let step = power_of_ten(libm::log10(high / 10.0 - low / 10.0).floor() as i32);
        let inner = (low / step).ceil() * step..(high / step).floor() * step;
        // Near the smallest positive float there are no such steps.
        let ends = if low <= inner.start && inner.start < inner.end && inner.end <= high {
            inner
        } else {
            low..high
        };
        vec![self.tick(ends.start), self.tick(ends.end)]
    }

    /// Returns the values at the ends of the range.
    fn end_values(&self) -> (f64, f64) {
        let value = |along: f64| match self.scale {
            Scale::Linear => along,
            Scale::Log2 => libm::exp2(along).clamp(f64::from_bits(1), f64::MAX),
            Scale::Log10 => libm::exp10(along).clamp(f64::from_bits(1), f64::MAX),
            Scale::Nines => 100.0 - 100.0 * libm::exp10(-along),
        };
        (value(self.low), value(self.high))
    }

    fn tick(&self, value: f64) -> Tick {
        Tick {
            at: self.position(value),
            label: label(value, self.unit),
        }
    }

    /// Returns the integer exponents within the range.
    fn exponents(&self) -> RangeInclusive<i32> {
        (self.low - ROUNDING).ceil() as i32..=(self.high + ROUNDING).floor() as i32
    }

    fn powers_of_2(&self, most: usize) -> Vec<Tick> {
        let tick = |k: i32| Tick {
            at: self.fraction(f64::from(k)),
            label: match (self.unit, k) {
                // Beyond the names of units, and where the decimal number would be long.
                (_, 70..) | (_, ..-4) => format!("2^{k}"),
                (unit, _) => label(libm::exp2(f64::from(k)), unit),
            },
        };
        let exponents = thin_out(self.exponents(), &[1, 2, 4], most);
        exponents.into_iter().map(tick).collect()
    }

    fn powers_of_10(&self, most: usize) -> Vec<Tick> {
        let exponents = self.exponents();
        let tick = |(k, digit): (i32, i32)| {
            let value = power_of_ten(k) * f64::from(digit);
            let along = f64::from(k) + libm::log10(f64::from(digit));
            let within = (self.low - ROUNDING..=self.high + ROUNDING).contains(&along);
            within.then(|| Tick {
                at: self.fraction(along),
                label: label(value, self.unit),
            })
        };
        // A range of few powers also gets ticks between them.
        if exponents.clone().count() < 3 {
            for digits in [&[1, 2, 5][..], &[1, 3]] {
                let around = exponents.start() - 1..=exponents.end() + 1;
                let pairs = around.flat_map(|k| digits.iter().map(move |&digit| (k, digit)));
                let ticks: Vec<Tick> = pairs.filter_map(tick).collect();
                if ticks.len() <= most {
                    return ticks;
                }
            }
        }
        let exponents = thin_out(exponents, &[1, 2, 3, 5], most);
        exponents.into_iter().filter_map(|k| tick((k, 1))).collect()
    }

    /// Returns ticks at 0, 50, 90, 99, 99.9 and so on, up to 99.9999999.
    fn nines(&self, most: usize) -> Vec<Tick> {
        // From decimal text: 100 - 1e-3 is not the float of 99.999.
        let nines = (1..=9).map(|nines| {
            let (whole, part) = ("9".repeat(nines.min(2)), "9".repeat(nines.max(2) - 2));
            let text = format!("{whole:0<2}.{part}0");
            text.parse().expect("digits are a number")
        });
        let within = |value: &f64| {
            let along = self.scale.coordinate(*value);
            (self.low - ROUNDING..=self.high + ROUNDING).contains(&along)
        };
        let values: Vec<f64> = [0.0, 50.0]
            .into_iter()
            .chain(nines)
            .filter(within)
            .collect();
        let step = values.len().div_ceil(most.max(1)).max(1);
        values
            .into_iter()
            .step_by(step)
            .map(|value| self.tick(value))
            .collect()
    }

    /// Returns the multiples of a round number from `low` to `high`.
    fn multiples(&self, low: f64, high: f64, most: usize) -> Vec<Tick> {
        // One step more than ticks may fit, because the range need not begin at a multiple.
        let room = (high / 2.0 - low / 2.0) / (most + 1) as f64 * 2.0;
        let mut step = round_step(room.max(f64::MIN_POSITIVE), self.unit);
        // For the whole range of floats no step is large enough.
        while step.is_finite() {
            let (first, last) = ((low / step).ceil(), (high / step).floor());
            if last - first + 1.0 > most as f64 {
                // Just above `step`, so that the next larger round step is returned.
                step = round_step(step * 1.5, self.unit);
                continue;
            }
            let count = (last - first + 1.0).max(0.0) as usize;
            // The product may not be the nearest float of the decimal number (3 x 0.1); `label`
            // rounds.
            let value = |i: usize| ((first + i as f64) * step).clamp(low, high);
            return (0..count).map(|i| self.tick(value(i))).collect();
        }
        Vec::new()
    }
}

impl Scale {
    /// Returns true if the scale has a position for `value`.
    pub(super) fn shows(self, value: f64) -> bool {
        match self {
            Scale::Linear => value.is_finite(),
            Scale::Log2 | Scale::Log10 => value.is_finite() && value > 0.0,
            Scale::Nines => (0.0..100.0).contains(&value),
        }
    }

    fn coordinate(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Log2 => libm::log2(value),
            Scale::Log10 => libm::log10(value),
            Scale::Nines => -libm::log10(1.0 - value / 100.0),
        }
    }
}

fn widen_linear(low: f64, high: f64) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    let half = high / 2.0 - low / 2.0;
    if size < f64::MIN_POSITIVE {
        return (0.0, 1.0);
    }
    let room = if half <= size * NARROW {
        size / 2.0
    } else {
        (2.0 * MARGIN) * half
    };
    // The margin does not cross zero: negative labels would mislead if no value is negative.
    let below = if low >= 0.0 { low.min(room) } else { room };
    let above = if high <= 0.0 { room.min(-high) } else { room };
    ((low - below).max(f64::MIN), (high + above).min(f64::MAX))
}

fn widen_log(low: f64, high: f64) -> (f64, f64) {
    let room = if high - low <= NARROW {
        0.5
    } else {
        MARGIN * (high - low)
    };
    (low - room, high + room)
}

/// Thins `exponents` out to at most `most`: multiples of the first possible of `steps`, or of 10,
/// 100 or 1000 times them. If only one or none would be left, returns the outermost two.
fn thin_out(exponents: RangeInclusive<i32>, steps: &[i32], most: usize) -> Vec<i32> {
    for scale in [1, 10, 100, 1000] {
        for step in steps {
            let multiples = exponents.clone().filter(|k| k % (step * scale) == 0);
            let multiples: Vec<i32> = multiples.collect();
            match multiples.len() {
                0 | 1 if most >= 2 && exponents.clone().count() >= 2 => {
                    return vec![*exponents.start(), *exponents.end()];
                }
                n if n <= most => return multiples,
                _ => {}
            }
        }
    }
    Vec::new()
}

/// Returns the smallest round number that is at least `least`: a power of two for bytes, else 1, 2
/// or 5 times a power of ten.
fn round_step(least: f64, unit: Unit) -> f64 {
    if unit == Unit::Bytes {
        return libm::exp2((libm::log2(least) - ROUNDING).ceil());
    }
    let power = power_of_ten((libm::log10(least) + ROUNDING).floor() as i32);
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    let found = steps
        .into_iter()
        .find(|step| *step >= least * (1.0 - ROUNDING));
    found.unwrap_or(10.0 * power)
}

/// Returns the float nearest to a power of ten, which repeated multiplication would miss.
fn power_of_ten(exponent: i32) -> f64 {
    format!("1e{exponent}")
        .parse()
        .expect("a power of ten is a number")
}

/// Formats a tick's value.
pub(super) fn label(value: f64, unit: Unit) -> String {
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    // 15 significant digits, which every float has exactly: 3 x 0.1 becomes 0.3.
    let sure: f64 = format!("{value:.14e}").parse().expect("it is a float");
    // Rounding the largest float up gives infinity.
    let value = if sure.is_finite() { sure } else { value };
    let (scaled, suffix) = match unit {
        Unit::Number | Unit::BytesPerS => scale_to_unit(value, 1000.0, 1000.0, &DECIMAL),
        Unit::Bytes => scale_to_unit(value, 1024.0, 1024.0, &BINARY),
        Unit::Percent | Unit::Seconds | Unit::Minutes | Unit::Hours => (value, ""),
        Unit::Nanos if value == 0.0 => (value, ""),
        Unit::Nanos => scale_to_unit(value, 1000.0, 1000.0, &[" ns", " us", " ms", " s"]),
    };
    match scaled.abs() {
        0.0 => format!("0{suffix}"),
        1e-4..1e6 => format!("{scaled}{suffix}"),
        _ => format!("{scaled:e}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: Axis, low: f64, high: f64, most: usize) -> Vec<String> {
        let span = Span::new(&axis, [low, high].into_iter());
        let ticks = span.ticks_up_to(most);
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_values_that_people_like() {
        let linear = |unit| Axis::linear("", unit);
        let log2 = |unit| Axis::log2("", unit);
        let log10 = |unit| Axis::log10("", unit);
        for (axis, low, high, most, expected) in [
            (
                log2(Unit::Bytes),
                4096.0,
                1048576.0,
                5,
                "4K 16K 64K 256K 1M",
            ),
            (log2(Unit::Number), 1.0, 64.0, 8, "1 2 4 8 16 32 64"),
            (log2(Unit::Number), 1.0, 64.0, 4, "1 4 16 64"),
            (log2(Unit::Number), 0.25, 1.0, 4, "0.25 0.5 1"),
            (log10(Unit::Number), 100.0, 1e5, 5, "100 1k 10k 100k"),
            (log10(Unit::Number), 0.01, 10.0, 5, "0.01 0.1 1 10"),
            (
                log10(Unit::Nanos),
                1e4,
                1e9,
                6,
                "10 us,100 us,1 ms,10 ms,100 ms,1 s",
            ),
            (log10(Unit::Number), 150.0, 900.0, 5, "200 500"),
            (
                log10(Unit::Number),
                10_000.0,
                12_000.0,
                5,
                "10k 10.5k 11k 11.5k 12k",
            ),
            (linear(Unit::Seconds), 0.0, 60.0, 7, "0 10 20 30 40 50 60"),
            (linear(Unit::Number), 0.0, 1.0, 6, "0 0.2 0.4 0.6 0.8 1"),
            (
                linear(Unit::Number),
                -0.3,
                0.3,
                7,
                "-0.3 -0.2 -0.1 0 0.1 0.2 0.3",
            ),
            (linear(Unit::Bytes), 0.0, 4e6, 5, "0 1M 2M 3M"),
            (linear(Unit::Percent), 0.0, 100.0, 3, "0 50 100"),
            (linear(Unit::BytesPerS), 0.0, 120e6, 4, "0 50M 100M"),
            (
                linear(Unit::Nanos),
                0.0,
                2e6,
                5,
                "0,500 us,1 ms,1.5 ms,2 ms",
            ),
        ] {
            let by = if expected.contains(',') { ',' } else { ' ' };
            let expected: Vec<&str> = expected.split(by).collect();
            assert_eq!(labels(axis, low, high, most), expected, "{low} to {high}");
        }
    }

    #[test]
    fn a_single_value_lies_in_the_middle_and_has_a_tick() {
        let number = |value| (Axis::linear("", Unit::Number), value);
        for (axis, value) in [
            number(1.0),
            number(-7.0),
            number(1e-300),
            number(1e300),
            (Axis::log10("", Unit::Number), 5.0),
            (Axis::log2("", Unit::Bytes), 4096.0),
        ] {
            let span = Span::new(&axis, [value, value].into_iter());
            assert!(
                (span.position(value) - 0.5).abs() < 1e-9,
                "{value}: {span:?}"
            );
            let ticks = span.ticks(5, |_| true);
            assert_eq!(ticks.len(), 1, "{ticks:?}");
            assert_eq!(ticks[0].at, span.position(value));
            assert_eq!(ticks[0].label, label(value, axis.unit));
        }
    }

    #[test]
    fn counts_do_not_begin_below_zero() {
        let span = Span::new(&Axis::linear("", Unit::Number), [0.0, 9.0].into_iter());
        assert_eq!(span.position(0.0), 0.0);
        let span = Span::new(&Axis::linear("", Unit::Number), [-9.0, 0.0].into_iter());
        assert_eq!(span.position(0.0), 1.0);
    }

    fn any_axis() -> impl Strategy<Value = Axis> {
        let units = [
            Unit::Number,
            Unit::Bytes,
            Unit::BytesPerS,
            Unit::Percent,
            Unit::Nanos,
            Unit::Seconds,
        ];
        let scales = [Scale::Linear, Scale::Log2, Scale::Log10];
        (
            proptest::sample::select(units.to_vec()),
            proptest::sample::select(scales.to_vec()),
        )
            .prop_map(|(unit, scale)| Axis::new("", unit, scale))
    }

    /// Floats of all kinds, and such as occur, near each other or not.
    fn values() -> impl Strategy<Value = Vec<f64>> {
        let near = (-300..300, 0.0..1e-3)
            .prop_map(|(k, part)| vec![power_of_ten(k), power_of_ten(k) * (1.0 + part)]);
        prop_oneof![
            proptest::collection::vec(any::<f64>(), 0..4),
            proptest::collection::vec(-1e6..1e6, 1..4),
            proptest::collection::vec(1e-3..1e7, 1..4),
            near,
            Just(vec![f64::MIN, f64::MAX]),
            Just(vec![f64::from_bits(1), f64::MIN_POSITIVE]),
        ]
    }

    proptest! {
        #[test]
        fn ticks_rise_within_the_range_and_read_differently(
            axis in any_axis(),
            values in values(),
            most in 1..12_usize,
        ) {
            let span = Span::new(&axis, values.iter().copied());
            prop_assert!(span.low < span.high && span.low.is_finite() && span.high.is_finite());
            let ticks = span.ticks_up_to(most);
            prop_assert!(!ticks.is_empty() && ticks.len() <= most.max(2), "{ticks:?}");
            for tick in &ticks {
                prop_assert!((0.0..=1.0).contains(&tick.at), "{tick:?}");
                prop_assert!(!tick.label.is_empty());
            }
            for pair in ticks.windows(2) {
                prop_assert!(pair[0].at < pair[1].at, "{ticks:?}");
                prop_assert_ne!(&pair[0].label, &pair[1].label);
            }
            let mut places: Vec<(f64, f64)> = values
                .iter()
                .filter(|value| axis.scale.shows(**value))
                .map(|value| (*value, span.position(*value)))
                .collect();
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            for &(value, at) in &places {
                prop_assert!((0.0..=1.0).contains(&at), "{value} at {at}");
            }
            for pair in places.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].1, "{places:?}");
            }
        }
    }
}
