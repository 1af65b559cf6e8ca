//! Promises, rates and loads of a simulation over time, in bounded memory.

use anyhow::Result;
use tidegate_core::attainment::Part;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_report::Plot;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::scenario::{Action, Scenario};
use tidegate_sim::world::World;

use super::intervals::{DeviceInterval, Intervals, PromiseOverTime, Verdicts, VmInterval, length};
use super::plots::{self, TimeAxis, VmOverTime};
use crate::args::PlotArgs;
use crate::output::Output;
use crate::plot_output;

/// Shortest time between two looks at the verdicts on promises, which are by the second.
const VERDICTS_EVERY_S: f64 = 1.0;
/// VMs whose plots are drawn on a terminal or in one file.
const VMS_DRAWN_MAX: usize = 8;

/// Promises, rates and loads over time, for pages and plots.
#[derive(Default)]
pub(crate) struct OverTime {
    /// By VM.
    vms: Vec<Intervals<VmInterval>>,
    /// Promises of each VM by part of its objective.
    promises: Vec<Vec<(Part, PromiseOverTime)>>,
    /// By device.
    devices: Vec<Intervals<DeviceInterval>>,
    /// VM of the next row: rows of an interval come in the order of the scenario.
    next_vm: usize,
    /// Time of the last look at the verdicts.
    looked_s: f64,
}

impl OverTime {
    /// Returns the interval of rows for a scenario.
    pub(crate) fn interval(scenario: &Scenario) -> Nanos {
        let frame = &scenario.frame;
        length((!frame.until_done).then_some(frame.duration))
    }

    /// Has the simulation keep what is needed.
    pub(crate) fn begin(world: &mut World) -> OverTime {
        world.keep_device_rows();
        let scenario = world.scenario();
        OverTime {
            vms: vec![Intervals::default(); scenario.vms.len()],
            promises: vec![Vec::new(); scenario.vms.len()],
            devices: vec![Intervals::default(); scenario.devices.len()],
            ..OverTime::default()
        }
    }

    /// Takes the row of a VM.
    pub(crate) fn row(&mut self, row: &Row) {
        self.vms[self.next_vm].add(VmInterval::of_row(row));
        self.next_vm = (self.next_vm + 1) % self.vms.len();
    }

    /// Takes what happened in a step.
    pub(crate) fn step(&mut self, world: &mut World) {
        for row in world.take_device_rows() {
            self.devices[row.device].add(DeviceInterval::of_row(&row));
        }
        let now_s = world.now().as_secs_f64();
        if world.now() <= world.scenario().frame.warm_up {
            // Verdicts of the warm-up do not count, and are cleared at its end.
            self.looked_s = now_s;
            return;
        }
        if now_s - self.looked_s >= VERDICTS_EVERY_S || world.is_over() {
            self.look_at_verdicts(world, now_s);
        }
    }

    fn look_at_verdicts(&mut self, world: &World, now_s: f64) {
        for (vm, promises) in self.promises.iter_mut().enumerate() {
            let Some((engine, id)) = world.served(vm) else {
                continue;
            };
            for part in engine.vms().attainment(world.now(), id) {
                let known = promises.iter().position(|it| it.0 == part.part);
                let n = known.unwrap_or_else(|| {
                    promises.push((part.part, PromiseOverTime::begin(self.looked_s)));
                    promises.len() - 1
                });
                promises[n].1.sample(now_s, Verdicts::of_part(&part));
            }
        }
        self.looked_s = now_s;
    }

    /// Promises of each VM by part of its objective, in the order of the scenario.
    pub(crate) fn promises(&self) -> &[Vec<(Part, PromiseOverTime)>] {
        &self.promises
    }

    /// Loads of each device, in the order of the scenario.
    pub(crate) fn devices(&self) -> &[Intervals<DeviceInterval>] {
        &self.devices
    }

    /// Axis of time of the run.
    pub(crate) fn axis(report: &Report) -> TimeAxis {
        TimeAxis::new("time", 0.0, report.duration_s).with_warm_up(report.warm_up_s)
    }

    /// VMs over time with what they were promised.
    pub(crate) fn vms(&self, scenario: &Scenario, report: &Report) -> Vec<VmOverTime> {
        let vms = scenario.vms.iter().zip(&self.vms).enumerate();
        let over_time = vms.map(|(index, (spec, intervals))| VmOverTime {
            name: spec.name.clone(),
            points: intervals.all().iter().map(VmInterval::point).collect(),
            objectives: objectives(scenario, index, report.duration_s),
        });
        over_time.collect()
    }

    /// Draws the plots of all VMs on the terminal if `terminal` is set, and in a file if one is
    /// given.
    pub(crate) fn draw(
        &self,
        (scenario, report): (&Scenario, &Report),
        terminal: bool,
        args: &PlotArgs,
        out: Output,
    ) -> Result<()> {
        let vms = self.vms(scenario, report);
        let axis = OverTime::axis(report);
        let mut plots: Vec<Plot> = plots::all_vms(&axis, &vms).into();
        for vm in vms.iter().take(VMS_DRAWN_MAX) {
            let prefix = format!("{}: ", vm.name);
            plots.extend(vm.rates(&axis, &prefix));
            plots.push(vm.latency(&axis, &prefix));
        }
        plot_output::write_svg(&plots, args)?;
        if terminal {
            out.text("\n")?;
            plot_output::draw(out, &plots, args.ascii)?;
        }
        Ok(())
    }
}

/// Returns the objectives of a VM with the times in seconds from which on they were in force.
fn objectives(scenario: &Scenario, vm: usize, ended_s: f64) -> Vec<(f64, Option<Objective>)> {
    let spec = &scenario.vms[vm];
    let mut objectives = vec![(spec.arrives, Some(spec.objective))];
    for change in &scenario.changes {
        match &change.action {
            Action::Objective { vm: of, objective } if *of == vm => {
                objectives.push((change.at, Some(**objective)));
            }
            Action::Objective { .. } | Action::Policy { .. } => {}
        }
    }
    if let Some(leaves) = spec.leaves {
        objectives.retain(|objective| objective.0 < leaves);
        objectives.push((leaves, None));
    }
    let in_seconds = objectives
        .into_iter()
        .map(|(at, it)| (at.as_secs_f64(), it));
    in_seconds
        .filter(|objective| objective.0 < ended_s)
        .collect()
}
