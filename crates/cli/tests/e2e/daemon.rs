//! A daemon for the length of a test.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, process, thread};

/// Starts a daemon on what a directory has.
fn spawn_child(program: &mut Command, scratch: &Scratch, options: &[&str]) -> Child {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(scratch.join("log"))
        .expect("the directory is ours");
    program
        .arg("serve")
        .args(options)
        .arg(scratch.join("tidegate.toml"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor is left"))
        .stderr(log)
        .spawn()
        .expect("cargo built the binary")
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    // The shell's own `kill`, for not every machine has the program.
    let command = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &command]).status();
    assert!(status.expect("there is a shell").success(), "{command}");
}

/// Nothing here takes this long unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Backing of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Bytes in memory.
    Memory,
    /// A sparse file, made by the daemon.
    File,
    /// Bytes in memory that come when the model of a hard disk says so.
    Emulated,
    /// Emulated disk with its data in a sparse file.
    EmulatedFile,
}

impl Backing {
    /// A device called `disk`. `more`: further fields.
    pub(crate) fn device(self, more: &str) -> String {
        let kind = match self {
            Backing::Memory => "kind = \"memory\"",
            Backing::File => "kind = \"file\"",
            Backing::Emulated | Backing::EmulatedFile => {
                "kind = \"emulated\"\nmodel = \"hdd-7200-1tb\""
            }
        };
        format!("[[device]]\nname = \"disk\"\n{kind}\n{more}\n")
    }

    /// A VM on that device with one disk, exported under the VM's name. `more`: further fields of
    /// the disk.
    pub(crate) fn vm(self, name: &str, size: &str, more: &str) -> String {
        format!("[[vm]]\nname = \"{name}\"\n{}", self.disk(name, size, more))
    }

    /// A disk of the VM before it.
    pub(crate) fn disk(self, name: &str, size: &str, more: &str) -> String {
        let path = match self {
            Backing::Memory | Backing::Emulated => String::new(),
            Backing::File | Backing::EmulatedFile => {
                format!("path = \"{name}.raw\"\ncreate = \"sparse\"\n")
            }
        };
        format!("[[vm.disk]]\nexport = \"{name}\"\nsize = \"{size}\"\n{path}{more}\n")
    }

    /// Returns true if every random request takes milliseconds.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Backing::Emulated | Backing::EmulatedFile)
    }
}

/// A directory that goes when the test ends.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short: a unix socket's path has room for 107 bytes.
        let path = env::temp_dir().join(format!("tidegate-e2e-{}-{n}", process::id()));
        fs::create_dir(&path).expect("the directory is new");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `tidegate serve`. It is ended when this is dropped, and its log is shown if the test
/// failed.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    scratch: Option<Scratch>,
}

impl Daemon {
    /// Serves `config`, to which a control socket and a unix listener for all exports are added,
    /// and waits until it listens.
    pub(crate) fn start(config: &str) -> Daemon {
        Daemon::start_in(Scratch::new(), config)
    }

    pub(crate) fn start_in(scratch: Scratch, config: &str) -> Daemon {
        let mut daemon = Daemon::begin_in(scratch, config);
        if let Err(status) = daemon.listens() {
            panic!("the daemon ended at once: {status}");
        }
        daemon
    }

    /// Serves `config` as a user and group, whose directory it is. Only root can.
    pub(crate) fn start_as(user: u32, scratch: Scratch, config: &str) -> Daemon {
        // The user may have no access to the directory of the build.
        let program = scratch.join("tidegate");
        let built = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        if fs::hard_link(built, &program).is_err() {
            fs::copy(built, &program).expect("room for the binary");
        }
        Daemon::start_by(Command::new(program).uid(user).gid(user), scratch, config)
    }

