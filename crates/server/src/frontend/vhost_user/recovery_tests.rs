//! Queues of a process that is killed between any two stores to shared memory.

use std::sync::Arc;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::super::inflight::{InflightRegion, Layout, QueueRecord};
use super::tests::{DATA, Driver, SIZE, USED, setup};
use super::*;
use crate::buffer::kill;

/// Status byte before a request is answered, and after.
const NONE: u8 = 0xee;
const DONE: u8 = 7;

/// Driver with the memory in which its queue's requests are recorded.
struct Scene {
    driver: Driver,
    region: Arc<InflightRegion>,
    /// Heads that were offered and whose answer the driver has not seen, in order.
    open: Vec<u16>,
    /// Used index up to which the driver has seen answers.
    seen: u16,
}

impl Scene {
    fn new(base: u16) -> Scene {
        let layout = Layout::new(2, SIZE);
        let file = layout.create().expect("memory");
        let region =
            InflightRegion::map(layout, &file, 0, layout.bytes(), &Arc::default()).expect("mapped");
        let driver = Driver::new(base, false);
        for head in 0..SIZE {
            driver.describe(head, (DATA, 16), 0);
        }
        let mut scene = Scene {
            driver,
            region: Arc::new(region),
            open: Vec::new(),
            seen: base,
        };
        scene.restart();
        scene
    }

    /// Byte that becomes the status of a request.
    fn status(&self, head: u16) -> Mem {
        self.driver.mem(DATA + 100 + u64::from(head), 1)
    }

    /// Offers a head that the driver may use.
    fn offer(&mut self, head: u16) {
        assert!(!self.open.contains(&head));
        self.status(head).write(&[NONE]);
        self.driver.offer(head);
        self.open.push(head);
    }

    /// Starts a queue in a new process, to which the front-end tells the used index.
    fn restart(&mut self) {
        let setup = setup(&self.driver.memory, self.used(), false);
        self.driver.ring = Virtqueue::new(&setup);
        let record = QueueRecord::new(&self.region, 1, SIZE).expect("it fits");
        self.driver.ring.recover(record).expect("it is sound");
    }

    fn used(&self) -> u16 {
        self.driver.mem(USED, 4).load_le16(INDEX)
    }

    /// Takes a request, if there is one.
    fn take(&mut self) -> Option<u16> {
        let head = self.driver.take().expect("a sound ring")?;
        let status = self.status(head);
        self.driver.ring.begin(head, status);
        Some(head)
    }

    fn end(&mut self, head: u16) {
        self.driver.ring.end(head, DONE, 1);
    }

    /// Looks at the answers as the driver does: each is of a request that is open.
    fn look(&mut self) {
        let used = self.used();
        while self.seen != used {
            let at = RING_HEAD + USED_ENTRY * usize::from(self.seen % SIZE);
            let bytes: [u8; 4] = self.driver.mem(USED, 128).read_once(at);
            let head = u32::from_le_bytes(bytes) as u16;
            let place = self.open.iter().position(|&open| open == head);
            self.open
                .remove(place.expect("answered twice, or never asked"));
            assert_eq!(self.status(head).read_once(0), [DONE]);
            self.seen = self.seen.wrapping_add(1);
        }
    }

    /// Starts a new process, which must take all that is open, in order; then answers it.
    fn recovers(&mut self) {
        self.look();
        self.restart();
        let taken: Vec<u16> = std::iter::from_fn(|| self.take()).collect();
        assert_eq!(taken, self.open, "in flight, in order");
        taken.into_iter().for_each(|head| self.end(head));
        self.driver.ring.publish(None);
        self.look();
        assert!(self.open.is_empty() && self.driver.ring.is_drained());
    }
}

/// Requests in flight, answered and published in several batches, out of order.
fn several_batches(scene: &mut Scene) {
    let taken: Vec<u16> = std::iter::from_fn(|| scene.take()).collect();
    for batch in [&[2usize, 0][..], &[4], &[], &[1, 5, 3]] {
        for &n in batch {
            scene.end(taken[n]);
        }
        scene.driver.ring.publish(None);
    }
}

