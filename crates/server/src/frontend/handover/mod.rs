//! Hand-over between the loop of a device and its socket loops: what they tell each other, and how.
//!
//! ```text
//!   socket loop                                     loop of the device
//!   request, without payload   -- Request ------->  claim of slot and payload memory
//!   receive of a write's payload  <-- Receive ----  its memory
//!   payload is complete        -- Arrived ------->  engine, device
//!   reply with bytes from there   <-- Answer -----  outcome, memory of the bytes
//!   reply was sent or dropped  -- Ended --------->  slot and memory are free
//! ```
//!
//! Memory of payloads belongs to the loop of the device, and so do all budgets. A socket loop is
//! lent it by `Receive` and `Answer`, and gives it back by `Arrived` and `Ended`. So each slot of
//! the device's loop is at any time in the hands of one of the two.
//!
//! A connection has a *place* in its socket loop, a number that the device's loop gives it and that
//! is another connection's only after [`ToDevice::Closed`] or [`ToDevice::Moved`]. Requests are
//! known by their [tag](crate::frontend::request_table::Requests::tag) in the table of the socket
//! loop. When a connection ends there, its requests leave that table; what the device's loop then
//! still says of them is recognised by the tag's generation and given back at once.

#[cfg(test)]
pub(crate) mod model;
mod queue;
#[cfg(test)]
mod queue_tests;

use std::sync::Arc;

use tidegate_core::time::Nanos;

use queue::{Consumer, Native, Producer, Sleep, queue};

use super::Failure;
use super::nbd;
use super::request::{Answer, Incoming};
use crate::buffer::Mem;
use crate::ring::{Pause, Wake};

/// Largest number of connections of one socket loop.
pub(crate) const PLACES: usize = 16;
/// Largest number of requests of one connection that a socket loop has read and whose replies have
/// not ended. Requests beyond it stay in the socket, so that a client beyond its VM's budgets takes
/// no slots of others.
pub(crate) const WINDOW: u32 = 256;
/// Longest time for which a connection takes no requests because it is to move. A client that takes
/// none of its replies before it has sent more, or whose disk hangs, is served on where it was.
pub(crate) const MOVE_TIMEOUT: Nanos = Nanos::from_millis(20);
/// Places of a queue. Many more are rarely used: each request has at most one message on its way,
/// but for a slot that was freed and taken again.
const QUEUE: usize = 4096;

/// Message of a socket loop to the loop of its device.
#[derive(Debug)]
pub(crate) enum ToDevice {
    /// Request of a connection. Its token is the tag in the socket loop.
    Request {
        place: u32,
        request: Incoming<u64>,
        /// Time at which it was read, or since which it waited to be read.
        since: Nanos,
    },
    /// Request that is answered with a failure without being tried.
    Rejected {
        place: u32,
        tag: u64,
        failure: Failure,
        message: &'static str,
    },
    /// The payload of the write in this slot of the device's loop is complete.
    Arrived {
        place: u32,
        slot: u32,
        /// Tag of the request, which is another one than before if its connection has moved.
        tag: u64,
        since: Nanos,
    },
    /// The socket loop has done with this slot of the device's loop. `sent` is the time at which
    /// its reply was sent; `None` if there was none.
    Ended { slot: u32, sent: Option<Nanos> },
    /// The client has disconnected in order.
    Left { place: u32 },
    /// The client broke a rule of the protocol; the text is for the log.
    Broken { place: u32, why: Box<str> },
    /// The socket is broken or was closed by the client; holds its errno, if any.
    Lost { place: u32, errno: Option<i32> },
    /// Delay of the client has begun or ended.
    Delayed { place: u32, delay: Delay },
    /// The connection has ended: nothing more is said of it, and its place is free.
    Closed { place: u32 },
    /// The connection goes back to the loop of the device; its place is free.
    Moved {
        place: u32,
        moving: Box<nbd::Moving>,
    },
}

