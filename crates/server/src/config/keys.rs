//! Keys of the daemon's own sections: what `[daemon]` and `[store]` may say.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

const SECOND_NS: u64 = 1_000_000_000;

/// A time from 1 s to 1 h, of so many seconds unless it is said.
const fn seconds(name: &'static str, default: u64, help: &'static str) -> KeyInfo {
    KeyInfo {
        name,
        kind: KeyKind::Duration,
        default: KeyDefault::Value(default * SECOND_NS),
        min: SECOND_NS,
        max: 3_600 * SECOND_NS,
        help,
    }
}

/// Deadline for opening a disk's file.
pub(super) const OPEN_WITHIN: KeyInfo = seconds(
    "open_within",
    30,
    "how long the file of a disk may take to be opened. At the start for each disk, and then the \
     start fails; for a VM that is added for all its disks together, and then it is not added",
);

/// Deadline for an orderly end, below the 90 s after which systemd kills a stopping service.
pub(super) const STOP_WITHIN: KeyInfo = seconds(
    "stop_within",
    60,
    "how long an orderly end may take; then it is cut short, as by a second SIGTERM. Below what \
     the service manager grants (systemd: 90 s)",
);

/// Interval at which learnt state is kept: what is learnt in a minute is soon learnt again.
pub(super) const LEARNT_EVERY: KeyInfo = seconds(
    "learnt_every",
    60,
    "how often what a policy has learnt of its VMs is kept",
);

/// The store's file.
pub(super) const STORE_PATH: KeyInfo = KeyInfo {
    name: "path",
    kind: KeyKind::Path,
    default: KeyDefault::Required(
        "the file that keeps what shall survive a restart: path = \"tidegate.redb\"",
    ),
    min: 0,
    max: 0,
    help: "the file, made where there is none; its directory must exist",
};

/// `[daemon]`
pub(super) const DAEMON: SectionInfo = SectionInfo {
    name: "daemon",
    keys: &[OPEN_WITHIN, STOP_WITHIN],
};

/// `[store]`
pub(super) const STORE: SectionInfo = SectionInfo {
    name: "store",
    keys: &[STORE_PATH, LEARNT_EVERY],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DaemonConfig;

    #[test]
    fn a_section_that_is_left_out_is_one_without_keys() {
        let usual = DaemonConfig::default();
        for (key, time) in [
            (OPEN_WITHIN, usual.open_within),
            (STOP_WITHIN, usual.stop_within),
        ] {
            let default = KeyDefault::Value(time.as_nanos() as u64);
            assert_eq!(key.default, default, "{}", key.name);
        }
    }

    /// `TIDEGATE_BLESS=1` writes the tables anew.
    #[test]
    fn the_documentation_has_the_tables_that_the_reader_reads_by() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        let fresh = [DAEMON, STORE].iter().fold(page.clone(), |page, section| {
            let refilled = section.refill(&page);
            refilled.unwrap_or_else(|| panic!("no markers of [{}]", section.name))
        });
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(path, &fresh).expect("the page can be written");
            return;
        }
        assert_eq!(page, fresh, "write it anew with TIDEGATE_BLESS=1");
    }
}
