//! Guests: NBD clients that issue the requests of workloads to a disk that a daemon serves, as the
//! simulator does to a simulated one.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_nbd::client::{self, Decoded, Handshake, Negotiated, Progress, Reply, Wishes};
use tidegate_nbd::{Command, Request};
use tidegate_workload::issuer::{Issuer, Step};
use tidegate_workload::source::Source;
use tidegate_workload::spec::Workload;
use tidegate_workload::stream::Io;

/// Measurements of a guest since the last [`Guest::restart`].
#[derive(Clone, Debug)]
pub(crate) struct Measurements {
    /// Number of replies.
    pub(crate) ops: u64,
    /// Bytes of the answered requests.
    pub(crate) bytes: u64,
    /// Time from the intended start of a request to the last byte of its reply, in microseconds.
    pub(crate) latency_us: Histogram<u64>,
    /// Duration of the measurement.
    pub(crate) took: Duration,
}

impl Measurements {
    /// Returns the replies per second.
    pub(crate) fn iops(&self) -> f64 {
        self.ops as f64 / self.seconds()
    }

    /// Returns the bytes per second of the answered requests.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds()
    }

    fn seconds(&self) -> f64 {
        // Just after a restart no time has passed, and rates would be NaN.
        self.took.as_secs_f64().max(1e-9)
    }
}

/// Largest latency recorded, in microseconds: ten minutes, longer than any measurement.
const LATENCY_US_MAX: u64 = 600_000_000;
/// Bytes that are received at a time.
const RECEIVE_BYTES: usize = 256 << 10;
/// Byte that written data consists of.
const PAYLOAD: u8 = 0x5a;

struct Tally {
    since: Instant,
    ops: u64,
    bytes: u64,
    latency_us: Histogram<u64>,
    /// Latencies since the last call of [`Guest::take_recent_p99`].
    recent_us: Histogram<u64>,
    failed: Option<String>,
}

