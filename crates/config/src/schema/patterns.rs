//! Regular expressions (ECMA 262) of texts in documents.

use tidegate_units::Quantity;

/// Percentage: `70 %`, at most one decimal.
pub(super) const PERCENT: &str = "^\\s*[0-9]{1,3}(\\.[0-9])?\\s*%\\s*$";
/// Name, valid in URLs, metric labels and tables.
pub(super) const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$";
/// File mode: three or four octal digits up to 0777.
pub(super) const MODE: &str = "^0?[0-7]{3}$";

fn figure(quantity: Quantity) -> String {
    let units: Vec<&str> = quantity.spellings().collect();
    format!("[0-9]+(\\.[0-9]+)?\\s*({})", units.join("|"))
}

fn anchored(pattern: &str) -> String {
    format!("^\\s*{pattern}\\s*$")
}

/// Returns the pattern of sizes.
pub(super) fn size() -> String {
    anchored(&figure(Quantity::Bytes))
}

/// Returns the pattern of durations.
pub(super) fn duration() -> String {
    anchored(&figure(Quantity::Duration))
}

/// Returns the pattern of bandwidths.
pub(super) fn bandwidth() -> String {
    anchored(&figure(Quantity::Bandwidth))
}

/// Returns the pattern of rates: `none`, or one or two figures.
pub(super) fn rate() -> String {
    let iops = format!(
        "[0-9]+\\s*[Ii][Oo][Pp][Ss](\\s*@\\s*{})?",
        figure(Quantity::Bytes)
    );
    let part = format!("({iops}|{})", figure(Quantity::Bandwidth));
    anchored(&format!("([Nn][Oo][Nn][Ee]|{part}(\\s*,\\s*{part})?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_a_unit_that_is_read() {
        assert_eq!(
            duration(),
            "^\\s*[0-9]+(\\.[0-9]+)?\\s*(ns|us|ms|s|min|h|\u{b5}s|\u{3bc}s)\\s*$"
        );
        assert!(rate().contains("|KiB/s|") && size().contains("|KiB|"));
    }
}
