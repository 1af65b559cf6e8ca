//! fio's job files.
//!
//! [`parse`] reads a job file as it is and gives its jobs: a section each, with what `[global]`
//! sections before it say. The words are fio's, and mean what its documentation (HOWTO, fio
//! 3.33 and later) says they mean; `docs/workloads.md` lists them and says where a simulated
//! disk makes a difference. In short:
//!
//! - What says *which requests come when* is read, or refused with the reason.
//! - What says *how fio does its I/O and tells about it* is passed over, with a note why.
//! - What fio would silently misread (`bs=1.5k`, `runtime=1min`) is an error.
//!
//! fio's jobs end: without `time_based`, after as many bytes as their region has. Rates are
//! open loops here: a request that is due comes, and its latency counts from then.

mod known;
mod lines;
mod rates;
mod report;
mod requests;
mod section;
mod value;
mod words;

pub use report::{FioErrors, Kind, Place, Remark};
pub use section::Section;

use report::Remarks;
use std::collections::BTreeMap;
use words::Words;

/// What a job file says.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFile {
    /// The jobs, one or more, in the order of the file; their names differ.
    pub sections: Vec<Section>,
    /// How some options are taken, and which play no part, in the order of the file.
    pub notes: Vec<Remark>,
}

/// Reads a job file's text; `file` is what it is called in messages.
///
/// With `lenient`, options that are not known, or that cannot be done here, are passed over with
/// a warning among the notes. Values that cannot be read are errors all the same.
///
/// # Errors
/// Everything that is wrong with the file, each with its line.
pub fn parse(text: &str, file: &str, lenient: bool) -> Result<JobFile, FioErrors> {
    let mut remarks = Remarks::default();
    let parts = lines::parts(text, &mut remarks);
    let mut global = BTreeMap::new();
    let mut sections: Vec<Section> = vec![];
    for part in &parts {
        if part.is_global() {
            if part.name != "global" {
                let what = "counts as [global]: fio looks at these letters only";
                remarks.say(Kind::Note, (part.name, ""), &part.span, what, None);
            }
            words::collect(part, lenient, &mut global, &mut remarks);
            continue;
        }
        if let Some(first) = sections.iter().find(|section| section.name == part.name) {
            let what = format!("the section of line {} has this name, too", first.line);
            let help = Some("each section is a VM; `numjobs` makes copies of a job".to_owned());
            remarks.say(Kind::Error, (part.name, ""), &part.span, what, help);
        }
        let mut own = global.clone();
        words::collect(part, lenient, &mut own, &mut remarks);
        let line = report::line_of(text, part.span.start);
        let mut words = Words::new(own, &mut remarks);
        let section = section::build(part.name, line, &mut words, &sections);
        sections.push(section);
    }
    if sections.is_empty() {
        let what = "there is no job in this file";
        let help = Some("a section such as [job] makes one".to_owned());
        remarks.say(Kind::Error, ("", ""), &(0..0), what, help);
    }
    let (errors, notes): (Vec<_>, Vec<_>) = remarks
        .located(file, text)
        .into_iter()
        .partition(|remark| remark.kind == Kind::Error);
    match errors.is_empty() {
        true => Ok(JobFile { sections, notes }),
        false => Err(FioErrors(errors)),
    }
}

#[cfg(test)]
mod tests;
