//! Export and import of a tuner's learnt state, for a VM that moves to another host and for a
//! daemon that restarts (section 4.4: the tuner is revoked on one host and installed on the other).
//! The terms TA, TR and WR are those of [`tuner`](crate::control::tuner).
//!
//! Fields of a tuner's blob, in order:
//!
//! | field                | content                                                          |
//! |----------------------|------------------------------------------------------------------|
//! | target               | bytes per second, IOPS, size that counts as one I/O; 0: none     |
//! | WR                   | window, shortest and longest window in ms; last V in millionths, |
//! |                      | plus one; 1 while searching; intervals without a restart         |
//! | TA                   | merge limit in pages; 1 if throttled                             |
//! | TR                   | aim in bytes per second, factor in millionths, 1 if the last     |
//! |                      | step was upwards, steps in a row                                 |
//! | PI throttling        | sum of errors plus 2^63                                          |
//! | profiling            | number of measured merge limits, then the bandwidth at each      |
//!
//! If the VM has another target now, WR and the measured bandwidths remain valid, and the rest is
//! dropped.
//!
//! Fields of a paced tuner's blob, in order: target as above; merge limit in pages that suffices
//! for the target; merge limit in pages that holds a mean size; time in ns for which the first
//! has to suffice before a lower one is tried. All are valid only for the blob's target.

use super::super::paced::GOOD_TIME_MAX;
use super::super::params::DESCRIPTOR;
use super::super::range::Range;
use super::super::target::TargetRevision;
use super::super::window::{RESTS, WindowRevision};
use super::VmTuner;
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Rate;
use tidegate_base::precision::MILLION;
use tidegate_base::time::Nanos;

const VERSION: u16 = 1;
/// Name of the blob of a paced tuner.
const PACED: &str = "tuner-paced";
/// Upper bound in pages of merge limits in a blob, and of their number: 1 GiB, above the largest
/// I/O of any device.
const LIMITS_MAX: u64 = 1 << 18;
/// Bit whose inversion maps `i64` to `u64` in ascending order, as blobs hold unsigned fields only.
const SIGN: u64 = 1 << 63;

/// Returns the fields of a target: bytes per second, IOPS, size that counts as one I/O.
fn target_fields(target: &Rate) -> [u64; 3] {
    let ops = target
        .ops
        .map_or((0, 0), |ops| (ops.per_s, ops.norm.unwrap_or(0).into()));
    [target.bytes_per_s.unwrap_or(0), ops.0, ops.1]
}

impl VmTuner {
    /// Returns the learnt state, or `None` if nothing was learnt yet.
    pub(in crate::control::tuner) fn export(&self) -> Option<Blob> {
        if !self.has_learnt {
            return None;
        }
        if let Some(paced) = &self.paced {
            let mut blob = Blob::new(PACED, VERSION);
            let limits = [paced.limit.into(), self.action.limit.into()];
            for field in target_fields(&self.target).into_iter().chain(limits) {
                blob.push_u64(field);
            }
            blob.push_u64(paced.patience.0);
            return Some(blob);
        }
        let mut blob = Blob::new(DESCRIPTOR.name, VERSION);
        let windows = &self.windows;
        let aim = self.aim.unwrap_or(TargetRevision::new(0));
        let error_sum = self.throughput.map_or(0, |throughput| throughput.sum);
        let last_v = windows.last_v.map_or(0, |v| v.saturating_add(1));
        // An unfinished profile is measured again from its beginning.
        let bandwidths = if self.range.is_whole() {
            self.range.measured()
        } else {
            &[]
        };
        let groups: [&[u64]; 7] = [
            &target_fields(&self.target),
            &[windows.window, windows.low, windows.high, last_v],
            &[windows.searching.into(), windows.rests],
            &[self.action.limit.into(), self.action.throttled.into()],
            &[aim.aim, aim.factor, aim.up.into(), aim.run],
            &[(error_sum as u64) ^ SIGN, bandwidths.len() as u64],
            bandwidths,
        ];
        for &field in groups.into_iter().flatten() {
            blob.push_u64(field);
        }
        Some(blob)
    }

