//! Backing on an NBD server.
//!
//! ```text
//!   event loop                  connector thread            server
//!   Export: what to send -----> Wires: ring operations ---> replies
//!     ^  cut, connected          |  broken                    |
//!     +--- handle_timeout <--- connect, handshake <-----------+
//! ```
//!
//! [`Export`] decides what is sent and what a cut means, so that no acknowledged change is lost;
//! a [`Wire`](wire::Wire) for each connection moves the bytes, and a thread of its own makes
//! connections ([`Connector`]). While the server is away requests wait; before the disk is removed
//! or the daemon ends they fail instead ([`Backing::begin_close`]).

mod claim;
mod connections;
mod connector;
mod memory;
#[cfg(test)]
pub(crate) mod peer;
mod terms;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tidegate_core::request::{DeviceIo, IoError, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_nbd::NbdError;
use tidegate_nbd::client::recovery::{Ask, Change, Export, Failure, Operation as ExportOperation};

use super::OpenError;
use super::error_state::ErrorState;
use super::interface::{Backing, Operation, Port, Reports, ResizeWork};
use crate::buffer::Mem;
use crate::config::{DiskConfig, NbdConfig};
use crate::log_limit::SERVER_LOST;
use crate::ring::{Completion, Ring};

use claim::Claim;
use connections::Connections;
pub use connector::ConnectError;
use connector::{Arrivals, Connected, Connector, Spare};
use memory::Buffers;
use terms::Needs;
use wire::Broken;

/// Events of a disk's connection: a send, or a receive, has completed.
const SENT: u8 = 0;
const RECEIVED: u8 = 1;
/// Shortest and longest time between two attempts to connect.
const DELAY_MIN: Nanos = Nanos::from_millis(10);
const DELAY_MAX: Nanos = Nanos::from_millis(1000);
/// Requests that succeed on a connection to a server that works: the next one is made at once.
const WORKS_FROM: u32 = 4;
/// Time for which the end of a disk waits for a server that is away.
const CLOSE_GRACE: Nanos = Nanos::from_millis(1000);
/// Time for which the end of a disk waits for a server that is connected and does not answer: most
/// of the daemon's `stop_timeout`, because the last flush may take long.
const CLOSE_TIMEOUT: Nanos = Nanos::from_millis(45_000);

/// Connections of a disk, or what is done about them.
#[derive(Debug)]
enum Link {
    /// Connected when the disk was opened, and not in the ring yet.
    Opened(Connected),
    /// In the ring.
    Up(Connections),
    /// Left the ring, for good, between two requests.
    Detached(Vec<Spare>),
    /// No connection, and none is needed.
    Idle,
    /// The connector is at work.
    Connecting,
    /// The next attempt is due at this time.
    Waiting(Nanos),
}

/// Disk on an NBD server.
#[derive(Debug)]
pub(crate) struct NbdBacking {
    /// URI of the export.
    name: String,
    needs: Needs,
    export: Export,
    buffers: Buffers,
    link: Link,
    /// Number of connections that were last made together.
    connections: usize,
    /// Connections that were broken off. They must be over before the next ones begin, or another
    /// disk may have the export.
    broken: Vec<Spare>,
    /// Reason why the last attempt to connect failed; `None` while there is a connection.
    unreachable: Option<String>,
    connector: Connector,
    errors: ErrorState,
    /// Time to wait before the next attempt to connect; 0 after a connection that worked.
    delay: Nanos,
    /// Loop time since which the server has not answered on a connection that was lost, or to
    /// attempts to connect.
    away_since: Option<Nanos>,
    /// Loop time of the last answer.
    answered: Nanos,
    /// A call of [`Backing::send`] is requested.
    sends: bool,
    /// Loop time at which the end of the disk began.
    closing: Option<Nanos>,
    /// Requests that have succeeded on the present connection.
    succeeded: u32,
    /// The memory of a request is gone: requests end once the connection is broken off.
    memory_is_gone: bool,
    _claim: Option<Claim>,
}

/// I/Os on the servers of a device's disks.
#[derive(Debug)]
pub(crate) struct NbdIos {
    /// Memory of the I/Os in flight, by index.
    ranges: Vec<Vec<Mem>>,
    arrivals: Arc<Arrivals>,
}

impl NbdIos {
    /// Creates room for `io_slots` I/Os at a time.
    pub(crate) fn new(io_slots: u32) -> NbdIos {
        NbdIos {
            ranges: vec![Vec::new(); io_slots as usize],
            arrivals: Arc::default(),
        }
    }

