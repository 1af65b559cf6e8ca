//! All devices of a scenario, side by side through virtual time.

use crate::host::{Held, Host, Tally, Task, TaskDone, TaskTally};
use crate::processors::Processors;
use crate::report::{DeviceReport, Rates, Report, Response, Responses, Row, VmReport};
use crate::scenario::Scenario;
use crate::seed::generator;
use std::collections::BTreeMap;
use tidegate_core::engine::Engine;
use tidegate_core::jobs::{Admission, Class};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_workload::job::Job;

/// A scenario while it runs.
///
/// Devices do not see each other: a VM's disk lies on one of them. They are taken through time
/// together all the same, so that rows come in the order of time. Only processors have them meet.
pub struct World {
    scenario: Scenario,
    hosts: Vec<Host>,
    /// `None`: guests and the driver domain take no time.
    processors: Option<Processors>,
    now: Nanos,
    interval: Option<Interval>,
}

/// A row for each tenant every so often.
struct Interval {
    every: Nanos,
    next: Nanos,
    /// Counted in the interval, by tenant.
    tallies: Vec<Tally>,
    /// Counted since the warm-up; without intervals that is what the hosts have.
    totals: Vec<Tally>,
}

impl World {
    /// A scenario at time zero; `interval`: a row for each tenant every so often.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the scenario.
    pub fn new(scenario: Scenario, interval: Option<Nanos>) -> World {
        let hosts = (0..scenario.devices.len()).map(|device| Host::new(&scenario, device));
        let mut hosts: Vec<Host> = hosts.collect();
        let tenants = scenario.tenants.len();
        World {
            processors: Processors::of(&scenario, &mut hosts),
            hosts,
            now: Nanos::ZERO,
            interval: interval.map(|every| Interval {
                every: every.max(Nanos(1)),
                next: every.max(Nanos(1)),
                tallies: vec![Tally::default(); tenants],
                totals: vec![Tally::default(); tenants],
            }),
            scenario,
        }
    }

