//! File for the rows of a sweep, in the format that its name ends in: `.parquet`, or CSV.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

#[cfg(feature = "parquet")]
use super::parquet_rows;
use super::per_seed;
use crate::atomic_file::NewFile;
#[cfg(not(feature = "parquet"))]
use crate::problem::Problem;
use crate::results::Key;

/// Function that makes the content of a file.
type Encode = fn(&[(&Key, &Value)]) -> Result<Vec<u8>>;

/// File that is written at the end of a sweep.
pub(super) struct RowFile {
    file: NewFile,
    encode: Encode,
}

impl RowFile {
    /// Creates an empty file, which is not in its place yet.
    ///
    /// # Errors
    /// If the file cannot be written, or this build cannot write its format.
    pub(super) fn create(path: &Path) -> Result<RowFile> {
        let is_parquet = (path.extension()).is_some_and(|it| it.eq_ignore_ascii_case("parquet"));
        let encode: Encode = if is_parquet {
            parquet_encoder(path)?
        } else {
            |results| Ok(per_seed::csv(results).into_bytes())
        };
        Ok(RowFile {
            file: NewFile::create(path)?,
            encode,
        })
    }

    /// Writes the rows of all results.
    pub(super) fn finish(self, results: &[(&Key, &Value)]) -> Result<()> {
        let bytes = (self.encode)(results)?;
        self.file.finish(&bytes)
    }
}

#[cfg(feature = "parquet")]
fn parquet_encoder(_: &Path) -> Result<Encode> {
    Ok(parquet_rows::encode)
}

#[cfg(not(feature = "parquet"))]
fn parquet_encoder(path: &Path) -> Result<Encode> {
    let what = format!(
        "{}: this build of tidegate writes no Parquet",
        path.display()
    );
    let help = "use a name that ends in .csv, or build with `--features parquet`";
    Err(Problem::new(what).help(help).into())
}
