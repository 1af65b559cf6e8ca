//! Transmission phase: parses request headers and checks them against the negotiated features.

use crate::error::{Fatal, NbdError};
use crate::reply::ReplyStyle;
use crate::request::{Command, Reason, Rejected, Request};
use crate::step::{Disconnect, Opened, Step};
use crate::wire::*;

/// State of the transmission phase: negotiated bounds and the position in the stream.
#[derive(Debug)]
pub(crate) struct Transmission {
    size: u64,
    /// Position of the next byte in the client's stream.
    at: u64,
    /// Bytes of a rejected payload still to be discarded.
    skip: u64,
    /// Alignment of offsets and lengths in bytes, a power of 2.
    block_min: u32,
    /// Longest read or write in bytes.
    payload_max: u32,
    /// Longest payload of a rejected write in bytes that is discarded; a longer one ends the
    /// session.
    discard_max: u32,
    /// Transmission flags that the client was sent.
    transmission_flags: u16,
    style: ReplyStyle,
    has_context: bool,
    shutting_down: bool,
    header: Gather<REQUEST_LEN>,
}

/// Results of the negotiation of a session, and its position in the client's stream in the
/// transmission phase, so that another process can go on with it. Bytes of a header that has not
/// arrived whole are [`Session::partial_header`](crate::Session::partial_header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmissionState {
    /// Size of the export in bytes, as advertised.
    pub size: u64,
    /// Bytes of a rejected payload still to be discarded.
    pub skip: u64,
    /// Alignment of offsets and lengths in bytes, a power of 2.
    pub block_min: u32,
    /// Longest read or write in bytes.
    pub payload_max: u32,
    /// Transmission flags that the client was sent.
    pub flags: u16,
    /// Negotiated form of replies.
    pub style: ReplyStyle,
    /// True if the client selected the metadata context `base:allocation`.
    pub has_context: bool,
}

/// Request header as sent, not yet checked.
struct Header {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

/// Error of the reply to a request that is not carried out, and its reason for the log.
type Rejection = (NbdError, Reason);

impl Transmission {
    pub(crate) fn new(opened: &Opened, write_discard_max: u32, at: u64) -> Transmission {
        let block = opened.export.block;
        let any_alignment = !opened.knows_block_size && opened.export.any_alignment_unasked;
        Transmission {
            size: opened.export.size,
            at,
            skip: 0,
            block_min: if any_alignment { 1 } else { block.minimum() },
            payload_max: block.maximum(),
            // A client may always send up to the maximum payload.
            discard_max: write_discard_max.max(block.maximum()),
            transmission_flags: opened.flags,
            style: opened.style,
            has_context: opened.allocation_context.is_some(),
            shutting_down: false,
            header: Gather::new(),
        }
    }

    pub(crate) fn resumed(state: &TransmissionState, write_discard_max: u32) -> Transmission {
        assert!(
            state.block_min.is_power_of_two(),
            "an alignment of {} bytes",
            state.block_min
        );
        Transmission {
            size: state.size,
            at: 0,
            skip: state.skip,
            block_min: state.block_min,
            payload_max: state.payload_max,
            discard_max: write_discard_max.max(state.payload_max),
            transmission_flags: state.flags,
            style: state.style,
            has_context: state.has_context,
            shutting_down: false,
            header: Gather::new(),
        }
    }

    pub(crate) fn state(&self) -> TransmissionState {
        TransmissionState {
            size: self.size,
            skip: self.skip,
            block_min: self.block_min,
            payload_max: self.payload_max,
            flags: self.transmission_flags,
            style: self.style,
            has_context: self.has_context,
        }
    }

    pub(crate) fn partial_header(&self) -> &[u8] {
        self.header.filled()
    }

