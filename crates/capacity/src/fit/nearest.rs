//! The nearest promise that would fit.

use super::load::of_size;
use super::{Assumed, Device, Tenant, reckon};
use tidegate_base::objective::{Objective, OpsRate, Rate};
use tidegate_base::time::Nanos;

/// Bandwidths are lowered in steps of so many bytes a second.
const BANDWIDTH_STEP: u64 = 1000;
/// Longer than any bound that can be written.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// What one of them could be promised, with the others as they are: the largest reservation and
/// target, in whole IOPS and kB/s and in the proportion that was asked for, and with those the
/// shortest latency bound no shorter than asked for, to three digits. What cannot be promised at
/// all is left out. `None`: nothing of its promise is too much, or taking it all away does not
/// help.
pub fn nearest(
    device: &Device<'_>,
    tenants: &[Tenant<'_>],
    which: usize,
    assumed: &Assumed,
) -> Option<Objective> {
    let asked = *tenants[which].objective;
    let with = |objective: &Objective| {
        let mut all = tenants.to_vec();
        all[which].objective = objective;
        reckon(device, &all, assumed)
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
            // With nothing promised its requests stay as long as they were taken for.
            less.expects.size.get_or_insert(size);
        }
        less
    };
    // A floor takes device time, and is due before bounds of others.
    let unbounded = |part| Objective {
        latency: None,
        ..scaled(part)
    };
    let part = last(most, |part| with(&unbounded(part)).fits())?;
    let near = match part == most {
        true => asked,
        false => scaled(part),
    };
    let bounded = |latency| Objective { latency, ..near };
    let near = match asked.latency {
        Some(asked) if !with(&near).fits() => {
            let holds = |ns: u64| with(&bounded(Some(Nanos(ns)))).fits();
            match holds(LATENCY_MAX.0) {
                true => {
                    // The longest that does not hold is one nanosecond short of the shortest that
                    // does.
                    let beyond = last(LATENCY_MAX.0 - asked.0, |ns| !holds(asked.0 + ns))?;
                    bounded(Some(rounded_up(Nanos(asked.0 + beyond + 1))))
                }
                false => bounded(None),
            }
        }
        _ => near,
    };
    with(&near).fits().then_some(near)
}

/// What all of them could be promised, every reservation and target lowered in the same proportion,
/// in thousandths of what was asked for: the largest that the device has time for. `None`: it has
/// time for all of it.
pub fn nearest_of_all(
    device: &Device<'_>,
    tenants: &[Tenant<'_>],
    assumed: &Assumed,
) -> Option<(u32, Vec<Objective>)> {
    let asked = reckon(device, tenants, assumed);
    if asked.time_ps <= asked.budget_ps {
        return None;
    }
    let all = |part: u64| -> Vec<Objective> {
        let each = tenants.iter().zip(&asked.needs);
        each.map(|(t, need)| of_size(scaled(t.objective, part, 1000), need.load.size))
            .collect()
    };
    let in_time = |objectives: &[Objective]| {
        let with = tenants.iter().zip(objectives);
        let with: Vec<_> = with
            .map(|(t, objective)| Tenant { objective, ..*t })
            .collect();
        let fit = reckon(device, &with, assumed);
        fit.time_ps <= fit.budget_ps
    };
    let part = last(999, |part| in_time(&all(part)))?;
    Some((part as u32, all(part)))
}

/// Steps between nothing and what was asked for.
fn scale_of(objective: &Objective) -> u64 {
    let rate = match objective.target.is_none() {
        true => &objective.reservation,
        false => &objective.target,
    };
    match (rate.ops, rate.bytes_per_s) {
        (Some(ops), _) => ops.per_s,
        (None, Some(bytes)) => bytes.div_ceil(BANDWIDTH_STEP),
        (None, None) => 0,
    }
}

/// The objective with `part` of `all` of its floors.
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
        match bytes >= BANDWIDTH_STEP {
            true => bytes / BANDWIDTH_STEP * BANDWIDTH_STEP,
            false => 0,
        }
    });
    Rate {
        ops: ops.filter(|ops| ops.per_s > 0),
        bytes_per_s: bytes.filter(|&bytes| bytes > 0),
    }
}

/// The last of 0 to `most` for which it is so, where it is so up to some number and not beyond.
fn last(most: u64, so: impl Fn(u64) -> bool) -> Option<u64> {
    if !so(0) {
        return None;
    }
    let (mut yes, mut no) = (0, most.saturating_add(1));
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        match so(middle) {
            true => yes = middle,
            false => no = middle,
        }
    }
    Some(yes)
}

/// To three digits.
fn rounded_up(time: Nanos) -> Nanos {
    let mut step = 1;
    while time.0.div_ceil(step) > 999 {
        step *= 10;
    }
    Nanos(time.0.next_multiple_of(step))
}
