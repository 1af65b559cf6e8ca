//! Daemon in the test process, and a blocking NBD client.
#![allow(dead_code, unreachable_pub)]

pub mod control;
pub mod process;
pub mod shadow;
pub mod store_model;
pub mod vhost_guest;
pub mod vhost_log;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use tidegate_config::device::Scheduling;
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::splitting::MaxIoShared;
use tidegate_nbd::client::{
    Decoded, Handshake, Negotiated, Progress, Reply, Wishes, decode_reply, encode_disconnect,
    encode_request,
};
use tidegate_nbd::{Command, Extent, NbdError, ReplyStyle, Request};
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{
    Config, ControlConfig, Create, DeviceConfig, DeviceKind, DiskConfig, DiskFormat, HistoryConfig,
    ListenAddress, ListenConfig, PathsConfig, SocketOwner, VmConfig,
};
use tidegate_server::daemon::{Daemon, DaemonHandle, RunError, Signals, StartError};
use tidegate_server::listener::Bound;
use tidegate_server::takeover::{Inherited, Taking};

/// Returns a configuration with one listener and no devices.
pub fn config(dir: &Path) -> Config {
    Config {
        paths: PathsConfig::of_directory(dir),
        daemon: Default::default(),
        control: ControlConfig::at(dir.join("control"), 0o600),
        store: None,
        file: None,
        sections: serde_json::Value::Null,
        history: HistoryConfig::beside(None),
        recording: None,
        exchange: None,
        metrics: Vec::new(),
        cluster: None,
        dashboards: Vec::new(),
        listeners: vec![ListenConfig {
            address: ListenAddress::Unix {
                path: dir.join("nbd"),
                mode: 0o600,
            },
            owner: SocketOwner::default(),
            exports: Vec::new(),
            tls: None,
            place: None,
        }],
        devices: Vec::new(),
        vms: Vec::new(),
    }
}

pub fn device(name: &str, kind: DeviceKind) -> DeviceConfig {
    DeviceConfig {
        array: None,
        name: name.into(),
        kind,
        names_policy: true,
        scheduling: Scheduling {
            max_io: 256 << 10,
            max_requests: 4096,
            max_pending_per_vm: 256,
            buffer_memory: 64 << 20,
            buffer_memory_per_vm: 32 << 20,
            adaptive_depth: false,
            max_io_shared: MaxIoShared::Off,
            ..Scheduling::new(PolicySpec::named("fifo").unwrap())
        },
        limit_groups: Vec::new(),
        place: None,
    }
}

pub fn disk(export: &str, path: Option<PathBuf>, size: u64) -> DiskConfig {
    DiskConfig {
        export: export.into(),
        path,
        within: None,
        size: Some(size),
        create: Create::Sparse,
        format: DiskFormat::Probe,
        read_only: false,
        nbd: None,
        incoming: false,
        block_size: 1,
        limit: Limit::NONE,
        limit_group: None,
        faults: Vec::new(),
        place: None,
    }
}

pub fn vm(name: &str, device: usize, disks: Vec<DiskConfig>) -> VmConfig {
    VmConfig {
        background: false,
        name: name.into(),
        device,
        objective: Objective::default(),
        schedule: None,
        // The device's maximum, because tests open more connections than guests do.
        max_connections: 4096,
        disks,
    }
}

/// Returns a request without `NBD_CMD_FLAG_FUA`.
pub fn request(command: Command, cookie: u64, offset: u64, len: u32) -> Request {
    Request {
        cookie,
        command,
        fua: false,
        offset,
        len,
    }
}

/// Returns a configuration with one device, and one VM with one disk, both named `disk`.
pub fn single(dir: &Path, kind: DeviceKind, path: Option<PathBuf>, size: u64) -> Config {
    let mut config = config(dir);
    config.devices.push(device("device", kind));
    config
        .vms
        .push(vm("disk", 0, vec![disk("disk", path, size)]));
    config
}

/// Reason why a daemon has not started.
pub type NotStarted = Box<dyn std::error::Error + Send + Sync>;

