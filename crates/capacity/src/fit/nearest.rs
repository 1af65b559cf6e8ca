//! Nearest objectives that fit a device.

use super::load::with_fixed_size;
use super::{Assumed, Device, PlannedVm, evaluate};
use tidegate_base::objective::{Objective, OpsRate, Rate};
use tidegate_base::time::Nanos;

/// Granularity of a lowered bandwidth, in bytes per second: 1 kB/s, the unit in which an operator
/// reads it.
pub(super) const BANDWIDTH_STEP: u64 = 1000;
/// Upper bound of the search for a latency; longer than any configurable bound.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// Returns the largest objective that one VM could be promised with all others unchanged. Floors
/// are the VM's reservation and target. Reservation and target are lowered in proportion, in whole
/// IOPS and kB/s; then the latency bound is lengthened, rounded up to three digits. A part that
/// cannot be promised at all is left out. `None`: the objective fits as it is, or nothing fits even
/// without it.
pub fn nearest(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    index: usize,
    assumed: &Assumed,
) -> Option<Objective> {
    let asked = *vms[index].objective;
    let fit_with = |objective: &Objective| {
        let mut all = vms.to_vec();
        all[index].objective = objective;
        evaluate(device, &all, assumed)
    };
    let fit = fit_with(&asked);
    if fit.fits() {
        return None;
    }
    let steps = steps_of(&asked);
    let size = fit.needs[index].load.size;
    let lowered = |step| {
        let mut lowered = with_fixed_size(scaled(&asked, step, steps), size);
        if steps > 0 && step == 0 {
            // The size of requests is assumed by the rate of a floor. An objective without one
            // needs that size stated, or another would be assumed.
            lowered.expects.size.get_or_insert(size);
        }
        lowered
    };
    // Floors first: they take device time, and are due before bounds of others.
    let without_latency = |step| Objective {
        latency: None,
        ..lowered(step)
    };
    let Some(step) = largest_where(steps, |step| fit_with(&without_latency(step)).fits()) else {
        // Not even step 0 fits, in which only the assumed size is promised. Without it, the VM's
        // I/Os count as the largest, which may block others for less time where a profile measures
        // larger I/Os as cheaper.
        let without_floors = Objective {
            reservation: Rate::NONE,
            target: Rate::NONE,
            latency: None,
            ..asked
        };
        return fit_with(&without_floors).fits().then_some(without_floors);
    };
    let near = if step == steps { asked } else { lowered(step) };
    let bounded = |latency| Objective { latency, ..near };
    let near = match asked.latency {
        Some(asked) if !fit_with(&near).fits() => {
            let holds = |ns: u64| fit_with(&bounded(Some(Nanos(ns)))).fits();
            if holds(LATENCY_MAX.0) {
                // The search returns the longest bound that fails; the shortest that holds is 1 ns
                // longer.
                let failing = largest_where(LATENCY_MAX.0 - asked.0, |ns| !holds(asked.0 + ns))?;
                bounded(Some(rounded_up(Nanos(asked.0 + failing + 1))))
            } else {
                bounded(None)
            }
        }
        _ => near,
    };
    fit_with(&near).fits().then_some(near)
}

/// Returns the largest part of all reservations and targets that the device has time for, in
/// thousandths, with the objectives lowered to it. `None`: the device has time for all of them, or
/// lacks it even without them. The envelopes of latency bounds and background I/Os, which are not
/// lowered, then take more than may be promised; [`Fit::short_of`](super::Fit::short_of) tells the
/// two apart.
pub fn nearest_of_all(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    assumed: &Assumed,
) -> Option<(u32, Vec<Objective>)> {
    let asked = evaluate(device, vms, assumed);
    if asked.time_ps <= asked.budget_ps {
        return None;
    }
    let lowered = |thousandths: u64| -> Vec<Objective> {
        let needs = vms.iter().zip(&asked.needs);
        needs
            .map(|(vm, need)| {
                with_fixed_size(scaled(vm.objective, thousandths, 1000), need.load.size)
            })
            .collect()
    };
    let in_time = |objectives: &[Objective]| {
        let fit = evaluate(device, &promised(vms, objectives), assumed);
        fit.time_ps <= fit.budget_ps
    };
    // 999: the whole of them was tested above.
    let thousandths = largest_where(999, |thousandths| in_time(&lowered(thousandths)))?;
    Some((thousandths as u32, lowered(thousandths)))
}

/// Longest latency bounds that are tried, in per cent of those asked for: an hour for a bound of
/// 3.6 ms.
const BOUNDS_PERCENT_MAX: u64 = 100_000_000;

