//! Feedback on the scale of the profile: corrects by measured latency what the profile gets wrong
//! (vFair, section 4.3, after Karlsson et al., "Triage", 2005; the paper leaves out the algorithm).
//!
//! ```text
//!                      credits ran out                     credits are left
//!   latency > target   down: to what drains the excess     down: 5 % and less
//!   latency <= target  up: to what fills the device        stay
//! ```
//!
//! - *Latency* is the latency that a request admitted now would see: the requests admitted and not
//!   done, divided by the rate at which the device ends them. The device's own latency would not
//!   do: with D outstanding it never exceeds the time of D requests, however many more wait before
//!   the device. Nor would the mean from admission to completion: credits come once a period, all
//!   waiting requests go in at once, and their mean is half a period even if nothing is wrong.
//! - *Target*, unless one is given: the latency at depth D, which is D / rate by Little's law. The
//!   rate is the measured one (`measured`), or that of the scaled profile (`profile`). Both are
//!   equal if the scale is right; the measured one is right in any case.
//! - *Credits ran out* if a VM ended the period with a request waiting and no credit: its own
//!   credits and those passed on by the regulator did not suffice.
//! - *Short queues.* If guests keep fewer requests outstanding than the target admits, no VM ever
//!   waits for credits, and no share is enforced. So a busy device gets at most a third of the
//!   outstanding requests ([`inside_max`]).
//! - *Own scales.* The paper adjusts P_i "for each VM_i" by its unused credits C_i and the
//!   system-wide latency. So the table is one of each VM: a VM with credits left is not raised when
//!   others run out ([`OwnScale`]), and what the target admits belongs to the VMs by their
//!   allocations ([`Reserve`]). A VM that others keep from using its share (the strict strategy's
//!   indicator: its latency is above sum(w) / (w_i P_i)) has its part of the queue left free; the
//!   part of an idle VM goes to the others. What a strategy deducts of P_i is deducted of the VM's
//!   part as well: a factor of all P_i alone would be undone by the scale, which follows the
//!   latency.
//! - *Steps of up to 5 %*, in proportion: each period the admission rate becomes the rate of the
//!   device, less the part `APPROACH` of the excess (plus that part of the lack). The excess beyond
//!   D is an integral of the scale, so a step by the sign of the difference alone would swing
//!   around the target for ever. Far below the target, at less than half, steps are larger, and
//!   largest at an empty device.

/// Largest relative change of the scale in one period.
const SCALE_STEP_MAX: f64 = 0.05;
/// Lowest and highest scale.
const SCALE_BOUNDS: [f64; 2] = [0.05, 20.0];
/// Highest scale while the device is idle with requests waiting. The profile is then wrong by more
/// than its bounds foresee, perhaps for one kind of requests, and only a larger scale ends the
/// standstill.
const IDLE_SCALE_MAX: f64 = 1e6;
/// Weight of the newest period in a moving mean.
const NEWEST_WEIGHT: f64 = 0.3;
/// Part of the excess, or of the lack, that one period is to remove.
const APPROACH: f64 = 0.05;
/// Part of the relative error of the admission rate by which one period changes the scale.
const GAIN: f64 = 0.2;
/// Utilisation by the profile below which a device can do more with a deeper queue.
const IDLE_UTILISATION: f64 = 0.7;
/// Utilisation by the profile above which a device counts as busy.
const BUSY_UTILISATION: f64 = 0.85;

/// Returns the number of requests inside the device at which the rest of what guests have
/// `outstanding` still waits: a third of it on a busy device, all of it on a lightly used one.
/// `taken` is the part of the device in use by its profile, 0 to 1. A half would not do: the
/// heavier of two VMs with equal queues then has inside exactly what it asks for, and alternates
/// between throttled and not.
pub fn inside_max(outstanding: f64, taken: f64) -> f64 {
    let idle = ((BUSY_UTILISATION - taken) / (BUSY_UTILISATION - IDLE_UTILISATION)).clamp(0.0, 1.0);
    outstanding * (1.0 + 2.0 * idle) / 3.0
}

