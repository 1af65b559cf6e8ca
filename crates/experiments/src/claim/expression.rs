//! Figures that claims compare: expressions over series.
//!
//! ```text
//! iops(vm1)                     a measure of the experiment; its arguments are words
//! ours(3, read/seq_read, cfq)   cells of the simulation, theirs(...) those of the paper's table
//! paper(feedback.settles)       a figure that stands in the paper's text
//! iops(vm1)[..4]                the first four of a series; [0] the first, [-1] the last
//! a[at max(b)]                  the item of a with the label of that of b
//! 100 * (a / b - 1)             item by item; a single figure goes with each item
//! max(x) min(x) mean(x) sum(x) abs(x) farthest(x)    the last is the one farthest from zero
//! ```

use super::Malformed;
use crate::ExperimentError;
use std::collections::BTreeMap;

/// A figure of a series.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Item {
    /// Name of the figure in words, such as its VM.
    pub(crate) label: String,
    /// The figure, in the unit of its measure.
    pub(crate) value: f64,
}

/// Figures in their order: by VM, by load, by row of a table.
pub(crate) type Series = Vec<Item>;

/// A series without labels.
pub(crate) fn series(values: impl IntoIterator<Item = f64>) -> Series {
    let item = |value| Item {
        label: String::new(),
        value,
    };
    values.into_iter().map(item).collect()
}

/// A measure with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// Name of the measure.
    pub(crate) name: String,
    /// Words between its brackets.
    pub(crate) arguments: Vec<String>,
}

/// Source of the figures of a set of runs.
pub(crate) trait Measures {
    /// Figures of a measure; `None` where its runs are missing.
    ///
    /// # Errors
    /// When there is no such measure, or the paper's figures are malformed.
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError>;
}

/// Expressions that have a name.
pub(crate) type Named = BTreeMap<String, Expression>;

/// An expression over series.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expression {
    /// A number of the claim itself.
    Number(f64),
    /// A measure.
    Measure(Call),
    /// Items of a series from one index to another; negative ones count from the end.
    Slice(Box<Expression>, Option<i64>, Option<i64>),
    /// The item with the label of another.
    At(Box<Expression>, Box<Expression>),
    /// A function of a series.
    Function(Function, Box<Expression>),
    /// An operation item by item.
    Binary(Operator, Box<Expression>, Box<Expression>),
}

/// Functions of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    Max,
    Min,
    Mean,
    Sum,
    Abs,
    Farthest,
}

const FUNCTIONS: [(&str, Function); 6] = [
    ("max", Function::Max),
    ("min", Function::Min),
    ("mean", Function::Mean),
    ("sum", Function::Sum),
    ("abs", Function::Abs),
    ("farthest", Function::Farthest),
];

/// Operations item by item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            Operator::Divide => a / b,
        }
    }
}

impl Function {
    /// Applies the function: yields one item, or each item for `abs`, and none for an empty series.
    fn apply(self, items: Series) -> Series {
        // An empty series has the mean 0 rather than NaN, and is left out by `value` before it
        // matters.
        let count = items.len().max(1) as f64;
        let sum = |items: &Series| items.iter().map(|item| item.value).sum::<f64>();
        // `total_cmp`: NaN has a place in the order, and cannot panic.
        let by = |a: &Item, b: &Item| a.value.total_cmp(&b.value);
        match self {
            Function::Max => items.into_iter().max_by(by).into_iter().collect(),
            Function::Min => items.into_iter().min_by(by).into_iter().collect(),
            Function::Farthest => {
                let by = |a: &Item, b: &Item| a.value.abs().total_cmp(&b.value.abs());
                items.into_iter().max_by(by).into_iter().collect()
            }
            Function::Mean => series([sum(&items) / count]),
            Function::Sum => series([sum(&items)]),
            Function::Abs => {
                let abs = |item: Item| Item {
                    value: item.value.abs(),
                    ..item
                };
                items.into_iter().map(abs).collect()
            }
        }
    }
}

impl Expression {
    /// Parses an expression, in which names may stand for the expressions of `named`.
    ///
    /// # Errors
    /// Fails when the text is no expression.
    pub(crate) fn parse(text: &str, named: &Named) -> Result<Expression, Malformed> {
        let mut parser = Parser { rest: text, named };
        let found = parser.sum()?;
        match parser.rest.trim_start() {
            "" => Ok(found),
            rest => Err(Malformed::new(
                // Both parts are shown, as a missing operator is the usual mistake.
                format!(
                    "`{rest}` follows `{}`",
                    text[..text.len() - rest.len()].trim()
                ),
                "one expression, such as 100 * (iops(vm1) / iops(vm2) - 1)",
            )),
        }
    }

