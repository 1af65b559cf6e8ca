//! A host: two media servers on PriDyn's disk, and VMs in which requests run that are let in.

use crate::ExperimentError;
use crate::pridyn::basis::Basis;
use crate::pridyn::folder::Folder;
use crate::pridyn::key::{Case as Scene, Change, Key as PridynKey};
use crate::pridyn::setup::scenario;
use std::sync::Arc;
use tidegate_config::Library;
use tidegate_core::jobs::deadline::{makespan, with_tolerance};
use tidegate_core::time::Nanos;
use tidegate_place::Bandwidth;
use tidegate_sim::scenario::{Scenario, Tenant};
use tidegate_workload::deadline::{BySize, Deadline};
use tidegate_workload::replay::{Factor, Mode, Replay};
use tidegate_workload::time::TimeDistribution;
use tidegate_workload::trace::{self, Options, Record, Trace};

/// Media servers run all the time; they are the first VMs.
pub(super) const MEDIA: usize = 2;

/// Who wants to be let in: section 5.4's two cases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Requests of a web server, which are to be done at once.
    Web,
    /// Those of a research server, which have time.
    Research,
}

impl Case {
    pub(super) const BOTH: [Case; 2] = [Case::Web, Case::Research];

    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Web => "web",
            Case::Research => "research",
        }
    }

    /// Delta, in thousandths: "small values", as in figure 4.6; and section 5.4's.
    pub(super) fn tolerance(self) -> u64 {
        match self {
            Case::Web => 300,
            Case::Research => 20_000,
        }
    }

    /// PriDyn's scenario that has such a stream, and its place there.
    fn scene(self) -> (Scene, usize) {
        match self {
            Case::Web => (Scene::Web, 0),
            Case::Research => (Scene::WebResearch, 1),
        }
    }

    fn file(self) -> &'static str {
        match self {
            Case::Web => "../traces/web-1.disksim",
            Case::Research => "../../../crates/workload/testdata/vm.vscsi",
        }
    }
}

/// What kind of host it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Setting {
    /// Table 5.1's: beside A and B there is one VM, C, which runs one request at a time.
    One,
    /// There are four such VMs.
    Several,
    /// Four, and all requests are a hundred times as large: they last for some of PriDyn's
    /// intervals.
    Long,
    /// Such requests, and nothing that was not asked for: no media server runs, every other request
    /// is a media server's.
    Asked,
    /// The same where every other VM cannot take all that it is given: its processor takes so long
    /// for a piece.
    Limited,
    /// The same, and PCOS is told what those take at most.
    Told,
}

impl Setting {
    /// Everybody asks.
    pub(super) fn asks_all(self) -> bool {
        matches!(self, Setting::Asked) || self.limits()
    }

    /// Every other VM is limited.
    pub(super) fn limits(self) -> bool {
        matches!(self, Setting::Limited | Setting::Told)
    }

    /// Whether this VM cannot take all that it is given.
    pub(super) fn is_limited(self, vm: usize) -> bool {
        self.limits() && vm > MEDIA && (vm - MEDIA) % 2 == 1
    }

    /// VMs for those that are let in.
    pub(super) fn places(self) -> usize {
        match self {
            Setting::One => 1,
            _ => 4,
        }
    }

    /// Sizes of the traces are multiplied by this; the thesis has 100.
    fn factor(self) -> u64 {
        match self {
            Setting::One | Setting::Several => 100,
            Setting::Long | Setting::Asked | Setting::Limited | Setting::Told => 10_000,
        }
    }
}

/// What a VM's processor takes for a piece of 512 KiB where it is limited: 21 MB/s at most, without
/// the disk's time.
const LIMITED: Nanos = Nanos::from_millis(25);

/// What the disk does for one and for two media servers, in bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capacity {
    pub(super) alone: u64,
    pub(super) two: u64,
}

impl Capacity {
    fn loss(&self) -> u64 {
        self.alone.saturating_sub(self.two)
    }

    /// As the meta-scheduler is told of it.
    pub(super) fn bandwidth(&self) -> Option<Bandwidth> {
        Bandwidth::new(self.alone, &[0, self.loss()]).ok()
    }

    /// Equations 4.1 and 4.2.
    fn deadline(&self, bytes: u64, tolerance: u64) -> Nanos {
        let makespan = makespan(bytes, self.alone, self.loss(), 2, false);
        with_tolerance(makespan.max(Nanos(1)), tolerance)
    }
}

/// A request that wants to be let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Newcomer {
    /// Which, from 0 on.
    pub(super) index: usize,
    pub(super) bytes: u64,
    pub(super) deadline: Nanos,
}

/// A host as it is before anything runs.
#[derive(Clone, Debug)]
pub(super) struct House {
    pub(super) setting: Setting,
    /// Delta of the media servers, in thousandths.
    tolerance: u32,
    /// With the VMs for newcomers, whose jobs do not begin by themselves.
    scenario: Scenario,
    /// What wants to be let in, over and over, with its delta in thousandths.
    wanted: Arc<[(Record, u64)]>,
}

fn wrong(what: impl Into<String>) -> ExperimentError {
    let file = "experiments/pridyn";
    ExperimentError::Data {
        file,
        what: what.into(),
    }
}

/// A stream's requests.
fn records(folder: &Folder, file: &str) -> Result<Vec<Record>, ExperimentError> {
    let input = folder.open(file).map_err(wrong)?;
    let trace = trace::read(input, &Options::default());
    Ok(trace
        .map_err(|error| wrong(format!("{file}: {error}")))?
        .records)
}

