//! Load of a torture run: the requests that clients draw.

use super::inventory::{Client, Disk, HOT_SPOT_SECTORS};
use crate::checker::ledger::SECTOR;
use crate::torture::TortureRng;
use tidegate_core::request::{Op, Request};
use tidegate_core::time::Nanos;

/// Longest pause between two requests of a client that may have more open, in nanoseconds.
const GAP_NS: u64 = 2000;

/// Generator of requests.
pub(super) struct Load {
    rng: TortureRng,
}

impl Load {
    /// Creates the load of a seed.
    pub(super) fn new(seed: u64) -> Load {
        Load {
            rng: TortureRng::new(seed, 4),
        }
    }

    /// Time from a client's arrival to its first request, in a run of about `span`.
    pub(super) fn begin(&mut self, span: Nanos) -> Nanos {
        // Within a sixteenth of the run, so that clients overlap for most of it.
        Nanos(self.rng.below(span.0 / 16 + 1))
    }

    /// Pause before a client's next request, while it may have more open.
    pub(super) fn gap(&mut self) -> Nanos {
        Nanos(self.rng.below(GAP_NS))
    }

    /// Pause from an answer to a client's next request, at most `longest`.
    pub(super) fn think(&mut self, longest: Nanos) -> Nanos {
        Nanos(self.rng.range(0, longest.0))
    }

    /// Draws a request of a client's workload.
    pub(super) fn draw(&mut self, client: &mut Client, disk: &Disk, tag: u64) -> Request {
        let rng = &mut self.rng;
        let work = client.work;
        let all: u32 = work.mix.iter().sum();
        // The mix is never all zeroes, which its draw prevents.
        let mut drawn = rng.below(all.into()) as u32;
        let mut op = Op::Read;
        for (candidate, often) in Op::ALL.into_iter().zip(work.mix) {
            if drawn < often {
                op = candidate;
                break;
            }
            drawn -= often;
        }
        // Writes to such a disk are refused, and come as nonsense requests only.
        if disk.spec.read_only && op != Op::Flush {
            op = Op::Read;
        }
        let size = disk.spec.size / SECTOR;
        let count = rng.octaves(work.sectors.0, work.sectors.1).min(size);
        // The disk may have shrunk.
        client.next_sector = client.next_sector.min(size);
        let first = if rng.chance(work.sequential) {
            if work.downwards {
                // At the begin of the disk a downward stream starts again at its end.
                client
                    .next_sector
                    .checked_sub(count)
                    .unwrap_or(size - count)
            } else if client.next_sector + count <= size {
                client.next_sector
            } else {
                0
            }
        } else if rng.chance(work.hot) {
            (disk.hot_spot + rng.below(HOT_SPOT_SECTORS)).min(size - count)
        } else {
            rng.range(0, size - count)
        };
        if op != Op::Flush {
            client.next_sector = if work.downwards { first } else { first + count };
        }
        // A flush has no range.
        let data = op != Op::Flush;
        Request {
            op,
            offset: first * SECTOR * data as u64,
            len: (count * SECTOR) as u32 * data as u32,
            fua: rng.chance(work.fua),
            keep_allocated: op == Op::WriteZeroes && rng.chance(work.keep),
            tag,
        }
    }

    /// Draws an invalid request to a disk of `size` bytes; most are refused.
    pub(super) fn nonsense(&mut self, size: u64, tag: u64) -> Request {
        let rng = &mut self.rng;
        let sectors = |n: u64| n * SECTOR;
        let (offset, len) = match rng.below(4) {
            // Offset plus length overflows 64 bits.
            0 => (u64::MAX - rng.below(SECTOR), SECTOR),
            1 => (size - SECTOR, sectors(2)),
            2 => (sectors(rng.below(size / SECTOR)), 0),
            _ => (0, SECTOR),
        };
        Request {
            op: rng.pick(&Op::ALL),
            offset,
            len: len as u32,
            fua: rng.chance(500),
            keep_allocated: false,
            tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::Work;
    use tidegate_core::request::ClientId;

    /// Client of a disk of 64 sectors whose requests go on where the last one ended.
    fn sequential(downwards: bool) -> (Client, Disk) {
        let mut mix = [0; Op::ALL.len()];
        mix[Op::Write as usize] = 1;
        let work = Work {
            depth: 1,
            mix,
            fua: 0,
            keep: 0,
            sequential: 1000,
            downwards,
            hot: 0,
            sectors: (8, 8),
            think: Nanos::ZERO,
            burst: 0,
            silence: Nanos::ZERO,
        };
        let client = Client::new(0, ClientId::from_bits(0), work, 56);
        (client, Disk::blank(64))
    }

    #[test]
    fn sequential_requests_go_on_and_begin_again_at_the_end() {
        let mut load = Load::new(1);
        for (downwards, firsts) in [(false, [56, 0, 8]), (true, [48, 40, 32])] {
            let (mut client, disk) = sequential(downwards);
            let drawn = firsts.map(|_| load.draw(&mut client, &disk, 9));
            assert_eq!(drawn.map(|it| it.offset / SECTOR), firsts);
            assert!(drawn.iter().all(|it| it.op == Op::Write && it.tag == 9));
        }
    }

    #[test]
    fn a_read_only_disk_is_only_read() {
        let mut load = Load::new(1);
        let (mut client, mut disk) = sequential(false);
        disk.spec.read_only = true;
        assert_eq!(load.draw(&mut client, &disk, 0).op, Op::Read);
    }
}
