//! File format for learnt state of one VM, to move it from one daemon to another.
//!
//! ```text
//!   { "format": "tidegate-learnt", "version": 1,
//!     "vm", "device", "policy", "controller": names in the daemon that exported it
//!     "disks": identity of the storage,  "state": hexadecimal,  "checksum": FNV-1a }
//! ```
//!
//! A reader rejects other formats, newer versions and files that were changed or truncated, each
//! with its own message, before it uses the content. The controller that imports the state checks
//! it in turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::learnt_state::Blob;

use crate::storage_identity::Identity;

const FORMAT: &str = "tidegate-learnt";
const VERSION: u64 = 1;

/// Learnt state of a VM as a file; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearntStateFile {
    format: String,
    version: u64,
    /// Name of the VM in the daemon that exported the state.
    pub vm: String,
    /// Name of the device in that daemon.
    pub device: String,
    /// Name of the policy in force there.
    pub policy: String,
    /// Name of the policy's controller that learnt the state.
    pub controller: String,
    /// Identity of the block devices under the VM's disks, one per element; empty if unknown.
    pub disks: Vec<String>,
    state: String,
    checksum: String,
}

/// Reason for which a file is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// The file is of another format.
    #[error("not a file of learnt VM state: {0}")]
    Foreign(String),
    /// The file has a newer version of the format than this daemon reads.
    #[error(
        "format version {0} is not supported, this daemon reads version {VERSION}: import the file \
         with the Tidegate that wrote it or a newer one, or let the policy learn anew"
    )]
    Newer(u64),
    /// The file was changed or truncated.
    #[error("the file was changed or damaged: {0}")]
    Damaged(&'static str),
}

