//! Comparison of the glossary with the keys of disk and vCPU scenarios, both ways.

use std::collections::BTreeSet;

use tidegate_vcpu::scenario::keys as vcpu;

use super::keys;

const GLOSSARY: &str = include_str!("../../../../docs/dev/GLOSSARY.md");

/// Keys that are words of fio or of statistics, with the meaning that they have there. The glossary
/// has one row for each of these two languages rather than one for each word.
const FOREIGN: [&str; 26] = [
    "bs",
    "bssplit",
    "deviation",
    "fsync",
    "io_size",
    "iodepth",
    "mean",
    "median",
    "nrfiles",
    "number_ios",
    "numjobs",
    "offset",
    "offset_increment",
    "random_distribution",
    "rate_iops",
    "rate_process",
    "runtime",
    "rw",
    "rwmixread",
    "sigma",
    "startdelay",
    "sync",
    "thinktime",
    "thinktime_blocks",
    "to",
    "trim",
];

/// Texts between backticks, without brackets and without the tables before the last dot.
fn quoted(cell: &'static str) -> impl Iterator<Item = &'static str> {
    let texts = cell.split('`').skip(1).step_by(2);
    texts.map(|text| {
        let name = text.trim_matches(['[', ']']);
        name.rsplit('.').next().unwrap_or(name)
    })
}

/// Rows of a text's four-column tables, each as the list of its valid words: those of the final
/// name, or those of the present name that the final name repeats.
fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    let rows = lines.filter_map(|line| {
        let cells: Vec<&'static str> = line.split(" | ").collect();
        let &[now, last, _, _] = cells.as_slice() else {
            return None;
        };
        let (same, spelt) = (last.contains("same "), last.to_lowercase());
        let kept = quoted(now).filter(|word| same || spelt.split(' ').any(|part| part == *word));
        Some(quoted(last).chain(kept).collect())
    });
    rows.collect()
}

/// Keys of both scenario formats.
fn keys() -> BTreeSet<&'static str> {
    let sections = [&keys::SCENARIO, &vcpu::SCENARIO].map(|whole| whole.with_inner());
    let keys = sections.iter().flatten().flat_map(|section| section.keys);
    keys.map(|key| key.name).collect()
}

#[test]
fn every_key_of_a_scenario_is_in_the_glossary_or_a_foreign_word() {
    let words: BTreeSet<_> = rows(GLOSSARY).into_iter().flatten().collect();
    let keys = keys();
    assert!(keys.len() >= 100, "only {} keys", keys.len());
    let foreign = BTreeSet::from(FOREIGN);
    let missing = keys
        .iter()
        .filter(|key| !words.contains(*key) && !foreign.contains(*key));
    let missing: Vec<_> = missing.collect();
    assert_eq!(missing, [&""; 0], "add them to docs/dev/GLOSSARY.md");
}

#[test]
fn every_foreign_word_is_a_key() {
    let keys = keys();
    let stale: Vec<_> = FOREIGN
        .iter()
        .filter(|word| !keys.contains(*word))
        .collect();
    assert_eq!(stale, [&""; 0], "no scenario has these keys");
}

#[test]
fn every_word_of_the_glossary_about_scenarios_is_a_key() {
    let (_, scenarios) = GLOSSARY.split_once("\n## Scenarios\n").expect("a section");
    let (words, keys) = (rows(scenarios).concat(), keys());
    assert!(words.len() >= 60, "only {} words", words.len());
    // Options of the command line stand among the scenarios' rows as well.
    let unknown = words
        .iter()
        .filter(|word| !keys.contains(*word) && !word.starts_with("--"));
    let unknown: Vec<_> = unknown.collect();
    assert_eq!(unknown, [&""; 0], "no scenario has these keys");
}
