//! Socket loops of a device, as its loop sees them: which connection is in which, and what they
//! say.

use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Nanos;

use super::balance::{Balance, Decision, Load, Second};
use super::connection::{Connection, State};
use super::{FrontendContext, Frontends, longest_pause};
use crate::config::Loops;
use crate::event_loop::demand::Demand;
use crate::event_loop::socket_loop;
use crate::frontend::handover::{
    DeviceEnd, MOVE_TIMEOUT, Opened, PLACES, Sleeper, ToDevice, ToSockets,
};
use crate::frontend::interface::{ConnectionRef, Port};
use crate::frontend::{AnyFrontend, nbd, relay};
use crate::ring::Wake;

/// Largest number of socket loops that a device has unless it is configured.
const SOCKET_LOOPS_MAX: usize = 7;

/// Socket loops of a device.
#[derive(Default)]
pub(super) struct SocketLoops {
    /// Name of the device, for names of threads and log messages.
    device: String,
    loops: Vec<Running>,
    /// Note of the device's loop that it sleeps; there with the first socket loop.
    own: Option<Arc<Sleeper>>,
    /// Connections are dealt to the loops as they come, and stay.
    deals: bool,
    /// Moves connections where they are needed; `None` if nothing does.
    balancer: Option<Balancer>,
    /// Time at which connections that wait to be moved are served on instead.
    moves_end: Option<Nanos>,
}

/// Balance of connections with what it observes.
struct Balancer {
    balance: Balance,
    demand: Demand,
    /// Time of the last second that was looked at.
    last: Nanos,
}

/// One socket loop.
struct Running {
    link: Rc<DeviceEnd>,
    /// Connections by their place.
    places: [Option<ConnectionRef>; PLACES],
    thread: Option<JoinHandle<()>>,
    demand: Option<Demand>,
    ended: Arc<AtomicBool>,
}

impl Running {
    fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

impl SocketLoops {
    /// Starts one more socket loop.
    ///
    /// # Errors
    /// Fails if the kernel refuses the ring, the eventfd or the thread.
    fn start(&mut self, wake: &Arc<Wake>) -> io::Result<()> {
        let own = self.own.get_or_insert_with(|| Sleeper::new(wake.clone()));
        let name = format!("{} {}", self.device, self.loops.len() + 2);
        let started = socket_loop::start(&name, own.clone())?;
        self.loops.push(Running {
            link: Rc::new(started.end),
            places: [None; PLACES],
            thread: Some(started.thread),
            demand: started.demand,
            ended: started.ended,
        });
        Ok(())
    }

    /// Returns the socket loop for a new connection, and its place there; `None` if the device's
    /// own loop, which serves all of `connections` that no other does, is to have it.
    pub(super) fn deal(&self, connections: usize) -> Option<(usize, usize)> {
        if !self.deals {
            return None;
        }
        let (at, emptiest) = (self.loops.iter().enumerate()).min_by_key(|(_, one)| one.len())?;
        let place = emptiest.places.iter().position(Option::is_none)?;
        let elsewhere: usize = self.loops.iter().map(Running::len).sum();
        // The device's loop has the engine beside its connections, so it is the last of equals.
        (emptiest.len() <= connections - elsewhere).then_some((at, place))
    }

    /// Returns the number of the socket loop that has a connection.
    fn at(&self, relay: &relay::Connection) -> Option<usize> {
        let mut loops = self.loops.iter();
        loops.position(|one| relay.is_of(&one.link))
    }

    /// Returns the index of the connection at a place of a socket loop. It is there, because a
    /// place is free only after the socket loop has said the last of its connection.
    fn at_place(&self, at: usize, place: u32) -> u32 {
        let connection_ref = self.loops[at].places[place as usize];
        connection_ref.expect("the place is a connection's").index
    }

    /// Frees the place of a connection, and returns its index.
    fn leave_place(&mut self, at: usize, place: u32) -> u32 {
        let index = self.at_place(at, place);
        self.loops[at].places[place as usize] = None;
        index
    }

