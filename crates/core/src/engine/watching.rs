//! The device is held against its profile, and to a cap below it that was learnt; what requests cost of it
//! is learnt.

use super::Engine;
use crate::roles::Event;
use crate::watch::{Drift, LearntCap, Notice, Watch};
use std::sync::Arc;
use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::{CostEstimator, Learnt};
use tidegate_capacity::profile::Profile;

impl Engine {
    /// Tells what the device can do at most, which costs and controllers reckon with from the next
    /// request on, and which the device is held against; `None`: it is not known any more.
    pub fn set_profile(&mut self, profile: Option<Arc<Profile>>) {
        self.facts.profile = profile;
        if let Some(sharing) = &mut self.sharing {
            sharing.set_profile(self.facts.profile.as_deref());
        }
        self.estimate_costs();
        self.jobs_profile_changed();
        self.emit(&Event::ProfileChanged);
        self.watch_device();
    }

    /// Whether a cap in front of the device is to be learnt and kept: then I/Os go just slower than
    /// it lets them pass, so that they queue here, where the policy decides, and not behind it. Off
    /// at first; a cap that was learnt is forgotten when it is turned off.
    pub fn learn_cap(&mut self, learns: bool) {
        self.learns_cap = learns;
        self.watch_device();
    }

    /// Begins with a cap that was learnt before, in I/Os and bytes a second: after a restart nobody
    /// has to wait until it is learnt again. If it is another one by now, that is found out as ever.
    /// Without effect where caps are not learnt.
    pub fn assume_cap(&mut self, now: Nanos, iops: Option<u64>, bytes_per_s: Option<u64>) {
        self.advance(now);
        if let Some(watch) = &mut self.watch {
            watch.assume_cap(self.facts.now, iops, bytes_per_s);
        }
    }

    /// Whether what requests cost of the device is to be learnt ([`CostEstimator`]) in any case. Off at
    /// first: then it is learnt where the policy reckons with it and there is no profile. What was
    /// learnt is forgotten when there is no reason left.
    pub fn learn_costs(&mut self, learns: bool) {
        self.learns_costs = learns;
        self.estimate_costs();
    }

    /// Policy or profile may have changed: whether costs are to be learnt now.
    pub(super) fn estimate_costs(&mut self) {
        let (now, spec) = (self.facts.now, &self.config.device);
        let controller = self.roles.controller.as_ref();
        let wanted = controller.is_some_and(|controller| controller.reckons_with_costs());
        let before = self.facts.estimator.take();
        if self.learns_costs || (wanted && self.facts.profile.is_none()) {
            let new = || Box::new(CostEstimator::new(now, spec));
            self.facts.estimator = Some(before.unwrap_or_else(new));
        }
    }

    /// What was learnt of what requests cost; `None`: it is not to be.
    pub fn learnt_costs(&self) -> Option<Learnt> {
        self.facts.estimator().map(CostEstimator::learnt)
    }

    /// What was learnt of what requests cost, to be kept beyond the engine's life; `None`: nothing is to be,
    /// or nothing was since [`Engine::import_costs`].
    pub fn export_costs(&self) -> Option<Blob> {
        self.facts.estimator().and_then(CostEstimator::export)
    }

    /// Goes on with what was learnt of this device before ([`CostEstimator::import`]).
    ///
    /// # Errors
    /// When nothing is to be learnt here, or it is not that. Then nothing has changed.
    pub fn import_costs(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        match &mut self.facts.estimator {
            Some(estimator) => estimator.import(learnt),
            None => Err(BlobError::Unwanted("there is a profile, or no policy asks")),
        }
    }

    /// The cap that was learnt, to be kept beyond the engine's life; `None`: none is known.
    pub fn export_cap(&self) -> Option<Blob> {
        self.watch.as_ref()?.export_cap()
    }

    /// Begins with a cap that was learnt of this device before, as [`Engine::assume_cap`].
    ///
    /// # Errors
    /// When caps are not learnt here, or it is not that. Then nothing has changed.
    pub fn import_cap(&mut self, now: Nanos, learnt: &Blob) -> Result<(), BlobError> {
        self.advance(now);
        match &mut self.watch {
            Some(watch) => watch.import_cap(self.facts.now, learnt),
            None => Err(BlobError::Unwanted("no cap is to be learnt")),
        }
    }

    fn watch_device(&mut self) {
        let (spec, now) = (self.config.device, self.facts.now);
        let (before, profile) = (self.watch.take(), self.facts.profile.as_deref());
        self.watch = Watch::new(before, profile, self.learns_cap, &spec, now);
        self.held_since = None;
    }

    /// How the device compares with its profile; `None`: it has none.
    pub fn drift(&self) -> Option<Drift> {
        self.watch.as_ref()?.drift()
    }

    /// The cap below the device that was learnt; `None`: none was.
    pub fn learnt_cap(&self) -> Option<LearntCap> {
        self.watch.as_ref()?.cap()
    }

    /// What an operator should be told since this was asked last; to be asked until `None`, every
    /// second or so.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.watch.as_mut()?.notice()
    }

    /// Whether what waits is held back whatever the policy, by a learnt cap, by a depth that is found
    /// to be enough, or for who is expected: the device is as good as full.
    pub fn is_held(&self) -> bool {
        let full = self.facts.device.in_flight >= self.limit;
        self.held_since.is_some() || self.keeps_place || full
    }

    /// Whether what waits is to be held back now; then until when is noted. To be asked only where
    /// there is a watch, so that an engine without one does not pay for the call.
    #[inline(never)]
    pub(super) fn hold(&mut self) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let (now, waits) = (self.facts.now, self.facts.device.queued > 0);
        watch.look(now, self.facts.profile.as_deref());
        let Some(until) = watch.hold(now, waits) else {
            return false;
        };
        self.pick_at = until;
        self.held_since.get_or_insert(now);
        // The dispatcher does not wait on purpose any more: it could not go on.
        self.facts.device.deliberate = self.deliberate_time();
        self.waiting_since = None;
        true
    }

    /// The learnt cap holds nothing back any more, and an I/O goes at once, or does not. Returns how
    /// long it was held back for that.
    #[inline]
    pub(super) fn release(&mut self, went: bool) -> Nanos {
        match self.held_since.take() {
            None => Nanos::ZERO,
            Some(since) => {
                let now = self.facts.now;
                if let Some(watch) = &mut self.watch {
                    watch.release(now, went);
                }
                now.since(since)
            }
        }
    }
}
