//! Admission policies: admit none, all, by PCOS, or by an oracle that tries each request.

use super::Rule;
use super::host::{MEDIA, Newcomer, Setting};
use super::learning::{INTERVAL, Learnt};
use super::oracle::Oracle;
use super::replay::{AdmissionTerms, HostReplay, Running, TransferKey};
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Transfer};
use tidegate_place::{
    Event, HostId, HostSpec, LateRule, Outcome, Pcos, Placement, Present, PriorityDatabase,
    Request, RequestId, Update, VmState, WAITING_CAPACITY, admit_by_forecast,
};

/// Decides on one request at a time.
pub(super) trait AdmissionPolicy {
    /// Observes the host. Called whenever a transfer has begun or ended, and every interval.
    fn observe(&mut self, _stage: &HostReplay<'_>) {}

    /// Decides if a request is admitted now; returns the terms of its admission.
    fn admit(&mut self, replay: &HostReplay<'_>, newcomer: &Newcomer) -> Option<AdmissionTerms>;
}

/// Admits no request.
pub(super) struct AdmitNone;

impl AdmissionPolicy for AdmitNone {
    fn admit(&mut self, _: &HostReplay<'_>, _: &Newcomer) -> Option<AdmissionTerms> {
        None
    }
}

/// Admits every request at once.
pub(super) struct AdmitAll;

impl AdmissionPolicy for AdmitAll {
    fn admit(&mut self, _: &HostReplay<'_>, _: &Newcomer) -> Option<AdmissionTerms> {
        // Without terms: no class is chosen, and none lowered.
        Some(None)
    }
}

/// Admits requests that meet their deadlines without harm to running transfers, by simulation.
pub(super) struct AdmitByOracle(pub(super) Oracle);

impl AdmissionPolicy for AdmitByOracle {
    fn admit(&mut self, replay: &HostReplay<'_>, newcomer: &Newcomer) -> Option<AdmissionTerms> {
        let verdict = self
            .0
            .judge(replay, &replay.begun, replay.now(), newcomer, &None);
        verdict.is_ok().then_some(None)
    }
}

/// PCOS, the meta-scheduler, above one host.
pub(super) struct AdmitByPcos<'a> {
    pcos: Pcos,
    learnt: &'a Learnt,
    setting: Setting,
    host: HostId,
    /// Running transfers that PCOS knows.
    known: BTreeMap<TransferKey, RequestId>,
    /// Request that was submitted last.
    asked: Option<Asked>,
    placed: Option<Placement>,
    steady: Steady,
    /// `true` for the printed rule: no admission while a transfer is late, even without the
    /// newcomer.
    printed: bool,
}

/// Request that was submitted to PCOS.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// Number of the newcomer.
    index: usize,
    /// Identity at PCOS.
    id: RequestId,
    /// Largest bandwidth of its VM that PCOS was told, in bytes per second.
    limit: Option<u64>,
}

