//! Commands beside I/O: however many wait, a turn executes some of them and goes on.

use std::sync::mpsc::channel;
use std::time::Duration;

use tidegate_nbd as nbd;
use tokio::sync::oneshot;

use crate::command::{Command, LoopCall};
use crate::common::{Server, disk, request, single, vm};
use crate::config::DeviceKind;

const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `f` in the loop of the only device.
fn call(server: &Server, f: impl FnOnce() + Send + 'static) {
    let command = Command::Call(LoopCall(Box::new(f)));
    let sent = server.handle.devices().send(0, command);
    sent.expect("the loop runs");
}

#[test]
fn requests_are_answered_while_many_commands_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    // A snapshot of so many VMs is the work of more than a turn.
    for i in 0..20 {
        let name = format!("other{i}");
        let disk = disk(&name, None, 1 << 20);
        config.vms.push(vm(&name, 0, vec![disk]));
    }
    let server = Server::start(config);
    let mut client = server.connect("disk");
    client.write(0, &[1; 4096]);
    for snapshots in [false, true] {
        let (held, go) = channel::<()>();
        call(&server, move || go.recv().expect("the test goes on"));
        let mut answers = Vec::new();
        for _ in 0..1000 {
            if snapshots {
                let (reply, answer) = oneshot::channel();
                let sent = server.handle.devices().send(0, Command::Snapshot { reply });
                sent.expect("the loop runs");
                answers.push(answer);
            } else {
                call(&server, || ());
            }
        }
        // The last command waits until the client has its answer.
        let (answered, last) = channel::<()>();
        let (report, reported) = channel();
        call(&server, move || {
            let is_answered = last.recv_timeout(PATIENCE).is_ok();
            report.send(is_answered).expect("the test waits");
        });
        client.send(request(nbd::Command::Read { df: false }, 1, 0, 4096), &[]);
        held.send(()).expect("the loop waits");
        assert_eq!(client.receive().result.expect("it is read"), [1; 4096]);
        // A loop that has executed all of them meanwhile has given up waiting.
        let _ = answered.send(());
        assert!(reported.recv().expect("a report"), "snapshots: {snapshots}");
        for answer in answers {
            assert_eq!(answer.blocking_recv().expect("it runs").vms.len(), 21);
        }
    }
    server.stop().expect("an end in order");
}
