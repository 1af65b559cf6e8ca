//! Words of commands that users copy into a shell.

/// Quotes a word for a POSIX shell, where it needs that.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Divides a line into words as a POSIX shell does, with quotes and backslashes and without
/// anything that a shell would replace.
///
/// # Errors
/// The quote that is not closed.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => read_quoted(c, &mut chars, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the closing quote.
fn read_quoted(
    quote: char,
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), String> {
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => return Ok(()),
            // Within double quotes a backslash quotes itself and the quote.
            '\\' if quote == '"' => match chars.next() {
                Some(c @ ('"' | '\\')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => word.push('\\'),
            },
            c => word.push(c),
        }
    }
    Err(format!("no closing {quote}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quoted("limit=40"), "limit=40");
        assert_eq!(quoted("40 MB/s"), "'40 MB/s'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
    #[test]
    fn words_are_read_as_they_are_quoted() {
        for words in [
            &["--limit", "500 IOPS, 40 MB/s"][..],
            &["it's", "a \"b\"", "\\", ""],
            &[],
        ] {
            let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            assert_eq!(super::words(&line.join("  ")).expect("closed"), words);
        }
        assert_eq!(
            words(r#"a\ b "c \" \\ \d" e'f'"#).expect("closed"),
            ["a b", r#"c " \ \d"#, "ef"]
        );
        assert_eq!(words("a 'b"), Err("no closing '".to_owned()));
    }
}
