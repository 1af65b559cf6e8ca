//! Signals of the process, which confined threads do not handle.

use std::{mem::MaybeUninit, ptr::null_mut};

/// Signals that a thread causes itself, by a fault or a refused system call. One that is blocked
/// would end the process.
const OF_THE_THREAD: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Blocks all signals in the calling thread, and threads that it starts, but those that a thread
/// causes itself. The kernel then has another thread handle a signal to the process.
pub(super) fn leave_to_others() {
    let mut blocked = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set, which the other calls then read; all signals are
    // valid, and the old mask is not asked for.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OF_THE_THREAD {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), null_mut());
    }
}
