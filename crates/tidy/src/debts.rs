//! Baseline of accepted findings, `debts.txt`: its figures may only fall.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, ensure};

use crate::{
    finding::{Finding, Key},
    rules::{self, Moves},
};

const HEADER: &str = "\
# What the rules of crates/tidy still find: place, rule, item and figure. Figures only fall:
# `cargo run -p tidy -- --lower` writes what is left, and follows what has moved.
";

/// Known findings, each with its figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Debts {
    figures: BTreeMap<Key, usize>,
}

/// Difference between the findings and the debts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A finding without a debt, or above it.
    Found {
        /// The place and what was found there.
        finding: Finding,
        /// Figure of the debt; 0 if there is none.
        allowed: usize,
    },
    /// A debt above the figure that is left of it.
    Stale {
        /// The line of `debts.txt`, without its figure.
        entry: String,
        /// Figure in `debts.txt`.
        debt: usize,
        /// Figure that is left; 0 if nothing is.
        left: usize,
    },
}

impl Debts {
    /// Reads the text of `debts.txt`.
    ///
    /// # Errors
    ///
    /// A line without four fields, without a number at its end, or that repeats another.
    pub fn parse(text: &str) -> Result<Self> {
        let mut figures = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = || format!("crates/tidy/debts.txt:{}", index + 1);
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [place, rule, item, figure] = fields[..] else {
                anyhow::bail!("{}: a debt is a place, a rule, an item and a figure", at());
            };
            let key = Key {
                place: place.to_owned(),
                rule: rule.to_owned(),
                item: item.to_owned(),
            };
            let figure = figure
                .parse()
                .with_context(|| format!("{}: {figure:?}", at()))?;
            ensure!(
                // The second line would silently raise or lower the first.
                figures.insert(key, figure).is_none(),
                "{}: the debt is there twice",
                at()
            );
        }
        Ok(Self { figures })
    }

    /// Debts that allow exactly these findings. Figures of equal keys add up.
    #[must_use]
    pub fn from_findings(findings: &[Finding]) -> Self {
        let mut figures = BTreeMap::new();
        for finding in findings {
            // Findings of one item add up, as a debt has no line to tell them apart.
            *figures.entry(finding.key()).or_insert(0) += finding.figure;
        }
        Self { figures }
    }

    /// Findings above their debts, and debts above what is found.
    #[must_use]
    pub fn compare(&self, findings: &[Finding]) -> Vec<Problem> {
        let found = Self::from_findings(findings);
        let mut problems = Vec::new();
        for finding in findings {
            let key = finding.key();
            let allowed = self.figures.get(&key).copied().unwrap_or(0);
            // The sum of the key, so that one more finding shows beside those that are allowed.
            if found.figures[&key] > allowed {
                problems.push(Problem::Found {
                    finding: finding.clone(),
                    allowed,
                });
            }
        }
        for (key, &debt) in &self.figures {
            let left = found.figures.get(key).copied().unwrap_or(0);
            // A debt above what is left would let new findings in unseen.
            if left < debt {
                problems.push(Problem::Stale {
                    entry: key.to_string(),
                    debt,
                    left,
                });
            }
        }
        problems
    }

    /// Debts with the figures that are left. An item that moved keeps its debt at its new place if
    /// its name is unchanged and its figure no higher. For rules with `Moves::WithTotal`, a file
    /// may take over what other files have freed. No other figure rises and no entry is added.
    #[must_use]
    pub fn lower(&self, findings: &[Finding]) -> Self {
        let found = Self::from_findings(findings);
        let mut figures = BTreeMap::new();
        let mut freed: BTreeMap<&str, usize> = BTreeMap::new();
        let mut gone: Vec<(&Key, usize)> = Vec::new();
        for (key, &debt) in &self.figures {
            let left = found.figures.get(key).copied().unwrap_or(0);
            // Violations that a file has fewer may have moved to another, within the rule.
            *freed.entry(&key.rule).or_default() += debt.saturating_sub(left);
            if left == 0 {
                gone.push((key, debt));
            } else {
                figures.insert(key.clone(), debt.min(left));
            }
        }
        for (key, &figure) in &found.figures {
            let known = figures.get(key).copied().unwrap_or(0);
            match rules::moves_of(&key.rule) {
                Moves::Nowhere => {}
                Moves::WithTotal => {
                    let pool = freed.entry(&key.rule).or_default();
                    // Never more than what was freed: the total of the rule cannot rise.
                    let more = figure.saturating_sub(known).min(*pool);
                    if known + more > 0 {
                        figures.insert(key.clone(), known + more);
                    }
                    *pool -= more;
                }
                Moves::WithItem if known == 0 => {
                    let from = gone.iter().position(|(old, debt)| {
                        // An item that has grown while it moved does not get its debt back.
                        old.rule == key.rule && old.item == key.item && *debt >= figure
                    });
                    if let Some(at) = from {
                        // A debt moves to one place only.
                        gone.swap_remove(at);
                        figures.insert(key.clone(), figure);
                    }
                }
                Moves::WithItem => {}
            }
        }
        Self { figures }
    }

    /// Number of debts and sum of figures of each rule that has any, in one line each.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut rules: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (key, figure) in &self.figures {
            let (entries, sum) = rules.entry(&key.rule).or_default();
            *entries += 1;
            *sum += figure;
        }
        let lines = rules.iter().map(|(rule, (entries, sum))| {
            format!("debts of {rule}: {entries} entries, sum of figures {sum}")
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            "no debts".to_owned()
        } else {
            lines.join("\n")
        }
    }
}

