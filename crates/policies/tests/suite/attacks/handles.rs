//! Tests of VMs removed while their requests are merged with others and in flight, of slots used
//! again, and of stale handles to them.

use crate::attacks::rig::{config, policies};
use crate::common::{DISK_SIZE, Driver, Guest};
use tidegate_core::engine::{DiskSpec, EngineError, Refusal};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DiskId, IoError, IoId, Op, Request, VmId};
use tidegate_core::time::Nanos;

const KIB: u32 = 1 << 10;

#[test]
fn a_vm_removed_with_merged_requests_in_flight_has_each_answered_once() {
    for policy in policies() {
        for outcome in [Ok(()), Err(IoError::Io)] {
            let mut rig = Driver::new(config(1, 64 * KIB, 64 * KIB), &policy);
            let vm = rig.vm(&Objective::default());
            let disk = rig.disk(vm);
            let clients = [rig.client(disk), rig.client(disk)];
            let other = rig.guest(&Objective::default());
            // The device is busy with one: the next ones of both clients become units of both.
            rig.ask(clients[0], Op::Read, 1 << 30, 4096).expect("room");
            assert_eq!(rig.dispatch(9), 1);
            for n in 0..32 {
                rig.ask(clients[n % 2], Op::Read, n as u64 * 4096, 4096)
                    .expect("room");
            }
            rig.ask(other.client, Op::Read, 0, 4096).expect("room");
            rig.end_nth(0, Ok(()));
            // Of these one unit is in flight, with its 16 requests, and one waits.
            for _ in 0..1000 {
                rig.dispatch(1);
                match rig.in_flight.front() {
                    Some(io) if io.vm == vm => break,
                    Some(_) => _ = rig.end_nth(0, Ok(())),
                    None => rig.now.0 = rig.engine.next_timeout().expect("it will go").0,
                }
            }
            assert_eq!(rig.in_flight[0].first_ops, 16, "{policy:?}");
            rig.remove_vm(vm);
            assert_eq!(rig.tallies[&vm].cancelled, 16, "{policy:?}");
            rig.end_nth(0, outcome);
            // Requests of a merged I/O that failed are not repeated for a VM that is gone.
            assert_eq!(rig.tallies[&vm].answered(), 33, "{policy:?}");
            rig.drain();
            assert_eq!(rig.tallies[&other.vm].ok[0], 1);
        }
    }
}

/// Asserts that all calls refuse a stale handle.
fn refused(rig: &mut Driver, vm: VmId, disk: DiskId, client: ClientId) {
    let now = rig.now;
    let unknown = |error: EngineError| matches!(error, EngineError::Unknown { .. });
    let engine = &mut rig.engine;
    assert!(unknown(engine.vms_mut().remove_vm(now, vm).unwrap_err()));
    let objective = Objective::default();
    assert!(unknown(
        engine
            .vms_mut()
            .set_objective(now, vm, &objective)
            .unwrap_err()
    ));
    let spec = DiskSpec {
        base: 0,
        size: DISK_SIZE,
        read_only: false,
    };
    assert!(unknown(engine.vms_mut().add_disk(vm, spec).unwrap_err()));
    assert!(unknown(engine.connect(disk).unwrap_err()));
    assert_eq!(
        engine.admission_mut().available_slots(Nanos::ZERO, client),
        0
    );
    let asked = engine.handle_request(now, client, Request::read(0, 4096, u64::MAX));
    assert_eq!(asked.unwrap_err(), Refusal::NotConnected);
    engine.handle_disconnect(now, client);
}

#[test]
fn handles_of_those_who_had_a_slot_before_are_refused() {
    for policy in policies() {
        let mut config = config(2, 64 * KIB, 64 * KIB);
        config.max_vms = 1;
        let mut rig = Driver::new(config, &policy);
        let mut before: Vec<(VmId, DiskId, ClientId)> = Vec::new();
        let mut ios: Vec<IoId> = Vec::new();
        for _ in 0..50 {
            let vm = rig.vm(&Objective::default());
            let disk = rig.disk(vm);
            let client = rig.client(disk);
            for &(vm, disk, client) in before.iter().rev().take(3) {
                refused(&mut rig, vm, disk, client);
            }
            for &io in &ios {
                assert!(!rig.engine.is_in_flight(io));
                assert_eq!(rig.engine.io_segments(io).count(), 0);
            }
            for n in 0..4 {
                rig.ask(client, Op::Write, n << 20, 4096).expect("room");
            }
            rig.dispatch(2);
            ios = rig.in_flight.iter().map(|io| io.id).collect();
            rig.remove_vm(vm);
            refused(&mut rig, vm, disk, client);
            // The slot is not free before the device gives back what it has.
            if !rig.in_flight.is_empty() {
                let full = rig.engine.vms_mut().add_vm(rig.now, &Objective::default());
                assert!(matches!(full, Err(EngineError::Full { .. })));
            }
            rig.end_all();
            assert_eq!(rig.tallies[&vm].answered(), 4);
            before.push((vm, disk, client));
        }
        rig.assert_drained();
    }
}

#[test]
fn made_up_handles_are_refused() {
    let policy = &policies()[0];
    let mut rig = Driver::new(config(2, 0, 64 * KIB), policy);
    let Guest { vm, client, .. } = rig.guest(&Objective::default());
    let bits = [0, 1, u64::MAX, u64::MAX >> 32, 1 << 32, 1 << 63];
    for made_up in bits {
        if made_up != vm.to_bits() && made_up != client.to_bits() {
            let disk = DiskId::from_bits(made_up | 1 << 40);
            let (vm, client) = (VmId::from_bits(made_up), ClientId::from_bits(made_up));
            refused(&mut rig, vm, disk, client);
        }
        assert!(!rig.engine.is_in_flight(IoId::from_bits(made_up)));
        assert_eq!(rig.engine.io_segments(IoId::from_bits(made_up)).count(), 0);
    }
    assert!(
        rig.engine
            .admission_mut()
            .available_slots(Nanos::ZERO, client)
            > 0,
        "who is there stays there"
    );
}

/// Checks that a client that vanishes and comes back repeatedly, with requests in flight each time,
/// takes no more slots than it has clients.
#[test]
fn clients_that_come_and_go_use_no_slots_up() {
    for policy in policies() {
        let mut rig = Driver::new(config(4, 64 * KIB, 64 * KIB), &policy);
        let vm = rig.vm(&Objective::default());
        let disk = rig.disk(vm);
        let mut highest = 0;
        for n in 0..200u64 {
            let client = rig.client(disk);
            highest = highest.max(client.index());
            for k in 0..6 {
                rig.ask(client, Op::Write, (n * 6 + k) << 12, 4096)
                    .expect("room");
            }
            rig.dispatch(1);
            rig.disconnect(client);
            if n % 3 == 0 {
                rig.end_all();
            }
        }
        rig.drain();
        assert!(highest < 8, "{highest}: {policy:?}");
    }
}
