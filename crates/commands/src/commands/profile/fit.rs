//! `tidegate profile fit`: makes a device model of a recording.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use tidegate_config::document;
use tidegate_device::catalogue;
use tidegate_profile::fit::{self, Description, Errors, Fit, Kind, Options};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, count, duration, percent};

use crate::args::FitArgs;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::progress::DelayedBar;
use crate::{atomic_file, recording_file};

/// I/Os that are simulated for each second of the budget: about what a core of an ordinary machine
/// does.
const IOS_PER_S: u64 = 250_000;
/// Part of the variance that is left unexplained, from which a kind of I/Os is named.
const UNEXPLAINED: f64 = 0.25;

pub(super) fn run(args: &FitArgs, out: Output) -> Result<()> {
    let recording = recording_file::read(&args.recording, args.allow_gaps)?;
    let device = &recording.header.device.name;
    let file = args.results.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{device}.model.toml")));
    // Checked first, rather than after a fit of a minute.
    atomic_file::regular(&file)?;
    let starts = match &args.device {
        Some(name) => vec![(name.clone(), start(name)?)],
        None => fit::catalogue_starts(),
    };
    let budget = u128::from(args.budget.0) * u128::from(IOS_PER_S) / 1_000_000_000;
    let options = Options {
        starts,
        budget: u64::try_from(budget).unwrap_or(u64::MAX),
    };
    let mut bar = DelayedBar::new(options.budget, "fitting");
    let fitted = fit::fit(&recording, &options, &mut |simulated| {
        bar.set(simulated.min(options.budget), || count(simulated));
    });
    drop(bar);
    let mut fitted =
        fitted.map_err(|error| Problem::new(format!("{}: {error}", args.recording.display())))?;
    let description = format!(
        "Fitted to a recording of {device}, from {}: {} of {} I/Os within 10 %",
        fitted.start,
        percent(fitted.after.close, 1.0),
        count(fitted.after.ios as u64)
    );
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    fitted.description.rename(&name, &description);
    atomic_file::write(&file, fitted.description.to_toml().as_bytes())?;
    let answer = Answer::new(&fitted, &file);
    if out.is_json() {
        out.json(&answer)?;
    } else {
        out.text(&answer.text(out))?;
    }
    output::tell(format_args!(
        "written to {0}; use it with `tidegate whatif {1} --device {0}`",
        file.display(),
        args.recording.display()
    ));
    Ok(())
}

/// Returns the description to begin with.
fn start(name: &str) -> Result<Description> {
    let wrong = |what: String| Problem::new(what).at("--device");
    let text = match catalogue::text(name) {
        Some(text) => text.to_owned(),
        None => {
            // Read as a device first, whose errors say what is wrong.
            crate::simulate::find_model(name)?;
            document::read_text(Path::new(name)).map_err(wrong)?
        }
    };
    let found = Description::parse(&text).filter(|start| !start.params().is_empty());
    let wrong = || {
        let problem = wrong(format!(
            "{name} is neither one hard disk nor one flash disk"
        ));
        problem.help("give a model with a table [hdd] or [ssd]")
    };
    Ok(found.ok_or_else(wrong)?)
}

/// Result of a fit.
#[derive(Serialize)]
struct Answer<'a> {
    file: String,
    start: &'a str,
    fitted_ios: usize,
    budget_exhausted: bool,
    changed: Vec<Changed<'a>>,
    before: &'a Errors,
    after: &'a Errors,
    kinds: Vec<OfKind<'a>>,
    unknown_ios: usize,
    /// True if the angle of a platter delays I/Os.
    rotational: bool,
}

#[derive(Serialize)]
struct Changed<'a> {
    figure: &'static str,
    before: &'a str,
    after: &'a str,
}

#[derive(Serialize)]
struct OfKind<'a> {
    #[serde(flatten)]
    kind: Kind,
    #[serde(flatten)]
    errors: &'a Errors,
}

