//! Host: two media servers on PriDyn's disk, and VMs that run admitted requests.

use crate::ExperimentError;
use crate::pridyn::basis::Basis;
use crate::pridyn::folder::Folder;
use crate::pridyn::key::{Case as Scene, Change, Key as PridynKey};
use crate::pridyn::setup::scenario;
use std::sync::Arc;
use tidegate_config::Library;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::deadline::{makespan, with_tolerance};
use tidegate_place::Bandwidth;
use tidegate_sim::scenario::{Scenario, VmSpec};
use tidegate_workload::deadline::{BySize, Deadline};
use tidegate_workload::replay::{Factor, Mode, Replay};
use tidegate_workload::time::TimeDistribution;
use tidegate_workload::trace::{self, Options, Record, Trace};

/// Number of media servers. They run all the time and are the first VMs.
pub(super) const MEDIA: usize = 2;

/// Source of requests: the two cases of section 5.4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Web server, whose requests are urgent.
    Web,
    /// Research server, whose requests have time.
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

    /// Delta in thousandths: "small values" for web as in figure 4.6, and that of section 5.4 for
    /// research.
    pub(super) fn tolerance(self) -> u64 {
        match self {
            Case::Web => 300,
            Case::Research => 20_000,
        }
    }

    /// PriDyn's scenario with such a stream, and the stream's index there.
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

/// Kind of host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Setting {
    /// Table 5.1: beside A and B there is one VM, C, which runs one request at a time. A and B
    /// pause between two requests ([`PAUSE`]).
    OneVm,
    /// One VM, beside media servers that send the next request as soon as the last is done.
    NoPauses,
    /// Four VMs for requests.
    FourVms,
    /// Four VMs, and requests a hundred times as large, which last for several of PriDyn's
    /// intervals.
    LargeRequests,
    /// Large requests without a permanent load: the media servers' transfers are every other
    /// request and need admission too.
    NoPermanentLoad,
    /// Large requests as in `NoPermanentLoad`, with every other VM limited by the CPU time of each
    /// piece.
    LimitedVms,
    /// Limited VMs as in `LimitedVms`, whose limits PCOS knows.
    KnownLimits,
}

impl Setting {
    /// Returns `true` if all transfers need admission.
    pub(super) fn asks_all(self) -> bool {
        matches!(self, Setting::NoPermanentLoad) || self.limits()
    }

    /// Returns `true` if every other VM is limited.
    pub(super) fn limits(self) -> bool {
        matches!(self, Setting::LimitedVms | Setting::KnownLimits)
    }

    /// Returns `true` if this VM is limited.
    pub(super) fn is_limited(self, vm: usize) -> bool {
        // Every other one of the VMs for requests, the first of them unlimited.
        self.limits() && vm > MEDIA && (vm - MEDIA) % 2 == 1
    }

    /// Number of VMs for admitted requests.
    pub(super) fn places(self) -> usize {
        match self {
            Setting::OneVm | Setting::NoPauses => 1,
            _ => 4,
        }
    }

    /// Pause between two requests of a stream.
    fn pause(self) -> Option<TimeDistribution> {
        let has_pauses = matches!(self, Setting::OneVm | Setting::FourVms);
        has_pauses.then_some(TimeDistribution::Exponential { mean: PAUSE })
    }

    /// Factor of the traces' sizes; 100 in the thesis.
    fn factor(self) -> u64 {
        match self {
            Setting::OneVm | Setting::NoPauses | Setting::FourVms => 100,
            Setting::LargeRequests
            | Setting::NoPermanentLoad
            | Setting::LimitedVms
            | Setting::KnownLimits => 10_000,
        }
    }
}

/// Mean pause between two requests of a stream: each request is an IOzone that a script on another
/// machine starts (section 4.2), which takes some milliseconds. Figure 4.5 bounds it: with pauses
/// of 30 ms streams would miss far fewer deadlines than there.
const PAUSE: Nanos = Nanos::from_millis(10);

/// CPU time of a limited VM for a piece of 512 KiB: at most 21 MB/s without the disk's time.
const LIMITED: Nanos = Nanos::from_millis(25);

