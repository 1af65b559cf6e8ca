//! Making a host: its device, and everybody who is to come to it.

use super::count::{Tally, Watch};
use super::distance::Distances;
use super::events::{Event, Events};
use super::exchange::Messages;
use super::guest::Worker;
use super::path::Way;
use super::seconds::Seconds;
use super::{DeviceTally, Guest, Host, Rest};
use crate::scenario::{Action, Device, Scenario, Tenant};
use crate::seed::generator;
use std::collections::VecDeque;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::time::Nanos;
use tidegate_workload::source::Source;

/// A host's engine, as it begins. `shared`: there are others.
fn host_engine(device: &Device, tenants: usize, shared: bool) -> Engine {
    let mut engine =
        Engine::new(device.engine(tenants), &device.policy).expect("the scenario was checked");
    if let Some(payload) = &device.payload {
        engine.bound_payload(payload);
    }
    if !device.divided {
        engine.leave_undivided();
    }
    engine.set_profile(device.profile.clone());
    // What others take of the device looks like a cap to a host that does not see them.
    engine.learn_cap(device.learn_cap && !shared);
    engine.adapt_depth(Nanos::ZERO, device.steering.adaptive_depth);
    engine.share_io(device.steering.max_io_shared);
    engine
}

impl Host {
    /// The `device`th device of a scenario, at time zero.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the scenario.
    pub fn new(scenario: &Scenario, device: usize) -> Host {
        let of_device = &scenario.devices[device];
        let layout = scenario.layout(device);
        let hosts = scenario.hosts(device);
        let engine = || host_engine(of_device, layout.len(), hosts > 1);
        let mut host = Host {
            engines: (0..hosts).map(|_| engine()).collect(),
            turn: 0,
            way: Way::new(of_device.path, scenario.seed, &of_device.name, hosts),
            exchange: Messages::new(of_device.exchange, scenario.seed, &of_device.name),
            model: of_device.model.build(),
            now: Nanos::ZERO,
            events: Events::default(),
            guests: Vec::new(),
            workers: Vec::new(),
            jobs: Vec::new(),
            changes: scenario.changes.clone(),
            pending: Vec::new(),
            free: Vec::new(),
            line: VecDeque::new(),
            by_vm: vec![Vec::new(); hosts],
            device: DeviceTally::default(),
            distances: Distances::new(&of_device.distances),
            answered: 0,
            done_tasks: None,
            task_changes: 0,
            last_end: Nanos::ZERO,
            errands: None,
        };
        let block = of_device.model.spec().logical_block;
        for (index, disk) in layout {
            let tenant = &scenario.tenants[index];
            host.add_guest(scenario.seed, index, tenant, (disk.start, block));
        }
        for (index, change) in scenario.changes.iter().enumerate() {
            let here = match &change.action {
                Action::Objective { tenant, .. } => scenario.tenants[*tenant].device == device,
                Action::Policy { device: of, .. } => *of == device,
            };
            if here {
                host.events.plan(change.at, Event::Change(index as u32));
            }
        }
        host
    }

    /// `base`, `block`: where its disk begins on the device, and the device's logical block.
    fn add_guest(&mut self, seed: u64, index: usize, tenant: &Tenant, (base, block): (u64, u32)) {
        let guest = self.guests.len() as u32;
        let first = self.workers.len() as u32;
        for (j, job) in tenant.jobs.iter().enumerate() {
            for copy in 0..job.numjobs {
                let source = Source::new(job, copy, tenant.disk_size, block);
                let part = (j as u64 + 1) << 32 | u64::from(copy);
                let rng = generator(seed, &tenant.name, part);
                let source = source.expect("the scenario was checked");
                self.workers.push(Worker::new(guest, job, source, rng));
                self.jobs.push((guest, j as u32));
            }
        }
        self.events.plan(tenant.arrives, Event::Arrive(guest));
        if let Some(leaves) = tenant.leaves {
            self.events.plan(leaves, Event::Leave(guest));
        }
        let disk = DiskSpec {
            base,
            size: tenant.disk_size,
            read_only: false,
        };
        let follows = self.workers[first as usize..]
            .iter()
            .any(|w| w.tasks.is_some());
        self.guests.push(Guest {
            engine: None,
            host: tenant.host as usize,
            workers: first..self.workers.len() as u32,
            outstanding: 0,
            last_answer: Nanos::ZERO,
            delay: tenant.delay,
            processor_free: Nanos::ZERO,
            rng: generator(seed, &tenant.name, 0),
            tally: Tally {
                tasks: follows.then(Box::default),
                ..Tally::default()
            },
            watch: Watch::new(&tenant.objective),
            seconds: Seconds::default(),
            refused: VecDeque::new(),
            in_line: false,
            rest: Box::new(Rest {
                index,
                background: tenant.background,
                disk,
                jobs: tenant.jobs.clone(),
                objective: tenant.objective,
                past: Vec::new(),
                terms: None,
            }),
        });
    }
}
