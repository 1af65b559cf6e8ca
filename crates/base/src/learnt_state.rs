//! State that a controller has learnt of a VM, or an engine of its device, as bytes.
//!
//! The daemon stores it across restarts. A [`Blob`] carries the name of the component that wrote it
//! and that component's format version. Only the same component reads it, field by field. Bytes of
//! another component or version, and bytes that are cut short, are refused:
//!
//! ```
//! use tidegate_base::learnt_state::{Blob, BlobError};
//!
//! let mut blob = Blob::new("thermostat", 1);
//! blob.push_u64(18).push_f64(0.5);
//!
//! let blob = Blob::from_bytes(blob.as_bytes().to_vec());
//! let mut fields = blob.fields("thermostat", 1)?;
//! assert_eq!((fields.u64()?, fields.f64()?), (18, 0.5));
//! fields.end()?;
//!
//! let other = blob.fields("barometer", 1).map(drop);
//! assert_eq!(other.unwrap_err().to_string(), "learnt by thermostat, not by barometer");
//! # Ok::<(), BlobError>(())
//! ```
//!
//! ```text
//!   format: 1 byte   length of the name: 1 byte   name   version: 2 bytes   fields
//! ```
//!
//! Numbers are little-endian, floats their bits.

/// First byte of every blob: version of the layout described in the module's documentation.
const FORMAT: u8 = 1;

/// Learnt state as bytes, in the layout that the module's documentation describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob(Vec<u8>);

/// Reason for refusing a blob; the reader's state is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlobError {
    /// The bytes do not have a blob's layout; the reason.
    #[error("not stored learnt state: {0}")]
    Foreign(&'static str),
    /// Another component wrote the blob.
    #[error("learnt by {found}, not by {expected}")]
    Part {
        /// Name of the component that wrote the blob.
        found: String,
        /// Name of the component that reads it.
        expected: &'static str,
    },
    /// The component wrote the blob in another version of its format.
    #[error("learnt by {part} in version {found}, which this one does not read; it writes {known}")]
    Version {
        /// Name of the component.
        part: &'static str,
        /// Version of the blob.
        found: u16,
        /// Version that the component reads and writes.
        known: u16,
    },
    /// The blob has fewer or more bytes than its fields need.
    #[error("wrong length: shorter or longer than its fields")]
    Length,
    /// The value of a field is out of range.
    #[error("{what} is {value}, which cannot be")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Value in the blob.
        value: String,
    },
    /// The VM had another objective when the state was learnt.
    #[error("learnt under another objective")]
    Objective,
    /// No controller of the policy in force learns, or none learns of this VM; the reason.
    #[error("nothing is learnt here: {0}")]
    Unwanted(&'static str),
}

impl Blob {
    /// Creates a blob without fields, written by the component `part` in its format `version`.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    pub fn new(part: &str, version: u16) -> Blob {
        let length = u8::try_from(part.len()).expect("names of components are short");
        let mut bytes = vec![FORMAT, length];
        bytes.extend_from_slice(part.as_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
        Blob(bytes)
    }

    /// Wraps stored bytes without checking them; [`Blob::fields`] checks them.
    pub fn from_bytes(bytes: Vec<u8>) -> Blob {
        Blob(bytes)
    }

    /// Serialized bytes, in the layout that the module's documentation describes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Name of the component that wrote the blob; `None` if the bytes are not a blob.
    pub fn part(&self) -> Option<&str> {
        let (&[format, length], rest) = self.0.split_first_chunk()?;
        let name = rest.get(..length.into()).filter(|_| format == FORMAT)?;
        core::str::from_utf8(name).ok()
    }

