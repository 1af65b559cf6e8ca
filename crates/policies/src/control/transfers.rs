//! Deadline transfers as floors: each has the rate that it needs to end in time.
//!
//! ```text
//!   need = bytes left x (1 + 1/16) / time left        begun, and at every measurement
//! ```
//!
//! The need is a floor in bytes a second ([`Knob::Floor`]), which the dispatcher keeps beside
//! reservations. So a transfer takes no more from others than its deadline needs, and a VM that
//! moved more by its share needs less from then on (PriDyn raises a whole class instead: Jain and
//! Lakshmi, IEEE TSC 2014, figure 3.3).
//!
//! - The sixteenth more is for what came late between two measurements, and for the last one.
//! - A transfer that is past its deadline keeps the rate that it needed last.
//! - Measurements are those of the engine's book of transfers.

use tidegate_base::objective::Rate;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::transfers::Transfer;
use tidegate_core::part::{Enforces, PartDescriptor};
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs};
use tidegate_core::view::View;

/// Divisor of the need for the margin that is added to it: 1/16.
const MARGIN_DIVISOR: u64 = 16;
/// Shortest time left that is used in a need: a shorter one would ask for an unlimited burst.
const TIME_LEFT_MIN: Nanos = Nanos::from_millis(100);

/// Description in the registry of parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "transfers",
    summary: "reserves for each deadline transfer the bandwidth that meets its deadline",
    params: &[],
    enforces: Enforces::NONE,
    build: |_, capacity| Box::new(Transfers::with_capacity(capacity.vms as usize)),
};

/// Controller that gives each deadline transfer the floor it needs.
#[derive(Debug)]
pub struct Transfers {
    /// Slots of VMs with a transfer, with the floor that was set last in bytes a second.
    running: Vec<(usize, u64)>,
}

impl Transfers {
    /// Creates the controller with room for the transfers of `vms` VMs.
    pub fn with_capacity(vms: usize) -> Transfers {
        Transfers {
            running: Vec::with_capacity(vms),
        }
    }

    fn began(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        let slot = vm.index();
        if self.running.iter().all(|&(running, _)| running != slot) {
            self.running.push((slot, 0));
        }
        self.update_floors(view, out);
    }

    fn ended(&mut self, vm: VmId, out: &mut Knobs) {
        let before = self.running.len();
        self.running.retain(|&(running, _)| running != vm.index());
        // A VM without a transfer has no floor to take back.
        if self.running.len() < before {
            out.set(vm, Knob::Floor(0));
        }
    }

    /// Computes every transfer's need anew, and sets the floors that differ.
    fn update_floors(&mut self, view: &View, out: &mut Knobs) {
        let Some(book) = view.predictor() else {
            return;
        };
        for (slot, last_floor) in &mut self.running {
            let need = book
                .transfer(*slot)
                .and_then(|transfer| need(view.now(), transfer));
            if let Some(need) = need
                && need != *last_floor
            {
                *last_floor = need;
                out.set(view.vm_at(*slot), Knob::Floor(need));
            }
        }
    }
}

/// Returns the rate in bytes a second at which a transfer ends in time; `None`: past its deadline.
fn need(now: Nanos, transfer: &Transfer) -> Option<u64> {
    let left = transfer.due_time().since(now);
    if left == Nanos::ZERO {
        // Past its deadline no rate is in time; the last floor stays.
        return None;
    }
    let bytes = u128::from(transfer.bytes_left()) * u128::from(Nanos::SECOND.0);
    let need = bytes.div_ceil(left.max(TIME_LEFT_MIN).0.into());
    let need = u64::try_from(need).unwrap_or(u64::MAX).min(Rate::MAX);
    Some((need + need.div_ceil(MARGIN_DIVISOR)).clamp(1, Rate::MAX))
}

impl Controller for Transfers {
    fn interests(&self) -> Interests {
        Interests::TRANSFERS.union(Interests::VMS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        match *event {
            Event::TransferBegan(vm) => self.began(view, vm, out),
            Event::TransfersChanged => self.update_floors(view, out),
            Event::TransferEnded(vm) | Event::VmRemoved(vm) => self.ended(vm, out),
            _ => {}
        }
    }

    fn has_timer(&self) -> bool {
        false
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _view: &View, _out: &mut Knobs) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(bytes: u64, moved: u64) -> Transfer {
        Transfer {
            bytes,
            begun: Nanos::ZERO,
            deadline: Nanos::from_secs(10),
            moved,
        }
    }

    #[test]
    fn the_need_is_what_is_left_over_the_time_left_and_a_sixteenth() {
        let need = |s, moved| need(Nanos::from_secs(s), &transfer(1600, moved));
        assert_eq!(need(0, 0), Some(170));
        assert_eq!(need(5, 800), Some(170));
        assert_eq!(need(5, 1600), Some(1));
        assert_eq!(need(10, 0), None);
    }

    #[test]
    fn a_need_just_before_the_deadline_is_no_burst_without_end() {
        let now = Nanos::from_secs(10) - Nanos(1);
        assert_eq!(need(now, &transfer(1600, 0)), Some(17_000));
    }
}
