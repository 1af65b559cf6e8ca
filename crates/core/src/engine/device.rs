//! Device as a whole: how deep its queue is kept, how long its I/Os are, what is learnt of it,
//! whatever the policy.

use crate::facts::{Facts, Vm, moved};
use crate::roles::Roles;
use crate::steer::depth::DepthControl;
use crate::steer::sharing::Sharing;
use crate::watch::Watch;
use tidegate_base::request::{DeviceIo, Op};
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::CostEstimator;

/// What bounds the use of the device whatever the policy: a queue depth that is found to be enough,
/// a cap that was learnt, the length of I/Os while VMs share it.
pub(super) struct DeviceControl {
    /// What holds the device against its profile, and to a cap below it.
    pub watch: Option<Box<Watch>>,
    pub learns_cap: bool,
    pub learns_costs: bool,
    /// Since when the learnt cap has held back what the device had room for.
    pub held_since: Option<Nanos>,
    /// I/Os in flight at most: the device's depth, or as many as are found to be enough.
    pub limit: u32,
    pub depth_control: Option<Box<DepthControl>>,
    /// What VMs do that use the device at the same time.
    pub sharing: Option<Box<Sharing>>,
    /// The last place was kept for one of them when the dispatcher would have been asked last.
    pub keeps_place: bool,
}

impl DeviceControl {
    /// Creates a control that bounds nothing but the depth.
    pub(super) fn new(depth: u32) -> DeviceControl {
        DeviceControl {
            watch: None,
            learns_cap: false,
            learns_costs: false,
            held_since: None,
            limit: depth,
            depth_control: None,
            sharing: None,
            keeps_place: false,
        }
    }

    /// Returns whether anything but the policy decides what the device is given, and so has to hear
    /// when nothing waits.
    #[inline]
    pub(super) fn is_steered(&self) -> bool {
        self.watch.is_some() || self.sharing.is_some() || self.depth_control.is_some()
    }

    /// Notes that a request of the VM in slot `vm` was answered.
    #[inline(always)]
    pub(super) fn note_answer(&mut self, now: Nanos, vm: u32, of_vm: &Vm) {
        // Nobody goes in parts, or waits, for what has but the rest of the device.
        if let Some(sharing) = &mut self.sharing
            && !of_vm.background
        {
            sharing.answered();
            if of_vm.requests == 0 {
                sharing.went_quiet(now, vm);
            }
        }
    }

    /// Decides anew, since policy or profile may have changed, whether costs are to be learnt.
    pub(super) fn estimate_costs(&self, facts: &mut Facts, roles: &Roles) {
        let (now, spec) = (facts.queues.now, &facts.queues.device.spec);
        let controller = roles.controller.as_ref();
        let wanted = controller.is_some_and(|controller| controller.reckons_with_costs());
        let before = facts.estimator.take();
        if self.learns_costs || (wanted && facts.profile.is_none()) {
            let new = || Box::new(CostEstimator::new(now, spec));
            facts.estimator = Some(before.unwrap_or_else(new));
        }
    }

    /// Has the estimator of costs follow an I/O that starts.
    #[inline(never)]
    pub(super) fn estimate_start(&self, facts: &mut Facts, roles: &Roles, io: &DeviceIo) {
        let bytes = moved(facts, io.op, io.len);
        let deepest = self.limit.min(roles.dispatcher.depth());
        if let Some(estimator) = &mut facts.estimator {
            estimator.started(facts.queues.now, io, bytes, deepest);
        }
    }

