//! Model of the commit protocol, checked exhaustively for small sizes.
//!
//! Placers load the state, decide and commit as the driver does, and start what they have placed.
//! Between any two steps an attempt of a transaction is carried out late, twice or never, an answer
//! is lost, another placer acts, or a placer crashes. The rules under test are those of the store:
//! [`RevisionValue`] and [`Change::apply`].

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};
use tidegate_core::time::Nanos;
use tidegate_place::Request;

use super::value::{CommitOutcome, RevisionValue};
use crate::change::Change;
use crate::record::{HostRecord, Placement, Transfer};
use crate::state::ClusterState;
use crate::store::Revision;

/// Transfers that a host takes.
const HOST_MAX: usize = 1;
/// Times that a placer starts anew after a conflict.
const RESTARTS: u8 = 2;

type HostIndex = usize;
type TransferIndex = usize;

/// Rules of the protocol; those of the store, or broken ones.
#[derive(Clone, Copy)]
struct Rules {
    /// A transaction compares the revision that it was decided on with the present one.
    compares: bool,
    /// A placer finds its own commit by its identifier after a refusal.
    recognises: bool,
    /// A placer that does not find it says so if an earlier attempt may have been carried out, and
    /// its identifier forgotten since.
    doubts: bool,
}

const STORE: Rules = Rules {
    compares: true,
    recognises: true,
    doubts: true,
};

/// Identifiers of commits that are remembered, unless forgetting is modelled: more than commits.
const REMEMBERED: usize = 256;

/// Placers, each with the transfer that it places, on a number of hosts.
struct Protocol {
    rules: Rules,
    wanted: Vec<TransferIndex>,
    hosts: usize,
    /// Attempts of a transaction whose answer does not come.
    attempts: u8,
    /// Number of commits whose identifiers are remembered.
    remembered: usize,
}

/// Attempt of a transaction that is on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Attempt {
    placer: usize,
    /// Identifier of the commit.
    commit: String,
    /// Number of the attempt, of which only the last one is awaited.
    number: u8,
    decided_on: u64,
    transfer: TransferIndex,
    /// `None`: it waits.
    host: Option<HostIndex>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Placer {
    /// Is going to load and decide.
    Undecided {
        restarts: u8,
    },
    /// Has decided, and is going to send the next attempt, or awaits the answer to the last one.
    Committing {
        attempt: Attempt,
        restarts: u8,
        awaits: bool,
    },
    /// Knows that its commit was carried out, and has started the transfer if it was placed.
    Committed,
    /// Was told that another one has placed the transfer.
    Exists,
    /// Does not know whether its commit was carried out, and says so.
    Unknown,
    /// Gave up after conflicts.
    Conflicted,
    Crashed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    revision: RevisionValue,
    /// Host of each transfer that is placed or waits (`None`).
    stored: Vec<(TransferIndex, Option<HostIndex>)>,
    on_the_way: BTreeSet<Attempt>,
    placers: Vec<Placer>,
    /// Transfers that daemons were asked to start.
    started: Vec<(TransferIndex, HostIndex)>,
    /// Placers whose commit was carried out.
    carried_out: BTreeSet<usize>,
    /// A placer has recognised its commit after a refusal.
    recognised: bool,
    /// A placer was told that its commit may be forgotten.
    doubted: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Decide(usize),
    Send(usize),
    TimeOut(usize),
    Crash(usize),
    /// An attempt is carried out. It may be repeated later, and its answer may be lost.
    CarryOut {
        attempt: Attempt,
        repeats: bool,
        answers: bool,
    },
    Lose(Attempt),
}

impl Protocol {
    fn new(rules: Rules, wanted: &[TransferIndex], hosts: usize) -> Protocol {
        let wanted = wanted.to_vec();
        Protocol {
            rules,
            wanted,
            hosts,
            attempts: 2,
            remembered: REMEMBERED,
        }
    }

    fn remembering(self, remembered: usize) -> Protocol {
        Protocol { remembered, ..self }
    }

