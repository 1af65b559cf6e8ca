//! Use of limits that one engine hands over to another: no VM gains a burst, and time that passes
//! in between counts.

use crate::common::*;
use tidegate_core::engine::LimitId;
use tidegate_core::limit_accounts::convert;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::Op;
use tidegate_core::roles::Consumed;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Kind of limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Vm,
    Disk,
    Shared,
}

/// World of one guest with a limit.
struct Limited {
    world: World,
    guest: Guest,
    limit: LimitId,
}

impl Limited {
    /// With 100 requests/s, and a burst of 2000/s for a second.
    fn new(policy: &str, of: Of) -> Limited {
        let objective = bursting(Rate::iops(100), Rate::iops(2000), Nanos::SECOND);
        Limited::with(policy, of, objective)
    }

    fn with(policy: &str, of: Of, objective: Objective) -> Limited {
        let limit: Limit = objective.limit;
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&match of {
            Of::Vm => objective,
            Of::Disk | Of::Shared => Objective::default(),
        });
        let now = world.time();
        let mut vms = world.driver.engine.vms_mut();
        let limit = match of {
            Of::Vm => LimitId::Vm(guest.vm),
            Of::Disk => {
                let set = vms.limit_disk(now, guest.disk, &limit);
                set.expect("the disk is there");
                LimitId::Disk(guest.disk)
            }
            Of::Shared => {
                let id = vms.add_shared_limit(now, &limit).expect("it is valid");
                let shares = vms.share_limit(now, guest.disk, Some(id));
                shares.expect("the disk is there");
                LimitId::Shared(id)
            }
        };
        Limited {
            world,
            guest,
            limit,
        }
    }

    fn consumed(&mut self) -> Consumed {
        let now = self.world.time();
        let mut vms = self.world.driver.engine.vms_mut();
        vms.consumed(now, self.limit)
    }

    fn adopt(&mut self, consumed: &Consumed) {
        let now = self.world.time();
        let mut vms = self.world.driver.engine.vms_mut();
        vms.adopt_consumed(now, self.limit, consumed);
    }

    /// Changes the limit as the control API does.
    fn change(&mut self, objective: &Objective) {
        let now = self.world.time();
        let mut vms = self.world.driver.engine.vms_mut();
        match self.limit {
            LimitId::Vm(vm) => vms.set_objective(now, vm, objective),
            LimitId::Disk(disk) => vms.limit_disk(now, disk, &objective.limit),
            LimitId::Shared(id) => vms.change_shared_limit(now, id, &objective.limit),
        }
        .expect("it is valid");
    }

    /// Number of requests that are served in this time.
    fn served(&mut self, time: u64) -> u64 {
        self.world.driver.log.clear();
        self.world.load(self.guest, Op::Read, 4096, 16);
        self.world.run(time);
        self.world.unload(self.guest);
        total(&self.world.ops(self.guest))
    }
}

/// Calls a function with each kind of limit and the policies that enforce it, except those with
/// credits, which hold requests back for other reasons.
fn each(check: impl Fn(&str, Of)) {
    for spec in PolicySpec::every_composition() {
        let (controller, regulator, _) = spec.parts();
        if spec.enforces().burst && controller.is_none() && regulator != "vbc" {
            check(spec.name(), Of::Vm);
        }
    }
    for of in [Of::Disk, Of::Shared] {
        check("fifo", of);
        check("mclock", of);
    }
}

#[test]
fn a_burst_that_is_used_up_is_so_in_the_other_engine() {
    each(|policy, of| {
        let mut before = Limited::new(policy, of);
        let burst = before.served(10 * SECOND);
        assert!(burst > 2500, "{policy}, {of:?}: no burst: {burst}");
        let mut after = Limited::new(policy, of);
        after.adopt(&before.consumed());
        let served = after.served(SECOND);
        assert!(
            (98..=102).contains(&served),
            "{policy}, {of:?}: {served} requests in a second at 100/s"
        );
    });
}

