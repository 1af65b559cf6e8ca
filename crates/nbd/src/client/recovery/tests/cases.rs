//! Single cases, step by step.

use std::collections::BTreeMap;

use super::*;

fn write(tag: u32, offset: u64, len: u32) -> Ask {
    Ask {
        tag,
        operation: Operation::Change(Change::Write),
        offset,
        len,
        fua: false,
    }
}

const TERMS: Terms = Terms {
    max_payload: 8,
    can_zero: true,
    can_trim: true,
    can_flush: true,
};

fn ask(tag: u32, operation: Operation) -> Ask {
    let len = if operation == Operation::Flush { 0 } else { 4 };
    Ask {
        operation,
        ..write(tag, 0, len)
    }
}

/// Sends all that there is, as a caller does that polls again only after another call.
fn send(export: &mut Export) -> Vec<Request> {
    let polled = std::iter::from_fn(|| export.poll_send(0));
    let requests: Vec<Request> = polled.map(|outgoing| outgoing.request).collect();
    export.sent(0, requests.len() as u64);
    requests
}

/// Sends all that there is: one request with this command, whose cookie is returned.
fn send_one(export: &mut Export, command: Command) -> u64 {
    let requests = send(export);
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].command, command);
    requests[0].cookie
}

#[test]
fn replies_to_what_was_not_sent_whole_or_at_all_are_cuts() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    let cookie = export.poll_send(0).expect("a write").request.cookie;
    assert_eq!(export.reply(0, cookie, None), Err(Cut::TooEarly));
    export.sent(0, 1);
    for wrong in [cookie + 1, cookie ^ 1 << 32, u64::MAX, OF_REPLAY.into(), 77] {
        assert_eq!(export.reply(0, wrong, None), Err(Cut::UnknownCookie));
    }
    assert_eq!(
        export.reply(0, cookie, None),
        Ok(Answer::Log { tag: 1, at: 0 })
    );
    assert_eq!(
        export.reply(0, cookie, None),
        Err(Cut::UnknownCookie),
        "twice"
    );
    assert_eq!(export.poll_ended(), Some((1, Ok(()))));
}

#[test]
fn a_read_whose_data_are_awaited_is_not_answered_again() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    let operation = Operation::Read;
    export.submit(Ask {
        operation,
        ..write(1, 0, 4)
    });
    let cookie = export.poll_send(0).expect("a read").request.cookie;
    export.sent(0, 1);
    let (tag, from, len) = (1, 0, 4);
    assert_eq!(
        export.reply(0, cookie, None),
        Ok(Answer::Data { tag, from, len })
    );
    assert_eq!(export.reply(0, cookie, None), Err(Cut::UnknownCookie));
    export.take_data(cookie);
    assert_eq!(export.poll_ended(), Some((1, Ok(()))));
    assert!(export.is_idle());
}

#[test]
fn a_full_log_is_flushed_without_a_request() {
    let mut export = Export::new(8);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 8));
    let cookie = export.poll_send(0).expect("a write").request.cookie;
    export.submit(write(2, 8, 1));
    assert_eq!(export.poll_send(0), None, "no room");
    export.sent(0, 1);
    export.reply(0, cookie, None).expect("known");
    let flush = export.poll_send(0).expect("a flush").request;
    assert_eq!((flush.command, export.poll_send(0)), (Command::Flush, None));
    export.sent(0, 1);
    export.reply(0, flush.cookie, None).expect("known");
    let next = export.poll_send(0).expect("there is room").request;
    assert_eq!((next.command, next.offset), (Command::Write, 8));
}

#[test]
fn what_is_given_up_ends_and_what_comes_later_too() {
    let mut export = Export::new(LOG);
    export.submit(write(1, 0, 1));
    assert!(export.is_busy());
    export.give_up();
    export.submit(write(2, 0, 1));
    for tag in [1, 2] {
        assert_eq!(export.poll_ended(), Some((tag, Err(NbdError::Eio))));
    }
    assert_eq!(
        (export.is_busy(), export.failure()),
        (false, Some(Failure::GivenUp))
    );
}

/// Server that cannot trim, so that trims end while something to send is looked for.
const NO_TRIM: Terms = Terms {
    can_trim: false,
    ..TERMS
};

