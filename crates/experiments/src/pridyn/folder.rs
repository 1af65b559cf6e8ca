//! Files of the PriDyn experiment: the disk model, and the request traces of its seven streams, for
//! which users may supply the traces that the thesis used.

use crate::TraceFile;
use crate::folder::{self, File, named};
use std::collections::BTreeMap;
use std::io::{BufRead, Cursor};
use std::sync::Arc;
use tidegate_config::Library;
use tidegate_core::profile::Profile;
use tidegate_device::catalogue::Entry;

/// Name and text of the disk model.
const DISK: File = named!("pridyn", "disk.toml");

/// Pair of a stream and the bytes of its trace, which are built into the binary.
macro_rules! trace {
    ($stream:literal, $file:literal) => {
        (
            $stream,
            include_bytes!(concat!("../../../../experiments/pridyn/", $file)),
        )
    };
}

/// Built-in traces by stream.
const STREAMS: [(&str, &[u8]); 7] = [
    trace!("web-1", "traces/web-1.disksim"),
    trace!("web-2", "traces/web-2.disksim"),
    trace!("web-3", "traces/web-3.disksim"),
    trace!("media-1", "traces/media-1.disksim"),
    trace!("media-2", "traces/media-2.disksim"),
    trace!("media-3", "traces/media-3.disksim"),
    trace!("vm", "../../crates/workload/testdata/vm.vscsi"),
];

/// Traces of the thesis by stream, as files of the MSR-Cambridge collection (SNIA IOTTA 388), which
/// users may supply. The thesis names only their servers, so the volumes are this experiment's
/// choice.
pub(crate) const TRACES: &[TraceFile] = &[
    TraceFile::new("web-1", "web_0.csv"),
    TraceFile::new("web-2", "web_1.csv"),
    TraceFile::new("web-3", "web_2.csv"),
    TraceFile::new("media-1", "mds_0.csv"),
    TraceFile::new("media-2", "mds_1.csv"),
    // The collection has two media servers.
    TraceFile::new("media-3", "mds_0.csv"),
    TraceFile::new("vm", "rsrch_0.csv"),
];

/// Files that the scenarios name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    /// Text of the disk model instead of the file's.
    pub(crate) disk: Option<String>,
    /// Traces by stream, instead of the built-in ones.
    pub(crate) traces: BTreeMap<&'static str, Arc<[u8]>>,
}

/// Name of the stream at a path: `web-1` for `../traces/web-1.disksim`.
fn stream(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}

impl Library for Folder {
    fn model(&self, name: &str) -> Result<Entry, String> {
        let (file, text) = DISK;
        folder::model(name, &[(file, self.disk.as_deref().unwrap_or(text))])
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        // No scenario of this paper names a profile.
        Err(format!("there is no {path}"))
    }

    fn open(&self, path: &str) -> Result<Box<dyn BufRead>, String> {
        let name = stream(path);
        // A user's trace takes precedence over the built-in one.
        if let Some(bytes) = self.traces.get(name) {
            return Ok(Box::new(Cursor::new(bytes.clone())));
        }
        let found = STREAMS.iter().find(|(stream, _)| *stream == name);
        match found {
            Some((_, bytes)) => Ok(Box::new(*bytes)),
            None => Err(format!("there is no {path}")),
        }
    }
}

/// Text of the built-in disk model.
pub(super) fn disk() -> &'static str {
    DISK.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use tidegate_core::random::SplitMix64;

    /// Generates the built-in trace of a media server: 1000 requests of 4 to 64 KiB, each size as
    /// often as any other, anywhere in 4 GiB.
    fn media(seed: u64) -> String {
        let mut random = SplitMix64::new(seed);
        let mut text = String::new();
        for request in 0..1000_u64 {
            let sectors = 8 << random.below(5);
            let at = random.below(1 << 20) * 8;
            writeln!(text, "{} 0 {at} {sectors} 1", request * 100_000_000).expect("memory");
        }
        text
    }

    #[test]
    fn the_media_servers_requests_are_generated() {
        for (seed, name) in [(1, "media-1"), (2, "media-2"), (3, "media-3")] {
            let (_, found) = STREAMS
                .iter()
                .find(|(stream, _)| *stream == name)
                .expect("it is there");
            assert!(media(seed).as_bytes() == *found, "{name}");
        }
    }

    #[test]
    fn somebody_s_trace_stands_for_the_stream_of_its_name() {
        let mut folder = Folder::default();
        let read = |folder: &Folder, path: &str| {
            let mut text = String::new();
            folder
                .open(path)
                .map(|mut input| input.read_line(&mut text).expect("text"))?;
            Ok::<_, String>(text)
        };
        let built_in = read(&folder, "../traces/web-1.disksim").expect("it is built in");
        folder.traces.insert("web-1", Arc::from(&b"mine\n"[..]));
        assert_eq!(
            read(&folder, "../traces/web-1.disksim").expect("it is there"),
            "mine\n"
        );
        assert_ne!(built_in, "mine\n");
        assert!(read(&folder, "../traces/web-4.disksim").is_err());
        assert!(
            TRACES
                .iter()
                .all(|of| STREAMS.iter().any(|(stream, _)| *stream == of.stream))
        );
    }
}
