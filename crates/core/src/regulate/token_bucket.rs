//! Token bucket: limits in requests and bytes a second, for reads, writes and both together.
//!
//! Everything QEMU's throttling expresses (`bps`, `iops`, their `_rd` and `_wr`, `_max` and
//! `_max_length`, `iops_size`), on exact integers. Each limit is a [`Pacer`]:
//! a request may go while its due time is no later than now plus the burst tolerance, and then
//! moves it on by its whole cost, so a large request goes at once and is paid for afterwards.
//!
//! Without `burst` a limit is paced strictly: nothing is saved up while idle, and a late
//! dispatch is made good for `slack` (0.9 ms), or for longer where requests waited and 100 ms have
//! room for it (see [`RatePacer::spend_late`]): no 100 ms hold more than one request and 1 % above
//! the rate. With `burst` two pacers hold: the limit's own with a tolerance of burst rate x
//! length, and the burst rate's.
//!
//! Flushes pass freely and cost nothing, as in QEMU: durability must not wait for a limit.
//! Discards and zeroing count as one request without bytes, unless the device can only write
//! zeroes out.

use crate::facts::Facts;
use crate::objective::{Limit, Objective, Rate};
use crate::pace::{Pacer, RatePacer};
use crate::part::{Honours, PartInfo, SLACK};
use crate::request::{DeviceIo, Lane, Op, ReqId, VmId};
use crate::roles::{
    Consumed, Event, Footprint, Gate, Interests, Regulator, Reopened, Spent, Stage,
};
use crate::time::Nanos;

/// What the registry knows of it.
pub(crate) static PART: PartInfo<dyn Regulator> = PartInfo {
    name: "token-bucket",
    summary: "limits in requests and bytes a second, by direction, with bursts",
    params: &[SLACK],
    honours: TokenBucket::HONOURS,
    build: |params, _| Box::new(TokenBucket::new(Nanos(params.get("slack")))),
};

/// Total, reads, writes.
const SCOPES: usize = 3;
const TOTAL: usize = 0;

/// One limit: its own pace and, while a burst is allowed, the burst's.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    steady: RatePacer,
    /// How far the steady pace may be overdrawn: (requests, bytes).
    tolerance: (Nanos, Nanos),
    burst: RatePacer,
}

impl Bucket {
    fn new(limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) -> Bucket {
        let mut bucket = Bucket {
            steady: RatePacer::new(limit, now),
            tolerance: (Nanos::ZERO, Nanos::ZERO),
            burst: RatePacer::NONE,
        };
        bucket.set_burst(limit, burst, now);
        bucket
    }

    fn set_rate(&mut self, limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) {
        let fast = burst.map_or(&Rate::NONE, |(rate, _)| rate);
        let unchanged = self.tolerance == tolerance(per_s(limit), burst);
        if unchanged && self.steady.keeps(limit) && self.burst.keeps(fast) {
            return;
        }
        self.steady.pay_back();
        self.burst.pay_back();
        // First the burst at the old rate, then the rate: what is owed is kept in requests.
        let (ops, bytes) = tolerance(self.steady.per_s(), burst);
        self.steady.ops.shrink_tolerance(self.tolerance.0, ops, now);
        self.steady
            .bytes
            .shrink_tolerance(self.tolerance.1, bytes, now);
        self.steady.set_rate(limit, now);
        let bursting = self.burst;
        self.set_burst(limit, burst, now);
        for (was, burst, steady) in [
            (bursting.ops, &mut self.burst.ops, &mut self.steady.ops),
            (
                bursting.bytes,
                &mut self.burst.bytes,
                &mut self.steady.bytes,
            ),
        ] {
            match (was.is_set(), burst.is_set()) {
                // A burst that is taken away leaves what it let go last and was not paid for yet.
                (true, false) => steady.take_over(&was, now),
                // One that is new begins with what the limit let go last.
                (false, true) => burst.take_over(steady, now),
                _ => {}
            }
        }
    }

