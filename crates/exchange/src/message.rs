//! Format of a message: what one host reports to the others of an array.
//!
//! All integers and floats are little-endian, and nothing is padded:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `TGSH` |
//! | 2 | version, [`VERSION`] |
//! | 2 | length of the whole message |
//! | 8 | instance of the sender: the time of its start, in nanoseconds of Unix time |
//! | 8 | sequence number within the instance, from 1 |
//! | 8 | time of sending, in nanoseconds of Unix time |
//! | 1 | kind: 0 is a report, 1 the withdrawal of a host that stops in order |
//! | 1 | flags: 1, a VM ran out of credits |
//! | 1 | number of groups |
//! | 1 + n, three times | names of cluster, array and host, each behind its length |
//! | 8, seven times | `weight`, `lost`, `inside`, `mean_inside`, `ended`, `admitted`, `scale` |
//! | 1 + n + 4 + 8 a group | name of the group, its weight, weights of the host's VMs in it |
//!
//! A withdrawal has no figures and no groups. The longest message has 990 bytes, a usual one 130.

use std::ops::RangeInclusive;
use std::str::FromStr;

use tidegate_core::objective::{Group, GroupName, Objective};
use tidegate_core::roles::{PeerGroup, PeerGroups, PeerShare};

use crate::name::Name;

/// Version of the format; other versions are refused.
pub const VERSION: u16 = 1;
/// Maximum length of a message in bytes.
pub const LENGTH_MAX: usize = 1024;

const MAGIC: [u8; 4] = *b"TGSH";
/// Place of the message's length.
const LENGTH_AT: RangeInclusive<usize> = 6..=7;
const REPORT: u8 = 0;
const WITHDRAWAL: u8 = 1;
const RAN_OUT: u8 = 1;
/// Largest figure of a report; far beyond any device and sum of weights.
const FIGURE_MAX: f64 = 1e15;
/// Scales that the feedback of a host can reach.
const SCALES: RangeInclusive<f64> = 0.05..=1e6;

/// Message of a host about one array.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// Cluster of the sender.
    pub cluster: Name,
    /// Array that the report is about.
    pub array: Name,
    /// Host that sends.
    pub host: Name,
    /// Start of the sending process, in nanoseconds of Unix time; a later process has a higher one.
    pub instance: u64,
    /// Number of the message within the instance, rising from 1.
    pub sequence: u64,
    /// Time of sending by the sender's clock, in nanoseconds of Unix time; for diagnosis alone.
    pub sent_unix_ns: u64,
    /// Content.
    pub body: Body,
}

/// Content of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Report of a period; its `number` is the message's `sequence`.
    Share(Box<PeerShare>),
    /// The host stops in order, and its VMs need no share until it is heard again.
    Withdrawal,
}

/// Reasons why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// Another version of the format.
    #[error("the format has version {0}, not {VERSION}")]
    Version(u16),
    /// Not of the format.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
}

