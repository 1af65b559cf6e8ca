//! Fuzz target `vhost_session`: a front-end that sends anything, and its guest, beside a neighbour.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::Notify;

use super::guest::{
    ADD_MEM_REG, AVAILABLE, Body, CHECK_DEVICE_STATE, DATA, Driver, ENTRIES, FrontEnd, GET_CONFIG,
    GET_FEATURES, GET_INFLIGHT_FD, GET_MAX_MEM_SLOTS, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM,
    GET_VRING_BASE, GUEST, LOG_ALL, MEMORY, NEED_REPLY, PATIENCE, PROTOCOL_FEATURES, QUEUE_BYTES,
    QUEUES, REM_MEM_REG, RESET_DEVICE, RESET_OWNER, SET_BACKEND_REQ_FD, SET_CONFIG,
    SET_DEVICE_STATE_FD, SET_FEATURES, SET_INFLIGHT_FD, SET_LOG_BASE, SET_LOG_FD, SET_MEM_TABLE,
    SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_CALL,
    SET_VRING_ENABLE, SET_VRING_ERR, SET_VRING_KICK, SET_VRING_NUM, Submission, TABLE, USED, USER,
    VERSION, eventfd, message, signal,
};
use crate::command::{Command, NewConnection};
use crate::config;
use crate::connections::VmConnections;
use crate::event_loop::{Files, LoopHandle, Prepared};
use crate::frontend::vhost_user::Session;
use crate::frontend::vhost_user::guest_memory::testing::named_memfd;
use crate::frontend::{Opening, Volume};
use crate::fuzz::Choices;
use crate::sigbus;

/// Two devices, each with a disk for the guest and one for its neighbour. Loops complete I/O on
/// memory at once and have files read and written by the kernel's workers.
const DEVICES: &str = r#"
[[listen]]
unix = "unused"
[[device]]
name = "memory"
kind = "memory"
[[device]]
name = "files"
kind = "file"
[[vm]]
name = "a"
device = "memory"
[[vm.disk]]
size = "1 MiB"
[[vm]]
name = "b"
device = "memory"
[[vm.disk]]
size = "1 MiB"
[[vm]]
name = "c"
device = "files"
[[vm.disk]]
path = "c.raw"
create = "sparse"
size = "1 MiB"
[[vm]]
name = "d"
device = "files"
[[vm.disk]]
path = "d.raw"
create = "sparse"
size = "1 MiB"
"#;

/// Devices that all inputs of a process have in turn.
static DEVICE_PAIR: LazyLock<Mutex<Vec<Device>>> = LazyLock::new(|| Mutex::new(Device::start()));

/// Runs a session whose front-end and guest do what `data` says, until the front-end leaves.
///
/// # Panics
/// If the session or its loop panics or hangs, guest memory stays mapped or a file open, or the
/// neighbour on the device does not get its own bytes.
pub fn vhost_session(data: &[u8]) {
    // A panic of another test's says nothing about the next input.
    let mut devices = DEVICE_PAIR.lock().unwrap_or_else(PoisonError::into_inner);
    let mut choices = Choices::new(data);
    let index = usize::from(choices.byte() & 1);
    let device = &mut devices[index];
    let open = open_files();
    let guest = Guest::new();
    let name = guest.name.clone();
    let (session, volume) = (device.connect(0), &device.disks[0].0);
    let name_of_disk = volume.name.clone();
    guest.run(&mut choices, &session, device.offered);
    session.end();
    device.neighbour.check(&name_of_disk);
    let connections = &device.disks[0].1;
    wait_until("its place among the connections is not free", || {
        connections.counts().open == 0
    });
    assert!(!is_mapped(&name), "guest memory stays mapped");
    wait_until("files stay open", || open_files() == open);
}

/// Device with its loop.
struct Device {
    handle: LoopHandle,
    disks: Vec<(Volume, Arc<VmConnections>)>,
    /// Features and protocol features that it offers.
    offered: (u64, u64),
    neighbour: Neighbour,
}

