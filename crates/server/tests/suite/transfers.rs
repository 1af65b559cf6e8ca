//! Deadline transfers under a whole daemon: the bytes that count, their ends, and persistence.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tidegate_core::objective::Rate;
use tidegate_core::time::Nanos;
use tidegate_nbd::Command;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::command::{CommandError, VmSnapshot};
use tidegate_server::config::{Config, DeviceKind, StoreConfig};
use tidegate_server::daemon::ControlError;
use tidegate_server::store::Store;
use tidegate_server::transfer::{
    Due, PersistedTransfers, RunningTransfer, TransferOrder, TransferResult, VmTransfers,
};

use crate::common::{Client, Server, disk, request, single, vm, wait};

const LEN: u32 = 16 << 10;
const HOUR: Due = Due::In(Nanos::from_secs(3600));

/// Returns a configuration of two VMs in memory, with a store whose periodic snapshots come too
/// late to matter.
fn config(dir: &Path) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, 1 << 20);
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, 1 << 20)]));
    config.store = Some(StoreConfig {
        path: dir.join("tidegate.redb"),
        learnt_every: Nanos::from_secs(3600),
        place: None,
    });
    config
}

fn order(bytes: u64, due: Due) -> TransferOrder {
    TransferOrder {
        bytes,
        due,
        replace: false,
        most: None,
        placed_ns: None,
    }
}

fn begin(server: &Server, order: TransferOrder) -> Result<VmSnapshot, ControlError> {
    wait(
        server
            .handle
            .begin_transfer("disk", order, Timestamp::now()),
    )
}

fn transfers(server: &Server) -> VmTransfers {
    wait(server.handle.vm_snapshot("disk"))
        .expect("it answers")
        .transfers
}

fn running(server: &Server) -> RunningTransfer {
    transfers(server).running.expect("it runs")
}

/// Reads the stored transfers from a copy of the open store; `None` if it changed while it was
/// copied.
fn kept(dir: &Path) -> Option<Vec<(String, PersistedTransfers)>> {
    let copy = dir.join("copy.redb");
    std::fs::copy(dir.join("tidegate.redb"), &copy).expect("it is there");
    let transfers = Store::open(&copy).and_then(|store| store.transfers("device"));
    let read = |(vm, words): (String, String)| {
        let transfer = PersistedTransfers::read(&words).expect("written by a daemon");
        (vm, transfer)
    };
    Some(transfers.ok()?.into_iter().map(read).collect())
}

/// Waits until the store has one running transfer with exactly these bytes moved; `None` for no
/// running transfer.
fn is_kept(dir: &Path, moved: Option<u64>) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = kept(dir);
        let found = now.as_ref().map(|transfers| {
            let mut running = transfers.iter().filter_map(|(_, it)| it.running);
            running.next().map(|transfer| transfer.moved)
        });
        if found == Some(moved) {
            return;
        }
        assert!(Instant::now() < until, "kept: {now:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(client: &mut Client, times: u64) {
    for i in 0..times {
        client.read(i * u64::from(LEN), LEN);
    }
}

/// Makes a transfer of VM `disk` miss its deadline.
fn ends_late(server: &Server, client: &mut Client) {
    let order = order(u64::from(LEN), Due::In(Nanos(1)));
    begin(server, order).expect("a job");
    read(client, 1);
    let last = transfers(server).last.expect("it is over");
    assert_eq!(last.result(), TransferResult::Missed, "{last:?}");
    assert!(
        last.late > Nanos::ZERO && last.early == Nanos::ZERO,
        "{last:?}"
    );
}

