//! Tests of request slots and payload memory: no VM waits for resources that another VM holds
//! beyond its part, under any policy.

use crate::common::{Driver, config, limited, policy};
use std::collections::BTreeMap;
use tidegate_core::engine::{EngineConfig, PayloadBounds, PayloadMemory, Refusal};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{ClientId, Done, Op, Request, VmId};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const KIB: u32 = 1 << 10;
const MS: u64 = 1_000_000;

/// Engine with little payload memory, VMs with one client each, and a device that takes a
/// millisecond an I/O.
struct Crowd {
    driver: Driver,
    clients: Vec<(VmId, ClientId)>,
    answered: BTreeMap<u64, Done>,
}

impl Crowd {
    fn new(spec: &PolicySpec, total: u64, objectives: &[Objective]) -> Crowd {
        let config = EngineConfig {
            max_requests: 4096,
            ..config(4, 64 * KIB)
        };
        let mut driver = Driver::new(config, spec).with_clock_at(Nanos(1));
        driver.engine.admission_mut().bound_payload(&PayloadBounds {
            total,
            per_vm: total,
            largest: 256 * KIB,
        });
        // Requests go in parts while VMs share the device.
        driver
            .engine
            .device_mut()
            .set_max_io_shared(MaxIoShared::Bytes(16 * KIB));
        let clients = objectives.iter().map(|objective| {
            let guest = driver.guest(objective);
            (guest.vm, guest.client)
        });
        Crowd {
            clients: clients.collect(),
            driver,
            answered: BTreeMap::new(),
        }
    }

    fn ask(&mut self, who: usize, op: Op, offset: u64, len: u32) -> Result<u64, Refusal> {
        self.driver.ask(self.clients[who].1, op, offset, len)
    }

    /// Advances the time by a millisecond, in which the device ends its I/Os.
    fn pass(&mut self) {
        self.driver.now += Nanos(MS);
        self.driver.end_all();
        loop {
            self.driver.start_all();
            let answers = self.driver.answers();
            while (self.driver.engine.admission_mut())
                .poll_unblocked()
                .is_some()
            {}
            if answers.is_empty() {
                return;
            }
            self.answered
                .extend(answers.into_iter().map(|done| (done.tag, done)));
        }
    }

    fn return_kept(&mut self) {
        let Driver {
            replies,
            engine,
            now,
            ..
        } = &mut self.driver;
        replies.return_held(engine, *now);
    }

    /// Lets time pass until all requests are answered.
    fn drain(&mut self, what: &str) {
        for _ in 0..200_000 {
            if self.driver.engine.is_idle() {
                return;
            }
            self.pass();
        }
        panic!("{what}: something waits for ever");
    }
}

fn plain(vms: usize) -> Vec<Objective> {
    vec![Objective::default(); vms]
}

#[test]
fn with_hardly_any_memory_everything_is_answered_under_every_policy() {
    for spec in PolicySpec::every_composition() {
        let mut crowd = Crowd::new(spec, 32 << 10, &plain(3));
        let mut rng = SplitMix64::new(5);
        let mut asked = 0;
        for _ in 0..600 {
            let who = rng.below(3) as usize;
            let op = [Op::Read, Op::Read, Op::Write, Op::Flush][rng.below(4) as usize];
            let (offset, len) = match op {
                Op::Flush => (0, 0),
                _ => (
                    4096 * rng.below(64),
                    (4 * KIB) << rng.below(7), // up to 256 KiB, eight times what there is
                ),
            };
            asked += u64::from(crowd.ask(who, op, offset, len).is_ok());
            if rng.below(2) == 0 {
                crowd.pass();
            }
        }
        crowd.drain(spec.name());
        assert_eq!(crowd.answered.len() as u64, asked, "{}", spec.name());
        assert!(asked > 100, "{}: {asked}", spec.name());
        assert_eq!(
            crowd.driver.engine.admission().in_use(),
            (0, 0),
            "{}",
            spec.name()
        );
    }
}

