//! Errors of commands, with their place and help text.

use std::fmt;
use std::path::Path;

use tidegate_api::error::{ErrorBody, Problem as ApiProblem};
use tidegate_report::{Style, printable};
use tidegate_server::backing::OpenError;
use tidegate_server::config::{ConfigErrors, Place};
use tidegate_server::daemon::StartError;
use tidegate_server::error_hints::missing_directory;
use tidegate_server::listener::BindError;
use tidegate_server::store::StoreError;
use tidegate_server::tls::TlsFileError;
use tidegate_workload::fio::FioErrors;

/// Error with its place and help text.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    at: Option<String>,
    /// Place in a configuration file.
    place: Option<Place>,
    help: Option<String>,
}

impl Problem {
    /// Creates an error with a message only.
    pub(crate) fn new(what: impl Into<String>) -> Problem {
        Problem {
            what: what.into(),
            at: None,
            place: None,
            help: None,
        }
    }

    /// Sets the field, file or option concerned.
    pub(crate) fn at(mut self, at: impl Into<String>) -> Problem {
        self.at = Some(at.into()).filter(|at| !at.is_empty());
        self
    }

    /// Sets the place in a configuration file.
    pub(crate) fn place(mut self, place: Option<&Place>) -> Problem {
        self.place = place.cloned();
        self
    }

    /// Sets the help text.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// Adds another way out to the help text.
    pub(crate) fn or_else(self, way: &str) -> Problem {
        let help = match &self.help {
            Some(help) => format!("{help}; or {way}"),
            None => way.to_owned(),
        };
        self.help(help)
    }

