//! Faults in single system calls on a file, for tests: injected between the event loop and the
//! kernel.
//!
//! A test [`set`]s the faults of a file before the daemon opens it; every ring that adds the file
//! asks them about each call. A call that passes is done by the kernel, in full or in part. A call
//! that fails is replaced by a no-operation, which completes with the error. A delayed call waits
//! in the kernel behind a timer with its memory, as on a slow disk.
//!
//! Flushes by other threads than an event loop are asked about separately, see [`set_flush`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use io_uring::opcode;
use io_uring::types::Timespec;

use super::{Completion, FileId, Ring, Step, sys};
use crate::buffer::{Mem, PAGE, sub_ranges};

/// Call that the loop is about to submit on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) what: What,
    /// First byte of the file.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    Read,
    Write,
    Sync,
    Allocate,
}

/// Decision about a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// Transfers at most this many bytes, which must not be 0.
    Short(usize),
    /// Fails with this error number, without any effect.
    Error(i32),
    /// Starts after this delay.
    Late(Duration),
}

/// Effect of a fault on a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injected {
    /// Nothing.
    Nothing,
    /// The call has less to transfer or starts later. It must be the entry that is pushed next.
    Altered,
    /// The call was replaced and will complete with an error.
    Replaced,
}

/// Returns the call that a step makes; `None` for steps without a system call.
fn call(step: Step, ranges: &[Mem]) -> Option<Call> {
    let bytes = ranges.iter().map(|range| range.len() as u64).sum();
    let (what, offset, len) = match step {
        Step::Read(offset) => (What::Read, offset, bytes),
        Step::Write { offset, .. } => (What::Write, offset, bytes),
        Step::Sync => (What::Sync, 0, 0),
        Step::Allocate { offset, len, .. } => (What::Allocate, offset, len),
        Step::Bounce(_) | Step::Done(_) => return None,
    };
    Some(Call { what, offset, len })
}

/// Function that decides about each call.
pub(crate) type Faults = Arc<Mutex<dyn FnMut(Call) -> Fault + Send>>;

type Identity = (bool, u64, u64);

static FAULTS: LazyLock<Mutex<HashMap<Identity, Faults>>> = LazyLock::new(Mutex::default);

/// Sets the faults of a file for the next ring that adds it.
pub(crate) fn set(file: &File, faults: impl FnMut(Call) -> Fault + Send + 'static) {
    let identity = sys::identity(&file.metadata().unwrap());
    let faults = Arc::new(Mutex::new(faults));
    FAULTS.lock().unwrap().insert(identity, faults);
}

/// Removes and returns the faults that were set for a file. They are removed because a later file
/// may get the same inode.
pub(crate) fn take(file: &File) -> Option<Faults> {
    let identity = sys::identity(&file.metadata().unwrap());
    FAULTS.lock().unwrap().remove(&identity)
}

/// Function that is called before a flush, which fails if the function does.
type FlushFaults = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

static FLUSHES: LazyLock<Mutex<HashMap<Identity, FlushFaults>>> = LazyLock::new(Mutex::default);

/// Faults of a file's flushes by [`sys::sync_data`], until they are dropped.
pub(crate) struct FaultyFlushes(Identity);

impl Drop for FaultyFlushes {
    fn drop(&mut self) {
        FLUSHES.lock().unwrap().remove(&self.0);
    }
}

/// Sets a function that is called before each flush of a file by [`sys::sync_data`]. It may block,
/// as on a slow disk.
pub(crate) fn set_flush(
    file: &File,
    faults: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> FaultyFlushes {
    let identity = sys::identity(&file.metadata().unwrap());
    FLUSHES.lock().unwrap().insert(identity, Arc::new(faults));
    FaultyFlushes(identity)
}

/// Calls the function that was set for the flushes of a file.
pub(super) fn before_flush(file: &File) -> io::Result<()> {
    let identity = sys::identity(&file.metadata()?);
    let faults = FLUSHES.lock().unwrap().get(&identity).cloned();
    faults.map_or(Ok(()), |faults| faults())
}

/// Faults of the files in one ring's table.
#[derive(Default)]
pub(super) struct FaultInjector {
    /// Faults by the file's index in the table.
    files: HashMap<u32, Faults>,
    /// Results to report in place of the kernel's, by token: an error, or a maximum number of
    /// bytes.
    reports: HashMap<u64, Result<u32, i32>>,
    /// Token of the entry that must be pushed next, because a pause is linked to it: any other
    /// would be delayed in its place, also a send whose end nothing else reports.
    delayed: Option<u64>,
}

impl FaultInjector {
    /// Takes over the faults that were set for a file.
    pub(super) fn add(&mut self, index: u32, fd: &OwnedFd) {
        if let Some(faults) = take(&File::from(fd.try_clone().unwrap())) {
            self.files.insert(index, faults);
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.files.remove(&index);
    }

    /// Decides about a call on a file.
    fn decide(&self, index: u32, call: Call) -> Fault {
        match self.files.get(&index) {
            Some(faults) => (faults.lock().unwrap())(call),
            None => Fault::None,
        }
    }

    /// Sets the result to report in place of the kernel's.
    fn set_report(&mut self, token: u64, result: Result<u32, i32>) {
        let earlier = self.reports.insert(token, result);
        assert_eq!(earlier, None, "an earlier call did not go to the ring");
    }

    /// Checks an entry that is about to be pushed.
    pub(super) fn check_next(&mut self, token: u64) {
        if let Some(delayed) = self.delayed.take() {
            assert_eq!(token, delayed, "the pause of another entry delays this one");
        }
    }

    /// Replaces the kernel's results by those that faults ask for.
    pub(super) fn report(&mut self, completions: &mut [Completion]) {
        for completion in completions {
            match self.reports.remove(&completion.token) {
                Some(Ok(most)) => completion.result = completion.result.map(|n| n.min(most)),
                Some(Err(errno)) => completion.result = Err(errno),
                None => {}
            }
        }
    }
}

impl Ring {
    /// Applies the faults of a file to the call of a step. Unless the call was replaced, the caller
    /// submits it with `ranges`, which may have become shorter.
    pub(crate) fn inject_fault(
        &mut self,
        file: FileId,
        step: Step,
        ranges: &mut Vec<Mem>,
        token: u64,
    ) -> Injected {
        let Some(call) = call(step, ranges) else {
            return Injected::Nothing;
        };
        match self.fault_injector.decide(file.0, call) {
            Fault::None => Injected::Nothing,
            Fault::Error(errno) => {
                self.fault_injector.set_report(token, Err(errno));
                self.push(opcode::Nop::new().build(), token);
                Injected::Replaced
            }
            Fault::Short(n) => {
                // Direct I/O transfers whole blocks, so the kernel gets whole blocks and only the
                // report is short.
                let len = n.next_multiple_of(PAGE).min(call.len as usize);
                self.fault_injector.set_report(token, Ok(n as u32));
                let mut clipped = Vec::new();
                sub_ranges(ranges, 0, len, &mut clipped);
                *ranges = clipped;
                Injected::Altered
            }
            Fault::Late(by) => {
                self.delay_next(by, token);
                Injected::Altered
            }
        }
    }

    /// Delays the entry that is pushed next, which has the token `of`.
    fn delay_next(&mut self, by: Duration, of: u64) {
        // The kernel reads the time at submission, which may be any time later, so it must stay in
        // memory.
        self.push_pause(Box::leak(Box::new(Timespec::from(by))), u64::MAX);
        self.fault_injector.delayed = Some(of);
    }
}
