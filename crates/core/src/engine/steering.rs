//! How the device is used whatever the policy: how deep its queue is kept, how long an I/O may be
//! while VMs share it.

use super::Engine;
use crate::facts::moved;
use crate::steer::depth::DepthControl;
use crate::steer::sharing::Sharing;
use tidegate_base::request::Op;
use tidegate_base::time::Nanos;

impl Engine {
    /// Whether the device's queue is kept only as deep as its throughput needs, at most the depth
    /// that it was configured with, which holds otherwise. Off at first.
    pub fn adapt_depth(&mut self, now: Nanos, adapts: bool) {
        self.advance(now);
        let (top, now) = (self.config.device.depth, self.facts.now);
        match (adapts, &self.depth_control) {
            (true, Some(_)) => {}
            (true, None) => self.depth_control = Some(Box::new(DepthControl::new(top, now))),
            (false, _) => self.depth_control = None,
        }
        self.limit = self.depth_control.as_ref().map_or(top, |c| c.limit());
    }

    /// The depth that was found to be enough so far; `None`: none is looked for.
    pub fn adapted_depth(&self) -> Option<u32> {
        self.depth_control.as_ref().map(|control| control.depth())
    }

    /// Bytes that an I/O moves at most while other VMs use the device, too; 0: as many as else. No
    /// fewer than a physical block. With it a place is kept for who is about to come again.
    pub fn share_io(&mut self, max: u32) {
        let profile = self.facts.profile.as_deref();
        let vms = &self.facts.vms;
        let foreground = vms.iter().filter(|vm| !vm.background);
        let inside = foreground.map(|vm| vm.requests).sum();
        let max = max.min(self.config.device.max_io);
        self.keeps_place = false;
        self.sharing = (max > 0).then(|| {
            let sharing = Sharing::new(max, vms.len(), inside, profile);
            Box::new(sharing)
        });
    }

    /// What [`Engine::share_io`] was told; 0: nothing.
    pub fn shared_io(&self) -> u32 {
        self.sharing.as_ref().map_or(0, |sharing| sharing.asked())
    }

    /// An I/O has ended.
    #[cold]
    pub(super) fn count_end(&mut self, op: Op, len: u32, well: bool) {
        let bytes = match well {
            true => moved(&self.facts, op, len).min(self.config.device.max_io),
            false => 0,
        };
        let now = self.facts.now;
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
    pub(super) fn count_full(&mut self, full: bool) {
        if let Some(control) = &mut self.depth_control {
            let device = &self.facts.device;
            let waits = device.queued > 0;
            control.nothing_goes(full && waits, device.in_flight == 0 && waits);
        }
    }

    /// Whether the last place is kept for somebody who is expected; then until when is noted.
    #[inline(never)]
    pub(super) fn keeps_place(&mut self) -> bool {
        let until = self.kept_until();
        self.pick_at = until.unwrap_or(self.pick_at);
        self.keeps_place = until.is_some();
        if self.keeps_place {
            // Neither the dispatcher nor a cap holds back any more: they are not asked.
            self.facts.device.deliberate = self.deliberate_time();
            self.waiting_since = None;
            self.release(false);
        }
        self.keeps_place
    }

    fn kept_until(&self) -> Option<Nanos> {
        let device = &self.facts.device;
        let last = device.in_flight > 0 && device.in_flight + 1 >= self.limit;
        if !last || device.queued == 0 {
            return None;
        }
        let (vm, until) = self.sharing.as_ref()?.expected(self.facts.now)?;
        (self.facts.vms[vm as usize].requests == 0).then_some(until)
    }

    /// How much of a request of so many bytes goes at once, and how far requests are merged, as far as
    /// others that use the device matter.
    #[inline]
    pub(super) fn shared_part(&self, vm: u32, op: Op, len: u32) -> u32 {
        match (&self.sharing, op) {
            (Some(sharing), Op::Read | Op::Write) => {
                let of_vm = &self.facts.vms[vm as usize];
                let own = if of_vm.background { 0 } else { of_vm.requests };
                let beside = sharing.inside() > own;
                sharing.part(self.facts.now, vm, op, len, beside).max(1)
            }
            _ => u32::MAX,
        }
    }
}
