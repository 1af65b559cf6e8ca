//! Client side of the handshake: greeting, then up to four options, the last of which is
//! `NBD_OPT_GO`.
//!
//! ```text
//!  greeting --> [STARTTLS] --> [STRUCTURED_REPLY] --> [SET_META_CONTEXT] --> GO --> ready
//! ```
//!
//! With TLS nothing is negotiated before it, and bytes in plain text behind the server's answer to
//! `NBD_OPT_STARTTLS` are an error (CVE-2021-3716).

use super::ClientError;
use crate::export::{Abilities, BlockSize};
use crate::reply::ReplyStyle;
use crate::wire::*;

/// Length of the server's greeting in bytes: two magic numbers (8 each) and flags (2).
const GREETING_LEN: usize = 18;
/// Longest option reply accepted from a server, in bytes; bounds memory against a hostile server.
const REPLY_LEN_MAX: usize = 16 << 10;

/// Longest export accepted from a server, in bytes: no offset plus length overflows, nor a signed
/// file offset.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Optional features that the client asks for; a server may refuse them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Structured replies (`NBD_OPT_STRUCTURED_REPLY`).
    pub structured_replies: bool,
    /// Metadata context `base:allocation`; requires `structured_replies`.
    pub allocation_context: bool,
}

/// Result of a successful handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export in bytes, at most 2^63 - 1.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Canonical name of the export, if the server sent it.
    pub name: Option<String>,
    /// Description of the export, if the server sent it.
    pub description: Option<String>,
    /// Block sizes of the export; the defaults if the server sent none.
    pub block: BlockSize,
    /// Negotiated form of replies.
    pub style: ReplyStyle,
    /// Identifier of `base:allocation`, if it was selected.
    pub allocation_context: Option<u32>,
}

impl Negotiated {
    /// Returns the capabilities that the transmission flags announce.
    pub fn abilities(&self) -> Abilities {
        let has = |flag: u16| self.flags & flag != 0;
        Abilities {
            read_only: has(NBD_FLAG_READ_ONLY),
            flush: has(NBD_FLAG_SEND_FLUSH),
            fua: has(NBD_FLAG_SEND_FUA),
            rotational: has(NBD_FLAG_ROTATIONAL),
            trim: has(NBD_FLAG_SEND_TRIM),
            write_zeroes: has(NBD_FLAG_SEND_WRITE_ZEROES),
            fast_zero: has(NBD_FLAG_SEND_FAST_ZERO),
            df: has(NBD_FLAG_SEND_DF),
            multi_conn: has(NBD_FLAG_CAN_MULTI_CONN),
            cache: has(NBD_FLAG_SEND_CACHE),
            block_status: self.allocation_context.is_some(),
        }
    }
}

/// Next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More input is required; the total number of bytes that the next call must be given.
    NeedMore(usize),
    /// [`output`](Handshake::output) must be sent.
    Send,
    /// The TLS handshake comes next, then [`Handshake::tls_established`].
    StartTls,
    /// The handshake is complete and transmission begins.
    Ready(Negotiated),
}

/// Client side of the handshake.
#[derive(Debug)]
pub struct Handshake {
    export: String,
    wishes: Wishes,
    /// Option whose replies are awaited; `None` while the greeting is awaited.
    pending: Option<u32>,
    output: Vec<u8>,
    result: Negotiated,
    knows_size: bool,
    tls: Tls,
}

/// Progress of a connection from plain text to TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// Plain text, to the end.
    Off,
    /// `NBD_OPT_STARTTLS` is the first option.
    Required,
    /// The server has agreed, and what comes next belongs to TLS.
    Starting,
    /// All bytes come over TLS.
    Established,
}

impl Handshake {
    /// Prepares a handshake for the export named `export`, at most [`NAME_LEN_MAX`] bytes (longer
    /// names are clipped); the empty name means the default export.
    pub fn new(export: &str, wishes: Wishes) -> Handshake {
        Handshake {
            export: clip(export, NAME_LEN_MAX).to_owned(),
            wishes,
            pending: None,
            output: Vec::new(),
            result: Negotiated::default(),
            knows_size: false,
            tls: Tls::Off,
        }
    }

    /// Makes TLS the condition of anything else: the handshake fails if the server refuses it.
    pub fn require_tls(self) -> Handshake {
        Handshake {
            tls: Tls::Required,
            ..self
        }
    }

