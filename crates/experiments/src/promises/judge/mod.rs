//! Judge of promises: an oracle that sees the arrivals and answers of requests and their time at
//! the device, and nothing of the scheduler.
//!
//! ```text
//!   World::take_requests --> Judge::second, once a second --> kept and missed seconds per part
//! ```
//!
//! A *floor* (reservation, target) gives request k the tag max(arrival, previous tag + 1 / rate);
//! the request is on time if answered by its tag + 1 / rate + the device's blocking time. A second
//! is kept if all but one of its requests were on time. A *latency* holds for requests that arrive
//! within the reservation's rate; a second is kept if 99 % of them were in time. A request counts
//! in the second of its answer, and a late one in every second between its due time and its answer;
//! a second throughout which a late request waits is missed. A *limit* is kept in a second whose
//! answers exceed what it allows in that second and the blocking time before it by at most one
//! request. Seconds in which the device ended nothing for 100 ms are counted apart, as stalls of
//! the device.

mod due;
mod limits;
mod requests;
mod share;
mod vm;

pub(super) use requests::Requests;
use share::{Claim, shares};
pub(super) use vm::{Part, VmJudge};

use super::device::PromiseDevice;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::time::Nanos;
use tidegate_sim::device::RequestEvent;

/// Judge of all VMs of a device.
pub(super) struct Judge {
    device: PromiseDevice,
    vms: Vec<VmJudge>,
    requests: Requests,
    /// End of the device's last stall.
    stalled_until: Option<Nanos>,
    /// Number of judged seconds.
    seconds: u64,
}

impl Judge {
    /// Creates the judge of VMs with these objectives. `true`: the VM takes part in sharing; a
    /// background process and a VM that issues requests at a rate of its own do not.
    pub(super) fn new(device: &PromiseDevice, objectives: &[(Objective, bool)]) -> Judge {
        let vms = objectives.iter().map(|(objective, shares)| {
            let weighted = *shares && has_weight(objective);
            VmJudge::new(objective, (*shares, weighted), device)
        });
        Judge {
            device: device.clone(),
            vms: vms.collect(),
            requests: Requests::default(),
            stalled_until: None,
            seconds: 0,
        }
    }

    /// Judges the second that ends at `end` by its events. `counts`: the warm-up is over.
    pub(super) fn second(&mut self, end: Nanos, events: &[RequestEvent], counts: bool) {
        let start = end.since(Nanos::SECOND);
        for event in events {
            match *event {
                RequestEvent::Arrived(arrival) => {
                    let vm = &mut self.vms[arrival.vm];
                    let request = vm.arrived(&arrival, &self.device.profile);
                    self.requests.insert(arrival.slot, request);
                }
                RequestEvent::Answered { at, slot, device } => {
                    // A request that arrived before the log was kept is unknown.
                    if let Some(request) = self.requests.remove(slot) {
                        self.vms[request.vm].answered(&request, (at, device), start);
                    }
                }
                RequestEvent::Stalled { to, .. } => self.stalled_until = Some(to),
            }
        }
        for request in self.requests.iter() {
            self.vms[request.vm].waits(request, start, end);
        }
        // A stall that ended before this second has been counted in the ones before.
        let devices_own = self.stalled_until.take().is_some_and(|to| to > start);
        if counts {
            self.seconds += 1;
            if !devices_own {
                // In a stall of the device no VM is served: its shares are not judged.
                self.judge_shares();
            }
        }
        // Also in the warm-up: buckets and streams must be in their steady state when it ends.
        for vm in &mut self.vms {
            vm.end_second(counts, devices_own);
        }
    }

    /// Adds the second to the share of every VM with requests waiting throughout.
    fn judge_shares(&mut self) {
        let claims = self.vms.iter_mut().enumerate();
        let claims = claims.filter_map(|(vm, judge)| Some((vm, judge.claim()?)));
        let mut claims: Vec<(usize, Claim)> = claims.collect();
        let waiting = claims.iter().filter(|(_, claim)| claim.waited);
        let waiting: Vec<Claim> = waiting.map(|(_, claim)| *claim).collect();
        // A VM without a competitor has nothing to share.
        if waiting.len() < 2 {
            return;
        }
        // A group of which no VM waited throughout had all that it asked for.
        claims.retain(|(_, claim)| waiting.iter().any(|other| claim.counts_beside(other)));
        let (vms, claims): (Vec<usize>, Vec<Claim>) = claims.into_iter().unzip();
        let total: f64 = claims.iter().map(|claim| claim.had).sum();
        for ((vm, claim), due) in vms.into_iter().zip(&claims).zip(shares(&claims)) {
            if claim.waited {
                self.vms[vm].add_share(due, total);
            }
        }
    }

