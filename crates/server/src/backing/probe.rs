//! Telling raw disks from images of other formats.
//!
//! A raw disk whose guest writes another format's header must not be taken for an image of that
//! format, nor refused at the next start. So a file carries a mark (an extended attribute) from
//! the moment it is first served for writing: by then its bytes had been looked at, and whatever
//! they look like later is the guest's doing. Where attributes do not exist (block devices, some
//! filesystems), `format = "raw"` says the same.

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::ring::sys;

const MARK: &CStr = c"user.tidegate.format";
const RAW: &[u8] = b"raw";

/// Longest header looked at.
const HEADER: usize = 512;

/// The format that a file's bytes announce, other than raw.
pub fn foreign_format(file: &File) -> std::io::Result<Option<&'static str>> {
    let mut header = [0u8; HEADER];
    let n = file.read_at(&mut header, 0)?;
    Ok(recognise(&header[..n]))
}

/// What a header announces.
fn recognise(header: &[u8]) -> Option<&'static str> {
    let magics: [(usize, &[u8], &str); 8] = [
        (0, b"QFI\xfb", "qcow2"),
        (0, b"QED\0", "qed"),
        (0, b"KDMV", "vmdk"),
        (0, b"COWD", "vmdk"),
        (0, b"# Disk DescriptorFile", "vmdk"),
        (0, b"vhdxfile", "vhdx"),
        (0, b"conectix", "vpc (vhd)"),
        (0x40, &[0x7f, 0x10, 0xda, 0xbe], "vdi"),
    ];
    magics
        .iter()
        .find(|(at, magic, _)| header.get(*at..).is_some_and(|h| h.starts_with(magic)))
        .map(|(_, _, name)| *name)
}

/// True when the file was marked as raw.
pub fn is_marked(file: &File) -> bool {
    sys::attribute(file, MARK).is_some_and(|value| value == RAW)
}

/// Marks the file as raw.
///
/// # Errors
/// Where there are no extended attributes.
pub fn mark(file: &File) -> std::io::Result<()> {
    sys::set_attribute(file, MARK, RAW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_recognised_and_raw_bytes_are_not() {
        assert_eq!(recognise(b"QFI\xfb\0\0\0\x03"), Some("qcow2"));
        assert_eq!(recognise(b"KDMV"), Some("vmdk"));
        assert_eq!(recognise(b"vhdxfile"), Some("vhdx"));
        let mut vdi = vec![0; 512];
        vdi[0x40..0x44].copy_from_slice(&0xbeda_107fu32.to_le_bytes());
        assert_eq!(recognise(&vdi), Some("vdi"));
        assert_eq!(recognise(&[0; 512]), None);
        assert_eq!(recognise(b"QF"), None);
        assert_eq!(recognise(b""), None);
    }
}
