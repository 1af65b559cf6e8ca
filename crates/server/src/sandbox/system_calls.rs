//! Seccomp filters: for each kind of thread a list of the system calls that it makes.
//!
//! A call that is allowed whatever its arguments costs next to nothing: Linux 5.11 and later keep
//! a bitmap of them and run no filter. So only calls off the request path have their arguments
//! checked.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{ThreadKind, violations};
use crate::sigbus;

/// System calls of every kind of thread that are allowed whatever their arguments.
const COMMON: &[libc::c_long] = &[
    // Files and sockets that are open: eventfds and the log.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Time and other threads.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    // Start and end of threads that the thread starts, and of signal handlers.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further calls of an event loop.
const OF_LOOPS: &[libc::c_long] = &[
    // The ring.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Files that are open: reads without the ring, sizes, holes, locks.
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    // With an empty path; a path tells that a file exists, and no more.
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_mincore,
];

/// Further calls of a thread for TLS, which waits for sockets that were accepted elsewhere.
const OF_TLS: &[libc::c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Further calls of the session of a vhost-user front-end, which receives descriptors and maps
/// memory.
const OF_SESSIONS: &[libc::c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_getpeername,
    // The wait for a message, or for a hand-over.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    // With an empty path; a path tells that a file exists, and no more.
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
];

/// Commands of `fcntl(2)` that a session uses: copies of eventfds, their flags, which it reads,
/// and the lock of a record of requests in flight. musl sets the flag of a copy once more
/// (`F_SETFD`), for kernels that did not.
const FCNTL_OF_SESSIONS: &[libc::c_int] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_SETFD,
    libc::F_GETFD,
    libc::F_GETFL,
    libc::F_OFD_SETLK,
];

/// Signal whose action a confined thread may set: the handler of the standard library for faults
/// does so where it finds no overflow of a stack. A handler for another signal would be code that
/// threads without the sandbox run; and those of SIGSYS and SIGBUS are the daemon's own
/// ([`violations`], [`sigbus`]). The C library's `abort` sets that of SIGABRT only where the signal
/// has not ended the process, which it does without a handler.
const SIGNAL_THAT_IS_SET: libc::c_int = libc::SIGSEGV;

/// Commands of `fcntl(2)` that an event loop uses: a copy of a descriptor for the ring, whose flag
/// musl sets once more (`F_SETFD`), the lock of a record of requests in flight, and the check that
/// a descriptor is open, which the standard library makes in debug builds. Others would have the
/// kernel send signals to any process, such as `F_SETOWN`, or lease and seal files.
const FCNTL_OF_LOOPS: &[libc::c_int] = &[
    libc::F_DUPFD_CLOEXEC,
    libc::F_SETFD,
    libc::F_GETFD,
    libc::F_OFD_SETLK,
];

/// `FIONBIO` of `ioctl(2)`, whose type in `libc` depends on the C library.
const FIONBIO: u64 = 0x5421;

/// Commands of `fcntl(2)` that a thread for TLS uses, in debug builds alone: checks that a
/// descriptor is open, and that a socket does not block.
const FCNTL_OF_TLS: &[libc::c_int] = &[libc::F_GETFD, libc::F_GETFL];

/// Bits of the type of a socket that are not flags.
const SOCKET_TYPE: u64 = 0xf;

/// Flags of `clone(2)` with which a thread is started, as opposed to a process.
const THREAD_FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD) as u64;
/// Flags of `clone(2)` that make a namespace, or a child that is traced.
const REFUSED_CLONE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE
    | libc::CLONE_UNTRACED) as u64;

/// `PR_SET_VMA`, by which C libraries name their anonymous memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Confines the calling thread, and threads that it starts.
///
/// # Errors
/// The reason why the kernel does not filter.
pub(super) fn confine(kind: ThreadKind) -> Result<(), String> {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err("there is no list of system calls for this processor".to_owned());
    }
    let programs = programs(kind).map_err(|error| error.to_string())?;
    violations::catch();
    // The handler of the standard library would set the action of SIGBUS.
    sigbus::install();
    for program in programs {
        seccompiler::apply_filter(&program).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the filters; the kernel does the strictest of what they say.
fn programs(kind: ThreadKind) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let processor: TargetArch = std::env::consts::ARCH.try_into()?;
    // The flags of `clone3` are in memory, where no filter sees them. After ENOSYS, C libraries use
    // `clone`.
    let no_clone3 = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        processor,
    )?;
    let allowed = SeccompFilter::new(
        allowed(kind)?,
        SeccompAction::Trap,
        SeccompAction::Allow,
        processor,
    )?;
    Ok([no_clone3.try_into()?, allowed.try_into()?])
}

/// Condition on one argument of a system call.
#[derive(Clone)]
struct Condition {
    argument: u8,
    /// Part of the argument that the kernel uses: the lower half of integers, all of a pointer.
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
}

/// Returns the condition that an integer has this value.
fn equals(argument: u8, value: u64) -> Condition {
    Condition {
        argument,
        len: SeccompCmpArgLen::Dword,
        operator: SeccompCmpOp::Eq,
        value,
    }
}

