//! Use of limits that one engine hands over to another: nobody gains a burst, and time that passes
//! in between counts.

use crate::common::*;
use tidegate_core::engine::LimitId;
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

/// World of one guest with a limit of 100 requests/s, and a burst of 2000/s for a second.
struct Limited {
    world: World,
    guest: Guest,
    limit: LimitId,
}

impl Limited {
    fn new(policy: &str, of: Of) -> Limited {
        let objective = bursting(Rate::iops(100), Rate::iops(2000), Nanos::SECOND);
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

    fn adopt(&mut self, consumed: &Consumed, elapsed: Nanos) {
        let now = self.world.time();
        let mut vms = self.world.driver.engine.vms_mut();
        vms.adopt_consumed(now, self.limit, consumed, elapsed);
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
        after.adopt(&before.consumed(), Nanos::ZERO);
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
        after.adopt(&before.consumed(), Nanos::from_secs(5));
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
        after.adopt(&Consumed::default(), Nanos::ZERO);
        assert_eq!(after.served(SECOND), whole, "{policy}, {of:?}");
    });
}

#[test]
fn a_limit_that_is_gone_has_nothing_to_hand_over() {
    let mut limited = Limited::new("limit", Of::Vm);
    limited.served(10 * SECOND);
    let used = limited.consumed();
    assert_ne!(used, Consumed::default());
    limited.world.driver.remove_vm(limited.guest.vm);
    assert_eq!(limited.consumed(), Consumed::default());
    limited.adopt(&used, Nanos::ZERO);
    limited.limit = LimitId::Disk(limited.guest.disk);
    assert_eq!(limited.consumed(), Consumed::default());
    limited.adopt(&used, Nanos::ZERO);
}
