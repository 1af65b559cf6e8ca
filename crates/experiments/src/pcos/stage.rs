//! A host while it runs: the simulation, what was let in, and what has ended. A stage can be played
//! again up to any time, which is how it is found out what would have come of something.

use super::house::{House, Newcomer};
use std::collections::BTreeMap;
use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// On which terms a request is let in: its class, and other VMs that are down until it ends.
/// `None`: PriDyn alone sees to it.
pub(super) type Terms = Option<(Class, Vec<(usize, Class)>)>;

/// A request that was let in.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Begun {
    pub(super) at: Nanos,
    /// Its VM.
    pub(super) vm: usize,
    pub(super) newcomer: Newcomer,
    pub(super) terms: Terms,
}

/// Which job: a VM has one at a time.
pub(super) type JobKey = (usize, Nanos);

/// A job that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Running {
    pub(super) vm: usize,
    pub(super) since: Nanos,
    pub(super) bytes: u64,
    pub(super) moved: u64,
    pub(super) deadline: Nanos,
    pub(super) class: Class,
}

impl Running {
    pub(super) fn key(&self) -> JobKey {
        (self.vm, self.since)
    }

    pub(super) fn due(&self) -> Nanos {
        self.since + self.deadline
    }
}

/// A job that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub(super) vm: usize,
    pub(super) since: Nanos,
    pub(super) took: Nanos,
    pub(super) deadline: Nanos,
    pub(super) bytes: u64,
}

impl Ended {
    pub(super) fn is_late(&self) -> bool {
        self.took > self.deadline
    }
}

/// See the [module](self).
pub(super) struct Stage<'a> {
    house: &'a House,
    scenario: &'a Scenario,
    world: World,
    vms: BTreeMap<String, usize>,
    /// Those that were let in, in their order.
    pub(super) begun: Vec<Begun>,
    /// All that have ended, in their order.
    pub(super) ended: Vec<Ended>,
    /// What has moved of each VM's jobs that have ended.
    moved: Vec<u64>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(house: &'a House, scenario: &'a Scenario) -> Stage<'a> {
        let mut world = World::new(scenario.clone(), None);
        world.keep_responses();
        let names = scenario.tenants.iter().enumerate();
        Stage {
            house,
            scenario,
            world,
            vms: names.map(|(at, vm)| (vm.name.clone(), at)).collect(),
            begun: Vec::new(),
            ended: Vec::new(),
            moved: vec![0; scenario.tenants.len()],
        }
    }

    /// Another one with the same past, up to `now`.
    pub(super) fn again(&self, begun: &[Begun], now: Nanos) -> Stage<'a> {
        let mut stage = Stage::new(self.house, self.scenario);
        for of in begun {
            stage.pass(of.at);
            stage.begin(of.clone());
        }
        stage.pass(now);
        stage
    }

    pub(super) fn now(&self) -> Nanos {
        self.world.now()
    }

    /// Time passes up to `until`.
    pub(super) fn pass(&mut self, until: Nanos) {
        while self.now() < until {
            self.pass_to_change(until);
        }
    }

    /// Time passes until a job begins or ends, `until` at most.
    pub(super) fn pass_to_change(&mut self, until: Nanos) {
        self.world.run_to_transfer(until);
        for done in self.world.take_responses() {
            let Some((&vm, deadline)) = self.vms.get(&done.vm).zip(done.deadline_ns) else {
                continue;
            };
            self.moved[vm] += done.bytes;
            self.ended.push(Ended {
                vm,
                // Seconds of so few digits are nanoseconds again.
                since: Nanos((done.begun_s * 1e9).round() as u64),
                took: Nanos(done.response_ns),
                deadline: Nanos(deadline),
                bytes: done.bytes,
            });
        }
    }

    /// A request is let in now.
    pub(super) fn begin(&mut self, begun: Begun) {
        let terms = begun.terms.as_ref();
        let terms = terms.map(|(class, lowered)| (*class, lowered.as_slice()));
        let job = self.house.job(&begun.newcomer);
        self.world.begin(begun.vm, &job, terms);
        self.begun.push(begun);
    }

    /// Who runs, by VM.
    pub(super) fn running(&self) -> Vec<Running> {
        let transfers = self.world.transfers().filter_map(|(vm, transfer)| {
            let (engine, id) = self.world.served(vm)?;
            Some(Running {
                vm,
                since: transfer.since,
                bytes: transfer.bytes,
                moved: transfer.bytes - transfer.left,
                deadline: transfer.deadline?,
                class: engine.jobs().standing(id).class,
            })
        });
        let mut all: Vec<Running> = transfers.collect();
        all.sort_by_key(Running::key);
        all
    }

    /// What has moved of each VM so far, in bytes.
    pub(super) fn moved(&self) -> Vec<u64> {
        let mut moved = self.moved.clone();
        for of in self.running() {
            moved[of.vm] += of.moved;
        }
        moved
    }

    /// A VM for a newcomer in which nothing runs.
    pub(super) fn free(&self) -> Option<usize> {
        let running = self.running();
        (super::house::MEDIA..self.scenario.tenants.len())
            .find(|vm| running.iter().all(|of| of.vm != *vm))
    }
}
