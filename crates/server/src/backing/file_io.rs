//! State machine of one I/O on a file: chooses the next system call and interprets its result.
//!
//! ```text
//!   read, write, zeroes by writing:  [Head] -> [Tail] -> Transfer (again after a short one) -+
//!   discard, zeroes:                 Allocate -(cannot)-> Transfer of zeroes, or nothing     |
//!   flush:                           Sync                          with fua: Sync <----------+
//!                                    (not on tmpfs)  (writes: where RWF_DSYNC is not trusted)
//! ```
//!
//! An I/O whose offset, length or memory is not aligned for direct I/O goes through a bounce buffer
//! of whole blocks. `Head` and `Tail` read the blocks that are only written in part; the caller
//! holds a [range lock](super::range_lock) meanwhile.

use tidegate_core::request::{DeviceIo, IoError, Op, Outcome};

use super::dsync::Durably;
use super::file::FileFacts;
use crate::buffer::{Buffer, Mem, copy_ranges, sub_ranges};
use crate::ring::{RANGES_MAX, Step};

/// Maximum number of zero bytes in one write.
pub const ZEROES: usize = 1 << 20;

/// Number of consecutive `EINTR` or `EAGAIN` results after which a call has failed. Each retry goes
/// through the ring, but a file with no other answer would keep its loop busy for ever.
const RETRIES_MAX: u16 = 100;

/// State of one I/O on a file; reused for the next one.
#[derive(Debug)]
pub struct FileIo {
    stage: Stage,
    op: Op,
    fua: bool,
    keep_allocated: bool,
    /// Range that is being transferred: the whole I/O, or one piece when zeroes are written. `done`
    /// is the number of bytes transferred so far, from the block's start with a bounce buffer.
    offset: u64,
    len: usize,
    done: usize,
    /// Consecutive results without progress. At the second one the file is taken to end before the
    /// disk does.
    no_progress: u8,
    /// Consecutive results that ask to repeat the call.
    retries: u16,
    /// End of the whole range, up to which pieces of zeroes follow.
    end: u64,
    /// The caller's memory, in order.
    ranges: Vec<Mem>,
    bounce: Option<Buffer>,
    zeroes: Mem,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Head,
    Tail,
    Transfer,
    Allocate,
    Sync,
    Done(Outcome),
}

impl FileIo {
    /// Creates a state without an I/O.
    pub fn new() -> FileIo {
        FileIo {
            stage: Stage::Done(Ok(())),
            op: Op::Flush,
            fua: false,
            keep_allocated: false,
            offset: 0,
            len: 0,
            done: 0,
            no_progress: 0,
            retries: 0,
            end: 0,
            ranges: Vec::new(),
            bounce: None,
            zeroes: Mem::EMPTY,
        }
    }

    /// Begins an I/O on the caller's `ranges`. `zeroes` is memory of [`ZEROES`] zero bytes.
    pub fn begin(
        &mut self,
        facts: &FileFacts,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
        zeroes: Mem,
    ) {
        assert!(
            self.bounce.is_none(),
            "the last I/O's bounce buffer was not taken"
        );
        debug_assert!(
            matches!(self.stage, Stage::Done(_)),
            "an I/O begins where another one is under way"
        );
        self.ranges.clear();
        self.ranges.extend(ranges);
        self.op = io.op;
        self.fua = io.fua;
        self.keep_allocated = io.keep_allocated;
        self.offset = io.offset;
        self.len = io.len as usize;
        self.done = 0;
        self.no_progress = 0;
        self.retries = 0;
        self.end = io.offset + u64::from(io.len);
        self.zeroes = zeroes;
        self.stage = match io.op {
            Op::Read => Stage::Transfer,
            Op::Write => Stage::Head,
            Op::Flush => Stage::Sync,
            Op::Discard | Op::WriteZeroes => Stage::Allocate,
        };
        // A disk that has failed refuses without a system call.
        if !facts.takes(io.op != Op::Read) {
            self.stage = Stage::Done(Err(IoError::Io));
        }
    }

