//! Server side of one connection, as a state machine that a driver feeds with bytes.
//!
//! ```text
//!                +------- option, answered --------+
//!                v                                 |
//!  new() --> client flags --> option header --> payload or skip
//!                |                |                |
//!                |                |                +-- EXPORT_NAME, GO --> transmission
//!                |                |                +-- ABORT ------------> closed
//!                |                |                +-- STARTTLS --> tls_established()
//!                +------------- broken rule ------------------------------> failed
//!
//!  transmission: request header --> Request, or Rejected (payload skipped) --> request header
//!                      |-- DISC --> closed
//!                      +-- bad magic, absurd payload --> failed
//! ```
//!
//! During the handshake a session stores at most one option payload and the replies to one option,
//! and takes no further input until the driver has consumed the output. Both are freed when
//! transmission begins; from then on the session does not allocate.

use crate::error::Fatal;
use crate::export::Exports;
use crate::handshake::{Event, Handshake};
use crate::output::Output;
use crate::reply::ReplyStyle;
use crate::step::{Disconnect, Limits, Step};
use crate::tls::TlsMode;
use crate::transmission::{Transmission, TransmissionState};
use crate::wire::REQUEST_LEN;

/// Server side of one connection. The crate's documentation shows a driver's loop.
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
    /// State of the transmission phase that the disconnect request has ended, if it was in one.
    Closed(Disconnect, Option<TransmissionState>),
    Failed(Fatal),
}

impl Session {
    /// Starts a session for a client that has just connected; [`output`](Self::output) holds the
    /// greeting.
    pub fn new(limits: Limits) -> Session {
        Session::with_tls(limits, TlsMode::Off)
    }

    /// Starts a session like [`new`](Self::new), of a server that uses TLS by `mode`.
    pub fn with_tls(limits: Limits, mode: TlsMode) -> Session {
        let mut output = Output::default();
        let handshake = Box::new(Handshake::new(mode, &mut output));
        Session {
            limits,
            phase: Phase::Handshake(handshake),
            output,
        }
    }

    /// Goes on with a session in the transmission phase that another process has begun. The input
    /// begins with the first byte that the other session has not consumed, or with its
    /// [`partial_header`](Session::partial_header).
    ///
    /// # Panics
    /// The alignment is not a power of 2.
    pub fn resumed(limits: Limits, state: &TransmissionState) -> Session {
        let transmission = Transmission::resumed(state, limits.write_discard_max);
        Session {
            limits,
            phase: Phase::Transmission(transmission),
            output: Output::default(),
        }
    }

    /// Returns what another process needs to go on with this session, also after a disconnect
    /// request: requests before it have yet to be answered. `None` outside of the transmission
    /// phase.
    pub fn transmission_state(&self) -> Option<TransmissionState> {
        match &self.phase {
            Phase::Transmission(transmission) => Some(transmission.state()),
            Phase::Closed(_, state) => *state,
            Phase::Handshake(_) | Phase::Failed(_) => None,
        }
    }

    /// Returns the bytes of a request header that were consumed and are not a whole header yet.
    pub fn partial_header(&self) -> &[u8] {
        match &self.phase {
            Phase::Transmission(transmission) => transmission.partial_header(),
            Phase::Handshake(_) | Phase::Closed(..) | Phase::Failed(_) => &[],
        }
    }

    /// Handshake bytes to send. Empty during transmission: the driver encodes replies with
    /// [`reply`](crate::reply) into its own buffers.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Drops the first `n` bytes of [`output`](Self::output) after they were sent.
    ///
    /// # Panics
    /// `n` exceeds the length of the output.
    pub fn consume_output(&mut self, n: usize) {
        self.output.consume(n);
    }

