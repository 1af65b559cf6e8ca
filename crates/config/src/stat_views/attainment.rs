//! Conversion of attainment into a type of the control API, with the verdict for people.

use tidegate_api::attainment::{AttainmentView, BudgetView, CausesView};
use tidegate_core::attainment::{Cause, Part, PartAttainment, Window};
use tidegate_units::format_duration;

/// Returns the attainment of one part of an objective.
pub fn view(attainment: &PartAttainment) -> AttainmentView {
    let by = |cause: Cause| attainment.missed_s[cause as usize];
    AttainmentView {
        part: attainment.part.name().to_owned(),
        kept: attainment.is_kept(),
        kept_percent: attainment.share().map(|share| share * 100.0),
        detail: detail(attainment),
        best_effort: attainment.best_effort,
        kept_s: attainment.kept_s,
        missed_s: attainment.missed(),
        missed_by_cause: CausesView {
            own_limit: by(Cause::OwnLimit),
            others: by(Cause::Others),
            device: by(Cause::Device),
            policy: by(Cause::Policy),
        },
        stalled_s: attainment.stalled_s,
        asked_less_s: attainment.asked_less_s,
        requests: attainment.requests,
        late: attainment.late,
        worst_late_ns: attainment.worst.0,
        last_missed_ago_s: attainment.last_missed_ago_s,
        last_5_minutes: budget(&attainment.last_5_minutes),
        last_hour: budget(&attainment.last_hour),
        last_day: budget(&attainment.last_day),
    }
}

fn budget(window: &Window) -> BudgetView {
    BudgetView {
        judged_s: window.judged,
        missed_s: window.missed,
        burn_rate: window.budget_used(),
    }
}

/// Returns the verdict for people.
pub fn detail(attainment: &PartAttainment) -> String {
    let (judged, missed) = (attainment.judged(), attainment.missed());
    let unit = match attainment.part {
        Part::Transfer => "transfers",
        _ => "s",
    };
    let mut text = match (judged, missed) {
        (0, _) => "nothing to judge yet".to_owned(),
        (_, 0) => format!("in all {judged} {unit}"),
        _ => {
            let cause = attainment.main_cause().map_or("", word);
            let worst = format_duration(attainment.worst);
            format!("missed in {missed} of {judged} {unit}, up to {worst} late: {cause}")
        }
    };
    if attainment.stalled_s > 0 {
        let stalled = attainment.stalled_s;
        text.push_str(&format!("; {stalled} s more in which the device stalled"));
    }
    if attainment.best_effort {
        text.push_str("; best effort without a reservation or target");
    }
    text
}

/// Returns a cause of missed seconds for people.
fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::OwnLimit => "throttled by its own limit",
        Cause::Others => "other VMs were served",
        Cause::Device => "the device was too slow",
        Cause::Policy => "the policy exceeded the limit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;

    #[test]
    fn a_verdict_says_how_often_by_how_much_and_why() {
        let mut attainment = PartAttainment {
            part: Part::Latency,
            best_effort: false,
            kept_s: 0,
            missed_s: [0; 4],
            stalled_s: 0,
            asked_less_s: 0,
            requests: 0,
            late: 0,
            worst: Nanos::ZERO,
            last_missed_ago_s: None,
            last_5_minutes: Window::default(),
            last_hour: Window::default(),
            last_day: Window::default(),
        };
        assert_eq!(detail(&attainment), "nothing to judge yet");
        attainment.kept_s = 98;
        assert_eq!(detail(&attainment), "in all 98 s");
        attainment.missed_s[Cause::Others as usize] = 2;
        attainment.worst = Nanos::from_millis(7);
        attainment.stalled_s = 1;
        assert_eq!(
            detail(&attainment),
            "missed in 2 of 100 s, up to 7 ms late: other VMs were served; 1 s more in which \
             the device stalled"
        );
        let view = view(&attainment);
        assert_eq!((view.kept, view.missed_by_cause.others), (Some(false), 2));
        assert_eq!(view.kept_percent, Some(98.0));
    }
}
