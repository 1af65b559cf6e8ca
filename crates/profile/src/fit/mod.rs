//! Fit of a device model to the I/Os of a recording.
//!
//! ```text
//!   recording --> device I/Os: place, length, sent, done
//!                   |
//!                   v            first 60 %
//!   catalogue --> model  --> distance of its times --> another value of a figure ... --> model
//!                                last 40 %
//!                        --> errors per I/O, which no fit has seen
//! ```
//!
//! Each I/O is submitted to the model when it was sent to the device, so errors do not add up. The
//! two models of the catalogue that are nearest are the starts; then each figure of a description
//! is moved up and down by steps that shrink from a factor of two to half a percent, as long as the
//! distance shrinks (coordinate descent). The spindle speed of a hard disk comes from the times
//! between the ends of neighbouring I/Os, the rates of its zones and the angle of its platter from
//! the angles at which all of them end. State, such as the place of an arm or a full write
//! buffer, comes from the I/Os themselves, from the beginning of the recording on.

mod errors;
mod ios;
mod params;
mod replay;
mod rotation;
mod zones;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_recording::Recording;

use self::errors::Pair;

pub use errors::{CLOSE, Errors, Kind};
pub use ios::{DeviceIo, device_ios};
pub use params::{Description, Param};

/// Part of the I/Os that are fitted, in percent; the rest is held out.
const FITTED_PERCENT: usize = 60;
/// I/Os that are fitted at most: more say little that these do not.
const FITTED_MAX: usize = 20_000;
/// I/Os below which there is nothing to fit.
pub const FEWEST: usize = 200;
/// Starts that are fitted: those that are nearest.
const STARTS: usize = 2;
/// Factors of the steps, in turn.
const FACTORS: [f64; 7] = [2.0, 1.4, 1.15, 1.05, 1.02, 1.01, 1.005];
/// Part of the distance that a step must save to be taken, and the least that it must save. A model
/// that is nearer than the latter is the device.
const GAIN: f64 = 0.001;
const GAIN_MIN: f64 = 0.0005;

/// Reason why no model is fitted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FitError {
    /// Too few I/Os.
    #[error("the recording has {0} I/Os of the device whose times are known: {FEWEST} are needed")]
    TooFew(usize),
    /// No model holds the recorded addresses.
    #[error("no model can be changed to the capacity of the recorded device")]
    NoModel,
}

/// Options of a fit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Descriptions to begin with, each with its name.
    pub starts: Vec<(String, Description)>,
    /// I/Os that may be simulated, which bounds the time.
    pub budget: u64,
}

/// Fitted model.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// Name of the model that it began with.
    pub start: String,
    /// Description of the device.
    pub description: Description,
    /// Figures that were changed, with their values before and after.
    pub changed: Vec<(Param, String, String)>,
    /// I/Os that were fitted.
    pub fitted: usize,
    /// Errors of the start on the held-out I/Os.
    pub before: Errors,
    /// Errors of the model on the held-out I/Os.
    pub after: Errors,
    /// Errors of the model on the held-out I/Os of each kind, the most frequent first.
    pub kinds: Vec<(Kind, Errors)>,
    /// Held-out I/Os whose times the recording does not tell, because they may have been split.
    pub unknown: usize,
    /// True if the budget ended the fit.
    pub exhausted: bool,
}

impl Fit {
    /// Returns true if the angle of a platter delays I/Os.
    pub fn is_rotational(&self) -> bool {
        let entry = self.description.entry();
        entry.is_ok_and(|entry| entry.spec().rotational)
    }
}

