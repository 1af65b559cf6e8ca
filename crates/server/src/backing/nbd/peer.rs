//! Server for tests: threads that serve a file to each connection, one request at a time, with the
//! faults that were set for the file ([`faults`]).
//!
//! The server has a volatile cache of the whole file, which it writes back when it answers a flush.
//! Every other cut is that of a server that was killed: its cache is lost.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
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
    abilities: Abilities,
    faults: Option<Faults>,
    state: Mutex<State>,
}

struct State {
    cache: Vec<u8>,
    /// Changes of this connection since the last flush, which a client may send again after a cut.
    unflushed: usize,
    /// Number of connections that were broken on purpose.
    cuts: usize,
    /// Number of connections that are yet to be refused.
    refusals: usize,
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
                cuts: 0,
                refusals: 0,
            }),
            file,
            abilities,
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

    /// Makes the export shorter.
    pub(super) fn shrink(&self, size: u64) {
        self.file.set_len(size).unwrap();
        self.state.lock().unwrap().cache.truncate(size as usize);
    }

    fn accept(&self, stream: UnixStream) {
        let owed = {
            let mut state = self.state.lock().unwrap();
            if state.refusals > 0 {
                state.refusals -= 1;
                return;
            }
            std::mem::take(&mut state.unflushed)
        };
        // Reset before the connection breaks: the client would be back on another one otherwise.
        if self.serve(&stream, owed).is_err() {
            let mut state = self.state.lock().unwrap();
            state.cuts += 1;
            // Every third broken connection takes a while to be restored.
            state.refusals = usize::from(state.cuts.is_multiple_of(3));
            if state.cuts.is_multiple_of(2) {
                state.cache = content(&self.file);
            }
        }
    }

    /// Serves a connection until the client leaves. An error breaks the connection, which happens
    /// once the client has had time to send the changes again that it is `owed`.
    fn serve(&self, mut stream: &UnixStream, owed: usize) -> io::Result<()> {
        let mut session = Session::new(Limits::default());
        let (mut input, mut calls) = (Vec::new(), 0);
        loop {
            if !session.output().is_empty() {
                stream.write_all(session.output())?;
                session.consume_output(session.output().len());
            }
            let (used, step) = session.handle(&input, self).map_err(io::Error::other)?;
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
                    calls += 1;
                    let mut data = Vec::new();
                    if request.command == Command::Write {
                        let len = request.len as usize;
                        let at_hand = input.len().min(len);
                        data.extend(input.drain(..at_hand));
                        data.resize(len, 0);
                        stream.read_exact(&mut data[at_hand..])?;
                    }
                    self.answer(stream, &request, data, calls > 2 * owed)?;
                }
                Step::Rejected(rejected) => panic!("the client sent {rejected:?}"),
                Step::StartTls => unreachable!("not offered"),
                Step::Disconnect(_) => return Ok(()),
            }
        }
    }

    fn answer(
        &self,
        mut stream: &UnixStream,
        request: &Request,
        mut data: Vec<u8>,
        may_cut: bool,
    ) -> io::Result<()> {
        let cut = || Err(io::ErrorKind::ConnectionReset.into());
        let mut pieces = usize::MAX;
        let done = match self.fault_of(request) {
            // A fault of an interrupted call breaks the connection, before or after the call was
            // done.
            Fault::Error(libc::EINTR) if may_cut => return cut(),
            Fault::Error(libc::EAGAIN) if may_cut => {
                self.work(request, &mut data)?;
                return cut();
            }
            Fault::Error(errno) if !matches!(errno, libc::EINTR | libc::EAGAIN) => Err(errno),
            Fault::Late(by) => {
                std::thread::sleep(by);
                self.work(request, &mut data).map(Ok)?
            }
            Fault::Short(n) => {
                pieces = n;
                self.work(request, &mut data).map(Ok)?
            }
            Fault::None | Fault::Error(_) => self.work(request, &mut data).map(Ok)?,
        };
        let mut head = [0; ERROR_LEN];
        let style = tidegate_nbd::ReplyStyle::Simple;
        let cookie = request.cookie;
        let (n, data) = match done {
            Ok(()) if matches!(request.command, Command::Read { .. }) => (
                style.data(cookie, request.offset, request.len, &mut head),
                data,
            ),
            Ok(()) => (style.done(cookie, &mut head), Vec::new()),
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

    fn work(&self, request: &Request, data: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
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

/// Returns the bytes of a file.
fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

impl Exports for Peer {
    fn lookup(&self, name: &str) -> Option<Export> {
        let size = self.state.lock().unwrap().cache.len() as u64;
        let mut export = Export::new(0, name, size);
        export.abilities = self.abilities;
        Some(export)
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}
