//! I/Os of the simulated device: from the engines to the model and back.

use super::DeviceSim;
use super::events::Event;
use super::hosts::{io_of_tag, io_tag};
use super::transport::Sent;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::time::Nanos;
use tidegate_device::ModelIo;

/// I/O of a host as the device model sees it.
fn model_io(host: usize, io: &DeviceIo) -> ModelIo {
    ModelIo {
        id: io_tag(host, io.id),
        op: io.op,
        // The engine says of a flush where the head may be; a device is told none.
        addr: if io.op == Op::Flush { 0 } else { io.addr },
        len: io.len,
        fua: io.fua,
    }
}

impl DeviceSim {
    /// Submits to the device the I/Os that the engines dispatch.
    pub(super) fn give_work(&mut self) {
        // With a queue of its own the transport takes I/Os beyond the device's depth.
        let apart = self.transport.has_own_queue();
        while apart || self.model.has_room() {
            let Some((host, io)) = self.hosts.poll_dispatch(self.now) else {
                break;
            };
            // Counted at the engine's side, so that I/Os in transit count too.
            self.model.dispatched(io.len);
            self.request_log.device_works(self.now);
            match self.transport.send(self.now, host, model_io(host, &io)) {
                Sent::Device(io) => self.model.submit(self.now, io),
                Sent::Queued => {}
                Sent::Arrives(at, number) => self.events.plan(at, Event::Reach(number)),
            }
        }
        while self.model.has_room()
            && let Some(io) = self.transport.pop_queued()
        {
            self.model.submit(self.now, io);
        }
    }

    /// Passes I/Os that the device has finished back to their engines.
    pub(super) fn complete(&mut self) {
        while let Some(ended) = self.model.pop_completed(self.now) {
            let (host, _) = io_of_tag(ended.id);
            let idle = self.model.in_flight() == 0;
            self.request_log.device_ended(self.now, idle);
            match self.transport.send_back(self.now, host, ended.id) {
                Some((at, number)) => self.events.plan(at, Event::Return(number)),
                None => self.hosts.complete(self.now, ended.id),
            }
        }
    }

    /// Disconnects all VMs and drains the device: an engine must not be dropped with unanswered
    /// requests.
    pub(super) fn close(&mut self) {
        for vm in self.vms.iter_mut() {
            // `take`: answers that come below find no VM, and reach no worker.
            if let Some((_, client)) = vm.engine.take() {
                let engine = self.hosts.engine_mut(vm.host);
                engine.handle_disconnect(self.now, client);
                for &(_, client) in &vm.parts {
                    engine.handle_disconnect(self.now, client);
                }
            }
        }
        // I/Os in transit or in the queue end without reaching the device.
        for io in self.transport.drain() {
            self.hosts.complete(self.now, io);
        }
        while !self.hosts.are_idle() {
            while self.hosts.poll_done().is_some() {}
            // I/Os in flight cannot be cancelled; a flush stands for each, as it takes little time.
            while self.model.has_room()
                && let Some((host, io)) = self.hosts.poll_dispatch(self.now)
            {
                let id = io_tag(host, io.id);
                self.model.submit(self.now, ModelIo::flush(id));
            }
            // Nothing in flight and not idle: the engine holds units for a time that will not come.
            let Some(ended) = self.model.pop_completed(Nanos::MAX) else {
                break;
            };
            // The engine's clock must not run backwards.
            self.now = self.now.max(ended.at);
            self.hosts.complete(self.now, ended.id);
        }
        while self.hosts.poll_done().is_some() {}
    }
}
