//! Tests of the engine's behaviours, one by one. Random sequences are in `tests/`.

use crate::common::credit::Credits;
use crate::common::{Driver, config, connect_single_vm};
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig, Refusal};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::part::Capacity;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Done, IoError, Op, Request, VmId};
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs, Roles};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::dispatch::cost::{CostBy, CostParams};
use tidegate_policies::dispatch::mclock::{MClock, MClockParams};
use tidegate_policies::policy::PolicySpec;

pub(crate) const KIB: u32 = 1 << 10;

/// Driver of an engine with few slots, which merges up to 64 KiB and splits at 256 KiB.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
}

impl Bench {
    pub(crate) fn new(policy: &str, depth: u32) -> Bench {
        let config = config(depth, 64 * KIB);
        let config = EngineConfig {
            device: DeviceSpec {
                max_io: 256 * KIB,
                ..config.device
            },
            max_requests: 192,
            max_pending_per_vm: 32,
            max_vms: 8,
            ..config
        };
        let policy = PolicySpec::named(policy).expect("a registered policy");
        Bench {
            driver: Driver::new(config, &policy),
        }
    }

    /// Replaces the regulator by one that only tests need.
    pub(crate) fn with_credits(mut self, per_interval: u32, interval: Nanos) -> Bench {
        // Around the policy in force alone: one that comes later has its own regulator.
        let in_force = AtomicBool::new(true);
        self.driver
            .engine
            .wrap_roles(self.driver.now, move |mut roles| {
                if in_force.swap(false, Ordering::Relaxed) {
                    roles.regulator = Box::new(Credits::new(per_interval, interval));
                }
                roles
            });
        self
    }

    pub(crate) fn vm(&mut self, objective: &Objective) -> (VmId, ClientId) {
        let vm = self.driver.vm(objective);
        let disk = self.disk(vm);
        (vm, self.driver.client(disk))
    }

    pub(crate) fn disk(&mut self, vm: VmId) -> DiskId {
        let spec = DiskSpec {
            base: (vm.index() as u64) << 40,
            size: 1 << 36,
            read_only: false,
        };
        self.driver.try_disk(vm, spec).expect("a valid range")
    }

    pub(crate) fn ask(&mut self, client: ClientId, request: Request) {
        let taken = self.driver.request(client, request);
        taken.expect("room for a request");
    }

    pub(crate) fn dispatch(&mut self) -> Vec<DeviceIo> {
        self.driver.start_all()
    }

    pub(crate) fn end(&mut self, io: &DeviceIo, outcome: Result<(), IoError>) {
        self.driver.end(io, outcome);
    }

    pub(crate) fn tags(&mut self) -> Vec<u64> {
        self.driver.answers().iter().map(|d| d.tag).collect()
    }

    /// Completes everything, the latest I/O first. Returns the answers since the last call.
    pub(crate) fn drain(&mut self) -> Vec<Done> {
        loop {
            self.dispatch();
            if let Some(io) = self.driver.in_flight.back().copied() {
                self.end(&io, Ok(()));
            } else if self.driver.engine.device_stats().requests > 0 {
                assert!(self.driver.wake(), "what waits has a timer");
            } else {
                self.driver.assert_drained();
                return self.driver.answers();
            }
        }
    }
}

#[test]
fn adjacent_requests_become_one_io_and_are_answered_apart() {
    let mut b = Bench::new("fifo", 1);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::read(1 << 30, 4096, 0)); // keeps the device busy
    let busy = b.dispatch()[0];
    b.ask(client, Request::read(8192, 4096, 2));
    b.ask(client, Request::read(12288, 4096, 3)); // behind it
    b.ask(client, Request::read(4096, 4096, 1)); // before it
    b.ask(client, Request::write(16384, 4096, 4)); // another operation
    b.end(&busy, Ok(()));
    let io = b.dispatch()[0];
    assert_eq!(
        (io.op, io.offset, io.len, io.first_ops),
        (Op::Read, 4096, 12288, 3)
    );
    let tags: Vec<u64> = b.driver.engine.io_segments(io.id).map(|s| s.tag).collect();
    assert_eq!(tags, [1, 2, 3], "in the order of their addresses");
    b.end(&io, Ok(()));
    assert_eq!(b.tags(), [0, 1, 2, 3]);
    assert_eq!(b.drain().len(), 1);
}

