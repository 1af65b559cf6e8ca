//! Who decides which requests are let in, and when: nobody, PCOS, or an oracle that tries each.

use super::house::{MEDIA, Newcomer, Setting};
use super::learning::{INTERVAL, Learnt};
use super::oracle::Oracle;
use super::stage::{JobKey, Running, Stage, Terms};
use std::collections::BTreeMap;
use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;
use tidegate_place::{
    Event, HostId, HostSpec, MOST_WAITING, Outcome, Pcos, Placement, Present, PriorityDatabase,
    Request, RequestId, Tenant, Update, admit_by_forecast,
};

/// Decides about one request at a time.
pub(super) trait Gate {
    /// So things are now: asked whenever a job has begun or ended, and every interval.
    fn look(&mut self, _stage: &Stage<'_>) {}

    /// Whether it is let in now, and on which terms.
    fn lets_in(&mut self, stage: &Stage<'_>, newcomer: &Newcomer) -> Option<Terms>;
}

/// Nobody is let in.
pub(super) struct Shut;

impl Gate for Shut {
    fn lets_in(&mut self, _: &Stage<'_>, _: &Newcomer) -> Option<Terms> {
        None
    }
}

/// Everybody is, at once.
pub(super) struct Open;

impl Gate for Open {
    fn lets_in(&mut self, _: &Stage<'_>, _: &Newcomer) -> Option<Terms> {
        Some(None)
    }
}

/// Who would be in time, without harm to those that run: it is tried.
pub(super) struct Exact(pub(super) Oracle);

impl Gate for Exact {
    fn lets_in(&mut self, stage: &Stage<'_>, newcomer: &Newcomer) -> Option<Terms> {
        let verdict = self
            .0
            .judge(stage, &stage.begun, stage.now(), newcomer, &None);
        verdict.is_ok().then_some(None)
    }
}

/// The meta-scheduler above one host.
pub(super) struct Prescient<'a> {
    pcos: Pcos,
    learnt: &'a Learnt,
    setting: Setting,
    host: HostId,
    /// Jobs that it knows to run.
    known: BTreeMap<JobKey, RequestId>,
    /// The request that it was asked for last.
    asked: Option<Asked>,
    placed: Option<Placement>,
    steady: Steady,
    /// Who is late anyway is protected, too.
    printed: bool,
}

/// A request that PCOS was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// Its number here.
    index: usize,
    /// And there.
    id: RequestId,
    /// What its VM takes at most, as PCOS was told.
    limit: Option<u64>,
}

