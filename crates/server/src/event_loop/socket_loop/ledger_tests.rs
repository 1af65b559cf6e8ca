//! Hand-over of slots and memory under a model checker: two loops, clients that send reads and
//! writes and vanish at any moment, or are cut off by either side.
//!
//! The device's loop is a model, the ledger and the queues are those that serve. Each slot has a
//! hand: the loop that may touch its memory.

use std::sync::atomic::Ordering;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::AtomicU32;
use shuttle::thread;
use tidegate_core::time::Nanos;

use super::ledger::Ledger;
use crate::buffer::{Mem, Pool};
use crate::frontend::handover::ToDevice;
use crate::frontend::handover::model::{End, link};
use crate::frontend::interface::{ConnectionRef, Incoming, Kind};
use crate::frontend::request_table::{Payload, Requests};

const PLACES: u32 = 2;
/// Connections one after the other at each place.
const CONNECTIONS: u32 = 2;
const REQUESTS: u32 = 3;
const SLOTS: usize = (PLACES * REQUESTS) as usize * 2;

/// Loop that may touch the memory of each slot.
type Hands = Arc<Vec<AtomicU32>>;
const DEVICE: u32 = 0;
const SOCKETS: u32 = 1;

/// Message of the device's loop.
enum ToSockets {
    Open { place: u32 },
    Receive { tag: u64, slot: u32 },
    Answer { tag: u64, slot: u32 },
    ShutDown { place: u32 },
    Stop,
}

/// Model of the device's loop.
struct Device {
    end: End<ToSockets, ToDevice>,
    hands: Hands,
    /// True for slots that have a request.
    taken: [bool; SLOTS],
    /// True for places whose connection gets no more answers.
    gone: [bool; PLACES as usize],
    /// Connections that are still to come, by place.
    left: [u32; PLACES as usize],
}

impl Device {
    fn lend(&self, slot: u32) {
        let hand = self.hands[slot as usize].swap(SOCKETS, Ordering::SeqCst);
        assert_eq!(hand, DEVICE, "slot {slot} is lent twice");
    }

    fn free(&mut self, slot: u32) {
        let hand = self.hands[slot as usize].load(Ordering::SeqCst);
        assert_eq!(hand, DEVICE, "slot {slot} is freed while it is lent");
        assert!(self.taken[slot as usize], "slot {slot} is freed twice");
        self.taken[slot as usize] = false;
    }

    /// Answers a request, unless its client is gone.
    fn answer(&mut self, place: u32, tag: u64, slot: u32) {
        if self.gone[place as usize] {
            return self.free(slot);
        }
        self.lend(slot);
        self.end.out.push(ToSockets::Answer { tag, slot });
    }

    fn run(mut self) {
        for place in 0..PLACES {
            self.end.out.push(ToSockets::Open { place });
        }
        while self.left != [0; PLACES as usize] || self.taken != [false; SLOTS] {
            match self.end.receive() {
                ToDevice::Request { place, request, .. } => {
                    if self.gone[place as usize] {
                        continue;
                    }
                    let slot = self.taken.iter().position(|taken| !taken);
                    let slot = slot.expect("a client has few requests") as u32;
                    self.taken[slot as usize] = true;
                    let tag = request.token;
                    if request.kind == Kind::Write {
                        self.lend(slot);
                        self.end.out.push(ToSockets::Receive { tag, slot });
                    } else {
                        self.answer(place, tag, slot);
                    }
                    if thread_rng().gen_bool(0.1) {
                        self.gone[place as usize] = true;
                        self.end.out.push(ToSockets::ShutDown { place });
                    }
                }
                ToDevice::Arrived {
                    place, slot, tag, ..
                } => self.answer(place, tag, slot),
                ToDevice::Ended { slot, .. } => self.free(slot),
                ToDevice::Lost { place, .. } => self.gone[place as usize] = true,
                ToDevice::Closed { place } => {
                    self.left[place as usize] -= 1;
                    if self.left[place as usize] > 0 {
                        self.gone[place as usize] = false;
                        self.end.out.push(ToSockets::Open { place });
                    }
                }
                other => unreachable!("{other:?}"),
            }
        }
        self.end.out.push(ToSockets::Stop);
        self.end.finish();
    }
}

/// Client of the model's socket loop.
struct Client {
    owner: ConnectionRef,
    /// Requests that it will still send.
    left: u32,
    /// Requests with memory that is lent: a payload that is arriving, or a reply that is not sent.
    held: Vec<u32>,
}

/// Socket loop with the real ledger.
struct Sockets {
    end: End<ToDevice, ToSockets>,
    hands: Hands,
    ledger: Ledger,
    clients: [Option<Client>; PLACES as usize],
    generation: u32,
}

impl Sockets {
    /// Works on the memory of a slot, as a receive or a send does for a while.
    fn touch(&self, slot: u32) {
        for _ in 0..2 {
            let hand = self.hands[slot as usize].load(Ordering::SeqCst);
            assert_eq!(hand, SOCKETS, "slot {slot} is touched and not lent");
            thread::yield_now();
        }
    }