#[test]
fn a_merge_stops_at_the_limit_and_never_mixes_disks() {
    let mut b = Bench::new("fifo", 1);
    let (vm, client) = b.vm(&Objective::default());
    let neighbour = b.driver.guest_at(vm, 1 << 36, 1 << 20).client;
    b.ask(client, Request::read(0, 4096, 0));
    let busy = b.dispatch()[0];
    // The second disk begins on the device where the first one ends.
    b.ask(client, Request::read((1 << 36) - 4096, 4096, 1));
    b.ask(neighbour, Request::read(0, 4096, 2));
    b.ask(neighbour, Request::read(4096, 60 * KIB, 3)); // 64 KiB together: just fits
    b.ask(neighbour, Request::read(64 * KIB as u64, 4096, 4)); // would not
    b.end(&busy, Ok(()));
    let lens: Vec<u32> = (0..3)
        .map(|_| {
            let io = b.dispatch()[0];
            b.end(&io, Ok(()));
            io.len
        })
        .collect();
    assert_eq!(lens, [4096, 64 * KIB, 4096]);
    b.drain();
}

#[test]
fn an_error_of_a_merged_io_hits_only_the_request_it_belongs_to() {
    let mut b = Bench::new("mclock", 1);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::write(1 << 30, 4096, 0));
    let busy = b.dispatch()[0];
    for i in 0..3 {
        b.ask(client, Request::write(i * 4096, 4096, 1 + i));
    }
    b.end(&busy, Ok(()));
    let io = b.dispatch()[0];
    assert_eq!(io.len, 3 * 4096);
    b.end(&io, Err(IoError::Io));
    assert_eq!(b.tags(), [0], "they go again, alone");
    for _ in 0..3 {
        let io = b.dispatch()[0];
        assert_eq!(
            (io.len, io.first_ops),
            (4096, 0),
            "and are not charged again"
        );
        let outcome = if io.offset == 4096 {
            Err(IoError::Io)
        } else {
            Ok(())
        };
        b.end(&io, outcome);
    }
    let outcomes: Vec<_> = b
        .driver
        .answers()
        .iter()
        .map(|d| (d.tag, d.outcome))
        .collect();
    assert_eq!(outcomes, [(1, Ok(())), (2, Err(IoError::Io)), (3, Ok(()))]);
}

#[test]
fn a_large_request_is_split_on_physical_blocks_and_answered_once() {
    let mut b = Bench::new("fifo", 2);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::read(1024, 600 * KIB, 9)); // starts inside a block
    let parts = b.dispatch();
    assert_eq!(parts.len(), 2, "the depth");
    assert_eq!((parts[0].offset, parts[0].len), (1024, 256 * KIB - 1024));
    assert_eq!(parts[0].first_ops, 1);
    assert_eq!((parts[1].offset, parts[1].len), (256 << 10, 256 * KIB));
    assert_eq!(parts[1].first_ops, 0);
    b.end(&parts[1], Ok(()));
    assert!(b.driver.answers().is_empty());
    let last = b.dispatch()[0];
    b.end(&parts[0], Ok(()));
    b.end(&last, Ok(()));
    assert_eq!(last.offset + last.len as u64, 1024 + (600 << 10));
    assert_eq!(b.tags(), [9]);
}

