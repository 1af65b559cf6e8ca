//! Text that is longer than a row.

use tidegate_report::Cell;

use super::canvas::width_of;

/// Wraps a line whose last piece is too long, below where that piece begins.
pub(super) fn wrap(line: Vec<Cell>, width: usize) -> Vec<Vec<Cell>> {
    let used: usize = line.iter().map(|piece| width_of(piece.text())).sum();
    let Some((last, rest)) = line.split_last() else {
        return vec![line];
    };
    let indent: usize = rest.iter().map(|piece| width_of(piece.text())).sum();
    // Little room is left behind a long name: such a line is cut off.
    if used <= width || indent * 2 > width {
        return vec![line];
    }
    let mut lines = Vec::new();
    let mut before = rest.to_vec();
    for text in fill(last.text(), width - indent) {
        before.push(Cell::from(text).tone(last.tone_of()));
        lines.push(std::mem::replace(
            &mut before,
            vec![Cell::from(" ".repeat(indent))],
        ));
    }
    lines
}

/// Breaks text at blanks into lines of at most `width` columns; longer words have lines alone.
pub(super) fn fill(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width_of(line) + 1 + width_of(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_report::Tone;

    fn texts(lines: &[Vec<Cell>]) -> Vec<String> {
        let text = |line: &Vec<Cell>| line.iter().map(Cell::text).collect();
        lines.iter().map(text).collect()
    }

    #[test]
    fn a_long_value_goes_on_below_its_beginning() {
        let line = |value: &str| vec![Cell::from("name  "), Cell::from(value).tone(Tone::Bad)];
        assert_eq!(texts(&wrap(line("short"), 20)), ["name  short"]);
        let wrapped = wrap(line("a value of several words"), 20);
        assert_eq!(texts(&wrapped), ["name  a value of", "      several words"]);
        assert!(wrapped.iter().all(|line| line[1].tone_of() == Tone::Bad));
        assert_eq!(wrap(line("a value that is long"), 8).len(), 1, "no room");
        assert_eq!(texts(&wrap(Vec::new(), 8)), [""]);
    }
}
