//! The crate's client against its server, with a disk in memory.

use proptest::prelude::*;
use tidegate_nbd::client::{self, Decoded, Handshake, Negotiated, Progress, Reply, Wishes};
use tidegate_nbd::*;

const SIZE: usize = 1 << 16;

/// Exports of the test: one disk, under its own name and as the default.
struct TestExports(Abilities);

impl Exports for TestExports {
    fn lookup(&self, name: &str) -> Option<Export> {
        ["", "disk"].contains(&name).then(|| Export {
            abilities: self.0,
            description: "in memory".into(),
            block: BlockSize::new(512, 4096, 1 << 15).unwrap(),
            require_block_size: true,
            ..Export::new(1, "disk", SIZE as u64)
        })
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        f("disk", "in memory");
    }
}

fn abilities() -> Abilities {
    Abilities {
        flush: true,
        fua: true,
        write_zeroes: true,
        df: true,
        block_status: true,
        ..Abilities::default()
    }
}

/// Minimal server: one session and a disk in memory.
struct Server {
    session: Session,
    shelf: TestExports,
    disk: Vec<u8>,
    context: Option<u32>,
    out: Vec<u8>,
}

impl Server {
    fn new(abilities: Abilities) -> Server {
        let session = Session::new(Limits::default());
        Server {
            session,
            shelf: TestExports(abilities),
            disk: vec![0; SIZE],
            context: None,
            out: vec![],
        }
    }

    /// Processes whole messages and returns the bytes sent back.
    fn receive(&mut self, mut input: &[u8]) -> Vec<u8> {
        loop {
            self.out.extend(self.session.output());
            self.session.consume_output(self.session.output().len());
            let (n, step) = self.session.handle(input, &self.shelf).unwrap();
            input = &input[n..];
            match step {
                Step::NeedMore(_) => return std::mem::take(&mut self.out),
                Step::Output => {}
                Step::Opened(opened) => self.context = opened.allocation_context,
                Step::Request(r) => {
                    let payload = if r.command == Command::Write {
                        r.len as usize
                    } else {
                        0
                    };
                    let (payload, rest) = input.split_at(payload);
                    self.serve(&r, payload);
                    input = rest;
                }
                Step::Rejected(r) => {
                    let mut out = [0; reply::ERROR_LEN];
                    let style = self.session.reply_style();
                    let n = style.error(r.cookie, r.error, r.reason.message(), &mut out);
                    self.out.extend(&out[..n]);
                }
                Step::StartTls => unreachable!("TLS is not offered"),
                Step::Disconnect(_) => return std::mem::take(&mut self.out),
            }
        }
    }

    fn serve(&mut self, r: &Request, payload: &[u8]) {
        let style = self.session.reply_style();
        let range = r.offset as usize..r.offset as usize + r.len as usize;
        let mut head = [0; reply::HEAD_LEN];
        let n = match r.command {
            Command::Read { .. } => style.data(r.cookie, r.offset, r.len, &mut head),
            Command::BlockStatus { .. } => {
                let zero = self.disk[range.clone()].iter().all(|b| *b == 0);
                let extent = Extent {
                    len: r.len,
                    hole: false,
                    zero,
                };
                let mut out = vec![0; reply::block_status_len(1)];
                reply::block_status(
                    r.cookie,
                    self.context.unwrap(),
                    [extent].into_iter(),
                    &mut out,
                );
                self.out.extend(out);
                return;
            }
            Command::Write => {
                self.disk[range.clone()].copy_from_slice(payload);
                style.done(r.cookie, &mut head)
            }
            Command::WriteZeroes { .. } => {
                self.disk[range.clone()].fill(0);
                style.done(r.cookie, &mut head)
            }
            Command::Flush | Command::Trim | Command::Cache => style.done(r.cookie, &mut head),
        };
        self.out.extend(&head[..n]);
        if matches!(r.command, Command::Read { .. }) {
            self.out.extend(&self.disk[range]);
        }
    }
}

/// Runs the handshake with at most `piece` new bytes for the client at a time.
fn connect(
    server: &mut Server,
    name: &str,
    wishes: Wishes,
    piece: usize,
) -> Result<Negotiated, client::ClientError> {
    let mut handshake = Handshake::new(name, wishes);
    let mut to_client = server.receive(&[]);
    let mut given = 0;
    loop {
        given = (given + piece).min(to_client.len());
        let (n, progress) = handshake.handle(&to_client[..given])?;
        to_client.drain(..n);
        given -= n;
        match progress {
            Progress::NeedMore(n) => assert!(n > given, "{n} bytes needed, {given} given"),
            Progress::StartTls => unreachable!("TLS is not required"),
            Progress::Send => {
                let sent = handshake.output().to_vec();
                handshake.consume_output(sent.len());
                to_client.extend(server.receive(&sent));
            }
            Progress::Ready(negotiated) => {
                assert!(to_client.is_empty());
                return Ok(negotiated);
            }
        }
    }
}

const ALL: Wishes = Wishes {
    structured_replies: true,
    allocation_context: true,
};

