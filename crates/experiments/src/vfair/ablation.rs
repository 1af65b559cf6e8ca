//! Ablations of a model, to show the cause of a claim's outcome.

use crate::frame::Variant;

/// Ablation of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ablation {
    /// Unchanged run.
    Nothing,
    /// Tidegate's additions instead of the paper's letter: credits come in [`PARTS`], unused credit
    /// is lent by its worth (the policy's default), and the disk's queue is only as deep as its
    /// throughput needs.
    Letter,
    /// No order in the flash disk: it serves its commands side by side.
    Order,
    /// No spare blocks on the disk that is saturated: all of it was written before, so that blocks
    /// are collected before they are written again.
    Spare,
    /// Hardly any time on the disk's interface.
    Interface,
    /// Write buffer for a few requests only.
    Buffer,
}

/// Number of parts in which a period's credits come.
pub(super) const PARTS: u64 = 10;

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Nothing;
    const ALL: &'static [Ablation] = &[
        Ablation::Letter,
        Ablation::Order,
        Ablation::Spare,
        Ablation::Interface,
        Ablation::Buffer,
    ];

    fn phrase(self) -> String {
        match self {
            Ablation::Nothing => "As it is",
            Ablation::Letter => "With what Tidegate adds",
            Ablation::Order => "With a flash disk that serves commands side by side",
            Ablation::Spare => "On a disk that has used up its spare blocks",
            Ablation::Interface => "With ten times the interface",
            Ablation::Buffer => "With a write buffer of 256 KiB",
        }
        .to_owned()
    }
}