#[test]
fn what_goes_in_parts_is_inside_once_and_ends_once() {
    let mut b = Bench::new("fifo", 2);
    let (_, client) = b.vm(&Objective::default());
    let seen = |b: &Bench| {
        let device = b.driver.engine.view().device();
        (device.in_flight, device.inside(), device.ended_of_vms())
    };
    b.ask(client, Request::read(0, 1024 * KIB, 9)); // four parts
    b.ask(client, Request::read(1 << 30, 4096, 10));
    assert_eq!(seen(&b), (0, 2, 0));
    let parts = b.dispatch();
    assert_eq!(seen(&b), (2, 2, 0));
    b.end(&parts[0], Ok(()));
    b.end(&parts[1], Ok(()));
    assert_eq!(seen(&b), (0, 2, 0));
    let parts = b.dispatch();
    assert_eq!(seen(&b), (2, 2, 0));
    // Its last part ends before another one.
    b.end(&parts[1], Ok(()));
    assert_eq!(seen(&b), (1, 1, 1));
    b.end(&parts[0], Ok(()));
    assert_eq!(seen(&b), (0, 1, 1));
    assert_eq!(b.tags(), [9]);
    b.drain();
    assert_eq!(seen(&b), (0, 0, 2));
    // A failed request leaves nothing behind.
    b.ask(client, Request::read(0, 1024 * KIB, 11));
    let parts = b.dispatch();
    b.end(&parts[0], Err(IoError::Io));
    b.end(&parts[1], Ok(()));
    assert_eq!((seen(&b).0, seen(&b).1), (0, 0));
}

#[test]
fn a_failed_part_fails_its_request_and_the_rest_is_not_asked_for() {
    let mut b = Bench::new("fifo", 1);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::write(0, 600 * KIB, 9));
    let part = b.dispatch()[0];
    b.end(&part, Err(IoError::NoSpace));
    assert_eq!(b.driver.answers()[0].outcome, Err(IoError::NoSpace));
    assert!(b.dispatch().is_empty() && b.driver.engine.is_idle());
}

#[test]
fn a_vanished_client_takes_its_part_out_of_a_merged_unit() {
    let mut b = Bench::new("mclock", 1);
    let vm = b.driver.vm(&Objective::default());
    let disk = b.disk(vm);
    let stays = b.driver.client(disk);
    let goes = b.driver.client(disk);
    b.ask(stays, Request::read(1 << 30, 4096, 0));
    let busy = b.dispatch()[0];
    for (i, client) in [stays, goes, stays].into_iter().enumerate() {
        b.ask(client, Request::read(i as u64 * 4096, 4096, 1 + i as u64));
    }
    assert_eq!(b.driver.engine.vms().vm_stats(vm).merged, 2);
    b.driver.disconnect(goes);
    let done = b.driver.answers();
    assert_eq!(
        (done.len(), done[0].tag, done[0].outcome),
        (1, 2, Err(IoError::Cancelled))
    );
    assert!(b.driver.request(goes, Request::read(0, 4096, 5)).is_err());
    b.end(&busy, Ok(()));
    let tags: Vec<u64> = b.drain().iter().map(|d| d.tag).collect();
    assert_eq!(tags, [0, 1, 3]);
}

#[test]
fn shares_stay_what_they_are_when_virtual_time_goes_round() {
    let order = |clock: u64, keys_count_from: u64| {
        let capacity = Capacity {
            vms: 8,
            requests: 64,
            limits_kept: false,
            allocated: false,
            shared: false,
        };
        let params = MClockParams {
            cost: CostParams {
                by: CostBy::Bytes,
                size: 4096,
            },
            slack: Nanos::ZERO,
            catch_up: Nanos::ZERO,
            target_floor: false,
        };
        let mut b = Bench::new("mclock", 1);
        b.driver.engine.wrap_roles(b.driver.now, move |roles| {
            let mclock = MClock::new(params, &capacity).grown_old(clock, keys_count_from);
            Roles {
                dispatcher: Box::new(mclock),
                ..roles
            }
        });
        let clients = [1, 2, 5].map(|weight| {
            let objective = Objective {
                weight,
                ..Objective::default()
            };
            b.vm(&objective).1
        });
        for i in 0..8u64 {
            for client in clients {
                b.ask(client, Request::read(i << 20, 4096, i));
            }
        }
        let mut order = Vec::new();
        for i in 8..200u64 {
            let io = b.dispatch()[0];
            order.push(io.vm);
            b.end(&io, Ok(()));
            b.ask(clients[io.vm.index()], Request::read(i << 20, 4096, i));
        }
        b.drain();
        order
    };
    let span = 1u64 << 62;
    let young = order(0, 0u64.wrapping_sub(span));
    // A service of weight 1 takes 2^20; both happen within the first few.
    let round = u64::MAX - (1 << 21);
    assert_eq!(order(round, round - span), young, "64 bits are full");
    let late = 2 * span - (1 << 21);
    assert_eq!(order(late, 0), young, "keys count anew");
}

