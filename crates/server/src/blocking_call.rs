//! System calls that may block for ever, under a time-out.
//!
//! `open`, `stat` and the like do not return while the file system below them does not answer: a
//! dead network server, a FUSE process that is stopped. Signals do not interrupt them. Each such
//! call is therefore made on a thread of its own. At the time-out the thread is abandoned: the
//! caller goes on, and a later result is dropped.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// Maximum number of abandoned threads at a time; each holds a stack and the kernel resources of
/// its call.
const ABANDONED_MAX: usize = 64;

/// Number of abandoned threads whose call has not returned yet.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// Reason why a bounded call has no result.
#[derive(Debug)]
pub enum NotDone {
    /// The call did not return within this time; its thread was abandoned.
    Late(Duration),
    /// The call was not made, because too many abandoned ones have not returned.
    TooMany,
    /// The thread could not be started.
    NoThread(io::Error),
    /// The call panicked: a bug.
    Panicked,
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDone::Late(limit) => write!(
                f,
                "no answer from the kernel in {} s; given up",
                limit.as_secs_f64()
            ),
            NotDone::TooMany => write!(
                f,
                "not tried: {ABANDONED_MAX} earlier calls on files still wait for an answer from \
                 the kernel"
            ),
            NotDone::NoThread(error) => write!(f, "cannot start a thread for it: {error}"),
            NotDone::Panicked => write!(f, "it panicked: this is a bug"),
        }
    }
}

impl std::error::Error for NotDone {}

/// Flag shared by the two ends of one call. The end that sets it first decides: the thread by
/// returning, or the waiter by giving up.
#[derive(Clone, Default)]
struct Settled(Arc<AtomicBool>);

impl Settled {
    /// Sets the flag; returns true to the end that was first.
    fn first(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Gives up waiting. Returns false if the thread has just returned.
    fn abandon(&self) -> bool {
        // Counted before the flag is set: otherwise a thread that returns in between would subtract
        // first, and the counter would wrap.
        ABANDONED.fetch_add(1, Ordering::Relaxed);
        let abandoned = self.first();
        if !abandoned {
            ABANDONED.fetch_sub(1, Ordering::Relaxed);
        }
        abandoned
    }

    fn returned(&self) {
        if !self.first() {
            let waiting = ABANDONED.fetch_sub(1, Ordering::Relaxed);
            // A count that wraps would refuse every later call on a file.
            assert!(waiting > 0, "a call returns that was not counted as late");
        }
    }
}

/// Starts `act` on a thread of its own, which passes the result to `deliver`.
fn begin<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
    deliver: impl FnOnce(Result<T, NotDone>) + Send + 'static,
) -> Result<Settled, NotDone> {
    if ABANDONED.load(Ordering::Relaxed) >= ABANDONED_MAX {
        return Err(NotDone::TooMany);
    }
    let settled = Settled::default();
    let own = settled.clone();
    std::thread::Builder::new()
        .name("file call".to_owned())
        .spawn(move || {
            // A panic must reach the waiter as an error, not leave it waiting.
            let result = catch_unwind(AssertUnwindSafe(act)).map_err(|_| NotDone::Panicked);
            deliver(result);
            own.returned();
        })
        .map_err(NotDone::NoThread)?;
    Ok(settled)
}

/// Makes a call that may block, and waits at most `limit` for its result. A later result is
/// dropped.
///
/// # Errors
/// If the call did not return in time, could not be started, or panicked.
pub(crate) fn call<T: Send + 'static>(
    limit: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotDone> {
    // Room for the result, so that the thread ends even if it is late.
    let (sender, receiver) = mpsc::sync_channel(1);
    let settled = begin(act, move |result| drop(sender.send(result)))?;
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(_) if settled.abandon() => Err(NotDone::Late(limit)),
        // The thread returned just before the flag was set, so its result is in the channel.
        Err(_) => receiver.recv().unwrap_or(Err(NotDone::Panicked)),
    }
}

/// Asynchronous form of [`call`], for a task that must not block.
///
/// # Errors
/// If the call did not return in time, could not be started, or panicked.
pub(crate) async fn call_async<T: Send + 'static>(
    limit: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotDone> {
    let (sender, mut receiver) = oneshot::channel();
    let settled = begin(act, move |result| drop(sender.send(result)))?;
    match tokio::time::timeout(limit, &mut receiver).await {
        Ok(result) => result.unwrap_or(Err(NotDone::Panicked)),
        Err(_) if settled.abandon() => Err(NotDone::Late(limit)),
        Err(_) => receiver.await.unwrap_or(Err(NotDone::Panicked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP_TIMEOUT: Duration = Duration::from_secs(30);

    fn wait_until(condition: impl Fn() -> bool) {
        let until = std::time::Instant::now() + STEP_TIMEOUT;
        while !condition() {
            assert!(std::time::Instant::now() < until, "waited in vain");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_late_is_given_up_and_dropped_when_it_returns() {
        struct Held(Arc<AtomicBool>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let dropped = Arc::new(AtomicBool::new(false));
        let held = Held(dropped.clone());
        let (go_on, wait) = mpsc::channel::<()>();
        let late = call(Duration::from_millis(1), move || {
            let _ = wait.recv();
            held
        });
        assert!(matches!(late, Err(NotDone::Late(_))));
        assert!(!dropped.load(Ordering::Acquire), "it has not returned yet");
        go_on.send(()).unwrap();
        wait_until(|| dropped.load(Ordering::Acquire));
        assert_eq!(call(STEP_TIMEOUT, || 7).unwrap(), 7);
    }

    #[tokio::test]
    async fn a_task_goes_on_beside_a_call_that_blocks() {
        let (go_on, wait) = mpsc::channel::<()>();
        let late = call_async(Duration::from_millis(1), move || wait.recv().is_ok()).await;
        assert!(matches!(late, Err(NotDone::Late(_))));
        drop(go_on);
        assert_eq!(call_async(STEP_TIMEOUT, || 7).await.unwrap(), 7);
        let panicked = call_async(STEP_TIMEOUT, || panic!("as told")).await;
        assert!(matches!(panicked, Err::<(), _>(NotDone::Panicked)));
    }
}
