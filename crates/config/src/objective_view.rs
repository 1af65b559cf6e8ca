//! Objectives, as text with units.

use tidegate_api::objective::{LimitView, ObjectiveView};
use tidegate_core::objective::{Limit, Objective};

use crate::objective;

/// Returns an objective as the configuration would write it, with `None` for parts that are not
/// promised.
pub fn objective_view(objective: &Objective) -> ObjectiveView {
    let words = objective::to_json(objective);
    serde_json::from_value(words).expect("the registry's words are those of the API")
}

/// Returns a limit as the configuration would write it; `None` for none.
pub fn limit_view(limit: &Limit) -> Option<LimitView> {
    let words = objective::limit::view(limit);
    serde_json::from_value(words).expect("the registry's words are those of the API")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_every_part_in_the_words_of_a_configuration() {
        let words = objective::to_json(&Objective::default());
        let view = objective_view(&Objective::default());
        assert_eq!(serde_json::to_value(&view).expect("JSON"), words);
        assert_eq!(view.weight, Objective::DEFAULT_WEIGHT);
    }

    #[test]
    fn an_objective_that_was_shown_can_be_given_back() {
        let change = serde_json::json!({
            "reservation": "120 IOPS @ 16 KiB",
            "limit": {
                "total": "500 IOPS, 40 MB/s",
                "write": "20 MB/s",
                "burst": { "total": "2000 IOPS", "length": "10 s" }
            },
            "target": "300 IOPS",
            "weight": 30,
            "group": { "name": "servers", "weight": 200 },
            "latency": "12.5 ms",
            "expects": { "reads": "70 %", "access": "12.5 % sequential", "size": "16 KiB" }
        });
        let objective = objective::merge(&Objective::default(), &change).expect("good");
        let shown = serde_json::to_value(objective_view(&objective)).expect("JSON");
        let again = objective::merge(&Objective::default(), &shown).expect("good");
        assert_eq!(again, objective);
    }
}