/// Returns the smallest factor, in per cent, by which all latency bounds have to be longer for all
/// promises to fit, with the objectives that have them; bounds are rounded up to three digits.
/// `None`: all promises fit as they are, or not with bounds a million times as long.
pub fn nearest_bounds(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    assumed: &Assumed,
) -> Option<(u32, Vec<Objective>)> {
    let lengthened = |percent: u64| -> Vec<Objective> {
        let longer = |bound: Nanos| {
            let longer = u128::from(bound.0) * u128::from(percent) / 100;
            rounded_up(Nanos(u64::try_from(longer).unwrap_or(u64::MAX)))
        };
        let objectives = vms.iter().map(|vm| Objective {
            latency: vm.objective.latency.map(longer),
            ..*vm.objective
        });
        objectives.collect()
    };
    let fits = |percent| {
        let objectives = lengthened(percent);
        evaluate(device, &promised(vms, &objectives), assumed).fits()
    };
    if evaluate(device, vms, assumed).fits() || !fits(BOUNDS_PERCENT_MAX) {
        return None;
    }
    // The search returns the largest factor that fails; 100 % with rounded bounds may fit already.
    let fails = |more| !fits(100 + more);
    let more = largest_where(BOUNDS_PERCENT_MAX - 100, fails).map_or(0, |more| more + 1);
    let (percent, objectives) = (100 + more, lengthened(100 + more));
    Some((u32::try_from(percent).ok()?, objectives))
}

/// Returns VMs with other objectives, given in their order.
fn promised<'a>(vms: &[PlannedVm<'a>], objectives: &'a [Objective]) -> Vec<PlannedVm<'a>> {
    let changed = vms.iter().zip(objectives);
    changed
        .map(|(vm, objective)| PlannedVm { objective, ..*vm })
        .collect()
}

/// Number of steps between no rate and the one asked for: IOPS, or units of `BANDWIDTH_STEP`.
fn steps_of(objective: &Objective) -> u64 {
    let rate = if objective.target.is_none() {
        &objective.reservation
    } else {
        &objective.target
    };
    match (rate.ops, rate.bytes_per_s) {
        (Some(ops), _) => ops.per_s,
        (None, Some(bytes)) => bytes.div_ceil(BANDWIDTH_STEP),
        (None, None) => 0,
    }
}

/// Returns the objective with floors lowered to `step` of `steps`.
fn scaled(objective: &Objective, step: u64, steps: u64) -> Objective {
    Objective {
        reservation: scaled_rate(&objective.reservation, step, steps),
        target: scaled_rate(&objective.target, step, steps),
        ..*objective
    }
}

fn scaled_rate(rate: &Rate, step: u64, steps: u64) -> Rate {
    if steps == 0 {
        return *rate;
    }
    let scaled = |value: u64| (u128::from(value) * u128::from(step) / u128::from(steps)) as u64;
    let ops = rate.ops.map(|ops| OpsRate {
        per_s: scaled(ops.per_s),
        ..ops
    });
    let bytes = (rate.bytes_per_s).map(|bytes| scaled(bytes) / BANDWIDTH_STEP * BANDWIDTH_STEP);
    // A rate of 0 would be a promise of nothing, so that figure is left out.
    Rate {
        ops: ops.filter(|ops| ops.per_s > 0),
        bytes_per_s: bytes.filter(|&bytes| bytes > 0),
    }
}

/// Binary search for the largest number up to `max` for which `holds` is true. It must be monotone:
/// true up to some number and false beyond. `None`: it is false for 0.
fn largest_where(max: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(0) {
        return None;
    }
    let (mut true_at, mut false_at) = (0, max.saturating_add(1));
    while false_at - true_at > 1 {
        let middle = true_at + (false_at - true_at) / 2;
        if holds(middle) {
            true_at = middle;
        } else {
            false_at = middle;
        }
    }
    Some(true_at)
}

/// Rounds up to three significant digits.
pub(super) fn rounded_up(time: Nanos) -> Nanos {
    let rounded = rounded_up_number(time.0.into());
    Nanos(u64::try_from(rounded).unwrap_or(u64::MAX))
}

/// Rounds a number up to three significant digits.
pub(super) fn rounded_up_number(number: u128) -> u128 {
    let mut step = 1;
    while number.div_ceil(step) > 999 {
        step *= 10;
    }
    number.div_ceil(step) * step
}

/// Rounds a number down to three significant digits.
pub(super) fn rounded_down_number(number: u128) -> u128 {
    let mut step = 1;
    while number / step > 999 {
        step *= 10;
    }
    number / step * step
}