impl House {
    /// With media servers of this delta, in thousandths.
    pub(super) fn new(
        setting: Setting,
        case: Case,
        tolerance: u32,
        folder: &Folder,
    ) -> Result<House, ExperimentError> {
        let of_case = records(folder, case.file())?.into_iter();
        let of_case = of_case.map(|record| (record, case.tolerance()));
        let wanted = match setting.asks_all() {
            false => of_case.collect(),
            true => {
                let media = records(folder, "../traces/media-3.disksim")?.into_iter();
                let media = media.map(|record| (record, u64::from(tolerance)));
                media
                    .zip(of_case)
                    .flat_map(|(media, of_case)| [media, of_case])
                    .collect()
            }
        };
        let key = PridynKey::new(Scene::Media, "pridyn", Change::Streams(MEDIA));
        let mut all = scenario(&key, folder, &Basis::default())?;
        let (scene, place) = case.scene();
        let key = PridynKey::new(scene, "pridyn", Change::Streams(place + 1));
        let template = scenario(&key, folder, &Basis::default())?
            .tenants
            .swap_remove(place);
        for n in 1..=setting.places() {
            all.tenants.push(Tenant {
                name: format!("new-{n}"),
                ..template.clone()
            });
        }
        for job in all.tenants.iter_mut().flat_map(|vm| &mut vm.jobs) {
            if let Some(replay) = &mut job.replay {
                replay.size_factor = Factor::new(setting.factor() as f64);
            }
        }
        for (at, vm) in all.tenants.iter_mut().enumerate() {
            if setting.is_limited(at) {
                vm.delay.processor = Some(TimeDistribution::Fixed(LIMITED));
            }
        }
        Ok(House {
            setting,
            tolerance,
            scenario: all,
            wanted,
        })
    }

    /// The first of the VMs as endless streams without deadlines, those of newcomers each from
    /// another request on, with this policy, for so long.
    pub(super) fn streams(&self, vms: usize, duration: Nanos, policy: &Scenario) -> Scenario {
        let mut scenario = self.scenario.clone();
        for (n, vm) in scenario.tenants[MEDIA..].iter_mut().enumerate() {
            let mut records: Vec<Record> = self.wanted.iter().map(|of| of.0).collect();
            let from = n * records.len() / self.setting.places();
            records.rotate_left(from);
            vm.jobs[0].replay = self.replay(records, true);
        }
        if self.setting.asks_all() {
            scenario.tenants.drain(..MEDIA);
        }
        scenario.tenants.truncate(vms);
        scenario.devices[0].scheduling.policy = policy.devices[0].scheduling.policy.clone();
        scenario.frame.duration = duration;
        scenario
    }

    /// The same of one VM for newcomers alone.
    pub(super) fn stream_alone(&self, vm: usize, duration: Nanos, policy: &Scenario) -> Scenario {
        let mut scenario = self.streams(self.setting.places(), duration, policy);
        scenario.tenants = vec![scenario.tenants.swap_remove(vm - MEDIA)];
        scenario
    }

    /// Media servers with deadlines, unless everybody asks, and nobody else, for so long.
    pub(super) fn running(&self, capacity: &Capacity, duration: Nanos) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.frame.duration = duration;
        let by = BySize {
            tolerance: self.tolerance,
            max_bandwidth: capacity.alone,
            bandwidth_loss: capacity.loss(),
            tenants: MEDIA as u32,
            as_printed: false,
        };
        for vm in &mut scenario.tenants[..MEDIA] {
            vm.jobs[0].deadline = Some(Deadline::BySize(by));
        }
        let all = if self.setting.asks_all() { 0 } else { MEDIA };
        for vm in &mut scenario.tenants[all..] {
            // It begins when a request is let in.
            vm.jobs[0].start = duration;
        }
        scenario
    }

    /// A request that wants to be let in.
    pub(super) fn newcomer(&self, index: usize, capacity: &Capacity) -> Newcomer {
        let (record, tolerance) = &self.wanted[index % self.wanted.len()];
        let bytes = (u64::from(record.len) * self.setting.factor()).next_multiple_of(BLOCK);
        Newcomer {
            index,
            bytes,
            deadline: capacity.deadline(bytes, *tolerance),
        }
    }

    /// The job that it is.
    pub(super) fn job(&self, newcomer: &Newcomer) -> tidegate_workload::job::Job {
        let (record, _) = self.wanted[newcomer.index % self.wanted.len()];
        let mut job = self.scenario.tenants[MEDIA].jobs[0].clone();
        job.replay = self.replay(vec![record], false);
        job.deadline = Some(Deadline::Fixed(newcomer.deadline));
        job.start = Nanos::ZERO;
        job
    }

    /// These requests, one after the other.
    fn replay(&self, mut records: Vec<Record>, again: bool) -> Option<Replay> {
        for record in &mut records {
            (record.at, record.disk) = (Nanos::ZERO, 0);
        }
        let trace = Trace {
            format: trace::Format::DiskSim,
            disks: vec!["disk".to_owned()],
            records,
            out_of_order: 0,
            skipped: 0,
            bad: Vec::new(),
        };
        let mut replay = Replay::new(&trace, None, None)?;
        replay.mode = Mode::NextWhenDone;
        replay.size_factor = Factor::new(self.setting.factor() as f64);
        replay.again = again;
        Some(replay)
    }
}

/// The disk's logical block: sizes are rounded up to it.
const BLOCK: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_vm_for_newcomers_is_limited_where_some_are() {
        let limited = |setting: Setting| -> Vec<usize> {
            let all = 0..MEDIA + setting.places();
            all.filter(|vm| setting.is_limited(*vm)).collect()
        };
        assert_eq!(limited(Setting::Told), [3, 5]);
        assert_eq!(limited(Setting::Limited), [3, 5]);
        assert!(limited(Setting::Asked).is_empty());
    }
}
