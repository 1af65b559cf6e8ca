//! Devices with their VMs, from a configuration or a scenario.

use std::path::Path;

use anyhow::Result;
use tidegate_config::device::Scheduling;
use tidegate_config::document;
use tidegate_config::profile;
use tidegate_core::fit::{self, PlannedVm};
use tidegate_core::objective::Objective;
use tidegate_server::config::{self, Config, DeviceKind};
use tidegate_server::feasibility;
use tidegate_sim::scenario::Scenario;

use crate::file_kind::FileKind;
use crate::output;
use crate::problem::Problem;
use crate::simulate::{self, Changes};

/// Device to plan.
pub(super) struct Site {
    pub(super) name: String,
    /// Name of the device's model; `None`: a real device.
    pub(super) model: Option<String>,
    pub(super) scheduling: Scheduling,
    /// Capacity in bytes, if known.
    pub(super) capacity: Option<u64>,
    pub(super) vms: Vec<SiteVm>,
    /// VM given by `--vm`.
    pub(super) asked: Option<String>,
}

/// VM or background process with disks on the device.
pub(super) struct SiteVm {
    pub(super) name: String,
    /// Name of the table with a `count` that stands for this VM and others; `None`: the VM has a
    /// table of its own.
    pub(super) table: Option<String>,
    pub(super) objective: Objective,
    pub(super) background: bool,
    pub(super) disk_bytes: u64,
}

impl SiteVm {
    pub(super) fn new(name: &str) -> SiteVm {
        SiteVm {
            name: name.to_owned(),
            table: None,
            objective: Objective::default(),
            background: false,
            disk_bytes: 0,
        }
    }

    /// Returns true if the objective has a reservation, a target or a latency bound.
    pub(super) fn is_promised_something(&self) -> bool {
        let floor = [&self.objective.reservation, &self.objective.target];
        floor.iter().any(|rate| !rate.is_none()) || self.objective.latency.is_some()
    }
}

impl Site {
    /// Returns the device as the planner takes it; `None` if it has no profile, or one too
    /// imprecise to plan with.
    pub(super) fn device(&self) -> Option<fit::Device<'_>> {
        self.scheduling.planned(self.capacity)
    }

    /// Returns the reason why the profile is too imprecise to plan with; `None` if it is precise
    /// enough, or if there is none.
    pub(super) fn imprecision(&self) -> Option<String> {
        self.scheduling.profile.as_ref()?.imprecision()
    }

    /// Returns what gives the device a profile.
    pub(super) fn profile_help(&self) -> String {
        let own = self.model.as_deref();
        let built_in = own.filter(|model| profile::built_in(model).is_some());
        if let Some(model) = built_in {
            return format!(
                "add profile = \"{model}\" to its [[device]]: the built-in profile of its model"
            );
        }
        let device = own.unwrap_or("DEVICE");
        format!(
            "measure one with `tidegate profile {device}` and add profile = \"FILE\" to its \
             [[device]]"
        )
    }

    /// Returns the device's VMs as the planner takes them.
    pub(super) fn planned(&self) -> Vec<PlannedVm<'_>> {
        (self.vms.iter())
            .map(|vm| PlannedVm {
                background: vm.background,
                disk_bytes: vm.disk_bytes,
                ..PlannedVm::new(&vm.name, &vm.objective)
            })
            .collect()
    }
}

/// Reads a configuration or a scenario, and prints its warnings.
pub(super) fn load(file: &Path) -> Result<Vec<Site>> {
    if file.extension().is_some_and(|ending| ending == "fio") {
        let problem = Problem::new("a fio job file promises nothing, so there is nothing to plan");
        return Err(problem
            .at(file.display().to_string())
            .help("`tidegate sim` runs it; a configuration or a scenario has objectives")
            .into());
    }
    let kind = document::read_text(file).map(|text| FileKind::detect(&text));
    if matches!(
        kind,
        Ok(Some(
            FileKind::Scenario | FileKind::Model | FileKind::Profile | FileKind::Vcpus
        ))
    ) {
        let ready = simulate::load(file, &Changes::default())?;
        ready.tell();
        return Ok(of_scenario(&ready.scenario));
    }
    let loaded = config::load(file)?;
    for warning in loaded.warnings.iter().chain(&loaded.notes) {
        output::tell(format_args!("{warning}\n"));
    }
    Ok(of_config(&loaded.config))
}

fn of_config(config: &Config) -> Vec<Site> {
    let sites = config
        .devices
        .iter()
        .enumerate()
        .map(|(index, device)| Site {
            name: device.name.clone(),
            model: match &device.kind {
                DeviceKind::Emulated { model } => Some(model.name.clone()),
                DeviceKind::File | DeviceKind::Memory | DeviceKind::Nbd => None,
            },
            scheduling: device.scheduling.clone(),
            capacity: feasibility::capacity(&device.kind),
            vms: (feasibility::planned_vms(config, index).iter())
                .map(|vm| SiteVm {
                    name: vm.name.to_owned(),
                    table: None,
                    objective: *vm.objective,
                    background: vm.background,
                    disk_bytes: vm.disk_bytes,
                })
                .collect(),
            asked: None,
        });
    sites.collect()
}

fn of_scenario(scenario: &Scenario) -> Vec<Site> {
    let sites = scenario.devices.iter().enumerate().map(|(index, device)| {
        let all = scenario.vms.iter().enumerate();
        let on_it = all.filter(|(_, vm)| vm.device == index);
        let table = |at: usize| {
            let mut tables = scenario.copies.iter();
            let found = tables.find(|(_, copies)| copies.contains(&at));
            found.map(|(name, _)| name.clone())
        };
        Site {
            name: device.name.clone(),
            model: Some(device.model.name.clone()),
            scheduling: device.scheduling.clone(),
            capacity: Some(device.model.spec().capacity),
            vms: on_it
                .map(|(at, vm)| SiteVm {
                    name: vm.name.clone(),
                    table: table(at),
                    objective: vm.objective,
                    background: vm.background,
                    disk_bytes: vm.disk_size,
                })
                .collect(),
            asked: None,
        }
    });
    sites.collect()
}