    fn with_one_attempt(self) -> Protocol {
        let attempts = 1;
        Protocol { attempts, ..self }
    }

    fn decide(&self, world: &mut World, placer: usize, restarts: u8) {
        let transfer = self.wanted[placer];
        if world.stored.iter().any(|(stored, _)| *stored == transfer) {
            world.placers[placer] = Placer::Exists;
            return;
        }
        let host = (0..self.hosts).find(|host| world.load(*host) < HOST_MAX);
        world.placers[placer] = Placer::Committing {
            attempt: Attempt {
                placer,
                commit: format!("{placer}.{restarts}"),
                number: 0,
                decided_on: world.revision.revision,
                transfer,
                host,
            },
            restarts,
            awaits: false,
        };
    }

    /// Carries out an attempt as etcd does; returns true if it changed the state.
    fn carry_out(&self, world: &mut World, attempt: &Attempt) -> bool {
        if self.rules.compares && attempt.decided_on != world.revision.revision {
            return false;
        }
        let mut state = self.state_of(world);
        let request = Request::new(1, Nanos::SECOND).expect("valid");
        let name = transfer_name(attempt.transfer);
        let mut changes = vec![Change::PutTransfer(Transfer::new(
            &name,
            &request,
            Nanos::ZERO,
        ))];
        changes.extend(attempt.host.map(|host| Change::PutPlacement {
            transfer: name,
            placement: Placement::new(&host_name(host), Nanos::ZERO),
        }));
        Change::apply(&changes, &mut state).expect("the hosts are there");
        let placed = state.running.iter().map(|running| {
            let host = state.host(&running.placement.host).expect("it is there");
            (number_of(running.name()), Some(host.0))
        });
        let waiting = state.waiting.iter().map(|it| (number_of(&it.name), None));
        world.stored = placed.chain(waiting).collect();
        world.stored.sort_unstable();
        world.revision = (world.revision).after_with(&attempt.commit, self.remembered);
        world.carried_out.insert(attempt.placer);
        true
    }

    /// Returns the state as the store keeps it.
    fn state_of(&self, world: &World) -> ClusterState {
        let request = Request::new(1, Nanos::SECOND).expect("valid");
        let mut state = ClusterState::default();
        for host in 0..self.hosts {
            let record = HostRecord::new(host_name(host), 1, Vec::new(), HOST_MAX);
            state.add_host(record).expect("a new name");
        }
        for (transfer, host) in &world.stored {
            let name = transfer_name(*transfer);
            let mut changes = vec![Change::PutTransfer(Transfer::new(
                &name,
                &request,
                Nanos::ZERO,
            ))];
            changes.extend(host.map(|host| Change::PutPlacement {
                transfer: name,
                placement: Placement::new(&host_name(host), Nanos::ZERO),
            }));
            Change::apply(&changes, &mut state).expect("the hosts are there");
        }
        state
    }

    /// Tells a placer the answer to the attempt that it awaits.
    fn answer(&self, world: &mut World, attempt: &Attempt, changed: bool) {
        let Placer::Committing {
            attempt: awaited,
            restarts,
            awaits: true,
        } = &world.placers[attempt.placer]
        else {
            return;
        };
        if awaited != attempt {
            return;
        }
        let restarts = *restarts;
        // An attempt before this one was given up, and may have been carried out.
        let may_be_done = self.rules.doubts && attempt.number > 0;
        let decided_on = Revision(attempt.decided_on);
        let outcome = world
            .revision
            .outcome_of(&attempt.commit, decided_on, may_be_done);
        let is_stored = matches!(outcome, CommitOutcome::Stored(_));
        let recognised = !changed && self.rules.recognises && is_stored;
        let forgotten = !changed && outcome == CommitOutcome::Forgotten;
        world.recognised |= recognised;
        world.doubted |= forgotten;
        world.placers[attempt.placer] = if changed || recognised {
            let start = attempt.host.map(|host| (attempt.transfer, host));
            world.started.extend(start);
            Placer::Committed
        } else if forgotten {
            Placer::Unknown
        } else if restarts < RESTARTS {
            Placer::Undecided {
                restarts: restarts + 1,
            }
        } else {
            Placer::Conflicted
        };
    }
}

