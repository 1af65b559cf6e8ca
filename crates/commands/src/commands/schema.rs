//! `tidegate schema`: the JSON Schemas of the configuration and of scenarios.

use anyhow::Result;
use tidegate_server::config;
use tidegate_sim::scenario;
use tidegate_vcpu::scenario as vcpu;

use crate::args::SchemaOf;
use crate::output::Output;

/// Prints the schema of a document; always JSON, whatever `--output` says.
pub(super) fn run(document: SchemaOf, out: Output) -> Result<()> {
    out.json(&match document {
        SchemaOf::Configuration => config::schema(),
        SchemaOf::Scenario => scenario::schema(),
        SchemaOf::Vcpu => vcpu::schema(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn the_schema_is_the_configurations_unless_it_says_and_names_its_dialect() {
        for (line, asked) in [
            (&["tidegate", "schema"][..], SchemaOf::Configuration),
            (
                &["tidegate", "schema", "-o", "json"],
                SchemaOf::Configuration,
            ),
            (&["tidegate", "schema", "scenario"], SchemaOf::Scenario),
            (&["tidegate", "schema", "vcpu"], SchemaOf::Vcpu),
        ] {
            let args = Args::try_parse_from(line).expect("good");
            let Command::Schema { document } = args.command else {
                panic!("another command");
            };
            assert_eq!(document, asked);
        }
        assert!(Args::try_parse_from(["tidegate", "schema", "file"]).is_err());
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        for schema in [config::schema(), scenario::schema(), vcpu::schema()] {
            assert_eq!(schema["$schema"], dialect);
        }
    }
}
