//! Groups: VMs that share one weight, such as the servers of one file system.

use super::Objective;
use core::{fmt, str::FromStr};

/// Group that a VM belongs to. If its VMs state different weights, the largest applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Name of the group; VMs with an equal name belong together.
    pub name: GroupName,
    /// Weight of the group among VMs and other groups: 1 to [`Objective::MAX_WEIGHT`]. Its VMs that
    /// have requests divide the group's share by their own weights.
    pub weight: u32,
}

impl Group {
    /// Creates a group with the default weight.
    pub const fn named(name: GroupName) -> Group {
        Group {
            name,
            weight: Objective::DEFAULT_WEIGHT,
        }
    }
}

/// Name of a group: 1 to [`GroupName::MAX_LEN`] bytes of UTF-8, stored in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    bytes: [u8; GroupName::MAX_LEN],
    len: u8,
}

impl GroupName {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 31;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len.into()])
            .expect("a name is only built from a str")
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl FromStr for GroupName {
    /// The text is empty or longer than [`GroupName::MAX_LEN`] bytes.
    type Err = ();

    fn from_str(text: &str) -> Result<GroupName, ()> {
        if !(1..=GroupName::MAX_LEN).contains(&text.len()) {
            return Err(());
        }
        let mut bytes = [0; GroupName::MAX_LEN];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        // Fits: the maximum was checked above.
        let len = text.len() as u8;
        Ok(GroupName { bytes, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_1_to_31_bytes_are_accepted() {
        for text in ["q", "chunk servers", "Größe", &"n".repeat(31)] {
            let name: GroupName = text.parse().expect("short");
            assert_eq!(
                (name.to_string(), format!("{name:?}")),
                (text.to_owned(), format!("{text:?}"))
            );
        }
        for text in ["", &"n".repeat(32)] {
            assert_eq!(text.parse::<GroupName>(), Err(()));
        }
    }
}
