//! Block status: questions which parts of a disk are holes, and a thread that asks file systems, as
//! `lseek` may read metadata.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::ring::{Wake, sys};

/// Largest number of extents in one answer; the client asks again for what follows.
pub const EXTENTS_MAX: u32 = 1024;

/// Part of a disk that is alike throughout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub len: u32,
    /// Nothing is allocated.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

/// Question which parts of a range of a disk are holes.
#[derive(Debug)]
pub(crate) struct Question {
    /// Comes back with the answer.
    pub(crate) token: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes, not zero.
    pub(crate) len: u32,
    /// Largest number of extents in the answer, not zero.
    pub(crate) most: u32,
    /// Empty list for the answer, with the memory that earlier answers needed.
    pub(crate) extents: Vec<Extent>,
}

impl Question {
    /// Returns the answer of a backing that keeps no account of holes: all of it is data.
    pub(crate) fn all_data(mut self) -> Status {
        self.extents.push(Extent {
            len: self.len,
            hole: false,
            zero: false,
        });
        self.answer(Ok(()))
    }

    /// Returns the answer with the extents that are in the list.
    pub(crate) fn answer(self, told: Result<(), Untold>) -> Status {
        Status {
            token: self.token,
            told,
            extents: self.extents,
        }
    }
}

/// Answer to a [`Question`].
#[derive(Debug)]
pub(crate) struct Status {
    /// The question's.
    pub(crate) token: u64,
    pub(crate) told: Result<(), Untold>,
    /// Extents from the question's offset on.
    pub(crate) extents: Vec<Extent>,
}

/// Reason why a question for extents has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untold {
    /// Descriptors or threads are short for the moment.
    TryAgain,
    /// Whoever stores the bytes failed to tell.
    Failed,
}

/// Question about a file.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Handle to the file.
    pub(crate) file: Arc<File>,
    pub(crate) question: Question,
}

/// The thread that answers. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Surveyor {
    questions: Sender<Survey>,
    answers: Receiver<Status>,
}

impl Surveyor {
    /// Starts the thread; it wakes the loop with each answer.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(wake: Arc<Wake>) -> io::Result<Surveyor> {
        let (questions, inbox) = channel::<Survey>();
        let (outbox, answers) = channel();
        let answer_all = move || {
            for Survey { file, mut question } in inbox {
                let Question {
                    offset, len, most, ..
                } = question;
                let told = survey(&file, offset, len, most, &mut question.extents);
                let told = told.map_err(|_| Untold::Failed);
                if outbox.send(question.answer(told)).is_err() {
                    return;
                }
                wake.wake();
            }
        };
        std::thread::Builder::new()
            .name("extents".into())
            .spawn(answer_all)?;
        Ok(Surveyor { questions, answers })
    }

    /// Asks.
    pub(crate) fn ask(&self, survey: Survey) {
        self.questions
            .send(survey)
            .expect("the thread lives as long as this");
    }

    /// Takes an answer, if there is one.
    pub(crate) fn answer(&self) -> Option<Status> {
        self.answers.try_recv().ok()
    }
}

/// Puts the extents of a range into the empty list `extents`, at most so many, alternating between
/// data and holes.
///
/// # Errors
/// If the file system reports one.
pub(crate) fn survey(
    file: &File,
    offset: u64,
    len: u32,
    most: u32,
    extents: &mut Vec<Extent>,
) -> io::Result<()> {
    let end = offset + u64::from(len);
    let mut at = offset;
    while at < end && extents.len() < most as usize {
        let data = match sys::seek(file, at, false) {
            // Block devices and some filesystems do not know: all of it may be data.
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
        // A file that is being written to may answer anything; it must go on.
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
        survey(&file, 0, 4 << 20, EXTENTS_MAX, &mut extents).unwrap();
        let total: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
        assert_eq!(total, 4 << 20);
        let mut at = 0u64;
        for e in &extents {
            let data = at < (1 << 20) + 65536 && at + u64::from(e.len) > 1 << 20;
            assert!(!data || !e.hole, "data at {at} called a hole");
            at += u64::from(e.len);
        }
        extents.clear();
        survey(&file, 5, 100, 1, &mut extents).unwrap();
        assert_eq!(extents.len(), 1);
    }
}
