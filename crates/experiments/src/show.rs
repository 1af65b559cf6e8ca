//! Findings as tables for the terminal: one screen of verdicts, and the details behind it.

use crate::findings::{Cell, Claim, Findings, heading, within};
use crate::ordering::{Comparisons, order};
use crate::verdict::{Origin, Scope, Verdict};
use std::fmt::Write as _;
use tidegate_report::{Align, Cell as Shown, Table, Tone};

/// Largest deviation from the paper, as a fraction, at which a predicted figure is not marked.
const NEAR_DEVIATION: f64 = 0.15;
/// Wider deviation, as a fraction, by which predicted figures are counted as well.
const WIDE_DEVIATION: f64 = 0.25;
/// Width of the screen in columns.
const SCREEN_COLUMNS: usize = 80;
/// Width of the first column of the table of verdicts.
const PART_COLUMNS: usize = 13;
/// Width of the last column, of names: what the numbers and two spaces between columns leave.
const FAILING_COLUMNS: usize = SCREEN_COLUMNS - (PART_COLUMNS + 6 + 5 + 5 + 6 + 5 * 2);
/// Name of the row of claims about all tables.
const EVERYTHING: &str = "all of it";

/// Number of cases that hold, and of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Cases that hold.
    pub held: usize,
    /// All cases.
    pub all: usize,
}

impl Count {
    fn words(self) -> String {
        if self.all == 0 {
            return "-".to_owned();
        }
        let share = 100.0 * self.held as f64 / self.all as f64;
        format!("{} of {}  {share:.0} %", self.held, self.all)
    }

    fn short(self) -> String {
        if self.all == 0 {
            return "-".to_owned();
        }
        format!("{}/{}", self.held, self.all)
    }
}

/// Counts of claims, predicted figures and comparisons in a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Claims that hold.
    pub claims: Count,
    /// Predicted figures within 15 % of the paper's.
    pub near: Count,
    /// Predicted figures within 25 %.
    pub wide: Count,
    /// Comparisons of two alternatives.
    pub order: Comparisons,
}

impl Counts {
    /// Counts what a scope has of these claims and cells.
    fn new<'a>(
        claims: impl IntoIterator<Item = &'a Claim>,
        cells: impl IntoIterator<Item = &'a Cell>,
        scope: Scope,
    ) -> Counts {
        let claims: Vec<&Claim> = claims.into_iter().filter(|it| it.is_in(scope)).collect();
        let cells: Vec<&Cell> = cells.into_iter().collect();
        let within = |part| {
            let (held, all) = within(cells.iter().copied().filter(|cell| cell.is_in(scope)), part);
            Count { held, all }
        };
        Counts {
            claims: Count {
                held: claims.iter().filter(|claim| claim.holds).count(),
                all: claims.len(),
            },
            near: within(NEAR_DEVIATION),
            wide: within(WIDE_DEVIATION),
            // Cells that are out of scope are left out with their comparisons there.
            order: order(cells.iter().copied(), scope),
        }
    }

    /// Counts of all findings in a scope.
    pub fn of_findings(findings: &Findings, scope: Scope) -> Counts {
        Counts::new(&findings.claims, &findings.cells, scope)
    }

    fn agreement(&self) -> Count {
        Count {
            held: self.order.agree,
            all: self.order.all,
        }
    }
}

/// Counts with and without what cannot hold.
pub fn counts(findings: &Findings) -> Table {
    let mut table = Table::new([
        ("", Align::Left),
        ("ALL", Align::Right),
        ("CAN HOLD", Align::Right),
        ("+ OWN", Align::Right),
    ]);
    let each = Scope::EACH.map(|scope| Counts::of_findings(findings, scope));
    let mut row = |name: &str, figure: &dyn Fn(&Counts) -> String| {
        let figures = each.iter().map(figure);
        table.row([name.to_owned()].into_iter().chain(figures));
    };
    row("claims that hold", &|of| of.claims.words());
    row("predicted within 15 %", &|of| of.near.words());
    row("predicted within 25 %", &|of| of.wide.words());
    row("comparisons as in the paper", &|of| of.agreement().words());
    row("  within 1 % / other way", &|of| {
        format!("{} / {}", of.order.within, of.order.opposite)
    });
    table
}

