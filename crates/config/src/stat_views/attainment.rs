//! Conversion of attainment into a type of the control API, with the verdict for people.

use tidegate_api::attainment::{AttainmentView, BudgetView, CausesView};
use tidegate_core::attainment::{Cause, Part, PartAttainment, Window};
use tidegate_core::time::Nanos;
use tidegate_units::human;

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

/// Returns the verdict for people: in how many seconds or transfers a promise was kept or missed,
/// by how much, and the main cause.
pub fn detail(attainment: &PartAttainment) -> String {
    let (judged, missed) = (attainment.judged(), attainment.missed());
    let unit = match (attainment.part, judged) {
        (Part::Transfer, 1) => "transfer",
        (Part::Transfer, _) => "transfers",
        _ => "s",
    };
    let mut text = match (judged, missed) {
        (0, _) => "nothing to judge yet".to_owned(),
        (1, 0) => format!("in 1 {unit}"),
        (_, 0) => format!("in all {judged} {unit}"),
        _ => {
            let cause = attainment.main_cause().map_or("", word);
            let worst = worst(attainment);
            format!("missed in {missed} of {judged} {unit}, {worst}: {cause}")
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

/// Returns the worst miss for people.
fn worst(attainment: &PartAttainment) -> String {
    match (attainment.part, attainment.worst) {
        (Part::Limit, beyond) => format!("up to {} above the limit", excess(beyond)),
        // Lateness is known once a request is answered, but its second is missed before that.
        (_, Nanos::ZERO) => "late requests not answered yet".to_owned(),
        (_, late) => format!("up to {} late", human::duration(late.0)),
    }
}

/// Returns what passed beyond a limit in one second, given as the time that it takes at the limit's
/// rate, in percent of the rate. Rounded up, so that no excess is shown as 0 %.
fn excess(beyond: Nanos) -> String {
    // A thousandth of a second at the rate is a tenth of a percent of what a second allows.
    let tenths = beyond.0.div_ceil(Nanos::from_millis(1).0);
    match tenths {
        0..100 => format!("{}.{} %", tenths / 10, tenths % 10),
        _ => format!("{} %", tenths.div_ceil(10)),
    }
}

/// Returns a cause of missed seconds for people.
fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::OwnLimit => "throttled by its own limit",
        Cause::Others => "other VMs were served",
        Cause::Device => "the device was too slow",
        Cause::Policy => "the policy did not hold it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_judged(part: Part) -> PartAttainment {
        PartAttainment {
            part,
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
        }
    }

    #[test]
    fn a_verdict_says_how_often_by_how_much_and_why() {
        let mut attainment = nothing_judged(Part::Latency);
        assert_eq!(detail(&attainment), "nothing to judge yet");
        attainment.kept_s = 98;
        assert_eq!(detail(&attainment), "in all 98 s");
        attainment.missed_s[Cause::Others as usize] = 2;
        attainment.worst = Nanos(7_123_456);
        attainment.stalled_s = 1;
        assert_eq!(
            detail(&attainment),
            "missed in 2 of 100 s, up to 7.12 ms late: other VMs were served; 1 s more in which \
             the device stalled"
        );
        let view = view(&attainment);
        assert_eq!((view.kept, view.missed_by_cause.others), (Some(false), 2));
        assert_eq!(view.kept_percent, Some(98.0));
    }

    #[test]
    fn a_limit_is_exceeded_by_a_part_of_it_and_not_late() {
        let mut limit = nothing_judged(Part::Limit);
        limit.kept_s = 1;
        limit.missed_s[Cause::Policy as usize] = 9;
        for (beyond, shown) in [
            (Nanos(1), "0.1 %"),
            (Nanos::from_millis(99), "9.9 %"),
            (Nanos(99_000_001), "10 %"),
            (Nanos::from_millis(6_120), "612 %"),
        ] {
            limit.worst = beyond;
            let expected = format!(
                "missed in 9 of 10 s, up to {shown} above the limit: the policy did not hold it"
            );
            assert_eq!(detail(&limit), expected);
        }
    }

    #[test]
    fn requests_that_hang_are_not_said_to_be_late_by_no_time() {
        let mut floor = nothing_judged(Part::Reservation);
        floor.missed_s[Cause::Device as usize] = 3;
        assert_eq!(
            detail(&floor),
            "missed in 3 of 3 s, late requests not answered yet: the device was too slow"
        );
    }

    #[test]
    fn one_transfer_is_singular() {
        let mut transfer = nothing_judged(Part::Transfer);
        transfer.kept_s = 1;
        assert_eq!(detail(&transfer), "in 1 transfer");
        transfer.kept_s = 2;
        assert_eq!(detail(&transfer), "in all 2 transfers");
    }
}
