//! System calls of confined threads.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::command::{Command, LoopCall};
use crate::common::{Server, single};
use crate::config::{Config, DeviceKind};
use crate::frontend::vhost_user::Assistant;
use crate::tls::TlsThreads;

const MIB: u64 = 1 << 20;
/// Bytes of a set of signals.
const SIGNAL_SET: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);
const PASSWORDS: &CStr = c"/etc/passwd";

fn memory_disk(dir: &std::path::Path) -> Config {
    single(dir, DeviceKind::Memory, None, MIB)
}

/// Runs a function on the event loop of the server's first device, and returns its result.
fn on_loop<T: Send + 'static>(server: &Server, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = channel();
    let call = LoopCall(Box::new(move || drop(sender.send(act()))));
    let sent = server.handle.devices().send(0, Command::Call(call));
    sent.expect("the loop runs");
    result.recv().expect("the loop runs")
}

/// Makes a system call, and returns its error number.
fn errno_of(number: libc::c_long, arguments: [usize; 6]) -> i32 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the calls of these tests take constant strings, zeroes, or no memory.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result >= 0 {
        return 0;
    }
    let error = io::Error::last_os_error();
    error.raw_os_error().expect("of a system call")
}

/// Makes a system call, and returns its name and its error number.
fn call(name: &'static str, number: libc::c_long, arguments: &[usize]) -> (&'static str, i32) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    (name, errno_of(number, all))
}

/// Runs a function on the thread for TLS handshakes, and returns its result.
fn on_tls_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let threads = TlsThreads::start(true).expect("threads");
    let (sender, result) = channel();
    threads.spawn_handshake(async move { drop(sender.send(act())) });
    result.recv().expect("the thread runs")
}

/// Calls of `fcntl(2)` that have the kernel send signals, or change a file for other processes.
fn calls_of_fcntl() -> Vec<(&'static str, i32)> {
    let none = usize::MAX;
    [
        ("F_SETOWN", libc::F_SETOWN),
        ("F_SETSIG", 10),
        ("F_SETLEASE", libc::F_SETLEASE),
        ("F_NOTIFY", libc::F_NOTIFY),
        ("F_SETPIPE_SZ", libc::F_SETPIPE_SZ),
        ("F_ADD_SEALS", libc::F_ADD_SEALS),
        ("F_SETLK", libc::F_SETLK),
        ("F_DUPFD", libc::F_DUPFD),
    ]
    .map(|(name, command)| call(name, libc::SYS_fcntl, &[none, command as usize]))
    .into()
}

/// Flags by which writes to an open file would go elsewhere or fail, and calls that clear them.
fn calls_for_file_flags() -> Vec<(&'static str, i32)> {
    let (none, set) = (usize::MAX, libc::F_SETFL as usize);
    [
        ("O_APPEND", libc::O_APPEND),
        ("O_DIRECT", libc::O_DIRECT),
        ("O_ASYNC", libc::O_ASYNC),
        ("O_NOATIME", libc::O_NOATIME),
        ("O_APPEND and O_NONBLOCK", libc::O_APPEND | libc::O_NONBLOCK),
        // Clear those that are set.
        ("no flag", 0),
        ("O_NONBLOCK", libc::O_NONBLOCK),
    ]
    .map(|(name, flags)| call(name, libc::SYS_fcntl, &[none, set, flags as usize]))
    .into()
}

/// Actions of signals that are set: by handlers that other threads, without the sandbox, would run,
/// or in place of the daemon's own.
fn calls_for_signals() -> Vec<(&'static str, i32)> {
    // Without the filter the kernel would look for an action there, and find no memory.
    let nowhere = 1;
    [
        ("SIGSYS", libc::SIGSYS),
        ("SIGBUS", libc::SIGBUS),
        ("SIGABRT", libc::SIGABRT),
        ("SIGHUP", libc::SIGHUP),
        ("SIGTERM", libc::SIGTERM),
        ("SIGCHLD", libc::SIGCHLD),
        ("SIGXFSZ", libc::SIGXFSZ),
    ]
    .map(|(name, signal)| {
        let set = [signal as usize, nowhere, 0, SIGNAL_SET];
        call(name, libc::SYS_rt_sigaction, &set)
    })
    .into()
}

