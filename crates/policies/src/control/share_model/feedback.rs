//! section 4.3, after Karlsson et al., "Triage", 2005; the paper leaves out how).
//!
//! ```text
//!                      credits ran out                     credits are left
//!   latency > target   down: to what drains the excess     down: 5 % and less
//!   latency <= target  up: to what fills the device        stay
//! ```
//!
//! - *Latency* is that of a request that were let in now: what has been let in and is not done, at
//!   the rate at which the device ends requests. The device's own latency would not do. With D
//!   outstanding at most it is never above D requests' time, however much more has been let in and
//!   waits before the device. Nor would the mean from admission to completion: credits come once a
//!   period, all that wait go in at once, and their mean is half a period where nothing is wrong.
//! - *Target*, unless one is given: the latency at depth D, which is D / rate by Little's law: the
//!   rate is the one at which the device ends requests (`measured`), or would by its profile as it
//!   is scaled (`profile`). Both are the same where the scale is right; the first one is right
//!   while it is not.
//! - *Credits ran out* where a VM ended the period with something waiting and no credit: its own
//!   and what the regulator passed on were not enough.
//! - *Short queues.* Where guests keep fewer requests outstanding than the target lets in, nobody
//!   ever waits for credits, and no share is enforced. So a device that is busy as it is gets no
//!   more than a third of what is outstanding ([`enough`]).
//! - *By up to 5 %*, as far as there is reason to: the rate let in becomes the rate of the device,
//!   less the part of the excess (more by the part of the lack) that `APPROACH` says, each period.
//!   What has been let in beyond D is an integral of the scale, so a step by the sign of the
//!   difference alone would swing around the target for ever. Far below it, at less than half,
//!   steps are larger, up to 5 % where the device is empty.

/// A step at most.
const STEP: f64 = 0.05;
/// Bounds of the scale.
const BOUNDS: [f64; 2] = [0.05, 20.0];
/// Its bound while the device stands idle with requests waiting: then the profile is wrong by more
/// than anybody thought of, in one kind of requests maybe, and nothing else would ever set it
/// going.
const BEYOND: f64 = 1e6;
/// How much of a mean the newest period is.
const NEWEST: f64 = 0.3;
/// How much of the excess, or the lack, is to be gone after a period.
const APPROACH: f64 = 0.05;
const GAIN: f64 = 0.2;
/// A device that does less than this part of what its profile says can do more with more inside,
/// ...
const IDLE: f64 = 0.7;
/// ... and one that does more than this part is busy.
const BUSY: f64 = 0.85;

/// How much is to be inside at most, so that some of what guests have `outstanding` is left to be
/// held back: a third of it where the device does as much as it can, all of it where it does far
/// less. `taken`: the part of the device that is in use, by its profile. With a half, the heavier
/// of two VMs with equal queues has just as much inside as it asks for, and swings between held and
/// free.
pub fn enough(outstanding: f64, taken: f64) -> f64 {
    let idle = ((BUSY - taken) / (BUSY - IDLE)).clamp(0.0, 1.0);
    outstanding * (1.0 + 2.0 * idle) / 3.0
}

/// What happened in a period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period {
    /// How long it was, in seconds; positive.
    pub length: f64,
    /// I/Os that the device ended.
    pub ended: f64,
    /// What has been let in and is not done, when it ended.
    pub inside: f64,
    /// Likewise when it began: with that and what ended it is known how much was let in.
    pub before: f64,
    /// Somebody ended it with something waiting and no credit.
    pub ran_out: bool,
    /// With so many inside there are enough, whatever the target is; infinite: no bound.
    pub enough: f64,
}

impl Period {
    /// The same with so many inside, and as many let in.
    pub fn with_inside(self, inside: f64) -> Period {
        Period {
            inside,
            before: self.before + inside - self.inside,
            ..self
        }
    }
}

/// The latency to hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// So many seconds.
    Given(f64),
    /// That of so many requests in flight, at the rate at which they end.
    Depth(f64),
    /// That of so many requests in flight, at so many a second by the scaled profile.
    Profile {
        /// Requests in flight.
        depth: f64,
        /// Requests a second that saturate the device, by the profile as it is.
        iops: f64,
    },
}

