//! Form of the names of VMs, disks, devices and other things in a document.

/// Form of a name, for messages.
pub const NAME_FORM: &str = "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'";

/// Returns true if `text` is valid as a name in URLs, metric labels and tables.
pub fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.chars().all(good) && (1..=64).contains(&text.len()) && !text.starts_with('.')
}