    pub(crate) fn handle(&mut self, input: &[u8]) -> Result<(usize, Step), Fatal> {
        let skipped = self.skip.min(input.len() as u64) as usize;
        self.skip -= skipped as u64;
        self.at += skipped as u64;
        if self.skip > 0 {
            // Only a hint to the driver, so a value beyond `usize` may be truncated.
            let need = usize::try_from(self.skip).unwrap_or(usize::MAX);
            return Ok((skipped, Step::NeedMore(need.saturating_add(REQUEST_LEN))));
        }
        let rest = &input[skipped..];
        let (taken, bytes) = match rest.first_chunk::<REQUEST_LEN>() {
            // Common case: the whole header is in the driver's buffer and need not be copied twice.
            Some(whole) if self.header.is_empty() => (REQUEST_LEN, Some(*whole)),
            _ => self.header.fill(rest),
        };
        self.at += taken as u64;
        let consumed = skipped + taken;
        let step = match bytes {
            None => Step::NeedMore(self.header.missing()),
            Some(bytes) => self.request(&bytes)?,
        };
        Ok((consumed, step))
    }

    pub(crate) fn skip_payload(&mut self, n: u32) {
        // `request` has counted the whole payload as consumed by the driver.
        let at = self.at.checked_sub(u64::from(n));
        self.at = at.expect("more payload to skip than was announced");
        self.skip += u64::from(n);
    }

    pub(crate) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    pub(crate) fn style(&self) -> ReplyStyle {
        self.style
    }

    fn request(&mut self, bytes: &[u8; REQUEST_LEN]) -> Result<Step, Fatal> {
        let at = self.at - REQUEST_LEN as u64;
        let header = parse(bytes).map_err(|found| Fatal::BadRequestMagic { found, at })?;
        let Header {
            command,
            cookie,
            len,
            ..
        } = header;
        if command == NBD_CMD_DISC {
            return Ok(Step::Disconnect(Disconnect::Disc));
        }
        match self.check(&header) {
            Ok(request) => {
                if request.command == Command::Write {
                    // The driver reads the payload from the stream itself.
                    self.at += u64::from(len);
                }
                Ok(Step::Request(request))
            }
            Err((error, reason)) => {
                // The payload follows even though the request is rejected.
                if command == NBD_CMD_WRITE {
                    let max = self.discard_max;
                    // A payload that cannot be skipped leaves no place where the next header would
                    // begin.
                    if len > max {
                        return Err(Fatal::PayloadTooLong {
                            cookie,
                            at,
                            len,
                            max,
                        });
                    }
                    self.skip = u64::from(len);
                }
                Ok(Step::Rejected(Rejected {
                    cookie,
                    command,
                    error,
                    reason,
                }))
            }
        }
    }

    fn check(&self, h: &Header) -> Result<Request, Rejection> {
        // Before all other checks: even an invalid request is told to come to another server.
        if self.shutting_down {
            return Err((NbdError::Eshutdown, Reason::ShuttingDown));
        }
        // Unknown commands before flags: flags have a meaning only for a known command.
        let command = self.command(h)?;
        self.check_flags(h)?;
        match command {
            // The specification reserves both fields of a flush and requires 0.
            Command::Flush if h.offset != 0 || h.len != 0 => {
                return Err((NbdError::Einval, Reason::ReservedNotZero));
            }
            Command::Flush => {}
            _ => self.check_range(command, h)?,
        }
        let fua = h.flags & NBD_CMD_FLAG_FUA != 0;
        Ok(Request {
            cookie: h.cookie,
            command,
            fua,
            offset: h.offset,
            len: h.len,
        })
    }

