//! Validation of a workload against the ranges that its fields' documentation states.

mod guest;

use super::{
    COPIES_MAX, Flow, IODEPTH_MAX, Mix, Placement, REQUEST_MAX, SECTOR, SIZES_MAX, Sizes, Workload,
};
use crate::error::{Findings, WorkloadErrors};
use crate::guest::Files;
use crate::replay::{Mode, Replay};
use tidegate_core::time::Nanos;
use tidegate_units::human::bytes_and_count;

impl Workload {
    /// Checks all ranges that the fields' documentation states. [`Workload::region`] checks that
    /// the workload fits a disk.
    ///
    /// # Errors
    /// All mistakes, with the fields' names.
    pub fn check(&self) -> Result<(), WorkloadErrors> {
        let checked = Findings::collect(|findings| {
            self.check_requests(findings);
            self.check_extent(findings);
            self.check_guest(findings);
            findings.within("flow", |findings| self.flow.check_into(findings));
            if let Some(replay) = &self.replay {
                findings.within("replay", |findings| self.check_replay(replay, findings));
            }
            if self.deadline.is_some() {
                findings.within("deadline", |findings| self.check_deadline(findings));
            }
        });
        checked.map_err(|list| WorkloadErrors {
            workload: self.name.clone(),
            list,
        })
    }

    fn check_requests(&self, findings: &mut Findings) {
        findings.expect(!self.name.is_empty(), "name", "empty", "any text");
        if let Mix::ReadWrite { read_percent } = self.rw.mix {
            let fine = read_percent <= 100;
            findings.expect(fine, "rw.mix.read_percent", read_percent, "0 to 100");
        }
        for (name, sizes) in ["sizes.read", "sizes.write", "sizes.trim"]
            .into_iter()
            .zip(&self.sizes)
        {
            findings.within(name, |findings| sizes.check_into(findings));
        }
        findings.within("placement", |findings| match self.placement {
            Placement::Uniform => {}
            Placement::Shuffle => findings.expect(
                // A sequential workload does not use its placement.
                !self.rw.random || self.single_size().is_some(),
                "",
                "shuffle with requests of several sizes",
                "uniform, or requests of one size",
            ),
            Placement::Zipf { theta } => {
                let fine = theta > 0.0 && theta != 1.0 && theta <= 10.0;
                findings.expect(fine, "theta", theta, "above 0 up to 10, and not 1");
            }
            Placement::Pareto { h } => {
                findings.expect(h > 0.0 && h < 1.0, "h", h, "above 0 and below 1");
            }
            Placement::Normal {
                deviation_percent: deviation,
            } => {
                let fine = deviation > 0.0 && deviation <= 100.0;
                let allowed = "above 0 up to 100";
                findings.expect(fine, "deviation_percent", deviation, allowed);
            }
        });
    }

    /// Checks that nothing contradicts the trace, which determines the requests and their times.
    fn check_replay(&self, replay: &Replay, findings: &mut Findings) {
        replay.check_into(findings);
        let in_the_way = [
            (matches!(self.flow, Flow::Open { .. }), "arrivals"),
            (
                matches!(self.flow, Flow::Closed { think: Some(_), .. }),
                "pauses",
            ),
            (self.page_cache.is_some(), "page_cache"),
            (self.copy_to.is_some(), "copy_to"),
            (self.files != Files::ONE, "files"),
            (self.fsync != 0, "fsync"),
            (self.io_size.is_some(), "io_size"),
            (self.number_ios.is_some(), "number_ios"),
        ];
        let allowed = "a trace without arrivals, pauses, files, page_cache, copy_to, fsync, \
                       io_size and number_ios";
        findings.expect_none(&in_the_way, allowed);
        let single = self.sizes.iter().all(|sizes| sizes.single().is_some());
        let allowed = "one size each of reads, writes and discards with a trace";
        findings.expect(single, "sizes", "several", allowed);
    }

    /// Checks that a deadline covers a known amount of data, and all that its VM requests.
    fn check_deadline(&self, findings: &mut Findings) {
        let allowed = "1 with a deadline";
        findings.expect(self.numjobs == 1, "numjobs", self.numjobs, allowed);
        match &self.replay {
            Some(replay) => {
                let fine = replay.mode == Mode::NextWhenDone;
                let allowed = "mode = \"next-when-done\", one request after the other";
                findings.expect(fine, "", "combined with a timed replay", allowed);
            }
            None => {
                let allowed = "with a deadline, the bytes that are to be done by then";
                findings.expect(self.io_size.is_some(), "io_size", "missing", allowed);
                // A page cache or a copy moves other bytes than the workload requests, so that the
                // amount is not known.
                let in_the_way = [
                    (self.rw.mix.has_discards(), "discards"),
                    (self.page_cache.is_some(), "page_cache"),
                    (self.copy_to.is_some(), "copy_to"),
                ];
                let allowed = "reads and writes without page_cache and copy_to";
                findings.expect_none(&in_the_way, allowed);
            }
        }
    }

    fn check_extent(&self, findings: &mut Findings) {
        let sectors = |bytes: u64| bytes.is_multiple_of(SECTOR);
        let bytes = "a multiple of 512 bytes";
        findings.expect(sectors(self.offset), "offset", self.offset, bytes);
        let step = self.offset_increment;
        findings.expect(sectors(step), "offset_increment", step, bytes);
        if let Some(size) = self.size {
            let fine = size > 0 && sectors(size);
            findings.expect(fine, "size", size, "a multiple of 512 bytes above 0");
        }
        let copies = self.numjobs;
        let fine = (1..=COPIES_MAX).contains(&copies);
        findings.expect(fine, "numjobs", copies, "1 to 65536");
        findings.expect(self.io_size != Some(0), "io_size", 0, "at least 1");
        findings.expect(self.number_ios != Some(0), "number_ios", 0, "at least 1");
        let fine = self.runtime != Some(Nanos::ZERO);
        findings.expect(fine, "runtime", Nanos::ZERO, "above 0");
    }
}

impl Sizes {
    fn check_into(&self, findings: &mut Findings) {
        let n = self.0.len();
        let fine = (1..=SIZES_MAX).contains(&n);
        findings.expect(fine, "", format_args!("{n} sizes"), "1 to 4096 of them");
        for share in &self.0 {
            let bytes = u64::from(share.bytes);
            findings.expect(
                bytes.is_multiple_of(SECTOR) && (1..=REQUEST_MAX).contains(&share.bytes),
                "",
                bytes_and_count(bytes),
                "a multiple of 512 bytes up to 1 GiB",
            );
            let found = format!("{} with weight 0", bytes_and_count(bytes));
            findings.expect(share.weight > 0, "", found, "weights of at least 1");
        }
    }
}

impl Flow {
    fn check_into(&self, findings: &mut Findings) {
        let (Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. }) = *self;
        let fine = (1..=IODEPTH_MAX).contains(&iodepth);
        findings.expect(fine, "iodepth", iodepth, "1 to 65536");
        match self {
            Flow::Closed { think: None, .. } => {}
            Flow::Closed {
                think: Some(think), ..
            } => findings.within("think", |findings| {
                findings.expect(think.blocks > 0, "blocks", 0, "at least 1");
                findings.within("time", |findings| think.time.check_into(findings));
            }),
            Flow::Open { arrivals, .. } => {
                findings.within("arrivals", |findings| arrivals.check_into(findings));
            }
        }
    }
}
