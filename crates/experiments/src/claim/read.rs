//! Reader of `claims.toml`.

use super::comparison::{Course, Kind, Margin, Sense, Share, Test};
use super::expression::{Expression, Named};
use super::impossible::{CellPattern, ClaimPattern, ImpossibleSpec};
use super::words::Words;
use super::{Body, Checked, ClaimFile, ClaimSpec, Compared, FILE, Malformed, NoteSpec};
use crate::ExperimentError;
use crate::verdict::Origin;
use std::collections::BTreeSet;
use tidegate_config::{Field, Section, document};

/// Reads the claims of a paper, in the order of the file; an empty text has none.
///
/// # Errors
/// Returns every mistake with its line and a correct example.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Result<Vec<ClaimSpec>, ExperimentError> {
    Ok(read_file(text)?.claims)
}

/// Reads the claims of a paper, what cannot hold of it, and notes, in the order of the file.
///
/// # Errors
/// Returns every mistake with its line and a correct example.
pub(crate) fn read_file(text: &str) -> Result<ClaimFile, ExperimentError> {
    let file = |root: &Field<'_>| {
        let mut root = Section::open(root)?;
        let mut ids = BTreeSet::new();
        // Collected before the question mark, so that every mistake is reported.
        let claims: Vec<_> = (root.take_tables("claim").iter())
            .map(|field| claims_of(field, &mut ids))
            .collect();
        let impossible: Vec<_> = (root.take_tables("impossible").iter())
            .map(|field| impossible(field, &mut ids))
            .collect();
        let notes: Vec<_> = (root.take_tables("note").iter())
            .map(|field| note(field, &mut ids))
            .collect();
        root.finish();
        let claims = claims.into_iter().collect::<Option<Vec<_>>>()?;
        Some(ClaimFile {
            claims: claims.concat(),
            impossible: impossible.into_iter().collect::<Option<_>>()?,
            notes: notes.into_iter().collect::<Option<_>>()?,
        })
    };
    Ok(document::read(text, FILE, file)?.config)
}

const ORIGINS: [(&str, Origin); 2] = [("fidelity", Origin::Fidelity), ("own", Origin::Own)];

/// Reads a section `[[impossible]]`.
fn impossible(field: &Field<'_>, ids: &mut BTreeSet<String>) -> Option<ImpossibleSpec> {
    let mut section = Section::open(field)?;
    let id = id(&mut section, ids)?;
    let replaced = Replaced::new();
    let reader = Reader::open(&mut section, &replaced)?;
    let from = section.need("from", "from = \"fidelity\" or \"own\"")?;
    let claims: Option<Vec<_>> = (section.take_tables("claims").iter())
        .map(|field| {
            let mut section = Section::open(field)?;
            let pattern = ClaimPattern {
                id: text(&mut section, "id", "id = \"shares\"")?,
                claim: section.read("claim", "*", |field| field.text())?.to_owned(),
            };
            section.finish();
            Some(pattern)
        })
        .collect();
    let cells: Option<Vec<_>> = (section.take_tables("cells").iter())
        .map(|field| {
            let mut section = Section::open(field)?;
            let pattern = cell_pattern(&mut section)?;
            section.finish();
            Some(pattern)
        })
        .collect();
    let comparisons: Option<Vec<_>> = (section.take_tables("comparisons").iter())
        .map(|field| {
            let mut section = Section::open(field)?;
            let pattern = cell_pattern(&mut section)?;
            let against = section.read("against", "*", |field| field.text())?;
            section.finish();
            Some((pattern, against.to_owned()))
        })
        .collect();
    let tests = section.take_tables("contradiction");
    if tests.is_empty() {
        let example = "contradiction = [{ below = \"paper(used_pct)\", than = 95 }]";
        section.error("nothing is compared", example);
    }
    let tests: Option<Vec<_>> = tests.iter().map(|field| reader.test(field)).collect();
    let why = section.need(
        "why",
        "why = \"the disk is used to {paper(used_pct):.0} %\"",
    )?;
    let why = reader.words(&why);
    section.finish();
    let tests = tests.filter(|tests| !tests.is_empty())?;
    Some(ImpossibleSpec {
        id,
        from: from.choice(&ORIGINS)?,
        claims: claims?,
        cells: cells?,
        comparisons: comparisons?,
        contradiction: tests.into_iter().map(|checked| checked.test).collect(),
        why: why?,
    })
}

fn cell_pattern(section: &mut Section<'_>) -> Option<CellPattern> {
    Some(CellPattern {
        table: text(section, "table", "table = \"figure 12\"")?,
        row: text(section, "row", "row = \"3200\", or \"*\"")?,
        column: text(section, "column", "column = \"vm1_iops\", or \"*\"")?,
    })
}