    /// Goes on over TLS after [`Progress::StartTls`]: the output has to be sent.
    ///
    /// # Panics
    /// If no TLS was about to begin.
    pub fn tls_established(&mut self) {
        assert_eq!(self.tls, Tls::Starting, "TLS was not about to begin");
        self.tls = Tls::Established;
        self.send_first_option();
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Drops the first `n` bytes of [`output`](Self::output) after they were sent.
    pub fn consume_output(&mut self, n: usize) {
        self.output.drain(..n);
    }

    /// Processes received bytes and returns the number of bytes consumed. The caller gives the
    /// remaining bytes again, followed by new ones.
    ///
    /// # Errors
    /// The server broke the protocol or refused the export.
    ///
    /// # Panics
    /// If the TLS handshake comes next: the bytes are not the protocol's.
    pub fn handle(&mut self, input: &[u8]) -> Result<(usize, Progress), ClientError> {
        assert_ne!(self.tls, Tls::Starting, "the bytes belong to TLS");
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let (taken, progress) = match self.pending {
                // No option has been sent before the greeting.
                None => self.greeting(rest)?,
                Some(option) => self.reply(option, rest)?,
            };
            consumed += taken;
            if progress == Some(Progress::StartTls) && consumed < input.len() {
                // An attacker on the network could otherwise put answers before those of TLS.
                return Err(ClientError::Malformed(
                    "bytes in plain text behind the answer to NBD_OPT_STARTTLS",
                ));
            }
            if let Some(progress) = progress {
                return Ok((consumed, progress));
            }
        }
    }

    fn greeting(&mut self, input: &[u8]) -> Result<(usize, Option<Progress>), ClientError> {
        let mut r = Reader(input);
        let (Some(first), Some(second), Some(flags)) = (r.u64(), r.u64(), r.u16()) else {
            return Ok((0, Some(Progress::NeedMore(GREETING_LEN))));
        };
        for (found, expected) in [(first, NBDMAGIC), (second, IHAVEOPT)] {
            if found != expected {
                return Err(ClientError::BadMagic {
                    message: "greeting",
                    found,
                    expected,
                });
            }
        }
        if flags & NBD_FLAG_FIXED_NEWSTYLE == 0 {
            return Err(ClientError::NotFixedNewstyle);
        }
        // A client may only set flags that the server offers.
        let no_zeroes = if flags & NBD_FLAG_NO_ZEROES != 0 {
            NBD_FLAG_C_NO_ZEROES
        } else {
            0
        };
        self.output
            .extend((NBD_FLAG_C_FIXED_NEWSTYLE | no_zeroes).to_be_bytes());
        if self.tls == Tls::Required {
            self.send(NBD_OPT_STARTTLS, &[]);
        } else {
            self.send_first_option();
        }
        Ok((GREETING_LEN, Some(Progress::Send)))
    }

    fn send_first_option(&mut self) {
        if self.wishes.structured_replies {
            self.send(NBD_OPT_STRUCTURED_REPLY, &[]);
        } else {
            self.send_go();
        }
    }

    fn reply(
        &mut self,
        option: u32,
        input: &[u8],
    ) -> Result<(usize, Option<Progress>), ClientError> {
        let mut r = Reader(input);
        let (Some(magic), Some(to), Some(kind), Some(len)) = (r.u64(), r.u32(), r.u32(), r.u32())
        else {
            return Ok((0, Some(Progress::NeedMore(REP_HEAD_LEN))));
        };
        if magic != NBD_REP_MAGIC {
            let (found, expected) = (magic, NBD_REP_MAGIC);
            return Err(ClientError::BadMagic {
                message: "option reply",
                found,
                expected,
            });
        }
        // One option at a time is sent, so a reply to another one belongs to no request.
        if to != option {
            return Err(ClientError::Malformed(
                "a reply to an option that was not sent",
            ));
        }
        let len = len as usize;
        if len > REPLY_LEN_MAX {
            return Err(ClientError::Malformed(
                "an option reply of excessive length",
            ));
        }
        let whole = REP_HEAD_LEN + len;
        let Some(data) = r.bytes(len) else {
            return Ok((0, Some(Progress::NeedMore(whole))));
        };
        let progress = match kind {
            NBD_REP_ACK => Some(self.acknowledged(option)?),
            NBD_REP_INFO if option == NBD_OPT_GO => {
                self.info(data)
                    .ok_or(ClientError::Malformed("NBD_REP_INFO"))??;
                // The acknowledgement follows.
                None
            }
            NBD_REP_META_CONTEXT if option == NBD_OPT_SET_META_CONTEXT => {
                let mut r = Reader(data);
                let id = r
                    .u32()
                    .ok_or(ClientError::Malformed("NBD_REP_META_CONTEXT"))?;
                // A server may offer further contexts, which nothing here could interpret.
                if r.0 == BASE_ALLOCATION.as_bytes() {
                    self.result.allocation_context = Some(id);
                }
                None
            }
            _ if kind & NBD_REP_FLAG_ERROR != 0 => Some(self.refused(option, kind, data)?),
            _ => {
                return Err(ClientError::Malformed(
                    "an option reply that does not belong here",
                ));
            }
        };
        Ok((whole, progress))
    }

