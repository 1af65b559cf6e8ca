//! Conversion of a schedule back into the document's notation.

use serde_json::{Map, Value, json};

use super::entry_times::time_word;
use super::{Days, Entry, Schedule, When};

impl Schedule {
    /// Returns the entries as `schedule` of an objective takes them.
    pub fn words(&self) -> Vec<Value> {
        self.entries.iter().map(Entry::words).collect()
    }
}

impl Entry {
    /// Returns the entry as a table of a document.
    pub fn words(&self) -> Value {
        let mut words = when_words(&self.when);
        if self.force {
            words.insert("force".to_owned(), json!(true));
        }
        words.extend(self.change.clone());
        words.into()
    }

    /// Returns the change of the objective as written.
    pub fn change(&self) -> &Map<String, Value> {
        &self.change
    }
}

/// Returns the keys of an entry's times.
fn when_words(when: &When) -> Map<String, Value> {
    let mut words = Map::new();
    let mut put = |key: &str, value: Value| _ = words.insert(key.to_owned(), value);
    match when {
        When::Weekly { days, from, until } => {
            put("from", time_word(*from).into());
            put("until", time_word(*until).into());
            if *days != Days::ALL {
                put("days", days.names().collect::<Vec<_>>().into());
            }
        }
        When::Once { at, until } => {
            let word =
                |at: &jiff::civil::DateTime| format!("{}T{}", at.date(), time_word(at.time()));
            put("at", word(at).into());
            if let Some(until) = until {
                put("until", word(until).into());
            }
        }
    }
    words
}
