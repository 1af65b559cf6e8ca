//! A driver that keeps books of its own: what was asked, what went to the device, what was
//! answered. It trusts nothing that the engine says, and holds it against the books.

#![allow(
    unreachable_pub,
    reason = "what is public here is for the other modules of this test"
)]

use std::collections::BTreeMap;
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig, Refusal};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::request::{
    ClientId, DeviceIo, DiskId, IoError, Lane, Op, Outcome, Request, VmId,
};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, dispatchers, registry};

/// Disks lie side by side, each so large.
pub const DISK: u64 = 1 << 36;

/// The registry, and limits in front of every dispatcher.
pub fn policies() -> Vec<PolicySpec> {
    let named = registry().iter().map(|p| PolicySpec::named(p.name));
    let limited = dispatchers()
        .iter()
        .map(|d| PolicySpec::composed(None, "token-bucket", d.name));
    named
        .chain(limited)
        .map(|spec| spec.expect("its name is from the list"))
        .collect()
}

/// Those of them that enforce a limit on reads and writes together.
pub fn limiting() -> Vec<PolicySpec> {
    let all = policies().into_iter();
    all.filter(|p| p.honours().limit).collect()
}

pub fn config(depth: u32, merge_limit: u32, max_io: u32) -> EngineConfig {
    EngineConfig {
        device: DeviceSpec {
            depth,
            physical_block: 4096,
            max_io,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        },
        max_requests: 8192,
        max_pending_per_vm: 1024,
        merge_limit,
        max_vms: 2048,
    }
}

/// From here on what a limit of 1 B/s holds back may be due after the end of time: never.
pub const AGES: u64 = u64::MAX / 2;

/// xorshift64*: the same on every machine.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % n
    }

    pub fn of<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        match from.len() {
            0 => None,
            n => from.get(self.below(n as u64) as usize),
        }
    }
}

/// A request inside the engine.
#[derive(Clone, Copy, Debug)]
struct Asked {
    client: ClientId,
    vm: VmId,
    op: Op,
    len: u32,
    at: u64,
    gone: bool,
    served: bool,
}

/// What a VM asked for and got, by operation in the order of [`Op::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    pub arrived: [u64; 5],
    pub ok: [u64; 5],
    pub ok_bytes: [u64; 5],
    pub failed: [u64; 5],
    pub cancelled: u64,
    /// Guest requests served for the first time, as the device I/Os say.
    pub first_ops: u64,
    pub first_bytes: u64,
    /// Bytes of device I/Os that were started.
    pub device_bytes: u64,
}

impl Tally {
    pub fn answered(&self) -> u64 {
        self.ok.iter().sum::<u64>() + self.failed.iter().sum::<u64>() + self.cancelled
    }
}

pub struct Rig {
    pub engine: Engine,
    pub now: u64,
    pub in_flight: Vec<DeviceIo>,
    pub tallies: BTreeMap<VmId, Tally>,
    pub starts: Vec<(u64, DeviceIo)>,
    owed: BTreeMap<u64, Asked>,
    clients: BTreeMap<ClientId, VmId>,
    disks: u64,
    tag: u64,
}

fn place(op: Op) -> usize {
    Op::ALL.iter().position(|&o| o == op).expect("one of all")
}

impl Rig {
    pub fn new(config: EngineConfig, policy: &PolicySpec, now: u64) -> Rig {
        Rig {
            engine: Engine::new(config, policy).expect("the configuration is sound"),
            now,
            in_flight: Vec::new(),
            tallies: BTreeMap::new(),
            starts: Vec::new(),
            owed: BTreeMap::new(),
            clients: BTreeMap::new(),
            disks: 0,
            tag: 0,
        }
    }

    pub fn time(&self) -> Nanos {
        Nanos(self.now)
    }

    pub fn vm(&mut self, objective: &Objective) -> VmId {
        let now = self.time();
        let vm = self
            .engine
            .tenants_mut()
            .add_vm(now, objective)
            .expect("room");
        assert!(self.tallies.insert(vm, Tally::default()).is_none());
        vm
    }

    pub fn background(&mut self) -> VmId {
        let now = self.time();
        let vm = self
            .engine
            .tenants_mut()
            .add_background(now, &Objective::default());
        let vm = vm.expect("room");
        assert!(self.tallies.insert(vm, Tally::default()).is_none());
        vm
    }

