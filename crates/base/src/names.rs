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

/// How many letters must be changed, added, left out or swapped with their neighbour; anything
/// above `enough` may be reported as just above it.
fn distance(a: &str, b: &str, enough: usize) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    if a.len().abs_diff(b.len()) > enough || a.len() > 64 {
        return enough + 1;
    }
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = core::mem::replace(&mut last, row);
    }
    last[b.len()]
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
