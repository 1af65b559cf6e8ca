//! Reports as one HTML page without external resources: no scripts, fonts, images or links to
//! other files. The page follows the reader's light or dark scheme and prints.
//!
//! A page has sections of text, tables ([`Table`]), plots ([`Plot`], [`Pairs`], [`Bars`],
//! [`Intervals`], [`Timeline`]) and folded parts.
//! Its content security policy forbids to load anything.

use std::fmt::Write as _;

use crate::matrix::{self, Matrix};
use crate::plot::{Bars, Chart, Intervals, Pairs, Plot, Timeline, embedded, escape, style_sheet};
use crate::style::{Style, Tone, one_line};
use crate::table::{Align, Cell, Row, Table};

/// HTML page that is written section by section.
///
/// ```
/// use tidegate_report::{Align, Page, Table};
///
/// let mut table = Table::new([("VM", Align::Left), ("IOPS", Align::Right)]);
/// table.row(["oltp", "120"]);
/// let mut page = Page::new("Report");
/// page.section("results", "Results").table("vms", &table);
/// let html = page.finish();
/// assert!(html.contains("<table id=\"vms\">") && html.ends_with("</html>\n"));
/// ```
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    /// Ids and headings of sections, for the list of contents.
    sections: Vec<(String, String)>,
    body: String,
    /// `true` if a section is open.
    is_open: bool,
}

impl Page {
    /// Creates a page without sections.
    pub fn new(title: &str) -> Page {
        Page {
            title: one_line(title),
            sections: Vec::new(),
            body: String::new(),
            is_open: false,
        }
    }

    /// Begins a section. The `id` is for links to it, of letters, digits and hyphens.
    ///
    /// # Panics
    /// If the id has other characters, or another section has it.
    pub fn section(&mut self, id: &str, heading: &str) -> &mut Page {
        let known = self.sections.iter().any(|(known, _)| known == id);
        assert!(is_id(id) && !known, "section id {id:?}");
        self.close();
        let heading = one_line(heading);
        let text = escape(&heading);
        let _ = writeln!(self.body, "<section id=\"{id}\">\n<h2>{text}</h2>");
        self.sections.push((id.to_owned(), heading));
        self.is_open = true;
        self
    }

    fn close(&mut self) {
        if self.is_open {
            self.body.push_str("</section>\n");
            self.is_open = false;
        }
    }

    /// Adds a heading within a section.
    pub fn heading(&mut self, text: &str) -> &mut Page {
        let _ = writeln!(self.body, "<h3>{}</h3>", line(text));
        self
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Page {
        let _ = writeln!(self.body, "<p>{}</p>", line(text));
        self
    }

    /// Adds preformatted text, such as a command.
    pub fn preformatted(&mut self, text: &str) -> &mut Page {
        let lines: Vec<String> = text.lines().map(line).collect();
        let _ = writeln!(self.body, "<pre>{}</pre>", lines.join("\n"));
        self
    }

    /// Adds a table; wide ones scroll by themselves. The `id` is that of the element; an empty one
    /// is none.
    ///
    /// # Panics
    /// If the id has other characters than letters, digits and hyphens.
    pub fn table(&mut self, id: &str, table: &Table) -> &mut Page {
        assert!(id.is_empty() || is_id(id), "table id {id:?}");
        let id = match id {
            "" => String::new(),
            id => format!(" id=\"{id}\""),
        };
        let _ = writeln!(self.body, "<div class=\"wide\"><table{id}>");
        write_rows(table, &mut self.body);
        self.body.push_str("</table></div>\n");
        self
    }

    /// Adds a plot of curves.
    pub fn plot(&mut self, plot: &Plot) -> &mut Page {
        self.figure(&embedded(plot))
    }

    /// Adds plots of curves side by side, as many as there is room for. They should be compact.
    pub fn plots(&mut self, plots: &[Plot]) -> &mut Page {
        self.body.push_str("<div class=\"plots\">\n");
        for plot in plots {
            self.plot(plot);
        }
        self.body.push_str("</div>\n");
        self
    }

    /// Adds a chart of pairs.
    pub fn pairs(&mut self, pairs: &Pairs) -> &mut Page {
        self.figure(&pairs.embedded())
    }

    /// Adds a matrix of shares, with an id for its element.
    ///
    /// # Panics
    /// If the id has other characters than letters, digits and hyphens, or none.
    pub fn matrix(&mut self, id: &str, matrix: &Matrix) -> &mut Page {
        assert!(is_id(id), "matrix id {id:?}");
        matrix.write(id, &mut self.body);
        self
    }

    /// Adds a chart of bars.
    pub fn bars(&mut self, bars: &Bars) -> &mut Page {
        self.figure(&bars.embedded())
    }

    /// Adds a chart of means with their intervals.
    pub fn intervals(&mut self, intervals: &Intervals) -> &mut Page {
        self.figure(&intervals.embedded())
    }

    /// Adds a timeline of promises.
    pub fn timeline(&mut self, timeline: &Timeline) -> &mut Page {
        self.figure(&timeline.embedded())
    }

    fn figure(&mut self, svg: &str) -> &mut Page {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
        self
    }

    /// Adds a part that is folded until its summary is clicked. The summary is a word in a tone,
    /// and text; `content` writes the part.
    pub fn folded(
        &mut self,
        (tone, word): (Tone, &str),
        summary: &str,
        content: impl FnOnce(&mut Page),
    ) -> &mut Page {
        let (class, word) = (class(tone), line(word));
        let _ = writeln!(
            self.body,
            "<details><summary><span class=\"badge {class}\">{word}</span> {}</summary>",
            line(summary)
        );
        content(self);
        self.body.push_str("</details>\n");
        self
    }

    /// Ends the page and returns its text.
    pub fn finish(mut self) -> String {
        self.close();
        let title = escape(&self.title);
        let mut contents = String::new();
        for (id, heading) in &self.sections {
            let _ = write!(contents, "<a href=\"#{id}\">{}</a> ", escape(heading));
        }
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<nav>{contents}</nav>\n{}</main>\n</body>\n</html>\n",
            page_style(),
            self.body
        )
    }
}

