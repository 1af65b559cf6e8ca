//! How things are put into words that several commands use.

use tidegate_api::objective::ObjectiveView;
use tidegate_api::policy::PolicyView;
use tidegate_api::vm::PartView;
use tidegate_report::{Cell, Tone};

/// A weight: `100`, or `100 of qfs, which has 200`.
pub(super) fn weight(objective: &ObjectiveView) -> String {
    match &objective.group {
        Some(group) => format!(
            "{} of {}, which has {}",
            objective.weight, group.name, group.weight
        ),
        None => objective.weight.to_string(),
    }
}

/// `policy fifo enforces no reservation (120 IOPS); policy "mclock" would`.
pub(super) fn not_enforced(policy: &str, part: &PartView) -> Cell {
    let would = match part.enforced_by.as_slice() {
        [] => "no policy does yet".to_owned(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            format!("policy {} would", names.join(" or "))
        }
    };
    let text = format!(
        "policy {policy} enforces no {} ({}); {would}",
        part.part, part.value
    );
    Cell::from(text).tone(Tone::Warn)
}

/// `mclock (open, then mclock)`.
pub(super) fn with_parts(policy: &PolicyView) -> String {
    let parts = parts(
        policy.controller.as_deref(),
        &policy.regulator,
        &policy.dispatcher,
    );
    format!("{} ({parts})", policy.name)
}

pub(super) fn parts(controller: Option<&str>, regulator: &str, dispatcher: &str) -> String {
    let controller = controller
        .map(|name| format!("controller {name}, "))
        .unwrap_or_default();
    format!("{controller}regulator {regulator}, dispatcher {dispatcher}")
}

pub(super) fn enforces(parts: &[String]) -> String {
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}
