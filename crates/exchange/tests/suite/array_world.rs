//! Three hosts, each an engine with one VM or more, in front of one array that serves an I/O at a
//! time, in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_core::engine::Engine;
use tidegate_core::objective::Objective;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{ClientId, IoId, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_exchange::in_process::{Faults, InProcess, Network};
use tidegate_exchange::{ArrayExchange, FixedEntitlements, Name, Transport, Update};
use tidegate_policies::policy::PolicySpec;
use tidegate_testkit::{config, open_disk, policy, weighted};

/// Names of the hosts.
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Policies that divide an array among hosts.
pub(crate) const POLICIES: [&str; 2] = ["vfair", "slo"];
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

/// VM or background process that keeps requests outstanding.
struct Guest {
    vm: VmId,
    client: ClientId,
    next_request: u64,
    /// Requests that were answered.
    served: u64,
    /// Requests that it keeps outstanding; 0: it makes none.
    outstanding: u64,
}

impl Guest {
    /// Returns true if it makes another request now.
    fn makes_request(&self) -> bool {
        self.next_request - self.served < self.outstanding
    }
}

/// Host with an engine, its rules and its VMs.
struct Host {
    engine: Engine,
    rules: ArrayExchange,
    transport: InProcess,
    guests: Vec<Guest>,
    tick_due: Nanos,
    /// The host works; otherwise it has died.
    is_up: bool,
    /// Factor by which it overstates its weight.
    lies: f64,
    /// Scale in the host's last report.
    scale: f64,
}

impl Host {
    fn new(
        policy: &PolicySpec,
        network: &Network,
        host: &str,
        entitled: &FixedEntitlements,
        now: Nanos,
    ) -> Host {
        let mut engine = Engine::new(config(64, 0), policy).expect("in range");
        engine.device_mut().set_profile(Some(profile(1.0)));
        let names = [&name("east"), &name("san"), &name(host)];
        let rules = ArrayExchange::new(names, now.0, entitled).expect("entitled");
        let mut new = Host {
            engine,
            rules,
            transport: network.connect(&name(host)),
            guests: Vec::new(),
            tick_due: now,
            is_up: true,
            lies: 1.0,
            scale: 1.0,
        };
        for peer in 0..new.rules.peers().len() {
            new.apply(now, peer as u32);
        }
        new
    }

    /// Adds a VM that has just come, or a background process, and its first requests.
    fn add(&mut self, now: Nanos, vm: VmId) {
        let base = (self.guests.len() as u64) << 40;
        self.guests.push(Guest {
            vm,
            client: open_disk(&mut self.engine, vm, base, 1 << 40).1,
            next_request: 0,
            served: 0,
            outstanding: OUTSTANDING,
        });
        self.make_requests(now, self.guests.len() - 1);
    }

    /// Makes the requests that a VM has to make now.
    fn make_requests(&mut self, now: Nanos, guest: usize) {
        while self.guests[guest].makes_request() {
            self.request(now, guest);
        }
    }

    fn request(&mut self, now: Nanos, guest: usize) {
        let Guest {
            client,
            next_request,
            ..
        } = &mut self.guests[guest];
        let number = *next_request;
        *next_request += 1;
        // Distances that are no sequence.
        let offset = (number * 7919 % 100_000) << 20;
        let request = Request::read(offset, SIZE, number);
        self.engine
            .handle_request(now, *client, request)
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
        while let Some(done) = self.engine.poll_done() {
            let guest = self.guests.iter().position(|guest| guest.vm == done.vm);
            let guest = guest.expect("guests stay");
            self.guests[guest].served += 1;
            self.make_requests(now, guest);
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
    policies: [PolicySpec; 3],
    entitled: FixedEntitlements,
}

impl ArrayWorld {
    /// Creates hosts under a policy whose VMs have these weights, each entitled to so much.
    pub(crate) fn new(
        policy_name: &str,
        faults: Faults,
        weights: [u32; 3],
        entitled: [u32; 3],
    ) -> ArrayWorld {
        let objectives = weights.map(weighted);
        ArrayWorld::with_objectives(policy_name, faults, &objectives, entitled)
    }

    /// Creates hosts under a policy, each with a VM of one of these objectives.
    pub(crate) fn with_objectives(
        policy_name: &str,
        faults: Faults,
        objectives: &[Objective; 3],
        entitled: [u32; 3],
    ) -> ArrayWorld {
        ArrayWorld::with_policies([policy_name; 3], faults, objectives, entitled)
    }

    /// Creates hosts under these policies, without faults, whose VMs have these weights.
    pub(crate) fn mixed(policies: [&str; 3], weights: [u32; 3]) -> ArrayWorld {
        let objectives = weights.map(weighted);
        ArrayWorld::with_policies(policies, Faults::default(), &objectives, [600; 3])
    }

    fn with_policies(
        policies: [&str; 3],
        faults: Faults,
        objectives: &[Objective; 3],
        entitled: [u32; 3],
    ) -> ArrayWorld {
        let network = Network::new(7, faults);
        let mut all = FixedEntitlements::default();
        for (host, weight) in HOSTS.into_iter().zip(entitled) {
            assert!(all.add(name("san"), name(host), weight));
        }
        let policies = policies.map(|name| policy(name).on_shared_device());
        // Later than 0, which is no time of a start.
        let now = Nanos(1);
        let hosts = HOSTS.into_iter().zip(&policies);
        let hosts = hosts.map(|(host, policy)| Host::new(policy, &network, host, &all, now));
        let mut world = ArrayWorld {
            hosts: hosts.collect(),
            network,
            now,
            queue: VecDeque::new(),
            policies,
            entitled: all,
        };
        for (host, objective) in objectives.iter().enumerate() {
            world.add_vm(host, objective);
        }
        world
    }

    /// Adds a VM to a host, and returns its index there.
    pub(crate) fn add_vm(&mut self, host: usize, objective: &Objective) -> usize {
        let (now, host) = (self.now, &mut self.hosts[host]);
        let vm = host.engine.vms_mut().add_vm(now, objective).expect("room");
        host.add(now, vm);
        host.guests.len() - 1
    }

    /// Adds a background process to a host, and returns its index among the VMs there.
    pub(crate) fn add_background(&mut self, host: usize) -> usize {
        let (now, host) = (self.now, &mut self.hosts[host]);
        let objective = Objective::default();
        let process = host.engine.vms_mut().add_background(now, &objective);
        host.add(now, process.expect("room"));
        host.guests.len() - 1
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
        let parts = self.parts_of_vms(time);
        parts.map(|of_host| of_host.iter().sum())
    }

    /// Returns the parts of the array's time that each VM of each host gets while `time` passes.
    pub(crate) fn parts_of_vms(&mut self, time: Nanos) -> [Vec<f64>; 3] {
        let served = |host: &Host| host.guests.iter().map(|guest| guest.served).collect();
        let before: Vec<Vec<u64>> = self.hosts.iter().map(served).collect();
        self.run(time);
        let all = time.0 as f64 / SERVICE.0 as f64;
        std::array::from_fn(|host| {
            let guests = self.hosts[host].guests.iter().zip(&before[host]);
            let part = |(guest, before): (&Guest, &u64)| (guest.served - before) as f64 / all;
            guests.map(part).collect()
        })
    }

    /// Changes the weight of a host's first VM.
    pub(crate) fn set_weight(&mut self, host: usize, weight: u32) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        let vms = &mut host.engine.vms_mut();
        vms.set_objective(now, host.guests[0].vm, &weighted(weight))
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

    /// Starts a host again that was ended, with a VM of this objective. What it had at the array is
    /// gone.
    pub(crate) fn restart(&mut self, host: usize, objective: &Objective) {
        let (now, name) = (self.now, HOSTS[host]);
        self.disconnect(host);
        let (gone, stays) = self.queue.drain(..).partition(|&(_, of, _)| of == host);
        self.queue = stays;
        for (_, _, io) in Vec::from(gone) {
            self.hosts[host].engine.handle_completion(now, io, Ok(()));
        }
        while self.hosts[host].engine.poll_done().is_some() {}
        let policy = &self.policies[host];
        self.hosts[host] = Host::new(policy, &self.network, name, &self.entitled, now);
        self.add_vm(host, objective);
    }

    /// Replaces the policy of a host, and hands it what it knows of the others again.
    pub(crate) fn set_policy(&mut self, host: usize, name: &str) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        let policy = policy(name).on_shared_device();
        host.engine.set_policy(now, &policy);
        for peer in 0..host.rules.peers().len() {
            host.apply(now, peer as u32);
        }
    }

    /// Disconnects all clients of a host.
    fn disconnect(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        for guest in &host.guests {
            host.engine.handle_disconnect(self.now, guest.client);
        }
    }

    /// Has all hosts adapt the depth of their queues at the array, as by default.
    pub(crate) fn adapt_depths(&mut self) {
        for host in &mut self.hosts {
            host.engine.device_mut().adapt_depth(self.now, true);
        }
    }

    /// Has all VMs keep `count` requests outstanding from now on.
    pub(crate) fn keep_outstanding(&mut self, count: u64) {
        for guest in self.hosts.iter_mut().flat_map(|host| &mut host.guests) {
            guest.outstanding = count;
        }
    }

    /// Gives all hosts a profile that claims `claimed` times the rate of the array.
    pub(crate) fn set_profile(&mut self, claimed: f64) {
        for host in &mut self.hosts {
            let mut device = host.engine.device_mut();
            device.set_profile(Some(profile(claimed)));
        }
    }

    /// Has the first VM of a host make no more requests.
    pub(crate) fn end_load(&mut self, host: usize) {
        self.hosts[host].guests[0].outstanding = 0;
    }

    /// Has the first VM of a host make requests again.
    pub(crate) fn start_load(&mut self, host: usize) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        host.guests[0].outstanding = OUTSTANDING;
        host.make_requests(now, 0);
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
        (0..self.hosts.len()).for_each(|host| self.disconnect(host));
        for (_, host, io) in self.queue.drain(..) {
            self.hosts[host].engine.handle_completion(now, io, Ok(()));
        }
        for host in &mut self.hosts {
            while host.engine.poll_done().is_some() {}
        }
    }
}