/// The controller's controller.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    scale: f64,
    /// Means, a second: let in, ended. Below zero: not known.
    admitted: f64,
    ended: f64,
    /// Mean of what was inside at the ends of periods.
    inside: f64,
}

impl Feedback {
    /// That trusts the profile so far.
    pub const NEW: Feedback = Feedback {
        scale: 1.0,
        admitted: -1.0,
        ended: -1.0,
        inside: 0.0,
    };

    /// What the profile's figures are to be multiplied by, 0.05 to 20; up to 10^6 where the device
    /// stood idle with less.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The scale is this from now on, within its bounds.
    pub fn set_scale(&mut self, scale: f64) {
        self.scale = scale.clamp(BOUNDS[0], BEYOND);
    }

    /// A period has ended.
    pub fn observe(&mut self, period: &Period, target: Target) {
        let mean = |old: f64, new: f64| match old < 0.0 {
            true => new,
            false => old + NEWEST * (new - old),
        };
        self.inside = match self.ended < 0.0 {
            true => period.inside,
            false => mean(self.inside, period.inside),
        };
        let admitted = (period.ended + period.inside - period.before).max(0.0);
        self.admitted = mean(self.admitted, admitted / period.length);
        self.ended = mean(self.ended, period.ended / period.length);
        let step = self.step(period, target);
        let most = match period.ran_out && self.inside < 0.5 {
            true => BEYOND,
            // What it came to stays.
            false => self.scale.max(BOUNDS[1]),
        };
        self.scale = (self.scale * (1.0 + step)).clamp(BOUNDS[0], most);
    }

    /// By what part to change the scale.
    fn step(&self, period: &Period, target: Target) -> f64 {
        if self.ended <= 0.0 {
            // Nothing ends. What has been let in is enough to find out whether anything will.
            return 0.0;
        }
        let wanted = match target {
            Target::Given(seconds) => seconds * self.ended,
            Target::Depth(depth) => depth,
            Target::Profile { depth, iops } => depth * self.ended / (self.scale * iops),
        };
        let wanted = wanted.min(period.enough).max(1.0);
        // In requests: latency and target times the rate.
        let excess = (period.inside - wanted) / wanted;
        if !period.ran_out {
            return -(STEP * excess).clamp(0.0, STEP);
        }
        let towards = APPROACH * (wanted - period.inside) / (self.ended * period.length);
        let rate = self.ended / self.admitted.max(self.ended * 0.1) * (1.0 + towards) - 1.0;
        let near = GAIN * rate;
        match excess > 0.0 {
            true => near.clamp(-STEP, 0.0),
            false => {
                let far = STEP * (-1.0 - 2.0 * excess).clamp(0.0, 1.0);
                near.max(far).clamp(0.0, STEP)
            }
        }
    }
}

impl Default for Feedback {
    fn default() -> Feedback {
        Feedback::NEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_short_queues_is_enough_for_a_busy_device() {
        assert_eq!(enough(30.0, 1.0), 10.0);
        assert_eq!(enough(30.0, 0.85), 10.0);
        assert!((enough(30.0, 0.775) - 20.0).abs() < 1e-9);
        assert_eq!(enough(30.0, 0.1), 30.0);
        let period = |enough| Period {
            length: 0.03,
            ended: 60.0,
            inside: 12.0,
            before: 12.0,
            ran_out: true,
            enough,
        };
        let after = |enough| {
            let mut feedback = Feedback::NEW;
            feedback.observe(&period(enough), Target::Depth(32.0));
            feedback.scale()
        };
        assert!(after(f64::INFINITY) > 1.0, "more is let in");
        assert_eq!(after(12.0), 1.0, "enough");
        assert!(after(10.0) < 1.0, "less is let in");
        // The target still counts where it is less.
        let mut feedback = Feedback::NEW;
        feedback.observe(&period(30.0), Target::Depth(8.0));
        assert!(feedback.scale() < 1.0);
    }
}
