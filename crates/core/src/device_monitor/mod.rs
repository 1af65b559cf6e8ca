//! Device monitor: compares what the device does with what it is known to be able to do.
//!
//! ```text
//!   started, ended --> meter --a second is over--> drift: does it still do what its profile says?
//!                                              +-> cap:   does something before it hold it back?
//!   poll_dispatch <-------- hold: not before -----+
//! ```
//!
//! Starts and completions of I/Os divide time into seconds: there is no timer and no clock of its
//! own, and an idle device costs nothing. An engine without a profile that is not to learn caps has
//! no monitor at all.

pub(crate) mod cap;
pub(crate) mod drift;
pub(crate) mod window_meter;

pub use cap::LearntCap;
pub use drift::{Drift, DriftDirection};

use cap::CapLearner;
use drift::DriftDetector;
use tidegate_base::device::DeviceSpec;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::request::DeviceIo;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use window_meter::{Kind, WindowMeter};

/// Change of the device that concerns an operator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DeviceAlert {
    /// The device no longer does what its profile says.
    Drifted(Drift),
    /// The device does again what its profile says.
    DriftEnded(Drift),
    /// A provider-side rate limit of the device was learnt or has changed.
    Capped(LearntCap),
    /// The learnt cap is gone.
    Uncapped,
}

/// Monitor of one device; see the [module](self).
pub(crate) struct DeviceMonitor {
    /// I/Os in flight with which the device is as fast as its profile says.
    saturating_depth: u32,
    meter: WindowMeter,
    detector: Option<DriftDetector>,
    learner: Option<CapLearner>,
}

impl DeviceMonitor {
    /// Creates a monitor that continues the measurements of `before`; `None`: neither a profile to
    /// compare with nor a cap to learn.
    pub(crate) fn new(
        before: Option<Box<DeviceMonitor>>,
        profile: Option<&Profile>,
        learns: bool,
        spec: &DeviceSpec,
        now: Nanos,
    ) -> Option<Box<DeviceMonitor>> {
        // Nothing to compare with and nothing to learn: an engine without a monitor is faster.
        if profile.is_none() && !learns {
            return None;
        }
        let saturating_depth =
            profile.map_or(spec.depth, |profile| drift::saturating_depth(profile, spec));
        let detector = profile.map(|_| DriftDetector::new(saturating_depth, spec));
        let (mut meter, learner) = match before {
            Some(before) => (before.meter, before.learner),
            None => (WindowMeter::new(now), None),
        };
        meter.restart(now);
        meter.saturating_depth = saturating_depth;
        let learner = learns.then(|| learner.unwrap_or_else(|| CapLearner::new(now)));
        Some(Box::new(DeviceMonitor {
            saturating_depth,
            meter,
            detector,
            learner,
        }))
    }

    // Not inlined: an engine without a monitor would carry the code through its hottest functions.
    /// Records that an I/O goes to the device. Returns its kind, for [`DeviceMonitor::ended`].
    #[inline(never)]
    pub(crate) fn started(&mut self, now: Nanos, io: &DeviceIo, spec: &DeviceSpec) -> Kind {
        let kind = self.meter.started(now, io, spec.zeroes_are_writes);
        if let (Some(learner), true) = (&mut self.learner, kind.is_data()) {
            learner.started(now, io.len);
        }
        kind
    }

    /// Records that an I/O completed.
    #[inline(never)]
    pub(crate) fn ended(&mut self, now: Nanos, kind: Kind, bytes: u32, well: bool) {
        self.meter.ended(now, kind, bytes, well);
    }

    /// Stops counting an I/O that is still at the device, as its disk hangs.
    pub(crate) fn taken_out(&mut self, now: Nanos, kind: Kind) {
        self.meter.taken_out(now, kind);
    }

