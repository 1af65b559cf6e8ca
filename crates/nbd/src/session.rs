//! One connection, as a state machine that a driver feeds bytes.
//!
//! ```text
//!                +------- option, answered --------+
//!                v                                 |
//!  new() --> client flags --> option header --> payload or skip
//!                |                |                |
//!                |                |                +-- EXPORT_NAME, GO --> transmission
//!                |                |                +-- ABORT ------------> closed
//!                +------------- broken rule ------------------------------> failed
//!
//!  transmission: request header --> Request, or Rejected (payload skipped) --> request header
//!                      |-- DISC --> closed
//!                      +-- bad magic, absurd payload --> failed
//! ```
//!
//! During the handshake the session holds at most one option's payload and one option's
//! replies; it takes no further input until its output was consumed. When transmission begins
//! both are freed, and from then on nothing is allocated.

use crate::error::Fatal;
use crate::export::Exports;
use crate::handshake::{Event, Handshake};
use crate::output::Output;
use crate::reply::ReplyStyle;
use crate::step::{Disconnect, Limits, Step};
use crate::transmission::Transmission;
use crate::wire::REQUEST_LEN;

/// The server's side of one connection. See the crate's documentation for a driver's loop.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    phase: Phase,
    output: Output,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<Handshake>),
    Transmission(Transmission),
    Closed(Disconnect),
    Failed(Fatal),
}

impl Session {
    /// A session for a client that has just connected. The greeting is in
    /// [`output`](Self::output).
    pub fn new(limits: Limits) -> Session {
        let mut output = Output::default();
        let handshake = Box::new(Handshake::new(&mut output));
        Session {
            limits,
            phase: Phase::Handshake(handshake),
            output,
        }
    }

    /// Handshake bytes to send. Replies of the transmission phase are not here: the driver
    /// encodes them with [`reply`](crate::reply) into its own buffers.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Forgets the first `n` bytes of [`output`](Self::output), which were sent.
    pub fn consume_output(&mut self, n: usize) {
        self.output.consume(n);
    }

    /// Takes received bytes up to the next step; returns how many were consumed. What was not
    /// consumed must be given again, after the step was acted on.
    ///
    /// After [`Step::Disconnect`] and after an error, every further call returns the same.
    pub fn handle(&mut self, input: &[u8], exports: &dyn Exports) -> Result<(usize, Step), Fatal> {
        let result = match &mut self.phase {
            Phase::Transmission(t) => t.handle(input),
            Phase::Handshake(_) if !self.output.pending().is_empty() => Ok((0, Step::Output)),
            Phase::Handshake(h) => match h.handle(input, exports, &mut self.output, &self.limits) {
                Ok((n, event)) => Ok((n, self.after(event))),
                Err(fatal) => Err(fatal),
            },
            Phase::Closed(reason) => return Ok((0, Step::Disconnect(*reason))),
            Phase::Failed(fatal) => return Err(fatal.clone()),
        };
        match &result {
            Ok((_, Step::Disconnect(reason))) => self.phase = Phase::Closed(*reason),
            Err(fatal) => self.phase = Phase::Failed(fatal.clone()),
            Ok(_) => {}
        }
        result
    }

    /// Has the next `n` bytes of the stream thrown away: what is left of the payload of a write
    /// that the driver was given but cannot take. Panics outside of transmission.
    pub fn skip_payload(&mut self, n: u32) {
        let Phase::Transmission(t) = &mut self.phase else {
            panic!("skip_payload outside of the transmission phase");
        };
        t.skip_payload(n);
    }

    /// From now on refuses everything: options with `NBD_REP_ERR_SHUTDOWN`, requests with
    /// `NBD_ESHUTDOWN`. `NBD_OPT_ABORT` and `NBD_CMD_DISC` still work.
    pub fn shut_down(&mut self) {
        match &mut self.phase {
            Phase::Handshake(h) => h.shut_down(),
            Phase::Transmission(t) => t.shut_down(),
            Phase::Closed(_) | Phase::Failed(_) => {}
        }
    }

    /// How replies must look; settled once [`Step::Opened`] was returned.
    pub fn reply_style(&self) -> ReplyStyle {
        match &self.phase {
            Phase::Handshake(h) => h.style(),
            Phase::Transmission(t) => t.style(),
            Phase::Closed(_) | Phase::Failed(_) => ReplyStyle::Simple,
        }
    }

