//! Model of the fence between placers and the daemon of a host, checked exhaustively.
//!
//! Two placers place a transfer each on one host, have the daemon start it, and an operator ends
//! the first placement. Between any two steps the lease of the daemon is lost, the daemon registers
//! again, a VM is promised more, its reservation is published, an answer of etcd is lost, or a
//! placer dies before it has sent the start; the daemon carries out recorded starts meanwhile. The
//! host has room for one transfer, or for the VM.
//!
//! ```text
//!   placer: load, decide --> commit with start --> [daemon: check, begin, confirm]
//!                                |
//!   daemon: recorded start ------+---------------> [check, begin, confirm]
//! ```

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Sum of transfers and reservations that the host has room for.
const ROOM: u8 = 1;
/// Times that a placer starts anew after a conflict, and that the daemon registers.
const RESTARTS: u8 = 1;

/// Rules of the fence; those of the store and the daemon, or broken ones.
#[derive(Clone, Copy)]
struct Rules {
    /// A commit compares the reservation of the host with the loaded one.
    compares_reservation: bool,
    /// A commit compares the member of the host with the loaded one.
    compares_member: bool,
    /// The daemon checks a placement in etcd before it begins.
    checks: bool,
    /// The daemon checks it once more after that, until etcd tells.
    checks_again: bool,
    /// The confirmation deletes the recorded start in the transaction that finds the placement.
    confirms_at_once: bool,
    /// The daemon compares what its VMs have reserved with what the placement was decided on.
    compares_vms: bool,
    /// A commit records the start, which stays until the transfer has begun or the placement ends.
    records_start: bool,
    /// The daemon leaves a transfer that has begun for the same placement as it is.
    knows_begun: bool,
    /// A placer whose start was refused removes the placement only if its start is still recorded.
    compares_start: bool,
}

const FENCE: Rules = Rules {
    compares_reservation: true,
    compares_member: true,
    checks: true,
    checks_again: true,
    confirms_at_once: true,
    compares_vms: true,
    records_start: true,
    knows_begun: true,
    compares_start: true,
};

/// State that a placer has loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Loaded {
    revision: u8,
    reservation_put: u8,
    reserved: u8,
    member: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Placer {
    Undecided {
        restarts: u8,
    },
    Committing {
        loaded: Loaded,
        restarts: u8,
    },
    /// Has sent the start of placement `id`, which may arrive late.
    Starting {
        id: u8,
        reserved: u8,
    },
    /// The daemon has confirmed the placement.
    Checked {
        id: u8,
        reserved: u8,
    },
    /// The transfer has begun, and is to be confirmed once more.
    Begun {
        id: u8,
    },
    /// The daemon has confirmed the transfer, and is to delete the recorded start after that.
    Deleting {
        id: u8,
    },
    /// Was refused, and is to remove the placement.
    Removing {
        id: u8,
    },
    Ended,
}

/// Operator who ends the transfer of the first placer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Ender {
    Idle,
    /// Has loaded this revision, and the daemon has said that the transfer does not run.
    Asked {
        revision: u8,
    },
    Ended,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    revision: u8,
    /// Placement of each placer's transfer: the number of its commit.
    placed: [Option<u8>; 2],
    /// Published reservation, and the number of its puts.
    reserved: u8,
    reservation_puts: u8,
    /// Number of the registration in etcd.
    member: Option<u8>,
    /// Number of the registration that the daemon takes for its own.
    own: u8,
    /// Sum that the VMs have reserved.
    vms: u8,
    running: [Option<u8>; 2],
    /// Recorded starts: placement, and sum of reservations that it was decided on.
    recorded: [Option<(u8, u8)>; 2],
    /// Placement of each transfer that has begun at some time.
    begun: [Option<u8>; 2],
    /// Times that each transfer's present placement has begun.
    beginnings: [u8; 2],
    /// Phases of the placers, and after them of the daemon's own starts of the same transfers.
    placers: [Placer; 4],
    ender: Ender,
    /// Sum beyond the room that a VM has caused which came after a start.
    excess: u8,
    /// A commit overfilled the host by what was published.
    overfilled: bool,
    /// A commit placed on the host while no daemon was registered.
    placed_on_lost: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Decide(usize),
    Commit(usize),
    Check(usize),
    Begin(usize),
    CheckAgain(usize),
    /// The confirmation is carried out, and its answer is lost.
    CheckUnanswered(usize),
    /// The daemon deletes a recorded start on its own.
    Delete(usize),
    /// A placer that was refused removes its placement.
    Remove(usize),
    /// A placer ends before it has sent the start.
    Die(usize),
    /// The daemon finds the recorded start of a transfer.
    Recover(usize),
    AskForEnd,
    End,
    LoseLease,
    Register,
    AddVm,
    Publish,
}

