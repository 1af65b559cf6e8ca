//! Words of claims, with figures in them.
//!
//! ```text
//! it has {iops(vm1):.0} IOPS            each figure of a series, with commas between
//! it has {iops(vm1):.0 and} IOPS        ... and an "and" before the last
//! it is {error:+.1} %                   with its sign
//! it takes {paper(times):.} times       with as many digits as it has
//! they have {share:.2 named}            each with its label: 0.95 (vm1), 1.02 (vm2)
//! V is {ours after theirs:.2} %         pairs: 3.10 after 4.20, 2.00 after 2.50
//! met are {met of all:.0}               pairs: 3 of 4, 2 of 2
//! the largest is that of {who max(x)}   a label alone
//! it is in {held} of {all}              items of the first test that pass, and all of them
//! it is not in {failing}                labels of those that fail
//! ```

use super::Malformed;
use super::expression::{Expression, Item, Measures, Named, Series};
use crate::ExperimentError;

/// A text with figures in it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Words(Vec<Piece>);

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Text(String),
    Figures {
        of: Expression,
        /// The second figure of a pair, and the word before it.
        second: Option<(&'static str, Expression)>,
        format: Format,
    },
    Label(Expression),
    Held,
    All,
    Failing,
}

/// Words between the two figures of a pair.
const BETWEEN: [&str; 2] = ["after", "of"];

/// Form of figures in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Format {
    sign: bool,
    /// `None`: as many as there are.
    digits: Option<usize>,
    list: List,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Commas,
    And,
    Named,
}

const EXAMPLES: &str = "{iops(vm1):.1}, {a after b:.2}, {a of b:.0}, {x:+.1}, {x:.0 and}, \
                        {x:.2 named}, {who max(x)}, {held}, {all} or {failing}";

/// Expressions before and after a word that stands outside brackets, and that word.
fn pair(text: &str) -> Option<(&str, &'static str, &str)> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            // A word between the figures of a pair is outside of all brackets.
            ' ' if depth == 0 => {
                let after = &text[at + 1..];
                for word in BETWEEN {
                    let second = after.strip_prefix(word).and_then(|s| s.strip_prefix(' '));
                    if let Some(second) = second {
                        return Some((&text[..at], word, second));
                    }
                }
            }
            _ => (),
        }
    }
    None
}

impl Format {
    fn parse(text: &str) -> Option<Format> {
        let (figure, list) = text.split_once(' ').unwrap_or((text, ""));
        let list = match list {
            "" => List::Commas,
            "and" => List::And,
            "named" => List::Named,
            _ => return None,
        };
        let unsigned = figure.strip_prefix('+');
        let digits = unsigned.unwrap_or(figure).strip_prefix('.')?;
        let digits = match digits {
            "" => None,
            digits => Some(digits.parse().ok()?),
        };
        Some(Format {
            sign: unsigned.is_some(),
            digits,
            list,
        })
    }

    fn figure(self, value: f64) -> String {
        match (self.digits, self.sign) {
            (Some(digits), true) => format!("{value:+.digits$}"),
            (Some(digits), false) => format!("{value:.digits$}"),
            (None, true) => format!("{value:+}"),
            (None, false) => value.to_string(),
        }
    }

    fn item(self, item: &Item) -> String {
        match self.list {
            List::Named => format!("{} ({})", self.figure(item.value), item.label),
            List::Commas | List::And => self.figure(item.value),
        }
    }

    fn list(self, all: &[String]) -> String {
        match (self.list, all) {
            // A single figure has no `and`.
            (List::And, [first @ .., last]) if !first.is_empty() => {
                format!("{} and {last}", first.join(", "))
            }
            _ => all.join(", "),
        }
    }
}

