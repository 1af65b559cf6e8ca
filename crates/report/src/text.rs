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
    let words = text.split_whitespace();
    lines(words.map(|word| clip(word, width, ellipsis)), width)
}

/// Wraps `text` between words at `width` columns. A word that is wider goes on in the next line.
pub(crate) fn wrap_whole(text: &str, width: usize) -> Vec<String> {
    let words = text.split_whitespace();
    lines(words.flat_map(|word| divide(word, width)), width)
}

/// Divides a word into pieces of at most `width` columns, but of at least one character.
fn divide(word: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        let piece = pieces.last_mut().expect("there is one");
        let is_full = piece.width() + c.width().unwrap_or(0) > width;
        if is_full && !piece.is_empty() {
            pieces.push(c.to_string());
        } else {
            piece.push(c);
        }
    }
    pieces
}

/// Puts words with blanks between them on lines of at most `width` columns.
fn lines(words: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
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

    #[test]
    fn a_word_that_is_too_wide_goes_on_in_the_next_line() {
        assert_eq!(wrap_whole("two of them", 6), ["two of", "them"]);
        assert_eq!(
            wrap_whole("is a-long-word so", 6),
            ["is", "a-long", "-word", "so"]
        );
        assert_eq!(wrap_whole("数据库", 5), ["数据", "库"]);
        assert_eq!(
            wrap_whole("数据", 1),
            ["数", "据"],
            "no narrower than a character"
        );
        assert_eq!(wrap_whole("", 6), [""; 0]);
    }
}
