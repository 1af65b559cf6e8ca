//! Targets of the Makefile and the scripts behind them, compared with the pages that name them: a
//! reader who copies a command must not meet an unknown target, script or option.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

/// Width of a terminal in which every help text must fit.
const COLUMNS: usize = 80;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Pages at the root and below `docs` and `experiments`, by path.
fn pages() -> Vec<(String, String)> {
    let root = root();
    let entries = ["docs", "experiments"].map(|folder| WalkDir::new(root.join(folder)));
    let below = entries.into_iter().flatten();
    let at_root = WalkDir::new(&root).max_depth(1);
    let paths = (at_root.into_iter().chain(below)).map(|entry| entry.expect("readable"));
    let pages = paths.filter(|entry| entry.path().extension().is_some_and(|is| is == "md"));
    let named = pages.map(|page| (page.path().display().to_string(), read(page.path())));
    named.collect()
}

/// Lines of the recipe of each target of the Makefile.
fn recipes() -> BTreeMap<String, Vec<String>> {
    let mut recipes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut target = String::new();
    for line in read(&root().join("Makefile")).lines() {
        if let Some(command) = line.strip_prefix('\t') {
            let recipe = recipes.entry(target.clone()).or_default();
            recipe.push(command.to_owned());
        } else if let Some((name, _)) = line.split_once(':') {
            target = name.to_owned();
        }
    }
    recipes
}

/// Words of this text that are the path of a program, in `scripts` or `bench`.
fn programs(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/_.-".contains(c)));
    let paths = words.map(|word| word.trim_end_matches('.'));
    let is_program = |path: &&str| {
        path.starts_with("scripts/") || (path.starts_with("bench/") && path.ends_with(".py"))
    };
    paths.filter(is_program).collect()
}

/// Options in this text, without those of single letters.
fn options(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .collect()
}

/// Commands `make TARGET ...` in code of a page: between backquotes, and in fenced lines.
fn make_commands(page: &str) -> Vec<&str> {
    // A fence is three backquotes, so that code is what follows an odd number of them.
    let code = page.split('`').skip(1).step_by(2);
    let lines = code.flat_map(str::lines).map(str::trim);
    let commands = lines.filter_map(|code| code.strip_prefix("make "));
    let is_target = |command: &&str| command.starts_with(|c: char| c.is_ascii_lowercase());
    // A comment behind a command is separated by two blanks.
    commands
        .filter(is_target)
        .map(|command| command.split("  ").next().unwrap())
        .collect()
}

/// Prints what a program says to `--help`; `None` if what runs it is not installed.
fn help(program: &str) -> Option<String> {
    // Programs of `bench` are passed to the interpreter, those of `scripts` are executable.
    let is_passed = program.ends_with(".py");
    let mut command = Command::new(if is_passed { "python3" } else { "env" });
    let run = command.args([program, "--help"]).current_dir(root());
    let output = run.env("COLUMNS", COLUMNS.to_string()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Exit status of `env` if a script's interpreter is missing.
    if output.status.code() == Some(127) {
        return None;
    }
    assert!(output.status.success(), "{program} --help: {output:?}");
    Some(text)
}

#[test]
fn pages_name_targets_and_programs_that_exist() {
    let (makefile, recipes) = (read(&root().join("Makefile")), recipes());
    assert!(
        recipes.contains_key("soak"),
        "the Makefile was not understood"
    );
    let mut wrong = Vec::new();
    let mut found = 0;
    for (page, text) in pages() {
        // The changelog also names what was removed.
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        for command in make_commands(&text) {
            let target = command.split_whitespace().next().unwrap_or_default();
            found += 1;
            if !recipes.contains_key(target) {
                wrong.push(format!("{page}: make {command}: no such target"));
            }
            let variables = command.split(' ').filter_map(|word| word.split_once('='));
            for (variable, _) in variables.filter(|(name, _)| !name.contains(['"', '-'])) {
                if !makefile.contains(variable) {
                    wrong.push(format!("{page}: make {command}: no variable {variable}"));
                }
            }
        }
        for program in programs(&text) {
            found += 1;
            if !root().join(program).exists() {
                wrong.push(format!("{page}: {program} does not exist"));
            }
        }
    }
    assert!(found > 50, "only {found} commands were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn help_of_programs_fits_a_terminal_and_has_the_options_that_pages_and_recipes_use() {
    // Recipes and other scripts call these.
    let without_help = ["scripts/engine-digest", "scripts/setup-guest"];
    let pages = pages();
    for (target, recipe) in recipes() {
        for line in &recipe {
            let mut used = options(line);
            if line.contains("$(ARGS)") {
                let commands = pages.iter().flat_map(|(_, text)| make_commands(text));
                let of_target = commands.filter(|it| it.split(' ').next() == Some(&target));
                used.extend(of_target.flat_map(options));
            }
            for program in programs(line) {
                if without_help.contains(&program) {
                    continue;
                }
                let Some(help) = help(program) else {
                    println!("skipped: {program} cannot run here");
                    continue;
                };
                for line in help.lines() {
                    assert!(line.chars().count() <= COLUMNS, "{program} --help: {line}");
                }
                for option in used.iter().filter(|option| **option != "--help") {
                    assert!(options(&help).contains(option), "{program} has no {option}");
                }
            }
        }
    }
}