#[test]
fn what_is_answered_well_counts_and_the_last_byte_ends_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path()));
    let mut client = server.connect("disk");
    read(&mut client, 1);
    let len = u64::from(LEN);
    let now = begin(&server, order(4 * len, HOUR)).expect("a job");
    let transfer = now.transfers.running.expect("it runs");
    assert_eq!(
        (transfer.bytes(), transfer.moved()),
        (4 * len, 0),
        "what was before is not its"
    );
    assert_eq!(
        transfer.since.due,
        transfer.since.begun + SignedDuration::from_secs(3600)
    );
    // A VM has one transfer at a time, unless `replace` is set.
    let refused = begin(&server, order(1, HOUR)).expect_err("it has one");
    let has = CommandError::HasTransfer {
        vm: "disk".to_owned(),
        moved: 0,
        bytes: 4 * len,
    };
    assert_eq!(refused, ControlError::Refused(has));

    read(&mut client, 2);
    client.write(0, &vec![7; LEN as usize]);
    // Requests that do not count: another VM's, empty ones and failed ones.
    server.connect("other").write(0, &vec![7; LEN as usize]);
    client.flush().expect("it is well");
    client.ask(Command::Write, 1 << 20, LEN, &vec![7; LEN as usize]);
    assert_eq!(running(&server).moved(), 3 * len);
    read(&mut client, 1);
    let now = transfers(&server);
    let last = now.last.expect("it is over");
    assert_eq!((now.running, last.result()), (None, TransferResult::Met));
    assert_eq!((last.bytes, last.moved), (4 * len, 4 * len));
    assert!(
        last.early > Nanos::from_secs(3000) && last.late == Nanos::ZERO,
        "{last:?}"
    );

    ends_late(&server, &mut client);
    one_is_replaced_and_cancelled(&server, &mut client);
    server.stop().expect("ends in order");
}

/// Replaces a transfer by a smaller one, and cancels that.
fn one_is_replaced_and_cancelled(server: &Server, client: &mut Client) {
    let len = u64::from(LEN);
    begin(server, order(2 * len, HOUR)).expect("a job");
    read(client, 1);
    let instead = TransferOrder {
        replace: true,
        ..order(len, HOUR)
    };
    let now = begin(server, instead)
        .expect("instead of the other")
        .transfers;
    let last = now.last.expect("the other is over");
    assert_eq!(
        (last.result(), last.moved),
        (TransferResult::Cancelled, len)
    );
    assert_eq!(now.running.map(|transfer| transfer.bytes()), Some(len));
    let now = wait(server.handle.cancel_transfer("disk"))
        .expect("it has one")
        .transfers;
    assert_eq!(now.running, None);
    assert_eq!(
        (now.ended.met, now.ended.missed, now.ended.cancelled),
        (1, 1, 2)
    );
    let none = wait(server.handle.cancel_transfer("disk")).expect_err("it has none");
    assert_eq!(
        none,
        ControlError::Refused(CommandError::NoTransfer("disk".to_owned()))
    );
}

#[test]
fn a_transfer_goes_on_after_a_restart_and_is_forgotten_once_it_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let len = u64::from(LEN);
    let server = Server::start(config(dir.path()));
    begin(&server, order(4 * len, HOUR)).expect("a job");
    assert_eq!(wait(server.handle.persist_transfers("disk")), Ok(true));
    is_kept(dir.path(), Some(0));
    read(&mut server.connect("disk"), 1);
    let before = running(&server);
    server.stop().expect("ends in order");
    is_kept(dir.path(), Some(len));

    let server = Server::start(config(dir.path()));
    let now = running(&server);
    assert_eq!((now.bytes(), now.moved()), (4 * len, len));
    assert_eq!(
        (now.since.begun, now.since.due),
        (before.since.begun, before.since.due)
    );
    read(&mut server.connect("disk"), 2);
    assert_eq!(running(&server).moved(), 3 * len);
    server.stop().expect("ends in order");

    let server = Server::start(config(dir.path()));
    read(&mut server.connect("disk"), 1);
    let last = transfers(&server).last.expect("it is over");
    assert_eq!(
        (last.result(), last.bytes, last.moved),
        (TransferResult::Met, 4 * len, 4 * len)
    );
    assert_eq!(
        (last.begun, last.due),
        (before.since.begun, before.since.due)
    );
    // The record is deleted when the transfer ends, not when the daemon does.
    is_kept(dir.path(), None);
    server.stop().expect("ends in order");
    let server = Server::start(config(dir.path()));
    assert_eq!(transfers(&server), VmTransfers::default());
}

