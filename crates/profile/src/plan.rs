//! Plan of a measurement: points, their order, and how often and how long each is measured.
//!
//! ```text
//!   fill            every byte once, so that what is read has been written
//!   random reads    against depth: finds the depth that saturates
//!   reads           sequential, random, by size; then against depth
//!   writes          sequential by size; then against depth
//!   condition       random overwrites of all there is (flash), until its garbage collection runs
//!   random writes   by size; mixes by their reads; then against depth
//!   reads           one at a time, under random writes by size and depth
//! ```
//!
//! Writes come after reads, and random writes last, because each leaves the device in a state that
//! changes later results. SNIA's Solid State Storage Performance Test Specification has the same
//! order (purge, precondition, steady state).

use tidegate_config::profile::Mix;
use tidegate_core::profile::{Access, Direction};
use tidegate_core::time::Nanos;

/// Maximum size in bytes of the requests that fill and condition.
const BULK: u32 = 1 << 20;
/// Maximum queue depth of the requests that fill and condition.
const BULK_DEPTH: u32 = 32;
/// Request sizes of a full measurement in bytes: 4 KiB to 1 MiB by powers of two.
const SIZES: [u32; 9] = [
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
];
/// Request sizes of a quick measurement in bytes.
const SIZES_QUICK: [u32; 5] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
/// Request sizes of mixes in a quick measurement in bytes; between them the time per request is
/// nearly linear in the size.
const SIZES_MIXED_QUICK: [u32; 3] = [1 << 12, 1 << 16, 1 << 20];
/// Request sizes in bytes that are measured at every depth.
const SIZES_DEPTH: [u32; 2] = [1 << 12, 1 << 16];
/// Shares of reads of random mixes, in thousandths.
const MIXES: [u32; 5] = [100, 300, 500, 700, 900];
/// Shares of reads of random mixes in a quick measurement, in thousandths.
const MIXES_QUICK: [u32; 3] = [250, 500, 750];
/// Sizes in bytes of the writes under which single reads are measured.
const SIZES_UNDER_WRITES: [u32; 2] = [1 << 16, 1 << 20];
/// Number of requests of a size that must fit the device for random requests to be random.
const REQUESTS_MIN: u64 = 16;
/// Part of the best rate, 0 to 1, that a depth must reach to count as saturating.
pub(crate) const SATURATED: f64 = 0.95;

/// Device to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name of the device in the profile.
    pub name: String,
    /// Bytes from address 0 on that requests may access.
    pub span: u64,
    /// Unit of addresses and sizes in bytes.
    pub block: u32,
    /// Size of the largest request in bytes.
    pub max_io: u32,
    /// Maximum queue depth; [`Plan::new`] takes 0 for 1.
    pub depth_max: u32,
    /// True if the device may be written to.
    pub writes: bool,
    /// True if the device must be written once before reads of it are meaningful.
    pub fill: bool,
    /// True if random writes change the state that later writes meet, as on flash, so that the
    /// device must be conditioned.
    pub condition: bool,
}

/// Options of a measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// True for fewer points and fewer runs of each.
    pub quick: bool,
    /// True for a model in virtual time: the length of runs is in requests instead of seconds.
    pub in_virtual_time: bool,
    /// Queue depth at saturation; `None`: measured. Clamped to 1 to [`Target::depth_max`].
    pub depth: Option<u32>,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Number and length of the runs of a point.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    /// Minimum duration of the warm-up of each point, whose requests are discarded.
    pub warm_up: Nanos,
    /// Minimum bytes of the warm-up of points that write, so that write buffers are full.
    pub warm_up_bytes: u64,
    /// Minimum number of requests of the warm-up, in addition to four rounds of the queue.
    pub warm_up_ios: u64,
    /// Minimum duration of a run.
    pub run: Nanos,
    /// Minimum number of requests of a run, unless `run_bytes` is fewer requests.
    pub run_ios: u64,
    /// Bytes after which a run has enough requests, even if they are fewer than `run_ios`.
    pub run_bytes: u64,
    /// Maximum duration of a run, whatever has ended.
    pub run_max: Nanos,
    /// Number of places of the device that a run of sequential requests visits.
    pub places: u32,
    /// Minimum number of runs of a point in its steady state.
    pub runs_min: usize,
    /// Maximum number of runs of a point, those before the steady state included.
    pub runs_max: usize,
    /// Half width of the confidence interval, relative to the mean, at which there are enough runs.
    pub half_width_max: f64,
    /// Maximum duration of filling; what was not written is not measured.
    pub fill_max: Nanos,
    /// Maximum duration of conditioning.
    pub condition_max: Nanos,
    /// Number of times that conditioning overwrites the span.
    pub condition_times: u32,
    /// Minimum number of reads in a measurement of reads under writes.
    pub reads_under_writes_min: u64,
}

