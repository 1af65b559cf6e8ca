//! System calls that the filter refused: counted in a signal handler, logged by the control thread.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of system calls that are counted apart; larger ones count as the last.
const NUMBERS: usize = 512;
/// `SYS_SECCOMP`: a filter caused the signal.
const BY_FILTER: libc::c_int = 1;
/// Time between two looks at the counters.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Refused calls of one number.
struct Refused {
    times: AtomicU64,
    /// Identity of the thread that made the last one.
    thread: AtomicI32,
}

static REFUSED: [Refused; NUMBERS] = [const {
    Refused {
        times: AtomicU64::new(0),
        thread: AtomicI32::new(0),
    }
}; NUMBERS];

/// Returns the number of system calls that were refused since the process started.
pub(crate) fn count() -> u64 {
    let times = |refused: &Refused| refused.times.load(Ordering::Relaxed);
    REFUSED.iter().map(times).sum()
}

/// Returns the thread whose call of this number was refused last; 0 if there is none.
#[cfg(test)]
pub(super) fn last_thread(number: libc::c_long) -> libc::pid_t {
    REFUSED[number as usize].thread.load(Ordering::Relaxed)
}

/// Logs refused calls until the future is dropped, each number once and again when it has doubled.
pub(crate) async fn report() {
    let mut logged = [0u64; NUMBERS];
    loop {
        tokio::time::sleep(REPORT_INTERVAL).await;
        for (number, logged) in logged.iter_mut().enumerate() {
            let times = REFUSED[number].times.load(Ordering::Relaxed);
            if times >= 2 * *logged && times > *logged {
                *logged = times;
                let thread = thread_name(REFUSED[number].thread.load(Ordering::Relaxed));
                tracing::error!(
                    system_call = number,
                    times,
                    thread,
                    "the sandbox refused a system call, which failed with EPERM: a guest or client \
                     exploits a bug, or this build makes a call that its list does not have; \
                     please report it"
                );
            }
        }
    }
}

/// Returns the name of a thread of this process, or its number once it has ended.
fn thread_name(id: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
    name.map_or_else(|_| id.to_string(), |name| name.trim_end().to_owned())
}

/// Installs the handler, once.
pub(super) fn catch() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a signal action of zeroes is valid: no flags, no mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both point to memory of ours; the handler changes atomics and the interrupted
        // thread's registers.
        let failed = unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) };
        // Fails only for a signal that cannot be handled, which SIGSYS is not.
        assert_eq!(failed, 0, "SIGSYS cannot be handled");
    });
}

/// Handler of SIGSYS: counts the call, which then fails with `EPERM`.
extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel passes the signal's description.
    if unsafe { (*info).si_code } != BY_FILTER {
        // Sent by a process: ends this one, as it would have without a handler. On a confined
        // thread the first call is refused, by a signal that is blocked in its own handler, which
        // the kernel answers by ending the process with it.
        // SAFETY: sets the default action of a signal, and sends it to this thread.
        unsafe {
            libc::signal(libc::SIGSYS, libc::SIG_DFL);
            libc::raise(libc::SIGSYS);
        }
        return;
    }
    // SAFETY: with `SA_SIGINFO` the kernel passes the registers of the interrupted thread, to which
    // nothing else refers.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let number = fail_with(context, libc::EPERM);
    let refused = &REFUSED[usize::try_from(number).map_or(NUMBERS - 1, |n| n.min(NUMBERS - 1))];
    // SAFETY: takes no memory, and the filter allows it.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    refused.thread.store(thread as i32, Ordering::Relaxed);
    refused.times.fetch_add(1, Ordering::Relaxed);
}

/// Has the interrupted system call return an error. Returns the number of the call.
#[cfg(target_arch = "x86_64")]
fn fail_with(context: &mut libc::ucontext_t, errno: libc::c_int) -> i64 {
    // The kernel has put the number back into the register for the result.
    let result = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    std::mem::replace(result, -i64::from(errno))
}

/// Has the interrupted system call return an error. Returns the number of the call.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn fail_with(_: &mut libc::ucontext_t, _: libc::c_int) -> i64 {
    panic!("no filter is installed on this processor")
}

/// Has the interrupted system call return an error. Returns the number of the call.
#[cfg(target_arch = "aarch64")]
fn fail_with(context: &mut libc::ucontext_t, errno: libc::c_int) -> i64 {
    let registers = &mut context.uc_mcontext.regs;
    // The first register has the first argument, and then the result; the eighth has the number.
    registers[0] = -i64::from(errno) as u64;
    registers[8] as i64
}
