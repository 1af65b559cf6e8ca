//! Fault rules under a whole daemon: each error must reach the right client, each byte must be in
//! the right place, and other clients must not notice.

use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_core::request::{IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_nbd::{Command, NbdError, Request};

use super::fault_tests::{BAD_BLOCKS, BLOCK, BLOCKS, Driver, FULL_BLOCKS, MIB, places, plan};
use crate::command::{DiskSnapshot, FaultChange};
use crate::common::shadow::run;
use crate::common::{Client, Server, disk, request, single, vm, wait};
use crate::config::{Config, DeviceKind};
use crate::fault::{Effect, Ops, Rule, State};

const EIO: Effect = Effect::Error(IoError::Io);
const HOUR: Nanos = Nanos::from_secs(3600);

/// Storage for the disks of a test: memory, and files in whose system calls faults are injected,
/// too.
pub(super) fn everywhere() -> Vec<(tempfile::TempDir, DeviceKind)> {
    let memory = (tempfile::tempdir().unwrap(), DeviceKind::Memory);
    let mut all = places();
    all.push(memory);
    all
}

/// Configuration with the disk `disk`, which has these rules, and a disk `other` of another VM
/// without rules.
pub(super) fn two_disks(
    (dir, kind): &(tempfile::TempDir, DeviceKind),
    size: u64,
    rules: &[Rule],
) -> Config {
    let path = |name| match kind {
        DeviceKind::Memory => None,
        _ => {
            // Nothing may remain of an earlier daemon.
            let _ = std::fs::remove_file(dir.path().join(name));
            Some(dir.path().join(name))
        }
    };
    let mut config = single(dir.path(), kind.clone(), path("disk.raw"), size);
    config.vms[0].disks[0].faults = rules.to_vec();
    let other = disk("other", path("other.raw"), 4 * MIB);
    config.vms.push(vm("other", 0, vec![other]));
    config
}

fn change(server: &Server, change: FaultChange) -> DiskSnapshot {
    wait(server.handle.change_faults(0, "disk", change)).unwrap()
}

fn add(server: &Server, rule: Rule) -> DiskSnapshot {
    change(server, FaultChange::Add(Box::new(rule)))
}

fn disk_now(server: &Server) -> DiskSnapshot {
    wait(server.handle.snapshot(0)).unwrap().vms[0].disks[0].clone()
}

fn at(block: u64, on: Ops, effect: Effect) -> Rule {
    Rule {
        on,
        from: block * BLOCK,
        to: (block + 1) * BLOCK,
        ..Rule::always(effect)
    }
}

/// Rules for the blocks with faults that a [`Driver`] knows.
pub(super) fn bad_rules() -> Vec<Rule> {
    let bad = BAD_BLOCKS.map(|block| at(block, Ops::ANY, EIO));
    let full = Effect::Error(IoError::NoSpace);
    let full = FULL_BLOCKS.map(|block| at(block, Ops::CHANGES, full));
    [&bad[..], &full].concat()
}

#[test]
fn a_rule_fails_who_touches_its_place_once_and_nobody_else() {
    let rules = bad_rules();
    let (mut merged, mut split) = (0, 0);
    for (place, block) in everywhere().iter().zip([512, BLOCK].into_iter().cycle()) {
        let mut config = two_disks(place, BLOCKS * BLOCK, &rules);
        // Requests wait while the device is busy, so many are merged and split.
        config.devices[0].scheduling.depth = 1;
        config.devices[0].scheduling.max_io = 128 << 10;
        let server = Server::start(config);
        let mut driver = Driver::new(block);
        std::thread::scope(|scope| {
            let mut other = server.connect("other");
            scope.spawn(move || run(&mut other, &plan(9, 0, 4 * MIB, 1, 500)));
            driver.run(&mut server.connect("disk"), block, 1200);
        });
        let snapshot = wait(server.handle.snapshot(0)).unwrap();
        merged += snapshot.vms[0].stats.merged;
        split += snapshot.vms[0].stats.split;
        // Each request was struck once, whatever it was merged with, split into or repeated.
        let now = &snapshot.vms[0].disks[0];
        assert!(
            driver.failed > 30,
            "only {} requests met one",
            driver.failed
        );
        assert_eq!(now.faults_injected, driver.failed as u64);
        assert_eq!(snapshot.vms[1].disks[0].faults_injected, 0);
        assert_eq!(now.failed, None);
        // A flush has no position, so these rules do not apply to it; once they are removed, they
        // apply to nothing.
        let mut client = server.connect("disk");
        assert_eq!(client.flush(), Ok(()));
        assert!(change(&server, FaultChange::Clear).faults.is_empty());
        client.write(0, &vec![5; (BLOCKS * BLOCK) as usize]);
        assert!(
            client
                .read(0, (BLOCKS * BLOCK) as u32)
                .iter()
                .all(|byte| *byte == 5)
        );
        assert_eq!(disk_now(&server).faults_injected, driver.failed as u64);
        server.stop().unwrap();
    }
    assert!(merged > 0 && split > 0, "{merged} merged, {split} split");
}

#[test]
fn requests_are_counted_not_the_parts_they_are_served_in() {
    let third = Rule {
        on: Ops::only(Op::Write),
        every: 3,
        ..Rule::always(EIO)
    };
    for place in everywhere() {
        let mut config = two_disks(&place, 16 * MIB, &[third]);
        config.devices[0].scheduling.depth = 1;
        config.devices[0].scheduling.max_io = 128 << 10;
        let server = Server::start(config);
        let mut client = server.connect("disk");
        let mut failed = 0;
        // Adjacent requests, which are merged, and long ones, which are split.
        for len in [512, 400 << 10] {
            for i in 0..30 {
                let request = request(Command::Write, i, i * len, len as u32);
                client.send(request, &vec![1; len as usize]);
            }
            failed += (0..30).filter(|_| client.receive().result.is_err()).count();
        }
        assert_eq!(failed, 20);
        let rule = disk_now(&server).faults[0];
        assert_eq!(
            (rule.met, rule.injected, rule.state),
            (60, 20, State::Armed)
        );
        server.stop().unwrap();
    }
}

/// Client that writes at random and knows which bytes must be on the disk afterwards.
struct Torn {
    rng: Pcg64,
    shadow: Vec<u8>,
    rule: Rule,
    struck: u64,
}

impl Torn {
    /// Chooses any change of any range and determines the expected reply. The shadow has the
    /// expected content.
    fn choose(&mut self, cookie: u64, taken: &[Request]) -> Option<(Request, Vec<u8>, bool)> {
        let size = self.shadow.len() as u64;
        let longest = [4 * BLOCK, size / 2][usize::from(self.rng.random_bool(0.4))];
        let len = self.rng.random_range(1..=longest);
        let offset = self.rng.random_range(0..=size - len);
        let meets = |other: &Request| {
            other.offset < offset + len && offset < other.offset + u64::from(other.len)
        };
        if taken.iter().any(meets) {
            return None;
        }
        let command = if self.rng.random_bool(0.8) {
            Command::Write
        } else {
            Command::WriteZeroes {
                no_hole: self.rng.random_bool(0.5),
                fast_zero: false,
            }
        };
        let mut chosen = request(command, cookie, offset, len as u32);
        chosen.fua = self.rng.random_bool(0.1);
        let zeroes = command != Command::Write;
        let mut new = vec![0; len as usize];
        if !zeroes {
            self.rng.fill_bytes(&mut new);
        }
        let op = if zeroes { Op::WriteZeroes } else { Op::Write };
        let kept = if self.rule.applies_to(op, offset, len) {
            self.rule.effect.kept_bytes(offset, len)
        } else {
            None
        };
        self.struck += u64::from(kept.is_some());
        let reaches = kept.unwrap_or(len) as usize;
        let at = offset as usize;
        self.shadow[at..at + reaches].copy_from_slice(&new[..reaches]);
        let payload = if zeroes { Vec::new() } else { new };
        Some((chosen, payload, kept.is_some()))
    }

    fn run(&mut self, client: &mut Client, answer: Result<(), NbdError>, rounds: u64) {
        for round in 0..rounds {
            let mut asked = Vec::new();
            let mut due = Vec::new();
            for cookie in 0..16 {
                let Some((chosen, payload, torn)) = self.choose(cookie, &asked) else {
                    continue;
                };
                client.send(chosen, &payload);
                due.push((cookie, if torn { answer } else { Ok(()) }));
                asked.push(chosen);
            }
            for _ in 0..asked.len() {
                let got = client.receive();
                let (_, due) = due
                    .iter()
                    .find(|(cookie, _)| *cookie == got.cookie)
                    .unwrap();
                assert_eq!(got.result.map(|_| ()), *due, "round {round}: {asked:?}");
            }
            let found = client.read(0, self.shadow.len() as u32);
            // Compared byte by byte only if the whole differs, because that takes a hundred times
            // as long.
            if found != self.shadow {
                let mut bytes = found.iter().zip(&self.shadow);
                let wrong = bytes.position(|(got, want)| got != want);
                panic!("round {round}, byte {wrong:?}: {asked:?}");
            }
        }
    }
}

#[test]
fn a_torn_write_leaves_exactly_the_promised_prefix() {
    const SIZE: u64 = 256 << 10;
    let answers = [(Err(IoError::Io), Err(NbdError::Eio)), (Ok(()), Ok(()))];
    for place in everywhere() {
        // Some tears are beyond the first part of a split request, which must then go on up to the
        // tear.
        let keeps = [0, 512, 5 * 512, 64 << 10, 70_144];
        for (keep, (answer, is_reported)) in keeps.into_iter().flat_map(|k| answers.map(|a| (k, a)))
        {
            let rule = Rule {
                on: Ops::CHANGES,
                from: SIZE / 4,
                to: SIZE * 3 / 4,
                ..Rule::always(Effect::Torn { keep, answer })
            };
            let mut config = two_disks(&place, SIZE, &[rule]);
            config.devices[0].scheduling.depth = 4;
            config.devices[0].scheduling.max_io = 64 << 10;
            let server = Server::start(config);
            let mut torn = Torn {
                rng: Pcg64::seed_from_u64(keep),
                shadow: vec![0; SIZE as usize],
                rule,
                struck: 0,
            };
            torn.run(&mut server.connect("disk"), is_reported, 20);
            assert!(torn.struck > 4, "only {} were torn", torn.struck);
            assert_eq!(disk_now(&server).faults_injected, torn.struck);
            server.stop().unwrap();
        }
    }
}

#[test]
fn who_stalls_holds_up_nobody_else_and_goes_on_when_the_rules_are_gone() {
    for place in everywhere() {
        let stall = Rule {
            stall: HOUR,
            ..at(7, Ops::ANY, Effect::None)
        };
        let server = Server::start(two_disks(&place, MIB, &[]));
        let mut client = server.connect("disk");
        client.write(7 * BLOCK, &[7; BLOCK as usize]);
        add(&server, stall);
        for (cookie, command) in [(1, Command::Read { df: false }), (2, Command::Write)] {
            let payload = vec![8; if cookie == 2 { BLOCK as usize } else { 0 }];
            client.send(request(command, cookie, 7 * BLOCK, BLOCK as u32), &payload);
        }
        // Requests of the same client on the same disk, and requests on another disk.
        for cookie in 3..10 {
            let offset = cookie * 20 * BLOCK;
            client.send(
                request(Command::Read { df: false }, cookie, offset, 512),
                &[],
            );
        }
        let mut answered: Vec<u64> = (3..10).map(|_| client.receive().cookie).collect();
        answered.sort_unstable();
        assert_eq!(answered, (3..10).collect::<Vec<_>>());
        run(&mut server.connect("other"), &plan(1, 0, MIB, 1, 300));
        assert_eq!(client.flush(), Ok(()));
        assert_eq!(disk_now(&server).faults[0].injected, 2);
        change(&server, FaultChange::Remove(1));
        let mut late: Vec<u64> = (0..2)
            .map(|_| {
                let answer = client.receive();
                assert!(answer.result.is_ok(), "{answer:?}");
                answer.cookie
            })
            .collect();
        late.sort_unstable();
        assert_eq!(late, [1, 2]);
        assert_eq!(client.read(7 * BLOCK, 512), [8; 512]);
        server.stop().unwrap();
    }
}

#[test]
fn a_stall_takes_its_time_and_then_ends_as_the_rule_says() {
    let stall = Nanos::from_millis(30);
    for place in everywhere() {
        let late = |effect| Rule {
            on: Ops::only(Op::Read),
            count: Some(1),
            stall,
            ..Rule::always(effect)
        };
        let rules = [late(Effect::None), late(EIO)];
        let server = Server::start(two_disks(&place, MIB, &rules));
        let mut client = server.connect("disk");
        assert_eq!(client.read(0, 512), [0; 512]);
        let took = wait(server.handle.snapshot(0)).unwrap().vms[0]
            .stats
            .latency
            .max();
        assert!(took >= stall, "{took}");
        let answer = client.ask(Command::Read { df: false }, 0, 512, &[]);
        assert_eq!(answer.result, Err(NbdError::Eio));
        assert_eq!(client.read(0, 512), [0; 512]);
        assert_eq!(disk_now(&server).faults[0].state, State::Over);
        server.stop().unwrap();
    }
}

#[test]
fn the_order_to_stop_ends_every_stall() {
    for place in everywhere() {
        let stall = Rule {
            stall: HOUR,
            ..Rule::always(Effect::None)
        };
        let server = Server::start(two_disks(&place, MIB, &[stall]));
        let mut client = server.connect("disk");
        for cookie in 0..100 {
            client.send(
                request(Command::Write, cookie, cookie * 512, 512),
                &[9; 512],
            );
        }
        // After the first requests have started.
        let deadline = Instant::now() + Duration::from_secs(60);
        while disk_now(&server).faults_injected == 0 {
            assert!(Instant::now() < deadline, "no write has begun");
            std::thread::yield_now();
        }
        let path = place.0.path().join("disk.raw");
        server.stop().unwrap();
        let answered = std::iter::from_fn(|| client.receive_if_any()).count();
        if let Ok(bytes) = std::fs::read(path) {
            let written = bytes.iter().filter(|byte| **byte == 9).count();
            assert!(
                answered * 512 <= written,
                "{answered} answered, {written} bytes"
            );
        }
        assert!(answered > 0);
    }
}

#[test]
fn a_flush_that_fails_by_rule_leaves_the_disk_well() {
    for place in everywhere() {
        let once = Rule {
            on: Ops::only(Op::Flush),
            count: Some(1),
            ..Rule::always(EIO)
        };
        let server = Server::start(two_disks(&place, MIB, &[once]));
        let (mut client, mut other) = (server.connect("disk"), server.connect("other"));
        client.write(0, &[1; 4096]);
        assert_eq!(other.flush(), Ok(()));
        assert_eq!(client.flush(), Err(NbdError::Eio));
        // No data was lost, because the kernel was never called.
        assert_eq!(client.flush(), Ok(()));
        assert_eq!(disk_now(&server).failed, None);
        server.stop().unwrap();
    }
}

#[test]
fn what_cannot_be_changed_is_refused_and_changes_nothing() {
    use crate::command::CommandError;
    use crate::daemon::ControlError;
    let place = (tempfile::tempdir().unwrap(), DeviceKind::Memory);
    let server = Server::start(two_disks(&place, MIB, &[Rule::always(EIO)]));
    let refused = |export: &str, change| match wait(server.handle.change_faults(0, export, change))
    {
        Err(ControlError::Refused(error)) => error,
        other => panic!("{other:?}"),
    };
    let beyond = Rule {
        from: MIB,
        ..Rule::always(EIO)
    };
    let message = refused("disk", FaultChange::Add(Box::new(beyond)));
    assert!(
        message.to_string().contains("past the disk's end"),
        "{message}"
    );
    assert_eq!(
        refused("disk", FaultChange::Remove(2)),
        CommandError::UnknownFault(2)
    );
    let unknown = CommandError::UnknownExport("dusk".to_owned());
    assert_eq!(refused("dusk", FaultChange::Clear), unknown);
    assert_eq!(disk_now(&server).faults.len(), 1);
    while disk_now(&server).faults.len() < crate::fault::Faults::RULES_MAX {
        add(&server, Rule::always(EIO));
    }
    let message = refused("disk", FaultChange::Add(Box::new(Rule::always(EIO))));
    assert!(
        message.to_string().contains("fault rules already"),
        "{message}"
    );
    server.stop().unwrap();
}
