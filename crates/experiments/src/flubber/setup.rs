//! The runs there are: a case, a scheduler, and what is changed about it.

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

/// What runs beside each other.
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

/// The four that the paper compares, as its figures call them.
pub(super) const SCHEDULERS: [&str; 4] = ["cfq", "cfq_priority", "edf_credit", "flubber"];

impl Case {
    /// Its file, and what it says.
    fn file(self) -> File {
        match self {
            Case::Read => named!("flubber/scenarios", "read.toml"),
            Case::Write => named!("flubber/scenarios", "write.toml"),
            Case::Mixed => named!("flubber/scenarios", "mixed.toml"),
            Case::ReadBackup => named!("flubber/scenarios", "read-backup.toml"),
            Case::WriteBackup => named!("flubber/scenarios", "write-backup.toml"),
        }
    }

    /// As the paper's tables 3 and 6 call it.
    pub(super) fn named(name: &str) -> Option<Case> {
        match name {
            "read" => Some(Case::Read),
            "write" => Some(Case::Write),
            "mixed" => Some(Case::Mixed),
            _ => None,
        }
    }

    /// The same beside a backup.
    pub(super) fn with_backup(self) -> Option<Case> {
        match self {
            Case::Read => Some(Case::ReadBackup),
            Case::Write => Some(Case::WriteBackup),
            _ => None,
        }
    }
}

/// What a run leaves out, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Without {
    /// Nothing.
    Nothing,
    /// Deadlines that bind: latencies are [`FAR`] times as long.
    NearDeadlines,
    /// The guests' processors take no time.
    Processor,
    /// Feedback on credits.
    Feedback,
    /// Deadlines that count what credits hold back: they begin when credits let a request in, which
    /// is the other reading of eq. 5's start time.
    HeldTime,
}

impl Variant for Without {
    const NOTHING: Without = Without::Nothing;
    const ALL: &'static [Without] = &[
        Without::NearDeadlines,
        Without::HeldTime,
        Without::Feedback,
        Without::Processor,
    ];

    fn phrase(self) -> String {
        match self {
            Without::Nothing => "As it is".to_owned(),
            Without::NearDeadlines => format!("With latencies {FAR} times as long"),
            Without::HeldTime => "With deadlines from when credits let a request in".to_owned(),
            Without::Feedback => "Without feedback".to_owned(),
            Without::Processor => "If guests took no processor time".to_owned(),
        }
    }
}

/// So many times the latencies that the paper promises are hardly ever overdue.
pub(super) const FAR: u64 = 5;

/// A run: what is simulated, under which scheduler, and what is changed about that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) case: Case,
    pub(super) scheduler: &'static str,
    /// The interval factor; `None`: that of `schedulers.toml`.
    beta: Option<u64>,
    without: Without,
}

impl Key {
    pub(super) fn new(case: Case, scheduler: &'static str) -> Key {
        Key {
            case,
            scheduler,
            beta: None,
            without: Without::Nothing,
        }
    }

    pub(super) fn with_beta(self, factor: u64) -> Key {
        let beta = Some(factor);
        Key { beta, ..self }
    }

    /// The same with something left out, if it is Flubber's.
    pub(super) fn without(self, without: Without) -> Key {
        let without = match self.scheduler {
            "flubber" => without,
            _ => Without::Nothing,
        };
        Key { without, ..self }
    }
}

/// A scheduler of `schedulers.toml`.
#[derive(Clone, Debug)]
struct Scheduler {
    policy: PolicySpec,
    /// The policy where nobody writes.
    policy_for_reads: PolicySpec,
    /// What tenants are promised, or which class they have.
    objectives: Vec<(String, Objective)>,
}

