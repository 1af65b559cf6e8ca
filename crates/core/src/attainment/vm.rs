//! Attainment of one VM.

use super::due_ring::{Due, RING_SECONDS};
use super::floor::Floor;
use super::latency::{self, BoundUse, Latency};
use super::limit::LimitJudge;
use super::part::{Cause, Part, PartAttainment, PartRecord, PartSeconds, PartState, Verdict};
use super::service::{Circumstances, divide};
use super::stalls::Stalls;
use super::{StateAtClose, second_of};
use tidegate_base::objective::Objective;
use tidegate_base::pace::FirstServed;
use tidegate_base::request::{Account, Lane};
use tidegate_base::time::Nanos;

/// Due times of a request by reservation, target and latency, and the stamp of its arrival: see
/// [`VmAttainment::stamp`]. Numbers alone, so that memory for slots that were never used stays
/// untouched.
pub(crate) type Dues = [u64; 4];

/// Maximum number of seconds without an event that are closed one by one: a day.
const CLOSED_ONE_BY_ONE: u32 = 24 * 3600;

/// True when requests are judged by an objective.
pub(super) fn is_judged(objective: &Objective) -> bool {
    let Objective {
        reservation,
        target,
        limit,
        latency,
        ..
    } = objective;
    !reservation.is_none() || !target.is_none() || !limit.is_none() || latency.is_some()
}

/// Judges and counts of a VM. At most 4 KiB.
#[derive(Clone)]
pub(super) struct VmAttainment {
    /// Second that runs.
    running: u32,
    /// Time at which the running second ends: looked at for every request, so it is not divided.
    ends: Nanos,
    /// Second that is not judged: counts were forgotten in the middle of it.
    unjudged: Option<u32>,
    /// Number of the objective that is judged.
    epoch: u64,
    reservation: Option<Floor>,
    target: Option<Floor>,
    latency: Option<Latency>,
    /// A target or a latency bound is judged.
    beyond_floor: bool,
    limit: Option<LimitJudge>,
    /// Longest blocking time of the device since the floors were promised, and the number of times
    /// that it was set for all by then.
    blocking: (Nanos, u32),
    /// Time that late requests of this second spent by cause: own limit, others, device.
    waits: [u64; 3],
    parts: [PartState; Part::ALL.len()],
}

const _: () = assert!(size_of::<VmAttainment>() <= 4096);

impl VmAttainment {
    /// Creates the attainment of a VM that was promised nothing yet.
    pub(super) fn new(second: u32) -> VmAttainment {
        VmAttainment {
            running: second,
            ends: end_of(second),
            unjudged: None,
            epoch: 0,
            reservation: None,
            target: None,
            latency: None,
            beyond_floor: false,
            limit: None,
            blocking: (Nanos::ZERO, 0),
            waits: [0; 3],
            parts: Default::default(),
        }
    }

    /// Judges another objective from now on, whose number is `epoch`.
    pub(super) fn set_objective(&mut self, now: Nanos, objective: &Objective, epoch: u64) {
        let Objective {
            reservation,
            target,
            limit,
            ..
        } = objective;
        let mut promise = |part: Part, text: Option<String>| {
            let number = text.map_or(0, |text| fingerprint(&text));
            let state = &mut self.parts[part as usize];
            let same = state.promise == number;
            state.promise(number);
            same
        };
        let rate =
            |rate: &tidegate_base::objective::Rate| (!rate.is_none()).then(|| rate.to_string());
        let same = [
            promise(Part::Reservation, rate(reservation)),
            promise(Part::Target, rate(target)),
            promise(Part::Latency, latency::text(objective)),
        ];
        if same.contains(&false) || self.epoch == 0 {
            // Requests that came under the objective before carry its number, and are judged by
            // neither.
            self.epoch = epoch;
            self.reservation = (!reservation.is_none()).then(|| Floor::new(reservation, now));
            self.target = (!target.is_none()).then(|| Floor::new(target, now));
            self.latency = Latency::new(objective, now);
            self.beyond_floor = self.target.is_some() || self.latency.is_some();
            self.blocking.0 = Nanos::ZERO;
        }
        let text = (!limit.is_none()).then(|| format!("{limit:?}"));
        if !promise(Part::Limit, text) {
            self.limit = (!limit.is_none()).then(|| LimitJudge::new(limit));
        }
    }

