//! Queue and sleep under a model checker: every order in which two threads may meet is tried, or a
//! random part of them.

use std::sync::atomic::Ordering;

use shuttle::sync::Arc;
use shuttle::sync::atomic::AtomicUsize;
use shuttle::thread;

use super::model::link;
use super::queue::{Native, queue};

/// Values that are counted while they exist.
struct Counted(Arc<AtomicUsize>, u32);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, value: u32) -> Counted {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count.clone(), value)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn values_come_once_in_order_and_no_one_sleeps_through_them() {
    shuttle::check_random(
        || {
            let (near, far) = link::<u32, u32>(2);
            let echo = thread::spawn(move || {
                for _ in 0..6 {
                    let value = far.receive();
                    far.out.push(value);
                }
                far.finish();
            });
            // More at once than the queue has places.
            for value in 0..3 {
                near.out.push(value);
            }
            near.publish();
            let mut sent = 3;
            for expected in 0..6 {
                assert_eq!(near.receive(), expected);
                if sent < 6 {
                    near.out.push(sent);
                    sent += 1;
                }
            }
            echo.join().unwrap();
        },
        3_000,
    );
}

#[test]
fn each_order_of_a_push_and_a_sleep_ends_awake() {
    shuttle::check_dfs(
        || {
            let (near, far) = link::<u32, ()>(2);
            let consumer = thread::spawn(move || assert_eq!(far.receive(), 7));
            near.out.push(7);
            near.publish();
            consumer.join().unwrap();
        },
        None,
    );
}

#[test]
fn what_is_not_taken_is_dropped_once() {
    shuttle::check_random(
        || {
            let count = Arc::new(AtomicUsize::new(0));
            let (near, far) = link::<Counted, ()>(2);
            let consumer = thread::spawn(move || {
                for expected in 0..2 {
                    assert_eq!(far.receive().1, expected);
                }
            });
            for value in 0..5 {
                near.out.push(Counted::new(&count, value));
                near.publish();
            }
            drop(near);
            consumer.join().unwrap();
            assert_eq!(count.load(Ordering::SeqCst), 0);
        },
        1_000,
    );
}

#[test]
fn threads_of_the_processor_lose_and_double_nothing() {
    let (producer, consumer) = queue::<u64, Native>(64);
    const VALUES: u64 = 200_000;
    let sender = std::thread::spawn(move || {
        for value in 0..VALUES {
            producer.push(value);
            if value % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
        while producer.is_overfull() {
            std::thread::yield_now();
            producer.publish();
        }
    });
    for expected in 0..VALUES {
        let value = loop {
            match consumer.pop() {
                Some(value) => break value,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(value, expected);
    }
    sender.join().unwrap();
    assert_eq!(consumer.pop(), None);
}
