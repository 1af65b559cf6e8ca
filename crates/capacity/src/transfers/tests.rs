use super::*;
use tidegate_base::time::Nanos;

const MB: u64 = 1_000_000;
const CYCLE: Nanos = Nanos::from_secs(3);

#[test]
fn needs_is_the_rest_over_the_remaining_time() {
    let transfer = Transfer {
        bytes: 10 * MB,
        begun: Nanos::SECOND,
        deadline: Nanos::from_secs(10),
        moved: 4 * MB,
    };
    assert_eq!(transfer.required_bytes_per_s(Nanos::from_secs(5)), MB);
    assert_eq!(
        transfer.required_bytes_per_s(Nanos::from_secs(11)),
        0,
        "its time is over"
    );
    let done = Transfer {
        moved: transfer.bytes,
        ..transfer
    };
    assert_eq!(done.required_bytes_per_s(Nanos::from_secs(5)), 0);
}

/// Disk with priority classes: real time gets all that it asks for, then best effort, then idle.
/// Users of one class share evenly.
struct Disk {
    manager: PriorityManager,
    now: Nanos,
    bytes_per_s: u64,
    /// Demand of each user, in bytes a second; 0: the user is idle.
    wants: Vec<u64>,
    /// Time at which each user's transfer ended.
    ended: Vec<Option<Nanos>>,
    /// All changes, each with its second, user and class.
    changes: Vec<(u64, usize, Class)>,
}

impl Disk {
    fn new(bytes_per_s: u64, wants: &[u64]) -> Disk {
        let mut manager = PriorityManager::new(Nanos::ZERO, bytes_per_s);
        for user in 0..wants.len() {
            manager.add(Nanos::ZERO, user);
        }
        Disk {
            manager,
            now: Nanos::ZERO,
            bytes_per_s,
            wants: wants.to_vec(),
            ended: vec![None; wants.len()],
            changes: Vec::new(),
        }
    }

    fn note(&mut self, changes: Vec<Change>) {
        let at = self.now.0 / Nanos::SECOND.0;
        self.changes
            .extend(changes.iter().map(|change| (at, change.user, change.class)));
    }

    fn begin(&mut self, user: usize, bytes: u64, deadline_s: u64) -> bool {
        let mut out = Vec::new();
        let transfer = Transfer {
            bytes,
            begun: self.now,
            deadline: Nanos::from_secs(deadline_s),
            moved: 0,
        };
        let can_be = self.manager.begin(user, transfer, &mut out);
        self.manager.cycle(self.now, &mut out);
        self.note(out);
        can_be
    }

    /// Bytes that each user gets in a tenth of a second.
    fn shares(&self) -> Vec<u64> {
        let mut left = self.bytes_per_s / 10;
        let mut shares = vec![0; self.wants.len()];
        for class in Class::ALL.into_iter().rev() {
            let of_class: Vec<usize> = (0..self.wants.len())
                .filter(|&user| self.wants[user] > 0 && self.manager.class(user) == Some(class))
                .collect();
            for (n, &user) in of_class.iter().enumerate() {
                let even = left / (of_class.len() - n) as u64;
                shares[user] = even.min(self.wants[user] / 10);
                left -= shares[user];
            }
        }
        shares
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            let shares = self.shares();
            self.now = Nanos(self.now.0 + 100_000_000);
            let mut out = Vec::new();
            for (user, bytes) in shares.into_iter().enumerate() {
                if self.manager.record_moved(user, bytes) {
                    self.manager.end(user, &mut out);
                    self.manager.cycle(self.now, &mut out);
                    self.ended[user] = Some(self.now);
                    self.wants[user] = 0;
                }
            }
            if self.now.0.is_multiple_of(CYCLE.0) {
                self.manager.measure(self.now, &mut out);
            }
            self.note(out);
        }
    }

    fn took(&self, user: usize) -> Option<f64> {
        Some(self.ended[user]?.as_secs_f64())
    }
}