#[test]
fn a_trim_with_fua_that_ends_unsent_is_flushed_at_once() {
    let mut export = Export::new(LOG);
    export.connected(NO_TRIM, 1);
    let trim = ask(1, Operation::Change(Change::Trim));
    export.submit(Ask { fua: true, ..trim });
    let flush = send_one(&mut export, Command::Flush);
    assert_eq!(export.reply(0, flush, None), Ok(Answer::Done));
    assert_eq!(export.poll_ended(), Some((1, Ok(()))));
    assert!(!export.is_busy());
}

#[test]
fn a_flush_is_sent_although_the_last_change_to_send_again_ends_unsent() {
    let mut export = Export::new(LOG);
    export.connected(NO_TRIM, 1);
    export.submit(ask(1, Operation::Change(Change::Trim)));
    export.submit(ask(2, Operation::Flush));
    export.cut();
    export.connected(NO_TRIM, 1);
    let flush = send_one(&mut export, Command::Flush);
    assert_eq!(export.reply(0, flush, None), Ok(Answer::Done));
    assert!(export.poll_ended().is_some() && export.poll_ended().is_some());
    assert!(!export.is_busy());
}

#[test]
fn a_log_that_is_full_once_a_trim_has_ended_unsent_is_flushed_at_once() {
    let mut export = Export::new(4);
    export.connected(NO_TRIM, 1);
    export.submit(write(1, 8, 4));
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    // The write waits for the trim, and then for room.
    export.submit(ask(2, Operation::Change(Change::Trim)));
    export.submit(write(3, 0, 4));
    let flush = send_one(&mut export, Command::Flush);
    assert_eq!(export.reply(0, flush, None), Ok(Answer::Done));
    send_one(&mut export, Command::Write);
}

#[test]
fn a_flush_is_sent_before_requests_that_are_ready() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    for tag in 0..8 {
        export.submit(ask(tag, Operation::Read));
    }
    export.submit(ask(8, Operation::Flush));
    let next = export.poll_send(0).expect("a flush").request;
    assert_eq!(next.command, Command::Flush);
    export.sent(0, 1);
    assert_eq!(send(&mut export).len(), 8, "requests do not wait for it");
}

#[test]
fn a_change_that_is_refused_when_it_is_sent_again_fails_alone() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    export.submit(write(2, 0, 8));
    send_one(&mut export, Command::Write);
    export.cut();
    export.connected(TERMS, 1);
    // The first write is there when the second fails, with every byte.
    let replayed = send(&mut export);
    assert_eq!((replayed.len(), replayed[0].len), (1, 4));
    assert_eq!(export.reply(0, replayed[0].cookie, None), Ok(Answer::Done));
    let cookie = send_one(&mut export, Command::Write);
    let answer = export.reply(0, cookie, Some(NbdError::Enospc));
    assert_eq!(answer, Ok(Answer::Done));
    export.submit(ask(3, Operation::Flush));
    let flush = send_one(&mut export, Command::Flush);
    assert_eq!(export.reply(0, flush, None), Ok(Answer::Done));
    let ended: Vec<_> = std::iter::from_fn(|| export.poll_ended()).collect();
    assert_eq!(
        ended,
        [(1, Ok(())), (2, Err(NbdError::Enospc)), (3, Ok(()))]
    );
    assert_eq!((export.failure(), export.unflushed()), (None, 0));
}

#[test]
fn an_acknowledged_change_that_is_refused_when_it_is_sent_again_fails_the_export() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    export.cut();
    export.connected(TERMS, 1);
    let cookie = send_one(&mut export, Command::Write);
    let answer = export.reply(0, cookie, Some(NbdError::Enospc));
    assert_eq!(answer, Err(Cut::Failed));
    let failure = Failure::Replay(NbdError::Enospc);
    assert_eq!(export.failure(), Some(failure));
}

/// Server that cannot flush, which serves read-only disks.
const NO_FLUSH: Terms = Terms {
    can_flush: false,
    ..TERMS
};

