//! The request path never allocates after start.
//!
//! In a binary of its own: the counter must see a thread's work alone. For the same reason its
//! driver is its own: that of `tidegate_testkit` keeps books, which allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::{Burst, Limit, Objective, Rate};
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{ClientId, IoError, IoId, Op, Request};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::TransferSpec;
use tidegate_policies::dispatch::cost::CostBy;
use tidegate_policies::policy::{PolicySpec, registry};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to `System` with its arguments unchanged, so `System`'s own guarantees
// hold; the counter is a plain thread-local that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller keeps `alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System.alloc` with this layout, see above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: `ptr` came from `System.alloc` with this layout, see above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VMS: usize = 40;
const DEPTH: usize = 16;

fn objective(n: usize) -> Objective {
    let burst = Burst {
        total: Rate::iops(9000),
        read: Rate::NONE,
        write: Rate::NONE,
        length: Nanos::SECOND,
    };
    let precise = |target| Objective {
        target,
        ..Objective::default()
    };
    match n % 8 {
        0 => Objective {
            weight: 1 + n as u32,
            ..Objective::default()
        },
        1 => Objective {
            reservation: Rate::iops(50),
            ..Objective::default()
        },
        2 => Objective {
            limit: Limit::of_all(Rate::iops(3000)),
            ..Objective::default()
        },
        3 => Objective {
            limit: Limit {
                total: Rate::iops(900),
                burst: Some(burst),
                ..Limit::NONE
            },
            ..Objective::default()
        },
        // Targets that are missed, met in part, and far below; tuners have seconds to learn.
        4 => precise(Rate::bytes(3_000_000)),
        5 => precise(Rate {
            bytes_per_s: Some(2_000_000),
            ..Rate::iops(200)
        }),
        6 => precise(Rate::iops(20)),
        _ => Objective {
            limit: Limit {
                read: Rate::bytes(9_000_000),
                write: Rate::iops(700),
                ..Limit::NONE
            },
            ..Objective::default()
        },
    }
}

struct Bench {
    engine: Engine,
    clients: Vec<ClientId>,
    in_flight: [Option<IoId>; DEPTH],
    now: Nanos,
    random: u64,
    answered: u64,
}

fn profile() -> Profile {
    let curve = |iops| Curve::new(&[(4096, iops), (65536, iops / 8.0)]).expect("a curve");
    // Far beyond the cap that one of the engines is to keep to.
    let reads = [curve(800_000.0), curve(120_000.0)];
    Profile::new(reads, None, Vec::new(), Vec::new())
}

impl Bench {
    fn new(policy: &PolicySpec) -> Bench {
        let device = DeviceSpec {
            depth: DEPTH as u32,
            physical_block: 4096,
            max_io: 64 << 10,
            zeroes_are_writes: true,
            positioning: Nanos::from_millis(1),
            bytes_per_s: 0,
        };
        let config = EngineConfig {
            device,
            max_requests: 4096,
            max_pending_per_vm: 64,
            merge_limit: 32 << 10,
            max_vms: VMS as u32,
        };
        let mut engine = Engine::new(config, policy).expect("sound");
        engine.device_mut().set_profile(Some(Arc::new(profile())));
        let mut clients = Vec::new();
        for n in 0..VMS {
            let vm = engine
                .vms_mut()
                .add_vm(Nanos::ZERO, &objective(n))
                .expect("room");
            let spec = DiskSpec {
                base: (n as u64) << 30,
                size: 1 << 30,
                read_only: false,
            };
            let disk = engine.vms_mut().add_disk(vm, spec).expect("fits");
            clients.extend([disk, disk].map(|d| engine.connect(d).expect("there")));
        }
        let in_flight = [None; DEPTH];
        Bench {
            engine,
            clients,
            in_flight,
            now: Nanos::ZERO,
            random: 7,
            answered: 0,
        }
    }

