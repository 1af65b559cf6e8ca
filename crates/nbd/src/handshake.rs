//! The handshake phase: client flags, then options until an export is chosen.
//!
//! This file has the state machine and its framing; `options` has the answer to each option.

use crate::error::Fatal;
use crate::export::Exports;
use crate::options::{self, Agreed, Outcome};
use crate::output::Output;
use crate::reply::ReplyStyle;
use crate::request::Reason;
use crate::step::{Limits, Opened};
use crate::tls::{TlsMode, TlsProgress};
use crate::wire::*;

/// Length of an option header in bytes: magic (8), option (4), payload length (4).
const OPTION_HEAD_LEN: usize = 16;

const SHUTTING_DOWN: &str = Reason::ShuttingDown.message();

/// Result of feeding input to the handshake.
#[derive(Debug)]
pub(crate) enum Event {
    NeedMore(usize),
    Output,
    Abort,
    StartTls,
    Open { opened: Box<Opened>, at: u64 },
}

/// Server side of the handshake phase. Holds at most one option payload at a time.
#[derive(Debug)]
pub(crate) struct Handshake {
    stage: Stage,
    head: Gather<OPTION_HEAD_LEN>,
    client_flags: Gather<4>,
    payload: Vec<u8>,
    agreed: Agreed,
    fixed_newstyle: bool,
    shutting_down: bool,
    tls: TlsProgress,
    /// Options received so far, held against `Limits::options_max`.
    options_seen: u32,
    /// Position of the next byte in the client's stream.
    at: u64,
}

/// Part of the stream that the client sends next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    ClientFlags,
    Option,
    Payload {
        option: u32,
        len: usize,
    },
    Skip {
        option: u32,
        left: u32,
        answer: UnreadAnswer,
    },
}

/// Answer to an option whose payload is skipped unread.
#[derive(Clone, Copy, Debug)]
enum UnreadAnswer {
    Abort,
    StartTls,
    Refuse(u32, &'static str),
}

impl UnreadAnswer {
    const NO_DATA: UnreadAnswer =
        UnreadAnswer::Refuse(NBD_REP_ERR_INVALID, "this option takes no data");
}

impl Handshake {
    pub(crate) fn new(tls: TlsMode, output: &mut Output) -> Handshake {
        output.put(&NBDMAGIC.to_be_bytes());
        output.put(&IHAVEOPT.to_be_bytes());
        output.put(&(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES).to_be_bytes());
        Handshake {
            stage: Stage::ClientFlags,
            head: Gather::new(),
            client_flags: Gather::new(),
            payload: Vec::new(),
            agreed: Agreed::default(),
            fixed_newstyle: false,
            shutting_down: false,
            tls: TlsProgress::Plain(tls),
            options_seen: 0,
            at: 0,
        }
    }

    pub(crate) fn handle(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        output: &mut Output,
        limits: &Limits,
    ) -> Result<(usize, Event), Fatal> {
        if self.tls == TlsProgress::Starting {
            return self.before_tls(input).map(|event| (0, event));
        }
        let mut consumed = 0;
        loop {
            let (taken, outcome) = self.advance(&input[consumed..], exports, output, limits)?;
            consumed += taken;
            self.at += taken as u64;
            let event = match outcome {
                Some(Outcome::Answered) => Event::Output,
                Some(Outcome::Abort) => Event::Abort,
                Some(Outcome::StartTls) => self.before_tls(&input[consumed..])?,
                Some(Outcome::Open(opened)) => Event::Open {
                    opened,
                    at: self.at,
                },
                // A part of the stream is complete without an answer: the flags, or an option's
                // header.
                None if consumed < input.len() => continue,
                None => Event::NeedMore(self.missing()),
            };
            return Ok((consumed, event));
        }
    }

