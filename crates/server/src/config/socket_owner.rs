//! Owner and group of a socket's file.

use std::fmt;

use tidegate_config::{Field, Place};

/// Owner and group of a socket's file, each a name or a number. `None` leaves the user and group of
/// the daemon's process.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SocketOwner {
    /// User that owns the file.
    pub user: Option<String>,
    /// Group of the file.
    pub group: Option<String>,
    /// Place of the user in the file, or else of the group; `None` if no file sets one.
    pub place: Option<Place>,
}

impl fmt::Display for SocketOwner {
    /// Writes what is set, each behind a comma.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = [("owner", &self.user), ("group", &self.group)];
        for (what, name) in accounts {
            if let Some(name) = name {
                write!(f, ", {what} {name}")?;
            }
        }
        Ok(())
    }
}

/// Reads the name or number of a user or group.
pub(super) fn account(field: &Field<'_>) -> Option<String> {
    let text = field.text()?;
    if !is_account(text) {
        let what = format!("{} is not the name of a user or group", field.describe());
        field.error(
            what,
            "a name such as \"libvirt-qemu\", or a number such as \"107\"",
        );
        return None;
    }
    Some(text.to_owned())
}

/// Returns true for a text that may be the name or number of a user or group.
pub(super) fn is_account(text: &str) -> bool {
    // A colon ends a name in the system's files, and no account has an empty name.
    !text.is_empty() && !text.contains([':', '\0'])
}
