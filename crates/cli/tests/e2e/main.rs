//! The daemon as its users meet it: `tidegate serve` on unix sockets and TCP, and clients of other
//! projects.
//!
//! Each test starts a daemon of its own in a directory of its own. A test whose tools are not
//! installed says `skipped: needs ...` and passes; with `CI=true` it fails instead.

mod agent;
mod blocked;
mod control;
mod copies;
mod daemon;
#[cfg(feature = "cluster")]
mod distributed;
mod drift;
mod drills;
mod durability;
#[cfg(feature = "cluster")]
mod exchange;
mod faults;
mod fuse;
mod guest;
mod guest_initramfs;
mod guest_linux;
mod guest_migration;
mod guest_vhost_user;
mod held_writes;
mod hostile_names;
mod hypervisors;
mod listing;
mod media;
mod monitoring;
mod package_scripts;
mod packages;
mod patterns;
mod paused;
mod power;
mod reload;
mod remote_disks;
mod remote_disks_tls;
mod report;
mod resizing;
mod sandbox;
mod schedules;
mod stalls;
mod takeover;
mod takeover_changes;
mod takeover_random;
mod tenants;
mod tls;
mod tls_control;
mod tool;
mod top;
mod transfers;
mod tuning;
mod verify;
mod vhost_user_program;

/// Runs a test function, which takes a [`daemon::Backing`], once on each kind of backing.
macro_rules! on_every_backing {
    ($($name:ident),+ $(,)?) => {
        on_every_backing!(@on memory, Memory, $($name),+);
        on_every_backing!(@on file, File, $($name),+);
        on_every_backing!(@on emulated, Emulated, $($name),+);
    };
    (@on $module:ident, $backing:ident, $($name:ident),+) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    super::$name(crate::daemon::Backing::$backing);
                }
            )+
        }
    };
}
pub(crate) use on_every_backing;