    fn acknowledged(&mut self, option: u32) -> Result<Progress, ClientError> {
        match option {
            NBD_OPT_STARTTLS => {
                self.tls = Tls::Starting;
                Ok(Progress::StartTls)
            }
            NBD_OPT_STRUCTURED_REPLY => {
                self.result.style = ReplyStyle::Structured;
                if self.wishes.allocation_context {
                    self.send_set_meta_context();
                } else {
                    self.send_go();
                }
                Ok(Progress::Send)
            }
            NBD_OPT_SET_META_CONTEXT => {
                self.send_go();
                Ok(Progress::Send)
            }
            _ if self.knows_size => Ok(Progress::Ready(std::mem::take(&mut self.result))),
            _ => Err(ClientError::Malformed(
                "NBD_OPT_GO acknowledged without NBD_INFO_EXPORT",
            )),
        }
    }

    /// Handles an error reply. `NBD_OPT_STARTTLS` and `NBD_OPT_GO` must succeed; the client
    /// continues without a refused optional feature.
    fn refused(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<Progress, ClientError> {
        if option == NBD_OPT_STARTTLS {
            return Err(ClientError::NoTls { kind });
        }
        if kind == NBD_REP_ERR_TLS_REQD && self.tls == Tls::Off {
            return Err(ClientError::TlsRequired);
        }
        if option == NBD_OPT_GO {
            let message = String::from_utf8_lossy(data).into_owned();
            return Err(ClientError::Refused {
                option,
                kind,
                message,
            });
        }
        // A refused context may have been confirmed by an earlier reply to the same option.
        self.result.allocation_context = None;
        self.send_go();
        Ok(Progress::Send)
    }

    fn info(&mut self, data: &[u8]) -> Option<Result<(), ClientError>> {
        let mut r = Reader(data);
        match r.u16()? {
            NBD_INFO_EXPORT => {
                let size = r.u64()?;
                self.result.flags = r.u16()?;
                if size > SIZE_MAX {
                    return Some(Err(ClientError::Size(size)));
                }
                self.result.size = size;
                self.knows_size = true;
            }
            NBD_INFO_NAME => self.result.name = Some(string(r.0).ok()?.to_owned()),
            NBD_INFO_DESCRIPTION => self.result.description = Some(string(r.0).ok()?.to_owned()),
            NBD_INFO_BLOCK_SIZE => match BlockSize::new(r.u32()?, r.u32()?, r.u32()?) {
                Ok(block) => self.result.block = block,
                Err(e) => return Some(Err(e.into())),
            },
            // "The client MUST ignore information replies it does not understand."
            _ => {}
        }
        Some(Ok(()))
    }

    fn send_set_meta_context(&mut self) {
        // Taken out while `send` borrows the whole handshake.
        let name = std::mem::take(&mut self.export);
        // One query.
        let (name_len, one) = ((name.len() as u32).to_be_bytes(), 1_u32.to_be_bytes());
        let query_len = (BASE_ALLOCATION.len() as u32).to_be_bytes();
        let data = [
            &name_len,
            name.as_bytes(),
            &one,
            &query_len,
            BASE_ALLOCATION.as_bytes(),
        ];
        self.send(NBD_OPT_SET_META_CONTEXT, &data.concat());
        self.export = name;
    }

    fn send_go(&mut self) {
        // Taken out while `send` borrows the whole handshake.
        let name = std::mem::take(&mut self.export);
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        let wanted = [NBD_INFO_NAME, NBD_INFO_DESCRIPTION, NBD_INFO_BLOCK_SIZE];
        data.extend((wanted.len() as u16).to_be_bytes());
        data.extend(wanted.iter().flat_map(|w| w.to_be_bytes()));
        self.send(NBD_OPT_GO, &data);
        self.export = name;
    }

    fn send(&mut self, option: u32, data: &[u8]) {
        put_option(&mut self.output, option, data);
        self.pending = Some(option);
    }
}

/// Appends an option; accepts any option number and data, also invalid ones.
pub(crate) fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend(IHAVEOPT.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ALL;

    #[test]
    fn capabilities_are_those_that_were_announced() {
        let negotiated = Negotiated {
            flags: ALL.transmission_flags(ReplyStyle::Structured),
            allocation_context: ALL.block_status.then_some(1),
            ..Negotiated::default()
        };
        assert_eq!(negotiated.abilities(), ALL);
        let none = Abilities::default();
        let flags = none.transmission_flags(ReplyStyle::Simple);
        let negotiated = Negotiated {
            flags,
            ..Negotiated::default()
        };
        assert_eq!(negotiated.abilities(), none);
    }

    /// Bytes of a server's greeting.
    fn greeting() -> Vec<u8> {
        let mut greeting = NBDMAGIC.to_be_bytes().to_vec();
        greeting.extend(IHAVEOPT.to_be_bytes());
        greeting.extend(NBD_FLAG_FIXED_NEWSTYLE.to_be_bytes());
        greeting
    }

    /// Bytes of a server's reply to an option.
    fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut reply = NBD_REP_MAGIC.to_be_bytes().to_vec();
        for word in [option, kind, data.len() as u32] {
            reply.extend(word.to_be_bytes());
        }
        reply.extend(data);
        reply
    }

