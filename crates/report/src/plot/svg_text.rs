//! Text as elements of SVG.

use std::fmt::Write as _;

/// Approximate width of a column of text, a bit more than most letters need.
pub(super) const COLUMN_WIDTH: f64 = 7.2;

/// Writes text whose baseline begins at the point, or is centred on it, as `attributes` tell.
pub(super) fn text(out: &mut String, attributes: &str, (x, y): (f64, f64), text: &str) {
    let gap = if attributes.is_empty() { "" } else { " " };
    let text = escape(text);
    let _ = writeln!(
        out,
        "<text{gap}{attributes} x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    );
}

/// Escapes text for an element's content; characters that XML does not allow are replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // XML 1.0, section 2.2.
            '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => out.push(c),
        }
    }
    out
}
