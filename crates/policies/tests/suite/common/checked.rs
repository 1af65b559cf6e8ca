//! Regulator that runs beside a model of its rules: after every event both must agree.

use std::sync::{Arc, Mutex};
use tidegate_core::facts::Facts;
use tidegate_core::request::{ReqId, VmId};
use tidegate_core::roles::{
    Event, Gate, Interests, Interval, IntervalEnd, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;

/// Model of a regulator, in plain loops over all VMs.
pub trait Rules: Send {
    /// Regulator that the rules describe.
    type Real: Regulator + ?Sized;

    /// Fails if the regulator disagrees with the model, or the books do not balance.
    fn agree(&self, real: &Self::Real, facts: &Facts);

    fn hear(&mut self, facts: &Facts, event: &Event);

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob);

    /// Returns the kind of end of the interval that ends now, if one does.
    fn is_over(&mut self, facts: &Facts) -> Option<IntervalEnd>;

    /// Takes in the end of an interval.
    fn end(&mut self, facts: &Facts, ended: Interval);
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
    fn beside(&self, facts: &Facts, act: impl FnOnce(&mut R)) {
        let mut rules = self.rules.lock().expect("no panic before");
        act(&mut rules);
        rules.agree(&self.real, facts);
    }
}

impl<R: Rules> Regulator for Checked<R> {
    fn stage(&self) -> Stage {
        self.real.stage()
    }

    fn interests(&self) -> Interests {
        self.real.interests()
    }

    fn gate(&self, facts: &Facts, unit: ReqId) -> Gate {
        let (vm, _) = facts.queued(unit).vm_lane();
        let gate = self.real.gate(facts, unit);
        assert_eq!(gate == Gate::Pass, self.real.admits(facts, vm));
        gate
    }

    fn admits(&self, facts: &Facts, vm: VmId) -> bool {
        self.real.admits(facts, vm)
    }

    fn on_event(&mut self, facts: &Facts, event: &Event, reopen: &mut Reopened) {
        self.real.on_event(facts, event, reopen);
        self.beside(facts, |rules| rules.hear(facts, event));
    }

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        self.real.set(facts, vm, knob);
        self.beside(facts, |rules| rules.set(facts, vm, knob));
    }

    fn next_timer(&self) -> Nanos {
        self.real.next_timer()
    }

    fn on_timer(&mut self, facts: &Facts, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.real.on_timer(facts, reopen);
        self.beside(facts, |rules| {
            assert_eq!(ended.map(|ended| ended.end), rules.is_over(facts));
            if let Some(ended) = ended {
                rules.end(facts, ended);
            }
        });
        ended
    }
}
