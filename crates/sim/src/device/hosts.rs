//! Hosts that share a device: one engine each, and the tags of their I/Os at the device.
//!
//! An engine knows nothing of the other hosts' requests. The device asks the engines for I/Os in
//! turn.

use crate::scenario::DiskPart;
use tidegate_config::device::limit_groups::LimitGroup;
use tidegate_core::device::DeviceSpec;
use tidegate_core::engine::{DiskSpec, Engine, EngineError, SharedLimitId};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DeviceIo, Done, IoId, VmId};
use tidegate_core::roles::Waits;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Bits of an I/O's index in the lower half of its handle; the bits above it hold the host.
const HOST_SHIFT: u32 = 16;
// An index of an I/O must not reach into the bits of the host.
const _: () = assert!(DeviceSpec::MAX_DEPTH <= 1 << HOST_SHIFT);

/// Tag of a host's I/O at the device. With a single host, tags equal the engine's handles.
pub(super) fn io_tag(host: usize, io: IoId) -> u64 {
    io.to_bits() | (host as u64) << HOST_SHIFT
}

/// Host of an I/O of the device, and its engine's handle.
pub(super) fn io_of_tag(tag: u64) -> (usize, IoId) {
    // The upper half of a handle is its generation.
    let host = tag as u32 >> HOST_SHIFT;
    let id = tag & !(u64::from(u32::MAX >> HOST_SHIFT) << HOST_SHIFT);
    (host as usize, IoId::from_bits(id))
}

/// Engines of the hosts that share a device.
pub(super) struct Hosts {
    engines: Vec<Engine>,
    /// Host that is asked first for the device's next I/O.
    turn: usize,
    /// Index of each engine's VMs among the device's, by host and the slot of the VM's handle.
    vms: Vec<Vec<u32>>,
    /// Limits that disks share, by host, with the names of the device's limit groups.
    shared_limits: Vec<Vec<(String, SharedLimitId)>>,
}

impl Hosts {
    /// Hosts with these engines, of which there is at least one. Each keeps the limits of `groups`
    /// for its own disks.
    pub(super) fn new(mut engines: Vec<Engine>, groups: &[LimitGroup]) -> Hosts {
        assert!(!engines.is_empty(), "a device has at least one host");
        let shared = |engine: &mut Engine| {
            let mut vms = engine.vms_mut();
            let added = groups.iter().map(|group| {
                let id = vms.add_shared_limit(Nanos::ZERO, &group.limit);
                (group.name.clone(), id.expect("the scenario was checked"))
            });
            added.collect()
        };
        Hosts {
            turn: 0,
            vms: vec![Vec::new(); engines.len()],
            shared_limits: engines.iter_mut().map(shared).collect(),
            engines,
        }
    }

    /// Number of hosts.
    pub(super) fn len(&self) -> usize {
        self.engines.len()
    }

    /// True if several hosts share the device.
    pub(super) fn are_several(&self) -> bool {
        self.engines.len() > 1
    }

    /// Engine of a host.
    pub(super) fn engine(&self, host: usize) -> &Engine {
        &self.engines[host]
    }

    /// Engine of a host, to be driven.
    pub(super) fn engine_mut(&mut self, host: usize) -> &mut Engine {
        &mut self.engines[host]
    }

    /// Adds a VM with its disk, and connects to it. `vm` is its index among the device's.
    pub(super) fn add_vm(
        &mut self,
        now: Nanos,
        host: usize,
        vm: u32,
        (background, objective): (bool, &Objective),
        disk: DiskSpec,
    ) -> (VmId, ClientId) {
        let engine = &mut self.engines[host];
        let added = if background {
            engine.vms_mut().add_background(now, objective)
        } else {
            engine.vms_mut().add_vm(now, objective)
        };
        let id = added.expect("the scenario was checked, and there is a slot for each VM");
        let disk = engine.vms_mut().add_disk(id, disk);
        let disk = disk.expect("the VM has just come, and its disk fits the device");
        let client = engine.connect(disk).expect("the disk has just come");
        let vms = &mut self.vms[host];
        // `u32::MAX`: slots of the engine that no VM of the scenario has had.
        vms.resize(vms.len().max(id.index() + 1), u32::MAX);
        vms[id.index()] = vm;
        (id, client)
    }

    /// Adds a disk for each of the parts of a VM's disk that have limits of their own, and connects
    /// to it.
    pub(super) fn add_parts(
        &mut self,
        now: Nanos,
        (host, vm): (usize, VmId),
        whole: DiskSpec,
        parts: &[DiskPart],
    ) -> Box<[(u64, ClientId)]> {
        let (engine, shared) = (&mut self.engines[host], &self.shared_limits[host]);
        let connect = |part: &DiskPart| {
            // Up to the end of the whole disk, because a request may reach into the next part.
            // Parts overlap so, and the whole disk, which has no requests then, overlaps them: the
            // simulated device has no data.
            let spec = DiskSpec {
                base: whole.base + part.start,
                size: whole.size - part.start,
                ..whole
            };
            let mut vms = engine.vms_mut();
            let disk = vms.add_disk(vm, spec)?;
            vms.limit_disk(now, disk, &part.limit)?;
            let group = part.group.as_ref();
            let group = group.and_then(|name| shared.iter().find(|(known, _)| known == name));
            vms.share_limit(now, disk, group.map(|&(_, id)| id))?;
            let client = engine.connect(disk).expect("the disk has just come");
            Ok((part.start, client))
        };
        let connected: Result<_, EngineError> = parts.iter().map(connect).collect();
        connected.expect("the scenario was checked")
    }

