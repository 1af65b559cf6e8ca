//! Test that the glossary and the tables of keys agree, both ways.

use tidegate_config::keys::{KeyInfo, KeyKind, SectionInfo};

use super::documented;

const GLOSSARY: &str = include_str!("../../../../../docs/dev/GLOSSARY.md");

/// Row of the glossary: keys as they are now and as they are to be, and the sections they are in.
struct Row {
    line: &'static str,
    now: Vec<&'static str>,
    last: Vec<&'static str>,
    places: Vec<&'static str>,
}

/// Returns the texts between backticks.
fn quoted(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Returns the rows about the configuration; scenarios have keys of their own.
fn rows() -> Vec<Row> {
    let (configuration, _) = GLOSSARY.split_once("\n## Scenarios\n").expect("a section");
    let lines = configuration.lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| (line, line.split(" | ").collect::<Vec<_>>()));
    cells
        .filter(|(_, cells)| cells.len() == 4 && !cells[3].contains("scenario"))
        .map(|(line, cells)| Row {
            line,
            now: quoted(cells[0]),
            last: quoted(cells[1]),
            places: quoted(cells[3]),
        })
        .collect()
}

/// Returns the section's name in a heading, such as `vm.disk` in `[[vm.disk]]`; `None` for other
/// text.
fn heading(place: &str) -> Option<&str> {
    let inner = place.strip_prefix('[')?.strip_suffix(']')?;
    let list = inner
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    Some(list.unwrap_or(inner))
}

/// Splits a place such as `objective.limit` into the name of the section and the key.
fn dotted<'a>(
    place: &'a str,
    sections: &[&'static SectionInfo],
) -> Option<(&'static str, &'a str)> {
    let (table, key) = place.split_once('.')?;
    let section = sections
        .iter()
        .find(|section| last_part(section.name) == table)?;
    Some((section.name, key))
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns the name of the section that a key of kind table opens.
fn own_heading(kind: KeyKind) -> Option<&'static str> {
    match kind {
        KeyKind::Table(section) | KeyKind::Tables(section) => Some(section.name),
        KeyKind::OneOf(kinds) => kinds.iter().find_map(|kind| own_heading(*kind)),
        _ => None,
    }
}

impl Row {
    fn names(&self, section: &str, key: &KeyInfo, sections: &[&'static SectionInfo]) -> bool {
        let headings = || self.places.iter().filter_map(|place| heading(place));
        let is_listed = self.now.contains(&key.name) || self.last.contains(&key.name);
        let own = own_heading(key.kind);
        headings().any(|name| (name == section && is_listed) || Some(name) == own)
            || (self.places.iter())
                .any(|place| dotted(place, sections) == Some((section, key.name)))
    }

    /// Returns the keys that the row documents, with their sections; the key is empty for a section
    /// as a whole.
    fn claims(
        &self,
        sections: &[&'static SectionInfo],
    ) -> Vec<(&'static SectionInfo, &'static str)> {
        let of = |name: &str| {
            sections
                .iter()
                .find(|section| section.name == name)
                .copied()
        };
        let mut claims = Vec::new();
        for place in &self.places {
            match heading(place) {
                Some(name) => claims.extend(of(name).map(|section| (section, ""))),
                None => {
                    let key = dotted(place, sections);
                    claims.extend(key.and_then(|(name, key)| Some((of(name)?, key))));
                }
            }
        }
        claims
    }
}

#[test]
fn every_key_is_in_the_glossary() {
    let (rows, sections) = (rows(), documented());
    let mut missing = Vec::new();
    for section in &sections {
        for key in section.keys {
            if !rows
                .iter()
                .any(|row| row.names(section.name, key, &sections))
            {
                missing.push(format!("`{}` of [{}]", key.name, section.name));
            }
        }
    }
    assert_eq!(missing, [""; 0], "add them to docs/dev/GLOSSARY.md");
}

#[test]
fn every_key_of_the_glossary_is_read_unless_it_is_to_be_renamed() {
    let (rows, sections) = (rows(), documented());
    let mut unknown = Vec::new();
    let mut checked = 0;
    for row in &rows {
        let claims = row.claims(&sections);
        let is_key = |name: &str| {
            let mut claims = claims.iter();
            claims.any(|(section, _)| section.has(name) || last_part(section.name) == name)
        };
        // A row is valid with today's names, or with the final ones once the rename was carried
        // out.
        let holds = |names: &[&str]| names.iter().all(|name| is_key(name));
        let words = !claims.is_empty() && !row.now.is_empty();
        if words && !holds(&row.now) && (row.last.is_empty() || !holds(&row.last)) {
            unknown.push(row.line);
        }
        for (section, key) in &claims {
            let renamed = row.last.contains(key) && holds(&row.now);
            if !key.is_empty() && !section.has(key) && !renamed {
                unknown.push(row.line);
            }
        }
        checked += usize::from(words);
    }
    assert_eq!(unknown, [""; 0], "no reader accepts these keys");
    assert!(checked >= 30, "only {checked} rows");
}
