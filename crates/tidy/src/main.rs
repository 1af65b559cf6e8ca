//! Command `cargo run -p tidy`: findings of the rules, and figures of the debts.

use std::{env, fs, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};
use tidy::{Debts, Workspace, check};

const USAGE: &str = "\
usage: cargo run -p tidy [-- --lower | --list]

  (no option)  print findings that crates/tidy/debts.txt does not accept, and accepted
               findings that are gone
  --lower      write lower figures to crates/tidy/debts.txt; no figure rises
  --list       print every finding in the format of crates/tidy/debts.txt";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("crates/tidy/debts.txt");
    let findings = check(&Workspace::read(&root)?);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()));
    // Not an error yet: --list works without a readable file, to write the first one.
    let debts = text.and_then(|text| Debts::parse(&text));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--list"] => {
            print!("{}", Debts::from_findings(&findings));
            return Ok(ExitCode::SUCCESS);
        }
        ["--lower"] => {
            let lower = debts?.lower(&findings);
            fs::write(&file, lower.to_string())
                .with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(report(&lower, &findings));
        }
        _ => bail!("{USAGE}"),
    }
    Ok(report(&debts?, &findings))
}

/// Prints the findings that are not accepted, and the number of accepted ones of each rule.
fn report(debts: &Debts, findings: &[tidy::Finding]) -> ExitCode {
    let problems = debts.compare(findings);
    for problem in &problems {
        println!("{problem}\n");
    }
    println!("{}", debts.summary());
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