    /// Replaces the policy of every host.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: &PolicySpec) {
        let mut policy = policy.clone();
        if self.are_several() {
            policy = policy.on_shared_device();
        }
        for engine in &mut self.engines {
            engine.set_policy(now, &policy);
        }
    }

    /// Name of the policy in force.
    pub(super) fn policy(&self) -> &str {
        // All hosts have the same one.
        self.engines[0].policy().name()
    }

    /// Waits of the policy for requests that might come, summed over the hosts; `None` if it never
    /// waits.
    pub(super) fn waits(&self) -> Option<Waits> {
        let all = self
            .engines
            .iter()
            .filter_map(|engine| engine.device().waits());
        all.reduce(|a, b| Waits {
            begun: a.begun + b.begun,
            succeeded: a.succeeded + b.succeeded,
        })
    }

    /// Time of the first timer of any engine; [`Nanos::MAX`] if there is none.
    pub(super) fn next_timeout(&self) -> Nanos {
        let timers = self.engines.iter().filter_map(Engine::next_timeout);
        timers.min().unwrap_or(Nanos::MAX)
    }

    /// Has every engine do what is due.
    pub(super) fn handle_timeouts(&mut self, now: Nanos) {
        self.engines.iter_mut().for_each(|e| e.handle_timeout(now));
    }

    /// Has every engine update its promises to `now`.
    pub(super) fn check_feasibility(&mut self, now: Nanos) {
        for engine in &mut self.engines {
            engine.device_mut().check_feasibility(now);
        }
    }

    /// Next request that an engine has finished.
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        self.engines.iter_mut().find_map(Engine::poll_done)
    }

    /// Next VM, by its index among the device's, that an engine may have room for again.
    pub(super) fn poll_unblocked(&mut self) -> Option<u32> {
        let mut hosts = self.engines.iter_mut().zip(&self.vms);
        hosts.find_map(|(engine, vms)| Some(vms[engine.admission_mut().poll_unblocked()?.index()]))
    }

    /// Next I/O that goes to the device, with its host: hosts take turns.
    pub(super) fn poll_dispatch(&mut self, now: Nanos) -> Option<(usize, DeviceIo)> {
        for _ in 0..self.engines.len() {
            let host = self.turn;
            // Moved on even without an I/O, so that no host is asked first twice.
            self.turn = (host + 1) % self.engines.len();
            if let Some(io) = self.engines[host].poll_dispatch(now) {
                return Some((host, io));
            }
        }
        None
    }

    /// Ends an I/O of the device, by its tag there.
    pub(super) fn complete(&mut self, now: Nanos, tag: u64) {
        let (host, io) = io_of_tag(tag);
        self.engines[host].handle_completion(now, io, Ok(()));
    }

    /// True while no engine has a request.
    pub(super) fn are_idle(&self) -> bool {
        self.engines.iter().all(Engine::is_idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::engine::EngineConfig;
    use tidegate_core::request::{Op, Request};

    #[test]
    fn an_io_is_known_by_its_host_and_its_engines_name() {
        for host in [0, 1, 63] {
            for (generation, index) in [(0, 0), (7, 4095), (u64::from(u32::MAX), 1)] {
                let io = IoId::from_bits(generation << 32 | index);
                assert_eq!(io_of_tag(io_tag(host, io)), (host, io));
            }
        }
        let io = IoId::from_bits(9 << 32 | 5);
        assert_eq!(io_tag(0, io), io.to_bits());
    }

    fn hosts(count: usize) -> Hosts {
        let policy = PolicySpec::named("fifo").expect("it is registered");
        let engine = || Engine::new(EngineConfig::default(), &policy).expect("it is sound");
        Hosts::new((0..count).map(|_| engine()).collect(), &[])
    }

    #[test]
    fn hosts_take_turns_at_the_device_and_hear_of_their_own_ios() {
        let mut hosts = hosts(2);
        let disk = DiskSpec {
            base: 0,
            size: 1 << 20,
            read_only: false,
        };
        let now = Nanos(1);
        for host in 0..2 {
            let as_vm = (false, &Objective::default());
            let (_, client) = hosts.add_vm(now, host, 7 + host as u32, as_vm, disk);
            for n in 0..2 {
                // Apart, so that they are not merged.
                let request = Request::read(n * 65536, 4096, n);
                let engine = hosts.engine_mut(host);
                engine
                    .handle_request(now, client, request)
                    .expect("there is room");
            }
        }
        let ios: Vec<_> = core::iter::from_fn(|| hosts.poll_dispatch(now)).collect();
        assert_eq!(ios.iter().map(|io| io.0).collect::<Vec<_>>(), [0, 1, 0, 1]);
        assert!(!hosts.are_idle());
        hosts.complete(now, io_tag(ios[1].0, ios[1].1.id));
        let done = hosts.poll_done().expect("one has ended");
        assert_eq!((done.op, hosts.poll_done().is_none()), (Op::Read, true));
        assert_eq!(hosts.vms[1][done.vm.index()], 8);
        for (host, io) in [ios[0], ios[2], ios[3]] {
            hosts.complete(now, io_tag(host, io.id));
        }
        while hosts.poll_done().is_some() {}
        assert!(hosts.are_idle());
    }
}
