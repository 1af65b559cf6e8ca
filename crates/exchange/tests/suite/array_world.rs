//! Three hosts, each an engine under `vfair` with one VM, in front of one array that serves an I/O
//! at a time, in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_core::engine::Engine;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{ClientId, IoId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_exchange::in_process::{Faults, InProcess, Network};
use tidegate_exchange::{ArrayExchange, FixedEntitlements, Name, Transport, Update};
use tidegate_testkit::{config, open_disk, policy, weighted};

/// Names of the hosts.
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Requests that each VM keeps outstanding.
const OUTSTANDING: u64 = 64;
const SIZE: u32 = 16 << 10;
/// Time of a read of that size.
const SERVICE: Nanos = Nanos(200_000);
/// Interval at which hosts notice silence.
const TICK: Nanos = Nanos::from_millis(30);

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns a profile that claims `claimed` times the rate of the array.
fn profile(claimed: f64) -> Arc<Profile> {
    let rate = claimed * 1e9 / SERVICE.0 as f64;
    let curve = || Curve::new(&[(4096, rate), (1 << 20, rate / 8.0)]).expect("a curve");
    // At the size of the test's requests the rate is what the points give; the scale does the rest.
    Arc::new(Profile::new(
        [curve(), curve()],
        None,
        Vec::new(),
        Vec::new(),
    ))
}

/// Host with an engine, its rules and its VM.
struct Host {
    engine: Engine,
    rules: ArrayExchange,
    transport: InProcess,
    vm: VmId,
    client: ClientId,
    tick_due: Nanos,
    next_request: u64,
    /// The host works; otherwise it has died.
    is_up: bool,
    /// Factor by which it overstates its weight.
    lies: f64,
    /// Requests that were answered.
    served: u64,
    /// The VM makes requests.
    has_load: bool,
    /// Scale in the host's last report.
    scale: f64,
}

impl Host {
    fn new(network: &Network, host: &str, entitled: &FixedEntitlements, weight: u32) -> Host {
        let mut engine = Engine::new(config(64, 0), &policy("vfair")).expect("in range");
        engine.device_mut().set_profile(Some(profile(1.0)));
        let names = [&name("east"), &name("san"), &name(host)];
        let rules = ArrayExchange::new(names, 1, entitled).expect("entitled");
        let vm = engine.vms_mut().add_vm(Nanos::ZERO, &weighted(weight));
        let vm = vm.expect("room");
        let client = open_disk(&mut engine, vm, 0, 1 << 40).1;
        let mut new = Host {
            engine,
            rules,
            transport: network.connect(&name(host)),
            vm,
            client,
            tick_due: Nanos::ZERO,
            next_request: 0,
            is_up: true,
            lies: 1.0,
            served: 0,
            has_load: true,
            scale: 1.0,
        };
        for peer in 0..new.rules.peers().len() {
            new.apply(Nanos::ZERO, peer as u32);
        }
        (0..OUTSTANDING).for_each(|_| new.request(Nanos::ZERO));
        new
    }

    fn request(&mut self, now: Nanos) {
        let number = self.next_request;
        self.next_request += 1;
        // Distances that are no sequence.
        let offset = (number * 7919 % 100_000) << 20;
        let request = Request::read(offset, SIZE, number);
        self.engine
            .handle_request(now, self.client, request)
            .expect("room for what was answered");
    }

    fn apply(&mut self, now: Nanos, peer: u32) {
        match self.rules.update(peer) {
            Update::Share(share) => self.engine.handle_peer(now, peer, &share),
            Update::Silent(weight) => self.engine.device_mut().assume_peer(now, peer, weight),
        }
        self.engine
            .device_mut()
            .set_host_weight(now, self.rules.host_weight());
    }

    /// Takes messages, timers and answers, and sends what is due.
    fn turn(&mut self, now: Nanos) {
        while let Some(received) = self.transport.receive(now) {
            if let Ok(Some(peer)) = self.rules.receive(now, now.0, &received) {
                self.apply(now, peer);
            }
        }
        if self.tick_due <= now {
            self.tick_due = now + TICK;
            for peer in self.rules.tick(now) {
                self.apply(now, peer);
            }
            if let Some(bytes) = self.rules.heartbeat(now, now.0) {
                self.transport.publish(now, &name("san"), &bytes);
            }
        }
        if self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        while self.engine.poll_done().is_some() {
            self.served += 1;
            if self.has_load {
                self.request(now);
            }
        }
        while let Some(mut share) = self.engine.poll_share() {
            self.scale = share.scale;
            share.weight *= self.lies;
            let bytes = self.rules.share(now, now.0, &share);
            self.transport.publish(now, &name("san"), &bytes);
        }
    }
}