/// Throughput of the disk for one and for two media servers, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capacity {
    pub(super) alone: u64,
    pub(super) two: u64,
}

impl Capacity {
    fn loss(&self) -> u64 {
        self.alone.saturating_sub(self.two)
    }

    /// Bandwidth model for the meta-scheduler.
    pub(super) fn bandwidth(&self) -> Option<Bandwidth> {
        Bandwidth::new(self.alone, &[0, self.loss()]).ok()
    }

    /// Deadline by equations 4.1 and 4.2.
    fn deadline(&self, bytes: u64, tolerance: u64) -> Nanos {
        let makespan = makespan(bytes, self.alone, self.loss(), 2, false);
        // A deadline of 0 would be missed by definition.
        with_tolerance(makespan.max(Nanos(1)), tolerance)
    }
}

/// Request that asks for admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Newcomer {
    /// Number of the request, from 0 on.
    pub(super) index: usize,
    pub(super) bytes: u64,
    pub(super) deadline: Nanos,
}

/// Host before anything runs.
#[derive(Clone, Debug)]
pub(super) struct HostModel {
    pub(super) setting: Setting,
    /// Delta of the media servers, in thousandths.
    tolerance: u32,
    /// Scenario with the VMs for newcomers, whose workloads do not begin by themselves.
    scenario: Scenario,
    /// Requests that ask for admission, repeated in a cycle, each with its delta in thousandths.
    wanted: Arc<[(Record, u64)]>,
}

fn wrong(what: impl Into<String>) -> ExperimentError {
    let file = "experiments/pridyn";
    ExperimentError::Data {
        file: file.into(),
        what: what.into(),
    }
}

/// Reads the requests of a stream.
fn records(folder: &Folder, file: &str) -> Result<Vec<Record>, ExperimentError> {
    let input = folder.open(file).map_err(wrong)?;
    let trace = trace::read(input, &Options::default());
    Ok(trace
        .map_err(|error| wrong(format!("{file}: {error}")))?
        .records)
}

impl HostModel {
    /// Creates a host with media servers of this delta, in thousandths.
    pub(super) fn new(
        setting: Setting,
        case: Case,
        tolerance: u32,
        folder: &Folder,
    ) -> Result<HostModel, ExperimentError> {
        let of_case = records(folder, case.file())?.into_iter();
        let of_case = of_case.map(|record| (record, case.tolerance()));
        let wanted = if setting.asks_all() {
            let media = records(folder, "../traces/media-3.disksim")?.into_iter();
            let media = media.map(|record| (record, u64::from(tolerance)));
            media
                // Alternating; the shorter of both streams decides, and the cycle repeats it.
                .zip(of_case)
                .flat_map(|(media, of_case)| [media, of_case])
                .collect()
        } else {
            of_case.collect()
        };
        let key = PridynKey::new(Scene::Media, "pridyn", Change::Streams(MEDIA));
        let mut all = scenario(&key, folder, &Basis::default())?;
        let (scene, place) = case.scene();
        // The scenario with streams up to this one, whose last VM is the template.
        let key = PridynKey::new(scene, "pridyn", Change::Streams(place + 1));
        let template = scenario(&key, folder, &Basis::default())?
            .vms
            .swap_remove(place);
        for n in 1..=setting.places() {
            all.vms.push(VmSpec {
                name: format!("new-{n}"),
                ..template.clone()
            });
        }
        for workload in all.vms.iter_mut().flat_map(|vm| &mut vm.workloads) {
            if let Some(replay) = &mut workload.replay {
                replay.pause = setting.pause();
                replay.size_factor = Factor::new(setting.factor() as f64);
            }
        }
        for (at, vm) in all.vms.iter_mut().enumerate() {
            if setting.is_limited(at) {
                vm.delay.processor = Some(TimeDistribution::Fixed(LIMITED));
            }
        }
        Ok(HostModel {
            setting,
            tolerance,
            scenario: all,
            wanted,
        })
    }

