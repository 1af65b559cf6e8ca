//! The demo's guests: small NBD clients that behave like a database, a video player, a backup.

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

/// How a guest uses its disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Writes rather than reads.
    pub(crate) writes: bool,
    /// Bytes a request.
    pub(crate) size: u32,
    /// Addresses: anywhere, or one after the other.
    pub(crate) random: bool,
    /// The part of the disk it uses, in bytes from its start.
    pub(crate) span: u64,
    /// When it asks.
    pub(crate) arrivals: Arrivals,
}

/// Times at which a guest sends its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// A fixed number of requests is always under way.
    Closed {
        /// Requests under way.
        depth: u32,
    },
    /// Random times (Poisson), whether or not earlier requests were answered.
    Poisson {
        /// Requests a second on average.
        per_s: f64,
    },
    /// Evenly spaced times, whether or not earlier requests were answered.
    Even {
        /// Requests a second.
        per_s: f64,
    },
}

/// What a guest saw since the last [`Guest::restart`].
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Requests answered.
    pub(crate) ops: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Time from wanting to send to the last byte of the answer, microseconds.
    pub(crate) latency_us: Histogram<u64>,
    /// Over how long.
    pub(crate) took: Duration,
}

/// Ten minutes: longer than any demo.
const LATENCY_US_MAX: u64 = 600_000_000;

struct Tally {
    since: Instant,
    ops: u64,
    bytes: u64,
    latency_us: Histogram<u64>,
    /// Latencies since they were last taken.
    recent_us: Histogram<u64>,
    failed: Option<String>,
}

/// A running guest.
pub(crate) struct Guest {
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
    socket: UnixStream,
    threads: Vec<JoinHandle<()>>,
}

impl Guest {
    /// Connects to an export and starts asking.
    ///
    /// # Errors
    /// When the socket or the export is not there.
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
                "export {export} has {size} bytes, its guest uses {}",
                behaviour.span
            );
        }
        let tally = Arc::new(Mutex::new(Tally::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let epoch = Instant::now();
        let mut asker = Asker::new(stream.try_clone()?, behaviour, epoch, seed);
        let mut threads = Vec::new();
        let reader = stream.try_clone()?;
        let after = match behaviour.arrivals {
            Arrivals::Closed { depth } => {
                for _ in 0..depth {
                    asker.ask(Instant::now())?;
                }
                Some(asker)
            }
            Arrivals::Poisson { .. } | Arrivals::Even { .. } => {
                let stop = stop.clone();
                threads.push(thread::spawn(move || asker.ask_in_time(&stop)));
                None
            }
        };
        let (listener_tally, listener_stop) = (tally.clone(), stop.clone());
        threads.push(thread::spawn(move || {
            let result = listen(reader, behaviour, epoch, after, &listener_tally);
            // Once stopped, the socket is shut under the reader: that is no failure.
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

    /// Forgets what was seen so far.
    pub(crate) fn restart(&self) {
        let mut tally = lock(&self.tally);
        *tally = Tally {
            failed: tally.failed.take(),
            ..Tally::new()
        };
    }

    /// Returns the 99th percentile of the latencies since the last call, in nanoseconds; `None`:
    /// nothing was answered.
    pub(crate) fn take_recent_p99(&self) -> Option<f64> {
        let recent = &mut lock(&self.tally).recent_us;
        let p99_us = (!recent.is_empty()).then(|| recent.value_at_quantile(0.99));
        recent.reset();
        p99_us.map(|us| us as f64 * 1e3)
    }

    /// What was seen since the last restart.
    ///
    /// # Errors
    /// When the guest's connection failed or a request was answered with an error.
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
        // Wakes both threads out of their reads and writes; they end by themselves.
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

/// The sending half of a guest.
struct Asker {
    stream: UnixStream,
    behaviour: Behaviour,
    epoch: Instant,
    dice: Pcg64Mcg,
    next: u64,
    payload: Vec<u8>,
}

impl Asker {
    fn new(stream: UnixStream, behaviour: Behaviour, epoch: Instant, seed: u64) -> Asker {
        let payload = if behaviour.writes {
            vec![0x5a; behaviour.size as usize]
        } else {
            vec![]
        };
        let dice = Pcg64Mcg::seed_from_u64(seed);
        Asker {
            stream,
            behaviour,
            epoch,
            dice,
            next: 0,
            payload,
        }
    }

    /// Sends one request. Its cookie is the time it was wanted, so that the answer tells how
    /// long it took, including a wait for the socket.
    fn ask(&mut self, wanted: Instant) -> io::Result<()> {
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

    /// Sends requests in an open loop until `stop` is set. A closed loop has none of its own.
    fn ask_in_time(&mut self, stop: &AtomicBool) {
        let mut wanted = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let gap_s = match self.behaviour.arrivals {
                Arrivals::Closed { .. } => return,
                Arrivals::Even { per_s } => 1.0 / per_s,
                Arrivals::Poisson { per_s } => {
                    let dice: f64 = self.dice.random();
                    -(1.0 - dice).ln() / per_s
                }
            };
            wanted += Duration::from_secs_f64(gap_s);
            thread::sleep(wanted.saturating_duration_since(Instant::now()));
            if self.ask(wanted).is_err() {
                // The listener sees the same broken socket and says so.
                return;
            }
        }
    }
}

/// The receiving half: counts answers and, in a closed loop, asks again.
fn listen(
    mut stream: UnixStream,
    behaviour: Behaviour,
    epoch: Instant,
    mut asker: Option<Asker>,
    tally: &Mutex<Tally>,
) -> Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut filled = 0;
    // Bytes of read data that still belong to the last answer, and its cookie.
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
                if let Some(asker) = &mut asker {
                    asker.ask(Instant::now())?;
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
    tally.latency_us.saturating_record(us);
    tally.recent_us.saturating_record(us);
}

/// A simple reply's head: bytes used and cookie. `None`: more bytes are needed.
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
