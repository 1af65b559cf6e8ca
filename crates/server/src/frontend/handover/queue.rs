//! Queue between two threads: one pushes, the other one pops, and neither waits.
//!
//! Values that are pushed become visible together by [`Producer::publish`], once a turn of a loop.
//! A queue that is full keeps what does not fit on the side of its producer, in order, until a
//! later `publish` finds room, so a push never fails and never waits for the other thread.
//!
//! Before a thread sleeps it notes that in its [`Sleep`] and looks at its queues once more. A
//! thread that has published looks whether the other one sleeps. All four accesses are sequentially
//! consistent, so at least one of the two sees the other's: either the sleeper finds the values, or
//! the producer wakes it.
//!
//! The atomics are a parameter, so that a model checker can take the place of the processor.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Atomics that a queue is made of.
pub(crate) trait Atomics {
    /// Position in a queue.
    type Position: Position;
    /// Note that a thread sleeps.
    type Flag: Flag;
}

/// Atomic position in a queue.
pub(crate) trait Position: Default + Send + Sync {
    fn load(&self, order: Ordering) -> usize;
    fn store(&self, value: usize, order: Ordering);
}

/// Atomic flag.
pub(crate) trait Flag: Default + Send + Sync {
    fn load(&self, order: Ordering) -> bool;
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

/// Atomics of the processor.
#[derive(Debug)]
pub(crate) struct Native;

impl Atomics for Native {
    type Position = AtomicUsize;
    type Flag = AtomicBool;
}

impl Position for AtomicUsize {
    #[inline]
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }
}

impl Flag for AtomicBool {
    #[inline]
    fn load(&self, order: Ordering) -> bool {
        self.load(order)
    }

    #[inline]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}

/// Value in cache lines of its own: two processors that write neighbours would take the line from
/// each other. 128 bytes, because Intel's processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

struct Queue<T, A: Atomics> {
    /// Position of the oldest value. Written by the consumer.
    head: Padded<A::Position>,
    /// Position behind the newest value. Written by the producer.
    tail: Padded<A::Position>,
    /// Places of values, a power of two of them. Positions count on without end; the low bits are
    /// the place.
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a value is written by the producer before the `tail` that covers it is stored, and read
// by the consumer after it has loaded that `tail`; the place is written again only after the
// consumer has stored a `head` beyond it. Each end is owned by one thread, because it is not
// `Sync`.
unsafe impl<T: Send, A: Atomics> Sync for Queue<T, A> {}
// SAFETY: as above; a queue that moves takes its values along, which may be sent.
unsafe impl<T: Send, A: Atomics> Send for Queue<T, A> {}

impl<T, A: Atomics> Queue<T, A> {
    fn place(&self, position: usize) -> *mut MaybeUninit<T> {
        self.places[position & (self.places.len() - 1)].get()
    }
}

impl<T, A: Atomics> Drop for Queue<T, A> {
    fn drop(&mut self) {
        let (head, tail) = (
            self.head.0.load(Ordering::Acquire),
            self.tail.0.load(Ordering::Acquire),
        );
        let mut at = head;
        while at != tail {
            // SAFETY: positions from `head` to `tail` have values, and nobody else has the queue.
            unsafe { (*self.place(at)).assume_init_drop() };
            at = at.wrapping_add(1);
        }
    }
}

/// Creates a queue with `places` places, a power of two, and returns its two ends.
///
/// # Panics
/// If `places` is not a power of two.
pub(crate) fn queue<T, A: Atomics>(places: usize) -> (Producer<T, A>, Consumer<T, A>) {
    assert!(
        places.is_power_of_two(),
        "a queue of {places} places, not a power of two"
    );
    let place = || UnsafeCell::new(MaybeUninit::uninit());
    let queue = Arc::new(Queue {
        head: Padded::default(),
        tail: Padded::default(),
        places: std::iter::repeat_with(place).take(places).collect(),
    });
    let producer = Producer {
        queue: queue.clone(),
        tail: Cell::new(0),
        published: Cell::new(0),
        head: Cell::new(0),
        rest: RefCell::default(),
    };
    let consumer = Consumer {
        queue,
        head: Cell::new(0),
        tail: Cell::new(0),
    };
    (producer, consumer)
}

/// Pushing end of a queue.
pub(crate) struct Producer<T, A: Atomics> {
    queue: Arc<Queue<T, A>>,
    /// Position behind the last value that was written.
    tail: Cell<usize>,
    /// Position behind the last value that the consumer may see.
    published: Cell<usize>,
    /// Position of the oldest value, as last loaded.
    head: Cell<usize>,
    /// Values that found no room.
    rest: RefCell<VecDeque<T>>,
}

impl<T, A: Atomics> Producer<T, A> {
    /// Appends a value, which the consumer sees after the next [`Producer::publish`].
    #[inline]
    pub(crate) fn push(&self, value: T) {
        let mut rest = self.rest.borrow_mut();
        if !rest.is_empty() {
            return rest.push_back(value);
        }
        if let Err(value) = self.write(value) {
            rest.push_back(value);
        }
    }