/// Verdicts by table, figure and section of the paper, in short lines for a screen. `tables` has
/// the order of the paper.
pub fn verdicts(findings: &Findings, tables: &[&str]) -> Table {
    verdicts_within(findings, tables, PART_COLUMNS, FAILING_COLUMNS)
}

/// Verdicts by table, figure and section of the paper, with columns of these widths for its name
/// and for the names of claims.
pub(crate) fn verdicts_within(
    findings: &Findings,
    tables: &[&str],
    part_columns: usize,
    failing_columns: usize,
) -> Table {
    let mut table = Table::new([
        ("PART", Align::Left),
        ("CLAIMS", Align::Right),
        ("15 %", Align::Right),
        ("25 %", Align::Right),
        ("ORDER", Align::Right),
        ("DO NOT HOLD", Align::Left),
    ]);
    for part in parts(findings, tables) {
        let claims: Vec<&Claim> = (findings.claims.iter())
            .filter(|claim| claim.part == part)
            .collect();
        let cells = findings.cells.iter().filter(|cell| cell.table == part);
        let counts = Counts::new(claims.iter().copied(), cells, Scope::All);
        let mut lines = failing(&claims, failing_columns).into_iter();
        table.row([
            Shown::from(clipped(&part_name(part), part_columns)),
            counts.claims.short().into(),
            counts.near.short().into(),
            counts.wide.short().into(),
            counts.agreement().short().into(),
            Shown::from(lines.next().unwrap_or_default()).tone(Tone::Bad),
        ]);
        for line in lines {
            let empty = ["", "", "", "", ""].map(Shown::from);
            let line = Shown::from(line).tone(Tone::Bad);
            table.row(empty.into_iter().chain([line]));
        }
    }
    table
}

/// Tables, figures and sections with findings, in the order of the paper; claims about several or
/// all of them last.
pub(crate) fn parts<'a>(findings: &'a Findings, tables: &[&str]) -> Vec<&'a str> {
    let mut parts: Vec<&str> = Vec::new();
    let cells = findings.cells.iter().map(|cell| cell.table.as_str());
    let claims = findings.claims.iter().map(|claim| claim.part.as_str());
    for part in cells.chain(claims) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.sort_by_key(|part| {
        let place = tables.iter().position(|table| table == part);
        (part.is_empty(), place.unwrap_or(tables.len()))
    });
    parts
}

/// Name of a table, figure or section in words.
pub(crate) fn part_name(part: &str) -> String {
    if part.is_empty() {
        EVERYTHING.to_owned()
    } else {
        heading(part)
    }
}

/// Tone of a verdict.
pub(crate) fn verdict_tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Holds => Tone::Good,
        Verdict::DoesNotHold => Tone::Bad,
        Verdict::CannotHold => Tone::Warn,
    }
}