    /// Serves `config` with variables of the environment.
    pub(crate) fn start_with(variables: &[(&str, &str)], config: &str) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.envs(variables.iter().copied());
        Daemon::start_by(&mut command, Scratch::new(), config)
    }

    fn start_by(program: &mut Command, scratch: Scratch, config: &str) -> Daemon {
        write_config(&scratch, config);
        let mut daemon = Daemon::spawn_by(program, scratch);
        if let Err(status) = daemon.listens() {
            panic!("the daemon ended at once: {status}");
        }
        daemon
    }

    /// Starts a daemon without waiting for its sockets.
    pub(crate) fn begin_in(scratch: Scratch, config: &str) -> Daemon {
        write_config(&scratch, config);
        Daemon::spawn(scratch)
    }

    /// Starts the program on what the directory has.
    fn spawn(scratch: Scratch) -> Daemon {
        Daemon::spawn_by(&mut Command::new(env!("CARGO_BIN_EXE_tidegate")), scratch)
    }

    fn spawn_by(program: &mut Command, scratch: Scratch) -> Daemon {
        let child = spawn_child(program, &scratch, &[]);
        Daemon {
            child,
            scratch: Some(scratch),
        }
    }

    /// Starts a daemon that takes this one over.
    pub(crate) fn spawn_next(&self) -> Child {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        spawn_child(&mut program, self.scratch(), &["--takeover"])
    }

    /// Puts a daemon that was started in the place of this one, which has ended.
    pub(crate) fn replace(&mut self, next: Child) {
        self.child = next;
    }

    /// Starts a daemon that takes this one over. Returns the exit status of the one that ends:
    /// `Ok` if it is this one, which the new one then replaces.
    pub(crate) fn take_over(&mut self) -> Result<ExitStatus, ExitStatus> {
        let mut next = self.spawn_next();
        let mut ended = None;
        wait_for("one of both daemons to end", || {
            let old = self.exited().map(Ok);
            ended = old.or_else(|| next.try_wait().expect("it is our child").map(Err));
            ended.is_some()
        });
        let ended = ended.expect("waited for");
        if ended.is_ok() {
            self.child = next;
        }
        ended
    }

    /// Waits until it listens, or has ended.
    fn listens(&mut self) -> Result<(), ExitStatus> {
        let sockets = ["nbd.sock", "control.sock"].map(|name| self.path(name));
        let mut ended = None;
        wait_for("the daemon to listen", || {
            ended = self.exited();
            ended.is_some() || sockets.iter().all(|path| UnixStream::connect(path).is_ok())
        });
        ended.map_or(Ok(()), Err)
    }

    /// Connects to one of the daemon's sockets. Reads and writes that take longer than [`DEADLINE`]
    /// fail: a test that waits for a daemon that hangs must fail, and say so.
    pub(crate) fn connect(&self, socket: &str) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.path(socket))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(stream)
    }

    /// A file in the daemon's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch().join(name)
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        self.scratch.as_ref().expect("taken only by the end")
    }

    /// Returns the NBD URI of an export.
    pub(crate) fn uri(&self, export: &str) -> String {
        let socket = self.path("nbd.sock");
        format!("nbd+unix:///{export}?socket={}", socket.display())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns true if a line of the log contains all words.
    pub(crate) fn logged(&self, words: &[&str]) -> bool {
        let log = self.log();
        log.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }

    /// Memory in use, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS")
    }

    /// Bytes of resident memory that the process has allocated or mapped: without the pages of its
    /// program, of which more are there with each function that it runs for the first time.
    pub(crate) fn allocated(&self) -> u64 {
        self.memory("RssAnon") + self.memory("RssShmem")
    }

    /// Bytes of a kind of memory, by its name in `/proc/PID/status`.
    fn memory(&self, kind: &str) -> u64 {
        let status = fs::File::open(format!("/proc/{}/status", self.pid())).expect("it runs");
        let kib = BufReader::new(status)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let figure = line.strip_prefix(kind)?.strip_prefix(':')?;
                figure.split_whitespace().next()?.parse::<u64>().ok()
            })
            .expect("every process with memory has this line");
        kib << 10
    }

    /// Returns the exit status, if the daemon has ended.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Sends a signal by the number of the process.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the daemon to end", || {
            status = self.exited();
            status.is_some()
        });
        status.expect("waited for")
    }

    /// Ends it with SIGTERM, which must succeed, and starts it again on the same directory.
    pub(crate) fn restart(mut self) -> Daemon {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "on SIGTERM it ended with {status}");
        self.start_again()
    }

    /// Ends the daemon with SIGTERM and starts it again. The start must fail; returns its exit
    /// status.
    pub(crate) fn restart_in_vain(mut self) -> (Daemon, ExitStatus) {
        self.signal("TERM");
        self.wait();
        self.start_in_vain()
    }

    /// Starts an ended daemon again. The start must fail; returns its exit status.
    pub(crate) fn start_in_vain(mut self) -> (Daemon, ExitStatus) {
        let mut daemon = Daemon::spawn(self.scratch.take().expect("not taken yet"));
        let status = daemon.wait();
        (daemon, status)
    }

    /// Starts an ended daemon again, and waits until it listens.
    pub(crate) fn start_again(mut self) -> Daemon {
        let mut daemon = Daemon::spawn(self.scratch.take().expect("not taken yet"));
        if let Err(status) = daemon.listens() {
            panic!("the daemon did not start again: {status}");
        }
        daemon
    }

    /// Kills it while the kernel holds some of its I/O, which may keep the process, too, and starts
    /// it again. Calls `release` with the next daemon once that has found out that it must wait.
    pub(crate) fn crash_while(mut self, release: impl FnOnce(&Daemon)) -> Daemon {
        self.signal("KILL");
        let next = Daemon::spawn(self.scratch.take().expect("not taken yet"));
        // Either the first daemon's sockets are still there, or its lock.
        wait_for("the next daemon to wait", || {
            next.logged(&["another process listens"])
                || next.logged(&["another process has locked"])
        });
        release(&next);
        self.wait();
        next.until_it_listens()
    }

    /// Kills it and starts it again, as often as whoever supervises it would: the kernel gives
    /// back the locks on a killed daemon's disks only once its last I/O has ended.
    pub(crate) fn crash(mut self) -> Daemon {
        self.signal("KILL");
        self.wait();
        Daemon::spawn(self.scratch.take().expect("not taken yet")).until_it_listens()
    }

    /// Starts it again as long as what a killed daemon had is in use.
    fn until_it_listens(self) -> Daemon {
        let mut daemon = self;
        wait_for("the daemon to start again", || match daemon.listens() {
            Ok(()) => true,
            Err(status) => {
                assert!(
                    daemon.logged(&["in use by another process"])
                        || daemon.logged(&["another process listens"]),
                    "the daemon did not start again: {status}"
                );
                daemon = Daemon::spawn(daemon.scratch.take().expect("not taken yet"));
                false
            }
        });
        daemon
    }

    /// Ends it in order, which must succeed. Every test but those that end it otherwise does.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "on SIGTERM it ended with {status}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill(&mut self.child, "the daemon");
        if thread::panicking() && self.scratch.is_some() {
            let mut text = String::new();
            let _ = writeln!(text, "---- log of the daemon ----\n{}", self.log());
            eprint!("{text}");
        }
    }
}

/// Writes the configuration with a control socket and a unix listener for all exports.
fn write_config(scratch: &Scratch, config: &str) {
    let mut text =
        String::from("[control]\nsocket = \"control.sock\"\n\n[[listen]]\nunix = \"nbd.sock\"\n\n");
    text.push_str(config);
    fs::write(scratch.join("tidegate.toml"), text).expect("the directory is ours");
}

/// Kills a process, and waits until it has ended: not for ever, for the kernel may hold it in a
/// system call.
pub(crate) fn kill(child: &mut Child, name: &str) {
    let _ = child.kill();
    let deadline = Instant::now() + DEADLINE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            eprintln!(
                "{name}, process {}, was killed and does not end",
                child.id()
            );
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Polls `condition` until it holds. Panics if it takes too long.
pub(crate) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_at_most(DEADLINE, what, condition);
}

/// Waits for a condition like [`wait_for`], with a longer time-out.
pub(crate) fn wait_at_most(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Bytes that are the same for the same seed and compress badly.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
