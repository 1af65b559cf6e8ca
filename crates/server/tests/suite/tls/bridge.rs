//! Client's side of TLS: a bridge between a unix socket, on which a test speaks NBD, and the
//! server, with bytes cut at random places.

use std::io::{self, Read, Write};
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::{Authority, Identity};

/// Deadline for anything that a server should do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const STARTTLS: u32 = 5;

/// Client of TLS.
pub(crate) struct TlsClient {
    pub(crate) config: Arc<ClientConfig>,
    /// Name that the server's certificate has to have.
    pub(crate) server: &'static str,
    /// Cuts TCP's bytes and TLS's records at random places.
    pub(crate) cuts: Option<u64>,
}

impl TlsClient {
    /// Makes a client that trusts an authority, and has a certificate if there is one.
    pub(crate) fn new(authority: &Authority, identity: Option<&Identity>) -> TlsClient {
        TlsClient::of_versions(authority, identity, rustls::ALL_VERSIONS)
    }

    pub(crate) fn of_versions(
        authority: &Authority,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        let pem = authority.pem();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        TlsClient {
            config: Arc::new(config),
            server: "server.example",
            cuts: None,
        }
    }

    /// Connects and starts TLS. The socket is at the first option over TLS.
    ///
    /// # Errors
    /// If the client refuses the server, or the server refused the client before it was ready.
    pub(crate) fn connect(&self, address: &str) -> io::Result<Bridge> {
        let mut tcp = plain(address);
        assert_eq!(ask(&mut tcp, STARTTLS, b"").unwrap(), [(1, vec![])]);
        self.start_tls(tcp)
    }

    /// Starts TLS on a connection whose server expects it.
    pub(crate) fn start_tls(&self, tcp: StdTcpStream) -> io::Result<Bridge> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let below = tcp.try_clone()?;
        tcp.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let (config, cuts) = (self.config.clone(), self.cuts);
        let server = ServerName::try_from(self.server).unwrap();
        let (ready, is_ready) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async move {
                let tcp = Cut::new(TcpStream::from_std(tcp).unwrap(), cuts);
                match TlsConnector::from(config).connect(server, tcp).await {
                    Ok(tls) => {
                        ready.send(Ok(())).unwrap();
                        let local = UnixStream::from_std(theirs).unwrap();
                        run(tls, local, cuts, end).await;
                    }
                    Err(error) => ready.send(Err(error)).unwrap(),
                }
            });
        });
        is_ready.recv().unwrap()?;
        Ok(Bridge {
            stream: ours,
            tcp: below,
            ended,
        })
    }
}

/// Connection over TLS.
pub(crate) struct Bridge {
    pub(crate) stream: StdUnixStream,
    /// Socket below TLS.
    pub(crate) tcp: StdTcpStream,
    ended: mpsc::Receiver<io::Result<()>>,
}

impl Bridge {
    /// Waits for the server's end of the connection; an error if it is no `close_notify`.
    pub(crate) fn ended(&self) -> io::Result<()> {
        self.ended
            .recv_timeout(PATIENCE)
            .expect("the server ends the connection")
    }

    /// Puts a greeting in front, and takes the client's flags, which were sent in plain text.
    pub(crate) fn greet(self) -> StdUnixStream {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        std::thread::spawn(move || {
            theirs.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
            let mut flags = [0; 4];
            theirs.read_exact(&mut flags).unwrap();
            let (mut to, mut from) = (
                self.stream.try_clone().unwrap(),
                theirs.try_clone().unwrap(),
            );
            let up = std::thread::spawn(move || {
                // Either end may close first.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            self.stream.set_read_timeout(None).unwrap();
            let _ = io::copy(&mut &self.stream, &mut theirs);
            let _ = theirs.shutdown(std::net::Shutdown::Write);
            up.join().unwrap();
        });
        ours
    }
}

/// Connects, reads the greeting and sends the client's flags.
pub(crate) fn plain(address: &str) -> StdTcpStream {
    let mut tcp = StdTcpStream::connect(address).expect("a listener");
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.set_write_timeout(Some(PATIENCE)).unwrap();
    tcp.set_nodelay(true).unwrap();
    let mut greeting = [0; 18];
    tcp.read_exact(&mut greeting).expect("it greets");
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
    tcp.write_all(&3u32.to_be_bytes()).unwrap();
    tcp
}

/// Returns the bytes of an option.
pub(crate) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let (option, len) = (option.to_be_bytes(), (data.len() as u32).to_be_bytes());
    [b"IHAVEOPT", &option[..], &len, data].concat()
}

/// Payload of `NBD_OPT_INFO` and `NBD_OPT_GO` without information requests.
pub(crate) fn named(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &[0, 0]].concat()
}

/// Sends an option and returns its replies up to the last, each with its type.
pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    number: u32,
    data: &[u8],
) -> io::Result<Vec<(u32, Vec<u8>)>> {
    stream.write_all(&option(number, data))?;
    let mut replies = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(field(8), number, "a reply names its option");
        let mut data = vec![0; field(16) as usize];
        stream.read_exact(&mut data)?;
        let kind = field(12);
        replies.push((kind, data));
        // NBD_REP_ACK, or an error.
        if kind == 1 || kind >> 31 == 1 {
            return Ok(replies);
        }
    }
}

/// Moves bytes until both sides have ended, and reports how the server's side did.
async fn run(
    tls: TlsStream<Cut>,
    local: UnixStream,
    cuts: Option<u64>,
    end: mpsc::Sender<io::Result<()>>,
) {
    let (mut from_server, mut to_server) = tokio::io::split(tls);
    let (mut from_test, mut to_test) = local.into_split();
    let up = async {
        let mut rng = cuts.map(Pcg64::seed_from_u64);
        let mut piece = vec![0; 64 << 10];
        loop {
            let most = rng.as_mut().map_or(piece.len(), length);
            let n = from_test.read(&mut piece[..most]).await.unwrap_or(0);
            if n == 0 {
                // The server may be gone.
                let _ = to_server.shutdown().await;
                return;
            }
            let sent = to_server.write_all(&piece[..n]).await;
            if sent.is_err() || to_server.flush().await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut piece = vec![0; 64 << 10];
        let ended = loop {
            match from_server.read(&mut piece).await {
                Ok(0) => break Ok(()),
                // The test may have what it wanted.
                Ok(n) => _ = to_test.write_all(&piece[..n]).await,
                Err(error) => break Err(error),
            }
        };
        let _ = to_test.shutdown().await;
        // A test may not ask.
        let _ = end.send(ended);
    };
    tokio::join!(up, down);
}

/// Returns the length of a piece: half of them are short.
fn length(rng: &mut Pcg64) -> usize {
    match rng.random_bool(0.5) {
        true => rng.random_range(1..64),
        false => rng.random_range(1..20_000),
    }
}

/// Socket whose reads and writes end at random places.
struct Cut {
    tcp: TcpStream,
    rng: Option<Pcg64>,
}

impl Cut {
    fn new(tcp: TcpStream, seed: Option<u64>) -> Cut {
        Cut {
            tcp,
            rng: seed.map(|seed| Pcg64::seed_from_u64(seed ^ 1)),
        }
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = this
            .rng
            .as_mut()
            .map_or(usize::MAX, length)
            .min(buf.remaining());
        let mut piece = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut piece))?;
        let n = piece.filled().len();
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Cut {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let most = this.rng.as_mut().map_or(usize::MAX, length).min(buf.len());
        Pin::new(&mut this.tcp).poll_write(cx, &buf[..most])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}
