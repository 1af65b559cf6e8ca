//! Judge of one VM.

use super::due::DueTimes;
use super::limits::Limits;
use super::requests::Request;
use super::share::Claim;
use crate::promises::device::PromiseDevice;
use tidegate_core::objective::{Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::profile::{Access, Direction, Profile};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_sim::device::{Arrival, Times};

/// Streams of a VM that are told apart, as the engine does.
const STREAMS: usize = 8;

/// Requests of a stream that may arrive before one that was issued earlier.
const SWAPPED: u64 = 32;

/// A share is judged when at least one second in so many had something to share.
const FEW_SECONDS: u64 = 10;

/// Requests of a second that a promise holds for.
#[derive(Clone, Copy, Default, Debug)]
struct Second {
    judged: u64,
    late: u64,
    /// A late request waited all second.
    stuck: bool,
}

/// Seconds of one part of an objective.
#[derive(Clone, Copy, Default, Debug)]
pub(in super::super) struct Part {
    /// Seconds in which there was something to judge.
    pub(in super::super) seconds: u64,
    /// Seconds among them that were missed.
    pub(in super::super) missed: u64,
    /// Seconds that were the device's own.
    pub(in super::super) devices: u64,
    now: Second,
}

impl Part {
    fn judge(&mut self, due: Nanos, answered: Nanos, start: Nanos) {
        let late = answered > due;
        // One that is late counts in the second of its due time and in that of its answer.
        debug_assert!(answered >= start);
        self.now.judged += 1;
        self.now.late += u64::from(late);
    }

    fn waits(&mut self, due: Nanos, start: Nanos, end: Nanos) {
        if due < end {
            self.now.judged += 1;
            self.now.late += 1;
            self.now.stuck |= due <= start;
        }
    }

    fn end_second(&mut self, (counts, devices_own): (bool, bool), keeps: fn(&Second) -> bool) {
        let second = core::mem::take(&mut self.now);
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

    /// True when at least 99 % of the seconds were kept; `None`: nothing was judged.
    pub(in super::super) fn is_kept(&self) -> Option<bool> {
        (self.seconds > 0).then_some(self.missed * 100 <= self.seconds)
    }
}

/// Share of device time in the seconds in which a VM had something waiting all the time.
#[derive(Clone, Copy, Default, Debug)]
struct ShareTally {
    seconds: u64,
    had: f64,
    due: f64,
    total: f64,
}

/// Times of a second in which something of a VM waited for the scheduler.
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

    /// Whether they cover 95 % of a second.
    fn is_all_second(&mut self) -> bool {
        self.0.sort_unstable();
        let (mut covered, mut end) = (Nanos::ZERO, Nanos::ZERO);
        for &(from, to) in &self.0 {
            let from = from.max(end);
            covered += to.since(from);
            end = end.max(to);
        }
        covered >= Nanos::from_millis(950)
    }
}

/// Judge of one VM.
pub(in super::super) struct VmJudge {
    objective: Objective,
    shares: bool,
    weighted: bool,
    blocking: Nanos,
    floor: Option<DueTimes>,
    target: Option<DueTimes>,
    envelope: Option<DueTimes>,
    limits: Option<Limits>,
    /// Rate that a target is not to be beyond.
    target_cap: Option<Limits>,
    /// Kept and missed seconds.
    pub(in super::super) floor_part: Part,
    pub(in super::super) latency_part: Part,
    pub(in super::super) limit_part: Part,
    share: ShareTally,
    /// Latencies at the scheduler since the warm-up; `None` before.
    times: Times,
    counted: Counted,
    counted_second: Counted,
    /// When something of it waited for the scheduler in this second.
    waited: Waited,
    ends: [[u64; STREAMS]; 2],
    turn: [usize; 2],
}

/// Requests that were answered.
#[derive(Clone, Copy, Default, Debug)]
pub(in super::super) struct Counted {
    pub(in super::super) requests: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) cost_ps: u128,
}

