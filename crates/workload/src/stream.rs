//! Stream of the requests that a workload draws.

mod address_distribution;
mod permute;
mod sizes;
mod zipf;

use crate::random_variate;
use crate::spec::{Mix, Placement, Workload};
use address_distribution::{Places, Shuffle};
use rand_pcg::Pcg64Mcg;
use sizes::SizeDraw;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

pub use crate::spec::RegionError;

/// Request without its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// Operation.
    pub op: Op,
    /// First byte on the disk; zero for a flush.
    pub offset: u64,
    /// Length in bytes; zero for a flush.
    pub len: u32,
    /// True if it is durable before the reply.
    pub fua: bool,
    /// True if it is issued only when everything that its workload issued before is answered.
    pub waits: bool,
    /// Time after that at which it is issued.
    pub pause: Nanos,
}

impl Io {
    pub(crate) const FLUSH: Io = Io {
        op: Op::Flush,
        offset: 0,
        len: 0,
        fua: false,
        waits: false,
        pause: Nanos::ZERO,
    };

    pub(crate) fn write(offset: u64, len: u32) -> Io {
        let op = Op::Write;
        Io {
            op,
            offset,
            len,
            ..Io::FLUSH
        }
    }
}

/// Generator of the requests of one copy of a workload, as [`Workload`] documents them, and:
/// - A sequential workload continues at the start of its region where the next request would pass
///   the end. Reads and writes of a sequential mix have separate positions, as in fio.
/// - The popular blocks of a Zipf or Pareto distribution are the same for every copy with a region
///   of the same size, so copies share hot blocks. (fio scatters them differently for each clone.)
/// - A request that would pass the end of the region moves to the last place where it fits.
/// - The flush after the last write is issued, too.
#[derive(Clone, Debug)]
pub struct Stream {
    mix: Mix,
    fua: bool,
    /// First byte of the region.
    base: u64,
    /// Size of a file, and gap between two of them, in bytes.
    file: u64,
    gap: u64,
    /// Positions and sizes of reads, writes and discards.
    op_states: [OpState; 3],
    /// Remaining bytes and requests; `u64::MAX` if there is no such end.
    bytes_left: u64,
    ios_left: u64,
    /// Writes between two flushes (0: no flushes), and writes until the next one.
    fsync: u32,
    writes_to_flush: u32,
    flush_due: bool,
    /// Block that was discarded and is written next, and its length.
    discarded: Option<(u64, u32)>,
    /// Random order without repetition, shared by all operations.
    shuffle: Option<Shuffle>,
}

/// State of the requests of one operation.
#[derive(Clone, Debug)]
struct OpState {
    sizes: SizeDraw,
    /// End of the last request, and size of the region, in bytes from the region's start.
    position: u64,
    end: u64,
    /// Distribution over blocks of the smallest size; `None`: sequential.
    places: Option<Places>,
}

const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

impl Stream {
    /// Creates the stream of copy `copy` (from 0) of `workload`, on a disk of `disk_size` bytes.
    /// The workload must pass [`Workload::check`].
    ///
    /// # Errors
    /// If the region does not fit the disk; the error has both sizes.
    pub fn new(workload: &Workload, copy: u32, disk_size: u64) -> Result<Stream, RegionError> {
        let region = workload.region(copy, disk_size)?;
        let files = workload.files;
        let end = workload.size.unwrap_or(region.end - region.start);
        let op_states = [READ, WRITE, TRIM].map(|i| {
            let sizes = &workload.sizes[i];
            // `max`: an operation that the mix does not have may have no sizes.
            let blocks = end / u64::from(sizes.smallest().max(1));
            OpState {
                sizes: SizeDraw::new(sizes, end),
                position: 0,
                end,
                places: (workload.rw.random)
                    .then(|| Places::new(&workload.placement, blocks.max(1))),
            }
        });
        let shuffle = workload.rw.random && workload.placement == Placement::Shuffle;
        // `check` has refused a shuffle of several sizes, so this is present whenever it is needed.
        let block = workload.single_size().filter(|_| shuffle);
        Ok(Stream {
            mix: workload.rw.mix,
            fua: workload.sync,
            base: region.start,
            // A single file has no end before the region's.
            file: match files.count {
                0 | 1 => u64::MAX,
                // Divides evenly: `check` wants the size in whole sectors of each file.
                count => end / u64::from(count),
            },
            gap: files.gap,
            op_states,
            bytes_left: workload.io_size.unwrap_or(u64::MAX),
            ios_left: workload.number_ios.unwrap_or(u64::MAX),
            fsync: workload.fsync,
            writes_to_flush: workload.fsync,
            flush_due: false,
            discarded: None,
            // `max`: several files may be smaller together than a request, which then fits only
            // with the gaps between them.
            shuffle: block.map(|block| Shuffle::new((end / u64::from(block)).max(1))),
        })
    }

