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

impl Amount {
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
    asked: Amount,
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
            asked: Amount::default(),
            moved: Amount::default(),
            quiet: Nanos::ZERO,
        }
    }

    /// Counts a request that arrived. `quiet` is the beginning of the quiet time that it ends, if
    /// any.
    pub(super) fn asked(&mut self, now: Nanos, amount: Amount, quiet: Option<Nanos>) {
        self.asked.add(amount);
        if let Some(since) = quiet {
            self.quiet += quiet_time(now, since, self.begun);
        }
    }

    /// Counts a device I/O that ended.
    pub(super) fn ended(&mut self, amount: Amount) {
        self.moved.add(amount);
    }

    /// Returns the time since the beginning.
    pub(super) fn length(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }

    /// Returns `true` if no request arrived in the span and none is inside.
    pub(super) fn is_empty(&self, view: &View, vm: VmId) -> bool {
        view.requests(vm) == 0 && self.asked == Amount::default()
    }

    /// Returns `true` if the VM's demand was at least `per_s` a second, in the unit that `of`
    /// selects. A VM has less demand if it would stay below that rate even with every request
    /// answered at once. Its own rate in its quiet time, when nothing but itself delays it, shows
    /// that.
    pub(super) fn asks_for(
        &self,
        view: &View,
        vm: VmId,
        per_s: u64,
        of: fn(&Amount) -> u64,
    ) -> bool {
        let quiet = self.quiet_so_far(view, vm);
        u128::from(of(&self.asked)) * 1_000_000_000 >= u128::from(per_s) * u128::from(quiet.0)
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

    /// Returns the rate of device I/Os a second, in the unit that `of` selects.
    pub(super) fn rate(&self, now: Nanos, of: fn(&Amount) -> u64) -> u64 {
        let length = self.length(now).0.max(1);
        let rate = u128::from(of(&self.moved)) * 1_000_000_000 / u128::from(length);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}