/// Reads a text that must be there.
fn text(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<String> {
    Some(section.need(key, example)?.text()?.to_owned())
}

/// Reads a section `[[note]]`.
fn note(field: &Field<'_>, ids: &mut BTreeSet<String>) -> Option<NoteSpec> {
    let mut section = Section::open(field)?;
    let id = id(&mut section, ids)?;
    let part = text(&mut section, "part", "part = \"3\", where the paper has it")?;
    let replaced = Replaced::new();
    let reader = Reader::open(&mut section, &replaced)?;
    let words = section.need("text", "text = \"it is {paper(latency_ms):.1} ms\"")?;
    let text = reader.words(&words);
    section.finish();
    Some(NoteSpec {
        id,
        part,
        text: text?,
    })
}

/// Replacements of an entry of `each`.
type Replaced = Vec<(String, String)>;

fn replace(text: &str, replaced: &Replaced) -> String {
    let put =
        |text: String, (key, value): &(String, String)| text.replace(&format!("{{{key}}}"), value);
    replaced.iter().fold(text.to_owned(), put)
}

/// Reads a claim and those of its `also`, once for each entry of its `each`.
fn claims_of(field: &Field<'_>, ids: &mut BTreeSet<String>) -> Option<Vec<ClaimSpec>> {
    let mut section = Section::open(field)?;
    let part = section.need("part", "part = \"figure 12\", where the paper has it")?;
    let (part, each) = (part.text()?, read_replacements(&mut section)?);
    // Once for all entries of `each`, which share the name.
    let name = id(&mut section, ids)?;
    let mut also = Vec::new();
    for field in section.take_tables("also") {
        let mut section = Section::open(&field)?;
        also.push((id(&mut section, ids)?, section));
    }
    let mut all = Vec::new();
    for replaced in &each {
        all.push(claim(&mut section, (&name, part), replaced)?);
        for (name, section) in &mut also {
            all.push(claim(section, (name.as_str(), part), replaced)?);
        }
    }
    // `finish` reports keys that nothing has read, hence after all entries.
    also.into_iter().for_each(|(_, section)| section.finish());
    section.finish();
    Some(all)
}

/// Reads the unique name of a claim.
fn id(section: &mut Section<'_>, ids: &mut BTreeSet<String>) -> Option<String> {
    let field = section.need("id", "id = \"settles-in-time\"")?;
    let id = field.text()?.to_owned();
    if ids.insert(id.clone()) {
        return Some(id);
    }
    field.error(format!("there is another claim `{id}`"), "an id of its own");
    None
}

/// Reads the replacements of a table of claims.
fn read_replacements(section: &mut Section<'_>) -> Option<Vec<Replaced>> {
    let entries = section.take_tables("each");
    if entries.is_empty() {
        // A claim without `each` stands for itself, with nothing to replace.
        return Some(vec![Replaced::new()]);
    }
    let replaced = |entry: &Field<'_>| -> Option<Replaced> {
        let words = Section::open(entry)?;
        let words = words.entries();
        words
            .map(|(entry, field)| Some((entry.key.clone(), field.text()?.to_owned())))
            .collect()
    };
    entries.iter().map(replaced).collect()
}

fn claim(
    section: &mut Section<'_>,
    (id, part): (&str, &str),
    replaced: &Replaced,
) -> Option<ClaimSpec> {
    let variant = section.read("variant", "", |field| field.text())?;
    let body = match section.take("code") {
        Some(code) => Body::Code(code.text()?.to_owned()),
        None => Body::Compared(compared(section, replaced)?),
    };
    Some(ClaimSpec {
        id: id.to_owned(),
        part: replace(part, replaced),
        variant: replace(variant, replaced),
        body,
    })
}

fn compared(section: &mut Section<'_>, replaced: &Replaced) -> Option<Compared> {
    let reader = Reader::open(section, replaced)?;
    let claim = section.need("claim", "claim = \"VM1 has what it asks for\"")?;
    let detail = section.need("detail", "detail = \"it has {iops(vm1):.0} IOPS\"")?;
    let tests = section.take_tables("holds");
    if tests.is_empty() {
        let example = "holds = [{ at_least = \"iops(vm1)\", than = 200 }]";
        section.error("nothing is compared", example);
        return None;
    }
    let tests = tests.iter().map(|field| reader.test(field));
    Some(Compared {
        tests: tests.collect::<Option<_>>()?,
        claim: reader.words(&claim)?,
        detail: reader.words(&detail)?,
        more: match section.take("more") {
            Some(more) => Some(reader.words(&more)?),
            None => None,
        },
    })
}

/// Reader of the parts of a claim.
struct Reader<'a> {
    replaced: &'a Replaced,
    named: Named,
}

