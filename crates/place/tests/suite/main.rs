//! Integration tests of the placement: one binary, a module for each subject.

mod admission;
mod data_centre;
mod database;
mod hosts;
mod limits;
mod pcos;
mod violations;
