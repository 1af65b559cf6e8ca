//! Ablations of a model, to show the cause of a claim's outcome.

use crate::frame::Variant;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;

/// Ablation of a run, or a reading that was replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ablation {
    /// Unchanged run.
    Unchanged,
    /// Tidegate's additions to the paper's letter: credits come in [`PARTS`] on the hard disk as
    /// well, unused credit is lent by its worth (the policy's default), and the disk's queue is
    /// only as deep as its throughput needs.
    WithAdditions,
    /// One scale of the latency feedback for all VMs instead of one for each.
    CommonFeedback,
    /// Credits of a period come at once on the flash disk, and in [`PARTS`] on the hard disk: the
    /// other way round than in the unchanged run.
    SwappedCreditParts,
    /// Latency at the end of a period is compared with the target instead of the whole period's, on
    /// the flash disk.
    LatencyAtPeriodEnd,
    /// Flash disk of two stages, whose interface serves commands in order.
    InOrderFlash,
    /// Hard disk that chooses the next I/O by position alone and does not stay with a stream.
    PositionOnlyDisk,
    /// Images of the flash disk's size, side by side on the hard disk, instead of equal parts of
    /// the disk.
    AdjacentImages,
    /// Four requests of VM1 outstanding instead of sixteen, in the less backlogged case.
    FourOutstanding,
    /// No spare blocks on the disk that is saturated: all of it was written before, so that blocks
    /// are collected before they are written again.
    NoSpareBlocks,
    /// Interface so fast that it never holds requests back.
    FastInterface,
    /// Write buffer of 256 KiB, for a few requests only.
    SmallWriteBuffer,
    /// 100 us for turning between reads and writes on the interface of the saturated disk.
    InterfaceTurnaround,
    /// Hosts that hear nothing of each other hold no latency: the system-wide latency is of all
    /// hosts (section 4.3), which a host by itself does not know.
    UnheardLatency,
    /// CFQ that has all requests of a reader with the disk at a time in figure 1, not eight.
    DeepSlices,
    /// CFQ on the hard disk that does not wait for a VM's next request.
    NoIdling,
    /// Two pCPUs instead of four in figure 1(c), where vCPUs share them.
    TwoProcessors,
    /// An eighth of the processor time of a request in the driver domain and in the VM of the
    /// asynchronous reader of figure 1(c), whose eight requests then take what one takes.
    BatchedSteps,
    /// Single-server flash disk of the other figures as the disk that is saturated, with flash that
    /// programs in 500 us, and 100 us for turning between reads and writes.
    SingleServer,
    /// Eight postmark processes instead of one.
    EightProcesses,
    /// PS(mClock) that counts requests, whatever their size, instead of units of 16 KiB.
    CountedRequests,
}

/// Latency target in ns that never binds three hosts: their 96 requests of 122 KiB take 33 ms.
pub(super) const NO_TARGET: u64 = 50_000_000;

/// Number of parts in which a period's credits come.
pub(super) const PARTS: u64 = 10;

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Unchanged;
    const ALL: &'static [Ablation] = &[
        Ablation::WithAdditions,
        Ablation::CommonFeedback,
        Ablation::SwappedCreditParts,
        Ablation::LatencyAtPeriodEnd,
        Ablation::InOrderFlash,
        Ablation::PositionOnlyDisk,
        Ablation::AdjacentImages,
        Ablation::FourOutstanding,
        Ablation::NoSpareBlocks,
        Ablation::FastInterface,
        Ablation::SmallWriteBuffer,
        Ablation::InterfaceTurnaround,
        Ablation::DeepSlices,
        Ablation::NoIdling,
        Ablation::TwoProcessors,
        Ablation::BatchedSteps,
        Ablation::SingleServer,
        Ablation::EightProcesses,
        Ablation::UnheardLatency,
        Ablation::CountedRequests,
    ];

    fn phrase(self) -> String {
        match self {
            Ablation::Unchanged => "As it is",
            Ablation::WithAdditions => "With what Tidegate adds",
            Ablation::CommonFeedback => "With one scale for all VMs",
            Ablation::SwappedCreditParts => {
                "With credits at once on the flash disk and in ten parts on the hard disk"
            }
            Ablation::LatencyAtPeriodEnd => "With the latency at the end of periods",
            Ablation::InOrderFlash => "With a flash disk of two stages that serves in order",
            Ablation::PositionOnlyDisk => "With a hard disk that leaves streams at once",
            Ablation::AdjacentImages => "With images of 100 GB side by side on the hard disk",
            Ablation::FourOutstanding => "With four requests of VM1 outstanding",
            Ablation::NoSpareBlocks => "On a disk that has used up its spare blocks",
            Ablation::FastInterface => "With ten times the interface",
            Ablation::SmallWriteBuffer => "With a write buffer of 256 KiB",
            Ablation::InterfaceTurnaround => "With 100 us to turn between reads and writes",
            Ablation::UnheardLatency => "Where hosts that hear nothing hold no latency",
            Ablation::DeepSlices => "With a CFQ that has 32 requests at the disk at a time",
            Ablation::NoIdling => "With a CFQ that does not wait for a VM's next request",
            Ablation::TwoProcessors => "With two pCPUs",
            Ablation::BatchedSteps => {
                "If the driver domain and the asynchronous reader took an eighth of the processor \
                 time"
            }
            Ablation::SingleServer => {
                "With a single server that programs flash in 500 us and takes 100 us to turn \
                 between reads and writes"
            }
            Ablation::EightProcesses => "With eight postmark processes",
            Ablation::CountedRequests => "With a PS(mClock) that counts requests",
        }
        .to_owned()
    }
}

/// Parts of which [`Ablation::BatchedSteps`] leaves one of a request's processor time: requests
/// that the asynchronous reader has outstanding.
const BATCH: u64 = 8;

/// Divides the processor time of a request by [`BATCH`] in the driver domain and in the last VM,
/// the asynchronous reader's.
pub(super) fn batch_steps(scenario: &mut Scenario) {
    let mut steps: Vec<&mut Nanos> = Vec::new();
    let host = scenario.cpu.as_mut();
    if let Some(driver) = host.and_then(|host| host.driver.as_mut()) {
        steps.extend([&mut driver.submit, &mut driver.complete]);
    }
    if let Some(vm) = scenario.vms.last_mut() {
        let cpu = &mut vm.cpu;
        steps.extend([&mut cpu.issue, &mut cpu.interrupt, &mut cpu.complete]);
    }
    for step in steps {
        step.0 /= BATCH;
    }
}

/// Sets the number of pCPUs of the host.
pub(super) fn set_pcpus(scenario: &mut Scenario, pcpus: usize) {
    if let Some(host) = &mut scenario.cpu {
        host.machine.pcpus = pcpus;
    }
}

/// Lets the first VM run `processes` copies of its workload.
pub(super) fn set_processes(scenario: &mut Scenario, processes: u32) {
    let first = scenario.vms.first_mut().into_iter();
    for workload in first.flat_map(|vm| &mut vm.workloads) {
        workload.numjobs = processes;
    }
}
