//! Judgement of a disk's requests by its fault rules, without I/O or clock.

use tidegate_core::random::SplitMix64;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

use super::rule::{CERTAIN_PPM, Ops, Rule, State, Verdict};

/// Minimum time between two log messages about one rule.
const LOG_INTERVAL: Nanos = Nanos::from_secs(10);

/// Fault rules of a disk, in the order in which they are tried. The first that strikes decides.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<Armed>,
    /// Number that was given to a rule last.
    last: u32,
}

/// Rule with its state and counters.
#[derive(Clone, Debug)]
struct Armed {
    number: u32,
    rule: Rule,
    /// Time at which the rule is armed.
    begins: Nanos,
    random: SplitMix64,
    met: u64,
    injected: u64,
    /// Time of the last log message, and number of requests struck since.
    log: Option<(Nanos, u64)>,
}

/// Verdict on a request, and what to log about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Verdict on the request.
    pub verdict: Verdict,
    /// True if a rule struck the request.
    pub struck: bool,
    /// Message to log, if one is due.
    pub log: Option<RuleLog>,
}

/// Log message about a rule that has struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleLog {
    /// Number of the rule.
    pub number: u32,
    /// Number of requests struck since the last message, not counting this one.
    pub suppressed: u64,
}

/// State of a rule at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleSnapshot {
    /// Number of the rule.
    pub number: u32,
    /// Definition of the rule.
    pub rule: Rule,
    /// Phase in the life of the rule.
    pub state: State,
    /// Number of requests that the rule applied to while it was armed and that no earlier rule
    /// struck.
    pub met: u64,
    /// Number of requests that the rule struck.
    pub injected: u64,
}

impl Armed {
    fn state(&self, now: Nanos) -> State {
        let ends = |lasts: Nanos| self.begins.0.saturating_add(lasts.0);
        // Checked first: a rule that is used up stays so, whatever the time.
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

    /// Counts a request that the rule applies to, and returns true if it strikes.
    fn strikes(&mut self) -> bool {
        self.met += 1;
        if !self.met.is_multiple_of(self.rule.every) {
            return false;
        }
        let ppm = self.rule.probability_ppm;
        // Certainty takes no draw, which saves the time.
        let strikes = ppm >= CERTAIN_PPM || self.random.below(CERTAIN_PPM.into()) < ppm.into();
        self.injected += u64::from(strikes);
        strikes
    }

    fn log_due(&mut self, now: Nanos) -> Option<RuleLog> {
        let suppressed = match &mut self.log {
            Some((last, suppressed)) if now.since(*last) < LOG_INTERVAL => {
                *suppressed += 1;
                return None;
            }
            Some((_, suppressed)) => *suppressed,
            None => 0,
        };
        self.log = Some((now, 0));
        Some(RuleLog {
            number: self.number,
            suppressed,
        })
    }
}

impl Faults {
    /// Maximum number of rules of a disk, because each request is tested against all of them.
    pub const RULES_MAX: usize = 64;

    /// Adds a rule behind the others at the time `now` and returns its number; `None` if there are
    /// [`Faults::RULES_MAX`] already. Panics if `every` or `count` is 0, the
    /// probability is above one, or the rule is for no operation.
    pub fn add(&mut self, now: Nanos, rule: Rule) -> Option<u32> {
        assert!(rule.every > 0, "every 0th request cannot be struck");
        assert!(
            rule.probability_ppm <= CERTAIN_PPM,
            "a probability above one"
        );
        // A drill that never strikes would pass for one that the guest survived.
        assert!(
            rule.on != Ops::NONE && rule.count != Some(0),
            "a rule that no request meets: {rule:?}"
        );
        assert!(
            rule.from < rule.to,
            "a rule of the empty range {}..{}",
            rule.from,
            rule.to
        );
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
            log: None,
        });
        Some(self.last)
    }

    /// Removes the rule with this number. Returns false if there is none.
    pub fn remove(&mut self, number: u32) -> bool {
        let before = self.rules.len();
        self.rules.retain(|armed| armed.number != number);
        self.rules.len() < before
    }

    /// Returns true if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Judges a request and counts it. Call this once for each request, whatever parts it is served
    /// in: a rule for every second request would otherwise count parts.
    pub fn judge(&mut self, now: Nanos, op: Op, offset: u64, len: u64) -> Judged {
        for armed in &mut self.rules {
            if armed.state(now) == State::Armed
                && armed.rule.applies_to(op, offset, len)
                && armed.strikes()
            {
                return Judged {
                    verdict: Verdict {
                        stall: armed.rule.stall,
                        effect: armed.rule.effect,
                    },
                    struck: true,
                    log: armed.log_due(now),
                };
            }
        }
        Judged {
            verdict: Verdict::WELL,
            struck: false,
            log: None,
        }
    }

    /// Returns the state of the rules at the time `now`.
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
