//! NBD client that has one request outstanding, or does not wait for answers.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use tidegate_nbd::client::{Decoded, Handshake, Progress, Wishes, decode_reply, encode_request};
use tidegate_nbd::{Command, Request};

/// Connection to an export.
pub(crate) struct Disk {
    stream: UnixStream,
    input: Vec<u8>,
    cookie: u64,
}

impl Disk {
    /// Connects to an export.
    pub(crate) fn open(socket: &Path, export: &str) -> Disk {
        let mut disk = Disk {
            stream: UnixStream::connect(socket).expect("a listener"),
            input: Vec::new(),
            cookie: 0,
        };
        let mut handshake = Handshake::new(export, Wishes::default());
        loop {
            let (used, progress) = handshake
                .handle(&disk.input)
                .expect("the server keeps the rules");
            disk.input.drain(..used);
            match progress {
                Progress::NeedMore(_) => disk.receive().expect("the server answers"),
                Progress::StartTls => unreachable!("TLS is not required"),
                Progress::Send => {
                    disk.stream.write_all(handshake.output()).expect("taken");
                    let n = handshake.output().len();
                    handshake.consume_output(n);
                }
                Progress::Ready(_) => return disk,
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 8192];
        let n = self.stream.read(&mut piece)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.input.extend_from_slice(&piece[..n]);
        Ok(())
    }

    /// Sends a request.
    fn send(
        &mut self,
        command: Command,
        (offset, len): (u64, u32),
        payload: &[u8],
    ) -> io::Result<()> {
        self.cookie += 1;
        let request = Request {
            cookie: self.cookie,
            command,
            fua: false,
            offset,
            len,
        };
        self.stream.write_all(&encode_request(&request))?;
        self.stream.write_all(payload)
    }

    /// Reads and discards answers from now on, until the connection ends.
    pub(crate) fn discard_answers(&self) -> JoinHandle<()> {
        let mut stream = self.stream.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            // An error ends it as the end does.
            let _ = io::copy(&mut stream, &mut io::sink());
        })
    }

    /// Sends a write of zeroes as data, and does not wait for its answer.
    ///
    /// # Errors
    /// If the server has ended.
    pub(crate) fn send_write(&mut self, offset: u64, len: u32) -> io::Result<()> {
        self.send(Command::Write, (offset, len), &vec![0; len as usize])
    }

    /// Sends a request and waits for its reply; `answer` is the length of the bytes behind that.
    fn request(
        &mut self,
        command: Command,
        (offset, len): (u64, u32),
        payload: &[u8],
        answer: usize,
    ) -> io::Result<()> {
        self.send(command, (offset, len), payload)?;
        let used = loop {
            match decode_reply(&self.input).expect("a reply") {
                // A simple reply to a read is followed by its bytes.
                Decoded::Reply(used, _) if self.input.len() >= used + answer => {
                    break used + answer;
                }
                _ => self.receive()?,
            }
        };
        self.input.drain(..used);
        Ok(())
    }

    /// Reads.
    ///
    /// # Errors
    /// If the server has ended.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> io::Result<()> {
        let command = Command::Read { df: false };
        self.request(command, (offset, len), &[], len as usize)
    }

    /// Writes zeroes as data.
    ///
    /// # Errors
    /// If the server has ended.
    pub(crate) fn write(&mut self, offset: u64, len: u32) -> io::Result<()> {
        let payload = vec![0; len as usize];
        self.request(Command::Write, (offset, len), &payload, 0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also for a copy of the descriptor that reads.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
