//! Expected workload of a VM: assumptions about its requests that plans are made with.
//!
//! A reservation of 500 IOPS is little for a hard disk if the requests are sequential, and more
//! than it can do if they are random. The expectation does not limit the VM: it may issue other
//! requests, or more of them. The scheduler reads only the envelope (`iops`, `burst`), because a
//! latency bound holds for requests inside it.

use tidegate_units::{Rate, Thousandths};

/// [`Thousandths::WHOLE`] as a bare number, for the shares of [`ExpectedWorkload`].
pub const THOUSAND: u32 = Thousandths::WHOLE.0;

/// Expected read share, access pattern, request size and envelope of a VM.
///
/// For a field that is `None`, `tidegate_capacity::fit` assumes a value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExpectedWorkload {
    /// Reads among all requests, in thousandths, 0 to 1000.
    pub reads: Option<u32>,
    /// Sequential requests among reads and writes, in thousandths, 0 to 1000.
    pub sequential: Option<u32>,
    /// Request size in bytes, at least 1.
    pub size: Option<u32>,
    /// Requests per second for which a latency bound holds, 1 to [`Rate::MAX`]; `None`: the target,
    /// else the reservation ([`Objective::envelope`](crate::objective::Objective::envelope)).
    pub iops: Option<u64>,
    /// Requests that may arrive at once within that rate, 1 to [`ExpectedWorkload::BURST_MAX`];
    /// `None`: 1.
    pub burst: Option<u32>,
}

/// Rate and burst of the requests for which a latency bound is promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Rate; requests are counted as for a reservation, with the rate's normalisation size.
    pub rate: Rate,
    /// Requests that may arrive at once, at least 1.
    pub burst: u32,
}

impl ExpectedWorkload {
    /// Expectation with no field set.
    pub const NOTHING: ExpectedWorkload = ExpectedWorkload {
        reads: None,
        sequential: None,
        size: None,
        iops: None,
        burst: None,
    };
    /// Largest burst of an envelope, in requests.
    pub const BURST_MAX: u32 = 65_536;

    /// Returns true if no field is set.
    pub const fn is_nothing(&self) -> bool {
        let requests = self.reads.is_none() && self.sequential.is_none() && self.size.is_none();
        requests && self.iops.is_none() && self.burst.is_none()
    }
}