/// The scheduler `name`, for the tenants of `scenario`.
fn scheduler(name: &'static str, scenario: &Scenario) -> Result<Scheduler, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let for_reads = section.read("policy_for_reads", policy.clone(), policy::from_field);
        let objectives = section.read("objective", Vec::new(), |field| {
            let section = Section::of(field)?;
            let tenant = |name: &str| scenario.tenants.iter().find(|t| t.name == name);
            // Tenants of other cases are passed over.
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

/// The disk of the experiment, and those of the catalogue.
fn find_model(name: &str) -> Result<Entry, String> {
    folder::model(name, &[DISK])
}

/// What a run simulates.
///
/// # Errors
/// When a file of the experiment is not what it should be.
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
    folder::put_under(&mut scenario, &policy);
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

fn leave_out(scenario: &mut Scenario, without: Without) -> Result<(), ExperimentError> {
    match without {
        Without::Nothing => Ok(()),
        Without::Feedback => set_param(scenario, "feedback", 0),
        Without::HeldTime => {
            let from = DeadlineFrom::Admission as u64;
            set_param(scenario, "deadline_from", from)
        }
        Without::NearDeadlines => {
            for tenant in &mut scenario.tenants {
                let latency = &mut tenant.objective.latency;
                *latency = latency.map(|bound| Nanos(bound.0 * FAR));
            }
            Ok(())
        }
        Without::Processor => {
            for tenant in &mut scenario.tenants {
                tenant.delay.processor = None;
            }
            Ok(())
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// A row for each tenant and second.
    pub(super) rows: Vec<Row>,
}

impl Run {
    pub(super) fn of(scenario: Scenario) -> Run {
        let mut rows = Vec::new();
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        world.run(&mut |row| rows.push(row.clone()));
        let report = world.report();
        Run { report, rows }
    }

    pub(super) fn vm(&self, name: &str) -> Option<&VmReport> {
        self.report.vms.iter().find(|vm| vm.name == name)
    }

    /// Seconds from its start to its last answer.
    pub(super) fn time(&self, name: &str) -> Option<f64> {
        self.vm(name).map(|vm| vm.time_s)
    }

    /// Requests a second over its run, as the guest's block layer counts them.
    pub(super) fn iops(&self, name: &str) -> Option<f64> {
        self.vm(name).map(|vm| vm.rates.iops)
    }

    /// Mean latency in milliseconds.
    pub(super) fn delay(&self, name: &str) -> Option<f64> {
        let mean = self.vm(name)?.rates.latency_mean_ns?;
        Some(mean as f64 / 1e6)
    }

    /// Its whole seconds, those before its end.
    pub(super) fn seconds<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Row> + use<'a> {
        let name = name.to_owned();
        let end = self.time(&name).unwrap_or(0.0);
        let rows = self.rows.iter();
        rows.filter(move |row| row.vm == name && row.time_s <= end)
    }

    /// Mean requests a second of the five seconds from each of its seconds on: single ones hold an
    /// fsync or none.
    pub(super) fn five_seconds(&self, name: &str) -> Vec<f64> {
        const SPAN: usize = 5;
        let iops: Vec<f64> = self.seconds(name).map(|row| row.rates.iops).collect();
        let sums = iops.windows(SPAN).map(|span| span.iter().sum::<f64>());
        sums.map(|sum| sum / SPAN as f64).collect()
    }

    /// The largest of a second's requests.
    pub(super) fn iops_max(&self, name: &str) -> Option<f64> {
        self.seconds(name)
            .map(|row| row.rates.iops)
            .reduce(f64::max)
    }

    /// The largest of a second's mean latencies, in milliseconds.
    pub(super) fn delay_max(&self, name: &str) -> Option<f64> {
        let means = self
            .seconds(name)
            .filter_map(|row| row.rates.latency_mean_ns);
        means.max().map(|ns| ns as f64 / 1e6)
    }

    /// Of a hundred waits for a suitable request, how many one ended.
    pub(super) fn wait_success(&self) -> Option<f64> {
        let waits = self.report.devices.first()?.waits?;
        Some(100.0 * waits.succeeded as f64 / waits.begun.max(1) as f64)
    }

    /// The share of I/Os, in percent, for which the disk went so far: no way at all, some way
    /// within an image, or farther.
    pub(super) fn distances(&self) -> [f64; 3] {
        let mut shares = [0.0; 3];
        let counts = self
            .report
            .devices
            .iter()
            .flat_map(|device| &device.distances);
        for (share, distance) in shares.iter_mut().zip(counts) {
            *share = distance.ios as f64;
        }
        let all = shares.iter().sum::<f64>().max(1.0);
        shares.map(|share| 100.0 * share / all)
    }
}
