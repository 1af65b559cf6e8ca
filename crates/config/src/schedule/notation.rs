//! Conversion of a schedule back into the keys of a configuration or of the API's JSON.

use serde_json::{Map, Value, json};

use super::entry_times::time_word;
use super::{Days, Entry, Schedule, When};

impl Schedule {
    /// Returns the entries as JSON tables, as the key `schedule` of an objective takes them.
    pub fn entries_to_json(&self) -> Vec<Value> {
        self.entries.iter().map(Entry::to_json).collect()
    }
}

impl Entry {
    /// Returns the entry as a JSON table: its times, `force` if set, and the change.
    pub fn to_json(&self) -> Value {
        let mut table = times_to_json(&self.when);
        if self.force {
            table.insert("force".to_owned(), json!(true));
        }
        table.extend(self.change.clone());
        table.into()
    }

    /// Returns the change of the objective as written.
    pub fn change(&self) -> &Map<String, Value> {
        &self.change
    }
}

/// Returns the keys `at`, `from`, `until` and `days` of an entry, without those at their defaults.
fn times_to_json(when: &When) -> Map<String, Value> {
    let mut table = Map::new();
    let mut put = |key: &str, value: Value| _ = table.insert(key.to_owned(), value);
    match when {
        When::Weekly { days, from, until } => {
            put("from", time_word(*from).into());
            put("until", time_word(*until).into());
            if *days != Days::ALL {
                put("days", days.names().collect::<Vec<_>>().into());
            }
        }
        When::Once { at, until } => {
            let iso_8601 =
                |at: &jiff::civil::DateTime| format!("{}T{}", at.date(), time_word(at.time()));
            put("at", iso_8601(at).into());
            if let Some(until) = until {
                put("until", iso_8601(until).into());
            }
        }
    }
    table
}
