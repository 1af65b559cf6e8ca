//! Fixtures of the unit tests: a few exports, and a client that may send anything.

use crate::client::{header, put_option};
use crate::wire::*;
use crate::*;
use proptest::prelude::*;

/// Size of every test export in bytes.
pub(crate) const SIZE: u64 = 1 << 20;

/// Maximum payload of the exports with block sizes, in bytes.
pub(crate) const LAX_PAYLOAD_MAX: u32 = 1 << 16;

/// Every capability of an export.
pub(crate) const ALL: Abilities = Abilities {
    read_only: false,
    flush: true,
    fua: true,
    rotational: true,
    trim: true,
    write_zeroes: true,
    fast_zero: true,
    df: true,
    multi_conn: true,
    cache: true,
    block_status: true,
};

/// Exports for tests. `disk` can do everything and is the default; `plain` has no abilities; `ro`
/// is read-only; `full` admits no client. The others have blocks of 512 bytes and payloads of 64
/// KiB at most:
///
/// | export | refuses clients that do not ask for block sizes | serves those at any alignment |
/// |---|---|---|
/// | `strict` | yes | |
/// | `lax` | no | no |
/// | `free` | no | yes |
///
/// `lax-no-df` is `lax` without `NBD_FLAG_SEND_DF`.
pub(crate) struct TestExports;

impl Exports for TestExports {
    fn lookup(&self, name: &str) -> Option<Export> {
        let block = BlockSize::new(512, 4096, LAX_PAYLOAD_MAX).unwrap();
        let disk = Export {
            abilities: ALL,
            ..Export::new(1, "disk", SIZE)
        };
        Some(match name {
            "" | "disk" => Export {
                description: "all of it".into(),
                ..disk
            },
            "plain" => Export::new(2, "plain", SIZE),
            "free" => Export {
                name: "free".into(),
                block,
                any_alignment_unasked: true,
                ..disk
            },
            "full" => Export::new(4, "full", SIZE),
            "ro" => Export {
                abilities: Abilities {
                    read_only: true,
                    ..ALL
                },
                ..Export::new(3, "ro", SIZE)
            },
            "strict" => Export {
                name: "strict".into(),
                block,
                require_block_size: true,
                ..disk
            },
            "lax" => Export {
                name: "lax".into(),
                block,
                ..disk
            },
            "lax-no-df" => Export {
                name: "lax-no-df".into(),
                abilities: Abilities { df: false, ..ALL },
                block,
                ..disk
            },
            _ => return None,
        })
    }

    fn admit(&self, export: &Export) -> Result<(), String> {
        match export.name.as_str() {
            "full" => Err("it has 64 connections".into()),
            _ => Ok(()),
        }
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        f("disk", "all of it");
        f("plain", "");
    }
}

/// Type and data of one option reply.
pub(crate) type OptionReply = (u32, Vec<u8>);

/// Session under test with all of its output.
pub(crate) struct Bench {
    pub(crate) session: Session,
    pub(crate) output: Vec<u8>,
}

impl Bench {
    /// Starts a connection whose client has read the greeting and sent `flags`.
    pub(crate) fn with_flags(flags: u32) -> Bench {
        Bench::with_limits(flags, Limits::default())
    }

    pub(crate) fn with_limits(flags: u32, limits: Limits) -> Bench {
        Bench::with_session(flags, Session::new(limits))
    }

    /// Starts a connection to a server that uses TLS by `mode`.
    pub(crate) fn with_tls(flags: u32, mode: TlsMode) -> Bench {
        Bench::with_session(flags, Session::with_tls(Limits::default(), mode))
    }

    pub(crate) fn with_session(flags: u32, session: Session) -> Bench {
        let mut bench = Bench {
            session,
            output: Vec::new(),
        };
        assert!(bench.feed(&flags.to_be_bytes()).unwrap().is_empty());
        bench.output.clear();
        bench
    }

    pub(crate) fn new() -> Bench {
        Bench::with_flags(NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES)
    }

    /// Opens `name` with structured replies, block sizes and, if the export has it,
    /// `base:allocation`.
    pub(crate) fn opened(name: &str) -> Bench {
        let mut bench = Bench::new();
        bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
        bench.option(NBD_OPT_SET_META_CONTEXT, &meta(name, &["base:allocation"]));
        bench.option(NBD_OPT_GO, &option_go(name, &[NBD_INFO_BLOCK_SIZE]));
        assert_eq!(bench.session.reply_style(), ReplyStyle::Structured);
        bench
    }

