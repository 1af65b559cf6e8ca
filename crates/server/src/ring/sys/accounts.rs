//! Users and groups of the host, by the name service switch (NSS).
//!
//! The name service may ask a server over the network and block for long, so that names are looked
//! up when the daemon starts and never afterwards.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::zeroed;

/// Returns the number of a user by its name; `None` if there is none.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    // SAFETY: `passwd` consists of integers and pointers, for which zeroes are valid.
    let mut entry: libc::passwd = unsafe { zeroed() };
    let look = |name: &CStr, strings: &mut [u8]| {
        let mut found = std::ptr::null_mut();
        let (at, len) = (strings.as_mut_ptr().cast(), strings.len());
        // SAFETY: the name ends with a zero; the rest is ours and as long as the call is told.
        let error = unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, at, len, &mut found) };
        (error, (!found.is_null()).then_some(entry.pw_uid))
    };
    account_id(name, look)
}

/// Returns the number of a group by its name; `None` if there is none.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    // SAFETY: `group` consists of integers and pointers, for which zeroes are valid.
    let mut entry: libc::group = unsafe { zeroed() };
    let look = |name: &CStr, strings: &mut [u8]| {
        let mut found = std::ptr::null_mut();
        let (at, len) = (strings.as_mut_ptr().cast(), strings.len());
        // SAFETY: the name ends with a zero; the rest is ours and as long as the call is told.
        let error = unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, at, len, &mut found) };
        (error, (!found.is_null()).then_some(entry.gr_gid))
    };
    account_id(name, look)
}

/// Looks an account up with room for its strings, more each time that it is too little. `look`
/// returns an error number and the account's.
fn account_id(
    name: &str,
    mut look: impl FnMut(&CStr, &mut [u8]) -> (libc::c_int, Option<u32>),
) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let mut strings = vec![0; 4096];
    loop {
        match look(&name, &mut strings) {
            (0, id) => return Ok(id),
            // Some systems say so of a name that is not known.
            (libc::ENOENT | libc::ESRCH, _) => return Ok(None),
            (libc::EINTR, _) => {}
            // A group may have many members.
            (libc::ERANGE, _) if strings.len() < 1 << 20 => strings.resize(2 * strings.len(), 0),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// User as which the kernel shows users of other user namespaces, unless it is configured otherwise
/// (`DEFAULT_OVERFLOWUID`).
const DEFAULT_OVERFLOW_USER: u32 = 65534;

/// Returns the number of the overflow user: the kernel shows a process of a user namespace as this
/// user if the process's own user is not mapped.
pub fn overflow_user() -> u32 {
    // A service may be denied /proc/sys.
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT_OVERFLOW_USER)
}

/// Returns the number of the user that this process acts as.
pub fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
