//! Credits that each VM is due by its objective: equations 1 and 4 of Flubber (section 3.2.2),
//! computed exactly.
//!
//! B_i is what a VM's reservation promises, in guest requests a second, c_i = B_i / min B, and
//! a_i = round(beta * c_i), at least 1. Where beta * sum(c) would reach `max_interval`,
//! a_i = round(max_interval * c_i / sum(c)), at least 1 again: so the grants of n VMs add up
//! to at most `max_interval` + n.

use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;
use tidegate_core::part::{ParamInfo, ParamKind, Params};

/// Longest interval in seconds where the device's bandwidth determines it.
const LONGEST_INTERVAL_S: u64 = 2;
/// Requests in the longest interval on an unknown device: 10,000 IOPS for two seconds.
const MAX_INTERVAL_UNKNOWN_DEVICE: u64 = 20_000;

/// Terms by which credits are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Credits an interval for the VM with the smallest reservation: the interval factor, 1 to
    /// 65,536.
    pub beta: u32,
    /// Requests in the longest interval, up to [`Terms::CREDITS_MAX`]; 0: as many of `request_size`
    /// as the device transfers in sequence in two seconds, or 20,000 where that is not known.
    pub max_interval: u32,
    /// Reservation assumed for a VM without one, in IOPS.
    pub default_iops: u64,
    /// Bytes of a request by which a reservation in bytes a second is converted, 1 to 2^24.
    pub request_size: u32,
}

pub(crate) const BETA: ParamInfo = ParamInfo {
    name: "beta",
    kind: ParamKind::Count,
    default: 32,
    min: 1,
    max: 65_536,
    help: "credits per interval of the VM with the smallest reservation; others in proportion",
};

pub(crate) const MAX_INTERVAL: ParamInfo = ParamInfo {
    name: "max_interval",
    kind: ParamKind::Count,
    default: 0,
    min: 0,
    max: Terms::CREDITS_MAX as u64,
    help: "maximum requests per interval; 0: what the device transfers in 2 s, or 20,000",
};

pub(crate) const DEFAULT_IOPS: ParamInfo = ParamInfo {
    name: "default_iops",
    kind: ParamKind::Count,
    default: 100,
    min: 1,
    max: 1 << 30,
    help: "reservation assumed for a VM without one, in requests a second",
};

pub(crate) const REQUEST_SIZE: ParamInfo = ParamInfo {
    name: "request_size",
    kind: ParamKind::Bytes,
    default: 16 << 10,
    min: 512,
    max: 16 << 20,
    help: "bytes per credit where the reservation is in bytes a second, or there is none",
};

pub(crate) const LITERAL: ParamInfo = ParamInfo {
    name: "literal",
    kind: ParamKind::Flag,
    default: 0,
    min: 0,
    max: 1,
    help: "follows the paper exactly, even where that performs worse",
};

impl Terms {
    /// Reads the terms from the four parameters above.
    pub(crate) fn from_params(params: &Params) -> Terms {
        Terms {
            beta: params.get("beta") as u32,
            max_interval: params.get("max_interval") as u32,
            default_iops: params.get("default_iops"),
            request_size: params.get("request_size") as u32,
        }
    }

    /// Upper bound of the credits in an interval.
    pub const CREDITS_MAX: u32 = 1 << 30;

    /// Returns B_i in bytes a second, at `request_size` bytes a request, so that reservations in
    /// IOPS and in bytes are whole numbers below 2^75. The larger of the two counts.
    pub fn demand(&self, objective: &Objective) -> u128 {
        let reservation = &objective.reservation;
        let size = self.request_size as u128;
        let ops = reservation.ops.map_or(0, |ops| ops.per_s as u128 * size);
        let bytes = reservation.bytes_per_s.map_or(0, u128::from);
        match ops.max(bytes) {
            // Without a reservation a VM would have no credits at all.
            0 => self.default_iops as u128 * size,
            demand => demand,
        }
    }

    /// Returns the cost in credits of `requests` requests of `bytes` bytes in all: one each, or one
    /// per unit of size if that is more. The unit is `request_size` for a reservation in bytes a
    /// second or none at all, and the normalisation size for one in IOPS.
    pub fn cost(&self, objective: &Objective, requests: u32, bytes: u32) -> u32 {
        let reservation = &objective.reservation;
        let ops = reservation.ops.map_or(0, |ops| ops.per_s as u128);
        let by_bytes = reservation.bytes_per_s.map_or(0, u128::from);
        // The same rule as in `demand`: the larger of the two rates counts.
        let size = if ops * self.request_size as u128 >= by_bytes {
            reservation
                .ops
                .map_or(Some(self.request_size), |ops| ops.norm)
        } else {
            Some(self.request_size)
        };
        requests.max(size.map_or(0, |size| bytes.div_ceil(size)))
    }

