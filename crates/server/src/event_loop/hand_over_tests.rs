//! Hand-overs of disks that something comes in between: a resize, a removal, the end of the daemon,
//! a disk that fails. The file is another daemon's only once all of it is durable.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_nbd::{Command, Request};
use vhost::VhostBackend;

use crate::backing::ActivationState;
use crate::command::DiskSnapshot;
use crate::common::vhost_guest::{ALL, FLUSH_REQUEST, Guest, connect, listen};
use crate::common::vhost_log::{Log, migrate_away};
use crate::common::{Server, request, single, wait};
use crate::config::DeviceKind;
use crate::ring::faults::{self, Call, Fault, FaultyFlushes, What};
use crate::ring::sys;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Daemon with a disk on a file, and a guest.
struct Host {
    server: Server,
    guest: Guest,
    file: PathBuf,
    dir: tempfile::TempDir,
}

impl Host {
    fn new(faults: impl FnMut(Call) -> Fault + Send + 'static) -> Host {
        // On a file system whose flushes are calls.
        let here = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let path = dir.path().join("disk.raw");
        let file = File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        faults::set(&file, faults);
        let mut config = single(dir.path(), DeviceKind::File, Some(path.clone()), SIZE);
        listen(&mut config, dir.path());
        // Another socket of the same disk.
        std::fs::create_dir(dir.path().join("other")).unwrap();
        listen(&mut config, &dir.path().join("other"));
        let server = Server::start(config);
        let mut guest = Guest::start(&dir.path().join("disk.vhost"), ALL, 1);
        guest.write(0, &[7; 4096]);
        Host {
            server,
            guest,
            file: path,
            dir,
        }
    }

    fn disk(&self) -> DiskSnapshot {
        let vm = wait(self.server.handle.vm_snapshot("disk")).unwrap();
        vm.disks[0].clone()
    }

    fn state(&self) -> ActivationState {
        self.disk().activation.expect("it can be handed over")
    }

    fn is_locked(&self) -> bool {
        is_locked(&self.file)
    }
}

/// Returns true if somebody serves a file.
fn is_locked(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path).unwrap();
    !sys::lock(&file, true).unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < STEP_TIMEOUT, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Flushes of a file by other threads than its event loop, the first of which is held.
struct HeldFlush {
    begun: Receiver<()>,
    end: Sender<io::Result<()>>,
    /// Number of flushes after the first.
    later: Arc<AtomicUsize>,
    _faults: FaultyFlushes,
}

impl HeldFlush {
    /// Holds the next flush of a file; those after it have this error.
    fn of(path: &Path, error: Option<i32>) -> HeldFlush {
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let first = Mutex::new(Some((begin, ended)));
        let later = Arc::new(AtomicUsize::new(0));
        let count = later.clone();
        let faults = faults::set_flush(&File::open(path).unwrap(), move || {
            let first = first.lock().unwrap().take();
            if let Some((begin, ended)) = first {
                let _ = begin.send(());
                // A test that fails drops its end, or waits for the flush.
                return ended.recv_timeout(STEP_TIMEOUT).unwrap_or(Ok(()));
            }
            count.fetch_add(1, Ordering::SeqCst);
            error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        });
        HeldFlush {
            begun,
            end,
            later,
            _faults: faults,
        }
    }

    fn wait(&self) {
        self.begun.recv_timeout(STEP_TIMEOUT).expect("a flush");
    }
}

/// Has the device of a guest mark what it writes, as a migration begins.
fn begin_migration(guest: &mut Guest) -> Log {
    let log = Log::of(guest);
    log.set(guest).unwrap();
    guest.set_logged(true);
    log
}

#[test]
fn a_disk_is_not_resized_while_it_is_handed_over() {
    let mut host = Host::new(|_| Fault::None);
    let flush = HeldFlush::of(&host.file, None);
    let _log = begin_migration(&mut host.guest);
    let Host { server, guest, .. } = &mut host;
    thread::scope(|scope| {
        let stops = scope.spawn(|| guest.stop_queue(0));
        flush.wait();
        let resized = wait(server.handle.resize_disk("disk", "disk", 2 * SIZE, false));
        let resized = resized.expect_err("refused").to_string();
        assert!(resized.contains("was handed over"), "{resized}");
        flush.end.send(Ok(())).unwrap();
        stops.join().unwrap();
    });
    assert_eq!(host.file.metadata().unwrap().len(), SIZE);
    assert_eq!(host.state(), ActivationState::HandedOver);
    assert!(!host.is_locked());
}