/// Running daemon; shut down when dropped.
pub struct Server {
    pub handle: DaemonHandle,
    pub socket: PathBuf,
    /// Addresses and paths of all listeners of NBD, in the order of the configuration.
    pub addresses: Vec<String>,
    runtime: tokio::runtime::Handle,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Server {
    pub fn start(config: Config) -> Server {
        Server::try_start(config).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Starts a daemon that a new one can take over at this path.
    pub fn start_offering(config: Config, offer: &Path) -> Server {
        let started = Server::start_with(config, Some(offer.to_owned()), None);
        started.unwrap_or_else(|e| panic!("{e}"))
    }

    /// Starts a daemon that takes over from the one that offers it at a path, and that can be taken
    /// over there as well.
    ///
    /// # Errors
    /// Why it does not take over.
    pub fn start_taking_over(config: Config, offer: &Path) -> Result<Server, NotStarted> {
        let (mut taking, inherited) = Taking::begin(offer, None)?;
        taking.prepare()?;
        let takeover = Some((taking, inherited));
        Server::start_with(config, Some(offer.to_owned()), takeover)
    }

    pub fn try_start(config: Config) -> Result<Server, StartError> {
        let started = Server::start_with(config, None, None);
        started.map_err(|error| *error.downcast().expect("the error of a start"))
    }

    fn start_with(
        config: Config,
        offer: Option<PathBuf>,
        takeover: Option<(Taking, Inherited)>,
    ) -> Result<Server, NotStarted> {
        let ListenAddress::Unix { path, .. } = &config.listeners[0].address else {
            panic!("the first listener is a unix socket")
        };
        let socket = path.clone();
        let (started, start) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let daemon = match start_daemon(config, offer, takeover).await {
                    Ok(daemon) => daemon,
                    Err(error) => {
                        started.send(Err(error)).unwrap();
                        return Ok(());
                    }
                };
                let addresses = daemon.listeners().map(|bound| bound.name().to_owned());
                let runtime = tokio::runtime::Handle::current();
                started
                    .send(Ok((daemon.handle(), runtime, addresses.collect())))
                    .unwrap();
                daemon.run().await.map(drop)
            })
        });
        let (handle, runtime, addresses) =
            start.recv().expect("the daemon starts or says why not")?;
        Ok(Server {
            handle,
            socket,
            addresses,
            runtime,
            thread: Some(thread),
        })
    }

    /// Has the daemon's runtime stand still until the returned sender is dropped. Threads of event
    /// loops, and threads that may block, go on.
    pub fn hold_runtime(&self) -> mpsc::Sender<()> {
        let (holding, held) = mpsc::channel();
        let (until, dropped) = mpsc::channel::<()>();
        self.runtime.spawn(async move {
            holding.send(()).unwrap();
            let _ = dropped.recv();
        });
        held.recv().expect("the daemon runs");
        until
    }

    pub fn connect(&self, export: &str) -> Client {
        Client::connect(&self.socket, export, true)
    }

    /// Waits until another daemon has taken over, or this one has ended otherwise.
    ///
    /// # Errors
    /// If the daemon has failed.
    pub fn wait(mut self) -> Result<(), RunError> {
        let thread = self.thread.take().expect("not stopped yet");
        thread.join().expect("the daemon does not panic")
    }

    /// Shuts the daemon down in order and returns its result.
    pub fn stop(mut self) -> Result<(), RunError> {
        self.handle.shut_down();
        self.thread
            .take()
            .expect("not stopped yet")
            .join()
            .expect("the daemon does not panic")
    }
}

