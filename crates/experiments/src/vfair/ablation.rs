//! Ablations of a model, to show the cause of a claim's outcome.

use crate::frame::Variant;

/// Ablation of a run, or a reading that was replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ablation {
    /// Unchanged run.
    Nothing,
    /// Tidegate's additions to the paper's letter: credits come in [`PARTS`] on the hard disk as
    /// well, unused credit is lent by its worth (the policy's default), and the disk's queue is
    /// only as deep as its throughput needs.
    Letter,
    /// One scale of the feedback for all VMs.
    Common,
    /// Credits of a period come at once on the flash disk; in [`PARTS`] on the hard disk.
    Slices,
    /// Latency at the end of a period held to the target, on the flash disk.
    End,
    /// Flash disk of two stages, whose interface serves commands in order.
    Order,
    /// Hard disk that gives up a stream at once and chooses by position alone.
    Drive,
    /// Images side by side on the hard disk, as large as on the flash disk.
    Images,
    /// Four requests of VM1 outstanding instead of sixteen, in the less backlogged case.
    Four,
    /// No spare blocks on the disk that is saturated: all of it was written before, so that blocks
    /// are collected before they are written again.
    Spare,
    /// Hardly any time on the disk's interface.
    Interface,
    /// Write buffer for a few requests only.
    Buffer,
    /// Time for turning between reads and writes on the interface of the disk that is saturated.
    Turnaround,
}

/// Number of parts in which a period's credits come.
pub(super) const PARTS: u64 = 10;

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Nothing;
    const ALL: &'static [Ablation] = &[
        Ablation::Letter,
        Ablation::Common,
        Ablation::Slices,
        Ablation::End,
        Ablation::Order,
        Ablation::Drive,
        Ablation::Images,
        Ablation::Four,
        Ablation::Spare,
        Ablation::Interface,
        Ablation::Buffer,
        Ablation::Turnaround,
    ];

    fn phrase(self) -> String {
        match self {
            Ablation::Nothing => "As it is",
            Ablation::Letter => "With what Tidegate adds",
            Ablation::Common => "With one scale for all VMs",
            Ablation::Slices => {
                "With credits at once on the flash disk and in ten parts on the hard disk"
            }
            Ablation::End => "With the latency at the end of periods",
            Ablation::Order => "With a flash disk of two stages that serves in order",
            Ablation::Drive => "With a hard disk that leaves streams at once",
            Ablation::Images => "With images of 100 GB side by side on the hard disk",
            Ablation::Four => "With four requests of VM1 outstanding",
            Ablation::Spare => "On a disk that has used up its spare blocks",
            Ablation::Interface => "With ten times the interface",
            Ablation::Buffer => "With a write buffer of 256 KiB",
            Ablation::Turnaround => "With 100 us to turn between reads and writes",
        }
        .to_owned()
    }
}
