//! Simulation of a running host with its admitted requests and ended transfers. The past can be
//! simulated again up to any time, so that alternatives can be tried from there.

use super::host::{HostModel, Newcomer};
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// Terms of an admission: the request's class, and other VMs that are lowered until it ends. `None`
/// leaves all classes to PriDyn.
pub(super) type AdmissionTerms = Option<(Class, Vec<(usize, Class)>)>;

/// Request that was admitted.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct AdmittedRequest {
    /// Time of the admission, at which its transfer began.
    pub(super) at: Nanos,
    /// VM that runs it.
    pub(super) vm: usize,
    pub(super) newcomer: Newcomer,
    pub(super) terms: AdmissionTerms,
}

/// Identity of a transfer, by VM and begin: a VM has one at a time.
pub(super) type TransferKey = (usize, Nanos);

/// Running transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Running {
    pub(super) vm: usize,
    /// Time at which it began.
    pub(super) since: Nanos,
    pub(super) bytes: u64,
    /// Bytes moved so far.
    pub(super) moved: u64,
    /// Time allowed from its begin.
    pub(super) deadline: Nanos,
    /// Current class of its VM.
    pub(super) class: Class,
}

impl Running {
    pub(super) fn key(&self) -> TransferKey {
        (self.vm, self.since)
    }

    pub(super) fn due(&self) -> Nanos {
        self.since + self.deadline
    }
}

/// Ended transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub(super) vm: usize,
    /// Time at which it began.
    pub(super) since: Nanos,
    /// Duration.
    pub(super) took: Nanos,
    /// Time allowed from its begin.
    pub(super) deadline: Nanos,
    pub(super) bytes: u64,
}

impl Ended {
    pub(super) fn is_late(&self) -> bool {
        self.took > self.deadline
    }
}

/// Running host; see the [module](self).
pub(super) struct HostReplay<'a> {
    model: &'a HostModel,
    scenario: &'a Scenario,
    world: World,
    /// Index of each VM by its name.
    vms: BTreeMap<String, usize>,
    /// Admitted requests, in order.
    pub(super) begun: Vec<AdmittedRequest>,
    /// Ended transfers, in order.
    pub(super) ended: Vec<Ended>,
    /// Bytes that each VM's ended transfers moved.
    moved: Vec<u64>,
}

impl<'a> HostReplay<'a> {
    pub(super) fn new(model: &'a HostModel, scenario: &'a Scenario) -> HostReplay<'a> {
        let mut world = World::new(scenario.clone(), None);
        world.keep_responses();
        let names = scenario.vms.iter().enumerate();
        HostReplay {
            model,
            scenario,
            world,
            vms: names.map(|(at, vm)| (vm.name.clone(), at)).collect(),
            begun: Vec::new(),
            ended: Vec::new(),
            moved: vec![0; scenario.vms.len()],
        }
    }

    /// Replays the past with the admissions `begun`, up to `now`.
    pub(super) fn replayed(&self, begun: &[AdmittedRequest], now: Nanos) -> HostReplay<'a> {
        let mut replay = HostReplay::new(self.model, self.scenario);
        for request in begun {
            replay.advance_to(request.at);
            replay.begin(request.clone());
        }
        replay.advance_to(now);
        replay
    }

    pub(super) fn now(&self) -> Nanos {
        self.world.now()
    }

    /// Advances time to `until`.
    pub(super) fn advance_to(&mut self, until: Nanos) {
        while self.now() < until {
            self.advance_to_change(until);
        }
    }

    /// Advances time until a transfer begins or ends, at most to `until`.
    pub(super) fn advance_to_change(&mut self, until: Nanos) {
        self.world.run_to_transfer(until);
        for done in self.world.take_responses() {
            // Transfers without a deadline are not judged.
            let Some((&vm, deadline)) = self.vms.get(&done.vm).zip(done.deadline_ns) else {
                continue;
            };
            // The world reports running transfers only, so bytes of ended ones are added up here.
            self.moved[vm] += done.bytes;
            self.ended.push(Ended {
                vm,
                // Rounding restores the nanoseconds, because the numbers are small enough.
                since: Nanos((done.begun_s * 1e9).round() as u64),
                took: Nanos(done.response_ns),
                deadline: Nanos(deadline),
                bytes: done.bytes,
            });
        }
    }

    /// Admits a request now.
    pub(super) fn begin(&mut self, begun: AdmittedRequest) {
        let terms = begun.terms.as_ref();
        let terms = terms.map(|(class, lowered)| (*class, lowered.as_slice()));
        let workload = self.model.workload(&begun.newcomer);
        self.world.begin(begun.vm, &workload, terms);
        self.begun.push(begun);
    }

    /// Running transfers, by VM.
    pub(super) fn running(&self) -> Vec<Running> {
        let transfers = self.world.transfers().filter_map(|(vm, transfer)| {
            let (engine, id) = self.world.served(vm)?;
            Some(Running {
                vm,
                since: transfer.since,
                bytes: transfer.bytes,
                moved: transfer.bytes - transfer.left,
                deadline: transfer.deadline?,
                class: engine.transfers().class_status(id).class,
            })
        });
        let mut all: Vec<Running> = transfers.collect();
        // The world lists them by worker; callers compare lists of two times.
        all.sort_by_key(Running::key);
        all
    }

    /// Bytes that each VM has moved so far.
    pub(super) fn moved(&self) -> Vec<u64> {
        let mut moved = self.moved.clone();
        for transfer in self.running() {
            moved[transfer.vm] += transfer.moved;
        }
        moved
    }

    /// First VM for admitted requests that runs no transfer; `None`: all are busy.
    pub(super) fn idle_vm(&self) -> Option<usize> {
        let running = self.running();
        (super::host::MEDIA..self.scenario.vms.len())
            .find(|vm| running.iter().all(|transfer| transfer.vm != *vm))
    }
}
