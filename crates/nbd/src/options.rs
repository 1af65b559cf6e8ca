//! Answers to the options of the handshake ("Option types").

use crate::error::Fatal;
use crate::export::{BlockSize, Export, Exports};
use crate::output::Output;
use crate::reply::ReplyStyle;
use crate::step::{Limits, Opened};
use crate::tls::TlsProgress;
use crate::wire::*;

/// Longest part of a client's own text that an error message quotes, in bytes.
const QUOTED_LEN_MAX: usize = 128;

/// Effect of an answered option on the handshake.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered,
    /// The client leaves; only the handshake itself makes this outcome.
    Abort,
    /// The client starts TLS; only the handshake itself makes this outcome.
    StartTls,
    Open(Box<Opened>),
}

/// State that the options negotiated so far.
#[derive(Debug, Default)]
pub(crate) struct Agreed {
    pub(crate) no_zeroes: bool,
    pub(crate) style: ReplyStyle,
    /// Export for which `base:allocation` was selected, by the name that the client used.
    pub(crate) context_for: Option<String>,
}

/// Borrowed parts of the handshake that an option is answered with.
pub(crate) struct Context<'a> {
    pub(crate) exports: &'a dyn Exports,
    pub(crate) output: &'a mut Output,
    pub(crate) agreed: &'a mut Agreed,
    pub(crate) limits: &'a Limits,
    pub(crate) tls: TlsProgress,
}

/// Error reply to an option: the reply type (`NBD_REP_ERR_*`) and a message for a human reader.
struct Refusal(u32, String);

impl Refusal {
    fn invalid(why: &str) -> Refusal {
        Refusal(NBD_REP_ERR_INVALID, why.to_owned())
    }

    fn unknown(name: &str) -> Refusal {
        let why = if name.is_empty() {
            "there is no default export; ask for one by name".to_owned()
        } else {
            format!("there is no export named {:?}", clip(name, QUOTED_LEN_MAX))
        };
        Refusal(NBD_REP_ERR_UNKNOWN, why)
    }
}

type Answer = Result<Outcome, Refusal>;

