//! A schedule in the words that it is read from.

use serde_json::{Map, Value, json};

use super::when::time_word;
use super::{Days, Entry, Schedule, When};

impl Schedule {
    /// Its entries as `schedule` of an objective has them.
    pub fn words(&self) -> Vec<Value> {
        self.entries.iter().map(Entry::words).collect()
    }
}

impl Entry {
    /// As it is written.
    pub fn words(&self) -> Value {
        let mut words = when_words(&self.when);
        if self.force {
            words.insert("force".to_owned(), json!(true));
        }
        words.extend(self.change.clone());
        words.into()
    }

    /// What it changes, as it is written.
    pub fn change(&self) -> &Map<String, Value> {
        &self.change
    }
}

/// When an entry holds, as it is written.
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