/// Use case 1 of the thesis: two writers of 3,000 MB on a disk of 54 MB/s. The deadlines of the
/// first range from one that is met in any case to one that cannot be met.
#[test]
fn deadlines_are_met_wherever_the_disk_can() {
    for deadline in [120, 112, 100, 80, 70, 64] {
        let mut disk = Disk::new(54 * MB, &[54 * MB; 2]);
        disk.begin(1, 3_000 * MB, 1_000);
        assert!(disk.begin(0, 3_000 * MB, deadline));
        disk.run(200);
        let took = disk.took(0).expect("it ended");
        assert!(
            took <= deadline as f64,
            "{took} of {deadline}: {:?}",
            disk.changes
        );
        // The other transfer ends no later than it would alone: the disk is busy all the time.
        assert!(disk.took(1).expect("it ended") <= 112.0);
    }
    // As printed, the second transfer becomes critical by its lowered bandwidth, so that both are
    // lowered in turns.
    let mut disk = Disk::new(54 * MB, &[54 * MB; 2]);
    disk.manager = disk.manager.clone().as_printed();
    disk.begin(1, 3_000 * MB, 1_000);
    disk.begin(0, 3_000 * MB, 70);
    disk.run(200);
    assert!(disk.changes.len() > 20 && disk.took(0).is_some_and(|took| took > 70.0));
    // Alone the transfer takes 55.6 s. Its neighbour may suffer until the deadline is seen to be
    // out of reach, and not after.
    let mut disk = Disk::new(54 * MB, &[54 * MB; 2]);
    disk.begin(1, 3_000 * MB, 1_000);
    assert!(!disk.begin(0, 3_000 * MB, 50));
    disk.run(12);
    assert!(disk.manager.is_given_up(0));
    assert_eq!(disk.manager.class(0), Some(Class::Idle));
    assert_eq!(disk.manager.class(1), Some(Class::BestEffort));
}

#[test]
fn cycle_takes_one_step_in_the_order_of_the_three_cases() {
    // Neither idle neighbours nor real time give the transfer its bandwidth, because its own user
    // asks for too little: 5 MB/s, while 1,000 MB in 100 s are 10 MB/s. It begins at 3 s and is
    // first lowered for at 6 s: until it is measured, it is assumed to have a third of the disk.
    let mut disk = Disk::new(50 * MB, &[5 * MB, 50 * MB, 50 * MB]);
    disk.run(3);
    disk.begin(0, 1_000 * MB, 100);
    disk.run(30);
    let expected = [
        (6, 1, Class::Idle),
        (9, 2, Class::Idle),
        (12, 0, Class::RealTime),
        (15, 0, Class::Idle),
        (15, 1, Class::BestEffort),
        (15, 2, Class::BestEffort),
    ];
    assert_eq!(disk.changes, expected);
}

/// The algorithm as printed makes a transfer that it gave up critical again in the next cycle, and
/// then lowers, raises, raises and gives up with period 4.
#[test]
fn given_up_transfer_stays_so_until_a_transfer_begins_or_ends() {
    let mut disk = Disk::new(50 * MB, &[5 * MB, 50 * MB, 50 * MB, 50 * MB]);
    disk.begin(0, 2_000 * MB, 390);
    disk.begin(3, 1_000 * MB, 900);
    disk.run(30);
    assert!(disk.manager.is_given_up(0));
    let so_far = disk.changes.len();
    disk.run(20);
    assert_eq!(disk.changes.len(), so_far, "{:?}", &disk.changes[so_far..]);
    // Another transfer begins: the first is tried once more, and given up once more.
    disk.begin(1, 100 * MB, 900);
    assert!(!disk.manager.is_given_up(0));
}

#[test]
fn users_lowered_for_a_transfer_are_restored_at_its_end() {
    let mut disk = Disk::new(54 * MB, &[54 * MB; 3]);
    disk.begin(0, 1_000 * MB, 40);
    disk.run(60);
    assert!(disk.took(0).expect("it ended") <= 40.0);
    assert!(
        disk.changes
            .iter()
            .any(|&(_, user, class)| user > 0 && class == Class::Idle)
    );
    for user in 0..3 {
        assert_eq!(disk.manager.class(user), Some(Class::BestEffort));
    }
    // A cancelled transfer ends in the same way.
    disk.wants[0] = 54 * MB;
    disk.begin(0, 4_000 * MB, 90);
    disk.run(9);
    assert!((1..3).any(|user| disk.manager.class(user) == Some(Class::Idle)));
    let mut out = Vec::new();
    disk.manager.remove(0, &mut out);
    assert!((1..3).all(|user| disk.manager.class(user) == Some(Class::BestEffort)));
    assert_eq!(disk.manager.class(0), None);
}