    fn set_burst(&mut self, limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) {
        let fast = burst.map_or(&Rate::NONE, |(rate, _)| rate);
        self.burst.set_rate(fast, now);
        self.tolerance = tolerance(per_s(limit), burst);
    }

    fn due(&self) -> Nanos {
        let ops = self.steady.ops.due() - self.tolerance.0;
        let bytes = self.steady.bytes.due() - self.tolerance.1;
        ops.max(bytes).max(self.burst.all_due())
    }

    fn spend(&mut self, io: &DeviceIo, bytes: u64, now: Nanos, slack: Nanos) {
        // While idle nothing is saved up beyond the tolerance, which `due` applies. With that, the
        // steady pace makes good what waited as it is.
        let asked = match self.burst.ops.is_set() {
            true => now,
            false => io.arrived,
        };
        let first = io.first_served();
        if self.steady.is_set() {
            self.steady.spend_late(bytes, first, [asked, now], slack);
        }
        if self.burst.is_set() {
            self.burst
                .spend_late(bytes, first, [io.arrived, now], slack);
        }
    }
}

/// Requests and bytes a second; 0: no rate.
fn per_s(rate: &Rate) -> (u64, u64) {
    (
        rate.ops.map_or(0, |o| o.per_s),
        rate.bytes_per_s.unwrap_or(0),
    )
}

/// How far steady rates in requests and bytes a second may be overdrawn with this burst.
fn tolerance(slow: (u64, u64), burst: Option<(&Rate, Nanos)>) -> (Nanos, Nanos) {
    let (rate, length) = burst.unwrap_or((&Rate::NONE, Nanos::ZERO));
    let fast = per_s(rate);
    (
        saved_up(slow.0, fast.0, length),
        saved_up(slow.1, fast.1, length),
    )
}

/// How long the steady rate takes to save up a burst of `length` at the fast rate.
fn saved_up(slow: u64, fast: u64, length: Nanos) -> Nanos {
    if slow == 0 || fast == 0 {
        return Nanos::ZERO;
    }
    let wait = fast as u128 * length.0 as u128 / slow as u128;
    Nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}

/// The regulator.
#[derive(Debug)]
pub struct TokenBucket {
    slack: Nanos,
    vms: Vec<Option<Box<[Bucket; SCOPES]>>>,
}

impl TokenBucket {
    pub(crate) const HONOURS: Honours = Honours {
        limit: true,
        limit_by_direction: true,
        burst: true,
        ..Honours::NONE
    };

    /// Late dispatches are made good for `slack`, or for longer where 100 ms have room.
    pub fn new(slack: Nanos) -> TokenBucket {
        TokenBucket {
            slack,
            vms: Vec::new(),
        }
    }

    fn set_vm(&mut self, now: Nanos, vm: VmId, objective: &Objective) {
        if self.vms.len() <= vm.index() {
            self.vms.resize_with(vm.index() + 1, || None);
        }
        let limit = &objective.limit;
        let scopes: [(&Rate, Option<(&Rate, Nanos)>); SCOPES] = [
            (
                &limit.total,
                limit.burst.as_ref().map(|b| (&b.total, b.length)),
            ),
            (
                &limit.read,
                limit.burst.as_ref().map(|b| (&b.read, b.length)),
            ),
            (
                &limit.write,
                limit.burst.as_ref().map(|b| (&b.write, b.length)),
            ),
        ];
        match &mut self.vms[vm.index()] {
            Some(buckets) => {
                for (bucket, (rate, burst)) in buckets.iter_mut().zip(scopes) {
                    bucket.set_rate(rate, burst, now);
                }
            }
            empty if *limit == Limit::NONE => *empty = None,
            empty => {
                *empty = Some(Box::new(
                    scopes.map(|(rate, burst)| Bucket::new(rate, burst, now)),
                ));
            }
        }
    }

    fn charge(&mut self, facts: &Facts, io: &DeviceIo) {
        let Some(Some(buckets)) = self.vms.get_mut(io.vm.index()) else {
            return;
        };
        let bytes = match io.op {
            Op::Flush => return,
            Op::Read | Op::Write => io.len as u64,
            Op::WriteZeroes if facts.device().spec.zeroes_are_writes => io.len as u64,
            Op::WriteZeroes | Op::Discard => 0,
        };
        for scope in [TOTAL, 1 + io.op.lane().index()] {
            buckets[scope].spend(io, bytes, facts.now(), self.slack);
        }
    }
}

