//! TLS as the handshake sees it: which modes a server has, and how far a connection has got.

/// Use of TLS by a server, in the terms of the specification ("TLS support").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// NOTLS: `NBD_OPT_STARTTLS` is refused.
    #[default]
    Off,
    /// SELECTIVETLS: TLS is offered. Before it, [`Exports`](crate::Exports) has only the exports
    /// that are served in plain text, and any other name is answered with `NBD_REP_ERR_TLS_REQD`,
    /// whether an export has it or not.
    Selective,
    /// FORCEDTLS: before TLS, every option but `NBD_OPT_STARTTLS` and `NBD_OPT_ABORT` is refused.
    Forced,
}

/// Progress of a connection from plain text to TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsProgress {
    /// Plain text.
    Plain(TlsMode),
    /// `NBD_OPT_STARTTLS` was acknowledged: the next bytes belong to TLS, not to the session.
    Starting,
    /// Everything that the client sends has come over TLS.
    Established,
}

impl TlsProgress {
    /// Returns true if nothing but TLS may be negotiated.
    pub(crate) fn is_demanded(self) -> bool {
        self == TlsProgress::Plain(TlsMode::Forced)
    }

    /// Returns true if an export that is unknown may be one that is served over TLS only.
    pub(crate) fn may_hide_exports(self) -> bool {
        self == TlsProgress::Plain(TlsMode::Selective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, OptionReply, TestExports, meta, option_go};
    use crate::wire::*;
    use crate::{Fatal, Limits, ReplyStyle, Session, Step};

    const FLAGS: u32 = NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES;
    const BOTH: [TlsMode; 2] = [TlsMode::Selective, TlsMode::Forced];

    fn start_tls(bench: &mut Bench) {
        let (steps, replies) = bench.try_option(NBD_OPT_STARTTLS, &[]).unwrap();
        assert_eq!(steps, [Step::StartTls]);
        assert_eq!(replies, [(NBD_REP_ACK, vec![])]);
    }

    #[test]
    fn without_tls_it_is_not_offered_and_never_required() {
        let mut bench = Bench::new();
        assert_eq!(bench.refused(NBD_OPT_STARTTLS, &[]), NBD_REP_ERR_UNSUP);
        let unknown = bench.refused(NBD_OPT_GO, &option_go("none", &[]));
        assert_eq!(unknown, NBD_REP_ERR_UNKNOWN);
    }

    #[test]
    fn forced_refuses_all_but_starttls_and_abort() {
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Forced);
        for (option, data) in [
            (NBD_OPT_LIST, vec![]),
            (NBD_OPT_INFO, option_go("disk", &[])),
            (NBD_OPT_GO, option_go("disk", &[])),
            (NBD_OPT_GO, option_go("none", &[])),
            (NBD_OPT_STRUCTURED_REPLY, vec![]),
            (NBD_OPT_SET_META_CONTEXT, meta("disk", &["base:allocation"])),
            (NBD_OPT_LIST_META_CONTEXT, meta("disk", &[])),
            (99, vec![1, 2, 3]),
        ] {
            assert_eq!(bench.refused(option, &data), NBD_REP_ERR_TLS_REQD);
        }
        assert_eq!(bench.option(NBD_OPT_ABORT, &[]), [(NBD_REP_ACK, vec![])]);
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Forced);
        let fatal = bench.try_option(NBD_OPT_EXPORT_NAME, b"disk");
        assert_eq!(fatal, Err(Fatal::TlsRequired));
    }

    #[test]
    fn clients_without_fixed_newstyle_cannot_start_tls_or_go_round_it() {
        for mode in BOTH {
            let option = NBD_OPT_STARTTLS;
            let fatal = Bench::with_tls(0, mode).try_option(option, &[]);
            assert_eq!(fatal, Err(Fatal::NotFixedNewstyle { option }));
        }
        let fatal = Bench::with_tls(0, TlsMode::Forced).try_option(NBD_OPT_EXPORT_NAME, b"disk");
        assert_eq!(fatal, Err(Fatal::TlsRequired));
    }

    #[test]
    fn over_tls_the_handshake_is_the_usual_one() {
        for mode in BOTH {
            let mut bench = Bench::with_tls(FLAGS, mode);
            start_tls(&mut bench);
            let unknown = bench.option(NBD_OPT_GO, &option_go("none", &[]));
            let plainly = Bench::new().option(NBD_OPT_GO, &option_go("none", &[]));
            assert_eq!(unknown, plainly);
            assert_eq!(bench.option(NBD_OPT_LIST, &[]).len(), 3);
            assert_eq!(bench.refused(NBD_OPT_STARTTLS, &[]), NBD_REP_ERR_INVALID);
            assert_eq!(bench.open("disk", &[]).export.id, 1);
        }
    }

    #[test]
    fn starttls_takes_no_data() {
        for mode in BOTH {
            let mut bench = Bench::with_tls(FLAGS, mode);
            assert_eq!(bench.refused(NBD_OPT_STARTTLS, b"x"), NBD_REP_ERR_INVALID);
            start_tls(&mut bench);
        }
    }

    #[test]
    fn before_tls_selective_has_one_answer_for_all_names_that_it_does_not_serve() {
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Selective);
        for option in [NBD_OPT_INFO, NBD_OPT_GO] {
            let answer = |bench: &mut Bench, name| -> Vec<OptionReply> {
                bench.option(option, &option_go(name, &[]))
            };
            let one = answer(&mut bench, "none");
            assert_eq!((one.len(), one[0].0), (1, NBD_REP_ERR_TLS_REQD));
            assert_eq!(answer(&mut bench, "other"), one);
        }
        // Not TLS_REQD: the specification has that for INFO and GO alone.
        bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
        let unknown = bench.refused(NBD_OPT_SET_META_CONTEXT, &meta("none", &[]));
        assert_eq!(unknown, NBD_REP_ERR_UNKNOWN);
        // Exports that are served in plain text are known.
        assert_eq!(bench.open("disk", &[]).export.id, 1);
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Selective);
        let fatal = bench.try_option(NBD_OPT_EXPORT_NAME, b"none");
        assert_eq!(fatal, Err(Fatal::TlsRequired));
    }

    #[test]
    fn what_was_negotiated_in_plain_text_is_forgotten() {
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Selective);
        bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
        let selected = meta("disk", &["base:allocation"]);
        bench.option(NBD_OPT_SET_META_CONTEXT, &selected);
        assert_eq!(bench.session.reply_style(), ReplyStyle::Structured);
        start_tls(&mut bench);
        assert_eq!(bench.session.reply_style(), ReplyStyle::Simple);
        // Structured replies are gone, which metadata contexts need.
        let refused = bench.refused(NBD_OPT_SET_META_CONTEXT, &selected);
        assert_eq!(refused, NBD_REP_ERR_INVALID);
        // The selection does not come back with them.
        bench.option(NBD_OPT_STRUCTURED_REPLY, &[]);
        let opened = bench.open("disk", &[]);
        assert_eq!(
            (opened.style, opened.allocation_context),
            (ReplyStyle::Structured, None)
        );
    }

    #[test]
    fn client_flags_are_sent_once_and_stay() {
        // With NO_ZEROES 10 bytes, without it 134.
        for (flags, len) in [(FLAGS, 10), (NBD_FLAG_C_FIXED_NEWSTYLE, 134)] {
            let mut bench = Bench::with_tls(flags, TlsMode::Forced);
            start_tls(&mut bench);
            bench.output.clear();
            let mut bytes = Vec::new();
            crate::client::put_option(&mut bytes, NBD_OPT_EXPORT_NAME, b"disk");
            bench.feed(&bytes).unwrap();
            assert_eq!(bench.output.len(), len);
        }
    }

    /// Session of which the client has sent its flags.
    fn greeted(mode: TlsMode) -> Session {
        let mut session = Session::with_tls(Limits::default(), mode);
        session.consume_output(session.output().len());
        let flags = FLAGS.to_be_bytes();
        assert_eq!(session.handle(&flags, &TestExports).unwrap().0, 4);
        session
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        crate::client::put_option(&mut bytes, option, data);
        bytes
    }

    #[test]
    fn plain_text_behind_starttls_ends_the_connection() {
        let injected = option(NBD_OPT_GO, &option_go("disk", &[]));
        for mode in BOTH {
            for n in [1, 16, injected.len()] {
                // In one piece with the option.
                let bytes = [option(NBD_OPT_STARTTLS, &[]), injected[..n].to_vec()].concat();
                let mut session = greeted(mode);
                let fatal = Err(Fatal::PlaintextAfterStartTls { at: 20 });
                assert_eq!(session.handle(&bytes, &TestExports), fatal);
                assert_eq!(session.handle(&[], &TestExports), fatal);
                // Between the acknowledgement and TLS.
                let mut session = greeted(mode);
                let start = option(NBD_OPT_STARTTLS, &[]);
                let started = session.handle(&start, &TestExports);
                assert_eq!(started, Ok((16, Step::StartTls)));
                session.consume_output(session.output().len());
                assert_eq!(session.handle(&injected[..n], &TestExports), fatal);
            }
        }
    }

    #[test]
    fn the_session_waits_for_tls() {
        let mut session = greeted(TlsMode::Forced);
        let start = option(NBD_OPT_STARTTLS, &[]);
        // In pieces, as any option.
        assert!(matches!(
            session.handle(&start[..9], &TestExports),
            Ok((9, Step::NeedMore(7)))
        ));
        assert_eq!(
            session.handle(&start[9..], &TestExports),
            Ok((7, Step::StartTls))
        );
        assert_eq!(session.handle(&[], &TestExports), Ok((0, Step::Output)));
        session.consume_output(session.output().len());
        assert_eq!(session.handle(&[], &TestExports), Ok((0, Step::StartTls)));
        session.tls_established();
        assert_eq!(
            session.handle(&[], &TestExports),
            Ok((0, Step::NeedMore(16)))
        );
    }

    #[test]
    fn options_of_both_sides_of_starttls_are_counted_together() {
        let limits = Limits {
            options_max: 3,
            ..Limits::default()
        };
        let session = Session::with_tls(limits, TlsMode::Selective);
        let mut bench = Bench::with_session(FLAGS, session);
        bench.option(NBD_OPT_LIST, &[]);
        start_tls(&mut bench);
        bench.option(NBD_OPT_LIST, &[]);
        let fatal = bench.try_option(NBD_OPT_LIST, &[]);
        assert_eq!(fatal, Err(Fatal::TooManyOptions { max: 3 }));
    }

    #[test]
    fn a_server_that_shuts_down_starts_no_tls() {
        let mut bench = Bench::with_tls(FLAGS, TlsMode::Forced);
        bench.session.shut_down();
        assert_eq!(bench.refused(NBD_OPT_STARTTLS, &[]), NBD_REP_ERR_SHUTDOWN);
    }

    #[test]
    #[should_panic(expected = "TLS was not negotiated")]
    fn tls_is_not_established_unasked() {
        greeted(TlsMode::Forced).tls_established();
    }

    #[test]
    #[should_panic(expected = "was not sent")]
    fn the_acknowledgement_is_sent_in_plain_text() {
        let mut session = greeted(TlsMode::Forced);
        let start = option(NBD_OPT_STARTTLS, &[]);
        session.handle(&start, &TestExports).unwrap();
        session.tls_established();
    }
}
