//! What the demo shows: a table that lives while it runs, and the verdict.

use std::io;
use std::time::Duration;

use tidegate_core::objective::Objective;
use tidegate_report::{Align, Cell, Style, Table, Tone};

use super::{Cast, PolicyResult, Results, VmResult};
use crate::output::{self, Output};

/// The live part: a table redrawn in place on a terminal, a line a policy elsewhere.
pub(super) struct Screen {
    live: bool,
    out: Output,
    drawn: usize,
    announced: String,
}

impl Screen {
    pub(super) fn new(terminal: bool, out: Output) -> Screen {
        Screen {
            live: terminal && !out.is_json(),
            out,
            drawn: 0,
            announced: String::new(),
        }
    }

    /// Who plays.
    pub(super) fn introduce(&self, cast: &[Cast], objectives: &[Objective]) -> io::Result<()> {
        if self.out.is_json() {
            return Ok(());
        }
        let mut table = Table::new([
            ("VM", Align::Left),
            ("does", Align::Left),
            ("wants", Align::Left),
        ]);
        for (cast, objective) in cast.iter().zip(objectives) {
            table.row([
                cast.vm.to_owned(),
                cast.does.to_owned(),
                super::wanted(cast, objective),
            ]);
        }
        let table = table.render(self.out.style());
        let title =
            "One emulated 7200 rpm disk, three VMs and a backup, each on its own NBD socket:";
        self.out.text(&format!("{title}\n\n{table}\n"))
    }

    /// How it goes.
    pub(super) fn update(
        &mut self,
        now: &PolicyResult,
        at: Duration,
        of: Duration,
        counting: bool,
    ) -> io::Result<()> {
        if !self.live {
            if self.announced != now.policy {
                self.announced = now.policy.clone();
                output::tell(format_args!(
                    "{}: running for {:.0} s ...",
                    now.policy,
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

    /// Clears the live table: the verdict follows.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.clear(std::mem::take(&mut self.drawn))
    }
}

fn one_policy(result: &PolicyResult) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("IOPS", Align::Right),
        ("MB/s", Align::Right),
        ("p99 ms", Align::Right),
        ("wanted", Align::Left),
    ]);
    for vm in &result.vms {
        table.row([
            Cell::new(&vm.vm),
            Cell::new(format!("{:.0}", vm.iops)),
            Cell::new(format!("{:.1}", vm.mb_s)),
            Cell::new(format!("{:.0}", vm.p99_ms)),
            Cell::new(&vm.wanted),
        ]);
    }
    table
}

/// Wanted and got, per VM and policy.
pub(super) fn side_by_side(results: &Results, style: Style) -> String {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("wanted", Align::Left),
        ("policy", Align::Left),
        ("IOPS", Align::Right),
        ("MB/s", Align::Right),
        ("p99 ms", Align::Right),
        ("", Align::Left),
    ]);
    let vms = results.policies.first().map_or(0, |p| p.vms.len());
    for i in 0..vms {
        for (turn, policy) in results.policies.iter().enumerate() {
            let vm = &policy.vms[i];
            let (name, wanted) = if turn == 0 {
                (&*vm.vm, &*vm.wanted)
            } else {
                ("", "")
            };
            table.row([
                Cell::new(name).tone(Tone::Strong),
                Cell::new(wanted),
                Cell::new(&policy.policy),
                Cell::new(format!("{:.1}", vm.iops)),
                Cell::new(format!("{:.1}", vm.mb_s)),
                Cell::new(format!("{:.1}", vm.p99_ms)),
                verdict(vm),
            ]);
        }
    }
    for (turn, policy) in results.policies.iter().enumerate() {
        table.row([
            Cell::new(if turn == 0 { "all" } else { "" }).tone(Tone::Strong),
            Cell::new(""),
            Cell::new(&policy.policy),
            Cell::new(""),
            Cell::new(format!("{:.1}", policy.mb_s)),
            Cell::new(""),
            Cell::new(""),
        ]);
    }
    let mut text = table.render(style);
    if results.policies.iter().any(|p| p.policy == "mclock") {
        text.push_str(
            "\nmClock knows no latency: the reservation of oltp stands in for it. A VM that asks\n\
             for less than its reservation hardly waits.\n",
        );
    }
    text
}

fn verdict(vm: &VmResult) -> Cell {
    match (vm.wanted.as_str(), vm.met) {
        ("what is left", _) => Cell::new("-").tone(Tone::Faint),
        (_, true) => Cell::new("met").tone(Tone::Good),
        (_, false) => Cell::new("missed").tone(Tone::Bad),
    }
}
