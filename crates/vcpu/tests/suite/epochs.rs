//! Invariants between two reallocations of credit, in a running world.

use crate::common::{answering, credit2, hog, isacs_params, receiving, scenario, vm};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_core::time::Nanos;
use tidegate_vcpu::guest::{GuestCpu, Token};
use tidegate_vcpu::machine::{CpuSet, Machine, PcpuId, State, VcpuId};
use tidegate_vcpu::scenario::{SchedulerSpec, Simulation, VmSpec};
use tidegate_vcpu::scheduler::{Choice, Counts, Scheduler};
use tidegate_vcpu::schedulers::credit2::Credit2;
use tidegate_vcpu::schedulers::isacs::{Account, Isacs, Params};
use tidegate_vcpu::world::VcpuWorld;

const MS: i64 = 1_000_000;

/// ISACS shared between a world that drives it and a test that reads its accounts.
#[derive(Clone)]
struct Watched(Rc<RefCell<Credit2<Isacs>>>);

impl Scheduler for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }
    fn wake(&mut self, m: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        self.0.borrow_mut().wake(m, now, v, kicks);
    }
    /// Chooses as ISACS does, and asserts that a newly chosen vCPU has the most credit of all
    /// runnable.
    fn choose(&mut self, m: &Machine, now: Nanos, p: PcpuId, kicks: &mut CpuSet) -> Choice {
        let choice = self.0.borrow_mut().choose(m, now, p, kicks);
        let taken = choice.run.filter(|_| choice.run != m.pcpu(p).running);
        for v in (0..m.vcpus.len() as u32).map(VcpuId) {
            if let Some(taken) = taken.filter(|_| m.vcpu(v).is_runnable()) {
                assert!(self.credit(taken) >= self.credit(v), "{taken:?}, {v:?}");
            }
        }
        choice
    }
    fn left(&mut self, m: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        self.0.borrow_mut().left(m, now, v, kicks);
    }
    fn next_timer(&self) -> Option<Nanos> {
        self.0.borrow().next_timer()
    }
    fn on_timer(&mut self, m: &Machine, now: Nanos, kicks: &mut CpuSet) {
        self.0.borrow_mut().on_timer(m, now, kicks);
    }
    fn io_event(&mut self, m: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        self.0.borrow_mut().io_event(m, now, v, kicks);
    }
    fn counts(&self) -> Counts {
        self.0.borrow().counts()
    }
    fn credit(&self, v: VcpuId) -> i64 {
        self.0.borrow().credit(v)
    }
}

/// Four hogs on one pCPU; the first two are notified of I/O every 300 us and 900 us.
fn mixed_world(params: Params) -> (VcpuWorld, Watched) {
    world_of(params, &[(256, true); 4])
}

/// vCPUs on one pCPU, by weight and whether each computes without end.
fn world_of(params: Params, vcpus: &[(u32, bool)]) -> (VcpuWorld, Watched) {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    for (n, &(weight, _)) in vcpus.iter().enumerate() {
        machine.add_vm(&format!("vm{n}"), 1, all, weight, 0);
    }
    let mut guests = vec![GuestCpu::default(); vcpus.len()];
    let hogs = guests.iter_mut().zip(vcpus).filter(|(_, vcpu)| vcpu.1);
    for (guest, _) in hogs {
        let task = guest.add_task();
        let token = Token {
            flow: 0,
            stage: 0,
            data: 0,
        };
        guest.wake(task, Nanos::MAX, token);
    }
    let scheduler = Isacs::scheduler(params, &machine);
    let watched = Watched(Rc::new(RefCell::new(scheduler)));
    let boxed = Box::new(watched.clone());
    let mut world = VcpuWorld::new(machine, guests, Vec::new(), boxed, Nanos::ZERO);
    // One event each; from then on the vCPUs that compute are never idle.
    for v in 0..vcpus.len() {
        world.deliver(VcpuId(v as u32), Nanos(1_000), 0, false);
    }
    (world, watched)
}

