//! Construction of a simulated device, with the VMs that will arrive.

use super::DeviceSim;
use super::counted_model::CountedModel;
use super::events::{Event, EventQueue};
use super::hosts::Hosts;
use super::messages::Messages;
use super::request_log::RequestLog;
use super::slab::Slab;
use super::transfers::TransferLog;
use super::transport::Transport;
use super::vms::VmTable;
use crate::scenario::{Action, Device, Scenario};
use tidegate_core::engine::Engine;
use tidegate_core::time::Nanos;

/// Engine of a host at time zero; `shared`: other hosts use the device, too.
fn host_engine(device: &Device, vms: usize, shared: bool) -> Engine {
    let mut scheduling = device.scheduling.clone();
    // A host cannot see the load of others and would learn it as a cap.
    scheduling.learn_cap &= !shared;
    if shared {
        scheduling.policy = scheduling.policy.on_shared_device();
    }
    let engine = scheduling.engine(device.engine_config(vms), Nanos::ZERO);
    let mut engine = engine.expect("the scenario was checked");
    if device.bounded {
        (engine.admission_mut()).bound_payload(&scheduling.payload());
    } else {
        // Scenarios that bound nothing describe guests whose requests never lack a slot.
        engine.admission_mut().leave_undivided();
    }
    engine
}

impl DeviceSim {
    /// Creates the simulation of device `index` of the scenario, at time zero.
    ///
    /// # Panics
    /// When [`Scenario::check`] would have refused the scenario.
    pub fn new(scenario: &Scenario, index: usize) -> DeviceSim {
        let device = &scenario.devices[index];
        let (seed, name) = (scenario.frame.seed, device.name.as_str());
        let layout = scenario.layout(index);
        let hosts = scenario.hosts(index);
        let engine = |_| host_engine(device, layout.len(), hosts > 1);
        let mut sim = DeviceSim {
            now: Nanos::ZERO,
            events: EventQueue::default(),
            hosts: Hosts::new((0..hosts).map(engine).collect(), &device.limit_groups),
            messages: Messages::new(device.exchange, seed, name),
            transport: Transport::new(device.path, seed, name, hosts),
            model: CountedModel::new(device.model.build(), &device.distances),
            vms: VmTable::default(),
            requests: Slab::default(),
            transfers: TransferLog::default(),
            request_log: RequestLog::default(),
            vcpu_steps: None,
            changes: scenario.changes.clone(),
            answered: 0,
            last_end: Nanos::ZERO,
        };
        let block = device.model.spec().logical_block;
        for (vm_index, disk) in layout {
            let spec = &scenario.vms[vm_index];
            let vm = (sim.vms).add(seed, (vm_index, spec), (disk.start, block));
            sim.events.plan(spec.arrives, Event::Arrive(vm));
            if let Some(leaves) = spec.leaves {
                sim.events.plan(leaves, Event::Leave(vm));
            }
        }
        for (number, change) in scenario.changes.iter().enumerate() {
            let here = match &change.action {
                Action::Objective { vm, .. } => scenario.vms[*vm].device == index,
                Action::Policy { device, .. } => *device == index,
            };
            if here {
                sim.events.plan(change.at, Event::Change(number as u32));
            }
        }
        sim
    }
}
