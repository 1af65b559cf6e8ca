//! Reply times (from the parse of a request until its reply is sent), measured in a whole daemon.

use tidegate_core::request::IoError;
use tidegate_core::time::Nanos;
use tidegate_nbd::Command;

use super::fault_injection_tests::{everywhere, two_disks};
use crate::command::VmSnapshot;
use crate::common::{Server, request, wait};
use crate::fault::{Effect, Rule};

const MIB: u64 = 1 << 20;

/// Returns the first VM's snapshot once it counts these numbers of replies by lane. A reply is
/// counted only after the client has received it.
fn counted(server: &Server, replies: [u64; 2]) -> VmSnapshot {
    loop {
        let mut now = wait(server.handle.snapshot(0)).expect("the loop runs");
        let vm = now.vms.swap_remove(0);
        let counts = [0, 1].map(|lane| vm.reply_time[lane].count());
        let [reads, writes] = counts;
        assert!(
            reads <= replies[0] && writes <= replies[1],
            "{counts:?} replies counted of {replies:?}"
        );
        if counts == replies {
            return vm;
        }
        std::thread::yield_now();
    }
}

#[test]
fn each_reply_is_counted_once_with_no_less_than_the_schedulers_time() {
    for place in everywhere() {
        let server = Server::start(two_disks(&place, 4 * MIB, &[]));
        let mut client = server.connect("disk");
        // One request at a time: each send is linked to the next receive.
        for i in 0..8 {
            client.write(i * 4096, &[1; 4096]);
            client.read(i * 4096, 4096);
        }
        assert_eq!(client.flush(), Ok(()));
        // Several requests at a time, with replies so large that the socket takes them in parts.
        for i in 0..4 {
            client.send(request(Command::Read { df: false }, i, 0, MIB as u32), &[]);
        }
        for _ in 0..4 {
            assert!(client.receive().result.is_ok());
        }
        let vm = counted(&server, [12, 9]);
        let sum = vm.reply_time.iter().map(|times| times.sum());
        let sum = sum.fold(Nanos::ZERO, |a, b| a + b);
        assert!(sum >= vm.stats.latency.sum(), "{sum:?} {:?}", vm.stats);
        server.stop().expect("every disk is flushed");
    }
}

#[test]
fn a_reply_that_the_loop_makes_itself_is_counted() {
    for place in everywhere() {
        let server = Server::start(two_disks(&place, 4 * MIB, &[]));
        let mut client = server.connect("disk");
        client.read(0, 4096);
        counted(&server, [1, 0]);
        // Beyond the end of the disk: answered by the loop, without the engine.
        client.send(request(Command::Read { df: false }, 1, 4 * MIB, 4096), &[]);
        assert!(client.receive().result.is_err());
        let vm = counted(&server, [1, 1]);
        assert_eq!(vm.stats.latency.count(), 1);
        server.stop().expect("every disk is flushed");
    }
}

#[test]
fn only_replies_of_successes_are_in_the_time_by_cause() {
    let error = Rule {
        from: 1 << 20,
        to: 2 << 20,
        ..Rule::always(Effect::Error(IoError::Io))
    };
    for place in everywhere() {
        let server = Server::start(two_disks(&place, 4 * MIB, &[error]));
        let mut client = server.connect("disk");
        for cookie in 0..8 {
            client.send(request(Command::Read { df: false }, cookie, MIB, 4096), &[]);
            assert!(client.receive().result.is_err());
        }
        let failed = counted(&server, [8, 0]);
        assert_eq!(failed.times.reply, Nanos::ZERO);
        for i in 0..8 {
            client.read(i * 4096, 4096);
        }
        let all = counted(&server, [16, 0]);
        let sum = |vm: &VmSnapshot| vm.reply_time[0].sum();
        let replied = sum(&all).since(sum(&failed));
        assert_eq!(all.times.reply + all.times.account.total(), replied);
        server.stop().expect("every disk is flushed");
    }
}
