//! Errors of a disk's backing: logged at most once a minute, and remembered once later writes can
//! no longer be called durable.

use std::io;
use std::time::{Duration, Instant};

/// Minimum time between two log lines about errors of a disk.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a change that found no space is reported: whoever watches the daemon's health
/// should see it, although the guest may have stopped to write because of it.
const NO_SPACE_REPORTED: Duration = Duration::from_secs(600);

/// Error state of a disk's backing.
#[derive(Clone, Debug)]
pub struct ErrorState {
    /// Reason why all writes and flushes fail from now on; `None` while they do not.
    pub failed: Option<String>,
    /// Time at which an error was last logged, and number of errors since.
    logged: Option<(Instant, u64)>,
    /// Last time at which a change found no space.
    no_space: Option<(Instant, i32)>,
    /// Path or address, for the log.
    name: String,
}

impl ErrorState {
    /// Creates the state of a backing without errors.
    pub fn new(name: String) -> ErrorState {
        ErrorState {
            failed: None,
            logged: None,
            no_space: None,
            name,
        }
    }

    /// Makes all changes of the disk fail from now on until it is opened again. `what` is the
    /// operation that failed with `errno`.
    pub fn fail(&mut self, errno: i32, what: &str) {
        let error = io::Error::from_raw_os_error(errno);
        self.fail_with(format!("{what} failed: {error}"));
    }

    /// Makes all changes of the disk fail as [`ErrorState::fail`] does, for a reason in words. The
    /// first reason stays.
    pub fn fail_with(&mut self, why: String) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!(
            path = %self.name,
            "{why}; the disk refuses writes and flushes until it is opened again"
        );
        self.failed = Some(why);
    }

    /// Logs an error of an I/O, at most one a minute, because a guest can cause any number of them.
    pub fn warn(&mut self, errno: i32, what: &str) {
        let now = Instant::now();
        if matches!(errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG) {
            self.no_space = Some((now, errno));
        }
        let suppressed = match &mut self.logged {
            Some((last, suppressed)) if now.duration_since(*last) < LOG_INTERVAL => {
                *suppressed += 1;
                return;
            }
            Some((_, suppressed)) => *suppressed,
            None => 0,
        };
        self.logged = Some((now, 0));
        let error = io::Error::from_raw_os_error(errno);
        let more = match suppressed {
            0 => String::new(),
            n => format!(" ({n} more since the last message)"),
        };
        tracing::warn!(
            path = %self.name,
            "{what} failed: {error}{more}; its guest gets an error"
        );
    }

    /// Returns why a change of the last ten minutes found no space; `None` if all did.
    pub fn no_space(&self) -> Option<String> {
        self.no_space_at(Instant::now())
    }

    fn no_space_at(&self, now: Instant) -> Option<String> {
        let (at, errno) = self.no_space?;
        let since = now.duration_since(at);
        if since >= NO_SPACE_REPORTED {
            return None;
        }
        let error = io::Error::from_raw_os_error(errno);
        let seconds = since.as_secs();
        Some(format!("a change found no space {seconds} s ago: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_without_space_is_reported_for_ten_minutes() {
        let mut errors = ErrorState::new("test".to_owned());
        errors.warn(libc::EIO, "read");
        assert_eq!(errors.no_space(), None);
        // Within the minute in which nothing more is logged.
        errors.warn(libc::EDQUOT, "write");
        let (at, _) = errors.no_space.expect("seen");
        let after = |seconds| errors.no_space_at(at + Duration::from_secs(seconds));
        let text = after(599).expect("reported");
        assert!(
            text.starts_with("a change found no space 599 s ago: "),
            "{text}"
        );
        assert_eq!(after(600), None);
    }

    #[test]
    fn errors_are_logged_once_a_minute() {
        let mut errors = ErrorState::new("test".to_owned());
        errors.warn(libc::EIO, "read");
        errors.warn(libc::ENOSPC, "write");
        errors.warn(libc::EIO, "read");
        assert!(matches!(errors.logged, Some((_, 2))));
    }
}