    /// Returns the next request; `None` if the workload has ended.
    #[inline]
    pub fn next(&mut self, rng: &mut Pcg64Mcg) -> Option<Io> {
        if self.is_over() {
            return None;
        }
        if self.flush_due {
            self.flush_due = false;
            return Some(Io::FLUSH);
        }
        let (op, index) = match self.mix {
            Mix::Read => (Op::Read, READ),
            Mix::Write => (Op::Write, WRITE),
            Mix::Trim => (Op::Discard, TRIM),
            Mix::ReadWrite { read_percent } => {
                if random_variate::below(rng, 100) < u64::from(read_percent) {
                    (Op::Read, READ)
                } else {
                    (Op::Write, WRITE)
                }
            }
            Mix::TrimWrite => match self.discarded.take() {
                // Counted with the write, so that a limit on requests does not end between both
                // halves.
                Some((offset, len)) => return Some(self.issue(Op::Write, offset, len)),
                // Sizes and position are a write's, because both halves are one request.
                None => (Op::Discard, WRITE),
            },
        };
        let (offset, len) = self.place(index, rng);
        // The discard is not counted: it is one request with the write that follows.
        if self.mix == Mix::TrimWrite {
            self.discarded = Some((offset, len));
            return Some(Io {
                op,
                offset,
                len,
                ..Io::FLUSH
            });
        }
        Some(self.issue(op, offset, len))
    }

    /// Returns true if [`Stream::next`] returns no more requests.
    #[inline]
    pub fn is_over(&self) -> bool {
        (self.bytes_left == 0 || self.ios_left == 0) && !self.flush_due
    }

    /// Draws the address on the disk and the length of the next request of an operation.
    #[inline]
    fn place(&mut self, index: usize, rng: &mut Pcg64Mcg) -> (u64, u32) {
        let state = &mut self.op_states[index];
        let size = state.sizes.draw(rng);
        let bytes = u64::from(size.bytes);
        let from = match (&state.places, &mut self.shuffle) {
            (None, _) => {
                if state.position == state.end
                    // Without files a request is not cut: it starts again where it would pass the
                    // end.
                    || (self.file == u64::MAX && bytes > state.end - state.position)
                {
                    state.position = 0;
                }
                let from = state.position;
                // A request is cut at the end of its file, so with several files the position
                // reaches the end of the region exactly.
                state.position += bytes.min(self.file - from % self.file);
                from
            }
            // All operations have one size here, and share one order as in fio's map of blocks.
            (Some(_), Some(shuffle)) => shuffle.draw(rng) * bytes,
            (Some(places), None) => places.draw(size.places, rng) * state.sizes.unit(),
        };
        if self.file == u64::MAX {
            return (self.base + from, size.bytes);
        }
        let left = self.file - from % self.file;
        let place = from + from / self.file * self.gap;
        (self.base + place, bytes.min(left) as u32)
    }

    /// Counts a request and returns it.
    #[inline]
    fn issue(&mut self, op: Op, offset: u64, len: u32) -> Io {
        // The last request may exceed `io_size`, so the rest saturates at zero.
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(len));
        // Above 0: `next` returns early at 0, except for flushes, which do not come here.
        self.ios_left -= 1;
        let write = op == Op::Write;
        if write && self.fsync > 0 {
            // Above 0: set to `fsync` again whenever it gets there.
            self.writes_to_flush -= 1;
            if self.writes_to_flush == 0 {
                self.writes_to_flush = self.fsync;
                self.flush_due = true;
            }
        }
        Io {
            op,
            offset,
            len,
            fua: write && self.fua,
            waits: false,
            pause: Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
