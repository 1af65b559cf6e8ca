//! Promises near those asked for that fit a device.

use tidegate_core::fit::{self, Assumed, Device, Fit, PlannedVm};
use tidegate_core::objective::Objective;

use super::device_vms::Site;

/// Number of VMs, from the last one on, that are tried in the search for a single VM whose lower
/// promise would make all fit.
const TRIED_MAX: usize = 8;

/// Promises that would fit, each by itself; empty if all fit as they are.
#[derive(Default)]
pub(super) struct Nearest {
    /// Index of a VM and the nearest objective of it with which all promises would fit.
    pub(super) of_one: Option<(usize, Objective)>,
    pub(super) of_all: Option<NearestOfAll>,
    /// Tables with a `count`, each with the largest number of its VMs that fits with all others.
    pub(super) counts: Vec<(String, usize)>,
}

/// Objectives of all VMs, changed in proportion so that they fit.
pub(super) struct NearestOfAll {
    /// Part of all reservations and targets, in thousandths.
    pub(super) floors: u32,
    /// Length of all latency bounds, in per cent of those asked for.
    pub(super) bounds: u32,
    /// Objectives in the order of the VMs.
    pub(super) objectives: Vec<Objective>,
}

impl Nearest {
    /// Searches for promises that fit. `fit` is that of the promises as they are.
    pub(super) fn search(
        site: &Site,
        device: &Device<'_>,
        fit: &Fit,
        assumed: &Assumed,
    ) -> Nearest {
        // The searches repeat the planning for many candidates.
        if fit.fits() {
            return Nearest::default();
        }
        let planned = site.planned();
        Nearest {
            of_one: nearest_of_one(site, device, &planned, assumed),
            of_all: nearest_of_all(device, &planned, fit, assumed),
            counts: fitting_counts(site, device, &planned, assumed),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_one.is_none() && self.of_all.is_none() && self.counts.is_empty()
    }
}

/// Searches for the nearest objective of the VM of `--vm`, or of the last one whose lower promise
/// makes all fit.
fn nearest_of_one(
    site: &Site,
    device: &Device<'_>,
    planned: &[PlannedVm<'_>],
    assumed: &Assumed,
) -> Option<(usize, Objective)> {
    let near = |at| Some((at, fit::nearest(device, planned, at, assumed)?));
    let asked = (site.vms.iter()).position(|vm| Some(&vm.name) == site.asked.as_ref());
    if let Some(asked) = asked {
        return near(asked);
    }
    // The objective of a table with a `count` is not that of one VM.
    let promised = |&at: &usize| {
        let vm = &site.vms[at];
        vm.table.is_none() && vm.is_promised_something()
    };
    let last = (0..planned.len()).rev().filter(promised);
    last.take(TRIED_MAX).find_map(near)
}

/// Lowers all reservations and targets alike until all fits. Where that does not suffice, lowers
/// them until the device has time, and makes all latency bounds longer alike until they hold.
/// `None`: neither suffices. `fit` is that of the promises as they are.
fn nearest_of_all(
    device: &Device<'_>,
    planned: &[PlannedVm<'_>],
    fit: &Fit,
    assumed: &Assumed,
) -> Option<NearestOfAll> {
    if let Some((floors, objectives)) = floors_with_bounds(device, planned, fit, assumed) {
        return Some(NearestOfAll {
            floors,
            bounds: 100,
            objectives,
        });
    }
    let asked = || planned.iter().map(|vm| *vm.objective).collect();
    let (floors, objectives) =
        fit::nearest_of_all(device, planned, assumed).unwrap_or_else(|| (1000, asked()));
    let lowered = promising(planned, &objectives);
    let (bounds, objectives) = fit::nearest_bounds(device, &lowered, assumed)?;
    Some(NearestOfAll {
        floors,
        bounds,
        objectives,
    })
}

/// Returns the largest part of all reservations and targets, in thousandths, with which all latency
/// bounds hold as well, and the objectives that have it. `None`: the device lacks time even without
/// them, bounds hold with none of them, or only if a reservation or target is given up.
fn floors_with_bounds(
    device: &Device<'_>,
    planned: &[PlannedVm<'_>],
    fit: &Fit,
    assumed: &Assumed,
) -> Option<(u32, Vec<Objective>)> {
    // Less time for all lowers all: too little time is less than the envelopes of latency bounds
    // take, which are not lowered, and with too much time bounds do not hold.
    let (mut low, mut high, mut found) = (0, assumed.headroom + 1, None);
    while high - low > 1 {
        let headroom = low + (high - low) / 2;
        let less = Assumed {
            headroom,
            ..*assumed
        };
        let has_time = fit.time_ps <= fit::SECOND_PS / 1000 * u64::from(headroom);
        match fit::nearest_of_all(device, planned, &less) {
            Some((part, objectives))
                if fit::evaluate(device, &promising(planned, &objectives), assumed).fits() =>
            {
                low = headroom;
                found = Some((part, objectives));
            }
            None if !has_time => low = headroom,
            Some(_) | None => high = headroom,
        }
    }
    let is_promised = |it: &Objective| !(it.reservation.is_none() && it.target.is_none());
    found.filter(|(_, objectives)| {
        let mut both = planned.iter().zip(objectives);
        both.all(|(vm, lowered)| is_promised(lowered) || !is_promised(vm.objective))
    })
}

/// Returns VMs with other objectives, given in their order.
fn promising<'a>(planned: &[PlannedVm<'a>], objectives: &'a [Objective]) -> Vec<PlannedVm<'a>> {
    let both = planned.iter().zip(objectives);
    both.map(|(&vm, objective)| PlannedVm { objective, ..vm })
        .collect()
}

/// Returns the tables with a `count` of which fewer VMs, at least one, would fit, each with the
/// largest number that does.
fn fitting_counts(
    site: &Site,
    device: &Device<'_>,
    planned: &[PlannedVm<'_>],
    assumed: &Assumed,
) -> Vec<(String, usize)> {
    let mut tables: Vec<&String> = site.vms.iter().filter_map(|vm| vm.table.as_ref()).collect();
    tables.dedup();
    let fitting = tables.into_iter().filter_map(|table| {
        let is_in = |at: usize| site.vms[at].table.as_ref() == Some(table);
        let all = (0..planned.len()).filter(|&at| is_in(at)).count();
        let fits = |count: usize| {
            let mut left = count;
            let some = planned.iter().enumerate().filter(|(at, _)| {
                let is_kept = !is_in(*at) || left > 0;
                left = left.saturating_sub(usize::from(is_in(*at)));
                is_kept
            });
            let some: Vec<_> = some.map(|(_, &vm)| vm).collect();
            fit::evaluate(device, &some, assumed).fits()
        };
        // Bisection: all of them do not fit.
        let (mut yes, mut no) = (0, all);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            *(if fits(middle) { &mut yes } else { &mut no }) = middle;
        }
        (yes > 0).then(|| (table.clone(), yes))
    });
    fitting.collect()
}