    /// Ends the plain text, of which nothing may be left.
    fn before_tls(&self, rest: &[u8]) -> Result<Event, Fatal> {
        match rest {
            [] => Ok(Event::StartTls),
            _ => Err(Fatal::PlaintextAfterStartTls { at: self.at }),
        }
    }

    /// Goes on over TLS, and forgets what was negotiated in plain text, where an attacker could
    /// have changed it. The client's flags stay, because they are not sent again, and so does the
    /// count of options.
    pub(crate) fn tls_established(&mut self) {
        assert_eq!(self.tls, TlsProgress::Starting, "TLS was not negotiated");
        self.tls = TlsProgress::Established;
        self.agreed = Agreed {
            no_zeroes: self.agreed.no_zeroes,
            ..Agreed::default()
        };
        assert!(
            self.payload.is_empty() && self.missing() == OPTION_HEAD_LEN,
            "a part of an option crosses from plain text into TLS"
        );
    }

    pub(crate) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    pub(crate) fn style(&self) -> ReplyStyle {
        self.agreed.style
    }

    pub(crate) fn memory(&self) -> usize {
        self.payload.capacity() + self.agreed.context_for.as_ref().map_or(0, String::capacity)
    }

    /// Number of bytes that complete the current part of the stream. Never 0 between calls: a
    /// complete part is processed at once.
    fn missing(&self) -> usize {
        match self.stage {
            Stage::ClientFlags => self.client_flags.missing(),
            Stage::Option => self.head.missing(),
            Stage::Payload { len, .. } => len - self.payload.len(),
            Stage::Skip { left, .. } => left as usize,
        }
    }

    /// Consumes input for the current part of the stream. Returns the number of bytes consumed and,
    /// once an option is complete, its outcome.
    fn advance(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        output: &mut Output,
        limits: &Limits,
    ) -> Result<(usize, Option<Outcome>), Fatal> {
        match self.stage {
            Stage::ClientFlags => {
                let (taken, whole) = self.client_flags.fill(input);
                if let Some(bytes) = whole {
                    self.accept_flags(u32::from_be_bytes(bytes))?;
                }
                Ok((taken, None))
            }
            Stage::Option => {
                // Position of the header's first byte, which may have come with an earlier call.
                let start = self.at - (OPTION_HEAD_LEN - self.head.missing()) as u64;
                let (taken, whole) = self.head.fill(input);
                let Some(bytes) = whole else {
                    return Ok((taken, None));
                };
                self.stage = self.accept_option(&bytes, start, limits)?;
                // An option without data is answered right away: no byte may follow it.
                let outcome = if self.missing() == 0 {
                    self.answer(exports, output, limits)?
                } else {
                    None
                };
                Ok((taken, outcome))
            }
            Stage::Payload { len, .. } => {
                let taken = (len - self.payload.len()).min(input.len());
                // One exact allocation per option: `accept_option` has bounded `len`.
                if self.payload.capacity() == 0 {
                    self.payload.reserve_exact(len);
                }
                self.payload.extend_from_slice(&input[..taken]);
                Ok((taken, self.answer(exports, output, limits)?))
            }
            Stage::Skip {
                option,
                left,
                answer,
            } => {
                let taken = (left as usize).min(input.len());
                self.stage = Stage::Skip {
                    option,
                    left: left - taken as u32,
                    answer,
                };
                Ok((taken, self.answer(exports, output, limits)?))
            }
        }
    }

    /// Stores the client's flags ("Client flags"); a flag that was not offered is fatal.
    fn accept_flags(&mut self, flags: u32) -> Result<(), Fatal> {
        if flags & !(NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES) != 0 {
            return Err(Fatal::UnknownClientFlags { flags });
        }
        self.fixed_newstyle = flags & NBD_FLAG_C_FIXED_NEWSTYLE != 0;
        self.agreed.no_zeroes = flags & NBD_FLAG_C_NO_ZEROES != 0;
        self.stage = Stage::Option;
        Ok(())
    }

