//! Start of a socket loop on a thread of its own.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use super::SocketLoop;
use super::ledger::Ledger;
use crate::buffer::Pool;
use crate::event_loop::demand::Demand;
use crate::frontend::PLUMBING;
use crate::frontend::handover::{DeviceEnd, PLACES, Sleeper, SocketEnd, link};
use crate::frontend::request_table::Requests;
use crate::ring::{Ring, Wake, clock, sys};

/// Size of io_uring's submission queue: a send, a pause and a receive of each connection, and more.
const RING_ENTRIES: u32 = 128;
/// Files of the ring: a socket for each connection, and the eventfd.
const FILES: u32 = PLACES as u32 + 1;

/// Socket loop as the loop of its device has it.
pub(in crate::event_loop) struct Started {
    pub(in crate::event_loop) end: DeviceEnd,
    pub(in crate::event_loop) thread: JoinHandle<()>,
    /// Demand of the thread for processor time; `None` if the kernel tells nothing of it.
    pub(in crate::event_loop) demand: Option<Demand>,
    /// True once the thread serves nothing any more.
    pub(in crate::event_loop) ended: Arc<AtomicBool>,
}

/// Tells the device's loop that a socket loop has ended, even by a panic.
struct Guard {
    ended: Arc<AtomicBool>,
    device: Arc<Sleeper>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.device.wake.wake();
    }
}

/// Starts a socket loop for the loop of a device, which sleeps as `device` tells.
///
/// # Errors
/// Fails if the kernel refuses the ring, the eventfd or the thread.
pub(in crate::event_loop) fn start(name: &str, device: Arc<Sleeper>) -> io::Result<Started> {
    let own = Sleeper::new(Arc::new(Wake::new()?));
    let (end, socket_end) = link(device.clone(), own.clone());
    let ended = Arc::new(AtomicBool::new(false));
    let guard = Guard {
        ended: ended.clone(),
        device,
    };
    let (started, start) = channel();
    let thread = std::thread::Builder::new()
        .name(format!("sockets {name}"))
        .spawn(move || {
            let _guard = guard;
            match SocketLoop::new(socket_end, own) {
                Ok(sockets) => {
                    let _ = started.send(Ok(Demand::of_this_thread().ok()));
                    run_to_its_end(sockets);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
    let Ok(demand) = start.recv() else {
        return Err(io::Error::other("it panicked"));
    };
    Ok(Started {
        end,
        thread,
        demand: demand?,
        ended,
    })
}

/// Runs a socket loop. If it is cut short with clients, its memory is leaked until the process
/// ends, because the kernel may still work on it.
fn run_to_its_end(sockets: SocketLoop) {
    let mut sockets = ManuallyDrop::new(sockets);
    if let Err(error) = sockets.run() {
        tracing::error!("a socket loop ends: {error}");
    }
    if sockets.clients.iter().all(Option::is_none) {
        drop(ManuallyDrop::into_inner(sockets));
    }
}

impl SocketLoop {
    fn new(end: SocketEnd, own: Arc<Sleeper>) -> io::Result<SocketLoop> {
        // Applies to the calling thread.
        sys::precise_timers();
        let mut ring = Ring::new(RING_ENTRIES, FILES)?;
        let wake_file = ring.add_file(own.wake.receiver()?)?;
        let mut plumbing = Pool::new((PLACES * PLUMBING) as u64)?;
        Ok(SocketLoop {
            ring,
            // All payloads are lent.
            ledger: Ledger::new(Requests::new(Pool::new(0)?)),
            clients: (0..PLACES).map(|_| None).collect(),
            generation: 0,
            turns: Default::default(),
            // Bytes of an eventfd's count.
            wake_buffer: plumbing.get(8),
            plumbing,
            end,
            own,
            wake_file,
            now: clock(),
            completions: Vec::new(),
            returns_end: None,
            ticking: false,
            stopped: false,
        })
    }
}
