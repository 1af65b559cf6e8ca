//! Mistakes in the form of a device description, in the words of this project's configuration
//! errors instead of the TOML reader's.

use tidegate_core::names::nearest;

/// Returns the line of a mistake, counted from 1, and a message with what is wrong and what would
/// be right.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> (usize, String) {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let found = text.lines().nth(line - 1).unwrap_or("").trim();
    let message = error.message();
    let explained = match message.split('`').collect::<Vec<_>>()[..] {
        ["missing field ", key, ""] => missing(key, found),
        ["unknown field ", key, _, ..] => unknown(key, message),
        _ => format!("{message}\n  {found}"),
    };
    (line, explained)
}

/// Names a missing key with its table, of which `found` is the first line, and an example.
fn missing(key: &str, found: &str) -> String {
    match key {
        // Keys of the description itself, whose first line says nothing about it.
        "name" => "`name` is missing: add name = \"my-disk\" above the first table".to_owned(),
        "description" => "`description` is missing: add description = \"what the device is, in a \
                          line\" above the first table"
            .to_owned(),
        _ => format!("`{key}` is missing in {found}; the devices of `devices/` have examples"),
    }
}

/// Names an unknown key with the one that was probably meant, or with all that are known there.
fn unknown(key: &str, message: &str) -> String {
    // serde quotes the key and each known one: every second part is a name.
    let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
    match nearest(key, known.iter().copied()) {
        Some(meant) => format!("unknown key `{key}`: did you mean `{meant}`?"),
        None => format!("unknown key `{key}`, known keys: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::catalogue::parse;

    const DISK: &str = include_str!("../../../../devices/hdd-7200-1tb.toml");

    /// Line, counted from 1, of the first occurrence of `what`.
    fn line_of(text: &str, what: &str) -> usize {
        text[..text.find(what).expect("it is there")]
            .matches('\n')
            .count()
            + 1
    }

    fn error(text: &str) -> String {
        parse(text, "my.toml").expect_err("a mistake").to_string()
    }

    #[test]
    fn a_missing_name_is_named_with_an_example() {
        let nameless = DISK.replace("name = \"hdd-7200-1tb\"\n", "");
        assert_eq!(
            error(&nameless),
            "my.toml, line 1: `name` is missing: add name = \"my-disk\" above the first table"
        );
        let described = error("name = \"x\"\n");
        assert!(
            described.starts_with("my.toml, line 1: `description` is missing: add"),
            "{described}"
        );
    }

    #[test]
    fn a_missing_key_of_a_table_is_named_with_the_table() {
        let zoneless = DISK.replace("zones = 30\n", "");
        let line = line_of(&zoneless, "[hdd]");
        assert_eq!(
            error(&zoneless),
            format!(
                "my.toml, line {line}: `zones` is missing in [hdd]; the devices of `devices/` have \
                 examples"
            )
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_the_nearest_or_all() {
        let typo = DISK.replace("zones = 30", "zoned = 30");
        let line = line_of(&typo, "zoned");
        let expected = format!("my.toml, line {line}: unknown key `zoned`: did you mean `zones`?");
        assert_eq!(error(&typo), expected);
        let strange = format!("size_of_the_box = 3\n{DISK}");
        assert_eq!(
            error(&strange),
            "my.toml, line 1: unknown key `size_of_the_box`, known keys: name, description, hdd, \
             ssd, raid0, model, cap, controller"
        );
    }

    #[test]
    fn other_mistakes_have_the_line_with_its_text() {
        let bare = DISK.replace("rotation = \"7200 rpm\"", "rotation = 7200");
        let (line, error) = (line_of(&bare, "rotation = 7200"), error(&bare));
        assert!(
            error.starts_with(&format!("my.toml, line {line}: ")),
            "{error}"
        );
        assert!(error.contains("such as \"7200 rpm\""), "{error}");
        assert!(error.ends_with("\n  rotation = 7200"), "{error}");
        let torn = super::super::parse("name = \"x", "my.toml").expect_err("no end of the text");
        assert!(torn.to_string().starts_with("my.toml, line 1: "), "{torn}");
    }
}
