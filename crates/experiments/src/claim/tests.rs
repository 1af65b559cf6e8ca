//! Tests of the evaluator and of the messages about malformed claims.

use super::*;
use crate::verdict::{Origin, Verdict};
use crate::{Claim, Reference};
use std::collections::BTreeSet;

/// Measures by name: `one` is a figure, `three` a series with labels, `missing` has no runs.
struct Figures;

impl Measures for Figures {
    fn measure(&self, call: &Call) -> Result<Option<Series>, ExperimentError> {
        let labelled = |all: [(&str, f64); 3]| {
            let item = |(label, value): (&str, f64)| Item {
                label: label.to_owned(),
                value,
            };
            all.map(item).to_vec()
        };
        Ok(
            match (call.name.as_str(), call.arguments.join("|").as_str()) {
                ("one", "") => Some(series([2.0])),
                ("three", "") => Some(labelled([("a", 1.0), ("b", -4.0), ("c", 3.0)])),
                ("rising", "") => Some(series([1.0, 2.0, 1.9, 3.0])),
                ("of", "x, y|z") => Some(series([7.0])),
                ("missing" | "of", _) => None,
                _ => return Err(ExperimentError::data(FILE, "no such measure")),
            },
        )
    }
}

/// Checks a `claims.toml`: every claim is of exactly one of `parts` and names existing measures and
/// code, and each of these is named at least once.
pub(crate) fn are_sound<S: Subject>(
    text: &str,
    reference: &Reference,
    parts: &[&str],
    all: &[&[Measure<S>]],
    codes: &[&str],
) {
    let (mut measures, mut named_codes) = (BTreeSet::new(), Vec::new());
    for spec in read(text).expect("claims") {
        let of_it = parts.iter().filter(|part| **part == spec.part).count();
        assert_eq!(of_it, 1, "{}: there is no {}", spec.id, spec.part);
        let claim = match &spec.body {
            Body::Compared(claim) => claim,
            Body::Code(name) => {
                named_codes.push(name.clone());
                continue;
            }
        };
        for call in claim.measures() {
            match measure::Printed::from_call(call) {
                Some(printed) => assert!(
                    printed.is_in(reference),
                    "{}: the paper has no {call:?}",
                    spec.id
                ),
                None => {
                    let found = measure::find(all, call);
                    let found = found.unwrap_or_else(|e| panic!("{}: {e}", spec.id));
                    measures.insert(found.0.name);
                }
            }
        }
    }
    let known: BTreeSet<&str> = all
        .iter()
        .flat_map(|of| of.iter().map(|of| of.name))
        .collect();
    assert_eq!(
        measures, known,
        "measures that are named, and that there are"
    );
    named_codes.sort();
    assert_eq!(
        named_codes, codes,
        "each code once, in the order of the alphabet"
    );
}

/// Result of a claim with these lines.
fn evaluated(lines: &str) -> Result<Option<Claim>, ExperimentError> {
    let text = format!("[[claim]]\nid = \"c\"\npart = \"1\"\n{lines}");
    let claims = read(&text)?;
    let [
        ClaimSpec {
            body: Body::Compared(claim),
            ..
        },
    ] = claims.as_slice()
    else {
        panic!("{claims:?}");
    };
    Ok(claim
        .evaluate(&Figures)?
        .map(|result| result.with_ablations(&[])))
}

fn holds(test: &str) -> bool {
    let lines = format!("claim = \"\"\nholds = [{{ {test} }}]\ndetail = \"\"");
    evaluated(&lines).expect("a claim").expect("figures").holds
}

fn text(words: &str) -> String {
    let holds = "holds = [{ above = \"three\", than = 0 }]";
    let lines = format!("claim = \"\"\n{holds}\ndetail = \"{words}\"");
    let claim = evaluated(&lines).expect("a claim").expect("figures");
    claim.detail
}

/// Error message for a malformed claim.
fn error(lines: &str) -> String {
    evaluated(lines).expect_err("malformed").to_string()
}

