//! What is to be simulated: scenarios and fio's job files, and what the command line changes.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_config::device::Scheduling;
use tidegate_config::frame::Frame;
use tidegate_config::library::Beside;
use tidegate_config::{ConfigErrors, Diagnostic, document, model};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, DISK_ALIGNMENT, Delay, Device, Exchange, Scenario, Tenant};
use tidegate_workload::fio::{self, JobFile};
use tidegate_workload::job::Job;

use crate::args::{ChangeArgs, Processors};
use crate::file_kind::FileKind;
use crate::output;
use crate::problem::Problem;

mod configuration;

/// The device under a job file that names none.
pub(crate) const DEFAULT_MODEL: &str = "hdd-7200-1tb";
/// The policy under a job file: what fio itself would meet.
const DEFAULT_POLICY: &str = "fifo";
/// A job file is simulated until its jobs end, which they all do, but not beyond a year.
const LONGEST: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);

/// What the command line says about a scenario.
#[derive(Clone, Default, Debug)]
pub(crate) struct Changes {
    /// This policy on every device.
    pub(crate) policy: Option<PolicySpec>,
    /// Who runs on its processors.
    pub(crate) processors: Option<Processors>,
    /// This model under every device.
    pub(crate) model: Option<String>,
    /// This seed.
    pub(crate) seed: Option<u64>,
    /// This long.
    pub(crate) duration: Option<Nanos>,
    /// Options of a job file that are not understood are left out.
    pub(crate) lenient: bool,
}

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// What its file is called.
    pub(crate) file: PathBuf,
    /// It.
    pub(crate) scenario: Scenario,
    /// What it seems to say and does not do.
    pub(crate) warnings: Vec<Diagnostic>,
    /// Old spellings in it.
    pub(crate) old_spellings: Vec<Diagnostic>,
    /// What was left out of a job file, and why.
    pub(crate) notes: Vec<String>,
}

impl Ready {
    /// Says on standard error what is to be said about it.
    pub(crate) fn tell(&self) {
        for said in self.warnings.iter().chain(&self.old_spellings) {
            output::tell(format_args!("{said}\n"));
        }
        for note in &self.notes {
            output::tell(format_args!("{note}"));
        }
    }
}

/// Reads a scenario, a configuration of the daemon, or a job file: what does not end in `.toml` is
/// the last.
pub(crate) fn load(path: &Path, changes: &Changes) -> Result<Ready> {
    let text =
        document::read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let file = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    let mut warnings = Vec::new();
    let mut old_spellings = Vec::new();
    let mut notes = Vec::new();
    let mut scenario = if path.extension().is_some_and(|ending| ending == "toml") {
        match FileKind::of(&text) {
            Some(FileKind::Configuration) => {
                let converted = configuration::read(&text, &file, base, changes)?;
                (warnings, old_spellings) = (converted.warnings, converted.old_spellings);
                notes = converted.notes;
                converted.scenario
            }
            Some(FileKind::Scenario) | None => {
                let loaded = scenario::read(&text, &file, &Beside(base), changes.policy.as_ref())?;
                (warnings, old_spellings) = (loaded.warnings, loaded.notes);
                loaded.config
            }
            Some(kind) => return Err(kind.instead_of(FileKind::Scenario, path).into()),
        }
    } else {
        let jobs = fio::parse(&text, &file, changes.lenient)?;
        notes = jobs.notes.iter().map(ToString::to_string).collect();
        from_jobs(&jobs, &file, changes)?
    };
    if let Some(name) = &changes.model {
        let model = find_model(name)?;
        scenario
            .devices
            .iter_mut()
            .for_each(|device| device.put_on(&model));
    }
    let misfit = changes.processors.map(|it| put_under(&mut scenario, it));
    if let Some(problem) = misfit.flatten() {
        return Err(problem.at(file).into());
    }
    if let Some(seed) = changes.seed {
        scenario.frame.seed = seed;
    }
    if let Some(duration) = changes.duration {
        scenario.frame.duration = duration;
    }
    scenario
        .check()
        .map_err(|error| Problem::new(error.to_string()).at(file))?;
    Ok(Ready {
        file: path.to_owned(),
        scenario,
        warnings,
        old_spellings,
        notes,
    })
}

