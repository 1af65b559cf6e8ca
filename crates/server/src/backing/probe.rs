//! Distinction of raw disks from images of other formats.
//!
//! A raw disk whose guest writes the header of another format must not be taken for an image of
//! that format, nor be refused at the next start. So a file gets a mark (an extended attribute)
//! when it is first served for writing: its content was checked then, and any later content is the
//! guest's doing. Where attributes do not exist (block devices, some file systems), `format =
//! "raw"` has the same effect.
//!
//! LUKS is another matter. A guest that encrypts its whole disk writes the same header as QEMU does
//! into an image that it decrypts itself, so the header does not tell the two apart. Such a disk is
//! served as it is, with a warning while it has no mark: refusing it would refuse guests' own
//! disks.

use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::ring::sys;

/// Extended attribute of a file that was served for writing.
const MARK: &CStr = c"user.tidegate.format";
const RAW: &[u8] = b"raw";

/// Beginning of a LUKS header, of version 1 and 2 (LUKS2 On-Disk Format Specification, section
/// 2.1), before the version as two bytes.
const LUKS: &[u8] = b"LUKS\xba\xbe";

/// Number of bytes of a file that are searched for a header.
const HEADER: usize = 512;

/// Returns the image format that the header of a file announces; `None` if it is none that is
/// known.
pub fn foreign_format(file: &File) -> std::io::Result<Option<&'static str>> {
    let mut header = [0u8; HEADER];
    let n = file.read_at(&mut header, 0)?;
    Ok(recognise(&header[..n]))
}

/// Returns the image format that a header announces.
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

/// Returns true if the file begins with a LUKS header: its content is encrypted, by its guest or by
/// the hypervisor that had it before.
///
/// # Errors
/// If the file cannot be read.
pub fn is_luks(file: &File) -> std::io::Result<bool> {
    let mut header = [0u8; LUKS.len()];
    let n = file.read_at(&mut header, 0)?;
    Ok(&header[..n] == LUKS)
}

/// Returns true if the file was marked as raw.
pub fn is_marked(file: &File) -> bool {
    sys::extended_attribute(file, MARK).is_some_and(|value| value == RAW)
}

/// Marks the file as raw with an extended attribute.
///
/// # Errors
/// Fails if the file system has no extended attributes or the file is read-only.
pub fn mark(file: &File) -> std::io::Result<()> {
    sys::set_extended_attribute(file, MARK, RAW)
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
        // Which guests write on their raw disks, too.
        assert_eq!(recognise(b"LUKS\xba\xbe\0\x01"), None);
    }

    #[test]
    fn encrypted_disks_are_known_by_their_header() {
        let file = tempfile::tempfile().expect("a file");
        for (header, expected) in [
            (&b"LUKS\xba\xbe\0\x01"[..], true),
            (b"LUKS\xba\xbe\0\x02", true),
            (b"LUKS\xba", false),
            (b"", false),
            (b"SKUL\xba\xbe\0\x02", false),
        ] {
            file.set_len(0).expect("ours");
            file.write_all_at(header, 0).expect("writable");
            assert_eq!(is_luks(&file).expect("readable"), expected, "{header:?}");
        }
    }
}