#[test]
fn a_flush_waits_for_no_data_and_joins_others() {
    let mut b = Bench::new("mclock", 1);
    let objective = Objective {
        limit: tidegate_core::objective::Limit {
            total: Rate::iops(1),
            ..tidegate_core::objective::Limit::NONE
        },
        ..Objective::default()
    };
    let (_, client) = b.vm(&objective);
    for i in 0..4u64 {
        b.ask(client, Request::write(i << 20, 4096, i));
    }
    let first = b.dispatch()[0];
    b.ask(client, Request::flush(10));
    b.ask(client, Request::flush(11));
    b.end(&first, Ok(()));
    let io = b.dispatch()[0];
    assert_eq!(
        (io.op, io.first_ops),
        (Op::Flush, 2),
        "although the limit holds the writes"
    );
    b.ask(client, Request::flush(12)); // after it started: needs one of its own
    b.end(&io, Ok(()));
    assert_eq!(b.tags(), [0, 10, 11]);
    let io = b.dispatch()[0];
    assert_eq!(io.op, Op::Flush);
    b.end(&io, Ok(()));
    b.drain();
}

#[test]
fn flushes_never_take_two_turns_in_a_row_while_data_wait() {
    let mut b = Bench::new("fifo", 1);
    let (_, noisy) = b.vm(&Objective::default());
    let (_, quiet) = b.vm(&Objective::default());
    for i in 0..5u64 {
        b.ask(quiet, Request::read(i << 20, 4096, i));
        b.ask(noisy, Request::flush(100 + i));
    }
    let mut order = Vec::new();
    for i in 0..10u64 {
        let io = b.dispatch()[0];
        order.push(io.op);
        b.end(&io, Ok(()));
        if i < 4 {
            b.ask(noisy, Request::flush(200 + i));
        }
        if b.driver.engine.is_idle() {
            break;
        }
    }
    let twice = order
        .windows(2)
        .take(8)
        .any(|w| w == [Op::Flush, Op::Flush]);
    assert!(!twice, "{order:?}");
    b.drain();
}

#[test]
fn a_turn_that_finds_nothing_waiting_counts_as_one_of_data() {
    let mut b = Bench::new("fifo", 1);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::flush(0));
    let io = b.dispatch()[0];
    b.end(&io, Ok(()));
    assert!(b.dispatch().is_empty());
    b.ask(client, Request::read(0, 4096, 1));
    b.ask(client, Request::flush(2));
    let io = b.dispatch()[0];
    assert_eq!(io.op, Op::Flush, "the flush before was not the last turn");
    b.end(&io, Ok(()));
    b.drain();
}

#[test]
fn admission_holds_units_until_credits_come_and_books_it_as_regulated() {
    let interval = Nanos::from_millis(30);
    let mut b = Bench::new("fifo", 8).with_credits(2, interval);
    let (_, client) = b.vm(&Objective::default());
    for i in 0..5u64 {
        b.ask(client, Request::read(i << 20, 4096, i));
    }
    assert_eq!(b.dispatch().len(), 2);
    assert_eq!(b.driver.engine.next_timeout(), Some(interval));
    let done = b.drain();
    let regulated: Vec<u64> = done
        .iter()
        .map(|d| d.account.regulated.0 / 1_000_000)
        .collect();
    let mut sorted = regulated.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 0, 30, 30, 60]);
}

#[test]
fn a_swap_away_from_admission_frees_what_was_pending() {
    let mut b = Bench::new("fifo", 8).with_credits(1, Nanos::from_secs(1000));
    let (_, client) = b.vm(&Objective::default());
    for i in 0..3u64 {
        b.ask(client, Request::read(i << 20, 4096, i));
    }
    assert_eq!(b.dispatch().len(), 1);
    let policy = PolicySpec::named("mclock").expect("a registered policy");
    b.driver.engine.set_policy(b.driver.now, &policy);
    assert_eq!(b.dispatch().len(), 2);
    b.drain();
}

