//! Which requests of a disk the rules strike. A pure unit: requests and times in, verdicts out.

use tidegate_core::random::SplitMix64;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

use super::rule::{CERTAIN_PPM, Rule, State, Verdict};

/// After a rule has been heard of, it is not heard of again for so long.
const HEARD_AGAIN: Nanos = Nanos::from_secs(10);

/// The rules of a disk, in the order in which they are asked. The first that strikes decides.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<Armed>,
    /// The last number that was given to a rule.
    last: u32,
}

/// A rule and how it fared.
#[derive(Clone, Debug)]
struct Armed {
    number: u32,
    rule: Rule,
    /// When its time begins.
    begins: Nanos,
    random: SplitMix64,
    met: u64,
    injected: u64,
    /// When it was last heard of, and how often it has struck since.
    heard: Option<(Nanos, u64)>,
}

/// What became of a request, and what is to be said about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// What becomes of it.
    pub verdict: Verdict,
    /// A rule struck it.
    pub struck: bool,
    /// What the log is to hear.
    pub heard: Option<Heard>,
}

/// A rule has struck, and it is time to say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// Its number.
    pub number: u32,
    /// How often it struck since it was last said, this time not counted.
    pub unsaid: u64,
}

/// A rule as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleSnapshot {
    /// What it is called.
    pub number: u32,
    /// What it says.
    pub rule: Rule,
    /// Where it is in its life.
    pub state: State,
    /// Requests that it was about while it was armed, and that no rule before it struck.
    pub met: u64,
    /// Requests that it struck.
    pub injected: u64,
}

impl Armed {
    fn state(&self, now: Nanos) -> State {
        let ends = |lasts: Nanos| self.begins.0.saturating_add(lasts.0);
        if self.rule.count.is_some_and(|count| self.injected >= count) {
            State::Over
        } else if now < self.begins {
            State::Waiting
        } else if self.rule.lasts.is_some_and(|lasts| now.0 >= ends(lasts)) {
            State::Over
        } else {
            State::Armed
        }
    }

    /// Whether it strikes a request that it meets.
    fn strikes(&mut self) -> bool {
        self.met += 1;
        if !self.met.is_multiple_of(self.rule.every) {
            return false;
        }
        let ppm = self.rule.probability_ppm;
        // What is certain takes no draw, so that it costs none.
        let strikes = ppm >= CERTAIN_PPM || self.random.below(CERTAIN_PPM.into()) < ppm.into();
        self.injected += u64::from(strikes);
        strikes
    }

    fn hear(&mut self, now: Nanos) -> Option<Heard> {
        let unsaid = match &mut self.heard {
            Some((last, unsaid)) if now.since(*last) < HEARD_AGAIN => {
                *unsaid += 1;
                return None;
            }
            Some((_, unsaid)) => *unsaid,
            None => 0,
        };
        self.heard = Some((now, 0));
        Some(Heard {
            number: self.number,
            unsaid,
        })
    }
}

impl Faults {
    /// As many rules as a disk may have: each request is held against all of them.
    pub const RULES_MAX: usize = 64;

    /// Sets a rule at this time, behind those there are; its number. `None`: there are
    /// [`Faults::RULES_MAX`] already.
    pub fn add(&mut self, now: Nanos, rule: Rule) -> Option<u32> {
        if self.rules.len() >= Faults::RULES_MAX {
            return None;
        }
        self.last += 1;
        self.rules.push(Armed {
            number: self.last,
            rule,
            begins: Nanos(now.0.saturating_add(rule.after.0)),
            random: SplitMix64::new(rule.seed),
            met: 0,
            injected: 0,
            heard: None,
        });
        Some(self.last)
    }

    /// Takes the rule of this number away; whether there was one.
    pub fn remove(&mut self, number: u32) -> bool {
        let before = self.rules.len();
        self.rules.retain(|armed| armed.number != number);
        self.rules.len() < before
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Decides what becomes of a request, and counts it. To be asked once a request, whatever
    /// parts it is served in: a rule that strikes each second one would otherwise count parts.
    pub fn judge(&mut self, now: Nanos, op: Op, offset: u64, len: u64) -> Judged {
        for armed in &mut self.rules {
            if armed.state(now) == State::Armed
                && armed.rule.is_about(op, offset, len)
                && armed.strikes()
            {
                return Judged {
                    verdict: Verdict {
                        stall: armed.rule.stall,
                        effect: armed.rule.effect,
                    },
                    struck: true,
                    heard: armed.hear(now),
                };
            }
        }
        Judged {
            verdict: Verdict::WELL,
            struck: false,
            heard: None,
        }
    }

    /// The rules as they stand at this time.
    pub fn snapshot(&self, now: Nanos) -> Vec<RuleSnapshot> {
        let one = |armed: &Armed| RuleSnapshot {
            number: armed.number,
            rule: armed.rule,
            state: armed.state(now),
            met: armed.met,
            injected: armed.injected,
        };
        self.rules.iter().map(one).collect()
    }
}