impl Context<'_> {
    /// Answers one option; `payload` is all of its data. Writes the replies to `output`.
    pub(crate) fn answer(&mut self, option: u32, payload: &[u8]) -> Result<Outcome, Fatal> {
        let answer = match option {
            NBD_OPT_EXPORT_NAME => return self.export_name(payload),
            NBD_OPT_LIST => self.list(),
            NBD_OPT_STRUCTURED_REPLY => self.structured_reply(),
            NBD_OPT_INFO | NBD_OPT_GO => self.info(option, payload),
            NBD_OPT_LIST_META_CONTEXT | NBD_OPT_SET_META_CONTEXT => {
                self.meta_context(option, payload)
            }
            // The handshake answers all other options without their payload.
            other => unreachable!("option {other} has no payload to answer"),
        };
        Ok(answer.unwrap_or_else(|Refusal(kind, why)| {
            self.output.reply(option, kind, &[why.as_bytes()]);
            Outcome::Answered
        }))
    }

    /// Answers `NBD_OPT_EXPORT_NAME`. The option has no error reply, so every failure ends the
    /// connection.
    fn export_name(&mut self, payload: &[u8]) -> Result<Outcome, Fatal> {
        let name = string(payload).map_err(|reason| Fatal::BadExportName { reason })?;
        let Some(export) = self.exports.lookup(name) else {
            return Err(if self.tls.may_hide_exports() {
                Fatal::TlsRequired
            } else {
                Fatal::UnknownExport {
                    name: name.to_owned(),
                }
            });
        };
        // The option cannot carry a request for block sizes, so such clients never know them.
        if requires_block_size(&export) {
            return Err(Fatal::BlockSizeRequired {
                name: name.to_owned(),
            });
        }
        // Last, because an admitted client counts as connected.
        if let Err(why) = self.exports.admit(&export) {
            let name = name.to_owned();
            return Err(Fatal::NotAdmitted { name, why });
        }
        let flags = export.abilities.transmission_flags(self.agreed.style);
        self.output.put(&export.size.to_be_bytes());
        self.output.put(&flags.to_be_bytes());
        if !self.agreed.no_zeroes {
            // Reserved bytes of the original newstyle handshake ("Export name").
            self.output.put(&[0; 124]);
        }
        Ok(self.open(name, export, false))
    }

    /// Answers `NBD_OPT_LIST`: all exports, or `NBD_REP_ERR_TOO_BIG` if the list exceeds
    /// `Limits::list_len_max`.
    fn list(&mut self) -> Answer {
        let max = self.limits.list_len_max as usize;
        let output = &mut *self.output;
        // Replies written before a failure must be taken back.
        let mark = output.bytes.len();
        let mut count = 0_u32;
        let mut fits = true;
        self.exports.list(&mut |name, description| {
            count += 1;
            let description = clip(description, NAME_LEN_MAX);
            // Reply header, name length (4 bytes), name, description.
            let len = REP_HEAD_LEN + 4 + name.len() + description.len();
            // A longer name could not be requested by any option, so it is not listed.
            if !fits || name.len() > NAME_LEN_MAX {
                return;
            }
            fits = output.bytes.len() - mark + len <= max;
            if fits {
                let name_len = (name.len() as u32).to_be_bytes();
                let data = [&name_len, name.as_bytes(), description.as_bytes()];
                output.reply(NBD_OPT_LIST, NBD_REP_SERVER, &data);
            }
        });
        if !fits {
            output.bytes.truncate(mark);
            let why = format!("the list of {count} exports is too long; ask for one by name");
            return Err(Refusal(NBD_REP_ERR_TOO_BIG, why));
        }
        output.reply(NBD_OPT_LIST, NBD_REP_ACK, &[]);
        Ok(Outcome::Answered)
    }

    /// Answers `NBD_OPT_STRUCTURED_REPLY`. A repeated request is acknowledged and changes nothing.
    fn structured_reply(&mut self) -> Answer {
        self.agreed.style = ReplyStyle::Structured;
        self.output
            .reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, &[]);
        Ok(Outcome::Answered)
    }

    /// Answers `NBD_OPT_INFO` and `NBD_OPT_GO`.
    fn info(&mut self, option: u32, payload: &[u8]) -> Answer {
        let (name, wanted) = parse_info(payload)?;
        let export = self
            .exports
            .lookup(name)
            .ok_or_else(|| self.unknown_export(name))?;
        let wants = |info: u16| wanted.chunks_exact(2).any(|w| w == info.to_be_bytes());
        // A client that requests block sizes promises to respect them ("Size constraints").
        let knows_block_size = wants(NBD_INFO_BLOCK_SIZE);

        // The specification allows information that the client did not request.
        if knows_block_size || export.block != BlockSize::DEFAULT {
            let b = export.block;
            let [minimum, preferred, maximum] =
                [b.minimum(), b.preferred(), b.maximum()].map(u32::to_be_bytes);
            self.send_info(
                option,
                NBD_INFO_BLOCK_SIZE,
                &[&minimum, &preferred, &maximum],
            );
        }
        if requires_block_size(&export) && !knows_block_size {
            let why = "this export needs clients that ask for NBD_INFO_BLOCK_SIZE and keep it";
            return Err(Refusal(NBD_REP_ERR_BLOCK_SIZE_REQD, why.to_owned()));
        }
        // `NBD_OPT_INFO` opens no export, so it needs no admission.
        if option == NBD_OPT_GO {
            let admitted = self.exports.admit(&export);
            admitted.map_err(|why| Refusal(NBD_REP_ERR_POLICY, why))?;
        }
        let flags = export.abilities.transmission_flags(self.agreed.style);
        let (size, flags) = (export.size.to_be_bytes(), flags.to_be_bytes());
        self.send_info(option, NBD_INFO_EXPORT, &[&size, &flags]);
        if wants(NBD_INFO_NAME) {
            let canonical = clip(&export.name, NAME_LEN_MAX).as_bytes();
            self.send_info(option, NBD_INFO_NAME, &[canonical]);
        }
        if wants(NBD_INFO_DESCRIPTION) && !export.description.is_empty() {
            let description = clip(&export.description, NAME_LEN_MAX).as_bytes();
            self.send_info(option, NBD_INFO_DESCRIPTION, &[description]);
        }
        self.output.reply(option, NBD_REP_ACK, &[]);
        Ok(match option {
            NBD_OPT_GO => self.open(name, export, knows_block_size),
            _ => Outcome::Answered,
        })
    }

    /// Answers `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. The caller has already
    /// dropped the selection of an earlier `SET`.
    fn meta_context(&mut self, option: u32, payload: &[u8]) -> Answer {
        let set = option == NBD_OPT_SET_META_CONTEXT;
        if self.agreed.style != ReplyStyle::Structured {
            let why = "metadata contexts need structured replies; negotiate those first";
            return Err(Refusal::invalid(why));
        }
        let query = MetaQuery::parse(payload)?;
        let export = self
            .exports
            .lookup(query.name)
            .ok_or_else(|| Refusal::unknown(query.name))?;
        let matches = if set {
            query.by_name
        } else {
            query.by_name || query.all_contexts
        };
        if matches && export.abilities.block_status {
            // In a listing the identifier is reserved and must be 0.
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            let data: [&[u8]; 2] = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
            self.output.reply(option, NBD_REP_META_CONTEXT, &data);
            if set {
                self.agreed.context_for = Some(query.name.to_owned());
            }
        }
        self.output.reply(option, NBD_REP_ACK, &[]);
        Ok(Outcome::Answered)
    }

    /// Returns the refusal of `NBD_OPT_INFO` and `NBD_OPT_GO` for an export that is not offered.
    /// Before TLS it is one and the same for names of no export and of those that need TLS.
    fn unknown_export(&self, name: &str) -> Refusal {
        if self.tls.may_hide_exports() {
            let why = "no export of this name is served without TLS (NBD_OPT_STARTTLS)";
            return Refusal(NBD_REP_ERR_TLS_REQD, why.to_owned());
        }
        Refusal::unknown(name)
    }

    fn send_info(&mut self, option: u32, info: u16, data: &[&[u8]]) {
        let info = info.to_be_bytes();
        let mut parts: [&[u8]; 4] = [&info, &[], &[], &[]];
        parts[1..=data.len()].copy_from_slice(data);
        self.output.reply(option, NBD_REP_INFO, &parts);
    }

    /// Opens `export`. A metadata context is kept only if it was selected under the same `name`.
    fn open(&mut self, name: &str, export: Export, knows_block_size: bool) -> Outcome {
        let style = self.agreed.style;
        let selected = self.agreed.context_for.as_deref() == Some(name);
        Outcome::Open(Box::new(Opened {
            style,
            flags: export.abilities.transmission_flags(style),
            // The export's abilities may have changed since the context was selected.
            allocation_context: (selected && export.abilities.block_status)
                .then_some(BASE_ALLOCATION_ID),
            knows_block_size,
            export,
        }))
    }
}

