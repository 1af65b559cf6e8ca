//! Checker of charges. Each accepted request is charged exactly once and in full, when it is served
//! for the first time. A request that is cancelled before that is never charged. The engine's
//! statistics of a VM agree with the outcomes of its requests.

use super::ledger::{Ledger, Part};
use super::{Verdict, ensure};
use core::ops::Deref;
use tidegate_core::interference::{Interval, VmTimes};
use tidegate_core::request::{Account, DeviceIo, Done, IoError, Op, VmId};
use tidegate_core::stats::VmStats;
use tidegate_core::time::Nanos;

/// Outcomes of one VM's requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Tally {
    arrived: [u64; Op::ALL.len()],
    ended: [u64; Op::ALL.len()],
    errors: [u64; Op::ALL.len()],
    bytes: u64,
    cancelled: u64,
    time: Nanos,
}

/// Tallies that the engine's statistics are compared with.
#[derive(Debug, Default)]
pub struct Charges {
    /// Owner and tally of each VM slot.
    tallies: Vec<(Option<VmId>, Tally)>,
}

impl Charges {
    fn tally(&mut self, vm: VmId) -> &mut Tally {
        if self.tallies.len() <= vm.index() {
            self.tallies.resize(vm.index() + 1, Default::default());
        }
        let (owner, tally) = &mut self.tallies[vm.index()];
        // The slot has a new VM, whose statistics begin at zero.
        if *owner != Some(vm) {
            (*owner, *tally) = (Some(vm), Tally::default());
        }
        tally
    }

    /// Counts a request that was accepted.
    pub fn accepted(&mut self, vm: VmId, op: Op) {
        self.tally(vm).arrived[op as usize] += 1;
    }

    /// Counts a request of `len` bytes that was answered.
    pub fn answered(&mut self, done: &Done, len: u32) {
        let tally = self.tally(done.vm);
        match done.outcome {
            Ok(()) => {
                tally.ended[done.op as usize] += 1;
                tally.bytes += len as u64;
                tally.time += done.account.total();
            }
            Err(IoError::Cancelled) => tally.cancelled += 1,
            Err(_) => tally.errors[done.op as usize] += 1,
        }
    }

    /// Compares the engine's statistics of a VM with the outcomes that were observed. `held`:
    /// requests that limits of its disks hold, which have not arrived yet.
    ///
    /// # Errors
    /// Fails when they differ.
    pub fn check(&mut self, vm: VmId, held: u32, stats: impl Deref<Target = VmStats>) -> Verdict {
        let mut counted = Tally {
            arrived: Op::ALL.map(|op| stats.op(op).arrived),
            ended: Op::ALL.map(|op| stats.op(op).ops),
            errors: Op::ALL.map(|op| stats.op(op).errors),
            bytes: Op::ALL.iter().map(|&op| stats.op(op).bytes).sum(),
            cancelled: stats.cancelled,
            time: total(&stats.account),
        };
        let seen = *self.tally(vm);
        if held > 0 {
            // Of which operations they are is not known here.
            let sum = |arrived: &[u64]| arrived.iter().sum::<u64>();
            ensure!(
                Charges,
                sum(&counted.arrived) + u64::from(held) == sum(&seen.arrived),
                "{vm:?} has {held} requests held, and is counted {counted:?}; what was seen is \
                 {seen:?}"
            );
            counted.arrived = seen.arrived;
        }
        ensure!(
            Charges,
            counted == seen,
            "{vm:?} is counted {counted:?}; what was seen is {seen:?}"
        );
        Ok(())
    }

    /// Checks that the classes of a VM's time add up to the time of the requests that were answered
    /// well, and that no VM is behind itself.
    ///
    /// # Errors
    /// Fails when they do not.
    pub fn check_times(&mut self, vm: VmId, times: &VmTimes) -> Verdict {
        let interval = Interval::between(&VmTimes::default(), times);
        let (counted, seen) = (interval.total(), self.tally(vm).time);
        ensure!(
            Charges,
            counted == seen,
            "the classes of {vm:?}'s time add up to {counted}; its requests took {seen}"
        );
        let own = interval.culprits.iter().find(|it| it.vm == vm);
        ensure!(Charges, own.is_none(), "{vm:?} is behind itself: {own:?}");
        ensure!(
            Charges,
            interval.samples <= interval.requests,
            "{} requests of {vm:?} were sampled, of {}",
            interval.samples,
            interval.requests
        );
        Ok(())
    }
}

fn total(account: &Account) -> Nanos {
    account.total()
}

/// Checks the requests and bytes that a device I/O charges, at its start.
///
/// # Errors
/// Fails when they are not those that the I/O serves for the first time.
pub fn started(ledger: &mut Ledger, io: &DeviceIo, parts: &[Part]) -> Verdict {
    let (mut ops, mut bytes) = (0, 0);
    for part in parts {
        let entry = &mut ledger.entries[part.number as usize];
        if !entry.served {
            // Parts after the first, and repetitions, are served free of charge.
            entry.served = true;
            ops += 1;
            bytes += entry.request.len as u64;
        }
    }
    ensure!(
        Charges,
        (io.first_ops, io.first_bytes) == (ops, bytes),
        "{io:?} charges {} requests of {} bytes, and serves {ops} of {bytes} for the first time",
        io.first_ops,
        io.first_bytes
    );
    Ok(())
}