impl<'a> AdmitByPcos<'a> {
    /// Creates PCOS above a host.
    pub(super) fn new(learnt: &'a Learnt, setting: Setting, rule: Rule) -> AdmitByPcos<'a> {
        let late_rule = match rule {
            Rule::LateUnprotected => LateRule::Unprotected,
            _ => LateRule::KeepsRate,
        };
        let mut pcos = Pcos::new(WAITING_CAPACITY).with_late_rule(late_rule);
        let spec = HostSpec {
            database: learnt.database.clone(),
            transfers: MEDIA + setting.places(),
        };
        let host = pcos.add_host(Nanos::ZERO, spec);
        AdmitByPcos {
            pcos,
            learnt,
            setting,
            host,
            known: BTreeMap::new(),
            asked: None,
            placed: None,
            steady: Steady::default(),
            printed: rule == Rule::AsPrinted,
        }
    }

    /// Returns `true` if a running transfer is forecast to be late as things are.
    fn is_any_transfer_late(&self, now: Nanos) -> bool {
        self.pcos.host(self.host).is_some_and(|host| {
            let late = |of| {
                host.forecast(now, of)
                    .is_some_and(|it| it.late > Nanos::ZERO)
            };
            host.running().iter().any(late)
        })
    }

    fn terms(&self, placement: &Placement) -> AdmissionTerms {
        let vm = |id: RequestId| {
            let mut known = self.known.iter();
            // A transfer that has ended since needs no lowering.
            known.find(|(_, of)| **of == id).map(|(key, _)| key.0)
        };
        let lowered = placement.lowered.iter();
        let lowered = lowered.filter_map(|(id, class)| Some((vm(*id)?, *class)));
        Some((placement.class, lowered.collect()))
    }

    /// Largest bandwidth of the VM that the next newcomer would get.
    fn limit(&self, replay: &HostReplay<'_>) -> Option<u64> {
        self.learnt.limit(self.setting, replay.idle_vm()?)
    }

    /// Withdraws the request that was submitted last, whether it waits at PCOS or was placed there
    /// and has not begun.
    fn withdraw(&mut self, now: Nanos) {
        self.take_events();
        let Some(asked) = self.asked.take() else {
            return;
        };
        if self.pcos.withdraw(asked.id) {
            return;
        }
        // Otherwise PCOS would count a transfer that never begins as running for ever.
        if self.placed.take_if(|of| of.id == asked.id).is_some() {
            let update = Update {
                ended: &[asked.id],
                ..Update::default()
            };
            self.pcos.update(now, self.host, &update);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            if let Event::Placed(placement) = event {
                self.placed = Some(placement);
            }
        }
    }
}

impl AdmissionPolicy for AdmitByPcos<'_> {
    fn observe(&mut self, replay: &HostReplay<'_>) {
        let (now, running) = (replay.now(), replay.running());
        if (self.asked).is_some_and(|asked| asked.limit != self.limit(replay)) {
            // The newcomer would get another kind of VM now, which makes it another request.
            self.withdraw(now);
        }
        // Before the transfers are compared: rates are of the span that ends now.
        let vms_had = self.steady.steady_rates(now, &running, &replay.moved());
        let had: Vec<_> = vms_had.iter().map(|of| (of.class, of.rate)).collect();
        for of in &running {
            if self.known.contains_key(&of.key()) {
                continue;
            }
            // A transfer that PCOS placed itself is known already.
            let placed = self.placed.take_if(|_| of.vm >= MEDIA);
            let id = match placed {
                Some(placement) => placement.id,
                None => self.pcos.resume(self.host, vm_state(of), now),
            };
            if let Some(limit) = self.learnt.limit(self.setting, of.vm) {
                self.pcos.limit(self.host, id, limit);
            }
            self.known.insert(of.key(), id);
        }
        let is_there = |key: &TransferKey| running.iter().any(|of| of.key() == *key);
        let over: Vec<TransferKey> = (self.known.keys().copied())
            .filter(|key| !is_there(key))
            .collect();
        let ended: Vec<RequestId> = over
            .iter()
            .filter_map(|key| self.known.remove(key))
            .collect();
        let id = |of: &Running| self.known.get(&of.key()).copied();
        let classes: Vec<_> = (running.iter())
            .filter_map(|of| Some((id(of)?, of.class)))
            .collect();
        let moved: Vec<_> = (running.iter())
            .filter_map(|of| Some((id(of)?, of.moved)))
            .collect();
        let is_sated = |of: &&Had| self.learnt.is_sated(self.setting, of.vm, of.rate);
        let sated = vms_had.iter().filter(is_sated).filter_map(|had| {
            let of = running.iter().find(|of| of.vm == had.vm)?;
            Some((id(of)?, had.rate))
        });
        let sated: Vec<_> = sated.collect();
        let update = Update {
            ended: &ended,
            classes: &classes,
            moved: &moved,
            measured: &had,
            demand_limited: &sated,
        };
        // One update of everything, as an agent's report is one message.
        self.pcos.update(now, self.host, &update);
        self.take_events();
    }