    /// Has the disks called for which a connector has a result.
    pub(crate) fn collect(&mut self, reports: &mut Reports) {
        for disk in self.arrivals.take() {
            reports.call_soon(disk);
        }
    }

    fn ranges(&self, index: u32) -> &[Mem] {
        &self.ranges[index as usize]
    }
}

impl NbdBacking {
    /// Connects to the export of a disk. Blocks; must not be called on an event loop.
    ///
    /// # Errors
    /// Fails if no server is there, or the export is not what the disk needs.
    pub(crate) fn open(config: &DiskConfig, nbd: &NbdConfig) -> Result<NbdBacking, OpenError> {
        let uri = nbd.uri.to_string();
        let unfit = |what: String| OpenError::Export {
            uri: uri.clone(),
            what,
        };
        let checked = nbd.check_paths(config);
        checked.map_err(|(path, source)| OpenError::NotAllowed { path, source })?;
        let claim = if config.read_only {
            None
        } else {
            let other = || unfit("another disk of this daemon has it, and writes to it".to_owned());
            Some(Claim::new(&nbd.uri).ok_or_else(other)?)
        };
        let connected =
            connector::connect(nbd, usize::MAX).map_err(|source| OpenError::Server {
                uri: uri.clone(),
                source: Box::new(source),
            })?;
        let needs = Needs::new(config, &connected.negotiated).map_err(unfit)?;
        let connections = connected.sockets.len();
        connected.log_fewer(&uri);
        let buffers = Buffers::new(nbd.unflushed, nbd.connections as usize).map_err(|source| {
            OpenError::Memory {
                size: nbd.unflushed,
                source,
            }
        })?;
        let no_thread = |source| OpenError::Server {
            uri: uri.clone(),
            source: Box::new(ConnectError::Io(source)),
        };
        Ok(NbdBacking {
            needs,
            export: Export::new(nbd.unflushed),
            buffers,
            link: Link::Opened(connected),
            connections,
            broken: Vec::new(),
            unreachable: None,
            connector: Connector::start(nbd.clone()).map_err(no_thread)?,
            errors: ErrorState::new(uri.clone()),
            delay: Nanos::ZERO,
            away_since: None,
            answered: Nanos::ZERO,
            sends: false,
            closing: None,
            succeeded: 0,
            memory_is_gone: false,
            _claim: claim,
            name: uri,
        })
    }

    /// Returns the size of the disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.needs.size
    }

    /// Goes on with whatever there is to do.
    fn advance(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        self.take_ended(ios, port);
        self.flush_at_end();
        match &mut self.link {
            Link::Up(all) => {
                all.exchange(&mut self.export, &self.buffers, ios, port);
                // Filling a batch may have ended some, and the last one.
                self.take_ended(ios, port);
                if self.flush_at_end()
                    && let Link::Up(all) = &mut self.link
                {
                    all.exchange(&mut self.export, &self.buffers, ios, port);
                }
            }
            Link::Opened(_) | Link::Detached(_) => {}
            Link::Idle | Link::Connecting | Link::Waiting(_) => self.seek_connection(ios, port),
        }
    }

    /// Asks for the last flush, if the disk ends and nothing else is under way.
    fn flush_at_end(&mut self) -> bool {
        let ends = self.closing.is_some() && self.export.is_idle();
        if ends {
            self.export.flush_log();
        }
        ends
    }

    /// Connects if something waits for that, or gives up.
    fn seek_connection(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        if !self.export.is_busy() {
            return;
        }
        if let Some(closing) = self.closing {
            let due = self.away_since.map_or(closing, |away| away.max(closing)) + CLOSE_GRACE;
            if port.now >= due {
                return self.give_up(ios, port, "the server is away");
            }
            port.wake_at(due);
        }
        match self.link {
            Link::Waiting(until) if port.now < until => {}
            Link::Idle | Link::Waiting(_) => {
                let before = std::mem::take(&mut self.broken);
                // The last flush has little time, and needs no more than one.
                let most = if self.closing.is_some() {
                    1
                } else {
                    usize::MAX
                };
                self.connector
                    .order(before, most, port.disk, &ios.arrivals, port.wake);
                self.link = Link::Connecting;
            }
            _ => {}
        }
    }