    /// Hands a connection over and returns what is left of it here.
    pub(super) fn hand_over(
        &mut self,
        (at, place): (usize, usize),
        connection_ref: ConnectionRef,
        opened: Opened,
    ) -> relay::Connection {
        let one = &mut self.loops[at];
        one.places[place] = Some(connection_ref);
        let place = place as u32;
        let context = opened.moving.allocation_context;
        let opened = Box::new(opened);
        one.link.send(ToSockets::Open { place, opened });
        relay::Connection::new(one.link.clone(), place, context)
    }
}

impl Drop for SocketLoops {
    fn drop(&mut self) {
        for one in &mut self.loops {
            one.link.send(ToSockets::Stop);
            one.link.publish();
        }
        for one in &mut self.loops {
            let thread = one.thread.take().expect("it runs until here");
            // A panic there has been reported, and ended this loop as well.
            let _ = thread.join();
        }
    }
}

impl Frontends {
    /// Prepares to serve connections by several loops, this one included: as many as are
    /// configured, which are started now, or as many as pay.
    ///
    /// # Errors
    /// Fails if the kernel refuses a ring, an eventfd or a thread.
    pub(in crate::event_loop) fn prepare_socket_loops(
        &mut self,
        loops: Loops,
        device: &str,
        wake: &Arc<Wake>,
        now: Nanos,
    ) -> io::Result<()> {
        self.sockets.device = device.to_owned();
        match loops {
            Loops::Count(loops) => {
                self.sockets.deals = true;
                (1..loops).try_for_each(|_| self.sockets.start(wake))
            }
            Loops::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                let most = (processors - 1).min(SOCKET_LOOPS_MAX);
                // Without statistics of the kernel there is one loop.
                if let Ok(demand) = Demand::of_this_thread() {
                    self.sockets.balancer = Some(Balancer {
                        balance: Balance::new(most),
                        demand,
                        last: now,
                    });
                }
                Ok(())
            }
        }
    }

    /// Moves connections between loops where that pays. Called once a second while there is work.
    pub(in crate::event_loop) fn balance(&mut self, ctx: &mut FrontendContext<'_>) {
        let Some(second) = self.observe(ctx.parts.now) else {
            return;
        };
        let balancer = self.sockets.balancer.as_mut().expect("it observed");
        match balancer.balance.decide(&second) {
            Decision::Stay => {}
            Decision::MoveTo { index, at } => {
                if at == self.sockets.loops.len()
                    && let Err(error) = self.sockets.start(ctx.parts.wake)
                {
                    let device = &self.sockets.device;
                    tracing::warn!(%device, "cannot start a socket loop: {error}");
                    self.sockets.balancer = None;
                    return;
                }
                self.begin_move(ctx, index, at as u32);
            }
            Decision::MoveBack { index } => self.begin_return(index),
            Decision::MoveAllBack => {
                self.connections
                    .indices()
                    .into_iter()
                    .for_each(|index| self.begin_return(index));
            }
        }
    }

    /// Returns what the loops and connections did since the last look; `None` if nothing is to be
    /// decided on it.
    fn observe(&mut self, now: Nanos) -> Option<Second> {
        let balancer = self.sockets.balancer.as_mut()?;
        let elapsed = now.since(std::mem::replace(&mut balancer.last, now));
        let own = balancer.demand.take(elapsed).ok()?;
        let shares = self.sockets.loops.iter_mut().map(|one| {
            let share = one.demand.as_mut()?.take(elapsed);
            share.ok()
        });
        let loops: Option<Vec<u32>> = shares.collect();
        let indices = self.connections.indices();
        let mut connections = Vec::with_capacity(indices.len());
        for index in indices {
            let connection = self.connections.get(index).expect("it is there");
            let work = mem::take(&mut connection.work);
            // Work by the second, whatever time has passed.
            let work = work.saturating_mul(Nanos::SECOND.0) / elapsed.0.max(1);
            let (at, may_move) = match &connection.transport {
                AnyFrontend::Nbd(_) => (None, true),
                AnyFrontend::Relay(relay) => (self.sockets.at(relay), true),
                _ => (None, false),
            };
            if may_move {
                connections.push(Load { index, at, work });
            }
        }
        Some(Second {
            now,
            own,
            loops: loops?,
            connections,
        })
    }

    /// Asks the socket loop of a connection to give it back, if it is in one.
    fn begin_return(&mut self, index: u32) {
        let connection = self.connections.get(index).expect("it is there");
        if let AnyFrontend::Relay(relay) = &connection.transport {
            relay.ask_back();
        }
    }

    /// Fails if a socket loop has ended, whose connections nobody serves any more.
    ///
    /// # Errors
    /// As described.
    #[inline]
    pub(in crate::event_loop) fn check_socket_loops(&self) -> io::Result<()> {
        let mut loops = self.sockets.loops.iter();
        if loops.any(|one| one.ended.load(Ordering::Acquire)) {
            return Err(io::Error::other("a socket loop has ended"));
        }
        Ok(())
    }