    /// Decodes the command and checks that the export was advertised to support it.
    fn command(&self, h: &Header) -> Result<Command, Rejection> {
        let set = |flag| h.flags & flag != 0;
        let (command, needs) = match h.command {
            NBD_CMD_READ => (
                Command::Read {
                    df: set(NBD_CMD_FLAG_DF),
                },
                0,
            ),
            NBD_CMD_WRITE => (Command::Write, 0),
            NBD_CMD_FLUSH => (Command::Flush, NBD_FLAG_SEND_FLUSH),
            NBD_CMD_TRIM => (Command::Trim, NBD_FLAG_SEND_TRIM),
            NBD_CMD_CACHE => (Command::Cache, NBD_FLAG_SEND_CACHE),
            NBD_CMD_WRITE_ZEROES => (
                Command::WriteZeroes {
                    no_hole: set(NBD_CMD_FLAG_NO_HOLE),
                    fast_zero: set(NBD_CMD_FLAG_FAST_ZERO),
                },
                NBD_FLAG_SEND_WRITE_ZEROES,
            ),
            NBD_CMD_BLOCK_STATUS => (
                Command::BlockStatus {
                    one: set(NBD_CMD_FLAG_REQ_ONE),
                },
                0,
            ),
            _ => return Err((NbdError::Einval, Reason::UnknownCommand)),
        };
        let writes = matches!(
            command,
            Command::Write | Command::Trim | Command::WriteZeroes { .. }
        );
        // Before the advertisement check: a read-only export advertises neither trim nor
        // write-zeroes, but the specification demands EPERM for them.
        if writes && self.transmission_flags & NBD_FLAG_READ_ONLY != 0 {
            return Err((NbdError::Eperm, Reason::ReadOnly));
        }
        if self.transmission_flags & needs != needs {
            return Err((NbdError::Einval, Reason::NotAdvertised));
        }
        if matches!(command, Command::BlockStatus { .. }) && !self.has_context {
            return Err((NbdError::Einval, Reason::NoMetaContext));
        }
        Ok(command)
    }

    /// Checks that only flags are set which belong to the command and were negotiated ("Command
    /// flags").
    fn check_flags(&self, h: &Header) -> Result<(), Rejection> {
        let if_sent = |transmission, flag| {
            if self.transmission_flags & transmission != 0 {
                flag
            } else {
                0
            }
        };
        let own = match h.command {
            NBD_CMD_READ => if_sent(NBD_FLAG_SEND_DF, NBD_CMD_FLAG_DF),
            NBD_CMD_WRITE_ZEROES => {
                NBD_CMD_FLAG_NO_HOLE | if_sent(NBD_FLAG_SEND_FAST_ZERO, NBD_CMD_FLAG_FAST_ZERO)
            }
            NBD_CMD_BLOCK_STATUS => NBD_CMD_FLAG_REQ_ONE,
            _ => 0,
        };
        // FUA belongs to every command ("Command flags").
        let allowed = own | if_sent(NBD_FLAG_SEND_FUA, NBD_CMD_FLAG_FUA);
        if h.flags & !allowed != 0 {
            return Err((NbdError::Einval, Reason::UnknownFlag));
        }
        Ok(())
    }