    /// What is simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How far it has come.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.now >= self.scenario.duration
            || (self.scenario.until_done && self.hosts.iter().all(Host::is_done))
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.hosts.iter().map(Host::answered).sum()
    }

    /// The engine that serves the tenant at this place of the scenario, and what that calls it: for
    /// what no report has, such as how a VM is tuned. `None`: the tenant is not there.
    pub fn served(&self, tenant: usize) -> Option<(&Engine, VmId)> {
        let device = self.scenario.tenants.get(tenant)?.device;
        self.hosts[device].served(tenant)
    }

    /// From now on each task that is done is kept until [`World::take_responses`] asks for it.
    pub fn keep_responses(&mut self) {
        self.hosts.iter_mut().for_each(Host::keep_done_tasks);
    }

    /// The requests of traces, and the jobs with deadlines, that were done since this was asked
    /// last, in the order in which they were; none unless they are kept.
    pub fn take_responses(&mut self) -> Vec<Response> {
        let hosts = self.hosts.iter_mut();
        let mut done: Vec<TaskDone> = hosts.flat_map(Host::take_done_tasks).collect();
        // Stable: those of one device stay in their order.
        done.sort_by_key(|task| task.ended);
        let tenants = &self.scenario.tenants;
        let response = |task: &TaskDone| Response::new(&tenants[task.tenant], task);
        done.iter().map(response).collect()
    }

    /// Lets time pass to the next mark: at most a second. Rows of an interval that ended go to
    /// `rows`.
    pub fn step(&mut self, rows: &mut dyn FnMut(&Row)) {
        let Scenario {
            duration, warm_up, ..
        } = self.scenario;
        let second = Nanos((self.now.0 / Nanos::SECOND.0 + 1) * Nanos::SECOND.0);
        let mut until = second.min(duration);
        if self.now < warm_up {
            until = until.min(warm_up);
        }
        if let Some(interval) = &self.interval {
            until = until.min(interval.next);
        }
        match &mut self.processors {
            Some(processors) => processors.run_until(&mut self.hosts, until),
            None => (self.hosts.iter_mut()).for_each(|host| host.run_until(until)),
        }
        self.now = until;
        let done = self.scenario.until_done && self.hosts.iter().all(Host::is_done);
        if done {
            // What comes after the last of it is nobody's time.
            let last = self.hosts.iter().map(Host::last_end).max();
            self.now = last.unwrap_or(until);
        }
        if until == second {
            self.hosts.iter_mut().for_each(Host::second);
        }
        self.end_interval(rows);
        if until == warm_up || (done && self.now < warm_up) {
            self.collect();
            (self.hosts.iter_mut()).for_each(|host| host.forget(until == second));
            if let Some(processors) = &mut self.processors {
                processors.forget();
            }
            if let Some(interval) = &mut self.interval {
                interval.totals.iter_mut().for_each(Tally::clear);
            }
        }
    }

    /// Lets time pass until a task begins or ends on its only device, but not beyond `until`; all
    /// that happens then has happened. For who decides by what runs: no rows, no seconds, no
    /// warm-up and no processors.
    pub fn run_to_task(&mut self, until: Nanos) {
        if let [host] = &mut self.hosts[..] {
            self.now = host.run_to_task(until.min(self.scenario.duration));
        }
    }

    /// The tasks that run, with the places of their tenants in the scenario.
    pub fn tasks(&self) -> impl Iterator<Item = (usize, &Task)> {
        self.hosts.iter().flat_map(Host::tasks)
    }

    /// The first job of a tenant, which has not begun or is over, becomes this one and begins now:
    /// a single copy. With `terms` an admission controller let it in: its class, and other tenants
    /// that are down until it ends.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the job, or the tenant is not there or busy.
    pub fn begin(&mut self, tenant: usize, job: &Job, terms: Option<(Class, &[(usize, Class)])>) {
        let to_vm = |&(other, class): &(usize, Class)| Some((self.served(other)?.1, class));
        let terms = terms.map(|(class, lowered)| Admission {
            class,
            lowered: lowered.iter().filter_map(to_vm).collect(),
        });
        let of = &self.scenario.tenants[tenant];
        // Each job draws something else.
        let rng = generator(self.scenario.seed, &of.name, self.now.0 | 1 << 63);
        self.hosts[of.device].begin(tenant, job, rng, terms);
    }

    /// Runs to the end.
    pub fn run(&mut self, rows: &mut dyn FnMut(&Row)) {
        while !self.is_over() {
            self.step(rows);
        }
    }

    /// Moves what the hosts counted to the interval's tallies and the totals.
    fn collect(&mut self) {
        let Some(interval) = &mut self.interval else {
            return;
        };
        for host in &mut self.hosts {
            host.collect(|tenant, tally| {
                interval.tallies[tenant].add(tally);
                interval.totals[tenant].add(tally);
            });
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
        let Some(interval) = &mut self.interval else {
            return;
        };
        let began = interval.next - interval.every;
        for (tenant, tally) in self.scenario.tenants.iter().zip(&mut interval.tallies) {
            rows(&Row {
                time_s: now.as_secs_f64(),
                vm: tenant.name.clone(),
                rates: Rates::new(tally, now.since(began)),
                responses: Responses::new(tenant, tally.tasks.as_deref()),
            });
            tally.clear();
        }
        interval.next += interval.every;
    }

    /// What was found out so far.
    pub fn report(&mut self) -> Report {
        self.collect();
        let scenario = &self.scenario;
        let span = self.now.since(scenario.warm_up);
        let mut judged = vec![Vec::new(); scenario.tenants.len()];
        let mut totals: Vec<(usize, &Tally)> = Vec::new();
        let mut running: BTreeMap<usize, TaskTally> = BTreeMap::new();
        let mut held: Vec<(usize, Held)> = Vec::new();
        let leaves = scenario
            .tenants
            .iter()
            .map(|t| t.leaves.unwrap_or(self.now));
        let mut ends: Vec<Nanos> = leaves.map(|leaves| leaves.min(self.now)).collect();
        for host in &self.hosts {
            host.judge(|tenant, all| judged[tenant] = all);
            totals.extend(host.tallies());
            held.extend(host.held());
            (host.running_tasks())
                .for_each(|(tenant, open)| running.entry(tenant).or_default().add(&open));
            host.ends()
                .for_each(|(tenant, end)| ends[tenant] = ends[tenant].min(end));
        }
        totals.sort_by_key(|(tenant, _)| *tenant);
        held.sort_by_key(|(tenant, _)| *tenant);
        let totals = totals.into_iter().map(|(tenant, here)| {
            let all = self.interval.as_ref().map(|it| &it.totals[tenant]);
            all.unwrap_or(here)
        });
        let processors = self.processors.as_ref();
        let devices = scenario.devices.iter().zip(&self.hosts);
        let found = totals.zip(&judged).zip(held);
        let vms = scenario.tenants.iter().zip(found);
        Report {
            title: scenario.title.clone(),
            seed: scenario.seed,
            duration_s: self.now.as_secs_f64(),
            warm_up_s: scenario.warm_up.as_secs_f64(),
            devices: devices
                .map(|(device, host)| {
                    let model = &device.model.name;
                    let (policy, did) = (host.policy(), host.device());
                    let names = (device.name.as_str(), model.as_str(), policy);
                    DeviceReport::new(names, &did, host.distances(), span).with_waits(host.waits())
                })
                .collect(),
            vms: vms
                .zip(ends)
                .map(|((tenant, ((tally, judged), (place, held))), end)| {
                    let tasks = tally.tasks.as_deref().map(|tasks| {
                        let mut tasks = *tasks;
                        running
                            .get(&place)
                            .into_iter()
                            .for_each(|open| tasks.add(open));
                        tasks
                    });
                    let responses = Responses::new(tenant, tasks.as_ref());
                    let device = &scenario.devices[tenant.device].name;
                    // Its rates are those of the time in which it had something to do.
                    let first = tenant.jobs.iter().map(|job| job.start).min();
                    let began = tenant.arrives + first.unwrap_or_default();
                    let span = end.since(began.max(scenario.warm_up));
                    VmReport::new(tenant, device, tally, judged, &held, span)
                        .with_responses(responses)
                        .with_cpu(processors.and_then(|it| it.vm_report(place)))
                })
                .collect(),
            cpu: processors.map(Processors::report),
            requests: self.answered(),
        }
    }
}
