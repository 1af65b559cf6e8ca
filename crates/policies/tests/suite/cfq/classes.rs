//! Classes of priority.

use crate::cfq::disk::{AccessPattern, Disk, RANDOM_READER, SEEK_NS, SEQUENTIAL_READER};
use crate::cfq::duel::Duel;
use crate::cfq::{DEFAULT_PRIORITY, with};
use crate::common::{MS, SECOND};
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::Op;
use tidegate_core::roles::Roles;
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;

#[test]
fn real_time_starves_best_effort_and_preempts_it() {
    let mut disk = Disk::default(1);
    let plain = disk.vm(Priority::BestEffort(0), RANDOM_READER);
    let urgent = AccessPattern {
        depth: 1,
        think: 300 * MS,
        sequential: false,
    };
    let urgent = disk.vm(Priority::RealTime, urgent);
    disk.run(20 * SECOND);
    // The real-time VM waits for the I/O in flight, never for a slice.
    assert!(disk.vms[urgent].longest_wait <= SEEK_NS);
    assert!(disk.vms[urgent].served > 55);
    let before = disk.vms[plain].served;
    assert!(before > 1000, "{before}");
    disk.vm(Priority::RealTime, SEQUENTIAL_READER);
    disk.run(SECOND);
    let during = disk.vms[plain].served;
    disk.run(20 * SECOND);
    assert_eq!(disk.vms[plain].served, during);
}

#[test]
fn an_idle_vm_is_served_after_a_grace_time_without_other_requests() {
    let mut disk = Disk::new(1, SEEK_NS, &with(&[("idle_class_overdue", 0)]));
    let idle = disk.vm(Priority::Idle, SEQUENTIAL_READER);
    // After an answer no VM has requests for 90 ms: less than the grace time.
    let now_and_then = AccessPattern {
        think: 90 * MS,
        ..SEQUENTIAL_READER
    };
    let other = disk.vm(DEFAULT_PRIORITY, now_and_then);
    disk.run(10 * SECOND);
    assert_eq!(disk.vms[idle].served, 0);
    assert!(disk.vms[other].served > 100);
    disk.vms[other].pattern.think = 150 * MS;
    disk.run(10 * SECOND);
    let served = disk.vms[idle].served;
    // A third of the time remains for the idle VM.
    assert!((4_000..7_000).contains(&served), "{served}");
}

#[test]
fn an_idle_vm_that_is_overdue_has_one_io() {
    let mut disk = Disk::default(1);
    let idle = disk.vm(Priority::Idle, SEQUENTIAL_READER);
    disk.vm(DEFAULT_PRIORITY, RANDOM_READER);
    disk.vm(Priority::RealTime, RANDOM_READER);
    disk.run(61 * SECOND);
    let served = disk.vms[idle].served;
    assert!((11..=12).contains(&served), "{served}");
    assert!(disk.vms[idle].longest_wait <= 5 * SECOND + 200 * MS);
}

#[test]
fn a_background_process_has_the_class_it_is_given() {
    for (word, share) in [("idle", 0.0), ("best-effort", 0.5), ("as-named", 0.64)] {
        let words = ["idle", "best-effort", "as-named"];
        let choice = words.iter().position(|w| *w == word).expect("known") as u64;
        let spec = with(&[("background_class", choice), ("idle_class_overdue", 0)]);
        let mut disk = Disk::new(1, SEEK_NS, &spec);
        let objective = Objective {
            priority: Priority::BestEffort(0),
            ..Objective::default()
        };
        let backup = disk.driver.try_background(&objective);
        let backup = disk.add_vm(backup.expect("room"), SEQUENTIAL_READER);
        disk.vm(DEFAULT_PRIORITY, SEQUENTIAL_READER);
        disk.run(60 * SECOND);
        let had = disk.shares()[backup];
        assert!((had - share).abs() < 0.05, "{word}: {had}");
    }
}

/// Controller that gives the second VM each class that it receives.
struct ClassSetter(std::sync::mpsc::Receiver<Priority>);

impl Controller for ClassSetter {
    fn interests(&self) -> Interests {
        Interests::ENDED
    }
    fn on_event(&mut self, view: &View, _: &Event, out: &mut Knobs) {
        if let Ok(class) = self.0.try_recv() {
            let second = view.vms().nth(1).expect("there are three");
            out.set(second, Knob::Class(class));
        }
    }
    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }
    fn on_timer(&mut self, _: &View, _: &mut Knobs) {}
}

#[test]
fn a_controller_changes_a_vms_class() {
    let mut duel = Duel::new(&with(&[]), 1 << 30);
    let (turn, turned) = std::sync::mpsc::channel();
    let turned = std::sync::Mutex::new(Some(turned));
    duel.driver.engine.wrap_roles(Nanos(SECOND), move |roles| {
        let turned = turned.lock().expect("alone").take();
        Roles {
            controller: turned.map(|turned| Box::new(ClassSetter(turned)) as Box<dyn Controller>),
            ..roles
        }
    });
    for block in 0..50 {
        duel.ask(0, Op::Read, block * 10);
        duel.ask(1, Op::Read, block * 10);
    }
    assert_eq!(duel.serve().map(|s| s.0), Some(0));
    turn.send(Priority::RealTime).expect("heard");
    assert_eq!(duel.serve().map(|s| s.0), Some(0), "its own slice");
    assert_eq!(duel.serve().map(|s| s.0), Some(1), "preempted");
    turn.send(Priority::Idle).expect("heard");
    assert_eq!(duel.serve().map(|s| s.0), Some(1));
    assert_eq!(duel.serve().map(|s| s.0), Some(0));
    // The objective does not undo what a controller said.
    let plain = Objective::default();
    duel.driver.set_objective(duel.guests[1].vm, &plain);
    let rest: Vec<usize> = (0..96).map_while(|_| duel.serve()).map(|s| s.0).collect();
    assert_eq!(rest.iter().position(|&v| v == 1), Some(47));
    assert_eq!(rest.len(), 95);
}
