//! Basis of deadlines by a tolerance: the VMs that use the device, and its bandwidth for that many.
//! Only one request is ever served, so the tests call the engine directly.

use crate::common::*;
use tidegate_core::engine::Engine;
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::TransferSpec;
use tidegate_policies::policy::PolicySpec;

const MB: u64 = 1_000_000;

/// A device that is said to do 54 MB/s, and three VMs.
fn three(policy: &PolicySpec) -> (Engine, Vec<(VmId, ClientId)>) {
    let mut config = config(8, 128 << 10);
    config.device.bytes_per_s = 54 * MB;
    let mut engine = Engine::new(config, policy).expect("sound");
    let vms = (0..3).map(|vm| {
        let id = engine
            .vms_mut()
            .add_vm(Nanos::ZERO, &Objective::default())
            .expect("room");
        (id, open_disk(&mut engine, id, vm << 30, 1 << 30).1)
    });
    let vms = vms.collect();
    (engine, vms)
}

#[test]
fn who_has_a_transfer_or_asked_for_something_of_late_uses_the_device() {
    let (mut engine, vms) = three(&policy("fifo"));
    let users = |engine: &Engine, second| {
        engine
            .transfers()
            .users_with(Nanos::from_secs(second), vms[0].0)
    };
    assert_eq!(users(&engine, 0), 1, "nobody but who is asked about");
    engine
        .handle_request(Nanos::ZERO, vms[1].1, Request::read(0, 4 * KIB, 1))
        .expect("room");
    assert_eq!(users(&engine, 100), 2, "what waits is something");
    let io = engine
        .poll_dispatch(Nanos::from_secs(100))
        .expect("it waits");
    engine.handle_completion(Nanos::from_secs(100), io.id, Ok(()));
    while engine.poll_done().is_some() {}
    assert_eq!((users(&engine, 102), users(&engine, 103)), (2, 1));
    let transfer = TransferSpec {
        bytes: MB,
        deadline: Nanos::from_secs(60),
    };
    let now = Nanos::from_secs(103);
    engine
        .transfers_mut()
        .begin_transfer(now, vms[2].0, &transfer)
        .expect("a job");
    engine
        .transfers_mut()
        .begin_transfer(now, vms[0].0, &transfer)
        .expect("a job");
    assert_eq!(users(&engine, 200), 2, "itself only once");
    engine
        .transfers_mut()
        .end_transfer(now, vms[2].0)
        .expect("it has one");
    assert_eq!(users(&engine, 200), 1);
}

#[test]
fn what_the_device_does_for_so_many_is_said_or_given_before_a_transfer_and_after() {
    let mut given = policy("pridyn");
    given.set("max_bandwidth", 50 * MB).expect("a parameter");
    given.set("bandwidth_loss", 17 * MB).expect("a parameter");
    for (policy, expected) in [(policy("cfq"), [54, 54]), (given, [50, 33])] {
        let (mut engine, vms) = three(&policy);
        let does =
            |engine: &Engine| [1, 2].map(|users| engine.transfers().total_bandwidth(users) / MB);
        assert_eq!(does(&engine), expected, "{policy:?}");
        let transfer = TransferSpec {
            bytes: MB,
            deadline: Nanos::from_secs(60),
        };
        (engine
            .transfers_mut()
            .begin_transfer(Nanos::ZERO, vms[0].0, &transfer))
        .expect("a job");
        assert_eq!(does(&engine), expected, "{policy:?}");
    }
}
