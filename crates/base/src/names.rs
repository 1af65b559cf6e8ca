//! Suggestions for mistyped names ("did you mean").

/// Returns the name that is nearest to `input`, if it is a typing mistake away.
///
/// A typing mistake changes, adds, leaves out or swaps with its neighbour at most a third of the
/// letters of `input`, or one letter of a shorter name. Case is ignored. Of equally near names the
/// first in alphabetical order is returned.
///
/// ```
/// use tidegate_base::names::nearest;
///
/// assert_eq!(nearest("mclokc", ["fifo", "limit", "mclock"]), Some("mclock"));
/// assert_eq!(nearest("zebra", ["fifo", "limit", "mclock"]), None);
/// ```
pub fn nearest<'a>(input: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One mistake at least, or names of two letters would have none.
    let allowed = (input.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(input, name, allowed), name))
        .filter(|(distance, _)| *distance <= allowed)
        // The distance comes first in the tuple, then the name, so ties go by the alphabet.
        .min()
        .map(|(_, name)| name)
}

/// Longest input, in characters, that is compared. No key or option name comes near it.
const LONGEST_INPUT: usize = 64;

/// Returns the edit distance (optimal string alignment), ignoring case, or `max_distance + 1` if
/// the names are certainly further apart than `max_distance`.
fn distance(a: &str, b: &str, max_distance: usize) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let (len, other) = (a.chars().count(), b.chars().count());
    // The table of distances has `len * other` entries, and `a` is user input of any length.
    if len.abs_diff(other) > max_distance || len > LONGEST_INPUT {
        return max_distance + 1;
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