impl Message {
    /// Returns the bytes of the message, at most [`LENGTH_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        // The length, once it is known.
        bytes.extend([0, 0]);
        for number in [self.instance, self.sequence, self.sent_unix_ns] {
            bytes.extend(number.to_le_bytes());
        }
        let (kind, flags, groups) = match &self.body {
            Body::Share(share) => (
                REPORT,
                if share.ran_out { RAN_OUT } else { 0 },
                share.groups.iter().count() as u8,
            ),
            Body::Withdrawal => (WITHDRAWAL, 0, 0),
        };
        bytes.extend([kind, flags, groups]);
        for name in [&self.cluster, &self.array, &self.host] {
            push_text(&mut bytes, name.as_str());
        }
        if let Body::Share(share) = &self.body {
            for figure in figures(share) {
                bytes.extend(figure.to_le_bytes());
            }
            for part in share.groups.iter() {
                push_text(&mut bytes, part.group.name.as_str());
                bytes.extend(part.group.weight.to_le_bytes());
                bytes.extend(part.competing.to_le_bytes());
            }
        }
        assert!(bytes.len() <= LENGTH_MAX, "names and groups are bounded");
        let length = bytes.len() as u16;
        bytes[LENGTH_AT].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Reads a message. Figures are checked: finite, not negative, and within what a host can
    /// report.
    ///
    /// # Errors
    /// If the bytes are not a whole message of this version, or have something behind it.
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        use MessageError::Malformed;
        if bytes.len() > LENGTH_MAX {
            return Err(Malformed("longer than any message"));
        }
        let mut reader = Reader(bytes);
        if reader.take::<4>()? != MAGIC {
            return Err(Malformed("it does not begin with TGSH"));
        }
        let version = u16::from_le_bytes(reader.take()?);
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        if usize::from(u16::from_le_bytes(reader.take()?)) != bytes.len() {
            return Err(Malformed("its length is not the one that it states"));
        }
        let [instance, sequence, sent_unix_ns] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let [kind, flags, groups] = reader.take()?;
        let mut name = || reader.text().and_then(name_of);
        let (cluster, array, host) = (name()?, name()?, name()?);
        let body = match kind {
            REPORT => Body::Share(Box::new(reader.share(sequence, flags, groups)?)),
            WITHDRAWAL if flags == 0 && groups == 0 => Body::Withdrawal,
            WITHDRAWAL => return Err(Malformed("a withdrawal with figures")),
            _ => return Err(Malformed("an unknown kind")),
        };
        if !reader.0.is_empty() {
            return Err(Malformed("bytes behind its end"));
        }
        Ok(Message {
            cluster,
            array,
            host,
            instance,
            sequence,
            sent_unix_ns,
            body,
        })
    }
}

/// Returns the figures of a report in the order of the format.
fn figures(share: &PeerShare) -> [f64; 7] {
    [
        share.weight,
        share.lost,
        share.inside,
        share.mean_inside,
        share.ended,
        share.admitted,
        share.scale,
    ]
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).expect("names have at most 64 bytes"));
    bytes.extend(text.as_bytes());
}

fn name_of(text: &str) -> Result<Name, MessageError> {
    Name::from_str(text).map_err(|_| MessageError::Malformed("a name of cluster, array or host"))
}

/// Bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let Some((first, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(MessageError::Malformed("cut short"));
        };
        self.0 = rest;
        Ok(*first)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, MessageError> {
        let [length] = self.take()?;
        let Some((text, rest)) = self.0.split_at_checked(length.into()) else {
            return Err(MessageError::Malformed("cut short"));
        };
        self.0 = rest;
        str::from_utf8(text).map_err(|_| MessageError::Malformed("a name that is not UTF-8"))
    }

    fn share(&mut self, number: u64, flags: u8, groups: u8) -> Result<PeerShare, MessageError> {
        use MessageError::Malformed;
        if flags & !RAN_OUT != 0 {
            return Err(Malformed("unknown flags"));
        }
        if usize::from(groups) > PeerGroups::MAX_GROUPS {
            return Err(Malformed("too many groups"));
        }
        let mut figures = [0.0; 7];
        for figure in &mut figures {
            *figure = f64::from_le_bytes(self.take()?);
            // False for what is no number, too.
            if !(0.0..=FIGURE_MAX).contains(figure) {
                return Err(Malformed("a figure that no host has"));
            }
        }
        let [weight, lost, inside, mean_inside, ended, admitted, scale] = figures;
        if lost > weight {
            return Err(Malformed("it loses more than its weight"));
        }
        if !SCALES.contains(&scale) {
            return Err(Malformed("a scale that no host has"));
        }
        let mut share = PeerShare {
            number,
            weight,
            lost,
            inside,
            mean_inside,
            ended,
            admitted,
            ran_out: flags & RAN_OUT != 0,
            scale,
            groups: PeerGroups::default(),
        };
        for _ in 0..groups {
            let name: GroupName = (self.text()?.parse()).map_err(|_| Malformed("a group"))?;
            let weight = u32::from_le_bytes(self.take()?);
            if !(1..=Objective::MAX_WEIGHT).contains(&weight) {
                return Err(Malformed("a weight that no group has"));
            }
            let competing = self.u64()?;
            share.groups.push(PeerGroup {
                group: Group { name, weight },
                competing,
            });
        }
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// Report with the largest names and all groups.
    fn longest() -> Message {
        let long = name(&"n".repeat(Name::MAX_LEN));
        let mut share = PeerShare {
            number: 7,
            weight: 400.0,
            lost: 12.5,
            inside: 31.0,
            mean_inside: 30.0,
            ended: 9000.0,
            admitted: 9001.5,
            ran_out: true,
            scale: 1.25,
            groups: PeerGroups::default(),
        };
        for n in 0..PeerGroups::MAX_GROUPS {
            let name = format!("{n:0>width$}", width = GroupName::MAX_LEN);
            let name = name.parse().expect("as long as a group's name may be");
            share.groups.push(PeerGroup {
                group: Group { name, weight: 100 },
                competing: n as u64,
            });
        }
        Message {
            cluster: long.clone(),
            array: long.clone(),
            host: long,
            instance: 1 << 60,
            sequence: 7,
            sent_unix_ns: u64::MAX,
            body: Body::Share(Box::new(share)),
        }
    }

    fn withdrawal() -> Message {
        Message {
            cluster: name("east"),
            array: name("san_1"),
            host: name("host-a"),
            body: Body::Withdrawal,
            ..longest()
        }
    }

    #[test]
    fn what_was_packed_is_read_again() {
        let usual = Message {
            body: Body::Share(Box::new(PeerShare {
                number: 7,
                ..PeerShare::IDLE
            })),
            ..withdrawal()
        };
        for (message, length) in [
            (longest(), 990),
            (withdrawal(), 35 + 18),
            (usual, 35 + 18 + 56),
        ] {
            let bytes = message.encode();
            assert_eq!(bytes.len(), length);
            assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn every_cut_and_every_extension_is_refused() {
        let bytes = longest().encode();
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes[..end]).is_err(), "{end} bytes");
            // With a length that is right for the cut, too.
            let mut cut = bytes[..end].to_vec();
            if let Some(length) = cut.get_mut(LENGTH_AT) {
                length.copy_from_slice(&(end as u16).to_le_bytes());
            }
            assert!(Message::decode(&cut).is_err(), "{end} bytes");
        }
        let mut longer = withdrawal().encode();
        longer.push(0);
        let length = longer.len() as u16;
        longer[LENGTH_AT].copy_from_slice(&length.to_le_bytes());
        assert!(Message::decode(&longer).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = withdrawal().encode();
        bytes[4] = 2;
        assert_eq!(Message::decode(&bytes), Err(MessageError::Version(2)));
    }

    #[test]
    fn figures_that_no_host_has_are_refused() {
        let changes: [fn(&mut PeerShare); 8] = [
            |share| share.weight = f64::NAN,
            |share| share.inside = -1.0,
            |share| share.mean_inside = f64::INFINITY,
            |share| share.ended = 1e16,
            |share| share.admitted = f64::NEG_INFINITY,
            |share| share.lost = share.weight + 1.0,
            |share| share.scale = 0.0,
            |share| share.scale = 2e6,
        ];
        for change in changes {
            let mut message = longest();
            let Body::Share(share) = &mut message.body else {
                unreachable!("a report");
            };
            change(share);
            let refused = Message::decode(&message.encode());
            assert!(
                matches!(refused, Err(MessageError::Malformed(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn weights_that_no_group_has_are_refused() {
        for (weight, is_read) in [
            (0, false),
            (1, true),
            (Objective::MAX_WEIGHT, true),
            (Objective::MAX_WEIGHT + 1, false),
            (u32::MAX, false),
        ] {
            let mut message = longest();
            let Body::Share(share) = &mut message.body else {
                unreachable!("a report");
            };
            let mut part = *share.groups.iter().next().expect("there are groups");
            part.group.weight = weight;
            share.groups = PeerGroups::default();
            share.groups.push(part);
            let read = Message::decode(&message.encode());
            assert_eq!(read.is_ok(), is_read, "{weight}: {read:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_are_a_message(
            bytes in proptest::collection::vec(any::<u8>(), 0..1200),
        ) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        #[test]
        fn a_message_with_changed_bytes_is_refused_or_is_another(
            changes in proptest::collection::vec((0..990_usize, any::<u8>()), 1..6),
        ) {
            let mut bytes = longest().encode();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
