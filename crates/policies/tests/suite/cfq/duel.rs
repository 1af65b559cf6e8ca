//! Three VMs, I/O by I/O.

use crate::common::{MS, SECOND, config, open_disk};
use tidegate_core::engine::Engine;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::{ClientId, DeviceIo, Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Three VMs on a disk of depth 1, and whose I/O goes when; each takes a millisecond.
pub(crate) struct Duel {
    pub(crate) engine: Engine,
    pub(crate) clients: [ClientId; 3],
    pub(crate) vms: [VmId; 3],
    pub(crate) now: u64,
    flying: Vec<DeviceIo>,
}

impl Duel {
    /// The first two disks begin so far apart, the third a long way behind.
    pub(crate) fn new(spec: &PolicySpec, apart: u64) -> Duel {
        Duel::deep(spec, apart, 1)
    }

    /// The same on a disk that takes so many I/Os at a time.
    pub(crate) fn deep(spec: &PolicySpec, apart: u64, depth: u32) -> Duel {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(8 * MS);
        let mut engine = Engine::new(config, spec).expect("sound");
        let vms = [(); 3].map(|()| {
            let vm = engine
                .tenants_mut()
                .add_vm(Nanos::ZERO, &Objective::default());
            vm.expect("room")
        });
        let clients = [0, 1, 2].map(|n| {
            let base = [0, apart, 1 << 40][n];
            open_disk(&mut engine, vms[n], base, apart).1
        });
        Duel {
            engine,
            clients,
            vms,
            now: SECOND,
            flying: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, whose: usize, op: Op, block: u64) {
        let request = Request {
            op,
            ..Request::read(block * 4096, 4096, 0)
        };
        let taken = self
            .engine
            .handle_request(Nanos(self.now), self.clients[whose], request);
        taken.expect("room");
    }

    pub(crate) fn set_priority(&mut self, whose: usize, priority: Priority) {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        let set =
            self.engine
                .tenants_mut()
                .set_objective(Nanos(self.now), self.vms[whose], &objective);
        set.expect("sound");
    }

    /// How many I/Os of the same VM, doing the same, go one after the other from now on.
    pub(crate) fn turn(&mut self) -> usize {
        let first = self.serve();
        1 + (0..).take_while(|_| self.serve() == first).count()
    }

    /// What may go now, without waiting for anything.
    pub(crate) fn start(&mut self) -> Vec<DeviceIo> {
        let started = core::iter::from_fn(|| self.engine.poll_dispatch(Nanos(self.now)));
        let started: Vec<_> = started.collect();
        self.flying.extend(&started);
        started
    }

    pub(crate) fn end(&mut self, io: &DeviceIo) {
        self.flying.retain(|flying| flying.id != io.id);
        self.engine
            .handle_completion(Nanos(self.now), io.id, Ok(()));
        while self.engine.poll_done().is_some() {}
    }

    /// Whose I/O goes next, and what it does; none within a second: nobody's.
    pub(crate) fn serve(&mut self) -> Option<(usize, Op)> {
        let end = self.now + SECOND;
        let io = loop {
            if let Some(io) = self.engine.poll_dispatch(Nanos(self.now)) {
                break io;
            }
            let next = self.engine.next_timeout().filter(|next| next.0 <= end)?;
            assert!(next.0 > self.now);
            self.now = next.0;
        };
        self.now += MS;
        self.engine
            .handle_completion(Nanos(self.now), io.id, Ok(()));
        while self.engine.poll_done().is_some() {}
        let whose = self.vms.iter().position(|&vm| vm == io.vm);
        Some((whose.expect("one of them"), io.op))
    }
}

impl Drop for Duel {
    fn drop(&mut self) {
        for io in self.flying.clone() {
            self.end(&io);
        }
        for client in self.clients {
            self.engine.handle_disconnect(Nanos(self.now), client);
        }
        while self.engine.poll_done().is_some() {}
    }
}
