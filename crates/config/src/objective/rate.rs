//! Rates in the document's notation.

use serde_json::Value;
use tidegate_core::objective::Rate;

/// Returns a rate as text, such as `500 IOPS, 30 MB/s`; `None` for no rate.
pub(super) fn text(rate: &Rate) -> Option<String> {
    (!rate.is_none()).then(|| rate.to_string())
}

/// Returns a rate as a JSON string; `null` for no rate.
pub(super) fn view(rate: &Rate) -> Value {
    text(rate).into()
}