#[test]
fn a_vm_whose_client_takes_no_replies_holds_up_nobody() {
    for spec in PolicySpec::every_composition() {
        let mut crowd = Crowd::new(spec, 1 << 20, &plain(4));
        let deaf = crowd.clients[0].0;
        crowd.driver.replies.unread_by.push(deaf);
        for n in 0..200 {
            let _ = crowd.ask(0, Op::Read, n << 16, 64 * KIB);
        }
        for turn in 0..200u64 {
            for who in 1..4 {
                let _ = crowd.ask(who, Op::Read, turn << 16, 32 * KIB);
            }
            crowd.pass();
        }
        // All others are answered; under a policy that gives credits by the interval in their time.
        let name = spec.name();
        let others = [1, 2, 3].map(|who| crowd.clients[who].0);
        let open = |crowd: &Crowd| others.map(|vm| crowd.driver.engine.view().requests(vm));
        let mut turns = 0;
        while open(&crowd) != [0; 3] {
            crowd.pass();
            turns += 1;
            assert!(turns < 60_000, "{name}: {:?} open", open(&crowd));
        }
        // The VM that takes no replies keeps its own memory, and no more of its requests go to the
        // device.
        assert!(crowd.driver.engine.view().requests(deaf) > 0, "{name}");
        let holdings = crowd.driver.engine.admission().holdings(deaf);
        assert!(holdings.payload > 0, "{name}");
        // Once its memory is returned, the VM continues.
        crowd.driver.replies.unread_by.clear();
        crowd.return_kept();
        crowd.drain(name);
        assert_eq!(crowd.driver.engine.admission().in_use(), (0, 0), "{name}");
    }
}

#[test]
fn reads_never_wait_for_memory_of_writes_that_wait_for_their_limit() {
    let mut slow = limited(Rate::NONE);
    slow.limit.write.bytes_per_s = Some(64 << 10);
    for name in ["mclock", "sfq", "limit"] {
        let spec = match name {
            "limit" => policy("token-bucket+fifo"),
            name => policy(name),
        };
        let mut crowd = Crowd::new(&spec, 1 << 20, &[slow]);
        let mut writes = 0;
        while crowd.ask(0, Op::Write, writes << 16, 64 * KIB).is_ok() {
            writes += 1;
        }
        assert!(writes >= 2, "{name}");
        let read = crowd.ask(0, Op::Read, 1 << 24, 128 * KIB).expect("a slot");
        for _ in 0..100 {
            crowd.pass();
        }
        assert!(crowd.answered.contains_key(&read), "{name}");
        crowd.drain(name);
    }
}

#[test]
fn a_read_of_which_the_beginning_went_along_with_another_is_not_kept_from_its_memory() {
    let mut spec = PolicySpec::composed(None, "merge-limit", "fifo").expect("registered");
    for (name, value) in [("pages", 4), ("fill", 100)] {
        spec.set(name, value).expect("it is in range");
    }
    let mut crowd = Crowd::new(&spec, u64::from(128 * KIB), &plain(1));
    // The first read takes 4 KiB of the last one along, which then has its memory. The read between
    // them finds none.
    let reads = [(0, 12 * KIB), (1 << 20, 64 * KIB), (12 << 10, 12 * KIB)];
    for (offset, len) in reads {
        crowd.ask(0, Op::Read, offset, len).expect("there is room");
    }
    crowd.pass();
    let first = crowd.driver.in_flight[0];
    assert_eq!((first.offset, first.len), (0, 16 * KIB));
    for _ in 0..20 {
        crowd.pass();
    }
    assert_eq!(crowd.answered.len(), reads.len());
}

#[test]
fn a_vm_with_all_its_slots_taken_takes_none_from_others() {
    let slow = limited(Rate {
        ops: None,
        bytes_per_s: Some(4096),
    });
    let mut objectives = vec![slow; 20];
    objectives.push(Objective::default());
    let mut crowd = Crowd::new(&policy("mclock"), 64 << 20, &objectives);
    for who in 0..20 {
        for n in 0..1024 {
            let _ = crowd.ask(who, Op::Read, n << 16, 4 * KIB);
        }
    }
    for turn in 0..50 {
        let read = crowd
            .ask(20, Op::Read, turn << 16, 4 * KIB)
            .expect("its own slot");
        (0..20).for_each(|_| crowd.pass());
        assert!(crowd.answered.contains_key(&read), "turn {turn}");
    }
    let vm = crowd.clients[0].0;
    crowd.driver.remove_vm(vm);
    let objectives: Vec<VmId> = crowd.driver.engine.view().vms().collect();
    for vm in objectives {
        crowd.driver.remove_vm(vm);
    }
    crowd.drain("removed");
}