    /// Handshake that has sent `NBD_OPT_STARTTLS`.
    fn starting() -> Handshake {
        let wishes = Wishes {
            structured_replies: true,
            ..Wishes::default()
        };
        let mut handshake = Handshake::new("x", wishes).require_tls();
        let greeting = greeting();
        let progress = handshake.handle(&greeting).unwrap();
        assert_eq!(progress, (greeting.len(), Progress::Send));
        let mut expected = Vec::from(NBD_FLAG_C_FIXED_NEWSTYLE.to_be_bytes());
        put_option(&mut expected, NBD_OPT_STARTTLS, &[]);
        assert_eq!(handshake.output(), expected, "nothing before it");
        handshake.consume_output(expected.len());
        handshake
    }

    #[test]
    fn tls_comes_before_everything_else() {
        let mut handshake = starting();
        let agreed = option_reply(NBD_OPT_STARTTLS, NBD_REP_ACK, &[]);
        let progress = handshake.handle(&agreed).unwrap();
        assert_eq!(progress, (agreed.len(), Progress::StartTls));
        assert!(handshake.output().is_empty(), "the next bytes are TLS's");
        handshake.tls_established();
        let mut expected = Vec::new();
        put_option(&mut expected, NBD_OPT_STRUCTURED_REPLY, &[]);
        assert_eq!(handshake.output(), expected);
    }

    #[test]
    fn plain_text_behind_the_answer_to_starttls_is_refused() {
        let mut handshake = starting();
        let mut bytes = option_reply(NBD_OPT_STARTTLS, NBD_REP_ACK, &[]);
        bytes.extend(option_reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, &[]));
        let refused = handshake.handle(&bytes).unwrap_err();
        assert!(refused.to_string().contains("bytes in plain text behind"));
    }

    #[test]
    fn a_server_that_refuses_tls_is_not_spoken_to_in_plain_text() {
        for kind in [
            NBD_REP_ERR_UNSUP,
            NBD_REP_ERR_POLICY,
            NBD_REP_ERR_TLS_REQD,
            NBD_REP_ERR_INVALID,
        ] {
            let mut handshake = starting();
            let refused = handshake.handle(&option_reply(NBD_OPT_STARTTLS, kind, b"no"));
            assert_eq!(refused, Err(ClientError::NoTls { kind }));
            assert!(handshake.output().is_empty());
        }
        // Nor is one that skips its answer.
        let mut handshake = starting();
        let other = option_reply(NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, &[]);
        let refused = handshake.handle(&other);
        assert!(matches!(refused, Err(ClientError::Malformed(_))));
    }

    #[test]
    fn a_server_that_requires_tls_is_named_in_words() {
        let mut handshake = Handshake::new("", Wishes::default());
        handshake.handle(&greeting()).unwrap();
        let reply = option_reply(NBD_OPT_GO, NBD_REP_ERR_TLS_REQD, &[]);
        assert_eq!(handshake.handle(&reply), Err(ClientError::TlsRequired));
    }

    #[test]
    fn exports_beyond_the_largest_file_offset_are_refused() {
        let largest = i64::MAX as u64;
        for size in [0, largest, largest + 1, u64::MAX] {
            let greeting = greeting();
            let mut handshake = Handshake::new("", Wishes::default());
            let all = greeting.len();
            assert_eq!(handshake.handle(&greeting), Ok((all, Progress::Send)));
            let mut info = NBD_INFO_EXPORT.to_be_bytes().to_vec();
            info.extend(size.to_be_bytes());
            info.extend(NBD_FLAG_HAS_FLAGS.to_be_bytes());
            let reply = option_reply(NBD_OPT_GO, NBD_REP_INFO, &info);
            let expected = if size <= largest {
                Ok((reply.len(), Progress::NeedMore(REP_HEAD_LEN)))
            } else {
                Err(ClientError::Size(size))
            };
            assert_eq!(handshake.handle(&reply), expected, "{size}");
        }
    }
}