/// Starts a daemon that can be taken over at the path `offer`.
async fn start_daemon(
    config: Config,
    offer: Option<PathBuf>,
    takeover: Option<(Taking, Inherited)>,
) -> Result<Daemon, NotStarted> {
    let (taking, inherited) = takeover.unzip();
    let inherited = inherited.unwrap_or_default();
    let sockets = inherited.sockets.clone();
    let signals = Signals::install().map_err(StartError::Signals)?;
    let mut daemon = Daemon::start_taking_over(config, signals, inherited)?;
    daemon.restore().await;
    if let Some(path) = offer {
        let address = ListenAddress::Unix { path, mode: 0o600 };
        let bound = Bound::new_or_inherited(&address, &SocketOwner::default(), &sockets);
        daemon.offer_takeover(bound.expect("a free path"), Vec::new());
    }
    if let Some(taking) = taking {
        daemon.take_over(taking, drop).await?;
    }
    Ok(daemon)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.shut_down();
            let _ = thread.join();
        }
    }
}

/// Complete reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    pub result: Result<Vec<u8>, NbdError>,
    pub extents: Vec<Extent>,
}

/// Blocking NBD client with any number of requests in flight.
pub struct Client {
    pub stream: UnixStream,
    pub negotiated: Negotiated,
    input: Vec<u8>,
    /// Lengths of the reads in flight by cookie: simple replies do not carry them.
    reads: HashMap<u64, u32>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str, structured: bool) -> Client {
        let stream = UnixStream::connect(socket).expect("a listener");
        Client::on(stream, export, structured)
    }

    /// Opens an export on a connection whose server has not greeted yet.
    pub fn on(mut stream: UnixStream, export: &str, structured: bool) -> Client {
        // A server that hangs fails the test instead of blocking it.
        let patience = Some(std::time::Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        let wishes = Wishes {
            structured_replies: structured,
            allocation_context: structured,
        };
        let mut handshake = Handshake::new(export, wishes);
        let mut input = Vec::new();
        loop {
            let (used, progress) = handshake
                .handle(&input)
                .expect("the server keeps the rules");
            input.drain(..used);
            match progress {
                Progress::NeedMore(_) => receive(&mut stream, &mut input),
                Progress::StartTls => unreachable!("TLS is not required"),
                Progress::Send => {
                    stream.write_all(handshake.output()).unwrap();
                    let n = handshake.output().len();
                    handshake.consume_output(n);
                }
                Progress::Ready(negotiated) => {
                    return Client {
                        stream,
                        negotiated,
                        input,
                        reads: HashMap::new(),
                    };
                }
            }
        }
    }

    /// Connects with `NBD_OPT_EXPORT_NAME`, which negotiates no block sizes.
    pub fn connect_untold(socket: &Path, export: &str) -> Client {
        const NBD_OPT_EXPORT_NAME: u32 = 1;
        let mut stream = UnixStream::connect(socket).expect("a listener");
        let patience = Some(std::time::Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("it greets");
        // Client flags: fixed newstyle, no zeroes at the end of the handshake.
        let mut option = 3u32.to_be_bytes().to_vec();
        option.extend(b"IHAVEOPT");
        option.extend(NBD_OPT_EXPORT_NAME.to_be_bytes());
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        stream.write_all(&option).unwrap();
        let mut head = [0; 10];
        stream.read_exact(&mut head).expect("the export is there");
        let negotiated = Negotiated {
            size: u64::from_be_bytes(head[..8].try_into().unwrap()),
            flags: u16::from_be_bytes(head[8..].try_into().unwrap()),
            ..Negotiated::default()
        };
        Client {
            stream,
            negotiated,
            input: Vec::new(),
            reads: HashMap::new(),
        }
    }

    pub fn send(&mut self, request: Request, payload: &[u8]) {
        if matches!(request.command, Command::Read { .. }) {
            self.reads.insert(request.cookie, request.len);
        }
        let mut bytes = encode_request(&request).to_vec();
        bytes.extend_from_slice(payload);
        self.stream
            .write_all(&bytes)
            .expect("the server takes requests");
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Answer {
        loop {
            let Some((used, answer)) = self.decode() else {
                receive(&mut self.stream, &mut self.input);
                continue;
            };
            self.input.drain(..used);
            self.reads.remove(&answer.cookie);
            return answer;
        }
    }

    /// Waits for the next reply; `None` if the server closes the connection first.
    pub fn receive_if_any(&mut self) -> Option<Answer> {
        if self.decode().is_none() {
            let mut piece = vec![0; 64 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                // The server closed the connection before it had read everything.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                read => self
                    .input
                    .extend_from_slice(&piece[..read.expect("the server answers")]),
            }
        }
        Some(self.receive())
    }

    /// Waits for the next reply; `None` if the server closes the connection before it is whole.
    pub fn receive_if_any_whole(&mut self) -> Option<Answer> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some((used, answer)) = self.decode() {
                self.input.drain(..used);
                return Some(answer);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                read => self
                    .input
                    .extend_from_slice(&piece[..read.expect("the server answers")]),
            }
        }
    }

    fn decode(&self) -> Option<(usize, Answer)> {
        let decoded = decode_reply(&self.input).expect("the server keeps the rules");
        let Decoded::Reply(head, reply) = decoded else {
            return None;
        };
        let answer = |cookie, result| Answer {
            cookie,
            result,
            extents: Vec::new(),
        };
        let with_data = |cookie, len: u32| {
            let data = self.input.get(head..head + len as usize)?;
            Some((head + len as usize, answer(cookie, Ok(data.to_vec()))))
        };
        match reply {
            Reply::Simple {
                cookie,
                error: Some(error),
            } => Some((head, answer(cookie, Err(error)))),
            Reply::Simple {
                cookie,
                error: None,
            } => with_data(cookie, self.reads.get(&cookie).copied().unwrap_or(0)),
            Reply::None { cookie } => Some((head, answer(cookie, Ok(Vec::new())))),
            Reply::OffsetData {
                cookie, len, last, ..
            } => {
                assert!(last, "reads are answered in one chunk");
                with_data(cookie, len)
            }
            Reply::Error { cookie, error, .. } => Some((head, answer(cookie, Err(error)))),
            Reply::BlockStatus {
                cookie, extents, ..
            } => {
                let extents = extents.collect();
                Some((
                    head,
                    Answer {
                        cookie,
                        result: Ok(Vec::new()),
                        extents,
                    },
                ))
            }
            Reply::OffsetHole { .. } => panic!("holes are not sent"),
        }
    }

    /// Sends one request and waits for its reply.
    pub fn ask(&mut self, command: Command, offset: u64, len: u32, payload: &[u8]) -> Answer {
        self.send(request(command, 1, offset, len), payload);
        self.receive()
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.ask(Command::Read { df: false }, offset, len, &[])
            .result
            .expect("the read succeeds")
    }

    /// Reads; `None` if the server has closed the connection, or does so meanwhile.
    pub fn read_if_open(&mut self, offset: u64, len: u32) -> Option<Vec<u8>> {
        let request = request(Command::Read { df: false }, 1, offset, len);
        self.reads.insert(request.cookie, len);
        self.stream.write_all(&encode_request(&request)).ok()?;
        let answer = self.receive_if_any_whole()?;
        Some(answer.result.expect("the read succeeds"))
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let answer = self.ask(Command::Write, offset, data.len() as u32, data);
        answer.result.expect("the write succeeds");
    }

    pub fn flush(&mut self) -> Result<(), NbdError> {
        self.ask(Command::Flush, 0, 0, &[]).result.map(|_| ())
    }

    pub fn style(&self) -> ReplyStyle {
        self.negotiated.style
    }

    /// Reads until the end of the stream. Returns true if the server has closed the connection,
    /// false if nothing comes for as long as a read waits.
    pub fn is_cut_off(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match read(&mut self.stream, &mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    pub fn disconnect(mut self) {
        self.stream.write_all(&encode_disconnect()).unwrap();
        assert!(self.is_cut_off());
    }
}

fn receive(stream: &mut UnixStream, input: &mut Vec<u8>) {
    let mut piece = vec![0; 64 << 10];
    let n = read(stream, &mut piece).expect("the server answers");
    assert!(n > 0, "the server closed the connection");
    input.extend_from_slice(&piece[..n]);
}

/// Reads some bytes, however often a signal interrupts that: tests of this process send SIGHUP, and
/// the kernel does not go on with a read that has a time-out.
pub fn read(stream: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Runs a future to completion.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