/// Message of a device's loop to one of its socket loops.
#[derive(Debug)]
pub(crate) enum ToSockets {
    /// Serve this connection from now on.
    Open { place: u32, opened: Box<Opened> },
    /// Receive the payload of the write with this tag into memory of its slot.
    Receive { tag: u64, slot: u32, memory: Mem },
    /// The request with this tag is answered. The bytes of a reply with data are in `memory`.
    Answer {
        tag: u64,
        slot: u32,
        answer: Answer,
        memory: Option<Mem>,
    },
    /// Longest pause before a receive of the connection.
    BoundPause { place: u32, longest: Pause },
    /// Shut the connection down; nothing more is answered.
    ShutDown { place: u32 },
    /// Give the connection back if its requests are answered within [`MOVE_TIMEOUT`].
    Return { place: u32 },
    /// End the loop.
    Stop,
}

/// Connection on its way to a socket loop.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) moving: nbd::Moving,
    /// Longest pause before a receive.
    pub(crate) longest: Pause,
}

/// Delay of a client, as the checks of a [frontend](super::interface::Frontend) describe it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Delay {
    /// No progress for so long that the stop of the daemon does not wait for it.
    pub(crate) stuck: Option<&'static str>,
    /// Too slow while it holds payload memory that other VMs wait for.
    pub(crate) overdue: Option<&'static str>,
}

/// Thread at one end of a link: how to find out whether it sleeps, and how to wake it.
pub(crate) struct Sleeper {
    pub(crate) sleep: Sleep<Native>,
    pub(crate) wake: Arc<Wake>,
}

impl Sleeper {
    pub(crate) fn new(wake: Arc<Wake>) -> Arc<Sleeper> {
        let sleep = Sleep::default();
        Arc::new(Sleeper { sleep, wake })
    }
}

/// End of a link between two loops: it sends `Out` and receives `In`.
pub(crate) struct End<Out, In> {
    out: Producer<Out, Native>,
    input: Consumer<In, Native>,
    peer: Arc<Sleeper>,
}

/// End of the device's loop.
pub(crate) type DeviceEnd = End<ToSockets, ToDevice>;
/// End of the socket loop.
pub(crate) type SocketEnd = End<ToDevice, ToSockets>;

/// Creates a link between the loop of a device and a socket loop.
pub(crate) fn link(device: Arc<Sleeper>, sockets: Arc<Sleeper>) -> (DeviceEnd, SocketEnd) {
    let (to_sockets, from_device) = queue(QUEUE);
    let (to_device, from_sockets) = queue(QUEUE);
    let device_end = End {
        out: to_sockets,
        input: from_sockets,
        peer: sockets,
    };
    let socket_end = End {
        out: to_device,
        input: from_device,
        peer: device,
    };
    (device_end, socket_end)
}

impl<Out, In> End<Out, In> {
    /// Appends a message, which leaves with the next [`End::publish`].
    #[inline]
    pub(crate) fn send(&self, message: Out) {
        self.out.push(message);
    }

    /// Lets all messages leave, and wakes the other loop if it sleeps.
    #[inline]
    pub(crate) fn publish(&self) {
        if self.out.publish() && self.peer.sleep.must_be_woken() {
            self.peer.wake.wake();
        }
    }

    /// Takes the oldest message that has arrived.
    #[inline]
    pub(crate) fn receive(&self) -> Option<In> {
        self.input.pop()
    }

    /// Returns true if nothing has arrived that was not taken.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Returns true if messages wait for room with the other loop, so that the caller must come
    /// back to [`End::publish`] soon.
    #[inline]
    pub(crate) fn is_overfull(&self) -> bool {
        self.out.is_overfull()
    }
}

impl<Out, In> std::fmt::Debug for End<Out, In> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_one_cache_line() {
        assert!(size_of::<ToDevice>() <= 64, "{}", size_of::<ToDevice>());
        assert!(size_of::<ToSockets>() <= 64, "{}", size_of::<ToSockets>());
    }
}
