//! Tests that decisions do not depend on how long an engine had nothing to do. A driver's clock may
//! count from the start of the machine, and VMs may be idle for nights.

use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{ClientId, DeviceIo, Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, registry};
use tidegate_testkit::Driver;
use tidegate_testkit::SerialDevice;

const KIB: u32 = 1 << 10;
/// Duration of a run.
const SPAN: Nanos = Nanos::from_secs(3);
/// Time at which all VMs are there.
const CREATED: Nanos = Nanos::from_secs(1);
/// Starts of the load in the two runs that are compared: at once, and after a month.
const STARTS: [Nanos; 2] = [CREATED, Nanos::from_secs(1 + 30 * 24 * 3600)];

/// A VM that always has as many requests outstanding.
struct Load {
    op: Op,
    len: u32,
    outstanding: u32,
    objective: Objective,
}

fn loads() -> [Load; 3] {
    let promised = Objective {
        reservation: Rate::iops(50),
        latency: Some(Nanos::from_millis(100)),
        ..Objective::default()
    };
    let weighted = Objective {
        weight: 300,
        ..Objective::default()
    };
    let load = |op, len, outstanding, objective| Load {
        op,
        len,
        outstanding,
        objective,
    };
    [
        load(Op::Read, 4 * KIB, 1, promised),
        load(Op::Read, 128 * KIB, 4, weighted),
        load(Op::Write, 32 * KIB, 16, Objective::default()),
    ]
}

/// A time of 100 us and one that grows with the size: 64 KiB in 200 us.
fn service(io: &DeviceIo) -> u64 {
    100_000 + u64::from(io.len) * 3
}

/// Returns the I/Os of a run with a load from `start` on: time since then, VM, operation, address
/// and size.
fn run(policy: &PolicySpec, start: Nanos, positioning: Nanos) -> Vec<(u64, VmId, Op, u64, u32)> {
    let config = EngineConfig {
        device: DeviceSpec {
            depth: 16,
            positioning,
            ..EngineConfig::default().device
        },
        max_requests: 1024,
        max_vms: 4,
        ..EngineConfig::default()
    };
    let mut driver = Driver::new(config, policy).with_clock_at(CREATED);
    driver.engine.device_mut().adapt_depth(CREATED, true);
    let mut device = SerialDevice::new(0);
    device.takes = Some(service);
    let loads = loads();
    let clients: Vec<ClientId> = (loads.iter())
        .map(|load| driver.guest(&load.objective).client)
        .collect();
    let mut asked = 0;
    let mut ask = |driver: &mut Driver, vm: usize| {
        // A stride by which no request continues another.
        asked += 1;
        let offset = asked * 7919 % 100_000 * (1 << 20);
        let taken = driver.ask(clients[vm], loads[vm].op, offset, loads[vm].len);
        taken.expect("there is room");
    };
    while driver.engine.next_timeout().is_some_and(|due| due <= start) {
        driver.wake();
    }
    driver.now = start;
    for (vm, load) in loads.iter().enumerate() {
        for _ in 0..load.outstanding {
            ask(&mut driver, vm);
        }
    }
    while driver.now < start + SPAN {
        for io in driver.start_all() {
            device.submit(driver.now.0, &io);
        }
        let due = driver.engine.next_timeout().map(|due| due.0);
        let next = device.next_completion().into_iter().chain(due).min();
        let next = next.expect("an I/O is in flight, or something is due");
        driver.pass(Nanos(next).since(driver.now));
        while let Some(id) = device.pop_completed(driver.now.0) {
            let io = driver.in_flight.iter().find(|io| io.id == id).copied();
            driver.end(&io.expect("it is in flight"), Ok(()));
        }
        for done in driver.answers() {
            let vm = clients.iter().position(|&client| client == done.client);
            ask(&mut driver, vm.expect("a client of the run"));
        }
    }
    let log = driver.log.iter();
    log.map(|begun| {
        let io = &begun.io;
        (begun.at - start.0, io.vm, io.op, io.addr, io.len)
    })
    .collect()
}

#[test]
fn every_policy_decides_after_an_idle_month_as_at_once() {
    for info in registry() {
        let policy = &PolicySpec::named(info.name).expect("it is registered");
        for positioning in [Nanos::ZERO, Nanos::from_millis(8)] {
            let [early, late] = STARTS.map(|start| run(policy, start, positioning));
            assert!(early.len() > 1000, "{}: {} I/Os", info.name, early.len());
            let differs = early
                .iter()
                .zip(&late)
                .position(|(early, late)| early != late);
            assert_eq!(
                differs.map(|at| (at, early[at], late[at])),
                None,
                "{}",
                info.name
            );
            assert_eq!(early.len(), late.len(), "{}", info.name);
        }
    }
}
