//! Quality of a fit: residuals of models that are fitted to a paper, and their text form.

use std::fmt::Write;

/// Cell of a paper that models are fitted to, with our figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Residual {
    /// Table, row and column of the cell.
    pub(crate) cell: String,
    /// Figure of the paper.
    pub(crate) theirs: f64,
    /// Figure of the fitted model.
    pub(crate) ours: f64,
}

/// Distance of a fit: root mean square of ln(ours / theirs), 0 for a perfect one.
pub(crate) fn distance(all: &[Residual]) -> f64 {
    // Logarithms weigh a factor of two above and below alike.
    let squares = all
        .iter()
        .map(|residual| (residual.ours / residual.theirs).ln().powi(2));
    // Divided by at least 1: without residuals the distance is 0, not NaN.
    (squares.sum::<f64>() / all.len().max(1) as f64).sqrt()
}

/// Appends residuals to the text of a `calibration.toml`, our figures with `digits` decimals.
pub(crate) fn append_residuals<'a>(
    text: &mut String,
    all: impl IntoIterator<Item = &'a Residual>,
    digits: usize,
) {
    for Residual { cell, theirs, ours } in all {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\n[[residual]]\ncell = \"{cell}\"\ntheirs = {theirs}\nours = {ours:.digits$}\n"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residual(theirs: f64, ours: f64) -> Residual {
        let cell = "table 3, read".to_owned();
        Residual { cell, theirs, ours }
    }

    #[test]
    fn a_factor_of_two_up_or_down_is_the_same_distance() {
        let all = [residual(1.0, 2.0), residual(4.0, 2.0)];
        assert!((distance(&all) - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(distance(&[residual(3.0, 3.0)]), 0.0);
        assert_eq!(distance(&[]), 0.0);
    }

    #[test]
    fn residuals_are_appended_as_toml() {
        let mut text = String::new();
        append_residuals(&mut text, &[residual(64.42, 60.049)], 1);
        let expected = "\n[[residual]]\ncell = \"table 3, read\"\ntheirs = 64.42\nours = 60.0\n";
        assert_eq!(text, expected);
    }
}