/// Checks what a thread may do with actions of signals.
fn check_ordinary_calls_for_signals(errno_of: impl Fn(libc::c_long, [usize; 6]) -> i32) {
    let action = |signal: libc::c_int, set: usize| {
        let arguments = [signal as usize, set, 0, SIGNAL_SET, 0, 0];
        errno_of(libc::SYS_rt_sigaction, arguments)
    };
    // The kernel looks for the action, and finds no memory.
    assert_eq!(action(libc::SIGSEGV, 1), libc::EFAULT);
    for signal in [libc::SIGSYS, libc::SIGBUS, libc::SIGTERM] {
        assert_eq!(action(signal, 0), 0, "reads that of {signal}");
    }
}

/// Calls by which injected code would send datagrams to services of the host.
fn calls_for_datagrams() -> Vec<(&'static str, i32)> {
    let (unix, datagrams) = (libc::AF_UNIX as usize, libc::SOCK_DGRAM as usize);
    let packets = libc::SOCK_SEQPACKET as usize;
    // Without the filter the kernel would look for an address, and there is no such descriptor.
    let address = [usize::MAX, 0, 0, 0, PASSWORDS.as_ptr() as usize, 16];
    vec![
        call(
            "pair for datagrams",
            libc::SYS_socketpair,
            &[unix, datagrams],
        ),
        call("pair for packets", libc::SYS_socketpair, &[unix, packets]),
        call("sendto an address", libc::SYS_sendto, &address),
    ]
}

/// Calls by which injected code would reach files, sockets and programs.
fn calls_for_files() -> Vec<(&'static str, i32)> {
    let path = PASSWORDS.as_ptr() as usize;
    // Where it is not refused it takes the place of the tests, whose end has to be a failure then.
    let program = c"/bin/false".as_ptr() as usize;
    let at = libc::AT_FDCWD as usize;
    let (inet, stream) = (libc::AF_INET as usize, libc::SOCK_STREAM as usize);
    vec![
        call("openat", libc::SYS_openat, &[at, path]),
        call("openat2", libc::SYS_openat2, &[at, path, 0, 24]),
        call("unlinkat", libc::SYS_unlinkat, &[at, path, 1 << 20]),
        call("mkdirat", libc::SYS_mkdirat, &[at, path]),
        call("ftruncate", libc::SYS_ftruncate, &[usize::MAX]),
        call("mount", libc::SYS_mount, &[]),
        call("socket", libc::SYS_socket, &[inet, stream]),
        call("connect", libc::SYS_connect, &[usize::MAX]),
        call("pidfd_getfd", libc::SYS_pidfd_getfd, &[usize::MAX]),
        call("io_uring_setup", libc::SYS_io_uring_setup, &[1]),
        call("execve", libc::SYS_execve, &[program]),
        call("execveat", libc::SYS_execveat, &[at, program]),
    ]
}

/// Calls by which injected code would reach processes, rights and code.
fn calls_for_processes() -> Vec<(&'static str, i32)> {
    let own = std::process::id() as usize;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let (attach, user) = (libc::PTRACE_ATTACH as usize, libc::CLONE_NEWUSER as usize);
    let cores = libc::RLIMIT_CORE as usize;
    let abort = libc::SIGABRT as usize;
    let code = [0, 4096, executable, anonymous, usize::MAX];
    vec![
        // There is no such process, so without the filter the call fails with another error.
        call("ptrace", libc::SYS_ptrace, &[attach, 0]),
        call("process_vm_readv", libc::SYS_process_vm_readv, &[own]),
        call("process_vm_writev", libc::SYS_process_vm_writev, &[own]),
        call("kill", libc::SYS_kill, &[own]),
        call(
            "tgkill of another process",
            libc::SYS_tgkill,
            &[1, 1, abort],
        ),
        // Signal 0 is none, and only asks whether the thread is there.
        call("tgkill that ends nothing", libc::SYS_tgkill, &[own, own, 0]),
        call("fork", libc::SYS_clone, &[libc::SIGCHLD as usize]),
        call("setuid", libc::SYS_setuid, &[]),
        call("unshare", libc::SYS_unshare, &[user]),
        call("bpf", libc::SYS_bpf, &[]),
        call("mmap of code", libc::SYS_mmap, &code),
        call("mprotect of code", libc::SYS_mprotect, &code[..3]),
        // Limits are read, but not set; those of other processes not even read.
        call("setrlimit", libc::SYS_prlimit64, &[0, cores, 1 << 32]),
        call("prlimit", libc::SYS_prlimit64, &[1, cores]),
        call("prctl", libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as usize]),
    ]
}

