//! Exports against a model of a server with a volatile cache, which is killed at any point.
//!
//! A server has finished or dropped the requests of a connection before it serves the next one: NBD
//! has nothing by which a client could tell late requests from new ones. The model is such a
//! server, as all must be. Its connections share one cache. One that breaks, and those of a server
//! that was killed, take requests and answer none; what the server had answered before can still
//! arrive, until the client cuts.

mod cases;

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// Bytes of the disk, and of the log's data.
const SIZE: u64 = 20;
const LOG: u64 = 16;
/// Longest request.
const LEN_MAX: u32 = 9;

/// Content of a byte: the number of the change that wrote it.
type Content = u32;

/// Number of a change, and the content that it has given a byte; `None`: any.
type Trace = (u32, Option<Content>);

/// Server with a volatile cache.
struct Server {
    durable: Vec<Content>,
    cache: Vec<Content>,
    /// For each byte: a flush has failed, and later ones leave out what was in the cache then, as
    /// Linux does with pages that it could not write.
    lost: Vec<bool>,
    /// Requests that were received, with their connection and the content that they carry.
    received: Vec<(usize, Request, Vec<Content>)>,
    /// Replies that were not delivered, with their connection and the content that they carry.
    replies: Vec<(usize, u64, Option<NbdError>, Vec<Content>)>,
    /// For each connection: no reply comes any more.
    broken: Vec<bool>,
}

impl Server {
    /// Kills the server, and starts another one that has what was durable.
    fn kill(&mut self) {
        self.received.clear();
        self.broken.fill(true);
        self.cache = self.durable.clone();
    }

    fn execute(&mut self, at: usize, error: Option<NbdError>) {
        let (on, request, content) = self.received.swap_remove(at);
        let range = request.offset as usize..request.offset as usize + request.len as usize;
        // A request that fails may be done in part.
        let to = match error {
            Some(_) => range.start + range.len() / 2,
            None => range.end,
        };
        let range = range.start..to;
        if !matches!(request.command, Command::Read { .. }) {
            self.lost[range.clone()].fill(false);
        }
        let mut answer = Vec::new();
        match request.command {
            Command::Read { .. } => answer.extend_from_slice(&self.cache[range]),
            Command::Write => self.cache[range.clone()].copy_from_slice(&content[..range.len()]),
            Command::WriteZeroes { .. } => self.cache[range].fill(0),
            // What a trim leaves is undefined: a content that no change has.
            Command::Trim => self.cache[range].fill(Content::MAX),
            Command::Flush if error == Some(NbdError::Eshutdown) => {}
            Command::Flush => {
                for cell in 0..SIZE as usize {
                    if error.is_some() {
                        self.lost[cell] |= self.cache[cell] != self.durable[cell];
                    } else if !self.lost[cell] {
                        self.durable[cell] = self.cache[cell];
                    }
                }
            }
            Command::Cache | Command::BlockStatus { .. } => unreachable!("never asked"),
        }
        if error.is_some() {
            answer.clear();
        }
        if !self.broken[on] {
            self.replies.push((on, request.cookie, error, answer));
        }
    }
}

/// Request of the client.
struct Client {
    ask: Ask,
    number: u32,
    /// Content that a read has brought.
    read: Vec<Content>,
    /// For each byte, the last change that was acknowledged when it was submitted.
    base: Vec<u32>,
}

struct Model {
    export: Export,
    server: Server,
    terms: Terms,
    ring: Vec<Content>,
    clients: BTreeMap<u32, Client>,
    /// Changes of each byte, oldest first.
    traces: Vec<Vec<Trace>>,
    /// For each byte, the last change that was acknowledged, and that is promised to be durable.
    acknowledged: Vec<u32>,
    promised: Vec<u32>,
    next: u32,
    failures: usize,
    /// Number of connections, and for each: a poll is due, as after a call that may bring something
    /// to send.
    connections: usize,
    is_due: Vec<bool>,
}

impl Model {
    fn new(terms: Terms) -> Model {
        let cells = SIZE as usize;
        Model {
            export: Export::new(LOG),
            server: Server {
                durable: vec![0; cells],
                cache: vec![0; cells],
                lost: vec![false; cells],
                received: Vec::new(),
                replies: Vec::new(),
                broken: vec![false],
            },
            terms,
            ring: vec![0; LOG as usize],
            clients: BTreeMap::new(),
            traces: vec![vec![(0, Some(0))]; cells],
            acknowledged: vec![0; cells],
            promised: vec![0; cells],
            next: 0,
            failures: 0,
            connections: 1,
            is_due: vec![false],
        }
    }

