//! Ablations of a model, to show the cause of a claim's outcome.

use crate::frame::Variant;

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
            Ablation::CountedRequests => "With a PS(mClock) that counts requests",
        }
        .to_owned()
    }
}