/// Controller that sets the first VM's merge limit and weight when the first I/O ends.
struct OneTurn {
    vm: VmId,
}

impl Controller for OneTurn {
    fn interests(&self) -> Interests {
        Interests::ENDED
    }

    fn on_event(&mut self, _: &View, _: &Event, out: &mut Knobs) {
        out.set(self.vm, Knob::MergeLimit(8 * KIB));
        out.set(self.vm, Knob::Weight(7));
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _: &View, _: &mut Knobs) {}
}

#[test]
fn a_merge_limit_that_shrinks_splits_units_that_wait() {
    let mut b = Bench::new("mclock", 1);
    let (vm, client) = b.vm(&Objective::default());
    b.driver
        .engine
        .wrap_roles(b.driver.now, move |roles| Roles {
            controller: Some(Box::new(OneTurn { vm })),
            ..roles
        });
    b.ask(client, Request::read(1 << 30, 4096, 0));
    let busy = b.dispatch()[0];
    for i in 0..4 {
        b.ask(client, Request::read(i * 4096, 4096, 1 + i));
    }
    b.ask(client, Request::read(1 << 20, 20 * KIB, 9));
    b.end(&busy, Ok(())); // the controller acts here
    let mut ios = Vec::new();
    while let [io] = b.dispatch()[..] {
        ios.push((io.offset, io.len));
        b.end(&io, Ok(()));
    }
    let expected = [
        (0, 8 * KIB),
        (8192, 8 * KIB),
        (1 << 20, 8 * KIB),
        ((1 << 20) + 8192, 8 * KIB),
        ((1 << 20) + 16384, 4 * KIB),
    ];
    assert_eq!(ios, expected, "merged and large requests keep to it alike");
    assert_eq!(b.tags(), [0, 1, 2, 3, 4, 9]);
}

#[test]
fn of_a_unit_that_is_split_what_came_first_goes_first() {
    let mut b = Bench::new("edf", 1);
    let (vm, client) = b.vm(&Objective::default());
    b.driver
        .engine
        .wrap_roles(b.driver.now, move |roles| Roles {
            controller: Some(Box::new(OneTurn { vm })),
            ..roles
        });
    b.ask(client, Request::read(1 << 30, 4096, 0));
    let busy = b.dispatch()[0];
    // Each joins the one before it in front; together they are too long once the limit is 8 KiB.
    for tag in 1..=6 {
        b.driver.now += Nanos(1000);
        b.ask(client, Request::read((6 - tag) * 4096, 4096, tag));
    }
    b.end(&busy, Ok(()));
    let mut arrived = Vec::new();
    while let [io] = b.dispatch()[..] {
        arrived.push((io.offset, io.arrived.0));
        b.end(&io, Ok(()));
    }
    let expected = [(16384, 1000), (8192, 3000), (0, 5000)];
    assert_eq!(arrived, expected, "by the oldest request of each");
}

