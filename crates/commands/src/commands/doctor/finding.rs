//! Findings: one for each check of each subject.

use std::fmt;

use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// State that Tidegate wants.
    Ok,
    /// Slower or less safe than it could be.
    Warn,
    /// The daemon would not start, or not serve a disk.
    Fail,
}

/// Check with its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    /// Result.
    pub(super) level: Level,
    /// Name of the check, such as `io_uring` or `scheduler sda`.
    pub(super) check: String,
    /// Figure or state that was found.
    pub(super) found: String,
    /// Reason why it matters.
    pub(super) why: &'static str,
    /// Command or change that mends it; absent where there is nothing to mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

impl Finding {
    /// Makes a finding that is good.
    pub(super) fn ok(
        check: impl Into<String>,
        found: impl Into<String>,
        why: &'static str,
    ) -> Finding {
        Finding {
            level: Level::Ok,
            check: check.into(),
            found: found.into(),
            why,
            mend: None,
        }
    }

    /// Makes the finding one of another level, with what mends it.
    pub(super) fn but(self, level: Level, mend: impl Into<String>) -> Finding {
        Finding {
            level,
            mend: Some(mend.into()),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        writeln!(f, "{level:<5} {}: {}", self.check, self.found)?;
        if self.level == Level::Ok {
            return Ok(());
        }
        writeln!(f, "      why:  {}", self.why)?;
        match &self.mend {
            Some(mend) => writeln!(f, "      mend: {mend}"),
            None => Ok(()),
        }
    }
}
