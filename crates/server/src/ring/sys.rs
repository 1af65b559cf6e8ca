//! System calls that the standard library does not wrap, except I/O itself.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

mod accounts;
pub mod background;
mod descriptors;
mod unix_sockets;

pub use accounts::{group_id, overflow_user, own_user, user_id};
pub use descriptors::{
    DESCRIPTORS_MAX, has_ended, is_hung_up, is_writable, peer_process, process,
    receive_descriptors, replace, send_datagram, send_descriptors, send_some, wait_for_either,
};
pub use unix_sockets::{is_listened_on, open_reference, peer_groups};

/// Idle time after which the kernel sends keepalive probes on a TCP connection (`TCP_KEEPIDLE`).
pub const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between two keepalive probes (`TCP_KEEPINTVL`).
pub const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Time without an acknowledgement of data or probes after which the kernel ends a TCP connection
/// (`TCP_USER_TIMEOUT`). Longer than guests are usually paused: Linux also counts a client that
/// does not read, whose window is closed, as not acknowledging.
pub const TCP_GIVEN_UP_AFTER: Duration = Duration::from_secs(15 * 60);
// A connection is not ended before it was probed.
const _: () = assert!(
    TCP_KEEPALIVE_IDLE.as_secs() + TCP_KEEPALIVE_INTERVAL.as_secs() < TCP_GIVEN_UP_AFTER.as_secs()
);
/// Length of a listening socket's accept queue; `net.core.somaxconn` may lower it.
const BACKLOG: libc::c_int = 4096;

/// Magic number of the tmpfs file system (`TMPFS_MAGIC`).
pub const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Length in bytes of the longest extended attribute that is read; those of the daemon are numbers
/// and short words.
const ATTRIBUTE_MAX: usize = 64;

/// Alignment in bytes that direct I/O needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlign {
    /// Alignment of addresses in memory.
    pub memory: u32,
    /// Alignment of offsets and lengths in the file.
    pub offset: u32,
}

/// Returns the alignment that direct I/O on this file needs by `statx(2)`; zeroes if the file does
/// not support direct I/O, `None` if the kernel does not tell.
pub fn direct_align(file: &File) -> Option<DirectAlign> {
    // SAFETY: `statx` consists of integers, for which zeroes are valid.
    let mut stat: libc::statx = unsafe { zeroed() };
    // SAFETY: the path is an empty C string, `stat` is ours and of the type the call fills.
    let failed = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut stat,
        )
    };
    if failed != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    Some(DirectAlign {
        memory: stat.stx_dio_mem_align,
        offset: stat.stx_dio_offset_align,
    })
}

/// Returns the magic number of the file system that a file is on (`f_type` of `statfs(2)`).
pub fn filesystem(file: &File) -> io::Result<i64> {
    // SAFETY: `statfs` consists of integers, for which zeroes are valid.
    let mut stat: libc::statfs = unsafe { zeroed() };
    // SAFETY: `stat` is ours and of the type the call fills.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) })?;
    Ok(stat.f_type as i64)
}

/// Identity of a file: whether it is a block device, then device and inode numbers, or the number
/// of the block device and 0. Two paths lead to the same file if their identities are equal.
pub fn identity(meta: &Metadata) -> (bool, u64, u64) {
    if meta.file_type().is_block_device() {
        (true, meta.rdev(), 0)
    } else {
        (false, meta.dev(), meta.ino())
    }
}

/// Returns true if an open file was opened for reading and writing.
pub fn is_read_and_written(number: RawFd) -> bool {
    // SAFETY: takes no memory; a number without a file is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDWR
}

/// Clears `O_NONBLOCK` on an open file, because io_uring would fail I/O that has to wait with
/// `EAGAIN`.
pub fn clear_nonblocking(file: &File) -> io::Result<()> {
    put_nonblocking(file, false)
}

/// Sets `O_NONBLOCK` on an open file, so that I/O that would have to wait fails with `EAGAIN`.
pub fn set_nonblocking(file: &File) -> io::Result<()> {
    put_nonblocking(file, true)
}

/// Sets or clears the flag by a call that changes no other, whatever process has set those.
fn put_nonblocking(file: &File, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: reads an integer of ours; the descriptor is open because it is borrowed.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONBIO, &on) })
}