    fn cells(range: &Range<u64>) -> Range<usize> {
        range.start as usize..range.end as usize
    }

    fn submit(&mut self, operation: Operation, offset: u64, len: u32, fua: bool) {
        self.next += 1;
        let number = self.next;
        let (offset, len) = match operation {
            Operation::Flush => (0, 0),
            _ => (offset, len.min((SIZE - offset) as u32)),
        };
        let ask = Ask {
            tag: number,
            operation,
            offset,
            len,
            fua: fua && matches!(operation, Operation::Change(_)),
        };
        if let Operation::Change(change) = operation {
            let content = match change {
                Change::Write => Some(number),
                Change::Zeroes { .. } => Some(0),
                Change::Trim => None,
            };
            for cell in Model::cells(&range_of(&ask)) {
                self.traces[cell].push((number, content));
            }
        }
        let base = self.acknowledged.clone();
        let read = vec![Content::MAX; len as usize];
        let client = Client {
            ask,
            number,
            read,
            base,
        };
        self.clients.insert(number, client);
        self.export.submit(ask);
        self.is_due.fill(true);
        self.take_ended();
    }

    /// Returns true if a byte may have this content, where changes before `base` are gone.
    fn may_be(&self, cell: usize, content: Content, base: u32) -> bool {
        let mut later = self.traces[cell]
            .iter()
            .filter(|(number, _)| *number >= base);
        later.any(|(_, made)| made.is_none_or(|made| made == content))
    }

    fn take_ended(&mut self) {
        while let Some((tag, result)) = self.export.poll_ended() {
            let client = self.clients.remove(&tag).expect("ends once");
            if result.is_err() {
                self.failures += 1;
                continue;
            }
            let Client {
                ask,
                number,
                read,
                base,
            } = client;
            let cells = Model::cells(&range_of(&ask));
            match ask.operation {
                Operation::Read => {
                    for (cell, content) in cells.zip(read) {
                        assert!(
                            self.may_be(cell, content, base[cell]),
                            "byte {cell} was read as {content}, {:?} from {} on",
                            self.traces[cell],
                            base[cell]
                        );
                    }
                }
                Operation::Change(_) => {
                    for cell in cells {
                        let last = &mut self.acknowledged[cell];
                        // One with FUA ends by a flush, which a later change may overtake.
                        assert!(*last < number || ask.fua, "not in order");
                        *last = number.max(*last);
                        if ask.fua {
                            self.promised[cell] = number.max(self.promised[cell]);
                        }
                    }
                }
                Operation::Flush => {
                    for (promised, base) in self.promised.iter_mut().zip(base) {
                        *promised = base.max(*promised);
                    }
                }
            }
        }
        for cell in 0..SIZE as usize {
            let content = self.server.durable[cell];
            assert!(
                self.may_be(cell, content, self.promised[cell]),
                "byte {cell} is durable as {content}, {:?} promised {}",
                self.traces[cell],
                self.promised[cell]
            );
        }
    }

    /// Sends up to `most` requests on a connection. A caller polls again only when they were sent,
    /// or after another call.
    fn send(&mut self, on: usize, most: u64) {
        let mut count = 0;
        while count < most
            && let Some(Outgoing { request, data }) = self.export.poll_send(on)
        {
            let len = request.len as usize;
            let content = match data {
                Data::None => Vec::new(),
                Data::Ask { tag, from } => {
                    let ask = &self.clients[&tag].ask;
                    assert_eq!(request.offset, ask.offset + u64::from(from));
                    assert!(request.len <= ask.len - from);
                    vec![tag; len]
                }
                Data::Log { at } => (at..at + u64::from(request.len))
                    .map(|at| self.ring[(at % LOG) as usize])
                    .collect(),
                Data::Zeroes => vec![0; len],
            };
            assert!(matches!(request.command, Command::Flush) || len > 0);
            match request.command {
                Command::Write | Command::Read { .. } => {
                    assert!(request.len <= self.terms.max_payload);
                }
                Command::Trim => assert!(self.terms.can_trim),
                Command::WriteZeroes { .. } => assert!(self.terms.can_zero),
                _ => {
                    assert!(self.terms.can_flush && self.export.failure().is_none());
                    let flush =
                        |(_, request, _): &(usize, Request, _)| request.command == Command::Flush;
                    assert!(
                        !self.server.received.iter().any(flush),
                        "one flush at a time"
                    );
                }
            }
            self.check_order(&request);
            count += 1;
            if !self.server.broken[on] {
                self.server.received.push((on, request, content));
            }
        }
        self.export.sent(on, count);
        self.is_due[on] = count > 0 || self.export.is_gathering();
        self.take_ended();
    }

