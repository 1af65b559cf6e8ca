//! Thread without the sandbox beside the thread of a session, which is confined: makes the calls
//! that need a path or a file system.
//!
//! Code that a hypervisor injects into its session can ask for what [`Job`] has, and no more: each
//! job has plain numbers, which are checked here, and the disk is that of the session.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use super::connection::QUEUES_MAX;
use super::inflight::{Layout, open_own};
use super::virtqueue::SIZE_MAX;
use crate::backing::{Activation, Found, OpenError};

/// Job of an assistant, with the channel for its result.
enum Job {
    /// Says whether a descriptor is an eventfd.
    IsEventfd(RawFd, Sender<io::Result<bool>>),
    /// Makes memory for requests in flight: of so many queues, with so many entries each.
    MakeRecord(u16, u16, Sender<Result<File, String>>),
    /// Opens the file of a record of requests in flight anew, by the number of its descriptor.
    OpenRecord(RawFd, Sender<Option<File>>),
    /// Takes the lock of the session's disk.
    Lock(Sender<Result<Found, OpenError>>),
    /// Flushes the session's disk and releases its lock.
    Unlock(Sender<io::Result<()>>),
}

/// Assistant of a session, whose thread ends once all copies of this are dropped and its jobs are
/// done. It does one job at a time, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Assistant {
    jobs: Sender<Job>,
}

impl Assistant {
    /// Starts the thread, beside the session of a disk whose lock is taken and released by
    /// `activation`. To be called before the caller is confined: threads of a confined thread are
    /// confined as well.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(activation: Option<Arc<Activation>>) -> io::Result<Assistant> {
        // Weak, so that the file of a disk is not open for longer than its session.
        let activation = activation.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (jobs, received) = channel::<Job>();
        let thread = std::thread::Builder::new().name("assistant".to_owned());
        let work = move || {
            received
                .into_iter()
                .for_each(|job| job.carry_out(activation.upgrade().as_deref()));
        };
        thread.spawn(work)?;
        Ok(Assistant { jobs })
    }

    /// Returns true if a descriptor is an eventfd.
    ///
    /// # Errors
    /// If the system does not say, or the thread has panicked.
    pub(crate) fn is_eventfd(&self, descriptor: RawFd) -> io::Result<bool> {
        self.run(|reply| Job::IsEventfd(descriptor, reply))?
    }

    /// Makes memory for requests in flight.
    ///
    /// # Errors
    /// A message if there is no such layout, or no memory or descriptor is left.
    pub(super) fn make_record(&self, queues: u16, entries: u16) -> Result<File, String> {
        let made = self.run(|reply| Job::MakeRecord(queues, entries, reply));
        made.map_err(|error| error.to_string())?
    }

    /// Opens the file of a record of requests in flight anew, by the number of its descriptor.
    /// `None` if it is no file in memory, or this process may not open it.
    pub(super) fn open_record(&self, descriptor: RawFd) -> Option<File> {
        let opened = self.run(|reply| Job::OpenRecord(descriptor, reply));
        opened.ok().flatten()
    }

    /// Takes the lock of the disk.
    ///
    /// # Errors
    /// If the thread has panicked, or the disk has no lock that is taken; the inner one is that of
    /// [`Activation::lock`].
    pub(crate) fn lock(&self) -> io::Result<Result<Found, OpenError>> {
        self.run(Job::Lock)
    }

    /// Begins to flush the disk and to release its lock. Returns what receives the result.
    ///
    /// # Errors
    /// If the thread has panicked.
    pub(crate) fn unlock(&self) -> io::Result<Receiver<io::Result<()>>> {
        self.begin(Job::Unlock)
    }

    /// Has a job done and waits for its result.
    fn run<T>(&self, job: impl FnOnce(Sender<T>) -> Job) -> io::Result<T> {
        self.begin(job)?.recv().map_err(|_| not_done())
    }

    fn begin<T>(&self, job: impl FnOnce(Sender<T>) -> Job) -> io::Result<Receiver<T>> {
        let (reply, result) = channel();
        self.jobs.send(job(reply)).map_err(|_| not_done())?;
        Ok(result)
    }
}

fn not_done() -> io::Error {
    io::Error::other("the thread beside the session, which opens files, has not done it")
}

impl Job {
    /// Does the job. Whoever waits for the result may have gone.
    fn carry_out(self, activation: Option<&Activation>) {
        match self {
            Job::IsEventfd(descriptor, reply) => drop(reply.send(is_eventfd(descriptor))),
            Job::MakeRecord(queues, entries, reply) => {
                let layout = record_layout(queues, entries);
                drop(reply.send(layout.and_then(Layout::create)));
            }
            Job::OpenRecord(descriptor, reply) => drop(reply.send(open_own(descriptor))),
            Job::Lock(reply) => {
                if let Some(activation) = activation {
                    drop(reply.send(activation.lock()));
                }
            }
            Job::Unlock(reply) => {
                if let Some(activation) = activation {
                    drop(reply.send(activation.unlock()));
                }
            }
        }
    }
}

/// Returns the layout of a record that a front-end asks for, or brings.
///
/// # Errors
/// A message if no device has so many queues or entries.
pub(super) fn record_layout(queues: u16, entries: u16) -> Result<Layout, String> {
    let queues_fit = (1..=QUEUES_MAX).contains(&usize::from(queues));
    if queues_fit && (1..=SIZE_MAX).contains(&entries) {
        return Ok(Layout::new(queues, entries));
    }
    Err(format!(
        "memory for requests in flight of {queues} queues with {entries} entries: up to \
         {QUEUES_MAX} queues with {SIZE_MAX} entries"
    ))
}

fn is_eventfd(descriptor: RawFd) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}"))?;
    Ok(link.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_records_in_memory_are_opened_anew() {
        let assistant = Assistant::start(None).expect("a thread");
        let record = assistant.make_record(2, 128).expect("memory");
        let opened = assistant.open_record(record.as_raw_fd());
        let [bytes, own] = [&opened.expect("it is in memory"), &record]
            .map(|file| file.metadata().expect("open").len());
        assert_eq!(bytes, own);
        // Injected code would name other descriptors of the process.
        let here = std::env::current_exe().expect("a path");
        let beside = here.parent().expect("a directory");
        let file = tempfile::tempfile_in(beside).expect("writable");
        let null = File::open("/dev/null").expect("there is one");
        let (pipe, _writer) = io::pipe().expect("a pipe");
        for other in [file.as_raw_fd(), null.as_raw_fd(), pipe.as_raw_fd(), -1] {
            assert!(assistant.open_record(other).is_none(), "{other}");
        }
        assert!(!assistant.is_eventfd(file.as_raw_fd()).expect("open"));
        assistant.is_eventfd(-1).expect_err("no descriptor");
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_the_next_job_is_done() {
        let assistant = Assistant::start(None).expect("a thread");
        let most = QUEUES_MAX as u16;
        for (queues, entries) in [(0, 8), (8, 0), (most + 1, 8), (u16::MAX, u16::MAX)] {
            let refused = assistant.make_record(queues, entries);
            refused.expect_err("no such layout");
        }
        // There is no disk.
        assistant.lock().map(drop).expect_err("no lock");
        assistant
            .unlock()
            .expect("begun")
            .recv()
            .expect_err("no lock");
        assistant.make_record(1, 1).expect("memory");
    }
}
