//! Credit2 with turns for I/O: a vCPU that is notified of completed I/O soon gets a short turn and
//! pays for it later.
//!
//! Credit2 is fair over many milliseconds, but ignores a vCPU that wakes within the rate limit of
//! the running one, and a vCPU that also computes waits its turn among all others that compute,
//! whatever I/O has completed for it. With turns, a vCPU is *due* if it is notified while it does
//! not run, or so late that it leaves its pCPU before it had `io_turn` for the event. A due vCPU
//!
//! - is ordered as if it had `lead` more credit, until it has run,
//! - preempts a vCPU that has run for `io_rate_limit`, with an early decision at that time,
//! - runs for `io_turn` without preemption; after that only its credit counts.
//!
//! Credit is burnt as in Credit2 and no vCPU is given more, so shares of CPU time are those of
//! Credit2: a vCPU pays for a turn by waiting later. Turns put a vCPU ahead by at most `lead`. A
//! guest that produces notifications itself gets its share in shorter pieces, and no more.

use super::credit2::credits::{Credits, Members, PlainCredits, Renewal};
use super::credit2::{self, Credit2, MIN_TIMER, Params as Credit2Params};
use crate::machine::{Machine, VcpuId};
use crate::spec::{ParamGroup, ParamInfo, SchedulerInfo, SchedulerSpec};
use tidegate_core::time::Nanos;

/// Parameters of turns for I/O in addition to those of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Parameters of the underlying Credit2; `looks_again` should be `true`.
    pub credit2: Credit2Params,
    /// Length of a turn.
    pub io_turn: Nanos,
    /// Minimum time that a vCPU runs before a due vCPU may preempt it.
    pub io_rate_limit: Nanos,
    /// Credit added to the rank of a due vCPU.
    pub lead: Nanos,
}

/// Registry entry of Credit2 with turns for I/O. The defaults are Xen's constants: the shortest
/// time between two decisions for `io_turn` and `io_rate_limit`, the rate limit for `lead`.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "Credit2 with short turns for vCPUs that are notified of ended I/O",
    source: "Tidegate; docs/vcpu.md, Turns for I/O",
    groups: &[credit2::PARAMS, OWN],
    build: |spec, machine| Box::new(IoTurns::scheduler(Params::from_spec(spec), machine)),
};

/// Name in the registry.
const NAME: &str = "credit2-io";

const OWN: ParamGroup = ParamGroup {
    shared: None,
    params: &[
        credit2::looks_again(true),
        ParamInfo::duration(
            "io_turn",
            MIN_TIMER,
            (Nanos(1_000), Nanos::SECOND),
            "length of a turn for I/O",
        ),
        ParamInfo::duration(
            "io_rate_limit",
            MIN_TIMER,
            (Nanos::ZERO, Nanos::SECOND),
            "minimum time that a vCPU runs before it may be preempted for a turn",
        ),
        ParamInfo::duration(
            "lead",
            Nanos::from_millis(1),
            (Nanos::ZERO, Nanos::SECOND),
            "credit added to the rank of a vCPU that is due a turn",
        ),
    ],
};

