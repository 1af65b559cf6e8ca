//! Lists of options as QEMU and Proxmox VE write them: `file=a.raw,format=raw`.

/// Option of a list: its key, and its value; an option without `=` is `on`.
pub(super) type Pair = (String, String);

/// Divides a list of options. A doubled comma is a comma in a value.
pub(super) fn options(text: &str) -> Vec<Pair> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.last_mut().expect("begins with one");
        if c != ',' {
            last.push(c);
        } else if chars.next_if_eq(&',').is_some() {
            last.push(',');
        } else {
            parts.push(String::new());
        }
    }
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (part, "on".to_owned()),
        })
        .collect()
}

/// Returns the value of the last option with a key.
pub(super) fn last<'a>(options: &'a [Pair], key: &str) -> Option<&'a str> {
    let mut matching = options.iter().rev().filter(|(name, _)| name == key);
    matching.next().map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_commas_are_part_of_a_value() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            options("file=a,,b.raw,snapshot,id=x=y,,"),
            [
                pair("file", "a,b.raw"),
                pair("snapshot", "on"),
                pair("id", "x=y,")
            ]
        );
        assert_eq!(options(""), []);
        assert_eq!(last(&options("a=1,a=2"), "a"), Some("2"));
    }
}
