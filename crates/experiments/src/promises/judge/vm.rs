//! Judge of a VM's promises by the second.

use super::due::{DueTimes, ops_of_norm};
use super::limits::Limits;
use super::requests::Request;
use super::share::Claim;
use crate::promises::device::PromiseDevice;
use tidegate_core::objective::{Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::profile::{Access, Direction, Profile};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_sim::device::{Arrival, Times};

/// Number of concurrent streams of a VM that are recognised, as in the engine.
const STREAMS: usize = 8;

/// Number of requests by which requests of a stream may arrive out of order.
const SWAPPED: u64 = 32;

/// A share is judged if at least one second in this many had something to share.
const FEW_SECONDS: u64 = 10;

/// Requests of a second to which a promise applies.
#[derive(Clone, Copy, Default, Debug)]
struct Second {
    judged: u64,
    late: u64,
    /// True if a late request waited throughout the second.
    stuck: bool,
}

/// Judged seconds of one part of an objective.
#[derive(Clone, Copy, Default, Debug)]
pub(in super::super) struct Part {
    /// Number of seconds with something to judge.
    pub(in super::super) seconds: u64,
    /// Number of missed seconds among them.
    pub(in super::super) missed: u64,
    /// Number of seconds excluded because the device stalled.
    pub(in super::super) devices: u64,
    now: Second,
}

impl Part {
    fn judge(&mut self, due: Nanos, answered: Nanos, start: Nanos) {
        let late = answered > due;
        // A late request counts in the second of its due time and in that of its answer.
        debug_assert!(answered >= start);
        self.now.judged += 1;
        self.now.late += u64::from(late);
    }

    fn waits(&mut self, due: Nanos, start: Nanos, end: Nanos) {
        // A request that is not due yet is judged in a later second.
        if due < end {
            self.now.judged += 1;
            self.now.late += 1;
            self.now.stuck |= due <= start;
        }
    }

    fn end_second(&mut self, (counts, devices_own): (bool, bool), keeps: fn(&Second) -> bool) {
        let second = core::mem::take(&mut self.now);
        // A second without requests says nothing about the promise.
        if !counts || second.judged == 0 {
            return;
        }
        if devices_own {
            self.devices += 1;
            return;
        }
        self.seconds += 1;
        self.missed += u64::from(second.stuck || !keeps(&second));
    }

    /// True if at least 99 % of the seconds were kept; `None`: nothing was judged.
    pub(in super::super) fn is_kept(&self) -> Option<bool> {
        // Counts are compared, so that exactly 1 % missed is still kept.
        (self.seconds > 0).then_some(self.missed * 100 <= self.seconds)
    }
}

/// Device time over the seconds in which a VM had something waiting throughout.
#[derive(Clone, Copy, Default, Debug)]
struct ShareTally {
    seconds: u64,
    had: f64,
    due: f64,
    total: f64,
}

/// Intervals of a second in which a request of a VM waited for the scheduler.
#[derive(Clone, Default, Debug)]
struct Waited(Vec<(Nanos, Nanos)>);

impl Waited {
    fn add(&mut self, from: Nanos, to: Nanos) {
        if from < to {
            self.0.push((from, to));
        }
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    /// True if the intervals cover 95 % of the second.
    fn is_all_second(&mut self) -> bool {
        self.0.sort_unstable();
        let (mut covered, mut end) = (Nanos::ZERO, Nanos::ZERO);
        for &(from, to) in &self.0 {
            // Sorted by begin: what an earlier interval covers is not counted twice.
            let from = from.max(end);
            covered += to.since(from);
            end = end.max(to);
        }
        covered >= Nanos::from_millis(950)
    }
}

/// Judge of a VM's promises.
pub(in super::super) struct VmJudge {
    objective: Objective,
    shares: bool,
    weighted: bool,
    blocking: Nanos,
    floor: Option<DueTimes>,
    target: Option<DueTimes>,
    envelope: Option<DueTimes>,
    limits: Option<Limits>,
    /// Rate that a target must not exceed.
    target_cap: Option<Limits>,
    /// Kept and missed seconds of the floor or target.
    pub(in super::super) floor_part: Part,
    pub(in super::super) latency_part: Part,
    pub(in super::super) limit_part: Part,
    share: ShareTally,
    /// Latencies from arrival to answer since the warm-up.
    times: Times,
    counted: Counted,
    counted_second: Counted,
    /// Intervals of the current second in which a request waited for the scheduler.
    waited: Waited,
    ends: [[u64; STREAMS]; 2],
    turn: [usize; 2],
}

/// Totals of answered requests.
#[derive(Clone, Copy, Default, Debug)]
pub(in super::super) struct Counted {
    pub(in super::super) requests: u64,
    /// Requests as the floor's rate counts them.
    pub(in super::super) floor_ops: f64,
    pub(in super::super) bytes: u64,
    pub(in super::super) cost_ps: u128,
}

impl VmJudge {
    pub(super) fn new(
        objective: &Objective,
        (shares, weighted): (bool, bool),
        device: &PromiseDevice,
    ) -> VmJudge {
        let envelope = objective.envelope();
        VmJudge {
            objective: *objective,
            shares,
            weighted,
            blocking: device.blocking,
            floor: DueTimes::new(&objective.reservation),
            target: DueTimes::new(&objective.target),
            envelope: envelope.and_then(|envelope| DueTimes::for_envelope(&envelope)),
            limits: Limits::new(&objective.limit, device.blocking),
            target_cap: Limits::new(&above(&objective.target), device.blocking),
            floor_part: Part::default(),
            latency_part: Part::default(),
            limit_part: Part::default(),
            share: ShareTally::default(),
            times: Times::default(),
            counted: Counted::default(),
            counted_second: Counted::default(),
            waited: Waited::default(),
            ends: [[u64::MAX; STREAMS]; 2],
            turn: [0; 2],
        }
    }

    /// Accounts a request that arrives, and returns it with its due times.
    pub(super) fn arrived(&mut self, arrival: &Arrival, profile: &Profile) -> Request {
        let (at, len) = (arrival.at, arrival.len);
        // Flushes are promised nothing, but use up a rate as the scheduler counts them.
        let flush = arrival.op == Op::Flush;
        // A target includes any floor below it.
        let due = match (&mut self.target, &mut self.floor) {
            (Some(target), _) => Some(target.due(at, len)),
            (None, Some(floor)) => Some(floor.due(at, len)),
            (None, None) => None,
        };
        let within = !flush && self.envelope.as_mut().is_some_and(|it| it.takes(at, len));
        let bound = self.objective.latency.filter(|_| within);
        Request {
            vm: arrival.vm,
            arrived: at,
            op: arrival.op,
            len,
            cost_ps: self.cost_ps(arrival, profile),
            floor_due: due.filter(|_| !flush).map(|due| due + self.blocking),
            latency_due: bound.map(|bound| at + bound),
        }
    }

    /// Device time of a request by the profile, in picoseconds. The request is sequential if it
    /// begins near the end of one of the VM's streams of its direction, because a random round trip
    /// reorders requests of a stream.
    fn cost_ps(&mut self, arrival: &Arrival, profile: &Profile) -> u64 {
        if !matches!(arrival.op, Op::Read | Op::Write) {
            return 0;
        }
        let direction = Direction::for_op(arrival.op);
        let way = direction as usize;
        let end = arrival.offset + u64::from(arrival.len);
        let near = SWAPPED * u64::from(arrival.len);
        let mut streams = self.ends[way].iter();
        let before = streams.position(|&end| end.abs_diff(arrival.offset) <= near);
        let access = match before {
            Some(stream) => {
                let last = &mut self.ends[way][stream];
                // An overtaken request must not move the end of its stream back.
                *last = end.max(*last);
                Access::Sequential
            }
            None => {
                // Round robin, as the engine replaces its streams.
                let turn = self.turn[way];
                self.ends[way][turn] = end;
                self.turn[way] = (turn + 1) % STREAMS;
                Access::Random
            }
        };
        profile.time_ps(direction, access, arrival.len)
    }

    /// Accounts the answer to a request, in the second that began at `start`.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        (at, device): (Nanos, Nanos),
        start: Nanos,
    ) {
        // Time at the device is no wait for the scheduler.
        self.waited.add(request.arrived.max(start), at - device);
        if let Some(due) = request.floor_due {
            self.floor_part.judge(due, at, start);
        }
        if let Some(due) = request.latency_due {
            self.latency_part.judge(due, at, start);
        }
        for limits in self.limits.iter_mut().chain(&mut self.target_cap) {
            limits.count(request.op, request.len);
        }
        let second = &mut self.counted_second;
        second.requests += 1;
        let floor = self.objective.reservation.ops;
        second.floor_ops += ops_of_norm(floor.and_then(|ops| ops.norm), request.len);
        second.bytes += u64::from(request.len);
        second.cost_ps += u128::from(request.cost_ps);
        if request.op != Op::Flush {
            self.times.record(at.since(request.arrived));
        }
    }

    /// Accounts a request that is unanswered at the end of a second.
    pub(super) fn waits(&mut self, request: &Request, start: Nanos, end: Nanos) {
        self.waited.add(request.arrived.max(start), end);
        if let Some(due) = request.floor_due {
            self.floor_part.waits(due, start, end);
        }
        if let Some(due) = request.latency_due {
            self.latency_part.waits(due, start, end);
        }
    }

    /// Ends a second. `counts`: the warm-up is over; `devices_own`: the device stalled.
    pub(super) fn end_second(&mut self, counts: bool, devices_own: bool) {
        let how = (counts, devices_own);
        let beyond = self.target_cap.as_mut().map(Limits::end_second) == Some(false);
        // A target is missed by too much as well.
        self.floor_part.now.stuck |= beyond;
        self.floor_part.end_second(how, |second| second.late <= 1);
        let in_time = |second: &Second| second.late * 100 <= second.judged;
        self.latency_part.end_second(how, in_time);
        if let Some(limits) = &mut self.limits {
            let kept = limits.end_second();
            // Limits are judged by sums; no single request is late.
            self.limit_part.now = Second {
                judged: self.counted_second.requests,
                late: 0,
                stuck: !kept,
            };
            self.limit_part.end_second(how, |_| true);
        }
        let second = core::mem::take(&mut self.counted_second);
        if counts {
            self.counted.requests += second.requests;
            self.counted.floor_ops += second.floor_ops;
            self.counted.bytes += second.bytes;
            self.counted.cost_ps += second.cost_ps;
        } else {
            self.times.clear();
        }
        self.waited.clear();
    }

    /// True if requests of the VM waited for the scheduler throughout the second, and its weight
    /// alone decides its share: no limit, target, priority class or background does. A VM whose
    /// requests are all at the device has what it asked for.
    fn waits_for_share(&mut self) -> bool {
        self.waited.is_all_second() && self.shares && self.limits.is_none() && self.target.is_none()
    }

    /// Claim of the VM on the device time of the second; `None`: no share counts for it, because it
    /// is of another class than best effort, or has no group and does not wait for a share.
    pub(super) fn claim(&mut self) -> Option<Claim> {
        let waited = self.waits_for_share();
        let Priority::BestEffort(level) = self.objective.priority else {
            return None;
        };
        if !waited && self.objective.group.is_none() {
            return None;
        }
        let second = &self.counted_second;
        let had = second.cost_ps as f64;
        let floor = &self.objective.reservation;
        let ops = floor
            .ops
            // At least 1: a VM with nothing served claims its whole floor.
            .map(|ops| ops.per_s as f64 / second.floor_ops.max(1.0));
        let bytes = floor
            .bytes_per_s
            .map(|per_s| per_s as f64 / second.bytes.max(1) as f64);
        let part = match (ops, bytes) {
            // A floor is kept as soon as either rate is served.
            (Some(ops), Some(bytes)) => ops.min(bytes),
            (ops, bytes) => ops.or(bytes).unwrap_or(0.0),
        };
        Some(Claim {
            // Level 4 counts one, level 0 two, level 7 a quarter.
            weight: f64::from(self.objective.weight) * (8.0 - f64::from(level)) / 4.0,
            group: self.objective.group,
            waited,
            floor: had * part,
            had,
        })
    }

    /// Adds a second to the share: `due` of the device time `total` of all VMs that waited.
    pub(super) fn add_share(&mut self, due: f64, total: f64) {
        let had = self.counted_second.cost_ps as f64;
        let share = &mut self.share;
        share.seconds += 1;
        share.had += had;
        share.due += due;
        share.total += total;
    }

    /// Parts of the device time that the VM had and that was due to it, 0 to 1, with the number of
    /// judged seconds. `None`: it has no weight of its own, or had to share in fewer than one in
    /// ten of all `seconds`.
    pub(in super::super) fn share(&self, seconds: u64) -> Option<(f64, f64, u64)> {
        let share = &self.share;
        let often = share.seconds * FEW_SECONDS >= seconds && share.total > 0.0;
        (self.weighted && often).then(|| {
            (
                share.had / share.total,
                share.due / share.total,
                share.seconds,
            )
        })
    }

    /// Latencies since the warm-up.
    pub(in super::super) fn times(&self) -> &Times {
        &self.times
    }

    /// Totals of requests answered since the warm-up.
    pub(in super::super) fn counted(&self) -> &Counted {
        &self.counted
    }
}

/// Limit on a target's rate in a second: 1.1 times the target, the rate at which it catches up
/// after a stall.
fn above(target: &Rate) -> Limit {
    let more = |per_s: u64| per_s + per_s / 10;
    Limit {
        total: Rate {
            ops: target.ops.map(|ops| OpsRate {
                per_s: more(ops.per_s),
                ..ops
            }),
            bytes_per_s: target.bytes_per_s.map(more),
        },
        ..Limit::NONE
    }
}