/// Single reads under writes of one size at one depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritesPoint {
    /// Access pattern of the writes.
    pub access: Access,
    /// Size of each write in bytes.
    pub size: u32,
    /// Number of writes in flight.
    pub depth: u32,
}

/// Queue depth of a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Given depth: a point of the latency by depth.
    Of(u32),
    /// Smallest depth that saturates the device.
    Saturating,
}

/// Point of a profile: requests of one kind and size at one depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Share of reads and writes.
    pub mix: Mix,
    /// Access pattern.
    pub access: Access,
    /// Request size in bytes.
    pub size: u32,
    /// Queue depth.
    pub depth: Depth,
}

impl Point {
    /// Returns true if any of the requests are writes.
    pub fn writes(&self) -> bool {
        self.mix != Mix::All(Direction::Read)
    }
}

/// Step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Writes the whole span once, sequentially.
    Fill,
    /// Overwrites the whole span at random.
    Condition,
    /// Measures a point.
    Measure(Point),
    /// Measures reads under writes.
    ReadsUnderWrites(WritesPoint),
}

/// Plan of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Device to be measured.
    pub target: Target,
    /// Options of the measurement.
    pub options: Options,
    /// Number and length of runs.
    pub pace: Pace,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// Refusal of a device that is too small to be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSmall {
    /// Size of the device in bytes.
    pub span: u64,
    /// Required size in bytes.
    pub need: u64,
}

impl std::fmt::Display for TooSmall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a device of {} is too small to measure: at least {} are needed",
            tidegate_units::human::bytes(self.span),
            tidegate_units::human::bytes(self.need)
        )
    }
}

impl std::error::Error for TooSmall {}

impl Pace {
    /// Returns the pace for a model: a run is a number of requests, since time costs nothing.
    fn virtual_time(quick: bool) -> Pace {
        Pace {
            warm_up: Nanos::ZERO,
            warm_up_bytes: 64 << 20,
            warm_up_ios: 200,
            run: Nanos::ZERO,
            run_ios: if quick { 500 } else { 2000 },
            // Large requests vary less, and a flash disk has limited room for writes before it
            // collects garbage.
            run_bytes: 256 << 20,
            run_max: Nanos::MAX,
            places: 8,
            runs_min: if quick { 3 } else { 5 },
            runs_max: if quick { 10 } else { 30 },
            half_width_max: if quick { 0.03 } else { 0.01 },
            fill_max: Nanos::MAX,
            condition_max: Nanos::MAX,
            condition_times: if quick { 1 } else { 2 },
            reads_under_writes_min: if quick { 500 } else { 2000 },
        }
    }

    /// Returns the pace for a real disk. The durations are chosen so that a quick measurement takes
    /// less than a minute, filling included, and a full one of about 150 steps some minutes,
    /// filling excluded.
    fn real_time(quick: bool) -> Pace {
        if quick {
            Pace {
                warm_up: Nanos::from_millis(100),
                warm_up_bytes: 0,
                warm_up_ios: 0,
                run: Nanos::from_millis(120),
                run_ios: 1,
                run_bytes: u64::MAX,
                run_max: Nanos::from_millis(250),
                places: 1,
                runs_min: 3,
                runs_max: 5,
                half_width_max: 0.05,
                fill_max: Nanos::from_secs(10),
                condition_max: Nanos::ZERO,
                condition_times: 0,
                reads_under_writes_min: 100,
            }
        } else {
            Pace {
                warm_up: Nanos::from_millis(500),
                warm_up_bytes: 0,
                warm_up_ios: 0,
                run: Nanos::from_millis(400),
                run_ios: 50,
                run_bytes: u64::MAX,
                run_max: Nanos::from_secs(5),
                places: 4,
                runs_min: 4,
                runs_max: 12,
                half_width_max: 0.02,
                fill_max: Nanos::MAX,
                condition_max: Nanos::from_secs(300),
                condition_times: 1,
                reads_under_writes_min: 300,
            }
        }
    }
}

/// Returns the bytes that a device must have for random requests of a size.
fn room(size: u64) -> u64 {
    size * REQUESTS_MIN
}

/// Returns the powers of `step` below `depth_max`, and `depth_max` itself.
fn depths_up_to(depth_max: u32, step: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1_u32), |depth| depth.checked_mul(step));
    let mut depths: Vec<u32> = powers.take_while(|&depth| depth < depth_max).collect();
    depths.push(depth_max);
    depths
}