/// Locks an open file until it is closed (`F_OFD_SETLK`). Returns false if another open file holds
/// a conflicting lock.
pub fn lock(file: &File, exclusive: bool) -> io::Result<bool> {
    // SAFETY: `flock` consists of integers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = if exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    } as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    // SAFETY: the command takes a pointer to a `flock`, which is ours.
    let result = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) });
    match result {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Releases the lock of an open file even if another user still has the file open, such as a ring
/// that the kernel is freeing.
pub fn unlock(file: &File) {
    // SAFETY: `flock` consists of integers, for which zeroes are valid.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = libc::F_UNLCK as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    // SAFETY: the command takes a pointer to a `flock`, which is ours.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
}

/// Makes a file of `len` zeroes in memory, whose length cannot be changed by anybody
/// (`memfd_create(2)` with seals).
pub fn sealed_memory_file(name: &CStr, len: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    check(fd)?;
    // SAFETY: a descriptor that was just made has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len)?;
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: takes no memory; the descriptor is open because it is owned.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Makes what was written to an open file durable. May block for as long as its file system does
/// not answer.
pub fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(test)]
    super::faults::before_flush(file)?;
    file.sync_data()
}

/// Forgets what the kernel has cached of an open file or block device, so that the next read asks
/// the storage. Nothing may be waiting to be written.
pub fn drop_caches(file: &File) -> io::Result<()> {
    const BLKFLSBUF: libc::c_ulong = 0x1261;
    let is_block_device = file.metadata()?.file_type().is_block_device();
    // SAFETY: the request takes no memory.
    let flush = || check(unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF as _, 0) });
    drop_caches_by(file, is_block_device.then_some(flush))
}

/// Forgets what is cached of a file, by a `flush` of a block device's buffers where that is
/// permitted.
fn drop_caches_by(file: &File, flush: Option<impl FnOnce() -> io::Result<()>>) -> io::Result<()> {
    match flush.map(|flush| flush()) {
        // Without CAP_SYS_ADMIN, only pages that need not be written can be dropped.
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Some(flushed) => return flushed,
        None => {}
    }
    // SAFETY: takes no memory.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Returns the size of a block device in bytes.
pub fn block_device_size(file: &File) -> io::Result<u64> {
    const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
    let mut size = 0u64;
    // SAFETY: the request writes a 64-bit count to the pointer, which is ours.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64 as _, &mut size) })?;
    Ok(size)
}

/// Returns the logical block size of a block device in bytes.
pub fn block_device_block(file: &File) -> io::Result<u32> {
    const BLKSSZGET: libc::c_ulong = 0x1268;
    let mut size: libc::c_int = 0;
    // SAFETY: the request writes an int to the pointer, which is ours.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET as _, &mut size) })?;
    Ok(size as u32)
}

/// Returns the address in bytes of a file's first extent on its device, by `FIEMAP`; `None` if the
/// file system does not tell or has not decided.
pub fn first_extent(file: &File) -> Option<u64> {
    const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
    /// `FIEMAP_EXTENT_UNKNOWN`: the location is unknown.
    const EXTENT_UNKNOWN: u32 = 0x2;
    /// `FIEMAP_EXTENT_DELALLOC`: the location is not decided.
    const EXTENT_DELAYED: u32 = 0x4;
    /// `FIEMAP_EXTENT_DATA_INLINE`: the data is not block-aligned.
    const EXTENT_INLINE: u32 = 0x200;
    const UNUSABLE_EXTENT_FLAGS: u32 = EXTENT_UNKNOWN | EXTENT_DELAYED | EXTENT_INLINE;
    #[repr(C)]
    #[derive(Default)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        count: u32,
        reserved: u32,
        logical: u64,
        physical: u64,
        extent_length: u64,
        reserved64: [u64; 2],
        extent_flags: u32,
        reserved32: [u32; 3],
    }
    let mut map = Fiemap {
        length: u64::MAX,
        count: 1,
        ..Fiemap::default()
    };
    // SAFETY: the request fills one `fiemap` followed by as many extents as `count` says: one,
    // for which the structure has room.
    check(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &mut map) }).ok()?;
    (map.mapped == 1 && map.extent_flags & UNUSABLE_EXTENT_FLAGS == 0).then_some(map.physical)
}

/// Calls `fallocate(2)` synchronously.
pub fn allocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: takes no memory.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) })
}