    /// Returns the next system call and puts its memory into `out`.
    pub fn step(&mut self, facts: &FileFacts, out: &mut Vec<Mem>) -> Step {
        out.clear();
        loop {
            match self.stage {
                Stage::Done(outcome) => return Step::Done(outcome),
                // Nothing on tmpfs is durable, and the call would take a kernel worker.
                Stage::Sync if facts.in_memory => self.stage = Stage::Done(sync_outcome(facts)),
                Stage::Sync => return Step::Sync,
                Stage::Allocate => match self.allocation(facts) {
                    Some(step) => return step,
                    None => self.after_allocation_failed(facts),
                },
                stage => {
                    if self.bounce.is_none() && self.needs_bounce(facts) {
                        let (start, end) = self.span(facts);
                        return Step::Bounce((end - start) as usize);
                    }
                    if let Some(step) = self.transfer_step(facts, stage, out) {
                        return step;
                    }
                }
            }
        }
    }

    /// Supplies the bounce buffer that [`Step::Bounce`] asked for.
    pub fn give_bounce(&mut self, buffer: Buffer) {
        debug_assert!(
            self.bounce.is_none(),
            "the bounce buffer that the I/O has would leak"
        );
        self.bounce = Some(buffer);
    }

    /// Takes the bounce buffer back once the I/O is done.
    pub fn take_bounce(&mut self) -> Option<Buffer> {
        self.bounce.take()
    }

    /// Handles the result of the system call that [`FileIo::step`] returned: a count or an errno.
    pub fn advance(&mut self, facts: &mut FileFacts, result: Result<u32, i32>) {
        let n = match result {
            Ok(n) => n as usize,
            Err(libc::EINTR | libc::EAGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                return;
            }
            Err(errno) => return self.failed(facts, errno),
        };
        self.retries = 0;
        match self.stage {
            Stage::Head => self.block_read(facts, n, self.head(facts), Stage::Tail),
            Stage::Tail => self.block_read(facts, n, self.tail(facts), Stage::Transfer),
            Stage::Transfer if self.op == Op::Read => self.read_some(facts, n),
            Stage::Transfer => self.wrote_some(facts, n),
            Stage::Allocate if self.fua => self.stage = Stage::Sync,
            Stage::Allocate => self.stage = Stage::Done(Ok(())),
            Stage::Sync => self.stage = Stage::Done(sync_outcome(facts)),
            Stage::Done(_) => panic!("a result for an I/O that had ended"),
        }
    }

    /// Returns the range of whole blocks around the transfer, as first byte and end.
    pub fn span(&self, facts: &FileFacts) -> (u64, u64) {
        let align = u64::from(facts.align);
        let end = self.offset + self.len as u64;
        (self.offset / align * align, end.next_multiple_of(align))
    }

    /// Returns true if the request covers its first or last block only in part, so that the block
    /// has to be read before it is written.
    pub fn has_partial_blocks(&self, facts: &FileFacts) -> bool {
        self.span(facts) != (self.offset, self.offset + self.len as u64)
    }

    fn needs_bounce(&self, facts: &FileFacts) -> bool {
        if self.has_partial_blocks(facts) {
            return true;
        }
        // Zeroes are aligned by construction, and the page cache takes any alignment.
        if facts.align == 1 || self.op == Op::WriteZeroes {
            // One system call takes at most RANGES_MAX ranges; a bounce buffer makes one of them.
            return self.ranges.len() > RANGES_MAX;
        }
        let odd = |m: &Mem| {
            !m.addr().is_multiple_of(facts.memory_align as usize)
                || !m.len().is_multiple_of(facts.align as usize)
        };
        self.ranges.len() > RANGES_MAX || self.ranges.iter().any(odd)
    }

    /// Returns offset and length of the first block if it is only written in part.
    fn head(&self, facts: &FileFacts) -> Option<(u64, usize)> {
        let (start, end) = self.span(facts);
        let block = u64::from(facts.align);
        let partial =
            self.offset != start || (start + block == end && self.offset + self.len as u64 != end);
        partial.then_some((start, block as usize))
    }

    /// Returns offset and length of the last block if it is only written in part and is not the
    /// first.
    fn tail(&self, facts: &FileFacts) -> Option<(u64, usize)> {
        let (start, end) = self.span(facts);
        let block = u64::from(facts.align);
        let partial = self.offset + self.len as u64 != end && start + block != end;
        partial.then_some((end - block, block as usize))
    }

