//! Construction of a torture run from its swarm.

use super::checks::Checks;
use super::device::Device;
use super::disk_limits::DiskLimits;
use super::faults::Faults;
use super::hung::HungDisk;
use super::in_flight::Flights;
use super::inventory::Inventory;
use super::load::Load;
use super::replies::Replies;
use super::request_table::RequestTable;
use super::schedule::Schedule;
use super::{Draws, TortureWorld};
use crate::checker::credits::Credits;
use crate::torture::journal::Journal;
use crate::torture::random_merge_limits::RandomMergeLimits;
use crate::torture::swarm::Swarm;
use crate::torture::{Plant, TortureRng, Window};
use std::sync::Arc;
use tidegate_core::engine::Engine;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;

/// Times at which runs start, about: a driver's clock may count from the start of the machine.
const UPTIMES: [Nanos; 2] = [Nanos::ZERO, Nanos::from_secs(30 * 24 * 3600)];

/// Creates the engine of a run. Roles of the swarm and the plant are put around those of every
/// policy; the audit of credits is outermost.
fn engine(seed: u64, swarm: &Swarm, plant: &dyn Plant, credits: &Credits, now: Nanos) -> Engine {
    let mut engine = Engine::new(swarm.config, &swarm.policy).expect("the configuration is sound");
    if let Some(payload) = &swarm.payload {
        engine.admission_mut().bound_payload(payload);
    }
    if !plant.divides_resources() {
        engine.admission_mut().leave_undivided();
    }
    engine.device_mut().set_profile(swarm.profile.clone());
    // Half of the seeds, without a draw: older seeds keep their runs.
    engine.device_mut().learn_costs(seed.is_multiple_of(2));
    let (window, fickle, wrap) = (swarm.window, swarm.fickle, plant.roles());
    // Before the roles are wrapped: the wrapper reads the parameters.
    credits.announce(&swarm.policy);
    let audit = credits.wrapper();
    engine.wrap_roles(Nanos::ZERO, move |roles| {
        let roles = match window {
            Some(most) => Window::instead_of_open(most, roles),
            None => roles,
        };
        let roles = if fickle {
            RandomMergeLimits::in_front(seed, roles)
        } else {
            roles
        };
        audit(match wrap {
            Some(wrap) => wrap(roles),
            None => roles,
        })
    });
    if let Some(cap) = &swarm.cap {
        engine
            .device_mut()
            .set_profile(cap.profile.map(|iops| Arc::new(profile(iops))));
        engine.device_mut().learn_cap(true);
        engine
            .device_mut()
            .assume_cap(now, cap.assumed.0, cap.assumed.1);
    }
    engine.device_mut().adapt_depth(now, swarm.adapts_depth);
    engine
        .device_mut()
        .set_max_io_shared(match swarm.shared_io {
            0 => MaxIoShared::Off,
            bytes => MaxIoShared::Bytes(bytes),
        });
    engine
}

/// Profile of a device with `iops` I/Os of 4 KiB per second; an I/O of 1 MiB takes 16 times as
/// long.
fn profile(iops: u64) -> Profile {
    // 16 times as long for 256 times the bytes, between a seek and a pure transfer.
    let points = [(4096, iops as f64), (1 << 20, iops as f64 / 16.0)];
    let curve = Curve::new(&points).expect("rates are positive");
    let both = [curve.clone(), curve];
    Profile::new(both.clone(), Some(both), Vec::new(), Vec::new())
}

impl<'a, 'j> TortureWorld<'a, 'j> {
    /// Creates the run of a swarm, before its first event.
    pub(in crate::torture) fn new(
        seed: u64,
        swarm: Swarm,
        journal: &'a mut Journal<'j>,
        plant: &'a mut dyn Plant,
    ) -> TortureWorld<'a, 'j> {
        // The engine must not depend on a start at time 0.
        let up_since_boot = UPTIMES[(seed / 2 % 2) as usize];
        let now = Nanos(up_since_boot.0 + 1 + seed % 1000);
        let credits = Credits::default();
        let mut engine = engine(seed, &swarm, plant, &credits, now);
        let hung = HungDisk::new(&swarm, TortureRng::new(seed, 18));
        // Handling of hung disks has slots beyond the depth, for I/Os that are out of the count.
        let mut slots = swarm.config.device.depth;
        if let Some(timeouts) = hung.silence_timeouts() {
            engine.device_mut().enable_hung_disk_handling(now, timeouts);
            slots = swarm.config.device.io_slots();
        }
        TortureWorld {
            engine,
            now,
            running: true,
            schedule: Schedule::new(),
            faults: Faults::new(swarm.plan.clone(), TortureRng::new(seed, 5)),
            load: Load::new(seed),
            draws: Draws {
                fresh: TortureRng::new(seed, 6),
                policies: TortureRng::new(seed, 7),
                profiles: TortureRng::new(seed, 10),
                resizes: TortureRng::new(seed, 12),
                transfers: TortureRng::new(seed, 17),
            },
            inventory: Inventory::new(swarm.base),
            requests: RequestTable::default(),
            replies: Replies::new(seed, swarm.replies),
            device: Device::new(&swarm, TortureRng::new(seed, 3)),
            flights: Flights::new(slots),
            hung,
            disk_limits: DiskLimits::new(seed),
            checks: Checks::new(swarm.config, swarm.payload, credits),
            journal,
            plant,
            accepted: 0,
            ios: 0,
            memory_came_back: false,
            segments: Vec::new(),
            dones: Vec::new(),
            swarm,
        }
    }
}
