//! Simulation of all devices of a scenario, side by side in virtual time.

use crate::device::{
    self, DeviceSim, DeviceTally, PrecisionResult, PromiseResult, Recorder, RequestEvent, Tally,
    Transfer, TransferDone, TransferTally,
};
use crate::processors::Processors;
use crate::report::{DeviceReport, DeviceRow, Rates, Report, Response, Responses, Row, VmReport};
use crate::scenario::{Scenario, VmSpec};
use crate::seed::generator;
use std::collections::BTreeMap;
use tidegate_api::interference::InterferenceTimes;
use tidegate_config::frame::Frame;
use tidegate_config::stat_views;
use tidegate_core::engine::Engine;
use tidegate_core::interference::{self, VmTimes};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Admission, Class};
use tidegate_workload::spec::Workload;

/// Running simulation of a scenario.
///
/// Devices do not interact, since each VM's disk is on one of them. They still advance together, so
/// that rows come in the order of time. The simulated pCPUs are the only thing that connects them.
pub struct World {
    scenario: Scenario,
    devices: Vec<DeviceSim>,
    /// pCPUs of the host; `None` where guests and the driver domain take no CPU time.
    processors: Option<Processors>,
    now: Nanos,
    interval: Option<Interval>,
    /// Time of each VM's requests by cause, at the end of the warm-up.
    times: Vec<VmTimes>,
}

/// Intermediate results, a row per VM and interval.
struct Interval {
    every: Nanos,
    next: Nanos,
    /// Counts in the interval, by VM.
    tallies: Vec<Tally>,
    /// Counts since the warm-up. Without intervals the devices keep these themselves.
    totals: Vec<Tally>,
    /// Time of each VM's requests by cause, at the begin of the interval.
    times: Vec<VmTimes>,
    /// Rows of devices; `None` unless they are kept.
    devices: Option<DeviceRows>,
}

/// Intermediate results of devices.
struct DeviceRows {
    /// Counts in the interval, by device.
    tallies: Vec<DeviceTally>,
    /// Counts of each device that are in its tally, since the device's counts were last cleared.
    counted: Vec<DeviceTally>,
    /// Rows that were not taken yet.
    rows: Vec<DeviceRow>,
}

impl World {
    /// Creates the simulation at time zero. With `interval` each VM yields a row per interval.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the scenario.
    pub fn new(scenario: Scenario, interval: Option<Nanos>) -> World {
        // Devices come before processors, which route their requests.
        let devices = (0..scenario.devices.len()).map(|index| DeviceSim::new(&scenario, index));
        let mut devices: Vec<DeviceSim> = devices.collect();
        let vms = scenario.vms.len();
        World {
            processors: Processors::for_scenario(&scenario, &mut devices),
            devices,
            now: Nanos::ZERO,
            interval: interval.map(|every| Interval {
                // An interval of 0 would never end.
                every: every.max(Nanos(1)),
                next: every.max(Nanos(1)),
                tallies: vec![Tally::default(); vms],
                totals: vec![Tally::default(); vms],
                times: vec![VmTimes::default(); vms],
                devices: None,
            }),
            times: vec![VmTimes::default(); vms],
            scenario,
        }
    }

    /// Scenario that is simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Simulated time reached so far.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns `true` once the run is over.
    pub fn is_over(&self) -> bool {
        self.now >= self.scenario.frame.duration
            || (self.scenario.frame.until_done && self.devices.iter().all(DeviceSim::is_done))
    }

    /// Number of requests answered so far.
    pub fn answered(&self) -> u64 {
        self.devices.iter().map(DeviceSim::answered).sum()
    }

    /// Returns the engine that serves a VM, by the VM's index in the scenario, with its handle
    /// there. For values that no report has, such as the tuning of a VM. `None` if the VM is not
    /// there.
    pub fn served(&self, vm: usize) -> Option<(&Engine, VmId)> {
        let device = self.scenario.vms.get(vm)?.device;
        self.devices[device].served(vm)
    }

    /// Keeps completed transfers from now on, for [`World::take_responses`].
    pub fn keep_responses(&mut self) {
        self.devices
            .iter_mut()
            .for_each(|device| device.transfer_log_mut().keep_done());
    }

    /// Returns the transfers completed since the last call, in the order of completion: requests of
    /// traces and workloads with deadlines. Empty unless [`World::keep_responses`] was called.
    pub fn take_responses(&mut self) -> Vec<Response> {
        let devices = self.devices.iter_mut();
        let done = devices.flat_map(|device| device.transfer_log_mut().take_done());
        let mut done: Vec<TransferDone> = done.collect();
        // The sort is stable: transfers of one device stay in their order.
        done.sort_by_key(|transfer| transfer.ended);
        let vms = &self.scenario.vms;
        let response = |it: &TransferDone| Response::new(&vms[it.vm], it);
        done.iter().map(response).collect()
    }