impl<'a> Prescient<'a> {
    /// Over a host of this kind. `printed`: who is late anyway is protected, too.
    pub(super) fn new(learnt: &'a Learnt, setting: Setting, printed: bool) -> Prescient<'a> {
        let mut pcos = Pcos::new(MOST_WAITING);
        let spec = HostSpec {
            database: learnt.database.clone(),
            jobs: MEDIA + setting.places(),
        };
        let host = pcos.add_host(Nanos::ZERO, spec);
        Prescient {
            pcos,
            learnt,
            setting,
            host,
            known: BTreeMap::new(),
            asked: None,
            placed: None,
            steady: Steady::default(),
            printed,
        }
    }

    /// Whether somebody who runs is foreseen to be late as things are.
    fn is_somebody_late(&self, now: Nanos) -> bool {
        self.pcos.host(self.host).is_some_and(|host| {
            let late = |of| {
                host.forecast(now, of)
                    .is_some_and(|it| it.late > Nanos::ZERO)
            };
            host.running().iter().any(late)
        })
    }

    fn terms(&self, placement: &Placement) -> Terms {
        let vm = |id: RequestId| {
            let mut known = self.known.iter();
            known.find(|(_, of)| **of == id).map(|(key, _)| key.0)
        };
        let lowered = placement.lowered.iter();
        let lowered = lowered.filter_map(|(id, class)| Some((vm(*id)?, *class)));
        Some((placement.class, lowered.collect()))
    }

    /// The VM that the next newcomer would have takes as much at most.
    fn limit(&self, stage: &Stage<'_>) -> Option<u64> {
        self.learnt.limit(self.setting, stage.free()?)
    }

    fn withdraw(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.pcos.withdraw(asked.id);
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

impl Gate for Prescient<'_> {
    fn look(&mut self, stage: &Stage<'_>) {
        let (now, running) = (stage.now(), stage.running());
        if (self.asked).is_some_and(|asked| asked.limit != self.limit(stage)) {
            // It would have another kind of VM now, so it is another request.
            self.withdraw();
        }
        let vms_had = self.steady.told(now, &running, &stage.moved());
        let had: Vec<_> = vms_had.iter().map(|of| (of.class, of.rate)).collect();
        for of in &running {
            if self.known.contains_key(&of.key()) {
                continue;
            }
            // One that it has placed itself is there already.
            let placed = self.placed.take_if(|_| of.vm >= MEDIA);
            let id = match placed {
                Some(placement) => placement.id,
                None => self.pcos.resume(self.host, tenant(of), now),
            };
            if let Some(limit) = self.learnt.limit(self.setting, of.vm) {
                self.pcos.limit(self.host, id, limit);
            }
            self.known.insert(of.key(), id);
        }
        let is_there = |key: &JobKey| running.iter().any(|of| of.key() == *key);
        let over: Vec<JobKey> = (self.known.keys().copied())
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
            had: &had,
            sated: &sated,
        };
        self.pcos.update(now, self.host, &update);
        self.take_events();
    }

    fn lets_in(&mut self, stage: &Stage<'_>, newcomer: &Newcomer) -> Option<Terms> {
        if self.printed {
            self.withdraw();
            if self.is_somebody_late(stage.now()) {
                return None;
            }
        }
        if self.asked.is_none_or(|asked| asked.index != newcomer.index) {
            let index = newcomer.index;
            let limit = self.limit(stage);
            let request = Request::new(newcomer.bytes, newcomer.deadline).ok()?;
            let request = match limit {
                // With less than it needs it is never in time.
                Some(limit) => request.limited(limit).ok()?,
                None => request,
            };
            let answer = self.pcos.request(stage.now(), request);
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
            .filter(|placement| placement.id == id)?;
        Some(self.terms(placement))
    }
}

/// The same with forecasts that reckon with the ends of jobs.
pub(super) struct Foreseeing {
    database: PriorityDatabase,
    steady: Steady,
}

impl Foreseeing {
    pub(super) fn new(learnt: &Learnt) -> Foreseeing {
        Foreseeing {
            database: learnt.database.clone(),
            steady: Steady::default(),
        }
    }
}

impl Gate for Foreseeing {
    fn look(&mut self, stage: &Stage<'_>) {
        let had = self
            .steady
            .told(stage.now(), &stage.running(), &stage.moved());
        self.database
            .learn(had.iter().map(|of| (of.class, of.rate)));
    }

    fn lets_in(&mut self, stage: &Stage<'_>, newcomer: &Newcomer) -> Option<Terms> {
        let running = stage.running();
        let present: Vec<Present> = (running.iter())
            .map(|of| Present {
                tenant: tenant(of),
                stays: of.vm < MEDIA,
            })
            .collect();
        let request = Request::new(newcomer.bytes, newcomer.deadline).ok()?;
        let found = admit_by_forecast(stage.now(), &self.database, &present, &request)?;
        let lowered = found.lowered.into_iter();
        let lowered = lowered.map(|(who, class)| (running[who].vm, class));
        Some(Some((found.class, lowered.collect())))
    }
}

fn tenant(of: &Running) -> Tenant {
    let job = Job {
        bytes: of.bytes,
        begun: of.since,
        deadline: of.deadline,
        moved: of.moved,
    };
    Tenant {
        class: of.class,
        job: Some(job),
    }
}

/// What a VM had, of a class all the while, in bytes a second.
#[derive(Clone, Copy)]
struct Had {
    vm: usize,
    class: Class,
    rate: u64,
}

/// What VMs had while none came, went or had another class: what the agent on a host tells. A media
/// server that goes from one request to the next is there all the time.
#[derive(Default)]
struct Steady {
    since: Nanos,
    next: Nanos,
    vms: Vec<(usize, Class)>,
    moved: Vec<u64>,
}

impl Steady {
    /// What is to be learnt now: at an interval's end, or when VMs or classes are others, where it
    /// has been a third of an interval, as PriDyn has it.
    fn told(&mut self, now: Nanos, running: &[Running], moved: &[u64]) -> Vec<Had> {
        let vms: Vec<(usize, Class)> = running.iter().map(|of| (of.vm, of.class)).collect();
        let changed = vms != self.vms;
        if !changed && now < self.next {
            return Vec::new();
        }
        let long = now.since(self.since);
        let rate = |&(vm, class): &(usize, Class)| {
            let bytes = u128::from(moved[vm] - self.moved[vm]) * u128::from(Nanos::SECOND.0);
            let rate = (bytes / u128::from(long.0.max(1))) as u64;
            Had { vm, class, rate }
        };
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