struct Fence(Rules);

impl World {
    fn transfers(&self) -> u8 {
        self.running.iter().flatten().count() as u8
    }

    /// Returns the sum that a placer counts: placements, and transfers that run without one.
    fn counted(&self) -> u8 {
        let pairs = self.placed.iter().zip(&self.running);
        let there = pairs.filter(|(placed, running)| placed.is_some() || running.is_some());
        there.count() as u8 + self.reserved
    }

    /// Refuses a start: the placer is to remove its placement. The daemon's own start is tried
    /// again later.
    fn refuse(&mut self, placer: usize, id: u8) {
        self.placers[placer] = match placer {
            0 | 1 => Placer::Removing { id },
            _ => Placer::Ended,
        };
    }

    fn end_placement(&mut self, transfer: usize) {
        self.placed[transfer] = None;
        self.recorded[transfer] = None;
        self.revision += 1;
    }

    /// Returns the beginning of the daemon's own start of a transfer, if one is recorded.
    fn recovery(&self, transfer: usize) -> Option<Placer> {
        let is_idle = self.placers[transfer + 2] == Placer::Ended;
        let is_member = self.member == Some(self.own);
        let (id, reserved) = self.recorded[transfer].filter(|_| is_idle && is_member)?;
        Some(Placer::Starting { id, reserved })
    }

    /// Returns the operator after the question whether the first transfer runs, which would be its
    /// daemon's to end; `None`: there is nothing to ask.
    fn asked(&self) -> Option<Ender> {
        let is_to_end = self.ender == Ender::Idle && self.placed[0].is_some();
        let revision = self.revision;
        (is_to_end && self.running[0].is_none()).then_some(Ender::Asked { revision })
    }

    fn publish(&mut self) {
        self.reserved = self.vms;
        self.reservation_puts += 1;
    }

    fn is_settled(&self) -> bool {
        let begun = |phase: &Placer| matches!(phase, Placer::Begun { .. });
        !self.placers.iter().any(begun)
    }
}

impl Fence {
    fn commit(&self, world: &mut World, placer: usize, loaded: Loaded, restarts: u8) {
        let rules = self.0;
        let holds = world.revision == loaded.revision
            && (!rules.compares_reservation || world.reservation_puts == loaded.reservation_put)
            && (!rules.compares_member || world.member == loaded.member);
        if !holds {
            world.placers[placer] = match restarts {
                RESTARTS => Placer::Ended,
                _ => Placer::Undecided {
                    restarts: restarts + 1,
                },
            };
            return;
        }
        world.revision += 1;
        let id = world.revision;
        world.placed[placer] = Some(id);
        world.beginnings[placer] = 0;
        if self.0.records_start {
            world.recorded[placer] = Some((id, loaded.reserved));
        }
        world.overfilled |= world.placed.iter().flatten().count() as u8 + world.reserved > ROOM;
        world.placed_on_lost |= world.member.is_none();
        world.placers[placer] = Placer::Starting {
            id,
            reserved: loaded.reserved,
        };
    }

    /// Removes the placement of a placer that was refused, if it is still that one.
    fn remove(&self, world: &mut World, placer: usize) {
        if let Placer::Removing { id } = world.placers[placer] {
            let start = world.recorded[placer].map(|(id, _)| id);
            let may_have_begun = self.0.compares_start && start != Some(id);
            if world.placed[placer] == Some(id) && !may_have_begun {
                world.end_placement(placer);
            }
            world.placers[placer] = Placer::Ended;
        }
    }