    /// Scenario of the first `vms` VMs as endless streams without deadlines, under this policy.
    /// Each stream of a newcomer begins at another request.
    pub(super) fn streams(&self, vms: usize, duration: Nanos, policy: &Scenario) -> Scenario {
        let mut scenario = self.scenario.clone();
        for (n, vm) in scenario.vms[MEDIA..].iter_mut().enumerate() {
            let mut records: Vec<Record> = self.wanted.iter().map(|of| of.0).collect();
            // Streams at the same place of a trace would read the same sectors.
            let from = n * records.len() / self.setting.places();
            records.rotate_left(from);
            vm.workloads[0].replay = self.replay(records, true);
        }
        if self.setting.asks_all() {
            // Where all transfers need admission there are no streams that run by themselves.
            scenario.vms.drain(..MEDIA);
        }
        scenario.vms.truncate(vms);
        scenario.devices[0].scheduling.policy = policy.devices[0].scheduling.policy.clone();
        scenario.frame.duration = duration;
        scenario
    }

    /// Scenario of a single VM for newcomers, as an endless stream.
    pub(super) fn stream_alone(&self, vm: usize, duration: Nanos, policy: &Scenario) -> Scenario {
        let mut scenario = self.streams(self.setting.places(), duration, policy);
        scenario.vms = vec![scenario.vms.swap_remove(vm - MEDIA)];
        scenario
    }

    /// Scenario of media servers with deadlines (none if all transfers need admission), with idle
    /// VMs for newcomers.
    pub(super) fn running(&self, capacity: &Capacity, duration: Nanos) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.frame.duration = duration;
        let by = BySize {
            tolerance: self.tolerance,
            max_bandwidth: capacity.alone,
            bandwidth_loss: capacity.loss(),
            vms: MEDIA as u32,
            as_printed: false,
        };
        for vm in &mut scenario.vms[..MEDIA] {
            vm.workloads[0].deadline = Some(Deadline::BySize(by));
        }
        let all = if self.setting.asks_all() { 0 } else { MEDIA };
        for vm in &mut scenario.vms[all..] {
            // The workload begins when a request is admitted.
            vm.workloads[0].start = duration;
        }
        scenario
    }

    /// Request number `index`.
    pub(super) fn newcomer(&self, index: usize, capacity: &Capacity) -> Newcomer {
        let (record, tolerance) = &self.wanted[index % self.wanted.len()];
        let bytes = (u64::from(record.len) * self.setting.factor()).next_multiple_of(BLOCK);
        Newcomer {
            index,
            bytes,
            deadline: capacity.deadline(bytes, *tolerance),
        }
    }

    /// Workload of a request.
    pub(super) fn workload(&self, newcomer: &Newcomer) -> tidegate_workload::spec::Workload {
        let (record, _) = self.wanted[newcomer.index % self.wanted.len()];
        let mut workload = self.scenario.vms[MEDIA].workloads[0].clone();
        workload.replay = self.replay(vec![record], false);
        workload.deadline = Some(Deadline::Fixed(newcomer.deadline));
        workload.start = Nanos::ZERO;
        workload
    }

    /// Replay of these requests, one after the other.
    fn replay(&self, mut records: Vec<Record>, looped: bool) -> Option<Replay> {
        for record in &mut records {
            // Times and disks of the traces do not matter: requests come one after the other, to
            // one disk.
            (record.at, record.disk) = (Nanos::ZERO, 0);
        }
        let trace = Trace {
            format: trace::Format::DiskSim,
            disks: vec!["disk".to_owned()],
            records,
            out_of_order: 0,
            others: 0,
            skipped: 0,
            bad: Vec::new(),
        };
        let mut replay = Replay::new(&trace, None, None)?;
        replay.mode = Mode::NextWhenDone;
        replay.size_factor = Factor::new(self.setting.factor() as f64);
        replay.looped = looped;
        replay.pause = self.setting.pause();
        Some(replay)
    }
}

/// Logical block of the disk in bytes: sizes are rounded up to it.
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
        assert_eq!(limited(Setting::KnownLimits), [3, 5]);
        assert_eq!(limited(Setting::LimitedVms), [3, 5]);
        assert!(limited(Setting::NoPermanentLoad).is_empty());
    }
}
