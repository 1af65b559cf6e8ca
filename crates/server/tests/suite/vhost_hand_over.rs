//! Hand-over of a disk from one daemon to another, as its guest migrates by vhost-user: only one of
//! them reads and writes the file at a time, in whatever order guests start and stop.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_nbd::client::{Handshake, Progress, Wishes};
use tidegate_nbd::{Command, NbdError};
use tidegate_server::backing::ActivationState;
use tidegate_server::config::{Create, DeviceKind};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::common::vhost_guest::{
    ALL, CONFIG_WCE, DATA_MAX, Guest, OUT, SIZE as QUEUE_ENTRIES, connect, listen, memory,
    read_config, region,
};
use crate::common::vhost_log::{Copy, Log, migrate_away};
use crate::common::{Client, Server, request, single, wait};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;

/// Daemon of a host, which serves a disk on a file that hosts share.
struct Host {
    server: Server,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new(file: &Path, incoming: bool) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(file.to_owned());
        let mut config = single(dir.path(), DeviceKind::File, path, SIZE);
        listen(&mut config, dir.path());
        let disk = &mut config.vms[0].disks[0];
        disk.incoming = incoming;
        if incoming {
            (disk.create, disk.size) = (Create::No, None);
        }
        Host {
            server: Server::start(config),
            socket: dir.path().join("disk.vhost"),
            _dir: dir,
        }
    }

    fn state(&self) -> ActivationState {
        let vm = wait(self.server.handle.vm_snapshot("disk")).unwrap();
        vm.disks[0].activation.expect("it can be handed over")
    }

    /// Starts a guest; `None` if the daemon refuses to start its queue.
    fn try_start(&self, memory: &std::fs::File) -> Option<Guest> {
        let memory = memory.try_clone().unwrap();
        let guest = Guest::try_resume(&self.socket, ALL, memory)?;
        assert_eq!(self.state(), ActivationState::Active);
        Some(guest)
    }
}

/// Two hosts that share a file, the second of which waits for a guest.
fn hosts() -> ([Host; 2], PathBuf, tempfile::TempDir) {
    let shared = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = shared.path().join("disk.raw");
    let hosts = [false, true].map(|incoming| Host::new(&file, incoming));
    (hosts, file, shared)
}

/// Connects by NBD; returns the reason if that is refused.
pub(crate) fn nbd_refusal(server: &Server) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    let mut handshake = Handshake::new("disk", Wishes::default());
    let mut input = Vec::new();
    loop {
        let (used, progress) = match handshake.handle(&input) {
            Ok(progress) => progress,
            Err(error) => return Some(error.to_string()),
        };
        input.drain(..used);
        match progress {
            Progress::NeedMore(_) => {
                let mut piece = [0; 4096];
                let n = stream.read(&mut piece).unwrap();
                assert!(n > 0, "it says why");
                input.extend_from_slice(&piece[..n]);
            }
            Progress::StartTls => unreachable!("TLS is not required"),
            Progress::Send => {
                stream.write_all(handshake.output()).unwrap();
                let n = handshake.output().len();
                handshake.consume_output(n);
            }
            Progress::Ready(_) => return None,
        }
    }
}

fn write_result(client: &mut Client, byte: u8) -> Result<Vec<u8>, NbdError> {
    client.send(request(Command::Write, 1, MIB, 512), &[byte; 512]);
    client.receive().result
}

#[test]
fn an_incoming_disk_is_described_and_refused_to_all_but_its_guest() {
    let ([from, to], _, _shared) = hosts();
    assert_eq!(to.state(), ActivationState::Incoming);
    // What a hypervisor asks before a guest arrives is answered without the lock.
    let mut early = connect(&to.socket, ALL).unwrap();
    assert_eq!(read_config(&mut early)[..8], (SIZE / 512).to_le_bytes());
    let refused = nbd_refusal(&to.server).expect("refused");
    assert!(refused.contains("the disk is incoming"), "{refused}");
    let resized = wait(to.server.handle.resize_disk("disk", "disk", 8 * MIB, false));
    let resized = resized.expect_err("refused").to_string();
    assert!(resized.contains("the disk is incoming"), "{resized}");
    drop(early);
    to.server.stop().unwrap();
    from.server.stop().unwrap();
}