    /// Whether what waits is to be held back now; then until when is noted. To be asked only where
    /// there is a watch, so that an engine without one does not pay for the call.
    #[inline(never)]
    pub(super) fn hold(&mut self, facts: &mut Facts) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let (now, waits) = (facts.queues.now, facts.queues.device.queued > 0);
        watch.look(now, facts.profile.as_deref());
        let Some(until) = watch.hold(now, waits) else {
            return false;
        };
        facts.pick_at = until;
        self.held_since.get_or_insert(now);
        // The dispatcher does not wait on purpose any more: it could not go on.
        facts.queues.device.deliberate = facts.queues.deliberate_time();
        facts.queues.waiting_since = None;
        true
    }

    /// The learnt cap holds nothing back any more, and an I/O goes at once, or does not. Returns
    /// how long it was held back for that.
    #[inline]
    pub(super) fn release(&mut self, facts: &mut Facts, went: bool) -> Nanos {
        match self.held_since.take() {
            None => Nanos::ZERO,
            Some(since) => {
                let now = facts.queues.now;
                if let Some(watch) = &mut self.watch {
                    watch.release(now, went);
                }
                now.since(since)
            }
        }
    }

    pub(super) fn watch_device(&mut self, facts: &mut Facts) {
        let (spec, now) = (facts.queues.device.spec, facts.queues.now);
        let (before, profile) = (self.watch.take(), facts.profile.as_deref());
        self.watch = Watch::new(before, profile, self.learns_cap, &spec, now);
        self.held_since = None;
    }

    /// An I/O has ended.
    #[cold]
    pub(super) fn count_end(&mut self, facts: &mut Facts, op: Op, len: u32, well: bool) {
        let bytes = match well {
            true => moved(facts, op, len).min(facts.queues.device.spec.max_io),
            false => 0,
        };
        let now = facts.queues.now;
        let capped = self
            .watch
            .as_ref()
            .is_some_and(|watch| watch.cap().is_some());
        if let Some(control) = &mut self.depth_control {
            if capped {
                control.stand_back(now);
            } else {
                control.look_for_caps(now, self.learns_cap);
                control.ended(now, bytes);
            }
            self.limit = control.limit();
        }
    }

    /// No I/O goes, as the depth in force is full, or for another reason.
    #[cold]
    pub(super) fn count_full(&mut self, facts: &mut Facts, full: bool) {
        if let Some(control) = &mut self.depth_control {
            let device = &facts.queues.device;
            let waits = device.queued > 0;
            control.nothing_goes(full && waits, device.in_flight == 0 && waits);
        }
    }

    /// Whether the last place is kept for somebody who is expected; then until when is noted.
    #[inline(never)]
    pub(super) fn keeps_place(&mut self, facts: &mut Facts) -> bool {
        let until = self.kept_until(facts);
        facts.pick_at = until.unwrap_or(facts.pick_at);
        self.keeps_place = until.is_some();
        if self.keeps_place {
            // Neither the dispatcher nor a cap holds back any more: they are not asked.
            facts.queues.device.deliberate = facts.queues.deliberate_time();
            facts.queues.waiting_since = None;
            self.release(facts, false);
        }
        self.keeps_place
    }

    pub(super) fn kept_until(&self, facts: &Facts) -> Option<Nanos> {
        let device = &facts.queues.device;
        let last = device.in_flight > 0 && device.in_flight + 1 >= self.limit;
        if !last || device.queued == 0 {
            return None;
        }
        let (vm, until) = self.sharing.as_ref()?.expected(facts.queues.now)?;
        (facts.queues.vms[vm as usize].requests == 0).then_some(until)
    }

    /// How much of a request of so many bytes goes at once, and how far requests are merged, as far
    /// as others that use the device matter.
    #[inline]
    pub(super) fn shared_part(&self, facts: &Facts, vm: u32, op: Op, len: u32) -> u32 {
        match (&self.sharing, op) {
            (Some(sharing), Op::Read | Op::Write) => {
                let of_vm = &facts.queues.vms[vm as usize];
                let own = if of_vm.background { 0 } else { of_vm.requests };
                let beside = sharing.inside() > own;
                sharing.part(facts.queues.now, vm, op, len, beside).max(1)
            }
            _ => u32::MAX,
        }
    }

    /// How far a VM's requests are merged just now.
    pub(super) fn merged_most(&self, facts: &Facts, vm: u32, op: Op) -> u32 {
        let most = facts.queues.vms[vm as usize].merge_limit;
        most.min(self.shared_part(facts, vm, op, most))
    }
}
