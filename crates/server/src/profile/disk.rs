//! File or block device under measurement, with direct I/O by io_uring.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::objective::Limit;
use tidegate_core::profile::Direction;
use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;
use tidegate_profile::{Io, Next, Profiler};

use super::{DriveError, Ended};
use crate::backing::{OpenError, OpenFile};
use crate::buffer::{PAGE, Region};
use crate::config::{Create, DiskConfig, DiskFormat};
use crate::ring::{Ring, clock};

/// Bytes of random data that writes are taken from, each at another offset, because some devices
/// compress or deduplicate.
const NOISE_BYTES: usize = 8 << 20;
/// Entries of the submission queue.
const RING_ENTRIES: u32 = 256;
/// Maximum wait for I/Os in flight after a measurement was stopped; longer ones hang.
const DRAIN_TIMEOUT: Nanos = Nanos::SECOND;

/// Open disk, locked like a disk of the daemon.
#[derive(Debug)]
pub struct Disk {
    open: OpenFile,
}

impl Disk {
    /// Opens a file or block device; with `size`, first creates a file of that many bytes,
    /// preallocated. Without `writes` it is opened read-only.
    ///
    /// # Errors
    /// Those of a disk of the daemon, with a hint.
    pub fn open(path: &Path, writes: bool, size: Option<u64>) -> Result<Disk, OpenError> {
        let config = DiskConfig {
            export: String::new(),
            path: Some(PathBuf::from(path)),
            within: None,
            size,
            create: match size {
                Some(_) => Create::Preallocated,
                None => Create::No,
            },
            format: DiskFormat::Raw,
            read_only: !writes,
            nbd: None,
            incoming: false,
            block_size: 512,
            limit: Limit::NONE,
            limit_group: None,
            faults: Vec::new(),
            place: None,
        };
        let open = OpenFile::open(path, &config)?;
        Ok(Disk { open })
    }