    fn admit(&mut self, replay: &HostReplay<'_>, newcomer: &Newcomer) -> Option<AdmissionTerms> {
        if self.printed && self.is_any_transfer_late(replay.now()) {
            return None;
        }
        // A newcomer is submitted once: it waits at PCOS until it is placed or withdrawn.
        if self.asked.is_none_or(|asked| asked.index != newcomer.index) {
            let index = newcomer.index;
            let limit = self.limit(replay);
            let request = Request::new(newcomer.bytes, newcomer.deadline).ok()?;
            let request = match limit {
                // Below the required bandwidth the request never meets its deadline.
                Some(limit) => request.limited(limit).ok()?,
                None => request,
            };
            let answer = self.pcos.request(replay.now(), request);
            let id = answer.id;
            self.asked = Some(Asked { index, id, limit });
            if let Outcome::Placed(placement) = answer.outcome {
                self.placed = Some(placement);
            }
        }
        let id = self.asked?.id;
        let placement = self
            .placed
            .as_ref()
            // A placement of a request that was withdrawn in the meantime is none of this one.
            .filter(|placement| placement.id == id);
        let terms = placement.map(|placement| self.terms(placement));
        if self.printed && terms.is_none() {
            // The printed rule decides anew each time; a request that waits at PCOS would be placed
            // by PCOS' own rule at the next update.
            self.withdraw(replay.now());
        }
        terms
    }
}

/// PCOS with forecasts that include the ends of running transfers.
pub(super) struct AdmitByForecast {
    database: PriorityDatabase,
    steady: Steady,
}

impl AdmitByForecast {
    pub(super) fn new(learnt: &Learnt) -> AdmitByForecast {
        AdmitByForecast {
            database: learnt.database.clone(),
            steady: Steady::default(),
        }
    }
}

impl AdmissionPolicy for AdmitByForecast {
    fn observe(&mut self, replay: &HostReplay<'_>) {
        let had = self
            .steady
            .steady_rates(replay.now(), &replay.running(), &replay.moved());
        self.database
            .learn(had.iter().map(|of| (of.class, of.rate)));
    }

    fn admit(&mut self, replay: &HostReplay<'_>, newcomer: &Newcomer) -> Option<AdmissionTerms> {
        let running = replay.running();
        let present: Vec<Present> = (running.iter())
            .map(|of| Present {
                vm: vm_state(of),
                stays: of.vm < MEDIA,
            })
            .collect();
        let request = Request::new(newcomer.bytes, newcomer.deadline).ok()?;
        let found = admit_by_forecast(replay.now(), &self.database, &present, &request)?;
        let lowered = found.lowered.into_iter();
        let lowered = lowered.map(|(index, class)| (running[index].vm, class));
        Some(Some((found.class, lowered.collect())))
    }
}

/// Class and progress of a transfer of the replay, as the admission test reads them.
fn vm_state(of: &Running) -> VmState {
    let transfer = Transfer {
        bytes: of.bytes,
        begun: of.since,
        deadline: of.deadline,
        moved: of.moved,
    };
    VmState {
        class: of.class,
        transfer: Some(transfer),
    }
}

/// Bandwidth of a VM that kept its class, in bytes per second.
#[derive(Clone, Copy)]
struct Had {
    vm: usize,
    class: Class,
    rate: u64,
}

/// Bandwidths of VMs over spans without arrivals, departures and changes of class, as a host's
/// agent reports them. A media server between two requests counts as present.
#[derive(Default)]
struct Steady {
    since: Nanos,
    next: Nanos,
    vms: Vec<(usize, Class)>,
    moved: Vec<u64>,
}

