//! Simulation of a scenario: builds the world, advances it and reports the results.

use super::{PingSpec, Scenario, StreamSpec, VmSpec, WriteSpec};
use crate::flow::cpu::Cpu;
use crate::flow::disk::{Disk, Writer};
use crate::flow::ping::Ping;
use crate::flow::stream::{ChunkPath, Stream};
use crate::flow::{Flow, FlowResult, Hop};
use crate::guest::{GuestCpu, TaskId};
use crate::machine::{DEFAULT_WEIGHT, Machine, VcpuId, VmId};
use crate::report::{FileReport, Latencies, VcpuReport, VcpuVmReport};
use crate::world::VcpuWorld;
use tidegate_core::random::{SplitMix64, mix};
use tidegate_core::time::Nanos;

/// Range of the random start times of processes and streams, so that VMs do not run in lock step.
pub const SPREAD: Nanos = Nanos::from_millis(30);

/// Flows of a VM, by their numbers in the world.
#[derive(Clone, Copy, Default, Debug)]
struct Flows {
    work: Option<usize>,
    ping: Option<usize>,
    stream: Option<usize>,
    /// Index of the writer at the disk.
    write: Option<usize>,
}

/// Running simulation of a scenario.
pub struct Simulation {
    scenario: Scenario,
    world: VcpuWorld,
    flows: Vec<Flows>,
    disk: Option<usize>,
    /// CPU time, received bytes and notifications at the end of the warm-up, by VM.
    before: Vec<(Nanos, u64, u64)>,
}

/// Builder of the parts of a world.
struct Builder<'a> {
    scenario: &'a Scenario,
    machine: Machine,
    guests: Vec<GuestCpu>,
    flows: Vec<Box<dyn Flow>>,
    writers: Vec<Writer>,
    random: SplitMix64,
}

impl Builder<'_> {
    fn id(&self) -> u32 {
        self.flows.len() as u32
    }

    fn add(&mut self, flow: impl Flow + 'static) -> usize {
        self.flows.push(Box::new(flow));
        self.flows.len() - 1
    }

    /// vCPU number `n` of a VM, modulo its number of vCPUs.
    fn vcpu(&self, vm: VmId, n: usize) -> VcpuId {
        let all = &self.machine.vms[vm.index()].vcpus;
        // A VM has at least one vCPU, by the range of its key.
        all[n % all.len()]
    }

    fn task(&mut self, v: VcpuId) -> TaskId {
        self.guests[v.index()].add_task()
    }

    fn spread(&mut self) -> Nanos {
        Nanos(self.random.below(SPREAD.0))
    }

    /// Adds all workloads of the VM with the index `place`. The driver domain is VM 0.
    fn vm(&mut self, place: usize, vm: &VmSpec) -> Flows {
        let id = VmId(place as u32 + 1);
        let mut flows = Flows::default();
        if vm.cpu.busy_processes > 0 {
            let tasks = (0..vm.cpu.busy_processes).map(|n| {
                let vcpu = self.vcpu(id, n);
                (vcpu, self.task(vcpu), self.spread())
            });
            let tasks = tasks.collect();
            self.add(Cpu::new(self.id(), tasks, Nanos::MAX));
        }
        if let Some(work) = vm.work {
            let vcpu = self.vcpu(id, 0);
            // Work with an end begins after the warm-up, so that all of it is measured.
            let task = (vcpu, self.task(vcpu), self.scenario.frame.warm_up);
            flows.work = Some(self.add(Cpu::new(self.id(), vec![task], work)));
        }
        flows.ping = vm.ping.map(|ping| self.ping(place, ping));
        flows.stream = vm.stream.map(|stream| self.stream(place, stream));
        flows.write = vm.write.map(|write| self.write(place, write));
        flows
    }

    /// vCPUs that a VM's I/O passes: one of the client's, one of the driver domain's, and its own
    /// with the number `vcpu`.
    fn io_path(&self, place: usize, client: usize, vcpu: usize) -> [VcpuId; 3] {
        [
            self.vcpu(VmId(client as u32 + 1), place),
            self.vcpu(VmId(0), place),
            self.vcpu(VmId(place as u32 + 1), vcpu),
        ]
    }

    fn ping(&mut self, place: usize, ping: PingSpec) -> usize {
        let [client, driver, guest] = self.io_path(place, ping.from, ping.vcpu);
        let hop = |vcpu, cost| Hop { vcpu, cost };
        let hops = [
            hop(client, ping.client),
            hop(driver, ping.driver),
            hop(guest, ping.guest),
            hop(driver, ping.driver),
            hop(client, ping.client),
        ];
        let first = self.scenario.frame.warm_up + self.spread();
        let when = (first, ping.period, ping.jitter);
        let seed = self.random.next_u64();
        let process = ping.process.map(|cost| (self.task(guest), cost));
        let flow = Ping::new(self.id(), hops, when, ping.count, seed);
        self.add(flow.in_bursts(ping.burst).answered_by(process))
    }

    fn stream(&mut self, place: usize, stream: StreamSpec) -> usize {
        let [client, driver, guest] = self.io_path(place, stream.from, stream.vcpu);
        let hop = |vcpu, cost| Hop { vcpu, cost };
        let path = ChunkPath {
            send: hop(client, stream.client),
            forward: hop(driver, stream.driver),
            interrupt: hop(guest, stream.interrupt),
            receive: (self.task(guest), stream.receive),
            back: hop(driver, stream.acknowledge),
            acknowledge: hop(client, stream.acknowledge),
        };
        // The flow counts its window in chunks.
        let (chunk, window) = (stream.chunk, stream.window / stream.chunk.max(1));
        let begins = self.spread();
        self.add(Stream::new(self.id(), path, chunk, window, begins))
    }

    fn write(&mut self, place: usize, write: WriteSpec) -> usize {
        let [_, driver, guest] = self.io_path(place, place, write.vcpu);
        let io = self.scenario.disk.io;
        // The key is per KiB, the flow works in whole I/Os.
        let make = Nanos(write.make_per_kib.0 * io / 1024);
        let writer = Writer {
            interrupt: Hop {
                vcpu: guest,
                cost: write.interrupt,
            },
            // Work of no length would let the process write the whole file at one time.
            make: (self.task(guest), make.max(Nanos(1))),
            forward: Hop {
                vcpu: driver,
                cost: write.driver,
            },
            file: write.file,
            dirty_most: write.dirty,
            depth: write.depth,
            begins: self.scenario.frame.warm_up + self.spread(),
        };
        self.writers.push(writer);
        self.writers.len() - 1
    }
}