    /// Judges of the VMs, in the order of the scenario.
    pub(super) fn vms(&self) -> &[VmJudge] {
        &self.vms
    }

    /// Number of judged seconds.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds
    }
}

/// True if an objective sets a weight, a group or a level of best effort, which is a factor of the
/// weight.
fn has_weight(objective: &Objective) -> bool {
    objective.weight != Objective::DEFAULT_WEIGHT
        || objective.group.is_some()
        || objective.priority != Priority::DEFAULT
}

#[cfg(test)]
mod tests {
    use super::super::device::devices;
    use super::*;
    use tidegate_core::objective::{Group, OpsRate, Rate};
    use tidegate_core::request::Op;
    use tidegate_sim::device::Arrival;

    /// Judge of a VM with a floor of 100 IOPS and a latency bound of 20 ms, on a device with a
    /// blocking time of 4 ms.
    fn judge() -> Judge {
        let all = devices().expect("they are read");
        let mut ssd = all.into_iter().find(|it| it.model == "ssd-sata-300gb");
        ssd.as_mut().expect("it is among them").blocking = Nanos::from_millis(4);
        let objective = Objective {
            reservation: Rate::iops(100),
            latency: Some(Nanos::from_millis(20)),
            ..Objective::default()
        };
        Judge::new(&ssd.expect("it is among them"), &[(objective, true)])
    }

    fn arrived(ms: u64, slot: u32) -> RequestEvent {
        RequestEvent::Arrived(Arrival {
            at: Nanos::from_millis(ms),
            vm: 0,
            slot,
            op: Op::Read,
            offset: u64::from(slot) << 20,
            len: 8192,
        })
    }

    fn answered(ms: u64, slot: u32) -> RequestEvent {
        let at = Nanos::from_millis(ms);
        let device = Nanos::ZERO;
        RequestEvent::Answered { at, slot, device }
    }

    /// Judged and missed seconds of floor and latency.
    fn parts(judge: &Judge) -> [(u64, u64); 2] {
        let vm = &judge.vms()[0];
        [&vm.floor_part, &vm.latency_part].map(|part| (part.seconds, part.missed))
    }

    #[test]
    fn one_late_request_a_second_breaks_no_floor_and_two_do() {
        let mut judge = judge();
        // Due at 14 ms: 10 ms after the arrival plus the blocking time; the bound is kept.
        let one = [
            arrived(0, 0),
            answered(15, 0),
            arrived(100, 0),
            answered(114, 0),
        ];
        judge.second(Nanos::from_secs(1), &one, true);
        assert_eq!(parts(&judge), [(1, 0), (1, 0)]);
        let two = [
            arrived(1000, 0),
            answered(1015, 0),
            arrived(1100, 0),
            answered(1115, 0),
        ];
        judge.second(Nanos::from_secs(2), &two, true);
        assert_eq!(parts(&judge), [(2, 1), (2, 0)]);
        judge.second(Nanos::from_secs(3), &[], true);
        assert_eq!(parts(&judge), [(2, 1), (2, 0)], "nothing to judge");
    }

    #[test]
    fn a_vm_that_is_never_answered_misses_every_second() {
        let mut judge = judge();
        judge.second(Nanos::from_secs(1), &[arrived(900, 0)], true);
        for end in 2..=4 {
            judge.second(Nanos::from_secs(end), &[], true);
        }
        // A single late request does not break the second in which it becomes late.
        assert_eq!(parts(&judge), [(4, 3), (4, 4)]);
        judge.second(Nanos::from_secs(5), &[answered(4001, 0)], true);
        assert_eq!(parts(&judge), [(5, 3), (5, 5)]);
    }

    #[test]
    fn requests_beyond_the_envelope_are_held_to_no_bound() {
        let mut judge = judge();
        let burst = [
            arrived(0, 0),
            arrived(1, 1),
            answered(5, 0),
            answered(50, 1),
        ];
        judge.second(Nanos::from_secs(1), &burst, true);
        assert_eq!(parts(&judge)[1], (1, 0));
    }

