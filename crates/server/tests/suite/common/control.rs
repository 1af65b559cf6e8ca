//! Control API and metrics of a daemon in the test process, and a blocking client.

use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::thread::JoinHandle;

use tidegate_server::config::Config;
use tidegate_server::control::Sockets;
use tokio::sync::oneshot;

use super::Server;

/// Sockets that are served; closed when dropped.
pub struct ControlApi {
    /// Paths and addresses: of the API in the order of the configuration, then of metrics.
    pub names: Vec<String>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl ControlApi {
    /// Serves the sockets of a configuration for a daemon.
    pub fn start(config: Config, server: &Server) -> ControlApi {
        let (names, bound) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = server.handle.clone();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let sockets = Sockets::bind(&config).expect("free addresses");
                let all: Vec<_> = sockets.names().map(str::to_owned).collect();
                names.send(all).unwrap();
                let stopped = async move { drop(stopped.await) };
                let served = sockets.serve(handle, stopped).await;
                served.expect("it registers its sockets");
            });
        });
        ControlApi {
            names: bound.recv().expect("it binds"),
            stop: Some(stop),
            serving: Some(serving),
        }
    }
}

impl Drop for ControlApi {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            let ended = serving.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Sends the last request of a connection and returns what comes until its end: the head and the
/// body of the answer.
pub fn http(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<String> {
    let len = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {len}\r\n\
         {headers}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
