//! Link between two threads of a model checker: the queues and the sleep of real ones, on its
//! atomics.

use std::sync::atomic::Ordering;

use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use super::queue::{Atomics, Consumer, Flag, Position, Producer, Sleep, queue};

/// Atomics of the model checker.
pub(crate) struct Modelled;

impl Atomics for Modelled {
    type Position = AtomicUsize;
    type Flag = AtomicBool;
}

impl Position for AtomicUsize {
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }
}

impl Flag for AtomicBool {
    fn load(&self, order: Ordering) -> bool {
        self.load(order)
    }

    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}

/// Thread that may sleep, with an eventfd's count in place of the eventfd.
#[derive(Clone, Default)]
struct Sleeper(Arc<(Sleep<Modelled>, Mutex<u32>, Condvar)>);

impl Sleeper {
    fn wake(&self) {
        let (sleep, count, waker) = &*self.0;
        if sleep.must_be_woken() {
            *count.lock().unwrap() += 1;
            waker.notify_one();
        }
    }

    /// Sleeps unless `is_idle` returns false after the sleep was noted.
    fn sleep(&self, is_idle: impl Fn() -> bool) {
        let (sleep, count, waker) = &*self.0;
        sleep.lie_down();
        if is_idle() {
            let mut count = count.lock().unwrap();
            while *count == 0 {
                count = waker.wait(count).unwrap();
            }
            *count = 0;
        }
        sleep.rise();
    }
}

/// End of a link in the model.
pub(crate) struct End<Out, In> {
    pub(crate) out: Producer<Out, Modelled>,
    pub(crate) input: Consumer<In, Modelled>,
    own: Sleeper,
    peer: Sleeper,
}

impl<Out, In> End<Out, In> {
    pub(crate) fn publish(&self) {
        if self.out.publish() {
            self.peer.wake();
        }
    }

    /// Takes the next message; sleeps until there is one.
    pub(crate) fn receive(&self) -> In {
        loop {
            if let Some(message) = self.input.pop() {
                return message;
            }
            self.publish();
            if self.out.is_overfull() {
                // A loop would look again after a time-out.
                thread::yield_now();
            } else {
                self.own.sleep(|| self.input.is_empty());
            }
        }
    }

    /// Publishes until everything has left.
    pub(crate) fn finish(&self) {
        self.publish();
        while self.out.is_overfull() {
            thread::yield_now();
            self.publish();
        }
    }
}

/// Creates a link of the model.
pub(crate) fn link<A, B>(places: usize) -> (End<A, B>, End<B, A>) {
    let (sleepers, (out, input)) = ([Sleeper::default(), Sleeper::default()], queue(places));
    let (back, answers) = queue(places);
    let [own, peer] = sleepers.clone();
    let near = End {
        out,
        input: answers,
        own,
        peer,
    };
    let [peer, own] = sleepers;
    let far = End {
        out: back,
        input,
        own,
        peer,
    };
    (near, far)
}
