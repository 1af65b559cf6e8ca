//! Construction of the host's machine: vCPUs, the tasks on them, and their users.

use super::{Guest, Process, Processors};
use crate::device::{DeviceSim, Times};
use crate::scenario::{HostCpu, Scenario, VmSpec};
use crate::seed::generator;
use rand::Rng;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_vcpu::flow::Flow;
use tidegate_vcpu::flow::cpu::Cpu;
use tidegate_vcpu::guest::GuestCpu;
use tidegate_vcpu::machine::{Machine, VcpuId, VmId};
use tidegate_vcpu::scenario::{CpuSpec, SPREAD};
use tidegate_vcpu::world::VcpuWorld;

/// Number of the random stream from which a VM's busy processes draw their start times. Streams of
/// workloads are numbered by workload and copy, and never reach it.
const BUSY_PROCESSES: u64 = u64::MAX;

impl Processors {
    /// Creates the pCPUs of a scenario at time zero, and routes its devices' requests through them.
    /// `None` if the scenario has no pCPUs.
    pub(crate) fn for_scenario(
        scenario: &Scenario,
        devices: &mut [DeviceSim],
    ) -> Option<Processors> {
        let cpu = scenario.cpu.as_ref()?;
        let mut builder = MachineBuilder::new(cpu, scenario.frame.seed);
        // The driver domain comes first: reports know it as VM 0.
        let driver = cpu.driver.map(|driver| {
            let vm = builder.add("driver", &driver.cpu);
            builder.add_busy_processes("driver", vm, &driver.cpu, (Nanos::ZERO, None));
            vm
        });
        let vms = scenario.vms.iter().enumerate();
        let guests = vms.map(|(index, spec)| builder.guest(index, spec, driver));
        let guests: Vec<Guest> = guests.collect();
        // Collected at once: the builder numbers tasks in the order of the devices.
        let processes = (devices.iter_mut()).map(|sim| {
            sim.route_steps_through_vcpus();
            builder.processes(sim, &guests)
        });
        let processes = processes.collect();
        let MachineBuilder {
            machine,
            guest_cpus,
            flows,
            ..
        } = builder;
        let scheduler = cpu.scheduler.build(&machine);
        let switch = cpu.machine.switch_cost;
        // `driven`: the world does not run ahead of what the devices ask for.
        let world = VcpuWorld::new(machine, guest_cpus, flows, scheduler, switch).driven();
        let steps = cpu.driver.unwrap_or_default();
        Some(Processors {
            world,
            scheduler: cpu.scheduler.name(),
            driver_steps: steps,
            guests,
            processes,
            notified: vec![Vec::new(); devices.len()],
            at_warm_up_end: Default::default(),
        })
    }
}

/// Machine under construction.
struct MachineBuilder {
    machine: Machine,
    /// Schedulers inside the guests, by vCPU.
    guest_cpus: Vec<GuestCpu>,
    flows: Vec<Box<dyn Flow>>,
    seed: u64,
}

impl MachineBuilder {
    fn new(cpu: &HostCpu, seed: u64) -> MachineBuilder {
        MachineBuilder {
            machine: Machine::new(cpu.machine.pcpus, cpu.machine.per_socket),
            guest_cpus: Vec::new(),
            flows: Vec::new(),
            seed,
        }
    }

    fn add(&mut self, name: &str, cpu: &CpuSpec) -> VmId {
        let vm = cpu.add_to(&mut self.machine, name);
        (self.guest_cpus).resize(self.machine.vcpus.len(), GuestCpu::default());
        vm
    }

    /// vCPU number `n` of a VM, modulo its number of vCPUs.
    fn vcpu(&self, vm: VmId, n: usize) -> VcpuId {
        let all = &self.machine.vms[vm.index()].vcpus;
        all[n % all.len()]
    }

    /// Adds processes that compute without end while their VM is there. Their starts are spread
    /// over [`SPREAD`] after its arrival.
    fn add_busy_processes(
        &mut self,
        name: &str,
        vm: VmId,
        cpu: &CpuSpec,
        (from, until): (Nanos, Option<Nanos>),
    ) {
        if cpu.busy_processes == 0 {
            return;
        }
        let mut random = generator(self.seed, name, BUSY_PROCESSES);
        let tasks = (0..cpu.busy_processes).map(|n| {
            let vcpu = self.vcpu(vm, n);
            let task = self.guest_cpus[vcpu.index()].add_task();
            (vcpu, task, from + Nanos(random.next_u64() % SPREAD.0))
        });
        let tasks = tasks.collect();
        let busy = Cpu::new(self.flows.len() as u32, tasks, Nanos::MAX);
        self.flows.push(Box::new(busy.until(until)));
    }

    fn guest(&mut self, index: usize, spec: &VmSpec, driver: Option<VmId>) -> Guest {
        let cpu = spec.cpu;
        let vm = (!spec.background).then(|| self.add(&spec.name, &cpu.cpu));
        if let Some(vm) = vm {
            let time = (spec.arrives, spec.leaves);
            self.add_busy_processes(&spec.name, vm, &cpu.cpu, time);
        }
        Guest {
            vm,
            cpu,
            driver: driver.map(|driver| self.vcpu(driver, index)),
            // A process of the host gets no notifications, so that the handle is never used.
            notified_vcpu: vm.map_or(VcpuId(0), |vm| self.vcpu(vm, 0)),
            notification_waits: Times::default(),
        }
    }

    /// Creates a process for each worker of a device's guests, on its VM's vCPUs in round robin.
    fn processes(&mut self, sim: &DeviceSim, guests: &[Guest]) -> Vec<Process> {
        let mut next_vcpu = vec![0; guests.len()];
        let workers = sim.vms_of_workers();
        let process = |guest: usize| {
            let next: &mut usize = &mut next_vcpu[guest];
            *next += 1;
            let vcpu = guests[guest].vm.map(|vm| self.vcpu(vm, *next - 1));
            Process {
                guest,
                on: vcpu.map(|vcpu| (vcpu, self.guest_cpus[vcpu.index()].add_task())),
                steps: VecDeque::new(),
            }
        };
        workers.map(process).collect()
    }
}