#[test]
fn largest_index_gives_no_figure() {
    let lines = format!(
        "claim = \"\"\nholds = [{{ below = 'one[{}]', than = 1 }}]\ndetail = \"\"",
        i64::MAX
    );
    assert!(evaluated(&lines).expect("a claim").is_none());
}

#[test]
fn a_figure_is_below_or_above_another() {
    assert!(holds("below = 'one', than = 2.1") && !holds("below = 'one', than = 2"));
    assert!(holds("at_most = 'one', than = 2") && !holds("at_most = 'one', than = 1.9"));
    assert!(holds("equals = 'one', than = 2") && !holds("equals = 'one', than = 3"));
    assert!(holds("at_least = 'one', than = 2") && !holds("at_least = 'one', than = 2.1"));
    assert!(holds("above = 'one', than = 1.9") && !holds("above = 'one', than = 2"));
    // A ratio is one of these; each item of a series has to pass.
    assert!(holds("at_least = 'one / three[0]', than = 2"));
    assert!(holds("below = 'three', than = 'three + 1'"));
    assert!(!holds("below = 'three', than = 2"));
}

#[test]
fn a_figure_is_within_a_part_or_points_of_another() {
    assert!(holds("within = 'one', of = 4, part = 0.5"));
    assert!(!holds("within = 'one', of = 4.1, part = 0.5"));
    assert!(holds("within = 'three', of = 0, points = 4"));
    assert!(!holds("within = 'three', of = 0, points = 3.9"));
}

#[test]
fn a_figure_is_between_two_others() {
    assert!(holds("between = 'three', from = -4, to = 3"));
    assert!(!holds("between = 'three', from = -3.9, to = 3"));
    assert!(!holds("between = 'three', from = -4, to = 2.9"));
}

#[test]
fn an_order_is_one_of_neighbours_and_of_each_item() {
    assert!(holds("order = ['one', 'one + 1', 5]"));
    assert!(!holds("order = ['one', 'one', 5]") && !holds("order = ['one', 5, 4]"));
    assert!(holds("order = ['three', 'three + 1']"));
    assert!(!holds("order = ['three', '3 * three']"));
}

#[test]
fn a_series_rises_or_falls_but_for_its_slack() {
    assert!(!holds("rises = 'rising'") && holds("rises = 'rising', slack = 0.05"));
    assert!(!holds("rises = 'rising', slack = 0.04") && !holds("falls = '0 - rising'"));
    assert!(holds("rises = 'rising', slack = 0.06, strictly = true"));
    assert!(holds("rises = '0 * rising'") && !holds("rises = '0 * rising', strictly = true"));
    assert!(holds("falls = 'three[..2]'") && !holds("falls = 'three'"));
}

#[test]
fn some_of_the_items_may_be_enough() {
    let two_of_three = "above = 'three', than = 0";
    assert!(!holds(two_of_three));
    assert!(holds(&format!("{two_of_three}, in_share = 0.66")));
    assert!(!holds(&format!("{two_of_three}, in_share = 0.67")));
    assert!(holds(&format!("{two_of_three}, in_more_than = 0.5")));
    assert!(!holds("above = 'three[..2]', than = 0, in_more_than = 0.5"));
}

#[test]
fn figures_are_computed_item_by_item() {
    for (words, expected) in [
        ("{1 + 2 * 3:.0} {(1 + 2) * 3:.0} {8 / 4 / 2:.0}", "7 9 1."),
        (
            "{three[0]:.0} {three[-1]:.0} {three[1..]:.0} {three[..-1]:.0}",
            "1 3 -4, 3 1, -4.",
        ),
        (
            "{max(three):.0} {min(three):.0} {farthest(three):+.1}",
            "3 -4 -4.0.",
        ),
        (
            "{sum(three):.0} {mean(three):.0} {abs(three):.0}",
            "0 0 1, 4, 3.",
        ),
        (
            "{(2 * three)[at max(three)]:.0} {three[at three[0]]:.0}",
            "6 1.",
        ),
        ("{10 * three:.0} {three - three:.0}", "10, -40, 30 0, 0, 0."),
        ("{of('x, y', z):.0}", "7."),
    ] {
        assert_eq!(text(words), expected, "{words}");
    }
}

