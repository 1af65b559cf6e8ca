//! State of the screen, made from the daemon's answers without I/O and without a clock.

mod delays;
mod series;

use std::collections::{BTreeMap, HashMap};

use tidegate_api::device::DeviceView;
use tidegate_api::history::HistoryView;
use tidegate_api::stats::{StatsView, TimeView, VmStatsView};
use tidegate_api::vm::VmView;

pub(super) use delays::{Delayed, Delays};
pub(super) use series::{STEPS, Series};

use super::answers::Answers;
use super::names::NameCut;
use crate::commands::history::per_s;
use crate::commands::rates::VmRates;

/// Columns of the names of VMs: as many as are left on a narrow terminal, and as many as there may
/// be.
pub(super) const NAME_LEAST: usize = 10;
pub(super) const NAME_MOST: usize = 40;

/// State of devices and VMs, and what is remembered of earlier answers.
#[derive(Clone, Default, Debug)]
pub(super) struct Model {
    /// Latest answers; `None` before the first.
    pub(super) answers: Option<Answers>,
    pub(super) devices: Vec<DeviceRow>,
    pub(super) vms: Vec<VmRow>,
    pub(super) delays: Delays,
    series: BTreeMap<String, Series>,
    /// Indices into `vms`: there may be thousands.
    by_name: HashMap<String, usize>,
    /// Cut of the VMs' names where they are longer than their column.
    pub(super) names: NameCut,
    /// VMs after changes, each with the time of its change: answers to requests that were sent
    /// before have the state before it.
    changed: Vec<(u64, VmView)>,
    /// Reason why the daemon has not answered since; `None` while it does.
    pub(super) failure: Option<String>,
}

/// Device with what it did in the last interval.
#[derive(Clone, Debug)]
pub(super) struct DeviceRow {
    pub(super) view: DeviceView,
    /// Requests per second of all its VMs; `None` in the first interval.
    pub(super) iops: Option<f64>,
    pub(super) mb_s: Option<f64>,
    /// 99th percentile of the times of I/Os at the device, in nanoseconds.
    pub(super) p99_ns: Option<u64>,
    /// Part of the last second in which I/Os were in flight, in per cent; `None` without a history.
    pub(super) busy_percent: Option<f64>,
}

/// VM with what it did in the last interval.
#[derive(Clone, Debug)]
pub(super) struct VmRow {
    pub(super) view: VmView,
    /// Rates and latencies; `None` in the first interval.
    pub(super) rates: Option<VmRates>,
    /// Part of the time of all I/Os at the device that was spent for the VM, 0 to 1; `None` where
    /// the device did nothing.
    pub(super) share: Option<f64>,
}

impl Model {
    /// Takes the daemon's answers in.
    pub(super) fn update(&mut self, mut answers: Answers) {
        self.changed.retain(|(at_ms, _)| *at_ms >= answers.asked_ms);
        for (_, view) in &self.changed {
            if let Some(vm) = answers.vms.iter_mut().find(|vm| vm.name == view.name) {
                vm.clone_from(view);
            }
        }
        let before = self.answers.take();
        let before = before.as_ref().map(|answers| &answers.stats);
        let had = self.vms.iter().map(|vm| &vm.view.name);
        if !had.eq(answers.vms.iter().map(|vm| &vm.name)) {
            let names: Vec<&str> = answers.vms.iter().map(|vm| vm.name.as_str()).collect();
            self.names = NameCut::distinct(&names, NAME_LEAST, NAME_MOST);
            self.by_name = names.into_iter().map(str::to_owned).zip(0..).collect();
        }
        self.vms = vm_rows(before, &answers);
        self.devices = (answers.devices.iter())
            .map(|device| device_row(device, before, &answers, &self.vms))
            .collect();
        for vm in &self.vms {
            if let Some(rates) = &vm.rates {
                let p99_ns = rates.p99_ms.map(|ms| (ms * 1e6) as u64);
                let series = self.series.entry(rates.vm.clone()).or_default();
                series.add(answers.at_ms, rates.seconds, rates.iops, p99_ns);
            }
        }
        self.delays.add(answers.at_ms, &answers.stats);
        self.failure = None;
        // VMs that are gone are forgotten, so that memory does not grow with their names.
        self.series
            .retain(|name, _| self.by_name.contains_key(name));
        self.answers = Some(answers);
    }

    /// Takes in that the daemon did not answer. The last values stay.
    pub(super) fn fail(&mut self, why: String) {
        self.failure = Some(why);
    }

    /// Takes the history of a VM in.
    pub(super) fn fill(&mut self, history: &HistoryView) {
        if let Some(vm) = &history.vm {
            self.series.entry(vm.clone()).or_default().fill(history);
        }
    }

    /// Replaces a VM by its state after a change at `at_ms`, until answers to later requests come.
    pub(super) fn replace_vm(&mut self, view: VmView, at_ms: u64) {
        if let Some(row) = self.by_name.get(&view.name).map(|&at| &mut self.vms[at]) {
            row.view.clone_from(&view);
            self.changed.push((at_ms, view));
        }
    }

