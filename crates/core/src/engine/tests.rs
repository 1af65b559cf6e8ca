//! Behaviours of the engine that only its own fields show, with the plainest roles there are.
//! Everything else is tested through the public interface, beside the policies. The driver below is
//! its own because the test kit's depends on this crate, whose private fields it would not see.

use super::*;
use crate::part::{Enforces, ParamInfo};
use crate::roles::{Dispatcher, Gate, Pick, Regulator, Roles};
use crate::splitting::MaxIoShared;
use crate::starvation::Bound;
use tidegate_base::objective::{Limit, Rate};
use tidegate_base::request::{ClientId, DeviceIo, ReqId, Request, VmId};
use tidegate_capacity::profile::Profile;

/// Regulator that holds nothing back.
struct Open;

impl Regulator for Open {
    fn stage(&self) -> Stage {
        Stage::Open
    }

    fn gate(&self, _: &View, _: ReqId) -> Gate {
        Gate::Pass
    }
}

/// Dispatcher that serves units in the order in which they were admitted.
#[derive(Default)]
struct InOrder(Vec<ReqId>);

impl Dispatcher for InOrder {
    fn insert(&mut self, _: &View, unit: ReqId) {
        self.0.push(unit);
    }

    fn remove(&mut self, _: &View, unit: ReqId) {
        self.0.retain(|&waiting| waiting != unit);
    }

    fn gate(&mut self, _: &View, _: VmId, _: Lane, _: bool) {}

    fn starvation(&self, _: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Arrival
    }

    fn pick(&mut self, _: &View) -> Pick {
        let Some(&head) = self.0.first() else {
            return Pick::Idle(Nanos::MAX);
        };
        Pick::Start {
            head,
            max: u32::MAX,
            held: Nanos::ZERO,
        }
    }
}

/// Dispatcher that leaves the device idle until a time, and then gives it one I/O at a time.
struct OneAtATime(InOrder, Nanos);

impl Dispatcher for OneAtATime {
    fn insert(&mut self, view: &View, unit: ReqId) {
        self.0.insert(view, unit);
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        self.0.remove(view, unit);
    }

    fn gate(&mut self, _: &View, _: VmId, _: Lane, _: bool) {}

    fn starvation(&self, _: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Arrival
    }

    fn pick(&mut self, view: &View) -> Pick {
        if view.now() < self.1 || view.device().in_flight > 0 {
            Pick::Wait(self.1.max(view.now() + Nanos::SECOND))
        } else {
            self.0.pick(view)
        }
    }
}

/// Policy of [`Open`] and [`InOrder`].
#[derive(Debug)]
struct Plain;

impl Policy for Plain {
    fn name(&self) -> &str {
        "plain"
    }

    fn parts(&self) -> (Option<&'static str>, &'static str, &'static str) {
        (None, "open", "in-order")
    }

    fn params(&self) -> &[(&'static ParamInfo, u64)] {
        &[]
    }

    fn enforces(&self) -> Enforces {
        Enforces::NONE
    }

    fn enforces_for(&self, _: bool) -> Enforces {
        Enforces::NONE
    }

    fn background_part(&self, _profile: &Profile) -> Option<Nanos> {
        None
    }

    fn helps_transfers(&self) -> bool {
        false
    }

    fn has_floor(&self, _: &Objective) -> bool {
        false
    }

    fn may_hold(&self) -> bool {
        false
    }

    fn starvation(&self, _: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Arrival
    }

    fn build(&self, _: u32, _: u32) -> Roles {
        Roles {
            controller: None,
            regulator: Box::new(Open),
            dispatcher: Box::<InOrder>::default(),
        }
    }

    fn build_with_background(&self, vms: u32, requests: u32) -> Roles {
        self.build(vms, requests)
    }

    fn to_shared(&self) -> Arc<dyn Policy> {
        Arc::new(Plain)
    }
}

const KIB: u32 = 1 << 10;

/// An engine in front of a device of depth 2.
struct Bench {
    engine: Engine,
    now: Nanos,
}

impl Bench {
    fn new() -> Bench {
        let config = EngineConfig {
            device: DeviceSpec {
                depth: 2,
                physical_block: 4096,
                max_io: 256 * KIB,
                zeroes_are_writes: false,
                positioning: Nanos::ZERO,
                bytes_per_s: 0,
            },
            max_requests: 192,
            max_pending_per_vm: 32,
            merge_limit: 64 * KIB,
            max_vms: 8,
        };
        let engine = Engine::new(config, &Plain).expect("a valid configuration");
        Bench {
            engine,
            now: Nanos::ZERO,
        }
    }

    fn connect_vm(&mut self) -> ClientId {
        let vm = self
            .engine
            .vms_mut()
            .add_vm(self.now, &Objective::default());
        let vm = vm.expect("room for a VM");
        let spec = DiskSpec {
            base: (vm.index() as u64) << 40,
            size: 1 << 36,
            read_only: false,
        };
        let disk = self
            .engine
            .vms_mut()
            .add_disk(vm, spec)
            .expect("a valid range");
        self.engine.connect(disk).expect("the disk is there")
    }

    fn submit(&mut self, client: ClientId, request: Request) {
        let taken = self.engine.handle_request(self.now, client, request);
        taken.expect("room for a request");
    }