#[test]
fn the_handshake_agrees_on_what_both_have() {
    for piece in [1, 7, 1000] {
        let all = connect(&mut Server::new(abilities()), "", ALL, piece).unwrap();
        assert_eq!((all.size, all.flags), (SIZE as u64, 0b1100_1101));
        assert_eq!(all.name.as_deref(), Some("disk"));
        assert_eq!(all.description.as_deref(), Some("in memory"));
        assert_eq!(all.block, BlockSize::new(512, 4096, 1 << 15).unwrap());
        assert_eq!(all.style, ReplyStyle::Structured);
        assert!(all.allocation_context.is_some());

        let few = connect(
            &mut Server::new(abilities()),
            "disk",
            Wishes::default(),
            piece,
        )
        .unwrap();
        assert_eq!((few.flags, few.style), (0b0100_1101, ReplyStyle::Simple));
        assert_eq!(few.allocation_context, None);

        let none = connect(&mut Server::new(Abilities::default()), "", ALL, piece).unwrap();
        assert_eq!((none.flags, none.allocation_context), (1, None));
    }
}

#[test]
fn an_unknown_export_is_refused_in_words() {
    let error = connect(&mut Server::new(abilities()), "dsik", ALL, 99).unwrap_err();
    let client::ClientError::Refused { message, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(message, "there is no export named \"dsik\"");
}

fn operation() -> impl Strategy<Value = (Request, u8)> {
    let command = prop_oneof![
        any::<bool>().prop_map(|_| Command::Read { df: false }),
        Just(Command::Write),
        Just(Command::Flush),
        any::<bool>().prop_map(|no_hole| Command::WriteZeroes {
            no_hole,
            fast_zero: false
        }),
        any::<bool>().prop_map(|one| Command::BlockStatus { one }),
    ];
    (
        any::<u64>(),
        command,
        any::<bool>(),
        0_u64..130,
        0_u32..70,
        any::<u8>(),
    )
        .prop_map(|(cookie, command, fua, offset, len, fill)| {
            let (offset, len) = if command == Command::Flush {
                (0, 0)
            } else {
                (offset * 512, len * 512)
            };
            (
                Request {
                    cookie,
                    command,
                    fua,
                    offset,
                    len,
                },
                fill,
            )
        })
}

/// Expected error of a request on an export of `SIZE` bytes.
fn expected(r: &Request, negotiated: &Negotiated) -> Option<NbdError> {
    let structured = negotiated.style == ReplyStyle::Structured;
    let writes = matches!(r.command, Command::Write | Command::WriteZeroes { .. });
    let payload = matches!(r.command, Command::Write | Command::Read { .. });
    match r.command {
        Command::Flush => None,
        Command::BlockStatus { .. } if negotiated.allocation_context.is_none() => {
            Some(NbdError::Einval)
        }
        _ if r.len == 0 => Some(NbdError::Einval),
        _ if r.offset + u64::from(r.len) > SIZE as u64 => Some(if writes {
            NbdError::Enospc
        } else {
            NbdError::Einval
        }),
        Command::Read { .. } if r.len > 1 << 15 && structured => Some(NbdError::Eoverflow),
        _ if payload && r.len > 1 << 15 => Some(NbdError::Einval),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn requests_do_what_they_say(
        structured: bool,
        operations in prop::collection::vec(operation(), 1..30),
    ) {
        let mut server = Server::new(abilities());
        let wishes = if structured { ALL } else { Wishes::default() };
        let negotiated = connect(&mut server, "disk", wishes, 1000).unwrap();
        let mut shadow = vec![0; SIZE];
        for (r, fill) in operations {
            let mut bytes = client::encode_request(&r).to_vec();
            if r.command == Command::Write {
                bytes.resize(28 + r.len as usize, fill);
            }
            let back = server.receive(&bytes);
            let Decoded::Reply(n, reply) = client::decode_reply(&back).unwrap() else {
                panic!("half a reply")
            };
            let data = &back[n..];
            let error = match reply {
                Reply::Simple { cookie, error } => {
                    prop_assert!(cookie == r.cookie && !structured);
                    error
                }
                Reply::Error { cookie, error, message, offset: None, last: true } => {
                    prop_assert!(cookie == r.cookie && !message.is_empty() && structured);
                    Some(error)
                }
                Reply::None { cookie } | Reply::OffsetData { cookie, last: true, .. } => {
                    prop_assert_eq!(cookie, r.cookie);
                    None
                }
                Reply::BlockStatus { mut extents, last: true, .. } => {
                    let extent = extents.next().unwrap();
                    prop_assert!(extent.len == r.len && extents.next().is_none());
                    None
                }
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(error, expected(&r, &negotiated));
            let range = r.offset as usize..r.offset as usize + r.len as usize;
            match r.command {
                _ if error.is_some() => prop_assert!(data.is_empty()),
                Command::Read { .. } => prop_assert_eq!(data, &shadow[range]),
                Command::Write => shadow[range].fill(fill),
                Command::WriteZeroes { .. } => shadow[range].fill(0),
                _ => prop_assert!(data.is_empty()),
            }
        }
        prop_assert_eq!(&server.disk, &shadow);
        prop_assert!(server.receive(&client::encode_disconnect()).is_empty());
    }
}
