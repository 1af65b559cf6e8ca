//! Judge of promises: an oracle that sees nothing but arrivals and answers of requests.
//!
//! ```text
//!   World::take_requests --> Judge::second, once a second --> kept and missed seconds per part
//! ```
//!
//! A *floor* (reservation, target) gives request k the tag max(arrival, previous tag + 1 / rate);
//! it is on time when answered by its tag + 1 / rate + the device's blocking time. A second is
//! kept when all but one of its requests were on time. A *latency* holds for requests that arrive
//! within the reservation's rate; a second is kept when 99 % of them were in time. A request counts
//! in the second of its answer, and one that is late in every second between its due time and its
//! answer; a second throughout which a late request waits is missed. A *limit* is kept in a second
//! in which no more was answered than it allows in that second and the blocking time before it,
//! and one request. Seconds in which the device ended nothing for 100 ms are the device's: they
//! are counted apart.

mod due;
mod limits;
mod requests;
mod share;
mod vm;

pub(super) use requests::Requests;
use share::{Claim, shares};
pub(super) use vm::{Part, VmJudge};

use super::device::PromiseDevice;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_sim::device::RequestEvent;

/// Judge of all VMs of a device.
pub(super) struct Judge {
    device: PromiseDevice,
    vms: Vec<VmJudge>,
    requests: Requests,
    /// End of the device's last stall.
    stalled_until: Option<Nanos>,
    /// Seconds that were judged.
    seconds: u64,
}

impl Judge {
    /// Judge of VMs with these objectives. `true`: a background process, which has no share.
    pub(super) fn new(device: &PromiseDevice, objectives: &[(Objective, bool)]) -> Judge {
        let weighted = objectives
            .iter()
            .any(|(objective, _)| has_weight(objective));
        let vms = objectives.iter().map(|(objective, background)| {
            let weighted = weighted && has_weight(objective);
            VmJudge::new(objective, (*background, weighted), device)
        });
        Judge {
            device: device.clone(),
            vms: vms.collect(),
            requests: Requests::default(),
            stalled_until: None,
            seconds: 0,
        }
    }

    /// Judges the second that ends at `end`, by its events. `counts`: the warm-up is over.
    pub(super) fn second(&mut self, end: Nanos, events: &[RequestEvent], counts: bool) {
        let start = end.since(Nanos::SECOND);
        for event in events {
            match *event {
                RequestEvent::Arrived(arrival) => {
                    let vm = &mut self.vms[arrival.tenant];
                    let request = vm.arrived(&arrival, &self.device.profile);
                    self.requests.insert(arrival.slot, request);
                }
                RequestEvent::Answered { at, slot } => {
                    if let Some(request) = self.requests.remove(slot) {
                        self.vms[request.vm].answered(&request, at, start);
                    }
                }
                RequestEvent::Stalled { to, .. } => self.stalled_until = Some(to),
            }
        }
        for request in self.requests.iter() {
            self.vms[request.vm].waits(request, start, end);
        }
        let devices_own = self.stalled_until.take().is_some_and(|to| to > start);
        if counts {
            self.seconds += 1;
            if !devices_own {
                self.judge_shares();
            }
        }
        for vm in &mut self.vms {
            vm.end_second(counts, devices_own);
        }
    }

    /// Adds the second's share of every VM that had something waiting all the time.
    fn judge_shares(&mut self) {
        let asked: Vec<usize> = (0..self.vms.len())
            .filter(|&vm| self.vms[vm].asks_for_share())
            .collect();
        if asked.len() < 2 {
            return;
        }
        let claims: Vec<Claim> = asked.iter().map(|&vm| self.vms[vm].claim()).collect();
        let total: f64 = claims.iter().map(|claim| claim.had).sum();
        for (&vm, due) in asked.iter().zip(shares(&claims)) {
            self.vms[vm].add_share(due, total);
        }
    }

    /// Judged VMs, in the order of the scenario.
    pub(super) fn vms(&self) -> &[VmJudge] {
        &self.vms
    }

    /// Seconds that were judged.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds
    }
}

/// True if an objective names a share of its own.
fn has_weight(objective: &Objective) -> bool {
    objective.weight != Objective::DEFAULT_WEIGHT || objective.group.is_some()
}
