//! Line of text that is being typed.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Line of text with a cursor.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Line {
    before: Vec<char>,
    /// Characters behind the cursor, the last first.
    behind: Vec<char>,
}

impl Line {
    /// Creates a line with the cursor at its end.
    pub(super) fn new(text: &str) -> Line {
        Line {
            before: text.chars().collect(),
            behind: Vec::new(),
        }
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> String {
        self.before.iter().chain(self.behind.iter().rev()).collect()
    }

    /// Returns the text before the cursor.
    pub(super) fn before(&self) -> String {
        self.before.iter().collect()
    }

    /// Changes the line by a key; false if the key has no meaning for it. The keys are those of
    /// readline.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_plain = !has_control && !key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Char('a') if has_control => self.home(),
            KeyCode::Char('e') if has_control => self.end(),
            KeyCode::Char('b') if has_control => self.left(),
            KeyCode::Char('f') if has_control => self.right(),
            KeyCode::Char('h') if has_control => _ = self.before.pop(),
            KeyCode::Char('d') if has_control => _ = self.behind.pop(),
            KeyCode::Char('u') if has_control => self.before.clear(),
            KeyCode::Char('k') if has_control => self.behind.clear(),
            KeyCode::Char('w') if has_control => self.remove_word(),
            // Not with Alt, which is also what Esc and a letter in quick succession look like.
            KeyCode::Char(c) if is_plain && !c.is_control() => self.before.push(c),
            KeyCode::Backspace => _ = self.before.pop(),
            KeyCode::Delete => _ = self.behind.pop(),
            KeyCode::Left => self.left(),
            KeyCode::Right => self.right(),
            KeyCode::Home => self.home(),
            KeyCode::End => self.end(),
            _ => return false,
        }
        true
    }

    fn left(&mut self) {
        self.behind.extend(self.before.pop());
    }

    fn right(&mut self) {
        self.before.extend(self.behind.pop());
    }

    fn home(&mut self) {
        self.behind.extend(self.before.drain(..).rev());
    }

    fn end(&mut self) {
        self.before.extend(self.behind.drain(..).rev());
    }

    /// Removes the word before the cursor, and blanks behind it.
    fn remove_word(&mut self) {
        while self.before.pop_if(|c| c.is_whitespace()).is_some() {}
        while self.before.pop_if(|c| !c.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_keys(line: &mut Line, keys: &[(KeyCode, KeyModifiers)]) {
        for &(code, modifiers) in keys {
            assert!(line.key(KeyEvent::new(code, modifiers)), "{code:?}");
        }
    }

    #[test]
    fn keys_edit_the_text_around_the_cursor() {
        const NONE: KeyModifiers = KeyModifiers::NONE;
        let mut line = Line::new("weight 10");
        type_keys(
            &mut line,
            &[
                (KeyCode::Left, NONE),
                (KeyCode::Backspace, NONE),
                (KeyCode::Char('5'), NONE),
                (KeyCode::Home, NONE),
                (KeyCode::Char('-'), NONE),
                (KeyCode::End, NONE),
                (KeyCode::Char('ü'), NONE),
            ],
        );
        assert_eq!(line.text(), "-weight 50ü");
        type_keys(&mut line, &[(KeyCode::Left, NONE), (KeyCode::Delete, NONE)]);
        assert_eq!(
            (line.text(), line.before()),
            ("-weight 50".into(), "-weight 50".into())
        );
        const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
        type_keys(&mut line, &[(KeyCode::Char('w'), CONTROL)]);
        assert_eq!(line.text(), "-weight ");
        type_keys(
            &mut line,
            &[
                (KeyCode::Char('a'), CONTROL),
                (KeyCode::Char('f'), CONTROL),
                (KeyCode::Char('k'), CONTROL),
            ],
        );
        assert_eq!(line.text(), "-");
        type_keys(&mut line, &[(KeyCode::Char('u'), CONTROL)]);
        assert_eq!(line.text(), "");
        assert!(!line.key(KeyEvent::new(KeyCode::Enter, NONE)));
        assert!(!line.key(KeyEvent::new(KeyCode::Char('z'), CONTROL)));
        assert!(!line.key(KeyEvent::new(KeyCode::Char('z'), KeyModifiers::ALT)));
        assert_eq!(line.text(), "");
    }
}
