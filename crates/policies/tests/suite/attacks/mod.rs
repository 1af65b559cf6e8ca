//! Attacks on the engine, written from its documents alone: what it promises, under what a driver
//! is allowed to do and none would.

mod chaos;
mod charges;
mod edges;
mod handles;
mod rig;
mod starvation;
mod swaps;
