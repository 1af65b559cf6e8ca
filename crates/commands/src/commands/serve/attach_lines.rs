//! Lines that `tidegate serve --file` prints once its disks are served.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use tidegate_server::config::{Config, ListenAddress};
use tidegate_units::human::bytes;

use crate::commands::export;
use crate::shell;

/// Returns how each disk is attached, and how the daemon is watched and changed.
///
/// # Errors
/// If no listener offers a disk.
pub(super) fn lines(config: &Config) -> Result<String> {
    let mut text = String::new();
    for vm in &config.vms {
        let path = vm.disks[0].path.as_deref().unwrap_or(Path::new(""));
        let size = size(path).map(|size| format!(" ({})", bytes(size)));
        let size = size.unwrap_or_default();
        text += &format!("{}{size} is served as {}\n", path.display(), vm.name);
        let attached = export::attached(vm, &config.listeners)?;
        for uri in &attached.uris {
            text += &format!("  {uri}\n");
        }
        text += &format!(
            "QEMU (tidegate export qemu {}):\n{}\n",
            vm.name, attached.qemu
        );
    }
    if let ListenAddress::Unix { path, .. } = &config.control.main.address {
        let socket = shell::quoted(&path.display().to_string());
        text += &format!("From another shell:\n  export TIDEGATE_SOCKET={socket}\n");
    }
    text += "  tidegate top\n";
    for vm in &config.vms {
        text += &format!("  tidegate export libvirt {}\n", vm.name);
        text += &format!("  tidegate vm set {} --limit \"40 MB/s\"\n", vm.name);
    }
    Ok(text)
}

/// Returns the size of a file or block device in bytes.
fn size(path: &Path) -> Option<u64> {
    File::open(path).ok()?.seek(SeekFrom::End(0)).ok()
}
