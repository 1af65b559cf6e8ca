//! What a VM's requests are expected to be like: what a plan reckons with, and nothing else.
//!
//! A reservation of 500 IOPS is little for a disk when they follow each other and more than it can
//! do when they lie anywhere. Nothing that schedules reads this: a VM may ask for what it likes.

use tidegate_units::Thousandths;

/// All of a thousand.
pub const THOUSAND: u32 = Thousandths::WHOLE.0;

/// Expectations of a VM's requests. For a field that is `None`, `tidegate_capacity::fit` assumes a
/// value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Expects {
    /// Reads among the requests, in thousandths, 0 to 1000.
    pub reads: Option<u32>,
    /// Sequential ones among them, reads and writes alike, in thousandths, 0 to 1000.
    pub sequential: Option<u32>,
    /// Bytes of a request, at least 1.
    pub size: Option<u32>,
}

impl Expects {
    /// Nothing is said.
    pub const NOTHING: Expects = Expects {
        reads: None,
        sequential: None,
        size: None,
    };

    /// True when nothing is said.
    pub const fn is_nothing(&self) -> bool {
        self.reads.is_none() && self.sequential.is_none() && self.size.is_none()
    }
}
