//! Disk model under measurement in real time, with the overhead of a real clock and real copies.

use std::ops::ControlFlow;
use std::time::Duration;

use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_profile::virtual_time::submit;
use tidegate_profile::{Io, Next, Profiler};

use super::{DriveError, Ended};
use crate::buffer::{Mem, Region};
use crate::ring::{clock, sys};

/// Bytes of memory that stand for the whole disk, whatever its capacity. Requests copy data, like
/// those of the daemon's emulated disks.
const MEDIUM_BYTES: usize = 64 << 20;

/// Measures a model, in the manner of [`Disk::measure`](super::Disk::measure).
///
/// # Errors
/// If memory cannot be allocated.
pub fn measure(
    entry: &Entry,
    profiler: &mut Profiler,
    mut watch: impl FnMut(&Profiler, Nanos) -> ControlFlow<()>,
) -> Result<Ended, DriveError> {
    // The default timer slack of 50 us would distort the latencies of flash models.
    sys::precise_timers();
    let most = profiler.plan().target.max_io as usize;
    let medium = Region::new(MEDIUM_BYTES + most).map_err(DriveError::Prepare)?;
    let guest = Region::new(most).map_err(DriveError::Prepare)?;
    let copy = |io: &Io| {
        let len = io.len as usize;
        let (there, here) = (
            medium.mem(io.addr as usize % MEDIUM_BYTES, len),
            guest.mem(0, len),
        );
        match io.direction {
            tidegate_core::profile::Direction::Read => Mem::copy(&here, there),
            tidegate_core::profile::Direction::Write => Mem::copy(&there, here),
        }
    };
    let mut model = entry.build();
    let began = clock();
    let mut in_flight = vec![None; profiler.plan().target.depth_max as usize];
    loop {
        let mut now = clock().since(began);
        loop {
            match profiler.next_io(now) {
                Next::Io(io) => {
                    in_flight[io.id as usize] = Some(io);
                    submit(&mut *model, now, &io);
                }
                Next::Wait => break,
                Next::Finished => return Ok(Ended::Finished),
            }
        }
        let at = model.next_completion().expect("some are with the model");
        now = clock().since(began);
        if at > now {
            std::thread::sleep(Duration::from_nanos(at.since(now).0));
            now = clock().since(began);
        }
        while let Some(ended) = model.pop_completed(now) {
            let io = in_flight[ended.id as usize].take();
            copy(&io.expect("it was submitted"));
            profiler.completed(now, ended.id as u32);
        }
        if watch(profiler, now).is_break() {
            return Ok(Ended::Stopped);
        }
    }
}