    /// Figures of the expression; `None` where a run that it needs is missing, or no item is left.
    ///
    /// # Errors
    /// When a measure is unknown, or two series have different lengths.
    pub(crate) fn value(&self, measures: &dyn Measures) -> Result<Option<Series>, ExperimentError> {
        let found = match self {
            Expression::Number(number) => Some(series([*number])),
            Expression::Measure(call) => measures.measure(call)?,
            Expression::Slice(of, from, to) => {
                of.value(measures)?.map(|items| slice(items, *from, *to))
            }
            Expression::At(of, other) => match (of.value(measures)?, other.value(measures)?) {
                (Some(items), Some(others)) => {
                    let is = |item: &Item| others.iter().any(|other| other.label == item.label);
                    Some(items.into_iter().filter(is).collect())
                }
                _ => None,
            },
            Expression::Function(function, of) => {
                of.value(measures)?.map(|items| function.apply(items))
            }
            Expression::Binary(operator, a, b) => match (a.value(measures)?, b.value(measures)?) {
                (Some(a), Some(b)) => {
                    let operator = |a: f64, b: f64| operator.apply(a, b);
                    Some(paired(a, b, operator)?)
                }
                _ => None,
            },
        };
        // An empty series would pass every comparison.
        Ok(found.filter(|items| !items.is_empty()))
    }

    /// Calls `visit` with every measure of the expression.
    #[cfg(test)]
    pub(crate) fn measures<'a>(&'a self, visit: &mut dyn FnMut(&'a Call)) {
        match self {
            Expression::Number(_) => (),
            Expression::Measure(call) => visit(call),
            Expression::Slice(of, ..) | Expression::Function(_, of) => of.measures(visit),
            Expression::Binary(_, a, b) | Expression::At(a, b) => {
                a.measures(visit);
                b.measures(visit);
            }
        }
    }
}

/// Items from one index to another; negative ones count from the end.
fn slice(items: Series, from: Option<i64>, to: Option<i64>) -> Series {
    let count = items.len() as i64;
    // Clamped, so that a slice beyond the end is empty rather than a panic.
    let place = |n: i64| (if n < 0 { count + n } else { n }).clamp(0, count) as usize;
    let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(count)));
    let kept = items.into_iter().take(to).skip(from);
    kept.collect()
}

/// Combines two series item by item; a single figure is combined with each item of the other.
///
/// # Errors
/// Fails when the series have different lengths.
pub(super) fn paired(
    a: Series,
    b: Series,
    combine: impl Fn(f64, f64) -> f64,
) -> Result<Series, ExperimentError> {
    let made = |item: Item, value: f64| Item { value, ..item };
    match (a.as_slice(), b.as_slice()) {
        // Before the equal lengths: two single figures are one item with the label of the first.
        (_, [one]) => {
            let one = one.value;
            Ok((a.into_iter())
                .map(|item| {
                    let v = combine(item.value, one);
                    made(item, v)
                })
                .collect())
        }
        ([one], _) => {
            let one = one.value;
            Ok((b.into_iter())
                .map(|item| {
                    let v = combine(one, item.value);
                    made(item, v)
                })
                .collect())
        }
        (x, y) if x.len() == y.len() => Ok((a.into_iter().zip(b))
            .map(|(a, b)| {
                let v = combine(a.value, b.value);
                made(a, v)
            })
            .collect()),
        (x, y) => Err(ExperimentError::data(
            super::FILE,
            format!(
                "a series of {} figures and one of {}: both must have the same length, or one of \
                 them a single figure",
                x.len(),
                y.len()
            ),
        )),
    }
}

struct Parser<'a> {
    rest: &'a str,
    named: &'a Named,
}

impl<'a> Parser<'a> {
    /// Next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Consumes `c` if it is next.
    fn take(&mut self, c: char) -> bool {
        let is = self.peek() == Some(c);
        if is {
            // `peek` has skipped the blanks, so the character is at the front.
            self.rest = &self.rest[c.len_utf8()..];
        }
        is
    }

    fn need(&mut self, c: char, example: &'static str) -> Result<(), Malformed> {
        if self.take(c) {
            return Ok(());
        }
        let found = self
            .peek()
            .map_or("the end".to_owned(), |c| format!("`{c}`"));
        Err(Malformed::new(
            format!("found {found} where `{c}` is expected"),
            example,
        ))
    }

