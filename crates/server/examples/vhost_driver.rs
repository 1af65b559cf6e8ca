//! Driver of a vhost-user disk for another process, such as `scripts/durability`: takes requests of
//! NBD, in its transmission phase, on a socket that is standard input, and answers with simple
//! replies.
//!
//! The environment has the disk's socket, `TIDEGATE_DRIVER_SOCKET`, and the way by which writes get
//! durable, `TIDEGATE_DRIVER_CACHE`:
//!
//! | value | driver |
//! |---|---|
//! | `flush` | accepts `FLUSH`, so that a flush makes earlier writes durable |
//! | `no-flush` | does not accept it, so that each write is durable when it is answered |
//! | `write-through` | accepts it and sets the field `writeback` to 0: each write is durable, too |

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use vhost_guest::{
    ALL, CONFIG_WCE, DISCARD, FLUSH, FLUSH_REQUEST, Guest, IN, OUT, SLOTS, WRITE_ZEROES,
};

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/suite/common/vhost_guest.rs"]
pub(crate) mod vhost_guest;

/// Magic numbers of requests and of simple replies.
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// Bytes of a request's header.
const HEADER: usize = 28;
/// Error of a request that failed.
const EIO: u32 = 5;
/// Offset of the field `writeback` in the configuration space.
const WRITEBACK: u32 = 32;
/// Time between two looks at the answers.
const PAUSE: Duration = Duration::from_millis(1);

/// Errors of a peer that has closed its end.
const GONE: [io::ErrorKind; 3] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::ConnectionReset,
];

#[allow(dead_code)]
fn main() -> io::Result<()> {
    let told = run()?;
    assert!(
        told,
        "TIDEGATE_DRIVER_SOCKET and TIDEGATE_DRIVER_CACHE are to be set"
    );
    Ok(())
}

/// Drives a disk until the other end of standard input is closed; false if the environment names
/// none.
///
/// # Errors
/// If standard input fails.
pub fn run() -> io::Result<bool> {
    let of = |name: &str| std::env::var(format!("TIDEGATE_DRIVER_{name}"));
    let (Ok(socket), Ok(cache)) = (of("SOCKET"), of("CACHE")) else {
        return Ok(false);
    };
    let features = match &*cache {
        "flush" => ALL,
        "no-flush" => ALL & !FLUSH,
        "write-through" => ALL | CONFIG_WCE,
        _ => panic!("no cache mode {cache}"),
    };
    let mut guest = Guest::start(Path::new(&socket), features, 1);
    if cache == "write-through" {
        let flags = VhostUserConfigFlags::WRITABLE;
        let set = guest.frontend.set_config(WRITEBACK, flags, &[0]);
        set.expect("the field may be written");
    }
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut driver = Driver {
        guest,
        peer: input.into(),
        input: Vec::new(),
        pending: vec![None; SLOTS.into()],
    };
    loop {
        match driver.turn() {
            Ok(()) => {}
            // The peer is done, whatever is still in flight.
            Err(error) if GONE.contains(&error.kind()) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// Request that was submitted.
#[derive(Clone, Copy)]
struct Pending {
    cookie: u64,
    /// Bytes that are read.
    reads: usize,
}

struct Driver {
    guest: Guest,
    peer: UnixStream,
    /// Bytes that were received and not used.
    input: Vec<u8>,
    /// Requests by their slots.
    pending: Vec<Option<Pending>>,
}

impl Driver {
    /// Takes what has come, from either side.
    fn turn(&mut self) -> io::Result<()> {
        let waits = self.guest.in_flight(0) > 0;
        self.peer.set_read_timeout(waits.then_some(PAUSE))?;
        let mut piece = vec![0; 1 << 16];
        match self.peer.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.input.extend_from_slice(&piece[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut new = 0;
        while self.guest.has_room(0) && self.submit_next() {
            new += 1;
        }
        if new > 0 {
            self.guest.kick(0, new);
        }
        for answer in self.guest.take_answers(0) {
            let pending = self.pending[usize::from(answer.slot)].take();
            let Pending { cookie, reads } = pending.expect("it was submitted");
            let error = if answer.status == 0 { 0 } else { EIO };
            let mut reply = REPLY.to_be_bytes().to_vec();
            reply.extend(u32::to_be_bytes(error));
            reply.extend(cookie.to_be_bytes());
            if error == 0 {
                reply.extend(self.guest.read_data(0, answer.slot, reads));
            }
            self.peer.write_all(&reply)?;
        }
        Ok(())
    }

    /// Submits the next request of the input; false if it has not come as a whole.
    fn submit_next(&mut self) -> bool {
        let Some(header) = self.input.first_chunk::<HEADER>() else {
            return false;
        };
        let field = |at: usize, len: usize| {
            let bytes = header[at..at + len].iter();
            bytes.fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        assert_eq!(field(0, 4), u64::from(REQUEST), "a request of NBD");
        let (command, cookie) = (field(6, 2), field(8, 8));
        let (offset, len) = (field(16, 8), field(24, 4) as usize);
        let payload = if command == 1 { len } else { 0 };
        if self.input.len() < HEADER + payload {
            return false;
        }
        let data = self.input[HEADER..HEADER + payload].to_vec();
        self.input.drain(..HEADER + payload);
        let sector = offset / 512;
        let mut segment = sector.to_le_bytes().to_vec();
        segment.extend(((len / 512) as u32).to_le_bytes());
        segment.extend([0; 4]);
        let (kind, sector, data, reads) = match command {
            0 => (IN, sector, vec![0; len], len),
            1 => (OUT, sector, data, 0),
            3 => (FLUSH_REQUEST, 0, data, 0),
            4 => (DISCARD, 0, segment, 0),
            6 => (WRITE_ZEROES, 0, segment, 0),
            _ => panic!("no command {command}"),
        };
        let slot = self.guest.submit(0, kind, sector, &data);
        self.pending[usize::from(slot)] = Some(Pending { cookie, reads });
        true
    }
}