    /// Makes all values visible that have room. Returns true if the consumer has something new to
    /// see.
    #[inline]
    pub(crate) fn publish(&self) -> bool {
        let mut rest = self.rest.borrow_mut();
        while let Some(value) = rest.pop_front() {
            if let Err(value) = self.write(value) {
                rest.push_front(value);
                break;
            }
        }
        let tail = self.tail.get();
        if self.published.get() == tail {
            return false;
        }
        self.published.set(tail);
        // Sequentially consistent, see the module's comment.
        self.queue.tail.0.store(tail, Ordering::SeqCst);
        true
    }

    /// Returns true if values wait for room, so that `publish` must be called again.
    #[inline]
    pub(crate) fn is_overfull(&self) -> bool {
        !self.rest.borrow().is_empty()
    }

    /// Writes a value to the next place; returns it if there is none.
    #[inline]
    fn write(&self, value: T) -> Result<(), T> {
        let (tail, places) = (self.tail.get(), self.queue.places.len());
        if tail.wrapping_sub(self.head.get()) == places {
            self.head.set(self.queue.head.0.load(Ordering::Acquire));
            if tail.wrapping_sub(self.head.get()) == places {
                return Err(value);
            }
        }
        // SAFETY: the consumer has taken the value that was here, as the `head` tells, and reads
        // this place again only after a `tail` beyond it was stored.
        unsafe { (*self.queue.place(tail)).write(value) };
        self.tail.set(tail.wrapping_add(1));
        Ok(())
    }
}

impl<T, A: Atomics> Drop for Producer<T, A> {
    fn drop(&mut self) {
        // The queue drops the values between its positions.
        self.publish();
    }
}

/// Popping end of a queue.
pub(crate) struct Consumer<T, A: Atomics> {
    queue: Arc<Queue<T, A>>,
    /// Position of the next value.
    head: Cell<usize>,
    /// Position behind the newest value, as last loaded.
    tail: Cell<usize>,
}

impl<T, A: Atomics> Consumer<T, A> {
    /// Takes the oldest value.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let head = self.head.get();
        if head == self.tail.get() && self.is_empty() {
            return None;
        }
        // SAFETY: the place is covered by a `tail` that was loaded, so it has a value, which the
        // producer does not touch before the `head` stored below is beyond it.
        let value = unsafe { (*self.queue.place(head)).assume_init_read() };
        self.head.set(head.wrapping_add(1));
        self.queue
            .head
            .0
            .store(head.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Returns true if nothing was published that was not taken.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Sequentially consistent, see the module's comment.
        self.tail.set(self.queue.tail.0.load(Ordering::SeqCst));
        self.head.get() == self.tail.get()
    }
}

/// Note of a thread that it sleeps, or is about to.
pub(crate) struct Sleep<A: Atomics>(Padded<A::Flag>);

impl<A: Atomics> Default for Sleep<A> {
    fn default() -> Sleep<A> {
        Sleep(Padded::default())
    }
}

impl<A: Atomics> Sleep<A> {
    /// Notes that the calling thread is about to sleep. It must then look at its queues, and
    /// [`rise`](Sleep::rise) if one has something.
    #[inline]
    pub(crate) fn lie_down(&self) {
        self.0.0.swap(true, Ordering::SeqCst);
    }

    /// Notes that the thread does not sleep.
    #[inline]
    pub(crate) fn rise(&self) {
        // Only looked at first, because the producer wants to read the line, too.
        if self.0.0.load(Ordering::Relaxed) {
            self.0.0.swap(false, Ordering::SeqCst);
        }
    }

    /// Returns true if the thread has to be woken, by the caller: no other one is told so. Called
    /// after [`Producer::publish`].
    #[inline]
    pub(crate) fn must_be_woken(&self) -> bool {
        self.0.0.load(Ordering::SeqCst) && self.0.0.swap(false, Ordering::SeqCst)
    }
}
