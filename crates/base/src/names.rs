//! Names that people type: which of those there are may have been meant.

/// The name that a typing mistake away from `found` there might be: at most a third of its
/// letters changed, added, left out or swapped with their neighbour, one at least. Upper and
/// lower case are the same; of several equally near the first in the alphabet.
///
/// ```
/// use tidegate_base::names::nearest;
///
/// assert_eq!(nearest("mclokc", ["fifo", "limit", "mclock"]), Some("mclock"));
/// assert_eq!(nearest("zebra", ["fifo", "limit", "mclock"]), None);
/// ```
pub fn nearest<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (found.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(found, name, allowed), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// Returns the number of letters to change, add, leave out or swap with their neighbour, upper and
/// lower case being the same; just above `enough` for names that are certainly further apart.
fn distance(a: &str, b: &str, enough: usize) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let (len, other) = (a.chars().count(), b.chars().count());
    // The table of distances has `len * other` entries, and `a` is whatever somebody typed.
    if len.abs_diff(other) > enough || len > 64 {
        return enough + 1;
    }
    strsim::osa_distance(&a, &b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_typing_mistake_away() {
        let known = ["reservation", "limit", "target", "weight", "latency"];
        assert_eq!(nearest("resrevation", known), Some("reservation"));
        assert_eq!(nearest("Limits", known), Some("limit"));
        assert_eq!(nearest("wieght", known), Some("weight"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
        assert_eq!(nearest("any", []), None);
    }

    #[test]
    fn counts_slips_of_the_pen() {
        for (a, b, slips) in [
            ("", "abc", 3),
            ("hdd", "hdd", 0),
            ("HDD", "hdd", 0),
            ("hhd", "hdd", 1),
            ("dhd", "hdd", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b, 9), slips, "{a} to {b}");
            assert_eq!(distance(b, a, 9), slips, "{b} to {a}");
        }
        assert!(distance("kitten", "sitting", 2) > 2);
    }
}