    /// Ends all requests with errors, now and later. There is no connection.
    fn give_up(&mut self, ios: &mut NbdIos, port: &mut Port<'_>, why: &str) {
        self.export.give_up();
        if self.export.unflushed() > 0 {
            let lost = unflushed_changes(self.export.unflushed());
            let why = format!("{lost} may be lost: {why}");
            if self.errors.failed.is_some() {
                tracing::error!(server = %self.name, "{why}");
            } else {
                self.errors.fail_with(why);
            }
        }
        self.take_ended(ios, port);
    }

    /// Reports the requests that have ended.
    fn take_ended(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        while let Some((index, result)) = self.export.poll_ended() {
            ios.ranges[index as usize].clear();
            self.succeeded = self.succeeded.saturating_add(u32::from(result.is_ok()));
            let outcome = result.map_err(|error| self.io_error(error));
            port.end_io(index, outcome);
        }
        match self.export.failure() {
            Some(Failure::Flush(error)) => self.errors.fail(error.code() as i32, "flush"),
            Some(Failure::Replay(error)) => {
                let what = "sending acknowledged writes again after a reconnect";
                self.errors.fail(error.code() as i32, what);
            }
            Some(Failure::GivenUp) | None => {}
        }
    }

    fn io_error(&mut self, error: NbdError) -> IoError {
        if self.export.failure().is_none() {
            self.errors.warn(error.code() as i32, "request");
        }
        match error {
            NbdError::Enospc => IoError::NoSpace,
            NbdError::Eperm => IoError::ReadOnly,
            NbdError::Enotsup => IoError::Unsupported,
            _ => IoError::Io,
        }
    }

    /// Breaks a connection off, and with it all of them. Once the kernel works on no memory of any,
    /// the next ones are sought.
    fn break_off(&mut self, ios: &mut NbdIos, port: &mut Port<'_>, on: usize, why: &Broken) {
        let Link::Up(all) = &mut self.link else {
            return;
        };
        self.memory_is_gone |= matches!(why, Broken::Failed(libc::EFAULT));
        if all.break_one(on, why, &mut self.export, port) && SERVER_LOST.allows(Instant::now()) {
            tracing::warn!(server = %self.name, "lost the connection: {why}");
        }
        self.end_connections(ios, port);
    }

    /// Forgets broken connections, once they have ended.
    fn end_connections(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        let Link::Up(all) = &mut self.link else {
            return;
        };
        if !all.have_ended(&self.export, port) {
            return;
        }
        // Others get a pause that grows: what is sent again on each connection may be much.
        if self.succeeded >= WORKS_FROM {
            self.delay = Nanos::ZERO;
        }
        if let Link::Up(all) = std::mem::replace(&mut self.link, Link::Idle) {
            self.broken.extend(all.remove(port.ring));
        }
        self.export.cut();
        self.away_since.get_or_insert(port.now);
        if std::mem::take(&mut self.memory_is_gone) {
            // Sent again, they would break off each connection.
            self.export.end_requests();
        }
        self.schedule_attempt(port);
        self.advance(ios, port);
    }

    /// Has the next attempt to connect made after the delay, which grows.
    fn schedule_attempt(&mut self, port: &mut Port<'_>) {
        if self.delay == Nanos::ZERO {
            self.link = Link::Idle;
        } else {
            let due = port.now + self.delay;
            self.link = Link::Waiting(due);
            port.wake_at(due);
        }
        self.delay = Nanos(self.delay.0.saturating_mul(2)).clamp(DELAY_MIN, DELAY_MAX);
    }

