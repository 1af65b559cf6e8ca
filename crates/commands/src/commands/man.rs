//! `tidegate man`: manual pages of all commands, made of the grammar that prints the help.
//!
//! The command is for packages, so it is hidden. clap's generator writes the sections that follow
//! from arguments; the texts after a help, which are laid out for a terminal, are set here.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;

use crate::args;
use crate::atomic_file;

/// Name of the manual, in the headers of its pages.
const MANUAL: &str = "Tidegate Manual";

/// Section of all pages: user commands.
const SECTION: &str = "1";

/// Files that the program's page names.
const FILES: [(&str, &str); 2] = [
    (
        "/etc/tidegate/tidegate.toml",
        "configuration of the service",
    ),
    (DEFAULT_CONTROL_SOCKET, "control socket of the daemon"),
];

/// Writes a page for each command that the help shows, such as `tidegate-vm-set.1`, into a
/// directory, which is made if it is missing.
///
/// # Errors
/// If the directory or a page cannot be written.
pub(super) fn run(directory: &Path) -> Result<()> {
    let failed = || format!("cannot write manual pages to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    let mut grammar = args::command().disable_help_subcommand(true);
    grammar.build();
    write_pages(&grammar, None, directory).with_context(failed)
}

/// Writes the pages of a command and its subcommands; `parent` is the page of the command above.
fn write_pages(command: &Command, parent: Option<&str>, directory: &Path) -> Result<()> {
    let title = command.get_display_name();
    let title = title.unwrap_or_else(|| command.get_name());
    let file = directory.join(format!("{title}.{SECTION}"));
    atomic_file::write(&file, &page(command, parent))?;
    subcommands(command).try_for_each(|sub| write_pages(sub, Some(title), directory))
}

/// Returns the subcommands that the help shows.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|subcommand| !subcommand.is_hide_set())
}

/// Returns the page of a command.
fn page(command: &Command, parent: Option<&str>) -> Vec<u8> {
    let man = Man::new(command.clone())
        .section(SECTION)
        .source(concat!("tidegate ", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut page = Vec::new();
    let mut write = || {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if subcommands(command).next().is_some() {
            man.render_subcommands_section(&mut page)?;
        }
        after_options(command, parent).to_writer(&mut page)
    };
    write().expect("memory takes all of it");
    page
}

/// Returns the sections after the options: notes and examples of the help, files, other pages.
fn after_options(command: &Command, parent: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    let text = command.get_after_long_help();
    if let Some(text) = text.or_else(|| command.get_after_help()) {
        notes_and_examples(&mut roff, &text.to_string());
    }
    if parent.is_none() {
        roff.control("SH", ["FILES"]);
        for (file, what) in FILES {
            roff.control("TP", []);
            roff.text([bold(file)]);
            roff.text([roman(what)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    if let Some(parent) = parent {
        roff.text([bold(parent), roman(format!("({SECTION}),"))]);
    }
    roff.text([roman("the guides in "), bold("/usr/share/doc/tidegate")]);
    roff
}

/// Sets the text after a help: paragraphs as notes, and indented lines as they are.
fn notes_and_examples(roff: &mut Roff, text: &str) {
    let mut section = None;
    let mut as_is = false;
    for line in text.lines() {
        let indented = line.starts_with("  ");
        if as_is && !indented {
            roff.control("fi", []).control("in", []);
        }
        if matches!(line, "Examples:" | "Example:") {
            section = Some("EXAMPLES");
            roff.control("SH", section);
        } else if section.is_none() {
            section = Some("NOTES");
            roff.control("SH", section);
        }
        if indented && !as_is {
            // Lines are up to 80 columns wide, so their indent is that of the help.
            roff.control("in", ["2n"]).control("nf", []);
        }
        as_is = indented;
        match line {
            "Examples:" | "Example:" => {}
            "" => drop(roff.control("PP", [])),
            line => drop(roff.text([roman(line.strip_prefix("  ").unwrap_or(line))])),
        }
    }
    if as_is {
        roff.control("fi", []).control("in", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the names of the pages of a command and its subcommands.
    fn collect_titles(command: &Command, words: &str, titles: &mut Vec<String>) {
        titles.push(format!("{words}.{SECTION}"));
        for sub in subcommands(command) {
            collect_titles(sub, &format!("{words}-{}", sub.get_name()), titles);
        }
    }

    #[test]
    fn every_command_that_the_help_shows_has_a_page_and_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = dir.path().join("share/man1");
        run(&made).expect("it is written");
        let mut written: Vec<_> = (std::fs::read_dir(&made).expect("it is there"))
            .map(|entry| entry.expect("readable").file_name())
            .map(|name| name.into_string().expect("text"))
            .collect();
        let mut expected = Vec::new();
        collect_titles(&args::command(), "tidegate", &mut expected);
        written.sort();
        expected.sort();
        assert_eq!(written, expected);
        assert!(written.len() > 50, "{} pages", written.len());
        assert!(written.contains(&"tidegate-vm-schedule-add.1".to_owned()));
        assert!(
            !written
                .iter()
                .any(|page| page.contains("-help") || page.contains("-calculate"))
        );
    }

    #[test]
    fn a_page_has_notes_as_text_examples_as_they_are_and_the_page_above() {
        let command = Command::new("set")
            .about("Set it")
            .after_help("One.\n'Two.\n\nExamples:\n  a \\\n      --b\n\nMore.\n  c");
        let page = String::from_utf8(page(&command, Some("tidegate-vm"))).expect("text");
        let (_, rest) = page.split_once(".SH NOTES\n").expect("notes");
        let expected = [
            "One.\n\\*(AqTwo.\n.PP\n",
            ".SH EXAMPLES\n.in 2n\n.nf\na \\\\\n    \\-\\-b\n.fi\n.in\n",
            ".PP\nMore.\n.in 2n\n.nf\nc\n.fi\n.in\n",
            ".SH \"SEE ALSO\"\n\\fBtidegate\\-vm\\fR(1),\n",
        ];
        let expected = expected.concat();
        assert!(rest.starts_with(&expected), "{rest}");
        assert!(page.contains(".TH set 1  \"tidegate "), "{page}");
        assert!(!page.contains("FILES"), "{page}");
    }
}