#[test]
fn a_disk_that_is_removed_while_it_is_handed_over_is_flushed_before_its_lock_is_released() {
    for error in [None, Some(libc::EIO)] {
        let mut host = Host::new(|_| Fault::None);
        let flush = HeldFlush::of(&host.file, error);
        let _log = begin_migration(&mut host.guest);
        let Host { server, guest, .. } = &mut host;
        thread::scope(|scope| {
            // The back-end may be gone before it answers.
            let stops = scope.spawn(|| drop(guest.frontend.get_vring_base(0)));
            flush.wait();
            let lost = wait(server.handle.remove_vm("disk", true)).unwrap();
            assert_eq!(flush.later.load(Ordering::SeqCst), 1, "flushed again");
            assert_eq!(lost.len(), usize::from(error.is_some()), "{lost:?}");
            flush.end.send(Ok(())).unwrap();
            stops.join().unwrap();
        });
        assert_eq!(std::fs::read(&host.file).unwrap()[..4096], [7; 4096]);
    }
}

#[test]
fn a_daemon_that_ends_while_a_disk_is_handed_over_flushes_it() {
    let mut host = Host::new(|_| Fault::None);
    let flush = HeldFlush::of(&host.file, None);
    let _log = begin_migration(&mut host.guest);
    let Host {
        server,
        guest,
        file,
        dir: _dir,
    } = host;
    thread::scope(|scope| {
        let stops = scope.spawn(|| drop(guest.frontend.get_vring_base(0)));
        flush.wait();
        server.stop().unwrap();
        assert_eq!(flush.later.load(Ordering::SeqCst), 1, "flushed again");
        flush.end.send(Ok(())).unwrap();
        stops.join().unwrap();
    });
    assert_eq!(std::fs::read(&file).unwrap()[..4096], [7; 4096]);
    wait_until("the lock to be released", || !is_locked(&file));
}

#[test]
fn a_disk_that_has_failed_is_not_handed_over() {
    let failing = |call: Call| match call.what {
        What::Sync => Fault::Error(libc::EIO),
        _ => Fault::None,
    };
    let mut host = Host::new(failing);
    assert_eq!(host.guest.ask(FLUSH_REQUEST, 0, &[]).0.status, 1);
    assert!(host.disk().failed.is_some());
    migrate_away(&mut host.guest);
    assert_eq!(host.state(), ActivationState::Active);
    assert!(host.is_locked(), "no other daemon may begin");
    // The guest goes on with what can be read.
    host.guest.set_logged(false);
    host.guest.go_on(0);
    assert_eq!(host.guest.read(0, 4096), [7; 4096]);
}

#[test]
fn a_disk_that_fails_while_its_io_ends_is_not_handed_over() {
    let late = |call: Call| match call.what {
        What::Allocate => Fault::Late(Duration::from_secs(1)),
        What::Sync => Fault::Error(libc::EIO),
        _ => Fault::None,
    };
    let mut host = Host::new(late);
    let mut client = host.server.connect("disk");
    // Zeroes are written, late, and then made durable, which fails.
    let zeroes = Command::WriteZeroes {
        no_hole: false,
        fast_zero: false,
    };
    let zeroes = Request {
        fua: true,
        ..request(zeroes, 1, 2 * MIB, 4096)
    };
    client.send(zeroes, &[]);
    wait_until("the request", || {
        wait(host.server.handle.vm_snapshot("disk"))
            .unwrap()
            .in_flight
            > 0
    });
    migrate_away(&mut host.guest);
    assert!(client.receive().result.is_err(), "not durable");
    assert_eq!(host.state(), ActivationState::Active);
    assert!(host.is_locked(), "no other daemon may begin");
}

#[test]
fn a_front_end_does_not_wait_for_a_hand_over_whose_flush_hangs() {
    for (flushed, state) in [
        (Ok(()), ActivationState::HandedOver),
        (
            Err(io::Error::from_raw_os_error(libc::EIO)),
            ActivationState::Active,
        ),
    ] {
        let mut host = Host::new(|_| Fault::None);
        let flush = HeldFlush::of(&host.file, None);
        let _log = begin_migration(&mut host.guest);
        let stopped = host.guest.frontend.get_vring_base(0);
        assert!(stopped.is_err(), "an error, not an answer");
        assert!(host.guest.is_cut_off());
        // No other daemon may begin, nor the guest here: the lock is about to be released.
        assert!(host.is_locked());
        let socket = host.dir.path().join("disk.vhost");
        assert!(connect(&socket, ALL).is_err(), "the next front-end");
        let other = host.dir.path().join("other/disk.vhost");
        let memory = || host.guest.memory.try_clone().unwrap();
        assert!(Guest::try_resume(&other, ALL, memory()).is_none());
        let is_ok = flushed.is_ok();
        flush.end.send(flushed).unwrap();
        wait_until("the end of the hand-over", || host.is_locked() != is_ok);
        wait_until("its state", || host.state() == state);
        let mut next = Guest::try_resume(&socket, ALL, memory()).expect("the file is free");
        assert_eq!(host.state(), ActivationState::Active);
        assert!(host.is_locked());
        assert_eq!(next.read(0, 4096), [7; 4096]);
    }
}
