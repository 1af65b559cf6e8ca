//! Connecting to the server of a disk, on a thread outside of the event loop: the loop is confined
//! and must not block.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tidegate_nbd::client::{
    Address, ClientError, Handshake, Negotiated, Progress, Wishes, encode_disconnect,
};
use tidegate_units::human::exact_bytes;

use crate::config::{ListenAddress, NbdConfig, NbdTlsConfig};
use crate::ring::{Wake, sys};
use crate::tls::{Credentials, Relay, ServerTlsError};

/// Time for a TCP connection, and for each message of the handshake.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the whole handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without an acknowledgement after which a server on TCP is taken to be gone. A server whose
/// storage hangs does not read either, and what it has in its buffers is carried out although it is
/// sent again on the next connection: so it is not too short.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(120);

/// Time for the last message of a connection over TLS to leave this host.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// Time after which no further connection behind the first one is begun: all requests wait for it.
const MORE_WITHIN: Duration = Duration::from_secs(5);

/// Connections whose handshakes are over, on none of which a request was sent.
#[derive(Debug)]
pub(super) struct Connected {
    /// Sockets for the ring, at least one.
    pub(super) sockets: Vec<(OwnedFd, Spare)>,
    pub(super) negotiated: Negotiated,
    /// Reason why there are fewer connections than were wanted, in words.
    pub(super) fewer: Option<String>,
}

impl Connected {
    /// Logs the reason why there are fewer connections than were wanted, if so.
    pub(super) fn log_fewer(&self, server: &str) {
        if let Some(why) = &self.fewer {
            let connections = self.sockets.len();
            tracing::warn!(
                server,
                connections,
                "fewer connections than are configured: {why}"
            );
        }
    }
}

/// Connection whose handshake is over.
struct Single {
    socket: OwnedFd,
    spare: Spare,
    negotiated: Negotiated,
    /// Address of a server on TCP.
    address: Option<SocketAddr>,
}

/// Other descriptor and transport of a connection whose socket is in the ring. Dropped, it ends the
/// connection once that socket is closed.
#[derive(Debug)]
pub(super) struct Spare {
    /// Another descriptor of the socket.
    file: File,
    /// Transport over TLS.
    relay: Option<Relay>,
}

impl Spare {
    /// Breaks a connection off whose socket has left the ring: what the server has not received is
    /// discarded. May block; must not be called on an event loop.
    pub(super) fn cut(self) {
        // Unix sockets ignore it: the server can read at once what was sent to one.
        let _ = SockRef::from(&self.file).set_linger(Some(Duration::ZERO));
        drop(self.file);
        if let Some(relay) = self.relay {
            relay.cut();
        }
    }

    /// Takes leave of the server, which may wait for that before it ends in order. The socket has
    /// left the ring, between two requests. May block; must not be called on an event loop.
    pub(super) fn take_leave(mut self) {
        // The server sends no answer to a disconnect.
        let _ = self.file.write_all(&encode_disconnect());
        drop(self.file);
        if let Some(relay) = self.relay {
            relay.finish(LEAVE_WITHIN);
        }
    }
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A system call failed; mostly, no server is there.
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    /// The server broke the protocol, or refused the export.
    #[error("the handshake failed: {0}")]
    Handshake(#[from] ClientError),
    /// TLS failed, or its files are not what they should be.
    #[error("TLS: {0}")]
    Tls(#[from] ServerTlsError),
    /// The server is the daemon that is to be its client.
    #[error("this is a listener of this daemon ({0}): the disk would be its own server")]
    Loop(String),
}

/// Disks whose connector has an answer for them.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Vec<u32>>);

impl Arrivals {
    /// Takes the indices of these disks.
    pub(super) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, disk: u32) {
        let mut disks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        disks.push(disk);
    }
}

/// Order to connect, with whom to tell of the result.
struct Order {
    /// Connections that are broken off first.
    before: Vec<Spare>,
    /// Largest number of connections.
    most: usize,
    disk: u32,
    arrivals: Arc<Arrivals>,
    wake: Arc<Wake>,
}

/// Thread that connects to the server of a disk. Ends once this handle is dropped and the call that
/// it may be in has returned.
#[derive(Debug)]
pub(super) struct Connector {
    orders: Sender<Order>,
    results: Receiver<Result<Connected, ConnectError>>,
}

impl Connector {
    /// Starts the thread. Must not be called on an event loop, whose threads are confined.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(super) fn start(config: NbdConfig) -> io::Result<Connector> {
        let (orders, inbox) = channel::<Order>();
        let (outbox, results) = channel();
        let connect_all = move || {
            for order in inbox {
                order.before.into_iter().for_each(Spare::cut);
                if outbox.send(connect(&config, order.most)).is_err() {
                    return;
                }
                order.arrivals.add(order.disk);
                order.wake.wake();
            }
        };
        let thread = std::thread::Builder::new().name("nbd connect".to_owned());
        thread.spawn(connect_all)?;
        Ok(Connector { orders, results })
    }

