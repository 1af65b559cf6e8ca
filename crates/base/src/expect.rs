//! What a VM's requests are expected to be like: what a plan reckons with, and nothing else.
//!
//! A reservation of 500 IOPS is little for a disk when they follow each other and more than it can
//! do when they lie anywhere. Only the envelope (`iops`, `burst`) is read by a scheduler: a latency
//! bound holds for requests inside it. A VM may ask for more than is expected of it.

use tidegate_units::{Rate, Thousandths};

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
    /// Requests a second for which a latency bound holds, 1 to [`Rate::MAX`]; `None`: as many as
    /// are reserved.
    pub iops: Option<u64>,
    /// Requests that may come at once within that rate, 1 to [`Expects::BURST_MAX`]; `None`: 1.
    pub burst: Option<u32>,
}

/// Rate and burst of the requests for which a latency bound is promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Rate of the requests; a request counts as it does against a reservation.
    pub rate: Rate,
    /// Requests that may come at once, at least 1.
    pub burst: u32,
}

impl Expects {
    /// Nothing is said.
    pub const NOTHING: Expects = Expects {
        reads: None,
        sequential: None,
        size: None,
        iops: None,
        burst: None,
    };
    /// Largest burst of an envelope, in requests.
    pub const BURST_MAX: u32 = 65_536;

    /// True when nothing is said.
    pub const fn is_nothing(&self) -> bool {
        let requests = self.reads.is_none() && self.sequential.is_none() && self.size.is_none();
        requests && self.iops.is_none() && self.burst.is_none()
    }
}