/// The disk could serve both side by side, but a user limited to 10 MB/s cannot catch up on what it
/// lost to the other.
#[test]
fn limited_user_is_not_delayed_beyond_recovery() {
    let late = |limit| {
        let mut disk = Disk::new(54 * MB, &[54 * MB, 10 * MB]);
        disk.manager.set_limit(1, limit);
        disk.begin(1, 1_000 * MB, 125);
        disk.begin(0, 3_000 * MB, 90);
        disk.run(200);
        [(0, 90.0), (1, 125.0)].map(|(user, due)| disk.took(user).expect("it ended") > due)
    };
    assert_eq!(late(None), [false, true]);
    assert_eq!(late(Some(10 * MB)), [false, false]);
}

/// The user's limit bounds the best case.
#[test]
fn transfer_beyond_its_users_limit_is_not_possible() {
    let mut disk = Disk::new(54 * MB, &[10 * MB]);
    disk.manager.set_limit(0, Some(10 * MB));
    assert!(disk.begin(0, 1_000 * MB, 100));
    assert!(!disk.begin(0, 1_000 * MB, 99));
    disk.manager.set_limit(0, None);
    assert!(disk.begin(0, 1_000 * MB, 99));
}

#[test]
fn users_lowered_by_admission_are_restored_at_the_end_of_the_transfer() {
    let mut disk = Disk::new(54 * MB, &[54 * MB; 3]);
    let mut out = Vec::new();
    let transfer = Transfer {
        bytes: 100 * MB,
        begun: Nanos::ZERO,
        deadline: Nanos::from_secs(50),
        moved: 0,
    };
    disk.manager.begin(0, transfer, &mut out);
    disk.manager
        .apply_admission(Nanos::ZERO, 2, Class::RealTime, &[], &mut out);
    let lowered = [(1, Class::Idle), (2, Class::Idle)];
    disk.manager
        .apply_admission(Nanos::ZERO, 0, Class::RealTime, &lowered, &mut out);
    let classes = |disk: &Disk| [0, 1, 2].map(|user| disk.manager.class(user).expect("there"));
    let idle = Class::Idle;
    assert_eq!(classes(&disk), [Class::RealTime, idle, idle]);
    disk.manager.end(0, &mut out);
    let best_effort = Class::BestEffort;
    assert_eq!(classes(&disk), [best_effort, best_effort, Class::RealTime]);
}

/// A user that had the whole disk before is forecast with an even share, not with what it had.
#[test]
fn user_lowered_by_admission_is_measured_anew() {
    let mut manager = PriorityManager::new(Nanos::ZERO, 60 * MB);
    let mut out = Vec::new();
    (0..2).for_each(|user| manager.add(Nanos::ZERO, user));
    let transfer = |begun, bytes| Transfer {
        bytes,
        begun,
        deadline: Nanos::from_secs(600),
        moved: 0,
    };
    assert!(manager.begin(0, transfer(Nanos::ZERO, 780 * MB), &mut out));
    manager.record_moved(0, 180 * MB);
    manager.measure(CYCLE, &mut out);
    let end = |manager: &PriorityManager| manager.forecast(0, CYCLE).expect("has one").done;
    assert_eq!(
        end(&manager),
        CYCLE + Nanos::from_secs(10),
        "600 MB at 60 MB/s"
    );
    assert!(manager.begin(1, transfer(CYCLE, MB), &mut out));
    let lowered = [(0, Class::Idle)];
    manager.apply_admission(CYCLE, 1, Class::BestEffort, &lowered, &mut out);
    assert_eq!(manager.class(0), Some(Class::Idle));
    assert_eq!(
        end(&manager),
        CYCLE + Nanos::from_secs(20),
        "600 MB at 30 MB/s"
    );
}

#[test]
fn a_transfer_past_its_deadline_is_not_starved() {
    // The neighbour's transfer is never in danger, so only the guard gives real time.
    let mut disk = Disk::new(50 * MB, &[50 * MB, 50 * MB]);
    disk.begin(0, 1_000 * MB, 10);
    disk.run(9);
    assert_eq!(disk.manager.class(0), Some(Class::Idle));
    disk.run(6);
    assert_eq!(disk.manager.class(0), Some(Class::RealTime));
    disk.run(30);
    assert!(disk.took(0).is_some());
}