    /// Returns the time of the last answers in milliseconds since 1970; 0 before the first.
    pub(super) fn at_ms(&self) -> u64 {
        self.answers.as_ref().map_or(0, |answers| answers.at_ms)
    }

    /// Returns the throughput and latency of a VM over the last minutes.
    pub(super) fn series(&self, vm: &str) -> Option<&Series> {
        self.series.get(vm)
    }

    /// Returns a VM by name.
    pub(super) fn vm(&self, name: &str) -> Option<&VmRow> {
        self.by_name.get(name).map(|&at| &self.vms[at])
    }

    /// Returns the counters of a VM.
    pub(super) fn stats(&self, name: &str) -> Option<&VmStatsView> {
        let answers = self.answers.as_ref()?;
        answers.stats.vms.iter().find(|stats| stats.vm == name)
    }
}

fn vm_rows(before: Option<&StatsView>, answers: &Answers) -> Vec<VmRow> {
    let rates = before.map_or(Vec::new(), |before| {
        VmRates::between_answers(before, &answers.stats, &answers.vms)
    });
    let mut rates: BTreeMap<String, VmRates> = (rates.into_iter())
        .map(|rates| (rates.vm.clone(), rates))
        .collect();
    let at_device = at_device(before, &answers.stats);
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for vm in &answers.stats.vms {
        *sums.entry(&vm.device).or_default() += at_device.get(vm.vm.as_str()).unwrap_or(&0.0);
    }
    let row = |view: &VmView| {
        let sum = *sums.get(view.device.as_str()).unwrap_or(&0.0);
        let own = at_device.get(view.name.as_str());
        VmRow {
            view: view.clone(),
            rates: rates.remove(&view.name),
            share: own.filter(|_| sum > 0.0).map(|own| own / sum),
        }
    };
    answers.vms.iter().map(row).collect()
}

/// Returns the time that each VM's I/Os spent at the device between two answers, in nanoseconds.
fn at_device<'a>(before: Option<&StatsView>, now: &'a StatsView) -> BTreeMap<&'a str, f64> {
    let before: BTreeMap<&str, u64> = (before.iter())
        .flat_map(|stats| &stats.vms)
        .map(|vm| (vm.vm.as_str(), vm.account.device_ns))
        .collect();
    let between = |vm: &'a VmStatsView| {
        let name = vm.vm.as_str();
        let ns = vm.account.device_ns.checked_sub(*before.get(name)?)?;
        Some((name, ns as f64))
    };
    now.vms.iter().filter_map(between).collect()
}

fn device_row(
    view: &DeviceView,
    before: Option<&StatsView>,
    answers: &Answers,
    vms: &[VmRow],
) -> DeviceRow {
    let here = vms.iter().filter(|vm| vm.view.device == view.name);
    let rates = here.filter_map(|vm| vm.rates.as_ref());
    let rates = before.map(|_| {
        rates.fold((0.0, 0.0), |(iops, mb_s), rates| {
            (iops + rates.iops, mb_s + rates.mb_s)
        })
    });
    let times = |stats: &StatsView| {
        // Where not all VMs have buckets, the daemon has their sum.
        let known = stats.devices.iter().find(|it| it.device == view.name);
        if let Some(known) = known {
            return known.service_time.clone();
        }
        let here = stats.vms.iter().filter(|vm| vm.device == view.name);
        let both = here.flat_map(|vm| [&vm.service_time.read, &vm.service_time.write]);
        sum_of(both)
    };
    let p99_ns =
        before.and_then(|before| times(&answers.stats).quantile_since(&times(before), 0.99));
    let seconds = answers.device_seconds.get(&view.name);
    let last = seconds.and_then(|seconds| seconds.intervals.last());
    let busy_percent = last.map(|second| {
        let percent = per_s(second, second.value("busy_us")) / 1e4;
        percent.min(100.0)
    });
    DeviceRow {
        view: view.clone(),
        iops: rates.map(|(iops, _)| iops),
        mb_s: rates.map(|(_, mb_s)| mb_s),
        p99_ns,
        // A history without a second in which anything happened is that of an idle device.
        busy_percent: busy_percent.or(seconds.map(|_| 0.0)),
    }
}