    /// Keeps latencies of every operation by itself from now on, for [`VmReport::operations`].
    pub fn keep_operations(&mut self) {
        for (_, tally) in self.devices.iter_mut().flat_map(DeviceSim::tallies_mut) {
            tally.by_op.get_or_insert_default();
        }
    }

    /// Keeps a row for each device and interval from now on, for [`World::take_device_rows`].
    ///
    /// # Panics
    /// If the simulation has no intervals.
    pub fn keep_device_rows(&mut self) {
        let counted: Vec<DeviceTally> = self.devices.iter().map(|it| it.model().tally()).collect();
        let interval = self.interval.as_mut();
        let interval = interval.expect("rows of devices are of intervals, of which there are none");
        interval.devices = Some(DeviceRows {
            tallies: vec![DeviceTally::default(); counted.len()],
            counted,
            rows: Vec::new(),
        });
    }

    /// Returns the rows of devices of the intervals that ended since the last call, in the order of
    /// time. Empty unless [`World::keep_device_rows`] was called.
    pub fn take_device_rows(&mut self) -> Vec<DeviceRow> {
        let interval = self.interval.as_mut();
        let devices = interval.and_then(|interval| interval.devices.as_mut());
        devices.map_or_else(Vec::new, |devices| std::mem::take(&mut devices.rows))
    }

    /// Keeps events of requests at the scheduler from now on, for [`World::take_requests`].
    pub fn keep_requests(&mut self) {
        let devices = self.devices.iter_mut();
        devices.for_each(|device| device.request_log_mut().keep());
    }

    /// Appends to `to` the events of requests at a device since the last call, in the order in
    /// which they happened. None unless [`World::keep_requests`] was called.
    pub fn take_requests(&mut self, device: usize, to: &mut Vec<RequestEvent>) {
        self.devices[device].request_log_mut().take(to);
    }

    /// Records every request of a device from now on, in the format of
    /// [`tidegate_recording`]. The same scenario gives the same bytes.
    ///
    /// # Panics
    /// If time has passed.
    pub fn record(&mut self, device: usize) {
        assert_eq!(
            self.now,
            Nanos::ZERO,
            "a recording begins with the simulation: requests before now would be missing"
        );
        let recorder = Recorder::new(&self.scenario, device);
        (self.devices[device].request_log_mut()).begin_recording(recorder);
    }

    /// Moves the bytes of a device's recording since the last call to the end of `to`. None unless
    /// [`World::record`] was called.
    pub fn take_recording(&mut self, device: usize, to: &mut Vec<u8>) {
        self.devices[device].request_log_mut().take_recording(to);
    }

    /// Ends a device's recording, with the rest of its bytes to the end of `to`. Requests that are
    /// not answered by now are not in it.
    pub fn end_recording(&mut self, device: usize, to: &mut Vec<u8>) {
        (self.devices[device].request_log_mut()).end_recording(self.now, to);
    }

    /// Advances time to the next mark, at most a second. Rows of an interval that ended go to
    /// `rows`.
    pub fn step(&mut self, rows: &mut dyn FnMut(&Row)) {
        let Frame {
            duration, warm_up, ..
        } = self.scenario.frame;
        // Whole seconds of the run, by which precision is measured.
        let second = Nanos((self.now.0 / Nanos::SECOND.0 + 1) * Nanos::SECOND.0);
        let mut until = second.min(duration);
        if self.now < warm_up {
            until = until.min(warm_up);
        }
        if let Some(interval) = &self.interval {
            until = until.min(interval.next);
        }
        match &mut self.processors {
            Some(processors) => processors.run_until(&mut self.devices, until),
            None => (self.devices.iter_mut()).for_each(|device| device.run_until(until)),
        }
        self.now = until;
        let done = self.scenario.frame.until_done && self.devices.iter().all(DeviceSim::is_done);
        if done {
            // Time after the last answer belongs to no result.
            let last = self.devices.iter().map(DeviceSim::last_end).max();
            self.now = last.unwrap_or(until);
        }
        if until == second {
            self.devices.iter_mut().for_each(DeviceSim::second);
        }
        // Before the warm-up's counts are cleared, of which rows have their part.
        self.end_interval(rows);
        if until == warm_up || (done && self.now < warm_up) {
            // The devices' counts go to the interval first: it may lie on both sides of the mark.
            self.collect();
            (self.devices.iter_mut()).for_each(|device| device.clear_counts(until == second));
            for (vm, times) in self.times.iter_mut().enumerate() {
                *times = device::times(&self.devices[self.scenario.vms[vm].device], vm);
            }
            if let Some(processors) = &mut self.processors {
                processors.clear_counts();
            }
            if let Some(interval) = &mut self.interval {
                interval.totals.iter_mut().for_each(Tally::clear);
                if let Some(devices) = &mut interval.devices {
                    devices.counted.fill(DeviceTally::default());
                }
            }
        }
    }

