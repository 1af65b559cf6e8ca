//! Connections that were handed over, on their way to the event loops of their disks.

use std::sync::Arc;

use super::shared::Shared;
use crate::command::{Command, HandedConnection};

/// Adds a connection to the event loop of its disk, once its client has taken the replies that the
/// socket did not take before.
pub(super) fn add(shared: &Arc<Shared>, connection: HandedConnection) {
    if connection.handed.unsent.is_empty() {
        return send(shared, connection);
    }
    let to = shared.clone();
    let go_on = move |connection| send(&to, connection);
    shared.unsent.add(connection, go_on);
}

fn send(shared: &Shared, connection: HandedConnection) {
    let new = connection.reopen();
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
