//! Thread without the sandbox beside one that is confined: makes the calls that need a path.

use std::io;
use std::sync::mpsc::{Sender, channel};

type Job = Box<dyn FnOnce() + Send>;

/// Assistant of a confined thread, whose thread ends once all copies of this are dropped and its
/// jobs are done. It does one job at a time, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Assistant {
    jobs: Sender<Job>,
}

impl Assistant {
    /// Starts the thread. To be called before the caller is confined: threads of a confined thread
    /// are confined as well.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start() -> io::Result<Assistant> {
        let (jobs, received) = channel::<Job>();
        let thread = std::thread::Builder::new().name("assistant".to_owned());
        thread.spawn(move || received.into_iter().for_each(|job| job()))?;
        Ok(Assistant { jobs })
    }

    /// Does a job and waits for its result.
    ///
    /// # Errors
    /// If a job has panicked, after which none is done.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (sender, result) = channel();
        // The caller waits for the result below.
        self.begin(move || drop(sender.send(job())))?;
        result.recv().map_err(|_| panicked())
    }

    /// Begins a job.
    ///
    /// # Errors
    /// If a job has panicked, after which none is done.
    pub(crate) fn begin(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.jobs.send(Box::new(job)).map_err(|_| panicked())
    }
}

fn panicked() -> io::Error {
    io::Error::other("the thread that opens files has panicked")
}
