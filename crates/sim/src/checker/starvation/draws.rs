//! Starvation bound by draws: limits the sum of a VM's chances while it wins none.
//!
//! The last win of each VM is tracked here by the dispatcher's rules. Where it is unknown, after a
//! change, the waiting VM counts with its smallest possible number of tickets and the others with
//! their largest. The sum is right even if a VM does not wait all the time, because a draw without
//! it adds no chance.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::starvation::{Cost, Draws};
use tidegate_core::view::View;

use super::shares::cost_of;

/// Fixed-point unit of chances.
const ONE: u64 = 1 << 32;

/// Cost of each VM's last win, and its chances since.
#[derive(Debug)]
pub(super) struct Chances {
    draws: Option<Draws>,
    weights: Vec<u64>,
    /// Cost of the last win and of the flushes since; `None` if unknown.
    served: Vec<Option<u64>>,
    /// Sum of a VM's chances since its last win, in units of [`ONE`].
    sums: Vec<u64>,
}

impl Chances {
    pub(super) fn new(slots: usize) -> Chances {
        Chances {
            draws: None,
            weights: vec![1; slots],
            served: vec![None; slots],
            sums: vec![0; slots],
        }
    }

    pub(super) fn reset(&mut self, engine: &Engine, draws: Draws) {
        self.draws = Some(draws);
        self.served.fill(None);
        self.sums.fill(0);
        for vm in engine.view().vms() {
            self.weights[vm.index()] = engine.vms().objective(vm).weight.into();
        }
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let (Some(draws), view) = (self.draws, engine.view()) else {
            return Ok(());
        };
        let winner = io.vm.index();
        let least = draws.least;
        let cost = cost_of(Cost::Bytes { least }, io, &view.device().spec);
        if io.op == Op::Flush {
            // A flush takes part in no draw, but adds to the VM's cost.
            let most = |served: u64| served.max(draws.flushes * least);
            self.served[winner] = self.served[winner].map(|s| most(s).min(s + cost));
            return Ok(());
        }
        let slots = 0..view.vm_slots();
        let waits = |slot: &usize| *slot == winner || has_head(view, *slot);
        let all: u128 = slots
            .clone()
            .filter(waits)
            .map(|s| self.most(&draws, s))
            .sum();
        self.served[winner] = Some(cost);
        self.sums[winner] = 0;
        for slot in slots.filter(|&slot| slot != winner && has_head(view, slot)) {
            // Least tickets over most: the chance is never overstated, nor the check too strict.
            self.sums[slot] += (self.fewest(&draws, slot) * ONE as u128 / all) as u64;
            ensure!(
                Starvation,
                self.sums[slot] <= Draws::WINS * ONE,
                "{:?} (weight {}) has won none of the draws in which it was to win {} times in the \
                 mean, while {:?} did",
                view.vm_at(slot),
                self.weights[slot],
                Draws::WINS,
                io.vm
            );
        }
        Ok(())
    }

    /// Largest number of tickets that a VM may hold.
    fn most(&self, draws: &Draws, slot: usize) -> u128 {
        self.tickets(slot, self.served[slot].unwrap_or(draws.least))
    }

    fn fewest(&self, draws: &Draws, slot: usize) -> u128 {
        let most = draws.largest.max(draws.flushes * draws.least);
        self.tickets(slot, self.served[slot].unwrap_or(most))
    }

    fn tickets(&self, slot: usize, served: u64) -> u128 {
        // The shift keeps precision; only ratios of tickets matter.
        ((self.weights[slot] as u128) << 64) / served as u128
    }
}

fn has_head(view: &View, slot: usize) -> bool {
    let vm = view.vm_at(slot);
    !view.is_background(vm) && view.has_head(vm)
}
