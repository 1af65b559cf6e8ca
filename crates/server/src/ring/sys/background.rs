//! Process that goes on in the background while the one that has started it waits for its word.

use std::io::{self, PipeReader, PipeWriter};

use super::check;

/// Side of [`fork_detached`] that the calling process is on when it returns.
#[derive(Debug)]
pub enum Side {
    /// Process that has called it. The pipe ends when the other side has closed its end.
    Starter(PipeReader),
    /// New process, in a session of its own. The process that adopts orphans is its parent: init,
    /// or a service manager.
    Background(PipeWriter),
}

/// Duplicates the process; both sides go on from here, with a pipe between them. To be called
/// before the process has a second thread, whose locks the copy would have for ever.
///
/// # Errors
/// If the process has more than one thread, or the system has no room for another process.
pub fn fork_detached() -> io::Result<Side> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "the process has {threads} threads"
        )));
    }
    let (reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread, so the copy owns all that it has.
    let between = unsafe { libc::fork() };
    check(between)?;
    if between > 0 {
        drop(writer);
        let mut status = 0;
        // SAFETY: takes an integer that is ours, and a child that no other code waits for.
        check(unsafe { libc::waitpid(between, &mut status, 0) })?;
        return match status {
            0 => Ok(Side::Starter(reader)),
            _ => Err(io::Error::other(
                "the system has no room for another process",
            )),
        };
    }
    // The process between both sides ends at once, which makes the new one an orphan: a service
    // manager supervises its own children best.
    // SAFETY: as above; `_exit` runs nothing of this process.
    unsafe {
        match libc::fork() {
            0 => libc::setsid(),
            -1 => libc::_exit(1),
            _ => libc::_exit(0),
        }
    };
    Ok(Side::Background(writer))
}