/// Accounts just before each reallocation.
fn epochs(params: Params, until: Nanos) -> Vec<Vec<Account>> {
    let (mut world, watched) = mixed_world(params);
    let look = || {
        let scheduler = watched.0.borrow();
        let accounts = (0..4).map(|v| *scheduler.credits().account(VcpuId(v)));
        (scheduler.counts().resets, accounts.collect::<Vec<_>>())
    };
    let mut found = Vec::new();
    let mut last = look();
    while world.now() < until {
        let now = Nanos(world.now().0 + 100_000);
        world.run_until(now);
        for (v, every) in [(0, 3), (1, 9)] {
            if (now.0 / 100_000).is_multiple_of(every) {
                world.deliver(VcpuId(v), Nanos(5_000), 0, true);
            }
        }
        let this = look();
        if this.0 != last.0 {
            found.push(last.1);
        }
        last = this;
    }
    found
}

/// Section 4.4: at a reset, every runnable vCPU has used the usual credit outside CPU-BOOST and at
/// most a rate limit more, whatever its IVCredit.
#[test]
fn between_reallocations_everybody_uses_the_usual_credit() {
    let found = epochs(isacs_params(), Nanos::from_secs(3));
    assert!(found.len() > 30, "{} epochs", found.len());
    let given = |epoch: &Vec<Account>| epoch[0].io_credit > 0;
    assert!(found.iter().filter(|epoch| given(epoch)).count() > 20);
    for epoch in &found[1..] {
        for account in epoch {
            let used = account.consumed - account.consumed_boosted;
            // The last observation is up to 100 us old, and a running vCPU is charged only when
            // observed.
            let least = 10 * MS - MS - 100_000;
            assert!((least..=11 * MS + 100_000).contains(&used), "{epoch:?}");
        }
    }
}

/// Bound of an epoch, and so of any wait: in CPU-BOOST, too, no vCPU uses more than it was given
/// and a rate limit, and a vCPU that was given nothing does not run.
#[test]
fn in_cpu_boost_nobody_uses_more_than_its_cpu_credit() {
    let found = epochs(isacs_params(), Nanos::from_secs(3));
    let mut boosted = 0;
    for account in found.iter().flatten() {
        assert!(account.cpu_credit >= -MS, "{account:?}");
        assert!(
            account.in_group || account.consumed_boosted == 0,
            "{account:?}"
        );
        boosted += usize::from(account.consumed_boosted > MS);
    }
    assert!(boosted > 20, "{boosted}");
}

#[test]
fn without_concealing_io_has_more_of_the_processor() {
    let bare = Params {
        concealing: false,
        cpu_boost: false,
        ..isacs_params()
    };
    let used = |params| {
        let (mut io, mut cpu) = (0, 0);
        for epoch in epochs(params, Nanos::from_secs(3)) {
            io += epoch[0].consumed;
            cpu += epoch[2].consumed;
        }
        io as f64 / cpu as f64
    };
    let (bare, concealed) = (used(bare), used(isacs_params()));
    assert!(bare > 1.1, "{bare}");
    assert!(concealed < 1.02, "{concealed}");
}

/// Longest time that a runnable vCPU has waited.
fn longest_wait(scheduler: SchedulerSpec, vms: Vec<VmSpec>) -> Nanos {
    let mut simulation = Simulation::new(scenario(scheduler, 3, vms));
    let vcpus = simulation.world().machine().vcpus.len();
    let mut since = vec![Nanos::ZERO; vcpus];
    let mut longest = Nanos::ZERO;
    while simulation.world().now() < Nanos::from_secs(3) {
        simulation.step_event();
        let world = simulation.world();
        for (v, since) in since.iter_mut().enumerate() {
            if world.machine().vcpus[v].state == State::Waiting {
                longest = longest.max(world.now().since(*since));
            } else {
                *since = world.now();
            }
        }
    }
    longest
}

/// In an epoch each other vCPU runs for its credit and at most a rate limit more, and a waiting
/// vCPU runs once in every epoch; so at most two epochs lie between its turns.
#[test]
fn with_credit2_nobody_waits_longer_than_two_epochs() {
    let here = CpuSet::range(1, 1);
    let mut vms = vec![vm("client", CpuSet::range(2, 2))];
    vms.extend((0..3).map(|n| hog(&format!("hog{n}"), here)));
    vms.push(answering(hog("mixed", here), 0, 1_700, 1_000));
    vms.push(receiving(hog("stream", here), 0));
    let others = 4;
    let bound = Nanos::from_micros(2 * others * 11_500);
    let found = longest_wait(credit2(), vms);
    assert!(
        found > Nanos::from_millis(10),
        "{found}: nobody waits at all"
    );
    assert!(found <= bound, "{found} of {bound}");
}

