//! A loop that does not run for a while: its timer comes late, which is noticed.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::command::{Command, LoopCall};
use crate::common::{Server, single};
use crate::config::DeviceKind;
use crate::timekeeping::LOOP_STALLS;

const STOPPED: Duration = Duration::from_millis(2500);
const PATIENCE: Duration = Duration::from_secs(30);

/// Log of one thread. Counts are of all loops of this process, other tests' as well.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    /// Has the calling thread write to this log until it ends.
    fn take_over(self) {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || self.clone())
            .with_ansi(false)
            .finish();
        std::mem::forget(tracing::subscriber::set_default(subscriber));
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_loop_that_is_stopped_counts_the_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 1 << 20));
    let mut client = server.connect("disk");
    let before = LOOP_STALLS.length().0;
    // The timer of the housekeeping runs once a request was there.
    client.write(0, &[1; 4096]);
    let log = Log::default();
    let of_loop = log.clone();
    let stop = LoopCall(Box::new(move || {
        of_loop.take_over();
        std::thread::sleep(STOPPED);
    }));
    let sent = server.handle.devices().send(0, Command::Call(stop));
    sent.expect("the loop runs");
    let begun = Instant::now();
    let line = "the event loop did not run for ";
    while !log.text().contains(line) {
        assert!(begun.elapsed() < PATIENCE, "nobody has noticed");
        std::thread::yield_now();
    }
    // The second for which the timer runs is none of the stall.
    let least = STOPPED - Duration::from_secs(1);
    let text = log.text();
    let (_, rest) = text.split_once(line).expect("just seen");
    let seconds = rest
        .split(' ')
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    assert!(seconds.expect("a length") >= least.as_secs_f64(), "{text}");
    assert!(text.contains("device=\"device\""), "{text}");
    assert!(LOOP_STALLS.length().0 >= before + least.as_nanos() as u64);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    server.stop().expect("an end in order");
}
