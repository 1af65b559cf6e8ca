//! `/healthz`: the health of the daemon, and every [`Reason`] to look at it.
//!
//! A reason that concerns one disk, VM or medium never makes the whole daemon unhealthy: a
//! supervisor that restarted the daemon would take down every other VM. The HTTP status is 503 only
//! if the daemon itself cannot go on ([`Severity::Failing`]).

use serde::{Deserialize, Serialize};

use crate::health::{Reason, Severity};

/// Body of the response to `GET /healthz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    /// Worst severity of all reasons: `ok`, `degraded` or `failing`.
    pub status: Severity,
    /// Reasons as sentences that name their subject, for people.
    pub problems: Vec<String>,
    /// Reasons with their kind and subject, for programs; in the same order as `problems`.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

impl Health {
    /// Creates the response that gives these reasons; its status is the worst severity among them.
    pub(super) fn new(reasons: Vec<Reason>) -> Health {
        let severities = reasons.iter().map(|reason| reason.kind.severity());
        Health {
            status: severities.max().unwrap_or(Severity::Ok),
            problems: reasons.iter().map(Reason::sentence).collect(),
            reasons,
        }
    }
}