    /// Carries out a step of the daemon for a start, that of a placer or its own.
    fn start(&self, world: &mut World, placer: usize) {
        let is_member = world.member == Some(world.own);
        let transfer = placer % 2;
        match world.placers[placer] {
            Placer::Starting { id, reserved } => {
                let stands = is_member && world.placed[transfer] == Some(id);
                if stands || !self.0.checks {
                    world.placers[placer] = Placer::Checked { id, reserved };
                } else {
                    world.refuse(placer, id);
                }
            }
            Placer::Checked { id, reserved } => {
                let has_begun = self.0.knows_begun && world.begun[transfer] == Some(id);
                if !has_begun {
                    if self.0.compares_vms && world.vms > reserved {
                        return world.refuse(placer, id);
                    }
                    world.running[transfer] = Some(id);
                    world.begun[transfer] = Some(id);
                    world.beginnings[transfer] += 1;
                }
                world.placers[placer] = if self.0.checks_again {
                    Placer::Begun { id }
                } else {
                    Placer::Ended
                };
            }
            // A daemon that cannot ask lets the transfer go on, and asks again.
            Placer::Begun { .. } if !is_member => {}
            Placer::Begun { id } if world.placed[transfer] != Some(id) => {
                world.running[transfer] = None;
                world.placers[placer] = Placer::Ended;
            }
            Placer::Begun { id } if !self.0.confirms_at_once => {
                world.placers[placer] = Placer::Deleting { id };
            }
            Placer::Begun { .. } => {
                world.recorded[transfer] = None;
                world.placers[placer] = Placer::Ended;
            }
            Placer::Deleting { id } => {
                // Compared with what was read, so that it is of this placement.
                let recorded = &mut world.recorded[transfer];
                *recorded = recorded.filter(|(recorded, _)| *recorded != id);
                world.placers[placer] = Placer::Ended;
            }
            _ => {}
        }
    }
    /// Returns the placement that is confirmed while the answer to the daemon is lost;
    /// `None`: it confirms none.
    fn unanswered(&self, world: &World, placer: usize) -> Option<u8> {
        let Placer::Begun { id } = world.placers[placer] else {
            return None;
        };
        let is_member = world.member == Some(world.own);
        let stands = world.placed[placer % 2] == Some(id);
        (is_member && stands && self.0.confirms_at_once).then_some(id)
    }
}

impl Model for Fence {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            revision: 0,
            placed: [None; 2],
            reserved: 0,
            reservation_puts: 1,
            member: Some(0),
            own: 0,
            vms: 0,
            running: [None; 2],
            recorded: [None; 2],
            begun: [None; 2],
            beginnings: [0; 2],
            placers: [
                Placer::Undecided { restarts: 0 },
                Placer::Undecided { restarts: 0 },
                Placer::Ended,
                Placer::Ended,
            ],
            ender: Ender::Idle,
            excess: 0,
            overfilled: false,
            placed_on_lost: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (placer, phase) in world.placers.iter().enumerate() {
            steps.extend(match phase {
                Placer::Undecided { .. } => Some(Step::Decide(placer)),
                Placer::Committing { .. } => Some(Step::Commit(placer)),
                Placer::Starting { .. } => Some(Step::Check(placer)),
                Placer::Checked { .. } => Some(Step::Begin(placer)),
                Placer::Begun { .. } => Some(Step::CheckAgain(placer)),
                Placer::Deleting { .. } => Some(Step::Delete(placer)),
                Placer::Removing { .. } => Some(Step::Remove(placer)),
                Placer::Ended => None,
            });
        }
        steps.extend([0, 1, 2, 3].map(Step::CheckUnanswered));
        steps.extend([0, 1].map(Step::Die));
        steps.extend([0, 1].map(Step::Recover));
        steps.extend([
            Step::AskForEnd,
            Step::End,
            Step::LoseLease,
            Step::Register,
            Step::AddVm,
            Step::Publish,
        ]);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Decide(placer) => {
                let Placer::Undecided { restarts } = world.placers[placer] else {
                    return None;
                };
                if world.member.is_none() || world.counted() >= ROOM {
                    return None;
                }
                let loaded = Loaded {
                    revision: world.revision,
                    reservation_put: world.reservation_puts,
                    reserved: world.reserved,
                    member: world.member,
                };
                next.placers[placer] = Placer::Committing { loaded, restarts };
            }
            Step::Commit(placer) => {
                let Placer::Committing { loaded, restarts } = world.placers[placer] else {
                    return None;
                };
                self.commit(&mut next, placer, loaded, restarts);
            }
            Step::Check(placer)
            | Step::Begin(placer)
            | Step::CheckAgain(placer)
            | Step::Delete(placer) => self.start(&mut next, placer),
            Step::CheckUnanswered(placer) => {
                self.unanswered(world, placer)?;
                next.recorded[placer % 2] = None;
            }
            Step::Remove(placer) => self.remove(&mut next, placer),
            Step::Die(placer) => {
                let Placer::Starting { .. } = world.placers[placer] else {
                    return None;
                };
                next.placers[placer] = Placer::Ended;
            }
            Step::Recover(transfer) => next.placers[transfer + 2] = world.recovery(transfer)?,
            Step::AskForEnd => next.ender = world.asked()?,
            Step::End => {
                let Ender::Asked { revision } = world.ender else {
                    return None;
                };
                next.ender = Ender::Ended;
                if world.revision == revision {
                    next.end_placement(0);
                }
            }
            Step::LoseLease => next.member = None,
            Step::Register if world.member.is_none() && world.own < RESTARTS => {
                next.own += 1;
                next.member = Some(next.own);
                next.publish();
            }
            Step::AddVm if world.vms == 0 => {
                next.vms = 1;
                next.excess = (world.transfers() + next.vms).saturating_sub(ROOM);
            }
            Step::Publish if world.reserved != world.vms && world.member == Some(world.own) => {
                next.publish();
            }
            Step::Register | Step::AddVm | Step::Publish => return None,
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Fence>> {
        vec![
            Property::always(STARTS_FIT, |_, world: &World| {
                !world.is_settled() || world.transfers() + world.vms <= ROOM + world.excess
            }),
            Property::always(PLACEMENTS_FIT, |_, world: &World| !world.overfilled),
            Property::always(NONE_ON_LOST, |_, world: &World| !world.placed_on_lost),
            Property::always(NONE_LOST, |_, world: &World| {
                let is_lost = |at: usize| {
                    let left = world.placed[at].filter(|_| world.placers[at] == Placer::Ended);
                    left.is_some_and(|id| {
                        world.begun[at] != Some(id) && world.recorded[at].is_none()
                    })
                };
                !is_lost(0) && !is_lost(1)
            }),
            // An operator who asks just before the transfer begins may end that of the first.
            Property::always(RUNS_PLACED, |_, world: &World| {
                let is_over = [1, 3].map(|at| world.placers[at] == Placer::Ended);
                is_over != [true, true]
                    || world.running[1].is_none()
                    || world.running[1] == world.placed[1]
            }),
            Property::always(BEGUN_ONCE, |_, world: &World| {
                world.beginnings.iter().all(|times| *times <= 1)
            }),
            Property::sometimes(WITHOUT_PLACER, |_, world: &World| {
                world.running[0].is_some() && world.placers[2] != Placer::Ended
            }),
            Property::sometimes(SECOND_RUNS, |_, world: &World| {
                world.ender == Ender::Ended && world.running[1].is_some()
            }),
            Property::sometimes(AFTER_LOSS, |_, world: &World| {
                world.own > 0 && world.running[0].is_some()
            }),
        ]
    }
}

