use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

use crate::{Agent, Event, Host, IoPriority, Plan, State, Target, TargetError, Thread};

const MB: u64 = 1_000_000;

/// A process of a host that is made up: what it moved, and its threads' priorities.
#[derive(Clone, Default)]
struct Fake {
    moved: u64,
    wants: u64,
    threads: BTreeMap<Thread, IoPriority>,
}

#[derive(Clone, Default)]
struct FakeHost {
    processes: Rc<RefCell<BTreeMap<Thread, Fake>>>,
    refuses: Rc<RefCell<bool>>,
}

fn thread(id: u32, began: u64) -> Thread {
    Thread { id, began }
}

impl FakeHost {
    fn start(&self, id: u32, began: u64, wants: u64) {
        let priority = IoPriority::NONE;
        let fake = Fake {
            moved: 7 * MB,
            wants,
            threads: [
                (thread(id, began), priority),
                (thread(id + 1, began), priority),
            ]
            .into(),
        };
        self.processes.borrow_mut().insert(thread(id, began), fake);
    }

    fn end(&self, id: u32) {
        self.processes
            .borrow_mut()
            .retain(|process, _| process.id != id);
    }

    fn of(&self, id: u32) -> Vec<IoPriority> {
        let processes = self.processes.borrow();
        let of = processes.iter().filter(|(process, _)| process.id == id);
        of.flat_map(|(_, fake)| fake.threads.values().copied())
            .collect()
    }

    /// A second of a disk of 100 MB/s that honours classes.
    fn second(&self) {
        let mut left = 100 * MB;
        let class = |fake: &Fake| fake.threads.values().next().copied().unwrap_or_default();
        let idle = IoPriority::of(Class::Idle);
        let real_time = IoPriority::of(Class::RealTime);
        let mut processes = self.processes.borrow_mut();
        for rank in 0..3 {
            let rank_of = |fake: &Fake| match class(fake) {
                priority if priority == real_time => 0,
                priority if priority == idle => 2,
                _ => 1,
            };
            let count = processes
                .values()
                .filter(|fake| rank_of(fake) == rank)
                .count();
            let mut rest = count as u64;
            for fake in processes.values_mut().filter(|fake| rank_of(fake) == rank) {
                let bytes = fake.wants.min(left / rest);
                (fake.moved, left, rest) = (fake.moved + bytes, left - bytes, rest - 1);
            }
        }
    }
}

impl Host for FakeHost {
    fn processes(&mut self, target: &Target) -> Result<Vec<Thread>, TargetError> {
        let Target::Pid(pid) = target else {
            unreachable!("pids only")
        };
        let processes = self.processes.borrow();
        let found: Vec<_> = processes
            .keys()
            .copied()
            .filter(|process| process.id == *pid)
            .collect();
        match found.is_empty() {
            true => Err(TargetError::Missing(target.clone(), "")),
            false => Ok(found),
        }
    }