    /// Checks offset and length against "Size constraints"; errors as in "Error values".
    fn check_range(&self, command: Command, h: &Header) -> Result<(), Rejection> {
        if h.len == 0 {
            return Err((NbdError::Einval, Reason::ZeroLength));
        }
        if h.offset
            // An end beyond 64 bits is past the end of any export.
            .checked_add(u64::from(h.len))
            .is_none_or(|end| end > self.size)
        {
            let error = match command {
                // The specification distinguishes writes past the end from other requests.
                Command::Write | Command::WriteZeroes { .. } => NbdError::Enospc,
                _ => NbdError::Einval,
            };
            return Err((error, Reason::PastEnd));
        }
        // The minimum is a power of 2, so the mask finds a remainder of either value.
        if (h.offset | u64::from(h.len)) & u64::from(self.block_min - 1) != 0 {
            return Err((NbdError::Einval, Reason::Unaligned));
        }
        // The maximum payload does not bind commands without payload (trim, write-zeroes, cache).
        if h.len > self.payload_max {
            // "Error values" allows NBD_EOVERFLOW only for reads where NBD_CMD_FLAG_DF is
            // supported.
            let has_df = self.transmission_flags & NBD_FLAG_SEND_DF != 0;
            match command {
                Command::Read { .. } if has_df => {
                    return Err((NbdError::Eoverflow, Reason::TooLong));
                }
                Command::Read { .. } | Command::Write => {
                    return Err((NbdError::Einval, Reason::TooLong));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses a header; the error is the value found instead of the magic number.
fn parse(bytes: &[u8; REQUEST_LEN]) -> Result<Header, u32> {
    let mut r = Reader(bytes);
    let mut fields = || {
        Some((
            r.u32()?,
            Header {
                flags: r.u16()?,
                command: r.u16()?,
                cookie: r.u64()?,
                offset: r.u64()?,
                len: r.u32()?,
            },
        ))
    };
    let (magic, header) = fields().expect("the header's fields are 28 bytes");
    if magic == NBD_REQUEST_MAGIC {
        Ok(header)
    } else {
        Err(magic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::header;
    use crate::testing::{Bench, LAX_PAYLOAD_MAX, SIZE, option_go};
    use Reason::*;

    const COOKIE: u64 = 0xfeed;

    fn feed(bench: &mut Bench, flags: u16, command: u16, offset: u64, len: u32) -> Step {
        let steps = bench
            .feed(&header(flags, command, COOKIE, offset, len))
            .unwrap();
        let [step] = <[Step; 1]>::try_from(steps).unwrap();
        step
    }

    #[track_caller]
    fn accepts(export: &str, flags: u16, command: u16, offset: u64, len: u32) -> Command {
        match feed(&mut Bench::opened(export), flags, command, offset, len) {
            Step::Request(r) => {
                assert_eq!((r.cookie, r.offset, r.len), (COOKIE, offset, len));
                assert_eq!(r.fua, flags & NBD_CMD_FLAG_FUA != 0);
                r.command
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn rejects(
        export: &str,
        (flags, command, offset, len): (u16, u16, u64, u32),
        error: NbdError,
        reason: Reason,
    ) {
        let mut bench = Bench::opened(export);
        let expected = Rejected {
            cookie: COOKIE,
            command,
            error,
            reason,
        };
        assert_eq!(
            feed(&mut bench, flags, command, offset, len),
            Step::Rejected(expected)
        );
        // The session skips the payload and parses the next request.
        if command == NBD_CMD_WRITE {
            assert_eq!(bench.feed(&vec![0x25; len as usize]), Ok(vec![]));
        }
        let next = feed(&mut bench, 0, NBD_CMD_READ, 0, 512);
        assert!(matches!(next, Step::Request(_)), "{next:?}");
    }

    #[test]
    fn every_command_is_recognised_with_its_flags() {
        let fua = NBD_CMD_FLAG_FUA;
        assert_eq!(
            accepts("disk", 0, NBD_CMD_READ, 1, 2),
            Command::Read { df: false }
        );
        assert_eq!(
            accepts("disk", fua | NBD_CMD_FLAG_DF, NBD_CMD_READ, 0, 2),
            Command::Read { df: true }
        );
        assert_eq!(
            accepts("disk", fua, NBD_CMD_WRITE, SIZE - 1, 1),
            Command::Write
        );
        assert_eq!(accepts("disk", fua, NBD_CMD_FLUSH, 0, 0), Command::Flush);
        assert_eq!(
            accepts("disk", fua, NBD_CMD_TRIM, 0, 1 << 20),
            Command::Trim
        );
        assert_eq!(accepts("disk", fua, NBD_CMD_CACHE, 0, 1), Command::Cache);
        let zeroes = |no_hole, fast_zero| Command::WriteZeroes { no_hole, fast_zero };
        assert_eq!(
            accepts("disk", fua, NBD_CMD_WRITE_ZEROES, 0, 1),
            zeroes(false, false)
        );
        assert_eq!(
            accepts("disk", NBD_CMD_FLAG_NO_HOLE, NBD_CMD_WRITE_ZEROES, 0, 1),
            zeroes(true, false)
        );
        assert_eq!(
            accepts("disk", NBD_CMD_FLAG_FAST_ZERO, NBD_CMD_WRITE_ZEROES, 0, 1),
            zeroes(false, true)
        );
        let status = |one| Command::BlockStatus { one };
        assert_eq!(
            accepts("disk", 0, NBD_CMD_BLOCK_STATUS, 0, 1),
            status(false)
        );
        assert_eq!(
            accepts(
                "disk",
                fua | NBD_CMD_FLAG_REQ_ONE,
                NBD_CMD_BLOCK_STATUS,
                0,
                1
            ),
            status(true)
        );
    }

    #[test]
    fn disc_ends_the_session() {
        let mut bench = Bench::opened("disk");
        let expected = Step::Disconnect(Disconnect::Disc);
        assert_eq!(feed(&mut bench, 0, NBD_CMD_DISC, 0, 0), expected);
        assert_eq!(
            bench.feed(b"more"),
            Ok(vec![Step::Disconnect(Disconnect::Disc)])
        );
    }

    #[test]
    fn unknown_commands_and_flags_are_invalid() {
        rejects("disk", (0, 8, 0, 512), NbdError::Einval, UnknownCommand);
        rejects(
            "disk",
            (0, u16::MAX, 0, 512),
            NbdError::Einval,
            UnknownCommand,
        );
        // Flags among the defined ones, bits 0 to 5, that are invalid for the command.
        for (command, flags) in [
            (NBD_CMD_READ, 0b11_1010),
            (NBD_CMD_WRITE, 0b11_1110),
            (NBD_CMD_TRIM, 0b11_1110),
            (NBD_CMD_CACHE, 0b11_1110),
            (NBD_CMD_WRITE_ZEROES, 0b10_1100),
            (NBD_CMD_BLOCK_STATUS, 0b11_0110),
        ] {
            // The bits above, 0xffc0, are not defined.
            for bit in (0..16)
                .map(|b| 1 << b)
                .filter(|b| (flags | 0xffc0) & b != 0)
            {
                rejects(
                    "disk",
                    (bit, command, 0, 512),
                    NbdError::Einval,
                    UnknownFlag,
                );
            }
        }
        rejects(
            "disk",
            (2, NBD_CMD_FLUSH, 0, 0),
            NbdError::Einval,
            UnknownFlag,
        );
    }

    #[test]
    fn what_was_not_advertised_is_invalid() {
        for command in [
            NBD_CMD_TRIM,
            NBD_CMD_CACHE,
            NBD_CMD_WRITE_ZEROES,
            NBD_CMD_FLUSH,
        ] {
            rejects(
                "plain",
                (0, command, 0, 512),
                NbdError::Einval,
                NotAdvertised,
            );
        }
        rejects(
            "plain",
            (0, NBD_CMD_BLOCK_STATUS, 0, 512),
            NbdError::Einval,
            NoMetaContext,
        );
        rejects(
            "plain",
            (NBD_CMD_FLAG_FUA, NBD_CMD_WRITE, 0, 512),
            NbdError::Einval,
            UnknownFlag,
        );
        rejects(
            "plain",
            (NBD_CMD_FLAG_DF, NBD_CMD_READ, 0, 512),
            NbdError::Einval,
            UnknownFlag,
        );
    }

    #[test]
    fn read_only_exports_refuse_to_be_changed() {
        for command in [NBD_CMD_WRITE, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES] {
            rejects("ro", (0, command, 0, 512), NbdError::Eperm, ReadOnly);
        }
        accepts("ro", 0, NBD_CMD_READ, 0, 512);
        accepts("ro", NBD_CMD_FLAG_FUA, NBD_CMD_FLUSH, 0, 0);
    }

    #[test]
    fn ranges_end_with_the_export() {
        for (command, error) in [
            (NBD_CMD_READ, NbdError::Einval),
            (NBD_CMD_TRIM, NbdError::Einval),
            (NBD_CMD_CACHE, NbdError::Einval),
            (NBD_CMD_BLOCK_STATUS, NbdError::Einval),
            (NBD_CMD_WRITE, NbdError::Enospc),
            (NBD_CMD_WRITE_ZEROES, NbdError::Enospc),
        ] {
            accepts("disk", 0, command, SIZE - 512, 512);
            rejects("disk", (0, command, SIZE - 511, 512), error, PastEnd);
            rejects("disk", (0, command, SIZE, 1), error, PastEnd);
            rejects("disk", (0, command, u64::MAX, 1), error, PastEnd);
            rejects("disk", (0, command, 0, 0), NbdError::Einval, ZeroLength);
        }
        rejects(
            "disk",
            (0, NBD_CMD_FLUSH, 0, 1),
            NbdError::Einval,
            ReservedNotZero,
        );
        rejects(
            "disk",
            (0, NBD_CMD_FLUSH, 1, 0),
            NbdError::Einval,
            ReservedNotZero,
        );
    }

    #[test]
    fn block_sizes_are_enforced() {
        for command in [
            NBD_CMD_READ,
            NBD_CMD_TRIM,
            NBD_CMD_WRITE,
            NBD_CMD_WRITE_ZEROES,
        ] {
            rejects("lax", (0, command, 1, 512), NbdError::Einval, Unaligned);
            // A client that requested the block size must respect it.
            rejects("free", (0, command, 1, 511), NbdError::Einval, Unaligned);
            let mut any_alignment = Bench::new();
            any_alignment.option(NBD_OPT_GO, &option_go("free", &[]));
            let step = feed(&mut any_alignment, 0, command, 1, 511);
            assert!(matches!(step, Step::Request(r) if (r.offset, r.len) == (1, 511)));
            rejects("lax", (0, command, 512, 513), NbdError::Einval, Unaligned);
            accepts("lax", 0, command, 512, 1 << 16);
        }
        rejects(
            "lax",
            (0, NBD_CMD_READ, 0, LAX_PAYLOAD_MAX + 512),
            NbdError::Eoverflow,
            TooLong,
        );
        // Structured replies alone do not allow NBD_EOVERFLOW.
        rejects(
            "lax-no-df",
            (0, NBD_CMD_READ, 0, LAX_PAYLOAD_MAX + 512),
            NbdError::Einval,
            TooLong,
        );
        rejects(
            "lax",
            (0, NBD_CMD_WRITE, 0, LAX_PAYLOAD_MAX + 512),
            NbdError::Einval,
            TooLong,
        );
        // No payload, so the maximum payload does not apply.
        accepts("lax", 0, NBD_CMD_WRITE_ZEROES, 0, 1 << 20);

        let mut simple = Bench::new();
        simple.option(NBD_OPT_GO, &option_go("lax", &[]));
        let step = feed(&mut simple, 0, NBD_CMD_READ, 0, LAX_PAYLOAD_MAX + 512);
        assert!(matches!(step, Step::Rejected(r) if r.error == NbdError::Einval));
    }

    #[test]
    fn absurd_payloads_and_lost_places_are_fatal() {
        let mut bench = Bench::opened("disk");
        let at = match bench.feed(&[0; 28]).unwrap_err() {
            Fatal::BadRequestMagic { found: 0, at } => at,
            other => panic!("{other}"),
        };
        let mut bench = Bench::opened("disk");
        feed(&mut bench, 0, NBD_CMD_WRITE, 0, 1000);
        bench.session.skip_payload(600);
        bench.feed(&[1; 600]).unwrap();
        let len = (64 << 20) + 1;
        let fatal = bench
            .feed(&header(0, NBD_CMD_WRITE, 7, 0, len))
            .unwrap_err();
        let at = at + 28 + 1000;
        assert_eq!(
            fatal,
            Fatal::PayloadTooLong {
                cookie: 7,
                at,
                len,
                max: 64 << 20
            }
        );
    }

    #[test]
    fn shutting_down_refuses_all_but_disc() {
        let mut bench = Bench::opened("disk");
        bench.session.shut_down();
        let step = feed(&mut bench, 0, NBD_CMD_WRITE, 0, 8);
        assert!(matches!(step, Step::Rejected(r) if r.error == NbdError::Eshutdown));
        bench.feed(&[0; 8]).unwrap();
        assert!(matches!(
            feed(&mut bench, 0, NBD_CMD_DISC, 0, 0),
            Step::Disconnect(_)
        ));
    }
}