const STARTS_FIT: &str = "transfers are started beside what VMs have reserved";
const PLACEMENTS_FIT: &str = "placements fit beside what was published";
const NONE_ON_LOST: &str = "nothing is placed on a host without a daemon";
const NONE_LOST: &str = "a placement that its placer has left has begun, or its start is recorded";
const RUNS_PLACED: &str = "a transfer that runs is placed";
const BEGUN_ONCE: &str = "a placement begins once";
const WITHOUT_PLACER: &str = "the daemon starts a transfer by itself";
const SECOND_RUNS: &str = "the second transfer runs in place of the first";
const AFTER_LOSS: &str = "a daemon that was lost starts transfers again";

#[test]
fn no_order_of_steps_overfills_a_host_beside_its_vms() {
    let checker = Fence(FENCE).checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Rules of which one is broken, with the property that this violates.
fn broken_rules() -> [(Rules, &'static str); 9] {
    [
        (
            Rules {
                compares_reservation: false,
                ..FENCE
            },
            PLACEMENTS_FIT,
        ),
        (
            Rules {
                compares_member: false,
                ..FENCE
            },
            NONE_ON_LOST,
        ),
        (
            Rules {
                checks: false,
                checks_again: false,
                ..FENCE
            },
            STARTS_FIT,
        ),
        (
            Rules {
                checks_again: false,
                ..FENCE
            },
            STARTS_FIT,
        ),
        (
            Rules {
                confirms_at_once: false,
                ..FENCE
            },
            RUNS_PLACED,
        ),
        (
            Rules {
                compares_vms: false,
                ..FENCE
            },
            STARTS_FIT,
        ),
        (
            Rules {
                records_start: false,
                ..FENCE
            },
            NONE_LOST,
        ),
        (
            Rules {
                knows_begun: false,
                ..FENCE
            },
            BEGUN_ONCE,
        ),
        (
            Rules {
                compares_start: false,
                ..FENCE
            },
            RUNS_PLACED,
        ),
    ]
}

#[test]
fn each_broken_rule_is_found() {
    for (rules, found) in broken_rules() {
        let checker = Fence(rules).checker();
        let checker = checker.finish_when(HasDiscoveries::AnyOf([found].into()));
        checker.spawn_bfs().join().assert_any_discovery(found);
    }
}