#[test]
fn a_disk_follows_its_guest_and_comes_back() {
    let ([from, to], file, _shared) = hosts();
    assert_eq!(from.state(), ActivationState::Active);
    let memory = memory(1);
    let mut client = from.server.connect("disk");
    let mut guest = from.try_start(&memory).expect("it has the file");
    for sector in (0..512).step_by(DATA_MAX / 512) {
        guest.write(sector, &[sector as u8 + 1; DATA_MAX]);
    }
    write_result(&mut client, 1).expect("the source has the disk");
    // Requests are in flight when the guest stops, and not flushed by it.
    for n in 0..8 {
        guest.submit(0, OUT, n * 128, &[n as u8 + 100; DATA_MAX]);
    }
    guest.kick(0, 8);
    while guest.in_flight(0) > 4 {
        guest.answers(0);
    }
    let log = Log::of(&guest);
    log.set(&guest).unwrap();
    guest.set_logged(true);
    let mut copy = Copy::begin(&guest);
    let base = guest.stop_queue(0);
    copy.update(&guest, &log);
    guest.take_answers(0);
    let left = guest.in_flight(0);
    assert_eq!(from.state(), ActivationState::HandedOver);
    assert!(write_result(&mut client, 2).is_err(), "another host's now");
    let refused = nbd_refusal(&from.server).expect("refused");
    assert!(refused.contains("handed over"), "{refused}");
    drop(guest);

    // The destination goes on where the queue stands, with what it left.
    let mut guest = Guest::arrive(&to.socket, ALL, memory, base, left);
    assert_eq!(to.state(), ActivationState::Active);
    while guest.in_flight(0) > 0 {
        guest.answers(0);
    }
    for n in 0..8u64 {
        assert_eq!(guest.read(n * 128, DATA_MAX), [n as u8 + 100; DATA_MAX]);
    }
    assert_eq!(guest.read(MIB / 512, 512), [1; 512]);
    let mut late = to.server.connect("disk");
    assert_eq!(late.read(MIB, 512), [1; 512]);
    late.disconnect();

    // And back.
    guest.write(0, &[77; 4096]);
    migrate_away(&mut guest);
    assert_eq!(std::fs::read(file).unwrap()[..4096], [77; 4096]);
    let memory = guest.memory.try_clone().unwrap();
    drop(guest);
    let mut guest = from.try_start(&memory).expect("the file is free");
    assert_eq!(guest.read(0, 4096), [77; 4096]);
    write_result(&mut client, 3).expect("it is here again");
    guest.leave();
    client.disconnect();
    from.server.stop().unwrap();
    to.server.stop().unwrap();
}

#[test]
fn a_cancelled_migration_goes_on_at_the_source_unless_the_guest_runs_elsewhere() {
    let ([from, to], _, _shared) = hosts();
    let memories = [memory(1), memory(1)];
    let mut guest = from.try_start(&memories[0]).expect("it has the file");
    guest.write(0, &[1; 4096]);
    for round in 2..5u8 {
        migrate_away(&mut guest);
        assert_eq!(from.state(), ActivationState::HandedOver);
        // In the same session, as QEMU does.
        guest.set_logged(false);
        guest.go_on(0);
        assert_eq!(from.state(), ActivationState::Active);
        assert_eq!(guest.read(0, 4096), [round - 1; 4096]);
        guest.write(0, &[round; 4096]);
    }
    migrate_away(&mut guest);
    let mut other = to.try_start(&memories[1]).expect("the file is free");
    assert!(!guest.try_go_on(0), "the destination has it");
    drop(guest);
    assert_eq!(from.state(), ActivationState::HandedOver);
    assert_eq!(other.read(0, 4096), [4; 4096]);
    // Nothing but a migration lets go of the file: a guest that stops, or a hypervisor that dies.
    other.stop_queue(0);
    other.go_on(0);
    other.write(0, &[5; 4096]);
    drop(other);
    assert!(from.try_start(&memories[0]).is_none());
    let mut other = to.try_start(&memories[1]).expect("it has the file");
    assert_eq!(other.read(0, 4096), [5; 4096]);
    other.leave();
    assert_eq!(to.state(), ActivationState::Active);
    // The daemon that ends does.
    to.server.stop().unwrap();
    let mut guest = from.try_start(&memories[0]).expect("the file is free");
    assert_eq!(guest.read(0, 4096), [5; 4096]);
    guest.leave();
    from.server.stop().unwrap();
}

