//! Changes of VMs, objectives, device and costs: what is rare, apart from the way of each request.

use super::Slo;
use super::costs::{background_io_size, cost_params, max_lead};
use super::stay::Stay;
use crate::dispatch::cost::CostModel;
use tidegate_base::request::VmId;
use tidegate_core::roles::Event;
use tidegate_core::view::View;

impl Slo {
    /// Handles events that are not part of a request's way.
    #[cold]
    #[inline(never)]
    pub(super) fn on_rare_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Inherited(io) if view.is_background(io.vm) => self.background.inherited(),
            Event::ProfileChanged => self.set_costs(view),
            Event::CostsLearnt => self.learn_costs(view),
            Event::VmAdded(vm) => {
                self.cost.on_event(view, event);
                self.set_vm(view, vm, true);
            }
            Event::VmChanged(vm) => self.set_vm(view, vm, false),
            Event::VmRemoved(vm) => {
                self.sleep(view, vm);
                self.forget_promises(vm.index());
                self.shares.remove_vm(vm.index());
                self.turns.forget_vm(view, vm.index());
                if self.stay.vm == vm.index() {
                    self.stay = Stay::NONE;
                }
            }
            _ => {}
        }
    }

    /// Takes over the cost model of a new device or profile.
    fn set_costs(&mut self, view: &View) {
        let spec = &view.device().spec;
        self.by_time = view.costs().is_some();
        self.cost = CostModel::following(cost_params(spec, view.costs()), self.vms);
        self.overload.set_positioning(spec.positioning);
        self.write_pace.set_profile(view.profile());
        // The rate's work is counted in cost, too, so it must not be compared across units.
        self.background.restart(self.by_time);
        self.refresh_costs(view);
    }

    /// Takes over costs that were learnt for the first time or anew.
    fn learn_costs(&mut self, view: &View) {
        if self.by_time {
            self.refresh_costs(view);
        } else {
            self.set_costs(view);
        }
    }

    fn refresh_costs(&mut self, view: &View) {
        let spec = &view.device().spec;
        self.cost.on_event(view, &Event::ProfileChanged);
        self.max_lead = max_lead(&self.cost, spec);
        self.background_io_size = background_io_size(spec, view.costs());
        // Tags in another cost unit do not tell who is ahead.
        self.shares.restart(view.now());
    }

    fn set_vm(&mut self, view: &View, vm: VmId, newcomer: bool) {
        let (slot, objective) = (vm.index(), view.objective(vm));
        let background = view.is_background(vm);
        (self.shares).set_vm(view.now(), slot, objective, background, newcomer);
        if newcomer {
            self.forget_promises(slot);
        }
        self.acceptance.accept(slot, objective);
        self.set_promise(view, vm);
        self.refresh(view, vm);
    }

    pub(super) fn set_promise(&mut self, view: &View, vm: VmId) {
        // Background processes get what VMs leave, whatever their objective says.
        if !view.is_background(vm) {
            (self.promises).set(view.now(), vm.index(), view.objective(vm));
        }
    }

    pub(super) fn forget_promises(&mut self, slot: usize) {
        self.promises.clear(slot);
        self.overload.forget_vm(slot);
        self.acceptance.forget_vm(slot);
    }
}
