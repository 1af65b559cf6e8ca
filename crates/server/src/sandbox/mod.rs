//! Confinement of threads that work on what guests and clients send.
//!
//! A guest that finds a bug in the daemon's memory handling runs code on the thread of an event
//! loop; a client of TLS, on a thread for handshakes or encryption; a hypervisor, on the thread of
//! its vhost-user session. Three layers bound what that
//! code can do to the host:
//!
//! - Landlock refuses opening, creating and removing files (Linux 5.13), TCP (6.7), and signals and
//!   abstract sockets of other processes (6.12).
//! - seccomp refuses system calls that a thread of its kind does not make, such as `open`,
//!   `socket`, `execve` and `ptrace`.
//! - [Rings](crate::ring) are restricted: seccomp does not see operations of io_uring, such as
//!   `IORING_OP_OPENAT`.
//!
//! Signals to the process are left to threads that are not confined: the handlers of the runtime
//! send on a socket, which an event loop may not, so that a SIGTERM or SIGHUP would be lost.
//!
//! Files and sockets that are open already stay usable: those of all disks, of which a process has
//! one table. A thread that a confined thread starts is confined as well.
//!
//! A system call that is refused fails with `EPERM`, is counted and is logged as an error. The
//! thread goes on: what the call would have done has not happened, and ending the loop would take
//! the disks from all its guests, also when a new version of the C library makes a call that the
//! list does not have.

mod landlock;
mod signals;
mod system_calls;
#[cfg(test)]
mod tests;
mod violations;

use std::hint::black_box;
use std::sync::Once;

pub(crate) use violations::{count, report};

/// Bytes of an allocation that comes from an arena: glibc takes mappings of their own for those of
/// 128 KiB and more, and looks whether an arena may shrink when more than 64 KiB are freed.
const PIECE: usize = 100 << 10;
/// Number of allocations that are together more than an arena keeps when all are freed: twice the
/// longest mapping that was freed before, which is 32 MiB at most. A heap of an arena has 64 MiB.
const PIECES: usize = 600;

/// Layers in force for a thread.
#[derive(Clone, Debug)]
struct Layers {
    /// Version of Landlock's interface in force, or the reason why there is none.
    landlock: Result<u32, String>,
    /// Reason why system calls are not filtered.
    system_calls: Result<(), String>,
}

/// Kind of a thread that is confined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadKind {
    /// Event loop of a device.
    EventLoop,
    /// Thread for the handshakes of TLS, or for encryption.
    Tls,
    /// Session of a vhost-user front-end. What needs a path is done by its
    /// [`Assistant`](crate::frontend::vhost_user::Assistant).
    VhostUser,
}

impl ThreadKind {
    /// Returns the threads of the kind in the plural, for the log.
    fn name(self) -> &'static str {
        match self {
            ThreadKind::EventLoop => "event loops",
            ThreadKind::Tls => "threads for TLS",
            ThreadKind::VhostUser => "vhost-user sessions",
        }
    }
}

/// Confines the calling thread to what threads of its kind do. A layer that the kernel does not
/// have is left out and named in the log, once for all threads of the kind.
pub(crate) fn confine(kind: ThreadKind) {
    let layers = Layers::apply(kind);
    static LOGGED: [Once; 3] = [const { Once::new() }; 3];
    LOGGED[kind as usize].call_once(|| layers.log(kind.name()));
}

/// Confines the calling thread as an event loop, without a log. Returns Landlock's version, and
/// the reasons why layers are missing.
pub(crate) fn try_event_loop() -> (Result<u32, String>, Result<(), String>) {
    let layers = Layers::apply(ThreadKind::EventLoop);
    (layers.landlock, layers.system_calls)
}

/// Has the allocator of the C library make the calls that it makes once, which the sandbox would
/// take for an attack: glibc reads `/proc/sys/vm/overcommit_memory` when an arena of a thread
/// shrinks for the first time, and counts the processors in `/sys/devices/system/cpu/online` when
/// a ninth arena is made.
fn settle_allocator() {
    static SETTLED: Once = Once::new();
    SETTLED.call_once(|| {
        #[cfg(target_env = "gnu")]
        limit_arenas();
        // On another thread, because the arena of a process's first thread shrinks in another way.
        let thread = std::thread::Builder::new().name("allocator".to_owned());
        if let Ok(thread) = thread.spawn(allocate_and_free) {
            let _ = thread.join();
        }
    });
}

/// Gives glibc the number of arenas that it would find by itself later, eight for each processor,
/// with which it need not count them.
#[cfg(target_env = "gnu")]
fn limit_arenas() {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let arenas = i32::try_from(8 * processors).unwrap_or(i32::MAX);
    // SAFETY: changes a setting of the allocator, under its own lock.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
}

/// Allocates memory from an arena and frees it, most of which is never touched.
fn allocate_and_free() {
    let pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| Vec::with_capacity(PIECE)).collect();
    drop(black_box(pieces));
}

/// Logs what the operator gives up without the sandbox.
pub(crate) fn warn_unless(is_on: bool) {
    if !is_on {
        tracing::warn!(
            "[daemon] sandbox = false: event loops, threads for TLS and vhost-user sessions \
             have all rights of the daemon's user; a guest or client that exploits a bug in one \
             can open the files and sockets that this user can"
        );
    }
}

impl Layers {
    /// Puts all layers that the kernel has in force for the calling thread.
    fn apply(kind: ThreadKind) -> Layers {
        settle_allocator();
        signals::leave_to_others();
        Layers {
            // First, because the filter refuses its system calls.
            landlock: landlock::refuse_all(),
            system_calls: system_calls::confine(kind),
        }
    }

    /// Logs the layers; `threads` names those that they confine.
    fn log(&self, threads: &str) {
        match &self.landlock {
            Ok(version) => tracing::info!(
                "{threads} are confined by Landlock (interface version {version}): {}",
                landlock::refused(*version)
            ),
            Err(why) => tracing::warn!("{threads} are not confined by Landlock: {why}"),
        }
        match &self.system_calls {
            Ok(()) => tracing::info!("{threads} are confined by seccomp"),
            Err(why) => tracing::warn!("{threads} are not confined by seccomp: {why}"),
        }
    }
}
