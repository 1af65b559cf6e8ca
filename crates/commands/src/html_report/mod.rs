//! Results as pages for a browser: what the pages of simulations and of the daemon's history share.
//!
//! ```text
//!   rows of a run, or points of a history --> intervals, bounded in number --> plots --> page
//! ```

use tidegate_report::{Cell, Page, Plot, State, Table, Timeline, Tone};
use tidegate_sim::report::{Times, VmReport};

use plots::{Distribution, TimeAxis};

pub(crate) mod interference;
pub(crate) mod intervals;
pub(crate) mod over_time;
pub(crate) mod plots;

/// VMs with plots of their own on a page; further ones are in tables only.
const VMS_PLOTTED_MAX: usize = 100;
/// VMs whose plots are shown at once; those of further ones are folded.
const VMS_OPEN_MAX: usize = 8;
/// Rows of a timeline of promises.
const TIMELINE_ROWS_MAX: usize = 40;

/// Verdict on all promises of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// All that were judged are kept.
    Kept,
    /// At least one is missed.
    Missed,
    /// Nothing was judged.
    Unjudged,
}

impl Verdict {
    /// Returns the verdict on promises of which each has its own; `None`: not judged.
    pub(crate) fn on(promises: impl IntoIterator<Item = Option<bool>>) -> Verdict {
        let judged = promises.into_iter().flatten();
        judged.fold(Verdict::Unjudged, |so_far, kept| match (so_far, kept) {
            (Verdict::Missed, _) | (_, false) => Verdict::Missed,
            (Verdict::Kept | Verdict::Unjudged, true) => Verdict::Kept,
        })
    }

    fn badge(self) -> (Tone, &'static str) {
        match self {
            Verdict::Kept => (Tone::Good, "kept"),
            Verdict::Missed => (Tone::Bad, "missed"),
            Verdict::Unjudged => (Tone::Faint, "no verdict"),
        }
    }
}

/// Returns a table of facts that begins with how many promises were kept, of those that were
/// judged: each promise has its verdict.
pub(crate) fn summary_table(promises: impl Iterator<Item = Option<bool>>) -> Table {
    let judged: Vec<bool> = promises.flatten().collect();
    let (kept, judged) = (judged.iter().filter(|&&kept| kept).count(), judged.len());
    let verdict = match (kept, judged) {
        (_, 0) => Cell::from("none that could be judged"),
        (kept, judged) if kept == judged => {
            Cell::from(format!("all {judged} kept")).tone(Tone::Good)
        }
        (kept, judged) => {
            Cell::from(format!("{} of {judged} missed", judged - kept)).tone(Tone::Bad)
        }
    };
    let mut table = Table::properties();
    table.property("promises", verdict);
    table
}

/// Promise over time.
pub(crate) struct PromiseRow<'a> {
    pub(crate) vm: &'a str,
    /// Part of the objective.
    pub(crate) part: &'a str,
    pub(crate) missed: bool,
    /// Begin and end in seconds, with the state between them.
    pub(crate) spans: Vec<(f64, f64, State)>,
}

/// Writes a timeline of promises; of too many those that were missed.
pub(crate) fn promises_over_time(page: &mut Page, time: &TimeAxis, mut rows: Vec<PromiseRow<'_>>) {
    let hidden = rows.len().saturating_sub(TIMELINE_ROWS_MAX);
    if hidden > 0 {
        // Stable: promises stay in the order of VMs.
        rows.sort_by_key(|row| !row.missed);
        rows.truncate(TIMELINE_ROWS_MAX);
    }
    let mut timeline = Timeline::new("Promises over time", time.unbounded(), time.ends());
    for row in rows {
        let spans = row.spans.into_iter();
        let spans = spans.map(|(from, to, state)| (time.at(from), time.at(to), state));
        timeline.row(row.vm, row.part, spans);
    }
    if timeline.is_empty() {
        return;
    }
    page.timeline(&timeline);
    if hidden > 0 {
        page.paragraph(&format!(
            "{hidden} more promises are in the table only; those that were missed come first."
        ));
    }
}

/// Writes the plots of each VM, folded if there are many; of too many VMs those that missed a
/// promise come first. `plots` returns the plots of a VM by its index.
pub(crate) fn each_vm(
    page: &mut Page,
    vms: &[(&str, Verdict)],
    plots: impl Fn(usize) -> Vec<Plot>,
) {
    let mut shown: Vec<usize> = (0..vms.len()).collect();
    if shown.len() > VMS_OPEN_MAX {
        shown.sort_by_key(|&vm| vms[vm].1 != Verdict::Missed);
        shown.truncate(VMS_PLOTTED_MAX);
    }
    for (n, &vm) in shown.iter().enumerate() {
        let ((name, verdict), plots) = (vms[vm], plots(vm));
        if n < VMS_OPEN_MAX {
            page.heading(name).plots(&plots);
        } else {
            page.folded(verdict.badge(), name, |page| {
                page.plots(&plots);
            });
        }
    }
    let hidden = vms.len() - shown.len();
    if hidden > 0 {
        page.paragraph(&format!(
            "{hidden} more VMs have no plots here; VMs that missed a promise come first."
        ));
    }
}

/// Returns the distribution of all latencies of a VM; empty unless operations were kept.
pub(crate) fn latencies(vm: &VmReport) -> Distribution {
    let Some(operations) = &vm.operations else {
        return Distribution::new();
    };
    let all = [
        &operations.read,
        &operations.write,
        &operations.discard,
        &operations.flush,
    ];
    let mut sum = Times::default();
    all.iter().for_each(|it| sum.add(&it.latency));
    distribution(&sum)
}

/// Returns a distribution as plots have it.
pub(crate) fn distribution(times: &Times) -> Distribution {
    let longest = times.longest();
    // The upper end of the last bucket may lie above the longest latency.
    let buckets = times.buckets();
    buckets
        .map(|(bound, count)| (bound.min(longest).0, count))
        .collect()
}
