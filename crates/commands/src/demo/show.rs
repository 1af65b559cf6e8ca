//! Output of the demo: a table updated while it runs, the results and a curve.

use std::io;
use std::time::Duration;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_report::{Align, Axis, Cell, Plot, Series, Style, Table, Tone, Unit};
use tidegate_units::human::duration;

use super::comparisons::Comparison;
use super::{Options, PolicyResult, REFRESH, Sample, VmResult};
use crate::output::{self, Output};
use crate::plot_output;

/// Display of one comparison: a table redrawn in place on a terminal, a line for each run
/// elsewhere.
pub(super) struct Display {
    live: bool,
    out: Output,
    ascii: bool,
    drawn: usize,
    /// Index of the run that was announced last.
    announced: Option<usize>,
    /// Latency bound of the VM that the comparison is about.
    bound: Option<Nanos>,
    samples: Vec<Sample>,
}

impl Display {
    pub(super) fn new(terminal: bool, options: &Options) -> Display {
        Display {
            live: terminal && !options.out.is_json(),
            out: options.out,
            ascii: options.ascii,
            drawn: 0,
            announced: None,
            bound: None,
            samples: Vec::new(),
        }
    }

    /// Prints the VMs of a comparison; `objectives` are theirs, in the same order.
    pub(super) fn print_vms<'a>(
        &self,
        comparison: &Comparison,
        objectives: impl Iterator<Item = &'a str>,
    ) -> io::Result<()> {
        if self.out.is_json() {
            return Ok(());
        }
        let mut table = Table::new([
            ("VM", Align::Left),
            ("WORKLOAD", Align::Left),
            ("OBJECTIVE", Align::Left),
        ]);
        for (vm, objective) in comparison.vms.iter().zip(objectives) {
            table.row([vm.name, vm.workload, objective]);
        }
        let table = table.render(self.out.style());
        self.out.text(&format!("{}\n\n{table}\n", comparison.title))
    }

    /// Sets the latency bound that is drawn with the latency of the comparison's first VM.
    pub(super) fn set_bound(&mut self, bound: Option<Nanos>) {
        self.bound = bound;
    }

    /// Adds a sample of latency to the comparison's curve.
    pub(super) fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Shows the progress of the run with this index: `elapsed` of `total`, with the results so
    /// far.
    pub(super) fn update(
        &mut self,
        run: usize,
        now: &PolicyResult,
        [elapsed, total]: [Duration; 2],
        measuring: bool,
    ) -> io::Result<()> {
        if !self.live {
            // Without a terminal each run has one line, not one a refresh.
            if is_new_run(&mut self.announced, run) {
                output::tell(format_args!(
                    "{} on {}: running for {:.1} s ...",
                    now.policy,
                    now.device,
                    total.as_secs_f64()
                ));
            }
            return Ok(());
        }
        let style = self.out.style();
        let phase = if measuring { "measuring" } else { "settling" };
        let text = format!(
            "{}  {phase}  {:.0} of {:.0} s\n{}",
            style.paint(Tone::Strong, &now.policy),
            elapsed.as_secs_f64(),
            total.as_secs_f64(),
            one_policy(now).render(style)
        );
        self.out.redraw(&text, self.drawn)?;
        self.drawn = text.lines().count();
        Ok(())
    }

    /// Replaces the live table by the results of the comparison.
    pub(super) fn finish(&mut self, comparison: &Comparison, runs: &[PolicyResult]) -> Result<()> {
        if self.live {
            self.out.clear(std::mem::take(&mut self.drawn))?;
        }
        if self.out.is_json() {
            return Ok(());
        }
        let mut text = side_by_side(runs, self.out.style());
        // mClock lacks some objectives, so that its results need a note.
        if runs.iter().any(|run| run.policy == "mclock") {
            text += &format!("\n{}\n", comparison.about_mclock);
        }
        self.out.text(&(text + "\n"))?;
        if comparison.drawn {
            let plot = self.curve(comparison, runs);
            plot_output::draw(self.out, &[plot], self.ascii)?;
        }
        Ok(())
    }

    /// Returns the plot of the latency of the comparison's first VM, with a line for each run.
    fn curve(&self, comparison: &Comparison, runs: &[PolicyResult]) -> Plot {
        let mut plot = Plot::new(
            format!(
                "Latency of {} under one policy after the other",
                comparison.vms[0].name
            ),
            Axis::linear("time", Unit::Seconds).including(0.0),
            Axis::log10(
                format!("latency, p99 of each {} ms", REFRESH.as_millis()),
                Unit::Nanos,
            ),
        );
        for (i, run) in runs.iter().enumerate() {
            let points = self.samples.iter().filter(|sample| sample.run == i);
            let points = points.map(|sample| (sample.at_s, sample.p99_ns));
            plot.add(Series::line(&run.policy).points(points));
        }
        if let Some(bound) = self.bound {
            plot.level(bound.0 as f64, format!("promised: {}", duration(bound.0)));
        }
        plot
    }
}

