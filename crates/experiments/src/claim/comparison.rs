//! Comparisons that claims are made of.

use super::expression::{Expression, Item, Measures, Series, paired};
use crate::ExperimentError;

/// A comparison, and the share of the items that has to pass it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Test {
    pub(crate) kind: Kind,
    pub(crate) share: Share,
}

/// Forms of comparison.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    /// Each item relates in this way to another figure.
    Beside(Sense, Expression, Expression),
    /// Each item is within a margin of another figure.
    Within(Expression, Expression, Margin),
    /// Each item is at least the second figure, at most the third.
    Between(Expression, Expression, Expression),
    /// Each series is below the next, item by item.
    Order(Vec<Expression>),
    /// A series goes one way from item to item.
    Course(Expression, Course),
}

/// Relations of two figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sense {
    Below,
    AtMost,
    Equals,
    AtLeast,
    Above,
}

impl Sense {
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Sense::Below => a < b,
            Sense::AtMost => a <= b,
            Sense::Equals => a == b,
            Sense::AtLeast => a >= b,
            Sense::Above => a > b,
        }
    }
}

/// A tolerance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Margin {
    /// Fraction of the figure that is compared with.
    Part(f64),
    /// In the figures' own unit.
    Points(f64),
}

/// Direction of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Course {
    pub(crate) rises: bool,
    /// `true` if no item may equal the one before.
    pub(crate) strictly: bool,
    /// Allowed step back, as a fraction of the item before.
    pub(crate) slack: f64,
}

impl Course {
    fn goes_on(self, before: f64, after: f64) -> bool {
        match (self.rises, self.strictly) {
            // The slack is taken from the item before, so that it means the same for series of any
            // unit.
            (true, true) => after > before * (1.0 - self.slack),
            (true, false) => after >= before * (1.0 - self.slack),
            (false, true) => after < before * (1.0 + self.slack),
            (false, false) => after <= before * (1.0 + self.slack),
        }
    }
}

/// Share of the items that must pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Share {
    /// Every item.
    All,
    /// At least this fraction of them.
    AtLeast(f64),
    /// More than this fraction of them.
    MoreThan(f64),
}

impl Share {
    fn is_reached(self, passed: usize, all: usize) -> bool {
        match self {
            Share::All => passed == all,
            // Counts are compared rather than quotients, so that no items at all pass `AtLeast`.
            Share::AtLeast(part) => passed as f64 >= part * all as f64,
            Share::MoreThan(part) => passed as f64 > part * all as f64,
        }
    }
}

/// Result of a test.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) holds: bool,
    /// Items of the comparison by their labels: 1 where an item passes, 0 where it fails.
    pub(crate) items: Series,
}

/// Returns 1 for `true` and 0 for `false`.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

impl Test {
    /// Result of the test; `None` where a run that it needs is missing.
    ///
    /// # Errors
    /// Fails when one of its expressions does.
    pub(crate) fn outcome(
        &self,
        measures: &dyn Measures,
    ) -> Result<Option<Outcome>, ExperimentError> {
        let Some(items) = self.kind.passed(measures)? else {
            return Ok(None);
        };
        // Flags are 0 or 1, or the product of two.
        let passed = items.iter().filter(|item| item.value > 0.0).count();
        Ok(Some(Outcome {
            holds: self.share.is_reached(passed, items.len()),
            items,
        }))
    }
}

impl Kind {
    /// Expressions of the comparison.
    pub(crate) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Kind::Beside(_, a, b) | Kind::Within(a, b, _) => vec![a, b],
            Kind::Between(a, b, c) => vec![a, b, c],
            Kind::Order(all) => all.iter().collect(),
            Kind::Course(of, _) => vec![of],
        }
    }

    /// Calls `hear` with every measure of the comparison.
    #[cfg(test)]
    pub(crate) fn measures<'a>(&'a self, hear: &mut dyn FnMut(&'a super::expression::Call)) {
        for expression in self.expressions() {
            expression.measures(hear);
        }
    }

    /// Flag of each item: 1 where it passes.
    fn passed(&self, measures: &dyn Measures) -> Result<Option<Series>, ExperimentError> {
        let mut all = Vec::new();
        for expression in self.expressions() {
            let Some(value) = expression.value(measures)? else {
                return Ok(None);
            };
            all.push(value);
        }
        self.evaluate(all).map(Some)
    }

    fn evaluate(&self, all: Vec<Series>) -> Result<Series, ExperimentError> {
        let mut all = all.into_iter();
        // `expressions` has as many as each kind takes below, in this order.
        let mut next = || all.next().unwrap_or_default();
        Ok(match self {
            Kind::Beside(sense, ..) => paired(next(), next(), |a, b| flag(sense.holds(a, b)))?,
            Kind::Within(.., margin) => paired(next(), next(), |a, b| {
                flag(match margin {
                    Margin::Part(part) => (a - b).abs() <= part * b.abs(),
                    Margin::Points(points) => (a - b).abs() <= *points,
                })
            })?,
            Kind::Between(..) => {
                let of = next();
                let above = paired(of.clone(), next(), |a, b| flag(a >= b))?;
                let below = paired(of, next(), |a, b| flag(a <= b))?;
                // Both flags: 1 only where the item is above one bound and below the other.
                paired(above, below, |a, b| a * b)?
            }
            Kind::Order(_) => {
                let all: Vec<Series> = all.collect();
                let mut flags = Vec::new();
                for two in all.windows(2) {
                    let below = |a, b| flag(a < b);
                    flags.extend(paired(two[0].clone(), two[1].clone(), below)?);
                }
                flags
            }
            Kind::Course(_, course) => {
                let items = next();
                let step = |two: &[Item]| Item {
                    label: two[1].label.clone(),
                    value: flag(course.goes_on(two[0].value, two[1].value)),
                };
                // A step has the label of its end; a series of one item has no step.
                items.windows(2).map(step).collect()
            }
        })
    }
}
