//! A bound by age: once a lane's head has expired, so many I/Os may go before it.

use crate::checker::ledger::Ledger;
use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{Lane, Op, ReqId};
use tidegate_core::starvation::Expiry;
use tidegate_core::time::Nanos;

/// I/Os within which one is started that has expired, with `n` to do for it and those of its
/// direction that came before.
fn within(expiry: &Expiry, lane: Lane, n: u64) -> u64 {
    match lane {
        Lane::Read => expiry.batch * (n + n.div_ceil(expiry.writes_starved)),
        Lane::Write => expiry.batch * n * (1 + expiry.writes_starved),
    }
}

/// A lane's head, and since when it is known to be that.
#[derive(Clone, Copy, Debug)]
struct Head {
    id: ReqId,
    since: Nanos,
    /// Until how many I/Os it must have been started, once it has expired.
    until: Option<u64>,
}

/// The heads of all lanes whose gate is open.
#[derive(Debug)]
pub(super) struct Ages {
    expiry: Option<Expiry>,
    heads: Vec<Option<Head>>,
    /// I/Os that have started.
    ios: u64,
}

impl Ages {
    pub(super) fn new(slots: usize) -> Ages {
        Ages {
            expiry: None,
            heads: vec![None; slots * Lane::ALL.len()],
            ios: 0,
        }
    }

    pub(super) fn forget(&mut self, expiry: Expiry) {
        self.expiry = Some(expiry);
        self.heads.fill(None);
    }

    pub(super) fn started(&mut self, engine: &Engine, ledger: &Ledger) -> Verdict {
        let (Some(expiry), facts) = (self.expiry, engine.view()) else {
            return Ok(());
        };
        self.ios += 1;
        let (ios, now) = (self.ios, facts.now());
        for slot in 0..facts.vm_slots() {
            let vm = facts.vm_at(slot);
            for lane in Lane::ALL {
                let head = facts.lane_head(vm, lane);
                let ours = facts.gate_open(vm, lane) && !facts.is_background(vm);
                let head = head.filter(|_| ours);
                let known = &mut self.heads[slot * Lane::ALL.len() + lane.index()];
                let Some(id) = head else {
                    *known = None;
                    continue;
                };
                let Some(known) = known.as_mut().filter(|known| known.id == id) else {
                    *known = Some(Head {
                        id,
                        since: now,
                        until: None,
                    });
                    continue;
                };
                if now.since(known.since) < expiry.after[lane.index()] {
                    continue;
                }
                let until = *known
                    .until
                    .get_or_insert_with(|| ios + within(&expiry, lane, to_do(ledger, lane)));
                ensure!(
                    Starvation,
                    ios <= until,
                    "a {lane:?} of {vm:?} has expired, and {} I/Os have gone before it since its \
                     bound was reached",
                    ios - until
                );
            }
        }
        Ok(())
    }
}

/// I/Os to do for everything of one direction inside the engine, at most: what has gone in parts
/// may fail in company, and all of it come again.
fn to_do(ledger: &Ledger, lane: Lane) -> u64 {
    let block = ledger.config().device.physical_block as u64;
    let open = ledger.open.iter().map(|&n| &ledger.entries[n as usize]);
    let data = open.filter(|e| e.request.op != Op::Flush && e.request.op.lane() == lane);
    data.map(|e| 2 * (e.request.len as u64 / block + 1)).sum()
}
