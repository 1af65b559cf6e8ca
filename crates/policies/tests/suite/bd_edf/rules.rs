//! Model of BD-EDF's rules that scans all waiting units, and tests of the dispatcher against it.

use crate::common::lab::{self, GUESTS, Lab, LabConfig, Model, deadline_starts};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::request::{DeviceIo, IoId, Lane, Op, ReqId, VmId};
use tidegate_core::roles::Waits;
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_core::view::Unit;
use tidegate_policies::policy::PolicySpec;

#[derive(Clone, Copy, Debug)]
struct Params {
    from: DeadlineFrom,
    margin: Nanos,
    default: Nanos,
    max_size: u64,
    rate: u64,
    max_wait: Nanos,
    promote: Nanos,
    bound_waits: bool,
    deep_queue: bool,
    /// `true`: a batch goes on with the next of the sorted queue alone.
    next: bool,
    /// Positioning time of the device.
    positioning: Nanos,
}

impl Params {
    fn spec(&self, name: &str) -> PolicySpec {
        let mut spec = policy(name);
        for (name, value) in [
            ("deadline_from", self.from as u64),
            ("margin", self.margin.0),
            ("default_latency", self.default.0),
            ("best_effort_latency", self.default.0),
            ("max_size", self.max_size),
            ("transfer_rate", self.rate),
            ("max_wait", self.max_wait.0),
            ("promote_background_after", self.promote.0),
            ("bound_waits", self.bound_waits.into()),
            ("deep_queue", self.deep_queue.into()),
            ("batch_order", self.next.into()),
        ] {
            spec.set(name, value).expect("in range");
        }
        spec
    }

    fn transfer(&self, bytes: u64) -> Nanos {
        Nanos((bytes * SECOND).div_ceil(self.rate))
    }
}

#[derive(Clone, Copy)]
struct Last {
    vm: VmId,
    lane: Lane,
    end: u64,
}

/// I/O in flight with its deadline, if it has one, and its bytes.
struct Flying {
    id: IoId,
    due: Option<Nanos>,
    bytes: u64,
}

/// Unit that the rules expect next.
#[derive(Clone, Copy)]
struct Picked {
    id: ReqId,
    suitable: bool,
    /// Position of a background unit in its batch.
    batch: u32,
    due: Option<Nanos>,
}

/// Model that scans all waiting units for each pick.
struct Scan {
    params: Params,
    last: Option<Last>,
    batch: u32,
    went: Nanos,
    idle_since: Option<Nanos>,
    waiting: bool,
    /// First unit of the last VM that came during the wait.
    came: Option<ReqId>,
    waits: Waits,
    flying: Vec<Flying>,
    /// For each guest the end of its last I/O, until its next request comes, and its mean think
    /// time.
    thoughts: [(Option<Nanos>, Option<u64>); GUESTS],
    picked: Option<Picked>,
    /// Time until which the device is kept idle, and the latest time until which it may be.
    until: Option<(Nanos, Nanos)>,
}

fn is_background(guest: usize) -> bool {
    guest >= 4
}

/// Maps a weight to a latency bound in ms; one in eight guests has none.
fn latency(weight: u32) -> Option<Nanos> {
    (!weight.is_multiple_of(8)).then(|| Nanos::from_millis(weight as u64))
}

fn moves(op: Op, len: u32) -> u64 {
    match op {
        Op::Read | Op::Write => len.into(),
        _ => 0,
    }
}

impl Scan {
    fn new(params: Params) -> Scan {
        Scan {
            params,
            last: None,
            batch: 0,
            went: Nanos::ZERO,
            idle_since: None,
            waiting: false,
            came: None,
            waits: Waits::default(),
            flying: Vec::new(),
            thoughts: [(None, None); GUESTS],
            picked: None,
            until: None,
        }
    }

    fn due(&self, lab: &Lab, vm: VmId, start: Nanos) -> Nanos {
        let promised = lab.driver.engine.vms().objective(vm).latency;
        start + promised.unwrap_or(self.params.default) - self.params.margin
    }

    fn due_of(&self, lab: &Lab, unit: &Unit) -> Nanos {
        self.due(lab, unit.vm, lab.deadline_start(unit, self.params.from))
    }

    fn batches(&self) -> bool {
        self.params.positioning > Nanos::ZERO || !self.params.bound_waits
    }

