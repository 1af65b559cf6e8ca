//! Credit2 with turns for I/O: who is notified of ended I/O has a short turn soon, and pays for it.
//!
//! Credit2's order is fair over many milliseconds, but who wakes within the rate limit of whoever
//! runs is not looked at, and who also computes waits its turn among all that compute, whatever has
//! come in for it. Here, a vCPU is *due* that is notified while it does not run, or so late that it
//! is taken off its pCPU before it had `io_turn` for it. It
//!
//! - comes before others as if it had `lead` more credit, until it has run,
//! - takes a pCPU from somebody who has run for `io_rate_limit`, which looks again when that is
//!   over,
//! - and runs for `io_turn`, in which nobody takes the pCPU from it. After that its credit counts
//!   alone.
//!
//! Credit is burnt as ever and nobody is given more of it, so that shares of the processor are
//! those of Credit2: a turn is paid for by waiting later. `lead` is as far as anybody gets ahead by
//! turns. A guest that makes itself notifications gets its share in shorter pieces, and no more.

use super::credit2::credits::{Credits, Members, Plain, Renewal};
use super::credit2::{self, Credit2, MIN_TIMER, Params as Credit2Params};
use crate::machine::{Machine, VcpuId};
use crate::spec::{ParamGroup, ParamInfo, SchedulerInfo, SchedulerSpec};
use tidegate_core::time::Nanos;

/// Parameters of turns for I/O, beside those of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Those of the scheduler it stands on. `looks_again` is to be true.
    pub credit2: Credit2Params,
    /// How long a turn is.
    pub io_turn: Nanos,
    /// Who is due takes nobody's pCPU within this time.
    pub io_rate_limit: Nanos,
    /// How much more credit others may have who still come after somebody who is due.
    pub lead: Nanos,
}

/// Credit2 with turns for I/O, in the registry. The defaults are Xen's own constants: the shortest
/// time between two looks, twice, and the usual rate limit.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "Credit2 with short turns for vCPUs that are notified of ended I/O",
    source: "Tidegate; docs/vcpu.md, Turns for I/O",
    groups: &[credit2::PARAMS, OWN],
    build: |spec, machine| Box::new(IoTurns::scheduler(Params::of(spec), machine)),
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
            "time within which nobody is taken off a pCPU for a turn",
        ),
        ParamInfo::duration(
            "lead",
            Nanos::from_millis(1),
            (Nanos::ZERO, Nanos::SECOND),
            "others who have so much more credit still come after who is due",
        ),
    ],
};

impl Params {
    /// Parameters of a scheduler that declares them.
    pub fn of(spec: &SchedulerSpec) -> Params {
        Params {
            credit2: Credit2Params::of(spec),
            io_turn: spec.duration("io_turn"),
            io_rate_limit: spec.duration("io_rate_limit"),
            lead: spec.duration("lead"),
        }
    }

    /// Returns Credit2 with turns for I/O and these parameters.
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
    /// Those of the registry.
    fn default() -> Params {
        Params::of(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// Where a vCPU stands between a notification and the end of its turn.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Turn {
    /// It waits or is blocked, and has something to handle.
    is_due: bool,
    /// It runs, because it was due.
    is_on: bool,
    /// It was notified when it had run for so long.
    heard: Option<Nanos>,
}

/// The accounts of Credit2, and who has a turn.
#[derive(Clone, Debug)]
pub struct IoTurns {
    plain: Plain,
    params: Params,
    turns: Vec<Turn>,
}

impl IoTurns {
    /// Credit2 with turns for I/O, for this machine, whose vCPUs are all blocked.
    pub fn scheduler(params: Params, machine: &Machine) -> Credit2<IoTurns> {
        Credit2::with(params.credit2, IoTurns::new(params), machine)
    }

    /// Accounts without vCPUs.
    pub fn new(params: Params) -> IoTurns {
        IoTurns {
            plain: Plain::new(params.credit2.credit, MIN_TIMER),
            params,
            turns: Vec::new(),
        }
    }

    /// The credit of `v`, whatever it was notified of.
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
        match self.turns[v.at()].is_due {
            true => self.credit(v) + self.params.lead.0 as i64,
            false => self.credit(v),
        }
    }

    fn rate_limit(&self, running: VcpuId, waits: VcpuId, usual: Nanos) -> Nanos {
        if self.turns[running.at()].is_on {
            return self.params.io_turn;
        }
        match self.turns[waits.at()].is_due {
            true => self.params.io_rate_limit.min(usual),
            false => usual,
        }
    }

    fn turn(&self, v: VcpuId) -> Option<Nanos> {
        let is_on = self.turns[v.at()].is_on;
        is_on.then_some(self.params.io_turn)
    }

    fn began(&mut self, v: VcpuId) {
        let turn = &mut self.turns[v.at()];
        turn.is_on = std::mem::take(&mut turn.is_due);
    }

    fn goes_on(&mut self, v: VcpuId, ran: Nanos) {
        self.turns[v.at()].is_on &= ran < self.params.io_turn;
    }

    fn stopped(&mut self, v: VcpuId, ran: Nanos, could_run: bool) {
        let turn = &mut self.turns[v.at()];
        turn.is_on = false;
        let heard = turn.heard.take();
        let is_late = heard.is_some_and(|heard| ran < heard + self.params.io_turn);
        // It had no whole turn for it.
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
        let turn = &mut self.turns[v.at()];
        if ran.is_some() {
            turn.heard = ran;
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
        /// Whatever somebody is notified of, its credit is what Credit2's would be.
        #[test]
        fn credit_is_that_of_credit2(
            steps in prop::collection::vec((0_u32..3, 0_i64..3_000_000, 0_u32..5), 1..200),
        ) {
            let mut all = accounts(3);
            let mut plain = Plain::new(Nanos::from_millis(10), MIN_TIMER);
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