    /// Takes a connection, or the reason why there is none.
    fn take_result(
        &mut self,
        ios: &mut NbdIos,
        port: &mut Port<'_>,
        result: Result<Connected, ConnectError>,
    ) {
        if self.export.failure().is_some() {
            self.link = Link::Idle;
            return;
        }
        let connected = match result {
            Ok(connected) => connected,
            Err(error @ ConnectError::Loop(_)) => {
                return self.fail(ios, port, format!("after a reconnect: {error}"));
            }
            Err(error) => {
                if self.away_since.is_none() || self.delay < DELAY_MAX {
                    self.log_away(&error.to_string());
                }
                self.unreachable = Some(error.to_string());
                self.away_since.get_or_insert(port.now);
                // Not at once, as after a cut.
                self.delay = self.delay.max(DELAY_MIN);
                return self.schedule_attempt(port);
            }
        };
        let terms = match self.needs.check(&connected.negotiated) {
            Ok(terms) => terms,
            Err(why) => return self.fail(ios, port, format!("after a reconnect: {why}")),
        };
        if connected.sockets.len() != self.connections && SERVER_LOST.allows(Instant::now()) {
            connected.log_fewer(&self.name);
        }
        self.connections = connected.sockets.len();
        let count = match Connections::add(port.ring, connected.sockets) {
            Ok(all) => {
                let count = all.len();
                self.link = Link::Up(all);
                self.unreachable = None;
                self.succeeded = 0;
                self.answered = port.now;
                count
            }
            Err(error) => {
                self.log_away(&format!("no room for its socket: {error}"));
                return self.schedule_attempt(port);
            }
        };
        self.export.connected(terms, count);
    }

    /// Notes that the server has answered.
    fn note_answer(&mut self, now: Nanos) {
        self.answered = now;
        // Out of the way of requests: only after a reconnect.
        if let Some(since) = self.away_since.take()
            && SERVER_LOST.allows(Instant::now())
        {
            let away_ms = now.since(since).0 / 1_000_000;
            tracing::info!(server = %self.name, away_ms, "connected again");
        }
    }

    fn log_away(&self, why: &str) {
        if SERVER_LOST.allows(Instant::now()) {
            let server = &self.name;
            tracing::warn!(%server, "{why}; requests wait until it succeeds");
        }
    }

    /// Fails the disk for good. There is no connection.
    fn fail(&mut self, ios: &mut NbdIos, port: &mut Port<'_>, why: String) {
        self.errors.fail_with(why);
        self.link = Link::Idle;
        self.give_up(ios, port, "the disk has failed");
    }

    /// Breaks off a connection on which the end of the disk has waited for an answer for too long.
    fn end_if_late(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        let Some(closing) = self.closing else { return };
        let due = closing.max(self.answered) + CLOSE_TIMEOUT;
        if port.now < due {
            port.wake_at(due);
        } else if self.export.is_busy() {
            self.break_off(ios, port, 0, &Broken::Late);
        } else {
            port.wake_at(port.now + CLOSE_TIMEOUT);
        }
    }
}

/// Returns a number of acknowledged changes in words.
fn unflushed_changes(count: usize) -> String {
    match count {
        1 => "1 acknowledged change that was not flushed".to_owned(),
        count => format!("{count} acknowledged changes that were not flushed"),
    }
}

impl Backing for NbdBacking {
    type Shared = NbdIos;