    /// Orders up to `most` connections, once those `before` are broken off. The disk with this
    /// index of the loop is called when there is a result.
    pub(super) fn order(
        &self,
        before: Vec<Spare>,
        most: usize,
        disk: u32,
        arrivals: &Arc<Arrivals>,
        wake: &Arc<Wake>,
    ) {
        let order = Order {
            before,
            most,
            disk,
            arrivals: arrivals.clone(),
            wake: wake.clone(),
        };
        // The thread ends with this handle.
        let _ = self.orders.send(order);
    }

    /// Takes the result of an order, if it is there.
    pub(super) fn result(&self) -> Option<Result<Connected, ConnectError>> {
        self.results.try_recv().ok()
    }
}

/// Connects to a server and opens the export, on several connections, at most `most`, if that is
/// wanted and the server shares its cache between them. Blocks.
///
/// # Errors
/// Fails if no server is there, or it does not serve the export, or it is this daemon, or TLS is
/// required and one side refuses the other. Of connections behind the first one, as many are made
/// as there can be.
pub(super) fn connect(config: &NbdConfig, most: usize) -> Result<Connected, ConnectError> {
    let file = socket_file(config);
    let first = connect_once(config, None)?;
    let (negotiated, address) = (first.negotiated, first.address);
    let wanted = most.min(config.connections as usize);
    let mut all = Connected {
        sockets: vec![(first.socket, first.spare)],
        negotiated,
        fewer: None,
    };
    if wanted > 1 && !all.negotiated.abilities().multi_conn {
        let what = "the server does not share its cache between connections \
                    (NBD_FLAG_CAN_MULTI_CONN)";
        all.fewer = Some(what.to_owned());
        return Ok(all);
    }
    let end = Instant::now() + MORE_WITHIN;
    while all.sockets.len() < wanted {
        if end <= Instant::now() {
            let seconds = MORE_WITHIN.as_secs();
            all.fewer = Some(format!("further ones were not opened within {seconds} s"));
            break;
        }
        match connect_once(config, address) {
            Ok(next) if next.negotiated == all.negotiated => {
                all.sockets.push((next.socket, next.spare));
            }
            // Another server has come meanwhile, or they are behind one address.
            Ok(next) => {
                let what = difference(&all.negotiated, &next.negotiated);
                return Err(io::Error::other(what).into());
            }
            Err(error) => {
                all.fewer = Some(error.to_string());
                break;
            }
        }
    }
    // The first ones could be to a server that goes on with them, and shares no cache with its
    // successor. One that has ended answers nothing more, and breaks all.
    if all.sockets.len() > 1 && socket_file(config) != file {
        let replaced = "the file of its socket changed between two connections";
        return Err(io::Error::other(replaced).into());
    }
    Ok(all)
}

/// Returns the difference between the exports of two connections to one server, in words.
fn difference(first: &Negotiated, next: &Negotiated) -> String {
    let what = if first.size != next.size {
        let [first, next] = [first, next].map(|it| exact_bytes(it.size));
        format!("{first} on one connection and {next} on the next")
    } else if first.flags != next.flags {
        let (first, next) = (first.flags, next.flags);
        format!("transmission flags {first:#06x} on one connection and {next:#06x} on the next")
    } else {
        "another export on the next connection".to_owned()
    };
    format!("the server offered {what}: all must lead to one server, or `connections = 1`")
}

/// Identity of the file of the server's unix socket, which each server makes anew; `None` on TCP,
/// or if there is none.
fn socket_file(config: &NbdConfig) -> Option<impl Eq + use<>> {
    let Address::Unix(path) = &config.uri.address else {
        return None;
    };
    let meta = std::fs::metadata(path).ok()?;
    // Some file systems give the number of an inode to the next file at once.
    let changed = (meta.ctime(), meta.ctime_nsec());
    Some((meta.dev(), meta.ino(), changed))
}

