//! Connections that were taken out of event loops, on their way to another daemon, or to the loops
//! of their disks here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::shared::Shared;
use crate::command::{Command, HandedConnection, HandedOver, HandedSession, NewConnection};
use crate::frontend::vhost_user::Summons;
use crate::ownership::Ownership;
use crate::takeover::{Channel, ConnectionState, Message, SessionPlan, State};

/// Connections that were sent off, and the channels of those that may follow.
#[derive(Default)]
pub(super) struct Paused {
    pub(super) connections: Vec<HandedConnection>,
    pub(super) sessions: Vec<HandedSession>,
    pub(super) channels: Vec<mpsc::UnboundedReceiver<HandedOver>>,
    /// Sessions of front-ends that were asked to rest.
    pub(super) resting: Vec<Summons>,
}

impl Paused {
    /// Returns the number of clients whose connections were sent off.
    pub(super) fn len(&self) -> usize {
        self.connections.len() + self.sessions.len()
    }

    /// Receives all connections, until nothing is left in the loops.
    pub(super) async fn receive(&mut self) {
        for channel in &mut self.channels {
            while let Some(one) = channel.recv().await {
                match one {
                    HandedOver::Connection(one) => self.connections.push(one),
                    HandedOver::Session(one) => self.sessions.push(one),
                }
            }
        }
    }

    /// Returns the ownerships of locks on records of requests in flight.
    pub(super) fn locks(&self) -> impl Iterator<Item = &Ownership> {
        self.sessions.iter().filter_map(|one| one.handed.lock())
    }

    /// Sends the connections with what was learnt, which is in `state`.
    ///
    /// # Errors
    /// As for [`Channel::send`].
    pub(super) fn send(&mut self, channel: &mut Channel, state: State) -> std::io::Result<()> {
        let (sessions, files) = self.session_plans();
        let connections = self.connections.iter().enumerate();
        let connections = connections.map(|(at, one)| connection_state(at as u32, one));
        let state = State {
            connections: connections.collect(),
            sessions,
            ..state
        };
        let handed = || self.connections.iter().map(|one| &one.handed);
        let bytes: Vec<&[u8]> = handed()
            .flat_map(|handed| [&handed.input[..], &handed.unsent[..]])
            .collect();
        let sockets = handed().map(|handed| handed.fd.as_fd());
        let descriptors: Vec<BorrowedFd<'_>> =
            sockets.chain(files.iter().map(AsFd::as_fd)).collect();
        channel.send_with(&Message::State(state), &bytes, &descriptors)
    }

    /// Returns the sessions, and their files in the order of their numbers, which follow those of
    /// connections.
    fn session_plans(&mut self) -> (Vec<SessionPlan>, Vec<OwnedFd>) {
        let (mut plans, mut files) = (Vec::new(), Vec::new());
        let first = self.connections.len();
        for one in &mut self.sessions {
            let Some(state) = one.handed.take_state() else {
                continue;
            };
            let session = state.map(|file| {
                files.push(file);
                (first + files.len() - 1) as u32
            });
            plans.push(SessionPlan {
                export: one.disk.clone(),
                peer: one.peer.clone(),
                session,
            });
        }
        (plans, files)
    }

    /// Goes on with all connections here, and with those that come to rest later. Must be called
    /// within the daemon's runtime, once the loops take connections again.
    pub(super) fn take_back(self, shared: &Arc<Shared>) {
        let Paused {
            connections,
            sessions,
            channels,
            resting,
        } = self;
        // Sessions that no loop has taken out.
        resting.iter().for_each(Summons::go_on);
        for one in connections {
            add(shared, one);
        }
        for one in sessions {
            send(shared, one.reopen());
        }
        for mut channel in channels {
            let shared = shared.clone();
            tokio::spawn(async move {
                while let Some(one) = channel.recv().await {
                    match one {
                        HandedOver::Connection(one) => add(&shared, one),
                        HandedOver::Session(one) => send(&shared, one.reopen()),
                    }
                }
            });
        }
    }
}

/// Returns the state of a connection whose socket is this descriptor of the message.
fn connection_state(descriptor: u32, one: &HandedConnection) -> ConnectionState {
    let state = &one.handed.state;
    ConnectionState {
        export: one.disk.clone(),
        peer: one.peer.clone(),
        descriptor,
        size: state.size,
        skip: state.skip,
        block_min: state.block_min,
        payload_max: state.payload_max,
        flags: state.flags,
        structured_replies: state.style == tidegate_nbd::ReplyStyle::Structured,
        context: one.handed.allocation_context,
        input: one.handed.input.len() as u64,
        unsent: one.handed.unsent.len() as u64,
    }
}

/// Adds a connection to the event loop of its disk, once its client has taken the replies that the
/// socket did not take before.
pub(super) fn add(shared: &Arc<Shared>, connection: HandedConnection) {
    if connection.handed.unsent.is_empty() {
        return send(shared, connection.reopen());
    }
    let to = shared.clone();
    let go_on = move |connection: HandedConnection| send(&to, connection.reopen());
    shared.unsent.add(connection, go_on);
}

fn send(shared: &Shared, new: NewConnection) {
    let mut device = None;
    for vm in shared.vms.configs() {
        if vm.disks.iter().any(|disk| disk.export == new.disk) {
            device = Some(vm.device);
        }
    }
    // Without the VM, or its loop, the connection is closed as when a VM is removed.
    if let Some(device) = device {
        let _ = shared
            .devices
            .send(device, Command::AddConnection(Box::new(new)));
    }
}