    /// No two changes that overlap are on the wire.
    fn check_order(&self, request: &Request) {
        let changes = |command: Command| !matches!(command, Command::Read { .. } | Command::Flush);
        let end = |request: &Request| request.offset + u64::from(request.len);
        let meets = |(_, other, _): &(usize, Request, _)| {
            changes(other.command) && other.offset < end(request) && request.offset < end(other)
        };
        assert!(!changes(request.command) || !self.server.received.iter().any(meets));
    }

    /// Delivers a reply. Returns true if the export wants a cut.
    fn deliver(&mut self, at: usize) -> bool {
        let (on, cookie, error, content) = self.server.replies.remove(at);
        self.is_due.fill(true);
        let mut wants_cut = match self.export.reply(on, cookie, error) {
            Ok(Answer::Done) => false,
            Ok(Answer::Data { tag, from, len }) => {
                let to = from as usize..(from + len) as usize;
                let client = self.clients.get_mut(&tag).expect("under way");
                client.read[to].copy_from_slice(&content);
                self.export.take_data(cookie);
                false
            }
            Ok(Answer::Log { tag, at }) => {
                let len = self.clients[&tag].ask.len;
                for at in at..at + u64::from(len) {
                    self.ring[(at % LOG) as usize] = tag;
                }
                false
            }
            Err(Cut::Failed) => true,
            Err(other) => panic!("{other}"),
        };
        wants_cut |= self.export.is_drained();
        if !wants_cut {
            self.take_ended();
        }
        wants_cut
    }

    fn cut(&mut self, is_killed: bool) {
        if is_killed {
            self.server.kill();
        }
        self.server.received.clear();
        self.server.replies.clear();
        self.export.cut();
        self.take_ended();
    }

    /// Makes new connections to a server that is what the `meeting` says.
    fn connect(&mut self, meeting: Meeting) {
        let Meeting { count, early, .. } = meeting;
        let early = early % count;
        if early > 0 {
            self.server.kill();
        }
        self.server.broken = (0..count).map(|on| on < early).collect();
        self.connections = count;
        self.terms.max_payload = meeting.max_payload;
        self.export.connected(self.terms, count);
        self.is_due = vec![true; count];
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Submit(operation, offset, len, fua) if self.clients.len() < 12 => {
                self.submit(operation, offset, len, fua);
            }
            Step::Submit(..) => {}
            Step::Send(on, most) if self.export.is_connected() => {
                let on = on % self.connections;
                if self.is_due[on] {
                    self.send(on, most);
                }
            }
            Step::Send(..) => {}
            Step::Execute(at, error) if !self.server.received.is_empty() => {
                let at = at % self.server.received.len();
                let is_read = matches!(self.server.received[at].1.command, Command::Read { .. });
                self.server.execute(at, error.filter(|_| !is_read));
            }
            Step::Execute(..) => {}
            Step::Deliver(at) if !self.server.replies.is_empty() => {
                if self.deliver(at % self.server.replies.len()) {
                    self.cut(false);
                }
            }
            Step::Deliver(_) => {}
            Step::WriteBack(cell) if !self.server.lost[cell] => {
                self.server.durable[cell] = self.server.cache[cell];
                self.take_ended();
            }
            Step::WriteBack(_) => {}
            Step::Cut(is_killed) if self.export.is_connected() => self.cut(is_killed),
            // A server that is away may be killed as well.
            Step::Cut(true) | Step::Kill => self.server.kill(),
            Step::Cut(false) => {}
            Step::Break(on) => self.server.broken[on % self.connections] = true,
            Step::Stop if self.export.is_connected() && self.server.broken.contains(&true) => {
                self.export.stop();
                if self.export.is_drained() {
                    self.cut(false);
                }
            }
            Step::Stop => {}
            Step::Connect(meeting)
                if !self.export.is_connected() && self.export.failure().is_none() =>
            {
                self.connect(meeting);
            }
            Step::Connect(_) => {}
            Step::FlushLog => {
                self.export.flush_log();
                self.is_due.fill(true);
            }
            Step::GiveUp if !self.export.is_connected() => {
                self.export.give_up();
                self.take_ended();
                assert!(self.clients.is_empty() && !self.export.is_busy());
            }
            Step::GiveUp => {}
        }
    }

    /// Serves everything that is under way, without errors.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.export.is_busy() {
                return;
            }
            if self.export.is_connected() && self.server.broken.contains(&true) {
                self.cut(false);
            }
            self.step(&Step::Connect(Meeting {
                count: 2,
                early: 0,
                max_payload: 3,
            }));
            for on in 0..self.connections {
                self.step(&Step::Send(on, u64::MAX));
            }
            self.step(&Step::Execute(0, None));
            self.step(&Step::Deliver(0));
        }
        panic!("requests wait for ever: {:?}", self.export);
    }
}

