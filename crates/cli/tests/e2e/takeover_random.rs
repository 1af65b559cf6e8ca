//! Clients that write, send halves of requests and leave at random, while new daemons take over
//! again and again; each byte is compared with a copy in the end.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;

use crate::control::tidegate;
use crate::daemon::Daemon;
use crate::faults::request;
use crate::takeover::{BLOCK, Client, DISCONNECT, READ, WRITE, one_disk, take_over};

/// Most requests of a client that were not answered, less than it has blocks.
const IN_FLIGHT: usize = 48;

/// Numbers that look random, from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Client of a test with random steps, whose blocks no other client writes.
struct Actor {
    client: Client,
    blocks: Range<usize>,
    /// Bytes that are yet to be sent of what was begun.
    rest: Vec<u8>,
    /// Cookies of requests that were not answered, each with the error that is due and the block.
    due: BTreeMap<u64, (u32, usize)>,
    next: u64,
}

impl Actor {
    fn new(daemon: &Daemon, blocks: Range<usize>) -> Actor {
        Actor {
            client: Client::new(daemon, "a"),
            blocks,
            rest: Vec::new(),
            due: BTreeMap::new(),
            next: 0,
        }
    }

    /// Begins a write of its blocks, or one that is refused; sends a part of it.
    fn step(&mut self, dice: &mut Dice) {
        if self.rest.is_empty() {
            // The protocol has no order of writes to one block that are in flight together.
            if self.due.len() == IN_FLIGHT {
                self.finish();
            }
            self.next += 1;
            let block = loop {
                let block = self.blocks.start + dice.below(self.blocks.len());
                if self.due.values().all(|(_, other)| *other != block) {
                    break block;
                }
            };
            let byte = 1 + dice.below(255) as u8;
            let (at, error) = match dice.below(4) {
                // ENOSPC of NBD.
                0 => (1 << 30, 28),
                _ => {
                    self.client.blocks[block] = byte;
                    ((block * BLOCK) as u64, 0)
                }
            };
            self.due.insert(self.next, (error, block));
            self.rest = request(WRITE, self.next, at, BLOCK as u32);
            self.rest.extend([byte; BLOCK]);
        }
        let most = self.rest.len();
        let part = if dice.below(2) == 0 {
            most
        } else {
            1 + dice.below(most)
        };
        let part: Vec<u8> = self.rest.drain(..part).collect();
        self.client.send(&part);
    }

    /// Sends what is left, and receives all answers.
    fn finish(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.client.send(&rest);
        while !self.due.is_empty() {
            let mut head = [0; 16];
            self.client.stream.read_exact(&mut head).expect("a reply");
            let error = u32::from_be_bytes(head[4..8].try_into().expect("four"));
            let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight"));
            let due = self.due.remove(&cookie).map(|(error, _)| error);
            assert_eq!(due, Some(error), "cookie {cookie}");
        }
    }

    /// Ends the connection in one of the ways of clients, and connects again. Writes that were not
    /// answered before are done only if the client disconnects in order.
    fn leave(&mut self, daemon: &Daemon, dice: &mut Dice) {
        let in_order = self.rest.is_empty() && dice.below(2) == 0;
        if in_order {
            self.client.send(&request(DISCONNECT, 0, 0, 0));
            let mut answers = Vec::new();
            let read = self.client.stream.read_to_end(&mut answers);
            read.expect("the last answers, then the end");
            assert_eq!(answers.len(), 16 * self.due.len(), "answers before the end");
        } else {
            self.finish();
        }
        let shadow = std::mem::take(&mut self.client.blocks);
        *self = Actor::new(daemon, self.blocks.clone());
        self.client.blocks = shadow;
    }
}

#[test]
fn random_clients_find_their_bytes_after_takeovers_at_random_times() {
    let seed = std::env::var("TIDEGATE_TAKEOVER_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("TIDEGATE_TAKEOVER_SEED={seed}");
    let mut dice = Dice(seed);
    let mut daemon = one_disk("[vm.objective]\nlimit = \"400 IOPS\"\n");
    let mut actors: Vec<Actor> = (0..4)
        .map(|at| Actor::new(&daemon, at * 64..(at + 1) * 64))
        .collect();
    for _ in 0..12 {
        for _ in 0..200 {
            let at = dice.below(actors.len());
            actors[at].step(&mut dice);
        }
        if dice.below(2) == 0 {
            // The client's requests wait while it vanishes or sends DISC.
            let mut gone = Client::new(&daemon, "a");
            gone.send(&request(READ, 1, 0, BLOCK as u32).repeat(20));
            if dice.below(2) == 0 {
                gone.send(&request(DISCONNECT, 0, 0, 0));
            }
        }
        take_over(&mut daemon);
        let at = dice.below(actors.len());
        actors[at].leave(&daemon, &mut dice);
    }
    tidegate(&daemon, &["vm", "set", "a", "--limit", "none"]);
    actors.iter_mut().for_each(Actor::finish);
    let mut reader = Client::new(&daemon, "a");
    for Actor { client, blocks, .. } in actors {
        for block in blocks {
            reader.blocks[block] = client.blocks[block];
        }
    }
    reader.check();
    daemon.stop();
}