    /// Processes received bytes up to the next step and returns the number of bytes consumed. The
    /// driver gives the remaining bytes again after it has acted on the step.
    ///
    /// After [`Step::Disconnect`] and after an error, every further call returns the same result.
    ///
    /// # Errors
    /// The client broke a rule to which no reply can be sent; close the connection.
    pub fn handle(&mut self, input: &[u8], exports: &dyn Exports) -> Result<(usize, Step), Fatal> {
        let result = match &mut self.phase {
            Phase::Transmission(t) => t.handle(input),
            // One option at a time: its replies must leave before the next one may add to them.
            Phase::Handshake(_) if !self.output.pending().is_empty() => Ok((0, Step::Output)),
            Phase::Handshake(h) => match h.handle(input, exports, &mut self.output, &self.limits) {
                Ok((n, event)) => Ok((n, self.after(event))),
                Err(fatal) => Err(fatal),
            },
            Phase::Closed(reason, _) => return Ok((0, Step::Disconnect(*reason))),
            Phase::Failed(fatal) => return Err(fatal.clone()),
        };
        // Terminal results are stored, so that later calls return them again.
        match &result {
            Ok((_, Step::Disconnect(reason))) => {
                self.phase = Phase::Closed(*reason, self.transmission_state());
            }
            Err(fatal) => self.phase = Phase::Failed(fatal.clone()),
            Ok(_) => {}
        }
        result
    }

    /// Goes on with the handshake over TLS, after [`Step::StartTls`]. Everything that the client
    /// negotiated before is forgotten; input from now on is what TLS has decrypted.
    ///
    /// # Panics
    /// The client did not start TLS, or the acknowledgement was not consumed: it would be sent
    /// over TLS, and the client waits for it in plain text.
    pub fn tls_established(&mut self) {
        assert!(
            self.output.pending().is_empty(),
            "the acknowledgement of NBD_OPT_STARTTLS was not sent"
        );
        let Phase::Handshake(h) = &mut self.phase else {
            panic!("TLS outside of the handshake");
        };
        h.tls_established();
    }

    /// Discards the next `n` bytes of the stream: the rest of a write's payload that the driver
    /// cannot store.
    ///
    /// # Panics
    /// The session is not in the transmission phase, or `n` exceeds the announced payload.
    pub fn skip_payload(&mut self, n: u32) {
        let Phase::Transmission(t) = &mut self.phase else {
            panic!("skip_payload outside of the transmission phase");
        };
        t.skip_payload(n);
    }

    /// Rejects all further options with `NBD_REP_ERR_SHUTDOWN` and all further requests with
    /// `NBD_ESHUTDOWN`. `NBD_OPT_ABORT` and `NBD_CMD_DISC` still work.
    pub fn shut_down(&mut self) {
        match &mut self.phase {
            Phase::Handshake(h) => h.shut_down(),
            Phase::Transmission(t) => t.shut_down(),
            Phase::Closed(..) | Phase::Failed(_) => {}
        }
    }

    /// Negotiated form of replies; final once [`Step::Opened`] was returned.
    pub fn reply_style(&self) -> ReplyStyle {
        match &self.phase {
            Phase::Handshake(h) => h.style(),
            Phase::Transmission(t) => t.style(),
            // No reply is sent any more, so either form would do.
            Phase::Closed(..) | Phase::Failed(_) => ReplyStyle::Simple,
        }
    }

    /// Heap memory of the session in bytes; 0 during transmission once the handshake's output was
    /// consumed.
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
            Event::StartTls => Step::StartTls,
            Event::Open { opened, at } => {
                // Replacing the phase frees the handshake with its buffers.
                let t = Transmission::new(&opened, self.limits.write_discard_max, at);
                self.phase = Phase::Transmission(t);
                Step::Opened(opened)
            }
        }
    }
}

