//! `tidegate vcpu list`: vCPU schedulers and their parameters.

use anyhow::Result;
use serde::Serialize;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_vcpu::schedulers::SCHEDULERS;
use tidegate_vcpu::spec::{ParamInfo, SchedulerInfo};

use crate::output::Output;

/// Scheduler as JSON.
#[derive(Serialize)]
struct SchedulerView {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    params: Vec<ParamView>,
}

/// Parameter of a scheduler, with values in a scenario's notation.
#[derive(Serialize)]
struct ParamView {
    name: &'static str,
    default: String,
    allowed: String,
    help: &'static str,
}

impl SchedulerView {
    fn new(info: &SchedulerInfo) -> SchedulerView {
        SchedulerView {
            name: info.name,
            summary: info.summary,
            source: info.source,
            params: info.params().map(ParamView::new).collect(),
        }
    }
}

impl ParamView {
    fn new(info: &ParamInfo) -> ParamView {
        ParamView {
            name: info.name,
            default: info.written(info.default),
            allowed: info.allowed(),
            help: info.help,
        }
    }
}

/// Lists the schedulers and their parameters.
pub(in crate::commands) fn list(out: Output) -> Result<()> {
    let all: Vec<_> = (SCHEDULERS.iter())
        .map(|info| SchedulerView::new(info))
        .collect();
    if out.is_json() {
        return out.json(&all);
    }
    let mut table = Table::new([
        ("SCHEDULER", Align::Left),
        ("DESCRIPTION", Align::Left),
        ("SOURCE", Align::Left),
    ]);
    let mut params = Table::new([
        ("SCHEDULER", Align::Left),
        ("PARAMETER", Align::Left),
        ("DEFAULT", Align::Right),
        ("ALLOWED", Align::Left),
    ]);
    for info in &all {
        let name = || Cell::from(info.name).tone(Tone::Strong);
        table.row([name(), info.summary.into(), info.source.into()]);
        for param in &info.params {
            params.row([
                name(),
                param.name.into(),
                param.default.as_str().into(),
                param.allowed.as_str().into(),
            ]);
        }
    }
    let tables = [table, params].map(|table| table.render(out.style()));
    Ok(out.text(&tables.join("\n"))?)
}
