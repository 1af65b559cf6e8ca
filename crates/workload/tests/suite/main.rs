//! Integration tests of the workloads: one binary, a module for each subject.

mod against_fio;
mod fio_jobs;