    /// Imports as [`VmTuner::import`] does, for a VM whose disks are now elsewhere: bandwidths by
    /// merge limit are measured again, if profiling is enabled (section 4.4).
    pub(in crate::control::tuner) fn import_moved(
        &mut self,
        learnt: &Blob,
    ) -> Result<(), BlobError> {
        self.import(learnt)?;
        self.restart_profiling();
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
        let (shortest, longest) = (windows.low, windows.high);
        windows.window = fields.u64_in("the window", shortest..=longest)?;
        // The window lies between the two: the search subtracts the shortest from the longest.
        windows.low = fields.u64_in("the shortest window", shortest..=windows.window)?;
        windows.high = fields.u64_in("the longest window", windows.window..=longest)?;
        windows.last_v = fields.u64()?.checked_sub(1);
        windows.searching = fields.u64_in("the flag of a window search", 0..=1)? == 1;
        windows.rests = fields.u64_in("the number of intervals without a search", 0..=RESTS)?;
        let limit = fields.u64_in("the merge limit in pages", 1..=LIMITS_MAX)? as u32;
        let throttled = fields.u64_in("the flag of the throttle", 0..=1)? == 1;
        let mut aim = TargetRevision::new(target[0]);
        let (min, max) = match target[0] {
            0 => (0, 0),
            bytes @ 1..=Rate::MAX => TargetRevision::bounds(bytes),
            bytes => {
                let value = bytes.to_string();
                return Err(BlobError::Value {
                    what: "the target in bytes per second",
                    value,
                });
            }
        };
        aim.aim = fields.u64_in("the revised target", min..=max)?;
        aim.factor = fields.u64_in("the factor of target revision", 0..=MILLION)?;
        aim.up = fields.u64_in("the flag of an upward revision", 0..=1)? == 1;
        aim.run = fields.u64_in("the number of revisions in a row", 0..=u64::from(u32::MAX))?;
        let error_sum = (fields.u64()? ^ SIGN) as i64;
        let count = fields.u64_in("the number of measured bandwidths", 0..=LIMITS_MAX)?;
        let bandwidths = (0..count).map(|_| fields.u64_in("a measured bandwidth", 0..=Rate::MAX));
        let bandwidths = bandwidths.collect::<Result<Vec<u64>, BlobError>>()?;
        fields.end()?;
        // Only now, so that a damaged blob leaves the tuner unchanged.
        self.windows = windows;
        if !bandwidths.is_empty() {
            self.restore_range(Range::complete(bandwidths, self.top));
        }
        if target == target_fields(&self.target) {
            if let Some(own_aim) = &mut self.aim {
                *own_aim = aim;
            }
            if let Some(throughput) = &mut self.throughput {
                throughput.sum = error_sum;
            }
            // An IOPS target is held by PI throttling, and TA has no throttle of its own.
            let throttled = throttled && self.throughput.is_none();
            self.action.restart(limit, throttled);
        }
        self.resume();
        Ok(())
    }

    fn import_paced(&mut self, learnt: &Blob) -> Result<(), BlobError> {
        let mut fields = learnt.fields(PACED, VERSION)?;
        let target = [fields.u64()?, fields.u64()?, fields.u64()?];
        let limit = fields.u64_in("the merge limit for the target", 1..=LIMITS_MAX)? as u32;
        let of_size = fields.u64_in("the merge limit of the mean size", 1..=LIMITS_MAX)? as u32;
        let patience = fields.u64_in("the time before a lower limit", 0..=GOOD_TIME_MAX.0)?;
        fields.end()?;
        if target == target_fields(&self.target) {
            self.action.restart(of_size, false);
            if let Some(paced) = &mut self.paced {
                paced.resume(limit, Nanos(patience));
            }
        }
        self.resume();
        Ok(())
    }
}