    /// Advances time until a transfer begins or ends on the only device, but not beyond `until`.
    /// Everything due at that time has happened on return. Meant for callers that decide by the
    /// transfers that run: there are no rows, no seconds, no warm-up and no pCPUs.
    pub fn run_to_transfer(&mut self, until: Nanos) {
        // With several devices there is no single time to return at.
        if let [device] = &mut self.devices[..] {
            self.now = device.run_to_transfer(until.min(self.scenario.frame.duration));
        }
    }

    /// Running transfers, each with the index of its VM in the scenario.
    pub fn transfers(&self) -> impl Iterator<Item = (usize, &Transfer)> {
        self.devices.iter().flat_map(DeviceSim::transfers)
    }

    /// Replaces the first workload of a VM, which has not begun or is over, by `workload` and
    /// begins it now, as a single copy. `terms` are those of an admission controller: the
    /// transfer's class, and VMs that are lowered to another class until it ends.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the workload, or the VM is not there or
    /// busy.
    pub fn begin(
        &mut self,
        vm: usize,
        workload: &Workload,
        terms: Option<(Class, &[(usize, Class)])>,
    ) {
        let to_vm = |&(other, class): &(usize, Class)| Some((self.served(other)?.1, class));
        let terms = terms.map(|(class, lowered)| Admission {
            class,
            lowered: lowered.iter().filter_map(to_vm).collect(),
        });
        let of = &self.scenario.vms[vm];
        // Each workload draws from a stream of its own: the begin is part of the generator's seed.
        let rng = generator(self.scenario.frame.seed, &of.name, self.now.0 | 1 << 63);
        self.devices[of.device].begin(vm, workload, rng, terms);
    }

    /// Runs to the end; rows go to `rows`.
    pub fn run(&mut self, rows: &mut dyn FnMut(&Row)) {
        while !self.is_over() {
            self.step(rows);
        }
    }

    /// Moves the devices' counts to the interval's tallies and the totals.
    fn collect(&mut self) {
        let Some(interval) = &mut self.interval else {
            return;
        };
        for device in &mut self.devices {
            for (vm, tally) in device.tallies_mut() {
                interval.tallies[vm].add(tally);
                interval.totals[vm].add(tally);
                tally.clear();
            }
        }
        if let Some(rows) = &mut interval.devices {
            let counts = rows.tallies.iter_mut().zip(&mut rows.counted);
            for (device, (tally, counted)) in self.devices.iter().zip(counts) {
                let now = device.model().tally();
                tally.add_since(counted, &now);
                *counted = now;
            }
        }
    }

    fn end_interval(&mut self, rows: &mut dyn FnMut(&Row)) {
        let now = self.now;
        let over = self.is_over();
        let due = |interval: &Interval| now >= interval.next || over;
        if !self.interval.as_ref().is_some_and(due) {
            return;
        }
        self.collect();
        let times: Vec<VmTimes> = (self.scenario.vms.iter().enumerate())
            .map(|(vm, spec)| device::times(&self.devices[spec.device], vm))
            .collect();
        let interference: Vec<_> = match &self.interval {
            Some(interval) => (interval.times.iter().zip(&times).enumerate())
                .map(|(vm, (before, after))| self.interference(vm, before, after))
                .collect(),
            None => return,
        };
        let Some(interval) = &mut self.interval else {
            return;
        };
        interval.times = times;
        // The last interval may be shorter than the others.
        let began = interval.next - interval.every;
        let vms = self.scenario.vms.iter().zip(interference);
        for ((spec, interference), tally) in vms.zip(&mut interval.tallies) {
            rows(&Row {
                time_s: now.as_secs_f64(),
                vm: spec.name.clone(),
                rates: Rates::new(tally, now.since(began)),
                began_s: began.as_secs_f64(),
                latency: tally.latency.clone(),
                interference,
                responses: Responses::new(spec, tally.transfers.as_deref()),
            });
            tally.clear();
        }
        if let Some(devices) = &mut interval.devices {
            for (device, tally) in devices.tallies.iter_mut().enumerate() {
                let row = DeviceRow::new(device, tally, began, now);
                devices.rows.push(row);
                *tally = DeviceTally::default();
            }
        }
        interval.next += interval.every;
    }