/// Returns the content of the style element that every page has, for content policies that allow it
/// by its hash.
pub fn page_style() -> String {
    format!("\n{RULES}{}{}", matrix::RULES, style_sheet())
}

/// Returns text as HTML on one line, without characters that turn its direction around.
fn line(text: &str) -> String {
    escape(&one_line(text))
}

/// Returns `true` if an id has only letters, digits and hyphens, and at least one.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// Returns the class of the style sheet for a tone.
fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Normal => "normal",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Faint => "faint",
        Tone::Strong => "strong",
    }
}

/// Writes the rows of a table as HTML, headings first.
fn write_rows(table: &Table, out: &mut String) {
    // Digits are not grouped: a page is searched and copied from.
    let content = |cell: &Cell| escape(&Style::Plain.group_digits(cell.text()));
    let row = |out: &mut String, tag: &str, cells: &[Cell]| {
        out.push_str("<tr>");
        for (n, align) in table.aligns().iter().enumerate() {
            let number = match align {
                Align::Left => "",
                Align::Right => " number",
            };
            // Rows may have fewer cells than the table has columns.
            let (class, text) = match cells.get(n) {
                Some(cell) => (class(cell.tone_of()), content(cell)),
                None => ("normal", String::new()),
            };
            let scope = if tag == "th" { " scope=\"col\"" } else { "" };
            let _ = write!(
                out,
                "<{tag}{scope} class=\"{class}{number}\">{text}</{tag}>"
            );
        }
        out.push_str("</tr>\n");
    };
    if let Some(headings) = table.headings() {
        row(out, "th", headings);
    }
    for cells in table.rows() {
        match cells {
            Row::Cells(cells) => row(out, "td", cells),
            Row::Line(line) => {
                let (columns, class) = (table.aligns().len(), class(line.tone_of()));
                let text = content(line);
                let _ = writeln!(
                    out,
                    "<tr><td class=\"{class}\" colspan=\"{columns}\">{text}</td></tr>"
                );
            }
        }
    }
}

