//! The parts of a model that a run leaves out, to show what a claim hangs on.

use crate::frame::Variant;

/// What a run leaves out, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Without {
    /// Nothing.
    Nothing,
    /// The paper's letter: credits come in [`PARTS`], and what a VM leaves is lent by its worth, as
    /// the policy has it unless told otherwise; and the disk has only as many I/Os at a time as its
    /// throughput needs.
    Letter,
    /// An order in the flash disk: it serves all that it has side by side.
    Order,
    /// Spare blocks of the disk that is saturated: it has written all over itself, so that blocks
    /// are collected before they are written again.
    Spare,
    /// Its interface: that takes hardly any time.
    Interface,
    /// Its write buffer: that is for a few requests.
    Buffer,
}

/// A period's credits come in so many parts.
pub(super) const PARTS: u64 = 10;

impl Variant for Without {
    const NOTHING: Without = Without::Nothing;
    const ALL: &'static [Without] = &[
        Without::Letter,
        Without::Order,
        Without::Spare,
        Without::Interface,
        Without::Buffer,
    ];

    fn phrase(self) -> String {
        match self {
            Without::Nothing => "As it is",
            Without::Letter => "With what Tidegate adds",
            Without::Order => "With a flash disk that serves commands side by side",
            Without::Spare => "On a disk that has used up its spare blocks",
            Without::Interface => "With ten times the interface",
            Without::Buffer => "With a write buffer of 256 KiB",
        }
        .to_owned()
    }
}
