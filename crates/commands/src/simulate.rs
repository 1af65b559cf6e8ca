//! Loading of what is simulated: scenarios, configurations and fio job files, with changes by
//! options.

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
use tidegate_sim::scenario::{
    self, Copies, DISK_ALIGNMENT, Delay, Device, Exchange, Scenario, VmSpec,
};
use tidegate_workload::fio::{self, JobFile};
use tidegate_workload::spec::Workload;

use crate::args::{ChangeArgs, Processors};
use crate::file_kind::FileKind;
use crate::output;
use crate::problem::Problem;

mod configuration;

/// Device model for a fio job file, unless --device names another.
pub(crate) const DEFAULT_MODEL: &str = "hdd-7200-1tb";
/// Policy for a fio job file: none, as on a plain disk.
const DEFAULT_POLICY: &str = "fifo";
/// Maximum simulated time of a fio job file, one year; its jobs normally end before.
const DURATION_MAX: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);

/// Changes of a scenario by command-line options.
#[derive(Clone, Default, Debug)]
pub(crate) struct Changes {
    /// Policy for all devices.
    pub(crate) policy: Option<PolicySpec>,
    /// Simulation of the host CPU.
    pub(crate) processors: Option<Processors>,
    /// Device model for all devices.
    pub(crate) model: Option<String>,
    /// Seed of all random choices.
    pub(crate) seed: Option<u64>,
    /// Duration of the run.
    pub(crate) duration: Option<Nanos>,
    /// Ignores unsupported options of a fio job file.
    pub(crate) lenient: bool,
}

/// Scenario that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// Path of its file.
    pub(crate) file: PathBuf,
    /// Scenario with all changes applied.
    pub(crate) scenario: Scenario,
    /// Settings that are accepted but have no effect.
    pub(crate) warnings: Vec<Diagnostic>,
    /// Old spellings in the file.
    pub(crate) old_spellings: Vec<Diagnostic>,
    /// Notes on ignored options of a job file and on assumptions.
    pub(crate) notes: Vec<String>,
}

impl Ready {
    /// Prints warnings and notes on standard error.
    pub(crate) fn tell(&self) {
        for warning in self.warnings.iter().chain(&self.old_spellings) {
            output::tell(format_args!("{warning}\n"));
        }
        for note in &self.notes {
            output::tell(format_args!("{note}"));
        }
    }
}

/// Reads a scenario, a configuration of the daemon, or a fio job file, which is any file that does
/// not end in `.toml`.
pub(crate) fn load(path: &Path, changes: &Changes) -> Result<Ready> {
    if path.extension().is_some_and(|ending| ending == "tgrec") {
        let problem = Problem::new("this is a recording, not a scenario or a fio job file");
        return Err(problem
            .at(path.display().to_string())
            .help("`tidegate whatif` replays it")
            .into());
    }
    let text =
        document::read_text(path).map_err(|what| ConfigErrors(vec![Diagnostic::error(what)]))?;
    let file = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    let mut warnings = Vec::new();
    let mut old_spellings = Vec::new();
    let mut notes = Vec::new();
    let mut scenario = if path.extension().is_some_and(|ending| ending == "toml") {
        match FileKind::detect(&text) {
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
        let job_file = fio::parse(&text, &file, changes.lenient)?;
        notes = job_file.notes.iter().map(ToString::to_string).collect();
        from_job_file(&job_file, &file, changes)?
    };
    // Before the seed and the duration, which concern the frame and no device.
    if let Some(name) = &changes.model {
        let model = find_model(name)?;
        scenario
            .devices
            .iter_mut()
            .for_each(|device| device.put_on(&model));
    }
    let misfit = changes
        .processors
        .map(|it| set_processors(&mut scenario, it));
    if let Some(problem) = misfit.flatten() {
        return Err(problem.at(file).into());
    }
    if let Some(seed) = changes.seed {
        scenario.frame.seed = seed;
    }
    if let Some(duration) = changes.duration {
        scenario.frame.duration = duration;
    }
    // Checked last, because options may have broken what the file's own checks ensured.
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

/// Changes the simulation of the host CPU. Returns the problem if the scenario has none.
fn set_processors(scenario: &mut Scenario, processors: Processors) -> Option<Problem> {
    match (&mut scenario.cpu, processors) {
        (cpu, Processors::None) => *cpu = None,
        (Some(cpu), Processors::Under(scheduler)) => {
            cpu.scheduler = cpu.scheduler.replaced_by(scheduler);
        }
        (None, Processors::Under(scheduler)) => {
            let what = format!(
                "the scenario has no host CPU for the scheduler {}",
                scheduler.name()
            );
            let help = "add [host.cpu] to the scenario (docs/host.md), or leave out --scheduler";
            return Some(Problem::new(what).help(help));
        }
    }
    None
}

/// Returns a model by name or by a path relative to the current directory.
pub(crate) fn find_model(name: &str) -> Result<catalogue::Entry> {
    model::find(name, Path::new("")).map_err(|what| {
        let problem = Problem::new(what).at("--device");
        problem
            .help("give a model of the catalogue or the path of a .toml file")
            .into()
    })
}

/// Converts a job file: each section becomes a VM with an equal part of the device as its disk.
fn from_job_file(job_file: &JobFile, file: &str, changes: &Changes) -> Result<Scenario> {
    let model = find_model(changes.model.as_deref().unwrap_or(DEFAULT_MODEL))?;
    let share = model.spec().capacity / job_file.sections.len() as u64;
    // Rounded down, so that the aligned disks fit together.
    let share = share / DISK_ALIGNMENT * DISK_ALIGNMENT;
    let vms = (job_file.sections.iter())
        .map(|section| {
            let workload = section.workload(share).map_err(|error| {
                let help = format!(
                    "each of the {} sections gets an equal part of {}: use a larger --device or a \
                     smaller size",
                    job_file.sections.len(),
                    model.name
                );
                let at = format!("{file}:{}, [{}]", section.line, section.name);
                Problem::new(error.to_string()).at(at).help(help)
            })?;
            Ok(vm_spec(section.name.clone(), share, workload))
        })
        .collect::<Result<Vec<VmSpec>>>()?;
    let description = job_file.sections.iter().find_map(|s| s.description.clone());
    let ramp_times = job_file.sections.iter().map(|section| section.ramp_time);
    Ok(Scenario {
        frame: Frame {
            title: description.unwrap_or_default(),
            until_done: true,
            // Counting begins for all sections when the longest ramp_time has passed.
            warm_up: ramp_times.max().unwrap_or_default(),
            ..Frame::lasting(changes.duration.unwrap_or(DURATION_MAX))
        },
        devices: vec![device_of(&model, changes.policy.as_ref())?],
        vms,
        copies: Copies::new(),
        changes: Vec::new(),
        cpu: None,
    })
}

/// Creates a VM with one workload and a disk of `disk_size` bytes, placed after the previous VM's.
fn vm_spec(name: String, disk_size: u64, workload: Workload) -> VmSpec {
    VmSpec {
        name,
        device: 0,
        background: false,
        objective: Objective::default(),
        disk_size,
        host: 0,
        disk_at: None,
        parts: Vec::new(),
        workloads: vec![workload],
        delay: Delay::default(),
        cpu: Default::default(),
        arrives: Nanos::ZERO,
        leaves: None,
    }
}

/// Creates a device of a model, with a policy and all other scheduling keys at their defaults.
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
        limit_groups: Vec::new(),
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
