//! CIRC beside its plain form, which looks at the gates of all throttled VMs at each slice.

use super::rules::{Plan, Puppet};
use crate::common::crowd::BLOCK;
use crate::common::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tidegate_core::objective::Objective;
use tidegate_core::request::{Op, ReqId, VmId};
use tidegate_core::roles::{
    Event, Gate, Interests, Interval, Knob, Regulator, Reopened, Roles, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::regulate::circ::{Circ, CircParams};

/// CIRC that has every throttled VM asked whenever its timer runs.
struct AskAll(Circ);

impl Regulator for AskAll {
    fn stage(&self) -> Stage {
        self.0.stage()
    }

    fn interests(&self) -> Interests {
        self.0.interests()
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        self.0.gate(view, unit)
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        self.0.on_event(view, event, reopen);
    }

    fn admits(&self, view: &View, vm: VmId) -> bool {
        self.0.admits(view, vm)
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        self.0.set(view, vm, knob);
    }

    fn next_timer(&self) -> Nanos {
        self.0.next_timer()
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.0.on_timer(view, reopen);
        let throttled = view.vms().filter(|&vm| !view.may_enter(vm));
        throttled.for_each(|vm| reopen.push(vm));
        ended
    }
}

/// Load of a VM: requests that it keeps outstanding, and allocations for one period after another.
#[derive(Clone, Debug)]
struct Load {
    outstanding: u32,
    allocations: Vec<u64>,
}

fn load() -> impl Strategy<Value = Load> {
    // Up to some hundred requests a period; some far below one.
    let allocation = prop::sample::select(vec![0, 1_000, 20_000, 100_000, 700_000, 5_000_000]);
    let allocations = prop::collection::vec(allocation, 1..6);
    (0u32..40, allocations).prop_map(|(outstanding, allocations)| Load {
        outstanding,
        allocations,
    })
}

/// Returns the requests of each VM that were served by the end of each period but for its last half
/// slice.
fn served(params: CircParams, loads: &[Load], all: bool) -> Vec<Vec<u64>> {
    let plan = Arc::new(Mutex::new(Plan::default()));
    let mut world = World::with_config(config(1024, 0), "open+fifo", 1000);
    let of_puppet = Arc::clone(&plan);
    world.driver.engine.wrap_roles(Nanos::ZERO, move |roles| {
        let circ = Circ::new(params, 128);
        let regulator: Box<dyn Regulator> = if all {
            Box::new(AskAll(circ))
        } else {
            Box::new(circ)
        };
        Roles {
            controller: Some(Box::new(Puppet(Arc::clone(&of_puppet)))),
            regulator,
            ..roles
        }
    });
    let guests: Vec<Guest> = loads
        .iter()
        .map(|_| world.guest(&Objective::default()))
        .collect();
    let period = params.period.0;
    let half = period / u64::from(params.slices) / 2;
    let mut results = Vec::new();
    world.run(1);
    for (guest, load) in guests.iter().zip(loads) {
        let mut plan = plan.lock().expect("no panic before");
        plan.now.push((guest.vm, load.allocations[0]));
        drop(plan);
        world.set(*guest, &Objective::default());
    }
    for (guest, load) in guests.iter().zip(loads) {
        world.load(*guest, Op::Read, BLOCK, load.outstanding);
    }
    world.run(period - half);
    for round in 1..8 {
        let mut plan = plan.lock().expect("no panic before");
        for (at, (guest, load)) in guests.iter().zip(loads).enumerate() {
            let allocation = (guest.vm, load.allocations[round % load.allocations.len()]);
            // Some change in the midst of a period, all others at its end.
            if (at + round).is_multiple_of(3) {
                plan.now.push(allocation);
            } else {
                plan.then.push_back(allocation);
            }
        }
        drop(plan);
        // The controller hears of a VM, and sets what is set at once.
        if let Some(guest) = guests.first() {
            world.set(*guest, &Objective::default());
        }
        world.run(period);
        results.push(
            guests
                .iter()
                .map(|guest| total(&world.ops(*guest)))
                .collect(),
        );
    }
    results
}

proptest! {
    #[test]
    fn slices_concern_only_vms_that_can_spend(
        loads in prop::collection::vec(load(), 1..7),
        slices in prop::sample::select(vec![1, 2, 7, 10, 30]),
        burst in 1u32..3,
    ) {
        let params = CircParams { period: Nanos(60 * MS), burst, smoothing: 4, slices };
        prop_assert_eq!(served(params, &loads, false), served(params, &loads, true));
    }
}
