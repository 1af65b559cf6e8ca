//! Reader of a recording.

use std::collections::VecDeque;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use tidegate_base::time::Nanos;

use crate::block::{BlockDecoder, BlockHead};
use crate::chunk::{Chunks, Kind, MAGIC, Next, VERSION};
use crate::facts::{Change, Header, VmFacts};
use crate::inventory::Inventory;
use crate::request::Request;

/// Next thing in a recording.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// Request that ended.
    Request(Request),
    /// Change, and its time.
    Change(Nanos, Box<Change>),
    /// Requests that are missing.
    Gap(Gap),
}

/// Part of a recording from which requests are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Reason.
    pub cause: GapCause,
    /// End of the last request before the gap; 0 at the beginning.
    pub from: Nanos,
    /// End of the first request behind the gap, `None` if there is none.
    pub until: Option<Nanos>,
    /// Number of requests that are missing; `None` if that is unknown.
    pub requests: Option<u64>,
}

/// Reason of a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The recorder could not keep up, or could not write: it dropped requests.
    Dropped,
    /// Bytes of the file are damaged. With 0 missing requests, a change may be missing.
    Damaged,
    /// Recording was off.
    Off,
}

/// Change with its time, as in the file.
#[derive(Serialize, Deserialize)]
pub(crate) struct TimedChange {
    pub(crate) at_ns: u64,
    #[serde(flatten)]
    pub(crate) change: Change,
}

/// Gap as in the file.
#[derive(Serialize, Deserialize)]
pub(crate) struct GapChunk {
    cause: GapCause,
    from_ns: u64,
    until_ns: Option<u64>,
    requests: Option<u64>,
}

impl From<Gap> for GapChunk {
    fn from(gap: Gap) -> GapChunk {
        GapChunk {
            cause: gap.cause,
            from_ns: gap.from.0,
            until_ns: gap.until.map(|time| time.0),
            requests: gap.requests,
        }
    }
}

impl From<GapChunk> for Gap {
    fn from(gap: GapChunk) -> Gap {
        Gap {
            cause: gap.cause,
            from: Nanos(gap.from_ns),
            until: gap.until_ns.map(Nanos),
            requests: gap.requests,
        }
    }
}

/// End of a recording, as in the file.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) at_ns: u64,
    /// Number of requests with those of files before and dropped ones.
    pub(crate) requests: u64,
    /// Requests dropped since the last block.
    pub(crate) dropped: u64,
}

/// Reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The input does not begin as a recording does.
    #[error("not a recording: it does not begin with the mark of one")]
    NotARecording,
    /// The recording is of another version of the format.
    #[error("a recording of format {0}; this version reads format {VERSION}")]
    Version(u32),
    /// The header is missing or damaged.
    #[error("the header of the recording is damaged, without which requests have no VM")]
    Header,
}

/// Totals of what was read so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Requests that the recorder dropped, as far as blocks name them.
    pub dropped: u64,
    /// Requests that are missing for other reasons, as far as their number is known.
    pub lost: u64,
    /// Gaps.
    pub gaps: u64,
    /// Blocks of requests.
    pub blocks: u64,
    /// End of the first request.
    pub first: Option<Nanos>,
    /// End of the last request, or of the recording if that was read.
    pub last: Nanos,
    /// The recording has its end. Without it the recorder was killed, or still writes.
    pub is_complete: bool,
}