#[test]
fn a_removed_vm_is_gone_when_its_last_io_ends() {
    let mut b = Bench::new("mclock", 1);
    let (vm, client) = b.vm(&Objective::default());
    b.ask(client, Request::read(0, 4096, 0));
    let io = b.dispatch()[0];
    b.ask(client, Request::read(1 << 20, 4096, 1));
    b.ask(client, Request::flush(2));
    b.driver.remove_vm(vm);
    assert_eq!(b.tags(), [1, 2]);
    assert!(
        b.driver
            .engine
            .vms_mut()
            .remove_vm(b.driver.now, vm)
            .is_err()
    );
    b.end(&io, Ok(()));
    assert_eq!(b.tags(), [0]);
    let (again, _) = b.vm(&Objective::default());
    assert_eq!(again.index(), vm.index());
    assert_ne!(again, vm);
    assert!(
        b.driver
            .engine
            .vms_mut()
            .set_objective(b.driver.now, vm, &Objective::default())
            .is_err()
    );
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut b = Bench::new("fifo", 1);
    let (vm, client) = b.vm(&Objective::default());
    let spec = DiskSpec {
        base: 1 << 50,
        size: 8192,
        read_only: true,
    };
    let read_only = b.driver.try_disk(vm, spec).expect("a valid range");
    let reader = b.driver.client(read_only);
    let mut refuse = |client, request| b.driver.request(client, request).unwrap_err();
    assert_eq!(refuse(client, Request::read(0, 0, 0)), Refusal::Empty);
    let size = 1 << 36;
    let beyond = Refusal::OutOfRange {
        offset: size - 512,
        end: size + 3584,
        size,
    };
    assert_eq!(refuse(client, Request::read(size - 512, 4096, 0)), beyond);
    assert!(matches!(
        refuse(client, Request::read(u64::MAX, 4096, 0)),
        Refusal::OutOfRange { .. }
    ));
    assert_eq!(refuse(reader, Request::write(0, 512, 0)), Refusal::ReadOnly);
    for i in 0..32 {
        b.ask(client, Request::read(i << 20, 4096, i));
    }
    assert_eq!(
        b.driver
            .engine
            .admission_mut()
            .available_slots(Nanos::ZERO, client),
        0
    );
    assert_eq!(
        b.driver.request(client, Request::read(0, 512, 0)),
        Err(Refusal::Full)
    );
    assert_eq!(b.driver.engine.device_stats().requests, 32);
    b.drain();
}

#[test]
#[should_panic(expected = "is not in flight")]
fn completing_an_io_twice_is_a_bug_of_the_driver() {
    let mut b = Bench::new("fifo", 1);
    let (_, client) = b.vm(&Objective::default());
    b.ask(client, Request::read(0, 4096, 0));
    let io = b.dispatch()[0];
    b.end(&io, Ok(()));
    b.driver
        .engine
        .handle_completion(b.driver.now, io.id, Ok(()));
}

#[test]
#[should_panic(expected = "unanswered requests")]
#[cfg(debug_assertions)]
fn dropping_a_request_unfinished_is_noticed() {
    // By hand: a driver that is dropped leaves nothing unfinished.
    let policy = PolicySpec::named("fifo").expect("a registered policy");
    let mut engine = Engine::new(config(1, 0), &policy).expect("a valid configuration");
    let client = connect_single_vm(&mut engine);
    let taken = engine.handle_request(Nanos::ZERO, client, Request::read(0, 4096, 0));
    taken.expect("room for a request");
}

/// Regression test, found by torture: a request that became pending again at a change of policy,
/// with a part in flight, was admitted as if it had waited, and its account said "never".
#[test]
fn a_swap_to_admission_leaves_the_account_of_a_part_in_flight_alone() {
    let mut b = Bench::new("limit", 2);
    let limit = Objective {
        limit: tidegate_core::objective::Limit {
            read: Rate::iops(100),
            ..tidegate_core::objective::Limit::NONE
        },
        ..Objective::default()
    };
    let (_, client) = b.vm(&limit);
    // The second read finds its lane shut, which is what the accounts are reckoned from.
    for tag in [0, 1] {
        b.ask(client, Request::read(tag << 30, 4096, tag));
    }
    b.drain();
    b.driver.now += Nanos::SECOND;
    let asked = b.driver.now;
    b.ask(client, Request::read(1 << 32, 1024 * KIB, 2));
    for _ in 0..2 {
        assert_eq!(b.dispatch().len(), 1, "one at a time, at its rate");
        b.driver.now += Nanos::from_millis(10);
    }
    b.driver.now += Nanos::from_millis(3);
    b.driver.engine.wrap_roles(b.driver.now, |roles| Roles {
        regulator: Box::new(Credits::new(10, Nanos::SECOND)),
        ..roles
    });
    b.driver.now += Nanos::from_millis(4);
    let done = b.drain();
    let took = b.driver.now.since(asked);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].account.total(), took, "{:?}", done[0].account);
    assert_eq!(done[0].account.device, took);
}
