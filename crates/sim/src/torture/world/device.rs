//! Device of a torture run: service times, stamps for bytes, and faults in both.

use super::schedule::Event;
use super::{EventKind, TortureWorld, outcome_code};
use crate::checker::ledger::{Part, SECTOR};
use crate::checker::{Verdict, answers, ensure};
use crate::fault::Kind;
use crate::torture::TortureRng;
use crate::torture::swarm::{Swarm, Timing, models};
use std::collections::VecDeque;
use tidegate_core::pace::Pacer;
use tidegate_core::request::{DeviceIo, IoError, IoId, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_device::cap::{CapFigures, Capped};
use tidegate_device::{Model, ModelIo};

/// Service times of I/Os, and their delays.
pub(super) struct Device {
    timing: Timing,
    model: Option<Box<dyn Model>>,
    /// I/Os that wait for room in the model.
    waiting: VecDeque<ModelIo>,
    /// Cap in front of a device without a model.
    bucket: Pacer,
    rng: TortureRng,
    /// I/Os that the model has completed.
    completed: Vec<u32>,
    /// Time before which nothing completes. After it, what is due comes within `trickles`.
    pub(super) blocked_until: Nanos,
    pub(super) trickles: Nanos,
    /// Time until which the device is slower, by the factor `slowness`.
    pub(super) slow_until: Nanos,
    pub(super) slowness: u64,
}

impl Device {
    pub(super) fn new(swarm: &Swarm, rng: TortureRng) -> Device {
        let iops = swarm.cap.and_then(|cap| cap.iops);
        let model = match (swarm.timing, iops) {
            (Timing::Catalogue(entry), None) => Some(models()[entry].build()),
            (Timing::Catalogue(entry), _) => Some(capped(models()[entry].build(), iops)),
            (Timing::Random { .. }, _) => None,
        };
        Device {
            timing: swarm.timing,
            model,
            waiting: VecDeque::new(),
            bucket: Pacer::new(iops.unwrap_or(0), 1, Nanos::ZERO),
            rng,
            completed: Vec::new(),
            blocked_until: Nanos::ZERO,
            trickles: Nanos::ZERO,
            slow_until: Nanos::ZERO,
            slowness: 1,
        }
    }

    pub(super) fn next_completion(&self) -> Option<Nanos> {
        self.model.as_ref()?.next_completion()
    }

    /// Slots of the I/Os that a model has completed by `now`.
    pub(super) fn completed(&mut self, now: Nanos) -> Vec<u32> {
        let mut completed = std::mem::take(&mut self.completed);
        completed.clear();
        if let Some(model) = &mut self.model
            && model.next_completion().is_some_and(|at| at <= now)
        {
            while let Some(completion) = model.pop_completed(now) {
                completed.push(completion.id as u32);
            }
            while model.has_room()
                && let Some(io) = self.waiting.pop_front()
            {
                model.submit(now, io);
            }
        }
        completed
    }

    /// Longest time of an I/O that no fault delays.
    pub(super) fn slowest(&self) -> Nanos {
        match self.timing {
            Timing::Random { most, tail, .. } => most.max(tail),
            // Upper bound of a full stroke, a revolution and a large transfer on any modelled disk.
            Timing::Catalogue(_) => Nanos::from_millis(100),
        }
    }

    /// Submits an I/O. Returns the time of its end, unless a model reports that later.
    fn submit(&mut self, now: Nanos, slot: u32, io: &DeviceIo, skip: u32) -> Option<Nanos> {
        if let Some(model) = &mut self.model {
            let io = model_io(model.as_ref(), slot, io, skip);
            if model.has_room() {
                model.submit(now, io);
            } else {
                // I/Os of hung disks still occupy the model.
                self.waiting.push_back(io);
            }
            return None;
        }
        let Timing::Random { least, most, tail } = self.timing else {
            return None;
        };
        let mut took = self.rng.range(least.0, most.0);
        // One I/O in a hundred takes from the usual maximum up to `tail`.
        if self.rng.chance(10) {
            took = self.rng.range(most.0, tail.0.max(most.0));
        }
        if now < self.slow_until {
            took *= self.slowness;
        }
        // The cap delays the begin of the I/O, not only its end.
        let passed = self.bucket.due().max(now);
        self.bucket.forget_before(passed);
        self.bucket.spend(1);
        Some(passed + Nanos(took))
    }
}

fn capped(model: Box<dyn Model>, iops: Option<u64>) -> Box<dyn Model> {
    let (bandwidth, burst) = (None, None);
    let cap = CapFigures {
        iops,
        bandwidth,
        burst,
    };
    Box::new(Capped::new(model, &cap).expect("the rate is in range"))
}

/// Rest of an I/O in a model's terms: whole blocks, within its largest I/O.
fn model_io(model: &dyn Model, slot: u32, io: &DeviceIo, skip: u32) -> ModelIo {
    let spec = model.spec();
    let id = slot.into();
    if io.op == Op::Flush {
        return ModelIo::flush(id);
    }
    let block = spec.logical_block as u64;
    let (from, end) = (io.addr + skip as u64, io.addr + io.len as u64);
    let addr = from / block * block;
    let len = end.next_multiple_of(block).min(spec.capacity) - addr;
    ModelIo {
        id,
        op: io.op,
        addr,
        // Rounding to blocks may exceed the model's largest I/O, by less than two blocks.
        len: len.min(spec.max_io.into()) as u32,
        fua: io.fua,
    }
}

impl TortureWorld<'_, '_> {
    /// Submits an I/O to the device.
    pub(super) fn submit(&mut self, io: DeviceIo, parts: Vec<Part>) -> Verdict {
        let disk = self.inventory.disk_of(&io);
        let slot = io.id.index() as u32;
        // A real device may move the bytes at any time before it reports the end.
        let early = self.device.rng.chance(400);
        let mark = self.inventory.disks[disk].media.mark();
        self.flights.start(io, parts, early, mark);
        if early {
            self.move_bytes(slot, 0, io.len)?;
        }
        self.serve(slot);
        Ok(())
    }

    fn serve(&mut self, slot: u32) {
        let flight = self.flights.get(slot);
        let (io, moved) = (flight.io(), flight.moved);
        if let Some(end) = self.device.submit(self.now, slot, &io, moved) {
            self.schedule.plan(end, Event::IoEnded(slot));
        }
    }

    /// Handles the end of an I/O at the device, or of as much of it as one step moves.
    pub(super) fn io_ended(&mut self, slot: u32) -> Verdict {
        // Planned again rather than removed: the I/O ends after the stall.
        if self.now < self.device.blocked_until {
            let trickle = self.device.rng.range(0, self.device.trickles.0);
            self.schedule.plan(
                self.device.blocked_until + Nanos(trickle),
                Event::IoEnded(slot),
            );
            return Ok(());
        }
        let flight = self.flights.get(slot);
        let disk = self.inventory.disk_of(&flight.io()) as u32;
        if let Some(until) = self.hung.hangs_until(self.now, disk) {
            self.schedule.plan(until, Event::IoEnded(slot));
            return Ok(());
        }
        let left = u64::from(flight.left()) / SECTOR;
        // One sector cannot be split any more.
        if left > 1 && self.faults.strikes(Kind::Short) {
            let now = self.device.rng.range(1, left - 1) * SECTOR;
            return self.moved_less(slot, now as u32);
        }
        let outcome = if self.faults.strikes(Kind::Error) {
            let errors = [
                IoError::Io,
                IoError::Io,
                IoError::NoSpace,
                IoError::Unsupported,
            ];
            Err(self.device.rng.pick(&errors))
        } else {
            Ok(())
        };
        // The medium changes at the device's end, also where the report comes late.
        self.settle(slot, outcome)?;
        if self.faults.strikes(Kind::Late) {
            let late = self.faults.how_long();
            self.schedule.plan(self.now + late, Event::Deliver(slot));
            Ok(())
        } else {
            self.deliver(slot)
        }
    }

    /// Handles a short completion: the driver submits the rest.
    fn moved_less(&mut self, slot: u32, bytes: u32) -> Verdict {
        let flight = self.flights.get_mut(slot);
        let (from, early) = (flight.moved, flight.early);
        flight.moved += bytes;
        let (io, left) = (flight.io(), flight.left());
        let figures = [io.id.to_bits(), bytes.into(), left.into(), 0, 0];
        self.record(EventKind::Short, figures);
        if !early {
            self.move_bytes(slot, from, bytes)?;
        }
        self.serve(slot);
        Ok(())
    }

    /// Applies an I/O's effect on the medium at its end.
    fn settle(&mut self, slot: u32, outcome: Outcome) -> Verdict {
        let flight = self.flights.get_mut(slot);
        flight.settle(outcome);
        let (io, moved, early) = (flight.io(), flight.moved, flight.early);
        let mark = flight.mark;
        let disk = self.inventory.disk_of(&io);
        let sectors = (io.len - moved) as u64 / SECTOR;
        // A failed I/O may have reached any number of its sectors.
        let reached = match outcome {
            Ok(()) => sectors,
            Err(_) => self.device.rng.range(0, sectors),
        };
        if !early {
            self.move_bytes(slot, moved, (reached * SECTOR) as u32)?;
        }
        let media = &mut self.inventory.disks[disk].media;
        match (io.op, outcome) {
            (Op::Flush, Ok(())) if !self.plant.flushes(&io) => {}
            (Op::Flush, Ok(())) => media.flush(mark),
            // Sectors are written back in the order in which they became dirty.
            (Op::Flush, Err(_)) => media.flush(self.device.rng.range(0, mark as u64) as usize),
            (Op::Write | Op::WriteZeroes, Ok(())) if io.fua => {
                let (first, count) = (io.offset / SECTOR, io.len as u64 / SECTOR);
                media.make_durable(first as usize, count as usize);
            }
            _ => {}
        }
        Ok(())
    }

    /// Transfers bytes `from..from + len` of an I/O between its requests and the medium.
    fn move_bytes(&mut self, slot: u32, from: u32, len: u32) -> Verdict {
        let flight = self.flights.get(slot);
        let io = flight.io();
        let disk = self.inventory.disk_of(&io);
        let disk = &mut self.inventory.disks[disk];
        let mut end = from as u64 + len as u64;
        if io.op == Op::Write {
            end = from as u64 + self.plant.writes(&io, len) as u64;
        }
        let mut at = 0;
        for part in &flight.parts {
            let (begin, stop) = (at.max(from as u64), (at + part.len as u64).min(end));
            at += part.len as u64;
            if begin >= stop {
                continue;
            }
            let first = ((io.offset + begin) / SECTOR) as usize;
            let count = ((stop - begin) / SECTOR) as usize;
            match io.op {
                Op::Read => {
                    let entry = &self.checks.ledger.entries[part.number as usize];
                    let skip = first - entry.sectors().0;
                    let found = &disk.media.current()[first..first + count];
                    let floors = self.requests.floors(part.number);
                    let shadow = &disk.shadow;
                    shadow.read(&self.checks.ledger, part.number, floors, skip, found)?;
                    // Data read is part of the digest: equal runs read equal bytes.
                    let sum = found.iter().fold(0u64, |sum, s| sum.rotate_left(5) ^ s);
                    self.journal.mix(sum);
                }
                Op::Write | Op::WriteZeroes => {
                    let stamp = part.number as u64 + 1;
                    disk.media.write(first, count, stamp, &mut self.device.rng);
                }
                Op::Discard => disk.media.discard(first, count, &mut self.device.rng),
                Op::Flush => {}
            }
        }
        Ok(())
    }

    /// Reports an I/O's end to the engine.
    pub(super) fn deliver(&mut self, slot: u32) -> Verdict {
        let (io, outcome) = self.flights.get_mut(slot).end();
        self.record(
            EventKind::Ended,
            [io.id.to_bits(), outcome_code(outcome), 0, 0, 0],
        );
        ensure!(
            Answers,
            self.engine.is_in_flight(io.id),
            "{io:?} is in flight, and the engine knows nothing of it"
        );
        let clock = self.faults.clock(self.now);
        self.engine.handle_completion(clock, io.id, outcome);
        // The engine's clock, which a fault may have put before the driver's.
        let now = self.engine.view().now();
        self.hung.ended(self.inventory.disk_of(&io) as u32, now);
        let (parts, over) = (&self.flights.get(slot).parts, &mut self.checks.over);
        answers::ended(&mut self.checks.ledger, now, io.op, parts, outcome, over);
        if self.faults.strikes(Kind::Duplicate) {
            let later = if self.faults.rng.chance(500) {
                Nanos::ZERO
            } else {
                self.faults.how_long()
            };
            self.schedule.plan(
                self.now + later,
                Event::DuplicateCompletion(io.id.to_bits()),
            );
        }
        Ok(())
    }

    /// Reports an I/O's end a second time: the engine must not take it for the end of another I/O.
    pub(super) fn deliver_again(&mut self, bits: u64) -> Verdict {
        self.record(EventKind::Duplicate, [bits, 0, 0, 0, 0]);
        let io = IoId::from_bits(bits);
        ensure!(
            Answers,
            !self.engine.is_in_flight(io),
            "{io:?} has ended, and the engine calls it in flight"
        );
        Ok(())
    }
}
