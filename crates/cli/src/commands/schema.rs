//! `tidegate schema`: the JSON Schema of the configuration.

use anyhow::Result;
use tidegate_server::config;

use crate::output::Output;

/// Prints the schema, which is JSON whatever format is asked for.
pub(super) fn run(out: Output) -> Result<()> {
    out.json(&config::schema())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn the_schema_is_asked_for_without_arguments_and_names_its_dialect() {
        for line in [
            &["tidegate", "schema"][..],
            &["tidegate", "schema", "-o", "json"],
        ] {
            let args = Args::try_parse_from(line).expect("good");
            assert!(matches!(args.command, Command::Schema));
        }
        assert!(Args::try_parse_from(["tidegate", "schema", "file"]).is_err());
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        assert_eq!(config::schema()["$schema"], dialect);
    }
}