    fn moved(&mut self, process: Thread) -> io::Result<u64> {
        let found = self.processes.borrow().get(&process).map(|fake| fake.moved);
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn threads(&mut self, process: Thread) -> Vec<Thread> {
        let processes = self.processes.borrow();
        processes
            .get(&process)
            .map(|fake| fake.threads.keys().copied().collect())
            .unwrap_or_default()
    }

    fn priority(&mut self, thread: Thread) -> io::Result<IoPriority> {
        let processes = self.processes.borrow();
        let found = processes
            .values()
            .find_map(|fake| fake.threads.get(&thread).copied());
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn set_priority(&mut self, thread: Thread, priority: IoPriority) -> io::Result<()> {
        if *self.refuses.borrow() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let mut processes = self.processes.borrow_mut();
        match processes
            .values_mut()
            .find_map(|fake| fake.threads.get_mut(&thread))
        {
            Some(found) => *found = priority,
            None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
        Ok(())
    }
}

fn plan(name: &str, pid: u32, job: Option<(u64, u64)>) -> Plan {
    Plan {
        name: name.to_owned(),
        target: Target::Pid(pid),
        job: job.map(|(bytes, seconds)| (bytes, Nanos::from_secs(seconds))),
    }
}

const TERMS: (Nanos, Option<u64>, bool) = (Nanos::from_secs(3), Some(100 * MB), false);

/// Runs until its jobs are done; all that it said, with the second.
fn run(agent: &mut Agent<FakeHost>, host: &FakeHost, from: u64, to: u64) -> Vec<(u64, String)> {
    let mut said = Vec::new();
    for second in from + 1..=to {
        host.second();
        for event in agent.step(Nanos::from_secs(second)) {
            said.push((second, format!("{event:?}")));
        }
        if agent.is_done() {
            break;
        }
    }
    said
}

fn state(agent: &Agent<FakeHost>, who: usize) -> State {
    agent.report(Nanos::ZERO)[who].job.expect("it has a job").1
}

#[test]
fn a_deadline_is_met_with_the_agent_and_missed_without() {
    for (dry_run, late) in [(true, true), (false, false)] {
        let host = FakeHost::default();
        (1..=3).for_each(|n| host.start(n * 100, 1, 100 * MB));
        let plans = vec![
            plan("job", 100, Some((1_500 * MB, 25))),
            plan("b", 200, None),
            plan("c", 300, None),
        ];
        let (interval, capacity, _) = TERMS;
        let (mut agent, events) = Agent::new(
            host.clone(),
            Nanos::ZERO,
            (interval, capacity, dry_run),
            plans,
        )
        .expect("all run");
        assert_eq!(events.len(), 4, "three found, one lowered: {events:?}");
        let said = run(&mut agent, &host, 0, 60);
        let State::Done { late: by, .. } = state(&agent, 0) else {
            panic!("{said:?}")
        };
        assert_eq!(by > Nanos::ZERO, late, "{said:?}");
        let untouched = (1..=3).all(|n| host.of(n * 100) == [IoPriority::NONE; 2]);
        assert!(untouched, "all is put back at the end of the job");
    }
}

#[test]
fn new_threads_have_what_the_others_have_and_all_is_put_back() {
    let host = FakeHost::default();
    host.start(100, 1, 100 * MB);
    host.start(200, 1, 100 * MB);
    let plans = vec![
        plan("job", 100, Some((3_000 * MB, 31))),
        plan("b", 200, None),
    ];
    let (mut agent, _) = Agent::new(host.clone(), Nanos::ZERO, TERMS, plans).expect("all run");
    run(&mut agent, &host, 0, 2);
    let idle = IoPriority::of(Class::Idle);
    assert_eq!(host.of(200), [idle; 2]);
    // Linux has a thread inherit what its parent has.
    let change = |with: &dyn Fn(&mut BTreeMap<Thread, IoPriority>)| {
        let mut processes = host.processes.borrow_mut();
        with(&mut processes.get_mut(&thread(200, 1)).expect("it runs").threads);
    };
    change(&|threads| {
        threads.insert(thread(205, 9), idle);
        threads.insert(thread(206, 9), IoPriority::NONE);
        threads.remove(&thread(201, 1));
    });
    run(&mut agent, &host, 2, 4);
    assert_eq!(host.of(200), [idle; 3]);
    drop(agent);
    assert_eq!(host.of(200), [IoPriority::NONE; 3]);
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let host = FakeHost::default();
    host.start(100, 1, 50 * MB);
    host.start(200, 1, 100 * MB);
    let plans = vec![
        plan("job", 100, Some((3_000 * MB, 31))),
        plan("b", 200, None),
    ];
    let (mut agent, _) = Agent::new(host.clone(), Nanos::ZERO, TERMS, plans).expect("all run");
    run(&mut agent, &host, 0, 2);
    host.end(200);
    let said = run(&mut agent, &host, 2, 3);
    assert!(
        said.iter().any(|(_, what)| what.contains("Left")),
        "{said:?}"
    );
    // Somebody else's, under the same number: it is nobody that was named, and is left alone.
    host.start(200, 77, 100 * MB);
    let own = IoPriority::of(Class::RealTime);
    let set = |priority| {
        let mut processes = host.processes.borrow_mut();
        let threads = &mut processes
            .get_mut(&thread(200, 77))
            .expect("it runs")
            .threads;
        threads.values_mut().for_each(|now| *now = priority);
    };
    set(own);
    let said = run(&mut agent, &host, 3, 4);
    assert!(
        !said.iter().any(|(_, what)| what.contains("Found")),
        "{said:?}"
    );
    assert!(!agent.report(Nanos::ZERO)[1].present);
    // The job's process goes: its job is over, and was not done.
    host.end(100);
    run(&mut agent, &host, 4, 6);
    assert!(
        matches!(state(&agent, 0), State::Gone { left } if left > 2_000 * MB),
        "{:?}",
        state(&agent, 0)
    );
    assert!(agent.is_done());
    drop(agent);
    assert_eq!(host.of(200), [own; 2]);
}

#[test]
fn what_cannot_be_met_is_said_at_once_and_what_is_refused_once() {
    let host = FakeHost::default();
    host.start(100, 1, 100 * MB);
    host.start(200, 1, 100 * MB);
    *host.refuses.borrow_mut() = true;
    let plans = vec![
        plan("job", 100, Some((3_000 * MB, 20))),
        plan("b", 200, None),
    ];
    let (mut agent, events) = Agent::new(host.clone(), Nanos::ZERO, TERMS, plans).expect("all run");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::GivenUp { name } if name == "job"))
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Refused { name, .. } if name == "b"))
    );
    let said = run(&mut agent, &host, 0, 2);
    assert!(
        !said.iter().any(|(_, what)| what.contains("Refused")),
        "{said:?}"
    );
}

#[test]
fn a_disk_of_which_nothing_is_known_is_learnt_first() {
    let host = FakeHost::default();
    host.start(100, 1, 100 * MB);
    host.start(200, 1, 100 * MB);
    let plans = vec![
        plan("job", 100, Some((1_500 * MB, 20))),
        plan("b", 200, None),
    ];
    let (interval, _, dry_run) = TERMS;
    let (mut agent, events) =
        Agent::new(host.clone(), Nanos::ZERO, (interval, None, dry_run), plans).expect("all run");
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Event::Found { .. })),
        "{events:?}"
    );
    assert!(agent.report(Nanos::ZERO)[0].forecast.is_none());
    let said = run(&mut agent, &host, 0, 40);
    assert!(
        said.iter()
            .any(|(at, what)| *at == 3 && what.contains("Idle")),
        "{said:?}"
    );
    let State::Done { late, .. } = state(&agent, 0) else {
        panic!("{said:?}")
    };
    assert_eq!(late, Nanos::ZERO, "{said:?}");
}

#[test]
fn somebody_who_is_not_there_is_an_error() {
    let plans = vec![plan("job", 100, None)];
    let agent = Agent::new(FakeHost::default(), Nanos::ZERO, TERMS, plans);
    assert_eq!(
        agent.err().expect("nobody is there").to_string(),
        "there is no process 100"
    );
}