    /// Consumes characters as long as `is` accepts them.
    fn word(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn sum(&mut self) -> Result<Expression, Malformed> {
        // One level for each precedence; the loop makes operators of one level group from the left.
        let mut found = self.term()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(found),
            };
            // An operator is one byte of ASCII, at which `peek` has left the text.
            self.rest = &self.rest[1..];
            found = Expression::Binary(operator, Box::new(found), Box::new(self.term()?));
        }
    }

    fn term(&mut self) -> Result<Expression, Malformed> {
        let mut found = self.postfix()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(found),
            };
            self.rest = &self.rest[1..];
            found = Expression::Binary(operator, Box::new(found), Box::new(self.postfix()?));
        }
    }

    /// Parses an operand, with an optional slice in square brackets.
    fn postfix(&mut self) -> Result<Expression, Malformed> {
        let found = self.primary()?;
        if !self.take('[') {
            return Ok(found);
        }
        // With the blank, so that a name that begins with `at` is not taken for it.
        if let Some(rest) = self.rest.trim_start().strip_prefix("at ") {
            self.rest = rest;
            let at = self.sum()?;
            self.need(']', "a[at max(b)]")?;
            return Ok(Expression::At(Box::new(found), Box::new(at)));
        }
        let example = "[0], [-1], [..4], [1..] or [at max(b)]";
        let inside = self.word(|c| c != ']').trim();
        self.need(']', example)?;
        let wrong = || Malformed::new(format!("`[{inside}]` is not a slice of a series"), example);
        let number = |text: &str| text.trim().parse::<i64>().map_err(|_| wrong());
        let end = |text: &str| match text.trim() {
            "" => Ok(None),
            text => number(text).map(Some),
        };
        let (from, to) = match inside.split_once("..") {
            Some((from, to)) => (end(from)?, end(to)?),
            None => match number(inside)? {
                // The range -1..0 would be empty, since 0 counts from the start.
                -1 => (Some(-1), None),
                // Saturated: no series has that many figures.
                n => (Some(n), Some(n.saturating_add(1))),
            },
        };
        Ok(Expression::Slice(Box::new(found), from, to))
    }

    fn primary(&mut self) -> Result<Expression, Malformed> {
        match self.peek() {
            Some('(') => {
                self.take('(');
                let found = self.sum()?;
                self.need(')', "as many brackets closed as opened")?;
                Ok(found)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit() || c == '.');
                let wrong = |_| Malformed::new(format!("`{digits}` is no number"), "1 or 0.05");
                digits.parse().map(Expression::Number).map_err(wrong)
            }
            Some(c) if c.is_ascii_alphabetic() => self.name_or_call(),
            found => {
                let found = found.map_or("the end".to_owned(), |c| format!("`{c}`"));
                Err(Malformed::new(
                    format!("found {found} where a figure is expected"),
                    "a number, a name, or a measure such as iops(vm1)",
                ))
            }
        }
    }

    /// Parses a name, a function of an expression, or a measure with its arguments.
    fn name_or_call(&mut self) -> Result<Expression, Malformed> {
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if !self.take('(') {
            return Ok(match self.named.get(name) {
                Some(expression) => expression.clone(),
                None => Expression::Measure(Call {
                    name: name.to_owned(),
                    arguments: Vec::new(),
                }),
            });
        }
        // Functions come first: a measure cannot have the name of one.
        if let Some((_, function)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
            let of = self.sum()?;
            self.need(')', "as many brackets closed as opened")?;
            return Ok(Expression::Function(*function, Box::new(of)));
        }
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.argument()?);
            if !self.take(',') {
                break;
            }
        }
        self.need(')', "iops(vm1), or iops('a word, with a comma')")?;
        let name = name.to_owned();
        Ok(Expression::Measure(Call { name, arguments }))
    }

    /// Parses an argument; single quotes enclose one that has a comma or a bracket in it.
    fn argument(&mut self) -> Result<String, Malformed> {
        if self.take('\'') {
            let word = self.word(|c| c != '\'');
            self.need('\'', "'a word, with a comma'")?;
            return Ok(word.to_owned());
        }
        match self.word(|c| !matches!(c, ',' | ')')).trim() {
            "" => Err(Malformed::new("an argument is empty", "iops(vm1)")),
            word => Ok(word.to_owned()),
        }
    }
}
