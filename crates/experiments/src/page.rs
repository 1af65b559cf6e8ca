//! Report of a reproduction as one HTML page.

use crate::findings::{Cell, Claim, Findings, heading};
use crate::fitted::Fitted;
use crate::show::{self, figure, parts, verdict_tone};
use crate::verdict::Origin;
use crate::{ExperimentError, Paper};
use tidegate_report::{Agreement, Align, Axis, Page, Pairs, Plot, Series, Table, Tone, Unit};

/// Deviation, as a fraction, up to which a pair of figures has the colour of near ones.
const NEAR_DEVIATION: f64 = 0.15;

/// Writes the findings about a paper as a page. `wanted` is the table or figure that the findings
/// are about; `None` for all.
///
/// # Errors
/// Fails when the paper's calibration is malformed.
pub fn page(
    paper: &Paper,
    findings: &Findings,
    wanted: Option<&str>,
) -> Result<String, ExperimentError> {
    let mut page = Page::new(paper.title);
    summary(&mut page, paper, findings, wanted);
    claims(&mut page, paper, findings);
    contradictions(&mut page, findings);
    figures(&mut page, paper, findings);
    curves(&mut page, findings);
    calibration(&mut page, paper)?;
    ablations(&mut page, findings);
    Ok(page.finish())
}

fn summary(page: &mut Page, paper: &Paper, findings: &Findings, wanted: Option<&str>) {
    page.section("verdicts", "Verdicts").paragraph(
        "The paper's experiments, repeated in Tidegate's simulator and set beside its figures. A \
         claim holds, does not hold, or cannot hold: then the paper's own figures contradict it, \
         and the arithmetic is below. Figures count where they are predicted, not where models \
         were calibrated on them. Comparisons of two alternatives have three outcomes: better, \
         within 1 %, worse.",
    );
    page.table("counts", &show::counts(findings));
    page.paragraph(
        "Can hold: without what the second reading of the papers names as impossible. + own: \
         without what this experiment found to be impossible, too.",
    );
    page.table(
        "verdict-table",
        &show::verdicts_within(findings, paper.tables, 60, 1000),
    );
    if let Some(overview) = overview(findings) {
        page.plot(&overview);
    }
    let part = match wanted {
        Some(table) => format!(" --table \"{table}\""),
        None => String::new(),
    };
    page.preformatted(&format!(
        "tidegate reproduce {}{part} --report report.html",
        paper.name
    ));
}

/// Plot of all figures over the paper's; `None` without positive figures.
fn overview(findings: &Findings) -> Option<Plot> {
    let positive = |cell: &&Cell| cell.theirs > 0.0 && cell.ours > 0.0;
    let cells: Vec<&Cell> = findings.cells.iter().filter(positive).collect();
    let theirs = || cells.iter().map(|cell| cell.theirs);
    let (least, most) = (
        theirs().min_by(f64::total_cmp)?,
        theirs().max_by(f64::total_cmp)?,
    );
    let mut plot = Plot::new(
        "All figures: ours over the paper's, with 25 % to both sides",
        Axis::log10("the paper's figure, in the unit of each", Unit::Number),
        Axis::log10("ours", Unit::Number),
    );
    let of = |is: &dyn Fn(&Cell) -> bool| {
        let cells = cells.iter().filter(|cell| is(cell));
        let points: Vec<(f64, f64)> = cells.map(|cell| (cell.theirs, cell.ours)).collect();
        points
    };
    for (name, points) in [
        (
            "predicted",
            of(&|cell| !cell.calibrated && cell.cannot_hold.is_none()),
        ),
        ("calibrated", of(&|cell| cell.calibrated)),
        ("cannot hold", of(&|cell| cell.cannot_hold.is_some())),
    ] {
        if !points.is_empty() {
            plot.add(Series::marks(name).points(points));
        }
    }
    for (name, factor) in [("25 % less", 0.75), ("equal", 1.0), ("25 % more", 1.25)] {
        let ends = [(least, factor * least), (most, factor * most)];
        plot.add(Series::line(name).points(ends).unmarked());
    }
    Some(plot)
}

fn claims(page: &mut Page, paper: &Paper, findings: &Findings) {
    page.section("claims", "Claims and their reasons");
    for part in parts(findings, paper.tables) {
        let claims = findings.claims.iter().filter(|claim| claim.part == part);
        for (n, claim) in claims.enumerate() {
            if n == 0 {
                page.heading(&show::part_name(part));
            }
            let badge = (verdict_tone(claim.verdict), claim.verdict.words());
            page.folded(badge, &claim.claim, |page| reasons(page, claim));
        }
    }
}

fn reasons(page: &mut Page, claim: &Claim) {
    page.paragraph(&claim.outcome);
    if let Some(reason) = &claim.cannot_hold {
        let id = &reason.id;
        page.paragraph(&format!("Cannot hold ({id}): {}.", reason.arithmetic));
    }
    if claim.ablations.is_empty() {
        return;
    }
    let mut table = Table::new([
        ("VARIANT", Align::Left),
        ("OUTCOME", Align::Left),
        ("", Align::Left),
    ]);
    for ablation in &claim.ablations {
        let would = match ablation.holds {
            true => tidegate_report::Cell::from("would hold").tone(Tone::Good),
            false => tidegate_report::Cell::from("would not hold").tone(Tone::Faint),
        };
        table.row([
            ablation.variant.as_str().into(),
            ablation.outcome.as_str().into(),
            would,
        ]);
    }
    page.table("", &table);
}

