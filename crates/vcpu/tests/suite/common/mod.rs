//! Small machines for tests.

use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{
    CpuSpec, DiskSpec, Driver, Host, PingSpec, Scenario, SchedulerSpec, Simulation, StreamSpec,
    VmSpec,
};
use tidegate_vcpu::schedulers::credit2::{Params as Credit2Params, RunQueues};
use tidegate_vcpu::schedulers::io_turns::Params as IoTurnsParams;
use tidegate_vcpu::schedulers::isacs::Params as IsacsParams;
use tidegate_vcpu::schedulers::{SCHEDULERS, named};
use tidegate_vcpu::spec::SchedulerInfo;

/// Credit2 with one run-queue per pCPU.
pub(crate) fn credit2() -> SchedulerSpec {
    let params = Credit2Params {
        run_queues: RunQueues::Core,
        ..Credit2Params::default()
    };
    params.spec()
}

/// Credit2 with one run-queue for all pCPUs.
pub(crate) fn credit2_shared() -> SchedulerSpec {
    Credit2Params::default().spec()
}

/// ISACS with one run-queue per pCPU.
pub(crate) fn isacs() -> SchedulerSpec {
    isacs_params().spec()
}

/// Parameters of ISACS with one run-queue per pCPU.
pub(crate) fn isacs_params() -> IsacsParams {
    IsacsParams {
        credit2: Credit2Params {
            run_queues: RunQueues::Core,
            ..Credit2Params::default()
        },
        ..IsacsParams::default()
    }
}

/// Credit2 with turns for I/O and one run-queue per pCPU.
pub(crate) fn io_turns() -> SchedulerSpec {
    let usual = IoTurnsParams::default();
    let params = IoTurnsParams {
        credit2: Credit2Params {
            run_queues: RunQueues::Core,
            ..usual.credit2
        },
        ..usual
    };
    params.spec()
}

/// EEVDF with default parameters.
pub(crate) fn eevdf() -> SchedulerSpec {
    named("eevdf").expect("there is one")
}

/// Credit with default parameters.
pub(crate) fn credit() -> SchedulerSpec {
    named("credit").expect("there is one")
}

/// All schedulers of the registry, with one run-queue per pCPU where they have run-queues; and
/// Credit2 with one run-queue for all pCPUs.
pub(crate) fn every_scheduler() -> Vec<SchedulerSpec> {
    let own_queue = |info: &&'static SchedulerInfo| {
        let spec = SchedulerSpec::new(info);
        if info.params().any(|param| param.name == "run_queues") {
            spec.with("run_queues", RunQueues::Core as u64)
        } else {
            spec
        }
    };
    let all = SCHEDULERS.iter().map(own_queue);
    all.chain([credit2_shared()]).collect()
}

/// VM of one vCPU that may run on `pinned`, without workloads.
pub(crate) fn vm(name: &str, pinned: CpuSet) -> VmSpec {
    VmSpec {
        name: name.to_owned(),
        cpu: CpuSpec {
            pinned,
            ..CpuSpec::default()
        },
        work: None,
        ping: None,
        stream: None,
        write: None,
    }
}

/// VM of one vCPU that may run on `pinned` and computes without end.
pub(crate) fn hog(name: &str, pinned: CpuSet) -> VmSpec {
    let mut spec = vm(name, pinned);
    spec.cpu.busy_processes = 1;
    spec
}

/// Adds round trips to `spec`, sent by the VM with the index `from`.
pub(crate) fn answering(spec: VmSpec, from: usize, period_us: u64, count: u64) -> VmSpec {
    let us = Nanos::from_micros;
    VmSpec {
        ping: Some(PingSpec {
            from,
            period: us(period_us),
            jitter: us(period_us / 2),
            count,
            client: us(5),
            driver: us(5),
            guest: us(30),
            process: None,
            burst: 1,
            vcpu: 0,
        }),
        ..spec
    }
}

/// Adds a stream to `spec`, sent by the VM with the index `from`.
pub(crate) fn receiving(spec: VmSpec, from: usize) -> VmSpec {
    let us = Nanos::from_micros;
    VmSpec {
        stream: Some(StreamSpec {
            from,
            chunk: 128 << 10,
            window: 2 << 20,
            client: us(20),
            driver: us(20),
            interrupt: us(15),
            receive: us(30),
            acknowledge: us(2),
            vcpu: 0,
        }),
        ..spec
    }
}

/// Scenario of one second, with pCPU 0 reserved for the driver domain.
pub(crate) fn scenario(scheduler: SchedulerSpec, pcpus: usize, vms: Vec<VmSpec>) -> Scenario {
    Scenario {
        frame: Frame::lasting(Nanos::SECOND),
        host: Host {
            pcpus,
            per_socket: pcpus,
            switch_cost: Nanos::ZERO,
        },
        scheduler,
        driver: Driver {
            vcpus: 1,
            pinned: CpuSet::range(0, 0),
        },
        disk: DiskSpec {
            io: 512 << 10,
            service: Nanos::from_millis(1),
        },
        vms,
    }
}

/// Replaces the seed of `scenario`.
pub(crate) fn seeded(seed: u64, mut scenario: Scenario) -> Scenario {
    scenario.frame.seed = seed;
    scenario
}

/// Runs a scenario; returns the CPU time of each VM, in pCPUs.
pub(crate) fn cpus(scenario: Scenario) -> Vec<f64> {
    let report = Simulation::new(scenario).run();
    // The first VM of a report is the driver domain.
    report.vms.iter().skip(1).map(|vm| vm.cpus).collect()
}
