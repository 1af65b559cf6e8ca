//! Turns for I/O: Credit2 whose vCPUs, once notified of completed I/O, take a pCPU at once for a
//! short turn, at most once in a gap, and pay for it later.
//!
//! Credit2 is fair over many milliseconds, but ignores a vCPU that wakes within the rate limit of
//! the running one, and a vCPU that also computes waits its turn among all others that compute,
//! whatever I/O has completed for it. With turns, a vCPU is *due* if it is notified while it does
//! not run, or so late that it leaves its pCPU before it had `io_turn` for the event. A vCPU whose
//! last turn began less than `gap` ago becomes due when the gap is over, unless it runs before. A
//! due vCPU
//!
//! - is ordered as if it could run for `lead` longer, until it has run,
//! - preempts a vCPU that has run for `io_rate_limit`, but not one that has a turn itself,
//! - runs for `io_turn` without preemption, or until it has answered all its events; after that
//!   only its credit counts.
//!
//! ```text
//!  notified --> due, if the last turn began a gap ago --> has its turn --> runs by its credit
//!      |             ^                                     |
//!      +--> pending -+  (a timer, at the end of the gap)   +-- until io_turn, or all is answered
//! ```
//!
//! Credit is burnt as in Credit2 and no vCPU is given more, so shares of CPU time are those of
//! Credit2: a vCPU pays for a turn by waiting later. The lead is CPU time of the vCPU itself: a
//! light vCPU, which burns credit fast, leads by as much time as a heavy one. Debt is forgiven only
//! below what a lead allows, so that turns are always paid for. A guest that produces notifications
//! itself gets its share in shorter pieces, and no more.

use super::credit2::credits::{Credits, Members, PlainCredits, Renewal};
use super::credit2::{self, Credit2, MIN_TIMER, Params as Credit2Params};
use crate::machine::{Machine, VcpuId};
use crate::scheduler::Counts;
use crate::spec::{ParamGroup, ParamInfo, SchedulerInfo, SchedulerSpec};
use tidegate_core::time::Nanos;

/// Parameters of turns for I/O in addition to those of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Parameters of the underlying Credit2; `looks_again` should be `true`.
    pub credit2: Credit2Params,
    /// Length of a turn that does not end early.
    pub io_turn: Nanos,
    /// Shortest time between the beginnings of two turns of a vCPU.
    pub gap: Nanos,
    /// Minimum time that a vCPU runs before a due vCPU may preempt it.
    pub io_rate_limit: Nanos,
    /// CPU time of its own by which a due vCPU is ranked ahead.
    pub lead: Nanos,
    /// Ends a turn once the vCPU has answered all its events.
    pub ends_early: bool,
}

/// Registry entry of turns for I/O. A turn is as long as Xen's shortest time between two decisions,
/// and a gap as its rate limit.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "Credit2 with a short turn at once for a vCPU that is notified of ended I/O",
    source: "Tidegate; docs/vcpu-turns.md",
    old_names: &["credit2-io"],
    groups: &[credit2::PARAMS, OWN],
    build: |spec, machine| Box::new(IoTurns::scheduler(Params::from_spec(spec), machine)),
};

/// Name in the registry.
const NAME: &str = "io-turns";

const OWN: ParamGroup = ParamGroup {
    shared: None,
    params: &[
        credit2::looks_again(true),
        ParamInfo::duration(
            "io_turn",
            MIN_TIMER,
            (Nanos(1_000), Nanos::SECOND),
            "longest turn for I/O",
        ),
        ParamInfo::duration(
            "gap",
            Nanos::from_millis(1),
            (Nanos::ZERO, Nanos::SECOND),
            "shortest time between the beginnings of two turns of a vCPU",
        ),
        ParamInfo::duration(
            "io_rate_limit",
            Nanos::ZERO,
            (Nanos::ZERO, Nanos::SECOND),
            "minimum time that a vCPU runs before it may be preempted for a turn",
        ),
        ParamInfo::duration(
            "lead",
            Nanos::from_millis(10),
            (Nanos::ZERO, Nanos::SECOND),
            "CPU time of its own by which a vCPU that is due a turn is ranked ahead",
        ),
        ParamInfo::flag(
            "ends_early",
            true,
            "end a turn once the vCPU has answered all its events",
        ),
    ],
};