#[test]
fn a_flush_without_a_change_succeeds_on_a_server_that_has_none() {
    let mut export = Export::new(LOG);
    export.connected(NO_FLUSH, 1);
    for tag in [1, 2] {
        export.submit(ask(tag, Operation::Flush));
        assert_eq!(send(&mut export), []);
        assert_eq!(export.poll_ended(), Some((tag, Ok(()))));
    }
    assert_eq!((export.is_busy(), export.failure()), (false, None));
}

#[test]
fn a_flush_of_changes_fails_on_a_server_that_has_none() {
    let mut export = Export::new(LOG);
    export.connected(NO_FLUSH, 1);
    let change = write(1, 0, 4);
    export.submit(Ask {
        fua: true,
        ..change
    });
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    assert_eq!(send(&mut export), []);
    assert_eq!(export.poll_ended(), Some((1, Err(NbdError::Eio))));
    let failure = Failure::Flush(NbdError::Enotsup);
    assert_eq!(export.failure(), Some(failure));
}

#[test]
fn a_server_that_shuts_down_is_left_once_it_has_answered_all() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    export.submit(write(2, 4, 4));
    let [first, second] = send(&mut export)[..] else {
        panic!("two writes");
    };
    let refused = Some(NbdError::Eshutdown);
    assert_eq!(export.reply(0, second.cookie, refused), Ok(Answer::Done));
    assert_eq!(
        export.reply(0, second.cookie, None),
        Err(Cut::UnknownCookie)
    );
    export.submit(write(3, 8, 4));
    assert_eq!(send(&mut export), []);
    // The first one may still be carried out, so that it must not be sent again beside that.
    assert!(!export.is_drained());
    let logged = Answer::Log { tag: 1, at: 0 };
    assert_eq!(export.reply(0, first.cookie, None), Ok(logged));
    assert!(export.is_drained());
    export.cut();
    export.connected(TERMS, 1);
    let mut sent = Vec::new();
    loop {
        let requests = send(&mut export);
        if requests.is_empty() {
            break;
        }
        for request in requests {
            sent.push(request.offset);
            export.reply(0, request.cookie, None).expect("known");
        }
    }
    // The logged one first.
    assert_eq!(sent, [0, 4, 8]);
    let ended: Vec<_> = std::iter::from_fn(|| export.poll_ended()).collect();
    assert_eq!(ended, [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
}

#[test]
fn a_flush_that_a_leaving_server_refuses_is_repeated() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    export.submit(ask(2, Operation::Flush));
    let cookie = send_one(&mut export, Command::Flush);
    let refused = export.reply(0, cookie, Some(NbdError::Eshutdown));
    assert_eq!((refused, export.is_drained()), (Ok(Answer::Done), true));
    assert_eq!(export.failure(), None);
    export.cut();
    export.connected(TERMS, 1);
    for command in [Command::Write, Command::Flush] {
        let cookie = send_one(&mut export, command);
        export.reply(0, cookie, None).expect("known");
    }
    let ended: Vec<_> = std::iter::from_fn(|| export.poll_ended()).collect();
    assert_eq!(ended, [(1, Ok(())), (2, Ok(()))]);
    assert_eq!(export.unflushed(), 0);
}

#[test]
fn requests_whose_memory_is_gone_end_alone() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    export.submit(write(1, 0, 4));
    let cookie = send_one(&mut export, Command::Write);
    export.reply(0, cookie, None).expect("known");
    for round in 0..LOG as u32 {
        export.submit(write(2, 0, 4));
        export.submit(ask(3, Operation::Flush));
        assert!(!send(&mut export).is_empty());
        export.cut();
        export.end_requests();
        let ended: BTreeMap<_, _> = std::iter::from_fn(|| export.poll_ended()).collect();
        let gone = Err(NbdError::Eio);
        assert_eq!([ended[&2], ended[&3]], [gone, gone], "round {round}");
        assert_eq!((export.failure(), export.unflushed()), (None, 1));
        export.connected(TERMS, 1);
        let cookie = send_one(&mut export, Command::Write);
        export.reply(0, cookie, None).expect("the logged one");
    }
    // The room of each was given back: the log takes as much as before.
    export.submit(write(4, 0, LOG as u32 - 4));
    assert!(!send(&mut export).is_empty());
}

