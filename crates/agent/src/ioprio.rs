//! I/O priorities of Linux threads: `ioprio_get(2)`, `ioprio_set(2)`.

use std::fmt;
use std::io;

use tidegate_core::transfers::Class;

/// I/O priority class and level, encoded as in the kernel (`linux/ioprio.h`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct IoPriority(u16);

/// `IOPRIO_CLASS_SHIFT`: position of the class in the value.
const CLASS_SHIFT: u16 = 13;
/// `IOPRIO_CLASS_RT`, `IOPRIO_CLASS_BE` and `IOPRIO_CLASS_IDLE`: classes in the value; 0 is none.
const CLASS_REAL_TIME: u16 = 1;
const CLASS_BEST_EFFORT: u16 = 2;
const CLASS_IDLE: u16 = 3;
/// `IOPRIO_WHO_PROCESS`: the system call addresses one thread.
const WHO_PROCESS: libc::c_int = 1;
/// Level within a class: the middle one of 0 to 7, and the kernel's default.
const LEVEL: u16 = 4;

impl IoPriority {
    /// Priority of a thread for which none was set: best effort, at a level derived from its
    /// niceness.
    pub const NONE: IoPriority = IoPriority(0);

    /// Priority at the middle level of a class; the idle class has no levels.
    pub const fn for_class(class: Class) -> IoPriority {
        match class {
            Class::RealTime => IoPriority(CLASS_REAL_TIME << CLASS_SHIFT | LEVEL),
            Class::BestEffort => IoPriority(CLASS_BEST_EFFORT << CLASS_SHIFT | LEVEL),
            Class::Idle => IoPriority(CLASS_IDLE << CLASS_SHIFT),
        }
    }

    /// Reads the priority of a thread.
    ///
    /// # Errors
    /// The thread does not exist or may not be read.
    pub fn get(thread: u32) -> io::Result<IoPriority> {
        // SAFETY: the call takes numbers only and touches no memory of this process.
        let found =
            unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, thread as libc::c_int) };
        match u16::try_from(found) {
            Ok(priority) => Ok(IoPriority(priority)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Sets the priority of a thread.
    ///
    /// # Errors
    /// The thread does not exist, belongs to another user, or the real-time class requires
    /// `CAP_SYS_NICE`.
    pub fn set(self, thread: u32) -> io::Result<()> {
        let (thread, priority) = (thread as libc::c_int, libc::c_int::from(self.0));
        // SAFETY: the call takes numbers only and touches no memory of this process.
        match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, thread, priority) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Display for IoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.0 & ((1 << CLASS_SHIFT) - 1);
        match self.0 >> CLASS_SHIFT {
            0 => f.write_str("none"),
            CLASS_REAL_TIME => write!(f, "realtime {level}"),
            CLASS_BEST_EFFORT => write!(f, "best-effort {level}"),
            CLASS_IDLE => f.write_str("idle"),
            class => write!(f, "class {class}, {level}"),
        }
    }
}