/// Reader of one recording: requests in the order in which they ended, with changes and gaps
/// between them. Damage is passed over and reported as a gap; no input makes it panic, and its
/// memory is bounded by 16 MiB and the facts in the file.
#[derive(Debug)]
pub struct Reader<R> {
    chunks: Chunks<R>,
    header: Header,
    inventory: Inventory,
    decoder: BlockDecoder,
    /// Items before the requests of `block`.
    ready: VecDeque<Item>,
    block: Vec<Request>,
    /// Index of the next request of `block`.
    next: usize,
    /// Number of the request that is expected next.
    expected: u64,
    /// Damage was passed over since the last block.
    is_damaged: bool,
    has_ended: bool,
    summary: Summary,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the input fails, is no recording or one of another version, or has a damaged header.
    pub fn new(from: R) -> Result<Reader<R>, ReadError> {
        let mut chunks = Chunks::new(from);
        if chunks.take(MAGIC.len())? != Some(&MAGIC[..]) {
            return Err(ReadError::NotARecording);
        }
        let version = chunks.take(4)?.and_then(|bytes| bytes.first_chunk());
        match version.map(|bytes| u32::from_le_bytes(*bytes)) {
            Some(VERSION) => {}
            Some(other) => return Err(ReadError::Version(other)),
            None => return Err(ReadError::Header),
        }
        let Next::Chunk(Kind::Header, place) = chunks.next()? else {
            return Err(ReadError::Header);
        };
        let header: Header =
            serde_json::from_slice(chunks.payload(place)).map_err(|_| ReadError::Header)?;
        Ok(Reader {
            inventory: Inventory::new(&header),
            expected: header.first_request,
            chunks,
            header,
            decoder: BlockDecoder::default(),
            ready: VecDeque::new(),
            block: Vec::new(),
            next: 0,
            is_damaged: false,
            has_ended: false,
            summary: Summary::default(),
        })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns what is in force after the items so far.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the VM that has a disk; `None` if the change that added it was lost.
    pub fn vm_of_disk(&self, disk: u32) -> Option<&VmFacts> {
        self.inventory.vm_of_disk(disk)
    }

    /// Returns the totals of the items so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the number of the request that comes next, dropped ones and those of earlier files
    /// counted.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns the next request, change or gap; `None` at the end.
    ///
    /// # Errors
    /// If the input fails. Damage is no error.
    pub fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.count(&item);
                return Ok(Some(item));
            }
            if let Some(&request) = self.block.get(self.next) {
                self.next += 1;
                let item = Item::Request(request);
                self.count(&item);
                return Ok(Some(item));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.read_chunk()?;
        }
    }

    fn count(&mut self, item: &Item) {
        let summary = &mut self.summary;
        match item {
            Item::Request(request) => {
                summary.requests += 1;
                summary.first.get_or_insert(request.done);
                summary.last = summary.last.max(request.done);
            }
            Item::Change(_, change) => self.inventory.apply(change),
            Item::Gap(gap) => {
                summary.gaps += 1;
                let requests = gap.requests.unwrap_or(0);
                let sum = match gap.cause {
                    GapCause::Dropped => &mut summary.dropped,
                    GapCause::Damaged | GapCause::Off => &mut summary.lost,
                };
                *sum = sum.saturating_add(requests);
            }
        }
    }

    /// Reads one chunk and makes items of it.
    fn read_chunk(&mut self) -> Result<(), ReadError> {
        let (kind, place) = match self.chunks.next()? {
            Next::Chunk(kind, place) => (kind, place),
            Next::Damaged => {
                self.is_damaged = true;
                return Ok(());
            }
            Next::Ended { .. } => {
                self.has_ended = true;
                if self.is_damaged {
                    self.add_gap(GapCause::Damaged, None, None);
                }
                return Ok(());
            }
        };
        let payload = self.chunks.payload(place);
        let taken = match kind {
            Kind::Block => {
                self.next = 0;
                let head = self.decoder.decode(payload, &mut self.block);
                head.and_then(|head| self.take_block(head))
            }
            Kind::Change => serde_json::from_slice(payload).ok().map(|timed| {
                let TimedChange { at_ns, change } = timed;
                let item = Item::Change(Nanos(at_ns), Box::new(change));
                self.ready.push_back(item);
            }),
            Kind::Gap => (serde_json::from_slice::<GapChunk>(payload).ok())
                .map(|gap| self.ready.push_back(Item::Gap(gap.into()))),
            Kind::End => {
                let ending = serde_json::from_slice(payload).ok();
                ending.and_then(|ending| self.take_end(&ending))
            }
            // A second header cannot be right.
            Kind::Header => None,
        };
        if taken.is_none() {
            self.block.clear();
            self.is_damaged = true;
        }
        Ok(())
    }

    /// Takes the decoded block if its number can be right.
    fn take_block(&mut self, head: BlockHead) -> Option<()> {
        let until = self.block.first().map(|request| request.done);
        self.add_gaps_before(head, until)?;
        self.expected = head.first.checked_add(self.block.len() as u64)?;
        self.summary.blocks += 1;
        Some(())
    }

    fn take_end(&mut self, ending: &Ending) -> Option<()> {
        let head = BlockHead {
            first: ending.requests,
            dropped: ending.dropped,
        };
        self.add_gaps_before(head, None)?;
        self.expected = ending.requests;
        self.has_ended = true;
        self.summary.is_complete = true;
        self.summary.last = self.summary.last.max(Nanos(ending.at_ns));
        Some(())
    }

    /// Adds the gaps between the last block and one with this head. Returns `None` if a block
    /// cannot come next.
    fn add_gaps_before(&mut self, head: BlockHead, until: Option<Nanos>) -> Option<()> {
        let lost = (head.first.checked_sub(head.dropped)?).checked_sub(self.expected)?;
        if lost > 0 || self.is_damaged {
            self.add_gap(GapCause::Damaged, until, Some(lost));
        }
        self.is_damaged = false;
        if head.dropped > 0 {
            self.add_gap(GapCause::Dropped, until, Some(head.dropped));
        }
        Some(())
    }

    fn add_gap(&mut self, cause: GapCause, until: Option<Nanos>, requests: Option<u64>) {
        self.ready.push_back(Item::Gap(Gap {
            cause,
            from: self.summary.last,
            until,
            requests,
        }));
    }
}