#[test]
fn texts_have_figures_in_them() {
    for (words, expected) in [
        ("it is {one:.2} s", "it is 2.00 s."),
        ("{one:.} and {one / 4:.}", "2 and 0.5."),
        ("{three:.0 and} {three[..1]:.0 and}", "1, -4 and 3 1."),
        ("{three:.1 named}", "1.0 (a), -4.0 (b), 3.0 (c)."),
        (
            "{three after one * three:.0}",
            "1 after 2, -4 after -8, 3 after 6.",
        ),
        ("{max(three):.0} ({who max(three)})", "3 (c)."),
        ("{three of one * three:.0}", "1 of 2, -4 of -8, 3 of 6."),
        ("in {held} of {all}", "in 2 of 3."),
        ("not in {failing}", "not in b."),
    ] {
        assert_eq!(text(words), expected, "{words}");
    }
}

#[test]
fn what_fails_is_told_beside_the_detail() {
    let detail = |tests: &str| {
        let lines = "claim = ''\ndetail = 'it is {one:.0}'\nmore = 'Not in {failing}'";
        let claim = evaluated(&format!("{lines}\nholds = [{tests}]"));
        claim.expect("a claim").expect("figures").detail
    };
    let otherwise = "otherwise = ', more than {one / 2:.0}'";
    assert_eq!(detail("{ above = 'one', than = 1 }"), "it is 2.");
    assert_eq!(
        detail(&format!(
            "{{ above = 'one', than = 3 }}, {{ below = 'one', than = 1, {otherwise} }}"
        )),
        "it is 2, more than 1. Not in ."
    );
    // The sentence is there although enough of the items pass.
    assert_eq!(
        detail("{ above = 'three', than = 0, in_share = 0.6 }"),
        "it is 2. Not in b."
    );
    assert_eq!(
        detail(&format!("{{ above = 'three', than = 0, {otherwise} }}")),
        "it is 2, more than 1. Not in b."
    );
    let missing = "claim = ''\ndetail = ''\nmore = '{missing:.0}'\nholds = [{ above = 'one', ";
    let failing = evaluated(&format!("{missing}than = 3 }}]")).expect("a claim");
    assert!(failing.is_none(), "{failing:?}");
    assert!(
        evaluated(&format!("{missing}than = 1 }}]"))
            .expect("a claim")
            .is_some()
    );
}

#[test]
fn names_stand_for_expressions_and_words_for_others() {
    let claims = read(
        "[[claim]]\nid = \"c\"\npart = \"figure {n}\"\nclaim = \"of {n}\"\n\
         each = [{ n = \"1\" }, { n = \"2\" }]\nwith = { a = \"one + {n}\", b = \"2 * a\" }\n\
         holds = [{ equals = \"b\", than = 6 }]\ndetail = \"{b:.0}\"",
    );
    let claims = claims.expect("two claims");
    let texts: Vec<_> = claims
        .iter()
        .map(|spec| {
            let Body::Compared(claim) = &spec.body else {
                panic!("{spec:?}");
            };
            let claim = claim.evaluate(&Figures).expect("figures").expect("all");
            let claim = claim.with_ablations(&[]);
            (spec.part.clone(), claim.claim, claim.holds, claim.detail)
        })
        .collect();
    let of = |part: &str, claim: &str, holds, detail: &str| {
        (part.to_owned(), claim.to_owned(), holds, detail.to_owned())
    };
    assert_eq!(
        texts,
        [
            of("figure 1", "of 1", true, "6."),
            of("figure 2", "of 2", false, "8."),
        ]
    );
}

