//! Running daemon at whose disks or end something happens between the plan and the last word: it
//! goes on, and the new daemon gets a refusal in place of what it waits for.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::backing::ActivationState;
use crate::command::DiskSnapshot;
use crate::common::vhost_guest::{ALL, FLUSH_REQUEST, Guest, OUT, listen};
use crate::common::vhost_log::migrate_away;
use crate::common::{Server, single, wait};
use crate::config::DeviceKind;
use crate::ring::faults::{self, Call, Fault, What};
use crate::ring::sys;
use crate::takeover::{Channel, Hello, LifelineEnd, Message, Plan, Problem, Reader};

const SIZE: u64 = 4 << 20;
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Daemon with a disk on a file and a guest, and a new daemon as far as its messages go.
struct Taken {
    server: Server,
    guest: Guest,
    file: PathBuf,
    channel: Channel,
    plan: Plan,
    lifeline: LifelineEnd,
    _dir: tempfile::TempDir,
}

impl Taken {
    /// Begins a takeover, up to the plan.
    fn begin(faults: impl FnMut(Call) -> Fault + Send + 'static) -> Taken {
        Taken::begin_as(&Hello::own(), Guest::start, faults)
    }

    /// Begins a takeover by a daemon of these versions from one with such a guest.
    fn begin_as(
        hello: &Hello,
        start: fn(&Path, u64, usize) -> Guest,
        faults: impl FnMut(Call) -> Fault + Send + 'static,
    ) -> Taken {
        // On a file system whose flushes are calls.
        let here = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let path = dir.path().join("disk.raw");
        let file = File::create(&path).unwrap();
        file.set_len(SIZE).unwrap();
        faults::set(&file, faults);
        let mut config = single(dir.path(), DeviceKind::File, Some(path.clone()), SIZE);
        listen(&mut config, dir.path());
        let offer = dir.path().join("takeover.sock");
        let server = Server::start_offering(config, &offer);
        let mut guest = start(&dir.path().join("disk.vhost"), ALL, 1);
        guest.write(0, &[7; 4096]);
        let mut channel = Channel::new(UnixStream::connect(&offer).unwrap()).unwrap();
        channel.allow(STEP_TIMEOUT).unwrap();
        channel.send(&Message::Hello(hello.clone())).unwrap();
        assert_eq!(channel.receive().unwrap().0, Message::Hello(Hello::own()));
        let (Message::Plan(plan), mut files) = channel.receive().unwrap() else {
            panic!("the plan is next");
        };
        let lifeline = LifelineEnd::new(files.descriptor(plan.lifeline).unwrap());
        Taken {
            server,
            guest,
            file: path,
            channel,
            plan: *plan,
            lifeline,
            _dir: dir,
        }
    }

    fn ask(&mut self, message: &Message) -> (Message, Reader<std::os::fd::OwnedFd>) {
        self.channel.send(message).unwrap();
        self.channel.receive().unwrap()
    }

    fn prepare(&mut self) {
        assert_eq!(self.ask(&Message::Prepare).0, Message::Prepared);
    }

