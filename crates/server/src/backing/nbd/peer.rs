//! Server for tests: threads that serve a file to each connection, one request at a time, with the
//! faults that were set for the file ([`faults`]).
//!
//! The server has a volatile cache of the whole file, which it writes back when it answers a flush,
//! and which its connections share. Every other cut is that of a server that was killed: its cache
//! is lost, and all its connections break.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use tidegate_nbd::client::{Address, NbdUri};
use tidegate_nbd::reply::ERROR_LEN;
use tidegate_nbd::{Abilities, Command, Export, Exports, Limits, NbdError, Request, Session, Step};

use crate::config::{DiskConfig, NbdConfig};
use crate::ring::faults::{self, Call, Fault, Faults, What};

/// Log of the disks, small enough that tests fill it.
const UNFLUSHED: u64 = 33 << 20;

/// Directories whose files are exported.
static SERVED: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// Makes all disks with a path in this directory open through a server of the file there.
pub(crate) fn serve(directory: &Path) {
    SERVED.lock().unwrap().insert(directory.to_owned());
}

/// Starts a server for a disk with this path and returns its export; `None` if the directory of the
/// path is not exported.
pub(crate) fn export(path: &Path, config: &DiskConfig) -> Option<NbdConfig> {
    if !SERVED.lock().unwrap().contains(path.parent()?) {
        return None;
    }
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(path).unwrap();
    if file.metadata().unwrap().len() == 0 {
        file.set_len(config.size.unwrap()).unwrap();
    }
    let socket = path.with_extension("nbd");
    // A disk that is opened again has a server anew.
    let _ = std::fs::remove_file(&socket);
    let faults = faults::take(&file);
    Peer::start(&socket, file, ALL, faults);
    Some(config_of(&socket))
}

/// Returns the configuration of a disk on the server at a socket.
pub(super) fn config_of(socket: &Path) -> NbdConfig {
    NbdConfig {
        uri: NbdUri {
            address: Address::Unix(socket.display().to_string()),
            export: String::new(),
            tls: false,
        },
        tls: None,
        connections: 1,
        unflushed: UNFLUSHED,
        own_listeners: Arc::default(),
    }
}

/// Abilities of a server that can do everything that disks make use of.
pub(super) const ALL: Abilities = Abilities {
    read_only: false,
    flush: true,
    fua: true,
    rotational: false,
    trim: true,
    write_zeroes: true,
    fast_zero: false,
    df: false,
    multi_conn: false,
    cache: false,
    block_status: false,
};

/// Server of one file.
pub(super) struct Peer {
    file: File,
    faults: Option<Faults>,
    state: Mutex<State>,
}

struct State {
    cache: Vec<u8>,
    /// Changes since the last flush or cut, which a client may send again after the next cut.
    unflushed: usize,
    /// Changes that a client may send again since the last cut, and requests since then.
    owed: usize,
    calls: usize,
    /// Offers to the next connections, in turn.
    offers: Vec<Offer>,
    /// Connections that were accepted, and that are served.
    accepted: usize,
    serving: usize,
    /// Requests that were received.
    requests: usize,
    /// Changes that are carried out, each with the life of the server, and the number of times that
    /// one overlapped another.
    running: Vec<(usize, Range<u64>)>,
    overlaps: usize,
    /// Sockets of the connections, and how often the server was killed.
    open: Vec<UnixStream>,
    kills: usize,
    /// Number of connections that were broken on purpose.
    cuts: usize,
    /// Number of connections that are yet to be refused.
    refusals: usize,
}

/// Export as a connection is offered it.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    pub(super) abilities: Abilities,
    /// Size in bytes; `None` for that of the file.
    pub(super) size: Option<u64>,
}

impl From<Abilities> for Offer {
    fn from(abilities: Abilities) -> Offer {
        let size = None;
        Offer { abilities, size }
    }
}

/// Export of a connection.
struct Offered<'a> {
    peer: &'a Peer,
    offer: Offer,
}