/// Fits a model to a recording. `progress` is called with the simulated I/Os.
///
/// # Errors
/// If the recording has too few I/Os, or no model fits the device's capacity.
pub fn fit(
    recording: &Recording,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Fit, FitError> {
    let ios = device_ios(recording);
    let known = ios.iter().filter(|io| io.is_whole).count();
    if known < FEWEST {
        return Err(FitError::TooFew(known));
    }
    let held_out = ios.len() * FITTED_PERCENT / 100;
    let fitted = &ios[..held_out.min(FITTED_MAX)];
    let speed = rotation::speed(fitted);
    let mut descent = Descent {
        ios: fitted,
        is_speed_known: speed.is_some(),
        budget: options.budget,
        simulated: 0,
        exhausted: false,
        progress,
    };
    let starts = sized(recording, &ios, &options.starts);
    let (start, original, fitted_model) = descent.best(&starts, speed).ok_or(FitError::NoModel)?;
    let exhausted = descent.exhausted;
    let of_held_out = |turned: &Turned| {
        let entry = turned.description.entry().expect("it was simulated");
        let times = replay::times(&mut *entry.build(), &ios, turned.shift);
        errors::by_kind(&ios, &times, held_out)
    };
    let total = |kinds: &BTreeMap<Kind, Vec<Pair>>| Errors::new(kinds.values().flatten());
    let description = fitted_model.description.clone();
    let unturned = Turned::new(original.clone());
    let (before, after) = (of_held_out(&unturned), of_held_out(&fitted_model));
    let (Some(before), Some(sum)) = (total(&before), total(&after)) else {
        return Err(FitError::TooFew(0));
    };
    let mut kinds: Vec<(Kind, Errors)> = (after.iter())
        .filter_map(|(kind, pairs)| Some((*kind, Errors::new(pairs.iter())?)))
        .collect();
    kinds.sort_by_key(|(kind, errors)| (Reverse(errors.ios), *kind));
    let changed = |param: Param| {
        let (was, is) = (original.text(param), description.text(param));
        (was != is).then_some((param, was, is))
    };
    Ok(Fit {
        start,
        changed: original.params().into_iter().filter_map(changed).collect(),
        fitted: fitted.len(),
        before,
        after: sum,
        kinds,
        unknown: ios[held_out..].iter().filter(|io| !io.is_whole).count(),
        description,
        exhausted,
    })
}

/// Returns the starts with the capacity of the recorded device: a start that holds its I/Os stays
/// as it is if the device's size is not known.
fn sized(
    recording: &Recording,
    ios: &[DeviceIo],
    starts: &[(String, Description)],
) -> Vec<(String, Description)> {
    let end = ios.iter().map(|io| io.addr.saturating_add(io.len.into()));
    let end = end.max().unwrap_or(0);
    let size = recording
        .header
        .device
        .size_bytes
        .filter(|&size| size >= end);
    let sized = |(name, start): &(String, Description)| {
        let capacity = start.entry().ok()?.spec().capacity;
        let description = match size {
            Some(size) if size != capacity => start.with_capacity(size)?,
            None if end > capacity => start.with_capacity(end)?,
            _ => start.clone(),
        };
        description.entry().ok()?;
        Some((name.clone(), description))
    };
    starts.iter().filter_map(sized).collect()
}

/// Description of a device whose platter has turned.
#[derive(Clone, Debug)]
struct Turned {
    description: Description,
    /// Time of its model at time zero of the recording.
    shift: Nanos,
}

impl Turned {
    fn new(description: Description) -> Turned {
        Turned {
            description,
            shift: Nanos::ZERO,
        }
    }
}

/// Search for the figures of a model.
struct Descent<'a> {
    /// I/Os to fit.
    ios: &'a [DeviceIo],
    /// True if the I/Os have told the spindle speed, which then stays.
    is_speed_known: bool,
    budget: u64,
    simulated: u64,
    exhausted: bool,
    progress: &'a mut dyn FnMut(u64),
}