/// Behaviour before section 4.2.2: a late transfer waits for its neighbour's end.
#[test]
fn without_the_guard_a_transfer_past_its_deadline_stays_as_it_is() {
    let mut disk = Disk::new(50 * MB, &[50 * MB, 50 * MB]);
    disk.manager = disk.manager.unguarded();
    disk.begin(0, 1_000 * MB, 10);
    disk.begin(1, 1_000 * MB, 900);
    disk.run(18);
    assert_eq!(disk.manager.class(0), Some(Class::Idle));
    disk.run(30);
    let changes = disk.changes.iter();
    assert!(
        changes
            .clone()
            .all(|change| change.2 != Class::RealTime || change.0 < 10)
    );
    assert!(disk.took(1).is_some_and(|took| took <= 24.0));
    assert!(disk.took(0) > disk.took(1));
}

#[test]
fn earlier_deadline_is_never_demoted_for_a_later_one() {
    let mut disk = Disk::new(40 * MB, &[40 * MB; 3]);
    disk.begin(0, 600 * MB, 30);
    disk.begin(1, 600 * MB, 31);
    disk.run(33);
    assert!(
        disk.took(0).is_some_and(|took| took <= 30.0),
        "{:?}",
        disk.changes
    );
    assert!(
        disk.changes.iter().all(|change| change.1 != 0),
        "{:?}",
        disk.changes
    );
    assert!(
        disk.changes.contains(&(0, 2, Class::Idle)),
        "{:?}",
        disk.changes
    );
}

#[test]
fn forecast_gives_end_and_distance_to_the_deadline() {
    let transfer = Transfer {
        bytes: 100 * MB,
        begun: Nanos::from_secs(10),
        deadline: Nanos::from_secs(20),
        moved: 40 * MB,
    };
    let now = Nanos::from_secs(15);
    let forecast = transfer.forecast(now, 10 * MB);
    assert_eq!(forecast.done, Nanos::from_secs(21));
    assert_eq!(
        (forecast.early, forecast.late),
        (Nanos::from_secs(9), Nanos::ZERO)
    );
    let forecast = transfer.forecast(now, 3 * MB);
    assert_eq!(
        (forecast.early, forecast.late),
        (Nanos::ZERO, Nanos::from_secs(5))
    );
    assert_eq!(transfer.forecast(now, 0).done, Nanos::MAX);
    // Rounded up, so that a transfer late by less than a nanosecond counts as late.
    assert_eq!(transfer.latency(7 * MB), Nanos(8_571_428_572));
    let done = Transfer {
        moved: 101 * MB,
        ..transfer
    };
    assert_eq!((done.bytes_left(), done.latency(0)), (0, Nanos::ZERO));
}

#[test]
fn unmeasured_transfer_is_forecast_with_an_even_share() {
    let mut manager = PriorityManager::new(Nanos::ZERO, 60 * MB);
    let mut out = Vec::new();
    (0..3).for_each(|user| manager.add(Nanos::ZERO, user));
    let transfer = |begun| Transfer {
        bytes: 200 * MB,
        begun,
        deadline: Nanos::from_secs(60),
        moved: 0,
    };
    assert!(manager.begin(0, transfer(Nanos::ZERO), &mut out));
    let done = manager
        .forecast(0, Nanos::ZERO)
        .expect("user has a transfer")
        .done;
    assert_eq!(done, Nanos::from_secs(10));
    // Two of the three users turn out to be idle; a transfer that begins just before the interval's
    // end is not measured yet.
    manager.record_moved(0, 30 * MB);
    let late = Nanos(2_900_000_000);
    assert!(manager.begin(1, transfer(late), &mut out));
    manager.record_moved(1, MB);
    manager.measure(CYCLE, &mut out);
    let done = manager
        .forecast(0, CYCLE)
        .expect("user has a transfer")
        .done;
    assert_eq!(done, Nanos::from_secs(20), "170 MB at 10 MB/s");
    let done = manager
        .forecast(1, CYCLE)
        .expect("user has a transfer")
        .done;
    assert_eq!(
        done,
        Nanos(3_000_000_000 + 199_000_000_000 / 30 + 1),
        "199 MB at half of 60 MB/s"
    );
}
