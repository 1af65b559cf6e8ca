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

/// Divides a script into its commands, each into words as [`words`] does. A command ends at a line,
/// `;`, `&`, `|` or a parenthesis; a line that begins with `-` continues the one before, as in text
/// whose backslashes were lost. Comments, redirections and empty commands are left out.
///
/// # Errors
/// The quote that is not closed.
pub(crate) fn commands(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut script = Script::default();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let rest = chars.as_str();
        match c {
            '\'' | '"' => read_quoted(c, &mut chars, script.word.get_or_insert_default())?,
            '\\' if rest.starts_with('\n') => chars = rest[1..].chars(),
            '\\' => script.word.get_or_insert_default().extend(chars.next()),
            '#' if script.word.is_none() => {
                let end = rest.find('\n').unwrap_or(rest.len());
                chars = rest[end..].chars();
            }
            '<' | '>' => {
                script.redirect();
                let target = rest.trim_start_matches(['<', '>', '&', '|']);
                chars = target.chars();
            }
            // A substitution counts as one word: its text is not known.
            '(' if script
                .word
                .as_deref()
                .is_some_and(|word| word.ends_with('$')) =>
            {
                let end = rest.find(')').map_or(rest.len(), |at| at + 1);
                script.word.get_or_insert_default().push(c);
                script.word.get_or_insert_default().push_str(&rest[..end]);
                chars = rest[end..].chars();
            }
            '\n' if rest.trim_start().starts_with('-') => script.end_word(),
            '\n' | ';' | '&' | '|' => script.end_command(),
            // Within a word, as in a list of processes, it is a character.
            '(' | ')' if script.word.is_none() => script.end_command(),
            c if c.is_whitespace() => script.end_word(),
            c => script.word.get_or_insert_default().push(c),
        }
    }
    script.end_command();
    Ok(script.commands)
}

/// Script as far as it was read.
#[derive(Default)]
struct Script {
    commands: Vec<Vec<String>>,
    command: Vec<String>,
    word: Option<String>,
    /// True if the next word is the target of a redirection.
    is_target: bool,
}

impl Script {
    fn end_word(&mut self) {
        let Some(word) = self.word.take() else {
            return;
        };
        if !std::mem::take(&mut self.is_target) {
            self.command.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_target = false;
        if !self.command.is_empty() {
            self.commands.push(std::mem::take(&mut self.command));
        }
    }

    /// Begins a redirection: a number right before it is that of the file, and no word.
    fn redirect(&mut self) {
        let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
        self.word = self.word.take().filter(|word| !is_number(word));
        self.end_word();
        self.is_target = true;
    }
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

    #[test]
    fn a_script_is_divided_into_commands_without_comments_and_redirections() {
        let script = "# starts\nset -e; cd /vms && ( exec qemu -m 4 \\\n -smp $(nproc --all) \\\n\
                      \t-name 'a;b' >log 2>&1 < /dev/null & )  # in the background\n\
                      -hda a#1.img\n\necho \"done # yes\" | tee x\n";
        let found = commands(script).expect("closed");
        let found: Vec<Vec<&str>> = found
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .collect();
        let qemu = [
            "exec",
            "qemu",
            "-m",
            "4",
            "-smp",
            "$(nproc --all)",
            "-name",
            "a;b",
        ];
        assert_eq!(found[..2], [vec!["set", "-e"], vec!["cd", "/vms"]]);
        assert_eq!(found[2], qemu);
        assert_eq!(found[3], ["-hda", "a#1.img"]);
        assert_eq!(found[4..], [vec!["echo", "done # yes"], vec!["tee", "x"]]);
        let lost = "qemu -m 4\n  -hda a.img\nsleep 1\n";
        let joined = vec!["qemu", "-m", "4", "-hda", "a.img"];
        assert_eq!(
            commands(lost).expect("closed"),
            [joined, vec!["sleep", "1"]]
        );
        assert_eq!(commands("a 'b"), Err("no closing '".to_owned()));
    }
}
