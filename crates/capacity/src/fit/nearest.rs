//! Nearest objectives that fit a device.

use super::load::of_size;
use super::{Assumed, Device, PlannedVm, evaluate};
use tidegate_base::objective::{Objective, OpsRate, Rate};
use tidegate_base::time::Nanos;

/// Granularity of a lowered bandwidth, in bytes per second.
const BANDWIDTH_STEP: u64 = 1000;
/// Upper bound of the search for a latency; longer than any configurable bound.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// Returns the largest objective that one VM could be promised with all others unchanged.
/// Reservation and target are lowered in proportion, in whole IOPS and kB/s; then the latency bound
/// is lengthened, rounded up to three digits. A part that cannot be promised at all is left out.
/// `None`: the objective fits as it is, or nothing fits even without it.
pub fn nearest(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    which: usize,
    assumed: &Assumed,
) -> Option<Objective> {
    let asked = *vms[which].objective;
    let with = |objective: &Objective| {
        let mut all = vms.to_vec();
        all[which].objective = objective;
        evaluate(device, &all, assumed)
    };
    let fit = with(&asked);
    if fit.fits() {
        return None;
    }
    let most = scale_of(&asked);
    let size = fit.needs[which].load.size;
    let scaled = |part| {
        let mut less = of_size(scaled(&asked, part, most), size);
        if most > 0 && part == 0 {
            // Without a floor its requests would lose the size that they were assumed to have.
            less.expects.size.get_or_insert(size);
        }
        less
    };
    // Floors first: they take device time, and are due before bounds of others.
    let unbounded = |part| Objective {
        latency: None,
        ..scaled(part)
    };
    let Some(part) = last(most, |part| with(&unbounded(part)).fits()) else {
        // Where larger I/Os are measured as cheaper, none of the assumed size may fit, even beside
        // the floors, while the largest do.
        let without = Objective {
            reservation: Rate::NONE,
            target: Rate::NONE,
            latency: None,
            ..asked
        };
        return with(&without).fits().then_some(without);
    };
    let near = if part == most { asked } else { scaled(part) };
    let bounded = |latency| Objective { latency, ..near };
    let near = match asked.latency {
        Some(asked) if !with(&near).fits() => {
            let holds = |ns: u64| with(&bounded(Some(Nanos(ns)))).fits();
            if holds(LATENCY_MAX.0) {
                // `last` returns the longest bound that fails; the shortest that holds is 1 ns
                // longer.
                let beyond = last(LATENCY_MAX.0 - asked.0, |ns| !holds(asked.0 + ns))?;
                bounded(Some(rounded_up(Nanos(asked.0 + beyond + 1))))
            } else {
                bounded(None)
            }
        }
        _ => near,
    };
    with(&near).fits().then_some(near)
}

/// Returns the largest part of all reservations and targets that the device has time for, in
/// thousandths, with the objectives lowered to it. `None`: the device has time for all of them.
pub fn nearest_of_all(
    device: &Device<'_>,
    vms: &[PlannedVm<'_>],
    assumed: &Assumed,
) -> Option<(u32, Vec<Objective>)> {
    let asked = evaluate(device, vms, assumed);
    if asked.time_ps <= asked.budget_ps {
        return None;
    }
    let all = |part: u64| -> Vec<Objective> {
        let each = vms.iter().zip(&asked.needs);
        each.map(|(t, need)| of_size(scaled(t.objective, part, 1000), need.load.size))
            .collect()
    };
    let in_time = |objectives: &[Objective]| {
        let with = vms.iter().zip(objectives);
        let with: Vec<_> = with
            .map(|(t, objective)| PlannedVm { objective, ..*t })
            .collect();
        let fit = evaluate(device, &with, assumed);
        fit.time_ps <= fit.budget_ps
    };
    let part = last(999, |part| in_time(&all(part)))?;
    Some((part as u32, all(part)))
}

/// Number of steps between no rate and the one asked for: IOPS, or units of `BANDWIDTH_STEP`.
fn scale_of(objective: &Objective) -> u64 {
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

/// Returns the objective with floors lowered to `part` of `all`.
fn scaled(objective: &Objective, part: u64, all: u64) -> Objective {
    Objective {
        reservation: part_of(&objective.reservation, part, all),
        target: part_of(&objective.target, part, all),
        ..*objective
    }
}

fn part_of(rate: &Rate, part: u64, all: u64) -> Rate {
    if all == 0 {
        return *rate;
    }
    let of = |value: u64| (u128::from(value) * u128::from(part) / u128::from(all)) as u64;
    let ops = rate.ops.map(|ops| OpsRate {
        per_s: of(ops.per_s),
        ..ops
    });
    let bytes = rate.bytes_per_s.map(|bytes| {
        let bytes = of(bytes);
        if bytes >= BANDWIDTH_STEP {
            bytes / BANDWIDTH_STEP * BANDWIDTH_STEP
        } else {
            0
        }
    });
    Rate {
        ops: ops.filter(|ops| ops.per_s > 0),
        bytes_per_s: bytes.filter(|&bytes| bytes > 0),
    }
}

/// Binary search for the largest number up to `most` for which `so` holds; `so` must hold for a
/// prefix. `None`: it does not hold for 0.
fn last(most: u64, so: impl Fn(u64) -> bool) -> Option<u64> {
    if !so(0) {
        return None;
    }
    let (mut yes, mut no) = (0, most.saturating_add(1));
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if so(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    Some(yes)
}

/// Rounds up to three significant digits.
fn rounded_up(time: Nanos) -> Nanos {
    let mut step = 1;
    while time.0.div_ceil(step) > 999 {
        step *= 10;
    }
    Nanos(time.0.next_multiple_of(step))
}
