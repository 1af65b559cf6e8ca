//! Integration tests of the daemon in the test process: one binary with a module per subject.

mod bytes;
mod common;
mod connection_floods;
mod drain;
mod durability;
mod fairness;
mod hostile;
mod idle;
mod in_place;
mod isolation;
mod learnt_state;
mod long_requests;
mod profile;
mod store;
mod store_kill;
mod tenants;
mod transfers;
mod vhost_hand_over;
mod vhost_hostile;
mod vhost_limits;
mod vhost_load;
mod vhost_memory;
mod vhost_migration;
mod vhost_recovery;
mod vhost_resize;
mod vhost_user;
