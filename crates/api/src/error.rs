//! Body of error answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of every answer with a status of 400 or more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// First problem found.
    pub error: Problem,
    /// Further problems, in the order in which they were found; empty for most errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Problem>,
}

/// One problem of a request, or of the VM, disk or device that it names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Problem as a sentence for people.
    pub what: String,
    /// Field of the body such as `limit.burst`, part of the request (`path`, `query`, `body`), or
    /// name of the VM or disk concerned.
    #[serde(rename = "where")]
    pub at: String,
    /// Values allowed instead; `null` if there is nothing to add.
    pub allowed: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn an_error_names_its_place_as_where() {
        let problem = |allowed: Option<&str>| Problem {
            what: "500 is a bare number".to_owned(),
            at: "limit".to_owned(),
            allowed: allowed.map(str::to_owned),
        };
        let mut body = ErrorBody {
            error: problem(None),
            also: Vec::new(),
        };
        round_trip(
            &body,
            r#"{"error":{"what":"500 is a bare number","where":"limit","allowed":null}}"#,
        );
        body.also.push(problem(Some("500 IOPS")));
        let text = r#"{"what":"500 is a bare number","where":"limit","allowed":"500 IOPS"}"#;
        let also = serde_json::to_string(&body.also).expect("plain data");
        assert_eq!(also, format!("[{text}]"));
    }
}
