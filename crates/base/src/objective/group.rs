//! Groups: VMs that share one weight between them, such as the servers of one file system.

use super::Objective;
use core::{fmt, str::FromStr};

/// A group, as each of its VMs names it. Where they differ in its weight, the largest counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// VMs that name the same one are in it together.
    pub name: GroupName,
    /// Its share, like a VM's: 1 to [`Objective::MAX_WEIGHT`]. Those of its VMs that want
    /// something divide it by their own weights.
    pub weight: u32,
}

impl Group {
    /// With the weight of a VM that names none.
    pub const fn named(name: GroupName) -> Group {
        Group {
            name,
            weight: Objective::DEFAULT_WEIGHT,
        }
    }
}

/// The name of a group: 1 to [`GroupName::LONGEST`] bytes of text, where it is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    bytes: [u8; GroupName::LONGEST],
    len: u8,
}

impl GroupName {
    /// In bytes.
    pub const LONGEST: usize = 31;

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len.into()]).expect("it was made of text")
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
    type Err = ();

    fn from_str(text: &str) -> Result<GroupName, ()> {
        if !(1..=GroupName::LONGEST).contains(&text.len()) {
            return Err(());
        }
        let mut bytes = [0; GroupName::LONGEST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let len = text.len() as u8;
        Ok(GroupName { bytes, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_of_some_length() {
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