    /// Evaluates the window if its second is over.
    pub(crate) fn close_window(&mut self, now: Nanos, profile: Option<&Profile>) {
        let Some(window) = self.meter.close(now, profile) else {
            return;
        };
        if let Some(detector) = &mut self.detector {
            detector.evaluate(&window);
        }
        if let Some(learner) = &mut self.learner
            && learner.window(&window)
        {
            self.meter.restart(now);
        }
    }

    /// Returns the time until which only flushes may be dispatched, if a cap demands it; the end of
    /// an I/O may change it. `waits`: a unit waits for dispatch.
    #[inline]
    pub(crate) fn hold(&mut self, now: Nanos, waits: bool) -> Option<Nanos> {
        let DeviceMonitor { meter, learner, .. } = self;
        let hold = learner.as_mut()?.hold(now, meter.in_flight(), waits);
        if hold.window_restarts {
            meter.restart(now);
        }
        let until = hold.until.filter(|_| waits);
        match until {
            Some(_) => meter.begin_hold(now),
            // Nothing waits any more, so the cap holds nothing back.
            None if !waits => meter.end_hold(now, false),
            None => {}
        }
        until
    }

    /// Ends the hold of a cap. `dispatches`: an I/O is dispatched now; otherwise another reason
    /// holds it.
    pub(crate) fn release(&mut self, now: Nanos, dispatches: bool) {
        self.meter.end_hold(now, dispatches);
    }

    /// Sets the depth in force, which is kept below `top` where it is adapted.
    /// `keeps_busy`: most I/Os in flight now with which the device does as much as with more of
    /// them; `top` where that is not known, or where fewer are allowed.
    pub(crate) fn set_depth(&mut self, depth: u32, keeps_busy: u32, top: u32) {
        self.meter.thin_below = depth.min(2);
        self.meter.saturating_depth = self.saturating_depth.min(keeps_busy);
        if let Some(learner) = &mut self.learner {
            learner.adapted = (depth < top).then_some((depth, top));
        }
    }

    /// Returns the depth that a test for a cap needs now, where that is more than the one in force.
    pub(crate) fn wanted_depth(&self) -> Option<u32> {
        self.learner.as_ref()?.wanted_depth()
    }

    /// Returns the comparison of the device with its profile.
    pub(crate) fn drift(&self) -> Option<Drift> {
        self.detector.as_ref().map(|detector| detector.drift)
    }

    /// Returns the cap that the engine keeps to.
    pub(crate) fn cap(&self) -> Option<LearntCap> {
        self.learner.as_ref()?.cap()
    }

    /// Starts with a cap known from outside; I/Os and bytes per second.
    pub(crate) fn assume_cap(&mut self, now: Nanos, iops: Option<u64>, bytes: Option<u64>) {
        if let Some(learner) = &mut self.learner {
            learner.assume(now, iops, bytes);
            self.meter.restart(now);
        }
    }

    /// Returns the state of the learnt cap, to be persisted.
    pub(crate) fn export_cap(&self) -> Option<Blob> {
        self.learner.as_ref()?.export()
    }

    /// Starts with a persisted cap.
    pub(crate) fn import_cap(&mut self, now: Nanos, learnt: &Blob) -> Result<(), BlobError> {
        let learner =
            (self.learner.as_mut()).ok_or(BlobError::Unwanted("no cap is to be learnt"))?;
        learner.import(now, learnt)?;
        self.meter.restart(now);
        Ok(())
    }

    /// Takes the next change since the last call.
    pub(crate) fn take_alert(&mut self) -> Option<DeviceAlert> {
        if let Some(detector) = &mut self.detector
            && std::mem::take(&mut detector.changed)
        {
            let drift = detector.drift;
            return Some(match drift.direction {
                Some(_) => DeviceAlert::Drifted(drift),
                None => DeviceAlert::DriftEnded(drift),
            });
        }
        let learner = self.learner.as_mut()?;
        learner.take_change().map(|cap| match cap {
            Some(cap) => DeviceAlert::Capped(cap),
            None => DeviceAlert::Uncapped,
        })
    }
}