    fn dispatch(&mut self) -> Vec<DeviceIo> {
        core::iter::from_fn(|| self.engine.poll_dispatch(self.now)).collect()
    }

    fn end(&mut self, io: &DeviceIo) {
        self.engine.handle_completion(self.now, io.id, Ok(()));
        while self.engine.poll_done().is_some() {}
    }
}

#[test]
fn reserved_place_clears_cap_hold_and_deliberate_wait() {
    let mut b = Bench::new();
    b.engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Bytes(16 * KIB));
    let busy = b.connect_vm();
    // A VM that thinks for 50 us between requests: after a few, a place is reserved for its next.
    let thinking = b.connect_vm();
    b.submit(busy, Request::read(0, 4096, 0));
    let first = b.dispatch()[0];
    for n in 0..4 {
        b.submit(thinking, Request::read(n << 20, 4096, 0));
        let io = b.dispatch()[0];
        b.now += Nanos::from_micros(100);
        b.end(&io);
        b.now += Nanos::from_micros(50);
    }
    // State as if the dispatcher had begun a deliberate wait here, and a learnt cap had held I/Os
    // back since: no public call brings about both at once.
    let since = b.now;
    b.engine.view.queues.waiting_since = Some(since);
    b.engine.control.held_since = Some(since);
    let before = b.engine.device_stats().deliberate;
    b.submit(busy, Request::read(64 << 20, 4096, 0));
    b.now += Nanos::from_micros(10);
    assert!(b.dispatch().is_empty(), "the place is reserved");
    assert_eq!(b.engine.control.held_since, None);
    // The deliberate wait ended when the place was reserved, 10 us after its begin: time for which
    // a place is reserved does not count as the dispatcher's.
    b.now += Nanos::from_micros(20);
    assert_eq!(
        b.engine.view.queues.deliberate_time(),
        before + Nanos::from_micros(10)
    );
    b.now += Nanos::from_millis(2);
    let second = b.dispatch();
    assert_eq!(second.len(), 1);
    assert_eq!(
        b.engine.device_stats().deliberate,
        before + Nanos::from_micros(10)
    );
    b.end(&first);
    b.end(&second[0]);
}

#[test]
fn waits_for_an_io_of_another_vm_are_no_deliberate_ones() {
    let mut b = Bench::new();
    let idle = Nanos::from_micros(100);
    b.engine.active.roles.dispatcher = Box::new(OneAtATime(InOrder::default(), idle));
    for n in 0..2 {
        let client = b.connect_vm();
        b.submit(client, Request::read(0, 4096, n));
    }
    assert!(b.dispatch().is_empty(), "the dispatcher waits");
    b.now += idle;
    for _ in 0..2 {
        let started = b.dispatch();
        assert_eq!(started.len(), 1);
        b.now += Nanos::from_micros(500);
        b.end(&started[0]);
    }
    // The second waited for the first while the device had room.
    assert_eq!(b.engine.device_stats().deliberate, idle);
}

#[test]
fn a_lifted_limit_costs_nothing_once_what_waited_has_gone() {
    let mut b = Bench::new();
    b.connect_vm();
    let vm = b.engine.view.vm_at(0);
    let disk = DiskSpec {
        base: 1 << 50,
        size: 1 << 36,
        read_only: false,
    };
    let disk = b
        .engine
        .vms_mut()
        .add_disk(vm, disk)
        .expect("a valid range");
    let limit = |per_s| Limit::of_all(Rate::iops(per_s));
    // Without any limit there is no state of limits either.
    let now = b.now;
    let mut vms = b.engine.vms_mut();
    let none = vms.limit_disk(now, disk, &Limit::NONE);
    none.expect("the disk is there");
    vms.share_limit(now, disk, None).expect("the disk is there");
    assert!(b.engine.disk_limits.is_none());
    let limited = b.engine.connect(disk).expect("the disk is there");
    let is_limited = |b: &Bench| b.engine.directory.disk_at(disk.index).limited;
    let mut vms = b.engine.vms_mut();
    vms.limit_disk(now, disk, &limit(1)).expect("there");
    for tag in 0..3 {
        b.submit(limited, Request::read(tag << 20, 4096, tag));
    }
    let first = b.dispatch();
    assert_eq!(first.len(), 1, "the others wait for the limit");
    let lifted = b.engine.vms_mut().limit_disk(b.now, disk, &Limit::NONE);
    lifted.expect("the disk is there");
    assert!(is_limited(&b), "two requests go before those that come now");
    let mut second = b.dispatch();
    assert!(!is_limited(&b));
    b.end(&first[0]);
    second.extend(b.dispatch());
    assert_eq!(second.len(), 2);
    second.iter().for_each(|io| b.end(io));
    let limits = b.engine.disk_limits.as_ref().expect("there was one");
    assert!(!limits.has(disk.index));
    // The other way in which the last waiting request goes.
    let set = b.engine.vms_mut().limit_disk(b.now, disk, &limit(1));
    set.expect("the disk is there");
    for tag in 0..2 {
        b.submit(limited, Request::read(tag << 20, 4096, tag));
    }
    b.engine.vms_mut().lift_disk_limits(b.now);
    assert!(is_limited(&b));
    b.engine.handle_disconnect(b.now, limited);
    assert!(!is_limited(&b));
}