impl LearntStateFile {
    /// Creates the file for state of a VM; the names are those of VM, device and policy.
    pub(crate) fn new(
        [vm, device, policy]: [&str; 3],
        disks: &Identity,
        learnt: &Blob,
    ) -> LearntStateFile {
        // `read` refuses a state without it, which would show only at the next import.
        assert!(
            learnt.part().is_some(),
            "learnt state does not name its controller"
        );
        let mut file = LearntStateFile {
            format: FORMAT.to_owned(),
            version: VERSION,
            vm: vm.to_owned(),
            device: device.to_owned(),
            policy: policy.to_owned(),
            controller: learnt.part().unwrap_or_default().to_owned(),
            disks: disks.to_text().lines().map(str::to_owned).collect(),
            state: to_hex(learnt.as_bytes()),
            checksum: String::new(),
        };
        file.checksum = file.compute_checksum();
        file
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// If the file is of another format, newer than this daemon reads, or its checksum does not
    /// match.
    pub fn read(file: &Value) -> Result<LearntStateFile, FileError> {
        // Format and version are read before the fields, which another version may lack.
        match file.get("format").and_then(Value::as_str) {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(FileError::Foreign(format!("\"format\" is {other:?}")));
            }
            None => {
                return Err(FileError::Foreign("\"format\" is missing".to_owned()));
            }
        }
        match file.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(newer) => return Err(FileError::Newer(newer)),
            None => {
                return Err(FileError::Foreign(
                    "\"version\" is missing or not a number".to_owned(),
                ));
            }
        }
        let read = serde_json::from_value::<LearntStateFile>(file.clone());
        let file = read.map_err(|error| FileError::Foreign(error.to_string()))?;
        if file.compute_checksum() != file.checksum {
            return Err(FileError::Damaged("the checksum does not match"));
        }
        // The state names its controller as well; a file put together by hand may disagree.
        if file.learnt()?.part() != Some(&file.controller) {
            return Err(FileError::Damaged(
                "the state belongs to another controller",
            ));
        }
        Ok(file)
    }

    /// Returns the learnt state.
    ///
    /// # Errors
    /// If the state is not hexadecimal.
    pub(crate) fn learnt(&self) -> Result<Blob, FileError> {
        let bytes = from_hex(&self.state);
        let bytes = bytes.ok_or(FileError::Damaged("the state is not hexadecimal"))?;
        Ok(Blob::from_bytes(bytes))
    }

    /// Returns the identity of the block devices under the VM's disks at export.
    pub(crate) fn identity(&self) -> Identity {
        Identity::from_text(&self.disks.join("\n"))
    }

    /// Returns the checksum over all fields, FNV-1a with 64 bits. It detects mistakes, not malice.
    fn compute_checksum(&self) -> String {
        let texts = [&self.vm, &self.device, &self.policy, &self.controller];
        let all = texts.into_iter().chain(&self.disks).chain([&self.state]);
        // NUL separates the fields: JSON would escape a NUL within text, and no name contains one.
        let bytes = all.flat_map(|text| text.bytes().chain([0]));
        let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{sum:016x}")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    };
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file() -> LearntStateFile {
        let mut learnt = Blob::new("thermostat", 1);
        learnt.push_u64(18).push_u64(u64::MAX);
        let disks = Identity::from_text("block device naa.5000c500");
        LearntStateFile::new(["oltp", "disk0", "warm"], &disks, &learnt)
    }

    fn written() -> Value {
        serde_json::to_value(file()).expect("plain data")
    }

    #[test]
    fn what_was_written_is_read() {
        let read = LearntStateFile::read(&written()).expect("as it was written");
        assert_eq!(read, file());
        assert_eq!(read.controller, "thermostat");
        let blob = read.learnt().expect("hexadecimal");
        let mut fields = blob.fields("thermostat", 1).expect("its own");
        assert_eq!((fields.u64(), fields.u64()), (Ok(18), Ok(u64::MAX)));
        assert!(
            read.identity()
                .overlaps(&Identity::from_text("block device naa.5000c500"))
        );
        let nowhere = LearntStateFile::new(["a", "b", "c"], &Identity::from_text(""), &blob);
        assert_eq!(nowhere.disks, [""; 0]);
    }

    #[test]
    fn what_is_not_one_is_refused_with_the_reason() {
        let changed = |key: &str, value: Value| {
            let mut file = written();
            file[key] = value;
            file
        };
        for (file, message) in [
            (json!([1]), "\"format\" is missing"),
            (json!({}), "\"format\" is missing"),
            (
                changed("format", json!("profile")),
                "\"format\" is \"profile\"",
            ),
            (
                changed("version", json!(2)),
                "format version 2 is not supported",
            ),
            (changed("version", json!("1")), "\"version\" is missing"),
            (changed("colour", json!("red")), "unknown field `colour`"),
            (changed("disks", json!("sda")), "invalid type"),
            (changed("vm", json!("other")), "the checksum does not match"),
            (
                changed("policy", json!("fifo")),
                "the checksum does not match",
            ),
            (
                changed("disks", json!(["other"])),
                "the checksum does not match",
            ),
            (
                changed("checksum", json!("")),
                "the checksum does not match",
            ),
        ] {
            let refused = LearntStateFile::read(&file).expect_err(message).to_string();
            assert!(refused.contains(message), "{message}: {refused}");
        }
        // A change of any byte of the state is detected.
        let state = written()["state"].as_str().expect("text").to_owned();
        for at in 0..state.len() {
            let mut bytes = state.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let wrong = String::from_utf8(bytes).expect("digits");
            assert!(
                LearntStateFile::read(&changed("state", json!(wrong))).is_err(),
                "{at}"
            );
        }
        for sealed in ["0", "zz", "é0"] {
            let mut file = file();
            file.state = sealed.to_owned();
            file.checksum = file.compute_checksum();
            let file = serde_json::to_value(file).expect("plain data");
            let refused = LearntStateFile::read(&file).expect_err(sealed);
            assert!(matches!(refused, FileError::Damaged(_)), "{refused}");
        }
    }
}
