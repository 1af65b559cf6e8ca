//! Samples: what a VM or device did since its last sample.

use std::sync::Arc;

use crate::column::Values;
use crate::latency::Latency;

/// Kind of a series.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// VM, or a process of the host that is scheduled beside VMs.
    Vm,
    /// Device.
    Device,
}

impl Kind {
    /// Number on disk.
    pub(crate) fn id(self) -> u8 {
        self as u8
    }

    /// Inverse of [`Kind::id`].
    pub(crate) fn of_id(id: u8) -> Option<Kind> {
        [Kind::Vm, Kind::Device]
            .into_iter()
            .find(|kind| kind.id() == id)
    }
}

/// Series: a VM or a device by its name. A VM that is removed and added again goes on with its
/// series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// VM or device.
    pub kind: Kind,
    /// Name, at most [`NAME_MAX`](crate::budget::NAME_MAX) bytes.
    pub name: Arc<str>,
}

/// VMs that requests waited behind, with the time in microseconds.
pub type Behind = Vec<(Arc<str>, u64)>;

/// Work of a VM or device since its last sample.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// End of the interval in milliseconds since 1970, by the wall clock.
    pub end_ms: u64,
    /// Length of the interval in milliseconds.
    pub span_ms: u64,
    /// Counts of the interval and states at its end. Quantiles are computed from `latency`.
    pub values: Values,
    /// Latencies of requests that were answered in the interval.
    pub latency: Latency,
    /// VMs that requests waited behind, with the time in microseconds.
    pub behind: Behind,
}

impl Sample {
    /// Adds a later sample to this one.
    pub fn merge(&mut self, later: &Sample) {
        self.end_ms = self.end_ms.max(later.end_ms);
        self.span_ms = self.span_ms.saturating_add(later.span_ms);
        self.values.merge(&later.values);
        self.latency.merge(&later.latency);
        for (vm, waited) in &later.behind {
            add_behind(&mut self.behind, vm, *waited);
        }
    }
}

/// Adds the time waited behind a VM to a list.
pub(crate) fn add_behind<N: PartialEq + Clone>(all: &mut Vec<(N, u64)>, vm: &N, waited: u64) {
    match all.iter_mut().find(|(known, _)| known == vm) {
        Some((_, sum)) => *sum = sum.saturating_add(waited),
        None => all.push((vm.clone(), waited)),
    }
}

/// Keeps the `max` VMs that were waited for the longest, the longest first.
pub(crate) fn keep_largest<N: Ord>(all: &mut Vec<(N, u64)>, max: usize) {
    // Names break ties, so that the order is the same everywhere.
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(max);
}