    /// Creates a file of `size` bytes and opens it. An existing file is not touched.
    ///
    /// # Errors
    /// Those of [`Disk::open`], and if a file of that name exists. No file is left then.
    pub fn make(path: &Path, size: u64) -> Result<Disk, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.to_owned(),
            what: "create",
            source,
        };
        let mut new = OpenOptions::new();
        new.write(true).create_new(true).mode(0o600);
        let made = new.open(path).map_err(failed)?;
        let opened = Disk::open(path, true, Some(size)).and_then(|disk| {
            // The inode of an open file cannot be reused, so the comparison is unambiguous.
            if disk.is_at(path) && is_at(&made, path) {
                Ok(disk)
            } else {
                Err(failed(io::ErrorKind::AlreadyExists.into()))
            }
        });
        opened.inspect_err(|_| {
            if is_at(&made, path) {
                let _ = fs::remove_file(path);
            }
        })
    }

    /// Returns true if the path still leads to the open file, not through a symbolic link.
    pub fn is_at(&self, path: &Path) -> bool {
        is_at(&self.open.file, path)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.open.facts.size
    }

    /// Returns the alignment of offsets and lengths in bytes, at least 512.
    pub fn block(&self) -> u32 {
        self.open.facts.align.max(512)
    }

    /// Returns the reason why the results are not the disk's own, if there is one.
    pub fn caveat(&self) -> Option<&'static str> {
        match (self.open.facts.in_memory, self.open.facts.direct) {
            (true, _) => Some("on a file system in memory: the results are those of memory"),
            (_, false) => Some(
                "through the page cache: the results are those of memory more than of the disk",
            ),
            _ => None,
        }
    }

    /// Measures until all is measured or `watch` breaks. `watch` is called between I/Os with the
    /// time and must be quick.
    ///
    /// # Errors
    /// If an I/O fails or is short.
    pub fn measure(
        &self,
        profiler: &mut Profiler,
        mut watch: impl FnMut(&Profiler, Nanos) -> ControlFlow<()>,
    ) -> Result<Ended, DriveError> {
        let file = self.open.file.try_clone().map_err(DriveError::Prepare)?;
        let mut port = Port::new(file.into(), profiler).map_err(DriveError::Prepare)?;
        let mut completions = Vec::with_capacity(RING_ENTRIES as usize * 4);
        let mut now = clock();
        loop {
            loop {
                match profiler.next_io(now) {
                    Next::Io(io) => port.submit(io),
                    Next::Wait => break,
                    Next::Finished => return Ok(Ended::Finished),
                }
            }
            port.ring.turn(None).map_err(DriveError::Ring)?;
            completions.clear();
            port.ring.take(&mut completions);
            now = clock();
            for completion in &completions {
                let io = port.ios[completion.token as usize];
                check(&io, completion.result)?;
                profiler.completed(now, io.id);
            }
            if watch(profiler, now).is_break() {
                port.drain(profiler, now);
                // An I/O that hangs completes later; its buffer stays mapped until the ring is
                // gone.
                return Ok(Ended::Stopped);
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Ring with the file and the buffers of its I/Os.
struct Port {
    ring: Ring,
    file: crate::ring::FileId,
    /// I/Os in flight by id.
    ios: Vec<Io>,
    /// Buffers of reads, `part` bytes for each id.
    read_buffers: Region,
    part: usize,
    noise: Region,
    random: SplitMix64,
}

impl Port {
    /// Waits for the I/Os in flight, for at most [`DRAIN_TIMEOUT`].
    fn drain(&mut self, profiler: &mut Profiler, mut now: Nanos) {
        let until = now + DRAIN_TIMEOUT;
        let mut completions = Vec::new();
        while profiler.in_flight() > 0 && now < until {
            if self
                .ring
                .turn(Some(Duration::from_nanos(until.since(now).0)))
                .is_err()
            {
                return;
            }
            self.ring.take(&mut completions);
            now = clock();
            for completion in completions.drain(..) {
                // Failed I/Os count as well: the step they belong to is measured again.
                profiler.completed(now, self.ios[completion.token as usize].id);
            }
        }
    }

    fn new(file: OwnedFd, profiler: &Profiler) -> io::Result<Port> {
        let plan = profiler.plan();
        // The bulk fill may use a larger depth than the measurements.
        let ids = plan.target.depth_max.max(plan.bulk_depth()) as usize;
        let part = (plan.target.max_io as usize).next_multiple_of(PAGE);
        let mut ring = Ring::new(RING_ENTRIES, 1)?;
        let none = Io {
            id: 0,
            direction: Direction::Read,
            addr: 0,
            len: 0,
        };
        let mut random = SplitMix64::new(plan.options.seed);
        // One I/O longer, because writes begin at any page of the noise.
        let noise = Region::new(NOISE_BYTES + part)?;
        for at in (0..noise.len()).step_by(8) {
            noise.mem(at, 8).write(&random.next_u64().to_ne_bytes());
        }
        Ok(Port {
            file: ring.add_file(file)?,
            ring,
            ios: vec![none; ids],
            read_buffers: Region::new(part * ids)?,
            part,
            noise,
            random,
        })
    }

    fn submit(&mut self, io: Io) {
        self.ios[io.id as usize] = io;
        let (token, len) = (u64::from(io.id), io.len as usize);
        assert!(len <= self.part, "I/O of {len} bytes beyond its buffer");
        match io.direction {
            Direction::Read => {
                let to = self.read_buffers.mem(io.id as usize * self.part, len);
                self.ring.read(self.file, &[to], io.addr, token);
            }
            Direction::Write => {
                let page = self.random.below((NOISE_BYTES / PAGE) as u64) as usize;
                let from = self.noise.mem(page * PAGE, len);
                self.ring.write(self.file, &[from], io.addr, false, token);
            }
        }
    }
}

fn check(io: &Io, result: Result<u32, i32>) -> Result<(), DriveError> {
    let source = match result {
        Ok(n) if n == io.len => return Ok(()),
        // A short transfer, for example at the end of a file that was truncated meanwhile.
        Ok(n) => io::Error::other(format!("only {n} bytes were transferred")),
        Err(errno) => io::Error::from_raw_os_error(errno),
    };
    Err(DriveError::Io {
        what: match io.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        },
        addr: io.addr,
        len: io.len,
        source,
    })
}
