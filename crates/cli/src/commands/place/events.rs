//! Text of the driver's events.

use tidegate_cluster::{ClusterEvent, Started};
use tidegate_units::human::{bytes, duration};

/// Returns an event as one line.
pub(super) fn text(event: &ClusterEvent) -> String {
    match event {
        ClusterEvent::Placed {
            transfer,
            host,
            waited,
            class,
            started,
        } => {
            let (after, class) = (duration(waited.0), class.name());
            let started = match started {
                Started::NotAsked => String::new(),
                Started::Yes => ", and is started there".to_owned(),
                Started::Failed(error) => format!("; starting it there failed: {error}"),
                Started::LeftToDaemon(error) => {
                    format!("; its daemon has not started it yet, and tries again: {error}")
                }
            };
            format!("{transfer} goes to host {host} after {after}, I/O class {class}{started}")
        }
        ClusterEvent::NotStarted { transfer, tried_by } => {
            not_started(transfer, tried_by.as_deref())
        }
        ClusterEvent::StartLeftToDaemon {
            transfer,
            host,
            why,
        } => format!(
            "{transfer} stays on host {host}, whose daemon starts it unless it runs already: \
             {why}; `tidegate place end {transfer}` ends it"
        ),
        ClusterEvent::Discarded { transfer } => {
            format!("{transfer} waited until its deadline and is discarded")
        }
        ClusterEvent::Withdrawn { transfer } => format!("{transfer} is withdrawn"),
        ClusterEvent::DrainedDaemonUnreachable { host } => {
            format!("the daemon of the drained host {host} does not answer")
        }
        ClusterEvent::DaemonUnreachable { host } => format!(
            "the daemon of host {host} does not answer; if the host is gone: \
             `tidegate place host drain {host}`, or `remove`"
        ),
        ClusterEvent::Lost { transfer } => format!("{transfer} is lost with its host"),
        ClusterEvent::Done { transfer } => {
            format!("{transfer} has moved all of its bytes by the forecast, and is ended")
        }
        ClusterEvent::Overdue { transfer } => {
            format!("{transfer} was past its deadline and is lost with its host")
        }
        ClusterEvent::Moved {
            transfer,
            host,
            left,
            class,
        } => format!(
            "{transfer} goes to host {host} with the {} that are left, I/O class {}",
            bytes(*left),
            class.name()
        ),
        ClusterEvent::Requeued { transfer, left } => format!(
            "{transfer} waits for a host with the {} that are left",
            bytes(*left)
        ),
        ClusterEvent::Unplaced { transfer, left } => format!(
            "{transfer} is lost with its host: no other host could do the {} that are left in time",
            bytes(*left)
        ),
    }
}

fn not_started(transfer: &str, tried_by: Option<&str>) -> String {
    let tried = tried_by.map_or_else(String::new, |host| {
        format!("; the daemon of host {host} goes on trying to start it")
    });
    format!(
        "{transfer} may still be placed, for it could not be removed again{tried}: `tidegate place \
         end {transfer}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;
    use tidegate_core::transfers::Class;

    #[test]
    fn a_transfer_that_is_placed_after_a_wait_is_told_with_what_came_of_its_start() {
        let placed = |started| ClusterEvent::Placed {
            transfer: "x".to_owned(),
            host: "a".to_owned(),
            waited: Nanos::from_secs(3),
            class: Class::BestEffort,
            started,
        };
        let quiet = text(&placed(Started::NotAsked));
        assert!(quiet.starts_with("x goes to host a after 3"), "{quiet}");
        assert!(quiet.ends_with("class best-effort"), "{quiet}");
        let failed = text(&placed(Started::Failed("no VM".to_owned())));
        assert_eq!(failed, format!("{quiet}; starting it there failed: no VM"));
        let left = text(&placed(Started::LeftToDaemon("no VM".to_owned())));
        assert!(
            left.ends_with("not started it yet, and tries again: no VM"),
            "{left}"
        );
    }

    #[test]
    fn a_placement_that_is_not_removed_is_told_with_who_may_start_it() {
        let not_started = |tried_by| ClusterEvent::NotStarted {
            transfer: "x".to_owned(),
            tried_by,
        };
        let alone = text(&not_started(None));
        assert!(
            !alone.contains("daemon") && alone.contains("place end x"),
            "{alone}"
        );
        let tried = text(&not_started(Some("a".to_owned())));
        assert!(tried.contains("the daemon of host a goes on"), "{tried}");
    }
}