#[test]
fn system_calls_that_an_event_loop_does_not_make_fail_and_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    let before = count();
    let results = on_loop(&server, || {
        [
            calls_for_files(),
            calls_for_processes(),
            calls_of_fcntl(),
            calls_for_signals(),
        ]
        .concat()
    });
    for (name, errno) in &results {
        assert_eq!(*errno, libc::EPERM, "{name}");
    }
    assert!(count() >= before + results.len() as u64);
    // The answer of a kernel that does not have it, so that threads are started another way.
    let clone3 = on_loop(&server, || errno_of(libc::SYS_clone3, [0; 6]));
    assert_eq!(clone3, libc::ENOSYS);
    // The loop goes on.
    let mut client = server.connect("disk");
    client.write(0, &[7; 8192]);
    assert_eq!(client.read(0, 8192), [7; 8192]);
    client.disconnect();
    server.stop().expect("an end in order");
}

#[test]
fn the_commands_of_fcntl_that_an_event_loop_uses_are_allowed() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    let none = usize::MAX;
    for command in [
        libc::F_DUPFD_CLOEXEC,
        libc::F_SETFD,
        libc::F_GETFD,
        libc::F_OFD_SETLK,
    ] {
        let errno = on_loop(&server, move || {
            errno_of(libc::SYS_fcntl, [none, command as usize, 0, 0, 0, 0])
        });
        // The kernel looks at the command, and there is no such descriptor.
        assert_eq!(errno, libc::EBADF, "{command}");
    }
    check_ordinary_calls_for_signals(|number, arguments| {
        on_loop(&server, move || errno_of(number, arguments))
    });
    server.stop().expect("an end in order");
}

#[test]
fn system_calls_that_a_thread_for_tls_does_not_make_fail_and_are_counted() {
    let before = count();
    let results = on_tls_thread(|| {
        let none = usize::MAX;
        let own = vec![
            // What loops may do, and these may not.
            call("pread64", libc::SYS_pread64, &[none]),
            call("io_uring_enter", libc::SYS_io_uring_enter, &[none]),
            call("fallocate", libc::SYS_fallocate, &[none]),
            call("ioctl", libc::SYS_ioctl, &[none, libc::TIOCSTI as usize]),
            call(
                "socketpair",
                libc::SYS_socketpair,
                &[libc::AF_INET as usize],
            ),
            call("accept4", libc::SYS_accept4, &[none]),
            call("sendmsg", libc::SYS_sendmsg, &[none]),
        ];
        [
            own,
            calls_for_datagrams(),
            calls_for_files(),
            calls_for_processes(),
            calls_of_fcntl(),
            calls_for_signals(),
        ]
        .concat()
    });
    for (name, errno) in &results {
        assert_eq!(*errno, libc::EPERM, "{name}");
    }
    assert!(count() >= before + results.len() as u64);
    check_ordinary_calls_for_signals(|number, arguments| {
        on_tls_thread(move || errno_of(number, arguments))
    });
    let clone3 = on_tls_thread(|| errno_of(libc::SYS_clone3, [0; 6]));
    assert_eq!(clone3, libc::ENOSYS);
}

#[test]
fn system_calls_that_a_vhost_user_session_does_not_make_fail_and_its_assistant_makes_them() {
    let assistant = Assistant::start(None).expect("a thread");
    // SAFETY: makes a descriptor, which nothing else has.
    let eventfd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let before = count();
    let session = std::thread::spawn(move || {
        confine(ThreadKind::VhostUser);
        let none = usize::MAX;
        let own = vec![
            call("pread64", libc::SYS_pread64, &[none]),
            call("io_uring_enter", libc::SYS_io_uring_enter, &[none]),
            call("readlinkat", libc::SYS_readlinkat, &[none]),
            call("memfd_create", libc::SYS_memfd_create, &[]),
            call("accept4", libc::SYS_accept4, &[none]),
            call("ioctl", libc::SYS_ioctl, &[none, libc::TIOCSTI as usize]),
        ];
        let flags = calls_for_file_flags();
        check_ordinary_calls_for_signals(errno_of);
        // The kernel looks at the command, and there is no such descriptor.
        let blocks = errno_of(libc::SYS_ioctl, [none, libc::FIONBIO as usize, 0, 0, 0, 0]);
        assert_eq!(blocks, libc::EBADF);
        // Which its link below /proc tells.
        let is_eventfd = assistant.is_eventfd(eventfd.as_raw_fd());
        let refused = [
            own,
            calls_for_datagrams(),
            flags,
            calls_for_files(),
            calls_for_processes(),
            calls_of_fcntl(),
            calls_for_signals(),
        ];
        (refused.concat(), is_eventfd)
    });
    let (results, is_eventfd) = session.join().expect("no panic");
    for (name, errno) in &results {
        assert_eq!(*errno, libc::EPERM, "{name}");
    }
    assert!(count() >= before + results.len() as u64);
    assert!(is_eventfd.expect("it has all rights"));
}