impl VmJudge {
    pub(super) fn new(
        objective: &Objective,
        (shares, weighted): (bool, bool),
        device: &PromiseDevice,
    ) -> VmJudge {
        let envelope = objective.latency.and(DueTimes::new(&objective.reservation));
        VmJudge {
            objective: *objective,
            shares,
            weighted,
            blocking: device.blocking,
            floor: DueTimes::new(&objective.reservation),
            target: DueTimes::new(&objective.target),
            envelope,
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

    /// Takes a request that arrives.
    pub(super) fn arrived(&mut self, arrival: &Arrival, profile: &Profile) -> Request {
        let (at, len) = (arrival.at, arrival.len);
        let flush = arrival.op == Op::Flush;
        // A floor below a target is met with it.
        let due = match (&mut self.target, &mut self.floor) {
            (Some(target), _) => Some(target.due(at, len)),
            (None, Some(floor)) => Some(floor.due(at, len)),
            (None, None) => None,
        };
        let within = !flush && self.envelope.as_mut().is_some_and(|it| it.takes(at, len));
        let bound = self.objective.latency.filter(|_| within);
        Request {
            vm: arrival.tenant,
            arrived: at,
            op: arrival.op,
            len,
            cost_ps: self.cost_ps(arrival, profile),
            floor_due: due.filter(|_| !flush).map(|due| due + self.blocking),
            latency_due: bound.map(|bound| at + bound),
        }
    }

    /// Device time of a request by the profile: in sequence if it begins near to where one of the
    /// VM's streams of its direction ended, because a drawn round trip swaps requests of a stream.
    fn cost_ps(&mut self, arrival: &Arrival, profile: &Profile) -> u64 {
        if !matches!(arrival.op, Op::Read | Op::Write) {
            return 0;
        }
        let direction = Direction::of(arrival.op);
        let way = direction as usize;
        let end = arrival.offset + u64::from(arrival.len);
        let near = SWAPPED * u64::from(arrival.len);
        let mut streams = self.ends[way].iter();
        let before = streams.position(|&end| end.abs_diff(arrival.offset) <= near);
        let access = match before {
            Some(stream) => {
                let last = &mut self.ends[way][stream];
                *last = end.max(*last);
                Access::Sequential
            }
            None => {
                let turn = self.turn[way];
                self.ends[way][turn] = end;
                self.turn[way] = (turn + 1) % STREAMS;
                Access::Random
            }
        };
        profile.time_ps(direction, access, arrival.len)
    }

    /// Takes the answer to a request, in the second that began at `start`.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        (at, device): (Nanos, Nanos),
        start: Nanos,
    ) {
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
        second.bytes += u64::from(request.len);
        second.cost_ps += u128::from(request.cost_ps);
        if request.op != Op::Flush {
            self.times.took(at.since(request.arrived));
        }
    }

    /// Takes note of a request that waits at the end of a second.
    pub(super) fn waits(&mut self, request: &Request, start: Nanos, end: Nanos) {
        self.waited.add(request.arrived.max(start), end);
        if let Some(due) = request.floor_due {
            self.floor_part.waits(due, start, end);
        }
        if let Some(due) = request.latency_due {
            self.latency_part.waits(due, start, end);
        }
    }

    /// Ends a second. `counts`: the warm-up is over.
    pub(super) fn end_second(&mut self, counts: bool, devices_own: bool) {
        let how = (counts, devices_own);
        let beyond = self.target_cap.as_mut().map(Limits::end_second) == Some(false);
        self.floor_part.now.stuck |= beyond;
        self.floor_part.end_second(how, |second| second.late <= 1);
        let in_time = |second: &Second| second.late * 100 <= second.judged;
        self.latency_part.end_second(how, in_time);
        if let Some(limits) = &mut self.limits {
            let kept = limits.end_second();
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
            self.counted.bytes += second.bytes;
            self.counted.cost_ps += second.cost_ps;
        } else {
            self.times.clear();
        }
        self.waited.clear();
    }

    /// True if something of it waited for the scheduler all second, and it has a share by its
    /// weight alone: neither a limit nor a class nor the background decides what it has. A VM whose
    /// requests are all with the device has what it asked for.
    pub(super) fn waits_for_share(&mut self) -> bool {
        let by_weight = matches!(self.objective.priority, Priority::BestEffort(_));
        self.waited.is_all_second()
            && by_weight
            && self.shares
            && self.limits.is_none()
            && self.target.is_none()
    }

    /// Its claim on the device time of the second.
    pub(super) fn claim(&self) -> Claim {
        let second = &self.counted_second;
        let had = second.cost_ps as f64;
        let floor = &self.objective.reservation;
        let ops = floor
            .ops
            .map(|ops| ops.per_s as f64 / second.requests.max(1) as f64);
        let bytes = floor
            .bytes_per_s
            .map(|per_s| per_s as f64 / second.bytes.max(1) as f64);
        let part = match (ops, bytes) {
            (Some(ops), Some(bytes)) => ops.min(bytes),
            (ops, bytes) => ops.or(bytes).unwrap_or(0.0),
        };
        Claim {
            weight: f64::from(self.objective.weight),
            floor: had * part,
            had,
        }
    }

    /// Adds the device time that was due to it in the second, of `total` for all.
    pub(super) fn add_share(&mut self, due: f64, total: f64) {
        let had = self.counted_second.cost_ps as f64;
        let share = &mut self.share;
        share.seconds += 1;
        share.had += had;
        share.due += due;
        share.total += total;
    }

    /// Part of the device time that it had and that was due to it, 0 to 1, with the seconds that
    /// it was judged over; `None` if it has no weight of its own, or had to share in fewer than one
    /// in ten of all `seconds`.
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

    /// Requests answered since the warm-up.
    pub(in super::super) fn counted(&self) -> &Counted {
        &self.counted
    }
}

/// Limit that a target is not to be beyond in a second: it repays stalls at 1.1 times its rate.
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