    /// Returns the system call of a transfer stage; `None` if the stage has nothing to do and the
    /// next one was entered.
    fn transfer_step(
        &mut self,
        facts: &FileFacts,
        stage: Stage,
        out: &mut Vec<Mem>,
    ) -> Option<Step> {
        let (start, end) = self.span(facts);
        let block = match stage {
            Stage::Head => self.head(facts),
            Stage::Tail => self.tail(facts),
            _ => None,
        };
        match (stage, block, &self.bounce) {
            (Stage::Head | Stage::Tail, Some((at, len)), Some(bounce)) => {
                out.push(bounce.mem().slice((at - start) as usize, len));
                return Some(Step::Read(at));
            }
            (Stage::Head, ..) => {
                self.stage = Stage::Tail;
                return None;
            }
            (Stage::Tail, ..) => {
                self.stage = Stage::Transfer;
                self.fill_bounce(facts);
                return None;
            }
            _ => {}
        }
        let at = match &self.bounce {
            Some(bounce) => {
                let len = (end - start) as usize;
                out.push(bounce.mem().slice(self.done, len - self.done));
                start + self.done as u64
            }
            None => {
                sub_ranges(&self.ranges, self.done, self.len - self.done, out);
                self.offset + self.done as u64
            }
        };
        Some(match self.op {
            Op::Read => Step::Read(at),
            _ => Step::Write {
                offset: at,
                dsync: self.fua && facts.durably == Durably::Flag,
            },
        })
    }

    /// Copies the caller's bytes over the blocks that were read into the bounce buffer.
    fn fill_bounce(&mut self, facts: &FileFacts) {
        let (start, _) = self.span(facts);
        if let Some(bounce) = &self.bounce {
            let to = bounce.mem().slice((self.offset - start) as usize, self.len);
            copy_ranges(&[to], &self.ranges);
        }
    }

    /// Handles the result of reading a block that will be written in part; `n` is the number of
    /// bytes read.
    fn block_read(
        &mut self,
        facts: &FileFacts,
        n: usize,
        block: Option<(u64, usize)>,
        next: Stage,
    ) {
        let (_, len) = block.expect("only a partial block is read");
        // A short read is repeated once: it may have been interrupted.
        if n > 0 && n < len && self.no_progress == 0 {
            self.no_progress = 1;
            return;
        }
        self.no_progress = 0;
        if n < len {
            // Without its old bytes the block cannot be written back around the caller's data.
            return self.ended_early(facts);
        }
        self.stage = next;
        if next == Stage::Transfer {
            self.fill_bounce(facts);
        }
    }

    fn read_some(&mut self, facts: &FileFacts, n: usize) {
        let (start, end) = self.span(facts);
        let total = if self.bounce.is_some() {
            (end - start) as usize
        } else {
            self.len
        };
        if self.done + n < total {
            // Direct I/O resumes at a block, so a block that was read in part is read again.
            let to = (self.done + n) / facts.align as usize * facts.align as usize;
            if n > 0 && (to > self.done || self.no_progress == 0) {
                self.no_progress = u8::from(to == self.done);
                self.done = to;
                return;
            }
            return self.ended_early(facts);
        }
        if let Some(bounce) = &self.bounce {
            let from = bounce.mem().slice((self.offset - start) as usize, self.len);
            copy_ranges(&self.ranges, &[from]);
        }
        self.stage = Stage::Done(Ok(()));
    }

    /// Ends the request with an I/O error, because the file ends before the disk does.
    fn ended_early(&mut self, facts: &FileFacts) {
        facts.ended_early();
        self.stage = Stage::Done(Err(IoError::Io));
    }

    fn wrote_some(&mut self, facts: &mut FileFacts, n: usize) {
        let (start, end) = self.span(facts);
        let total = if self.bounce.is_some() {
            (end - start) as usize
        } else {
            self.len
        };
        let before = self.done;
        self.done += n;
        if self.done < total {
            // Direct I/O resumes at a block, so a block that was written in part is written again.
            self.done -= self.done % facts.align as usize;
            if self.done == before && self.no_progress > 0 {
                return self.failed(facts, libc::EIO);
            }
            self.no_progress = u8::from(self.done == before);
            return;
        }
        let written_to = self.offset + self.len as u64;
        if self.op == Op::WriteZeroes && written_to < self.end {
            return self.next_zeroes(facts, written_to);
        }
        self.stage = match (self.fua, facts.durably) {
            (false, _) => Stage::Done(Ok(())),
            (true, Durably::Flag) => Stage::Done(sync_outcome(facts)),
            (true, Durably::Sync) => Stage::Sync,
        };
    }