    /// Returns the message and the help on one line, without a full stop.
    fn sentence(&self) -> String {
        match &self.help {
            Some(help) => format!("{} ({help})", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(at) = &self.at {
            write!(f, "\n  where: {at}")?;
        }
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// Several errors, as one answer of the daemon may have.
#[derive(Debug)]
pub(crate) struct Problems(Vec<Problem>);

/// Queries and paths that the API's help names, with what to type instead. The first that fits
/// counts.
const OPTIONS_OF_QUERIES: [(&str, &str); 8] = [
    ("limit.burst = \"none\"", "--burst none"),
    ("expects.size = ", "--expect-size "),
    ("expects.size", "--expect-size"),
    (
        "lose those bytes with ?force=true",
        "lose those bytes with --shrink",
    ),
    ("?force=true", "--force"),
    ("?replace=true", "--replace"),
    (
        "GET /v1/jobs lists them",
        "`tidegate transfer list` lists them",
    ),
    (
        "GET /v1/recordings has what there is",
        "`tidegate record status` has what there is",
    ),
];
/// Keys that the API's help assigns values to and that are options of the command line.
const OPTIONS_OF_KEYS: [&str; 7] = [
    "reservation",
    "limit",
    "target",
    "weight",
    "latency",
    "deadline",
    "size",
];

/// Returns the help of an API's error in options of the command line.
fn as_options(allowed: &str) -> String {
    let mut help = allowed.to_owned();
    for (query, option) in OPTIONS_OF_QUERIES {
        help = help.replace(query, option);
    }
    for key in OPTIONS_OF_KEYS {
        let (assigned, option) = (format!("{key} = \""), format!("--{key} \""));
        // Only a whole word is a key.
        help = match help.strip_prefix(&assigned) {
            Some(rest) => format!("{option}{rest}"),
            None => help,
        };
        help = help.replace(&format!(" {assigned}"), &format!(" {option}"));
    }
    help
}

impl From<ErrorBody> for Problems {
    fn from(body: ErrorBody) -> Problems {
        let problem = |problem: ApiProblem| Problem {
            what: problem.what,
            at: Some(problem.at).filter(|at| !at.is_empty()),
            place: None,
            help: problem.allowed.map(|allowed| as_options(&allowed)),
        };
        Problems(
            [body.error]
                .into_iter()
                .chain(body.also)
                .map(problem)
                .collect(),
        )
    }
}

impl Problems {
    /// Returns true if the first error is about a field, file or option.
    pub(crate) fn is_about(&self, at: &str) -> bool {
        let first = self.0.first();
        first.is_some_and(|first| first.at.as_deref() == Some(at))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            let gap = if i > 0 { "\n\n" } else { "" };
            write!(f, "{gap}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Creates the error for a file that cannot be written, with help if its directory is missing.
pub(crate) fn cannot_write(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let problem = Problem::new(format!("cannot write {}: {error}", path.display()));
    match missing_directory(path) {
        Some(help) => problem.help(help).into(),
        None => problem.into(),
    }
}

/// Error that is in the log already and not printed once more.
#[derive(Debug)]
pub(crate) struct Logged;

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the log has the error")
    }
}

impl std::error::Error for Logged {}

/// Prints an error on standard error.
pub(crate) fn report(error: &anyhow::Error) {
    if error.is::<Logged>() {
        return;
    }
    // A closed standard error leaves no way to report, so a failure is ignored.
    let text = Style::Plain.group_digits(&text(error));
    let text = printable(&text);
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// Returns an error as a part of a sentence: its message, and its help in brackets.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let of_daemon = error
        .downcast_ref::<Problems>()
        .and_then(|all| all.0.first());
    match error.downcast_ref().or(of_daemon) {
        Some(problem) => Problem::sentence(problem),
        None => format!("{error:#}"),
    }
}

/// Returns an error as the control API has it.
pub(crate) fn for_api(error: &anyhow::Error) -> ApiProblem {
    let own = error.downcast_ref::<Problem>();
    let several = error.downcast_ref::<Problems>();
    if let Some(problem) = own.or_else(|| several?.0.first()) {
        return ApiProblem {
            what: problem.what.clone(),
            at: problem.at.clone().unwrap_or_default(),
            allowed: problem.help.clone(),
        };
    }
    ApiProblem {
        what: text(error).trim_start_matches("error: ").trim().to_owned(),
        at: String::new(),
        allowed: None,
    }
}

/// Returns the text of an error: message, causes, place and help.
pub(crate) fn text(error: &anyhow::Error) -> String {
    // A problem may be behind a context, whose text leaves out place and help.
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return format!("{problem}\n");
    }
    // Errors of these types print their own places and help.
    let speaks_for_itself =
        error.is::<Problems>() || error.is::<ConfigErrors>() || error.is::<FioErrors>();
    if speaks_for_itself {
        return format!("{error}\n");
    }
    let mut text = format!("error: {error}\n");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors include their source in their own message; do not repeat it.
        if !last.contains(&cause) {
            text.push_str(&format!("  because: {cause}\n"));
        }
        last = cause;
    }
    let help = error.chain().find_map(|cause| {
        let open = cause.downcast_ref::<OpenError>();
        let bind = cause.downcast_ref::<BindError>();
        open.and_then(OpenError::help)
            .or_else(|| bind.and_then(BindError::help))
            .or_else(|| cause.downcast_ref().and_then(StoreError::help))
            .or_else(|| {
                let tls: &TlsFileError = cause.downcast_ref()?;
                Some(tls.help().to_owned())
            })
    });
    let place = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<StartError>()?.place());
    if let Some(place) = place {
        text.push_str(&format!("  --> {place}\n"));
    }
    if let Some(help) = help {
        text.push_str(&format!("  help: {help}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_said_once() {
        let io = || std::io::Error::other("disk on fire");
        let error = Err::<(), _>(io())
            .context("cannot start")
            .expect_err("failed");
        assert_eq!(
            text(&error),
            "error: cannot start\n  because: disk on fire\n"
        );
        let error = Err::<(), _>(io())
            .context("cannot start: disk on fire")
            .expect_err("failed");
        assert_eq!(text(&error), "error: cannot start: disk on fire\n");
    }

    #[test]
    fn a_burst_in_force_is_removed_by_an_option() {
        let allowed = "lower limit, or remove the burst in force: limit.burst = \"none\"";
        let help = "lower limit, or remove the burst in force: --burst none";
        assert_eq!(as_options(allowed), help);
    }

    #[test]
    fn the_size_that_is_expected_is_an_option() {
        let allowed = "the nearest that fits: reservation = \"none\", expects.size = \"4 KiB\"";
        let help = "the nearest that fits: --reservation \"none\", --expect-size \"4 KiB\"";
        assert_eq!(as_options(allowed), help);
        assert_eq!(
            as_options("set expects.size of VM a"),
            "set --expect-size of VM a"
        );
    }

    #[test]
    fn a_problem_behind_a_context_keeps_its_place_and_help() {
        let problem = Problem::new("no answer").at("a.sock").help("start one");
        let whole = text(
            &Problem::new("no answer")
                .at("a.sock")
                .help("start one")
                .into(),
        );
        let error = anyhow::Error::from(problem).context("no answer");
        assert_eq!(text(&error), whole);
        assert!(
            whole.contains("a.sock") && whole.contains("start one"),
            "{whole}"
        );
    }

    #[test]
    fn help_of_the_api_is_given_in_options() {
        for (allowed, help) in [
            (
                "deadline = \"9 s\", or size = \"82 B\"; or ?force=true, to begin it anyway",
                "--deadline \"9 s\", or --size \"82 B\"; or --force, to begin it anyway",
            ),
            (
                "a larger size, or lose those bytes with ?force=true",
                "a larger size, or lose those bytes with --shrink",
            ),
            (
                "wait until it ends, or replace it with ?replace=true",
                "wait until it ends, or replace it with --replace",
            ),
            (
                "GET /v1/recordings has what there is",
                "`tidegate record status` has what there is",
            ),
            ("one of oltp, dss", "one of oltp, dss"),
        ] {
            assert_eq!(as_options(allowed), help);
        }
    }

    #[test]
    fn a_problem_names_its_place_and_its_remedy() {
        let problem = Problem::new("no such VM").at("vm").help("there are: oltp");
        let error = problem.into();
        assert_eq!(
            text(&error),
            "error: no such VM\n  where: vm\n  help: there are: oltp\n"
        );
        assert_eq!(sentence(&error), "no such VM (there are: oltp)");
        let error = Err::<(), _>(std::io::Error::other("disk on fire"));
        let error = error.context("cannot read").expect_err("failed");
        assert_eq!(sentence(&error), "cannot read: disk on fire");
    }
}