impl Device {
    /// Starts both devices, with files in a directory that is removed at once.
    fn start() -> Vec<Device> {
        let dir = tempfile::tempdir().expect("a directory");
        let loaded = config::parse(DEVICES, "fuzz.toml", dir.path());
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let device = |index| {
            let prepared = Prepared::open(&config, index, &Files::default());
            let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
            let disks = prepared.volumes();
            let spawned = prepared.spawn((), Arc::new(Notify::new()), None);
            let (handle, _) = spawned.unwrap_or_else(|error| panic!("{error}"));
            Device::new(handle, disks)
        };
        let devices = [0, 1].map(device).into();
        AT_REST.store(sigbus::mappings(), Ordering::Relaxed);
        devices
    }

    fn new(handle: LoopHandle, disks: Vec<(Volume, Arc<VmConnections>)>) -> Device {
        let running = connect(&handle, &disks[0]);
        let ask = |code| {
            let question = message(code, VERSION, &Body::default());
            running.front_end.send(&question, &[]);
            running.front_end.number()
        };
        let features = ask(GET_FEATURES);
        assert!(features & PROTOCOL_FEATURES != 0);
        let offered = (features, ask(GET_PROTOCOL_FEATURES));
        running.end();
        let mut neighbour = Neighbour::start(connect(&handle, &disks[1]), offered);
        // After this check the first session's files are closed, and the neighbour is set up.
        neighbour.check("nobody");
        Device {
            handle,
            disks,
            offered,
            neighbour,
        }
    }

    fn connect(&self, disk: usize) -> Running {
        connect(&self.handle, &self.disks[disk])
    }
}

/// Starts a session of a front-end.
fn connect(handle: &LoopHandle, (volume, connections): &(Volume, Arc<VmConnections>)) -> Running {
    let (front_end, socket) = FrontEnd::pair();
    let current = volume.clone();
    let current = Box::new(move || Some(current.clone()));
    let (session, opening) =
        Session::new(socket, volume.clone(), current, connections.resources()).expect("a session");
    let new = NewConnection {
        opening: Opening::VhostUser(opening),
        serial: volume.serial,
        disk: volume.name.clone(),
        peer: "fuzzer".to_owned(),
        permit: connections.admit().expect("there is room"),
    };
    let sent = handle.send(Command::AddConnection(Box::new(new)));
    assert!(sent.is_ok(), "the loop has ended");
    let thread = std::thread::spawn(move || session.run(drop));
    Running { front_end, thread }
}

/// Session that runs on its thread.
struct Running {
    front_end: FrontEnd,
    thread: JoinHandle<()>,
}

impl Running {
    /// Leaves, and waits for the end of the session.
    fn end(self) {
        self.front_end.finish();
        // Whatever the reason of its end was.
        self.thread.join().expect("a session does not panic");
    }
}

/// Guest on the other disk of a device, whose bytes are compared.
struct Neighbour {
    running: Running,
    driver: Driver,
    writes: u8,
}

impl Neighbour {
    /// Offset of the data that is read, and its bytes.
    const READ: u64 = DATA + 0x1000;
    const BYTES: usize = 1536;

    fn start(running: Running, (features, protocol): (u64, u64)) -> Neighbour {
        let driver = Driver::new(named_memfd(c"neighbour", MEMORY));
        driver.start(&running.front_end, 1, (features & !LOG_ALL, protocol));
        Neighbour {
            running,
            driver,
            writes: 0,
        }
    }

    /// Writes a pattern to the disk and reads it back.
    fn check(&mut self, beside: &str) {
        self.writes = self.writes.wrapping_add(1);
        let pattern = [self.writes; Self::BYTES];
        self.driver.put(DATA, &pattern);
        for (kind, at) in [(1, DATA), (0, Self::READ)] {
            self.driver.submit(&Submission {
                queue: 0,
                slot: kind as u16,
                kind,
                sector: 7,
                data: (at, Self::BYTES as u32),
                through_table: kind == 1,
            });
            signal(&self.driver.kicks[0]);
            self.driver.wait(0);
            assert_eq!(self.driver.status(0, kind as u16), 0, "beside {beside}");
        }
        let mut read = [0; Self::BYTES];
        let memory = &self.driver.memory;
        memory.read_exact_at(&mut read, Self::READ).expect("inside");
        assert_eq!(read, pattern, "the neighbour's bytes beside {beside}");
        assert!(self.running.front_end.drain(), "the neighbour is cut off");
    }
}