    pub fn disk(&mut self, vm: VmId) -> DiskId {
        self.disks += 1;
        let spec = DiskSpec {
            base: (self.disks - 1) * DISK,
            size: DISK,
            read_only: false,
        };
        self.engine
            .tenants_mut()
            .add_disk(vm, spec)
            .expect("the VM is there")
    }

    pub fn client(&mut self, vm: VmId, disk: DiskId) -> ClientId {
        let client = self.engine.connect(disk).expect("the disk is there");
        self.clients.insert(client, vm);
        client
    }

    /// A VM with one disk and one client.
    pub fn guest(&mut self, objective: &Objective) -> (VmId, ClientId) {
        let vm = self.vm(objective);
        let disk = self.disk(vm);
        (vm, self.client(vm, disk))
    }

    pub fn ask(&mut self, client: ClientId, op: Op, offset: u64, len: u32) -> Result<u64, Refusal> {
        self.tag += 1;
        let request = Request {
            op,
            offset,
            len,
            fua: false,
            keep_allocated: false,
            tag: self.tag,
        };
        let now = self.time();
        self.engine.handle_request(now, client, request)?;
        let vm = self.clients[&client];
        self.tallies.entry(vm).or_default().arrived[place(op)] += 1;
        let asked = Asked {
            client,
            vm,
            op,
            len,
            at: self.now,
            gone: false,
            served: false,
        };
        self.owed.insert(self.tag, asked);
        Ok(self.tag)
    }

    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Starts what goes now, at most so many.
    pub fn dispatch(&mut self, most: usize) -> usize {
        for n in 0..most {
            let Some(io) = self.engine.poll_dispatch(self.time()) else {
                self.wakes_up();
                return n;
            };
            self.started(io);
        }
        most
    }

    fn started(&mut self, io: DeviceIo) {
        let segments: Vec<_> = self.engine.io_segments(io.id).collect();
        let (mut ops, mut bytes, mut len) = (0, 0, 0);
        for segment in &segments {
            let asked = self.owed.get_mut(&segment.tag).expect("is owed");
            assert!(!asked.gone, "of a client that is gone");
            assert_eq!((asked.vm, asked.op), (io.vm, io.op));
            assert!(segment.offset as u64 + segment.len as u64 <= asked.len as u64);
            len += segment.len as u64;
            if !std::mem::replace(&mut asked.served, true) {
                ops += 1;
                bytes += asked.len as u64;
            }
        }
        if io.op != Op::Flush {
            assert_eq!((io.first_ops, io.first_bytes), (ops, bytes), "{io:?}");
            assert_eq!(len, io.len as u64, "{io:?}");
        }
        let tally = self.tallies.get_mut(&io.vm).expect("known");
        tally.first_ops += ops as u64;
        tally.first_bytes += bytes;
        tally.device_bytes += io.len as u64;
        self.in_flight.push(io);
        self.starts.push((self.now, io));
        let depth = self.engine.config().device.depth as usize;
        assert!(self.in_flight.len() <= depth, "beyond the depth");
    }

    /// Nothing goes now: then something will make it go.
    pub fn wakes_up(&self) {
        let next = self.engine.next_timeout();
        assert!(
            next.is_none_or(|t| t.0 > self.now),
            "a wake-up at {next:?} is not served at {}",
            self.now
        );
        let view = self.engine.view();
        let waits = view.vms().any(|vm| view.waiting(vm) > 0);
        assert!(
            !waits || next.is_some() || self.now > AGES || !self.in_flight.is_empty(),
            "requests wait, nothing is in flight, and there is no wake-up at {}: {:?}",
            self.now,
            self.engine.policy()
        );
    }

    /// The `n`th I/O in flight ends.
    pub fn end(&mut self, n: usize, outcome: Outcome) {
        let io = self.in_flight.swap_remove(n);
        assert!(self.engine.is_in_flight(io.id));
        self.engine.handle_completion(self.time(), io.id, outcome);
        assert!(!self.engine.is_in_flight(io.id));
        self.take();
    }