impl Piece {
    /// Parses the text between braces.
    fn parse(text: &str, named: &Named) -> Result<Piece, Malformed> {
        match text {
            "held" => return Ok(Piece::Held),
            "all" => return Ok(Piece::All),
            "failing" => return Ok(Piece::Failing),
            _ => (),
        }
        if let Some(of) = text.strip_prefix("who ") {
            return Ok(Piece::Label(Expression::parse(of, named)?));
        }
        // From the right: arguments in quotes may have colons.
        let parts = text.rsplit_once(':');
        let format = parts.and_then(|(_, format)| Format::parse(format));
        let (Some((figures, _)), Some(format)) = (parts, format) else {
            return Err(Malformed::new(
                format!("`{{{text}}}` does not say how its figures are written"),
                EXAMPLES,
            ));
        };
        let (of, second) = match pair(figures) {
            Some((of, word, second)) => (of, Some((word, Expression::parse(second, named)?))),
            None => (figures, None),
        };
        let of = Expression::parse(of, named)?;
        Ok(Piece::Figures { of, second, format })
    }
}

impl Words {
    /// Parses a text, in whose figures names may stand for the expressions of `named`.
    ///
    /// # Errors
    /// Fails when a brace is not closed, or there is no figure in it.
    pub(crate) fn parse(text: &str, named: &Named) -> Result<Words, Malformed> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, after)) = after.split_once('}') else {
                return Err(Malformed::new("a brace is not closed", EXAMPLES));
            };
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::parse(inside, named)?);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Words(pieces))
    }

    /// Text with its figures; `items` are those of the claim's first test, 1 where an item passes.
    /// `None` where a run is missing.
    ///
    /// # Errors
    /// Fails when one of its expressions does.
    pub(crate) fn text(
        &self,
        measures: &dyn Measures,
        items: &[Item],
    ) -> Result<Option<String>, ExperimentError> {
        let mut text = String::new();
        for piece in &self.0 {
            let Some(piece) = shown(piece, measures, items)? else {
                return Ok(None);
            };
            text += &piece;
        }
        Ok(Some(text))
    }

    /// Calls `hear` with every measure of the text.
    #[cfg(test)]
    pub(crate) fn measures<'a>(&'a self, hear: &mut dyn FnMut(&'a super::expression::Call)) {
        for piece in &self.0 {
            match piece {
                Piece::Text(_) | Piece::Held | Piece::All | Piece::Failing => (),
                Piece::Label(of) => of.measures(hear),
                Piece::Figures { of, second, .. } => {
                    of.measures(hear);
                    second.iter().for_each(|(_, of)| of.measures(hear));
                }
            }
        }
    }
}

fn shown(
    piece: &Piece,
    measures: &dyn Measures,
    items: &[Item],
) -> Result<Option<String>, ExperimentError> {
    Ok(match piece {
        Piece::Text(text) => Some(text.clone()),
        Piece::Held => Some(
            items
                .iter()
                .filter(|item| item.value > 0.0)
                .count()
                .to_string(),
        ),
        Piece::All => Some(items.len().to_string()),
        Piece::Failing => {
            let failing = items.iter().filter(|item| item.value == 0.0);
            let labels: Vec<&str> = failing.map(|item| item.label.as_str()).collect();
            Some(labels.join("; "))
        }
        Piece::Label(of) => {
            let labels = |items: Series| -> Vec<String> {
                items.into_iter().map(|item| item.label).collect()
            };
            of.value(measures)?.map(|items| labels(items).join(", "))
        }
        Piece::Figures { of, second, format } => {
            let Some(items) = of.value(measures)? else {
                return Ok(None);
            };
            let mut shown: Vec<String> = items.iter().map(|item| format.item(item)).collect();
            if let Some((word, second)) = second {
                let Some(second) = second.value(measures)? else {
                    return Ok(None);
                };
                for (shown, second) in shown.iter_mut().zip(second) {
                    *shown += &format!(" {word} {}", format.figure(second.value));
                }
            }
            Some(format.list(&shown))
        }
    })
}
