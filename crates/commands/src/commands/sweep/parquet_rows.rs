//! Rows of a sweep as a Parquet file: the columns of the CSV with their types, uncompressed.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use parquet::basic::{IntType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::per_seed::{self, Kind};
use crate::results::Key;

/// Returns the rows of all results.
///
/// # Errors
/// If a figure is none.
pub(super) fn encode(results: &[(&Key, &Value)]) -> Result<Vec<u8>> {
    let rows: Vec<Vec<String>> = per_seed::rows(results).map(|row| row.cells()).collect();
    let columns: Vec<&str> = per_seed::columns().collect();
    let schema = schema(&columns).context("cannot describe the columns")?;
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut group = writer.next_row_group()?;
    for (place, name) in columns.iter().enumerate() {
        let cells = rows.iter().map(|row| row[place].as_str());
        let written = match per_seed::kind_of(name) {
            Kind::Word => column::<ByteArrayType>(&mut group, cells, |text| Ok(text.into())),
            Kind::Whole => column::<Int64Type>(&mut group, cells, |text| {
                let whole: u64 = text.parse()?;
                // The column is unsigned, in the same bits.
                Ok(whole.cast_signed())
            }),
            Kind::Figure => column::<DoubleType>(&mut group, cells, |text| Ok(text.parse()?)),
        };
        written.with_context(|| format!("column {name}"))?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// Returns the types of the columns. Each may be without a value, as cells of the CSV may be empty.
fn schema(columns: &[&str]) -> Result<TypePtr, ParquetError> {
    let field = |name: &&str| {
        let (physical, logical) = match per_seed::kind_of(name) {
            Kind::Word => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (
                Physical::INT64,
                Some(LogicalType::Integer(IntType {
                    bit_width: 64,
                    is_signed: false,
                })),
            ),
            Kind::Figure => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("sweep").with_fields(fields);
    schema.build().map(Arc::new)
}

/// Writes the next column; an empty cell is no value.
fn column<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    cells: impl Iterator<Item = &'a str>,
    parse: fn(&'a str) -> Result<T::T>,
) -> Result<()> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(!cell.is_empty()));
        if !cell.is_empty() {
            let value = parse(cell).with_context(|| format!("{cell:?}"))?;
            values.push(value);
        }
    }
    let mut column = group.next_column()?.context("there is one more")?;
    (column.typed::<T>()).write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let key = Key {
            scenario: "s.toml".to_owned(),
            digest: String::new(),
            policy: "mclock (cost_size = 1 MiB)".to_owned(),
            scheduler: None,
            seed: u64::MAX,
        };
        let kept = json!({ "kept": true, "judged_s": 9, "missed_s": 1 });
        let vm = json!({
            "name": "größe, \"x\"", "device": "nvme0", "iops": 120.5, "errors": 3,
            "latency_p99_ns": 7_000_000_u64, "promises": [kept],
        });
        let report = json!({ "vms": [vm, { "name": "idle", "latency_p99_ns": null }] });
        let bytes = encode(&[(&key, &report)]).expect("it is written");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.parquet");
        std::fs::write(&path, bytes).expect("it is written");
        let file = std::fs::File::open(&path).expect("it is there");
        let reader = SerializedFileReader::new(file).expect("a Parquet file");
        let rows = reader.get_row_iter(None).expect("rows");
        let rows: Vec<Vec<(String, Field)>> =
            rows.map(|row| row.expect("a row").into_columns()).collect();
        let names: Vec<&str> = rows[0].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, per_seed::columns().collect::<Vec<_>>());
        let of = |row: usize, name: &str| {
            let mut all = rows[row].iter();
            all.find(|it| it.0 == name).expect("a column").1.clone()
        };
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(rows.len(), 2);
        assert_eq!(of(0, "policy"), text("mclock (cost_size = 1 MiB)"));
        assert_eq!(of(0, "vm"), text("größe, \"x\""));
        assert_eq!(of(0, "scheduler"), Field::Null);
        assert_eq!(of(0, "seed"), Field::ULong(u64::MAX));
        assert_eq!(of(0, "iops"), Field::Double(120.5));
        assert_eq!(of(0, "latency_p99_ns"), Field::ULong(7_000_000));
        assert_eq!(of(0, "promises_kept"), Field::ULong(1));
        assert_eq!(of(1, "latency_p99_ns"), Field::Null);
        assert_eq!(of(1, "errors"), Field::Null);
    }
}