    /// Decides from an option's header whether its payload is stored or skipped.
    fn accept_option(
        &mut self,
        head: &[u8; OPTION_HEAD_LEN],
        at: u64,
        limits: &Limits,
    ) -> Result<Stage, Fatal> {
        let mut r = Reader(head);
        let (Some(magic), Some(option), Some(len)) = (r.u64(), r.u32(), r.u32()) else {
            unreachable!("an option's header has 16 bytes");
        };
        // The stream cannot be resynchronised: option lengths are only known from headers.
        if magic != IHAVEOPT {
            return Err(Fatal::BadOptionMagic { found: magic, at });
        }
        // Counted before anything else, so that refused options count as well.
        self.options_seen += 1;
        if self.options_seen > limits.options_max {
            return Err(Fatal::TooManyOptions {
                max: limits.options_max,
            });
        }
        // Allowed to every client; as it has no error reply, a name too long ends the connection.
        if option == NBD_OPT_EXPORT_NAME {
            if self.tls.is_demanded() {
                return Err(Fatal::TlsRequired);
            }
            let max = NAME_LEN_MAX as u32;
            return if len > max {
                Err(Fatal::OptionTooLong { option, len, max })
            } else {
                Ok(Stage::Payload {
                    option,
                    len: len as usize,
                })
            };
        }
        // Such a client cannot interpret option replies, not even errors.
        if !self.fixed_newstyle {
            return Err(Fatal::NotFixedNewstyle { option });
        }
        let max = limits.option_discard_max;
        if len > max {
            return Err(Fatal::OptionTooLong { option, len, max });
        }
        Ok(match self.without_payload(option, len, limits) {
            Some(answer) => Stage::Skip {
                option,
                left: len,
                answer,
            },
            None => Stage::Payload {
                option,
                len: len as usize,
            },
        })
    }

    /// Returns the answer to an option that does not depend on its payload; `None`: the payload is
    /// needed and must be stored.
    fn without_payload(&mut self, option: u32, len: u32, limits: &Limits) -> Option<UnreadAnswer> {
        if option == NBD_OPT_SET_META_CONTEXT {
            // A SET replaces the earlier selection even if it fails.
            self.agreed.context_for = None;
        }
        let takes_data = match option {
            // First, because a client may still leave while the server shuts down.
            NBD_OPT_ABORT => return Some(UnreadAnswer::Abort),
            _ if self.shutting_down => {
                return Some(UnreadAnswer::Refuse(NBD_REP_ERR_SHUTDOWN, SHUTTING_DOWN));
            }
            NBD_OPT_STARTTLS => return Some(self.start_tls(len)),
            _ if self.tls.is_demanded() => {
                return Some(UnreadAnswer::Refuse(
                    NBD_REP_ERR_TLS_REQD,
                    "this server needs TLS before anything else (NBD_OPT_STARTTLS)",
                ));
            }
            NBD_OPT_LIST | NBD_OPT_STRUCTURED_REPLY => false,
            NBD_OPT_INFO | NBD_OPT_GO | NBD_OPT_LIST_META_CONTEXT | NBD_OPT_SET_META_CONTEXT => {
                true
            }
            _ => {
                return Some(UnreadAnswer::Refuse(
                    NBD_REP_ERR_UNSUP,
                    "this server has no such option",
                ));
            }
        };
        if !takes_data && len > 0 {
            return Some(UnreadAnswer::NO_DATA);
        }
        if len > limits.option_len_max {
            return Some(UnreadAnswer::Refuse(
                NBD_REP_ERR_TOO_BIG,
                "too much data for one option",
            ));
        }
        None
    }

