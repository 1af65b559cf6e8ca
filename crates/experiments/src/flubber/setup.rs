//! Runs of the experiment: case, scheduler and ablation.

use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use crate::frame::Variant;
use tidegate_config::{Section, objective, policy};
use tidegate_core::objective::Objective;
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::Entry;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::report::{Report, Row, VmReport};
use tidegate_sim::scenario::{self, Scenario};
use tidegate_sim::world::World;

/// Workloads that run side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    Read,
    Write,
    Mixed,
    ReadBackup,
    WriteBackup,
}

pub(super) const DISK: File = named!("flubber", "disk.toml");
const SCHEDULERS_TOML: &str = folder::embedded!("flubber", "schedulers.toml");

/// Schedulers that the paper compares, by their names in its figures.
pub(super) const SCHEDULERS: [&str; 4] = ["cfq", "cfq_priority", "edf_credit", "flubber"];

impl Case {
    /// Scenario file of the case.
    fn file(self) -> File {
        match self {
            Case::Read => named!("flubber/scenarios", "read.toml"),
            Case::Write => named!("flubber/scenarios", "write.toml"),
            Case::Mixed => named!("flubber/scenarios", "mixed.toml"),
            Case::ReadBackup => named!("flubber/scenarios", "read-backup.toml"),
            Case::WriteBackup => named!("flubber/scenarios", "write-backup.toml"),
        }
    }

    /// Case by its name in tables 3 and 6 of the paper.
    pub(super) fn named(name: &str) -> Option<Case> {
        match name {
            "read" => Some(Case::Read),
            "write" => Some(Case::Write),
            "mixed" => Some(Case::Mixed),
            _ => None,
        }
    }

    /// Case with a backup beside it; `None` if there is none.
    pub(super) fn with_backup(self) -> Option<Case> {
        match self {
            Case::Read => Some(Case::ReadBackup),
            Case::Write => Some(Case::WriteBackup),
            _ => None,
        }
    }
}

/// Ablation, to show the cause of a claim's outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ablation {
    /// Unchanged run.
    Nothing,
    /// No binding deadlines: latencies are [`LATENCY_FACTOR`] times as long.
    NearDeadlines,
    /// No CPU time in the guests.
    Processor,
    /// No feedback on credits.
    Feedback,
    /// No deadline while credits hold a request: deadlines start when credits admit it, the other
    /// reading of eq. 5's start time.
    HeldTime,
}

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Nothing;
    const ALL: &'static [Ablation] = &[
        Ablation::NearDeadlines,
        Ablation::HeldTime,
        Ablation::Feedback,
        Ablation::Processor,
    ];

    fn phrase(self) -> String {
        match self {
            Ablation::Nothing => "As it is".to_owned(),
            Ablation::NearDeadlines => format!("With latencies {LATENCY_FACTOR} times as long"),
            Ablation::HeldTime => "With deadlines from when credits let a request in".to_owned(),
            Ablation::Feedback => "Without feedback".to_owned(),
            Ablation::Processor => "If guests took no processor time".to_owned(),
        }
    }
}

/// Factor with which the paper's latency targets hardly ever become overdue.
pub(super) const LATENCY_FACTOR: u64 = 5;

/// Run: case, scheduler and change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    pub(super) scheduler: &'static str,
    /// Interval factor; `None` for that of `schedulers.toml`.
    beta: Option<u64>,
    without: Ablation,
}

impl Key {
    pub(super) fn new(case: Case, scheduler: &'static str) -> Key {
        Key {
            case,
            scheduler,
            beta: None,
            without: Ablation::Nothing,
        }
    }

    pub(super) fn with_beta(self, factor: u64) -> Key {
        let beta = Some(factor);
        Key { beta, ..self }
    }

    /// Key of the run with an ablation, which applies to Flubber only.
    pub(super) fn without(self, without: Ablation) -> Key {
        // Other schedulers have nothing to leave out; one key for all variants runs them once.
        let without = match self.scheduler {
            "flubber" => without,
            _ => Ablation::Nothing,
        };
        Key { without, ..self }
    }
}

/// Scheduler of `schedulers.toml`.
#[derive(Clone, Debug)]
struct Scheduler {
    policy: PolicySpec,
    /// Policy for cases without writers.
    policy_for_reads: PolicySpec,
    /// Objectives, or priorities, by tenant.
    objectives: Vec<(String, Objective)>,
}

/// Reads the scheduler `name` for the tenants of `scenario`.
fn scheduler(name: &'static str, scenario: &Scenario) -> Result<Scheduler, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let for_reads = section.read("policy_for_reads", policy.clone(), policy::from_field);
        let objectives = section.read("objective", Vec::new(), |field| {
            let section = Section::open(field)?;
            let tenant = |name: &str| scenario.tenants.iter().find(|t| t.name == name);
            // The file also has objectives for tenants of other cases.
            let of_case = section.entries().filter_map(|(entry, field)| {
                let tenant = tenant(&entry.key)?;
                let objective = objective::from_field(&field, &tenant.objective);
                Some(objective.map(|objective| (entry.key.clone(), objective)))
            });
            of_case.collect()
        });
        Some(Scheduler {
            policy,
            policy_for_reads: for_reads?,
            objectives: objectives?,
        })
    })
}

