//! Names of clusters, arrays and hosts, which are parts of a subject of NATS.

use std::fmt;

/// Name of a cluster, an array or a host: 1 to 64 letters, digits, `-` and `_`. Without dots,
/// which separate the parts of a subject, and without the wildcards of subjects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Error of a text that is not a [`Name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a name has 1 to {} letters, digits, `-` and `_`", Name::MAX_LEN)]
pub struct NotAName;

impl Name {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 64;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Name, NotAName> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let fits = (1..=Name::MAX_LEN).contains(&text.len());
        if fits && text.bytes().all(is_part) {
            Ok(Name(text.to_owned()))
        } else {
            Err(NotAName)
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
