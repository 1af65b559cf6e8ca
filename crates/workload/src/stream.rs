//! The requests of a job, one after the other.

mod permute;
mod place;
mod sizes;
mod zipf;

use crate::draw;
use crate::job::{Job, Mix, Placement};
use place::{Places, Shuffle};
use rand_pcg::Pcg64Mcg;
use sizes::SizeDraw;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

pub use crate::job::RegionError;

/// One request, without its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// What to do.
    pub op: Op,
    /// First byte on the disk; zero for a flush.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub len: u32,
    /// Durable before it is answered.
    pub fua: bool,
    /// Issued only once all that its job has asked for before is answered ...
    pub waits: bool,
    /// ... and so long after that.
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

/// Draws the requests of one copy of a job.
///
/// It follows the job's documentation; what that leaves open:
/// - A sequential job goes back to the start of its region where the next request would pass
///   the end. Reads and writes of a sequential mix each go their own way, as fio's do.
/// - The popular blocks of a Zipf or Pareto placement are the same for every copy that has a
///   region of the same size: they share what is hot. (fio scatters each clone's differently.)
/// - A request that would pass the end of the region moves to the last place where it fits.
/// - The flush after the last write comes, too.
#[derive(Clone, Debug)]
pub struct Stream {
    mix: Mix,
    fua: bool,
    /// First byte of the region.
    base: u64,
    /// Bytes of a file, and between two of them.
    file: u64,
    gap: u64,
    /// How reads, writes and discards go.
    ways: [Way; 3],
    /// Bytes and requests to go: where nothing bounds them, more than any run sees.
    bytes_left: u64,
    ios_left: u64,
    /// Flushes after so many writes, 0 for never; how many are still to come before the next.
    fsync: u32,
    writes_to_flush: u32,
    flush_due: bool,
    /// The block that was discarded and is to be written now, and its length.
    discarded: Option<(u64, u32)>,
    /// Random order without repetition, which all operations draw from.
    shuffle: Option<Shuffle>,
}

/// How the requests of one operation go.
#[derive(Clone, Debug)]
struct Way {
    sizes: SizeDraw,
    /// Where the last one ended, and the end of the region; both count from its start.
    position: u64,
    end: u64,
    /// Random places, in blocks of the smallest size; `None`: one after the other.
    places: Option<Places>,
}

const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

impl Stream {
    /// The stream of copy `copy` (from 0) of `job`, on a disk of `disk_size` bytes. The job must
    /// be one that [`Job::check`] accepts.
    ///
    /// # Errors
    /// When the job's region does not fit the disk: says both figures.
    pub fn new(job: &Job, copy: u32, disk_size: u64) -> Result<Stream, RegionError> {
        let region = job.region(copy, disk_size)?;
        let files = job.files;
        let end = job.size.unwrap_or(region.end - region.start);
        let ways = [READ, WRITE, TRIM].map(|i| {
            let sizes = &job.sizes[i];
            let blocks = end / u64::from(sizes.smallest().max(1));
            Way {
                sizes: SizeDraw::new(sizes, end),
                position: 0,
                end,
                places: (job.rw.random).then(|| Places::new(&job.placement, blocks.max(1))),
            }
        });
        let shuffle = job.rw.random && job.placement == Placement::Shuffle;
        let block = job.single_size().filter(|_| shuffle);
        Ok(Stream {
            mix: job.rw.mix,
            fua: job.sync,
            base: region.start,
            // A single file ends nowhere before the region does.
            file: match files.count {
                0 | 1 => u64::MAX,
                count => end / u64::from(count),
            },
            gap: files.gap,
            ways,
            bytes_left: job.io_size.unwrap_or(u64::MAX),
            ios_left: job.number_ios.unwrap_or(u64::MAX),
            fsync: job.fsync,
            writes_to_flush: job.fsync,
            flush_due: false,
            discarded: None,
            shuffle: block.map(|block| Shuffle::new(end / u64::from(block))),
        })
    }

    /// The next request; `None`: the job has done all it was to do.
    #[inline]
    pub fn next(&mut self, rng: &mut Pcg64Mcg) -> Option<Io> {
        if self.is_over() {
            return None;
        }
        if self.flush_due {
            self.flush_due = false;
            return Some(Io::FLUSH);
        }
        let (op, way) = match self.mix {
            Mix::Read => (Op::Read, READ),
            Mix::Write => (Op::Write, WRITE),
            Mix::Trim => (Op::Discard, TRIM),
            Mix::ReadWrite { read_percent } => {
                if draw::below(rng, 100) < u64::from(read_percent) {
                    (Op::Read, READ)
                } else {
                    (Op::Write, WRITE)
                }
            }
            Mix::TrimWrite => match self.discarded.take() {
                Some((offset, len)) => return Some(self.issue(Op::Write, offset, len)),
                None => (Op::Discard, WRITE),
            },
        };
        let (offset, len) = self.place(way, rng);
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

    /// Whether [`Stream::next`] has nothing more to say.
    #[inline]
    pub fn is_over(&self) -> bool {
        (self.bytes_left == 0 || self.ios_left == 0) && !self.flush_due
    }

    /// Where the next request of a way lies on the disk, and its length.
    #[inline]
    fn place(&mut self, way: usize, rng: &mut Pcg64Mcg) -> (u64, u32) {
        let way = &mut self.ways[way];
        let size = way.sizes.draw(rng);
        let bytes = u64::from(size.bytes);
        let from = match (&way.places, &mut self.shuffle) {
            (None, _) => {
                if way.position == way.end
                    || (self.file == u64::MAX && bytes > way.end - way.position)
                {
                    way.position = 0;
                }
                let from = way.position;
                way.position += bytes.min(self.file - from % self.file);
                from
            }
            (Some(_), Some(shuffle)) => shuffle.draw(rng) * bytes,
            (Some(places), None) => places.draw(size.places, rng) * way.sizes.unit(),
        };
        if self.file == u64::MAX {
            return (self.base + from, size.bytes);
        }
        let left = self.file - from % self.file;
        let place = from + from / self.file * self.gap;
        (self.base + place, bytes.min(left) as u32)
    }

    /// Counts a request and says it.
    #[inline]
    fn issue(&mut self, op: Op, offset: u64, len: u32) -> Io {
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(len));
        self.ios_left -= 1;
        let write = op == Op::Write;
        if write && self.fsync > 0 {
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