#[test]
fn the_wait_outside_is_time_before_admission() {
    let mut crowd = Crowd::new(&policy("fifo"), 1 << 20, &plain(1));
    let (vm, client) = crowd.clients[0];
    let came = crowd.driver.now;
    crowd.driver.now += Nanos(70 * MS);
    let request = Request::read(0, 4096, 900);
    crowd
        .driver
        .engine
        .admission_mut()
        .claim(crowd.driver.now, client, Op::Read, 4096)
        .expect("a slot");
    let Driver {
        engine,
        ledger,
        now,
        ..
    } = &mut crowd.driver;
    let mut admission = engine.admission_mut();
    let taken = admission.handle_claimed_request(*now, client, request, came);
    ledger.accepted(came, client, taken.expect("taken"), &request);
    crowd.drain("one");
    let account = crowd.answered[&900].account;
    assert_eq!(account.admission, Nanos(70 * MS), "{account:?}");
    let times = crowd.driver.engine.vms().times(vm);
    assert_eq!(times.account.admission, Nanos(70 * MS));
    assert_eq!(account.regulated, Nanos::ZERO);
    assert_eq!(crowd.driver.engine.admission().holdings(vm).slots, 0);
}

#[test]
fn a_claim_that_is_given_up_leaves_nothing_behind() {
    let mut crowd = Crowd::new(&policy("fifo"), 1 << 20, &plain(2));
    let (vm, client) = crowd.clients[0];
    for _ in 0..1000 {
        let now = crowd.driver.now;
        crowd
            .driver
            .engine
            .admission_mut()
            .claim(now, client, Op::Write, 100_000)
            .expect("room");
        crowd
            .driver
            .engine
            .admission_mut()
            .return_claim(now, vm, Op::Write, 100_000);
    }
    assert_eq!(crowd.driver.engine.admission().in_use(), (0, 0));
    // A VM that was removed goes when its last claim does.
    crowd
        .driver
        .engine
        .admission_mut()
        .claim(crowd.driver.now, client, Op::Write, 4096)
        .expect("room");
    crowd.driver.remove_vm(vm);
    assert_eq!(crowd.driver.engine.admission().in_use(), (1, 4096));
    crowd
        .driver
        .engine
        .admission_mut()
        .return_claim(crowd.driver.now, vm, Op::Write, 4096);
    assert_eq!(crowd.driver.engine.admission().in_use(), (0, 0));
    let again = crowd
        .driver
        .engine
        .vms_mut()
        .add_vm(crowd.driver.now, &Objective::default());
    assert_eq!(again.expect("room").index(), vm.index());
}

/// Creates a VM whose part of the reads' memory is 128 KiB, with a client that holds a reply of 64
/// KiB.
fn with_a_reply_kept() -> (Crowd, VmId, ClientId) {
    let mut crowd = Crowd::new(&policy("fifo"), 1 << 20, &plain(1));
    let (vm, client) = crowd.clients[0];
    crowd.driver.replies.unread_by.push(vm);
    crowd.ask(0, Op::Read, 0, 64 * KIB).expect("a slot");
    (0..8).for_each(|_| crowd.pass());
    assert_eq!(crowd.driver.replies.held.len(), 1);
    assert_eq!(
        crowd.driver.engine.admission().holdings(vm).payload_part,
        128 << 10
    );
    (crowd, vm, client)
}

#[test]
fn a_reply_that_was_refused_is_asked_for_again_after_a_read_took_memory() {
    let (mut crowd, vm, client) = with_a_reply_kept();
    assert!(
        !crowd
            .driver
            .engine
            .admission_mut()
            .take_reply(crowd.driver.now, client, 128 * KIB)
    );
    crowd.ask(0, Op::Read, 1 << 20, 16 * KIB).expect("a slot");
    let io = crowd.driver.start().expect("room for it");
    assert_eq!(
        crowd.driver.engine.admission_mut().poll_unblocked(),
        Some(vm)
    );
    assert!(
        !crowd
            .driver
            .engine
            .admission_mut()
            .take_reply(crowd.driver.now, client, 128 * KIB)
    );
    assert_eq!(crowd.driver.engine.admission_mut().poll_unblocked(), None);
    // All that is held comes back.
    crowd.driver.end(&io, Ok(()));
    crowd.return_kept();
    assert_eq!(
        crowd.driver.engine.admission_mut().poll_unblocked(),
        Some(vm)
    );
    assert!(
        crowd
            .driver
            .engine
            .admission_mut()
            .take_reply(crowd.driver.now, client, 128 * KIB)
    );
}