// Every session holds this state inline, so it must stay small.
const _: () = assert!(size_of::<Transmission>() <= 4 * REQUEST_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use crate::testing::{Bench, TestExports, message};
    use proptest::prelude::*;

    /// Everything that a session produces from a stream.
    #[derive(Debug, Default, PartialEq)]
    struct Transcript {
        steps: Vec<Step>,
        output: Vec<u8>,
        payload: Vec<u8>,
        fatal: Option<Fatal>,
    }

    /// Runs a driver that receives the stream in the given pieces.
    fn run_session<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Transcript {
        let mut session = Session::new(Limits::default());
        let mut transcript = Transcript::default();
        let mut payload_left = 0;
        'pieces: for mut input in pieces {
            loop {
                transcript.output.extend(session.output());
                session.consume_output(session.output().len());
                let (payload, rest) = input.split_at(input.len().min(payload_left));
                transcript.payload.extend(payload);
                payload_left -= payload.len();
                input = rest;
                if payload_left > 0 {
                    break;
                }
                match session.handle(input, &TestExports) {
                    Ok((n, step)) => {
                        input = &input[n..];
                        match step {
                            Step::NeedMore(_) => break,
                            Step::Output => continue,
                            Step::StartTls => {
                                transcript.output.extend(session.output());
                                session.consume_output(session.output().len());
                                session.tls_established();
                            }
                            Step::Request(r) if r.command == Command::Write => {
                                payload_left = r.len as usize;
                            }
                            Step::Disconnect(_) => {
                                transcript.output.extend(session.output());
                                transcript.steps.push(step);
                                break 'pieces;
                            }
                            _ => {}
                        }
                        transcript.steps.push(step);
                    }
                    Err(fatal) => {
                        transcript.fatal = Some(fatal);
                        break 'pieces;
                    }
                }
            }
        }
        transcript
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
                crate::client::put_option(&mut stream, 7, &crate::testing::option_go("disk", &[]));
            }
            stream.extend(messages.concat());
            let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let whole = run_session(std::iter::once(&stream[..]));
            let cut = run_session(cuts.windows(2).map(|w| &stream[w[0]..w[1]]));
            prop_assert_eq!(&whole, &cut);
            prop_assert_eq!(&whole, &run_session(stream.chunks(1)));
            prop_assert!(!open || !whole.steps.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_session_that_is_resumed_anywhere_goes_on_as_if_it_were_the_same(
            messages in prop::collection::vec(message(), 1..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut stream = vec![0, 0, 0, 3];
            crate::client::put_option(&mut stream, 7, &crate::testing::option_go("disk", &[]));
            let handshake = stream.len();
            stream.extend(messages.concat());
            let cut = handshake + cut.index(stream.len() - handshake + 1);
            // Steps of transmission, with the session replaced by its successor at `cut`.
            let run = |cut: Option<usize>| {
                let mut session = Session::with_tls(Limits::default(), TlsMode::Off);
                let (mut at, mut end, mut steps) = (0, cut.unwrap_or(stream.len()), Vec::new());
                loop {
                    session.consume_output(session.output().len());
                    let (used, step) = match session.handle(&stream[at..end], &TestExports) {
                        Ok(handled) => handled,
                        Err(fatal) => {
                            // Positions in the stream count from where the session began.
                            steps.push(format!("{:?}", std::mem::discriminant(&fatal)));
                            return steps;
                        }
                    };
                    at += used;
                    match step {
                        Step::NeedMore(_) if end == stream.len() => return steps,
                        Step::NeedMore(_) => {
                            let state = session.transmission_state().expect("after the handshake");
                            at -= session.partial_header().len();
                            session = Session::resumed(Limits::default(), &state);
                            end = stream.len();
                        }
                        Step::Output | Step::Opened(_) => {}
                        Step::Disconnect(_) => {
                            steps.push("disconnect".to_owned());
                            return steps;
                        }
                        Step::Request(request) => {
                            if request.command == Command::Write {
                                at = (at + request.len as usize).min(stream.len());
                                end = end.max(at);
                            }
                            steps.push(format!("{request:?}"));
                        }
                        other => steps.push(format!("{other:?}")),
                    }
                }
            };
            prop_assert_eq!(run(None), run(Some(cut)));
        }
    }

    #[test]
    fn a_session_that_was_disconnected_in_order_has_the_state_that_its_last_requests_need() {
        let mut bench = Bench::opened("disk");
        let before = bench.session.transmission_state();
        assert!(before.is_some());
        let mut stream = crate::client::encode_disconnect().to_vec();
        stream.extend([0; 100]);
        let step = bench.session.handle(&stream, &TestExports);
        assert!(matches!(step, Ok((_, Step::Disconnect(Disconnect::Disc)))));
        assert_eq!(bench.session.transmission_state(), before);
        assert_eq!(bench.session.partial_header(), b"");
    }

    #[test]
    fn need_more_says_how_much() {
        let mut session = Session::new(Limits::default());
        session.consume_output(18);
        let mut need = |input: &[u8]| match session.handle(input, &TestExports) {
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
        // Steps are returned by value, one per request.
        assert!(size_of::<Step>() <= 48, "{}", size_of::<Step>());
    }

    #[test]
    #[should_panic(expected = "outside of the transmission phase")]
    fn there_is_no_payload_in_the_handshake() {
        Bench::new().session.skip_payload(1);
    }
}
