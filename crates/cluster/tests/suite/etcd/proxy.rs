//! TCP proxy that loses answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which answers are lost before the connection is cut: what was requested is done then.
const SILENCE: Duration = Duration::from_millis(200);

/// Value of `State::to_lose` for all answers.
const ALL: usize = usize::MAX;

#[derive(Default)]
struct State {
    /// Number of answers to lose from now on.
    to_lose: AtomicUsize,
    lost: AtomicUsize,
}

/// Proxy on a free port; its threads end with their connections.
pub(super) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub(super) fn start(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::<State>::default();
        let own = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                own.serve(client, server);
            }
        });
        Proxy { address, state }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Loses what the server sends next, and cuts its connection.
    pub(super) fn lose_next_answer(&self) {
        self.state.to_lose.store(1, Ordering::SeqCst);
    }

    /// Loses all that the server sends, and cuts each connection.
    pub(super) fn lose_all_answers(&self) {
        self.state.to_lose.store(ALL, Ordering::SeqCst);
    }

    /// Passes answers on again.
    pub(super) fn answer(&self) {
        self.state.to_lose.store(0, Ordering::SeqCst);
    }

    pub(super) fn answers_lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

impl State {
    fn serve(self: &Arc<State>, client: TcpStream, server: TcpStream) {
        let (mut from, mut to) = (clone(&client), clone(&server));
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let state = self.clone();
        thread::spawn(move || state.answer(client, server));
    }

    fn answer(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut bytes = [0; 1 << 16];
        while let Ok(n @ 1..) = server.read(&mut bytes) {
            let lose = |left: usize| match left {
                0 => None,
                ALL => Some(ALL),
                left => Some(left - 1),
            };
            let to_lose = &self.to_lose;
            if to_lose
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose)
                .is_ok()
            {
                self.lost.fetch_add(1, Ordering::SeqCst);
                swallow(&mut server, &mut bytes);
                break;
            }
            if client.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn swallow(server: &mut TcpStream, bytes: &mut [u8]) {
    let end = Instant::now() + SILENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || server.set_read_timeout(Some(left)).is_err() {
            return;
        }
        if let Ok(0) = server.read(bytes) {
            return;
        }
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor")
}