#[test]
fn a_read_that_lacks_memory_is_asked_again_after_a_reply_took_some() {
    let (mut crowd, _, client) = with_a_reply_kept();
    crowd.ask(0, Op::Read, 1 << 20, 128 * KIB).expect("a slot");
    assert!(crowd.driver.start().is_none());
    assert!(
        crowd
            .driver
            .engine
            .admission_mut()
            .take_reply(crowd.driver.now, client, 32 * KIB)
    );
    assert!(crowd.driver.start().is_none());
    crowd.return_kept();
    crowd.driver.start().expect("memory came");
    crowd.drain("the read");
}

#[test]
fn reads_and_writes_that_wait_merge_where_memory_is_bounded() {
    for op in [Op::Read, Op::Write] {
        let mut crowd = Crowd::new(&policy("fifo"), 1 << 20, &plain(1));
        // More than the device takes at a time, so that some wait.
        for n in 0..16 {
            crowd.ask(0, op, n * 4096, 4 * KIB).expect("room");
            if n < 4 {
                crowd.driver.start().expect("room for it");
            }
        }
        crowd.drain("all of them");
        let vm = crowd.clients[0].0;
        let merged = crowd.driver.engine.vms().vm_stats(vm).merged;
        assert!(merged >= 8, "{op:?}: {merged} merged");
        assert_eq!(crowd.driver.engine.admission().in_use(), (0, 0));
    }
}

#[test]
fn requests_with_memory_of_their_own_need_slots_only_and_do_not_wait_for_others_memory() {
    for spec in PolicySpec::every_composition() {
        let mut crowd = Crowd::new(spec, 32 << 10, &plain(1));
        let (vm, pooled) = crowd.clients[0];
        let disk = crowd.driver.disk(vm);
        let own = crowd.driver.engine.connect_with(disk, PayloadMemory::Own);
        let own = own.expect("the disk is there");
        crowd.driver.ledger.connect(own, disk);
        crowd.clients.push((vm, own));
        crowd.driver.replies.unread_by.push(vm);
        // A reply that is not taken keeps all memory for reads, and one more read waits for some.
        assert!(crowd.driver.engine.admission_mut().take_reply(
            crowd.driver.now,
            pooled,
            256 * KIB
        ));
        crowd.ask(0, Op::Read, 0, 64 * KIB).expect("a slot");
        crowd.pass();
        let (_, held) = crowd.driver.engine.admission().in_use();
        for n in 0..8 {
            let offset = n << 20;
            crowd.ask(1, Op::Read, offset, 256 * KIB).expect("a slot");
            crowd.ask(1, Op::Write, offset, 256 * KIB).expect("a slot");
        }
        let claim =
            crowd
                .driver
                .engine
                .admission_mut()
                .claim(crowd.driver.now, own, Op::Write, 256 * KIB);
        assert_eq!(claim, Ok(()));
        assert_eq!(
            crowd.driver.engine.admission().in_use(),
            (18, held),
            "{}",
            spec.name()
        );
        crowd
            .driver
            .engine
            .admission_mut()
            .return_slot(crowd.driver.now, vm);
        for _ in 0..10_000 {
            crowd.pass();
        }
        let answered: Vec<&Done> = crowd.answered.values().collect();
        assert_eq!(answered.len(), 16, "{}", spec.name());
        assert!(answered.iter().all(|done| done.payload == 0));
        crowd.driver.engine.admission_mut().return_payload(
            crowd.driver.now,
            vm,
            Op::Read,
            256 * KIB,
        );
        crowd.drain(spec.name());
        crowd.return_kept();
        assert_eq!(
            crowd.driver.engine.admission().in_use(),
            (0, 0),
            "{}",
            spec.name()
        );
    }
}