#[test]
fn a_guest_whose_queue_cannot_be_started_leaves_the_file_to_the_other_host() {
    // What comes from the front-end is checked before the lock is taken, but a record of requests
    // in flight only by the loop, which has the disk by then.
    let broken_record = |to: &Host| {
        let mut guest = Guest::resume(&to.socket, ALL, memory(1), 0);
        let asked = VhostUserInflight::new(0, 0, 1, QUEUE_ENTRIES);
        let (described, record) = guest.frontend.get_inflight_fd(&asked).unwrap();
        // The version of the first queue's part.
        record.write_all_at(&9u16.to_le_bytes(), 8).unwrap();
        let frontend = &mut guest.frontend;
        frontend
            .set_inflight_fd(&described, record.as_raw_fd())
            .unwrap();
        guest.prepare_queue();
        assert!(!guest.try_go_on(0), "the record cannot be one of the queue");
    };
    // The first queue has taken the lock when the second one fails, and no queue is enabled yet.
    let second_queue = |to: &Host| {
        let mut guest = Guest::resume(&to.socket, ALL, memory(2), 0);
        guest.prepare_queue();
        guest.restart_disabled_at(0, 0);
        assert_eq!(to.state(), ActivationState::Active);
        fail_to_start(&mut guest, 1);
    };
    let failures: [&dyn Fn(&Host); 2] = [&broken_record, &second_queue];
    for fail in failures {
        let ([from, to], _, _shared) = hosts();
        let memories = [memory(1), memory(1)];
        let mut guest = from.try_start(&memories[0]).expect("it has the file");
        guest.write(0, &[1; 512]);
        migrate_away(&mut guest);
        for _ in 0..2 {
            fail(&to);
            wait_for_state(&to, ActivationState::Incoming);
            assert!(nbd_refusal(&to.server).is_some());
        }
        // The migration has failed, and the guest goes on at the source.
        guest.set_logged(false);
        guest.go_on(0);
        assert_eq!(guest.read(0, 512), [1; 512]);
        guest.write(0, &[2; 512]);
        migrate_away(&mut guest);
        drop(guest);
        // A disk stays where its guest has run, also if a queue cannot be started again.
        let mut guest = to.try_start(&memories[1]).expect("the file is free");
        assert_eq!(guest.read(0, 512), [2; 512]);
        let nowhere = VringConfigData {
            desc_table_addr: 0x1000,
            ..guest.addresses(0)
        };
        assert!(guest.frontend.set_vring_addr(0, &nowhere).is_err());
        drop(guest);
        assert!(from.try_start(&memories[0]).is_none());
        assert_eq!(to.state(), ActivationState::Active);
    }
}

/// Starts a queue that has no rings.
fn fail_to_start(guest: &mut Guest, queue: usize) {
    let kick = EventFd::new(EFD_NONBLOCK).unwrap();
    let started = guest.frontend.set_vring_kick(queue, &kick);
    assert!(started.is_err(), "it has no rings");
}

#[test]
fn a_disk_stays_where_its_guest_has_run_whichever_queue_fails() {
    let ([from, to], file, _shared) = hosts();
    let memories = [memory(1), memory(2)];
    let stays = |host: &Host, what: &str| {
        // Accepted once the session before has ended, and its lock been released if it ever is.
        drop(Guest::resume(&host.socket, ALL, memory(1), 0));
        assert_eq!(host.state(), ActivationState::Active, "{what}");
        assert!(from.try_start(&memories[0]).is_none(), "{what}");
    };
    let mut guest = from.try_start(&memories[0]).expect("it has the file");
    guest.write(0, &[1; 512]);
    migrate_away(&mut guest);
    drop(guest);

    let mut guest = Guest::start_recorded(&to.socket, ALL, 2);
    guest.write(0, &[2; 512]);
    fail_to_start(&mut guest, 2);
    stays(&to, "another queue has run in the session");

    // The daemon is started again, and so is the queue: it has run in a session before.
    to.server.stop().unwrap();
    let to = Host::new(&file, true);
    let (_, record) = guest.record.as_ref().expect("requests in flight");
    // The version of the first queue's part, which only the loop looks at.
    record.write_all_at(&9u16.to_le_bytes(), 8).unwrap();
    guest.begin_again(&to.socket).unwrap();
    let table = [region(&guest.memory)];
    guest.frontend.set_mem_table(&table).unwrap();
    assert!(!guest.try_go_on(0), "the record cannot be one of the queue");
    stays(&to, "the guest has run before the daemon was started again");

    // The guest goes on as soon as the front-end has mended what was wrong.
    let mut guest = to.try_start(&memories[1]).expect("it has the file");
    assert_eq!(guest.read(0, 512), [2; 512]);
    guest.leave();
    to.server.stop().unwrap();
    from.server.stop().unwrap();
}

