//! Runs of the experiment: case, scheduler and ablation.

use crate::ExperimentError;
use crate::folder::{self, File, named, set_param};
use crate::frame::Variant;
use tidegate_config::{Section, objective, policy};
use tidegate_core::objective::Objective;
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::dispatch::bd_edf::BatchOrder;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::report::{Report, Row, VmReport};
use tidegate_sim::scenario::{self, Scenario};
use tidegate_sim::world::World;
use tidegate_workload::spec::{Mix, SizeShare, Sizes, Workload};

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
    /// Latencies [`EDGE_PERCENT`] longer: across the edge on which the random reader's deadlines
    /// bind.
    Edge,
    /// No CPU time in the guests.
    Processor,
    /// No feedback on credits.
    Feedback,
    /// No deadline while credits hold a request: deadlines start when credits admit it, the other
    /// reading of eq. 5's start time.
    HeldTime,
    /// Intervals of credits end at the age of beta / min B.
    IntervalAge,
    /// Batches go on with the VM's nearest request.
    NearestBatch,
    /// Sequential readers' requests of 44 and 32 KiB by turns.
    MixedSizes,
    /// Images of 25.6 GB, 40 GiB apart.
    ImagesApart,
    /// Merging in the driver domain, up to [`MERGE_LIMIT_BYTES`].
    Merging,
    /// Inodes in the journal only.
    JournalOnly,
    /// A backup that writes each piece once it is read.
    EvenCopy,
    /// A drive that chooses among the commands that it has (NCQ).
    Ncq,
    /// CFQ with one I/O at the disk at a time.
    OneAtATime,
    /// CFQ that takes guests' writes for asynchronous, so that they have no class.
    AsyncGuests,
    /// CFQ that takes the backup's writes for synchronous, so that they have its class.
    SyncBackup,
    /// CFQ with preemption.
    Preemption,
    /// Disk that positions in half the time, under the paper's own scheduler alone.
    Positioning,
    /// [`Ablation::Positioning`], [`Ablation::Feedback`] and [`Ablation::Merging`] in one, under
    /// the paper's own scheduler alone.
    Writers,
    /// Backup that is due after [`SOONER_MS`] under EDF, for the paper's 500 ms.
    SoonerBackup,
    /// CFQ that gives VMs no class beside a backup, whose writes are synchronous.
    NoClasses,
    /// [`Ablation::Positioning`] under Flubber, [`Ablation::SoonerBackup`] under EDF and
    /// [`Ablation::NoClasses`] under CFQ, all in one.
    Together,
    /// Rates counted over each VM's whole run.
    WholeRuns,
}

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Nothing;
    const ALL: &'static [Ablation] = &[
        Ablation::NearDeadlines,
        Ablation::Edge,
        Ablation::HeldTime,
        Ablation::Feedback,
        Ablation::Processor,
        Ablation::IntervalAge,
        Ablation::NearestBatch,
        Ablation::MixedSizes,
        Ablation::ImagesApart,
        Ablation::Merging,
        Ablation::JournalOnly,
        Ablation::EvenCopy,
        Ablation::Ncq,
        Ablation::OneAtATime,
        Ablation::AsyncGuests,
        Ablation::SyncBackup,
        Ablation::Preemption,
        Ablation::Positioning,
        Ablation::Writers,
        Ablation::SoonerBackup,
        Ablation::NoClasses,
        Ablation::Together,
        Ablation::WholeRuns,
    ];

    fn phrase(self) -> String {
        let phrase = match self {
            Ablation::Nothing => "As it is",
            Ablation::NearDeadlines => {
                return format!("With latencies {LATENCY_FACTOR} times as long");
            }
            Ablation::Edge => return format!("With latencies {EDGE_PERCENT} % longer"),
            Ablation::HeldTime => "With deadlines from when credits let a request in",
            Ablation::Feedback => "Without feedback",
            Ablation::Processor => "If guests took no processor time",
            Ablation::IntervalAge => "With a bound on the age of intervals",
            Ablation::NearestBatch => "With batches that go on with the nearest request",
            Ablation::MixedSizes => "With sequential reads of 44 and 32 KiB by turns",
            Ablation::ImagesApart => "With images of 25.6 GB that lie 40 GiB apart",
            Ablation::Merging => "With merging up to 512 KiB in the driver domain",
            Ablation::JournalOnly => "With inodes in the journal only",
            Ablation::EvenCopy => "With a backup that writes each 4 MiB once they are read",
            Ablation::Ncq => "With a drive that queues commands (NCQ)",
            Ablation::OneAtATime => "With one I/O of CFQ at the disk at a time",
            Ablation::AsyncGuests => "With guests' writes asynchronous in CFQ",
            Ablation::SyncBackup => "With the backup's writes synchronous in CFQ",
            Ablation::Preemption => "With preemption in CFQ",
            Ablation::Positioning => "If the disk positioned in half the time under Flubber",
            Ablation::Writers => {
                "If the disk positioned in half the time under Flubber, without feedback and with \
                 merging up to 512 KiB"
            }
            Ablation::SoonerBackup => {
                return format!("With a backup that is due after {SOONER_MS} ms under EDF");
            }
            Ablation::NoClasses => {
                "With no classes of VMs beside a backup, whose writes CFQ takes for synchronous"
            }
            Ablation::Together => {
                return format!(
                    "With half the positioning time under Flubber, a backup that is due after \
                     {SOONER_MS} ms under EDF, and no classes beside one under CFQ, all together"
                );
            }
            Ablation::WholeRuns => "With rates over each VM's whole run",
        };
        phrase.to_owned()
    }
}

