//! Connections that were handed over: their last replies are sent before they go to a loop.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use crate::command::{Command, HandedConnection, NewConnection};
use crate::frontend::Opening;

/// Adds a connection to the event loop of its disk, once its client has taken the replies that the
/// socket did not take before. A client that takes none has a thread of its own until it does.
pub(super) fn add(shared: &Arc<Shared>, connection: HandedConnection) {
    let (new, unsent) = connection.reopen();
    if unsent.is_empty() {
        return send(shared, new);
    }
    let Opening::Nbd(opening) = &new.opening else {
        unreachable!("only connections of NBD are handed over");
    };
    let Ok(fd) = opening.fd.as_fd().try_clone_to_owned() else {
        return tracing::warn!(export = %new.disk, "client lost: no free descriptor");
    };
    shared.unsent.fetch_add(1, Ordering::Relaxed);
    let shared = shared.clone();
    let write = move || {
        // Reads and writes of a stream are the same calls for each family of sockets.
        let sent = UnixStream::from(fd).write_all(&unsent);
        match sent {
            Ok(()) => send(&shared, new),
            Err(error) => tracing::info!(export = %new.disk, "client gone: {error}"),
        }
        shared.unsent.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("unsent replies".to_owned());
    if let Err(error) = thread.spawn(write) {
        tracing::error!("client lost: {error}");
    }
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
