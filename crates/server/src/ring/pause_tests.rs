//! Receives after a pause, by themselves and behind a send, on real sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tidegate_core::time::Nanos;

use super::{Completion, FileId, Pause, Ring, ThenReceive};
use crate::buffer::{Buffer, Pool};

const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const FILLER: u64 = 3;
const ENTRIES: u32 = 8;

/// A ring with one socket, its peer and two buffers.
struct Bench {
    ring: Ring,
    socket: FileId,
    peer: UnixStream,
    pool: Pool,
    to: Buffer,
}

impl Bench {
    fn new() -> Bench {
        let mut ring = Ring::new(ENTRIES, 4).unwrap();
        let (own, peer) = UnixStream::pair().unwrap();
        let socket = ring.add_file(own.into()).unwrap();
        let mut pool = Pool::new(64 << 20).unwrap();
        let to = pool.get(4096);
        Bench {
            ring,
            socket,
            peer,
            pool,
            to,
        }
    }

    fn receive(&mut self, pause: Pause) {
        let to = self.to.mem();
        self.ring.receive(self.socket, &[to], true, pause, RECEIVED);
    }

    /// Sends `len` bytes, and receives after a pause if all of them fit the socket.
    fn send_then_receive(&mut self, len: usize) {
        let from = self.pool.get(len);
        let then = ThenReceive {
            to: self.to.mem(),
            token: RECEIVED,
            pause: Pause::LONGEST,
        };
        let from = from.mem().slice(0, len);
        self.ring.send(self.socket, &[from], true, SENT, Some(then));
    }

    /// The next completions.
    fn wait(&mut self) -> Vec<Completion> {
        let mut out = Vec::new();
        while out.is_empty() {
            self.ring.turn(None).unwrap();
            self.ring.take(&mut out);
        }
        out
    }

    /// The only completion of the next turn, and that no other follows for far longer than a pause.
    fn only(&mut self) -> (u64, Result<u32, i32>) {
        let mut all = self.wait();
        self.ring.turn(Some(Duration::from_millis(5))).unwrap();
        self.ring.take(&mut all);
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].token, all[0].result)
    }
}

#[test]
fn a_pause_has_whole_microseconds_and_an_end() {
    assert_eq!(Pause::at_most(Nanos(999)), Pause::NONE);
    assert_eq!(Pause::at_most(Nanos(24_999)).time(), Nanos(24_000));
    assert_eq!(Pause::at_most(Nanos::from_secs(1)), Pause::LONGEST);
    assert_eq!(Pause::LONGEST.time(), Nanos(25_000));
    assert!(Pause::at_most(Nanos(7_000)) > Pause::NONE);
}

#[test]
fn one_completion_brings_what_came_before_the_end_of_a_pause() {
    let mut bench = Bench::new();
    for pause in [Pause::NONE, Pause::at_most(Nanos(1000)), Pause::LONGEST] {
        bench.receive(pause);
        bench.peer.write_all(b"one ").unwrap();
        bench.peer.write_all(b"two").unwrap();
        assert_eq!(bench.only(), (RECEIVED, Ok(7)));
        let mut bytes = [0; 7];
        bench.to.mem().slice(0, 7).read(&mut bytes);
        assert_eq!(&bytes, b"one two");
    }
}

#[test]
fn bytes_that_come_after_a_pause_are_received_too() {
    let mut bench = Bench::new();
    bench.receive(Pause::LONGEST);
    // Far longer than the pause: the receive waits for the socket by then.
    bench.ring.turn(Some(Duration::from_millis(5))).unwrap();
    bench.peer.write_all(b"late").unwrap();
    assert_eq!(bench.only(), (RECEIVED, Ok(4)));
}

#[test]
fn a_receive_in_its_pause_ends_with_the_connection() {
    let mut bench = Bench::new();
    bench.receive(Pause::LONGEST);
    bench.ring.turn(Some(Duration::ZERO)).unwrap();
    bench.ring.shut_down_socket(bench.socket);
    assert_eq!(bench.only(), (RECEIVED, Ok(0)));

    let mut bench = Bench::new();
    bench.receive(Pause::LONGEST);
    bench.peer.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(bench.only(), (RECEIVED, Ok(0)));
}

#[test]
fn a_send_that_fits_is_followed_by_a_pause_and_a_receive() {
    let mut bench = Bench::new();
    bench.send_then_receive(100);
    bench.ring.turn(Some(Duration::ZERO)).unwrap();
    let mut bytes = [0; 100];
    bench.peer.read_exact(&mut bytes).unwrap();
    bench.peer.write_all(b"next").unwrap();
    assert_eq!(bench.only(), (RECEIVED, Ok(4)));
}

#[test]
fn a_send_that_does_not_fit_cancels_the_receive_however_full_the_queue_is() {
    for fillers in 0..2 * ENTRIES {
        let mut bench = Bench::new();
        // Polls of a socket that nothing happens to, which is closed at the end.
        let (idle, _peer) = UnixStream::pair().unwrap();
        let idle = bench.ring.add_file(idle.into()).unwrap();
        (0..fillers).for_each(|_| bench.ring.await_readable(idle, FILLER));
        let len = 1 << 20;
        bench.send_then_receive(len);
        // Bytes that a receive which was not cancelled would take.
        bench.peer.write_all(b"next").unwrap();
        let (token, sent) = bench.only();
        assert_eq!(token, SENT, "with {fillers} entries before");
        assert!(sent.is_ok_and(|sent| sent > 0 && (sent as usize) < len));
        bench.receive(Pause::NONE);
        assert_eq!(bench.only(), (RECEIVED, Ok(4)));
    }
}
