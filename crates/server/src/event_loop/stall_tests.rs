//! A loop that does not run for a while: its timer comes late, which is noticed.

use std::time::{Duration, Instant};

use crate::command::{Command, LoopCall};
use crate::common::{Server, single};
use crate::config::DeviceKind;
use crate::timekeeping::LOOP_STALLS;

const STOPPED: Duration = Duration::from_millis(2500);
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_loop_that_is_stopped_counts_the_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 1 << 20));
    let mut client = server.connect("disk");
    let before = LOOP_STALLS.length().0;
    // The timer of the housekeeping runs once a request was there.
    client.write(0, &[1; 4096]);
    let stop = LoopCall(Box::new(|| std::thread::sleep(STOPPED)));
    let sent = server.handle.devices().send(0, Command::Call(stop));
    sent.expect("the loop runs");
    let begun = Instant::now();
    while LOOP_STALLS.length().0 == before {
        assert!(begun.elapsed() < PATIENCE, "nobody has noticed");
        std::thread::yield_now();
    }
    // The second for which the timer runs is none of the stall.
    let least = (STOPPED - Duration::from_secs(1)).as_nanos() as u64;
    assert!(LOOP_STALLS.length().0 >= before + least);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    server.stop().expect("an end in order");
}