#[test]
fn without_the_sandbox_a_thread_for_tls_can_open_files() {
    let threads = TlsThreads::start(false).expect("threads");
    let (sender, result) = channel();
    threads.spawn_handshake(async move {
        drop(sender.send(std::fs::File::open("/etc/passwd").map(drop)));
    });
    let opened = result.recv().expect("the thread runs");
    opened.expect("the thread has all rights");
}

/// Only the first memory that a process gives back can be refused: without `settle_allocator` the
/// test fails where it runs alone.
#[test]
fn memory_that_an_event_loop_gives_back_raises_no_alarm() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    let thread = on_loop(&server, || {
        allocate_and_free();
        // SAFETY: takes no memory.
        unsafe { libc::gettid() }
    });
    assert_ne!(violations::last_thread(libc::SYS_openat), thread);
    server.stop().expect("an end in order");
}

/// Only one allocation of a process counts the processors: without `settle_allocator` the test
/// fails where it runs alone.
#[test]
fn memory_of_many_threads_that_an_event_loop_starts_raises_no_alarm() {
    const THREADS: usize = 24;
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    let threads = on_loop(&server, || {
        let all_have_memory = std::sync::Barrier::new(THREADS);
        let allocate = || {
            let memory = std::hint::black_box(vec![1u8; 100]);
            // An arena of a thread that has ended is used again.
            all_have_memory.wait();
            drop(memory);
            // SAFETY: takes no memory.
            unsafe { libc::gettid() }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(allocate)).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|id| id.expect("no panic")).collect::<Vec<_>>()
        })
    });
    assert!(!threads.contains(&violations::last_thread(libc::SYS_openat)));
    server.stop().expect("an end in order");
}

#[test]
fn a_thread_that_a_loop_starts_is_confined_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    let opened = on_loop(&server, || {
        let thread = std::thread::Builder::new().name("inner".into());
        let inner = thread.spawn(|| errno_of(libc::SYS_openat, [0; 6]));
        inner
            .expect("threads are allowed")
            .join()
            .expect("no panic")
    });
    assert_eq!(opened, libc::EPERM);
    server.stop().expect("an end in order");
}

#[test]
fn without_the_sandbox_an_event_loop_can_open_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = memory_disk(dir.path());
    config.daemon.sandbox = false;
    let server = Server::start(config);
    let opened = on_loop(&server, || std::fs::File::open("/etc/passwd").map(drop));
    opened.expect("the thread has all rights");
    server.stop().expect("an end in order");
}

#[test]
fn landlock_alone_refuses_files_and_sockets() {
    let (version, opened, bound) = std::thread::spawn(|| {
        let version = landlock::refuse_all();
        let opened = std::fs::File::open("/etc/passwd").map(drop);
        let bound = std::net::TcpListener::bind("127.0.0.1:0").map(drop);
        (version, opened, bound)
    })
    .join()
    .expect("no panic");
    let refused = |result: io::Result<()>| result.map_err(|error| error.raw_os_error());
    match version {
        Ok(version) => {
            assert_eq!(refused(opened), Err(Some(libc::EACCES)));
            let expected = if version >= 4 {
                Err(Some(libc::EACCES))
            } else {
                Ok(())
            };
            assert_eq!(refused(bound), expected);
        }
        Err(why) => {
            assert!(!why.is_empty(), "the log would not say why");
            opened.expect("this kernel refuses nothing");
        }
    }
}