    /// Sends a message whose answer has to be a refusal, and returns its words.
    fn refused(&mut self, message: &Message) -> String {
        match self.ask(message).0 {
            Message::Refused(Problem { what, .. }) => what,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn disk(&self) -> DiskSnapshot {
        let vm = wait(self.server.handle.vm_snapshot("disk")).unwrap();
        vm.disks[0].clone()
    }

    fn is_locked(&self) -> bool {
        let file = File::options().read(true).write(true).open(&self.file);
        !sys::lock(&file.unwrap(), true).unwrap()
    }
}

#[test]
fn a_disk_that_fails_after_the_plan_stays_with_the_daemon_that_refuses_it() {
    let failing = |call: Call| match call.what {
        What::Sync => Fault::Error(libc::EIO),
        _ => Fault::None,
    };
    let mut taken = Taken::begin(failing);
    assert_eq!(taken.plan.disks[0].disk.export, "disk");
    // The guest, which has no connection that is handed over.
    assert_eq!(taken.plan.clients[0].export, "disk");
    taken.prepare();
    assert_eq!(taken.guest.ask(FLUSH_REQUEST, 0, &[]).0.status, 1);
    assert!(taken.disk().failed.is_some());
    let why = taken.refused(&Message::Pause);
    assert!(why.contains("disk \"disk\" has failed"), "{why}");
    assert!(taken.disk().failed.is_some(), "it is refused still");
    assert!(taken.is_locked());
}

#[test]
fn a_disk_that_goes_to_another_host_after_the_plan_is_not_handed_over() {
    let mut taken = Taken::begin(|_| Fault::None);
    taken.prepare();
    migrate_away(&mut taken.guest);
    assert_eq!(taken.disk().activation, Some(ActivationState::HandedOver));
    let why = taken.refused(&Message::Pause);
    assert!(why.contains("another host"), "{why}");
    assert!(!taken.is_locked(), "the other host has it");
}

#[test]
fn a_daemon_that_stops_keeps_what_it_has_not_handed_over() {
    let mut taken = Taken::begin(|_| Fault::None);
    taken.prepare();
    assert!(matches!(taken.ask(&Message::Pause).0, Message::State(_)));
    // As its main task does first.
    assert!(taken.server.handle.shared().outcome.stop());
    let why = taken.refused(&Message::Taken);
    assert!(why.contains("stopping"), "{why}");
    taken.server.stop().unwrap();
    assert!(taken.lifeline.has_ended(STEP_TIMEOUT));
    assert!(taken.lifeline.went_on(), "with its clients, as it ended");
}

#[test]
fn a_daemon_stops_in_order_while_its_clients_are_paused() {
    let mut taken = Taken::begin(|_| Fault::None);
    taken.prepare();
    assert!(matches!(taken.ask(&Message::Pause).0, Message::State(_)));
    taken.server.handle.shut_down();
    let begun = Instant::now();
    // Much sooner than its deadline for an orderly end.
    while taken.is_locked() {
        assert!(begun.elapsed() < STEP_TIMEOUT, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    taken.server.stop().unwrap();
}

#[test]
fn a_new_daemon_that_goes_after_the_state_learns_no_end_of_the_one_that_goes_on() {
    let mut taken = Taken::begin(|_| Fault::None);
    taken.prepare();
    assert!(matches!(taken.ask(&Message::Pause).0, Message::State(_)));
    let closed = Channel::new(UnixStream::pair().unwrap().0).unwrap();
    drop(std::mem::replace(&mut taken.channel, closed));
    assert!(taken.lifeline.went_on(), "waits for the byte");
    assert!(!taken.lifeline.has_ended(Duration::from_millis(10)));
    assert!(taken.is_locked());
}

#[test]
fn a_new_daemon_that_ends_before_the_pause_costs_no_client_anything() {
    let mut taken = Taken::begin(|_| Fault::None);
    taken.prepare();
    // The running daemon cannot stop accepting, and so not pause, until the new one has ended.
    let held = taken.server.hold_runtime();
    taken.channel.send(&Message::Pause).unwrap();
    let closed = Channel::new(UnixStream::pair().unwrap().0).unwrap();
    drop(std::mem::replace(&mut taken.channel, closed));
    drop(held);
    assert!(taken.lifeline.went_on(), "waits for the byte");
    // A front-end that was paused has no connection any more.
    taken.guest.write(4096, &[8; 4096]);
}

#[test]
fn a_daemon_that_goes_on_before_the_pause_says_so_in_the_pipe() {
    for prepares in [false, true] {
        let mut taken = Taken::begin(|_| Fault::None);
        if prepares {
            taken.prepare();
        }
        let closed = Channel::new(UnixStream::pair().unwrap().0).unwrap();
        drop(std::mem::replace(&mut taken.channel, closed));
        assert!(taken.lifeline.went_on(), "waits for the byte");
        assert!(taken.is_locked());
    }
}

/// Submits writes of these bytes to the first sectors, without a wait for their answers.
fn submit(guest: &mut Guest, byte: u8) {
    for n in 0..8 {
        guest.submit(0, OUT, n * 8, &[byte; 4096]);
    }
    guest.kick(0, 8);
}

#[test]
fn a_session_goes_on_here_unless_the_new_daemon_has_the_last_word() {
    for refuses in [false, true] {
        let start = Guest::start_recorded;
        let mut taken = Taken::begin_as(&Hello::own(), start, |_| Fault::None);
        taken.prepare();
        submit(&mut taken.guest, 3);
        let (Message::State(state), mut files) = taken.ask(&Message::Pause) else {
            panic!("the state is next");
        };
        let [plan] = &state.sessions[..] else {
            panic!("one session: {state:?}");
        };
        assert_eq!(plan.export, "disk");
        assert!(plan.session.guest_has_run && plan.session.queues[0].is_started);
        let session = plan.session.clone();
        session.try_map(|number| files.descriptor(number)).unwrap();
        // Taken by no one until the session goes on.
        submit(&mut taken.guest, 4);
        let ended = match refuses {
            true => taken.refused(&Message::Prepare),
            false => {
                let closed = Channel::new(UnixStream::pair().unwrap().0).unwrap();
                drop(std::mem::replace(&mut taken.channel, closed));
                "closed".to_owned()
            }
        };
        while taken.guest.in_flight(0) > 0 {
            let answers = taken.guest.answers(0);
            assert!(answers.iter().all(|answer| answer.status == 0), "{ended}");
        }
        assert_eq!(taken.guest.read(0, 8 * 4096), [4; 8 * 4096]);
        // By the connection that it had.
        let base = taken.guest.stop_queue(0);
        taken.guest.restart_at(0, base);
        assert_eq!(taken.guest.read(0, 512), [4; 512]);
        taken.guest.leave();
    }
}

#[test]
fn front_ends_are_closed_for_a_daemon_that_cannot_go_on_with_them_or_without_a_record() {
    let older = Hello {
        sessions: false,
        ..Hello::own()
    };
    let starts = [
        (
            older,
            Guest::start_recorded as fn(&Path, u64, usize) -> Guest,
        ),
        (Hello::own(), Guest::start),
    ];
    for (hello, start) in starts {
        let mut taken = Taken::begin_as(&hello, start, |_| Fault::None);
        taken.prepare();
        let (Message::State(state), _) = taken.ask(&Message::Pause) else {
            panic!("the state is next");
        };
        assert_eq!(state.sessions, []);
        assert!(taken.guest.is_cut_off());
    }
}