impl Ablation {
    /// Returns whether the ablation changes the run of a case under a scheduler.
    fn changes(self, case: Case, scheduler: &str) -> bool {
        let backup = matches!(case, Case::ReadBackup | Case::WriteBackup);
        let writers = matches!(case, Case::Write | Case::Mixed | Case::WriteBackup);
        match self {
            Ablation::Nothing | Ablation::WholeRuns | Ablation::Together => false,
            // The paper's own scheduler alone.
            Ablation::NearDeadlines
            | Ablation::Edge
            | Ablation::Processor
            | Ablation::Feedback
            | Ablation::HeldTime
            | Ablation::Positioning
            | Ablation::Writers
            | Ablation::NearestBatch => scheduler == "flubber",
            Ablation::IntervalAge => !is_cfq(scheduler),
            Ablation::Ncq | Ablation::OneAtATime | Ablation::Preemption => is_cfq(scheduler),
            Ablation::AsyncGuests => is_cfq(scheduler) && writers,
            Ablation::SyncBackup | Ablation::NoClasses => is_cfq(scheduler) && backup,
            Ablation::SoonerBackup => scheduler == "edf_credit" && backup,
            Ablation::ImagesApart | Ablation::Merging => true,
            Ablation::MixedSizes => !matches!(case, Case::Write | Case::WriteBackup),
            Ablation::JournalOnly => writers,
            Ablation::EvenCopy => backup,
        }
    }
}

fn is_cfq(scheduler: &str) -> bool {
    scheduler.starts_with("cfq")
}

/// Bound of the backup's latency under EDF in [`Ablation::SoonerBackup`], in milliseconds.
const SOONER_MS: u64 = 50;

/// Figures of `disk.toml` in [`Ablation::Positioning`]: half the time of each seek, and half of
/// that of a turn.
const HALF_POSITIONING: [(&[&str], &str); 4] = [
    (&["hdd", "seek", "track_to_track"], "0.5 ms"),
    (&["hdd", "seek", "average"], "4.25 ms"),
    (&["hdd", "seek", "full_stroke"], "7.35 ms"),
    (&["hdd", "rotation"], "14400 rpm"),
];