    /// Gives a slot back by a message of the ledger.
    fn send(&self, message: ToDevice) {
        if let ToDevice::Ended { slot, .. } | ToDevice::Arrived { slot, .. } = message {
            let hand = self.hands[slot as usize].swap(DEVICE, Ordering::SeqCst);
            assert_eq!(hand, SOCKETS, "slot {slot} is given back and was not lent");
        }
        self.end.out.push(message);
    }

    /// Lets a client send a request, send a reply, finish a payload, or vanish.
    fn act(&mut self, place: u32) {
        let Some(client) = &mut self.clients[place as usize] else {
            return;
        };
        if thread_rng().gen_bool(0.1) || (client.left == 0 && client.held.is_empty()) {
            let errno = None;
            self.end.out.push(ToDevice::Lost { place, errno });
            return self.close(place);
        }
        if let Some(index) = client.held.pop() {
            if self.ledger.requests.get(index).claimed {
                // `claimed` marks a write whose payload is arriving.
                self.ledger.requests.get_mut(index).claimed = false;
                let tag = self.ledger.requests.tag(index);
                let slot = self.ledger.hand_back(index);
                self.touch(slot);
                return self.send(ToDevice::Arrived {
                    place,
                    slot,
                    tag,
                    since: Nanos::ZERO,
                });
            }
            let ended = self.ledger.end(index, Some(Nanos::ZERO));
            return self.send(ended.expect("a reply is in memory that is lent"));
        }
        client.left -= 1;
        let writes = thread_rng().gen_bool(0.5);
        let request = Incoming {
            kind: if writes { Kind::Write } else { Kind::Read },
            offset: 0,
            len: 512,
            fua: false,
            token: 0,
        };
        let index = self.ledger.insert(client.owner, &request, Nanos::ZERO);
        let token = self.ledger.requests.tag(index);
        self.end.out.push(ToDevice::Request {
            place,
            request: Incoming { token, ..request },
            since: Nanos::ZERO,
        });
    }

    fn close(&mut self, place: u32) {
        let client = self.clients[place as usize].take().expect("it is there");
        for index in client.held {
            self.ledger.requests.get_mut(index).claimed = false;
            let ended = self.ledger.end(index, None);
            self.send(ended.expect("what is held is lent"));
        }
        self.ledger.forget(client.owner);
        self.end.out.push(ToDevice::Closed { place });
    }

    /// Takes a message. Returns false after the last one.
    fn take(&mut self, message: ToSockets) -> bool {
        let (tag, slot, arrives) = match message {
            ToSockets::Receive { tag, slot } => (tag, slot, true),
            ToSockets::Answer { tag, slot } => (tag, slot, false),
            ToSockets::Open { place } => {
                assert!(self.clients[place as usize].is_none(), "place is taken");
                self.generation += 1;
                self.clients[place as usize] = Some(Client {
                    owner: ConnectionRef {
                        index: place,
                        generation: self.generation,
                    },
                    left: REQUESTS,
                    held: Vec::new(),
                });
                return true;
            }
            ToSockets::ShutDown { place } => {
                // The next client comes only after the device's loop knows of the end of this one.
                if self.clients[place as usize].is_some() {
                    self.close(place);
                }
                return true;
            }
            ToSockets::Stop => return false,
        };
        match self.ledger.borrow(tag, slot, Payload::Lent(Mem::EMPTY)) {
            Ok(index) => {
                self.touch(slot);
                self.ledger.requests.get_mut(index).claimed = arrives;
                let place = self.ledger.requests.get(index).owner.index;
                let client = self.clients[place as usize].as_mut();
                client.expect("its requests leave with it").held.push(index);
            }
            Err(ended) => self.send(ended),
        }
        true
    }

    fn run(mut self) {
        loop {
            while let Some(message) = self.end.input.pop() {
                if !self.take(message) {
                    assert_eq!(self.ledger.requests.len(), 0);
                    return;
                }
            }
            if self.clients.iter().any(Option::is_some) {
                (0..PLACES).for_each(|place| self.act(place));
                self.end.publish();
            } else {
                let message = self.end.receive();
                if !self.take(message) {
                    assert_eq!(self.ledger.requests.len(), 0);
                    return;
                }
            }
        }
    }
}

#[test]
fn each_slot_is_in_one_hand_and_comes_back_whatever_clients_do() {
    shuttle::check_random(
        || {
            let (device, sockets) = link(4);
            let hands: Hands = Arc::new((0..SLOTS).map(|_| AtomicU32::new(DEVICE)).collect());
            let device = Device {
                end: device,
                hands: hands.clone(),
                taken: [false; SLOTS],
                gone: [false; PLACES as usize],
                left: [CONNECTIONS; PLACES as usize],
            };
            let sockets = Sockets {
                end: sockets,
                hands: hands.clone(),
                ledger: Ledger::new(Requests::new(Pool::new(0).expect("addresses"))),
                clients: [None, None],
                generation: 0,
            };
            let device = thread::spawn(move || device.run());
            sockets.run();
            device.join().unwrap();
            for hand in hands.iter() {
                assert_eq!(hand.load(Ordering::SeqCst), DEVICE);
            }
        },
        400,
    );
}