fn requires_block_size(export: &Export) -> bool {
    export.require_block_size && export.block != BlockSize::DEFAULT
}

/// Splits the payload of `NBD_OPT_INFO` and `NBD_OPT_GO` into the export's name and the information
/// requests, two bytes each.
fn parse_info(payload: &[u8]) -> Result<(&str, &[u8]), Refusal> {
    let mut r = Reader(payload);
    let mut fields = || {
        let len = r.u32()? as usize;
        let name = r.bytes(len)?;
        let count = usize::from(r.u16()?);
        let wanted = r.bytes(2 * count)?;
        r.is_empty().then_some((name, wanted))
    };
    let Some((name, wanted)) = fields() else {
        return Err(Refusal::invalid(
            "lengths inside the option do not match the option's length",
        ));
    };
    let name = string(name).map_err(Refusal::invalid)?;
    Ok((name, wanted))
}

/// Payload of a metadata context option, reduced to the queries that this server can match.
struct MetaQuery<'a> {
    name: &'a str,
    /// A query names `base:allocation` itself.
    by_name: bool,
    /// The client asks for every context, with no query or with a wildcard; valid only in a
    /// listing.
    all_contexts: bool,
}

impl MetaQuery<'_> {
    fn parse(payload: &[u8]) -> Result<MetaQuery<'_>, Refusal> {
        let short =
            || Refusal::invalid("lengths inside the option do not match the option's length");
        let mut r = Reader(payload);
        let sized = |r: &mut Reader<'_>| r.u32().map(|n| n as usize);
        let len = sized(&mut r).ok_or_else(short)?;
        let name = string(r.bytes(len).ok_or_else(short)?).map_err(Refusal::invalid)?;
        let count = r.u32().ok_or_else(short)?;
        let mut query = MetaQuery {
            name,
            by_name: false,
            all_contexts: count == 0,
        };
        // Each query takes four bytes at least, so the payload's end bounds this loop.
        for _ in 0..count {
            let len = sized(&mut r).ok_or_else(short)?;
            let text = string(r.bytes(len).ok_or_else(short)?).map_err(Refusal::invalid)?;
            query.by_name |= text == BASE_ALLOCATION;
            query.all_contexts |= text == BASE_WILDCARD;
        }
        if !r.is_empty() {
            return Err(short());
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, SIZE, meta, option_go};
    use crate::{Disconnect, Step};

    const ACK: (u32, Vec<u8>) = (NBD_REP_ACK, Vec::new());

    fn info_export(flags: u16) -> (u32, Vec<u8>) {
        let data = [
            &NBD_INFO_EXPORT.to_be_bytes()[..],
            &SIZE.to_be_bytes(),
            &flags.to_be_bytes(),
        ];
        (NBD_REP_INFO, data.concat())
    }

    #[test]
    fn export_name_sends_size_flags_and_zeroes_unless_no_zeroes_is_agreed() {
        let (fixed, no_zeroes) = (NBD_FLAG_C_FIXED_NEWSTYLE, NBD_FLAG_C_NO_ZEROES);
        // Size (8 bytes) and flags (2), with or without 124 reserved bytes.
        for (client_flags, len) in [
            (fixed, 134),
            (fixed | no_zeroes, 10),
            (no_zeroes, 10),
            (0, 134),
        ] {
            let mut bench = Bench::with_flags(client_flags);
            let mut bytes = Vec::new();
            crate::client::put_option(&mut bytes, NBD_OPT_EXPORT_NAME, b"plain");
            let steps = bench.feed(&bytes).unwrap();
            assert!(matches!(&steps[..], [Step::Opened(o)] if o.export.id == 2 && o.flags == 1));
            assert_eq!(bench.output.len(), len);
            assert_eq!(
                bench.output[..10],
                [&SIZE.to_be_bytes()[..], &[0, 1]].concat()
            );
            assert!(bench.output[10..].iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn export_name_closes_where_it_cannot_serve() {
        let fails = |name: &[u8]| {
            Bench::new()
                .try_option(NBD_OPT_EXPORT_NAME, name)
                .unwrap_err()
        };
        assert_eq!(
            fails(b"none"),
            Fatal::UnknownExport {
                name: "none".into()
            }
        );
        assert_eq!(
            fails(b"strict"),
            Fatal::BlockSizeRequired {
                name: "strict".into()
            }
        );
        assert!(matches!(fails(b"\xff"), Fatal::BadExportName { .. }));
        assert!(matches!(fails(&[b'x'; 4097]), Fatal::OptionTooLong { .. }));
        assert_eq!(
            fails(&[b'x'; 4096]),
            Fatal::UnknownExport {
                name: "x".repeat(4096)
            }
        );
    }

    #[test]
    fn abort_is_acknowledged_whatever_it_carries() {
        for data in [&b""[..], b"bye", &[7; 100_000]] {
            let (steps, replies) = Bench::new().try_option(NBD_OPT_ABORT, data).unwrap();
            assert_eq!(steps, [Step::Disconnect(Disconnect::Abort)]);
            assert_eq!(replies, [ACK]);
        }
    }

    #[test]
    fn list_names_the_exports() {
        let replies = Bench::new().option(NBD_OPT_LIST, &[]);
        let disk = (NBD_REP_SERVER, b"\0\0\0\x04diskall of it".to_vec());
        let plain = (NBD_REP_SERVER, b"\0\0\0\x05plain".to_vec());
        assert_eq!(replies, [disk, plain, ACK]);
        assert_eq!(
            Bench::new().refused(NBD_OPT_LIST, b"x"),
            NBD_REP_ERR_INVALID
        );
    }

    #[test]
    fn list_that_is_too_long_is_refused_whole() {
        let limits = Limits {
            list_len_max: 40,
            ..Limits::default()
        };
        let replies =
            Bench::with_limits(NBD_FLAG_C_FIXED_NEWSTYLE, limits).option(NBD_OPT_LIST, &[]);
        let why = b"the list of 2 exports is too long; ask for one by name".to_vec();
        assert_eq!(replies, [(NBD_REP_ERR_TOO_BIG, why)]);
    }

    #[test]
    fn info_has_the_size_and_what_was_requested() {
        let mut bench = Bench::new();
        let simple = crate::testing::ALL.transmission_flags(ReplyStyle::Simple);
        assert_eq!(
            bench.option(NBD_OPT_INFO, &option_go("disk", &[])),
            [info_export(simple), ACK]
        );
        let all = [
            NBD_INFO_NAME,
            NBD_INFO_DESCRIPTION,
            NBD_INFO_BLOCK_SIZE,
            NBD_INFO_EXPORT,
            99,
        ];
        let replies = bench.option(NBD_OPT_INFO, &option_go("", &all));
        let block = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec();
        let expected = [
            (NBD_REP_INFO, block),
            info_export(simple),
            (NBD_REP_INFO, b"\0\x01disk".to_vec()),
            (NBD_REP_INFO, b"\0\x02all of it".to_vec()),
            ACK,
        ];
        assert_eq!(replies, expected);
    }

    #[test]
    fn info_does_not_send_an_empty_description() {
        let replies =
            Bench::new().option(NBD_OPT_INFO, &option_go("plain", &[NBD_INFO_DESCRIPTION]));
        assert_eq!(replies, [info_export(1), ACK]);
    }

    #[test]
    fn go_opens_what_info_described() {
        let mut bench = Bench::new();
        let described = bench.option(NBD_OPT_INFO, &option_go("disk", &[NBD_INFO_NAME]));
        let (steps, replies) = bench
            .try_option(NBD_OPT_GO, &option_go("disk", &[NBD_INFO_NAME]))
            .unwrap();
        assert_eq!(replies, described);
        let [Step::Opened(opened)] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!((opened.export.id, opened.style), (1, ReplyStyle::Simple));
        assert_eq!(
            (opened.allocation_context, opened.knows_block_size),
            (None, false)
        );
    }

    #[test]
    fn unknown_exports_are_refused_with_a_message_of_bounded_length() {
        let mut bench = Bench::new();
        let long = "ä".repeat(2000);
        for option in [NBD_OPT_INFO, NBD_OPT_GO] {
            assert_eq!(
                bench.refused(option, &option_go("none", &[])),
                NBD_REP_ERR_UNKNOWN
            );
            let replies = bench.option(option, &option_go(&long, &[]));
            assert_eq!(replies[0].0, NBD_REP_ERR_UNKNOWN);
            assert!(replies[0].1.len() < 512);
        }
        // The handshake continues after the refusal.
        assert_eq!(bench.open("disk", &[]).export.id, 1);
    }

    #[test]
    fn an_export_that_admits_nobody_can_be_looked_at_and_not_be_opened() {
        let mut bench = Bench::new();
        let looked = bench.option(NBD_OPT_INFO, &option_go("full", &[]));
        assert_eq!(looked.last(), Some(&ACK));
        let replies = bench.option(NBD_OPT_GO, &option_go("full", &[]));
        let why = b"it has 64 connections".to_vec();
        assert_eq!(replies, [(NBD_REP_ERR_POLICY, why)]);
        // The handshake continues after the refusal.
        assert_eq!(bench.open("disk", &[]).export.id, 1);
        let ended = Bench::new().try_option(NBD_OPT_EXPORT_NAME, b"full");
        let refused = ended.expect_err("refused");
        let said = refused.to_string();
        assert!(said.contains("\"full\" refused: it has 64"), "{said}");
    }

    #[test]
    fn info_whose_lengths_do_not_add_up_is_invalid() {
        let good = option_go("disk", &[NBD_INFO_NAME]);
        let mut bench = Bench::new();
        for end in 0..good.len() {
            assert_eq!(bench.refused(NBD_OPT_GO, &good[..end]), NBD_REP_ERR_INVALID);
        }
        let trailing = [&good[..], &[0]].concat();
        assert_eq!(bench.refused(NBD_OPT_GO, &trailing), NBD_REP_ERR_INVALID);
        assert_eq!(
            bench.refused(NBD_OPT_GO, &option_go("a\0b", &[])),
            NBD_REP_ERR_INVALID
        );
        let huge = [&u32::MAX.to_be_bytes()[..], b"disk\0\0"].concat();
        assert_eq!(bench.refused(NBD_OPT_GO, &huge), NBD_REP_ERR_INVALID);
        assert_eq!(
            bench.refused(NBD_OPT_GO, &option_go(&"x".repeat(4097), &[])),
            NBD_REP_ERR_INVALID
        );
    }

    #[test]
    fn strict_exports_require_clients_that_ask_for_block_sizes() {
        let mut bench = Bench::new();
        let block = b"\0\x03\0\0\x02\0\0\0\x10\0\0\x01\0\0".to_vec();
        let replies = bench.option(NBD_OPT_GO, &option_go("strict", &[]));
        assert_eq!(replies[0], (NBD_REP_INFO, block.clone()));
        assert_eq!(
            (replies.len(), replies[1].0),
            (2, NBD_REP_ERR_BLOCK_SIZE_REQD)
        );
        assert!(
            bench
                .open("strict", &[NBD_INFO_BLOCK_SIZE])
                .knows_block_size
        );

        let replies = Bench::new().option(NBD_OPT_GO, &option_go("lax", &[]));
        assert_eq!(replies[0], (NBD_REP_INFO, block));
        assert_eq!(replies.last(), Some(&ACK));
    }

    #[test]
    fn structured_reply_brings_df() {
        let mut bench = Bench::new();
        assert_eq!(
            bench.refused(NBD_OPT_STRUCTURED_REPLY, b"x"),
            NBD_REP_ERR_INVALID
        );
        assert_eq!(bench.option(NBD_OPT_STRUCTURED_REPLY, &[]), [ACK]);
        assert_eq!(bench.option(NBD_OPT_STRUCTURED_REPLY, &[]), [ACK]);
        let opened = bench.open("disk", &[]);
        assert_eq!(opened.style, ReplyStyle::Structured);
        assert_eq!(opened.flags & NBD_FLAG_SEND_DF, NBD_FLAG_SEND_DF);
    }

    #[test]
    fn meta_contexts_need_structured_replies() {
        let mut bench = Bench::new();
        for option in [NBD_OPT_LIST_META_CONTEXT, NBD_OPT_SET_META_CONTEXT] {
            assert_eq!(
                bench.refused(option, &meta("disk", &[])),
                NBD_REP_ERR_INVALID
            );
        }
    }

    #[test]
    fn meta_contexts_match_queries() {
        let found = |option, name, queries: &[&str]| {
            let mut bench = Bench::new();
            bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
            let mut replies = bench.option(option, &meta(name, queries));
            assert_eq!(replies.pop(), Some(ACK));
            assert!(replies.len() <= 1, "a context is named once");
            replies.pop().map(|(kind, data)| {
                assert_eq!(
                    (kind, &data[4..]),
                    (NBD_REP_META_CONTEXT, b"base:allocation".as_slice())
                );
                u32::from_be_bytes(data[..4].try_into().unwrap())
            })
        };
        let list = |name, queries| found(NBD_OPT_LIST_META_CONTEXT, name, queries);
        let set = |name, queries| found(NBD_OPT_SET_META_CONTEXT, name, queries);
        assert_eq!(list("disk", &[]), Some(0));
        assert_eq!(list("disk", &["base:"]), Some(0));
        assert_eq!(list("disk", &["x-y:", "base:allocation", "base:"]), Some(0));
        assert_eq!(list("disk", &["base:other", "qemu:", "nocolon", ""]), None);
        assert_eq!(list("plain", &[]), None);
        assert_eq!(
            set("disk", &["base:allocation", "base:allocation"]),
            Some(BASE_ALLOCATION_ID)
        );
        assert_eq!(set("disk", &[]), None);
        assert_eq!(set("disk", &["base:", "qemu:dirty-bitmap:a"]), None);
        assert_eq!(set("plain", &["base:allocation"]), None);
    }

    #[test]
    fn malformed_meta_queries_are_invalid() {
        let mut bench = Bench::new();
        bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
        let good = meta("disk", &["base:allocation"]);
        for end in 0..good.len() {
            let error = bench.refused(NBD_OPT_LIST_META_CONTEXT, &good[..end]);
            assert_eq!(error, NBD_REP_ERR_INVALID);
        }
        let unknown = meta("none", &["base:allocation"]);
        assert_eq!(
            bench.refused(NBD_OPT_SET_META_CONTEXT, &unknown),
            NBD_REP_ERR_UNKNOWN
        );
        let long = meta("disk", &[&"x".repeat(4097)]);
        assert_eq!(
            bench.refused(NBD_OPT_SET_META_CONTEXT, &long),
            NBD_REP_ERR_INVALID
        );
    }

    #[test]
    fn contexts_hold_for_one_export_until_the_next_set() {
        let after = |sets: &[(&str, &[&str])], name| {
            let mut bench = Bench::new();
            bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
            for (set_for, queries) in sets {
                bench.option(NBD_OPT_SET_META_CONTEXT, &meta(set_for, queries));
            }
            bench.open(name, &[]).allocation_context
        };
        let allocation: &[&str] = &["base:allocation"];
        assert_eq!(
            after(&[("disk", allocation)], "disk"),
            Some(BASE_ALLOCATION_ID)
        );
        assert_eq!(after(&[("disk", allocation)], "lax"), None);
        assert_eq!(
            after(&[("disk", allocation), ("lax", allocation)], "disk"),
            None
        );
        assert_eq!(after(&[("disk", allocation), ("disk", &[])], "disk"), None);
        // A failed SET deselects too.
        assert_eq!(
            after(&[("disk", allocation), ("none", allocation)], "disk"),
            None
        );
    }
}