/// Returns the sum of histograms, as far as quantiles of intervals need it.
fn sum_of<'a>(times: impl Iterator<Item = &'a TimeView>) -> TimeView {
    let mut sum = TimeView::default();
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    for time in times {
        sum.count += time.count;
        sum.max_ns = sum.max_ns.max(time.max_ns);
        for &(upper, n) in &time.buckets {
            *buckets.entry(upper).or_default() += n;
        }
    }
    sum.buckets = buckets.into_iter().collect();
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::fixture;
    use tidegate_api::stats::DeviceTimesView;

    #[test]
    fn rates_and_shares_are_those_between_two_answers() {
        let mut model = Model::default();
        model.update(fixture::answers(0));
        assert_eq!(model.vms[0].rates, None, "one answer has no rates");
        assert_eq!(model.devices[0].iops, None);
        model.update(fixture::answers(1));
        let oltp = model.vm("oltp").expect("it is served");
        let rates = oltp.rates.as_ref().expect("two answers");
        assert_eq!((rates.iops, rates.mb_s), (120.0, 0.98304));
        assert_eq!(oltp.share, Some(0.25));
        let disk = &model.devices[0];
        assert_eq!(disk.iops, Some(480.0), "of both VMs");
        assert_eq!(disk.busy_percent, Some(75.0));
        assert!(disk.p99_ns.is_some());
    }

    #[test]
    fn vms_without_buckets_have_rates_and_their_device_has_quantiles() {
        let round = |n: u64, with: &[&str]| {
            let mut answers = fixture::answers(n);
            let both = answers.stats.vms.iter();
            let times = both.flat_map(|vm| [&vm.service_time.read, &vm.service_time.write]);
            answers.stats.devices = vec![DeviceTimesView {
                device: "nvme0".to_owned(),
                service_time: sum_of(times),
            }];
            for vm in &mut answers.stats.vms {
                if !with.contains(&vm.vm.as_str()) {
                    let (waits, services) = (&mut vm.queue_time, &mut vm.service_time);
                    let sides = [waits, services].map(|it| [&mut it.read, &mut it.write]);
                    for times in sides.into_iter().flatten().chain([&mut vm.latency]) {
                        times.buckets.clear();
                    }
                }
            }
            answers
        };
        let mut model = Model::default();
        let p99 = |model: &Model, vm: &str| {
            let rates = model.vm(vm).and_then(|vm| vm.rates.clone());
            rates.expect("two answers").p99_ms
        };
        model.update(round(1, &[]));
        model.update(round(2, &["oltp"]));
        assert_eq!(
            p99(&model, "oltp"),
            None,
            "the answer before had no buckets"
        );
        model.update(round(3, &["oltp"]));
        let all = fixture::model();
        assert_eq!(p99(&model, "oltp"), p99(&all, "oltp"));
        assert_eq!(p99(&model, "bulk"), None, "not shown");
        assert_eq!(model.devices[0].p99_ns, all.devices[0].p99_ns);
        assert!(all.devices[0].p99_ns.is_some());
        let iops = |model: &Model| model.vm("bulk").and_then(|vm| Some(vm.rates.clone()?.iops));
        assert_eq!(iops(&model), iops(&all));
    }

    #[test]
    fn a_restart_has_no_rates_and_the_next_answer_has() {
        let mut model = Model::default();
        for round in [5, 0] {
            model.update(fixture::answers(round));
        }
        assert!(model.vms.iter().all(|vm| vm.rates.is_none()));
        assert!(model.vms.iter().all(|vm| vm.share.is_none()));
        model.update(fixture::answers(1));
        assert!(model.vms.iter().all(|vm| vm.rates.is_some()));
    }

    #[test]
    fn last_values_stay_while_the_daemon_does_not_answer() {
        let mut model = Model::default();
        (0..2).for_each(|round| model.update(fixture::answers(round)));
        model.fail("no daemon listens".to_owned());
        assert_eq!(model.vms.len(), 2);
        assert_eq!(model.failure.as_deref(), Some("no daemon listens"));
        model.update(fixture::answers(2));
        assert_eq!(model.failure, None);
    }

    #[test]
    fn answers_that_were_asked_for_before_a_change_do_not_undo_it() {
        let mut model = fixture::model();
        let mut changed = model.vm("oltp").expect("served").view.clone();
        changed.objective.weight = 7;
        let weight = |model: &Model| model.vm("oltp").map(|vm| vm.view.objective.weight);
        let late = fixture::answers(2);
        model.replace_vm(changed, late.asked_ms + 1);
        assert_eq!(weight(&model), Some(7));
        model.update(late);
        assert_eq!(weight(&model), Some(7), "asked for before the change");
        model.update(fixture::answers(3));
        assert_eq!(weight(&model), Some(100), "what the daemon says since");
    }

    #[test]
    fn vms_are_found_by_name_whatever_comes_and_goes() {
        let mut model = fixture::model();
        let mut other = fixture::answers(2);
        other.vms.swap(0, 1);
        "web".clone_into(&mut other.vms[1].name);
        model.update(other);
        for name in ["bulk", "web"] {
            assert_eq!(model.vm(name).expect("served").view.name, name);
        }
        assert!(model.vm("oltp").is_none());
    }

    #[test]
    fn a_vm_that_is_gone_is_forgotten() {
        let mut model = Model::default();
        (0..2).for_each(|round| model.update(fixture::answers(round)));
        assert!(model.series("bulk").is_some());
        let mut fewer = fixture::answers(2);
        fewer.vms.retain(|vm| vm.name != "bulk");
        fewer.stats.vms.retain(|vm| vm.vm != "bulk");
        model.update(fewer);
        assert!(model.series("bulk").is_none() && model.vm("bulk").is_none());
    }
}
