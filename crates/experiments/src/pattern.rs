//! Patterns of names: words with `*` at an end.

/// Matches a word against a pattern, in which `*` at either end stands for any text.
pub(crate) fn fits(pattern: &str, word: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(end), None) => word.ends_with(end),
        (None, Some(start)) => word.starts_with(start),
        // Both ends are open; `strip_prefix` has left the star at the end.
        (Some(end), Some(_)) => word.contains(end.trim_end_matches('*')),
        (None, None) => word == pattern,
    }
}