impl Steady {
    /// Returns the bandwidths to learn now: at an interval's end, or at a change of VMs or classes
    /// after at least a third of an interval (PriDyn's rule).
    fn steady_rates(&mut self, now: Nanos, running: &[Running], moved: &[u64]) -> Vec<Had> {
        let mut vms: Vec<(usize, Class)> = running.iter().map(|of| (of.vm, of.class)).collect();
        let is_between_requests =
            |of: &&(usize, Class)| of.0 < MEDIA && running.iter().all(|running| running.vm != of.0);
        vms.extend(self.vms.iter().filter(is_between_requests));
        vms.sort_by_key(|of| of.0);
        let changed = vms != self.vms;
        if !changed && now < self.next {
            return Vec::new();
        }
        let long = now.since(self.since);
        let rate = |&(vm, class): &(usize, Class)| {
            // 128 bits: bytes times nanoseconds of a second exceed 64 above 18 GB.
            let bytes = u128::from(moved[vm] - self.moved[vm]) * u128::from(Nanos::SECOND.0);
            // At least 1 ns: a change may come at the time of the last.
            let rate = (bytes / u128::from(long.0.max(1))) as u64;
            Had { vm, class, rate }
        };
        // Shorter spans say too little.
        let had = if long.0 * 3 >= INTERVAL.0 {
            self.vms.iter().map(rate).collect()
        } else {
            Vec::new()
        };
        *self = Steady {
            since: now,
            next: now + INTERVAL,
            vms,
            moved: moved.to_vec(),
        };
        had
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::{Case, HostModel};
    use super::super::{FOR_EVER, run};
    use super::*;
    use crate::pridyn::folder::Folder;

    /// PCOS, checked to count exactly the transfers that run on the host.
    struct Checked<'a>(AdmitByPcos<'a>);

    impl AdmissionPolicy for Checked<'_> {
        fn observe(&mut self, replay: &HostReplay<'_>) {
            self.0.observe(replay);
            let host = self.0.pcos.host(self.0.host).expect("the host");
            // A job that was placed just now begins at the same time.
            let begins = usize::from(self.0.placed.is_some());
            assert_eq!(
                host.running().len(),
                replay.running().len() + begins,
                "at {:?}",
                replay.now()
            );
        }

        fn admit(
            &mut self,
            replay: &HostReplay<'_>,
            newcomer: &Newcomer,
        ) -> Option<AdmissionTerms> {
            self.0.admit(replay, newcomer)
        }
    }

    /// A request that PCOS placed by itself and that is given up before it begins, because its VM
    /// would be another one now, leaves the host.
    #[test]
    fn a_request_that_was_placed_and_is_given_up_leaves_the_host() {
        let (setting, folder) = (Setting::OneVm, Folder::default());
        let learnt = Learnt::new(setting, Case::BOTH[0], &folder).expect("a host");
        let mut policy = AdmitByPcos::new(&learnt, setting, Rule::Tidegate);
        let now = Nanos::SECOND;
        // A byte a second: an empty host takes it.
        let request = Request::new(100, Nanos::from_secs(100)).expect("a request");
        let answer = policy.pcos.request(now, request);
        policy.asked = Some(Asked {
            index: 0,
            id: answer.id,
            limit: None,
        });
        let Outcome::Placed(placement) = answer.outcome else {
            panic!("{:?}", answer.outcome);
        };
        policy.placed = Some(placement);
        let running = |policy: &AdmitByPcos<'_>| {
            let host = policy.pcos.host(policy.host).expect("the host");
            host.running().len()
        };
        assert_eq!(running(&policy), 1);
        policy.withdraw(now);
        assert_eq!(running(&policy), 0);
        assert!(policy.placed.is_none() && policy.asked.is_none());
    }

    #[test]
    fn a_request_that_was_given_up_does_not_run_on_at_pcos() {
        let (setting, folder) = (Setting::OneVm, Folder::default());
        for case in Case::BOTH {
            let learnt = Learnt::new(setting, case, &folder).expect("a host");
            let model = HostModel::new(setting, case, 3000, &folder).expect("a host");
            let scenario = model.running(&learnt.capacity, FOR_EVER);
            for rule in [Rule::AsPrinted, Rule::Tidegate] {
                let mut policy = Checked(AdmitByPcos::new(&learnt, setting, rule));
                let end = Nanos::from_secs(8);
                let outcome = run::run(&model, &scenario, &learnt.capacity, &mut policy, end);
                assert!(!outcome.begun.is_empty(), "{case:?}, {rule:?}");
            }
        }
    }
}
