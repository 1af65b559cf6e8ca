//! Disks that are not the plain bytes of their file: images, encrypted disks, parts of files, and
//! writes that are thrown away.

use std::path::Path;

use super::shown;

/// Remark on options of QEMU that another description has.
pub(super) const OPTIONS_OF_QEMU: &str =
    "options of QEMU: `tidegate import qemu` reads them where they have disks";

/// Remark on a disk whose file keeps its content for the next start.
pub(super) const THROWN_AWAY: &str = "writes of the guest are thrown away now and would be \
                                      permanent here: serve a copy of the disk";

/// Endings of files whose content is no raw disk, with the formats as QEMU names them.
const ENDINGS: [(&str, &str); 8] = [
    ("qcow2", "qcow2"),
    ("qcow", "qcow"),
    ("qed", "qed"),
    ("vmdk", "vmdk"),
    ("vdi", "vdi"),
    ("vhdx", "vhdx"),
    ("vhd", "vpc"),
    ("vpc", "vpc"),
];

/// Returns the format of an image by the ending of its name; `None` for a raw disk.
pub(super) fn image_format(name: &str) -> Option<String> {
    let ending = Path::new(name).extension()?.to_str()?;
    let known = ENDINGS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(ending));
    known.map(|(_, format)| (*format).to_owned())
}

/// Returns the reason why a disk that QEMU decrypts has no path.
pub(super) fn encrypted(format: &str) -> String {
    format!(
        "encrypted ({}), and its guest would see the encrypted bytes: convert it to raw with \
         qemu-img, which needs the secret, and add the path",
        shown(format)
    )
}

/// Returns the reason why a disk that is a part of a file, by `offset` and `size` in bytes, has no
/// path.
pub(super) fn part_of_file(offset: Option<&str>, size: Option<&str>) -> String {
    let offset = offset.unwrap_or("0");
    let size = size.map_or_else(String::new, |size| format!(", size {}", shown(size)));
    let offset = shown(offset);
    format!(
        "a part of its file (offset {offset}{size}): copy the part to a file of its own, and add \
         the path"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_endings() {
        for (name, format) in [
            ("/a.qcow2", Some("qcow2")),
            ("/a.b.QCOW2", Some("qcow2")),
            ("/a.vhd", Some("vpc")),
            ("/a.raw", None),
            ("/qcow2", None),
            ("", None),
        ] {
            assert_eq!(image_format(name).as_deref(), format, "{name}");
        }
    }

    #[test]
    fn a_part_of_a_file_is_named_with_its_place() {
        let part = part_of_file(Some("512"), Some("1024"));
        assert!(part.contains("(offset \"512\", size \"1024\")"), "{part}");
        assert!(part_of_file(None, Some("7")).contains("(offset \"0\", size \"7\")"));
        assert!(part_of_file(Some("9"), None).contains("(offset \"9\"):"));
    }
}