impl Params {
    /// Reads the parameters from a scheduler that declares them.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        Params {
            credit2: Credit2Params::from_spec(spec),
            io_turn: spec.duration("io_turn"),
            gap: spec.duration("gap"),
            io_rate_limit: spec.duration("io_rate_limit"),
            lead: spec.duration("lead"),
            ends_early: spec.flag("ends_early"),
        }
    }

    /// Returns the spec of turns for I/O with these parameters.
    pub fn spec(&self) -> SchedulerSpec {
        let spec = self.credit2.put(SchedulerSpec::new(&SCHEDULER));
        spec.with_all(&[
            ("io_turn", self.io_turn.0),
            ("gap", self.gap.0),
            ("io_rate_limit", self.io_rate_limit.0),
            ("lead", self.lead.0),
            ("ends_early", self.ends_early.into()),
        ])
    }
}

impl Default for Params {
    /// Defaults of the registry.
    fn default() -> Params {
        Params::from_spec(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// State of a vCPU between a notification and the end of its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn {
    /// Waits or is blocked, and has an event to handle.
    is_due: bool,
    /// Length of the turn in which it runs; `None`: it runs by its credit, or not at all.
    length: Option<Nanos>,
    /// Becomes due when its gap is over.
    is_pending: bool,
    /// End of the gap after the last turn.
    gap_ends: Nanos,
    /// Time that the vCPU had run when it was notified.
    notified_at: Option<Nanos>,
    /// Lead of a due vCPU, in credit.
    lead: i64,
}

/// Credit accounts of Credit2, and the turns of vCPUs.
#[derive(Clone, Debug)]
pub struct IoTurns {
    plain: PlainCredits,
    params: Params,
    turns: Vec<Turn>,
    /// Lower bound of the end of the next gap of a pending vCPU.
    next_gap_end: Nanos,
    begun: u64,
}

impl IoTurns {
    /// Creates turns for I/O for a machine whose vCPUs are all blocked.
    pub fn scheduler(params: Params, machine: &Machine) -> Credit2<IoTurns> {
        Credit2::with(params.credit2, IoTurns::new(params), machine)
    }

    /// Creates accounts without vCPUs.
    pub fn new(params: Params) -> IoTurns {
        IoTurns {
            plain: PlainCredits::new(params.credit2.credit, MIN_TIMER),
            params,
            turns: Vec::new(),
            next_gap_end: Nanos::MAX,
            begun: 0,
        }
    }

    /// Credit of `v` without the lead of a due vCPU.
    pub fn credit(&self, v: VcpuId) -> i64 {
        self.plain.rank(v)
    }

    /// Makes `v`, which does not run, due, or pending until its gap is over. Returns `true` if its
    /// rank has risen.
    fn notify(&mut self, now: Nanos, v: VcpuId) -> bool {
        let turn = &mut self.turns[v.index()];
        if turn.is_due {
            return false;
        }
        turn.is_due = now >= turn.gap_ends;
        turn.is_pending = !turn.is_due;
        if turn.is_pending {
            self.next_gap_end = self.next_gap_end.min(turn.gap_ends);
        }
        turn.is_due
    }
}

impl Credits for IoTurns {
    const NAME: &'static str = NAME;

    fn add(&mut self, queue: usize) {
        self.plain.add(queue);
        self.turns.push(Turn {
            is_due: false,
            length: None,
            is_pending: false,
            gap_ends: Nanos::ZERO,
            notified_at: None,
            lead: self.params.lead.0 as i64,
        });
    }

    fn weigh(&mut self, v: VcpuId, weight: u64, max_weight: u64) {
        // The lead is CPU time, which a lighter vCPU burns more credit for.
        let lead = u128::from(self.params.lead.0) * u128::from(max_weight);
        self.turns[v.index()].lead = (lead / u128::from(weight.max(1))) as i64;
    }

    fn rank(&self, v: VcpuId) -> i64 {
        let turn = &self.turns[v.index()];
        if turn.is_due {
            self.credit(v) + turn.lead
        } else {
            self.credit(v)
        }
    }

    fn rate_limit(&self, running: VcpuId, waits: VcpuId, usual: Nanos) -> Nanos {
        if let Some(length) = self.turns[running.index()].length {
            return length;
        }
        if self.turns[waits.index()].is_due {
            self.params.io_rate_limit.min(usual)
        } else {
            usual
        }
    }

    fn turn(&self, v: VcpuId) -> Option<Nanos> {
        self.turns[v.index()].length
    }

    fn began(&mut self, now: Nanos, v: VcpuId) {
        let turn = &mut self.turns[v.index()];
        // A vCPU that runs handles what it was notified of.
        turn.is_pending = false;
        // Being due ends here, so a vCPU leads at most once per notification.
        if std::mem::take(&mut turn.is_due) {
            turn.length = Some(self.params.io_turn);
            turn.gap_ends = now + self.params.gap;
            self.begun += 1;
        }
    }

    fn goes_on(&mut self, _now: Nanos, v: VcpuId, ran: Nanos) {
        let length = &mut self.turns[v.index()].length;
        *length = length.filter(|&length| ran < length);
    }

    fn stopped(&mut self, now: Nanos, v: VcpuId, ran: Nanos, could_run: bool) {
        let turn = &mut self.turns[v.index()];
        turn.length = None;
        let notified_at = turn.notified_at.take();
        let is_late = notified_at.is_some_and(|at| ran < at + self.params.io_turn);
        // The notification came less than a turn before the end, so the event may not be handled
        // yet.
        if could_run && is_late {
            self.notify(now, v);
        }
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        // Beyond Credit2's largest debt a vCPU may owe its lead.
        let floor = -(self.params.credit2.credit.0 as i64) - self.turns[v.index()].lead;
        self.plain.burn_to(v, amount, floor);
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.plain.compensate(v, amount);
    }

    fn renew(&mut self, _now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal {
        // As in Credit2, often enough that `next` has credit; its lead counts.
        let times = 1 + (-self.rank(next)).max(0) / self.params.credit2.credit.0 as i64;
        self.plain.reset(times, members.all);
        Renewal::Reset
    }

    fn io_event(&mut self, now: Nanos, v: VcpuId, ran: Option<Nanos>) -> bool {
        // A running vCPU handles the event itself; `stopped` decides whether it had the time.
        if ran.is_some() {
            self.turns[v.index()].notified_at = ran;
            return false;
        }
        self.notify(now, v)
    }

    fn io_answered(&mut self, v: VcpuId, ran: Nanos) -> bool {
        let turn = &mut self.turns[v.index()];
        turn.notified_at = None;
        if self.params.ends_early
            && let Some(length) = &mut turn.length
        {
            *length = ran.min(*length);
            return true;
        }
        false
    }

    fn next_raise(&self) -> Nanos {
        self.next_gap_end
    }

    fn raise_next(&mut self, now: Nanos) -> Option<VcpuId> {
        let mut pending = self.turns.iter_mut().zip(0..);
        let over = pending.find(|(turn, _)| turn.is_pending && turn.gap_ends <= now);
        if let Some((turn, v)) = over {
            turn.is_pending = false;
            turn.is_due = true;
            return Some(VcpuId(v));
        }
        let pending = self.turns.iter().filter(|turn| turn.is_pending);
        let next = pending.map(|turn| turn.gap_ends).min();
        self.next_gap_end = next.unwrap_or(Nanos::MAX);
        None
    }

    fn count(&self, counts: &mut Counts) {
        counts.turns += self.begun;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;
    const US: fn(u64) -> Nanos = Nanos::from_micros;

    fn accounts(vcpus: u32) -> IoTurns {
        let mut all = IoTurns::new(Params::default());
        (0..vcpus).for_each(|_| all.add(0));
        all
    }

    #[test]
    fn who_is_due_leads_until_it_runs_and_has_a_turn() {
        let mut all = accounts(2);
        let [io, other] = [0, 1].map(VcpuId);
        assert!(all.io_event(US(0), io, None));
        assert!(!all.io_event(US(0), io, None), "it is due already");
        assert_eq!(all.rank(io), all.rank(other) + 10 * MS);
        assert_eq!(all.rate_limit(other, io, US(1_000)), US(0));
        assert_eq!(all.rate_limit(io, other, US(1_000)), US(1_000));
        all.began(US(0), io);
        assert_eq!(all.rank(io), all.rank(other));
        assert_eq!(all.turn(io), Some(US(500)));
        assert_eq!(all.rate_limit(io, other, US(1_000)), US(500));
        all.goes_on(US(499), io, US(499));
        assert_eq!(all.turn(io), Some(US(500)));
        all.goes_on(US(500), io, US(500));
        assert_eq!(all.turn(io), None);
    }

    #[test]
    fn a_turn_ends_when_all_is_answered() {
        let mut all = accounts(1);
        let v = VcpuId(0);
        assert!(!all.io_answered(v, US(40)), "it has no turn");
        all.io_event(US(0), v, None);
        all.began(US(0), v);
        assert!(all.io_answered(v, US(40)));
        assert_eq!(all.turn(v), Some(US(40)));
        all.goes_on(US(40), v, US(40));
        assert_eq!(all.turn(v), None);
    }

    #[test]
    fn the_next_turn_begins_a_gap_after_the_last_at_the_soonest() {
        let mut all = accounts(1);
        let v = VcpuId(0);
        all.io_event(US(0), v, None);
        all.began(US(300), v);
        all.stopped(US(800), v, US(500), true);
        assert_eq!(all.next_raise(), Nanos::MAX);
        assert!(!all.io_event(US(900), v, None));
        assert_eq!(all.rank(v), 10 * MS);
        // A gap of 1 ms from the beginning of the turn at 300 us.
        assert_eq!(all.next_raise(), US(1_300));
        assert_eq!(all.raise_next(US(1_299)), None);
        assert_eq!(all.raise_next(US(1_300)), Some(v));
        assert_eq!(all.raise_next(US(1_300)), None);
        assert_eq!((all.rank(v), all.next_raise()), (20 * MS, Nanos::MAX));
        // Once the gap is over, a notification raises at once.
        all.began(US(1_300), v);
        all.stopped(US(1_400), v, US(100), true);
        assert!(all.io_event(US(2_300), v, None));
    }

    #[test]
    fn who_runs_before_its_gap_is_over_is_not_due_after_it() {
        let mut all = accounts(1);
        let v = VcpuId(0);
        all.io_event(US(0), v, None);
        all.began(US(0), v);
        all.stopped(US(500), v, US(500), true);
        all.io_event(US(600), v, None);
        all.began(US(700), v);
        assert_eq!(all.turn(v), None, "it runs by its credit");
        assert_eq!(all.raise_next(US(1_000)), None);
    }

    #[test]
    fn the_lead_is_cpu_time_of_the_vcpu() {
        let mut all = accounts(2);
        let [light, heavy] = [0, 1].map(VcpuId);
        all.weigh(light, 64, 256);
        all.weigh(heavy, 256, 256);
        assert!([light, heavy].iter().all(|&v| all.io_event(US(0), v, None)));
        // 10 ms of CPU time burn 40 ms of credit at a quarter of the largest weight.
        assert_eq!(all.rank(light), 50 * MS);
        assert_eq!(all.rank(heavy), 20 * MS);
        all.burn(light, 70 * MS);
        // The debt of a lead is kept.
        assert_eq!(all.credit(light), -50 * MS);
    }

    #[test]
    fn who_was_notified_too_late_is_due_again_if_it_could_go_on() {
        for (heard, could_run, is_due) in
            [(600, true, true), (500, true, false), (600, false, false)]
        {
            let mut all = accounts(1);
            let v = VcpuId(0);
            all.began(US(0), v);
            assert!(!all.io_event(US(heard), v, Some(US(heard))));
            assert_eq!(all.rank(v), 10 * MS, "it runs");
            all.stopped(US(1_000), v, US(1_000), could_run);
            assert_eq!(all.rank(v) > 10 * MS, is_due, "{heard} {could_run}");
        }
    }

    proptest! {
        /// Credit equals that of Credit2 with debts down to a lead more, whatever notifications
        /// arrive.
        #[test]
        fn credit_is_that_of_credit2(
            steps in prop::collection::vec((0_u32..3, 0_i64..3_000_000, 0_u32..5), 1..200),
        ) {
            let mut all = accounts(3);
            let mut plain = PlainCredits::new(Nanos::from_millis(10), MIN_TIMER);
            (0..3).for_each(|_| plain.add(0));
            let vcpus = [0, 1, 2].map(VcpuId);
            let members = Members { queue: 0, all: &vcpus, is_runnable: &|_| true };
            let mut now = Nanos::ZERO;
            for (v, ran, what) in steps {
                let v = VcpuId(v);
                now += Nanos(ran as u64);
                match what {
                    0 => drop(all.io_event(now, v, None)),
                    1 => drop(all.io_event(now, v, Some(Nanos(ran as u64)))),
                    2 => all.began(now, v),
                    3 => all.stopped(now, v, Nanos(ran as u64), true),
                    _ => {}
                }
                while all.raise_next(now).is_some() {}
                all.burn(v, ran);
                plain.burn_to(v, ran, -20 * MS);
                // A lead counts for the number of resets, so only vCPUs without one are compared.
                if all.rank(v) <= 0 && all.rank(v) == all.credit(v) {
                    all.renew(now, v, &members);
                    plain.renew(now, v, &members);
                }
                for v in vcpus {
                    prop_assert_eq!(all.credit(v), plain.rank(v));
                    let lead = all.rank(v) - plain.rank(v);
                    prop_assert!(lead == 0 || lead == 10 * MS);
                }
            }
        }
    }
}