#[test]
fn whatever_the_store_before_a_kill_nothing_is_lost_or_answered_twice() {
    // The indices wrap around on the way.
    for base in [0, u16::MAX - 2] {
        let mut kills = 0;
        loop {
            let mut scene = Scene::new(base);
            for head in [3, 1, 4, 0, 5, 2] {
                scene.offer(head);
            }
            let whole = kill::after(kills, || several_batches(&mut scene));
            scene.recovers();
            if whole {
                break;
            }
            kills += 1;
        }
        // Each request has six stores, each batch one at least.
        assert!(kills > 40, "{kills}");
    }
}

#[test]
fn a_process_that_is_killed_while_it_recovers_leaves_the_same() {
    let mut twice = 0;
    for first in 0.. {
        let mut whole = false;
        for second in 0.. {
            let mut scene = Scene::new(0);
            for head in [3, 1, 4, 0, 5, 2] {
                scene.offer(head);
            }
            whole = kill::after(first, || several_batches(&mut scene));
            scene.look();
            let recovered = kill::after(second, || scene.restart());
            scene.recovers();
            if recovered {
                break;
            }
            twice += 1;
        }
        if whole {
            break;
        }
    }
    assert!(twice > 5, "{twice}");
}

#[test]
fn random_requests_survive_kills_at_random_stores() {
    let mut rng = Pcg64::seed_from_u64(28);
    let mut scene = Scene::new(0);
    let (mut kills, mut left) = (0, 0);
    let mut taken: Vec<u16> = Vec::new();
    for _ in 0..20_000 {
        let mut free: Vec<u16> = (0..SIZE).filter(|h| !scene.open.contains(h)).collect();
        free.shuffle(&mut rng);
        free.truncate(rng.random_range(0..=free.len()));
        free.into_iter().for_each(|head| scene.offer(head));
        let actions: Vec<u32> = (0..rng.random_range(1..12)).map(|_| rng.random()).collect();
        let whole = kill::after(rng.random_range(0..60), || {
            for action in actions {
                match action % 3 {
                    0 => taken.extend(scene.take()),
                    1 if !taken.is_empty() => {
                        let head = taken.swap_remove(action as usize % taken.len());
                        scene.end(head);
                    }
                    _ => drop(scene.driver.ring.publish(None)),
                }
            }
        });
        scene.look();
        if !whole {
            kills += 1;
            taken.clear();
            scene.restart();
            left += usize::from(scene.driver.ring.left() > 0);
        }
    }
    assert!(kills > 1000 && left > 1000, "{kills} {left}");
    scene.recovers();
}

#[test]
fn requests_that_are_left_come_before_new_ones() {
    let mut scene = Scene::new(5);
    scene.offer(2);
    scene.offer(6);
    assert_eq!((scene.take(), scene.take()), (Some(2), Some(6)));
    scene.restart();
    scene.offer(1);
    let ring = &mut scene.driver.ring;
    assert!(ring.left() == 2 && ring.is_drained());
    assert_eq!(
        ring.want_kicks(None),
        Ok(true),
        "there is something to take"
    );
    let taken: Vec<u16> = std::iter::from_fn(|| scene.take()).collect();
    assert_eq!(taken, [2, 6, 1]);
    assert_eq!(scene.driver.ring.left(), 0);
    assert_eq!(scene.driver.ring.next_available(), 8);
}

#[test]
fn a_descriptor_that_is_left_and_offered_again_is_a_fault() {
    let mut scene = Scene::new(0);
    scene.offer(2);
    assert_eq!(scene.take(), Some(2));
    scene.restart();
    scene.driver.offer(2);
    assert_eq!(scene.take(), Some(2));
    assert_eq!(scene.driver.take(), Err("a descriptor is available twice"));
}
