//! Clipping and wrapping of text by its width on a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cuts `text` to at most `width` columns (at least one), with `ellipsis` in place of the rest.
pub(crate) fn clip(text: &str, width: usize, ellipsis: char) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept = text.chars().take_while(|c| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= room;
        room = room.saturating_sub(wide);
        fits
    });
    kept.chain([ellipsis]).collect()
}

/// Wraps `text` between words at `width` columns. A word that is wider is cut.
pub(crate) fn wrap(text: &str, width: usize, ellipsis: char) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = clip(word, width, ellipsis);
        let fits = |line: &&mut String| line.width() + 1 + word.width() <= width;
        match lines.last_mut().filter(fits) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_off_visibly_by_what_it_takes_on_a_terminal() {
        assert_eq!(clip("depth 1", 7, '~'), "depth 1");
        assert_eq!(clip("depth 16", 7, '~'), "depth ~");
        // Two columns each.
        assert_eq!(clip("数据库", 5, '~'), "数据~");
        assert_eq!(clip("数据库", 4, '~'), "数~");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("two of them, cut", 8, '~'), ["two of", "them,", "cut"]);
        assert_eq!(wrap("a-long-word is", 6, '~'), ["a-lon~", "is"]);
        assert_eq!(wrap("", 6, '~'), [""; 0]);
    }
}
