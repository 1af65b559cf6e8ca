use super::*;
use crate::driver::Driver;
use crate::setup::{config, policy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate_core::objective::Objective;

/// Runs `lie` on the ledger of one read that is with the device; returns its complaint.
fn complaint(lie: impl FnOnce(&mut Ledger, &DeviceIo, &Done)) -> String {
    let mut driver = Driver::new(config(1, 0), &policy("fifo"));
    let guest = driver.guest(&Objective::default());
    let request = Request::read(0, 4096, 7);
    driver.request(guest.client, request).expect("room");
    let io = driver.start().expect("it goes at once");
    let done = Done {
        req: driver.engine.io_segments(io.id).next().expect("one").req,
        tag: 7,
        client: guest.client,
        vm: guest.vm,
        op: Op::Read,
        outcome: Ok(()),
        account: Default::default(),
        payload: 0,
    };
    let told = catch_unwind(AssertUnwindSafe(|| lie(&mut driver.ledger, &io, &done)));
    // The ledger is wrong from here on.
    std::mem::forget(driver);
    let panic = told.expect_err("the ledger sees it");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_string(),
    }
}

#[test]
fn an_answer_before_its_io_has_ended_is_seen() {
    let said = complaint(|ledger, _, done| _ = ledger.answered(Nanos::ZERO, done));
    assert!(said.contains("while the device has its memory"), "{said}");
}

#[test]
fn a_second_answer_is_seen() {
    let said = complaint(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        ledger.answered(Nanos::ZERO, done);
        ledger.answered(Nanos::ZERO, done);
    });
    assert!(said.contains("answered twice"), "{said}");
}

#[test]
fn an_error_that_is_swallowed_or_made_up_is_seen() {
    let said = complaint(|ledger, io, done| {
        ledger.ended(io.id, Err(IoError::Io));
        ledger.answered(Nanos::ZERO, done);
    });
    assert!(said.contains("success before every byte"), "{said}");
    let said = complaint(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        let outcome = Err(IoError::NoSpace);
        ledger.answered(Nanos::ZERO, &Done { outcome, ..*done });
    });
    assert!(said.contains("an error of another request"), "{said}");
    let said = complaint(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        let outcome = Err(IoError::Cancelled);
        ledger.answered(Nanos::ZERO, &Done { outcome, ..*done });
    });
    assert!(said.contains("cancelled for no reason"), "{said}");
}

#[test]
fn an_io_of_a_client_that_left_and_a_second_charge_are_seen() {
    let part = |io: &DeviceIo, done: &Done| Segment {
        req: done.req,
        tag: done.tag,
        client: done.client,
        offset: 0,
        len: io.len,
    };
    let said = complaint(|ledger, io, done| {
        ledger.disconnect(done.client);
        ledger.started(io, &[part(io, done)]);
    });
    assert!(said.contains("vanished client"), "{said}");
    let said = complaint(|ledger, io, done| ledger.started(io, &[part(io, done)]));
    assert!(said.contains("charged once"), "{said}");
}

#[test]
fn a_request_whose_answer_is_due_is_seen() {
    let mut driver = Driver::new(config(1, 0), &policy("fifo"));
    let guest = driver.guest(&Objective::default());
    driver.ask(guest.client, Op::Read, 0, 4096).expect("room");
    let io = driver.start().expect("it goes at once");
    driver.check();
    driver.ledger.ended(io.id, Ok(()));
    let check = catch_unwind(AssertUnwindSafe(|| driver.ledger.check(&driver.engine)));
    assert!(check.is_err());
    std::mem::forget(driver);
}