/// Finds the experiment's disk and those of the catalogue.
fn find_model(name: &str) -> Result<Entry, String> {
    folder::model(name, &[DISK])
}

/// Scenario of a run.
///
/// # Errors
/// Fails when a file of the experiment is malformed.
pub(super) fn scenario(key: &Key) -> Result<Scenario, ExperimentError> {
    let (file, text) = key.case.file();
    let mut scenario = scenario::read(text, file, &find_model, None)?
        .config
        .unbounded();
    let scheduler = scheduler(key.scheduler, &scenario)?;
    let policy = match key.case {
        Case::Read | Case::ReadBackup => scheduler.policy_for_reads,
        _ => scheduler.policy,
    };
    folder::set_policy(&mut scenario, &policy);
    if let Some(beta) = key.beta {
        set_param(&mut scenario, "beta", beta)?;
    }
    leave_out(&mut scenario, key.without)?;
    for (name, objective) in scheduler.objectives {
        let tenant = scenario.tenants.iter_mut().find(|t| t.name == name);
        tenant.expect("read for a tenant that is there").objective = objective;
    }
    folder::checked(scenario, file, key)
}

fn leave_out(scenario: &mut Scenario, without: Ablation) -> Result<(), ExperimentError> {
    match without {
        Ablation::Nothing => Ok(()),
        Ablation::Feedback => set_param(scenario, "feedback", 0),
        Ablation::HeldTime => {
            let from = DeadlineFrom::Admission as u64;
            set_param(scenario, "deadline_from", from)
        }
        Ablation::NearDeadlines => {
            for tenant in &mut scenario.tenants {
                let latency = &mut tenant.objective.latency;
                *latency = latency.map(|bound| Nanos(bound.0 * LATENCY_FACTOR));
            }
            Ok(())
        }
        Ablation::Processor => {
            for tenant in &mut scenario.tenants {
                tenant.delay.processor = None;
            }
            Ok(())
        }
    }
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// Rows per tenant and second.
    pub(super) rows: Vec<Row>,
}

impl Run {
    pub(super) fn simulate(scenario: Scenario) -> Run {
        let mut rows = Vec::new();
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        world.run(&mut |row| rows.push(row.clone()));
        let report = world.report();
        Run { report, rows }
    }

    pub(super) fn vm(&self, name: &str) -> Option<&VmReport> {
        self.report.vms.iter().find(|vm| vm.name == name)
    }

    /// Time from a VM's start to its last answer, in seconds.
    pub(super) fn time(&self, name: &str) -> Option<f64> {
        self.vm(name).map(|vm| vm.time_s)
    }

    /// Requests per second over the VM's run, counted by the guest's block layer.
    pub(super) fn iops(&self, name: &str) -> Option<f64> {
        self.vm(name).map(|vm| vm.rates.iops)
    }

    /// Mean latency in milliseconds.
    pub(super) fn delay(&self, name: &str) -> Option<f64> {
        let mean = self.vm(name)?.rates.latency_mean_ns?;
        Some(mean as f64 / 1e6)
    }

    /// Rows of a VM's whole seconds before its end.
    pub(super) fn seconds<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Row> + use<'a> {
        let name = name.to_owned();
        // Up to the VM's last answer: later rows are empty.
        let end = self.time(&name).unwrap_or(0.0);
        let rows = self.rows.iter();
        rows.filter(move |row| row.vm == name && row.time_s <= end)
    }

    /// Mean requests per second over windows of five seconds, one starting at each second. Single
    /// seconds vary with the fsyncs in them.
    pub(super) fn five_seconds(&self, name: &str) -> Vec<f64> {
        const SPAN: usize = 5;
        let iops: Vec<f64> = self.seconds(name).map(|row| row.rates.iops).collect();
        let sums = iops.windows(SPAN).map(|span| span.iter().sum::<f64>());
        sums.map(|sum| sum / SPAN as f64).collect()
    }

    /// Largest number of requests in a second.
    pub(super) fn iops_max(&self, name: &str) -> Option<f64> {
        self.seconds(name)
            .map(|row| row.rates.iops)
            .reduce(f64::max)
    }

    /// Largest mean latency of a second, in milliseconds.
    pub(super) fn delay_max(&self, name: &str) -> Option<f64> {
        let means = self
            .seconds(name)
            .filter_map(|row| row.rates.latency_mean_ns);
        means.max().map(|ns| ns as f64 / 1e6)
    }

    /// Anticipatory waits that a suitable request ended, in percent.
    pub(super) fn wait_success(&self) -> Option<f64> {
        let waits = self.report.devices.first()?.waits?;
        // No waits at all are a success of 0 %.
        Some(100.0 * waits.succeeded as f64 / waits.begun.max(1) as f64)
    }

    /// Percentage of I/Os by the disk's travel: none, within an image, and beyond.
    pub(super) fn distances(&self) -> [f64; 3] {
        let mut shares = [0.0; 3];
        let counts = self
            .report
            .devices
            .iter()
            .flat_map(|device| &device.distances);
        // The scenarios have two bounds, so that there are three ranges.
        for (share, distance) in shares.iter_mut().zip(counts) {
            *share = distance.ios as f64;
        }
        let all = shares.iter().sum::<f64>().max(1.0);
        shares.map(|share| 100.0 * share / all)
    }
}