#[test]
fn refused_calls_are_logged_with_the_thread_and_once() {
    /// Log as a text.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(memory_disk(dir.path()));
    // Calls that no other test makes, so that only this one counts them.
    let errno = on_loop(&server, || errno_of(libc::SYS_acct, [0; 6]));
    assert_eq!(errno, libc::EPERM);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        // Its clock moves on whenever everything waits.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        // Ten looks, of which the first one finds the call.
        runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_secs(10), report()).await;
        });
    });
    let text = log.0.lock().expect("no panic").clone();
    let text = String::from_utf8(text).expect("text");
    let line = format!("system_call={} times=1 thread=\"loop ", libc::SYS_acct);
    assert_eq!(text.matches(&line).count(), 1, "{text}");
    assert!(text.contains("ERROR"), "{text}");
    server.stop().expect("an end in order");
}

/// Name of the variable that says what a process of one test alone is to do.
const ALONE: &str = "TIDEGATE_TEST_ALONE";

/// Runs a test of this module in a process of its own, with [`ALONE`] set. Returns how it ended.
fn run_alone(test: &str, what: &str) -> std::process::ExitStatus {
    let own = std::env::current_exe().expect("this test has a file");
    let name = format!("sandbox::tests::{test}");
    let mut child = std::process::Command::new(own)
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, what)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("ours") {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("ours");
            child.wait().expect("ours");
            panic!("{what}: the process has not ended");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The allocator gives memory back from a threshold on, which grows with mappings that are freed.
#[test]
fn memory_that_is_given_back_after_long_mappings_raises_no_alarm() {
    const TEST: &str = "memory_that_is_given_back_after_long_mappings_raises_no_alarm";
    if std::env::var_os(ALONE).is_none() {
        let status = run_alone(TEST, "free");
        return assert!(status.success(), "{status}");
    }
    drop(black_box(vec![1u8; 20 << 20]));
    let thread = std::thread::spawn(|| {
        confine(ThreadKind::EventLoop);
        allocate_and_free();
    });
    thread.join().expect("no panic");
    assert_eq!(count(), 0);
}

/// Confined threads may not set the actions of most signals, on which ends of processes rely: the
/// process must not fault again and again instead.
#[test]
fn a_confined_thread_that_aborts_panics_or_faults_ends_as_it_should() {
    const TEST: &str = "a_confined_thread_that_aborts_panics_or_faults_ends_as_it_should";
    if let Ok(ending) = std::env::var(ALONE) {
        return end_by(&ending);
    }
    for (ending, signal, code) in [
        ("abort", Some(libc::SIGABRT), None),
        ("panic", None, Some(0)),
        ("fault", Some(libc::SIGSEGV), None),
        // SIGBUS keeps its handler, which ends the process another way.
        ("file cut short", Some(libc::SIGABRT), None),
        ("SIGSYS of a process", Some(libc::SIGSYS), None),
        ("overflow", Some(libc::SIGABRT), None),
    ] {
        let status = run_alone(TEST, ending);
        assert_eq!((status.signal(), status.code()), (signal, code), "{ending}");
    }
}

/// Ends this process on a confined thread.
fn end_by(ending: &str) {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads a structure of ours. The process ends below and is not to leave a core behind.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    let file = tempfile::tempfile().expect("a file");
    let ending = ending.to_owned();
    let thread = std::thread::spawn(move || {
        confine(ThreadKind::EventLoop);
        match &ending[..] {
            "abort" => std::process::abort(),
            "panic" => panic!("on purpose"),
            "fault" => read_nothing(),
            "file cut short" => read_mapping_of(&file),
            "SIGSYS of a process" => raise(libc::SIGSYS),
            "overflow" => _ = black_box(recurse(1)),
            other => panic!("{other}"),
        }
    });
    thread
        .join()
        .expect_err("the process has ended, or the thread panicked");
}

/// Reads at an address at which nothing is.
fn read_nothing() {
    let nowhere = std::ptr::without_provenance::<u8>(8);
    // SAFETY: none, on purpose: the kernel answers with a signal.
    black_box(unsafe { std::ptr::read_volatile(nowhere) });
}

/// Sends a signal to this thread.
fn raise(signal: libc::c_int) {
    // SAFETY: takes no memory.
    unsafe { libc::raise(signal) };
}

/// Reads a page of a mapping of an empty file.
fn read_mapping_of(file: &std::fs::File) {
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping, which is never removed; there is no page that could be read.
    unsafe {
        let flags = libc::MAP_SHARED;
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, fd, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::read_volatile(page.cast::<u8>());
    }
}

/// Calls itself until the stack is full.
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if depth == 0 {
        return 0;
    }
    recurse(depth + 1) + frame[7]
}