#[test]
fn a_placement_that_has_begun_is_known_after_its_end_and_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let placed = |placed_ns| TransferOrder {
        placed_ns: Some(placed_ns),
        ..order(u64::from(LEN), HOUR)
    };
    let server = Server::start(config(dir.path()));
    let has_begun = |server: &Server, placed_ns| {
        let begun = transfers(server).begun_placements;
        begun.contains(placed_ns)
    };
    begin(&server, placed(7)).expect("a job");
    read(&mut server.connect("disk"), 1);
    assert!(transfers(&server).last.is_some() && has_begun(&server, 7));
    // Without a snapshot that a command asks for: the end of the transfer is written.
    is_kept(dir.path(), None);
    server.stop().expect("ends in order");
    let server = Server::start(config(dir.path()));
    assert!(has_begun(&server, 7) && !has_begun(&server, 8));
    begin(&server, placed(8)).expect("another job");
    assert_eq!(wait(server.handle.persist_transfers("disk")), Ok(true));
    server.stop().expect("ends in order");
    let server = Server::start(config(dir.path()));
    assert!(has_begun(&server, 7) && has_begun(&server, 8));
    assert_eq!(running(&server).since.placed_ns, Some(8));
    server.stop().expect("ends in order");
}

#[test]
fn what_has_moved_is_kept_now_and_then() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path());
    if let Some(store) = &mut config.store {
        store.learnt_every = Nanos::SECOND;
    }
    let server = Server::start(config);
    begin(&server, order(1 << 30, HOUR)).expect("a job");
    read(&mut server.connect("disk"), 3);
    is_kept(dir.path(), Some(3 * u64::from(LEN)));
    server.stop().expect("ends in order");
}

#[test]
fn what_moves_while_the_daemon_ends_counts_as_well() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path());
    config.devices[0].scheduling.policy = PolicySpec::named("limit").expect("registered");
    config.devices[0].scheduling.merge_limit = 0;
    config.vms[0].objective.limit.total = Rate::iops(1);
    let server = Server::start(config.clone());
    begin(&server, order(5 * u64::from(LEN), HOUR)).expect("a job");
    let mut client = server.connect("disk");
    for cookie in 0..4 {
        let read = Command::Read { df: false };
        client.send(request(read, cookie, cookie * u64::from(LEN), LEN), &[]);
    }
    // Waits until the daemon has read all requests; one has passed the limit meanwhile.
    loop {
        let now = wait(server.handle.vm_snapshot("disk")).expect("it answers");
        if u64::from(now.pending) + now.stats.total_ops() == 4 {
            assert!(now.pending > 0, "the limit holds them");
            break;
        }
    }
    // A drain answers at once the requests that wait for the limit.
    server.stop().expect("ends in order");
    is_kept(dir.path(), Some(4 * u64::from(LEN)));
    let server = Server::start(config);
    assert_eq!(running(&server).moved(), 4 * u64::from(LEN));
}

#[test]
fn a_transfer_that_was_due_meanwhile_is_late_by_all_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path()));
    let hour_ago = Timestamp::now() - SignedDuration::from_hours(1);
    let soon = order(u64::from(LEN), Due::In(Nanos::SECOND));
    wait(server.handle.begin_transfer("disk", soon, hour_ago)).expect("a job");
    server.stop().expect("ends in order");

    let server = Server::start(config(dir.path()));
    let nearly = Nanos::from_secs(3590);
    assert!(running(&server).since.overdue > nearly);
    assert_eq!(running(&server).early().unwrap_or_default(), Nanos::ZERO);
    read(&mut server.connect("disk"), 1);
    let last = transfers(&server).last.expect("it is over");
    assert_eq!(
        (last.result(), last.early),
        (TransferResult::Missed, Nanos::ZERO)
    );
    assert!(last.late > nearly, "{last:?}");
}

#[test]
fn a_vm_that_goes_takes_its_transfer_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(config(dir.path()));
    begin(&server, order(1 << 30, HOUR)).expect("a job");
    assert_eq!(wait(server.handle.persist_transfers("disk")), Ok(true));
    is_kept(dir.path(), Some(0));
    wait(server.handle.remove_vm("disk", false)).expect("no client is connected");
    is_kept(dir.path(), None);
    let gone = begin(&server, order(1, HOUR)).expect_err("it is gone");
    assert_eq!(gone, ControlError::UnknownVm("disk".to_owned()));
    server.stop().expect("ends in order");
}
