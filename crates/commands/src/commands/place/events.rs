//! Text of the driver's events.

use jiff::Timestamp;
use tidegate_cluster::{ClusterEvent, Started};
use tidegate_core::time::Nanos;
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
        ClusterEvent::DaemonUnreachable { host } => unreachable(host),
        ClusterEvent::DaemonNotReached { host, why, as_of } => not_reached(host, why, *as_of),
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

/// Returns the text for the daemon of a host that has not joined, which does not answer.
fn unreachable(host: &str) -> String {
    format!(
        "the daemon of host {host} does not answer; if it runs on another machine, run this there, \
         or have it join the cluster ([cluster], docs/cluster-members.md); if the host is gone: \
         `tidegate place host drain {host}`, or `remove`"
    )
}

/// Returns the text for a daemon that is registered in the cluster and does not answer here.
fn not_reached(host: &str, why: &str, as_of: Option<Nanos>) -> String {
    let known = match as_of {
        Some(as_of) => format!("its jobs count as of {}", utc(as_of)),
        None => "no job is known there".to_owned(),
    };
    // The first line is the message; where and what to do are about sockets of this machine.
    let why = why.lines().next().unwrap_or_default();
    let why = why.trim_start_matches("error: ");
    format!("the daemon of host {host} is not reached from here ({why}): {known}")
}

/// Returns a time in UTC, to the second.
pub(in crate::commands) fn utc(at: Nanos) -> String {
    let seconds = i64::try_from(at.0 / Nanos::SECOND.0).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |time| time.to_string())
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
    fn a_daemon_that_is_not_reached_is_told_with_the_time_of_its_figures() {
        let event = |as_of| ClusterEvent::DaemonNotReached {
            host: "a".to_owned(),
            why: "error: no daemon listens\n  where: /run/a.sock".to_owned(),
            as_of,
        };
        let known = "the daemon of host a is not reached from here (no daemon listens): ";
        let minute = Some(Nanos::from_secs(60));
        assert_eq!(
            text(&event(minute)),
            format!("{known}its jobs count as of 1970-01-01T00:01:00Z")
        );
        assert_eq!(text(&event(None)), format!("{known}no job is known there"));
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