/// Connections that are made together.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    /// Number of connections: one for a server that does not share its cache.
    count: usize,
    /// Number of those after which the server is killed, whose successor takes the others.
    early: usize,
    max_payload: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Operation, u64, u32, bool),
    /// Connection, and most requests.
    Send(usize, u64),
    Execute(usize, Option<NbdError>),
    Deliver(usize),
    WriteBack(usize),
    Cut(bool),
    Kill,
    Break(usize),
    Stop,
    Connect(Meeting),
    FlushLog,
    GiveUp,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => Just(Operation::Read),
        6 => Just(Operation::Change(Change::Write)),
        1 => Just(Operation::Change(Change::Zeroes { no_hole: false })),
        1 => Just(Operation::Change(Change::Trim)),
        2 => Just(Operation::Flush),
    ]
}

fn step(errors: bool) -> impl Strategy<Value = Step> {
    let which = prop_oneof![
        Just(NbdError::Eio),
        Just(NbdError::Enospc),
        Just(NbdError::Eshutdown)
    ];
    prop_oneof![
        6 => (operation(), 0..SIZE, 1..=LEN_MAX, any::<bool>())
            .prop_map(|(operation, offset, len, fua)| Step::Submit(operation, offset, len, fua)),
        8 => (any::<usize>(), prop_oneof![1 => 1u64..4, 2 => Just(u64::MAX)])
            .prop_map(|(on, most)| Step::Send(on, most)),
        8 => (any::<usize>(), prop::option::weighted(0.05, which))
            .prop_map(move |(at, error)| Step::Execute(at, error.filter(|_| errors))),
        8 => any::<usize>().prop_map(Step::Deliver),
        1 => (0..SIZE as usize).prop_map(Step::WriteBack),
        1 => any::<bool>().prop_map(Step::Cut),
        1 => prop_oneof![Just(Step::Kill), any::<usize>().prop_map(Step::Break)],
        1 => Just(Step::Stop),
        3 => meeting().prop_map(Step::Connect),
        1 => Just(Step::FlushLog),
    ]
}

fn meeting() -> impl Strategy<Value = Meeting> {
    let early = prop_oneof![3 => Just(0), 1 => any::<usize>()];
    (1usize..4, early, 1..=LEN_MAX).prop_map(|(count, early, max_payload)| Meeting {
        count,
        early,
        max_payload,
    })
}

/// Abilities of the server, whose `max_payload` comes with each [`Meeting`].
fn terms() -> impl Strategy<Value = Terms> {
    any::<(bool, bool)>().prop_map(|(can_zero, can_trim)| Terms {
        max_payload: 1,
        can_zero,
        can_trim,
        can_flush: true,
    })
}

proptest! {
    #[test]
    fn nothing_acknowledged_is_lost(
        terms in terms(),
        steps in prop::collection::vec(step(false), 1..250),
    ) {
        let mut model = Model::new(terms);
        steps.iter().for_each(|step| model.step(step));
        model.settle();
        assert_eq!(model.failures, 0, "no error came from the server");
        assert!(model.clients.is_empty() && model.export.is_idle());
        // Everything that was acknowledged is in the cache of the server, and durable on request.
        model.submit(Operation::Read, 0, SIZE as u32, false);
        model.submit(Operation::Flush, 0, 0, false);
        model.settle();
        assert_eq!(model.promised, model.acknowledged);
        assert_eq!((model.failures, model.export.unflushed()), (0, 0));
    }

    #[test]
    fn errors_reach_their_requests_and_no_flush_lies_after_one_has_failed(
        terms in terms(),
        can_flush in prop::bool::weighted(0.9),
        steps in prop::collection::vec(step(true), 1..250),
        gives_up in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut model = Model::new(Terms { can_flush, ..terms });
        let gives_up = gives_up.map(|at| at.index(steps.len()));
        for (at, step) in steps.iter().enumerate() {
            model.step(step);
            if gives_up == Some(at) {
                model.step(&Step::Cut(false));
                model.step(&Step::GiveUp);
            }
        }
        model.settle();
        assert!(model.clients.is_empty());
        if model.export.failure().is_some() {
            let before = model.failures;
            model.submit(Operation::Change(Change::Write), 0, 1, false);
            model.submit(Operation::Flush, 0, 0, false);
            assert_eq!(model.failures, before + 2);
        }
    }
}