impl Descent<'_> {
    /// Fits the starts that are nearest to the recording; returns the name and the description of
    /// the one from which the way was best, with its end. `None` if there is no start.
    fn best(
        &mut self,
        starts: &[(String, Description)],
        speed: Option<u64>,
    ) -> Option<(String, Description, Turned)> {
        let mut found = Vec::new();
        for (name, original) in starts {
            let turning = speed.and_then(|speed| original.with_speed(speed));
            let start = turning.unwrap_or_else(|| original.clone());
            // Whatever the budget is: there must be a start.
            if let Some((distance, start)) = self.turned(start) {
                found.push((distance, name, original, start));
            }
        }
        // Stable: of equal ones the first is taken.
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found.truncate(STARTS);
        let mut best: Option<(f64, String, Description, Turned)> = None;
        for (index, (distance, name, original, start)) in found.iter().enumerate() {
            // An equal part for each start, and what others have left.
            let parts = (found.len() - index) as u64;
            let until = self.simulated + self.budget.saturating_sub(self.simulated) / parts;
            let (reached, end) = self.descend(start.clone(), *distance, until);
            if best.as_ref().is_none_or(|best| reached < best.0) {
                best = Some((reached, (*name).clone(), (*original).clone(), end));
            }
            if reached <= GAIN_MIN {
                break;
            }
        }
        best.map(|(_, name, original, end)| (name, original, end))
    }

    /// Returns a start with its distance. The platter of a hard disk whose spindle speed is known
    /// has the angle, and its zones the rates, that the ends of I/Os tell, if that is nearer.
    fn turned(&mut self, start: Description) -> Option<(f64, Turned)> {
        let start = Turned::new(start);
        let least = self.distance(&start)?;
        let figures = start.description.hdd().filter(|_| self.is_speed_known);
        let Some(figures) = figures.filter(|_| least > GAIN_MIN) else {
            return Some((least, start));
        };
        let ios = self.ios;
        let ends = zones::Ends::new(&figures, ios);
        let other = match ends.shift() {
            Some(shift) => Some(Turned {
                shift,
                ..start.clone()
            }),
            None => ends.layout().and_then(|found| {
                let description = start.description.with_rates(found.outer, found.inner)?;
                let shift = found.shift;
                Some(Turned { description, shift })
            }),
        };
        let distance = other.as_ref().and_then(|other| self.distance(other));
        match other.zip(distance) {
            Some((other, distance)) if distance < least => Some((distance, other)),
            _ => Some((least, start)),
        }
    }

    /// Moves every figure as long as the distance shrinks, until so many I/Os are simulated.
    /// Returns the distance that was reached with its description.
    fn descend(&mut self, start: Turned, least: f64, until: u64) -> (f64, Turned) {
        let (mut least, mut best) = (least, start);
        for factor in FACTORS {
            while least > GAIN_MIN {
                let before = least;
                for param in best.description.params() {
                    if Description::is_speed(param) && self.is_speed_known {
                        continue;
                    }
                    for description in best.description.around(param, factor) {
                        let other = Turned {
                            description,
                            ..best
                        };
                        if self.simulated + self.ios.len() as u64 > until {
                            self.exhausted = true;
                            return (least, best);
                        }
                        match self.distance(&other) {
                            Some(distance) if distance < least - (least * GAIN).max(GAIN_MIN) => {
                                (least, best) = (distance, other);
                            }
                            _ => {}
                        }
                    }
                }
                if least >= before {
                    break;
                }
            }
        }
        (least, best)
    }

    /// Returns the distance of a model from the recording; `None` if its figures contradict each
    /// other.
    fn distance(&mut self, turned: &Turned) -> Option<f64> {
        let entry = turned.description.entry().ok()?;
        let times = replay::times(&mut *entry.build(), self.ios, turned.shift);
        self.simulated += self.ios.len() as u64;
        (self.progress)(self.simulated);
        Some(errors::distance(&errors::by_kind(self.ios, &times, 0)))
    }
}

/// Returns the name of an operation.
pub(crate) const fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "zeroes",
    }
}

/// Returns the built-in single devices, to begin a fit with.
pub fn catalogue_starts() -> Vec<(String, Description)> {
    let description = |name: &str| {
        let description = Description::parse(catalogue::text(name)?)?;
        (!description.params().is_empty()).then(|| (name.to_owned(), description))
    };
    catalogue::names().filter_map(description).collect()
}
