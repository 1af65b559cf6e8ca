//! Style sheet of SVG documents, with a palette for light and one for dark schemes.
//!
//! The light palette is that of Okabe and Ito (Color Universal Design, 2008), which is
//! distinguishable with colour blindness; the dark one has lighter colours of the same hues. Every
//! selector starts with `.tidegate-plot`.
//!
//! Classes of series are a letter and a number: `s` is the stroke, `f` the fill and `t` the text in
//! the colour of that number, `d` the dashes; numbers are series modulo the length of the list.
//! Other classes: `ground` is the background, `level` a reference line, `stretch` a shaded range of
//! the x axis, `aside` the names of both, `band` the area between the bounds of a series, `named` a
//! line with its name at its end, `label` that name, and `note` a note about omitted data; `kept`,
//! `missed` and `stalled` are cells of a timeline of promises.

use std::fmt::Write as _;

/// Number of colours in each palette.
pub(super) const COLOURS: usize = LIGHT.len();

const LIGHT: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000",
];
const DARK: [&str; 7] = [
    "#56b4e9", "#ff8c42", "#2fd0a0", "#e8a3cc", "#9ad7ff", "#f5c04a", "#ffffff",
];
/// Dash patterns of lines, used in turn.
pub(super) const DASHES: [&str; 4] = ["none", "7 4", "2 3", "10 3 2 3"];

/// Returns the rules for both schemes; viewers without media queries use the light one.
pub(super) fn rules() -> String {
    let mut rules = String::new();
    let mut rule = |selector: &str, body: &str| {
        let _ = writeln!(rules, ".tidegate-plot {selector}{{{body}}}");
    };
    rule("text", "font:13px system-ui,sans-serif;fill:#222");
    rule(".title", "font-size:16px;font-weight:600");
    rule(".note", "fill:#8a4b00");
    rule(".ground", "fill:#fff");
    rule("path", "fill:none");
    rule(".frame", "stroke:#555");
    rule(".grid", "stroke:#e3e3e3");
    rule(".line", "stroke-width:1.8");
    rule(".named", "stroke-width:2.4;stroke-linejoin:round");
    rule(".band", "opacity:.18");
    rule(
        ".level",
        "stroke:#333;stroke-width:1.6;stroke-dasharray:6 4",
    );
    rule(".stretch", "fill:#f3efe6");
    // A halo keeps names readable where lines pass behind them.
    rule(
        ".aside",
        "fill:#333;stroke:#fff;stroke-width:3px;paint-order:stroke",
    );
    rule(".figures", "font-variant-numeric:tabular-nums");
    rule(".kept", "fill:#009e73");
    rule(".missed", "fill:#d55e00");
    rule(".stalled", "fill:#8a8f98");
    rule(".label", "font-weight:600");
    for (i, dashes) in DASHES.iter().enumerate() {
        rule(&format!(".d{i}"), &format!("stroke-dasharray:{dashes}"));
    }
    colours(&LIGHT, &mut rule);
    rules.push_str("@media (prefers-color-scheme:dark){\n");
    let mut rule = |selector: &str, body: &str| {
        let _ = writeln!(rules, ".tidegate-plot {selector}{{{body}}}");
    };
    rule("text", "fill:#ddd");
    rule(".note", "fill:#f0b860");
    rule(".ground", "fill:#16181c");
    rule(".frame", "stroke:#999");
    rule(".grid", "stroke:#33363c");
    rule(".level", "stroke:#ccc");
    rule(".stretch", "fill:#23262d");
    rule(".aside", "fill:#ccc;stroke:#16181c");
    rule(".kept", "fill:#2fd0a0");
    rule(".missed", "fill:#ff8c42");
    colours(&DARK, &mut rule);
    rules.push_str("}\n");
    rules
}

/// Adds the classes of each colour for strokes, fills and text. The three kinds of class set
/// different properties or elements, so that they can be combined.
fn colours(colours: &[&str], rule: &mut impl FnMut(&str, &str)) {
    for (i, colour) in colours.iter().enumerate() {
        rule(&format!(".s{i}"), &format!("stroke:{colour}"));
        rule(&format!(".f{i}"), &format!("fill:{colour}"));
        rule(&format!(".t{i}"), &format!("fill:{colour}"));
    }
}
