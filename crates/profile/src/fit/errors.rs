//! Errors of a model against recorded I/Os.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_core::time::Nanos;

use super::ios::DeviceIo;
use super::op_name;

/// Relative error up to which an I/O counts as foretold.
pub const CLOSE: f64 = 0.1;
/// Recorded time, as a multiple of the model's, from which an I/O counts as a stall.
const STALL: u64 = 10;
/// Largest logarithm of a ratio that counts fully: a stall must not outweigh all other I/Os.
const LOG_MAX: f64 = 2.0;
/// Quantiles of each kind that a fit compares.
const QUANTILES: [f64; 3] = [0.1, 0.5, 0.9];

/// Kind of I/Os that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Kind {
    /// Operation: `read`, `write`, `flush`, `discard` or `zeroes`.
    pub op: &'static str,
    /// True if it begins where an I/O shortly before it ended.
    pub sequential: bool,
    /// Length up to which I/Os are of this kind, a power of two, in bytes.
    pub up_to_bytes: u32,
}

/// Errors of a model per I/O.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Errors {
    /// I/Os that are compared.
    pub ios: usize,
    /// Part of them whose error is at most 10 %.
    pub close: f64,
    /// Median of the relative error.
    pub p50: f64,
    /// 90th percentile of the relative error.
    pub p90: f64,
    /// 99th percentile of the relative error.
    pub p99: f64,
    /// Part of the variance of the recorded times that the model leaves unexplained, at most 1.
    pub unexplained: f64,
    /// I/Os that took more than ten times as long as in the model.
    pub stalls: usize,
    /// Median of the recorded times, in nanoseconds.
    pub recorded_p50_ns: u64,
    /// Median of the model's times.
    pub model_p50_ns: u64,
    /// 99th percentile of the recorded times.
    pub recorded_p99_ns: u64,
    /// 99th percentile of the model's times.
    pub model_p99_ns: u64,
}

/// Recorded and modelled time of an I/O, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    recorded: u64,
    model: u64,
}

impl Pair {
    fn new(io: &DeviceIo, model: Nanos) -> Pair {
        // At least 1: ratios are formed.
        Pair {
            recorded: io.took().0.max(1),
            model: model.0.max(1),
        }
    }

    fn error(self) -> f64 {
        self.recorded.abs_diff(self.model) as f64 / self.recorded as f64
    }

    fn log_ratio(self) -> f64 {
        libm::fabs(libm::log(self.model as f64 / self.recorded as f64)).min(LOG_MAX)
    }
}

/// Returns the pairs of all I/Os that can be compared, by kind.
pub(super) fn by_kind(ios: &[DeviceIo], times: &[Nanos], from: usize) -> BTreeMap<Kind, Vec<Pair>> {
    let mut kinds: BTreeMap<Kind, Vec<Pair>> = BTreeMap::new();
    let mut recent = Recent::default();
    for (index, (io, &time)) in ios.iter().zip(times).enumerate() {
        let sequential = recent.continues(io);
        if index >= from && io.is_whole {
            let kind = Kind {
                op: op_name(io.op),
                sequential,
                up_to_bytes: io.len.max(1).next_power_of_two(),
            };
            kinds.entry(kind).or_default().push(Pair::new(io, time));
        }
    }
    kinds
}

/// Ends of the last I/Os, by which streams are recognised.
#[derive(Default)]
struct Recent {
    ends: [u64; 32],
    next: usize,
}

impl Recent {
    /// Takes an I/O; returns true if it begins where one of the last ones ended.
    fn continues(&mut self, io: &DeviceIo) -> bool {
        if io.len == 0 {
            return false;
        }
        let end = io.addr.saturating_add(io.len.into());
        match self
            .ends
            .iter_mut()
            .find(|last| **last == io.addr && **last != 0)
        {
            Some(last) => {
                *last = end;
                true
            }
            None => {
                self.ends[self.next] = end;
                self.next = (self.next + 1) % self.ends.len();
                false
            }
        }
    }
}

/// Returns how far a model is from the recorded times: the mean distance of I/Os, and that of the
/// quantiles of each kind, both in logarithms. Where the model cannot tell single I/Os apart, such
/// as by the angle of a platter, quantiles still say whether it is right on the whole. Kinds count
/// by the roots of their numbers: what only rare kinds show, such as rates, must not be lost.
pub(super) fn distance(kinds: &BTreeMap<Kind, Vec<Pair>>) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for pairs in kinds.values() {
        let mean = |distances: f64, count: usize| distances / count as f64;
        let ios = pairs.iter().map(|pair| pair.log_ratio()).sum();
        let recorded = sorted(pairs.iter().map(|pair| pair.recorded));
        let model = sorted(pairs.iter().map(|pair| pair.model));
        let quantiles = QUANTILES.iter().map(|&q| {
            let pair = Pair {
                recorded: quantile(&recorded, q),
                model: quantile(&model, q),
            };
            pair.log_ratio()
        });
        let weight = libm::sqrt(pairs.len() as f64);
        let distance = mean(ios, pairs.len()) + mean(quantiles.sum(), QUANTILES.len());
        sum += weight * distance;
        weights += weight;
    }
    sum / f64::max(weights, 1.0)
}

impl Errors {
    /// Computes the errors of pairs; `None` if there are none.
    pub(super) fn new<'a>(pairs: impl Iterator<Item = &'a Pair> + Clone) -> Option<Errors> {
        let ios = pairs.clone().count();
        if ios == 0 {
            return None;
        }
        let mut errors: Vec<f64> = pairs.clone().map(|pair| pair.error()).collect();
        errors.sort_by(f64::total_cmp);
        let error = |q: f64| errors[rank(ios, q)];
        let recorded = sorted(pairs.clone().map(|pair| pair.recorded));
        let model = sorted(pairs.clone().map(|pair| pair.model));
        let close = errors.iter().filter(|error| **error <= CLOSE).count();
        Some(Errors {
            ios,
            close: close as f64 / ios as f64,
            p50: error(0.5),
            p90: error(0.9),
            p99: error(0.99),
            unexplained: unexplained(pairs.clone()),
            stalls: pairs
                .filter(|pair| pair.recorded > pair.model.saturating_mul(STALL))
                .count(),
            recorded_p50_ns: quantile(&recorded, 0.5),
            model_p50_ns: quantile(&model, 0.5),
            recorded_p99_ns: quantile(&recorded, 0.99),
            model_p99_ns: quantile(&model, 0.99),
        })
    }
}

/// Returns the part of the variance of the recorded times that is left in the errors.
fn unexplained<'a>(pairs: impl Iterator<Item = &'a Pair> + Clone) -> f64 {
    let count = pairs.clone().count() as f64;
    let mean = pairs.clone().map(|pair| pair.recorded as f64).sum::<f64>() / count;
    let square = |value: f64| value * value;
    let all: f64 = pairs
        .clone()
        .map(|pair| square(pair.recorded as f64 - mean))
        .sum();
    let left: f64 = pairs
        .map(|pair| square(pair.recorded as f64 - pair.model as f64))
        .sum();
    match all {
        0.0 if left > 0.0 => 1.0,
        0.0 => 0.0,
        all => (left / all).min(1.0),
    }
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
}

/// Returns the index of the nearest rank.
fn rank(count: usize, q: f64) -> usize {
    (libm::ceil(q * count as f64) as usize).clamp(1, count) - 1
}

fn quantile(sorted: &[u64], q: f64) -> u64 {
    sorted
        .get(rank(sorted.len().max(1), q))
        .copied()
        .unwrap_or(1)
}