#[test]
fn claims_are_repeated_together() {
    let claims = read(
        "[[claim]]\nid = 'a'\npart = 'figure 1'\ncode = 'f'\n\
         each = [{ n = '1' }, { n = '2' }]\n[[claim.also]]\nid = 'b'\ncode = 'g'",
    );
    let claims = claims.expect("four");
    let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "a", "b"]);
    assert!(claims.iter().all(|claim| claim.part == "figure 1"));
}

#[test]
fn a_claim_without_its_runs_is_left_out() {
    for lines in [
        "claim = ''\nholds = [{ below = 'missing', than = 1 }]\ndetail = ''",
        "claim = ''\nholds = [{ below = 'one', than = 1 }]\ndetail = '{missing:.0}'",
        "claim = '{one + missing:.0}'\nholds = [{ below = 'one', than = 1 }]\ndetail = ''",
    ] {
        assert_eq!(evaluated(lines).expect("a claim"), None, "{lines}");
    }
}

#[test]
fn what_is_malformed_is_told_with_its_place_and_what_would_be_right() {
    let of = |holds: &str| error(&format!("claim = ''\ndetail = ''\nholds = [{{ {holds} }}]"));
    for (message, parts) in [
        (
            error("claim = ''\ndetail = ''"),
            &["nothing is compared", "holds = [{"][..],
        ),
        (
            error("claim = 'a {one'\ndetail = ''\nholds = [{ below = 1, than = 2 }]"),
            &["claims.toml:4", "a brace is not closed"],
        ),
        (
            error("claim = '{one}'\ndetail = ''\nholds = [{ below = 1, than = 2 }]"),
            &["`{one}` does not say how", ":.1}"],
        ),
        (
            of("blow = 'one', than = 1"),
            &["it compares nothing", "at_least"],
        ),
        (of("below = 'one'"), &["`than` is missing"]),
        (
            of("below = 'one one', than = 1"),
            &["claims.toml:6", "`one` follows `one`"],
        ),
        (
            of("below = 'one +', than = 1"),
            &["found the end where a figure is expected"],
        ),
        (
            of("below = '(one', than = 1"),
            &["found the end where `)` is expected"],
        ),
        (
            of("below = 'one[x]', than = 1"),
            &["`[x]` is not a slice of a series", "[..4]"],
        ),
        (of("below = 'of(,)', than = 1"), &["an argument is empty"]),
        (
            of("within = 'one', of = 1"),
            &["`part` is missing", "points = 5"],
        ),
        (of("below = 1, than = 2, in_share = 90"), &["out of range"]),
        (of("below = 'unheard', than = 1"), &["no such measure"]),
        (
            of("below = 'three', than = 'rising'"),
            &["a series of 3 figures and one of 4"],
        ),
    ] {
        for part in parts {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
    let twice = "[[claim]]\nid = 'c'\npart = '1'\ncode = 'f'\n".repeat(2);
    let message = read(&twice).expect_err("twice").to_string();
    assert!(message.contains("there is another claim `c`"), "{message}");
}

/// Contradiction of a paper with two figures, whose first is twice the second.
fn contradictions(lines: &str) -> Result<Impossibles, ExperimentError> {
    let paper = "whole = 100\n[table3]\ncolumns = [\"vm\", \"cfq\", \"edf\"]\n\
                 rows = [[\"a\", 20, 10], [\"b\", 4, 2]]";
    let reference = Reference::parse(paper).expect("TOML");
    let text = format!("[[impossible]]\nid = 'i'\nfrom = 'own'\n{lines}");
    Impossibles::evaluate(read_file(&text)?.impossible, &reference)
}

/// Cell of table 3 in column `cfq`.
fn cell_of(row: &str) -> crate::Cell {
    crate::Cell {
        row: row.to_owned(),
        ..crate::findings::tests::cell(1.0, 1.0, false)
    }
}

#[test]
fn a_contradiction_is_computed_from_the_papers_figures() {
    let lines = "claims = [{ id = 'c', claim = '*twice' }]\n\
                 cells = [{ table = '3', row = 'a', column = '*' }]\n\
                 comparisons = [{ table = '3', row = 'b', column = 'cfq', against = 'e*' }]\n\
                 with = { half = 'theirs(3, *, cfq) / 2' }\n\
                 why = '{half:.0} of {paper(whole):.0}'\n";
    let failing = |id: &str, claim: &str| ClaimResult::new(claim, false, "").identified(id, "3");
    let holding = ClaimResult::new("it is twice", true, "").identified("c", "3");
    let shown = format!(
        "{lines}contradiction = [{{ within = 'half', of = 'theirs(3, *, edf)', part = 0 }}]"
    );
    let shown = contradictions(&shown).expect("figures");
    let results = || {
        vec![
            failing("c", "it is twice"),
            failing("c", "it is thrice"),
            failing("d", "it is twice"),
            holding.clone(),
        ]
    };
    let verdicts = |of: &Impossibles| -> Vec<Verdict> {
        let claims = of.judge_all(results(), &[]).into_iter();
        claims.map(|claim| claim.verdict).collect()
    };
    // Covered by its id and words, and one that holds all the same holds.
    let (cannot, does_not) = (Verdict::CannotHold, Verdict::DoesNotHold);
    assert_eq!(
        verdicts(&shown),
        [cannot, does_not, does_not, Verdict::Holds]
    );
    let cells = shown.mark(vec![cell_of("a"), cell_of("b")]);
    let reason = cells[0].cannot_hold.as_ref().expect("it is covered");
    assert_eq!(
        (reason.id.as_str(), reason.arithmetic.as_str()),
        ("i", "10, 2 of 100")
    );
    assert_eq!(cells[1].cannot_hold, None);
    assert_eq!(cells[0].uncomparable, []);
    assert_eq!(cells[1].uncomparable, [("e*".to_owned(), Origin::Own)]);

    // One test of several that fails: nothing is shown, and nothing is covered.
    let not = "contradiction = [{ below = 'half', than = 11 }, { below = 'half', than = 10 }]";
    let not = contradictions(&format!("{lines}{not}")).expect("figures");
    assert_eq!(verdicts(&not)[0], does_not);
    assert_eq!(not.mark(vec![cell_of("a")])[0].cannot_hold, None);
    let results = not.into_results();
    assert!(!results[0].shown);
    assert_eq!(
        results[0].covers,
        "claim c (*twice); table 3 a, *; comparisons of table 3 b, cfq with e*"
    );
}

#[test]
fn a_contradiction_names_the_papers_figures_alone() {
    let of = |of: &str| {
        let test = format!("contradiction = [{{ below = '{of}', than = 1 }}]");
        let found = contradictions(&format!("why = ''\n{test}"));
        found.expect_err("malformed").to_string()
    };
    for (message, part) in [
        (of("ours(3, a, cfq)"), "`ours` is no figure of the paper"),
        (of("iops(vm1)"), "`iops` is no figure of the paper"),
        (of("paper(half)"), "half is no figure"),
        (of("theirs(3, c, cfq)"), "i: the paper has no such figures"),
        (
            contradictions("why = ''").expect_err("no test").to_string(),
            "nothing is compared",
        ),
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn a_note_is_computed_from_the_papers_figures() {
    let reference = Reference::parse("[rnd]\nthreads = 8\nms = 60").expect("TOML");
    let text = "[[note]]\nid = 'n'\npart = '3'\n\
                text = '{1000 * paper(rnd.threads) / paper(rnd.ms):.0} IOPS'";
    let file = read_file(text).expect("a note");
    let found = notes(file.notes, &reference).expect("figures");
    assert_eq!(
        (found[0].part.as_str(), found[0].text.as_str()),
        ("3", "133 IOPS")
    );
    let missing = read_file(&text.replace("rnd.ms", "rnd.s")).expect("a note");
    assert!(notes(missing.notes, &reference).is_err());
}