/// Returns the condition that the bits of `mask` in an integer are `value`.
fn has_bits(argument: u8, mask: u64, value: u64) -> Condition {
    Condition {
        operator: SeccompCmpOp::MaskedEq(mask),
        ..equals(argument, value)
    }
}

/// Returns the condition that a pointer is null.
fn is_null(argument: u8) -> Condition {
    Condition {
        len: SeccompCmpArgLen::Qword,
        ..equals(argument, 0)
    }
}

/// System call with alternatives, of which all conditions of one must hold.
type Conditional = (libc::c_long, Vec<Vec<Condition>>);

/// Returns the call of `fcntl(2)` with one of these commands.
fn fcntl(commands: &[libc::c_int]) -> Conditional {
    let alternative = |&command: &libc::c_int| vec![equals(1, command as u64)];
    (libc::SYS_fcntl, commands.iter().map(alternative).collect())
}

/// Returns the call that sets whether I/O of a socket or an eventfd blocks. `F_SETFL` would set and
/// clear other flags as well: `O_APPEND` on a disk's file has every write go to its end.
fn blocks() -> Conditional {
    (libc::SYS_ioctl, vec![vec![equals(1, FIONBIO)]])
}

/// Returns the call that sends on a connected socket. With an address it would send datagrams to
/// services of the host, which may take the daemon's word, such as the log's or systemd's.
fn send() -> Conditional {
    (libc::SYS_sendto, vec![vec![is_null(4)]])
}

/// Returns the calls of a kind of thread that are allowed with some arguments alone.
fn conditional_of(kind: ThreadKind) -> Vec<Conditional> {
    match kind {
        ThreadKind::EventLoop => vec![fcntl(FCNTL_OF_LOOPS)],
        ThreadKind::VhostUser => vec![fcntl(FCNTL_OF_SESSIONS), send(), blocks()],
        ThreadKind::Tls => vec![
            fcntl(FCNTL_OF_TLS),
            send(),
            // The pair of a tunnel and an event loop. Sockets of another type could send datagrams
            // to any path.
            (
                libc::SYS_socketpair,
                vec![vec![
                    equals(0, libc::AF_UNIX as u64),
                    has_bits(1, SOCKET_TYPE, libc::SOCK_STREAM as u64),
                ]],
            ),
            blocks(),
        ],
    }
}

/// Returns the calls of every kind of thread that are allowed with some arguments alone.
fn conditional() -> Vec<Conditional> {
    let not_executable = has_bits(2, libc::PROT_EXEC as u64, 0);
    let is_thread = has_bits(0, THREAD_FLAGS | REFUSED_CLONE_FLAGS, THREAD_FLAGS);
    let names = [libc::PR_SET_NAME as u64, PR_SET_VMA].map(|option| vec![equals(0, option)]);
    let actions = vec![
        vec![equals(0, SIGNAL_THAT_IS_SET as u64)],
        // Reads the action of any signal.
        vec![is_null(1)],
    ];
    let own_process = equals(0, u64::from(std::process::id()));
    let ends = [libc::SIGABRT, libc::SIGSYS]
        .map(|signal| vec![own_process.clone(), equals(2, signal as u64)]);
    vec![
        // No memory that is executable, so that injected code has to be made of the daemon's.
        (libc::SYS_mmap, vec![vec![not_executable.clone()]]),
        (libc::SYS_mprotect, vec![vec![not_executable]]),
        // Threads, but no processes.
        (libc::SYS_clone, vec![vec![is_thread]]),
        (libc::SYS_prctl, names.into()),
        (libc::SYS_rt_sigaction, actions),
        // Limits of this process are read, not set.
        (libc::SYS_prlimit64, vec![vec![equals(0, 0), is_null(2)]]),
        // `abort`, and what the handler of SIGSYS does with one that was sent: both end the
        // process. No signals to other processes, and none that has another thread run a handler.
        (libc::SYS_tgkill, ends.into()),
    ]
}

/// Returns the calls that are allowed, with conditions on their arguments.
fn allowed(kind: ThreadKind) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let own = match kind {
        ThreadKind::EventLoop => OF_LOOPS,
        ThreadKind::Tls => OF_TLS,
        ThreadKind::VhostUser => OF_SESSIONS,
    };
    let always = COMMON.iter().chain(own);
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> =
        always.map(|&call| (call, Vec::new())).collect();
    // The other filter answers it.
    calls.insert(libc::SYS_clone3, Vec::new());
    for (call, alternatives) in conditional().into_iter().chain(conditional_of(kind)) {
        let rules: Result<Vec<_>, _> = alternatives.into_iter().map(rule).collect();
        calls.insert(call, rules?);
    }
    Ok(calls)
}

fn rule(conditions: Vec<Condition>) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions: Result<Vec<_>, _> = (conditions.into_iter())
        .map(|is| SeccompCondition::new(is.argument, is.len, is.operator, is.value))
        .collect();
    SeccompRule::new(conditions?)
}