impl fmt::Display for Debts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        for (key, figure) in &self.figures {
            writeln!(f, "{key}  {figure}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { finding, allowed } => {
                writeln!(f, "{finding}")?;
                if *allowed > 0 {
                    writeln!(
                        f,
                        "  crates/tidy/debts.txt allows {allowed} here, and no more"
                    )?;
                }
                let Some(rule) = rules::rule_by_name(finding.rule) else {
                    return Ok(());
                };
                write!(
                    f,
                    "  rule {}: {}\n  to do: {}",
                    rule.name, rule.statement, rule.remedy
                )
            }
            Self::Stale {
                entry,
                debt,
                left: 0,
            } => write!(
                f,
                "crates/tidy/debts.txt: {entry}  {debt}\n  nothing is left of this debt: remove \
                 the line, or run `cargo run -p tidy -- --lower`"
            ),
            Self::Stale { entry, debt, left } => write!(
                f,
                "crates/tidy/debts.txt: {entry}  {debt}\n  only {left} is left of this debt: \
                 lower the figure, or run `cargo run -p tidy -- --lower`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(place: &str, figure: usize) -> Finding {
        finding("line-width", place, None, figure)
    }

    fn finding(rule: &'static str, place: &str, item: Option<&str>, figure: usize) -> Finding {
        let item = item.map(str::to_owned);
        Finding {
            rule,
            place: place.to_owned(),
            item,
            line: 1,
            figure,
            what: String::new(),
        }
    }

    #[test]
    fn findings_above_their_debt_and_stale_debts_are_problems() {
        let debts = Debts::parse("a.rs  line-width  -  3\n").expect("a well-formed line");
        assert_eq!(debts.compare(&[lines("a.rs", 3)]), []);
        let more = debts.compare(&[lines("a.rs", 4)]);
        assert!(
            matches!(more[..], [Problem::Found { allowed: 3, .. }]),
            "{more:?}"
        );
        let fewer = debts.compare(&[lines("a.rs", 2)]);
        assert!(
            matches!(
                fewer[..],
                [Problem::Stale {
                    debt: 3,
                    left: 2,
                    ..
                }]
            ),
            "{fewer:?}"
        );
        assert!(fewer[0].to_string().contains("lower the figure"));
        let none = debts.compare(&[]);
        assert!(none[0].to_string().contains("remove the line"));
    }

    #[test]
    fn lowering_never_raises() {
        let debts = Debts::from_findings(&[lines("a.rs", 3)]);
        assert_eq!(debts.lower(&[lines("a.rs", 4)]), debts);
        assert_eq!(debts.lower(&[lines("a.rs", 3), lines("b.rs", 1)]), debts);
        assert_eq!(
            debts.lower(&[lines("a.rs", 1)]),
            Debts::from_findings(&[lines("a.rs", 1)])
        );
        assert_eq!(debts.lower(&[]), Debts::default());
    }

    #[test]
    fn debts_follow_what_moves() {
        let debts = Debts::from_findings(&[lines("a.rs", 3)]);
        let split = [lines("b.rs", 1), lines("c.rs", 2)];
        assert_eq!(debts.lower(&split), Debts::from_findings(&split));
        let long = |place, item, figure| finding("function-length", place, Some(item), figure);
        let debts = Debts::from_findings(&[long("a.rs", "T::f", 90)]);
        let moved = [long("b.rs", "T::f", 85)];
        assert_eq!(debts.lower(&moved), Debts::from_findings(&moved));
        assert_eq!(debts.lower(&[long("b.rs", "T::f", 91)]), Debts::default());
        assert_eq!(debts.lower(&[long("b.rs", "T::g", 85)]), Debts::default());
    }

    #[test]
    fn malformed_and_repeated_lines_are_refused() {
        assert!(Debts::parse("a.rs line-width 3\n").is_err());
        assert!(Debts::parse("a.rs line-width - many\n").is_err());
        assert!(Debts::parse("a.rs line-width - 3\na.rs line-width - 3\n").is_err());
    }
}
