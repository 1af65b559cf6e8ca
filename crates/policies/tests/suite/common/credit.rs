//! Regulator that gates at admission, for tests of the engine: a number of credits a VM, refilled
//! every interval.

use tidegate_base::request::ReqId;
use tidegate_base::time::Nanos;
use tidegate_core::roles::{
    Event, Gate, Interests, Interval, IntervalEnd, Regulator, Reopened, Stage,
};
use tidegate_core::view::View;

pub struct Credits {
    pub per_interval: u32,
    pub interval: Nanos,
    left: Vec<u32>,
    next: Nanos,
    count: u64,
}

impl Credits {
    pub fn new(per_interval: u32, interval: Nanos) -> Credits {
        Credits {
            per_interval,
            interval,
            left: Vec::new(),
            next: interval,
            count: 0,
        }
    }
}

impl Regulator for Credits {
    fn stage(&self) -> Stage {
        Stage::Admission
    }

    fn interests(&self) -> Interests {
        Interests::ADMITTED
            .union(Interests::VMS)
            .union(Interests::TIMERS)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, _) = view.queued(unit).vm_lane();
        if self.left[vm.index()] > 0 {
            Gate::Pass
        } else {
            Gate::Blocked
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, _: &mut Reopened) {
        match *event {
            Event::Admitted(unit) => {
                let (vm, _) = view.queued(unit).vm_lane();
                self.left[vm.index()] -= 1;
            }
            Event::VmAdded(vm) => {
                self.left.resize(view.vm_slots().max(self.left.len()), 0);
                self.left[vm.index()] = self.per_interval;
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Nanos {
        self.next
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        while self.next <= view.now() {
            self.next += self.interval;
        }
        for vm in view.vms() {
            self.left[vm.index()] = self.per_interval;
            reopen.push(vm);
        }
        self.count += 1;
        Some(Interval {
            number: self.count,
            end: IntervalEnd::Turn,
        })
    }
}