/// Percentage by which latencies are longer in [`Ablation::Edge`]: what a model may be off by.
const EDGE_PERCENT: u64 = 10;

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

    /// Key of the run with an ablation.
    pub(super) fn without(self, without: Ablation) -> Key {
        let without = match (without, self.scheduler) {
            (Ablation::Together, "flubber") => Ablation::Positioning,
            (Ablation::Together, "edf_credit") => Ablation::SoonerBackup,
            (Ablation::Together, _) => Ablation::NoClasses,
            _ => without,
        };
        // One key for all variants that do not change the run, so that it takes place once.
        let without = if without.changes(self.case, self.scheduler) {
            without
        } else {
            Ablation::Nothing
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
    /// I/Os that it has at the disk at a time, if not one.
    depth: Option<u32>,
    /// Objectives, or priorities, by VM.
    objectives: Vec<(String, Objective)>,
}

/// Reads the scheduler `name` for the VMs of `scenario`.
fn scheduler(name: &'static str, scenario: &Scenario) -> Result<Scheduler, ExperimentError> {
    folder::scheduler(SCHEDULERS_TOML, name, |section, policy| {
        let for_reads = section.read("policy_for_reads", policy.clone(), policy::from_field);
        let depth = section.read("depth", None, |field| field.count(1..=32).map(Some));
        let objectives = section.read("objective", Vec::new(), |field| {
            let section = Section::open(field)?;
            let named = |name: &str| scenario.vms.iter().find(|vm| vm.name == name);
            // The file also has objectives for VMs of other cases.
            let of_case = section.entries().filter_map(|(entry, field)| {
                let vm = named(&entry.key)?;
                let objective = objective::from_field(&field, &vm.objective);
                Some(objective.map(|objective| (entry.key.clone(), objective)))
            });
            of_case.collect()
        });
        Some(Scheduler {
            policy,
            policy_for_reads: for_reads?,
            depth: depth?.map(|depth: u64| depth as u32),
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
    if let Some(depth) = scheduler.depth {
        for device in &mut scenario.devices {
            device.scheduling.depth = depth;
        }
    }
    leave_out(&mut scenario, key.without)?;
    let mut objectives = scheduler.objectives;
    if key.without == Ablation::NoClasses {
        objectives.clear();
    }
    for (name, objective) in objectives {
        let vm = scenario.vms.iter_mut().find(|vm| vm.name == name);
        vm.expect("read for a VM that is there").objective = objective;
    }
    folder::checked(scenario, file, key)
}

fn leave_out(scenario: &mut Scenario, without: Ablation) -> Result<(), ExperimentError> {
    match without {
        // A key has the parts of `Together`, never it.
        Ablation::Nothing | Ablation::WholeRuns | Ablation::Together => Ok(()),
        Ablation::Feedback => set_param(scenario, "feedback", 0),
        Ablation::HeldTime => {
            let from = DeadlineFrom::Admission as u64;
            set_param(scenario, "deadline_from", from)
        }
        Ablation::NearDeadlines | Ablation::Edge => {
            let percent = match without {
                Ablation::Edge => 100 + EDGE_PERCENT,
                _ => 100 * LATENCY_FACTOR,
            };
            for vm in &mut scenario.vms {
                let latency = &mut vm.objective.latency;
                *latency = latency.map(|bound| Nanos(bound.0 / 100 * percent));
            }
            Ok(())
        }
        Ablation::Processor => {
            for vm in &mut scenario.vms {
                vm.delay.processor = None;
            }
            Ok(())
        }
        Ablation::Writers => {
            set_param(scenario, "feedback", 0)?;
            merge(scenario);
            position_in_half_the_time(scenario)
        }
        Ablation::IntervalAge => set_param(scenario, "bound_intervals", 1),
        Ablation::NearestBatch => set_param(scenario, "batch_order", BatchOrder::Nearest as u64),
        Ablation::AsyncGuests => set_param(scenario, "async_vm_writes", 1),
        // Without their classes, which are left out with the scheduler's objectives.
        Ablation::SyncBackup | Ablation::NoClasses => set_param(scenario, "async_writes", 0),
        Ablation::SoonerBackup => {
            let bound = Nanos::from_millis(SOONER_MS);
            set_param(scenario, "background_latency", bound.0)
        }
        Ablation::Positioning => position_in_half_the_time(scenario),
        Ablation::Preemption => set_param(scenario, "preemption", 1),
        Ablation::OneAtATime => {
            for device in &mut scenario.devices {
                device.scheduling.depth = 1;
            }
            Ok(())
        }
        Ablation::Merging => {
            merge(scenario);
            Ok(())
        }
        Ablation::Ncq => queue_commands(scenario),
        Ablation::ImagesApart => {
            for (place, vm) in (0..).zip(&mut scenario.vms) {
                vm.disk_size = vm.disk_size.max(IMAGE_APART_BYTES);
                vm.disk_at = Some((20 << 30) + place * (40 << 30));
            }
            Ok(())
        }
        Ablation::MixedSizes | Ablation::JournalOnly | Ablation::EvenCopy => {
            for vm in &mut scenario.vms {
                for workload in &mut vm.workloads {
                    without_model(workload, without);
                }
            }
            Ok(())
        }
    }
}

/// Lets the driver domain merge requests.
fn merge(scenario: &mut Scenario) {
    for device in &mut scenario.devices {
        device.scheduling.merge_limit = MERGE_LIMIT_BYTES;
        device.scheduling.max_io = MERGE_LIMIT_BYTES;
    }
}

/// Gives the disk of [`DISK`] a queue from which it chooses.
fn queue_commands(scenario: &mut Scenario) -> Result<(), ExperimentError> {
    let (file, text) = DISK;
    let text = format!("{text}\n[hdd.ncq]\nmax_wait = \"1 s\"\n");
    let entry = catalogue::parse(&text, file);
    let entry = entry.map_err(|error| ExperimentError::data(file, error))?;
    for device in &mut scenario.devices {
        device.model = entry.clone();
    }
    Ok(())
}

/// Puts the devices on a disk with the figures of [`HALF_POSITIONING`].
fn position_in_half_the_time(scenario: &mut Scenario) -> Result<(), ExperimentError> {
    let figures = HALF_POSITIONING.map(|(path, figure)| (path, figure.to_owned()));
    let entry = folder::model_with(DISK, &figures)?;
    for device in &mut scenario.devices {
        device.model = entry.clone();
    }
    Ok(())
}

/// Size up to which the driver domain merges requests: Linux's `max_sectors_kb`.
const MERGE_LIMIT_BYTES: u32 = 512 << 10;

/// Size in bytes of an image where images lie apart: the 5 x 10^7 sectors of table 6.
const IMAGE_APART_BYTES: u64 = 25_600_000_000;

/// Takes a part of the guests' model away from a workload.
fn without_model(workload: &mut Workload, without: Ablation) {
    match without {
        Ablation::MixedSizes => {
            let reads_in_sequence = workload.rw.mix == Mix::Read && !workload.rw.random;
            if reads_in_sequence && workload.copy_to.is_none() {
                let share = |bytes| SizeShare { bytes, weight: 1 };
                let sizes = Sizes([44 << 10, 32 << 10].map(share).to_vec());
                workload.sizes = std::array::from_fn(|_| sizes.clone());
            }
        }
        Ablation::JournalOnly => {
            let cache = workload.page_cache.as_mut();
            if let Some(journal) = cache.and_then(|cache| cache.journal.as_mut()) {
                journal.inode_table = None;
            }
        }
        _ => {
            if let Some(copy) = &mut workload.copy_to {
                copy.dirty_limit = None;
            }
        }
    }
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// Rows per VM and second.
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

    /// Rows of a VM's whole seconds in which all VMs are busy: before the first of them ends.
    fn together<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Row> + use<'a> {
        let vms = self.report.vms.iter().filter(|vm| !vm.background);
        let end = vms.map(|vm| vm.time_s).fold(f64::INFINITY, f64::min);
        let rows = self.rows.iter();
        rows.filter(move |row| row.vm == name && row.time_s <= end)
    }

    /// Requests per second while all VMs are busy.
    pub(super) fn iops_together(&self, name: &str) -> Option<f64> {
        let iops: Vec<f64> = self.together(name).map(|row| row.rates.iops).collect();
        (!iops.is_empty()).then(|| iops.iter().sum::<f64>() / iops.len() as f64)
    }

    /// Mean latency in milliseconds of the requests that end while all VMs are busy.
    pub(super) fn delay_together(&self, name: &str) -> Option<f64> {
        let (mut sum, mut requests) = (0.0, 0.0);
        for row in self.together(name) {
            if let Some(mean) = row.rates.latency_mean_ns {
                // Rows are of a second each, so that rates are numbers of requests.
                sum += mean as f64 * row.rates.iops;
                requests += row.rates.iops;
            }
        }
        (requests > 0.0).then(|| sum / requests / 1e6)
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

    /// Rows of a VM's whole run, or of the seconds in which all VMs are busy.
    fn counted<'a>(&'a self, name: &'a str, whole: bool) -> Vec<&'a Row> {
        if whole {
            self.seconds(name).collect()
        } else {
            self.together(name).collect()
        }
    }

    /// Largest number of requests in a second.
    pub(super) fn iops_max(&self, name: &str, whole: bool) -> Option<f64> {
        let rows = self.counted(name, whole).into_iter();
        rows.map(|row| row.rates.iops).reduce(f64::max)
    }

    /// Largest mean latency of a second, in milliseconds.
    pub(super) fn delay_max(&self, name: &str, whole: bool) -> Option<f64> {
        let rows = self.counted(name, whole).into_iter();
        let means = rows.filter_map(|row| row.rates.latency_mean_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ablations_together_are_those_of_each_scheduler() {
        let without = |case, scheduler, ablation| Key::new(case, scheduler).without(ablation);
        for (scheduler, part) in [
            ("flubber", Ablation::Positioning),
            ("edf_credit", Ablation::SoonerBackup),
            ("cfq_priority", Ablation::NoClasses),
        ] {
            let together = without(Case::ReadBackup, scheduler, Ablation::Together);
            let part = without(Case::ReadBackup, scheduler, part);
            assert_eq!(together, part);
            assert_ne!(part, Key::new(Case::ReadBackup, scheduler));
        }
        // Without a backup only Flubber's run is another one.
        let alone = without(Case::Read, "edf_credit", Ablation::Together);
        assert_eq!(alone, Key::new(Case::Read, "edf_credit"));
    }
}