    /// Every other VM has a transfer, sooner or later over; then the next begins, which may
    /// allocate.
    fn begin_transfers(&mut self) {
        for vm in self.engine.view().vms().step_by(2).collect::<Vec<_>>() {
            if self.engine.transfers().transfer(self.now, vm).is_none() {
                let spec = TransferSpec {
                    bytes: 200_000 + self.random(2_000_000) as u64,
                    deadline: Nanos::from_millis(1 + self.random(2_000) as u64),
                };
                let begun = self
                    .engine
                    .transfers_mut()
                    .begin_transfer(self.now, vm, &spec);
                begun.expect("it is no background process");
            }
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % below
    }

    /// Requests until the engine is full, dispatches until the device is, one completion.
    fn turn(&mut self) {
        let pause = self.random(200) as u64;
        self.now += Nanos::from_micros(pause);
        for _ in 0..4 {
            let client = self.random(self.clients.len());
            let client = self.clients[client];
            let op = Op::ALL[[0, 0, 0, 1, 1, 1, 2, 3, 4][self.random(9)]];
            let (offset, len) = match op {
                Op::Flush => (0, 0),
                // Few places: many are adjacent. Some lengths have to be split.
                _ => (
                    self.random(32) as u64 * 4096,
                    4096 << [0, 0, 0, 1, 2, 6][self.random(6)],
                ),
            };
            let request = Request {
                op,
                offset,
                len,
                ..Request::flush(0)
            };
            let room = self
                .engine
                .admission_mut()
                .available_slots(self.now, client);
            let taken = self.engine.handle_request(self.now, client, request);
            assert_eq!(taken.is_ok(), room > 0);
        }
        if self
            .engine
            .next_timeout()
            .is_some_and(|due| due <= self.now)
        {
            self.engine.handle_timeout(self.now);
        }
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            let bytes: u64 = self.engine.io_segments(io.id).map(|s| s.len as u64).sum();
            assert_eq!(bytes, io.len as u64);
            let free = self.in_flight.iter().position(Option::is_none);
            self.in_flight[free.expect("below the depth")] = Some(io.id);
        }
        for _ in 0..3 {
            let slot = self.random(DEPTH);
            let outcome = if self.random(9) == 0 {
                Err(IoError::Io)
            } else {
                Ok(())
            };
            if let Some(io) = self.in_flight[slot].take() {
                self.engine.handle_completion(self.now, io, outcome);
            }
        }
        while self.engine.poll_done().is_some() {
            self.answered += 1;
        }
    }

    fn close(mut self) {
        for client in std::mem::take(&mut self.clients) {
            self.engine.handle_disconnect(self.now, client);
        }
        for io in self.in_flight.iter_mut().filter_map(Option::take) {
            self.engine.handle_completion(self.now, io, Ok(()));
        }
        while self.engine.poll_done().is_some() {}
        while self.engine.admission_mut().poll_unblocked().is_some() {}
    }
}

#[test]
fn the_request_path_never_allocates_after_warm_up() {
    let by_time = ["sfq", "mclock", "drr"].map(|name| {
        let mut policy = PolicySpec::named(name).expect("registered");
        policy
            .set("cost", CostBy::DeviceTime as u64)
            .expect("a word");
        policy
    });
    let all = PolicySpec::every_composition();
    let plain = all.iter().chain(&by_time).map(|policy| (policy, false));
    // With a cap below the device that is kept to, and looked for again; and with an adapted depth.
    let capped = ["fifo", "mclock"].map(|name| PolicySpec::named(name).expect("registered"));
    for (policy, capped) in plain.chain(capped.iter().map(|policy| (policy, true))) {
        let mut bench = Bench::new(policy);
        if capped {
            bench.engine.device_mut().learn_cap(true);
            bench.engine.device_mut().adapt_depth(Nanos::ZERO, true);
            bench
                .engine
                .device_mut()
                .set_max_io_shared(MaxIoShared::Bytes(8 << 10));
            bench.engine.device_mut().learn_costs(true);
            bench
                .engine
                .device_mut()
                .assume_cap(Nanos::ZERO, Some(5000), None);
        }
        (0..500).for_each(|_| bench.turn());
        let (before, answered) = (COUNT.with(Cell::get), bench.answered);
        (0..20_000).for_each(|_| bench.turn());
        let allocated = COUNT.with(Cell::get) - before;
        assert_eq!(allocated, 0, "{policy:?}");
        assert!(
            bench.answered > answered + 3_000,
            "{policy:?}: {}",
            bench.answered
        );
        assert_eq!(
            bench.engine.device().learnt_cap().is_some(),
            capped,
            "{policy:?}"
        );
        bench.close();
    }
}

/// Checks that transfers allocate no memory under any policy: with PriDyn at a transfer's begin, at
/// its end and at each of many intervals, and in the measurement of transfers under the others.
#[test]
fn transfers_that_run_and_end_allocate_nothing() {
    let often = [0, 1].map(|literal| {
        let mut policy = PolicySpec::named("pridyn").expect("registered");
        policy.set("interval", 10_000_000).expect("in range");
        policy.set("literal", literal).expect("a flag");
        policy
    });
    let named = registry().iter().map(|info| PolicySpec::named(info.name));
    let named = named.map(|spec| spec.expect("registered"));
    for policy in often.into_iter().chain(named) {
        let mut bench = Bench::new(&policy);
        (0..500).for_each(|_| bench.turn());
        let (mut allocated, mut ended) = (0, 0);
        for _ in 0..10 {
            bench.begin_transfers();
            let before = COUNT.with(Cell::get);
            (0..1_000).for_each(|_| bench.turn());
            ended +=
                core::iter::from_fn(|| bench.engine.transfers_mut().poll_transfer_end()).count();
            allocated += COUNT.with(Cell::get) - before;
        }
        assert_eq!(allocated, 0, "{policy:?}");
        assert!(ended > 10, "{policy:?}: {ended}");
        bench.close();
    }
}
