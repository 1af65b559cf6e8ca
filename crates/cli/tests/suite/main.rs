//! Integration tests of the command line: one binary, a module for each subject.

mod access;
mod agent;
mod calculations;
mod check_persisted;
mod choose;
mod cli;
mod common;
mod compare;
mod completion;
mod daemon;
mod explain;
mod export;
mod fit;
mod formats;
mod history;
mod place;
mod profile;
mod promises;
mod record;
mod reproduce;
mod simulation;
mod story;
mod trace;
mod vcpu;
mod vhost_user_blk;
mod what_if;
