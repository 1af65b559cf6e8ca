//! Export and import of a tuner's learnt state, for a VM that moves to another host and for a
//! daemon that restarts (section 4.4: the tuner is revoked on one host and installed on the other).
//!
//! In the order of the fields: the target (bytes a second, IOPS, the size that counts as one; 0 for
//! none), WR (window, range, last V plus one, whether it searches, rests), TA (limit, throttled),
//! TR (aim, factor, side, steps), the sum of PI throttling plus 2^63, then how many bandwidths by
//! merge limit are known, and each. Another target than now leaves the windows and the bandwidths
//! valid; the rest is dropped.
//!
//! The state of a paced tuner has its own format: the target likewise, both merge limits (the one
//! that is enough, and the one that holds a mean size), and the time for which the first has to be
//! enough. All of it is valid only for that target.

use super::super::paced::ENOUGH_MOST;
use super::super::params::DESCRIPTOR;
use super::super::range::Range;
use super::super::target::TargetRevision;
use super::super::window::{RESTS, WindowRevision};
use super::VmTuner;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

const VERSION: u16 = 1;
/// Name of the blob of a paced tuner.
const PACED: &str = "tuner-paced";
/// Upper bound of merge limits in a blob, above the number of I/O sizes of any device.
const LIMITS_MAX: u64 = 1 << 18;
const SIGN: u64 = 1 << 63;

fn figures(target: &Rate) -> [u64; 3] {
    let ops = target
        .ops
        .map_or((0, 0), |ops| (ops.per_s, ops.norm.unwrap_or(0).into()));
    [target.bytes_per_s.unwrap_or(0), ops.0, ops.1]
}

impl VmTuner {
    /// Returns the learnt state, or `None` if nothing was learnt yet.
    pub(in crate::control::tuner) fn export(&self) -> Option<Blob> {
        if !self.learnt {
            return None;
        }
        if let Some(paced) = &self.paced {
            let mut blob = Blob::new(PACED, VERSION);
            let limits = [paced.limit.into(), self.action.limit.into()];
            for field in figures(&self.target).into_iter().chain(limits) {
                blob.push_u64(field);
            }
            blob.push_u64(paced.patience.0);
            return Some(blob);
        }
        let mut blob = Blob::new(DESCRIPTOR.name, VERSION);
        let windows = &self.windows;
        let aim = self.aim.unwrap_or(TargetRevision::new(0));
        let sum = self.throughput.map_or(0, |held| held.sum);
        let last_v = windows.last_v.map_or(0, |v| v.saturating_add(1));
        let of_windows = [windows.window, windows.low, windows.high, last_v];
        let of_search = [windows.searching.into(), windows.rests];
        let of_action = [self.action.limit.into(), self.action.throttled.into()];
        let of_aim = [aim.aim, aim.factor, aim.up.into(), aim.run];
        let range = self.range.measured();
        let known = if self.range.is_whole() { range } else { &[] };
        let rest = [(sum as u64) ^ SIGN, known.len() as u64];
        let fields = figures(&self.target).into_iter().chain(of_windows);
        let fields = fields.chain(of_search).chain(of_action).chain(of_aim);
        for field in fields.chain(rest).chain(known.iter().copied()) {
            blob.push_u64(field);
        }
        Some(blob)
    }

    /// Imports as [`VmTuner::import`] does, for a VM whose disks are now elsewhere: bandwidths by
    /// merge limit are measured anew, if profiling is enabled (section 4.4).
    pub(in crate::control::tuner) fn import_moved(
        &mut self,
        learnt: &Blob,
    ) -> Result<(), BlobError> {
        self.import(learnt)?;
        self.profile_anew();
        Ok(())
    }

    /// Imports learnt state.
    ///
    /// # Errors
    /// Returns an error if the blob is not a tuner's or has values out of range. Nothing has
    /// changed then.
    pub(in crate::control::tuner) fn import(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        if self.paced.is_some() {
            return self.import_paced(learnt);
        }
        let mut fields = learnt.fields(DESCRIPTOR.name, VERSION)?;
        let target = [fields.u64()?, fields.u64()?, fields.u64()?];
        let mut windows = WindowRevision::new(self.windows.terms);
        let range = windows.low..=windows.high;
        windows.window = fields.u64_in("the window", range.clone())?;
        windows.low = fields.u64_in("the shortest window", range.clone())?;
        windows.high = fields.u64_in("the longest window", range)?;
        windows.last_v = fields.u64()?.checked_sub(1);
        windows.searching = fields.u64_in("whether windows are searched", 0..=1)? == 1;
        windows.rests = fields.u64_in("rests", 0..=RESTS)?;
        let limit = fields.u64_in("the merge limit", 1..=LIMITS_MAX)? as u32;
        let throttled = fields.u64_in("whether it is throttled", 0..=1)? == 1;
        let mut aim = TargetRevision::new(target[0]);
        let (least, most) = match target[0] {
            0 => (0, 0),
            bytes @ 1..=Rate::MAX => TargetRevision::bounds(bytes),
            bytes => {
                let value = bytes.to_string();
                return Err(BlobError::Value {
                    what: "the target",
                    value,
                });
            }
        };
        aim.aim = fields.u64_in("what is aimed at", least..=most)?;
        aim.factor = fields.u64_in("how far the aim is revised", 0..=1_000_000)?;
        aim.up = fields.u64_in("the side of the revision", 0..=1)? == 1;
        aim.run = fields.u64_in("revisions in a row", 0..=u64::from(u32::MAX))?;
        let sum = (fields.u64()? ^ SIGN) as i64;
        let known = fields.u64_in("how many bandwidths are known", 0..=LIMITS_MAX)?;
        let by_limit = (0..known).map(|_| fields.u64_in("a bandwidth", 0..=Rate::MAX));
        let by_limit = by_limit.collect::<Result<Vec<u64>, BlobError>>()?;
        fields.end()?;
        self.windows = windows;
        if !by_limit.is_empty() {
            self.know(Range::complete(by_limit, self.top));
        }
        if target == figures(&self.target) {
            if let Some(of_vm) = &mut self.aim {
                *of_vm = aim;
            }
            if let Some(held) = &mut self.throughput {
                held.sum = sum;
            }
            let throttled = throttled && self.throughput.is_none();
            self.action.restart(limit, throttled);
        }
        self.go_on();
        Ok(())
    }

    fn import_paced(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let mut fields = learnt.fields(PACED, VERSION)?;
        let target = [fields.u64()?, fields.u64()?, fields.u64()?];
        let limit = fields.u64_in("the merge limit", 1..=LIMITS_MAX)? as u32;
        let of_size = fields.u64_in("the merge limit of a size", 1..=LIMITS_MAX)? as u32;
        let patience = fields.u64_in("for how long it has to be enough", 0..=ENOUGH_MOST.0)?;
        fields.end()?;
        if target == figures(&self.target) {
            self.action.restart(of_size, false);
            if let Some(paced) = &mut self.paced {
                paced.resume(limit, Nanos(patience));
            }
        }
        self.go_on();
        Ok(())
    }
}
