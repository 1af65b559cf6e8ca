//! TCP proxy that loses requests and answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which answers are lost before the connection is cut: what was requested is done then.
const SILENCE: Duration = Duration::from_millis(200);

/// Length in bytes up to which texts of requests are found.
const LONGEST_TEXT: usize = 256;

/// Value of `State::to_lose` for all answers.
const ALL: usize = usize::MAX;

#[derive(Default)]
struct State {
    /// Number of answers to lose from now on.
    to_lose: AtomicUsize,
    lost: AtomicUsize,
    /// Request from which on something is lost, once it comes.
    trigger: Mutex<Option<Trigger>>,
}

/// Request from which on something is lost.
#[derive(Clone)]
struct Trigger {
    /// Text in the request.
    text: String,
    loss: Loss,
}

/// Loss that begins with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// The request, and later ones with its text, do not reach the server.
    Request,
    /// The request is passed on, and no answer after it.
    Answers,
}

/// Proxy on a free port; its threads end with their connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) fn start(port: u16) -> Proxy {
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

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Loses what the server sends next, and cuts its connection.
    pub(crate) fn lose_next_answer(&self) {
        self.state.to_lose.store(1, Ordering::SeqCst);
    }

    /// Loses all that the server sends, and cuts each connection.
    pub(crate) fn lose_all_answers(&self) {
        self.state.to_lose.store(ALL, Ordering::SeqCst);
    }

    /// Passes requests and answers on again.
    pub(crate) fn answer(&self) {
        *self.state.trigger.lock().expect("no panic") = None;
        self.state.to_lose.store(0, Ordering::SeqCst);
    }

    /// Begins to lose with the first request that has a text.
    pub(crate) fn lose_from(&self, text: &str, loss: Loss) {
        let text = text.to_owned();
        *self.state.trigger.lock().expect("no panic") = Some(Trigger { text, loss });
    }

    pub(crate) fn answers_lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

impl State {
    fn serve(self: &Arc<State>, client: TcpStream, server: TcpStream) {
        let (from, to, state) = (clone(&client), clone(&server), self.clone());
        thread::spawn(move || state.pass_requests(from, to));
        let state = self.clone();
        thread::spawn(move || state.answer(client, server));
    }

    fn pass_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut bytes = [0; 1 << 16];
        // A text may begin in one read and end in the next.
        let mut seen = Vec::new();
        while let Ok(n @ 1..) = client.read(&mut bytes) {
            seen.extend_from_slice(&bytes[..n]);
            let trigger = self.trigger.lock().expect("no panic").clone();
            if let Some(Trigger { text, loss }) = trigger {
                let is_there = seen.windows(text.len()).any(|part| part == text.as_bytes());
                match loss {
                    Loss::Request if is_there => break,
                    Loss::Answers if is_there => self.to_lose.store(ALL, Ordering::SeqCst),
                    _ => {}
                }
            }
            seen.drain(..seen.len().saturating_sub(LONGEST_TEXT));
            if server.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
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