/// Measurements of one period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period {
    /// Length of the period in seconds; positive.
    pub length: f64,
    /// I/Os that the device completed in the period.
    pub ended: f64,
    /// Requests admitted and not completed at the end of the period.
    pub inside: f64,
    /// Requests admitted and not completed at its beginning; `ended + inside - before` were
    /// admitted.
    pub before: f64,
    /// A VM ended the period with a request waiting and no credit.
    pub ran_out: bool,
    /// Upper bound on the requests inside that the target may ask for; infinite: no bound.
    pub inside_max: f64,
    /// Part of the target that belongs to VMs whose credits did not run out.
    pub reserve: Reserve,
}

/// Division of the requests inside between the VMs that ask for more than they have, of which the
/// scale admits more or less, and all others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reserve {
    /// Part of the requests inside that belongs to VMs that ask for no more, 0 to 1.
    pub others: f64,
    /// Part of the requests inside that belongs to those of them that are idle: the device serves
    /// them as fast as their share asks for. At most `others`.
    pub idle: f64,
    /// Part of what the target leaves beside the idle VMs that belongs to the VMs that ask for
    /// more, 0 to 1.
    pub part: f64,
}

impl Reserve {
    /// No reserve: the whole target is for whichever VM asks.
    pub const NONE: Reserve = Reserve {
        others: 0.0,
        idle: 0.0,
        part: 1.0,
    };

    /// Returns the requests that may be inside if `wanted` may with every VM at its share, while
    /// `inside` are.
    fn limit(&self, wanted: f64, inside: f64) -> f64 {
        let left = (wanted - self.idle * inside).max(0.0);
        self.others * inside + left * self.part
    }
}

impl Period {
    /// Returns this period with another `inside` and the same number of admitted requests.
    pub fn with_inside(self, inside: f64) -> Period {
        Period {
            inside,
            before: self.before + inside - self.inside,
            ..self
        }
    }
}

/// Latency that the feedback is to hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// Latency in seconds.
    Given(f64),
    /// Latency of that many requests in flight at the measured completion rate.
    Depth(f64),
    /// Latency of `depth` requests in flight at the rate of the scaled profile.
    Profile {
        /// Requests in flight.
        depth: f64,
        /// Saturation rate by the unscaled profile, in requests a second.
        iops: f64,
    },
}

/// Feedback loop that corrects the profile by one scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    scale: f64,
    /// Mean admission and completion rates, a second; below zero: not known.
    admitted: f64,
    ended: f64,
    /// Mean number of requests inside at the ends of periods.
    inside: f64,
}

impl Feedback {
    /// Initial state, with scale 1: the profile as measured.
    pub const NEW: Feedback = Feedback {
        scale: 1.0,
        admitted: -1.0,
        ended: -1.0,
        inside: 0.0,
    };

    /// Returns the factor for the profile's figures, 0.05 to 20, or up to 10^6 after the device
    /// stood idle with requests waiting.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Sets the scale, clamped to 0.05 to 10^6.
    pub fn set_scale(&mut self, scale: f64) {
        self.scale = scale.clamp(SCALE_BOUNDS[0], IDLE_SCALE_MAX);
    }

    /// Updates the means and the scale by a period that has ended.
    pub fn observe(&mut self, period: &Period, target: Target) {
        let mean = |old: f64, new: f64| {
            if old < 0.0 {
                new
            } else {
                old + NEWEST_WEIGHT * (new - old)
            }
        };
        self.inside = if self.ended < 0.0 {
            period.inside
        } else {
            mean(self.inside, period.inside)
        };
        let admitted = (period.ended + period.inside - period.before).max(0.0);
        self.admitted = mean(self.admitted, admitted / period.length);
        self.ended = mean(self.ended, period.ended / period.length);
        let step = self.step(period, target);
        let most = if period.ran_out && self.inside < 0.5 {
            IDLE_SCALE_MAX
        } else {
            // A scale above the bound, reached on an idle device, is kept but not raised.
            self.scale.max(SCALE_BOUNDS[1])
        };
        self.scale = (self.scale * (1.0 + step)).clamp(SCALE_BOUNDS[0], most);
    }

    /// Returns the number of requests inside at which the latency is the target, by the mean
    /// completion rate; infinite while none has completed.
    pub fn wanted(&self, target: Target) -> f64 {
        if self.ended <= 0.0 {
            return f64::INFINITY;
        }
        match target {
            Target::Given(seconds) => seconds * self.ended,
            Target::Depth(depth) => depth,
            Target::Profile { depth, iops } => depth * self.ended / (self.scale * iops),
        }
    }

