//! Output of a calculation: its lines, and what it says besides.

use std::io::{BufRead, Read};
use std::process::ExitStatus;

use tidegate_api::error::Problem;

use super::{Line, Results, problem, reason};

/// Longest line that is read, in bytes: a page of a thousand VMs has some 10 MB.
const LINE_MAX: u64 = 64 << 20;
/// Longest text that is kept of what is said besides, in bytes.
const LAST_MAX: usize = 500;

/// Output of a process up to its end.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Results, or a reason why there are none; `None` if it has written neither.
    told: Option<Result<Results, Problem>>,
    /// Last line that is none of the protocol.
    last: String,
    is_over_long: bool,
}

/// Reads all lines; calls `progress` with each report of progress.
pub(super) fn read(mut from: impl BufRead, progress: impl Fn(f64, String)) -> Output {
    let mut output = Output::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut from).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return output,
            Ok(n) if n as u64 == LINE_MAX => {
                output.is_over_long = true;
                return output;
            }
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Progress(done, step)) => progress(done.clamp(0.0, 1.0), step),
            Ok(Line::Done(results)) => output.told = Some(Ok(results)),
            Ok(Line::Problem(problem)) => output.told = Some(Err(problem)),
            Err(_) => output.note(&String::from_utf8_lossy(&line)),
        }
    }
}

impl Output {
    /// Returns true if a line was too long to be read; the rest was not read.
    pub(super) fn is_over_long(&self) -> bool {
        self.is_over_long
    }

    /// Keeps a line that is none of the protocol.
    fn note(&mut self, line: &str) {
        let line = line.trim();
        if !line.is_empty() {
            self.last = line.chars().take(LAST_MAX).collect();
        }
    }

    /// Returns the results of a process that has ended with `status`.
    pub(super) fn result(self, status: ExitStatus) -> Result<Results, Problem> {
        match self.told {
            _ if self.is_over_long => Err(problem("its results are too large".to_owned())),
            Some(told) => told,
            None => Err(reason(status, &self.last)),
        }
    }
}
