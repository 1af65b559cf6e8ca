//! Names that are longer than their column: cut in the middle, so that names which differ at
//! their ends can be told apart.

use std::borrow::Cow;
use std::collections::HashSet;

use ratatui::text::Span;

/// Returns the columns that text takes on a terminal.
pub(crate) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

fn char_width(c: char) -> usize {
    width_of(c.encode_utf8(&mut [0; 4]))
}

/// Cut of names that are longer than their column.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct NameCut {
    /// Width of the column from which on distinct names have distinct cells.
    pub(crate) width: usize,
    /// Width of the end of a name that is left.
    tail: usize,
}

impl NameCut {
    /// Returns the cut for the narrowest column of `least` to `most` in which distinct names remain
    /// distinct; that for `most` if none does.
    pub(crate) fn distinct(names: &[&str], least: usize, most: usize) -> NameCut {
        let longest = names.iter().map(|name| width_of(name)).max().unwrap_or(0);
        let most = longest.clamp(least, most.max(least));
        let mut last = NameCut {
            width: least,
            tail: 0,
        };
        for width in least..=most {
            // Ends are mostly numbers: half of the room for them, or more, or less.
            let half = width.saturating_sub(1) / 2;
            for tail in (half..width).chain((0..half).rev()) {
                last = NameCut { width, tail };
                if last.keeps_apart(names) {
                    return last;
                }
            }
        }
        NameCut {
            tail: most / 2,
            ..last
        }
    }

    fn keeps_apart(&self, names: &[&str]) -> bool {
        let mut seen = HashSet::with_capacity(names.len());
        let mut distinct = HashSet::with_capacity(names.len());
        names.iter().all(|name| {
            // A name that is there twice is no reason for a wider column.
            !distinct.insert(*name) || seen.insert(self.ends(name, self.width))
        })
    }

    /// Returns the name in a column of a width, with a mark of one column where it was cut; a wider
    /// column than the narrowest shows more of the beginning.
    pub(crate) fn apply<'a>(&self, name: &'a str, width: usize, mark: &str) -> Cow<'a, str> {
        match self.ends(name, width) {
            (whole, None) => Cow::Borrowed(whole),
            (head, Some(tail)) => Cow::Owned(format!("{head}{mark}{tail}")),
        }
    }

    /// Returns what is left of a name: all of it, or its beginning and its end.
    fn ends<'a>(&self, name: &'a str, width: usize) -> (&'a str, Option<&'a str>) {
        if width_of(name) <= width {
            return (name, None);
        }
        let room = width.saturating_sub(1);
        let tail = self.tail.min(room);
        let mut used = 0;
        let end = name.char_indices().rev().take_while(|(_, c)| {
            used += char_width(*c);
            used <= tail
        });
        let end = end.last().map_or(name.len(), |(at, _)| at);
        let mut used = 0;
        let begin = name.char_indices().find(|(_, c)| {
            used += char_width(*c);
            used > room - tail
        });
        let begin = begin.map_or(name.len(), |(at, _)| at);
        (&name[..begin], Some(&name[end..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(names: &[&str], least: usize, most: usize) -> Vec<String> {
        let cut = NameCut::distinct(names, least, most);
        let cell = |name: &&str| cut.apply(name, cut.width, "…").into_owned();
        names.iter().map(cell).collect()
    }

    #[test]
    fn distinct_names_remain_distinct() {
        assert_eq!(cells(&["oltp", "bulk"], 10, 40), ["oltp", "bulk"]);
        assert_eq!(
            cells(&["customer-01234", "customer-01299"], 10, 40),
            ["custo…1234", "custo…1299"]
        );
        assert_eq!(
            cells(&["customer-01-disk", "customer-02-disk"], 10, 40),
            ["cus…1-disk", "cus…2-disk"]
        );
        let names: Vec<String> = (0..10_000).map(|i| format!("customer-{i:05}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let drawn: HashSet<String> = cells(&names, 10, 40).into_iter().collect();
        assert_eq!(drawn.len(), names.len());
        // Both ends are alike: no cut of 10 tells them apart.
        let names = ["aaaaaaaa-1-zzzzzzzz", "aaaaaaaa-2-zzzzzzzz"];
        let drawn = cells(&names, 10, 40);
        assert_ne!(drawn[0], drawn[1]);
        assert!(width_of(&drawn[0]) > 10);
        assert_eq!(cells(&names, 10, 10)[0], "aaaa…zzzzz", "no room for more");
    }

    #[test]
    fn a_wider_column_shows_more_and_wide_characters_fit() {
        let names = ["customer-01234", "customer-01299"];
        let cut = NameCut::distinct(&names, 10, 40);
        assert_eq!(cut.apply(names[0], 12, "~"), "custome~1234");
        assert_eq!(cut.apply(names[0], 14, "~"), names[0]);
        let names = ["顧客データベース一号", "顧客データベース二号"];
        for width in 4..=20 {
            let cut = NameCut::distinct(&names, width, width);
            for name in names {
                let drawn = cut.apply(name, width, "…");
                assert!(width_of(&drawn) <= width, "{width}: {drawn}");
            }
        }
        assert_eq!(NameCut::default().apply("x", 0, "…"), "…");
    }
}
