//! Peer of a remote backing: threads that serve a file to each connection, one request at a time.
//!
//! A request has 24 bytes: its number, the first byte on the disk, the length, the operation and
//! flags; the data of a write follow. A reply has 16 bytes: the number, an errno, and the length of
//! the data that follow.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};

use crate::backing::extents::{EXTENTS_MAX, Extent, find_extents};
use crate::config::DiskConfig;
use crate::ring::faults::{self, Call, Fault, Faults, What};
use crate::ring::sys;

/// Length of a request without data, in bytes.
pub(super) const REQUEST: usize = 24;
/// Length of a reply without data, in bytes.
pub(super) const REPLY: usize = 16;
/// Length of an extent in a reply, in bytes: the extent's length, then 1 for a hole.
pub(super) const EXTENT: usize = 8;

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Extents,
}

const ASKS: [Ask; 6] = [
    Ask::Read,
    Ask::Write,
    Ask::Flush,
    Ask::Discard,
    Ask::WriteZeroes,
    Ask::Extents,
];

/// Head of a request on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) ask: Ask,
    pub(super) fua: bool,
}

/// Number of the last flush of a disk, to which no faults apply.
pub(super) const LAST_FLUSH: u64 = u64::MAX;

impl Head {
    pub(super) fn encode(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20] = self.ask as u8;
        bytes[21] = u8::from(self.fua);
        bytes
    }

    fn decode(bytes: &[u8; REQUEST]) -> Head {
        Head {
            number: u64::from_le_bytes(bytes[..8].try_into().unwrap()),
            offset: u64::from_le_bytes(bytes[8..16].try_into().unwrap()),
            len: u32::from_le_bytes(bytes[16..20].try_into().unwrap()),
            ask: ASKS[usize::from(bytes[20])],
            fua: bytes[21] != 0,
        }
    }
}

/// Treatment of requests in flight when a connection breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnCut {
    /// Send them again on the next connection.
    Resend,
    /// Fail them.
    Fail,
}

/// File that a peer exports.
pub(crate) struct Export {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) on_cut: OnCut,
    file: File,
    faults: Mutex<Option<Faults>>,
    /// Thread that makes connections: an event loop, which is confined, must not make sockets.
    connector: Mutex<Sender<Connect>>,
    /// Number of connections that are yet to be refused.
    pub(super) refusals: AtomicU32,
    /// Number of connections that were broken on purpose.
    pub(super) cuts: AtomicU64,
}

/// Order to connect to an export, with the channel for the client's end.
type Connect = (Arc<Export>, Sender<io::Result<UnixStream>>);

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("name", &self.name).finish()
    }
}

/// Directories whose files are exported by a peer.
static SERVED: LazyLock<Mutex<HashMap<PathBuf, OnCut>>> = LazyLock::new(Mutex::default);

/// Makes all disks with a path in this directory open through a peer that serves the file there.
pub(crate) fn serve(directory: &Path, on_cut: OnCut) {
    let mut served = SERVED.lock().unwrap();
    served.insert(directory.to_owned(), on_cut);
}

/// Returns the export of a disk with this path; `None` if its directory is not exported.
pub(crate) fn export(path: &Path, config: &DiskConfig) -> Option<Arc<Export>> {
    let on_cut = *SERVED.lock().unwrap().get(path.parent()?)?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    let file = file.open(path).unwrap();
    if file.metadata().unwrap().len() == 0 {
        file.set_len(config.size.unwrap()).unwrap();
    }
    let (connector, orders) = channel::<Connect>();
    // Ends with the export.
    std::thread::spawn(move || {
        for (export, answer) in orders {
            let _ = answer.send(export.make_connection());
        }
    });
    Some(Arc::new(Export {
        connector: Mutex::new(connector),
        name: path.display().to_string(),
        size: file.metadata().unwrap().len(),
        on_cut,
        faults: Mutex::new(faults::take(&file)),
        file,
        refusals: AtomicU32::new(0),
        cuts: AtomicU64::new(0),
    }))
}

