//! Integration tests of the simulator: one binary, a module for each subject.

mod cached_writes;
mod causes;
mod choose;
mod common;
mod culprits;
mod device_control;
mod device_rows;
mod disk_limits;
mod fit;
mod floors_of_disk;
mod hosts;
mod path;
mod precision;
mod processors;
mod recording;
mod replay;
mod scenario;
mod shares_of_disk;
mod torture;
mod torture_planted;
mod torture_regressions;
mod transfers;
mod tuned;
mod what_if;
mod world;
