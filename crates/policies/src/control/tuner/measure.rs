//! What a VM did in a window or a second, and whether it asked for what it is to have.

use crate::control::quiet_time;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_core::facts::Facts;

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

/// A span of time, from its begin on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub begun: Nanos,
    pub due: Nanos,
    /// Requests that came.
    asked: Amount,
    /// Device I/Os that ended.
    pub moved: Amount,
    /// Time in which the VM had no request inside, as far as it has ended.
    quiet: Nanos,
}

impl Span {
    /// From now on, for so long.
    pub(super) fn new(now: Nanos, length: Nanos) -> Span {
        Span {
            begun: now,
            due: now + length,
            asked: Amount::default(),
            moved: Amount::default(),
            quiet: Nanos::ZERO,
        }
    }

    /// A request came; `quiet`: it ends a time since then in which its VM had none inside.
    pub(super) fn asked(&mut self, now: Nanos, amount: Amount, quiet: Option<Nanos>) {
        self.asked.add(amount);
        if let Some(since) = quiet {
            self.quiet += quiet_time(now, since, self.begun);
        }
    }

    /// A device I/O ended.
    pub(super) fn ended(&mut self, amount: Amount) {
        self.moved.add(amount);
    }

    /// How long it took, up to now.
    pub(super) fn length(&self, now: Nanos) -> Nanos {
        now.since(self.begun)
    }

    /// Nothing came, and nothing is inside.
    pub(super) fn is_empty(&self, facts: &Facts, vm: VmId) -> bool {
        facts.requests(vm) == 0 && self.asked == Amount::default()
    }

    /// Whether the VM asked for so much a second, of what `of` picks. It did not where, had each of
    /// its requests been answered at once, it would still have come to less: that is told by how
    /// much it asked for in the time in which it had nothing inside, when only its own thinking
    /// held it.
    pub(super) fn asks_for(
        &self,
        facts: &Facts,
        vm: VmId,
        per_s: u64,
        of: fn(&Amount) -> u64,
    ) -> bool {
        let quiet = self.quiet_so_far(facts, vm);
        u128::from(of(&self.asked)) * 1_000_000_000 >= u128::from(per_s) * u128::from(quiet.0)
    }

    /// How long the VM had something inside.
    pub(super) fn busy(&self, facts: &Facts, vm: VmId) -> Nanos {
        self.length(facts.now()) - self.quiet_so_far(facts, vm)
    }

    fn quiet_so_far(&self, facts: &Facts, vm: VmId) -> Nanos {
        match facts.requests(vm) {
            0 => self.quiet + quiet_time(facts.now(), facts.quiet_since(vm), self.begun),
            _ => self.quiet,
        }
    }

    /// What moved a second, of what `of` picks.
    pub(super) fn rate(&self, now: Nanos, of: fn(&Amount) -> u64) -> u64 {
        let length = self.length(now).0.max(1);
        let rate = u128::from(of(&self.moved)) * 1_000_000_000 / u128::from(length);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}
