//! Tests of the ledger: each broken promise of an engine is noticed.

use super::*;
use crate::driver::Driver;
use crate::setup::{config, policy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate_core::objective::Objective;

/// Runs `violate` on the ledger of one read in flight; returns the message of the panic.
fn panic_message(violate: impl FnOnce(&mut Ledger, &DeviceIo, &Done)) -> String {
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
    let result = catch_unwind(AssertUnwindSafe(|| violate(&mut driver.ledger, &io, &done)));
    // Dropping the driver would drain it and panic on the inconsistent ledger.
    std::mem::forget(driver);
    let panic = result.expect_err("the ledger sees it");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_string(),
    }
}

#[test]
fn an_answer_before_its_io_has_ended_is_seen() {
    let message = panic_message(|ledger, _, done| _ = ledger.answered(Nanos::ZERO, done));
    assert!(
        message.contains("while the device has its memory"),
        "{message}"
    );
}

#[test]
fn a_second_answer_is_seen() {
    let message = panic_message(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        ledger.answered(Nanos::ZERO, done);
        ledger.answered(Nanos::ZERO, done);
    });
    assert!(message.contains("answered twice"), "{message}");
}

#[test]
fn an_error_that_is_swallowed_or_made_up_is_seen() {
    let message = panic_message(|ledger, io, done| {
        ledger.ended(io.id, Err(IoError::Io));
        ledger.answered(Nanos::ZERO, done);
    });
    assert!(message.contains("success before every byte"), "{message}");
    let message = panic_message(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        let outcome = Err(IoError::NoSpace);
        ledger.answered(Nanos::ZERO, &Done { outcome, ..*done });
    });
    assert!(message.contains("an error of another request"), "{message}");
    let message = panic_message(|ledger, io, done| {
        ledger.ended(io.id, Ok(()));
        let outcome = Err(IoError::Cancelled);
        ledger.answered(Nanos::ZERO, &Done { outcome, ..*done });
    });
    assert!(message.contains("cancelled for no reason"), "{message}");
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
    let message = panic_message(|ledger, io, done| {
        ledger.disconnect(done.client);
        ledger.started(io, &[part(io, done)]);
    });
    assert!(message.contains("vanished client"), "{message}");
    let message = panic_message(|ledger, io, done| ledger.started(io, &[part(io, done)]));
    assert!(message.contains("charged once"), "{message}");
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
