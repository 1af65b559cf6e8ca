//! Bodies of the fuzz targets, so that each file under `fuzz/` needs only one line.

use crate::client::{Decoded, decode_reply};
use crate::{Abilities, BlockSize, Command, Export, Exports, Limits, Session, Step, TlsMode};

/// Feeds `data` to a session and checks the invariants that must hold for any client.
///
/// The first byte is the size of the pieces into which the rest is cut; its two lowest bits
/// choose the mode of TLS as well. What follows `NBD_OPT_STARTTLS` in another piece counts as
/// decrypted.
///
/// # Panics
/// Memory exceeds what [`Limits`] allow, a request leaves its export, or the session stops making
/// progress.
pub fn fuzz_session(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let limits = Limits {
        list_len_max: 4096,
        options_max: 64,
        ..Limits::default()
    };
    let mode = match cut & 3 {
        1 => TlsMode::Selective,
        2 => TlsMode::Forced,
        _ => TlsMode::Off,
    };
    let mut session = Session::with_tls(limits, mode);
    for piece in stream.chunks(usize::from(cut).max(1)) {
        if !feed(&mut session, piece, &limits) {
            return;
        }
    }
}

/// Decodes `data` as the byte stream of a server.
pub fn fuzz_replies(mut data: &[u8]) {
    while let Ok(Decoded::Reply(n, _)) = decode_reply(data) {
        assert!(n > 0 && n <= data.len());
        data = &data[n..];
    }
}

/// Feeds one piece of the stream; returns `false` once the connection is closed.
fn feed(session: &mut Session, mut input: &[u8], limits: &Limits) -> bool {
    // Each step but the last consumes input or sends output, which bounds the number of steps.
    for _ in 0..=2 * input.len() + 2 {
        let Ok((n, step)) = session.handle(input, &TestExports) else {
            return false;
        };
        input = &input[n..];
        check_memory(session, limits);
        match step {
            Step::NeedMore(more) => {
                assert!(more > 0 && input.is_empty());
                return true;
            }
            Step::Disconnect(_) => return false,
            Step::Request(r) => {
                assert!(r.offset + u64::from(r.len) <= SIZE);
                if r.command == Command::Write {
                    session.skip_payload(r.len);
                }
            }
            Step::StartTls => {
                assert!(
                    input.is_empty(),
                    "plain text is left behind NBD_OPT_STARTTLS"
                );
                session.consume_output(session.output().len());
                session.tls_established();
            }
            Step::Output | Step::Opened(_) | Step::Rejected(_) => {}
        }
        session.consume_output(session.output().len());
    }
    panic!("the session makes no progress");
}

fn check_memory(session: &Session, limits: &Limits) {
    // One option; the list with the spare capacity of a growing vector, up to twice its length; and
    // 8 * 4096 for the name of the selected context, a reply with two strings of up to 4096 bytes
    // each with spare capacity, and the state machine itself.
    let max = limits.option_len_max + 2 * limits.list_len_max + 8 * 4096;
    assert!(
        session.memory() <= max as usize,
        "{} bytes of memory",
        session.memory()
    );
}

/// Size of every export of the fuzz targets in bytes.
const SIZE: u64 = 1 << 20;

/// Exports of the fuzz targets, among them the default one.
struct TestExports;

impl Exports for TestExports {
    fn lookup(&self, name: &str) -> Option<Export> {
        let abilities = Abilities {
            read_only: name == "r",
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            df: true,
            cache: true,
            block_status: true,
            ..Abilities::default()
        };
        let block = BlockSize::new(512, 4096, 1 << 16).expect("the sizes keep the rules");
        let strict = Export {
            abilities,
            block,
            ..Export::new(0, name, SIZE)
        };
        match name {
            "" | "r" => Some(Export {
                block: BlockSize::DEFAULT,
                ..strict
            }),
            "s" => Some(Export {
                require_block_size: true,
                ..strict
            }),
            _ => None,
        }
    }

    fn list(&self, f: &mut dyn FnMut(&str, &str)) {
        f("r", "read-only");
        f("s", &"x".repeat(3000));
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::message;
    use proptest::prelude::*;
    use std::path::Path;

    /// Runs a target on its seeds.
    fn seeds(target: &str, run: fn(&[u8])) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let entries = std::fs::read_dir(dir.join(target)).expect("a directory of seeds");
        let paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
        assert!(!paths.is_empty(), "no seed of {target}");
        for path in paths {
            run(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")));
        }
    }

    #[test]
    fn seeds_are_survived() {
        seeds("nbd_session", super::fuzz_session);
        seeds("nbd_replies", super::fuzz_replies);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_bytes_are_handled_without_a_panic(data in any::<Vec<u8>>()) {
            super::fuzz_session(&data);
            super::fuzz_session(&[&[0, 0, 0, 0, 3], &data[..]].concat());
            super::fuzz_replies(&data);
        }

        #[test]
        fn almost_valid_messages_are_handled_without_a_panic(
            cut in any::<u8>(),
            messages in prop::collection::vec(message(), 1..12),
            flip in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut data = vec![cut, 0, 0, 0, 3];
            data.extend(messages.concat());
            if let Some((at, mask)) = flip {
                let at = at.index(data.len());
                data[at] ^= mask;
            }
            super::fuzz_session(&data);
        }
    }
}
