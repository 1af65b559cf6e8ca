//! Integration tests of the profiler: one binary, a module for each subject.

mod catalogue;
mod measuring;
