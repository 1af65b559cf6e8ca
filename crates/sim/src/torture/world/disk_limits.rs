//! Limits of disks in a torture run, their own and shared ones, and their changes.

use super::{EventKind, TortureWorld};
use crate::checker::ledger::Ledger;
use crate::checker::{Verdict, ensure};
use crate::torture::{Swarm, TortureRng};
use tidegate_core::engine::SharedLimitId;
use tidegate_core::objective::Limit;
use tidegate_core::request::Request;

/// Most limits that disks share in a run.
const SHARED_MAX: u64 = 3;

/// Limits of disks that a run has.
pub(super) struct DiskLimits {
    rng: TortureRng,
    /// Limits that disks share.
    shared: Vec<SharedLimitId>,
    /// Every limit of this run so far.
    pub(super) all: Vec<Limit>,
}

impl DiskLimits {
    /// Creates the limits of a run without any.
    pub(super) fn new(seed: u64) -> DiskLimits {
        DiskLimits {
            rng: TortureRng::new(seed, 20),
            shared: Vec::new(),
            all: Vec::new(),
        }
    }

    fn draw(&mut self, swarm: &Swarm) -> Limit {
        let limit = swarm.disk_limit(&mut self.rng);
        self.all.push(limit);
        limit
    }
}

impl TortureWorld<'_, '_> {
    /// Adds limits that disks may share.
    pub(super) fn add_shared_limits(&mut self) {
        if !self.swarm.limited_disks {
            return;
        }
        for number in 0..self.disk_limits.rng.below(SHARED_MAX + 1) as usize {
            let limit = self.disk_limits.draw(&self.swarm);
            self.record(EventKind::SharedLimit, figures([number as u64 + 1], &limit));
            let clock = self.faults.clock(self.now);
            let added = self.engine.vms_mut().add_shared_limit(clock, &limit);
            self.disk_limits
                .shared
                .push(added.expect("the limit is valid"));
            let (now, device) = (self.engine.view().now(), self.swarm.config.device);
            let none = core::iter::empty();
            (self.checks.disk_limits).set_shared(now, (number, &limit), &device, none);
        }
    }

    /// Gives a disk that was just added its limits.
    pub(super) fn limit_new_disk(&mut self, disk: usize) -> Verdict {
        // Once the load is over, only slots are to decide what fits.
        if !self.swarm.limited_disks || !self.running {
            return Ok(());
        }
        let limits = &mut self.disk_limits;
        let has_own = limits.rng.chance(600);
        let own = if has_own {
            limits.draw(&self.swarm)
        } else {
            Limit::NONE
        };
        let all = limits.shared.len();
        let shared = (all > 0 && limits.rng.chance(500)).then(|| limits.rng.index(all));
        share_limit(self, disk, shared)?;
        limit_disk(self, disk, &own)
    }

    /// Changes the limit of a disk, one that disks share, or which of them a disk shares.
    pub(super) fn change_disk_limit(&mut self) -> Verdict {
        if !self.swarm.limited_disks || self.inventory.disks.is_empty() {
            return Ok(());
        }
        let limits = &mut self.disk_limits;
        let all = limits.shared.len();
        let disk = limits.rng.index(self.inventory.disks.len());
        if all > 0 && limits.rng.chance(200) {
            let shared = limits.rng.index(all + 1);
            return share_limit(self, disk, (shared < all).then_some(shared));
        }
        let is_lifted = limits.rng.chance(200);
        let limit = if is_lifted {
            Limit::NONE
        } else {
            limits.draw(&self.swarm)
        };
        if all > 0 && limits.rng.chance(300) {
            let shared = limits.rng.index(all);
            return if limits.rng.chance(200) {
                replace_shared_limit(self, shared, &limit)
            } else {
                change_shared_limit(self, shared, &limit)
            };
        }
        limit_disk(self, disk, &limit)
    }
}

/// Has a disk share a limit, and checks that the engine takes it exactly if the disk exists.
fn share_limit(world: &mut TortureWorld<'_, '_>, disk: usize, shared: Option<usize>) -> Verdict {
    let number = shared.map_or(0, |shared| shared as u64 + 1);
    world.record(EventKind::DiskShares, [disk as u64, number, 0, 0, 0]);
    let there = world.checks.ledger.is_disk_live(disk as u32);
    if world.plant.passes_disk_limits() {
        let with = shared.map(|shared| world.disk_limits.shared[shared]);
        let (id, clock) = (
            world.inventory.disks[disk].id,
            world.faults.clock(world.now),
        );
        let shares = world.engine.vms_mut().share_limit(clock, id, with);
        ensure!(
            Refusals,
            shares.is_ok() == there,
            "sharing limit {shared:?} with disk {disk} returned {shares:?}; \
             the disk exists: {there}"
        );
    }
    if there {
        let device = world.swarm.config.device;
        let inside = requests_inside(&world.checks.ledger, disk);
        (world.checks.disk_limits).share(disk, shared, &device, inside);
    }
    Ok(())
}