    pub fn end_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.end(0, Ok(()));
        }
    }

    /// Takes the answers.
    pub fn take(&mut self) {
        while let Some(done) = self.engine.poll_done() {
            let asked = self.owed.remove(&done.tag);
            let asked = asked.unwrap_or_else(|| panic!("answered twice or never asked: {done:?}"));
            assert_eq!(
                (done.client, done.vm, done.op),
                (asked.client, asked.vm, asked.op)
            );
            let spent = self.time().since(Nanos(asked.at));
            assert_eq!(done.account.total(), spent, "{done:?}");
            let tally = self.tallies.get_mut(&done.vm).expect("known");
            let n = place(done.op);
            match done.outcome {
                Ok(()) => {
                    assert!(asked.served || asked.op == Op::Flush, "{done:?}");
                    tally.ok[n] += 1;
                    tally.ok_bytes[n] += asked.len as u64;
                }
                Err(IoError::Cancelled) => {
                    assert!(asked.gone, "cancelled for no reason: {done:?}");
                    tally.cancelled += 1;
                }
                Err(_) => tally.failed[n] += 1,
            }
        }
    }

    pub fn disconnect(&mut self, client: ClientId) {
        let mine = self.owed.values_mut().filter(|a| a.client == client);
        mine.for_each(|a| a.gone = true);
        let now = self.time();
        self.engine.handle_disconnect(now, client);
        self.take();
    }

    pub fn remove(&mut self, vm: VmId) {
        let mine = self.owed.values_mut().filter(|a| a.vm == vm);
        mine.for_each(|a| a.gone = true);
        let now = self.time();
        self.engine
            .tenants_mut()
            .remove_vm(now, vm)
            .expect("is there");
        self.take();
    }

    /// Faults stop: everything drains, in so many steps.
    pub fn drain(&mut self) {
        let mut steps = 0;
        loop {
            let moved = self.dispatch(usize::MAX) + self.in_flight.len();
            self.end_all();
            if self.owed.is_empty() {
                break;
            }
            let next = self.engine.next_timeout().map_or(self.now, |t| t.0);
            self.now = if moved > 0 {
                self.now.saturating_add(1000)
            } else {
                assert!(next > self.now, "nothing goes and nothing will");
                next
            };
            steps += 1;
            assert!(
                steps < 100_000,
                "{} requests do not drain: {:?}",
                self.owed.len(),
                self.engine.policy()
            );
        }
        self.is_balanced();
    }

    /// Drained: gauges are at zero, and counters say what the books say.
    pub fn is_balanced(&self) {
        let facts = self.engine.facts();
        assert!(self.engine.is_idle(), "{facts:?}");
        assert_eq!((facts.in_flight, facts.requests, facts.queued), (0, 0, 0));
        assert_eq!(facts.started, facts.ended);
        assert_eq!(facts.started, self.starts.len() as u64);
        for vm in self.engine.view().vms() {
            assert_eq!(
                (
                    self.engine.tenants().pending(vm),
                    self.engine.tenants().in_flight(vm)
                ),
                (0, 0)
            );
            assert_eq!(self.engine.view().requests(vm), 0);
            self.counts_agree(vm);
        }
    }

    fn counts_agree(&self, vm: VmId) {
        let (stats, tally) = (self.engine.tenants().vm_stats(vm), &self.tallies[&vm]);
        for (n, op) in Op::ALL.into_iter().enumerate() {
            let count = stats.op(op);
            assert_eq!(count.arrived, tally.arrived[n], "{op:?} {vm:?}");
            assert_eq!(count.ops, tally.ok[n], "{op:?} {vm:?}");
            assert_eq!(count.bytes, tally.ok_bytes[n], "{op:?} {vm:?}");
            assert_eq!(count.errors, tally.failed[n], "{op:?} {vm:?}");
        }
        assert_eq!(stats.cancelled, tally.cancelled, "{vm:?}");
        assert_eq!(stats.total_ops(), tally.ok.iter().sum::<u64>());
        assert_eq!(stats.latency.count(), stats.total_ops(), "{vm:?}");
        let lanes = Lane::ALL.map(|lane| {
            let (queue, service) = (stats.queue_time(lane), stats.service_time(lane));
            assert_eq!(queue.count(), service.count(), "{vm:?} {lane:?}");
            queue.count()
        });
        assert_eq!(lanes.iter().sum::<u64>(), stats.total_ops(), "{vm:?}");
        let buckets: u64 = stats.latency.iter().map(|(_, n)| n).sum();
        assert_eq!(buckets, stats.latency.count(), "{vm:?}");
        let arrived: u64 = tally.arrived.iter().sum();
        assert_eq!(stats.sizes.iter().sum::<u64>(), arrived, "{vm:?}");
        assert_eq!(tally.answered(), arrived, "{vm:?}");
    }
}
