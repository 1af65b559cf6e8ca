//! Body of the fuzz target, which keeps the target itself one line.

use crate::{BLOCK_REQUESTS, Encoder, Item, Reader, Request};

/// Reads `data` as a recording, and what it yields once more after encoding it.
///
/// # Panics
/// If a request's times do not ascend, if the totals contradict the items, or if the requests are
/// others after being encoded and read again.
pub fn recording(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else {
        return;
    };
    let mut requests: Vec<Request> = Vec::new();
    let mut gaps = 0;
    while let Some(item) = reader.next_item().expect("memory can be read") {
        match item {
            Item::Request(request) => {
                let times = [
                    request.arrived,
                    request.admitted,
                    request.sent,
                    request.done,
                ];
                assert!(times.is_sorted(), "{request:?}");
                requests.push(request);
            }
            Item::Change(..) => {}
            Item::Gap(_) => gaps += 1,
        }
    }
    assert_eq!(reader.next_item().expect("memory can be read"), None);
    let summary = reader.summary();
    assert_eq!(
        (summary.requests, summary.gaps),
        (requests.len() as u64, gaps)
    );
    // A block of 4096 requests has at least two bytes for each 64 of them in every column.
    assert!(requests.len() <= data.len() * BLOCK_REQUESTS);
    encode_again(&reader, requests);
}

/// Encodes requests and expects the same when they are read again.
fn encode_again(reader: &Reader<&[u8]>, mut requests: Vec<Request>) {
    // Encoders want dense numbers; what a file claims is up to it.
    requests.retain(|request| request.disk < 1 << 10);
    let mut header = reader.header().clone();
    header.first_request = 0;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&header, &mut bytes);
    for request in &requests {
        encoder.push(request, &mut bytes);
    }
    encoder.end(reader.summary().last, &mut bytes);
    let mut again = Reader::new(bytes.as_slice()).expect("it has a header");
    for request in requests {
        let item = again.next_item().expect("memory can be read");
        assert_eq!(item, Some(Item::Request(request)));
    }
    assert_eq!(again.next_item().expect("memory can be read"), None);
    assert!(again.summary().is_complete);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn seeds_of_recordings_are_survived() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/recording");
        let mut inputs = 0;
        for entry in std::fs::read_dir(dir).expect("a directory of seeds") {
            let path = entry.expect("a file").path();
            super::recording(&std::fs::read(&path).expect("readable"));
            inputs += 1;
        }
        assert!(inputs > 0, "no seed");
    }
}