impl Peer {
    /// Starts a server at a socket, which ends with the process.
    pub(super) fn start(
        socket: &Path,
        file: File,
        abilities: Abilities,
        faults: Option<Faults>,
    ) -> Arc<Peer> {
        let peer = Arc::new(Peer {
            state: Mutex::new(State {
                cache: content(&file),
                unflushed: 0,
                owed: 0,
                calls: 0,
                offers: vec![abilities.into()],
                accepted: 0,
                serving: 0,
                requests: 0,
                running: Vec::new(),
                overlaps: 0,
                open: Vec::new(),
                kills: 0,
                cuts: 0,
                refusals: 0,
            }),
            file,
            faults,
        });
        let listener = UnixListener::bind(socket).unwrap();
        let server = peer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                std::thread::spawn(move || server.accept(stream.unwrap()));
            }
        });
        peer
    }

    /// Number of connections that were broken on purpose.
    pub(super) fn cuts(&self) -> usize {
        self.state.lock().unwrap().cuts
    }

    /// Number of connections that are served.
    pub(super) fn serving(&self) -> usize {
        self.state.lock().unwrap().serving
    }

    /// Number of requests that were received.
    pub(super) fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// Number of changes that were received while one that they overlap was carried out.
    pub(super) fn overlaps(&self) -> usize {
        self.state.lock().unwrap().overlaps
    }

    /// Sets what the next connections are offered, in turn and from the first one on.
    pub(super) fn offer(&self, offers: Vec<Offer>) {
        let mut state = self.state.lock().unwrap();
        (state.offers, state.accepted) = (offers, 0);
    }

    /// Kills the server, and starts another one.
    pub(super) fn kill(&self) {
        self.state.lock().unwrap().kill(&self.file);
    }

    /// Makes the export shorter.
    pub(super) fn shrink(&self, size: u64) {
        self.file.set_len(size).unwrap();
        self.state.lock().unwrap().cache.truncate(size as usize);
    }

    fn accept(&self, stream: UnixStream) {
        let (life, offer) = {
            let mut state = self.state.lock().unwrap();
            if state.refusals > 0 {
                state.refusals -= 1;
                return;
            }
            state.open.push(stream.try_clone().unwrap());
            let offer = state.offers[state.accepted % state.offers.len()];
            state.accepted += 1;
            state.serving += 1;
            (state.kills, offer)
        };
        let broken = self.serve(&stream, life, offer).is_err();
        let mut state = self.state.lock().unwrap();
        state.serving -= 1;
        // Those of a server that was killed broke with it.
        if !broken || state.kills != life {
            return;
        }
        // Reset before the connection breaks: the client would be back on another one otherwise.
        state.cuts += 1;
        (state.owed, state.calls) = (std::mem::take(&mut state.unflushed), 0);
        // Every third broken connection takes a while to be restored.
        state.refusals = usize::from(state.cuts.is_multiple_of(3));
        if state.cuts.is_multiple_of(2) {
            state.kill(&self.file);
        } else {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Serves a connection of a life of the server until the client leaves. An error breaks the
    /// connection, which happens once the client has had time to send the changes again that it is
    /// owed.
    fn serve(&self, mut stream: &UnixStream, life: usize, offer: Offer) -> io::Result<()> {
        let offered = Offered { peer: self, offer };
        let mut session = Session::new(Limits::default());
        let mut input = Vec::new();
        loop {
            if !session.output().is_empty() {
                stream.write_all(session.output())?;
                session.consume_output(session.output().len());
            }
            let (used, step) = session.handle(&input, &offered).map_err(io::Error::other)?;
            input.drain(..used);
            match step {
                Step::NeedMore(_) => {
                    let mut buffer = [0; 16 << 10];
                    let n = stream.read(&mut buffer)?;
                    if n == 0 {
                        return Ok(());
                    }
                    input.extend_from_slice(&buffer[..n]);
                }
                Step::Output | Step::Opened(_) => {}
                Step::Request(request) => {
                    let may_cut = {
                        let mut state = self.state.lock().unwrap();
                        state.calls += 1;
                        state.requests += 1;
                        state.calls > 2 * state.owed
                    };
                    let mut data = Vec::new();
                    if request.command == Command::Write {
                        let len = request.len as usize;
                        let at_hand = input.len().min(len);
                        data.extend(input.drain(..at_hand));
                        data.resize(len, 0);
                        stream.read_exact(&mut data[at_hand..])?;
                    }
                    self.begin(life, &request);
                    let done = self.carry_out(&request, &mut data, (life, may_cut));
                    // Before the client can know.
                    self.end(life, &request);
                    let (done, pieces) = done?;
                    reply(stream, &request, done.map(|()| data), pieces)?;
                }
                Step::Rejected(rejected) => panic!("the client sent {rejected:?}"),
                Step::StartTls => unreachable!("not offered"),
                Step::Disconnect(_) => return Ok(()),
            }
        }
    }

    /// Notes that a request is carried out from now on.
    fn begin(&self, life: usize, request: &Request) {
        if is_change(request) {
            let mut state = self.state.lock().unwrap();
            let range = range(request);
            let meets = |(at, other): &(usize, Range<u64>)| {
                *at == life && other.start < range.end && range.start < other.end
            };
            state.overlaps += usize::from(state.running.iter().any(meets));
            state.running.push((life, range));
        }
    }

    fn end(&self, life: usize, request: &Request) {
        let of = (life, range(request));
        let mut state = self.state.lock().unwrap();
        let at = state.running.iter().position(|it| *it == of);
        if let Some(at) = at.filter(|_| is_change(request)) {
            state.running.swap_remove(at);
        }
    }

    /// Carries a request out, unless it is to break the connection: its result, an error number if
    /// it has failed, and the longest pieces of its reply.
    fn carry_out(
        &self,
        request: &Request,
        data: &mut Vec<u8>,
        (life, may_cut): (usize, bool),
    ) -> io::Result<(Result<(), i32>, usize)> {
        let cut = || Err(io::ErrorKind::ConnectionReset.into());
        let mut pieces = usize::MAX;
        match self.fault_of(request) {
            // A fault of an interrupted call breaks the connection, before or after the call was
            // done.
            Fault::Error(libc::EINTR) if may_cut => return cut(),
            Fault::Error(libc::EAGAIN) if may_cut => {
                self.work(life, request, data)?;
                return cut();
            }
            Fault::Error(errno) if !matches!(errno, libc::EINTR | libc::EAGAIN) => {
                return Ok((Err(errno), pieces));
            }
            Fault::Late(by) => std::thread::sleep(by),
            Fault::Short(n) => pieces = n,
            Fault::None | Fault::Error(_) => {}
        }
        self.work(life, request, data)?;
        Ok((Ok(()), pieces))
    }

    fn fault_of(&self, request: &Request) -> Fault {
        let what = match request.command {
            Command::Read { .. } => What::Read,
            Command::Write => What::Write,
            Command::Flush => What::Sync,
            _ => What::Allocate,
        };
        let call = Call {
            what,
            offset: request.offset,
            len: request.len.into(),
        };
        match &self.faults {
            Some(faults) => (faults.lock().unwrap())(call),
            None => Fault::None,
        }
    }

    fn work(&self, life: usize, request: &Request, data: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.kills != life {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let start = request.offset as usize;
        let range = start..start + request.len as usize;
        match request.command {
            Command::Read { .. } => {
                *data = state.cache[range].to_vec();
                return Ok(());
            }
            Command::Write => state.cache[range].copy_from_slice(data),
            // What a trim leaves is undefined.
            Command::Trim => state.cache[range].fill(0xdd),
            Command::WriteZeroes { .. } => state.cache[range].fill(0),
            Command::Flush => {
                state.unflushed = 0;
                return self.file.write_all_at(&state.cache, 0);
            }
            Command::Cache | Command::BlockStatus { .. } => unreachable!("not offered"),
        }
        state.unflushed += 1;
        Ok(())
    }
}

impl State {
    /// Kills the server: its cache is lost, and its connections break.
    fn kill(&mut self, file: &File) {
        self.cache = content(file);
        self.kills += 1;
        for stream in self.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Sends a reply in pieces: the data of a read, or an error number.
fn reply(
    mut stream: &UnixStream,
    request: &Request,
    done: Result<Vec<u8>, i32>,
    pieces: usize,
) -> io::Result<()> {
    let mut head = [0; ERROR_LEN];
    let style = tidegate_nbd::ReplyStyle::Simple;
    let cookie = request.cookie;
    let (n, data) = match done {
        Ok(data) if matches!(request.command, Command::Read { .. }) => (
            style.data(cookie, request.offset, request.len, &mut head),
            data,
        ),
        Ok(_) => (style.done(cookie, &mut head), Vec::new()),
        Err(errno) => {
            let error = NbdError::from_code(errno as u32).expect("an error");
            (style.error(cookie, error, "", &mut head), Vec::new())
        }
    };
    let reply = [&head[..n], &data].concat();
    for piece in reply.chunks(pieces) {
        stream.write_all(piece)?;
        // Lets the loop see the pieces one by one, as a slow network would deliver them.
        std::thread::yield_now();
    }
    Ok(())
}

fn is_change(request: &Request) -> bool {
    !matches!(request.command, Command::Read { .. } | Command::Flush)
}

fn range(request: &Request) -> Range<u64> {
    request.offset..request.offset + u64::from(request.len)
}

/// Returns the bytes of a file.
fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

impl Exports for Offered<'_> {
    fn lookup(&self, name: &str) -> Option<Export> {
        let size = self.peer.state.lock().unwrap().cache.len() as u64;
        let mut export = Export::new(0, name, self.offer.size.unwrap_or(size));
        export.abilities = self.offer.abilities;
        Some(export)
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}