/// Running guest.
pub(crate) struct Guest {
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
    socket: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    /// Connects to an export and starts all copies of the workloads. The requests that they draw
    /// depend on `seed` alone.
    ///
    /// # Errors
    /// If the socket or the export does not exist, or a workload does not fit the export.
    pub(crate) fn start(
        socket: &Path,
        export: &str,
        workloads: &[Workload],
        seed: u64,
    ) -> Result<Guest> {
        let mut stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        let negotiated = negotiate(&mut stream, export)?;
        let copies = copies(workloads, &negotiated, seed)
            .with_context(|| format!("export {export} is too small"))?;
        stream.set_nonblocking(true)?;
        let tally = Arc::new(Mutex::new(Tally::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let connection = Connection::new(stream.try_clone()?, copies);
        let (its_tally, its_stop) = (tally.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let result = connection.run(&its_tally);
            // Stopping shuts down the socket under the connection, which is no failure.
            if let Err(error) = result
                && !its_stop.load(Ordering::Relaxed)
            {
                lock(&its_tally).failed = Some(error.to_string());
            }
        });
        Ok(Guest {
            tally,
            stop,
            socket: stream,
            thread: Some(thread),
        })
    }

    /// Discards all measurements so far.
    pub(crate) fn restart(&self) {
        let mut tally = lock(&self.tally);
        *tally = Tally {
            failed: tally.failed.take(),
            ..Tally::new()
        };
    }

    /// Returns the 99th percentile of latencies since the last call, in nanoseconds; `None` if
    /// there were no replies.
    pub(crate) fn take_recent_p99(&self) -> Option<f64> {
        let recent = &mut lock(&self.tally).recent_us;
        let p99_us = (!recent.is_empty()).then(|| recent.value_at_quantile(0.99));
        recent.reset();
        // Microseconds to nanoseconds.
        p99_us.map(|us| us as f64 * 1e3)
    }

    /// Returns the measurements since the last restart.
    ///
    /// # Errors
    /// If the connection failed or a reply had an error.
    pub(crate) fn measurements(&self) -> Result<Measurements> {
        let tally = lock(&self.tally);
        if let Some(failed) = &tally.failed {
            bail!("a guest's connection failed: {failed}");
        }
        Ok(Measurements {
            ops: tally.ops,
            bytes: tally.bytes,
            latency_us: tally.latency_us.clone(),
            took: tally.since.elapsed(),
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, which then ends.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Tally {
    fn new() -> Tally {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("valid bounds");
        Tally {
            since: Instant::now(),
            ops: 0,
            bytes: 0,
            latency_us: histogram(),
            recent_us: histogram(),
            failed: None,
        }
    }

    fn count(&mut self, len: u32, latency: Nanos) {
        self.ops += 1;
        self.bytes += u64::from(len);
        // Nanoseconds to microseconds. A latency beyond the largest bucket counts in that one
        // instead of being lost.
        let us = latency.0 / 1000;
        self.latency_us.saturating_record(us);
        self.recent_us.saturating_record(us);
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally
        .lock()
        .expect("no thread panics while it holds the tally")
}

/// One copy of a workload.
struct WorkloadCopy {
    workload: Arc<Workload>,
    issuer: Issuer,
}

/// Creates all copies of the workloads for an export.
///
/// # Errors
/// If a copy's region does not fit the export.
fn copies(
    workloads: &[Workload],
    export: &Negotiated,
    seed: u64,
) -> Result<Vec<WorkloadCopy>, tidegate_workload::spec::RegionError> {
    let mut seeds = Pcg64Mcg::seed_from_u64(seed);
    let mut copies = Vec::new();
    for workload in workloads {
        let workload = Arc::new(workload.clone());
        for copy in 0..workload.numjobs {
            let source = Source::new(&workload, copy, export.size, export.block.minimum())?;
            let issuer = Issuer::new(&workload, source, Pcg64Mcg::from_rng(&mut seeds));
            copies.push(WorkloadCopy {
                workload: workload.clone(),
                issuer,
            });
        }
    }
    Ok(copies)
}

/// Timer of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// The workload begins.
    Start,
    /// A pause is over, or the next request comes.
    WakeUp,
    /// The workload's time is over.
    Stop,
}

/// Request that is not answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Index of its copy.
    copy: usize,
    op: Op,
    len: u32,
    /// Time since which it has been wanted.
    since: Nanos,
}

/// Connection of a guest, on a thread of its own. All times count from `epoch`.
struct Connection {
    stream: UnixStream,
    epoch: Instant,
    copies: Vec<WorkloadCopy>,
    timers: BTreeSet<(Nanos, usize, Timer)>,
    /// Requests that are not answered, by their cookies, and cookies that are free.
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// Bytes to be sent, of which the first `sent` have been.
    output: Vec<u8>,
    sent: usize,
    /// Data of the longest write so far.
    payload: Vec<u8>,
    /// Received bytes that are not handled: the first `received` of the buffer.
    input: Vec<u8>,
    received: usize,
    /// Cookie of the last reply, and the bytes of its read data that are still to come.
    data: Option<(u64, usize)>,
}

impl Connection {
    fn new(stream: UnixStream, copies: Vec<WorkloadCopy>) -> Connection {
        let mut timers = BTreeSet::new();
        for (i, copy) in copies.iter().enumerate() {
            let (start, stop) = copy.issuer.span();
            timers.insert((start, i, Timer::Start));
            timers.extend(stop.map(|stop| (stop, i, Timer::Stop)));
        }
        Connection {
            stream,
            epoch: Instant::now(),
            copies,
            timers,
            pending: Vec::new(),
            free: Vec::new(),
            output: Vec::new(),
            sent: 0,
            payload: Vec::new(),
            input: vec![0; RECEIVE_BYTES],
            received: 0,
            data: None,
        }
    }

    fn now(&self) -> Nanos {
        // A guest runs for less than the 584 years that fit.
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Issues requests and takes replies until the connection ends.
    ///
    /// # Errors
    /// Always in the end: the connection ends, or a reply is malformed or has an error.
    fn run(mut self, tally: &Mutex<Tally>) -> Result<()> {
        loop {
            self.fire_timers();
            self.send()?;
            if self.wait()? {
                self.receive(tally)?;
            }
        }
    }

    /// Handles the timers that are due.
    fn fire_timers(&mut self) {
        let now = self.now();
        while let Some(&timer) = self.timers.first()
            && timer.0 <= now
        {
            self.timers.remove(&timer);
            let (_, copy, kind) = timer;
            let WorkloadCopy { workload, issuer } = &mut self.copies[copy];
            match kind {
                Timer::Start => issuer.start(now, workload),
                Timer::WakeUp => issuer.woken(),
                Timer::Stop => issuer.stop(),
            }
            self.advance(copy, now);
        }
    }

    /// Issues the requests that a copy can issue now, and plans its next ones.
    fn advance(&mut self, copy: usize, now: Nanos) {
        loop {
            match self.copies[copy].issuer.step(now) {
                Step::Issue(io, since) => self.issue(copy, io, since),
                Step::At(at) => {
                    self.timers.insert((at, copy, Timer::WakeUp));
                    return;
                }
                Step::Wait => return,
            }
        }
    }

    /// Puts a request into the output.
    fn issue(&mut self, copy: usize, io: Io, since: Nanos) {
        let pending = Some(Pending {
            copy,
            op: io.op,
            len: io.len,
            since,
        });
        let cookie = match self.free.pop() {
            Some(cookie) => {
                self.pending[cookie] = pending;
                cookie
            }
            None => {
                self.pending.push(pending);
                self.pending.len() - 1
            }
        };
        let request = Request {
            cookie: cookie as u64,
            command: match io.op {
                Op::Read => Command::Read { df: false },
                Op::Write => Command::Write,
                Op::Flush => Command::Flush,
                Op::Discard => Command::Trim,
                Op::WriteZeroes => Command::WriteZeroes {
                    no_hole: false,
                    fast_zero: false,
                },
            },
            fua: io.fua,
            offset: io.offset,
            len: io.len,
        };
        self.output
            .extend_from_slice(&client::encode_request(&request));
        if io.op == Op::Write {
            let len = io.len as usize;
            if self.payload.len() < len {
                self.payload.resize(len, PAYLOAD);
            }
            self.output.extend_from_slice(&self.payload[..len]);
        }
    }

    /// Sends as much of the output as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Waits until something can be done. Returns true if there is something to receive.
    fn wait(&self) -> io::Result<bool> {
        let mut flags = PollFlags::IN;
        if !self.output.is_empty() {
            flags |= PollFlags::OUT;
        }
        let left = self.timers.first().map(|(at, ..)| at.since(self.now()));
        let timeout = left.map(|left| Timespec {
            // Nanoseconds to seconds; both parts fit.
            tv_sec: (left.0 / 1_000_000_000) as i64,
            tv_nsec: (left.0 % 1_000_000_000) as i64,
        });
        let mut descriptors = [PollFd::new(&self.stream, flags)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let found = descriptors[0].revents();
        Ok(found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }

    /// Receives what there is and handles all replies that are complete.
    fn receive(&mut self, tally: &Mutex<Tally>) -> Result<()> {
        match self.stream.read(&mut self.input[self.received..]) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(n) => self.received += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        loop {
            if let Some((cookie, left)) = self.data {
                let here = left.min(self.received - at);
                at += here;
                if here < left {
                    self.data = Some((cookie, left - here));
                    break;
                }
                self.data = None;
                self.end(cookie, tally)?;
                continue;
            }
            let Some((used, cookie)) = reply_head(&self.input[at..self.received])? else {
                break;
            };
            at += used;
            let pending = self.pending(cookie)?;
            let carried = match pending.op {
                Op::Read => pending.len as usize,
                _ => 0,
            };
            self.data = Some((cookie, carried));
        }
        // The rest is the beginning of a reply whose other bytes have not arrived yet.
        self.input.copy_within(at..self.received, 0);
        self.received -= at;
        Ok(())
    }

    /// Returns the request that a reply is for.
    fn pending(&self, cookie: u64) -> Result<Pending> {
        let slot = usize::try_from(cookie).ok();
        let pending = slot.and_then(|slot| *self.pending.get(slot)?);
        pending.context("the server answered a request that is not there")
    }

    /// Ends a request whose reply is complete, and issues what follows it.
    fn end(&mut self, cookie: u64, tally: &Mutex<Tally>) -> Result<()> {
        let pending = self.pending(cookie)?;
        // Fits: it is the index of a request.
        self.pending[cookie as usize] = None;
        self.free.push(cookie as usize);
        let now = self.now();
        lock(tally).count(pending.len, now.since(pending.since));
        self.copies[pending.copy].issuer.request_over();
        self.advance(pending.copy, now);
        Ok(())
    }
}

/// Parses the header of a simple reply and returns its length and cookie; `None` if incomplete.
fn reply_head(input: &[u8]) -> Result<Option<(usize, u64)>> {
    match client::decode_reply(input)? {
        Decoded::NeedMore(_) => Ok(None),
        Decoded::Reply(
            used,
            Reply::Simple {
                cookie,
                error: None,
                ..
            },
        ) => Ok(Some((used, cookie))),
        Decoded::Reply(_, other) => bail!("the server answered {other:?}"),
    }
}

fn negotiate(stream: &mut UnixStream, export: &str) -> Result<Negotiated> {
    let wishes = Wishes {
        structured_replies: false,
        allocation_context: false,
    };
    let mut handshake = Handshake::new(export, wishes);
    let mut input = Vec::new();
    loop {
        let (used, progress) = handshake.handle(&input)?;
        input.drain(..used);
        let output = handshake.output().to_vec();
        stream.write_all(&output)?;
        handshake.consume_output(output.len());
        match progress {
            Progress::Ready(negotiated) => return Ok(negotiated),
            Progress::StartTls => unreachable!("TLS is not required"),
            Progress::Send => {}
            Progress::NeedMore(_) => {
                let mut piece = [0; 4096];
                let n = stream.read(&mut piece)?;
                if n == 0 {
                    bail!("the server closed the connection during the handshake");
                }
                input.extend_from_slice(&piece[..n]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_workload::spec::{Flow, Mix, Rw, Sizes};

    /// Bytes of a request's header.
    const REQUEST: usize = 28;
    /// Bytes of a simple reply's header.
    const REPLY: usize = 16;

    fn workload(mix: Mix, iodepth: u32, number_ios: u64) -> Workload {
        Workload {
            rw: Rw { mix, random: true },
            sizes: std::array::from_fn(|_| Sizes::fixed(4096)),
            number_ios: Some(number_ios),
            flow: Flow::Closed {
                iodepth,
                think: None,
            },
            ..Workload::default()
        }
    }

    /// Runs a guest against the other end of its connection. Returns the error with which it ends,
    /// and its measurements.
    fn run(workload: Workload, server: impl FnOnce(UnixStream)) -> (String, Tally) {
        let (client, other) = UnixStream::pair().expect("a pair");
        client.set_nonblocking(true).expect("a socket");
        let export = Negotiated {
            size: 1 << 20,
            ..Negotiated::default()
        };
        let copies = copies(&[workload], &export, 1).expect("it fits");
        let tally = Arc::new(Mutex::new(Tally::new()));
        let its_tally = tally.clone();
        let connection = Connection::new(client, copies);
        let guest = thread::spawn(move || connection.run(&its_tally));
        server(other);
        let ended = guest.join().expect("no panic");
        let tally = Arc::into_inner(tally).expect("the guest has ended");
        let tally = tally.into_inner().expect("not poisoned");
        (ended.expect_err("it ends with an error").to_string(), tally)
    }

    /// Receives a request. Returns its cookie.
    fn receive(server: &mut UnixStream) -> u64 {
        let mut request = [0; REQUEST];
        server.read_exact(&mut request).expect("a request");
        let cookie = request[8..16].try_into().expect("eight bytes");
        u64::from_be_bytes(cookie)
    }

    fn reply(server: &mut UnixStream, cookie: u64, error: u32, data: usize) {
        let mut reply = Vec::with_capacity(REPLY + data);
        reply.extend(0x6744_6698_u32.to_be_bytes());
        reply.extend(error.to_be_bytes());
        reply.extend(cookie.to_be_bytes());
        reply.resize(REPLY + data, 0);
        server.write_all(&reply).expect("it reads");
    }

    #[test]
    fn each_reply_of_a_closed_loop_lets_the_next_request_come() {
        let (error, tally) = run(workload(Mix::Read, 2, 5), |mut server| {
            let mut waiting = vec![receive(&mut server), receive(&mut server)];
            for left in (0..5).rev() {
                // Out of order, as a daemon may reply.
                reply(&mut server, waiting.pop().expect("one waits"), 0, 4096);
                if left >= 2 {
                    waiting.push(receive(&mut server));
                }
            }
        });
        assert_eq!((tally.ops, tally.bytes), (5, 5 * 4096));
        assert_eq!(tally.latency_us.len(), 5);
        assert_eq!(error, "the server closed the connection");
    }

    #[test]
    fn a_write_has_its_payload() {
        let (_, tally) = run(workload(Mix::Write, 1, 1), |mut server| {
            let cookie = receive(&mut server);
            let mut payload = [0; 4096];
            server.read_exact(&mut payload).expect("a payload");
            assert_eq!(payload, [PAYLOAD; 4096]);
            reply(&mut server, cookie, 0, 0);
        });
        assert_eq!((tally.ops, tally.bytes), (1, 4096));
    }

    #[test]
    fn replies_that_are_wrong_end_the_guest() {
        let (error, tally) = run(workload(Mix::Read, 1, 9), |mut server| {
            let cookie = receive(&mut server);
            reply(&mut server, cookie + 1, 0, 4096);
        });
        assert_eq!(error, "the server answered a request that is not there");
        assert_eq!(tally.ops, 0);
        let (error, _) = run(workload(Mix::Read, 1, 9), |mut server| {
            let cookie = receive(&mut server);
            // 5 is EIO.
            reply(&mut server, cookie, 5, 0);
        });
        assert!(error.starts_with("the server answered Simple"), "{error}");
    }

    #[test]
    fn a_workload_larger_than_its_export_is_refused() {
        let mut too_large = workload(Mix::Read, 1, 1);
        too_large.size = Some(2 << 20);
        let export = Negotiated {
            size: 1 << 20,
            ..Negotiated::default()
        };
        assert!(copies(&[too_large], &export, 1).is_err());
    }
}