    /// Begins the next piece of written zeroes. Pieces end on a block, so that only the first and
    /// the last one can be partial.
    fn next_zeroes(&mut self, facts: &FileFacts, from: u64) {
        let align = u64::from(facts.align);
        // Leaves room for a partial block at both ends, so that a piece fits the bounce buffer.
        let piece = (ZEROES as u64 - 2 * align) / align * align;
        let to = self.end.min(from / align * align + piece);
        // A piece of no bytes would be followed by the next one at the same offset, for ever.
        debug_assert!(to > from, "no zeroes to write at {from}, end {}", self.end);
        self.offset = from;
        self.len = (to - from) as usize;
        self.done = 0;
        self.no_progress = 0;
        self.ranges.clear();
        self.ranges.push(self.zeroes.slice(0, self.len));
        self.stage = Stage::Head;
    }

    /// Returns the `fallocate` call of a discard or of zeroes; `None` if the file cannot do it.
    fn allocation(&mut self, facts: &FileFacts) -> Option<Step> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let mode = match (self.op, self.keep_allocated) {
            (Op::Discard, _) | (_, false) if facts.can_punch => PUNCH,
            (Op::Discard, _) => return None,
            _ if facts.can_zero => ZERO,
            _ => return None,
        };
        let (mut from, mut to) = (self.offset, self.end);
        if facts.block_device {
            let align = u64::from(facts.align);
            if self.op == Op::Discard {
                // A discard is only a hint, so partial blocks at its ends are left out.
                (from, to) = (from.next_multiple_of(align), to / align * align);
            }
            // A block device accepts whole blocks only; zeroes are then written.
            if from >= to || from % align != 0 || to % align != 0 {
                return None;
            }
        }
        Some(Step::Allocate {
            mode,
            offset: from,
            len: to - from,
        })
    }

    /// Continues without `fallocate`: a discard is only a hint, zeroes are written.
    fn after_allocation_failed(&mut self, facts: &FileFacts) {
        match self.op {
            // Other NBD servers sync on a trim with FUA even where they discard nothing, and
            // clients may rely on that.
            Op::Discard if self.fua => self.stage = Stage::Sync,
            Op::Discard => self.stage = Stage::Done(Ok(())),
            _ => self.next_zeroes(facts, self.offset),
        }
    }

    fn failed(&mut self, facts: &mut FileFacts, errno: i32) {
        if self.stage == Stage::Allocate && matches!(errno, libc::EOPNOTSUPP | libc::EINVAL) {
            // The file cannot do it: note that and let `step` choose the alternative. The condition
            // is the one by which `allocation` has chosen the mode.
            if self.op == Op::WriteZeroes && (self.keep_allocated || !facts.can_punch) {
                facts.can_zero = false;
            } else {
                facts.can_punch = false;
            }
            return;
        }
        let outcome = match errno {
            // A file that has reached its maximum size is reported like a full file system.
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
            _ => IoError::Io,
        };
        // Data of a plain write that failed was never acknowledged as durable, and its sync is not
        // reached: only failed durable writes and syncs fail the disk.
        let flagged = self.fua && facts.durably == Durably::Flag && self.stage == Stage::Transfer;
        let durable = self.stage == Stage::Sync || flagged;
        // Memory of a guest that is gone says nothing of the disk.
        let is_disk = errno != libc::EFAULT;
        let failed = self.stage == Stage::Sync || outcome == IoError::Io;
        if durable && self.op != Op::Read && failed && is_disk {
            // The kernel may have dropped what it could not write, so a later success would prove
            // nothing.
            let what = match self.op {
                Op::Flush => "flush",
                _ => "durable write",
            };
            facts.errors.fail(errno, what);
            self.stage = Stage::Done(Err(IoError::Io));
            return;
        }
        facts.errors.warn(errno, op_name(self.op));
        self.stage = Stage::Done(Err(outcome));
    }
}

/// Returns the outcome of a sync that the kernel reports as successful. The kernel reports a
/// write-back error only once for each open file: of several syncs that wait for it one fails, and
/// the success of the others means nothing.
fn sync_outcome(facts: &FileFacts) -> Outcome {
    match facts.errors.failed {
        Some(_) => Err(IoError::Io),
        None => Ok(()),
    }
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "write of zeroes",
    }
}

impl Default for FileIo {
    fn default() -> Self {
        FileIo::new()
    }
}

#[cfg(test)]
#[path = "file_io_tests.rs"]
mod tests;
