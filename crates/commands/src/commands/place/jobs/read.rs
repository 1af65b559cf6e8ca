//! Reader of jobs, one a line, in JSON or TOML.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use tidegate_config::{ConfigErrors, Field, Section, document};
use tidegate_core::time::Nanos;
use tidegate_place::Request;

use crate::commands::place::request;
use crate::problem::Problem;

/// Name of standard input on the command line.
const STANDARD_INPUT: &str = "-";
/// Maximum size of standard input in bytes, as of a file.
const INPUT_MAX: u64 = 16 << 20;

/// Job of a line.
#[derive(Debug)]
pub(super) struct Job {
    /// Name; `None`: the next one of `job-1`, `job-2` and so on.
    pub(super) name: Option<String>,
    pub(super) request: Request,
    /// True if it is to be started on its host's daemon.
    pub(super) start: bool,
}

/// Values of a line.
struct Line {
    name: Option<String>,
    size: u64,
    deadline: Nanos,
    limit: Option<u64>,
    start: bool,
}

/// Reads all jobs of a file, or of standard input.
pub(super) fn read(file: &Path) -> Result<Vec<Job>> {
    if file != Path::new(STANDARD_INPUT) {
        let text = document::read_text(file).map_err(|what| Problem::new(what).at("FILE"))?;
        return jobs(&text, &file.display().to_string());
    }
    let mut text = String::new();
    let mut input = std::io::stdin().take(INPUT_MAX + 1);
    let read = input.read_to_string(&mut text);
    read.map_err(|error| Problem::new(error.to_string()).at("standard input"))?;
    if text.len() as u64 > INPUT_MAX {
        let problem = Problem::new("more than 16 MiB of jobs").at("standard input");
        return Err(problem.help("place them in parts").into());
    }
    jobs(&text, "standard input")
}

fn jobs(text: &str, file: &str) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut names = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{file}:{number}");
        let at = |problem: Problem| problem.at(place.clone());
        let line = parse(line, file, number)?;
        if let Some(name) = &line.name
            && let Some(first) = names.insert(name.clone(), number)
        {
            let problem = Problem::new(format!("job {name:?} is also on line {first}"));
            return Err(at(problem.help("give each job a name of its own")).into());
        }
        if line.start && line.name.is_none() {
            let problem = Problem::new("a job that is started needs a name");
            return Err(at(problem.help("add the name of its VM: name = \"VM\"")).into());
        }
        let request = request(line.size, line.deadline, line.limit, &place)?;
        jobs.push(Job {
            name: line.name,
            request,
            start: line.start,
        });
    }
    if jobs.is_empty() {
        let problem = Problem::new("there are no jobs").at(file);
        let help = "write one a line: name = \"backup\", size = \"2 GiB\", deadline = \"60 s\"";
        return Err(problem.help(help).into());
    }
    Ok(jobs)
}

fn parse(line: &str, file: &str, number: usize) -> Result<Line> {
    // A table in JSON begins with a quoted key, or is empty.
    let is_json = line
        .strip_prefix('{')
        .is_some_and(|rest| rest.trim_start().starts_with(['"', '}']));
    if is_json || !line.contains('=') {
        let place = format!("{file}:{number}");
        let json = serde_json::from_str(line).map_err(|error| {
            let problem = Problem::new(format!("not a job in JSON: {error}")).at(place.clone());
            problem.help(r#"such as {"name": "backup", "size": "2 GiB", "deadline": "60 s"}"#)
        })?;
        return Ok(document::read_json(&json, &place, table)?);
    }
    let braced = line.starts_with('{');
    let table = if braced {
        line.to_owned()
    } else {
        format!("{{ {line} }}")
    };
    let text = format!("job = {table}");
    if let Ok(loaded) = document::read(&text, file, in_toml) {
        return Ok(loaded.config);
    }
    // Lines in front of it, so that messages have its number.
    let before = "\n".repeat(number - 1);
    let loaded: Result<_, ConfigErrors> = document::read(&(before + &text), file, in_toml);
    Ok(loaded?.config)
}

fn in_toml(root: &Field<'_>) -> Option<Line> {
    let mut section = Section::open(root)?;
    let job = section.need("job", "a job in braces")?;
    section.finish();
    table(&job)
}

fn table(field: &Field<'_>) -> Option<Line> {
    let mut section = Section::open(field)?;
    let name = section.read("name", None, |field| {
        let text = field.text()?;
        if text.is_empty() {
            field.error("the name is empty", "leave it out for a generated one");
            return None;
        }
        Some(Some(text.to_owned()))
    });
    let size = section.need("size", "the amount of data: size = \"2 GiB\"");
    let size = size.and_then(|field| field.bytes(1..=u64::MAX));
    let deadline = section.need("deadline", "from its start: deadline = \"60 s\"");
    let deadline = deadline.and_then(|field| field.duration(Nanos(1)..=Nanos::MAX));
    let limit = section.read("limit", None, |field| {
        field.bandwidth(1..=u64::MAX).map(Some)
    });
    let start = section.read("start", false, Field::flag);
    section.finish();
    Some(Line {
        name: name?,
        size: size?,
        deadline: deadline?,
        limit: limit?,
        start: start?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        jobs(text, "jobs").map(|_| ()).expect_err(text).to_string()
    }

    #[test]
    fn lines_in_json_and_toml_are_jobs() {
        let text = "# nightly\n{\"name\": \"a=b\", \"size\": \"2 GB\", \"deadline\": \"60 s\"}\n\n\
                    name = \"c\", size = \"3 GB\", deadline = \"1 h\", limit = \"20 MB/s\"\n\
                    { size = \"1 B\", deadline = \"1 s\" }\n";
        let read = jobs(text, "jobs").expect("three jobs");
        let names: Vec<_> = read.iter().map(|job| job.name.as_deref()).collect();
        assert_eq!(names, [Some("a=b"), Some("c"), None]);
        let limited = Request::new(3_000_000_000, Nanos::from_secs(3_600))
            .and_then(|request| request.limited(20_000_000));
        assert_eq!(Ok(read[1].request), limited);
        assert!(!read[1].start);
    }

    #[test]
    fn a_wrong_line_is_named_with_what_would_be_right() {
        let good = "size = \"1 GB\", deadline = \"1 h\"\n";
        for (line, parts) in [
            ("size = \"1 GB\"", ["jobs:2", "`deadline` is missing"]),
            (
                "size = 1, deadline = \"1 h\"",
                ["jobs:2", "unit is missing"],
            ),
            ("{\"size\": \"1 GB\"}", ["jobs:2", "`deadline` is missing"]),
            ("{\"size\": ", ["jobs:2", "not a job in JSON"]),
            ("backup", ["jobs:2", "such as {\"name\""]),
            (
                "size = \"1 GB\", deadlin = \"1 h\"",
                ["jobs:2", "did you mean `deadline`?"],
            ),
            (
                "size = \"1 GB\", deadline = \"1 s\", limit = \"1 MB/s\"",
                ["jobs:2", "shortest deadline with this limit is 1000 s"],
            ),
            (
                "start = true, size = \"1 GB\", deadline = \"1 s\"",
                ["jobs:2", "needs a name"],
            ),
        ] {
            let message = refusal(&format!("{good}{line}\n{good}"));
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
        let named = format!("name = \"x\", {good}");
        let message = refusal(&format!("{named}{named}"));
        assert!(
            message.contains("jobs:2") && message.contains("on line 1"),
            "{message}"
        );
        assert!(refusal("# nothing\n").contains("there are no jobs"));
    }
}
