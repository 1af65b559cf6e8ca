//! Wording that several commands share.

use tidegate_api::objective::ObjectiveView;
use tidegate_api::policy::PolicyView;
use tidegate_api::vm::PartView;
use tidegate_config::diagnostic::one_of;
use tidegate_report::{Cell, Tone};

/// Returns a weight as text: `100`, or `100 (in group qfs, weight 200)`.
pub(super) fn weight(objective: &ObjectiveView) -> String {
    match &objective.group {
        Some(group) => format!(
            "{} (in group {}, weight {})",
            objective.weight, group.name, group.weight
        ),
        None => objective.weight.to_string(),
    }
}

/// Returns a warning: `policy fifo does not enforce reservation (120 IOPS); policy "mclock" does`.
pub(super) fn not_enforced(policy: &str, part: &PartView) -> Cell {
    let advice = match part.enforced_by.as_slice() {
        [] => "no policy does yet".to_owned(),
        names => format!("policy {} does", one_of(names.iter().map(String::as_str))),
    };
    let text = format!(
        "policy {policy} does not enforce {} ({}); {advice}",
        part.part, part.value
    );
    Cell::from(text).tone(Tone::Warn)
}

/// Returns a policy with its parts: `mclock (regulator open, dispatcher mclock)`.
pub(super) fn with_parts(policy: &PolicyView) -> String {
    let parts = parts(
        policy.controller.as_deref(),
        &policy.regulator,
        &policy.dispatcher,
    );
    format!("{} ({parts})", policy.name)
}

/// Returns the parts of a policy: `controller tuner, regulator open, dispatcher mclock`.
pub(super) fn parts(controller: Option<&str>, regulator: &str, dispatcher: &str) -> String {
    let controller = controller
        .map(|name| format!("controller {name}, "))
        .unwrap_or_default();
    format!("{controller}regulator {regulator}, dispatcher {dispatcher}")
}

/// Returns the names of enforced parts of an objective, or `nothing`.
pub(super) fn enforces(parts: &[String]) -> String {
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}
