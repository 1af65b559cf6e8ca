//! Promises of policies, judged in the simulator: devices x mixes of VMs x round trips of guests.
//!
//! ```text
//!   experiments/promises: devices, mixes --> Mix::scenario --> World --> Judge --> Outcome
//!                                                                                    |
//!                                     outcomes of all policies in a cell --> compare +--> verdict
//! ```
//! `docs/promises.md` describes the rules of judging and of comparing policies. `mix` and
//! `template` scale a mix to its device, `check` finds the mistakes of a user's own mix,
//! `random_mix` draws mixes, `judge` is the oracle of kept and missed seconds, `run`
//! runs a mix under a policy, and `compare` compares a policy's outcome with the others'.

mod compare;
mod device;
mod judge;
mod mix;
mod outcome;
mod random_mix;
mod run;
mod template;

pub use compare::{Basis, Verdict, compare};
pub use device::{Cell, PromiseDevice, devices};
pub use mix::{Demand, Mix, OfFifo, mixes};
pub use outcome::{Measured, Outcome, Promise, Unit, VmOutcome};
pub use run::{REQUESTS, Run, SECONDS, run};
