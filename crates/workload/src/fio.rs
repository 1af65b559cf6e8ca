//! Reader of fio job files.
//!
//! [`parse`] reads an unmodified job file and returns its sections, each with the options of the
//! `[global]` sections before it. The options have the meaning of fio's documentation (HOWTO, fio
//! 3.33 and later). `docs/fio-jobs.md` lists them and states where a simulated disk makes a
//! difference. In short:
//!
//! - Options that determine *which requests are issued when* are read, or refused with the reason.
//! - Options about *how fio does its I/O and reports it* are ignored, with a note that says why.
//! - Values that fio would silently misread (`bs=1.5k`, `runtime=1min`) are errors.
//!
//! As in fio, a job without `time_based` ends after as many bytes as its region has. Rates are open
//! loops: a request is issued when it is due, and its latency counts from then.

mod option_list;
mod rates;
mod report;
mod requests;
mod section;
mod section_options;
mod tokenizer;
mod value;

pub use report::{FioErrors, Kind, Place, Remark};
pub use section::Section;

use report::Remarks;
use section_options::Words;
use std::collections::BTreeMap;

/// Content of a job file.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFile {
    /// Jobs in the order of the file, at least one, with different names.
    pub sections: Vec<Section>,
    /// Notes in the order of the file: interpretations of options, and options that are ignored.
    pub notes: Vec<Remark>,
}

/// Parses the text of a job file; `file` is its name in messages.
///
/// With `lenient`, unknown and unsupported options are ignored with a warning among the notes.
/// Values that cannot be read are errors all the same.
///
/// # Errors
/// All mistakes in the file, each with its line.
pub fn parse(text: &str, file: &str, lenient: bool) -> Result<JobFile, FioErrors> {
    let mut remarks = Remarks::default();
    let parts = tokenizer::parts(text, &mut remarks);
    // Options of [global] apply to the sections behind it only, as in fio: hence the order of the
    // loop.
    let mut global = BTreeMap::new();
    let mut sections: Vec<Section> = vec![];
    for part in &parts {
        if part.is_global() {
            if part.name != "global" {
                let what = "counts as [global]: fio looks at these letters only";
                remarks.add(Kind::Note, (part.name, ""), &part.span, what, None);
            }
            section_options::collect(part, lenient, &mut global, &mut remarks);
            continue;
        }
        if let Some(first) = sections.iter().find(|section| section.name == part.name) {
            let what = format!("the section at line {} has the same name", first.line);
            let help = Some("each section is a VM; `numjobs` makes copies of a job".to_owned());
            remarks.add(Kind::Error, (part.name, ""), &part.span, what, help);
        }
        // A copy: what a section overrides must not reach the next one.
        let mut own = global.clone();
        section_options::collect(part, lenient, &mut own, &mut remarks);
        let line = report::line_of(text, part.span.start);
        let mut words = Words::new(own, &mut remarks);
        let section = section::build(part.name, line, &mut words, &sections);
        // A section with errors is kept: the ones behind it need its name and its end.
        sections.push(section);
    }
    if sections.is_empty() {
        let what = "no job section in this file";
        let help = Some("a section such as [job] makes one".to_owned());
        remarks.add(Kind::Error, ("", ""), &(0..0), what, help);
    }
    let (errors, notes): (Vec<_>, Vec<_>) = remarks
        .located(file, text)
        .into_iter()
        .partition(|remark| remark.kind == Kind::Error);
    if errors.is_empty() {
        Ok(JobFile { sections, notes })
    } else {
        Err(FioErrors(errors))
    }
}

#[cfg(test)]
mod tests;
