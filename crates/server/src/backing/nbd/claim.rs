//! Exports that writable disks of this process have open.

use std::sync::{Mutex, PoisonError};

use tidegate_nbd::client::{Address, NbdUri};

/// Export that is open here, so that no second disk writes to it.
#[derive(Debug)]
pub(super) struct Claim((String, String));

/// Exports that writable disks of this process have open.
static CLAIMED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

impl Claim {
    /// Claims an export; `None` if another disk has it.
    pub(super) fn new(uri: &NbdUri) -> Option<Claim> {
        let server = match &uri.address {
            // Links lead to one socket.
            Address::Unix(path) => {
                let found = std::fs::canonicalize(path);
                let path = found.unwrap_or_else(|_| path.into());
                path.display().to_string()
            }
            Address::Tcp { host, port } => {
                let host = match host.to_ascii_lowercase() {
                    host if host == "localhost" => "127.0.0.1".to_owned(),
                    host => host,
                };
                format!("{host} {port}")
            }
        };
        let export = (server, uri.export.clone());
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed.contains(&export) {
            return None;
        }
        claimed.push(export.clone());
        Some(Claim(export))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.retain(|other| *other != self.0);
    }
}