    /// Appends an integer field.
    pub fn push_u64(&mut self, value: u64) -> &mut Blob {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a float field, by its bits.
    pub fn push_f64(&mut self, value: f64) -> &mut Blob {
        self.push_u64(value.to_bits())
    }

    /// Returns a reader of the fields, in the order in which they were appended.
    ///
    /// # Errors
    /// If the bytes are not a blob, or `part` and `version` differ from those that it carries.
    pub fn fields(&self, part: &'static str, version: u16) -> Result<Fields<'_>, BlobError> {
        let (&format, rest) = (self.0.split_first()).ok_or(BlobError::Foreign("no bytes"))?;
        if format != FORMAT {
            return Err(BlobError::Foreign("another format"));
        }
        // One byte of length: names of components are short.
        let (&length, rest) = rest.split_first().ok_or(BlobError::Length)?;
        let (name, rest) = (rest.split_at_checked(length.into())).ok_or(BlobError::Length)?;
        // Names come first, so that state of another component is refused before its version is
        // read.
        if name != part.as_bytes() {
            return Err(BlobError::Part {
                found: String::from_utf8_lossy(name).into_owned(),
                expected: part,
            });
        }
        let (found, fields) = rest.split_first_chunk().ok_or(BlobError::Length)?;
        match u16::from_le_bytes(*found) {
            found if found == version => Ok(Fields(fields)),
            found => Err(BlobError::Version {
                part,
                found,
                known: version,
            }),
        }
    }
}

/// Reader of the fields of a blob that have not been read yet.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Reads an integer.
    ///
    /// # Errors
    /// [`BlobError::Length`] at the end of the blob.
    pub fn u64(&mut self) -> Result<u64, BlobError> {
        let (value, rest) = self.0.split_first_chunk().ok_or(BlobError::Length)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// Reads an integer and checks its range; `what` names the field in the error.
    ///
    /// # Errors
    /// [`BlobError::Length`] at the end of the blob, [`BlobError::Value`] outside the range.
    pub fn u64_in(
        &mut self,
        what: &'static str,
        range: core::ops::RangeInclusive<u64>,
    ) -> Result<u64, BlobError> {
        let value = self.u64()?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(BlobError::Value {
                what,
                value: value.to_string(),
            })
        }
    }

    /// Reads a float, which may also be NaN, infinite or negative.
    ///
    /// # Errors
    /// [`BlobError::Length`] at the end of the blob.
    pub fn f64(&mut self) -> Result<f64, BlobError> {
        Ok(f64::from_bits(self.u64()?))
    }

    /// Reads a float and checks its range, which excludes NaN; `what` names the field in the error.
    ///
    /// # Errors
    /// [`BlobError::Length`] at the end of the blob, [`BlobError::Value`] outside the range.
    pub fn f64_in(
        &mut self,
        what: &'static str,
        range: core::ops::RangeInclusive<f64>,
    ) -> Result<f64, BlobError> {
        let value = self.f64()?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(BlobError::Value {
                what,
                value: value.to_string(),
            })
        }
    }

    /// Checks that all fields have been read.
    ///
    /// # Errors
    /// [`BlobError::Length`] if bytes are left.
    pub fn end(self) -> Result<(), BlobError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(BlobError::Length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_blobs_are_refused_at_every_length() {
        let mut blob = Blob::new("thermostat", 258);
        blob.push_u64(u64::MAX - 1).push_f64(-0.0);
        let read = |bytes: &[u8]| {
            let blob = Blob::from_bytes(bytes.to_vec());
            let mut fields = blob.fields("thermostat", 258)?;
            let read = (fields.u64()?, fields.f64()?.to_bits());
            fields.end()?;
            Ok::<_, BlobError>(read)
        };
        assert_eq!(blob.part(), Some("thermostat"));
        let whole = blob.as_bytes();
        assert_eq!(read(whole), Ok((u64::MAX - 1, (-0.0_f64).to_bits())));
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(read(&[whole, &[0]].concat()), Err(BlobError::Length));
    }

    #[test]
    fn another_version_and_impossible_values_are_named() {
        let mut blob = Blob::new("thermostat", 2);
        blob.push_f64(f64::NAN).push_f64(7.0);
        let error = blob.fields("thermostat", 1).map(drop).unwrap_err();
        let (found, known) = (2, 1);
        let part = "thermostat";
        assert_eq!(error, BlobError::Version { part, found, known });
        let mut fields = blob.fields("thermostat", 2).expect("its own");
        let error = fields.f64_in("warmth", 0.0..=9.0).unwrap_err();
        assert_eq!(error.to_string(), "warmth is NaN, which cannot be");
        assert_eq!(fields.f64_in("warmth", 0.0..=9.0), Ok(7.0));
    }
}