    /// Closes the seconds before `now`, if there are any.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        now: Nanos,
        state: impl FnOnce() -> StateAtClose,
        stalls: &Stalls,
    ) {
        if now >= self.ends {
            self.roll(now, state(), stalls);
        }
    }

    /// Closes the seconds before `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn roll(&mut self, now: Nanos, state: StateAtClose, stalls: &Stalls) {
        let second = second_of(now);
        let mut left = second.saturating_sub(self.running).min(CLOSED_ONE_BY_ONE);
        while left > 0 && !self.is_quiet() {
            let stalled = stalls.covers(self.running, now, state.device_busy);
            self.close(state, stalled);
            self.running += 1;
            left -= 1;
        }
        self.ends = end_of(second);
        let passed = second - self.running;
        if passed == 0 {
            return;
        }
        self.running = second;
        let rings = [
            self.reservation.as_mut().map(Floor::ring_mut),
            self.target.as_mut().map(Floor::ring_mut),
            self.latency.as_mut().map(Latency::ring_mut),
        ];
        for ring in rings.into_iter().flatten() {
            if left > 0 {
                ring.skip_to(second);
            } else {
                // A request hangs for more than a day: requests due further on count as due now.
                for _ in 0..passed.min(RING_SECONDS as u32) {
                    ring.close();
                }
                ring.run_in(second);
            }
        }
    }

    /// True when seconds may pass without anything to judge.
    fn is_quiet(&self) -> bool {
        let floor = |floor: &Option<Floor>| floor.as_ref().is_none_or(Floor::is_quiet);
        floor(&self.reservation)
            && floor(&self.target)
            && (self.latency.as_ref()).is_none_or(|latency| latency.ring().is_empty())
            && self.limit.as_ref().is_none_or(LimitJudge::is_idle)
    }

    fn close(&mut self, state: StateAtClose, stalled: bool) {
        let cause = self.cause(state);
        let second = self.running;
        let unjudged = self.unjudged == Some(second);
        let mut count = |part: Part, verdict: Verdict| {
            let verdict = match verdict {
                _ if unjudged => Verdict::Idle,
                // A stall explains late requests, but no I/Os beyond a limit.
                Verdict::Missed(_) if stalled && part != Part::Limit => Verdict::Stalled,
                other => other,
            };
            self.parts[part as usize].count(second, verdict);
        };
        if let Some(floor) = &mut self.reservation {
            count(Part::Reservation, floor.close(cause));
        }
        if let Some(floor) = &mut self.target {
            count(Part::Target, floor.close(cause));
        }
        if let Some(latency) = &mut self.latency {
            count(Part::Latency, latency.close(cause));
        }
        if let Some(limit) = &mut self.limit {
            let (verdict, beyond) = limit.close();
            count(Part::Limit, verdict);
            let worst = &mut self.parts[Part::Limit as usize].counts.worst;
            *worst = (*worst).max(beyond);
        }
        self.waits = [0; 3];
    }

    /// Cause of what was late in the running second.
    fn cause(&self, state: StateAtClose) -> Cause {
        let [own, others, device] = self.waits;
        match self.waits {
            // No late request was answered: the VM's current state is the only hint at the cause.
            [0, 0, 0] if state.regulated => Cause::OwnLimit,
            [0, 0, 0] if state.waits_for_others => Cause::Others,
            _ if own > others && own > device => Cause::OwnLimit,
            _ if others > device => Cause::Others,
            _ => Cause::Device,
        }
    }

    /// Returns the mark of a request that arrives: the objective that judges it in the lower half,
    /// the number of the VM's `answered` requests, modulo 2^32, in the upper half.
    #[inline(always)]
    fn stamp(&self, answered: u32) -> u64 {
        u64::from(answered) << 32 | self.epoch
    }

    /// Returns whether a request with this stamp came under the present objective.
    #[inline(always)]
    fn is_current(&self, stamp: u64) -> bool {
        stamp as u32 == self.epoch as u32
    }

    /// Counts a request that arrives. `device`: its blocking time, and how often that was set.
    /// `answered`: requests of the VM answered so far. Writes the request's due times into `dues`.
    #[inline(always)]
    pub(super) fn arrived(
        &mut self,
        (since, len): (Nanos, u32),
        device: (Nanos, u32),
        answered: u32,
        dues: &mut Dues,
    ) {
        self.blocking.0 = if self.blocking.1 == device.1 {
            self.blocking.0.max(device.0)
        } else {
            device.0
        };
        self.blocking.1 = device.1;
        let blocking = self.blocking.0;
        dues[3] = self.stamp(answered);
        // Without a rate the envelope has no bounds: every request is due from its arrival on.
        let mut from = since;
        if let Some(floor) = &mut self.reservation {
            let (tag, due) = floor.arrived(since, len, blocking);
            (from, dues[0]) = (tag, due.to_bits());
        }
        if self.beyond_floor {
            self.arrived_beyond_floor(since, len, blocking, from, dues);
        }
    }

    /// Counts a request for the target and the latency bound, which most VMs lack. `from`: time
    /// from which the reservation allows it.
    #[inline(never)]
    fn arrived_beyond_floor(
        &mut self,
        since: Nanos,
        len: u32,
        blocking: Nanos,
        mut from: Nanos,
        dues: &mut Dues,
    ) {
        if let Some(target) = &mut self.target {
            let (tag, due) = target.arrived(since, len, blocking);
            (from, dues[1]) = (tag, due.to_bits());
        }
        if let Some(latency) = &mut self.latency {
            dues[2] = latency.arrived(since, len, from).to_bits();
        }
    }

    /// Counts the answer to a request. Returns whether it was late by any part. `used`: requests by
    /// the part of their latency bound that they took.
    #[inline(always)]
    pub(super) fn answered(
        &mut self,
        now: Nanos,
        dues: &Dues,
        len: u32,
        used: &mut BoundUse,
    ) -> bool {
        let &[reservation, target, latency, stamp] = dues;
        if !self.is_current(stamp) {
            return false;
        }
        let mut is_late = false;
        if let Some(floor) = &mut self.reservation {
            let late = floor.answered(now, Due::from(reservation), len);
            is_late = self.parts[Part::Reservation as usize].counts.answered(late);
        }
        if self.beyond_floor {
            is_late |= self.answered_beyond_floor(now, [target, latency], len, (is_late, used));
        }
        is_late
    }

    /// Counts the answer for the target and the latency bound, with the due times of these.
    /// `floor_late`: it was late by the reservation.
    #[inline(never)]
    fn answered_beyond_floor(
        &mut self,
        now: Nanos,
        dues: [u64; 2],
        len: u32,
        (floor_late, used): (bool, &mut BoundUse),
    ) -> bool {
        let [target, latency] = dues.map(Due::from);
        let mut is_late = false;
        if let Some(floor) = &mut self.target {
            let late = floor.answered(now, target, len);
            is_late |= self.parts[Part::Target as usize].counts.answered(late);
        }
        if let Some(bound) = &mut self.latency {
            let late = bound.answered(now, (latency, len), floor_late, used);
            is_late |= self.parts[Part::Latency as usize].counts.answered(late);
        }
        is_late
    }

    /// Counts where the time of a late request went.
    #[cold]
    #[inline(never)]
    pub(super) fn blame(&mut self, dues: &Dues, account: &Account, circumstances: Circumstances) {
        let answered = (dues[3] >> 32) as u32;
        let times = divide(account, answered, circumstances);
        for (sum, time) in self.waits.iter_mut().zip(times) {
            *sum = sum.saturating_add(time);
        }
    }

    /// Takes back a request that was cancelled, as if it had never arrived.
    #[cold]
    #[inline(never)]
    pub(super) fn cancelled(&mut self, dues: &Dues, len: u32) {
        let &[reservation, target, latency, stamp] = dues;
        if !self.is_current(stamp) {
            return;
        }
        if let Some(floor) = &mut self.reservation {
            floor.withdraw(Due::from(reservation), len);
        }
        if let Some(floor) = &mut self.target {
            floor.withdraw(Due::from(target), len);
        }
        if let Some(bound) = &mut self.latency {
            bound.withdraw(Due::from(latency), len);
        }
    }

    /// Counts requests that go to the device for the first time.
    #[inline]
    pub(super) fn dispatched(&mut self, lane: Lane, first: FirstServed) {
        if let Some(limit) = &mut self.limit {
            limit.dispatched(lane, first);
        }
    }

    /// Counts a deadline transfer that is over, `late` after its deadline.
    pub(super) fn transfer_ended(&mut self, second: u32, late: Nanos) {
        let state = &mut self.parts[Part::Transfer as usize];
        // Each transfer is a promise of its own; together they are one part.
        state.promise(1);
        state.counts.requests += 1;
        state.counts.late += u64::from(late > Nanos::ZERO);
        state.counts.worst = state.counts.worst.max(late);
        state.count(
            second,
            match late {
                Nanos::ZERO => Verdict::Kept { asked_less: false },
                // A fixed cause: no account tells where a transfer's time went.
                _ => Verdict::Missed(Cause::Others),
            },
        );
    }

    /// Attainment of each part that is promised.
    pub(super) fn view(&self, second: u32) -> Vec<PartAttainment> {
        let best_effort = (self.latency.as_ref()).is_some_and(Latency::is_best_effort);
        self.promised()
            .map(|(part, state)| state.view(second, part, best_effort && part == Part::Latency))
            .collect()
    }

    /// Seconds of each part that were judged so far.
    pub(super) fn seconds(&self) -> [PartSeconds; Part::ALL.len()] {
        self.parts.each_ref().map(PartState::seconds)
    }

    /// Parts that are promised.
    fn promised(&self) -> impl Iterator<Item = (Part, &PartState)> {
        let parts = Part::ALL.into_iter().zip(&self.parts);
        parts.filter(|(_, state)| state.promise != 0)
    }

    /// Forgets counts and history; the running second, cut by `now`, is not judged.
    pub(super) fn reset(&mut self, now: Nanos) {
        let second = second_of(now);
        self.unjudged = (Nanos::from_secs(second.into()) < now).then_some(second);
        self.parts.iter_mut().for_each(PartState::reset);
    }

    /// Counts and history of each part that is promised.
    pub(super) fn export(&self, second: u32) -> Vec<PartRecord> {
        let promised = self.promised();
        promised
            .map(|(part, state)| state.export(second, part))
            .collect()
    }

    /// Continues with counts and history that were exported `ago` seconds ago.
    pub(super) fn import(&mut self, second: u32, ago: u32, records: &[PartRecord]) {
        for record in records {
            let state = &mut self.parts[record.part as usize];
            if record.part == Part::Transfer && state.promise == 0 {
                state.promise(1);
            }
            if state.promise != 0 {
                state.import(second, ago, record);
            }
        }
    }
}

/// Time at which a second ends. The last one never does.
fn end_of(second: u32) -> Nanos {
    match second {
        u32::MAX => Nanos::MAX,
        _ => Nanos::from_secs(u64::from(second) + 1),
    }
}

/// Hash of a promise's text, never 0 (FNV-1a, 64 bits), so that equal promises keep their counts
/// across restarts.
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}