#[test]
fn each_connection_answers_its_own_requests_alone() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 2);
    export.submit(write(1, 0, 4));
    export.submit(write(2, 4, 4));
    let first = export.poll_send(0).expect("a write").request.cookie;
    let second = export.poll_send(1).expect("a write").request.cookie;
    export.sent(1, 1);
    assert_eq!(export.reply(0, second, None), Err(Cut::UnknownCookie));
    assert_eq!(export.reply(0, first, None), Err(Cut::TooEarly));
    let logged = Answer::Log { tag: 2, at: 0 };
    assert_eq!(export.reply(1, second, None), Ok(logged));
    assert_eq!((export.awaited(0), export.awaited(1)), (1, 0));
}

#[test]
fn a_flush_on_one_connection_covers_what_others_have_acknowledged() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 2);
    export.submit(write(1, 0, 4));
    export.submit(write(2, 4, 4));
    let [first, second] = [0, 1].map(|on| {
        let cookie = export.poll_send(on).expect("a write").request.cookie;
        export.sent(on, 1);
        cookie
    });
    export.reply(0, first, None).expect("known");
    export.submit(ask(3, Operation::Flush));
    let flush = export.poll_send(1).expect("a flush").request;
    export.sent(1, 1);
    assert_eq!(flush.command, Command::Flush);
    export.submit(ask(4, Operation::Flush));
    assert_eq!(export.poll_send(0), None, "one flush at a time");
    // Acknowledged after the flush was sent, which need not have made it durable.
    export.reply(1, second, None).expect("known");
    export.reply(1, flush.cookie, None).expect("known");
    assert_eq!(export.unflushed(), 1);
    let flush = export.poll_send(0).expect("the next flush").request;
    export.sent(0, 1);
    export.reply(0, flush.cookie, None).expect("known");
    assert_eq!(export.unflushed(), 0);
}

#[test]
fn an_export_that_stops_sends_nothing_and_takes_the_answers_of_all_connections() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 2);
    export.submit(write(1, 0, 4));
    let cookie = export.poll_send(0).expect("a write").request.cookie;
    export.sent(0, 1);
    export.stop();
    export.submit(write(2, 4, 4));
    assert_eq!((export.poll_send(0), export.poll_send(1)), (None, None));
    assert!(!export.is_drained());
    export.reply(0, cookie, None).expect("known");
    assert!(export.is_drained());
    export.cut();
    export.connected(TERMS, 1);
    assert!(export.poll_send(0).is_some());
}

#[test]
fn a_change_waits_for_one_that_it_overlaps_on_another_connection() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 2);
    export.submit(write(1, 0, 4));
    export.submit(write(2, 3, 4));
    let first = export.poll_send(0).expect("a write").request.cookie;
    export.sent(0, 1);
    assert_eq!(export.poll_send(1), None);
    export.reply(0, first, None).expect("known");
    let second = export.poll_send(1).expect("its turn").request;
    assert_eq!((second.command, second.offset), (Command::Write, 3));
}

#[test]
fn a_replay_that_a_leaving_server_has_refused_begins_anew() {
    let mut export = Export::new(LOG);
    export.connected(TERMS, 1);
    for tag in [1, 2] {
        export.submit(write(tag, 4 * u64::from(tag), 4));
        let cookie = send_one(&mut export, Command::Write);
        export.reply(0, cookie, None).expect("known");
    }
    export.cut();
    export.connected(TERMS, 2);
    let [first, second] = [0, 1].map(|on| {
        let cookie = export.poll_send(on).expect("a logged write").request.cookie;
        export.sent(on, 1);
        cookie
    });
    // All parts have ended, and one of them was not carried out.
    let refused = Some(NbdError::Eshutdown);
    assert_eq!(export.reply(0, first, refused), Ok(Answer::Done));
    assert_eq!(export.reply(1, second, None), Ok(Answer::Done));
    export.submit(ask(3, Operation::Flush));
    assert_eq!((export.poll_send(0), export.poll_send(1)), (None, None));
    assert!(export.is_drained());
    export.cut();
    export.connected(TERMS, 1);
    let again = send(&mut export);
    assert_eq!(again.len(), 2, "both before the flush: {again:?}");
    assert!(again.iter().all(|it| it.command == Command::Write));
}