/// Style sheet for both schemes and for paper.
const RULES: &str = "\
:root{--ground:#fff;--text:#1c1e21;--faint:#5f6670;--line:#d9dce1;--raised:#f5f6f8;
--good:#006b4f;--bad:#a83c00;--warn:#735700;--link:#00598a}
@media (prefers-color-scheme:dark){:root{--ground:#16181c;--text:#e2e4e8;--faint:#9aa1ab;
--line:#33363c;--raised:#1e2126;--good:#2fd0a0;--bad:#ff9a5c;--warn:#f0c560;--link:#7cc4f5}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:84rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 .8rem}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.5rem 0;max-width:46rem}
nav a{color:var(--link);margin-right:.9rem;white-space:nowrap}
pre{background:var(--raised);padding:.6rem .8rem;overflow-x:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.22rem .7rem .22rem 0;
border-bottom:1px solid var(--line);overflow-wrap:normal}
th{font-size:.82rem;color:var(--faint);font-weight:600}
.number{text-align:right;white-space:pre;padding-left:.6rem}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.faint{color:var(--faint)}
.strong{font-weight:600}
td.strong{white-space:nowrap}
figure{margin:.8rem 0;overflow-x:auto}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:0 1rem}
figure svg{max-width:100%;height:auto;display:block}
figure svg[width=\"720\"]{min-width:34rem}
details{border-bottom:1px solid var(--line);padding:.3rem 0}
summary{cursor:pointer}
details>:not(summary){margin-left:1.2rem}
.badge{display:inline-block;min-width:6.6rem;font-size:.82rem;font-weight:600}
@media (max-width:40rem){td:last-child:not(.number):not([colspan]){min-width:14rem}}
@media print{nav{display:none}main{max-width:none;padding:0}
th,.badge{font-size:inherit}h2,h3{break-after:avoid}.plots{grid-template-columns:1fr 1fr}
body{font-size:11px;-webkit-print-color-adjust:exact;print-color-adjust:exact}
figure svg[width=\"720\"]{min-width:0}
figure,tr{break-inside:avoid}details::details-content{content-visibility:visible;display:block}}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Agreement, Axis, Series, Unit};

    fn sample() -> String {
        let mut table = Table::new([("A", Align::Left), ("B", Align::Right)]);
        table.row([Cell::from("x < y").tone(Tone::Bad), "1".into()]);
        table.row(["alone"]);
        let x = Axis::linear("x", Unit::Number);
        let mut plot = Plot::new("Curve", x, Axis::linear("y", Unit::Number));
        plot.add(Series::line("one").points([(0.0, 1.0), (1.0, 2.0)]));
        let mut pairs = Pairs::new(["paper", "here"]);
        pairs.row("a", [1.0, 2.0], "1, 2", Agreement::Far);
        let mut page = Page::new("A & B");
        page.section("one", "First").table("t", &table).plot(&plot);
        page.section("two", "Second").pairs(&pairs);
        page.folded((Tone::Good, "holds"), "a claim", |page| {
            page.paragraph("because 1 < 2");
        });
        page.finish()
    }

    #[test]
    fn a_page_needs_nothing_from_outside() {
        let html = sample();
        for word in [
            "http://", "https://", "src=", "<script", "url(", "@import", "<link",
        ] {
            let mut found = html.match_indices(word).map(|(at, _)| &html[at..]);
            // The name space of SVG is a name, not an address to load from.
            let outside = found.find(|rest| !rest.starts_with("http://www.w3.org/2000/svg"));
            assert_eq!(outside, None, "{word}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn texts_are_escaped_and_sections_closed() {
        let html = sample();
        assert!(html.contains("<h1>A &amp; B</h1>"), "{html}");
        assert!(html.contains("<td class=\"bad\">x &lt; y</td><td class=\"normal number\">1</td>"));
        assert!(html.contains("because 1 &lt; 2"), "{html}");
        for tag in ["section", "table", "details", "figure", "tr", "td"] {
            let opened = html.matches(&format!("<{tag}>")).count()
                + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert_eq!(html.matches("href=\"#one\"").count(), 1);
    }

    #[test]
    fn no_text_turns_the_direction_of_others_around() {
        let hostile = "a\u{202e}b\u{2066}\r";
        let mut page = Page::new(hostile);
        page.section("one", hostile).heading(hostile);
        page.paragraph(hostile)
            .preformatted(&format!("{hostile}\nsecond"));
        page.folded((Tone::Good, hostile), hostile, |_| {});
        let html = page.finish();
        assert!(!html.contains(['\u{202e}', '\u{2066}', '\r']), "{html}");
        assert!(html.contains("<pre>a b \nsecond</pre>"), "{html}");
    }

    #[test]
    #[should_panic(expected = "section id")]
    fn a_section_has_an_id_of_its_own() {
        let mut page = Page::new("");
        page.section("one", "a").section("one", "b");
    }
}