const KINDS: &str = "one of below, at_most, equals, at_least and above (with than), within (with \
                     of, and part or points), between (with from and to), order, rises, falls";

const SENSES: [(&str, Sense); 5] = [
    ("below", Sense::Below),
    ("at_most", Sense::AtMost),
    ("equals", Sense::Equals),
    ("at_least", Sense::AtLeast),
    ("above", Sense::Above),
];

/// Reports a mistake in a field.
fn reported<T>(field: &Field<'_>, found: Result<T, Malformed>) -> Option<T> {
    let tell = |wrong: Malformed| field.error(wrong.what, &format!("such as {}", wrong.example));
    found.map_err(tell).ok()
}

/// Reads any number.
fn number(field: &Field<'_>) -> Option<f64> {
    field.decimal(f64::MIN..=f64::MAX)
}

impl<'a> Reader<'a> {
    /// Creates a reader with the names of the section's `with`.
    fn open(section: &mut Section<'_>, replaced: &'a Replaced) -> Option<Reader<'a>> {
        let mut reader = Reader {
            replaced,
            named: Named::new(),
        };
        if let Some(with) = section.take("with") {
            for (entry, field) in Section::open(&with)?.entries() {
                let expression = reader.expression(&field)?;
                // In the order of the file: a name may use those before it.
                reader.named.insert(entry.key.clone(), expression);
            }
        }
        Some(reader)
    }

    fn words(&self, field: &Field<'_>) -> Option<Words> {
        let text = replace(field.text()?, self.replaced);
        reported(field, Words::parse(&text, &self.named))
    }

    /// Reads a number, or an expression in quotes.
    fn expression(&self, field: &Field<'_>) -> Option<Expression> {
        // A TOML number; an expression is always in quotes.
        if matches!(field.describe().chars().next(), Some('0'..='9' | '-')) {
            return number(field).map(Expression::Number);
        }
        let text = replace(field.text()?, self.replaced);
        reported(field, Expression::parse(&text, &self.named))
    }

    fn need(&self, section: &mut Section<'_>, key: &'static str) -> Option<Expression> {
        let field = section.need(key, &format!("{key} = \"iops(vm1)\", or a number"))?;
        self.expression(&field)
    }

    fn test(&self, field: &Field<'_>) -> Option<Checked> {
        let mut section = Section::open(field)?;
        let kind = self.kind(&mut section);
        let share = share(&mut section);
        let otherwise = section.take("otherwise").map(|field| self.words(&field));
        section.finish();
        let test = Test {
            kind: kind?,
            share: share?,
        };
        let otherwise = match otherwise {
            Some(words) => Some(words?),
            None => None,
        };
        Some(Checked { test, otherwise })
    }

    fn kind(&self, section: &mut Section<'_>) -> Option<Kind> {
        // The first key found decides; any other is reported as unknown by `finish`.
        for (key, sense) in SENSES {
            if let Some(field) = section.take(key) {
                let of = self.expression(&field)?;
                return Some(Kind::Beside(sense, of, self.need(section, "than")?));
            }
        }
        if let Some(field) = section.take("within") {
            let (of, margin) = (self.need(section, "of")?, margin(section)?);
            return Some(Kind::Within(self.expression(&field)?, of, margin));
        }
        if let Some(field) = section.take("between") {
            let (from, to) = (self.need(section, "from")?, self.need(section, "to")?);
            return Some(Kind::Between(self.expression(&field)?, from, to));
        }
        if let Some(field) = section.take("order") {
            let all = field.elements()?;
            let all: Option<Vec<_>> = all.iter().map(|field| self.expression(field)).collect();
            return all.map(Kind::Order);
        }
        for (key, rises) in [("rises", true), ("falls", false)] {
            if let Some(field) = section.take(key) {
                let course = Course {
                    rises,
                    strictly: section.read("strictly", false, |field| field.flag())?,
                    slack: section.read("slack", 0.0, number)?,
                };
                return Some(Kind::Course(self.expression(&field)?, course));
            }
        }
        section.error("it compares nothing", KINDS);
        None
    }
}

fn margin(section: &mut Section<'_>) -> Option<Margin> {
    if let Some(field) = section.take("points") {
        return number(&field).map(Margin::Points);
    }
    let field = section.need("part", "part = 0.1 of the figure, or points = 5")?;
    number(&field).map(Margin::Part)
}

fn share(section: &mut Section<'_>) -> Option<Share> {
    if let Some(field) = section.take("in_share") {
        return field.decimal(0.0..=1.0).map(Share::AtLeast);
    }
    match section.take("in_more_than") {
        Some(field) => field.decimal(0.0..=1.0).map(Share::MoreThan),
        None => Some(Share::All),
    }
}