impl Plan {
    /// Creates the plan of a measurement.
    ///
    /// # Errors
    /// If the device has no room for sixteen requests of the smallest size that it accepts.
    pub fn new(mut target: Target, options: Options) -> Result<Plan, TooSmall> {
        // Every step needs one request in flight, and reads under writes subtract it.
        target.depth_max = target.depth_max.max(1);
        let pace = if options.in_virtual_time {
            Pace::virtual_time(options.quick)
        } else {
            Pace::real_time(options.quick)
        };
        let mut plan = Plan {
            target,
            options,
            pace,
            steps: Vec::new(),
        };
        plan.add_all();
        let need = room(u64::from(plan.target.block.max(SIZES[0])));
        if plan.target.span < need || plan.curve_sizes().is_empty() {
            Err(TooSmall {
                span: plan.target.span,
                need,
            })
        } else {
            Ok(plan)
        }
    }

    /// Returns the queue depth of the requests that fill and condition.
    pub fn bulk_depth(&self) -> u32 {
        self.target.depth_max.min(BULK_DEPTH)
    }

    /// Returns the size in bytes of the requests that fill and condition.
    pub fn bulk_size(&self) -> u32 {
        let block = self.target.block;
        (self.target.max_io.min(BULK) / block * block).max(block)
    }

    /// Returns the sizes that the device accepts and has room for.
    fn sizes(&self, sizes: &[u32]) -> Vec<u32> {
        let target = &self.target;
        let fits = |size: &u32| {
            *size <= target.max_io
                && size.is_multiple_of(target.block)
                && room(u64::from(*size)) <= target.span
        };
        sizes.iter().copied().filter(fits).collect()
    }

    /// Returns the sizes at which curves are measured.
    fn curve_sizes(&self) -> Vec<u32> {
        let all = self.sizes(&SIZES);
        if !self.options.quick {
            return all;
        }
        let quick = self.sizes(&SIZES_QUICK);
        // A device may accept none of the coarser steps, as with 8 KiB blocks and 8 KiB requests.
        if quick.is_empty() { all } else { quick }
    }

    fn add_all(&mut self) {
        let quick = self.options.quick;
        let sizes = self.curve_sizes();
        let (read, write) = (Mix::All(Direction::Read), Mix::All(Direction::Write));
        if self.target.fill && self.target.writes {
            self.steps.push(Step::Fill);
        }
        // The saturating depth is needed first: it is found with random reads of the smallest size.
        let by_depth = self.sizes(&SIZES_DEPTH);
        let (first, others) = by_depth.split_at(by_depth.len().min(1));
        let others = if quick { &[] } else { others };
        self.against_depth(read, Access::Random, first);
        self.curve(read, Access::Sequential, &sizes);
        self.curve(read, Access::Random, &sizes);
        self.against_depth(read, Access::Random, others);
        if !quick {
            self.against_depth(read, Access::Sequential, &by_depth);
        }
        if !self.target.writes {
            return;
        }
        self.curve(write, Access::Sequential, &sizes);
        if !quick {
            self.against_depth(write, Access::Sequential, &by_depth);
        }
        if self.target.condition && self.pace.condition_times > 0 {
            self.steps.push(Step::Condition);
        }
        self.curve(write, Access::Random, &sizes);
        let (mixes, of_mixes) = if quick {
            (&MIXES_QUICK[..], self.sizes(&SIZES_MIXED_QUICK))
        } else {
            (&MIXES[..], sizes)
        };
        for &reads in mixes {
            self.curve(Mix::Reads(reads), Access::Random, &of_mixes);
        }
        self.against_depth(write, Access::Random, first);
        self.against_depth(write, Access::Random, others);
        self.add_reads_under_writes();
    }

    /// Adds reads under writes at depths by powers of four; one place in the queue is for the
    /// read.
    fn add_reads_under_writes(&mut self) {
        let most = self.target.depth_max - 1;
        if most == 0 {
            return;
        }
        let (sizes, step) = if self.options.quick {
            (&SIZES_UNDER_WRITES[..1], 16)
        } else {
            (&SIZES_UNDER_WRITES[..], 4)
        };
        for size in self.sizes(sizes) {
            let depths = depths_up_to(most, step);
            self.steps.extend(depths.into_iter().map(|depth| {
                Step::ReadsUnderWrites(WritesPoint {
                    access: Access::Random,
                    size,
                    depth,
                })
            }));
        }
    }

    /// Adds points of these sizes at the depth that saturates the device.
    fn curve(&mut self, mix: Mix, access: Access, sizes: &[u32]) {
        self.steps.extend(sizes.iter().map(|&size| {
            Step::Measure(Point {
                mix,
                access,
                size,
                depth: Depth::Saturating,
            })
        }));
    }

