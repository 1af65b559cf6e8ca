//! Fault rule: the requests that it applies to, when it applies, and its effect.

use tidegate_core::request::{IoError, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_units::Millionths;

/// Sector size in bytes, the unit that reaches a disk in full or not at all: torn writes end on a
/// multiple of it.
pub const SECTOR: u64 = 512;

/// Set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ops(u8);

impl Ops {
    /// Empty set.
    pub const NONE: Ops = Ops(0);
    /// Set of all operations.
    pub const ANY: Ops = Ops(0b1_1111);
    /// Set of the operations of which a part can reach the medium.
    pub const CHANGES: Ops = Ops::only(Op::Write)
        .union(Ops::only(Op::Discard))
        .union(Ops::only(Op::WriteZeroes));

    /// Returns the set of one operation.
    pub const fn only(op: Op) -> Ops {
        Ops(1 << op as u8)
    }

    /// Returns the union of both sets.
    pub const fn union(self, other: Ops) -> Ops {
        Ops(self.0 | other.0)
    }

    /// Returns true if the set has this operation.
    pub const fn contains(self, op: Op) -> bool {
        self.0 & Ops::only(op).0 != 0
    }

    /// Returns true if the set is a subset of `other`.
    pub const fn within(self, other: Ops) -> bool {
        self.0 & !other.0 == 0
    }

    /// Iterates over the operations of the set.
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |&op| self.contains(op))
    }
}

/// Effect on a request that a rule strikes, besides its delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The request is served normally.
    None,
    /// The request fails without being served.
    Error(IoError),
    /// Only the first bytes of the request reach the medium.
    Torn {
        /// Number of bytes from the request's first one. The end is rounded down to a whole sector.
        keep: u64,
        /// Result that the guest is told; a disk that lies tells success.
        answer: Outcome,
    },
}

/// Fault rule. A request is struck if all conditions hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Operations that the rule applies to.
    pub on: Ops,
    /// First byte of the disk's range that the rule applies to.
    pub from: u64,
    /// End of the range; `u64::MAX` means the disk's end.
    pub to: u64,
    /// Strikes every n-th of the matching requests; at least 1.
    pub every: u64,
    /// Probability of striking, in millionths.
    pub probability_ppm: u32,
    /// Seed of the draws: the same seed gives the same draws.
    pub seed: u64,
    /// Time from setting the rule, or from the start of the daemon, until it is armed.
    pub after: Nanos,
    /// Time for which the rule is armed; `None` for ever.
    pub lasts: Option<Nanos>,
    /// Maximum number of requests that the rule strikes; `None` without limit.
    pub count: Option<u64>,
    /// Delay of a struck request.
    pub stall: Nanos,
    /// Effect on a struck request besides the delay.
    pub effect: Effect,
}

/// Probability of one, in millionths.
pub(crate) const CERTAIN_PPM: u32 = Millionths::WHOLE.0;

/// Phase in the life of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// `after` has not passed yet.
    Waiting,
    /// The rule is in force.
    Armed,
    /// The rule's time is over, or it has struck `count` requests.
    Over,
}

/// Decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Delay of the request.
    pub stall: Nanos,
    /// Effect besides the delay.
    pub effect: Effect,
}

impl Verdict {
    /// Verdict on a request that no rule strikes.
    pub const WELL: Verdict = Verdict {
        stall: Nanos::ZERO,
        effect: Effect::None,
    };
}

impl Effect {
    /// Returns the number of bytes of a request at `offset` that reach the medium; `None` for all.
    pub fn kept_bytes(self, offset: u64, len: u64) -> Option<u64> {
        match self {
            Effect::None => None,
            Effect::Error(_) => Some(0),
            Effect::Torn { keep, .. } => {
                // Sectors are counted on the disk, so the end is rounded, not the length.
                let end = offset.saturating_add(keep) / SECTOR * SECTOR;
                let kept = end.saturating_sub(offset);
                // A request that would be kept whole is not torn.
                (kept < len).then_some(kept)
            }
        }
    }
}

impl Rule {
    /// Returns a rule that applies `effect` to every request, always.
    pub const fn always(effect: Effect) -> Rule {
        Rule {
            on: Ops::ANY,
            from: 0,
            to: u64::MAX,
            every: 1,
            probability_ppm: CERTAIN_PPM,
            seed: 0,
            after: Nanos::ZERO,
            lasts: None,
            count: None,
            stall: Nanos::ZERO,
            effect,
        }
    }

    /// Returns true if the rule is restricted to a part of the disk.
    pub const fn has_range(&self) -> bool {
        self.from != 0 || self.to != u64::MAX
    }

    /// Returns true if the rule applies to a request, whatever the time. A flush has no range, so
    /// only rules without a range apply to it. Torn rules apply to changes that are longer than
    /// what is kept.
    pub fn applies_to(&self, op: Op, offset: u64, len: u64) -> bool {
        if !self.on.contains(op) {
            return false;
        }
        if matches!(self.effect, Effect::Torn { .. })
            && !(Ops::CHANGES.contains(op) && self.effect.kept_bytes(offset, len).is_some())
        {
            return false;
        }
        match op {
            Op::Flush => !self.has_range(),
            _ => offset < self.to && self.from < offset.saturating_add(len),
        }
    }
}