    fn heads(&self, lab: &Lab, background: bool) -> Vec<Unit> {
        let guests = (0..GUESTS).filter(|&g| is_background(g) == background);
        guests
            .filter_map(|g| Some(lab.unit(lab.head(g)?)))
            .collect()
    }

    /// Returns the unit with the earliest deadline among the heads of VMs.
    fn head(&self, lab: &Lab) -> Option<(Nanos, Unit)> {
        let heads = self.heads(lab, false).into_iter();
        let due = heads.map(|unit| (self.due_of(lab, &unit), unit));
        due.min_by_key(|(due, unit)| (*due, unit.seq))
    }

    /// Returns all waiting units of VMs or of the background, each with `true` if its gate is open.
    fn all(&self, lab: &Lab, background: bool) -> Vec<(Unit, bool)> {
        let of = lab.waiting.iter();
        let of = of.filter(|&&(_, guest)| is_background(guest) == background);
        let unit = |&(id, guest): &(ReqId, usize)| {
            let unit = lab.unit(id);
            (unit, lab.open(guest, unit.op.lane()))
        };
        of.map(unit).collect()
    }

    fn suitable(&self, lab: &Lab) -> Option<Unit> {
        let last = self.last?;
        let all = self.all(lab, false);
        let open = || all.iter().filter(|(_, open)| *open).map(|(unit, _)| *unit);
        let continues = open().filter(|unit| unit.addr == last.end && !self.params.next);
        let order = |unit: &Unit| (unit.op.lane().index(), unit.id.index());
        if let Some(unit) = continues.min_by_key(order) {
            return Some(unit);
        }
        if self.params.next {
            if let Some(came) = open().find(|unit| Some(unit.id) == self.came) {
                return Some(came);
            }
            // Shut gates count here: the next unit is what it is.
            let ahead = all.iter().filter(|(unit, _)| unit.addr >= last.end);
            let (next, open) = ahead.min_by_key(|(unit, _)| (unit.addr, order(unit)))?;
            let own = next.vm == last.vm || next.addr == last.end;
            return (own && *open).then_some(*next);
        }
        let own = || open().filter(|unit| unit.vm == last.vm);
        // A unit is separated from the last end if another VM's unit of the same lane is between
        // them.
        let separates = |unit: &Unit, other: &Unit| {
            let between = if unit.addr < last.end {
                (unit.addr..last.end).contains(&other.addr)
            } else {
                (last.end..unit.addr).contains(&other.addr)
            };
            between && other.vm != unit.vm && other.op.lane() == unit.op.lane()
        };
        let near = own().filter(|unit| !all.iter().any(|(other, _)| separates(unit, other)));
        let nearest = near.min_by_key(|unit| {
            let (back, slot) = (unit.addr < last.end, unit.id.index() as i64);
            let slot = if back { -slot } else { slot };
            (
                unit.addr.abs_diff(last.end),
                back,
                unit.op.lane().index(),
                slot,
            )
        });
        nearest.or_else(|| own().min_by_key(|unit| unit.seq))
    }

    fn next_background(&self, lab: &Lab, promoted: bool) -> Option<Picked> {
        if !self.flying.is_empty() && self.params.positioning > Nanos::ZERO {
            return None;
        }
        let oldest = self
            .heads(lab, true)
            .into_iter()
            .min_by_key(|unit| unit.seq)?;
        let goes_on = self.batches() && (1..16).contains(&self.batch) && !promoted;
        let last = self.last.filter(|_| goes_on);
        let all = self.all(lab, true);
        // Where the next of a lane may not go, the batch does not go on there.
        let next = last.and_then(|last| {
            let of_lane = Lane::ALL.map(|lane| {
                let behind = all
                    .iter()
                    .filter(|(unit, _)| unit.op.lane() == lane && unit.addr >= last.end);
                let first = behind.min_by_key(|(unit, _)| (unit.addr, unit.id.index()))?;
                first.1.then_some(first.0)
            });
            of_lane.into_iter().flatten().min_by_key(|unit| unit.addr)
        });
        Some(Picked {
            id: next.unwrap_or(oldest).id,
            suitable: false,
            batch: if next.is_some() { self.batch + 1 } else { 1 },
            due: None,
        })
    }