impl World {
    fn load(&self, host: HostIndex) -> usize {
        let there = self.stored.iter().filter(|(_, at)| *at == Some(host));
        there.count()
    }
}

fn transfer_name(transfer: TransferIndex) -> String {
    format!("{transfer}")
}

fn host_name(host: HostIndex) -> String {
    format!("host-{host}")
}

fn number_of(transfer: &str) -> TransferIndex {
    transfer.parse().expect("named by its number")
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            revision: RevisionValue::empty(),
            stored: Vec::new(),
            on_the_way: BTreeSet::new(),
            placers: vec![Placer::Undecided { restarts: 0 }; self.wanted.len()],
            started: Vec::new(),
            carried_out: BTreeSet::new(),
            recognised: false,
            doubted: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (placer, phase) in world.placers.iter().enumerate() {
            match phase {
                Placer::Undecided { .. } => steps.push(Step::Decide(placer)),
                Placer::Committing { awaits: false, .. } => steps.push(Step::Send(placer)),
                Placer::Committing { awaits: true, .. } => steps.push(Step::TimeOut(placer)),
                _ => continue,
            }
            steps.push(Step::Crash(placer));
        }
        for attempt in &world.on_the_way {
            steps.push(Step::Lose(attempt.clone()));
            for (repeats, answers) in [(false, true), (false, false), (true, true)] {
                steps.push(Step::CarryOut {
                    attempt: attempt.clone(),
                    repeats,
                    answers,
                });
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Decide(placer) => {
                let Placer::Undecided { restarts } = world.placers[placer] else {
                    return None;
                };
                self.decide(&mut next, placer, restarts);
            }
            Step::Send(placer) => {
                let Placer::Committing {
                    attempt, awaits, ..
                } = &mut next.placers[placer]
                else {
                    return None;
                };
                *awaits = true;
                next.on_the_way.insert(attempt.clone());
            }
            Step::TimeOut(placer) => {
                let Placer::Committing {
                    attempt, awaits, ..
                } = &mut next.placers[placer]
                else {
                    return None;
                };
                *awaits = false;
                attempt.number += 1;
                if attempt.number >= self.attempts {
                    next.placers[placer] = Placer::Unknown;
                }
            }
            Step::Crash(placer) => next.placers[placer] = Placer::Crashed,
            Step::CarryOut {
                attempt,
                repeats,
                answers,
            } => {
                if !repeats {
                    next.on_the_way.remove(&attempt);
                }
                let changed = self.carry_out(&mut next, &attempt);
                if answers {
                    self.answer(&mut next, &attempt, changed);
                }
            }
            Step::Lose(attempt) => {
                next.on_the_way.remove(&attempt);
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        vec![
            Property::always(HOSTS_FIT, |model: &Protocol, world: &World| {
                (0..model.hosts).all(|host| world.load(host) <= HOST_MAX)
            }),
            Property::always(STORED_ONCE, |_, world: &World| {
                let stored: BTreeSet<_> = world.stored.iter().map(|(it, _)| it).collect();
                stored.len() == world.stored.len()
            }),
            Property::always(STARTED_ONCE, |_, world: &World| {
                let started: BTreeSet<_> = world.started.iter().map(|(it, _)| it).collect();
                started.len() == world.started.len()
            }),
            Property::always(STARTED_WHERE_PLACED, |_, world: &World| {
                let is_placed = |(transfer, host): &(TransferIndex, HostIndex)| {
                    world.stored.contains(&(*transfer, Some(*host)))
                };
                world.started.iter().all(is_placed)
            }),
            Property::always(TOLD_THE_TRUTH, |_, world: &World| {
                let is_true = |(placer, phase): (usize, &Placer)| match phase {
                    Placer::Committed => world.carried_out.contains(&placer),
                    Placer::Exists | Placer::Conflicted => !world.carried_out.contains(&placer),
                    _ => true,
                };
                world.placers.iter().enumerate().all(is_true)
            }),
            Property::sometimes(RECOGNISED, |_, world: &World| world.recognised),
            Property::sometimes(DOUBTED, |model: &Protocol, world: &World| {
                // Only a forgetful store gives reason to.
                world.doubted || model.remembered >= REMEMBERED
            }),
            Property::sometimes(ALL_PLACED, |model: &Protocol, world: &World| {
                let committed = |phase: &Placer| matches!(phase, Placer::Committed);
                world.stored.len() == model.wanted.len() && world.placers.iter().all(committed)
            }),
        ]
    }
}

const HOSTS_FIT: &str = "no host is above its maximum";
const STORED_ONCE: &str = "a transfer is stored once";
const STARTED_ONCE: &str = "a transfer is started once at most";
const STARTED_WHERE_PLACED: &str = "a started transfer is placed on that host";
const TOLD_THE_TRUTH: &str = "a placer knows whether its commit was carried out";
const SAFE: [&str; 5] = [
    HOSTS_FIT,
    STORED_ONCE,
    STARTED_ONCE,
    STARTED_WHERE_PLACED,
    TOLD_THE_TRUTH,
];
const RECOGNISED: &str = "a commit whose answer was lost is recognised";
const DOUBTED: &str = "a commit that may be forgotten is not decided again";
const ALL_PLACED: &str = "all placers commit";

#[test]
fn no_order_of_steps_places_twice_or_overfills_a_host() {
    for hosts in [1, 2] {
        let checker = Protocol::new(STORE, &[0, 1], hosts).checker();
        let checker = checker.spawn_bfs().join();
        println!(
            "2 placers, {hosts} hosts: {} states",
            checker.unique_state_count()
        );
        checker.assert_properties();
    }
}

#[test]
fn three_placers_on_two_hosts_keep_all_rules() {
    let protocol = Protocol::new(STORE, &[0, 1, 2], 2).with_one_attempt();
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    println!(
        "3 placers, 2 hosts: {} states",
        checker.unique_state_count()
    );
    for property in SAFE {
        checker.assert_no_discovery(property);
    }
    checker.assert_any_discovery(ALL_PLACED);
}

#[test]
fn placers_of_one_transfer_place_it_once() {
    let checker = Protocol::new(STORE, &[0, 0], 2).checker();
    let checker = checker.spawn_bfs().join();
    for property in SAFE {
        checker.assert_no_discovery(property);
    }
    checker.assert_any_discovery(RECOGNISED);
}

#[test]
fn a_commit_that_is_forgotten_is_not_decided_again() {
    let protocol = Protocol::new(STORE, &[0, 1], 2).remembering(1);
    let checker = protocol.checker().spawn_bfs().join();
    println!(
        "2 placers, 1 commit remembered: {} states",
        checker.unique_state_count()
    );
    checker.assert_properties();
    // One transfer: a placer that was not told would take its own commit for another one's.
    let protocol = Protocol::new(STORE, &[0, 0], 2).remembering(1);
    let checker = protocol.checker().spawn_bfs().join();
    for property in SAFE {
        checker.assert_no_discovery(property);
    }
}

#[test]
fn broken_rules_are_found() {
    let blind = Rules {
        compares: false,
        ..STORE
    };
    let checker = Protocol::new(blind, &[0, 1], 1).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    checker.spawn_bfs().join().assert_any_discovery(HOSTS_FIT);
    let forgetful = Rules {
        recognises: false,
        ..STORE
    };
    let checker = Protocol::new(forgetful, &[0, 1], 2).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    checker
        .spawn_bfs()
        .join()
        .assert_any_discovery(TOLD_THE_TRUTH);
    let trusting = Rules {
        doubts: false,
        ..STORE
    };
    let checker = Protocol::new(trusting, &[0, 1], 2).remembering(1).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    checker
        .spawn_bfs()
        .join()
        .assert_any_discovery(TOLD_THE_TRUTH);
}
