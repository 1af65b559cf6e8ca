//! One rule: which requests it is about, when, and what becomes of them.

use tidegate_core::request::{IoError, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_units::Millionths;

/// What reaches a medium whole or not at all, in bytes: torn writes end on a multiple of it.
pub const SECTOR: u64 = 512;

/// Operations, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ops(u8);

impl Ops {
    /// None of them.
    pub const NONE: Ops = Ops(0);
    /// All of them.
    pub const ANY: Ops = Ops(0b1_1111);
    /// Those of which a part can reach the medium.
    pub const CHANGES: Ops = Ops::of(Op::Write)
        .and(Ops::of(Op::Discard))
        .and(Ops::of(Op::WriteZeroes));

    /// One of them.
    pub const fn of(op: Op) -> Ops {
        Ops(1 << op as u8)
    }

    /// Those of both.
    pub const fn and(self, other: Ops) -> Ops {
        Ops(self.0 | other.0)
    }

    /// Whether this one is among them.
    pub const fn contains(self, op: Op) -> bool {
        self.0 & Ops::of(op).0 != 0
    }

    /// Whether none of them is outside of `other`.
    pub const fn within(self, other: Ops) -> bool {
        self.0 & !other.0 == 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |&op| self.contains(op))
    }
}

/// What becomes of a request that a rule strikes, but for the time it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It is done as it should be.
    None,
    /// Nothing of it is done, and it fails.
    Error(IoError),
    /// Only its first bytes reach the medium.
    Torn {
        /// How many, from the request's first; at its end they are cut down to whole sectors.
        keep: u64,
        /// What its guest is told: of a disk that lies, that all is well.
        answer: Outcome,
    },
}

/// A rule. Every condition that it states must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Operations.
    pub on: Ops,
    /// The first byte of the disk that it is about.
    pub from: u64,
    /// The first byte behind those it is about; `u64::MAX`: up to the disk's end.
    pub to: u64,
    /// Strikes each so-manieth of the requests it meets; at least 1.
    pub every: u64,
    /// Strikes with this probability, in millionths; at most a million.
    pub probability_ppm: u32,
    /// Decides the draws: the same seed draws the same.
    pub seed: u64,
    /// Begins so long after it was set, or the daemon was started.
    pub after: Nanos,
    /// Ends so long after it began; `None`: never.
    pub lasts: Option<Nanos>,
    /// Strikes at most so often; `None`: without end.
    pub count: Option<u64>,
    /// The request takes so much longer.
    pub stall: Nanos,
    /// What else becomes of it.
    pub effect: Effect,
}

/// A probability of one.
pub(crate) const CERTAIN_PPM: u32 = Millionths::WHOLE.0;

/// Where a rule is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its time has not come.
    Waiting,
    /// It meets requests.
    Armed,
    /// Its time is over, or it has struck as often as it may.
    Over,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// It takes so much longer.
    pub stall: Nanos,
    /// What else.
    pub effect: Effect,
}

impl Verdict {
    /// Nothing goes wrong.
    pub const WELL: Verdict = Verdict {
        stall: Nanos::ZERO,
        effect: Effect::None,
    };
}

impl Effect {
    /// The bytes of a request at `offset` that reach the medium, from its first; `None`: all.
    pub fn kept(self, offset: u64, len: u64) -> Option<u64> {
        match self {
            Effect::None => None,
            Effect::Error(_) => Some(0),
            Effect::Torn { keep, .. } => {
                let end = offset.saturating_add(keep) / SECTOR * SECTOR;
                let kept = end.saturating_sub(offset);
                (kept < len).then_some(kept)
            }
        }
    }
}

impl Rule {
    /// One that strikes every request, always; `effect` is all there is to it.
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

    /// It is about some part of the disk only.
    pub const fn has_range(&self) -> bool {
        self.from != 0 || self.to != u64::MAX
    }

    /// Whether it is about a request, whatever the time. A flush has no place, so only rules
    /// without one are about it. Torn are only changes, and only those longer than what is kept.
    pub fn is_about(&self, op: Op, offset: u64, len: u64) -> bool {
        if !self.on.contains(op) {
            return false;
        }
        if matches!(self.effect, Effect::Torn { .. })
            && !(Ops::CHANGES.contains(op) && self.effect.kept(offset, len).is_some())
        {
            return false;
        }
        match op {
            Op::Flush => !self.has_range(),
            _ => offset < self.to && self.from < offset.saturating_add(len),
        }
    }
}
