//! By deadlines: what must go next, where somebody's has come.

use super::arrival::Promise;
use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::facts::Facts;
use tidegate_core::request::{DeviceIo, Lane, Op, VmId};
use tidegate_core::time::Nanos;

/// Where deadlines lie, and from when on they are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// A request's time begins once no regulator holds it, not with its arrival.
    pub from_admission: bool,
    /// So much before the end of a VM's latency.
    pub margin: Nanos,
    /// The latency of a VM that was promised a rate alone.
    pub default_latency: Nanos,
    /// That of a VM that was promised nothing.
    pub best_effort_latency: Nanos,
    /// That of a background tenant; `None`: it has none, and is passed over.
    pub background_latency: Option<Nanos>,
    /// How long before a deadline nothing else may go any more; `None`: never.
    pub before: Option<Nanos>,
    /// A background unit may go before VMs now and then.
    pub promotes: bool,
    /// The device may be left alone as long as it has an I/O in flight.
    pub may_drain: bool,
}

impl Deadlines {
    /// What is due first of all that may go, if nothing else may go before it now.
    pub(super) fn first(&self, engine: &Engine) -> Option<Promise> {
        let facts = engine.view();
        let vms = (0..facts.vm_slots()).map(|slot| facts.vm_at(slot));
        let heads = vms.filter_map(|vm| {
            let (lane, seq, start) = self.head(facts, vm)?;
            let due = self.due(facts, vm, start)?;
            Some((due, seq, vm, lane))
        });
        let (due, seq, vm, lane) = heads.min_by_key(|&(due, seq, ..)| (due, seq))?;
        let strict = self.before.is_none_or(|before| due - before <= facts.now());
        strict.then_some(Promise { vm, lane, seq })
    }

    /// This has gone: of the background only while no VM has anything that may go, where it is
    /// not promoted.
    pub(super) fn background_kept(&self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let facts = engine.view();
        let passed_over = self.background_latency.is_none() && !self.promotes;
        if io.op == Op::Flush || !facts.is_background(io.vm) || !passed_over {
            return Ok(());
        }
        let mut vms = facts.vms().filter(|&vm| !facts.is_background(vm));
        let waits = vms.find(|&vm| facts.has_head(vm));
        ensure!(
            Starvation,
            waits.is_none(),
            "{io:?} of the background went before {waits:?}"
        );
        Ok(())
    }

    fn due(&self, facts: &Facts, vm: VmId, start: Nanos) -> Option<Nanos> {
        if facts.is_background(vm) {
            return self.background_latency.map(|latency| start + latency);
        }
        let objective = facts.objective(vm);
        let otherwise = match objective.reservation.is_none() {
            true => self.best_effort_latency,
            false => self.default_latency,
        };
        Some(start + objective.latency.unwrap_or(otherwise) - self.margin)
    }

    /// What of a VM arrived first, of its lanes' first units, and from when on its deadline counts.
    fn head(&self, facts: &Facts, vm: VmId) -> Option<(Lane, u64, Nanos)> {
        let open = Lane::ALL.into_iter().filter(|&l| facts.gate_open(vm, l));
        let heads = open.filter_map(|lane| {
            let unit = facts.unit(facts.lane_head(vm, lane)?);
            let held = match self.from_admission {
                true => facts.held(unit.id),
                false => Nanos::ZERO,
            };
            Some((lane, unit.seq, unit.arrived + held))
        });
        heads.min_by_key(|&(_, seq, _)| seq)
    }
}