/// Returns true at the first call for a run. Runs are distinguished by index, because one policy
/// may run twice with other parameters.
fn is_new_run(announced: &mut Option<usize>, run: usize) -> bool {
    announced.replace(run) != Some(run)
}

fn one_policy(result: &PolicyResult) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("P99 ms", Align::Right),
        ("OBJECTIVE", Align::Left),
    ]);
    for vm in &result.vms {
        table.row([
            Cell::new(&vm.vm),
            Cell::new(format!("{:.0}", vm.iops)),
            Cell::new(format!("{:.1}", vm.mb_s)),
            Cell::new(format!("{:.1}", vm.p99_ms)),
            Cell::new(&vm.objective),
        ]);
    }
    table
}

/// Returns the table of results by VM and policy.
fn side_by_side(runs: &[PolicyResult], style: Style) -> String {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("POLICY", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("P99 ms", Align::Right),
        ("PROMISES", Align::Left),
    ]);
    let vms = runs.first().map_or(0, |run| run.vms.len());
    for i in 0..vms {
        for (n, run) in runs.iter().enumerate() {
            let vm = &run.vms[i];
            table.row([
                Cell::new(if n == 0 { &*vm.vm } else { "" }).tone(Tone::Strong),
                Cell::new(&run.policy),
                Cell::new(format!("{:.1}", vm.iops)),
                Cell::new(format!("{:.1}", vm.mb_s)),
                Cell::new(format!("{:.1}", vm.p99_ms)),
                verdict(vm),
            ]);
        }
    }
    for (n, run) in runs.iter().enumerate() {
        table.row([
            Cell::new(if n == 0 { "all" } else { "" }).tone(Tone::Strong),
            Cell::new(&run.policy),
            Cell::new(""),
            Cell::new(format!("{:.1}", run.mb_s)),
            Cell::new(""),
            Cell::new(""),
        ]);
    }
    table.render(style)
}

/// Returns the verdict on a VM's objective: `kept`, or the missed parts with their seconds.
fn verdict(vm: &VmResult) -> Cell {
    let judged = vm
        .attainment
        .iter()
        .filter(|part| part.kept_s + part.missed_s > 0);
    // A VM without promises has nothing to keep, and `met` is true for it.
    if judged.clone().next().is_none() {
        return Cell::new("-").tone(Tone::Faint);
    }
    if vm.met {
        return Cell::new("kept").tone(Tone::Good);
    }
    let missed = judged.filter(|part| part.missed_s > 0).map(|part| {
        let seconds = part.kept_s + part.missed_s;
        format!("{} in {} of {seconds} s", part.part, part.missed_s)
    });
    let missed: Vec<String> = missed.collect();
    Cell::new(format!("missed: {}", missed.join(", "))).tone(Tone::Bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::PartResult;

    fn vm(attainment: &[(&'static str, u64, u64)]) -> VmResult {
        let parts = attainment.iter();
        let attainment = parts.map(|&(part, kept_s, missed_s)| PartResult {
            part,
            kept_s,
            missed_s,
        });
        let attainment: Vec<PartResult> = attainment.collect();
        VmResult {
            vm: "db".to_owned(),
            iops: 1.0,
            mb_s: 1.0,
            p99_ms: 1.0,
            met: attainment.iter().all(|part| part.missed_s == 0),
            objective: String::new(),
            attainment,
        }
    }

    #[test]
    fn each_run_is_announced_once_whatever_its_policy() {
        let mut announced = None;
        let calls = [0, 0, 1, 1, 1].map(|run| is_new_run(&mut announced, run));
        assert_eq!(calls, [true, false, true, false, false]);
    }

    #[test]
    fn verdicts_name_the_missed_parts() {
        for (attainment, shown) in [
            (&[][..], "-"),
            (&[("limit", 0, 0)], "-"),
            (&[("reservation", 4, 0), ("latency", 4, 0)], "kept"),
            (
                &[("reservation", 4, 0), ("latency", 1, 3)],
                "missed: latency in 3 of 4 s",
            ),
        ] {
            let run = PolicyResult {
                device: "flash",
                policy: "fifo".to_owned(),
                vms: vec![vm(attainment)],
                mb_s: 1.0,
            };
            let text = side_by_side(&[run], Style::Plain);
            let line = text.lines().nth(1).expect("a row");
            assert!(line.ends_with(&format!("  {shown}")), "{line}");
        }
    }
}