/// Waits until a disk has a state, which follows the end of a session.
fn wait_for_state(host: &Host, state: ActivationState) {
    let until = Instant::now() + Duration::from_secs(30);
    while host.state() != state {
        assert!(Instant::now() < until, "{:?}", host.state());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Step of a guest on one of two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Start(usize),
    Migrate(usize),
}

/// Returns all orders of so many steps, without two attempts in a row that change nothing.
fn orders(len: usize) -> Vec<Vec<Step>> {
    let mut all = vec![(Vec::new(), [false; 2], Some(0))];
    for _ in 0..len {
        let step = |(order, runs, holder): (Vec<Step>, [bool; 2], Option<usize>)| {
            [0, 1].map(|host| {
                let (mut order, mut runs, mut holder) = (order.clone(), runs, holder);
                if runs[host] {
                    order.push(Step::Migrate(host));
                    (runs[host], holder) = (false, None);
                } else {
                    order.push(Step::Start(host));
                    if holder.is_none_or(|holder| holder == host) {
                        (runs[host], holder) = (true, Some(host));
                    }
                }
                (order, runs, holder)
            })
        };
        all = all.into_iter().flat_map(step).collect();
        all.retain(|(order, ..)| !order.ends_with(&[Step::Start(0); 2]));
        all.retain(|(order, ..)| !order.ends_with(&[Step::Start(1); 2]));
    }
    all.into_iter().map(|(order, ..)| order).collect()
}

/// Takes steps in order; each must succeed exactly if the other host does not have the file.
fn take(order: &[Step]) {
    let (hosts, file, _shared) = hosts();
    let memories = [memory(1), memory(1)];
    let mut guests = [None, None];
    let (mut holder, mut stamp) = (Some(0), 0u8);
    for (at, step) in order.iter().enumerate() {
        match *step {
            Step::Start(host) => {
                let started = hosts[host].try_start(&memories[host]);
                let free = holder.is_none_or(|holder| holder == host);
                assert_eq!(started.is_some(), free, "step {at} of {order:?}");
                let Some(mut guest) = started else { continue };
                holder = Some(host);
                assert_eq!(guest.read(0, 512), [stamp; 512], "step {at} of {order:?}");
                stamp += 1;
                guest.write(0, &[stamp; 512]);
                guests[host] = Some(guest);
            }
            Step::Migrate(host) => {
                let mut guest: Guest = guests[host].take().expect("it runs");
                stamp += 1;
                guest.submit(0, OUT, 0, &[stamp; 512]);
                guest.kick(0, 1);
                guest.answers(0);
                migrate_away(&mut guest);
                holder = None;
                let bytes = std::fs::read(&file).unwrap();
                assert_eq!(bytes[..512], [stamp; 512], "step {at} of {order:?}");
            }
        }
        for (at, host) in hosts.iter().enumerate() {
            let is_active = host.state() == ActivationState::Active;
            assert_eq!(is_active, holder == Some(at), "after {order:?}");
            assert_eq!(nbd_refusal(&host.server).is_none(), is_active);
        }
    }
}

#[test]
fn in_every_order_one_host_at_most_has_the_file() {
    let all = orders(5);
    assert!(all.len() > 12, "{} orders", all.len());
    thread::scope(|scope| {
        for order in &all {
            scope.spawn(move || take(order));
        }
    });
}

#[test]
fn guests_that_race_for_a_file_never_have_it_together() {
    let ([from, to], _, _shared) = hosts();
    let memories = [memory(1), memory(1)];
    let (owner, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = |host: &Host, id: usize| {
        while turns.load(Ordering::Relaxed) < 20 {
            let Some(mut guest) = host.try_start(&memories[id - 1]) else {
                continue;
            };
            assert_eq!(owner.swap(id, Ordering::SeqCst), 0, "two have it");
            let turn = turns.fetch_add(1, Ordering::SeqCst) as u8;
            assert_eq!(guest.read(0, 512), [turn; 512]);
            guest.write(0, &[turn + 1; 512]);
            // In flight when the queue is stopped, so the other host must not begin yet.
            for n in 1..9 {
                guest.submit(0, OUT, n * 128, &[turn; DATA_MAX]);
            }
            guest.kick(0, 8);
            assert_eq!(owner.swap(0, Ordering::SeqCst), id, "two have it");
            let log = Log::of(&guest);
            log.set(&guest).unwrap();
            guest.set_logged(true);
            guest.stop_queue(0);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&from, 1));
        scope.spawn(|| run(&to, 2));
    });
}

#[test]
fn the_cache_mode_of_a_driver_goes_with_its_disk() {
    let ([from, to], _, _shared) = hosts();
    let memory = memory(1);
    let flags = VhostUserConfigFlags::WRITABLE;
    // The hypervisor of each host shows a write-back cache until the driver turns it off there.
    let arrive = |host: &Host| {
        let memory = memory.try_clone().unwrap();
        let guest = Guest::try_resume(&host.socket, ALL | CONFIG_WCE, memory);
        guest.expect("the file is free")
    };
    for mode in [0, 1, 1, 0] {
        let mut guest = arrive(&from);
        guest.frontend.set_config(32, flags, &[mode]).unwrap();
        guest.write(0, &[mode; 512]);
        migrate_away(&mut guest);
        drop(guest);
        let mut guest = arrive(&to);
        assert_eq!(read_config(&mut guest.frontend)[32], mode);
        assert_eq!(guest.read(0, 512), [mode; 512]);
        migrate_away(&mut guest);
    }
    from.server.stop().unwrap();
    to.server.stop().unwrap();
}