    fn submit(
        &mut self,
        ios: &mut NbdIos,
        port: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome> {
        let operation = match io.op {
            Op::Read => ExportOperation::Read,
            Op::Write => ExportOperation::Change(Change::Write),
            Op::WriteZeroes => ExportOperation::Change(Change::Zeroes {
                no_hole: io.keep_allocated,
            }),
            Op::Discard => ExportOperation::Change(Change::Trim),
            Op::Flush => ExportOperation::Flush,
        };
        let tag = io.id.index() as u32;
        let memory = &mut ios.ranges[tag as usize];
        memory.clear();
        memory.extend(ranges);
        if self.closing.is_some() && !self.export.is_busy() {
            // The server owes nothing until now.
            self.answered = port.now;
        }
        self.export.submit(Ask {
            tag,
            operation,
            offset: if operation == ExportOperation::Flush {
                0
            } else {
                io.offset
            },
            len: io.len,
            fua: io.fua,
        });
        if !std::mem::replace(&mut self.sends, true) {
            port.send_later();
        }
        None
    }

    fn handle(
        &mut self,
        ios: &mut NbdIos,
        port: &mut Port<'_>,
        operation: Operation,
        completion: Completion,
    ) {
        let Operation::Own { event, .. } = operation else {
            unreachable!("all operations are the connection's");
        };
        let Link::Up(all) = &mut self.link else {
            unreachable!("a connection stays until its operations have ended");
        };
        let (on, event) = (usize::from(event >> 1), event & 1);
        let wire = all.wire(on);
        let done = match event {
            SENT => wire.sent(&mut self.export, completion.result),
            _ => wire.received(&mut self.export, &self.buffers, ios, completion.result),
        };
        if event == RECEIVED && done.is_ok() && !wire.broken {
            self.note_answer(port.now);
        }
        match done {
            Err(why) => self.break_off(ios, port, on, &why),
            Ok(()) => {
                self.advance(ios, port);
                self.end_connections(ios, port);
            }
        }
    }

    fn send(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        self.sends = false;
        self.advance(ios, port);
    }

    fn handle_timeout(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        if matches!(self.link, Link::Connecting)
            && let Some(result) = self.connector.result()
        {
            self.take_result(ios, port, result);
        }
        self.end_if_late(ios, port);
        self.end_connections(ios, port);
        self.advance(ios, port);
    }

    fn begin_close(&mut self, ios: &mut NbdIos, port: &mut Port<'_>) {
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(port.now);
        self.end_if_late(ios, port);
        self.advance(ios, port);
    }

    fn attach(&mut self, ring: &mut Ring) -> io::Result<()> {
        match std::mem::replace(&mut self.link, Link::Idle) {
            Link::Opened(Connected {
                sockets,
                negotiated,
                ..
            }) => {
                let all = Connections::add(ring, sockets)?;
                let count = all.len();
                self.link = Link::Up(all);
                let terms = self.needs.check(&negotiated).map_err(io::Error::other)?;
                self.export.connected(terms, count);
            }
            other => self.link = other,
        }
        Ok(())
    }

    fn detach(&mut self, ring: &mut Ring) {
        self.link = match std::mem::replace(&mut self.link, Link::Idle) {
            Link::Up(all) => {
                let are_whole = all.are_between_requests();
                let spares = all.remove(ring);
                if are_whole {
                    Link::Detached(spares)
                } else {
                    self.broken.extend(spares);
                    Link::Idle
                }
            }
            _ => Link::Idle,
        };
    }

    fn is_at_rest(&self) -> bool {
        let rests = match &self.link {
            Link::Up(all) => all.are_at_rest(),
            _ => true,
        };
        // The end of the disk flushes what was acknowledged, or gives up.
        let is_flushed = || self.export.unflushed() == 0 || self.export.failure().is_some();
        rests && (self.closing.is_none() || (is_flushed() && !self.export.is_busy()))
    }

    fn sync(&self) -> io::Result<()> {
        match (&self.errors.failed, self.export.unflushed()) {
            (Some(why), _) => Err(io::Error::other(why.clone())),
            (None, 0) => Ok(()),
            (None, count) => {
                let what = unflushed_changes(count);
                Err(io::Error::other(format!("{what} may be lost")))
            }
        }
    }

    fn sync_failed(&mut self, error: &io::Error) {
        self.errors.fail_with(format!("last flush failed: {error}"));
    }

    fn zeroes_fast(&self, _: bool) -> bool {
        self.needs.can_zero()
    }

    fn failure(&self) -> Option<String> {
        self.errors.failed.clone()
    }

    fn no_space(&self) -> Option<String> {
        self.errors.no_space()
    }

    fn unreachable(&self) -> Option<String> {
        let why = self.unreachable.as_ref()?;
        Some(format!("its server cannot be reached: {why}"))
    }

    fn resize_work(&self, _: u64) -> Result<ResizeWork, String> {
        Err(
            "its server decides on the size of its export: resize it there, then remove and add \
             the disk"
                .to_owned(),
        )
    }

    fn resize(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for NbdBacking {
    /// Ends the connections. The next client of the export must not find its writes overtaken by
    /// those of a connection that was broken off.
    fn drop(&mut self) {
        self.broken.drain(..).for_each(Spare::cut);
        match std::mem::replace(&mut self.link, Link::Idle) {
            Link::Opened(Connected { sockets, .. }) => {
                for (socket, spare) in sockets {
                    drop(socket);
                    spare.take_leave();
                }
            }
            Link::Up(all) => {
                let are_whole = all.are_between_requests();
                let end = if are_whole {
                    Spare::take_leave
                } else {
                    Spare::cut
                };
                all.into_spares().into_iter().for_each(end);
            }
            Link::Detached(spares) => spares.into_iter().for_each(Spare::take_leave),
            _ => {}
        }
    }
}