impl Simulation {
    /// Builds the scenario's world at time zero.
    pub fn new(scenario: Scenario) -> Simulation {
        let (host, driver) = (scenario.host, scenario.driver);
        let mut machine = Machine::new(host.pcpus, host.per_socket);
        let all = machine.all_pcpus();
        // VM 0, before all others: `io_path` and `counted` rely on it.
        machine.add_vm(
            "driver",
            driver.vcpus,
            driver.pinned.and(all),
            DEFAULT_WEIGHT,
            0,
        );
        for vm in &scenario.vms {
            vm.cpu.add_to(&mut machine, &vm.name);
        }
        let mut builder = Builder {
            guests: vec![GuestCpu::default(); machine.vcpus.len()],
            machine,
            flows: Vec::new(),
            writers: Vec::new(),
            random: SplitMix64::new(mix(scenario.frame.seed)),
            scenario: &scenario,
        };
        let vms = scenario.vms.iter().enumerate();
        let flows = vms.map(|(place, vm)| builder.vm(place, vm)).collect();
        let writers = std::mem::take(&mut builder.writers);
        let disk = (!writers.is_empty()).then(|| {
            let disk = Disk::new(
                builder.id(),
                scenario.disk.io,
                scenario.disk.service,
                writers,
            );
            builder.add(disk)
        });
        let scheduler = scenario.scheduler.build(&builder.machine);
        let world = VcpuWorld::new(
            builder.machine,
            builder.guests,
            builder.flows,
            scheduler,
            host.switch_cost,
        );
        let before = vec![Default::default(); scenario.vms.len() + 1];
        Simulation {
            world,
            flows,
            disk,
            before,
            scenario,
        }
    }

    /// Simulated scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// World of the simulation.
    pub fn world(&self) -> &VcpuWorld {
        &self.world
    }

    /// Returns whether the simulation has ended.
    pub fn is_over(&self) -> bool {
        self.world.now() >= self.scenario.frame.duration
            || (self.scenario.frame.until_done && self.is_done())
    }

    /// Returns whether all finite workloads have ended.
    fn is_done(&self) -> bool {
        let ends = |flows: &Flows| flows.work.into_iter().chain(flows.ping);
        let mut all = self.flows.iter().flat_map(ends).chain(self.disk);
        // Without finite workloads `all` is true from the start.
        self.world.now() >= self.scenario.frame.warm_up && all.all(|flow| self.world.is_over(flow))
    }

