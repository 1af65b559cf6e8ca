//! Guests of the demo: small NBD clients with the I/O of a database, a video player or a backup.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tidegate_nbd::client::{self, Decoded, Handshake, Progress, Reply, Wishes};
use tidegate_nbd::{Command, Request};
use tidegate_units::human::bytes_and_count;

/// Workload of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// True for writes, false for reads.
    pub(crate) writes: bool,
    /// Request size in bytes.
    pub(crate) size: u32,
    /// True for random addresses, false for sequential ones.
    pub(crate) random: bool,
    /// Size in bytes of the part of the disk that is used, from its start.
    pub(crate) span: u64,
    /// Times at which requests are sent.
    pub(crate) arrivals: Arrivals,
}

/// Times at which a guest sends its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// Closed loop with a fixed number of requests outstanding.
    Closed {
        /// Number of requests outstanding.
        depth: u32,
    },
    /// Open loop with random times (Poisson).
    Poisson {
        /// Mean number of requests per second.
        per_s: f64,
    },
    /// Open loop with evenly spaced times.
    Even {
        /// Requests per second.
        per_s: f64,
    },
}

/// Measurements of a guest since the last [`Guest::restart`].
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Number of replies.
    pub(crate) ops: u64,
    /// Bytes of the answered requests.
    pub(crate) bytes: u64,
    /// Time from the intended start of a request to the last byte of its reply, in microseconds.
    pub(crate) latency_us: Histogram<u64>,
    /// Duration of the measurement.
    pub(crate) took: Duration,
}

/// Largest latency recorded, in microseconds: ten minutes, longer than any demo.
const LATENCY_US_MAX: u64 = 600_000_000;

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
    threads: Vec<JoinHandle<()>>,
}

