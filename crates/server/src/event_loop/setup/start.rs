//! Start of a prepared device's loop on a thread of its own.

use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use tidegate_core::time::Nanos;
use tokio::sync::Notify;

use super::super::despite_panics::for_each_despite_panics;
use super::super::sampler::Sampler;
use super::super::{Loop, LoopHandle, Phase, Remains};
use super::{Prepared, SetupError};
use crate::buffer::Pool;
use crate::command::Command;
use crate::frontend::request_table::Requests;
use crate::history::Recording;
use crate::ring::{Ring, Wake, clock, sys};
use crate::sandbox::{self, ThreadKind};

/// Size of io_uring's submission queue. A turn with more submissions enters the kernel in between.
const RING_ENTRIES: u32 = 1024;
/// Maximum size of the ring's table of registered files; the process's limit on open files bounds
/// it, too.
const FILES_MAX: u32 = 16_384;
/// First system call of a loop, to follow "cannot". It fails most often in containers.
const SET_UP_RING: &str = "set up io_uring (Linux 6.1 or later, and not refused by the seccomp \
                           profile of a container; `tidegate doctor` says what is missing)";

impl Prepared {
    /// Starts the loop on a thread of its own, which drops `guard` when it ends, even by a panic.
    /// The thread returns the loop's final state. `transfer_ended` is notified when a deadline
    /// transfer ends; `history` takes samples of VMs and the device.
    ///
    /// # Errors
    /// Fails if the kernel refuses the ring, the eventfd or the thread.
    pub(crate) fn spawn(
        self,
        guard: impl Send + 'static,
        transfer_ended: Arc<Notify>,
        history: Option<Recording>,
    ) -> Result<(LoopHandle, JoinHandle<io::Result<Remains>>), SetupError> {
        let device = self.name.clone();
        let failed = |what: &'static str| {
            let device = device.clone();
            move |source| SetupError::Io {
                device,
                what,
                source,
            }
        };
        let wake = Arc::new(Wake::new().map_err(failed("make an eventfd"))?);
        let (sender, commands) = channel();
        let handle = LoopHandle {
            commands: sender,
            wake: wake.clone(),
        };
        let (started, start) = channel::<io::Result<()>>();
        let thread = std::thread::Builder::new()
            .name(format!("loop {}", self.name))
            .spawn(move || {
                let _guard = guard;
                match self.into_loop(commands, wake, transfer_ended, history) {
                    Ok(event_loop) => {
                        let _ = started.send(Ok(()));
                        run_to_its_end(event_loop)
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                        Ok(Remains::default())
                    }
                }
            })
            .map_err(failed("start a thread"))?;
        match start.recv() {
            Ok(Ok(())) => Ok((handle, thread)),
            Ok(Err(error)) => Err(failed(SET_UP_RING)(error)),
            Err(_) => Err(failed("start its loop")(io::Error::other("it panicked"))),
        }
    }

    fn into_loop(
        mut self,
        commands: Receiver<Command>,
        wake: Arc<Wake>,
        transfer_ended: Arc<Notify>,
        history: Option<Recording>,
    ) -> io::Result<Loop> {
        // Applies to the calling thread, which is the loop's.
        sys::precise_timers();
        let files = sys::raise_open_files().min(FILES_MAX);
        let mut ring = Ring::new(RING_ENTRIES, files)?;
        if self.is_confined {
            sandbox::confine(ThreadKind::EventLoop);
        }
        if self.polls_busily {
            ring.poll_busily();
        }
        for state in self.device.disks.values_mut() {
            state.disk.medium.attach(&mut ring)?;
        }
        let wake_file = ring.add_file(wake.receiver()?)?;
        let mut plumbing = Pool::new(self.plumbing)?;
        let sampler = history.map(|history| Sampler::new(history, &self.name, clock()));
        Ok(Loop {
            name: self.name,
            ring,
            engine: self.engine,
            device: self.device,
            vms: self.vms,
            removals: Vec::new(),
            pending_resizes: Vec::new(),
            frontends: Default::default(),
            admission: self.connections,
            requests: Requests::new(Pool::new(self.buffer_memory)?),
            // Bytes of an eventfd's count.
            commands_wait: false,
            wake_buffer: plumbing.get(8),
            plumbing,
            commands,
            wake,
            wake_file,
            now: clock(),
            completions: Vec::new(),
            feasibility_alert: Default::default(),
            given_way_alert: Default::default(),
            running_transfers: 0,
            transfer_ended,
            sampler,
            exchange: self.exchange,
            ticking: false,
            tick_due: Nanos::ZERO,
            upkeep_due: false,
            phase: Phase::Running,
            hand_over: Default::default(),
            flushed: false,
        })
    }
}

/// Runs a loop. If it is cut short with I/O in flight, or panics, its memory is leaked until the
/// process ends: the kernel may still be copying a payload to disk, and with the memory unmapped
/// would write zeroes, which are neither the old data nor the new. Its clients are told at once,
/// because the process waits for its other loops; so are those whose commands it has not taken,
/// among them connections that were to be its own.
fn run_to_its_end(event_loop: Loop) -> io::Result<Remains> {
    let mut event_loop = ManuallyDrop::new(event_loop);
    let ended = catch_unwind(AssertUnwindSafe(|| event_loop.run()));
    // The kernel may still read replies from memory of the disks. Files that are another daemon's
    // by now stay locked: dropping them would release the lock that both hold.
    if ended.is_ok()
        && !event_loop.hand_over.gave_up_disks
        && event_loop.engine.is_idle()
        && event_loop.requests.len() == 0
    {
        drop(ManuallyDrop::into_inner(event_loop));
    } else {
        event_loop.frontends.hang_up(&event_loop.ring);
        // Leaked with the loop, the receiver would take commands that nobody answers.
        let commands = std::mem::replace(&mut event_loop.commands, channel().1);
        for_each_despite_panics(commands.try_iter(), drop);
        for_each_despite_panics([commands], drop);
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}
