//! Records of comma-separated values (RFC 4180).

/// Formats one record, ended by a line feed. Cells are quoted where necessary.
///
/// ```
/// let cells = ["oltp", "1.5", "say \"when\", twice"];
/// assert_eq!(tidegate_report::csv_record(cells), "oltp,1.5,\"say \"\"when\"\", twice\"\n");
/// ```
pub fn csv_record<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let mut line = String::new();
    for (i, cell) in cells.into_iter().enumerate() {
        if i > 0 {
            line.push(',');
        }
        let cell = cell.as_ref();
        if cell.contains([',', '"', '\n', '\r']) {
            line.push('"');
            line.push_str(&cell.replace('"', "\"\""));
            line.push('"');
        } else {
            line.push_str(cell);
        }
    }
    line.push('\n');
    line
}