    /// Adds points at depths by powers of two (of four if quick) up to the device's maximum.
    fn against_depth(&mut self, mix: Mix, access: Access, sizes: &[u32]) {
        let step = if self.options.quick { 4 } else { 2 };
        let depths = depths_up_to(self.target.depth_max, step);
        for &size in sizes {
            self.steps.extend(depths.iter().map(|&depth| {
                Step::Measure(Point {
                    mix,
                    access,
                    size,
                    depth: Depth::Of(depth),
                })
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Target, &mut Options)) -> Plan {
        let mut target = Target {
            name: "disk".to_owned(),
            span: 1 << 30,
            block: 512,
            max_io: 1 << 20,
            depth_max: 32,
            writes: true,
            fill: true,
            condition: true,
        };
        let mut options = Options {
            quick: false,
            in_virtual_time: false,
            depth: None,
            seed: 1,
        };
        change(&mut target, &mut options);
        Plan::new(target, options).expect("large enough")
    }

    fn points(plan: &Plan) -> impl Iterator<Item = &Point> {
        plan.steps.iter().filter_map(|step| match step {
            Step::Measure(point) => Some(point),
            _ => None,
        })
    }

    #[test]
    fn each_kind_has_every_size_and_writes_come_after_reads() {
        let plan = plan(|_, _| {});
        for access in [Access::Sequential, Access::Random] {
            for direction in [Direction::Read, Direction::Write] {
                let kind: Vec<_> = points(&plan)
                    .filter(|p| p.depth == Depth::Saturating)
                    .filter(|p| p.mix == Mix::All(direction) && p.access == access)
                    .map(|p| p.size)
                    .collect();
                assert_eq!(kind, SIZES);
            }
        }
        assert_eq!(plan.steps[0], Step::Fill);
        let first_write = points(&plan).position(|p| p.writes()).expect("writes");
        let last_read = points(&plan).filter(|p| !p.writes()).count();
        assert_eq!(first_write, last_read);
        let condition = plan.steps.iter().position(|s| *s == Step::Condition);
        let random_write = plan.steps.iter().position(|step| match step {
            Step::Measure(p) => p.writes() && p.access == Access::Random,
            _ => false,
        });
        assert_eq!(condition.map(|at| at + 1), random_write);
    }

    #[test]
    fn a_read_only_target_gets_no_step_that_writes() {
        let plan = plan(|target, _| target.writes = false);
        assert!(points(&plan).all(|p| !p.writes()));
        assert_eq!(points(&plan).count(), plan.steps.len());
    }

    #[test]
    fn depths_rise_to_the_devices_maximum() {
        let plan = plan(|target, _| target.depth_max = 24);
        let first: Vec<_> = points(&plan).map(|p| p.depth).take(7).collect();
        let expected = [1, 2, 4, 8, 16, 24].map(Depth::Of);
        assert_eq!(first[..6], expected);
        assert_eq!(first[6], Depth::Saturating);
    }

    #[test]
    fn depth_0_is_measured_as_depth_1() {
        let none = plan(|target, _| target.depth_max = 0);
        let one = plan(|target, _| target.depth_max = 1);
        assert_eq!((none.steps, none.target), (one.steps, one.target));
    }

    #[test]
    fn sizes_are_those_that_the_device_accepts() {
        let large = plan(|target, _| (target.block, target.max_io) = (8192, 65536));
        assert!(points(&large).all(|p| (8192..=65536).contains(&p.size)));
        let one_size = plan(|target, options| {
            (target.block, target.max_io) = (8192, 8192);
            options.quick = true;
        });
        assert!(points(&one_size).count() > 0 && points(&one_size).all(|p| p.size == 8192));
        let mut target = large.target;
        target.span = 8192 * 15;
        let error = Plan::new(target, large.options).expect_err("too small");
        assert_eq!(error.need, 8192 * 16);
        assert_eq!(
            error.to_string(),
            "a device of 120 KiB is too small to measure: at least 128 KiB are needed"
        );
    }

    #[test]
    fn a_quick_plan_has_a_third_of_the_steps_and_takes_less_than_a_minute() {
        let quick = plan(|_, options| options.quick = true);
        assert!(quick.steps.len() * 3 < plan(|_, _| {}).steps.len());
        // Under a minute: filling, and each step with the maximum of runs of the minimum duration.
        let pace = &quick.pace;
        let longest = pace.warm_up.0 + pace.runs_max as u64 * pace.run.0;
        let all = pace.fill_max.0 + longest * quick.steps.len() as u64;
        let all = Nanos(all);
        assert!(all < Nanos::from_secs(50), "{all}");
    }
}
