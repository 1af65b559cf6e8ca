//! Matrices of shares between names, as shaded tables of a page.

use std::fmt::Write as _;

use crate::plot::escape;
use crate::style::one_line;

/// Shares from which on a cell has each of the shades.
const SHADES: [f64; 5] = [0.01, 0.05, 0.15, 0.3, 0.5];

/// Table of shares: a row and a column for each name, and a darker cell for a larger share.
///
/// ```
/// use tidegate_report::{Matrix, Page};
///
/// let mut matrix = Matrix::new("behind", ["backup"]);
/// matrix.row("oltp", [Some(0.4)]);
/// let mut page = Page::new("Report");
/// page.section("matrix", "Who delayed whom").matrix("who", &matrix);
/// assert!(page.finish().contains("40 %"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix {
    corner: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Matrix {
    /// Creates a matrix with these columns; `corner` is the heading of the names of rows.
    pub fn new<S: Into<String>>(
        corner: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Matrix {
        Matrix {
            corner: one_line(corner),
            columns: columns.into_iter().map(one_line).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of shares, 0 to 1; `None` leaves a cell empty.
    ///
    /// # Panics
    /// If it has another number of cells than the matrix has columns.
    pub fn row(
        &mut self,
        name: impl Into<String>,
        shares: impl IntoIterator<Item = Option<f64>>,
    ) -> &mut Matrix {
        let shares: Vec<_> = shares.into_iter().collect();
        assert_eq!(shares.len(), self.columns.len(), "cells of a row");
        self.rows.push((one_line(name), shares));
        self
    }

    /// Writes the matrix as HTML.
    pub(crate) fn write(&self, id: &str, out: &mut String) {
        let _ = write!(
            out,
            "<div class=\"wide\"><table id=\"{id}\" class=\"matrix\">\n\
             <tr><th scope=\"col\">{}</th>",
            escape(&self.corner)
        );
        for column in &self.columns {
            let _ = write!(
                out,
                "<th scope=\"col\"><span>{}</span></th>",
                escape(column)
            );
        }
        out.push_str("</tr>\n");
        for (name, shares) in &self.rows {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(name));
            for share in shares {
                out.push_str(&cell(*share));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
    }
}

fn cell(share: Option<f64>) -> String {
    let Some(share) = share else {
        return "<td></td>".to_owned();
    };
    let shade = SHADES.iter().filter(|&&from| share >= from).count();
    let percent = 100.0 * share;
    let text = match percent {
        0.0 => "0".to_owned(),
        ..1.0 => "&lt;1 %".to_owned(),
        _ => format!("{percent:.0} %"),
    };
    format!("<td class=\"number shade-{shade}\">{text}</td>")
}

/// Style sheet of matrices. Text stays readable on every shade.
pub(crate) const RULES: &str = "\
.matrix th span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:12rem}
.matrix th{vertical-align:bottom}
.matrix th[scope=row]{font-size:inherit;color:inherit;white-space:nowrap}
.matrix td,.matrix th[scope=row]{border:1px solid var(--line);padding:.22rem .5rem}
.shade-1{background:rgba(213,94,0,.08)}.shade-2{background:rgba(213,94,0,.16)}
.shade-3{background:rgba(213,94,0,.28)}.shade-4{background:rgba(213,94,0,.4)}
.shade-5{background:rgba(213,94,0,.55)}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_shares_are_darker_and_names_are_text() {
        let mut matrix = Matrix::new("<i>", ["\"onload=", "b"]);
        matrix.row("<script>", [Some(0.004), Some(0.6)]);
        matrix.row("c", [None, Some(0.0)]);
        let mut html = String::new();
        matrix.write("who", &mut html);
        roxmltree::Document::parse(&html).expect("well-formed");
        assert!(
            html.contains("&lt;script&gt;") && html.contains("&quot;onload="),
            "{html}"
        );
        for cell in [
            "<td class=\"number shade-0\">&lt;1 %</td>",
            "<td class=\"number shade-5\">60 %</td>",
            "<td></td><td class=\"number shade-0\">0</td>",
            "<th scope=\"col\"><span>b</span></th>",
            "<th scope=\"row\">c</th>",
        ] {
            assert!(html.contains(cell), "{cell}: {html}");
        }
    }
}