    /// Reports where the time of a VM's requests went between two moments.
    fn interference(&self, vm: usize, before: &VmTimes, after: &VmTimes) -> InterferenceTimes {
        let device = &self.devices[self.scenario.vms[vm].device];
        let neighbours = device::neighbours(device, vm);
        stat_views::interference(&interference::Interval::between(before, after), |id| {
            // A slot of the engine that was used again has another handle, so names are unique.
            let known = neighbours.iter().find(|it| it.0 == id);
            let index = known.expect("the VM was served by this host").1;
            self.scenario.vms[index].name.clone()
        })
    }

    /// Returns the report of the run so far.
    pub fn report(&mut self) -> Report {
        self.collect();
        let scenario = &self.scenario;
        let span = self.now.since(scenario.frame.warm_up);
        let devices = scenario.devices.iter().zip(&self.devices);
        let results = self.results();
        let vms = scenario.vms.iter().zip(&results).enumerate();
        Report {
            title: scenario.frame.title.clone(),
            seed: scenario.frame.seed,
            duration_s: self.now.as_secs_f64(),
            warm_up_s: scenario.frame.warm_up.as_secs_f64(),
            devices: devices
                .map(|(device, sim)| {
                    let names = (
                        device.name.as_str(),
                        device.model.name.as_str(),
                        sim.policy(),
                    );
                    let model = sim.model();
                    DeviceReport::new(names, &model.tally(), model.distances(), span)
                        .with_waits(sim.waits())
                })
                .collect(),
            vms: vms
                .map(|(index, (spec, results))| self.vm_report(index, spec, results))
                .collect(),
            cpu: self.processors.as_ref().map(Processors::report),
            requests: self.answered(),
        }
    }

    /// Results of every VM, in the order of the scenario.
    fn results(&self) -> Vec<VmResults<'_>> {
        let mut all = BTreeMap::new();
        for device in &self.devices {
            let precision = device.precision_results().map(|(_, precision)| precision);
            let promises = device.promise_results().map(|(_, promises)| promises);
            for ((vm, tally), (precision, promises)) in
                device.tallies().zip(precision.zip(promises))
            {
                let interval = self.interval.as_ref();
                let leaves = self.scenario.vms[vm].leaves;
                let results = VmResults {
                    tally: interval.map_or(tally, |it| &it.totals[vm]),
                    running: TransferTally::default(),
                    promises,
                    precision,
                    // A VM that would leave after the end has been there until now.
                    end: leaves.unwrap_or(self.now).min(self.now),
                };
                all.insert(vm, results);
            }
            for (vm, running) in device.running_transfers() {
                let of = all.get_mut(&vm).expect("its VM is on this device");
                of.running.add(&running);
            }
            for (vm, end) in device.ends() {
                let of = all.get_mut(&vm).expect("its VM is on this device");
                of.end = of.end.min(end);
            }
        }
        all.into_values().collect()
    }

    /// Assembles the report of a VM, by its index in the scenario.
    fn vm_report(&self, index: usize, spec: &VmSpec, results: &VmResults) -> VmReport {
        let transfers = results.tally.transfers.as_deref().map(|done| {
            let mut transfers = *done;
            transfers.add(&results.running);
            transfers
        });
        let device = &self.scenario.devices[spec.device].name;
        // Rates are taken over the time in which the VM was active.
        let first = spec.workloads.iter().map(|workload| workload.start).min();
        let began = spec.arrives + first.unwrap_or_default();
        let span = results.end.since(began.max(self.scenario.frame.warm_up));
        let (tally, promises) = (results.tally, &results.promises);
        let processors = self.processors.as_ref();
        let times = device::times(&self.devices[spec.device], index);
        VmReport::new(spec, device, tally, promises, &results.precision, span)
            .with_interference(self.interference(index, &self.times[index], &times))
            .with_responses(Responses::new(spec, transfers.as_ref()))
            .with_cpu(processors.and_then(|it| it.vm_report(index)))
    }
}

/// Results of a VM, or of a background process.
struct VmResults<'a> {
    tally: &'a Tally,
    /// Tally of its running transfers.
    running: TransferTally,
    promises: Vec<PromiseResult>,
    precision: PrecisionResult,
    /// Time at which it had completed its workloads or left, or the end of the run.
    end: Nanos,
}
