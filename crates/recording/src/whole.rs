//! Recording as a whole in memory.

use std::io::Read;

use tidegate_base::time::Nanos;

use crate::facts::{Change, Header};
use crate::inventory::Inventory;
use crate::reader::{Gap, GapCause, Item, ReadError, Reader, Summary};
use crate::request::Request;

/// Reason why a recording is not read into memory.
#[derive(Debug, thiserror::Error)]
pub enum TooLarge {
    /// No recording, or one that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// More requests than allowed.
    #[error("more than {0} requests: cut a part out of it by its times")]
    Requests(usize),
}

/// Recording as a whole. Needs 56 bytes a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    /// Device, VMs, policy and wall clock at the beginning.
    pub header: Header,
    /// Requests in the order of their arrival; those of equal times in the order of their ends.
    pub requests: Vec<Request>,
    /// Changes with their times, in order.
    pub changes: Vec<(Nanos, Change)>,
    /// Parts from which requests are missing.
    pub gaps: Vec<Gap>,
    /// Totals.
    pub summary: Summary,
    /// VMs and disks at the end, with the owners of all disks.
    pub inventory: Inventory,
}

impl Recording {
    /// Reads a recording of at most `most` requests.
    ///
    /// # Errors
    /// If it cannot be read, or has more requests.
    pub fn read(from: impl Read, most: usize) -> Result<Recording, TooLarge> {
        match Recording::read_first(from, most)? {
            (recording, false) => Ok(recording),
            (_, true) => Err(TooLarge::Requests(most)),
        }
    }

    /// Reads a recording up to its request number `most`, in the order of their ends. Returns true
    /// beside it if there are more: its totals are then those of what was read.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_first(from: impl Read, most: usize) -> Result<(Recording, bool), ReadError> {
        let mut reader = Reader::new(from)?;
        let (mut requests, mut changes, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut summary, mut has_more) = (reader.summary(), false);
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Request(_) if requests.len() == most => {
                    has_more = true;
                    break;
                }
                Item::Request(request) => requests.push(request),
                Item::Change(at, change) => changes.push((at, *change)),
                Item::Gap(gap) => gaps.push(gap),
            }
            summary = reader.summary();
        }
        if !has_more {
            // With the end of the recording.
            summary = reader.summary();
        }
        // Stable, so that requests of equal times keep their order.
        requests.sort_by_key(|request| request.arrived);
        let recording = Recording {
            header: reader.header().clone(),
            requests,
            changes,
            gaps,
            summary,
            inventory: reader.inventory().clone(),
        };
        Ok((recording, has_more))
    }

    /// Returns true if no request is missing between the first and the last one. Times for which
    /// recording was off count as missing; a missing end does not.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Returns the number of requests that are known to be missing for a cause.
    pub fn missing(&self, cause: GapCause) -> u64 {
        let of_cause = self.gaps.iter().filter(|gap| gap.cause == cause);
        of_cause.filter_map(|gap| gap.requests).sum()
    }
}