impl Regulator for TokenBucket {
    fn stage(&self) -> Stage {
        Stage::Dispatch
    }

    fn interests(&self) -> Interests {
        Interests::STARTED.and(Interests::VMS)
    }

    fn gate(&self, facts: &Facts, unit: ReqId) -> Gate {
        let (vm, lane) = facts.vm_lane(unit);
        self.lane_gate(facts, vm, lane)
    }

    fn lane_gate(&self, facts: &Facts, vm: VmId, lane: Lane) -> Gate {
        let Some(Some(buckets)) = self.vms.get(vm.index()) else {
            return Gate::Pass;
        };
        let due = buckets[TOTAL].due().max(buckets[1 + lane.index()].due());
        if due <= facts.now() {
            Gate::Pass
        } else {
            Gate::Until(due)
        }
    }

    fn on_event(&mut self, facts: &Facts, event: &Event, reopen: &mut Reopened) {
        match *event {
            Event::Started(io) => self.charge(facts, io),
            Event::VmAdded(vm) => self.set_vm(facts.now(), vm, facts.objective(vm)),
            Event::VmChanged(vm) => {
                self.set_vm(facts.now(), vm, facts.objective(vm));
                reopen.push(vm);
            }
            Event::VmRemoved(vm) => {
                if let Some(buckets) = self.vms.get_mut(vm.index()) {
                    *buckets = None;
                }
            }
            _ => {}
        }
    }

    fn footprint(&self) -> Footprint {
        let vm = size_of::<Option<Box<()>>>() + size_of::<[Bucket; SCOPES]>();
        Footprint {
            vm,
            ..Footprint::default()
        }
    }

    fn consumed(&self, facts: &Facts, vm: VmId) -> Consumed {
        let mut consumed = Consumed::default();
        if let Some(Some(buckets)) = self.vms.get(vm.index()) {
            for (spent, bucket) in consumed.0.iter_mut().zip(buckets.iter()) {
                let (mut steady, mut burst) = (bucket.steady, bucket.burst);
                steady.pay_back();
                burst.pay_back();
                let (ops, bytes) = bucket.tolerance;
                *spent = [
                    spent_of(&steady.ops, &burst.ops, ops, facts.now()),
                    spent_of(&steady.bytes, &burst.bytes, bytes, facts.now()),
                ];
            }
        }
        consumed
    }

    fn adopt(&mut self, facts: &Facts, vm: VmId, consumed: &Consumed) {
        let Some(Some(buckets)) = self.vms.get_mut(vm.index()) else {
            return;
        };
        for ([ops, bytes], bucket) in consumed.0.iter().zip(buckets.iter_mut()) {
            let (steady, burst) = (&mut bucket.steady, &mut bucket.burst);
            adopt_one(
                ops,
                &mut steady.ops,
                &mut burst.ops,
                bucket.tolerance.0,
                facts.now(),
            );
            adopt_one(
                bytes,
                &mut steady.bytes,
                &mut burst.bytes,
                bucket.tolerance.1,
                facts.now(),
            );
        }
    }
}

fn spent_of(steady: &Pacer, burst: &Pacer, tolerance: Nanos, now: Nanos) -> Option<Spent> {
    let ahead = steady.due() - now;
    steady.is_set().then(|| Spent {
        owed: ahead - tolerance,
        saved: Some(tolerance - ahead),
        burst_owed: burst.due() - now,
    })
}

fn adopt_one(
    spent: &Option<Spent>,
    steady: &mut Pacer,
    burst: &mut Pacer,
    tolerance: Nanos,
    now: Nanos,
) {
    let spent = spent.unwrap_or_default();
    let used = tolerance - spent.saved.unwrap_or(Nanos::ZERO);
    steady.forget_before(now + spent.owed + used);
    burst.forget_before(now + spent.burst_owed);
}