    /// Due part of the device time of each VM of which one request waits all the time, after a
    /// second in which each had as many reads of one size as `served` says.
    fn due_parts(objectives: &[Objective], served: &[u32]) -> Vec<Option<f64>> {
        let device = judge().device;
        let objectives: Vec<(Objective, bool)> = objectives.iter().map(|it| (*it, true)).collect();
        let mut judge = Judge::new(&device, &objectives);
        let event = |event, vm| match event {
            RequestEvent::Arrived(it) => RequestEvent::Arrived(Arrival { vm, ..it }),
            other => other,
        };
        let mut events = Vec::new();
        for (vm, &served) in served.iter().enumerate() {
            let slots = (0..=served).map(|slot| 100 * vm as u32 + slot);
            events.extend(slots.clone().map(|slot| event(arrived(0, slot), vm)));
            // The first one waits throughout.
            events.extend(slots.skip(1).map(|slot| answered(990, slot)));
        }
        judge.second(Nanos::from_secs(1), &events, true);
        let due = |vm: &VmJudge| vm.share(1).map(|(_, due, _)| (due * 100.0).round());
        judge.vms().iter().map(due).collect()
    }

    #[test]
    fn groups_share_first_and_their_vms_then() {
        let grouped = |name: &str, group: u32, weight| {
            let mut of = Group::named(name.parse().expect("a name"));
            of.weight = group;
            Objective {
                weight,
                group: Some(of),
                ..Objective::default()
            }
        };
        let vms = [
            grouped("a", 300, 100),
            grouped("a", 300, 200),
            grouped("b", 100, 100),
        ];
        let due = due_parts(&vms, &[10, 10, 20]);
        assert_eq!(due, [Some(25.0), Some(50.0), Some(25.0)]);
    }

    #[test]
    fn the_floor_of_a_share_counts_large_requests_as_several() {
        // 20 reads of 8 KiB count as 40 of 4 KiB: the floor of 30 takes three quarters of what the
        // VM had, less than its share.
        let ops = OpsRate {
            per_s: 30,
            norm: Some(4 << 10),
        };
        let floored = Objective {
            weight: 200,
            reservation: Rate {
                ops: Some(ops),
                bytes_per_s: None,
            },
            ..Objective::default()
        };
        let due = due_parts(&[floored, Objective::default()], &[20, 10]);
        assert_eq!(due, [Some(67.0), None]);
    }

    #[test]
    fn levels_of_best_effort_are_factors_of_the_weight() {
        let level = |level| Objective {
            priority: Priority::BestEffort(level),
            ..Objective::default()
        };
        let due = due_parts(&[level(0), level(4), level(4)], &[10, 10, 20]);
        assert_eq!(due, [Some(50.0), None, None], "level 4 is the default");
        let due = due_parts(&[level(0), level(7)], &[10, 10]);
        assert_eq!(due, [Some(89.0), Some(11.0)]);
        let realtime = Objective {
            priority: Priority::RealTime,
            ..Objective::default()
        };
        let due = due_parts(&[level(0), realtime, level(7)], &[10, 30, 10]);
        assert_eq!(due, [Some(89.0), None, Some(11.0)], "of what it leaves");
    }

    #[test]
    fn neither_a_warm_up_nor_a_stall_of_the_device_counts() {
        let mut judge = judge();
        let late = |s: u64| [arrived(s * 1000, 0), answered(s * 1000 + 500, 0)];
        judge.second(Nanos::from_secs(1), &late(0), false);
        assert_eq!(parts(&judge), [(0, 0), (0, 0)]);
        let [first, last] = late(1);
        let (from, to) = (Nanos::from_millis(1000), Nanos::from_millis(1499));
        let stalled = [first, RequestEvent::Stalled { from, to }, last];
        judge.second(Nanos::from_secs(2), &stalled, true);
        assert_eq!(parts(&judge), [(0, 0), (0, 0)]);
        assert_eq!(judge.vms()[0].latency_part.devices, 1);
        judge.second(Nanos::from_secs(3), &late(2), true);
        assert_eq!(parts(&judge), [(1, 0), (1, 1)]);
    }
}