    /// Returns the relative change of the scale, -0.05 to 0.05.
    fn step(&self, period: &Period, target: Target) -> f64 {
        if self.ended <= 0.0 {
            // No completions: the requests already admitted suffice to notice when the device works
            // again.
            return 0.0;
        }
        let wanted = self.wanted(target).min(period.inside_max);
        let wanted = period.reserve.limit(wanted, period.inside).max(1.0);
        // Both latencies times the completion rate are numbers of requests, so the rate cancels
        // out.
        let excess = (period.inside - wanted) / wanted;
        if !period.ran_out {
            return -(SCALE_STEP_MAX * excess).clamp(0.0, SCALE_STEP_MAX);
        }
        let towards = APPROACH * (wanted - period.inside) / (self.ended * period.length);
        let rate = self.ended / self.admitted.max(self.ended * 0.1) * (1.0 + towards) - 1.0;
        let near = GAIN * rate;
        if excess > 0.0 {
            near.clamp(-SCALE_STEP_MAX, 0.0)
        } else {
            let far = SCALE_STEP_MAX * (-1.0 - 2.0 * excess).clamp(0.0, 1.0);
            near.max(far).clamp(0.0, SCALE_STEP_MAX)
        }
    }
}

/// Correction of one VM's P_i.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OwnScale(f64);

impl OwnScale {
    /// Returns the correction of a VM that asks for its share: the common scale.
    pub fn new(common: f64) -> OwnScale {
        OwnScale(common)
    }

    /// Returns the factor for the VM's P_i.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Follows the common scale. A VM that `asks` for more has the common one. Any other is not
    /// raised, and is lowered to the common one at most, but not below `least`.
    pub fn follow(&mut self, common: f64, asks: bool, least: f64) {
        self.0 = if asks {
            common
        } else {
            common.max(least).min(self.0)
        };
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
    fn a_vm_with_credits_left_is_lowered_to_its_use_and_never_raised() {
        let mut own = OwnScale::new(1.0);
        own.follow(1.05, false, 0.0);
        assert_eq!(own.get(), 1.0, "others ran out, not this one");
        own.follow(0.95, false, 0.0);
        assert_eq!(own.get(), 0.95);
        own.follow(0.5, false, 0.9);
        assert_eq!(own.get(), 0.9, "what it uses is left to it");
        own.follow(0.4, false, 0.95);
        assert_eq!(own.get(), 0.9, "and no more than it had");
        own.follow(0.45, true, 0.0);
        assert_eq!(own.get(), 0.45, "its own credits ran out");
    }

    /// Queue of 32 at two VMs of equal allocations, one of which reads one request at a time.
    #[test]
    fn the_queue_of_a_vm_that_is_kept_from_its_share_is_left_free() {
        let reserve = Reserve {
            others: 1.0 / 11.0,
            idle: 0.0,
            part: 0.5,
        };
        assert!((reserve.limit(32.0, 11.0) - 17.0).abs() < 1e-12);
        // An idle one needs its one request and no more.
        let idle = Reserve {
            idle: 1.0 / 11.0,
            part: 1.0,
            ..reserve
        };
        assert!((idle.limit(32.0, 11.0) - 32.0).abs() < 1e-12);
        // A fifth deducted by the strategy is a fifth of the queue.
        let deducted = Reserve {
            part: 0.8,
            ..Reserve::NONE
        };
        assert!((deducted.limit(32.0, 11.0) - 25.6).abs() < 1e-12);
        assert_eq!(Reserve::NONE.limit(7.3, 11.0), 7.3);
    }

    #[test]
    fn a_third_of_short_queues_is_enough_for_a_busy_device() {
        assert_eq!(inside_max(30.0, 1.0), 10.0);
        assert_eq!(inside_max(30.0, 0.85), 10.0);
        assert!((inside_max(30.0, 0.775) - 20.0).abs() < 1e-9);
        assert_eq!(inside_max(30.0, 0.1), 30.0);
        let period = |inside_max| Period {
            length: 0.03,
            ended: 60.0,
            inside: 12.0,
            before: 12.0,
            ran_out: true,
            inside_max,
            reserve: Reserve::NONE,
        };
        let after = |inside_max| {
            let mut feedback = Feedback::NEW;
            feedback.observe(&period(inside_max), Target::Depth(32.0));
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