impl Export {
    /// Connects to a thread of the peer.
    ///
    /// # Errors
    /// Fails if the peer refuses.
    pub(super) fn connect(self: &Arc<Export>) -> io::Result<UnixStream> {
        // Fails at 0, so the counter says in one step whether this connection is to be refused.
        let one_less = |left: u32| left.checked_sub(1);
        let order = Ordering::Relaxed;
        if (self.refusals).fetch_update(order, order, one_less).is_ok() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (answer, connected) = channel();
        let order = (self.clone(), answer);
        let sent = self.connector.lock().unwrap().send(order);
        sent.expect("the thread ends with the export");
        connected.recv().expect("the thread answers each order")
    }

    /// Starts a thread that serves one connection, and returns the client's end.
    fn make_connection(self: Arc<Export>) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let export = self;
        std::thread::spawn(move || {
            if export.serve(theirs).is_err() {
                export.cuts.fetch_add(1, Ordering::Relaxed);
                // Every third broken connection takes a while to be restored.
                let often = export.cuts.load(Ordering::Relaxed);
                export
                    .refusals
                    .store(u32::from(often.is_multiple_of(3)), Ordering::Relaxed);
            }
        });
        Ok(ours)
    }

    /// Serves a connection until the client leaves. An error breaks the connection.
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut head = [0; REQUEST];
        let mut data = Vec::new();
        loop {
            match stream.read_exact(&mut head) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            let head = Head::decode(&head);
            data.clear();
            if head.ask == Ask::Write {
                data.resize(head.len as usize, 0);
                stream.read_exact(&mut data)?;
            }
            let fault = self.fault_of(&head);
            let mut pieces = usize::MAX;
            let done = match fault {
                // A fault of an interrupted call breaks the connection, before or after the call
                // was done.
                Fault::Error(libc::EINTR) => return Err(io::ErrorKind::ConnectionReset.into()),
                Fault::Error(libc::EAGAIN) => {
                    self.work(&head, &mut data)?;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Fault::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
                Fault::Late(by) => {
                    std::thread::sleep(by);
                    self.work(&head, &mut data)
                }
                Fault::Short(n) => {
                    pieces = n;
                    self.work(&head, &mut data)
                }
                Fault::None => self.work(&head, &mut data),
            };
            let errno = done
                .as_ref()
                .map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
            // A reply carries data only if the operation gave any: `data` still holds a write's
            // payload.
            if errno != 0 || head.ask == Ask::Write {
                data.clear();
            }
            let mut reply = head.number.to_le_bytes().to_vec();
            reply.extend((errno as u32).to_le_bytes());
            reply.extend((data.len() as u32).to_le_bytes());
            reply.extend_from_slice(&data);
            for piece in reply.chunks(pieces) {
                stream.write_all(piece)?;
                // Lets the loop see the pieces one by one, as a slow network would deliver them.
                std::thread::yield_now();
            }
        }
    }

    fn fault_of(&self, head: &Head) -> Fault {
        let what = match head.ask {
            Ask::Read => What::Read,
            Ask::Write => What::Write,
            Ask::Flush => What::Sync,
            Ask::Discard | Ask::WriteZeroes => What::Allocate,
            Ask::Extents => return Fault::None,
        };
        let call = Call {
            what,
            offset: head.offset,
            len: head.len.into(),
        };
        match &*self.faults.lock().unwrap() {
            Some(faults) if head.number != LAST_FLUSH => (faults.lock().unwrap())(call),
            _ => Fault::None,
        }
    }

    fn work(&self, head: &Head, data: &mut Vec<u8>) -> io::Result<()> {
        let Head { offset, len, .. } = *head;
        match head.ask {
            Ask::Read => {
                data.resize(len as usize, 0);
                self.file.read_exact_at(data, offset)?;
            }
            Ask::Write => self.file.write_all_at(data, offset)?,
            Ask::Flush => self.file.sync_data()?,
            Ask::Discard => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                sys::allocate(&self.file, mode, offset, len.into())?;
            }
            Ask::WriteZeroes => self.file.write_all_at(&vec![0; len as usize], offset)?,
            Ask::Extents => {
                let mut extents: Vec<Extent> = Vec::new();
                let most = if head.fua { 1 } else { EXTENTS_MAX };
                find_extents(&self.file, offset, len, most, &mut extents)?;
                for extent in &extents {
                    data.extend(extent.len.to_le_bytes());
                    data.extend(u32::from(extent.hole).to_le_bytes());
                }
            }
        }
        if head.fua && head.ask != Ask::Extents {
            self.file.sync_data()?;
        }
        Ok(())
    }
}
