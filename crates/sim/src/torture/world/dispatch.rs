//! Dispatch of I/Os, with the checks at their start.

use super::{EventKind, TortureWorld};
use crate::checker::starvation::Promise;
use crate::checker::{Verdict, answers, charges, device_ios, ensure, progress};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Op};

impl TortureWorld<'_, '_> {
    /// Starts every I/O that goes to the device now.
    pub(super) fn dispatch(&mut self) -> Verdict {
        // Units for a hung disk are passed over, and have waited for long when it recovers.
        let hangs = self.engine.device().any_hung();
        if self.hung.hangs_or_hung_before(hangs) {
            self.checks.starvation.reset(&self.engine);
        }
        loop {
            let now = self.faults.clock(self.now);
            let seen = now.max(self.engine.view().now());
            let is_due = |engine: &Engine| engine.next_timeout().is_some_and(|at| at <= seen);
            // The engine handles timeouts by itself; in most cases the driver calls it first.
            if is_due(&self.engine) && self.faults.rng.chance(800) {
                self.record(EventKind::Timeout, [0; 5]);
                self.engine.handle_timeout(now);
            }
            // A timeout that the engine handles inside may change what is first.
            let promise = if hangs || is_due(&self.engine) {
                None
            } else {
                self.checks.starvation.promise(&self.engine)
            };
            match self.engine.poll_dispatch(now) {
                Some(io) => self.start(io, promise)?,
                None => break,
            }
        }
        let stats = self.engine.device_stats();
        if stats.in_flight < stats.spec.depth
            // Not idle of its own accord: deadlines or a wait for a request hold the device.
            && !self.engine.device().is_dispatch_blocked()
            && !self.engine.device().any_hung()
        {
            self.checks.starvation.idle(&self.engine)?;
        }
        // Alerts are taken as by the daemon, so that their queue stays short.
        while self.engine.device_mut().poll_alert().is_some() {}
        self.checks.credits.check(&self.engine)?;
        let (inventory, requests) = (&self.inventory, &self.requests);
        (self.checks).check_memory_guarantees(&self.engine, inventory, requests)?;
        if self.replies.any_in_transit() {
            // Reads may wait for memory that replies in transit hold, whose arrivals are events
            // here.
            return Ok(());
        }
        progress::wakes_up(&self.engine)
    }

    fn start(&mut self, io: DeviceIo, promise: Option<Promise>) -> Verdict {
        self.ios += 1;
        let (op, fua) = (io.op as u64, (io.fua as u64) << 4);
        let id = io.id.to_bits();
        let vm = io.vm.index() as u64;
        self.record(
            EventKind::Started,
            [id, vm, op | fua, io.offset, io.len.into()],
        );
        self.segments.clear();
        self.segments.extend(self.engine.io_segments(io.id));
        let slot = io.id.index();
        ensure!(
            Shape,
            self.flights.is_free(slot),
            "{io:?} was given the slot of one that is in flight"
        );
        let mut parts = self.flights.spare_parts(slot);
        self.checks.ledger.parts(&io, &self.segments, &mut parts)?;
        for part in &parts {
            let figures = [part.number.into(), part.from.into(), part.len.into(), 0, 0];
            self.journal.record(self.now, EventKind::Served, figures);
        }
        let (mut in_flight, mut flushes) = (0, 0);
        for other in self.flights.ios() {
            // I/Os of hung disks may be out of the count.
            in_flight += u32::from(self.engine.device().is_counted(other.id));
            flushes += (other.op == Op::Flush && other.disk == io.disk) as u32;
        }
        device_ios::check(
            &self.checks.ledger,
            &io,
            &self.segments,
            &parts,
            in_flight,
            flushes,
        )?;
        charges::started(&mut self.checks.ledger, &io, &parts)?;
        answers::started(&mut self.checks.ledger, io.op, &parts);
        self.checks.reads_fed(&mut self.requests, io.op, &parts)?;
        let now = self.engine.view().now();
        self.checks
            .limits
            .started(now, &self.swarm.config.device, &io)?;
        let disk = self.inventory.disk_of(&io);
        self.checks
            .disk_limits
            .started(now, disk, &self.swarm.config.device, &io)?;
        // A merged I/O has the number of its oldest request.
        let view = self.engine.view();
        let first = self
            .segments
            .iter()
            .map(|segment| view.queued(segment.req).seq());
        let first = first.min().unwrap_or(0);
        let engine = &self.engine;
        let ledger = &self.checks.ledger;
        if engine.device().any_hung() {
            self.checks.starvation.started_beside_hung(engine, &io);
        } else {
            self.checks
                .starvation
                .started(engine, ledger, &io, first, promise)?;
        }
        self.hung
            .started(engine, self.inventory.disk_of(&io) as u32, &io)?;
        let guest = self.inventory.disks[self.inventory.disk_of(&io)].vm;
        self.inventory.vms[guest].device_bytes += io.len as u64;
        self.submit(io, parts)
    }
}