    /// Returns the pick of a VM's unit, or `None` if it does not fit beside the I/Os in flight.
    fn pick(&self, lab: &Lab, unit: Unit, due: Nanos, suitable: bool) -> Option<Picked> {
        if !self.flying.is_empty() && self.params.positioning > Nanos::ZERO {
            let in_flight = self.flying.iter().filter_map(|f| f.due);
            let earliest = in_flight.fold(due, Nanos::min);
            let bytes = self.flying.iter().map(|f| f.bytes).sum::<u64>() + unit.len as u64;
            let each = self.params.positioning.0 * (self.flying.len() as u64 + 1);
            if lab.driver.now + Nanos(each) + self.params.transfer(bytes) > earliest {
                return None;
            }
        }
        Some(Picked {
            id: unit.id,
            suitable,
            batch: 0,
            due: Some(self.due_of(lab, &unit)),
        })
    }

    /// Returns the time until which the last unit's VM is waited for.
    fn wait(&self, lab: &Lab, latest: Nanos) -> Option<Nanos> {
        let (last, since) = (self.last?, self.idle_since?);
        let guest = lab.guests.iter().position(|g| g.vm == last.vm)?;
        if is_background(guest) || !lab.open(guest, last.lane) || !self.flying.is_empty() {
            return None;
        }
        let mut until = latest;
        if self.params.max_wait > Nanos::ZERO {
            until = until.min(since + self.params.max_wait);
        }
        if self.params.bound_waits {
            if self.thoughts[guest].1 > Some(self.params.positioning.0) {
                return None;
            }
            until = until.min(since + self.params.positioning);
        }
        (until > lab.driver.now).then_some(until)
    }

    fn choose(&mut self, lab: &Lab) -> Option<Picked> {
        if !self.flying.is_empty() && !self.params.deep_queue {
            return None;
        }
        let oldest = self
            .heads(lab, true)
            .into_iter()
            .min_by_key(|unit| unit.seq);
        let promotion = oldest.map(|unit| unit.arrived.max(self.went) + self.params.promote);
        let promotion = promotion.filter(|_| self.params.promote > Nanos::ZERO);
        let Some((due, head)) = self.head(lab) else {
            return self.next_background(lab, promotion.is_some_and(|at| at <= lab.driver.now));
        };
        // A rare seek takes twice the average positioning time; the margin covers a part of it.
        let rare = if self.params.bound_waits {
            (2 * self.params.positioning.0).saturating_sub(self.params.margin.0)
        } else {
            0
        };
        let before = |bytes: u64| due - self.params.transfer(bytes) - Nanos(rare);
        // A background I/O costs a seek there and one back. Without room for both before the VM's
        // deadline the background has to wait as long again.
        let costs = self.params.bound_waits && self.params.positioning > Nanos::ZERO;
        let far = lab.driver.now + self.params.positioning + self.params.positioning;
        let promotion = if costs && far >= before(lab::MAX_IO.into()) {
            promotion.map(|at| at + self.params.promote)
        } else {
            promotion
        };
        if promotion.is_some_and(|at| at <= lab.driver.now) {
            return self.next_background(lab, true);
        }
        let latest = before(self.params.max_size);
        if self.batches() && lab.driver.now < latest {
            let suitable = self.suitable(lab);
            if let Some(unit) = suitable {
                let bytes = u64::from(unit.len);
                if lab.driver.now < before(bytes.max(self.params.max_size)) {
                    return self.pick(lab, unit, due, true);
                }
            } else if let Some(until) = self.wait(lab, latest) {
                self.waits.begun += u64::from(!self.waiting);
                self.waiting = true;
                self.until = Some((promotion.map_or(until, |at| at.min(until)), latest));
                return None;
            }
        }
        self.pick(lab, head, due, false)
    }
}

impl Model for Scan {
    fn reset(&mut self, lab: &Lab) {
        *self = Scan::new(self.params);
        for io in lab.in_flight() {
            let of_vm = !lab.driver.engine.view().is_background(io.vm);
            self.flying.push(Flying {
                id: io.id,
                due: of_vm.then(|| self.due(lab, io.vm, lab.driver.now)),
                bytes: moves(io.op, io.len),
            });
            self.last = Some(Last {
                vm: io.vm,
                lane: io.op.lane(),
                end: io.addr + io.len as u64,
            });
        }
    }

    fn added(&mut self, _lab: &Lab, guest: usize) {
        self.thoughts[guest] = (None, None);
    }

    fn weight_changed(&mut self, _lab: &Lab, _guest: usize) {}