    /// Feeds all of `input` to the session; returns every step except `NeedMore` and `Output`.
    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<Vec<Step>, Fatal> {
        let mut steps = Vec::new();
        loop {
            self.output.extend_from_slice(self.session.output());
            self.session.consume_output(self.session.output().len());
            let (n, step) = self.session.handle(input, &TestExports)?;
            input = &input[n..];
            match step {
                Step::NeedMore(_) => {
                    assert!(input.is_empty(), "NeedMore leaves {} bytes", input.len());
                    return Ok(steps);
                }
                Step::Output => assert!(!self.session.output().is_empty()),
                Step::StartTls => {
                    self.output.extend_from_slice(self.session.output());
                    self.session.consume_output(self.session.output().len());
                    self.session.tls_established();
                    steps.push(step);
                }
                Step::Disconnect(_) => {
                    self.output.extend_from_slice(self.session.output());
                    steps.push(step);
                    return Ok(steps);
                }
                _ => steps.push(step),
            }
        }
    }

    /// Sends an option; returns the steps, and the replies as type and data.
    pub(crate) fn try_option(
        &mut self,
        option: u32,
        data: &[u8],
    ) -> Result<(Vec<Step>, Vec<OptionReply>), Fatal> {
        let mut bytes = Vec::new();
        put_option(&mut bytes, option, data);
        self.output.clear();
        let steps = self.feed(&bytes)?;
        let mut replies = Vec::new();
        let mut r = Reader(&self.output);
        while !r.is_empty() {
            assert_eq!(r.u64(), Some(NBD_REP_MAGIC));
            assert_eq!(r.u32(), Some(option), "a reply names its option");
            let (kind, len) = (r.u32().unwrap(), r.u32().unwrap());
            replies.push((kind, r.bytes(len as usize).unwrap().to_vec()));
        }
        Ok((steps, replies))
    }

    /// Sends an option; returns the replies.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Vec<OptionReply> {
        self.try_option(option, data).unwrap().1
    }

    /// Sends an option that must fail; returns the error.
    pub(crate) fn refused(&mut self, option: u32, data: &[u8]) -> u32 {
        let replies = self.option(option, data);
        let (kind, message) = replies.last().unwrap();
        assert!(
            str::from_utf8(message).is_ok_and(|m| !m.is_empty()),
            "an error says why"
        );
        *kind
    }

    /// Sends an option that must open an export.
    pub(crate) fn open(&mut self, name: &str, infos: &[u16]) -> Box<Opened> {
        let (mut steps, _) = self
            .try_option(NBD_OPT_GO, &option_go(name, infos))
            .unwrap();
        match steps.pop() {
            Some(Step::Opened(opened)) => opened,
            other => panic!("{other:?} instead of Opened"),
        }
    }
}

/// Payload of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(crate) fn option_go(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    data.extend(infos.iter().flat_map(|i| i.to_be_bytes()));
    data
}

/// Payload of the metadata context options.
pub(crate) fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for q in queries {
        data.extend((q.len() as u32).to_be_bytes());
        data.extend(q.as_bytes());
    }
    data
}

/// Messages close to what a client sends: purely random bytes would fail at the first magic number.
pub(crate) fn message() -> impl Strategy<Value = Vec<u8>> {
    // "r" and "s" are exports of `crate::fuzz`.
    let name = prop_oneof![Just(""), Just("r"), Just("s"), Just("disk"), Just("none")];
    let option = (0_u32..14, name, 0_u16..6, any::<Vec<u8>>(), 0_u8..4);
    let option = option.prop_map(|(option, name, info, noise, kind)| {
        let mut data = match kind {
            0 => Vec::new(),
            1 => option_go(name, &[info]),
            2 => meta(name, &["base:allocation"]),
            _ => noise,
        };
        if option == NBD_OPT_EXPORT_NAME {
            data = name.as_bytes().to_vec();
        }
        let mut out = Vec::new();
        put_option(&mut out, option, &data);
        out
    });
    let request = (
        0_u16..64,
        0_u16..10,
        any::<u64>(),
        0_u64..1 << 21,
        0_u32..1 << 12,
    );
    let request = request.prop_map(|(flags, command, cookie, offset, len)| {
        // NBD_CMD_DISC would end the session early.
        let command = if command == NBD_CMD_DISC {
            NBD_CMD_READ
        } else {
            command
        };
        let payload = if command == NBD_CMD_WRITE {
            len as usize
        } else {
            0
        };
        let mut out = header(flags, command, cookie, offset, len).to_vec();
        // 0x25 is an arbitrary fill byte.
        out.resize(REQUEST_LEN + payload, 0x25);
        out
    });
    prop_oneof![4 => option, 4 => request, 1 => any::<Vec<u8>>()]
}