/// Hosts and their array.
pub(crate) struct ArrayWorld {
    pub(crate) network: Network,
    hosts: Vec<Host>,
    now: Nanos,
    queue: VecDeque<(Nanos, usize, IoId)>,
}

impl ArrayWorld {
    /// Creates hosts whose VMs have these weights, each entitled to so much.
    pub(crate) fn new(faults: Faults, weights: [u32; 3], entitled: [u32; 3]) -> ArrayWorld {
        let network = Network::new(7, faults);
        let mut all = FixedEntitlements::default();
        for (host, weight) in HOSTS.into_iter().zip(entitled) {
            assert!(all.add(name("san"), name(host), weight));
        }
        let hosts = HOSTS.into_iter().zip(weights);
        ArrayWorld {
            hosts: hosts
                .map(|(host, weight)| Host::new(&network, host, &all, weight))
                .collect(),
            network,
            now: Nanos::ZERO,
            queue: VecDeque::new(),
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            while let Some((_, host, io)) = self.queue.pop_front_if(|first| first.0 <= self.now) {
                // The array also serves what a host had sent that has died meanwhile.
                let engine = &mut self.hosts[host].engine;
                engine.handle_completion(self.now, io, Ok(()));
            }
            for at in 0..self.hosts.len() {
                if self.hosts[at].is_up {
                    self.turn(at);
                }
            }
            let timers = self.hosts.iter().filter(|host| host.is_up);
            let timers = timers.filter_map(|host| host.engine.next_timeout());
            let device = self.queue.front().map(|first| first.0);
            // Messages are looked for each millisecond.
            let next = timers.chain(device).min().unwrap_or(Nanos::MAX);
            let step = self.now + Nanos::from_millis(1);
            self.now = next.max(self.now + Nanos(1)).min(step);
        }
    }

    fn turn(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        host.turn(now);
        while let Some(io) = host.engine.poll_dispatch(now) {
            let begin = self.queue.back().map_or(now, |last| last.0.max(now));
            self.queue.push_back((begin + SERVICE, at, io.id));
        }
    }

    /// Returns the parts of the array's time that the hosts' VMs get while `time` passes.
    pub(crate) fn parts(&mut self, time: Nanos) -> [f64; 3] {
        let before: Vec<u64> = self.hosts.iter().map(|host| host.served).collect();
        self.run(time);
        let all = time.0 as f64 / SERVICE.0 as f64;
        std::array::from_fn(|at| (self.hosts[at].served - before[at]) as f64 / all)
    }

    /// Changes the weight of a host's VM.
    pub(crate) fn set_weight(&mut self, host: usize, weight: u32) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        let vms = &mut host.engine.vms_mut();
        vms.set_objective(now, host.vm, &weighted(weight))
            .expect("the VM is there");
    }

    /// Ends a host: in order, with a withdrawal, or without a sign.
    pub(crate) fn end(&mut self, host: usize, in_order: bool) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        host.is_up = false;
        if in_order {
            let bytes = host.rules.withdraw(now.0);
            host.transport.publish(now, &name("san"), &bytes);
        }
    }

    /// Gives all hosts a profile that claims `claimed` times the rate of the array.
    pub(crate) fn set_profile(&mut self, claimed: f64) {
        for host in &mut self.hosts {
            let mut device = host.engine.device_mut();
            device.set_profile(Some(profile(claimed)));
        }
    }

    /// Has the VM of a host make no more requests.
    pub(crate) fn end_load(&mut self, host: usize) {
        self.hosts[host].has_load = false;
    }

    /// Has a host notice no silence for `time`, and repeat no reports.
    pub(crate) fn delay_tick(&mut self, host: usize, time: Nanos) {
        self.hosts[host].tick_due = self.now + time;
    }

    /// Returns the scale in the last report of a host.
    pub(crate) fn scale(&self, host: usize) -> f64 {
        self.hosts[host].scale
    }

    /// Has a host overstate its weight from now on.
    pub(crate) fn lie(&mut self, host: usize, factor: f64) {
        self.hosts[host].lies = factor;
    }

    /// Returns the rules of a host.
    pub(crate) fn rules(&self, host: usize) -> &ArrayExchange {
        &self.hosts[host].rules
    }
}

impl Drop for ArrayWorld {
    /// Disconnects all clients and ends all I/Os: an engine may not be dropped with requests.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let now = self.now;
        for host in &mut self.hosts {
            host.engine.handle_disconnect(now, host.client);
        }
        for (_, host, io) in self.queue.drain(..) {
            self.hosts[host].engine.handle_completion(now, io, Ok(()));
        }
        for host in &mut self.hosts {
            while host.engine.poll_done().is_some() {}
        }
    }
}