    /// Bytes of memory behind this session at the moment, besides itself; none during
    /// transmission once the handshake's output was consumed.
    pub fn memory(&self) -> usize {
        let handshake = match &self.phase {
            Phase::Handshake(h) => size_of::<Handshake>() + h.memory(),
            _ => 0,
        };
        handshake + self.output.bytes.capacity()
    }

    fn after(&mut self, event: Event) -> Step {
        match event {
            Event::NeedMore(n) => Step::NeedMore(n),
            Event::Output => Step::Output,
            Event::Abort => Step::Disconnect(Disconnect::Abort),
            Event::Open { opened, at } => {
                let t = Transmission::new(&opened, self.limits.write_discard_max, at);
                self.phase = Phase::Transmission(t);
                Step::Opened(opened)
            }
        }
    }
}

const _: () = assert!(size_of::<Transmission>() <= 4 * REQUEST_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use crate::testing::{Bench, Shelf, message};
    use proptest::prelude::*;

    /// All that a session makes of a stream.
    #[derive(Debug, Default, PartialEq)]
    struct Heard {
        steps: Vec<Step>,
        output: Vec<u8>,
        payload: Vec<u8>,
        fatal: Option<Fatal>,
    }

    /// Plays a driver that receives the stream in these pieces.
    fn hear<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Heard {
        let mut session = Session::new(Limits::default());
        let mut heard = Heard::default();
        let mut payload_left = 0;
        'pieces: for mut input in pieces {
            loop {
                heard.output.extend(session.output());
                session.consume_output(session.output().len());
                let (payload, rest) = input.split_at(input.len().min(payload_left));
                heard.payload.extend(payload);
                payload_left -= payload.len();
                input = rest;
                if payload_left > 0 {
                    break;
                }
                match session.handle(input, &Shelf) {
                    Ok((n, step)) => {
                        input = &input[n..];
                        match step {
                            Step::NeedMore(_) => break,
                            Step::Output => continue,
                            Step::Request(r) if r.command == Command::Write => {
                                payload_left = r.len as usize;
                            }
                            Step::Disconnect(_) => {
                                heard.output.extend(session.output());
                                heard.steps.push(step);
                                break 'pieces;
                            }
                            _ => {}
                        }
                        heard.steps.push(step);
                    }
                    Err(fatal) => {
                        heard.fatal = Some(fatal);
                        break 'pieces;
                    }
                }
            }
        }
        heard
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn pieces_do_not_matter(
            open in prop::bool::weighted(0.7),
            messages in prop::collection::vec(message(), 1..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut stream = vec![0, 0, 0, 3];
            if open {
                crate::client::put_option(&mut stream, 7, &crate::testing::go("disk", &[]));
            }
            stream.extend(messages.concat());
            let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let whole = hear(std::iter::once(&stream[..]));
            let cut = hear(cuts.windows(2).map(|w| &stream[w[0]..w[1]]));
            prop_assert_eq!(&whole, &cut);
            prop_assert_eq!(&whole, &hear(stream.chunks(1)));
            prop_assert!(!open || !whole.steps.is_empty());
        }
    }

    #[test]
    fn need_more_says_how_much() {
        let mut session = Session::new(Limits::default());
        session.consume_output(18);
        let mut need = |input: &[u8]| match session.handle(input, &Shelf) {
            Ok((n, Step::NeedMore(more))) if n == input.len() => more,
            other => panic!("{other:?}"),
        };
        assert_eq!(need(&[]), 4);
        assert_eq!(need(&[0]), 3);
        assert_eq!(need(&[0, 0, 3]), 16);
        assert_eq!(need(b"IHAVEOPT"), 8);
        assert_eq!(need(&[0, 0, 0, 7, 0, 0, 0, 10]), 10);
        assert_eq!(need(&[0, 0, 0, 4]), 6);
    }

    #[test]
    fn steps_are_small() {
        // They are returned by value, once for each request.
        assert!(size_of::<Step>() <= 48, "{}", size_of::<Step>());
    }

    #[test]
    #[should_panic(expected = "outside of the transmission phase")]
    fn there_is_no_payload_in_the_handshake() {
        Bench::new().session.skip_payload(1);
    }
}
