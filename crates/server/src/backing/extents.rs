//! Which parts of a file are holes, asked on a thread of its own: `lseek` may read metadata.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::ring::{Wake, sys};

/// Most extents in one answer; the client asks again for what follows.
pub const EXTENTS_MAX: usize = 1024;

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

/// A question.
#[derive(Debug)]
pub struct Question {
    /// Comes back with the answer.
    pub token: u64,
    /// A handle to the file.
    pub file: Arc<File>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// One extent is enough.
    pub one: bool,
}

/// Its answer.
#[derive(Debug)]
pub struct Answer {
    /// The question's.
    pub token: u64,
    /// Extents from the question's offset on.
    pub extents: io::Result<Vec<Extent>>,
}

/// The thread that answers. It ends when this is dropped.
#[derive(Debug)]
pub struct Surveyor {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
}

impl Surveyor {
    /// Starts the thread; it wakes the loop with each answer.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(wake: Arc<Wake>) -> io::Result<Surveyor> {
        let (questions, inbox) = channel::<Question>();
        let (outbox, answers) = channel();
        std::thread::Builder::new()
            .name("extents".into())
            .spawn(move || {
                for q in inbox {
                    let extents = survey(&q.file, q.offset, q.len, q.one);
                    if outbox
                        .send(Answer {
                            token: q.token,
                            extents,
                        })
                        .is_err()
                    {
                        return;
                    }
                    wake.wake();
                }
            })?;
        Ok(Surveyor { questions, answers })
    }

    /// Asks.
    pub fn ask(&self, question: Question) {
        self.questions
            .send(question)
            .expect("the thread lives as long as this");
    }

    /// An answer, if there is one.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

/// The extents of a range, alternating between data and holes.
///
/// # Errors
/// When the filesystem does.
pub fn survey(file: &File, offset: u64, len: u32, one: bool) -> io::Result<Vec<Extent>> {
    let end = offset + u64::from(len);
    let most = if one { 1 } else { EXTENTS_MAX };
    let mut extents = Vec::new();
    let mut at = offset;
    while at < end && extents.len() < most {
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
    Ok(extents)
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
        let extents = survey(&file, 0, 4 << 20, false).unwrap();
        let total: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
        assert_eq!(total, 4 << 20);
        let mut at = 0u64;
        for e in &extents {
            let data = at < (1 << 20) + 65536 && at + u64::from(e.len) > 1 << 20;
            assert!(!data || !e.hole, "data at {at} called a hole");
            at += u64::from(e.len);
        }
        assert_eq!(survey(&file, 5, 100, true).unwrap().len(), 1);
    }
}
