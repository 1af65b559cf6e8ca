//! Connection between two daemons. Calls block, so they are made on threads that may.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::TakeoverError;
use super::message::{HEAD_LEN, Head, Message, Problem, Reader};
use crate::ring::sys;

/// Connection between two daemons.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
}

impl Channel {
    /// Uses a connected socket.
    ///
    /// # Errors
    /// If the socket cannot be made to block.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Channel> {
        stream.set_nonblocking(false)?;
        Ok(Channel { stream })
    }

    /// Returns the socket.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sets the time within which each part of a message has to come or to be taken.
    ///
    /// # Errors
    /// If the socket does not take it.
    pub(crate) fn allow(&self, time: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(time))?;
        self.stream.set_write_timeout(Some(time))
    }

    /// Checks that the peer has not closed its end, without waiting.
    ///
    /// # Errors
    /// If it has. Messages that it sent before may be there still.
    pub(crate) fn check_peer(&self) -> io::Result<()> {
        if sys::is_hung_up(self.stream.as_fd(), Duration::ZERO) {
            let gone = "it has closed the connection";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, gone));
        }
        Ok(())
    }

    /// Has all further messages of the peer fail there. Those that it has sent can be received.
    ///
    /// # Errors
    /// If the socket does not take it.
    pub(crate) fn stop_receiving(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Read)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the peer is gone or does not take it in time.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_with(message, &[], &[])
    }

    /// Tells the peer why this daemon does not go on with the takeover. The peer may be gone.
    pub(crate) fn refuse(&mut self, error: &TakeoverError) {
        let problem = Problem {
            what: error.to_string(),
            help: error.help().unwrap_or_default(),
        };
        let _ = self.send(&Message::Refused(problem));
    }

    /// Receives the message that has to come next.
    ///
    /// # Errors
    /// As for [`Channel::receive`], if the peer refuses, or if it sends another one.
    pub(crate) fn expect(&mut self, expected: &Message) -> Result<(), TakeoverError> {
        match self.receive()?.0 {
            message if message == *expected => Ok(()),
            Message::Refused(Problem { what, help }) => Err(TakeoverError::Refused { what, help }),
            _ => Err(io::Error::other("another message is due").into()),
        }
    }

    /// Sends a message with bytes and descriptors. One without both is sent as a whole or not at
    /// all.
    ///
    /// # Errors
    /// As for [`Channel::send`].
    pub(crate) fn send_with(
        &mut self,
        message: &Message,
        bytes: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let json = serde_json::to_vec(message)?;
        let head = Head {
            json: u32::try_from(json.len()).map_err(io::Error::other)?,
            bytes: bytes.iter().map(|part| part.len() as u64).sum(),
            descriptors: descriptors.len() as u32,
        };
        let mut head = head.encode().to_vec();
        if descriptors.is_empty() {
            head.extend(&json);
            self.stream.write_all(&head)?;
            return bytes
                .iter()
                .try_for_each(|part| self.stream.write_all(part));
        }
        self.stream.write_all(&head)?;
        for group in descriptors.chunks(sys::DESCRIPTORS_MAX) {
            sys::send_descriptors(&self.stream, group)?;
        }
        self.stream.write_all(&json)?;
        bytes
            .iter()
            .try_for_each(|part| self.stream.write_all(part))
    }

    /// Receives a message with its descriptors and bytes.
    ///
    /// # Errors
    /// If the peer is gone, sends nothing in time, or breaks a rule.
    pub(crate) fn receive(&mut self) -> io::Result<(Message, Reader<OwnedFd>)> {
        let mut head = [0; HEAD_LEN];
        self.stream.read_exact(&mut head)?;
        let head = Head::decode(&head).map_err(io::Error::other)?;
        let mut descriptors = Vec::new();
        while descriptors.len() < head.descriptors as usize {
            let group = sys::receive_descriptors(&self.stream)?;
            if group.is_empty() {
                return Err(io::Error::other("descriptors are missing"));
            }
            descriptors.extend(group);
        }
        let mut part = |len: u64| {
            let mut bytes = Vec::new();
            let read = Read::by_ref(&mut self.stream)
                .take(len)
                .read_to_end(&mut bytes)?;
            match read as u64 == len {
                true => Ok(bytes),
                false => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        };
        let json = part(u64::from(head.json))?;
        let bytes = part(head.bytes)?;
        let message = serde_json::from_slice(&json)?;
        Ok((message, Reader::new(descriptors, bytes)))
    }
}
