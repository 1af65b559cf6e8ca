//! Regulator that gates at admission, so that torture reaches that path with any dispatcher. A VM
//! has at most `most` admitted units that are not answered yet.
//!
//! A credit is taken when a unit is admitted. It returns when the unit is withdrawn, or when the
//! request that names the unit is answered.

use tidegate_core::request::{ReqId, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{Event, Gate, Interests, Regulator, Reopened, Stage};
use tidegate_core::view::View;

/// Regulator with a number of credits per VM.
#[derive(Debug)]
pub struct Window {
    most: u32,
    /// By the slot of the unit's request: the holder of the credit.
    holders: Vec<Option<(ReqId, VmId)>>,
    taken: Vec<u32>,
}

impl Window {
    /// Creates a regulator that admits `most` units per VM.
    pub fn new(most: u32) -> Window {
        Window {
            most,
            holders: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Replaces a policy's regulator if that one holds nothing back.
    pub fn instead_of_open(most: u32, roles: Roles) -> Roles {
        match roles.regulator.stage() {
            Stage::Open => Roles {
                regulator: Box::new(Window::new(most)),
                ..roles
            },
            Stage::Admission | Stage::Dispatch => roles,
        }
    }

    fn give_back(&mut self, req: ReqId, reopen: &mut Reopened) {
        let Some(holder) = self.holders.get_mut(req.index()) else {
            return;
        };
        // Slots are reused: a merged request's answer names another unit than the one that took the
        // credit.
        if let Some((_, vm)) = holder.take_if(|(held, _)| *held == req) {
            self.taken[vm.index()] -= 1;
            reopen.push(vm);
        }
    }
}

impl Regulator for Window {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ADMITTED
            .union(Interests::CANCELLED)
            .union(Interests::ANSWERED)
            .union(Interests::VMS)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, _) = view.queued(unit).vm_lane();
        if self.taken[vm.index()] < self.most {
            Gate::Pass
        } else {
            Gate::Blocked
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        match *event {
            Event::Admitted(unit) => {
                let (vm, _) = view.queued(unit).vm_lane();
                if self.holders.len() <= unit.index() {
                    self.holders.resize(unit.index() + 1, None);
                }
                self.holders[unit.index()] = Some((unit, vm));
                self.taken[vm.index()] += 1;
            }
            Event::Cancelled(unit) => self.give_back(unit, reopen),
            Event::Answered(done) => self.give_back(done.req, reopen),
            Event::VmAdded(vm) => {
                let slots = view.vm_slots().max(self.taken.len());
                self.taken.resize(slots, 0);
                // The slot's former VM is gone with all of its units.
                self.taken[vm.index()] = 0;
            }
            _ => {}
        }
    }
}