impl Params {
    /// Reads the parameters from a scheduler that declares them.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        Params {
            credit2: Credit2Params::from_spec(spec),
            io_turn: spec.duration("io_turn"),
            io_rate_limit: spec.duration("io_rate_limit"),
            lead: spec.duration("lead"),
        }
    }

    /// Returns the spec of Credit2 with turns for I/O and these parameters.
    pub fn spec(&self) -> SchedulerSpec {
        let spec = self.credit2.put(SchedulerSpec::new(&SCHEDULER));
        spec.with_all(&[
            ("io_turn", self.io_turn.0),
            ("io_rate_limit", self.io_rate_limit.0),
            ("lead", self.lead.0),
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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Turn {
    /// Waits or is blocked, and has an event to handle.
    is_due: bool,
    /// Runs because it was due.
    is_on: bool,
    /// Time that the vCPU had run when it was notified.
    notified_at: Option<Nanos>,
}

/// Credit accounts of Credit2, and the turns of vCPUs.
#[derive(Clone, Debug)]
pub struct IoTurns {
    plain: PlainCredits,
    params: Params,
    turns: Vec<Turn>,
}

impl IoTurns {
    /// Creates Credit2 with turns for I/O, for a machine whose vCPUs are all blocked.
    pub fn scheduler(params: Params, machine: &Machine) -> Credit2<IoTurns> {
        Credit2::with(params.credit2, IoTurns::new(params), machine)
    }

    /// Creates accounts without vCPUs.
    pub fn new(params: Params) -> IoTurns {
        IoTurns {
            plain: PlainCredits::new(params.credit2.credit, MIN_TIMER),
            params,
            turns: Vec::new(),
        }
    }

    /// Credit of `v` without the lead of a due vCPU.
    pub fn credit(&self, v: VcpuId) -> i64 {
        self.plain.rank(v)
    }
}

impl Credits for IoTurns {
    const NAME: &'static str = NAME;

    fn add(&mut self, queue: usize) {
        self.plain.add(queue);
        self.turns.push(Turn::default());
    }

    fn rank(&self, v: VcpuId) -> i64 {
        if self.turns[v.index()].is_due {
            self.credit(v) + self.params.lead.0 as i64
        } else {
            self.credit(v)
        }
    }

    fn rate_limit(&self, running: VcpuId, waits: VcpuId, usual: Nanos) -> Nanos {
        if self.turns[running.index()].is_on {
            return self.params.io_turn;
        }
        if self.turns[waits.index()].is_due {
            self.params.io_rate_limit.min(usual)
        } else {
            usual
        }
    }

    fn turn(&self, v: VcpuId) -> Option<Nanos> {
        let is_on = self.turns[v.index()].is_on;
        is_on.then_some(self.params.io_turn)
    }

    fn began(&mut self, v: VcpuId) {
        let turn = &mut self.turns[v.index()];
        // Being due ends here, so a vCPU leads by `lead` at most once per notification.
        turn.is_on = std::mem::take(&mut turn.is_due);
    }

    fn goes_on(&mut self, v: VcpuId, ran: Nanos) {
        self.turns[v.index()].is_on &= ran < self.params.io_turn;
    }

    fn stopped(&mut self, v: VcpuId, ran: Nanos, could_run: bool) {
        let turn = &mut self.turns[v.index()];
        turn.is_on = false;
        let notified_at = turn.notified_at.take();
        let is_late = notified_at.is_some_and(|at| ran < at + self.params.io_turn);
        // The notification came less than a turn before the end, so the event may not be handled
        // yet.
        turn.is_due |= could_run && is_late;
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        self.plain.burn(v, amount);
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.plain.compensate(v, amount);
    }

    fn renew(&mut self, now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal {
        self.plain.renew(now, next, members)
    }

    fn io_event(&mut self, _now: Nanos, v: VcpuId, ran: Option<Nanos>) -> bool {
        let turn = &mut self.turns[v.index()];
        // A running vCPU handles the event itself; `stopped` decides whether it had the time.
        if ran.is_some() {
            turn.notified_at = ran;
            return false;
        }
        !std::mem::replace(&mut turn.is_due, true)
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
        assert!(all.io_event(Nanos::ZERO, io, None));
        assert!(!all.io_event(Nanos::ZERO, io, None), "it is due already");
        assert_eq!(all.rank(io), all.rank(other) + MS);
        assert_eq!(all.rate_limit(other, io, US(1_000)), US(500));
        assert_eq!(all.rate_limit(io, other, US(1_000)), US(1_000));
        all.began(io);
        assert_eq!(all.rank(io), all.rank(other));
        assert_eq!(all.turn(io), Some(US(500)));
        assert_eq!(all.rate_limit(io, other, US(1_000)), US(500));
        all.goes_on(io, US(499));
        assert_eq!(all.turn(io), Some(US(500)));
        all.goes_on(io, US(500));
        assert_eq!(all.turn(io), None);
    }

    #[test]
    fn who_was_notified_too_late_is_due_again_if_it_could_go_on() {
        for (heard, could_run, is_due) in
            [(600, true, true), (500, true, false), (600, false, false)]
        {
            let mut all = accounts(1);
            let v = VcpuId(0);
            all.began(v);
            assert!(!all.io_event(Nanos::ZERO, v, Some(US(heard))));
            assert_eq!(all.rank(v), 10 * MS, "it runs");
            all.stopped(v, US(1_000), could_run);
            assert_eq!(all.rank(v) > 10 * MS, is_due, "{heard} {could_run}");
        }
    }

    proptest! {
        /// Credit equals that of Credit2, whatever notifications arrive.
        #[test]
        fn credit_is_that_of_credit2(
            steps in prop::collection::vec((0_u32..3, 0_i64..3_000_000, 0_u32..5), 1..200),
        ) {
            let mut all = accounts(3);
            let mut plain = PlainCredits::new(Nanos::from_millis(10), MIN_TIMER);
            (0..3).for_each(|_| plain.add(0));
            let vcpus = [0, 1, 2].map(VcpuId);
            let members = Members { queue: 0, all: &vcpus, is_runnable: &|_| true };
            for (v, ran, what) in steps {
                let v = VcpuId(v);
                match what {
                    0 => drop(all.io_event(Nanos::ZERO, v, None)),
                    1 => drop(all.io_event(Nanos::ZERO, v, Some(Nanos(ran as u64)))),
                    2 => all.began(v),
                    3 => all.stopped(v, Nanos(ran as u64), true),
                    _ => {}
                }
                all.burn(v, ran);
                plain.burn(v, ran);
                if plain.rank(v) <= 0 {
                    all.renew(Nanos::ZERO, v, &members);
                    plain.renew(Nanos::ZERO, v, &members);
                }
                for v in vcpus {
                    prop_assert_eq!(all.credit(v), plain.rank(v));
                    let lead = all.rank(v) - plain.rank(v);
                    prop_assert!(lead == 0 || lead == MS);
                }
            }
        }
    }
}