/// Drops the clean pages of a file from the page cache, so that the next read gets the disk's
/// content.
pub fn drop_cached(file: &File) -> io::Result<()> {
    // SAFETY: takes no memory.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the offset of the first byte of data at or after `offset`, or of the first byte in a
/// hole if `hole` is true; `None` at or past the end of the file.
pub fn seek(file: &File, offset: u64, hole: bool) -> io::Result<Option<u64>> {
    let whence = if hole {
        libc::SEEK_HOLE
    } else {
        libc::SEEK_DATA
    };
    // SAFETY: takes no memory. It moves the file's own position, which no I/O uses.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
    if at >= 0 {
        return Ok(Some(at as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) {
        Ok(None)
    } else {
        Err(error)
    }
}

/// Returns the value of an extended attribute; `None` if there is none, the file system does not
/// support attributes, or the value is longer than 64 bytes.
pub fn extended_attribute(file: &File, name: &CStr) -> Option<Vec<u8>> {
    let mut value = [0u8; ATTRIBUTE_MAX];
    // SAFETY: `name` is a C string; the value buffer is ours and its length is given.
    let n = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    (n >= 0).then(|| value[..n as usize].to_vec())
}

/// Removes an extended attribute.
///
/// # Errors
/// If there is none, the file system has no attributes, or the file is read-only.
pub fn remove_extended_attribute(file: &File, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is a C string, and the call takes no other memory.
    check(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) })
}

/// Checks that this process may write to a file, without opening the file.
///
/// # Errors
/// The error of `faccessat(2)`, or an error for a path with a zero byte.
pub fn may_write(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string of ours.
    check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) })
}

/// Returns the physical memory of the host in bytes; `u64::MAX` if it is not known.
pub fn host_memory() -> u64 {
    // SAFETY: both calls take and return integers.
    let [pages, page] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    // `sysconf` returns -1 if it does not know; no disk is then taken to be too large.
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => u64::MAX,
    }
}

/// Sets an extended attribute.
pub fn set_extended_attribute(file: &File, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: `name` is a C string; the value is borrowed for the call and its length is given.
    check(unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    })
}

/// Makes the kernel detect and end TCP connections whose peer vanished, with keepalive probes and a
/// limit on unacknowledged data, which is longer than the first probe takes.
pub fn keep_tcp_alive(socket: BorrowedFd<'_>, given_up_after: Duration) -> io::Result<()> {
    let seconds = |time: Duration| time.as_secs() as libc::c_int;
    let milliseconds = |time: Duration| time.as_millis() as libc::c_int;
    // As many as fit the limit, which then decides when the connection ends.
    let probes = given_up_after.as_secs() / TCP_KEEPALIVE_INTERVAL.as_secs();
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (
            libc::IPPROTO_TCP,
            libc::TCP_KEEPIDLE,
            seconds(TCP_KEEPALIVE_IDLE),
        ),
        (
            libc::IPPROTO_TCP,
            libc::TCP_KEEPINTVL,
            seconds(TCP_KEEPALIVE_INTERVAL),
        ),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes as libc::c_int),
        (
            libc::IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            milliseconds(given_up_after),
        ),
    ];
    for (level, name, value) in options {
        let value: libc::c_int = value;
        let pointer = std::ptr::from_ref(&value).cast();
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: each of these options takes an integer; `pointer` and `len` describe `value`,
        // which outlives the call.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, len) })?;
    }
    Ok(())
}

/// Lengthens the accept queue of a listening socket from the standard library's 128 to 4096,
/// so that a burst of clients finds room.
pub fn lengthen_backlog(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no memory; on a socket that listens it only changes the length of the queue.
    check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) })
}

