//! Paths of sockets that are made for each disk.

use std::fmt;
use std::path::{Path, PathBuf};

/// Placeholder for the name of the VM.
const VM: &str = "{vm}";
/// Placeholder for the export name of the disk.
const DISK: &str = "{disk}";

/// Path with a placeholder for the name of a VM, of a disk, or for both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketTemplate(String);

impl SocketTemplate {
    /// Makes a template of a path.
    ///
    /// # Errors
    /// A message if the path has no placeholder, or braces that are none.
    pub fn new(path: &Path) -> Result<SocketTemplate, String> {
        let text = path.display().to_string();
        let rest = text.replace(VM, "").replace(DISK, "");
        if rest.contains(['{', '}']) {
            return Err(format!("{text} has braces that are no placeholder"));
        }
        if rest == text {
            return Err(format!("{text} would be the socket of every disk"));
        }
        Ok(SocketTemplate(text))
    }

    /// Returns the path of a disk's socket.
    pub fn expand(&self, vm: &str, disk: &str) -> PathBuf {
        // Names have no braces, so the order does not matter.
        self.0.replace(VM, vm).replace(DISK, disk).into()
    }

    /// Returns the path if all sockets are in one directory.
    pub fn in_one_directory(&self) -> Option<&Path> {
        let path = Path::new(&self.0);
        let parent = path.parent()?.to_str()?;
        (!parent.contains('{')).then_some(path)
    }
}

/// The path with its placeholders.
impl fmt::Display for SocketTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_names() {
        let new = |text: &str| SocketTemplate::new(Path::new(text));
        let both = new("/run/{vm}/{disk}.{vm}").expect("sound");
        assert_eq!(both.expand("a", "b"), Path::new("/run/a/b.a"));
        assert_eq!(both.in_one_directory(), None);
        let disk = new("/run/{disk}").expect("sound");
        assert_eq!(disk.expand("a", "b"), Path::new("/run/b"));
        assert_eq!(disk.in_one_directory(), Some(Path::new("/run/{disk}")));
        for wrong in ["/run/x", "/run/{vm", "/run/{VM}", "/run/{vm}{}"] {
            assert!(new(wrong).is_err(), "{wrong}");
        }
    }
}