/// Index of a socket among the files of a guest.
const SOCKET: usize = 7;

/// Guest under test with the files that its front-end may send.
struct Guest {
    /// Name of its memory files.
    name: String,
    driver: Driver,
    files: Vec<File>,
}

impl Guest {
    fn new() -> Guest {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("fuzzed-{}-", NUMBER.fetch_add(1, Ordering::Relaxed));
        let memfd = |len| named_memfd(&CString::new(&*name).expect("a name"), len);
        let (notices, _) = UnixStream::pair().expect("sockets");
        let files = vec![
            memfd(MEMORY),
            memfd(0x2001),
            eventfd(),
            pipe_end(),
            File::open("/dev/null").expect("a device"),
            File::open("/proc/self/exe").expect("a file on a disk"),
            File::open("/").expect("a directory"),
            File::from(OwnedFd::from(notices)),
        ];
        let driver = Driver::new(memfd(MEMORY));
        Guest {
            name,
            driver,
            files,
        }
    }

    fn run(mut self, choices: &mut Choices<'_>, session: &Running, offered: (u64, u64)) {
        while !choices.is_empty() {
            self.step(choices, &session.front_end, offered);
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>, to: &FrontEnd, offered: (u64, u64)) {
        match choices.byte() % 16 {
            0 => {
                let queues = 1 + usize::from(choices.byte()) % QUEUES;
                // Bits that are not taken of what is offered.
                let without = choices.u64() | LOG_ALL;
                self.driver
                    .start(to, queues, (offered.0 & !without, offered.1));
            }
            1..=4 => self.send(choices, to, offered),
            5 => {
                let files = self.choose_files(choices, 0);
                let len = choices.byte();
                to.send(choices.bytes(len.into()), &files);
            }
            6..=8 => self.submit(choices),
            9 => signal(&self.driver.kicks[usize::from(choices.byte()) % QUEUES]),
            10 => {
                let at = choices.u32() as u64 % MEMORY;
                let len = choices.byte() % 32;
                self.driver.put(at, choices.bytes(len.into()));
            }
            11 => {
                let queue = u64::from(choices.byte()) % QUEUES as u64;
                let table = queue * QUEUE_BYTES + if choices.byte() & 1 != 0 { TABLE } else { 0 };
                let (index, at) = (choices.below(ENTRIES), number(choices, GUEST + DATA));
                let len = number(choices, 512) as u32;
                let (flags, next) = (choices.below(8), choices.below(ENTRIES + 1));
                self.driver.describe(table, index, (at, len), flags, next);
            }
            12 => {
                let len = u64::from(choices.byte()) * 0x800;
                let file = if choices.byte() & 3 != 0 {
                    &self.driver.memory
                } else {
                    &self.files[0]
                };
                file.set_len(len).expect("room");
            }
            13 => to.settle(),
            14 => {
                let queue = usize::from(choices.byte()) % QUEUES;
                let base = choices.byte();
                self.driver.start_queue(to, queue, base.into());
            }
            _ => {
                to.drain();
                std::thread::yield_now();
            }
        }
    }

    /// Submits a request that keeps the rules, and kicks.
    fn submit(&mut self, choices: &mut Choices<'_>) {
        let [place, kind, sector, at] = [(); 4].map(|()| choices.byte());
        let queue = usize::from(place) % QUEUES;
        self.driver.submit(&Submission {
            queue,
            slot: u16::from(place >> 2 & 3),
            kind: [0, 1, 4, 8, 11, 13, 0, 1][usize::from(kind & 7)],
            sector: u64::from(sector),
            data: (
                DATA + u64::from(at) * 0x200,
                u32::from(choices.byte()) * 0x200,
            ),
            through_table: place & 16 != 0,
        });
        if place & 32 == 0 {
            signal(&self.driver.kicks[queue]);
        }
    }

    /// Sends a message whose fields are right or are not.
    fn send(&mut self, choices: &mut Choices<'_>, to: &FrontEnd, offered: (u64, u64)) {
        let form = choices.byte();
        let code = MESSAGES[usize::from(choices.byte()) % MESSAGES.len()];
        let (body, file) = self.body(code, choices, offered);
        let flags = VERSION | if form & 1 != 0 { NEED_REPLY } else { 0 };
        let mut bytes = message(code, flags, &body);
        let mut files: Vec<RawFd> = file.into_iter().collect();
        if form & 2 != 0 {
            files = self.choose_files(choices, files.len());
        }
        if form & 12 == 12 {
            // Flags or the length of the body are something else, or the message ends early.
            match choices.byte() & 3 {
                0 => bytes[4] = choices.byte(),
                1 => bytes[8..10].copy_from_slice(&choices.u16().to_le_bytes()),
                2 => bytes.extend(choices.bytes(24)),
                _ => bytes.truncate(usize::from(choices.byte())),
            }
        }
        to.send(&bytes, &files);
        if form & 16 != 0 {
            to.settle();
        }
    }

    /// Returns files for a message, of which there should be a number.
    fn choose_files(&self, choices: &mut Choices<'_>, expected: usize) -> Vec<RawFd> {
        let count = match choices.byte() % 16 {
            0..8 => expected,
            8..15 => usize::from(choices.byte() % 4),
            // More than a session takes.
            _ => usize::from(choices.byte() % 64),
        };
        let choose = |_| {
            let at = usize::from(choices.byte()) % (self.files.len() + 2);
            let other = [&self.driver.memory, &self.driver.kicks[0]];
            self.files
                .get(at)
                .unwrap_or_else(|| other[at % 2])
                .as_raw_fd()
        };
        (0..count).map(choose).collect()
    }

    /// Returns the body of a message, and the file that belongs to it.
    fn body(
        &self,
        code: u32,
        choices: &mut Choices<'_>,
        offered: (u64, u64),
    ) -> (Body, Option<RawFd>) {
        let body = Body::default();
        let file = Some(self.files[0].as_raw_fd());
        match code {
            SET_FEATURES => (body.u64(number(choices, offered.0)), None),
            SET_PROTOCOL_FEATURES => (body.u64(number(choices, offered.1)), None),
            SET_MEM_TABLE => (body.u32(1).u32(0).region(region(choices)), file),
            ADD_MEM_REG => (body.u64(0).region(region(choices)), file),
            REM_MEM_REG => (body.u64(0).region(region(choices)), None),
            GET_CONFIG => {
                let (offset, len) = (number(choices, 0), number(choices, 60));
                let mut body = body.u32(offset as u32).u32(len as u32).u32(0);
                body.0.resize(12 + (len as usize).min(512), 0);
                (body, None)
            }
            SET_CONFIG => {
                let (offset, len) = (number(choices, 32), number(choices, 1));
                let mut body = body.u32(offset as u32).u32(len as u32).u32(0);
                body.0.push(choices.byte());
                (body, None)
            }
            SET_LOG_BASE => (numbers(body, choices, &[0x1000, 0]), file),
            GET_INFLIGHT_FD | SET_INFLIGHT_FD => {
                let sizes = numbers(body, choices, &[0x1000, 0]);
                let queues = number(choices, 1) as u16;
                let entries = number(choices, ENTRIES.into()) as u16;
                let is_set = code == SET_INFLIGHT_FD;
                let body = sizes.u16(queues).u16(entries).u32(0);
                (body, file.filter(|_| is_set))
            }
            SET_BACKEND_REQ_FD => (body, Some(self.files[SOCKET].as_raw_fd())),
            SET_DEVICE_STATE_FD => (body.u64(number(choices, 0)), file),
            _ => self.queue_body(code, choices),
        }
    }

    /// Returns the body of a message about a queue, and the file that belongs to it; of any other
    /// message nothing.
    fn queue_body(&self, code: u32, choices: &mut Choices<'_>) -> (Body, Option<RawFd>) {
        let body = Body::default();
        let queue = usize::from(choices.byte()) % QUEUES;
        let index = number(choices, queue as u64);
        let mut state = |usual| {
            let num = number(choices, usual) as u32;
            Body::default().u32(index as u32).u32(num)
        };
        match code {
            SET_VRING_NUM => (state(ENTRIES.into()), None),
            SET_VRING_BASE | GET_VRING_BASE => (state(0), None),
            SET_VRING_ENABLE => (state(1), None),
            SET_VRING_ADDR => {
                let user = USER + queue as u64 * QUEUE_BYTES;
                let usual = [user, user + USED, user + AVAILABLE, 0];
                let start = state(0);
                (numbers(start, choices, &usual), None)
            }
            SET_VRING_KICK => (body.u64(index), Some(self.driver.kicks[queue].as_raw_fd())),
            SET_VRING_CALL | SET_VRING_ERR | SET_LOG_FD => {
                (body.u64(index), Some(self.driver.calls[queue].as_raw_fd()))
            }
            _ => (body, None),
        }
    }
}

/// Messages by the choice of one.
const MESSAGES: [u32; 29] = [
    GET_FEATURES,
    SET_FEATURES,
    SET_OWNER,
    RESET_OWNER,
    SET_MEM_TABLE,
    SET_LOG_BASE,
    SET_LOG_FD,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    GET_VRING_BASE,
    SET_VRING_KICK,
    SET_VRING_CALL,
    SET_VRING_ERR,
    GET_PROTOCOL_FEATURES,
    SET_PROTOCOL_FEATURES,
    GET_QUEUE_NUM,
    SET_VRING_ENABLE,
    GET_CONFIG,
    SET_CONFIG,
    GET_INFLIGHT_FD,
    SET_INFLIGHT_FD,
    RESET_DEVICE,
    GET_MAX_MEM_SLOTS,
    ADD_MEM_REG,
    REM_MEM_REG,
    SET_DEVICE_STATE_FD,
    CHECK_DEVICE_STATE,
    SET_BACKEND_REQ_FD,
];

/// Returns a number: the usual one for most choices.
fn number(choices: &mut Choices<'_>, usual: u64) -> u64 {
    match choices.byte() % 16 {
        0..10 => usual,
        10 => choices.byte().into(),
        11 => choices.u16().into(),
        12 => choices.u64(),
        13 => u64::MAX - u64::from(choices.byte()),
        14 => usual.wrapping_add(choices.byte().into()),
        _ => usual.wrapping_sub(choices.byte().into()),
    }
}

/// Appends numbers to a body, most of which are the usual ones.
fn numbers(body: Body, choices: &mut Choices<'_>, usual: &[u64]) -> Body {
    usual
        .iter()
        .fold(body, |body, &usual| body.u64(number(choices, usual)))
}

/// Returns a region: of all memory, or of some pages elsewhere.
fn region(choices: &mut Choices<'_>) -> [u64; 4] {
    let place = choices.byte();
    let shift = u64::from(place & 7) * MEMORY;
    let pages = match place >> 3 & 3 {
        0 | 1 => MEMORY,
        n => u64::from(n) * 0x1000,
    };
    let usual = [GUEST + shift, pages, USER + shift, 0];
    usual.map(|usual| number(choices, usual))
}

/// Returns the end of a pipe that is written.
fn pipe_end() -> File {
    let mut ends = [0; 2];
    // SAFETY: stores two descriptors in ours.
    let failed = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(failed, 0, "a pipe");
    // SAFETY: two descriptors with no other owner.
    let [read, write] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
    drop(read);
    write
}

fn wait_until(otherwise: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{otherwise}");
        std::thread::yield_now();
    }
}

/// Returns true if a mapping has a name.
fn is_mapped(name: &str) -> bool {
    // Without other tests the table of the handler knows it, too, at less cost.
    if cfg!(not(test)) {
        return sigbus::mappings() != AT_REST.load(Ordering::Relaxed);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the process's mappings");
    maps.contains(name)
}

/// Number of mappings without a guest: those of the neighbours, and of files on tmpfs.
static AT_REST: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of open files; 0 among other tests, which open some.
fn open_files() -> usize {
    if cfg!(test) {
        return 0;
    }
    let open: Vec<PathBuf> = std::fs::read_dir(Path::new("/proc/self/fd"))
        .expect("the process's files")
        .map(|entry| entry.expect("a file").path())
        .collect();
    open.len()
}