/// Makes one connection, to `address` if the server has several.
fn connect_once(config: &NbdConfig, address: Option<SocketAddr>) -> Result<Single, ConnectError> {
    let until = || Instant::now() + HANDSHAKE_TIMEOUT;
    let handshake = Handshake::new(&config.uri.export, Wishes::default());
    let tcp = |host: &str, port: u16| {
        let stream = match address {
            Some(address) => connect_tcp(address, &config.own_listeners)?,
            None => connect_tcp((host, port), &config.own_listeners)?,
        };
        let address = stream.peer_addr()?;
        Ok::<_, ConnectError>((stream, address))
    };
    let (socket, address): (OwnedFd, _) = match (&config.uri.address, &config.tls) {
        (Address::Unix(path), _) => {
            let stream = connect_unix(Path::new(path), &config.own_listeners)?;
            (stream.into(), None)
        }
        (Address::Tcp { host, port }, None) => {
            let (stream, address) = tcp(host, *port)?;
            (stream.into(), Some(address))
        }
        (Address::Tcp { host, port }, Some(tls)) => {
            // Read again each time: a certificate may have been renewed.
            let credentials = Credentials::load(tls, host)?;
            let (stream, address) = tcp(host, *port)?;
            let stream = Timed::new(stream, until());
            let single = over_tls(stream, handshake, &credentials, config, tls)?;
            return Ok(Single {
                address: Some(address),
                ..single
            });
        }
    };
    let file = File::from(socket.try_clone()?);
    let mut stream = Timed::new(file, until());
    let negotiated = shake_hands(&mut stream, handshake)?;
    let file = stream.stream;
    Ok(Single {
        socket,
        spare: Spare { file, relay: None },
        negotiated,
        address,
    })
}

/// Goes on with a connection over TLS, which comes before anything else.
fn over_tls(
    mut stream: Timed<TcpStream>,
    mut handshake: Handshake,
    credentials: &Credentials,
    config: &NbdConfig,
    tls: &NbdTlsConfig,
) -> Result<Single, ConnectError> {
    handshake = handshake.require_tls();
    match negotiate(&mut stream, &mut handshake)? {
        None => {}
        Some(_) => unreachable!("nothing is opened without TLS"),
    }
    let mut session = credentials.shake_hands(&mut stream)?;
    handshake.tls_established();
    let mut text = rustls::Stream::new(&mut session, &mut stream);
    let negotiated = match shake_hands(&mut text, handshake) {
        Err(ConnectError::Io(error)) => return Err(credentials.explain(error).into()),
        other => other?,
    };
    let (server, is_confined) = (config.uri.to_string(), tls.is_confined);
    let (socket, relay) = Relay::start(session, stream.stream, server, is_confined)?;
    let file = File::from(socket.try_clone()?);
    let relay = Some(relay);
    Ok(Single {
        socket,
        spare: Spare { file, relay },
        negotiated,
        address: None,
    })
}

/// Connects over a unix socket, without a wait for room in the server's queue: one that hangs makes
/// none.
fn connect_unix(path: &Path, own: &[ListenAddress]) -> Result<UnixStream, ConnectError> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| {
        if error.kind() == io::ErrorKind::WouldBlock {
            return io::Error::new(error.kind(), "the server accepts no connections at present");
        }
        error
    })?;
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(OwnedFd::from(socket));
    // By identity, which symbolic links and bind mounts do not change.
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|meta| sys::identity(&meta))
    };
    let server = identity(path);
    for listen in own {
        if let ListenAddress::Unix { path, .. } = listen
            && server.is_some()
            && identity(path) == server
        {
            return Err(ConnectError::Loop(path.display().to_string()));
        }
    }
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    stream.set_write_timeout(Some(STEP_TIMEOUT))?;
    Ok(stream)
}

fn connect_tcp(
    server: impl ToSocketAddrs,
    own: &[ListenAddress],
) -> Result<TcpStream, ConnectError> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in server.to_socket_addrs()? {
        let stream = match TcpStream::connect_timeout(&address, STEP_TIMEOUT) {
            Ok(stream) => stream,
            Err(error) => {
                failed = error;
                continue;
            }
        };
        if let Some(listener) = own_listener(stream.peer_addr()?, stream.local_addr()?, own) {
            return Err(ConnectError::Loop(listener.to_string()));
        }
        stream.set_nodelay(true)?;
        sys::keep_tcp_alive(stream.as_fd(), GIVEN_UP_AFTER)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        stream.set_write_timeout(Some(STEP_TIMEOUT))?;
        return Ok(stream);
    }
    Err(failed.into())
}

