//! Rates as text.

use serde_json::Value;
use tidegate_core::objective::Rate;

/// Returns a rate as it is written; `None`: it is none.
pub(super) fn said(rate: &Rate) -> Option<String> {
    (!rate.is_none()).then(|| rate.to_string())
}

/// Returns a rate as JSON has it; `null`: it is none.
pub(super) fn view(rate: &Rate) -> Value {
    said(rate).into()
}
