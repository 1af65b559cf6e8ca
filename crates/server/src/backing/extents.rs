//! Block status: queries for the holes of a disk, and a thread that asks the file system, because
//! `lseek` may read metadata from disk.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::ring::{Wake, sys};

/// Maximum number of extents in one answer; the client asks again for the rest.
pub const EXTENTS_MAX: u32 = 1024;

/// Part of a disk with one status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub len: u32,
    /// True if nothing is allocated.
    pub hole: bool,
    /// True if it reads as zeroes.
    pub zero: bool,
}

/// Query for the holes in a range of a disk.
#[derive(Debug)]
pub(crate) struct ExtentQuery {
    /// Token that is returned with the answer.
    pub(crate) token: u64,
    /// First byte of the range.
    pub(crate) offset: u64,
    /// Length of the range in bytes, not zero.
    pub(crate) len: u32,
    /// Maximum number of extents in the answer, not zero.
    pub(crate) most: u32,
    /// Empty list for the answer, reused so that its memory is.
    pub(crate) extents: Vec<Extent>,
}

impl ExtentQuery {
    /// Answers that all of the range is data, for backings that do not know of holes.
    pub(crate) fn all_data(mut self) -> ExtentAnswer {
        self.extents.push(Extent {
            len: self.len,
            hole: false,
            zero: false,
        });
        self.answer(Ok(()))
    }

    /// Answers with the extents that are in the list.
    pub(crate) fn answer(self, result: Result<(), QueryError>) -> ExtentAnswer {
        ExtentAnswer {
            token: self.token,
            result,
            extents: self.extents,
        }
    }
}

/// Answer to a [`ExtentQuery`].
#[derive(Debug)]
pub(crate) struct ExtentAnswer {
    /// Token of the query.
    pub(crate) token: u64,
    pub(crate) result: Result<(), QueryError>,
    /// Consecutive extents from the query's offset on.
    pub(crate) extents: Vec<Extent>,
}

/// Reasons why an extent query failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueryError {
    /// Descriptors or threads are short at the moment.
    TryAgain,
    /// The storage reported an error.
    Failed,
}

/// Query for the holes of a file.
#[derive(Debug)]
pub(crate) struct FileQuery {
    /// Handle to the file.
    pub(crate) file: Arc<File>,
    pub(crate) query: ExtentQuery,
}

/// Thread that answers extent queries. It ends when this handle is dropped.
#[derive(Debug)]
pub(crate) struct ExtentThread {
    queries: Sender<FileQuery>,
    answers: Receiver<ExtentAnswer>,
}

impl ExtentThread {
    /// Starts the thread, which wakes the loop after each answer.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(wake: Arc<Wake>) -> io::Result<ExtentThread> {
        let (queries, inbox) = channel::<FileQuery>();
        let (outbox, answers) = channel();
        let answer_all = move || {
            for FileQuery { file, mut query } in inbox {
                let ExtentQuery {
                    offset, len, most, ..
                } = query;
                let result = find_extents(&file, offset, len, most, &mut query.extents);
                let result = result.map_err(|_| QueryError::Failed);
                if outbox.send(query.answer(result)).is_err() {
                    return;
                }
                wake.wake();
            }
        };
        std::thread::Builder::new()
            .name("extents".into())
            .spawn(answer_all)?;
        Ok(ExtentThread { queries, answers })
    }

    /// Passes a query to the thread.
    pub(crate) fn ask(&self, query: FileQuery) {
        self.queries
            .send(query)
            .expect("the thread lives as long as this");
    }

    /// Takes an answer if there is one.
    pub(crate) fn answer(&self) -> Option<ExtentAnswer> {
        self.answers.try_recv().ok()
    }
}

/// Appends the extents of a range to the empty list `extents`, at most `most` of them, alternating
/// between data and holes.
///
/// # Errors
/// Fails if `lseek` reports an I/O error.
pub(crate) fn find_extents(
    file: &File,
    offset: u64,
    len: u32,
    most: u32,
    extents: &mut Vec<Extent>,
) -> io::Result<()> {
    // A reply has room for that many; one that begins with an earlier query's extents is wrong.
    assert!(
        (1..=EXTENTS_MAX).contains(&most) && extents.is_empty(),
        "{most} extents wanted, {} left from an earlier query",
        extents.len()
    );
    let end = offset + u64::from(len);
    let mut at = offset;
    while at < end && extents.len() < most as usize {
        let data = match sys::seek(file, at, false) {
            // Block devices and some file systems do not know holes: all may be data.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => at,
            other => other?.unwrap_or(end).min(end),
        };
        let hole = data > at;
        let to = if hole {
            data
        } else {
            sys::seek(file, at, true)
                .unwrap_or(None)
                .unwrap_or(end)
                .min(end)
        };
        // While the file is written to, answers can contradict each other; the loop must advance
        // anyway.
        let to = if to > at { to } else { end };
        extents.push(Extent {
            len: (to - at) as u32,
            hole,
            zero: hole,
        });
        at = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_found_between_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[1; 65536], 1 << 20).unwrap();
        let mut extents = Vec::new();
        find_extents(&file, 0, 4 << 20, EXTENTS_MAX, &mut extents).unwrap();
        let total: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
        assert_eq!(total, 4 << 20);
        let mut at = 0u64;
        for e in &extents {
            let data = at < (1 << 20) + 65536 && at + u64::from(e.len) > 1 << 20;
            assert!(!data || !e.hole, "data at {at} called a hole");
            at += u64::from(e.len);
        }
        extents.clear();
        find_extents(&file, 5, 100, 1, &mut extents).unwrap();
        assert_eq!(extents.len(), 1);
    }
}