/// vCPU of the test below: weight, whether it computes, steps between two notifications of I/O, and
/// the handling time of one in microseconds.
type Busy = (u32, bool, u64, u64);

/// Interval at which the test observes ISACS.
const STEP: Nanos = Nanos::from_micros(50);

/// CPU time that all vCPUs but `v` can use in this epoch, by the bound in docs/vcpu.md.
fn others_at_most(accounts: &[Account], v: usize) -> Nanos {
    // The rate limit, and up to one step that a running vCPU was not charged for yet.
    let over = MS + STEP.0 as i64;
    let of = |account: &Account| {
        if account.in_group {
            10 * MS + over + account.cpu_credit.max(0) + over
        } else {
            10 * MS + over
        }
    };
    let others = accounts.iter().enumerate().filter(|&(n, _)| n != v);
    Nanos(others.map(|(_, account)| of(account)).sum::<i64>() as u64)
}

/// Checks the longest wait of each vCPU against the bound; returns the longest of all.
fn check_waits(vcpus: &[Busy], until: Nanos) -> Nanos {
    let kinds: Vec<(u32, bool)> = vcpus
        .iter()
        .map(|&(weight, hog, ..)| (weight, hog))
        .collect();
    let (mut world, watched) = world_of(isacs_params(), &kinds);
    let accounts = || -> Vec<Account> {
        let scheduler = watched.0.borrow();
        let account = |v: usize| *scheduler.credits().account(VcpuId(v as u32));
        (0..vcpus.len()).map(account).collect()
    };
    // Accounts at the start of each epoch; and for each vCPU the epoch and time at which it began
    // to wait, and what it had used by then.
    let mut epochs = vec![accounts()];
    let mut waits = vec![(0, Nanos::ZERO, Nanos::ZERO); vcpus.len()];
    let (mut longest, mut step) = (Nanos::ZERO, 0);
    while world.now() < until {
        step += 1;
        world.run_until(Nanos(step * STEP.0));
        for (v, &(_, _, every, cost)) in vcpus.iter().enumerate() {
            if step % every == 0 {
                world.deliver(VcpuId(v as u32), Nanos::from_micros(cost), 0, true);
            }
        }
        let resets = world.counts().resets as usize;
        assert!(resets <= epochs.len(), "two epochs in a step");
        if resets == epochs.len() {
            epochs.push(accounts());
        }
        for (v, (epoch, since, ran)) in waits.iter_mut().enumerate() {
            let id = VcpuId(v as u32);
            let waiting = world.machine().vcpu(id).state == State::Waiting;
            if !waiting || world.ran(id) > *ran {
                (*epoch, *since, *ran) = (resets, world.now(), world.ran(id));
                continue;
            }
            let waited = world.now().since(*since);
            longest = longest.max(waited);
            assert!(resets <= *epoch + 1, "{v} waits for more than two epochs");
            let lasted = epochs[*epoch..=resets].iter();
            let bound: u64 = lasted.map(|e| others_at_most(e, v).0).sum();
            assert!(waited.0 <= bound, "{v} waited {waited} of {}", Nanos(bound));
        }
    }
    longest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No starvation: a runnable vCPU runs once in every epoch, so it waits for at most what the
    /// others can use in two.
    #[test]
    fn with_isacs_nobody_waits_longer_than_two_epochs(
        vcpus in prop::collection::vec(
            (64_u32..1024, prop::bool::weighted(0.7), 1_u64..40, 1_u64..300), 2..7,
        ),
    ) {
        check_waits(&vcpus, Nanos::from_secs(1));
    }
}

#[test]
fn with_isacs_a_mixed_vcpu_waits_for_an_epoch_of_the_others() {
    let vcpus = [
        (256, true, 6, 20),
        (256, true, 20_000, 20),
        (256, true, 20_000, 20),
        (256, true, 20_000, 20),
    ];
    let longest = check_waits(&vcpus, Nanos::from_secs(2));
    // It used up its credit first, ahead by IVCredit, and the others have 10 ms each.
    assert!(longest > Nanos::from_millis(29), "{longest}");
}