fn contradictions(page: &mut Page, findings: &Findings) {
    if findings.impossible.is_empty() && findings.notes.is_empty() {
        return;
    }
    page.section("contradictions", "What cannot hold");
    if !findings.impossible.is_empty() {
        page.paragraph(
            "Computed from the paper's figures by each reproduction. One that is not shown has no \
             effect on any verdict.",
        );
    }
    for of in &findings.impossible {
        let badge = match of.shown {
            true => (Tone::Warn, "shown"),
            false => (Tone::Bad, "NOT SHOWN"),
        };
        let origin = match of.reason.from {
            Origin::Fidelity => "named by the second reading",
            Origin::Own => "found by this experiment",
        };
        let summary = format!("{}: {} ({origin})", of.reason.id, of.covers);
        page.folded(badge, &summary, |page| {
            page.paragraph(&format!("{}.", of.reason.arithmetic));
        });
    }
    for note in &findings.notes {
        let summary = format!("{}: {}", note.id, heading(&note.part));
        page.folded((Tone::Faint, "note"), &summary, |page| {
            page.paragraph(&format!("{}.", note.text));
        });
    }
}

fn figures(page: &mut Page, paper: &Paper, findings: &Findings) {
    if findings.cells.is_empty() {
        return;
    }
    page.section("figures", "Figures beside the paper's").paragraph(
        "Upper bars are the paper's, lower ones ours; bars of a group are on one scale. Near is \
         within 15 % of the paper's. Figures that models were calibrated on, and those that cannot \
         hold, are not judged.",
    );
    for part in parts(findings, paper.tables) {
        let cells: Vec<&Cell> = (findings.cells.iter())
            .filter(|cell| cell.table == part)
            .collect();
        if !cells.is_empty() {
            page.heading(&show::part_name(part)).pairs(&pairs(&cells));
        }
    }
}

/// Chart of a table's cells: alternatives that are compared together, other cells by column.
fn pairs(cells: &[&Cell]) -> Pairs {
    let mut groups: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let name = match &cell.ordering {
            Some(ordering) => &ordering.about,
            None => &cell.column,
        };
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((name.clone(), vec![cell])),
        }
    }
    let mut pairs = Pairs::new(["paper", "here"]);
    for (name, cells) in groups {
        pairs.group(name);
        for cell in cells {
            let (agreement, kind) = match (&cell.cannot_hold, cell.calibrated) {
                (Some(_), _) => (Agreement::Unjudged, " cannot hold"),
                (None, true) => (Agreement::Unjudged, " calibrated"),
                (None, false) if cell.is_within(NEAR_DEVIATION) => (Agreement::Near, ""),
                (None, false) => (Agreement::Far, ""),
            };
            let label = cell.ordering.as_ref().map_or(&cell.row, |of| &of.who);
            let written = format!("{}, {}{kind}", figure(cell.theirs), figure(cell.ours));
            pairs.row(label, [cell.theirs, cell.ours], written, agreement);
        }
    }
    pairs
}

fn curves(page: &mut Page, findings: &Findings) {
    if findings.plots.is_empty() {
        return;
    }
    page.section("curves", "Curves");
    for plot in &findings.plots {
        page.plot(plot);
    }
}

fn calibration(page: &mut Page, paper: &Paper) -> Result<(), ExperimentError> {
    page.section("calibration", "What was calibrated");
    let Some(calibration) = paper.calibration else {
        page.paragraph("Nothing: the models have no figures that are fitted to the paper.");
        return Ok(());
    };
    page.paragraph(
        "These figures of the models were fitted, on these cells of the paper and on no others. \
         Everything else is predicted.",
    );
    let mut table = Table::new([
        ("FITTED FIGURE", Align::Left),
        ("VALUE", Align::Right),
        ("ON THE PAPER'S", Align::Left),
    ]);
    for (n, Fitted { figures, cells }) in calibration.fitted()?.iter().enumerate() {
        if n > 0 {
            table.line("");
        }
        for n in 0..figures.len().max(cells.len()) {
            let (path, value) = figures.get(n).cloned().unwrap_or_default();
            table.row([path, value, cells.get(n).cloned().unwrap_or_default()]);
        }
    }
    page.table("fitted", &table);
    Ok(())
}

/// Table of all variants: claims that they change, and those of them that would hold.
fn ablations(page: &mut Page, findings: &Findings) {
    let failing = findings.claims.iter().filter(|claim| !claim.holds);
    let mut variants: Vec<(&str, usize, Vec<&str>)> = Vec::new();
    for (claim, ablation) in failing.flat_map(|of| of.ablations.iter().map(move |by| (of, by))) {
        let at = variants
            .iter()
            .position(|(known, ..)| *known == ablation.variant);
        let at = at.unwrap_or_else(|| {
            variants.push((&ablation.variant, 0, Vec::new()));
            variants.len() - 1
        });
        let (_, changed, would_hold) = &mut variants[at];
        *changed += 1;
        if ablation.holds {
            would_hold.push(&claim.claim);
        }
    }
    if variants.is_empty() {
        return;
    }
    page.section("ablations", "Ablations").paragraph(
        "Runs in which one part of the policy or of the model is left out or replaced, for the \
         claims that do not hold.",
    );
    let mut table = Table::new([
        ("VARIANT", Align::Left),
        ("CHANGES", Align::Right),
        ("WOULD HOLD", Align::Right),
        ("WHICH", Align::Left),
    ]);
    for (variant, changed, would_hold) in variants {
        table.row([
            variant.to_owned(),
            changed.to_string(),
            would_hold.len().to_string(),
            would_hold.join("; "),
        ]);
    }
    page.table("ablation-table", &table);
}