    /// Lets the messages to socket loops leave. Returns the longest time that the next turn may
    /// wait, of `timeout`, and notes that this loop sleeps if it may.
    #[inline]
    pub(in crate::event_loop) fn publish(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(own) = &self.sockets.own else {
            return timeout;
        };
        self.sockets.loops.iter().for_each(|one| one.link.publish());
        if timeout == Some(Duration::ZERO) {
            return timeout;
        }
        own.sleep.lie_down();
        let mut loops = self.sockets.loops.iter();
        if loops.any(|one| !one.link.is_empty()) {
            return Some(Duration::ZERO);
        }
        let mut loops = self.sockets.loops.iter();
        if loops.any(|one| one.link.is_overfull()) {
            let look = socket_loop::LOOK_FOR_ROOM;
            return Some(timeout.map_or(look, |timeout| timeout.min(look)));
        }
        timeout
    }

    /// Takes the messages of the socket loops.
    #[inline]
    pub(in crate::event_loop) fn take_messages(&mut self, ctx: &mut FrontendContext<'_>) {
        let Some(own) = &self.sockets.own else {
            return;
        };
        own.sleep.rise();
        for at in 0..self.sockets.loops.len() {
            let link = self.sockets.loops[at].link.clone();
            while let Some(message) = link.receive() {
                self.take_message(ctx, at, message);
            }
        }
        if ctx.parts.requests.has_ended() {
            self.free_ended(ctx);
        }
        #[cfg(test)]
        self.shuffle(ctx);
    }

    /// Moves a connection every few turns where connections are dealt, so that tests of whole
    /// daemons meet moves at any time.
    #[cfg(test)]
    fn shuffle(&mut self, ctx: &mut FrontendContext<'_>) {
        use std::sync::atomic::AtomicU32;

        static TURNS: AtomicU32 = AtomicU32::new(0);
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        let indices = self.connections.indices();
        let moves = self.sockets.moves_end.is_some();
        if !self.sockets.deals || moves || indices.is_empty() || !turn.is_multiple_of(13) {
            return;
        }
        let turn = turn / 13;
        let index = indices[turn as usize % indices.len()];
        let connection = self.connections.get(index).expect("it is there");
        match connection.transport {
            AnyFrontend::Relay(_) => self.begin_return(index),
            _ => self.begin_move(ctx, index, turn / 7 % self.sockets.loops.len() as u32),
        }
    }

    fn take_message(&mut self, ctx: &mut FrontendContext<'_>, at: usize, message: ToDevice) {
        match message {
            ToDevice::Request { place, .. }
            | ToDevice::Rejected { place, .. }
            | ToDevice::Arrived { place, .. }
            | ToDevice::Left { place }
            | ToDevice::Broken { place, .. }
            | ToDevice::Lost { place, .. } => {
                let index = self.sockets.at_place(at, place);
                self.relay(index).take(message);
                self.turns.make_ready(index);
            }
            ToDevice::Ended { slot, sent } => self.reply_ended(ctx, slot, sent),
            ToDevice::Delayed { place, delay } => {
                let index = self.sockets.at_place(at, place);
                self.relay(index).set_delay(delay);
            }
            ToDevice::Closed { place } => {
                let index = self.sockets.leave_place(at, place);
                self.relay(index).set_closed();
                // Gone already, unless the socket loop had no room for it.
                self.close(ctx, index);
            }
            ToDevice::Moved { place, moving } => {
                let index = self.sockets.leave_place(at, place);
                self.take_back(ctx, index, *moving);
            }
        }
    }

    fn relay(&mut self, index: u32) -> &mut relay::Connection {
        let connection = self.connections.get(index).expect("it is there");
        match &mut connection.transport {
            AnyFrontend::Relay(relay) => relay,
            _ => panic!("a message of a connection that is not in a socket loop"),
        }
    }

    /// Takes a slot back with which a socket loop has done.
    fn reply_ended(&mut self, ctx: &mut FrontendContext<'_>, slot: u32, sent: Option<Nanos>) {
        let entry = ctx.parts.requests.get(slot);
        // A write whose payload never came still has its claim, and was not answered.
        let (owner, answered) = (entry.owner, !entry.claimed);
        ctx.parts.requests.end(std::iter::once(slot), sent);
        let Some(Connection {
            state,
            transport: AnyFrontend::Relay(relay),
            ..
        }) = self.connections.resolve(owner)
        else {
            return;
        };
        if answered && *state != State::Gone {
            relay.reply_ended();
            if *state == State::Leaving {
                self.turns.touch(owner.index);
            }
        }
    }

