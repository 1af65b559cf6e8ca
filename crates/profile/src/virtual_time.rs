//! Measurement of a disk model in virtual time, as fast as it can be computed.

use std::ops::ControlFlow;

use tidegate_config::profile::Measured;
use tidegate_core::profile::Direction;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_device::{Model, ModelIo};

use crate::outcome::build_profile;
use crate::plan::{Options, Plan, Target, TooSmall};
use crate::profiler::{Next, Profiler};

/// Returns the description of a model as a target: all of it may be written, and it need not be
/// filled.
pub fn target(entry: &Entry) -> Target {
    let spec = entry.spec();
    Target {
        name: entry.name.clone(),
        span: spec.capacity,
        block: spec.physical_block,
        max_io: spec.max_io,
        depth_max: spec.queue_depth,
        writes: true,
        fill: false,
        condition: !spec.rotational,
    }
}

/// Measures a new model of `entry` as described by `target`. `watch` is called after every step,
/// and may end the measurement; the result is then `None`.
///
/// # Errors
/// If the model is too small to be measured.
pub fn measure(
    entry: &Entry,
    target: Target,
    options: Options,
    watch: impl FnMut(&Profiler) -> ControlFlow<()>,
) -> Result<Option<Measured>, TooSmall> {
    Ok(measure_plan(entry, Plan::new(target, options)?, watch))
}

/// Measures a new model by a given plan; `None` if `watch` ended the measurement.
pub fn measure_plan(
    entry: &Entry,
    plan: Plan,
    mut watch: impl FnMut(&Profiler) -> ControlFlow<()>,
) -> Option<Measured> {
    let mut profiler = Profiler::new(plan, Vec::new());
    let mut model = entry.build();
    let mut now = Nanos::ZERO;
    let mut steps = 0;
    loop {
        let next = profiler.next_io(now);
        if profiler.outcomes().len() > steps {
            steps = profiler.outcomes().len();
            if watch(&profiler).is_break() {
                return None;
            }
        }
        match next {
            Next::Io(io) => submit(&mut *model, now, &io),
            Next::Finished => return Some(build_profile(profiler.plan(), profiler.outcomes(), "")),
            Next::Wait => {
                now = model.next_completion().expect("some are with the model");
                while let Some(ended) = model.pop_completed(now) {
                    profiler.completed(now, ended.id as u32);
                }
            }
        }
    }
}

/// Submits a profiler's I/O to a model.
pub fn submit(model: &mut dyn Model, now: Nanos, io: &crate::profiler::Io) {
    let id = u64::from(io.id);
    let io = match io.direction {
        Direction::Read => ModelIo::read(id, io.addr, io.len),
        Direction::Write => ModelIo::write(id, io.addr, io.len),
    };
    model.submit(now, io);
}