    /// Returns the answer to `NBD_OPT_STARTTLS` with `len` bytes of data.
    fn start_tls(&self, len: u32) -> UnreadAnswer {
        match self.tls {
            TlsProgress::Plain(TlsMode::Off) => {
                UnreadAnswer::Refuse(NBD_REP_ERR_UNSUP, "this server does not offer TLS")
            }
            TlsProgress::Established => {
                UnreadAnswer::Refuse(NBD_REP_ERR_INVALID, "this connection has TLS already")
            }
            TlsProgress::Plain(_) if len > 0 => UnreadAnswer::NO_DATA,
            TlsProgress::Plain(_) => UnreadAnswer::StartTls,
            TlsProgress::Starting => unreachable!("no option is read before TLS has begun"),
        }
    }

    /// Answers the current option if its payload is complete.
    fn answer(
        &mut self,
        exports: &dyn Exports,
        output: &mut Output,
        limits: &Limits,
    ) -> Result<Option<Outcome>, Fatal> {
        if self.missing() > 0 {
            return Ok(None);
        }
        // Another option follows in any case; opening an export replaces the whole phase.
        let stage = std::mem::replace(&mut self.stage, Stage::Option);
        Ok(Some(match stage {
            Stage::Payload {
                option: NBD_OPT_EXPORT_NAME,
                ..
            } if self.shutting_down => {
                return Err(Fatal::ShuttingDown);
            }
            Stage::Payload { option, .. } if self.shutting_down => {
                // Frees the payload, which no later option may see.
                self.payload = Vec::new();
                output.reply(option, NBD_REP_ERR_SHUTDOWN, &[SHUTTING_DOWN.as_bytes()]);
                Outcome::Answered
            }
            Stage::Payload { option, .. } => {
                let payload = std::mem::take(&mut self.payload);
                let mut context = options::Context {
                    exports,
                    output,
                    agreed: &mut self.agreed,
                    limits,
                    tls: self.tls,
                };
                context.answer(option, &payload)?
            }
            Stage::Skip {
                option,
                answer: UnreadAnswer::Abort,
                ..
            } => {
                output.reply(option, NBD_REP_ACK, &[]);
                Outcome::Abort
            }
            Stage::Skip {
                option,
                answer: UnreadAnswer::StartTls,
                ..
            } => {
                output.reply(option, NBD_REP_ACK, &[]);
                self.tls = TlsProgress::Starting;
                Outcome::StartTls
            }
            Stage::Skip {
                option,
                answer: UnreadAnswer::Refuse(kind, why),
                ..
            } => {
                output.reply(option, kind, &[why.as_bytes()]);
                Outcome::Answered
            }
            Stage::ClientFlags | Stage::Option => unreachable!("no option has been read"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, TestExports, option_go};
    use crate::{Session, Step};

    #[test]
    fn greeting_offers_fixed_newstyle_without_zeroes() {
        let session = Session::new(Limits::default());
        assert_eq!(session.output(), b"NBDMAGICIHAVEOPT\0\x03");
    }

    #[test]
    fn input_waits_for_the_output() {
        let mut session = Session::new(Limits::default());
        assert_eq!(
            session.handle(&[0, 0, 0, 3], &TestExports),
            Ok((0, Step::Output))
        );
        session.consume_output(10);
        assert_eq!(session.output(), b"HAVEOPT\0\x03"[1..].as_ref());
        session.consume_output(8);
        assert_eq!(
            session.handle(&[0, 0, 0, 3], &TestExports),
            Ok((4, Step::NeedMore(16)))
        );
    }

    #[test]
    fn unknown_client_flags_close_and_keep_closing() {
        let mut session = Session::new(Limits::default());
        session.consume_output(18);
        let fatal = Err(Fatal::UnknownClientFlags { flags: 7 });
        assert_eq!(session.handle(&[0, 0, 0, 7], &TestExports), fatal);
        assert_eq!(session.handle(&[0, 0, 0, 3], &TestExports), fatal);
    }

    #[test]
    fn options_must_start_with_their_magic() {
        let mut bench = Bench::new();
        bench.option(NBD_OPT_LIST, &[]);
        let fatal = bench.feed(&[0x11; 16]).unwrap_err();
        assert_eq!(
            fatal,
            Fatal::BadOptionMagic {
                found: 0x1111_1111_1111_1111,
                at: 20
            }
        );
    }

    #[test]
    fn without_fixed_newstyle_there_is_only_export_name() {
        let fatal = Bench::with_flags(0)
            .try_option(NBD_OPT_LIST, &[])
            .unwrap_err();
        assert_eq!(
            fatal,
            Fatal::NotFixedNewstyle {
                option: NBD_OPT_LIST
            }
        );
    }

    #[test]
    fn unknown_options_are_refused_and_their_data_skipped() {
        let mut bench = Bench::new();
        for option in [NBD_OPT_STARTTLS, 4, 11, 12, 0, u32::MAX] {
            assert_eq!(bench.refused(option, b"whatever"), NBD_REP_ERR_UNSUP);
            assert_eq!(bench.refused(option, &vec![1; 1 << 20]), NBD_REP_ERR_UNSUP);
        }
        assert_eq!(bench.open("disk", &[]).export.id, 1);
    }

    #[test]
    fn long_options_are_too_big_and_absurd_ones_fatal() {
        let limits = Limits {
            option_len_max: 64,
            option_discard_max: 100,
            ..Limits::default()
        };
        let mut bench = Bench::with_limits(3, limits);
        assert_eq!(bench.refused(NBD_OPT_GO, &[0; 65]), NBD_REP_ERR_TOO_BIG);
        assert_eq!(bench.refused(NBD_OPT_GO, &[0; 100]), NBD_REP_ERR_TOO_BIG);
        let fatal = bench.try_option(NBD_OPT_GO, &[0; 101]).unwrap_err();
        assert_eq!(
            fatal,
            Fatal::OptionTooLong {
                option: NBD_OPT_GO,
                len: 101,
                max: 100
            }
        );
    }

    #[test]
    fn options_are_counted() {
        let mut bench = Bench::with_limits(
            3,
            Limits {
                options_max: 2,
                ..Limits::default()
            },
        );
        bench.option(NBD_OPT_LIST, &[]);
        bench.option(NBD_OPT_LIST, &[]);
        assert_eq!(
            bench.try_option(NBD_OPT_LIST, &[]),
            Err(Fatal::TooManyOptions { max: 2 })
        );
    }

    #[test]
    fn shutting_down_refuses_all_but_abort() {
        let mut bench = Bench::new();
        bench.session.shut_down();
        for (option, data) in [
            (NBD_OPT_GO, option_go("disk", &[])),
            (NBD_OPT_LIST, vec![]),
            (99, vec![1]),
        ] {
            assert_eq!(bench.refused(option, &data), NBD_REP_ERR_SHUTDOWN);
        }
        assert_eq!(bench.option(NBD_OPT_ABORT, &[]), [(NBD_REP_ACK, vec![])]);
        let mut bench = Bench::new();
        bench.session.shut_down();
        let fatal = bench.try_option(NBD_OPT_EXPORT_NAME, b"disk");
        assert_eq!(fatal, Err(Fatal::ShuttingDown));
    }

    #[test]
    fn shutting_down_amid_an_option_refuses_it() {
        let mut bench = Bench::new();
        let mut bytes = Vec::new();
        crate::client::put_option(&mut bytes, NBD_OPT_GO, &option_go("disk", &[]));
        bench.feed(&bytes[..20]).unwrap();
        bench.session.shut_down();
        assert_eq!(bench.feed(&bytes[20..]), Ok(vec![]));
        assert_eq!(bench.output[12..16], NBD_REP_ERR_SHUTDOWN.to_be_bytes());
    }

    #[test]
    fn transmission_holds_no_memory() {
        let mut bench = Bench::opened("disk");
        assert!(bench.feed(&[]).unwrap().is_empty());
        assert_eq!(bench.session.memory(), 0);
    }
}
