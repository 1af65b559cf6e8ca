//! Regulator that runs beside a model of its rules: after every event both must agree.

use std::sync::{Arc, Mutex};
use tidegate_core::request::{ReqId, VmId};
use tidegate_core::roles::{
    Event, Gate, Interests, Interval, IntervalEnd, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;

/// Model of a regulator, in plain loops over all VMs.
pub trait Rules: Send {
    /// Regulator that the rules describe.
    type Real: Regulator + ?Sized;

    /// Fails if the regulator disagrees with the model, or the books do not balance.
    fn agree(&self, real: &Self::Real, view: &View);

    fn hear(&mut self, view: &View, event: &Event);

    fn set(&mut self, view: &View, vm: VmId, knob: Knob);

    /// Returns the kind of end of the interval that ends now, if one does.
    fn is_over(&mut self, view: &View) -> Option<IntervalEnd>;

    /// Takes in the end of an interval.
    fn end(&mut self, view: &View, ended: Interval);
}

/// Regulator under test with its model, which tests may inspect, too.
pub struct Checked<R: Rules> {
    real: Box<R::Real>,
    rules: Arc<Mutex<R>>,
}

impl<R: Rules> Checked<R> {
    pub fn new(real: Box<R::Real>, rules: &Arc<Mutex<R>>) -> Checked<R> {
        let rules = Arc::clone(rules);
        Checked { real, rules }
    }

    /// Passes an event on to the model and compares.
    fn beside(&self, view: &View, act: impl FnOnce(&mut R)) {
        let mut rules = self.rules.lock().expect("no panic before");
        act(&mut rules);
        rules.agree(&self.real, view);
    }
}

impl<R: Rules> Regulator for Checked<R> {
    fn stage(&self) -> Stage {
        self.real.stage()
    }

    fn interests(&self) -> Interests {
        self.real.interests()
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, _) = view.queued(unit).vm_lane();
        let gate = self.real.gate(view, unit);
        assert_eq!(gate == Gate::Pass, self.real.admits(view, vm));
        gate
    }

    fn admits(&self, view: &View, vm: VmId) -> bool {
        self.real.admits(view, vm)
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        self.real.on_event(view, event, reopen);
        self.beside(view, |rules| rules.hear(view, event));
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        self.real.set(view, vm, knob);
        self.beside(view, |rules| rules.set(view, vm, knob));
    }

    fn next_timer(&self) -> Nanos {
        self.real.next_timer()
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.real.on_timer(view, reopen);
        self.beside(view, |rules| {
            assert_eq!(ended.map(|ended| ended.end), rules.is_over(view));
            if let Some(ended) = ended {
                rules.end(view, ended);
            }
        });
        ended
    }
}
