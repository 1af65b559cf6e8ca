//! Starvation bound by age: limits the number of I/Os that start before a lane's expired head.

use crate::checker::ledger::Ledger;
use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{Lane, Op, ReqId};
use tidegate_core::starvation::Expiry;
use tidegate_core::time::Nanos;

/// Number of I/Os within which an expired head is started, where it and the earlier requests of its
/// direction need `n` I/Os.
fn max_ios(expiry: &Expiry, lane: Lane, n: u64) -> u64 {
    match lane {
        // Reads yield to one batch of writes after each `writes_starved` batches of reads.
        Lane::Read => expiry.batch * (n + n.div_ceil(expiry.writes_starved)),
        Lane::Write => expiry.batch * n * (1 + expiry.writes_starved),
    }
}

/// Head of a lane.
#[derive(Clone, Copy, Debug)]
struct Head {
    id: ReqId,
    since: Nanos,
    /// Number of the I/O by which the head must have started; set once it has expired.
    until: Option<u64>,
}

/// Heads of all lanes whose gate is open.
#[derive(Debug)]
pub(super) struct Ages {
    expiry: Option<Expiry>,
    heads: Vec<Option<Head>>,
    /// Number of I/Os that have started.
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

    pub(super) fn reset(&mut self, expiry: Expiry) {
        self.expiry = Some(expiry);
        self.heads.fill(None);
    }

    pub(super) fn started(&mut self, engine: &Engine, ledger: &Ledger) -> Verdict {
        let (Some(expiry), view) = (self.expiry, engine.view()) else {
            return Ok(());
        };
        self.ios += 1;
        let (ios, now) = (self.ios, view.now());
        for slot in 0..view.vm_slots() {
            let vm = view.vm_at(slot);
            for lane in Lane::ALL {
                let head = view.lane_head(vm, lane);
                // Background processes have a bound of their own.
                let ours = view.gate_open(vm, lane) && !view.is_background(vm);
                let head = head.filter(|_| ours);
                let known = &mut self.heads[slot * Lane::ALL.len() + lane.index()];
                let Some(id) = head else {
                    *known = None;
                    continue;
                };
                // Another head than before: the time counts anew.
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
                    .get_or_insert_with(|| ios + max_ios(&expiry, lane, to_do(ledger, lane)));
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

/// Upper bound of the I/Os that all open requests of one direction need. The factor 2 allows for a
/// request that was sent in parts, failed in a merged I/O and is repeated whole.
fn to_do(ledger: &Ledger, lane: Lane) -> u64 {
    let block = ledger.config().device.physical_block as u64;
    let open = ledger.open.iter().map(|&n| &ledger.entries[n as usize]);
    let data = open.filter(|e| e.request.op != Op::Flush && e.request.op.lane() == lane);
    // One more than the quotient: a request may begin and end within blocks.
    data.map(|e| 2 * (e.request.len as u64 / block + 1)).sum()
}