impl Guest {
    /// Connects to an export and starts sending requests.
    ///
    /// # Errors
    /// If the socket or the export does not exist.
    pub(crate) fn start(
        socket: &Path,
        export: &str,
        behaviour: Behaviour,
        seed: u64,
    ) -> Result<Guest> {
        let mut stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        let size = handshake(&mut stream, export)?;
        if size < behaviour.span {
            bail!(
                "export {export} has {}, its guest uses {}",
                bytes_and_count(size),
                bytes_and_count(behaviour.span)
            );
        }
        let tally = Arc::new(Mutex::new(Tally::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let epoch = Instant::now();
        let mut sender = RequestSender::new(stream.try_clone()?, behaviour, epoch, seed);
        let mut threads = Vec::new();
        let reader = stream.try_clone()?;
        let after = match behaviour.arrivals {
            Arrivals::Closed { depth } => {
                // A closed loop begins with its whole depth; each reply sends the next request.
                for _ in 0..depth {
                    sender.send(Instant::now())?;
                }
                Some(sender)
            }
            Arrivals::Poisson { .. } | Arrivals::Even { .. } => {
                let stop = stop.clone();
                threads.push(thread::spawn(move || sender.send_open_loop(&stop)));
                None
            }
        };
        let (listener_tally, listener_stop) = (tally.clone(), stop.clone());
        threads.push(thread::spawn(move || {
            let result = receive(reader, behaviour, epoch, after, &listener_tally);
            // Stopping shuts down the socket under the reader, which is no failure.
            if let Err(error) = result
                && !listener_stop.load(Ordering::Relaxed)
            {
                lock(&listener_tally).failed = Some(error.to_string());
            }
        }));
        Ok(Guest {
            tally,
            stop,
            socket: stream,
            threads,
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
    pub(crate) fn seen(&self) -> Result<Seen> {
        let tally = lock(&self.tally);
        if let Some(failed) = &tally.failed {
            bail!("a guest's connection failed: {failed}");
        }
        Ok(Seen {
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
        // Wakes both threads from their reads and writes, after which they end.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
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
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally
        .lock()
        .expect("no thread panics while it holds the tally")
}

/// Sending half of a guest.
struct RequestSender {
    stream: UnixStream,
    behaviour: Behaviour,
    epoch: Instant,
    dice: Pcg64Mcg,
    next: u64,
    payload: Vec<u8>,
}

impl RequestSender {
    fn new(stream: UnixStream, behaviour: Behaviour, epoch: Instant, seed: u64) -> RequestSender {
        let payload = if behaviour.writes {
            vec![0x5a; behaviour.size as usize]
        } else {
            vec![]
        };
        let dice = Pcg64Mcg::seed_from_u64(seed);
        RequestSender {
            stream,
            behaviour,
            epoch,
            dice,
            next: 0,
            payload,
        }
    }

    /// Sends one request. Its cookie is the intended start, so that the latency includes any wait
    /// for the socket.
    fn send(&mut self, wanted: Instant) -> io::Result<()> {
        let Behaviour {
            size,
            span,
            random,
            writes,
            ..
        } = self.behaviour;
        let places = span / size as u64;
        let place = if random {
            self.dice.random_range(0..places)
        } else {
            self.next % places
        };
        self.next += 1;
        let request = Request {
            cookie: wanted.duration_since(self.epoch).as_nanos() as u64,
            command: if writes {
                Command::Write
            } else {
                Command::Read { df: false }
            },
            fua: false,
            offset: place * size as u64,
            len: size,
        };
        self.stream.write_all(&client::encode_request(&request))?;
        self.stream.write_all(&self.payload)
    }

    /// Sends requests of an open loop until `stop` is set. A closed loop sends from the receiver.
    fn send_open_loop(&mut self, stop: &AtomicBool) {
        let mut wanted = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let gap_s = match self.behaviour.arrivals {
                Arrivals::Closed { .. } => return,
                Arrivals::Even { per_s } => 1.0 / per_s,
                Arrivals::Poisson { per_s } => {
                    let dice: f64 = self.dice.random();
                    // Inverse of the exponential distribution; `dice` is below 1, so the logarithm
                    // is finite.
                    -(1.0 - dice).ln() / per_s
                }
            };
            wanted += Duration::from_secs_f64(gap_s);
            // A sender that is late sends at once, and later times do not move: the loop stays
            // open.
            thread::sleep(wanted.saturating_duration_since(Instant::now()));
            if self.send(wanted).is_err() {
                // The receiver sees the same broken socket and reports it.
                return;
            }
        }
    }
}

/// Receives replies, counts them and, in a closed loop, sends the next request.
fn receive(
    mut stream: UnixStream,
    behaviour: Behaviour,
    epoch: Instant,
    mut sender: Option<RequestSender>,
    tally: &Mutex<Tally>,
) -> Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut filled = 0;
    // Cookie of the last reply, and the bytes of its read data that are still to come.
    let mut data: Option<(u64, usize)> = None;
    loop {
        let n = stream.read(&mut buffer[filled..])?;
        if n == 0 {
            bail!("the server closed the connection");
        }
        filled += n;
        let mut at = 0;
        loop {
            if let Some((cookie, left)) = data {
                let here = left.min(filled - at);
                at += here;
                if here < left {
                    data = Some((cookie, left - here));
                    break;
                }
                data = None;
                answered(cookie, behaviour, epoch, tally);
                if let Some(sender) = &mut sender {
                    sender.send(Instant::now())?;
                }
                continue;
            }
            let Some((used, cookie)) = reply_head(&buffer[at..filled])? else {
                break;
            };
            at += used;
            let carried = if behaviour.writes {
                0
            } else {
                behaviour.size as usize
            };
            data = Some((cookie, carried));
        }
        // The rest is the beginning of a reply whose other bytes have not arrived yet.
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

fn answered(cookie: u64, behaviour: Behaviour, epoch: Instant, tally: &Mutex<Tally>) {
    let took = epoch.elapsed().saturating_sub(Duration::from_nanos(cookie));
    let mut tally = lock(tally);
    tally.ops += 1;
    tally.bytes += behaviour.size as u64;
    let us = took.as_micros() as u64;
    // A latency beyond the largest bucket counts in that one instead of being lost.
    tally.latency_us.saturating_record(us);
    tally.recent_us.saturating_record(us);
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

fn handshake(stream: &mut UnixStream, export: &str) -> Result<u64> {
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
            Progress::Ready(negotiated) => return Ok(negotiated.size),
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