/// Returns the listener of this daemon that has accepted a connection from `local` to `peer`, if
/// it is one. A connection within a host has one of the host's addresses at both ends.
fn own_listener(peer: SocketAddr, local: SocketAddr, own: &[ListenAddress]) -> Option<SocketAddr> {
    let [peer_ip, local_ip] = [peer, local].map(|address| address.ip().to_canonical());
    if !peer_ip.is_loopback() && peer_ip != local_ip {
        return None;
    }
    let takes = |listener: IpAddr| listener.is_unspecified() || listener.to_canonical() == peer_ip;
    own.iter().find_map(|listen| match listen {
        ListenAddress::Tcp(address) => {
            (address.port() == peer.port() && takes(address.ip())).then_some(*address)
        }
        _ => None,
    })
}

/// Stream whose calls fail once the time for the whole handshake is over: a server that sends a
/// byte now and then keeps to the time of each step.
struct Timed<S> {
    stream: S,
    until: Instant,
}

impl<S> Timed<S> {
    fn new(stream: S, until: Instant) -> Timed<S> {
        Timed { stream, until }
    }

    fn check(&self) -> io::Result<()> {
        if Instant::now() > self.until {
            let what = format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok(())
    }
}

impl<S: Read> Read for Timed<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.read(to).map_err(in_words)
    }
}

impl<S: Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns the error of a step of the handshake; a time-out of the socket has another one's words.
fn in_words(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        let what = format!("no answer within {} s", STEP_TIMEOUT.as_secs());
        return io::Error::new(io::ErrorKind::TimedOut, what);
    }
    error
}

/// Opens the export on a connection whose bytes are the protocol's from now on.
fn shake_hands(
    stream: &mut (impl Read + Write),
    mut handshake: Handshake,
) -> Result<Negotiated, ConnectError> {
    let negotiated = negotiate(stream, &mut handshake)?;
    Ok(negotiated.expect("TLS begins once"))
}

/// Exchanges messages until transmission or TLS begins; `None` for TLS.
fn negotiate(
    stream: &mut (impl Read + Write),
    handshake: &mut Handshake,
) -> Result<Option<Negotiated>, ConnectError> {
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        // After TLS the first message is the client's.
        if !handshake.output().is_empty() {
            stream.write_all(handshake.output())?;
            let n = handshake.output().len();
            handshake.consume_output(n);
        }
        let (used, progress) = handshake.handle(&input)?;
        input.drain(..used);
        match progress {
            Progress::NeedMore(_) => {
                let n = stream.read(&mut buffer)?;
                if n == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                input.extend_from_slice(&buffer[..n]);
            }
            Progress::Send => {}
            Progress::StartTls => return Ok(None),
            Progress::Ready(negotiated) => {
                return match input.is_empty() {
                    true => Ok(Some(negotiated)),
                    false => Err(ClientError::Malformed("bytes behind the handshake").into()),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_listeners_are_known_by_port_and_addresses_of_this_host() {
        let own: Vec<_> = ["0.0.0.0:10809", "127.0.0.1:7", "[::]:8"]
            .map(|text| ListenAddress::Tcp(text.parse().expect("an address")))
            .into();
        let is_own = |peer: &str, local: &str| {
            let [peer, local] = [peer, local].map(|text| text.parse().expect("an address"));
            own_listener(peer, local, &own).is_some()
        };
        assert!(is_own("127.0.0.1:10809", "127.0.0.1:40000"));
        assert!(is_own("127.0.0.2:10809", "127.0.0.1:40000"));
        assert!(
            is_own("192.0.2.1:10809", "192.0.2.1:40000"),
            "an address of this host"
        );
        assert!(is_own("[::1]:8", "[::1]:40000"));
        assert!(is_own("127.0.0.1:8", "127.0.0.1:40000"), "[::] takes IPv4");
        assert!(
            !is_own("192.0.2.1:10809", "192.0.2.2:40000"),
            "another host"
        );
        assert!(
            !is_own("127.0.0.1:10810", "127.0.0.1:40000"),
            "another port"
        );
        assert!(!is_own("127.0.0.2:7", "127.0.0.1:40000"), "another address");
    }
}
