//! Times of a state by which a wrong clock is found, and their repair after one.

use std::collections::BTreeSet;

use tidegate_core::time::Nanos;

use super::ClusterState;
use crate::clock::{StoredTime, TimedRecord};
use crate::record::{HostRecord, RunningTransfer, Transfer};

impl ClusterState {
    /// Returns the latest time of the state's records; `None`: it has none.
    ///
    /// The beginning of a placement is left out: it is no later than the time of its progress,
    /// except after [`ClusterState::repair_times`].
    pub(crate) fn latest_time(&self) -> Option<StoredTime> {
        let of_host = |host: &HostRecord| host.steady_since.max(host.rates_recorded_at);
        let of_running = |running: &RunningTransfer| {
            let placement = &running.placement;
            let progress = placement.as_of.max(placement.reported_at);
            progress.max(running.transfer.arrived)
        };
        let hosts = self.hosts.iter();
        let hosts = hosts.map(|host| (of_host(host), None, host.name.as_str()));
        let stored = self.running.iter().filter(|running| !running.live);
        let running = stored.map(|it| (of_running(it), Some(it.name())));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|it| (it.arrived, Some(it.name.as_str())));
        let transfers = running.chain(waiting);
        let transfers = transfers.map(|(time, name)| (time, name, ""));
        let latest = hosts.chain(transfers).max_by_key(|(time, ..)| *time);
        latest.map(|(time, transfer, host)| StoredTime {
            time,
            record: match transfer {
                Some(name) => TimedRecord::Transfer(name.to_owned()),
                None => TimedRecord::Host(host.to_owned()),
            },
        })
    }

    /// Makes times that are later than `now` those of now, after they were stored by a wrong clock.
    /// Progress that was estimated with such a clock becomes what was reported last. Returns the
    /// names of the hosts and transfers that have changed.
    ///
    /// Placements that daemons were to start keep their beginning, by which the daemons know them.
    pub fn repair_times(&mut self, now: Nanos) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let mut repair = |time: &mut Nanos, name: &str| {
            let is_ahead = *time > now;
            if is_ahead {
                *time = now;
                changed.insert(name.to_owned());
            }
            is_ahead
        };
        for host in self.hosts.iter_mut() {
            repair(&mut host.steady_since, &host.name);
            repair(&mut host.rates_recorded_at, &host.name);
        }
        for RunningTransfer {
            transfer,
            placement,
            ..
        } in self.running.iter_mut().filter(|running| !running.live)
        {
            if repair(&mut placement.as_of, &transfer.name) {
                placement.moved = placement.reported;
            }
            repair(&mut placement.reported_at, &transfer.name);
            if !transfer.start {
                repair(&mut placement.begun, &transfer.name);
            }
            repair_arrival(transfer, &mut repair);
        }
        for transfer in self.waiting.iter_mut() {
            repair_arrival(transfer, &mut repair);
        }
        changed
    }
}

fn repair_arrival(transfer: &mut Transfer, repair: &mut impl FnMut(&mut Nanos, &str) -> bool) {
    repair(&mut transfer.arrived, &transfer.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entitlement, Placement};
    use tidegate_place::Request;

    const NOW: Nanos = Nanos::from_secs(1_000);
    const AHEAD: Nanos = Nanos::from_secs(4_600);

    fn running(name: &str, placed: Nanos, start: bool) -> RunningTransfer {
        let request = Request::new(600, Nanos::SECOND).expect("valid");
        RunningTransfer {
            transfer: Transfer {
                start,
                ..Transfer::new(name, &request, placed)
            },
            placement: Placement {
                moved: 600,
                reported: 7,
                ..Placement::new("a", placed)
            },
            entitlement: Entitlement::default(),
            live: false,
        }
    }

    #[test]
    fn times_that_are_ahead_become_now_and_others_stay() {
        let mut host = HostRecord::new("a".to_owned(), 60, Vec::new(), 4);
        host.steady_since = AHEAD;
        let request = Request::new(600, Nanos::SECOND).expect("valid");
        let mut state = ClusterState {
            hosts: vec![host].into(),
            running: vec![
                running("ahead", AHEAD, false),
                running("on-a-daemon", AHEAD, true),
                running("right", NOW, false),
            ]
            .into(),
            waiting: vec![Transfer::new("waits", &request, AHEAD)].into(),
            ..ClusterState::default()
        };
        let right = state.running("right").cloned();
        assert_eq!(state.latest_time().expect("some").time, AHEAD);
        let changed = state.repair_times(NOW);
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            ["a", "ahead", "on-a-daemon", "waits"]
        );
        assert_eq!(state.latest_time().expect("some").time, NOW);
        let placement = |name: &str| state.running(name).expect("stays").placement.clone();
        let ahead = placement("ahead");
        assert_eq!(
            (ahead.moved, ahead.as_of, ahead.begun, ahead.reported_at),
            (7, NOW, NOW, NOW)
        );
        // The daemon knows the placement by the time at which it began.
        let on_daemon = placement("on-a-daemon");
        assert_eq!((on_daemon.as_of, on_daemon.begun), (NOW, AHEAD));
        assert_eq!(state.running("right").cloned(), right);
        assert_eq!(state.waiting[0].arrived, NOW);
        assert_eq!(state.repair_times(NOW), BTreeSet::new(), "once is enough");
    }

    #[test]
    fn the_latest_time_is_that_of_whichever_record() {
        let mut state = ClusterState::default();
        assert!(state.latest_time().is_none());
        let mut host = HostRecord::new("a".to_owned(), 60, Vec::new(), 4);
        host.rates_recorded_at = Nanos(5);
        state.hosts.push(host);
        let latest = |state: &ClusterState| {
            let latest = state.latest_time().expect("some");
            (latest.time.0, latest.record.to_string())
        };
        assert_eq!(latest(&state), (5, "host \"a\"".to_owned()));
        state.running.push(running("x", Nanos(6), false));
        assert_eq!(latest(&state), (6, "job \"x\"".to_owned()));
        // A daemon's own transfer is never stored.
        let mut live = running("a/y", Nanos(7), false);
        live.live = true;
        state.running.push(live);
        assert_eq!(latest(&state).0, 6);
        let request = Request::new(600, Nanos::SECOND).expect("valid");
        let waiting = Transfer::new("z", &request, Nanos(8));
        state.waiting.push(waiting);
        assert_eq!(latest(&state), (8, "job \"z\"".to_owned()));
    }
}