    fn refresh(&mut self, lab: &Lab) {
        if self.head(lab).is_none() {
            (self.waiting, self.idle_since, self.came) = (false, None, None);
        }
        assert_eq!(lab.driver.engine.device().waits(), Some(self.waits));
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        self.until = None;
        self.picked = self.choose(lab);
        self.picked.map(|picked| picked.id)
    }

    fn started(&mut self, lab: &Lab, _guest: usize, io: &DeviceIo) {
        let picked = self.picked.take().expect("expected");
        self.waits.succeeded += u64::from(self.waiting && picked.suitable);
        (self.waiting, self.idle_since, self.came) = (false, None, None);
        self.batch = picked.batch;
        if picked.batch > 0 {
            self.went = lab.driver.now;
        }
        self.last = Some(Last {
            vm: io.vm,
            lane: io.op.lane(),
            end: io.addr + io.len as u64,
        });
        self.flying.push(Flying {
            id: io.id,
            due: picked.due,
            bytes: moves(io.op, io.len),
        });
    }

    fn idle(&mut self, lab: &Lab) {
        let may_go = [false, true].map(|b| self.all(lab, b).iter().any(|(_, open)| *open));
        if may_go == [false, false] || !self.flying.is_empty() {
            return;
        }
        // The device waits on purpose: never past the head's time, and somebody wakes it.
        let (until, latest) = self
            .until
            .expect("nothing else keeps an idle device waiting");
        assert!(until <= latest && until > lab.driver.now);
        let next = lab.driver.engine.next_timeout().expect("a wait has an end");
        assert!(next <= until, "{next} is after {until}");
    }

    fn arrived(&mut self, lab: &Lab, guest: usize) {
        let &(id, _) = lab.waiting.last().expect("it waits");
        if self.waiting && self.last.is_some_and(|l| l.vm == lab.guests[guest].vm) {
            self.came.get_or_insert(id);
        }
        let alone = lab.driver.engine.view().waiting(lab.guests[guest].vm) == 1;
        if let (Some(ended), mean) = self.thoughts[guest]
            && alone
        {
            let took = (lab.driver.now - ended)
                .0
                .min(2 * self.params.positioning.0);
            let mean = mean.map_or(took, |mean| mean - mean / 8 + took / 8);
            self.thoughts[guest] = (None, Some(mean));
        }
    }

    fn ending(&mut self, lab: &Lab, io: &DeviceIo) {
        self.flying.retain(|f| f.id != io.id);
        self.idle_since = self.head(lab).map(|_| lab.driver.now);
        match lab.guests.iter().position(|g| g.vm == io.vm) {
            Some(guest) => self.thoughts[guest].0 = Some(lab.driver.now),
            None if lab.driver.engine.vms().in_flight(io.vm) == 1 => self.forget(io.vm),
            None => {}
        }
    }

    fn removed(&mut self, lab: &Lab, vm: VmId) {
        if lab.driver.engine.vms().in_flight(vm) == 0 {
            self.forget(vm);
        }
    }
}

impl Scan {
    fn forget(&mut self, vm: VmId) {
        self.last = self.last.filter(|last| last.vm != vm);
    }
}

fn params() -> impl Strategy<Value = Params> {
    let ms = Nanos::from_millis;
    let some = |most: u64| prop_oneof![Just(0), 1..most];
    (
        (0u64..30, 20u64..300, 1u64..=64, 1u64..200),
        (some(20), some(100), some(12)),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        deadline_starts(),
    )
        .prop_map(
            move |((margin, default, kib, mb), (wait, promote, seek), flags, from)| Params {
                from,
                margin: ms(margin),
                default: ms(default),
                max_size: kib << 10,
                rate: mb * 1_000_000,
                max_wait: ms(wait),
                promote: ms(promote),
                bound_waits: flags.0,
                deep_queue: flags.1,
                next: flags.2,
                positioning: ms(seek),
            },
        )
}

oracle_test! {
    fn picks_and_waits_are_those_of_the_rules(params in params())
    policies: ["open+bd-edf", "token-bucket+bd-edf"],
    spec: |name| params.spec(name),
    weights: 1u32..200,
    steps: 600,
    cases: ProptestConfig::default().cases.max(64),
    config: |config| LabConfig {
        latency,
        background: is_background,
        positioning: params.positioning,
        ..config
    },
    model: |_: &LabConfig| Scan::new(params),
}