    /// Returns `max_interval`, resolved for a device if it is 0; at least 1.
    pub fn max_interval(&self, device: &DeviceSpec) -> u32 {
        let most = match (self.max_interval, device.bytes_per_s) {
            // Neither the parameter nor the device states a rate.
            (0, 0) => MAX_INTERVAL_UNKNOWN_DEVICE,
            (0, bytes) => bytes.saturating_mul(LONGEST_INTERVAL_S) / self.request_size as u64,
            (given, _) => given as u64,
        };
        most.clamp(1, Terms::CREDITS_MAX as u64) as u32
    }
}

/// Credits that all VMs are due, by slot.
#[derive(Debug)]
pub struct Proportions {
    terms: Terms,
    max_interval: u32,
    /// B_i by slot; 0: no VM.
    demands: Vec<u128>,
    sum: u128,
    by_demand: IndexedHeap<u128>,
    period: Nanos,
}

impl Proportions {
    /// Memory of one VM in bytes.
    pub const BYTES_PER_VM: usize = size_of::<u128>() + IndexedHeap::<u128>::BYTES_PER_ID;

    /// Creates proportions without VMs.
    pub fn new(terms: Terms) -> Proportions {
        Proportions {
            terms,
            max_interval: terms.max_interval.max(1),
            demands: Vec::new(),
            sum: 0,
            by_demand: IndexedHeap::with_capacity(0),
            period: Nanos::MAX,
        }
    }

    /// Returns the terms by which credits are computed.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Adds a VM or takes over its changed objective. O(log n).
    pub fn set(&mut self, slot: usize, objective: &Objective, device: &DeviceSpec) {
        self.max_interval = self.terms.max_interval(device);
        self.replace(slot, self.terms.demand(objective));
        self.by_demand.set(slot, self.demands[slot]);
        self.period = self.compute_period();
    }

    /// Removes a VM. O(log n).
    pub fn remove(&mut self, slot: usize) {
        self.replace(slot, 0);
        self.by_demand.remove(slot);
        self.period = self.compute_period();
    }

    fn replace(&mut self, slot: usize, demand: u128) {
        if self.demands.len() <= slot {
            self.demands.resize(slot + 1, 0);
        }
        let old = core::mem::replace(&mut self.demands[slot], demand);
        // The old demand is part of the sum, so this cannot go below zero.
        self.sum = self.sum - old + demand;
    }

    /// Returns B_i of a slot, see [`Terms::demand`]; 0 without a VM.
    pub fn demand(&self, slot: usize) -> u128 {
        self.demands.get(slot).copied().unwrap_or(0)
    }

    /// Returns the smallest B_i; `None` without VMs.
    pub fn smallest_demand(&self) -> Option<u128> {
        self.by_demand.peek().map(|(demand, _)| demand)
    }

    /// Returns c_i of equation 1: at least 1 for a VM, 0 without one.
    pub fn proportion(&self, slot: usize) -> f64 {
        self.demand(slot) as f64 / self.smallest_demand().unwrap_or(1) as f64
    }

    /// Returns the sum of all c_i.
    pub fn proportion_sum(&self) -> f64 {
        self.sum as f64 / self.smallest_demand().unwrap_or(1) as f64
    }

    /// Returns the number of VMs.
    pub fn count(&self) -> usize {
        self.by_demand.len()
    }

    /// Returns `max_interval` on this device.
    pub fn max_interval(&self) -> u32 {
        self.max_interval
    }

    /// Returns a_i, 1 to [`Terms::CREDITS_MAX`].
    pub fn grant(&self, slot: usize) -> u32 {
        let (demand, Some(least)) = (self.demand(slot), self.smallest_demand()) else {
            return 1;
        };
        let (beta, most) = (self.terms.beta as u128, self.max_interval as u128);
        // Demands are below 2^75, sums of 2^24 of them below 2^99: nothing here overflows.
        // Equation 4 in whole numbers: beta credits for the smallest, or `max_interval` for all
        // together.
        let (credits, of) = if beta * self.sum < most * least {
            (beta * demand, least)
        } else {
            (most * demand, self.sum)
        };
        // To the nearest, halves up.
        let rounded = (2 * credits + of) / (2 * of);
        rounded.clamp(1, Terms::CREDITS_MAX as u128) as u32
    }

    /// Returns beta / min B: the time in which every VM could have had the credits of its
    /// reservation.
    pub fn period(&self) -> Nanos {
        self.period
    }

    fn compute_period(&self) -> Nanos {
        let (Some(least), Terms { request_size, .. }) = (self.smallest_demand(), self.terms) else {
            // Without VMs no interval ends.
            return Nanos::MAX;
        };
        let bytes = self.terms.beta as u128 * request_size as u128;
        let nanos = (bytes * Nanos::SECOND.0 as u128).div_ceil(least);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