    /// Has a connection served by the socket loop `to` as soon as nothing of it is under way here,
    /// if that is within [`MOVE_TIMEOUT`]. Does nothing if the connection waits for its VM's
    /// budgets, ends or is in a socket loop.
    fn begin_move(&mut self, ctx: &mut FrontendContext<'_>, index: u32, to: u32) {
        let connection = self.connections.get(index).expect("it is there");
        let is_here = matches!(connection.transport, AnyFrontend::Nbd(_));
        let waits = connection.stall.is_some() || connection.held.is_some();
        if is_here && !waits && connection.state == State::Open {
            connection.state = State::Moving { to };
            self.sockets.moves_end = Some(ctx.parts.now + MOVE_TIMEOUT);
            self.advance_state(ctx, index);
        }
    }

    /// Moves a connection to a socket loop. It must be quiet and at rest.
    pub(super) fn move_to(&mut self, ctx: &mut FrontendContext<'_>, index: u32, to: u32) {
        let at = to as usize;
        let generation = self.connections.renew(index);
        let connection_ref = ConnectionRef { index, generation };
        let connection = self.connections.get(index).expect("it is there");
        connection.state = State::Open;
        let mut places = self.sockets.loops[at].places.iter();
        let Some(place) = places.position(Option::is_none) else {
            return self.turns.make_ready(index);
        };
        let link = self.sockets.loops[at].link.clone();
        let nothing = AnyFrontend::Relay(relay::Connection::new(link, place as u32, None));
        let AnyFrontend::Nbd(transport) = mem::replace(&mut connection.transport, nothing) else {
            panic!("a connection moves that has no socket here");
        };
        let (mut moving, payload) = transport.take_out(&mut Port {
            ring: ctx.parts.ring,
            requests: ctx.parts.requests,
            plumbing: ctx.parts.plumbing,
            now: ctx.parts.now,
            connection_ref,
            stalled: false,
        });
        moving.write = payload.map(|(slot, filled)| {
            let entry = ctx.parts.requests.get_mut(slot);
            entry.owner = connection_ref;
            let (request, len) = (entry.incoming(), entry.len as usize);
            let memory = ctx.parts.requests.buffer(slot);
            nbd::MovingWrite {
                slot,
                memory: memory.expect("a write has a buffer").slice(0, len),
                request,
                filled,
            }
        });
        let disk = connection.disk;
        let opened = Opened {
            moving,
            longest: longest_pause(ctx.objective(disk)),
        };
        let relay = self.sockets.hand_over((at, place), connection_ref, opened);
        connection.transport = AnyFrontend::Relay(relay);
    }

    /// Returns the time at which [`Frontends::end_moves`] is due.
    #[inline]
    pub(in crate::event_loop) fn moves_end(&self) -> Option<Nanos> {
        self.sockets.moves_end
    }

    /// Serves connections on that could not be moved in time.
    #[inline]
    pub(in crate::event_loop) fn end_moves(&mut self, now: Nanos) {
        if self.sockets.moves_end.is_none_or(|end| end > now) {
            return;
        }
        self.sockets.moves_end = None;
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if matches!(connection.state, State::Moving { .. }) {
                connection.state = State::Open;
                self.turns.make_ready(index);
                self.turns.touch(index);
            }
        }
    }

    /// Serves a connection here that a socket loop has given back.
    fn take_back(&mut self, ctx: &mut FrontendContext<'_>, index: u32, mut moving: nbd::Moving) {
        let generation = self.connections.renew(index);
        let connection_ref = ConnectionRef { index, generation };
        let connection = self.connections.get(index).expect("it is there");
        let write = moving.write.take();
        if let Some(write) = &write {
            let entry = ctx.parts.requests.get_mut(write.slot);
            (entry.token, entry.owner) = (write.request.token, connection_ref);
        }
        if connection.state == State::Gone {
            // It was shut down on its way, and the socket closes with what moves.
            let slot = write.map(|write| write.slot);
            ctx.parts.requests.end(slot.into_iter(), None);
            self.relay(index).set_closed();
            return self.advance_state(ctx, index);
        }
        let payload = write.map(|write| (write.slot, write.filled));
        let mut port = Port {
            ring: ctx.parts.ring,
            requests: ctx.parts.requests,
            plumbing: ctx.parts.plumbing,
            now: ctx.parts.now,
            connection_ref,
            stalled: false,
        };
        match nbd::Connection::resume(moving, payload, &mut port) {
            Ok(transport) => {
                connection.transport = AnyFrontend::Nbd(transport);
                self.turns.make_ready(index);
                self.turns.touch(index);
            }
            Err(error) => {
                let slot = payload.map(|(slot, _)| slot);
                ctx.parts.requests.end(slot.into_iter(), None);
                super::log_refusal("", &connection.peer, &error);
                self.relay(index).set_closed();
                self.close(ctx, index);
            }
        }
    }
}