/// Removes a shared limit and adds another one in its place, if no disk shares it; checks that the
/// engine refuses otherwise.
fn replace_shared_limit(world: &mut TortureWorld<'_, '_>, shared: usize, limit: &Limit) -> Verdict {
    let ledger = &world.checks.ledger;
    let is_shared = (0..world.inventory.disks.len()).any(|disk| {
        world.plant.passes_disk_limits()
            && world.checks.disk_limits.is_shared(disk, shared)
            && ledger.is_disk_live(disk as u32)
    });
    let id = world.disk_limits.shared[shared];
    let removed = world.engine.vms_mut().remove_shared_limit(id);
    ensure!(
        Refusals,
        removed.is_ok() != is_shared,
        "removing shared limit {shared} returned {removed:?}; a disk shares it: {is_shared}"
    );
    if removed.is_err() {
        return Ok(());
    }
    world.record(EventKind::SharedLimit, figures([shared as u64 + 1], limit));
    let clock = world.faults.clock(world.now);
    let added = world.engine.vms_mut().add_shared_limit(clock, limit);
    world.disk_limits.shared[shared] = added.expect("the limit is valid");
    let (now, device) = (world.engine.view().now(), world.swarm.config.device);
    let none = core::iter::empty();
    (world.checks.disk_limits).set_shared(now, (shared, limit), &device, none);
    Ok(())
}

/// Requests of a disk inside the engine.
fn requests_inside(ledger: &Ledger, disk: usize) -> impl Iterator<Item = &Request> {
    let open = ledger.open.iter();
    let entries = open.map(|&open| &ledger.entries[open as usize]);
    entries
        .filter(move |entry| entry.disk as usize == disk)
        .map(|entry| &entry.request)
}

/// Gives a disk a limit, and checks that the engine takes it exactly if the disk exists.
fn limit_disk(world: &mut TortureWorld<'_, '_>, disk: usize, limit: &Limit) -> Verdict {
    world.record(EventKind::DiskLimit, figures([disk as u64], limit));
    let there = world.checks.ledger.is_disk_live(disk as u32);
    if world.plant.passes_disk_limits() {
        let (id, clock) = (
            world.inventory.disks[disk].id,
            world.faults.clock(world.now),
        );
        let set = world.engine.vms_mut().limit_disk(clock, id, limit);
        ensure!(
            Refusals,
            set.is_ok() == there,
            "limiting disk {disk} returned {set:?}; the disk exists: {there}"
        );
    }
    if there {
        let (now, device) = (world.engine.view().now(), world.swarm.config.device);
        let inside = requests_inside(&world.checks.ledger, disk);
        (world.checks.disk_limits).set_disk(now, (disk, limit), &device, inside);
    }
    Ok(())
}

fn change_shared_limit(world: &mut TortureWorld<'_, '_>, shared: usize, limit: &Limit) -> Verdict {
    world.record(EventKind::SharedLimit, figures([shared as u64 + 1], limit));
    let (id, clock) = (
        world.disk_limits.shared[shared],
        world.faults.clock(world.now),
    );
    let set = world.engine.vms_mut().change_shared_limit(clock, id, limit);
    ensure!(
        Refusals,
        set.is_ok(),
        "shared limit {shared} cannot be changed: {set:?}"
    );
    let (now, device) = (world.engine.view().now(), world.swarm.config.device);
    let ledger = &world.checks.ledger;
    let entries = ledger
        .open
        .iter()
        .map(|&open| &ledger.entries[open as usize]);
    let limits = &mut world.checks.disk_limits;
    let theirs: Vec<_> = entries
        .filter(|entry| limits.is_shared(entry.disk as usize, shared))
        .map(|entry| &entry.request)
        .collect();
    limits.set_shared(now, (shared, limit), &device, theirs.into_iter());
    Ok(())
}

/// Figures of a limit behind those given.
fn figures<const N: usize>(first: [u64; N], limit: &Limit) -> [u64; 5] {
    let total = &limit.total;
    let rates = [
        total.ops.map_or(0, |ops| ops.per_s),
        total.bytes_per_s.unwrap_or(0),
    ];
    let mut figures = [0; 5];
    for (figure, value) in figures.iter_mut().zip(first.into_iter().chain(rates)) {
        *figure = value;
    }
    figures
}