impl<'a> Answer<'a> {
    fn new(fitted: &'a Fit, file: &Path) -> Answer<'a> {
        let changed = fitted.changed.iter().map(|(param, before, after)| Changed {
            figure: param.path,
            before,
            after,
        });
        let kinds = fitted.kinds.iter().map(|(kind, errors)| OfKind {
            kind: *kind,
            errors,
        });
        Answer {
            file: file.display().to_string(),
            start: &fitted.start,
            fitted_ios: fitted.fitted,
            budget_exhausted: fitted.exhausted,
            changed: changed.collect(),
            before: &fitted.before,
            after: &fitted.after,
            kinds: kinds.collect(),
            unknown_ios: fitted.unknown,
            rotational: fitted.is_rotational(),
        }
    }

    fn text(&self, out: Output) -> String {
        let style = out.style();
        let mut text = format!(
            "Began with {}, fitted to {} I/Os; errors are those of the {} I/Os behind them.\n\n",
            self.start,
            count(self.fitted_ios as u64),
            count(self.after.ios as u64)
        );
        if !self.changed.is_empty() {
            let mut table = Table::new([
                ("FIGURE", Align::Left),
                ("BEFORE", Align::Right),
                ("FITTED", Align::Right),
            ]);
            for changed in &self.changed {
                table.row([changed.figure, changed.before, changed.after]);
            }
            text += &(table.render(style) + "\n");
        }
        text += &self.errors().render(style);
        text + "\n" + &self.limits()
    }

    fn errors(&self) -> Table {
        let columns = [
            "I/OS",
            "WITHIN 10 %",
            "ERROR P50",
            "P90",
            "P99",
            "TIME P50",
            "MODEL",
            "TIME P99",
            "MODEL",
        ];
        let columns = columns.map(|title| (title, Align::Right));
        let mut table = Table::new([("KIND", Align::Left)].into_iter().chain(columns));
        let mut row = |name: &str, errors: &Errors| {
            let part = |part: f64| percent(part, 1.0);
            table.row([
                Cell::from(name).tone(Tone::Strong),
                count(errors.ios as u64).into(),
                part(errors.close).into(),
                part(errors.p50).into(),
                part(errors.p90).into(),
                part(errors.p99).into(),
                duration(errors.recorded_p50_ns).into(),
                duration(errors.model_p50_ns).into(),
                duration(errors.recorded_p99_ns).into(),
                duration(errors.model_p99_ns).into(),
            ]);
        };
        row(&format!("all, {}", self.start), self.before);
        row("all, fitted", self.after);
        for of in &self.kinds {
            row(&kind_text(&of.kind), of.errors);
        }
        table
    }

    /// Returns what the model cannot explain, a line for each.
    fn limits(&self) -> String {
        let mut text = format!(
            "{} of the I/Os are within 10 % of their recorded time.\n",
            percent(self.after.close, 1.0)
        );
        for of in &self.kinds {
            let errors = of.errors;
            if errors.unexplained >= UNEXPLAINED && errors.close < 0.9 {
                text += &format!(
                    "Not explained: {} of the variance of {}.\n",
                    percent(errors.unexplained, 1.0),
                    kind_text(&of.kind)
                );
            }
        }
        if self.rotational && self.after.close < 0.9 {
            text += "The angle of the platter at each I/O is not known: judge a hard disk by TIME \
                     and MODEL.\n";
        }
        if self.after.stalls > 0 {
            text += &format!(
                "Not explained: {} I/Os that took more than ten times as long as in the model.\n",
                count(self.after.stalls as u64)
            );
        }
        if self.unknown_ios > 0 {
            text += &format!(
                "Not judged: {} I/Os that may have been split, whose times with the device the \
                 recording does not tell.\n",
                count(self.unknown_ios as u64)
            );
        }
        if self.budget_exhausted {
            text += "The budget ended the fit; a larger --budget may come closer.\n";
        }
        text
    }
}

/// Returns a kind in words, such as `random read up to 4 KiB`.
fn kind_text(kind: &Kind) -> String {
    let op = kind.op;
    match (op, kind.sequential) {
        ("flush", _) => op.to_owned(),
        (_, true) => format!("sequential {op} up to {}", bytes(kind.up_to_bytes.into())),
        (_, false) => format!("random {op} up to {}", bytes(kind.up_to_bytes.into())),
    }
}