    /// Advances by at most 100 ms, and not beyond the end of the warm-up or of the run.
    pub fn step(&mut self) {
        let (now, warm_up) = (self.world.now(), self.scenario.frame.warm_up);
        // Short steps let a caller report progress and stop early.
        let mut until = (now + Nanos::from_millis(100)).min(self.scenario.frame.duration);
        if now < warm_up {
            until = until.min(warm_up);
        }
        self.world.run_until(until);
        if now < warm_up && until == warm_up {
            let vms = 0..self.before.len();
            self.before = vms.map(|vm| self.counted(vm)).collect();
        }
    }

    /// Processes one event, without regard to the warm-up and the end.
    pub fn step_event(&mut self) {
        self.world.step();
    }

    /// Runs to the end and returns the results.
    pub fn run(&mut self) -> VcpuReport {
        while !self.is_over() {
            self.step();
        }
        self.report()
    }

    /// CPU time, received bytes and notifications of VM `vm` so far.
    fn counted(&self, vm: usize) -> (Nanos, u64, u64) {
        let vcpus = &self.world.machine().vms[vm].vcpus;
        let ran = vcpus.iter().map(|&v| self.world.ran(v).0).sum();
        let notified = vcpus.iter().map(|&v| self.world.notified(v)).sum();
        // VM 0 is the driver domain, which has no flows.
        let stream = vm.checked_sub(1).and_then(|place| self.flows[place].stream);
        let received = match stream.map(|flow| self.world.results(flow)) {
            Some(FlowResult::Received(bytes)) => bytes,
            _ => 0,
        };
        (Nanos(ran), received, notified)
    }

    /// Results so far.
    pub fn report(&self) -> VcpuReport {
        // Saturates: a report before the end of the warm-up covers no time.
        let span = self.world.now().since(self.scenario.frame.warm_up);
        let vms = self.world.machine().vms.iter().enumerate();
        VcpuReport {
            title: self.scenario.frame.title.clone(),
            scheduler: self.scenario.scheduler.name().to_owned(),
            seed: self.scenario.frame.seed,
            duration_s: self.world.now().as_secs_f64(),
            warm_up_s: self.scenario.frame.warm_up.as_secs_f64(),
            switches: self.world.switches(),
            counts: self.world.counts().into(),
            vms: vms
                .map(|(vm, it)| self.vm_report(vm, &it.name, span))
                .collect(),
        }
    }

    /// Round-trip times of all packets that the VM with the index `place` has answered, in the
    /// order of sending, and the number of packets sent to it.
    pub fn round_trips(&self, place: usize) -> (Vec<Nanos>, u64) {
        let flow = self.flows[place].ping;
        match flow.map(|flow| self.world.results(flow)) {
            Some(FlowResult::RoundTrips { times, sent }) => (times, sent),
            _ => (Vec::new(), 0),
        }
    }

    fn vm_report(&self, vm: usize, name: &str, span: Nanos) -> VcpuVmReport {
        let (ran, received, notified) = self.counted(vm);
        let before = self.before[vm];
        let flows = vm.checked_sub(1).map(|place| self.flows[place]);
        let flows = flows.unwrap_or_default();
        let results = |flow: Option<usize>| flow.map(|flow| self.world.results(flow));
        // A span of 0 gives 0 for nothing rather than NaN.
        let per_s = |n: f64| n / span.as_secs_f64().max(f64::MIN_POSITIVE);
        let trips = match results(flows.ping) {
            Some(FlowResult::RoundTrips { times, sent }) => Some(Latencies::new(times, sent)),
            _ => None,
        };
        let work_s = match results(flows.work) {
            Some(FlowResult::Work(took)) => took.map(Nanos::as_secs_f64),
            _ => None,
        };
        let files = match results(flows.write.and(self.disk)) {
            Some(FlowResult::Written(files)) => Some(files),
            _ => None,
        };
        let file = flows.write.zip(files).map(|(place, files)| files[place]);
        VcpuVmReport {
            name: name.to_owned(),
            cpus: per_s(ran.since(before.0).as_secs_f64()),
            notified_per_s: per_s((notified - before.2) as f64),
            round_trips: trips,
            received_bytes_per_s: flows.stream.map(|_| per_s((received - before.1) as f64)),
            work_s,
            file: file.map(|(bytes, took)| FileReport::new(bytes, took)),
        }
    }
}
