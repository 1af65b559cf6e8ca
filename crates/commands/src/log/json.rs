//! Lines of the log as JSON objects.
//!
//! ```text
//! {"time":"2026-11-28T17:05:44.021310Z","level":"warn","message":"client refused","export":"db"}
//! ```

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Keys that each line has, which no field takes.
const OWN_KEYS: [&str; 3] = ["time", "level", "message"];

/// Format of events as JSON.
pub(crate) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        writer.write_str(&fields.line(*event.metadata().level()))
    }
}

/// Returns the line of a message without fields.
pub(super) fn line(level: Level, message: &str) -> String {
    let message = json(&message);
    let others = String::new();
    Fields { message, others }.line(level)
}

/// Fields of an event, in JSON.
#[derive(Default)]
struct Fields {
    message: String,
    /// All others, each behind a comma.
    others: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Serialize) {
        let (name, value) = (field.name(), json(&value));
        if name == "message" {
            self.message = value;
            return;
        }
        // Libraries that use the crate `log` have fields for their source.
        if name.starts_with("log.") {
            return;
        }
        let mark = if OWN_KEYS.contains(&name) { "_" } else { "" };
        // Writing to a `String` cannot fail. Names of fields are words.
        let _ = write!(self.others, ",\"{name}{mark}\":{value}");
    }

    /// Returns the line, with its end.
    fn line(&self, level: Level) -> String {
        let message = if self.message.is_empty() {
            "\"\""
        } else {
            &self.message
        };
        let level = level.as_str().to_ascii_lowercase();
        format!(
            "{{\"time\":\"{:.6}\",\"level\":\"{level}\",\"message\":{message}{}}}\n",
            Timestamp::now(),
            self.others
        )
    }
}

/// Returns a value in JSON; numbers that JSON does not have are `null`.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tracing::subscriber::with_default;

    use super::*;
    use crate::args::LogFormat;
    use crate::log::Log;
    use crate::log::tests::Page;

    /// Returns the lines that `act` logs.
    fn logged(act: impl FnOnce()) -> Vec<Value> {
        let page = Page::default();
        let log = Log::to(page.clone(), LogFormat::Json).expect("a thread");
        let subscriber = tracing_subscriber::fmt()
            .event_format(Json)
            .with_writer(log.lines())
            .finish();
        with_default(subscriber, act);
        drop(log);
        let lines = page.text();
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        lines.lines().map(parse).collect()
    }

    #[test]
    fn a_line_has_time_level_message_and_fields_of_their_types() {
        let lines = logged(|| {
            tracing::warn!(
                export = "db",
                bytes = 7_u64,
                by = -1_i64,
                ratio = 0.5,
                none = f64::NAN,
                persisted = true,
                absent = None::<&str>,
                why = ?Some(3),
                level = "own",
                log.file = "mio.rs",
                "client {}", "refused"
            );
            tracing::info!(vms = 2);
        });
        let (first, second) = (&lines[0], &lines[1]);
        let time: Timestamp = first["time"]
            .as_str()
            .expect("text")
            .parse()
            .expect("a time");
        assert!(time <= Timestamp::now());
        let mut rest = first.clone();
        rest.as_object_mut().expect("an object").remove("time");
        let expected = serde_json::json!({
            "level": "warn", "message": "client refused", "export": "db", "bytes": 7, "by": -1,
            "ratio": 0.5, "none": null, "persisted": true, "why": "Some(3)", "level_": "own"
        });
        assert_eq!(rest, expected);
        assert_eq!(
            (&second["message"], &second["vms"]),
            (&"".into(), &2.into())
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_name_stays_what_it_is_and_gives_a_terminal_no_orders() {
        let hostile = "\"},\n{\"level\":\"forged\\u001b\u{1b}[31m\u{7f}\u{9b}2J\u{202e}\u{2028}txt";
        let page = Page::default();
        let log = Log::to(page.clone(), LogFormat::Json).expect("a thread");
        let subscriber = tracing_subscriber::fmt()
            .event_format(Json)
            .with_writer(log.lines())
            .finish();
        with_default(subscriber, || {
            tracing::info!(export = hostile, peer = %hostile, "refused: {hostile}");
        });
        drop(log);
        let text = page.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let orders = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}".contains(c);
        assert!(!text.contains(orders), "{text:?}");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&line["export"], &line["peer"]),
            (&hostile.into(), &hostile.into())
        );
        assert_eq!(line["message"], format!("refused: {hostile}"));
    }
}