#[test]
fn time_between_the_engines_saves_up_what_the_limit_allows() {
    each(|policy, of| {
        let mut before = Limited::new(policy, of);
        before.served(10 * SECOND);
        let mut after = Limited::new(policy, of);
        after.adopt(&before.consumed().after(Nanos::from_secs(5)));
        let served = after.served(SECOND);
        assert!(
            (597..=603).contains(&served),
            "{policy}, {of:?}: {served} requests in the second after 5 idle ones at 100/s"
        );
    });
}

#[test]
fn a_limit_that_did_not_exist_before_begins_with_its_burst() {
    each(|policy, of| {
        let mut fresh = Limited::new(policy, of);
        let whole = fresh.served(SECOND);
        let mut after = Limited::new(policy, of);
        after.adopt(&Consumed::default());
        assert_eq!(after.served(SECOND), whole, "{policy}, {of:?}");
    });
}

/// Number of requests in the second after `used` seconds under the objective `was`, where it then
/// becomes `is`: by a change in one engine, and in another engine that begins with `is`.
fn changed(policy: &str, of: Of, [was, is]: [Objective; 2], used: u64) -> [u64; 2] {
    let before = || {
        let mut limited = Limited::with(policy, of, was);
        limited.served(used * SECOND);
        limited
    };
    let mut same = before();
    same.change(&is);
    let mut other = Limited::with(policy, of, is);
    other.adopt(&convert(&before().consumed(), &was.limit, &is.limit));
    [same.served(SECOND), other.served(SECOND)]
}

#[test]
fn a_limit_that_is_another_one_in_the_other_engine_is_as_after_a_change() {
    let bytes = |rate| limited(Rate::bytes(rate));
    let burst = |total, burst, length| {
        let length = Nanos::from_millis(length);
        bursting(Rate::iops(total), Rate::iops(burst), length)
    };
    let (slow, fast) = (bytes(400), bytes(409_600));
    let strict = limited(Rate::iops(100));
    let (short, long) = (burst(100, 800, 250), burst(100, 800, 1000));
    let cases = [
        ("raised", [slow, fast], 1),
        ("lowered", [fast, bytes(40_960)], 1),
        ("raised with its burst", [long, burst(200, 900, 1000)], 2),
        ("lowered with its burst", [long, burst(50, 700, 1000)], 2),
        ("burst added", [strict, long], 1),
        ("burst lengthened", [short, long], 1),
        ("whole burst lengthened", [short, long], 0),
        ("burst shortened", [long, short], 2),
        ("burst removed", [long, strict], 2),
        ("other figure", [long, fast], 2),
        ("untouched", [long, long], 0),
    ];
    for (policy, of) in [("limit", Of::Vm), ("fifo", Of::Disk), ("fifo", Of::Shared)] {
        for (name, change, used) in cases {
            let [same, other] = changed(policy, of, change, used);
            assert!(
                same.abs_diff(other) <= 3,
                "{of:?}, {name}: {same} after a change, {other} in another engine"
            );
        }
        // The changes above do something.
        let [same, _] = changed(policy, of, [slow, fast], 1);
        assert!(same > 90, "{of:?}: {same} requests at 100/s");
        for was in [strict, short] {
            let [same, _] = changed(policy, of, [was, long], 0);
            assert!(same > 700, "{of:?}: no burst: {same}");
        }
    }
    for (name, change) in [("raised", [slow, fast]), ("lowered", [fast, slow])] {
        let [same, other] = changed("mclock", Of::Vm, change, 1);
        assert!(same.abs_diff(other) <= 1, "{name}: {same}, {other}");
    }
}

#[test]
fn a_limit_that_is_gone_has_nothing_to_hand_over() {
    let mut limited = Limited::new("limit", Of::Vm);
    limited.served(10 * SECOND);
    let used = limited.consumed();
    assert_ne!(used, Consumed::default());
    limited.world.driver.remove_vm(limited.guest.vm);
    assert_eq!(limited.consumed(), Consumed::default());
    limited.adopt(&used);
    limited.limit = LimitId::Disk(limited.guest.disk);
    assert_eq!(limited.consumed(), Consumed::default());
    limited.adopt(&used);
}
