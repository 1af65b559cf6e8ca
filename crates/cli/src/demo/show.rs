//! Output of the demo: a table updated while it runs, the results and a curve.

use std::io;
use std::time::Duration;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_report::{Align, Axis, Cell, Plot, Series, Style, Table, Tone, Unit};
use tidegate_units::human::duration;

use super::acts::Act;
use super::{Options, PolicyResult, Sample, VmResult};
use crate::output::{self, Output};
use crate::plot_output;

/// Display of one act: a table redrawn in place on a terminal, a line for each policy elsewhere.
pub(super) struct Screen {
    live: bool,
    out: Output,
    ascii: bool,
    drawn: usize,
    announced: String,
    /// Latency bound of the act's first VM.
    bound: Option<Nanos>,
    samples: Vec<Sample>,
}

impl Screen {
    pub(super) fn new(terminal: bool, options: &Options) -> Screen {
        Screen {
            live: terminal && !options.out.is_json(),
            out: options.out,
            ascii: options.ascii,
            drawn: 0,
            announced: String::new(),
            bound: None,
            samples: Vec::new(),
        }
    }

    /// Prints the VMs of an act; `promises` are their objectives, in the same order.
    pub(super) fn introduce<'a>(
        &self,
        act: &Act,
        promises: impl Iterator<Item = &'a str>,
    ) -> io::Result<()> {
        if self.out.is_json() {
            return Ok(());
        }
        let mut table = Table::new([
            ("VM", Align::Left),
            ("WORKLOAD", Align::Left),
            ("OBJECTIVE", Align::Left),
        ]);
        for (cast, promise) in act.cast.iter().zip(promises) {
            table.row([cast.vm, cast.does, promise]);
        }
        let table = table.render(self.out.style());
        self.out.text(&format!("{}\n\n{table}\n", act.title))
    }

    /// Sets the latency bound that is drawn with the latency of the act's first VM.
    pub(super) fn set_bound(&mut self, bound: Option<Nanos>) {
        self.bound = bound;
    }

    /// Adds a sample of latency to the act's curve.
    pub(super) fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Shows the progress of a policy's turn.
    pub(super) fn update(
        &mut self,
        now: &PolicyResult,
        at: Duration,
        of: Duration,
        counting: bool,
    ) -> io::Result<()> {
        if !self.live {
            // Without a terminal each turn has one line, not one a refresh.
            if self.announced != now.policy {
                self.announced = now.policy.clone();
                output::tell(format_args!(
                    "{} on {}: running for {:.1} s ...",
                    now.policy,
                    now.device,
                    of.as_secs_f64()
                ));
            }
            return Ok(());
        }
        let style = self.out.style();
        let phase = if counting { "measuring" } else { "settling" };
        let text = format!(
            "{}  {phase}  {:.0} of {:.0} s\n{}",
            style.paint(Tone::Strong, &now.policy),
            at.as_secs_f64(),
            of.as_secs_f64(),
            one_policy(now).render(style)
        );
        self.out.redraw(&text, self.drawn)?;
        self.drawn = text.lines().count();
        Ok(())
    }

    /// Replaces the live table by the results of the act.
    pub(super) fn finish(&mut self, act: &Act, turns: &[PolicyResult]) -> Result<()> {
        if self.live {
            self.out.clear(std::mem::take(&mut self.drawn))?;
        }
        if self.out.is_json() {
            return Ok(());
        }
        let mut text = side_by_side(turns, self.out.style());
        if turns.iter().any(|turn| turn.policy == "mclock") {
            text += &format!("\n{}\n", act.about_mclock);
        }
        self.out.text(&(text + "\n"))?;
        if act.drawn {
            let plot = self.curve(act, turns);
            plot_output::draw(self.out, &[plot], self.ascii)?;
        }
        Ok(())
    }

    /// Returns the plot of the latency of the act's first VM, with a line for each policy.
    fn curve(&self, act: &Act, turns: &[PolicyResult]) -> Plot {
        let mut plot = Plot::new(
            format!(
                "Latency of {} under one policy after the other",
                act.cast[0].vm
            ),
            Axis::linear("time", Unit::Seconds).including(0.0),
            Axis::log10("latency, p99 of each 250 ms", Unit::Nanos),
        );
        for (i, turn) in turns.iter().enumerate() {
            let points = self.samples.iter().filter(|sample| sample.turn == i);
            let points = points.map(|sample| (sample.at_s, sample.p99_ns));
            plot.add(Series::line(&turn.policy).points(points));
        }
        if let Some(bound) = self.bound {
            plot.level(bound.0 as f64, format!("promised: {}", duration(bound.0)));
        }
        plot
    }
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
            Cell::new(&vm.wanted),
        ]);
    }
    table
}

/// Returns the table of results by VM and policy.
fn side_by_side(turns: &[PolicyResult], style: Style) -> String {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("POLICY", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("P99 ms", Align::Right),
        ("PROMISES", Align::Left),
    ]);
    let vms = turns.first().map_or(0, |turn| turn.vms.len());
    for i in 0..vms {
        for (n, turn) in turns.iter().enumerate() {
            let vm = &turn.vms[i];
            table.row([
                Cell::new(if n == 0 { &*vm.vm } else { "" }).tone(Tone::Strong),
                Cell::new(&turn.policy),
                Cell::new(format!("{:.1}", vm.iops)),
                Cell::new(format!("{:.1}", vm.mb_s)),
                Cell::new(format!("{:.1}", vm.p99_ms)),
                verdict(vm),
            ]);
        }
    }
    for (n, turn) in turns.iter().enumerate() {
        table.row([
            Cell::new(if n == 0 { "all" } else { "" }).tone(Tone::Strong),
            Cell::new(&turn.policy),
            Cell::new(""),
            Cell::new(format!("{:.1}", turn.mb_s)),
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
            wanted: String::new(),
            attainment,
        }
    }

    #[test]
    fn a_verdict_names_the_parts_that_were_missed() {
        for (attainment, shown) in [
            (&[][..], "-"),
            (&[("limit", 0, 0)], "-"),
            (&[("reservation", 4, 0), ("latency", 4, 0)], "kept"),
            (
                &[("reservation", 4, 0), ("latency", 1, 3)],
                "missed: latency in 3 of 4 s",
            ),
        ] {
            let turn = PolicyResult {
                device: "flash",
                policy: "fifo".to_owned(),
                vms: vec![vm(attainment)],
                mb_s: 1.0,
            };
            let text = side_by_side(&[turn], Style::Plain);
            let line = text.lines().nth(1).expect("a row");
            assert!(line.ends_with(&format!("  {shown}")), "{line}");
        }
    }
}
