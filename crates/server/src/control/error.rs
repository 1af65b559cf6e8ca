//! Error answers of the API: status and body.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_api::error::{ErrorBody, Problem};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Transfer;

use crate::command::CommandError;
use crate::config::ConfigErrors;
use crate::daemon::ControlError;

/// Error answer of the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) body: ErrorBody,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        what: impl Into<String>,
        at: impl Into<String>,
    ) -> ApiError {
        let error = Problem {
            what: what.into(),
            at: at.into(),
            allowed: None,
        };
        ApiError {
            status,
            body: ErrorBody {
                error,
                also: Vec::new(),
            },
        }
    }

    pub(crate) fn allowing(mut self, allowed: impl Into<String>) -> ApiError {
        self.body.error.allowed = Some(allowed.into());
        self
    }

    /// Returns the error 404 for a name that does not exist, with the names that do.
    pub(crate) fn not_found(kind: &str, name: &str, known: &[String]) -> ApiError {
        let called = if kind == "vm" { "VM" } else { kind };
        let what = format!("there is no {called} {name:?}");
        ApiError::new(StatusCode::NOT_FOUND, what, kind)
            .allowing(format!("there are: {}", known.join(", ")))
    }

    /// Returns the error for a change or question that the daemon or an event loop refused.
    pub(crate) fn control(error: &ControlError, at: &str) -> ApiError {
        let status = match error {
            ControlError::UnknownDevice(_) | ControlError::UnknownVm(_) => StatusCode::NOT_FOUND,
            ControlError::Refused(
                CommandError::UnknownVm(_)
                | CommandError::UnknownDisk { .. }
                | CommandError::UnknownExport(_)
                | CommandError::NoTransfer(_)
                | CommandError::UnknownFault(_),
            ) => StatusCode::NOT_FOUND,
            ControlError::Refused(_)
            | ControlError::Taken { .. }
            | ControlError::LastDisk(_)
            | ControlError::NoStore
            | ControlError::Recording(_)
            | ControlError::Configured(_)
            | ControlError::Learnt { .. }
            | ControlError::Disk { .. } => StatusCode::CONFLICT,
            ControlError::NotAllowed(_) => StatusCode::FORBIDDEN,
            ControlError::Store { .. } | ControlError::NotDurable(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            ControlError::Gone(_) | ControlError::GaveUp { .. } => StatusCode::SERVICE_UNAVAILABLE,
        };
        let api = ApiError::new(status, error.to_string(), at);
        match error {
            ControlError::Disk {
                help: Some(help), ..
            }
            | ControlError::Learnt {
                help: Some(help), ..
            }
            | ControlError::Store {
                help: Some(help), ..
            } => api.allowing(help),
            ControlError::NoStore => {
                api.allowing("add [store] with path = \"/var/lib/tidegate/tidegate.redb\" to it")
            }
            ControlError::Configured(_) => api.allowing(
                "remove it from the configuration; without persist it is removed until then",
            ),
            ControlError::GaveUp { .. } => api.allowing(
                "check the file system of that path and try again; other changes are not blocked",
            ),
            ControlError::NotDurable(_) => api.allowing("check the file system that holds it"),
            ControlError::LastDisk(_) => api.allowing("remove the VM"),
            ControlError::Refused(refused) => match refusal_help(refused) {
                Some(help) => api.allowing(help),
                None => api,
            },
            _ => api,
        }
    }
}

/// Returns what can be done about a refusal of an event loop; `None`: nothing is known.
fn refusal_help(error: &CommandError) -> Option<String> {
    let help = match error {
        CommandError::InUse(_) => "disconnect them, or cut them off with ?force=true",
        CommandError::HasTransfer { .. } => "wait until it ends, or replace it with ?replace=true",
        CommandError::TransferTooMuch {
            most,
            bytes,
            deadline,
            ..
        } => return Some(smaller_transfer(*most, *bytes, *deadline)),
        // In MiB, rounded down, so that the suggested size fits.
        CommandError::NoRoom(room) if room.largest >> 20 > 0 => {
            return Some(format!("at most {} MiB", room.largest >> 20));
        }
        CommandError::NoRoom(_) => "remove a disk, or use another device",
        CommandError::Unmeasured => {
            "deadline = \"60 s\": the device is measured while transfers run"
        }
        CommandError::NoTransfer(_) => "a VM with a transfer in progress: GET /v1/jobs lists them",
        CommandError::Shrinks { .. } => "a larger size, or lose those bytes with ?force=true",
        _ => return None,
    };
    Some(help.to_owned())
}

/// Number of times that a transfer may have to be smaller, or its deadline later, and still have
/// an alternative in that.
const FEWER_MAX: u64 = 100;
/// Later deadline, in seconds, up to which it is named however much later it is.
const LONGER_MAX_S: u64 = 3600;

/// Formats a time of whole seconds in the unit that people use, rounded up.
fn whole_time(seconds: u64) -> String {
    match seconds {
        0..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// Formats a size in a decimal unit, as bandwidths are, rounded down to three digits at least.
fn whole_bytes(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let unit = units.iter().find(|(scale, _)| bytes / scale >= 100);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(scale, unit)| format!("{} {unit}", bytes / scale),
    )
}

/// Returns the alternatives to a transfer of `bytes` bytes that does not fit by `deadline`: a later
/// deadline, or fewer bytes, at the rate `most` in bytes per second that fits. None of them is
/// named if they are more than [`FEWER_MAX`] times and [`LONGER_MAX_S`] away: nobody means that.
fn smaller_transfer(most: u64, bytes: u64, deadline: Nanos) -> String {
    let force = "?force=true, to begin it anyway";
    let smaller = u128::from(most) * u128::from(deadline.0) / u128::from(Nanos::SECOND.0);
    // Beyond 64 bits everything that can be asked for fits, so the maximum is as good.
    let smaller = u64::try_from(smaller).unwrap_or(u64::MAX);
    if most == 0 {
        return force.to_owned();
    }
    let transfer = Transfer {
        bytes,
        begun: Nanos::ZERO,
        deadline,
        moved: 0,
    };
    // Rounded up to whole seconds, so that the deadline fits as it is written.
    let longer = transfer.latency(most).0.div_ceil(Nanos::SECOND.0);
    if smaller < bytes / FEWER_MAX && longer > LONGER_MAX_S {
        return format!("lower the promise that is in the way; or {force}");
    }
    format!(
        "deadline = \"{}\", or size = \"{}\"; or {force}",
        whole_time(longer),
        whole_bytes(smaller)
    )
}

impl From<ConfigErrors> for ApiError {
    fn from(errors: ConfigErrors) -> ApiError {
        let mut problems = errors.0.into_iter().map(|diagnostic| Problem {
            what: diagnostic.what,
            at: diagnostic.field,
            allowed: diagnostic.allowed,
        });
        let error = problems.next().unwrap_or_else(|| Problem {
            what: "refused".to_owned(),
            at: String::new(),
            allowed: None,
        });
        let body = ErrorBody {
            error,
            also: problems.collect(),
        };
        ApiError {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            body,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        json(self.status, &self.body)
    }
}

/// Returns an answer in JSON that ends with a newline, for terminals.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_string_pretty(body) {
        Ok(text) => (status, [(CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
