//! Faults for tests: what a test makes of the calls on one file, between the loop and the kernel.
//!
//! A test [`set`]s its faults for a file before the daemon opens it; every ring that takes the file
//! asks them about each call. What is let through is done by the kernel, all of it or a part; what
//! is not is a no-operation, which completes with the error instead. A late one waits in the kernel
//! behind a timer, its memory with it, as on a disk that takes its time.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use io_uring::types::{TimeoutFlags, Timespec};
use io_uring::{opcode, squeue};

use super::{Completion, FileId, Ring, Step, sys};
use crate::buffer::{Mem, PAGE, sub_ranges};

/// What the loop is about to ask of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) what: What,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    Read,
    Write,
    Sync,
    Allocate,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// At most so many bytes are transferred, not none.
    Short(usize),
    /// It ends with this error, nothing done.
    Error(i32),
    /// It begins so much later.
    Late(Duration),
}

/// The call that a step asks for, if it asks for one.
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

/// Says of each call what becomes of it.
pub(crate) type Faults = Arc<Mutex<dyn FnMut(Call) -> Fault + Send>>;

type Identity = (bool, u64, u64);

static FAULTS: LazyLock<Mutex<HashMap<Identity, Faults>>> = LazyLock::new(Mutex::default);

/// Sets the faults of a file for all rings that take it from now on.
pub(crate) fn set(file: &File, faults: impl FnMut(Call) -> Fault + Send + 'static) {
    let identity = sys::identity(&file.metadata().unwrap());
    let faults = Arc::new(Mutex::new(faults));
    FAULTS.lock().unwrap().insert(identity, faults);
}

/// Takes the faults set for a file along. An inode may be another file's by and by, so they are no
/// longer set afterwards.
pub(crate) fn take(file: &File) -> Option<Faults> {
    let identity = sys::identity(&file.metadata().unwrap());
    FAULTS.lock().unwrap().remove(&identity)
}

/// A ring's part of it.
#[derive(Default)]
pub(super) struct Disturber {
    /// By the file's place in the table.
    files: HashMap<u32, Faults>,
    /// What operations report instead, by their token: an error, or at most so many bytes.
    reports: HashMap<u64, Result<u32, i32>>,
}

impl Disturber {
    /// Takes the faults set for a file along.
    pub(super) fn add(&mut self, index: u32, fd: &OwnedFd) {
        if let Some(faults) = take(&File::from(fd.try_clone().unwrap())) {
            self.files.insert(index, faults);
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.files.remove(&index);
    }

    /// What becomes of a call on a file.
    fn ask(&self, index: u32, call: Call) -> Fault {
        match self.files.get(&index) {
            Some(faults) => (faults.lock().unwrap())(call),
            None => Fault::None,
        }
    }

    /// Puts what operations report instead in the place of what the kernel reported.
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
    /// Has a step's call go wrong where its file's faults say so. True: it is on its way, and ends
    /// with an error. Else `ranges` are what is left of its memory.
    pub(crate) fn disturb(
        &mut self,
        file: FileId,
        step: Step,
        ranges: &mut Vec<Mem>,
        token: u64,
    ) -> bool {
        let Some(call) = call(step, ranges) else {
            return false;
        };
        match self.disturber.ask(file.0, call) {
            Fault::None => {}
            Fault::Error(errno) => {
                self.disturber.reports.insert(token, Err(errno));
                self.push(opcode::Nop::new().build(), token);
                return true;
            }
            Fault::Short(n) => {
                // Direct I/O is in whole blocks, whatever is reported of them.
                let len = n.next_multiple_of(PAGE).min(call.len as usize);
                self.disturber.reports.insert(token, Ok(n as u32));
                let mut clipped = Vec::new();
                sub_ranges(ranges, 0, len, &mut clipped);
                *ranges = clipped;
            }
            Fault::Late(by) => self.delay_next(by),
        }
        false
    }

    /// Has what is pushed next begin later.
    fn delay_next(&mut self, by: Duration) {
        if self.free_entries() < 2 {
            self.flush_full();
        }
        // The kernel reads it when it is submitted, whenever that is.
        let time: &'static Timespec = Box::leak(Box::new(Timespec::from(by)));
        let entry = opcode::Timeout::new(time).flags(TimeoutFlags::ETIME_SUCCESS);
        let link = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
        self.push(entry.build().flags(link), u64::MAX);
    }
}