/// Lines with the names of the claims that do not hold, then of those that cannot. A name that
/// several claims share has their number.
fn failing(claims: &[&Claim], width: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (verdict, introduction) in [
        (Verdict::DoesNotHold, None),
        (Verdict::CannotHold, Some("cannot: ")),
    ] {
        let mut names: Vec<(&str, usize)> = Vec::new();
        for claim in claims.iter().filter(|claim| claim.verdict == verdict) {
            // A claim of a module without `claims.toml` has no name but its words.
            let name = if claim.id.is_empty() {
                claim.claim.as_str()
            } else {
                &claim.id
            };
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => names.push((name, 1)),
            }
        }
        for (n, (name, count)) in names.into_iter().enumerate() {
            // The first name has the introduction, so that no line ends with it.
            let before = introduction.filter(|_| n == 0).unwrap_or_default();
            let times = if count > 1 {
                format!(" x{count}")
            } else {
                String::new()
            };
            let room = width - before.len() - times.len();
            words.push(format!("{before}{}{times}", clipped(&name, room)));
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= width => {
                line.push_str(", ");
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Cuts a text off at a number of characters.
fn clipped(text: &impl AsRef<str>, width: usize) -> String {
    let text = text.as_ref();
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut + "~"
}

/// Summary of the contradictions in one line; empty if there are none.
pub fn contradictions(findings: &Findings) -> String {
    let names = |shown: bool| -> Vec<&str> {
        let all = findings.impossible.iter().filter(|of| of.shown == shown);
        all.map(|of| of.reason.id.as_str()).collect()
    };
    let (shown, other) = (names(true), names(false));
    let mut line = String::new();
    if !shown.is_empty() {
        let _ = write!(line, "Contradictions in the paper: {}.", shown.len());
    }
    if !other.is_empty() {
        // A contradiction that its own arithmetic does not show is a mistake to be seen.
        let _ = write!(line, " NOT SHOWN: {}.", other.join(", "));
    }
    line.trim_start().to_owned()
}

/// Contradictions in the paper and notes with their arithmetic.
pub fn reasons(findings: &Findings) -> Table {
    let mut table = Table::new([("CONTRADICTION", Align::Left), ("", Align::Left)]);
    for of in &findings.impossible {
        let verdict = if of.shown {
            Shown::from("cannot hold").tone(Tone::Good)
        } else {
            Shown::from("NOT SHOWN").tone(Tone::Bad)
        };
        let origin = match of.reason.from {
            Origin::Fidelity => "named by the second reading",
            Origin::Own => "found by the experiment",
        };
        let id = &of.reason.id;
        table.row([Shown::from(format!("{id}, {origin}")), verdict]);
        table.line(format!("    {}: {}.", of.covers, of.reason.arithmetic));
    }
    for note in &findings.notes {
        let part = heading(&note.part);
        table.row([Shown::from(format!("{}, {part}", note.id)), "note".into()]);
        table.line(format!("    {}.", note.text));
    }
    table
}

/// Figures, grouped by the paper's tables.
pub fn tables(findings: &Findings) -> Table {
    let mut table = Table::new([
        ("ROW", Align::Left),
        ("COLUMN", Align::Left),
        ("THEIRS", Align::Right),
        ("OURS", Align::Right),
        ("RATIO", Align::Right),
        ("", Align::Left),
    ]);
    let mut before = "";
    for cell in &findings.cells {
        if cell.table != before {
            before = &cell.table;
            table.line(Shown::from(heading(&cell.table)).tone(Tone::Strong));
        }
        table.row(row(cell));
    }
    table
}

fn row(cell: &Cell) -> [Shown; 6] {
    let ratio = cell.ratio();
    // A figure of 0 in the paper has no ratio.
    let shown = if ratio.is_finite() {
        Shown::from(format!("{ratio:.2}"))
    } else {
        "-".into()
    };
    let tone = match (cell.calibrated, cell.is_within(NEAR_DEVIATION)) {
        (true, _) => Tone::Faint,
        (false, true) => Tone::Good,
        (false, false) => Tone::Bad,
    };
    let kind = match (cell.calibrated, &cell.cannot_hold) {
        (_, Some(_)) => "cannot hold",
        (true, None) => "calibrated",
        (false, None) => "predicted",
    };
    [
        cell.row.as_str().into(),
        cell.column.as_str().into(),
        figure(cell.theirs).into(),
        figure(cell.ours).into(),
        shown.tone(tone),
        kind.into(),
    ]
}

/// Figure with five digits at most, as papers print them.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Claims with their verdicts.
pub fn claims(findings: &Findings) -> Table {
    let mut table = Table::new([("CLAIM", Align::Left), ("", Align::Left)]);
    for claim in &findings.claims {
        let verdict = Shown::from(claim.verdict.words()).tone(verdict_tone(claim.verdict));
        table.row([claim.claim.as_str().into(), verdict]);
        let why = claim.cannot_hold.as_ref();
        let why = why.map(|reason| format!(" Cannot hold: {}.", reason.arithmetic));
        table.line(format!("    {}{}", claim.detail, why.unwrap_or_default()));
    }
    table
}

/// Summary in one line.
pub fn summary(findings: &Findings) -> String {
    let Counts { claims, near, .. } = Counts::of_findings(findings, Scope::All);
    format!(
        "{} of {} predicted figures are within 15 %; {} of {} claims hold",
        near.held, near.all, claims.held, claims.all
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::cell;
    use crate::verdict::Reason;
    use tidegate_report::Style;

    fn claim(part: &str, id: &str, verdict: Verdict, from: Origin) -> Claim {
        let cannot_hold = (verdict == Verdict::CannotHold).then(|| Reason {
            id: "i".to_owned(),
            from,
            arithmetic: "1 + 1 = 3".to_owned(),
        });
        Claim {
            id: id.to_owned(),
            part: part.to_owned(),
            verdict,
            cannot_hold,
            ..Claim::new(id, verdict == Verdict::Holds, "it is so.")
        }
    }

    fn findings() -> Findings {
        let (own, fidelity) = (Origin::Own, Origin::Fidelity);
        Findings {
            cells: vec![
                cell(100.0, 114.0, false),
                cell(100.0, 124.0, false),
                cell(100.0, 200.0, false),
                cell(100.0, 100.0, true),
            ],
            claims: vec![
                claim("3", "a", Verdict::Holds, own),
                claim("3", "b", Verdict::DoesNotHold, own),
                claim("3", "b", Verdict::DoesNotHold, own),
                claim("3", "c", Verdict::CannotHold, own),
                claim("figure 4", "d", Verdict::CannotHold, fidelity),
                claim("", "order", Verdict::DoesNotHold, own),
            ],
            ..Findings::default()
        }
    }

    #[test]
    fn counts_are_given_with_and_without_what_cannot_hold() {
        let found = findings();
        let each = Scope::EACH.map(|scope| Counts::of_findings(&found, scope));
        let claims = each.clone().map(|of| (of.claims.held, of.claims.all));
        assert_eq!(claims, [(1, 6), (1, 5), (1, 4)]);
        let [all, ..] = each;
        assert_eq!(
            (all.near.short(), all.wide.short()),
            ("1/3".into(), "2/3".into())
        );
    }

    #[test]
    fn a_part_is_a_short_line_with_what_fails_of_it() {
        let text = verdicts(&findings(), &["3"]).render(Style::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].starts_with("table 3"), "{text}");
        assert!(
            lines[1].ends_with("1/4   1/3   2/3      -  b x2, cannot: c"),
            "{text}"
        );
        assert!(lines[2].ends_with("cannot: d"), "{text}");
        assert!(
            lines[3].starts_with(EVERYTHING) && lines[3].ends_with("order"),
            "{text}"
        );
    }

    #[test]
    fn long_lists_are_continued_within_the_screen() {
        let mut found = findings();
        for n in 0..30 {
            let id = format!("a-claim-with-a-long-name-{n}");
            found
                .claims
                .push(claim("3", &id, Verdict::DoesNotHold, Origin::Own));
        }
        let long = "x".repeat(200);
        found
            .claims
            .push(claim("3", &long, Verdict::DoesNotHold, Origin::Own));
        let text = verdicts(&found, &["3"]).render(Style::Plain);
        assert!(text.lines().count() > 20, "{text}");
        assert!(
            text.lines().all(|line| line.len() <= SCREEN_COLUMNS),
            "{text}"
        );
        assert!(text.contains("a-claim-with-a-long-name-29"), "{text}");
    }

    #[test]
    fn a_contradiction_that_is_not_shown_is_seen() {
        let mut found = findings();
        let impossible = |shown| crate::Impossible {
            reason: Reason {
                id: format!("shown-{shown}"),
                from: Origin::Own,
                arithmetic: String::new(),
            },
            shown,
            covers: String::new(),
        };
        assert_eq!(contradictions(&found), "");
        found.impossible = vec![impossible(true), impossible(false)];
        let line = "Contradictions in the paper: 1. NOT SHOWN: shown-false.";
        assert_eq!(contradictions(&found), line);
        let text = reasons(&found).render(Style::Plain);
        assert!(
            text.contains("NOT SHOWN") && text.contains("cannot hold"),
            "{text}"
        );
    }
}
