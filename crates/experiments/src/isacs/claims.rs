//! What the paper claims of ISACS against Credit2, and whether it is so here.

use super::policy::Policy;
use super::run::Runs;
use super::setup::Case;
use crate::findings::Sense;
use crate::said::Said;
use crate::{Cell, ExperimentError, Reference, Wanted};
use std::collections::BTreeMap;

/// The part of the cells in which ISACS is to be better where the paper has it better.
const ORDER: f64 = 0.9;
/// How far a gain may be from the paper's, of 1.
const GAIN: f64 = 0.1;
/// Two figures are the same that differ by less, of 1.
const SAME: f64 = 0.01;
/// What fixed work may take longer: the paper's "0.95x", its worst.
const LOSS: f64 = 0.055;

/// A comparison of the paper: what Credit2 and ISACS have, theirs and ours.
struct Pair<'a> {
    table: &'a str,
    about: &'a str,
    sense: Sense,
    theirs: [f64; 2],
    ours: [f64; 2],
}

impl Pair<'_> {
    /// By what part ISACS is better than Credit2.
    fn gain([credit2, isacs]: [f64; 2], sense: Sense) -> f64 {
        match sense {
            Sense::More => isacs / credit2 - 1.0,
            Sense::Less => 1.0 - isacs / credit2,
        }
    }

    fn their_gain(&self) -> f64 {
        Pair::gain(self.theirs, self.sense)
    }

    fn our_gain(&self) -> f64 {
        Pair::gain(self.ours, self.sense)
    }

    fn name(&self) -> String {
        format!("{}, {}", crate::findings::heading(self.table), self.about)
    }
}

fn pairs(cells: &[Cell]) -> Vec<Pair<'_>> {
    let mut found: BTreeMap<(&str, &str), [Option<&Cell>; 2]> = BTreeMap::new();
    for cell in cells {
        if let Some(contest) = &cell.contest {
            let key = (cell.table.as_str(), contest.about.as_str());
            let both = found.entry(key).or_default();
            both[usize::from(contest.who == "isacs")] = Some(cell);
        }
    }
    let pair = |((table, about), both)| {
        let [Some(credit2), Some(isacs)]: [Option<&Cell>; 2] = both else {
            return None;
        };
        Some(Pair {
            table,
            about,
            sense: isacs.contest.as_ref()?.sense,
            theirs: [credit2.theirs, isacs.theirs],
            ours: [credit2.ours, isacs.ours],
        })
    };
    found.into_iter().filter_map(pair).collect()
}

/// All that can be said about what was run.
pub(super) fn claims(
    reference: &Reference,
    runs: &Runs,
    [credit2, isacs]: [Policy; 2],
    cells: &[Cell],
    wanted: &Wanted,
) -> Result<Vec<Said>, ExperimentError> {
    let pairs = pairs(cells);
    let io: Vec<&Pair<'_>> = pairs.iter().filter(|p| p.table != "section 5.4").collect();
    let mut claims = Vec::new();
    claims.extend(better(&io));
    claims.extend(not_worse(&io));
    claims.extend(gains(&io));
    for (table, case, path) in [
        ("3", Case::PingHybrid(3), "hybrid"),
        ("4", Case::PingMixed, "mixed"),
    ] {
        let both = [credit2, isacs].map(|policy| runs.get(&(case, policy)));
        if let ([Some(plain), Some(aware)], true) = (both, wanted.wants(table)) {
            let theirs = |who: &str| reference.figure(&format!("tails.{path}.{who}"));
            let theirs = theirs("credit2")? / theirs("isacs")?;
            claims.push(tail(path, theirs, [plain.longest_ms, aware.longest_ms]));
        }
    }
    claims.extend(pairs.iter().filter(|p| p.table == "section 5.4").map(loss));
    Ok(claims)
}

/// ISACS is better where the paper has it better.
fn better(pairs: &[&Pair<'_>]) -> Option<Said> {
    let theirs = |pair: &&Pair<'_>| pair.their_gain() > 0.0;
    let all: Vec<&Pair<'_>> = pairs.iter().copied().filter(theirs).collect();
    let (same, other): (Vec<&Pair<'_>>, Vec<&Pair<'_>>) =
        all.iter().partition(|pair| pair.our_gain() > 0.0);
    let names: Vec<String> = other.iter().map(|pair| pair.name()).collect();
    let more = match names.as_slice() {
        [] => String::new(),
        names => format!(" Not in {}.", names.join("; ")),
    };
    let said = Said::new(
        "ISACS is better than Credit2 in 90 % of the cells where the paper has it better",
        same.len() as f64 >= ORDER * all.len() as f64,
        format!("it is in {} of {}", same.len(), all.len()),
    );
    (!all.is_empty()).then(|| said.with_more(more))
}

/// In none ISACS is worse: cells in which nothing depends on who runs when are the same but for
/// chance.
fn not_worse(pairs: &[&Pair<'_>]) -> Option<Said> {
    let worse = |pair: &&&Pair<'_>| pair.our_gain() < -SAME;
    let names: Vec<String> = pairs.iter().filter(worse).map(|p| p.name()).collect();
    let better = pairs.iter().filter(|p| p.our_gain() > SAME).count();
    let more = match names.as_slice() {
        [] => String::new(),
        names => format!(" It is in {}.", names.join("; ")),
    };
    let same = pairs.len() - better - names.len();
    let said = Said::new(
        "ISACS is by more than 1 % worse than Credit2 in no cell",
        names.is_empty(),
        format!(
            "it is by more than 1 % better in {better}, worse in {}, and within it in {same}",
            names.len()
        ),
    );
    (!pairs.is_empty()).then(|| said.with_more(more))
}

/// By how much.
fn gains(pairs: &[&Pair<'_>]) -> Option<Said> {
    let off = |pair: &&&Pair<'_>| (pair.our_gain() - pair.their_gain()).abs() > GAIN;
    let far: Vec<_> = pairs.iter().filter(off).collect();
    let say = |pair: &&&Pair<'_>| {
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let (ours, theirs) = (percent(pair.our_gain()), percent(pair.their_gain()));
        format!("{}: {ours} for {theirs}", pair.name())
    };
    let list: Vec<String> = far.iter().map(say).collect();
    let near = pairs.len() - far.len();
    let more = match list.as_slice() {
        [] => String::new(),
        list => format!(" Ours for theirs: {}.", list.join("; ")),
    };
    let said = Said::new(
        "what ISACS gains is within 10 points of the paper's gain",
        far.is_empty(),
        format!("it is in {near} of {}", pairs.len()),
    );
    (!pairs.is_empty()).then(|| said.with_more(more))
}

fn tail(which: &str, theirs: f64, [credit2, isacs]: [f64; 2]) -> Said {
    Said::new(
        format!("the longest round trip is shorter by as much as in the paper ({which})"),
        credit2 >= theirs * isacs,
        format!(
            "it goes from {credit2:.2} ms to {isacs:.2} ms, {:.2} times shorter for {theirs:.2}",
            credit2 / isacs
        ),
    )
}

fn loss(pair: &Pair<'_>) -> Said {
    let [credit2, isacs] = pair.ours;
    let loss = isacs / credit2 - 1.0;
    Said::new(
        format!(
            "fixed work takes at most 5.5 % longer with ISACS ({})",
            pair.about
        ),
        loss <= LOSS,
        format!(
            "it takes {credit2:.2} s and {isacs:.2} s, {:+.1} %",
            100.0 * loss
        ),
    )
}