/// Fills bytes from the kernel's random number generator, which is fit for secrets.
///
/// # Errors
/// The error of `getrandom(2)`.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is ours and as long as the call is told.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => filled += n,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// Waits for bytes of a socket and copies them without taking them. Returns their number, which is
/// 0 at the end of the stream.
pub fn peek(socket: &UnixStream, to: &mut [u8]) -> io::Result<usize> {
    loop {
        let (fd, flags) = (socket.as_raw_fd(), libc::MSG_PEEK);
        // SAFETY: `to` is ours and as long as the call is told.
        let n = unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) };
        match usize::try_from(n) {
            Ok(n) => return Ok(n),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Sends bytes by a socket if it has room for all of them, whatever mode it is in, and fails with
/// `EAGAIN` otherwise. A stream may take a part only of more bytes than one buffer holds.
pub fn send_now(socket: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: `bytes` are borrowed and as many as the call is told.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Raises the soft limit on open files to the hard limit, and returns the limit in force.
pub fn raise_open_files() -> u32 {
    // SAFETY: `rlimit` consists of integers, for which zeroes are valid.
    let mut limit: libc::rlimit = unsafe { zeroed() };
    // SAFETY: both calls get a pointer to a `rlimit` that is ours.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max
        {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
    }
    // At least 64, should the call fail or the limit be useless; an unlimited number fits 32 bits.
    limit.rlim_cur.clamp(64, u64::from(u32::MAX)) as u32
}

/// Returns true if the kernel's clock is synchronised; `None` if the kernel does not tell.
pub fn clock_is_synchronised() -> Option<bool> {
    // SAFETY: `timex` consists of integers, for which zeroes are valid; no modes: nothing is set.
    let mut clock: libc::timex = unsafe { zeroed() };
    // SAFETY: the pointer is to a `timex` that is ours.
    let state = unsafe { libc::adjtimex(&mut clock) };
    (state >= 0).then_some(state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0)
}

/// Ignores `SIGXFSZ`, so that writes past the system's maximum file size fail with `EFBIG` instead
/// of ending the process. A guest can cause such writes.
pub fn survive_file_size_limits() {
    // SAFETY: ignoring a signal installs no handler, and takes no memory of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sets the timer slack of the calling thread to 1 ns, so that its timers fire when they are due
/// and not up to 50 µs later.
pub fn precise_timers() {
    // SAFETY: takes no memory; concerns only the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Lowers the priority of the calling thread below that of others, as `nice` does: on Linux it is a
/// thread's own.
pub fn lower_priority() {
    // SAFETY: takes no memory; concerns only the calling thread. A refusal leaves the priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// Lowers the process to idle priority: it gets CPU time and disk time that others leave.
pub fn lower_process() {
    // Constants of `linux/ioprio.h`: the idle class, in the upper bits. It is set for the calling
    // thread, and later threads inherit it.
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_IDLE: libc::c_int = 3 << 13;
    // The kernel's `struct sched_param`; musl's has more, and its function sets nothing.
    let no_priority: libc::c_int = 0;
    // SAFETY: the calls take the parameters, which are ours, and else no memory. A refusal leaves
    // the priority as it was.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        let set = libc::SYS_sched_setscheduler;
        libc::syscall(set, 0, libc::SCHED_IDLE, &raw const no_priority);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
    }
}

/// Bounds the process for good: its address space in bytes, CPU time and time by the clock in
/// seconds. It can write no file and leaves no core dump; beyond a bound of time a signal ends it,
/// and beyond that of memory an allocation fails.
///
/// # Errors
/// If the system refuses a limit.
pub fn limit_process(memory: u64, cpu_s: u64, time_s: u64) -> io::Result<()> {
    let limits = [
        (libc::RLIMIT_AS, memory, memory),
        // SIGXCPU at the first, SIGKILL at the second.
        (libc::RLIMIT_CPU, cpu_s, cpu_s + 5),
        (libc::RLIMIT_CORE, 0, 0),
        (libc::RLIMIT_FSIZE, 0, 0),
    ];
    for (resource, soft, hard) in limits {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: both calls get a pointer to a `rlimit` that is ours.
        unsafe {
            check(libc::getrlimit(resource, &mut limit))?;
            // The daemon may have been started with a lower limit, which cannot be raised.
            limit.rlim_max = limit.rlim_max.min(hard);
            limit.rlim_cur = limit.rlim_max.min(soft);
            check(libc::setrlimit(resource, &limit))?;
        }
    }
    // SAFETY: takes no memory.
    unsafe { libc::alarm(u32::try_from(time_s).unwrap_or(u32::MAX)) };
    Ok(())
}

/// Returns freed heap memory to the system that the allocator would keep. Walks the whole heap
/// while threads that allocate wait, so an event loop must not call it.
pub fn trim_heap() {
    // SAFETY: takes nothing but how much to leave; it may be called at any time, by any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Unix stream socket that the process was started with.
#[derive(Debug)]
pub enum Inherited {
    /// Socket that listens.
    Listening(OwnedFd),
    /// Socket that is connected.
    Connected(OwnedFd),
}

/// Takes over an inherited descriptor, which must be a unix stream socket. The caller vouches that
/// the process was started with it, so that no part of the process owns it. Another number refers
/// to the socket from then on; the old one is closed, but the standard streams lead to `/dev/null`.
///
/// # Errors
/// `EBADF` if it is not open, `ENOTSOCK` or `EPROTOTYPE` if it is something else, and `ENOTCONN` if
/// the socket neither listens nor is connected.
pub fn inherited_socket(number: RawFd) -> io::Result<Inherited> {
    let socket = copy_inherited(number)?;
    if socket_option(&socket, libc::SO_DOMAIN)? != libc::AF_UNIX {
        return Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
    }
    if socket_option(&socket, libc::SO_ACCEPTCONN)? != 0 {
        close_inherited(number)?;
        return Ok(Inherited::Listening(socket));
    }
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.peer_addr()?;
    close_inherited(number)?;
    Ok(Inherited::Connected(stream.into()))
}

/// Takes over an inherited descriptor, as [`inherited_socket`] does, of a stream socket of any
/// family that listens.
///
/// # Errors
/// `EBADF` if it is not open, `ENOTSOCK` or `EPROTOTYPE` if it is something else, and `EINVAL` if
/// the socket does not listen.
pub fn inherited_listener(number: RawFd) -> io::Result<OwnedFd> {
    let socket = copy_inherited(number)?;
    if socket_option(&socket, libc::SO_ACCEPTCONN)? == 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    close_inherited(number)?;
    Ok(socket)
}

/// Returns another descriptor of an inherited stream socket.
fn copy_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no memory, and changes nothing of a descriptor that may be another's.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    check(copy)?;
    // SAFETY: the call has just opened it, for nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(copy) };
    if socket_option(&socket, libc::SO_TYPE)? != libc::SOCK_STREAM {
        return Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
    }
    Ok(socket)
}

/// Returns an option of a socket that is an integer.
fn socket_option(socket: &OwnedFd, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let pointer = std::ptr::from_mut(&mut value).cast();
    let fd = socket.as_raw_fd();
    // SAFETY: the option writes an integer to the pointer, which is ours.
    let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, pointer, &mut len) };
    check(got).map(|()| value)
}

/// Closes a descriptor that no part of the process owns.
fn close_inherited(number: RawFd) -> io::Result<()> {
    if number <= libc::STDERR_FILENO {
        // A file that is opened later must not become a standard stream.
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // SAFETY: takes no memory; nobody owns the descriptor that is replaced.
        return check(unsafe { libc::dup2(null.as_raw_fd(), number) });
    }
    // SAFETY: nobody owns the descriptor.
    check(unsafe { libc::close(number) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

const _: () = assert!(size_of::<libc::c_int>() == 4);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn caches_of_a_block_device_are_dropped_without_the_right_to_flush_its_buffers() {
        let file = tempfile::tempfile().expect("a file");
        for errno in [libc::EACCES, libc::EPERM] {
            let refused = || Err(io::Error::from_raw_os_error(errno));
            drop_caches_by(&file, Some(refused)).expect("its clean pages are dropped instead");
        }
        let broken = || Err(io::Error::from_raw_os_error(libc::EIO));
        let error = drop_caches_by(&file, Some(broken)).expect_err("the device is broken");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn a_tcp_client_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let _client = TcpStream::connect(address).expect("a listener");
        let (accepted, _) = listener.accept().expect("a client");
        keep_tcp_alive(accepted.as_fd(), TCP_GIVEN_UP_AFTER).expect("all options are known");
        let option = |level, name| {
            let mut value: libc::c_int = 0;
            let mut len = size_of::<libc::c_int>() as libc::socklen_t;
            let pointer = std::ptr::from_mut(&mut value).cast();
            // SAFETY: the option writes an integer to the pointer, which is ours.
            let got =
                unsafe { libc::getsockopt(accepted.as_raw_fd(), level, name, pointer, &mut len) };
            check(got).map(|()| value).expect("the option is known")
        };
        let tcp = |name| option(libc::IPPROTO_TCP, name);
        assert_eq!(option(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(
            (tcp(libc::TCP_KEEPIDLE), tcp(libc::TCP_KEEPINTVL)),
            (60, 15)
        );
        assert_eq!(
            (tcp(libc::TCP_KEEPCNT), tcp(libc::TCP_USER_TIMEOUT)),
            (60, 900_000)
        );
    }
}
