//! What is wrong with a job.

use std::fmt;

/// A value that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {found}; allowed: {allowed}")]
pub struct Mistake {
    /// Which field, such as `flow.arrivals.per_s`.
    pub field: String,
    /// What it is.
    pub found: String,
    /// What it may be.
    pub allowed: &'static str,
}

impl Mistake {
    pub(crate) fn new(
        field: impl Into<String>,
        found: impl fmt::Display,
        allowed: &'static str,
    ) -> Mistake {
        Mistake {
            field: field.into(),
            found: found.to_string(),
            allowed,
        }
    }
}

/// Everything that is wrong with a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistakes {
    /// The job's name.
    pub job: String,
    /// At least one.
    pub list: Vec<Mistake>,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:?}:", self.job)?;
        for mistake in &self.list {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Collects mistakes under the path of the part that is being checked.
#[derive(Default)]
pub(crate) struct Findings {
    path: Vec<&'static str>,
    list: Vec<Mistake>,
}

impl Findings {
    /// Runs `check` with `part` added to the path.
    pub(crate) fn within(&mut self, part: &'static str, check: impl FnOnce(&mut Findings)) {
        self.path.push(part);
        check(self);
        self.path.pop();
    }

    /// Notes a mistake unless `fine`.
    pub(crate) fn expect(
        &mut self,
        fine: bool,
        field: &str,
        found: impl fmt::Display,
        allowed: &'static str,
    ) {
        if !fine {
            let mut name = self.path.join(".");
            if !name.is_empty() && !field.is_empty() {
                name.push('.');
            }
            name.push_str(field);
            self.list.push(Mistake::new(name, found, allowed));
        }
    }

    /// Runs `check`; all that it finds, if anything.
    pub(crate) fn of(check: impl FnOnce(&mut Findings)) -> Result<(), Vec<Mistake>> {
        let mut findings = Findings::default();
        check(&mut findings);
        match findings.list {
            list if list.is_empty() => Ok(()),
            list => Err(list),
        }
    }
}
