//! Errors of workloads: values that are not allowed.

use std::fmt;

/// Value that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {found}; allowed: {allowed}")]
pub struct WorkloadError {
    /// Path of the field, such as `flow.arrivals.per_s`.
    pub field: String,
    /// Value that was found.
    pub found: String,
    /// Values that are allowed.
    pub allowed: &'static str,
}

impl WorkloadError {
    pub(crate) fn new(
        field: impl Into<String>,
        found: impl fmt::Display,
        allowed: &'static str,
    ) -> WorkloadError {
        WorkloadError {
            field: field.into(),
            found: found.to_string(),
            allowed,
        }
    }
}

/// All mistakes of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadErrors {
    /// Name of the workload.
    pub workload: String,
    /// Mistakes, at least one.
    pub list: Vec<WorkloadError>,
}

impl fmt::Display for WorkloadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload {:?}:", self.workload)?;
        for mistake in &self.list {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for WorkloadErrors {}

/// Collector of mistakes, with the path of the part that is being checked.
#[derive(Default)]
pub(crate) struct Findings {
    path: Vec<&'static str>,
    list: Vec<WorkloadError>,
}

impl Findings {
    /// Runs `check` with `part` appended to the path.
    pub(crate) fn within(&mut self, part: &'static str, check: impl FnOnce(&mut Findings)) {
        self.path.push(part);
        check(self);
        self.path.pop();
    }

    /// Records the first of the properties that holds, as one that the path's last part cannot be
    /// combined with.
    pub(crate) fn expect_none(
        &mut self,
        properties: &[(bool, &'static str)],
        allowed: &'static str,
    ) {
        if let Some((_, name)) = properties.iter().find(|(holds, _)| *holds) {
            self.expect(false, "", format_args!("combined with {name}"), allowed);
        }
    }

    /// Records a mistake of `field` unless `fine` is true. Shown as `PATH.FIELD is FOUND; allowed:
    /// ALLOWED`; with an empty `field` the mistake is that of the path's last part.
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
            self.list.push(WorkloadError::new(name, found, allowed));
        }
    }

    /// Runs `check`; returns all mistakes that it finds as an error.
    pub(crate) fn collect(check: impl FnOnce(&mut Findings)) -> Result<(), Vec<WorkloadError>> {
        let mut findings = Findings::default();
        check(&mut findings);
        match findings.list {
            list if list.is_empty() => Ok(()),
            list => Err(list),
        }
    }
}
