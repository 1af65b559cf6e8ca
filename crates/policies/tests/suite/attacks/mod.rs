//! Attacks on the engine, written from its documents alone: its promises under calls that a driver
//! may make but would not.

mod chaos;
mod charges;
mod edges;
mod handles;
mod rig;
mod starvation;
mod swaps;
