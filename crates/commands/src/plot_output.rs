//! Output of plots: on the terminal in its width, and as SVG files.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use tidegate_report::{Glyphs, Plot, Screen, svg};

use crate::args::PlotArgs;
use crate::atomic_file;
use crate::output::{self, Output};

/// Width in columns if standard output is not a terminal.
const WIDTH: usize = 80;

/// Draws plots on standard output, each followed by a blank line; `ascii` overrides the locale.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn draw(out: Output, plots: &[Plot], ascii: bool) -> Result<()> {
    let width = output::terminal_width().unwrap_or(WIDTH);
    let screen = Screen {
        width,
        height: (width / 4).clamp(12, 24),
        style: out.style(),
        glyphs: glyphs_of(ascii),
    };
    for plot in plots {
        out.text(&(plot.render(&screen) + "\n"))?;
    }
    Ok(())
}

/// Writes plots as one SVG document if --svg is given.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_svg(plots: &[Plot], args: &PlotArgs) -> Result<()> {
    let Some(file) = &args.svg else {
        return Ok(());
    };
    write(plots, file)
}

fn write(plots: &[Plot], file: &Path) -> Result<()> {
    atomic_file::write(file, svg(plots).as_bytes())?;
    output::tell(format_args!("wrote {}", file.display()));
    Ok(())
}

/// Returns the glyphs of this process's terminal; `ascii` overrides the locale.
pub(crate) fn glyphs_of(ascii: bool) -> Glyphs {
    match ascii {
        true => Glyphs::Ascii,
        false => glyphs(|name| std::env::var_os(name)),
    }
}

/// Returns the glyphs that the locale supports; `variable` reads an environment variable. The first
/// of LC_ALL, LC_CTYPE and LANG that is not empty counts (POSIX.1-2017, section 8.2).
fn glyphs(variable: impl Fn(&str) -> Option<OsString>) -> Glyphs {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = set.filter_map(variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") {
        Glyphs::Unicode
    } else {
        Glyphs::Ascii
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_what_a_terminal_shows() {
        for (set, expected) in [
            (&[][..], Glyphs::Ascii),
            (&[("LANG", "C")], Glyphs::Ascii),
            (&[("LANG", "en_GB.UTF-8")], Glyphs::Unicode),
            (&[("LANG", "C.utf8")], Glyphs::Unicode),
            (&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")], Glyphs::Ascii),
            (
                &[("LANG", "de_DE"), ("LC_CTYPE", "C.UTF-8")],
                Glyphs::Unicode,
            ),
            (&[("LC_ALL", ""), ("LANG", "C.UTF-8")], Glyphs::Unicode),
        ] {
            let variable = |name: &str| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(glyphs(variable), expected, "{set:?}");
        }
    }
}