/// Changes who runs on its processors; what is wrong with that.
fn put_under(scenario: &mut Scenario, processors: Processors) -> Option<Problem> {
    match (&mut scenario.cpu, processors) {
        (cpu, Processors::None) => *cpu = None,
        (Some(cpu), Processors::Under(scheduler)) => {
            cpu.scheduler = cpu.scheduler.replaced_by(scheduler);
        }
        (None, Processors::Under(scheduler)) => {
            let what = format!("it has no processors to put under {}", scheduler.name());
            let help = "add [host.cpu] to the scenario (docs/host.md), or leave out --scheduler";
            return Some(Problem::new(what).help(help));
        }
    }
    None
}

/// A model by what the command line calls it: there a path is relative to where one stands.
fn find_model(name: &str) -> Result<catalogue::Entry> {
    model::find(name, Path::new("")).map_err(|what| {
        let problem = Problem::new(what).at("--device");
        problem
            .help("one of the catalogue, or the path of a .toml file")
            .into()
    })
}

/// Each section of a job file becomes a VM, with an equal part of the device as its disk.
fn from_jobs(jobs: &JobFile, file: &str, changes: &Changes) -> Result<Scenario> {
    let model = find_model(changes.model.as_deref().unwrap_or(DEFAULT_MODEL))?;
    let share = model.spec().capacity / jobs.sections.len() as u64;
    let share = share / DISK_ALIGNMENT * DISK_ALIGNMENT;
    let tenants = (jobs.sections.iter())
        .map(|section| {
            let job = section.job(share).map_err(|error| {
                let help = format!(
                    "each of the {} sections has an equal part of {}; a larger --device, or a \
                     smaller size",
                    jobs.sections.len(),
                    model.name
                );
                let at = format!("{file}:{}, [{}]", section.line, section.name);
                Problem::new(error.to_string()).at(at).help(help)
            })?;
            Ok(tenant_of(section.name.clone(), share, job))
        })
        .collect::<Result<Vec<Tenant>>>()?;
    let description = jobs.sections.iter().find_map(|s| s.description.clone());
    let ramp_times = jobs.sections.iter().map(|section| section.ramp_time);
    Ok(Scenario {
        frame: Frame {
            title: description.unwrap_or_default(),
            until_done: true,
            // Counting begins for all of them once it has begun for the last.
            warm_up: ramp_times.max().unwrap_or_default(),
            ..Frame::lasting(changes.duration.unwrap_or(LONGEST))
        },
        devices: vec![device_of(&model, changes.policy.as_ref())?],
        tenants,
        changes: Vec::new(),
        cpu: None,
    })
}

/// A VM with one workload and a disk of `disk_size` bytes, behind that of the VM before it.
fn tenant_of(name: String, disk_size: u64, job: Job) -> Tenant {
    Tenant {
        name,
        device: 0,
        background: false,
        objective: Objective::default(),
        disk_size,
        host: 0,
        disk_at: None,
        jobs: vec![job],
        delay: Delay::default(),
        cpu: Default::default(),
        arrives: Nanos::ZERO,
        leaves: None,
    }
}

/// A device of this model with every key of scheduling left out but its policy.
fn device_of(model: &catalogue::Entry, policy: Option<&PolicySpec>) -> Result<Device> {
    let policy = match policy {
        Some(policy) => policy.clone(),
        None => PolicySpec::named(DEFAULT_POLICY)?,
    };
    let mut device = Device {
        name: "device".to_owned(),
        model: model.clone(),
        scheduling: Scheduling::new(policy),
        bounded: true,
        exchange: Exchange::default(),
        path: scenario::Path::default(),
        distances: scenario::default_distances(),
    };
    device.put_on(model);
    Ok(device)
}

impl From<&ChangeArgs> for Changes {
    fn from(args: &ChangeArgs) -> Changes {
        Changes {
            model: args.device.clone(),
            duration: args.duration,
            lenient: args.lenient,
            ..Changes::default()
        }
    }
}
