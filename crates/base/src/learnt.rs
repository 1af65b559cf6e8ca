//! What a controller has learnt of a VM, or the engine of its device, as bytes that outlive the
//! engine.
//!
//! A [`Blob`] is named after the part that wrote it and has a version of that part's own. Only
//! that part reads it, field by field; bytes from anywhere else, or cut short, are refused:
//!
//! ```
//! use tidegate_base::learnt::{Blob, BlobError};
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

/// What a blob begins with.
const FORMAT: u8 = 1;

/// What a controller has learnt of a VM. See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob(Vec<u8>);

/// Why a blob was not taken over. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlobError {
    /// It does not begin like one.
    #[error("not what a controller has learnt: {0}")]
    Foreign(&'static str),
    /// Another part wrote it.
    #[error("learnt by {found}, not by {expected}")]
    Part {
        /// Who wrote it.
        found: String,
        /// Who reads it.
        expected: &'static str,
    },
    /// The part wrote it in another version.
    #[error("learnt by {part} in version {found}, which this one does not read; it writes {known}")]
    Version {
        /// The part.
        part: &'static str,
        /// The version it is in.
        found: u16,
        /// The version that is read.
        known: u16,
    },
    /// There are fewer or more bytes than the fields have.
    #[error("cut short, or longer than it ought to be")]
    Length,
    /// A field says what cannot be.
    #[error("{what} is {value}, which cannot be")]
    Value {
        /// The field.
        what: &'static str,
        /// What it says.
        value: String,
    },
    /// It was learnt of a VM with another objective.
    #[error("learnt under another objective")]
    Objective,
    /// No controller of the policy in force learns anything, or not of this VM.
    #[error("nothing is learnt here: {0}")]
    Unwanted(&'static str),
}

impl Blob {
    /// One without fields, of the part of this name, in a version of its own.
    ///
    /// # Panics
    /// When the name has more than 255 bytes.
    pub fn new(part: &str, version: u16) -> Blob {
        let length = u8::try_from(part.len()).expect("names of parts are short");
        let mut bytes = vec![FORMAT, length];
        bytes.extend_from_slice(part.as_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
        Blob(bytes)
    }

    /// Bytes that are said to be one. Whether they are is found out when they are read.
    pub fn from_bytes(bytes: Vec<u8>) -> Blob {
        Blob(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name of the part that wrote it; `None`: it is not one.
    pub fn part(&self) -> Option<&str> {
        let (&[format, length], rest) = self.0.split_first_chunk()?;
        let name = rest.get(..length.into()).filter(|_| format == FORMAT)?;
        core::str::from_utf8(name).ok()
    }

    /// Adds a number.
    pub fn push_u64(&mut self, value: u64) -> &mut Blob {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a float, by its bits.
    pub fn push_f64(&mut self, value: f64) -> &mut Blob {
        self.push_u64(value.to_bits())
    }

    /// Its fields, to be read in the order in which they were added.
    ///
    /// # Errors
    /// When it is not one, or another part, or the part in another version, wrote it.
    pub fn fields(&self, part: &'static str, version: u16) -> Result<Fields<'_>, BlobError> {
        let (&format, rest) = (self.0.split_first()).ok_or(BlobError::Foreign("no bytes"))?;
        if format != FORMAT {
            return Err(BlobError::Foreign("another format"));
        }
        let (&length, rest) = rest.split_first().ok_or(BlobError::Length)?;
        let (name, rest) = (rest.split_at_checked(length.into())).ok_or(BlobError::Length)?;
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

/// What is left to be read of a blob.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// The next number.
    ///
    /// # Errors
    /// When there are no bytes for it.
    pub fn u64(&mut self) -> Result<u64, BlobError> {
        let (value, rest) = self.0.split_first_chunk().ok_or(BlobError::Length)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// The next number, where it is in this range.
    ///
    /// # Errors
    /// When there are no bytes for it, or it is not in the range.
    pub fn u64_in(
        &mut self,
        what: &'static str,
        range: core::ops::RangeInclusive<u64>,
    ) -> Result<u64, BlobError> {
        let value = self.u64()?;
        match range.contains(&value) {
            true => Ok(value),
            false => Err(BlobError::Value {
                what,
                value: value.to_string(),
            }),
        }
    }

    /// The next float, any of them: no number, infinite, below zero.
    ///
    /// # Errors
    /// When there are no bytes for it.
    pub fn f64(&mut self) -> Result<f64, BlobError> {
        Ok(f64::from_bits(self.u64()?))
    }

    /// The next float, where it is in this range.
    ///
    /// # Errors
    /// When there are no bytes for it, or it is not in the range.
    pub fn f64_in(
        &mut self,
        what: &'static str,
        range: core::ops::RangeInclusive<f64>,
    ) -> Result<f64, BlobError> {
        let value = self.f64()?;
        match range.contains(&value) {
            true => Ok(value),
            false => Err(BlobError::Value {
                what,
                value: value.to_string(),
            }),
        }
    }

    /// There are no more.
    ///
    /// # Errors
    /// When there are.
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
    fn what_is_cut_short_is_refused_wherever_it_is_cut() {
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
        let said = blob.fields("thermostat", 1).map(drop).unwrap_err();
        let (found, known) = (2, 1);
        let part = "thermostat";
        assert_eq!(said, BlobError::Version { part, found, known });
        let mut fields = blob.fields("thermostat", 2).expect("its own");
        let said = fields.f64_in("warmth", 0.0..=9.0).unwrap_err();
        assert_eq!(said.to_string(), "warmth is NaN, which cannot be");
        assert_eq!(fields.f64_in("warmth", 0.0..=9.0), Ok(7.0));
    }
}
