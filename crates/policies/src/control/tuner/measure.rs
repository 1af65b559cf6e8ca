//! Measurement of a VM in a window or a second, and the test for demand of at least its target.

use crate::control::quiet_time;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Bytes, and thousandths of an I/O, of requests or of device I/Os.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Amount {
    pub bytes: u64,
    pub ios: u64,
}

/// Unit in which a rate is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Bytes.
    Bytes,
    /// Thousandths of an I/O.
    MilliIos,
}

/// Rate that is to be held, with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldRate {
    pub per_s: u64,
    pub unit: Unit,
}

impl Amount {
    /// Returns the amount in one of its two units.
    pub(super) fn in_unit(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Bytes => self.bytes,
            Unit::MilliIos => self.ios,
        }
    }

    fn add(&mut self, other: Amount) {
        self.bytes += other.bytes;
        self.ios += other.ios;
    }
}

/// Window or second in which a VM is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub begun: Nanos,
    pub due: Nanos,
    /// Sum of the requests that arrived.
    arrived: Amount,
    /// Sum of the device I/Os that ended.
    pub moved: Amount,
    /// Time without a request inside, in the quiet times that have ended.
    quiet: Nanos,
}

impl Span {
    /// Starts a span at `now`.
    pub(super) fn new(now: Nanos, length: Nanos) -> Span {
        Span {
            begun: now,
            due: now + length,
            arrived: Amount::default(),
            moved: Amount::default(),
            quiet: Nanos::ZERO,
        }
    }

    /// Counts a request that arrived. `quiet` is the beginning of the quiet time that it ends, if
    /// any.
    pub(super) fn on_arrival(&mut self, now: Nanos, amount: Amount, quiet: Option<Nanos>) {
        self.arrived.add(amount);
        if let Some(since) = quiet {
            self.quiet += quiet_time(now, since, self.begun);
        }
    }

    /// Counts a device I/O that ended.
    pub(super) fn on_completion(&mut self, amount: Amount) {
        self.moved.add(amount);
    }

    /// Returns the time since the beginning.
    pub(super) fn length(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }

    /// Returns `true` if no request arrived in the span and none is inside.
    pub(super) fn is_empty(&self, view: &View, vm: VmId) -> bool {
        view.requests(vm) == 0 && self.arrived == Amount::default()
    }

    /// Returns `true` if the VM's demand was at least `rate`. A VM has less demand if it would stay
    /// below that rate even with every request answered at once. Its own rate in its quiet time,
    /// when nothing but itself delays it, shows that.
    pub(super) fn demands(&self, view: &View, vm: VmId, rate: HeldRate) -> bool {
        let quiet = self.quiet_so_far(view, vm);
        // Both sides in the unit times nanoseconds, which exceed 64 bits.
        u128::from(self.arrived.in_unit(rate.unit)) * u128::from(Nanos::SECOND.0)
            >= u128::from(rate.per_s) * u128::from(quiet.0)
    }

    /// Returns the time for which the VM had a request inside.
    pub(super) fn busy(&self, view: &View, vm: VmId) -> Nanos {
        self.length(view.now()) - self.quiet_so_far(view, vm)
    }

    fn quiet_so_far(&self, view: &View, vm: VmId) -> Nanos {
        match view.requests(vm) {
            0 => self.quiet + quiet_time(view.now(), view.quiet_since(vm), self.begun),
            _ => self.quiet,
        }
    }

    /// Returns the rate of device I/Os per second.
    pub(super) fn rate(&self, now: Nanos, unit: Unit) -> u64 {
        let length = self.length(now).0.max(1);
        let moved = u128::from(self.moved.in_unit(unit));
        let rate = moved * u128::from(Nanos::SECOND.0) / u128::from(length);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}
